/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_PERF_H
#define VIA_CLI_PERF_H

#include <stdatomic.h>
#include <sys/types.h>

#include "cli/fabric.h"
#include "cli/perf_wire.h"
#include "viaduct/viaduct.h"

/*
 * viaduct perf: two processes, one on each of two hosts (for barriers one on every host), which
 * measure operations of the client library. This process is the near one, and takes the times.
 *
 *   perf.c         options, the table
 *   perf_measure.c rounds, medians, comparisons with memcpy
 *   perf_peer.c    the processes on the other hosts
 *   perf_wire.c    the messages between the processes
 *   perf_device.c  viaduct perf device: rates of devices by size, and comparisons
 *   perf_target.c  its targets: a BAR, a file
 *   perf_engine.c  the switch's DMA
 *   perf_gpu.c     a GPU
 *   perf_series.c  its rows as a file and as a table
 *   perf_plot.c    the same as a chart
 *   perf_pio.c     viaduct perf pio: the table of src/tune
 *   perf_shmem.c   viaduct perf shmem, which is a separate program
 */
#define VIA_PERF_SIZES_MAX 32u
#define VIA_PERF_CHANNELS_MAX 14u
#define VIA_PERF_SIZE_MAX (UINT64_C(1) << 30)
/* Every step takes less time than this; after this time the other process counts as hanging. */
#define VIA_PERF_ANSWER_NS (10 * VIA_SEC_NS)

enum via_perf_test {
    VIA_PERF_PINGPONG,
    VIA_PERF_PUT,
    VIA_PERF_GET,
    VIA_PERF_BARRIER,
};

struct via_perf {
    enum via_perf_test test;
    struct via_fabric fabric;
    unsigned from;
    unsigned to;
    uint16_t hosts[VIA_TOPOLOGY_HOST_MAX]; /* barrier: ascending, `from` among them */
    unsigned hosts_count;
    uint64_t sizes[VIA_PERF_SIZES_MAX];
    unsigned sizes_count;
    int channels[VIA_PERF_CHANNELS_MAX]; /* -1 = the host's choice */
    unsigned channels_count;
    /* put, get: bytes of memory over which the operations are spread; 0: always the same place */
    uint64_t spread;
    bool alone;          /* put, get: without a memcpy for comparison */
    uint64_t span_ns;    /* time to measure one row */
    uint64_t iterations; /* operations of one row; 0: limited by time */
};

/* All times are per operation: a round trip, a put, a get, a barrier. */
struct via_perf_row {
    uint64_t bytes;
    int hops;
    bool direct; /* at the end of the row */
    unsigned rounds;
    uint64_t operations;
    double ns; /* medians over the rounds */
    double ns_min;
    double ns_max;
    double yardstick_ns; /* time of the comparison; 0: none */
    double ratio;        /* of speed: yardstick_ns / ns, round by round */
};

/* Measures one row for each size. */
int via_perf_measure(struct via_perf *perf, struct via_perf_row *ret_rows,
                     struct via_error *err) VIA_MUST_CHECK;

/* Replaces this process by the script that measures OpenSHMEM. Returns the exit code only on
 * failure. */
int via_perf_shmem(const char *name, char **argv);

/* Parses "64K", up to VIA_PERF_SIZE_MAX. 0 or -EINVAL. */
VIA_MUST_CHECK int via_perf_size(const char *text, uint64_t *ret_bytes);
/* Parses "0.5". 0 or -EINVAL. */
VIA_MUST_CHECK int via_perf_seconds(const char *text, uint64_t *ret_ns);

/* viaduct perf device; argv[0]: the name for messages. Returns the exit code. */
int via_perf_device(int argc, char **argv);

/* viaduct perf pio; argv[0]: the name for messages. Returns the exit code. */
int via_perf_pio(int argc, char **argv);

/* --- the other processes ---------------------------------------------------------------------- */

/* A cache line in each direction, shared after fork(): for the cost of a word without Viaduct. */
struct via_perf_lines {
    _Alignas(64) _Atomic uint64_t ping;
    _Alignas(64) _Atomic uint64_t pong;
};

struct via_perf_peer {
    pid_t pid; /* 0: not started */
    int fd;
    unsigned host;
    uint64_t handle; /* of its segment */
};

/* Forks a process that attaches to `host`, with a segment of `bytes` unless that is 0. The process
 * ends when its socket is closed. */
int via_perf_peer_start(const struct via_perf *perf, unsigned host, uint64_t bytes,
                        struct via_perf_lines *lines, struct via_perf_peer *peer,
                        struct via_error *err) VIA_MUST_CHECK;
void via_perf_peer_end(struct via_perf_peer *peer);

int via_perf_peer_send(const struct via_perf_peer *peer, const struct via_perf_order *order,
                       struct via_error *err) VIA_MUST_CHECK;
/* Waits until the order has been carried out. */
int via_perf_peer_wait(struct via_perf_peer *peer, struct via_error *err) VIA_MUST_CHECK;

int via_perf_attach(const struct via_perf *perf, unsigned host, int channel,
                    struct via_attach **ret_attach) VIA_MUST_CHECK;

/* Waits until *word is `value`. -ETIMEDOUT after VIA_PERF_ANSWER_NS. */
int via_perf_await(const _Atomic uint64_t *word, uint64_t value) VIA_MUST_CHECK;

#endif
