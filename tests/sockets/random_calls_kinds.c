/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Random calls of one kind each, in addition to those of random_calls_wide.c: calls of signal
 * handlers during other calls, of cancelled threads, of children of clone(), which no library can
 * notice, and splice().
 */
#include "random_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIPE_PAGES 16u
#define PAGE_BYTES 4096u
/* The maximum length of one splice(): how many bytes a longer one moves depends on the packets in
 * which they arrived. */
#define AT_ONCE_BYTES 4096u

static void count_deed(struct end *end, bool sends, long rc)
{
    if (rc > 0) {
        *(sends ? &end->sent : &end->got) += (uint64_t)rc;
    }
}

/* A call waits if it has nothing to read and no time limit. */
static bool has_nothing_to_read(const struct end *end)
{
    const struct end *peer = other(end);
    return (fcntl(end->fd, F_GETFL) & O_NONBLOCK) == 0 && unread(end) == 0 && !end->rd_shut &&
           !end->resets && !peer->resets && peer->fd >= 0 && !peer->wr_shut && !end->wr_shut &&
           !lowat_used;
}

static void limit_reads(const struct end *end, int usec)
{
    struct timeval limit = {.tv_usec = usec};
    setsockopt(end->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

/* --- calls that wait ------------------------------------------------------------------------- */

enum waiting {
    BY_READ,
    BY_READV,
    BY_RECVMSG,
    BY_RECVFROM,
    BY_RECVMMSG,
    BY_SPLICE,
    BY_POLL,
    BY_PPOLL,
    BY_SELECT,
    BY_EPOLL,
    WAITING_COUNT
};

static long wait_by_poll(const struct end *end)
{
    struct pollfd pfd = {.fd = end->fd, .events = POLLIN};
    return poll(&pfd, 1, -1);
}

static long wait_by_ppoll(const struct end *end)
{
    struct pollfd pfd = {.fd = end->fd, .events = POLLIN};
    return ppoll(&pfd, 1, NULL, NULL);
}

static long wait_by_select(const struct end *end)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(end->fd, &set);
    return select(end->fd + 1, &set, NULL, NULL, NULL);
}

static long wait_by_set(const struct end *end)
{
    struct epoll_event event;
    return epoll_wait(end->sets[LEVEL], &event, 1, -1);
}

/* The caller makes the pipe, because a cancelled thread would leave a pipe of its own open. */
static int into_pipe[2];

static long wait_by_splice(const struct end *end, size_t bytes)
{
    return splice(end->fd, NULL, into_pipe[1], NULL, bytes, 0);
}

static long wait_by(const struct end *end, enum waiting how, size_t bytes)
{
    struct iovec iov[2] = {{in, bytes}, {in + bytes, bytes}};
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = iov, .msg_iovlen = 2}}};
    switch (how) {
    case BY_READ:
        return read(end->fd, in, bytes);
    case BY_READV:
        return readv(end->fd, iov, 2);
    case BY_RECVMSG:
        return recvmsg(end->fd, &messages[0].msg_hdr, 0);
    case BY_RECVFROM:
        return recvfrom(end->fd, in, bytes, 0, NULL, NULL);
    case BY_RECVMMSG:
        return recvmmsg(end->fd, messages, 2, MSG_WAITFORONE, NULL) == 1 ? (long)messages[0].msg_len
                                                                         : -1;
    case BY_SPLICE:
        return wait_by_splice(end, bytes);
    case BY_POLL:
        return wait_by_poll(end);
    case BY_PPOLL:
        return wait_by_ppoll(end);
    case BY_SELECT:
        return wait_by_select(end);
    default:
        return wait_by_set(end);
    }
}

static bool takes_bytes(enum waiting how)
{
    return how < BY_POLL;
}

static void open_pipe(int fds[2])
{
    if (pipe2(fds, O_CLOEXEC) != 0) {
        die("pipe");
    }
}

static void close_pipe(const int fds[2])
{
    int saved = errno;
    close(fds[0]);
    close(fds[1]);
    errno = saved;
}

/* --- in handlers ----------------------------------------------------------------------------- */

enum in_handler {
    NOTHING,
    PEER_SENDS,
    PEER_POLLS,
    END_POLLS,
    END_SENDS,
    END_IS_COPIED,
    IN_HANDLER_COUNT
};

static struct end *volatile handlers_end;
static volatile sig_atomic_t handlers_call;
static volatile sig_atomic_t handlers_rc;

