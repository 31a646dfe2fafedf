/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Connections that the library opens by itself: with daemons of older versions, and in the place of
 * a connection that has ended while a thread waits. The host at the other end applies no requests.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/types.h"
#include "host/client_kept.h"
#include "host/client_tcp_inside.h"
#include "tests/unit/client_fixture.h"

#define CALLERS 2u
#define TRIES 10000u

/* The waiting thread is held in its next ppoll(2) until the test releases it. */
static _Thread_local bool is_held_thread;
static _Atomic bool holds, is_held;

/* It reads optional arguments that the caller may not have passed. */
__attribute__((no_sanitize("address"))) long syscall(long number, ...)
{
    static long (*_Atomic next)(long, ...);
    long args[6];
    va_list list;
    va_start(list, number);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(args); i++) {
        args[i] = va_arg(list, long);
    }
    va_end(list);
    if (next == NULL) {
        void *found = dlsym(RTLD_NEXT, "syscall");
        long (*function)(long, ...);
        memcpy(&function, &found, sizeof(function));
        next = function;
    }
    while (number == SYS_ppoll && is_held_thread &&
           atomic_load_explicit(&holds, memory_order_relaxed)) {
        atomic_store_explicit(&is_held, true, memory_order_relaxed);
        sched_yield();
    }
    return next(number, args[0], args[1], args[2], args[3], args[4], args[5]);
}

struct peer {
    struct fixture *fixture;
    int listen_fd;
    _Atomic int fds[CALLERS];
    pthread_t thread;
    bool is_joined;
};

static void *greet(void *argument)
{
    struct peer *peer = argument;
    struct via_tcp_hello hello;
    struct via_tcp_ready ready = {.magic = VIA_TCP_MAGIC};
    for (unsigned i = 0; i < CALLERS; i++) {
        peer->fds[i] = accept(peer->listen_fd, NULL, NULL);
        if (peer->fds[i] < 0) {
            return NULL;
        }
        (void)!recv(peer->fds[i], &hello, sizeof(hello), MSG_WAITALL);
        (void)!send(peer->fds[i], &ready, sizeof(ready), MSG_NOSIGNAL);
    }
    return NULL;
}

static void listen_at(struct peer *peer)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct via_tcp_card *card = &peer->fixture->fake.direct_card;
    socklen_t bytes = sizeof(at);
    peer->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(peer->listen_fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(peer->listen_fd, (int)CALLERS), 0);
    assert_int_equal(getsockname(peer->listen_fd, (struct sockaddr *)&at, &bytes), 0);
    *card = (struct via_tcp_card){
        .magic = VIA_TCP_MAGIC, .token = {1}, .family = 4, .port = at.sin_port};
    memcpy(card->address, &at.sin_addr, sizeof(at.sin_addr));
}

static int set_up(void **state)
{
    struct peer *peer = calloc(1, sizeof(*peer));
    void *fixture = NULL;
    unsetenv("VIADUCT_DIRECT"); /* the default */
    client_set_up(&fixture);
    peer->fixture = fixture;
    struct fake_host *fake = &peer->fixture->fake;
    pthread_mutex_lock(&fake->lock);
    strcpy(fake->tcp.local, "127.0.0.1");
    strcpy(fake->tcp.peer, "127.0.0.1");
    fake->direct_keeps = 1;
    fake->direct_kept_layout = VIA_KEPT_LAYOUT;
    listen_at(peer);
    pthread_mutex_unlock(&fake->lock);
    fake_host_set_way(fake, FAKE_PEER, 77, 10, 1, false);
    assert_int_equal(pthread_create(&peer->thread, NULL, greet, peer), 0);
    *state = peer;
    return 0;
}

static int tear_down(void **state)
{
    struct peer *peer = *state;
    void *fixture = peer->fixture;
    shutdown(peer->listen_fd, SHUT_RDWR); /* accept() returns */
    if (!peer->is_joined) {
        pthread_join(peer->thread, NULL);
    }
    for (unsigned i = 0; i < CALLERS; i++) {
        if (peer->fds[i] > 0) {
            close(peer->fds[i]);
        }
    }
    client_tear_down(&fixture);
    close(peer->listen_fd);
    free(peer);
    return 0;
}

