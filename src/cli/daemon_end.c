/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Ending all daemons of a fabric, whatever state it is in. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/daemon.h"
#include "cli/request.h"

#define PATIENCE_NS (2 * VIA_SEC_NS)
#define ANSWER_MS 500u
#define TARGETS_MAX (2 * VIA_TOPOLOGY_HOST_MAX)

struct target {
    unsigned host;
    pid_t pid;
    int pidfd; /* -1 once it has ended */
    bool stray;
    bool signalled;
};

struct targets {
    unsigned count;
    struct target list[TARGETS_MAX];
};

static void add_target(struct targets *targets, unsigned host, const struct via_process *process,
                       bool stray, struct via_daemon_ended *ended)
{
    int pidfd = via_process_open(process);
    if (pidfd < 0) {
        ended->dead++;
        return;
    }
    ended->strays += stray ? 1 : 0;
    targets->list[targets->count++] =
        (struct target){.host = host, .pid = process->pid, .pidfd = pidfd, .stray = stray};
}

static void find_targets(const struct via_fabric *fabric, struct targets *targets,
                         struct via_daemon_ended *ended)
{
    struct via_fabric_stray strays[VIA_TOPOLOGY_HOST_MAX];
    for (unsigned i = 0; i < fabric->topology.hosts_count; i++) {
        add_target(targets, fabric->topology.hosts[i], &fabric->daemons[i], false, ended);
    }
    unsigned count = via_fabric_strays(fabric, strays, VIA_ARRAY_COUNT(strays));
    for (unsigned i = 0; i < count; i++) {
        add_target(targets, strays[i].host, &strays[i].process, true, ended);
    }
}

/* Records which daemons have ended. Returns the number of the others. */
static unsigned count_running(struct targets *targets, struct via_daemon_ended *ended)
{
    unsigned left = 0;
    for (unsigned i = 0; i < targets->count; i++) {
        struct target *target = &targets->list[i];
        struct pollfd pollfd = {.fd = target->pidfd, .events = POLLIN};
        if (target->pidfd < 0) {
            continue;
        }
        if (poll(&pollfd, 1, 0) == 0) {
            left++;
            continue;
        }
        /* A daemon of an `up` that failed is a child of this process; otherwise waitpid() returns
         * ECHILD. */
        waitpid(target->pid, NULL, WNOHANG);
        close(target->pidfd);
        target->pidfd = -1;
        ended->stopped += target->signalled ? 0 : 1;
        ended->forced += target->signalled ? 1 : 0;
    }
    return left;
}

static unsigned wait_gone(struct targets *targets, struct via_daemon_ended *ended)
{
    uint64_t deadline_ns = via_process_now_ns() + PATIENCE_NS;
    for (;;) {
        unsigned left = count_running(targets, ended);
        if (left == 0 || via_process_now_ns() >= deadline_ns) {
            return left;
        }
        usleep(2000);
    }
}

static int signal_one(struct target *target, int number, struct via_error *err)
{
    if (pidfd_send_signal(target->pidfd, number, NULL, 0) != 0 && errno != ESRCH) {
        return via_error_set(err, -errno, "host %u: end the daemon (pid %d): %s", target->host,
                             (int)target->pid, strerror(errno));
    }
    target->signalled = true;
    return 0;
}

static int request_all(const struct via_fabric *fabric, struct targets *targets,
                       struct via_error *err)
{
    int rc = 0;
    for (unsigned i = 0; i < targets->count && rc == 0; i++) {
        json_t *answer = NULL;
        if (via_fabric_request(fabric, targets->list[i].host, "stop", ANSWER_MS, &answer, NULL) !=
            0) {
            rc = signal_one(&targets->list[i], SIGTERM, err);
        }
        json_decref(answer);
    }
    return rc;
}

/* Takes the next step for each daemon: SIGTERM, or SIGKILL after SIGTERM. */
static int signal_all(struct targets *targets, struct via_error *err)
{
    int rc = 0;
    for (unsigned i = 0; i < targets->count && rc == 0; i++) {
        struct target *target = &targets->list[i];
        if (target->pidfd >= 0) {
            rc = signal_one(target, target->signalled ? SIGKILL : SIGTERM, err);
        }
    }
    return rc;
}

/* Reports a daemon that could not be ended. */
static int name_left(const struct targets *targets, struct via_error *err)
{
    for (unsigned i = 0; i < targets->count; i++) {
        if (targets->list[i].pidfd >= 0) {
            return via_error_set(err, -EBUSY,
                                 "host %u: end the daemon (pid %d): SIGKILL does not end it",
                                 targets->list[i].host, (int)targets->list[i].pid);
        }
    }
    return 0;
}

static void close_all(struct targets *targets)
{
    for (unsigned i = 0; i < targets->count; i++) {
        if (targets->list[i].pidfd >= 0) {
            close(targets->list[i].pidfd);
        }
    }
}

int via_daemon_end_all(const struct via_fabric *fabric, struct via_daemon_ended *ret_ended,
                       struct via_error *err)
{
    static struct targets targets;
    targets.count = 0;
    memset(ret_ended, 0, sizeof(*ret_ended));
    find_targets(fabric, &targets, ret_ended);
    int rc = request_all(fabric, &targets, err);
    unsigned left = wait_gone(&targets, ret_ended);
    for (unsigned step = 0; step < 2 && left > 0 && rc == 0; step++) {
        rc = signal_all(&targets, err);
        left = wait_gone(&targets, ret_ended);
    }
    rc = rc != 0 ? rc : name_left(&targets, err);
    close_all(&targets);
    return rc;
}
