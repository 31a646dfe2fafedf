/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Opening an ofi port; docs/ofi-port.md has the promises that it keeps. */
#ifndef VIA_PORT_OFI_OPS_H
#define VIA_PORT_OFI_OPS_H

#include "base/error.h"
#include "core/port.h"
#include "port/driver.h"
#include "port/ofi/hub.h"

struct via_ofi_options {
    const struct via_ofi_system *system; /* borrowed until close */
    const char *provider;
    struct via_ofi_place place;         /* of the peer */
    struct via_ofi_place listen;        /* of this process, for all links of the provider */
    bool unordered;                     /* tests: treat the provider as one that keeps no order */
    bool encrypted;                     /* the host has a fabric key, and the peer encrypts too */
    const struct via_driver_host *host; /* borrowed until close; side 0 is the lower id */
};

VIA_MUST_CHECK int via_ofi_port_open(const struct via_ofi_options *options,
                                     struct via_port **ret_port, struct via_error *err);

#endif
