/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "vfio/sysfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vfio/kernel.h"

#define PATH_BYTES 256u
#define PAGE_BYTES 4096u
#define BARS 6u
/* Flags in a line of `resource` (include/linux/ioport.h): memory; prefetchable. */
#define RESOURCE_MEMORY 0x200u
#define RESOURCE_PREFETCH 0x2000u

struct bar {
    uint64_t first; /* its address on the bus */
    uint64_t bytes; /* 0: no memory BAR */
    bool prefetchable;
    int fd;            /* of resourceN; -1 */
    unsigned char *at; /* mapping of the whole BAR, for registers; NULL: not mapped */
};

struct via_sysfs {
    struct via_pci pci;
    char folder[128];
    char describe[64];
    int config_fd; /* with a lock: one process uses the function */
    bool enabled;
    bool is_beside; /* bound to a driver, to which config space belongs */
    struct bar bars[BARS];
};

static struct via_sysfs *sysfs_of(struct via_pci *pci)
{
    return via_container_of(pci, struct via_sysfs, pci);
}

static int open_file(const struct via_sysfs *self, const char *name, int flags)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", self->folder, name);
    int fd = open(path, flags | O_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

static int write_one(const struct via_sysfs *self, const char *name, const char *text)
{
    int fd = open_file(self, name, O_WRONLY);
    if (fd < 0) {
        return fd;
    }
    int rc = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -errno;
    close(fd);
    return rc;
}

static uint64_t bytes_mapped(const struct bar *bar)
{
    return (bar->first % PAGE_BYTES + bar->bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* --- config space --- */

static int sysfs_config_read(struct via_pci *pci, unsigned off, unsigned len, uint32_t *ret_value)
{
    uint32_t value = 0;
    if ((len != 1 && len != 2 && len != 4) || off % len != 0 || off >= VIA_PCI_CONFIG_BYTES) {
        return -EINVAL;
    }
    if (pread(sysfs_of(pci)->config_fd, &value, len, (off_t)off) != (ssize_t)len) {
        value = UINT32_MAX >> (32 - 8 * len); /* removed, or beyond the function's config space */
    }
    *ret_value = value;
    return 0;
}

static int sysfs_config_write(struct via_pci *pci, unsigned off, unsigned len, uint32_t value)
{
    if ((len != 1 && len != 2 && len != 4) || off % len != 0 || off >= VIA_PCI_CONFIG_BYTES) {
        return -EINVAL;
    }
    if (sysfs_of(pci)->is_beside) {
        uint32_t now = 0;
        /* Succeeds if the driver has already set all bits of the command register. */
        return off == VIA_PCI_COMMAND && sysfs_config_read(pci, off, len, &now) == 0 &&
                       (value & ~now) == 0
                   ? 0
                   : -EPERM;
    }
    if (off <= VIA_PCI_COMMAND && off + len > VIA_PCI_COMMAND) {
        value &= ~(VIA_PCI_COMMAND_MASTER << 8 * (VIA_PCI_COMMAND - off));
    }
    (void)!pwrite(sysfs_of(pci)->config_fd, &value, len, (off_t)off);
    return 0;
}

/* --- regions --- */

static int sysfs_region(struct via_pci *pci, unsigned region, struct via_pci_region *ret_region)
{
    if (region >= VIA_PCI_REGIONS) {
        return -EINVAL;
    }
    *ret_region = (struct via_pci_region){0};
    if (region < BARS) {
        const struct bar *bar = &sysfs_of(pci)->bars[region];
        *ret_region = (struct via_pci_region){
            .bytes = bar->bytes,
            .mappable = bar->bytes != 0 && bar->bytes % PAGE_BYTES == 0,
            .prefetchable = bar->prefetchable,
        };
    }
    return 0;
}

static int map_bar(struct via_sysfs *self, unsigned region, const char *suffix, uint64_t off,
                   uint64_t bytes, unsigned char **ret_at)
{
    char name[32];
    snprintf(name, sizeof(name), "resource%u%s", region, suffix);
    int fd = open_file(self, name, O_RDWR);
    if (fd < 0) {
        return fd;
    }
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)off);
    int rc = at != MAP_FAILED ? 0 : -errno;
    close(fd);
    *ret_at = rc == 0 ? at : NULL;
    return rc;
}

/* The address of a register access. Register BARs are mapped as a whole at open. */
static unsigned char *place_of(struct via_sysfs *self, unsigned region, uint64_t off, size_t len)
{
    if (region >= BARS || self->bars[region].at == NULL || off > self->bars[region].bytes ||
        len > self->bars[region].bytes - off) {
        return NULL;
    }
    /* The kernel maps whole pages; a small BAR may begin within its page. */
    return self->bars[region].at + self->bars[region].first % PAGE_BYTES + off;
}

static size_t step_of(uint64_t off, size_t len)
{
    return off % 8 == 0 && len >= 8   ? 8
           : off % 4 == 0 && len >= 4 ? 4
           : off % 2 == 0 && len >= 2 ? 2
                                      : 1;
}

static int sysfs_region_read(struct via_pci *pci, unsigned region, uint64_t off, void *ret_data,
                             size_t len)
{
    const unsigned char *from = place_of(sysfs_of(pci), region, off, len);
    unsigned char *to = ret_data;
    if (from == NULL) {
        return -EINVAL;
    }
    for (size_t step; len > 0; len -= step, off += step, from += step, to += step) {
        step = step_of(off, len);
        uint64_t value = step == 8   ? *(const volatile uint64_t *)(const void *)from
                         : step == 4 ? *(const volatile uint32_t *)(const void *)from
                         : step == 2 ? *(const volatile uint16_t *)(const void *)from
                                     : *(const volatile uint8_t *)from;
        memcpy(to, &value, step);
    }
    return 0;
}

static int sysfs_region_write(struct via_pci *pci, unsigned region, uint64_t off, const void *data,
                              size_t len)
{
    unsigned char *to = place_of(sysfs_of(pci), region, off, len);
    const unsigned char *from = data;
    if (to == NULL) {
        return -EINVAL;
    }
    for (size_t step; len > 0; len -= step, off += step, from += step, to += step) {
        uint64_t value = 0;
        step = step_of(off, len);
        memcpy(&value, from, step);
        switch (step) {
        case 8:
            *(volatile uint64_t *)(void *)to = value;
            break;
        case 4:
            *(volatile uint32_t *)(void *)to = (uint32_t)value;
            break;
        case 2:
            *(volatile uint16_t *)(void *)to = (uint16_t)value;
            break;
        default:
            *(volatile uint8_t *)to = (uint8_t)value;
        }
    }
    return 0;
}

static int sysfs_map(struct via_pci *pci, unsigned region, uint64_t off, uint64_t bytes,
                     bool combining, struct via_pci_mapping *ret_mapping)
{
    struct via_sysfs *self = sysfs_of(pci);
    struct via_pci_region info;
    int rc = sysfs_region(pci, region, &info);
    if (rc != 0 || !info.mappable) {
        return rc != 0 ? rc : -ENOTSUP;
    }
    if (bytes == 0 || bytes % PAGE_BYTES != 0 || off % PAGE_BYTES != 0 || off > info.bytes ||
        bytes > info.bytes - off) {
        return -EINVAL;
    }
    unsigned char *at;
    enum via_pci_caching caching = VIA_PCI_COMBINING;
    rc = combining && info.prefetchable ? map_bar(self, region, "_wc", off, bytes, &at) : -ENOTSUP;
    if (rc != 0) {
        caching = VIA_PCI_UNCACHED;
        rc = map_bar(self, region, "", off, bytes, &at);
    }
    if (rc == 0) {
        *ret_mapping = (struct via_pci_mapping){.at = at, .bytes = bytes, .caching = caching};
    }
    return rc;
}

static void sysfs_unmap(struct via_pci *pci, struct via_pci_mapping *mapping)
{
    (void)pci;
    munmap(mapping->at, mapping->bytes);
    *mapping = (struct via_pci_mapping){0};
}

static int sysfs_region_fd(struct via_pci *pci, unsigned region, int *ret_fd, uint64_t *ret_off)
{
    struct via_sysfs *self = sysfs_of(pci);
    struct via_pci_region info;
    if (region >= BARS || sysfs_region(pci, region, &info) != 0 || !info.mappable) {
        return -ENOTSUP;
    }
    struct bar *bar = &self->bars[region];
    if (bar->fd < 0) {
        char name[32];
        snprintf(name, sizeof(name), "resource%u", region);
        bar->fd = open_file(self, name, O_RDWR);
    }
    *ret_fd = bar->fd;
    *ret_off = 0;
    return bar->fd >= 0 ? 0 : bar->fd;
}

/* --- not supported by sysfs --- */

static unsigned sysfs_irqs(struct via_pci *pci, enum via_pci_irq_kind kind)
{
    (void)pci;
    (void)kind;
    return 0;
}

static int sysfs_irq_set(struct via_pci *pci, enum via_pci_irq_kind kind, unsigned count,
                         const int *fds)
{
    (void)pci;
    (void)kind;
    (void)fds;
    return count == 0 ? 0 : -EINVAL;
}

static int sysfs_irq_unmask(struct via_pci *pci)
{
    (void)pci;
    return -ENOTSUP;
}

static int sysfs_dma_map(struct via_pci *pci, const struct via_pci_memory *memory,
                         uint64_t alignment, uint64_t *ret_iova)
{
    (void)pci;
    (void)memory;
    (void)alignment;
    (void)ret_iova;
    return -ENOTSUP;
}

static int sysfs_dma_unmap(struct via_pci *pci, uint64_t iova)
{
    (void)pci;
    (void)iova;
    return -ENOENT;
}

/* --- the function as a whole --- */

static int sysfs_reset(struct via_pci *pci)
{
    if (sysfs_of(pci)->is_beside) {
        return -ENOTSUP;
    }
    int rc = write_one(sysfs_of(pci), "reset", "1");
    return rc == -ENOENT ? -ENOTSUP : rc;
}

static bool sysfs_is_gone(struct via_pci *pci)
{
    uint32_t ids;
    return sysfs_config_read(pci, VIA_PCI_VENDOR_ID, 4, &ids) != 0 || ids == UINT32_MAX;
}

static const char *sysfs_describe(struct via_pci *pci)
{
    return sysfs_of(pci)->describe;
}

static void sysfs_close(struct via_pci *pci)
{
    struct via_sysfs *self = sysfs_of(pci);
    for (unsigned i = 0; i < BARS; i++) {
        if (self->bars[i].at != NULL) {
            munmap(self->bars[i].at, bytes_mapped(&self->bars[i]));
        }
        if (self->bars[i].fd >= 0) {
            close(self->bars[i].fd);
        }
    }
    if (self->enabled) {
        (void)write_one(self, "enable", "0");
    }
    if (self->config_fd >= 0) {
        close(self->config_fd);
    }
    free(self);
}

static const struct via_pci_ops sysfs_ops = {
    .config_read = sysfs_config_read,
    .config_write = sysfs_config_write,
    .region = sysfs_region,
    .region_read = sysfs_region_read,
    .region_write = sysfs_region_write,
    .map = sysfs_map,
    .unmap = sysfs_unmap,
    .region_fd = sysfs_region_fd,
    .irqs = sysfs_irqs,
    .irq_set = sysfs_irq_set,
    .irq_unmask = sysfs_irq_unmask,
    .dma_map = sysfs_dma_map,
    .dma_unmap = sysfs_dma_unmap,
    .reset = sysfs_reset,
    .gone = sysfs_is_gone,
    .describe = sysfs_describe,
    .close = sysfs_close,
};

/* --- open --- */

static int take(struct via_sysfs *self, const char *beside, struct via_error *err)
{
    char path[PATH_BYTES], driver[PATH_BYTES];
    if (access(self->folder, F_OK) != 0) {
        return via_error_set(err, -ENODEV, "no such device in %s", self->folder);
    }
    snprintf(path, sizeof(path), "%s/driver", self->folder);
    ssize_t length = readlink(path, driver, sizeof(driver) - 1);
    if (length > 0) {
        driver[length] = '\0';
        const char *name = strrchr(driver, '/') != NULL ? strrchr(driver, '/') + 1 : driver;
        self->is_beside = beside != NULL && strcmp(name, beside) == 0;
        if (!self->is_beside) {
            return via_error_set(err, -EBUSY, "the driver %s has the device: unbind it", name);
        }
    }
    self->config_fd = open_file(self, "config", self->is_beside ? O_RDONLY : O_RDWR);
    if (self->config_fd < 0) {
        return via_error_set(err, self->config_fd, "%s/config: %s", self->folder,
                             strerror(-self->config_fd));
    }
    if (flock(self->config_fd, LOCK_EX | LOCK_NB) != 0) {
        return via_error_set(err, -EBUSY, "another process has the device");
    }
    if (self->is_beside) {
        return 0;
    }
    int rc = write_one(self, "enable", "1");
    if (rc != 0) {
        return via_error_set(err, rc, "%s/enable: %s", self->folder, strerror(-rc));
    }
    self->enabled = true;
    return 0;
}

/* Parses `resource`, which has a line for each BAR: first address, last address, flags. */
static int inspect(struct via_sysfs *self, struct via_error *err)
{
    char text[4096];
    int fd = open_file(self, "resource", O_RDONLY);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    if (length <= 0) {
        return via_error_set(err, -EIO, "%s/resource: cannot be read", self->folder);
    }
    text[length] = '\0';
    char *at = text;
    for (unsigned i = 0; i < BARS; i++) {
        uint64_t first = strtoull(at, &at, 16);
        uint64_t last = strtoull(at, &at, 16);
        uint64_t flags = strtoull(at, &at, 16);
        if ((flags & RESOURCE_MEMORY) != 0 && last > first && last - first < UINT64_MAX) {
            self->bars[i].first = first;
            self->bars[i].bytes = last - first + 1;
            self->bars[i].prefetchable = (flags & RESOURCE_PREFETCH) != 0;
        }
    }
    return 0;
}

/* Maps BARs of registers: those that are not prefetchable. The kernel maps whole pages. */
static int map_registers(struct via_sysfs *self, struct via_error *err)
{
    for (unsigned i = 0; i < BARS; i++) {
        struct bar *bar = &self->bars[i];
        if (bar->bytes == 0 || bar->prefetchable) {
            continue;
        }
        int rc = map_bar(self, i, "", 0, bytes_mapped(bar), &bar->at);
        if (rc != 0) {
            return via_error_set(err, rc, "%s/resource%u: %s", self->folder, i, strerror(-rc));
        }
    }
    return 0;
}

int via_sysfs_open(const struct via_sysfs_options *options, struct via_pci **ret_pci,
                   struct via_error *err)
{
    if (!via_kernel_is_address(options->address)) {
        return via_error_set(err, -EINVAL, "%s: not DOMAIN:BUS:DEVICE.FUNCTION", options->address);
    }
    struct via_sysfs *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return via_error_set(err, -ENOMEM, "%s", strerror(ENOMEM));
    }
    self->pci.ops = &sysfs_ops;
    self->config_fd = -1;
    for (unsigned i = 0; i < BARS; i++) {
        self->bars[i].fd = -1;
    }
    snprintf(self->folder, sizeof(self->folder), "%s/bus/pci/devices/%s",
             options->sysfs != NULL ? options->sysfs : "/sys", options->address);
    snprintf(self->describe, sizeof(self->describe), "%s by sysfs", options->address);
    int rc = take(self, options->beside, err);
    if (rc == 0) {
        rc = inspect(self, err);
    }
    if (rc == 0) {
        rc = map_registers(self, err);
    }
    if (rc != 0) {
        via_error_prefix(err, "sysfs: ");
        sysfs_close(&self->pci);
        return rc;
    }
    *ret_pci = &self->pci;
    return 0;
}
