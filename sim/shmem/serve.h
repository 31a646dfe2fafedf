/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The host's side of its PEs: the code of src/host for their pipes (attach_server_channel.c,
 * _command.c, _reply.c, _park.c), a process for each PE, and for what they know of the fabric
 * (host_status.c). Nothing of the library or of the host is
 * in this header, because both have a struct via_board.
 */
#ifndef SIM_SHMEM_SERVE_H
#define SIM_SHMEM_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/pipe.h"

struct sim_host;
struct sim_thread;
struct via_bell;
struct via_status_page;

/* What src/host has of one host. */
struct sim_serve;

struct sim_serve_options {
    struct via_bell *bells; /* borrowed; of its threads */
    struct via_pipe_geometry command, reply;
    uint32_t area_bytes; /* of a channel, in the memory of a PE */
    uint32_t pes_max;    /* of all hosts */
};

struct sim_serve *sim_serve_new(struct sim_host *host, const struct sim_serve_options *options);
void sim_serve_free(struct sim_serve *serve);
const struct via_status_page *sim_serve_page(const struct sim_serve *serve);
/* PE `index` is attached; `memory` holds the pipes of all channels. */
void sim_serve_attach(struct sim_serve *serve, uint32_t index, unsigned char *memory);
/* It offers memory under this handle. */
void sim_serve_offer(struct sim_serve *serve, uint32_t index, uint64_t handle, void *base,
                     uint64_t bytes);
/* The host is dead: nothing is served from now on. */
void sim_serve_crash(struct sim_serve *serve);
/* No operation of a PE is with the node. */
bool sim_serve_is_idle(const struct sim_serve *serve);

/* As in struct sim_guest_ops. */
unsigned sim_serve_turn(struct sim_serve *serve, struct sim_thread *thread);
unsigned sim_serve_turn_over(struct sim_serve *serve, struct sim_thread *thread);
bool sim_serve_arm(struct sim_serve *serve, struct sim_thread *thread);
void sim_serve_complete(struct sim_serve *serve, unsigned channel, uint64_t cookie, int status,
                        uint64_t value);

/* The bell of PE `index` rings; implemented in pe.c. */
void sim_pe_ring(uint32_t index);

#endif
