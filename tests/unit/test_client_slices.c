/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Puts through slices of a window, against a fake host that the test controls. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/types.h"
#include "tests/unit/client_fixture.h"
#include "wire/frame.h"

#define TRIES 3000

static void offer_slices(struct fixture *fixture)
{
    fake_host_set_slices(&fixture->fake, FAKE_PEER, 77, 2, true);
}

static void put_word(struct fixture *fixture, uint64_t off, uint64_t word)
{
    assert_int_equal(via_remote_put(fixture->remote, off, &word, sizeof(word), 0), 0);
}

static uint64_t word_at(const struct fixture *fixture, uint64_t off)
{
    return __atomic_load_n((const uint64_t *)(const void *)(fixture->peer->view + off),
                           __ATOMIC_ACQUIRE);
}

/* True if a put to this place is a store, without a command. */
static bool is_stored(struct fixture *fixture, uint64_t off)
{
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    unsigned before = fixture->fake.commands_count;
    put_word(fixture, off, 12345);
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    return fixture->fake.commands_count == before;
}

static void until_stored(struct fixture *fixture, uint64_t off)
{
    for (unsigned i = 0; !is_stored(fixture, off); i++) {
        assert_true(i < TRIES);
        client_nap_ms(1);
    }
}

/* --- puts without faults ---------------------------------------------------------------------- */

static void puts_are_stores_once_there_is_a_slice(void **state)
{
    struct fixture *fixture = *state;
    offer_slices(fixture);
    assert_null(via_remote_direct(fixture->remote));
    until_stored(fixture, 64);
    unsigned commands = fixture->fake.commands_count;
    for (uint64_t i = 0; i < 100; i++) {
        put_word(fixture, 8 * i, i);
        assert_true(word_at(fixture, 8 * i) == i); /* it has arrived */
        assert_int_equal(via_remote_pending(fixture->remote), 0);
    }
    unsigned char data[1000];
    for (unsigned seed = 0; seed < 50; seed++) {
        client_fill(data, sizeof(data), seed);
        assert_int_equal(via_remote_put(fixture->remote, 1001 + seed, data, sizeof(data),
                                        seed % 2 != 0 ? VIADUCT_PUT_LAST_WORD : 0),
                         0);
        assert_memory_equal(fixture->peer->view + 1001 + seed, data, sizeof(data));
        assert_int_equal(via_remote_try_put(fixture->remote, 3000 + seed, data, sizeof(data), 0),
                         0);
        assert_memory_equal(fixture->peer->view + 3000 + seed, data, sizeof(data));
    }
    assert_int_equal(fixture->fake.commands_count, commands);
    assert_int_equal(fixture->fake.slices_count, 1);
    /* The process is in no burst now, but has begun some. */
    uint64_t busy = fixture->fake.busy[1].word;
    assert_int_equal(busy & 0xffff, 0);
    assert_true(busy >> 16 >= 200);
}

static void puts_may_cross_pieces(void **state)
{
    struct fixture *fixture = *state;
    static unsigned char data[FAKE_PEER_BYTES];
    offer_slices(fixture);
    client_fill(data, sizeof(data), 3);
    for (unsigned i = 0;; i++) {
        assert_true(i < TRIES);
        unsigned before = fixture->fake.commands_count;
        /* Some of the puts cross the border between two pieces. */
        for (size_t off = 0, bytes = 1000; off < sizeof(data); off += bytes, bytes = 4096) {
            bytes = via_min(bytes, sizeof(data) - off);
            assert_int_equal(via_remote_put(fixture->remote, off, data + off, bytes, 0), 0);
        }
        assert_int_equal(via_attach_quiet(fixture->attach), 0);
        assert_memory_equal(fixture->peer->view, data, sizeof(data));
        memset(fixture->peer->view, 0, sizeof(data));
        if (fixture->fake.commands_count == before) {
            break;
        }
        client_nap_ms(1);
    }
    assert_int_equal(fixture->fake.slices_count, FAKE_PEER_BYTES / FAKE_SLICE_BYTES);
    assert_int_equal(via_remote_put(fixture->remote, FAKE_SLICE_BYTES - 3, data, 6, 0), 0);
    assert_memory_equal(fixture->peer->view + FAKE_SLICE_BYTES - 3, data, 6);
}

