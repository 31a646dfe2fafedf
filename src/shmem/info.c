/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/info.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shmem/api.h"
#include "shmem/variables.h"
#include "shmem/world.h"

static bool is_set(const char *name, const char *deprecated)
{
    return getenv(name) || getenv(deprecated);
}

void via_info_at_start(void)
{
    if (via_hot.my_pe != 0)
        return;
    if (is_set("SHMEM_VERSION", "SMA_VERSION"))
        fprintf(stderr, "%s %s, OpenSHMEM %d.%d\n", SHMEM_VENDOR_STRING, VIADUCT_VERSION,
                SHMEM_MAJOR_VERSION, SHMEM_MINOR_VERSION);
    if (!is_set("SHMEM_INFO", "SMA_INFO"))
        return;
    fprintf(stderr, "Environment variables of %s %s:\n", SHMEM_VENDOR_STRING, VIADUCT_VERSION);
    for (size_t i = 0; i < via_variables_count; i++) {
        const char *value = via_variable_value(&via_variables[i]);
        fprintf(stderr, "  %-22s %s (%s%s)\n", via_variables[i].name, via_variables[i].text,
                value ? "now: " : "not set", value ? value : "");
    }
}

void via_info_at_end(void)
{
    static const char *const names[VIA_WAYS] = {"direct", "window", "frames"};
    const char *path = getenv("VIADUCT_SHMEM_STATS");
    char text[512];
    int used;

    if (!via_world.statistics || !path)
        return;
    used = snprintf(text, sizeof(text), "{\"pe\": %d, \"host\": %u", via_hot.my_pe,
                    via_world.me->host);
    for (int way = 0; way < VIA_WAYS; way++)
        used += snprintf(text + used, sizeof(text) - (size_t)used,
                         ", \"%s_calls\": %" PRIu64 ", \"%s_bytes\": %" PRIu64, names[way],
                         atomic_load_explicit(&via_world.ways[way].calls, memory_order_relaxed),
                         names[way],
                         atomic_load_explicit(&via_world.ways[way].bytes, memory_order_relaxed));
    used += snprintf(text + used, sizeof(text) - (size_t)used, ", \"rounds\": %" PRIu64 "}\n",
                     atomic_load_explicit(&via_world.rounds, memory_order_relaxed));
    /* One write at the end of the file: lines of several PEs do not mix. */
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, text, (size_t)used) != used)
        fprintf(stderr, "viaduct-shmem: PE %d: VIADUCT_SHMEM_STATS=%s: %s\n", via_hot.my_pe, path,
                strerror(errno));
    if (fd >= 0)
        close(fd);
}
