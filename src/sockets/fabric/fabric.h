/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_FABRIC_H
#define VIA_SOCKETS_FABRIC_H

#include <stdbool.h>
#include <stdint.h>

#include "sockets/conn/carrier.h"

/*
 * Connections between programs on two hosts of the fabric (viaduct run --host H).
 *
 * Before connect(), the connector posts a note on the board of the destination's host, under the
 * addresses of the connection. The note says that the connector runs Viaduct, and names the slot of
 * its mailbox for an offer. After accept(), the acceptor searches for the note. Without a note the
 * peer does not run Viaduct. The offer names the acceptor's segment; the connector makes a segment,
 * too, and announces it in the acceptor's (struct via_fabric_hello).
 *
 * The owner of a segment reads it. The peer stores into the segment where it is mapped; otherwise
 * the peer builds the same bytes in a mirror of its own, and puts them as frames. The path may
 * change at any record: all positions are absolute, so the reader sees no difference.
 */
struct via_fabric;

/* Called before connect(): binds the socket if it is not bound, and posts the note. 0 or a negative
 * errno. */
int via_fabric_prepare(struct via_conn *conn, int fd, const struct via_address *to, unsigned host);
/* Called after accept(): takes the note. 0; -ENOENT: there was none; or another negative errno. */
int via_fabric_accepted(struct via_conn *conn, const struct via_tuple *tuple, unsigned host);

/* Called by the acceptor: makes its segment, puts the offer, and attaches the side. */
enum via_reason via_fabric_offer(struct via_conn *conn);
/* Called by the connector. 0: it has taken the offer (the side is attached); -EAGAIN: no offer yet;
 * or an error: the offer can not be taken. */
int via_fabric_take(struct via_conn *conn);
/* For an acceptor that has made an offer: true if the connector has taken it. */
bool via_fabric_is_taken(struct via_conn *conn);

void via_fabric_free(struct via_conn *conn);

/* True if this process has an attachment to its host. */
bool via_fabric_is_attached(void);

/* --- carrying -------------------------------------------------------------------------------- */

/* As the operations of these names in carrier.h. */
void via_fabric_tx_begin(struct via_conn *conn, struct via_carrier_undo *ret_undo);
int via_fabric_tx_end(struct via_conn *conn, const struct via_carrier_undo *undo, bool wait);
void via_fabric_rx_begin(struct via_conn *conn);
void via_fabric_rx_end(struct via_conn *conn);

/* Called before sleeping: with the rx token, and with the tx token. */
void via_fabric_rx_arm(struct via_conn *conn);
void via_fabric_tx_request_room(struct via_conn *conn);

/* Sends the flags word to the peer, and wakes it if the word says that this end leaves the pipes or
 * answers that. wait: as in carrier.h; without it the result may be -EAGAIN: then call
 * via_fabric_resend_flags() later. Otherwise 0. */
int via_fabric_send_flags(struct via_conn *conn, uint64_t flags, bool wait);

/* With the tx token: true if all frames have arrived, or their destination does not exist any
 * more. */
bool via_fabric_has_arrived(struct via_conn *conn);
/* True if the peer's segment is known. If not, the peer has not taken the offer, and nothing is
 * sent. */
bool via_fabric_has_peer(struct via_conn *conn);
/* True if no path leads to the peer's host now. */
bool via_fabric_is_cut_off(const struct via_conn *conn);

/* --- returning to the kernel: demote.h ------------------------------------------------------- */

/* Called before this end leaves the pipes. 0: the peer can be notified; 1: the peer has no pipes,
 * and will not get any; or a negative errno. */
int via_fabric_leave_begin(struct via_conn *conn);
/* With the tx token: sends the flags again if the path had no room for them. */
void via_fabric_resend_flags(struct via_conn *conn);
/*
 * With the tx token: copies all records for which the peer has not returned credit into memory of
 * this end, to which the writer's target then points. Waits for the peer's host. 0, or a negative
 * errno: the bytes are lost.
 */
int via_fabric_gather(struct via_conn *conn);

/* True if a path that was full has enough room again for poll() to report POLLOUT. */
bool via_fabric_has_path_room(struct via_conn *conn);

/* True if the host has cancelled puts of this end, because the peer's host was unreachable for too
 * long. Then the streams of the two ends do not agree any more. Makes no request to the host. */
bool via_fabric_is_given_up(struct via_conn *conn);
/* Handles the results of puts under way. For threads that never sleep, which call this from time to
 * time. */
void via_fabric_handle_results(void);
/* Resets the connections of cancelled puts, once for each cancellation; the kernel's event wakes
 * threads that sleep on them, in any process. True if there was nothing to do; false: check again
 * soon. No lock of an epoll set is held. */
bool via_fabric_reset_given_up(void);

/* True if the peer's process or host has ended, or the daemon of this process's host. Makes a
 * request to the daemon, so it is not for every call of the program. */
bool via_fabric_is_over(struct via_conn *conn);

/*
 * Called when the kernel has reported the end, and the pipe has no FIN: frames are slower than the
 * kernel's FIN. True while records may still arrive. Then a sleeping thread must check again after
 * via_fabric_sleep_ns_max().
 */
bool via_fabric_is_follow_possible(struct via_conn *conn);
void via_fabric_stop_following(struct via_conn *conn);

/*
 * How the stream has ended, when the kernel has reported the end and nothing follows. The kernel of
 * a peer that was killed, or has exited without close(), sends FIN even if bytes in the pipe were
 * unread. The peer has published how far it had read, in a word of its own memory. This process may
 * have that mapped; otherwise the peer's host keeps the word for a while. OPEN: the word is not
 * known yet; no end is reported, and a sleeping thread checks again, as above.
 */
enum via_carrier_end via_fabric_end_of(struct via_conn *conn);

/* As via_fabric_is_follow_possible(), for a reader that has not read SWITCH: that record may still
 * be under way. */
bool via_fabric_is_switch_allowed(struct via_conn *conn);

/* With the tx token: announces to a peer that waits for SWITCH that none will follow, if this can
 * not be written into its segment. */
void via_fabric_forbid_switch(struct via_conn *conn);
/* For a connector that takes no offer: announces the same to the acceptor, if it has made an offer.
 * flag: see side.h. */
void via_fabric_decline(struct via_conn *conn, uint64_t flag);
uint64_t via_fabric_sleep_ns_max(void);

/* Handles the daemon's messages; for later ones the daemon rings the attachment's bell. Called
 * before the last check for the awaited event. */
void via_fabric_before_sleep(void);

/* Called before fork(): waits until puts under way have arrived, because the child's bytes might
 * overtake them. If a host is cut off it does not wait that long: then the child's bytes are queued
 * behind these puts. */
void via_fabric_fork_prepare(void);
void via_fabric_forked(void);
/* Called when the process ends: hands its puts under way to the daemon. */
void via_fabric_end(void);

#endif
