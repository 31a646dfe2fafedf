/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The limits of a process at its host. The contents of its memory and socket may be hostile. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "host/client.h"
#include "host/client_sys.h"
#include "host/control.h"
#include "tests/bell_full.h"
#include "tests/system/host_raw.h"
#include "wire/frame.h"

#define BYTES 65536u

struct fixture {
    struct host_lab lab; /* two hosts, frames between them */
    struct host_raw raw; /* at host 0 */
    void *base;          /* memory of a segment of it */
    uint64_t handle;
};

static void few_processes(struct via_host_options *options)
{
    options->processes_max = 100;
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    host_lab_init(&fixture->lab, 2, false, false);
    host_lab_start(&fixture->lab, 0, few_processes);
    host_lab_start(&fixture->lab, 1, NULL);
    host_lab_wait_routes(&fixture->lab);
    host_raw_open(&fixture->raw, &fixture->lab, 0);
    fixture->handle = host_raw_segment(&fixture->raw, BYTES, &fixture->base);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    munmap(fixture->base, BYTES);
    host_raw_close(&fixture->raw);
    host_lab_fini(&fixture->lab);
    free(fixture);
    return 0;
}

static struct via_command put(const struct fixture *fixture, uint64_t off, uint64_t bytes)
{
    return (struct via_command){.kind = VIA_OP_PUT,
                                .source = VIA_SOURCE_BODY,
                                .destination = 0,
                                .bytes = bytes,
                                .segment = fixture->handle,
                                .offset = off,
                                .cookie = 1};
}

/* The host still serves: a command of this process, and a new attachment. */
static void assert_serves(struct fixture *fixture)
{
    struct host_raw raw;
    struct via_reply reply;
    struct via_command command = put(fixture, 8, 6);
    host_raw_open(&raw, &fixture->lab, 0);
    host_raw_command(&raw, &command, "alive", 6);
    assert_true(host_raw_reply(&raw, &reply, NULL, 60000));
    assert_int_equal(reply.status, 0);
    assert_string_equal((const char *)fixture->base + 8, "alive");
    host_raw_close(&raw);
}

static int status_of(struct fixture *fixture, const struct via_command *command, const void *body,
                     size_t body_bytes)
{
    struct via_reply reply;
    host_raw_command(&fixture->raw, command, body, body_bytes);
    assert_true(host_raw_reply(&fixture->raw, &reply, NULL, 60000));
    assert_int_equal(reply.cookie, command->cookie);
    return reply.status;
}

/* --- the socket ------------------------------------------------------------------------------- */

static void another_version_gets_the_version_of_the_host(void **state)
{
    struct fixture *fixture = *state;
    struct host_raw raw = {.fd = host_raw_connect(&fixture->lab, 0), .id_next = 4};
    struct via_attach_answer answer;
    struct via_attach_request hello = host_raw_request(&raw, VIA_ATTACH_HELLO);
    hello.version = 9;
    assert_int_equal(host_raw_request_wait(&raw, &hello, -1, &answer), -EPROTO);
    assert_int_equal(answer.version, VIA_ATTACH_VERSION);
    assert_int_equal(host_raw_request_wait(&raw, &hello, -1, &answer), -ECONNRESET);
    close(raw.fd);
    assert_serves(fixture);
}

static bool is_hung_up_on(int fd)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    char byte;
    return poll(&pollfd, 1, 60000) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

static bool has_so_many_fds(void *ctx)
{
    const unsigned *count = ctx;
    /* Fewer, if at first the reaper had not closed all of an earlier process. */
    return host_lab_fds(0) <= *count;
}

