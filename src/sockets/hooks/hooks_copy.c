/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The C library's calls that move bytes from one descriptor to another. */
#undef _FORTIFY_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "sockets/conn/demote.h"
#include "sockets/hooks/hooks.h"
#include "sockets/io/io.h"
#include "sockets/io/io_internal.h"
#include "sockets/process/cancel.h"
#include "sockets/process/memory.h"
#include "sockets/process/pool.h"
#include "sockets/process/real.h"

/* Sends all bytes, or as many as a non-blocking socket accepts. Returns the number of bytes or a
 * negative errno. */
static ssize_t send_all(struct via_op *op, const unsigned char *data, size_t bytes, int flags)
{
    size_t done = 0;
    while (done < bytes) {
        struct iovec iov = {.iov_base = (void *)(uintptr_t)(data + done), .iov_len = bytes - done};
        ssize_t n = via_io_send(op, &iov, 1, flags);
        if (n < 0) {
            return done != 0 ? (ssize_t)done : n;
        }
        done += (size_t)n;
        if (via_op_is_nonblocking(op) && done < bytes) {
            break;
        }
    }
    return (ssize_t)done;
}

/* Copies from a file. Reads at an explicit offset, so bytes that could not be sent are read again
 * later. */
static ssize_t copy_file(struct via_op *op, unsigned char *buffer, int in_fd, off_t *offset,
                         size_t bytes)
{
    size_t total = 0;
    while (total < bytes) {
        ssize_t n = pread(in_fd, buffer, via_min(bytes - total, VIA_SCRATCH_BYTES), *offset);
        if (n <= 0) {
            return total != 0 || n == 0 ? (ssize_t)total : -errno;
        }
        ssize_t sent = send_all(op, buffer, (size_t)n, 0);
        if (sent < 0) {
            return total != 0 ? (ssize_t)total : sent;
        }
        *offset += sent;
        total += (size_t)sent;
        if (sent < n) {
            break;
        }
    }
    return (ssize_t)total;
}

/* True if the kernel moves the connection's bytes now, and the program's. */
static bool await_kernel(struct via_op *op)
{
    return via_conn_is_plain(op->conn) && via_conn_await_demotion(op) == 0 &&
           via_conn_is_plain(op->conn);
}

static ssize_t send_file_by_kernel(struct via_op *op, int in_fd, off_t *offset, size_t bytes)
{
    ssize_t n = VIA_REAL(sendfile)(op->fd, in_fd, offset, bytes);
    if (n < 0 ? errno == EAGAIN : n != 0 && n < (ssize_t)bytes) {
        via_io_note_full(op);
    }
    via_io_count_kernel(op, via_max(n, (ssize_t)0));
    via_op_end(op);
    return n;
}

static ssize_t send_file_by_copies(struct via_op *op, int in_fd, off_t *offset, size_t bytes)
{
    off_t at = offset != NULL ? *offset : lseek(in_fd, 0, SEEK_CUR);
    if (at < 0) {
        return offset != NULL || errno == ESPIPE ? -EINVAL : -errno;
    }
    unsigned char *buffer = via_pool_get(&via_scratch);
    if (buffer == NULL) {
        return -ENOMEM;
    }
    VIA_CANCEL_NEVER; /* sendfile() is no cancellation point (pthreads(7)) */
    ssize_t rc = copy_file(op, buffer, in_fd, &at, bytes);
    via_pool_put(&via_scratch, buffer);
    if (rc > 0) {
        if (offset != NULL) {
            *offset = at;
        } else {
            lseek(in_fd, at, SEEK_SET);
        }
    }
    return rc;
}

VIA_HOOK ssize_t sendfile(int out_fd, int in_fd, off_t *offset, size_t bytes)
{
    struct via_op op;
    if (!via_op_begin(&op, out_fd)) {
        if (offset == NULL && via_op_begin(&op, in_fd)) {
            via_op_end(&op);
            /* As in Linux from 5.12 on, if out_fd is a pipe (sendfile(2)). */
            return splice(in_fd, NULL, out_fd, NULL, bytes, 0);
        }
        return VIA_REAL(sendfile)(out_fd, in_fd, offset, bytes);
    }
    if ((await_kernel(&op) && !via_side_is_in(op.side, VIA_PHASES_REPLAY)) ||
        (offset != NULL && !via_memory_is_writable(offset, sizeof(*offset)))) {
        return send_file_by_kernel(&op, in_fd, offset, bytes);
    }
    int saved = errno;
    return via_hooks_finish(&op, send_file_by_copies(&op, in_fd, offset, bytes), saved);
}

VIA_HOOK_AS(sendfile)
ssize_t sendfile64(int out_fd, int in_fd, off64_t *offset, size_t bytes);
_Static_assert(sizeof(off64_t) == sizeof(off_t), "the same function");

/* Waits for the program's pipe; the thread may be cancelled meanwhile. Returns events, or a
 * negative errno. */
