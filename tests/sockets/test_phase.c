/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The state machine of an end: every event in every phase, and the invariants. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/types.h"
#include "sim/sockets/phase_names.h"
#include "sockets/stream/phase.h"

#define BIT(phase) (UINT32_C(1) << (unsigned)(phase))
#define ALL (BIT(VIA_PHASES_COUNT) - 1)

/* All lines of the table: every event that may happen in a phase. */
static const char *const lines[] = {
    "NEW CONNECT PENDING",
    "NEW ACCEPT ACCEPTED",
    "NEW SETTLE PLAIN",
    "PENDING CLAIM PENDING_BUSY",
    "PENDING_BUSY NOT_YET PENDING",
    "PENDING_BUSY MEET ANNOUNCED",
    "PENDING_BUSY TAKE LIVE",
    "PENDING_BUSY SETTLE PLAIN",
    "ANNOUNCED CLAIM ANNOUNCED_BUSY",
    "ANNOUNCED_BUSY NOT_YET ANNOUNCED",
    "ANNOUNCED_BUSY TAKE LIVE",
    "ANNOUNCED_BUSY SETTLE PLAIN",
    "ACCEPTED CLAIM ACCEPTED_BUSY",
    "ACCEPTED_BUSY NOT_YET ACCEPTED",
    "ACCEPTED_BUSY OFFER OFFERED",
    "ACCEPTED_BUSY SETTLE PLAIN",
    "OFFERED CLAIM OFFERED_BUSY",
    "OFFERED FOLLOW REPLAYING",
    "OFFERED STAY STAYS",
    "OFFERED LEAVE LEAVING",
    "OFFERED WITHDRAW OVER",
    "OFFERED_BUSY NOT_YET OFFERED",
    "OFFERED_BUSY TAKE LIVE",
    "OFFERED_BUSY FOLLOW REPLAYING",
    "OFFERED_BUSY STAY STAYS",
    "OFFERED_BUSY LEAVE LEAVING",
    "OFFERED_BUSY WITHDRAW OVER",
    "LIVE FOLLOW REPLAYING",
    "LIVE STAY STAYS",
    "LIVE LEAVE LEAVING",
    "REPLAYING REPLAY FOLLOWING",
    "REPLAYING LEAVE LEFT_REPLAYING",
    "FOLLOWING FINISH OVER",
    "FOLLOWING LEAVE OVER",
    "STAYS LEAVE LEAVING_STAYS",
    "BACK FOLLOW REPLAYING",
    "BACK STAY STAYS",
    "BACK LEAVE LEAVING",
    "LEAVING FOLLOW LEAVING_REPLAYING",
    "LEAVING STAY LEAVING_STAYS",
    "LEAVING ANSWER LEFT",
    "LEAVING TAKE_BACK BACK",
    "LEAVING_REPLAYING REPLAY LEAVING_FOLLOWED",
    "LEAVING_REPLAYING ANSWER LEFT_REPLAYING",
    "LEAVING_REPLAYING TAKE_BACK REPLAYING",
    "LEAVING_FOLLOWED ANSWER OVER",
    "LEAVING_FOLLOWED TAKE_BACK FOLLOWING",
    "LEAVING_STAYS ANSWER OVER",
    "LEAVING_STAYS TAKE_BACK STAYS",
    "LEFT FOLLOW LEFT_REPLAYING",
    "LEFT STAY OVER",
    "LEFT_REPLAYING REPLAY OVER",
};

static const char *expected(enum via_phase phase, enum via_event event)
{
    char begin[64];
    int length =
        snprintf(begin, sizeof(begin), "%s %s ", via_phase_name(phase), via_event_name(event));
    for (size_t i = 0; i < VIA_ARRAY_COUNT(lines); i++) {
        if (strncmp(lines[i], begin, (size_t)length) == 0) {
            return lines[i] + length;
        }
    }
    return NULL;
}

