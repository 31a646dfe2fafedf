/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The C library's calls that sleep without a descriptor: peers may call meanwhile, steward.h. */
#undef _FORTIFY_SOURCE
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sockets/conn/steward.h"
#include "sockets/hooks/hooks.h"
#include "sockets/hooks/signals.h"
#include "sockets/io/wait.h"
#include "sockets/process/fds.h"
#include "sockets/process/os.h"
#include "sockets/process/real.h"

/* Shorter sleeps are passed through: calls of peers can wait that long. */
#define SHORT_NS (10 * VIA_MSEC_NS)

/* --- until a signal ----------------------------------------------------------------------------
 */

VIA_HOOK int pause(void)
{
    if (!via_steward_is_wanted()) {
        return VIA_REAL(pause)();
    }
    struct pollfd none[1];
    return (int)via_hooks_result(via_steward_sleep(none, 0, VIA_NEVER_NS, NULL));
}

VIA_HOOK int sigsuspend(const sigset_t *mask)
{
    if (!via_steward_is_wanted() || via_hooks_is_no_address(mask)) {
        return VIA_REAL(sigsuspend)(mask);
    }
    struct pollfd none[1];
    return (int)via_hooks_result(via_steward_sleep(none, 0, VIA_NEVER_NS, mask));
}

/* --- for a time --------------------------------------------------------------------------------
 */

static bool is_a_time(const struct timespec *time)
{
    return !via_hooks_is_no_address(time) && time->tv_sec >= 0 && time->tv_nsec >= 0 &&
           time->tv_nsec < (long)VIA_SEC_NS && time->tv_sec < (time_t)(INT64_MAX / VIA_SEC_NS / 2);
}

static uint64_t ns_of(const struct timespec *time)
{
    return (uint64_t)time->tv_sec * VIA_SEC_NS + (uint64_t)time->tv_nsec;
}

/* Until then, by via_os_now_ns(): 0 or an errno, and the time that was left. */
static int sleep_until(uint64_t deadline_ns, struct timespec *ret_left)
{
    struct pollfd none[1];
    int saved = errno;
    int rc = via_steward_sleep(none, 0, deadline_ns, NULL);
    uint64_t now = via_os_now_ns();
    uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
    if (rc < 0 && ret_left != NULL) {
        *ret_left = (struct timespec){.tv_sec = (time_t)(left / VIA_SEC_NS),
                                      .tv_nsec = (long)(left % VIA_SEC_NS)};
    }
    errno = saved;
    return rc < 0 ? -rc : 0;
}

static bool is_long_sleep(const struct timespec *time)
{
    return via_steward_is_wanted() && is_a_time(time) && ns_of(time) > SHORT_NS;
}

VIA_HOOK int nanosleep(const struct timespec *time, struct timespec *ret_left)
{
    if (!is_long_sleep(time)) {
        return VIA_REAL(nanosleep)(time, ret_left);
    }
    return (int)via_hooks_result(-sleep_until(via_os_now_ns() + ns_of(time), ret_left));
}

/* Clocks that are set, or stand still, are left to the kernel. */
VIA_HOOK int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time,
                             struct timespec *ret_left)
{
    bool until = flags == TIMER_ABSTIME;
    if (!is_long_sleep(time) || (flags != 0 && !until) ||
        (clock != CLOCK_MONOTONIC && (until || clock != CLOCK_REALTIME))) {
        return VIA_REAL(clock_nanosleep)(clock, flags, time, ret_left);
    }
    uint64_t ns = ns_of(time);
    return until ? sleep_until(ns, NULL) : sleep_until(via_os_now_ns() + ns, ret_left);
}

VIA_HOOK unsigned sleep(unsigned seconds)
{
    struct timespec left = {.tv_sec = seconds};
    if (!is_long_sleep(&left)) {
        return VIA_REAL(sleep)(seconds);
    }
    return nanosleep(&left, &left) == 0 ? 0 : (unsigned)left.tv_sec;
}

VIA_HOOK int usleep(useconds_t us)
{
    struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
    return is_long_sleep(&time) ? nanosleep(&time, NULL) : VIA_REAL(usleep)(us);
}

/* --- for a child -------------------------------------------------------------------------------
 */

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* 0: it has ended, or no one can tell; -EINTR. */
static int sleep_until_end(pid_t pid)
{
    int saved = errno;
    int rc = 0;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd >= 0) {
        struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}};
        do {
            rc = via_steward_sleep(fds, 1, VIA_NEVER_NS, NULL);
        } while (rc == -EINTR && via_signals_has_restart());
        VIA_REAL(close)(fd);
    }
    errno = saved;
    return via_min(rc, 0);
}

/* For one child: of several it is unknown which will end. */
VIA_HOOK pid_t waitpid(pid_t pid, int *status, int options)
{
    if (pid <= 0 || options != 0 || !via_steward_is_wanted() || via_hooks_is_guest()) {
        return VIA_REAL(waitpid)(pid, status, options);
    }
    pid_t ended = VIA_REAL(waitpid)(pid, status, WNOHANG);
    if (ended != 0) {
        return ended; /* or is no child */
    }
    int rc = sleep_until_end(pid);
    ended = VIA_REAL(waitpid)(pid, status, rc == 0 ? 0 : WNOHANG);
    return ended != 0 ? ended : (pid_t)via_hooks_result(rc);
}
