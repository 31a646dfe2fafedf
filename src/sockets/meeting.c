/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/meeting.h"

#include <errno.h>

#include "sockets/conn.h"

/* To find one that gives up, so many numbers are looked at; the next call goes on from there. */
#define LOOKS_MAX 256u

/* In quarters of the limit. From NEAR on none meets, as long as a few numbers are left below ours:
 * an answer of the peer comes with descriptors. */
#define NEAR(quarter) ((quarter)*3u - (quarter) / 8u)
#define FAR(quarter) ((quarter)*2u)

static _Atomic unsigned hand;
static _Atomic bool is_short;

/* True if it holds no such descriptor any more. */
static bool give_up(int fd, bool at_once)
{
    struct via_op op;
    if (via_likely(via_fd_peek(fd) == NULL) || !via_op_begin(&op, fd)) {
        return false;
    }
    bool gave_up = via_conn_is_meeting(op.conn) && via_conn_stop_meeting(&op, at_once);
    via_op_end(&op);
    return gave_up;
}

bool via_meeting_may_open(void)
{
    unsigned top = via_fds_top();
    if (atomic_load_explicit(&is_short, memory_order_relaxed)) {
        return false;
    }
    /* A few numbers of the quarter are left for descriptors that meeting brings, such as bells. */
    unsigned most = via_hidden_most() - via_hidden_most() / 8;
    for (unsigned looks = 0; via_hidden_count() >= most; looks++) {
        if (looks == LOOKS_MAX || top == 0) {
            return false;
        }
        give_up((int)(atomic_fetch_add_explicit(&hand, 1, memory_order_relaxed) % top), false);
    }
    return true;
}

bool via_meeting_give_back(void)
{
    unsigned top = via_fds_top();
    int saved = errno;
    bool any = false;
    /* Twice: an answer of the peer brings descriptors, and there may be none for it at first. */
    for (unsigned i = 0; i < 2 * top; i++) {
        any |= give_up((int)(i % top), true);
    }
    errno = saved;
    return any;
}

void via_meeting_saw(int fd)
{
    unsigned quarter = via_hidden_most();
    bool was_short = atomic_load_explicit(&is_short, memory_order_relaxed);
    if (via_unlikely((unsigned)fd >= NEAR(quarter)) && !was_short) {
        atomic_store_explicit(&is_short, true, memory_order_relaxed);
        via_meeting_give_back();
    } else if (via_unlikely(was_short) && (unsigned)fd < FAR(quarter)) {
        atomic_store_explicit(&is_short, false, memory_order_relaxed);
    }
}
