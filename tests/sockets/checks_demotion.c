/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A descriptor that is used where the library can not see it: by stdio, another program, another
 * process, an io_uring of the kernel. No byte is lost, wherever earlier bytes are.
 */
#include "checks.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "pass_fd.h"

/* --- stdio ----------------------------------------------------------------------------------- */

static void stdio_reads_and_writes(void)
{
    struct pair pair = connected();
    char line[32];
    write_all(pair.client, "early ", 6); /* is unread when the program uses stdio */
    write_all(pair.server, "before ", 7);
    FILE *file = fdopen(pair.server, "r+");
    CHECK(file != NULL && fileno(file) == pair.server);
    for (int i = 0; i < 50; i++) {
        write_all(pair.client, "line\n", 5);
        CHECK(fgets(line, sizeof(line), file) != NULL);
        CHECK(strcmp(line, i == 0 ? "early line\n" : "line\n") == 0);
        CHECK(fprintf(file, "answer %d\n", i) > 0 && fflush(file) == 0);
        size_t bytes =
            (size_t)snprintf(line, sizeof(line), "%sanswer %d\n", i == 0 ? "before " : "", i);
        char got[32];
        read_all(pair.client, got, bytes);
        CHECK(memcmp(got, line, bytes) == 0);
    }
    fclose(file);
    CHECK(read(pair.client, line, 1) == 0);
    close(pair.client);
}

#define PIECES 20
#define PIECE_BYTES 100

/* Bytes that have arrived before the change can be read at once after it. The kernel could hold
 * small packets back until earlier ones are acknowledged, by Nagle's algorithm (here) or by the
 * congestion window. */
static void what_has_arrived_stays_readable(void)
{
    struct pair pair = connected();
    char bytes[PIECES * PIECE_BYTES] = {0};
    int off = 0, arrived = 0;
    CHECK(setsockopt(pair.client, IPPROTO_TCP, TCP_NODELAY, &off, sizeof(off)) == 0);
    for (int i = 0; i < PIECES; i++) {
        write_all(pair.client, bytes, PIECE_BYTES);
    }
    while (arrived < PIECES * PIECE_BYTES) {
        CHECK(ioctl(pair.server, FIONREAD, &arrived) == 0);
    }
    int copy = dup(pair.server);
    FILE *file = fdopen(copy, "r");
    CHECK(file != NULL);
    CHECK(recv(pair.server, bytes, sizeof(bytes), MSG_DONTWAIT) == PIECES * PIECE_BYTES);
    fclose(file);
    done(pair);
}

/* Bytes that were unread when the other end closed can still be read by stdio. */
static void stdio_after_the_end(void)
{
    struct pair pair = connected();
    char line[16];
    write_all(pair.client, "last\n", 5);
    close(pair.client);
    sleep_ms(5);
    FILE *file = fdopen(pair.server, "r");
    CHECK(file != NULL);
    CHECK(fgets(line, sizeof(line), file) != NULL && strcmp(line, "last\n") == 0);
    CHECK(fgets(line, sizeof(line), file) == NULL && feof(file));
    fclose(file);
}

/* An end that has shut down its output sends no bytes that could arrive too early, so no call waits
 * for the reader of that end. */
static void after_a_half_close(void)
{
    struct pair pair = connected();
    CHECK(shutdown(pair.client, SHUT_WR) == 0);
    write_all(pair.server, "later", 5);
    double begin_s = now_s();
    FILE *file = fdopen(pair.client, "r");
    CHECK(now_s() - begin_s < 4);
    char data[5];
    CHECK(file != NULL && fread(data, 1, 5, file) == 5 && memcmp(data, "later", 5) == 0);
    CHECK(read(pair.server, data, 1) == 0);
    fclose(file);
    close(pair.server);
}

