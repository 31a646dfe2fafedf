/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "cli/ip_hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/daemon.h"
#include "cli/find.h"
#include "cli/netns.h"

#define READY_FD 3
#define PATIENCE_NS (2 * VIA_SEC_NS)
#define ANSWER_MS 500
#define ANSWER_BYTES_MAX (4u << 20)
#define LOG_BYTES 1000

struct path {
    char text[VIA_RUNDIR_PATH_BYTES + 32];
};

static struct path path_of(const struct via_fabric *fabric, unsigned host, const char *end)
{
    struct path path;
    snprintf(path.text, sizeof(path.text), "%s/host-%u.ip%s", fabric->rundir.text, host, end);
    return path;
}

/* --- sockets ---------------------------------------------------------------------------------- */

/* -ENOENT, -ECONNREFUSED: no viaduct-ip runs for this host. */
static int connect_to(const struct via_fabric *fabric, unsigned host)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct path path = path_of(fabric, host, "");
    if (strlen(path.text) >= sizeof(address.sun_path)) {
        return -ENAMETOOLONG;
    }
    memcpy(address.sun_path, path.text, strlen(path.text) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        int rc = -errno;
        if (fd >= 0) {
            close(fd);
        }
        return rc;
    }
    return fd;
}

/* A pidfd of the process that listens, and its process id. */
static int process_of(const struct via_fabric *fabric, unsigned host, pid_t *ret_pid)
{
    struct ucred owner;
    socklen_t bytes = sizeof(owner);
    int fd = connect_to(fabric, host);
    if (fd < 0) {
        return fd;
    }
    int rc = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &bytes) == 0 ? 0 : -errno;
    close(fd);
    if (rc != 0) {
        return rc;
    }
    *ret_pid = owner.pid;
    int pidfd = pidfd_open(owner.pid, 0);
    return pidfd >= 0 ? pidfd : -errno;
}

/* The whole answer as allocated text; NULL: no answer. */
static char *read_answer(int fd)
{
    size_t room = 65536;
    size_t bytes = 0;
    char *text = malloc(room);
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    while (text != NULL && poll(&pollfd, 1, ANSWER_MS) == 1) {
        ssize_t got = read(fd, text + bytes, room - 1 - bytes);
        if (got <= 0) {
            text[bytes] = '\0';
            return text;
        }
        bytes += (size_t)got;
        if (room - 1 == bytes) {
            room *= 2;
            char *larger = room <= ANSWER_BYTES_MAX ? realloc(text, room) : NULL;
            if (larger == NULL) {
                break;
            }
            text = larger;
        }
    }
    free(text);
    return NULL;
}

json_t *via_ip_hosts_request(const struct via_fabric *fabric)
{
    json_t *all = json_array();
    for (unsigned host = VIA_TOPOLOGY_HOST_MIN; host <= VIA_TOPOLOGY_HOST_MAX; host++) {
        int fd = connect_to(fabric, host);
        if (fd < 0) {
            continue;
        }
        char *text = read_answer(fd);
        close(fd);
        json_t *answer = text != NULL ? json_loads(text, 0, NULL) : NULL;
        free(text);
        if (answer != NULL) {
            json_array_append_new(all, answer);
        }
    }
    return all;
}

/* True if one runs. A process that is being killed still accepts connections for a moment, and
 * sends nothing before its end of file. A stopped process sends nothing at all. */
static bool is_running(const struct via_fabric *fabric, unsigned host)
{
    char byte;
    int fd = connect_to(fabric, host);
    if (fd < 0) {
        return false;
    }
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    bool running = poll(&pollfd, 1, ANSWER_MS) != 1 || read(fd, &byte, 1) == 1;
    close(fd);
    return running;
}

/* --- starting -------------------------------------------------------------------------------- */

static _Noreturn void become_viaduct_ip(const struct via_fabric *fabric, unsigned host,
                                        const char *program, int log_fd, int ready_fd)
{
    char id[12];
    char with[12];
    struct via_error err = {0};
    snprintf(id, sizeof(id), "%u", host);
    snprintf(with, sizeof(with), "%u", fabric->with);
    const char *argv[] = {
        "viaduct-ip", "--rundir", fabric->rundir.text, "--host", id, "--ready-fd", "3", "--with",
        with,         NULL};
    if (fabric->with == 0) {
        argv[7] = NULL;
    }
    setsid();
    dup2(log_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null_fd, STDIN_FILENO);
    if (via_netns_enter(fabric, host, &err) != 0) {
        dprintf(STDERR_FILENO, "%s\n", err.text);
        _exit(126);
    }
    dup2(ready_fd, READY_FD);
    close_range(READY_FD + 1, ~0u, 0);
    signal(SIGPIPE, SIG_DFL);
    execv(program, (char *const *)(uintptr_t)argv);
    dprintf(STDERR_FILENO, "exec %s: %s\n", program, strerror(errno));
    _exit(127);
}

