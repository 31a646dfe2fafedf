/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The program at an end of a connection. It sends and receives, mostly by calls that do not block,
 * returns to the kernel connection when the seed says so, and sleeps where a program would call
 * poll(). It must receive all bytes that its peer sent, once and in order, and then the end of
 * file.
 *
 * The peer of a killed process receives all bytes that the process had put or sent, once and in
 * order, and then the end of file. Only one kind of bytes may be lost: the peer has left the pipe,
 * so the process has to send them again, by the kernel, and is killed before it does.
 */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "sim/sockets/run.h"
#include "sockets/conn/demote.h"
#include "sockets/io/io_internal.h"
#include "sockets/io/stall.h"
#include "sockets/process/real.h"

#define CHUNK_MAX 4096u
/* Limit of the time from the kernel's FIN to the end of file: a peer that closes announces it
 * behind all of its bytes, so there is nothing else to wait for. */
#define LATE_NS VIA_SEC_NS
#define KEPT_NS VIA_MSEC_NS
#define LEAVE_KEPT_CHANCE 500u
#define HALF_CLOSED_NS (100 * VIA_MSEC_NS) /* as in io_poll.c */

static struct via_op op_of(struct sock_end *end)
{
    return via_conn_op(&end->conn, (int)end->number);
}

static bool is_in(const struct sock_end *end, uint32_t phases)
{
    return via_conn_is_in(&end->conn, phases);
}

/* --- fates ------------------------------------------------------------------------------------ */

bool sock_program_is_killed(struct sock_end *end)
{
    struct sock_run *run = end->run;
    bool spills = end->conn.side->stall.spills || end->peer->conn.side->stall.spills;
    if (spills && !end->spilled && end->conn.side->stall.spills) {
        run->result->spills++;
        sock_trace(end, "spills, sent", end->sent);
    }
    end->spilled = end->conn.side->stall.spills;
    if (fate_is_due(&end->exec, spills) && !is_in(end, VIA_PHASES_GONE)) {
        end->leaving = true;
        run->result->execs++;
        sock_trace(end, "calls exec, spills", spills);
    }
    if (!end->dead && fate_is_due(&end->kill, spills)) {
        end->dead = true;
        end->fin_at_death = end->out.fin_sent;
        run->result->kills++;
        sock_trace(end, "is killed, sent", end->sent);
        sock_kernel_fin(end); /* the kernel closes the process's descriptors */
    }
    return end->dead;
}

/* True if this end has received everything that a stream which ends now must deliver. */
static bool has_all(const struct sock_end *end)
{
    const struct sock_end *peer = end->peer;
    if (end->received == peer->total) {
        return true;
    }
    bool some = is_in(peer, VIA_PHASES_REPLAY);
    return peer->dead && !peer->fin_at_death &&
           (some || end->received + peer->in_call >= peer->sent) && end->received <= peer->sent;
}

/* --- sending and receiving -------------------------------------------------------------------- */

static void take(struct sock_end *end, const unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (end->received + i >= end->peer->sent ||
            data[i] != sock_byte(end->peer->content, end->received + i)) {
            sock_fail(end->run, "end %u: byte %llu is not what was sent", end->number,
                      (unsigned long long)(end->received + i));
            return;
        }
    }
    end->received += bytes;
}

static bool finish_reading(struct sock_end *end)
{
    end->ended = true;
    end->burst.bytes = 0; /* if the peer was killed, this end has nothing more to wait for */
    if (end->fin_ns != 0 && end->run->clock.now_ns - end->fin_ns > LATE_NS && !end->peer->dead) {
        sock_fail(end->run, "end %u: end of file comes %llu ms after the kernel's FIN", end->number,
                  (unsigned long long)((end->run->clock.now_ns - end->fin_ns) / VIA_MSEC_NS));
    }
    if (!has_all(end)) {
        sock_fail(end->run, "end %u: the stream ends after %llu of %llu bytes", end->number,
                  (unsigned long long)end->received, (unsigned long long)end->peer->total);
    }
    return true;
}

static bool may_read(struct sock_end *end)
{
    return !end->ended && burst_is_read_allowed(&end->burst, &end->run->rng, end->sent, end->total);
}

