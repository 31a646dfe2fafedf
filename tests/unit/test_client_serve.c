/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A host's end of direct connections: which peers are admitted, which memory they reach and when,
 * and that no peer delays another one. This test plays the host: a token is valid once, the memory
 * is one segment, and the thread accesses it only within a turn.
 */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/types.h"
#include "host/attach_wire.h"
#include "host/client_tcp.h"
#include "viaduct/viaduct.h"

#define BYTES ((size_t)32 << 20)
#define HANDLE UINT64_C(0x777)
#define PEERS 3u
/* Gets of a peer that reads all answers at once: many more than a turn serves. */
#define GET_BYTES (64u << 10)
#define GETS 300u
#define GETS_A_TURN ((1u << 20) / GET_BYTES)

struct host {
    struct via_client_serve_calls calls;
    struct via_client_serve *serve;
    _Atomic bool tokens[PEERS]; /* valid token: 16 times the peer's number + 1 */
    _Atomic unsigned conns[PEERS];
    _Atomic bool unwanted[PEERS];
    /* position: of the connection that ended last. idle_ns: of the connection in the last query. */
    _Atomic uint64_t position, idle_ns;
    _Atomic int refusal;
    _Atomic uint32_t answered_bytes;
    _Atomic unsigned access; /* access that the owner allows */
    _Atomic bool inside, broken;
    unsigned char *memory;
    /* A peer's end, which is emptied before each get, and the number of bytes received there. */
    _Atomic int drained_fd;
    _Atomic uint64_t drained;
    _Atomic unsigned turns, reached, reached_max; /* reached: gets of GET_BYTES, in this turn */
};

/* Reads the received bytes. */
static void drain(struct host *host)
{
    static _Thread_local unsigned char taken[1 << 16];
    int fd = atomic_load(&host->drained_fd);
    ssize_t got;
    while (fd >= 0 && (got = recv(fd, taken, sizeof(taken), MSG_DONTWAIT)) > 0) {
        atomic_fetch_add(&host->drained, (uint64_t)got);
    }
}

static bool admit(void *ctx, const uint8_t *token, uint32_t *ret_peer)
{
    struct host *host = ctx;
    uint32_t peer = token[0] - 1u;
    for (unsigned i = 1; i < VIA_TCP_TOKEN_BYTES; i++) {
        if (token[i] != token[0]) {
            return false;
        }
    }
    if (peer >= PEERS || !atomic_exchange(&host->tokens[peer], false)) {
        return false;
    }
    atomic_fetch_add(&host->conns[peer], 1);
    *ret_peer = peer;
    return true;
}

static void left(void *ctx, uint32_t peer, const struct via_attach_position *end)
{
    struct host *host = ctx;
    atomic_store(&host->position, end->position);
    atomic_store(&host->refusal, end->refusal);
    atomic_store(&host->answered_bytes, end->answered_bytes);
    atomic_fetch_sub(&host->conns[peer], 1);
}

static bool is_unwanted(void *ctx, uint32_t peer, uint64_t idle_ns)
{
    struct host *host = ctx;
    atomic_store(&host->idle_ns, idle_ns);
    return atomic_load(&host->unwanted[peer]);
}

static void turn(void *ctx, bool begins)
{
    struct host *host = ctx;
    if (atomic_exchange(&host->inside, begins) == begins) {
        host->broken = true;
    }
    unsigned reached = atomic_exchange(&host->reached, 0);
    if (reached > host->reached_max) {
        host->reached_max = reached;
    }
    host->turns++;
}

static unsigned char *reach(void *ctx, uint64_t handle, uint64_t off, uint64_t bytes, unsigned need)
{
    struct host *host = ctx;
    if (!atomic_load(&host->inside)) {
        host->broken = true;
    }
    if (bytes == GET_BYTES) {
        host->reached++;
        drain(host);
    }
    bool allowed = handle == HANDLE && (atomic_load(&host->access) & need) == need;
    return allowed && off <= BYTES && bytes <= BYTES - off ? host->memory + off : NULL;
}

static bool is_crowded(void *ctx)
{
    (void)ctx;
    return false;
}

