/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "vfio/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vfio/guard.h"
#include "vfio/kernel_private.h"

#define PAGE_BYTES VIA_KERNEL_PAGE_BYTES
#define IRQS_MAX 32u

/* --- regions and config space: the kernel makes one access per aligned piece --- */

static int transfer(struct via_kernel *kernel, unsigned region, uint64_t off, void *data,
                    size_t len, bool writes)
{
    if (region >= VFIO_PCI_NUM_REGIONS || len == 0 || off > kernel->region_bytes[region] ||
        len > kernel->region_bytes[region] - off) {
        return -EINVAL;
    }
    /* This would be VFIO's first use of the BAR, and revoke the sysfs mappings: see
     * find_mapped(). */
    if ((atomic_load_explicit(&kernel->sysfs_regions, memory_order_relaxed) >> region & 1) != 0) {
        return -EBUSY;
    }
    off_t at = (off_t)(kernel->region_off[region] + off);
    ssize_t done =
        writes ? pwrite(kernel->device_fd, data, len, at) : pread(kernel->device_fd, data, len, at);
    if (done == (ssize_t)len) {
        return 0;
    }
    int rc = done < 0 ? -errno : -EIO;
    if (rc == -EIO && !writes) {
        /* Memory decoding is off, or the device was removed. */
        memset(data, 0xff, len);
    }
    return rc == -EIO ? -ENXIO : rc;
}

static int kernel_config_read(struct via_pci *pci, unsigned off, unsigned len, uint32_t *ret_value)
{
    uint32_t value = 0;
    if ((len != 1 && len != 2 && len != 4) || off % len != 0 || off >= VIA_PCI_CONFIG_BYTES) {
        return -EINVAL;
    }
    int rc = transfer(via_kernel_of(pci), VFIO_PCI_CONFIG_REGION_INDEX, off, &value, len, false);
    *ret_value = rc == 0 ? value : UINT32_MAX >> (32 - 8 * len);
    return rc == -ENXIO ? 0 : rc;
}

static int kernel_config_write(struct via_pci *pci, unsigned off, unsigned len, uint32_t value)
{
    if ((len != 1 && len != 2 && len != 4) || off % len != 0 || off >= VIA_PCI_CONFIG_BYTES) {
        return -EINVAL;
    }
    int rc = transfer(via_kernel_of(pci), VFIO_PCI_CONFIG_REGION_INDEX, off, &value, len, true);
    return rc == -ENXIO ? 0 : rc;
}

static bool is_prefetchable(struct via_pci *pci, unsigned region)
{
    uint32_t bar = 0;
    return region < 6 && kernel_config_read(pci, VIA_PCI_BAR(region), 4, &bar) == 0 &&
           (bar & 0x9) == 0x8;
}

static int kernel_region(struct via_pci *pci, unsigned region, struct via_pci_region *ret_region)
{
    struct via_kernel *kernel = via_kernel_of(pci);
    if (region >= VIA_PCI_REGIONS) {
        return -EINVAL;
    }
    *ret_region = (struct via_pci_region){.bytes = kernel->region_bytes[region],
                                          .mappable = kernel->region_maps[region],
                                          .prefetchable = is_prefetchable(pci, region)};
    return 0;
}

static int kernel_region_read(struct via_pci *pci, unsigned region, uint64_t off, void *ret_data,
                              size_t len)
{
    return region < VIA_PCI_REGIONS
               ? transfer(via_kernel_of(pci), region, off, ret_data, len, false)
               : -EINVAL;
}

static int kernel_region_write(struct via_pci *pci, unsigned region, uint64_t off, const void *data,
                               size_t len)
{
    return region < VIA_PCI_REGIONS
               ? transfer(via_kernel_of(pci), region, off, (void *)(uintptr_t)data, len, true)
               : -EINVAL;
}

/* --- mappings --- */

/*
 * VFIO maps only uncached. If the kernel has CONFIG_IO_STRICT_DEVMEM, the first use of a BAR by
 * VFIO revokes all sysfs mappings (linux, kernel/resource.c, revoke_iomem(): the next access raises
 * SIGBUS), and sysfs refuses new ones until the function is closed. Also, a CPU must not map one
 * address both write-combined and uncached. So all mappings of a BAR, including those of other
 * processes, use the same file.
 */
