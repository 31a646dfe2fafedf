/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/variables.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "shmem/algorithm.h"
#include "shmem/job.h"
#include "shmem/size.h"

static int check_size(const char *value, struct via_error *err)
{
    uint64_t bytes;
    int result = via_size_parse(value, &bytes);

    if (result == -EINVAL)
        return via_error_set(err, result, "not a size; expected a number and k, m, g or t");
    if (result < 0 || bytes > VIA_JOB_HEAP_BYTES_MAX)
        return via_error_set(err, -ERANGE, "more than %" PRIu64 " bytes", VIA_JOB_HEAP_BYTES_MAX);
    return 0;
}

static int check_mode(const char *value, struct via_error *err)
{
    static const char *const modes[] = {"", "0", "1", "warn", "abort"};

    for (size_t i = 0; i < VIA_ARRAY_COUNT(modes); i++)
        if (strcmp(modes[i], value) == 0)
            return 0;
    return via_error_set(err, -EINVAL, "expected 1, warn, abort or 0; taken as warn");
}

static int check_barrier(const char *value, struct via_error *err)
{
    uint32_t barrier;

    if (via_job_barrier_parse(value, &barrier) < 0)
        return via_error_set(err, -EINVAL, "expected windows or doorbells");
    return 0;
}

static int check_algorithms(const char *value, struct via_error *err)
{
    uint64_t forced;

    return via_algorithms_parse(value, &forced, err);
}

static int check_costs(const char *value, struct via_error *err)
{
    struct via_costs costs;

    return via_costs_parse(value, &costs, err);
}

const struct via_variable via_variables[] = {
    {"SHMEM_SYMMETRIC_SIZE", "SMA_SYMMETRIC_SIZE",
     "bytes of the symmetric heap of each PE; a number and k, m, g or t", "1g", check_size},
    {"VIADUCT_SHMEM_HEAP_MAX", NULL,
     "up to how many bytes the heap of a PE grows, when a request does not fit",
     "the machine's memory", check_size},
    {"VIADUCT_SHMEM_BARRIER", NULL,
     "how hosts synchronize in a barrier: windows (of neighbours) or doorbells (of the daemons)",
     "windows", check_barrier},
    {"VIADUCT_SHMEM_ALGORITHMS", NULL,
     "COLLECTIVE=ALGORITHM,...: these are used wherever they apply; oshinfo --algorithms",
     "by cost", check_algorithms},
    {"VIADUCT_SHMEM_COSTS", NULL,
     "NAME=NUMBER,...: costs by which algorithms are chosen; oshinfo --algorithms", "measured",
     check_costs},
    {"SHMEM_VERSION", "SMA_VERSION", "if set, the version is printed at the start", NULL, NULL},
    {"SHMEM_INFO", "SMA_INFO", "if set, these variables are printed at the start", NULL, NULL},
    {"SHMEM_DEBUG", "SMA_DEBUG", "if set, messages that help to find errors are printed", NULL,
     NULL},
    {"VIADUCT_SHMEM_CHECK", NULL, "1, warn or abort: check the calls of the program", "0",
     check_mode},
    {"VIADUCT_SHMEM_STATS", NULL, "a file: each PE appends the bytes it has moved by each path",
     NULL, NULL},
    {"VIADUCT_SHMEM_PROFILE", NULL,
     "a file, or -: how often each call was made, and how long it took", NULL, NULL},
    {"VIADUCT_SHMEM_TIMELINE", NULL,
     "a file: all calls of 1 us or more, for Perfetto or chrome://tracing", NULL, NULL},
    {"VIADUCT_FABRIC", NULL, "the fabric whose hosts oshrun uses", "default", NULL},
    {"VIADUCT_RUNDIR", NULL, "where that fabric is", NULL, NULL},
};

const size_t via_variables_count = VIA_ARRAY_COUNT(via_variables);

const char *via_variable_value(const struct via_variable *variable)
{
    const char *value = getenv(variable->name);

    return value || !variable->old_name ? value : getenv(variable->old_name);
}
