/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_CONN_H
#define VIA_SOCKETS_CONN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/list.h"
#include "sockets/conn/bell.h"
#include "sockets/conn/quiet.h"
#include "sockets/conn/side.h"
#include "sockets/conn/stats.h"
#include "sockets/meet/policy.h"
#include "sockets/process/fds.h"
#include "sockets/process/os.h"

/* Zero-copy, this process's part: zcopy.h. */
struct via_zcopy {
    bool able;
    pid_t own_pid; /* of the peer, from the kernel, when the two met */
    pid_t peer_pid;
    uint32_t pause_left; /* so many large sends are copied before the next attempt */
    uint32_t pause;
};

/*
 * A connection as this process holds it: what belongs to the process (mappings, file descriptors,
 * epoll registrations, counters), around the side that it may share with forked processes.
 *
 * One object per connection, however many descriptors refer to it.
 */
struct via_conn {
    struct via_file file;
    struct via_side *side;
    uint64_t serial;        /* no other connection of this process ever has it */
    _Atomic uint32_t fds;   /* numbers of this process that refer to it */
    _Atomic int fd;         /* one of them, as long as it is open */
    _Atomic int listen_fd;  /* PENDING: listens for the acceptor */
    _Atomic int control_fd; /* ANNOUNCED, OFFERED: to the other side */
    _Atomic bool attached;  /* the pipes are mapped here */
    _Atomic uint32_t calls; /* that moved data, while nothing was settled */
    unsigned char *memory;  /* both segments */
    size_t memory_bytes;
    _Atomic int bell; /* by which the peer wakes this end: index, -1 = none yet */
    int bell_before;  /* by which its own threads were woken until it had pipes */
    struct via_peer_bell *peer_bell;
    const struct via_carrier *carrier; /* the way to the peer: carrier.h */
    struct via_fabric *fabric;         /* of the carrier between hosts, else NULL */
    struct via_list all;               /* of this process: via_conn_each() */
    struct via_list entries;           /* in epoll sets: see epoll_set.h */
    _Atomic uint32_t spans; /* spans for which those entries are registered: via_conn_spans() */
    uint64_t peer_cookie;   /* ... at the other end, 0 = not known yet */
    uid_t peer_uid;
    struct via_zcopy zcopy;
    struct via_quiet quiet;
    uint8_t parting;          /* enum via_parting */
    bool dissolved;           /* by connect(): RST has told the peer */
    _Atomic bool peer_shared; /* several processes hold the other end: shared.h */
    bool passed; /* to another process, or to this one by a number that we do not know */
    bool kept;   /* the steward has a descriptor of it (via_steward_keep_conn()), or had one */
    struct via_stats_conn *stats; /* points to own_stats, or to the board */
    struct via_stats_conn own_stats;
};

extern const struct via_carrier via_carrier_local;

/* Both ends are on one machine. */
static inline bool via_conn_is_local(const struct via_conn *conn)
{
    return conn->carrier == &via_carrier_local;
}

/* Remaining steps of the last holder of a connection between hosts, in this order. */
enum via_parting {
    VIA_PARTING_NOT = 0,
    VIA_PARTING_FIN = 1,      /* to put FIN */
    VIA_PARTING_ARRIVES = 2,  /* wait until all puts have arrived */
    VIA_PARTING_CLOSED = 3,   /* announce that it has closed */
    VIA_PARTING_IS_HEARD = 4, /* ... until that has arrived */
    VIA_PARTING_DONE = 5,
};

/* One call on a connection. */
struct via_op {
    struct via_conn *conn;
    struct via_side *side;
    int fd;
    bool alone;     /* no other thread in this process: how `conn` is held */
    bool exclusive; /* nor any other process that holds the side: how tokens are held */
    uint32_t thread;
};

/* The connection behind fd, held until via_op_end(); false if there is none. */
static inline bool via_op_begin(struct via_op *op, int fd)
{
    bool alone = via_is_alone();
    struct via_file *file = via_file_get(fd, alone);
    if (via_likely(file == NULL)) {
        return false;
    }
    if (file->kind != VIA_FILE_CONN) {
        via_file_put(file, alone);
        return false;
    }
    op->conn = via_container_of(file, struct via_conn, file);
    op->side = op->conn->side;
    op->fd = fd;
    op->alone = alone;
    op->exclusive = alone && atomic_load_explicit(&op->side->forked, memory_order_relaxed) == 0;
    op->thread = via_os_thread();
    return true;
}

static inline void via_op_end(struct via_op *op)
{
    via_file_put(&op->conn->file, op->alone);
}

/* O_NONBLOCK of the descriptor, requested once: every call that changes it updates this. */
bool via_op_is_nonblocking_slowly(const struct via_op *op);

