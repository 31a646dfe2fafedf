/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A matrix of event loops: how a descriptor is registered (level, edge, one-shot, exclusive), for
 * which direction (in, out, both), which threads wait and which move bytes, message sizes below and
 * above every buffer, and which ends send. Both ends of a connection run the same kind of loop, in
 * two processes. No loop may hang, and on an idle machine no message may stall.
 *
 *     prog_event_loops [-r ROUNDS] [-s STALL_MS] [NAME...]
 *
 * ROUNDS multiplies the messages of each loop. A NAME is a part of a loop's name, as printed. Each
 * loop that stalls is run again: one that stalls three times in a row fails.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HANG_S 30
#define POOL_THREADS 3u
#define MESSAGE_BYTES_MAX (8u << 20)
/* The kernel's buffers hold CROSS_BYTES_MAX of each end, even if the other end does not read. */
#define CROSS_BYTES_MAX (1u << 20)
#define TRIES 3

enum trigger { LEVEL, EDGE, ONESHOT, EXCLUSIVE };
/* The thread that waits in the set, and the thread that moves bytes. */
enum who {
    SAME,   /* one thread */
    POLLER, /* one thread waits, another moves bytes */
    POOL,   /* some threads wait and move bytes, another begins each message */
};
enum pattern {
    ECHO,   /* a message and then its answer, of the same size */
    ONE,    /* a message and a byte */
    DUPLEX, /* both ends send and receive at once */
    CROSS,  /* both ends send everything, then receive: only up to CROSS_BYTES_MAX */
};

static const char *const trigger_names[] = {"level", "edge", "oneshot", "exclusive"};
static const char *const who_names[] = {"same", "poller", "pool"};
static const char *const pattern_names[] = {"echo", "one", "duplex", "cross"};

struct loop {
    enum trigger trigger;
    uint32_t
        events; /* EPOLLIN, EPOLLOUT or both; poll() waits for the direction that is not in it */
    enum who who;
    enum pattern pattern;
    size_t bytes;
    unsigned rounds;
};

/* One end of the connection, in a process of its own. */
struct end {
    const struct loop *loop;
    int fd;
    int epfds[POOL_THREADS]; /* exclusive pools have a set for each thread */
    pthread_mutex_t lock;
    pthread_cond_t done;
    sem_t news;
    const unsigned char *out;
    unsigned char *in;
    size_t out_left;
    size_t in_left;
};

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, strerror(errno)); \
            _exit(2);                                                                    \
        }                                                                                \
    } while (0)

static double now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

/* --- one end --------------------------------------------------------------------------------- */

/* Remaining work as events: EPOLLIN if bytes are to be received, EPOLLOUT if to be sent. */
static uint32_t left_of(const struct end *end)
{
    return (end->in_left != 0 ? (uint32_t)EPOLLIN : 0) |
           (end->out_left != 0 ? (uint32_t)EPOLLOUT : 0);
}

/* With the lock: moves bytes in these directions until EAGAIN. */
static void move_bytes(struct end *end, uint32_t directions)
{
    while ((directions & EPOLLOUT) != 0 && end->out_left != 0) {
        ssize_t n = send(end->fd, end->out, end->out_left, MSG_NOSIGNAL);
        if (n < 0) {
            CHECK(errno == EAGAIN);
            break;
        }
        end->out += n;
        end->out_left -= (size_t)n;
    }
    while ((directions & EPOLLIN) != 0 && end->in_left != 0) {
        size_t piece = end->in_left < 65536 ? end->in_left : 65536;
        ssize_t n = recv(end->fd, end->in, piece, 0);
        if (n < 0) {
            CHECK(errno == EAGAIN);
            break;
        }
        CHECK(n > 0);
        end->in += n;
        end->in_left -= (size_t)n;
    }
}

static void control(struct end *end, int op, uint32_t events)
{
    struct epoll_event event = {.events = events, .data = {.fd = end->fd}};
    for (unsigned i = 0; i < POOL_THREADS && (i == 0 || end->epfds[i] != end->epfds[0]); i++) {
        CHECK(epoll_ctl(end->epfds[i], op, end->fd, &event) == 0);
    }
}

/* With the lock, before a thread waits in the set: a level-triggered loop registers the events that
 * it waits for, and a one-shot loop rearms them. */
