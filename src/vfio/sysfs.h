/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A PCI function by the files of sysfs, for machines without an IOMMU: config space and mappings of
 * BARs. No interrupts, no memory for the function. Bus mastering stays off, so that the function
 * reaches no memory of this machine.
 */
#ifndef VIA_VFIO_SYSFS_H
#define VIA_VFIO_SYSFS_H

#include "base/error.h"
#include "vfio/pci.h"

struct via_sysfs_options {
    const char *address; /* DOMAIN:BUS:DEVICE.FUNCTION, as 0000:03:00.0 */
    const char *sysfs;   /* NULL: /sys */
    /* A driver that may keep the function: config space is then for reading only, and its registers
     * are shared with the driver. NULL: none may. */
    const char *beside;
};

/* Opens a function that no driver has, and enables it; one process at a time. Errors: no such
 * device, a driver has it, another process has it, no permission. */
VIA_MUST_CHECK int via_sysfs_open(const struct via_sysfs_options *options, struct via_pci **ret_pci,
                                  struct via_error *err);

#endif