static void long_puts_go_by_frames(void **state)
{
    struct fixture *fixture = *state;
    static unsigned char data[4097];
    offer_slices(fixture);
    until_stored(fixture, 0);
    client_fill(data, sizeof(data), 5);
    unsigned before = fixture->fake.commands_count;
    assert_int_equal(via_remote_put(fixture->remote, 0, data, sizeof(data) - 1, 0), 0);
    assert_int_equal(fixture->fake.commands_count, before);
    assert_int_equal(via_remote_put(fixture->remote, 0, data, sizeof(data), 0), 0);
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_true(fixture->fake.commands_count > before);
    assert_memory_equal(fixture->peer->view, data, sizeof(data));
}

static void a_ring_is_a_frame_and_delays_no_store(void **state)
{
    struct fixture *fixture = *state;
    offer_slices(fixture);
    until_stored(fixture, 0);
    unsigned before = fixture->fake.commands_count;
    fixture->fake.hold = true;
    uint64_t word = 7;
    assert_int_equal(via_remote_put(fixture->remote, 8, &word, sizeof(word), VIADUCT_PUT_NOTIFY),
                     0);
    assert_true(word_at(fixture, 8) == 7);
    for (uint64_t i = 0; i < 100; i++) {
        put_word(fixture, 8, i);
        assert_true(word_at(fixture, 8) == i);
    }
    assert_int_equal(via_remote_pending(fixture->remote), 1);
    fixture->fake.hold = false;
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_int_equal(fixture->fake.commands_count, before + 1);
    assert_int_equal(fixture->fake.log[before].bytes, 0);
    assert_int_equal(fixture->fake.log[before].flags, VIA_FRAME_FLAG_NOTIFY);
}

struct reader {
    struct fixture *fixture;
    uint64_t word; /* the word at offset 8 when the library asks whether the reader sleeps */
    unsigned polls;
    bool asleep;
    uint64_t expected; /* the word at offset 8 when the library asks for the receipt */
    unsigned answer_polls;
    bool answers;
};

static bool is_asleep(void *ctx)
{
    struct reader *reader = ctx;
    reader->polls++;
    reader->word = word_at(reader->fixture, 8);
    return reader->asleep;
}

/* When the bytes have arrived, the writer checks whether the reader sleeps, and rings if it does.
 * With frames the writer rings in any case, without a check. */
static void only_a_sleeping_reader_is_rung(void **state)
{
    struct fixture *fixture = *state;
    struct reader reader = {.fixture = fixture};
    const struct via_client_reader calls = {.is_asleep = is_asleep, .ctx = &reader};
    uint64_t word = 5;
    assert_int_equal(
        via_client_try_put(fixture->remote, 8, &word, sizeof(word), VIADUCT_PUT_NOTIFY, &calls), 0);
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_int_equal(reader.polls, 0);
    assert_int_equal(fixture->fake.log[fixture->fake.commands_count - 1].flags,
                     VIA_FRAME_FLAG_NOTIFY);

    offer_slices(fixture);
    until_stored(fixture, 0);
    unsigned before = fixture->fake.commands_count;
    for (word = 100; word < 200; word++) {
        reader.asleep = word % 10 == 0;
        assert_int_equal(
            via_client_try_put(fixture->remote, 8, &word, sizeof(word), VIADUCT_PUT_NOTIFY, &calls),
            0);
        assert_int_equal(reader.polls, word - 99);
        assert_int_equal(reader.word, word);
        assert_int_equal(via_attach_quiet(fixture->attach), 0); /* there is room for rings */
    }
    assert_int_equal(fixture->fake.commands_count, before + 10);

    /* Without VIADUCT_PUT_NOTIFY the writer does not load the word. */
    assert_int_equal(via_client_try_put(fixture->remote, 8, &word, sizeof(word), 0, &calls), 0);
    assert_int_equal(reader.polls, 100);
}

static bool is_answered(void *ctx)
{
    struct reader *reader = ctx;
    reader->answer_polls++;
    assert_int_equal(word_at(reader->fixture, 8), reader->expected);
    return reader->answers;
}

