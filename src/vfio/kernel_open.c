/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Finding a function and its group: what can be wrong before the kernel gives it to us. */
#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "vfio/kernel_private.h"

#define PATH_BYTES 256u

bool via_kernel_is_address(const char *text)
{
    static const char pattern[] = "hhhh:hh:hh.o";
    static const char hex[] = "0123456789abcdefABCDEF";
    size_t i = 0;
    for (; pattern[i] != '\0'; i++) {
        bool fits = pattern[i] == 'h'   ? text[i] != '\0' && strchr(hex, text[i]) != NULL
                    : pattern[i] == 'o' ? text[i] >= '0' && text[i] <= '7'
                                        : text[i] == pattern[i];
        if (!fits) {
            return false;
        }
    }
    return text[i] == '\0';
}

/* The last part of what a link in the device's folder points to; "" = there is no such link. */
static void read_link(const struct via_kernel *kernel, const char *name, char *ret_text,
                      size_t bytes)
{
    char path[PATH_BYTES], target[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/%s", kernel->sysfs, kernel->address, name);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    target[length > 0 ? length : 0] = '\0';
    const char *slash = strrchr(target, '/');
    snprintf(ret_text, bytes, "%.63s", slash != NULL ? slash + 1 : target);
}

static int check_driver(const struct via_kernel *kernel, struct via_error *err)
{
    char path[PATH_BYTES], driver[64];
    snprintf(path, sizeof(path), "%s/bus/pci/devices/%s", kernel->sysfs, kernel->address);
    if (access(path, F_OK) != 0) {
        return via_error_set(err, -ENODEV, "no such device in %s/bus/pci/devices", kernel->sysfs);
    }
    read_link(kernel, "driver", driver, sizeof(driver));
    if (driver[0] == '\0') {
        return via_error_set(err, -ENODEV,
                             "no driver has the device: bind it to vfio-pci (driver_override, then "
                             "drivers_probe)");
    }
    return strcmp(driver, "vfio-pci") == 0
               ? 0
               : via_error_set(err, -EBUSY,
                               "the driver %s has the device: unbind it, and bind vfio-pci",
                               driver);
}

static int find_group(struct via_kernel *kernel, struct via_error *err)
{
    char group[64], path[PATH_BYTES];
    read_link(kernel, "iommu_group", group, sizeof(group));
    if (group[0] == '\0') {
        return via_error_set(err, -EPERM,
                             "the device is in no IOMMU group: the machine has no IOMMU, or it is "
                             "off (intel_iommu=on or amd_iommu=on). Without one the peer reaches "
                             "all memory of this machine");
    }
    snprintf(kernel->group_path, sizeof(kernel->group_path), "%s/%s", kernel->devfs, group);
    if (access(kernel->group_path, F_OK) == 0) {
        return 0;
    }
    snprintf(path, sizeof(path), "%s/noiommu-%s", kernel->devfs, group);
    if (access(path, F_OK) != 0) {
        return via_error_set(err, -ENODEV, "%s: %s", kernel->group_path, strerror(ENOENT));
    }
    return via_error_set(err, -EPERM,
                         "VFIO has the device without an IOMMU: the peer would reach all memory of "
                         "this machine");
}

static int open_container(struct via_kernel *kernel, struct via_error *err)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/vfio", kernel->devfs);
    kernel->container_fd = open(path, O_RDWR | O_CLOEXEC);
    if (kernel->container_fd < 0) {
        return via_error_set(err, -errno, "%s: %s", path, strerror(errno));
    }
    if (ioctl(kernel->container_fd, VFIO_GET_API_VERSION) != VFIO_API_VERSION ||
        ioctl(kernel->container_fd, VFIO_CHECK_EXTENSION, VFIO_TYPE1v2_IOMMU) != 1) {
        return via_error_set(err, -ENOTSUP, "%s: the kernel's VFIO has no type 1 (version 2) IOMMU",
                             path);
    }
    return 0;
}

