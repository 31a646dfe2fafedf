/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Addresses, frames, inboxes and hellos of IP over the fabric. */
#include <errno.h>
#include <linux/virtio_net.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "ip/address.h"
#include "ip/hello.h"
#include "ip/packet.h"
#include "ip/ring.h"
#include "ip/unreachable.h"

#define RING_BYTES VIA_IP_RING_BYTES_MIN

/* --- addresses ------------------------------------------------------------------------------- */

static struct via_ip_network make_network(const char *four, const char *six)
{
    struct via_ip_network network = {0};
    struct via_error err = {0};
    assert_int_equal(via_ip_network_parse4(four, &network, &err), 0);
    assert_int_equal(via_ip_network_parse6(six, &network, &err), 0);
    return network;
}

static void an_address_is_the_network_plus_the_id(void **state)
{
    (void)state;
    struct via_ip_network network = make_network("10.78.0.0/16", "fd76:6961::/64");
    assert_int_equal(via_ip_address4(&network, 5), 0x0a4e0005);
    assert_int_equal(via_ip_address4(&network, 300), 0x0a4e012c);
    for (unsigned host = 1; host < 1024; host++) {
        uint8_t six[16];
        via_ip_address6(&network, host, six);
        assert_int_equal(via_ip_host_of4(&network, via_ip_address4(&network, host)), host);
        assert_int_equal(via_ip_host_of6(&network, six), host);
    }
}

static void other_addresses_are_no_hosts(void **state)
{
    (void)state;
    struct via_ip_network network = make_network("10.78.1.0/24", "fd00::/64");
    uint8_t six[16];
    assert_int_equal(via_ip_host_of4(&network, 0x0a4e0100), -1); /* the network */
    assert_int_equal(via_ip_host_of4(&network, 0x0a4e01ff), -1); /* its broadcast address */
    assert_int_equal(via_ip_host_of4(&network, 0x0a4e0200), -1);
    assert_int_equal(via_ip_host_of4(&network, 0x0a4e00ff), -1);
    assert_int_equal(via_ip_host_of4(&network, 0), -1);
    assert_int_equal(via_ip_host_of4(&network, 0x0a4e0101), 1);
    assert_int_equal(via_ip_host_of4(&network, 0x0a4e01fe), 254);
    assert_false(via_ip_network_has4(&network, 0));
    assert_false(via_ip_network_has4(&network, 255));
    assert_false(via_ip_network_has4(&network, 300));
    for (unsigned byte = 0; byte < 14; byte++) {
        via_ip_address6(&network, 7, six);
        six[byte] ^= 1;
        assert_int_equal(via_ip_host_of6(&network, six), -1);
    }
    network = make_network("10.78.1.0/24", "none");
    via_ip_address6(&network, 7, six);
    assert_int_equal(via_ip_host_of6(&network, six), -1);
}

static void packets_for_many_are_known(void **state)
{
    (void)state;
    struct via_ip_network network = make_network("10.78.0.0/16", "fd76:6961::/64");
    uint8_t six[16] = {0xff, 2};
    assert_true(via_ip_is_multicast4(&network, 0xe0000001));
    assert_true(via_ip_is_multicast4(&network, 0xffffffff));
    assert_true(via_ip_is_multicast4(&network, 0x0a4effff));
    assert_false(via_ip_is_multicast4(&network, 0x0a4e0001));
    assert_true(via_ip_is_multicast6(six));
    six[0] = 0xfd;
    assert_false(via_ip_is_multicast6(six));
}

static void bad_networks_are_refused(void **state)
{
    (void)state;
    static const char *const four[] = {"",
                                       "10.78.0.0",
                                       "10.78.0.0/",
                                       "10.78.0.0/7",
                                       "10.78.0.0/31",
                                       "10.78.0.1/16",
                                       "127.0.0.0/8",
                                       "224.0.0.0/8",
                                       "0.0.0.0/8",
                                       "10.78.0/16",
                                       "10.78.0.0/1x",
                                       "fd00::/64",
                                       "10.78.0.0/ 16",
                                       "10.78.0.0/-1"};
    static const char *const six[] = {"",          "fd00::",    "fd00::/113", "fd00::1/64",
                                      "fe80::/64", "ff02::/64", "::/64",      "10.0.0.0/16"};
    struct via_ip_network network;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(four); i++) {
        struct via_error err = {0};
        assert_int_equal(via_ip_network_parse4(four[i], &network, &err), -EINVAL);
        assert_memory_equal(err.text, "network '", 9);
    }
    for (size_t i = 0; i < VIA_ARRAY_COUNT(six); i++) {
        struct via_error err = {0};
        assert_int_equal(via_ip_network_parse6(six[i], &network, &err), -EINVAL);
        assert_memory_equal(err.text, "network '", 9);
    }
}

