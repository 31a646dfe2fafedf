/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/meet/meeting.h"

#include "sockets/conn/conn.h"

/* How many descriptors one call examines to find a connection that can stop meeting; the next call
 * continues from there. */
#define POLLS_MAX 256u

static _Atomic unsigned hand;
/* The last descriptor that the kernel returned: about how many the program has in use. */
static _Atomic unsigned seen;

/* How many descriptors may belong to connections whose ends have not met: a quarter of the unused
 * ones. */
static unsigned room(void)
{
    unsigned limit = via_fds_quarter() * 4;
    unsigned used = atomic_load_explicit(&seen, memory_order_relaxed);
    return limit > used ? (limit - used) / 4 : 0;
}

/* Makes the connection of fd stop meeting. True if it holds no such descriptor any more. */
static bool stop_meeting(int fd, bool at_once)
{
    struct via_op op;
    if (via_likely(via_fd_peek(fd) == NULL) || !via_op_begin(&op, fd)) {
        return false;
    }
    bool gave_up = via_conn_is_meeting(op.conn) && via_conn_stop_meeting(&op, at_once);
    via_op_end(&op);
    return gave_up;
}

bool via_meeting_is_open_allowed(void)
{
    unsigned top = via_fds_top();
    unsigned most = room();
    for (unsigned polls = 0; via_hidden_meeting_count() >= most; polls++) {
        if (polls == POLLS_MAX || top == 0) {
            return false;
        }
        stop_meeting((int)(atomic_fetch_add_explicit(&hand, 1, memory_order_relaxed) % top), false);
    }
    return true;
}

bool via_meeting_release_fds(void)
{
    unsigned top = via_fds_top();
    VIA_KEEP_ERRNO;
    bool any = false;
    /* Two passes: receiving the peer's answer needs descriptors, of which there may be none before
     * the first pass has closed some. */
    for (unsigned i = 0; i < 2 * top; i++) {
        any |= stop_meeting((int)(i % top), true);
    }
    return any;
}

void via_meeting_note_fd(int fd)
{
    atomic_store_explicit(&seen, (unsigned)fd, memory_order_relaxed);
    unsigned meeting = via_hidden_meeting_count();
    if (via_unlikely(meeting != 0) && meeting > room()) {
        via_meeting_release_fds();
    }
}
