/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Further random calls: other numbers of the same connection, changes of registrations, limits and
 * SO_LINGER, control data, calls that fail, threads, programs started in other ways.
 */
#include "random_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4u
#endif

/* The range in which an end may get another number, without the other end's. */
#define NUMBERS_FROM 40
#define NUMBERS_EACH 8
/* ... and in programs that it is given to. */
#define GIVEN_FD 90

/* --- sets with both ends --------------------------------------------------------------------- */

enum { BOTH_LEVEL, BOTH_EDGE, BOTH_SETS };

static int both_sets[BOTH_SETS];

void more_begin(void)
{
    static const uint32_t events[BOTH_SETS] = {EPOLLIN | EPOLLRDHUP,
                                               EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    for (int i = 0; i < BOTH_SETS; i++) {
        both_sets[i] = epoll_create1(EPOLL_CLOEXEC);
        for (uint32_t k = 0; k < 2; k++) {
            struct epoll_event event = {.events = events[i], .data = {.u32 = k}};
            if (epoll_ctl(both_sets[i], EPOLL_CTL_ADD, ends[k].fd, &event) != 0) {
                die("epoll_ctl");
            }
        }
    }
}

void more_end(void)
{
    for (int i = 0; i < BOTH_SETS; i++) {
        close(both_sets[i]);
    }
}

static void call_both(struct end *end)
{
    char what[96];
    struct epoll_event events[4];
    uint32_t reported[2] = {0, 0};
    int which = lowat_used ? BOTH_LEVEL : (int)dice(BOTH_SETS);
    if (other(end)->fd >= 0 && !settle(other(end))) {
        return;
    }
    errno = 0;
    int rc = dice(2) == 0 ? epoll_wait(both_sets[which], events, 4, 0)
                          : epoll_pwait2(both_sets[which], events, 4, &(struct timespec){0}, NULL);
    for (int i = 0; i < rc; i++) {
        reported[events[i].data.u32 & 1] |= events[i].events;
    }
    snprintf(what, sizeof(what), "epoll_wait(both %d) %#x %#x", which, reported[0], reported[1]);
    report_call(end, what, rc, errno);
}

/* A registration is changed, removed, or added again. */
static void call_registration(struct end *end)
{
    static const int which_ones[] = {LEVEL, EDGE, ONCE, EDGE_ONCE};
    static const uint32_t how[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};
    static const uint32_t wanted[] = {EPOLLIN,  EPOLLIN | EPOLLOUT,   EPOLLOUT,
                                      EPOLLPRI, EPOLLIN | EPOLLRDHUP, EPOLLRDHUP};
    char what[96];
    unsigned which = dice(4);
    struct epoll_event event = {.events = wanted[dice(6)] | how[which]};
    int set = end->sets[which_ones[which]];
    int op = dice(3) != 0 ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
    errno = 0;
    int rc = epoll_ctl(set, op, end->fd, &event);
    int error = errno;
    if (op == EPOLL_CTL_DEL && (rc == 0 || dice(2) == 0)) {
        rc = epoll_ctl(set, EPOLL_CTL_ADD, end->fd, &event);
        error = errno;
    }
    snprintf(what, sizeof(what), "registration %u by %d %#x", which, op, event.events);
    report_call(end, what, rc, error);
}

/* --- numbers --------------------------------------------------------------------------------- */

static int copied(const struct end *end, unsigned how, int from)
{
    switch (how) {
    case 0:
        return dup(end->fd);
    case 1:
        return fcntl(end->fd, F_DUPFD, from);
    case 2:
        return fcntl(end->fd, F_DUPFD_CLOEXEC, from);
    case 3:
        return dup2(end->fd, from);
    default:
        return dup3(end->fd, from, O_CLOEXEC);
    }
}

/* The registrations remain under the number that the end had. */
static void call_renumbered(struct end *end)
{
    char what[96];
    unsigned how = dice(5);
    int from = NUMBERS_FROM + NUMBERS_EACH * (int)(end - ends) + (int)dice(NUMBERS_EACH / 2);
    if (from == end->fd) {
        return;
    }
    errno = 0;
    int copy = copied(end, how, from);
    int error = errno;
    int flags = fcntl(copy, F_GETFD);
    bool stays = dice(2) == 0;
    if (copy >= 0) {
        close(stays ? copy : end->fd);
        end->fd = stays ? end->fd : copy;
        end->renumbered |= !stays;
    }
    snprintf(what, sizeof(what), "copied by %u %#x, %s", how, (unsigned)flags,
             stays ? "for a while" : "permanently");
    report_call(end, what, copy >= 0 ? 0 : -1, error);
}

/* A range of numbers that contains the end's number, or only that of a copy. */
static void call_range(struct end *end)
{
    char what[96];
    bool marks = dice(2) == 0;
    unsigned first = marks ? (unsigned)end->fd : (unsigned)dup(end->fd);
    errno = 0;
    int rc = close_range(first, first, marks ? CLOSE_RANGE_CLOEXEC : 0);
    int error = errno;
    snprintf(what, sizeof(what), "close_range %d %#x", marks, (unsigned)fcntl(end->fd, F_GETFD));
    report_call(end, what, rc, error);
}

/* --- options --------------------------------------------------------------------------------- */

static void call_limit(struct end *end)
{
    static const struct timeval limits[] = {{0, 1000}, {0, 3000}, {0, 5000}, {-1, 0}, {0, 1000000}};
    char what[96];
    struct timeval value = limits[dice(5)], after = {-2, -2};
    socklen_t bytes = sizeof(after);
    int name = dice(2) == 0 ? SO_RCVTIMEO : SO_SNDTIMEO;
    errno = 0;
    int rc = setsockopt(end->fd, SOL_SOCKET, name, &value, sizeof(value));
    int error = errno;
    getsockopt(end->fd, SOL_SOCKET, name, &after, &bytes);
    snprintf(what, sizeof(what), "limit %d %ld %ld, is %ld %ld %u", name == SO_RCVTIMEO,
             (long)value.tv_sec, (long)value.tv_usec, (long)after.tv_sec, (long)after.tv_usec,
             bytes);
    report_call(end, what, rc, error);
}

static void call_linger(struct end *end)
{
    static const struct linger lingers[] = {{1, 0}, {1, 1}, {0, 0}, {0, 5}};
    char what[96];
    struct linger value = lingers[dice(4)], after = {-1, -1};
    socklen_t bytes = sizeof(after);
    errno = 0;
    int rc = setsockopt(end->fd, SOL_SOCKET, SO_LINGER, &value, sizeof(value));
    int error = errno;
    end->aborts = value.l_onoff != 0 && value.l_linger == 0;
    getsockopt(end->fd, SOL_SOCKET, SO_LINGER, &after, &bytes);
    snprintf(what, sizeof(what), "linger %d %d, is %d %d", value.l_onoff, value.l_linger,
             after.l_onoff, after.l_linger);
    report_call(end, what, rc, error);
}

/* All sent bytes are acknowledged, unless the other end delays that. */
static void call_unsent(struct end *end)
{
    char what[96];
    const struct end *peer = other(end);
    int unsent = 0, now = 1, rc;
    unsigned looks = 0;
    if (end->resets) {
        return; /* bytes that are not acknowledged by then will never be */
    }
    do {
        if (peer->fd >= 0) {
            syscall(SYS_setsockopt, peer->fd, IPPROTO_TCP, TCP_QUICKACK, &now, sizeof(now));
        }
        errno = 0;
        rc = ioctl(end->fd, SIOCOUTQ, &unsent);
    } while (rc == 0 && unsent != 0 && looks++ < 500 && usleep(100) == 0);
    snprintf(what, sizeof(what), "SIOCOUTQ %d", unsent);
    report_call(end, what, rc, errno);
}

/* The kernel sends signals about arriving bytes. */
static void call_async(struct end *end)
{
    if (!is_returnable(end)) {
        return;
    }
    signal(SIGIO, SIG_IGN);
    int flags = fcntl(end->fd, F_GETFL);
    errno = 0;
    int rc = fcntl(end->fd, F_SETFL, flags | O_ASYNC);
    rc |= fcntl(end->fd, F_SETFL, flags);
    report_call(end, "back to the kernel, by O_ASYNC", rc, errno);
}

/* --- control data ---------------------------------------------------------------------------- */

/* TCP ignores these, or rejects them. */
static void call_send_control(struct end *end)
{
    static const int kinds[][2] = {
        {SOL_SOCKET, SCM_RIGHTS}, {SOL_SOCKET, 0x7f}, {IPPROTO_IP, IP_TTL}};
    char what[96];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    size_t bytes = some_bytes();
    struct iovec iov = {out, bytes};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    unsigned kind = dice(3);
    if (unread(other(end)) + bytes > UNDER_WAY_MAX) {
        return;
    }
    control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
                                      .cmsg_level = kinds[kind][0],
                                      .cmsg_type = kinds[kind][1]};
    memcpy(CMSG_DATA(&control.header), &file_fd, sizeof(file_fd));
    fill_out(end, bytes);
    errno = 0;
    long rc = sendmsg(end->fd, &message, MSG_NOSIGNAL);
    snprintf(what, sizeof(what), "sendmsg(%zu) with %u", bytes, kind);
    report_call(end, what, rc, errno);
    end->sent += rc > 0 ? (uint64_t)rc : 0;
}

