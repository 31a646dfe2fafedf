/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A fabric key that is replaced while threads of drivers hash with it; run with TSan, too. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/key.h"

#define TIMES 2000

static struct via_daemon_key used, one, two;
static _Atomic bool stopping;

static void read_key(int byte, struct via_daemon_key *ret_key)
{
    char path[] = "/tmp/viaduct-key-XXXXXX";
    char data[64];
    struct via_error err = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    memset(data, byte, sizeof(data));
    assert_int_equal(write(fd, data, sizeof(data)), sizeof(data));
    int rc = via_daemon_key_read(path, ret_key, &err);
    unlink(path);
    close(fd);
    assert_int_equal(rc, 0);
}

static void hash(const struct via_daemon_key *key, uint8_t ret_mac[VIA_MAC_BYTES])
{
    key->host.mac(key->host.ctx, "data", 4, ret_mac);
}

static void *replace(void *argument)
{
    (void)argument;
    while (!atomic_load_explicit(&stopping, memory_order_relaxed)) {
        via_daemon_key_replace(&used, &two);
        via_daemon_key_replace(&used, &one);
    }
    return NULL;
}

static void a_key_is_replaced_whole(void **state)
{
    (void)state;
    uint8_t macs[2][VIA_MAC_BYTES];
    pthread_t thread;
    read_key(1, &one);
    read_key(2, &two);
    read_key(1, &used);
    hash(&one, macs[0]);
    hash(&two, macs[1]);
    assert_memory_not_equal(macs[0], macs[1], VIA_MAC_BYTES);
    assert_int_equal(pthread_create(&thread, NULL, replace, NULL), 0);
    unsigned strange = 0;
    for (int i = 0; i < TIMES; i++) {
        uint8_t mac[VIA_MAC_BYTES];
        hash(&used, mac);
        strange += memcmp(mac, macs[0], sizeof(mac)) != 0 && memcmp(mac, macs[1], sizeof(mac)) != 0;
    }
    atomic_store_explicit(&stopping, true, memory_order_relaxed);
    pthread_join(thread, NULL);
    assert_int_equal(strange, 0);
    via_daemon_key_replace(&used, &two);
    uint8_t mac[VIA_MAC_BYTES];
    hash(&used, mac);
    assert_memory_equal(mac, macs[1], VIA_MAC_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_key_is_replaced_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
