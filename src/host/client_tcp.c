/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Direct connections, the end that puts and gets.
 *
 * Requests are gathered in `out`. They are sent at once when a thread waits for an answer, when
 * `out` is full, and when the connection has been silent for SILENT_NS; otherwise the library's
 * thread sends them a little later. A system call for each put of a word would take a hundred times
 * as long as the put.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/copy.h"
#include "base/mutant.h"
#include "base/pause.h"
#include "host/client.h"
#include "host/client_kept.h"
#include "host/client_sys.h"
#include "host/client_tcp_inside.h"

/* Longest put that is gathered. */
#define GATHER_BYTES_MAX VIA_TCP_SMALL_BYTES
/* A connection that has sent nothing for this time, which is about the time of one send, sends the
 * next request at once. */
#define SILENT_NS (20 * VIA_USEC_NS)
/* A thread that waits for an answer first polls, then yields the CPU, then sleeps. */
#define POLLS_MAX 64u
#define YIELD_NS_MAX (2 * VIA_MSEC_NS)
#define SLEEP_NS VIA_MSEC_NS
#define YIELDS_PER_CLOCK 16u

bool via_client_tcp_is_over(const struct via_client_tcp *tcp)
{
    return atomic_load_explicit(&tcp->error, memory_order_relaxed) != 0;
}

static struct expected *expected_at(struct via_client_tcp *tcp, unsigned i)
{
    return &tcp->expected[(tcp->expected_first + i) % VIA_CLIENT_TCP_EXPECTED_MAX];
}

/* [lock] Ends the waits of all threads here, because another thread may reopen the connection
 * before they run. */
static void end_waits(struct via_client_tcp *tcp)
{
    unsigned count = atomic_load_explicit(&tcp->expected_count, memory_order_relaxed);
    for (unsigned i = 0; i < count; i++) {
        if (expected_at(tcp, i)->done != NULL) {
            *expected_at(tcp, i)->done = VIA_CLIENT_TCP_OVER;
        }
    }
}

void via_client_tcp_end(struct via_client_tcp *tcp, int error)
{
    if (!via_client_tcp_is_over(tcp)) {
        atomic_store_explicit(&tcp->error, error, memory_order_relaxed);
        /* Otherwise bytes that the kernel has not sent yet could overwrite a later put on another
         * path. */
        via_sys_tcp_reset(tcp->fd);
    }
    end_waits(tcp);
    tcp->out_begin = 0;
    atomic_store_explicit(&tcp->out_end, 0, memory_order_relaxed);
    atomic_store_explicit(&tcp->expected_count, 0, memory_order_relaxed);
}

int via_client_tcp_report_end(const struct via_client_tcp *tcp)
{
    int error = atomic_load_explicit(&tcp->error, memory_order_relaxed);
    return via_client_error(-ECONNRESET, "host %u, segment: %s: connection: %s", tcp->host,
                            tcp->to_host ? "its host has ended the connection"
                                         : "its owner has ended",
                            strerror(error != 0 ? -error : ECONNRESET));
}

/* --- answers ---------------------------------------------------------------------------------- */

static struct expected *first_expected(struct via_client_tcp *tcp)
{
    return expected_at(tcp, 0);
}

/* The first expected answer is complete. */
static void complete(struct via_client_tcp *tcp, int status)
{
    const struct expected *expected = first_expected(tcp);
    if (expected->done != NULL) {
        *expected->done = status;
    }
    if (status != 0 && (expected->done == NULL || tcp->kept != NULL)) {
        /* Before the release stores: a quiet that finds all requests applied also finds this
         * refusal. */
        atomic_store_explicit(&tcp->refused, status, memory_order_relaxed);
    }
    tcp->answered = expected->position;
    if (tcp->kept != NULL) {
        via_kept_release(tcp->kept, expected->position);
    }
    atomic_store_explicit(&tcp->applied, expected->issued, memory_order_release);
    atomic_store_explicit(&tcp->counted_applied, expected->counted, memory_order_release);
    tcp->expected_first++;
    tcp->answer_at = 0;
    atomic_fetch_sub_explicit(&tcp->expected_count, 1, memory_order_relaxed);
}

