/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A cell: the part of an ivshmem memory that one link uses. Two hosts, side 0 and side 1, share it.
 * It has the registers of both ends, like a bridge, and two inboxes.
 *
 *   0                    registers, a page: struct via_ivshmem_end of side 0, of side 1
 *   4096                 inbox of side 0, window_bytes
 *   4096 + window_bytes  inbox of side 1
 *
 * Cell k lies at k * via_ivshmem_cell_bytes(window_bytes). Each register has one writer: the host
 * at that end. The peer's registers are hostile input. So are this end's own, because every machine
 * on the memory can write to all of it.
 */
#ifndef VIA_PORT_IVSHMEM_CELL_H
#define VIA_PORT_IVSHMEM_CELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/types.h"
#include "core/port.h"

#define VIA_IVSHMEM_PAGE_BYTES 4096u
#define VIA_IVSHMEM_HELLO ((uint64_t)0x56495653 << 32 | 1) /* magic, and version of this layout */

/*
 * State of one end. `boot` is a random number, new in each life of the link. An end trains by
 * writing the peer's boot into `trained`, after it has unmapped its window and discarded old
 * doorbells. The link is up while each end's `trained` equals the other end's `boot`. An end that
 * cuts, restarts or has seen the link down takes a new boot, so nothing stored in one life of a
 * link counts in the next.
 */
struct via_ivshmem_end {
    _Atomic uint64_t hello VIA_CACHELINE_ALIGNED; /* VIA_IVSHMEM_HELLO, written last */
    _Atomic uint64_t window_bytes;
    _Atomic uint64_t cut; /* number of the decision * 2, plus 1 for a cut */
    _Atomic uint32_t host;
    _Atomic uint32_t id;   /* ivshmem id, for interrupts */
    _Atomic uint64_t beat; /* counts turns of the control thread: a sign of life */

    _Atomic uint64_t boot VIA_CACHELINE_ALIGNED; /* 0: no process uses this end */
    _Atomic uint64_t trained;                    /* boot of the peer, 0: not trained */

    _Atomic uint32_t pad[VIA_PORT_SCRATCHPADS / 2] VIA_CACHELINE_ALIGNED;

    /* How often this end has rung each doorbell of the peer; and the peer's `rung` when this end
     * last took the doorbell. */
    _Atomic uint32_t rung[VIA_PORT_DOORBELLS] VIA_CACHELINE_ALIGNED;
    _Atomic uint32_t taken[VIA_PORT_DOORBELLS] VIA_CACHELINE_ALIGNED;
};
_Static_assert(2 * sizeof(struct via_ivshmem_end) <= VIA_IVSHMEM_PAGE_BYTES, "one page");

struct via_ivshmem_cell {
    struct via_ivshmem_end end[2];
};

static inline uint64_t via_ivshmem_cell_bytes(uint64_t window_bytes)
{
    return VIA_IVSHMEM_PAGE_BYTES + 2 * window_bytes;
}

static inline uint64_t via_ivshmem_inbox_off(unsigned side, uint64_t window_bytes)
{
    return VIA_IVSHMEM_PAGE_BYTES + side * window_bytes;
}

/* No valid host reaches this value; larger values are invalid and ignored. */
#define VIA_IVSHMEM_CUT_MAX (UINT64_C(1) << 62)

static inline uint64_t via_ivshmem_end_cut(const struct via_ivshmem_end *end)
{
    uint64_t decision = atomic_load_explicit(&end->cut, memory_order_acquire);
    return decision < VIA_IVSHMEM_CUT_MAX ? decision : 0;
}

/* Either end may cut or mend. The decision with the higher number counts; of two with the same
 * number, the cut. Returns the decision that counts. */
static inline uint64_t via_ivshmem_cell_cut(const struct via_ivshmem_cell *cell)
{
    uint64_t zero = via_ivshmem_end_cut(&cell->end[0]);
    uint64_t one = via_ivshmem_end_cut(&cell->end[1]);
    return via_max(zero, one);
}

#endif
