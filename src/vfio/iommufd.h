/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The part of the kernel's iommufd and VFIO device interface that kernel headers before 6.6 lack:
 * numbers and layouts of include/uapi/linux/iommufd.h and vfio.h. */
#ifndef VIA_VFIO_IOMMUFD_H
#define VIA_VFIO_IOMMUFD_H

#include <linux/ioctl.h>
#include <stdint.h>

#define VIA_VFIO_DEVICE_BIND_IOMMUFD _IO(';', 118)
#define VIA_VFIO_DEVICE_ATTACH_IOMMUFD_PT _IO(';', 119)
#define VIA_IOMMU_IOAS_ALLOC _IO(';', 0x81)
#define VIA_IOMMU_IOAS_MAP _IO(';', 0x85)
#define VIA_IOMMU_IOAS_UNMAP _IO(';', 0x86)

struct via_vfio_bind_iommufd {
    uint32_t argsz, flags;
    int32_t iommufd;
    uint32_t out_devid;
};

struct via_vfio_attach_iommufd_pt {
    uint32_t argsz, flags;
    uint32_t pt_id;
};

struct via_iommu_ioas_alloc {
    uint32_t size, flags;
    uint32_t out_ioas_id;
};

#define VIA_IOMMU_IOAS_MAP_FIXED_IOVA 1u
#define VIA_IOMMU_IOAS_MAP_WRITEABLE 2u
#define VIA_IOMMU_IOAS_MAP_READABLE 4u

struct via_iommu_ioas_map {
    uint32_t size, flags, ioas_id, reserved;
    uint64_t user_va, length, iova;
};

struct via_iommu_ioas_unmap {
    uint32_t size, ioas_id;
    uint64_t iova, length;
};

#endif
