/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Stands in for the fabric key's hash (via_driver_host.mac) where no code tries to break it. */
#ifndef SIM_OFI_MAC_H
#define SIM_OFI_MAC_H

#include "base/hash.h"

static inline void sim_ofi_mac(uint64_t key, const void *data, size_t bytes, uint8_t ret_mac[32])
{
    uint64_t hash = via_hash64(key, data, bytes);
    for (unsigned i = 0; i < 32; i++) {
        ret_mac[i] = (uint8_t)(hash >> i % 8 * 8);
    }
}

#endif
