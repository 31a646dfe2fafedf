/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_PORT_SLICE_H
#define VIA_PORT_SLICE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Slices of a window: an interface of ports, beside core/port.h, through which memory other than
 * the inbox can be reached (docs/adr/0016-apertures.md). Both ends use the same slice numbers. The
 * owner exposes a piece of memory in slice k of its own end. The importer's end then provides a
 * descriptor, by which a process maps the memory behind slice k. Stores through the mapping are
 * ordered, combined, delayed and lost as posted writes of the port are. A load proves that the
 * stores before it have arrived; it returns all-ones while the link is down.
 *
 * All functions are the control thread's. None blocks.
 */
struct via_port_slices;

struct via_port_slice_ops {
    /*
     * [owner] Slice `slice` shows `bytes` of memory_fd from off on, instead of its earlier memory.
     * exposure: a number that the importer has chosen for this exposure; with it the importer does
     * not map another one by mistake. memory_fd is borrowed until the call returns; its memory is
     * borrowed until conceal(), the next expose() or the end of the link. off is a multiple of
     * slice_bytes; bytes is 1 to slice_bytes. 0; -EAGAIN (later), -ENOLINK, -EINVAL (out of
     * bounds), -EPERM (memory that can shrink), or another error if the memory cannot be exposed;
     * after an error the slice shows nothing.
     */
    int (*expose)(struct via_port_slices *slices, uint32_t slice, uint64_t exposure, int memory_fd,
                  uint64_t off, uint64_t bytes);

    /* [owner] The slice shows nothing: stores into it vanish, loads return all-ones. With
     * `detaches`, existing mappings may still reach the memory. */
    void (*conceal)(struct via_port_slices *slices, uint32_t slice);

    /*
     * [importer] Returns the descriptor by which a process maps the slice, and the offset of the
     * slice in it. The descriptor is borrowed until unmap(), the next exposure or the end of the
     * link. 0; -EAGAIN (the exposure has not arrived yet), -ENOLINK, -EINVAL.
     */
    int (*map)(struct via_port_slices *slices, uint32_t slice, uint64_t exposure, int *ret_fd,
               uint64_t *ret_off);

    /* [importer] No process uses the slice any more. */
    void (*unmap)(struct via_port_slices *slices, uint32_t slice);
};

/* Constants of an open port. */
struct via_port_slices {
    const struct via_port_slice_ops *ops;
    uint32_t count;       /* the two ends use the smaller count */
    uint64_t slice_bytes; /* a power of two, at least a page; the same at both ends */
    uint32_t read_ns;     /* time of a load */
    bool combines;        /* stores are write-combined */
    bool imitates;        /* ordinary memory imitates a slice: see VIA_ATTACH_SLICE_IMITATES */
    /* An old mapping never reaches memory that the slice shows later. Without this, the slice must
     * show other memory only after no process can store through the old mapping. */
    bool detaches;
    /* A mapping gives a process access to the whole window: only for processes as trusted as the
     * host itself. */
    bool shares_window;
};

#endif
