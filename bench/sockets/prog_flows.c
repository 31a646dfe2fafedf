/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Loads for the benchmarks of sockets: plain sockets, linked with none of our libraries.
 *
 *     prog_flows sink ADDRESS PORT BYTES
 *         reads whole messages, forever
 *     prog_flows source ADDRESS PORT BYTES CONNECTIONS SECONDS
 *         sends messages, by one process for each connection.
 *         Prints {"bytes":N,"messages":M,"seconds":S} once all has been received
 *     prog_flows echo ADDRESS PORT
 *         sends received bytes back, by one epoll set, forever
 *     prog_flows hot ADDRESS PORT CONNECTIONS COUNT
 *         a few round trips on all connections, then COUNT on one; {"per_second":N,"median_us":M}
 *     prog_flows source-turns ADDRESS PORT BYTES SECONDS [THREADS]
 *     prog_flows hot-turns ADDRESS PORT CONNECTIONS COUNT
 *         for each line of standard input: sends for SECONDS by THREADS threads on one connection,
 *         or makes COUNT round trips, and prints a line: messages or round trips per second
 *     prog_flows idle ADDRESS PORT CONNECTIONS
 *         a few round trips on all connections, "ready", then nothing until killed
 *     prog_flows memcpy BYTES SECONDS [2]
 *         the limit of a stream through memory, by one process or two; {"bytes_per_second":B}
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/sockets/dial.h"

#define CONNECTIONS_MAX 18000
#define THREADS_MAX 16
#define HELLOS 6 /* messages each way before a connection is left alone */

static _Noreturn void die(const char *attempt)
{
    fprintf(stderr, "prog_flows: %s: %s\n", attempt, strerror(errno));
    exit(1);
}

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static long number(const char *text, long min, long max)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < min || value > max) {
        fprintf(stderr, "prog_flows: %s: not a number from %ld to %ld\n", text, min, max);
        exit(64);
    }
    return value;
}

/* Touched, so that no page fault is measured. */
static unsigned char *buffer(size_t bytes)
{
    unsigned char *data = NULL;
    if (posix_memalign((void **)&data, 4096, bytes) != 0) {
        errno = ENOMEM;
        die("memory");
    }
    memset(data, 'd', bytes);
    return data;
}

/* --- connections ----------------------------------------------------------------------------- */

static void send_all(int fd, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    while (bytes > 0) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n <= 0) {
            die("send");
        }
        at += n;
        bytes -= (size_t)n;
    }
}

/* false at the end of the stream. */
static bool receive_all(int fd, void *data, size_t bytes)
{
    unsigned char *at = data;
    while (bytes > 0) {
        ssize_t n = recv(fd, at, bytes, MSG_WAITALL);
        if (n < 0) {
            die("recv");
        }
        if (n == 0) {
            return false;
        }
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* --- streams --------------------------------------------------------------------------------- */

#define SINKS 8

static _Noreturn void sink_serve(int listen_fd, size_t bytes)
{
    unsigned char *data = buffer(bytes);
    for (;;) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            die("accept");
        }
        no_delay(fd);
        while (receive_all(fd, data, bytes)) {
        }
        send_all(fd, "e", 1); /* reports to the sender that all has been received */
        close(fd);
    }
}

/* Starts a process for each connection before it accepts. SIGTERM ends all of them; they are waited
 * for, so that their CPU time counts. */
static int sink(char **argv)
{
    size_t bytes = (size_t)number(argv[2], 1, 1 << 30);
    int listen_fd = listen_at(argv);
    pid_t pids[SINKS];
    sigset_t term;
    int signal_number;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    for (int i = 0; i < SINKS; i++) {
        pids[i] = fork();
        if (pids[i] < 0) {
            die("fork");
        }
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            sigprocmask(SIG_UNBLOCK, &term, NULL);
            sink_serve(listen_fd, bytes);
        }
    }
    sigwait(&term, &signal_number);
    for (int i = 0; i < SINKS; i++) {
        kill(pids[i], SIGTERM);
        waitpid(pids[i], NULL, 0);
    }
    return 0;
}

/* Memory that the processes of source share. */
struct flows {
    double until; /* the time at which sending ends; 0: it has not begun */
    int ready;
    uint64_t messages[64];
    double ended[64];
};

struct flow {
    int fd;
    size_t bytes;
    double until;
    uint64_t messages;
};

