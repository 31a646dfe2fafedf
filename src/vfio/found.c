/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "vfio/found.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/types.h"
#include "vfio/kernel.h"

#define PATH_BYTES 512u
#define DEVICES "/sys/bus/pci/devices"
/* Linux: include/linux/ioport.h */
#define RESOURCE_MEMORY 0x00000200u
#define RESOURCE_PREFETCH 0x00002000u
#define RESOURCE_UNSET 0x20000000u
/* PCI Local Bus specification 3.0: 6.7, 6.8; class codes: appendix D */
#define CONFIG_STATUS 0x06u
#define CONFIG_CAPABILITIES 0x34u
#define STATUS_CAPABILITIES 0x10u
#define CAPABILITY_MSI 0x05u
#define CAPABILITY_MSIX 0x11u
#define CAPABILITIES_MAX 48u
#define CLASS_BRIDGE_PCI 0x0604u
#define PROBE_TRIES 25u
#define PROBE_TURN_US 20000u

/* Ids: PEX: FreeBSD ntb_hw_plx.c, Linux plx_dma.c; ivshmem: QEMU; Intel and AMD: Linux
 * drivers/ntb/hw. */
static const struct via_found_chip chips[] = {
    {0x10b5, 0x87a0, "PEX 87xx NT0, link side", "pex", 2},
    {0x10b5, 0x87a1, "PEX 87xx NT1, link side", "pex", 2},
    {0x10b5, 0x87b0, "PEX 87xx NT0, virtual side", "pex", 2},
    {0x10b5, 0x87b1, "PEX 87xx NT1, virtual side", "pex", 2},
    {0x10b5, 0x87d0, "PEX 87xx DMA", NULL, 0},
    {0x1af4, 0x1110, "ivshmem", "ivshmem", 2},
    {0x8086, 0x3c0d, "Intel Xeon E5 NTB", NULL, 2},
    {0x8086, 0x0e0d, "Intel Xeon E5 v2 NTB", NULL, 2},
    {0x8086, 0x2f0d, "Intel Xeon E5 v3 NTB", NULL, 2},
    {0x8086, 0x6f0d, "Intel Xeon E5 v4 NTB", NULL, 2},
    {0x8086, 0x201c, "Intel Xeon Scalable NTB", NULL, 2},
    {0x8086, 0x347e, "Intel Xeon gen 4 NTB", NULL, 2},
    {0x1022, 0x145b, "AMD NTB", NULL, 2},
    {0x1022, 0x148b, "AMD NTB", NULL, 2},
};

/* --- files of a function --- */

static void format_path(const struct via_found_paths *paths, const char *address, const char *name,
                        char *ret_path)
{
    snprintf(ret_path, PATH_BYTES, "%s" DEVICES "/%s/%s", paths->root, address, name);
}

static ssize_t read_file(const char *path, char *ret_text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, ret_text, bytes - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    ret_text[length > 0 ? length : 0] = '\0';
    return length;
}

static ssize_t read_text(const struct via_found_paths *paths, const char *address, const char *name,
                         char *ret_text, size_t bytes)
{
    char path[PATH_BYTES];
    format_path(paths, address, name, path);
    return read_file(path, ret_text, bytes);
}

static unsigned long read_number(const struct via_found_paths *paths, const char *address,
                                 const char *name, int base)
{
    char text[64];
    return read_text(paths, address, name, text, sizeof(text)) > 0 ? strtoul(text, NULL, base) : 0;
}

/* The last component of a symbolic link's target; "": no such link. */
static void read_link(const struct via_found_paths *paths, const char *address, const char *name,
                      char *ret_text, size_t bytes)
{
    char path[PATH_BYTES], target[PATH_BYTES];
    format_path(paths, address, name, path);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    target[length > 0 ? length : 0] = '\0';
    const char *slash = strrchr(target, '/');
    snprintf(ret_text, bytes, "%.15s", slash != NULL ? slash + 1 : target);
}

/* --- properties of a function --- */

