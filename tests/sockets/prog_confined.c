/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * prog_confined prctl|seccomp: two processes exchange 2,000 echoes over a connection, before and
 * after both have installed, by that call, a seccomp filter that kills a process for any system
 * call except the five that echoes need.
 *
 * prog_confined waits: a program of two threads waits in an epoll set, makes a connection, and
 * replaces a signal handler, after it has installed a filter that permits the few calls for that,
 * and no similar ones.
 *
 * prog_confined inherits: the same in a program that inherits a filter which refuses
 * epoll_pwait2().
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ECHOES 1000
#define BYTES 3000

static const char *way;

static void fail(const char *what)
{
    perror(what);
    _exit(1);
}

#ifdef SYS_epoll_wait
#define EPOLL_WAIT SYS_epoll_wait
#else
#define EPOLL_WAIT SYS_epoll_pwait
#endif

static void install(struct sock_filter *code, size_t bytes)
{
    struct sock_fprog program = {(unsigned short)(bytes / sizeof(code[0])), code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        fail("PR_SET_NO_NEW_PRIVS");
    }
    long rc = strcmp(way, "seccomp") == 0
                  ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
                  : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    if (rc != 0) {
        fail("seccomp");
    }
}

/* Kills the process for any other call than these. */
static void confine(const unsigned *calls, size_t count)
{
    struct sock_filter code[32] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    size_t used = 1;
    for (size_t i = 0; i < count; i++) {
        code[used++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i],
                                                    (unsigned char)(count - i), 0);
    }
    code[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    install(code, used * sizeof(code[0]));
}

static void refuse_nanoseconds(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    install(code, sizeof(code));
}

static void *read_one(void *of_fd)
{
    char byte;
    (void)!read(*(const int *)of_fd, &byte, 1);
    return NULL;
}

static void wait_in_a_set(int epfd, int reader, int writer)
{
    /* A page that no call has used before. */
    static struct epoll_event event __attribute__((aligned(4096)));
    event.events = EPOLLIN;
    if (epoll_ctl(epfd, EPOLL_CTL_ADD, reader, &event) != 0 ||
        epoll_wait(epfd, &event, 1, 30) != 0 || write(writer, "x", 1) != 1 ||
        epoll_wait(epfd, &event, 1, 30000) != 1) {
        fail("epoll_wait");
    }
}

static void do_nothing(int number)
{
    (void)number;
}

/* Makes a connection and a copy of it. */
static void connect_to(int listener, const struct sockaddr_in *addr, int client)
{
    int fd = -1;
    if (connect(client, (const struct sockaddr *)addr, sizeof(*addr)) != 0 ||
        (fd = accept(listener, NULL, NULL)) < 0 || close(dup(fd)) != 0 || close(fd) != 0) {
        fail("connect");
    }
}

static void run_threads(int listener, const struct sockaddr_in *addr, bool confined)
{
    static const unsigned calls[] = {
        SYS_read,    SYS_write,  SYS_close, SYS_exit_group, SYS_rt_sigreturn, EPOLL_WAIT,
        SYS_connect, SYS_accept, SYS_dup,   SYS_epoll_ctl,  SYS_rt_sigaction};
    pthread_t thread;
    int fds[2], of_thread[2];
    int epfd = epoll_create1(EPOLL_CLOEXEC);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (pipe(fds) != 0 || pipe(of_thread) != 0 || signal(SIGUSR1, do_nothing) != SIG_DFL ||
        pthread_create(&thread, NULL, read_one, &of_thread[0]) != 0) {
        fail("begin");
    }
    if (confined) {
        confine(calls, sizeof(calls) / sizeof(calls[0]));
    }
    wait_in_a_set(epfd, fds[0], fds[1]);
    connect_to(listener, addr, client);
    if (signal(SIGUSR1, SIG_IGN) != do_nothing) {
        fail("signal");
    }
}

static void move(int fd, char *bytes, int out)
{
    for (ssize_t done = 0; done < BYTES;) {
        ssize_t n = out ? write(fd, bytes + done, (size_t)(BYTES - done))
                        : read(fd, bytes + done, (size_t)(BYTES - done));
        if (n <= 0) {
            fail(out ? "write" : "read");
        }
        done += n;
    }
}

static void echo(int fd, int asks, int round)
{
    static char sent[BYTES];
    static char got[BYTES];
    memset(sent, 'a' + round % 26, sizeof(sent));
    if (asks) {
        move(fd, sent, 1);
    }
    move(fd, got, 0);
    if (memcmp(got, sent, sizeof(got)) != 0) {
        errno = EBADMSG;
        fail("echo");
    }
    if (!asks) {
        move(fd, got, 1);
    }
}

static void run(int fd, int asks)
{
    static const unsigned calls[] = {SYS_read, SYS_write, SYS_close, SYS_exit_group,
                                     SYS_rt_sigreturn};
    for (int i = 0; i < ECHOES; i++) {
        echo(fd, asks, i);
    }
    confine(calls, sizeof(calls) / sizeof(calls[0]));
    for (int i = 0; i < ECHOES; i++) {
        echo(fd, asks, i);
    }
    close(fd);
}

int main(int argc, char **argv)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t addr_bytes = sizeof(addr);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int status = -1;
    way = argc > 1 ? argv[1] : "prctl";
    if (strcmp(way, "inherits") == 0) {
        refuse_nanoseconds();
        execl("/proc/self/exe", argv[0], "inherited", NULL);
        fail("exec");
    }
    if (listener < 0 || bind(listener, (struct sockaddr *)&addr, sizeof(addr)) != 0 ||
        listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&addr, &addr_bytes) != 0) {
        fail("listen");
    }
    if (strcmp(way, "waits") == 0 || strcmp(way, "inherited") == 0) {
        run_threads(listener, &addr, strcmp(way, "waits") == 0);
        return 0;
    }
    pid_t pid = fork();
    if (pid == 0) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
            fail("connect");
        }
        run(fd, 1);
        return 0; /* by exit(): the filter applies to exit handlers of libraries, too */
    }
    pid_t server = fork();
    if (server == 0) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) {
            fail("accept");
        }
        run(fd, 0);
        return 0;
    }
    int wrong = waitpid(pid, &status, 0) != pid || status != 0;
    wrong |= waitpid(server, &status, 0) != server || status != 0;
    return wrong;
}