/* A read across the link takes long enough that the test recognizes the puts that made one. */
static void an_answer_of_the_reader_saves_the_fence(void **state)
{
    struct fixture *fixture = *state;
    struct reader reader = {.fixture = fixture, .answers = true};
    const struct via_client_reader calls = {
        .is_asleep = is_asleep, .is_answered = is_answered, .ctx = &reader};
    pthread_mutex_lock(&fixture->fake.lock);
    fixture->fake.slice_flags = VIA_ATTACH_SLICE_COMBINES | VIA_ATTACH_SLICE_IMITATES;
    fixture->fake.slice_read_ns = 20 * VIA_MSEC_NS;
    pthread_mutex_unlock(&fixture->fake.lock);
    offer_slices(fixture);
    until_stored(fixture, 0);
    for (unsigned i = 0; i < 2; i++, reader.answers = false) {
        uint64_t least_ns = UINT64_MAX;
        for (uint64_t word = 1; word <= 5; word++) {
            reader.expected = word;
            uint64_t start_ns = via_client_now_ns();
            assert_int_equal(via_client_try_put(fixture->remote, 8, &word, sizeof(word),
                                                VIADUCT_PUT_NOTIFY, &calls),
                             0);
            least_ns = via_min(least_ns, via_client_now_ns() - start_ns);
        }
        assert_int_equal(reader.answer_polls, 5 * (i + 1));
        assert_true((least_ns >= 20 * VIA_MSEC_NS) == !reader.answers);
    }
}

/* A caller that gets -EAGAIN puts other bytes to the same place: no reader may have seen the first
 * attempt. */
static void a_failed_attempt_is_not_visible(void **state)
{
    struct fixture *fixture = *state;
    offer_slices(fixture);
    until_stored(fixture, 0);
    put_word(fixture, 8, 0);
    fixture->fake.hold = true;
    uint64_t word = 0;
    int rc = 0;
    while (rc == 0) {
        word++;
        rc = via_remote_try_put(fixture->remote, 8, &word, sizeof(word), VIADUCT_PUT_NOTIFY);
        assert_true(word < TRIES);
    }
    assert_int_equal(rc, -EAGAIN);
    assert_true(word_at(fixture, 8) == word - 1);
    fixture->fake.hold = false;
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_true(word_at(fixture, 8) == word - 1);
    assert_int_equal(
        via_remote_try_put(fixture->remote, 8, &word, sizeof(word), VIADUCT_PUT_NOTIFY), 0);
    assert_true(word_at(fixture, 8) == word);
}

/* --- order ------------------------------------------------------------------------------------ */

#define ROUNDS 10000u
#define DATA_OFF 4000u
#define DATA_WORDS 25u
#define SIGNAL_OFF 16u

static _Atomic bool broken;

/* Checks that the data arrive before their signal: the data of the same round, or of a later one.
 */
static void *watch(void *ctx)
{
    const struct fixture *fixture = ctx;
    for (uint64_t seen = 0; seen < ROUNDS;) {
        uint64_t signal = word_at(fixture, SIGNAL_OFF);
        if (signal == seen) {
            continue;
        }
        seen = signal;
        for (unsigned i = 0; i < DATA_WORDS; i++) {
            if (word_at(fixture, DATA_OFF + 8 * i) < seen) {
                broken = true;
            }
        }
    }
    return NULL;
}

static void put_round(struct fixture *fixture, uint64_t round, bool one_call)
{
    uint64_t data[DATA_WORDS];
    for (unsigned i = 0; i < DATA_WORDS; i++) {
        data[i] = round;
    }
    if (one_call) {
        assert_int_equal(via_remote_put_signal(fixture->remote, DATA_OFF, data, sizeof(data),
                                               SIGNAL_OFF, round, VIADUCT_SIGNAL_SET),
                         0);
    } else {
        assert_int_equal(via_remote_put(fixture->remote, DATA_OFF, data, sizeof(data), 0), 0);
        put_word(fixture, SIGNAL_OFF, round);
    }
}

/* Each round puts data, and then the signal, by the same call or by another one. */
static void signal_rounds(struct fixture *fixture, bool one_call)
{
    pthread_t thread;
    broken = false;
    put_round(fixture, 0, false);
    assert_int_equal(pthread_create(&thread, NULL, watch, fixture), 0);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        put_round(fixture, round, one_call);
    }
    pthread_join(thread, NULL);
    assert_false(broken);
}

