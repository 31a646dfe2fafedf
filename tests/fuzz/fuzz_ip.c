/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Writes of another host's viaduct-ip: frames, an inbox, credit, hellos.
 *
 * Input: a byte with the kind; then for a frame two bytes with the length of the missing rest, and
 * its beginning; for an inbox the writes with their places, and tails; else numbers, or a message.
 */
#include <errno.h>
#include <linux/virtio_net.h>

#include "base/types.h"
#include "ip/hello.h"
#include "ip/packet.h"
#include "ip/ring.h"
#include "tests/fuzz/input.h"

#define RING_BYTES VIA_IP_RING_BYTES_MIN
#define WRITES_MAX 16u
#define READS_MAX 64u

static unsigned get_le16(const uint8_t *bytes)
{
    return (unsigned)bytes[1] << 8 | bytes[0];
}

/* A packet for the kernel: all offsets in its header lie within the packet. */
static void judge_accepted(const uint8_t *head, size_t frame_bytes)
{
    size_t packet_bytes = frame_bytes - VIA_IP_VNET_BYTES;
    unsigned type = head[1] & ~(unsigned)VIRTIO_NET_HDR_GSO_ECN;
    require(get_le16(head + 2) <= packet_bytes);
    if ((head[0] & VIRTIO_NET_HDR_F_NEEDS_CSUM) != 0) {
        require(get_le16(head + 6) + get_le16(head + 8) + 2u <= packet_bytes);
    }
    if (type != VIRTIO_NET_HDR_GSO_NONE) {
        require((head[0] & VIRTIO_NET_HDR_F_NEEDS_CSUM) != 0 && get_le16(head + 4) != 0);
    }
}

static void take_frame(struct input *input)
{
    uint16_t more;
    struct via_ip_packet packet;
    input_take(input, &more, sizeof(more));
    size_t frame_bytes = input->bytes + (input->bytes >= VIA_IP_HEAD_BYTES ? more : 0);
    size_t head_bytes = via_min(frame_bytes, (size_t)VIA_IP_HEAD_BYTES);
    uint8_t *head = malloc(head_bytes != 0 ? head_bytes : 1); /* of that size, for the sanitizer */
    require(head != NULL);
    input_take(input, head, head_bytes);
    if (via_ip_packet_parse(head, head_bytes, frame_bytes, &packet) == VIA_IP_DROP_NONE) {
        require(packet.version == 4 || packet.version == 6);
        if (packet.version == 6) {
            require(packet.source6 >= head && packet.destination6 + 16 <= head + head_bytes);
        }
        if (via_ip_packet_check_offload(head, head_bytes, frame_bytes, &packet) ==
            VIA_IP_DROP_NONE) {
            judge_accepted(head, frame_bytes);
        }
    }
    free(head);
}

/* Each frame that comes out is read, so that the sanitizer checks it. */
static void read_all(struct via_ip_ring_reader *reader, uint64_t tail)
{
    for (unsigned i = 0; i < READS_MAX; i++) {
        const uint8_t *frame;
        size_t bytes;
        uint64_t end;
        unsigned sum = 0;
        int rc = via_ip_ring_next(reader, tail, &frame, &bytes, &end);
        if (rc != 1) {
            require(rc == 0 || rc == -EPROTO);
            return;
        }
        require(bytes >= 1 && bytes <= VIA_IP_FRAME_BYTES_MAX && end - reader->head <= RING_BYTES);
        for (size_t at = 0; at < bytes; at++) {
            sum += frame[at];
        }
        require(sum <= bytes * UINT8_MAX);
        reader->head = end;
    }
}

static void take_inbox(struct input *input)
{
    uint8_t *data = calloc(1, RING_BYTES); /* no bytes after it */
    require(data != NULL);
    struct via_ip_ring_reader reader = {.data = data, .ring_bytes = RING_BYTES};
    reader.head = (input_word(input) & (RING_BYTES / 64 - 1)) * 64;
    for (unsigned i = 0; i < WRITES_MAX && input->bytes != 0; i++) {
        uint64_t at = (reader.head + 64 * (input_word(input) & 0xffff)) & (RING_BYTES - 1);
        uint32_t word;
        input_take(input, &word, sizeof(word));
        memcpy(data + at, &word, sizeof(word));
        if ((input_byte(input) & 1) != 0) {
            read_all(&reader, reader.head + input_edgy(input) * 64);
        }
    }
    read_all(&reader, reader.head + RING_BYTES);
    free(data);
}

static void take_credit(struct input *input)
{
    struct via_ip_ring_writer writer = {.ring_bytes = RING_BYTES};
    for (unsigned i = 0; i < WRITES_MAX; i++) {
        uint64_t off;
        uint64_t skip;
        size_t bytes = 1 + (input_word(input) & 0xffff);
        if (via_ip_ring_reserve(&writer, via_min(bytes, (size_t)VIA_IP_RECORD_BYTES_MAX), &off,
                                &skip) == 0) {
            require(off + bytes <= RING_BYTES && (skip == UINT64_MAX || skip < RING_BYTES));
        }
        (void)!via_ip_ring_take_credit(&writer, input_edgy(input) * 64);
        require(writer.tail - writer.credit <= RING_BYTES);
    }
}

static void take_hello(struct input *input)
{
    struct via_ip_hello hello;
    uint16_t version = VIA_IP_HELLO_VERSION;
    int rc = via_ip_hello_check(input->data, input->bytes, &hello, &version);
    require((rc == -EPROTONOSUPPORT) == (version != VIA_IP_HELLO_VERSION));
    if (rc == 0) {
        require(hello.queues >= 1 && hello.queues <= VIA_IP_QUEUES_MAX);
        require(hello.type > VIA_IP_HELLO_ACCEPT || via_ip_ring_is_size(hello.ring_bytes));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, bytes};
    switch (input_byte(&input) & 3) {
    case 0:
        take_frame(&input);
        break;
    case 1:
        take_inbox(&input);
        break;
    case 2:
        take_credit(&input);
        break;
    default:
        take_hello(&input);
    }
    return 0;
}
