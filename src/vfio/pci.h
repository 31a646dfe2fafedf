/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The interface of a user-space driver to one PCI function. Backends: the kernel's VFIO, sysfs, a
 * vfio-user socket, and a register model in the same process.
 *
 * Any thread may access registers (config, region read and write); accesses of one thread reach the
 * function in the order of the calls. Only the control thread calls the other functions. A read
 * takes a round trip; with a socket as backend, so does a write.
 *
 * A lost function (surprise removal, a dead server) behaves as on PCIe: reads return all-ones with
 * result 0, writes vanish. gone() reports the loss, and revive() tries to reconnect to the server.
 */
#ifndef VIA_VFIO_PCI_H
#define VIA_VFIO_PCI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/types.h"

#define VIA_PCI_REGIONS 7u /* BAR 0 to 5, expansion ROM: as VFIO numbers them */
#define VIA_PCI_CONFIG_BYTES 4096u

/* Registers of a header of type 0 (PCI Local Bus specification 3.0, 6.1). */
#define VIA_PCI_VENDOR_ID 0x00u
#define VIA_PCI_DEVICE_ID 0x02u
#define VIA_PCI_COMMAND 0x04u
#define VIA_PCI_COMMAND_MEMORY 0x0002u
#define VIA_PCI_COMMAND_MASTER 0x0004u
#define VIA_PCI_COMMAND_INTX_OFF 0x0400u
#define VIA_PCI_REVISION 0x08u
#define VIA_PCI_BAR(bar) (0x10u + 4u * (bar))

enum via_pci_caching {
    VIA_PCI_UNCACHED,  /* each store is one TLP, in order */
    VIA_PCI_COMBINING, /* stores wait in buffers of the CPU, which drain in any order until a store
                          fence */
    VIA_PCI_MEMORY,    /* memory of this machine imitates the BAR: x86 store order */
};

enum via_pci_irq_kind { VIA_PCI_INTX, VIA_PCI_MSI, VIA_PCI_MSIX, VIA_PCI_IRQ_KINDS };

struct via_pci_region {
    uint64_t bytes; /* 0: no region */
    bool mappable;
    bool prefetchable; /* may be write-combined */
};

struct via_pci_mapping {
    unsigned char *at;
    uint64_t bytes;
    enum via_pci_caching caching; /* as obtained, not as requested */
};

/* Memory for DMA of the function. */
struct via_pci_memory {
    void *at; /* in the calling process, page-aligned */
    uint64_t bytes;
    int fd; /* `at` is a shared mapping of fd at fd_off; -1: no descriptor. Borrowed, like `at` */
    uint64_t fd_off;
    bool writable; /* the function may write to it */
};

struct via_pci;

struct via_pci_ops {
    /* len is 1, 2 or 4, off a multiple of it and below VIA_PCI_CONFIG_BYTES; else -EINVAL. A write
     * of VIA_PCI_COMMAND that enables memory decoding also restores the BAR addresses if a reset
     * has cleared them, as vfio-pci does. */
    int (*config_read)(struct via_pci *pci, unsigned off, unsigned len, uint32_t *ret_value);
    int (*config_write)(struct via_pci *pci, unsigned off, unsigned len, uint32_t value);

    /* -EINVAL: invalid number. An absent region has 0 bytes. */
    int (*region)(struct via_pci *pci, unsigned region, struct via_pci_region *ret_region);

    /*
     * Reads or writes len bytes. 1, 2, 4 or 8 bytes at a multiple of their size are one access of
     * that width (8 may become two of 4, the lower first); other lengths are a sequence of such
     * accesses, ascending. 0; -EINVAL (out of bounds); -ENXIO (memory decoding is off); -EBUSY (the
     * region is mapped by a file of sysfs, and this access would revoke the mapping). The caller's
     * earlier stores to memory are visible to the function before a write: a doorbell may follow
     * its descriptor.
     */
    int (*region_read)(struct via_pci *pci, unsigned region, uint64_t off, void *ret_data,
                       size_t len);
    int (*region_write)(struct via_pci *pci, unsigned region, uint64_t off, const void *data,
                        size_t len);

    /* A store fence of the calling thread, for backends whose region_write() may be write-combined:
     * earlier writes of the thread leave before later ones. NULL: writes are always in order. */
    void (*fence)(struct via_pci *pci);

