/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Work at an end that runs while the suite does something else: writers, and watchers of their
 * writes. A worker makes small steps: in a thread of its own, or whenever time passes. */
#ifndef VIA_TESTS_CONFORM_WORK_H
#define VIA_TESTS_CONFORM_WORK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "port_conform.h"

/* Places in the inbox that the workers use, from the offset they are given on. */
#define CONFORM_WORK_BYTES 4096u

enum conform_work {
    CONFORM_WRITE_ORDER = 1, /* a body in pieces, then two flags in other places */
    CONFORM_WATCH_ORDER,
    CONFORM_WRITE_LINES, /* commits of the same line */
    CONFORM_WATCH_LINES,
    CONFORM_WRITE_WORDS, /* commits of the same word */
    CONFORM_WATCH_WORDS,
    CONFORM_WRITE_BODIES, /* bodies to two words in turn */
    CONFORM_WATCH_BODIES,
    CONFORM_RINGER,  /* rings bit `count`; again when the sleeper has returned the number */
    CONFORM_SLEEPER, /* sleeps until bit `count` rings, reports the number of times */
    CONFORM_HAMMER,  /* all calls that a transfer thread may make, at any time */
};

struct conform_report {
    uint64_t steps;      /* writers: rounds; watchers: checks that found a change */
    uint64_t violations; /* of the contract */
    char what[128];      /* the first */
};

struct conform_worker {
    struct conform_end *end;
    unsigned queue;
    enum conform_work work;
    uint64_t off;
    uint64_t count;
    bool running;
    _Atomic bool stop;
    pthread_t thread;
    bool threaded;

    /* the worker's own */
    struct via_rng rng;
    uint64_t round;
    uint64_t seen;
    pthread_mutex_t lock; /* of the report */
    struct conform_report report;
};

void conform_worker_start(struct conform_worker *worker, struct conform_end *end, unsigned queue,
                          bool threaded, enum conform_work work, uint64_t off, uint64_t count);
void conform_worker_step(struct conform_worker *worker);
void conform_worker_check(struct conform_worker *worker, struct conform_report *ret_report);
void conform_worker_stop(struct conform_worker *worker);

#endif
