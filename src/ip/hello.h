/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Messages by which two hosts agree on a pair of inboxes. Only the owner of a host and root may use
 * their endpoints. The host with the lower id is the leader.
 *
 * - OFFER, leader to follower: a session, and the leader's inbox for it.
 * - ACCEPT, the answer: the follower's inbox. Both inboxes are empty when a session begins.
 * - REQUEST, follower to leader: requests an offer; `session` is the broken session, 0 = none.
 * - BYE, in either direction: ends the session.
 *
 * All contents except the sender's host id are hostile input. Pure.
 */
#ifndef VIA_IP_HELLO_H
#define VIA_IP_HELLO_H

#include "base/types.h"

/* Queue q of a host has endpoint VIA_IP_ENDPOINT + q. */
#define VIA_IP_ENDPOINT 0xfffffe00u
#define VIA_IP_QUEUES_MAX 8u

#define VIA_IP_HELLO_MAGIC 0x50494156u /* "VAIP" */
#define VIA_IP_HELLO_VERSION 1u

enum via_ip_hello_type {
    VIA_IP_HELLO_OFFER = 1,
    VIA_IP_HELLO_ACCEPT = 2,
    VIA_IP_HELLO_REQUEST = 3,
    VIA_IP_HELLO_BYE = 4,
};

/* Contents of frames that the sender accepts, besides whole packets. */
#define VIA_IP_OFFLOAD_TCP 1u /* checksums, segments of TCP */
#define VIA_IP_OFFLOAD_UDP 2u /* segments of UDP */

struct via_ip_hello {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint64_t session;
    uint64_t handle;     /* of the sender's inbox: OFFER, ACCEPT */
    uint64_t ring_bytes; /* of that inbox */
    uint32_t offloads;
    uint16_t queues; /* of the sender */
    uint16_t reserved;
};
_Static_assert(sizeof(struct via_ip_hello) == 40, "without holes");

/*
 * Copies and checks a message of `bytes` bytes. 0: a hello of this version with a known type and
 * valid values. -EPROTO: malformed. -EPROTONOSUPPORT: another version, stored in *ret_version;
 * other results leave *ret_version unchanged.
 */
int via_ip_hello_check(const void *data, size_t bytes, struct via_ip_hello *ret_hello,
                       uint16_t *ret_version) VIA_MUST_CHECK;

#endif
