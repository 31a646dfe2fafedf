/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Direct connections: this process owns a segment and reaches it by a connection to itself, as if
 * it were a process of the neighbour. The fake host can reach the segment by frames. Further tests:
 * strangers that connect, peers with the token that break the rules, and owners that break them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/types.h"
#include "host/client_tcp_inside.h"
#include "tests/unit/client_fixture.h"

#define BYTES ((size_t)1 << 20)
#define ATOMICS 2000u
#define THREADS 3u

struct own {
    struct fixture *fixture;
    struct via_segment *segment;
    struct via_segment *other; /* the fake host does not serve it */
    struct via_remote *remote; /* remote of `segment`, as if a peer had opened it */
    struct via_tcp_card card;
    unsigned char *base;
};

static void set_hops(struct own *own, unsigned hops)
{
    static uint16_t generation = 10;
    fake_host_set_way(&own->fixture->fake, FAKE_PEER, 77, ++generation, hops, false);
}

static int set_up(void **state)
{
    struct own *own = calloc(1, sizeof(*own));
    void *fixture = NULL;
    const unsigned access = VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE;
    client_set_up(&fixture);
    own->fixture = fixture;
    struct fake_host *fake = &own->fixture->fake;
    struct via_attach *attach = own->fixture->attach;
    fake_host_set_address(fake, "127.0.0.1");
    set_hops(own, 1);
    assert_int_equal(via_tcp_offer(attach, &own->card), 0);
    assert_int_equal(via_segment_new(attach, BYTES, access, &own->segment), 0);
    assert_int_equal(via_segment_new(attach, BYTES, access, &own->other), 0);
    assert_int_equal(via_tcp_serve(own->segment), 0);
    own->base = via_segment_base(own->segment);
    assert_int_equal(
        via_remote_open(attach, FAKE_PEER, via_segment_handle(own->segment), BYTES, &own->remote),
        0);
    assert_int_equal(via_tcp_dial(own->remote, &own->card), 0);
    *state = own;
    return 0;
}

static int tear_down(void **state)
{
    struct own *own = *state;
    void *fixture = own->fixture;
    via_remote_close(own->remote);
    via_segment_free(own->segment);
    via_segment_free(own->other);
    client_tear_down(&fixture);
    free(own);
    return 0;
}

static uint64_t word_at(const struct own *own, uint64_t off)
{
    return __atomic_load_n((const uint64_t *)(const void *)(own->base + off), __ATOMIC_ACQUIRE);
}

static void put_word(struct own *own, uint64_t off, uint64_t word)
{
    assert_int_equal(via_remote_put(own->remote, off, &word, sizeof(word), 0), 0);
}

static void quiet(struct own *own)
{
    assert_int_equal(via_attach_quiet(own->fixture->attach), 0);
}

/* --- normal operations ------------------------------------------------------------------------ */

static void puts_and_gets_of_all_sizes(void **state)
{
    struct own *own = *state;
    static unsigned char data[BYTES], back[BYTES];
    unsigned commands = own->fixture->fake.commands_count;
    const size_t sizes[] = {1, 2, 3, 4, 7, 8, 9, 64, 4095, 4096, 4097, 65535, 65536, 300001, BYTES};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(sizes); i++) {
        size_t off = via_min(BYTES - sizes[i], (size_t)i * 5);
        client_fill(data, sizes[i], i);
        memset(own->base, 0xa5, BYTES);
        assert_int_equal(via_remote_put(own->remote, off, data, sizes[i], 0), 0);
        quiet(own);
        assert_memory_equal(own->base + off, data, sizes[i]);
        assert_true(off + sizes[i] == BYTES || own->base[off + sizes[i]] == 0xa5);
        assert_true(off == 0 || own->base[off - 1] == 0xa5);
        memset(back, 0, sizes[i]);
        assert_int_equal(via_remote_get(own->remote, off, back, sizes[i]), 0);
        assert_memory_equal(back, data, sizes[i]);
        memset(back, 0, sizes[i]);
        assert_int_equal(via_remote_get_start(own->remote, off, back, sizes[i]), 0);
        quiet(own);
        assert_memory_equal(back, data, sizes[i]);
    }
    assert_int_equal(own->fixture->fake.commands_count, commands);
    assert_int_equal(via_remote_put(own->remote, BYTES - 4, data, 8, 0), -ERANGE);
}

