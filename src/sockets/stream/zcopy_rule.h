/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_ZCOPY_RULE_H
#define VIA_SOCKETS_ZCOPY_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Whether to copy or to have fetched, by the size of a send: learned from how long sends take
 * either way. What one thread can measure by itself says little: copies through a pipe cost what it
 * takes to get lines from one processor to the other and to take turns. So most sends go one way,
 * and now and then some go the other. Those are compared with the last before them only: the same
 * way takes half as long or twice at other moments, when processors move or others want them. The
 * last few comparisons decide, by their median; in doubt it is copied. Pure.
 *
 * The first sends of either way do not count: they find the pipe empty, have to wait for what was
 * copied before them, or for a reader who slept.
 */
#define VIA_ZCOPY_LEAST (64u * 1024)
#define VIA_ZCOPY_SIZES 7u /* doubling, to 4 MiB and all beyond */
#define VIA_ZCOPY_PARTS 4u
#define VIA_ZCOPY_PART 8u /* sends of the smallest sizes; of larger ones fewer */
#define VIA_ZCOPY_SKIP(part) (2u * (part))
#define VIA_ZCOPY_BLOCK(part) (VIA_ZCOPY_SKIP(part) + VIA_ZCOPY_PARTS * (part))
#define VIA_ZCOPY_DECIDES 3u /* so many comparisons are needed */
#define VIA_ZCOPY_REMEMBERS 5u
/* Sends until the next comparison: when the last one was for the other way; twice as many each
 * time, up to one of these: when the other way is about as fast, and when it is not. */
#define VIA_ZCOPY_AGAIN 128u
#define VIA_ZCOPY_OFTEN 4096u
#define VIA_ZCOPY_SELDOM 8192u

/* Sends one way, in parts, of which the last count. */
struct via_zcopy_block {
    uint32_t parts;
    uint32_t sends; /* of the part under way */
    uint64_t time;
    uint64_t bytes;
    uint32_t costs[VIA_ZCOPY_PARTS]; /* time for 1,000 bytes */
};

struct via_zcopy_choice {
    bool fetches;   /* most sends are fetched */
    bool other;     /* now they go the other way */
    uint32_t sends; /* so many have, since they do */
    uint32_t until; /* how many go the way of most */
    uint32_t part;
    uint32_t compared;
    uint16_t ratios[VIA_ZCOPY_REMEMBERS]; /* fetch to copy, VIA_ZCOPY_SAME: alike */
    struct via_zcopy_block block[2];      /* of the way of most, of the other */
};
_Static_assert(VIA_ZCOPY_PART >> (VIA_ZCOPY_SIZES - 1) / 2 >= 1 &&
                   VIA_ZCOPY_AGAIN >= VIA_ZCOPY_BLOCK(VIA_ZCOPY_PART),
               "every size has parts, and a block fits before the next comparison");
#define VIA_ZCOPY_SAME 256u

/* Of which size is it? bytes >= VIA_ZCOPY_LEAST. */
unsigned via_zcopy_size(size_t bytes);

/* One more send of this size: fetch? */
bool via_zcopy_choose(struct via_zcopy_choice *choice);
/* Does it matter how long that takes? */
bool via_zcopy_is_measured(const struct via_zcopy_choice *choice);
/* Nothing is known yet. */
void via_zcopy_begin(struct via_zcopy_choice choices[VIA_ZCOPY_SIZES]);
/* It took so long, in any unit. */
void via_zcopy_learn(struct via_zcopy_choice *choice, bool fetched, size_t bytes, uint64_t time);

#endif
