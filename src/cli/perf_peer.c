/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/pause.h"
#include "cli/perf.h"

/* These take some microseconds; a word between two CPUs takes a fraction of one. */
#define POLLS_BEFORE_YIELD 200u

int via_perf_attach(const struct via_perf *perf, unsigned host, int channel,
                    struct via_attach **ret_attach)
{
    struct via_attach_options options = {
        .size = sizeof(options),
        .rundir = perf->fabric.rundir.text,
        .host = (int)host,
        .channel = channel,
    };
    return via_attach_open(&options, ret_attach);
}

/* Polls for a while, then yields between polls: with fewer CPUs than hosts, the processes that
 * deliver the word need this CPU. */
int via_perf_await(const _Atomic uint64_t *word, uint64_t value)
{
    for (unsigned i = 0; i < POLLS_BEFORE_YIELD; i++) {
        /* Pairs with the release of the process that stores the word last. */
        if (atomic_load_explicit(word, memory_order_acquire) == value) {
            return 0;
        }
        via_cpu_pause();
    }
    uint64_t until_ns = via_process_now_ns() + VIA_PERF_ANSWER_NS;
    do {
        for (unsigned i = 0; i < 64; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) == value) {
                return 0;
            }
            sched_yield();
        }
    } while (via_process_now_ns() < until_ns);
    return -ETIMEDOUT;
}

/* --- the other process ------------------------------------------------------------------------ */

struct far {
    const struct via_perf *perf;
    struct via_perf_lines *lines;
    struct via_attach *attach;
    struct via_segment *segment;
    struct via_remote *remote; /* the near segment */
    int fd;
};

static int far_open(struct far *far, const struct via_perf_order *order)
{
    return via_remote_open(far->attach, far->perf->from, order->handle, order->bytes, &far->remote);
}

static int far_bare(struct far *far, const struct via_perf_order *order)
{
    for (uint64_t i = 1; i <= order->count; i++) {
        int rc = via_perf_await(&far->lines->ping, order->number + i);
        if (rc != 0) {
            return rc;
        }
        /* Pairs with the acquire in via_perf_await(). */
        atomic_store_explicit(&far->lines->pong, order->number + i, memory_order_release);
    }
    return 0;
}

static int far_ping(struct far *far, const struct via_perf_order *order)
{
    unsigned char *base = via_segment_base(far->segment);
    _Atomic uint64_t *last = via_perf_last_word(base, order->bytes);
    for (uint64_t i = 1; i <= order->count; i++) {
        int rc = via_perf_await(last, order->number + i);
        if (rc == 0) {
            rc = via_remote_put(far->remote, 0, base, order->bytes, VIADUCT_PUT_LAST_WORD);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int far_barrier(struct far *far, const struct via_perf_order *order)
{
    int rc = 0;
    for (uint64_t i = 0; i < order->count && rc == 0; i++) {
        rc = via_barrier(far->attach, 1, far->perf->hosts, far->perf->hosts_count);
    }
    return rc;
}

static int far_execute(struct far *far, const struct via_perf_order *order)
{
    switch (order->kind) {
    case VIA_PERF_ORDER_OPEN:
        return far_open(far, order);
    case VIA_PERF_ORDER_BARE:
        return far_bare(far, order);
    case VIA_PERF_ORDER_PING:
        return far_ping(far, order);
    case VIA_PERF_ORDER_BARRIER:
        return far_barrier(far, order);
    default:
        return -EINVAL;
    }
}

static void far_answer(struct far *far, int status)
{
    struct via_perf_answer answer = {.status = via_min(status, 0)};
    if (far->segment != NULL) {
        answer.handle = via_segment_handle(far->segment);
    }
    if (status == -ETIMEDOUT) {
        snprintf(answer.text, sizeof(answer.text), "no ping in time");
    } else if (status < 0) {
        snprintf(answer.text, sizeof(answer.text), "%s", via_error_text());
    }
    (void)!send(far->fd, &answer, sizeof(answer), MSG_NOSIGNAL);
}

/* The main function of the process. It ends when the near process closes the socket. */
static void far_live(const struct via_perf *perf, unsigned host, uint64_t bytes,
                     struct via_perf_lines *lines, int fd)
{
    struct far far = {.perf = perf, .lines = lines, .fd = fd};
    int rc = via_perf_attach(perf, host, perf->channels[0], &far.attach);
    if (rc == 0 && bytes != 0) {
        rc = via_segment_new(far.attach, bytes, VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE,
                             &far.segment);
    }
    if (rc == 0 && far.segment != NULL) {
        /* Touches each page once, so that the page faults are not measured. */
        memset(via_segment_base(far.segment), 0, bytes);
    }
    far_answer(&far, rc);
    struct via_perf_order order;
    while (rc == 0 && (rc = via_perf_order_receive(fd, bytes, far.remote != NULL, &order)) != 0) {
        rc = rc < 0 ? rc : far_execute(&far, &order);
        far_answer(&far, rc);
    }
    via_attach_close(far.attach);
}

/* --- this process ----------------------------------------------------------------------------- */

static int peer_error(const struct via_perf_peer *peer, struct via_error *err, int code,
                      const char *text)
{
    return via_error_set(err, code, "host %u: its process: %s", peer->host, text);
}

int via_perf_peer_start(const struct via_perf *perf, unsigned host, uint64_t bytes,
                        struct via_perf_lines *lines, struct via_perf_peer *peer,
                        struct via_error *err)
{
    int fds[2];
    *peer = (struct via_perf_peer){.fd = -1, .host = host};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
        return peer_error(peer, err, -errno, strerror(errno));
    }
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        int rc = -errno;
        close(fds[0]);
        close(fds[1]);
        return peer_error(peer, err, rc, strerror(-rc));
    }
    if (pid == 0) {
        /* Ends this process with the near one, whatever ends that one. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fds[0]);
        if (getppid() == parent) {
            far_live(perf, host, bytes, lines, fds[1]);
        }
        _exit(0);
    }
    close(fds[1]);
    peer->fd = fds[0];
    peer->pid = pid;
    return via_perf_peer_wait(peer, err);
}

void via_perf_peer_end(struct via_perf_peer *peer)
{
    if (peer->pid == 0) {
        return;
    }
    close(peer->fd);
    /* The process may be in a long wait. */
    kill(peer->pid, SIGTERM);
    while (waitpid(peer->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    peer->pid = 0;
}

int via_perf_peer_send(const struct via_perf_peer *peer, const struct via_perf_order *order,
                       struct via_error *err)
{
    if (send(peer->fd, order, sizeof(*order), MSG_NOSIGNAL) != (ssize_t)sizeof(*order)) {
        return peer_error(peer, err, -errno, strerror(errno));
    }
    return 0;
}

int via_perf_peer_wait(struct via_perf_peer *peer, struct via_error *err)
{
    struct via_perf_answer answer;
    /* The process has a shorter time limit, and then reports the reason. */
    int rc =
        via_perf_answer_receive(peer->fd, (int)(2 * VIA_PERF_ANSWER_NS / VIA_MSEC_NS), &answer);
    if (rc != 0) {
        return peer_error(peer, err, rc,
                          rc == -ETIMEDOUT ? "no answer"
                          : rc == -EPROTO  ? "an invalid answer"
                                           : "has ended");
    }
    if (answer.status != 0) {
        return peer_error(peer, err, answer.status, answer.text);
    }
    peer->handle = answer.handle;
    return 0;
}