static int join_group(struct via_kernel *kernel, struct via_error *err)
{
    struct vfio_group_status status = {.argsz = sizeof(status)};
    kernel->group_fd = open(kernel->group_path, O_RDWR | O_CLOEXEC);
    if (kernel->group_fd < 0) {
        return via_error_set(err, -errno, "%s: %s%s", kernel->group_path, strerror(errno),
                             errno == EBUSY ? ": another process has the group" : "");
    }
    if (ioctl(kernel->group_fd, VFIO_GROUP_GET_STATUS, &status) != 0) {
        return via_error_set(err, -errno, "%s: status: %s", kernel->group_path, strerror(errno));
    }
    if ((status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0) {
        return via_error_set(err, -EBUSY,
                             "%s: other devices of the IOMMU group have drivers of their own",
                             kernel->group_path);
    }
    if (ioctl(kernel->group_fd, VFIO_GROUP_SET_CONTAINER, &kernel->container_fd) != 0) {
        return via_error_set(err, -errno, "%s: join a container: %s", kernel->group_path,
                             strerror(errno));
    }
    if (ioctl(kernel->container_fd, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) != 0) {
        return via_error_set(err, -errno, "%s: set the IOMMU: %s%s", kernel->group_path,
                             strerror(errno), errno == EPERM ? " (no interrupt remapping?)" : "");
    }
    kernel->device_fd = ioctl(kernel->group_fd, VFIO_GROUP_GET_DEVICE_FD, kernel->address);
    return kernel->device_fd >= 0
               ? 0
               : via_error_set(err, -errno, "%s: device: %s", kernel->group_path, strerror(errno));
}

static int inspect(struct via_kernel *kernel, struct via_error *err)
{
    for (unsigned i = 0; i <= VFIO_PCI_CONFIG_REGION_INDEX; i++) {
        struct vfio_region_info info = {.argsz = sizeof(info), .index = i};
        if (ioctl(kernel->device_fd, VFIO_DEVICE_GET_REGION_INFO, &info) != 0) {
            info.size = 0; /* an old kernel has no VGA region; a BAR may be absent */
        }
        kernel->region_off[i] = info.offset;
        kernel->region_bytes[i] = info.size;
        kernel->region_maps[i] = (info.flags & VFIO_REGION_INFO_FLAG_MMAP) != 0;
    }
    if (kernel->region_bytes[VFIO_PCI_CONFIG_REGION_INDEX] == 0) {
        return via_error_set(err, -ENODEV, "the device has no config space");
    }
    for (unsigned i = 0; i < VIA_PCI_IRQ_KINDS; i++) {
        struct vfio_irq_info info = {.argsz = sizeof(info), .index = i};
        kernel->irqs[i] = ioctl(kernel->device_fd, VFIO_DEVICE_GET_IRQ_INFO, &info) == 0 &&
                                  (info.flags & VFIO_IRQ_INFO_EVENTFD) != 0
                              ? info.count
                              : 0;
    }
    return 0;
}

int via_kernel_open(const struct via_kernel_options *options, struct via_pci **ret_pci,
                    struct via_error *err)
{
    if (!via_kernel_is_address(options->address)) {
        return via_error_set(err, -EINVAL, "%s: not DOMAIN:BUS:DEVICE.FUNCTION", options->address);
    }
    struct via_kernel *kernel = via_kernel_new(options);
    int rc = kernel != NULL ? check_driver(kernel, err)
                            : via_error_set(err, -ENOMEM, "%s", strerror(ENOMEM));
    if (rc == 0) {
        rc = find_group(kernel, err);
    }
    if (rc == 0) {
        rc = open_container(kernel, err);
    }
    if (rc == 0) {
        rc = join_group(kernel, err);
    }
    if (rc == 0) {
        rc = inspect(kernel, err);
    }
    if (rc != 0) {
        via_error_prefix(err, "VFIO: ");
        if (kernel != NULL) {
            kernel->pci.ops->close(&kernel->pci);
        }
        return rc;
    }
    *ret_pci = &kernel->pci;
    return 0;
}
