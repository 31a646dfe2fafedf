/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The cost of an aperture, beside the cost of its port: an 8-byte put against a bare store and
 * fence, and round trips against those of a bare pipe, all on emulated ports like pex.
 *
 *   bench_aperture [--json FILE]
 *   bench_aperture serve ADDRESS PORT     answers on a TCP connection, for `ping`
 *   bench_aperture ping ADDRESS PORT      round trips of 8 bytes: prints the time of one, in ns
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/types.h"
#include "bench/stats.h"
#include "core/pipe.h"
#include "core/port_target.h"
#include "host/host.h"
#include "host/rundir.h"
#include "port/emu/emu.h"
#include "port/emu/like.h"
#include "viaduct/viaduct.h"

#define LIKE "pex"
#define ROUNDS 300u
#define RUNS_MAX 4u
#define OPS 25u
#define TRIES 20000u
#define INBOX_BYTES (256u << 10)
#define SEGMENT_BYTES (1u << 20)
#define QUEUE 0u

static _Noreturn void die(const char *attempt, int rc)
{
    fprintf(stderr, "bench_aperture: %s: %s\n", attempt, strerror(-rc));
    exit(1);
}

static void need(int rc, const char *attempt)
{
    if (rc < 0) {
        die(attempt, rc);
    }
}

struct run {
    void (*op)(void *ctx);
    void *ctx;
    double ns; /* of one operation */
};

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return left < right ? -1 : left > right;
}

/* Makes all runs in turn, in many short rounds, so that other load of the machine affects all
 * alike. The time of a run is that of its fast rounds. */
static void time_runs(struct run *runs, unsigned count, unsigned ops)
{
    static double ns[RUNS_MAX][ROUNDS];
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < count; i++) {
            uint64_t start_ns = via_bench_now_ns();
            for (unsigned k = 0; k < ops; k++) {
                runs[i].op(runs[i].ctx);
            }
            ns[i][round] = (double)(via_bench_now_ns() - start_ns) / ops;
        }
    }
    for (unsigned i = 0; i < count; i++) {
        qsort(ns[i], ROUNDS, sizeof(ns[i][0]), by_value);
        runs[i].ns = ns[i][ROUNDS / 10];
    }
}

static double time_of(void (*op)(void *ctx), void *ctx, unsigned ops)
{
    struct run run = {.op = op, .ctx = ctx};
    time_runs(&run, 1, ops);
    return run.ns;
}

/* --- the port --------------------------------------------------------------------------------- */

struct ports {
    struct via_port *end[2];
    uint64_t number;
};

static void open_ports(struct ports *ports, const char *directory)
{
    char path[96];
    struct via_error err = {0};
    snprintf(path, sizeof(path), "%s/bare.sock", directory);
    for (unsigned side = 0; side < 2; side++) {
        struct via_emu_options options = {.path = path,
                                          .side = side,
                                          .host = (uint16_t)side,
                                          .inbox_bytes = INBOX_BYTES,
                                          .bell_fd = -1,
                                          .like = via_emu_like_find(LIKE)};
        need(via_emu_port_open(&options, &ports->end[side], &err), err.text);
    }
    for (unsigned i = 0; i < 20; i++) {
        uint64_t deadline_ns;
        for (unsigned side = 0; side < 2; side++) {
            via_emu_port_service(ports->end[side], via_bench_now_ns(), &deadline_ns);
        }
    }
    if (!ports->end[0]->ops->link_is_up(ports->end[0])) {
        die("bring the ports up", -ENOLINK);
    }
}

static void store_and_fence(void *ctx)
{
    struct ports *ports = ctx;
    struct via_port *port = ports->end[0];
    ports->number++;
    port->ops->commit(port, QUEUE, 0, &ports->number, sizeof(ports->number));
    int rc = port->ops->fence_start(port, QUEUE);
    while (rc == 0) {
        rc = port->ops->fence_poll(port, QUEUE);
    }
    need(rc, "fence");
}

/* A pipe each way, and a thread that answers. */
#define SLOTS 64u
static const struct via_pipe_geometry geometry = {
    .slots_count = SLOTS, .data_bytes = 8192, .body_bytes_max = 1024};

struct pipe_end {
    struct via_port *port;
    struct via_pipe_writer writer;
    struct via_pipe_reader reader;
    uint32_t data_ends[SLOTS];
    uint64_t number;
    const _Atomic bool *end;
};

