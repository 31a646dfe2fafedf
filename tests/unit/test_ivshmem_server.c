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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/types.h"
#include "port/emu/memory.h"
#include "port/ivshmem/device.h"
#include "port/ivshmem/protocol.h"
#include "port/ivshmem/server.h"

#define VECTORS 3u

struct bench {
    char directory[64];
    char path[96];
    struct via_ivshmem_server *server;
    char log[4096]; /* the server's messages */
};

static void keep_line(void *ctx, const struct via_log_message *message)
{
    struct bench *bench = ctx;
    size_t used = strlen(bench->log);
    snprintf(bench->log + used, sizeof(bench->log) - used, "%s\n", message->text);
}

static void open_server(struct bench *bench, unsigned clients_max, unsigned stall_ms)
{
    struct via_error err;
    struct via_ivshmem_server_options options = {.path = bench->path,
                                                 .memory_bytes = 1u << 20,
                                                 .vectors = VECTORS,
                                                 .clients_max = clients_max,
                                                 .stall_ms = stall_ms};
    bench->log[0] = '\0';
    assert_int_equal(via_ivshmem_server_open(&options, &bench->server, &err), 0);
}

static int set_up(void **state)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    strcpy(bench->directory, "/tmp/via-ivshmem-XXXXXX");
    assert_non_null(mkdtemp(bench->directory));
    snprintf(bench->path, sizeof(bench->path), "%s/s", bench->directory);
    open_server(bench, 2, 0);
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

/* Reads the next number, and whether a descriptor came with it; -2: the server has closed the
 * connection, -3: no message. A server sends a few messages at a time, so this function runs the
 * server's turns. */
static int64_t next(struct bench *bench, int fd, bool *ret_with)
{
    struct via_ivshmem_message message = {.fd = -1};
    int64_t number = -2;
    int rc = via_ivshmem_message_receive(fd, &message, &number);
    if (rc == -EAGAIN) {
        via_ivshmem_server_service(bench->server);
        rc = via_ivshmem_message_receive(fd, &message, &number);
    }
    *ret_with = rc == 1 && message.fd >= 0;
    if (*ret_with) {
        close(message.fd);
    }
    return rc == 1 ? number : rc == -EAGAIN ? -3 : -2;
}

static void expect(struct bench *bench, int fd, int64_t number, bool with, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        bool came_with;
        assert_int_equal(next(bench, fd, &came_with), number);
        assert_int_equal(came_with, with);
    }
}

/* Connects a client, which receives its whole greeting, up to its own vectors. */
static int join_and_read(struct bench *bench, int64_t id)
{
    bool came_with;
    int fd = join(bench);
    unsigned own_count = 0;
    for (unsigned i = 0; own_count < VECTORS && i < 1000; i++) {
        own_count += next(bench, fd, &came_with) == id && came_with ? 1 : 0;
    }
    assert_int_equal(own_count, VECTORS);
    return fd;
}

static void clients_get_the_messages_of_the_protocol(void **state)
{
    struct bench *bench = *state;
    int first = join(bench);
    expect(bench, first, 0, false, 1);
    expect(bench, first, 0, false, 1);
    expect(bench, first, -1, true, 1);
    expect(bench, first, 0, true, VECTORS);
    int second = join(bench);
    expect(bench, first, 1, true, VECTORS);
    expect(bench, second, 0, false, 1);
    expect(bench, second, 1, false, 1);
    expect(bench, second, -1, true, 1);
    expect(bench, second, 0, true, VECTORS);
    expect(bench, second, 1, true, VECTORS);
    int third = join(bench); /* one client too many */
    expect(bench, third, -2, false, 1);
    close(first);
    via_ivshmem_server_service(bench->server);
    expect(bench, second, 0, false, 1);
    expect(bench, second, -3, false, 1);
    assert_int_equal(via_ivshmem_server_clients(bench->server), 1);
    close(second);
    close(third);
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Runs the server's turns until its log has this text, and reads the client's messages. Returns how
 * many of them report that `left` has left. */
static unsigned read_until_logged(struct bench *bench, int fd, int64_t left, const char *text)
{
    unsigned count = 0;
    uint64_t end_ms = now_ms() + 20000;
    bool is_logged = false;
    while (!is_logged && now_ms() < end_ms) {
        is_logged = strstr(bench->log, text) != NULL; /* the text after the line is read, too */
        bool came_with;
        for (int64_t id = 0; id >= 0;) {
            id = next(bench, fd, &came_with);
            count += id == left && !came_with ? 1 : 0;
        }
        usleep(1000);
    }
    assert_true(is_logged);
    return count;
}

/* A client that connects and leaves causes eight messages to each other client. */
static void come_and_go(struct bench *bench, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        close(join(bench));
        via_ivshmem_server_service(bench->server);
        via_ivshmem_server_service(bench->server);
    }
}

