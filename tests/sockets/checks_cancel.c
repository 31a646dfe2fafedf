/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Threads that are cancelled in a call: the library keeps no state for them. */
#include "checks.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/single_threaded.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* Exit codes of children. */
enum { CANCELLED = 7, RETURNED };

static struct pair pair;

static void *receive(void *unused)
{
    char byte;
    CHECK(read(pair.server, &byte, 1) == 1);
    return unused;
}

static void *send_too_much(void *unused)
{
    static char data[32768];
    for (;;) {
        CHECK(write(pair.server, data, sizeof(data)) > 0);
    }
    return unused;
}

static void *wait_by_poll(void *unused)
{
    struct pollfd pfds[2] = {{.fd = pair.server, .events = POLLIN}};
    pfds[1] = pfds[0];
    CHECK(poll(pfds, 2, -1) == 2);
    return unused;
}

static void *wait_by_set(void *of_set)
{
    struct epoll_event event;
    CHECK(epoll_wait(*(int *)of_set, &event, 1, -1) == 1);
    return NULL;
}

static void *(*const calls[])(void *) = {receive, send_too_much, wait_by_poll, wait_by_set};

/* Lines of this process's memory map with the word. */
static int mappings(const char *word)
{
    char line[512];
    int count = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        count += strstr(line, word) != NULL ? 1 : 0;
    }
    fclose(file);
    return count;
}

/* The library's own thread may use a closed connection for a moment longer: it looks for quiet
 * ones. */
static bool is_freed(void)
{
    for (int i = 0; i < 500 && mappings("viaduct-connection") != 0; i++) {
        sleep_ms(10);
    }
    return mappings("viaduct-connection") == 0;
}

static void cancel_one(int call)
{
    pthread_t thread;
    void *result;
    int epfd = set_with(pair.server, EPOLLIN);
    CHECK(pthread_create(&thread, NULL, calls[call], &epfd) == 0);
    sleep_ms(20);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    close(epfd);
}

static void threads_are_cancelled(void)
{
    for (int i = 0; i < 20; i++) {
        pair = connected();
        cancel_one(i % 4);
        done(pair);
    }
    CHECK(is_freed());
}

/* Bytes that arrived meanwhile are still there for another thread. */
static void a_connection_outlives_its_cancelled_threads(void)
{
    char byte;
    pair = connected();
    for (int i = 0; i < 12; i++) {
        int call = i % 4 == 1 ? 0 : i % 4;
        cancel_one(call);
        write_all(pair.client, "x", 1);
        CHECK(read(pair.server, &byte, 1) == 1 && byte == 'x');
        talk_both_ways(pair.client, pair.server);
    }
    done(pair);
}

/* --- a request that came before the call -------------------------------------------------------
 * Cancellation points act on the request before they have any other effect, even if they need not
 * wait (POSIX.1, 2.9.5.2). All other calls ignore it.
 */

#define WAITING_BYTES 5

static struct sockaddr_in address;
static int listen_fd;
static int other_client; /* waits for accept() */
static int set_fd;
static int pipe_fds[2];
static int file_fd;
static char room[64];
static struct iovec vector = {room, WAITING_BYTES};
static struct mmsghdr message = {.msg_hdr = {.msg_iov = &vector, .msg_iovlen = 1}};
static struct pollfd pollfd;
static const struct timespec at_once;

static long by_read(void)
{
    return read(pair.server, room, sizeof(room));
}

static long by_readv(void)
{
    return readv(pair.server, &vector, 1);
}

static long by_preadv2(void)
{
    return preadv2(pair.server, &vector, 1, -1, 0);
}

static long by_recv(void)
{
    return recv(pair.server, room, sizeof(room), MSG_DONTWAIT);
}

static long by_recvfrom(void)
{
    return recvfrom(pair.server, room, sizeof(room), 0, NULL, NULL);
}

static long by_recvmsg(void)
{
    return recvmsg(pair.server, &message.msg_hdr, 0);
}