static const struct via_kernel_mapping *find_mapped(const struct via_kernel *kernel,
                                                    unsigned region)
{
    for (unsigned i = 0; i < VIA_KERNEL_MAPPINGS_MAX; i++) {
        if (kernel->mappings[i].at != NULL && kernel->mappings[i].region == region) {
            return &kernel->mappings[i];
        }
    }
    return NULL;
}

/* The caller owns the descriptor. */
static int open_file(struct via_kernel *kernel, unsigned region, enum via_kernel_file file,
                     int *ret_fd, uint64_t *ret_off)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/resource%u%s", kernel->sysfs,
             kernel->address, region, file == VIA_KERNEL_SYSFS_COMBINING ? "_wc" : "");
    *ret_off = file == VIA_KERNEL_DEVICE ? kernel->region_off[region] : 0;
    *ret_fd = file == VIA_KERNEL_DEVICE ? fcntl(kernel->device_fd, F_DUPFD_CLOEXEC, 0)
                                        : open(path, O_RDWR | O_CLOEXEC);
    return *ret_fd >= 0 ? 0 : -errno;
}

static int map_file(struct via_kernel *kernel, unsigned region, enum via_kernel_file file,
                    uint64_t off, uint64_t bytes, unsigned char **ret_at)
{
    int fd;
    uint64_t begin;
    int rc = open_file(kernel, region, file, &fd, &begin);
    if (rc != 0) {
        return rc;
    }
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(begin + off));
    rc = at == MAP_FAILED ? -errno : 0;
    close(fd);
    *ret_at = at;
    return rc;
}

static struct via_kernel_mapping *find_mapping(struct via_kernel *kernel, const unsigned char *at)
{
    for (unsigned i = 0; i < VIA_KERNEL_MAPPINGS_MAX; i++) {
        if (kernel->mappings[i].at == at) {
            return &kernel->mappings[i];
        }
    }
    return NULL;
}

/* Updates sysfs_regions after a mapping of the region was added or removed. */
static void note_files(struct via_kernel *kernel, unsigned region)
{
    const struct via_kernel_mapping *mapped = find_mapped(kernel, region);
    uint32_t bit = UINT32_C(1) << region;
    if (mapped != NULL && mapped->file != VIA_KERNEL_DEVICE) {
        atomic_fetch_or_explicit(&kernel->sysfs_regions, bit, memory_order_relaxed);
    } else {
        atomic_fetch_and_explicit(&kernel->sysfs_regions, ~bit, memory_order_relaxed);
    }
}

static int kernel_map(struct via_pci *pci, unsigned region, uint64_t off, uint64_t bytes,
                      bool combining, struct via_pci_mapping *ret_mapping)
{
    struct via_kernel *kernel = via_kernel_of(pci);
    struct via_kernel_mapping *mapping = find_mapping(kernel, NULL);
    if (region >= VIA_PCI_REGIONS || !kernel->region_maps[region]) {
        return -ENOTSUP;
    }
    if (bytes == 0 || bytes % PAGE_BYTES != 0 || off % PAGE_BYTES != 0 ||
        off > kernel->region_bytes[region] || bytes > kernel->region_bytes[region] - off) {
        return -EINVAL;
    }
    if (mapping == NULL) {
        return -ENOSPC;
    }
    const struct via_kernel_mapping *mapped = find_mapped(kernel, region);
    enum via_kernel_file file = mapped != NULL                  ? mapped->file
                                : !is_prefetchable(pci, region) ? VIA_KERNEL_DEVICE
                                : combining                     ? VIA_KERNEL_SYSFS_COMBINING
                                                                : VIA_KERNEL_SYSFS;
    unsigned char *at = NULL;
    int rc = map_file(kernel, region, file, off, bytes, &at);
    if (rc != 0 && mapped == NULL && file != VIA_KERNEL_DEVICE) {
        file = VIA_KERNEL_DEVICE;
        rc = map_file(kernel, region, file, off, bytes, &at);
    }
    if (rc != 0) {
        return rc;
    }
    rc = via_guard_add(at, bytes, &mapping->guard);
    if (rc != 0) {
        munmap(at, bytes);
        return rc;
    }
    mapping->at = at;
    mapping->region = region;
    mapping->file = file;
    note_files(kernel, region);
    *ret_mapping = (struct via_pci_mapping){
        .at = at,
        .bytes = bytes,
        .caching = file == VIA_KERNEL_SYSFS_COMBINING ? VIA_PCI_COMBINING : VIA_PCI_UNCACHED};
    return 0;
}

