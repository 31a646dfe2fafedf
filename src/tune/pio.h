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
 * Measures the cost of CPU stores, of the port's own copies and of its DMA engine on the window of
 * a link.
 *
 *   pio_clock.c    the clock of all measurements
 *   pio_link.c     opens one end of a link, or both, without a daemon; or a bare BAR
 *   pio_measure.c  measures the figures one after another
 */

/* --- pio_clock.c --- */

/* The time stamp counter, calibrated and corrected by the cost of reading it (the method of system
 * E); the system's clock if there is no suitable counter. */
struct via_pio_clock {
    double ns_per_tick;
    uint64_t cost_ticks;
    bool is_tsc;
};
void via_pio_clock_init(struct via_pio_clock *ret_clock);
uint64_t via_pio_clock_ticks(const struct via_pio_clock *clock);
double via_pio_clock_ns(const struct via_pio_clock *clock, uint64_t from, uint64_t to);

uint64_t via_pio_now_ns(void); /* CLOCK_MONOTONIC */

/* --- pio_link.c --- */

struct via_pio_end {
    const char *text; /* description of the link; borrowed */
    struct via_link_config config;
    struct via_driver_host host;
    struct via_port *port;
    int bell_fd; /* 0 or -1: none */
};

struct via_pio_link {
    struct via_pio_end ends[2]; /* the first end is measured */
    unsigned ends_count;
    struct via_pci *pci; /* a bare BAR, in place of ends */
    unsigned bar;
    /* A write-combined view or memory comes first. Of a bare BAR only one view is mapped at a
     * time. */
    struct via_port_view views[2];
    struct via_pci_mapping mapping; /* of a bare BAR */
    unsigned views_count;
    uint64_t window_bytes;
    unsigned char *source; /* of messages, VIA_PIO_SOURCE_BYTES; registered with the engine */
    pthread_t thread;      /* control thread of the ends */
    bool has_thread;
    bool has_dma;      /* writes of the first end's engine reach the peer */
    char dma_why[256]; /* why the engine does not work; "": it works, or there is none */
    _Atomic bool stop;
    char directory[64]; /* of an emulated link; "": none */
    char texts[2][128];
};
#define VIA_PIO_SIZE_MAX (1u << 20)
#define VIA_PIO_SOURCE_BYTES (2u * VIA_PIO_SIZE_MAX)

/* Opens the ends given by ends_count and their texts (0: both ends of an emulated link), and waits
 * up to wait_ns for link up. All other fields of link are zero. */
VIA_MUST_CHECK int via_pio_link_open(struct via_pio_link *link, uint64_t wait_ns,
                                     struct via_error *err);
/* Opens a BAR of a function, for which no driver is used. Takes ownership of pci, also if it
 * fails. */
VIA_MUST_CHECK int via_pio_link_open_bar(struct via_pio_link *link, const char *device,
                                         struct via_pci *pci, unsigned bar, struct via_error *err);
/* Maps a view of a bare BAR, and unmaps the other one; the views of a port are always mapped. 0, or
 * an error of the function's map(). */
VIA_MUST_CHECK int via_pio_link_use_view(struct via_pio_link *link, unsigned view);
/* Also called after a failed open. */
void via_pio_link_close(struct via_pio_link *link);

/* Services one end for a measurement at the other end, until *stop. */
VIA_MUST_CHECK int via_pio_link_serve(struct via_pio_link *link, const _Atomic bool *stop,
                                      struct via_error *err);

const char *via_pio_link_name(const struct via_pio_link *link);
void via_pio_link_describe(const struct via_pio_link *link, char *ret_text, size_t bytes);
/* Caveats of the figures of this link, one sentence each; NULL at the end. */
#define VIA_PIO_LIMITS_MAX 5u
void via_pio_link_limits(const struct via_pio_link *link,
                         const char *ret_limits[VIA_PIO_LIMITS_MAX]);

/* --- pio_measure.c --- */

enum via_pio_kind {
    VIA_PIO_STORE,  /* stores of this process through a view */
    VIA_PIO_PORT,   /* the port's body() */
    VIA_PIO_DMA,    /* the port's engine */
    VIA_PIO_MEMCPY, /* memory to memory, for comparison */
};

struct via_pio_way {
    enum via_pio_kind kind;
    unsigned view, store; /* for VIA_PIO_STORE */
};

struct via_pio_figure {
    struct via_pio_way way;
    uint64_t bytes;
    /* Time of one message, until its stores have left the CPU, or the engine has reported its
     * end. */
    unsigned runs, runs_kept; /* kept: within one standard deviation of the mean */
    double mean_ns, median_ns;
    double arrival_ns;    /* until its arrival is proven; median; 0 = unknown */
    double bytes_per_sec; /* of messages without a pause, on all threads */
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
#define VIA_PIO_HERE UINT32_MAX          /* pin to the present CPU */
#define VIA_PIO_ANY_CPU (UINT32_MAX - 1) /* do not pin */
VIA_MUST_CHECK int via_pio_measure_begin(struct via_pio_measure *measure, unsigned cpu,
                                         struct via_error *err);
void via_pio_measure_end(struct via_pio_measure *measure);

/* The ways that this link and CPU support. */
unsigned via_pio_measure_ways(const struct via_pio_measure *measure,
                              struct via_pio_way ret_ways[VIA_PIO_WAYS_MAX]);
/* 1: measured; 0: this way does not support this size. */
VIA_MUST_CHECK int via_pio_measure_one(struct via_pio_measure *measure,
                                       const struct via_pio_way *way, uint64_t bytes,
                                       struct via_pio_figure *ret_figure, struct via_error *err);
/* Measures messages without a pause, and their fence, on this thread; the time of one. 0 or
 * negative errno.
 */
VIA_MUST_CHECK int via_pio_measure_batch(struct via_pio_measure *measure,
                                         const struct via_pio_way *way, uint64_t bytes,
                                         unsigned count, double *ret_ns);
/* "write-combined 64 nt", "port", "DMA", "memcpy" */
void via_pio_way_name(const struct via_pio_link *link, const struct via_pio_way *way,
                      char *ret_text, size_t bytes);
const char *via_pio_caching_name(enum via_port_caching caching);

#endif
