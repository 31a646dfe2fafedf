/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A PCI function of this machine, by the kernel's VFIO (container and group). */
#ifndef VIA_VFIO_KERNEL_H
#define VIA_VFIO_KERNEL_H

#include <stdbool.h>

#include "base/error.h"
#include "vfio/pci.h"

struct via_kernel_options {
    const char *address; /* DOMAIN:BUS:DEVICE.FUNCTION, as 0000:03:00.0 */
    const char *sysfs;   /* NULL: /sys */
    const char *devfs;   /* NULL: /dev/vfio */
};

/* Is it such an address? */
bool via_kernel_is_address(const char *text);

/*
 * Opens a function that is bound to vfio-pci. Errors say what is missing: no such device, another
 * driver has it, no IOMMU (the peer would reach all memory), a group that is shared with devices
 * which other drivers have, no permission, a group that is in use.
 */
VIA_MUST_CHECK int via_kernel_open(const struct via_kernel_options *options,
                                   struct via_pci **ret_pci, struct via_error *err);

#endif
