/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Makes random calls on both ends of a connection, and prints each call with its result on a line.
 * The output must be identical for each carrier of the connection.
 *
 *     prog_random_calls SEED ROUNDS [CALLS]     ROUNDS connections, CALLS calls on each
 *
 * Before each call, all bytes under way to its end have arrived, and never are more bytes under way
 * than the smallest buffer holds. So the results on Linux do not depend on time.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "random_calls.h"

#ifndef POLLRDHUP
#define POLLRDHUP 0x2000
#endif

#define SETTLE_S 1.0

struct end ends[2];
int file_fd;
unsigned char out[BUFFER_BYTES], in[BUFFER_BYTES];
bool lowat_used;
bool stamps_used;

static uint64_t dice_state;
static unsigned number;
static volatile sig_atomic_t sigpipes;
static bool wide;
static bool more;
static int kind_of_round = -1;

uint32_t dice(uint32_t sides)
{
    dice_state ^= dice_state << 13;
    dice_state ^= dice_state >> 7;
    dice_state ^= dice_state << 17;
    return (uint32_t)(dice_state >> 20) % sides;
}

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void on_sigpipe(int signal_number)
{
    (void)signal_number;
    sigpipes++;
}

_Noreturn void die(const char *attempt)
{
    fprintf(stderr, "prog_random_calls: %s: %s\n", attempt, strerror(errno));
    exit(3);
}

struct end *other(const struct end *end)
{
    return &ends[end == &ends[0]];
}

uint64_t unread(const struct end *end)
{
    return other(end)->sent - end->got;
}

/* --- everything under way arrives ------------------------------------------------------------ */

/* False until the end's own FIN has been acknowledged. The peer may delay this by 40 ms (tcp_ack(),
 * "delayed acknowledgements"), and it causes an edge (tcp_rcv_state_process(), TCP_FIN_WAIT1).
 * Queries the kernel's socket, without any library. */
static bool is_fin_acknowledged(const struct end *end)
{
    const struct end *peer = other(end);
    struct tcp_info info = {.tcpi_state = TCP_CLOSE};
    socklen_t bytes = sizeof(info);
    int now = 1;
    if (!end->wr_shut) {
        return true;
    }
    if (peer->fd >= 0) {
        syscall(SYS_setsockopt, peer->fd, IPPROTO_TCP, TCP_QUICKACK, &now, sizeof(now));
    }
    syscall(SYS_getsockopt, end->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes);
    return info.tcpi_state != TCP_FIN_WAIT1 && info.tcpi_state != TCP_CLOSING &&
           info.tcpi_state != TCP_LAST_ACK;
}

static bool has_arrived(const struct end *end)
{
    const struct end *peer = other(end);
    struct pollfd pfd = {.fd = end->fd, .events = POLLRDHUP};
    int bytes = 0;
    short ends_here = 0;
    if (ioctl(end->fd, FIONREAD, &bytes) != 0 || (uint64_t)bytes < unread(end)) {
        return false;
    }
    if (end->resets) {
        ends_here = POLLHUP;
    } else if (peer->fd < 0 || peer->wr_shut) {
        ends_here = POLLRDHUP;
    }
    /* Polls the kernel's socket, below any library. */
    syscall(SYS_poll, &pfd, 1, 0);
    return (pfd.revents & ends_here) == ends_here && is_fin_acknowledged(end);
}

bool settle(const struct end *end)
{
    double limit = now_s() + SETTLE_S;
    while (!has_arrived(end)) {
        if (now_s() > limit) {
            return false;
        }
        sched_yield();
    }
    return true;
}

/* --- calls ----------------------------------------------------------------------------------- */

uint32_t hash_of(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ at[i]) * 16777619u;
    }
    return hash;
}

/* Prints the line of a call: the call and its result. */
void report_call(const struct end *end, const char *what, long rc, int error)
{
    printf("%u: %c %s = %ld %s%s\n", number, end == &ends[0] ? 'c' : 's', what, rc,
           rc < 0 ? strerrorname_np(error) : "", sigpipes != 0 ? " SIGPIPE" : "");
    sigpipes = 0;
}

void fill_out(const struct end *end, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        out[i] = (unsigned char)((end->sent + i) * 131 + (end->sent + i) / 251);
    }
}