static unsigned count_unread(int fd)
{
    struct via_ivshmem_message message = {.fd = -1};
    int64_t number;
    unsigned count = 0;
    while (via_ivshmem_message_receive(fd, &message, &number) == 1) {
        count++;
        if (message.fd >= 0) {
            close(message.fd);
        }
    }
    return count;
}

static void a_client_that_reads_nothing_is_hung_up_on(void **state)
{
    struct bench *bench = *state;
    via_ivshmem_server_close(bench->server);
    open_server(bench, 3, 500);
    via_log_set_sink(keep_line, bench);
    int good = join_and_read(bench, 0);
    int deaf = join(bench);
    expect(bench, good, 1, true, VECTORS);
    come_and_go(bench, 10);
    unsigned gone_count =
        read_until_logged(bench, good, 1, "client 1 has taken no message for 500 ms: hung up");
    via_log_set_sink(NULL, NULL);
    assert_int_equal(via_ivshmem_server_clients(bench->server), 1);
    assert_int_equal(gone_count, 1);
    assert_in_range(count_unread(deaf), 1, 16);
    close(deaf);
    close(good);
}

/* The socket accepts no more messages to the client, and reports no event that would end the
 * client. */
static void a_client_that_has_shut_its_direction_down_is_hung_up_on(void **state)
{
    struct bench *bench = *state;
    via_ivshmem_server_close(bench->server);
    open_server(bench, 3, 500);
    via_log_set_sink(keep_line, bench);
    int good = join_and_read(bench, 0);
    int shut = join_and_read(bench, 1);
    expect(bench, good, 1, true, VECTORS);
    assert_int_equal(shutdown(shut, SHUT_RD), 0);
    int other = join_and_read(bench, 2); /* messages for both */
    (void)read_until_logged(bench, good, 1, "client 1 has taken no message for 500 ms: hung up");
    via_log_set_sink(NULL, NULL);
    assert_int_equal(via_ivshmem_server_clients(bench->server), 2);
    close(other);
    close(shut);
    close(good);
}

/* If a client leaves before another one has read its vectors, the server does not send them any
 * more. A client that reads late still learns of each present client. */
static void a_client_that_reads_late_learns_the_state(void **state)
{
    struct bench *bench = *state;
    via_ivshmem_server_close(bench->server);
    open_server(bench, 3, 0);
    int late = join(bench);
    come_and_go(bench, 100);
    int other = join(bench);
    bool came_with;
    unsigned with_fd[3] = {0}, messages_count = 0;
    expect(bench, late, 0, false, 2); /* version and id */
    for (int64_t id = next(bench, late, &came_with); id != -3; id = next(bench, late, &came_with)) {
        assert_in_range(id + 1, 0, 3);
        if (id >= 0) {
            with_fd[id] = came_with ? with_fd[id] + 1 : 0;
        }
        messages_count++;
    }
    assert_int_equal(with_fd[0], VECTORS);
    assert_int_equal(with_fd[1] + with_fd[2], VECTORS); /* of `other` only */
    assert_in_range(messages_count, 1, 1 + 4 * (VECTORS + 1));
    close(other);
    close(late);
}

