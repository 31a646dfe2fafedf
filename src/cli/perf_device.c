/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct perf device: how fast bytes get to a device and back, by size. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/card.h"
#include "cli/cli.h"
#include "cli/perf.h"

#define ROUNDS 31u
#define SIZE_MIN 4u
#define SIZE_MAX_BYTES (4u << 20)
#define FILE_ALIGNMENT 4096u
#define SPAN_NS (200 * VIA_MSEC_NS) /* of one row, after which fewer rounds do */
#define ROUNDS_MIN 5u

static const char help[] =
    "usage: viaduct perf device --device D [--bar N] [--write] [--csv FILE]\n"
    "       viaduct perf device --file PATH [--write] [--csv FILE]\n"
    "\n"
    "Bytes from a device to this host, and with --write from this host to the device, by size up\n"
    "to 4 MiB: median and quartiles of single transfers.\n"
    "\n"
    "  --device D    0000:03:00.0 (bound to vfio-pci) or vfio-user:PATH: loads and stores in a "
    "BAR,\n"
    "                write-combined if it can be had; a vfio-user server is reached by messages\n"
    "  --bar N       0 to 5 (default 2)\n"
    "  --file PATH   a drive or a file, past the page cache (O_DIRECT) if its file system can\n"
    "  --write       also writes: WHAT IS THERE IS LOST\n"
    "  --csv FILE    the same for programs\n"
    "  -h, --help    this text\n";

