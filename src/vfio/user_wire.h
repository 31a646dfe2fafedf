/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Messages of the vfio-user protocol (QEMU, docs/interop/vfio-user.rst), the subset that this
 * client and server use. Little-endian, over a UNIX stream socket; descriptors arrive with the
 * first byte of a message. The structures follow those of Linux, linux/vfio.h.
 */
#ifndef VIA_VFIO_USER_WIRE_H
#define VIA_VFIO_USER_WIRE_H

#include <stdint.h>

enum via_vfio_user_command {
    VIA_VFIO_USER_VERSION = 1,
    VIA_VFIO_USER_DMA_MAP = 2,
    VIA_VFIO_USER_DMA_UNMAP = 3,
    VIA_VFIO_USER_GET_INFO = 4,
    VIA_VFIO_USER_REGION_INFO = 5,
    VIA_VFIO_USER_IRQ_INFO = 7,
    VIA_VFIO_USER_SET_IRQS = 8,
    VIA_VFIO_USER_REGION_READ = 9,
    VIA_VFIO_USER_REGION_WRITE = 10,
    VIA_VFIO_USER_RESET = 13,
};

#define VIA_VFIO_USER_REPLY 1u
#define VIA_VFIO_USER_TYPE_MASK 0xfu
#define VIA_VFIO_USER_NO_REPLY 16u
#define VIA_VFIO_USER_ERROR 32u

struct via_vfio_user_header {
    uint16_t id;
    uint16_t command;
    uint32_t bytes; /* of the whole message */
    uint32_t flags;
    uint32_t error; /* errno, in a reply with VIA_VFIO_USER_ERROR */
};

#define VIA_VFIO_USER_DATA_BYTES_MAX 65536u /* of one region access */
#define VIA_VFIO_USER_MESSAGE_BYTES_MAX \
    (VIA_VFIO_USER_DATA_BYTES_MAX + 64u + sizeof(struct via_vfio_user_header))
#define VIA_VFIO_USER_FDS_MAX 8u

struct via_vfio_user_version {
    uint16_t major, minor; /* 0, 0 or 0, 1; JSON with a NUL may follow */
};

#define VIA_VFIO_USER_DMA_READ 1u
#define VIA_VFIO_USER_DMA_WRITE 2u
struct via_vfio_user_dma_map {
    uint32_t argsz;
    uint32_t flags;
    uint64_t offset; /* in the descriptor */
    uint64_t address;
    uint64_t size;
};

struct via_vfio_user_dma_unmap {
    uint32_t argsz;
    uint32_t flags;
    uint64_t address;
    uint64_t size;
};

#define VIA_VFIO_USER_INFO_RESET 1u
#define VIA_VFIO_USER_INFO_PCI 2u
struct via_vfio_user_info {
    uint32_t argsz;
    uint32_t flags;
    uint32_t regions;
    uint32_t irqs;
};

#define VIA_VFIO_USER_REGION_CONFIG 7u
#define VIA_VFIO_USER_REGIONS 9u
#define VIA_VFIO_USER_REGION_FLAG_READ 1u
#define VIA_VFIO_USER_REGION_FLAG_WRITE 2u
struct via_vfio_user_region {
    uint32_t argsz;
    uint32_t flags;
    uint32_t index;
    uint32_t capabilities;
    uint64_t size;
    uint64_t offset;
};

#define VIA_VFIO_USER_IRQS 5u
struct via_vfio_user_irq {
    uint32_t argsz;
    uint32_t flags;
    uint32_t index;
    uint32_t count;
};

#define VIA_VFIO_USER_IRQ_NONE 1u
#define VIA_VFIO_USER_IRQ_EVENTFD 4u
#define VIA_VFIO_USER_IRQ_MASK 8u
#define VIA_VFIO_USER_IRQ_UNMASK 16u
#define VIA_VFIO_USER_IRQ_TRIGGER 32u
struct via_vfio_user_set_irqs {
    uint32_t argsz;
    uint32_t flags;
    uint32_t index;
    uint32_t start;
    uint32_t count;
};

struct via_vfio_user_access {
    uint64_t offset;
    uint32_t region;
    uint32_t count; /* bytes that follow, in a write and in the reply to a read */
};

#endif