static int wait_for_pipe(struct via_op *op, int fd, short events, unsigned flags)
{
    bool waits =
        (flags & SPLICE_F_NONBLOCK) == 0 && (VIA_REAL(fcntl)(fd, F_GETFL) & O_NONBLOCK) == 0;
    struct pollfd pfd = {.fd = fd, .events = events};
    int n;
    pthread_cleanup_push(via_io_end_cancelled, op);
    via_cancel_allow();
    n = VIA_REAL(poll)(&pfd, 1, waits ? -1 : 0);
    via_cancel_defer();
    pthread_cleanup_pop(0);
    return n > 0 ? pfd.revents : n == 0 ? -EAGAIN : -errno;
}

/* Writes bytes that were taken from a connection into the program's pipe, undivided (PIPE_BUF,
 * pipe(7)). Retries after a signal, and if another thread has used the room: the bytes must not be
 * lost. */
static ssize_t put_taken(int out_fd, const unsigned char *data, size_t bytes)
{
    struct pollfd pfd = {.fd = out_fd, .events = POLLOUT};
    ssize_t n;
    while ((n = VIA_REAL(write)(out_fd, data, bytes)) < 0 && (errno == EAGAIN || errno == EINTR)) {
        VIA_REAL(poll)(&pfd, 1, -1);
    }
    return n < 0 ? -errno : n;
}

/* Splices from a connection into a pipe of the program, as many bytes as that pipe certainly
 * accepts. */
static ssize_t splice_from(struct via_op *op, int out_fd, size_t bytes, unsigned flags)
{
    unsigned char buffer[4096];
    struct iovec iov = {.iov_base = buffer, .iov_len = via_min(bytes, sizeof(buffer))};
    /* A pipe for which poll() reports POLLOUT accepts PIPE_BUF bytes at once (pipe(7)). */
    int rc = wait_for_pipe(op, out_fd, POLLOUT, flags);
    if (rc < 0) {
        return rc;
    }
    if ((rc & POLLERR) != 0) { /* the pipe has no readers: the kernel's call returns the error */
        ssize_t n = VIA_REAL(splice)(op->fd, NULL, out_fd, NULL, bytes, flags | SPLICE_F_NONBLOCK);
        return n < 0 ? -errno : n;
    }
    /* SPLICE_F_NONBLOCK concerns only the program's pipe. */
    ssize_t got = via_io_recv(op, &iov, 1, 0);
    return got <= 0 ? got : put_taken(out_fd, buffer, (size_t)got);
}

static int wait_for_room(struct via_op *op)
{
    uint64_t deadline_ns = via_io_deadline(&op->side->sndtimeo_ns);
    int rc = 0;
    while (rc == 0 && (via_io_ready(op, POLLOUT) & POLLOUT) == 0) {
        rc = via_op_is_nonblocking(op) ? -EAGAIN : via_io_wait(op, POLLOUT, deadline_ns);
    }
    return rc;
}

/* Sends bytes that were taken out of the program's pipe. Retries after a signal, and if another
 * thread has used the room: the bytes must not be lost. On a non-blocking connection this waits
 * only between hosts, when other connections have filled the path. */
static ssize_t send_taken(struct via_op *op, const unsigned char *data, size_t bytes)
{
    size_t done = 0;
    ssize_t n = 0;
    while (done < bytes && (n >= 0 || n == -EINTR || n == -EAGAIN)) {
        n = send_all(op, data + done, bytes - done, 0);
        done += n > 0 ? (size_t)n : 0;
        if (n == -EAGAIN) {
            via_io_wait(op, POLLOUT, VIA_NEVER_NS);
        }
    }
    return done != 0 ? (ssize_t)done : n;
}

/* Limit of one call: no more than the room for which poll() reports POLLOUT. */
#define SPLICE_BYTES (16u * 1024)

/* Takes bytes out of the program's pipe, without waiting if another thread has just read them.
 * Returns bytes or a negative errno. */
static ssize_t take_now(int in_fd, struct iovec *piece)
{
    ssize_t got = vmsplice(in_fd, piece, 1, SPLICE_F_NONBLOCK);
    if (got < 0 && errno != EAGAIN) { /* a seccomp filter may forbid vmsplice() */
        got = VIA_REAL(read)(in_fd, piece->iov_base, piece->iov_len);
    }
    return got >= 0 ? got : -errno;
}

static ssize_t splice_by_kernel(struct via_op *op, int in_fd, size_t bytes)
{
    ssize_t n = VIA_REAL(splice)(in_fd, NULL, op->fd, NULL, bytes, SPLICE_F_NONBLOCK);
    if (n < (ssize_t)bytes) {
        via_io_note_full(op);
    }
    via_io_count_kernel(op, via_max(n, (ssize_t)0));
    return n >= 0 ? n : -errno;
}

/* Splices with the tx token, so that no other thread uses up the room meanwhile. Returns the number
 * of bytes taken, or a negative errno. *ret_left: how many of them must still be sent. */
