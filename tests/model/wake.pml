/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * How a peer wakes a thread that waits for its records: src/sockets/conn/bell.h, in Promela, for spin.
 *
 * Up to two threads of a process each wait for a connection of their own and share one bell: a word
 * that counts sleeps begun and threads asleep, and an eventfd. Each waits for it in an epoll set of
 * its own, edge-triggered, so a ring is an edge for both. Up to two peers post records, to both
 * connections. A peer rings when the word shows a sleeper that it has not woken yet.
 *
 * Stores become visible late, as on every machine: each side's last stores stay in a buffer until a
 * fence, or until the memory takes them. Spin tries every order. If a wake-up can be lost, a thread
 * sleeps forever with a record in its pipe: an invalid end state.
 *
 * With one of these defined, a step of the code is left out, and a wake-up can be lost:
 *   NO_PEER_FENCE      no fence between posting and loading the word
 *   NO_SLEEPER_FENCE   no fence between announcing the sleep and checking again
 *   NO_SECOND_CHECK     having announced its sleep, the thread does not check again
 *   RUNG_FOR_GOOD      a peer remembers that it rang, but not for which sleep
 *   EDGE_TAKEN_FIRST   edges are thrown away before the sleep begins
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef PEERS
#define PEERS 1
#endif
#ifndef RECORDS
#define RECORDS 2 /* of each peer to each connection */
#endif

#define INDEX(peer, thread) ((peer) * 2 + (thread))

byte posted[4];   /* records that their reader can see */
byte buffered[4]; /* records in a peer's store buffer */

byte sleeps;  /* the word, as peers see it: sleeps begun */
byte asleep;  /* ... and threads that sleep */
byte late[2]; /* a thread's change of the word that is not to be seen yet */

byte rung[2]; /* the sleep that a peer has rung for */
bool edge[2]; /* in a thread's epoll set */

/* Memory gets round to it. */
active proctype memory()
{
end:
    do
    :: d_step { buffered[0] > 0 -> posted[0] = posted[0] + buffered[0]; buffered[0] = 0 }
    :: d_step { buffered[1] > 0 -> posted[1] = posted[1] + buffered[1]; buffered[1] = 0 }
    :: d_step { buffered[2] > 0 -> posted[2] = posted[2] + buffered[2]; buffered[2] = 0 }
    :: d_step { buffered[3] > 0 -> posted[3] = posted[3] + buffered[3]; buffered[3] = 0 }
    :: d_step { late[0] > 0 -> sleeps++; asleep++; late[0] = 0 }
    :: d_step { late[1] > 0 -> sleeps++; asleep++; late[1] = 0 }
    od
}

/* A full fence of a peer's: all it has posted is seen. */
inline drain(me)
{
    d_step {
        posted[INDEX(me, 0)] = posted[INDEX(me, 0)] + buffered[INDEX(me, 0)];
        buffered[INDEX(me, 0)] = 0;
        posted[INDEX(me, 1)] = posted[INDEX(me, 1)] + buffered[INDEX(me, 1)];
        buffered[INDEX(me, 1)] = 0
    }
}

proctype peer(byte me)
{
    byte left[2];
    byte to, seen_sleeps, seen_asleep;
    left[0] = RECORDS;
    left[1] = (THREADS > 1 -> RECORDS : 0);
    do
    :: left[0] + left[1] == 0 -> break
    :: left[0] > 0 -> to = 0; goto post
    :: left[1] > 0 -> to = 1; goto post
    od;
    goto done;
post:
    left[to]--;
    buffered[INDEX(me, to)]++; /* via_stream_tx_write() */
#ifndef NO_PEER_FENCE
    drain(me);
#endif
    d_step { seen_sleeps = sleeps; seen_asleep = asleep }; /* one word, one load */
    if
#ifdef RUNG_FOR_GOOD
    :: seen_asleep > 0 && rung[me] == 0 -> rung[me] = 1; d_step { edge[0] = true; edge[1] = true }
#else
    :: seen_asleep > 0 && rung[me] != seen_sleeps ->
        rung[me] = seen_sleeps;
        d_step { edge[0] = true; edge[1] = true } /* write() of the eventfd */
#endif
    :: else
    fi;
    if
    :: left[0] > 0 -> to = 0; goto post
    :: left[1] > 0 -> to = 1; goto post
    :: left[0] + left[1] == 0 -> skip
    fi;
done:
    skip
}

#define THERE (posted[INDEX(0, me)] + posted[INDEX(1, me)])

proctype thread(byte me)
{
    byte taken;
    do
    :: taken == PEERS * RECORDS -> break
    :: taken < THERE -> taken = THERE
    :: taken < PEERS * RECORDS && taken == THERE ->
        /* via_sock_bell_enter() */
#ifdef NO_SLEEPER_FENCE
        late[me] = 1;
#else
        d_step { sleeps++; asleep++ };
#endif
#ifdef EDGE_TAKEN_FIRST
        edge[me] = false;
#endif
        if
#ifndef NO_SECOND_CHECK
        :: taken < THERE -> skip
        :: else ->
#else
        :: true ->
#endif
            atomic { edge[me] -> edge[me] = false } /* via_sleep() */
        fi;
        /* via_sock_bell_leave() */
        if
        :: late[me] > 0 -> d_step { late[me] = 0; sleeps++ }
        :: else -> asleep--
        fi
    od
}

init
{
    atomic {
        run thread(0);
        run peer(0);
#if THREADS > 1
        run thread(1);
#endif
#if PEERS > 1
        run peer(1);
#endif
    }
}
