/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * One PCI function, as a driver in user space sees it: the kernel's VFIO, a vfio-user socket, or a
 * register model in the same process.
 *
 * Register accesses (config, region read and write) may be made by any thread; those of one thread
 * reach the function in the order of the calls. Everything else belongs to the control thread. An
 * access takes a round trip where it reads, and where the backend is a socket also where it writes.
 *
 * A function that is gone (surprise removal, a server that died) answers as PCIe does: reads bring
 * all-ones with result 0, writes vanish. gone() tells for certain, and revive() looks whether the
 * server is back.
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
    VIA_PCI_UNCACHED,  /* each store is a TLP of its own, in order */
    VIA_PCI_COMBINING, /* stores wait in buffers of the CPU, which drain in any order until a store
                          fence */
    VIA_PCI_MEMORY,    /* memory of this machine stands for it: x86's order of stores */
};

enum via_pci_irq_kind { VIA_PCI_INTX, VIA_PCI_MSI, VIA_PCI_MSIX, VIA_PCI_IRQ_KINDS };

struct via_pci_region {
    uint64_t bytes; /* 0: there is none */
    bool mappable;
    bool prefetchable; /* it may be write-combined */
};

struct via_pci_mapping {
    unsigned char *at;
    uint64_t bytes;
    enum via_pci_caching caching; /* that was obtained */
};

/* Memory that the function may reach. */
struct via_pci_memory {
    void *at; /* of the calling process, page-aligned */
    uint64_t bytes;
    int fd; /* what `at` is a shared mapping of, from fd_off on; -1: nothing. Borrowed as `at` is */
    uint64_t fd_off;
    bool writable; /* by the function */
};

struct via_pci;

struct via_pci_ops {
    /* len is 1, 2 or 4, off a multiple of it and below VIA_PCI_CONFIG_BYTES; else -EINVAL. Writing
     * VIA_PCI_COMMAND with memory enabled gives the BARs back the addresses of the machine, should
     * a reset have cleared them (as vfio-pci does). */
    int (*config_read)(struct via_pci *pci, unsigned off, unsigned len, uint32_t *ret_value);
    int (*config_write)(struct via_pci *pci, unsigned off, unsigned len, uint32_t value);

    /* -EINVAL: no such region. One that is not there has 0 bytes. */
    int (*region)(struct via_pci *pci, unsigned region, struct via_pci_region *ret_region);

    /*
     * Reads or writes len bytes. 1, 2, 4 and 8 bytes at a multiple of that are one access, which
     * the function sees whole (8 may become two of 4, the lower first); anything else is a sequence
     * of such, ascending. 0; -EINVAL (out of the region); -ENXIO (memory decoding is off); -EBUSY
     * (the region is mapped by a file of the kernel that allows no access beside it). The
     * caller's earlier stores to memory are visible to the function before a write is: a doorbell
     * may follow the descriptor it is for.
     */
    int (*region_read)(struct via_pci *pci, unsigned region, uint64_t off, void *ret_data,
                       size_t len);
    int (*region_write)(struct via_pci *pci, unsigned region, uint64_t off, const void *data,
                        size_t len);

    /* A store fence of the calling thread, where region_write() stores through buffers that combine
     * writes, as a mapping may: what it wrote before leaves ahead of what it writes next. NULL:
     * writes stay in order. */
    void (*fence)(struct via_pci *pci);

    /*
     * Maps bytes of a region from off on (whole pages), write-combined if that is wanted and can be
     * had, else uncached; caching says which. While a region is mapped, further mappings may be of
     * the same kind, whatever is wanted. Owned by the caller until unmap(). Loads bring
     * all-ones where nothing answers. A mapping of a function that is removed may raise SIGBUS
     * where the kernel takes the pages away: see via_pci_guard() of the backends that can. -ENOTSUP
     * (only by region_read and _write), -EINVAL, -ENOMEM, ...
     */
    int (*map)(struct via_pci *pci, unsigned region, uint64_t off, uint64_t bytes, bool combining,
               struct via_pci_mapping *ret_mapping);
    void (*unmap)(struct via_pci *pci, struct via_pci_mapping *mapping);