/* --- frames ---------------------------------------------------------------------------------- */

struct frame {
    uint8_t bytes[4096];
    size_t count;
};

static void put_be16(uint8_t *at, size_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void put_le16(uint8_t *at, size_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

/* A TCP segment of 10.78.0.2 for 10.78.0.1, or fd76:6961::2 for ::1, as a TUN device gives it. */
static struct frame make_tcp(unsigned version, size_t payload, unsigned gso_type)
{
    struct frame frame = {0};
    uint8_t *ip = frame.bytes + VIA_IP_VNET_BYTES;
    size_t header = version == 4 ? 20 : 40;
    size_t bytes = header + 20 + payload;
    if (version == 4) {
        ip[0] = 0x45;
        put_be16(ip + 2, bytes);
        ip[9] = 6;
        memcpy(ip + 12, "\x0a\x4e\0\x02\x0a\x4e\0\x01", 8);
    } else {
        ip[0] = 0x60;
        put_be16(ip + 4, bytes - 40);
        ip[6] = 6;
        memcpy(ip + 8, "\xfd\x76\x69\x61\0\0\0\0\0\0\0\0\0\0\0\x02", 16);
        memcpy(ip + 24, "\xfd\x76\x69\x61\0\0\0\0\0\0\0\0\0\0\0\x01", 16);
    }
    ip[header + 12] = 0x50;
    frame.bytes[0] = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    frame.bytes[1] = (uint8_t)gso_type;
    put_le16(frame.bytes + 2, header + 20);
    put_le16(frame.bytes + 4, gso_type != VIRTIO_NET_HDR_GSO_NONE ? 1000 : 0);
    put_le16(frame.bytes + 6, header);
    put_le16(frame.bytes + 8, 16);
    frame.count = VIA_IP_VNET_BYTES + bytes;
    return frame;
}

static enum via_ip_drop judge(const struct frame *frame)
{
    struct via_ip_packet packet;
    size_t head_bytes = via_min(frame->count, (size_t)VIA_IP_HEAD_BYTES);
    uint8_t *head = malloc(head_bytes); /* exactly, for the sanitizer */
    memcpy(head, frame->bytes, head_bytes);
    enum via_ip_drop why = via_ip_packet_parse(head, head_bytes, frame->count, &packet);
    if (why == VIA_IP_DROP_NONE) {
        why = via_ip_packet_check_offload(head, head_bytes, frame->count, &packet);
    }
    free(head);
    return why;
}

static void frames_of_a_device_pass(void **state)
{
    (void)state;
    struct frame frame = make_tcp(4, 3000, VIRTIO_NET_HDR_GSO_TCPV4);
    struct via_ip_packet packet;
    assert_int_equal(via_ip_packet_parse(frame.bytes, VIA_IP_HEAD_BYTES, frame.count, &packet),
                     VIA_IP_DROP_NONE);
    assert_int_equal(packet.version, 4);
    assert_int_equal(packet.source4, 0x0a4e0002);
    assert_int_equal(packet.destination4, 0x0a4e0001);
    assert_int_equal(judge(&frame), VIA_IP_DROP_NONE);
    frame.bytes[1] |= VIRTIO_NET_HDR_GSO_ECN;
    assert_int_equal(judge(&frame), VIA_IP_DROP_NONE);
    frame = make_tcp(6, 3000, VIRTIO_NET_HDR_GSO_TCPV6);
    assert_int_equal(judge(&frame), VIA_IP_DROP_NONE);
    frame = make_tcp(6, 0, VIRTIO_NET_HDR_GSO_NONE);
    assert_int_equal(judge(&frame), VIA_IP_DROP_NONE);
    memset(frame.bytes, 0, VIA_IP_VNET_BYTES);
    assert_int_equal(judge(&frame), VIA_IP_DROP_NONE);
}

/* One byte of a valid frame, and the error if it has another value. */
static void assert_change(struct frame frame, size_t at, uint8_t value, enum via_ip_drop why)
{
    frame.bytes[at] = value;
    assert_int_equal(judge(&frame), why);
}

static void lengths_that_do_not_fit_are_malformed(void **state)
{
    (void)state;
    const struct frame four = make_tcp(4, 100, VIRTIO_NET_HDR_GSO_NONE);
    const struct frame six = make_tcp(6, 100, VIRTIO_NET_HDR_GSO_NONE);
    for (size_t count = 0; count < four.count; count++) {
        struct frame cut = four;
        cut.count = count;
        assert_int_equal(judge(&cut), VIA_IP_DROP_MALFORMED);
        cut = six;
        cut.count = count;
        assert_int_equal(judge(&cut), VIA_IP_DROP_MALFORMED);
    }
    const size_t ip = VIA_IP_VNET_BYTES;
    assert_change(four, ip, 0x44, VIA_IP_DROP_MALFORMED);
    assert_change(four, ip, 0x55, VIA_IP_DROP_MALFORMED);
    assert_change(four, ip, 0x00, VIA_IP_DROP_MALFORMED);
    assert_change(four, ip + 2, 1, VIA_IP_DROP_MALFORMED);
    assert_change(six, ip + 4, 1, VIA_IP_DROP_MALFORMED);
    struct via_ip_packet packet;
    assert_int_equal(
        via_ip_packet_parse(four.bytes, VIA_IP_HEAD_BYTES, VIA_IP_FRAME_BYTES_MAX + 1, &packet),
        VIA_IP_DROP_MALFORMED);
}

static void offload_headers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const struct frame plain = make_tcp(4, 100, VIRTIO_NET_HDR_GSO_NONE);
    const struct frame large = make_tcp(4, 3000, VIRTIO_NET_HDR_GSO_TCPV4);
    const size_t ip = VIA_IP_VNET_BYTES;
    assert_change(plain, 0, 4, VIA_IP_DROP_OFFLOAD);    /* an unknown flag */
    assert_change(plain, 3, 0xff, VIA_IP_DROP_OFFLOAD); /* headers longer than the packet */
    assert_change(plain, 6, 0, VIA_IP_DROP_OFFLOAD);    /* a checksum of the IP header */
    assert_change(plain, 7, 1, VIA_IP_DROP_OFFLOAD);    /* ... behind the packet */
    assert_change(plain, 8, 12, VIA_IP_DROP_OFFLOAD);   /* ... in no field of TCP or UDP */
    assert_change(plain, 9, 0xff, VIA_IP_DROP_OFFLOAD);
    assert_change(plain, 1, VIRTIO_NET_HDR_GSO_ECN, VIA_IP_DROP_OFFLOAD);
    assert_change(large, 0, 0, VIA_IP_DROP_OFFLOAD); /* segments without a checksum */
    assert_change(large, 1, VIRTIO_NET_HDR_GSO_TCPV6, VIA_IP_DROP_OFFLOAD);
    assert_change(large, 1, VIRTIO_NET_HDR_GSO_UDP, VIA_IP_DROP_OFFLOAD);
    assert_change(large, 1, 5, VIA_IP_DROP_OFFLOAD); /* of UDP, but it is TCP */
    assert_change(large, 1, 0x7f, VIA_IP_DROP_OFFLOAD);
    assert_change(large, 5, 0xff, VIA_IP_DROP_OFFLOAD); /* segments longer than the packet */
    assert_change(large, ip + 9, 17, VIA_IP_DROP_OFFLOAD);
    assert_change(large, ip + 6, 0x20, VIA_IP_DROP_OFFLOAD); /* a fragment */
    assert_change(large, ip + 32, 0x40, VIA_IP_DROP_OFFLOAD);
    struct frame none = large;
    put_le16(none.bytes + 4, 0);
    assert_int_equal(judge(&none), VIA_IP_DROP_OFFLOAD);
}

static void no_bytes_are_read_beyond(void **state)
{
    (void)state;
    struct via_rng rng;
    via_rng_init(&rng, 17);
    for (unsigned i = 0; i < 200000; i++) {
        bool four = via_rng_below(&rng, 2) == 0;
        struct frame frame = make_tcp(four ? 4 : 6, via_rng_below(&rng, 300),
                                      four ? VIRTIO_NET_HDR_GSO_TCPV4 : VIRTIO_NET_HDR_GSO_TCPV6);
        for (unsigned n = via_rng_below(&rng, 4); n != 0; n--) {
            frame.bytes[via_rng_below(&rng, 80)] = (uint8_t)via_rng_below(&rng, 256);
        }
        frame.count = via_rng_below(&rng, 8) == 0 ? via_rng_below(&rng, 100) : frame.count;
        (void)judge(&frame); /* the sanitizer checks */
    }
}

/* --- inboxes --------------------------------------------------------------------------------- */

struct pair {
    struct via_ip_ring_writer writer;
    struct via_ip_ring_reader reader;
    uint8_t data[RING_BYTES];
};

static struct pair *make_pair(void)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    assert_non_null(pair);
    pair->writer.ring_bytes = RING_BYTES;
    pair->reader = (struct via_ip_ring_reader){.data = pair->data, .ring_bytes = RING_BYTES};
    return pair;
}

