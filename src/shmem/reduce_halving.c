/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Reductions of many bytes among leaders that need not be neighbours: recursive halving, then
 * doubling. The dest of each leader holds the part of its host. In each round a leader keeps one
 * half of the elements and its partner the other; each reads the partner's values of its own half
 * and adds them. Then the halves go back in the opposite order. So one leader computes each
 * element, and other leaders write a leader's dest only after they have read it.
 *
 * Hosts beyond a power of two first give all their elements to a partner, and get all results back.
 */
#include <stdlib.h>

#include "shmem/group.h"

#define PIECE_BYTES ((size_t)64 << 10)
#define LAST_ROUND 9u /* beyond the power of two; VIA_JOB_PES_MAX hosts are 10 rounds */

struct halving {
    const struct via_task *task;
    struct viaduct_shmem_team *team;
    const struct via_hosts *hosts;
    uint64_t value; /* of the words */
    char *buffer;   /* for one piece */
    size_t begin, end;
};

static char *dest_at(const struct via_task *task, size_t at)
{
    return (char *)task->dest + at * task->element_bytes;
}

static void put_flag(const struct halving *halving, int number, unsigned word)
{
    via_put_word(via_hosts_word(halving->team, number, word), halving->value,
                 via_team_pe(halving->team, number));
}

/* Adds the values of leader `number` to these elements. */
static void add(const struct halving *halving, int number, size_t begin, size_t end)
{
    const struct via_task *task = halving->task;
    size_t piece_max = PIECE_BYTES / task->element_bytes;

    for (size_t at = begin; at < end; at += piece_max) {
        size_t piece = via_min(piece_max, end - at);
        via_get(task->call, halving->buffer, dest_at(task, at), piece * task->element_bytes,
                via_team_pe(halving->team, number));
        task->kernel(dest_at(task, at), halving->buffer, piece);
    }
}

static void put_back(const struct halving *halving, int number, unsigned word)
{
    const struct via_task *task = halving->task;

    via_put(task->call, dest_at(task, halving->begin), dest_at(task, halving->begin),
            (halving->end - halving->begin) * task->element_bytes,
            via_team_pe(halving->team, number));
    put_flag(halving, number, word);
}

static void halve(struct halving *halving, unsigned round)
{
    unsigned mine = halving->hosts->mine, partner = mine ^ 1u << round;
    int number = halving->hosts->first[partner];
    size_t middle = halving->begin + (halving->end - halving->begin) / 2;

    put_flag(halving, number, VIA_WORD_HALF + round);
    via_hosts_await(halving->team, VIA_WORD_HALF + round, halving->value);
    if (mine & 1u << round)
        halving->begin = middle;
    else
        halving->end = middle;
    add(halving, number, halving->begin, halving->end);
}

/* Restores the range of elements that this leader had before the halving of this round, by the same
 * divisions. */
static void widen(struct halving *halving, unsigned round, unsigned rounds)
{
    size_t begin = 0, end = halving->task->elements;

    for (unsigned r = rounds; r-- > round + 1;) {
        size_t middle = begin + (end - begin) / 2;
        if (halving->hosts->mine & 1u << r)
            begin = middle;
        else
            end = middle;
    }
    halving->begin = begin;
    halving->end = end;
}

static void run_rounds(struct halving *halving)
{
    const struct via_hosts *hosts = halving->hosts;
    unsigned rounds = 31 - (unsigned)__builtin_clz(hosts->count), power = 1u << rounds;
    unsigned half = VIA_WORD_HALF + LAST_ROUND, back = VIA_WORD_BACK + LAST_ROUND;

    if (hosts->mine >= power) {
        put_flag(halving, hosts->first[hosts->mine - power], half);
        via_hosts_await(halving->team, back, halving->value);
        return;
    }
    bool has_extra = hosts->mine + power < hosts->count;
    int extra = has_extra ? hosts->first[hosts->mine + power] : 0;
    if (has_extra) {
        via_hosts_await(halving->team, half, halving->value);
        add(halving, extra, 0, halving->task->elements);
    }
    for (unsigned round = rounds; round-- > 0;)
        halve(halving, round);
    for (unsigned round = 0; round < rounds; round++) {
        put_back(halving, hosts->first[hosts->mine ^ 1u << round], VIA_WORD_BACK + round);
        via_hosts_await(halving->team, VIA_WORD_BACK + round, halving->value);
        widen(halving, round, rounds);
    }
    if (has_extra)
        put_back(halving, extra, back);
}

void via_reduce_halving(const struct via_task *task)
{
    struct viaduct_shmem_team *team = task->group->team;
    const struct via_hosts *hosts = via_hosts_of(team);

    /* All members compute the same number. */
    team->pieces++;
    if (via_hosts_gather(team)) {
        struct halving halving = {.task = task,
                                  .team = team,
                                  .hosts = hosts,
                                  .value = team->pieces,
                                  .buffer = malloc(via_min(task->bytes, PIECE_BYTES)),
                                  .end = task->elements};
        if (!halving.buffer)
            via_fatal("%s: no memory for %zu elements", task->call, task->elements);
        via_reduce_host(task, hosts);
        run_rounds(&halving);
        free(halving.buffer);
    }
    via_hosts_release(team);
    via_reduce_spread(task, hosts);
}
