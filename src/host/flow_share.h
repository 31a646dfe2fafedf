/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_FLOW_SHARE_H
#define VIA_HOST_FLOW_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Which flows the commands of a user take to another host, on one channel.
 *
 * A message that its receiver does not take holds up everything behind it in its flow, for as long
 * as the message may wait. So a user's messages to a process that takes nothing must not be in the
 * flows of other users. A flow to a host belongs to one user while commands of this user are under
 * way to that host. A user takes another flow only while more are free than it has: the first user
 * gets half of them, the next one half of the rest, and so on. Users that come when none is free
 * share flows with others: more than five of them with 31 flows, more than three with 7.
 *
 * Commands keep their order within the flow that they ask for, so a wish is mapped to the same flow
 * until no command of the user is under way to the host. It belongs to the transfer thread of the
 * channel; the control thread only makes and frees it.
 */
#define VIA_FLOWS_SHARED_MAX 31u /* all but flow 0, which is the hosts' own */

/* Of one user, towards one host. All zeros: nothing is under way. */
struct via_flow_share {
    uint32_t under_way_count;
    uint32_t owned;                        /* bit f - 1: flow f */
    uint8_t flow_of[VIA_FLOWS_SHARED_MAX]; /* by wish; 0 = not mapped */
    uint8_t doubled_count;                 /* wishes that were mapped to a flow of another wish */
};

/* A command of the user with this wish begins; its flow, 1 to flows_count. taken: the flows to the
 * host that users have. wish < flows_count <= VIA_FLOWS_SHARED_MAX. */
uint16_t via_flow_share_begin(struct via_flow_share *share, uint32_t *taken, uint32_t wish,
                              uint32_t flows_count);
/* It has ended, or did not begin after all. */
void via_flow_share_end(struct via_flow_share *share, uint32_t *taken);

#endif
