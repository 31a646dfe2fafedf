/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Both ends of a connection on one machine, from the first call to close(), in Promela, for spin.
 * Phases, events and the table are those of src/sockets/stream/phase.c: test_phase.sh writes table.pml
 * from it. What src/sockets/meet/offer.c and demote.c do around the table is here.
 *
 * Each end sends RECORDS records, by the kernel or by the pipe, and may leave the pipes at any time,
 * both ends also at the same time. Each reads what the peer sends, wherever it comes, and then
 * closes. Order within a direction is not modelled (sim/sockets does that). Wrong are: an
 * event that the table does not have, an end that waits forever, and a record that comes twice or
 * not at all.
 *
 * With one of these defined, what the code does is left out:
 *   WRITES_ON        an end whose peer has left goes on writing to its pipe
 *   NO_FOLLOW_TOO    an end that has left itself does not answer a peer that leaves, too
 *   NO_TAKE_BACK     an end does not take its pipe back when the peer can not send anything again
 *   NO_STAYS         an end that has ended its direction does not say that it sends nothing again
 *   NO_LAST_LOOK     an end that has left has its answer, and does not look whether the peer waits
 */
#include "table.pml"

#ifndef RECORDS
#define RECORDS 1
#endif

#define IN(me, set) (((set) >> phase[me]) & 1)

byte phase[2];
bool demote[2], followed[2], stays[2], closed[2], taken; /* the announcements of an end */

/* Of the direction that an end writes. */
byte sent[2], got[2];
byte pipe[2];       /* records that the reader has not had */
byte kernel[2];
bool again[2];      /* those in the pipe when its writer left were sent by the kernel, too */
bool ended[2];
bool may_leave[2];

/* The kernel's connection is there: both know of it. */
inline begin(me)
{
    if
    :: me == 0 -> apply(0, CONNECT)
    :: else -> apply(1, ACCEPT)
    fi
}

/* offer.c: end 0 connects, end 1 has accepted. */
inline meet(me)
{
    if
    :: phase[me] == PENDING -> apply(me, CLAIM);
        if
        :: phase[1] != ACCEPTED -> apply(me, MEET)
        :: apply(me, NOT_YET)
        :: apply(me, SETTLE)
        fi
    :: phase[me] == ANNOUNCED -> apply(me, CLAIM);
        if
        :: phase[1] == OFFERED || phase[1] == OFFERED_BUSY -> taken = true; apply(me, TAKE)
        :: IN(1, PLAIN_SET) -> apply(me, SETTLE)
        :: else -> apply(me, NOT_YET)
        fi
    :: phase[me] == ACCEPTED -> apply(me, CLAIM);
        if
        :: IN(0, PLAIN_SET) -> apply(me, SETTLE)
        :: phase[0] == ANNOUNCED || phase[0] == PENDING -> apply(me, OFFER)
        :: else -> apply(me, NOT_YET)
        fi
    :: phase[me] == OFFERED -> apply(me, CLAIM);
        if
        :: taken -> apply(me, TAKE)
        :: else -> apply(me, NOT_YET)
        fi
    fi
}

/* The connector has taken the offer, or says that it will not. */
#define IS_ANSWERED (taken || IN(0, PLAIN_SET))

/* demote.c, leave(): with both tokens. */
inline leave(me)
{
    d_step {
        may_leave[me] = false;
        if
        :: pipe[me] != 0 && !ended[me] && IN(me, MAY_SWITCH) -> again[me] = true
        :: else
        fi
    }
    apply(me, LEAVE);
    demote[me] = true
}

#define CAN_LEAVE(me) (may_leave[me] && IN(me, PIPED) && \
                       (me == 0 || taken) && \
                       (pipe[1 - me] == 0 || (!IN(me, FOLLOW_SET) && !ended[1 - me])))

/* via_conn_follow_demotion_tx(), with the tx token. */
inline follow(me)
{
    if
    :: again[me] -> apply(me, FOLLOW); apply(me, REPLAY); followed[me] = true
#ifndef NO_STAYS
    :: !again[me] && ended[me] && pipe[me] != 0 -> apply(me, STAY); stays[me] = true
    :: !again[me] && !(ended[me] && pipe[me] != 0) ->
#else
    :: !again[me] ->
#endif
        apply(me, FOLLOW);
        followed[me] = true
    fi
}

