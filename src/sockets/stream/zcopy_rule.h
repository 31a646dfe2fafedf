/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_ZCOPY_RULE_H
#define VIA_SOCKETS_ZCOPY_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Decides by the size of a send whether to copy its bytes or to let the receiver fetch them. The
 * decision is learned from how long sends by either method take. Measurements of one thread alone
 * prove little: the cost of copies through a pipe depends on the transfer of cache lines between
 * CPUs and on scheduling. So most sends use one method, and from time to time some use the other
 * method. Those are compared only with the last sends before them: the same method takes half or
 * twice as long at other moments, when threads change their CPUs or other threads run. The median
 * of the last few comparisons decides; until there are enough of them, most sends are copied. No
 * I/O.
 *
 * The first sends by either method do not count: they find the pipe empty, or have to wait for
 * earlier copies or for a reader that slept.
 */
#define VIA_ZCOPY_LEAST (64u * 1024)
#define VIA_ZCOPY_SIZES 7u /* sizes double; the last class has no limit */
#define VIA_ZCOPY_PARTS 4u
#define VIA_ZCOPY_PART 8u /* sends of the smallest sizes in a part; fewer of larger sizes */
#define VIA_ZCOPY_SKIP(part) (2u * (part))
#define VIA_ZCOPY_BLOCK(part) (VIA_ZCOPY_SKIP(part) + VIA_ZCOPY_PARTS * (part))
#define VIA_ZCOPY_DECIDES 3u /* comparisons needed for a decision */
#define VIA_ZCOPY_REMEMBERS 5u
/* Sends until the next comparison: VIA_ZCOPY_AGAIN if the last comparison favoured the other
 * method. Otherwise twice as many each time, up to VIA_ZCOPY_OFTEN if the other method is about as
 * fast, and up to VIA_ZCOPY_SELDOM if it is not. */
#define VIA_ZCOPY_AGAIN 128u
#define VIA_ZCOPY_OFTEN 4096u
#define VIA_ZCOPY_SELDOM 8192u

/* Sends by one method, in parts. The last VIA_ZCOPY_PARTS parts count. */
struct via_zcopy_block {
    uint32_t parts;
    uint32_t sends; /* sends of the part in progress */
    uint64_t time;
    uint64_t bytes;
    uint32_t costs[VIA_ZCOPY_PARTS]; /* time for 1,000 bytes */
};

struct via_zcopy_choice {
    bool fetches;   /* most sends are fetched */
    bool other;     /* now the other method is being tried */
    uint32_t sends; /* sends since the last change of the method */
    uint32_t until; /* number of sends by the majority's method before the next comparison */
    uint32_t part;
    uint32_t compared;
    uint16_t ratios[VIA_ZCOPY_REMEMBERS]; /* costs of fetching relative to copying; VIA_ZCOPY_SAME:
                                             equal */
    struct via_zcopy_block block[2];      /* of the majority's method, and of the other one */
};
_Static_assert(VIA_ZCOPY_PART >> (VIA_ZCOPY_SIZES - 1) / 2 >= 1 &&
                   VIA_ZCOPY_AGAIN >= VIA_ZCOPY_BLOCK(VIA_ZCOPY_PART),
               "every size has parts, and a block fits before the next comparison");
#define VIA_ZCOPY_SAME 256u

/* Returns the class of a size. bytes >= VIA_ZCOPY_LEAST. */
unsigned via_zcopy_size(size_t bytes);

/* Begins a send of this class. Returns whether the receiver must fetch it. */
bool via_zcopy_choose(struct via_zcopy_choice *choice);
/* True if the caller must report the send's duration to via_zcopy_learn(). */
bool via_zcopy_is_measured(const struct via_zcopy_choice *choice);
/* Initialises the choices: most sends are copied until measurements favour fetching. */
void via_zcopy_begin(struct via_zcopy_choice choices[VIA_ZCOPY_SIZES]);
/* Reports the duration of a send, in any unit. */
void via_zcopy_learn(struct via_zcopy_choice *choice, bool fetched, size_t bytes, uint64_t time);

#endif
