/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The C library's calls on sockets and descriptors themselves. */
#undef _FORTIFY_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "sockets/conn/board.h"
#include "sockets/conn/carrier.h"
#include "sockets/conn/demote.h"
#include "sockets/conn/steward.h"
#include "sockets/epoll/epoll_set.h"
#include "sockets/hooks/hooks.h"
#include "sockets/io/io.h"
#include "sockets/meet/diag.h"
#include "sockets/meet/meeting.h"
#include "sockets/process/cancel.h"
#include "sockets/process/lock.h"
#include "sockets/process/memory.h"
#include "sockets/process/real.h"

/* --- making connections ---------------------------------------------------------------------- */

/* True in two cases: the program disconnects a connected socket (AF_UNSPEC), or its connect()
 * continued in the background, this call is the first to get the result, and the connection has
 * ended (inet_stream_connect()). */
static bool is_dissolving(int fd, const struct sockaddr *to, socklen_t bytes, int error)
{
    if (error == 0) {
        return bytes >= sizeof(to->sa_family) && to->sa_family == AF_UNSPEC;
    }
    bool ended =
        error == EPIPE || error == ECONNRESET || error == ECONNABORTED || error == ETIMEDOUT;
    return ended && via_fd_peek(fd) != NULL;
}

/* The socket is unconnected again, with all its descriptors. They stay in the table, and with the
 * kernel: if the socket is in epoll sets, the kernel may keep registrations of closed descriptors,
 * which no call can change, and would report them with the library's data. */
static void dissolve(int fd)
{
    struct via_op op;
    if (!via_hooks_is_guest() && via_op_begin(&op, fd)) {
        via_conn_abandon(&op);
        via_op_end(&op);
    }
}

VIA_HOOK int socket(int domain, int type, int protocol)
{
    int fd = VIA_REAL(socket)(domain, type, protocol);
    if (via_unlikely(fd < 0 && errno == EMFILE) && via_hooks_ready && via_meeting_release_fds()) {
        fd = VIA_REAL(socket)(domain, type, protocol);
    }
    return fd;
}

static void discard(void *of_conn)
{
    struct via_conn *conn = of_conn;
    if (conn != NULL) {
        via_file_put_slowly(&conn->file);
    }
}

/* The kernel's call, in which a thread may be cancelled. */
static int connect_or_end(int fd, const struct sockaddr *to, socklen_t bytes, struct via_conn *conn)
{
    int rc;
    pthread_cleanup_push(discard, conn);
    rc = VIA_REAL(connect)(fd, to, bytes);
    pthread_cleanup_pop(0);
    return rc;
}

VIA_HOOK int connect(int fd, __CONST_SOCKADDR_ARG addr, socklen_t bytes)
{
    via_cancel_point();
    const struct sockaddr *to = addr.__sockaddr__;
    via_hooks_init();
    if (!via_memory_is_readable(to, via_min(bytes, (socklen_t)sizeof(struct sockaddr_storage)))) {
        return VIA_REAL(connect)(fd, to, bytes);
    }
    struct via_conn *conn = via_conn_prepare(fd, to, bytes);
    int rc = connect_or_end(fd, to, bytes, conn);
    VIA_CANCEL_NEVER;
    if (conn == NULL && is_dissolving(fd, to, bytes, rc == 0 ? 0 : errno)) {
        VIA_KEEP_ERRNO;
        dissolve(fd);
    }
    if (conn != NULL) {
        VIA_KEEP_ERRNO;
        bool connects = rc == 0 || errno == EINPROGRESS || errno == EINTR;
        via_meeting_note_fd(fd);
        if (connects) {
            via_conn_publish(conn, fd);
        } else {
            via_file_put_slowly(&conn->file);
        }
    }
    return rc;
}

/* Clears the marks of a closed descriptor, but not in a child of vfork(): the marks are its
 * parent's. Without acceleration they do not matter, and the check costs a system call. */
static void unmark(int fd)
{
    if (via_fd_is_marked(fd, VIA_FD_ALL) && (!via_policy.on || !via_hooks_is_guest())) {
        via_fd_mark(fd, VIA_FD_ALL, false);
    }
}

/* Removes from the table what a descriptor that the kernel has just returned referred to before. */
static void forget(int fd)
{
    if (via_fd_peek(fd) != NULL) {
        via_hooks_forget(fd);
    }
    unmark(fd);
}

