/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/stream/phase.h"

#include <errno.h>

#define P(phase) VIA_PHASE_##phase
#define ON(event) [VIA_EVENT_##event]

/* 0: the event changes nothing. No event leads to NEW. */
static const uint8_t table[VIA_PHASES_COUNT][VIA_EVENTS_COUNT] = {
    [P(NEW)] = {ON(CONNECT) = P(PENDING), ON(ACCEPT) = P(ACCEPTED), ON(SETTLE) = P(PLAIN)},
    [P(PENDING)] = {ON(CLAIM) = P(PENDING_BUSY)},
    [P(PENDING_BUSY)] = {ON(NOT_YET) = P(PENDING), ON(MEET) = P(ANNOUNCED),
                         /* Between hosts the offer is the only message before pipes. */
                         ON(TAKE) = P(LIVE), ON(SETTLE) = P(PLAIN)},
    [P(ANNOUNCED)] = {ON(CLAIM) = P(ANNOUNCED_BUSY)},
    [P(ANNOUNCED_BUSY)] = {ON(NOT_YET) = P(ANNOUNCED), ON(TAKE) = P(LIVE), ON(SETTLE) = P(PLAIN)},
    [P(ACCEPTED)] = {ON(CLAIM) = P(ACCEPTED_BUSY)},
    [P(ACCEPTED_BUSY)] = {ON(NOT_YET) = P(ACCEPTED), ON(OFFER) = P(OFFERED), ON(SETTLE) = P(PLAIN)},
    [P(OFFERED)] = {ON(CLAIM) = P(OFFERED_BUSY), ON(FOLLOW) = P(REPLAYING), ON(STAY) = P(STAYS),
                    ON(LEAVE) = P(LEAVING), ON(WITHDRAW) = P(OVER)},
    [P(OFFERED_BUSY)] = {ON(NOT_YET) = P(OFFERED), ON(TAKE) = P(LIVE), ON(FOLLOW) = P(REPLAYING),
                         ON(STAY) = P(STAYS), ON(LEAVE) = P(LEAVING), ON(WITHDRAW) = P(OVER)},
    [P(LIVE)] = {ON(FOLLOW) = P(REPLAYING), ON(STAY) = P(STAYS), ON(LEAVE) = P(LEAVING)},
    [P(REPLAYING)] = {ON(REPLAY) = P(FOLLOWING), ON(LEAVE) = P(LEFT_REPLAYING)},
    [P(FOLLOWING)] = {ON(FINISH) = P(OVER), ON(LEAVE) = P(OVER)},
    [P(STAYS)] = {ON(LEAVE) = P(LEAVING_STAYS)},
    [P(BACK)] = {ON(FOLLOW) = P(REPLAYING), ON(STAY) = P(STAYS), ON(LEAVE) = P(LEAVING)},
    [P(LEAVING)] = {ON(FOLLOW) = P(LEAVING_REPLAYING), ON(STAY) = P(LEAVING_STAYS),
                    ON(ANSWER) = P(LEFT), ON(TAKE_BACK) = P(BACK)},
    [P(LEAVING_REPLAYING)] = {ON(REPLAY) = P(LEAVING_FOLLOWED), ON(ANSWER) = P(LEFT_REPLAYING),
                              ON(TAKE_BACK) = P(REPLAYING)},
    [P(LEAVING_FOLLOWED)] = {ON(ANSWER) = P(OVER), ON(TAKE_BACK) = P(FOLLOWING)},
    [P(LEAVING_STAYS)] = {ON(ANSWER) = P(OVER), ON(TAKE_BACK) = P(STAYS)},
    [P(LEFT)] = {ON(FOLLOW) = P(LEFT_REPLAYING), ON(STAY) = P(OVER)},
    [P(LEFT_REPLAYING)] = {ON(REPLAY) = P(OVER)},
};

int via_phase_next(enum via_phase phase, enum via_event event)
{
    if (phase >= VIA_PHASES_COUNT || event >= VIA_EVENTS_COUNT || table[phase][event] == 0) {
        return -EINVAL;
    }
    return table[phase][event];
}

bool via_phase_apply_in(struct via_phase_word *word, enum via_phase phase, enum via_event event)
{
    int next = via_phase_next(phase, event);
    uint8_t expected = (uint8_t)phase;
    /* Pairs with the acquire in via_phase_get(). */
    return next >= 0 &&
           atomic_compare_exchange_strong_explicit(&word->phase, &expected, (uint8_t)next,
                                                   memory_order_acq_rel, memory_order_relaxed);
}

bool via_phase_apply(struct via_phase_word *word, enum via_event event)
{
    /* Each failed exchange is another thread's transition, and an end has only a few. */
    for (;;) {
        enum via_phase phase = via_phase_get(word);
        if (via_phase_next(phase, event) < 0) {
            return false;
        }
        if (via_phase_apply_in(word, phase, event)) {
            return true;
        }
    }
}
