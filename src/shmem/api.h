/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_API_H
#define VIA_SHMEM_API_H

/*
 * How the library defines OpenSHMEM's entry points. The function is pshmem_NAME; shmem_NAME is a
 * weak alias of it, so a profiling library may take its place (OpenSHMEM 1.6, section 10).
 */
#define VIADUCT_SHMEM_NO_GENERIC
#include <stdbool.h>

#include "base/list.h"
#include "shmem/algorithm.h"

#pragma GCC visibility push(default)
#include <shmem.h>
#pragma GCC visibility pop

/* An alias is declared again where it is defined. */
#pragma GCC diagnostic ignored "-Wredundant-decls"

#define VIA_ALIAS(R, NAME, P) R NAME P __attribute__((weak, alias("p" #NAME)));

/* A context is its team's view of the PEs. */
struct viaduct_shmem_ctx {
    struct viaduct_shmem_team *team; /* NULL: the world */
    long options;
    struct via_list link; /* open contexts, without private ones */
};

/* Hosts of a team's members: hosts.h. */
struct via_hosts {
    unsigned count;
    unsigned mine;
    int *first; /* owned; NULL: not known yet. Members first[h] to first[h + 1] - 1 are on host h */
    /* An order of the hosts in which each is a neighbour of the next one, if there is one; stored
     * behind `first`. place: this host's position in it. */
    int *ring;
    unsigned place;
    struct via_algorithm_case shape; /* the part that is the same at all members */
    /* The last choice of an algorithm by which leaders forward blocks of one size: 1 + its number;
     * 0 = none. */
    size_t passed_bytes;
    unsigned passed_by;
};

/* The last choices, by the size of the call. */
#define VIA_CHOICES 8u
struct via_choice {
    size_t bytes;
    size_t element_bytes; /* 0: not chosen yet */
    enum via_algorithm_number number;
};

/* PEs start, start + stride, ... of the world. */
struct viaduct_shmem_team {
    int start;
    int stride;
    int size;
    int my_pe; /* this PE's number in the team */
    /* Location of the team's sync words: each member has a slot for the team in its own memory. */
    unsigned slot;                 /* slot of this PE */
    const unsigned char *slots;    /* slot of each member; NULL: the same as `slot` */
    struct via_sync_slot **mapped; /* addresses of the slots if all members are on this host and few
                                      enough to poll each other; else NULL */
    /* State of barriers and exchanges; only the thread in the collective uses it. */
    uint64_t epoch;
    uint64_t exchanges;
    uint64_t pieces;         /* pieces that all pipelines of the team have forwarded so far */
    size_t exchanged_stride; /* of the result of the last exchange over hosts */
    struct via_hosts hosts;
    struct via_choice choices[VIA_COLLECTIVES][VIA_CHOICES];
    shmem_team_config_t config;
    long config_mask;
};

/* The team of a valid handle. */
struct viaduct_shmem_team *via_team(shmem_team_t team);

static inline unsigned via_team_slot(const struct viaduct_shmem_team *team, int number)
{
    return team->slots ? team->slots[number] : team->slot;
}

/* Rank in the world of PE number pe of the context's team. */
static inline int via_ctx_pe(shmem_ctx_t ctx, int pe)
{
    if (ctx == SHMEM_CTX_DEFAULT || !ctx->team)
        return pe;
    return ctx->team->start + ctx->team->stride * pe;
}

/* Defines a call and its variant with a context; the body gets the rank in the world as pe. */
#define VIA_DEFINE_PAIR(R, NAME, P, ...)                                      \
    R pshmem_##NAME(VIADUCT_SHMEM_PARAMS P){__VA_ARGS__} R pshmem_ctx_##NAME( \
        shmem_ctx_t ctx, VIADUCT_SHMEM_PARAMS P)                              \
    {                                                                         \
        pe = via_ctx_pe(ctx, pe);                                             \
        __VA_ARGS__                                                           \
    }

/* The name of the call for error messages: the function's name without its p. */
#define VIA_CALL (__func__ + 1)

#endif
