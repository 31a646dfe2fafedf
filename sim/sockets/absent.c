/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Replacements of the parts of the sockets library that the simulator leaves out: both ends of a
 * connection have pipes before the run begins, a process has one connection and one thread, and
 * there are no epoll sets and no steward.
 */
#include "sim/sockets/run.h"
#include "sim/stub.h"
#include "sockets/conn/board.h"
#include "sockets/conn/demote.h"
#include "sockets/conn/steward.h"
#include "sockets/epoll/epoll_set.h"
#include "sockets/hooks/signals.h"
#include "sockets/io/wait.h"
#include "sockets/io/zcopy.h"
#include "sockets/process/cancel.h"
#include "sockets/process/lock.h"

__thread int via_cancel_kept;
__thread uint32_t via_os_thread_id = 1;
uint32_t via_os_space;
const _Atomic pid_t *via_os_pid_word; /* one process: getpid() */
__thread struct via_lock_thread via_lock_thread;
_Atomic bool via_lock_had_cancel;
struct via_file *_Atomic *via_fds;
unsigned via_fds_count;
struct via_policy via_policy;
_Atomic bool via_quiet_due = true;
_Atomic bool via_steward_runs = true;
_Atomic bool via_steward_is_due;

/* --- connections ------------------------------------------------------------------------------ */

struct via_op via_conn_op(struct via_conn *conn, int fd)
{
    return (struct via_op){.conn = conn,
                           .side = conn->side,
                           .fd = fd,
                           .alone = true,
                           .exclusive = true,
                           .thread = via_os_thread()};
}

int via_conn_fd(const struct via_conn *conn)
{
    return (int)via_container_of(conn, struct sock_end, conn)->number;
}

/* As in offer.c. The acceptor notices at some time that the connector took its offer, at the latest
 * when the connector sends its next message. */
bool via_conn_tx_is_switch_allowed(struct via_conn *conn)
{
    struct sock_end *end = via_container_of(conn, struct sock_end, conn);
    if (via_conn_is_local(conn) && conn->side->tx_shut == 0 && !end->leaving &&
        !sock_chance(end->run, end->run->config->switch_chance)) {
        return false; /* this end has not noticed yet that both have pipes */
    }
    if (via_conn_is_in(conn, VIA_PHASE_BIT(OFFERED)) &&
        (conn->side->tx_shut != 0 || end->leaving || via_side_flags(conn->side) != 0 ||
         sock_chance(end->run, end->run->config->switch_chance))) {
        via_phase_apply(&conn->side->phase, VIA_EVENT_CLAIM);
        via_phase_apply(&conn->side->phase, VIA_EVENT_TAKE);
    }
    return via_conn_is_in(conn, VIA_PHASE_BIT(LIVE)) &&
           (conn->side->tx_shut == 0 || conn->side->shutting != 0) &&
           (via_side_flags(conn->side) & VIA_FLAG_DEMOTE) == 0;
}

void via_ep_conn_changed(struct via_conn *conn)
{
    conn->spans = via_conn_spans(conn);
}

SIM_STUB(bool, false, via_conn_is_none, void)
SIM_STUB(bool, true, via_conn_try_settle_plain, struct via_conn *conn, enum via_reason reason)

struct via_attach *via_fabric_attached(void)
{
    static char attach;
    return (struct via_attach *)(void *)&attach;
}

struct via_attach *via_fabric_attach(void)
{
    return via_fabric_attached();
}

bool via_fabric_is_put_possible(struct via_fabric *fabric)
{
    return fabric->remote != NULL;
}

/* --- nothing to be done ----------------------------------------------------------------------- */

SIM_STUB_VOID(via_board_forget, int fd)
SIM_STUB_VOID(via_conn_each, void (*visit)(struct via_conn *conn))
SIM_STUB(bool, true, via_conn_try_each, void (*visit)(struct via_conn *conn))
SIM_STUB_VOID(via_ep_conn_closing, struct via_conn *conn)
SIM_STUB(bool, false, via_ep_conn_is_nested, const struct via_conn *conn)
SIM_STUB_VOID(via_ep_conn_fd_closing, struct via_conn *conn, int fd)
SIM_STUB_VOID(via_ep_conn_woken, struct via_conn *conn)
SIM_STUB_VOID(via_fabric_follow, struct via_fabric *fabric)
SIM_STUB(struct via_remote *, NULL, via_fabric_mailbox_get, struct via_attach *attach,
         const struct via_fabric_note *note)
SIM_STUB_VOID(via_fabric_mailbox_put, struct via_remote *mailbox)
SIM_STUB(struct via_segment *, NULL, via_fabric_mirror_lent, const struct via_conn *conn)
SIM_STUB(int, 0, via_fabric_put_offer, struct via_conn *conn, uint64_t ready)
SIM_STUB_VOID(via_fabric_slot_give, struct via_fabric *fabric)
SIM_STUB_VOID(via_fabric_handle_results, void)
SIM_STUB(bool, false, via_fabric_take_unproven, void)
SIM_STUB_VOID(via_file_put_call, struct via_file *file, uint32_t thread)
SIM_STUB_VOID(via_file_put_slowly, struct via_file *file)
SIM_STUB(unsigned, 0, via_op_each, bool (*visit)(struct via_op *op, const void *context),
         const void *context)
SIM_STUB(bool, via_rng_chance(&sock_run_now->rng, 1, 2), via_signals_has_handled, void)
SIM_STUB(bool, via_rng_chance(&sock_run_now->rng, 1, 2), via_signals_has_restart, void)
SIM_STUB_VOID(via_signals_mark, void)
SIM_STUB_VOID(via_sock_bell_ring, unsigned index)
SIM_STUB(uint64_t, 0, via_sock_bells_adopted, void)

bool via_steward_keep_conn(struct via_conn *conn, int fd)
{
    (void)fd;
    /* program.c does the steward's work: serve_kept(). */
    via_container_of(conn, struct sock_end, conn)->kept = true;
    return true;
}

SIM_STUB_VOID(via_wait_end, const struct via_wait *wait)
SIM_STUB_VOID(via_wait_sleeps, struct via_wait *wait)
SIM_STUB_VOID(via_wait_slept, struct via_wait *wait)
