/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Which connections a call returns to the kernel. */
#include <fcntl.h>

#include "sockets/conn/demote.h"
#include "sockets/epoll/epoll_set.h"
#include "sockets/meet/policy.h"
#include "sockets/process/os.h"
#include "sockets/process/real.h"

int via_fd_demote(int fd, enum via_reason reason)
{
    struct via_op op;
    if (!via_op_begin(&op, fd)) {
        return 0;
    }
    int rc = via_conn_demote(&op, reason);
    via_op_end(&op);
    return rc;
}

struct demotion {
    bool (*is_chosen)(const struct via_op *op); /* NULL: all */
    enum via_reason reason;
    uint64_t begin_ns;
    int part;
};

static bool demote_one(struct via_op *op, const void *of_demotion)
{
    const struct demotion *of = of_demotion;
    if (of->is_chosen != NULL && !of->is_chosen(op)) {
        return false;
    }
    if (of->part == 0) {
        via_conn_demote_announce(op);
    } else if (of->part == 1) {
        (void)via_conn_demote_begin(op, of->reason, of->begin_ns);
    } else {
        (void)via_conn_demote_finish(op, of->begin_ns);
    }
    return true;
}

/* First all leave, then this thread waits for all answers: some may be each other's peers, and all
 * peers should act at the same time. */
static void demote_some(bool (*is_chosen)(const struct via_op *op), enum via_reason reason)
{
    VIA_KEEP_ERRNO;
    struct demotion of = {.is_chosen = is_chosen, .reason = reason, .begin_ns = via_os_now_ns()};
    for (; of.part < 3; of.part++) {
        via_op_each(demote_one, &of);
    }
}

void via_demote_all(enum via_reason reason)
{
    via_policy.on = false;
    via_policy.off_reason = reason;
    demote_some(NULL, reason);
}

static bool is_kept_by_exec(const struct via_op *op)
{
    int flags = VIA_REAL(fcntl)(op->fd, F_GETFD);
    return flags >= 0 && (flags & FD_CLOEXEC) == 0;
}

void via_demote_inherited(void)
{
    if (!via_conn_is_none()) {
        demote_some(is_kept_by_exec, VIA_REASON_EXEC);
    }
}

static bool is_nested(const struct via_op *op)
{
    return via_ep_conn_is_nested(op->conn);
}

void via_demote_nested(void)
{
    if (!via_conn_is_none()) {
        demote_some(is_nested, VIA_REASON_NESTED);
    }
}