static void words_arrive_though_nothing_waits_for_them(void **state)
{
    struct own *own = *state;
    for (uint64_t i = 1; i <= 3000; i++) {
        put_word(own, 8 * (i % 100), i);
    }
    for (unsigned i = 0; word_at(own, 0) != 3000; i++) {
        assert_true(i < 10000);
        client_nap_ms(1);
    }
}

static void updates_and_signals(void **state)
{
    struct own *own = *state;
    uint64_t old = 0, fetched[3] = {0};
    uint32_t narrow = 7;
    unsigned char data[100];
    put_word(own, 0, 5);
    assert_int_equal(via_remote_atomic(own->remote, 0, 8, VIADUCT_ATOMIC_ADD, 3, 0, &old), 0);
    assert_true(old == 5 && word_at(own, 0) == 8);
    assert_int_equal(via_remote_atomic(own->remote, 0, 8, VIADUCT_ATOMIC_COMPARE_SWAP, 1, 8, &old),
                     0);
    assert_true(old == 8 && word_at(own, 0) == 1);
    put_word(own, 8, UINT64_C(0x1111111122222222));
    assert_int_equal(via_remote_atomic(own->remote, 8, 4, VIADUCT_ATOMIC_SWAP, 9, 0, &old), 0);
    assert_true(old == 0x22222222 && word_at(own, 8) == UINT64_C(0x1111111100000009));
    /* A short element is written to a place of the same size. */
    uint32_t places[2] = {1, 2};
    assert_int_equal(
        via_remote_atomic_start(own->remote, 8, 4, VIADUCT_ATOMIC_ADD, narrow, 0, &places[0]), 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(
            via_remote_atomic_start(own->remote, 16, 8, VIADUCT_ATOMIC_ADD, 1, 0, &fetched[i]), 0);
        assert_int_equal(
            via_remote_atomic_start(own->remote, 24, 8, VIADUCT_ATOMIC_ADD, 1, 0, NULL), 0);
    }
    quiet(own);
    assert_true(places[0] == 9 && places[1] == 2);
    assert_true(fetched[0] == 0 && fetched[1] == 1 && fetched[2] == 2 && word_at(own, 24) == 3);
    client_fill(data, sizeof(data), 1);
    for (unsigned i = 1; i <= 20; i++) {
        assert_int_equal(
            via_remote_put_signal(own->remote, 1000, data, sizeof(data), 32, i,
                                  i % 2 != 0 ? VIADUCT_SIGNAL_SET : VIADUCT_SIGNAL_ADD),
            0);
    }
    quiet(own);
    assert_true(word_at(own, 32) == 19 + 20);
    assert_memory_equal(own->base + 1000, data, sizeof(data));
    assert_int_equal(via_remote_put_strided(own->remote, 2000, 24, data, 8, 8, 12), 0);
    quiet(own);
    for (unsigned i = 0; i < 12; i++) {
        assert_memory_equal(own->base + 2000 + 24 * (size_t)i, data + 8 * (size_t)i, 8);
    }
}

struct adder {
    pthread_t thread;
    struct own *own;
    unsigned index;
};

static void *add_many(void *argument)
{
    struct adder *adder = argument;
    struct own *own = adder->own;
    uint64_t at = 64 + 8 * (uint64_t)adder->index;
    for (uint64_t i = 1; i <= ATOMICS; i++) {
        uint64_t old = 0, back = 0;
        if (via_remote_atomic(own->remote, 0, 8, VIADUCT_ATOMIC_ADD, 1, 0, &old) != 0 ||
            via_remote_put(own->remote, at, &i, sizeof(i), 0) != 0 ||
            via_remote_get(own->remote, at, &back, sizeof(back)) != 0 || back != i) {
            return argument;
        }
    }
    return NULL;
}