static long by_recvmmsg(void)
{
    return recvmmsg(pair.server, &message, 1, 0, NULL);
}

static long by_write(void)
{
    return write(pair.server, room, 1);
}

static long by_writev(void)
{
    return writev(pair.server, &vector, 1);
}

static long by_pwritev2(void)
{
    return pwritev2(pair.server, &vector, 1, -1, 0);
}

static long by_send(void)
{
    return send(pair.server, room, 1, MSG_DONTWAIT);
}

static long by_sendto(void)
{
    return sendto(pair.server, room, 1, 0, NULL, 0);
}

static long by_sendmsg(void)
{
    return sendmsg(pair.server, &message.msg_hdr, 0);
}

static long by_sendmmsg(void)
{
    return sendmmsg(pair.server, &message, 1, 0);
}

static long by_poll(void)
{
    pollfd = (struct pollfd){.fd = pair.server, .events = POLLIN};
    return poll(&pollfd, 1, 0);
}

static long by_ppoll(void)
{
    pollfd = (struct pollfd){.fd = pair.server, .events = POLLIN};
    return ppoll(&pollfd, 1, &at_once, NULL);
}

static long by_select(void)
{
    struct timeval none = {0, 0};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pair.server, &set);
    return select(pair.server + 1, &set, NULL, NULL, &none);
}

static long by_pselect(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pair.server, &set);
    return pselect(pair.server + 1, &set, NULL, NULL, &at_once, NULL);
}

static long by_epoll_wait(void)
{
    struct epoll_event event;
    return epoll_wait(set_fd, &event, 1, 0);
}

static long by_epoll_pwait2(void)
{
    struct epoll_event event;
    return epoll_pwait2(set_fd, &event, 1, &at_once, NULL);
}

static long by_splice_from(void)
{
    return splice(pair.server, NULL, pipe_fds[1], NULL, 10, 0);
}

static long by_splice_to(void)
{
    return splice(pipe_fds[0], NULL, pair.server, NULL, 1, 0);
}

static long by_accept(void)
{
    return accept(listen_fd, NULL, NULL);
}

static long by_connect(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd == pipe_fds[1] + 1); /* the test closes fd below: a cancelled call can not */
    return connect(fd, (struct sockaddr *)&address, sizeof(address));
}

static long by_close(void)
{
    return close(pair.server);
}

static long with_time_stamps(void)
{
    int on = 1;
    return setsockopt(pair.server, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on));
}

static long with_signals(void)
{
    return fcntl(pair.server, F_SETFL, fcntl(pair.server, F_GETFL) | O_ASYNC);
}

static long bytes_there(void)
{
    int bytes = 0;
    return ioctl(pair.server, FIONREAD, &bytes) == 0 && bytes == WAITING_BYTES ? 0 : -1;
}

static long error_of(void)
{
    int error;
    socklen_t bytes = sizeof(error);
    return getsockopt(pair.server, SOL_SOCKET, SO_ERROR, &error, &bytes);
}

static long by_dup(void)
{
    int fd = dup(pair.server);
    return fd < 0 ? -1 : close_range((unsigned)fd, (unsigned)fd, 0);
}

/* The connection replaces the set under the set's number; another file replaces a connection under
 * the connection's number. */
static long by_dup2(void)
{
    int fd = dup(set_fd);
    return dup2(pair.server, fd) != fd || dup2(set_fd, fd) != fd
               ? -1
               : close_range((unsigned)fd, (unsigned)fd, 0);
}

static long in_a_set(void)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data = {.fd = pair.server}};
    return epoll_ctl(set_fd, EPOLL_CTL_MOD, pair.server, &event);
}

static long by_sendfile(void)
{
    off_t at = 0;
    return sendfile(pair.server, file_fd, &at, 1);
}

static long half_closed(void)
{
    return shutdown(pair.server, SHUT_WR);
}