size_t some_bytes(void)
{
    static const size_t sizes[] = {0, 1, 2, 7, 47, 48, 49, 64, 100, 1000, 4096, 8192};
    return sizes[dice(sizeof(sizes) / sizeof(sizes[0]))];
}

static int some_pieces(struct iovec *iov, unsigned char *data, size_t bytes)
{
    int count = (int)dice(5);
    for (int i = 0; i < count; i++) {
        size_t piece = i == count - 1 ? bytes : bytes / (1 + dice(4));
        iov[i] = (struct iovec){.iov_base = data, .iov_len = piece};
        data += piece;
        bytes -= piece;
    }
    return count;
}

/* Sends from a file or a pipe. */
static ssize_t send_otherwise(struct end *end, size_t bytes, bool splices)
{
    if (!splices) {
        static off_t at; /* the file's pages may still be under way */
        if (pwrite(file_fd, out, bytes, at) != (ssize_t)bytes) {
            die("file");
        }
        off_t end_at = at + (off_t)bytes;
        ssize_t sent = sendfile(end->fd, file_fd, &at, bytes);
        at = end_at;
        return sent;
    }
    int fds[2];
    if (pipe(fds) != 0 || write(fds[1], out, bytes) != (ssize_t)bytes) {
        die("pipe");
    }
    ssize_t rc = splice(fds[0], NULL, end->fd, NULL, bytes, 0);
    int error = errno;
    close(fds[0]);
    close(fds[1]);
    errno = error;
    return rc;
}