static void signals_come_after_what_was_put(void **state)
{
    struct fixture *fixture = *state;
    pthread_mutex_lock(&fixture->fake.lock);
    fixture->fake.slice_flags = VIA_ATTACH_SLICE_COMBINES | VIA_ATTACH_SLICE_IMITATES;
    pthread_mutex_unlock(&fixture->fake.lock);
    offer_slices(fixture);
    until_stored(fixture, SIGNAL_OFF);
    unsigned before = fixture->fake.commands_count;
    signal_rounds(fixture, true);
    signal_rounds(fixture, false);
    assert_int_equal(fixture->fake.commands_count, before);
    /* The owner executes additions. */
    unsigned char data[8] = {0};
    assert_int_equal(via_remote_put_signal(fixture->remote, DATA_OFF, data, sizeof(data),
                                           SIGNAL_OFF, 5, VIADUCT_SIGNAL_ADD),
                     0);
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_true(word_at(fixture, SIGNAL_OFF) == ROUNDS + 5);
    assert_int_equal(fixture->fake.commands_count, before + 1);
}

static void *release_later(void *ctx)
{
    struct fixture *fixture = ctx;
    client_nap_ms(1);
    fixture->fake.hold = false;
    return NULL;
}

static void no_store_overtakes_a_frame(void **state)
{
    struct fixture *fixture = *state;
    offer_slices(fixture);
    until_stored(fixture, 0);
    put_word(fixture, 0, 1);
    fake_host_revoke(&fixture->fake, 0, false);
    fixture->fake.hold = true;
    put_word(fixture, 0, 2); /* in frames, which the fake host has not read yet */
    assert_true(word_at(fixture, 0) == 1);
    /* The slice is suddenly valid again. */
    atomic_store(&fixture->fake.status->slices[FAKE_SLICE_WORD], fixture->fake.slice_life_last);
    put_word(fixture, 0, 3);
    assert_true(word_at(fixture, 0) == 1);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, release_later, fixture), 0);
    for (uint64_t i = 4; i < 100; i++) {
        put_word(fixture, 0, i);
    }
    pthread_join(thread, NULL);
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_true(word_at(fixture, 0) == 99);
    /* Then puts are stores again. */
    assert_true(is_stored(fixture, 0));
}

static void a_wait_for_frames_ends(void **state)
{
    struct fixture *fixture = *state;
    uint64_t word = 5;
    offer_slices(fixture);
    until_stored(fixture, 0);
    fake_host_revoke(&fixture->fake, 0, false);
    fixture->fake.hold = true;
    put_word(fixture, 0, 1);
    atomic_store(&fixture->fake.status->slices[FAKE_SLICE_WORD], fixture->fake.slice_life_last);
    unsigned refused = 0;
    for (unsigned i = 0; i < 12 && refused == 0; i++) {
        int rc = via_remote_try_put(fixture->remote, 0, &word, sizeof(word), 0);
        refused += rc == -EAGAIN;
    }
    /* The pipe of the fake host is full before the client holds commands back. */
    assert_true(refused == 1);
    fixture->fake.hold = false;
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_int_equal(via_remote_try_put(fixture->remote, 0, &word, sizeof(word), 0), 0);
    assert_true(word_at(fixture, 0) == 5);
}

/* --- revocation ------------------------------------------------------------------------------- */

static void frames_take_over_when_a_slice_is_revoked(void **state)
{
    struct fixture *fixture = *state;
    offer_slices(fixture);
    until_stored(fixture, 0);
    fixture->fake.slice_status = -EAGAIN;
    fake_host_revoke(&fixture->fake, 0, false);
    for (uint64_t i = 0; i < 50; i++) {
        put_word(fixture, 8, i);
    }
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_true(word_at(fixture, 8) == 49);
    assert_false(is_stored(fixture, 8));
    /* All slices are in use: the client repeats its request, but not for each put. */
    assert_true(fixture->fake.slices_count < 10);
    fixture->fake.slice_status = 0;
    until_stored(fixture, 8);
    assert_int_equal(fixture->fake.busy[1].word & 0xffff, 0);
}

