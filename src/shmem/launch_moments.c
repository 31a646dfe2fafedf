/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Shows which PE of a job over several machines waits for which: oshrun queries the agents, and
 * forwards their answers to standard error (SIGQUIT), to `oshrun --trace` on this machine, and to
 * agents that request them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shmem/launch_board.h"
#include "shmem/launch_remote_state.h"

/* Agents that are slower are shown as silent. */
#define ANSWER_NS (2 * VIA_SEC_NS)

static void name_place(const void *ctx, uint32_t pe, char *text, size_t bytes)
{
    const struct via_launch *launch = ctx;

    snprintf(text, bytes, " on %s", via_launch_remote_name(launch, launch->place.node_of[pe]));
}

/* --- requesting ------------------------------------------------------------------------------- */

void via_launch_remote_trace(struct via_launch *launch)
{
    launch->remote->trace_to_stderr = true;
}

static bool is_wanted(struct via_launch_remote *remote)
{
    bool wanted = via_launch_board_is_wanted(remote->board, &remote->board_number);

    for (uint32_t i = 0; i < remote->count; i++)
        wanted |= remote->machines[i].wants_moments;
    return wanted || remote->trace_to_stderr;
}

static bool is_complete(const struct via_launch_remote *remote)
{
    for (uint32_t i = 0; i < remote->count; i++)
        if (remote->machines[i].requested)
            return false;
    return true;
}

static void request_moments(struct via_launch *launch)
{
    struct via_launch_remote *remote = launch->remote;

    remote->moments = calloc(launch->options.pes_count, sizeof(*remote->moments));
    remote->request_ns = via_launch_now_ns();
    for (uint32_t pe = 0; pe < launch->options.pes_count && remote->moments; pe++) {
        const struct via_launch_machine *machine = &remote->machines[launch->place.node_of[pe]];
        bool ended = !via_launch_machine_is_there(machine);
        remote->moments[pe].known = ended ? VIA_LAUNCH_KNOWN : VIA_LAUNCH_SILENT;
        remote->moments[pe].process = 'X';
    }
    for (uint32_t i = 0; i < remote->count && remote->moments; i++) {
        struct via_launch_machine *machine = &remote->machines[i];
        /* An agent that has not answered the previous request yet gets no second request: its
         * answer is still to come. */
        if (machine->state != VIA_LAUNCH_MACHINE_RUNNING || machine->requested)
            continue;
        machine->requested = true;
        via_launch_link_send(&machine->link, VIA_LAUNCH_STATES, NULL);
    }
}

/* --- forwarding ------------------------------------------------------------------------------- */

static void print(const struct via_launch *launch)
{
    const struct via_launch_view view = {.id = launch->remote->job,
                                         .launcher_pid = getpid(),
                                         .count = launch->options.pes_count,
                                         .moments = launch->remote->moments,
                                         .name_place = name_place,
                                         .ctx = launch};

    if (via_launch_trace_print(stderr, &view) < 0)
        via_launch_print("the trace can not be printed: %s", strerror(errno));
}

static void fill_board(const struct via_launch *launch)
{
    struct via_launch_board *board = launch->remote->board;
    char place[VIA_LAUNCH_PE_NAME_BYTES];

    via_launch_board_begin(board);
    for (uint32_t pe = 0; pe < launch->options.pes_count; pe++) {
        name_place(launch, pe, place, sizeof(place));
        via_launch_board_fill(board, pe, place, &launch->remote->moments[pe]);
    }
    via_launch_board_end(board, launch->remote->board_number);
}

static void send_moments(const struct via_launch *launch, struct via_launch_machine *machine)
{
    char place[VIA_LAUNCH_PE_NAME_BYTES];

    for (uint32_t pe = 0; pe < launch->options.pes_count; pe++) {
        struct via_launch_bytes payload = {0};
        name_place(launch, pe, place, sizeof(place));
        via_launch_put_u32(&payload, pe);
        via_launch_put_text(&payload, place);
        via_launch_moment_put(&payload, &launch->remote->moments[pe]);
        via_launch_link_send(&machine->link, VIA_LAUNCH_MOMENT, &payload);
        via_launch_bytes_fini(&payload);
    }
    via_launch_link_send(&machine->link, VIA_LAUNCH_MOMENTS_END, NULL);
}

static void pass_on(struct via_launch *launch)
{
    struct via_launch_remote *remote = launch->remote;

    if (remote->trace_to_stderr)
        print(launch);
    remote->trace_to_stderr = false;
    fill_board(launch);
    for (uint32_t i = 0; i < remote->count; i++) {
        struct via_launch_machine *machine = &remote->machines[i];
        if (machine->wants_moments && via_launch_machine_is_there(machine))
            send_moments(launch, machine);
        machine->wants_moments = false;
    }
}

void via_launch_remote_check_trace(struct via_launch *launch)
{
    struct via_launch_remote *remote = launch->remote;

    if (!remote->moments && remote->started && is_wanted(remote))
        request_moments(launch);
    if (!remote->moments ||
        (!is_complete(remote) && via_launch_now_ns() - remote->request_ns < ANSWER_NS))
        return;
    pass_on(launch);
    free(remote->moments);
    remote->moments = NULL;
}

/* --- messages of agents ---------------------------------------------------------------------- */

bool via_launch_on_moment(struct via_launch *launch, struct via_launch_machine *machine,
                          struct via_launch_parts *parts)
{
    struct via_launch_moment moment;
    uint32_t pe = via_launch_take_u32(parts);

    (void)via_launch_take_text(parts); /* oshrun knows the machine's name */
    via_launch_moment_parse(parts, &moment);
    if (!via_launch_parts_is_end(parts) || !via_launch_is_on(launch, pe, machine))
        return false;
    if (launch->remote->moments)
        launch->remote->moments[pe] = moment;
    return true;
}

bool via_launch_on_moments_end(struct via_launch_machine *machine,
                               const struct via_launch_parts *parts)
{
    if (!via_launch_parts_is_end(parts) || !machine->requested)
        return false;
    machine->requested = false;
    return true;
}

bool via_launch_on_trace(struct via_launch_machine *machine, const struct via_launch_parts *parts)
{
    if (!via_launch_parts_is_end(parts) || machine->state != VIA_LAUNCH_MACHINE_RUNNING)
        return false;
    machine->wants_moments = true;
    return true;
}
