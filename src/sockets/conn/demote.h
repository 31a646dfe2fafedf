/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_DEMOTE_H
#define VIA_SOCKETS_DEMOTE_H

#include "sockets/conn/conn.h"

/*
 * Demotion: a connection returns to its kernel TCP connection permanently, because the program is
 * about to use this end in a way that bypasses the library (exec, an io_uring, an option that pipes
 * do not support). The end that starts the demotion (A) and its peer (B) agree as follows on which
 * bytes go through the kernel:
 *
 * A writes DEMOTE after its last record; B reads the pipe up to there, then the kernel. Before it
 * writes DEMOTE, A resends the bytes that B may not have read through the kernel (stream.h): so B
 * does not need the pipe at its next call, and can leave even if A has ended by then. Before it
 * resends, A sets VIA_FLAG_LEAVING, and B answers VIA_FLAG_READY when it has seen the SWITCH
 * and returned credit for all bytes read. A stops reading the pipe at some byte and publishes it,
 * with VIA_FLAG_DEMOTE; B, at its next call, resends everything that it has written after that byte
 * through the kernel (stream_replay.h), writes to the kernel from then on, and answers
 * VIA_FLAG_FOLLOWS.
 *
 * After shutdown(SHUT_WR) or close() an end can not resend anything. Such a B answers
 * VIA_FLAG_STAYS instead, or has closed; and if B left bytes in the pipe, A returns to the pipe and
 * reads them there.
 *
 * Between hosts the steps are the same, but B has to collect the bytes that it resends: its mirror
 * contains the records that went as frames; those that it stored through the window it fetches from
 * A's host.
 *
 * Both may leave at once. An A that has resent its bytes before it sees B's DEMOTE flag resends
 * nothing more; B finds DEMOTE in its pipe and discards the resent bytes that it had read already.
 *
 * A waits for the answer, because B must have read the SWITCH when A sends its next bytes through
 * the kernel. A wakes a thread of B that waits in a call of the library, and calls a thread that
 * sleeps elsewhere (steward.h). If B makes no call for some seconds (demote.c), A goes on without
 * the answer: B resends its bytes at its next call, at the latest when it closes the connection or
 * exits.
 */

/*
 * Gives the connection back to the kernel. 0: done; -ETIMEDOUT: done, but the peer has not answered
 * yet. Other errors: nothing has changed, because the unread bytes can not be moved to the kernel
 * any more (-EPIPE: the peer has ended its direction), or this end can not notify the peer
 * (-EAGAIN, or the fabric's error). No token is held.
 */
int via_conn_demote(struct via_op *op, enum via_reason reason);

/* Ends the pipes without waiting for a peer. Event WITHDRAW: for an acceptor whose offer the
 * connector has not taken, and can not take any more; the pipes are empty. False if a signal
 * handler has interrupted a call on the connection. */
bool via_conn_end_pipes(struct via_op *op, enum via_event event, enum via_reason reason);

/* The program has disconnected the socket (connect() to AF_UNSPEC) and may connect it again:
 * discards the bytes in the pipes. The kernel has the connection from now on. No token is held. */
void via_conn_abandon(struct via_op *op);

/* The same as via_conn_demote(), for a descriptor; 0 if the descriptor is not a connection of the
 * library. */
int via_fd_demote(int fd, enum via_reason reason);

/* Demotes all connections of this process. The process makes no new ones. */
void via_demote_all(enum via_reason reason);

/* Called before exec: demotes the connections whose descriptors the new program inherits (no
 * FD_CLOEXEC). */
void via_demote_inherited(void);

/* The part of B, when via_conn_has_demotion_request(). No token is held. The caller updates
 * registrations in epoll sets (via_io_update_registrations, or the thread that waits there). */
void via_conn_follow_demotion(struct via_op *op);

/* Called before the last close, when the peer has announced that it leaves and this end has
 * answered READY: waits until the peer has published how many bytes of its pipe it has resent.
 * via_conn_follow_demotion() then discards those that this end has read. */
void via_conn_await_leaving(struct via_op *op);

/* The first half of B's part, with the tx token: from then on B writes nothing into the pipe. */
void via_conn_follow_demotion_tx(struct via_conn *conn, int fd);

/* With the tx token: writes this end's last record; later bytes go through the kernel. whole:
 * everything in the pipe has been sent by the kernel, too (stream.h). */
int via_conn_end_pipe_span(struct via_op *op, bool whole);

/* With the tx token: resends the remaining bytes. 0, -EAGAIN if the kernel accepts no more, or
 * another negative errno. */
int via_conn_replay(struct via_conn *conn, int fd);
/* Resends all remaining bytes: goes on while the kernel accepts some, and gives up with -EAGAIN
 * when it has accepted none for patience_ns. Other results as above. With the tx token, or by the
 * only thread. */
int via_conn_replay_all(struct via_conn *conn, int fd, uint64_t patience_ns);
/* Makes the kernel send at once what MSG_MORE or Nagle's algorithm holds back. */
void via_conn_push(int fd);
/* How long the last process that can resend the bytes waits for that when it exits. */
#define VIA_REPLAY_EXIT_NS (5 * VIA_SEC_NS)
/* Resets the connection, because bytes are lost: neither end may take the stream for complete. */
void via_conn_reset(int fd);

static inline bool via_conn_has_demotion_request(const struct via_conn *conn)
{
    const struct via_side *side = conn->side;
    return via_conn_has_pipes(conn) &&
           via_unlikely((via_side_flags(side) & (VIA_FLAG_DEMOTE | VIA_FLAG_LEAVING)) != 0);
}

/* Demotes the connections in epoll sets that are members of other epoll sets, or that an io_uring
 * polls. */
void via_demote_nested(void);

/*
 * The parts of via_conn_demote(), for several connections at a time. begin_ns: when the demotion
 * began. First, tells the peer; then stops using the pipes; then waits for the peer's answer.
 * Results as above; _finish also returns -EAGAIN if a signal handler has interrupted a call that
 * receives.
 */
void via_conn_demote_announce(struct via_op *op);
int via_conn_demote_begin(struct via_op *op, enum via_reason reason, uint64_t begin_ns);
int via_conn_demote_finish(struct via_op *op, uint64_t begin_ns);

/*
 * True if another thread or process, or the call that a signal handler has interrupted, waits for
 * the peer's answer. Until then no call moves the program's bytes through the kernel. The peer may
 * not have read the SWITCH, and would mistake bytes sent now for bytes before the pipe span. And
 * the kernel's next bytes may be resent bytes that this end has read in the pipe.
 */
static inline bool via_conn_is_leaving(const struct via_op *op)
{
    return via_unlikely(via_side_is_in(op->side, VIA_PHASES_LEAVING)) &&
           atomic_load_explicit(&op->conn->attached, memory_order_acquire);
}

/* Waits until via_conn_is_leaving() is false, and does what the demotion still has to do. The end
 * may have pipes again after that. 0, or -EAGAIN: this is a signal handler that has interrupted the
 * demotion. No token is held. */
int via_conn_join_demotion(struct via_op *op);

/* The same, for a call that is about to move bytes through the kernel. */
static inline int via_conn_await_demotion(struct via_op *op)
{
    return via_conn_is_leaving(op) ? via_conn_join_demotion(op) : 0;
}

#endif
