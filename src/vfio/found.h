/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * PCI functions of this machine that a fabric can use, as found in sysfs, and their kernel drivers.
 * Nothing here opens a function or changes its registers.
 */
#ifndef VIA_VFIO_FOUND_H
#define VIA_VFIO_FOUND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

#define VIA_FOUND_BARS 6u
#define VIA_FOUND_MAX 64u
#define VIA_FOUND_NEIGHBOURS_MAX 8u

struct via_found_chip {
    uint16_t vendor, device;
    const char *name;
    const char *link;    /* the driver of links that has it; NULL: Viaduct has none */
    unsigned window_bar; /* what the peer is reached through; 0: there is no window */
};

struct via_found_bar {
    uint64_t bytes;
    bool is_unassigned; /* it has a size, and no address */
    bool is_prefetchable;
    bool has_write_combining; /* the kernel offers a write-combined mapping */
};

struct via_found {
    char address[16];
    const struct via_found_chip *chip; /* never NULL in what is returned */
    unsigned revision;
    char driver[64]; /* of the kernel; "": none */
    char group[16];  /* of the IOMMU; "": none */
    char file[16];   /* in /dev/vfio/devices, where vfio-pci has the function; "": none */
    /* Functions of the same group that some other driver than vfio-pci has. */
    unsigned neighbours_count;
    char neighbours[VIA_FOUND_NEIGHBOURS_MAX][16];
    struct via_found_bar bars[VIA_FOUND_BARS];
    bool has_msi, has_msix;
    bool bus_refuses_msi;
    /* Of the function's PCI Express link; 0: not known. */
    unsigned generation, generation_max, width, width_max;
    pid_t holder; /* a process that has it open; 0: none that this user can see */
    char holder_name[32];
};

struct via_found_paths {
    const char *root; /* "" or a folder that stands for /: tests */
};

/* Known functions, by address; their number, or negative errno. ret_found: VIA_FOUND_MAX. */
VIA_MUST_CHECK int via_found_scan(const struct via_found_paths *paths, struct via_found *ret_found,
                                  struct via_error *err);
/* One function. -ENODEV: there is none of this address, or its chip is not known. */
VIA_MUST_CHECK int via_found_get(const struct via_found_paths *paths, const char *address,
                                 struct via_found *ret_found, struct via_error *err);

/*
 * Takes the function from its driver and gives it to vfio-pci. On an error driver and
 * driver_override are those that it had. -EBUSY: a process has it open, or changes its driver now.
 * err is not NULL.
 */
VIA_MUST_CHECK int via_found_bind(const struct via_found_paths *paths, const char *address,
                                  struct via_error *err);
/* Takes it from vfio-pci; a driver of the kernel's that knows it may take it. On an error vfio-pci
 * has it, as before. err is not NULL. */
VIA_MUST_CHECK int via_found_unbind(const struct via_found_paths *paths, const char *address,
                                    struct via_error *err);

#endif