static const struct option long_options[] = {
    {"device", required_argument, NULL, 'd'},
    {"bar", required_argument, NULL, 'b'},
    {"file", required_argument, NULL, 'f'},
    {"write", no_argument, NULL, 'w'},
    {"csv", required_argument, NULL, 'c'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

struct device {
    const char *path, *file, *csv_path;
    unsigned bar;
    bool writes;
    int fd;
    struct via_pci *pci;
    struct via_pci_mapping mapping; /* at NULL: by messages */
    uint64_t bytes;                 /* that can be reached */
    unsigned size_min;
    unsigned char *buffer;
    const char *way;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

/* --- the device --- */

static int open_file(struct device *device, struct via_error *err)
{
    int flags = (device->writes ? O_RDWR : O_RDONLY) | O_CLOEXEC;
    device->way = "O_DIRECT";
    device->fd = open(device->file, flags | O_DIRECT);
    if (device->fd < 0 && errno == EINVAL) {
        device->way = "page cache: the file system refuses O_DIRECT";
        device->fd = open(device->file, flags);
    }
    off_t end = device->fd < 0 ? -1 : lseek(device->fd, 0, SEEK_END);
    if (end < 0) {
        return via_error_set(err, -errno, "%s: open: %s", device->file, strerror(errno));
    }
    device->bytes = (uint64_t)end;
    device->size_min = FILE_ALIGNMENT;
    return 0;
}

static int open_bar(struct device *device, struct via_error *err)
{
    int rc = via_cli_card_open(device->path, &device->pci, err);
    if (rc != 0) {
        return rc;
    }
    struct via_pci_region region = {0};
    rc = device->pci->ops->region(device->pci, device->bar, &region);
    if (rc != 0 || region.bytes == 0) {
        return via_error_set(err, -ENXIO, "%s: BAR %u: there is none", device->path, device->bar);
    }
    device->bytes = region.bytes;
    device->size_min = SIZE_MIN;
    uint32_t command = 0;
    rc = device->pci->ops->config_read(device->pci, VIA_PCI_COMMAND, 2, &command);
    rc = rc == 0 ? device->pci->ops->config_write(device->pci, VIA_PCI_COMMAND, 2,
                                                  command | VIA_PCI_COMMAND_MEMORY)
                 : rc;
    if (rc != 0) {
        return via_error_set(err, rc, "%s: memory decoding: %s", device->path, strerror(-rc));
    }
    if (!region.mappable || device->pci->ops->map(device->pci, device->bar, 0, region.bytes, true,
                                                  &device->mapping) != 0) {
        device->way = "messages";
    } else {
        device->way = device->mapping.caching == VIA_PCI_UNCACHED    ? "uncached"
                      : device->mapping.caching == VIA_PCI_COMBINING ? "write-combined"
                                                                     : "memory";
    }
    return 0;
}

static void close_device(struct device *device)
{
    if (device->mapping.at != NULL) {
        device->pci->ops->unmap(device->pci, &device->mapping);
    }
    if (device->pci != NULL) {
        device->pci->ops->close(device->pci);
    }
    if (device->fd >= 0) {
        close(device->fd);
    }
    free(device->buffer);
}

static int transfer(struct device *device, bool to_device, size_t bytes)
{
    if (device->fd >= 0) {
        ssize_t done = to_device ? pwrite(device->fd, device->buffer, bytes, 0)
                                 : pread(device->fd, device->buffer, bytes, 0);
        return done < 0 ? -errno : (size_t)done == bytes ? 0 : -EIO;
    }
    if (device->mapping.at == NULL) {
        return to_device ? device->pci->ops->region_write(device->pci, device->bar, 0,
                                                          device->buffer, bytes)
                         : device->pci->ops->region_read(device->pci, device->bar, 0,
                                                         device->buffer, bytes);
    }
    if (!to_device) {
        memcpy(device->buffer, device->mapping.at, bytes);
    } else {
        memcpy(device->mapping.at, device->buffer, bytes);
        /* A load of the last bytes waits until all stores have arrived. */
        atomic_thread_fence(memory_order_seq_cst);
        (void)*(volatile unsigned char *)(device->mapping.at + bytes - 1);
    }
    return 0;
}

/* --- rows --- */

static int by_value(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static int measure(struct device *device, bool to_device, size_t bytes, FILE *csv,
                   struct via_error *err)
{
    const char *direction = to_device ? "to device" : "to host";
    uint64_t ns[ROUNDS], begin_ns = now_ns();
    unsigned count = 0;
    int rc = transfer(device, to_device, bytes); /* warms up */
    while (rc == 0 && count < ROUNDS && (count < ROUNDS_MIN || now_ns() - begin_ns < SPAN_NS)) {
        uint64_t start_ns = now_ns();
        rc = transfer(device, to_device, bytes);
        ns[count++] = now_ns() - start_ns;
    }
    if (rc != 0 || (device->pci != NULL && device->pci->ops->gone(device->pci))) {
        rc = rc != 0 ? rc : -ENODEV;
        return via_error_set(err, rc, "%s: %s, %zu bytes: %s",
                             device->file != NULL ? device->file : device->path, direction, bytes,
                             strerror(-rc));
    }
    qsort(ns, count, sizeof(ns[0]), by_value);
    double median = (double)ns[count / 2], low = (double)ns[count / 4];
    double high = (double)ns[count * 3 / 4];
    double rate = median > 0 ? 1e3 * (double)bytes / median : 0;
    printf("%-10s %10zu %12.3f %12.3f %12.3f %12.1f\n", direction, bytes, median / 1e3, low / 1e3,
           high / 1e3, rate);
    if (csv != NULL) {
        fprintf(csv, "%s,%zu,%u,%.0f,%.0f,%.0f\n", direction, bytes, count, median, low, high);
    }
    return 0;
}

static int measure_all(struct device *device, struct via_error *err)
{
    FILE *csv = NULL;
    if (device->bytes < device->size_min) {
        return via_error_set(err, -EINVAL, "%s: measure: it has %llu bytes, at least %u are needed",
                             device->file != NULL ? device->file : device->path,
                             (unsigned long long)device->bytes, device->size_min);
    }
    if (posix_memalign((void **)&device->buffer, FILE_ALIGNMENT, SIZE_MAX_BYTES) != 0) {
        return via_error_set(err, -ENOMEM, "buffer: %s", strerror(ENOMEM));
    }
    memset(device->buffer, 0, SIZE_MAX_BYTES);
    if (device->csv_path != NULL && (csv = fopen(device->csv_path, "we")) == NULL) {
        return via_error_set(err, -errno, "%s: open: %s", device->csv_path, strerror(errno));
    }
    if (csv != NULL) {
        fprintf(csv, "direction,bytes,rounds,median_ns,quartile1_ns,quartile3_ns\n");
    }
    printf("by %s\n%-10s %10s %12s %12s %12s %12s\n", device->way, "", "bytes", "us", "1st quart.",
           "3rd quart.", "MB/s");
    int rc = 0;
    for (unsigned to_device = 0; to_device <= device->writes && rc == 0; to_device++) {
        memset(device->buffer, 0, SIZE_MAX_BYTES); /* and not what was just read */
        for (size_t bytes = device->size_min;
             bytes <= SIZE_MAX_BYTES && bytes <= device->bytes && rc == 0; bytes *= 4) {
            rc = measure(device, to_device != 0, bytes, csv, err);
        }
    }
    if (csv != NULL && fclose(csv) != 0 && rc == 0) {
        rc = via_error_set(err, -errno, "%s: write: %s", device->csv_path, strerror(errno));
    }
    return rc;
}

int via_perf_device(int argc, char **argv)
{
    struct device device = {.bar = 2, .fd = -1};
    struct via_error err = {0};
    for (int c; (c = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        switch (c) {
        case 'd':
            device.path = optarg;
            break;
        case 'b':
            if (via_cli_number(optarg, 0, 5, &device.bar) != 0) {
                return via_cli_usage(argv[0], "--bar: '%s': not 0 to 5", optarg);
            }
            break;
        case 'f':
            device.file = optarg;
            break;
        case 'w':
            device.writes = true;
            break;
        case 'c':
            device.csv_path = optarg;
            break;
        case 'h':
            fputs(help, stdout);
            return VIA_CLI_OK;
        default:
            return via_cli_usage(argv[0], NULL);
        }
    }
    if (optind != argc || (device.path == NULL) == (device.file == NULL)) {
        return via_cli_usage(argv[0], optind != argc ? "one argument too many"
                                                     : "either --device or --file");
    }
    int rc = device.file != NULL ? open_file(&device, &err) : open_bar(&device, &err);
    rc = rc == 0 ? measure_all(&device, &err) : rc;
    close_device(&device);
    return rc == 0 ? VIA_CLI_OK : via_cli_fail(argv[0], &err);
}
