/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * libfabric, loaded with dlopen() when the first link needs it, so that a host without such links
 * runs on a machine without libfabric. All other libfabric calls go through the function tables of
 * the objects that these functions return.
 */
#ifndef VIA_PORT_OFI_LIBRARY_H
#define VIA_PORT_OFI_LIBRARY_H

#include <rdma/fabric.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define VIA_OFI_VERSION FI_VERSION(1, 17)
/* FI_ORDER_STRICT: completions in the order of the operations. libfabric 2 has deprecated the name,
 * and compilers warn of it. */
#define VIA_OFI_ORDER_STRICT UINT64_C(0x1ff)

struct via_ofi_library {
    /* comp_order may be requested. libfabric 2 finds no provider unless it is 0, fi_endpoint(3);
     * its providers tcp and verbs complete receives in their order nevertheless. */
    bool has_completion_order;
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
