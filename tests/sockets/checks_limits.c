/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What a process may use is what the program may use: descriptors, sizes of files. */
#include "checks.h"

#include <sys/resource.h>

static void limit_to(int resource, rlim_t value)
{
    struct rlimit limit;
    CHECK(getrlimit(resource, &limit) == 0);
    limit.rlim_cur = value;
    CHECK(setrlimit(resource, &limit) == 0);
}

static void files_may_have_no_bytes(void)
{
    limit_to(RLIMIT_FSIZE, 0);
    for (int i = 0; i < 3; i++) {
        struct pair pair = connected();
        talk_both_ways(pair.client, pair.server);
        done(pair);
    }
}

const struct check checks_of_limits[] = {
    CHECK_ENTRY(files_may_have_no_bytes),
    {0},
};