/* In each inbox: a line for credits, then the pipe. */
static void pipe_end_init(struct pipe_end *end, struct via_port *port, const _Atomic bool *over)
{
    struct via_pipe_target target = via_port_target(port, QUEUE, 64);
    struct via_pipe_target credit = via_port_target(port, QUEUE, 0);
    *end = (struct pipe_end){.port = port, .end = over};
    via_pipe_writer_init(&end->writer, &geometry, &target,
                         (const _Atomic uint64_t *)(const void *)port->inbox, end->data_ends, 1);
    via_pipe_reader_init(&end->reader, &geometry, port->inbox + 64, &credit, 1);
}

static void pipe_send(struct pipe_end *end)
{
    while (via_pipe_send(&end->writer, &end->number, sizeof(end->number), NULL, 0) != 0) {
        (void)end->port->ops->events(end->port, VIA_PORT_EVENT_DOORBELL(QUEUE));
    }
    end->port->ops->flush(end->port, QUEUE);
}

static bool pipe_take(struct pipe_end *end)
{
    struct via_pipe_record record;
    (void)end->port->ops->events(end->port, VIA_PORT_EVENT_DOORBELL(QUEUE));
    if (via_pipe_take(&end->reader, &record) != 1) {
        return false;
    }
    memcpy(&end->number, record.head, sizeof(end->number));
    via_pipe_release(&end->reader, 1);
    return true;
}

static void *answer(void *argument)
{
    struct pipe_end *end = argument;
    while (!atomic_load_explicit(end->end, memory_order_relaxed)) {
        if (pipe_take(end)) {
            pipe_send(end);
        }
    }
    return NULL;
}

static void pipe_round_trip(void *ctx)
{
    struct pipe_end *end = ctx;
    pipe_send(end);
    while (!pipe_take(end)) {
    }
}

static double bare_pipe_ns(struct ports *ports)
{
    static struct pipe_end ends[2];
    static _Atomic bool over;
    pthread_t thread;
    for (unsigned side = 0; side < 2; side++) {
        pipe_end_init(&ends[side], ports->end[side], &over);
    }
    need(-pthread_create(&thread, NULL, answer, &ends[1]), "thread");
    double ns = time_of(pipe_round_trip, &ends[0], OPS);
    over = true;
    pthread_join(thread, NULL);
    return ns;
}

/* --- hosts ------------------------------------------------------------------------------------ */

struct hosts {
    struct via_host *host[2];
    struct via_attach *attach[2];
    struct via_segment *segment[2];
    struct via_segment *frames_only; /* not readable, so no slice shows it */
    struct via_remote *remote[2];    /* remotes of the other host's segment */
    struct via_remote *by_frames;
    uint64_t number;
};

static void open_host(struct hosts *hosts, unsigned id, const char *directory)
{
    struct via_rundir_path path;
    struct via_error err = {0};
    struct via_host_options options;
    via_host_options_init(&options);
    need(via_rundir_link_path(directory, 0, 1, 0, &path, &err), err.text);
    char description[160];
    snprintf(description, sizeof(description), "emu:%s,side=%u,like=%s", path.text, id, LIKE);
    struct via_host_link link = {.description = description, .peer = (uint16_t)(1 - id)};
    options.host = (uint16_t)id;
    options.rundir = directory;
    options.links = &link;
    options.links_count = 1;
    need(via_host_open(&options, &hosts->host[id], &err), err.text);
    need(via_host_start(hosts->host[id], &err), err.text);
}

static void attach_to(struct hosts *hosts, unsigned id, const char *directory)
{
    struct via_attach_options options = {
        .size = sizeof(options), .rundir = directory, .host = (int)id};
    need(via_attach_open(&options, &hosts->attach[id]), "attach");
    need(via_segment_new(hosts->attach[id], SEGMENT_BYTES,
                         VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE, &hosts->segment[id]),
         "segment");
}

static struct via_remote *open_remote(struct via_attach *attach, unsigned host,
                                      const struct via_segment *segment)
{
    struct via_remote *remote;
    need(via_remote_open(attach, host, via_segment_handle(segment), SEGMENT_BYTES, &remote),
         "open a remote");
    return remote;
}