static void a_link_without_slices_is_asked_once(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.slice_status = -EXDEV;
    offer_slices(fixture);
    for (uint64_t i = 0; i < 200; i++) {
        put_word(fixture, 8, i);
        client_nap_ms(i % 32 == 0 ? 1 : 0);
    }
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_int_equal(fixture->fake.slices_count, 1);
    fixture->fake.slice_status = 0;
    fake_host_set_slices(&fixture->fake, FAKE_PEER, 77, 3, false);
    assert_false(is_stored(fixture, 8));
    fake_host_set_slices(&fixture->fake, FAKE_PEER, 77, 4, true);
    until_stored(fixture, 8);
    /* Another link, with another driver. */
    fake_host_set_slices(&fixture->fake, FAKE_PEER, 77, 5, false);
    fake_host_revoke(&fixture->fake, 0, false);
    assert_false(is_stored(fixture, 8));
    pthread_mutex_lock(&fixture->fake.lock);
    fixture->fake.slice_bytes = 2 * FAKE_SLICE_BYTES;
    fixture->fake.slice_link = 9;
    pthread_mutex_unlock(&fixture->fake.lock);
    fake_host_set_slices(&fixture->fake, FAKE_PEER, 77, 6, true);
    until_stored(fixture, FAKE_SLICE_BYTES + 8);
}

static void a_segment_that_was_freed_is_lost(void **state)
{
    struct fixture *fixture = *state;
    uint64_t word = 1;
    offer_slices(fixture);
    until_stored(fixture, 0);
    fake_host_revoke(&fixture->fake, 0, true);
    assert_int_equal(via_remote_put(fixture->remote, 0, &word, sizeof(word), 0), -ECONNRESET);
    client_assert_text_has("host 2");
    client_assert_text_has("its owner has ended");
    assert_int_equal(via_remote_try_put(fixture->remote, 0, &word, sizeof(word), 0), -ECONNRESET);
    assert_int_equal(via_remote_get(fixture->remote, 0, &word, sizeof(word)), -ECONNRESET);
    assert_true(via_client_remote_is_gone(fixture->remote));
}

/* By now the slice maps another piece. The life word of that piece proves nothing about this piece.
 */
static void the_end_of_another_segment_is_not_its(void **state)
{
    struct fixture *fixture = *state;
    offer_slices(fixture);
    until_stored(fixture, 0);
    atomic_store(&fixture->fake.status->slices[FAKE_SLICE_WORD],
                 (fixture->fake.slice_life_last + 1) | VIA_SLICE_GONE);
    assert_false(is_stored(fixture, 0));
    until_stored(fixture, 0);
}

/* --- reading back ---------------------------------------------------------------------------- */

static void all_ones_can_be_put(void **state)
{
    struct fixture *fixture = *state;
    static unsigned char ones[FAKE_SLICE_BYTES];
    offer_slices(fixture);
    until_stored(fixture, 0);
    memset(ones, 0xff, sizeof(ones));
    put_word(fixture, 8, UINT64_MAX); /* another word in the slice proves that the put arrived */
    assert_true(word_at(fixture, 8) == UINT64_MAX);
    assert_int_equal(via_remote_pending(fixture->remote), 0);
    /* The slice has no other word: an all-ones value may be an aborted read. */
    assert_int_equal(via_remote_put(fixture->remote, 0, ones, sizeof(ones), 0), 0);
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    unsigned before = fixture->fake.commands_count;
    put_word(fixture, 16, UINT64_MAX);
    assert_int_equal(via_attach_quiet(fixture->attach), 0);
    assert_int_equal(fixture->fake.commands_count, before + 1); /* repeated in a frame */
    assert_memory_equal(fixture->peer->view, ones, sizeof(ones));
}

static void reads_cost_as_much_as_the_slice_announces(void **state)
{
    struct fixture *fixture = *state;
    pthread_mutex_lock(&fixture->fake.lock);
    fixture->fake.slice_flags = VIA_ATTACH_SLICE_COMBINES | VIA_ATTACH_SLICE_IMITATES;
    fixture->fake.slice_read_ns = 100000;
    pthread_mutex_unlock(&fixture->fake.lock);
    offer_slices(fixture);
    until_stored(fixture, 0);
    uint64_t start_ns = via_client_now_ns();
    for (uint64_t i = 0; i < 10; i++) {
        put_word(fixture, 0, i);
    }
    assert_true(via_client_now_ns() - start_ns >= 10 * 100000);
}

/* --- hostile answers -------------------------------------------------------------------------- */

