/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Watches the PEs of this machine, which are children of this process. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shmem/launch.h"

#define POLLS_OWN 3

/* shmem_global_exit: the end of the life pipe makes the other PEs exit. */
static void check_global_exit(struct via_launch *launch)
{
    struct via_job *job = launch->files.job;

    /* Pairs with the release in shmem_global_exit. */
    if (via_launch_is_over(launch) || !atomic_load_explicit(&job->exit_ready, memory_order_acquire))
        return;
    via_launch_global_exit(launch, atomic_load_explicit(&job->exit_claim, memory_order_relaxed) - 1,
                           job->exit_status);
    close(launch->files.life_fds[1]);
    launch->files.life_fds[1] = -1;
}

void via_launch_reap(struct via_launch *launch, via_launch_on_end *on_end)
{
    for (uint32_t i = 0; i < launch->options.pes_count; i++) {
        struct via_launch_pe *pe = &launch->pes[i];
        pid_t pid = pe->pid;
        if (pid == 0 || waitpid(pid, &pe->status, WNOHANG) != pid)
            continue;
        pe->pid = 0;
        launch->running_count--;
        /* Children of PEs do not outlive a job that fails. */
        if (via_launch_is_over(launch) || pe->status != 0)
            kill(-pid, SIGKILL);
        on_end(launch, i, pid, pe->status);
    }
}

static void on_end(struct via_launch *launch, uint32_t number, pid_t pid, int status)
{
    check_global_exit(launch);
    via_launch_pe_ended(launch, number, pid, status, via_launch_state_of(launch, number));
}

/* --- events ----------------------------------------------------------------------------------- */

static void take_signals(struct via_launch *launch)
{
    struct signalfd_siginfo info;

    while (read(launch->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            via_launch_reap(launch, on_end);
        else
            via_launch_on_signal(launch, (int)info.ssi_signo);
    }
}

static void take_calls(struct via_launch *launch)
{
    char bytes[64];

    while (read(launch->files.call_fds[0], bytes, sizeof(bytes)) > 0)
        ;
    check_global_exit(launch);
}

/* Copies the output that PEs wrote before they ended; output of their children is not waited for,
 * because it may continue forever. */
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
        via_launch_print("out of memory");
        via_launch_signal_all(launch, SIGKILL);
        return 1;
    }
    polls[0] = (struct pollfd){.fd = launch->signal_fd, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = launch->files.call_fds[0], .events = POLLIN};
    /* SIGCHLD of a PE that ended before this loop began is pending in the descriptor. */
    while (launch->running_count > 0) {
        for (uint32_t i = 0; i < launch->streams_count; i++)
            polls[POLLS_OWN + i] = (struct pollfd){.fd = launch->streams[i].fd, .events = POLLIN};
        via_launch_input_poll(&launch->input, &polls[2]);
        if (poll(polls, POLLS_OWN + launch->streams_count,
                 via_launch_poll_ms(via_launch_deadline_ns(launch))) < 0 &&
            errno != EINTR)
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
        via_launch_check_deadlines(launch);
    }
    drain_streams(launch);
    free(polls);
    return launch->exit_code;
}