static void put_word(struct peer *peer, uint64_t word)
{
    assert_int_equal(via_remote_put(peer->fixture->remote, 64, &word, sizeof(word), 0), 0);
}

static uint64_t word_of(const struct peer *peer)
{
    uint64_t word;
    memcpy(&word, peer->fixture->peer->view + 64, sizeof(word));
    return word;
}

static unsigned frames_pending(const struct peer *peer)
{
    return peer->fixture->attach->host_pending[FAKE_PEER];
}

/* Puts until a connection carries one. */
static void put_until_connected(struct peer *peer, uint64_t word)
{
    for (unsigned i = 0; i < TRIES; i++) {
        put_word(peer, word);
        if (frames_pending(peer) == 0 && via_client_tcp_count(peer->fixture->attach) != 0 &&
            via_remote_pending(peer->fixture->remote) != 0) {
            return;
        }
        assert_int_equal(via_attach_quiet(peer->fixture->attach), 0);
        client_nap_ms(i % 64 == 0 ? 1 : 0);
    }
    fail_msg("no connection");
}

/* --- older daemons ---------------------------------------------------------------------------- */

static void assert_frames_carry(struct peer *peer)
{
    struct fake_host *fake = &peer->fixture->fake;
    for (unsigned i = 0; i < TRIES && fake->directs_count == 0; i++) {
        put_word(peer, i);
        assert_int_equal(via_attach_quiet(peer->fixture->attach), 0);
    }
    assert_int_equal(fake->directs_count, 1);
    for (unsigned i = 1; i <= 300; i++) {
        put_word(peer, i);
        assert_int_equal(via_attach_quiet(peer->fixture->attach), 0);
        assert_int_equal(word_of(peer), i);
        client_nap_ms(i % 10 == 0 ? 5 : 0);
    }
    assert_int_equal(via_client_tcp_count(peer->fixture->attach), 0);
    assert_int_equal(fake->directs_count, 1); /* asked once */
}

static void the_own_daemon_has_no_connections_to_hosts(void **state)
{
    struct peer *peer = *state;
    peer->fixture->fake.direct_status = -EINVAL;
    assert_frames_carry(peer);
}

static void the_neighbours_daemon_has_no_positions(void **state)
{
    struct peer *peer = *state;
    pthread_mutex_lock(&peer->fixture->fake.lock);
    peer->fixture->fake.direct_keeps = 0;
    pthread_mutex_unlock(&peer->fixture->fake.lock);
    assert_frames_carry(peer);
}

static void the_own_daemon_puts_nothing_for_a_process_that_ends(void **state)
{
    struct peer *peer = *state;
    pthread_mutex_lock(&peer->fixture->fake.lock);
    peer->fixture->fake.direct_kept_layout = 0;
    pthread_mutex_unlock(&peer->fixture->fake.lock);
    assert_frames_carry(peer);
}

/* --- reuse of a place ------------------------------------------------------------------------- */

struct waiter {
    struct via_attach *attach;
    int rc;
};

static void *wait_held(void *argument)
{
    struct waiter *waiter = argument;
    is_held_thread = true;
    waiter->rc = via_attach_quiet(waiter->attach);
    return NULL;
}

/* Until it waits. */
static void hold(struct waiter *waiter, pthread_t *thread)
{
    atomic_store_explicit(&is_held, false, memory_order_relaxed);
    atomic_store_explicit(&holds, true, memory_order_relaxed);
    assert_int_equal(pthread_create(thread, NULL, wait_held, waiter), 0);
    while (!atomic_load_explicit(&is_held, memory_order_relaxed)) {
        sched_yield();
    }
}

