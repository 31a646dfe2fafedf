/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The error queue: notifications of MSG_ZEROCOPY, and time stamps of sent bytes. */
#include "checks.h"

#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

#define PARTS 100
#define PART_BYTES 2000

static void set_zerocopy(int fd)
{
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)); /* not on every machine */
}

static bool has_zerocopy(int fd)
{
    int on = 0;
    socklen_t bytes = sizeof(on);
    return getsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, &bytes) == 0 && on != 0;
}

static void set_tx_stamps(int fd)
{
    int which = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &which, sizeof(which)) == 0);
}

static struct pair connected_with(void (*set)(int fd))
{
    int client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(client >= 0);
    set(client);
    return connect_later(client);
}

/* Reads the notifications of the sends first, first + 1, ..., first + count - 1, in this order. */
static void read_notifications(int fd, uint32_t first, uint32_t count)
{
    uint32_t next = first;
    while (next != first + count) {
        char control[128];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof(control)};
        struct pollfd pfd = {fd, 0, 0};
        CHECK(poll(&pfd, 1, 30000) == 1 && (pfd.revents & POLLERR) != 0);
        CHECK(recvmsg(fd, &message, MSG_ERRQUEUE) == 0);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        CHECK(header != NULL);
        struct sock_extended_err error;
        memcpy(&error, CMSG_DATA(header), sizeof(error));
        CHECK(error.ee_origin == SO_EE_ORIGIN_ZEROCOPY && error.ee_errno == 0);
        CHECK(error.ee_info == next);
        next = error.ee_data + 1;
    }
    struct pollfd pfd = {fd, 0, 0};
    CHECK(poll(&pfd, 1, 20) == 0);
}

/* --- one number for each send ---------------------------------------------------------------- */

static char parts[PARTS][PART_BYTES];
static struct iovec pieces[PARTS];

static struct msghdr many_pieces(void)
{
    for (int i = 0; i < PARTS; i++) {
        pieces[i] = (struct iovec){parts[i], PART_BYTES};
    }
    return (struct msghdr){.msg_iov = pieces, .msg_iovlen = PARTS};
}

static void *drain_in_thread(void *of_fd)
{
    drain(*(int *)of_fd, PARTS * PART_BYTES);
    return NULL;
}

/* More pieces than the library passes on at once. */
static void a_notification_for_many_pieces(void)
{
    struct pair pair = connected_with(set_zerocopy);
    if (has_zerocopy(pair.client)) {
        struct msghdr message = many_pieces();
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, drain_in_thread, &pair.server) == 0);
        CHECK(sendmsg(pair.client, &message, MSG_ZEROCOPY) == PARTS * PART_BYTES);
        CHECK(pthread_join(thread, NULL) == 0);
        read_notifications(pair.client, 0, 1);
    }
    done(pair);
}

static void *send_pieces(void *of_fd)
{
    struct msghdr message = many_pieces();
    CHECK(sendmsg(*(int *)of_fd, &message, MSG_ZEROCOPY) == PARTS * PART_BYTES);
    return NULL;
}

static void use_stdio(int fd)
{
    FILE *file = fdopen(dup(fd), "r");
    CHECK(file != NULL && fclose(file) == 0);
}

/* The peer has returned to the kernel, and gets unread bytes first, for which the send buffer has
 * no room. */