static void threads_share_a_connection(void **state)
{
    struct own *own = *state;
    struct adder adders[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        adders[i] = (struct adder){.own = own, .index = i};
        assert_int_equal(pthread_create(&adders[i].thread, NULL, add_many, &adders[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        void *failed = NULL;
        pthread_join(adders[i].thread, &failed);
        assert_null(failed);
    }
    quiet(own);
    assert_true(word_at(own, 0) == THREADS * ATOMICS);
}

static void a_child_does_not_end_it(void **state)
{
    struct own *own = *state;
    put_word(own, 0, 1);
    pid_t child = fork();
    if (child == 0) {
        via_attach_close(own->fixture->attach);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    put_word(own, 0, 2);
    quiet(own);
    assert_true(word_at(own, 0) == 2);
}

/* --- and frames ------------------------------------------------------------------------------- */

static void *release_later(void *argument)
{
    struct own *own = argument;
    client_nap_ms(50);
    own->fixture->fake.hold = false;
    return NULL;
}

static void no_put_overtakes_when_the_path_changes(void **state)
{
    struct own *own = *state;
    struct fake_host *fake = &own->fixture->fake;
    for (uint64_t i = 0; i < 300; i += 3) {
        unsigned commands = fake->commands_count;
        put_word(own, 0, i);
        put_word(own, 8 + 8 * i, i);
        set_hops(own, 2);
        assert_int_equal(via_remote_put(own->remote, 0, &(uint64_t){i + 1}, 8, 0), 0);
        /* The put has waited until no request was under way on the connection. */
        assert_true(word_at(own, 8 + 8 * i) == i);
        set_hops(own, 1);
        put_word(own, 0, i + 2);
        assert_int_equal(fake->commands_count, commands + 1);
        quiet(own);
        assert_true(word_at(own, 0) == i + 2);
    }
    /* Frames that are under way. */
    pthread_t thread;
    set_hops(own, 2);
    fake->hold = true;
    put_word(own, 0, 1000);
    set_hops(own, 1);
    assert_int_equal(pthread_create(&thread, NULL, release_later, own), 0);
    put_word(own, 0, 1001);
    assert_false(fake->hold);
    quiet(own);
    pthread_join(thread, NULL);
    assert_true(word_at(own, 0) == 1001);
}

static void rings_go_by_frames_behind_what_was_put(void **state)
{
    struct own *own = *state;
    unsigned commands = own->fixture->fake.commands_count;
    put_word(own, 0, 1);
    assert_int_equal(via_remote_put(own->remote, 8, &(uint64_t){2}, 8, VIADUCT_PUT_NOTIFY), 0);
    assert_true(word_at(own, 0) == 1);
    quiet(own);
    assert_true(word_at(own, 8) == 2);
    assert_int_equal(own->fixture->fake.commands_count, commands + 1);
}

static void a_freed_segment_is_reported(void **state)
{
    struct own *own = *state;
    uint64_t word = 0;
    via_client_serve_drop(own->fixture->attach->serve, own->segment);
    put_word(own, 0, 1);
    assert_int_equal(via_attach_quiet(own->fixture->attach), -ECONNRESET);
    client_assert_text_has("its owner has freed it");
    assert_int_equal(via_remote_get(own->remote, 0, &word, sizeof(word)), -ECONNRESET);
    assert_true(word_at(own, 0) == 0);
}

/* --- connections to a host ---------------------------------------------------------------------
 */

/* Another attachment of this process is the host that serves the memory. */
static struct via_remote *connect_to_host(struct own *own)
{
    struct via_attach *attach = own->fixture->attach;
    struct via_remote *remote;
    fake_host_set_card(&own->fixture->fake, &own->card);
    assert_int_equal(
        via_remote_open(attach, FAKE_PEER, via_segment_handle(own->segment), BYTES, &remote), 0);
    assert_int_equal(via_remote_connect(remote), 0);
    assert_int_equal(via_remote_connect(remote), 0);
    assert_ptr_not_equal(remote->tcp, own->remote->tcp);
    return remote;
}

static void a_lone_put_to_a_host_brings_its_fence(void **state)
{
    struct own *own = *state;
    struct via_remote *remote = connect_to_host(own);
    struct via_client_tcp *tcp = remote->tcp;
    for (uint64_t i = 1; i < 3000; i++) {
        assert_int_equal(via_remote_put(remote, 8, &i, 8, 0), 0);
        assert_true(tcp->expected_count == 1 && tcp->out_end == 0);
        quiet(own);
        assert_true(word_at(own, 8) == i && tcp->expected_count == 0);
    }
    /* The owner also answers operations for which no thread waits, and the library takes these
     * answers. */
    for (uint64_t i = 1; i < 3 * VIA_CLIENT_TCP_EXPECTED_MAX; i++) {
        assert_int_equal(via_remote_put(remote, 8, &i, 8, 0), 0);
        assert_true(tcp->expected_count <= 1);
    }
    quiet(own);
    assert_true(word_at(own, 8) == 3 * VIA_CLIENT_TCP_EXPECTED_MAX - 1);
    via_remote_close(remote);
}

static void the_last_word_is_put_last(void **state)
{
    struct own *own = *state;
    struct via_remote *remote = connect_to_host(own);
    unsigned char data[300];
    for (size_t bytes = 1; bytes < 40; bytes++) {
        for (size_t off = 0; off < 9; off++) {
            client_fill(data, bytes, (unsigned)(bytes + off));
            memset(own->base, 0xa5, 64);
            uint64_t issued = remote->tcp->issued;
            assert_int_equal(via_remote_put(remote, off, data, bytes, VIADUCT_PUT_LAST_WORD), 0);
            quiet(own);
            assert_memory_equal(own->base + off, data, bytes);
            assert_int_equal(own->base[off + bytes], 0xa5);
            /* The bytes before and after the last aligned word are separate puts. */
            size_t end = (off + bytes) / 8 * 8;
            bool has_word = bytes > 8 && end >= off + 8;
            uint64_t puts = has_word ? 1 + (end - 8 > off) + (end != off + bytes) : 1;
            assert_true(remote->tcp->issued - issued == puts);
        }
    }
    via_remote_close(remote);
}

static void the_end_of_a_host_is_reported_once(void **state)
{
    struct own *own = *state;
    struct via_remote *remote = connect_to_host(own);
    struct via_remote *again;
    assert_int_equal(via_remote_put(remote, 0, &(uint64_t){1}, 8, 0), 0);
    quiet(own);
    shutdown(remote->tcp->fd, SHUT_RDWR);
    (void)!via_remote_put(remote, 0, &(uint64_t){2}, 8, 0);
    assert_int_equal(via_attach_quiet(own->fixture->attach), -ECONNRESET);
    client_assert_text_has("its host has ended the connection");
    quiet(own);
    assert_int_equal(via_remote_put(remote, 0, &(uint64_t){3}, 8, 0), -ECONNRESET);
    again = connect_to_host(own);
    assert_int_equal(via_remote_put(again, 0, &(uint64_t){4}, 8, 0), 0);
    quiet(own);
    assert_true(word_at(own, 0) == 4);
    via_remote_close(again);
    via_remote_close(remote);
}

static void a_host_without_connections_is_reached_by_frames(void **state)
{
    struct own *own = *state;
    struct via_remote *remote;
    const int statuses[] = {-EXDEV, -EINVAL, -EXDEV}; /* EINVAL: an older daemon */
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(statuses); i++) {
        own->fixture->fake.direct_status = i == 2 ? 0 : statuses[i];
        fake_host_set_card(&own->fixture->fake, &(struct via_tcp_card){.magic = 0});
        assert_int_equal(via_remote_open(own->fixture->attach, FAKE_PEER,
                                         via_segment_handle(own->segment), BYTES, &remote),
                         0);
        assert_int_equal(via_remote_connect(remote), -EXDEV);
        unsigned commands = own->fixture->fake.commands_count;
        assert_int_equal(via_remote_put(remote, 0, &(uint64_t){7}, 8, 0), 0);
        quiet(own);
        assert_int_equal(own->fixture->fake.commands_count, commands + 1);
        via_remote_close(remote);
    }
}

/* --- strangers, and peers that break the rules ------------------------------------------------ */

static int call(const struct via_tcp_card *card)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = card->port};
    struct timeval patience = {.tv_sec = 20};
    memcpy(&to.sin_addr, card->address, sizeof(to.sin_addr));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void send_bytes(int fd, const void *data, size_t bytes)
{
    (void)!send(fd, data, bytes, MSG_NOSIGNAL);
}

/* Receives bytes; 0: the owner has closed the connection. */
static ssize_t receive_bytes(int fd, void *data, size_t bytes)
{
    ssize_t got = recv(fd, data, bytes, MSG_WAITALL);
    return got < 0 && errno == ECONNRESET ? 0 : got;
}

static void assert_closed(int fd)
{
    char byte;
    assert_int_equal(receive_bytes(fd, &byte, 1), 0);
    close(fd);
}

static int call_with_token(const struct own *own)
{
    struct via_tcp_hello hello = {.magic = VIA_TCP_MAGIC};
    struct via_tcp_ready ready = {0};
    int fd = call(&own->card);
    memcpy(hello.token, own->card.token, sizeof(hello.token));
    send_bytes(fd, &hello, sizeof(hello));
    assert_int_equal(receive_bytes(fd, &ready, sizeof(ready)), sizeof(ready));
    assert_true(ready.magic == VIA_TCP_MAGIC);
    return fd;
}

static void strangers_are_disconnected(void **state)
{
    struct own *own = *state;
    struct via_tcp_hello hello = {.magic = VIA_TCP_MAGIC};
    struct via_tcp_request request = {
        .kind = VIA_TCP_GET, .handle = via_segment_handle(own->segment), .bytes = 8};
    memcpy(hello.token, own->card.token, sizeof(hello.token));
    hello.token[VIA_TCP_TOKEN_BYTES - 1] ^= 1;
    int fd = call(&own->card);
    send_bytes(fd, &hello, sizeof(hello));
    send_bytes(fd, &request, sizeof(request));
    assert_closed(fd);
    fd = call(&own->card);
    send_bytes(fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27);
    assert_closed(fd);
    /* A stranger that sends nothing is disconnected after three seconds, and many strangers do not
     * exclude a peer for longer. */
    int silent[40];
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(silent); i++) {
        silent[i] = call(&own->card);
    }
    put_word(own, 0, 1);
    quiet(own);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(silent); i++) {
        assert_closed(silent[i]);
    }
    close(call_with_token(own));
    put_word(own, 0, 2);
    quiet(own);
    assert_true(word_at(own, 0) == 2);
}