static void read_bars(const struct via_found_paths *paths, struct via_found *found)
{
    char text[4096], name[32], path[PATH_BYTES];
    char *at = text;
    (void)read_text(paths, found->address, "resource", text, sizeof(text));
    for (unsigned i = 0; i < VIA_FOUND_BARS; i++) {
        uint64_t first = strtoull(at, &at, 16);
        uint64_t last = strtoull(at, &at, 16);
        uint64_t flags = strtoull(at, &at, 16);
        if ((flags & RESOURCE_MEMORY) == 0 || last <= first || last - first == UINT64_MAX) {
            continue;
        }
        snprintf(name, sizeof(name), "resource%u_wc", i);
        format_path(paths, found->address, name, path);
        found->bars[i] =
            (struct via_found_bar){.bytes = last - first + 1,
                                   .is_unassigned = first == 0 || (flags & RESOURCE_UNSET) != 0,
                                   .is_prefetchable = (flags & RESOURCE_PREFETCH) != 0,
                                   .has_write_combining = access(path, F_OK) == 0};
    }
}

static void read_capabilities(const struct via_found_paths *paths, struct via_found *found)
{
    char bytes[257];
    const unsigned char *config = (const unsigned char *)bytes;
    char text[8];
    ssize_t length = read_text(paths, found->address, "config", bytes, sizeof(bytes));
    /* Unprivileged users can read only the first 64 bytes. */
    unsigned at =
        length > (ssize_t)CONFIG_CAPABILITIES && (config[CONFIG_STATUS] & STATUS_CAPABILITIES) != 0
            ? config[CONFIG_CAPABILITIES] & ~3u
            : 0;
    for (unsigned i = 0; i < CAPABILITIES_MAX && at >= 0x40 && at + 1 < (unsigned)length; i++) {
        found->has_msi |= config[at] == CAPABILITY_MSI;
        found->has_msix |= config[at] == CAPABILITY_MSIX;
        at = config[at + 1] & ~3u;
    }
    found->revision = length > 8 ? config[8] : 0;
    found->bus_refuses_msi =
        read_text(paths, found->address, "msi_bus", text, sizeof(text)) > 0 && text[0] == '0';
}

/* "8.0 GT/s PCIe": the generation; 0: not known. */
static unsigned read_generation(const struct via_found_paths *paths, const char *address,
                                const char *name)
{
    static const unsigned rates[] = {25, 50, 80, 160, 320, 640};
    char text[64], *end;
    (void)read_text(paths, address, name, text, sizeof(text));
    double rate = strtod(text, &end);
    for (unsigned i = 0; end != text && i < VIA_ARRAY_COUNT(rates); i++) {
        if (rate * 10 > rates[i] - 1 && rate * 10 < rates[i] + 1) {
            return i + 1;
        }
    }
    return 0;
}

static unsigned read_width(const struct via_found_paths *paths, const char *address,
                           const char *name)
{
    unsigned long width = read_number(paths, address, name, 10);
    return width <= 32 ? (unsigned)width : 0; /* 255: not known */
}

