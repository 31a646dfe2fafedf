/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * An end between hosts is killed, or its program calls exec() and so returns to the kernel, at any
 * step; in particular while either end spills.
 *
 * Bytes that a killed process had posted still arrive: its host delivers them. So its peer gets all
 * of them, once, in order, and then the end of file. Only those bytes are lost that it was about to
 * send again, because its peer had left, and that the peer can not read in the pipe any more.
 */
#include "sim/streams_hosts.h"

void sim_hosts_draw_fate(struct hosts *hosts, struct end *end)
{
    end->kill = fate_draw(&hosts->fate, hosts->config->kill_chance);
    end->exec = fate_draw(&hosts->fate, hosts->config->exec_chance);
}

bool sim_hosts_is_alive(struct hosts *hosts, unsigned number, unsigned which)
{
    struct connection *connection = &hosts->connections[number];
    struct end *end = &connection->ends[which];
    bool spills = end->stall.spills || connection->ends[1 - which].stall.spills;
    if (fate_is_due(&end->exec, spills) && !via_phase_is_in(end->phase, VIA_PHASES_GONE)) {
        end->execs = true;
        hosts->result->execs++;
        sim_hosts_trace(hosts, number, which, "calls exec, spills", spills);
    }
    if (!fate_is_due(&end->kill, spills)) {
        return true;
    }
    end->dead = true;
    end->out->fin_at_death = end->out->fin_sent;
    hosts->result->kills++;
    sim_hosts_trace(hosts, number, which, "is killed, sent", end->out->sent);
    sim_hosts_kernel_send(hosts, number, which, "", 0); /* the kernel closes its sockets */
    return false;
}

bool sim_hosts_all_is_there(const struct connection *connection, unsigned which)
{
    const struct end *peer = &connection->ends[1 - which];
    return peer->dead && peer->line.count == 0 && peer->out->fin_arrived;
}

bool sim_hosts_is_all(const struct connection *connection, unsigned which)
{
    const struct end *peer = &connection->ends[1 - which];
    const struct way *way = connection->ends[which].in;
    if (way->received == way->total) {
        return true;
    }
    bool some = via_phase_is_in(peer->phase, VIA_PHASES_REPLAY);
    return peer->dead && !way->fin_at_death &&
           (some ? way->received <= way->sent : way->received == way->sent);
}

void sim_hosts_give_up(struct hosts *hosts, unsigned number, unsigned which)
{
    struct end *end = &hosts->connections[number].ends[which];
    end->out->fin_sent = true;
    if (via_phase_is_in(end->phase, VIA_PHASES_REPLAY)) {
        sim_hosts_event(hosts, number, which, VIA_EVENT_REPLAY);
    }
    end->burst.bytes = 0;
}
