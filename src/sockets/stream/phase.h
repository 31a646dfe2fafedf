/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_PHASE_H
#define VIA_SOCKETS_PHASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * The state machine of one end of a connection: what carries its bytes, and what it waits for. No
 * I/O. docs/protocol.md section 17 draws it; tests/sockets/test_phase.c tries every event in every
 * phase; the simulator (sim/sockets) and the model (tests/model/phase.pml) run this table
 * with both ends.
 *
 * A phase is one byte that all processes share which hold the end. It changes by via_phase_apply()
 * only. _BUSY: one thread of one process does the work of the phase before; all others leave it
 * alone.
 */
enum via_phase {
    /* The kernel's connection carries the bytes, and pipes may still come: */
    VIA_PHASE_NEW = 0,
    VIA_PHASE_PENDING = 1, /* connector: listens for its acceptor */
    VIA_PHASE_PENDING_BUSY = 2,
    VIA_PHASE_ANNOUNCED = 3, /* connector: the acceptor runs Viaduct and may offer pipes */
    VIA_PHASE_ANNOUNCED_BUSY = 4,
    VIA_PHASE_ACCEPTED = 5, /* acceptor: nothing is offered yet */
    VIA_PHASE_ACCEPTED_BUSY = 6,
    /* No pipes, ever: */
    VIA_PHASE_PLAIN = 7,
    /* Pipes are there, and are read: */
    VIA_PHASE_OFFERED = 8, /* acceptor: writes to the kernel until the offer is taken */
    VIA_PHASE_OFFERED_BUSY = 9,
    VIA_PHASE_LIVE = 10, /* writes to kernel or pipe (stream.h) */
    /* ... not written any more: */
    VIA_PHASE_REPLAYING = 11, /* the peer has left: its unread bytes are sent again */
    VIA_PHASE_FOLLOWING = 12, /* ... have been; this end reads its pipe to the end */
    VIA_PHASE_STAYS = 13,     /* the peer has left, and this end can not send anything again */
    VIA_PHASE_BACK = 14,      /* this end had left, and reads its pipe again */
    /* The pipes are left: */
    VIA_PHASE_LEAVING = 15,           /* ... and the peer has not answered */
    VIA_PHASE_LEAVING_REPLAYING = 16, /* ... the peer has left, too, and its unread ... */
    VIA_PHASE_LEAVING_FOLLOWED = 17,  /* ... bytes are sent again; that is done */
    VIA_PHASE_LEAVING_STAYS = 18,     /* ... the peer has left, too; nothing is sent again */
    VIA_PHASE_LEFT = 19,              /* permanently */
    VIA_PHASE_LEFT_REPLAYING = 20,    /* ... except for bytes that are sent again */
    VIA_PHASE_OVER = 21,              /* ... by both ends */
    VIA_PHASES_COUNT = 22,
};

enum via_event {
    VIA_EVENT_CONNECT = 0,
    VIA_EVENT_ACCEPT = 1,
    VIA_EVENT_CLAIM = 2,   /* a thread does the phase's work; other threads leave it alone */
    VIA_EVENT_NOT_YET = 3, /* ... in vain */
    VIA_EVENT_MEET = 4,    /* the connector has met its acceptor */
    VIA_EVENT_OFFER = 5,   /* the acceptor has offered pipes */
    VIA_EVENT_TAKE = 6,    /* the offer is taken */
    VIA_EVENT_SETTLE = 7,  /* it can not be taken: plain */
    VIA_EVENT_FOLLOW = 8,  /* the peer has left: its unread bytes are sent again */
    VIA_EVENT_REPLAY = 9,  /* ... all of them */
    VIA_EVENT_STAY = 10,   /* the peer has left, and nothing can be sent again */
    VIA_EVENT_FINISH = 11, /* this end needs the pipe no more that its peer has left */
    VIA_EVENT_LEAVE = 12,
    VIA_EVENT_ANSWER = 13,    /* the peer knows that this end has left, or is not waited for */
    VIA_EVENT_TAKE_BACK = 14, /* the peer sends nothing again: its bytes are in the pipe */
    VIA_EVENT_WITHDRAW = 15,  /* an offer that was not taken, and can not be taken any more */
    VIA_EVENTS_COUNT = 16,
};

