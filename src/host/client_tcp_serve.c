/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Direct connections, the end that owns the memory: the protocol of one connection. All bytes from
 * the wire are hostile until their sender has presented the token, and are checked after that.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "base/mutant.h"
#include "host/client.h"
#include "host/client_sys.h"
#include "host/client_tcp_serve_inside.h"

#define STRANGERS_MAX 32u /* connections that have not presented the token */
#define STRANGER_NS_MAX (3 * VIA_SEC_NS)
#define IN_BYTES (64u << 10)
#define OUT_BYTES (32u << 10)
/* Payloads of at least STRAIGHT_BYTES_MIN are received at their destination. Until the payload is
 * complete another thread may load a word of which only a part has been stored: programs do not
 * wait for a word in the middle of a payload of this size. */
#define STRAIGHT_BYTES_MIN (64u << 10)
/* Bytes of requests, or of answers, of one connection before the thread serves another
 * connection. */
#define BYTES_A_TURN (1u << 20)
/* A peer whose machine has vanished is ended after four minutes. Peers give up an unreachable host
 * after two minutes (tcp_lost_ns_max), so connections outlast all shorter partitions. */
#define KEEP_ALIVE_IDLE_S 60
#define KEEP_ALIVE_INTERVAL_S 30
#define KEEP_ALIVE_PROBES 6

/* --- memory ----------------------------------------------------------------------------------- */

static unsigned need_of(const struct via_tcp_request *request)
{
    return request->kind == VIA_TCP_PUT   ? VIADUCT_SEGMENT_WRITE
           : request->kind == VIA_TCP_GET ? VIADUCT_SEGMENT_READ
                                          : VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE;
}

/* NULL: the segment does not exist or does not permit the access, or the bytes are outside of
 * it. */
static unsigned char *find_memory(const struct via_client_serve *serve,
                                  const struct via_tcp_request *request, uint64_t bytes)
{
    if (serve->calls != NULL) {
        return serve->calls->reach(serve->calls->ctx, request->handle, request->off, bytes,
                                   need_of(request));
    }
    for (unsigned i = serve->segments_count; i-- > 0;) {
        const struct via_client_served *segment = &serve->segments[i];
        if (segment->handle == request->handle) {
            bool inside = request->off <= segment->bytes &&
                          (bytes <= segment->bytes - request->off || VIA_MUTANT(DIRECT_RANGE));
            return inside ? segment->base + request->off : NULL;
        }
    }
    return NULL;
}

static void fail(struct via_client_serve_conn *conn, int status)
{
    conn->status = conn->status != 0 ? conn->status : status;
}

/* Stores a whole word, after all earlier stores. */
static void store(unsigned char *to, const unsigned char *from, size_t bytes)
{
    if (bytes == 8 && (uintptr_t)to % 8 == 0) {
        uint64_t word;
        memcpy(&word, from, sizeof(word));
        __atomic_store_n((uint64_t *)(void *)to, word, __ATOMIC_RELEASE);
    } else if (bytes == 4 && (uintptr_t)to % 4 == 0) {
        uint32_t word;
        memcpy(&word, from, sizeof(word));
        __atomic_store_n((uint32_t *)(void *)to, word, __ATOMIC_RELEASE);
    } else if (bytes == 2 && (uintptr_t)to % 2 == 0) {
        uint16_t word;
        memcpy(&word, from, sizeof(word));
        __atomic_store_n((uint16_t *)(void *)to, word, __ATOMIC_RELEASE);
    } else {
        atomic_thread_fence(memory_order_release);
        via_copy_once(to, from, bytes);
    }
}

/* --- connections ------------------------------------------------------------------------------ */

static void watch(const struct via_client_serve *serve, const struct via_client_serve_conn *conn,
                  int operation)
{
    struct epoll_event event = {.events = conn->writes ? EPOLLOUT : EPOLLIN,
                                .data.u32 = (uint32_t)(conn - serve->conns)};
    (void)!syscall(SYS_epoll_ctl, serve->epoll_fd, operation, conn->fd, &event);
}