    /*
     * Maps whole pages of a region from off on: write-combined if requested and possible, else
     * uncached; `caching` reports the result. While a region is mapped, further mappings may have
     * the same kind in any case. Owned by the caller until unmap(). Loads return all-ones if
     * nothing answers. If the function is removed, the kernel may revoke the pages; the backend's
     * guard (vfio/guard.h) handles the SIGBUS. -ENOTSUP (the region is accessible only by
     * region_read and region_write), -EINVAL, -ENOMEM, ...
     */
    int (*map)(struct via_pci *pci, unsigned region, uint64_t off, uint64_t bytes, bool combining,
               struct via_pci_mapping *ret_mapping);
    void (*unmap)(struct via_pci *pci, struct via_pci_mapping *mapping);

    /* For callers that map the region over existing addresses: mmap() of the descriptor (borrowed
     * until close) at the offset maps the region uncached. The caller owns and guards such
     * mappings. -ENOTSUP. NULL: not supported. */
    int (*region_fd)(struct via_pci *pci, unsigned region, int *ret_fd, uint64_t *ret_off);

    /* Returns a descriptor, which the caller owns, and an offset, by which another process maps
     * whole pages of a region with their present translation. That process may be able to map more
     * of the function with it. -ENOTSUP, -EINVAL, -EMFILE, ... NULL: not supported.
     */
    int (*window_fd)(struct via_pci *pci, unsigned region, uint64_t off, uint64_t bytes,
                     int *ret_fd, uint64_t *ret_off);

    /* Number of vectors of a kind; 0: not supported. INTx has one. */
    unsigned (*irqs)(struct via_pci *pci, enum via_pci_irq_kind kind);
    /* Vector k adds 1 to the eventfd fds[k] (borrowed until another irq_set or close). count 0
     * switches the kind off. Only one kind is active: setting one disables the others. INTx is
     * masked when it fires, until irq_unmask(). -EINVAL (too many), -ENOTSUP. */
    int (*irq_set)(struct via_pci *pci, enum via_pci_irq_kind kind, unsigned count, const int *fds);
    int (*irq_unmask)(struct via_pci *pci); /* INTx: fires again if still asserted */

    /*
     * Maps memory for DMA of the function, at an IO virtual address that the backend chooses, a
     * multiple of `alignment` (a power of two, at least a page); alignment 0: at *ret_iova. The
     * memory is borrowed until dma_unmap(). It may be a mapping of a BAR, for peer-to-peer DMA, if
     * the backend supports it (VFIO with a container). -ENOSPC (no free range in the address
     * space), -ENOMEM, -EINVAL, -ENOTSUP.
     */
    int (*dma_map)(struct via_pci *pci, const struct via_pci_memory *memory, uint64_t alignment,
                   uint64_t *ret_iova);
    /* When it returns, the function can not access the memory any more. -ENOENT: no mapping starts
     * there. */
    int (*dma_unmap)(struct via_pci *pci, uint64_t iova);

    /* Function-level reset: registers get their reset values; mappings and interrupts stay
     * configured. -ENOTSUP. Takes up to a second. */
    int (*reset)(struct via_pci *pci);

    bool (*gone)(struct via_pci *pci);

    /* Reconnects a lost function to a restarted server: DMA mappings and interrupts are configured
     * again; registers have their reset values. 0; -ENODEV (the server has another function);
     * another error: not yet. Takes 200 ms if the server does not answer. NULL: not supported. */
    int (*revive)(struct via_pci *pci);

    /* Name of the function for operators: "0000:03:00.0 by VFIO". */
    const char *(*describe)(struct via_pci *pci);

    /* Ends interrupts, bus mastering and DMA mappings, then releases everything. The caller has
     * unmapped all regions. */
    void (*close)(struct via_pci *pci);
};

struct via_pci {
    const struct via_pci_ops *ops;
    uint16_t requester; /* requester id: bus, device, function; 0: not known */
};

static inline uint32_t via_pci_read32(struct via_pci *pci, unsigned region, uint64_t off)
{
    uint32_t value = UINT32_MAX;
    return pci->ops->region_read(pci, region, off, &value, sizeof(value)) == 0 ? value : UINT32_MAX;
}

/* Ignores errors: a failed write vanishes, as on the bus. */
static inline void via_pci_write32(struct via_pci *pci, unsigned region, uint64_t off,
                                   uint32_t value)
{
    (void)pci->ops->region_write(pci, region, off, &value, sizeof(value));
}

#endif