static void ask_again(struct end *end)
{
    uint32_t events = end->loop->events & left_of(end);
    if (end->loop->trigger == LEVEL || (end->loop->trigger == ONESHOT && events != 0)) {
        control(end, EPOLL_CTL_MOD,
                events | (end->loop->trigger == ONESHOT ? (uint32_t)EPOLLONESHOT : 0));
    }
}

static void wait_in_set(int epfd)
{
    struct epoll_event events[4];
    int n;
    do {
        n = epoll_wait(epfd, events, 4, -1);
    } while (n == 0 || (n < 0 && errno == EINTR));
    CHECK(n > 0);
}

static void *poll_for_others(void *context)
{
    struct end *end = context;
    for (;;) {
        wait_in_set(end->epfds[0]);
        pthread_mutex_lock(&end->lock);
        if (end->loop->trigger == LEVEL) {
            control(end, EPOLL_CTL_MOD,
                    0); /* until the other thread has moved the available bytes */
        }
        pthread_mutex_unlock(&end->lock);
        sem_post(&end->news);
    }
    return NULL;
}

struct worker {
    struct end *end;
    int epfd;
};

static void *work_in_pool(void *context)
{
    const struct worker *worker = context;
    struct end *end = worker->end;
    for (;;) {
        wait_in_set(worker->epfd);
        pthread_mutex_lock(&end->lock);
        move_bytes(end, end->loop->events);
        ask_again(end);
        if (left_of(end) == 0) {
            pthread_cond_signal(&end->done);
        }
        pthread_mutex_unlock(&end->lock);
    }
    return NULL;
}

/* Waits in the set for the registered directions, and by poll() on the socket for the others. */
static void wait_here(struct end *end, uint32_t left)
{
    struct epoll_event events[4];
    uint32_t others = left & ~end->loop->events;
    struct pollfd fds[2] = {{.fd = end->epfds[0], .events = POLLIN},
                            {.fd = end->fd, .events = (short)others}};
    if (others == 0) {
        wait_in_set(end->epfds[0]);
    } else if ((left & end->loop->events) == 0) {
        CHECK(poll(fds + 1, 1, -1) == 1);
    } else {
        CHECK(poll(fds, 2, -1) > 0);
        CHECK(epoll_wait(end->epfds[0], events, 4, 0) >= 0);
    }
}

static void exchange_alone(struct end *end)
{
    for (;;) {
        pthread_mutex_lock(&end->lock);
        move_bytes(end, EPOLLIN | EPOLLOUT);
        ask_again(end);
        pthread_mutex_unlock(&end->lock);
        uint32_t left = left_of(end);
        if (left == 0) {
            break;
        }
        if (end->loop->who == SAME) {
            wait_here(end, left);
        } else if ((left & ~end->loop->events) == 0) {
            while (sem_wait(&end->news) != 0) {
            }
        } else {
            struct pollfd pfd = {.fd = end->fd, .events = (short)left};
            CHECK(poll(&pfd, 1, -1) == 1);
        }
    }
}

/* The pool moves bytes in the directions of its events; this thread moves those of the other
 * directions. */
static void exchange_with_pool(struct end *end)
{
    pthread_mutex_lock(&end->lock);
    move_bytes(end, EPOLLIN | EPOLLOUT);
    ask_again(end);
    while (left_of(end) != 0) {
        uint32_t others = left_of(end) & ~end->loop->events;
        if (others == 0) {
            pthread_cond_wait(&end->done, &end->lock);
            continue;
        }
        pthread_mutex_unlock(&end->lock);
        struct pollfd pfd = {.fd = end->fd, .events = (short)others};
        CHECK(poll(&pfd, 1, -1) == 1);
        pthread_mutex_lock(&end->lock);
        move_bytes(end, others);
    }
    pthread_mutex_unlock(&end->lock);
}

static void exchange(struct end *end, const unsigned char *out, size_t out_bytes, unsigned char *in,
                     size_t in_bytes)
{
    pthread_mutex_lock(&end->lock);
    end->out = out;
    end->out_left = out_bytes;
    end->in = in;
    end->in_left = in_bytes;
    pthread_mutex_unlock(&end->lock);
    if (end->loop->who == POOL) {
        exchange_with_pool(end);
    } else {
        exchange_alone(end);
    }
}

