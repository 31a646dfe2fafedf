/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The agent: oshrun --serve, which the user's oshrun starts on each machine of a job. It is the
 * parent of the PEs of its machine, and decides nothing itself. When oshrun has ended or is silent,
 * the agent kills its PEs and exits.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shmem/launch_board.h"
#include "shmem/launch_remote.h"
#include "shmem/world.h"

#define EXIT_CODE_MISSING 127
#define READ_BYTES 16384u
#define PING_NS (200 * VIA_MSEC_NS)
#define FLUSH_NS (2 * VIA_SEC_NS)
#define POLLS_OWN 5

struct serve {
    struct via_launch launch;
    struct via_launch_link link;
    struct via_launch_job job;
    struct via_launch_bytes job_payload; /* what job points into */
    bool described;                      /* the job is known */
    bool started;
    bool stopped; /* oshrun has announced that it stops, so its silence is no failure */
    bool exit_sent;
    bool failed;  /* ends without a final message, or after it */
    bool orderly; /* oshrun knows why the agent ends */
    uint32_t gates_sent;
    uint32_t output_bytes;         /* sent, and not acknowledged */
    struct via_launch_bytes input; /* for PE 0 */
    bool input_ended;
    uint64_t received_ns;
    uint64_t polled_ns;
    uint64_t lost_ns;
    uint64_t pinged_ns;
    uint64_t ping_ns;
    struct via_launch_board *board; /* for `oshrun --trace` here; or NULL */
    uint32_t board_number;          /* the last request, and whether it was sent to oshrun */
    bool board_requested;
};

/* --- sending --------------------------------------------------------------------------------- */

/* Returns when all is written, or oshrun accepts no more. */
static void flush_link(struct serve *serve)
{
    uint64_t end_ns = via_launch_now_ns() + FLUSH_NS;

    while (via_launch_link_write(&serve->link) == 0 && serve->link.out.used > 0) {
        struct pollfd ready = {.fd = serve->link.out_fd, .events = POLLOUT};
        if (via_launch_now_ns() >= end_ns)
            return;
        if (poll(&ready, 1, 100) < 0 && errno != EINTR)
            return;
    }
}

static void send_failed(struct serve *serve, int result, const struct via_error *err)
{
    struct via_launch_bytes payload = {0};

    via_launch_put_u32(&payload, result == -ENOENT ? EXIT_CODE_MISSING : 1);
    via_launch_put_text(&payload, via_error_describe(err));
    via_launch_link_send(&serve->link, VIA_LAUNCH_FAILED, &payload);
    via_launch_bytes_fini(&payload);
    flush_link(serve);
    serve->failed = serve->orderly = true;
}

static void send_ended(struct serve *serve, uint32_t number, pid_t pid, int status)
{
    struct via_launch_bytes payload = {0};

    via_launch_put_u32(&payload, number);
    via_launch_put_u32(&payload, (uint32_t)pid);
    via_launch_put_u32(&payload, (uint32_t)status);
    via_launch_put_u32(&payload, via_launch_state_of(&serve->launch, number));
    via_launch_link_send(&serve->link, VIA_LAUNCH_ENDED, &payload);
    via_launch_bytes_fini(&payload);
}

static void send_started(struct serve *serve)
{
    struct via_launch_bytes payload = {0};

    for (uint32_t pe = 0; pe < serve->job.pes_count; pe++) {
        if (serve->job.node_of[pe] != serve->job.node)
            continue;
        via_launch_put_u32(&payload, pe);
        via_launch_put_u32(&payload, (uint32_t)serve->launch.pes[pe].pid);
    }
    via_launch_link_send(&serve->link, VIA_LAUNCH_STARTED, &payload);
    via_launch_bytes_fini(&payload);
}

/* --- the job ---------------------------------------------------------------------------------- */

/* Removes the agent's own settings of the library, so that its PEs get exactly those of oshrun: all
 * machines must compute the same results. */
static void clear_variables(void)
{
    static const char *const ours[] = {"SHMEM_", "SMA_", "VIADUCT_SHMEM_"};
    char name[128];

    for (char **variable = environ; *variable;) {
        size_t bytes = strcspn(*variable, "=");
        bool cleared = false;
        for (size_t i = 0; i < VIA_ARRAY_COUNT(ours) && bytes < sizeof(name); i++) {
            if (strncmp(*variable, ours[i], strlen(ours[i])) != 0)
                continue;
            memcpy(name, *variable, bytes);
            name[bytes] = '\0';
            cleared = unsetenv(name) == 0;
            break;
        }
        if (!cleared)
            variable++;
    }
}