static void kernel_unmap(struct via_pci *pci, struct via_pci_mapping *mapping)
{
    struct via_kernel *kernel = via_kernel_of(pci);
    struct via_kernel_mapping *mine =
        mapping->at != NULL ? find_mapping(kernel, mapping->at) : NULL;
    if (mine != NULL) {
        via_guard_remove(mine->guard);
        munmap(mapping->at, mapping->bytes);
        mine->at = NULL;
        note_files(kernel, mine->region);
    }
    *mapping = (struct via_pci_mapping){0};
}

static int kernel_region_fd(struct via_pci *pci, unsigned region, int *ret_fd, uint64_t *ret_off)
{
    struct via_kernel *kernel = via_kernel_of(pci);
    if (region >= VIA_PCI_REGIONS || !kernel->region_maps[region]) {
        return -ENOTSUP;
    }
    *ret_fd = kernel->device_fd;
    *ret_off = kernel->region_off[region];
    return 0;
}

static int kernel_window_fd(struct via_pci *pci, unsigned region, uint64_t off, uint64_t bytes,
                            int *ret_fd, uint64_t *ret_off)
{
    struct via_kernel *kernel = via_kernel_of(pci);
    if (region >= VIA_PCI_REGIONS || !kernel->region_maps[region]) {
        return -ENOTSUP;
    }
    if (off > kernel->region_bytes[region] || bytes > kernel->region_bytes[region] - off) {
        return -EINVAL;
    }
    const struct via_kernel_mapping *mapped = find_mapped(kernel, region);
    int rc = open_file(kernel, region, mapped != NULL ? mapped->file : VIA_KERNEL_DEVICE, ret_fd,
                       ret_off);
    *ret_off += off;
    return rc;
}

/* --- interrupts --- */

static unsigned kernel_irqs(struct via_pci *pci, enum via_pci_irq_kind kind)
{
    return via_kernel_of(pci)->irqs[kind];
}

static int set_irqs(struct via_kernel *kernel, uint32_t flags, uint32_t index, uint32_t count,
                    const int *fds)
{
    unsigned char bytes[sizeof(struct vfio_irq_set) + IRQS_MAX * sizeof(int)]
        __attribute__((aligned(8))) = {0};
    bool with_fds = (flags & VFIO_IRQ_SET_DATA_EVENTFD) != 0;
    struct vfio_irq_set set = {.argsz =
                                   (uint32_t)(sizeof(set) + (with_fds ? count * sizeof(int) : 0)),
                               .flags = flags,
                               .index = index,
                               .count = count};
    memcpy(bytes, &set, sizeof(set));
    if (with_fds) {
        memcpy(bytes + sizeof(set), fds, count * sizeof(int));
    }
    return kernel->calls->ioctl(kernel->device_fd, VFIO_DEVICE_SET_IRQS, bytes) == 0 ? 0 : -errno;
}

static int kernel_irq_set(struct via_pci *pci, enum via_pci_irq_kind kind, unsigned count,
                          const int *fds)
{
    struct via_kernel *kernel = via_kernel_of(pci);
    if (count > kernel->irqs[kind] || count > IRQS_MAX) {
        return -EINVAL;
    }
    /* Disabled first: the kernel writes the MSI address and data only when it enables the
     * interrupt. */
    int rc = set_irqs(kernel, VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER, kind, 0, NULL);
    return count == 0 ? rc
                      : set_irqs(kernel, VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
                                 kind, count, fds);
}

static int kernel_irq_unmask(struct via_pci *pci)
{
    return set_irqs(via_kernel_of(pci), VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_UNMASK,
                    VFIO_PCI_INTX_IRQ_INDEX, 1, NULL);
}

