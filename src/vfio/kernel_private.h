/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Inside of the kernel's VFIO: kernel_open.c opens, kernel.c has the operations. */
#ifndef VIA_VFIO_KERNEL_PRIVATE_H
#define VIA_VFIO_KERNEL_PRIVATE_H

#include <linux/vfio.h>
#include <pthread.h>
#include <stdint.h>

#include "vfio/iova.h"
#include "vfio/kernel.h"

#define VIA_KERNEL_MAPPINGS_MAX 16u

struct via_kernel_mapping {
    unsigned char *at; /* NULL: free */
    unsigned guard;
};

struct via_kernel {
    struct via_pci pci;
    char address[16];
    char sysfs[64];
    char devfs[64];
    char group_path[128];
    char describe[64];
    int container_fd, group_fd, device_fd;
    uint64_t region_off[VFIO_PCI_NUM_REGIONS];
    uint64_t region_bytes[VFIO_PCI_NUM_REGIONS];
    bool region_maps[VFIO_PCI_NUM_REGIONS];
    unsigned irqs[VIA_PCI_IRQ_KINDS];
    /* The control thread's. */
    struct via_iova iova;
    struct via_kernel_mapping mappings[VIA_KERNEL_MAPPINGS_MAX];
};

struct via_kernel *via_kernel_new(const struct via_kernel_options *options);

#endif