/* Number of bytes of requests that were applied. */
static uint64_t position_of(const struct via_client_serve_conn *conn)
{
    return conn->received - (conn->in_end - conn->in_begin);
}

static struct via_attach_position end_of(const struct via_client_serve_conn *conn)
{
    struct via_attach_position end = {.position = position_of(conn), .refusal = conn->status};
    if (conn->status == 0 && conn->reported != 0) {
        end.refusal = conn->reported;
        end.answered_bytes =
            (uint32_t)via_min(end.position - conn->reported_at, (uint64_t)UINT32_MAX);
    }
    return end;
}

void via_client_serve_forget(struct via_client_serve *serve, struct via_client_serve_conn *conn)
{
    serve->strangers -= conn->known ? 0 : 1;
    if (conn->known && serve->calls != NULL) {
        struct via_attach_position end = end_of(conn);
        serve->calls->left(serve->calls->ctx, conn->peer, &end);
    }
    via_client_fd_close(conn->fd);
    free(conn->in);
    *conn = (struct via_client_serve_conn){.fd = -1};
}

void via_client_serve_end(struct via_client_serve *serve, struct via_client_serve_conn *conn)
{
    /* A child may hold the descriptor. Then close() ends neither the connection nor its entry in
     * the epoll set. */
    watch(serve, conn, EPOLL_CTL_DEL);
    via_sys_shutdown(conn->fd);
    via_client_serve_forget(serve, conn);
}

static struct via_client_serve_conn *free_conn(struct via_client_serve *serve)
{
    for (unsigned i = 0; i < serve->conns_end; i++) {
        if (serve->conns[i].fd < 0) {
            return &serve->conns[i];
        }
    }
    return serve->conns_end < VIA_CLIENT_SERVE_CONNS_MAX ? &serve->conns[serve->conns_end++] : NULL;
}

static void take_caller(struct via_client_serve *serve, int fd)
{
    struct via_client_serve_conn *conn = serve->strangers < STRANGERS_MAX ? free_conn(serve) : NULL;
    unsigned char *memory = conn != NULL ? malloc(IN_BYTES + OUT_BYTES) : NULL;
    if (conn != NULL) {
        *conn = (struct via_client_serve_conn){.fd = -1};
    }
    if (memory == NULL) {
        via_sys_close(fd);
        return;
    }
    via_sys_tcp_set_prompt(fd);
    via_sys_tcp_keep_alive(fd, KEEP_ALIVE_IDLE_S, KEEP_ALIVE_INTERVAL_S, KEEP_ALIVE_PROBES);
    *conn = (struct via_client_serve_conn){.fd = via_client_fd_keep(fd),
                                           .in = memory,
                                           .out = memory + IN_BYTES,
                                           .since_ns = via_client_now_ns()};
    serve->strangers++;
    watch(serve, conn, EPOLL_CTL_ADD);
}

