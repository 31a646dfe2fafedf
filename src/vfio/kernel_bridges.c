/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Addresses that do not reach the IOMMU. A bridge routes a memory request that comes from below,
 * and whose address lies in one of its windows, to its secondary side (PCI Express Base, 6.0, Type
 * 1 header, and the routing of TLPs by address), to another function of the same switch. The
 * kernel's own DMA addresses avoid such windows for this reason (iova_reserve_pci_windows(),
 * drivers/iommu/dma-iommu.c); the user of VFIO has to.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vfio/kernel_private.h"

/* include/linux/ioport.h: IORESOURCE_MEM */
#define RESOURCE_MEMORY 0x200u

/* Its resource file has a line for each BAR and window: first address, last address, flags. */
static int avoid_windows_of(struct via_iova *iova, const char *bridge)
{
    char path[PATH_MAX + 16], line[128];
    uint64_t first, last, flags;
    int rc = 0;
    snprintf(path, sizeof(path), "%s/resource", bridge);
    FILE *file = fopen(path, "re");
    while (file != NULL && rc == 0 && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "%" SCNx64 " %" SCNx64 " %" SCNx64, &first, &last, &flags) == 3 &&
            (flags & RESOURCE_MEMORY) != 0 && first <= last && first < VIA_IOVA_END &&
            last >= VIA_IOVA_FIRST) {
            rc = via_iova_avoid(iova, first, via_min(last, VIA_IOVA_END - 1) - first + 1);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return rc;
}

int via_kernel_avoid_windows(struct via_kernel *kernel, struct via_error *err)
{
    char link[PATH_MAX], path[PATH_MAX];
    snprintf(link, sizeof(link), "%s/bus/pci/devices/%s", kernel->sysfs, kernel->address);
    if (realpath(link, path) == NULL) {
        return via_error_set(err, -errno, "%s: %s", link, strerror(errno));
    }
    /* The folder of a function is in that of the bridge above it. */
    for (char *slash = strrchr(path, '/'); slash != NULL && slash != path;
         slash = strrchr(path, '/')) {
        *slash = '\0';
        int rc = avoid_windows_of(&kernel->iova, path);
        if (rc != 0) {
            return via_error_set(err, rc, "the bridges above it have more than %u memory windows",
                                 VIA_IOVA_AVOIDED_MAX);
        }
    }
    return 0;
}