static ssize_t splice_with_token(struct via_op *op, int in_fd, unsigned char *buffer, size_t bytes,
                                 size_t *ret_left)
{
    struct iovec piece = {.iov_base = buffer, .iov_len = bytes};
    struct via_iov cursor;
    if (via_side_is_in(op->side, VIA_PHASES_REPLAY) || via_conn_is_leaving(op)) {
        return -EAGAIN; /* new bytes must not overtake resent ones */
    }
    bool pipes = via_conn_has_pipes(op->conn);
    if (pipes && op->side->tx.span != VIA_SPAN_PIPE) {
        via_io_try_switch(op);
    }
    if (!pipes || op->side->tx.span != VIA_SPAN_PIPE) {
        return splice_by_kernel(op, in_fd, bytes);
    }
    if (!via_io_has_room(op)) {
        via_io_note_full(op);
        return -EAGAIN;
    }
    ssize_t got = take_now(in_fd, &piece);
    piece.iov_len = (size_t)via_max(got, (ssize_t)0);
    if (got > 0 && via_iov_init(&cursor, &piece, 1) == 0) {
        while (cursor.left != 0 && via_io_send_once(op, &cursor, 0) > 0) {
        }
        *ret_left = cursor.left;
    }
    return got;
}

static ssize_t splice_at_once(struct via_op *op, int in_fd, unsigned char *buffer, size_t bytes)
{
    size_t left = 0;
    if (via_tx_take(op) != 0) {
        return -EAGAIN; /* a signal handler made the call inside a call that sends */
    }
    ssize_t n = splice_with_token(op, in_fd, buffer, bytes, &left);
    via_tx_give(op);
    via_io_update_registrations(op);
    if (left != 0) {
        ssize_t sent = send_taken(op, buffer + (size_t)n - left, left);
        n = sent >= 0 || (size_t)n > left ? n - (ssize_t)left + via_max(sent, (ssize_t)0) : sent;
    }
    return n;
}

/* Splices from a pipe of the program into a connection. Sending must not fail after the bytes are
 * taken, so this first sends 0 bytes, which returns errors, and waits for room. */
static ssize_t splice_to(struct via_op *op, int in_fd, size_t bytes, unsigned flags)
{
    const struct iovec none = {.iov_len = 0};
    int there = 0;
    ssize_t rc = wait_for_pipe(op, in_fd, POLLIN, flags);
    if (rc < 0 || VIA_REAL(ioctl)(in_fd, FIONREAD, &there) != 0 || there == 0) {
        return via_min(rc, (ssize_t)0); /* 0: end of file */
    }
    rc = via_io_send_slowly(op, &none, 1, MSG_DONTWAIT);
    rc = rc == 0 || rc == -EAGAIN ? wait_for_room(op) : rc;
    if (rc != 0) {
        return rc;
    }
    unsigned char *buffer = via_pool_get(&via_scratch);
    if (buffer == NULL) {
        return -ENOMEM;
    }
    bytes = via_min(bytes, (size_t)SPLICE_BYTES);
    if (via_op_is_nonblocking(op)) {
        rc = splice_at_once(op, in_fd, buffer, bytes);
    } else {
        ssize_t got = VIA_REAL(read)(in_fd, buffer, bytes);
        rc = got > 0 ? send_taken(op, buffer, (size_t)got) : got == 0 ? 0 : -errno;
    }
    via_pool_put(&via_scratch, buffer);
    return rc;
}

/* False: the kernel's call returns the error before it takes any byte. */
static bool is_possible(int other_fd, bool out, unsigned flags)
{
    int way = out ? O_RDONLY : O_WRONLY;
    int mode = VIA_REAL(fcntl)(other_fd, F_GETFL);
    return mode >= 0 && ((mode & O_ACCMODE) == way || (mode & O_ACCMODE) == O_RDWR) &&
           VIA_REAL(fcntl)(other_fd, F_GETPIPE_SZ) >= 0 &&
           (flags & ~(SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT)) == 0;
}

/* True if the kernel's call can be used. An undecided connection stays with the kernel from now on:
 * a thread that sleeps in that call would not notice pipes. */
static bool is_left_to_kernel(struct via_op *op, bool out)
{
    if (via_conn_is_undecided(op->conn)) {
        via_conn_demote(op, VIA_REASON_OPTION);
    }
    return await_kernel(op) && !(out && via_side_is_in(op->side, VIA_PHASES_REPLAY));
}

VIA_HOOK ssize_t splice(int in_fd, off64_t *in_offset, int out_fd, off64_t *out_offset,
                        size_t bytes, unsigned flags)
{
    via_cancel_point();
    struct via_op op;
    bool out = via_op_begin(&op, out_fd);
    if (!out && !via_op_begin(&op, in_fd)) {
        return VIA_REAL(splice)(in_fd, in_offset, out_fd, out_offset, bytes, flags);
    }
    int saved = errno;
    if (in_offset != NULL || out_offset != NULL || bytes == 0 ||
        !is_possible(out ? in_fd : out_fd, out, flags) || is_left_to_kernel(&op, out)) {
        errno = saved;
        via_op_end(&op);
        return VIA_REAL(splice)(in_fd, in_offset, out_fd, out_offset, bytes, flags);
    }
    struct via_cancel before;
    via_cancel_off(&before);
    ssize_t rc = out ? splice_to(&op, in_fd, bytes, flags) : splice_from(&op, out_fd, bytes, flags);
    via_cancel_back(&before);
    return via_hooks_finish(&op, rc, saved);
}
