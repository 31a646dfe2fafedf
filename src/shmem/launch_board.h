/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_LAUNCH_BOARD_H
#define VIA_SHMEM_LAUNCH_BOARD_H

#include "shmem/launch_trace.h"

/*
 * The board that oshrun of a job over several machines, and each of its agents, keeps for `oshrun
 * --trace` on its machine: an unnamed memfd, which the command finds among the open files of the
 * process. The command increments `wanted`; the owner reads it five times a second, queries all
 * machines, and fills in the answers.
 */
#define VIA_LAUNCH_BOARD_NAME "viaduct-trace"

struct via_launch_board_pe {
    struct via_launch_moment moment;
    char place[VIA_LAUNCH_PE_NAME_BYTES]; /* " on node2" */
};

struct via_launch_board {
    uint64_t magic;
    uint32_t version;
    uint32_t bytes;
    uint64_t id; /* of the job */
    int32_t owner_pid;
    uint32_t count;
    _Atomic uint32_t wanted;         /* number of requests; readers write it */
    _Atomic uint32_t answered;       /* number of answered requests; the owner writes it */
    _Atomic uint32_t version_of_pes; /* odd while the owner writes the PEs */
    uint32_t reserved;
    struct via_launch_board_pe pes[];
};

/* --- for the owner. A board of NULL does nothing: a trace is no reason to fail. -------------- */

/* NULL if there is no memory. It stays until the process ends. */
struct via_launch_board *via_launch_board_open(uint64_t id, uint32_t count);
/* True if there are requests, up to ret_number, without an answer. */
bool via_launch_board_is_wanted(struct via_launch_board *board, uint32_t *ret_number);
void via_launch_board_begin(struct via_launch_board *board);
void via_launch_board_fill(struct via_launch_board *board, uint32_t pe, const char *place,
                           const struct via_launch_moment *moment);
void via_launch_board_end(struct via_launch_board *board, uint32_t number);

/* --- for the reader --------------------------------------------------------------------------- */

/* -EPROTO: the descriptor is not a board. */
int via_launch_board_map(int fd, struct via_launch_board **ret_board) VIA_MUST_CHECK;
/* Sends a request, and prints the answer. -ETIMEDOUT: the owner does not answer. */
int via_launch_board_print(FILE *out, struct via_launch_board *board, bool json) VIA_MUST_CHECK;

#endif