static void *send_messages(void *argument)
{
    struct flow *flow = argument;
    unsigned char *data = buffer(flow->bytes);
    /* Reading the clock costs as much as a small message, so it is read once per 64 KiB. */
    unsigned once_in = flow->bytes >= 65536 ? 1 : 65536 / (unsigned)flow->bytes;
    do {
        for (unsigned i = 0; i < once_in; i++) {
            send_all(flow->fd, data, flow->bytes);
        }
        flow->messages += once_in;
    } while (now_s() < flow->until);
    return NULL;
}

/* Number of messages that the threads have sent on one connection until that time. */
static uint64_t send_by_threads(int fd, size_t bytes, double until, int threads)
{
    pthread_t others[THREADS_MAX];
    struct flow parts[THREADS_MAX];
    uint64_t messages = 0;
    for (int i = 0; i < threads; i++) {
        parts[i] = (struct flow){.fd = fd, .bytes = bytes, .until = until};
        if (i > 0 && pthread_create(&others[i], NULL, send_messages, &parts[i]) != 0) {
            die("thread");
        }
    }
    send_messages(&parts[0]);
    for (int i = 0; i < threads; i++) {
        if (i > 0) {
            pthread_join(others[i], NULL);
        }
        messages += parts[i].messages;
    }
    return messages;
}

/* Opens a connection, and sends the first messages, which show the direction. */
static int begin_flow(char **argv, size_t bytes)
{
    int fd = connect_to(argv);
    unsigned char *data = buffer(bytes);
    for (int i = 0; i < HELLOS; i++) {
        send_all(fd, data, bytes); /* not counted */
    }
    free(data);
    return fd;
}

static void run_flow(char **argv, struct flows *flows, int index)
{
    size_t bytes = (size_t)number(argv[2], 1, 1 << 30);
    int fd = begin_flow(argv, bytes);
    __atomic_fetch_add(&flows->ready, 1, __ATOMIC_SEQ_CST);
    double until;
    do {
        __atomic_load(&flows->until, &until, __ATOMIC_SEQ_CST);
    } while (until == 0 && usleep(200) == 0);
    flows->messages[index] = send_by_threads(fd, bytes, until, 1);
    shutdown(fd, SHUT_WR);
    char byte;
    if (!receive_all(fd, &byte, 1)) {
        die("the receiver's last word");
    }
    flows->ended[index] = now_s();
}

/* Sends each time that a line arrives, so that other programs have their turns in between. */
static int source_in_turns(int argc, char **argv)
{
    size_t bytes = (size_t)number(argv[2], 1, 1 << 30);
    int threads = argc > 4 ? (int)number(argv[4], 1, THREADS_MAX) : 1;
    int fd = begin_flow(argv, bytes);
    char line[16];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        double begin = now_s();
        uint64_t messages = send_by_threads(fd, bytes, begin + atof(argv[3]), threads);
        printf("%.0f\n", (double)messages / (now_s() - begin));
        fflush(stdout);
    }
    return 0;
}

