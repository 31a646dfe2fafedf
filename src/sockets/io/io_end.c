/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The end of a connection that the peer could not announce: its last holder was killed, or has
 * exited without close(). TCP resets a connection that is closed with bytes unread (RFC 2525,
 * 2.17); but the peer's kernel did not know of unread bytes in the pipe, and has sent FIN. The peer
 * has published how far it had read, so this end resets its own connection, as an RST would have.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "sockets/conn/demote.h"
#include "sockets/io/io_internal.h"
#include "sockets/process/real.h"

/* With one of these flags the end was announced, or the peer resends unread bytes through the
 * kernel. */
#define ANNOUNCED (VIA_FLAG_ENDS | VIA_FLAG_CLOSED | VIA_FLAG_FIN | VIA_FLAG_DEMOTE)

/* How long to query the kernel repeatedly whether the peer's last holder is dead: on a busy machine
 * a dying process waits for the CPU, too. */
#define DEATH_NS_MAX (50 * VIA_MSEC_NS)
#define PAUSE_NS_MIN (20 * VIA_USEC_NS)
#define PAUSE_NS_MAX VIA_MSEC_NS

/* True if the kernel has no unread bytes, and its byte count is not needed to find the pipe's
 * bytes. */
static bool is_kernel_read(const struct via_op *op)
{
    const struct via_stream_rx *rx = &op->side->rx;
    int unread = 0;
    return (rx->span == VIA_SPAN_PIPE || !via_pipe_is_ready(&rx->pipe)) &&
           rx->span != VIA_SPAN_KERNEL_UNTIL && VIA_REAL(ioctl)(op->fd, SIOCINQ, &unread) == 0 &&
           unread == 0;
}

/* Ends the connection as after RST: the next call gets ECONNRESET, then end of file. False: not
 * done. The kernel can not do that for a connection that has ended in both directions, and would
 * discard unread bytes. */
static bool reset(struct via_op *op)
{
    if (op->side->tx_shut != 0 || !is_kernel_read(op)) {
        return false;
    }
    VIA_KEEP_ERRNO;
    via_conn_reset(op->fd);
    /* Returns ENOTCONN, but then reads return end of file: inet_shutdown() in the kernel. */
    VIA_REAL(shutdown)(op->fd, SHUT_RDWR);
    atomic_store_explicit(&op->side->lost, VIA_LOST_REPORTED, memory_order_relaxed);
    return true;
}

/* True if the events need no announcement by the peer: shutdown() on this end also causes
 * POLLRDHUP, and so does RST. */
static bool is_reported(const struct via_side *side, uint32_t events)
{
    return side->rx_shut != 0 || (events & POLLERR) != 0 ||
           ((events & POLLHUP) != 0 && side->tx_shut == 0);
}

/* True if the kernel has reported an end that the peer has not announced. */
static bool is_unannounced(const struct via_op *op, uint32_t events)
{
    return !is_reported(op->side, events) && via_conn_is_local(op->conn) &&
           via_conn_has_pipes(op->conn) && (via_side_flags(op->side) & ANNOUNCED) == 0;
}

/* True if no process holds the other end. The kernel sends FIN a little before its socket loses its
 * last holder, so the kernel is queried several times. (A program may also have shut its output
 * down by a system call that bypasses the library; then its end has a holder.) */
static bool is_death(struct via_op *op)
{
    VIA_KEEP_ERRNO;
    uint64_t end_ns = via_os_now_ns() + DEATH_NS_MAX;
    uint64_t pause_ns = PAUSE_NS_MIN;
    bool over = op->conn->carrier->is_over(op->conn, op->fd);
    while (!over && via_os_now_ns() < end_ns) {
        via_os_pause(pause_ns);
        pause_ns = via_min(2 * pause_ns, PAUSE_NS_MAX);
        over = op->conn->carrier->is_over(op->conn, op->fd);
    }
    return over;
}

/* Sends a byte that no process will read. The peer's kernel answers by RST, as it would have done
 * if the bytes just written had arrived at its socket. */