static int32_t fence_of(int fd)
{
    struct via_tcp_request fence = {.kind = VIA_TCP_FENCE};
    struct via_tcp_answer answer;
    send_bytes(fd, &fence, sizeof(fence));
    assert_int_equal(receive_bytes(fd, &answer, sizeof(answer)), sizeof(answer));
    return answer.status;
}

static void accesses_end_at_the_segment(void **state)
{
    struct own *own = *state;
    uint64_t handle = via_segment_handle(own->segment);
    const struct {
        uint64_t handle, off, bytes;
    } wrong[] = {
        {handle, BYTES, 8},          {handle, BYTES - 4, 8},
        {handle, UINT64_MAX / 2, 8}, {handle, BYTES + 4096, 100},
        {handle + 1, 0, 8},          {0, 0, 8},
        {handle, 0, BYTES + 8},      {via_segment_handle(own->other), 0, 8},
    };
    unsigned char *data = calloc(1, BYTES + 8);
    int fd = call_with_token(own);
    memset(data, 0xee, BYTES + 8);
    memset(own->base, 0, BYTES);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(wrong); i++) {
        struct via_tcp_request request = {.kind = VIA_TCP_PUT,
                                          .handle = wrong[i].handle,
                                          .off = wrong[i].off,
                                          .bytes = wrong[i].bytes};
        struct via_tcp_answer answer;
        send_bytes(fd, &request, sizeof(request));
        send_bytes(fd, data, wrong[i].bytes);
        assert_int_equal(fence_of(fd), -EACCES);
        assert_int_equal(fence_of(fd), 0);
        request.kind = VIA_TCP_GET;
        send_bytes(fd, &request, sizeof(request));
        assert_int_equal(receive_bytes(fd, &answer, sizeof(answer)), sizeof(answer));
        assert_true(answer.status == -EACCES && answer.bytes == 0);
    }
    close(fd);
    free(data);
    for (size_t off = 0; off < BYTES; off += 8) {
        assert_true(word_at(own, off) == 0);
    }
    assert_int_equal(*(unsigned char *)via_segment_base(own->other), 0);
}