/* True if accept() can write the address there. Otherwise the kernel's accept() returns the error,
 * and closes the accepted socket. */
static bool is_sound_place(const struct sockaddr *addr, const socklen_t *bytes)
{
    return addr == NULL || (via_memory_is_writable(bytes, sizeof(*bytes)) && (int)*bytes >= 0 &&
                            via_memory_is_writable(addr, via_min(*bytes, sizeof(*addr))));
}

/* The library needs the peer's address whether or not the program requests it. */
static int accept_any(int listen_fd, struct sockaddr *addr, socklen_t *bytes, int flags)
{
    struct sockaddr_storage own;
    socklen_t own_bytes = sizeof(own);
    via_hooks_init();
    if (!via_policy.on || !is_sound_place(addr, bytes)) {
        int plain = VIA_REAL(accept4)(listen_fd, addr, bytes, flags);
        if (plain >= 0) {
            via_board_refuse(plain, via_policy.off_reason);
        }
        return plain;
    }
    if (!via_fd_is_marked(listen_fd, VIA_FD_LISTENS)) {
        /* The socket listened before the library was loaded; sockets that it accepts from now on
         * have the mark. */
        via_diag_mark(listen_fd);
        via_fd_mark(listen_fd, VIA_FD_LISTENS, true);
    }
    int fd = VIA_REAL(accept4)(listen_fd, (struct sockaddr *)&own, &own_bytes, flags);
    if (via_unlikely(fd < 0 && errno == EMFILE) && via_meeting_release_fds()) {
        fd = VIA_REAL(accept4)(listen_fd, (struct sockaddr *)&own, &own_bytes, flags);
    }
    if (fd < 0) {
        return fd;
    }
    VIA_CANCEL_NEVER; /* the connection is accepted, so the call must return its descriptor */
    forget(fd);
    via_meeting_note_fd(fd);
    if (addr != NULL && bytes != NULL) {
        memcpy(addr, &own, via_min(*bytes, via_min(own_bytes, (socklen_t)sizeof(own))));
        *bytes = own_bytes;
    }
    via_conn_accepted(fd, (struct sockaddr *)&own, own_bytes);
    return fd;
}

VIA_HOOK int accept(int fd, __SOCKADDR_ARG addr, socklen_t *bytes)
{
    return via_policy.off_reason == VIA_REASON_SECCOMP
               ? VIA_REAL(accept)(fd, addr.__sockaddr__, bytes)
               : accept_any(fd, addr.__sockaddr__, bytes, 0);
}

VIA_HOOK int accept4(int fd, __SOCKADDR_ARG addr, socklen_t *bytes, int flags)
{
    return accept_any(fd, addr.__sockaddr__, bytes, flags);
}

VIA_HOOK int listen(int fd, int backlog)
{
    via_hooks_init();
    if (via_policy.on) {
        via_steward_prepare();
        via_diag_mark(fd);
        via_fd_mark(fd, VIA_FD_LISTENS, true);
    }
    return VIA_REAL(listen)(fd, backlog);
}

VIA_HOOK int shutdown(int fd, int how)
{
    struct via_op op;
    if (!via_op_begin(&op, fd)) {
        return VIA_REAL(shutdown)(fd, how);
    }
    int rc = via_io_shutdown(&op, how);
    via_op_end(&op);
    return (int)via_hooks_result(rc);
}

/* --- closing --------------------------------------------------------------------------------- */

/* True if only the kernel's connection is left, and no set contains it. */
static bool is_kernel_only(const struct via_conn *conn)
{
    return via_list_is_empty(&conn->entries) &&
           via_conn_is_in(conn, VIA_PHASE_BIT(PLAIN) | VIA_PHASE_BIT(LEFT) | VIA_PHASE_BIT(OVER));
}

/* Removes the descriptor from its connection or set. closes: closes the descriptor, too. No signal
 * handler runs meanwhile: if it forked, parent and child would both continue the call, with a
 * descriptor that is not in the table and still counts. */
