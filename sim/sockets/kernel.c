/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The kernel as the sockets library calls it: time, and a TCP connection whose bytes are under way
 * for a while. */
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sim/memory.h"
#include "sim/sockets/run.h"
#include "sockets/io/io_internal.h"
#include "sockets/process/real.h"

#define START_NS VIA_SEC_NS
#define PREEMPTED_NS 1000u

/* The thread loses its CPU: mostly for a moment, and for as long as between two calls of the
 * program when the seed says so. */
static void lose_cpu(struct sock_end *end)
{
    struct sock_run *run = end->run;
    if (via_rng_chance(&run->rng, 1, 8)) {
        bool stalls = run->config->preempts && sock_chance(run, run->config->stall_chance);
        sock_pause(end, sock_between(run, 0, stalls ? run->config->stall_ns_max : PREEMPTED_NS));
    }
}

static void lose_cpu_before_call(struct sock_end *end)
{
    if (end->run->config->preempts) {
        lose_cpu(end);
    }
}

int clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    struct sock_end *end = sock_running();
    (void)clock;
    if (end != NULL) {
        lose_cpu(end);
    }
    uint64_t now_ns = START_NS + sock_run_now->clock.now_ns;
    *ret_time = (struct timespec){.tv_sec = (time_t)(now_ns / VIA_SEC_NS),
                                  .tv_nsec = (long)(now_ns % VIA_SEC_NS)};
    return 0;
}

uint64_t sim_socket_ticks(void)
{
    return START_NS + sock_run_now->clock.now_ns;
}

uint32_t via_os_ticks_us = 1000;

void via_os_pause(uint64_t ns)
{
    sock_pause(sock_running(), ns);
}

/* --- a connection ----------------------------------------------------------------------------- */

static uint64_t room_of(const struct sock_way *way)
{
    uint64_t used = way->sent - way->read;
    return used < way->buffer_bytes ? way->buffer_bytes - used : 0;
}

static uint64_t unread_of(const struct sock_way *way)
{
    return way->arrived - way->read;
}

/* Sends bytes, which reach the peer later and in order; 0 bytes: a FIN or RST. */
static void send_segment(struct sock_end *end, uint32_t bytes, bool reset)
{
    struct sock_run *run = end->run;
    uint64_t late_ns = sock_between(run, 100, run->config->kernel_ns_max + 100);
    end->out.last_ns = via_max(end->out.last_ns, run->clock.now_ns + late_ns);
    sock_trace(end, "bytes that the kernel sends:", bytes);
    sim_clock_at(&run->clock, end->out.last_ns, SIM_EVENT_PUTS, end->number, bytes, reset);
}

/* Wakes an end if it sleeps for these events of its socket. */
static void wake_for(struct sock_end *end, uint32_t events)
{
    if (end->asleep) {
        struct via_op op = via_conn_op(&end->conn, (int)end->number);
        events &= via_io_kernel_events(&op, end->wanted) | POLLHUP | POLLERR;
        if (via_io_kernel_fd(&op) >= 0 && events != 0) {
            sock_wake(end);
        }
    } else {
        end->bell = true;
    }
}

void sock_kernel_arrives(struct sock_end *from, uint32_t bytes, bool reset)
{
    from->out.arrived += bytes;
    from->out.fin_arrived |= bytes == 0;
    from->peer->reset |= reset;
    sock_trace(from, "bytes that the kernel delivers:", bytes);
    if (bytes != 0 && from->peer->dead && !from->reset) {
        /* No process holds the peer's socket: its kernel answers by RST. */
        send_segment(from->peer, 0, true);
    }
    uint32_t end_events = POLLIN | POLLRDHUP | (reset ? POLLERR | POLLHUP : 0u) |
                          (from->peer->out.fin_sent ? POLLHUP : 0u);
    wake_for(from->peer, bytes != 0 ? POLLIN : end_events);
}

void sock_kernel_fin(struct sock_end *end)
{
    bool reset = end->dead && unread_of(&end->peer->out) != 0;
    if (!end->out.fin_sent || reset) {
        end->out.fin_sent = true;
        send_segment(end, 0, reset);
    }
}

static ssize_t fail_with(int error)
{
    errno = error;
    return -1;
}

static ssize_t send_vector(int fd, const struct iovec *iov, size_t count)
{
    struct sock_end *end = sock_end_of(fd);
    struct sock_way *way = &end->out;
    uint64_t total = 0;
    lose_cpu_before_call(end);
    /* Within a host the kernel answers data for a closed socket by RST at once. */
    const struct sock_end *peer = end->peer;
    end->reset |= peer->dead && peer->out.fin_arrived && via_conn_is_local(&end->conn);
    if (way->fin_sent || end->reset) {
        return fail_with(EPIPE);
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = via_min((uint64_t)iov[i].iov_len, room_of(way));
        if (way->sent + bytes > way->capacity) {
            way->capacity = 2 * (way->capacity + bytes);
            way->bytes = sim_realloc(way->bytes, way->capacity);
        }
        memcpy(way->bytes + way->sent, iov[i].iov_base, bytes);
        way->sent += bytes;
        total += bytes;
    }
    if (total == 0) {
        return fail_with(EAGAIN);
    }
    send_segment(end, (uint32_t)total, false);
    return (ssize_t)total;
}

