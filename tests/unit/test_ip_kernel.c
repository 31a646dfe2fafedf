/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The kernel programs of the direct path: the verifier accepts both, and the program for incoming
 * packets runs on packets of a host, of other hosts, and of strangers.
 * tests/machines/test_ip_direct.py tests outgoing packets, which needs a device.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "ip/kernel_code.h"

#define HOSTS 16u
#define PEER 5u
#define PASSES UINT32_MAX
#define OFF_HEAD ((size_t)ETH_HLEN)
#define OFF_DIRECT (OFF_HEAD + VIA_IP_OUTER_BYTES)
#define OFF_INNER (OFF_HEAD + VIA_IP_DIRECT_BYTES)
#define FRAME_BYTES (OFF_INNER + 64)

struct fixture {
    struct via_ip_kernel_params params;
    struct via_ip_kernel_host *hosts;
    int program_fd;
};

static int call(enum bpf_cmd command, union bpf_attr *attr)
{
    long rc = syscall(SYS_bpf, command, attr, sizeof(*attr));
    return rc >= 0 ? (int)rc : -errno;
}

static int load(const struct bpf_insn *insns, unsigned count)
{
    static char text[1 << 16];
    union bpf_attr attr;
    memset(&attr, 0, sizeof(attr)); /* padding, too: a newer kernel may read a member there */
    attr.prog_type = BPF_PROG_TYPE_SCHED_CLS;
    attr.insn_cnt = count;
    attr.insns = (uint64_t)(uintptr_t)insns;
    attr.license = (uint64_t)(uintptr_t) "Dual BSD/GPL";
    attr.log_level = 1;
    attr.log_buf = (uint64_t)(uintptr_t)text;
    attr.log_size = sizeof(text);
    int fd = call(BPF_PROG_LOAD, &attr);
    if (fd < 0) {
        printf("%u instructions: %s\n%s\n", count, strerror(-fd), text);
    }
    return fd;
}

