/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A job over several machines, seen from oshrun: one loop over its agents. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shmem/launch_board.h"
#include "shmem/launch_remote_state.h"

#define AGENT_DEFAULT "ssh -x -o BatchMode=yes"

#define START_NS (60 * VIA_SEC_NS)    /* until all agents have answered */
#define PING_NS (200 * VIA_MSEC_NS)   /* at the most */
#define KILLED_NS (300 * VIA_MSEC_NS) /* from SIGKILL until agents are given up */
#define REAP_NS (500 * VIA_MSEC_NS)   /* wait for commands whose streams are closed */
#define WHY_NS (100 * VIA_MSEC_NS)    /* wait for an exit code after the streams ended */
#define REAP_US 5000u

/* Limit of the output that waits for the reader of oshrun's output; above it agents must wait. */
#define OUT_BYTES_ENOUGH 65536u
#define INPUT_BYTES 16384u
#define POLLS_OWN 4u
#define POLLS_EACH 3u

const char *via_launch_remote_name(const struct via_launch *launch, uint32_t node)
{
    return launch->remote->machines[node].name;
}

/* --- lost machines --------------------------------------------------------------------------- */

static void reap(struct via_launch_machine *machine)
{
    if (machine->pid > 0 && waitpid(machine->pid, &machine->status, WNOHANG) == machine->pid)
        machine->pid = 0;
}

static void reap_all(struct via_launch *launch)
{
    for (uint32_t i = 0; i < launch->remote->count; i++)
        reap(&launch->remote->machines[i]);
}

static void wait_for_command(struct via_launch_machine *machine, uint64_t ns)
{
    uint64_t end_ns = via_launch_now_ns() + ns;

    for (reap(machine); machine->pid > 0 && via_launch_now_ns() < end_ns; reap(machine))
        usleep(REAP_US);
}

/* "PE 2" or "PEs 2-3" */
static const char *name_pes(const struct via_launch *launch, uint32_t node, char text[64])
{
    uint32_t first = 0, last;

    while (launch->place.node_of[first] != node)
        first++;
    last = first;
    while (last + 1 < launch->options.pes_count && launch->place.node_of[last + 1] == node)
        last++;
    snprintf(text, 64, last > first ? "PEs %u-%u" : "PE %u", first, last);
    return text;
}

void via_launch_leave(struct via_launch *launch, struct via_launch_machine *machine)
{
    if (!via_launch_machine_is_there(machine))
        return;
    machine->requested = false;
    machine->state = VIA_LAUNCH_MACHINE_GONE;
    machine->takes_part = false;
    via_launch_link_close(&machine->link);
    for (uint32_t pe = 0; pe < launch->options.pes_count; pe++)
        if (via_launch_is_on(launch, pe, machine) && launch->pes[pe].pid > 0)
            launch->pes[pe].pid = 0;
}

void via_launch_give_up(struct via_launch *launch, int exit_code)
{
    launch->exit_code = exit_code;
    launch->phase = VIA_LAUNCH_KILLED;
    for (uint32_t i = 0; i < launch->remote->count; i++)
        via_launch_leave(launch, &launch->remote->machines[i]);
}

void via_launch_lose(struct via_launch *launch, struct via_launch_machine *machine,
                     const char *cause)
{
    uint32_t node = (uint32_t)(machine - launch->remote->machines);
    char pes[64];

    if (via_launch_is_over(launch)) {
        via_launch_leave(launch, machine);
        return;
    }
    /* A machine that is not ready yet has no PEs. */
    if (machine->state == VIA_LAUNCH_MACHINE_STARTING) {
        via_launch_print("%s: %s", machine->name, cause);
        via_launch_give_up(launch, 1);
        return;
    }
    via_launch_leave(launch, machine);
    via_launch_print("%s on %s: the machine is lost: %s; the job is ended",
                     name_pes(launch, node, pes), machine->name, cause);
    if (launch->remote->started)
        via_launch_end_job(launch, 1, SIGTERM);
    else
        via_launch_give_up(launch, 1);
}

