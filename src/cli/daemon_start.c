/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/daemon.h"
#include "progress/progress.h"

#define READY_FD 3
#define LOG_LINES 5

volatile int via_daemon_interrupted;

struct log_path {
    char text[VIA_RUNDIR_PATH_BYTES + 32];
};

static struct log_path log_path_of(const struct via_fabric *fabric, unsigned host)
{
    struct log_path path;
    snprintf(path.text, sizeof(path.text), "%s/host-%u.log", fabric->rundir.text, host);
    return path;
}

/* --- the command line ------------------------------------------------------------------------ */

#define WORDS_MAX (24u + 2u * VIA_TOPOLOGY_PORTS_MAX)
#define WORD_BYTES 128u
#define LONG_WORDS_MAX 4u

struct words {
    unsigned count;
    char text[WORDS_MAX][WORD_BYTES];
};

static void add_word(struct words *words, const char *format, ...) VIA_PRINTF(2, 3);

static void add_word(struct words *words, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(words->text[words->count++], WORD_BYTES, format, args);
    va_end(args);
}

static unsigned highest_host(const struct via_topology *topology)
{
    unsigned highest = 0;
    for (unsigned i = 0; i < topology->hosts_count; i++) {
        highest = via_max(highest, (unsigned)topology->hosts[i]);
    }
    return highest;
}

static void make_words(const struct via_fabric *fabric, unsigned host, struct words *words)
{
    const struct via_topology *topology = &fabric->topology;
    words->count = 0;
    add_word(words, "viaductd");
    add_word(words, "--foreground");
    add_word(words, "--rundir");
    add_word(words, "%s", fabric->rundir.text);
    add_word(words, "--host");
    add_word(words, "%u", host);
    add_word(words, "--hosts-max");
    add_word(words, "%u", highest_host(topology) + 1);
    add_word(words, "--ready-fd");
    add_word(words, "%u", READY_FD);
    add_word(words, "--address");
    add_word(words, "%s", via_fabric_address(fabric, host).text);
    if (fabric->ip && fabric->ethernet) {
        add_word(words, "--address");
        add_word(words, "10.78.0.%u", host);
    }
    if (topology->channels_count != 0) {
        add_word(words, "--channels");
        add_word(words, "%u", topology->channels_count);
    }
    if (fabric->dma_bytes != 0) {
        add_word(words, "--dma-bytes");
        add_word(words, "%u", fabric->dma_bytes);
    }
    if (fabric->give_up_ms != VIA_FABRIC_GIVE_UP_MS) {
        add_word(words, "--give-up-ms");
        add_word(words, "%u", fabric->give_up_ms);
    }
    if (fabric->wait_ms != VIA_FABRIC_WAIT_MS) {
        add_word(words, "--wait-ms");
        add_word(words, "%u", fabric->wait_ms);
    }
    if (fabric->spin_us != VIA_FABRIC_SPIN_US) {
        add_word(words, "--spin-us");
        add_word(words, "%u", fabric->spin_us);
    }
    if (fabric->with != 0) {
        add_word(words, "--with");
        add_word(words, "%u", fabric->with);
    }
    for (unsigned i = 0; i < topology->links_count; i++) {
        const struct via_topology_link *link = &topology->links[i];
        if (link->a == host || link->b == host) {
            add_word(words, "--link");
            char dimension[24] = "";
            char like[64] = "";
            if (fabric->like[0] != '\0') {
                snprintf(like, sizeof(like), ":like=%s:window=%llu", fabric->like,
                         (unsigned long long)fabric->window_mib << 20);
            }
            if (link->dimension != 0) {
                snprintf(dimension, sizeof(dimension), ":dimension=%u", link->dimension);
            }
            add_word(words, "%u:%u:%u%s%s%s", link->a == host ? link->b : link->a,
                     link->a == host ? 0u : 1u, link->number, fabric->direct ? "" : ":nodirect",
                     dimension, like);
        }
    }
}

/* --- starting -------------------------------------------------------------------------------- */

/* Runs between fork() and exec(): only functions of signal-safety(7) are allowed. */
static _Noreturn void become_daemon(const char *program, char *const *argv, int log_fd,
                                    int ready_fd, int null_fd)
{
    static const int signals[] = {SIGHUP, SIGINT, SIGTERM, SIGPIPE, SIGCHLD};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(signals); i++) {
        signal(signals[i], SIG_DFL);
    }
    setsid();
    /* This order overwrites no descriptor that is still needed, because all of them are above 3. */
    dup2(null_fd, STDIN_FILENO);
    dup2(log_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    dup2(ready_fd, READY_FD);
    close_range(READY_FD + 1, ~0u, 0);
    execv(program, argv);
    dprintf(STDERR_FILENO, "exec %s: %s\n", program, strerror(errno));
    _exit(127);
}

/* Duplicates a descriptor to a number above those that the daemon gets. */
static int move_above_ready_fd(int fd)
{
    int lifted = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, READY_FD + 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    return lifted;
}

/* Adds options that may be longer than a word, unchanged. */
static void add_long_words(const struct via_fabric *fabric, char **argv)
{
    static char names[LONG_WORDS_MAX][10] = {"--key", "--attach", "--admin", "--quota"};
    const char *const values[LONG_WORDS_MAX] = {fabric->key, fabric->attach, fabric->admin,
                                                fabric->quota};
    for (size_t i = 0; i < LONG_WORDS_MAX; i++) {
        if (values[i] != NULL) {
            *argv++ = names[i];
            *argv++ = (char *)(uintptr_t)values[i];
        }
    }
}

