/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Finds a function and its IOMMU group, checks both, and opens them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vfio/iommufd.h"
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

/* The last component of the target of a symbolic link in the device's folder; "" = no such link. */
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
    char group[64];
    read_link(kernel, "iommu_group", group, sizeof(group));
    if (group[0] == '\0') {
        return via_error_set(err, -EPERM,
                             "the device is in no IOMMU group: the machine has no IOMMU, or it is "
                             "off (intel_iommu=on or amd_iommu=on). Without one the peer reaches "
                             "all memory of this machine");
    }
    snprintf(kernel->group_path, sizeof(kernel->group_path), "%s/%s", kernel->devfs, group);
    return 0;
}

/* Checks that the group exists, and that it has an IOMMU or need not have one. */
static int check_group(struct via_kernel *kernel, struct via_error *err)
{
    char path[PATH_BYTES];
    if (access(kernel->group_path, F_OK) == 0) {
        return 0;
    }
    const char *group = strrchr(kernel->group_path, '/') + 1;
    snprintf(path, sizeof(path), "%s/noiommu-%s", kernel->devfs, group);
    if (access(path, F_OK) != 0) {
        return via_error_set(err, -ENODEV, "%s: %s", kernel->group_path, strerror(ENOENT));
    }
    if (!kernel->without_iommu) {
        return via_error_set(
            err, -EPERM,
            "VFIO has the device without an IOMMU: the peer would reach all memory "
            "of this machine (the option noiommu allows that)");
    }
    snprintf(kernel->group_path, sizeof(kernel->group_path), "%.120s", path);
    kernel->way = VIA_KERNEL_PHYSICAL;
    return 0;
}

/* --- container and group --- */

static unsigned long iommu_type(const struct via_kernel *kernel)
{
    return kernel->way == VIA_KERNEL_PHYSICAL ? VFIO_NOIOMMU_IOMMU : VFIO_TYPE1v2_IOMMU;
}

static int open_container(struct via_kernel *kernel, struct via_error *err)
{
    char path[PATH_BYTES];
    if (kernel->lead != kernel) {
        return 0; /* the lead has the container */
    }
    snprintf(path, sizeof(path), "%s/vfio", kernel->devfs);
    kernel->container_fd = kernel->calls->open(path, O_RDWR | O_CLOEXEC);
    if (kernel->container_fd < 0) {
        return via_error_set(err, -errno, "%s: %s", path, strerror(errno));
    }
    if (kernel->calls->ioctl(kernel->container_fd, VFIO_GET_API_VERSION, NULL) !=
            VFIO_API_VERSION ||
        kernel->calls->ioctl(kernel->container_fd, VFIO_CHECK_EXTENSION,
                             (void *)(uintptr_t)iommu_type(kernel)) != 1) {
        return via_error_set(err, -ENOTSUP, "%s: the kernel's VFIO has no %s", path,
                             kernel->way == VIA_KERNEL_PHYSICAL ? "mode without an IOMMU"
                                                                : "type 1 (version 2) IOMMU");
    }
    return 0;
}

/* Adds the group to the container. A group can be opened only once, so a second function of the
 * group uses the lead's descriptor. */