static int write_frame(struct pair *pair, uint32_t bytes, uint8_t value)
{
    uint64_t off;
    uint64_t skip;
    int rc = via_ip_ring_reserve(&pair->writer, VIA_IP_RECORD_HEADER_BYTES + bytes, &off, &skip);
    if (rc != 0) {
        return rc;
    }
    assert_true(off + VIA_IP_RECORD_HEADER_BYTES + bytes <= RING_BYTES);
    if (skip != UINT64_MAX) {
        memset(pair->data + skip, 0xff, 4);
    }
    memcpy(pair->data + off, &bytes, sizeof(bytes));
    memset(pair->data + off + VIA_IP_RECORD_HEADER_BYTES, value, bytes);
    return 0;
}

static void frames_come_out_as_they_went_in(void **state)
{
    (void)state;
    struct pair *pair = make_pair();
    struct via_rng rng;
    struct {
        uint32_t bytes;
        uint8_t value;
    } expected[RING_BYTES / 64];
    unsigned first = 0;
    unsigned next = 0;
    unsigned full = 0;
    via_rng_init(&rng, 1);
    for (unsigned i = 0; i < 30000; i++) {
        uint32_t most = via_rng_below(&rng, 4) == 0 ? VIA_IP_FRAME_BYTES_MAX : 200;
        uint32_t bytes = 1 + (uint32_t)via_rng_below(&rng, most);
        int rc = write_frame(pair, bytes, (uint8_t)i);
        if (rc == 0) {
            expected[next % VIA_ARRAY_COUNT(expected)].bytes = bytes;
            expected[next++ % VIA_ARRAY_COUNT(expected)].value = (uint8_t)i;
        } else {
            assert_int_equal(rc, -EAGAIN);
            full++;
        }
        for (unsigned n = via_rng_below(&rng, 3); n != 0 && first != next; n--) {
            const uint8_t *frame;
            size_t got;
            uint64_t end;
            assert_int_equal(via_ip_ring_next(&pair->reader, pair->writer.tail, &frame, &got, &end),
                             1);
            assert_int_equal(got, expected[first % VIA_ARRAY_COUNT(expected)].bytes);
            assert_int_equal(frame[0], expected[first % VIA_ARRAY_COUNT(expected)].value);
            assert_int_equal(frame[got - 1], expected[first++ % VIA_ARRAY_COUNT(expected)].value);
            pair->reader.head = end;
            assert_int_equal(via_ip_ring_take_credit(&pair->writer, end), 0);
        }
    }
    assert_true(full > 100 && pair->writer.tail > 100 * (uint64_t)RING_BYTES);
    free(pair);
}

