/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A ping-pong between two processes through pipes, beside the bare round trip of a cache line and,
 * with --sockets, calls on a TCP connection, all between the same two processes and in turn: so
 * that a disturbance of the machine affects all of them alike. Run it with the preload library to
 * see what the library adds to its pipes.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/pause.h"
#include "bench/stats.h"
#include "core/pipe.h"

#define PAIRS 41
#define ROUND_TRIPS 20000u
#define WARM_UP 2000u
#define SLOTS 64u
#define DATA_BYTES 8192u
#define BYTES_MAX 4096u
#define HEAD_BYTES_MAX 48u /* fits in the head of a record, in sockets, too */
#define EPOCH 1u

struct line {
    _Alignas(64) _Atomic uint64_t word;
};

/* Memory that the two processes share. A pipe's memory is 64 bytes of want line, the slots, the
 * data. */
struct shared {
    struct line ping, pong;
    struct line credit[2];
    _Alignas(64) unsigned char pipe[2][64 + SLOTS * 64 + DATA_BYTES];
};

struct end {
    struct via_pipe_writer writer;
    struct via_pipe_reader reader;
    uint32_t data_ends[SLOTS];
    struct shared *shared;
    size_t bytes;
    int fd; /* a connection to the other process, -1: not measured */
    uint64_t number;
    _Alignas(64) unsigned char message[BYTES_MAX];
};

static void end_init(struct end *end, struct shared *shared, unsigned mine)
{
    struct via_pipe_geometry geometry = {
        .slots_count = SLOTS, .data_bytes = DATA_BYTES, .body_bytes_max = BYTES_MAX};
    struct via_pipe_target out = {.direct = shared->pipe[1 - mine]};
    struct via_pipe_target credit = {.direct = (unsigned char *)&shared->credit[1 - mine]};
    via_pipe_writer_init(&end->writer, &geometry, &out, &shared->credit[mine].word, end->data_ends,
                         EPOCH);
    via_pipe_reader_init(&end->reader, &geometry, shared->pipe[mine], &credit, EPOCH);
    end->shared = shared;
}

static _Noreturn void die(const char *attempt)
{
    fprintf(stderr, "bench_pipe: %s: %s\n", attempt, strerror(errno));
    exit(1);
}

/* --- the three paths -------------------------------------------------------------------------- */

static void line_wait(struct line *line, uint64_t value)
{
    while (atomic_load_explicit(&line->word, memory_order_acquire) != value) {
        via_cpu_pause();
    }
}

static void line_request(struct end *end)
{
    end->number++;
    atomic_store_explicit(&end->shared->ping.word, end->number, memory_order_release);
    line_wait(&end->shared->pong, end->number);
}

static void line_answer(struct end *end)
{
    end->number++;
    line_wait(&end->shared->ping, end->number);
    atomic_store_explicit(&end->shared->pong.word, end->number, memory_order_release);
}

static void pipe_send(struct end *end)
{
    bool head = end->bytes <= HEAD_BYTES_MAX;
    while (via_pipe_send(&end->writer, end->message, head ? end->bytes : 0, end->message,
                         head ? 0 : end->bytes) != 0) {
        via_cpu_pause();
    }
    /* No thread sleeps here, but the check runs after each send, as in production. */
    if (via_pipe_take_reader_ring(&end->writer)) {
        abort();
    }
}

static void pipe_receive(struct end *end)
{
    struct via_pipe_record record;
    while (via_pipe_take(&end->reader, &record) == 0) {
        via_cpu_pause();
    }
    memcpy(end->message, record.body_bytes != 0 ? record.body : record.head, end->bytes);
    via_pipe_release(&end->reader, 1);
}

static void pipe_request(struct end *end)
{
    pipe_send(end);
    pipe_receive(end);
}

static void pipe_answer(struct end *end)
{
    pipe_receive(end);
    pipe_send(end);
}

static void socket_send(struct end *end)
{
    if (send(end->fd, end->message, end->bytes, 0) != (ssize_t)end->bytes) {
        die("send");
    }
}

static void socket_receive(struct end *end)
{
    for (size_t done = 0; done < end->bytes;) {
        ssize_t n = recv(end->fd, end->message + done, end->bytes - done, 0);
        if (n <= 0) {
            die("recv");
        }
        done += (size_t)n;
    }
}

static void socket_request(struct end *end)
{
    socket_send(end);
    socket_receive(end);
}

static void socket_answer(struct end *end)
{
    socket_receive(end);
    socket_send(end);
}

static const struct way {
    const char *name;
    void (*request)(struct end *end);
    void (*answer)(struct end *end);
} ways[] = {{"bare cache line", line_request, line_answer},
            {"pipe", pipe_request, pipe_answer},
            {"TCP sockets", socket_request, socket_answer}};
#define WAYS (sizeof(ways) / sizeof(*ways))
#define LINE 0
#define PIPE 1
#define SOCKETS 2

/* --- the two processes ------------------------------------------------------------------------ */

static unsigned ways_wanted(const struct end *end)
{
    return end->fd >= 0 ? WAYS : SOCKETS;
}

/* The echoing process: it uses the paths in the order in which the other process does. */
static void echo(struct end *end)
{
    for (unsigned pair = 0; pair < PAIRS; pair++) {
        for (unsigned way = 0; way < ways_wanted(end); way++) {
            for (unsigned i = 0; i < WARM_UP + ROUND_TRIPS; i++) {
                ways[way].answer(end);
            }
        }
    }
}