static int end_number(int fd, bool closes)
{
    VIA_CANCEL_NEVER;
    struct via_conn *conn = NULL;
    bool kernel_only = false;
    via_fds_begin_change();
    via_lock_raise(VIA_LOCK_CALL);
    struct via_file *file = via_fd_take(fd);
    if (file != NULL && file->kind == VIA_FILE_CONN) {
        conn = via_container_of(file, struct via_conn, file);
        kernel_only = is_kernel_only(conn);
        via_conn_closing(conn, fd);
    } else if (file != NULL) {
        via_ep_closed(via_container_of(file, struct via_ep_set, file), fd);
    }
    if (kernel_only && closes) {
        /* The kernel's close() may linger. A child that another thread forks meanwhile has the
         * descriptor as if it had been forked before. */
        via_conn_closed(conn);
        via_fds_end_change();
        via_lock_lower(VIA_LOCK_CALL);
        return VIA_REAL(close)(fd);
    }
    int rc = closes ? VIA_REAL(close)(fd) : 0;
    if (conn != NULL) {
        via_conn_closed(conn);
    }
    via_fds_end_change();
    via_lock_lower(VIA_LOCK_CALL);
    return rc;
}

void via_hooks_forget(int fd)
{
    struct via_file *file = via_fd_peek(fd);
    if (file != NULL && file->kind != VIA_FILE_HIDDEN && !via_hooks_is_guest()) {
        (void)end_number(fd, false);
    }
}

VIA_HOOK int close(int fd)
{
    via_cancel_point();
    struct via_file *file = via_fd_peek(fd);
    unmark(fd);
    if (via_likely(file == NULL)) {
        return VIA_REAL(close)(fd);
    }
    if (file->kind == VIA_FILE_HIDDEN) {
        errno = EBADF;
        return -1;
    }
    if (via_hooks_is_guest()) {
        return VIA_REAL(close)(fd);
    }
    return end_number(fd, true);
}

long via_hooks_syscall_close(long number, int fd)
{
    (void)number;
    VIA_CANCEL_NEVER; /* no cancellation in this call */
    return close(fd);
}

/* The descriptors from first to last, except for the library's own. */
static int close_others(unsigned first, unsigned last, int flags)
{
    unsigned from = first;
    for (unsigned fd = via_fds_next_used(first); fd < via_fds_count && fd <= last;
         fd = via_fds_next_used(fd + 1)) {
        struct via_file *file = via_fd_peek((int)fd);
        if ((flags & CLOSE_RANGE_CLOEXEC) == 0) {
            unmark((int)fd);
        }
        if (file == NULL) {
            continue;
        }
        if (file->kind != VIA_FILE_HIDDEN) {
            if ((flags & CLOSE_RANGE_CLOEXEC) == 0) {
                via_hooks_forget((int)fd);
            }
            continue;
        }
        if (fd > from && VIA_REAL(close_range)(from, fd - 1, flags) != 0) {
            return -1;
        }
        from = fd + 1;
    }
    return from > last || from < first ? 0 : VIA_REAL(close_range)(from, last, flags);
}

/* Closes the descriptors from first to last, or sets FD_CLOEXEC, as the kernel would, except for
 * the library's own. */
VIA_HOOK int close_range(unsigned first, unsigned last, int flags)
{
    if (first > last) {
        errno = EINVAL;
        return -1;
    }
    /* Tests the call with a number that no descriptor has: the kernel may not know the call or
     * the flags, and then all connections stay. */
    if (VIA_REAL(close_range)(~0u, ~0u, flags & ~(int)CLOSE_RANGE_UNSHARE) != 0) {
        return -1;
    }
    bool changes = via_policy.on && !via_hooks_is_guest();
    if (changes) {
        via_fds_begin_change();
    }
    int rc = close_others(first, last, flags);
    if (changes) {
        via_fds_end_change();
    }
    return rc;
}

VIA_HOOK void closefrom(int first)
{
    close_range((unsigned)(first < 0 ? 0 : first), ~0u, 0);
}

/* --- copying descriptors --------------------------------------------------------------------- */

/* Called when the program copies a descriptor that is not a connection yet. A superfluous mark is
 * harmless: see adopt_copies(). */
static void note_plain_copy(int fd, int new_fd)
{
    if (!via_fd_is_marked(fd, VIA_FD_IS_SET)) {
        via_fd_mark(fd, VIA_FD_IS_COPIED, true);
        via_fd_mark(new_fd, VIA_FD_IS_COPIED, true);
    } else if (!via_hooks_is_guest()) {
        via_ep_dup_plain(fd, new_fd);
    }
}

/* Enters new_fd for the object to which fd refers. False: fd is not in the table. The caller defers
 * signal handlers, so none forks meanwhile. */
