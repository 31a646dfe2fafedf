/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/zcopy_rule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_VERSION "1"
/* Saying that bytes are there, that they have been fetched, and waking up in between. */
#define AGREEMENT_NS 10000u

/*
 * Sender and receiver copy at the same time when each has a CPU: then a message takes half of both
 * copies, while fetching is the receiver's work alone.
 */
static int pays(const struct via_zcopy_times *times, unsigned cpus)
{
    uint64_t copies_ns = cpus > 1 ? times->copies_ns / 2 : times->copies_ns;
    return times->fetch_ns + AGREEMENT_NS <= copies_ns;
}

size_t via_zcopy_decide(const struct via_zcopy_times times[VIA_ZCOPY_SIZES], unsigned cpus)
{
    size_t least = SIZE_MAX;
    /* From the largest down: it has to pay for all that are larger, too. */
    for (unsigned i = VIA_ZCOPY_SIZES; i-- > 0 && pays(&times[i], cpus);) {
        least = (size_t)VIA_ZCOPY_LEAST << i;
    }
    return least;
}

int via_zcopy_format(char *ret_line, size_t max, const char *machine, size_t least)
{
    int n = least == SIZE_MAX ? snprintf(ret_line, max, FORMAT_VERSION " %s never\n", machine)
                              : snprintf(ret_line, max, FORMAT_VERSION " %s %zu\n", machine, least);
    return n > 0 && (size_t)n < max ? n : -1;
}

int via_zcopy_parse(const char *line, const char *machine, size_t *ret_least)
{
    size_t machine_bytes = strlen(machine);
    size_t version_bytes = strlen(FORMAT_VERSION " ");
    if (strncmp(line, FORMAT_VERSION " ", version_bytes) != 0 ||
        strncmp(line + version_bytes, machine, machine_bytes) != 0) {
        return -1;
    }
    const char *value = line + version_bytes + machine_bytes;
    if (strcmp(value, " never\n") == 0) {
        *ret_least = SIZE_MAX;
        return 0;
    }
    if (value[0] != ' ' || value[1] < '1' || value[1] > '9') {
        return -1;
    }
    char *end;
    unsigned long long least = strtoull(value + 1, &end, 10);
    if (strcmp(end, "\n") != 0 || least < VIA_ZCOPY_LEAST ||
        least > (unsigned long long)VIA_ZCOPY_LEAST << (VIA_ZCOPY_SIZES - 1)) {
        return -1;
    }
    *ret_least = (size_t)least;
    return 0;
}