static void every_event_in_every_phase(void **state)
{
    (void)state;
    size_t found = 0;
    for (enum via_phase phase = 0; phase < VIA_PHASES_COUNT; phase++) {
        for (enum via_event event = 0; event < VIA_EVENTS_COUNT; event++) {
            struct via_phase_word word = {(uint8_t)phase};
            const char *to = expected(phase, event);
            assert_int_equal(via_phase_apply(&word, event), to != NULL);
            assert_string_equal(via_phase_name(via_phase_get(&word)),
                                to != NULL ? to : via_phase_name(phase));
            found += to != NULL ? 1 : 0;
            for (enum via_phase other = 0; other < VIA_PHASES_COUNT; other++) {
                struct via_phase_word elsewhere = {(uint8_t)other};
                assert_int_equal(via_phase_apply_in(&elsewhere, phase, event),
                                 to != NULL && other == phase);
            }
        }
    }
    assert_int_equal(found, VIA_ARRAY_COUNT(lines));
    assert_int_equal(via_phase_next(VIA_PHASES_COUNT, VIA_EVENT_LEAVE), -22);
    assert_int_equal(via_phase_next(VIA_PHASE_LIVE, VIA_EVENTS_COUNT), -22);
}

/* --- invariants ------------------------------------------------------------------------------ */

static uint32_t step(uint32_t phases)
{
    uint32_t to = phases;
    for (enum via_phase phase = 0; phase < VIA_PHASES_COUNT; phase++) {
        for (enum via_event event = 0; event < VIA_EVENTS_COUNT; event++) {
            int next = via_phase_next(phase, event);
            if ((phases & BIT(phase)) != 0 && next >= 0) {
                to |= BIT(next);
            }
        }
    }
    return to;
}

/* Returns all phases that can be reached from these. */
static uint32_t reachable(uint32_t phases)
{
    uint32_t before;
    do {
        before = phases;
        phases = step(phases);
    } while (phases != before);
    return phases;
}

/* Returns the phases after this event. */
static uint32_t after(enum via_event event)
{
    uint32_t phases = 0;
    for (enum via_phase phase = 0; phase < VIA_PHASES_COUNT; phase++) {
        int next = via_phase_next(phase, event);
        phases |= next >= 0 ? BIT(next) : 0;
    }
    return phases;
}

/* Returns the events that lead from one set of phases to another, as a bit mask. */
static uint32_t events_between(uint32_t from, uint32_t to)
{
    uint32_t events = 0;
    for (enum via_phase phase = 0; phase < VIA_PHASES_COUNT; phase++) {
        for (enum via_event event = 0; event < VIA_EVENTS_COUNT; event++) {
            int next = via_phase_next(phase, event);
            if ((from & BIT(phase)) != 0 && next >= 0 && (to & BIT(next)) != 0) {
                events |= UINT32_C(1) << event;
            }
        }
    }
    return events;
}

#define EVENT(event) (UINT32_C(1) << VIA_EVENT_##event)

static void phases_are_of_one_kind(void **state)
{
    (void)state;
    assert_int_equal(VIA_PHASES_UNDECIDED | VIA_PHASES_PIPED | VIA_PHASES_PLAIN, ALL);
    assert_int_equal(VIA_PHASES_UNDECIDED & VIA_PHASES_PIPED, 0);
    assert_int_equal(VIA_PHASES_UNDECIDED & VIA_PHASES_PLAIN, 0);
    assert_int_equal(VIA_PHASES_PIPED & VIA_PHASES_PLAIN, 0);
    assert_int_equal(reachable(VIA_PHASE_BIT(NEW)), ALL);
}

static void every_end_can_come_to_an_end(void **state)
{
    (void)state;
    uint32_t last = VIA_PHASE_BIT(PLAIN) | VIA_PHASE_BIT(OVER);
    for (enum via_phase phase = 0; phase < VIA_PHASES_COUNT; phase++) {
        assert_int_not_equal(reachable(BIT(phase)) & last, 0);
    }
    assert_int_equal(reachable(last), last);
}

static void pipes_come_once(void **state)
{
    (void)state;
    assert_int_equal(events_between(VIA_PHASES_PIPED | VIA_PHASES_PLAIN, VIA_PHASES_UNDECIDED), 0);
    assert_int_equal(events_between(VIA_PHASES_UNDECIDED, VIA_PHASES_PIPED),
                     EVENT(OFFER) | EVENT(TAKE));
    assert_int_equal(events_between(VIA_PHASES_PLAIN, VIA_PHASES_PIPED), EVENT(TAKE_BACK));
}