static void an_invalid_request_ends_only_its_connection(void **state)
{
    struct fixture *fixture = *state;
    struct host_raw raw = {0};
    struct via_attach_request request = host_raw_request(&raw, VIA_ATTACH_HELLO);
    unsigned char big[4096] = {0};
    int fds[HOST_RAW_FDS_MAX];
    for (unsigned i = 0; i < HOST_RAW_FDS_MAX; i++) {
        fds[i] = fixture->raw.bell_fd;
    }
    unsigned before = host_lab_fds(0);
    request.magic = 0;
    static const size_t sizes[] = {1, sizeof(request) - 1, sizeof(request), sizeof(big)};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(sizes); i++) {
        int fd = host_raw_connect(&fixture->lab, 0);
        memcpy(big, &request, sizeof(request));
        assert_int_equal(host_raw_send(fd, big, sizes[i], fds, HOST_RAW_FDS_MAX), 0);
        assert_true(is_hung_up_on(fd));
        close(fd);
    }
    /* No other request is answered before HELLO. */
    raw.fd = host_raw_connect(&fixture->lab, 0);
    request = host_raw_request(&raw, VIA_ATTACH_SEGMENT_ADD);
    assert_int_equal(host_raw_request_wait(&raw, &request, -1, NULL), -EPROTO);
    close(raw.fd);
    assert_serves(fixture);
    host_lab_wait(has_so_many_fds, &before, "all descriptors to be closed");
}

static void silent_connections_exclude_no_process(void **state)
{
    struct fixture *fixture = *state;
    int fds[200];
    for (size_t i = 0; i < VIA_ARRAY_COUNT(fds); i++) {
        fds[i] = host_raw_connect(&fixture->lab, 0);
        assert_true(fds[i] >= 0);
    }
    assert_serves(fixture);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(fds); i++) {
        close(fds[i]);
    }
}

static int attach_as(const struct host_lab *lab, uid_t uid)
{
    struct host_raw raw = {.id_next = 1};
    struct via_attach_answer answer;
    int fds[HOST_RAW_FDS_MAX];
    unsigned count;
    if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0) {
        return 100;
    }
    raw.fd = host_raw_connect(lab, 0);
    struct via_attach_request hello = host_raw_request(&raw, VIA_ATTACH_HELLO);
    if (raw.fd < 0 || host_raw_send(raw.fd, &hello, sizeof(hello), NULL, 0) != 0 ||
        host_raw_receive(raw.fd, &answer, fds, &count) != 0) {
        return 101;
    }
    if (answer.status != -EACCES || count != 0) {
        return 102;
    }
    json_t *request = json_pack("{s:s}", "cmd", "stop");
    json_t *ignored;
    struct via_error err;
    int rc = via_control_call(lab->rundir, 0, request, &ignored, &err, 60000);
    json_decref(request);
    return rc == -EREMOTEIO && strstr(err.text, "permission denied") != NULL ? 0 : 103;
}

static void other_users_are_refused_clearly(void **state)
{
    struct fixture *fixture = *state;
    if (geteuid() != 0) {
        skip(); /* only root can change its user */
    }
    /* The directory's mode alone would exclude other users: open it. */
    assert_int_equal(chmod(fixture->lab.rundir, 0755), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(attach_as(&fixture->lab, 65534));
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(host_lab_counter(&fixture->lab, 0, "attach_refused"), 1);
    assert_serves(fixture);
}

static void allow_nogroup(struct via_host_options *options)
{
    options->attach =
        (struct via_rights){.count = 1, .entries = {{.kind = VIA_RIGHTS_GROUP, .id = 65534}}};
}

static int attach_by_library(const struct host_lab *lab, uid_t uid, gid_t gid, gid_t other)
{
    struct via_attach_options options = {
        .size = sizeof(options), .rundir = lab->rundir, .host = 0, .channel = -1};
    struct via_attach *attach;
    if (setgroups(1, &other) != 0 || setresgid(gid, gid, gid) != 0 ||
        setresuid(uid, uid, uid) != 0) {
        return 100;
    }
    int rc = via_attach_open(&options, &attach);
    return rc == 0 ? 0 : rc == -EACCES ? 1 : 2;
}

static void members_of_the_allowed_group_may_attach(void **state)
{
    (void)state;
    static const struct {
        gid_t gid, other;
        int code;
    } cases[] = {{65534, 65000, 0}, {65000, 65534, 0}, {65000, 65000, 1}};
    struct host_lab lab;
    if (geteuid() != 0) {
        skip(); /* only root can change its user */
    }
    host_lab_init(&lab, 1, false, false);
    /* The host opens only a directory that it makes itself to the group. */
    assert_int_equal(rmdir(lab.rundir), 0);
    host_lab_start(&lab, 0, allow_nogroup);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(cases); i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            _exit(attach_by_library(&lab, 65534, cases[i].gid, cases[i].other));
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(WEXITSTATUS(status), cases[i].code);
    }
    host_lab_fini(&lab);
}