#define VIA_PHASE_BIT(phase) (UINT32_C(1) << (VIA_PHASE_##phase))

/* Sets of phases. Undecided: pipes may still come. */
#define VIA_PHASES_UNDECIDED                                                              \
    (VIA_PHASE_BIT(NEW) | VIA_PHASE_BIT(PENDING) | VIA_PHASE_BIT(PENDING_BUSY) |          \
     VIA_PHASE_BIT(ANNOUNCED) | VIA_PHASE_BIT(ANNOUNCED_BUSY) | VIA_PHASE_BIT(ACCEPTED) | \
     VIA_PHASE_BIT(ACCEPTED_BUSY))
#define VIA_PHASES_OFFERED (VIA_PHASE_BIT(OFFERED) | VIA_PHASE_BIT(OFFERED_BUSY))
/* The end's writer may use the pipe, now or soon. */
#define VIA_PHASES_MAY_SWITCH (VIA_PHASES_UNDECIDED | VIA_PHASES_OFFERED | VIA_PHASE_BIT(LIVE))
/* The end's reader uses the pipe. */
#define VIA_PHASES_PIPED                                                   \
    (VIA_PHASES_OFFERED | VIA_PHASE_BIT(LIVE) | VIA_PHASE_BIT(REPLAYING) | \
     VIA_PHASE_BIT(FOLLOWING) | VIA_PHASE_BIT(STAYS) | VIA_PHASE_BIT(BACK))
/* The end has left, and waits for the peer's answer. */
#define VIA_PHASES_LEAVING                                                                         \
    (VIA_PHASE_BIT(LEAVING) | VIA_PHASE_BIT(LEAVING_REPLAYING) | VIA_PHASE_BIT(LEAVING_FOLLOWED) | \
     VIA_PHASE_BIT(LEAVING_STAYS))
/* The end has left. */
#define VIA_PHASES_GONE \
    (VIA_PHASES_LEAVING | VIA_PHASE_BIT(LEFT) | VIA_PHASE_BIT(LEFT_REPLAYING) | VIA_PHASE_BIT(OVER))
/* The kernel's, permanently. */
#define VIA_PHASES_PLAIN (VIA_PHASE_BIT(PLAIN) | VIA_PHASES_GONE)
/* Some bytes must be sent again before any other. */
#define VIA_PHASES_REPLAY \
    (VIA_PHASE_BIT(REPLAYING) | VIA_PHASE_BIT(LEAVING_REPLAYING) | VIA_PHASE_BIT(LEFT_REPLAYING))
/* A peer that has left has been promised its unread bytes. */
#define VIA_PHASES_FOLLOW                                                             \
    (VIA_PHASES_REPLAY | VIA_PHASE_BIT(FOLLOWING) | VIA_PHASE_BIT(LEAVING_FOLLOWED) | \
     VIA_PHASE_BIT(OVER))
/* A peer that leaves, or has left, needs an answer. */
#define VIA_PHASES_MAY_FOLLOW                                                                  \
    (VIA_PHASES_OFFERED | VIA_PHASE_BIT(LIVE) | VIA_PHASE_BIT(BACK) | VIA_PHASE_BIT(LEAVING) | \
     VIA_PHASE_BIT(LEFT))
static inline bool via_phase_is_in(enum via_phase phase, uint32_t set)
{
    return (set >> (unsigned)phase & 1) != 0;
}

/* The phase after the event; -EINVAL where the event changes nothing. */
int via_phase_next(enum via_phase phase, enum via_event event);

/* Shared by the threads and processes that hold an end. Zeroed: NEW. */
struct via_phase_word {
    _Atomic uint8_t phase;
};

static inline enum via_phase via_phase_get(const struct via_phase_word *word)
{
    /* Pairs with the release in via_phase_apply(): what a phase stands for is set up before. */
    return (enum via_phase)atomic_load_explicit(&word->phase, memory_order_acquire);
}

/* Applies the event, whatever the phase is now. False: it changes nothing there. */
bool via_phase_apply(struct via_phase_word *word, enum via_event event);

/* The same in one phase only. */
bool via_phase_apply_in(struct via_phase_word *word, enum via_phase phase, enum via_event event);

/* For people, and the model. */
const char *via_phase_name(enum via_phase phase);
const char *via_event_name(enum via_event event);

#endif
