/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_LAUNCH_TRACE_H
#define VIA_SHMEM_LAUNCH_TRACE_H

#include "shmem/launch.h"
#include "shmem/trace.h"

enum via_launch_known {
    VIA_LAUNCH_KNOWN,
    VIA_LAUNCH_ELSEWHERE, /* on another machine, and the launcher was not queried */
    VIA_LAUNCH_SILENT,    /* on a machine that has not answered */
};

/* A PE at one moment: a copy, which does not change while it is examined. */
struct via_launch_moment {
    uint32_t known; /* enum via_launch_known: with another value the rest is empty */
    uint32_t state; /* enum via_job_state */
    int pid;
    char process;                    /* its state in /proc/PID/stat */
    uint64_t locks[VIA_TRACE_LOCKS]; /* notes of the locks that the PE holds */
    bool waits;                      /* the following fields describe its longest wait */
    uint64_t for_ns;
    uint64_t lock; /* the holder's note of the lock that it waits for; 0 = none */
    char call[VIA_TRACE_CALL_BYTES];
    char caller[VIA_TRACE_CALLER_BYTES];
    char what[VIA_TRACE_WHAT_BYTES];
};

/* Other processes wrote these texts, so terminate them and make them printable before printing. */
void via_launch_make_printable(char *text, size_t bytes);
void via_launch_moment_clean(struct via_launch_moment *moment);
/* Reads the moment of a PE of this machine. */
void via_launch_moment_take(const struct via_job *job, uint32_t number,
                            struct via_launch_moment *ret_moment);
void via_launch_moment_put(struct via_launch_bytes *bytes, const struct via_launch_moment *moment);
/* The caller checks whether the message had all its parts. */
void via_launch_moment_parse(struct via_launch_parts *parts, struct via_launch_moment *ret_moment);

struct via_launch_view {
    uint64_t id;
    int launcher_pid;
    uint32_t count;
    const struct via_launch_moment *moments; /* count */
    /* Appends " on host 2", or nothing. */
    void (*name_place)(const void *ctx, uint32_t pe, char *text, size_t bytes);
    const void *ctx;
};
int via_launch_trace_print(FILE *out, const struct via_launch_view *view) VIA_MUST_CHECK;
int via_launch_trace_json(FILE *out, const struct via_launch_view *view) VIA_MUST_CHECK;

#endif