/* --- the function as a whole --- */

static int kernel_reset(struct via_pci *pci)
{
    struct via_kernel *kernel = via_kernel_of(pci);
    int rc = kernel->calls->ioctl(kernel->device_fd, VFIO_DEVICE_RESET, NULL);
    return rc == 0 ? 0 : errno == EINVAL || errno == ENOTTY ? -ENOTSUP : -errno;
}

static bool kernel_is_gone(struct via_pci *pci)
{
    struct via_kernel *kernel = via_kernel_of(pci);
    uint32_t ids = UINT32_MAX;
    for (unsigned i = 0; i < VIA_KERNEL_MAPPINGS_MAX; i++) {
        if (kernel->mappings[i].at != NULL && via_guard_is_hit(kernel->mappings[i].guard)) {
            return true;
        }
    }
    return kernel_config_read(pci, VIA_PCI_VENDOR_ID, 4, &ids) != 0 || ids == UINT32_MAX;
}

static const char *kernel_describe(struct via_pci *pci)
{
    return via_kernel_of(pci)->describe;
}

/* Closing the descriptors ends interrupts, bus mastering and DMA mappings. */
static void kernel_close(struct via_pci *pci)
{
    struct via_kernel *kernel = via_kernel_of(pci);
    int fds[] = {kernel->device_fd, kernel->group_fd, kernel->container_fd, kernel->iommufd};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(fds); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    free(kernel);
}

static const struct via_pci_ops kernel_ops = {
    .config_read = kernel_config_read,
    .config_write = kernel_config_write,
    .region = kernel_region,
    .region_read = kernel_region_read,
    .region_write = kernel_region_write,
    .map = kernel_map,
    .unmap = kernel_unmap,
    .region_fd = kernel_region_fd,
    .window_fd = kernel_window_fd,
    .irqs = kernel_irqs,
    .irq_set = kernel_irq_set,
    .irq_unmask = kernel_irq_unmask,
    .dma_map = via_kernel_dma_map,
    .dma_unmap = via_kernel_dma_unmap,
    .reset = kernel_reset,
    .gone = kernel_is_gone,
    .describe = kernel_describe,
    .close = kernel_close,
};

static int system_open(const char *path, int flags)
{
    return open(path, flags);
}

static int system_ioctl(int fd, unsigned long request, void *argument)
{
    return ioctl(fd, request, argument);
}

static const struct via_kernel_calls system_calls = {.open = system_open, .ioctl = system_ioctl};

static void copy_path(char *ret_path, size_t bytes, const char *path, const char *preset)
{
    snprintf(ret_path, bytes, "%s", path != NULL ? path : preset);
}

struct via_kernel *via_kernel_new(const struct via_kernel_options *options)
{
    struct via_kernel *kernel = calloc(1, sizeof(*kernel));
    if (kernel == NULL) {
        return NULL;
    }
    kernel->pci.ops = &kernel_ops;
    kernel->calls = options->calls != NULL ? options->calls : &system_calls;
    kernel->container_fd = kernel->iommufd = kernel->group_fd = kernel->device_fd = -1;
    kernel->without_iommu = options->without_iommu;
    kernel->by_container = options->by_container;
    kernel->lead = options->beside != NULL ? via_kernel_of(options->beside) : kernel;
    kernel->way = kernel->lead->way;
    snprintf(kernel->address, sizeof(kernel->address), "%s", options->address);
    copy_path(kernel->sysfs, sizeof(kernel->sysfs), options->sysfs, "/sys");
    copy_path(kernel->devfs, sizeof(kernel->devfs), options->devfs, "/dev/vfio");
    copy_path(kernel->iommufd_path, sizeof(kernel->iommufd_path), options->iommufd, "/dev/iommu");
    copy_path(kernel->pagemap, sizeof(kernel->pagemap), options->pagemap, "/proc/self/pagemap");
    unsigned bus, device, function;
    if (sscanf(kernel->address, "%*x:%x:%x.%x", &bus, &device, &function) == 3) {
        kernel->pci.requester = (uint16_t)(bus << 8 | device << 3 | function);
    }
    via_iova_init(&kernel->iova);
    return kernel;
}
