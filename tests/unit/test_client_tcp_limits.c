/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Direct connections when descriptors, connections or time run out, owners are stopped, or hosts
 * are behind a firewall. Owners are threads here, which only send their hello.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/types.h"
#include "host/client_tcp_inside.h"
#include "tests/unit/client_fixture.h"

#define BYTES ((size_t)1 << 20)
#define CONNECTIONS_MAX 64u
/* More bytes than the buffers of two sockets hold. */
#define MUCH ((size_t)64 << 20)

/* The client library's clock, which a test may advance. */
static _Atomic int64_t forward_s;

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += forward_s;
    return rc;
}

struct own {
    struct fixture *fixture;
    struct via_segment *segment;
    struct via_remote *remote; /* remote of `segment`, as if a peer had opened it */
    struct via_tcp_card card;
    bool has_address;
};

static uint16_t generation = 10;

static int set_up_at(void **state, const char *address)
{
    struct own *own = calloc(1, sizeof(*own));
    void *fixture = NULL;
    client_set_up(&fixture);
    own->fixture = fixture;
    struct fake_host *fake = &own->fixture->fake;
    struct via_attach *attach = own->fixture->attach;
    fake_host_set_address(fake, address);
    fake_host_set_way(fake, FAKE_PEER, 77, ++generation, 1, false);
    int rc = via_tcp_offer(attach, &own->card);
    own->has_address = rc == 0;
    assert_true(rc == 0 || rc == -EADDRNOTAVAIL || rc == -EAFNOSUPPORT);
    assert_int_equal(
        via_segment_new(attach, BYTES, VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE, &own->segment),
        0);
    assert_int_equal(
        via_remote_open(attach, FAKE_PEER, via_segment_handle(own->segment), BYTES, &own->remote),
        0);
    if (own->has_address) {
        assert_int_equal(via_tcp_serve(own->segment), 0);
        assert_int_equal(via_tcp_dial(own->remote, &own->card), 0);
    }
    *state = own;
    return 0;
}

static int set_up(void **state)
{
    return set_up_at(state, "127.0.0.1");
}

static int set_up6(void **state)
{
    return set_up_at(state, "::1");
}

static int tear_down(void **state)
{
    struct own *own = *state;
    void *fixture = own->fixture;
    via_remote_close(own->remote);
    via_segment_free(own->segment);
    client_tear_down(&fixture);
    free(own);
    return 0;
}

static struct via_remote *open_to(struct own *own)
{
    struct via_remote *remote;
    assert_int_equal(via_remote_open(own->fixture->attach, FAKE_PEER,
                                     via_segment_handle(own->segment), BYTES, &remote),
                     0);
    return remote;
}

/* Puts a word and gets it again, by the connection or over frames. */
static void assert_works(struct own *own, struct via_remote *remote, bool by_frames)
{
    static uint64_t word;
    uint64_t back = 0;
    unsigned commands = own->fixture->fake.commands_count;
    word++;
    assert_int_equal(via_remote_put(remote, 64, &word, sizeof(word), 0), 0);
    assert_int_equal(via_remote_get(remote, 64, &back, sizeof(back)), 0);
    assert_true(back == word);
    assert_int_equal(own->fixture->fake.commands_count != commands, by_frames);
}

/* --- owners ---------------------------------------------------------------------------------- */

struct owner {
    struct via_tcp_card card;
    int listen_fd;
    unsigned callers; /* number of connectors that get its hello */
    int fds[CONNECTIONS_MAX];
    pthread_t thread;
};

static void *greet(void *argument)
{
    struct owner *owner = argument;
    struct via_tcp_hello hello;
    struct via_tcp_ready ready = {.magic = VIA_TCP_MAGIC};
    for (unsigned i = 0; i < owner->callers; i++) {
        owner->fds[i] = accept(owner->listen_fd, NULL, NULL);
        (void)!recv(owner->fds[i], &hello, sizeof(hello), MSG_WAITALL);
        (void)!send(owner->fds[i], &ready, sizeof(ready), MSG_NOSIGNAL);
    }
    return NULL;
}

static void listen_at(struct owner *owner, int backlog)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    owner->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(owner->listen_fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(owner->listen_fd, backlog), 0);
    assert_int_equal(getsockname(owner->listen_fd, (struct sockaddr *)&at, &bytes), 0);
    owner->card = (struct via_tcp_card){
        .magic = VIA_TCP_MAGIC, .token = {1}, .family = 4, .port = at.sin_port};
    memcpy(owner->card.address, &at.sin_addr, sizeof(at.sin_addr));
}

