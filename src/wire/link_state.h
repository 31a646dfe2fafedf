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
 * A host announces the neighbours to which it has links up, each with the session of its handshake.
 * An edge counts only if both ends announce each other's present session. So announcements that
 * remain from an earlier session of a host never make a route.
 *
 * The records of one announcement follow each other in the pipe. A record with first = 0 begins an
 * announcement; an incomplete one before it is void.
 */
#define VIA_LINK_STATE_KIND 1u
#define VIA_LINK_STATE_PART_NEIGHBOURS 16u
/* An announcement with this sequence number or a greater one is malformed. */
#define VIA_LINK_STATE_SEQUENCE_MAX (UINT64_C(1) << 62)
/*
 * Sequence numbers from here on are high (the time of day reaches them in 2079). A host uses one
 * only to outnumber a false announcement about itself. Every host forgets a high number
 * VIA_LINK_STATE_FORGET_NS after it has taken the announcement: from then on the announcement
 * counts as number 1. So no false announcement stays the newest permanently. Its victim, which can
 * not exceed the last number, only has to wait.
 */
#define VIA_LINK_STATE_SEQUENCE_HIGH (VIA_LINK_STATE_SEQUENCE_MAX / 4 * 3)
#define VIA_LINK_STATE_FORGET_NS UINT64_C(1000000000)

struct via_announcement {
    uint8_t kind;
    uint8_t reserved; /* 0 */
    uint16_t host;
    uint32_t session;
    /* the greater one is newer; if equal, the greater session, then the greater list of
     * neighbours */
    uint64_t sequence;
    /* in all records of the announcement; less than the number of host ids */
    uint16_t neighbours_count;
    /* index of this record's first entry; a multiple of VIA_LINK_STATE_PART_NEIGHBOURS */
    uint16_t first;
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
 * A change: the difference of an announcement from the one before it, in one record. Head: struct
 * via_announcement, `neighbours_count` of the whole announcement, `first` 0. Body: struct
 * via_change, then 1 to VIA_LINK_STATE_CHANGE_NEIGHBOURS entries, ascending by host. Session 0
 * marks a neighbour that was removed.
 *
 * A receiver has received the whole announcement if it has the announcement before, and if the
 * digest matches its neighbours after the change. Any other receiver answers with the announcement
 * that it has, as for an older one, and the sender then sends the whole announcement.
 */
#define VIA_LINK_STATE_CHANGE_KIND 2u
#define VIA_LINK_STATE_CHANGE_NEIGHBOURS 14u

struct via_change {
    uint64_t base;   /* sequence number of the announcement before the change */
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