static void a_sleeping_peer(void (*sleep_in)(int fd))
{
    struct pair pair = connected();
    static char block[65536];
    char data[16];
    size_t left = fill_up(pair.client); /* more bytes than drain() below reads */
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(pair.server);
        sleep_in(pair.client);
        read_all(pair.client, data, 5);
        CHECK(memcmp(data, "hello", 5) == 0);
        write_all(pair.client, "world", 5);
        CHECK(read(pair.client, data, 1) == 0);
        _exit(0);
    }
    close(pair.client);
    left -= drain(pair.server, 10000);
    sleep_ms(50);
    FILE *file = fdopen(pair.server, "r+");
    CHECK(file != NULL);
    setvbuf(file, NULL, _IONBF, 0);
    CHECK(fwrite("hello", 5, 1, file) == 1);
    while (left > 0) {
        size_t n = fread(block, 1, left < sizeof(block) ? left : sizeof(block), file);
        CHECK(n > 0);
        left -= n;
    }
    CHECK(fread(data, 5, 1, file) == 1 && memcmp(data, "world", 5) == 0);
    fclose(file);
    wait_for(pid);
}

static void in_read(int fd)
{
    (void)fd;
}

static void in_poll(int fd)
{
    struct pollfd pfd = {fd, POLLIN, 0};
    CHECK(poll(&pfd, 1, 30000) == 1 && pfd.revents == POLLIN);
}

static void in_epoll(int fd)
{
    int epfd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(epoll_wait(epfd, &event, 1, 30000) == 1 && event.events == EPOLLIN);
}

static void in_epoll_by_edge(int fd)
{
    int epfd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(epoll_wait(epfd, &event, 1, 30000) == 1 && event.events == EPOLLIN);
}

static void elsewhere(int fd)
{
    (void)fd;
    sleep_ms(300); /* it can not answer */
}

static void the_peer_reads(void)
{
    a_sleeping_peer(in_read);
}

static void the_peer_polls(void)
{
    a_sleeping_peer(in_poll);
}

static void the_peer_waits_in_a_set(void)
{
    a_sleeping_peer(in_epoll);
}

static void the_peer_waits_for_an_edge(void)
{
    a_sleeping_peer(in_epoll_by_edge);
}

/* ... and is woken at once; on a busy machine, later. */
static void the_peer_is_notified_in_a_set(void)
{
    bool soon = false;
    for (int tries = 0; tries < 5 && !soon; tries++) {
        struct pair pair = connected();
        char data[5];
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            close(pair.server);
            in_epoll(pair.client);
            read_all(pair.client, data, 5);
            _exit(0);
        }
        close(pair.client);
        sleep_ms(100);
        double begin_s = now_s();
        FILE *file = fdopen(pair.server, "r+");
        soon = now_s() - begin_s < 1;
        CHECK(file != NULL && fwrite("hello", 5, 1, file) == 1 && fclose(file) == 0);
        wait_for(pid);
    }
    CHECK(soon);
}

static void the_peer_is_busy(void)
{
    a_sleeping_peer(elsewhere);
}

/* A writer that sleeps for room continues over the kernel. */
static void the_peer_writes(void)
{
    struct pair pair = connected();
    static unsigned char block[4 << 20];
    for (size_t i = 0; i < sizeof(block); i++) {
        block[i] = (unsigned char)(i * 7 + i / 509);
    }
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(pair.server);
        write_all(pair.client, block, sizeof(block));
        close(pair.client);
        _exit(0);
    }
    close(pair.client);
    sleep_ms(50);
    char first[1000];
    read_all(pair.server, first, sizeof(first));
    FILE *file = fdopen(pair.server, "r");
    CHECK(file != NULL && memcmp(first, block, sizeof(first)) == 0);
    for (size_t at = sizeof(first); at < sizeof(block);) {
        unsigned char data[4096];
        size_t n = fread(data, 1, sizeof(data), file);
        CHECK(n > 0 && memcmp(data, block + at, n) == 0);
        at += n;
    }
    CHECK(fgetc(file) == EOF);
    fclose(file);
    wait_for(pid);
}

/* One end returns to the kernel. The other, in the same process, is in a set in which no thread
 * waits. */
