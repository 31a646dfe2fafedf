/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_PHASE_H
#define VIA_SOCKETS_PHASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * The state machine of one end of a connection: whether its bytes go through the kernel or by
 * pipes, and which event the end waits for. No I/O. docs/protocol.md section 17 draws it;
 * tests/sockets/test_phase.c tries every event in every phase; the simulator (sim/sockets) and the
 * model (tests/model/phase.pml) run this table with both ends.
 *
 * A phase is one byte, shared by all processes that hold the end, and changed only by
 * via_phase_apply(). _BUSY: one thread of one process is doing the work of the preceding phase; all
 * other threads leave the end as it is.
 */
enum via_phase {
    /* Bytes go through the kernel connection, and pipes may still come: */
    VIA_PHASE_NEW = 0,
    VIA_PHASE_PENDING = 1, /* connector: listens for its acceptor */
    VIA_PHASE_PENDING_BUSY = 2,
    VIA_PHASE_ANNOUNCED = 3, /* connector: the acceptor runs Viaduct and may offer pipes */
    VIA_PHASE_ANNOUNCED_BUSY = 4,
    VIA_PHASE_ACCEPTED = 5, /* acceptor: it has not offered pipes yet */
    VIA_PHASE_ACCEPTED_BUSY = 6,
    /* No pipes, ever: */
    VIA_PHASE_PLAIN = 7,
    /* The end has pipes, and reads them: */
    VIA_PHASE_OFFERED = 8, /* acceptor: writes to the kernel until the offer is taken */
    VIA_PHASE_OFFERED_BUSY = 9,
    VIA_PHASE_LIVE = 10, /* writes to the kernel or to the pipe (stream.h) */
    /* The end has pipes, but does not write to them any more. "Unread" are bytes in the peer's pipe
     * that the peer had not read when it left; this end resends them through the kernel. */
    VIA_PHASE_REPLAYING = 11, /* the peer has left: this end is resending the unread bytes */
    VIA_PHASE_FOLLOWING = 12, /* all unread bytes are resent; this end reads its pipe to the end */
    VIA_PHASE_STAYS = 13,     /* the peer has left, and this end can not resend anything */
    VIA_PHASE_BACK = 14,      /* this end had left, but the peer can not resend: it reads on */
    /* The end has left the pipes: */
    VIA_PHASE_LEAVING = 15, /* the peer has not answered */
    /* The peer has left, too, and this end is resending the unread bytes. */
    VIA_PHASE_LEAVING_REPLAYING = 16,
    VIA_PHASE_LEAVING_FOLLOWED = 17, /* the same, and all unread bytes are resent */
    VIA_PHASE_LEAVING_STAYS = 18,    /* the peer has left, too; this end can not resend anything */
    VIA_PHASE_LEFT = 19,             /* the end has left permanently */
    VIA_PHASE_LEFT_REPLAYING = 20,   /* the same, but this end is still resending */
    VIA_PHASE_OVER = 21,             /* both ends have left */
    VIA_PHASES_COUNT = 22,
};

enum via_event {
    VIA_EVENT_CONNECT = 0,
    VIA_EVENT_ACCEPT = 1,
    VIA_EVENT_CLAIM = 2,   /* a thread begins the phase's work */
    VIA_EVENT_NOT_YET = 3, /* that work had no result yet */
    VIA_EVENT_MEET = 4,    /* the connector has met its acceptor */
    VIA_EVENT_OFFER = 5,   /* the acceptor has offered pipes */
    VIA_EVENT_TAKE = 6,    /* the offer is taken */
    VIA_EVENT_SETTLE = 7,  /* the offer can not be taken: plain */
    VIA_EVENT_FOLLOW = 8,  /* the peer has left, and this end resends the unread bytes */
    VIA_EVENT_REPLAY = 9,  /* all unread bytes are resent */
    VIA_EVENT_STAY = 10,   /* the peer has left, and this end can not resend anything */
    VIA_EVENT_FINISH = 11, /* this end has read the pipe that its peer has left */
    VIA_EVENT_LEAVE = 12,
    /* The peer has acknowledged that this end has left, or this end does not wait for that. */
    VIA_EVENT_ANSWER = 13,
    VIA_EVENT_TAKE_BACK = 14, /* the peer can not resend: its bytes are in the pipe */
    /* The acceptor withdraws an offer that was not taken, and can not be taken any more. */
    VIA_EVENT_WITHDRAW = 15,
    VIA_EVENTS_COUNT = 16,
};

#define VIA_PHASE_BIT(phase) (UINT32_C(1) << (VIA_PHASE_##phase))

/* Sets of phases. Undecided: pipes may still come. */
#define VIA_PHASES_UNDECIDED                                                              \
    (VIA_PHASE_BIT(NEW) | VIA_PHASE_BIT(PENDING) | VIA_PHASE_BIT(PENDING_BUSY) |          \
     VIA_PHASE_BIT(ANNOUNCED) | VIA_PHASE_BIT(ANNOUNCED_BUSY) | VIA_PHASE_BIT(ACCEPTED) | \
     VIA_PHASE_BIT(ACCEPTED_BUSY))
#define VIA_PHASES_OFFERED (VIA_PHASE_BIT(OFFERED) | VIA_PHASE_BIT(OFFERED_BUSY))
/* The end's writer may use the pipe, now or later. */
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
/* The bytes go through the kernel, permanently. */
#define VIA_PHASES_PLAIN (VIA_PHASE_BIT(PLAIN) | VIA_PHASES_GONE)
/* Bytes must be resent before any other bytes. */
#define VIA_PHASES_REPLAY \
    (VIA_PHASE_BIT(REPLAYING) | VIA_PHASE_BIT(LEAVING_REPLAYING) | VIA_PHASE_BIT(LEFT_REPLAYING))
/* The peer has left, and gets from this end, through the kernel, the bytes that it has not read. */
#define VIA_PHASES_FOLLOW                                                             \
    (VIA_PHASES_REPLAY | VIA_PHASE_BIT(FOLLOWING) | VIA_PHASE_BIT(LEAVING_FOLLOWED) | \
     VIA_PHASE_BIT(OVER))
/* If the peer leaves, or has left, this end must answer. */
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
    /* Pairs with the release in via_phase_apply(): what belongs to a phase is set up before. */
    return (enum via_phase)atomic_load_explicit(&word->phase, memory_order_acquire);
}

/* Applies the event in the present phase. False: the event changes nothing there. */
bool via_phase_apply(struct via_phase_word *word, enum via_event event);

/* The same in one phase only. */
bool via_phase_apply_in(struct via_phase_word *word, enum via_phase phase, enum via_event event);

#endif
