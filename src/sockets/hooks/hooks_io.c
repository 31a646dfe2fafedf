/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The C library's calls that move bytes. */
#undef _FORTIFY_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "sockets/conn/demote.h"
#include "sockets/conn/steward.h"
#include "sockets/epoll/epoll_set.h"
#include "sockets/hooks/hooks.h"
#include "sockets/hooks/signals.h"
#include "sockets/io/io.h"
#include "sockets/io/io_internal.h"
#include "sockets/io/wait.h"
#include "sockets/process/cancel.h"
#include "sockets/process/memory.h"
#include "sockets/process/real.h"

/* Entry points that compilers and old programs call instead. No public header of glibc declares
 * them. */
VIA_HOOK ssize_t __read_chk(int fd, void *buf, size_t bytes, size_t room);
VIA_HOOK ssize_t __recv_chk(int fd, void *buf, size_t bytes, size_t room, int flags);
VIA_HOOK ssize_t __recvfrom_chk(int fd, void *buf, size_t bytes, size_t room, int flags,
                                struct sockaddr *addr, socklen_t *addr_bytes);
VIA_HOOK_AS(read) ssize_t __read(int fd, void *buf, size_t bytes);
VIA_HOOK_AS(write) ssize_t __write(int fd, const void *buf, size_t bytes);
VIA_HOOK_AS(send) ssize_t __send(int fd, const void *buf, size_t bytes, int flags);

void __chk_fail(void) __attribute__((noreturn));

size_t via_hooks_check_room(size_t count, size_t room)
{
    if (count > room) {
        __chk_fail();
    }
    return count;
}

ssize_t via_hooks_finish(struct via_op *op, ssize_t rc, int saved)
{
    via_op_end(op);
    errno = saved;
    return via_hooks_result(rc);
}

/* --- receiving ------------------------------------------------------------------------------- */

/* A read into unmapped memory: returns EFAULT and leaves the bytes. */
static ssize_t recv_nowhere(struct via_op *op, int flags)
{
    unsigned char byte;
    struct iovec iov = {.iov_base = &byte, .iov_len = sizeof(byte)};
    ssize_t n = via_io_recv(op, &iov, 1, (flags & MSG_DONTWAIT) | MSG_PEEK);
    return n > 0 ? -EFAULT : n;
}

/* A read into an invalid buffer. */
static ssize_t recv_invalid(struct via_op *op, void *buf, size_t bytes, int flags)
{
    struct iovec iov = {.iov_base = buf, .iov_len = bytes};
    if (bytes == 0 || (!via_hooks_is_kernel_address(buf) && (flags & MSG_TRUNC) != 0)) {
        return via_io_recv_slowly(op, &iov, 1, flags); /* the buffer is not used */
    }
    /* The kernel checks the address range before it checks for bytes. */
    return via_hooks_is_kernel_address(buf) ? -EFAULT : recv_nowhere(op, flags);
}

static ssize_t recv_one(struct via_op *op, void *buf, size_t bytes, int flags)
{
    if (via_unlikely(via_hooks_is_no_address(buf))) {
        int before = errno;
        return via_hooks_finish(op, recv_invalid(op, buf, bytes, flags), before);
    }
    ssize_t n = via_io_recv_now(op, buf, bytes, flags);
    if (via_likely(n > 0)) {
        via_op_end(op);
        return n;
    }
    int saved = errno;
    struct iovec iov = {.iov_base = buf, .iov_len = bytes};
    return via_hooks_finish(op, n != -EAGAIN ? n : via_io_recv_slowly(op, &iov, 1, flags), saved);
}

/* True for blocking pipes and FIFOs: a thread that waits there for another program also handles the
 * calls of peers (steward.h). Not for terminals, which may be set so that read() returns when
 * poll() would not (termios(3), VMIN and VTIME). */
static bool is_blocking_pipe(int fd)
{
    struct stat of;
    return fstat(fd, &of) == 0 && S_ISFIFO(of.st_mode) &&
           (VIA_REAL(fcntl)(fd, F_GETFL) & O_NONBLOCK) == 0;
}