static void an_invalid_request_ends_the_connection(void **state)
{
    struct own *own = *state;
    const struct via_tcp_request wrong[] = {
        {.kind = 0},
        {.kind = 77},
        {.kind = VIA_TCP_ATOMIC, .width = 3, .operation = VIADUCT_ATOMIC_ADD},
        {.kind = VIA_TCP_ATOMIC, .width = 8, .off = 4, .operation = VIADUCT_ATOMIC_ADD},
        {.kind = VIA_TCP_ATOMIC, .width = 8, .operation = 99},
        {.kind = VIA_TCP_PUT, .bytes = UINT64_MAX},
        {.kind = VIA_TCP_GET, .off = UINT64_MAX},
    };
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(wrong); i++) {
        struct via_tcp_request request = wrong[i];
        struct via_tcp_operands operands = {0};
        int fd = call_with_token(own);
        request.handle = via_segment_handle(own->segment);
        send_bytes(fd, &request, sizeof(request));
        send_bytes(fd, &operands, sizeof(operands));
        assert_closed(fd);
    }
    put_word(own, 0, 1);
    quiet(own);
    assert_true(word_at(own, 0) == 1);
}

static void a_peer_that_does_not_read_delays_only_itself(void **state)
{
    struct own *own = *state;
    const unsigned gets = 200, small = 1000;
    unsigned char *back = malloc(65536);
    struct via_tcp_request request = {
        .kind = VIA_TCP_GET, .handle = via_segment_handle(own->segment), .off = 65536};
    struct via_tcp_answer answer;
    client_fill(own->base + 65536, 65536, 3);
    int fd = call_with_token(own);
    for (unsigned i = 0; i < gets + small; i++) {
        request.bytes = i < gets ? 65536 : 100 + i % 7;
        send_bytes(fd, &request, sizeof(request));
    }
    for (uint64_t i = 1; i <= 100; i++) {
        put_word(own, 0, i);
        quiet(own);
        assert_true(word_at(own, 0) == i);
    }
    for (unsigned i = 0; i < gets + small; i++) {
        request.bytes = i < gets ? 65536 : 100 + i % 7;
        assert_int_equal(receive_bytes(fd, &answer, sizeof(answer)), sizeof(answer));
        assert_true(answer.status == 0 && answer.bytes == request.bytes);
        assert_int_equal(receive_bytes(fd, back, request.bytes), (ssize_t)request.bytes);
        assert_memory_equal(back, own->base + 65536, request.bytes);
    }
    close(fd);
    free(back);
}

