/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "tests/unit/client_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/types.h"

int client_attach_to(const struct fake_host *fake, struct via_attach **ret_attach)
{
    struct via_attach_options options = {
        .size = sizeof(options),
        .rundir = fake->rundir,
        .host = (int)fake->host,
        .channel = -1,
    };
    return via_attach_open(&options, ret_attach);
}

int client_set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    fake_host_start(&fixture->fake, 1);
    fake_host_set_way(&fixture->fake, FAKE_PEER, 77, 1, 2, false);
    fixture->peer = fake_host_peer(&fixture->fake);
    assert_int_equal(client_attach_to(&fixture->fake, &fixture->attach), 0);
    assert_int_equal(via_remote_open(fixture->attach, FAKE_PEER, FAKE_PEER_HANDLE, FAKE_PEER_BYTES,
                                     &fixture->remote),
                     0);
    *state = fixture;
    return 0;
}

int client_tear_down(void **state)
{
    struct fixture *fixture = *state;
    via_remote_close(fixture->remote);
    via_attach_close(fixture->attach);
    fake_host_stop(&fixture->fake);
    free(fixture);
    return 0;
}

void client_nap_ms(long ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

void client_fill(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (unsigned char)(i * 7 + i / 251 + seed);
    }
}

void client_assert_text_has(const char *part)
{
    if (strstr(via_error_text(), part) == NULL) {
        fail_msg("'%s' is not in '%s'", part, via_error_text());
    }
}
