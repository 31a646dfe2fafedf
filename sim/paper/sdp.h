/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * System D: two hosts, host adapters on PCIe, one link, and connections that all send the same way,
 * each with a thread at either end that sends or receives without a pause.
 *
 * Buffered: the sender copies into private buffers, as many as the receiver has granted; the
 * adapters move each buffer; the receiver copies it out and grants it again. Zero copy: the sender
 * pins and registers its own buffer and advertises it (SrcAvail); the receiver pins and registers
 * the buffer of its recv(), reads the sender's by RDMA, and says so (RdmaRdCompl); send() returns.
 * One send of a connection is under way at a time, because it is synchronous.
 */
#ifndef SIM_PAPER_SDP_H
#define SIM_PAPER_SDP_H

#include "sim/cost/actor.h"
#include "sim/cost/pcie.h"

#define SIM_SDP_CONNECTIONS_MAX 64u

struct sim_sdp_result {
    double bytes_per_s;        /* all connections together */
    double sender_cpu_percent; /* of one processor, so two busy ones are 200 */
    double receiver_cpu_percent;
};

void sim_sdp_run(const struct sim_scenario *scenario, unsigned connections_count, bool zero_copy,
                 struct sim_sdp_result *ret_result);

#endif