static void lose_by_end(struct via_launch *launch, struct via_launch_machine *machine)
{
    char text[400];

    if (via_launch_is_over(launch)) {
        via_launch_leave(launch, machine);
        return;
    }
    wait_for_command(machine, WHY_NS);
    if (machine->error_fd >= 0)
        via_launch_agent_errors(machine);
    via_launch_lose(launch, machine, via_launch_agent_describe(machine, text));
}

bool via_launch_machines_is_known(const struct via_launch_remote *remote,
                                  enum via_launch_machine_state state)
{
    for (uint32_t i = 0; i < remote->count; i++)
        if (remote->machines[i].state < state)
            return false;
    return true;
}

/* --- sending ---------------------------------------------------------------------------------- */

void via_launch_send_all(struct via_launch *launch, enum via_launch_message type,
                         const struct via_launch_bytes *payload,
                         const struct via_launch_machine *except)
{
    for (uint32_t i = 0; i < launch->remote->count; i++) {
        struct via_launch_machine *machine = &launch->remote->machines[i];
        if (via_launch_machine_is_there(machine) && machine != except)
            via_launch_link_send(&machine->link, type, payload);
    }
}

/* The reader of the connection reports that it is broken. */
static void write_all(struct via_launch *launch)
{
    for (uint32_t i = 0; i < launch->remote->count; i++)
        if (via_launch_machine_is_there(&launch->remote->machines[i]) &&
            via_launch_link_write(&launch->remote->machines[i].link) < 0)
            continue;
}

void via_launch_remote_signal(struct via_launch *launch, int signal_number)
{
    struct via_launch_bytes payload = {0};

    via_launch_put_u32(&payload, (uint32_t)signal_number);
    via_launch_put_u32(&payload, via_launch_is_over(launch));
    via_launch_send_all(launch, VIA_LAUNCH_SIGNAL, &payload, NULL);
    via_launch_bytes_fini(&payload);
    /* The message is sent at once, because oshrun itself may be about to stop. */
    write_all(launch);
    if (launch->phase == VIA_LAUNCH_KILLED)
        launch->remote->killed_ns = via_launch_now_ns() + KILLED_NS;
}

bool via_launch_remote_has_members(const struct via_launch *launch)
{
    for (uint32_t i = 0; i < launch->remote->count; i++)
        if (launch->remote->machines[i].takes_part)
            return true;
    return false;
}

static void read_machine(struct via_launch *launch, struct via_launch_machine *machine)
{
    int result = via_launch_link_read(&machine->link);

    machine->received_ns = via_launch_now_ns();
    via_launch_receive(launch, machine);
    if (result < 0 && via_launch_machine_is_there(machine))
        lose_by_end(launch, machine);
}

/* --- streams ---------------------------------------------------------------------------------- */

static void write_out(struct via_launch_bytes *out, int fd)
{
    /* PIPE_BUF (4096) bytes fit if poll() reports POLLOUT: pipe(7). */
    ssize_t done = write(fd, out->data, via_min(out->used, (size_t)4096));

    if (done < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    /* The reader has closed the pipe: discard the rest. */
    via_launch_bytes_drop(out, done < 0 ? out->used : (size_t)done);
}

static void acknowledge(struct via_launch_remote *remote)
{
    if (via_max(remote->out[0].used, remote->out[1].used) > OUT_BYTES_ENOUGH)
        return;
    for (uint32_t i = 0; i < remote->count; i++) {
        struct via_launch_machine *machine = &remote->machines[i];
        if (via_launch_machine_is_there(machine) && machine->owed_bytes > 0)
            via_launch_link_send_u32(&machine->link, VIA_LAUNCH_OUTPUT_ACK, machine->owed_bytes);
        machine->owed_bytes = 0;
    }
}

static bool is_input_wanted(const struct via_launch_remote *remote)
{
    return remote->started && !remote->input_ended &&
           via_launch_machine_is_there(&remote->machines[0]) &&
           remote->input_bytes < VIA_LAUNCH_WINDOW_BYTES - INPUT_BYTES &&
           (!isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) == getpgrp());
}