static void more_processes_than_there_may_be(void **state)
{
    struct fixture *fixture = *state;
    static struct host_raw raws[99];
    for (size_t i = 0; i < VIA_ARRAY_COUNT(raws); i++) {
        host_raw_open(&raws[i], &fixture->lab, 0);
    }
    assert_int_equal(host_lab_processes(&fixture->lab, 0), 100);
    struct host_raw one = {.fd = host_raw_connect(&fixture->lab, 0)};
    struct via_attach_request hello = host_raw_request(&one, VIA_ATTACH_HELLO);
    assert_int_equal(host_raw_request_wait(&one, &hello, -1, NULL), -EMFILE);
    close(one.fd);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(raws); i++) {
        struct via_reply reply;
        struct via_command command = put(fixture, 64 * i, 1);
        host_raw_command(&raws[i], &command, "z", 1);
        assert_true(host_raw_reply(&raws[i], &reply, NULL, 60000));
        assert_int_equal(reply.status, 0);
        assert_int_equal(((char *)fixture->base)[64 * i], 'z');
    }
    for (size_t i = 0; i < VIA_ARRAY_COUNT(raws); i++) {
        host_raw_close(&raws[i]);
    }
}

/* --- the bell --------------------------------------------------------------------------------- */

static void a_full_bell_blocks_no_thread(void **state)
{
    struct fixture *fixture = *state;
    struct epoll_event event = {.events = VIA_BELL_EVENTS};
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int bell_fd = fixture->raw.bell_fd;
    if (!bell_fill(bell_fd)) {
        skip();
    }
    assert_int_equal(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, bell_fd, &event), 0);
    assert_int_equal(epoll_wait(epoll_fd, &event, 1, 0), 1);

    struct host_raw other;
    struct via_reply reply;
    host_raw_open(&other, &fixture->lab, 0);
    for (unsigned i = 0; i < 3; i++) {
        struct via_command command = put(fixture, 8, 6);
        command.flags = VIA_FRAME_FLAG_NOTIFY;
        bell_fill(bell_fd);
        while (epoll_wait(epoll_fd, &event, 1, 0) == 1) {
        }
        host_raw_command(&other, &command, "alive", 6);
        assert_true(host_raw_reply(&other, &reply, NULL, 60000));
        assert_int_equal(epoll_wait(epoll_fd, &event, 1, 60000), 1);
    }
    host_raw_close(&other);
    close(epoll_fd);
    assert_serves(fixture);
}

/* --- memory ----------------------------------------------------------------------------------- */

static int add_segment(struct fixture *fixture, int fd, uint64_t bytes, uint32_t access)
{
    struct via_attach_request request = host_raw_request(&fixture->raw, VIA_ATTACH_SEGMENT_ADD);
    request.bytes = bytes;
    request.access = access;
    return host_raw_request_wait(&fixture->raw, &request, fd, NULL);
}

static void only_memory_that_can_not_shrink_is_taken(void **state)
{
    struct fixture *fixture = *state;
    int fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(add_segment(fixture, fd, 4096, VIA_SEGMENT_READ), -EPERM);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(add_segment(fixture, fd, 4097, VIA_SEGMENT_READ), -EINVAL);
    assert_int_equal(add_segment(fixture, fd, 0, VIA_SEGMENT_READ), -EINVAL);
    assert_int_equal(add_segment(fixture, fd, UINT64_MAX, VIA_SEGMENT_READ), -EINVAL);
    assert_int_equal(add_segment(fixture, fd, 4096, 0x80), -EINVAL);
    assert_int_equal(add_segment(fixture, -1, 4096, VIA_SEGMENT_READ), -EINVAL);
    assert_int_equal(add_segment(fixture, fixture->raw.bell_fd, 4096, VIA_SEGMENT_READ), -EINVAL);
    assert_int_equal(add_segment(fixture, fixture->raw.fd, 4096, VIA_SEGMENT_READ), -EINVAL);
    assert_int_equal(add_segment(fixture, fd, 4096, VIA_SEGMENT_READ), 0);
    /* Sealed against writing: the host could not store incoming data. */
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
    assert_int_equal(add_segment(fixture, fd, 4096, VIA_SEGMENT_READ), -EPERM);
    close(fd);
    assert_serves(fixture);
}

