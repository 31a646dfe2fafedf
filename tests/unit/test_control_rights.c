/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The holders of a right, and quotas on a command line. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/control_rights.h"

static void rights_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *expected;
    } wrong[] = {
        {"", "'': all, owner, user:NAME and group:NAME are known"},
        {"hpc", "'hpc': all, owner"},
        {"all,", "'': all, owner"},
        {"user:", "'user:': there is no such user"},
        {"user:no-such-user", "'user:no-such-user': there is no such user"},
        {"user:4294967295", "there is no such user"},
        {"user:-1", "there is no such user"},
        {"group:no-such-group", "'group:no-such-group': there is no such group"},
        {"group:1x", "there is no such group"},
    };
    struct via_rights rights = {0};
    struct via_error err;
    assert_int_equal(via_rights_add(&rights, "owner", &err), 0);
    assert_int_equal(rights.count, 0);
    assert_int_equal(via_rights_add(&rights, "user:root,group:4711,user:4712,all", &err), 0);
    assert_int_equal(rights.count, 4);
    assert_int_equal(rights.entries[0].kind, VIA_RIGHTS_USER);
    assert_int_equal(rights.entries[0].id, 0);
    assert_int_equal(rights.entries[1].kind, VIA_RIGHTS_GROUP);
    assert_int_equal(rights.entries[1].id, 4711);
    assert_int_equal(rights.entries[2].id, 4712);
    assert_int_equal(rights.entries[3].kind, VIA_RIGHTS_ALL);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(via_rights_add(&rights, wrong[i].text, &err), -EINVAL);
        assert_non_null(strstr(err.text, wrong[i].expected));
    }
    /* Either all users of a list are added, or none. */
    assert_int_equal(via_rights_add(&rights, "user:1,group:no-such-group", &err), -EINVAL);
    assert_int_equal(rights.count, 4);
    for (unsigned i = 4; i < VIA_RIGHTS_ENTRIES_MAX; i++) {
        assert_int_equal(via_rights_add(&rights, "user:1", &err), 0);
    }
    assert_int_equal(via_rights_add(&rights, "user:1", &err), -EINVAL);
}

static void rights_name_users_and_groups(void **state)
{
    (void)state;
    struct via_error err;
    struct via_rights none = {0};
    struct via_rights some = {0};
    struct via_rights all = {0};
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(via_rights_add(&some, "user:4711,group:4712", &err), 0);
    assert_int_equal(via_rights_add(&all, "all", &err), 0);
    const struct {
        struct ucred peer;
        bool none, some;
    } cases[] = {
        {{.pid = 1, .uid = 0, .gid = 1}, true, true},
        {{.pid = 1, .uid = geteuid(), .gid = 1}, true, true},
        {{.pid = 1, .uid = 4711, .gid = 1}, false, true},
        {{.pid = 1, .uid = 4713, .gid = 4712}, false, true},
        {{.pid = 1, .uid = 4712, .gid = 4711}, false, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(via_rights_has(&none, pair[0], &cases[i].peer), cases[i].none);
        assert_int_equal(via_rights_has(&some, pair[0], &cases[i].peer), cases[i].some);
        assert_true(via_rights_has(&all, pair[0], &cases[i].peer));
    }
    close(pair[0]);
    close(pair[1]);
}

static void quotas_are_read(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",          "segments", "segments=",        "segments=0", "segments=-1",
        "notes=1K",  "notes=1,", "pipes=4294967296", "memory=1X",  "memory=1GB",
        "memory= 1", "speed=1",  "memory=16777216T", "pipes=1 ",   "memory=K",
    };
    struct via_quota quota = {0};
    struct via_error err;
    assert_int_equal(via_quota_parse(&quota, "segments=10,memory=2G,pipes=3", &err), 0);
    assert_int_equal(via_quota_parse(&quota, "notes=4294967295,memory=3K", &err), 0);
    assert_int_equal(quota.segments, 10);
    assert_int_equal(quota.memory_bytes, 3072);
    assert_int_equal(quota.pipes, 3);
    assert_int_equal(quota.notes, UINT32_MAX);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct via_quota before = quota;
        assert_int_equal(via_quota_parse(&quota, wrong[i], &err), -EINVAL);
        assert_memory_equal(&before, &quota, sizeof(quota));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rights_are_read),
        cmocka_unit_test(rights_name_users_and_groups),
        cmocka_unit_test(quotas_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
