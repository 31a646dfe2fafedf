/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_DEMOTE_H
#define VIA_SOCKETS_DEMOTE_H

#include <sys/socket.h>

#include "sockets/conn/conn.h"

/*
 * Demotion: a connection goes back to its kernel TCP connection permanently, because this end is
 * about to be used in a way that bypasses the library. The end that starts it (A) and its peer (B)
 * agree on the bytes like this:
 *
 * A writes DEMOTE after its last record; B reads the pipe up to there, then the kernel. Before, A
 * sends the bytes that B may not have read once more through the kernel (stream.h): at its next
 * call B does not need the pipe any more either, and may leave whatever has happened to A. Before
 * that A asks (VIA_FLAG_LEAVING), and B answers when it has seen the SWITCH and returned credit for
 * all read bytes (VIA_FLAG_READY). A stops reading the pipe at some byte and publishes it, with
 * VIA_FLAG_DEMOTE; B, at its next call, sends everything that it has written after that byte once
 * more through the kernel (stream_replay.h), writes to the kernel from then on, and answers
 * VIA_FLAG_HEEDED.
 *
 * An end that has closed its direction cannot send anything again: a B that has done so answers
 * VIA_FLAG_STAYS instead, or has closed, and if it left bytes in the pipe, A returns to the pipe
 * and reads them there.
 *
 * Between hosts the steps are the same, but B collects the bytes that it sends again: records that
 * went as frames are in its mirror, those that it stored itself it gets from A's host.
 *
 * Both may leave at once. An A that has sent again when it learns of that sends nothing more; B
 * finds DEMOTE in its pipe and discards the bytes that it had read already.
 *
 * A waits for the answer, because the SWITCH before its DEMOTE has to be seen by B before the
 * kernel carries A's next bytes. B is woken if it waits in a call of ours, and called if it sleeps
 * elsewhere (steward.h). If it works for long and makes no call, A goes on without the answer: B's
 * bytes arrive at B's next call, at the latest when it closes or ends.
 */

/*
 * Gives the connection back to the kernel. 0: done; -ETIMEDOUT: done, but the peer has not answered
 * yet. Other errors: nothing has changed, because the unread bytes can not be moved to the kernel
 * any more (-EPIPE: the peer has ended its direction), or the peer can not be notified (-EAGAIN, or
 * the fabric's error). No token is held.
 */
int via_conn_demote(struct via_op *op, enum via_reason reason);

/* For an acceptor whose offer was not taken, and can not be taken any more; its pipes are empty.
 * False if a signal handler has interrupted a call on the connection. */
bool via_conn_withdraw(struct via_op *op, enum via_reason reason);

/* The program has disconnected the socket (connect() to AF_UNSPEC) and may connect it again:
 * discards the bytes in the pipes. The kernel has the connection from now on. No token is held. */
void via_conn_abandon(struct via_op *op);

/* The same as via_conn_demote() by number; 0 if the number is not a connection of the library. */
int via_fd_demote(int fd, enum via_reason reason);

/* Demotes all connections of this process. The process makes no new ones. */
void via_demote_all(enum via_reason reason);

/* Called before exec: demotes the connections that the next program inherits. */
void via_demote_inherited(void);

/* The part of B, when via_conn_has_demotion_request(). No token is held. The caller updates
 * registrations in epoll sets (via_io_update_registrations, or the thread that waits there). */
void via_conn_follow_demotion(struct via_op *op);

/* Called before the last close, when the peer has announced that it leaves and this end has allowed
 * the bytes of its pipe to come by the kernel: waits until their number is known.
 * via_conn_follow_demotion() then discards them. */
void via_conn_await_leaving(struct via_op *op);

/* The first half of B's part, with the tx token: nothing more goes into the pipe. */
void via_conn_follow_demotion_tx(struct via_conn *conn, int fd);

/* With the tx token: writes this end's last record; later bytes go through the kernel. whole:
 * everything in the pipe has been sent by the kernel, too (stream.h). */
int via_conn_end_pipe_span(struct via_op *op, bool whole);

/* With the tx token: sends remaining bytes again. 0, -EAGAIN if the kernel accepts no more, or a
 * negative errno. */
int via_conn_replay(struct via_conn *conn, int fd);
/* Sends all of them, waiting for the kernel as long as it accepts some, and for a limited time when
 * it accepts none. Results as above; with the tx token, or by the only thread. */
int via_conn_replay_all(struct via_conn *conn, int fd, uint64_t patience_ns);
/* How long the last holder that could send again waits at its end. */
#define VIA_REPLAY_EXIT_NS (5 * VIA_SEC_NS)
/* Resets the connection, because bytes are lost: neither end may consider the stream complete. */
void via_conn_reset(int fd);

static inline bool via_conn_has_demotion_request(const struct via_conn *conn)
{
    const struct via_side *side = conn->side;
    return via_conn_has_pipes(conn) &&
           via_unlikely((via_side_flags(side) & (VIA_FLAG_DEMOTE | VIA_FLAG_LEAVING)) != 0);
}

/* Demotes the connections in sets that are in other sets. */
void via_demote_nested(void);

#endif
