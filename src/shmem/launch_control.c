/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Decides when a job ends and with which code, and prints the reason. The PEs are children of this
 * process (launch_watch.c) or of its agents on other machines (launch_remote.c).
 */
#include <errno.h>
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
#include "shmem/launch_remote.h"

/* From the death of a PE to the end of the job is a second at most. */
#define LEAVING_NS (400 * VIA_MSEC_NS) /* wait for PEs that are about to end as well */
#define ENDING_NS (400 * VIA_MSEC_NS)  /* from SIGTERM to SIGKILL */
/* The same after shmem_global_exit, if PEs may be writing a timeline: wait_for_writer() in
 * profile.c waits less. */
#define FILES_NS (5 * VIA_SEC_NS)
#define QUIT_AGAIN_NS (2 * VIA_SEC_NS)
#define EXIT_CODE_TIMEOUT 124

uint64_t via_launch_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

void via_launch_print(const char *format, ...)
{
    char text[1024] = "oshrun: ";
    va_list args;

    va_start(args, format);
    vsnprintf(text + strlen(text), sizeof(text) - strlen(text) - 1, format, args);
    va_end(args);
    /* The text stays one line, even if names or messages of other machines contain line breaks. */
    for (char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == '\x7f')
            *at = '?';
    strcat(text, "\n");
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return;
}

void via_launch_signal_all(struct via_launch *launch, int signal_number)
{
    if (launch->remote) {
        via_launch_remote_signal(launch, signal_number);
        return;
    }
    for (uint32_t i = 0; i < launch->options.pes_count; i++)
        if (launch->pes[i].pid > 0)
            kill(-launch->pes[i].pid, signal_number);
}

/* --- what the process itself needs ----------------------------------------------------------- */