static void a_notification_after_resent_bytes(void)
{
    struct pair pair = connected_with(set_zerocopy);
    int bytes = 64 * 1024;
    CHECK(setsockopt(pair.client, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0);
    CHECK(setsockopt(pair.server, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) == 0);
    talk_both_ways(pair.client, pair.server);
    if (has_zerocopy(pair.client)) {
        pthread_t thread;
        size_t unread = fill_up(pair.client);
        use_stdio(pair.server);
        CHECK(pthread_create(&thread, NULL, send_pieces, &pair.client) == 0);
        sleep_ms(20);
        drain(pair.server, unread + PARTS * PART_BYTES);
        CHECK(pthread_join(thread, NULL) == 0);
        read_notifications(pair.client, 0, 1);
    }
    done(pair);
}

/* Several messages of one call, then ones without a notification between others. */
static void notifications_are_counted(void)
{
    struct pair pair = connected_with(set_zerocopy);
    talk_both_ways(pair.client, pair.server);
    if (has_zerocopy(pair.client)) {
        struct iovec iov = {parts[0], PART_BYTES};
        struct mmsghdr messages[5];
        for (int i = 0; i < 5; i++) {
            messages[i].msg_hdr = (struct msghdr){.msg_iov = &iov, .msg_iovlen = 1};
        }
        CHECK(sendmmsg(pair.client, messages, 5, 0) == 5);
        CHECK(sendmmsg(pair.client, messages, 5, MSG_ZEROCOPY) == 5);
        CHECK(sendmmsg(pair.client, messages, 5, 0) == 5);
        CHECK(send(pair.client, parts[1], PART_BYTES, MSG_ZEROCOPY) == PART_BYTES);
        CHECK(send(pair.client, parts[1], 0, MSG_ZEROCOPY) == 0);
        CHECK(write(pair.client, parts[1], PART_BYTES) == PART_BYTES);
        CHECK(send(pair.client, parts[1], PART_BYTES, MSG_ZEROCOPY | MSG_DONTWAIT) == PART_BYTES);
        drain(pair.server, 18 * PART_BYTES);
        read_notifications(pair.client, 0, 7);
        talk_both_ways(pair.client, pair.server);
    }
    done(pair);
}

/* --- many threads ---------------------------------------------------------------------------- */

#define THREADS 4
#define THREAD_SENDS 50

static pthread_barrier_t turn;

static void *send_with_flag(void *of_fd)
{
    pthread_barrier_wait(&turn);
    for (int i = 0; i < THREAD_SENDS; i++) {
        CHECK(send(*(int *)of_fd, parts[0], PART_BYTES, i % 2 != 0 ? MSG_ZEROCOPY : 0) ==
              PART_BYTES);
    }
    return NULL;
}

static void notifications_of_several_threads(void)
{
    for (int round = 0; round < 20; round++) {
        struct pair pair = connected_with(set_zerocopy);
        for (int i = 0; i < round; i++) {
            write_all(pair.client, "x", 1);
            drain(pair.server, 1);
        }
        if (has_zerocopy(pair.client)) {
            pthread_t threads[THREADS];
            CHECK(pthread_barrier_init(&turn, NULL, THREADS) == 0);
            for (int i = 0; i < THREADS; i++) {
                CHECK(pthread_create(&threads[i], NULL, send_with_flag, &pair.client) == 0);
            }
            drain(pair.server, THREADS * THREAD_SENDS * PART_BYTES);
            for (int i = 0; i < THREADS; i++) {
                CHECK(pthread_join(threads[i], NULL) == 0);
            }
            read_notifications(pair.client, 0, THREADS * THREAD_SENDS / 2);
        }
        done(pair);
    }
}

/* --- waiting for notifications --------------------------------------------------------------- */

static void notifications_are_edges(void)
{
    struct pair pair = connected_with(set_zerocopy);
    talk_both_ways(pair.client, pair.server);
    if (has_zerocopy(pair.client)) {
        int epfd = set_with(pair.client, EPOLLIN | EPOLLOUT | EPOLLET);
        CHECK(wait_in(epfd, pair.client, 30000) == EPOLLOUT);
        for (uint32_t i = 0; i < 10; i++) {
            CHECK(send(pair.client, parts[0], PART_BYTES, MSG_ZEROCOPY) == PART_BYTES);
            drain(pair.server, PART_BYTES);
            uint32_t seen = 0;
            while ((seen & EPOLLERR) == 0) {
                seen = wait_in(epfd, pair.client, 30000);
                CHECK(seen != 0);
            }
            read_notifications(pair.client, i, 1);
            write_all(pair.server, "x", 1);
            while ((seen & EPOLLIN) == 0) {
                seen = wait_in(epfd, pair.client, 30000);
                CHECK(seen != 0);
            }
            drain(pair.client, 1);
        }
        close(epfd);
    }
    done(pair);
}

/* Each end sends so; neither reads notifications. */
static void notifications_at_both_ends(void)
{
    for (int i = 0; i < 10; i++) {
        struct pair pair = connected_with(set_zerocopy);
        set_zerocopy(pair.server);
        talk_both_ways(pair.client, pair.server);
        int flag = has_zerocopy(pair.client) ? MSG_ZEROCOPY : 0;
        for (int j = 0; j < 10; j++) {
            CHECK(send(pair.client, parts[0], PART_BYTES, flag) == PART_BYTES);
            CHECK(send(pair.server, parts[0], PART_BYTES, flag) == PART_BYTES);
        }
        drain(pair.client, 10 * PART_BYTES);
        drain(pair.server, 10 * PART_BYTES);
        talk_both_ways(pair.client, pair.server);
        if (flag != 0) {
            read_notifications(pair.client, 0, 10);
            read_notifications(pair.server, 0, 10);
        }
        done(pair);
    }
}

/* A full ring, and a send that does not wait. */
static void a_notification_after_a_full_pipe(void)
{
    struct pair pair = connected_with(set_zerocopy);
    talk_both_ways(pair.client, pair.server);
    if (has_zerocopy(pair.client)) {
        size_t unread = fill_up(pair.client);
        ssize_t n = send(pair.client, parts, sizeof(parts), MSG_ZEROCOPY | MSG_DONTWAIT);
        CHECK(n > 0 || (n == -1 && errno == EAGAIN));
        drain(pair.server, unread + (size_t)(n > 0 ? n : 0));
        CHECK(send(pair.client, parts[0], PART_BYTES, MSG_ZEROCOPY) == PART_BYTES);
        drain(pair.server, PART_BYTES);
        read_notifications(pair.client, 0, n > 0 ? 2 : 1);
        talk_both_ways(pair.client, pair.server);
    }
    done(pair);
}

/* The peer has sent a request and shut down its output. */
static void a_notification_after_the_peers_end(void)
{
    struct pair pair = connected_with(set_zerocopy);
    talk_both_ways(pair.client, pair.server);
    write_all(pair.server, "request", 7);
    CHECK(shutdown(pair.server, SHUT_WR) == 0);
    if (has_zerocopy(pair.client)) {
        char data[8];
        read_all(pair.client, data, 7);
        CHECK(read(pair.client, data, 1) == 0);
        CHECK(send(pair.client, parts[0], PART_BYTES, MSG_ZEROCOPY) == PART_BYTES);
        drain(pair.server, PART_BYTES);
        read_notifications(pair.client, 0, 1);
    }
    done(pair);
}

/* --- time stamps ----------------------------------------------------------------------------- */

/* Many programs never read them. */
static void stamps_of_sent_bytes_are_not_read(void)
{
    struct pair pair = connected_with(set_tx_stamps);
    for (int i = 0; i < 10; i++) {
        talk_both_ways(pair.client, pair.server);
    }
    done(pair);
}

static unsigned count_stamps(int fd)
{
    unsigned stamps = 0;
    for (;;) {
        char control[512], data[64];
        struct iovec iov = {data, sizeof(data)};
        struct msghdr message = {.msg_iov = &iov,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof(control)};
        if (recvmsg(fd, &message, MSG_ERRQUEUE) < 0) {
            CHECK(errno == EAGAIN);
            return stamps;
        }
        stamps++;
    }
}

static void send_stamped(struct pair pair)
{
    unsigned stamps = 0;
    for (int i = 0; i < 20; i++) {
        write_all(pair.client, "x", 1);
        drain(pair.server, 1);
        struct pollfd pfd = {pair.client, 0, 0};
        CHECK(poll(&pfd, 1, 30000) == 1 && pfd.revents == POLLERR);
        stamps += count_stamps(pair.client);
        write_all(pair.server, "y", 1);
        drain(pair.client, 1);
    }
    CHECK(stamps >= 20);
}

static void stamps_of_sent_bytes(void)
{
    struct pair pair = connected_with(set_tx_stamps);
    send_stamped(pair);
    done(pair);
}

static void stamps_of_sent_bytes_requested_later(void)
{
    struct pair pair = connected();
    set_tx_stamps(pair.client);
    send_stamped(pair);
    done(pair);
}

static void set_rx_stamps(int fd)
{
    int which = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &which, sizeof(which)) == 0);
}

