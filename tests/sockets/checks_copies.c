/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Calls that copy from one descriptor to another: bytes that the output does not accept stay in the
 * input. */
#include "checks.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define PIPE_BYTES 65536u

static void on_signal(int number)
{
    (void)number;
}

static size_t bytes_in(int fd)
{
    int bytes = -1;
    CHECK(ioctl(fd, FIONREAD, &bytes) == 0 && bytes >= 0);
    return (size_t)bytes;
}

static unsigned char pattern(size_t at)
{
    return (unsigned char)(at * 7 + at / 251);
}

/* A full pipe. */
static void full_pipe(int *ret_fds)
{
    unsigned char data[PIPE_BYTES];
    for (size_t i = 0; i < PIPE_BYTES; i++) {
        data[i] = pattern(i);
    }
    CHECK(pipe(ret_fds) == 0);
    write_all(ret_fds[1], data, PIPE_BYTES);
}

static void read_pattern(int fd, size_t bytes)
{
    unsigned char data[PIPE_BYTES];
    read_all(fd, data, bytes);
    for (size_t i = 0; i < bytes; i++) {
        CHECK(data[i] == pattern(i));
    }
}

static void splice_at_a_signal_loses_nothing(void)
{
    struct pair pair = connected();
    int fds[2];
    full_pipe(fds);
    size_t before = fill_up(pair.client);
    every_ms(on_signal, 0, 50);
    CHECK(splice(fds[0], NULL, pair.client, NULL, PIPE_BYTES, 0) == -1 && errno == EINTR);
    no_more_signals();
    CHECK(bytes_in(fds[0]) == PIPE_BYTES);
    CHECK(drain(pair.server, before) == before);
    size_t sent = 0;
    while (sent < PIPE_BYTES) {
        ssize_t n = splice(fds[0], NULL, pair.client, NULL, PIPE_BYTES, 0);
        CHECK(n > 0);
        sent += (size_t)n;
        CHECK(bytes_in(fds[0]) == PIPE_BYTES - sent);
    }
    read_pattern(pair.server, PIPE_BYTES);
    done(pair);
}

static void splice_takes_what_the_connection_takes(void)
{
    struct pair pair = connected();
    int fds[2];
    char old[5000];
    full_pipe(fds);
    nonblocking(pair.client);
    size_t before = fill_up(pair.client);
    size_t sent = 0;
    while (sent < PIPE_BYTES || before > 0) {
        ssize_t n = splice(fds[0], NULL, pair.client, NULL, PIPE_BYTES, SPLICE_F_NONBLOCK);
        CHECK(n > 0 || (n < 0 && errno == EAGAIN));
        sent += n > 0 ? (size_t)n : 0;
        CHECK(bytes_in(fds[0]) == PIPE_BYTES - sent);
        size_t piece = before < 5000 ? before : 5000;
        read_all(pair.server, old, piece);
        before -= piece;
    }
    read_pattern(pair.server, PIPE_BYTES);
    done(pair);
}

#define ROUNDS 400

static struct pair raced;
static pthread_barrier_t rounds;

static void *send_in_rounds(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&rounds);
        fill_up(raced.client);
        pthread_barrier_wait(&rounds);
    }
    return unused;
}

/* Another thread fills the connection meanwhile, and nothing reads from it: a splice() that waited
 * would wait forever. */