static int take_environment(const struct via_launch_job *job, struct via_error *err)
{
    clear_variables();
    for (char **variable = job->environ; *variable; variable++) {
        char *name;
        /* For variables of the machine or the login, the agent's own values stay. */
        if (!via_launch_job_is_passed(*variable))
            continue;
        name = strndup(*variable, strcspn(*variable, "="));
        int result = name ? setenv(name, *variable + strlen(name) + 1, 1) : -1;
        free(name);
        if (result < 0)
            return via_error_set(err, -errno, "environment: %s", strerror(errno));
    }
    return 0;
}

/* The id of this machine's host. */
static int find_host(struct serve *serve, uint32_t *ret_host, struct via_error *err)
{
    const struct via_launch_job *job = &serve->job;
    const char *fabric = job->fabric[0] != '\0' ? job->fabric : NULL;

    if (job->rundir[0] != '\0' && setenv("VIADUCT_RUNDIR", job->rundir, 1) < 0)
        return via_error_set(err, -errno, "VIADUCT_RUNDIR: %s", strerror(errno));
    int result = via_launch_find_host(fabric, &serve->launch.place, err);
    *ret_host = serve->launch.place.host_of[0];
    return result;
}

static int describe_job(struct serve *serve, struct via_launch_parts *parts, struct via_error *err)
{
    uint32_t host = 0;

    via_launch_put(&serve->job_payload, parts->at, (size_t)(parts->end - parts->at));
    struct via_launch_parts copy = {.at = serve->job_payload.data,
                                    .end = serve->job_payload.data + serve->job_payload.used};
    int result = via_launch_job_parse(&copy, &serve->job, err);
    if (result < 0)
        return result;
    struct via_launch_job *job = &serve->job;
    serve->described = true;
    serve->lost_ns = job->lost_after_s * VIA_SEC_NS;
    serve->ping_ns = via_min(PING_NS, serve->lost_ns / 4);
    serve->launch.options.pes_count = job->pes_count;
    serve->launch.options.argv = job->argv;
    serve->launch.options.tag = true;
    serve->launch.agent = true;
    serve->launch.node = job->node;
    result = take_environment(job, err);
    if (result == 0 && chdir(job->folder) < 0)
        result =
            via_error_set(err, -errno, "working directory %s: %s", job->folder, strerror(errno));
    if (result == 0 && job->nodes_count > 1)
        result = find_host(serve, &host, err);
    if (result < 0)
        return result;
    via_launch_link_send_u32(&serve->link, VIA_LAUNCH_HELLO, host);
    return 0;
}

static int make_input(struct serve *serve, struct via_error *err)
{
    struct via_launch_input *input = &serve->launch.input;
    int fds[2];

    input->pe_fd = input->to_fd = -1;
    if (serve->job.node_of[0] != serve->job.node)
        return 0;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return via_error_set(err, -errno, "standard input: pipe: %s", strerror(errno));
    fcntl(fds[1], F_SETFL, O_NONBLOCK);
    input->pe_fd = fds[0];
    input->to_fd = fds[1];
    return 0;
}

static int start_job(struct serve *serve, struct via_launch_parts *parts, struct via_error *err)
{
    struct via_launch *launch = &serve->launch;
    const struct via_launch_job *job = &serve->job;
    struct via_job_spec spec = {
        .pes_count = job->pes_count,
        .nodes_count = job->nodes_count,
        .node_of = launch->place.node_of,
        .host_of = job->nodes_count > 1 ? launch->place.host_of : NULL,
        .heap_bytes = job->heap_bytes,
        .cores = via_wait_cores(),
        .gates = VIA_JOB_GATES_LAUNCHER,
        .node = job->node,
        .id = via_launch_take_u64(parts),
    };

    for (uint32_t i = 0; i < job->nodes_count; i++)
        launch->place.host_of[i] = via_launch_take_u32(parts);
    if (!via_launch_parts_is_end(parts) || spec.id == 0)
        return via_error_set(err, -EPROTO, "the message that starts the job is malformed");
    launch->place.nodes_count = job->nodes_count;
    launch->place.fabric = job->nodes_count > 1;
    memcpy(launch->place.node_of, job->node_of, job->pes_count * sizeof(*job->node_of));
    int result = via_job_create(&spec, &launch->files, err);
    if (result == 0)
        result = make_input(serve, err);
    if (result == 0)
        result = via_launch_spawn(launch, err);
    if (result < 0)
        return result;
    serve->board = via_launch_board_open(spec.id, job->pes_count);
    serve->started = true;
    send_started(serve);
    return 0;
}

