/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Two vfio-user servers of one bridge: a read that crosses it pushes the posted writes ahead of it.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/types.h"
#include "vfio/user.h"
#include "vfio/user_message.h"

#define SIDES 2u
#define WINDOW 2u
#define REGISTERS 0u
/* Long enough for an answer that need not wait. */
#define EARLY_MS 50
/* A server waits for a second: an answer after this time proves nothing. */
#define LATE_NS (VIA_SEC_NS / 2)

/* A function whose writes take until the test lets them continue. */
struct function {
    struct via_pci pci;
    char path[64];
    unsigned place;
    int listen_fd;
    pthread_t thread;
};

static struct function functions[SIDES];
static struct via_vfio_user_bridge bridge;
static sem_t gate;
static _Atomic bool stop, written;

static int slow_write(struct via_pci *pci, unsigned region, uint64_t off, const void *data,
                      size_t len)
{
    (void)pci, (void)region, (void)off, (void)data, (void)len;
    while (sem_wait(&gate) != 0) {
    }
    atomic_store(&written, true);
    return 0;
}

static int read_zeros(struct via_pci *pci, unsigned region, uint64_t off, void *ret_data,
                      size_t len)
{
    (void)pci, (void)region, (void)off;
    memset(ret_data, 0, len);
    return 0;
}

static void close_nothing(struct via_pci *pci)
{
    (void)pci;
}

static const struct via_pci_ops ops = {
    .region_read = read_zeros, .region_write = slow_write, .close = close_nothing};

static int attach(void *ctx, struct via_pci **ret_pci)
{
    *ret_pci = &((struct function *)ctx)->pci;
    return 0;
}

static void *serve(void *arg)
{
    struct function *function = arg;
    via_vfio_user_serve(function->listen_fd, attach, function, &bridge, function->place, &stop);
    return NULL;
}

static int set_up(void **state)
{
    struct via_error err;
    (void)state;
    bridge = (struct via_vfio_user_bridge){.regions = 1u << WINDOW};
    atomic_store(&stop, false);
    atomic_store(&written, false);
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    for (unsigned i = 0; i < SIDES; i++) {
        struct function *function = &functions[i];
        *function = (struct function){.pci = {.ops = &ops}, .place = i};
        snprintf(function->path, sizeof(function->path), "/tmp/via-order-%d-%u", (int)getpid(), i);
        assert_int_equal(via_vfio_user_listen(function->path, &function->listen_fd, &err), 0);
        assert_int_equal(pthread_create(&function->thread, NULL, serve, function), 0);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    atomic_store(&stop, true);
    for (unsigned i = 0; i < SIDES; i++) {
        sem_post(&gate);
    }
    for (unsigned i = 0; i < SIDES; i++) {
        pthread_join(functions[i].thread, NULL);
        close(functions[i].listen_fd);
        unlink(functions[i].path);
    }
    sem_destroy(&gate);
    return 0;
}

static void send_access(int fd, uint16_t command, uint32_t flags, uint32_t region)
{
    static struct via_vfio_user_message message;
    struct via_vfio_user_access access = {.region = region, .count = sizeof(uint64_t)};
    uint64_t word = 5;
    message.header = (struct via_vfio_user_header){.id = 7, .command = command, .flags = flags};
    memcpy(message.body, &access, sizeof(access));
    memcpy(message.body + sizeof(access), &word, sizeof(word));
    message.body_bytes = sizeof(access);
    message.body_bytes += command == VIA_VFIO_USER_REGION_WRITE ? sizeof(word) : 0;
    message.fds_count = 0;
    assert_int_equal(via_vfio_user_send(fd, &message), 0);
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * VIA_SEC_NS + (uint64_t)time.tv_nsec;
}

/* True if an answer arrives soon after the request. */
static bool is_early(int fd, uint64_t asked_ns)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    return poll(&ready, 1, EARLY_MS) == 1 && now_ns() - asked_ns < LATE_NS;
}

static void take_answer(int fd)
{
    static struct via_vfio_user_message message;
    assert_int_equal(via_vfio_user_receive(fd, &message), 0);
    assert_int_equal(message.header.error, 0);
}

static int connect_to(const struct function *function)
{
    static struct via_vfio_user_message message;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, function->path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    message.header = (struct via_vfio_user_header){.id = 7, .command = VIA_VFIO_USER_VERSION};
    memset(message.body, 0, sizeof(struct via_vfio_user_version));
    message.body_bytes = sizeof(struct via_vfio_user_version);
    message.fds_count = 0;
    assert_int_equal(via_vfio_user_send(fd, &message), 0);
    take_answer(fd);
    return fd;
}

