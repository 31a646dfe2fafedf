/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The promises of an emulated port: all promises of shared memory, or only those of a class of real
 * links. docs/emulated-port.md lists the classes with their sources.
 */
#ifndef VIA_PORT_EMU_LIKE_H
#define VIA_PORT_EMU_LIKE_H

#include <stdbool.h>
#include <stdint.h>

struct via_emu_like {
    const char *name;              /* one word */
    bool coherent, writes_ordered; /* as in struct via_port_caps */
    /* Posted writes go through lanes (lane.h); otherwise they are direct stores. */
    bool lanes;
    /* A process may map memory of the peer's processes, because both hosts are on one machine. */
    bool maps_memory;
    /* The window can show memory of the peer's processes: port/slice.h. */
    bool slices;
    /* Scratchpads keep their values while the link is down, and when a host dies. */
    bool scratchpads_survive;
    uint64_t window_bytes;     /* unless an option says otherwise; 0 = as large as the inbox */
    uint64_t window_bytes_max; /* 0 = no limit, not even VIA_EMU_WINDOW_BYTES_MIN */
    uint32_t read_ns;          /* least time of a fence */
    uint32_t pad_ns;           /* time of a scratchpad read */
    uint32_t delay_ns;         /* with lanes: longest delay of a flushed write */
};

#define VIA_EMU_WINDOW_BYTES_MIN (UINT64_C(1) << 20) /* of classes with a limit */

/* NULL: no such class. "memory" is plain shared memory. */
const struct via_emu_like *via_emu_like_find(const char *name);

#endif
