/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "conform_pair.h"

#include <string.h>
#include <time.h>

/* --- commands to the ends --- */

int64_t pair_call(struct pair *pair, unsigned side, struct conform_call *call)
{
    assert_int_equal(conform_agent_call(&pair->agent[side], call), 0);
    return call->result;
}

int64_t pair_call_value(struct pair *pair, unsigned side, enum conform_verb verb, uint64_t value)
{
    struct conform_call call = {.verb = verb, .value = value};
    return pair_call(pair, side, &call);
}

void pair_commit_word(struct pair *pair, unsigned side, uint64_t off, uint64_t word)
{
    struct conform_call call = {.verb = CONFORM_COMMIT, .off = off, .bytes = sizeof(word)};
    memcpy(call.data, &word, sizeof(word));
    pair_call(pair, side, &call);
}

void pair_body_fill(struct pair *pair, unsigned side, uint64_t off, int value, size_t len)
{
    struct conform_call call = {.verb = CONFORM_BODY, .off = off, .bytes = len};
    assert_true(len <= sizeof(call.data));
    memset(call.data, value, len);
    pair_call(pair, side, &call);
}

void pair_inbox_read(struct pair *pair, unsigned side, uint64_t off, void *ret, size_t len)
{
    struct conform_call call = {.verb = CONFORM_INBOX_READ, .off = off, .bytes = len};
    pair_call(pair, side, &call);
    memcpy(ret, call.data, len);
}

void pair_inbox_fill(struct pair *pair, unsigned side, uint64_t off, int value, size_t len)
{
    struct conform_call call = {
        .verb = CONFORM_INBOX_FILL, .off = off, .bytes = len, .value = (uint64_t)value};
    pair_call(pair, side, &call);
}

/* All bytes of the range have the value. */
bool pair_inbox_is(struct pair *pair, unsigned side, uint64_t off, int value, size_t len)
{
    unsigned char bytes[CONFORM_DATA_BYTES];
    pair_inbox_read(pair, side, off, bytes, len);
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != (unsigned char)value) {
            return false;
        }
    }
    return true;
}

struct conform_caps pair_caps(struct pair *pair, unsigned side)
{
    struct conform_call call = {.verb = CONFORM_CAPS};
    struct conform_caps caps;
    pair_call(pair, side, &call);
    memcpy(&caps, call.data, sizeof(caps));
    return caps;
}

uint64_t pair_events(struct pair *pair, unsigned side, uint64_t mask)
{
    return (uint64_t)pair_call_value(pair, side, CONFORM_EVENTS, mask);
}

void pair_take_writes(struct pair *pair, unsigned side)
{
    (void)pair_events(pair, side, VIA_PORT_EVENT_DOORBELL(0));
}

bool pair_is_up(struct pair *pair, unsigned side)
{
    return pair_call_value(pair, side, CONFORM_LINK_IS_UP, 0) != 0;
}

uint32_t pair_scratchpad(struct pair *pair, unsigned side, unsigned index)
{
    return (uint32_t)pair_call_value(pair, side, CONFORM_SCRATCHPAD_READ, index);
}

void pair_scratchpad_write(struct pair *pair, unsigned side, unsigned index, uint32_t value)
{
    struct conform_call call = {.verb = CONFORM_SCRATCHPAD_WRITE, .value = index, .count = value};
    pair_call(pair, side, &call);
}

void pair_start(struct pair *pair, unsigned side, unsigned worker, enum conform_work work,
                uint64_t off, uint64_t count)
{
    struct conform_call call = {
        .verb = CONFORM_START, .worker = worker, .value = work, .off = off, .count = count};
    pair_call(pair, side, &call);
}

struct conform_report pair_report(struct pair *pair, unsigned side, unsigned worker,
                                  enum conform_verb verb)
{
    struct conform_call call = {.verb = verb, .worker = worker};
    struct conform_report report;
    pair_call(pair, side, &call);
    memcpy(&report, call.data, sizeof(report));
    return report;
}

/* --- time --- */

