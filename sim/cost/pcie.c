/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/cost/pcie.h"

#include <assert.h>
#include <math.h>

#include "sim/cost/cost.h"

/* GT/s, that is 1e9 bits per second and lane, and the share of them that the line code leaves. */
static const struct {
    double gt, code;
} generations[SIM_PCIE_GENERATION_MAX + 1] = {
    {0, 0}, {2.5, 0.8}, {5, 0.8}, {8, 128.0 / 130}, {16, 128.0 / 130}, {32, 128.0 / 130},
};

double sim_pcie_raw(const struct sim_pcie_link *link)
{
    assert(link->generation >= 1 && link->generation <= SIM_PCIE_GENERATION_MAX);
    return link->lanes * generations[link->generation].gt * generations[link->generation].code *
           1e9 / 8;
}

/*
 * PCIe base specification 3.0, 3.5.2.1: tables 3-7 to 3-9 are this formula. Later revisions no
 * longer have such tables for their rates; the 8 GT/s delay is taken for them.
 */
unsigned sim_pcie_ack_limit(const struct sim_pcie_link *link)
{
    static const unsigned internal_delay[] = {0, 19, 70, 115, 115, 115};
    const double tlp_overhead = 28;
    double factor;
    if (link->mps_bytes <= 256) {
        factor = link->lanes <= 4 ? 1.4 : link->lanes <= 8 ? 2.5 : 3.0;
    } else {
        factor = link->lanes <= 8 ? 1.0 : 2.0;
    }
    return (unsigned)(floor((link->mps_bytes + tlp_overhead) * factor / link->lanes +
                            internal_delay[link->generation]));
}

double sim_pcie_tlp_bandwidth(const struct sim_pcie_link *link)
{
    if (!link->dllp) {
        return sim_pcie_raw(link);
    }
    /* A DLLP is 8 bytes with its framing; Ack and UpdateFC may each come once per limit. In a
     * symbol time every lane carries a byte. */
    double dllps = 2 * 8.0 / (sim_pcie_ack_limit(link) * link->lanes);
    return sim_pcie_raw(link) * (1 - dllps - 4.0 / 1538);
}

uint64_t sim_pcie_ps(double tlp_bandwidth, uint64_t tlps, uint64_t payload, unsigned header)
{
    double bytes = (double)payload + (double)(tlps * header);
    return (uint64_t)llround(bytes * (double)SIM_SEC_PS / tlp_bandwidth);
}
