/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The descriptors that a thread is closing. They are not in the table any more, but still in the
 * counts of their connections. A signal handler may fork meanwhile: then parent and child both
 * continue the call, and the child must count the descriptor, too.
 */
#include "sockets/conn/conn.h"
#include "sockets/process/lock.h"

/* more than one if a handler interrupts close() by another */
#define CLOSINGS_MAX 4u

struct closing {
    struct via_conn *conn; /* NULL: unused */
    uint32_t serial;       /* of the call */
    bool released;         /* side->refs does not count the descriptor any more */
};
static __thread struct closing closings[CLOSINGS_MAX] __attribute__((tls_model("initial-exec")));
static __thread uint32_t last_serial __attribute__((tls_model("initial-exec")));

/* Returns an unused record. If there is none, signal handlers have left calls by longjmp(), or
 * interrupt each other very often: then one of these calls loses its record. */
static struct closing *find_unused(void)
{
    for (unsigned i = 0; i < CLOSINGS_MAX; i++) {
        if (closings[i].conn == NULL) {
            return &closings[i];
        }
    }
    return &closings[last_serial % CLOSINGS_MAX];
}

/* Returns the record of a call, or NULL. Calls are not told apart by stack address: a handler may
 * run on a stack of its own (sigaltstack(2)). */
static struct closing *find_closing(const struct via_conn *conn, uint32_t serial)
{
    for (unsigned i = 0; i < CLOSINGS_MAX; i++) {
        if (closings[i].conn == conn && closings[i].serial == serial) {
            return &closings[i];
        }
    }
    return NULL;
}

uint32_t via_conn_begin_close(struct via_conn *conn)
{
    struct closing *closing = find_unused();
    *closing = (struct closing){.conn = conn, .serial = ++last_serial};
    return last_serial;
}

uint32_t via_conn_release_number(struct via_conn *conn, uint32_t serial)
{
    via_lock_enter(); /* no handler forks between the count and the record */
    struct closing *closing = find_closing(conn, serial);
    uint32_t before = atomic_fetch_sub_explicit(&conn->side->refs, 1, memory_order_acq_rel);
    if (closing != NULL) {
        closing->released = true;
    }
    via_lock_leave();
    return before;
}

uint32_t via_conn_end_close(struct via_conn *conn, uint32_t serial)
{
    via_lock_enter();
    struct closing *closing = find_closing(conn, serial);
    uint32_t before = atomic_fetch_sub_explicit(&conn->fds, 1, memory_order_acq_rel);
    if (closing != NULL) {
        closing->conn = NULL;
    }
    via_lock_leave();
    return before;
}

void via_closings_forked(void)
{
    for (unsigned i = 0; i < CLOSINGS_MAX; i++) {
        struct via_conn *conn = closings[i].conn;
        if (conn == NULL) {
            continue;
        }
        atomic_fetch_add_explicit(&conn->fds, 1, memory_order_relaxed);
        if (closings[i].released) {
            atomic_fetch_sub_explicit(&conn->side->refs, 1, memory_order_acq_rel);
        }
    }
}