static void the_status_page_can_not_be_written(void **state)
{
    struct fixture *fixture = *state;
    int fd = fixture->raw.status_fd;
    assert_true(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    assert_int_equal(write(fd, "x", 1), -1);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(fixture->raw.status->magic, VIA_STATUS_MAGIC);
    assert_int_equal(via_status_hops(atomic_load(&fixture->raw.status->peers[1])), 1);
    assert_int_equal(via_status_hops(atomic_load(&fixture->raw.status->peers[2])),
                     VIA_STATUS_UNREACHABLE);
    assert_int_equal(atomic_load(&fixture->raw.status->peers[0]) & VIA_STATUS_DIRECT, 1);
    assert_int_equal(atomic_load(&fixture->raw.status->peers[1]) & VIA_STATUS_DIRECT, 0);
}

static void only_the_owner_removes_a_segment(void **state)
{
    struct fixture *fixture = *state;
    struct host_raw other;
    host_raw_open(&other, &fixture->lab, 0);
    struct via_attach_request request = host_raw_request(&other, VIA_ATTACH_SEGMENT_REMOVE);
    request.handle = fixture->handle;
    assert_int_equal(host_raw_request_wait(&other, &request, -1, NULL), -ENOENT);
    request = host_raw_request(&fixture->raw, VIA_ATTACH_SEGMENT_REMOVE);
    request.handle = fixture->handle ^ 1;
    assert_int_equal(host_raw_request_wait(&fixture->raw, &request, -1, NULL), -ENOENT);
    assert_serves(fixture);
    request.handle = fixture->handle;
    assert_int_equal(host_raw_request_wait(&fixture->raw, &request, -1, NULL), 0);
    assert_int_equal(host_raw_request_wait(&fixture->raw, &request, -1, NULL), -ENOENT);
    struct via_command command = put(fixture, 0, 1);
    assert_int_equal(status_of(fixture, &command, "x", 1), -EACCES);
    host_raw_close(&other);
}

static void maps_need_the_whole_handle(void **state)
{
    struct fixture *fixture = *state;
    struct via_attach_request request = host_raw_request(&fixture->raw, VIA_ATTACH_MAP);
    request.handle = fixture->handle;
    struct via_attach_answer answer;
    assert_int_equal(host_raw_request_wait(&fixture->raw, &request, -1, &answer), 0);
    assert_int_equal(answer.bytes, BYTES);
    for (unsigned bit = 0; bit < 64; bit++) {
        request.handle = fixture->handle ^ UINT64_C(1) << bit;
        assert_int_equal(host_raw_request_wait(&fixture->raw, &request, -1, NULL), -EACCES);
    }
    assert_int_equal(host_lab_counter(&fixture->lab, 0, "maps_refused"), 64);
    request.handle = fixture->handle;
    request.host = 1; /* behind a link without direct mapping */
    assert_int_equal(host_raw_request_wait(&fixture->raw, &request, -1, NULL), -EXDEV);
    request.host = 5; /* no such host */
    assert_int_equal(host_raw_request_wait(&fixture->raw, &request, -1, NULL), -EXDEV);
    request.host = 16; /* not an id of a host */
    assert_int_equal(host_raw_request_wait(&fixture->raw, &request, -1, NULL), -EHOSTUNREACH);
}

static void the_hosts_own_endpoints_are_out_of_reach(void **state)
{
    struct fixture *fixture = *state;
    static const uint32_t wrong[] = {0, 0xffffff00, UINT32_MAX};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(wrong); i++) {
        struct via_attach_request request =
            host_raw_request(&fixture->raw, VIA_ATTACH_ENDPOINT_OPEN);
        request.endpoint = wrong[i];
        assert_int_equal(host_raw_request_wait(&fixture->raw, &request, -1, NULL), -EINVAL);
    }
    struct via_command command = {.kind = VIA_OP_MESSAGE,
                                  .source = VIA_SOURCE_BODY,
                                  .destination = 1,
                                  .bytes = 24,
                                  .cookie = 5,
                                  .a.endpoint = 0xffffff00};
    unsigned char forged[24] = {3};
    assert_int_equal(status_of(fixture, &command, forged, sizeof(forged)), -EACCES);
    command.a.endpoint = 7;
    command.b.source_endpoint = 0xffffff00;
    assert_int_equal(status_of(fixture, &command, forged, sizeof(forged)), -EACCES);
    command.b.source_endpoint = UINT64_C(1) << 32;
    assert_int_equal(status_of(fixture, &command, forged, sizeof(forged)), -EINVAL);
}

