/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/emu/like.h"

#include <string.h>

#include "base/types.h"

#define MIB (UINT64_C(1) << 20)

/* Times are those of hardware, or several times longer, so that tests find software that does not
 * wait for them. */
static const struct via_emu_like classes[] = {
    {
        .name = "memory",
        .coherent = true,
        .writes_ordered = true,
        .maps_memory = true,
    },
    {
        .name = "pex",
        .slices = true,
        .lanes = true,
        .scratchpads_survive = true,
        .window_bytes = 4 * MIB,
        .window_bytes_max = 64 * MIB,
        .read_ns = 1500,
        .pad_ns = 1500,
        .delay_ns = 20 * VIA_USEC_NS,
    },
    {
        .name = "ivshmem",
        .slices = true,
        .coherent = true,
        .writes_ordered = true,
        .scratchpads_survive = true,
        .window_bytes = 4 * MIB,
        .window_bytes_max = 64 * MIB,
    },
    {
        /* Scratchpads are words in local memory, which the peer writes. */
        .name = "network",
        .lanes = true,
        .read_ns = 10 * VIA_USEC_NS,
        .delay_ns = 100 * VIA_USEC_NS,
    },
};

const struct via_emu_like *via_emu_like_find(const char *name)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(classes); i++) {
        if (strcmp(classes[i].name, name) == 0) {
            return &classes[i];
        }
    }
    return NULL;
}