/* --- events of PEs ---------------------------------------------------------------------------- */

static void check_global_exit(struct serve *serve)
{
    struct via_job *job = serve->launch.files.job;
    struct via_launch_bytes payload = {0};

    /* Pairs with the release in shmem_global_exit. */
    if (serve->exit_sent || !atomic_load_explicit(&job->exit_ready, memory_order_acquire))
        return;
    serve->exit_sent = true;
    serve->launch.phase = VIA_LAUNCH_ENDING;
    via_launch_put_u32(&payload, atomic_load_explicit(&job->exit_claim, memory_order_relaxed) - 1);
    via_launch_put_u32(&payload, (uint32_t)job->exit_status);
    via_launch_link_send(&serve->link, VIA_LAUNCH_EXIT, &payload);
    via_launch_bytes_fini(&payload);
    close(serve->launch.files.life_fds[1]);
    serve->launch.files.life_fds[1] = -1;
}

static void check_gate(struct serve *serve)
{
    struct via_job *job = serve->launch.files.job;
    struct via_launch_bytes payload = {0};
    uint64_t words[VIA_JOB_WORDS];
    /* Pairs with the release in call_launcher, gate.c. */
    uint32_t wanted = atomic_load_explicit(&job->gate_wanted, memory_order_acquire);

    if (wanted == serve->gates_sent)
        return;
    serve->gates_sent = wanted;
    via_launch_put_u32(&payload, wanted);
    for (uint32_t pe = 0; pe < serve->job.pes_count; pe++) {
        if (serve->job.node_of[pe] != serve->job.node)
            continue;
        via_launch_put_u32(&payload, pe);
        via_job_words_get(job, pe, words);
        for (unsigned i = 0; i < VIA_JOB_WORDS; i++)
            via_launch_put_u64(&payload, words[i]);
    }
    via_launch_link_send(&serve->link, VIA_LAUNCH_GATE, &payload);
    via_launch_bytes_fini(&payload);
}

static void take_calls(struct serve *serve)
{
    char bytes[64];

    while (read(serve->launch.files.call_fds[0], bytes, sizeof(bytes)) > 0)
        ;
    check_global_exit(serve);
    check_gate(serve);
}

static void on_end(struct via_launch *launch, uint32_t number, pid_t pid, int status)
{
    struct serve *serve = via_container_of(launch, struct serve, launch);

    check_global_exit(serve);
    send_ended(serve, number, pid, status);
}

/* False at end of file, or if no data was available. */
static bool copy_stream(struct serve *serve, struct via_launch_stream *stream)
{
    unsigned char data[8 + READ_BYTES];
    ssize_t got = read(stream->fd, data + 8, READ_BYTES);
    struct via_launch_bytes payload = {0};

    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return false;
    if (got <= 0) {
        close(stream->fd);
        stream->fd = -1;
        return false;
    }
    via_launch_put_u32(&payload, stream->pe);
    via_launch_put_u32(&payload, (uint32_t)(stream->to_fd - STDOUT_FILENO));
    via_launch_put(&payload, data + 8, (size_t)got);
    via_launch_link_send(&serve->link, VIA_LAUNCH_OUTPUT, &payload);
    via_launch_bytes_fini(&payload);
    serve->output_bytes += (uint32_t)got;
    return true;
}

static bool is_output_allowed(const struct serve *serve)
{
    return serve->output_bytes + READ_BYTES <= VIA_LAUNCH_WINDOW_BYTES;
}

/* Forwards the output that PEs wrote before they ended. True when nothing is left; output of their
 * children is not waited for, because it may continue forever. */
static bool drain_streams(struct serve *serve)
{
    for (uint32_t i = 0; i < serve->launch.streams_count; i++) {
        struct via_launch_stream *stream = &serve->launch.streams[i];
        while (stream->fd >= 0 && is_output_allowed(serve))
            if (!copy_stream(serve, stream))
                break;
        if (stream->fd >= 0 && !is_output_allowed(serve))
            return false;
    }
    return true;
}