static void a_thread_waits_while_the_place_is_used_again(void **state)
{
    struct peer *peer = *state;
    struct waiter waiter = {.attach = peer->fixture->attach};
    pthread_t thread;
    put_until_connected(peer, 1);
    hold(&waiter, &thread);
    /* The connection ends; frames carry the puts that it kept, and the library opens another
     * connection in the same place. */
    shutdown(peer->fds[0], SHUT_RDWR);
    for (unsigned i = 0; i < TRIES && peer->fixture->fake.directs_count < 3; i++) {
        put_word(peer, 2);
        client_nap_ms(1);
    }
    pthread_join(peer->thread, NULL); /* it has two callers */
    peer->is_joined = true;
    put_until_connected(peer, 3);
    assert_int_equal(via_client_tcp_count(peer->fixture->attach), 1);
    atomic_store_explicit(&holds, false, memory_order_relaxed);
    shutdown(peer->fds[1], SHUT_RDWR); /* the waiter may wait for the second connection, too */
    pthread_join(thread, NULL);
    assert_int_equal(waiter.rc, 0);
    assert_int_equal(via_attach_quiet(peer->fixture->attach), 0);
    assert_int_equal(word_of(peer), 3);
}

/* The same with connections that the program requests. */
static void a_thread_waits_while_a_program_connects_again(void **state)
{
    struct peer *peer = *state;
    struct waiter waiter = {.attach = peer->fixture->attach};
    struct via_remote *remotes[2];
    pthread_t thread;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(remotes); i++) {
        assert_int_equal(via_remote_open(peer->fixture->attach, FAKE_PEER, FAKE_PEER_HANDLE,
                                         FAKE_PEER_BYTES, &remotes[i]),
                         0);
    }
    assert_int_equal(via_remote_connect(remotes[0]), 0);
    assert_int_equal(via_remote_put(remotes[0], 0, "1", 1, 0), 0);
    hold(&waiter, &thread);
    shutdown(peer->fds[0], SHUT_RDWR);
    assert_int_equal(via_attach_quiet(peer->fixture->attach), -ECONNRESET);
    via_remote_close(remotes[0]);
    assert_int_equal(via_remote_connect(remotes[1]), 0);
    assert_int_equal(via_client_tcp_count(peer->fixture->attach), 1);
    alarm(20); /* the peer sends no answer, so a thread that waits for one waits forever */
    atomic_store_explicit(&holds, false, memory_order_relaxed);
    pthread_join(thread, NULL);
    alarm(0);
    assert_int_equal(waiter.rc, -ECONNRESET);
    via_remote_close(remotes[1]);
}

/* --- calls that do not block -------------------------------------------------------------------
 */

static size_t room_of(struct via_client_tcp *tcp)
{
    return VIA_CLIENT_TCP_OUT_BYTES - tcp->out_end;
}

static void put_bytes(struct peer *peer, size_t bytes)
{
    static unsigned char data[VIA_TCP_SMALL_BYTES];
    assert_int_equal(via_remote_put(peer->fixture->remote, 0, data, bytes, 0), 0);
}

static bool is_socket_full(struct via_client_tcp *tcp)
{
    pthread_mutex_lock(&tcp->lock);
    int rc = via_client_tcp_flush(tcp);
    tcp->kept->unfenced_bytes = 0; /* no put of this test requests a fence */
    pthread_mutex_unlock(&tcp->lock);
    return rc == -EAGAIN;
}

