/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A PCI function through sysfs files, for machines without an IOMMU: config space and mappings of
 * BARs, without interrupts and DMA. Bus mastering stays off, so that the function can not access
 * memory of this machine.
 */
#ifndef VIA_VFIO_SYSFS_H
#define VIA_VFIO_SYSFS_H

#include "base/error.h"
#include "vfio/pci.h"

struct via_sysfs_options {
    const char *address; /* DOMAIN:BUS:DEVICE.FUNCTION, as 0000:03:00.0 */
    const char *sysfs;   /* NULL: /sys */
    /* A kernel driver that may stay bound: config space is then read-only, and registers are shared
     * with that driver. NULL: the function must be unbound. */
    const char *beside;
};

/* Opens an unbound function, and enables memory decoding; one process at a time. Errors: no such
 * device, bound to a driver, in use by another process, no permission. */
VIA_MUST_CHECK int via_sysfs_open(const struct via_sysfs_options *options, struct via_pci **ret_pci,
                                  struct via_error *err);

#endif
