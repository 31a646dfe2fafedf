/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_ZCOPY_RULE_H
#define VIA_SOCKETS_ZCOPY_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Whether to copy or to have fetched, by the size of a send: learned from how long sends take
 * either way. What one thread can measure by itself says little: copies through a pipe cost what it
 * takes to get lines from one processor to the other and to take turns. So the first sends of a
 * size go one way, the next ones the other; then it is the faster way, and now and then the other,
 * should things have changed. Pure.
 *
 * Ways are compared by blocks of sends, without the first of each: those find the pipe empty, or
 * have to wait for what was copied before them.
 */
#define VIA_ZCOPY_LEAST (64u * 1024)
#define VIA_ZCOPY_SIZES 7u /* doubling, to 4 MiB and all beyond */
#define VIA_ZCOPY_BLOCK 12u
#define VIA_ZCOPY_BLOCK_SKIP 4u
#define VIA_ZCOPY_EXPLORE 512u /* after so many sends, a block goes the other way */
/* ... or after so many, when that takes a quarter longer: a block may cost what dozens of sends do.
 * Not among the first, as both the first block and the next may have been interrupted. */
#define VIA_ZCOPY_EXPLORE_SELDOM 8192u
#define VIA_ZCOPY_EXPLORE_OFTEN (2 * VIA_ZCOPY_EXPLORE)

struct via_zcopy_choice {
    uint32_t tries;
    uint32_t copy_ps; /* for a byte, undisturbed; 0: not known */
    uint32_t fetch_ps;
    bool prior; /* fetch, as long as either is not known */
    /* the block under way */
    bool run_fetched;
    uint32_t run;
    uint64_t run_ns;
    uint64_t run_bytes;
};

/* Of which size is it? bytes >= VIA_ZCOPY_LEAST. */
unsigned via_zcopy_size(size_t bytes);

/* One more send of this size: fetch? */
bool via_zcopy_choose(struct via_zcopy_choice *choice);
/* It took so long. true when now, for the first time, both ways are known. */
bool via_zcopy_learn(struct via_zcopy_choice *choice, bool fetched, size_t bytes, uint64_t ns);

/* What was learned, in a number: from which size on to fetch. SIZE_MAX: never; 0: nothing was. */
size_t via_zcopy_least_of(struct via_zcopy_choice choices[VIA_ZCOPY_SIZES]);
/* And back: begins with it, without trying. */
void via_zcopy_begin(struct via_zcopy_choice choices[VIA_ZCOPY_SIZES], size_t least);

/* The line of text in which it is kept. `machine` is what it depends on; without spaces. The
 * length, or -1 when it does not fit. */
int via_zcopy_format(char *ret_line, size_t max, const char *machine, size_t least);
/* 0 and *ret_least; -1 when it is of another machine, or not such a line. */
int via_zcopy_parse(const char *line, const char *machine, size_t *ret_least);

#endif
