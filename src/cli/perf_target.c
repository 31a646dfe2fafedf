/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Targets that are accessed by loads and stores of a BAR, or through the kernel: a drive or a
 * file. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/card.h"
#include "cli/perf_target.h"

#define ALIGNMENT 4096u
#define BAR_SIZE_MIN 4u
#define BAR_PREFETCHABLE 8u
#define READS (1u << VIA_PERF_TO_HOST)
#define WRITES (1u << VIA_PERF_TO_DEVICE)

void via_perf_target_fill(void *buffer, size_t bytes, unsigned seed)
{
    unsigned char *at = buffer;
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(seed + i + (i >> 8) * 7);
    }
}

uint64_t via_perf_target_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

static int make_buffer(size_t bytes, unsigned char **ret_buffer, struct via_error *err)
{
    void *buffer = NULL;
    if (posix_memalign(&buffer, ALIGNMENT, via_max(bytes, (size_t)ALIGNMENT)) != 0) {
        return via_error_set(err, -ENOMEM, "%zu bytes of memory: %s", bytes, strerror(ENOMEM));
    }
    memset(buffer, 0, via_max(bytes, (size_t)ALIGNMENT));
    *ret_buffer = buffer;
    return 0;
}

/* --- a BAR --- */

struct bar {
    struct via_perf_target base;
    struct via_pci *pci;
    unsigned number;
    struct via_pci_mapping mapping; /* at NULL: accesses by messages */
    unsigned char *buffer, *zeros;  /* destination of reads, source of writes */
};

static struct bar *bar_of(struct via_perf_target *target)
{
    return via_container_of(target, struct bar, base);
}

static int bar_transfer(struct via_perf_target *target, enum via_perf_direction direction,
                        size_t bytes, struct via_error *err)
{
    struct bar *bar = bar_of(target);
    const struct via_pci_ops *ops = bar->pci->ops;
    bool to_device = direction == VIA_PERF_TO_DEVICE;
    (void)err;
    if (bar->mapping.at == NULL) {
        int rc = to_device ? ops->region_write(bar->pci, bar->number, 0, bar->zeros, bytes)
                           : ops->region_read(bar->pci, bar->number, 0, bar->buffer, bytes);
        return rc == 0 && ops->gone(bar->pci) ? -ENODEV : rc;
    }
    if (!to_device) {
        memcpy(bar->buffer, bar->mapping.at, bytes);
    } else {
        memcpy(bar->mapping.at, bar->zeros, bytes);
        /* A load of the last byte waits until all stores have arrived. */
        atomic_thread_fence(memory_order_seq_cst);
        (void)*(volatile unsigned char *)(bar->mapping.at + bytes - 1);
    }
    return ops->gone(bar->pci) ? -ENODEV : 0;
}

static void bar_close(struct via_perf_target *target)
{
    struct bar *bar = bar_of(target);
    if (bar->mapping.at != NULL) {
        bar->pci->ops->unmap(bar->pci, &bar->mapping);
    }
    if (bar->pci != NULL) {
        bar->pci->ops->close(bar->pci);
    }
    free(bar->buffer);
    free(bar->zeros);
    free(bar);
}

static const struct via_perf_target_ops bar_ops = {.transfer = bar_transfer, .close = bar_close};

/* Refuses a BAR of registers, because zeros in registers may have any effect. Memory of a device is
 * prefetchable (bit 3 of the BAR, PCI Local Bus specification 3.0, 6.2.5.1). */
static int refuse_registers(struct bar *bar, struct via_error *err)
{
    uint32_t value = 0;
    int rc = bar->pci->ops->config_read(bar->pci, VIA_PCI_BAR(bar->number), 4, &value);
    return rc == 0 && (value & BAR_PREFETCHABLE) != 0
               ? 0
               : via_error_set(err, -EPERM,
                               "it is not prefetchable, so it has registers: not to be written");
}

static int map_bar(struct bar *bar, uint64_t bytes, struct via_error *err)
{
    struct via_pci_region region = {0};
    uint32_t command = 0;
    const struct via_pci_ops *ops = bar->pci->ops;
    int rc = ops->region(bar->pci, bar->number, &region);
    if (rc != 0 || region.bytes == 0) {
        return via_error_set(err, -ENXIO, "there is none");
    }
    rc = ops->config_read(bar->pci, VIA_PCI_COMMAND, 2, &command);
    rc = rc == 0 ? ops->config_write(bar->pci, VIA_PCI_COMMAND, 2, command | VIA_PCI_COMMAND_MEMORY)
                 : rc;
    if (rc != 0) {
        return via_error_set(err, rc, "memory decoding: %s", strerror(-rc));
    }
    bar->base.bytes = via_min(region.bytes, bytes);
    bar->base.way = "messages";
    if (region.mappable &&
        ops->map(bar->pci, bar->number, 0, region.bytes, true, &bar->mapping) == 0) {
        bar->base.way = bar->mapping.caching == VIA_PCI_UNCACHED    ? "uncached"
                        : bar->mapping.caching == VIA_PCI_COMBINING ? "write-combined"
                                                                    : "memory";
    }
    return 0;
}