/* A request in pieces, byte by byte. */
static void requests_may_come_in_pieces(void **state)
{
    struct own *own = *state;
    struct {
        struct via_tcp_request put;
        uint64_t word;
        struct via_tcp_request fence;
    } all = {.put = {.kind = VIA_TCP_PUT,
                     .handle = via_segment_handle(own->segment),
                     .off = 16,
                     .bytes = 8},
             .word = UINT64_C(0x0123456789abcdef),
             .fence = {.kind = VIA_TCP_FENCE}};
    struct via_tcp_answer answer;
    int fd = call_with_token(own);
    for (size_t i = 0; i < sizeof(all); i++) {
        uint64_t word = word_at(own, 16);
        assert_true(word == 0 || word == all.word); /* stored whole, or not at all */
        send_bytes(fd, (unsigned char *)&all + i, 1);
        client_nap_ms(1);
    }
    assert_int_equal(receive_bytes(fd, &answer, sizeof(answer)), sizeof(answer));
    assert_true(answer.status == 0 && word_at(own, 16) == all.word);
    close(fd);
}

/* --- owners that do not answer, or break the rules -------------------------------------------- */

struct owner {
    struct via_tcp_card card;
    int listen_fd;
    int fd;
    bool greets;
    bool reads;                   /* reads requests after the hello */
    struct via_tcp_answer answer; /* the answer to the first request */
    pthread_t thread;
};