static void board_requests_are_checked(void **state)
{
    struct fixture *fixture = *state;
    struct via_attach_request request = host_raw_request(&fixture->raw, VIA_ATTACH_BOARD_POST);
    request.host = 0;
    assert_int_equal(host_raw_request_wait(&fixture->raw, &request, -1, NULL), -EINVAL);
    request.key_bytes = 65;
    assert_int_equal(host_raw_request_wait(&fixture->raw, &request, -1, NULL), -EINVAL);
    request.key_bytes = 64;
    request.value_bytes = 513;
    assert_int_equal(host_raw_request_wait(&fixture->raw, &request, -1, NULL), -EINVAL);
    request.value_bytes = 512;
    request.host = 16;
    assert_int_equal(host_raw_request_wait(&fixture->raw, &request, -1, NULL), -EHOSTUNREACH);
    request.host = 0;
    request.ttl_ms = 60000;
    int rc = 0;
    unsigned count = 0;
    for (; rc == 0 && count < 100000; count++) {
        memcpy(request.key, &count, sizeof(count));
        rc = host_raw_request_wait(&fixture->raw, &request, -1, NULL);
    }
    assert_int_equal(rc, -ENOSPC);
    assert_in_range(count, 1000, 8193);
    request = host_raw_request(&fixture->raw, VIA_ATTACH_BOARD_TAKE);
    request.key_bytes = 65;
    assert_int_equal(host_raw_request_wait(&fixture->raw, &request, -1, NULL), -EINVAL);
    request.type = 99;
    assert_int_equal(host_raw_request_wait(&fixture->raw, &request, -1, NULL), -EINVAL);
}

/* --- commands --------------------------------------------------------------------------------- */

static void commands_out_of_bounds_fail_alone(void **state)
{
    struct fixture *fixture = *state;
    struct via_command command = put(fixture, 0, 9);
    assert_int_equal(status_of(fixture, &command, "12345678", 8), -EINVAL);
    command = put(fixture, BYTES - 4, 8);
    assert_int_equal(status_of(fixture, &command, "12345678", 8), -ERANGE);
    command = put(fixture, UINT64_MAX - 3, 8);
    assert_int_equal(status_of(fixture, &command, "12345678", 8), -ERANGE);
    command.destination = 16;
    assert_int_equal(status_of(fixture, &command, "12345678", 8), -EHOSTUNREACH);

    command = put(fixture, 0, 8);
    command.source = VIA_SOURCE_SEGMENT;
    command.a.source_segment = fixture->handle;
    command.b.source_offset = BYTES - 7;
    assert_int_equal(status_of(fixture, &command, NULL, 0), -ERANGE);
    command.b.source_offset = UINT64_MAX - 3;
    assert_int_equal(status_of(fixture, &command, NULL, 0), -ERANGE);
    command.a.source_segment = fixture->handle ^ UINT64_C(0x100000);
    command.b.source_offset = 0;
    assert_int_equal(status_of(fixture, &command, NULL, 0), -EACCES);

    command.kind = VIA_OP_GET;
    command.source = VIA_SOURCE_NONE;
    command.bytes = fixture->raw.welcome.reply.body_bytes_max + 1;
    assert_int_equal(status_of(fixture, &command, NULL, 0), -EMSGSIZE);
    command.source = VIA_SOURCE_BODY;
    assert_int_equal(status_of(fixture, &command, NULL, 0), -EINVAL);
    command.kind = 77;
    assert_int_equal(status_of(fixture, &command, NULL, 0), -EINVAL);
    command = put(fixture, 0, 8);
    command.flags = 0x80;
    assert_int_equal(status_of(fixture, &command, "12345678", 8), -EINVAL);
    command = (struct via_command){.kind = VIA_OP_ATOMIC,
                                   .atomic = VIA_ATOMIC_ADD,
                                   .segment = fixture->handle,
                                   .offset = 3,
                                   .cookie = 1};
    assert_int_not_equal(status_of(fixture, &command, NULL, 0), 0);
    command.atomic = 0x7f;
    command.offset = 0;
    assert_int_not_equal(status_of(fixture, &command, NULL, 0), 0);
    assert_serves(fixture);
}

