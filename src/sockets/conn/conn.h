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

/* The part of zero-copy that belongs to this process: zcopy.h. */
struct via_zcopy {
    _Atomic bool able;
    pid_t own_pid;  /* this process when the two ends met; a child of it uses no zero-copy */
    pid_t peer_pid; /* the peer's process then, from the kernel (SO_PEERCRED) */
    _Atomic uint32_t pause_left; /* number of large sends to copy before the next attempt */
    _Atomic uint32_t pause;
};

#define VIA_CONN_FORKS 4u

/*
 * A connection as this process holds it: what belongs to the process (mappings, file descriptors,
 * epoll registrations, counters), around the side that it may share with forked processes.
 *
 * One object per connection, however many descriptors refer to it.
 */
struct via_conn {
    struct via_file file;
    struct via_side *side;
    uint64_t serial;      /* no other connection of this process ever has this number */
    _Atomic uint32_t fds; /* number of descriptors of this process that refer to it */
    /* `fds` at each of the last forks, by fork: before this thread finds that its fork() has
     * failed, and subtracts its count again, another thread may fork. */
    struct {
        uint32_t fork;
        uint32_t fds;
    } children[VIA_CONN_FORKS];
    _Atomic int fd;         /* one of those descriptors, as long as it is open */
    _Atomic int listen_fd;  /* PENDING: listens for the acceptor */
    _Atomic int control_fd; /* ANNOUNCED, OFFERED: socket to the peer */
    _Atomic bool attached;  /* the pipes are mapped here */
    _Atomic uint32_t calls; /* calls that moved data while the connection was undecided */
    unsigned char *memory;  /* both segments */
    size_t memory_bytes;
    _Atomic int bell; /* the bell by which the peer wakes this end: its index, -1 = none yet */
    int bell_before;  /* the bell by which this end's own threads were woken before it had pipes */
    struct via_peer_bell *_Atomic peer_bell; /* NULL: the acceptor has not fetched it yet */
    const struct via_carrier *carrier;       /* how bytes get to the peer: carrier.h */
    struct via_fabric *fabric;               /* of the carrier between hosts, else NULL */
    struct via_list all;                     /* of this process: via_conn_each() */
    struct via_list entries;                 /* in epoll sets: see epoll_set.h */
    _Atomic uint32_t spans; /* spans for which those entries are registered: via_conn_spans() */
    uint64_t peer_cookie;   /* SO_COOKIE of the peer's socket, 0 = not known yet */
    uid_t peer_uid;
    struct via_zcopy zcopy;
    struct via_quiet quiet;
    uint8_t parting;          /* enum via_parting */
    bool dissolved;           /* connect() to AF_UNSPEC has reset it */
    _Atomic bool peer_shared; /* several processes hold the other end: shared.h */
    bool passed; /* passed to another process, or received by this one with a descriptor that the
                    library does not know */
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

/* Remaining steps of the last holder when it closes a connection between hosts, in this order. */
enum via_parting {
    VIA_PARTING_NOT = 0,
    VIA_PARTING_FIN = 1,       /* to put FIN */
    VIA_PARTING_ARRIVES = 2,   /* wait until all puts have arrived */
    VIA_PARTING_CLOSED = 3,    /* announce that this end has closed */
    VIA_PARTING_CONFIRMED = 4, /* wait until that announcement has arrived */
    VIA_PARTING_DONE = 5,
};

/* One call on a connection. */
struct via_op {
    struct via_conn *conn;
    struct via_side *side;
    int fd;
    bool busy; /* a function failed to take a token, so its answer may be incomplete; for epoll sets
                */
    bool alone;     /* no other thread in this process: determines how `conn` is held */
    bool exclusive; /* and no other process holds the side: determines how tokens are held */
    uint32_t thread;
};

/* The connection behind fd, held until via_op_end(); false if there is none. */
static inline bool via_op_begin(struct via_op *op, int fd)
{
    bool alone = via_is_alone();
    struct via_file *file = via_fd_peek(fd);
    if (via_likely(file == NULL)) {
        return false; /* without a system call: a seccomp filter may kill for gettid() */
    }
    uint32_t thread = via_os_thread();
    if (!alone && (file = via_file_get_slowly(fd)) == NULL) {
        return false;
    }
    if (file->kind != VIA_FILE_CONN) {
        via_file_put_of(file, alone, thread);
        return false;
    }
    op->conn = via_container_of(file, struct via_conn, file);
    op->side = op->conn->side;
    op->fd = fd;
    op->alone = alone;
    op->exclusive = alone && atomic_load_explicit(&op->side->forked, memory_order_relaxed) == 0;
    op->thread = thread;
    return true;
}

/* True in a child that a signal handler has forked during the call. The child's count of calls
 * began at 0, so it does not include this call. */
static inline bool via_op_is_parents(const struct via_op *op)
{
    return via_unlikely(op->thread != via_os_thread());
}

static inline void via_op_end(struct via_op *op)
{
    via_file_put_of(&op->conn->file, op->alone, op->thread);
}

/* Called after a sleep, during which a signal handler may have forked: both processes continue the
 * call, and share the connection. */
static inline void via_op_slept(struct via_op *op)
{
    if (via_op_is_parents(op)) {
        op->alone = true; /* and not counted */
        op->thread = via_os_thread();
    }
    op->exclusive =
        op->exclusive && atomic_load_explicit(&op->side->forked, memory_order_relaxed) == 0;
}

/* Reads O_NONBLOCK from the kernel, once: hooks of calls that change the flag update the side's
 * copy. */
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

/* If a connection without pipes had some: records why it has none now. Another process may have
 * caused that. */
static inline void via_conn_note_demoted(struct via_conn *conn)
{
    if (via_unlikely(atomic_load_explicit(&conn->attached, memory_order_relaxed)) &&
        !conn->stats->demoted) {
        conn->stats->reason = conn->side->why;
        conn->stats->demoted = true;
    }
}

/* True while the connection may still get pipes. */
static inline bool via_conn_is_undecided(const struct via_conn *conn)
{
    return via_conn_is_in(conn, VIA_PHASES_UNDECIDED);
}

static inline bool via_conn_is_plain(const struct via_conn *conn)
{
    return via_conn_is_in(conn, VIA_PHASES_PLAIN);
}

/* Makes an end in NEW, or one that this thread has claimed, plain. */
void via_conn_settle_plain(struct via_conn *conn, enum via_reason reason);
/* The same for any undecided end. False: another thread has claimed the end. */
bool via_conn_try_settle_plain(struct via_conn *conn, enum via_reason reason);

/* --- life ------------------------------------------------------------------------------------ */

/* Before connect(): marks the socket (diag.h), or posts a note on the board of the acceptor's host
 * (fabric.h), by which the acceptor recognizes a peer with this library. NULL if the connection can
 * not be accelerated. */
struct via_conn *via_conn_prepare(int fd, const struct sockaddr *addr, socklen_t addr_bytes);
/* connect() has succeeded or continues in the background (EINPROGRESS): from now on fd refers to
 * the connection. */
void via_conn_publish(struct via_conn *conn, int fd);

/* After accept(), with the peer's address. */
void via_conn_accepted(int fd, const struct sockaddr *peer, socklen_t peer_bytes);

/* Both addresses of fd. */
bool via_conn_read_tuple(int fd, struct via_tuple *ret_tuple);

/* SO_COOKIE of the socket behind fd, the same for all its descriptors; 0: no socket. */
uint64_t via_conn_cookie(int fd);

/* new_fd, not in the table so far, is a duplicate of a descriptor of the connection (dup(2)). */
void via_conn_dup(struct via_conn *conn, int new_fd);

/* fd, which is not in the table any more, is about to be closed: announces to the peer what must
 * precede the kernel's FIN. */
void via_conn_closing(struct via_conn *conn, int fd);
/* fd is closed. */
void via_conn_closed(struct via_conn *conn);
/* The process exits: resends now what must be resent (demote.h). */
void via_conn_end(struct via_conn *conn, int fd);
/* The last descriptor is about to be closed: announces the end to the peer. The first is for a peer
 * on this machine, the second for one on another host. */
void via_conn_announce_end(struct via_conn *conn, int fd);
void via_conn_begin_parting(struct via_conn *conn, int fd);
/* With the tx token, while the connection is parting: makes all steps that are possible now. True
 * when parting is done. */
bool via_conn_continue_parting(struct via_conn *conn, int fd);
/* The process exits while the connection is open, and the kernel will close it: makes now the
 * announcements to the peer that via_conn_closing() makes. */
void via_conn_announce_exit(struct via_conn *conn, int fd);

/* Stops counting the descriptors of this process. Returns the number of holders left. */
uint32_t via_conn_uncount(struct via_conn *conn);

/* Called around exec, which closes the remaining descriptors. Other processes may hold connections
 * of this one, and the last one to close must know that. False: the library could not publish this;
 * that can not be undone. */
bool via_conn_exec_begin(void);
void via_conn_exec_failed(void);

/* Around fork(). begin: before via_fabric_fork_prepare(). */
void via_conn_fork_begin(void);
void via_conn_fork_prepare(void);
void via_conn_fork_parent(void);
void via_conn_fork_failed(void);
void via_conn_fork_child(void);

/* One of this process's descriptors for the connection, or -1. */
int via_conn_fd(const struct via_conn *conn);
/* An operation on a connection for a call that does not come from a hook; the caller holds the
 * connection. */
struct via_op via_conn_op(struct via_conn *conn, int fd);
/* True if this process has no connection. */
bool via_conn_is_none(void);

/* Calls visit for every connection of which this process has a descriptor. */
void via_conn_each(void (*visit)(struct via_conn *conn));
/* The same for callers that must not wait for a lock: returns false if another thread holds the
 * lock. */
bool via_conn_try_each(void (*visit)(struct via_conn *conn));

/* Calls visit for every descriptor of a connection, which is held as in a call; no lock is held.
 * Returns how often visit returned true. */
unsigned via_op_each(bool (*visit)(struct via_op *op, const void *context), const void *context);

/* --- getting to pipes: offer.c --------------------------------------------------------------- */

/* Called after a call that moved data on an undecided connection: makes the next step. */
void via_conn_step(struct via_op *op);

/* True while a descriptor of the library is needed until the two ends have met. */
static inline bool via_conn_is_meeting(const struct via_conn *conn)
{
    return via_conn_is_local(conn) &&
           (atomic_load_explicit(&conn->listen_fd, memory_order_relaxed) >= 0 ||
            atomic_load_explicit(&conn->control_fd, memory_order_relaxed) >= 0);
}
/* The program needs a descriptor (EMFILE): releases that one. at_once: gives up meeting. Otherwise
 * the two ends meet now if the peer has done its part, for which this process needs further
 * descriptors for a moment; else this end stops waiting. True if the connection has no such
 * descriptor any more. No token is held. */
bool via_conn_stop_meeting(struct via_op *op, bool at_once);
/* Within one machine: the connector stops listening until a later call; the acceptor withdraws its
 * offer, unless the connector has taken it. */
bool via_local_stop_listening(struct via_conn *conn, bool at_once);
bool via_local_withdraw(struct via_op *op);
void via_local_forked(void); /* in a child */

/* Checks now for an offer from another host, independent of the bytes moved. No token is held. */
void via_conn_poll_meeting(struct via_op *op);

/* Checks whether the connector has taken this end's offer. True if this end may write into the
 * pipe. The tx token is held. */
bool via_conn_tx_is_switch_allowed(struct via_conn *conn);

/* A program that sets smaller buffers than that relies on early back-pressure, which the kernel
 * provides. */
#define VIA_CONN_BUFFER_BYTES_MIN (64 * 1024)

/* Copies the options that the socket got before it was a connection, or from its listener, into the
 * side, once. With some options the connection stays with the kernel. No token is held. */
void via_conn_learn_options_slowly(struct via_op *op);

static inline void via_conn_learn_options(struct via_op *op)
{
    if (via_unlikely(!atomic_load_explicit(&op->side->options_known, memory_order_relaxed))) {
        via_conn_learn_options_slowly(op);
    }
}

/* Reads from the kernel whether received bytes come with a time stamp. */
void via_conn_learn_stamps(struct via_op *op);
/* True if these flags of SO_TIMESTAMPING request a time stamp of sent bytes, which only the kernel
 * makes. */
bool via_conn_is_tx_stamping(int flags);

/* Rings the peer's bell, after this end has stored into the peer's memory. record: it stored a
 * record. */
void via_conn_posted_slowly(struct via_conn *conn, bool record);

static inline struct via_peer_bell *via_conn_peer_bell(const struct via_conn *conn)
{
    /* Pairs with the release in fetch_peer_bell(): the bell is complete. */
    return atomic_load_explicit(&conn->peer_bell, memory_order_acquire);
}

static inline void via_conn_posted(struct via_conn *conn)
{
    struct via_peer_bell *bell = via_conn_peer_bell(conn);
    if (via_unlikely(bell == NULL) || via_peer_bell_take_ring(bell)) {
        via_conn_posted_slowly(conn, false);
    }
}

/* The same after a record: the peer may have requested a ring for the next record although none of
 * its threads sleeps (epoll_cold.c). */
static inline void via_conn_posted_record(struct via_conn *conn)
{
    struct via_side *side = conn->side;
    via_quiet_note();
    /* Checked first, because this check contains the fence: store record, fence, load cold word.
     * epoll_cold.c stores the word, fences, checks the pipe. */
    struct via_peer_bell *bell = via_conn_peer_bell(conn);
    bool sleeps = via_unlikely(bell == NULL) || via_peer_bell_take_ring(bell);
    bool cold = via_side_cold(side) != atomic_load_explicit(&side->cold_rung, memory_order_relaxed);
    if (via_unlikely(sleeps) || via_unlikely(cold)) {
        via_conn_posted_slowly(conn, true);
    }
}

/* The bells to watch while waiting for the connection. */
uint64_t via_conn_bells(struct via_conn *conn);

/* What epoll registrations depend on: the spans of both directions, and whether bytes must be sent
 * again. */
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
 * The bytes of one direction that this end has sent or read through the kernel since the connection
 * was made: exact, because the kernel counts also what stdio or a forked child sent or read. sent:
 * the peer's total of that direction. 0 or a negative errno.
 */
int via_kernel_sent(int fd, bool connector, uint64_t *ret_bytes);
int via_kernel_read(int fd, uint64_t sent, uint64_t *ret_bytes);

#endif
