/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * io_uring rings made by liburing, as a database uses one for its files: a connection is not
 * affected until a request in the ring names it. (checks_demotion.c has a ring made by system
 * calls.) Without liburing, or if the kernel permits no ring, the check does nothing.
 */
#include "checks.h"

#include <dlfcn.h>
#include <linux/io_uring.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* The part of struct io_uring that liburing's inline functions use. */
struct ring {
    unsigned char submissions[104];
    struct {
        unsigned *head, *tail, *mask, *entries, *flags, *overflow;
        struct io_uring_cqe *entries_done;
    } completions;
    _Alignas(16) unsigned char more[256];
};

static int (*ring_init)(unsigned entries, struct ring *ring, unsigned flags);
static struct io_uring_sqe *(*ring_entry)(struct ring *ring);
static int (*ring_submit_and_wait)(struct ring *ring, unsigned count);
static int (*ring_register)(struct ring *ring, const int *fds, unsigned count);
static void (*ring_exit)(struct ring *ring);

static bool load(const char *name, void *ret_function)
{
    void *function = dlsym(RTLD_DEFAULT, name); /* as in a program that is linked to liburing */
    memcpy(ret_function, &function, sizeof(function));
    return function != NULL;
}

static bool ring_open(struct ring *ring)
{
    memset(ring, 0, sizeof(*ring));
    return dlopen("liburing.so.2", RTLD_NOW | RTLD_GLOBAL) != NULL &&
           load("io_uring_queue_init", &ring_init) && load("io_uring_get_sqe", &ring_entry) &&
           load("io_uring_submit_and_wait", &ring_submit_and_wait) &&
           load("io_uring_register_files", &ring_register) &&
           load("io_uring_queue_exit", &ring_exit) && ring_init(8, ring, 0) == 0;
}

/* One request; its result. */
static int ring_do(struct ring *ring, struct io_uring_sqe request)
{
    struct io_uring_sqe *entry = ring_entry(ring);
    CHECK(entry != NULL);
    *entry = request;
    CHECK(ring_submit_and_wait(ring, 1) == 1);
    unsigned head = *ring->completions.head;
    int result = ring->completions.entries_done[head & *ring->completions.mask].res;
    __atomic_store_n(ring->completions.head, head + 1, __ATOMIC_RELEASE);
    return result;
}

static struct io_uring_sqe moving(unsigned what, int fd, void *data, unsigned bytes)
{
    return (struct io_uring_sqe){
        .opcode = (uint8_t)what, .fd = fd, .addr = (uint64_t)(uintptr_t)data, .len = bytes};
}

static void write_file(struct ring *ring, int fd)
{
    char data[16] = "in a file";
    CHECK(ring_do(ring, moving(IORING_OP_WRITE, fd, data, 9)) == 9);
    struct io_uring_sqe request = moving(IORING_OP_READ, fd, data, 2);
    request.off = 5;
    CHECK(ring_do(ring, request) == 2 && memcmp(data, "fi", 2) == 0);
}

static int open_file(void)
{
    char path[] = "/tmp/via-check-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && unlink(path) == 0);
    return fd;
}

static void a_ring_for_files(void)
{
    struct pair pair = connected();
    struct ring ring;
    if (ring_open(&ring)) {
        int fd = open_file();
        write_file(&ring, fd);
        talk_both_ways(pair.client, pair.server);
        CHECK(ring_register(&ring, &fd, 1) == 0);
        char data[] = "more";
        struct io_uring_sqe request = moving(IORING_OP_WRITE, 0, data, 4);
        request.flags = IOSQE_FIXED_FILE;
        CHECK(ring_do(&ring, request) == 4);
        struct pair later = connected();
        talk_both_ways(later.client, later.server);
        done(later);
        ring_exit(&ring);
        close(fd);
    }
    done(pair);
}

static struct pair with_unread_bytes(void)
{
    struct pair pair = connected();
    write_all(pair.client, "unread ", 7);
    return pair;
}

/* A read by a ring returns its connection to the kernel, but no other connection. */
static void a_ring_reads_one_connection(void)
{
    struct pair pair = with_unread_bytes();
    struct pair other = with_unread_bytes();
    struct ring ring;
    char data[16];
    if (ring_open(&ring)) {
        CHECK(ring_do(&ring, moving(IORING_OP_READ, pair.server, data, 16)) == 7);
        CHECK(memcmp(data, "unread ", 7) == 0);
        memcpy(data, "ring", 4);
        CHECK(ring_do(&ring, moving(IORING_OP_WRITE, pair.server, data, 4)) == 4);
        read_all(pair.client, data, 4);
        CHECK(memcmp(data, "ring", 4) == 0);
        read_all(other.server, data, 7);
        CHECK(memcmp(data, "unread ", 7) == 0);
        ring_exit(&ring);
    }
    done(other);
    done(pair);
}

static void a_ring_that_knows_a_connection(void)
{
    struct pair pair = with_unread_bytes();
    struct ring ring;
    char data[16];
    if (ring_open(&ring)) {
        CHECK(ring_register(&ring, &pair.server, 1) == 0);
        struct io_uring_sqe request = moving(IORING_OP_READ, 0, data, 16);
        request.flags = IOSQE_FIXED_FILE;
        CHECK(ring_do(&ring, request) == 7 && memcmp(data, "unread ", 7) == 0);
        ring_exit(&ring);
    }
    done(pair);
}

/* A descriptor in a set that a ring polls stays with the kernel, too. */
static void a_ring_polls_a_set(void)
{
    struct pair pair = connected();
    struct ring ring;
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = pair.server}};
    if (ring_open(&ring)) {
        struct io_uring_sqe *entry = ring_entry(&ring);
        *entry = (struct io_uring_sqe){
            .opcode = IORING_OP_POLL_ADD, .fd = set, .poll32_events = EPOLLIN};
        CHECK(ring_submit_and_wait(&ring, 0) == 1);
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event) == 0);
        write_all(pair.client, "x", 1);
        double end = now_s() + 30;
        while (__atomic_load_n(ring.completions.tail, __ATOMIC_ACQUIRE) == 0) {
            CHECK(now_s() < end);
            sleep_ms(1);
        }
        CHECK(epoll_wait(set, &event, 1, 0) == 1 && event.data.fd == pair.server);
        ring_exit(&ring);
    }
    close(set);
    done(pair);
}

/* Registrations of sockets affect all of them. */
static void a_ring_for_sockets(void)
{
    struct pair pair = with_unread_bytes();
    struct pair other = with_unread_bytes();
    struct ring ring;
    char data[16];
    if (ring_open(&ring)) {
        CHECK(ring_do(&ring, moving(IORING_OP_RECV, pair.server, data, 16)) == 7);
        CHECK(ring_do(&ring, moving(IORING_OP_RECV, other.server, data, 16)) == 7);
        CHECK(memcmp(data, "unread ", 7) == 0);
        ring_exit(&ring);
    }
    done(other);
    done(pair);
}

const struct check checks_of_rings[] = {
    CHECK_ENTRY(a_ring_for_files),
    CHECK_ENTRY(a_ring_reads_one_connection),
    CHECK_ENTRY(a_ring_that_knows_a_connection),
    CHECK_ENTRY(a_ring_polls_a_set),
    CHECK_ENTRY(a_ring_for_sockets),
    {0},
};