static void no_answer_makes_it_store_elsewhere(void **state)
{
    struct fixture *fixture = *state;
    struct fake_host *fake = &fixture->fake;
    int unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int small = memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(unsealed, FAKE_PEER_BYTES), 0);
    assert_int_equal(ftruncate(small, 4096), 0);
    assert_int_equal(fcntl(small, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    static const struct via_attach_slice lies[] = {
        {.off = 1},
        {.off = FAKE_PEER_BYTES},
        {.off = UINT64_C(1) << 63},
        {.bytes = FAKE_SLICE_BYTES ^ (FAKE_SLICE_BYTES - 1)},
        {.bytes = FAKE_SLICE_BYTES ^ (2 * FAKE_SLICE_BYTES)},
        {.bytes = UINT64_MAX},
        {.slice_bytes = 1},
        {.slice_bytes = FAKE_SLICE_BYTES},
        {.slice_bytes = FAKE_SLICE_BYTES ^ 2048},
        {.slice_bytes = FAKE_SLICE_BYTES ^ (UINT64_C(1) << 63)},
        {.fd_off = 8},
        {.fd_off = UINT64_C(1) << 62},
        {.fd_off = UINT64_C(1) << 63},
        {.word = 1u << 20},
        {.busy = 1u << 20},
        {.busy = 128},
        {.life = UINT64_C(1) << 40},
        {.life = VIA_SLICE_GONE},
    };
    uint16_t generation = 2;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(lies) + 3; i++) {
        unsigned before = fake->slices_count;
        pthread_mutex_lock(&fake->lock);
        memset(&fake->slice_lie, 0, sizeof(fake->slice_lie));
        if (i < VIA_ARRAY_COUNT(lies)) {
            fake->slice_lie = lies[i];
        }
        unsigned more = i < VIA_ARRAY_COUNT(lies) ? 0 : i - VIA_ARRAY_COUNT(lies) + 1;
        fake->slice_without_fd = more == 1;
        fake->slice_fd_instead = more == 2 ? unsealed : more == 3 ? small : 0;
        pthread_mutex_unlock(&fake->lock);
        fake_host_set_slices(fake, FAKE_PEER, 77, ++generation, true);
        for (unsigned tries = 0; fake->slices_count == before; tries++) {
            assert_true(tries < TRIES);
            assert_false(is_stored(fixture, FAKE_SLICE_BYTES + 8));
        }
        for (unsigned tries = 0; tries < 5; tries++) {
            client_nap_ms(1);
            assert_false(is_stored(fixture, FAKE_SLICE_BYTES + 8));
        }
        assert_int_equal(fake->slices_count, before + 1);
    }
    pthread_mutex_lock(&fake->lock);
    memset(&fake->slice_lie, 0, sizeof(fake->slice_lie));
    fake->slice_fd_instead = 0;
    pthread_mutex_unlock(&fake->lock);
    fake_host_set_slices(fake, FAKE_PEER, 77, ++generation, true);
    until_stored(fixture, FAKE_SLICE_BYTES + 8);
    close(unsealed);
    close(small);
}

static void a_remote_may_be_closed_before_its_answer(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.mute = true;
    offer_slices(fixture);
    for (unsigned i = 0; i < 20; i++) {
        assert_false(is_stored(fixture, 0));
    }
    via_remote_close(fixture->remote);
    fixture->fake.mute = false;
    assert_int_equal(via_remote_open(fixture->attach, FAKE_PEER, FAKE_PEER_HANDLE, FAKE_PEER_BYTES,
                                     &fixture->remote),
                     0);
    until_stored(fixture, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HOST(puts_are_stores_once_there_is_a_slice),
        WITH_HOST(puts_may_cross_pieces),
        WITH_HOST(long_puts_go_by_frames),
        WITH_HOST(a_ring_is_a_frame_and_delays_no_store),
        WITH_HOST(only_a_sleeping_reader_is_rung),
        WITH_HOST(an_answer_of_the_reader_saves_the_fence),
        WITH_HOST(a_failed_attempt_is_not_visible),
        WITH_HOST(signals_come_after_what_was_put),
        WITH_HOST(no_store_overtakes_a_frame),
        WITH_HOST(a_wait_for_frames_ends),
        WITH_HOST(frames_take_over_when_a_slice_is_revoked),
        WITH_HOST(a_link_without_slices_is_asked_once),
        WITH_HOST(a_segment_that_was_freed_is_lost),
        WITH_HOST(the_end_of_another_segment_is_not_its),
        WITH_HOST(all_ones_can_be_put),
        WITH_HOST(reads_cost_as_much_as_the_slice_announces),
        WITH_HOST(no_answer_makes_it_store_elsewhere),
        WITH_HOST(a_remote_may_be_closed_before_its_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
