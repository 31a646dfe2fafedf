/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shmem/launch.h"

/* From the death of a PE to the end of the job is a second at most. */
#define LEAVING_NS (400 * VIA_MSEC_NS) /* for PEs that are about to end as well */
#define ENDING_NS (400 * VIA_MSEC_NS)  /* from SIGTERM to SIGKILL */
#define POLLS_OWN 3
#define QUIT_AGAIN_NS (2 * VIA_SEC_NS)
#define EXIT_CODE_TIMEOUT 124
#define EXIT_CODE_SIGNAL 128

uint64_t via_launch_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

void via_launch_say(const char *format, ...)
{
    char text[1024] = "oshrun: ";
    va_list args;

    va_start(args, format);
    vsnprintf(text + strlen(text), sizeof(text) - strlen(text) - 1, format, args);
    va_end(args);
    strcat(text, "\n");
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return;
}

void via_launch_signal_all(const struct via_launch *launch, int signal_number)
{
    for (uint32_t i = 0; i < launch->options.pes_count; i++)
        if (launch->pes[i].pid > 0)
            kill(-launch->pes[i].pid, signal_number);
}

/* --- ending ----------------------------------------------------------------------------------- */

static bool is_over(const struct via_launch *launch)
{
    return launch->phase == VIA_LAUNCH_ENDING || launch->phase == VIA_LAUNCH_KILLED;
}

/* Whoever calls it has said why. signal_number 0: the PEs know already. */
static void end_job(struct via_launch *launch, int exit_code, int signal_number)
{
    launch->phase = VIA_LAUNCH_ENDING;
    launch->exit_code = exit_code;
    launch->deadline_ns = via_launch_now_ns() + ENDING_NS;
    if (signal_number != 0) {
        via_launch_signal_all(launch, signal_number);
        via_launch_signal_all(launch, SIGCONT);
    }
}

/* "PE 3 on host 2 (pid 4711)" */
static const char *name_pe(const struct via_launch *launch, uint32_t number, pid_t pid,
                           char text[128])
{
    if (launch->place.fabric)
        snprintf(text, 128, "PE %u on host %u (pid %d)", number,
                 launch->files.job->pes[number].host, (int)pid);
    else
        snprintf(text, 128, "PE %u on %s (pid %d)", number, launch->machine, (int)pid);
    return text;
}

/* shmem_global_exit: the end of the life pipe makes the other PEs exit. */
static void look_for_global_exit(struct via_launch *launch)
{
    struct via_job *job = launch->files.job;

    /* Pairs with the release in shmem_global_exit. */
    if (is_over(launch) || !atomic_load_explicit(&job->exit_ready, memory_order_acquire))
        return;
    uint32_t number = atomic_load_explicit(&job->exit_claim, memory_order_relaxed) - 1;
    if (job->exit_status != 0)
        via_launch_say("PE %u has ended the job by shmem_global_exit(%d)", number,
                       job->exit_status);
    end_job(launch, job->exit_status & 0xff, 0);
    close(launch->files.life_fds[1]);
    launch->files.life_fds[1] = -1;
}

static enum via_job_state state_of(const struct via_launch *launch, uint32_t number)
{
    /* Pairs with the release of the PE's set_state. */
    return (enum via_job_state)atomic_load_explicit(&launch->files.job->pes[number].state,
                                                    memory_order_acquire);
}

/* Does a running PE take part in OpenSHMEM, so that it may wait for one that is gone? */
static bool others_take_part(const struct via_launch *launch)
{
    for (uint32_t i = 0; i < launch->options.pes_count; i++)
        if (launch->pes[i].pid > 0 && state_of(launch, i) == VIA_JOB_INITIALIZED)
            return true;
    return false;
}

static void pe_has_ended(struct via_launch *launch, uint32_t number, pid_t pid, int status)
{
    char name[128];

    look_for_global_exit(launch);
    if (is_over(launch))
        return;
    name_pe(launch, number, pid, name);
    if (WIFSIGNALED(status)) {
        int signal_number = WTERMSIG(status);
        via_launch_say("%s was killed by signal %d (%s); the job is ended", name, signal_number,
                       strsignal(signal_number));
        end_job(launch, EXIT_CODE_SIGNAL + signal_number, SIGTERM);
    } else if (WEXITSTATUS(status) != 0) {
        via_launch_say("%s exited with code %d; the job is ended", name, WEXITSTATUS(status));
        end_job(launch, WEXITSTATUS(status), SIGTERM);
    } else if (state_of(launch, number) != VIA_JOB_FINALIZED &&
               launch->phase == VIA_LAUNCH_RUNNING) {
        launch->phase = VIA_LAUNCH_LEAVING;
        launch->left_pe = number;
        launch->left_pid = pid;
        launch->deadline_ns = via_launch_now_ns() + LEAVING_NS;
    }
}

static void reap(struct via_launch *launch)
{
    for (uint32_t i = 0; i < launch->options.pes_count; i++) {
        struct via_launch_pe *pe = &launch->pes[i];
        pid_t pid = pe->pid;
        if (pid == 0 || waitpid(pid, &pe->status, WNOHANG) != pid)
            continue;
        pe->pid = 0;
        launch->running_count--;
        /* What it started does not outlive a job that fails. */
        if (is_over(launch) || pe->status != 0)
            kill(-pid, SIGKILL);
        pe_has_ended(launch, i, pid, pe->status);
    }
}

/* --- deadlines -------------------------------------------------------------------------------- */