static ssize_t read_elsewhere(int fd, void *buf, size_t bytes)
{
    int saved = errno;
    bool waits = via_steward_is_wanted() && is_blocking_pipe(fd);
    errno = saved;
    while (waits) {
        struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}};
        int n = via_steward_sleep(fds, 1, VIA_NEVER_NS, NULL);
        if (n == -EINTR && !via_signals_has_restart()) {
            errno = EINTR;
            return -1;
        }
        waits = n == -EINTR;
    }
    return VIA_REAL(read)(fd, buf, bytes);
}

VIA_HOOK ssize_t read(int fd, void *buf, size_t bytes)
{
    via_cancel_point();
    struct via_op op;
    if (via_unlikely(bytes == 0)) {
        /* Unlike recv(), a read() of 0 bytes does not reach the socket: sock_read_iter()
         * (net/socket.c). */
        return VIA_REAL(read)(fd, buf, bytes);
    }
    return via_op_begin(&op, fd) ? recv_one(&op, buf, bytes, 0) : read_elsewhere(fd, buf, bytes);
}

VIA_HOOK ssize_t recv(int fd, void *buf, size_t bytes, int flags)
{
    via_cancel_point();
    struct via_op op;
    return via_op_begin(&op, fd) ? recv_one(&op, buf, bytes, flags)
                                 : VIA_REAL(recv)(fd, buf, bytes, flags);
}

/* TCP returns no address, but the kernel checks the pointer to its length. If that fails, the bytes
 * that were received are lost, as in the kernel. */
static ssize_t clear_address(socklen_t *addr_bytes, ssize_t n)
{
    if (!via_memory_is_writable(addr_bytes, sizeof(*addr_bytes))) {
        return via_hooks_result(-EFAULT);
    }
    if ((int)*addr_bytes < 0) {
        return via_hooks_result(-EINVAL);
    }
    *addr_bytes = 0;
    return n;
}

VIA_HOOK ssize_t recvfrom(int fd, void *buf, size_t bytes, int flags, __SOCKADDR_ARG addr,
                          socklen_t *addr_bytes)
{
    via_cancel_point();
    struct via_op op;
    if (!via_op_begin(&op, fd)) {
        return VIA_REAL(recvfrom)(fd, buf, bytes, flags, addr.__sockaddr__, addr_bytes);
    }
    ssize_t n = recv_one(&op, buf, bytes, flags);
    return n >= 0 && addr.__sockaddr__ != NULL ? clear_address(addr_bytes, n) : n;
}

VIA_HOOK ssize_t __read_chk(int fd, void *buf, size_t bytes, size_t room)
{
    return read(fd, buf, via_hooks_check_room(bytes, room));
}

VIA_HOOK ssize_t __recv_chk(int fd, void *buf, size_t bytes, size_t room, int flags)
{
    return recv(fd, buf, via_hooks_check_room(bytes, room), flags);
}

VIA_HOOK ssize_t __recvfrom_chk(int fd, void *buf, size_t bytes, size_t room, int flags,
                                struct sockaddr *addr, socklen_t *addr_bytes)
{
    return recvfrom(fd, buf, via_hooks_check_room(bytes, room), flags, addr, addr_bytes);
}

/* What the kernel checks before it calls the socket. Returns a negative errno; 1: there is nothing
 * to do, and the socket is not called either; 0: the socket is called. */
static int check_vector(const struct iovec *iov, int count)
{
    bool any = false;
    if (count < 0 || count > IOV_MAX) {
        return -EINVAL;
    }
    if (!via_memory_is_readable(iov, (size_t)count * sizeof(*iov))) {
        return -EFAULT;
    }
    for (int i = 0; i < count; i++) {
        if (iov[i].iov_len != 0 && via_hooks_is_no_address(iov[i].iov_base)) {
            return -EFAULT;
        }
        any |= iov[i].iov_len != 0;
    }
    return any ? 0 : 1;
}

/* Converts flags of preadv2() and pwritev2() to those of recv() and send(). A negative errno for
 * flags that sockets do not support. */