static void owner_start(struct owner *owner, unsigned callers)
{
    owner->callers = callers;
    listen_at(owner, (int)CONNECTIONS_MAX);
    assert_int_equal(pthread_create(&owner->thread, NULL, greet, owner), 0);
}

static void owner_end(struct owner *owner)
{
    pthread_join(owner->thread, NULL);
    for (unsigned i = 0; i < owner->callers; i++) {
        close(owner->fds[i]);
    }
    close(owner->listen_fd);
}

/* --- tests ----------------------------------------------------------------------------------- */

static void addresses_may_be_ipv6(void **state)
{
    struct own *own = *state;
    if (!own->has_address) {
        skip();
    }
    assert_int_equal(own->card.family, 6);
    assert_works(own, own->remote, false);
    struct via_remote *remote = open_to(own);
    struct via_tcp_card card = own->card;
    card.token[0] ^= 1;
    assert_int_equal(via_tcp_dial(remote, &card), -ECONNREFUSED); /* refused by the owner */
    card.address[15] ^= 3;
    /* At an address that is not one of the daemons' addresses. */
    assert_int_equal(via_tcp_dial(remote, &card), -EXDEV);
    card.family = 4;
    assert_int_equal(via_tcp_dial(remote, &card), -EXDEV);
    via_remote_close(remote);
}

static void more_peers_than_connections(void **state)
{
    struct own *own = *state;
    struct via_remote *remotes[CONNECTIONS_MAX];
    struct owner owner = {0};
    owner_start(&owner, CONNECTIONS_MAX - 1); /* and the process's own one */
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
        remotes[i] = open_to(own);
        owner.card.token[1] = (uint8_t)i;
        assert_int_equal(via_tcp_dial(remotes[i], &owner.card),
                         i < CONNECTIONS_MAX - 1 ? 0 : -ENOSPC);
    }
    assert_works(own, own->remote, false);
    assert_works(own, remotes[CONNECTIONS_MAX - 1], true);
    /* Another remote of the same process shares the process's connection. */
    struct via_remote *shared = open_to(own);
    assert_int_equal(via_tcp_dial(shared, &own->card), 0);
    assert_works(own, shared, false);
    via_remote_close(shared);
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
        via_remote_close(remotes[i]);
    }
    owner_end(&owner);
}