static void the_other_end_is_in_a_set_here(void)
{
    struct pair pair = connected();
    char data[8];
    int epfd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, pair.client, &event) == 0);
    FILE *file = fdopen(pair.server, "w");
    CHECK(file != NULL);
    CHECK(epoll_wait(epfd, &event, 1, 0) == 0);
    for (int i = 0; i < 5; i++) {
        CHECK(fputs("abc", file) >= 0 && fflush(file) == 0);
        CHECK(epoll_wait(epfd, &event, 1, 30000) == 1 && event.events == EPOLLIN);
        read_all(pair.client, data, 3);
        CHECK(epoll_wait(epfd, &event, 1, 0) == 0);
    }
    close(epfd);
    fclose(file);
    close(pair.client);
}

static void both_ends_at_once(void)
{
    struct pair pair = connected();
    char data[16];
    write_all(pair.client, "to server\n", 10);
    write_all(pair.server, "to client\n", 10);
    FILE *one = fdopen(pair.client, "r+");
    FILE *other = fdopen(pair.server, "r+");
    CHECK(one != NULL && other != NULL);
    CHECK(fgets(data, sizeof(data), one) != NULL && strcmp(data, "to client\n") == 0);
    CHECK(fgets(data, sizeof(data), other) != NULL && strcmp(data, "to server\n") == 0);
    CHECK(fputs("again\n", one) >= 0 && fflush(one) == 0);
    CHECK(fgets(data, sizeof(data), other) != NULL && strcmp(data, "again\n") == 0);
    fclose(one);
    fclose(other);
}

/* --- other programs -------------------------------------------------------------------------- */

/* A program of system calls only, into which no library is loaded. */
static const char *static_cat(void)
{
    static char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    CHECK(n > 0);
    path[n] = '\0';
    strcpy(strrchr(path, '/') + 1, "prog_static");
    return path;
}

/* Tests the other end of the connection, after one end has become cat; "early" was unread. */
static void talk_to_cat(int fd, const char *early)
{
    char data[64];
    size_t bytes = strlen(early);
    read_all(fd, data, bytes);
    CHECK(memcmp(data, early, bytes) == 0);
    for (int i = 0; i < 50; i++) {
        write_all(fd, "message", 7);
        read_all(fd, data, 7);
        CHECK(memcmp(data, "message", 7) == 0);
    }
    shutdown(fd, SHUT_WR);
    CHECK(read(fd, data, 1) == 0);
    close(fd);
}

static void becomes(const char *path)
{
    struct pair pair = connected();
    write_all(pair.client, "unread ", 7);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(pair.client);
        CHECK(dup2(pair.server, 0) == 0 && dup2(pair.server, 1) == 1);
        close(pair.server);
        execl(path, "cat", "cat", NULL);
        _exit(127);
    }
    close(pair.server);
    talk_to_cat(pair.client, "unread ");
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
}

static void becomes_a_static_program(void)
{
    becomes(static_cat());
}

static void becomes_another_program(void)
{
    struct pair pair = connected();
    write_all(pair.client, "unread ", 7);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(pair.client);
        CHECK(dup2(pair.server, 0) == 0 && dup2(pair.server, 1) == 1);
        close(pair.server);
        char *const argv[] = {(char *)"cat", NULL};
        execvp("cat", argv);
        _exit(127);
    }
    close(pair.server);
    talk_to_cat(pair.client, "unread ");
    wait_for(pid);
}

/* The child uses another number for it, which is not close-on-exec. */
static void inherited_by_number(void)
{
    struct pair pair = connected();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(pair.client);
        char number[16];
        snprintf(number, sizeof(number), "%d", pair.server);
        execl(static_cat(), "cat", "cat", number, NULL);
        _exit(127);
    }
    close(pair.server);
    talk_to_cat(pair.client, "");
    wait_for(pid);
}

static void spawned(void)
{
    struct pair pair = connected();
    posix_spawn_file_actions_t actions;
    pid_t pid;
    char *const argv[] = {(char *)"cat", (char *)"cat", NULL};
    write_all(pair.client, "unread ", 7);
    fcntl(pair.server, F_SETFD, FD_CLOEXEC);
    fcntl(pair.client, F_SETFD, FD_CLOEXEC);
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, pair.server, 0) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, pair.server, 1) == 0);
    CHECK(posix_spawn(&pid, static_cat(), &actions, NULL, argv, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pair.server);
    talk_to_cat(pair.client, "unread ");
    wait_for(pid);
}