static bool step_workers(struct pair *pair)
{
    bool working = false;
    for (unsigned i = 0; i < 2 * CONFORM_WORKERS_MAX; i++) {
        struct conform_worker *worker = &pair->agent[i % 2].workers[i / 2];
        if (worker->running) {
            pair->kind->enter(&pair->end[i % 2], 1 + i / 2);
            conform_worker_step(worker);
            working = true;
        }
    }
    return working;
}

void pair_pass_ms(struct pair *pair, unsigned ms)
{
    if (pair->place != CONFORM_INLINE) {
        struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
        nanosleep(&pause, NULL);
        return;
    }
    bool working = step_workers(pair);
    unsigned steps = working ? 1000 : 10; /* of a millisecond: fine enough to see puts half done */
    for (unsigned i = 0; i < ms * steps; i++) {
        pair->kind->pass_time(pair->end, VIA_MSEC_NS / steps);
        step_workers(pair);
    }
}

void pair_wait_up(struct pair *pair)
{
    WAIT_FOR(pair, pair_is_up(pair, 0) && pair_is_up(pair, 1));
}

/* A millisecond of simulated time is enough for several fences. It passes in steps of a
 * microsecond, so that few other events happen. */
static int poll_fence(struct pair *pair, unsigned side, unsigned queue)
{
    int64_t rc;
    for (unsigned tries = 0; (rc = pair_call_value(pair, side, CONFORM_FENCE_POLL, queue)) == 0;
         tries++) {
        if (tries == conform_patience_ms) {
            fail_msg("a fence does not end");
        }
        if (pair->place == CONFORM_INLINE) {
            pair->kind->pass_time(pair->end, VIA_USEC_NS);
        }
    }
    return (int)rc;
}

int pair_fence_end(struct pair *pair, unsigned side, unsigned queue)
{
    int rc = poll_fence(pair, side, queue);
    return rc == 1 ? 0 : rc;
}

int pair_fence(struct pair *pair, unsigned side)
{
    int rc = (int)pair_call_value(pair, side, CONFORM_FENCE_START, 0);
    return rc != 0 ? rc : pair_fence_end(pair, side, 0);
}

void pair_travel(struct pair *pair, unsigned side)
{
    if (pair->kind->doorbells_travel && pair_is_up(pair, side)) {
        (void)pair_fence(pair, side);
    }
}

/* Posted writes on the way have arrived. */
void pair_settle(struct pair *pair, unsigned side)
{
    assert_int_equal(pair_fence(pair, side), 0);
}

void pair_cut(struct pair *pair, unsigned side, bool cut)
{
    pair_call_value(pair, side, CONFORM_CUT, cut);
    if (pair->place == CONFORM_INLINE) {
        pair_pass_ms(pair, 1);
    }
}

void pair_wait_down(struct pair *pair)
{
    WAIT_FOR(pair, !pair_is_up(pair, 0) && !pair_is_up(pair, 1));
}

void pair_wait_steps(struct pair *pair, unsigned side, unsigned thread, uint64_t steps)
{
    struct conform_report seen = {0};
    while (seen.steps < steps && seen.violations == 0) {
        uint64_t before = seen.steps;
        WAIT_FOR(pair, (seen = pair_report(pair, side, thread, CONFORM_STATE)).steps > before ||
                           seen.violations != 0);
    }
}

/* Waits until the watcher has found a change ROUNDS times, then ends both workers. */
void pair_watch(struct pair *pair, unsigned writer, enum conform_work write, unsigned reader,
                enum conform_work watch_for)
{
    pair_start(pair, reader, 0, watch_for, 4096, 0);
    pair_start(pair, writer, 0, write, 4096, 0);
    pair_wait_steps(pair, reader, 0, ROUNDS);
    pair_report(pair, writer, 0, CONFORM_STOP);
    struct conform_report seen = pair_report(pair, reader, 0, CONFORM_STOP);
    if (seen.violations != 0) {
        fail_msg("%s", seen.what);
    }
}

void pair_ring(struct pair *pair, unsigned side, unsigned bit)
{
    assert_int_equal(pair_call_value(pair, side, CONFORM_RING, bit), 0);
    pair_travel(pair, side);
    if (pair->place == CONFORM_INLINE) {
        pair_pass_ms(pair, 1);
    }
}