/* Takes one header, or the received part of a payload. False: more bytes must arrive first. */
static bool take_one(struct via_client_tcp *tcp)
{
    struct via_tcp_answer head;
    size_t there = tcp->in_end - tcp->in_begin;
    struct expected *expected = first_expected(tcp);
    if (tcp->left != 0) {
        size_t bytes = (size_t)via_min(tcp->left, (uint64_t)there);
        if (bytes == 0) {
            return false;
        }
        if (expected->to != NULL) {
            /* The answer to a narrow atomic has 8 bytes. Only the first ones fit here. */
            uint64_t room = expected->bytes - via_min(expected->bytes, tcp->answer_at);
            via_copy_foreign((unsigned char *)expected->to + tcp->answer_at,
                             tcp->in + tcp->in_begin, via_min(bytes, (size_t)room));
        }
        tcp->in_begin += bytes;
        tcp->answer_at += bytes;
        tcp->left -= bytes;
        if (tcp->left == 0) {
            complete(tcp, 0);
        }
        return true;
    }
    if (there < sizeof(head)) {
        return false;
    }
    memcpy(&head, tcp->in + tcp->in_begin, sizeof(head));
    tcp->in_begin += sizeof(head);
    bool wanted = atomic_load_explicit(&tcp->expected_count, memory_order_relaxed) != 0;
    if (!wanted || head.status > 0 || (head.status != 0 && head.bytes != 0) ||
        (head.status == 0 && head.bytes < expected->bytes) ||
        (head.bytes > via_max(expected->bytes, (uint64_t)sizeof(uint64_t)) &&
         !VIA_MUTANT(DIRECT_ANSWER))) {
        via_client_tcp_end(tcp, -EPROTO);
        return false;
    }
    tcp->left = head.bytes;
    if (head.bytes == 0) {
        complete(tcp, head.status);
    }
    return true;
}

/* The destination of the next bytes from the socket: the caller's buffer for a long payload, else
 * `in`. */
static unsigned char *find_place(struct via_client_tcp *tcp, size_t *ret_room)
{
    struct expected *expected = first_expected(tcp);
    if (tcp->left > VIA_CLIENT_TCP_IN_BYTES && expected->to != NULL &&
        tcp->in_begin == tcp->in_end) {
        *ret_room = tcp->left;
        return (unsigned char *)expected->to + tcp->answer_at;
    }
    if (tcp->in_begin == tcp->in_end) {
        tcp->in_begin = tcp->in_end = 0;
    } else if (tcp->in_end == VIA_CLIENT_TCP_IN_BYTES) {
        memmove(tcp->in, tcp->in + tcp->in_begin, tcp->in_end - tcp->in_begin);
        tcp->in_end -= tcp->in_begin;
        tcp->in_begin = 0;
    }
    *ret_room = VIA_CLIENT_TCP_IN_BYTES - tcp->in_end;
    return tcp->in + tcp->in_end;
}

void via_client_tcp_take(struct via_client_tcp *tcp)
{
    while (!via_client_tcp_is_over(tcp)) {
        size_t room;
        unsigned char *to = find_place(tcp, &room);
        struct iovec iov = {.iov_base = to, .iov_len = room};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
        long got = via_sys_recvmsg(tcp->fd, &message, MSG_DONTWAIT);
        if (got == -EAGAIN || got == -EINTR) {
            return;
        }
        if (got <= 0) {
            via_client_tcp_end(tcp, got == 0 ? -ECONNRESET : (int)got);
            return;
        }
        if (to == tcp->in + tcp->in_end) {
            tcp->in_end += (size_t)got;
        } else {
            tcp->left -= (uint64_t)got;
            tcp->answer_at += (uint64_t)got;
            if (tcp->left == 0) {
                complete(tcp, 0);
            }
        }
        while (take_one(tcp)) {
        }
        if ((size_t)got < room) {
            return;
        }
    }
}

/* --- sending ---------------------------------------------------------------------------------- */

bool via_client_tcp_is_held_back(const struct via_client_tcp *tcp)
{
    return atomic_load_explicit(&tcp->out_end, memory_order_relaxed) != 0;
}

/* [lock] Sends the gathered bytes, and `more` after them. Adds the number of sent bytes of `more`
 * to *done. 0; -EAGAIN: the socket has no room now; or the connection has ended. */
