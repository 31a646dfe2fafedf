/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "cli/remote.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/preload.h"

#define AGENT_DEFAULT "ssh"
#define AGENT_WORDS_MAX 30u
#define HANG_UP_MS 5000

/* --- this end -------------------------------------------------------------------------------- */

/* The command line for a shell, in a buffer that grows. */
struct line {
    char *text;
    size_t bytes;
};

static int append(struct line *line, const char *text, size_t bytes)
{
    char *grown = realloc(line->text, line->bytes + bytes + 1);
    if (grown == NULL) {
        return -ENOMEM;
    }
    memcpy(grown + line->bytes, text, bytes);
    line->text = grown;
    line->bytes += bytes;
    line->text[line->bytes] = '\0';
    return 0;
}

/* Appends a quoted word such as 'it'\''s'. */
static int append_quoted(struct line *line, const char *word)
{
    int rc = append(line, " '", 2);
    for (const char *at = word; *at != '\0' && rc == 0; at++) {
        rc = *at == '\'' ? append(line, "'\\''", 4) : append(line, at, 1);
    }
    return rc == 0 ? append(line, "'", 1) : rc;
}

static int make_line(struct line *line, unsigned host, bool sockets, char **argv)
{
    char begin[80];
    int bytes = snprintf(begin, sizeof(begin), "exec viaduct run --remote%s --host %u --",
                         sockets ? "" : " --no-sockets", host);
    int rc = append(line, begin, (size_t)bytes);
    for (char **word = argv; *word != NULL && rc == 0; word++) {
        rc = append_quoted(line, *word);
    }
    return rc;
}

/* The agent's name for the machine, which must not begin like an option. */
static const char *target_of(const struct via_fabric *fabric, unsigned host)
{
    static struct via_fabric_address address;
    const char *name = via_fabric_host_name(fabric, host);
    address = via_fabric_address(fabric, host);
    const char *target = name[0] != '\0' ? name : address.text;
    return target[0] != '-' ? target : NULL;
}

int via_remote_run(const char *name, const struct via_fabric *fabric, unsigned host,
                   const char *agent, bool sockets, char **argv)
{
    char *words[AGENT_WORDS_MAX + 3] = {NULL};
    unsigned count = 0;
    struct line line = {NULL, 0};
    struct via_error err = {0};
    const char *target = target_of(fabric, host);
    if (target == NULL) {
        via_error_set(&err, -EADDRNOTAVAIL,
                      "host %u: run: it has announced neither name nor address", host);
        return via_cli_fail(name, &err);
    }
    if (agent == NULL || agent[0] == '\0') {
        agent = getenv("VIADUCT_AGENT");
    }
    char *copy = strdup(agent != NULL && agent[0] != '\0' ? agent : AGENT_DEFAULT);
    char *rest = NULL;
    for (char *word = copy != NULL ? strtok_r(copy, " \t", &rest) : NULL;
         word != NULL && count < AGENT_WORDS_MAX; word = strtok_r(NULL, " \t", &rest)) {
        words[count++] = word;
    }
    if (count == 0 || count == AGENT_WORDS_MAX || make_line(&line, host, sockets, argv) != 0) {
        via_error_set(&err, -EINVAL, "host %u: run: the agent is not a command of 1 to %u words",
                      host, AGENT_WORDS_MAX - 1);
        free(copy);
        return via_cli_fail(name, &err);
    }
    words[count++] = (char *)(uintptr_t)target;
    words[count++] = line.text;
    int code = via_preload_exec(name, words);
    free(copy);
    free(line.text);
    return code;
}

/* --- the other end --------------------------------------------------------------------------- */

static int exit_code_of(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Waits until the program ends, or its output has no reader. */
static void watch(pid_t pid, int pidfd)
{
    struct pollfd fds[2] = {{.fd = pidfd, .events = POLLIN}, {.fd = STDOUT_FILENO}};
    while (poll(fds, 2, -1) < 0 || fds[0].revents == 0) {
        if ((fds[1].revents & (POLLERR | POLLHUP)) != 0) {
            kill(pid, SIGHUP);
            fds[0].revents = 0;
            if (poll(fds, 1, HANG_UP_MS) == 0) {
                kill(pid, SIGKILL);
            }
            return;
        }
        fds[0].revents = 0;
    }
}

static volatile pid_t child;

static void pass_on(int number)
{
    kill(child, number);
}

int via_remote_end(const char *name, char **argv)
{
    static const int passed[] = {SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2};
    struct via_error err = {0};
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(via_preload_exec(name, argv));
    }
    int pidfd = pid > 0 ? pidfd_open(pid, 0) : -1;
    if (pidfd < 0) {
        via_error_set(&err, -errno, "%s: run: %s", argv[0], strerror(errno));
        return via_cli_fail(name, &err);
    }
    child = pid;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(passed); i++) {
        signal(passed[i], pass_on);
    }
    watch(pid, pidfd);
    close(pidfd);
    return exit_code_of(pid);
}
