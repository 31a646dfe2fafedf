/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_LAUNCH_H
#define VIA_SHMEM_LAUNCH_H

#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/error.h"
#include "host/rundir.h"
#include "shmem/job.h"

/*
 * oshrun: starts the PEs of a job on this machine, watches them, and ends them all when one fails.
 * One thread. What it knows of a PE it knows as its parent, or reads from the job block.
 */
#define VIA_LAUNCH_HOSTS_MAX 1024u

struct via_launch_options {
    uint32_t pes_count;
    uint32_t hosts[VIA_LAUNCH_HOSTS_MAX];
    uint32_t hosts_count; /* 0: no fabric */
    bool spread;          /* hosts: all that are up */
    const char *fabric;   /* NULL = the default */
    uint32_t timeout_s;   /* 0 = none */
    bool tag;
    bool trace;            /* look at jobs, start none */
    const char *trace_job; /* NULL = all */
    char **argv;           /* program and arguments, NULL at the end */
};

/* --- launch_place.c: which PE goes where -------------------------------------------------------
 */

/* "1,3-5". -EINVAL with a text. */
int via_launch_parse_hosts(const char *text, struct via_launch_options *options,
                           struct via_error *err) VIA_MUST_CHECK;

struct via_launch_place {
    struct via_rundir_path rundir;
    uint32_t node_of[VIA_JOB_PES_MAX];
    uint32_t host_of[VIA_LAUNCH_HOSTS_MAX];
    uint32_t nodes_count;
    bool fabric;
};

/* Consecutive PEs in equal blocks; sees that the hosts are up. */
int via_launch_place(const struct via_launch_options *options, struct via_launch_place *ret_place,
                     struct via_error *err) VIA_MUST_CHECK;

/* --- launch_output.c: what PEs print ------------------------------------------------------------
 */

#define VIA_LAUNCH_LINE_BYTES 4096u

struct via_launch_stream {
    int fd; /* read end of a PE's stdout or stderr; -1 once it has ended */
    int to_fd;
    uint32_t pe;
    uint32_t used;
    char line[VIA_LAUNCH_LINE_BYTES];
};

/*
 * A terminal is not handed to PE 0: it is in a process group of its own, and a group that is not in
 * the foreground is stopped when it reads. The launcher reads, and passes on by a pipe.
 */
struct via_launch_input {
    int pe_fd; /* PE 0's end, until it is started; -1 without a terminal */
    int to_fd; /* -1 when there is nothing (more) to pass on */
    uint32_t used;
    char text[VIA_LAUNCH_LINE_BYTES];
};

int via_launch_input_open(struct via_launch_input *ret_input, struct via_error *err) VIA_MUST_CHECK;
/* What to wait for, and doing it when that is ready. */
struct pollfd;
void via_launch_input_poll(const struct via_launch_input *input, struct pollfd *ret_poll);
void via_launch_input_copy(struct via_launch_input *input);

/* Reads what there is, writes what are whole lines, each behind "[PE] ". False at the end of it. */
bool via_launch_stream_copy(struct via_launch_stream *stream);

/* --- launch_spawn.c: starting ------------------------------------------------------------------
 */

struct via_launch_pe {
    pid_t pid; /* also its process group; 0 once it has been reaped */
    int status;
};

enum via_launch_phase {
    VIA_LAUNCH_RUNNING,
    VIA_LAUNCH_LEAVING, /* a PE is gone that others may wait for: they get a moment */
    VIA_LAUNCH_ENDING,  /* told to end, until deadline_ns */
    VIA_LAUNCH_KILLED,
};

struct via_launch {
    struct via_launch_options options;
    struct via_launch_place place;
    struct via_job_files files;
    struct via_launch_pe *pes;
    struct via_launch_stream *streams; /* two per PE with --tag */
    uint32_t streams_count;
    struct via_launch_input input;
    uint32_t running_count;
    uint32_t left_pe; /* in LEAVING */
    pid_t left_pid;
    enum via_launch_phase phase;
    uint64_t deadline_ns;
    uint64_t timeout_ns;
    int exit_code;
    int signal_fd;
    uint64_t quit_ns;          /* the last SIGQUIT */
    struct rlimit files_limit; /* to be given back to the PEs */
    char machine[64];
};

/* All PEs, or none. */
int via_launch_spawn(struct via_launch *launch, struct via_error *err) VIA_MUST_CHECK;

/* --- launch_watch.c: watching ------------------------------------------------------------------
 */

uint64_t via_launch_now_ns(void);
/* Until all have ended; returns the exit code. */
int via_launch_watch(struct via_launch *launch);
void via_launch_signal_all(const struct via_launch *launch, int signal_number);

/* --- launch_trace.c: who waits for whom --------------------------------------------------------
 */

/* Of one job; of the jobs of this user on this machine, or of the one whose id or launcher's pid is
 * `wanted`. -ENOENT with a text when there is none. */
int via_launch_trace(FILE *out, const struct via_job *job);
int via_launch_trace_jobs(const char *wanted, struct via_error *err) VIA_MUST_CHECK;

/* "oshrun: ..." on standard error. */
void via_launch_say(const char *format, ...) VIA_PRINTF(1, 2);

#endif
