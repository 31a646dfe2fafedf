/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A PCI function of this machine through the kernel's VFIO: with iommufd and the function's device
 * file if the kernel has both, else with a container and group.
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
    /* Open the function even without an IOMMU; then it and its peer can reach all memory of the
     * machine. */
    bool without_iommu;
    /* Another function of this backend, with which this one shares its IO virtual address space:
     * memory mapped for one is reachable by both. The caller closes it after this one. NULL: an
     * address space of its own.
     */
    struct via_pci *beside;
    bool by_container;                    /* use a container, not iommufd, if there is one */
    const char *sysfs;                    /* NULL: /sys */
    const char *devfs;                    /* NULL: /dev/vfio */
    const char *iommufd;                  /* NULL: /dev/iommu */
    const char *pagemap;                  /* NULL: /proc/self/pagemap */
    const struct via_kernel_calls *calls; /* NULL: open() and ioctl() */
};

/* True if the text has the form of such an address. */
bool via_kernel_is_address(const char *text);

/*
 * Opens a function that is bound to vfio-pci. err tells the cause: no such device, bound to another
 * driver, no IOMMU (the peer would reach all memory), devices of the same group bound to other
 * drivers, no permission, device or group in use.
 */
VIA_MUST_CHECK int via_kernel_open(const struct via_kernel_options *options,
                                   struct via_pci **ret_pci, struct via_error *err);

#endif
