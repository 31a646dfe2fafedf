/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Direct connections, the end that puts and gets: quiet, progress, and the choice of the path of an
 * access. */
#include <errno.h>

#include "host/client_auto.h"
#include "host/client_sys.h"
#include "host/client_tcp_inside.h"

/* --- quiet ------------------------------------------------------------------------------------ */

/* Reports a refusal by the host once: 0, or its error. */
static int take_refusal(struct via_client_tcp *tcp)
{
    return atomic_load_explicit(&tcp->refused, memory_order_relaxed) != 0 &&
                   atomic_exchange_explicit(&tcp->refused, 0, memory_order_relaxed) != 0
               ? via_client_tcp_report_refusal(tcp)
               : 0;
}

/* True if the peer has applied all requests, or all counted ones. */
static bool is_quiet(const struct via_client_tcp *tcp, bool counted)
{
    const _Atomic uint64_t *issued = counted ? &tcp->counted : &tcp->issued;
    const _Atomic uint64_t *applied = counted ? &tcp->counted_applied : &tcp->applied;
    /* Acquire pairs with the release in complete(): answers have been stored at their
     * destinations. */
    return atomic_load_explicit(issued, memory_order_relaxed) ==
               atomic_load_explicit(applied, memory_order_acquire) &&
           atomic_load_explicit(&tcp->expected_count, memory_order_acquire) == 0;
}

static int wait_quiet(struct via_client_tcp *tcp, bool counted)
{
    int rc = 0;
    if (via_client_tcp_is_over(tcp)) {
        return via_client_tcp_report_end(tcp);
    }
    if (!is_quiet(tcp, counted)) {
        pthread_mutex_lock(&tcp->lock);
        rc = is_quiet(tcp, counted) ? 0 : via_client_tcp_fence(tcp);
        if (rc != 0 && counted && tcp->to_host && via_client_tcp_is_over(tcp)) {
            atomic_store_explicit(&tcp->end_reported, true, memory_order_relaxed);
        }
        pthread_mutex_unlock(&tcp->lock);
    }
    if (rc != 0) {
        atomic_store_explicit(&tcp->refused, 0, memory_order_relaxed); /* this error reports it */
        return rc;
    }
    /* Another call may have taken the answer with the refusal. */
    return take_refusal(tcp);
}

/* True if the connection to a host has ended and can not have lost anything. The end of a
 * connection to a process is the end of its job. */
bool via_client_tcp_is_harmless_end(const struct via_client_tcp *tcp)
{
    return tcp->to_host && via_client_tcp_is_over(tcp) && is_quiet(tcp, true);
}

int via_client_tcp_all_quiet(struct via_attach *attach)
{
    unsigned count = via_client_tcp_count(attach);
    int rc = 0;
    for (unsigned i = 0; i < count && rc == 0; i++) {
        struct via_client_tcp *tcp = attach->tcp_all[i];
        if (tcp->kept != NULL) {
            rc = via_client_auto_quiet(tcp, true);
            continue;
        }
        /* The end of a connection to a host is reported once, if something may be lost. */
        bool known = via_client_tcp_is_harmless_end(tcp) ||
                     (tcp->to_host && via_client_tcp_is_over(tcp) &&
                      atomic_exchange_explicit(&tcp->end_reported, true, memory_order_relaxed));
        rc = known ? take_refusal(tcp) : wait_quiet(tcp, true);
    }
    return rc;
}

int via_client_tcp_all_failure(const struct via_attach *attach)
{
    unsigned count = via_client_tcp_count(attach);
    for (unsigned i = 0; i < count; i++) {
        const struct via_client_tcp *tcp = attach->tcp_all[i];
        if (tcp->kept == NULL && via_client_tcp_is_over(tcp) &&
            !via_client_tcp_is_harmless_end(tcp) &&
            !atomic_load_explicit(&tcp->end_reported, memory_order_relaxed)) {
            return via_client_tcp_report_end(tcp);
        }
    }
    return 0;
}

/* --- progress --------------------------------------------------------------------------------- */

bool via_client_tcp_is_time_over(const struct via_attach *attach)
{
    uint64_t deadline_ns = atomic_load_explicit(&attach->leave_deadline_ns, memory_order_relaxed);
    return deadline_ns != 0 && via_client_now_ns() > deadline_ns;
}

bool via_client_tcp_is_alive(struct via_client_tcp *tcp)
{
    pthread_mutex_lock(&tcp->lock);
    via_client_tcp_take(tcp); /* ... or finds the end of the connection */
    pthread_mutex_unlock(&tcp->lock);
    return !via_client_tcp_is_over(tcp);
}

bool via_client_tcp_all_flush(struct via_attach *attach)
{
    unsigned count = via_client_tcp_count(attach);
    bool all = true;
    for (unsigned i = 0; i < count; i++) {
        struct via_client_tcp *tcp = attach->tcp_all[i];
        if (!via_client_tcp_is_held_back(tcp)) {
            continue;
        }
        if (pthread_mutex_trylock(&tcp->lock) != 0) {
            all = false;
            continue;
        }
        if (via_client_tcp_flush(tcp) == -EAGAIN) {
            all = false;
        }
        pthread_mutex_unlock(&tcp->lock);
    }
    return all;
}

void via_client_tcp_all_poll(struct via_attach *attach)
{
    unsigned count = via_client_tcp_count(attach);
    (void)via_client_tcp_all_flush(attach);
    (void)via_client_serve_poll(attach->serve);
    for (unsigned i = 0; i < count; i++) {
        struct via_client_tcp *tcp = attach->tcp_all[i];
        if (atomic_load_explicit(&tcp->expected_count, memory_order_relaxed) != 0 &&
            pthread_mutex_trylock(&tcp->lock) == 0) {
            via_client_tcp_take(tcp);
            pthread_mutex_unlock(&tcp->lock);
        }
    }
}

/* --- paths ------------------------------------------------------------------------------------ */

static bool has_link(const struct via_remote *remote)
{
    uint64_t word = via_client_status(remote->attach, remote->host);
    return via_status_is_reachable(word) && via_status_hops(word) == 1;
}

static bool has_frames(const struct via_remote *remote)
{
    /* Pairs with the releases that decrement the count: at 0 all frames have arrived. */
    return atomic_load_explicit(&remote->attach->host_pending[remote->host],
                                memory_order_acquire) != 0;
}

static bool are_frames_over(struct via_attach *attach, void *ctx)
{
    const struct via_remote *remote = ctx;
    (void)attach;
    return !has_frames(remote) || !has_link(remote);
}

int via_client_tcp_leave(struct via_remote *remote)
{
    return remote->tcp != NULL ? wait_quiet(remote->tcp, false) : 0;
}

int via_client_tcp_way(struct via_remote *remote, struct via_client_tcp **ret_tcp)
{
    *ret_tcp = NULL;
    if (remote->tcp == NULL) {
        return 0;
    }
    if (via_client_tcp_is_over(remote->tcp)) {
        via_client_remote_lose(remote);
        return via_client_tcp_report_end(remote->tcp);
    }
    while (has_link(remote)) {
        if (!has_frames(remote)) {
            *ret_tcp = remote->tcp;
            return 0;
        }
        int rc = via_client_wait_remote(remote, are_frames_over, VIA_NEVER_NS);
        if (rc != 0) {
            return rc;
        }
    }
    return via_client_tcp_leave(remote);
}