static void provoke_reset(struct via_op *op)
{
    VIA_KEEP_ERRNO;
    (void)!VIA_REAL(send)(op->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Called when bytes were unread at the peer when it ended, or did not arrive: resets the
 * connection, now or when the reader has read what came before. Returns further VIA_POLL_GONE
 * bits. */
static uint32_t note_lost(struct via_op *op)
{
    uint8_t not = VIA_LOST_NOT;
    bool first = atomic_compare_exchange_strong_explicit(
        &op->side->lost, &not, VIA_LOST_DUE, memory_order_relaxed, memory_order_relaxed);
    return first && reset(op) ? POLLERR | POLLHUP : 0;
}

uint32_t via_io_peer_ended(struct via_op *op, uint32_t events, size_t fresh)
{
    struct via_side *side = op->side;
    if (!is_unannounced(op, events)) {
        return 0;
    }
    bool unread = via_stream_tx_is_unread(&side->tx, fresh);
    if ((!unread && fresh == 0) || !is_death(op)) {
        return 0;
    }
    if (!unread) {
        provoke_reset(op);
        return 0;
    }
    return note_lost(op);
}

uint32_t via_io_fabric_ended(struct via_op *op)
{
    /* Pairs with the release in via_io_note_kernel_events(). */
    uint32_t seen = atomic_load_explicit(&op->side->shadow, memory_order_acquire);
    if ((seen & POLLRDHUP) == 0 || is_reported(op->side, seen) ||
        op->conn->carrier->end_of(op->conn) != VIA_CARRIER_END_RESET) {
        return 0;
    }
    uint32_t events = note_lost(op);
    atomic_fetch_or_explicit(&op->side->shadow, events, memory_order_acq_rel);
    return events;
}

/* Takes the pending error of the kernel's socket (SO_ERROR), which clears it. */
static int take_kernel_error(const struct via_op *op)
{
    VIA_KEEP_ERRNO;
    return -via_real_option(op->fd, SOL_SOCKET, SO_ERROR);
}

/* Called when the library has reset the connection, and reports the error itself. */
static void drop_kernel_error(struct via_op *op)
{
    (void)take_kernel_error(op);
    atomic_fetch_or_explicit(&op->side->shadow, VIA_POLL_GONE, memory_order_acq_rel);
}

void via_io_record_refused(struct via_op *op)
{
    _Atomic uint8_t *lost = &op->side->lost;
    uint8_t state = atomic_load_explicit(lost, memory_order_relaxed);
    /* Each failed exchange is another thread's step towards VIA_LOST_REPORTED. */
    while (state < VIA_LOST_REFUSED &&
           !atomic_compare_exchange_weak_explicit(lost, &state, VIA_LOST_REFUSED,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    if (state <= VIA_LOST_REFUSED && reset(op)) {
        drop_kernel_error(op);
    }
}

/* TCP gives up after too many retransmissions: it sends RST, and reports ETIMEDOUT (tcp(7),
 * tcp_retries2). This function sends RST. The kernel would report ECONNRESET for the library's
 * reset, so its error is discarded. */
static void abort_timed_out(struct via_op *op)
{
    VIA_KEEP_ERRNO;
    via_conn_reset(op->fd);
    VIA_REAL(shutdown)(op->fd, SHUT_RDWR); /* as in reset() */
    drop_kernel_error(op);
}

bool via_io_is_given_up(struct via_op *op)
{
    _Atomic uint8_t *lost = &op->side->lost;
    uint8_t state = atomic_load_explicit(lost, memory_order_acquire);
    if (via_unlikely(state >= VIA_LOST_TIMED_OUT)) {
        return true;
    }
    if (via_unlikely(state == VIA_LOST_REFUSED)) {
        via_io_record_refused(op); /* resets now if the program has read the kernel's bytes */
        return false;
    }
    if (!via_conn_has_pipes(op->conn) || !via_carrier_is_given_up(op->conn) ||
        state != VIA_LOST_NOT) {
        return false;
    }
    if (atomic_compare_exchange_strong_explicit(lost, &state, VIA_LOST_TIMED_OUT,
                                                memory_order_acq_rel, memory_order_relaxed)) {
        abort_timed_out(op);
    }
    return atomic_load_explicit(lost, memory_order_relaxed) >= VIA_LOST_TIMED_OUT;
}

int via_io_take_time_out(struct via_op *op)
{
    uint8_t due = VIA_LOST_TIMED_OUT;
    return via_io_is_given_up(op) && atomic_compare_exchange_strong_explicit(
                                         &op->side->lost, &due, VIA_LOST_TIMED_OUT_REPORTED,
                                         memory_order_relaxed, memory_order_relaxed)
               ? -ETIMEDOUT
               : 0;
}

int via_io_end(struct via_op *op)
{
    _Atomic uint8_t *lost = &op->side->lost;
    via_io_poll_kernel(op);
    if (via_conn_has_pipes(op->conn)) {
        via_io_fabric_ended(op);
    }
    uint8_t state = atomic_load_explicit(lost, memory_order_relaxed);
    if (via_likely(state == VIA_LOST_NOT)) {
        return 0;
    }
    if (state >= VIA_LOST_TIMED_OUT) {
        return via_io_take_time_out(op);
    }
    if (state == VIA_LOST_DUE && !reset(op)) {
        return atomic_exchange_explicit(lost, VIA_LOST_REPORTED, memory_order_relaxed) ==
                       VIA_LOST_DUE
                   ? -ECONNRESET
                   : 0;
    }
    if (state == VIA_LOST_REFUSED) {
        via_io_record_refused(op); /* a writer's call has returned the error before */
        return 0;
    }
    return take_kernel_error(op);
}
