/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The commands that start agents on other machines: ssh, srun, or the one that --agent gives. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shmem/launch_remote.h"

#define WORDS_MAX 64u
#define PLACEHOLDER "%h"
/* Characters without a meaning to a shell: on the other machine, a shell splits the command of ssh
 * into words. */
#define PLAIN "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._+-@%=:,"

/* The path of oshrun on the other machine: $OSHRUN_REMOTE, else the path on this one. */
static int find_remote_path(char *ret_path, size_t bytes, struct via_error *err)
{
    const char *set = getenv("OSHRUN_REMOTE");

    if (set) {
        snprintf(ret_path, bytes, "%s", set);
    } else {
        ssize_t got = readlink("/proc/self/exe", ret_path, bytes - 1);
        if (got < 0)
            return via_error_set(err, -errno, "/proc/self/exe: %s", strerror(errno));
        ret_path[got] = '\0';
    }
    if (ret_path[0] == '\0' || ret_path[strspn(ret_path, PLAIN)] != '\0')
        return via_error_set(err, -EINVAL,
                             "oshrun on the other machines: the path \"%s\" has characters that a "
                             "shell there would change; set OSHRUN_REMOTE",
                             ret_path);
    return 0;
}

/* The word with %h replaced by the machine's name; allocated. */
static char *fill_in(const char *word, size_t bytes, const char *machine, bool *filled)
{
    char *text = malloc(bytes + strlen(machine) + 1);
    const char *at = memmem(word, bytes, PLACEHOLDER, strlen(PLACEHOLDER));

    if (!text)
        return NULL;
    if (!at) {
        memcpy(text, word, bytes);
        text[bytes] = '\0';
        return text;
    }
    size_t before = (size_t)(at - word), after = bytes - before - strlen(PLACEHOLDER);
    memcpy(text, word, before);
    memcpy(text + before, machine, strlen(machine));
    memcpy(text + before + strlen(machine), at + strlen(PLACEHOLDER), after);
    text[before + strlen(machine) + after] = '\0';
    *filled = true;
    return text;
}

char **via_launch_agent_words(const char *command, const char *machine, struct via_error *err)
{
    char **words = calloc(WORDS_MAX + 4, sizeof(*words));
    char path[4096];
    size_t count = 0;
    bool filled = false, good = words != NULL;

    if (find_remote_path(path, sizeof(path), err) < 0) {
        free(words);
        return NULL;
    }
    for (const char *at = command; good && at[strspn(at, " ")] != '\0';) {
        at += strspn(at, " ");
        size_t bytes = strcspn(at, " ");
        good = count < WORDS_MAX && (words[count] = fill_in(at, bytes, machine, &filled)) != NULL;
        count++;
        at += bytes;
    }
    if (good && !filled)
        good = (words[count++] = strdup(machine)) != NULL;
    good = good && count > 1 && (words[count++] = strdup(path)) != NULL &&
           (words[count++] = strdup("--serve")) != NULL;
    if (!good) {
        via_error_set(err, -EINVAL, "--agent \"%.100s\": no command, or too many words", command);
        for (size_t i = 0; words && i < WORDS_MAX + 4; i++)
            free(words[i]);
        free(words);
        return NULL;
    }
    return words;
}

static __attribute__((noreturn)) void become_command(char **words, int fds[3])
{
    sigset_t none;

    /* A process group of its own: a signal from the terminal goes to oshrun, which forwards it. */
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    for (int i = 0; i < 3; i++)
        if (dup2(fds[i], i) < 0)
            _exit(127);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    execvp(words[0], words);
    dprintf(STDERR_FILENO, "%s: %s\n", words[0], strerror(errno));
    _exit(127);
}

int via_launch_agent_start(const char *command, const char *name,
                           struct via_launch_machine *ret_machine, struct via_error *err)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, error[2] = {-1, -1}, result = 0;
    char **words = via_launch_agent_words(command, name, err);

    if (!words)
        return -EINVAL;
    *ret_machine = (struct via_launch_machine){.name = name, .error_fd = -1};
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(error, O_CLOEXEC) < 0)
        result = via_error_set(err, -errno, "%s: pipe: %s", name, strerror(errno));
    pid_t pid = result == 0 ? fork() : -1;
    if (pid == 0)
        become_command(words, (int[]){in[0], out[1], error[1]});
    if (result == 0 && pid < 0)
        result = via_error_set(err, -errno, "%s: fork: %s", name, strerror(errno));
    for (char **word = words; *word; word++)
        free(*word);
    free(words);
    close(in[0]);
    close(out[1]);
    close(error[1]);
    if (result < 0) {
        close(in[1]);
        close(out[0]);
        close(error[0]);
        return result;
    }
    setpgid(pid, pid);
    ret_machine->pid = pid;
    ret_machine->error_fd = error[0];
    fcntl(error[0], F_SETFL, O_NONBLOCK);
    via_launch_link_open(&ret_machine->link, out[0], in[1], VIA_LAUNCH_FRAME_BYTES_MAX);
    return 0;
}

/* --- the command's standard error ------------------------------------------------------------ */

/* The last line that is not empty. */
static void keep_line(struct via_launch_machine *machine, const char *text, size_t bytes)
{
    while (bytes > 0 && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
        bytes--;
    const char *line = memrchr(text, '\n', bytes);
    line = line ? line + 1 : text;
    bytes = via_min(bytes - (size_t)(line - text), sizeof(machine->error_line) - 1);
    if (bytes == 0)
        return;
    for (size_t i = 0; i < bytes; i++)
        machine->error_line[i] = (char)(line[i] < ' ' || line[i] > '~' ? '?' : line[i]);
    machine->error_line[bytes] = '\0';
}

void via_launch_agent_errors(struct via_launch_machine *machine)
{
    char text[4096];
    ssize_t got = read(machine->error_fd, text, sizeof(text));

    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got <= 0) {
        close(machine->error_fd);
        machine->error_fd = -1;
        return;
    }
    if (machine->state == VIA_LAUNCH_MACHINE_STARTING)
        keep_line(machine, text, (size_t)got);
    else if (write(STDERR_FILENO, text, (size_t)got) < 0)
        return;
}

const char *via_launch_agent_describe(const struct via_launch_machine *machine, char text[400])
{
    const char *quote = machine->error_line[0] != '\0' ? ": " : "";
    const char *line = machine->error_line;

    if (*line == '\0' && machine->link.noise[0] != '\0' && !machine->link.greeted) {
        quote = ": ";
        line = machine->link.noise;
    }
    if (machine->pid > 0)
        snprintf(text, 400, "the command that starts oshrun there has closed its output%s%s", quote,
                 line);
    else if (WIFSIGNALED(machine->status))
        snprintf(text, 400, "the command that starts oshrun there was killed by signal %d%s%s",
                 WTERMSIG(machine->status), quote, line);
    else
        snprintf(text, 400, "the command that starts oshrun there exited with code %d%s%s",
                 WEXITSTATUS(machine->status), quote, line);
    return text;
}
