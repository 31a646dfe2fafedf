/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Finds PCI functions that a fabric can use in sysfs, and binds and unbinds their kernel drivers.
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
    const char *link;    /* Viaduct's driver for links; NULL: none */
    unsigned window_bar; /* the BAR of the window; 0: no window */
};

struct via_found_bar {
    uint64_t bytes;
    bool is_unassigned; /* it has a size but no address */
    bool is_prefetchable;
    bool has_write_combining; /* the kernel offers a write-combined mapping */
};

struct via_found {
    char address[16];
    const struct via_found_chip *chip; /* never NULL */
    unsigned revision;
    char driver[64]; /* kernel driver; "": none */
    char group[16];  /* IOMMU group; "": none */
    char file[16];   /* in /dev/vfio/devices, if bound to vfio-pci; "": none */
    /* Functions of the same group that are bound to a driver other than vfio-pci. */
    unsigned neighbours_count;
    char neighbours[VIA_FOUND_NEIGHBOURS_MAX][16];
    struct via_found_bar bars[VIA_FOUND_BARS];
    bool has_msi, has_msix;
    bool bus_refuses_msi;
    /* Of the PCI Express link; 0: not known. */
    unsigned generation, generation_max, width, width_max;
    pid_t holder; /* a process that has the function open; 0: none visible to this user */
    char holder_name[32];
};

struct via_found_paths {
    const char *root; /* "", or a folder used in place of / by tests */
};

/* Finds all known functions, sorted by address. Returns their number, or negative errno. ret_found
 * has VIA_FOUND_MAX elements. */
VIA_MUST_CHECK int via_found_scan(const struct via_found_paths *paths, struct via_found *ret_found,
                                  struct via_error *err);
/* Finds one function. -ENODEV: no function has this address, or its chip is not known. */
VIA_MUST_CHECK int via_found_get(const struct via_found_paths *paths, const char *address,
                                 struct via_found *ret_found, struct via_error *err);

/*
 * Unbinds the function from its driver and binds it to vfio-pci. On an error, driver and
 * driver_override are restored. -EBUSY: a process has the function open, or is changing its driver.
 * err is not NULL.
 */
VIA_MUST_CHECK int via_found_bind(const struct via_found_paths *paths, const char *address,
                                  struct via_error *err);
/* Unbinds the function from vfio-pci; the kernel may then bind a matching driver. On an error the
 * function stays bound to vfio-pci. err is not NULL. */
VIA_MUST_CHECK int via_found_unbind(const struct via_found_paths *paths, const char *address,
                                    struct via_error *err);

#endif
