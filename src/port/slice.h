/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_PORT_SLICE_H
#define VIA_PORT_SLICE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Slices of a window: what a port offers beside core/port.h when memory other than the inbox can be
 * reached through it (docs/adr/0016-apertures.md). Both ends number the slices alike. The owner
 * exposes a piece of memory in slice k of its own end; the importer's end then gives a descriptor
 * by which a process maps what slice k shows. Stores through it are ordered, combined, delayed and
 * lost as posted writes of the port are; a load proves that the stores before it arrived, and
 * brings all-ones when the link is down.
 *
 * All functions are the control thread's. None blocks.
 */
struct via_port_slices;

struct via_port_slice_ops {
    /*
     * [owner] Slice `slice` shows `bytes` of memory_fd from off on, in place of what it showed.
     * exposure: the importer's number for it, by which it knows that it maps no other. memory_fd is
     * borrowed until this returns, the memory until conceal(), the next expose() or the end of the
     * link. off is a multiple of slice_bytes, bytes not 0 and no more than slice_bytes. 0; -EAGAIN
     * (later), -ENOLINK, -EINVAL (out of bounds), -EPERM (memory that can shrink), and others when
     * the memory cannot be exposed: the slice shows nothing then.
     */
    int (*expose)(struct via_port_slices *slices, uint32_t slice, uint64_t exposure, int memory_fd,
                  uint64_t off, uint64_t bytes);

    /* [owner] The slice shows nothing: stores into it vanish, loads bring all-ones. Where mappings
     * of a slice `detach`, those that are there may go on to reach the memory. */
    void (*conceal)(struct via_port_slices *slices, uint32_t slice);

    /*
     * [importer] By what a process maps the slice: the descriptor, borrowed until unmap(), the next
     * exposure or the end of the link, and the slice's offset in it. 0; -EAGAIN (the exposure is
     * not here yet), -ENOLINK, -EINVAL.
     */
    int (*map)(struct via_port_slices *slices, uint32_t slice, uint64_t exposure, int *ret_fd,
               uint64_t *ret_off);

    /* [importer] No process uses the slice any more. */
    void (*unmap)(struct via_port_slices *slices, uint32_t slice);
};

/* Constants of an open port. */
struct via_port_slices {
    const struct via_port_slice_ops *ops;
    uint32_t count;       /* the smaller one of both ends counts */
    uint64_t slice_bytes; /* a power of two, at least a page; the same at both ends */
    uint32_t read_ns;     /* what a load costs */
    bool combines;        /* stores are write-combined */
    bool imitates;        /* the memory only stands for such: see VIA_ATTACH_SLICE_IMITATES */
    /* A mapping never reaches what the slice shows later. Otherwise a slice shows another piece
     * only when no process can store through the old mapping any more. */
    bool detaches;
    /* A process's mapping leads to the whole window: only for processes that are trusted as the
     * host itself is. */
    bool shares_window;
};

#endif