static void an_empty_ring_takes_the_longest_frame_wherever_it_stands(void **state)
{
    (void)state;
    struct pair *pair = make_pair();
    for (unsigned i = 0; i < RING_BYTES / 64; i++) {
        pair->writer.tail = pair->writer.credit = pair->reader.head = 64 * (uint64_t)i;
        assert_int_equal(write_frame(pair, VIA_IP_FRAME_BYTES_MAX, 1), 0);
    }
    free(pair);
}

static void credit_that_was_not_earned_is_refused(void **state)
{
    (void)state;
    struct via_ip_ring_writer writer = {.ring_bytes = RING_BYTES, .tail = 640, .credit = 128};
    assert_int_equal(via_ip_ring_take_credit(&writer, 704), -EPROTO);
    assert_int_equal(via_ip_ring_take_credit(&writer, 64), -EPROTO);
    assert_int_equal(via_ip_ring_take_credit(&writer, UINT64_MAX), -EPROTO);
    assert_int_equal(via_ip_ring_take_credit(&writer, 640), 0);
    assert_int_equal(writer.credit, 640);
}

/* A length word at an offset, with `filled` bytes written from the reader's head on. */
static int read_after(uint64_t head, uint32_t word, uint64_t filled)
{
    struct pair *pair = make_pair();
    const uint8_t *frame;
    size_t bytes;
    uint64_t end;
    pair->reader.head = head;
    memcpy(pair->data + head % RING_BYTES, &word, sizeof(word));
    int rc = via_ip_ring_next(&pair->reader, head + filled, &frame, &bytes, &end);
    free(pair);
    return rc;
}

