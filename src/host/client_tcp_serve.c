/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Direct connections, the end that owns the memory. Whatever comes over the wire is hostile until
 * its sender has shown the token, and checked afterwards.
 *
 * One thread at a time, the holder of `lock`, polls the connections: the thread of the library,
 * which sleeps on them, or a thread of the program that waits for something. While the program's
 * threads do so the library's thread rests, for a short time at a time.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/copy.h"
#include "base/mutant.h"
#include "host/client.h"
#include "host/client_sys.h"
#include "host/client_tcp.h"

#define CONNS_MAX 1024u
#define STRANGERS_MAX 32u /* connections that have not shown the token */
#define STRANGER_NS_MAX (3 * VIA_SEC_NS)
#define SEGMENTS_MAX 64u
#define IN_BYTES (64u << 10)
#define OUT_BYTES (32u << 10)
/* Payloads from here on are received where they belong. A word may be seen in part until all has
 * come: no program waits for a word in the middle of so much. */
#define STRAIGHT_BYTES_MIN (64u << 10)
#define EVENTS_MAX 16
/* Requests of one connection before it is the turn of another one. */
#define BYTES_A_TURN (1u << 20)
/* How long the library's thread leaves the connections to threads that poll. A thread that has
 * stopped polling without having taken all leaves the rest for so long. */
#define REST_NS (200 * VIA_USEC_NS)
#define FLUSH_AGAIN_MS 1
/* Until the next attempt to get a descriptor for a caller. */
#define EXHAUSTED_NS (10 * VIA_MSEC_NS)
#define TAG_WAKE UINT32_MAX
#define TAG_LISTEN (UINT32_MAX - 1)

struct conn {
    int fd; /* -1: free */
    bool known;
    bool writes; /* it waits for room in the socket, and takes nothing meanwhile */
    uint64_t since_ns;
    int status; /* the first failure that no answer has told yet */
    unsigned char *in, *out;
    size_t in_begin, in_end, out_begin, out_end;
    struct via_tcp_request put; /* whose payload comes */
    uint64_t put_left;
    struct via_tcp_request get; /* whose payload goes, behind `out` */
    uint64_t get_left;
};

struct served {
    uint64_t handle;
    unsigned char *base;
    size_t bytes;
};

struct via_client_serve {
    struct via_attach *attach;
    struct via_tcp_card card;
    int listen_fd, epoll_fd, wake_fd;
    pthread_t thread;
    bool started;
    _Atomic bool stopping;
    _Atomic bool polled; /* by threads of the program, since the thread's last poll */
    _Atomic bool poked;
    pthread_mutex_t lock;
    struct conn *conns; /* CONNS_MAX */
    unsigned conns_end, strangers;
    bool exhausted; /* a caller waits, and there is no descriptor for it */
    struct served segments[SEGMENTS_MAX];
    unsigned segments_count;
};

/* --- memory ----------------------------------------------------------------------------------- */

/* NULL: no such segment, or outside of it. */
static unsigned char *find_memory(const struct via_client_serve *serve,
                                  const struct via_tcp_request *request, uint64_t bytes)
{
    for (unsigned i = serve->segments_count; i-- > 0;) {
        const struct served *segment = &serve->segments[i];
        if (segment->handle == request->handle) {
            bool inside = request->off <= segment->bytes &&
                          (bytes <= segment->bytes - request->off || VIA_MUTANT(DIRECT_RANGE));
            return inside ? segment->base + request->off : NULL;
        }
    }
    return NULL;
}

static void fail(struct conn *conn, int status)
{
    conn->status = conn->status != 0 ? conn->status : status;
}

/* A word whole, and behind what was stored before. */
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

static void watch(const struct via_client_serve *serve, const struct conn *conn, int operation)
{
    struct epoll_event event = {.events = conn->writes ? EPOLLOUT : EPOLLIN,
                                .data.u32 = (uint32_t)(conn - serve->conns)};
    (void)!syscall(SYS_epoll_ctl, serve->epoll_fd, operation, conn->fd, &event);
}

static void end(struct via_client_serve *serve, struct conn *conn)
{
    serve->strangers -= conn->known ? 0 : 1;
    via_client_fd_close(conn->fd);
    free(conn->in);
    *conn = (struct conn){.fd = -1};
}