/* 0: its device is up. */
static int wait_ready(int ready_fd, uint64_t deadline_ns, struct via_error *err)
{
    for (;;) {
        uint64_t now = via_process_now_ns();
        struct pollfd pollfd = {.fd = ready_fd, .events = POLLIN};
        char byte;
        if (via_daemon_interrupted) {
            return via_error_set(err, -EINTR, "interrupted");
        }
        if (now >= deadline_ns) {
            return via_error_set(err, -ETIMEDOUT, "viaduct-ip does not become ready");
        }
        if (poll(&pollfd, 1, (int)((deadline_ns - now) / VIA_MSEC_NS) + 1) > 0) {
            return read(ready_fd, &byte, 1) == 1 ? 0
                                                 : via_error_set(err, -ECHILD, "viaduct-ip ended");
        }
    }
}

static int start_one(const struct via_fabric *fabric, unsigned host, const char *program,
                     uint64_t deadline_ns, struct via_error *err)
{
    int fds[2] = {-1, -1};
    struct path log = path_of(fabric, host, ".log");
    int log_fd = open(log.text, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    bool piped = log_fd >= 0 && pipe2(fds, O_CLOEXEC) == 0;
    pid_t pid = piped ? fork() : -1;
    int code = errno;
    if (pid == 0) {
        become_viaduct_ip(fabric, host, program, log_fd, fds[1]);
    }
    if (log_fd >= 0) {
        close(log_fd);
    }
    if (piped) {
        close(fds[1]);
    }
    int rc = pid > 0 ? wait_ready(fds[0], deadline_ns, err)
                     : via_error_set(err, -code, "start %s: %s", program, strerror(code));
    if (piped) {
        close(fds[0]);
    }
    if (pid > 0 && rc != 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    return rc;
}

int via_ip_hosts_start(const struct via_fabric *fabric, uint64_t deadline_ns, unsigned *ret_host,
                       struct via_error *err)
{
    struct via_find_path program;
    int rc = via_find_ip(&program, err);
    for (unsigned i = 0; i < fabric->topology.hosts_count && rc == 0; i++) {
        unsigned host = fabric->topology.hosts[i];
        if (is_running(fabric, host)) {
            continue;
        }
        rc = start_one(fabric, host, program.text, deadline_ns, err);
        if (rc != 0) {
            *ret_host = host;
            via_error_prefix(err, "host %u: IP: ", host);
        }
    }
    return rc;
}

void via_ip_hosts_print_log(const struct via_fabric *fabric, unsigned host, FILE *out)
{
    char text[LOG_BYTES + 1];
    struct path path = path_of(fabric, host, ".log");
    FILE *log = fopen(path.text, "re");
    if (log == NULL) {
        return;
    }
    text[fread(text, 1, LOG_BYTES, log)] = '\0';
    fclose(log);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        fprintf(out, "  host-%u.ip.log: %s\n", host, line);
    }
}

/* --- ending ---------------------------------------------------------------------------------- */

/* True: it has ended before the deadline. */
static bool has_ended(int pidfd, pid_t pid, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd pollfd = {.fd = pidfd, .events = POLLIN};
        uint64_t now = via_process_now_ns();
        int timeout_ms = now < deadline_ns ? (int)((deadline_ns - now) / VIA_MSEC_NS) + 1 : 0;
        if (poll(&pollfd, 1, timeout_ms) == 1) {
            waitpid(pid, NULL, WNOHANG); /* a child of this process if `up` failed */
            return true;
        }
        if (now >= deadline_ns) {
            return false;
        }
    }
}

static int end_one(unsigned host, int pidfd, pid_t pid, uint64_t deadline_ns, struct via_error *err)
{
    if (has_ended(pidfd, pid, deadline_ns)) {
        return 0;
    }
    if (pidfd_send_signal(pidfd, SIGKILL, NULL, 0) == 0 &&
        has_ended(pidfd, pid, deadline_ns + PATIENCE_NS)) {
        return 0;
    }
    return via_error_set(err, -EBUSY, "host %u: end viaduct-ip (pid %d): SIGKILL does not end it",
                         host, (int)pid);
}

int via_ip_hosts_end(const struct via_fabric *fabric, struct via_error *err)
{
    static int pidfds[VIA_TOPOLOGY_HOST_MAX + 1];
    static pid_t pids[VIA_TOPOLOGY_HOST_MAX + 1];
    int count = 0;
    int rc = 0;
    for (unsigned host = VIA_TOPOLOGY_HOST_MIN; host <= VIA_TOPOLOGY_HOST_MAX; host++) {
        pidfds[host] = process_of(fabric, host, &pids[host]);
        if (pidfds[host] >= 0) {
            pidfd_send_signal(pidfds[host], SIGTERM, NULL, 0);
            count++;
        }
    }
    uint64_t deadline_ns = via_process_now_ns() + PATIENCE_NS;
    for (unsigned host = VIA_TOPOLOGY_HOST_MIN; host <= VIA_TOPOLOGY_HOST_MAX; host++) {
        if (pidfds[host] >= 0) {
            int ended = end_one(host, pidfds[host], pids[host], deadline_ns, err);
            rc = rc == 0 ? ended : rc;
            close(pidfds[host]);
        }
    }
    return rc == 0 ? count : rc;
}