/* A command with arbitrary bytes: the host answers or executes it, and continues to run. */
static void random_commands_do_no_harm(void **state)
{
    struct fixture *fixture = *state;
    struct via_rng rng;
    unsigned char body[1024];
    struct via_reply reply;
    via_rng_init(&rng, 20261121);
    for (unsigned i = 0; i < 20000; i++) {
        struct via_command command;
        uint64_t words[7];
        for (size_t k = 0; k < VIA_ARRAY_COUNT(words); k++) {
            words[k] = via_rng_next(&rng);
        }
        memcpy(&command, words, sizeof(command));
        for (size_t k = 0; k < sizeof(body); k++) {
            body[k] = (unsigned char)via_rng_next(&rng);
        }
        /* Makes the command nearly valid, often enough. */
        command.kind = (uint8_t)via_rng_below(&rng, 8);
        command.source = (uint8_t)via_rng_below(&rng, 4);
        command.flags &= (uint8_t)(via_rng_chance(&rng, 9, 10) ? 0x06 : 0xff);
        command.destination = (uint16_t)via_rng_below(&rng, 3);
        command.bytes = via_rng_chance(&rng, 1, 2) ? via_rng_below(&rng, 2048) : command.bytes;
        command.segment = via_rng_chance(&rng, 1, 2) ? fixture->handle : command.segment;
        command.offset = via_rng_chance(&rng, 1, 2) ? via_rng_below(&rng, BYTES) : command.offset;
        command.a.source_segment =
            via_rng_chance(&rng, 1, 2) ? fixture->handle : command.a.source_segment;
        if (command.kind == VIA_OP_BARRIER && via_rng_chance(&rng, 19, 20)) {
            command.bytes = UINT64_MAX; /* a command that waits forever would end the test */
        }
        if (command.destination == 2) {
            /* Nor to an address outside of the address space. */
            command.destination = 16 + command.destination;
        }
        /* If this process takes no replies, both pipes become full and stay full. */
        size_t bytes = via_rng_below(&rng, sizeof(body));
        uint64_t deadline_ns = host_lab_now_ns() + 60 * VIA_SEC_NS;
        while (via_pipe_send(&fixture->raw.commands[0], &command, sizeof(command), body, bytes) !=
               0) {
            via_pipe_request_room(&fixture->raw.commands[0]);
            (void)!host_raw_reply(&fixture->raw, &reply, NULL, 1);
            assert_true(host_lab_now_ns() < deadline_ns);
        }
        host_raw_ring(&fixture->raw, 0);
    }
    while (host_raw_reply(&fixture->raw, &reply, NULL, 100)) {
    }
    assert_serves(fixture);
}

/* A process may overwrite memory that is in use by its host: no other process is affected. */
static void pipes_that_break_the_rules_detach_their_process(void **state)
{
    struct fixture *fixture = *state;
    for (unsigned how = 0; how < 3; how++) {
        struct host_raw raw;
        struct via_command command = put(fixture, 0, 1);
        host_raw_open(&raw, &fixture->lab, 0);
        unsigned char *line = raw.memory + VIA_ATTACH_COMMAND_OFF + VIA_RECORD_LINE_BYTES;
        if (how == 0) { /* a body longer than the maximum */
            uint64_t word = via_record_word(VIA_ATTACH_EPOCH, 0xffff, 0);
            atomic_store((_Atomic uint64_t *)(void *)(line + VIA_RECORD_HEAD_BYTES), word);
            raw.commands[0].sequence++;
        } else if (how == 1) { /* returns credit for replies that were never sent */
            atomic_store((_Atomic uint64_t *)(void *)(raw.memory + VIA_ATTACH_REPLY_CREDIT_OFF),
                         via_credit_word(VIA_ATTACH_EPOCH, 0, UINT32_MAX / 2));
            for (unsigned i = 0; i < 300; i++) { /* more commands than there is room for replies */
                host_raw_command(&raw, &command, "x", 1);
            }
        } else { /* claims every slot repeatedly */
            for (unsigned i = 0; i < 100000; i++) {
                raw.commands[0].released = raw.commands[0].sequence;
                via_pipe_send(&raw.commands[0], &command, sizeof(command), NULL, 0);
                host_raw_ring(&raw, 0);
            }
        }
        host_raw_ring(&raw, 0);
        if (how != 2) {
            assert_true(is_hung_up_on(raw.fd));
        }
        host_raw_close(&raw);
        assert_serves(fixture);
    }
}

