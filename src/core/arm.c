/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "core/arm.h"

#include "base/mutant.h"

bool via_arm_poll(enum via_arm_phase *phase, struct via_port *port, unsigned queue, bool posted)
{
    const struct via_port_ops *ops = port->ops;

    if (port->caps.coherent) {
        /* the announcement has arrived, because via_pipe_arm() and via_pipe_request_room() fence */
        return true;
    }
    if (posted) {
        *phase = VIA_ARM_PHASE_IDLE;
    }
    if (*phase == VIA_ARM_PHASE_IDLE) {
        ops->flush(port, queue);
        if (VIA_MUTANT(NO_FENCE)) {
            return true;
        }
        /* -ENOLINK: a dead link carries nothing that could be missed, and its end wakes the
         * thread. */
        *phase = ops->fence_start(port, queue) == 0 ? VIA_ARM_PHASE_FENCING : VIA_ARM_PHASE_ARMED;
    }
    if (*phase == VIA_ARM_PHASE_FENCING && ops->fence_poll(port, queue) != 0) {
        *phase = VIA_ARM_PHASE_ARMED;
    }
    return *phase == VIA_ARM_PHASE_ARMED || VIA_MUTANT(EARLY_CHECK);
}
