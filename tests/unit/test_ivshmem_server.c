/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The ivshmem server with its clients, and the client with hostile servers. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "port/emu/memory.h"
#include "port/ivshmem/device.h"
#include "port/ivshmem/protocol.h"
#include "port/ivshmem/server.h"

#define VECTORS 3u

struct bench {
    char directory[64];
    char path[96];
    struct via_ivshmem_server *server;
};

static int set_up(void **state)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    struct via_error err;
    strcpy(bench->directory, "/tmp/via-ivshmem-XXXXXX");
    assert_non_null(mkdtemp(bench->directory));
    snprintf(bench->path, sizeof(bench->path), "%s/s", bench->directory);
    struct via_ivshmem_server_options options = {
        .path = bench->path, .memory_bytes = 1u << 20, .vectors = VECTORS, .clients_max = 2};
    assert_int_equal(via_ivshmem_server_open(&options, &bench->server, &err), 0);
    *state = bench;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *bench = *state;
    via_ivshmem_server_close(bench->server);
    unlink(bench->path);
    rmdir(bench->directory);
    free(bench);
    return 0;
}

static int join(struct bench *bench)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, bench->path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    via_ivshmem_server_service(bench->server);
    return fd;
}

/* Reads the next number, and whether a descriptor came with it; -2: the server has hung up, -3:
 * nothing. */
static int64_t next(int fd, bool *ret_with)
{
    struct via_ivshmem_message message = {.fd = -1};
    int64_t number = -2;
    int rc = via_ivshmem_message_receive(fd, &message, &number);
    *ret_with = rc == 1 && message.fd >= 0;
    if (*ret_with) {
        close(message.fd);
    }
    return rc == 1 ? number : rc == -EAGAIN ? -3 : -2;
}

static void expect(int fd, int64_t number, bool with, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        bool came_with;
        assert_int_equal(next(fd, &came_with), number);
        assert_int_equal(came_with, with);
    }
}

static void clients_get_what_the_protocol_says(void **state)
{
    struct bench *bench = *state;
    int first = join(bench);
    expect(first, 0, false, 1);
    expect(first, 0, false, 1);
    expect(first, -1, true, 1);
    expect(first, 0, true, VECTORS);
    int second = join(bench);
    expect(first, 1, true, VECTORS);
    expect(second, 0, false, 1);
    expect(second, 1, false, 1);
    expect(second, -1, true, 1);
    expect(second, 0, true, VECTORS);
    expect(second, 1, true, VECTORS);
    int third = join(bench); /* one client too many */
    expect(third, -2, false, 1);
    close(first);
    via_ivshmem_server_service(bench->server);
    expect(second, 0, false, 1);
    expect(second, -3, false, 1);
    assert_int_equal(via_ivshmem_server_clients(bench->server), 1);
    close(second);
    close(third);
}

static void who_does_not_listen_is_hung_up_on(void **state)
{
    struct bench *bench = *state;
    int deaf = join(bench);
    int bytes = 1;
    setsockopt(deaf, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    unsigned joins = 0;
    while (joins < 5000 && via_ivshmem_server_clients(bench->server) != 0) {
        close(join(bench));
        via_ivshmem_server_service(bench->server);
        joins++;
    }
    assert_in_range(joins, 1, 4999);
    close(deaf);
}

/* Descriptors may run out before places do. The server refuses the connection, and removes it from
 * its queue. */
static void a_client_without_descriptors_is_refused(void **state)
{
    struct bench *bench = *state;
    struct rlimit before, few;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    bool came_with;
    strcpy(address.sun_path, bench->path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)dup(fd); /* the lowest free number */
    close((int)few.rlim_cur);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    via_ivshmem_server_service(bench->server);
    few.rlim_cur = before.rlim_cur;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_int_equal(next(fd, &came_with), -2);
    close(fd);
    assert_int_equal(via_ivshmem_server_clients(bench->server), 0);
    fd = join(bench);
    assert_int_equal(via_ivshmem_server_clients(bench->server), 1);
    close(fd);
}

/* --- the client ------------------------------------------------------------------------------- */

struct said {
    int64_t number;
    int with; /* 0 nothing, 1 memory, 2 an eventfd-like descriptor that is none: a socket */
};

/* Gives such a server's messages to a device. */
static void meet(const struct bench *bench, const struct said *said, unsigned count,
                 const char *error)
{
    char path[112];
    struct via_error err;
    struct via_ivshmem_device *device;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(path, sizeof(path), "%s2", bench->path);
    strcpy(address.sun_path, path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(via_ivshmem_socket_open(path, &device, &err), 0);
    uint64_t deadline_ns;
    device->ops->service(device, 1, &deadline_ns);
    int client = accept(listener, NULL, NULL);
    int memory_fd;
    assert_int_equal(via_emu_memfd_new("memory", 4096, &memory_fd), 0);
    for (unsigned i = 0; i < count; i++) {
        int fd = said[i].with == 1 ? memory_fd : said[i].with == 2 ? listener : -1;
        assert_int_equal(via_ivshmem_message_send(client, said[i].number, fd), 0);
    }
    device->ops->service(device, 2, &deadline_ns);
    assert_false(device->ready);
    if (strstr(device->error, error) == NULL) {
        fail_msg("'%s' is not in '%s'", error, device->error);
    }
    device->ops->close(device);
    close(memory_fd);
    close(client);
    close(listener);
    unlink(path);
}

static void hostile_servers_are_left(void **state)
{
    const struct bench *bench = *state;
    meet(bench, (struct said[]){{1, 0}}, 1, "speaks version 1 of the protocol");
    meet(bench, (struct said[]){{0, 1}}, 1, "speaks version 0");
    meet(bench, (struct said[]){{0, 0}, {-5, 0}}, 2, "has -5 where an id belongs");
    meet(bench, (struct said[]){{0, 0}, {65536, 0}}, 2, "has 65536 where an id belongs");
    meet(bench, (struct said[]){{0, 0}, {3, 0}, {-1, 0}}, 3, "has -1 where the memory belongs");
    meet(bench, (struct said[]){{0, 0}, {3, 0}, {-1, 2}}, 3, "passed what is no memory");
    meet(bench, (struct said[]){{0, 0}, {3, 0}, {-1, 1}, {-7, 0}}, 4, "speaks of a peer -7");
    meet(bench, (struct said[]){{0, 0}, {3, 0}, {-1, 1}, {70000, 2}}, 4, "a peer 70000");
    /* The device ignores that a peer which never came leaves; the greeting continues. */
    meet(bench, (struct said[]){{0, 0}, {3, 0}, {-1, 1}, {9, 0}}, 4, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(clients_get_what_the_protocol_says, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_does_not_listen_is_hung_up_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_client_without_descriptors_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(hostile_servers_are_left, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