static void a_hostile_writer_breaks_the_session_only(void **state)
{
    (void)state;
    assert_int_equal(read_after(0, 58, 64), 1);
    assert_int_equal(read_after(0, 59, 64), -EPROTO); /* longer than the published part */
    assert_int_equal(read_after(0, 0, 64), -EPROTO);  /* of length 0 */
    assert_int_equal(read_after(0, 58, 63), -EPROTO); /* a tail between records */
    assert_int_equal(read_after(64, 58, RING_BYTES + 64), -EPROTO);
    assert_int_equal(read_after(64, 58, UINT64_MAX - 63), -EPROTO); /* a tail before the head */
    assert_int_equal(read_after(0, VIA_IP_FRAME_BYTES_MAX + 1, RING_BYTES), -EPROTO);
    assert_int_equal(read_after(0, VIA_IP_RECORD_SKIP - 1, RING_BYTES), -EPROTO);
    assert_int_equal(read_after(RING_BYTES - 64, 59, 256), -EPROTO); /* beyond the ring */
    assert_int_equal(read_after(0, VIA_IP_RECORD_SKIP, RING_BYTES), -EPROTO);
    assert_int_equal(read_after(RING_BYTES - 64, VIA_IP_RECORD_SKIP, 64), -EPROTO);
    /* A skip to a place without a record: zeros. */
    assert_int_equal(read_after(RING_BYTES - 64, VIA_IP_RECORD_SKIP, 128), -EPROTO);
}

/* --- hellos ---------------------------------------------------------------------------------- */

static struct via_ip_hello good_hello(void)
{
    return (struct via_ip_hello){.magic = VIA_IP_HELLO_MAGIC,
                                 .version = VIA_IP_HELLO_VERSION,
                                 .type = VIA_IP_HELLO_OFFER,
                                 .session = 7,
                                 .handle = 9,
                                 .ring_bytes = RING_BYTES,
                                 .queues = 1};
}

static int check_hello(const struct via_ip_hello *hello, size_t bytes)
{
    struct via_ip_hello got;
    uint16_t version = 0;
    int rc = via_ip_hello_check(hello, bytes, &got, &version);
    assert_int_equal(version, rc == -EPROTONOSUPPORT ? hello->version : 0);
    return rc;
}

#define ASSERT_HELLO(field, value, rc)                              \
    do {                                                            \
        struct via_ip_hello hello = good_hello();                   \
        hello.field = (value);                                      \
        assert_int_equal(check_hello(&hello, sizeof(hello)), (rc)); \
    } while (0)