static void after_vfork(void)
{
    struct pair pair = connected();
    const char *path = static_cat();
    write_all(pair.client, "unread ", 7);
    fcntl(pair.server, F_SETFD, FD_CLOEXEC);
    fcntl(pair.client, F_SETFD, FD_CLOEXEC);
    pid_t pid = vfork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (dup2(pair.server, 0) == 0 && dup2(pair.server, 1) == 1) {
            execl(path, "cat", "cat", NULL);
        }
        _exit(127);
    }
    close(pair.server);
    talk_to_cat(pair.client, "unread ");
    wait_for(pid);
}

/* The descriptor goes to a shell that the C library starts. */
static void given_to_a_shell(bool by_popen)
{
    struct pair pair = connected();
    write_all(pair.client, "unread ", 7);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        char command[PATH_MAX + 32];
        close(pair.client);
        snprintf(command, sizeof(command), "exec %s cat %d", static_cat(), pair.server);
        FILE *file = by_popen ? popen(command, "r") : NULL;
        _exit((by_popen ? file == NULL || pclose(file) : system(command)) != 0);
    }
    close(pair.server);
    talk_to_cat(pair.client, "unread ");
    wait_for(pid);
}

static void given_to_system(void)
{
    given_to_a_shell(false);
}

static void given_to_popen(void)
{
    given_to_a_shell(true);
}

/* Only this program holds the descriptor, because exec() closes it. */
static void close_on_exec_stays(void)
{
    struct pair pair = connected();
    char byte;
    fcntl(pair.server, F_SETFD, FD_CLOEXEC);
    fcntl(pair.client, F_SETFD, FD_CLOEXEC);
    for (int i = 0; i < 3; i++) {
        pid_t pid;
        char *const argv[] = {(char *)"true", NULL};
        CHECK(posix_spawnp(&pid, "true", NULL, NULL, argv, environ) == 0);
        wait_for(pid);
        CHECK(system("true") == 0);
        for (int k = 0; k < 50; k++) {
            write_all(pair.client, "x", 1);
            read_all(pair.server, &byte, 1);
        }
    }
    done(pair);
}

/* --- other processes ------------------------------------------------------------------------- */

static int receive_fd(int channel)
{
    int fd = taken_fd(channel);
    CHECK(fd >= 0);
    return fd;
}

static void sent_to_another_process(void)
{
    int channel[2];
    char data[16];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
    pid_t pid = fork(); /* forked before there is a connection */
    CHECK(pid >= 0);
    if (pid == 0) {
        int fd = receive_fd(channel[1]);
        ssize_t n;
        while ((n = read(fd, data, sizeof(data))) > 0) {
            write_all(fd, data, (size_t)n);
        }
        CHECK(n == 0);
        _exit(0);
    }
    struct pair pair = connected();
    write_all(pair.client, "unread ", 7);
    CHECK(pass_fd(channel[0], pair.server));
    close(pair.server);
    close(channel[0]);
    close(channel[1]);
    talk_to_cat(pair.client, "unread ");
    wait_for(pid);
}

/* --- what the kernel does by itself ---------------------------------------------------------- */

static volatile sig_atomic_t signals_count;

static void on_io(int number)
{
    (void)number;
    signals_count++;
}

/* Reads bytes that count up from `from` by system calls, which no library intercepts. */
static void read_past_the_library(int fd, size_t from, size_t bytes)
{
    static unsigned char block[4096];
    while (bytes > 0) {
        ssize_t n = syscall(SYS_read, fd, block, bytes < sizeof(block) ? bytes : sizeof(block));
        CHECK(n > 0);
        for (ssize_t i = 0; i < n; i++) {
            CHECK(block[i] == (unsigned char)(from + (size_t)i));
        }
        from += (size_t)n;
        bytes -= (size_t)n;
    }
}

static void goes_back(int fd)
{
    int channel[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0 && pass_fd(channel[0], fd));
    close(taken_fd(channel[1]));
    close(channel[0]);
    close(channel[1]);
}

/* First one end returns, then the other: each end finds its unread bytes in the kernel, in either
 * order. */
