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
 * Before connect(), the connector hangs a note on the board of the destination's host, under the
 * addresses of the connection: "I run Viaduct; put your offer into this slot of my mailbox". After
 * accept(), the acceptor looks for it; no note, and the peer is a plain program. The offer names
 * the acceptor's segment; the connector makes one too and announces it in the acceptor's (the hello
 * line).
 *
 * Each segment is the memory its owner reads. The peer posts into it directly where it is mapped;
 * else it builds the same bytes in a mirror of its own and puts them as frames. The method may
 * change at any record: positions are absolute, so the reader sees no difference.
 */
struct via_fabric;

/* Before connect(): binds the socket if it is not, and hangs the note. 0 or a negative errno. */
int via_fabric_prepare(struct via_conn *conn, int fd, const struct via_address *to, unsigned host);
/* After accept(): 0 when there was a note, -ENOENT, another negative errno. */
int via_fabric_accepted(struct via_conn *conn, const struct via_tuple *tuple, unsigned host);

/* Called by the acceptor: makes its segment and puts the offer. Then the side is attached. */
enum via_reason via_fabric_offer(struct via_conn *conn);
/* Called by the connector: 0 if the offer was there and is taken (the side is attached), -EAGAIN,
 * or an error: it can not be taken. */
int via_fabric_take(struct via_conn *conn);
/* Called by the acceptor, with an offer out: has the connector taken it? */
bool via_fabric_is_taken(struct via_conn *conn);

void via_fabric_free(struct via_conn *conn);

/* Has this process met a peer on another host? */
bool via_fabric_is_attached(void);

/* --- carrying -------------------------------------------------------------------------------- */

/*
 * With the tx token, around writing one record: begin decides the path; end sends it. 0, or -EAGAIN
 * if the path is full (then the record has not been written), or the connection is lost. wait: up
 * to a second for a full path.
 */
void via_fabric_tx_begin(struct via_conn *conn, struct via_carrier_undo *ret_undo);
int via_fabric_tx_end(struct via_conn *conn, const struct via_carrier_undo *undo, bool wait);

/* With the rx token, before reading and after: credits use the same paths. */
void via_fabric_rx_begin(struct via_conn *conn);
void via_fabric_rx_end(struct via_conn *conn);

/* Called before sleeping: with the rx token, and with the tx token. */
void via_fabric_rx_arm(struct via_conn *conn);
void via_fabric_tx_ask_for_room(struct via_conn *conn);

/* Sends the flags word to the peer, and a ring if it says that the pipes are left. wait: as above;
 * else -EAGAIN: via_fabric_resend_flags(). Otherwise 0. */
int via_fabric_send_flags(struct via_conn *conn, uint64_t flags, bool wait);

/* Have all frames arrived, or is there no destination any more? With the tx token. */
bool via_fabric_has_arrived(struct via_conn *conn);
/* Is the peer's address known? Otherwise nothing is ever sent: the peer has not taken the offer. */
bool via_fabric_has_peer(struct via_conn *conn);
/* Is the peer's host unreachable now? */
bool via_fabric_is_cut_off(const struct via_conn *conn);

/* --- returning to the kernel: demote.h ------------------------------------------------------- */

/* Called before this end leaves: 0 if the peer can be told; 1: it has no pipes, and will not get
 * any. */
int via_fabric_leave_begin(struct via_conn *conn);
/* With the tx token: repeats words for which the path had no room. */
void via_fabric_resend_flags(struct via_conn *conn);
/*
 * With the tx token: copies everything in the pipe that the peer has not given back into memory of
 * this end, to which the writer's target then points. 0, or a negative errno: the bytes are lost.
 * Waits for the peer's host.
 */
int via_fabric_gather(struct via_conn *conn);

/* Does a path that was full have enough room again to be called writable? */
bool via_fabric_has_way(struct via_conn *conn);

/* Were puts of this end cancelled, because its peer's host could not be reached for too long? Then
 * the two ends are no longer in step, whatever arrives later. Uses only what is known already. */
bool via_fabric_is_given_up(struct via_conn *conn);
/* For threads that never sleep, called now and then: handles the results of puts under way. */
void via_fabric_take_in(void);
/* Ends the connections of cancelled puts: a thread that sleeps on them, in any process, is woken by
 * the kernel's end. False: check again soon. No set's lock is held. */
bool via_fabric_has_given_up_end(void);

/* Has the peer's process or host gone, or ours? Asks the host: not for every call. */
bool via_fabric_is_over(struct via_conn *conn);

/*
 * The kernel has seen the end of the stream and the pipe has not: frames are slower than FIN. true
 * while the pipe should be given more time. A thread that sleeps then must check again after some
 * time: via_fabric_sleep_ns_max().
 */
bool via_fabric_is_follow_possible(struct via_conn *conn);
void via_fabric_follows_no_more(struct via_conn *conn);

/*
 * How it has ended, when the kernel has told so and nothing follows. A peer that was killed, or has
 * ended without closing, has sent FIN whatever was unread in the pipe. How far it had read is a
 * word of its memory, where this process has that mapped, or else its host keeps it for a while. As
 * long as that is not known, no end is reported: a sleeping thread checks again, as above.
 */
enum via_carrier_end via_fabric_end_of(struct via_conn *conn);

/* The same while no record has announced the use of the pipe: the word that does may be under
 * way. */
bool via_fabric_is_switch_allowed(struct via_conn *conn);

/* With the tx token: tells a peer that waits for such a word, and can not get it in its segment,
 * that none will come. */
void via_fabric_never_switches(struct via_conn *conn);
/* For a connector that refuses: the same to the maker of an offer, if there is one. flag: of
 * side.h. */
void via_fabric_decline(struct via_conn *conn, uint64_t flag);
uint64_t via_fabric_sleep_ns_max(void);

/* Handles the host's messages; afterwards its bell rings for new ones. Call it before the last
 * check for the awaited event. */
void via_fabric_before_sleep(void);

/* Called before fork(): waits until operations under way have arrived, as the child's bytes might
 * overtake them; to a host that is cut off the child's bytes are queued behind them instead. */
void via_fabric_fork_prepare(void);
void via_fabric_forked(void);
/* The process ends: hands operations under way to the host. */
void via_fabric_end(void);

#endif