static void *be_owner(void *argument)
{
    struct owner *owner = argument;
    struct via_tcp_hello hello;
    struct via_tcp_ready ready = {.magic = VIA_TCP_MAGIC};
    char bytes[256];
    owner->fd = accept(owner->listen_fd, NULL, NULL);
    (void)!recv(owner->fd, &hello, sizeof(hello), MSG_WAITALL);
    if (owner->greets) {
        send_bytes(owner->fd, &ready, sizeof(ready));
    }
    if (!owner->reads) {
        return NULL;
    }
    (void)!recv(owner->fd, bytes, sizeof(bytes), 0);
    send_bytes(owner->fd, &owner->answer, sizeof(owner->answer));
    if (owner->answer.status > 0) {
        close(owner->fd);
        owner->fd = -1;
    }
    return NULL;
}

static void owner_start(struct owner *owner)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    static uint8_t number;
    owner->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(owner->listen_fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(owner->listen_fd, 1), 0);
    assert_int_equal(getsockname(owner->listen_fd, (struct sockaddr *)&at, &bytes), 0);
    owner->card = (struct via_tcp_card){
        .magic = VIA_TCP_MAGIC, .token = {++number}, .family = 4, .port = at.sin_port};
    memcpy(owner->card.address, &at.sin_addr, sizeof(at.sin_addr));
    assert_int_equal(pthread_create(&owner->thread, NULL, be_owner, owner), 0);
}

static void owner_end(struct owner *owner)
{
    pthread_join(owner->thread, NULL);
    if (owner->fd >= 0) {
        close(owner->fd);
    }
    close(owner->listen_fd);
}

static struct via_remote *open_to(struct own *own)
{
    struct via_remote *remote;
    assert_int_equal(via_remote_open(own->fixture->attach, FAKE_PEER,
                                     via_segment_handle(own->segment), BYTES, &remote),
                     0);
    return remote;
}

static void owners_that_lie_or_leave_are_left(void **state)
{
    struct own *own = *state;
    const struct via_tcp_answer answers[] = {
        {.status = 0, .bytes = 1 << 20}, {.status = 0, .bytes = 4},       {.status = 5},
        {.status = 0, .bytes = 9},       {.status = -EACCES, .bytes = 0},
    };
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(answers); i++) {
        struct owner owner = {.greets = true, .reads = true, .answer = answers[i]};
        struct via_remote *remote = open_to(own);
        uint64_t words[2] = {1, 2};
        owner_start(&owner);
        assert_int_equal(via_tcp_dial(remote, &owner.card), 0);
        assert_int_equal(via_remote_get(remote, 0, &words[0], sizeof(words[0])), -ECONNRESET);
        assert_true(words[1] == 2);
        owner_end(&owner);
        via_remote_close(remote);
    }
}

static void *lose_link_later(void *argument)
{
    struct own *own = argument;
    client_nap_ms(50);
    set_hops(own, VIA_STATUS_UNREACHABLE);
    return NULL;
}

