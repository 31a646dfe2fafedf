/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A PCI function of this machine, by the kernel's VFIO: by iommufd and the function's own device
 * file where the kernel has both, else by container and group.
 */
#ifndef VIA_VFIO_KERNEL_H
#define VIA_VFIO_KERNEL_H

#include <stdbool.h>

#include "base/error.h"
#include "vfio/pci.h"

/* System calls on the files of VFIO, as open() and ioctl(). */
struct via_kernel_calls {
    int (*open)(const char *path, int flags);
    int (*ioctl)(int fd, unsigned long request, void *argument);
};

struct via_kernel_options {
    const char *address; /* DOMAIN:BUS:DEVICE.FUNCTION, as 0000:03:00.0 */
    /* Open the function also where no IOMMU translates its addresses: it and its peer reach all
     * memory of the machine. */
    bool without_iommu;
    /* Another function (of this backend) whose IO virtual addresses this one has, too: what is
     * mapped for one of them both reach. It is closed after this one. NULL: addresses of its own.
     */
    struct via_pci *beside;
    bool by_container;                    /* where there is one, and not by iommufd */
    const char *sysfs;                    /* NULL: /sys */
    const char *devfs;                    /* NULL: /dev/vfio */
    const char *iommufd;                  /* NULL: /dev/iommu */
    const char *pagemap;                  /* NULL: /proc/self/pagemap */
    const struct via_kernel_calls *calls; /* NULL: the system's */
};

/* Is it such an address? */
bool via_kernel_is_address(const char *text);

/*
 * Opens a function that is bound to vfio-pci. Errors say what is missing: no such device, another
 * driver has it, no IOMMU (the peer would reach all memory), a group that is shared with devices
 * which other drivers have, no permission, a device or group that is in use.
 */
VIA_MUST_CHECK int via_kernel_open(const struct via_kernel_options *options,
                                   struct via_pci **ret_pci, struct via_error *err);

#endif