static bool count_copy(int fd, int new_fd)
{
    bool alone = via_is_alone();
    struct via_file *file = via_file_get(fd, alone);
    if (via_likely(file == NULL)) {
        return false;
    }
    if (file->kind == VIA_FILE_CONN) {
        via_conn_dup(via_container_of(file, struct via_conn, file), new_fd);
    } else if (file->kind == VIA_FILE_EPOLL) {
        via_ep_dup(via_container_of(file, struct via_ep_set, file), new_fd);
    }
    via_file_put(file, alone);
    return true;
}

/* new_fd has just become a copy of fd. */
static int note_copy(int fd, int new_fd)
{
    VIA_CANCEL_NEVER;
    if (new_fd < 0) {
        return new_fd;
    }
    forget(new_fd);
    bool known = via_fd_peek(fd) != NULL;
    if (via_unlikely(known && via_hooks_is_guest())) {
        /* A copy in the descriptor table of a child of vfork(), which the program that the child
         * executes inherits, without the library's state. */
        via_fd_demote(fd, VIA_REASON_EXEC);
    } else if (via_unlikely(known)) {
        via_lock_enter();
        known = count_copy(fd, new_fd);
        via_lock_leave();
    }
    if (via_likely(!known)) {
        note_plain_copy(fd, new_fd);
        return new_fd;
    }
    if (new_fd <= STDERR_FILENO) {
        via_fd_demote(
            new_fd,
            VIA_REASON_STDIO); /* stdio and executed programs write there without the library */
    } else if (via_unlikely((unsigned)new_fd >= via_fds_count)) {
        /* RLIMIT_NOFILE has been raised since the start; the library does not see calls on new_fd.
         */
        via_fd_demote(fd, VIA_REASON_RESOURCES);
    }
    return new_fd;
}

/* Called before the kernel's dup() and the change of the table. new_fd: -1 if the kernel chooses
 * it. True if the table contains one of the descriptors: then end_copy() must end the change. */
static bool begin_copy(int fd, int new_fd)
{
    bool known = via_fd_peek(fd) != NULL || (new_fd >= 0 && via_fd_peek(new_fd) != NULL);
    if (via_unlikely(known) && !via_hooks_is_guest()) {
        via_fds_begin_change();
        return true;
    }
    return false;
}

static int end_copy(bool begun, int rc)
{
    if (via_unlikely(begun)) {
        via_fds_end_change();
    }
    return rc;
}

VIA_HOOK int dup(int fd)
{
    if (via_fd_is_hidden(fd)) {
        errno = EBADF;
        return -1;
    }
    bool begun = begin_copy(fd, -1);
    int new_fd = VIA_REAL(dup)(fd);
    if (via_unlikely(new_fd < 0 && errno == EMFILE) && via_meeting_release_fds()) {
        new_fd = VIA_REAL(dup)(fd);
    }
    return end_copy(begun, note_copy(fd, new_fd));
}

/* True if both refer to the same object already: dup2() then closes no last descriptor, and the
 * kernel's registrations stay. */
static bool is_copied_already(int fd, int new_fd)
{
    struct via_file *file = via_fd_peek(new_fd);
    return fd == new_fd || (file != NULL && file == via_fd_peek(fd) && !via_hooks_is_guest());
}

/* False if the kernel's dup2() or dup3() fails: then new_fd stays what it is. */
static bool is_replaceable(int fd, int new_fd, int flags)
{
    struct rlimit limit = {.rlim_cur = 0};
    return (flags & ~O_CLOEXEC) == 0 && VIA_REAL(fcntl)(fd, F_GETFD) >= 0 &&
           getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)new_fd < limit.rlim_cur;
}

/* dup2() is about to replace new_fd: removes new_fd from the table, or moves the library's own
 * descriptor away. False, with errno EBADF: fd is the library's own, or new_fd is and can not be
 * moved. */
static bool free_number(int fd, int new_fd, int flags)
{
    struct via_file *file = via_fd_peek(new_fd);
    if (via_fd_is_hidden(fd)) {
        errno = EBADF;
        return false;
    }
    if (file == NULL || is_copied_already(fd, new_fd) || !is_replaceable(fd, new_fd, flags) ||
        via_hooks_is_guest()) {
        return true;
    }
    bool made = true;
    if (file->kind == VIA_FILE_HIDDEN) {
        made = via_hidden_move(new_fd);
        errno = made ? errno : EBADF;
    } else {
        via_hooks_forget(new_fd);
    }
    return made;
}

