/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/gate.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "shmem/pmi.h"
#include "shmem/world.h"

/* The launcher's process on this machine opens the gate when the PEs of all machines have reached
 * it. */
static void call_launcher(struct via_job *job, uint32_t generation)
{
    atomic_store_explicit(&job->gate_wanted, generation + 1, memory_order_release);
    /* If the pipe is full, the launcher is awake already. */
    if (write(via_world.call_fd, "", 1) < 0 && errno != EAGAIN)
        via_fatal("set-up: pipe to the launcher: write: %s", strerror(errno));
}

static void wait_for_gate(struct via_job_gate *gate, uint32_t generation)
{
    struct via_wait wait = VIA_WAIT_INIT;

    /* Pairs with the release in via_job_gate_open. */
    while (atomic_load_explicit(&gate->generation, memory_order_acquire) == generation) {
        if (via_wait_try(&wait))
            continue;
        uint32_t count = via_event_prepare(&gate->event);
        if (atomic_load_explicit(&gate->generation, memory_order_acquire) != generation)
            via_event_cancel(&gate->event);
        else
            via_event_sleep(&gate->event, count);
    }
    via_wait_done(&wait);
}

void via_gate_pass(void)
{
    struct via_job *job = via_world.job;
    struct via_job_gate *gate = &job->gate;
    uint32_t generation = atomic_load_explicit(&gate->generation, memory_order_acquire);

    if (job->gates == VIA_JOB_GATES_PMI) {
        struct via_error err = {0};
        if (via_pmi_exchange(generation, &err) < 0)
            via_fatal("set-up: %s", via_error_describe(&err));
    }
    if (atomic_fetch_add_explicit(&gate->arrived, 1, memory_order_acq_rel) + 1 == job->pes_here) {
        atomic_store_explicit(&gate->arrived, 0, memory_order_relaxed);
        if (job->gates != VIA_JOB_GATES_LAUNCHER) {
            via_job_gate_open(job);
            return;
        }
        call_launcher(job, generation);
    }
    wait_for_gate(gate, generation);
}
