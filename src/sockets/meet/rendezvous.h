/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_RENDEZVOUS_H
#define VIA_SOCKETS_RENDEZVOUS_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "sockets/meet/stream_offer.h"

/*
 * How the two processes of one machine at the ends of a TCP connection find each other, without a
 * daemon and without blocking.
 *
 * Both mark their TCP sockets (via_diag_mark), the acceptor by marking its listener. For a short
 * connection that is all. When a connection has moved some bytes, each end queries the kernel
 * about the socket at the other end (sock_diag(7)): without a mark the peer does not run Viaduct.
 * With one, the connector listens on an abstract UNIX socket (SOCK_SEQPACKET) that is named by the
 * kernel's cookie of its TCP socket. The acceptor gets that cookie from the kernel, too, and
 * connects to that name. Over this connection, the control socket, the acceptor sends an offer: the
 * memory and its bell. At its next call the connector answers with its bell, and closes the control
 * socket. The messages are only peeked, so that a process forked meanwhile finds them, too.
 *
 * The user that listens under the name must own the TCP socket; otherwise another user's process
 * could intercept the offer. In a user namespace the overflow uid stands for all users without a
 * uid there, and is not accepted as an owner (user_namespaces(7)).
 */

/* Listens for the acceptor of the socket with this cookie. Returns a descriptor or a negative
 * errno. */
int via_rendezvous_listen(uint64_t cookie);

/* Returns a control socket if the acceptor has connected; -EAGAIN if not yet; or another negative
 * errno. */
int via_rendezvous_accept(int listen_fd, uid_t *ret_uid);

/* Connects to the connector with this cookie and owner. Returns a control socket; -ECONNREFUSED: no
 * process listens (the peer does not run Viaduct, or has not begun yet); -EACCES: another user
 * listens; or another negative errno. */
int via_rendezvous_connect(uint64_t cookie, uid_t uid);

/* The process at the other end, or the one from which that was forked. pid 0: it has none in this
 * namespace; uid -1, which no user has: the kernel does not return it. */
struct ucred via_rendezvous_peer(int control_fd);

/* Sends an offer or an answer, with at least one file descriptor. 0 or a negative errno. */
int via_rendezvous_send(int control_fd, const struct via_offer *offer, const int *fds,
                        unsigned fds_count);

/* Consumes an unread message and its descriptors. If the socket were closed with an unread message,
 * the peer would get ECONNRESET: unix_release_sock() (net/unix/af_unix.c). */
void via_rendezvous_drop(int control_fd);

/* Peeks the peer's message. 0 and the fds (close-on-exec, owned by the caller); -EAGAIN; -EPIPE:
 * the peer has ended; -EMFILE: this process has no descriptors for them; -EPROTO. */
int via_rendezvous_peek(int control_fd, struct via_offer *ret_offer, int *ret_fds,
                        unsigned fds_count);

#endif