static long closed_in_a_range(void)
{
    int copy = dup(pair.server);
    long rc = close_range((unsigned)pair.server, (unsigned)pair.server, 0);
    return rc != 0 || dup2(copy, pair.server) != pair.server
               ? -1
               : close_range((unsigned)copy, (unsigned)copy, 0);
}

static const struct pending_call {
    long (*make)(void);
    bool is_point;
    bool ends; /* nothing can be sent afterwards */
} pending_calls[] = {
    {by_read, true, false},        {by_readv, true, false},
    {by_preadv2, true, false},     {by_recv, true, false},
    {by_recvfrom, true, false},    {by_recvmsg, true, false},
    {by_recvmmsg, true, false},    {by_write, true, false},
    {by_writev, true, false},      {by_pwritev2, true, false},
    {by_send, true, false},        {by_sendto, true, false},
    {by_sendmsg, true, false},     {by_sendmmsg, true, false},
    {by_poll, true, false},        {by_ppoll, true, false},
    {by_select, true, false},      {by_pselect, true, false},
    {by_epoll_wait, true, false},  {by_epoll_pwait2, true, false},
    {by_splice_from, true, false}, {by_splice_to, true, false},
    {by_accept, true, false},      {by_connect, true, false},
    {by_close, true, false},       {with_time_stamps, false, false},
    {with_signals, false, false},  {bytes_there, false, false},
    {error_of, false, false},      {by_dup, false, false},
    {by_dup2, false, false},       {in_a_set, false, false},
    {by_sendfile, false, false},   {closed_in_a_range, false, false},
    {half_closed, false, true},
};

static void *call_with_request(void *of_call)
{
    const struct pending_call *call = of_call;
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
    CHECK(pthread_cancel(pthread_self()) == 0);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
    errno = 0;
    long rc = call->make();
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    if (rc < 0) {
        printf("call %d: ", (int)(call - pending_calls));
    }
    CHECK(rc >= 0);
    return NULL;
}

static void call_pending(const struct pending_call *call, bool piped)
{
    pthread_t thread;
    void *result;
    char got[WAITING_BYTES];
    pair = piped ? connected() : just_connected();
    other_client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(other_client, (struct sockaddr *)&address, sizeof(address)) == 0);
    set_fd = set_with(pair.server, EPOLLIN);
    CHECK(pipe(pipe_fds) == 0);
    write_all(pipe_fds[1], "p", 1);
    write_all(pair.client, "hello", WAITING_BYTES);
    CHECK(wait_in(set_fd, pair.server, 5000) == EPOLLIN);
    CHECK(pthread_create(&thread, NULL, call_with_request, (void *)(uintptr_t)call) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    if ((result == PTHREAD_CANCELED) != call->is_point) {
        printf("call %d, %s: ", (int)(call - pending_calls), piped ? "pipes" : "no pipes");
    }
    CHECK((result == PTHREAD_CANCELED) == call->is_point);
    read_all(pair.server, got, sizeof(got)); /* nothing was taken */
    CHECK(memcmp(got, "hello", sizeof(got)) == 0);
    if (call->make == by_sendfile) {
        read_all(pair.client, got, 1);
    }
    CHECK(read(pipe_fds[0], got, 1) == 1 && got[0] == 'p');
    if (!call->ends) {
        talk_both_ways(pair.client, pair.server);
    }
    int accepted = accept(listen_fd, NULL, NULL);
    CHECK(accepted >= 0);
    close(accepted);
    close(other_client);
    close(set_fd);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    close(pipe_fds[1] + 1);
    done(pair);
}

static void a_request_acts_before_the_call_or_not_at_all(void)
{
    listen_fd = listener(&address);
    file_fd = memfd_create("file", MFD_CLOEXEC);
    write_all(file_fd, "f", 1);
    for (size_t i = 0; i < sizeof(pending_calls) / sizeof(pending_calls[0]); i++) {
        call_pending(&pending_calls[i], true);
        call_pending(&pending_calls[i], false);
    }
    close(listen_fd);
    close(file_fd);
    CHECK(is_freed());
}