/* A put begins only if there is room for the longest put that is gathered. */
static void fill(struct peer *peer, struct via_client_tcp *tcp)
{
    const size_t longest = sizeof(struct via_tcp_request) + VIA_TCP_SMALL_BYTES;
    int bytes = 1;
    assert_int_equal(setsockopt(tcp->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
    while (!is_socket_full(tcp)) {
        put_bytes(peer, VIA_TCP_SMALL_BYTES);
    }
    while (room_of(tcp) > 2 * longest) {
        put_bytes(peer, VIA_TCP_SMALL_BYTES);
    }
    put_bytes(peer, room_of(tcp) - longest - sizeof(struct via_tcp_request));
    put_bytes(peer, VIA_TCP_SMALL_BYTES);
    assert_int_equal(room_of(tcp), 0);
}

static void calls_that_do_not_block_do_not_wait_for_room(void **state)
{
    struct peer *peer = *state;
    put_until_connected(peer, 1);
    fill(peer, peer->fixture->attach->tcp_all[0]);
    alarm(20); /* the peer reads nothing, so a call that waits for room waits forever */
    for (unsigned i = 0; i < 10; i++) {
        assert_true(via_remote_pending(peer->fixture->remote) > 1);
        assert_int_equal(via_remote_try_put(peer->fixture->remote, 0, "1", 1, 0), -EAGAIN);
    }
    alarm(0);
    shutdown(peer->fds[0], SHUT_RDWR);
    assert_int_equal(via_attach_quiet(peer->fixture->attach), 0);
}

/* [tcp->lock] A fence is gathered, as for a put soon after another one. Returns 0, or a negative
 * errno. */
static int gather_fence(struct peer *peer, struct via_client_tcp *tcp)
{
    int rc = 0;
    for (unsigned i = 0; i < 100 && rc == 0 && !via_client_tcp_is_held_back(tcp); i++) {
        bool is_kept = false;
        tcp->sent_ns = via_client_now_ns();
        tcp->kept->unfenced_count = VIA_KEPT_PUTS_MAX / 4;
        rc = via_client_tcp_put_kept(tcp, peer->fixture->remote, 0, "1", 1, &is_kept);
    }
    return rc;
}

/* A thread that polls for the answer often holds the lock when the library's thread is about to
 * send. */
static void asking_sends_a_fence_that_was_gathered(void **state)
{
    struct peer *peer = *state;
    put_until_connected(peer, 1);
    struct via_client_tcp *tcp = peer->fixture->attach->tcp_all[0];
    pthread_mutex_lock(&tcp->lock);
    int rc = gather_fence(peer, tcp);
    bool was_gathered = via_client_tcp_is_held_back(tcp);
    via_client_tcp_fence_soon(tcp);
    bool is_left = via_client_tcp_is_held_back(tcp);
    pthread_mutex_unlock(&tcp->lock);
    assert_int_equal(rc, 0);
    assert_true(was_gathered);
    assert_false(is_left);
    shutdown(peer->fds[0], SHUT_RDWR);
    assert_int_equal(via_attach_quiet(peer->fixture->attach), 0);
}

static void *take_all(void *argument)
{
    static char taken[65536];
    const struct peer *peer = argument;
    while (recv(peer->fds[0], taken, sizeof(taken), 0) > 0) {
    }
    return NULL;
}

/* The host sends no answer, so a put that waits until it has been applied waits forever. */
static void a_put_of_half_a_mebibyte_is_kept_in_pieces(void **state)
{
    struct peer *peer = *state;
    struct fake_host *fake = &peer->fixture->fake;
    static unsigned char data[512u << 10];
    const uint64_t handle = FAKE_PEER_HANDLE + 1;
    struct via_remote *remote;
    pthread_t thread;
    memset(data, 'd', sizeof(data));
    pthread_mutex_lock(&fake->lock);
    struct fake_segment *segment = fake_host_peer_add(fake, handle, sizeof(data));
    pthread_mutex_unlock(&fake->lock);
    assert_int_equal(
        via_remote_open(peer->fixture->attach, FAKE_PEER, handle, sizeof(data), &remote), 0);
    put_until_connected(peer, 1);
    struct via_client_tcp *tcp = peer->fixture->attach->tcp_all[0];
    assert_int_equal(pthread_create(&thread, NULL, take_all, peer), 0);
    unsigned count = via_kept_count(tcp->kept);
    alarm(20);
    assert_int_equal(via_remote_put(remote, 0, data, sizeof(data), 0), 0);
    alarm(0);
    assert_true(via_kept_count(tcp->kept) > count + 1);
    shutdown(peer->fds[0], SHUT_RDWR);
    pthread_join(thread, NULL);
    assert_int_equal(via_attach_quiet(peer->fixture->attach), 0);
    assert_memory_equal(segment->view, data, sizeof(data));
    via_remote_close(remote);
}

#define WITH_PEER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_PEER(the_own_daemon_has_no_connections_to_hosts),
        WITH_PEER(the_neighbours_daemon_has_no_positions),
        WITH_PEER(the_own_daemon_puts_nothing_for_a_process_that_ends),
        WITH_PEER(a_thread_waits_while_the_place_is_used_again),
        WITH_PEER(a_thread_waits_while_a_program_connects_again),
        WITH_PEER(calls_that_do_not_block_do_not_wait_for_room),
        WITH_PEER(asking_sends_a_fence_that_was_gathered),
        WITH_PEER(a_put_of_half_a_mebibyte_is_kept_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
