/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_FLOW_SHARE_H
#define VIA_HOST_FLOW_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The choice of flows for the commands of a user to another host, on one channel.
 *
 * A message that its receiver does not take holds up all later frames of its flow, until the
 * message times out. So a user's messages to a process that takes nothing must not be in the flows
 * of other users. A flow to a host belongs to one user while commands of this user are under way to
 * that host. A user gets a further flow only while more flows are free than the user has: the first
 * user gets half of them, the next one half of the rest, and so on. When no flow is free, further
 * users share flows with others: with 31 flows from the sixth user on, with 7 from the fourth on.
 *
 * A command names a preferred flow, and commands with the same preferred flow keep their order. So
 * a preferred flow is mapped to the same flow until no command of the user is under way to the
 * host. The mapping belongs to the transfer thread of the channel; the control thread only makes
 * and frees the mapping.
 */
#define VIA_FLOWS_SHARED_MAX 31u /* all but flow 0, which is the hosts' own */

/* Of one user, towards one host. All zeros: nothing is under way. */
struct via_flow_share {
    uint32_t under_way_count;
    uint32_t owned;                        /* bit f - 1: flow f */
    uint8_t flow_of[VIA_FLOWS_SHARED_MAX]; /* by preferred flow; 0 = not mapped */
    uint8_t doubled_count; /* preferred flows that were mapped to a flow of another one */
};

/* A command of the user with this preferred flow begins. Returns its flow, 1 to flows_count. taken:
 * the flows to the host that users have. preferred < flows_count <= VIA_FLOWS_SHARED_MAX. */
uint16_t via_flow_share_begin(struct via_flow_share *share, uint32_t *taken, uint32_t preferred,
                              uint32_t flows_count);
/* It has ended, or did not begin after all. */
void via_flow_share_end(struct via_flow_share *share, uint32_t *taken);

#endif