/* --- calls that fail on a connection --------------------------------------------------------- */

static long wrong_name(const struct end *end, unsigned how)
{
    struct sockaddr_storage addr = {.ss_family = AF_UNSPEC};
    socklen_t bytes = sizeof(addr);
    int rc;
    getsockname(end->fd, (struct sockaddr *)&addr, &bytes);
    switch (how) {
    case 0:
        return connect(end->fd, (struct sockaddr *)&addr, bytes);
    case 1:
        rc = bind(end->fd, (struct sockaddr *)&addr, bytes);
        if (rc != 0 && errno == EADDRINUSE) {
            /* The port of an ended connection is free, and another process may have taken it. */
            ((struct sockaddr_in *)&addr)->sin_port = 0;
            rc = bind(end->fd, (struct sockaddr *)&addr, bytes);
        }
        return rc;
    case 2:
        return listen(end->fd, 8);
    case 3:
        return accept(end->fd, NULL, NULL);
    default:
        return sendto(end->fd, out, 0, MSG_NOSIGNAL, (struct sockaddr *)&addr, bytes);
    }
}

/* The kernel's TCP can map received bytes (TCP_ZEROCOPY_RECEIVE), and the mapping keeps the socket
 * open. */
static int mapped(int fd)
{
    void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? -1 : munmap(at, 4096);
}

