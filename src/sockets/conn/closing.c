/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The numbers that a thread is closing. They are not in the table any more, but still in the counts
 * of their connections. A signal handler may fork meanwhile: then parent and child both go on with
 * the call, and the child must count the number, too.
 */
#include "sockets/conn/conn.h"
#include "sockets/process/lock.h"

/* More than one if a handler has interrupted close(), and closes another number. Further ones are
 * not recorded. */
#define CLOSINGS_MAX 4u

struct closing {
    struct via_conn *conn;
    uintptr_t frame; /* of the call */
    bool released;   /* the number does not count any more for all processes */
};
static __thread struct closing closings[CLOSINGS_MAX] __attribute__((tls_model("initial-exec")));
static __thread unsigned closings_count __attribute__((tls_model("initial-exec")));

/* The record of the innermost call, or NULL. The stack grows down: a call whose frame is below this
 * one no longer exists (longjmp). */
static struct closing *find_closing(void)
{
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    while (closings_count > 0 && closings[closings_count - 1].frame < frame) {
        closings_count--;
    }
    return closings_count > 0 ? &closings[closings_count - 1] : NULL;
}

void via_conn_begin_close(struct via_conn *conn, void *frame)
{
    while (closings_count > 0 && closings[closings_count - 1].frame <= (uintptr_t)frame) {
        closings_count--; /* as in find_closing() */
    }
    if (closings_count < CLOSINGS_MAX) {
        closings[closings_count++] = (struct closing){.conn = conn, .frame = (uintptr_t)frame};
    }
}

uint32_t via_conn_release_number(struct via_conn *conn)
{
    via_lock_enter(); /* no handler forks between the count and the record */
    struct closing *closing = find_closing();
    uint32_t before = atomic_fetch_sub_explicit(&conn->side->refs, 1, memory_order_acq_rel);
    if (closing != NULL && closing->conn == conn) {
        closing->released = true;
    }
    via_lock_leave();
    return before;
}

uint32_t via_conn_end_close(struct via_conn *conn)
{
    via_lock_enter();
    const struct closing *closing = find_closing();
    uint32_t before = atomic_fetch_sub_explicit(&conn->fds, 1, memory_order_acq_rel);
    if (closing != NULL && closing->conn == conn && closing->released) {
        closings_count--;
    }
    via_lock_leave();
    return before;
}

void via_closings_forked(void)
{
    (void)find_closing();
    for (unsigned i = 0; i < closings_count; i++) {
        struct via_conn *conn = closings[i].conn;
        atomic_fetch_add_explicit(&conn->fds, 1, memory_order_relaxed);
        if (closings[i].released) {
            atomic_fetch_sub_explicit(&conn->side->refs, 1, memory_order_acq_rel);
        }
    }
}
