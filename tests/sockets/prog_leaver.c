/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * An echo server. After AFTER bytes it echoes by calls that no preloaded library sees.
 *
 *     prog_leaver accept|connect ADDRESS PORT HOW AFTER
 *
 * HOW: stdio, static (becomes a program without libraries), fork (a child does), number (a child
 * does, by the descriptor's number), spawn, system, popen, passed (to another process), uring (the
 * process has a ring), splice, child (of this program, with the same calls), stay.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pass_fd.h"

static _Noreturn void die(const char *attempt)
{
    fprintf(stderr, "prog_leaver: %s: %s\n", attempt, strerror(errno));
    exit(1);
}

static void put(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);
        if (n <= 0) {
            die("write");
        }
        data += n;
        bytes -= (size_t)n;
    }
}

/* Echoes up to `bytes` bytes; false at the end. */
static bool send_back(int fd, size_t bytes)
{
    static char data[65536];
    while (bytes > 0) {
        ssize_t n = read(fd, data, bytes < sizeof(data) ? bytes : sizeof(data));
        if (n < 0) {
            die("read");
        }
        if (n == 0) {
            return false;
        }
        put(fd, data, (size_t)n);
        bytes -= (size_t)n;
    }
    return true;
}

/* The same by system calls, which no library sees. */
static void send_back_by_the_kernel(int fd)
{
    static char data[65536];
    long n;
    while ((n = syscall(SYS_read, fd, data, sizeof(data))) > 0) {
        for (long done = 0; done < n;) {
            long k = syscall(SYS_write, fd, data + done, (size_t)(n - done));
            if (k <= 0) {
                die("write by system call");
            }
            done += k;
        }
    }
    if (n < 0) {
        die("read by system call");
    }
}

static const char *static_program(void)
{
    static char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (n <= 0) {
        die("readlink");
    }
    path[n] = '\0';
    strcpy(strrchr(path, '/') + 1, "prog_static");
    return path;
}

static void wait_for(pid_t pid)
{
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        fprintf(stderr, "prog_leaver: child: status %#x\n", (unsigned)status);
        exit(1);
    }
}

static void by_stdio(int fd)
{
    static char data[4096];
    FILE *in = fdopen(fd, "r");
    FILE *out = fdopen(dup(fd), "w");
    size_t n;
    if (in == NULL || out == NULL) {
        die("fdopen");
    }
    while ((n = fread(data, 1, sizeof(data), in)) > 0) {
        if (fwrite(data, 1, n, out) != n || fflush(out) != 0) {
            die("fwrite");
        }
    }
    if (ferror(in) || fclose(out) != 0 || fclose(in) != 0) {
        die("fread");
    }
}

static void become_static(int fd)
{
    if (dup2(fd, 0) != 0 || dup2(fd, 1) != 1) {
        die("dup2");
    }
    close(fd);
    execl(static_program(), "cat", "cat", NULL);
    die("exec");
}

static void by_fork(int fd)
{
    pid_t pid = fork();
    if (pid == 0) {
        become_static(fd);
    }
    close(fd);
    wait_for(pid);
}

static void by_number(int fd)
{
    pid_t pid = fork();
    if (pid == 0) {
        char number[16];
        fcntl(fd, F_SETFD, 0);
        snprintf(number, sizeof(number), "%d", fd);
        execl(static_program(), "cat", "cat", number, NULL);
        _exit(127);
    }
    close(fd);
    wait_for(pid);
}

static void by_spawn(int fd)
{
    posix_spawn_file_actions_t actions;
    char *const argv[] = {(char *)"cat", (char *)"cat", NULL};
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 0);
    posix_spawn_file_actions_adddup2(&actions, fd, 1);
    int rc = posix_spawn(&pid, static_program(), &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0) {
        errno = rc;
        die("posix_spawn");
    }
    close(fd);
    wait_for(pid);
}

static const char *shell_command(int fd)
{
    static char command[PATH_MAX + 64];
    fcntl(fd, F_SETFD, 0);
    snprintf(command, sizeof(command), "exec %s cat %d", static_program(), fd);
    return command;
}

