/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_ARM_H
#define VIA_CORE_ARM_H

#include <stdbool.h>

#include "core/port.h"

/*
 * Layer 2: arming in two phases. A thread announces to the peer the event that it waits for
 * ("armed", "room wanted"), starts a fence, and continues its turns; when the fence has
 * completed it polls once more, and may sleep if nothing is there
 * (docs/adr/0024-fences-complete-later.md).
 */
enum via_arm_phase {
    VIA_ARM_PHASE_IDLE = 0, /* what was announced may not have arrived */
    VIA_ARM_PHASE_FENCING,  /* a fence is under way that was started after it */
    VIA_ARM_PHASE_ARMED,    /* it has arrived; what the peer wrote before that is here */
};

/*
 * One step, which does not block. posted: something was announced since the last call, so a fence
 * that is under way proves nothing. true: armed. A proof holds until something else
 * is announced, or the pipes are reset (then the caller sets VIA_ARM_PHASE_IDLE).
 */
bool via_arm_poll(enum via_arm_phase *phase, struct via_port *port, unsigned queue, bool posted);

#endif