static int source(char **argv)
{
    int connections = (int)number(argv[3], 1, 64);
    double seconds = atof(argv[4]);
    struct flows *flows =
        mmap(NULL, sizeof(*flows), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (flows == MAP_FAILED) {
        die("memory");
    }
    for (int i = 0; i < connections; i++) {
        pid_t pid = fork();
        if (pid < 0) {
            die("fork");
        }
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            run_flow(argv, flows, i);
            exit(0); /* exit(), not _exit(): a library may report in a handler of atexit() */
        }
    }
    int status = 0;
    while (__atomic_load_n(&flows->ready, __ATOMIC_SEQ_CST) < connections) {
        if (waitpid(-1, &status, WNOHANG) > 0) {
            return 1; /* the process has printed the reason */
        }
        usleep(200);
    }
    double begin = now_s();
    double until = begin + seconds;
    __atomic_store(&flows->until, &until, __ATOMIC_SEQ_CST);
    double end = begin;
    uint64_t messages = 0;
    for (int i = 0; i < connections; i++) {
        if (waitpid(-1, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < connections; i++) {
        end = flows->ended[i] > end ? flows->ended[i] : end;
        messages += flows->messages[i];
    }
    printf("{\"bytes\":%llu,\"messages\":%llu,\"seconds\":%.6f}\n",
           (unsigned long long)messages * (unsigned long long)number(argv[2], 1, 1 << 30),
           (unsigned long long)messages, end - begin);
    return 0;
}

/*
 * Copies through a buffer, as a stream through memory does: in pieces, into the buffer and out of
 * it, by one thread. Two CPUs can do that in half the time if nothing disturbs them.
 */
#define BETWEEN_BYTES (256u * 1024)
#define PIECE_BYTES (32u * 1024)

static int memcpys(char **argv)
{
    size_t bytes = (size_t)number(argv[0], 1, 1 << 30);
    unsigned char *from = buffer(bytes);
    unsigned char *to = buffer(bytes);
    unsigned char *between = buffer(BETWEEN_BYTES);
    size_t at = 0;
    uint64_t messages = 0;
    double begin = now_s();
    double until = begin + atof(argv[1]);
    do {
        for (size_t off = 0; off < bytes; off += PIECE_BYTES) {
            size_t piece = bytes - off < PIECE_BYTES ? bytes - off : PIECE_BYTES;
            memcpy(between + at, from + off, piece);
            __asm__ volatile("" ::: "memory");
            memcpy(to + off, between + at, piece);
            __asm__ volatile("" ::: "memory");
            at = (at + PIECE_BYTES) % BETWEEN_BYTES;
        }
        messages++;
    } while (now_s() < until);
    printf("{\"bytes_per_second\":%.0f}\n", (double)messages * (double)bytes / (now_s() - begin));
    return 0;
}

/* Memory that the two processes share; a cache line for the word of each. */
struct between {
    uint64_t in __attribute__((aligned(64)));
    uint64_t out __attribute__((aligned(64)));
    unsigned char data[BETWEEN_BYTES] __attribute__((aligned(64)));
};

/* Binds the process to the index-th of the CPUs that it may use. */
static void stay_on_cpu(int index)
{
    cpu_set_t may;
    cpu_set_t one;
    if (sched_getaffinity(0, sizeof(may), &may) != 0 || CPU_COUNT(&may) <= index) {
        errno = ENODEV;
        die("a CPU for each process");
    }
    int cpu = 0;
    for (; !CPU_ISSET(cpu, &may) || index-- > 0; cpu++) {
    }
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0) {
        die("a CPU for each process");
    }
}

static _Noreturn void copy_out(struct between *between, size_t bytes)
{
    unsigned char *to = buffer(bytes);
    uint64_t done = 0;
    stay_on_cpu(1);
    for (size_t off = 0;; off = off + PIECE_BYTES >= bytes ? 0 : off + PIECE_BYTES) {
        size_t piece = bytes - off < PIECE_BYTES ? bytes - off : PIECE_BYTES;
        while (__atomic_load_n(&between->in, __ATOMIC_ACQUIRE) == done) {
        }
        memcpy(to + off, between->data + done % BETWEEN_BYTES, piece);
        done += PIECE_BYTES;
        __atomic_store_n(&between->out, done, __ATOMIC_RELEASE);
    }
}

/* The same by two processes on two CPUs, which copy at the same time: any stream through memory has
 * each byte written by one and read by the other. */
static int memcpys_of_two(char **argv)
{
    size_t bytes = (size_t)number(argv[0], 1, 1 << 30);
    unsigned char *from = buffer(bytes);
    struct between *between = mmap(NULL, sizeof(*between), PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (between == MAP_FAILED) {
        die("memory");
    }
    pid_t pid = fork();
    if (pid < 0) {
        die("fork");
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        copy_out(between, bytes);
    }
    stay_on_cpu(0);
    uint64_t done = 0;
    uint64_t messages = 0;
    double begin = now_s();
    double until = begin + atof(argv[1]);
    do {
        for (size_t off = 0; off < bytes; off += PIECE_BYTES) {
            size_t piece = bytes - off < PIECE_BYTES ? bytes - off : PIECE_BYTES;
            while (done - __atomic_load_n(&between->out, __ATOMIC_ACQUIRE) == BETWEEN_BYTES) {
            }
            memcpy(between->data + done % BETWEEN_BYTES, from + off, piece);
            done += PIECE_BYTES;
            __atomic_store_n(&between->in, done, __ATOMIC_RELEASE);
        }
        messages++;
    } while (now_s() < until);
    while (__atomic_load_n(&between->out, __ATOMIC_ACQUIRE) != done) {
    }
    printf("{\"bytes_per_second\":%.0f}\n", (double)messages * (double)bytes / (now_s() - begin));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return 0;
}

/* --- many connections ------------------------------------------------------------------------ */

static void echo_one(int epoll_fd, int fd)
{
    char data[4096];
    ssize_t n = recv(fd, data, sizeof(data), MSG_DONTWAIT);
    if (n > 0) {
        send_all(fd, data, (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        close(fd);
    }
}

static int echo(char **argv)
{
    int listen_fd = listen_at(argv);
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listen_fd};
    if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listen_fd, &event) != 0) {
        die("epoll");
    }
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(epoll_fd, events, 64, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd != listen_fd) {
                echo_one(epoll_fd, fd);
                continue;
            }
            fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
            if (fd < 0) {
                die("accept");
            }
            no_delay(fd);
            event = (struct epoll_event){.events = EPOLLIN, .data.fd = fd};
            if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
                die("epoll_ctl");
            }
        }
    }
}

