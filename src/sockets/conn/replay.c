/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Resends through the kernel the bytes that a peer which has left the pipes has not read:
 * demote.h. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "sockets/conn/demote.h"
#include "sockets/process/real.h"

/* TCP_NODELAY does that whenever it is set (tcp(7)). */
void via_conn_push(int fd)
{
    int on = 1;
    int before = via_real_option(fd, IPPROTO_TCP, TCP_NODELAY);
    VIA_REAL(setsockopt)(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (before == 0) {
        VIA_REAL(setsockopt)(fd, IPPROTO_TCP, TCP_NODELAY, &before, sizeof(before));
    }
}

/* Sends with MSG_MORE, in few packets. With a packet for each record, Nagle's algorithm or the
 * congestion window would hold the last ones back until the peer acknowledges the first ones, up to
 * 40 ms later, and the peer's program would get a part of the bytes that it has seen in the pipe.
 */
static int send_again(struct via_conn *conn, int fd)
{
    struct via_stream_replay *replay = &conn->side->replay;
    const void *data;
    size_t bytes;
    while ((bytes = via_stream_replay_next(replay, &data)) != 0) {
        ssize_t n = VIA_REAL(send)(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE);
        if (n < 0) {
            return errno == EWOULDBLOCK ? -EAGAIN : -errno;
        }
        via_stream_replay_sent(replay, (size_t)n);
        /* These bytes were counted as sent by pipe, and did not arrive that way. */
        via_stats_count(&conn->stats->tx_kernel_bytes, (uint64_t)n);
        conn->stats->tx_pipe_bytes -= via_min((uint64_t)n, conn->stats->tx_pipe_bytes);
    }
    return 0;
}

int via_conn_replay(struct via_conn *conn, int fd)
{
    uint64_t before = conn->side->replay.sent;
    int rc = send_again(conn, fd);
    if (conn->side->replay.sent != before) {
        via_conn_push(fd);
    }
    if (rc == 0) {
        via_phase_apply(&conn->side->phase, VIA_EVENT_REPLAY);
    }
    return rc;
}

/* The peer reads only after this loop, so the kernel must have room for all bytes. SO_SNDBUF is not
 * set if the buffer is already larger: setsockopt() would limit it to wmem_max (socket(7)), and an
 * autotuned size may be larger than that. */
static void widen(const struct via_conn *conn, int fd)
{
    int bytes = 2 * (int)conn->side->tx.pipe.geometry.data_bytes;
    if (via_real_option(fd, SOL_SOCKET, SO_SNDBUF) < bytes) {
        VIA_REAL(setsockopt)(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    }
}

int via_conn_replay_all(struct via_conn *conn, int fd, uint64_t patience_ns)
{
    uint64_t since_ns = 0;
    uint64_t sent = conn->stats->tx_kernel_bytes;
    int rc = via_conn_replay(conn, fd);
    while (rc == -EAGAIN && patience_ns != 0) {
        struct pollfd pfd = {.fd = fd, .events = POLLOUT};
        uint64_t now = via_os_now_ns();
        if (since_ns == 0) {
            widen(conn, fd);
        }
        if (since_ns == 0 || sent != conn->stats->tx_kernel_bytes) {
            since_ns = now;
            sent = conn->stats->tx_kernel_bytes;
        } else if (now - since_ns > patience_ns) {
            break;
        }
        VIA_REAL(poll)(&pfd, 1, 100);
        rc = via_conn_replay(conn, fd);
    }
    return rc;
}

void via_conn_reset(int fd)
{
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    VIA_REAL(connect)(fd, &none, sizeof(none));
}
