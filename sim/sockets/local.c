/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The host as its connections see it: bells, sleeps in calls, another process's memory, and what
 * the kernel reports about the peer. Each of these takes a while, so that the peer may run between
 * a store and its ring, and between a check and a sleep.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/uio.h>

#include "sim/sockets/run.h"
#include "sim/stub.h"
#include "sockets/io/io_internal.h"
#include "sockets/io/wait.h"
#include "sockets/io/zcopy.h"
#include "sockets/meet/diag.h"
#include "sockets/process/real.h"

#define STEP_NS 300u
#define FETCH_NS_MAX (30 * VIA_MSEC_NS) /* longer than a sender waits for the receiver */
#define ROGUE_STEPS 200u

static void take_a_while(struct sock_end *end)
{
    sock_pause(end, sock_between(end->run, 0, STEP_NS));
}

/* --- bells ------------------------------------------------------------------------------------ */

void via_peer_bell_ring(struct via_peer_bell *bell, bool cold)
{
    struct sock_end *end = via_container_of(bell, struct sock_end, peer_bell);
    struct sock_run *run = end->run;
    (void)cold;
    take_a_while(end);
    if (run->plant == SIM_PLANT_LOST_BELL && via_rng_chance(&run->rng, 1, 20)) {
        return;
    }
    sock_trace(end, "rings, asleep", end->peer->asleep);
    sim_clock_after(&run->clock, sock_between(run, 0, run->config->bell_ns_max), SIM_EVENT_BELL,
                    end->peer->number, 0, 0);
}

/* The library rings so for another thread of the peer. Here the peer has only one thread. */
void via_peer_bell_call(struct via_peer_bell *bell)
{
    via_peer_bell_ring(bell, false);
}

uint64_t via_conn_bells(struct via_conn *conn)
{
    (void)conn;
    return VIA_BELL_MASK(0);
}

void via_sock_bell_enter(struct via_bell_sleep *ret_sleep, uint64_t bells)
{
    struct sock_end *end = sock_running();
    *ret_sleep = (struct via_bell_sleep){.bells = bells};
    end->bell = false;
    end->word.value += (UINT64_C(1) << 32) + 1;
    take_a_while(end);
}

void via_sock_bell_leave(const struct via_bell_sleep *sleep)
{
    (void)sleep;
    sock_running()->word.value -= 1;
}

/* --- a call that waits ------------------------------------------------------------------------ */

void via_wait_begin(struct via_wait *wait)
{
    *wait = (struct via_wait){0};
}

SIM_STUB(bool, false, via_wait_spin, struct via_wait *wait)
SIM_STUB(bool, true, via_wait_take_poll_due, struct via_wait *wait)

int via_sleep(struct pollfd *fds, unsigned count, uint64_t bells, uint64_t deadline_ns,
              const sigset_t *mask)
{
    struct sock_end *end = sock_running();
    (void)count, (void)bells, (void)mask;
    end->wanted = POLLIN | POLLOUT;
    if (fds[0].fd < 0 || VIA_REAL(poll)(fds, 1, 0) == 0) {
        uint64_t now_ns = via_os_now_ns();
        sock_trace(end, "sleeps in its call, until", deadline_ns);
        sock_sleep(end, deadline_ns == VIA_NEVER_NS ? VIA_NEVER_NS
                        : deadline_ns > now_ns      ? deadline_ns - now_ns
                                                    : 1);
    }
    end->bell = false;
    take_a_while(end);
    return fds[0].fd < 0 ? 0 : VIA_REAL(poll)(fds, 1, 0);
}

SIM_STUB(int, -EAGAIN, via_sleep_watching, int fd, uint64_t conn, uint64_t bells, uint64_t most_ns,
         uint32_t *ret_events)

/* --- bytes that the writer leaves in its memory ----------------------------------------------- */

bool via_zcopy_is_fetching(size_t bytes, bool *ret_counts)
{
    (void)bytes;
    *ret_counts = false;
    return via_rng_chance(&sock_run_now->rng, 1, 2);
}

