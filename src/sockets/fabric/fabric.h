/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_FABRIC_H
#define VIA_SOCKETS_FABRIC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "sockets/conn/carrier.h"

/*
 * Connections between programs on two hosts of the fabric (viaduct run --host H).
 *
 * Before connect(), the connector posts a note on the board of the destination's host, under the
 * addresses of the connection: "I run Viaduct; put your offer into this slot of my mailbox". After
 * accept(), the acceptor searches for the note. Without a note the peer is a plain program. The
 * offer names the acceptor's segment; the connector makes one too and announces it in the
 * acceptor's (the hello line).
 *
 * Each segment is the memory its owner reads. The peer posts into it directly where it is mapped;
 * otherwise the peer builds the same bytes in a mirror of its own, and puts them as frames. The
 * method may change at any record: positions are absolute, so the reader sees no difference.
 */
struct via_fabric;

/* Called before connect(): binds the socket if it is not bound, and posts the note. 0 or a negative
 * errno. */
int via_fabric_prepare(struct via_conn *conn, int fd, const struct via_address *to, unsigned host);
/* Called after accept(). 0: there was a note; -ENOENT: there was none; or another negative
 * errno. */
int via_fabric_accepted(struct via_conn *conn, const struct via_tuple *tuple, unsigned host);

/* Called by the acceptor: makes its segment, puts the offer, and attaches the side. */
enum via_reason via_fabric_offer(struct via_conn *conn);
/* Called by the connector. 0: it has taken the offer (the side is attached); -EAGAIN: no offer yet;
 * or an error: the offer can not be taken. */
int via_fabric_take(struct via_conn *conn);
/* Called by an acceptor that has made an offer: has the connector taken it? */
bool via_fabric_is_taken(struct via_conn *conn);

void via_fabric_free(struct via_conn *conn);

/* Has this process met a peer on another host? */
bool via_fabric_is_attached(void);

/* --- carrying -------------------------------------------------------------------------------- */

/*
 * Called with the tx token around the writing of one record: begin decides the path, end sends the
 * record. 0, or -EAGAIN if the path is full (then the record has not been written), or the
 * connection is lost. wait: waits up to a second for a full path.
 */
void via_fabric_tx_begin(struct via_conn *conn, struct via_carrier_undo *ret_undo);
int via_fabric_tx_end(struct via_conn *conn, const struct via_carrier_undo *undo, bool wait);

/* Called with the rx token before and after reading: credits use the same paths. */
void via_fabric_rx_begin(struct via_conn *conn);
void via_fabric_rx_end(struct via_conn *conn);

/* Called before sleeping: with the rx token, and with the tx token. */
void via_fabric_rx_arm(struct via_conn *conn);
void via_fabric_tx_ask_for_room(struct via_conn *conn);

/* Sends the flags word to the peer, and a ring if the word says that this end has left the pipes.
 * wait: as above; without it -EAGAIN is possible: via_fabric_resend_flags(). Otherwise 0. */
int via_fabric_send_flags(struct via_conn *conn, uint64_t flags, bool wait);

/* With the tx token: have all frames arrived, or does their destination not exist any more? */
bool via_fabric_has_arrived(struct via_conn *conn);
/* Is the peer's segment known? If not, the peer has not taken the offer, and nothing is sent. */
bool via_fabric_has_peer(struct via_conn *conn);
/* Is the peer's host unreachable now? */
bool via_fabric_is_cut_off(const struct via_conn *conn);

/* --- returning to the kernel: demote.h ------------------------------------------------------- */

/* Called before this end leaves. 0: the peer can be notified; 1: the peer has no pipes, and will
 * not get any. */
int via_fabric_leave_begin(struct via_conn *conn);
/* With the tx token: sends words again for which the path had no room. */
void via_fabric_resend_flags(struct via_conn *conn);
/*
 * With the tx token: copies everything in the pipe for which the peer has not returned credit into
 * memory of this end, to which the writer's target then points. 0, or a negative errno: the bytes
 * are lost. Waits for the peer's host.
 */
int via_fabric_gather(struct via_conn *conn);

/* Has a path that was full enough room again for poll() to report POLLOUT? */
bool via_fabric_has_way(struct via_conn *conn);

/* Were puts of this end cancelled because its peer's host could not be reached for too long? Then
 * the streams of the two ends no longer agree, whatever arrives later. Uses only what is already
 * known. */
bool via_fabric_is_given_up(struct via_conn *conn);
/* For threads that never sleep, which call it now and then: handles the results of puts under
 * way. */
void via_fabric_handle_results(void);
/* Resets the connections of cancelled puts. A thread that sleeps on one of them, in any process, is
 * woken by the kernel's end. False: check again soon. No set's lock is held. */
bool via_fabric_has_given_up_end(void);

/* Has the peer's process or host ended, or this process's host? Asks the host: not for every
 * call. */
bool via_fabric_is_over(struct via_conn *conn);

/*
 * The kernel has seen the end of the stream and the pipe has not: frames are slower than FIN. True
 * while the pipe should be given more time. A sleeping thread must then check again after some
 * time: via_fabric_sleep_ns_max().
 */
bool via_fabric_is_follow_possible(struct via_conn *conn);
void via_fabric_stop_following(struct via_conn *conn);

/*
 * How the stream has ended, when the kernel has reported the end and nothing follows. The kernel of
 * a peer that was killed, or has ended without closing, sends FIN even if bytes in the pipe were
 * unread. How far the peer had read is a word of its memory: this process may have it mapped, or
 * else the peer's host keeps the word for a while. Until the word is known no end is reported: a
 * sleeping thread checks again, as above.
 */
enum via_carrier_end via_fabric_end_of(struct via_conn *conn);

/* The same while no record has announced the use of the pipe: that record may still be under
 * way. */
bool via_fabric_is_switch_allowed(struct via_conn *conn);

/* With the tx token: informs a peer that waits for that record that none will follow, if this can
 * not be written into its segment. */
void via_fabric_forbid_switch(struct via_conn *conn);
/* For a connector that refuses: tells the acceptor the same, if it has made an offer. flag: see
 * side.h. */
void via_fabric_decline(struct via_conn *conn, uint64_t flag);
uint64_t via_fabric_sleep_ns_max(void);

/* Handles the host's messages; afterwards the host's bell rings for new ones. To be called before
 * the last check for the awaited event. */
void via_fabric_before_sleep(void);

/* Called before fork(): waits until operations under way have arrived, because the child's bytes
 * might overtake them. For a host that is cut off it does not wait: the child's bytes are queued
 * behind those operations. */
void via_fabric_fork_prepare(void);
void via_fabric_forked(void);
/* The process ends: hands its operations under way to the host. */
void via_fabric_end(void);

#endif
