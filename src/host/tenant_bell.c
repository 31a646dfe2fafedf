/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A transfer thread sleeps on its line of the host's bell page, and on its line of each user's
 * page. */
#include <errno.h>
#include <time.h>

#include "host/host_private.h"

/* Kernels before 5.16 wait for only one word. There the thread polls at this interval for rings of
 * users other than the owner. */
#define POLL_NS VIA_MSEC_NS

struct bells {
    unsigned count;
    struct {
        struct via_bell *bell;
        uint32_t seen;
    } list[1 + VIA_TENANTS_MAX];
};
_Static_assert(1 + VIA_TENANTS_MAX <= FUTEX_WAITV_MAX, "all are waited for at once");

static uint32_t bells_end(const struct via_transfer *transfer)
{
    return atomic_load_explicit(&transfer->host->tenants.bells_end, memory_order_acquire);
}

/* The thread's line in the page at this index; NULL: no page. Valid in this turn. */
static struct via_bell *bell_of(const struct via_transfer *transfer, uint32_t index)
{
    struct via_bell *page =
        atomic_load_explicit(&transfer->host->tenants.bells[index], memory_order_acquire);
    return page != NULL ? page + transfer->channel : NULL;
}

bool via_tenant_bells_have_rung(struct via_transfer *transfer)
{
    if (atomic_load_explicit(&transfer->bell->count, memory_order_acquire) != transfer->bell_seen) {
        return true;
    }
    uint32_t end = bells_end(transfer);
    for (uint32_t i = 0; i < end; i++) {
        const struct via_bell *bell = bell_of(transfer, i);
        if (bell != NULL && atomic_load_explicit(&bell->count, memory_order_acquire) !=
                                transfer->tenant_bells_seen[i]) {
            return true;
        }
    }
    return false;
}

void via_tenant_bells_note(struct via_transfer *transfer)
{
    transfer->bell_seen = atomic_load_explicit(&transfer->bell->count, memory_order_acquire);
    uint32_t end = bells_end(transfer);
    for (uint32_t i = 0; i < end; i++) {
        const struct via_bell *bell = bell_of(transfer, i);
        if (bell != NULL) {
            transfer->tenant_bells_seen[i] =
                atomic_load_explicit(&bell->count, memory_order_acquire);
        }
    }
}

static void collect(const struct via_transfer *transfer, struct bells *ret_bells)
{
    uint32_t end = bells_end(transfer);
    ret_bells->count = 1;
    ret_bells->list[0].bell = transfer->bell;
    ret_bells->list[0].seen = transfer->bell_seen;
    for (uint32_t i = 0; i < end; i++) {
        struct via_bell *bell = bell_of(transfer, i);
        if (bell != NULL) {
            ret_bells->list[ret_bells->count].bell = bell;
            ret_bells->list[ret_bells->count].seen = transfer->tenant_bells_seen[i];
            ret_bells->count++;
        }
    }
}

static struct timespec time_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / VIA_SEC_NS),
                             .tv_nsec = (long)(ns % VIA_SEC_NS)};
}

static void wait_one(const struct via_bell *bell, uint32_t seen, uint64_t deadline_ns)
{
    struct timespec until = time_of(deadline_ns);
    syscall(SYS_futex, &bell->count, FUTEX_WAIT_BITSET, seen,
            deadline_ns == VIA_NEVER_NS ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void wait_all(const struct bells *bells, uint64_t deadline_ns)
{
    struct futex_waitv waiters[VIA_ARRAY_COUNT(bells->list)];
    for (unsigned i = 0; i < bells->count; i++) {
        waiters[i] = (struct futex_waitv){
            .val = bells->list[i].seen,
            .uaddr = (uintptr_t)&bells->list[i].bell->count,
            .flags = FUTEX_32,
        };
    }
    struct timespec until = time_of(deadline_ns);
    long rc = syscall(SYS_futex_waitv, waiters, bells->count, 0,
                      deadline_ns == VIA_NEVER_NS ? NULL : &until, CLOCK_MONOTONIC);
    if (rc < 0 && (errno == ENOSYS || errno == EPERM)) {
        wait_one(bells->list[0].bell, bells->list[0].seen,
                 via_min(deadline_ns, via_host_now_ns() + POLL_NS));
    }
}

void via_tenant_bells_sleep(struct via_transfer *transfer, uint64_t deadline_ns)
{
    struct bells bells;
    collect(transfer, &bells);
    /* See via_bell_ring(): the ringing thread loads the incremented `sleepers`, or the wait finds
     * the new count. */
    for (unsigned i = 0; i < bells.count; i++) {
        atomic_fetch_add_explicit(&bells.list[i].bell->sleepers, 1, memory_order_seq_cst);
    }
    if (bells.count == 1) {
        wait_one(bells.list[0].bell, bells.list[0].seen, deadline_ns);
    } else {
        wait_all(&bells, deadline_ns);
    }
    for (unsigned i = 0; i < bells.count; i++) {
        atomic_fetch_sub_explicit(&bells.list[i].bell->sleepers, 1, memory_order_seq_cst);
    }
}
