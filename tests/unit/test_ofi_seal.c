/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Sealed messages of ofi links: each accepted message equals the sent one, once and in order. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <sodium.h>
#include <cmocka.h>

#include "port/ofi/seal.h"

#define TEXT "eight by"
#define BYTES (sizeof(TEXT) - 1)
#define SEALED_BYTES (BYTES + VIA_OFI_TAG_BYTES)
/* More messages than one key seals. */
#define MANY (UINT64_C(1) << 20)

struct end {
    uint8_t secret[VIA_OFI_EXCHANGE_BYTES];
    struct via_ofi_proof proof;
    struct via_ofi_seal send, receive;
};

struct pair {
    struct end connector, listener;
};

static void mac(void *ctx, const void *data, size_t bytes, uint8_t ret_mac[32])
{
    (void)crypto_generichash(ret_mac, 32, data, bytes, ctx, 32);
}

static int agree(struct end *end, const struct end *other, bool connector, uint8_t *key)
{
    static const struct via_ofi_request request = {.magic = VIA_OFI_MAGIC, .from = 1, .to = 2};
    static const struct via_ofi_answer answer = {.magic = VIA_OFI_MAGIC, .from = 2, .to = 1};
    struct via_driver_host host = {.mac = mac, .mac_ctx = key};
    return via_ofi_seal_agree(&host, connector, end->secret, &request, &answer, &end->proof,
                              &other->proof, &end->send, &end->receive);
}

/* Keys of the fabric: the connector's, the listener's. */
static struct pair make_pair(uint8_t first, uint8_t second)
{
    struct pair pair = {0};
    uint8_t keys[2][32];
    memset(keys[0], first, 32);
    memset(keys[1], second, 32);
    assert_int_equal(via_ofi_exchange_make(pair.connector.secret, pair.connector.proof.exchange),
                     0);
    assert_int_equal(via_ofi_exchange_make(pair.listener.secret, pair.listener.proof.exchange), 0);
    assert_int_equal(agree(&pair.connector, &pair.listener, true, keys[0]), 0);
    assert_int_equal(agree(&pair.listener, &pair.connector, false, keys[1]), 0);
    return pair;
}

static void put(struct via_ofi_seal *seal, unsigned char message[SEALED_BYTES])
{
    memcpy(message, TEXT, BYTES);
    via_ofi_seal_put(seal, message, BYTES);
}

/* Opens a copy of the message, like a receiver. */
static ssize_t take(struct via_ofi_seal *seal, const unsigned char *message, size_t bytes)
{
    unsigned char copy[SEALED_BYTES];
    memcpy(copy, message, bytes);
    ssize_t plain = via_ofi_seal_take(seal, copy, bytes);
    if (plain >= 0) {
        assert_int_equal(plain, BYTES);
        assert_memory_equal(copy, TEXT, BYTES);
    }
    return plain;
}

static void both_directions_carry(void **state)
{
    struct pair pair = make_pair(1, 1);
    unsigned char message[SEALED_BYTES];
    unsigned char again[SEALED_BYTES];
    (void)state;
    for (int i = 0; i < 5; i++) {
        put(&pair.connector.send, message);
        assert_int_equal(take(&pair.listener.receive, message, sizeof(message)), BYTES);
        put(&pair.listener.send, again);
        assert_int_equal(take(&pair.connector.receive, again, sizeof(again)), BYTES);
        assert_memory_not_equal(message, TEXT, BYTES);
        assert_memory_not_equal(message, again, sizeof(message));
    }
}

static void the_same_text_is_never_the_same_message(void **state)
{
    struct pair pair = make_pair(1, 1);
    struct pair other = make_pair(1, 1);
    unsigned char messages[3][SEALED_BYTES];
    (void)state;
    put(&pair.connector.send, messages[0]);
    put(&pair.connector.send, messages[1]);
    put(&other.connector.send, messages[2]);
    assert_memory_not_equal(messages[0], messages[1], BYTES);
    assert_memory_not_equal(messages[0], messages[2], BYTES);
}

static void a_changed_message_is_refused(void **state)
{
    unsigned char message[SEALED_BYTES];
    (void)state;
    for (size_t bit = 0; bit < 8 * SEALED_BYTES; bit++) {
        struct pair pair = make_pair(1, 1);
        put(&pair.connector.send, message);
        message[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_equal(take(&pair.listener.receive, message, sizeof(message)), -EBADMSG);
    }
    for (size_t bytes = 0; bytes < SEALED_BYTES; bytes++) {
        struct pair pair = make_pair(1, 1);
        put(&pair.connector.send, message);
        assert_int_equal(take(&pair.listener.receive, message, bytes), -EBADMSG);
    }
}

static void replayed_swapped_left_out_reflected(void **state)
{
    unsigned char messages[2][SEALED_BYTES];
    struct pair pair = make_pair(1, 1);
    (void)state;
    put(&pair.connector.send, messages[0]);
    put(&pair.connector.send, messages[1]);
    struct pair swapped = pair;
    struct pair left_out = pair;
    assert_int_equal(take(&swapped.listener.receive, messages[1], SEALED_BYTES), -EBADMSG);
    assert_int_equal(take(&left_out.connector.receive, messages[0], SEALED_BYTES), -EBADMSG);
    assert_int_equal(take(&pair.listener.receive, messages[0], SEALED_BYTES), BYTES);
    assert_int_equal(take(&pair.listener.receive, messages[0], SEALED_BYTES), -EBADMSG);
}

static void another_fabric_key_reads_nothing(void **state)
{
    struct pair pair = make_pair(1, 2);
    unsigned char message[SEALED_BYTES];
    (void)state;
    put(&pair.connector.send, message);
    assert_int_equal(take(&pair.listener.receive, message, sizeof(message)), -EBADMSG);
}

static void a_half_of_small_order_is_refused(void **state)
{
    struct pair pair = make_pair(1, 1);
    uint8_t key[32] = {0};
    (void)state;
    memset(pair.listener.proof.exchange, 0, sizeof(pair.listener.proof.exchange));
    assert_int_equal(agree(&pair.connector, &pair.listener, true, key), -EBADMSG);
}

static void keys_change_on_the_way(void **state)
{
    struct pair pair = make_pair(1, 1);
    struct via_ofi_seal before = pair.listener.receive;
    unsigned char message[SEALED_BYTES];
    (void)state;
    for (uint64_t i = 0; i < MANY + 3; i++) {
        put(&pair.connector.send, message);
        assert_int_equal(take(&pair.listener.receive, message, sizeof(message)), BYTES);
    }
    assert_memory_not_equal(before.key, pair.listener.receive.key, sizeof(before.key));
    assert_memory_equal(pair.connector.send.key, pair.listener.receive.key, sizeof(before.key));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_directions_carry),
        cmocka_unit_test(the_same_text_is_never_the_same_message),
        cmocka_unit_test(a_changed_message_is_refused),
        cmocka_unit_test(replayed_swapped_left_out_reflected),
        cmocka_unit_test(another_fabric_key_reads_nothing),
        cmocka_unit_test(a_half_of_small_order_is_refused),
        cmocka_unit_test(keys_change_on_the_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