static double round_trip_ns(struct end *end, const struct way *way)
{
    uint64_t start = 0;
    for (unsigned i = 0; i < WARM_UP + ROUND_TRIPS; i++) {
        if (i == WARM_UP) {
            start = via_bench_now_ns();
        }
        memcpy(end->message, &i, sizeof(i));
        way->request(end);
        if (memcmp(end->message, &i, sizeof(i)) != 0) {
            fprintf(stderr, "bench_pipe: %s: receive: not what was sent\n", way->name);
            exit(1);
        }
    }
    return (double)(via_bench_now_ns() - start) / ROUND_TRIPS;
}

static void no_delay(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static int listen_anywhere(struct sockaddr_in *ret_at)
{
    socklen_t bytes = sizeof(*ret_at);
    *ret_at =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)ret_at, bytes) != 0 || listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)ret_at, &bytes) != 0) {
        die("listen");
    }
    return fd;
}

static int connect_to(const struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)at, sizeof(*at)) != 0) {
        die("connect");
    }
    no_delay(fd);
    return fd;
}

static int accept_one(int listen_fd)
{
    int fd = accept(listen_fd, NULL, NULL);
    if (fd < 0) {
        die("accept");
    }
    no_delay(fd);
    return fd;
}

/* --- results ---------------------------------------------------------------------------------- */

struct figures {
    double ns[WAYS][PAIRS];
    double ratio[WAYS][PAIRS]; /* ratios of pipe to line, and of sockets to pipe */
};

static void measure(struct end *end, struct figures *ret_figures)
{
    for (unsigned pair = 0; pair < PAIRS; pair++) {
        for (unsigned way = 0; way < ways_wanted(end); way++) {
            ret_figures->ns[way][pair] = round_trip_ns(end, &ways[way]);
            ret_figures->ratio[way][pair] =
                ret_figures->ns[way][pair] / ret_figures->ns[way == SOCKETS ? PIPE : LINE][pair];
        }
    }
}

static int write_json(const char *file, const struct end *end, const double *ns,
                      const double *times)
{
    FILE *out = fopen(file, "w");
    if (out == NULL) {
        fprintf(stderr, "bench_pipe: %s: open: %s\n", file, strerror(errno));
        return 1;
    }
    fprintf(out, "{\"bytes\": %zu, \"cache_line_ns\": %.1f, \"pipe_ns\": %.1f, \"ratio\": %.3f",
            end->bytes, ns[LINE], ns[PIPE], times[PIPE]);
    if (end->fd >= 0) {
        fprintf(out, ", \"sockets_ns\": %.1f, \"sockets_ratio\": %.3f", ns[SOCKETS],
                times[SOCKETS]);
    }
    fprintf(out, ", \"pairs\": %d}\n", PAIRS);
    return fclose(out) == 0 ? 0 : 1;
}

static int report(const struct end *end, struct figures *figures, const char *json)
{
    static const char *const against[WAYS] = {"", "lines; target: at most 2.5",
                                              "pipes; target: at most 2"};
    double ns[WAYS], times[WAYS];
    printf("%zu bytes there and back, 2 processes, medians of %d interleaved pairs\n", end->bytes,
           PAIRS);
    for (unsigned way = 0; way < ways_wanted(end); way++) {
        ns[way] = via_bench_median(figures->ns[way], PAIRS);
        times[way] = via_bench_median(figures->ratio[way], PAIRS);
        printf("%-20s %10.1f ns", ways[way].name, ns[way]);
        if (way != LINE) {
            printf("   %.2f %s", times[way], against[way]);
        }
        printf("\n");
    }
    return json == NULL ? 0 : write_json(json, end, ns, times);
}

struct options {
    const char *json;
    size_t bytes;
    bool sockets;
};

static struct options options_of(int argc, char **argv)
{
    struct options options = {.bytes = 8};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--sockets") == 0) {
            options.sockets = true;
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            options.json = argv[++i];
        } else if (strcmp(argv[i], "--size") == 0 && i + 1 < argc) {
            options.bytes = strtoul(argv[++i], NULL, 10);
        } else {
            bool help = strcmp(argv[i], "--help") == 0;
            fprintf(help ? stdout : stderr,
                    "usage: bench_pipe [--json FILE] [--size BYTES] [--sockets]\n"
                    "Ping-pong through pipes against a bare cache line, and TCP sockets against "
                    "pipes.\n");
            exit(help ? 0 : 2);
        }
    }
    if (options.bytes < sizeof(unsigned) || options.bytes > BYTES_MAX) {
        fprintf(stderr, "bench_pipe: --size: 4 to %u\n", BYTES_MAX);
        exit(2);
    }
    return options;
}

int main(int argc, char **argv)
{
    static struct end end;
    static struct figures figures;
    struct options options = options_of(argc, argv);
    if (via_bench_cpus() < 2) {
        fprintf(stderr, "bench_pipe: needs two CPUs: spinning processes on one would measure the "
                        "scheduler\n");
        return 77;
    }
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        die("mmap");
    }
    struct sockaddr_in at;
    int listen_fd = options.sockets ? listen_anywhere(&at) : -1;
    pid_t parent = getpid();
    pid_t child = fork();
    end_init(&end, shared, child == 0);
    via_bench_pin(child == 0);
    end.bytes = options.bytes;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        end.fd = options.sockets ? connect_to(&at) : -1;
        if (getppid() == parent) {
            echo(&end);
        }
        _exit(0);
    }
    end.fd = options.sockets ? accept_one(listen_fd) : -1;
    measure(&end, &figures);
    waitpid(child, NULL, 0);
    return report(&end, &figures, options.json);
}
