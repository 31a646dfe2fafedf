/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The steps by which the two ends of a connection get pipes. The carrier makes each step
 * (carrier.h). */
#include <errno.h>
#include <string.h>

#include "sockets/conn/carrier.h"
#include "sockets/conn/demote.h"
#include "sockets/conn/shared.h"
#include "sockets/conn/steward.h"
#include "sockets/epoll/epoll_set.h"
#include "sockets/process/cancel.h"
#include "sockets/process/lock.h"
#include "sockets/process/real.h"

/* How often an end checks for a message of its peer: at each call for a while, then at every 8th,
 * then seldom. After GIVE_UP_CALLS calls and GIVE_UP_BYTES bytes the message is not expected any
 * more. The number of calls alone proves nothing: the peer may get a CPU for its first call after
 * thousands of small calls here. But the kernel's buffers hold only some megabytes, so after more
 * bytes the peer must have made calls. */
#define POLL_ALWAYS_CALLS 32u
#define POLL_EVERY_CALLS 8u
#define POLL_SELDOM_CALLS 256u
#define GIVE_UP_CALLS 4096u
#define GIVE_UP_BYTES (UINT64_C(64) << 20)
/* A connection gets pipes after some calls (via_rules.after_calls), or when it has moved
 * WORTH_BYTES. */
#define WORTH_BYTES (64u * 1024)

/* Claims an end: only one thread of one process does the work of a phase. */
static bool claim(struct via_conn *conn, enum via_phase phase)
{
    return via_phase_apply_in(&conn->side->phase, phase, VIA_EVENT_CLAIM);
}

/* Releases the end after that work. */
static void release(struct via_conn *conn, enum via_event event)
{
    via_phase_apply(&conn->side->phase, event);
}

/* --- the acceptor offers --------------------------------------------------------------------- */

uint64_t via_conn_bells(struct via_conn *conn)
{
    uint64_t bells = !via_conn_is_local(conn) ? via_sock_bells_adopted() : 0;
    int bell = atomic_load_explicit(&conn->bell, memory_order_relaxed);
    if (bell < 0 && !via_is_alone() && via_conn_is_undecided(conn)) {
        /* Another thread may set up pipes while this one sleeps: stores the bell by which to wake
         * this one. */
        int none = -1;
        bell = via_sock_bell_of_thread();
        if (bell >= 0 &&
            !atomic_compare_exchange_strong_explicit(&conn->bell, &none, bell, memory_order_relaxed,
                                                     memory_order_relaxed)) {
            bell = none;
        }
    }
    return bell >= 0 ? bells | VIA_BELL_MASK((unsigned)bell) : bells;
}

bool via_conn_tx_is_switch_allowed(struct via_conn *conn)
{
    if (via_conn_is_in(conn, VIA_PHASE_BIT(OFFERED)) && claim(conn, VIA_PHASE_OFFERED)) {
        release(conn, conn->carrier->is_taken(conn) ? VIA_EVENT_TAKE : VIA_EVENT_NOT_YET);
    }
    return via_conn_is_in(conn, VIA_PHASE_BIT(LIVE)) &&
           (conn->side->tx_shut == 0 || conn->side->shutting != 0) &&
           via_likely((via_side_flags(conn->side) & VIA_FLAG_DEMOTE) == 0);
}

/* --- steps ----------------------------------------------------------------------------------- */

/* Called when the connection has got pipes: wakes a thread that sleeps only on the kernel's
 * socket, so that it checks again. */
static void note_pipes(struct via_conn *conn, enum via_event event)
{
    conn->stats->accelerated = true;
    atomic_store_explicit(&conn->attached, true, memory_order_release);
    atomic_store_explicit(&via_steward_had_pipes, true, memory_order_relaxed);
    release(conn, event);
    via_ep_conn_changed(conn);
    via_shared_note(conn);
    if (!via_is_alone() || conn->side->forked != 0) {
        /* A connection between hosts has no bell of its own, but only that of the waiting
         * thread. */
        int waiter = !via_conn_is_local(conn) ? conn->bell : conn->bell_before;
        if (waiter >= 0) {
            via_sock_bell_ring((unsigned)waiter);
        }
    }
}

/* True if this call must check for the peer's message. */
static bool is_its_turn(uint32_t calls)
{
    return calls <= via_policy.rules.after_calls + POLL_ALWAYS_CALLS ||
           calls % (calls <= GIVE_UP_CALLS ? POLL_EVERY_CALLS : POLL_SELDOM_CALLS) == 0;
}

/* True after GIVE_UP_CALLS calls and GIVE_UP_BYTES bytes: by then a peer would have answered. */
bool via_conn_has_waited_enough(const struct via_conn *conn)
{
    return conn->calls > GIVE_UP_CALLS &&
           conn->stats->tx_kernel_bytes + conn->stats->rx_kernel_bytes > GIVE_UP_BYTES;
}