static int send_some(struct via_client_tcp *tcp, const unsigned char *more, size_t bytes,
                     size_t *done)
{
    size_t out_end = atomic_load_explicit(&tcp->out_end, memory_order_relaxed);
    if (via_client_tcp_is_over(tcp)) {
        return -ECONNRESET; /* `more` may be the rest of a request whose head was discarded */
    }
    while (tcp->out_begin != out_end || *done != bytes) {
        struct iovec iov[] = {
            {.iov_base = tcp->out + tcp->out_begin, .iov_len = out_end - tcp->out_begin},
            {.iov_base = (void *)(uintptr_t)(more + *done), .iov_len = bytes - *done},
        };
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = *done != bytes ? 2 : 1};
        long sent = via_sys_sendmsg(tcp->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent == -EAGAIN || sent == -EINTR || sent == -ENOBUFS) {
            return -EAGAIN;
        }
        if (sent <= 0) {
            via_client_tcp_end(tcp, (int)sent);
            return -ECONNRESET;
        }
        size_t of_out = via_min((size_t)sent, iov[0].iov_len);
        tcp->out_begin += of_out;
        *done += (size_t)sent - of_out;
    }
    tcp->out_begin = 0;
    atomic_store_explicit(&tcp->out_end, 0, memory_order_relaxed);
    return 0;
}

static void sleep_on_socket(int fd, short events)
{
    struct pollfd any = {.fd = fd, .events = events};
    struct timespec time = {.tv_nsec = SLEEP_NS};
    (void)!syscall(SYS_ppoll, &any, 1, &time, NULL, 8);
}

/* A wait for an answer (POLLIN), or for room in the socket (POLLOUT). */
struct wait {
    unsigned polls;
    uint64_t began_ns;
    uint64_t lost_ns; /* since then no route leads to the host; 0: one does */
    bool sleeps;
    int fd; /* copied under the lock, because another thread may reopen the connection meanwhile */
};

/* True if the host was unreachable for tcp_lost_ns_max. Its process then counts as ended. */
static bool is_given_up(const struct via_client_tcp *tcp, struct wait *wait)
{
    uint64_t now_ns = via_client_now_ns();
    if (via_status_is_reachable(via_client_status(tcp->attach, tcp->host))) {
        wait->lost_ns = 0;
    } else if (wait->lost_ns == 0) {
        wait->lost_ns = now_ns;
    }
    return wait->lost_ns != 0 && now_ns - wait->lost_ns > tcp->attach->tcp_lost_ns_max;
}

/* True if frames have to take over: the link over which the connection was opened is down, or the
 * attachment closes and has no time left. */
static bool is_left(const struct via_client_tcp *tcp)
{
    return tcp->kept != NULL &&
           (!via_client_tcp_has_way(tcp) || via_client_tcp_is_time_over(tcp->attach));
}

/* [without attach->lock] One step of a wait. It also serves this process's own segments, because
 * the peer may be waiting for this process in the same way. */
static int wait_step(struct via_client_tcp *tcp, struct wait *wait, short events)
{
    (void)via_client_serve_poll(tcp->attach->serve);
    if (is_left(tcp)) {
        return -ENOLINK;
    }
    if (wait->polls++ < POLLS_MAX) {
        via_cpu_pause();
        return 0;
    }
    if (wait->polls % YIELDS_PER_CLOCK == 0 && !wait->sleeps) {
        uint64_t now_ns = via_client_now_ns();
        wait->began_ns = wait->began_ns != 0 ? wait->began_ns : now_ns;
        wait->sleeps = now_ns - wait->began_ns > YIELD_NS_MAX;
    }
    if (!wait->sleeps) {
        sched_yield();
        return 0;
    }
    sleep_on_socket(wait->fd, events);
    if (is_given_up(tcp, wait)) {
        return via_client_error(-EHOSTUNREACH, "host %u, segment: no frame of its host for %llu ms",
                                tcp->host,
                                (unsigned long long)(tcp->attach->tcp_lost_ns_max / VIA_MSEC_NS));
    }
    return via_client_check_death(tcp->attach) ? via_client_dead(tcp->attach) : 0;
}