static void one_after_the_other(size_t bytes, size_t read_before, bool goes)
{
    static unsigned char block[120000];
    struct pair pair = connected();
    struct timeval limit = {.tv_sec = 20};
    for (size_t i = 0; i < sizeof(block); i++) {
        block[i] = (unsigned char)i;
    }
    write_all(pair.client, block, bytes);
    write_all(pair.server, block, 300);
    read_all(pair.server, block, read_before);
    goes_back(pair.client);
    write_all(pair.client, block + bytes % 256, 100);
    if (goes) {
        read_past_the_library(pair.client, 0, 300);
        close(pair.client);
    }
    goes_back(pair.server);
    CHECK(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
    read_past_the_library(pair.server, read_before, bytes - read_before + 100);
    if (!goes) {
        write_all(pair.server, block + 300 % 256, 10);
        read_past_the_library(pair.client, 0, 310);
        close(pair.client);
    }
    CHECK(syscall(SYS_read, pair.server, block, 1) == 0);
    close(pair.server);
}

static void both_ends_one_after_the_other(void)
{
    for (int goes = 0; goes < 2; goes++) {
        one_after_the_other(100, 0, goes);
        one_after_the_other(100, 33, goes);
        one_after_the_other(20000, 1000, goes);
        one_after_the_other(120000, 7, goes);
    }
}

/* One read returns bytes from the pipe and the following bytes from the kernel. */
static void a_read_across_the_change(void)
{
    struct pair pair = connected();
    char bytes[100];
    int on = 1, unread = 0;
    double limit = now_s() + 30;
    write_all(pair.server, "abc", 3);
    CHECK(setsockopt(pair.server, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)) == 0);
    write_all(pair.server, "defghi", 6);
    while (unread != 9 && now_s() < limit) {
        CHECK(ioctl(pair.client, FIONREAD, &unread) == 0);
    }
    CHECK(read(pair.client, bytes, sizeof(bytes)) == 9 && memcmp(bytes, "abcdefghi", 9) == 0);
    done(pair);
}

static void reported_by_signal(void)
{
    struct pair pair = connected();
    char data[8];
    int on = 1;
    write_all(pair.client, "abc", 3);
    signal(SIGIO, on_io);
    CHECK(fcntl(pair.server, F_SETOWN, getpid()) == 0 && ioctl(pair.server, FIOASYNC, &on) == 0);
    read_all(pair.server, data, 3);
    signals_count = 0;
    write_all(pair.client, "def", 3);
    double end = now_s() + 30;
    while (signals_count == 0 && now_s() < end) {
        sleep_ms(1);
    }
    CHECK(signals_count > 0);
    read_all(pair.server, data, 3);
    CHECK(memcmp(data, "def", 3) == 0);
    done(pair);
}

/* TLS in the kernel, without keys yet: bytes are sent unencrypted. A kernel may refuse TLS. */
static void layered(void)
{
    struct pair pair = connected();
    char data[8];
    write_all(pair.client, "abc", 3);
    if (setsockopt(pair.server, IPPROTO_TCP, TCP_ULP, "tls", 4) != 0) {
        CHECK(errno == ENOENT || errno == ENOPROTOOPT || errno == EPERM);
    }
    for (int i = 0; i < 20; i++) {
        read_all(pair.server, data, 3);
        CHECK(memcmp(data, "abc", 3) == 0);
        write_all(pair.server, "def", 3);
        read_all(pair.client, data, 3);
        CHECK(memcmp(data, "def", 3) == 0);
        write_all(pair.client, "abc", 3);
    }
    done(pair);
}

/* One request at a time in an io_uring, by system calls alone. */
struct ring {
    int fd;
    struct io_uring_params params;
    unsigned char *queues;
    struct io_uring_sqe *entries;
};