    /* For callers that exchange what their addresses show: mmap() of the descriptor (borrowed until
     * close), from the offset on, maps the region uncached. Such mappings are the caller's, and the
     * guard too. -ENOTSUP. NULL: as if each answer was that. */
    int (*region_fd)(struct via_pci *pci, unsigned region, int *ret_fd, uint64_t *ret_off);

    /* For a process that maps bytes of a region (whole pages), as they are translated now: a
     * descriptor, which is the caller's, and the offset in it. The process may be able to map more
     * of the function by it. -ENOTSUP, -EINVAL, -EMFILE, ... NULL: as if each answer was -ENOTSUP.
     */
    int (*window_fd)(struct via_pci *pci, unsigned region, uint64_t off, uint64_t bytes,
                     int *ret_fd, uint64_t *ret_off);

    /* How many vectors of a kind there are; 0: none. INTx has one. */
    unsigned (*irqs)(struct via_pci *pci, enum via_pci_irq_kind kind);
    /* Vector k adds 1 to the eventfd fds[k] (borrowed until another irq_set or close). count 0: all
     * of the kind are off. One kind at a time: setting one ends the others. INTx is masked when it
     * fires, until irq_unmask(). -EINVAL (more than there are), -ENOTSUP. */
    int (*irq_set)(struct via_pci *pci, enum via_pci_irq_kind kind, unsigned count, const int *fds);
    int (*irq_unmask)(struct via_pci *pci); /* INTx: fires again if it is still asserted */

    /*
     * Lets the function reach memory, at an IO virtual address that the backend picks: a multiple
     * of `alignment` (a power of two, at least a page); alignment 0: at *ret_iova. The memory is
     * borrowed until dma_unmap(). It may be a mapping of a BAR, which the function then reaches as
     * a peer, where the backend can (the kernel's VFIO by container). -ENOSPC (no such room in the
     * address space), -ENOMEM, -EINVAL, -ENOTSUP.
     */
    int (*dma_map)(struct via_pci *pci, const struct via_pci_memory *memory, uint64_t alignment,
                   uint64_t *ret_iova);
    /* When it returns the function reaches the memory no more. -ENOENT: no mapping starts there. */
    int (*dma_unmap)(struct via_pci *pci, uint64_t iova);

    /* Function-level reset: registers return to their reset values; mappings and interrupts stay
     * set. -ENOTSUP. Takes up to a second. */
    int (*reset)(struct via_pci *pci);

    bool (*gone)(struct via_pci *pci);

    /* A function that is gone, behind whose socket a server answers again: what is mapped for DMA
     * is mapped there, too, interrupts are set, and registers are as after a reset. 0; -ENODEV (the
     * server has another function); else why not yet. Takes 200 ms where the server does not
     * answer. NULL: there is nothing that the caller can do. */
    int (*revive)(struct via_pci *pci);

    /* Names the function for operators: "0000:03:00.0 by VFIO". */
    const char *(*describe)(struct via_pci *pci);

    /* Ends interrupts, mastering and DMA mappings, then releases everything. Mappings of regions
     * must have ended. */
    void (*close)(struct via_pci *pci);
};

struct via_pci {
    const struct via_pci_ops *ops;
    uint16_t requester; /* its bus, device and function; 0: not known */
};

static inline uint32_t via_pci_read32(struct via_pci *pci, unsigned region, uint64_t off)
{
    uint32_t value = UINT32_MAX;
    return pci->ops->region_read(pci, region, off, &value, sizeof(value)) == 0 ? value : UINT32_MAX;
}

/* Writes that fail vanish, as they do on the bus. */
static inline void via_pci_write32(struct via_pci *pci, unsigned region, uint64_t off,
                                   uint32_t value)
{
    (void)pci->ops->region_write(pci, region, off, &value, sizeof(value));
}

#endif