static bool read_some(struct sock_end *end)
{
    struct sock_run *run = end->run;
    unsigned char chunk[CHUNK_MAX];
    uint64_t most = via_rng_chance(&run->rng, 1, 2) ? CHUNK_MAX : 100;
    struct iovec iov = {chunk, sock_between(run, 1, most)};
    if (!may_read(end)) {
        return false;
    }
    struct via_op op = op_of(end);
    bool waits = end->waits_in && sock_chance(run, 800);
    ssize_t n = via_io_recv(&op, &iov, 1, waits ? 0 : MSG_DONTWAIT);
    if (n > 0) {
        end->fin_ns = 0;
        take(end, chunk, (size_t)n);
    } else if (n == 0 || (n == -ECONNRESET && end->peer->dead) ||
               (n != -EAGAIN && end->peer->rogue)) {
        return finish_reading(end);
    } else if (n != -EAGAIN) {
        sock_fail(run, "end %u: recv: %zd", end->number, n);
    } else if (end->peer->out.fin_arrived && end->fin_ns == 0) {
        end->fin_ns = run->clock.now_ns;
    }
    return n > 0;
}

static bool may_write(const struct sock_end *end)
{
    return !end->fin_sent && burst_is_write_allowed(&end->burst, end->sent, end->total);
}

/* Shuts down this direction: all is sent, or the peer that reads it is gone. */
static bool finish_writing(struct sock_end *end)
{
    struct via_op op = op_of(end);
    end->fin_sent = true;
    end->burst.bytes = 0;
    int rc = via_io_shutdown(&op, SHUT_WR);
    if (rc != 0 && !end->peer->dead) {
        sock_fail(end->run, "end %u: shutdown: %d", end->number, rc);
    }
    return true;
}

static bool write_some(struct sock_end *end)
{
    struct sock_run *run = end->run;
    unsigned char chunk[CHUNK_MAX];
    if (!may_write(end)) {
        return false;
    }
    if (end->sent == end->total) {
        return finish_writing(end);
    }
    bool waits = end->waits_out && sock_chance(run, 800);
    uint64_t most = waits || via_rng_chance(&run->rng, 1, 3) ? CHUNK_MAX : 60;
    struct iovec iov = {chunk, via_min(end->total - end->sent, sock_between(run, 1, most))};
    for (size_t i = 0; i < iov.iov_len; i++) {
        chunk[i] = sock_byte(end->content, end->sent + i);
    }
    struct via_op op = op_of(end);
    uint64_t before = end->sent;
    end->in_call = iov.iov_len;
    end->sent += iov.iov_len; /* the peer may read them before the call returns */
    ssize_t n = via_io_send(&op, &iov, 1, (waits ? 0 : MSG_DONTWAIT) | MSG_NOSIGNAL);
    end->sent = before + (n > 0 ? (uint64_t)n : 0);
    end->in_call = 0;
    if (n == -EINTR) {
        return true; /* interrupted by a signal handler: the caller calls again */
    }
    if (n < 0 && n != -EAGAIN) {
        if (!end->peer->dead) {
            sock_fail(run, "end %u: send: %zd", end->number, n);
        }
        return finish_writing(end); /* EPIPE: the program stops */
    }
    return n > 0;
}

static bool demote(struct sock_end *end)
{
    struct sock_run *run = end->run;
    /* An end leaves more often while the steward has work left for it. */
    uint32_t chance = end->kept ? LEAVE_KEPT_CHANCE : run->config->leave_chance;
    if (!via_conn_has_pipes(&end->conn) || !(end->leaving || sock_chance(run, chance))) {
        end->leaving = false;
        return false;
    }
    struct via_op op = op_of(end);
    end->leaving = true;
    int rc = via_conn_demote(&op, VIA_REASON_EXEC);
    end->fin_ns = 0;
    end->leaving = false;
    sock_trace(end, "leaves, with", (uint64_t)-rc);
    if (rc != 0 && rc != -ETIMEDOUT && rc != -EPIPE && rc != -EAGAIN && !end->peer->dead) {
        sock_fail(run, "end %u: leaves: %d", end->number, rc);
    }
    return rc == 0;
}