static int vector_flags(int flags)
{
    if ((flags & ~(RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND)) != 0) {
        return -EOPNOTSUPP;
    }
    return (flags & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0;
}

/* Moves the bytes of a vector on a connection; false if fd is not a connection. */
static bool move_vector(int fd, const struct iovec *iov, int count, int flags,
                        ssize_t (*move)(struct via_op *op, const struct iovec *iov, int iov_count,
                                        int flags),
                        ssize_t *ret_bytes)
{
    struct via_op op;
    via_cancel_point();
    if (!via_op_begin(&op, fd)) {
        return false;
    }
    int saved = errno;
    int early = flags < 0 ? flags : check_vector(iov, count);
    ssize_t n = early != 0 ? via_min(early, 0) : move(&op, iov, count, flags);
    *ret_bytes = via_hooks_finish(&op, n, saved);
    return true;
}

VIA_HOOK ssize_t readv(int fd, const struct iovec *iov, int count)
{
    ssize_t n;
    return move_vector(fd, iov, count, 0, via_io_recv, &n) ? n : VIA_REAL(readv)(fd, iov, count);
}

/* An offset other than -1 is an error on a socket, as for pread(): the kernel's call returns it. */
VIA_HOOK ssize_t preadv2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
    ssize_t n;
    return offset == -1 && move_vector(fd, iov, count, vector_flags(flags), via_io_recv, &n)
               ? n
               : VIA_REAL(preadv2)(fd, iov, count, offset, flags);
}

VIA_HOOK_AS(preadv2)
ssize_t preadv64v2(int fd, const struct iovec *iov, int count, off64_t offset, int flags);

VIA_HOOK ssize_t pwritev2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
    ssize_t n;
    return offset == -1 && move_vector(fd, iov, count, vector_flags(flags), via_io_send, &n)
               ? n
               : VIA_REAL(pwritev2)(fd, iov, count, offset, flags);
}

VIA_HOOK_AS(pwritev2)
ssize_t pwritev64v2(int fd, const struct iovec *iov, int count, off64_t offset, int flags);

/* Receives one message. Pipes carry data only; a connection without pipes gets control data from
 * the kernel's call. */
static ssize_t recvmsg_op(struct via_op *op, struct msghdr *message, int flags)
{
    if (message->msg_controllen != 0) {
        via_conn_learn_options(op);
    }
    bool stamps = atomic_load_explicit(&op->side->stamps, memory_order_relaxed);
    if (via_unlikely(stamps) && !via_conn_is_plain(op->conn)) {
        via_conn_demote(op, VIA_REASON_OPTION);
    }
    if ((message->msg_controllen != 0 || stamps) && via_conn_is_plain(op->conn) &&
        via_conn_await_demotion(op) == 0 && !via_conn_has_pipes(op->conn)) {
        via_conn_note_demoted(op->conn);
        ssize_t plain = VIA_REAL(recvmsg)(op->fd, message, flags);
        via_stats_count(&op->conn->stats->rx_kernel_bytes, plain > 0 ? (uint64_t)plain : 0);
        return plain >= 0 ? plain : -errno;
    }
    ssize_t n = via_io_recv(op, message->msg_iov, (int)message->msg_iovlen, flags);
    if (n >= 0) {
        message->msg_namelen = 0;
        message->msg_controllen = 0;
        message->msg_flags = 0;
    }
    return n;
}

/* False: the kernel's call returns the error. */
static bool is_sound_vector(const struct msghdr *message)
{
    return message->msg_iovlen <= IOV_MAX &&
           via_memory_is_readable(message->msg_iov, message->msg_iovlen * sizeof(struct iovec));
}

VIA_HOOK ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    via_cancel_point();
    struct via_op op;
    if (!via_op_begin(&op, fd)) {
        return VIA_REAL(recvmsg)(fd, message, flags);
    }
    if ((flags & MSG_ERRQUEUE) != 0 || !via_memory_is_writable(message, sizeof(*message)) ||
        !is_sound_vector(message)) {
        via_op_end(&op);
        return VIA_REAL(recvmsg)(fd, message, flags);
    }
    int saved = errno;
    return via_hooks_finish(&op, recvmsg_op(&op, message, flags), saved);
}