inline replay(me)
{
    d_step {
#ifndef NO_STAYS
        kernel[me] = kernel[me] + pipe[me];
#else
        kernel[me] = kernel[me] + (ended[me] -> 0 : pipe[me]);
#endif
        pipe[me] = 0
    }
    apply(me, REPLAY)
}

/* What the pipe has of the peer's, and the kernel too: the one is skipped, or the other dropped. */
inline drop_or_skip(me)
{
    d_step {
        if
        :: again[1 - me] ->
            kernel[1 - me] = kernel[1 - me] + pipe[1 - me];
            pipe[1 - me] = 0;
            again[1 - me] = false
        :: else
        fi
    }
}

/* The peer sends nothing again: it has ended. */
#define NOTHING_COMES(me) (!followed[1 - me] && (stays[1 - me] || closed[1 - me]))

/* demote_finish() */
inline finish_leaving(me)
{
    if
    :: NOTHING_COMES(me) && !again[1 - me] && pipe[1 - me] != 0 ->
#ifdef NO_TAKE_BACK
        apply(me, ANSWER)
#else
        apply(me, TAKE_BACK);
        demote[me] = false
#endif
    :: else -> drop_or_skip(me); apply(me, ANSWER)
    fi
}

#define HAS_ANSWER(me) (followed[1 - me] || NOTHING_COMES(me) || (demote[1 - me] && again[1 - me]))

/* A peer that has left as well waits, too. */
#ifdef NO_LAST_LOOK
#define MAY_FINISH(me) (IN(me, LEAVING_SET) && HAS_ANSWER(me))
#else
#define MAY_FINISH(me) (IN(me, LEAVING_SET) && HAS_ANSWER(me) && !MUST_FOLLOW(me))
#endif

#ifdef NO_FOLLOW_TOO
#define MUST_FOLLOW(me) (demote[1 - me] && IN(me, MAY_FOLLOW) && IN(me, PIPED))
#else
#define MUST_FOLLOW(me) (demote[1 - me] && IN(me, MAY_FOLLOW) && phase[me] != LEFT)
#endif

#ifdef WRITES_ON
#define WRITES_PIPE(me) (phase[me] == LIVE || phase[me] == REPLAYING || phase[me] == FOLLOWING)
#else
#define WRITES_PIPE(me) (phase[me] == LIVE)
#endif

#define IS_DONE(me) (ended[me] && ended[1 - me] && got[1 - me] == sent[1 - me] && \
                     !IN(me, REPLAY_SET) && !IN(me, LEAVING_SET) && !MUST_FOLLOW(me))

proctype end_of(byte me)
{
    begin(me);
    do
    :: phase[me] == PENDING || phase[me] == ANNOUNCED || phase[me] == ACCEPTED ||
       phase[me] == OFFERED -> meet(me)
    :: atomic { CAN_LEAVE(me) -> leave(me) }
    :: MUST_FOLLOW(me) -> follow(me)
    :: IN(me, REPLAY_SET) -> replay(me)
    :: MAY_FINISH(me) -> finish_leaving(me)
    :: phase[me] == FOLLOWING && (again[1 - me] || pipe[1 - me] == 0) -> drop_or_skip(me); apply(me, FINISH)
    /* writing */
    :: atomic { sent[me] < RECORDS && WRITES_PIPE(me) -> sent[me]++; pipe[me]++ }
    :: sent[me] < RECORDS && !IN(me, LEAVING_SET) && !IN(me, REPLAY_SET) -> d_step { sent[me]++; kernel[me]++ }
    :: sent[me] == RECORDS && !ended[me] && !IN(me, LEAVING_SET) && !IN(me, REPLAY_SET) ->
        ended[me] = true
    /* reading */
    :: atomic { kernel[1 - me] > 0 && !IN(me, LEAVING_SET) -> kernel[1 - me]--; got[1 - me]++ }
    :: atomic { pipe[1 - me] > 0 && IN(me, PIPED) -> pipe[1 - me]--; got[1 - me]++ }
    :: IS_DONE(me) -> break
    od;
    closed[me] = true;
    assert(got[1 - me] == RECORDS)
}

init
{
    atomic {
        may_leave[0] = true;
        may_leave[1] = true;
        run end_of(0);
        run end_of(1)
    }
}
