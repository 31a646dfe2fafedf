/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A link under test, and calls to its ends. A failure here fails the test. */
#ifndef VIA_TESTS_CONFORM_PAIR_H
#define VIA_TESTS_CONFORM_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/types.h"
#include "conform_agent.h"

#define ALL_ONES UINT32_MAX
#define ROUNDS 500u

/* A link, with an agent at each end. */
struct pair {
    const struct conform_kind *kind;
    enum conform_place place;
    char directory[64];
    struct conform_agent agent[2];
    struct conform_end end[2]; /* CONFORM_INLINE */
};

#define WAIT_FOR(pair, condition)                                             \
    do {                                                                      \
        unsigned tries_ = 0;                                                  \
        while (!(condition)) {                                                \
            if (tries_++ == conform_patience_ms) {                            \
                fail_msg("%s: waited too long for %s", __func__, #condition); \
            }                                                                 \
            pair_pass_ms(pair, 1);                                            \
        }                                                                     \
    } while (0)

int64_t pair_call(struct pair *pair, unsigned side, struct conform_call *call);
int64_t pair_call_value(struct pair *pair, unsigned side, enum conform_verb verb, uint64_t value);
void pair_commit_word(struct pair *pair, unsigned side, uint64_t off, uint64_t word);
void pair_body_fill(struct pair *pair, unsigned side, uint64_t off, int value, size_t len);
void pair_inbox_read(struct pair *pair, unsigned side, uint64_t off, void *ret, size_t len);
void pair_inbox_fill(struct pair *pair, unsigned side, uint64_t off, int value, size_t len);
bool pair_inbox_is(struct pair *pair, unsigned side, uint64_t off, int value, size_t len);
struct conform_caps pair_caps(struct pair *pair, unsigned side);
uint64_t pair_events(struct pair *pair, unsigned side, uint64_t mask);
/* Some ports accept the peer's writes only when they are called. Takes doorbell 0. */
void pair_take_writes(struct pair *pair, unsigned side);
bool pair_is_up(struct pair *pair, unsigned side);
uint32_t pair_scratchpad(struct pair *pair, unsigned side, unsigned index);
void pair_scratchpad_write(struct pair *pair, unsigned side, unsigned index, uint32_t value);
void pair_start(struct pair *pair, unsigned side, unsigned worker, enum conform_work work,
                uint64_t off, uint64_t count);
struct conform_report pair_report(struct pair *pair, unsigned side, unsigned worker,
                                  enum conform_verb verb);
void pair_pass_ms(struct pair *pair, unsigned ms);
void pair_wait_up(struct pair *pair);
/* Starts a fence of queue 0 and polls it to its end: 0 or negative errno. */
int pair_fence(struct pair *pair, unsigned side);
/* Polls one that was started. */
int pair_fence_end(struct pair *pair, unsigned side, unsigned queue);
void pair_settle(struct pair *pair, unsigned side);
/* Waits until doorbells and scratchpads have arrived, also on ports where this is slow. */
void pair_travel(struct pair *pair, unsigned side);
void pair_cut(struct pair *pair, unsigned side, bool cut);
void pair_wait_down(struct pair *pair);
/* Waits until the thread has made `steps` steps, or found a violation. Each step has the time of
 * WAIT_FOR, so that a slow machine is no failure. */
void pair_wait_steps(struct pair *pair, unsigned side, unsigned thread, uint64_t steps);
void pair_watch(struct pair *pair, unsigned writer, enum conform_work write, unsigned reader,
                enum conform_work watch_for);
void pair_ring(struct pair *pair, unsigned side, unsigned bit);

/* Appends the tests of one part of the contract to a list. Returns how many. */
unsigned conform_tests_of_puts(struct CMUnitTest *ret_tests);
unsigned conform_tests_of_fences(struct CMUnitTest *ret_tests);
unsigned conform_tests_of_dma(struct CMUnitTest *ret_tests);
unsigned conform_tests_of_doorbells(struct CMUnitTest *ret_tests);
unsigned conform_tests_of_links(struct CMUnitTest *ret_tests);

#endif
