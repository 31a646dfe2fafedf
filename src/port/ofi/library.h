/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * libfabric, loaded when the first link needs it: a host without such links runs on a machine
 * without it. Everything else of its interface is a call through tables of the objects it returns.
 */
#ifndef VIA_PORT_OFI_LIBRARY_H
#define VIA_PORT_OFI_LIBRARY_H

#include <rdma/fabric.h>

#include "base/error.h"

#define VIA_OFI_VERSION FI_VERSION(1, 17)

struct via_ofi_library {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct fi_info **ret_info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info); /* of NULL: an empty one */
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **ret_fabric, void *context);
    const char *(*strerror)(int code);
};

/* Stays loaded until the process ends. Any thread. NULL: err says why. */
const struct via_ofi_library *via_ofi_library_load(struct via_error *err);

#endif