static void hellos_are_checked(void **state)
{
    (void)state;
    struct via_ip_hello good = good_hello();
    for (size_t bytes = 0; bytes < sizeof(good); bytes++) {
        assert_int_equal(check_hello(&good, bytes), -EPROTO);
    }
    ASSERT_HELLO(session, 8, 0);
    ASSERT_HELLO(magic, 1, -EPROTO);
    ASSERT_HELLO(version, VIA_IP_HELLO_VERSION + 1, -EPROTONOSUPPORT);
    ASSERT_HELLO(type, 0, -EPROTO);
    ASSERT_HELLO(type, 5, -EPROTO);
    ASSERT_HELLO(session, 0, -EPROTO);
    ASSERT_HELLO(ring_bytes, RING_BYTES + 1, -EPROTO);
    ASSERT_HELLO(ring_bytes, RING_BYTES / 2, -EPROTO);
    ASSERT_HELLO(ring_bytes, UINT64_C(1) << 63, -EPROTO);
    ASSERT_HELLO(queues, 0, -EPROTO);
    ASSERT_HELLO(queues, VIA_IP_QUEUES_MAX + 1, -EPROTO);
    good.type = VIA_IP_HELLO_REQUEST;
    good.session = good.ring_bytes = 0;
    assert_int_equal(check_hello(&good, sizeof(good)), 0);
}

/* --- packets for hosts that can not be reached ----------------------------------------------- */

/* Of big-endian words; 0xffff where the checksum within them is right. */
static unsigned sum_words(const uint8_t *bytes, size_t count, uint32_t sum)
{
    for (size_t i = 0; i < count; i++) {
        sum += i % 2 == 0 ? (uint32_t)bytes[i] << 8 : bytes[i];
    }
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

/* A datagram between hosts 1 and 2 in a frame; its bytes. */
static size_t make_datagram(uint8_t *frame, unsigned version, size_t payload_bytes)
{
    struct via_ip_network network = make_network("10.78.0.0/16", "fd76:6961::/64");
    size_t header = version == 4 ? 20 : 40;
    uint8_t *ip = frame + VIA_IP_VNET_BYTES;
    memset(frame, 0, VIA_IP_VNET_BYTES + header);
    for (size_t i = 0; i < payload_bytes; i++) {
        ip[header + i] = (uint8_t)(i * 7 + 1);
    }
    if (version == 4) {
        static const uint8_t addresses[8] = {10, 78, 0, 1, 10, 78, 0, 2};
        ip[0] = 0x45;
        ip[2] = (uint8_t)((header + payload_bytes) >> 8);
        ip[3] = (uint8_t)(header + payload_bytes);
        ip[9] = 17;
        memcpy(ip + 12, addresses, sizeof(addresses));
    } else {
        ip[0] = 0x60;
        ip[4] = (uint8_t)(payload_bytes >> 8);
        ip[5] = (uint8_t)payload_bytes;
        ip[6] = 17;
        via_ip_address6(&network, 1, ip + 8);
        via_ip_address6(&network, 2, ip + 24);
    }
    return VIA_IP_VNET_BYTES + header + payload_bytes;
}

static size_t answer_to(const uint8_t *frame, size_t bytes,
                        uint8_t answer[VIA_IP_UNREACHABLE_BYTES_MAX])
{
    struct via_ip_packet packet;
    assert_int_equal(via_ip_packet_parse(frame, bytes, bytes, &packet), VIA_IP_DROP_NONE);
    /* Of that size, for the sanitizer. */
    uint8_t *copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, frame, bytes);
    size_t answer_bytes = via_ip_unreachable_make(copy, bytes, &packet, answer);
    free(copy);
    return answer_bytes;
}

