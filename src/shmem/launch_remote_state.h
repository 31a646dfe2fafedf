/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_LAUNCH_REMOTE_STATE_H
#define VIA_SHMEM_LAUNCH_REMOTE_STATE_H

#include "shmem/launch_remote.h"

/* State of oshrun for a job over several machines: launch_remote.c, launch_receive.c. */
struct via_launch_moment;
struct via_launch_board;

struct via_launch_remote {
    struct via_launch_machine machines[VIA_LAUNCH_MACHINES_MAX];
    uint32_t count;
    uint64_t *words; /* the published data of all PEs: pes_count x VIA_JOB_WORDS */
    uint32_t generation;
    struct via_launch_bytes out[2]; /* for standard output and error */
    bool input_ended;
    uint32_t input_bytes; /* sent, and not acknowledged */
    bool started;
    uint64_t job;
    uint64_t start_ns;  /* deadline for the answers of all agents */
    uint64_t killed_ns; /* deadline after which oshrun waits for no agent */
    uint64_t lost_ns;
    uint64_t ping_ns; /* interval */
    uint64_t pinged_ns;
    uint64_t polled_ns;
    struct via_launch_moment *moments; /* while a query of the agents is under way */
    uint64_t request_ns;
    bool trace_to_stderr;           /* when all agents have answered */
    struct via_launch_board *board; /* for `oshrun --trace`; or NULL */
    uint32_t board_number;          /* number of the request that is being answered */
};

static inline bool via_launch_machine_is_there(const struct via_launch_machine *machine)
{
    return machine->state != VIA_LAUNCH_MACHINE_GONE;
}

static inline bool via_launch_is_on(const struct via_launch *launch, uint32_t pe,
                                    const struct via_launch_machine *machine)
{
    return pe < launch->options.pes_count &&
           &launch->remote->machines[launch->place.node_of[pe]] == machine;
}

/* True if all agents have reached this state. */
bool via_launch_machines_is_known(const struct via_launch_remote *remote,
                                  enum via_launch_machine_state state);
/* Closes the connection to the agent; its PEs have ended, or end because of that. */
void via_launch_leave(struct via_launch *launch, struct via_launch_machine *machine);
/* Closes all connections before the PEs run, so nothing needs time to end. */
void via_launch_give_up(struct via_launch *launch, int exit_code);
/* Gives up a broken connection: prints the reason, and ends the job. */
void via_launch_lose(struct via_launch *launch, struct via_launch_machine *machine,
                     const char *cause);
void via_launch_send_all(struct via_launch *launch, enum via_launch_message type,
                         const struct via_launch_bytes *payload,
                         const struct via_launch_machine *except);

/* Handles the messages read from an agent. */
void via_launch_receive(struct via_launch *launch, struct via_launch_machine *machine);

/* launch_moments.c. Queries the agents if a trace is requested, and forwards the answers. */
void via_launch_remote_check_trace(struct via_launch *launch);
bool via_launch_on_moment(struct via_launch *launch, struct via_launch_machine *machine,
                          struct via_launch_parts *parts);
bool via_launch_on_moments_end(struct via_launch_machine *machine,
                               const struct via_launch_parts *parts);
bool via_launch_on_trace(struct via_launch_machine *machine, const struct via_launch_parts *parts);

#endif
