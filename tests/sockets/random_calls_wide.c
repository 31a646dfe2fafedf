/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * More random calls: signals, time limits, other holders, other address families, options that only
 * the kernel supports, sets in sets.
 */
#include "random_calls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pass_fd.h"

#ifndef POLLRDHUP
#define POLLRDHUP 0x2000
#endif

bool is_returnable(const struct end *end)
{
    const struct end *peer = other(end);
    return unread(end) == 0 ||
           !(peer->fd < 0 || peer->wr_shut || end->resets || (end->rd_shut && end->wr_shut));
}

/* --- connecting ------------------------------------------------------------------------------ */

struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    };
    socklen_t bytes;
};

/* IPv4, IPv6, or IPv4 in IPv6. */
static struct address loopback(int family, bool mapped)
{
    struct address addr = {.bytes = sizeof(addr.v6)};
    memset(&addr.v6, 0, sizeof(addr.v6));
    if (family == AF_INET) {
        addr.v4.sin_family = AF_INET;
        addr.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        addr.bytes = sizeof(addr.v4);
        return addr;
    }
    addr.v6.sin6_family = AF_INET6;
    inet_pton(AF_INET6, mapped ? "::ffff:127.0.0.1" : "::1", &addr.v6.sin6_addr);
    return addr;
}

static int listen_at(struct address *addr, bool shared)
{
    int on = 1;
    int fd = socket(addr->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (shared) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    }
    if (fd < 0 || bind(fd, &addr->any, addr->bytes) != 0 || listen(fd, 8) != 0 ||
        getsockname(fd, &addr->any, &addr->bytes) != 0) {
        die("listen");
    }
    return fd;
}

static int connect_to(const struct address *addr, bool in_progress)
{
    int error = 0;
    socklen_t bytes = sizeof(error);
    int fd = socket(addr->any.sa_family, SOCK_STREAM | (in_progress ? SOCK_NONBLOCK : 0), 0);
    struct pollfd pfd = {.fd = fd, .events = POLLOUT};
    if (fd < 0 || (connect(fd, &addr->any, addr->bytes) != 0 && errno != EINPROGRESS) ||
        poll(&pfd, 1, 10000) != 1 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 ||
        error != 0) {
        die("connect");
    }
    fcntl(fd, F_SETFL, 0);
    return fd;
}

/* Accepts from whichever of the two listeners has the connection. */
static int accept_from(const int *listeners, unsigned count, int flags)
{
    struct pollfd pfds[2] = {{.fd = listeners[0], .events = POLLIN},
                             {.fd = listeners[count - 1], .events = POLLIN}};
    struct address addr = {.bytes = sizeof(addr.v6)};
    if (poll(pfds, count, 10000) < 1) {
        die("accept");
    }
    int fd = accept4(pfds[0].revents != 0 ? pfds[0].fd : pfds[1].fd, &addr.any, &addr.bytes, flags);
    printf("accepted %d %u %#x %#x\n", addr.any.sa_family, addr.bytes, (unsigned)fcntl(fd, F_GETFL),
           (unsigned)fcntl(fd, F_GETFD));
    fcntl(fd, F_SETFL, 0);
    return fd;
}

void wide_connect(void)
{
    static const int accept_flags[] = {0, SOCK_NONBLOCK, SOCK_CLOEXEC,
                                       SOCK_NONBLOCK | SOCK_CLOEXEC};
    int family = dice(2) == 0 ? AF_INET : AF_INET6;
    bool mapped = family == AF_INET6 && dice(2) == 0;
    bool shared = dice(3) == 0;
    struct address addr = loopback(family, mapped);
    struct timeval little = {.tv_usec = 3000};
    int on = 1;
    int listeners[2] = {listen_at(&addr, shared), -1};
    if (shared) {
        listeners[1] = listen_at(&addr, true);
    }
    struct address to = addr;
    if (mapped && dice(2) == 0) {
        to = loopback(AF_INET, false);
        to.v4.sin_port = addr.v6.sin6_port;
    }
    ends[0].fd = connect_to(&to, dice(2) == 0);
    ends[1].fd = accept_from(listeners, shared ? 2 : 1, accept_flags[dice(4)]);
    close(listeners[0]);
    if (shared) {
        close(listeners[1]);
    }
    for (int i = 0; i < 2; i++) {
        setsockopt(ends[i].fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        setsockopt(ends[i].fd, SOL_SOCKET, SO_RCVTIMEO, &little, sizeof(little));
        setsockopt(ends[i].fd, SOL_SOCKET, SO_SNDTIMEO, &little, sizeof(little));
    }
}

static int set_of(int fd, uint32_t events)
{
    struct epoll_event event = {.events = events};
    int epfd = epoll_create1(EPOLL_CLOEXEC);
    if (epfd < 0 || epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event) != 0) {
        die("epoll_ctl");
    }
    return epfd;
}