static void read_input(struct via_launch_remote *remote)
{
    unsigned char data[INPUT_BYTES];
    ssize_t got = read(STDIN_FILENO, data, sizeof(data));

    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    struct via_launch_bytes payload = {
        .data = data, .used = got > 0 ? (size_t)got : 0, .room = sizeof(data)};
    remote->input_ended = got <= 0;
    remote->input_bytes += (uint32_t)payload.used;
    via_launch_link_send(&remote->machines[0].link, VIA_LAUNCH_INPUT, &payload);
}

/* Writes the rest at the end and waits for it, as a PE's own writes would. */
static void write_rest(struct via_launch *launch)
{
    for (uint32_t i = 0; i < launch->streams_count; i++)
        via_launch_stream_feed(&launch->streams[i], NULL, 0);
    for (int i = 0; i < 2; i++) {
        struct via_launch_bytes *out = &launch->remote->out[i];
        while (out->used > 0)
            write_out(out, STDOUT_FILENO + i);
        via_launch_bytes_fini(out);
    }
}

/* --- clocks ----------------------------------------------------------------------------------- */

static void ping(struct via_launch_remote *remote, uint64_t now_ns)
{
    if (now_ns - remote->pinged_ns < remote->ping_ns)
        return;
    remote->pinged_ns = now_ns;
    for (uint32_t i = 0; i < remote->count; i++)
        if (via_launch_machine_is_there(&remote->machines[i]) && remote->machines[i].link.greeted)
            via_launch_link_send_u32(&remote->machines[i].link, VIA_LAUNCH_PING, 0);
}

static void check_silence(struct via_launch *launch, uint64_t now_ns)
{
    struct via_launch_remote *remote = launch->remote;
    /* This process was stopped, or the machine slept: it could receive no message in between. */
    bool slept = now_ns - remote->polled_ns > remote->lost_ns / 2;
    char text[80];

    remote->polled_ns = now_ns;
    for (uint32_t i = 0; i < remote->count; i++) {
        struct via_launch_machine *machine = &remote->machines[i];
        if (slept)
            machine->received_ns = now_ns;
        if (!via_launch_machine_is_there(machine))
            continue;
        if (!machine->link.greeted && now_ns >= remote->start_ns) {
            snprintf(text, sizeof(text), "no answer within %u s",
                     (unsigned)(START_NS / VIA_SEC_NS));
            via_launch_lose(launch, machine, text);
        } else if (machine->link.greeted && now_ns - machine->received_ns > remote->lost_ns) {
            snprintf(text, sizeof(text), "it has been silent for %u s (--lost-after)",
                     launch->options.lost_after_s);
            via_launch_lose(launch, machine, text);
        }
    }
}

static void check_clocks(struct via_launch *launch)
{
    struct via_launch_remote *remote = launch->remote;
    uint64_t now_ns = via_launch_now_ns();

    via_launch_check_deadlines(launch);
    check_silence(launch, now_ns);
    ping(remote, now_ns);
    if (launch->phase == VIA_LAUNCH_KILLED && remote->killed_ns > 0 && now_ns >= remote->killed_ns)
        for (uint32_t i = 0; i < remote->count; i++)
            via_launch_leave(launch, &remote->machines[i]);
}

static int wait_ms(const struct via_launch *launch)
{
    const struct via_launch_remote *remote = launch->remote;
    uint64_t at_ns = via_min(via_launch_deadline_ns(launch), remote->pinged_ns + remote->ping_ns);

    if (launch->phase == VIA_LAUNCH_KILLED && remote->killed_ns > 0)
        at_ns = via_min(at_ns, remote->killed_ns);
    return via_launch_poll_ms(at_ns);
}

/* --- the loop --------------------------------------------------------------------------------- */