/* Skips bridges, because VFIO accepts their drivers in a group. */
static void read_group(const struct via_found_paths *paths, struct via_found *found)
{
    char path[PATH_BYTES], driver[64];
    read_link(paths, found->address, "iommu_group", found->group, sizeof(found->group));
    format_path(paths, found->address, "iommu_group/devices", path);
    DIR *folder = found->group[0] != '\0' ? opendir(path) : NULL;
    for (struct dirent *entry = folder != NULL ? readdir(folder) : NULL; entry != NULL;
         entry = readdir(folder)) {
        if (!via_kernel_is_address(entry->d_name) || strcmp(entry->d_name, found->address) == 0 ||
            read_number(paths, entry->d_name, "class", 16) >> 8 == CLASS_BRIDGE_PCI) {
            continue;
        }
        read_link(paths, entry->d_name, "driver", driver, sizeof(driver));
        if (driver[0] != '\0' && strcmp(driver, "vfio-pci") != 0 &&
            found->neighbours_count < VIA_FOUND_NEIGHBOURS_MAX) {
            snprintf(found->neighbours[found->neighbours_count++], 16, "%.15s", entry->d_name);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

/* The function's device file, for use with iommufd. */
static void read_file_name(const struct via_found_paths *paths, struct via_found *found)
{
    char path[PATH_BYTES];
    format_path(paths, found->address, "vfio-dev", path);
    DIR *folder = opendir(path);
    for (struct dirent *entry = folder != NULL ? readdir(folder) : NULL; entry != NULL;
         entry = readdir(folder)) {
        if (strncmp(entry->d_name, "vfio", 4) == 0) {
            snprintf(found->file, sizeof(found->file), "%.15s", entry->d_name);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

/* --- the processes that have it open --- */

static bool is_path(const char *target, const char *folder, const char *name)
{
    size_t length = strlen(folder);
    return name[0] != '\0' && strncmp(target, folder, length) == 0 &&
           strcmp(target + length, name) == 0;
}

/* True if a descriptor of a process refers to the function: VFIO's group or device file, or a file
 * of the function in sysfs. */
static bool is_link_to(const char *target, const struct via_found *found)
{
    char part[64];
    if (is_path(target, "/dev/vfio/", found->group) ||
        is_path(target, "/dev/vfio/noiommu-", found->group) ||
        is_path(target, "/dev/vfio/devices/", found->file)) {
        return true;
    }
    snprintf(part, sizeof(part), "/%s/", found->address);
    const char *at = strstr(target, part);
    return at != NULL && (strcmp(at + strlen(part), "config") == 0 ||
                          strncmp(at + strlen(part), "resource", 8) == 0);
}

static bool has_open(const struct via_found_paths *paths, const char *pid,
                     const struct via_found *found)
{
    char path[PATH_BYTES], target[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/proc/%s/fd", paths->root, pid);
    DIR *folder = opendir(path);
    bool has = false;
    for (struct dirent *entry = folder != NULL ? readdir(folder) : NULL; entry != NULL && !has;
         entry = readdir(folder)) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        has = is_link_to(target, found);
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return has;
}

static void find_holder(const struct via_found_paths *paths, struct via_found *found)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/proc", paths->root);
    DIR *folder = opendir(path);
    for (struct dirent *entry = folder != NULL ? readdir(folder) : NULL;
         entry != NULL && found->holder == 0; entry = readdir(folder)) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (!isdigit((unsigned char)entry->d_name[0]) || pid == getpid() ||
            !has_open(paths, entry->d_name, found)) {
            continue;
        }
        found->holder = pid;
        snprintf(path, sizeof(path), "%s/proc/%.20s/comm", paths->root, entry->d_name);
        (void)read_file(path, found->holder_name, sizeof(found->holder_name));
        found->holder_name[strcspn(found->holder_name, "\n")] = '\0';
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

/* --- finding --- */

static const struct via_found_chip *chip_of(const struct via_found_paths *paths,
                                            const char *address)
{
    unsigned long vendor = read_number(paths, address, "vendor", 16);
    unsigned long device = read_number(paths, address, "device", 16);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(chips); i++) {
        if (chips[i].vendor == vendor && chips[i].device == device) {
            return &chips[i];
        }
    }
    return NULL;
}

static void inspect_function(const struct via_found_paths *paths, const char *address,
                             const struct via_found_chip *chip, struct via_found *ret_found)
{
    struct via_found *found = ret_found;
    *found = (struct via_found){.chip = chip};
    snprintf(found->address, sizeof(found->address), "%.15s", address);
    read_link(paths, address, "driver", found->driver, sizeof(found->driver));
    read_bars(paths, found);
    read_capabilities(paths, found);
    read_group(paths, found);
    read_file_name(paths, found);
    found->generation = read_generation(paths, address, "current_link_speed");
    found->generation_max = read_generation(paths, address, "max_link_speed");
    found->width = read_width(paths, address, "current_link_width");
    found->width_max = read_width(paths, address, "max_link_width");
    find_holder(paths, found);
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct via_found *)a)->address, ((const struct via_found *)b)->address);
}

int via_found_scan(const struct via_found_paths *paths, struct via_found *ret_found,
                   struct via_error *err)
{
    char path[PATH_BYTES];
    unsigned count = 0;
    snprintf(path, sizeof(path), "%s" DEVICES, paths->root);
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return errno == ENOENT ? 0 : via_error_set(err, -errno, "%s: %s", path, strerror(errno));
    }
    for (struct dirent *entry = readdir(folder); entry != NULL && count < VIA_FOUND_MAX;
         entry = readdir(folder)) {
        const struct via_found_chip *chip =
            via_kernel_is_address(entry->d_name) ? chip_of(paths, entry->d_name) : NULL;
        if (chip != NULL) {
            inspect_function(paths, entry->d_name, chip, &ret_found[count++]);
        }
    }
    closedir(folder);
    qsort(ret_found, count, sizeof(*ret_found), compare);
    return (int)count;
}

int via_found_get(const struct via_found_paths *paths, const char *address,
                  struct via_found *ret_found, struct via_error *err)
{
    char path[PATH_BYTES];
    if (!via_kernel_is_address(address)) {
        return via_error_set(err, -EINVAL, "%s: not DOMAIN:BUS:DEVICE.FUNCTION", address);
    }
    format_path(paths, address, "", path);
    if (access(path, F_OK) != 0) {
        return via_error_set(err, -ENODEV, "%s: no such device in %s" DEVICES, address,
                             paths->root);
    }
    const struct via_found_chip *chip = chip_of(paths, address);
    if (chip == NULL) {
        return via_error_set(err, -ENODEV,
                             "%s: vendor %04lx, device %04lx: no NTB function that is known here",
                             address, read_number(paths, address, "vendor", 16),
                             read_number(paths, address, "device", 16));
    }
    inspect_function(paths, address, chip, ret_found);
    return 0;
}

/* --- kernel drivers --- */

static int write_text(const char *path, const char *text, struct via_error *err)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t done = fd >= 0 ? write(fd, text, strlen(text)) : -1;
    int rc = done < 0 ? -errno : 0;
    if (fd >= 0) {
        close(fd);
    }
    return rc == 0 ? 0 : via_error_set(err, rc, "write %s: %s", path, strerror(-rc));
}

/* A newline clears the override (Linux, drivers/pci/pci-sysfs.c: driver_override_store). */
#define NO_OVERRIDE "\n"

static int set_override(const struct via_found_paths *paths, const char *address,
                        const char *driver, struct via_error *err)
{
    char path[PATH_BYTES];
    format_path(paths, address, "driver_override", path);
    return write_text(path, driver, err);
}

/* The former driver_override, for set_override(). */
static void read_override(const struct via_found_paths *paths, const char *address,
                          char *ret_override, size_t bytes)
{
    (void)read_text(paths, address, "driver_override", ret_override, bytes);
    ret_override[strcspn(ret_override, "\n")] = '\0';
    if (ret_override[0] == '\0' || strcmp(ret_override, "(null)") == 0) {
        snprintf(ret_override, bytes, NO_OVERRIDE);
    }
}

static int leave_driver(const struct via_found_paths *paths, const char *address,
                        const char *driver, struct via_error *err)
{
    char path[PATH_BYTES];
    if (driver[0] == '\0') {
        return 0;
    }
    format_path(paths, address, "driver/unbind", path);
    return write_text(path, address, err);
}

static int probe(const struct via_found_paths *paths, const char *address, struct via_error *err)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/sys/bus/pci/drivers_probe", paths->root);
    return write_text(path, address, err);
}