/* [lock] Sends everything. Waits for room in the socket. */
static int send_all(struct via_client_tcp *tcp, const unsigned char *more, size_t bytes)
{
    struct wait wait = {.fd = tcp->fd};
    size_t done = 0;
    int rc;
    while ((rc = send_some(tcp, more, bytes, &done)) == -EAGAIN) {
        /* the peer takes no requests while it has no room for its answers */
        via_client_tcp_take(tcp);
        rc = wait_step(tcp, &wait, POLLOUT | POLLIN);
        if (rc != 0) {
            /* A part of a request may have been sent: the owner would take the next request for the
             * rest. */
            via_client_tcp_end(tcp, rc);
            return rc;
        }
    }
    if (rc == 0) {
        tcp->sent_ns = via_client_now_ns();
    }
    return rc == 0 ? 0 : via_client_tcp_report_end(tcp);
}

/* [lock] Makes room for `bytes` bytes in `out`. */
static int make_room(struct via_client_tcp *tcp, size_t bytes)
{
    size_t out_end = atomic_load_explicit(&tcp->out_end, memory_order_relaxed);
    if (via_client_tcp_is_over(tcp)) {
        return via_client_tcp_report_end(tcp);
    }
    return VIA_CLIENT_TCP_OUT_BYTES - out_end >= bytes ? 0 : send_all(tcp, NULL, 0);
}

/* [lock] Appends to `out`, which has room. */
static void gather(struct via_client_tcp *tcp, const void *data, size_t bytes)
{
    size_t out_end = atomic_load_explicit(&tcp->out_end, memory_order_relaxed);
    memcpy(tcp->out + out_end, data, bytes);
    atomic_store_explicit(&tcp->out_end, out_end + bytes, memory_order_relaxed);
    tcp->position += bytes;
}

/* [lock] Sends the gathered bytes at once or a little later. No thread waits for their answers. */
static int send_soon(struct via_client_tcp *tcp)
{
    uint64_t now_ns = via_client_now_ns();
    if (now_ns - tcp->sent_ns > SILENT_NS) {
        size_t done = 0;
        int rc = send_some(tcp, NULL, 0, &done);
        tcp->sent_ns = now_ns;
        if (rc != -EAGAIN) {
            return rc == 0 ? 0 : via_client_tcp_report_end(tcp);
        }
    }
    via_client_serve_poke(tcp->attach->serve);
    return 0;
}

/* --- requests --------------------------------------------------------------------------------- */

static void count(struct via_client_tcp *tcp, bool counted)
{
    atomic_fetch_add_explicit(&tcp->issued, 1, memory_order_relaxed);
    if (counted) {
        atomic_fetch_add_explicit(&tcp->counted, 1, memory_order_relaxed);
    }
}

/* [lock] There is room for the request. */
static void gather_request(struct via_client_tcp *tcp, enum via_tcp_kind kind,
                           const struct via_remote *remote, uint64_t off, uint64_t bytes)
{
    struct via_tcp_request request = {
        .kind = (uint8_t)kind, .handle = remote->handle, .off = off, .bytes = bytes};
    gather(tcp, &request, sizeof(request));
}

/* [lock] */
static int gather_put(struct via_client_tcp *tcp, const struct via_remote *remote, uint64_t off,
                      const void *src, size_t bytes)
{
    int rc =
        make_room(tcp, sizeof(struct via_tcp_request) + (bytes <= GATHER_BYTES_MAX ? bytes : 0));
    if (rc != 0 || bytes == 0) {
        return rc;
    }
    gather_request(tcp, VIA_TCP_PUT, remote, off, bytes);
    if (bytes > GATHER_BYTES_MAX) {
        tcp->position += bytes;
        return send_all(tcp, src, bytes);
    }
    gather(tcp, src, bytes);
    return 0;
}

/* [lock] One step of a wait for answers during which the connection can take no request. */
static int wait_for_answers(struct via_client_tcp *tcp, struct wait *wait)
{
    int rc = send_all(tcp, NULL, 0);
    if (rc == 0) {
        via_client_tcp_take(tcp);
        rc = via_client_tcp_is_over(tcp) ? via_client_tcp_report_end(tcp)
                                         : wait_step(tcp, wait, POLLIN);
    }
    return rc;
}