static void write_input(struct serve *serve)
{
    struct via_launch_input *input = &serve->launch.input;
    ssize_t done = 0;

    if (input->to_fd < 0)
        return;
    if (serve->input.used > 0)
        done = write(input->to_fd, serve->input.data, serve->input.used);
    if (done < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (done > 0) {
        via_launch_bytes_drop(&serve->input, (size_t)done);
        via_launch_link_send_u32(&serve->link, VIA_LAUNCH_INPUT_ACK, (uint32_t)done);
    }
    if (done < 0)
        via_launch_link_send_u32(&serve->link, VIA_LAUNCH_INPUT_ACK, UINT32_MAX);
    if (done < 0 || (serve->input_ended && serve->input.used == 0)) {
        close(input->to_fd);
        input->to_fd = -1;
    }
}

/* --- messages of oshrun ---------------------------------------------------------------------- */

static bool on_gate(struct serve *serve, struct via_launch_parts *parts)
{
    struct via_job *job = serve->launch.files.job;
    uint64_t words[VIA_JOB_WORDS];
    uint32_t generation = via_launch_take_u32(parts);

    if (generation != serve->gates_sent ||
        generation != atomic_load_explicit(&job->gate.generation, memory_order_relaxed) + 1)
        return false;
    while (!via_launch_parts_is_end(parts)) {
        uint32_t pe = via_launch_take_u32(parts);
        for (unsigned i = 0; i < VIA_JOB_WORDS; i++)
            words[i] = via_launch_take_u64(parts);
        if (parts->failed || pe >= serve->job.pes_count)
            return false;
        if (serve->job.node_of[pe] != serve->job.node)
            via_job_words_set(job, pe, words);
    }
    via_job_gate_open(job);
    return true;
}

static bool on_signal(struct serve *serve, struct via_launch_parts *parts)
{
    uint32_t number = via_launch_take_u32(parts), over = via_launch_take_u32(parts);

    if (!via_launch_parts_is_end(parts) || number == 0 || number >= NSIG)
        return false;
    if (over)
        serve->launch.phase = VIA_LAUNCH_ENDING;
    serve->stopped = number == SIGTSTP;
    if (serve->started)
        via_launch_signal_all(&serve->launch, (int)number);
    else if (over)
        serve->failed = true;
    return true;
}

static bool on_exit_of(struct serve *serve, struct via_launch_parts *parts)
{
    struct via_job *job = serve->launch.files.job;
    uint32_t pe = via_launch_take_u32(parts), status = via_launch_take_u32(parts), unclaimed = 0;

    if (!via_launch_parts_is_end(parts) || pe >= serve->job.pes_count)
        return false;
    if (!atomic_compare_exchange_strong(&job->exit_claim, &unclaimed, pe + 1))
        return true; /* a PE of this machine has claimed the exit first */
    job->exit_status = (int32_t)status;
    /* Pairs with the acquire of watch_life. */
    atomic_store_explicit(&job->exit_ready, 1, memory_order_release);
    serve->exit_sent = true;
    serve->launch.phase = VIA_LAUNCH_ENDING;
    close(serve->launch.files.life_fds[1]);
    serve->launch.files.life_fds[1] = -1;
    return true;
}

static bool on_states(struct serve *serve, const struct via_launch_parts *parts)
{
    if (!via_launch_parts_is_end(parts))
        return false;
    for (uint32_t pe = 0; pe < serve->job.pes_count; pe++) {
        struct via_launch_bytes payload = {0};
        struct via_launch_moment moment;
        if (serve->job.node_of[pe] != serve->job.node)
            continue;
        via_launch_moment_take(serve->launch.files.job, pe, &moment);
        via_launch_put_u32(&payload, pe);
        via_launch_put_text(&payload, ""); /* oshrun knows the machine's name */
        via_launch_moment_put(&payload, &moment);
        via_launch_link_send(&serve->link, VIA_LAUNCH_MOMENT, &payload);
        via_launch_bytes_fini(&payload);
    }
    via_launch_link_send(&serve->link, VIA_LAUNCH_MOMENTS_END, NULL);
    return true;
}

/* The answer to VIA_LAUNCH_TRACE. */
static bool on_moment(struct serve *serve, struct via_launch_parts *parts)
{
    struct via_launch_moment moment;
    uint32_t pe = via_launch_take_u32(parts);
    const char *place = via_launch_take_text(parts);

    via_launch_moment_parse(parts, &moment);
    if (!via_launch_parts_is_end(parts) || pe >= serve->job.pes_count || !serve->board_requested)
        return false;
    via_launch_board_begin(serve->board);
    via_launch_board_fill(serve->board, pe, place, &moment);
    return true;
}

static bool on_moments_end(struct serve *serve, const struct via_launch_parts *parts)
{
    if (!via_launch_parts_is_end(parts) || !serve->board_requested)
        return false;
    serve->board_requested = false;
    via_launch_board_end(serve->board, serve->board_number);
    return true;
}

static bool on_input(struct serve *serve, const struct via_launch_parts *parts)
{
    size_t bytes = (size_t)(parts->end - parts->at);

    if (serve->input.used + bytes > VIA_LAUNCH_WINDOW_BYTES || serve->input_ended)
        return false;
    via_launch_put(&serve->input, parts->at, bytes);
    serve->input_ended = bytes == 0;
    write_input(serve);
    return true;
}

static bool on_output_ack(struct serve *serve, struct via_launch_parts *parts)
{
    uint32_t bytes = via_launch_take_u32(parts);

    if (!via_launch_parts_is_end(parts) || bytes > serve->output_bytes)
        return false;
    serve->output_bytes -= bytes;
    return true;
}

static bool on_frame_of_running(struct serve *serve, struct via_launch_frame *frame)
{
    switch (frame->type) {
    case VIA_LAUNCH_INPUT:
        return on_input(serve, &frame->parts);
    case VIA_LAUNCH_OUTPUT_ACK:
        return on_output_ack(serve, &frame->parts);
    case VIA_LAUNCH_STATES:
        return on_states(serve, &frame->parts);
    case VIA_LAUNCH_MOMENT:
        return on_moment(serve, &frame->parts);
    case VIA_LAUNCH_MOMENTS_END:
        return on_moments_end(serve, &frame->parts);
    case VIA_LAUNCH_GATE:
        return on_gate(serve, &frame->parts);
    case VIA_LAUNCH_EXIT:
        return on_exit_of(serve, &frame->parts);
    default:
        return false;
    }
}

static void on_frame(struct serve *serve, struct via_launch_frame *frame)
{
    struct via_error err = {0};
    int result = 0;

    if (frame->type == VIA_LAUNCH_PING)
        return;
    if (frame->type == VIA_LAUNCH_JOB && !serve->described)
        result = describe_job(serve, &frame->parts, &err);
    else if (frame->type == VIA_LAUNCH_START && serve->described && !serve->started)
        result = start_job(serve, &frame->parts, &err);
    else if (frame->type == VIA_LAUNCH_SIGNAL)
        serve->failed = serve->failed || !on_signal(serve, &frame->parts);
    else if (!serve->started || !on_frame_of_running(serve, frame))
        serve->failed = true;
    if (result < 0)
        send_failed(serve, result, &err);
}

static void read_link(struct serve *serve)
{
    struct via_launch_frame frame;
    struct via_error err = {0};
    int result = via_launch_link_read(&serve->link), taken = 0;

    serve->received_ns = via_launch_now_ns();
    while (!serve->failed && (taken = via_launch_link_take(&serve->link, &frame, &err)) == 1)
        on_frame(serve, &frame);
    if (taken < 0)
        fprintf(stderr, "oshrun --serve: %s\n", via_error_describe(&err));
    serve->orderly = serve->orderly || (result == -ECONNRESET && taken == 0);
    if (result < 0 || taken < 0)
        serve->failed = true;
}

/* --- the loop --------------------------------------------------------------------------------- */

static void take_signals(struct serve *serve)
{
    struct signalfd_siginfo info;

    while (read(serve->launch.signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD && serve->started)
            via_launch_reap(&serve->launch, on_end);
        else if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT || info.ssi_signo == SIGHUP)
            serve->failed = true;
    }
}