static void call_send(struct end *end)
{
    char what[128];
    struct iovec iov[8];
    struct mmsghdr messages[3];
    static const int all_flags[] = {0, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_DONTWAIT | MSG_NOSIGNAL,
                                    MSG_EOR};
    size_t bytes = some_bytes();
    int flags = all_flags[dice(5)];
    unsigned how = dice(9);
    ssize_t rc;
    if (unread(other(end)) + bytes > UNDER_WAY_MAX) {
        return;
    }
    fill_out(end, bytes);
    memset(messages, 0, sizeof(messages));
    int count = some_pieces(iov, out, bytes);
    errno = 0;
    switch (how) {
    case 0:
        rc = write(end->fd, out, bytes);
        break;
    case 1:
        rc = writev(end->fd, iov, count);
        break;
    case 2:
        messages[0].msg_hdr.msg_iov = iov;
        messages[0].msg_hdr.msg_iovlen = (size_t)count;
        rc = sendmsg(end->fd, &messages[0].msg_hdr, flags);
        break;
    case 3:
        for (int i = 0; i < count && i < 3; i++) {
            messages[i].msg_hdr.msg_iov = &iov[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
        count = count < 3 ? count : 3;
        rc = sendmmsg(end->fd, messages, (unsigned)count, flags);
        snprintf(what, sizeof(what), "sendmmsg(%d, %#x) %u %u %u", count, (unsigned)flags,
                 messages[0].msg_len, messages[1].msg_len, messages[2].msg_len);
        report_call(end, what, rc, errno);
        for (int i = 0; i < count; i++) {
            end->sent += messages[i].msg_len;
        }
        return;
    case 4:
        rc = sendto(end->fd, out, bytes, flags, NULL, 0);
        break;
    case 5:
        rc = pwritev2(end->fd, iov, count, -1, 0);
        break;
    case 6:
    case 7:
        bytes = bytes == 0 ? 1 : bytes;
        rc = send_otherwise(end, bytes, how == 7);
        break;
    default:
        rc = send(end->fd, out, bytes, flags);
    }
    snprintf(what, sizeof(what), "send by %u (%zu in %d, %#x)", how, bytes, count, (unsigned)flags);
    report_call(end, what, rc, errno);
    end->sent += rc > 0 ? (uint64_t)rc : 0;
}

/* True if there was no listener. */
static void after_send(struct end *end, uint64_t sent_before)
{
    const struct end *peer = other(end);
    if (end->sent != sent_before && (peer->fd < 0 || (peer->wr_shut && peer->rd_shut))) {
        end->sent = sent_before;
        end->resets = true;
    }
}

static int some_recv_flags(void)
{
    static const int flags[] = {MSG_PEEK, MSG_WAITALL, MSG_DONTWAIT, MSG_TRUNC};
    int some = 0;
    for (int i = 0; i < 4; i++) {
        some |= dice(4) == 0 ? flags[i] : 0;
    }
    return some;
}

/* Receives many messages by one call; the lengths are part of the result. */
static void call_recvmmsg(struct end *end, int flags)
{
    char what[128];
    struct iovec iov[3];
    struct mmsghdr messages[3];
    memset(messages, 0, sizeof(messages));
    for (int i = 0; i < 3; i++) {
        iov[i] = (struct iovec){.iov_base = in + 8192 * i, .iov_len = some_bytes()};
        messages[i].msg_hdr.msg_iov = &iov[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    flags = (flags & ~(MSG_TRUNC | MSG_PEEK)) | (dice(2) == 0 ? MSG_WAITFORONE : 0);
    errno = 0;
    int rc = recvmmsg(end->fd, messages, 3, flags, NULL);
    snprintf(what, sizeof(what), "recvmmsg(%zu %zu %zu, %#x) %u %u %u", iov[0].iov_len,
             iov[1].iov_len, iov[2].iov_len, (unsigned)flags, messages[0].msg_len,
             messages[1].msg_len, messages[2].msg_len);
    report_call(end, what, rc, errno);
    for (int i = 0; i < rc; i++) {
        end->got += messages[i].msg_len;
    }
}

static ssize_t recv_into_pipe(struct end *end, size_t bytes)
{
    int fds[2];
    if (pipe(fds) != 0) {
        die("pipe");
    }
    ssize_t rc = splice(end->fd, NULL, fds[1], NULL, bytes, SPLICE_F_NONBLOCK);
    int error = errno;
    if (rc > 0 && read(fds[0], in, (size_t)rc) != rc) {
        die("what was spliced");
    }
    close(fds[0]);
    close(fds[1]);
    errno = error;
    return rc;
}

static void call_recv(struct end *end)
{
    char what[160];
    struct iovec iov[8];
    struct sockaddr_in addr;
    socklen_t addr_bytes = sizeof(addr);
    char control[64];
    size_t bytes = some_bytes();
    int flags = some_recv_flags();
    unsigned how = dice(8);
    struct msghdr message = {.msg_iov = iov, .msg_control = control};
    ssize_t rc;
    memset(in, 0, sizeof(in));
    int count = some_pieces(iov, in, bytes);
    errno = 0;
    switch (how) {
    case 0:
        flags = 0;
        rc = read(end->fd, in, bytes);
        break;
    case 1:
        flags = 0;
        rc = readv(end->fd, iov, count);
        break;
    case 2:
        message.msg_iovlen = (size_t)count;
        message.msg_controllen = dice(2) == 0 ? sizeof(control) : 0;
        message.msg_flags = 0x5555;
        rc = recvmsg(end->fd, &message, flags);
        break;
    case 3:
        call_recvmmsg(end, flags);
        return;
    case 4:
        rc = recvfrom(end->fd, in, bytes, flags, (struct sockaddr *)&addr, &addr_bytes);
        break;
    case 5:
        flags = 0;
        rc = preadv2(end->fd, iov, count, -1, dice(2) == 0 ? RWF_NOWAIT : 0);
        break;
    case 6:
        if (bytes > 4096 || bytes == 0) {
            return;
        }
        flags = 0;
        rc = recv_into_pipe(end, bytes);
        break;
    default:
        rc = recv(end->fd, in, bytes, flags);
    }
    int error = errno;
    size_t seen = rc > 0 && (flags & MSG_TRUNC) == 0 ? (size_t)rc : 0;
    bool is_control_compared = how == 2 && rc >= 0 && !stamps_used;
    snprintf(what, sizeof(what), "recv by %u (%zu in %d, %#x) %08x %#x %zu %u", how, bytes, count,
             (unsigned)flags, hash_of(in, seen), is_control_compared ? message.msg_flags : 0,
             is_control_compared ? message.msg_controllen : 0, addr_bytes);
    report_call(end, what, rc, error);
    end->got += rc > 0 && (flags & MSG_PEEK) == 0 ? (uint64_t)rc : 0;
}

static void call_poll(struct end *end)
{
    static const short some[] = {POLLIN, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRNORM};
    char what[64];
    struct pollfd pfd = {.fd = end->fd, .events = 0};
    for (unsigned i = 0; i < 6; i++) {
        pfd.events = (short)(pfd.events | (dice(2) == 0 ? some[i] : 0));
    }
    int rc = poll(&pfd, 1, 0);
    snprintf(what, sizeof(what), "poll(%#x) %#x", (unsigned)pfd.events, (unsigned)pfd.revents);
    report_call(end, what, rc, errno);
}

static void call_select(struct end *end)
{
    char what[64];
    fd_set sets[3];
    struct timeval none = {0, 0};
    for (int i = 0; i < 3; i++) {
        FD_ZERO(&sets[i]);
        FD_SET(end->fd, &sets[i]);
    }
    int rc = select(end->fd + 1, &sets[0], &sets[1], &sets[2], &none);
    snprintf(what, sizeof(what), "select() %d%d%d", FD_ISSET(end->fd, &sets[0]) != 0,
             FD_ISSET(end->fd, &sets[1]) != 0, FD_ISSET(end->fd, &sets[2]) != 0);
    report_call(end, what, rc, errno);
}

int wait_in_set(int set, int timeout_ms, bool edges, char events_text[32])
{
    struct epoll_event events[2] = {{.events = 0}};
    int rc = epoll_wait(set, events, 2, timeout_ms);
    /* If the array has few places, one of two events may be reported by the next call, as with the
     * kernel when other events fill the array (epoll_wait(2): "successive epoll_wait() calls will
     * round robin through the set of ready file descriptors"). An edge is then reported alone, and
     * level-triggered events together. */
    if (rc == 1) {
        struct epoll_event next[2];
        int again = epoll_wait(set, next, edges ? 1 : 2, 0);
        if (edges && again == 1) {
            events[rc++] = next[0];
        } else if (again == 2) {
            memcpy(events, next, sizeof(events));
            rc = again;
        }
    }
    bool swaps = rc == 2 && events[1].events < events[0].events;
    uint32_t first = rc > 0 ? events[swaps].events : 0;
    if (rc == 2) {
        snprintf(events_text, 32, "%#x %#x", first, events[!swaps].events);
    } else {
        snprintf(events_text, 32, "%#x", first);
    }
    return rc;
}

static void call_epoll(struct end *end)
{
    char what[64], events_text[32];
    unsigned which = dice(SETS);
    which = which == EDGE && lowat_used ? LEVEL : which;
    struct epoll_event again = {.events = EPOLLIN | EPOLLONESHOT};
    if (dice(6) == 0) {
        struct pollfd pfd = {.fd = end->sets[which], .events = POLLIN};
        int ready = poll(&pfd, 1, 0);
        snprintf(what, sizeof(what), "poll(set %u) %#x", which, (unsigned)pfd.revents);
        report_call(end, what, ready, errno);
        return;
    }
    int rc = wait_in_set(end->sets[which], 0, which == EDGE, events_text);
    snprintf(what, sizeof(what), "epoll_wait(set %u) %s", which, events_text);
    report_call(end, what, rc, errno);
    if (which == ONCE && dice(2) == 0) {
        epoll_ctl(end->sets[which], EPOLL_CTL_MOD, end->fd, &again);
    }
}

static void call_option(struct end *end)
{
    char what[64];
    int value = 0;
    socklen_t bytes = sizeof(value);
    int rc;
    switch (dice(5)) {
    case 0:
        rc = ioctl(end->fd, FIONREAD, &value);
        snprintf(what, sizeof(what), "FIONREAD %d", value);
        break;
    case 1:
        rc = getsockopt(end->fd, SOL_SOCKET, SO_ERROR, &value, &bytes);
        snprintf(what, sizeof(what), "SO_ERROR %d", value);
        break;
    case 2:
        value = (int)(dice(3) == 0 ? some_bytes() : 1);
        if (value > 1 && !is_returnable(end)) {
            return;
        }
        rc = setsockopt(end->fd, SOL_SOCKET, SO_RCVLOWAT, &value, bytes);
        lowat_used = true; /* the kernel wakes the waiter at once, pipes do not */
        snprintf(what, sizeof(what), "rare option SO_RCVLOWAT %d", value);
        break;
    case 3:
        rc = ioctl(end->fd, SIOCATMARK, &value);
        snprintf(what, sizeof(what), "SIOCATMARK %d", value);
        break;
    default:
        value = (int)dice(2);
        rc = dice(2) == 0 ? ioctl(end->fd, FIONBIO, &value)
                          : fcntl(end->fd, F_SETFL, value != 0 ? O_NONBLOCK : 0);
        snprintf(what, sizeof(what), "O_NONBLOCK %d", value);
    }
    report_call(end, what, rc, errno);
}

/* Calls that are invalid in any state of the connection. */
static void call_wrongly(struct end *end)
{
    char what[64];
    struct iovec iov[2] = {{in, 1}, {in + 1, 1}};
    struct iovec *many = calloc(IOV_MAX + 1, sizeof(*many));
    unsigned how = dice(8);
    long rc;
    errno = 0;
    switch (how) {
    case 0:
        rc = readv(end->fd, iov, -(int)number);
        break;
    case 1:
        rc = writev(end->fd, many, IOV_MAX + 1);
        break;
    case 2:
        rc = readv(end->fd, many, IOV_MAX + 1);
        break;
    case 3:
        rc = pread(end->fd, in, 1, 0);
        break;
    case 4:
        rc = lseek(end->fd, 0, SEEK_CUR);
        break;
    case 5:
        iov[1].iov_len = (size_t)-1;
        rc = readv(end->fd, iov, 2);
        break;
    case 6:
        rc = shutdown(end->fd, 7);
        break;
    default:
        iov[1].iov_len = (size_t)-1;
        rc = writev(end->fd, iov, 2);
    }
    int error = errno;
    free(many);
    snprintf(what, sizeof(what), "wrong call %u", how);
    report_call(end, what, rc, error);
    end->got += rc > 0 && (how == 0 || how == 2 || how == 5) ? (uint64_t)rc : 0;
}

/* The connection's number changes, or it gets and loses another one. */
static void call_dup(struct end *end)
{
    int copy = dup(end->fd);
    report_call(end, "dup", copy >= 0 ? 0 : -1, errno);
    if (dice(2) == 0) {
        /* The same open file, but registrations belong to the number, too. */
        int rc = dup2(copy, end->fd);
        report_call(end, "dup2", rc == end->fd ? 0 : -1, errno);
    }
    close(copy);
}

static void put_in_sets(struct end *end)
{
    static const uint32_t events[SETS] = {
        EPOLLIN | EPOLLRDHUP, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, EPOLLIN | EPOLLONESHOT};
    for (int i = 0; i < SETS; i++) {
        struct epoll_event event = {.events = events[i]};
        end->sets[i] = epoll_create1(0);
        if (epoll_ctl(end->sets[i], EPOLL_CTL_ADD, end->fd, &event) != 0) {
            die("epoll_ctl");
        }
    }
    if (wide) {
        wide_put_in_sets(end);
    }
}

static void call_shutdown(struct end *end)
{
    char what[32];
    int how = (int)dice(3);
    int rc = shutdown(end->fd, how);
    snprintf(what, sizeof(what), "shutdown(%d)", how);
    report_call(end, what, rc, errno);
    end->wr_shut |= how != SHUT_RD;
    end->rd_shut |= how != SHUT_WR;
}

static void call_close(struct end *end)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    bool resets = dice(3) == 0;
    if (resets) {
        setsockopt(end->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    }
    other(end)->resets |= resets || end->aborts || unread(end) != 0;
    int rc = close(end->fd);
    end->fd = -1;
    report_call(end, resets ? "close, at once" : "close", rc, errno);
}

/* --- one connection -------------------------------------------------------------------------- */

static void connect_ends(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct timeval little = {.tv_usec = 3000};
    socklen_t bytes = sizeof(addr);
    int on = 1;
    int listen_fd = socket(AF_INET, SOCK_STREAM, 0);
    ends[0].fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listen_fd, (struct sockaddr *)&addr, bytes) != 0 || listen(listen_fd, 8) != 0 ||
        getsockname(listen_fd, (struct sockaddr *)&addr, &bytes) != 0 ||
        connect(ends[0].fd, (struct sockaddr *)&addr, bytes) != 0) {
        die("connect");
    }
    ends[1].fd = accept(listen_fd, NULL, NULL);
    close(listen_fd);
    for (int i = 0; i < 2; i++) {
        setsockopt(ends[i].fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        setsockopt(ends[i].fd, SOL_SOCKET, SO_RCVTIMEO, &little, sizeof(little));
        setsockopt(ends[i].fd, SOL_SOCKET, SO_SNDTIMEO, &little, sizeof(little));
    }
}

static void warm_up(unsigned times)
{
    for (unsigned i = 0; i < 2 * times; i++) {
        struct end *end = &ends[i % 2];
        if (!settle(end) || send(end->fd, "w", 1, 0) != 1 ||
            recv(other(end)->fd, in, 1, MSG_WAITALL) != 1) {
            die("the first bytes");
        }
        end->sent++;
        other(end)->got++;
    }
}

/* False if bytes under way do not arrive. */
static bool one_call(struct end *end, bool may_end)
{
    bool is_wide = wide && dice(3) == 0;
    bool is_more = more && dice(3) == 0;
    bool is_of_kind = kind_of_round >= 0 && dice(3) == 0;
    unsigned kind = dice(may_end ? 42 : 40);
    number++;
    if (!settle(end)) {
        printf("%u: not all has arrived\n", number);
        return false;
    }
    if (is_of_kind) {
        uint64_t before = end->sent;
        kinds_call((enum kind)kind_of_round, end);
        after_send(end, before);
    } else if (is_more) {
        uint64_t before = end->sent;
        more_call(end, may_end);
        after_send(end, before);
    } else if (is_wide) {
        uint64_t before = end->sent;
        wide_call(end, may_end);
        after_send(end, before);
    } else if (kind < 13) {
        uint64_t before = end->sent;
        call_send(end);
        after_send(end, before);
    } else if (kind < 26) {
        call_recv(end);
    } else if (kind < 29) {
        call_poll(end);
    } else if (kind < 31) {
        call_select(end);
    } else if (kind < 35) {
        call_epoll(end);
    } else if (kind < 38) {
        call_option(end);
    } else if (kind < 39) {
        call_wrongly(end);
    } else if (kind < 40) {
        call_dup(end);
    } else if (kind < 41) {
        call_shutdown(end);
    } else {
        call_close(end);
    }
    return true;
}

static void one_round(unsigned calls)
{
    static const unsigned warm[] = {0, 1, 3, 6, 6, 6};
    memset(ends, 0, sizeof(ends));
    if (wide) {
        wide_connect();
    } else {
        connect_ends();
    }
    unsigned times = warm[dice(6)];
    bool sets_first = dice(2) == 0;
    lowat_used = false;
    stamps_used = false;
    if (sets_first) {
        put_in_sets(&ends[0]);
        put_in_sets(&ends[1]);
    }
    warm_up(times);
    if (!sets_first) {
        put_in_sets(&ends[0]);
        put_in_sets(&ends[1]);
    }
    if (more) {
        more_begin();
    }
    for (unsigned i = 0; i < calls; i++) {
        struct end *end = &ends[dice(2)];
        end = end->fd >= 0 ? end : other(end);
        if (end->fd < 0 || !one_call(end, i > calls / 3)) {
            break;
        }
    }
    for (int i = 0; i < 2; i++) {
        if (ends[i].fd >= 0) {
            close(ends[i].fd);
        }
        for (int k = 0; k < (wide ? SETS_WIDE : SETS); k++) {
            close(ends[i].sets[k]);
        }
    }
    if (more) {
        more_end();
    }
}

int main(int argc, char **argv)
{
    if (argc > 5 && strcmp(argv[1], "held") == 0) {
        return wide_held(argc, argv);
    }
    if (argc < 3) {
        fprintf(stderr, "usage: prog_random_calls SEED ROUNDS [CALLS]: see its source\n");
        return 64;
    }
    uint64_t seed = strtoull(argv[1], NULL, 10);
    unsigned rounds = (unsigned)atoi(argv[2]);
    signal(SIGPIPE, on_sigpipe);
    file_fd = memfd_create("file", MFD_CLOEXEC);
    for (unsigned round = 0; round < rounds; round++) {
        dice_state = (seed + round + 1) * UINT64_C(0x9e3779b97f4a7c15);
        number = 0;
        wide = seed + round >= WIDE_FROM;
        more = seed + round >= MORE_FROM && seed + round < KINDS_FROM;
        kind_of_round = seed + round < KINDS_FROM
                            ? -1
                            : (int)((seed + round - KINDS_FROM) / KIND_SEEDS % KINDS_COUNT);
        printf("seed %llu\n", (unsigned long long)(seed + round));
        one_round(argc > 3 ? (unsigned)atoi(argv[3]) : 60);
    }
    return 0;
}
