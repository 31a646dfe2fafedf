/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Internals of the VFIO backend: kernel_open.c opens a function, kernel.c implements the
 * operations, kernel_dma.c maps memory. */
#ifndef VIA_VFIO_KERNEL_PRIVATE_H
#define VIA_VFIO_KERNEL_PRIVATE_H

#include <linux/vfio.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "vfio/iova.h"
#include "vfio/kernel.h"

#define VIA_KERNEL_MAPPINGS_MAX 16u
#define VIA_KERNEL_PAGE_BYTES 4096u

/* The file by which a BAR is mapped. */
enum via_kernel_file {
    VIA_KERNEL_DEVICE,          /* VFIO's: uncached */
    VIA_KERNEL_SYSFS,           /* resourceN: uncached */
    VIA_KERNEL_SYSFS_COMBINING, /* resourceN_wc, if the BAR is prefetchable */
};

struct via_kernel_mapping {
    unsigned char *at; /* NULL: free */
    unsigned guard;
    unsigned region;
    enum via_kernel_file file;
};

/* The translation of the function's addresses. */
enum via_kernel_way {
    VIA_KERNEL_CONTAINER, /* the IOMMU of a container, which the group has joined */
    VIA_KERNEL_IOMMUFD,   /* an IO address space of iommufd */
    VIA_KERNEL_PHYSICAL,  /* none: physical addresses */
};

struct via_kernel {
    struct via_pci pci;
    /* The owner of the container or iommufd and of the IO virtual addresses: this function, or the
     * one it was opened beside. */
    struct via_kernel *lead;
    bool by_container;
    const struct via_kernel_calls *calls;
    char address[16];
    char sysfs[64];
    char devfs[64];
    char iommufd_path[64];
    char pagemap[64];
    char group_path[128];
    char describe[64];
    bool without_iommu; /* may be opened without one */
    enum via_kernel_way way;
    uint32_t ioas; /* of iommufd */
    int container_fd, iommufd, group_fd, device_fd;
    uint64_t region_off[VFIO_PCI_NUM_REGIONS];
    uint64_t region_bytes[VFIO_PCI_NUM_REGIONS];
    bool region_maps[VFIO_PCI_NUM_REGIONS];
    unsigned irqs[VIA_PCI_IRQ_KINDS];
    _Atomic uint32_t sysfs_regions; /* regions that are mapped by sysfs: bit k for region k */
    /* Belongs to the control thread. */
    struct via_iova iova;
    struct via_kernel_mapping mappings[VIA_KERNEL_MAPPINGS_MAX];
};

static inline struct via_kernel *via_kernel_of(struct via_pci *pci)
{
    return via_container_of(pci, struct via_kernel, pci);
}

struct via_kernel *via_kernel_new(const struct via_kernel_options *options);

/* --- kernel_bridges.c --- */

/* Excludes from new IO virtual addresses those that bridges above the function route elsewhere. 0,
 * or negative errno and the reason in err. */
int via_kernel_avoid_windows(struct via_kernel *kernel, struct via_error *err);

/* --- kernel_dma.c: operations of the same names --- */

int via_kernel_dma_map(struct via_pci *pci, const struct via_pci_memory *memory, uint64_t alignment,
                       uint64_t *ret_iova);
int via_kernel_dma_unmap(struct via_pci *pci, uint64_t iova);

#endif
