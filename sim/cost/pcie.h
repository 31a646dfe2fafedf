/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The arithmetic of one PCIe link, after pcie-bench (Neugebauer et al., "Understanding PCIe
 * performance for end host networking", SIGCOMM 2018, section 3):
 *
 *     TLP bandwidth = raw * (1 - 8/(AckLimit * lanes) - 8/(FCguide * lanes) - 4/1538)
 *
 * where raw counts the line code, the next two terms are the Ack and UpdateFC DLLPs and the last
 * the SKP ordered sets. AckLimit and FCguide are the same number: the PCIe base specification's
 * Ack latency limit, (MPS + 28) * AckFactor / lanes + InternalDelay symbol times. A symbol time is
 * that of a byte on each lane. pcie-bench's formula leaves `lanes` out: for Gen3 x8 its DLLPs take
 * 8 % of the link, where these take 1 %. Devices have been measured above its ceiling
 * (docs/costs.md).
 */
#ifndef SIM_COST_PCIE_H
#define SIM_COST_PCIE_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_PCIE_GENERATION_MAX 5u

struct sim_pcie_link {
    unsigned generation; /* 1 to SIM_PCIE_GENERATION_MAX */
    unsigned lanes;      /* 1, 2, 4, 8, 16 */
    unsigned mps_bytes;  /* largest payload of a TLP */
    bool dllp;           /* with DLLPs and SKPs: the full model */
};

/* Bytes per second of the lanes, line code taken off. */
double sim_pcie_raw(const struct sim_pcie_link *link);
/* The specification's Ack latency limit in symbol times. */
unsigned sim_pcie_ack_limit(const struct sim_pcie_link *link);
/* The share left for TLPs. */
double sim_pcie_tlp_bandwidth(const struct sim_pcie_link *link);

/* The time that `tlps` TLPs with `payload` bytes in all and `header` bytes each occupy a link of
 * that TLP bandwidth. */
uint64_t sim_pcie_ps(double tlp_bandwidth, uint64_t tlps, uint64_t payload, unsigned header);

/*
 * TLPs of a transfer that begins at a multiple of `unit`: writes are cut at MPS, read requests at
 * MRRS, completions at MPS or RCB, and none crosses 4 KiB, which all of these divide.
 */
static inline uint64_t sim_pcie_tlps(uint64_t bytes, unsigned unit)
{
    return bytes == 0 ? 1 : (bytes + unit - 1) / unit;
}

#endif