static void limit_descriptors(rlim_t count, struct rlimit *ret_before)
{
    assert_int_equal(getrlimit(RLIMIT_NOFILE, ret_before), 0);
    struct rlimit limit = {.rlim_cur = count, .rlim_max = ret_before->rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void a_connector_without_descriptors(void **state)
{
    struct own *own = *state;
    struct via_remote *remote = open_to(own);
    struct via_tcp_card card = own->card;
    struct rlimit before;
    card.token[0] ^= 1;
    limit_descriptors(0, &before);
    assert_int_equal(via_tcp_dial(remote, &card), -EMFILE);
    assert_works(own, remote, true);
    assert_works(own, own->remote, false);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    via_remote_close(remote);
}

static void an_owner_without_descriptors(void **state)
{
    struct own *own = *state;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = own->card.port};
    struct via_tcp_hello hello = {.magic = VIA_TCP_MAGIC};
    struct via_tcp_ready ready = {0};
    struct rlimit before;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(&to.sin_addr, own->card.address, sizeof(to.sin_addr));
    memcpy(hello.token, own->card.token, sizeof(hello.token));
    limit_descriptors(0, &before);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    assert_int_equal(send(fd, &hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
    for (unsigned i = 0; i < 20; i++) {
        assert_works(own, own->remote, false);
        client_nap_ms(2);
    }
    assert_int_equal(recv(fd, &ready, sizeof(ready), MSG_DONTWAIT), -1); /* the caller waits */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(recv(fd, &ready, sizeof(ready), MSG_WAITALL), sizeof(ready));
    assert_true(ready.magic == VIA_TCP_MAGIC);
    close(fd);
}

/* A listener with a full queue does not answer, like a host behind a firewall that drops packets.
 */
static void a_host_that_does_not_answer_is_called_once(void **state)
{
    struct own *own = *state;
    struct owner silent = {0}, owner = {0};
    int fds[8];
    listen_at(&silent, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = silent.card.port,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(fds); i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(fds[i], (struct sockaddr *)&to, sizeof(to));
    }
    struct via_remote *remote = open_to(own), *another = open_to(own);
    assert_int_equal(via_tcp_dial(remote, &silent.card), -EHOSTDOWN);
    assert_works(own, remote, true);
    /* The same for another process of that host, although this one would answer. */
    owner_start(&owner, 0);
    owner.card.token[0] = 2;
    assert_int_equal(via_tcp_dial(another, &owner.card), -EHOSTDOWN);
    struct pollfd caller = {.fd = owner.listen_fd, .events = POLLIN};
    assert_int_equal(poll(&caller, 1, 0), 0);
    assert_works(own, own->remote, false); /* existing connections stay */
    owner_end(&owner);
    via_remote_close(remote);
    via_remote_close(another);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(fds); i++) {
        close(fds[i]);
    }
    close(silent.listen_fd);
}

struct putter {
    struct via_remote *remote;
    _Atomic bool has_ended;
    int rc;
};

/* Puts until the owner accepts no more bytes; then a put waits. */
static void *put_much(void *argument)
{
    struct putter *putter = argument;
    unsigned char *bytes = calloc(1, BYTES);
    for (size_t i = 0; i < MUCH / BYTES && putter->rc == 0; i++) {
        putter->rc = via_remote_put(putter->remote, 0, bytes, BYTES, 0);
    }
    free(bytes);
    putter->has_ended = true;
    return NULL;
}

static void a_stopped_owner_delays_only_its_own_peers(void **state)
{
    struct own *own = *state;
    struct owner stopped = {0};
    struct putter putter = {.remote = open_to(own)};
    pthread_t thread;
    owner_start(&stopped, 1);
    assert_int_equal(via_tcp_dial(putter.remote, &stopped.card), 0);
    assert_int_equal(pthread_create(&thread, NULL, put_much, &putter), 0);
    for (unsigned i = 0; i < 200; i++) {
        assert_works(own, own->remote, false);
        client_nap_ms(1);
    }
    assert_false(putter.has_ended);
    owner_end(&stopped); /* the owner ends */
    pthread_join(thread, NULL);
    assert_int_equal(putter.rc, -ECONNRESET);
    assert_works(own, own->remote, false);
    via_remote_close(putter.remote);
}

struct getter {
    struct via_remote *remote;
    _Atomic bool has_ended;
    int rc;
};

static void *get_word(void *argument)
{
    struct getter *getter = argument;
    uint64_t word;
    getter->rc = via_remote_get(getter->remote, 0, &word, sizeof(word));
    getter->has_ended = true;
    return NULL;
}

/* A partition: the connection stays, and no bytes arrive. The client waits while a path exists, and
 * gives up after two minutes without a path. */
static void an_owner_that_is_cut_off_is_given_up(void **state)
{
    struct own *own = *state;
    struct owner owner = {0};
    struct getter getter = {.remote = open_to(own)};
    struct fake_host *fake = &own->fixture->fake;
    pthread_t thread;
    owner_start(&owner, 1);
    assert_int_equal(via_tcp_dial(getter.remote, &owner.card), 0);
    assert_int_equal(pthread_create(&thread, NULL, get_word, &getter), 0);
    for (unsigned i = 0; i < 20; i++) { /* a slow owner, to which there is a path */
        client_nap_ms(5);
        forward_s += 30;
    }
    assert_false(getter.has_ended);
    fake_host_set_way(fake, FAKE_PEER, 77, ++generation, VIA_STATUS_UNREACHABLE, false);
    for (unsigned i = 0; !getter.has_ended && i < 10000; i++) {
        client_nap_ms(5);
        forward_s += 10;
    }
    pthread_join(thread, NULL);
    assert_int_equal(getter.rc, -EHOSTUNREACH);
    fake_host_set_way(fake, FAKE_PEER, 77, ++generation, 1, false);
    assert_works(own, own->remote, false);
    owner_end(&owner);
    via_remote_close(getter.remote);
}

/* Puts fill the connection until the link is lost for too long. Bytes that the kernel has not
 * sent by then are dropped: they would overwrite a later put by another path. */
static void bytes_that_were_given_up_do_not_arrive_later(void **state)
{
    struct own *own = *state;
    struct owner owner = {0};
    struct putter putter = {.remote = open_to(own)};
    struct fake_host *fake = &own->fixture->fake;
    struct timeval patience = {.tv_sec = 20};
    static unsigned char bytes[1 << 16];
    uint64_t all = 0;
    ssize_t got;
    pthread_t thread;
    owner_start(&owner, 1);
    assert_int_equal(via_tcp_dial(putter.remote, &owner.card), 0);
    own->fixture->attach->tcp_lost_ns_max = 20 * VIA_MSEC_NS;
    assert_int_equal(pthread_create(&thread, NULL, put_much, &putter), 0);
    client_nap_ms(100);
    fake_host_set_way(fake, FAKE_PEER, 77, ++generation, VIA_STATUS_UNREACHABLE, false);
    pthread_join(thread, NULL);
    assert_int_equal(putter.rc, -EHOSTUNREACH);
    pthread_join(owner.thread, NULL);
    assert_int_equal(setsockopt(owner.fds[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)),
                     0);
    while ((got = recv(owner.fds[0], bytes, sizeof(bytes), 0)) > 0) {
        all += (uint64_t)got;
    }
    assert_true(got == -1 && errno == ECONNRESET);
    assert_true(all < MUCH);
    fake_host_set_way(fake, FAKE_PEER, 77, ++generation, 1, false);
    assert_works(own, own->remote, false);
    close(owner.fds[0]);
    close(owner.listen_fd);
    via_remote_close(putter.remote);
}

/* --- what quiet reports of connections to hosts -------------------------------------------------
 */

static struct via_remote *connect_to_host(struct own *own, const struct via_tcp_card *card)
{
    struct via_remote *remote = open_to(own);
    fake_host_set_card(&own->fixture->fake, card);
    assert_int_equal(via_remote_connect(remote), 0);
    return remote;
}

/* Before the quiet, or by it. */
static void a_lost_get_is_reported_once(void **state)
{
    struct own *own = *state;
    struct via_attach *attach = own->fixture->attach;
    for (unsigned i = 0; i < 2; i++) {
        struct owner owner = {0};
        uint64_t word = 0;
        owner_start(&owner, 1);
        struct via_remote *remote = connect_to_host(own, &owner.card);
        assert_int_equal(via_remote_get_start(remote, 0, &word, sizeof(word)), 0);
        owner_end(&owner);
        while (i == 0 && via_client_tcp_is_alive(remote->tcp)) {
            client_nap_ms(1);
        }
        assert_int_equal(via_attach_failure(attach), i == 0 ? -ECONNRESET : 0);
        assert_int_equal(via_attach_quiet(attach), -ECONNRESET);
        assert_int_equal(via_attach_failure(attach), 0);
        assert_int_equal(via_attach_quiet(attach), 0);
        via_remote_close(remote);
    }
}

static void an_end_that_loses_nothing_is_no_failure(void **state)
{
    struct own *own = *state;
    struct via_attach *attach = own->fixture->attach;
    struct via_remote *remote = connect_to_host(own, &own->card);
    assert_works(own, remote, false);
    assert_int_equal(via_attach_quiet(attach), 0);
    shutdown(remote->tcp->fd, SHUT_RDWR);
    assert_false(via_client_tcp_is_alive(remote->tcp));
    assert_int_equal(via_attach_failure(attach), 0);
    assert_int_equal(via_attach_quiet(attach), 0);
    via_remote_close(remote);
}

/* A call other than the quiet takes the answer that refuses the put. */
static void a_refused_put_is_reported_once(void **state)
{
    struct own *own = *state;
    struct via_attach *attach = own->fixture->attach;
    struct via_remote *remote = connect_to_host(own, &own->card);
    via_client_serve_drop(attach->serve, own->segment);
    assert_int_equal(via_remote_put(remote, 0, &(uint64_t){1}, 8, 0), 0);
    struct pollfd answer = {.fd = remote->tcp->fd, .events = POLLIN};
    assert_int_equal(poll(&answer, 1, 20000), 1);
    struct via_remote *another = connect_to_host(own, &own->card);
    assert_ptr_equal(another->tcp, remote->tcp);
    assert_int_equal(via_attach_quiet(attach), -ECONNRESET);
    client_assert_text_has("its owner has freed it");
    assert_int_equal(via_attach_quiet(attach), 0);
    uint64_t words[2];
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(via_remote_get_start(remote, 0, &words[i], sizeof(words[i])), 0);
    }
    assert_int_equal(via_attach_quiet(attach), -ECONNRESET);
    assert_int_equal(via_attach_quiet(attach), 0);
    via_remote_close(another);
    via_remote_close(remote);
}

int main(void)
{
#define WITH_OWN(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(addresses_may_be_ipv6, set_up6, tear_down),
        WITH_OWN(more_peers_than_connections),
        WITH_OWN(a_connector_without_descriptors),
        WITH_OWN(an_owner_without_descriptors),
        WITH_OWN(a_host_that_does_not_answer_is_called_once),
        WITH_OWN(a_stopped_owner_delays_only_its_own_peers),
        WITH_OWN(an_owner_that_is_cut_off_is_given_up),
        WITH_OWN(bytes_that_were_given_up_do_not_arrive_later),
        WITH_OWN(a_lost_get_is_reported_once),
        WITH_OWN(an_end_that_loses_nothing_is_no_failure),
        WITH_OWN(a_refused_put_is_reported_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