static long wrong_kind(const struct end *end, unsigned how)
{
    off_t at = 0;
    switch (how) {
    case 5:
        return recv(end->fd, in, 1, MSG_OOB);
    case 6:
        return recv(end->fd, in, 1, MSG_ERRQUEUE | MSG_DONTWAIT);
    case 7:
        return sendfile(file_fd, end->fd, NULL, 1);
    case 8:
        return splice(end->fd, NULL, file_fd, NULL, 1, 0);
    case 9:
        return fsync(end->fd);
    case 10:
        return ftruncate(end->fd, 0);
    case 11:
        return mapped(end->fd);
    case 12:
        return pwrite(end->fd, out, 1, at);
    case 13:
        return recvmmsg(end->fd, NULL, 0, MSG_DONTWAIT, NULL);
    default:
        return epoll_ctl(end->fd, EPOLL_CTL_ADD, file_fd, &(struct epoll_event){0});
    }
}

static void call_what_fails(struct end *end)
{
    char what[64];
    unsigned how = dice(15);
    errno = 0;
    long rc = how < 5 ? wrong_name(end, how) : wrong_kind(end, how);
    int error = errno;
    snprintf(what, sizeof(what), "what fails %u", how);
    report_call(end, what, rc, error);
}

/* --- others ---------------------------------------------------------------------------------- */