void via_client_serve_accept(struct via_client_serve *serve)
{
    for (int i = 0; i < VIA_CLIENT_SERVE_EVENTS_MAX; i++) {
        long fd = via_sys_result(
            syscall(SYS_accept4, serve->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd < 0) {
            serve->exhausted = fd == -EMFILE || fd == -ENFILE || fd == -ENOBUFS || fd == -ENOMEM;
            return;
        }
        take_caller(serve, (int)fd);
    }
}

void via_client_serve_end_strangers(struct via_client_serve *serve)
{
    uint64_t now_ns = via_client_now_ns();
    for (unsigned i = 0; i < serve->conns_end && serve->strangers != 0; i++) {
        struct via_client_serve_conn *conn = &serve->conns[i];
        if (conn->fd >= 0 && !conn->known && now_ns - conn->since_ns > STRANGER_NS_MAX) {
            via_client_serve_end(serve, conn);
        }
    }
}

/* --- sending ---------------------------------------------------------------------------------- */

/* False: the connection has ended. Bytes stay if the socket does not take them, or if they exceed
 * the limit of a turn, so that a peer that reads as fast as this end sends gets no larger share
 * than other peers. */
static bool send_out(struct via_client_serve *serve, struct via_client_serve_conn *conn)
{
    while ((conn->out_begin != conn->out_end || conn->get_left != 0) && conn->sent < BYTES_A_TURN) {
        unsigned char *from =
            conn->get_left != 0 ? find_memory(serve, &conn->get, conn->get_left) : NULL;
        if (conn->get_left != 0 && from == NULL) {
            return false; /* the segment was freed during the answer */
        }
        struct iovec iov[] = {
            {.iov_base = conn->out + conn->out_begin, .iov_len = conn->out_end - conn->out_begin},
            {.iov_base = from, .iov_len = via_min(conn->get_left, (uint64_t)BYTES_A_TURN)},
        };
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = conn->get_left != 0 ? 2 : 1};
        long sent = via_sys_sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent == -EAGAIN || sent == -EINTR || sent == -ENOBUFS) {
            break;
        }
        if (sent <= 0) {
            return false;
        }
        size_t of_out = via_min((size_t)sent, iov[0].iov_len);
        conn->out_begin += of_out;
        conn->get.off += (size_t)sent - of_out;
        conn->get_left -= (size_t)sent - of_out;
        conn->sent += (size_t)sent;
    }
    bool writes = conn->out_begin != conn->out_end || conn->get_left != 0;
    if (!writes) {
        conn->out_begin = conn->out_end = 0;
    }
    if (writes != conn->writes) {
        conn->writes = writes;
        watch(serve, conn, EPOLL_CTL_MOD);
    }
    return true;
}

/* Answers the request at in_begin. */
static void answer(struct via_client_serve_conn *conn, int status, const void *data, size_t bytes,
                   uint64_t all)
{
    struct via_tcp_answer head = {.status = status, .bytes = status == 0 ? all : 0};
    if (status != 0) {
        conn->reported = status;
        conn->reported_at = position_of(conn);
    }
    memcpy(conn->out + conn->out_end, &head, sizeof(head));
    conn->out_end += sizeof(head);
    if (status == 0 && bytes != 0) {
        memcpy(conn->out + conn->out_end, data, bytes);
        conn->out_end += bytes;
    }
}

static bool has_room(const struct via_client_serve_conn *conn)
{
    return conn->get_left == 0 &&
           OUT_BYTES - conn->out_end >= sizeof(struct via_tcp_answer) + VIA_TCP_SMALL_BYTES;
}

/* --- requests --------------------------------------------------------------------------------- */

static void apply_get(struct via_client_serve *serve, struct via_client_serve_conn *conn,
                      const struct via_tcp_request *request)
{
    const unsigned char *from = find_memory(serve, request, request->bytes);
    int status = conn->status != 0 ? conn->status : from == NULL ? -EACCES : 0;
    conn->status = 0;
    bool small = request->bytes <= VIA_TCP_SMALL_BYTES;
    if (status == 0 && small) {
        unsigned char copy[VIA_TCP_SMALL_BYTES];
        atomic_thread_fence(memory_order_acquire);
        via_copy_once(copy, from, request->bytes);
        answer(conn, 0, copy, request->bytes, request->bytes);
        return;
    }
    answer(conn, status, NULL, 0, request->bytes);
    if (status == 0) {
        conn->get = *request;
        conn->get_left = request->bytes;
    }
}

