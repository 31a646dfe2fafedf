/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_TUNE_PIO_H
#define VIA_TUNE_PIO_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/store.h"
#include "port/driver.h"
#include "vfio/pci.h"

/*
 * The costs of CPU stores, the port's own copies and its DMA engine on the window of a link.
 *
 *   pio_clock.c    the clock that all is measured by
 *   pio_link.c     one end of a link or both, opened without a daemon; or a bare BAR
 *   pio_measure.c  one figure after the other
 */

/* --- pio_clock.c --- */

/* The time stamp counter, calibrated, less what reading it costs (the method of system E); without
 * one the system's clock. */
struct via_pio_clock {
    double ns_per_tick;
    uint64_t cost_ticks;
    bool is_tsc;
};
void via_pio_clock_init(struct via_pio_clock *ret_clock);
uint64_t via_pio_clock_ticks(const struct via_pio_clock *clock);
double via_pio_clock_ns(const struct via_pio_clock *clock, uint64_t from, uint64_t to);

uint64_t via_pio_now_ns(void); /* of the system's monotonic clock */

/* --- pio_link.c --- */

struct via_pio_end {
    const char *text; /* its description; borrowed */
    struct via_link_config config;
    struct via_driver_host host;
    struct via_port *port;
    int bell_fd; /* 0 or -1: none */
};

struct via_pio_link {
    struct via_pio_end ends[2]; /* the first one is measured */
    unsigned ends_count;
    struct via_pci *pci; /* a bare BAR instead; no ends */
    unsigned bar;
    /* Write-combined or memory first. Of a bare BAR one is mapped at a time. */
    struct via_port_view views[2];
    struct via_pci_mapping mapping; /* of a bare BAR */
    unsigned views_count;
    uint64_t window_bytes;
    unsigned char *source; /* what is sent, via_pio_source_bytes; known to the engine */
    pthread_t thread;      /* control thread of the ends */
    bool has_thread;
    bool has_dma;      /* the first end's engine brings bytes to the peer */
    char dma_why[256]; /* why not, although there is one; "": there is none, or it does */
    _Atomic bool stop;
    char directory[64]; /* of an emulated link; "": none */
    char texts[2][128];
};
#define VIA_PIO_SIZE_MAX (1u << 20)
#define VIA_PIO_SOURCE_BYTES (2u * VIA_PIO_SIZE_MAX)

/* Opens the ends that ends_count and their texts name (none: an emulated link of both), and waits
 * until the link is up, at most wait_ns. link is zeroed but for those. */
VIA_MUST_CHECK int via_pio_link_open(struct via_pio_link *link, uint64_t wait_ns,
                                     struct via_error *err);
/* A BAR of a function (which the link takes, also when it fails), with nothing known of what is
 * behind it. */
VIA_MUST_CHECK int via_pio_link_open_bar(struct via_pio_link *link, const char *device,
                                         struct via_pci *pci, unsigned bar, struct via_error *err);
/* Maps a view of a bare BAR, in place of the other one; the views of a port are mapped. 0, or what
 * the function's map() says. */
VIA_MUST_CHECK int via_pio_link_use_view(struct via_pio_link *link, unsigned view);
/* Also after either failed. */
void via_pio_link_close(struct via_pio_link *link);

/* Holds one end for a measurement at the other one, until *stop. */
VIA_MUST_CHECK int via_pio_link_serve(struct via_pio_link *link, const _Atomic bool *stop,
                                      struct via_error *err);

const char *via_pio_link_name(const struct via_pio_link *link);
void via_pio_link_describe(const struct via_pio_link *link, char *ret_text, size_t bytes);
/* The limits of this link's figures, one sentence each; NULL at the end. */
#define VIA_PIO_LIMITS_MAX 5u
void via_pio_link_limits(const struct via_pio_link *link,
                         const char *ret_limits[VIA_PIO_LIMITS_MAX]);

/* --- pio_measure.c --- */

enum via_pio_kind {
    VIA_PIO_STORE,  /* stores of this process through a view */
    VIA_PIO_PORT,   /* the port's body() */
    VIA_PIO_DMA,    /* the port's engine */
    VIA_PIO_MEMCPY, /* from memory to memory, beside it */
};

struct via_pio_way {
    enum via_pio_kind kind;
    unsigned view, store; /* of VIA_PIO_STORE */
};

struct via_pio_figure {
    struct via_pio_way way;
    uint64_t bytes;
    /* One message: until its stores have left the CPU, or the engine said that it is done. */
    unsigned runs, runs_kept; /* kept: within a standard deviation of the mean */
    double mean_ns, median_ns;
    double arrival_ns;    /* until it is proven to be there; median; 0 = unknown */
    double bytes_per_sec; /* of messages one after another, on all threads */
};

struct via_pio_measure {
    struct via_pio_link *link;
    struct via_pio_clock clock;
    uint64_t span_ns; /* of each figure */
    unsigned threads;
    unsigned cpu; /* of this thread */
    unsigned char *copy;
};
#define VIA_PIO_THREADS_MAX 8u
#define VIA_PIO_WAYS_MAX (2 * VIA_STORES_MAX + 3)

/* Pins this thread, calibrates the clock. */
#define VIA_PIO_HERE UINT32_MAX          /* on the CPU it runs on */
#define VIA_PIO_ANY_CPU (UINT32_MAX - 1) /* not at all */
VIA_MUST_CHECK int via_pio_measure_begin(struct via_pio_measure *measure, unsigned cpu,
                                         struct via_error *err);
void via_pio_measure_end(struct via_pio_measure *measure);

/* The ways there are on this link and CPU. */
unsigned via_pio_measure_ways(const struct via_pio_measure *measure,
                              struct via_pio_way ret_ways[VIA_PIO_WAYS_MAX]);
/* 1: measured; 0: this way does not do this size. */
VIA_MUST_CHECK int via_pio_measure_one(struct via_pio_measure *measure,
                                       const struct via_pio_way *way, uint64_t bytes,
                                       struct via_pio_figure *ret_figure, struct via_error *err);
/* Messages without a pause and their fence, on this thread: the time of one. 0 or what went wrong.
 */
VIA_MUST_CHECK int via_pio_measure_batch(struct via_pio_measure *measure,
                                         const struct via_pio_way *way, uint64_t bytes,
                                         unsigned count, double *ret_ns);
/* "write-combined 64 nt", "port", "DMA", "memcpy" */
void via_pio_way_name(const struct via_pio_link *link, const struct via_pio_way *way,
                      char *ret_text, size_t bytes);
const char *via_pio_caching_name(enum via_port_caching caching);

#endif