static void splice_beside_a_sender_does_not_wait(void)
{
    static char data[PIPE_BYTES];
    pthread_t sender;
    raced = connected();
    nonblocking(raced.client);
    nonblocking(raced.server);
    CHECK(pthread_barrier_init(&rounds, NULL, 2) == 0);
    CHECK(pthread_create(&sender, NULL, send_in_rounds, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        int fds[2];
        size_t sent = 0;
        full_pipe(fds);
        pthread_barrier_wait(&rounds);
        for (ssize_t n; sent < PIPE_BYTES; sent += (size_t)n) {
            n = splice(fds[0], NULL, raced.client, NULL, PIPE_BYTES, SPLICE_F_NONBLOCK);
            CHECK(n > 0 || (n < 0 && errno == EAGAIN));
            if (n < 0) {
                break;
            }
        }
        CHECK(bytes_in(fds[0]) == PIPE_BYTES - sent);
        pthread_barrier_wait(&rounds);
        close(fds[0]);
        close(fds[1]);
        while (read(raced.server, data, sizeof(data)) > 0) {
        }
    }
    CHECK(pthread_join(sender, NULL) == 0);
    done(raced);
}

static void splice_to_a_full_pipe(void)
{
    struct pair pair = connected();
    int fds[2];
    full_pipe(fds);
    write_all(pair.client, "spliced", 7);
    CHECK(splice(pair.server, NULL, fds[1], NULL, 7, SPLICE_F_NONBLOCK) == -1 && errno == EAGAIN);
    nonblocking(fds[1]);
    CHECK(splice(pair.server, NULL, fds[1], NULL, 7, 0) == -1 && errno == EAGAIN);
    read_pattern(fds[0], PIPE_BYTES);
    CHECK(splice(pair.server, NULL, fds[1], NULL, 7, 0) == 7 && bytes_in(fds[0]) == 7);
    done(pair);
}

/* A connection whose peer, a child, has sent these bytes and makes no further call. */
static struct pair to_a_busy_peer(const char *bytes, pid_t *ret_pid)
{
    struct pair pair = connected();
    pid_t parent = getpid();
    *ret_pid = fork();
    CHECK(*ret_pid >= 0);
    if (*ret_pid == 0) {
        end_with(parent);
        close(pair.server);
        write_all(pair.client, bytes, strlen(bytes));
        sleep_ms(60000);
        _exit(0);
    }
    close(pair.client);
    struct pollfd pfd = {.fd = pair.server, .events = POLLIN};
    CHECK(poll(&pfd, 1, 10000) == 1);
    return pair;
}

static void end_busy_peer(struct pair pair, pid_t pid)
{
    close(pair.server);
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
}

/* The peer may never make another call, so the transfer of its bytes must not need one. */
static void copies_do_not_wait_for_the_peer(void)
{
    int fds[2];
    pid_t pid;
    CHECK(pipe(fds) == 0);
    struct pair pair = to_a_busy_peer("spliced and sent", &pid);
    nonblocking(pair.server);
    CHECK(splice(pair.server, NULL, fds[1], NULL, 7, SPLICE_F_NONBLOCK) == 7);
    /* sendfile(2): a splice() where the output is a pipe. */
    CHECK(sendfile(fds[1], pair.server, NULL, 9) == 9);
    CHECK(splice(pair.server, NULL, fds[1], NULL, 7, SPLICE_F_NONBLOCK) == -1 && errno == EAGAIN);
    CHECK(bytes_in(fds[0]) == 16);
    end_busy_peer(pair, pid);
}

static void an_exclusive_set_does_not_wait_for_the_peer(void)
{
    pid_t pid;
    struct pair pair = to_a_busy_peer("sent", &pid);
    int epfd = set_with(pair.server, EPOLLIN | EPOLLEXCLUSIVE);
    CHECK(wait_in(epfd, pair.server, 10000) == EPOLLIN);
    close(epfd);
    end_busy_peer(pair, pid);
}

struct splicer {
    int from, fds[2];
    _Atomic int count;
};

static void *splice_on(void *arg)
{
    struct splicer *splicer = arg;
    char byte;
    while (splice(splicer->from, NULL, splicer->fds[1], NULL, 1, 0) == 1) {
        read_all(splicer->fds[0], &byte, 1);
        splicer->count++;
    }
    return NULL;
}

/* A thread sleeps in splice() while the connection gets its pipes, because another thread sends. */
static void splice_while_a_connection_is_new(void)
{
    struct pair pair = just_connected();
    struct splicer splicer = {.from = pair.client};
    char byte;
    pthread_t thread;
    CHECK(pipe(splicer.fds) == 0);
    CHECK(pthread_create(&thread, NULL, splice_on, &splicer) == 0);
    for (int i = 0; i < 100; i++) {
        write_all(pair.client, "x", 1);
        read_all(pair.server, &byte, 1);
        write_all(pair.server, "y", 1);
        double begin = now_s();
        while (splicer.count == i) {
            CHECK(now_s() - begin < 10);
            sleep_ms(1);
        }
    }
    CHECK(shutdown(pair.server, SHUT_WR) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    done(pair);
}

/* The peer has ended and left bytes in the pipe, so the kernel can not carry them any more. */
static void splice_where_the_peer_has_ended(void)
{
    struct pair pair = connected();
    int fds[2];
    char data[8];
    CHECK(pipe(fds) == 0);
    write_all(pair.client, "spliced", 7);
    CHECK(shutdown(pair.client, SHUT_WR) == 0);
    write_all(fds[1], "answer", 6);
    CHECK(splice(fds[0], NULL, pair.server, NULL, 6, 0) == 6);
    read_all(pair.client, data, 6);
    CHECK(memcmp(data, "answer", 6) == 0);
    CHECK(splice(pair.server, NULL, fds[1], NULL, 7, 0) == 7 && bytes_in(fds[0]) == 7);
    read_all(fds[0], data, 7);
    CHECK(memcmp(data, "spliced", 7) == 0);
    CHECK(splice(pair.server, NULL, fds[1], NULL, 7, 0) == 0);
    close(fds[0]);
    close(fds[1]);
    done(pair);
}

static void splice_to_a_pipe_without_readers(void)
{
    struct pair pair = connected();
    int fds[2];
    char bytes[8];
    signal(SIGPIPE, SIG_IGN);
    CHECK(pipe(fds) == 0 && close(fds[0]) == 0);
    write_all(pair.client, "12345678", 8);
    CHECK(splice(pair.server, NULL, fds[1], NULL, 8, 0) == -1 && errno == EPIPE);
    read_all(pair.server, bytes, 8);
    CHECK(memcmp(bytes, "12345678", 8) == 0);
    close(fds[1]);
    done(pair);
}

#define SHARED_BYTES (2u << 20)

static int shared_pipe[2];

static void *fill(void *of_fd)
{
    static const char bytes[SHARED_BYTES];
    write_all(*(int *)of_fd, bytes, sizeof(bytes));
    CHECK(shutdown(*(int *)of_fd, SHUT_WR) == 0);
    return NULL;
}

static void *splice_to_the_end(void *of_fd)
{
    ssize_t n;
    do {
        n = splice(*(int *)of_fd, NULL, shared_pipe[1], NULL, 4096, SPLICE_F_NONBLOCK);
        CHECK(n >= 0 || errno == EAGAIN);
    } while (n != 0);
    return NULL;
}

static void *read_shared(void *ret_total)
{
    char bytes[1000];
    ssize_t n;
    while ((n = read(shared_pipe[0], bytes, sizeof(bytes))) > 0) {
        *(size_t *)ret_total += (size_t)n;
    }
    return NULL;
}

/* Another thread may take the room that the pipe had. */
static void splices_into_one_small_pipe_lose_nothing(void)
{
    struct pair pairs[2] = {connected(), connected()};
    pthread_t threads[5];
    size_t total = 0;
    CHECK(pipe(shared_pipe) == 0 && fcntl(shared_pipe[1], F_SETPIPE_SZ, 4096) == 4096);
    nonblocking(shared_pipe[1]);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, fill, &pairs[i].client) == 0);
        CHECK(pthread_create(&threads[2 + i], NULL, splice_to_the_end, &pairs[i].server) == 0);
    }
    CHECK(pthread_create(&threads[4], NULL, read_shared, &total) == 0);
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    close(shared_pipe[1]);
    CHECK(pthread_join(threads[4], NULL) == 0);
    CHECK(total == 2 * (size_t)SHARED_BYTES);
    close(shared_pipe[0]);
    done(pairs[0]);
    done(pairs[1]);
}

