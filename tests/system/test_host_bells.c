/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A doorbell is lost: the sleeping transfer thread finds the work nevertheless, and the host counts
 * this. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "tests/system/host_raw.h"
#include "wire/frame.h"

#define BYTES 4096u
#define REPLY_MS 30000

static struct host_lab lab;
static struct host_raw raw;
static uint64_t handle;

/* A put into memory of this process, whose doorbell does not arrive. */
static void put_without_a_bell(uint64_t off, char byte)
{
    static struct via_bell lost[VIA_CHANNELS_MAX];
    struct via_bell *bells = raw.bells;
    struct via_command command = {.kind = VIA_OP_PUT,
                                  .source = VIA_SOURCE_BODY,
                                  .destination = 0,
                                  .bytes = 1,
                                  .segment = handle,
                                  .offset = off,
                                  .cookie = 1};
    struct via_reply reply;
    raw.bells = lost;
    host_raw_command(&raw, &command, &byte, 1);
    raw.bells = bells;
    assert_true(host_raw_reply(&raw, &reply, NULL, REPLY_MS));
    assert_int_equal(reply.status, 0);
}

static bool is_counted(void *ctx)
{
    (void)ctx;
    return host_lab_counter(&lab, 0, "bells_missed") != 0;
}

static void work_whose_doorbell_is_lost_is_found_and_counted(void **state)
{
    unsigned char *memory;
    (void)state;
    host_lab_init(&lab, 1, false, false);
    host_lab_start(&lab, 0, NULL);
    host_raw_open(&raw, &lab, 0);
    handle = host_raw_segment(&raw, BYTES, (void **)&memory);
    assert_int_equal(host_lab_counter(&lab, 0, "bells_missed"), 0);
    for (unsigned i = 0; i < 2; i++) {
        put_without_a_bell(i, (char)('a' + i));
        assert_int_equal(memory[i], 'a' + i);
    }
    /* The doorbell counts as lost if it has not come by the next poll. */
    host_lab_wait(is_counted, NULL, "a doorbell to be counted as lost");
    munmap(memory, BYTES);
    host_raw_close(&raw);
    host_lab_fini(&lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_whose_doorbell_is_lost_is_found_and_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