static void on_deadline(struct via_launch *launch)
{
    char name[128];

    switch (launch->phase) {
    case VIA_LAUNCH_LEAVING:
        launch->phase = VIA_LAUNCH_RUNNING;
        if (!others_take_part(launch))
            break;
        name_pe(launch, launch->left_pe, launch->left_pid, name);
        via_launch_say("%s exited with code 0 but without shmem_finalize, while others still run; "
                       "the job is ended",
                       name);
        end_job(launch, 1, SIGTERM);
        break;
    case VIA_LAUNCH_ENDING:
        launch->phase = VIA_LAUNCH_KILLED;
        via_launch_signal_all(launch, SIGKILL);
        break;
    case VIA_LAUNCH_RUNNING:
    case VIA_LAUNCH_KILLED:
        break;
    }
}

static bool has_deadline(const struct via_launch *launch)
{
    return launch->phase == VIA_LAUNCH_LEAVING || launch->phase == VIA_LAUNCH_ENDING;
}

static void look_at_clock(struct via_launch *launch)
{
    uint64_t now_ns = via_launch_now_ns();

    if (has_deadline(launch) && now_ns >= launch->deadline_ns)
        on_deadline(launch);
    if (!is_over(launch) && now_ns >= launch->timeout_ns) {
        via_launch_say("the job has run for %u s (--timeout); it is ended",
                       launch->options.timeout_s);
        end_job(launch, EXIT_CODE_TIMEOUT, SIGTERM);
    }
}

static int poll_ms(const struct via_launch *launch)
{
    uint64_t at_ns = is_over(launch) ? VIA_NEVER_NS : launch->timeout_ns;
    uint64_t now_ns = via_launch_now_ns();

    if (has_deadline(launch))
        at_ns = via_min(at_ns, launch->deadline_ns);
    if (at_ns == VIA_NEVER_NS)
        return -1;
    return at_ns <= now_ns ? 0 : (int)via_min((at_ns - now_ns) / VIA_MSEC_NS + 1, 60000);
}

/* --- events ----------------------------------------------------------------------------------- */

/* A job that hangs is asked what it waits for; asked again at once, its PEs get the signal. */
static void on_quit(struct via_launch *launch)
{
    uint64_t now_ns = via_launch_now_ns();

    if (launch->quit_ns > 0 && now_ns - launch->quit_ns < QUIT_AGAIN_NS) {
        via_launch_signal_all(launch, SIGQUIT);
        return;
    }
    launch->quit_ns = now_ns;
    if (via_launch_trace(stderr, launch->files.job) < 0)
        via_launch_say("out of memory");
}

static void on_signal(struct via_launch *launch, int signal_number)
{
    switch (signal_number) {
    case SIGCHLD:
        reap(launch);
        break;
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
        if (launch->phase == VIA_LAUNCH_ENDING) {
            /* Asked again: no more patience. */
            launch->deadline_ns = 0;
            break;
        }
        via_launch_say("%s; the job is ended", strsignal(signal_number));
        end_job(launch, EXIT_CODE_SIGNAL + signal_number, signal_number);
        break;
    case SIGQUIT:
        on_quit(launch);
        break;
    case SIGTSTP:
        via_launch_signal_all(launch, SIGTSTP);
        raise(SIGSTOP);
        via_launch_signal_all(launch, SIGCONT);
        break;
    default:
        via_launch_signal_all(launch, signal_number);
        break;
    }
}

static void take_signals(struct via_launch *launch)
{
    struct signalfd_siginfo info;

    while (read(launch->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        on_signal(launch, (int)info.ssi_signo);
}

static void take_calls(struct via_launch *launch)
{
    char bytes[64];

    while (read(launch->files.call_fds[0], bytes, sizeof(bytes)) > 0)
        ;
    look_for_global_exit(launch);
}

/* What PEs have printed before their end; not what their children may print for ever. */
static void drain_streams(struct via_launch *launch)
{
    for (uint32_t i = 0; i < launch->streams_count; i++) {
        struct via_launch_stream *stream = &launch->streams[i];
        struct pollfd ready = {.fd = stream->fd, .events = POLLIN};
        while (stream->fd >= 0 && poll(&ready, 1, 0) > 0)
            if (!via_launch_stream_copy(stream))
                break;
    }
}

int via_launch_watch(struct via_launch *launch)
{
    struct pollfd *polls = calloc(POLLS_OWN + launch->streams_count, sizeof(*polls));

    if (!polls) {
        via_launch_say("out of memory");
        via_launch_signal_all(launch, SIGKILL);
        return 1;
    }
    polls[0] = (struct pollfd){.fd = launch->signal_fd, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = launch->files.call_fds[0], .events = POLLIN};
    /* The signal of a PE that ended before the mask was looked at is in the descriptor. */
    while (launch->running_count > 0) {
        for (uint32_t i = 0; i < launch->streams_count; i++)
            polls[POLLS_OWN + i] = (struct pollfd){.fd = launch->streams[i].fd, .events = POLLIN};
        via_launch_input_poll(&launch->input, &polls[2]);
        if (poll(polls, POLLS_OWN + launch->streams_count, poll_ms(launch)) < 0 && errno != EINTR)
            break;
        for (uint32_t i = 0; i < launch->streams_count; i++)
            if (polls[POLLS_OWN + i].revents)
                via_launch_stream_copy(&launch->streams[i]);
        if (polls[2].revents)
            via_launch_input_copy(&launch->input);
        if (polls[1].revents)
            take_calls(launch);
        if (polls[0].revents)
            take_signals(launch);
        look_at_clock(launch);
    }
    drain_streams(launch);
    free(polls);
    return launch->exit_code;
}