static int replace(int fd, int new_fd, int (*by_kernel)(int fd, int new_fd, int flags), int flags)
{
    bool begun = begin_copy(fd, new_fd);
    int rc = -1;
    if (free_number(fd, new_fd, flags)) {
        bool already = is_copied_already(fd, new_fd);
        rc = by_kernel(fd, new_fd, flags);
        rc = already ? rc : note_copy(fd, rc);
    }
    return end_copy(begun, rc);
}

static int dup2_by_kernel(int fd, int new_fd, int flags)
{
    (void)flags;
    return VIA_REAL(dup2)(fd, new_fd);
}

VIA_HOOK int dup2(int fd, int new_fd)
{
    return replace(fd, new_fd, dup2_by_kernel, 0);
}

VIA_HOOK int dup3(int fd, int new_fd, int flags)
{
    return replace(fd, new_fd, VIA_REAL(dup3), flags);
}

/* --- flags and options ----------------------------------------------------------------------- */

VIA_HOOK int fcntl(int fd, int command, ...)
{
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    if (via_fd_is_hidden(fd)) {
        errno = EBADF;
        return -1;
    }
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) {
        bool begun = begin_copy(fd, -1);
        return end_copy(begun, note_copy(fd, VIA_REAL(fcntl)(fd, command, argument)));
    }
    int rc = VIA_REAL(fcntl)(fd, command, argument);
    struct via_op op;
    if (via_likely(rc < 0) || command != F_SETFL) {
        return rc;
    }
    if (via_op_begin(&op, fd)) {
        int flags = (int)(intptr_t)argument;
        via_op_set_nonblocking(&op, (flags & O_NONBLOCK) != 0);
        if ((flags & O_ASYNC) != 0) {
            via_conn_demote(&op, VIA_REASON_OPTION); /* SIGIO comes from the kernel only */
        }
        via_op_end(&op);
    }
    return rc;
}

VIA_HOOK_AS(fcntl) int fcntl64(int fd, int command, ...);

VIA_HOOK int ioctl(int fd, unsigned long request, ...)
{
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    struct via_op op;
    if (via_likely(!via_op_begin(&op, fd))) {
        return VIA_REAL(ioctl)(fd, request, argument);
    }
    int rc;
    if (request == FIONREAD && via_memory_is_writable(argument, sizeof(int))) {
        rc = via_io_readable_bytes(&op);
        if (rc >= 0) {
            *(int *)argument = rc;
            rc = 0;
        }
        rc = (int)via_hooks_result(rc);
    } else {
        rc = VIA_REAL(ioctl)(fd, request, argument);
        if (rc == 0 && request == FIONBIO) {
            via_op_set_nonblocking(&op, *(const int *)argument != 0);
        } else if (rc == 0 && request == FIOASYNC && *(const int *)argument != 0) {
            via_conn_demote(&op, VIA_REASON_OPTION);
        }
    }
    via_op_end(&op);
    return rc;
}

/* A longer time-out counts as none. */
#define TIMEOUT_S_MAX INT32_MAX

/* Converts as Linux' sock_set_timeout() does. */
static uint64_t timeout_ns(const void *value, socklen_t bytes)
{
    const struct timeval *tv = value;
    if (bytes < sizeof(*tv) || tv->tv_sec > TIMEOUT_S_MAX) {
        return 0;
    }
    return tv->tv_sec < 0 ? VIA_AT_ONCE_NS
                          : (uint64_t)tv->tv_sec * VIA_SEC_NS + (uint64_t)tv->tv_usec * VIA_USEC_NS;
}

/* asm-generic/socket.h; on 64 bits the same. */
#define TIMESTAMP_NEW 63
#define TIMESTAMPNS_NEW 64
#define TIMESTAMPING_NEW 65

/* A time stamp is control data, too, but iperf sets this option on every socket, and most programs
 * never read the time: see recvmsg(). */
static bool is_stamp(int level, int name)
{
    return level == SOL_SOCKET &&
           (name == SO_TIMESTAMP || name == SO_TIMESTAMPNS || name == SO_TIMESTAMPING ||
            name == TIMESTAMP_NEW || name == TIMESTAMPNS_NEW || name == TIMESTAMPING_NEW);
}

static bool is_small_buffer(int level, int name, const void *value, socklen_t bytes)
{
    int size;
    if (level != SOL_SOCKET || bytes < sizeof(size) ||
        (name != SO_SNDBUF && name != SO_RCVBUF && name != SO_SNDBUFFORCE &&
         name != SO_RCVBUFFORCE)) {
        return false;
    }
    memcpy(&size, value, sizeof(size));
    return size < VIA_CONN_BUFFER_BYTES_MIN;
}