static bool is_message(const struct mmsghdr *message)
{
    if (!via_memory_is_writable(message, sizeof(*message))) {
        errno = EFAULT;
        return false;
    }
    return true;
}

VIA_HOOK int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags,
                      struct timespec *timeout)
{
    via_cancel_point();
    const struct via_file *file = via_fd_peek(fd);
    if (file == NULL || file->kind != VIA_FILE_CONN) {
        return VIA_REAL(recvmmsg)(fd, messages, count, flags, timeout);
    }
    int error = via_real_option(fd, SOL_SOCKET, SO_ERROR);
    /* recvmmsg() alone reports a pending error before bytes: do_recvmmsg() (net/socket.c) */
    if (error != 0) {
        errno = error;
        return -1;
    }
    unsigned done = 0;
    for (; done < count && is_message(&messages[done]); done++) {
        bool waits = done == 0 || (flags & MSG_WAITFORONE) == 0;
        ssize_t n = recvmsg(fd, &messages[done].msg_hdr,
                            (flags & ~MSG_WAITFORONE) | (waits ? 0 : MSG_DONTWAIT));
        if (n < 0) {
            break;
        }
        /* A message without bytes counts, too, as in the kernel. */
        messages[done].msg_len = (unsigned)n;
    }
    return done > 0 || count == 0 ? (int)done : -1;
}

/* --- sending --------------------------------------------------------------------------------- */

/* True if the address can be read. A connected TCP socket ignores it, but the kernel copies it
 * first. */
static bool is_sound_name(const struct msghdr *message)
{
    return message->msg_name == NULL ||
           (message->msg_namelen <= sizeof(struct sockaddr_storage) &&
            via_memory_is_readable(message->msg_name, message->msg_namelen));
}

/* Lets the kernel check an address or control data, which a connected TCP socket ignores: sends no
 * bytes. 0 or a negative errno. */
static int check_message(const struct via_op *op, const struct msghdr *message)
{
    int saved = errno;
    struct msghdr same = {.msg_name = message->msg_name,
                          .msg_namelen = message->msg_namelen,
                          .msg_control = message->msg_control,
                          .msg_controllen = message->msg_controllen};
    if (via_likely(same.msg_controllen == 0 && is_sound_name(message))) {
        return 0;
    }
    int rc = VIA_REAL(sendmsg)(op->fd, &same, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
    errno = saved;
    return rc == -EPIPE || rc == -EAGAIN ? 0 : rc; /* the caller's send returns these */
}

static ssize_t send_one(struct via_op *op, const void *buf, size_t bytes, int flags)
{
    if (via_unlikely(via_hooks_is_no_address(buf)) && bytes != 0) {
        via_op_end(op);
        return VIA_REAL(send)(op->fd, buf, bytes, flags); /* sends no byte, and returns the error */
    }
    ssize_t n = via_io_send_now(op, buf, bytes, flags);
    if (via_likely(n > 0)) {
        via_op_end(op);
        return n;
    }
    int saved = errno;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = bytes};
    return via_hooks_finish(op, n != -EAGAIN ? n : via_io_send_slowly(op, &iov, 1, flags), saved);
}

VIA_HOOK ssize_t write(int fd, const void *buf, size_t bytes)
{
    via_cancel_point();
    struct via_op op;
    return via_op_begin(&op, fd) ? send_one(&op, buf, bytes, 0) : VIA_REAL(write)(fd, buf, bytes);
}

VIA_HOOK ssize_t send(int fd, const void *buf, size_t bytes, int flags)
{
    via_cancel_point();
    struct via_op op;
    return via_op_begin(&op, fd) ? send_one(&op, buf, bytes, flags)
                                 : VIA_REAL(send)(fd, buf, bytes, flags);
}