static int join_group(struct via_kernel *kernel, struct via_error *err)
{
    struct vfio_group_status status = {.argsz = sizeof(status)};
    const struct via_kernel_calls *calls = kernel->calls;
    kernel->group_fd = calls->open(kernel->group_path, O_RDWR | O_CLOEXEC);
    if (kernel->group_fd < 0) {
        return via_error_set(
            err, -errno, "%s: %s%s", kernel->group_path, strerror(errno),
            errno == EBUSY ? ": another process, or another link of this one, has the group" : "");
    }
    if (calls->ioctl(kernel->group_fd, VFIO_GROUP_GET_STATUS, &status) != 0) {
        return via_error_set(err, -errno, "%s: status: %s", kernel->group_path, strerror(errno));
    }
    if ((status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0) {
        return via_error_set(err, -EBUSY,
                             "%s: other devices of the IOMMU group have drivers of their own",
                             kernel->group_path);
    }
    if (calls->ioctl(kernel->group_fd, VFIO_GROUP_SET_CONTAINER, &kernel->lead->container_fd) !=
        0) {
        return via_error_set(err, -errno, "%s: join a container: %s", kernel->group_path,
                             strerror(errno));
    }
    if (kernel->lead == kernel && calls->ioctl(kernel->container_fd, VFIO_SET_IOMMU,
                                               (void *)(uintptr_t)iommu_type(kernel)) != 0) {
        return via_error_set(err, -errno, "%s: set the IOMMU: %s%s", kernel->group_path,
                             strerror(errno), errno == EPERM ? " (no interrupt remapping?)" : "");
    }
    return 0;
}

static int take_device(struct via_kernel *kernel, int group_fd, struct via_error *err)
{
    kernel->device_fd = kernel->calls->ioctl(group_fd, VFIO_GROUP_GET_DEVICE_FD, kernel->address);
    return kernel->device_fd >= 0
               ? 0
               : via_error_set(err, -errno, "%s: device: %s", kernel->group_path, strerror(errno));
}

static int open_group(struct via_kernel *kernel, struct via_error *err)
{
    int rc = check_group(kernel, err);
    if (rc == 0 && kernel->lead != kernel &&
        strcmp(kernel->group_path, kernel->lead->group_path) == 0) {
        return take_device(kernel, kernel->lead->group_fd, err);
    }
    rc = rc == 0 ? open_container(kernel, err) : rc;
    rc = rc == 0 ? join_group(kernel, err) : rc;
    return rc == 0 ? take_device(kernel, kernel->group_fd, err) : rc;
}

/* --- iommufd --- */

/* Finds the function's device file, DEVFS/devices/vfioN, by its folder in sysfs. */
static bool find_device_file(const struct via_kernel *kernel, char *ret_path, size_t bytes)
{
    char path[PATH_BYTES];
    bool found = false;
    snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/vfio-dev", kernel->sysfs, kernel->address);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && !found && (entry = readdir(folder)) != NULL;) {
        if (strncmp(entry->d_name, "vfio", 4) == 0) {
            snprintf(ret_path, bytes, "%s/devices/%.63s", kernel->devfs, entry->d_name);
            found = access(ret_path, F_OK) == 0;
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return found;
}

/* Opens both files, or neither. */
static int open_iommufd_files(struct via_kernel *kernel, const char *device, struct via_error *err)
{
    int rc = 0;
    if (kernel->lead == kernel) {
        kernel->iommufd = kernel->calls->open(kernel->iommufd_path, O_RDWR | O_CLOEXEC);
        if (kernel->iommufd < 0) {
            return via_error_set(err, -errno, "%s: %s", kernel->iommufd_path, strerror(errno));
        }
    }
    kernel->device_fd = kernel->calls->open(device, O_RDWR | O_CLOEXEC);
    if (kernel->device_fd < 0) {
        rc = via_error_set(err, -errno, "%s: %s", device, strerror(errno));
        if (kernel->iommufd >= 0) {
            close(kernel->iommufd);
            kernel->iommufd = -1;
        }
    }
    return rc;
}

static int allocate_space(struct via_kernel *kernel, struct via_error *err)
{
    struct via_iommu_ioas_alloc space = {.size = sizeof(space)};
    if (kernel->lead == kernel) {
        if (kernel->calls->ioctl(kernel->iommufd, VIA_IOMMU_IOAS_ALLOC, &space) != 0) {
            return via_error_set(err, -errno, "%s: IO address space: %s", kernel->iommufd_path,
                                 strerror(errno));
        }
        kernel->ioas = space.out_ioas_id;
    }
    return 0;
}

static int attach_iommufd(struct via_kernel *kernel, const char *device, struct via_error *err)
{
    struct via_vfio_bind_iommufd bind = {.argsz = sizeof(bind), .iommufd = kernel->lead->iommufd};
    if (kernel->calls->ioctl(kernel->device_fd, VIA_VFIO_DEVICE_BIND_IOMMUFD, &bind) != 0) {
        /* The kernel returns EINVAL if another process has bound the device file. */
        int cause = errno == EINVAL ? -EBUSY : -errno;
        return via_error_set(err, cause, "%s: bind to %s: %s%s", device, kernel->iommufd_path,
                             strerror(-cause),
                             cause == -EBUSY ? ": another process has the device, or other devices "
                                               "of its IOMMU group have drivers of their own"
                             : cause == -EPERM ? " (no interrupt remapping?)"
                                               : "");
    }
    int rc = allocate_space(kernel, err);
    if (rc != 0) {
        return rc;
    }
    struct via_vfio_attach_iommufd_pt attach = {.argsz = sizeof(attach),
                                                .pt_id = kernel->lead->ioas};
    if (kernel->calls->ioctl(kernel->device_fd, VIA_VFIO_DEVICE_ATTACH_IOMMUFD_PT, &attach) != 0) {
        return via_error_set(err, -errno, "%s: attach to the IO address space: %s", device,
                             strerror(errno));
    }
    kernel->way = VIA_KERNEL_IOMMUFD;
    return 0;
}

/* Uses iommufd if its files can be opened, else container and group. A later failure with iommufd
 * is an error, without a second attempt by container. */
static int open_device(struct via_kernel *kernel, struct via_error *err)
{
    char device[PATH_BYTES];
    bool is_beside = kernel->lead != kernel;
    bool by_group = is_beside ? kernel->way != VIA_KERNEL_IOMMUFD
                              : kernel->by_container && access(kernel->group_path, F_OK) == 0;
    if (by_group || access(kernel->iommufd_path, F_OK) != 0 ||
        !find_device_file(kernel, device, sizeof(device))) {
        return is_beside && !by_group
                   ? via_error_set(err, -ENODEV, "the function has no device file in %s/devices",
                                   kernel->devfs)
                   : open_group(kernel, err);
    }
    int rc = open_iommufd_files(kernel, device, err);
    if (rc == 0) {
        return attach_iommufd(kernel, device, err);
    }
    return access(kernel->group_path, F_OK) == 0 && !is_beside ? open_group(kernel, err) : rc;
}

static int inspect(struct via_kernel *kernel, struct via_error *err)
{
    for (unsigned i = 0; i <= VFIO_PCI_CONFIG_REGION_INDEX; i++) {
        struct vfio_region_info info = {.argsz = sizeof(info), .index = i};
        if (kernel->calls->ioctl(kernel->device_fd, VFIO_DEVICE_GET_REGION_INFO, &info) != 0) {
            info.size = 0; /* old kernels have no VGA region; a BAR may be absent */
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
        kernel->irqs[i] =
            kernel->calls->ioctl(kernel->device_fd, VFIO_DEVICE_GET_IRQ_INFO, &info) == 0 &&
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
        rc = open_device(kernel, err);
    }
    if (rc == 0) {
        rc = inspect(kernel, err);
    }
    if (rc == 0) {
        rc = via_kernel_avoid_windows(kernel, err);
    }
    if (rc != 0) {
        via_error_prefix(err, "VFIO: ");
        if (kernel != NULL) {
            kernel->pci.ops->close(&kernel->pci);
        }
        return rc;
    }
    static const char *const ways[] = {[VIA_KERNEL_CONTAINER] = "VFIO",
                                       [VIA_KERNEL_IOMMUFD] = "VFIO (iommufd)",
                                       [VIA_KERNEL_PHYSICAL] = "VFIO without an IOMMU"};
    snprintf(kernel->describe, sizeof(kernel->describe), "%s by %s", kernel->address,
             ways[kernel->way]);
    *ret_pci = &kernel->pci;
    return 0;
}
