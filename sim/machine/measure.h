/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * What the model of emulated hosts wants to know of a machine, measured on it. Each is the best, or
 * a low quantile, of many short trials: whatever else runs makes trials longer, never shorter.
 */
#ifndef SIM_MACHINE_MEASURE_H
#define SIM_MACHINE_MEASURE_H

#include <pthread.h>

#include "base/error.h"

struct sim_measured {
    unsigned cpus_count;
    double put_rate;  /* bytes per second, into a window that another processor reads */
    double copy_rate; /* out of one that another processor writes */
    double near_rate; /* both on one processor */
    double bus_rate;  /* bytes read and written per second, as many threads as processors */
    double line_ns;   /* a cache line, from one processor to another */
    double bell_ns;   /* the call that wakes a thread */
    double queue_ns;  /* the same on the caller's processor, in its place */
    double wake_ns;   /* from that call until the thread runs, on an idle processor */
    double kick_ns;   /* the same where another thread runs */
    double switch_ns; /* from one thread to another on a processor */
    double submit_ns; /* an operation to a node */
    double turn_ns;   /* a poll of a node that finds nothing */
    double frame_ns;  /* each thing that a poll finds */
};

/* Takes about a second. 0; -EAGAIN (no thread, no memory), with err. */
int sim_measure(struct sim_measured *ret, struct via_error *err) VIA_MUST_CHECK;

/* Parts of it. Copies; cpus_count is set. */
int sim_measure_memory(struct sim_measured *ret, struct via_error *err) VIA_MUST_CHECK;
/* What a node of src/core costs, between two of them in one thread. */
int sim_measure_node(struct sim_measured *ret, struct via_error *err) VIA_MUST_CHECK;

/* For all parts. */
uint64_t sim_measure_now_ns(void);
void sim_measure_pin(unsigned cpu);
/* A thread that is on a processor from its beginning: at a real-time priority it would never get
 * there from that of a thread that waits for it. 0 or a positive errno, as pthread_create(3). */
int sim_measure_start(pthread_t *ret_thread, unsigned cpu, void *(*main)(void *arg), void *arg);
/* The first quartile, the median; they sort. */
double sim_measure_quartile(double *samples, size_t count);
double sim_measure_median(double *samples, size_t count);

#endif