/* One call by a thread, or another process. */
struct order {
    int fd;
    bool sends;
    size_t bytes;
    struct deed deed;
};

static void report_deed(struct end *end, const char *who, const struct order *order)
{
    char what[96];
    snprintf(what, sizeof(what), "%s %s(%zu) %08x", who, order->sends ? "send" : "recv",
             order->bytes, order->deed.hash);
    report_call(end, what, order->deed.rc, order->deed.error);
    if (order->deed.rc > 0) {
        *(order->sends ? &end->sent : &end->got) += (uint64_t)order->deed.rc;
    }
}

static bool give_order(struct end *end, struct order *ret_order)
{
    *ret_order = (struct order){.fd = end->fd, .sends = dice(2) == 0, .bytes = 1 + some_bytes()};
    fill_out(end, ret_order->bytes);
    return !ret_order->sends || unread(other(end)) + ret_order->bytes <= UNDER_WAY_MAX;
}

static void *do_order(void *argument)
{
    struct order *order = argument;
    order->deed = deed_of(order->fd, order->sends, order->bytes);
    return NULL;
}

static void call_in_thread(struct end *end)
{
    struct order order;
    pthread_t thread;
    if (!give_order(end, &order)) {
        return;
    }
    if (pthread_create(&thread, NULL, do_order, &order) != 0) {
        die("thread");
    }
    pthread_join(thread, NULL);
    report_deed(end, "a thread's", &order);
}

/* vfork(): the child shares this process's memory, but has its own descriptors. */
static pid_t started_by_vfork(const struct end *end, char **argv, bool closes)
{
    int fd = end->fd;
    pid_t pid = vfork();
    if (pid == 0) {
        if (dup2(fd, GIVEN_FD) == GIVEN_FD) {
            if (closes) {
                close(fd);
            }
            execv("/proc/self/exe", argv);
        }
        _exit(9);
    }
    return pid;
}

static pid_t started_by_spawn(const struct end *end, char **argv, bool closes)
{
    posix_spawn_file_actions_t actions;
    pid_t pid = -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, end->fd, GIVEN_FD);
    if (closes) {
        posix_spawn_file_actions_addclose(&actions, end->fd);
    }
    errno = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static void call_in_started(struct end *end)
{
    struct order order;
    struct held_words words;
    int fds[2];
    bool spawns = dice(2) == 0, closes = dice(2) == 0;
    if (!give_order(end, &order) || !is_returnable(end)) {
        return;
    }
    if (pipe(fds) != 0) {
        die("pipe");
    }
    fflush(stdout);
    wide_held_words(&words, GIVEN_FD, fds[1], order.sends, order.bytes, end->sent);
    pid_t pid = spawns ? started_by_spawn(end, words.argv, closes)
                       : started_by_vfork(end, words.argv, closes);
    close(fds[1]);
    if (read(fds[0], &order.deed, sizeof(order.deed)) != sizeof(order.deed)) {
        order.deed = (struct deed){.rc = -1, .error = ECHILD};
    }
    close(fds[0]);
    waitpid(pid, NULL, 0);
    report_deed(end, spawns ? "another program's, spawned," : "another program's, by vfork,",
                &order);
}

