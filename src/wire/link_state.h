/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_WIRE_LINK_STATE_H
#define VIA_WIRE_LINK_STATE_H

#include <stdint.h>

#include "wire/record.h"

/*
 * The link-state announcement: one or more records of a control pipe. Head of each: struct
 * via_announcement. Body: up to VIA_LINK_STATE_PART_NEIGHBOURS entries of struct
 * via_announcement_neighbour, ascending by host over all records of the announcement.
 *
 * A host announces the neighbours it has links up to, with the session it has shaken hands with: an
 * edge counts only when both ends announce the session the other one lives in, so what remains of
 * an earlier life of a host never makes a route.
 *
 * Records of one announcement follow each other in the pipe. A record with first = 0 begins an
 * announcement; what was not complete before it is void.
 */
#define VIA_LINK_STATE_KIND 1u
#define VIA_LINK_STATE_PART_NEIGHBOURS 16u
/* Announcements at or past it are malformed. */
#define VIA_LINK_STATE_SEQUENCE_MAX (UINT64_C(1) << 62)
/*
 * Numbers from here on are high (the time of day reaches them in 2079). A host uses one only to
 * outnumber a false announcement about itself. Every host forgets a high number
 * VIA_LINK_STATE_FORGET_NS after it has taken the announcement: the announcement then counts as
 * number 1. So no false announcement stays the newest permanently, and its victim, which cannot
 * exceed the last number, has only to wait.
 */
#define VIA_LINK_STATE_SEQUENCE_HIGH (VIA_LINK_STATE_SEQUENCE_MAX / 4 * 3)
#define VIA_LINK_STATE_FORGET_NS UINT64_C(1000000000)

struct via_announcement {
    uint8_t kind;
    uint8_t reserved; /* 0 */
    uint16_t host;
    uint32_t session;
    uint64_t sequence; /* newer is greater; equal: the greater session, then the greater list
                          of neighbours */
    uint16_t neighbours_count; /* in all records of the announcement, less than the ids there are */
    uint16_t first; /* index of this record's first entry, a multiple of the entries of a record */
    uint32_t reserved2; /* 0 */
};
_Static_assert(sizeof(struct via_announcement) == 24, "no padding on the wire");

struct via_announcement_neighbour {
    uint16_t host;
    uint16_t reserved; /* 0 */
    uint32_t session;
};
_Static_assert(sizeof(struct via_announcement_neighbour) == 8, "no padding on the wire");

/*
 * A change: an announcement as it differs from the one before it, in one record. Head: struct
 * via_announcement, `neighbours_count` of the whole announcement, `first` 0. Body: struct
 * via_change, then 1 to VIA_LINK_STATE_CHANGE_NEIGHBOURS entries, ascending by host; the session is
 * 0 in the entry of a neighbour that has gone.
 *
 * A receiver that has exactly the announcement before, and to which the digest says that both have
 * the same neighbours now, has received the whole announcement. Any other receiver answers with the
 * announcement it has, as to one that is older; the sender then sends the whole one.
 */
#define VIA_LINK_STATE_CHANGE_KIND 2u
#define VIA_LINK_STATE_CHANGE_NEIGHBOURS 14u

struct via_change {
    uint64_t base;   /* sequence number of the announcement before */
    uint64_t digest; /* of the neighbours, after the change */
};
_Static_assert(sizeof(struct via_change) == 16, "no padding on the wire");

/* Entries in the record of an announcement that begins with entry `first`. */
static inline unsigned via_announcement_entries(unsigned neighbours_count, unsigned first)
{
    unsigned left = neighbours_count - first;
    return left < VIA_LINK_STATE_PART_NEIGHBOURS ? left : VIA_LINK_STATE_PART_NEIGHBOURS;
}

/* The control pipe, the same in every configuration. */
#define VIA_CONTROL_PIPE_SLOTS 16u
#define VIA_CONTROL_PIPE_BODY_BYTES 128u
_Static_assert(VIA_CONTROL_PIPE_BODY_BYTES >=
                   VIA_LINK_STATE_PART_NEIGHBOURS * sizeof(struct via_announcement_neighbour),
               "the body of a record");
_Static_assert(VIA_CONTROL_PIPE_BODY_BYTES >=
                   sizeof(struct via_change) +
                       VIA_LINK_STATE_CHANGE_NEIGHBOURS * sizeof(struct via_announcement_neighbour),
               "the body of a change");

#endif
