/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Registers and descriptors of the DMA function 87D0 of a PEX 87xx, which has four channels with a
 * descriptor ring in host memory. Source: Linux, drivers/dma/plx_dma.c.
 */
#ifndef VIA_VFIO_PLX_DMA_H
#define VIA_VFIO_PLX_DMA_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/types.h"

#define VIA_PLX_DMA_CHANNELS 4u
#define VIA_PLX_DMA_REG(channel, off) (0x200u + 0x100u * (channel) + (off))

/* Offsets from a channel's base. */
#define VIA_PLX_DMA_RING_LOW 0x14u
#define VIA_PLX_DMA_RING_HIGH 0x18u
#define VIA_PLX_DMA_RING_NEXT 0x1Cu
#define VIA_PLX_DMA_RING_COUNT 0x20u
#define VIA_PLX_DMA_PREFETCH 0x34u
#define VIA_PLX_DMA_PREFETCH_FOUR 8u
#define VIA_PLX_DMA_CONTROL 0x38u
#define VIA_PLX_DMA_INTERRUPT 0x3Cu

#define VIA_PLX_DMA_ABORT (1u << 1)
#define VIA_PLX_DMA_START                                                   \
    (1u << 2 | 1u << 3 | 2u << 5) /* write-back, start, ring in host memory \
                                   */
#define VIA_PLX_DMA_CLEARS 0x1700u
#define VIA_PLX_DMA_ABORTED (1u << 10)
#define VIA_PLX_DMA_BUSY (1u << 30)
#define VIA_PLX_DMA_INTERRUPT_STATUS UINT32_C(0xffff0000)

/* Flags of a descriptor; the lower bits hold the size. */
#define VIA_PLX_DMA_VALID (UINT32_C(1) << 31)
#define VIA_PLX_DMA_WANTS_INTERRUPT (UINT32_C(1) << 30)
#define VIA_PLX_DMA_SIZE_MAX 0x07ffffffu
/* Flags that the engine writes back. */
#define VIA_PLX_DMA_GOOD (UINT32_C(1) << 30)
#define VIA_PLX_DMA_READ_FAILED (UINT32_C(1) << 29)

struct via_plx_dma_descriptor {
    _Atomic uint32_t flags; /* valid, interrupt, size; written last */
    uint16_t destination_high, source_high;
    uint32_t destination_low, source_low;
};
_Static_assert(sizeof(struct via_plx_dma_descriptor) == 16, "as the chip has it");

/* The engine may execute the descriptor as soon as its flags are stored. The release pairs with the
 * engine's read of the flags. */
static inline void via_plx_dma_fill(struct via_plx_dma_descriptor *descriptor, uint64_t from,
                                    uint64_t to, uint32_t flags)
{
    descriptor->destination_high = (uint16_t)(to >> 32);
    descriptor->source_high = (uint16_t)(from >> 32);
    descriptor->destination_low = (uint32_t)to;
    descriptor->source_low = (uint32_t)from;
    atomic_store_explicit(&descriptor->flags, flags, memory_order_release);
}

#endif