static void ping(int fd)
{
    char data[16] = "there and back";
    send_all(fd, data, sizeof(data));
    if (!receive_all(fd, data, sizeof(data))) {
        errno = ECONNRESET;
        die("echo");
    }
}

static int *open_all(char **argv, int count)
{
    static int fds[CONNECTIONS_MAX];
    for (int i = 0; i < count; i++) {
        fds[i] = connect_to(argv);
        for (int k = 0; k < HELLOS; k++) {
            ping(fds[i]);
        }
    }
    return fds;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, long count)
{
    qsort(values, (size_t)count, sizeof(*values), by_size);
    return values[count / 2];
}

static int hot(char **argv)
{
    int connections = (int)number(argv[2], 1, CONNECTIONS_MAX);
    long count = number(argv[3], 1, 100000000);
    double *times = calloc((size_t)count, sizeof(*times));
    int fd = open_all(argv, connections)[connections / 2];
    for (long i = 0; i < count / 10; i++) {
        ping(fd);
    }
    double begin = now_s();
    double last = begin;
    for (long i = 0; i < count; i++) {
        ping(fd);
        double now = now_s();
        times[i] = now - last;
        last = now;
    }
    printf("{\"per_second\":%.0f,\"median_us\":%.3f}\n", (double)count / (last - begin),
           median(times, count) * 1e6);
    return 0;
}

/* The same each time that a line arrives, so that other programs have their turns in between. */
static int hot_in_turns(char **argv)
{
    int connections = (int)number(argv[2], 1, CONNECTIONS_MAX);
    long count = number(argv[3], 1, 100000000);
    int fd = open_all(argv, connections)[connections / 2];
    char line[16];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        for (long i = 0; i < count / 10; i++) {
            ping(fd); /* gets a CPU again after a sleep */
        }
        double begin = now_s();
        for (long i = 0; i < count; i++) {
            ping(fd);
        }
        printf("%.0f\n", (double)count / (now_s() - begin));
        fflush(stdout);
    }
    return 0;
}

/* Round trips on one connection, while poll() without waiting checks all of them. */
static int poll_loop(char **argv)
{
    static struct pollfd polled[CONNECTIONS_MAX];
    int connections = (int)number(argv[2], 1, CONNECTIONS_MAX);
    long count = number(argv[3], 1, 100000000);
    const int *fds = open_all(argv, connections);
    char data[16] = "there and back";
    for (int i = 0; i < connections; i++) {
        polled[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    }
    double begin = now_s();
    for (long i = 0; i < count; i++) {
        int fd = fds[i % connections];
        send_all(fd, data, sizeof(data));
        while (poll(polled, (nfds_t)connections, 0) == 0) {
        }
        if (!receive_all(fd, data, sizeof(data))) {
            errno = ECONNRESET;
            die("echo");
        }
    }
    printf("{\"per_second\":%.0f}\n", (double)count / (now_s() - begin));
    return 0;
}

static _Noreturn void idle(char **argv)
{
    open_all(argv, (int)number(argv[2], 1, CONNECTIONS_MAX));
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        pause();
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    argc -= 2;
    argv += 2;
    if (strcmp(what, "sink") == 0 && argc == 3) {
        return sink(argv);
    }
    if (strcmp(what, "source") == 0 && argc == 5) {
        return source(argv);
    }
    if (strcmp(what, "echo") == 0 && argc == 2) {
        return echo(argv);
    }
    if (strcmp(what, "hot") == 0 && argc == 4) {
        return hot(argv);
    }
    if (strcmp(what, "poll-loop") == 0 && argc == 4) {
        return poll_loop(argv);
    }
    if (strcmp(what, "source-turns") == 0 && (argc == 4 || argc == 5)) {
        return source_in_turns(argc, argv);
    }
    if (strcmp(what, "hot-turns") == 0 && argc == 4) {
        return hot_in_turns(argv);
    }
    if (strcmp(what, "idle") == 0 && argc == 3) {
        idle(argv);
    }
    if (strcmp(what, "memcpy") == 0 && argc == 2) {
        return memcpys(argv);
    }
    if (strcmp(what, "memcpy") == 0 && argc == 3) {
        return memcpys_of_two(argv);
    }
    fprintf(stderr, "usage: prog_flows sink|source|echo|hot|poll-loop|...-turns|idle|memcpy ...: "
                    "see its source\n");
    return 64;
}