/* False: the request is not a valid atomic. */
static bool apply_atomic(struct via_client_serve *serve, struct via_client_serve_conn *conn,
                         const struct via_tcp_request *request,
                         const struct via_tcp_operands *operands)
{
    if ((request->width != 4 && request->width != 8) || request->off % request->width != 0 ||
        request->operation < VIADUCT_ATOMIC_ADD || request->operation > VIADUCT_ATOMIC_FETCH) {
        return false;
    }
    unsigned char *word = find_memory(serve, request, request->width);
    uint64_t old = 0;
    if (word != NULL) {
        old =
            via_client_atomic_update(word, request->width, (enum viaduct_atomic)request->operation,
                                     operands->operand, operands->compare);
    } else {
        fail(conn, -EACCES);
    }
    if ((request->flags & VIA_TCP_FETCHES) != 0) {
        int status = conn->status;
        conn->status = 0;
        answer(conn, status, &old, sizeof(old), sizeof(old));
    }
    return true;
}

/* Takes the received part of a payload. False: more bytes must arrive first; a short payload is
 * taken only as a whole. */
static bool take_payload(struct via_client_serve *serve, struct via_client_serve_conn *conn)
{
    size_t there = conn->in_end - conn->in_begin;
    size_t bytes = (size_t)via_min(conn->put_left, (uint64_t)there);
    if (bytes < conn->put_left) {
        if (conn->put.bytes <= VIA_TCP_SMALL_BYTES) {
            return false;
        }
        bytes &= ~(size_t)7; /* so that aligned words are stored as a whole */
    }
    if (bytes == 0) {
        return false;
    }
    unsigned char *to = find_memory(serve, &conn->put, bytes);
    if (to != NULL) {
        store(to, conn->in + conn->in_begin, bytes);
    } else {
        fail(conn, -EACCES);
    }
    conn->in_begin += bytes;
    conn->put.off += bytes;
    conn->put_left -= bytes;
    return true;
}

/* 1: took a request. 0: more bytes must arrive, or answers must be sent, first. -1: not a valid
 * request. */
static int take_request(struct via_client_serve *serve, struct via_client_serve_conn *conn)
{
    struct via_tcp_request request;
    struct via_tcp_operands operands = {0};
    size_t there = conn->in_end - conn->in_begin;
    const unsigned char *at = conn->in + conn->in_begin;
    if (there < sizeof(request) || !has_room(conn)) {
        return 0;
    }
    memcpy(&request, at, sizeof(request));
    size_t taken = sizeof(request);
    if (request.bytes > UINT64_MAX / 2 || request.off > UINT64_MAX / 2) {
        return -1;
    }
    switch (request.kind) {
    case VIA_TCP_PUT:
        if (find_memory(serve, &request, request.bytes) == NULL) {
            fail(conn, -EACCES);
            request.handle = 0; /* no segment has this handle: the payload is discarded */
        }
        conn->put = request;
        conn->put_left = request.bytes;
        break;
    case VIA_TCP_GET:
        apply_get(serve, conn, &request);
        break;
    case VIA_TCP_ATOMIC:
        if (there < sizeof(request) + sizeof(operands)) {
            return 0;
        }
        memcpy(&operands, at + sizeof(request), sizeof(operands));
        taken += sizeof(operands);
        if (!apply_atomic(serve, conn, &request, &operands)) {
            return -1;
        }
        break;
    case VIA_TCP_FENCE:
        answer(conn, conn->status, NULL, 0, 0);
        conn->status = 0;
        break;
    default:
        return -1;
    }
    conn->in_begin += taken;
    return 1;
}

/* True if this is the token of this process, or one that the host has given out. */
static bool is_admitted(struct via_client_serve *serve, struct via_client_serve_conn *conn,
                        const uint8_t *token)
{
    unsigned char wrong = 0;
    if (serve->calls != NULL) {
        return serve->calls->admit(serve->calls->ctx, token, &conn->peer);
    }
    for (unsigned i = 0; i < VIA_TCP_TOKEN_BYTES; i++) { /* takes the same time for all tokens */
        wrong |= token[i] ^ serve->card.token[i];
    }
    return wrong == 0;
}

