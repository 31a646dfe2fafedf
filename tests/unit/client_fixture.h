/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_TESTS_UNIT_CLIENT_FIXTURE_H
#define VIA_TESTS_UNIT_CLIENT_FIXTURE_H

#include <stddef.h>

#include "host/client.h"
#include "tests/unit/fake_host.h"
#include "viaduct/viaduct.h"

/* An attachment to a fake host, and a remote of its peer. */
struct fixture {
    struct fake_host fake;
    struct via_attach *attach;
    struct via_remote *remote;
    struct fake_segment *peer;
};

int client_attach_to(const struct fake_host *fake, struct via_attach **ret_attach);
int client_set_up(void **state);
int client_tear_down(void **state);
void client_nap_ms(long ms);
void client_fill(unsigned char *bytes, size_t count, unsigned seed);

/* The text of the last error contains `part`. */
void client_assert_text_has(const char *part);

#define WITH_HOST(test) cmocka_unit_test_setup_teardown(test, client_set_up, client_tear_down)

#endif
