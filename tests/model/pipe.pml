/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Wake-ups of a reader that gives records back late: src/core/pipe.c, and the transfer
 * thread of src/host/host_transfer.c as its reader, in Promela, for spin.
 *
 * The writer posts records, and after each loads the reader's word: an arm generation, and how
 * many records were given back. It rings once per generation. The reader takes records, gives them
 * back when their operations have ended, which may be at any time, and leaves the pipe alone when it
 * is empty: then the pipe is armed, and polled again when the bell rings or a credit has to be
 * posted. If a
 * wake-up can be lost, the reader sleeps forever with a record in the pipe: an invalid end state.
 *
 * With one of these defined, a step of the code is left out, and a wake-up can be lost:
 *   NO_WRITER_FENCE  no fence between posting a record and loading the word
 *   NO_SECOND_CHECK   having armed, the reader does not check again
 *   RING_FOR_OLD     the writer rings although all it has posted was given back
 *   KEPT_WHILE_HELD  arming with records that are not given back keeps the generation
 *   KEPT_AFTER_HELD  ... and arming when they are, too
 *   BELL_IN_VAIN     a bell that brought nothing does not arm again
 */
#ifndef RECORDS
#define RECORDS 3
#endif

byte posted;   /* records that the reader can see */
byte buffered; /* ... and those in the writer's store buffer */
byte bell;     /* rings */

/* the reader's word, as the writer sees it */
byte word_arm, word_released;

byte taken, released;
byte arm;        /* generation posted last, 0: awake */
byte arm_next = 1;
bool arm_held;   /* records were held when it was posted */
byte written;    /* `released` in the word */

active proctype memory()
{
end:
    do
    :: d_step { buffered > 0 -> posted = posted + buffered; buffered = 0 }
    od
}

active proctype writer()
{
    byte sent, rung, seen_arm, seen_released;
    do
    :: sent == RECORDS -> break
    :: sent < RECORDS ->
        sent++;
        buffered++;
#ifndef NO_WRITER_FENCE
        d_step { posted = posted + buffered; buffered = 0 };
#endif
        d_step { seen_arm = word_arm; seen_released = word_released }; /* one word, one load */
        if
#ifdef RING_FOR_OLD
        :: seen_arm != 0 && seen_arm != rung -> rung = seen_arm; bell++
#else
        :: seen_arm != 0 && seen_arm != rung && seen_released != sent -> rung = seen_arm; bell++
#endif
        :: else
        fi
    od
}

inline post()
{
    d_step { word_arm = arm; word_released = released; written = released }
}

#define HELD (taken != released)

/* via_pipe_arm() */
inline do_arm()
{
    if
#if defined(KEPT_WHILE_HELD)
    :: arm == 0 ->
#elif defined(KEPT_AFTER_HELD)
    :: arm == 0 || HELD ->
#else
    :: arm == 0 || HELD || arm_held ->
#endif
        arm = arm_next;
        arm_next++;
        arm_held = HELD;
        post()
    :: else ->
        if
        :: written != released -> post()
        :: else
        fi
    fi
}

/* What a record asks for is done: the oldest is given back, and the word posted now or later. */
inline give_back()
{
    released++;
    if
    :: post()
    :: skip
    fi
}

active proctype reader()
{
    byte heard;
active_pipe:
    if
    :: posted > taken -> taken++; arm = 0; goto active_pipe
    :: HELD -> give_back(); goto active_pipe
    :: posted == taken -> skip
    fi;
    do_arm();
#ifndef NO_SECOND_CHECK
    if
    :: posted > taken -> goto active_pipe
    :: else
    fi;
#endif
idle_pipe:
    if
    :: taken == RECORDS && !HELD -> goto over
    :: bell != heard ->
        heard = bell;
#ifndef BELL_IN_VAIN
        do_arm();
#endif
        if
        :: posted > taken -> goto active_pipe
        :: else -> goto idle_pipe
        fi
    :: HELD ->
        give_back();
        if
        :: written != released -> goto active_pipe
        :: else -> goto idle_pipe
        fi
    fi;
over:
    skip
}
