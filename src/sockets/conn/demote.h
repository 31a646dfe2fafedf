/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_DEMOTE_H
#define VIA_SOCKETS_DEMOTE_H

#include <sys/socket.h>

#include "sockets/conn/conn.h"

/*
 * Demotion: a connection goes back to its kernel TCP connection permanently, because this end is
 * about to be used in a way that passes us by. The end that starts it (A) and its peer (B) agree on
 * the bytes like this:
 *
 * A writes DEMOTE after its last record; B reads the pipe up to there, then the kernel. Before, A
 * sends what it has written and B perhaps not read once more through the kernel (stream.h): B, as
 * soon as it comes by, needs the pipe no more either, and may leave whatever has become of A.
 * Before that A asks (VIA_FLAG_LEAVING), and B answers when it has seen the SWITCH and given back
 * what it has read (VIA_FLAG_READY). A stops reading the pipe at some byte and says which, with
 * VIA_FLAG_DEMOTE; B, when it next comes by, sends all that it has written after that byte once
 * more through the kernel (stream_replay.h), writes to the kernel from then on, and answers
 * VIA_FLAG_HEEDED.
 *
 * An end that has closed its direction cannot send anything again: a B that has says so instead
 * (VIA_FLAG_STAYS), or has closed, and if it left bytes in the pipe, A takes all back and reads
 * them there.
 *
 * Between hosts all is the same, but B gathers what it sends again: records that went as frames are
 * in its mirror, those that it stored itself it gets from A's host.
 *
 * Both may leave at once. An A that has sent again when it hears of that sends nothing more; B
 * finds DEMOTE in its pipe and throws away what it had read of it.
 *
 * A waits for the answer, because the SWITCH before its DEMOTE has to be seen by B before the
 * kernel carries A's next bytes. B is woken if it waits in a call of ours, and called if it sleeps
 * elsewhere (steward.h). If it works for long and makes no call, A goes on without: what B has sent
 * arrives when B comes by again, at the latest when it closes or ends.
 */

/*
 * The connection is to be the kernel's from now on: 0 when it is; -ETIMEDOUT: it is, but the peer
 * has not answered yet; other errors: it is as it was, because the bytes that are unread can not be
 * brought to the kernel any more (-EPIPE: the peer has ended its direction) or the peer can not be
 * told (-EAGAIN, or what is wrong with the fabric). No token is held.
 */
int via_conn_demote(struct via_op *op, enum via_reason reason);

/* Of an acceptor whose offer nobody has taken, and nobody can take any more: nothing is in the
 * pipes. False if a signal handler has interrupted a call on it. */
bool via_conn_withdraw(struct via_op *op, enum via_reason reason);

/* The same by number; 0 for what is no connection of ours. */
int via_fd_demote(int fd, enum via_reason reason);

/* All of this process, and no new ones. */
void via_demote_all(enum via_reason reason);

/* Before exec: those that the next program will have. */
void via_demote_inherited(void);

/* B's part, when via_conn_has_demotion_request(). No token is held. Registrations in epoll sets are
 * left to the caller (via_io_after, or what waits there). */
void via_conn_follow_demotion(struct via_op *op);

/* Before the last close: the peer has said that it leaves, and this end that what is in its pipe
 * may come by the kernel. That is thrown away by via_conn_follow_demotion(), once it is known how
 * much it is.
 */
void via_conn_await_leaving(struct via_op *op);

/* Its first half, with the tx token: nothing goes into the pipe any more. */
void via_conn_follow_demotion_tx(struct via_conn *conn, int fd);

/* With the tx token: the last record of this end's; what follows goes by the kernel. whole: which
 * has all that is in the pipe already (stream.h). */
int via_conn_end_pipe_span(struct via_op *op, bool whole);

/* With the tx token: sends what is still to be sent again. 0, -EAGAIN when the kernel takes no
 * more, or a negative errno. */
int via_conn_replay(struct via_conn *conn, int fd);
/* All of it, waiting for the kernel as long as that takes some, and so long when it takes none. As
 * above; with the tx token, or nobody else around. */
int via_conn_replay_all(struct via_conn *conn, int fd, uint64_t patience_ns);
/* How long the last who could send it waits. */
#define VIA_REPLAY_EXIT_NS (5 * VIA_SEC_NS)
/* Bytes are lost: neither end may take the stream for whole. */
void via_conn_reset(int fd);

static inline bool via_conn_has_demotion_request(const struct via_conn *conn)
{
    const struct via_side *side = conn->side;
    return via_conn_has_pipes(conn) &&
           via_unlikely((via_side_flags(side) & (VIA_FLAG_DEMOTE | VIA_FLAG_LEAVING)) != 0);
}

/* Those in sets that are in others. */
void via_demote_nested(void);

#endif