/* Serializes processes that change the function's driver. Fails also while a process uses the
 * function through sysfs, because src/vfio/sysfs.c takes the same lock. */
static int lock_function(const struct via_found_paths *paths, const char *address, int *ret_fd,
                         struct via_error *err)
{
    char path[PATH_BYTES];
    format_path(paths, address, "config", path);
    *ret_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*ret_fd >= 0 && flock(*ret_fd, LOCK_EX | LOCK_NB) != 0) {
        close(*ret_fd);
        return via_error_set(err, -EBUSY, "%s: another process changes its driver, or has it open",
                             address);
    }
    return 0;
}

static void unlock_function(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

static int check_free(const struct via_found *found, struct via_error *err)
{
    return found->holder == 0
               ? 0
               : via_error_set(err, -EBUSY, "%s: process %d (%s) has it open", found->address,
                               (int)found->holder, found->holder_name);
}

/* Drivers may be probed after the write has returned. */
static bool wait_for_driver(const struct via_found_paths *paths, const char *address,
                            const char *wanted)
{
    char driver[64];
    for (unsigned i = 0; i < PROBE_TRIES; i++) {
        read_link(paths, address, "driver", driver, sizeof(driver));
        if (strcmp(driver, wanted) == 0) {
            return true;
        }
        usleep(PROBE_TURN_US);
    }
    return false;
}

/* Restores the former driver, or none. err keeps the cause, and mentions if the driver did not
 * accept the function again. */
static void restore(const struct via_found_paths *paths, const struct via_found *found,
                    const char *override, struct via_error *err)
{
    struct via_error ignored;
    char driver[64];
    read_link(paths, found->address, "driver", driver, sizeof(driver));
    if (strcmp(driver, found->driver) != 0) {
        (void)leave_driver(paths, found->address, driver, &ignored);
        if (found->driver[0] != '\0') {
            (void)set_override(paths, found->address, found->driver, &ignored);
            (void)probe(paths, found->address, &ignored);
            if (!wait_for_driver(paths, found->address, found->driver)) {
                struct via_error cause = *err;
                via_error_set(err, cause.code, "%s; %s did not take it back", cause.text,
                              found->driver);
            }
        }
    }
    (void)set_override(paths, found->address, override, &ignored);
}

static int take(const struct via_found_paths *paths, const struct via_found *found,
                struct via_error *err)
{
    char path[PATH_BYTES], override[64];
    snprintf(path, sizeof(path), "%s/sys/bus/pci/drivers/vfio-pci", paths->root);
    if (access(path, F_OK) != 0) {
        return via_error_set(err, -ENODEV, "the kernel has no vfio-pci: modprobe vfio-pci");
    }
    read_override(paths, found->address, override, sizeof(override));
    int rc = set_override(paths, found->address, "vfio-pci", err);
    if (rc != 0) {
        return rc;
    }
    rc = leave_driver(paths, found->address, found->driver, err);
    if (rc == 0) {
        rc = probe(paths, found->address, err);
    }
    if (rc == 0) {
        rc = wait_for_driver(paths, found->address, "vfio-pci")
                 ? 0
                 : via_error_set(err, -EIO,
                                 "vfio-pci did not take it; the kernel's log (dmesg) says why");
    }
    if (rc != 0) {
        restore(paths, found, override, err);
    }
    return rc;
}

static int bind_locked(const struct via_found_paths *paths, const char *address,
                       struct via_error *err)
{
    static struct via_found found;
    int rc = via_found_get(paths, address, &found, err);
    if (rc != 0 || strcmp(found.driver, "vfio-pci") == 0) {
        return rc;
    }
    rc = check_free(&found, err);
    if (rc == 0 && (rc = take(paths, &found, err)) != 0) {
        return via_error_prefix(err, "%s: bind: ", address);
    }
    return rc;
}

static int unbind_locked(const struct via_found_paths *paths, const char *address,
                         struct via_error *err)
{
    static struct via_found found;
    int rc = via_found_get(paths, address, &found, err);
    if (rc != 0) {
        return rc;
    }
    if (strcmp(found.driver, "vfio-pci") != 0) {
        return via_error_set(err, -EINVAL, "%s: vfio-pci does not have it, but %s", address,
                             found.driver[0] != '\0' ? found.driver : "no driver");
    }
    char override[64];
    read_override(paths, address, override, sizeof(override));
    rc = check_free(&found, err);
    if (rc != 0 || (rc = set_override(paths, address, NO_OVERRIDE, err)) != 0) {
        return rc;
    }
    rc = leave_driver(paths, address, found.driver, err);
    if (rc == 0) {
        rc = probe(paths, address, err);
    }
    if (rc != 0) {
        restore(paths, &found, override, err);
        return via_error_prefix(err, "%s: unbind: ", address);
    }
    return 0;
}

typedef int change_driver(const struct via_found_paths *paths, const char *address,
                          struct via_error *err);

static int change(change_driver *do_change, const struct via_found_paths *paths,
                  const char *address, struct via_error *err)
{
    int fd = -1,
        rc = via_kernel_is_address(address)
                 ? lock_function(paths, address, &fd, err)
                 : via_error_set(err, -EINVAL, "%s: not DOMAIN:BUS:DEVICE.FUNCTION", address);
    if (rc == 0) {
        rc = do_change(paths, address, err);
        unlock_function(fd);
    }
    return rc;
}

int via_found_bind(const struct via_found_paths *paths, const char *address, struct via_error *err)
{
    return change(bind_locked, paths, address, err);
}

int via_found_unbind(const struct via_found_paths *paths, const char *address,
                     struct via_error *err)
{
    return change(unbind_locked, paths, address, err);
}
