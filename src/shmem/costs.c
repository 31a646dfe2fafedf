/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/costs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "shmem/measured_costs.h"

/* Limit: a second, or a byte in a microsecond; so sums of a model's costs stay far below 2^64. */
#define COST_MAX 1000000000ul

const struct via_costs via_costs_measured = VIA_MEASURED_COSTS;

static uint32_t *find(struct via_costs *costs, const char *name, size_t bytes)
{
#define VIA_COSTS_FIND(NAME, TEXT)                                 \
    if (strlen(#NAME) == bytes && memcmp(#NAME, name, bytes) == 0) \
        return &costs->NAME;
    VIA_COSTS(VIA_COSTS_FIND)
#undef VIA_COSTS_FIND
    return NULL;
}

/* A number of one to ten digits. */
static bool take_cost(const char *text, const char *end, uint32_t *ret_cost)
{
    unsigned long cost = 0;

    if (text == end || end - text > 10)
        return false;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9')
            return false;
        cost = cost * 10 + (unsigned long)(*text - '0');
    }
    *ret_cost = (uint32_t)cost;
    return cost <= COST_MAX;
}

int via_costs_parse(const char *text, struct via_costs *ret_costs, struct via_error *err)
{
    struct via_costs costs = via_costs_measured;

    for (const char *at = text; *at != '\0';) {
        size_t bytes = strcspn(at, ",");
        const char *equals = memchr(at, '=', bytes);
        uint32_t *cost = equals ? find(&costs, at, (size_t)(equals - at)) : NULL;
        if (!cost || !take_cost(equals + 1, at + bytes, cost))
            return via_error_set(err, -EINVAL,
                                 "\"%.*s\" is not NAME=NUMBER with a name that oshinfo "
                                 "--algorithms lists, and at most %lu",
                                 (int)via_min(bytes, (size_t)60), at, COST_MAX);
        at += bytes + (at[bytes] == ',');
    }
    *ret_costs = costs;
    return 0;
}
