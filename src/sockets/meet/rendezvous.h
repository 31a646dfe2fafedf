/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_RENDEZVOUS_H
#define VIA_SOCKETS_RENDEZVOUS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sockets/meet/stream_offer.h"

/*
 * How two processes of one machine that have a TCP connection find each other, without a daemon and
 * without blocking.
 *
 * Both mark their TCP sockets (via_diag_mark), the acceptor by marking its listener. Nothing else
 * happens to a short connection. When a connection has moved some data, either end asks the kernel
 * about the socket at the other end (sock_diag): without a mark the peer is a plain program, and
 * stays so. With one, the connector listens on an abstract UNIX socket (SOCK_SEQPACKET) named by
 * the kernel's cookie of its TCP socket, and the acceptor, which has learnt the cookie from the
 * kernel too, connects to that name. Over this connection, the control socket, the acceptor offers
 * (memory and its bell); the connector answers (its bell) at its next call, and needs the socket no
 * more. The messages are only peeked, so that a process forked meanwhile finds them too.
 *
 * The owner of the name must be the user that owns the TCP socket; otherwise another user's process
 * could intercept the offer. In a user name space the overflow uid stands for all users that have
 * no number there, and owns nothing (user_namespaces(7)).
 */

/* Listens for the acceptor of the socket with this cookie. A file descriptor or a negative errno.
 */
int via_rendezvous_listen(uint64_t cookie);

/* Has the acceptor connected? Returns its control socket, -EAGAIN, or an error. */
int via_rendezvous_accept(int listen_fd, uid_t *ret_uid);

/* Connects to the connector with this cookie and owner. Returns a control socket; -ECONNREFUSED if
 * there is no listener (the peer is a plain program), -EACCES if another user owns the name, or
 * another negative errno. */
int via_rendezvous_connect(uint64_t cookie, uid_t uid);

/* The process at the other end, or the process that it was forked from; 0: that process has no
 * number in this pid namespace. */
pid_t via_rendezvous_pid(int control_fd);

/* Sends an offer or an answer, with one to four file descriptors. 0 or a negative errno. */
int via_rendezvous_send(int control_fd, const struct via_offer *offer, const int *fds,
                        unsigned fds_count);

/* Consumes an unread message and its descriptors: closing with an unread message would make the
 * peer's next read fail. */
void via_rendezvous_drop(int control_fd);

/* Peeks the peer's message. 0 and the fds (close-on-exec, owned by the caller), -EAGAIN, -EPIPE if
 * the peer has ended, -EPROTO. */
int via_rendezvous_peek(int control_fd, struct via_offer *ret_offer, int *ret_fds,
                        unsigned fds_count);

#endif