/* Runs in a process of an ordinary user: the kernel does not limit root's descriptors in flight. */
static void meet_deaf_clients(struct bench *bench)
{
    struct rlimit few = {.rlim_cur = 128, .rlim_max = 128};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    if (getuid() == 0) {
        assert_int_equal(setresgid(65000, 65000, 65000), 0);
        assert_int_equal(setresuid(65000, 65000, 65000), 0);
    }
    strcpy(bench->directory, "/tmp/via-ivshmem-XXXXXX");
    assert_non_null(mkdtemp(bench->directory));
    snprintf(bench->path, sizeof(bench->path), "%s/s", bench->directory);
    open_server(bench, 8, 0);
    int good = join_and_read(bench, 0), deaf[40];
    bool came_with;
    deaf[0] = join(bench);
    for (unsigned i = 0; i < 100; i++) { /* each round: VECTORS descriptors for both */
        come_and_go(bench, 1);
        while (next(bench, good, &came_with) >= 0) {
        }
    }
    for (unsigned i = 1; i < VIA_ARRAY_COUNT(deaf); i++) { /* each leaves its messages unread */
        deaf[i] = join(bench);
        shutdown(deaf[i], SHUT_WR);
        via_ivshmem_server_service(bench->server);
        while (next(bench, good, &came_with) >= 0) {
        }
    }
    assert_int_equal(next(bench, good, &came_with), -3); /* the server has not disconnected it */
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(deaf); i++) {
        close(deaf[i]);
    }
    usleep(300000); /* the server's next tick */
    via_ivshmem_server_service(bench->server);
    while (next(bench, good, &came_with) >= 0) {
    }
    int another = join(bench);
    int64_t id = next(bench, good, &came_with);
    assert_true(came_with);
    assert_in_range(id, 1, 7);
    expect(bench, good, id, true, VECTORS - 1);
    close(another);
    close(good);
    via_ivshmem_server_close(bench->server);
    unlink(bench->path);
    rmdir(bench->directory);
}

static void unread_messages_of_others_harm_no_client(void **state)
{
    (void)state;
    struct bench bench = {0};
    pid_t pid = fork();
    if (pid == 0) {
        meet_deaf_clients(&bench); /* a failure jumps to main(), which returns it as exit code */
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* The descriptors may be used up before the places. The server refuses the connection, and removes
 * it from its queue. */
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
    assert_int_equal(next(bench, fd, &came_with), -2);
    close(fd);
    assert_int_equal(via_ivshmem_server_clients(bench->server), 0);
    fd = join(bench);
    assert_int_equal(via_ivshmem_server_clients(bench->server), 1);
    close(fd);
}

/* --- the client ------------------------------------------------------------------------------- */

struct message {
    int64_t number;
    int with; /* 0 no descriptor, 1 memory, 2 a socket in place of an eventfd */
};

/* Sends the messages of such a server to a device. */
static void meet(const struct bench *bench, const struct message *message, unsigned count,
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
        int fd = message[i].with == 1 ? memory_fd : message[i].with == 2 ? listener : -1;
        assert_int_equal(via_ivshmem_message_send(client, message[i].number, fd), 0);
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
    meet(bench, (struct message[]){{1, 0}}, 1, "speaks version 1 of the protocol");
    meet(bench, (struct message[]){{0, 1}}, 1, "speaks version 0");
    meet(bench, (struct message[]){{0, 0}, {-5, 0}}, 2, "has -5 where an id belongs");
    meet(bench, (struct message[]){{0, 0}, {65536, 0}}, 2, "has 65536 where an id belongs");
    meet(bench, (struct message[]){{0, 0}, {3, 0}, {-1, 0}}, 3, "has -1 where the memory belongs");
    meet(bench, (struct message[]){{0, 0}, {3, 0}, {-1, 2}}, 3,
         "passed a descriptor that is not memory");
    meet(bench, (struct message[]){{0, 0}, {3, 0}, {-1, 1}, {-7, 0}}, 4,
         "sent the invalid peer id -7");
    meet(bench, (struct message[]){{0, 0}, {3, 0}, {-1, 1}, {70000, 2}}, 4,
         "invalid peer id 70000");
    /* The device ignores a message that an unknown peer has left, and the greeting continues. */
    meet(bench, (struct message[]){{0, 0}, {3, 0}, {-1, 1}, {9, 0}}, 4, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(clients_get_the_messages_of_the_protocol, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_reads_nothing_is_hung_up_on, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_has_shut_its_direction_down_is_hung_up_on,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_reads_late_learns_the_state, set_up,
                                        tear_down),
        cmocka_unit_test(unread_messages_of_others_harm_no_client),
        cmocka_unit_test_setup_teardown(a_client_without_descriptors_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(hostile_servers_are_left, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
