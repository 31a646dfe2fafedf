/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The names of phase.h for people: the simulator's reports and the tests of the table. */
#ifndef VIA_SIM_PHASE_NAMES_H
#define VIA_SIM_PHASE_NAMES_H

#include "sockets/stream/phase.h"

static inline const char *via_phase_name(enum via_phase phase)
{
    static const char *const names[VIA_PHASES_COUNT] = {"NEW",
                                                        "PENDING",
                                                        "PENDING_BUSY",
                                                        "ANNOUNCED",
                                                        "ANNOUNCED_BUSY",
                                                        "ACCEPTED",
                                                        "ACCEPTED_BUSY",
                                                        "PLAIN",
                                                        "OFFERED",
                                                        "OFFERED_BUSY",
                                                        "LIVE",
                                                        "REPLAYING",
                                                        "FOLLOWING",
                                                        "STAYS",
                                                        "BACK",
                                                        "LEAVING",
                                                        "LEAVING_REPLAYING",
                                                        "LEAVING_FOLLOWED",
                                                        "LEAVING_STAYS",
                                                        "LEFT",
                                                        "LEFT_REPLAYING",
                                                        "OVER"};
    return phase < VIA_PHASES_COUNT ? names[phase] : "?";
}

static inline const char *via_event_name(enum via_event event)
{
    static const char *const names[VIA_EVENTS_COUNT] = {
        "CONNECT", "ACCEPT", "CLAIM", "NOT_YET", "MEET",  "OFFER",  "TAKE",      "SETTLE",
        "FOLLOW",  "REPLAY", "STAY",  "FINISH",  "LEAVE", "ANSWER", "TAKE_BACK", "WITHDRAW"};
    return event < VIA_EVENTS_COUNT ? names[event] : "?";
}

#endif