/* The owner stops reading, and the link goes down while a put waits for room. The rest of that
 * put's bytes is never sent, so later bytes must not take its place. */
static void a_put_that_is_given_up_half_way_ends_the_connection(void **state)
{
    struct own *own = *state;
    static unsigned char data[BYTES];
    struct owner owner = {.greets = true};
    struct via_remote *remote = open_to(own);
    pthread_t thread;
    int rc = 0;
    owner_start(&owner);
    assert_int_equal(via_tcp_dial(remote, &owner.card), 0);
    own->fixture->attach->tcp_lost_ns_max = 20 * VIA_MSEC_NS;
    assert_int_equal(pthread_create(&thread, NULL, lose_link_later, own), 0);
    for (unsigned i = 0; i < 64 && rc == 0; i++) {
        rc = via_remote_put(remote, 0, data, sizeof(data), 0);
    }
    assert_int_equal(rc, -EHOSTUNREACH);
    client_assert_text_has("no frame of its host");
    pthread_join(thread, NULL);
    set_hops(own, 1);
    assert_int_equal(via_remote_put(remote, 0, data, 8, 0), -ECONNRESET);
    owner_end(&owner);
    via_remote_close(remote);
}

static void where_there_can_be_none(void **state)
{
    struct own *own = *state;
    struct via_remote *remote = open_to(own);
    struct via_tcp_card card = own->card;
    card.magic = 0;
    assert_int_equal(via_tcp_dial(remote, &card), -EXDEV);
    card = own->card;
    card.token[0] ^= 1;
    assert_int_equal(via_tcp_dial(remote, &card), -ECONNREFUSED); /* refused by the owner */
    card.address[3] ^= 3;
    /* At an address that is not one of the daemons' addresses. */
    assert_int_equal(via_tcp_dial(remote, &card), -EXDEV);
    struct owner owner = {.greets = false};
    owner_start(&owner);
    assert_int_equal(via_tcp_dial(remote, &owner.card), -ETIMEDOUT);
    owner_end(&owner);
    assert_int_equal(via_tcp_dial(remote, &owner.card), -ECONNREFUSED); /* the owner has ended */
    own->fixture->fake.tcp_status = -EXDEV;
    card = own->card;
    card.token[0] ^= 1;
    assert_int_equal(via_tcp_dial(remote, &card), -EXDEV);
    /* So frames carry the put. */
    unsigned commands = own->fixture->fake.commands_count;
    assert_int_equal(via_remote_put(remote, 0, &(uint64_t){7}, 8, 0), 0);
    quiet(own);
    assert_int_equal(own->fixture->fake.commands_count, commands + 1);
    via_remote_close(remote);
}

int main(void)
{
#define WITH_OWN(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_OWN(puts_and_gets_of_all_sizes),
        WITH_OWN(words_arrive_though_nothing_waits_for_them),
        WITH_OWN(updates_and_signals),
        WITH_OWN(threads_share_a_connection),
        WITH_OWN(a_child_does_not_end_it),
        WITH_OWN(no_put_overtakes_when_the_path_changes),
        WITH_OWN(rings_go_by_frames_behind_what_was_put),
        WITH_OWN(a_freed_segment_is_reported),
        WITH_OWN(a_lone_put_to_a_host_brings_its_fence),
        WITH_OWN(the_last_word_is_put_last),
        WITH_OWN(the_end_of_a_host_is_reported_once),
        WITH_OWN(a_host_without_connections_is_reached_by_frames),
        WITH_OWN(strangers_are_disconnected),
        WITH_OWN(accesses_end_at_the_segment),
        WITH_OWN(an_invalid_request_ends_the_connection),
        WITH_OWN(a_peer_that_does_not_read_delays_only_itself),
        WITH_OWN(requests_may_come_in_pieces),
        WITH_OWN(owners_that_lie_or_leave_are_left),
        WITH_OWN(a_put_that_is_given_up_half_way_ends_the_connection),
        WITH_OWN(where_there_can_be_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