/* [lock] Adds an answer to the expected ones. Waits while their number is at its maximum. */
static int expect(struct via_client_tcp *tcp, void *to, uint64_t bytes, int *done)
{
    struct wait wait = {.fd = tcp->fd};
    int rc = 0;
    while (rc == 0 && atomic_load_explicit(&tcp->expected_count, memory_order_relaxed) ==
                          VIA_CLIENT_TCP_EXPECTED_MAX) {
        rc = wait_for_answers(tcp, &wait);
    }
    if (rc == 0) {
        unsigned last =
            tcp->expected_first + atomic_load_explicit(&tcp->expected_count, memory_order_relaxed);
        tcp->expected[last % VIA_CLIENT_TCP_EXPECTED_MAX] =
            (struct expected){.to = to,
                              .bytes = bytes,
                              .position = tcp->position,
                              .done = done,
                              .issued = atomic_load_explicit(&tcp->issued, memory_order_relaxed),
                              .counted = atomic_load_explicit(&tcp->counted, memory_order_relaxed)};
        atomic_fetch_add_explicit(&tcp->expected_count, 1, memory_order_relaxed);
    }
    return rc;
}

/* [lock] True for a short put to a host to which no request is under way. The caller probably waits
 * for this put next, so the put is sent with a fence, and the wait then needs no further
 * message. */
static bool is_lone(struct via_client_tcp *tcp, size_t bytes, unsigned flags)
{
    if (!tcp->to_host || bytes > GATHER_BYTES_MAX || (flags & VIA_CLIENT_PUT_UNCOUNTED) != 0 ||
        via_client_tcp_is_held_back(tcp)) {
        return false;
    }
    if (atomic_load_explicit(&tcp->expected_count, memory_order_relaxed) != 0) {
        via_client_tcp_take(tcp);
    }
    return atomic_load_explicit(&tcp->issued, memory_order_relaxed) ==
           atomic_load_explicit(&tcp->applied, memory_order_relaxed);
}

/* [lock] */
static int gather_fence(struct via_client_tcp *tcp, int *done)
{
    struct via_tcp_request request = {.kind = VIA_TCP_FENCE};
    int rc = make_room(tcp, sizeof(request));
    if (rc == 0) {
        rc = expect(tcp, NULL, 0, done);
    }
    if (rc == 0) {
        gather(tcp, &request, sizeof(request));
    }
    if (tcp->kept != NULL) {
        tcp->kept->unfenced_bytes = tcp->kept->unfenced_count = 0;
    }
    return rc;
}

int via_client_tcp_flush(struct via_client_tcp *tcp)
{
    size_t done = 0;
    int rc = send_some(tcp, NULL, 0, &done);
    tcp->sent_ns = via_client_now_ns();
    return rc;
}

/* [lock] Sends the gathered bytes at once. If the socket is full, the library's thread sends
 * them. */
static int send_now(struct via_client_tcp *tcp)
{
    int rc = via_client_tcp_flush(tcp);
    if (rc == -EAGAIN) {
        via_client_serve_poke(tcp->attach->serve);
        return 0;
    }
    return rc == 0 ? 0 : via_client_tcp_report_end(tcp);
}

int via_client_tcp_put(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                       const void *src, size_t bytes, unsigned flags)
{
    pthread_mutex_lock(&tcp->lock);
    bool lone = is_lone(tcp, bytes, flags);
    int rc = gather_put(tcp, remote, off, src, bytes);
    count(tcp, (flags & VIA_CLIENT_PUT_UNCOUNTED) == 0);
    if (rc == 0 && lone) {
        rc = gather_fence(tcp, NULL);
    }
    if (rc == 0 && via_client_tcp_is_held_back(tcp)) {
        rc = lone ? send_now(tcp) : send_soon(tcp);
    }
    pthread_mutex_unlock(&tcp->lock);
    return rc;
}

int via_client_tcp_report_refusal(const struct via_client_tcp *tcp)
{
    return via_client_error(-ECONNRESET, "host %u, segment: its owner has freed it%s", tcp->host,
                            tcp->to_host ? ", or this access is not allowed" : "");
}