static inline bool via_op_is_nonblocking(const struct via_op *op)
{
    uint8_t known = atomic_load_explicit(&op->side->nonblock, memory_order_relaxed);
    return via_likely(known != VIA_NONBLOCK_UNKNOWN) ? known == VIA_NONBLOCK_ON
                                                     : via_op_is_nonblocking_slowly(op);
}

static inline void via_op_set_nonblocking(const struct via_op *op, bool on)
{
    atomic_store_explicit(&op->side->nonblock, on ? VIA_NONBLOCK_ON : VIA_NONBLOCK_OFF,
                          memory_order_relaxed);
}

static inline bool via_conn_is_in(const struct via_conn *conn, uint32_t phases)
{
    return via_side_is_in(conn->side, phases);
}

static inline bool via_conn_has_pipes(const struct via_conn *conn)
{
    return atomic_load_explicit(&conn->attached, memory_order_acquire) &&
           via_likely(via_conn_is_in(conn, VIA_PHASES_PIPED));
}

/* Without pipes: if it had some, shows why it has none now. Another process may have caused it. */
static inline void via_conn_note_demoted(struct via_conn *conn)
{
    if (via_unlikely(atomic_load_explicit(&conn->attached, memory_order_relaxed)) &&
        !conn->stats->demoted) {
        conn->stats->reason = conn->side->why;
        conn->stats->demoted = true;
    }
}

/* Undecided: pipes may still come. */
static inline bool via_conn_is_unsettled(const struct via_conn *conn)
{
    return via_conn_is_in(conn, VIA_PHASES_UNDECIDED);
}

static inline bool via_conn_is_plain(const struct via_conn *conn)
{
    return via_conn_is_in(conn, VIA_PHASES_PLAIN);
}

/* An end that is NEW or that this thread has claimed gets no pipes. */
void via_conn_settle_plain(struct via_conn *conn, enum via_reason reason);
/* The same for any undecided end. False: another thread has claimed it. */
bool via_conn_try_settle_plain(struct via_conn *conn, enum via_reason reason);

/* --- life ------------------------------------------------------------------------------------ */

/* Before connect(): notifies the acceptor at this address. NULL if the connection will not be
 * ours. */
struct via_conn *via_conn_prepare(int fd, const struct sockaddr *addr, socklen_t addr_bytes);
/* connect() succeeded or goes on in the background: fd refers to it from now on. */
void via_conn_publish(struct via_conn *conn, int fd);
void via_conn_discard(struct via_conn *conn);

/* After accept(), with the peer's address. */
void via_conn_accepted(int fd, const struct sockaddr *peer, socklen_t peer_bytes);

/* Both addresses of fd. */
bool via_conn_tuple(int fd, struct via_tuple *ret_tuple);

/* An id of the socket behind fd, the same by all its numbers; 0: no socket. */
uint64_t via_conn_cookie(int fd);

/* new_fd, an unused number, is a copy of fd. */
void via_conn_dup(struct via_conn *conn, int new_fd);

/* fd, which does not refer to it any more (via_fd_take), is about to be closed: tells the peer what
 * it must know before the kernel's end. */
void via_conn_closing(struct via_conn *conn, int fd);
/* ... and is closed. */
void via_conn_closed(struct via_conn *conn);
/* The process ends: sends remaining bytes again now. */
void via_conn_end(struct via_conn *conn, int fd);
/* The last descriptor is about to be closed: tells the peer, within one machine, and between
 * hosts. */
void via_conn_announce_end(struct via_conn *conn, int fd);
void via_conn_begin_parting(struct via_conn *conn, int fd);
/* With the tx token, when it is parting: makes all possible steps now. Is it done? */
bool via_conn_part(struct via_conn *conn, int fd);
/* The process ends with it open. The kernel closes it then; announcements to the peer are made
 * now. */
void via_conn_exits(struct via_conn *conn);

/* All descriptors of this process stop counting. Returns how many holders are left. */
uint32_t via_conn_uncount(struct via_conn *conn);

/* Around exec, which closes the remaining descriptors: other processes may hold connections of this
 * one, and the last to close must know. False: that could not be published, and can not be taken
 * back. */
bool via_conn_exec_begin(void);
void via_conn_exec_failed(void);

/* Around fork(). begin: before via_fabric_fork_prepare(). */
void via_conn_fork_begin(void);
void via_conn_fork_prepare(void);
void via_conn_fork_parent(void);
void via_conn_fork_failed(void);
void via_conn_fork_child(void);

/* One of this process's numbers for it, or -1. */
int via_conn_fd(const struct via_conn *conn);
/* A call on it that another library makes for the program; the connection is held otherwise. */
struct via_op via_conn_op(struct via_conn *conn, int fd);
/* Does this process have no connection at all? */
bool via_conn_is_none(void);