static void unread_replies_stop_only_their_process(void **state)
{
    struct fixture *fixture = *state;
    struct host_raw raw;
    enum { COUNT = 2000 };
    host_raw_open(&raw, &fixture->lab, 0);
    /* As many as fit: 256 commands whose replies wait, and as many replies in the pipe. */
    unsigned sent = 0;
    uint64_t quiet_ns = host_lab_now_ns();
    while (sent < COUNT && host_lab_now_ns() - quiet_ns < 200 * VIA_MSEC_NS) {
        struct via_command command = put(fixture, 128, 8);
        command.cookie = sent + 1;
        if (via_pipe_send(&raw.commands[0], &command, sizeof(command), "12345678", 8) == 0) {
            sent++;
            quiet_ns = host_lab_now_ns();
        } else {
            via_pipe_request_room(&raw.commands[0]);
        }
        host_raw_ring(&raw, 0);
    }
    assert_in_range(sent, 256, 600);
    assert_serves(fixture);
    for (unsigned i = 0; i < sent; i++) {
        struct via_reply reply;
        assert_true(host_raw_reply(&raw, &reply, NULL, 60000));
        assert_int_equal(reply.cookie, i + 1);
        assert_int_equal(reply.status, 0);
    }
    host_raw_close(&raw);
}

/* Runs as a user that can not have more descriptors under way than RLIMIT_NOFILE. */
static void set_may_exceed_limits(bool may)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2];
    uint32_t exceeding = 1u << CAP_SYS_RESOURCE | 1u << CAP_SYS_ADMIN;
    assert_int_equal(syscall(SYS_capget, &header, caps), 0);
    caps[0].effective &= ~exceeding;
    caps[0].effective |= may ? caps[0].permitted & exceeding : 0;
    assert_int_equal(syscall(SYS_capset, &header, caps), 0);
}

static int set_up_limited(void **state)
{
    set_may_exceed_limits(false); /* the hosts' threads, too */
    int rc = set_up(state);
    set_may_exceed_limits(true);
    return rc;
}

static struct via_attach_request map_own(struct fixture *fixture, struct host_raw *raw)
{
    struct via_attach_request request = host_raw_request(raw, VIA_ATTACH_MAP);
    request.host = 0;
    request.handle = fixture->handle;
    return request;
}

static bool is_refused(void *ctx)
{
    struct fixture *fixture = ctx;
    struct via_attach_answer answer;
    struct via_attach_request request = map_own(fixture, &fixture->raw);
    int rc = host_raw_request_wait(&fixture->raw, &request, -1, &answer);
    assert_true(rc == 0 || rc == -EXDEV);
    return rc == -EXDEV;
}

/* The kernel counts descriptors in flight for the sending user, for all receivers together. Each
 * process has at most 32 of them under way (test_host_sends.c), so the limit takes several
 * processes. */
static void a_process_that_takes_no_descriptors_detaches_no_other(void **state)
{
    struct fixture *fixture = *state;
    struct host_raw raws[10];
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    struct rlimit low = {.rlim_cur = 200, .rlim_max = limit.rlim_max};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(raws); i++) {
        host_raw_open(&raws[i], &fixture->lab, 0);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (unsigned i = 0; i < 40 * VIA_ARRAY_COUNT(raws); i++) {
        struct host_raw *raw = &raws[i % VIA_ARRAY_COUNT(raws)];
        struct via_attach_request request = map_own(fixture, raw);
        assert_int_equal(host_raw_send(raw->fd, &request, sizeof(request), NULL, 0), 0);
    }
    host_lab_wait(is_refused, fixture, "too many descriptors under way");
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(raws); i++) {
        host_raw_close(&raws[i]);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_false(is_refused(fixture));
    assert_serves(fixture);
}