/* Exits with 77: not available here. */
static int make_table(struct fixture *fixture)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof(attr));
    attr.map_type = BPF_MAP_TYPE_ARRAY;
    attr.key_size = sizeof(uint32_t);
    attr.value_size = sizeof(struct via_ip_kernel_host);
    attr.max_entries = HOSTS;
    attr.map_flags = BPF_F_MMAPABLE;
    int fd = call(BPF_MAP_CREATE, &attr);
    if (fd < 0) {
        printf("skipped: the kernel makes no table for this user: %s\n", strerror(-fd));
        return 77;
    }
    fixture->params.table_fd = fd;
    fixture->hosts =
        mmap(NULL, HOSTS * sizeof(*fixture->hosts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return fixture->hosts != MAP_FAILED ? 0 : 1;
}

static void fill_in(struct fixture *fixture)
{
    struct via_error err = {0};
    struct via_ip_kernel_params *params = &fixture->params;
    assert_int_equal(via_ip_network_parse4("10.78.0.0/16", &params->network, &err), 0);
    assert_int_equal(via_ip_network_parse6("fd76:6961::/64", &params->network, &err), 0);
    params->hosts_max = HOSTS;
    params->device = 1; /* lo: a redirect in a test run sends nothing */
    params->host = 3;
    params->local4 = inet_addr("192.0.2.3");
    params->port = htons(4711);
    struct via_ip_kernel_host *host = &fixture->hosts[PEER];
    host->peer4 = inet_addr("192.0.2.5");
    host->inner4 = inet_addr("10.78.0.5");
    via_ip_address6(&params->network, PEER, host->inner6);
    memset(host->in_token, 0xa5, sizeof(host->in_token));
    atomic_store_explicit(&host->in_on, 1, memory_order_release);
}

static int set_up(void **state)
{
    static struct fixture fixture;
    struct bpf_insn insns[VIA_IP_KERNEL_INSNS_MAX];
    *state = &fixture;
    if (fixture.hosts == NULL && make_table(&fixture) != 0) {
        return 1;
    }
    fill_in(&fixture);
    fixture.program_fd = load(insns, via_ip_kernel_code_in(&fixture.params, insns));
    return fixture.program_fd >= 0 ? 0 : 1;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    memset(fixture->hosts, 0, HOSTS * sizeof(*fixture->hosts));
    close(fixture->program_fd);
    return 0;
}

/* A frame of the peer, with an inner packet of IPv4 or IPv6 from host `source` to `destination`. */
static void build(const struct fixture *fixture, uint8_t frame[FRAME_BYTES], bool six,
                  unsigned source, unsigned destination)
{
    const struct via_ip_network *network = &fixture->params.network;
    const struct via_ip_kernel_host *host = &fixture->hosts[PEER];
    struct via_ip_direct_head head = {
        .host = PEER, .kind = VIA_IP_DIRECT_PACKET, .version = VIA_IP_DIRECT_VERSION};
    struct via_ip_kernel_host out = {0};
    uint8_t *inner = frame + OFF_INNER;
    memset(frame, 0, FRAME_BYTES);
    frame[12] = 8; /* ETH_P_IP */
    memcpy(head.token, host->in_token, sizeof(head.token));
    via_ip_kernel_fill_head(&out, host->peer4, htons(99), fixture->params.local4,
                            fixture->params.port, &head);
    memcpy(frame + OFF_HEAD, out.out_head, sizeof(out.out_head));
    if (six) {
        inner[0] = 0x60;
        via_ip_address6(network, source, inner + 8);
        via_ip_address6(network, destination, inner + 24);
    } else {
        uint32_t addresses[] = {htonl(via_ip_address4(network, source)),
                                htonl(via_ip_address4(network, destination))};
        inner[0] = 0x45;
        memcpy(inner + 12, addresses, sizeof(addresses));
    }
}

static uint32_t run(const struct fixture *fixture, const uint8_t *frame, size_t bytes)
{
    uint8_t out[FRAME_BYTES];
    union bpf_attr attr;
    memset(&attr, 0, sizeof(attr));
    attr.test.prog_fd = (uint32_t)fixture->program_fd;
    attr.test.data_in = (uint64_t)(uintptr_t)frame;
    attr.test.data_size_in = (uint32_t)bytes;
    attr.test.data_out = (uint64_t)(uintptr_t)out;
    attr.test.data_size_out = sizeof(out);
    assert_int_equal(call(BPF_PROG_TEST_RUN, &attr), 0);
    return attr.test.retval;
}

static uint64_t read_count(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void the_way_out_is_accepted(void **state)
{
    struct fixture *fixture = *state;
    struct bpf_insn insns[VIA_IP_KERNEL_INSNS_MAX];
    int fd = load(insns, via_ip_kernel_code_out(&fixture->params, insns));
    assert_true(fd >= 0);
    close(fd);
    fixture->params.network.bits6 = 0;
    fd = load(insns, via_ip_kernel_code_out(&fixture->params, insns));
    assert_true(fd >= 0);
    close(fd);
    fd = load(insns, via_ip_kernel_code_in(&fixture->params, insns));
    assert_true(fd >= 0);
    close(fd);
}

static void packets_between_the_two_hosts_go_in(void **state)
{
    struct fixture *fixture = *state;
    const struct via_ip_kernel_host *host = &fixture->hosts[PEER];
    uint8_t frame[FRAME_BYTES];
    for (unsigned six = 0; six < 2; six++) {
        build(fixture, frame, six != 0, PEER, 3);
        assert_int_equal(run(fixture, frame, sizeof(frame)), TC_ACT_REDIRECT);
    }
    assert_int_equal(read_count(&host->packets_received), 2);
    assert_int_equal(read_count(&host->bytes_received), 128);
    assert_int_equal(read_count(&host->spoofed) + read_count(&host->foreign), 0);
}

static void other_addresses_are_dropped_and_counted(void **state)
{
    struct fixture *fixture = *state;
    const struct via_ip_kernel_host *host = &fixture->hosts[PEER];
    uint8_t frame[FRAME_BYTES];
    for (unsigned six = 0; six < 2; six++) {
        build(fixture, frame, six != 0, 6, 3);
        assert_int_equal(run(fixture, frame, sizeof(frame)), TC_ACT_SHOT);
        build(fixture, frame, six != 0, PEER, 4);
        assert_int_equal(run(fixture, frame, sizeof(frame)), TC_ACT_SHOT);
    }
    assert_int_equal(read_count(&host->spoofed), 2);
    assert_int_equal(read_count(&host->foreign), 2);
    build(fixture, frame, false, PEER, 3);
    frame[OFF_INNER] = 0x55; /* neither IPv4 nor IPv6 */
    assert_int_equal(run(fixture, frame, sizeof(frame)), TC_ACT_SHOT);
    assert_int_equal(read_count(&host->packets_received), 0);
}

/* With one byte of the head changed, a packet comes from a stranger, or does not belong to the
 * direct path. */
static void each_byte_of_the_head_counts(void **state)
{
    struct fixture *fixture = *state;
    uint8_t frame[FRAME_BYTES];
    static const uint8_t unread[] = {1, 2, 3, 4, 5, 8, 10, 11, 20, 21, 24, 25, 26, 27};
    for (unsigned i = 0; i < VIA_IP_DIRECT_BYTES; i++) {
        build(fixture, frame, false, PEER, 3);
        frame[OFF_HEAD + i] ^= 1;
        uint32_t verdict = run(fixture, frame, sizeof(frame));
        bool reads = memchr(unread, (int)i, sizeof(unread)) == NULL;
        assert_true((verdict == TC_ACT_REDIRECT) == !reads);
        assert_true(verdict == TC_ACT_REDIRECT || verdict == TC_ACT_SHOT || verdict == PASSES);
        if (i >= OFF_DIRECT + 4 - OFF_HEAD) {
            assert_int_equal(verdict, TC_ACT_SHOT); /* the token */
        }
    }
}

static void hosts_that_are_not_let_in(void **state)
{
    struct fixture *fixture = *state;
    uint8_t frame[FRAME_BYTES];
    static const uint16_t strangers[] = {0, 4, HOSTS, UINT16_MAX};
    build(fixture, frame, false, PEER, 3);
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        memcpy(frame + OFF_DIRECT, &strangers[i], sizeof(strangers[i]));
        assert_int_equal(run(fixture, frame, sizeof(frame)), TC_ACT_SHOT);
    }
    build(fixture, frame, false, PEER, 3);
    atomic_store_explicit(&fixture->hosts[PEER].in_on, 0, memory_order_relaxed);
    assert_int_equal(run(fixture, frame, sizeof(frame)), TC_ACT_SHOT);
}

static void short_packets_and_other_traffic(void **state)
{
    struct fixture *fixture = *state;
    uint8_t frame[FRAME_BYTES];
    build(fixture, frame, false, PEER, 3);
    for (size_t bytes = ETH_HLEN + 20; bytes < OFF_INNER + 20; bytes++) {
        assert_int_not_equal(run(fixture, frame, bytes), TC_ACT_REDIRECT);
    }
    build(fixture, frame, true, PEER, 3);
    for (size_t bytes = OFF_INNER; bytes < OFF_INNER + 40; bytes++) {
        assert_int_not_equal(run(fixture, frame, bytes), TC_ACT_REDIRECT);
    }
    for (unsigned kind = 0; kind < 256; kind++) {
        build(fixture, frame, false, PEER, 3);
        frame[OFF_DIRECT + 2] = (uint8_t)kind;
        assert_int_equal(run(fixture, frame, sizeof(frame)),
                         kind == VIA_IP_DIRECT_PACKET ? TC_ACT_REDIRECT : PASSES);
    }
    frame[12] = 0x86; /* ETH_P_IPV6 */
    frame[13] = 0xdd;
    assert_int_equal(run(fixture, frame, sizeof(frame)), PASSES);
}

/* The sum of a head whose length and checksum are filled in, as the program does, is 0xffff. */
static void the_checksum_of_a_head_is_right(void **state)
{
    struct via_ip_kernel_host host = {0};
    struct via_ip_direct_head head = {.host = 7, .kind = VIA_IP_DIRECT_PACKET};
    (void)state;
    for (uint32_t bytes = 1; bytes <= UINT16_MAX; bytes += 97) {
        via_ip_kernel_fill_head(&host, inet_addr("192.0.2.3") + bytes, 1, inet_addr("203.0.113.9"),
                                2, &head);
        uint32_t sum = host.out_sum + htons((uint16_t)bytes);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        assert_true(sum <= 0xffff);
        uint16_t length = htons((uint16_t)bytes), checksum = (uint16_t)(sum ^ 0xffff);
        memcpy(host.out_head + 2, &length, sizeof(length));
        memcpy(host.out_head + 10, &checksum, sizeof(checksum));
        uint32_t all = 0;
        for (unsigned i = 0; i < 20; i += 2) {
            all += (uint32_t)host.out_head[i] << 8 | host.out_head[i + 1];
        }
        all = (all & 0xffff) + (all >> 16);
        assert_int_equal((all & 0xffff) + (all >> 16), 0xffff);
    }
}

#define IN_KERNEL(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    struct fixture fixture = {0};
    const struct CMUnitTest pure[] = {cmocka_unit_test(the_checksum_of_a_head_is_right)};
    const struct CMUnitTest tests[] = {
        IN_KERNEL(the_way_out_is_accepted),
        IN_KERNEL(packets_between_the_two_hosts_go_in),
        IN_KERNEL(other_addresses_are_dropped_and_counted),
        IN_KERNEL(each_byte_of_the_head_counts),
        IN_KERNEL(hosts_that_are_not_let_in),
        IN_KERNEL(short_packets_and_other_traffic),
    };
    int rc = cmocka_run_group_tests(pure, NULL, NULL);
    int here = rc == 0 ? make_table(&fixture) : rc;
    return here != 0 ? here : cmocka_run_group_tests(tests, NULL, NULL);
}