/* Calls of a child of vfork() on its descriptors do not affect this process. */
static void call_vfork(struct end *end)
{
    int fd = end->fd;
    int status = -1;
    unsigned how = dice(3);
    fflush(stdout);
    pid_t pid = vfork();
    if (pid == 0) {
        long rc = how == 0   ? close(fd)
                  : how == 1 ? dup2(STDIN_FILENO, fd) - fd
                             : close_range(3, ~0u, 0);
        _exit(rc == 0 ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    report_call(end, "closed in a child of vfork()", status, errno);
}

/* stdio, whose system calls no preloaded library can intercept. */
static void call_stdio(struct end *end)
{
    char what[96];
    if (!is_returnable(end) || unread(other(end)) + 16 > UNDER_WAY_MAX) {
        return;
    }
    FILE *file = fdopen(dup(end->fd), "r+");
    if (file == NULL) {
        die("fdopen");
    }
    setvbuf(file, NULL, _IONBF, 0);
    size_t bytes = 1 + dice(16);
    fill_out(end, bytes);
    errno = 0;
    long rc = (long)fwrite(out, 1, bytes, file);
    int error = errno;
    fclose(file);
    end->sent += rc > 0 ? (uint64_t)rc : 0;
    snprintf(what, sizeof(what), "back to the kernel, by stdio: %zu, %s", bytes,
             rc == (long)bytes ? "" : strerrorname_np(error));
    report_call(end, what, rc, 0);
}

static void call_fortified(struct end *end)
{
    char what[96];
    long rc;
    errno = 0;
    if (dice(4) == 0) {
        unsigned seen = 0;
        rc = fortified_poll(end->fd, dice(2), &seen);
        snprintf(what, sizeof(what), "fortified poll %#x", seen);
        report_call(end, what, rc, errno);
        return;
    }
    unsigned how = dice(3);
    size_t bytes = some_bytes() % FORTIFIED_MAX;
    uint32_t hash = 0;
    rc = fortified_read(end->fd, how, bytes, &hash);
    int error = errno;
    snprintf(what, sizeof(what), "fortified recv %u (%zu) %08x", how, bytes, hash);
    report_call(end, what, rc, error);
    end->got += rc > 0 ? (uint64_t)rc : 0;
}

/* connect() with AF_UNSPEC ends the connection, and the socket can be used like a new one. */
static void call_dissolve(struct end *end)
{
    char what[128];
    struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    struct sockaddr_storage addr;
    struct pollfd pfd = {.fd = end->fd, .events = POLLIN | POLLOUT};
    socklen_t bytes = sizeof(addr);
    other(end)->resets = true;
    errno = 0;
    int rc = connect(end->fd, &nowhere, sizeof(nowhere));
    int error = errno;
    int ready = poll(&pfd, 1, 0);
    long sent = send(end->fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    int send_error = errno;
    long got = recv(end->fd, in, 1, MSG_DONTWAIT);
    int recv_error = errno;
    int named = getpeername(end->fd, (struct sockaddr *)&addr, &bytes);
    snprintf(what, sizeof(what), "dissolved: %d %#x, %ld %s, %ld %s, %d", ready,
             (unsigned)pfd.revents, sent, sent < 0 ? strerrorname_np(send_error) : "", got,
             got < 0 ? strerrorname_np(recv_error) : "", named);
    report_call(end, what, rc, error);
    close(end->fd);
    end->fd = -1;
}

void more_call(struct end *end, bool may_end)
{
    static void (*const calls[])(struct end *) = {
        call_both,         call_both,         call_both,       call_both,       call_registration,
        call_registration, call_registration, call_renumbered, call_renumbered, call_range,
        call_limit,        call_linger,       call_unsent,     call_linger,     call_unsent,
        call_send_control, call_what_fails,   call_what_fails, call_in_thread,  call_vfork,
        call_fortified,    call_fortified};
    static void (*const ways_back[])(struct end *) = {call_async, call_in_started, call_stdio};
    if (may_end && dice(40) == 0) {
        call_dissolve(end);
    } else if (dice(20) == 0) {
        ways_back[dice(3)](end);
    } else {
        calls[dice(sizeof(calls) / sizeof(calls[0]))](end);
    }
}