static struct conn *free_conn(struct via_client_serve *serve)
{
    for (unsigned i = 0; i < serve->conns_end; i++) {
        if (serve->conns[i].fd < 0) {
            return &serve->conns[i];
        }
    }
    return serve->conns_end < CONNS_MAX ? &serve->conns[serve->conns_end++] : NULL;
}

static void take_caller(struct via_client_serve *serve, int fd)
{
    struct conn *conn = serve->strangers < STRANGERS_MAX ? free_conn(serve) : NULL;
    unsigned char *memory = conn != NULL ? malloc(IN_BYTES + OUT_BYTES) : NULL;
    if (conn != NULL) {
        *conn = (struct conn){.fd = -1};
    }
    if (memory == NULL) {
        via_sys_close(fd);
        return;
    }
    via_sys_tcp_set_prompt(fd);
    *conn = (struct conn){.fd = via_client_fd_keep(fd),
                          .in = memory,
                          .out = memory + IN_BYTES,
                          .since_ns = via_client_now_ns()};
    serve->strangers++;
    watch(serve, conn, EPOLL_CTL_ADD);
}

static void accept_callers(struct via_client_serve *serve)
{
    for (int i = 0; i < EVENTS_MAX; i++) {
        long fd = via_sys_result(
            syscall(SYS_accept4, serve->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd < 0) {
            serve->exhausted = fd == -EMFILE || fd == -ENFILE || fd == -ENOBUFS || fd == -ENOMEM;
            return;
        }
        take_caller(serve, (int)fd);
    }
}

static void end_strangers(struct via_client_serve *serve)
{
    uint64_t now_ns = via_client_now_ns();
    for (unsigned i = 0; i < serve->conns_end && serve->strangers != 0; i++) {
        struct conn *conn = &serve->conns[i];
        if (conn->fd >= 0 && !conn->known && now_ns - conn->since_ns > STRANGER_NS_MAX) {
            end(serve, conn);
        }
    }
}

/* --- sending ---------------------------------------------------------------------------------- */

/* false: the connection is over. Bytes that the socket does not take stay. */
static bool send_out(struct via_client_serve *serve, struct conn *conn)
{
    while (conn->out_begin != conn->out_end || conn->get_left != 0) {
        unsigned char *from =
            conn->get_left != 0 ? find_memory(serve, &conn->get, conn->get_left) : NULL;
        if (conn->get_left != 0 && from == NULL) {
            return false; /* freed in the middle of it */
        }
        struct iovec iov[] = {
            {.iov_base = conn->out + conn->out_begin, .iov_len = conn->out_end - conn->out_begin},
            {.iov_base = from, .iov_len = conn->get_left},
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

static void answer(struct conn *conn, int status, const void *data, size_t bytes, uint64_t all)
{
    struct via_tcp_answer head = {.status = status, .bytes = status == 0 ? all : 0};
    memcpy(conn->out + conn->out_end, &head, sizeof(head));
    conn->out_end += sizeof(head);
    if (status == 0 && bytes != 0) {
        memcpy(conn->out + conn->out_end, data, bytes);
        conn->out_end += bytes;
    }
}

static bool has_room(const struct conn *conn)
{
    return conn->get_left == 0 &&
           OUT_BYTES - conn->out_end >= sizeof(struct via_tcp_answer) + VIA_TCP_SMALL_BYTES;
}

/* --- requests --------------------------------------------------------------------------------- */

static void apply_get(struct via_client_serve *serve, struct conn *conn,
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

/* false: it is none. */
static bool apply_atomic(struct via_client_serve *serve, struct conn *conn,
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

/* Takes the part of a payload in the buffer. false: all of it has to come first, or more. */
static bool take_payload(struct via_client_serve *serve, struct conn *conn)
{
    size_t there = conn->in_end - conn->in_begin;
    size_t bytes = (size_t)via_min(conn->put_left, (uint64_t)there);
    if (bytes < conn->put_left) {
        if (conn->put.bytes <= VIA_TCP_SMALL_BYTES) {
            return false;
        }
        bytes &= ~(size_t)7; /* words of what is aligned are not taken apart */
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

/* 1: a request was taken; 0: more has to come, or has to go first; -1: it is none. */
static int take_request(struct via_client_serve *serve, struct conn *conn)
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
            request.handle = 0; /* of no segment: what comes is thrown away */
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

/* false: it has no token, or a wrong one. */
static bool take_hello(struct via_client_serve *serve, struct conn *conn)
{
    struct via_tcp_hello hello;
    struct via_tcp_ready ready = {.magic = VIA_TCP_MAGIC};
    if (conn->in_end - conn->in_begin < sizeof(hello)) {
        return true;
    }
    memcpy(&hello, conn->in + conn->in_begin, sizeof(hello));
    unsigned char wrong = hello.magic != VIA_TCP_MAGIC;
    for (unsigned i = 0; i < sizeof(hello.token); i++) { /* takes as long for each */
        wrong |= hello.token[i] ^ serve->card.token[i];
    }
    if (wrong != 0) {
        return false;
    }
    conn->known = true;
    serve->strangers--;
    conn->in_begin += sizeof(hello);
    memcpy(conn->out + conn->out_end, &ready, sizeof(ready));
    conn->out_end += sizeof(ready);
    return true;
}

/* Room at the end of the buffer. */
static void compact(struct conn *conn)
{
    if (conn->in_begin == conn->in_end) {
        conn->in_begin = conn->in_end = 0;
    } else if (conn->in_begin != 0 && conn->in_end > IN_BYTES / 2) {
        memmove(conn->in, conn->in + conn->in_begin, conn->in_end - conn->in_begin);
        conn->in_end -= conn->in_begin;
        conn->in_begin = 0;
    }
}

/* false: the connection is over. */
static bool take_all(struct via_client_serve *serve, struct conn *conn)
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

/* Where the next bytes go: into the memory they are for, if they are many. */
static unsigned char *find_place(struct via_client_serve *serve, struct conn *conn,
                                 size_t *ret_room)
{
    if (conn->put_left >= STRAIGHT_BYTES_MIN / 2 && conn->put.bytes >= STRAIGHT_BYTES_MIN &&
        conn->in_begin == conn->in_end) {
        unsigned char *to = find_memory(serve, &conn->put, conn->put_left);
        if (to != NULL) {
            *ret_room = conn->put_left;
            return to;
        }
    }
    *ret_room = IN_BYTES - conn->in_end;
    return conn->in + conn->in_end;
}

static unsigned serve_conn(struct via_client_serve *serve, struct conn *conn)
{
    unsigned work = 0;
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
        end(serve, conn);
    }
    return work;
}

/* --- turns ------------------------------------------------------------------------------------ */

/* [lock] */
static unsigned serve_events(struct via_client_serve *serve, const struct epoll_event *events,
                             int count)
{
    unsigned work = 0;
    for (int i = 0; i < count; i++) {
        uint32_t tag = events[i].data.u32;
        if (tag == TAG_LISTEN) {
            accept_callers(serve);
        } else if (tag < serve->conns_end && serve->conns[tag].fd >= 0) {
            work += serve_conn(serve, &serve->conns[tag]);
        }
    }
    return work;
}

unsigned via_client_serve_poll(struct via_client_serve *serve)
{
    struct epoll_event events[EVENTS_MAX];
    if (serve == NULL) {
        return 0;
    }
    if (!atomic_load_explicit(&serve->polled, memory_order_relaxed)) {
        atomic_store_explicit(&serve->polled, true, memory_order_relaxed);
    }
    if (pthread_mutex_trylock(&serve->lock) != 0) {
        return 0;
    }
    unsigned strangers = serve->strangers;
    int count = via_sys_epoll_wait(serve->epoll_fd, events, EVENTS_MAX, 0);
    unsigned work = serve_events(serve, events, count);
    bool has_stranger = serve->strangers > strangers;
    pthread_mutex_unlock(&serve->lock);
    if (has_stranger) {
        via_client_serve_poke(serve); /* the library's thread limits its time */
    }
    return work;
}

void via_client_serve_poke(struct via_client_serve *serve)
{
    uint64_t one = 1;
    if (!atomic_exchange_explicit(&serve->poked, true, memory_order_seq_cst)) {
        (void)!syscall(SYS_write, serve->wake_fd, &one, sizeof(one));
    }
}

/* Until it is poked, for a while at most. */
static void rest(const struct via_client_serve *serve, long ns)
{
    struct pollfd wake = {.fd = serve->wake_fd, .events = POLLIN};
    struct timespec time = {.tv_nsec = ns};
    (void)!syscall(SYS_ppoll, &wake, 1, &time, NULL, 8);
}

/* Serves the requests of a poke. Then how long the thread may sleep. */
static int flush(struct via_client_serve *serve)
{
    uint64_t pokes;
    (void)!syscall(SYS_read, serve->wake_fd, &pokes, sizeof(pokes));
    /* Before the check of what is held back: what comes later pokes again. */
    atomic_store_explicit(&serve->poked, false, memory_order_seq_cst);
    return via_client_tcp_all_flush(serve->attach) ? -1 : FLUSH_AGAIN_MS;
}

static void *run(void *argument)
{
    struct via_client_serve *serve = argument;
    struct epoll_event events[EVENTS_MAX];
    int sleep_ms = -1;
    while (!atomic_load_explicit(&serve->stopping, memory_order_acquire)) {
        int count = via_sys_epoll_wait(serve->epoll_fd, events, EVENTS_MAX, sleep_ms);
        sleep_ms = flush(serve);
        if (count > 0 && atomic_exchange_explicit(&serve->polled, false, memory_order_relaxed)) {
            rest(serve, REST_NS);
            sleep_ms = 0; /* the next turn polls strangers, too, and decides how long to sleep */
            continue;
        }
        pthread_mutex_lock(&serve->lock);
        serve->exhausted = false;
        (void)serve_events(serve, events, count);
        end_strangers(serve);
        if (serve->strangers != 0) {
            sleep_ms = sleep_ms < 0 ? (int)(VIA_SEC_NS / VIA_MSEC_NS) : sleep_ms;
        }
        bool exhausted = serve->exhausted;
        pthread_mutex_unlock(&serve->lock);
        if (exhausted) {
            rest(serve, EXHAUSTED_NS);
        }
    }
    return NULL;
}

/* --- opening and closing ---------------------------------------------------------------------- */

int via_client_tcp_address(const char *text, struct via_tcp_card *card,
                           struct sockaddr_storage *ret_address, unsigned *ret_bytes)
{
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)ret_address;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)ret_address;
    memset(ret_address, 0, sizeof(*ret_address));
    memset(card->address, 0, sizeof(card->address));
    if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        in->sin_port = card->port;
        card->family = 4;
        memcpy(card->address, &in->sin_addr, sizeof(in->sin_addr));
        *ret_bytes = sizeof(*in);
        return 0;
    }
    if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        in6->sin6_port = card->port;
        card->family = 6;
        memcpy(card->address, &in6->sin6_addr, sizeof(in6->sin6_addr));
        *ret_bytes = sizeof(*in6);
        return 0;
    }
    return -EXDEV;
}

static int open_listener(struct via_client_serve *serve, const char *text)
{
    struct sockaddr_storage address;
    unsigned bytes = 0;
    int rc = via_client_tcp_address(text, &serve->card, &address, &bytes);
    int fd = rc == 0 ? via_sys_socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK)
                     : rc;
    if (fd < 0) {
        return fd;
    }
    serve->listen_fd = via_client_fd_keep(fd);
    rc = (int)via_sys_result(syscall(SYS_bind, serve->listen_fd, &address, bytes));
    if (rc == 0) {
        rc = (int)via_sys_result(syscall(SYS_listen, serve->listen_fd, 256));
    }
    if (rc == 0) {
        rc = (int)via_sys_result(syscall(SYS_getsockname, serve->listen_fd, &address, &bytes));
    }
    serve->card.port = address.ss_family == AF_INET
                           ? ((struct sockaddr_in *)(void *)&address)->sin_port
                           : ((struct sockaddr_in6 *)(void *)&address)->sin6_port;
    return rc;
}

static int start(struct via_client_serve *serve)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = pthread_create(&serve->thread, NULL, run, serve);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    serve->started = code == 0;
    if (code == 0) {
        pthread_setname_np(serve->thread, "via-direct");
    }
    return -code;
}

static int open_serve(struct via_client_serve *serve, const char *address)
{
    serve->conns = calloc(CONNS_MAX, sizeof(*serve->conns));
    if (serve->conns == NULL) {
        return -ENOMEM;
    }
    for (unsigned i = 0; i < CONNS_MAX; i++) {
        serve->conns[i].fd = -1;
    }
    if (getrandom(serve->card.token, sizeof(serve->card.token), 0) !=
        (ssize_t)sizeof(serve->card.token)) {
        return -EIO;
    }
    int rc = open_listener(serve, address);
    int epoll_fd = rc == 0 ? via_sys_epoll_create() : rc;
    if (epoll_fd < 0) {
        return epoll_fd;
    }
    serve->epoll_fd = via_client_fd_keep(epoll_fd);
    int wake_fd = (int)via_sys_result(syscall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (wake_fd < 0) {
        return wake_fd;
    }
    serve->wake_fd = via_client_fd_keep(wake_fd);
    rc = via_sys_epoll_add(serve->epoll_fd, serve->listen_fd, EPOLLIN, TAG_LISTEN);
    if (rc == 0) {
        rc = via_sys_epoll_add(serve->epoll_fd, serve->wake_fd, EPOLLIN, TAG_WAKE);
    }
    serve->card.magic = VIA_TCP_MAGIC;
    return rc == 0 ? start(serve) : rc;
}

int via_client_serve_open(struct via_attach *attach, const char *address,
                          struct via_client_serve **ret_serve)
{
    struct via_client_serve *serve = calloc(1, sizeof(*serve));
    if (serve == NULL) {
        return -ENOMEM;
    }
    serve->attach = attach;
    serve->listen_fd = serve->epoll_fd = serve->wake_fd = -1;
    pthread_mutex_init(&serve->lock, NULL);
    int rc = open_serve(serve, address);
    if (rc != 0) {
        via_client_serve_close(serve, true);
        return rc;
    }
    *ret_serve = serve;
    return 0;
}

const struct via_tcp_card *via_client_serve_card(const struct via_client_serve *serve)
{
    return &serve->card;
}

int via_tcp_offer(struct via_attach *attach, struct via_tcp_card *ret_card)
{
    struct via_attach_tcp where;
    int rc = attach->serve != NULL ? -EALREADY : via_tcp_ask(attach, attach->host, &where);
    if (rc == 0) {
        rc = via_client_serve_open(attach, where.local, &attach->serve);
    }
    if (rc == 0) {
        *ret_card = attach->serve->card;
    }
    return rc;
}

int via_tcp_serve(struct via_segment *segment)
{
    struct via_client_serve *serve = segment->attach->serve;
    int rc = serve == NULL || segment->base == NULL ? -EXDEV : 0;
    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&serve->lock);
    if (serve->segments_count < SEGMENTS_MAX) {
        serve->segments[serve->segments_count++] = (struct served){
            .handle = segment->handle, .base = segment->base, .bytes = segment->bytes};
    } else {
        rc = -ENOSPC;
    }
    pthread_mutex_unlock(&serve->lock);
    return rc;
}

void via_client_serve_drop(struct via_client_serve *serve, const struct via_segment *segment)
{
    if (serve == NULL || segment->attach->pid != getpid()) {
        return; /* a child's copy serves nothing, and its lock may be held for ever */
    }
    pthread_mutex_lock(&serve->lock);
    for (unsigned i = 0; i < serve->segments_count; i++) {
        if (serve->segments[i].handle == segment->handle) {
            serve->segments[i] = serve->segments[--serve->segments_count];
            break;
        }
    }
    pthread_mutex_unlock(&serve->lock);
}

void via_client_serve_close(struct via_client_serve *serve, bool own)
{
    if (serve == NULL) {
        return;
    }
    if (serve->started && own) {
        atomic_store_explicit(&serve->stopping, true, memory_order_release);
        atomic_store_explicit(&serve->poked, false, memory_order_seq_cst);
        via_client_serve_poke(serve);
        pthread_join(serve->thread, NULL);
    }
    for (unsigned i = 0; serve->conns != NULL && i < serve->conns_end; i++) {
        if (serve->conns[i].fd >= 0) {
            end(serve, &serve->conns[i]);
        }
    }
    const int fds[] = {serve->listen_fd, serve->epoll_fd, serve->wake_fd};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(fds); i++) {
        if (fds[i] >= 0) {
            via_client_fd_close(fds[i]);
        }
    }
    pthread_mutex_destroy(&serve->lock);
    free(serve->conns);
    free(serve);
}
