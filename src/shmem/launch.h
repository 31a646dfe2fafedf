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
#include "shmem/launch_wire.h"

/*
 * oshrun: starts the PEs of a job, watches them, and ends them all when one fails. One thread. For
 * PEs of this machine, oshrun is the parent, and reads the job block. For PEs of another machine,
 * the agent there is the parent, and reports to oshrun (launch_remote.h).
 */
#define VIA_LAUNCH_HOSTS_MAX 1024u
#define VIA_LAUNCH_EXIT_SIGNAL 128
#define VIA_LAUNCH_PE_NAME_BYTES 300u

struct via_launch_remote;
struct via_launch_machines;

struct via_launch_options {
    uint32_t pes_count;
    uint32_t hosts[VIA_LAUNCH_HOSTS_MAX];
    uint32_t slots[VIA_LAUNCH_HOSTS_MAX]; /* PEs on each of these; 0 = not given */
    uint32_t hosts_count;                 /* 0: no fabric */
    bool spread;                          /* hosts: all that are up */
    const char *fabric;                   /* NULL = the default */
    uint32_t timeout_s;                   /* 0 = none */
    bool tag;
    bool trace;            /* only show jobs, start none */
    const char *trace_job; /* NULL = all */
    bool trace_json;
    struct via_launch_machines *machines; /* NULL: this one */
    const char *agent;                    /* command that reaches a machine; NULL = the default */
    const char *rundir;                   /* of the daemons of the machines; NULL = the default */
    uint32_t lost_after_s;                /* silence after which a machine counts as lost */
    char **argv;                          /* program and arguments, NULL at the end */
};

/* --- launch_place.c: places PEs on hosts ----------------------------------------------------- */

/* "1,3-5" or "1:4,3-5:2". -EINVAL with a text. */
int via_launch_parse_hosts(const char *text, struct via_launch_options *options,
                           struct via_error *err) VIA_MUST_CHECK;

struct via_launch_place {
    struct via_rundir_path rundir;
    uint32_t node_of[VIA_JOB_PES_MAX];
    uint32_t host_of[VIA_LAUNCH_HOSTS_MAX];
    uint32_t nodes_count;
    bool fabric;
};

/* launch_machines.c. Fills node_of and nodes_count: consecutive PEs, as many on each node as it has
 * slots; equal blocks if no node states slots. `what`: hosts or machines, for errors. */
int via_launch_share_out(const char *what, const uint32_t *slots, uint32_t count,
                         uint32_t pes_count, struct via_launch_place *place,
                         struct via_error *err) VIA_MUST_CHECK;

/* Chooses the hosts, checks that they are up, and distributes the PEs over them. */
int via_launch_place(const struct via_launch_options *options, struct via_launch_place *ret_place,
                     struct via_error *err) VIA_MUST_CHECK;

/* The only host of the fabric on this machine, or $VIADUCT_HOST. -ENOENT with a text. */
int via_launch_find_host(const char *fabric, struct via_launch_place *ret_place,
                         struct via_error *err) VIA_MUST_CHECK;

/* --- launch_output.c: the output of PEs ------------------------------------------------------ */

#define VIA_LAUNCH_LINE_BYTES 4096u

struct via_launch_stream {
    int fd; /* read end of a PE's stdout or stderr; -1 once it has ended */
    int to_fd;
    struct via_launch_bytes *to; /* buffer instead of to_fd */
    uint32_t pe;
    uint32_t used;
    char line[VIA_LAUNCH_LINE_BYTES];
};

/*
 * PE 0 does not get the terminal itself: it is in a process group of its own, and the kernel stops
 * a background group that reads the terminal. The launcher reads it, and forwards the input by a
 * pipe.
 */
struct via_launch_input {
    int pe_fd; /* PE 0's end, until PE 0 is started; -1 without a terminal */
    int to_fd; /* -1 if there is no (more) input to forward */
    uint32_t used;
    char text[VIA_LAUNCH_LINE_BYTES];
};

int via_launch_input_open(struct via_launch_input *ret_input, struct via_error *err) VIA_MUST_CHECK;
/* Adds the descriptors to wait for; and handles them when they are ready. */
struct pollfd;
void via_launch_input_poll(const struct via_launch_input *input, struct pollfd *ret_poll);
void via_launch_input_copy(struct via_launch_input *input);

/* Reads the available output and writes its whole lines, each behind "[PE] ". False at end of
 * file. */
bool via_launch_stream_copy(struct via_launch_stream *stream);
/* The same for output that an agent has read; count = 0: end of file. */
void via_launch_stream_feed(struct via_launch_stream *stream, const void *data, size_t count);

