/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_LAUNCH_REMOTE_H
#define VIA_SHMEM_LAUNCH_REMOTE_H

#include <sys/types.h>

#include "shmem/launch.h"

/*
 * Jobs over several machines. oshrun starts an agent on each (oshrun --serve, through ssh or srun)
 * and communicates with it over the standard streams of that command, launch_wire.h. The agent
 * makes the job block and the memory of its machine's PEs, and is their parent. oshrun forwards the
 * data that the PEs publish before a gate to all other agents. When the connection ends, the agent
 * kills its PEs, and oshrun ends the job.
 */
#define VIA_LAUNCH_MACHINES_MAX 256u
#define VIA_LAUNCH_NAME_BYTES 256u
#define VIA_LAUNCH_LOST_AFTER_S 10u
#define VIA_LAUNCH_LOST_AFTER_S_MAX 86400u

/* --- launch_machines.c: lists of machines
 * ------------------------------------------------------- */

struct via_launch_machine_name {
    char text[VIA_LAUNCH_NAME_BYTES];
    uint32_t slots; /* 0: not given */
};

struct via_launch_machines {
    uint32_t count;
    struct via_launch_machine_name names[VIA_LAUNCH_MACHINES_MAX];
};

/* Parses "a,b:4,c"; a name that is repeated gets one more slot. -EINVAL with a text. */
int via_launch_machines_parse(const char *list, struct via_launch_machines *ret_machines,
                              struct via_error *err) VIA_MUST_CHECK;
/* Reads a file with one machine a line: "a", "b:4" or "c slots=2", and comments behind #. */
int via_launch_machines_read(const char *path, struct via_launch_machines *ret_machines,
                             struct via_error *err) VIA_MUST_CHECK;
/* Parses Slurm's notation: "n[1-3,05],m" and "4(x2),1". tasks may be NULL. */
int via_launch_machines_of_slurm(const char *list, const char *tasks,
                                 struct via_launch_machines *ret_machines,
                                 struct via_error *err) VIA_MUST_CHECK;
/* True if the list has machine names, not host ids of one machine. */
bool via_launch_machines_are_named(const char *list);
/* Equal blocks, or as many PEs as slots. Machines that get no PE are removed. */
int via_launch_machines_place(struct via_launch_machines *machines, uint32_t pes_count,
                              struct via_launch_place *ret_place,
                              struct via_error *err) VIA_MUST_CHECK;

/* --- launch_job.c: the message with the job for an agent ------------------------------- */

struct via_launch_job {
    uint32_t node;
    uint32_t nodes_count;
    uint32_t pes_count;
    uint32_t lost_after_s;
    uint64_t heap_bytes;
    const char *rundir; /* "" = the default of that machine */
    const char *fabric; /* "" = the default of that machine */
    const char *folder;
    char **argv;       /* NULL at the end */
    char **environ;    /* "NAME=value"; NULL at the end */
    uint32_t *node_of; /* pes_count */
};

/* The variables of this process's environment that PEs on other machines get, too. */
bool via_launch_job_is_passed(const char *variable);
void via_launch_job_put(struct via_launch_bytes *bytes, const struct via_launch_job *job);
/* The texts point into the payload; argv, environ and node_of are allocated, and freed by _fini. */
int via_launch_job_parse(struct via_launch_parts *parts, struct via_launch_job *ret_job,
                         struct via_error *err) VIA_MUST_CHECK;
void via_launch_job_fini(struct via_launch_job *job);

/* --- launch_agent.c: the commands that start agents ------------------------------------------ */

enum via_launch_machine_state {
    VIA_LAUNCH_MACHINE_STARTING, /* has not reported yet that it can run PEs */
    VIA_LAUNCH_MACHINE_READY,    /* ready, but others are not yet */
    VIA_LAUNCH_MACHINE_RUNNING,
    VIA_LAUNCH_MACHINE_GONE, /* the connection is closed, after the job or early */
};

struct via_launch_machine {
    const char *name;
    enum via_launch_machine_state state;
    pid_t pid; /* of the command; 0 once it has been reaped */
    int status;
    struct via_launch_link link;
    int error_fd; /* the command's standard error; -1 once it has ended */
    char error_line[200];
    uint32_t host;
    uint64_t received_ns;
    uint32_t owed_bytes; /* output that is not acknowledged */
    bool takes_part;
    bool at_gate;       /* its PEs wait for the gate */
    bool requested;     /* a request for the moments of its PEs is not answered yet */
    bool wants_moments; /* it requests the moments of all PEs */
};

/* The words of the command for `machine`, ending with NULL; allocated. */
char **via_launch_agent_words(const char *command, const char *machine, struct via_error *err);
int via_launch_agent_start(const char *command, const char *name,
                           struct via_launch_machine *ret_machine,
                           struct via_error *err) VIA_MUST_CHECK;
/* Forwards the command's standard error; before the job runs, keeps it for the error message. */
void via_launch_agent_errors(struct via_launch_machine *machine);
/* "ssh ended with code 255: ..." */
const char *via_launch_agent_describe(const struct via_launch_machine *machine, char text[400]);

/* --- launch_remote.c: oshrun's side ---------------------------------------------------------- */

/* Runs the job to its end; returns the exit code. */
int via_launch_remote_run(struct via_launch *launch, uint64_t heap_bytes);
void via_launch_remote_signal(struct via_launch *launch, int signal_number);
bool via_launch_remote_has_members(const struct via_launch *launch);
/* Prints the waits of all PEs once the agents have answered. */
void via_launch_remote_trace(struct via_launch *launch);
const char *via_launch_remote_name(const struct via_launch *launch, uint32_t node);

/* --- launch_serve.c: the agent's side -------------------------------------------------------- */

/* oshrun --serve; returns its exit code. */
int via_launch_serve(void);

#endif