static void a_read_that_crosses_pushes_what_the_peer_posted(void **state)
{
    (void)state;
    int writer = connect_to(&functions[0]), reader = connect_to(&functions[1]);
    /* The server executes one write; the second waits in the socket. */
    send_access(writer, VIA_VFIO_USER_REGION_WRITE, VIA_VFIO_USER_NO_REPLY, WINDOW);
    send_access(writer, VIA_VFIO_USER_REGION_WRITE, VIA_VFIO_USER_NO_REPLY, WINDOW);
    /* A read of the function's own registers crosses nothing. */
    send_access(reader, VIA_VFIO_USER_REGION_READ, 0, REGISTERS);
    take_answer(reader);
    assert_false(atomic_load(&written));
    uint64_t asked_ns = now_ns();
    send_access(reader, VIA_VFIO_USER_REGION_READ, 0, WINDOW);
    assert_false(is_early(reader, asked_ns));
    sem_post(&gate);
    assert_false(is_early(reader, asked_ns));
    sem_post(&gate);
    take_answer(reader);
    assert_true(atomic_load(&written));
    close(writer);
    close(reader);
}

static void send_whole(int fd, const void *bytes, size_t count)
{
    assert_int_equal(send(fd, bytes, count, MSG_NOSIGNAL), (ssize_t)count);
}

static void check_reads_are_early(int reader)
{
    for (unsigned i = 0; i < 3; i++) {
        uint64_t asked_ns = now_ns();
        send_access(reader, VIA_VFIO_USER_REGION_READ, 0, WINDOW);
        take_answer(reader);
        assert_true(now_ns() - asked_ns < LATE_NS);
    }
}

/* An incomplete message orders nothing, whether its header or its body is cut. */
static void a_client_in_mid_message_delays_no_read(void **state)
{
    struct via_vfio_user_header header = {.id = 7,
                                          .command = VIA_VFIO_USER_REGION_WRITE,
                                          .flags = VIA_VFIO_USER_NO_REPLY,
                                          .bytes = sizeof(header) + 64};
    const unsigned char body[8] = {0};
    (void)state;
    int stuck = connect_to(&functions[0]), reader = connect_to(&functions[1]);
    send_whole(stuck, &header, 3);
    check_reads_are_early(reader);
    send_whole(stuck, (const unsigned char *)&header + 3, sizeof(header) - 3);
    send_whole(stuck, body, sizeof(body));
    check_reads_are_early(reader);
    close(stuck);
    close(reader);
}

/* Sends requests without reading answers, until the server can not send any more; then the server
 * takes no request.
 */
static void fill_with_answers(int fd)
{
    struct {
        struct via_vfio_user_header header;
        struct via_vfio_user_access access;
    } request = {
        .header = {.id = 7, .command = VIA_VFIO_USER_REGION_READ, .bytes = sizeof(request)},
        .access = {.region = REGISTERS, .count = sizeof(uint64_t)}};
    for (unsigned waits = 0; waits < 10;) {
        if (send(fd, &request, sizeof(request), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
            assert_int_equal(errno, EAGAIN);
            usleep(5000);
            waits++;
        } else {
            waits = 0;
        }
    }
}

/* Requests that wait in its socket come after an answer that the server can not send. */
static void a_client_that_reads_no_answers_delays_no_read(void **state)
{
    (void)state;
    int deaf = connect_to(&functions[0]), reader = connect_to(&functions[1]);
    fill_with_answers(deaf);
    check_reads_are_early(reader);
    close(deaf);
    close(reader);
}

/* Each read waits only for earlier messages of the other client. */
static void two_reads_do_not_wait_for_each_other(void **state)
{
    (void)state;
    int fds[SIDES] = {connect_to(&functions[0]), connect_to(&functions[1])};
    for (unsigned round = 0; round < 200; round++) {
        for (unsigned i = 0; i < SIDES; i++) {
            send_access(fds[i], VIA_VFIO_USER_REGION_READ, 0, WINDOW);
        }
        for (unsigned i = 0; i < SIDES; i++) {
            take_answer(fds[i]);
        }
    }
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_read_that_crosses_pushes_what_the_peer_posted, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_client_in_mid_message_delays_no_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_reads_no_answers_delays_no_read, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(two_reads_do_not_wait_for_each_other, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