static void open_hosts(struct hosts *hosts, const char *directory)
{
    for (unsigned id = 0; id < 2; id++) {
        open_host(hosts, id, directory);
    }
    for (unsigned id = 0; id < 2; id++) {
        attach_to(hosts, id, directory);
    }
    for (unsigned id = 0; id < 2; id++) {
        while (via_attach_hops(hosts->attach[id], 1 - id) != 1) {
            poll(NULL, 0, 1);
        }
        hosts->remote[id] = open_remote(hosts->attach[id], 1 - id, hosts->segment[1 - id]);
    }
    need(via_segment_new(hosts->attach[1], SEGMENT_BYTES, VIADUCT_SEGMENT_WRITE,
                         &hosts->frames_only),
         "segment");
    hosts->by_frames = open_remote(hosts->attach[0], 1, hosts->frames_only);
}

static void close_hosts(struct hosts *hosts)
{
    via_remote_close(hosts->by_frames);
    for (unsigned id = 0; id < 2; id++) {
        via_remote_close(hosts->remote[id]);
    }
    via_segment_free(hosts->frames_only);
    for (unsigned id = 0; id < 2; id++) {
        via_segment_free(hosts->segment[id]);
        via_attach_close(hosts->attach[id]);
    }
    for (unsigned id = 0; id < 2; id++) {
        via_host_close(hosts->host[id]);
    }
}

static void put_word(struct hosts *hosts, struct via_remote *remote)
{
    hosts->number++;
    need(via_remote_put(remote, 0, &hosts->number, sizeof(hosts->number), 0), "put");
}

/* A put through a slice has arrived when the call returns. */
static void wait_for_slices(struct hosts *hosts)
{
    for (unsigned id = 0; id < 2; id++) {
        const volatile uint64_t *word = via_segment_base(hosts->segment[1 - id]);
        unsigned stored = 0;
        for (unsigned i = 0; stored < 10; i++) {
            if (i == TRIES) {
                die("wait for a slice", -ETIMEDOUT);
            }
            put_word(hosts, hosts->remote[id]);
            stored = *word == hosts->number && via_remote_pending(hosts->remote[id]) == 0
                         ? stored + 1
                         : 0;
            need(via_attach_quiet(hosts->attach[id]), "quiet");
            poll(NULL, 0, stored == 0 ? 1 : 0);
        }
    }
}

static void put_by_slice(void *ctx)
{
    struct hosts *hosts = ctx;
    put_word(hosts, hosts->remote[0]);
}

static void put_by_frames(void *ctx)
{
    struct hosts *hosts = ctx;
    put_word(hosts, hosts->by_frames);
    need(via_attach_quiet(hosts->attach[0]), "quiet");
}

/* Two threads that send each other a word in turn. */
struct player {
    struct hosts *hosts;
    unsigned id;
    uint64_t number;
    _Atomic bool over;
};

static void serve(struct player *player)
{
    need(via_remote_put(player->hosts->remote[player->id], 64, &player->number,
                        sizeof(player->number), 0),
         "put");
}

static bool is_there(const struct player *player, uint64_t number)
{
    const void *at =
        (const unsigned char *)via_segment_base(player->hosts->segment[player->id]) + 64;
    const _Atomic uint64_t *word = at;
    return atomic_load_explicit(word, memory_order_acquire) == number;
}

static void *play(void *argument)
{
    struct player *player = argument;
    for (uint64_t number = 1; !atomic_load_explicit(&player->over, memory_order_relaxed);) {
        if (is_there(player, number)) {
            player->number = number++;
            serve(player);
        }
    }
    return NULL;
}

static void word_round_trip(void *ctx)
{
    struct player *player = ctx;
    player->number++;
    serve(player);
    while (!is_there(player, player->number)) {
    }
}

static double words_ns(struct hosts *hosts)
{
    static struct player players[2];
    pthread_t thread;
    for (unsigned id = 0; id < 2; id++) {
        players[id] = (struct player){.hosts = hosts, .id = id};
    }
    need(-pthread_create(&thread, NULL, play, &players[1]), "thread");
    double ns = time_of(word_round_trip, &players[0], OPS);
    players[1].over = true;
    pthread_join(thread, NULL);
    return ns;
}

/* --- TCP -------------------------------------------------------------------------------------- */

static struct sockaddr_in address_of(char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)strtoul(argv[3], NULL, 10))};
    if (inet_pton(AF_INET, argv[2], &at.sin_addr) != 1) {
        die(argv[2], -EINVAL);
    }
    return at;
}

