/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_IO_H
#define VIA_SOCKETS_IO_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "sockets/conn/conn.h"

/*
 * Sending and receiving on a connection, be it through the kernel or by pipes, with the semantics
 * of the kernel's calls. Results are bytes or a negative errno; SIGPIPE is raised as by the kernel.
 */

/* The fast path, for calls with one buffer on an ordinary connection. _recv_now: the pipe has
 * bytes, or gets some while the call waits. _send_now: the pipe has room for the message as one
 * record. Keeps errno. -EAGAIN: nothing has been done, call the functions below. */
ssize_t via_io_recv_now(struct via_op *op, void *buf, size_t bytes, int flags);
ssize_t via_io_send_now(struct via_op *op, const void *buf, size_t bytes, int flags);

/* All other calls. flags: MSG_PEEK, MSG_WAITALL, MSG_DONTWAIT, MSG_TRUNC; MSG_OOB is passed to the
 * kernel. */
ssize_t via_io_recv_slowly(struct via_op *op, const struct iovec *iov, int iov_count, int flags);
/* flags: MSG_DONTWAIT, MSG_NOSIGNAL, MSG_OOB as above, and flags that have no meaning for a
 * pipe. */
ssize_t via_io_send_slowly(struct via_op *op, const struct iovec *iov, int iov_count, int flags);

/* Between hosts: returns -ETIMEDOUT to the first caller if sent bytes of this end could not be
 * delivered, else 0. */
int via_io_take_time_out(struct via_op *op);

static inline ssize_t via_io_recv(struct via_op *op, const struct iovec *iov, int iov_count,
                                  int flags)
{
    ssize_t n = iov_count == 1 ? via_io_recv_now(op, iov->iov_base, iov->iov_len, flags) : -EAGAIN;
    return n != -EAGAIN ? n : via_io_recv_slowly(op, iov, iov_count, flags);
}

static inline ssize_t via_io_send(struct via_op *op, const struct iovec *iov, int iov_count,
                                  int flags)
{
    ssize_t n = iov_count == 1 ? via_io_send_now(op, iov->iov_base, iov->iov_len, flags) : -EAGAIN;
    return n != -EAGAIN ? n : via_io_send_slowly(op, iov, iov_count, flags);
}

/* --- for waiting threads --------------------------------------------------------------------- */

/*
 * The present result of poll() for a connection with pipes: of the events `wanted` (POLLIN,
 * POLLOUT, ...), and POLLERR and POLLHUP. Makes a system call only if the kernel may have something
 * to report.
 */
uint32_t via_io_ready(struct via_op *op, uint32_t wanted);

/* Called before sleeping for the events `wanted`: announces to the peer that this end waits for
 * bytes. (A check that finds no room announces that to the peer, too.) Then the caller enters its
 * bells (via_sock_bell_enter), checks again, and sleeps; only for a short time if op->busy is
 * set. */
void via_io_arm(struct via_op *op, uint32_t wanted);

/* The events for which a thread that sleeps polls the kernel's socket. */
uint32_t via_io_kernel_events(const struct via_op *op, uint32_t wanted);

/* The descriptor to poll for these events. -1: the kernel will report nothing more, but frames may
 * still follow. */
int via_io_kernel_fd(const struct via_op *op);

/* Called with events that the kernel has reported on the socket: records ends. Returns the events,
 * with further ones if the peer's end is a reset. fresh: see via_io_poll_kernel_after(). */
uint32_t via_io_note_kernel_events(struct via_op *op, uint32_t events, size_t fresh);

/* Bytes that can be read without waiting, from pipe and kernel: FIONREAD. */
int via_io_readable_bytes(struct via_op *op);

/* shutdown(): calls the kernel's, and writes FIN for the peer into the pipe. 0 or a negative
 * errno. */
int via_io_shutdown(struct via_op *op, int how);
/* With the tx token: continues the steps that shutdown() has left for later. True when all are
 * done. */
bool via_io_continue_shutdown(struct via_conn *conn, int fd);
/* Shuts down the kernel's socket now, even if bytes are still under way. */
void via_io_shut_now(struct via_conn *conn, int fd);

/* Updates registrations that depend on the carrier of the bytes. True if the carrier has changed.
 * No token is held. */
bool via_io_update_registrations(struct via_op *op);

#endif