/* [lock] Waits until *done has a status. Its request was gathered. */
static int wait_for(struct via_client_tcp *tcp, const int *done)
{
    struct wait wait = {.fd = tcp->fd};
    int rc = send_all(tcp, NULL, 0);
    while (rc == 0 && *done == VIA_CLIENT_TCP_PENDING) {
        via_client_tcp_take(tcp);
        if (*done == VIA_CLIENT_TCP_PENDING) {
            rc = via_client_tcp_is_over(tcp) ? via_client_tcp_report_end(tcp) : 0;
            if (rc == 0) {
                /* Other threads may use the connection meanwhile, and take the answer. */
                pthread_mutex_unlock(&tcp->lock);
                rc = wait_step(tcp, &wait, POLLIN);
                pthread_mutex_lock(&tcp->lock);
            }
        }
    }
    if (rc != 0 && *done == VIA_CLIENT_TCP_PENDING) {
        /* `done` is on this thread's stack: nothing of the connection may be taken any more. */
        via_client_tcp_end(tcp, rc);
        return rc;
    }
    if (*done == VIA_CLIENT_TCP_OVER) { /* and another thread may have reopened the connection */
        return tcp->kept != NULL ? -ECONNRESET : via_client_tcp_report_end(tcp);
    }
    if (tcp->kept != NULL) {
        return 0; /* the next quiet reports a refusal, even if the connection ends now */
    }
    return *done == 0 ? 0 : via_client_tcp_report_refusal(tcp);
}

int via_client_tcp_get(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                       void *dst, size_t bytes, bool waits)
{
    int done = VIA_CLIENT_TCP_PENDING;
    pthread_mutex_lock(&tcp->lock);
    int rc = make_room(tcp, sizeof(struct via_tcp_request));
    if (rc == 0 && !waits) {
        count(tcp, true); /* before expect(): if the answer is lost, a quiet reports it */
    }
    if (rc == 0) {
        rc = expect(tcp, dst, bytes, waits ? &done : NULL);
    }
    if (rc == 0) {
        /* expect() may have sent all requests, but has gathered none: there is still room. */
        gather_request(tcp, VIA_TCP_GET, remote, off, bytes);
        rc = waits ? wait_for(tcp, &done) : send_soon(tcp);
    }
    pthread_mutex_unlock(&tcp->lock);
    return rc;
}

int via_client_tcp_atomic(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                          unsigned width, enum viaduct_atomic operation, uint64_t operand,
                          uint64_t compare, uint64_t *ret_old, void *fetch)
{
    struct via_tcp_operands operands = {.operand = operand, .compare = compare};
    bool fetches = ret_old != NULL || fetch != NULL;
    int done = VIA_CLIENT_TCP_PENDING;
    struct via_tcp_request request = {
        .kind = VIA_TCP_ATOMIC,
        .width = (uint8_t)width,
        .operation = (uint8_t)operation,
        .flags = fetches ? VIA_TCP_FETCHES : 0,
        .handle = remote->handle,
        .off = off,
    };
    pthread_mutex_lock(&tcp->lock);
    int rc = make_room(tcp, sizeof(request) + sizeof(operands));
    count(tcp, true);
    if (rc == 0 && fetches) {
        rc = ret_old != NULL ? expect(tcp, ret_old, sizeof(*ret_old), &done)
                             : expect(tcp, fetch, width, NULL);
    }
    if (rc == 0) {
        gather(tcp, &request, sizeof(request));
        gather(tcp, &operands, sizeof(operands));
        rc = ret_old != NULL ? wait_for(tcp, &done) : send_soon(tcp);
    }
    pthread_mutex_unlock(&tcp->lock);
    return rc;
}

int via_client_tcp_put_signal(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                              const void *src, size_t bytes, uint64_t signal_off, uint64_t value,
                              unsigned signal_op)
{
    int rc = via_client_tcp_put(tcp, remote, off, src, bytes, 0);
    if (rc != 0) {
        return rc;
    }
    return signal_op == VIADUCT_SIGNAL_ADD
               ? via_client_tcp_atomic(tcp, remote, signal_off, 8, VIADUCT_ATOMIC_ADD, value, 0,
                                       NULL, NULL)
               : via_client_tcp_put(tcp, remote, signal_off, &value, sizeof(value), 0);
}