static int set_up(void **state)
{
    struct host *host = calloc(1, sizeof(*host));
    host->memory = calloc(1, BYTES);
    host->drained_fd = -1;
    host->access = VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE;
    host->calls = (struct via_client_serve_calls){.ctx = host,
                                                  .admit = admit,
                                                  .left = left,
                                                  .is_unwanted = is_unwanted,
                                                  .turn = turn,
                                                  .reach = reach,
                                                  .is_crowded = is_crowded,
                                                  .spin_ns_max = 50 * VIA_USEC_NS};
    assert_int_equal(via_client_serve_open_host(&host->calls, "127.0.0.1", &host->serve), 0);
    *state = host;
    return 0;
}

static int tear_down(void **state)
{
    struct host *host = *state;
    via_client_serve_close(host->serve, true);
    assert_false(host->broken || host->inside);
    for (unsigned i = 0; i < PEERS; i++) {
        assert_int_equal(host->conns[i], 0);
    }
    free(host->memory);
    free(host);
    return 0;
}

static void send_bytes(int fd, const void *data, size_t bytes)
{
    assert_int_equal(send(fd, data, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

/* False: the connection has ended. */
static bool receive_bytes(int fd, void *data, size_t bytes)
{
    return recv(fd, data, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static int call(struct host *host, unsigned peer)
{
    const struct via_tcp_card *card = via_client_serve_card(host->serve);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = card->port};
    struct timeval patience = {.tv_sec = 20};
    struct via_tcp_hello hello = {.magic = VIA_TCP_MAGIC};
    memcpy(&to.sin_addr, card->address, sizeof(to.sin_addr));
    memset(hello.token, (int)peer + 1, sizeof(hello.token));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    send_bytes(fd, &hello, sizeof(hello));
    return fd;
}

static int call_admitted(struct host *host, unsigned peer)
{
    struct via_tcp_ready ready;
    atomic_store(&host->tokens[peer], true);
    int fd = call(host, peer);
    assert_true(receive_bytes(fd, &ready, sizeof(ready)));
    assert_true(ready.magic == VIA_TCP_MAGIC);
    return fd;
}

static void send_request(int fd, enum via_tcp_kind kind, uint64_t handle, uint64_t off,
                         uint64_t bytes)
{
    struct via_tcp_request request = {
        .kind = (uint8_t)kind, .handle = handle, .off = off, .bytes = bytes};
    send_bytes(fd, &request, sizeof(request));
}

static int status_of_answer(int fd)
{
    struct via_tcp_answer answer;
    assert_true(receive_bytes(fd, &answer, sizeof(answer)));
    assert_true(answer.bytes == 0);
    return answer.status;
}

static int put_word(int fd, uint64_t handle, uint64_t off, uint64_t word)
{
    send_request(fd, VIA_TCP_PUT, handle, off, sizeof(word));
    send_bytes(fd, &word, sizeof(word));
    send_request(fd, VIA_TCP_FENCE, 0, 0, 0);
    return status_of_answer(fd);
}

static void a_token_is_valid_once(void **state)
{
    struct host *host = *state;
    unsigned char byte;
    int fd = call_admitted(host, 0);
    assert_int_equal(host->conns[0], 1);
    assert_int_equal(put_word(fd, HANDLE, 8, 5), 0);
    assert_true(host->memory[8] == 5);
    for (unsigned peer = 0; peer < 2; peer++) { /* used before, never issued */
        int other = call(host, peer);
        assert_false(receive_bytes(other, &byte, 1));
        close(other);
    }
    assert_int_equal(put_word(fd, HANDLE, 8, 6), 0);
    close(fd);
}

static void accesses_that_are_not_allowed(void **state)
{
    struct host *host = *state;
    int fd = call_admitted(host, 0);
    assert_int_equal(put_word(fd, HANDLE + 1, 0, 1), -EACCES);
    assert_int_equal(put_word(fd, HANDLE, BYTES - 4, 1), -EACCES);
    atomic_store(&host->access, VIADUCT_SEGMENT_READ);
    assert_int_equal(put_word(fd, HANDLE, 0, 1), -EACCES);
    send_request(fd, VIA_TCP_GET, HANDLE, 0, 0);
    assert_int_equal(status_of_answer(fd), 0);
    atomic_store(&host->access, VIADUCT_SEGMENT_WRITE);
    send_request(fd, VIA_TCP_GET, HANDLE, 0, 8);
    assert_int_equal(status_of_answer(fd), -EACCES);
    struct via_tcp_request add = {.kind = VIA_TCP_ATOMIC,
                                  .width = 8,
                                  .operation = VIADUCT_ATOMIC_ADD,
                                  .flags = VIA_TCP_FETCHES,
                                  .handle = HANDLE};
    const struct via_tcp_operands operands = {.operand = 1};
    send_bytes(fd, &add, sizeof(add));
    send_bytes(fd, &operands, sizeof(operands));
    assert_int_equal(status_of_answer(fd), -EACCES);
    assert_true(host->memory[0] == 0);
    close(fd);
}

static void unwanted_peers_are_ended_and_others_are_not(void **state)
{
    struct host *host = *state;
    unsigned char byte;
    int fds[PEERS];
    for (unsigned i = 0; i < PEERS; i++) {
        fds[i] = call_admitted(host, i);
    }
    atomic_store(&host->unwanted[1], true);
    via_client_serve_review(host->serve);
    assert_false(receive_bytes(fds[1], &byte, 1));
    assert_int_equal(put_word(fds[0], HANDLE, 0, 1), 0);
    assert_int_equal(put_word(fds[2], HANDLE, 0, 2), 0);
    for (unsigned i = 0; i < PEERS; i++) {
        close(fds[i]);
    }
}

static void wait_for_end(struct host *host, unsigned peer)
{
    for (unsigned i = 0; i < 20000 && host->conns[peer] != 0; i++) {
        usleep(1000);
    }
    assert_int_equal(host->conns[peer], 0);
}

/* The host counts the applied bytes exactly; the library sends the rest in frames. */
static void the_position_is_what_was_applied(void **state)
{
    struct host *host = *state;
    static unsigned char data[4u << 20];
    const uint64_t one = sizeof(struct via_tcp_request) + 8;
    memset(data, 0x5a, sizeof(data));
    for (unsigned i = 0; i < 3; i++) {
        int fd = call_admitted(host, 0);
        assert_int_equal(put_word(fd, HANDLE, 0, 1), 0);
        uint64_t position = one + sizeof(struct via_tcp_request);
        memset(host->memory, 0, BYTES);
        /* A whole put, then the head of a second put and a part of its payload: of a short put, of
         * a long one, nothing. */
        size_t bytes = (size_t[]){100, sizeof(data), 8}[i], sent = (size_t[]){50, 3u << 20, 0}[i];
        send_request(fd, VIA_TCP_PUT, HANDLE, 16, 8);
        send_bytes(fd, data, 8);
        send_request(fd, VIA_TCP_PUT, HANDLE, 4096, bytes);
        send_bytes(fd, data, sent);
        shutdown(fd, SHUT_WR);
        wait_for_end(host, 0);
        position += one + sizeof(struct via_tcp_request);
        uint64_t applied = host->position - position;
        assert_in_range(applied, 0, sent);
        if (bytes == sizeof(data)) {
            assert_in_range(applied, sent - 7, sent); /* whole words */
        } else {
            assert_int_equal(applied, 0); /* a short put is applied whole */
        }
        assert_memory_equal(host->memory + 4096, data, applied);
        assert_true(host->memory[4096 + applied] == 0);
        assert_int_equal(host->refusal, 0);
        close(fd);
    }
    /* The position contains a refusal that no answer has reported. */
    int fd = call_admitted(host, 0);
    send_request(fd, VIA_TCP_PUT, HANDLE + 1, 0, 8);
    send_bytes(fd, data, 8);
    shutdown(fd, SHUT_WR);
    wait_for_end(host, 0);
    assert_int_equal(host->position, one);
    assert_int_equal(host->refusal, -EACCES);
    assert_int_equal(host->answered_bytes, 0);
    close(fd);
    /* ... and one that an answer reports, which the process may not receive. */
    fd = call_admitted(host, 0);
    send_request(fd, VIA_TCP_PUT, HANDLE + 1, 0, 8);
    send_bytes(fd, data, 8);
    send_request(fd, VIA_TCP_FENCE, 0, 0, 0);
    send_request(fd, VIA_TCP_PUT, HANDLE, 16, 8);
    send_bytes(fd, data, 8);
    send_request(fd, VIA_TCP_FENCE, 0, 0, 0);
    shutdown(fd, SHUT_WR);
    wait_for_end(host, 0);
    uint64_t position = 2 * (one + sizeof(struct via_tcp_request));
    assert_int_equal(host->position, position);
    assert_int_equal(host->refusal, -EACCES);
    assert_int_equal(host->answered_bytes, position - one);
    close(fd);
}

static void it_is_known_how_idle_a_connection_is(void **state)
{
    struct host *host = *state;
    int fd = call_admitted(host, 0);
    usleep(200000);
    via_client_serve_review(host->serve);
    for (unsigned i = 0; i < 20000 && host->idle_ns == 0; i++) {
        usleep(1000);
    }
    assert_in_range(host->idle_ns, 100 * VIA_MSEC_NS, 20 * VIA_SEC_NS);
    close(fd);
}

/* One peer repeatedly requests far more bytes than its socket holds. */
static void a_peer_with_many_gets_delays_no_other_peer(void **state)
{
    struct host *host = *state;
    static unsigned char taken[1 << 20];
    int greedy = call_admitted(host, 0), other = call_admitted(host, 1);
    const unsigned gets = 3;
    uint64_t left_bytes = gets * (BYTES + sizeof(struct via_tcp_answer));
    uint64_t words = 0;
    for (unsigned i = 0; i < gets; i++) {
        send_request(greedy, VIA_TCP_GET, HANDLE, 0, BYTES);
    }
    while (left_bytes != 0) {
        ssize_t got = recv(greedy, taken, sizeof(taken), 0);
        assert_true(got > 0);
        left_bytes -= (uint64_t)got;
        if (left_bytes % 4 == 0) {
            assert_int_equal(put_word(other, HANDLE, 8 * (words % 1000), words), 0);
            words++;
        }
    }
    assert_true(words > 3);
    close(greedy);
    close(other);
}

/* The peer reads answers as fast as they come, so the connection is always ready. */
static void gets_of_a_turn_are_bounded(void **state)
{
    struct host *host = *state;
    static struct via_tcp_request gets[GETS];
    int fd = call_admitted(host, 0);
    for (unsigned i = 0; i < GETS; i++) {
        gets[i] =
            (struct via_tcp_request){.kind = VIA_TCP_GET, .handle = HANDLE, .bytes = GET_BYTES};
    }
    host->drained_fd = fd;
    send_bytes(fd, gets, sizeof(gets));
    while (host->drained != GETS * (GET_BYTES + sizeof(struct via_tcp_answer))) {
        drain(host);
    }
    assert_int_equal(put_word(fd, HANDLE, 0, 1), 0);
    /* The memory of each get is accessed when the request is taken and when the answer is sent. */
    assert_in_range(host->reached_max, 1, 2 * (GETS_A_TURN + 2));
    close(fd);
}

/* If a child holds the descriptor, close() alone ends neither the connection nor its events. */
static void a_child_keeps_no_connection_open(void **state)
{
    struct host *host = *state;
    unsigned char byte;
    int fd = call_admitted(host, 0);
    pid_t child = fork();
    if (child == 0) {
        for (;;) {
            alarm(60);
            pause();
        }
    }
    atomic_store(&host->unwanted[0], true);
    via_client_serve_review(host->serve);
    assert_int_equal(recv(fd, &byte, 1, 0), 0); /* end of file, not a time-out */
    unsigned turns = host->turns;
    usleep(100000);
    assert_in_range(host->turns - turns, 0, 1000);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(fd);
}

int main(void)
{
#define WITH_HOST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_HOST(a_token_is_valid_once),
        WITH_HOST(accesses_that_are_not_allowed),
        WITH_HOST(the_position_is_what_was_applied),
        WITH_HOST(it_is_known_how_idle_a_connection_is),
        WITH_HOST(unwanted_peers_are_ended_and_others_are_not),
        WITH_HOST(a_peer_with_many_gets_delays_no_other_peer),
        WITH_HOST(gets_of_a_turn_are_bounded),
        WITH_HOST(a_child_keeps_no_connection_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
