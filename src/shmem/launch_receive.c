/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Handles the messages of agents: checks each before it is used, and answers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shmem/launch_remote_state.h"

#define EXIT_CODE_MISSING 127

/* --- starting --------------------------------------------------------------------------------- */

static bool has_distinct_hosts(struct via_launch *launch)
{
    const struct via_launch_machine *machines = launch->remote->machines;

    for (uint32_t i = 0; i < launch->remote->count && launch->place.fabric; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (machines[i].host != machines[k].host)
                continue;
            via_launch_print("%s and %s: both are host %u of the fabric", machines[k].name,
                             machines[i].name, machines[i].host);
            via_launch_give_up(launch, 1);
            return false;
        }
        launch->place.host_of[i] = machines[i].host;
    }
    return true;
}

static void start_pes(struct via_launch *launch)
{
    struct via_launch_remote *remote = launch->remote;
    struct via_launch_bytes payload = {0};

    if (!has_distinct_hosts(launch))
        return;
    via_launch_put_u64(&payload, remote->job);
    for (uint32_t i = 0; i < remote->count; i++)
        via_launch_put_u32(&payload, remote->machines[i].host);
    via_launch_send_all(launch, VIA_LAUNCH_START, &payload, NULL);
    via_launch_bytes_fini(&payload);
}

/* --- messages of an agent -------------------------------------------------------------------- */

static bool on_hello(struct via_launch *launch, struct via_launch_machine *machine,
                     struct via_launch_parts *parts)
{
    machine->host = via_launch_take_u32(parts);
    if (!via_launch_parts_is_end(parts) || machine->state != VIA_LAUNCH_MACHINE_STARTING)
        return false;
    machine->state = VIA_LAUNCH_MACHINE_READY;
    if (via_launch_machines_is_known(launch->remote, VIA_LAUNCH_MACHINE_READY))
        start_pes(launch);
    return true;
}

static bool on_failed(struct via_launch *launch, struct via_launch_machine *machine,
                      struct via_launch_parts *parts)
{
    uint32_t code = via_launch_take_u32(parts);
    const char *text = via_launch_take_text(parts);

    if (!via_launch_parts_is_end(parts) || machine->state >= VIA_LAUNCH_MACHINE_RUNNING)
        return false;
    via_launch_print("%s: %s", machine->name, text);
    via_launch_give_up(launch, code == EXIT_CODE_MISSING ? EXIT_CODE_MISSING : 1);
    return true;
}

static bool on_started(struct via_launch *launch, struct via_launch_machine *machine,
                       struct via_launch_parts *parts)
{
    uint32_t count = 0, expected = 0;

    if (machine->state != VIA_LAUNCH_MACHINE_READY)
        return false;
    for (uint32_t pe = 0; pe < launch->options.pes_count; pe++)
        expected += via_launch_is_on(launch, pe, machine);
    while (!via_launch_parts_is_end(parts)) {
        uint32_t pe = via_launch_take_u32(parts), pid = via_launch_take_u32(parts);
        if (parts->failed || !via_launch_is_on(launch, pe, machine) || pid == 0 ||
            pid > INT32_MAX || launch->pes[pe].pid != 0)
            return false;
        launch->pes[pe].pid = (pid_t)pid;
        count++;
    }
    if (count != expected)
        return false;
    machine->state = VIA_LAUNCH_MACHINE_RUNNING;
    launch->remote->started =
        via_launch_machines_is_known(launch->remote, VIA_LAUNCH_MACHINE_RUNNING);
    return true;
}

static bool on_output(struct via_launch *launch, struct via_launch_machine *machine,
                      struct via_launch_parts *parts)
{
    uint32_t pe = via_launch_take_u32(parts), stream = via_launch_take_u32(parts);
    size_t bytes = (size_t)(parts->end - parts->at);

    if (parts->failed || !via_launch_is_on(launch, pe, machine) || stream > 1 ||
        machine->owed_bytes + bytes > VIA_LAUNCH_WINDOW_BYTES)
        return false;
    machine->owed_bytes += (uint32_t)bytes;
    if (launch->options.tag)
        via_launch_stream_feed(&launch->streams[2 * pe + stream], parts->at, bytes);
    else
        via_launch_put(&launch->remote->out[stream], parts->at, bytes);
    return true;
}

static bool on_input_ack(struct via_launch *launch, struct via_launch_parts *parts)
{
    struct via_launch_remote *remote = launch->remote;
    uint32_t bytes = via_launch_take_u32(parts);

    if (!via_launch_parts_is_end(parts))
        return false;
    if (bytes == UINT32_MAX)
        remote->input_ended = true;
    else if (bytes > remote->input_bytes)
        return false;
    else
        remote->input_bytes -= bytes;
    return true;
}

static bool on_ended(struct via_launch *launch, struct via_launch_machine *machine,
                     struct via_launch_parts *parts)
{
    uint32_t pe = via_launch_take_u32(parts), pid = via_launch_take_u32(parts);
    uint32_t status = via_launch_take_u32(parts), state = via_launch_take_u32(parts);

    /* A PE that has not started, or has ended, has the pid 0 here. */
    if (!via_launch_parts_is_end(parts) || !via_launch_is_on(launch, pe, machine) || pid == 0 ||
        launch->pes[pe].pid != (pid_t)pid || status > UINT16_MAX || WIFSTOPPED((int)status) ||
        state > VIA_JOB_CUT_OFF)
        return false;
    launch->pes[pe].pid = 0;
    via_launch_pe_ended(launch, pe, (pid_t)pid, (int)status, (enum via_job_state)state);
    return true;
}

