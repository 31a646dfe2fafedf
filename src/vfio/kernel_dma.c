/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Maps memory for DMA: through the IOMMU of a container or of iommufd, or by physical addresses. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vfio/iommufd.h"
#include "vfio/kernel_private.h"

/* An entry of /proc/PID/pagemap (Linux, admin-guide/mm/pagemap.rst). */
#define PAGEMAP_PRESENT (UINT64_C(1) << 63)
#define PAGEMAP_FRAME ((UINT64_C(1) << 55) - 1)

static int translate(struct via_kernel *kernel, const struct via_pci_memory *memory, uint64_t iova)
{
    if (kernel->way == VIA_KERNEL_IOMMUFD) {
        struct via_iommu_ioas_map map = {
            .size = sizeof(map),
            .flags = VIA_IOMMU_IOAS_MAP_FIXED_IOVA | VIA_IOMMU_IOAS_MAP_READABLE |
                     (memory->writable ? VIA_IOMMU_IOAS_MAP_WRITEABLE : 0u),
            .ioas_id = kernel->lead->ioas,
            .user_va = (uintptr_t)memory->at,
            .length = memory->bytes,
            .iova = iova};
        return kernel->calls->ioctl(kernel->lead->iommufd, VIA_IOMMU_IOAS_MAP, &map) == 0 ? 0
                                                                                          : -errno;
    }
    struct vfio_iommu_type1_dma_map map = {
        .argsz = sizeof(map),
        .flags = VFIO_DMA_MAP_FLAG_READ | (memory->writable ? VFIO_DMA_MAP_FLAG_WRITE : 0u),
        .vaddr = (uintptr_t)memory->at,
        .iova = iova,
        .size = memory->bytes};
    return kernel->calls->ioctl(kernel->lead->container_fd, VFIO_IOMMU_MAP_DMA, &map) == 0 ? 0
                                                                                           : -errno;
}

/* Finds the physical address of locked memory, which must be physically contiguous. */
static int find_frames(const struct via_kernel *kernel, const struct via_pci_memory *memory,
                       uint64_t *ret_at)
{
    uint64_t pages = memory->bytes / VIA_KERNEL_PAGE_BYTES, first = 0;
    off_t entry = (off_t)((uintptr_t)memory->at / VIA_KERNEL_PAGE_BYTES * sizeof(uint64_t));
    if (mlock(memory->at, memory->bytes) != 0) {
        return -errno;
    }
    int fd = open(kernel->pagemap, O_RDONLY | O_CLOEXEC);
    int rc = fd >= 0 ? 0 : -errno;
    for (uint64_t i = 0; i < pages && rc == 0; i++, entry += (off_t)sizeof(uint64_t)) {
        uint64_t value = 0;
        if (pread(fd, &value, sizeof(value), entry) != (ssize_t)sizeof(value) ||
            (value & PAGEMAP_PRESENT) == 0) {
            rc = -EIO;
        } else if ((value & PAGEMAP_FRAME) == 0) {
            rc = -EPERM; /* the kernel hides frame numbers from processes without CAP_SYS_ADMIN */
        } else if (i == 0) {
            first = value & PAGEMAP_FRAME;
        } else if ((value & PAGEMAP_FRAME) != first + i) {
            rc = -ENOTSUP;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    *ret_at = first * VIA_KERNEL_PAGE_BYTES;
    return rc;
}

static int map_physical(struct via_kernel *kernel, const struct via_pci_memory *memory,
                        uint64_t alignment, uint64_t *ret_iova)
{
    uint64_t at = 0;
    int rc = find_frames(kernel, memory, &at);
    if (rc == 0 && at % alignment != 0) {
        rc = -ENOSPC;
    }
    rc = rc == 0 ? via_iova_take_at(&kernel->lead->iova, at, memory->bytes) : rc;
    if (rc == 0) {
        *ret_iova = at;
    }
    return rc;
}

int via_kernel_dma_map(struct via_pci *pci, const struct via_pci_memory *memory, uint64_t alignment,
                       uint64_t *ret_iova)
{
    struct via_kernel *kernel = via_kernel_of(pci);
    uint64_t iova = *ret_iova;
    if (kernel->way == VIA_KERNEL_PHYSICAL) {
        return alignment == 0
                   ? -ENOTSUP
                   : map_physical(kernel, memory,
                                  via_max(alignment, (uint64_t)VIA_KERNEL_PAGE_BYTES), ret_iova);
    }
    int rc = alignment == 0
                 ? via_iova_take_at(&kernel->lead->iova, iova, memory->bytes)
                 : via_iova_take(&kernel->lead->iova, memory->bytes,
                                 via_max(alignment, (uint64_t)VIA_KERNEL_PAGE_BYTES), &iova);
    if (rc != 0) {
        return rc;
    }
    rc = translate(kernel, memory, iova);
    if (rc != 0) {
        (void)!via_iova_give_back(&kernel->lead->iova, iova);
        return rc;
    }
    *ret_iova = iova;
    return 0;
}

static int forget(struct via_kernel *kernel, uint64_t iova, uint64_t bytes)
{
    if (kernel->way == VIA_KERNEL_PHYSICAL) {
        return 0; /* without an IOMMU there is no mapping to remove */
    }
    if (kernel->way == VIA_KERNEL_IOMMUFD) {
        struct via_iommu_ioas_unmap unmap = {
            .size = sizeof(unmap), .ioas_id = kernel->lead->ioas, .iova = iova, .length = bytes};
        return kernel->calls->ioctl(kernel->lead->iommufd, VIA_IOMMU_IOAS_UNMAP, &unmap) == 0
                   ? 0
                   : -errno;
    }
    struct vfio_iommu_type1_dma_unmap unmap = {.argsz = sizeof(unmap), .iova = iova, .size = bytes};
    return kernel->calls->ioctl(kernel->lead->container_fd, VFIO_IOMMU_UNMAP_DMA, &unmap) == 0
               ? 0
               : -errno;
}

int via_kernel_dma_unmap(struct via_pci *pci, uint64_t iova)
{
    struct via_kernel *kernel = via_kernel_of(pci);
    uint64_t bytes = 0;
    for (unsigned i = 0; i < kernel->lead->iova.count; i++) {
        if (kernel->lead->iova.range[i].at == iova) {
            bytes = kernel->lead->iova.range[i].bytes;
        }
    }
    int rc = via_iova_give_back(&kernel->lead->iova, iova);
    return rc == 0 ? forget(kernel, iova, bytes) : rc;
}