VIA_HOOK ssize_t sendto(int fd, const void *buf, size_t bytes, int flags, __CONST_SOCKADDR_ARG addr,
                        socklen_t addr_bytes)
{
    via_cancel_point();
    struct via_op op;
    if (!via_op_begin(&op, fd)) {
        return VIA_REAL(sendto)(fd, buf, bytes, flags, addr.__sockaddr__, addr_bytes);
    }
    struct msghdr message = {.msg_name = (void *)(uintptr_t)addr.__sockaddr__};
    message.msg_namelen = addr_bytes;
    int rc = addr.__sockaddr__ != NULL && addr_bytes > sizeof(struct sockaddr_storage)
                 ? -EINVAL
                 : check_message(&op, &message);
    return rc != 0 ? via_hooks_finish(&op, rc, errno) : send_one(&op, buf, bytes, flags);
}

VIA_HOOK ssize_t writev(int fd, const struct iovec *iov, int count)
{
    ssize_t n;
    return move_vector(fd, iov, count, 0, via_io_send, &n) ? n : VIA_REAL(writev)(fd, iov, count);
}

/* Sends one message. Control data for a TCP socket concern packets, so they are ignored on
 * pipes. */
static ssize_t send_message(struct via_op *op, const struct msghdr *message, int flags)
{
    int rc = message->msg_iovlen > IOV_MAX ? -EMSGSIZE
             : !is_sound_vector(message)   ? -EFAULT
                                           : check_message(op, message);
    return rc != 0 ? rc : via_io_send(op, message->msg_iov, (int)message->msg_iovlen, flags);
}

static void demote_passed_fd(int fd)
{
    struct via_op op;
    if (via_op_begin(&op, fd)) {
        op.conn->passed = true;
        via_conn_demote(&op, VIA_REASON_PASSED);
        via_op_end(&op);
    } else {
        via_ep_pass(fd);
    }
}

/* Called before a message is sent: demotes the connections whose descriptors the message passes to
 * another process. */
static void demote_passed(const struct msghdr *message)
{
    struct msghdr *of = (struct msghdr *)(uintptr_t)message;
    for (struct cmsghdr *it = CMSG_FIRSTHDR(of); it != NULL; it = CMSG_NXTHDR(of, it)) {
        if (it->cmsg_level != SOL_SOCKET || it->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t room = (size_t)((unsigned char *)of->msg_control + of->msg_controllen -
                               (unsigned char *)CMSG_DATA(it));
        size_t bytes = via_min(via_max(it->cmsg_len, CMSG_LEN(0)) - CMSG_LEN(0), room);
        for (size_t off = 0; off + sizeof(int) <= bytes; off += sizeof(int)) {
            int fd;
            memcpy(&fd, CMSG_DATA(it) + off, sizeof(fd));
            demote_passed_fd(fd);
        }
    }
}

/* Demotes the connections whose descriptors a message passes to another process. False: the message
 * can not be read. */
static bool check_passed_fds(const struct msghdr *message)
{
    if (!via_memory_is_readable(message, sizeof(*message))) {
        return false;
    }
    if (via_unlikely(message->msg_controllen != 0) &&
        via_memory_is_readable(message->msg_control, message->msg_controllen)) {
        demote_passed(message);
    }
    return true;
}

VIA_HOOK ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    via_cancel_point();
    struct via_op op;
    if (!via_op_begin(&op, fd)) {
        check_passed_fds(message);
        return VIA_REAL(sendmsg)(fd, message, flags);
    }
    int saved = errno;
    if (!via_memory_is_readable(message, sizeof(*message))) {
        return via_hooks_finish(&op, -EFAULT, saved);
    }
    return via_hooks_finish(&op, send_message(&op, message, flags), saved);
}

VIA_HOOK int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags)
{
    const struct via_file *file = via_fd_peek(fd);
    if (file == NULL || file->kind != VIA_FILE_CONN) {
        for (unsigned i = 0; i < count && check_passed_fds(&messages[i].msg_hdr); i++) {
        }
        return VIA_REAL(sendmmsg)(fd, messages, count, flags);
    }
    unsigned done = 0;
    for (; done < count && is_message(&messages[done]); done++) {
        ssize_t n = sendmsg(fd, &messages[done].msg_hdr, flags);
        if (n < 0) {
            break;
        }
        messages[done].msg_len = (unsigned)n;
    }
    return done > 0 || count == 0 ? (int)done : -1;
}
