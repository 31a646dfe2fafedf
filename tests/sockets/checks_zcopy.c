/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Large synchronous sends: in all cases, every byte has the value that it had when send() was
 * called. */
#include "checks.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define LARGE (1u << 20)

/* Byte `at` of every stream here; returned memory is overwritten by a value that no stream
 * contains. */
#define SCRIBBLE 0xff
#define PERIOD 65521u
#define PIECE 4096u
static unsigned char patterns[PERIOD + PIECE];

static void make_patterns(void)
{
    for (uint32_t i = 0; i < sizeof(patterns); i++) {
        patterns[i] = (unsigned char)((i % PERIOD * UINT32_C(2654435761) >> 11) % SCRIBBLE);
    }
}

static const unsigned char *pattern_at(uint64_t at)
{
    return patterns + at % PERIOD;
}

static void fill(unsigned char *data, uint64_t at, size_t bytes)
{
    while (bytes > 0) {
        size_t piece = bytes < PIECE ? bytes : PIECE;
        memcpy(data, pattern_at(at), piece);
        data += piece;
        at += piece;
        bytes -= piece;
    }
}

static void expect(const unsigned char *data, uint64_t at, size_t bytes)
{
    while (bytes > 0) {
        size_t piece = bytes < PIECE ? bytes : PIECE;
        CHECK(memcmp(data, pattern_at(at), piece) == 0);
        data += piece;
        at += piece;
        bytes -= piece;
    }
}

/* Overwrites the bytes as soon as send() has returned. */
static ssize_t send_and_scribble(int fd, unsigned char *data, uint64_t at, size_t bytes)
{
    fill(data, at, bytes);
    ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);
    int saved = errno;
    memset(data, SCRIBBLE, bytes);
    errno = saved;
    return n;
}

/* Reads to the end, in pieces of up to `most`, and checks each byte. Returns the number of
 * bytes. */
static uint64_t read_to_the_end(int fd, size_t most, int flags)
{
    unsigned char *data = malloc(most);
    uint64_t total = 0;
    for (;;) {
        ssize_t n = recv(fd, data, most, flags);
        if (n <= 0) {
            CHECK(n == 0 || errno == ECONNRESET);
            free(data);
            return total;
        }
        expect(data, total, (size_t)n);
        total += (uint64_t)n;
    }
}

/* Exchanges a few small messages, so that a library has accelerated the connection. */
static void greet(int fd, bool first)
{
    char byte = 'w';
    for (int i = 0; i < 6; i++) {
        if (first) {
            write_all(fd, &byte, 1);
        }
        read_all(fd, &byte, 1);
        if (!first) {
            write_all(fd, &byte, 1);
        }
    }
}

/* A connection to another process, which runs `run` and ends. It is made after the fork, as between
 * unrelated programs. */