/* Calls visit for every connection of which this process has a descriptor. */
void via_conn_each(void (*visit)(struct via_conn *conn));
/* The same for callers that may not wait for a lock: returns false if another thread uses it. */
bool via_conn_try_each(void (*visit)(struct via_conn *conn));

/* Calls visit for every number that is a connection, held as in a call; no lock is held. Counts how
 * often it returned true. */
unsigned via_op_each(bool (*visit)(struct via_op *op, const void *context), const void *context);

/* --- getting to pipes: offer.c --------------------------------------------------------------- */

/* After a call that moved data on an unsettled connection: makes the next step. */
void via_conn_step(struct via_op *op);

/* Has a descriptor of ours until the two ends have met. */
static inline bool via_conn_is_meeting(const struct via_conn *conn)
{
    return via_conn_is_local(conn) &&
           (atomic_load_explicit(&conn->listen_fd, memory_order_relaxed) >= 0 ||
            atomic_load_explicit(&conn->control_fd, memory_order_relaxed) >= 0);
}
/* For such a connection, whose descriptor is needed elsewhere: the ends meet now if the peer has
 * done its part, which needs more descriptors for a moment; at_once: without meeting. Otherwise
 * this one stops waiting. True if it has no such descriptor any more. No token is held. */
bool via_conn_stop_meeting(struct via_op *op, bool at_once);
/* Its parts. The connector stops listening, for now: it listens again at a later call. The acceptor
 * takes its offer back, unless that has been taken. */
bool via_local_stop_listening(struct via_conn *conn, bool at_once);
bool via_local_withdraw(struct via_op *op);

/* Checks now for an offer from another host, whatever has moved. No token is held. */
void via_conn_poll_meeting(struct via_op *op);

/* May this end write into the pipe? If so, it does from then on. The tx token is held. */
bool via_conn_tx_is_switch_allowed(struct via_conn *conn);

/* A program that asks for smaller buffers than that wants early back-pressure, which the kernel
 * provides. */
#define VIA_CONN_BUFFER_BYTES_MIN (64 * 1024)

/* Options that the socket had before it was a connection, or from its listener: copied into the
 * side, once. With some of them it stays with the kernel. No token is held. */
void via_conn_learn_options_slowly(struct via_op *op);

static inline void via_conn_learn_options(struct via_op *op)
{
    if (via_unlikely(!atomic_load_explicit(&op->side->options_known, memory_order_relaxed))) {
        via_conn_learn_options_slowly(op);
    }
}

/* Wakes the peer: its memory has changed. */
void via_conn_posted_slowly(struct via_conn *conn, bool record);

static inline void via_conn_posted(struct via_conn *conn)
{
    if (via_unlikely(conn->peer_bell == NULL) || via_peer_bell_must_ring(conn->peer_bell)) {
        via_conn_posted_slowly(conn, false);
    }
}

/* The same after a record: the peer may want a ring for it although no thread sleeps. */
static inline void via_conn_posted_record(struct via_conn *conn)
{
    struct via_side *side = conn->side;
    via_quiet_note();
    /* Checked first, because of its fence: store record, fence, load cold word; epoll_cold.c stores
     * the word, fences, checks the pipe. */
    bool sleeps = via_unlikely(conn->peer_bell == NULL) || via_peer_bell_must_ring(conn->peer_bell);
    bool cold = via_side_cold(side) != atomic_load_explicit(&side->cold_rung, memory_order_relaxed);
    if (via_unlikely(sleeps) || via_unlikely(cold)) {
        via_conn_posted_slowly(conn, true);
    }
}

/* The bells to watch when waiting for it. */
uint64_t via_conn_bells(struct via_conn *conn);

/* The input of epoll registrations: the spans of both directions, and whether bytes are to be
 * sent again. */
static inline uint32_t via_conn_spans(const struct via_conn *conn)
{
    if (!via_conn_has_pipes(conn)) {
        return 0;
    }
    return 1u | (conn->side->rx.span == VIA_SPAN_PIPE ? 2u : 0u) |
           (conn->side->tx.span == VIA_SPAN_PIPE ? 4u : 0u) |
           (via_conn_is_in(conn, VIA_PHASES_REPLAY) ? 8u : 0u) |
           (conn->side->rx_kernel_ended ? 16u : 0u) |
           (via_conn_is_in(conn, VIA_PHASES_FOLLOW) ? 32u : 0u);
}

/*
 * Bytes that went through the kernel since the connection was made; exact, also for bytes that
 * stdio or a forked child sent or read. sent: the peer's total that way. 0 or a negative errno.
 */
int via_kernel_sent(int fd, bool connector, uint64_t *ret_bytes);
int via_kernel_read(int fd, uint64_t sent, uint64_t *ret_bytes);
/* All that has arrived that way, read or not; a FIN counts as one. */
int via_kernel_received(int fd, uint64_t *ret_bytes);

#endif