/* False: the peer presents no valid token. */
static bool take_hello(struct via_client_serve *serve, struct via_client_serve_conn *conn)
{
    struct via_tcp_hello hello;
    struct via_tcp_ready ready = {.magic = VIA_TCP_MAGIC};
    if (conn->in_end - conn->in_begin < sizeof(hello)) {
        return true;
    }
    memcpy(&hello, conn->in + conn->in_begin, sizeof(hello));
    if (hello.magic != VIA_TCP_MAGIC || !is_admitted(serve, conn, hello.token)) {
        return false;
    }
    conn->known = true;
    serve->strangers--;
    conn->in_begin += sizeof(hello);
    conn->received = conn->in_end - conn->in_begin;
    memcpy(conn->out + conn->out_end, &ready, sizeof(ready));
    conn->out_end += sizeof(ready);
    return true;
}

/* Makes room at the end of the buffer. */
static void compact(struct via_client_serve_conn *conn)
{
    if (conn->in_begin == conn->in_end) {
        conn->in_begin = conn->in_end = 0;
    } else if (conn->in_begin != 0 && conn->in_end > IN_BYTES / 2) {
        memmove(conn->in, conn->in + conn->in_begin, conn->in_end - conn->in_begin);
        conn->in_end -= conn->in_begin;
        conn->in_begin = 0;
    }
}

/* False: the connection has ended. */
static bool take_all(struct via_client_serve *serve, struct via_client_serve_conn *conn)
{
    if (!conn->known && !take_hello(serve, conn)) {
        return false;
    }
    for (bool full = true; full && !conn->writes;) {
        int rc = conn->known ? 1 : 0;
        while (rc > 0) {
            rc = conn->put_left != 0 ? take_payload(serve, conn) : take_request(serve, conn);
        }
        full = !has_room(conn);
        compact(conn);
        if (rc < 0 || !send_out(serve, conn)) {
            return false;
        }
    }
    return true;
}

/* The destination of the next bytes from the socket: the segment for a long payload, else `in`. */
static unsigned char *find_place(struct via_client_serve *serve, struct via_client_serve_conn *conn,
                                 size_t *ret_room)
{
    if (conn->put_left >= STRAIGHT_BYTES_MIN / 2 && conn->put.bytes >= STRAIGHT_BYTES_MIN &&
        conn->in_begin == conn->in_end) {
        unsigned char *to = find_memory(serve, &conn->put, conn->put_left);
        if (to != NULL) {
            *ret_room = via_min(conn->put_left, (uint64_t)BYTES_A_TURN);
            return to;
        }
    }
    *ret_room = IN_BYTES - conn->in_end;
    return conn->in + conn->in_end;
}

unsigned via_client_serve_conn(struct via_client_serve *serve, struct via_client_serve_conn *conn)
{
    unsigned work = 0;
    conn->sent = 0;
    bool alive = !conn->writes || (send_out(serve, conn) && take_all(serve, conn));
    for (size_t taken = 0; alive && !conn->writes && taken < BYTES_A_TURN;) {
        size_t room;
        unsigned char *to = find_place(serve, conn, &room);
        bool straight = to != conn->in + conn->in_end;
        if (room == 0) {
            break; /* not possible: a request is shorter than the buffer */
        }
        struct iovec iov = {.iov_base = to, .iov_len = room};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
        long got = via_sys_recvmsg(conn->fd, &message, MSG_DONTWAIT);
        if (got == -EAGAIN || got == -EINTR) {
            break;
        }
        alive = got > 0;
        if (!alive) {
            break;
        }
        work++;
        taken += (size_t)got;
        conn->received += (size_t)got;
        conn->used_ns = serve->now_ns;
        if (straight) {
            atomic_thread_fence(memory_order_release);
            conn->put.off += (size_t)got;
            conn->put_left -= (size_t)got;
        } else {
            conn->in_end += (size_t)got;
        }
        alive = take_all(serve, conn);
        if ((size_t)got < room) {
            break; /* the socket is empty */
        }
    }
    if (!alive) {
        via_client_serve_end(serve, conn);
    }
    return work;
}