static void check_deadlines(struct serve *serve)
{
    uint64_t now_ns = via_launch_now_ns();

    if (!serve->described)
        return;
    /* This process was stopped, or the machine slept: it could receive no message in between. */
    if (serve->stopped || now_ns - serve->polled_ns > serve->lost_ns / 2)
        serve->received_ns = now_ns;
    serve->polled_ns = now_ns;
    if (now_ns - serve->received_ns > serve->lost_ns)
        serve->failed = true;
    if (now_ns - serve->pinged_ns < serve->ping_ns)
        return;
    serve->pinged_ns = now_ns;
    if (!serve->board_requested && via_launch_board_is_wanted(serve->board, &serve->board_number)) {
        serve->board_requested = true;
        via_launch_link_send(&serve->link, VIA_LAUNCH_TRACE, NULL);
    }
    via_launch_link_send_u32(&serve->link, VIA_LAUNCH_PING,
                             serve->started && via_launch_has_members(&serve->launch));
}

static nfds_t fill_polls(const struct serve *serve, struct pollfd *polls)
{
    const struct via_launch *launch = &serve->launch;
    bool started = serve->started;
    nfds_t count = POLLS_OWN;

    polls[0] = (struct pollfd){.fd = launch->signal_fd, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = serve->link.in_fd, .events = POLLIN};
    polls[2] = (struct pollfd){.fd = serve->link.out.used > 0 ? serve->link.out_fd : -1,
                               .events = POLLOUT};
    polls[3] = (struct pollfd){.fd = started ? launch->files.call_fds[0] : -1, .events = POLLIN};
    polls[4] = (struct pollfd){.fd = started && serve->input.used > 0 ? launch->input.to_fd : -1,
                               .events = POLLOUT};
    for (uint32_t i = 0; started && i < launch->streams_count && is_output_allowed(serve); i++)
        polls[count++] = (struct pollfd){.fd = launch->streams[i].fd, .events = POLLIN};
    return count;
}