/* asm-generic/socket.h; on 64 bits the same struct. */
#define RCVTIMEO_NEW 66
#define SNDTIMEO_NEW 67

/* True if the peer's host can not be reached now, so that a demotion would get no answer. */
static bool is_cut_off(const struct via_conn *conn)
{
    return via_conn_has_pipes(conn) && conn->carrier->is_cut_off(conn);
}

/* The kernel has set the option: applies it to pipes. */
static void apply_option(struct via_op *op, int level, int name, const void *value, socklen_t bytes)
{
    struct via_side *side = op->side;
    if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == RCVTIMEO_NEW)) {
        atomic_store_explicit(&side->rcvtimeo_ns, timeout_ns(value, bytes), memory_order_relaxed);
    } else if (level == SOL_SOCKET && (name == SO_SNDTIMEO || name == SNDTIMEO_NEW)) {
        atomic_store_explicit(&side->sndtimeo_ns, timeout_ns(value, bytes), memory_order_relaxed);
    } else if (is_stamp(level, name)) {
        via_conn_learn_stamps(op);
    } else if (level == SOL_SOCKET &&
               (name == SO_OOBINLINE || name == SO_PEEK_OFF ||
                (name == SO_RCVLOWAT && bytes >= sizeof(int) && *(const int *)value > 1))) {
        via_conn_demote(op, VIA_REASON_OPTION);
    } else if (is_small_buffer(level, name, value, bytes) && !is_cut_off(op->conn)) {
        via_conn_demote(op, VIA_REASON_OPTION);
    }
}

/* True if the kernel alone can honour the option, and counts the bytes from now on: time stamps of
 * sent bytes are numbered. */
static bool is_of_kernel(int level, int name, const void *value, socklen_t bytes)
{
    int flags = 0;
    if (level == SOL_SOCKET && (name == SO_TIMESTAMPING || name == TIMESTAMPING_NEW) &&
        bytes >= sizeof(flags) && via_memory_is_readable(value, sizeof(flags))) {
        memcpy(&flags, value, sizeof(flags));
    }
    return via_conn_is_tx_stamping(flags) || (level == IPPROTO_TCP && name == TCP_ULP);
}

/* True if the library refuses the option by ENOPROTOOPT, as an older kernel would; programs do
 * without it. TCP_INQ is refused unless the connection is plain; TCP_ULP (TLS in the kernel) and
 * time stamps of sent bytes only if the connection can not be demoted. */
static bool is_refused(struct via_op *op, int level, int name, const void *value, socklen_t bytes)
{
    if (level == IPPROTO_TCP && name == TCP_INQ) {
        return !via_conn_is_plain(op->conn);
    }
    return is_of_kernel(level, name, value, bytes) && via_conn_demote(op, VIA_REASON_OPTION) != 0;
}

VIA_HOOK int setsockopt(int fd, int level, int name, const void *value, socklen_t bytes)
{
    struct via_op op;
    if (via_likely(!via_op_begin(&op, fd))) {
        return VIA_REAL(setsockopt)(fd, level, name, value, bytes);
    }
    int rc = is_refused(&op, level, name, value, bytes) ? -1 : 0;
    if (rc != 0) {
        errno = ENOPROTOOPT;
    } else {
        rc = VIA_REAL(setsockopt)(fd, level, name, value, bytes);
        if (rc == 0) {
            apply_option(&op, level, name, value, bytes);
        }
    }
    via_op_end(&op);
    return rc;
}

/* SO_ERROR is ETIMEDOUT, once, for a connection between hosts whose bytes could not be delivered,
 * as with TCP. */
VIA_HOOK int getsockopt(int fd, int level, int name, void *value, socklen_t *bytes)
{
    struct via_op op;
    int rc = VIA_REAL(getsockopt)(fd, level, name, value, bytes);
    if (rc != 0 || level != SOL_SOCKET || name != SO_ERROR || *bytes != sizeof(int) ||
        !via_op_begin(&op, fd)) {
        return rc;
    }
    if (via_io_take_time_out(&op) != 0) {
        const int error = ETIMEDOUT;
        memcpy(value, &error, sizeof(error));
    }
    via_op_end(&op);
    return rc;
}
