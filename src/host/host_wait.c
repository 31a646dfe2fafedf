/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host_wait.h"

#include "base/mutant.h"
#include "base/types.h"

/* Arming reports BUSY although a turn finds no work in this number of attempts. The work is then
 * probably the control thread's, because announcements also ring the doorbell of channel 0. */
#define EMPTY_POLLS_MAX 3u
#define EMPTY_SLEEP_NS (200 * VIA_USEC_NS)
/* Interval at which a thread that would continue to poll checks whether the machine is crowded. */
#define CROWDED_NS VIA_MSEC_NS

void via_host_wait_init(struct via_host_wait *wait, uint64_t spin_ns_max,
                        bool (*is_crowded)(void *ctx), void *ctx)
{
    *wait = (struct via_host_wait){.is_crowded = is_crowded, .ctx = ctx};
    via_host_spin_init(&wait->spin, spin_ns_max);
    via_host_spin_init(&wait->spin_rang, spin_ns_max);
}

static struct via_host_spin *spin_of(struct via_host_wait *wait)
{
    return wait->after_ring ? &wait->spin_rang : &wait->spin;
}

static void learn(struct via_host_wait *wait, uint64_t now_ns, bool found)
{
    via_host_spin_learn(spin_of(wait), now_ns - wait->idle_since_ns, found);
    wait->idle = false;
}

static bool is_polling_allowed(struct via_host_wait *wait, uint64_t now_ns)
{
    if (now_ns - wait->crowded_at_ns >= CROWDED_NS) {
        wait->crowded_at_ns = now_ns;
        wait->crowded = wait->is_crowded(wait->ctx);
    }
    wait->poll_until_ns = wait->crowded_at_ns + CROWDED_NS;
    return !wait->crowded;
}

enum via_host_wait_step via_host_wait_turned(struct via_host_wait *wait, uint64_t now_ns,
                                             unsigned work, uint64_t deadline_ns)
{
    if (work != 0) {
        wait->empty_polls = 0;
        if (wait->idle) {
            learn(wait, now_ns, true);
        }
        return VIA_HOST_WAIT_TURN;
    }
    if (!wait->idle) {
        wait->idle = true;
        wait->idle_since_ns = now_ns;
        wait->after_ring = wait->rang;
        wait->rang = false;
    }
    uint64_t budget_ns = spin_of(wait)->budget_ns;
    if (now_ns - wait->idle_since_ns < budget_ns && is_polling_allowed(wait, now_ns)) {
        wait->poll_until_ns = via_min(wait->poll_until_ns, wait->idle_since_ns + budget_ns);
        return VIA_HOST_WAIT_POLL;
    }
    return deadline_ns <= now_ns ? VIA_HOST_WAIT_TURN : VIA_HOST_WAIT_ARM;
}

enum via_host_wait_step via_host_wait_armed(struct via_host_wait *wait, uint64_t now_ns,
                                            enum via_arm armed, uint64_t *deadline_ns)
{
    /* Polls for about a round trip of the link, and never longer than core/port.h allows. On a
     * crowded machine a polling thread would use the CPU time of the threads that complete its
     * fence, so it sleeps until they wake it. */
    if (armed == VIA_ARM_FENCING) {
        return is_polling_allowed(wait, now_ns) ? VIA_HOST_WAIT_POLL : VIA_HOST_WAIT_FENCE;
    }
    if (armed == VIA_ARM_BUSY && VIA_MUTANT(WAIT_BUSY)) {
        return VIA_HOST_WAIT_SLEEP;
    }
    if (armed == VIA_ARM_BUSY && ++wait->empty_polls < EMPTY_POLLS_MAX) {
        return VIA_HOST_WAIT_TURN;
    }
    wait->empty_polls = 0;
    if (armed == VIA_ARM_BUSY) {
        *deadline_ns = via_min(*deadline_ns, now_ns + EMPTY_SLEEP_NS);
        return VIA_HOST_WAIT_WAKE_CONTROL;
    }
    return VIA_HOST_WAIT_SLEEP;
}

void via_host_wait_slept(struct via_host_wait *wait, uint64_t now_ns)
{
    learn(wait, now_ns, false);
}
