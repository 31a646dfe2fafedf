/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A hostile ivshmem server and a hostile peer: memory that shrinks, eventfds that block. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fds.h"
#include "base/types.h"
#include "port/ivshmem/cell.h"
#include "port/ivshmem/ivshmem.h"
#include "port/ivshmem/protocol.h"

#define WINDOW_BYTES 65536u
#define MEMORY_BYTES (1u << 20)
#define OWN 1
#define PEER 2
#define HANG_S 20

/* The server, and the peer at side 1, both in this thread. */
struct world {
    char directory[64], path[96];
    int listen_fd, fd, memory_fd, own_event, peer_event;
    struct via_ivshmem_cell *cell;
    struct via_port *port;
    uint64_t now_ns;
};

static void listen_there(struct world *world)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(world->directory, "/tmp/via-hostile-XXXXXX");
    assert_non_null(mkdtemp(world->directory));
    snprintf(world->path, sizeof(world->path), "%s/iv.sock", world->directory);
    strcpy(address.sun_path, world->path);
    world->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(world->listen_fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(world->listen_fd, 1), 0);
}

static bool turn(struct world *world)
{
    uint64_t deadline_ns;
    for (unsigned i = 0; i < 20; i++) {
        world->now_ns += 10 * VIA_MSEC_NS;
        (void)via_ivshmem_port_service(world->port, world->now_ns, &deadline_ns);
    }
    return world->port->ops->link_is_up(world->port);
}

static void send_number(struct world *world, int64_t number, int fd)
{
    assert_int_equal(via_ivshmem_message_send(world->fd, number, fd), 0);
}

/* Trains the link as an ordinary peer does. */
static void train_peer(struct world *world)
{
    struct via_ivshmem_end *own = &world->cell->end[1];
    own->window_bytes = WINDOW_BYTES;
    own->host = 2;
    own->id = PEER;
    own->hello = VIA_IVSHMEM_HELLO;
    own->boot = 77;
    own->trained = world->cell->end[0].boot;
}

/* Connects the port: sends the server's messages up to the first vector. */
static void greet_with(struct world *world, int vector)
{
    world->fd = accept4(world->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(world->fd >= 0);
    send_number(world, 0, -1);
    send_number(world, OWN, -1);
    send_number(world, -1, world->memory_fd);
    send_number(world, PEER, world->peer_event);
    send_number(world, OWN, vector);
}

static void greet(struct world *world)
{
    greet_with(world, world->own_event);
}

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    struct via_error err = {0};
    alarm(HANG_S); /* a thread that hangs fails the test by its time limit */
    listen_there(world);
    struct via_ivshmem_options options = {
        .target = world->path, .window_bytes = WINDOW_BYTES, .host = 1, .threads_count = 1};
    assert_int_equal(via_ivshmem_port_open(&options, &world->port, &err), 0);
    (void)turn(world);
    world->memory_fd = memfd_create("not sealed", MFD_CLOEXEC);
    assert_int_equal(ftruncate(world->memory_fd, MEMORY_BYTES), 0);
    world->own_event = eventfd(0, EFD_CLOEXEC);
    world->peer_event = eventfd(0, EFD_CLOEXEC);
    world->cell = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, world->memory_fd, 0);
    assert_true(world->cell != MAP_FAILED);
    greet(world);
    (void)turn(world);
    train_peer(world);
    assert_true(turn(world));
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    world->port->ops->close(world->port);
    int fds[] = {world->listen_fd, world->fd, world->memory_fd, world->own_event,
                 world->peer_event};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(fds); i++) {
        close(fds[i]);
    }
    munmap(world->cell, MEMORY_BYTES);
    unlink(world->path);
    rmdir(world->directory);
    free(world);
    alarm(0);
    return 0;
}

/* --- */