static void a_pipe_that_is_left_is_never_written_again(void **state)
{
    (void)state;
    uint32_t others = ALL & ~VIA_PHASES_MAY_SWITCH;
    assert_int_equal(events_between(others, VIA_PHASES_MAY_SWITCH), 0);
    uint32_t leaving = after(VIA_EVENT_LEAVE) | after(VIA_EVENT_FOLLOW) | after(VIA_EVENT_STAY);
    assert_int_equal(reachable(leaving) & VIA_PHASES_MAY_SWITCH, 0);
}

static void a_peer_that_leaves_is_answered_once(void **state)
{
    (void)state;
    uint32_t answer = EVENT(FOLLOW) | EVENT(STAY);
    for (enum via_phase phase = 0; phase < VIA_PHASES_COUNT; phase++) {
        bool may = via_phase_is_in(phase, VIA_PHASES_MAY_FOLLOW);
        assert_int_equal(events_between(BIT(phase), ALL) & answer, may ? answer : 0);
    }
    uint32_t answered = after(VIA_EVENT_FOLLOW) | after(VIA_EVENT_STAY);
    assert_int_equal(reachable(answered) & VIA_PHASES_MAY_FOLLOW, 0);
}

static void promised_bytes_are_sent(void **state)
{
    (void)state;
    assert_int_equal(events_between(VIA_PHASES_FOLLOW, ALL & ~VIA_PHASES_FOLLOW), 0);
    assert_int_equal(events_between(VIA_PHASES_REPLAY, ALL & ~VIA_PHASES_REPLAY), EVENT(REPLAY));
    assert_int_equal(after(VIA_EVENT_FOLLOW) & ~VIA_PHASES_REPLAY, 0);
}

static void one_thread_does_what_follows(void **state)
{
    (void)state;
    uint32_t busy = VIA_PHASE_BIT(PENDING_BUSY) | VIA_PHASE_BIT(ANNOUNCED_BUSY) |
                    VIA_PHASE_BIT(ACCEPTED_BUSY) | VIA_PHASE_BIT(OFFERED_BUSY);
    uint32_t free = ALL & ~busy;
    assert_int_equal(events_between(free, busy), EVENT(CLAIM));
    assert_int_equal(events_between(busy, busy), 0);
    /* While one thread gets an end its pipes, no event of another thread is possible. */
    assert_int_equal(events_between(busy & ~VIA_PHASES_OFFERED, free),
                     EVENT(NOT_YET) | EVENT(MEET) | EVENT(TAKE) | EVENT(OFFER) | EVENT(SETTLE));
}

/* --- threads --------------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS 2000

static struct via_phase_word rounds[ROUNDS];

static void *claim_all(void *of_claims)
{
    unsigned *claims = of_claims;
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (via_phase_apply(&rounds[i], VIA_EVENT_CLAIM)) {
            ++*claims;
            via_phase_apply(&rounds[i], VIA_EVENT_MEET);
        }
    }
    return NULL;
}

static void a_claim_is_one_threads(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    unsigned claims[THREADS] = {0};
    unsigned sum = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        rounds[i].phase = VIA_PHASE_PENDING;
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, claim_all, &claims[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        sum += claims[i];
    }
    /* Each entry is claimed first as PENDING, then by later threads as ANNOUNCED. */
    unsigned expected_sum = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        enum via_phase phase = via_phase_get(&rounds[i]);
        assert_true(phase == VIA_PHASE_ANNOUNCED || phase == VIA_PHASE_ANNOUNCED_BUSY);
        expected_sum += phase == VIA_PHASE_ANNOUNCED ? 1 : 2;
    }
    assert_int_equal(sum, expected_sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_in_every_phase),
        cmocka_unit_test(phases_are_of_one_kind),
        cmocka_unit_test(every_end_can_come_to_an_end),
        cmocka_unit_test(pipes_come_once),
        cmocka_unit_test(a_pipe_that_is_left_is_never_written_again),
        cmocka_unit_test(a_peer_that_leaves_is_answered_once),
        cmocka_unit_test(promised_bytes_are_sent),
        cmocka_unit_test(one_thread_does_what_follows),
        cmocka_unit_test(a_claim_is_one_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