static void no_delay(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static int tcp_serve(char **argv)
{
    struct sockaddr_in at = address_of(argv);
    uint64_t word;
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(fd, 1) != 0) {
        die("listen", -errno);
    }
    int peer = accept(fd, NULL, NULL);
    no_delay(peer);
    while (recv(peer, &word, sizeof(word), MSG_WAITALL) == sizeof(word)) {
        (void)!send(peer, &word, sizeof(word), MSG_NOSIGNAL);
    }
    return 0;
}

static void tcp_round_trip(void *ctx)
{
    int fd = *(const int *)ctx;
    uint64_t word = 1;
    if (send(fd, &word, sizeof(word), MSG_NOSIGNAL) != sizeof(word) ||
        recv(fd, &word, sizeof(word), MSG_WAITALL) != sizeof(word)) {
        die("round trip", -EPIPE);
    }
}

static int tcp_ping(char **argv)
{
    struct sockaddr_in at = address_of(argv);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0) {
        die("connect", -errno);
    }
    no_delay(fd);
    (void)time_of(tcp_round_trip, &fd, OPS);
    printf("%.0f\n", time_of(tcp_round_trip, &fd, OPS));
    close(fd);
    return 0;
}

/* --- all -------------------------------------------------------------------------------------- */

struct figures {
    double bare_put_ns, put_ns, frames_put_ns, bare_pipe_ns, words_ns;
};

static void measure(struct figures *figures)
{
    char directory[] = "/tmp/viaduct-bench-XXXXXX";
    struct ports ports = {0};
    struct hosts hosts = {0};
    if (mkdtemp(directory) == NULL) {
        die("mkdtemp", -errno);
    }
    open_ports(&ports, directory);
    open_hosts(&hosts, directory);
    wait_for_slices(&hosts);
    struct run puts[] = {
        {.op = store_and_fence, .ctx = &ports},
        {.op = put_by_slice, .ctx = &hosts},
    };
    time_runs(puts, VIA_ARRAY_COUNT(puts), OPS);
    figures->bare_put_ns = puts[0].ns;
    figures->put_ns = puts[1].ns;
    figures->frames_put_ns = time_of(put_by_frames, &hosts, OPS / 5);
    figures->bare_pipe_ns = bare_pipe_ns(&ports);
    figures->words_ns = words_ns(&hosts);
    close_hosts(&hosts);
    for (unsigned side = 0; side < 2; side++) {
        ports.end[1 - side]->ops->close(ports.end[1 - side]);
    }
    rmdir(directory);
}

static int write_json(const char *file, const struct figures *figures)
{
    FILE *out = fopen(file, "w");
    if (out == NULL) {
        perror(file);
        return 1;
    }
    fprintf(out,
            "{\"like\": \"%s\", \"bare_put_ns\": %.0f, \"put_ns\": %.0f, \"frames_put_ns\": %.0f,"
            " \"bare_pipe_ns\": %.0f, \"words_ns\": %.0f}\n",
            LIKE, figures->bare_put_ns, figures->put_ns, figures->frames_put_ns,
            figures->bare_pipe_ns, figures->words_ns);
    return fclose(out) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "serve") == 0) {
        return tcp_serve(argv);
    }
    if (argc == 4 && strcmp(argv[1], "ping") == 0) {
        return tcp_ping(argv);
    }
    const char *json = via_bench_options(argc, argv, "puts through apertures, beside a bare port");
    struct figures figures;
    measure(&figures);
    printf("ports like %s\n\n%-36s %10s %8s\n", LIKE, "", "ns", "ratio");
    printf("%-36s %10.0f %8s\n", "bare store of 8 bytes and fence", figures.bare_put_ns, "1");
    printf("%-36s %10.0f %8.2f\n", "put of 8 bytes by a slice", figures.put_ns,
           figures.put_ns / figures.bare_put_ns);
    printf("%-36s %10.0f %8.2f\n", "put of 8 bytes by frames", figures.frames_put_ns,
           figures.frames_put_ns / figures.bare_put_ns);
    printf("%-36s %10.0f %8s\n", "round trip by a bare pipe", figures.bare_pipe_ns, "1");
    printf("%-36s %10.0f %8.2f\n", "round trip of words by slices", figures.words_ns,
           figures.words_ns / figures.bare_pipe_ns);
    return json != NULL ? write_json(json, &figures) : 0;
}