/* Accesses beyond its end raise SIGBUS. */
static void memory_that_shrinks_is_the_end_of_the_link_and_not_of_the_host(void **state)
{
    /* Called here and not before: cmocka installs its handler of SIGBUS when a test begins. */
    assert_int_equal(set_up(state), 0);
    struct world *world = *state;
    uint64_t word = 1;
    assert_int_equal(ftruncate(world->memory_fd, 4096), 0); /* the registers, no inbox */
    world->port->ops->commit(world->port, 0, 0, &word, sizeof(word));
    assert_int_equal(*(volatile unsigned char *)world->port->inbox, 0xff);
    assert_int_equal(ftruncate(world->memory_fd, 0), 0);
    assert_false(turn(world));
    assert_false(turn(world));
    struct via_ivshmem_status status;
    via_ivshmem_port_status(world->port, &status);
    assert_non_null(strstr(status.error, "has room for 0 cells"));
    /* The memory grows again, and the port starts again. */
    assert_int_equal(ftruncate(world->memory_fd, MEMORY_BYTES), 0);
    (void)turn(world);
    train_peer(world);
    assert_true(turn(world));
    world->port->ops->commit(world->port, 0, 0, &word, sizeof(word));
    assert_int_equal(world->port->ops->fence_start(world->port, 0), 0);
    assert_int_equal(world->port->ops->fence_poll(world->port, 0), 1);
    unsigned char *inbox = (unsigned char *)world->cell + via_ivshmem_inbox_off(1, WINDOW_BYTES);
    assert_int_equal(inbox[0], 1);
    tear_down(state);
}

/* A holder of an eventfd can fill it, and clear O_NONBLOCK for all its writers. */
static void a_full_eventfd_blocks_no_thread(void **state)
{
    struct world *world = *state;
    uint64_t full = UINT64_MAX - 1;
    uint64_t drained;
    assert_int_equal(fcntl(world->peer_event, F_SETFL, O_NONBLOCK), 0);
    (void)!read(world->peer_event, &drained, sizeof(drained));
    assert_int_equal(write(world->peer_event, &full, sizeof(full)), sizeof(full));
    assert_int_equal(fcntl(world->peer_event, F_SETFL, 0), 0);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(world->port->ops->ring(world->port, 0, i), 0);
    }
    assert_true(turn(world));
    via_ivshmem_port_cut(world->port, true); /* nudges the peer */
    assert_false(turn(world));
}

static void send_two(const struct world *world)
{
    int64_t number = OWN;
    int fds[] = {world->own_event, world->peer_event};
    VIA_FDS_SPACE(2) space = {0};
    struct iovec iov = {.iov_base = &number, .iov_len = sizeof(number)};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    via_fds_add(&message, &space, fds, 2);
    assert_int_equal(sendmsg(world->fd, &message, 0), sizeof(number));
}

static void send_vectors(const struct world *world)
{
    for (unsigned i = 0; i < 65; i++) {
        assert_int_equal(via_ivshmem_message_send(world->fd, OWN, world->own_event), 0);
    }
}

/* A write to it would end the process by SIGPIPE. */
static void send_pipe(const struct world *world)
{
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    close(fds[0]);
    assert_int_equal(via_ivshmem_message_send(world->fd, PEER, -1), 0);
    assert_int_equal(via_ivshmem_message_send(world->fd, PEER, fds[1]), 0);
    close(fds[1]);
}

static unsigned count_fds(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* The port reconnects repeatedly to a server that breaks the protocol, and reports the reason. */
static void a_broken_message_is_reported_and_leaves_no_descriptor(void **state)
{
    static const struct {
        void (*send)(const struct world *world);
        const char *expected;
    } cases[] = {{send_two, "more than one descriptor"},
                 {send_vectors, "more than 64"},
                 {send_pipe, "no eventfd"}};
    struct world *world = *state;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(cases); i++) {
        unsigned before = 0;
        for (unsigned round = 0; round < 4; round++) {
            struct via_ivshmem_status status;
            cases[i].send(world);
            assert_false(turn(world));
            via_ivshmem_port_status(world->port, &status);
            assert_non_null(strstr(status.error, cases[i].expected));
            close(world->fd);
            greet(world);
            (void)turn(world);
            before = round == 0 ? count_fds() : before;
            assert_int_equal(count_fds(), before);
        }
    }
}

/* This message does not complete the greeting. */
static void a_first_vector_that_is_no_eventfd_is_reported(void **state)
{
    struct world *world = *state;
    struct via_ivshmem_status status;
    close(world->fd);
    (void)turn(world);
    greet_with(world, world->memory_fd);
    assert_false(turn(world));
    via_ivshmem_port_status(world->port, &status);
    assert_non_null(strstr(status.error, "no eventfd"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_shrinks_is_the_end_of_the_link_and_not_of_the_host),
        TEST(a_full_eventfd_blocks_no_thread),
        TEST(a_broken_message_is_reported_and_leaves_no_descriptor),
        TEST(a_first_vector_that_is_no_eventfd_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