static void start_thread(void *(*run)(void *), void *context)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, context) == 0);
    pthread_detach(thread);
}

static void start_end(struct end *end, const struct loop *loop, int fd)
{
    static struct worker workers[POOL_THREADS];
    *end = (struct end){.loop = loop, .fd = fd};
    pthread_mutex_init(&end->lock, NULL);
    pthread_cond_init(&end->done, NULL);
    sem_init(&end->news, 0, 0);
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    bool many = loop->trigger == EXCLUSIVE && loop->who == POOL;
    for (unsigned i = 0; i < POOL_THREADS; i++) {
        end->epfds[i] = i == 0 || many ? epoll_create1(EPOLL_CLOEXEC) : end->epfds[0];
        CHECK(end->epfds[i] >= 0);
    }
    uint32_t how[] = {0, EPOLLET, EPOLLONESHOT, (uint32_t)EPOLLEXCLUSIVE | (uint32_t)EPOLLET};
    bool edges = loop->trigger == EDGE || loop->trigger == EXCLUSIVE;
    control(end, EPOLL_CTL_ADD, how[loop->trigger] | (edges ? loop->events : 0));
    if (loop->who == POLLER) {
        start_thread(poll_for_others, end);
    }
    for (unsigned i = 0; i < POOL_THREADS && loop->who == POOL; i++) {
        workers[i] = (struct worker){.end = end, .epfd = end->epfds[i]};
        start_thread(work_in_pool, &workers[i]);
    }
}

/* --- one loop -------------------------------------------------------------------------------- */

static void fill(unsigned char *data, size_t bytes, unsigned seed)
{
    uint32_t x = seed * 2654435761u + 1;
    for (size_t i = 0; i < bytes; i++) {
        x = x * 1664525u + 1013904223u;
        data[i] = (unsigned char)(x >> 24);
    }
}

/* Runs all rounds of one end. Returns the longest round, in milliseconds. */
static double run_end(const struct loop *loop, int fd, bool begins)
{
    static unsigned char out[MESSAGE_BYTES_MAX];
    static unsigned char in[MESSAGE_BYTES_MAX];
    static struct end end; /* its threads run until the process ends */
    double longest = 0;
    size_t answer = loop->pattern == ONE ? 1 : loop->bytes;
    fill(out, loop->bytes, 1);
    start_end(&end, loop, fd);
    for (unsigned i = 0; i < loop->rounds; i++) {
        double begin = now_ms();
        if (loop->pattern == DUPLEX) {
            exchange(&end, out, loop->bytes, in, loop->bytes);
        } else if (begins || loop->pattern == CROSS) {
            exchange(&end, out, loop->bytes, NULL, 0);
            exchange(&end, NULL, 0, in, answer);
        } else {
            exchange(&end, NULL, 0, in, loop->bytes);
            exchange(&end, out, answer, NULL, 0);
        }
        double took = now_ms() - begin;
        longest = took > longest ? took : longest;
        size_t got = begins ? answer : loop->bytes;
        CHECK(memcmp(in, out, got) == 0);
        memset(in, 0, got);
    }
    return longest;
}

static void connect_ends(int *ret_listen_fd, struct sockaddr_in *ret_addr)
{
    socklen_t bytes = sizeof(*ret_addr);
    *ret_listen_fd = socket(AF_INET, SOCK_STREAM, 0);
    *ret_addr = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    CHECK(bind(*ret_listen_fd, (struct sockaddr *)ret_addr, bytes) == 0);
    CHECK(listen(*ret_listen_fd, 1) == 0);
    CHECK(getsockname(*ret_listen_fd, (struct sockaddr *)ret_addr, &bytes) == 0);
}

static void end_with_parent(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
}

/* Runs both ends, in this process and in a child, and writes the longest round to `result`. */
static void run_both(const struct loop *loop, int result)
{
    struct sockaddr_in addr;
    int listen_fd, fd, on = 1, status;
    connect_ends(&listen_fd, &addr);
    pid_t parent = getpid();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        end_with_parent(parent);
        fd = accept(listen_fd, NULL, NULL);
    } else {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    }
    CHECK(fd >= 0);
    close(listen_fd);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    double longest = run_end(loop, fd, pid != 0);
    if (pid == 0) {
        _exit(0);
    }
    CHECK(write(result, &longest, sizeof(longest)) == sizeof(longest));
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    _exit(0);
}