/* Starts one daemon. *ret_ready_fd becomes readable when the daemon listens or has ended. */
static int start_one(struct via_fabric *fabric, unsigned index, const char *program,
                     int *ret_ready_fd, struct via_error *err)
{
    static struct words words;
    char *argv[WORDS_MAX + 2 * LONG_WORDS_MAX + 1] = {NULL};
    int pipe_fds[2] = {-1, -1};
    make_words(fabric, fabric->topology.hosts[index], &words);
    for (unsigned i = 0; i < words.count; i++) {
        argv[i] = words.text[i];
    }
    add_long_words(fabric, argv + words.count);
    struct log_path log = log_path_of(fabric, fabric->topology.hosts[index]);
    int log_fd = move_above_ready_fd(
        open(log.text, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
    int null_fd = log_fd >= 0 ? move_above_ready_fd(open("/dev/null", O_RDONLY | O_CLOEXEC)) : -1;
    bool piped = null_fd >= 0 && pipe2(pipe_fds, O_CLOEXEC) == 0;
    int ready_fd = piped ? move_above_ready_fd(pipe_fds[1]) : -1;
    pid_t pid = ready_fd >= 0 ? fork() : -1;
    if (pid == 0) {
        become_daemon(program, argv, log_fd, ready_fd, null_fd);
    }
    int code = errno;
    for (int *fd = (int[]){log_fd, null_fd, ready_fd, -2}; *fd != -2; fd++) {
        if (*fd >= 0) {
            close(*fd);
        }
    }
    if (pid < 0) {
        if (piped) {
            close(pipe_fds[0]);
        }
        return via_error_set(err, -code, "start %s: %s", program, strerror(code));
    }
    *ret_ready_fd = pipe_fds[0];
    if (via_process_identify(pid, &fabric->daemons[index]) != 0) {
        fabric->daemons[index] = (struct via_process){.pid = pid};
    }
    return 0;
}

/* Describes how a child ended. It has closed its ready pipe, so it has ended or ends at once. */
static int explain_end(pid_t pid, struct via_error *err)
{
    int status = 0;
    for (unsigned i = 0; i < 100; i++) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            return WIFSIGNALED(status)
                       ? via_error_set(err, -ECHILD, "the daemon died of signal %d (%s)",
                                       WTERMSIG(status), strsignal(WTERMSIG(status)))
                       : via_error_set(err, -ECHILD, "the daemon ended with exit code %d",
                                       WEXITSTATUS(status));
        }
        usleep(10000);
    }
    return via_error_set(err, -ECHILD, "the daemon closed its ready pipe without a report");
}

/* 0: the daemon is ready. */
static int wait_ready(pid_t pid, int ready_fd, uint64_t deadline_ns, struct via_error *err)
{
    for (;;) {
        uint64_t now = via_process_now_ns();
        if (via_daemon_interrupted) {
            return via_error_set(err, -EINTR, "interrupted");
        }
        if (now >= deadline_ns) {
            return via_error_set(err, -ETIMEDOUT, "the daemon (pid %d) does not become ready",
                                 (int)pid);
        }
        struct pollfd pollfd = {.fd = ready_fd, .events = POLLIN};
        int timeout_ms = (int)((deadline_ns - now) / VIA_MSEC_NS) + 1;
        if (poll(&pollfd, 1, timeout_ms) > 0) {
            char byte;
            return read(ready_fd, &byte, 1) == 1 ? 0 : explain_end(pid, err);
        }
    }
}

int via_daemon_start_all(struct via_fabric *fabric, const char *program, uint64_t deadline_ns,
                         unsigned *ret_host, struct via_error *err)
{
    int ready_fds[VIA_TOPOLOGY_HOST_MAX];
    unsigned started = 0;
    int rc = 0;
    *ret_host = 0;
    for (unsigned i = 0; i < fabric->topology.hosts_count && rc == 0; i++) {
        rc = start_one(fabric, i, program, &ready_fds[i], err);
        started += rc == 0 ? 1 : 0;
        if (rc != 0) {
            via_error_prefix(err, "host %u: ", fabric->topology.hosts[i]);
        }
    }
    struct via_progress progress;
    via_progress_begin(&progress, "viaduct up: host", started);
    for (unsigned i = 0; i < started; i++) {
        if (rc == 0) {
            rc = wait_ready(fabric->daemons[i].pid, ready_fds[i], deadline_ns, err);
            if (rc != 0 && rc != -EINTR) {
                *ret_host = fabric->topology.hosts[i];
                via_error_prefix(err, "host %u: start: ", *ret_host);
            }
        }
        close(ready_fds[i]);
        via_progress_step(&progress, i + 1);
    }
    via_progress_end(&progress);
    return rc;
}

void via_daemon_print_log(const struct via_fabric *fabric, unsigned host, FILE *out)
{
    struct log_path path = log_path_of(fabric, host);
    char lines[LOG_LINES][300];
    unsigned count = 0;
    FILE *log = fopen(path.text, "re");
    if (log == NULL) {
        return;
    }
    while (fgets(lines[count % LOG_LINES], sizeof(lines[0]), log) != NULL) {
        count++;
    }
    fclose(log);
    for (unsigned i = count > LOG_LINES ? count - LOG_LINES : 0; i < count; i++) {
        const char *line = lines[i % LOG_LINES];
        fprintf(out, "  host-%u.log: %.*s\n", host, (int)strcspn(line, "\n"), line);
    }
}