/* Even if the pipe is non-blocking, the connection may be blocking. */
static void splice_from_an_empty_connection(void)
{
    struct pair pair = connected();
    int fds[2];
    CHECK(pipe(fds) == 0);
    nonblocking(fds[1]);
    every_ms(on_signal, 0, 50);
    CHECK(splice(pair.server, NULL, fds[1], NULL, 7, SPLICE_F_NONBLOCK) == -1 && errno == EINTR);
    no_more_signals();
    nonblocking(pair.server);
    CHECK(splice(pair.server, NULL, fds[1], NULL, 7, 0) == -1 && errno == EAGAIN);
    done(pair);
}

/* --- on a small stack ------------------------------------------------------------------------ */

/* Linux has always allowed stacks of this size, although some processors need larger ones. */
#define SMALL_STACK_BYTES (16 * 1024)

static struct pair small;

static void *send_on_small_stack(void *unused)
{
    char data[16] = {0};
    struct iovec pieces[2] = {{data, 8}, {data + 8, 8}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    CHECK(write(small.client, data, 16) == 16 && read(small.server, data, 16) == 16);
    CHECK(sendmsg(small.client, &message, 0) == 16);
    CHECK(recvmsg(small.server, &message, MSG_WAITALL) == 16);
    return unused;
}

static void *copy_on_small_stack(void *unused)
{
    int fds[2];
    off_t at = 0;
    int file = memfd_create("file", 0);
    CHECK(file >= 0 && ftruncate(file, 5000) == 0 && pipe(fds) == 0);
    CHECK(sendfile(small.client, file, &at, 5000) == 5000);
    CHECK(splice(small.server, NULL, fds[1], NULL, 4000, 0) > 0);
    CHECK(splice(fds[0], NULL, small.client, NULL, 4000, 0) > 0);
    return unused;
}

static void *wait_on_small_stack(void *unused)
{
    struct pollfd pfd = {.fd = small.server, .events = POLLIN};
    struct epoll_event event;
    struct timeval soon = {.tv_usec = 20000};
    struct timeval later = soon;
    fd_set in;
    fd_set high;
    FD_ZERO(&in);
    FD_SET(small.server, &in);
    int last = dup2(small.server, FD_SETSIZE - 1);
    CHECK(last == FD_SETSIZE - 1);
    FD_ZERO(&high);
    FD_SET(last, &high);
    CHECK(select(small.server + 1, &in, NULL, NULL, &soon) == 0);
    CHECK(poll(&pfd, 1, 20) == 0);
    CHECK(select(last + 1, &high, NULL, NULL, &later) == 0);
    CHECK(epoll_wait(set_with(small.server, EPOLLIN), &event, 1, 20) == 0);
    return unused;
}

static void with_small_stack(void *(*run)(void *))
{
    pthread_attr_t attr;
    pthread_t thread;
    CHECK(pthread_attr_init(&attr) == 0);
    CHECK(pthread_attr_setstacksize(&attr, SMALL_STACK_BYTES) == 0 ||
          pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN) == 0);
    small = connected();
    CHECK(pthread_create(&thread, &attr, run, NULL) == 0 && pthread_join(thread, NULL) == 0);
    done(small);
}