static void an_unreachable_host_is_answered_for(void **state)
{
    (void)state;
    static const size_t sizes[] = {8, 9, 500, 548, 1231, 1232, 40001};
    static uint8_t frame[VIA_IP_FRAME_BYTES_MAX];
    uint8_t answer[VIA_IP_UNREACHABLE_BYTES_MAX];
    for (size_t i = 0; i < VIA_ARRAY_COUNT(sizes); i++) {
        struct via_ip_packet packet;
        const uint8_t *ip = answer + VIA_IP_VNET_BYTES;
        size_t bytes = make_datagram(frame, 4, sizes[i]);
        size_t made = answer_to(frame, bytes, answer);
        size_t quoted = via_min(bytes - VIA_IP_VNET_BYTES, (size_t)548);
        assert_int_equal(made, VIA_IP_VNET_BYTES + 28 + quoted);
        assert_int_equal(via_ip_packet_parse(answer, made, made, &packet), VIA_IP_DROP_NONE);
        assert_int_equal(packet.source4, 0x0a4e0002);
        assert_int_equal(packet.destination4, 0x0a4e0001);
        assert_int_equal(ip[9], 1);
        assert_int_equal(ip[20], 3);
        assert_int_equal(ip[21], 1);
        assert_int_equal(sum_words(ip, 20, 0), 0xffff);
        assert_int_equal(sum_words(ip + 20, made - VIA_IP_VNET_BYTES - 20, 0), 0xffff);
        assert_memory_equal(ip + 28, frame + VIA_IP_VNET_BYTES, quoted);

        bytes = make_datagram(frame, 6, sizes[i]);
        made = answer_to(frame, bytes, answer);
        quoted = via_min(bytes - VIA_IP_VNET_BYTES, (size_t)1232);
        assert_int_equal(made, VIA_IP_VNET_BYTES + 48 + quoted);
        assert_int_equal(via_ip_packet_parse(answer, made, made, &packet), VIA_IP_DROP_NONE);
        assert_int_equal(packet.source6[15], 2);
        assert_int_equal(packet.destination6[15], 1);
        assert_int_equal(ip[40], 1);
        assert_int_equal(ip[41], 3);
        assert_int_equal(sum_words(ip + 8, made - VIA_IP_VNET_BYTES - 8,
                                   58 + (uint32_t)(made - VIA_IP_VNET_BYTES - 40)),
                         0xffff);
    }
}

static void errors_and_fragments_are_not_answered(void **state)
{
    (void)state;
    uint8_t frame[200];
    uint8_t answer[VIA_IP_UNREACHABLE_BYTES_MAX];
    size_t bytes = make_datagram(frame, 4, 40);
    uint8_t *ip = frame + VIA_IP_VNET_BYTES;
    ip[9] = 1;
    ip[20] = 3; /* an error */
    assert_int_equal(answer_to(frame, bytes, answer), 0);
    ip[20] = 8; /* an echo request */
    assert_int_not_equal(answer_to(frame, bytes, answer), 0);
    ip[7] = 1; /* a later fragment */
    assert_int_equal(answer_to(frame, bytes, answer), 0);
    bytes = make_datagram(frame, 4, 40);
    memset(ip + 12, 0, 4);
    assert_int_equal(answer_to(frame, bytes, answer), 0);
    bytes = make_datagram(frame, 4, 0);
    ip[9] = 1; /* without a type */
    assert_int_equal(answer_to(frame, bytes, answer), 0);
    bytes = make_datagram(frame, 6, 40);
    ip[6] = 58;
    ip[40] = 1;
    assert_int_equal(answer_to(frame, bytes, answer), 0);
    ip[40] = 128;
    assert_int_not_equal(answer_to(frame, bytes, answer), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_is_the_network_plus_the_id),
        cmocka_unit_test(other_addresses_are_no_hosts),
        cmocka_unit_test(packets_for_many_are_known),
        cmocka_unit_test(bad_networks_are_refused),
        cmocka_unit_test(frames_of_a_device_pass),
        cmocka_unit_test(lengths_that_do_not_fit_are_malformed),
        cmocka_unit_test(offload_headers_that_do_not_fit_are_refused),
        cmocka_unit_test(no_bytes_are_read_beyond),
        cmocka_unit_test(frames_come_out_as_they_went_in),
        cmocka_unit_test(an_empty_ring_takes_the_longest_frame_wherever_it_stands),
        cmocka_unit_test(credit_that_was_not_earned_is_refused),
        cmocka_unit_test(a_hostile_writer_breaks_the_session_only),
        cmocka_unit_test(hellos_are_checked),
        cmocka_unit_test(an_unreachable_host_is_answered_for),
        cmocka_unit_test(errors_and_fragments_are_not_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