static bool ring_open(struct ring *ring)
{
    memset(&ring->params, 0, sizeof(ring->params));
    ring->fd = (int)syscall(SYS_io_uring_setup, 4, &ring->params);
    if (ring->fd < 0) {
        return false; /* this kernel or sandbox has no io_uring */
    }
    size_t bytes = ring->params.cq_off.cqes + ring->params.cq_entries * sizeof(struct io_uring_cqe);
    size_t other = ring->params.sq_off.array + ring->params.sq_entries * sizeof(unsigned);
    CHECK((ring->params.features & IORING_FEAT_SINGLE_MMAP) != 0);
    ring->queues = mmap(NULL, bytes > other ? bytes : other, PROT_READ | PROT_WRITE, MAP_SHARED,
                        ring->fd, IORING_OFF_SQ_RING);
    ring->entries = mmap(NULL, ring->params.sq_entries * sizeof(struct io_uring_sqe),
                         PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_SQES);
    CHECK(ring->queues != MAP_FAILED && ring->entries != MAP_FAILED);
    return true;
}

static int ring_do(struct ring *ring, int what, int fd, void *data, unsigned bytes)
{
    unsigned *tail = (void *)(ring->queues + ring->params.sq_off.tail);
    unsigned *array = (void *)(ring->queues + ring->params.sq_off.array);
    unsigned mask = *(unsigned *)(void *)(ring->queues + ring->params.sq_off.ring_mask);
    unsigned *head = (void *)(ring->queues + ring->params.cq_off.head);
    unsigned cq_mask = *(unsigned *)(void *)(ring->queues + ring->params.cq_off.ring_mask);
    struct io_uring_cqe *done_entries = (void *)(ring->queues + ring->params.cq_off.cqes);
    unsigned index = *tail & mask;
    ring->entries[index] = (struct io_uring_sqe){
        .opcode = (uint8_t)what, .fd = fd, .addr = (uint64_t)(uintptr_t)data, .len = bytes};
    array[index] = index;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    CHECK(syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
    int result = done_entries[*head & cq_mask].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return result;
}

static void by_io_uring(void)
{
    struct pair pair = connected();
    struct ring ring;
    char data[16];
    write_all(pair.client, "unread ", 7);
    if (ring_open(&ring)) {
        CHECK(ring_do(&ring, IORING_OP_RECV, pair.server, data, 16) == 7);
        CHECK(memcmp(data, "unread ", 7) == 0);
        for (int i = 0; i < 20; i++) {
            memcpy(data, "ring", 4);
            CHECK(ring_do(&ring, IORING_OP_SEND, pair.server, data, 4) == 4);
            read_all(pair.client, data, 4);
            write_all(pair.client, "answer", 6);
            CHECK(ring_do(&ring, IORING_OP_RECV, pair.server, data, 6) == 6);
        }
        struct pair later = connected();
        CHECK(ring_do(&ring, IORING_OP_SEND, later.client, data, 6) == 6);
        read_all(later.server, data, 6);
        CHECK(memcmp(data, "answer", 6) == 0);
        done(later);
    }
    done(pair);
}

const struct check checks_of_demotion[] = {
    CHECK_ENTRY(stdio_reads_and_writes),
    CHECK_ENTRY(stdio_after_the_end),
    CHECK_ENTRY(what_has_arrived_stays_readable),
    CHECK_ENTRY(after_a_half_close),
    CHECK_ENTRY(the_peer_reads),
    CHECK_ENTRY(the_peer_polls),
    CHECK_ENTRY(the_peer_waits_in_a_set),
    CHECK_ENTRY(the_peer_waits_for_an_edge),
    CHECK_ENTRY(the_peer_is_notified_in_a_set),
    CHECK_ENTRY(the_peer_is_busy),
    CHECK_ENTRY(the_peer_writes),
    CHECK_ENTRY(the_other_end_is_in_a_set_here),
    CHECK_ENTRY(both_ends_at_once),
    CHECK_ENTRY(becomes_a_static_program),
    CHECK_ENTRY(becomes_another_program),
    CHECK_ENTRY(inherited_by_number),
    CHECK_ENTRY(spawned),
    CHECK_ENTRY(after_vfork),
    CHECK_ENTRY(given_to_system),
    CHECK_ENTRY(given_to_popen),
    CHECK_ENTRY(close_on_exec_stays),
    CHECK_ENTRY(sent_to_another_process),
    CHECK_ENTRY(a_read_across_the_change),
    CHECK_ENTRY(both_ends_one_after_the_other),
    CHECK_ENTRY(reported_by_signal),
    CHECK_ENTRY(layered),
    CHECK_ENTRY(by_io_uring),
    {0},
};
