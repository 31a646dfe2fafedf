/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * IO virtual addresses that do not reach the IOMMU. If the address of a memory request from below a
 * bridge lies in one of the bridge's windows, the bridge routes the request back to its secondary
 * side (PCI Express Base, 6.0, Type 1 header, and the routing of TLPs by address), to another
 * function of the same switch. For this reason the kernel's own DMA addresses exclude such windows
 * (iova_reserve_pci_windows(), drivers/iommu/dma-iommu.c). A user of VFIO must exclude them too.
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

/* Parses a line of `resource`, one per BAR and window: first address, last address, flags. -EIO:
 * malformed. */
static int avoid_line(struct via_iova *iova, const char *line)
{
    uint64_t first, last, flags;
    if (sscanf(line, "%" SCNx64 " %" SCNx64 " %" SCNx64, &first, &last, &flags) != 3) {
        return -EIO;
    }
    return (flags & RESOURCE_MEMORY) != 0 && first <= last ? via_iova_avoid(iova, first, last) : 0;
}

static int avoid_lines(struct via_iova *iova, FILE *file)
{
    char line[128];
    int rc = 0;
    while (rc == 0 && fgets(line, sizeof(line), file) != NULL) {
        rc = avoid_line(iova, line);
    }
    return rc == 0 && ferror(file) != 0 ? -errno : rc;
}

/* Parent folders that are not bridges have no such file. */
static int avoid_windows_of(struct via_iova *iova, const char *bridge, struct via_error *err)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/resource", bridge);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return errno == ENOENT ? 0 : via_error_set(err, -errno, "%s: %s", path, strerror(errno));
    }
    int rc = avoid_lines(iova, file);
    fclose(file);
    if (rc == -ENOSPC) {
        return via_error_set(err, rc, "%s: the bridges have more than %u memory windows", path,
                             VIA_IOVA_AVOIDED_MAX);
    }
    return rc == 0 ? 0 : via_error_set(err, rc, "%s: %s", path, strerror(-rc));
}

int via_kernel_avoid_windows(struct via_kernel *kernel, struct via_error *err)
{
    char link[PATH_MAX], path[PATH_MAX];
    snprintf(link, sizeof(link), "%s/bus/pci/devices/%s", kernel->sysfs, kernel->address);
    if (realpath(link, path) == NULL) {
        return via_error_set(err, -errno, "%s: %s", link, strerror(errno));
    }
    /* The folder of a function is inside the folder of the bridge above it. */
    int rc = 0;
    for (char *slash = strrchr(path, '/'); slash != NULL && slash != path && rc == 0;
         slash = strrchr(path, '/')) {
        *slash = '\0';
        /* Functions that share an address space share its list of excluded ranges. */
        rc = avoid_windows_of(&kernel->lead->iova, path, err);
    }
    return rc;
}