static void poll_end(const struct end *end)
{
    struct pollfd pfd = {.fd = end->fd, .events = POLLIN};
    char byte;
    poll(&pfd, 1, 0);
    recv(end->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    handlers_rc = pfd.revents;
}

static void send_one(struct end *end)
{
    unsigned char byte = (unsigned char)(end->sent * 131 + end->sent / 251);
    long rc = send(end->fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    count_deed(end, true, rc);
    handlers_rc = (sig_atomic_t)rc;
}

static void make_call(int number)
{
    struct end *end = handlers_end;
    int saved = errno;
    (void)number;
    handlers_end = NULL;
    if (end == NULL) {
        return;
    }
    if (handlers_call == PEER_SENDS) {
        send_one(other(end));
    } else if (handlers_call == PEER_POLLS) {
        poll_end(other(end));
    } else if (handlers_call == END_POLLS) {
        poll_end(end);
    } else if (handlers_call == END_SENDS) {
        send_one(end);
    } else if (handlers_call == END_IS_COPIED) {
        close(dup(end->fd));
    }
    errno = saved;
}

static void ring_every(int usec, int flags)
{
    struct sigaction action = {.sa_handler = make_call, .sa_flags = flags};
    struct itimerval timer = {.it_interval = {0, usec}, .it_value = {0, usec}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* A call waits, and the handler makes another call. A byte ends a call that restarts. */
static void call_in_handler(struct end *end)
{
    char what[128];
    enum waiting how = (enum waiting)dice(WAITING_COUNT);
    size_t bytes = 1 + dice(200);
    bool restarts = takes_bytes(how) && dice(2) == 0;
    int call = restarts ? PEER_SENDS : (int)dice(IN_HANDLER_COUNT);
    /* Without a restart the byte may come before the call or during it. */
    call = call == PEER_SENDS && !restarts ? NOTHING : call;
    if (!has_nothing_to_read(end)) {
        return;
    }
    handlers_call = call;
    handlers_rc = -2;
    open_pipe(into_pipe);
    limit_reads(end, 0);
    handlers_end = end;
    ring_every(2000, restarts ? SA_RESTART : 0);
    errno = 0;
    long rc = wait_by(end, how, bytes);
    int error = errno;
    ring_every(0, SA_RESTART);
    limit_reads(end, 3000);
    close_pipe(into_pipe);
    snprintf(what, sizeof(what), "%d in a handler during wait %d, restarts %d: %d", call, how,
             restarts, (int)handlers_rc);
    report_call(end, what, rc, error);
    if (takes_bytes(how)) {
        count_deed(end, false, rc);
    }
}

/* A signal is delivered as the call begins, and its handler makes another call first: the
 * interrupted call finds the state that the handler left. */
static void call_after_handler(struct end *end)
{
    char what[128];
    struct sigaction action = {.sa_handler = make_call, .sa_flags = SA_RESTART | SA_NODEFER};
    handlers_call = (int)dice(IN_HANDLER_COUNT);
    handlers_rc = -2;
    handlers_end = other(end)->fd >= 0 ? end : NULL;
    sigaction(SIGUSR2, &action, NULL);
    raise(SIGUSR2);
    handlers_end = NULL;
    if (!settle(end)) {
        return;
    }
    errno = 0;
    long rc = recv(end->fd, in, 1 + dice(100), MSG_DONTWAIT);
    snprintf(what, sizeof(what), "recv after %d in a handler: %d", (int)handlers_call,
             (int)handlers_rc);
    report_call(end, what, rc, errno);
    count_deed(end, false, rc);
}

/* --- cancelled ------------------------------------------------------------------------------- */

struct cancelled {
    struct end *end;
    enum waiting how;
    size_t bytes;
    bool sends;
    bool disabled; /* the thread can not be cancelled */
    bool before;   /* cancelled before the call begins */
    _Atomic int begun;
    _Atomic int go;
    long rc;
    int error;
};

static long cancelled_call(const struct cancelled *call)
{
    return call->sends ? send(call->end->fd, out, call->bytes, MSG_NOSIGNAL)
                       : wait_by(call->end, call->how, call->bytes);
}

static void *be_cancelled(void *argument)
{
    struct cancelled *call = argument;
    int unused;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &unused);
    call->begun = 1;
    while (call->before && !call->go) {
        sched_yield();
    }
    if (!call->disabled) {
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &unused);
    }
    errno = 0;
    call->rc = cancelled_call(call);
    call->error = errno;
    return NULL;
}

static void run_cancelled(struct cancelled *call)
{
    pthread_t thread;
    void *result = NULL;
    if (pthread_create(&thread, NULL, be_cancelled, call) != 0) {
        die("thread");
    }
    while (!call->begun) {
        sched_yield();
    }
    if (!call->before) {
        usleep(3000);
    }
    pthread_cancel(thread);
    call->go = 1;
    pthread_join(thread, &result);
    if (result == PTHREAD_CANCELED) {
        call->rc = -3;
    }
}

static void report_cancelled(struct cancelled *call)
{
    char what[128];
    snprintf(what, sizeof(what), "cancelled %s %s: %s(%d, %zu)", call->before ? "before" : "in",
             call->disabled ? "disabled" : "", call->sends ? "send" : "wait", (int)call->how,
             call->bytes);
    report_call(call->end, what, call->rc, call->rc == -1 ? call->error : 0);
    if (call->sends || takes_bytes(call->how)) {
        count_deed(call->end, call->sends, call->rc);
    }
}

/* Cancelled before the call: the call has no effect, whether or not it would wait. */
static void call_cancelled_before(struct end *end)
{
    struct cancelled call = {.end = end,
                             .how = (enum waiting)dice(WAITING_COUNT),
                             .bytes = 1 + dice(200),
                             .sends = dice(3) == 0,
                             .disabled = dice(3) == 0,
                             .before = true};
    bool nothing = has_nothing_to_read(end);
    fill_out(end, call.bytes);
    if ((call.sends && unread(other(end)) + call.bytes > UNDER_WAY_MAX) ||
        (call.disabled && !call.sends && (nothing || unread(end) == 0 || lowat_used))) {
        return;
    }
    open_pipe(into_pipe);
    run_cancelled(&call);
    close_pipe(into_pipe);
    report_cancelled(&call);
}

/* Cancelled in the call while it waits. */
static void call_cancelled_in(struct end *end)
{
    struct cancelled call = {
        .end = end, .how = (enum waiting)dice(WAITING_COUNT), .bytes = 1 + dice(200)};
    if (!has_nothing_to_read(end)) {
        return;
    }
    limit_reads(end, 0);
    open_pipe(into_pipe);
    run_cancelled(&call);
    close_pipe(into_pipe);
    limit_reads(end, 3000);
    report_cancelled(&call);
}

/* --- children of clone() --------------------------------------------------------------------- */

enum child_call {
    CHILD_SENDS,
    CHILD_RECEIVES,
    CHILD_CLOSES,
    CHILD_SHUTS,
    CHILD_POLLS,
    CHILD_CALLS
};
enum child_way { BY_CLONE, BY_CLONE_VFORK, BY_CLONE_VM, BY_SYSCALL, BY_FORK_ALONE, CHILD_WAYS };

struct child {
    struct end *end;
    enum child_call call;
    size_t bytes;
    int answer_fd;
};

static int be_child(void *argument)
{
    const struct child *child = argument;
    struct pollfd pfd = {.fd = child->end->fd, .events = POLLIN | POLLOUT};
    struct deed deed = {.rc = 0};
    switch (child->call) {
    case CHILD_SENDS:
    case CHILD_RECEIVES:
        deed = deed_of(child->end->fd, child->call == CHILD_SENDS, child->bytes);
        break;
    case CHILD_CLOSES:
        deed.rc = close(child->end->fd);
        break;
    case CHILD_SHUTS:
        deed.rc = shutdown(child->end->fd, SHUT_WR);
        deed.error = errno;
        break;
    default:
        deed.rc = poll(&pfd, 1, 0);
        deed.hash = (uint32_t)pfd.revents;
    }
    return write(child->answer_fd, &deed, sizeof(deed)) == sizeof(deed) ? 0 : 1;
}

static pid_t child_by(enum child_way way, struct child *child)
{
    static _Alignas(64) unsigned char stack[256 * 1024];
    unsigned char *top = stack + sizeof(stack);
    pid_t pid;
    switch (way) {
    case BY_CLONE:
        return clone(be_child, top, SIGCHLD, child);
    case BY_CLONE_VFORK:
        return clone(be_child, top, CLONE_VFORK | SIGCHLD, child);
    case BY_CLONE_VM:
        return clone(be_child, top, CLONE_VM | CLONE_VFORK | SIGCHLD, child);
    case BY_SYSCALL:
        pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        break;
    default:
        pid = _Fork();
    }
    if (pid == 0) {
        _exit(be_child(child));
    }
    return pid;
}

static void call_in_clone(struct end *end)
{
    char what[128];
    struct deed deed;
    int fds[2];
    enum child_way way = (enum child_way)dice(CHILD_WAYS);
    struct child child = {.end = end, .call = (enum child_call)dice(CHILD_CALLS)};
    child.bytes = 1 + some_bytes();
    /* An end that is shut down no longer waits for its own time-outs. */
    if ((child.call == CHILD_SENDS && unread(other(end)) + child.bytes > UNDER_WAY_MAX) ||
        (child.call == CHILD_SHUTS && dice(8) != 0)) {
        return;
    }
    fill_out(end, child.bytes);
    open_pipe(fds);
    child.answer_fd = fds[1];
    fflush(stdout);
    pid_t pid = child_by(way, &child);
    if (pid < 0) {
        die("clone");
    }
    close(fds[1]);
    if (read(fds[0], &deed, sizeof(deed)) != sizeof(deed)) {
        deed = (struct deed){.rc = -1, .error = ECHILD};
    }
    close(fds[0]);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    snprintf(what, sizeof(what), "child by clone %d, call %d (%zu) %08x", (int)way, (int)child.call,
             child.bytes, deed.hash);
    report_call(end, what, deed.rc, deed.error);
    if (child.call == CHILD_SENDS || child.call == CHILD_RECEIVES) {
        count_deed(end, child.call == CHILD_SENDS, deed.rc);
    }
    end->wr_shut |= child.call == CHILD_SHUTS;
}

/* --- splice() and similar calls -------------------------------------------------------------- */

static int some_splice_flags(void)
{
    static const int flags[] = {0, SPLICE_F_NONBLOCK, SPLICE_F_MOVE,
                                SPLICE_F_NONBLOCK | SPLICE_F_MOVE, 0x100};
    return flags[dice(5)];
}

static int bytes_in(int fd)
{
    int bytes = -1;
    return ioctl(fd, FIONREAD, &bytes) == 0 ? bytes : -1;
}

/* Bytes that remain in the pipe count as moved. */
static void call_splice_out(struct end *end)
{
    char what[128];
    int fds[2];
    size_t in_pipe = some_bytes(), asked = 1 + some_bytes();
    int flags = some_splice_flags();
    off_t at = 0;
    off_t *at_ptr = dice(8) == 0 ? &at : NULL;
    if (unread(other(end)) + in_pipe > UNDER_WAY_MAX) {
        return;
    }
    open_pipe(fds);
    fill_out(end, in_pipe);
    if (in_pipe > 0 && write(fds[1], out, in_pipe) != (ssize_t)in_pipe) {
        die("write to the pipe");
    }
    if (in_pipe == 0 && dice(2) == 0) {
        close(fds[1]);
        fds[1] = -1;
    } else if (in_pipe == 0) {
        flags |= SPLICE_F_NONBLOCK;
    }
    errno = 0;
    long rc = splice(fds[0], NULL, end->fd, at_ptr, asked, (unsigned)flags);
    int error = errno;
    snprintf(what, sizeof(what), "splice of %zu of %zu, %#x %d: left %d", asked, in_pipe,
             (unsigned)flags, at_ptr != NULL, bytes_in(fds[0]));
    report_call(end, what, rc, error);
    close_pipe(fds);
    count_deed(end, true, rc);
}

/* The pipe has room for some pages, or for none. */
static void call_splice_in(struct end *end)
{
    static unsigned char pages[PIPE_PAGES * PAGE_BYTES];
    char what[160];
    int fds[2];
    bool is_full = dice(3) == 0;
    size_t asked = dice(8) == 0 ? 0 : 1 + some_bytes() % AT_ONCE_BYTES;
    int flags = some_splice_flags() | (is_full ? SPLICE_F_NONBLOCK : 0);
    open_pipe(fds);
    bool nonblocking = dice(3) == 0;
    if (is_full && write(fds[1], pages, sizeof(pages)) != (ssize_t)sizeof(pages)) {
        die("write to the pipe");
    }
    if (nonblocking) {
        fcntl(fds[1], F_SETFL, O_NONBLOCK);
    }
    errno = 0;
    long rc = splice(end->fd, NULL, fds[1], NULL, asked, (unsigned)flags);
    int error = errno;
    long got = is_full ? 0 : bytes_in(fds[0]);
    uint32_t hash = 0;
    if (got > 0 && got <= (long)BUFFER_BYTES && read(fds[0], in, (size_t)got) == got) {
        hash = hash_of(in, (size_t)got);
    }
    snprintf(what, sizeof(what), "splice into a pipe (%zu, %#x) full %d %d: %08x", asked,
             (unsigned)flags, is_full, nonblocking, hash);
    report_call(end, what, rc, error);
    close_pipe(fds);
    count_deed(end, false, rc);
}

/* More than the kernel's default. */
#define PLACES 256u

/* Copies from one end to the other through a pipe, as a proxy does. */
static void call_splice_through(struct end *end)
{
    char what[128];
    int fds[2];
    const struct end *peer = other(end);
    if (peer->fd < 0 || unread(peer) + AT_ONCE_BYTES > UNDER_WAY_MAX) {
        return;
    }
    size_t bytes = 1 + dice(AT_ONCE_BYTES);
    open_pipe(fds);
    /* The kernel's splice() uses a slot of the pipe for each sent piece, and returns fewer bytes
     * than are available when all slots are used. */
    fcntl(fds[1], F_SETPIPE_SZ, PLACES * PAGE_BYTES);
    errno = 0;
    long got = splice(end->fd, NULL, fds[1], NULL, bytes, SPLICE_F_NONBLOCK);
    int error = errno;
    count_deed(end, false, got);
    if (got > 0) {
        /* These bytes are not the next ones of this end's stream: the peer checks them by a hash.
         */
        long rc = splice(fds[0], NULL, end->fd, NULL, (size_t)got, 0);
        int left = bytes_in(fds[0]);
        count_deed(end, true, rc);
        snprintf(what, sizeof(what), "spliced through %ld, left %d", got, left);
        report_call(end, what, rc, errno);
    } else {
        report_call(end, "spliced through", got, error);
    }
    close_pipe(fds);
}

static void call_sendfile(struct end *end)
{
    char what[128];
    size_t in_file = some_bytes(), asked = some_bytes();
    off_t at = (off_t)dice(3) * (off_t)(in_file / 2);
    bool own_offset = dice(2) == 0;
    if (unread(other(end)) + asked > UNDER_WAY_MAX) {
        return;
    }
    int fd = memfd_create("part", MFD_CLOEXEC); /* the file's pages may still be under way */
    fill_out(end, in_file);
    if (fd < 0 || write(fd, out, in_file) != (ssize_t)in_file || lseek(fd, at, SEEK_SET) != at) {
        die("file");
    }
    off_t from = at;
    errno = 0;
    long rc = sendfile(end->fd, fd, own_offset ? &from : NULL, asked);
    int error = errno;
    snprintf(what, sizeof(what), "sendfile(%zu of %zu at %ld, %d): at %ld, %ld", asked, in_file,
             (long)at, own_offset, (long)from, (long)lseek(fd, 0, SEEK_CUR));
    report_call(end, what, rc, error);
    close(fd);
    count_deed(end, true, rc);
}

static void call_no_splice(struct end *end)
{
    char what[64];
    unsigned how = dice(4);
    struct iovec iov = {out, 16};
    errno = 0;
    long rc = how == 0   ? splice(end->fd, NULL, end->fd, NULL, 10, 0)
              : how == 1 ? tee(end->fd, end->fd, 10, 0)
              : how == 2 ? vmsplice(end->fd, &iov, 1, 0)
                         : copy_file_range(end->fd, NULL, file_fd, NULL, 10, 0);
    snprintf(what, sizeof(what), "no splice %u", how);
    report_call(end, what, rc, errno);
}

void kinds_call(enum kind kind, struct end *end)
{
    static void (*const splices[])(struct end *) = {
        call_splice_out, call_splice_out,     call_splice_in, call_splice_in,
        call_sendfile,   call_splice_through, call_no_splice};
    if (kind == KIND_SIGNALS) {
        (dice(2) == 0 ? call_in_handler : call_after_handler)(end);
    } else if (kind == KIND_CANCELLATION) {
        (dice(2) == 0 ? call_cancelled_before : call_cancelled_in)(end);
    } else if (kind == KIND_CLONE) {
        call_in_clone(end);
    } else {
        splices[dice(sizeof(splices) / sizeof(splices[0]))](end);
    }
}