/* --- the connector's steps ------------------------------------------------------------------- */

uint64_t via_conn_cookie(int fd)
{
    uint64_t cookie = 0;
    socklen_t bytes = sizeof(cookie);
    VIA_REAL(getsockopt)(fd, SOL_SOCKET, SO_COOKIE, &cookie, &bytes);
    return cookie;
}

/* Ends a step for which this thread has claimed the end. rc: the result of the carrier's
 * function. */
static void finish_step(struct via_conn *conn, int rc, enum via_event event)
{
    if (rc == 0) {
        note_pipes(conn, event);
    } else if (rc == -EALREADY) {
        release(conn, VIA_EVENT_MEET);
    } else if (rc == -EAGAIN) {
        release(conn, VIA_EVENT_NOT_YET);
    } else {
        via_conn_settle_plain(conn, (enum via_reason)rc);
    }
    if (rc == 0 && event == VIA_EVENT_TAKE) {
        conn->carrier->announce_taken(conn);
    }
}

static void step_pending(struct via_op *op)
{
    if (claim(op->conn, VIA_PHASE_PENDING)) {
        finish_step(op->conn, op->conn->carrier->find_offer(op), VIA_EVENT_TAKE);
    }
}

static void step_announced(struct via_op *op)
{
    if (claim(op->conn, VIA_PHASE_ANNOUNCED)) {
        finish_step(op->conn, op->conn->carrier->take_offer(op), VIA_EVENT_TAKE);
    }
}

static void step_accepted(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    if (!claim(conn, VIA_PHASE_ACCEPTED)) {
        return;
    }
    finish_step(conn, conn->carrier->make_offer(op), VIA_EVENT_OFFER);
}

/*
 * Processes that hold a connection together can not share what one of them has found out. So an end
 * makes no step until all but one have closed the connection. (A killed process does not report its
 * end: then the connection stays with the kernel.)
 */
static bool is_sole_holder(const struct via_conn *conn)
{
    return conn->side->forked == 0 || conn->side->refs == conn->fds;
}

static void end_step(void)
{
    via_lock_leave();
    via_fds_end_change();
}

/*
 * Until end_step() neither another thread nor a signal handler forks: parent and child would both
 * continue the step, or only one of them would get the pipes. False: other processes hold the
 * connection.
 */
static bool begin_step(struct via_conn *conn)
{
    via_fds_begin_change();
    via_lock_enter();
    bool sole = is_sole_holder(conn);
    if (sole) {
        conn->side->forked = 0; /* not before begin_change: a fork meanwhile sets this, too */
    } else {
        end_step();
    }
    return sole;
}

static void step(struct via_op *op)
{
    if (begin_step(op->conn)) {
        step_pending(op);
        step_announced(op);
        step_accepted(op);
        end_step();
    }
}

bool via_conn_stop_meeting(struct via_op *op, bool at_once)
{
    struct via_conn *conn = op->conn;
    if (!is_sole_holder(conn)) {
        return false;
    }
    VIA_KEEP_ERRNO;
    bool stopped = false;
    if (via_conn_is_in(conn, VIA_PHASE_BIT(OFFERED))) {
        stopped = via_local_withdraw(op);
    } else if (via_conn_is_in(conn, VIA_PHASE_BIT(PENDING))) {
        stopped = via_local_stop_listening(conn, at_once);
    }
    if (!stopped && !at_once) {
        via_conn_learn_options(op);
        step(op);
        stopped = !via_conn_is_meeting(conn);
    }
    return stopped;
}

/* True if both directions were shut down here, within one machine. The connection then stays with
 * the kernel, which answers further bytes by RST. */
static bool settle_if_ended(struct via_conn *conn)
{
    const struct via_side *side = conn->side;
    bool ended = side->rx_shut != 0 && side->tx_shut != 0;
    if (via_unlikely(ended) && via_conn_is_local(conn)) {
        via_conn_try_settle_plain(conn, VIA_REASON_SHORT);
    }
    return ended && via_conn_is_local(conn);
}

void via_conn_poll_meeting(struct via_op *op)
{
    VIA_KEEP_ERRNO;
    if (is_sole_holder(op->conn)) {
        via_conn_learn_options(op);
        if (begin_step(op->conn)) {
            step_pending(op);
            end_step();
        }
    }
}

void via_conn_step(struct via_op *op)
{
    VIA_CANCEL_NEVER;
    struct via_conn *conn = op->conn;
    uint32_t calls = 1 + atomic_fetch_add_explicit(&conn->calls, 1, memory_order_relaxed);
    if ((calls < via_policy.rules.after_calls &&
         conn->stats->tx_kernel_bytes + conn->stats->rx_kernel_bytes < WORTH_BYTES) ||
        !is_its_turn(calls) || !is_sole_holder(conn) || settle_if_ended(conn)) {
        return;
    }
    VIA_KEEP_ERRNO;
    via_conn_learn_options(op);
    step(op);
}