/* The writer may withdraw the bytes during the copy, or be killed. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
                         const struct iovec *remote, unsigned long remote_count,
                         unsigned long flags)
{
    const struct sock_end *writer = sock_end_of((int)pid - 1);
    const unsigned char *from = remote->iov_base;
    size_t left = remote->iov_len;
    (void)remote_count, (void)flags;
    sock_pause(
        sock_running(),
        sock_between(sock_run_now, 0, sock_chance(sock_run_now, 100) ? FETCH_NS_MAX : STEP_NS));
    if (writer->dead || writer->rogue) {
        errno = ESRCH;
        return -1;
    }
    for (unsigned long i = 0; i < local_count && left != 0; i++) {
        size_t bytes = via_min(local[i].iov_len, left);
        memcpy(local[i].iov_base, from, bytes);
        from += bytes;
        left -= bytes;
    }
    return (ssize_t)(remote->iov_len - left);
}

/* The simulator keeps its own signal mask. A simulated program sometimes has a pending signal. */
int pthread_sigmask(int how, const sigset_t *set, sigset_t *ret_before)
{
    (void)how, (void)set;
    return ret_before != NULL ? sigemptyset(ret_before) : 0;
}

int sigpending(sigset_t *ret_set)
{
    sigemptyset(ret_set);
    return via_rng_chance(&sock_run_now->rng, 1, 2) ? sigaddset(ret_set, SIGUSR1) : 0;
}

/* --- the other end ---------------------------------------------------------------------------- */

bool via_conn_read_tuple(int fd, struct via_tuple *ret_tuple)
{
    *ret_tuple = (struct via_tuple){.remote.port = (uint16_t)sock_end_of(fd)->peer->number};
    return true;
}

int via_diag_peer(const struct via_tuple *tuple, struct via_diag *ret_diag)
{
    const struct sock_end *peer = sock_end_of(tuple->remote.port);
    *ret_diag = (struct via_diag){.held = !peer->dead && !peer->closed, .marked = true};
    return 0;
}

/* --- a rogue ---------------------------------------------------------------------------------- */

/* Writes a valid record at the place that the peer reads next, with noise behind it. */
static size_t forge_record(struct sock_end *end, unsigned char *segment, uint64_t *ret_word)
{
    struct sock_run *run = end->run;
    const struct via_pipe_reader *reader = &end->peer->conn.side->rx.pipe;
    struct via_stream_head head = {.kind = (uint8_t)sock_between(run, 0, 8),
                                   .inline_bytes = (uint8_t)sock_between(run, 0, 60),
                                   .u.count = sock_between(run, 0, 3)};
    uint32_t slot = reader->sequence & (reader->geometry.slots_count - 1);
    size_t off = VIA_SEGMENT_PIPE_OFF + (size_t)(1 + slot) * VIA_RECORD_LINE_BYTES;
    uint16_t length = sock_chance(run, 500) ? 0 : (uint16_t)*ret_word;
    memcpy(segment + off, &head, sizeof(head));
    *ret_word = via_record_word(reader->epoch, length, reader->sequence);
    return off + VIA_RECORD_LINE_BYTES - sizeof(*ret_word);
}

void sock_rogue_main(void *arg)
{
    struct sock_end *end = arg;
    struct sock_run *run = end->run;
    unsigned char *segment = end->peer->segment;
    for (unsigned step = 0; step < ROGUE_STEPS && !end->peer->closed; step++) {
        for (uint64_t n = sock_between(run, 1, 20); n > 0; n--) {
            uint64_t word = via_rng_next(&run->rng);
            bool at_words = sock_chance(run, 100);
            size_t off = at_words ? sock_between(run, 0, VIA_SEGMENT_PIPE_OFF / 8 - 1) * 8
                                  : sock_between(run, 0, end->fabric.bytes / 8 - 1) * 8;
            if (sock_chance(run, 500)) {
                off = forge_record(end, segment, &word);
            }
            memcpy(segment + off, &word, sizeof(word));
        }
        if (sock_chance(run, 100)) {
            (void)VIA_REAL(send)((int)end->number, segment, sock_between(run, 1, 100), 0);
        }
        sock_wake(end->peer);
        sock_pause(end, sock_between(run, 20, 4000));
    }
    end->dead = true;
    sock_kernel_fin(end);
}