static ssize_t kernel_send(int fd, const void *data, size_t bytes, int flags)
{
    const struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
    (void)flags;
    return send_vector(fd, &iov, 1);
}

static ssize_t kernel_sendmsg(int fd, const struct msghdr *message, int flags)
{
    (void)flags;
    return send_vector(fd, message->msg_iov, message->msg_iovlen);
}

static ssize_t recv_vector(int fd, const struct iovec *iov, size_t count)
{
    struct sock_end *end = sock_end_of(fd);
    struct sock_way *way = &end->peer->out;
    uint64_t total = 0;
    lose_cpu_before_call(end);
    if (unread_of(way) == 0) {
        return way->fin_arrived || end->reset ? 0 : fail_with(EAGAIN);
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = via_min((uint64_t)iov[i].iov_len, unread_of(way));
        memcpy(iov[i].iov_base, way->bytes + way->read, bytes);
        way->read += bytes;
        total += bytes;
    }
    wake_for(end->peer, POLLOUT);
    return (ssize_t)total;
}

static ssize_t kernel_recv(int fd, void *data, size_t bytes, int flags)
{
    const struct iovec iov = {.iov_base = data, .iov_len = bytes};
    (void)flags;
    return recv_vector(fd, &iov, 1);
}

static ssize_t kernel_recvmsg(int fd, struct msghdr *message, int flags)
{
    (void)flags;
    return recv_vector(fd, message->msg_iov, message->msg_iovlen);
}

static int kernel_ioctl(int fd, unsigned long request, ...)
{
    const struct sock_end *end = sock_end_of(fd);
    va_list args;
    va_start(args, request);
    int *ret = va_arg(args, int *);
    va_end(args);
    *ret = (int)(request == SIOCINQ ? unread_of(&end->peer->out)
                                    : end->out.sent - end->out.arrived); /* SIOCOUTQ */
    return 0;
}

static int kernel_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    const struct sock_end *end = sock_end_of(fds[0].fd);
    const struct sock_way *in = &end->peer->out;
    unsigned events = unread_of(in) != 0 || in->fin_arrived ? POLLIN | POLLRDNORM : 0;
    events |= room_of(&end->out) != 0 || end->out.fin_sent ? POLLOUT | POLLWRNORM : 0;
    events |= in->fin_arrived ? POLLRDHUP : 0;
    events |= in->fin_arrived && end->out.fin_sent ? POLLHUP : 0;
    events |= end->reset ? POLLIN | POLLOUT | POLLRDHUP | POLLHUP | POLLERR : 0;
    fds[0].revents =
        (short)(events & ((unsigned)(unsigned short)fds[0].events | POLLHUP | POLLERR));
    if (fds[0].revents == 0 && timeout_ms > 0) {
        via_os_pause((uint64_t)timeout_ms * VIA_MSEC_NS);
    }
    (void)count;
    return fds[0].revents != 0;
}

/* The library makes only one call by syscall(): ppoll() without a timeout. */
long syscall(long number, ...)
{
    va_list args;
    va_start(args, number);
    struct pollfd *fds = va_arg(args, struct pollfd *);
    va_end(args);
    if (number != SYS_ppoll) {
        return fail_with(ENOSYS);
    }
    return kernel_poll(fds, 1, 0);
}

static int kernel_getsockopt(int fd, int level, int option, void *value, socklen_t *bytes)
{
    (void)level;
    memset(value, 0, *bytes);
    if (option == SO_SNDBUF) {
        *(int *)value = (int)sock_end_of(fd)->out.buffer_bytes;
    }
    return 0;
}

static int kernel_setsockopt(int fd, int level, int option, const void *value, socklen_t bytes)
{
    (void)level, (void)bytes;
    if (option == SO_SNDBUF) {
        sock_end_of(fd)->out.buffer_bytes = (uint64_t) * (const int *)value;
    }
    return 0;
}

static int kernel_shutdown(int fd, int how)
{
    if (how != SHUT_RD) {
        sock_kernel_fin(sock_end_of(fd));
    }
    return 0;
}

/* connect() to AF_UNSPEC: resets the connection. */
static int kernel_connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
    struct sock_end *end = sock_end_of(fd);
    (void)address, (void)bytes;
    if (!end->peer->dead) {
        sock_fail(end->run, "end %u resets its connection, and its peer lives", end->number);
    }
    end->reset = true;
    sock_kernel_fin(end);
    return 0;
}

struct via_real via_real;

void via_real_init(void)
{
    via_real = (struct via_real){
        .send = kernel_send,
        .sendmsg = kernel_sendmsg,
        .recv = kernel_recv,
        .recvmsg = kernel_recvmsg,
        .ioctl = kernel_ioctl,
        .poll = kernel_poll,
        .getsockopt = kernel_getsockopt,
        .setsockopt = kernel_setsockopt,
        .shutdown = kernel_shutdown,
        .connect = kernel_connect,
    };
}

/* --- its counters ----------------------------------------------------------------------------- */

int via_kernel_sent(int fd, bool connector, uint64_t *ret_bytes)
{
    (void)connector;
    *ret_bytes = sock_end_of(fd)->out.sent;
    return 0;
}

int via_kernel_read(int fd, uint64_t sent, uint64_t *ret_bytes)
{
    (void)sent;
    *ret_bytes = sock_end_of(fd)->peer->out.read;
    return 0;
}