/* --- quiet ------------------------------------------------------------------------------------ */

/* [lock] The expected answer that acknowledges all requests. NULL: none is under way, or a thread
 * waits for it already. */
static struct expected *find_fence(struct via_client_tcp *tcp)
{
    unsigned count = atomic_load_explicit(&tcp->expected_count, memory_order_relaxed);
    struct expected *last =
        &tcp->expected[(tcp->expected_first + count - 1) % VIA_CLIENT_TCP_EXPECTED_MAX];
    return count != 0 && last->done == NULL &&
                   last->issued == atomic_load_explicit(&tcp->issued, memory_order_relaxed)
               ? last
               : NULL;
}

int via_client_tcp_fence(struct via_client_tcp *tcp)
{
    int done = VIA_CLIENT_TCP_PENDING;
    struct expected *there = find_fence(tcp);
    int rc = 0;
    if (there != NULL) {
        there->done = &done;
    } else {
        rc = gather_fence(tcp, &done);
    }
    return rc == 0 ? wait_for(tcp, &done) : rc;
}

/* --- connections that keep what they put --------------------------------------------------------
 */

/* [lock] Can a fence be gathered without waiting? */
static bool has_fence_room(const struct via_client_tcp *tcp)
{
    return VIA_CLIENT_TCP_OUT_BYTES - atomic_load_explicit(&tcp->out_end, memory_order_relaxed) >=
               sizeof(struct via_tcp_request) &&
           atomic_load_explicit(&tcp->expected_count, memory_order_relaxed) <
               VIA_CLIENT_TCP_EXPECTED_MAX;
}

void via_client_tcp_fence_soon(struct via_client_tcp *tcp)
{
    via_client_tcp_take(tcp);
    if (via_client_tcp_is_over(tcp) ||
        (find_fence(tcp) == NULL && !has_fence_room(tcp) && via_client_tcp_flush(tcp) != 0)) {
        return; /* if the connection has ended, the next call finds that */
    }
    if (find_fence(tcp) == NULL && has_fence_room(tcp)) {
        (void)!gather_fence(tcp, NULL); /* does not fail, because there is room */
    }
    /* Sends also a fence that an earlier put has gathered. The library's thread sends that fence
     * only if it finds the lock free, and a thread that polls for the answer may hold the lock each
     * time. */
    if (via_client_tcp_is_held_back(tcp)) {
        (void)send_now(tcp);
    }
}

/* [lock] Waits until another put can be kept. */
static int wait_kept_room(struct via_client_tcp *tcp, size_t bytes)
{
    struct wait wait = {.fd = tcp->fd};
    int rc = 0;
    while (rc == 0 && !via_kept_has_room(tcp->kept, bytes)) {
        if (find_fence(tcp) == NULL) {
            rc = gather_fence(tcp, NULL);
        }
        rc = rc == 0 ? wait_for_answers(tcp, &wait) : rc;
    }
    return rc;
}

int via_client_tcp_put_kept(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                            const void *src, size_t bytes, bool *ret_kept)
{
    bool is_long = bytes > VIA_KEPT_COPY_BYTES_MAX;
    *ret_kept = false;
    int rc = wait_kept_room(tcp, bytes);
    /* Makes room in `out` first: if that fails, the put is not kept. */
    rc = rc == 0 ? make_room(tcp, sizeof(struct via_tcp_request) + GATHER_BYTES_MAX) : rc;
    if (rc != 0) {
        return rc;
    }
    bool lone = is_lone(tcp, bytes, 0);
    via_kept_add(tcp->kept, remote, tcp->position + sizeof(struct via_tcp_request), off, src,
                 bytes);
    *ret_kept = true;
    rc = gather_put(tcp, remote, off, src, bytes);
    count(tcp, true);
    if (rc == 0 && is_long) {
        return via_client_tcp_fence(tcp);
    }
    if (rc == 0 && (lone || via_kept_is_fence_due(tcp->kept))) {
        rc = gather_fence(tcp, NULL);
    }
    if (rc == 0 && via_client_tcp_is_held_back(tcp)) {
        rc = lone ? send_now(tcp) : send_soon(tcp);
    }
    return rc;
}
