/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "tests/unit/fake_host.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fds.h"
#include "core/node.h"
#include "host/client_sys.h"
#include "wire/frame.h"

static int sealed(size_t bytes, void *ret_base)
{
    int fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    assert(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert(base != MAP_FAILED);
    memcpy(ret_base, &base, sizeof(base));
    return fd;
}

static size_t area_bytes(const struct fake_host *fake)
{
    size_t bytes = VIA_ATTACH_COMMAND_OFF + 2 * via_pipe_memory_bytes(&fake->geometry);
    return (bytes + 4095) & ~(size_t)4095;
}

static void pipes_init(struct fake_host *fake)
{
    memset(fake->memory, 0, fake->memory_bytes);
    for (unsigned i = 0; i < FAKE_CHANNELS; i++) {
        unsigned char *area = fake->memory + i * area_bytes(fake);
        unsigned char *commands = area + VIA_ATTACH_COMMAND_OFF;
        struct via_pipe_target credit = {.direct = area + VIA_ATTACH_COMMAND_CREDIT_OFF};
        struct via_pipe_target replies = {
            .direct = commands + via_pipe_memory_bytes(&fake->geometry),
        };
        via_pipe_reader_init(&fake->commands[i], &fake->geometry, commands, &credit,
                             VIA_ATTACH_EPOCH);
        via_pipe_writer_init(&fake->replies[i], &fake->geometry, &replies,
                             (const _Atomic uint64_t *)(void *)(area + VIA_ATTACH_REPLY_CREDIT_OFF),
                             fake->data_ends[i], VIA_ATTACH_EPOCH);
    }
}

static _Atomic uint64_t *life_of(struct fake_host *fake, uint64_t handle)
{
    unsigned index = via_segment_handle_index(handle);
    assert(index < FAKE_LIVES);
    return &fake->lives[index];
}

static struct fake_segment *segment_of(struct fake_host *fake, uint64_t handle)
{
    for (unsigned i = 0; i < FAKE_SEGMENTS; i++) {
        if (handle != 0 && fake->segments[i].handle == handle) {
            return &fake->segments[i];
        }
    }
    return NULL;
}

static struct fake_segment *segment_add(struct fake_host *fake, uint64_t handle, int memfd,
                                        size_t bytes)
{
    for (unsigned i = 0; i < FAKE_SEGMENTS; i++) {
        struct fake_segment *segment = &fake->segments[i];
        if (segment->handle == 0) {
            void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
            void *view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
            assert(base != MAP_FAILED && view != MAP_FAILED);
            *segment = (struct fake_segment){
                .handle = handle,
                .base = base,
                .view = view,
                .bytes = bytes,
                .memfd = memfd,
                .bell_fd = via_sys_bell_new(),
                .life = ++fake->life_last,
            };
            *life_of(fake, handle) = segment->life;
            return segment;
        }
    }
    return NULL;
}

static void segment_remove(struct fake_host *fake, struct fake_segment *segment)
{
    *life_of(fake, segment->handle) = 0;
    munmap(segment->base, segment->bytes);
    munmap(segment->view, segment->bytes);
    close(segment->memfd);
    close(segment->bell_fd);
    *segment = (struct fake_segment){0};
}

/* --- the socket --------------------------------------------------------------------------------*/

static void answer_send(struct fake_host *fake, struct via_attach_answer *answer, const int *fds,
                        unsigned fds_count)
{
    struct iovec iov = {.iov_base = answer, .iov_len = sizeof(*answer)};
    VIA_FDS_SPACE(4) space = {0};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    via_fds_add(&message, &space, fds, fds_count);
    answer->magic = VIA_ATTACH_MAGIC;
    answer->version = (uint16_t)fake->version;
    (void)!sendmsg(fake->socket_fd, &message, MSG_NOSIGNAL);
}

static void hello(struct fake_host *fake, struct via_attach_answer *answer)
{
    pipes_init(fake);
    fake->greeted = true;
    answer->host = (uint16_t)fake->host;
    answer->channels_count = FAKE_CHANNELS;
    answer->hosts_max = 16;
    answer->area_bytes = (uint32_t)area_bytes(fake);
    answer->message_bytes_max = FAKE_BODY_BYTES;
    answer->command = fake->geometry;
    answer->reply = fake->geometry;
    const int fds[] = {fake->memory_fd, fake->status_fd, fake->bells_fd, fake->bell_fd};
    answer_send(fake, answer, fds, 4);
}

static void map(struct fake_host *fake, const struct via_attach_request *message,
                struct via_attach_answer *answer)
{
    const struct fake_segment *segment = segment_of(fake, message->handle);
    fake->maps_count++;
    answer->status = fake->map_status != 0 ? fake->map_status : segment == NULL ? -ENOENT : 0;
    if (answer->status != 0) {
        answer_send(fake, answer, NULL, 0);
        return;
    }
    answer->bytes = segment->bytes;
    answer->life = segment->life;
    const int fds[] = {segment->memfd, segment->bell_fd, fake->lives_fd};
    answer_send(fake, answer, fds, 3);
}

static void slice(struct fake_host *fake, const struct via_attach_request *message,
                  struct via_attach_answer *answer)
{
    const struct fake_segment *segment = segment_of(fake, message->handle);
    fake->slices_count++;
    answer->status = fake->slice_status != 0 ? fake->slice_status : segment == NULL ? -EACCES : 0;
    if (answer->status != 0) {
        answer_send(fake, answer, NULL, 0);
        return;
    }
    unsigned index = (unsigned)(message->bytes / fake->slice_bytes);
    struct via_attach_slice slice = {
        .off = index * fake->slice_bytes,
        .bytes = fake->slice_bytes,
        .slice_bytes = fake->slice_bytes,
        .fd_off = index * fake->slice_bytes,
        .life = ++fake->slice_life_last,
        .word = FAKE_SLICE_WORD + index,
        .busy = index + 1,
        .link = fake->slice_link,
        .read_ns = fake->slice_read_ns,
        .flags = fake->slice_flags,
    };
    fake->status->slices[slice.word] = slice.life;
    const unsigned char *lie = (const unsigned char *)&fake->slice_lie;
    memcpy(answer->value, &slice, sizeof(slice));
    for (size_t i = 0; i < sizeof(slice); i++) {
        answer->value[i] ^= lie[i];
    }
    int fd = fake->slice_fd_instead != 0 ? fake->slice_fd_instead : segment->memfd;
    answer_send(fake, answer, &fd, fake->slice_without_fd ? 0 : 1);
}

static void direct(struct fake_host *fake, const struct via_attach_request *message,
                   struct via_attach_answer *answer)
{
    struct via_attach_direct content = {.where = fake->tcp,
                                        .card = fake->direct_card,
                                        .keeps = fake->direct_keeps,
                                        .kept_layout = fake->direct_kept_layout};
    struct via_attach_position position = {.position = 0};
    bool is_position_request = message->key_bytes != 0;
    const void *value = is_position_request ? (const void *)&position : &content;
    answer->status = fake->direct_status;
    answer->value_bytes = is_position_request ? sizeof(position) : sizeof(content);
    memcpy(answer->value, value, answer->value_bytes);
    fake->directs_count++;
}

static void board(struct fake_host *fake, const struct via_attach_request *message,
                  struct via_attach_answer *answer)
{
    if (message->type == VIA_ATTACH_BOARD_POST) {
        memcpy(fake->note_key, message->key, message->key_bytes);
        fake->note_key_bytes = message->key_bytes;
        memcpy(fake->note, message->value, message->value_bytes);
        fake->note_bytes = message->value_bytes;
        fake->note_hangs = true;
        return;
    }
    if (!fake->note_hangs || fake->note_key_bytes != message->key_bytes ||
        memcmp(fake->note_key, message->key, message->key_bytes) != 0) {
        answer->status = -ENOENT;
        return;
    }
    fake->note_hangs = false;
    memcpy(answer->value, fake->note, fake->note_bytes);
    answer->value_bytes = fake->note_bytes;
}

static void request(struct fake_host *fake, const struct via_attach_request *message, int fd)
{
    struct via_attach_answer answer = {.type = message->type, .id = message->id};
    static uint64_t handle_next = UINT64_C(0x100000);
    struct fake_segment *segment;
    switch (message->type) {
    case VIA_ATTACH_HELLO:
        hello(fake, &answer);
        return;
    case VIA_ATTACH_MAP:
        map(fake, message, &answer);
        return;
    case VIA_ATTACH_SLICE:
        slice(fake, message, &answer);
        return;
    case VIA_ATTACH_SEGMENT_ADD:
        answer.handle = ++handle_next;
        answer.status = segment_add(fake, answer.handle, fd, message->bytes) == NULL ? -ENOSPC : 0;
        break;
    case VIA_ATTACH_SEGMENT_REMOVE:
        segment = segment_of(fake, message->handle);
        if (segment != NULL) {
            segment_remove(fake, segment);
        }
        answer.status = segment == NULL ? -ENOENT : 0;
        break;
    case VIA_ATTACH_ENDPOINT_OPEN:
        answer.status = message->endpoint == 13 ? -EADDRINUSE : 0;
        break;
    case VIA_ATTACH_TCP:
        answer.status = fake->tcp_status;
        memcpy(answer.value, &fake->tcp, sizeof(fake->tcp));
        break;
    case VIA_ATTACH_DIRECT:
        direct(fake, message, &answer);
        break;
    case VIA_ATTACH_BOARD_POST:
    case VIA_ATTACH_BOARD_TAKE:
        board(fake, message, &answer);
        break;
    }
    answer_send(fake, &answer, NULL, 0);
}

/* False: the process has closed the connection. */
static bool request_take(struct fake_host *fake)
{
    struct via_attach_request content;
    struct iovec iov = {.iov_base = &content, .iov_len = sizeof(content)};
    VIA_FDS_SPACE(1) space;
    struct msghdr message = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = &space,
        .msg_controllen = sizeof(space),
    };
    ssize_t bytes = recvmsg(fake->socket_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (bytes <= 0) {
        return bytes < 0 && errno == EAGAIN;
    }
    int fd = -1;
    (void)via_fds_next(&message, &(struct via_fds_place){0}, &fd);
    if (!fake->mute) {
        request(fake, &content, fd);
    } else if (fd >= 0) {
        close(fd);
    }
    return true;
}

/* --- commands ----------------------------------------------------------------------------------*/

static uint64_t update(void *at, const struct via_command *command)
{
    bool narrow = (command->atomic & VIA_ATOMIC_32) != 0;
    uint64_t old = narrow ? *(uint32_t *)at : *(uint64_t *)at;
    uint64_t value = old;
    switch (command->atomic & ~VIA_ATOMIC_32) {
    case VIA_ATOMIC_ADD:
        value = old + command->a.operand;
        break;
    case VIA_ATOMIC_SWAP:
        value = command->a.operand;
        break;
    case VIA_ATOMIC_COMPARE_SWAP:
        value = old == command->b.compare ? command->a.operand : old;
        break;
    }
    if (narrow) {
        *(uint32_t *)at = (uint32_t)value;
    } else {
        *(uint64_t *)at = value;
    }
    return old;
}

static const void *source_of(struct fake_host *fake, const struct via_command *command,
                             const void *body)
{
    if (command->source == VIA_SOURCE_SEGMENT) {
        struct fake_segment *own = segment_of(fake, command->a.source_segment);
        assert(own != NULL);
        return own->base + command->b.source_offset;
    }
    return body;
}

static void put(struct fake_host *fake, const struct via_command *command,
                struct fake_segment *segment, const void *body)
{
    if (command->bytes != 0) {
        memcpy(segment->base + command->offset, source_of(fake, command, body), command->bytes);
    }
    if (command->kind == VIA_OP_PUT_SIGNAL) {
        uint64_t signal = command->a.signal_offset;
        uint64_t *word = (uint64_t *)(void *)(segment->base + (signal & ~VIA_FRAME_SIGNAL_ADD));
        uint64_t base = (signal & VIA_FRAME_SIGNAL_ADD) != 0 ? *word : 0;
        __atomic_store_n(word, base + command->b.signal_value, __ATOMIC_RELEASE);
    }
    if ((command->flags & VIA_FRAME_FLAG_NOTIFY) != 0) {
        via_sys_bell_ring(segment->bell_fd);
    }
}

/* Executes the command and fills in the reply; a get's data are in *ret_data. */
static void execute(struct fake_host *fake, const struct via_command *command, const void *body,
                    struct via_reply *reply, const void **ret_data)
{
    struct fake_segment *segment = segment_of(fake, command->segment);
    bool needs_segment = command->kind == VIA_OP_PUT || command->kind == VIA_OP_PUT_SIGNAL ||
                         command->kind == VIA_OP_PUT_STRIDED || command->kind == VIA_OP_GET ||
                         command->kind == VIA_OP_ATOMIC;
    reply->status = fake->command_status;
    if (reply->status == 0 && needs_segment && segment == NULL) {
        reply->status = -EACCES;
    }
    if (reply->status != 0) {
        return;
    }
    switch (command->kind) {
    case VIA_OP_PUT:
    case VIA_OP_PUT_SIGNAL:
        put(fake, command, segment, body);
        break;
    case VIA_OP_PUT_STRIDED:
        for (uint64_t i = 0; i < command->bytes / command->b.block_bytes; i++) {
            memcpy(segment->base + command->offset + command->a.step * i,
                   (const unsigned char *)body + i * command->b.block_bytes,
                   command->b.block_bytes);
        }
        break;
    case VIA_OP_GET:
        if (command->source == VIA_SOURCE_SEGMENT) {
            struct fake_segment *own = segment_of(fake, command->a.source_segment);
            memcpy(own->base + command->b.source_offset, segment->base + command->offset,
                   command->bytes);
        } else {
            reply->kind = VIA_REPLY_DATA;
            reply->bytes = command->bytes;
            *ret_data = segment->base + command->offset;
        }
        break;
    case VIA_OP_ATOMIC:
        reply->value = update(segment->base + command->offset, command);
        break;
    }
}

static void ring_process(struct fake_host *fake)
{
    via_sys_bell_ring(fake->bell_fd);
}

/* Takes one command of a channel; false: there is none, or no room for its reply. */
static bool command_take(struct fake_host *fake, unsigned channel)
{
    struct via_pipe_reader *commands = &fake->commands[channel];
    struct via_pipe_record record;
    if (!via_pipe_writer_has_place(&fake->replies[channel], FAKE_BODY_BYTES) ||
        via_pipe_take(commands, &record) != 1) {
        return false;
    }
    struct via_command command;
    memcpy(&command, record.head, sizeof(command));
    unsigned seen = fake->commands_count;
    if (seen < FAKE_LOG) {
        fake->log[seen] = command;
    }
    struct via_reply reply = {.kind = VIA_REPLY_COMPLETE, .cookie = command.cookie};
    const void *data = NULL;
    execute(fake, &command, record.body, &reply, &data);
    fake->commands_count = seen + 1;
    via_pipe_release(commands, 1);
    int rc = via_pipe_send(&fake->replies[channel], &reply, sizeof(reply), data, reply.bytes);
    assert(rc == 0);
    (void)rc;
    bool ring = via_pipe_take_writer_ring(commands);
    if (via_pipe_take_reader_ring(&fake->replies[channel]) || ring) {
        ring_process(fake);
    }
    return true;
}

/* --- the thread --------------------------------------------------------------------------------*/

static bool serve(struct fake_host *fake)
{
    bool busy = false;
    if (fake->socket_fd >= 0 && !request_take(fake)) {
        close(fake->socket_fd);
        fake->socket_fd = -1;
        fake->greeted = false;
    }
    for (unsigned i = 0; i < FAKE_CHANNELS && fake->greeted && !fake->hold; i++) {
        while (!fake->hold && command_take(fake, i)) {
            busy = true;
        }
        via_pipe_arm(&fake->commands[i]);
    }
    return busy;
}

static void *run(void *ctx)
{
    struct fake_host *fake = ctx;
    while (!fake->stop) {
        struct pollfd fds[2] = {
            {.fd = fake->listen_fd, .events = POLLIN},
            {.fd = fake->socket_fd, .events = POLLIN},
        };
        poll(fds, 2, 1);
        pthread_mutex_lock(&fake->lock);
        if (fake->socket_fd < 0 && (fds[0].revents & POLLIN) != 0) {
            fake->socket_fd = accept4(fake->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        }
        serve(fake);
        pthread_mutex_unlock(&fake->lock);
    }
    return NULL;
}

struct fake_segment *fake_host_peer_add(struct fake_host *fake, uint64_t handle, size_t bytes)
{
    void *base;
    int memfd = sealed(bytes, &base);
    munmap(base, bytes);
    return segment_add(fake, handle, memfd, bytes);
}

void fake_host_start(struct fake_host *fake, unsigned host)
{
    memset(fake, 0, sizeof(*fake));
    fake->host = host;
    fake->socket_fd = -1;
    fake->version = VIA_ATTACH_VERSION;
    fake->geometry = (struct via_pipe_geometry){
        .slots_count = FAKE_SLOTS,
        .data_bytes = FAKE_DATA_BYTES,
        .body_bytes_max = FAKE_BODY_BYTES,
    };
    strcpy(fake->rundir, "/tmp/via-test-XXXXXX");
    assert(mkdtemp(fake->rundir) != NULL);
    snprintf(fake->path, sizeof(fake->path), "%s/host-%u.attach", fake->rundir, host);
    pthread_mutex_init(&fake->lock, NULL);

    fake->lives_fd = sealed(FAKE_LIVES * sizeof(*fake->lives), &fake->lives);
    fake->status_fd = sealed(sizeof(*fake->status), &fake->status);
    fake->status->magic = VIA_STATUS_MAGIC;
    fake->bells_fd = sealed(4096, &fake->bells);
    fake->memory_bytes = area_bytes(fake) * FAKE_CHANNELS + VIA_ATTACH_TAIL_BYTES;
    fake->memory_fd = sealed(fake->memory_bytes, &fake->memory);
    fake->busy = (struct via_slice_busy *)(void *)(fake->memory + area_bytes(fake) * FAKE_CHANNELS);
    fake->slice_bytes = FAKE_SLICE_BYTES;
    fake->bell_fd = via_sys_bell_new();
    fake_host_peer_add(fake, FAKE_PEER_HANDLE, FAKE_PEER_BYTES);
    fake_host_set_way(fake, host, 1, 1, 0, true);

    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, fake->path, strlen(fake->path) + 1);
    fake->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert(bind(fake->listen_fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    assert(listen(fake->listen_fd, 4) == 0);
    assert(pthread_create(&fake->thread, NULL, run, fake) == 0);
}

void fake_host_die(struct fake_host *fake)
{
    pthread_mutex_lock(&fake->lock);
    if (fake->socket_fd >= 0) {
        close(fake->socket_fd);
        fake->socket_fd = -1;
        fake->greeted = false;
    }
    if (fake->listen_fd >= 0) {
        close(fake->listen_fd);
        fake->listen_fd = -1;
    }
    pthread_mutex_unlock(&fake->lock);
}

void fake_host_stop(struct fake_host *fake)
{
    fake->stop = true;
    pthread_join(fake->thread, NULL);
    fake_host_die(fake);
    for (unsigned i = 0; i < FAKE_SEGMENTS; i++) {
        if (fake->segments[i].handle != 0) {
            segment_remove(fake, &fake->segments[i]);
        }
    }
    munmap(fake->status, sizeof(*fake->status));
    munmap((void *)fake->lives, FAKE_LIVES * sizeof(*fake->lives));
    munmap(fake->bells, 4096);
    munmap(fake->memory, fake->memory_bytes);
    close(fake->status_fd);
    close(fake->lives_fd);
    close(fake->bells_fd);
    close(fake->memory_fd);
    close(fake->bell_fd);
    unlink(fake->path);
    rmdir(fake->rundir);
    pthread_mutex_destroy(&fake->lock);
}

void fake_host_set_card(struct fake_host *fake, const struct via_tcp_card *card)
{
    pthread_mutex_lock(&fake->lock);
    fake->direct_card = *card;
    pthread_mutex_unlock(&fake->lock);
}

void fake_host_set_address(struct fake_host *fake, const char *address)
{
    pthread_mutex_lock(&fake->lock);
    strcpy(fake->tcp.local, address);
    strcpy(fake->tcp.peer, address);
    pthread_mutex_unlock(&fake->lock);
}

void fake_host_set_way(struct fake_host *fake, unsigned host, uint32_t session, uint16_t generation,
                       unsigned hops, bool direct)
{
    atomic_store(&fake->status->peers[host], via_status_word(session, generation, hops, direct));
    ring_process(fake);
}

void fake_host_set_slices(struct fake_host *fake, unsigned host, uint32_t session,
                          uint16_t generation, bool slices)
{
    atomic_store(&fake->status->peers[host],
                 via_status_word(session, generation, 1, false) | (slices ? VIA_STATUS_SLICES : 0));
    ring_process(fake);
}

void fake_host_revoke(struct fake_host *fake, unsigned slice, bool gone)
{
    _Atomic uint64_t *word = &fake->status->slices[FAKE_SLICE_WORD + slice];
    atomic_store(word, gone ? atomic_load(word) | VIA_SLICE_GONE : 0);
}

bool fake_host_message(struct fake_host *fake, uint32_t endpoint, const void *data, size_t bytes)
{
    struct via_reply reply = {
        .kind = VIA_REPLY_MESSAGE,
        .source_host = FAKE_PEER,
        .endpoint = endpoint,
        .source_endpoint = 9,
        .bytes = bytes,
    };
    if (bytes <= sizeof(reply.data)) {
        reply.inline_bytes = (uint8_t)bytes;
        memcpy(reply.data, data, bytes);
        bytes = 0;
    }
    pthread_mutex_lock(&fake->lock);
    int rc = via_pipe_send(&fake->replies[1], &reply, sizeof(reply), data, bytes);
    if (rc == 0 && via_pipe_take_reader_ring(&fake->replies[1])) {
        ring_process(fake);
    }
    pthread_mutex_unlock(&fake->lock);
    return rc == 0;
}

struct fake_segment *fake_host_peer(struct fake_host *fake)
{
    pthread_mutex_lock(&fake->lock);
    struct fake_segment *segment = segment_of(fake, FAKE_PEER_HANDLE);
    pthread_mutex_unlock(&fake->lock);
    return segment;
}
