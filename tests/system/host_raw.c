/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "tests/system/host_raw.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fds.h"
#include "host/rundir.h"
#include "port/bell.h"

int host_raw_connect(const struct host_lab *lab, unsigned host)
{
    struct via_rundir_path path;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (via_rundir_attach_path(lab->rundir, host, &path, NULL) != 0) {
        return -1;
    }
    memcpy(address.sun_path, path.text, sizeof(path.text));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        int code = errno;
        close(fd);
        errno = code;
        return -1;
    }
    return fd;
}

struct via_attach_request host_raw_request(struct host_raw *raw, enum via_attach_type type)
{
    return (struct via_attach_request){.magic = VIA_ATTACH_MAGIC,
                                       .version = VIA_ATTACH_VERSION,
                                       .type = (uint16_t)type,
                                       .id = raw->id_next++,
                                       .channel = -1};
}

int host_raw_send(int fd, const void *request, size_t bytes, const int *fds, unsigned fds_count)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)request, .iov_len = bytes};
    VIA_FDS_SPACE(HOST_RAW_FDS_MAX) control = {0};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    via_fds_add(&message, &control, fds, fds_count);
    return sendmsg(fd, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int host_raw_receive(int fd, struct via_attach_answer *ret_answer, int *ret_fds,
                     unsigned *ret_fds_count)
{
    struct iovec iov = {.iov_base = ret_answer, .iov_len = sizeof(*ret_answer)};
    VIA_FDS_SPACE(HOST_RAW_FDS_MAX) control;
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    if (poll(&pollfd, 1, 60000) != 1) {
        return -ETIMEDOUT;
    }
    ssize_t bytes = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    *ret_fds_count = 0;
    if (bytes <= 0) {
        return -ECONNRESET;
    }
    struct via_fds_place place = {0};
    while (*ret_fds_count < HOST_RAW_FDS_MAX &&
           via_fds_next(&message, &place, &ret_fds[*ret_fds_count])) {
        ++*ret_fds_count;
    }
    return (size_t)bytes == sizeof(*ret_answer) ? 0 : -EPROTO;
}

int host_raw_request_wait(struct host_raw *raw, const struct via_attach_request *request, int fd,
                          struct via_attach_answer *ret_answer)
{
    struct via_attach_answer answer;
    int fds[HOST_RAW_FDS_MAX];
    unsigned fds_count;
    int rc = host_raw_send(raw->fd, request, sizeof(*request), &fd, fd >= 0 ? 1 : 0);
    if (rc == 0) {
        rc = host_raw_receive(raw->fd, &answer, fds, &fds_count);
    }
    if (rc != 0) {
        return -ECONNRESET;
    }
    for (unsigned i = 0; i < fds_count; i++) {
        close(fds[i]);
    }
    assert_int_equal(answer.id, request->id);
    assert_int_equal(answer.type, request->type);
    if (ret_answer != NULL) {
        *ret_answer = answer;
    }
    return answer.status;
}

static void *map_shared(int fd, size_t bytes, int prot)
{
    void *base = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
    assert_true(base != MAP_FAILED);
    return base;
}

static void open_channel(struct host_raw *raw, unsigned channel)
{
    const struct via_attach_answer *welcome = &raw->welcome;
    unsigned char *area = raw->memory + (size_t)channel * welcome->area_bytes;
    unsigned char *reply_memory =
        area + VIA_ATTACH_COMMAND_OFF + via_pipe_memory_bytes(&welcome->command);
    struct via_pipe_target target = {.direct = area + VIA_ATTACH_COMMAND_OFF};
    struct via_pipe_target credit = {.direct = area + VIA_ATTACH_REPLY_CREDIT_OFF};
    via_pipe_writer_init(
        &raw->commands[channel], &welcome->command, &target,
        (const _Atomic uint64_t *)(const void *)(area + VIA_ATTACH_COMMAND_CREDIT_OFF),
        raw->data_ends + channel * welcome->command.slots_count, VIA_ATTACH_EPOCH);
    via_pipe_reader_init(&raw->replies[channel], &welcome->reply, reply_memory, &credit,
                         VIA_ATTACH_EPOCH);
}

int host_raw_try_open(struct host_raw *raw, const struct host_lab *lab, unsigned host)
{
    int fds[HOST_RAW_FDS_MAX];
    unsigned fds_count;
    *raw = (struct host_raw){.fd = host_raw_connect(lab, host), .id_next = 1};
    assert_true(raw->fd >= 0);
    struct via_attach_request hello = host_raw_request(raw, VIA_ATTACH_HELLO);
    assert_int_equal(host_raw_send(raw->fd, &hello, sizeof(hello), NULL, 0), 0);
    assert_int_equal(host_raw_receive(raw->fd, &raw->welcome, fds, &fds_count), 0);
    if (raw->welcome.status != 0) {
        assert_int_equal(fds_count, 0);
        close(raw->fd);
        return raw->welcome.status;
    }
    assert_int_equal(fds_count, 4);
    raw->memory_bytes =
        (size_t)raw->welcome.area_bytes * raw->welcome.channels_count + VIA_ATTACH_TAIL_BYTES;
    raw->memory = map_shared(fds[0], raw->memory_bytes, PROT_READ | PROT_WRITE);
    raw->status = map_shared(fds[1], sizeof(*raw->status), PROT_READ);
    raw->bells = map_shared(fds[2], 4096, PROT_READ | PROT_WRITE);
    raw->status_fd = fds[1];
    raw->bell_fd = fds[3];
    close(fds[0]);
    close(fds[2]);
    raw->data_ends = calloc((size_t)raw->welcome.channels_count * raw->welcome.command.slots_count,
                            sizeof(uint32_t));
    for (unsigned i = 0; i < raw->welcome.channels_count; i++) {
        open_channel(raw, i);
    }
    return 0;
}

void host_raw_open(struct host_raw *raw, const struct host_lab *lab, unsigned host)
{
    assert_int_equal(host_raw_try_open(raw, lab, host), 0);
}

void host_raw_close(struct host_raw *raw)
{
    munmap(raw->memory, raw->memory_bytes);
    munmap((void *)(uintptr_t)raw->status, sizeof(*raw->status));
    munmap(raw->bells, 4096);
    close(raw->status_fd);
    close(raw->bell_fd);
    close(raw->fd);
    free(raw->data_ends);
}

uint64_t host_raw_segment(struct host_raw *raw, size_t bytes, void **ret_base)
{
    struct via_attach_answer answer;
    int fd = memfd_create("raw", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    *ret_base = map_shared(fd, bytes, PROT_READ | PROT_WRITE);
    struct via_attach_request request = host_raw_request(raw, VIA_ATTACH_SEGMENT_ADD);
    request.bytes = bytes;
    request.access = VIA_SEGMENT_READ | VIA_SEGMENT_WRITE;
    assert_int_equal(host_raw_request_wait(raw, &request, fd, &answer), 0);
    close(fd);
    return answer.handle;
}

void host_raw_ring(struct host_raw *raw, unsigned channel)
{
    if (via_pipe_take_reader_ring(&raw->commands[channel])) {
        via_bell_ring(&raw->bells[channel]);
    }
}

void host_raw_command(struct host_raw *raw, const struct via_command *command, const void *body,
                      size_t body_bytes)
{
    uint64_t deadline_ns = host_lab_now_ns() + 60 * VIA_SEC_NS;
    for (;;) {
        int rc = via_pipe_send(&raw->commands[0], command, sizeof(*command), body, body_bytes);
        if (rc == 0) {
            break;
        }
        assert_int_equal(rc, -EAGAIN);
        assert_true(host_lab_now_ns() < deadline_ns);
        via_pipe_request_room(&raw->commands[0]);
        poll(NULL, 0, 1);
    }
    host_raw_ring(raw, 0);
}

bool host_raw_reply(struct host_raw *raw, struct via_reply *ret_reply, void *ret_body,
                    int timeout_ms)
{
    uint64_t deadline_ns = host_lab_now_ns() + (uint64_t)timeout_ms * VIA_MSEC_NS;
    struct via_pipe_record record;
    int rc;
    while ((rc = via_pipe_take(&raw->replies[0], &record)) == 0) {
        if (host_lab_now_ns() >= deadline_ns) {
            return false;
        }
        poll(NULL, 0, 1);
    }
    assert_int_equal(rc, 1);
    memcpy(ret_reply, record.head, sizeof(*ret_reply));
    if (ret_body != NULL && record.body_bytes != 0) {
        memcpy(ret_body, record.body, record.body_bytes);
    }
    via_pipe_release(&raw->replies[0], 1);
    if (via_pipe_take_writer_ring(&raw->replies[0])) {
        via_bell_ring(&raw->bells[0]);
    }
    return true;
}