/* Makes one call. False if no call made progress. */
static bool work(struct sock_end *end)
{
    burst_step(&end->burst, end->sent, end->total, end->received, end->peer->total);
    if (demote(end)) {
        return true;
    }
    bool reads_first = via_rng_chance(&end->run->rng, 1, 2);
    bool done = reads_first ? read_some(end) : write_some(end);
    if (!done) {
        done = reads_first ? write_some(end) : read_some(end);
    }
    sock_trace(end, done ? "works, received" : "finds nothing, received", end->received);
    return done;
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* True if no byte was sent or received for BURST_HANGS_NS before this call. */
static bool check_hang(struct sock_end *end)
{
    uint64_t bytes = end->sent + end->received;
    if (bytes != end->bytes_seen || end->seen_ns == 0) {
        end->bytes_seen = bytes;
        end->seen_ns = end->run->clock.now_ns;
    }
    return end->run->clock.now_ns - end->seen_ns > BURST_HANGS_NS;
}

/* Polls the socket for the events that the library asks of the kernel. True if there are some. */
static bool poll_socket(struct sock_end *end)
{
    struct via_op op = op_of(end);
    struct pollfd fds = {.fd = via_io_kernel_fd(&op),
                         .events = (short)via_io_kernel_events(&op, end->wanted)};
    if (fds.fd < 0 || VIA_REAL(poll)(&fds, 1, 0) == 0) {
        return false;
    }
    via_io_note_kernel_events(&op, (uint32_t)(unsigned short)fds.revents, 0);
    return true;
}

/* Sleeps as poll() does in the library for a connection. The caller has entered the bells. */
static void sleep_until_event(struct sock_end *end)
{
    struct via_op op = op_of(end);
    bool reads = !end->ended && !burst_has_to_send(&end->burst, end->sent, end->total);
    uint64_t most_ns = VIA_NEVER_NS;
    end->wanted = (reads ? POLLIN : 0u) | (may_write(end) ? POLLOUT : 0u);
    if (via_conn_has_pipes(&end->conn)) {
        via_io_arm(&op, end->wanted);
        most_ns = (end->wanted & POLLOUT) != 0 ? via_stall_watch(&op) : VIA_NEVER_NS;
    }
    if (most_ns == 0 || via_io_ready(&op, end->wanted) != 0) {
        return;
    }
    if (!via_conn_is_local(&end->conn)) {
        most_ns = via_min(most_ns, via_fabric_sleep_ns_max());
    }
    most_ns = end->kept ? via_min(most_ns, (uint64_t)KEPT_NS) : most_ns;
    if ((end->wanted & POLLOUT) != 0 && end->peer->out.fin_arrived) {
        most_ns = via_min(most_ns, HALF_CLOSED_NS);
    }
    if (check_hang(end)) {
        most_ns = VIA_NEVER_NS; /* no wake-up comes, so the run ends */
    }
    if (!poll_socket(end)) {
        sock_trace(end, "sleeps, for events", end->wanted);
        sock_sleep(end, most_ns);
        poll_socket(end);
    }
}

static void wait_for_event(struct sock_end *end)
{
    struct via_bell_sleep sleep;
    via_sock_bell_enter(&sleep, via_conn_bells(&end->conn));
    sleep_until_event(end);
    via_sock_bell_leave(&sleep);
}

/* Does what this end has left to the steward, as the steward would: send_kept() in steward.c. In
 * phase STAYS the end has also collected its unread bytes, and sends none of them again. */
static void serve_kept(struct sock_end *end)
{
    struct via_conn *conn = &end->conn;
    struct via_op op = op_of(end);
    bool parts = conn->parting != VIA_PARTING_NOT;
    if (!end->kept || sock_chance(end->run, 500) || via_tx_take(&op) != 0) {
        return;
    }
    bool again = !parts && is_in(end, VIA_PHASES_REPLAY);
    int rc = again ? via_conn_replay_all(conn, op.fd, 0) : 0;
    bool done = rc != -EAGAIN;
    if (done && (parts || conn->side->shutting != 0)) {
        done =
            parts ? via_conn_continue_parting(conn, op.fd) : via_io_continue_shutdown(conn, op.fd);
    }
    via_tx_give(&op);
    end->kept = !done;
}

bool sock_program_is_over(const struct sock_end *end)
{
    return end->fin_sent && end->ended && !end->kept;
}

void sock_program_main(void *arg)
{
    struct sock_end *end = arg;
    struct sock_run *run = end->run;
    while (!sock_program_is_over(end) && !(end->peer->rogue && end->turns_left-- == 0)) {
        end->bell = false;
        serve_kept(end);
        if (!work(end) && !sock_program_is_over(end)) {
            wait_for_event(end);
        }
        uint64_t stall_ns = sock_chance(run, run->config->stall_chance)
                                ? sock_between(run, 0, run->config->stall_ns_max)
                                : 0;
        sock_pause(end, sock_between(run, 20, 400) + stall_ns);
    }
    via_conn_closing(&end->conn, (int)end->number);
    while (end->kept) {
        serve_kept(end);
        sock_pause(end, KEPT_NS);
    }
    end->closed = true;
    sock_kernel_fin(end);
    sock_trace(end, "has closed", 0);
}
