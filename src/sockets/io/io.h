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
 * Sending and receiving on a connection, whatever carries its bytes now, with the semantics of the
 * kernel's calls. Results are bytes or a negative errno; SIGPIPE is raised as by the kernel.
 */

/* For calls with one buffer, the most frequent ones, on an ordinary connection: its pipe has bytes,
 * or gets some while the call waits, or has room for the message as one record. Keeps errno.
 * -EAGAIN: nothing has been done, use the functions below. */
ssize_t via_io_recv_now(struct via_op *op, void *buf, size_t bytes, int flags);
ssize_t via_io_send_now(struct via_op *op, const void *buf, size_t bytes, int flags);

/* All other calls. flags: MSG_PEEK, MSG_WAITALL, MSG_DONTWAIT, MSG_TRUNC; MSG_OOB is passed to the
 * kernel. */
ssize_t via_io_recv_slowly(struct via_op *op, const struct iovec *iov, int iov_count, int flags);
/* flags: MSG_DONTWAIT, MSG_NOSIGNAL, and those without a meaning for a pipe. */
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
 * The present result of poll(), of the events `wanted` (POLLIN, POLLOUT, ...), POLLERR and POLLHUP.
 * For a connection with pipes. Asks the kernel only when it may have news.
 */
uint32_t via_io_ready(struct via_op *op, uint32_t wanted);

/* Called before sleeping for the events `wanted`: tells the peer that this end waits for bytes. (A
 * check that finds no room tells the peer by itself.) The caller enters its bells
 * (via_sock_bell_enter), checks again, and then sleeps; for a short time if op is busy. */
void via_io_arm(struct via_op *op, uint32_t wanted);

/* Events for which a sleeper watches the kernel's socket. */
uint32_t via_io_kernel_events(const struct via_op *op, uint32_t wanted);

/* The descriptor to watch for these events: -1 when the kernel will report nothing more, but frames
 * may still follow. */
int via_io_kernel_fd(const struct via_op *op);

/* The kernel has reported these events on the socket. */
void via_io_note_kernel_events(struct via_op *op, uint32_t events);

/* Bytes that can be read without waiting, from pipe and kernel: FIONREAD. */
int via_io_readable_bytes(struct via_op *op);

/* shutdown(): the kernel's, and what the peer must read in the pipe. 0 or a negative errno. */
int via_io_shutdown(struct via_op *op, int how);
/* With the tx token: continues what shutdown() has left for later. True when nothing is left. */
bool via_io_continue_shutdown(struct via_conn *conn, int fd);
/* Shuts down the kernel's socket now, whatever is still under way. */
void via_io_shut_now(struct via_conn *conn, int fd);

/* Updates registrations that depend on the carrier of the bytes. True if the carrier has changed.
 * No token is held. */
bool via_io_update_registrations(struct via_op *op);

#endif