/* --- launch_spawn.c: starting ---------------------------------------------------------------- */

struct via_launch_pe {
    pid_t pid; /* also its process group; 0 once it has been reaped */
    int status;
};

enum via_launch_phase {
    VIA_LAUNCH_RUNNING,
    VIA_LAUNCH_LEAVING, /* a PE has ended: waits shortly, because others may end too, or the reason
                           may follow */
    VIA_LAUNCH_ENDING,  /* PEs got a signal to end, and have until deadline_ns */
    VIA_LAUNCH_KILLED,
};

struct via_launch {
    struct via_launch_options options;
    struct via_launch_place place;
    struct via_launch_remote *remote; /* NULL: all PEs are children of this process */
    bool agent; /* only the PEs of `node` are children; oshrun is on another machine */
    uint32_t node;
    struct via_job_files files; /* without `remote` */
    struct via_launch_pe *pes;
    struct via_launch_stream *streams; /* two per PE with --tag */
    uint32_t streams_count;
    struct via_launch_input input;
    uint32_t running_count;
    uint32_t left_pe; /* in LEAVING */
    pid_t left_pid;
    int left_status; /* of waitpid; not 0: the PE was cut off, and the reason is not known yet */
    enum via_launch_phase phase;
    uint64_t deadline_ns;
    uint64_t timeout_ns;
    int exit_code;
    int signal_fd;
    uint64_t quit_ns;          /* the last SIGQUIT */
    struct rlimit files_limit; /* original limit, for the PEs */
    char *preload;             /* LD_PRELOAD of the PEs; NULL: as inherited */
    char machine[64];
};

/* The profiling tool followed by the inherited LD_PRELOAD, allocated; NULL if no variable requests
 * the tool. */
int via_launch_find_tool(char **ret_preload, struct via_error *err) VIA_MUST_CHECK;

/* Starts all PEs, or none. */
int via_launch_spawn(struct via_launch *launch, struct via_error *err) VIA_MUST_CHECK;

/* --- launch_control.c: decides when the job ends --------------------------------------------- */

uint64_t via_launch_now_ns(void);
/* Raises the limit of descriptors to its maximum; the earlier limit is kept for the PEs. */
void via_launch_raise_files(struct via_launch *launch);
/* launch->signal_fd */
int via_launch_take_signals(struct via_launch *launch, struct via_error *err) VIA_MUST_CHECK;
bool via_launch_is_over(const struct via_launch *launch);
/* Ends the job; the caller has printed the reason. signal_number 0: the PEs end without a
 * signal. */
void via_launch_end_job(struct via_launch *launch, int exit_code, int signal_number);
/* Handles the end of a PE: prints it, and ends the job if necessary. */
void via_launch_pe_ended(struct via_launch *launch, uint32_t number, pid_t pid, int status,
                         enum via_job_state state);
void via_launch_global_exit(struct via_launch *launch, uint32_t number, int status);
void via_launch_on_signal(struct via_launch *launch, int signal_number);
void via_launch_signal_all(struct via_launch *launch, int signal_number);
void via_launch_check_deadlines(struct via_launch *launch);
uint64_t via_launch_deadline_ns(const struct via_launch *launch);
/* For poll(). */
int via_launch_poll_ms(uint64_t at_ns);
/* State of a PE of this machine, from the job block. */
bool via_launch_has_members(const struct via_launch *launch);
enum via_job_state via_launch_state_of(const struct via_launch *launch, uint32_t number);

/* --- launch_watch.c: watching the PEs of this machine ---------------------------------------- */

/* Returns the exit code when all PEs have ended. */
int via_launch_watch(struct via_launch *launch);
typedef void via_launch_on_end(struct via_launch *launch, uint32_t number, pid_t pid, int status);
/* Calls on_end for each PE that has ended since the last call. */
void via_launch_reap(struct via_launch *launch, via_launch_on_end *on_end);

/* --- launch_trace.c: shows which PE waits for which ------------------------------------------ */

/* Shows one job; or the jobs of this user on this machine, or the job whose id or launcher's pid is
 * `wanted`. -ENOENT with a text if there is none. */
int via_launch_trace(FILE *out, const struct via_job *job, bool json);
int via_launch_trace_jobs(const char *wanted, bool json, struct via_error *err) VIA_MUST_CHECK;

/* Prints "oshrun: ..." on standard error. */
void via_launch_print(const char *format, ...) VIA_PRINTF(1, 2);

#endif