int via_perf_target_bar(const char *device, const struct via_perf_target_options *options,
                        struct via_perf_target **ret_target, struct via_error *err)
{
    struct bar *bar = calloc(1, sizeof(*bar));
    if (bar == NULL) {
        return via_error_set(err, -ENOMEM, "%s: open: %s", device, strerror(ENOMEM));
    }
    bar->base = (struct via_perf_target){.ops = &bar_ops,
                                         .size_min = BAR_SIZE_MIN,
                                         .directions = READS | WRITES,
                                         .keeps_data = true};
    bar->number = options->bar;
    snprintf(bar->base.name, sizeof(bar->base.name), "%s BAR %u", device, bar->number);
    int rc = via_cli_card_open(device, NULL, &bar->pci, err);
    if (rc == 0) {
        rc = map_bar(bar, options->bytes_max, err);
        rc = rc == 0 && options->writes ? refuse_registers(bar, err) : rc;
        rc = rc == 0 ? make_buffer(options->bytes_max, &bar->buffer, err) : rc;
        rc = rc == 0 ? make_buffer(options->bytes_max, &bar->zeros, err) : rc;
        if (rc != 0) {
            via_error_prefix(err, "%s: BAR %u: ", device, bar->number);
        }
    }
    if (rc != 0) {
        bar_close(&bar->base);
        return rc;
    }
    *ret_target = &bar->base;
    return 0;
}

/* --- a drive or a file --- */

struct drive {
    struct via_perf_target base;
    int fd;
    unsigned char *buffer, *zeros; /* destination of reads, source of writes */
};

static struct drive *drive_of(struct via_perf_target *target)
{
    return via_container_of(target, struct drive, base);
}

static int drive_transfer(struct via_perf_target *target, enum via_perf_direction direction,
                          size_t bytes, struct via_error *err)
{
    struct drive *drive = drive_of(target);
    (void)err;
    for (size_t at = 0; at < bytes;) {
        ssize_t done = direction == VIA_PERF_TO_DEVICE
                           ? pwrite(drive->fd, drive->zeros + at, bytes - at, (off_t)at)
                           : pread(drive->fd, drive->buffer + at, bytes - at, (off_t)at);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return done < 0 ? -errno : -EIO;
        }
        at += (size_t)done;
    }
    return 0;
}

static void drive_close(struct via_perf_target *target)
{
    struct drive *drive = drive_of(target);
    if (drive->fd >= 0) {
        close(drive->fd);
    }
    free(drive->buffer);
    free(drive->zeros);
    free(drive);
}

static const struct via_perf_target_ops drive_ops = {.transfer = drive_transfer,
                                                     .close = drive_close};

/* O_EXCL: does not write to a drive that is mounted or part of an array. O_NONBLOCK: does not wait
 * for a pipe, which lseek() then refuses. */
static int open_drive(struct drive *drive, const char *path, bool writes, uint64_t bytes_max,
                      struct via_error *err)
{
    struct stat info;
    bool is_block = stat(path, &info) == 0 && S_ISBLK(info.st_mode);
    int flags =
        (writes ? O_RDWR : O_RDONLY) | (writes && is_block ? O_EXCL : 0) | O_CLOEXEC | O_NONBLOCK;
    drive->base.way = "O_DIRECT";
    drive->fd = open(path, flags | O_DIRECT);
    if (drive->fd < 0 && errno == EINVAL) {
        drive->base.way = "page cache: the file system refuses O_DIRECT";
        drive->fd = open(path, flags);
    }
    off_t end = drive->fd < 0 ? -1 : lseek(drive->fd, 0, SEEK_END);
    if (end < 0) {
        return via_error_set(err, -errno, "open: %s%s", strerror(errno),
                             errno == EBUSY ? ": it is mounted or otherwise in use" : "");
    }
    drive->base.bytes = via_min((uint64_t)end, bytes_max);
    return 0;
}

int via_perf_target_file(const char *path, const struct via_perf_target_options *options,
                         struct via_perf_target **ret_target, struct via_error *err)
{
    struct drive *drive = calloc(1, sizeof(*drive));
    if (drive == NULL) {
        return via_error_set(err, -ENOMEM, "%s: open: %s", path, strerror(ENOMEM));
    }
    *drive = (struct drive){.base = {.ops = &drive_ops,
                                     .size_min = ALIGNMENT,
                                     .directions = READS | WRITES,
                                     .keeps_data = true},
                            .fd = -1};
    snprintf(drive->base.name, sizeof(drive->base.name), "%s", path);
    int rc = open_drive(drive, path, options->writes, options->bytes_max, err);
    rc = rc == 0 ? make_buffer(options->bytes_max, &drive->buffer, err) : rc;
    rc = rc == 0 ? make_buffer(options->bytes_max, &drive->zeros, err) : rc;
    if (rc != 0) {
        via_error_prefix(err, "%s: ", path);
        drive_close(&drive->base);
        return rc;
    }
    *ret_target = &drive->base;
    return 0;
}
