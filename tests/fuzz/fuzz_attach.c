/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Input of a process to its host: requests and descriptors on the attach socket, commands in its
 * pipe, arbitrary writes to the memory it shares with the host. The host continues to serve a
 * process that obeys the rules.
 *
 * The hosts and their threads live on between inputs; the remains of an input are cleaned up during
 * the next one. Run it with -detect_leaks=0.
 *
 * Input: steps, each a byte with the kind, then its numbers (input_edgy) and bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "port/bell.h"
#include "tests/fuzz/input.h"
#include "tests/system/host_raw.h"

#define STEPS_MAX 64u
#define SEGMENT_BYTES 8192u
#define HANDLES_MAX 8u
#define WAIT_MS 60000

static struct host_lab lab; /* two hosts; each may map the other's memory */
static struct host_raw good;
static uint64_t good_handle; /* of a segment that others may write to */
static void *own_base;
static uint64_t own_handle; /* ... and of one that no other process knows */
static int fds[6];          /* to be passed on */

struct client {
    struct host_raw raw;
    uint64_t handles[HANDLES_MAX]; /* of segments; the first is the good process's, the
                                       second its own */
    unsigned handles_count;
    bool open;
};

static int sealed_memory(size_t bytes, int seals)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    require(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static void end(void)
{
    host_lab_fini(&lab);
}

static void begin(void)
{
    host_lab_init(&lab, 2, false, true);
    host_lab_start_all(&lab);
    atexit(end);
    host_raw_open(&good, &lab, 0);
    good_handle = host_raw_segment(&good, SEGMENT_BYTES, &own_base);
    own_handle = host_raw_segment(&good, SEGMENT_BYTES, &own_base);
    fds[0] = sealed_memory(SEGMENT_BYTES, F_SEAL_SHRINK);
    fds[1] = sealed_memory(SEGMENT_BYTES, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    fds[2] = sealed_memory(SEGMENT_BYTES, 0);
    fds[3] = sealed_memory(SEGMENT_BYTES, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE);
    fds[4] = eventfd(0, EFD_CLOEXEC);
    fds[5] = dup(good.fd); /* a socket, and the pidfd of another process */
}

/* --- the process ----------------------------------------------------------------------------- */

static void connect_client(struct client *client)
{
    /* Clients of earlier inputs may not be removed yet, so the limit may be reached. */
    for (int i = 0; !client->open; i++) {
        int rc = host_raw_try_open(&client->raw, &lab, 0);
        require((rc == 0 || rc == -EMFILE) && i < WAIT_MS);
        client->open = rc == 0;
        poll(NULL, 0, rc == 0 ? 0 : 1);
    }
    void *base;
    client->handles[0] = good_handle;
    client->handles[1] = host_raw_segment(&client->raw, SEGMENT_BYTES, &base);
    munmap(base, SEGMENT_BYTES);
    client->handles_count = 2;
}

static void disconnect_client(struct client *client)
{
    if (client->open) {
        host_raw_close(&client->raw);
        client->open = false;
    }
}

/* Receives the answers that have arrived. */
static void take_answers(struct client *client)
{
    struct via_attach_answer answer;
    int got[HOST_RAW_FDS_MAX];
    unsigned count;
    struct pollfd pollfd = {.fd = client->raw.fd, .events = POLLIN};
    while (poll(&pollfd, 1, 0) == 1) {
        if (host_raw_receive(client->raw.fd, &answer, got, &count) != 0) {
            disconnect_client(client); /* the host has closed the connection */
            return;
        }
        for (unsigned i = 0; i < count; i++) {
            close(got[i]);
        }
        require(answer.magic == VIA_ATTACH_MAGIC && answer.status <= 0);
        require(answer.value_bytes <= sizeof(answer.value));
        if (answer.type == VIA_ATTACH_SEGMENT_ADD && answer.status == 0 &&
            client->handles_count < HANDLES_MAX) {
            client->handles[client->handles_count++] = answer.handle;
        }
    }
}

/* Waits until the host has handled all earlier input: in each turn it serves all requests and
 * commands. */
static void let_host_work(void)
{
    struct via_attach_request request = host_raw_request(&good, VIA_ATTACH_BOARD_TAKE);
    struct via_reply reply;
    struct via_command command = {.kind = VIA_OP_PUT,
                                  .source = VIA_SOURCE_BODY,
                                  .segment = own_handle,
                                  .offset = 8,
                                  .bytes = 8,
                                  .cookie = 1};
    static uint64_t number;
    request.key_bytes = sizeof(request.key);
    /* No process has posted a note under this key. */
    memset(request.key, 0xee, sizeof(request.key));
    require(host_raw_request_wait(&good, &request, -1, NULL) == -ENOENT);
    number++;
    host_raw_command(&good, &command, &number, sizeof(number));
    require(host_raw_reply(&good, &reply, NULL, WAIT_MS));
    require(reply.status == 0 && reply.cookie == 1);
    require(memcmp((const char *)own_base + 8, &number, sizeof(number)) == 0);
}

/* --- steps ----------------------------------------------------------------------------------- */

static uint64_t some_handle(const struct client *client, struct input *input)
{
    uint8_t byte = input_byte(input);
    uint64_t handle = client->handles[byte % client->handles_count];
    return (byte & 0x80) != 0 ? handle ^ input_edgy(input) : handle;
}

static unsigned some_fds(struct input *input, int ret_fds[HOST_RAW_FDS_MAX])
{
    uint8_t byte = input_byte(input);
    unsigned count = byte < 0xc0 ? byte >> 7 : byte % (HOST_RAW_FDS_MAX + 1);
    for (unsigned i = 0; i < count; i++) {
        ret_fds[i] = fds[(byte + i) % 6];
    }
    return count;
}

static void send_request(struct client *client, struct input *input)
{
    struct via_attach_request request = host_raw_request(&client->raw, VIA_ATTACH_HELLO);
    int passed[HOST_RAW_FDS_MAX];
    uint8_t odd = input_byte(input);
    request.type = input_byte(input) % 10;
    request.host = input_byte(input) % 4;
    request.handle = some_handle(client, input);
    request.bytes = input_edgy(input);
    request.access = input_byte(input) & ((odd & 1) != 0 ? 0xff : 3);
    request.endpoint = (uint32_t)input_edgy(input);
    request.channel = (int32_t)input_edgy(input);
    request.ttl_ms = (uint32_t)input_edgy(input);
    request.key_bytes = (uint16_t)input_edgy(input);
    request.value_bytes = (uint32_t)input_edgy(input);
    input_take(input, request.key, 4);
    unsigned count = some_fds(input, passed);
    if ((odd & 0x30) == 0x30) {
        request.version = (uint16_t)input_edgy(input);
    }
    if ((odd & 0xc0) == 0xc0) {
        request.magic = (uint32_t)input_edgy(input);
    }
    size_t bytes = (odd & 0x0e) == 0x0e ? input_edgy(input) % sizeof(request) : sizeof(request);
    (void)host_raw_send(client->raw.fd, &request, bytes, passed, count);
}

static void command(struct client *client, struct input *input)
{
    static unsigned char body[4096];
    uint8_t odd = input_byte(input);
    struct via_command command = {
        .kind = input_byte(input) % ((odd & 1) != 0 ? 255 : 7),
        .flags = input_byte(input) & ((odd & 2) != 0 ? 0xff : 6),
        .atomic = input_byte(input),
        .source = input_byte(input) % 4,
        .destination = input_byte(input) % ((odd & 4) != 0 ? 17 : 2),
        .flow = (uint16_t)input_edgy(input),
        .bytes = input_edgy(input),
        .segment = some_handle(client, input),
        .offset = input_edgy(input),
        .cookie = input_byte(input),
    };
    command.a.source_segment = (odd & 8) != 0 ? some_handle(client, input) : input_edgy(input);
    command.b.source_offset = input_edgy(input);
    size_t bytes = input_edgy(input) % (sizeof(body) + 1);
    if ((odd & 16) != 0) {
        command.bytes = bytes;
    }
    if (command.kind == VIA_OP_BARRIER) {
        const uint16_t all[] = {0, 1};
        memcpy(body, all, sizeof(all));
    } else {
        input_take(input, body, 8);
    }
    unsigned channel = input_byte(input) % client->raw.welcome.channels_count;
    (void)via_pipe_send(&client->raw.commands[channel], &command, sizeof(command), body, bytes);
    if ((odd & 0x80) == 0) {
        host_raw_ring(&client->raw, channel);
    }
}

/* Writes a word anywhere in the shared memory, often at a place that the host reads. */
static void poke(struct client *client, struct input *input)
{
    uint8_t where = input_byte(input);
    uint64_t word = input_edgy(input);
    unsigned channel = where & 1;
    const struct via_pipe_writer *writer = &client->raw.commands[channel];
    uint64_t area = (uint64_t)channel * client->raw.welcome.area_bytes;
    uint64_t off;
    switch (where >> 1 & 3) {
    case 0:
        off = area + VIA_ATTACH_REPLY_CREDIT_OFF;
        word = (where & 0x80) != 0 ? word : via_credit_word(VIA_ATTACH_EPOCH, 1, (uint32_t)word);
        break;
    case 1:
        off = area + VIA_ATTACH_COMMAND_OFF;
        word = (where & 0x80) != 0 ? word : via_credit_word(VIA_ATTACH_EPOCH, 1, (uint32_t)word);
        break;
    case 2:
        off = area + VIA_ATTACH_COMMAND_OFF + 64 +
              (uint64_t)(writer->sequence % writer->geometry.slots_count) * 64 + 56;
        word = (where & 0x80) != 0
                   ? word
                   : via_record_word(VIA_ATTACH_EPOCH, (uint16_t)word, writer->sequence);
        break;
    default:
        off = input_word(input) % (client->raw.memory_bytes - sizeof(word)) & ~UINT64_C(7);
    }
    atomic_store((_Atomic uint64_t *)(void *)(client->raw.memory + off), word);
    if ((where & 0x40) != 0) {
        via_bell_ring(&client->raw.bells[channel]);
    }
}

/* Fills the command pipe as if the host had returned all credit. */
static void overrun(struct client *client, struct input *input)
{
    struct via_pipe_writer *writer = &client->raw.commands[0];
    for (uint64_t i = input_edgy(input) % 1024; i != 0; i--) {
        struct via_command command = {.kind = VIA_OP_PUT,
                                      .segment = client->handles[0],
                                      .cookie = i,
                                      .destination = (uint16_t)(i & 1)};
        writer->released = writer->sequence;
        (void)via_pipe_send(writer, &command, sizeof(command), NULL, 0);
    }
    host_raw_ring(&client->raw, 0);
}

static void take_replies(struct client *client)
{
    struct via_pipe_reader *replies = &client->raw.replies[0];
    struct via_pipe_record record;
    /* The client may have overwritten them itself. */
    for (unsigned i = 0; i < 64 && via_pipe_take(replies, &record) == 1; i++) {
        via_pipe_release(replies, 1);
    }
    if (via_pipe_take_writer_ring(replies)) {
        via_bell_ring(&client->raw.bells[0]);
    }
}

static void step(struct client *client, struct input *input)
{
    uint8_t what = input_byte(input);
    if (!client->open) {
        connect_client(client);
    }
    switch (what & 7) {
    case 0:
    case 1:
        send_request(client, input);
        break;
    case 2:
    case 3:
        command(client, input);
        break;
    case 4:
        poke(client, input);
        break;
    case 5:
        take_replies(client);
        break;
    case 6:
        let_host_work();
        take_answers(client);
        break;
    default:
        if ((what & 0x78) == 0) {
            disconnect_client(client);
        } else if ((what & 0x78) == 8) {
            overrun(client, input);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, bytes};
    struct client client = {.open = false};
    if (lab.hosts_count == 0) {
        begin();
    }
    for (unsigned i = 0; i < STEPS_MAX && input.bytes != 0; i++) {
        step(&client, &input);
    }
    let_host_work();
    disconnect_client(&client);
    let_host_work();
    return 0;
}