static void serve_once(struct serve *serve, struct pollfd *polls)
{
    nfds_t count = fill_polls(serve, polls);
    int wait_ms = serve->described ? via_launch_poll_ms(serve->pinged_ns + serve->ping_ns) : -1;

    if (poll(polls, count, wait_ms) < 0 && errno != EINTR) {
        serve->failed = true;
        return;
    }
    if (polls[1].revents)
        read_link(serve);
    for (nfds_t i = POLLS_OWN; i < count; i++)
        if (polls[i].revents && is_output_allowed(serve) &&
            serve->launch.streams[i - POLLS_OWN].fd >= 0)
            copy_stream(serve, &serve->launch.streams[i - POLLS_OWN]);
    if (polls[3].revents)
        take_calls(serve);
    if (polls[4].revents)
        write_input(serve);
    if (polls[0].revents)
        take_signals(serve);
    check_deadlines(serve);
    if (via_launch_link_write(&serve->link) < 0)
        serve->failed = true;
}

static void kill_pes(struct serve *serve)
{
    via_launch_signal_all(&serve->launch, SIGKILL);
    for (uint32_t i = 0; i < serve->launch.options.pes_count; i++)
        if (serve->launch.pes[i].pid > 0)
            waitpid(serve->launch.pes[i].pid, NULL, 0);
}

/* The link uses the descriptors 0 and 1 at first, and is moved: a PE must not inherit it there. */
static int open_link(struct serve *serve, struct via_error *err)
{
    int in_fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    int out_fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (in_fd < 0 || out_fd < 0 || null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 ||
        dup2(null_fd, STDOUT_FILENO) < 0)
        return via_error_set(err, -errno, "standard streams: %s", strerror(errno));
    close(null_fd);
    via_launch_link_open(&serve->link, in_fd, out_fd, VIA_LAUNCH_JOB_BYTES_MAX);
    return 0;
}

int via_launch_serve(void)
{
    static struct serve serve;
    struct via_error err = {0};
    struct pollfd *polls = calloc(POLLS_OWN + 2 * VIA_JOB_PES_MAX, sizeof(*polls));
    bool done = false;

    via_launch_raise_files(&serve.launch);
    int result = polls ? open_link(&serve, &err) : -ENOMEM;
    if (result == 0)
        result = via_launch_take_signals(&serve.launch, &err);
    if (result < 0) {
        via_launch_print("--serve: %s", via_error_describe(&err));
        free(polls);
        return 1;
    }
    serve.received_ns = serve.polled_ns = via_launch_now_ns();
    while (!serve.failed && !done) {
        serve_once(&serve, polls);
        done = serve.started && serve.launch.running_count == 0 && !serve.failed &&
               drain_streams(&serve);
    }
    if (done) {
        via_launch_link_send(&serve.link, VIA_LAUNCH_DONE, NULL);
        flush_link(&serve);
    } else if (serve.started) {
        kill_pes(&serve);
    }
    via_launch_link_close(&serve.link);
    via_launch_job_fini(&serve.job);
    via_launch_bytes_fini(&serve.job_payload);
    via_launch_bytes_fini(&serve.input);
    free(polls);
    /* srun reports every other code as an error. */
    return done || serve.orderly ? 0 : 1;
}