static void take_signals(struct via_launch *launch)
{
    struct signalfd_siginfo info;

    while (read(launch->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            reap_all(launch);
        else
            via_launch_on_signal(launch, (int)info.ssi_signo);
    }
}

static void fill_polls(const struct via_launch *launch, struct pollfd *polls)
{
    const struct via_launch_remote *remote = launch->remote;

    polls[0] = (struct pollfd){.fd = launch->signal_fd, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = is_input_wanted(remote) ? STDIN_FILENO : -1, .events = POLLIN};
    for (int i = 0; i < 2; i++)
        polls[2 + i] = (struct pollfd){.fd = remote->out[i].used > 0 ? STDOUT_FILENO + i : -1,
                                       .events = POLLOUT};
    for (uint32_t i = 0; i < remote->count; i++) {
        const struct via_launch_machine *machine = &remote->machines[i];
        struct pollfd *mine = &polls[POLLS_OWN + POLLS_EACH * i];
        mine[0] = (struct pollfd){.fd = machine->link.in_fd, .events = POLLIN};
        mine[1] = (struct pollfd){.fd = machine->link.out.used > 0 ? machine->link.out_fd : -1,
                                  .events = POLLOUT};
        mine[2] = (struct pollfd){.fd = machine->error_fd, .events = POLLIN};
    }
}

static void serve_machine(struct via_launch *launch, struct via_launch_machine *machine,
                          const struct pollfd *polls)
{
    if (polls[2].revents && machine->error_fd >= 0)
        via_launch_agent_errors(machine);
    if (polls[0].revents && via_launch_machine_is_there(machine))
        read_machine(launch, machine);
}

static bool some_are_there(const struct via_launch_remote *remote)
{
    return !via_launch_machines_is_known(remote, VIA_LAUNCH_MACHINE_GONE);
}

static void watch(struct via_launch *launch, struct pollfd *polls)
{
    struct via_launch_remote *remote = launch->remote;
    nfds_t count = POLLS_OWN + POLLS_EACH * remote->count;

    while (some_are_there(remote)) {
        write_all(launch);
        fill_polls(launch, polls);
        if (poll(polls, count, wait_ms(launch)) < 0 && errno != EINTR)
            break;
        for (int i = 0; i < 2; i++)
            if (polls[2 + i].revents)
                write_out(&remote->out[i], STDOUT_FILENO + i);
        if (polls[1].revents && is_input_wanted(remote))
            read_input(remote);
        for (uint32_t i = 0; i < remote->count; i++)
            serve_machine(launch, &remote->machines[i], &polls[POLLS_OWN + POLLS_EACH * i]);
        if (polls[0].revents)
            take_signals(launch);
        acknowledge(remote);
        via_launch_remote_check_trace(launch);
        check_clocks(launch);
    }
}

/* --- making and ending ----------------------------------------------------------------------- */

static int send_job(struct via_launch *launch, uint32_t node, uint64_t heap_bytes, char *folder,
                    struct via_error *err)
{
    struct via_launch_bytes payload = {0};
    const struct via_launch_options *options = &launch->options;
    const struct via_launch_job job = {
        .node = node,
        .nodes_count = launch->remote->count,
        .pes_count = options->pes_count,
        .lost_after_s = options->lost_after_s,
        .heap_bytes = heap_bytes,
        .rundir = options->rundir ? options->rundir : "",
        .fabric = options->fabric ? options->fabric : "",
        .folder = folder,
        .argv = options->argv,
        .environ = environ,
        .node_of = launch->place.node_of,
    };

    via_launch_job_put(&payload, &job);
    bool fits = !payload.failed && payload.used <= VIA_LAUNCH_JOB_BYTES_MAX;
    if (fits)
        via_launch_link_send(&launch->remote->machines[node].link, VIA_LAUNCH_JOB, &payload);
    via_launch_bytes_fini(&payload);
    return fits ? 0
                : via_error_set(err, -E2BIG, "arguments and environment: more than %u bytes",
                                VIA_LAUNCH_JOB_BYTES_MAX);
}

static int start_agents(struct via_launch *launch, uint64_t heap_bytes, struct via_error *err)
{
    struct via_launch_remote *remote = launch->remote;
    const char *command = launch->options.agent ? launch->options.agent : AGENT_DEFAULT;
    char folder[4096];
    int result = 0;

    if (!getcwd(folder, sizeof(folder)))
        return via_error_set(err, -errno, "the working directory: %s", strerror(errno));
    for (uint32_t i = 0; i < launch->place.nodes_count && result == 0; i++) {
        result = via_launch_agent_start(command, launch->options.machines->names[i].text,
                                        &remote->machines[i], err);
        if (result < 0)
            break;
        remote->count = i + 1;
        remote->machines[i].received_ns = via_launch_now_ns();
    }
    for (uint32_t i = 0; i < remote->count && result == 0; i++)
        result = send_job(launch, i, heap_bytes, folder, err);
    return result;
}

static int make_streams(struct via_launch *launch, struct via_error *err)
{
    struct via_launch_remote *remote = launch->remote;
    uint32_t count = launch->options.pes_count;

    launch->pes = calloc(count, sizeof(*launch->pes));
    remote->words = calloc((size_t)count * VIA_JOB_WORDS, sizeof(*remote->words));
    launch->streams =
        launch->options.tag ? calloc(2 * (size_t)count, sizeof(*launch->streams)) : NULL;
    if (!launch->pes || !remote->words || (launch->options.tag && !launch->streams))
        return via_error_set(err, -ENOMEM, "%u PEs: out of memory", count);
    launch->streams_count = launch->options.tag ? 2 * count : 0;
    for (uint32_t i = 0; i < launch->streams_count; i++) {
        launch->streams[i].fd = -1;
        launch->streams[i].pe = i / 2;
        launch->streams[i].to = &remote->out[i % 2];
    }
    return 0;
}

/* At this point the agents have ended, or their streams are closed. */
static void end_commands(struct via_launch *launch)
{
    struct via_launch_remote *remote = launch->remote;
    uint64_t end_ns = via_launch_now_ns() + REAP_NS;

    for (uint32_t i = 0; i < remote->count; i++) {
        struct via_launch_machine *machine = &remote->machines[i];
        uint64_t now_ns = via_launch_now_ns();
        wait_for_command(machine, end_ns > now_ns ? end_ns - now_ns : 0);
        if (machine->pid > 0) {
            kill(-machine->pid, SIGKILL);
            waitpid(machine->pid, &machine->status, 0);
            machine->pid = 0;
        }
        if (machine->error_fd >= 0)
            via_launch_agent_errors(machine);
    }
}

int via_launch_remote_run(struct via_launch *launch, uint64_t heap_bytes)
{
    static struct via_launch_remote remote;
    struct pollfd *polls =
        calloc(POLLS_OWN + POLLS_EACH * launch->place.nodes_count, sizeof(*polls));
    struct via_error err = {0};

    launch->remote = &remote;
    remote.lost_ns = launch->options.lost_after_s * VIA_SEC_NS;
    remote.ping_ns = via_min(PING_NS, remote.lost_ns / 4);
    remote.polled_ns = via_launch_now_ns();
    remote.start_ns = remote.polled_ns + START_NS;
    int result = polls ? make_streams(launch, &err) : -ENOMEM;
    if (result == 0 && getrandom(&remote.job, sizeof(remote.job), 0) != (ssize_t)sizeof(remote.job))
        result = via_error_set(&err, -errno, "getrandom: %s", strerror(errno));
    remote.board = via_launch_board_open(remote.job, launch->options.pes_count);
    if (result == 0)
        result = start_agents(launch, heap_bytes, &err);
    if (result < 0) {
        via_launch_print("%s", via_error_describe(&err));
        via_launch_give_up(launch, 1);
    }
    watch(launch, polls);
    write_rest(launch);
    end_commands(launch);
    free(polls);
    return launch->exit_code;
}