static void a_request_acts_before_an_error_is_reported(void)
{
    const struct pending_call *call = &pending_calls[6];
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    struct pollfd pfd = {.events = 0};
    pthread_t thread;
    void *result;
    char byte;
    pair = connected();
    pfd.fd = pair.server;
    CHECK(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &none, sizeof(none)) == 0);
    close(pair.client);
    CHECK(poll(&pfd, 1, 5000) == 1 && (pfd.revents & POLLERR) != 0);
    CHECK(call->make == by_recvmmsg);
    CHECK(pthread_create(&thread, NULL, call_with_request, (void *)(uintptr_t)call) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    CHECK(recv(pair.server, &byte, 1, 0) == -1 && errno == ECONNRESET);
    close(pair.server);
}

static void end_cancelled(void *unused)
{
    (void)unused;
    _exit(CANCELLED);
}

static _Noreturn void call_in_only_thread(const struct pending_call *call)
{
    alarm(20); /* ends a child that waits for a mutex which the cancelled thread held */
    CHECK(__libc_single_threaded);
    pthread_cleanup_push(end_cancelled, NULL);
    call_with_request((void *)(uintptr_t)call);
    pthread_cleanup_pop(0);
    _exit(RETURNED);
}

/* A process of one thread can cancel only itself: pthread_cancel(3). */
static void the_only_thread_cancels_itself(void)
{
    listen_fd = listener(&address);
    pair = connected();
    other_client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(other_client, (struct sockaddr *)&address, sizeof(address)) == 0);
    set_fd = set_with(pair.server, EPOLLIN);
    CHECK(pipe(pipe_fds) == 0);
    write_all(pipe_fds[1], "p", 1);
    write_all(pair.client, "hello", WAITING_BYTES);
    for (size_t i = 0; i < sizeof(pending_calls) / sizeof(pending_calls[0]); i++) {
        int status;
        if (!pending_calls[i].is_point) {
            continue;
        }
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            call_in_only_thread(&pending_calls[i]);
        }
        CHECK(waitpid(child, &status, 0) == child);
        if (status != CANCELLED << 8) {
            printf("call %zu, status %#x: ", i, (unsigned)status);
        }
        CHECK(status == CANCELLED << 8);
    }
    char got[WAITING_BYTES];
    read_all(pair.server, got, sizeof(got)); /* no child has taken it */
    CHECK(memcmp(got, "hello", sizeof(got)) == 0);
    talk_both_ways(pair.client, pair.server);
    close(other_client);
    close(set_fd);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    close(listen_fd);
    done(pair);
}

/* While a thread waits in a set without connections, no bell is removed from a set that another
 * thread polls. */
static void a_cancelled_wait_is_over(void)
{
    pthread_t thread;
    void *result;
    int empty = epoll_create1(0);
    CHECK(pthread_create(&thread, NULL, wait_by_set, &empty) == 0);
    sleep_ms(20);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    close(empty);
    pair = connected();
    struct pollfd pfd = {.fd = set_with(pair.server, EPOLLIN), .events = POLLIN};
    CHECK(poll(&pfd, 1, 0) == 0);
    write_all(pair.client, "x", 1);
    CHECK(poll(&pfd, 1, 5000) == 1);
    close(pfd.fd);
    done(pair);
}

const struct check checks_of_cancelling[] = {
    CHECK_ENTRY(the_only_thread_cancels_itself),
    CHECK_ENTRY(threads_are_cancelled),
    CHECK_ENTRY(a_connection_outlives_its_cancelled_threads),
    CHECK_ENTRY(a_request_acts_before_the_call_or_not_at_all),
    CHECK_ENTRY(a_request_acts_before_an_error_is_reported),
    CHECK_ENTRY(a_cancelled_wait_is_over),
    {0},
};