static void by_system(int fd)
{
    if (system(shell_command(fd)) != 0) {
        die("system");
    }
    close(fd);
}

static void by_popen(int fd)
{
    FILE *file = popen(shell_command(fd), "r");
    if (file == NULL) {
        die("popen");
    }
    close(fd);
    if (pclose(file) != 0) {
        die("pclose");
    }
}

static void by_splice(int fd)
{
    int ends[2];
    ssize_t n;
    if (pipe(ends) != 0) {
        die("pipe");
    }
    while ((n = splice(fd, NULL, ends[1], NULL, 65536, 0)) > 0) {
        while (n > 0) {
            ssize_t k = splice(ends[0], NULL, fd, NULL, (size_t)n, 0);
            if (k <= 0) {
                die("splice to the socket");
            }
            n -= k;
        }
    }
    if (n < 0) {
        die("splice");
    }
    close(fd);
}

/* A process that was started before the connection existed, and a socket to this process. */
struct other {
    int channel;
    pid_t pid;
};

static int receive_fd(int channel)
{
    int fd = taken_fd(channel);
    if (fd < 0) {
        die("recvmsg");
    }
    return fd;
}

static struct other start_other(void)
{
    int channel[2];
    struct other other;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, channel) != 0) {
        die("socketpair");
    }
    other.pid = fork();
    if (other.pid == 0) {
        close(channel[0]);
        send_back_by_the_kernel(receive_fd(channel[1]));
        _exit(0);
    }
    close(channel[1]);
    other.channel = channel[0];
    return other;
}

static void by_other(const struct other *other, int fd)
{
    if (!pass_fd(other->channel, fd)) {
        die("sendmsg");
    }
    close(fd);
    wait_for(other->pid);
}

/* Sandboxes may forbid io_uring; then this does nothing. */
static void by_uring(int fd)
{
    char params[256] = {0};
    syscall(SYS_io_uring_setup, 4, params);
    send_back_by_the_kernel(fd);
    close(fd);
}

static void by_child(int fd)
{
    pid_t pid = fork();
    if (pid == 0) {
        send_back(fd, SIZE_MAX);
        close(fd);
        _exit(0);
    }
    close(fd);
    wait_for(pid);
}

static void stay(int fd)
{
    send_back(fd, SIZE_MAX);
    close(fd);
}

static const struct {
    const char *name;
    void (*go)(int fd);
} ways[] = {
    {"stdio", by_stdio},   {"static", become_static}, {"fork", by_fork},   {"number", by_number},
    {"spawn", by_spawn},   {"system", by_system},     {"popen", by_popen}, {"uring", by_uring},
    {"splice", by_splice}, {"child", by_child},       {"stay", stay},
};

static int meet(char **argv)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (inet_pton(AF_INET, argv[1], &addr.sin_addr) != 1 || fd < 0) {
        die(argv[1]);
    }
    if (strcmp(argv[0], "connect") == 0) {
        if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
            die("connect");
        }
    } else {
        int listen_fd = fd;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 || listen(fd, 4) != 0) {
            die("listen");
        }
        fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        close(listen_fd);
    }
    if (fd < 0) {
        die("accept");
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: prog_leaver accept|connect ADDRESS PORT HOW AFTER\n");
        return 64;
    }
    bool passed = strcmp(argv[4], "passed") == 0;
    struct other other = passed ? start_other() : (struct other){.pid = -1};
    int fd = meet(argv + 1);
    if (!send_back(fd, strtoul(argv[5], NULL, 10))) {
        fprintf(stderr, "prog_leaver: the stream has ended before\n");
        return 1;
    }
    if (passed) {
        by_other(&other, fd);
        return 0;
    }
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (strcmp(argv[4], ways[i].name) == 0) {
            ways[i].go(fd);
            return 0;
        }
    }
    fprintf(stderr, "prog_leaver: %s: no such way\n", argv[4]);
    return 64;
}