/* Two memfds a PE, and with --tag two pipes. */
void via_launch_raise_files(struct via_launch *launch)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &launch->files_limit);
    limit = launch->files_limit;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int via_launch_take_signals(struct via_launch *launch, struct via_error *err)
{
    static const int taken[] = {SIGCHLD, SIGINT,  SIGTERM, SIGHUP,
                                SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(taken); i++)
        sigaddset(&set, taken[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    /* If the reader of this process's output has gone, SIGPIPE must not leave PEs behind. */
    signal(SIGPIPE, SIG_IGN);
    launch->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return launch->signal_fd < 0 ? via_error_set(err, -errno, "signalfd: %s", strerror(errno)) : 0;
}

/* --- ending ----------------------------------------------------------------------------------- */

bool via_launch_is_over(const struct via_launch *launch)
{
    return launch->phase == VIA_LAUNCH_ENDING || launch->phase == VIA_LAUNCH_KILLED;
}

void via_launch_end_job(struct via_launch *launch, int exit_code, int signal_number)
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
                           char text[VIA_LAUNCH_PE_NAME_BYTES])
{
    uint32_t node = launch->place.node_of[number];

    if (launch->remote)
        snprintf(text, VIA_LAUNCH_PE_NAME_BYTES, "PE %u on %.200s (pid %d there)", number,
                 via_launch_remote_name(launch, node), (int)pid);
    else if (launch->place.fabric)
        snprintf(text, VIA_LAUNCH_PE_NAME_BYTES, "PE %u on host %u (pid %d)", number,
                 launch->place.host_of[node], (int)pid);
    else
        snprintf(text, VIA_LAUNCH_PE_NAME_BYTES, "PE %u on %s (pid %d)", number, launch->machine,
                 (int)pid);
    return text;
}

static bool has_timeline(void)
{
    const char *timeline = getenv("VIADUCT_SHMEM_TIMELINE");

    return timeline && *timeline;
}

void via_launch_global_exit(struct via_launch *launch, uint32_t number, int status)
{
    if (via_launch_is_over(launch))
        return;
    if (status != 0)
        via_launch_print("PE %u has ended the job by shmem_global_exit(%d)", number, status);
    via_launch_end_job(launch, status & 0xff, 0);
    if (has_timeline())
        launch->deadline_ns = via_launch_now_ns() + FILES_NS;
}

enum via_job_state via_launch_state_of(const struct via_launch *launch, uint32_t number)
{
    /* Pairs with the releases of the PE, in set_state and via_fatal_cut_off. */
    uint32_t state =
        atomic_load_explicit(&launch->files.job->pes[number].state, memory_order_acquire);

    return state <= VIA_JOB_CUT_OFF ? (enum via_job_state)state : VIA_JOB_INITIALIZED;
}

bool via_launch_has_members(const struct via_launch *launch)
{
    for (uint32_t i = 0; i < launch->options.pes_count; i++)
        if (launch->pes[i].pid > 0 && via_launch_state_of(launch, i) == VIA_JOB_INITIALIZED)
            return true;
    return false;
}

static void end_without(struct via_launch *launch)
{
    char name[VIA_LAUNCH_PE_NAME_BYTES];

    name_pe(launch, launch->left_pe, launch->left_pid, name);
    via_launch_print("%s exited with code 0 but without shmem_finalize, while others still run; "
                     "the job is ended",
                     name);
    via_launch_end_job(launch, 1, SIGTERM);
}

static void end_with(struct via_launch *launch, uint32_t number, pid_t pid, int status)
{
    char name[VIA_LAUNCH_PE_NAME_BYTES];

    name_pe(launch, number, pid, name);
    if (WIFSIGNALED(status)) {
        int signal_number = WTERMSIG(status);
        via_launch_print("%s was killed by signal %d (%s); the job is ended", name, signal_number,
                         strsignal(signal_number));
        via_launch_end_job(launch, VIA_LAUNCH_EXIT_SIGNAL + signal_number, SIGTERM);
    } else {
        via_launch_print("%s exited with code %d; the job is ended", name, WEXITSTATUS(status));
        via_launch_end_job(launch, WEXITSTATUS(status), SIGTERM);
    }
}

static void begin_leaving(struct via_launch *launch, uint32_t number, pid_t pid, int status)
{
    launch->phase = VIA_LAUNCH_LEAVING;
    launch->left_pe = number;
    launch->left_pid = pid;
    launch->left_status = status;
    launch->deadline_ns = via_launch_now_ns() + LEAVING_NS;
}

/* The ends of PEs on several machines are reported to oshrun in any order. That a PE is cut off is
 * only a consequence: the cause is the end of another PE, which may be reported a moment later. */
void via_launch_pe_ended(struct via_launch *launch, uint32_t number, pid_t pid, int status,
                         enum via_job_state state)
{
    bool leaving = launch->phase == VIA_LAUNCH_LEAVING;
    bool left = leaving && launch->left_status == 0;

    if (via_launch_is_over(launch))
        return;
    if (status != 0 && left) {
        end_without(launch);
    } else if (status != 0 && state == VIA_JOB_CUT_OFF) {
        if (!leaving)
            begin_leaving(launch, number, pid, status);
    } else if (status != 0) {
        end_with(launch, number, pid, status);
    } else if (state != VIA_JOB_FINALIZED && !left) {
        begin_leaving(launch, number, pid, 0);
        if (leaving)
            end_without(launch);
    }
}

/* --- deadlines -------------------------------------------------------------------------------- */

static void on_deadline(struct via_launch *launch)
{
    switch (launch->phase) {
    case VIA_LAUNCH_LEAVING:
        if (launch->left_status != 0) {
            end_with(launch, launch->left_pe, launch->left_pid, launch->left_status);
            break;
        }
        launch->phase = VIA_LAUNCH_RUNNING;
        /* Does a running PE take part in OpenSHMEM, so that it may wait for a PE that has ended? */
        if (!(launch->remote ? via_launch_remote_has_members(launch)
                             : via_launch_has_members(launch)))
            break;
        end_without(launch);
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

void via_launch_check_deadlines(struct via_launch *launch)
{
    uint64_t now_ns = via_launch_now_ns();

    if (has_deadline(launch) && now_ns >= launch->deadline_ns)
        on_deadline(launch);
    if (!via_launch_is_over(launch) && now_ns >= launch->timeout_ns) {
        via_launch_print("the job has run for %u s (--timeout); it is ended",
                         launch->options.timeout_s);
        via_launch_end_job(launch, EXIT_CODE_TIMEOUT, SIGTERM);
    }
}

uint64_t via_launch_deadline_ns(const struct via_launch *launch)
{
    uint64_t at_ns = via_launch_is_over(launch) ? VIA_NEVER_NS : launch->timeout_ns;

    return has_deadline(launch) ? via_min(at_ns, launch->deadline_ns) : at_ns;
}

int via_launch_poll_ms(uint64_t at_ns)
{
    uint64_t now_ns = via_launch_now_ns();

    if (at_ns == VIA_NEVER_NS)
        return -1;
    return at_ns <= now_ns ? 0 : (int)via_min((at_ns - now_ns) / VIA_MSEC_NS + 1, 60000);
}

/* --- signals ---------------------------------------------------------------------------------- */

/* SIGQUIT shows what a job that hangs waits for; a second SIGQUIT goes to its PEs. */
static void on_quit(struct via_launch *launch)
{
    uint64_t now_ns = via_launch_now_ns();

    if (launch->quit_ns > 0 && now_ns - launch->quit_ns < QUIT_AGAIN_NS) {
        via_launch_signal_all(launch, SIGQUIT);
        return;
    }
    launch->quit_ns = now_ns;
    if (launch->remote)
        via_launch_remote_trace(launch);
    else if (via_launch_trace(stderr, launch->files.job, false) < 0)
        via_launch_print("out of memory");
}

void via_launch_on_signal(struct via_launch *launch, int signal_number)
{
    switch (signal_number) {
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
        if (launch->phase == VIA_LAUNCH_ENDING) {
            /* A second signal ends the job at once. */
            launch->deadline_ns = 0;
            break;
        }
        if (launch->phase == VIA_LAUNCH_KILLED)
            break;
        via_launch_print("%s; the job is ended", strsignal(signal_number));
        via_launch_end_job(launch, VIA_LAUNCH_EXIT_SIGNAL + signal_number, signal_number);
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