/* Submits operations of every kind, as many as the pipe holds, for a host that does not come up. */
static void wait_for_absent_host(struct host_raw *raw)
{
    static const uint8_t kinds[] = {VIA_OP_PUT, VIA_OP_GET, VIA_OP_ATOMIC, VIA_OP_MESSAGE};
    for (unsigned i = 0; i < 256; i++) {
        struct via_command command = {.kind = kinds[i % VIA_ARRAY_COUNT(kinds)],
                                      .source = VIA_SOURCE_NONE,
                                      .atomic = VIA_ATOMIC_ADD,
                                      .destination = 1,
                                      .segment = 1,
                                      .cookie = 1,
                                      .a.endpoint = 1};
        command.bytes = command.kind == VIA_OP_GET ? 100 : 0;
        assert_int_equal(via_pipe_send(&raw->commands[0], &command, sizeof(command), NULL, 0), 0);
    }
    host_raw_ring(raw, 0);
}

static void a_wait_for_an_absent_host_delays_no_other_process(void **state)
{
    struct fixture *fixture = *state;
    static struct host_raw raws[90];
    host_lab_cut(&fixture->lab, 0, 1, "cut");
    host_lab_wait_hops(&fixture->lab, 0, 1, -1);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(raws); i++) {
        host_raw_open(&raws[i], &fixture->lab, 0);
        wait_for_absent_host(&raws[i]);
    }
    assert_serves(fixture);
    struct via_command command = put(fixture, 0, 100);
    command.kind = VIA_OP_GET;
    command.source = VIA_SOURCE_NONE;
    assert_int_equal(status_of(fixture, &command, NULL, 0), 0);
    /* The host comes up later: every operation ends, with any result. */
    host_lab_cut(&fixture->lab, 0, 1, "mend");
    for (size_t i = 0; i < VIA_ARRAY_COUNT(raws); i++) {
        struct via_reply reply;
        for (unsigned k = 0; k < 256; k++) {
            assert_true(host_raw_reply(&raws[i], &reply, NULL, 60000));
        }
        host_raw_close(&raws[i]);
    }
}

static void impatient(struct via_host_options *options)
{
    options->give_up_ns = 3 * VIA_SEC_NS;
}

/* On direct connections, too, where the process itself waits. */
static void processes_wait_as_long_as_their_host(void **state)
{
    struct fixture *fixture = *state;
    struct via_attach *attach = host_lab_attach(&fixture->lab, 0);
    assert_int_equal(attach->tcp_lost_ns_max, VIA_CLIENT_TCP_LOST_NS_MAX);
    via_attach_close(attach);
    host_lab_end(&fixture->lab, 1);
    host_lab_start(&fixture->lab, 1, impatient);
    attach = host_lab_attach(&fixture->lab, 1);
    assert_int_equal(attach->tcp_lost_ns_max, 3 * VIA_SEC_NS);
    via_attach_close(attach);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(another_version_gets_the_version_of_the_host, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_invalid_request_ends_only_its_connection, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(silent_connections_exclude_no_process, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_users_are_refused_clearly, set_up, tear_down),
        cmocka_unit_test(members_of_the_allowed_group_may_attach),
        cmocka_unit_test_setup_teardown(processes_wait_as_long_as_their_host, set_up, tear_down),
        cmocka_unit_test_setup_teardown(more_processes_than_there_may_be, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_bell_blocks_no_thread, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_memory_that_can_not_shrink_is_taken, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_status_page_can_not_be_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_the_owner_removes_a_segment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(maps_need_the_whole_handle, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_hosts_own_endpoints_are_out_of_reach, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(board_requests_are_checked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(commands_out_of_bounds_fail_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(random_commands_do_no_harm, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pipes_that_break_the_rules_detach_their_process, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_wait_for_an_absent_host_delays_no_other_process, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(unread_replies_stop_only_their_process, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_process_that_takes_no_descriptors_detaches_no_other,
                                        set_up_limited, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