static int with_other(pid_t *ret_pid, void (*run)(int fd))
{
    struct sockaddr_in addr;
    make_patterns();
    int listen_fd = listener(&addr);
    *ret_pid = fork();
    CHECK(*ret_pid >= 0);
    if (*ret_pid == 0) {
        int fd = accept(listen_fd, NULL, NULL);
        CHECK(fd >= 0);
        close(listen_fd);
        greet(fd, false);
        run(fd);
        close(fd);
        exit(0);
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    close(listen_fd);
    greet(fd, true);
    return fd;
}

/* --- readers --------------------------------------------------------------------------------- */

static void reads_whole_messages(int fd)
{
    CHECK(read_to_the_end(fd, LARGE, MSG_WAITALL) == 16u * LARGE);
}

static void reads_pieces_of_all_sizes(int fd)
{
    unsigned char *data = malloc(LARGE);
    uint64_t total = 0;
    for (unsigned round = 1;; round++) {
        size_t most = round % 3 == 0 ? LARGE : (size_t)(round * 7919u) % 150000 + 1;
        ssize_t n = recv(fd, data, most, 0);
        CHECK(n >= 0);
        if (n == 0) {
            break;
        }
        expect(data, total, (size_t)n);
        total += (uint64_t)n;
    }
    CHECK(total == 16u * LARGE);
    free(data);
}

static void polls_and_never_waits(int fd)
{
    unsigned char *data = malloc(LARGE);
    uint64_t total = 0;
    nonblocking(fd);
    for (;;) {
        struct pollfd pfd = {fd, POLLIN, 0};
        CHECK(poll(&pfd, 1, 30000) == 1);
        ssize_t n = recv(fd, data, total < 4 * LARGE ? LARGE : 5000, 0);
        if (n == 0) {
            break;
        }
        if (n > 0) {
            expect(data, total, (size_t)n);
            total += (uint64_t)n;
        } else {
            CHECK(errno == EAGAIN);
        }
    }
    CHECK(total == 16u * LARGE);
    free(data);
}

static void looks_before_it_takes(int fd)
{
    unsigned char *data = malloc(LARGE);
    uint64_t total = 0;
    for (;;) {
        ssize_t n = recv(fd, data, LARGE, MSG_PEEK);
        CHECK(n >= 0);
        if (n == 0) {
            break;
        }
        expect(data, total, (size_t)n);
        int waiting = 0;
        CHECK(ioctl(fd, FIONREAD, &waiting) == 0 && waiting >= 0);
        memset(data, 0, (size_t)n);
        ssize_t taken = recv(fd, data, (size_t)n, MSG_WAITALL);
        CHECK(taken == n);
        expect(data, total, (size_t)n);
        total += (uint64_t)n;
    }
    CHECK(total == 16u * LARGE);
    free(data);
}

static void reads_to_the_end(int fd)
{
    read_to_the_end(fd, LARGE, 0);
}

static void reads_a_bit_and_closes(int fd)
{
    unsigned char *data = malloc(LARGE);
    read_all(fd, data, LARGE);
    read_all(fd, data, LARGE / 2);
    free(data);
}

static void reads_slowly(int fd)
{
    unsigned char *data = malloc(LARGE);
    uint64_t total = 0;
    for (;;) {
        ssize_t n = recv(fd, data, LARGE, 0);
        CHECK(n >= 0);
        if (n == 0) {
            break;
        }
        expect(data, total, (size_t)n);
        total += (uint64_t)n;
        if (total % 3 == 0) {
            sleep_ms(15);
        }
    }
    CHECK(total == 8u * LARGE);
    free(data);
}

/* --- whole streams --------------------------------------------------------------------------- */

/* Sends `bytes` bytes in large pieces, then ends the stream and waits for the reader. */
static void send_stream(uint64_t bytes, void (*reader)(int fd))
{
    pid_t pid;
    int fd = with_other(&pid, reader);
    unsigned char *data = malloc(LARGE);
    for (uint64_t at = 0; at < bytes;) {
        size_t piece = LARGE - (size_t)(at % 4 == 1 ? 12345 : 0);
        piece = bytes - at < piece ? (size_t)(bytes - at) : piece;
        CHECK(send_and_scribble(fd, data, at, piece) == (ssize_t)piece);
        at += piece;
    }
    close(fd);
    wait_for(pid);
    free(data);
}

static void large_sends_into_large_receives(void)
{
    send_stream(16u * LARGE, reads_whole_messages);
}

static void large_sends_into_receives_of_all_sizes(void)
{
    send_stream(16u * LARGE, reads_pieces_of_all_sizes);
}

static void large_sends_to_a_reader_that_polls(void)
{
    send_stream(16u * LARGE, polls_and_never_waits);
}

static void large_sends_are_peeked_at(void)
{
    send_stream(16u * LARGE, looks_before_it_takes);
}

static void large_sends_to_a_slow_reader(void)
{
    send_stream(8u * LARGE, reads_slowly);
}

static void large_and_small_pieces_in_one_call(void)
{
    pid_t pid;
    int fd = with_other(&pid, reads_to_the_end);
    unsigned char *data = malloc(LARGE);
    uint64_t at = 0;
    for (int round = 0; round < 16; round++) {
        fill(data, at, LARGE);
        struct iovec pieces[4] = {{data, 300000},
                                  {data + 300000, 17},
                                  {data + 300017, 400000},
                                  {data + 700017, LARGE - 700017}};
        size_t done = 0;
        for (int i = 0; i < 4;) {
            ssize_t n = writev(fd, pieces + i, 4 - i);
            CHECK(n > 0);
            done += (size_t)n;
            for (; i < 4 && (size_t)n >= pieces[i].iov_len; i++) {
                n -= (ssize_t)pieces[i].iov_len;
            }
            if (i < 4) {
                pieces[i].iov_base = (char *)pieces[i].iov_base + n;
                pieces[i].iov_len -= (size_t)n;
            }
        }
        CHECK(done == LARGE);
        memset(data, SCRIBBLE, LARGE);
        at += LARGE;
    }
    close(fd);
    wait_for(pid);
    free(data);
}

/* --- signals and cancellation ---------------------------------------------------------------- */

static volatile sig_atomic_t signals;
static sigjmp_buf way_out;

static void count_signal(int number)
{
    (void)number;
    signals++;
}

static void jump_out(int number)
{
    (void)number;
    siglongjmp(way_out, 1);
}

static void send_among_signals(int flags)
{
    pid_t pid;
    int fd = with_other(&pid, reads_slowly);
    unsigned char *data = malloc(LARGE);
    every_ms(count_signal, flags, 2);
    for (uint64_t at = 0; at < 8u * LARGE;) {
        size_t piece = LARGE - (size_t)(at % LARGE);
        ssize_t n = send_and_scribble(fd, data, at, piece);
        CHECK(n > 0 || (n < 0 && errno == EINTR && flags == 0));
        at += n > 0 ? (uint64_t)n : 0;
    }
    no_more_signals();
    CHECK(signals > 0);
    close(fd);
    wait_for(pid);
    free(data);
}

static void signals_during_large_sends(void)
{
    send_among_signals(0);
    send_among_signals(SA_RESTART);
}

static void send_until_the_jump(int fd, unsigned char *data)
{
    if (sigsetjmp(way_out, 1) == 0) {
        every_ms(jump_out, 0, 5);
        /* The position at which the stream stopped is unknown, so no more bytes can be sent. */
        for (uint64_t at = 0;; at += LARGE) {
            fill(data, at, LARGE);
            CHECK(send(fd, data, LARGE, 0) == LARGE);
        }
    }
}

/* A handler leaves send() by longjmp(): all bytes that were sent are right, for any number of them.
 */
static void jumps_out_of_large_sends(void)
{
    for (int round = 0; round < 10; round++) {
        pid_t pid;
        int fd = with_other(&pid, reads_to_the_end);
        unsigned char *data = malloc(LARGE);
        send_until_the_jump(fd, data);
        no_more_signals();
        memset(data, SCRIBBLE, LARGE);
        sleep_ms(2);
        close(fd);
        wait_for(pid);
        free(data);
    }
}

static void *send_until_the_end(void *fd)
{
    static unsigned char data[4 * LARGE];
    for (;;) {
        CHECK(send(*(int *)fd, data, sizeof(data), 0) > 0);
    }
    return NULL;
}

static void reads_a_bit_and_stays(int fd)
{
    unsigned char *data = malloc(LARGE);
    read_all(fd, data, LARGE);
    free(data);
    sleep_ms(60000); /* until it is killed */
}

static void cancelling_a_thread_in_a_large_send(void)
{
    pid_t pid;
    pthread_t thread;
    int fd = with_other(&pid, reads_a_bit_and_stays);
    CHECK(pthread_create(&thread, NULL, send_until_the_end, &fd) == 0);
    sleep_ms(50);
    double begin = now_s();
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(now_s() - begin < 30);
    kill(pid, SIGKILL); /* on a busy machine the reader may still read, but not to the end */
    waitpid(pid, NULL, 0);
    close(fd);
}

/* --- ends ------------------------------------------------------------------------------------ */

static void the_reader_closes_in_the_middle(void)
{
    pid_t pid;
    int fd = with_other(&pid, reads_a_bit_and_closes);
    unsigned char *data = malloc(LARGE);
    ssize_t n = 0;
    for (uint64_t at = 0; n >= 0 && at < 64u * LARGE; at += LARGE) {
        n = send_and_scribble(fd, data, at, LARGE);
    }
    CHECK(n < 0 && (errno == EPIPE || errno == ECONNRESET));
    close(fd);
    wait_for(pid);
    free(data);
}

static pid_t victim;

static void kill_it(int number)
{
    (void)number;
    kill(victim, SIGKILL);
}

static void the_reader_is_killed(void)
{
    for (int round = 0; round < 8; round++) {
        int fd = with_other(&victim, reads_to_the_end);
        unsigned char *data = malloc(LARGE);
        double begin = now_s();
        ssize_t n = 0;
        every_ms(kill_it, SA_RESTART, 5 + 3 * round);
        for (uint64_t at = 0; n >= 0; at += n > 0 ? (uint64_t)n : 0) {
            n = send_and_scribble(fd, data, at, LARGE);
            CHECK(now_s() - begin < 30);
        }
        CHECK(errno == EPIPE || errno == ECONNRESET);
        no_more_signals();
        close(fd);
        waitpid(victim, NULL, 0);
        free(data);
    }
}

static void reads_without_a_look(int fd)
{
    unsigned char *data = malloc(16u * LARGE);
    while (recv(fd, data, 16u * LARGE, MSG_WAITALL) > 0) {
    }
    free(data);
}

static void *kill_later(void *of_ms)
{
    sleep_ms(*(int *)of_ms);
    kill(victim, SIGKILL);
    return NULL;
}

/* A sender gets no signal when its reader is killed, and must notice that no reader fetches any
 * more. */
static void the_reader_is_killed_while_it_fetches(void)
{
    unsigned char *data = calloc(16, LARGE);
    for (int round = 0; round < 20; round++) {
        pthread_t killer;
        int ms = 5 + round % 7;
        int fd = with_other(&victim, reads_without_a_look);
        double begin = now_s();
        CHECK(pthread_create(&killer, NULL, kill_later, &ms) == 0);
        while (send(fd, data, 16u * (size_t)LARGE, MSG_NOSIGNAL) >= 0) {
        }
        CHECK(errno == EPIPE || errno == ECONNRESET);
        CHECK(now_s() - begin < 30);
        close(fd);
        pthread_join(killer, NULL);
        waitpid(victim, NULL, 0);
    }
    free(data);
}

static void the_sender_is_killed(void)
{
    for (int round = 0; round < 8; round++) {
        pid_t pid;
        int fd = with_other(&pid, reads_to_the_end);
        pid_t sender = fork();
        if (sender == 0) {
            unsigned char *data = malloc(LARGE);
            for (uint64_t at = 0;; at += LARGE) {
                CHECK(send_and_scribble(fd, data, at, LARGE) == LARGE);
            }
        }
        close(fd);
        sleep_ms(5 + 3 * round);
        kill(sender, SIGKILL);
        waitpid(sender, NULL, 0);
        wait_for(pid); /* the reader has checked all bytes up to its death */
    }
}

/* Does not fork, because the process that connected is to be killed. */
static void sends_until_killed(int fd)
{
    unsigned char *data = malloc(LARGE);
    for (uint64_t at = 0;; at += LARGE) {
        CHECK(send_and_scribble(fd, data, at, LARGE) == LARGE);
    }
}

static void the_sender_is_killed_in_a_send(void)
{
    for (int round = 0; round < 8; round++) {
        pid_t pid;
        int fd = with_other(&pid, sends_until_killed);
        unsigned char *data = malloc(LARGE);
        uint64_t total = 0;
        double until = now_s() + 0.005 + 0.003 * round;
        bool killed = false;
        for (;;) {
            ssize_t n = recv(fd, data, LARGE, MSG_WAITALL);
            if (n <= 0) {
                CHECK(n == 0 || errno == ECONNRESET);
                break;
            }
            expect(data, total, (size_t)n);
            total += (uint64_t)n;
            if (!killed && now_s() > until) {
                killed = kill(pid, SIGKILL) == 0;
            }
        }
        CHECK(killed);
        waitpid(pid, NULL, 0);
        close(fd);
        free(data);
    }
}

#define BOTH 200000u

static void sends_first(int fd)
{
    unsigned char *data = malloc(LARGE);
    /* Large receives on both sides first: zero-copy is possible then. */
    read_all(fd, data, LARGE);
    fill(data, 0, LARGE);
    write_all(fd, data, LARGE);
    for (int round = 0; round < 10; round++) {
        fill(data, 0, BOTH);
        write_all(fd, data, BOTH);
        CHECK(recv(fd, data, BOTH, MSG_WAITALL) == BOTH);
        expect(data, 0, BOTH);
    }
    free(data);
}

/* The program works only if the connection buffers the bytes of one side, so the library must
 * continue to buffer. */
static void both_sides_send_before_they_receive(void)
{
    pid_t pid;
    int fd = with_other(&pid, sends_first);
    unsigned char *data = malloc(LARGE);
    fill(data, 0, LARGE);
    write_all(fd, data, LARGE);
    read_all(fd, data, LARGE);
    for (int round = 0; round < 10; round++) {
        fill(data, 0, BOTH);
        write_all(fd, data, BOTH);
        CHECK(recv(fd, data, BOTH, MSG_WAITALL) == BOTH);
        expect(data, 0, BOTH);
    }
    close(fd);
    wait_for(pid);
    free(data);
}

static void a_time_limit_for_large_sends(void)
{
    pid_t pid;
    int fd = with_other(&pid, reads_a_bit_and_stays);
    unsigned char *data = calloc(64, LARGE);
    struct timeval limit = {0, 100000};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0);
    double begin = now_s();
    ssize_t n = send(fd, data, 64 * (size_t)LARGE, 0);
    CHECK(n > 0 && n < 64 * (ssize_t)LARGE);
    CHECK(now_s() - begin < 30);
    close(fd);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    free(data);
}

const struct check checks_of_zcopy[] = {
    CHECK_ENTRY(large_sends_into_large_receives),
    CHECK_ENTRY(large_sends_into_receives_of_all_sizes),
    CHECK_ENTRY(large_sends_to_a_reader_that_polls),
    CHECK_ENTRY(large_sends_are_peeked_at),
    CHECK_ENTRY(large_sends_to_a_slow_reader),
    CHECK_ENTRY(large_and_small_pieces_in_one_call),
    CHECK_ENTRY(signals_during_large_sends),
    CHECK_ENTRY(jumps_out_of_large_sends),
    CHECK_ENTRY(cancelling_a_thread_in_a_large_send),
    CHECK_ENTRY(the_reader_closes_in_the_middle),
    CHECK_ENTRY(the_reader_is_killed),
    CHECK_ENTRY(the_reader_is_killed_while_it_fetches),
    CHECK_ENTRY(the_sender_is_killed),
    CHECK_ENTRY(the_sender_is_killed_in_a_send),
    CHECK_ENTRY(both_sides_send_before_they_receive),
    CHECK_ENTRY(a_time_limit_for_large_sends),
    {0},
};