static void receive_stamped(int fd, int other)
{
    for (int i = 0; i < 20; i++) {
        char byte, control[512];
        struct iovec iov = {&byte, 1};
        struct msghdr message = {.msg_iov = &iov,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof(control)};
        write_all(other, "x", 1);
        CHECK(recvmsg(fd, &message, 0) == 1);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        CHECK(header != NULL && header->cmsg_type == SO_TIMESTAMPING);
        write_all(fd, "y", 1);
        drain(other, 1);
    }
}

/* The kernel begins to take times a little after the first socket requests them
 * (net_enable_timestamp()). */
static int keep_time(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    set_rx_stamps(fd);
    sleep_ms(20);
    return fd;
}

static void stamps_of_received_bytes(void)
{
    int first = keep_time();
    struct pair pair = connected_with(set_rx_stamps);
    receive_stamped(pair.client, pair.server);
    done(pair);
    close(first);
}

/* One option is switched off, another one stays. */
static void stamps_of_two_kinds(void)
{
    int first = keep_time(), off = 0;
    struct pair pair = connected();
    set_rx_stamps(pair.client);
    CHECK(setsockopt(pair.client, SOL_SOCKET, SO_TIMESTAMP, &off, sizeof(off)) == 0);
    receive_stamped(pair.client, pair.server);
    done(pair);
    close(first);
}

const struct check checks_of_notifications[] = {
    CHECK_ENTRY(a_notification_for_many_pieces),
    CHECK_ENTRY(a_notification_after_resent_bytes),
    CHECK_ENTRY(notifications_are_counted),
    CHECK_ENTRY(notifications_of_several_threads),
    CHECK_ENTRY(notifications_are_edges),
    CHECK_ENTRY(notifications_at_both_ends),
    CHECK_ENTRY(a_notification_after_a_full_pipe),
    CHECK_ENTRY(a_notification_after_the_peers_end),
    CHECK_ENTRY(stamps_of_sent_bytes_are_not_read),
    CHECK_ENTRY(stamps_of_sent_bytes),
    CHECK_ENTRY(stamps_of_sent_bytes_requested_later),
    CHECK_ENTRY(stamps_of_received_bytes),
    CHECK_ENTRY(stamps_of_two_kinds),
    {NULL, NULL},
};