static bool on_exit_of(struct via_launch *launch, struct via_launch_machine *machine,
                       struct via_launch_parts *parts)
{
    uint32_t pe = via_launch_take_u32(parts), status = via_launch_take_u32(parts);
    struct via_launch_bytes payload = {0};

    if (!via_launch_parts_is_end(parts) || !via_launch_is_on(launch, pe, machine))
        return false;
    if (via_launch_is_over(launch))
        return true;
    via_launch_global_exit(launch, pe, (int)status);
    via_launch_put_u32(&payload, pe);
    via_launch_put_u32(&payload, status);
    via_launch_send_all(launch, VIA_LAUNCH_EXIT, &payload, machine);
    via_launch_bytes_fini(&payload);
    return true;
}

/* --- gates ------------------------------------------------------------------------------------ */

static void open_gate(struct via_launch *launch)
{
    struct via_launch_remote *remote = launch->remote;
    struct via_launch_bytes payload = {0};

    via_launch_put_u32(&payload, ++remote->generation);
    for (uint32_t pe = 0; pe < launch->options.pes_count; pe++) {
        via_launch_put_u32(&payload, pe);
        for (unsigned i = 0; i < VIA_JOB_WORDS; i++)
            via_launch_put_u64(&payload, remote->words[(size_t)pe * VIA_JOB_WORDS + i]);
    }
    for (uint32_t i = 0; i < remote->count; i++)
        remote->machines[i].at_gate = false;
    via_launch_send_all(launch, VIA_LAUNCH_GATE, &payload, NULL);
    via_launch_bytes_fini(&payload);
}

static bool on_gate(struct via_launch *launch, struct via_launch_machine *machine,
                    struct via_launch_parts *parts)
{
    struct via_launch_remote *remote = launch->remote;

    if (via_launch_take_u32(parts) != remote->generation + 1 || machine->at_gate ||
        machine->state != VIA_LAUNCH_MACHINE_RUNNING)
        return false;
    while (!via_launch_parts_is_end(parts)) {
        uint32_t pe = via_launch_take_u32(parts);
        if (parts->failed || !via_launch_is_on(launch, pe, machine))
            return false;
        for (unsigned i = 0; i < VIA_JOB_WORDS; i++)
            remote->words[(size_t)pe * VIA_JOB_WORDS + i] = via_launch_take_u64(parts);
    }
    machine->at_gate = true;
    for (uint32_t i = 0; i < remote->count; i++)
        if (!remote->machines[i].at_gate)
            return true;
    open_gate(launch);
    return true;
}

/* --- all of them ------------------------------------------------------------------------------ */

static bool on_done(struct via_launch *launch, struct via_launch_machine *machine,
                    const struct via_launch_parts *parts)
{
    if (!via_launch_parts_is_end(parts) || machine->state != VIA_LAUNCH_MACHINE_RUNNING)
        return false;
    for (uint32_t pe = 0; pe < launch->options.pes_count; pe++)
        if (via_launch_is_on(launch, pe, machine) && launch->pes[pe].pid > 0)
            return false;
    via_launch_leave(launch, machine);
    return true;
}

/* False if an agent may not send this message now. */
static bool on_frame(struct via_launch *launch, struct via_launch_machine *machine,
                     struct via_launch_frame *frame)
{
    struct via_launch_parts *parts = &frame->parts;

    switch (frame->type) {
    case VIA_LAUNCH_HELLO:
        return on_hello(launch, machine, parts);
    case VIA_LAUNCH_FAILED:
        return on_failed(launch, machine, parts);
    case VIA_LAUNCH_STARTED:
        return on_started(launch, machine, parts);
    case VIA_LAUNCH_OUTPUT:
        return on_output(launch, machine, parts);
    case VIA_LAUNCH_INPUT_ACK:
        return on_input_ack(launch, parts);
    case VIA_LAUNCH_ENDED:
        return on_ended(launch, machine, parts);
    case VIA_LAUNCH_MOMENT:
        return via_launch_on_moment(launch, machine, parts);
    case VIA_LAUNCH_MOMENTS_END:
        return via_launch_on_moments_end(machine, parts);
    case VIA_LAUNCH_TRACE:
        return via_launch_on_trace(machine, parts);
    case VIA_LAUNCH_DONE:
        return on_done(launch, machine, parts);
    case VIA_LAUNCH_GATE:
        return on_gate(launch, machine, parts);
    case VIA_LAUNCH_EXIT:
        return on_exit_of(launch, machine, parts);
    case VIA_LAUNCH_PING:
        machine->takes_part = via_launch_take_u32(parts) != 0;
        return via_launch_parts_is_end(parts);
    default:
        return false;
    }
}

void via_launch_receive(struct via_launch *launch, struct via_launch_machine *machine)
{
    struct via_launch_frame frame;
    struct via_error err = {0};
    char text[80];
    int result = 0;

    while (via_launch_machine_is_there(machine) &&
           (result = via_launch_link_take(&machine->link, &frame, &err)) == 1) {
        if (!on_frame(launch, machine, &frame)) {
            snprintf(text, sizeof(text), "oshrun there sent an invalid message (%u)", frame.type);
            via_launch_lose(launch, machine, text);
            return;
        }
    }
    if (result < 0)
        via_launch_lose(launch, machine, via_error_describe(&err));
}