void wide_put_in_sets(struct end *end)
{
    end->sets[ALONE] = set_of(end->fd, EPOLLIN | EPOLLEXCLUSIVE);
    end->sets[EDGE_ONCE] = set_of(end->fd, EPOLLIN | EPOLLET | EPOLLONESHOT);
    int inside = dice(2) == 0 ? end->sets[LEVEL] : end->fd;
    end->sets[OVER_LEVEL] = set_of(inside, EPOLLIN);
    end->sets[OVER_EDGE] = set_of(inside, EPOLLIN | EPOLLET);
}

/* --- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t ticks;
static struct end *volatile rescuer; /* sends a byte, once */

static void on_alarm(int signal_number)
{
    (void)signal_number;
    struct end *end = rescuer;
    ticks = 1;
    if (end != NULL) {
        int saved = errno;
        rescuer = NULL;
        unsigned char byte = (unsigned char)(end->sent * 131 + end->sent / 251);
        end->sent += send(end->fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? 1 : 0;
        errno = saved;
    }
}

static void alarms(int flags, int every_us)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
    struct itimerval timer = {.it_interval = {0, every_us}, .it_value = {0, every_us}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void receive_limit(const struct end *end, int usec)
{
    struct timeval limit = {.tv_usec = usec};
    setsockopt(end->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

/* A signal interrupts a waiting call; or the call is restarted, and the handler's action ends it.
 */
static void call_interrupted(struct end *end)
{
    char what[96];
    struct end *peer = other(end);
    bool restarts = dice(2) == 0;
    int flags = dice(3) == 0 ? MSG_WAITALL : 0;
    size_t bytes = restarts ? 1 : 1 + dice(200);
    bool blocks = (fcntl(end->fd, F_GETFL) & O_NONBLOCK) == 0 && unread(end) == 0 &&
                  !end->rd_shut && !end->resets && peer->fd >= 0 && !peer->wr_shut &&
                  !peer->resets && !lowat_used;
    if (restarts && !blocks) {
        return;
    }
    rescuer = restarts ? peer : NULL;
    receive_limit(end, 0);
    alarms(restarts ? SA_RESTART : 0, 1000);
    errno = 0;
    long rc = recv(end->fd, in, bytes, flags);
    int error = errno;
    alarms(SA_RESTART, 0);
    receive_limit(end, 3000);
    snprintf(what, sizeof(what), "recv(%zu, %#x), signals %d %08x", bytes, (unsigned)flags,
             restarts, hash_of(in, rc > 0 ? (size_t)rc : 0));
    report_call(end, what, rc, error);
    end->got += rc > 0 ? (uint64_t)rc : 0;
}

static int wait_in_select(int fd, bool *ret_in)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    int rc = select(fd + 1, &set, NULL, NULL, NULL);
    *ret_in = rc > 0 && FD_ISSET(fd, &set);
    return rc;
}

/* Calls that wait for several descriptors are never restarted. */
static void call_wait_interrupted(struct end *end)
{
    char what[96];
    struct pollfd pfd = {.fd = end->fd, .events = POLLIN};
    struct epoll_event event = {.events = 0};
    bool readable = false;
    unsigned how = dice(4);
    int rc;
    alarms(dice(2) == 0 ? SA_RESTART : 0, 1000);
    errno = 0;
    if (how == 0) {
        rc = poll(&pfd, 1, -1);
    } else if (how == 1) {
        rc = wait_in_select(end->fd, &readable);
    } else {
        rc = epoll_wait(end->sets[how == 2 ? LEVEL : OVER_LEVEL], &event, 1, -1);
    }
    int error = errno;
    alarms(SA_RESTART, 0);
    snprintf(what, sizeof(what), "wait by %u, signals %#x %d %#x", how, (unsigned)pfd.revents,
             readable, rc > 0 ? event.events : 0);
    report_call(end, what, rc, error);
}

/* A signal that is unblocked only during the call. */
static void call_masked(struct end *end)
{
    char what[96];
    sigset_t only, before, inside;
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct pollfd pfd = {.fd = end->fd, .events = POLLIN};
    struct timespec limit = {.tv_nsec = dice(2) == 0 ? 0 : 2000000};
    struct epoll_event event = {.events = 0};
    fd_set set;
    unsigned how = dice(4);
    int rc;
    sigaction(SIGUSR1, &action, NULL);
    sigemptyset(&only);
    sigaddset(&only, SIGUSR1);
    sigprocmask(SIG_BLOCK, &only, &before);
    inside = before;
    sigdelset(&inside, SIGUSR1);
    raise(SIGUSR1);
    ticks = 0;
    FD_ZERO(&set);
    FD_SET(end->fd, &set);
    errno = 0;
    if (how == 0) {
        rc = ppoll(&pfd, 1, &limit, &inside);
    } else if (how == 1) {
        rc = pselect(end->fd + 1, &set, NULL, NULL, &limit, &inside);
    } else if (how == 2) {
        rc = epoll_pwait(end->sets[LEVEL], &event, 1, (int)(limit.tv_nsec / 1000000), &inside);
    } else {
        rc = epoll_pwait2(end->sets[OVER_LEVEL], &event, 1, &limit, &inside);
    }
    int error = errno;
    int inside_ticks = ticks;
    sigprocmask(SIG_SETMASK, &before, NULL);
    snprintf(what, sizeof(what), "wait by %u, %ld ns, masked: %d %d", how, limit.tv_nsec,
             inside_ticks, ticks);
    report_call(end, what, rc, error);
}

/* --- time limits ----------------------------------------------------------------------------- */

static void call_timed(struct end *end)
{
    char what[96];
    fd_set sets[3];
    struct timeval limit = {.tv_usec = 2000};
    struct timespec other_limit = {.tv_nsec = 2000000};
    unsigned how = dice(3);
    int rc;
    for (int i = 0; i < 3; i++) {
        FD_ZERO(&sets[i]);
        FD_SET(end->fd, &sets[i]);
    }
    errno = 0;
    if (how == 0) {
        rc = select(end->fd + 1, &sets[0], dice(2) == 0 ? &sets[1] : NULL, &sets[2], &limit);
    } else if (how == 1) {
        rc = pselect(end->fd + 1, &sets[0], NULL, &sets[2], &other_limit, NULL);
    } else {
        limit.tv_usec = 15000;
        rc = select(end->fd + 1, &sets[0], NULL, &sets[2], &limit);
    }
    snprintf(what, sizeof(what), "select by %u %d%d%d %d %d", how, FD_ISSET(end->fd, &sets[0]) != 0,
             FD_ISSET(end->fd, &sets[1]) != 0, FD_ISSET(end->fd, &sets[2]) != 0,
             how == 1 || rc != 0 || limit.tv_usec == 0, (int)limit.tv_sec);
    report_call(end, what, rc, errno);
}

/* --- sets ------------------------------------------------------------------------------------ */

static void call_sets(struct end *end)
{
    char what[96], events_text[32];
    unsigned which = ALONE + dice(SETS_WIDE - ALONE);
    bool edges = which == EDGE_ONCE || which == OVER_EDGE;
    which = edges && lowat_used ? ALONE : which;
    if (which != EDGE_ONCE && which != OVER_EDGE && dice(5) == 0) {
        struct pollfd pfd = {.fd = end->sets[which], .events = POLLIN | POLLOUT};
        int ready = poll(&pfd, 1, dice(2) == 0 ? 0 : 2);
        snprintf(what, sizeof(what), "poll(set %u) %#x", which, (unsigned)pfd.revents);
        report_call(end, what, ready, errno);
        return;
    }
    int rc = wait_in_set(end->sets[which], dice(3) == 0 ? 2 : 0, false, events_text);
    snprintf(what, sizeof(what), "epoll_wait(set %u) %s", which, events_text);
    report_call(end, what, rc, errno);
    if (which == EDGE_ONCE && dice(2) == 0) {
        struct epoll_event again = {.events = EPOLLIN | EPOLLET | EPOLLONESHOT};
        epoll_ctl(end->sets[which], EPOLL_CTL_MOD, end->fd, &again);
    } else if (which == ALONE && dice(3) == 0) {
        struct epoll_event again = {.events = EPOLLIN | EPOLLOUT | EPOLLEXCLUSIVE};
        rc = epoll_ctl(end->sets[which], EPOLL_CTL_DEL, end->fd, NULL);
        rc |= epoll_ctl(end->sets[which], EPOLL_CTL_ADD, end->fd, &again);
        report_call(end, "taken out and put in", rc, errno);
    }
}

/* --- other holders --------------------------------------------------------------------------- */

struct deed deed_of(int fd, bool sends, size_t bytes)
{
    errno = 0;
    long rc = sends ? send(fd, out, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                    : recv(fd, in, bytes, MSG_DONTWAIT);
    struct deed deed = {.rc = rc, .error = errno};
    deed.hash = hash_of(in, !sends && rc > 0 ? (size_t)rc : 0);
    return deed;
}

int wide_held(int argc, char **argv)
{
    int fd = atoi(argv[2]), answer_fd = atoi(argv[3]);
    size_t bytes = strtoul(argv[5], NULL, 10);
    if (argc > 6) {
        memset(out, 0, sizeof(out));
        struct end end = {.sent = strtoull(argv[6], NULL, 10)};
        fill_out(&end, bytes);
    }
    struct deed deed = deed_of(fd, argv[4][0] == 's', bytes);
    return write(answer_fd, &deed, sizeof(deed)) == sizeof(deed) ? 0 : 1;
}

void wide_held_words(struct held_words *words, int fd, int answer_fd, bool sends, size_t bytes,
                     uint64_t at)
{
    snprintf(words->text[0], sizeof(words->text[0]), "%d", fd);
    snprintf(words->text[1], sizeof(words->text[1]), "%d", answer_fd);
    snprintf(words->text[2], sizeof(words->text[2]), "%zu", bytes);
    snprintf(words->text[3], sizeof(words->text[3]), "%llu", (unsigned long long)at);
    const char *argv[] = {"prog_random_calls", "held",         words->text[0], words->text[1],
                          sends ? "s" : "r",   words->text[2], words->text[3], NULL};
    memcpy(words->argv, argv, sizeof(argv)); /* execv() does not change them */
}

static _Noreturn void become_held(int fd, int answer_fd, bool sends, size_t bytes, uint64_t at)
{
    struct held_words words;
    wide_held_words(&words, fd, answer_fd, sends, bytes, at);
    execv("/proc/self/exe", words.argv);
    _exit(9);
}

/* A child, or the program that it becomes, makes one call. */
static void call_in_child(struct end *end)
{
    char what[96];
    struct deed deed;
    int fds[2];
    bool sends = dice(2) == 0;
    bool becomes = dice(3) == 0;
    size_t bytes = 1 + some_bytes();
    if ((sends && unread(other(end)) + bytes > UNDER_WAY_MAX) || (becomes && !is_returnable(end))) {
        return;
    }
    fill_out(end, bytes);
    fcntl(end->fd, F_SETFD, 0);
    if (pipe(fds) != 0) {
        die("pipe");
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (becomes) {
            become_held(end->fd, fds[1], sends, bytes, end->sent);
        }
        deed = deed_of(end->fd, sends, bytes);
        _exit(write(fds[1], &deed, sizeof(deed)) == sizeof(deed) ? 0 : 1);
    }
    close(fds[1]);
    if (read(fds[0], &deed, sizeof(deed)) != sizeof(deed)) {
        deed = (struct deed){.rc = -1, .error = ECHILD};
    }
    close(fds[0]);
    waitpid(pid, NULL, 0);
    snprintf(what, sizeof(what), "%s %s(%zu) %08x", becomes ? "another program's" : "a child's",
             sends ? "send" : "recv", bytes, deed.hash);
    report_call(end, what, deed.rc, deed.error);
    if (deed.rc > 0) {
        *(sends ? &end->sent : &end->got) += (uint64_t)deed.rc;
    }
}

/* The process sends the descriptor to itself in a message, and so gets a copy. */
static void call_passed(struct end *end)
{
    int pair[2];
    /* No library can change the kernel's registration under a closed number. If the library had
     * replaced the registration of a connection that is now plain, and no longer knows the
     * connection, no event is reported. */
    if (!is_returnable(end) || end->renumbered) {
        return;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 || !pass_fd(pair[0], end->fd)) {
        die("SCM_RIGHTS");
    }
    int copy = taken_fd(pair[1]);
    close(pair[0]);
    close(pair[1]);
    int rc = dice(2) == 0 ? dup2(copy, end->fd) : 0;
    report_call(end, "passed to itself", rc == end->fd ? 0 : rc, errno);
    close(copy);
}

/* --- options --------------------------------------------------------------------------------- */

static void call_read_option(struct end *end)
{
    static const int names[][2] = {
        {SOL_SOCKET, SO_TYPE},       {SOL_SOCKET, SO_DOMAIN},    {SOL_SOCKET, SO_PROTOCOL},
        {SOL_SOCKET, SO_ACCEPTCONN}, {SOL_SOCKET, SO_RCVLOWAT},  {SOL_SOCKET, SO_KEEPALIVE},
        {SOL_SOCKET, SO_REUSEPORT},  {IPPROTO_TCP, TCP_NODELAY}, {IPPROTO_TCP, TCP_CORK},
        {SOL_SOCKET, SO_OOBINLINE},  {SOL_SOCKET, SO_TIMESTAMP}, {SOL_SOCKET, SO_ZEROCOPY}};
    char what[96];
    unsigned which = dice(sizeof(names) / sizeof(names[0]) + 3);
    long value = 0;
    int rc;
    if (which < sizeof(names) / sizeof(names[0])) {
        int number = 0;
        socklen_t bytes = sizeof(number);
        rc = getsockopt(end->fd, names[which][0], names[which][1], &number, &bytes);
        value = number;
    } else if (which == sizeof(names) / sizeof(names[0])) {
        struct stat status = {.st_mode = 0};
        rc = fstat(end->fd, &status);
        value = (long)status.st_mode;
    } else if (which == sizeof(names) / sizeof(names[0]) + 1) {
        int unsent = 0;
        unsigned looks = 0; /* small packets wait for earlier ones (tcp_autocorking) */
        do {
            rc = ioctl(end->fd, SIOCOUTQNSD, &unsent);
        } while (unsent != 0 && looks++ < 1000 && usleep(100) == 0);
        value = unsent;
    } else {
        struct address addr = {.bytes = sizeof(addr.v6)};
        rc = getpeername(end->fd, &addr.any, &addr.bytes);
        value = rc == 0 ? addr.any.sa_family : 0;
    }
    snprintf(what, sizeof(what), "option %u %#lx", which, (unsigned long)value);
    report_call(end, what, rc, errno);
}

/* Options that pipes do not support. */
static void call_rare_option(struct end *end)
{
    static const int names[][2] = {{SOL_SOCKET, SO_ZEROCOPY},  {SOL_SOCKET, SO_OOBINLINE},
                                   {SOL_SOCKET, SO_TIMESTAMP}, {SOL_SOCKET, SO_PEEK_OFF},
                                   {SOL_SOCKET, SO_KEEPALIVE}, {IPPROTO_TCP, TCP_QUICKACK}};
    char what[96];
    unsigned which = dice(sizeof(names) / sizeof(names[0]));
    int value = which == 2 && dice(2) == 0 ? -1 : (int)dice(2);
    if (!is_returnable(end)) {
        return;
    }
    int rc = setsockopt(end->fd, names[which][0], names[which][1], &value, sizeof(value));
    stamps_used |= names[which][1] == SO_TIMESTAMP;
    snprintf(what, sizeof(what), "rare option %u %d", which, value);
    report_call(end, what, rc, errno);
}

/* Control data that the kernel may add. */
static void call_recvmsg(struct end *end)
{
    char what[96];
    char control[256];
    size_t bytes = some_bytes();
    struct iovec iov = {in, bytes};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = dice(4) == 0 ? 8 : sizeof(control)};
    int flags = dice(4) == 0 ? MSG_PEEK : 0;
    errno = 0;
    long rc = recvmsg(end->fd, &message, flags);
    int error = errno;
    bool is_compared = rc >= 0 && !stamps_used;
    const struct cmsghdr *first = is_compared ? CMSG_FIRSTHDR(&message) : NULL;
    snprintf(what, sizeof(what), "recvmsg(%zu, %#x) %08x %#x %zu %d", bytes, (unsigned)flags,
             hash_of(in, rc > 0 ? (size_t)rc : 0), is_compared ? (unsigned)message.msg_flags : 0,
             is_compared ? (size_t)message.msg_controllen : 0,
             first != NULL ? first->cmsg_type : -1);
    report_call(end, what, rc, error);
    end->got += rc > 0 && flags == 0 ? (uint64_t)rc : 0;
}

/* --- sending --------------------------------------------------------------------------------- */

/* MSG_MORE or TCP_CORK hold bytes back until the last one. */
static void call_held_back(struct end *end)
{
    char what[96];
    long rcs[3] = {0, 0, 0};
    int on = 1, off = 0;
    bool cork = dice(2) == 0;
    size_t bytes = 1 + dice(300);
    if (unread(other(end)) + 3 * bytes > UNDER_WAY_MAX) {
        return;
    }
    if (cork) {
        setsockopt(end->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
    }
    errno = 0;
    for (int i = 0; i < 3; i++) {
        fill_out(end, bytes);
        rcs[i] = send(end->fd, out, bytes, MSG_NOSIGNAL | (!cork && i < 2 ? MSG_MORE : 0));
        end->sent += rcs[i] > 0 ? (uint64_t)rcs[i] : 0;
    }
    int error = errno;
    if (cork) {
        setsockopt(end->fd, IPPROTO_TCP, TCP_CORK, &off, sizeof(off));
    }
    snprintf(what, sizeof(what), "held back by %d %ld %ld", cork, rcs[0], rcs[1]);
    report_call(end, what, rcs[2], error);
}

/* --- ends ------------------------------------------------------------------------------------ */

/* Closes the end by one of the calls that close descriptors. */
static void call_close_somehow(struct end *end)
{
    char what[64];
    unsigned how = dice(5);
    struct linger linger = {.l_onoff = 1, .l_linger = 1};
    int rc;
    other(end)->resets |= unread(end) != 0 || (end->aborts && how != 3);
    errno = 0;
    if (how == 0) {
        rc = dup2(file_fd, end->fd) == end->fd ? 0 : -1;
    } else if (how == 1) {
        rc = dup3(file_fd, end->fd, O_CLOEXEC) == end->fd ? 0 : -1;
    } else if (how == 2) {
        rc = close_range((unsigned)end->fd, (unsigned)end->fd, 0);
    } else if (how == 3) {
        setsockopt(end->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
        rc = close(end->fd);
    } else {
        rc = shutdown(end->fd, SHUT_RDWR);
        close(end->fd);
    }
    int error = errno;
    if (how < 2) {
        close(end->fd);
    }
    end->fd = -1;
    snprintf(what, sizeof(what), "closed by %u", how);
    report_call(end, what, rc, error);
}

/* A child holds the end longer than this process. */
static void call_close_held(struct end *end)
{
    char what[64];
    struct pollfd pfd = {.fd = other(end)->fd, .events = POLLIN | POLLRDHUP};
    int fds[2];
    char byte;
    if (pfd.fd < 0 || unread(end) != 0 || pipe(fds) != 0) {
        return;
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[1]);
        close(pfd.fd);
        _exit(read(fds[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(fds[0]);
    int rc = close(end->fd);
    settle(other(end));
    int ready = poll(&pfd, 1, 5);
    snprintf(what, sizeof(what), "closed, but held: %d %#x", ready, (unsigned)pfd.revents);
    report_call(end, what, rc, errno);
    close(fds[1]);
    waitpid(pid, NULL, 0);
    other(end)->resets |= end->aborts;
    end->fd = -1;
}

static void call_half_close(struct end *end)
{
    char what[32];
    int how = dice(3) == 0 ? SHUT_RD : SHUT_WR;
    int rc = shutdown(end->fd, how);
    snprintf(what, sizeof(what), "half close(%d)", how);
    report_call(end, what, rc, errno);
    end->wr_shut |= how == SHUT_WR;
    end->rd_shut |= how == SHUT_RD;
}

void wide_call(struct end *end, bool may_end)
{
    static void (*const calls[])(struct end *) = {call_interrupted, call_wait_interrupted,
                                                  call_masked,      call_timed,
                                                  call_sets,        call_sets,
                                                  call_sets,        call_sets,
                                                  call_in_child,    call_passed,
                                                  call_read_option, call_rare_option,
                                                  call_recvmsg,     call_recvmsg,
                                                  call_held_back,   call_held_back};
    static void (*const endings[])(struct end *) = {call_close_somehow, call_close_held,
                                                    call_half_close, call_half_close};
    if (may_end && dice(12) == 0) {
        endings[dice(sizeof(endings) / sizeof(endings[0]))](end);
    } else {
        calls[dice(sizeof(calls) / sizeof(calls[0]))](end);
    }
}