static void sending_on_the_smallest_stack(void)
{
    with_small_stack(send_on_small_stack);
}

static void copying_on_the_smallest_stack(void)
{
    with_small_stack(copy_on_small_stack);
}

static void waiting_on_the_smallest_stack(void)
{
    with_small_stack(wait_on_small_stack);
}

const struct check checks_of_copies[] = {
    CHECK_ENTRY(sending_on_the_smallest_stack),
    CHECK_ENTRY(copying_on_the_smallest_stack),
    CHECK_ENTRY(waiting_on_the_smallest_stack),
    CHECK_ENTRY(splice_at_a_signal_loses_nothing),
    CHECK_ENTRY(splice_takes_what_the_connection_takes),
    CHECK_ENTRY(splice_beside_a_sender_does_not_wait),
    CHECK_ENTRY(splice_to_a_full_pipe),
    CHECK_ENTRY(splice_where_the_peer_has_ended),
    CHECK_ENTRY(copies_do_not_wait_for_the_peer),
    CHECK_ENTRY(an_exclusive_set_does_not_wait_for_the_peer),
    CHECK_ENTRY(splice_while_a_connection_is_new),
    CHECK_ENTRY(splice_from_an_empty_connection),
    CHECK_ENTRY(splice_to_a_pipe_without_readers),
    CHECK_ENTRY(splices_into_one_small_pipe_lose_nothing),
    {0},
};