static void name_of(const struct loop *loop, char *name, size_t bytes)
{
    snprintf(name, bytes, "%s-%s%s-%s-%s-%zu", trigger_names[loop->trigger],
             (loop->events & EPOLLIN) != 0 ? "in" : "", (loop->events & EPOLLOUT) != 0 ? "out" : "",
             who_names[loop->who], pattern_names[loop->pattern], loop->bytes);
}

/* Returns the longest round in milliseconds, or -1 when the loop failed; *ret_why is the reason. */
static double run_loop(const struct loop *loop, const char **ret_why)
{
    int pipe_fds[2], status;
    double longest = -1;
    fflush(NULL);
    CHECK(pipe(pipe_fds) == 0);
    pid_t parent = getpid();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        end_with_parent(parent);
        run_both(loop, pipe_fds[1]);
    }
    close(pipe_fds[1]);
    struct pollfd pfd = {.fd = pipe_fds[0], .events = POLLIN};
    *ret_why = "hangs";
    if (poll(&pfd, 1, HANG_S * 1000) > 0 &&
        read(pipe_fds[0], &longest, sizeof(longest)) != sizeof(longest)) {
        *ret_why = "fails";
        longest = -1;
    }
    if (longest < 0) {
        kill(pid, SIGKILL);
    }
    close(pipe_fds[0]);
    CHECK(waitpid(pid, &status, 0) == pid);
    return longest;
}

/* --- the matrix ------------------------------------------------------------------------------ */

static bool is_wanted(const struct loop *loop, char **names)
{
    char name[80];
    name_of(loop, name, sizeof(name));
    for (char **it = names; *it != NULL; it++) {
        if (strstr(name, *it) != NULL) {
            return true;
        }
    }
    return *names == NULL;
}

static bool try_loop(const struct loop *loop, double stall_ms)
{
    char name[80];
    const char *why;
    double longest = 0;
    name_of(loop, name, sizeof(name));
    for (int i = 0; i < TRIES; i++) {
        longest = run_loop(loop, &why);
        if (longest < 0) {
            printf("FAILED %s: %s\n", name, why);
            return false;
        }
        if (longest < stall_ms) {
            return true;
        }
        printf("%s: a round took %.1f ms\n", name, longest);
    }
    printf("FAILED %s: stalls\n", name);
    return false;
}

static unsigned run_matrix(unsigned rounds, double stall_ms, char **names, unsigned *ret_failed)
{
    static const uint32_t directions[] = {EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT};
    static const struct {
        size_t bytes;
        unsigned rounds;
    } sizes[] = {{64, 200}, {16384, 60}, {1u << 20, 12}, {MESSAGE_BYTES_MAX, 2}};
    unsigned run = 0;
    for (unsigned i = 0; i < 4 * 3 * 3 * 4 * 4; i++) {
        struct loop loop = {.trigger = (enum trigger)(i % 4),
                            .events = directions[i / 4 % 3],
                            .who = (enum who)(i / 12 % 3),
                            .pattern = (enum pattern)(i / 36 % 4),
                            .bytes = sizes[i / 144].bytes,
                            .rounds = rounds * sizes[i / 144].rounds};
        bool fits = loop.pattern != CROSS || loop.bytes <= CROSS_BYTES_MAX;
        if (fits && is_wanted(&loop, names)) {
            run++;
            *ret_failed += try_loop(&loop, stall_ms) ? 0 : 1;
        }
    }
    return run;
}

int main(int argc, char **argv)
{
    unsigned rounds = 1, failed = 0;
    double stall_ms = 100;
    int option;
    while ((option = getopt(argc, argv, "r:s:")) != -1) {
        if (option == 'r') {
            rounds = (unsigned)atoi(optarg);
        } else if (option == 's') {
            stall_ms = atof(optarg);
        } else {
            return 2;
        }
    }
    unsigned run = run_matrix(rounds, stall_ms, argv + optind, &failed);
    printf("%u event loops, %u failed\n", run, failed);
    return run != 0 && failed == 0 ? 0 : 1;
}
