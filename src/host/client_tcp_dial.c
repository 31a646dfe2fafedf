/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Direct connections: how they begin and end, at the end that puts and gets. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/client_sys.h"
#include "host/client_tcp_inside.h"

#define DIAL_NS_MAX VIA_SEC_NS

/* --- dialling --------------------------------------------------------------------------------- */

/* To the host, for all remotes there. */
static struct via_client_tcp *find_host(const struct via_attach *attach, uint16_t host)
{
    unsigned count = via_client_tcp_count(attach);
    for (unsigned i = 0; i < count; i++) {
        struct via_client_tcp *tcp = attach->tcp_all[i];
        if (tcp->to_host && tcp->host == host && via_client_tcp_is_alive(tcp)) {
            return tcp;
        }
    }
    return NULL;
}

static struct via_client_tcp *find(const struct via_attach *attach, const struct via_tcp_card *card)
{
    unsigned count = via_client_tcp_count(attach);
    for (unsigned i = 0; i < count; i++) {
        if (memcmp(attach->tcp_all[i]->token, card->token, sizeof(card->token)) == 0) {
            return attach->tcp_all[i];
        }
    }
    return NULL;
}

static bool is_switched_off(void)
{
    const char *text = getenv("VIADUCT_DIRECT");
    return text != NULL && strcmp(text, "off") == 0;
}

int via_tcp_ask(struct via_attach *attach, unsigned host, struct via_attach_tcp *ret_where)
{
    struct via_attach_request ask = {.type = VIA_ATTACH_TCP, .host = (uint16_t)host};
    struct via_client_request request;
    if (is_switched_off()) {
        return -EXDEV;
    }
    via_client_lock(attach);
    int rc = via_client_ask(attach, &ask, -1, &request);
    via_client_unlock(attach);
    if (rc == 0) {
        memcpy(ret_where, request.answer.value, sizeof(*ret_where));
        ret_where->local[sizeof(ret_where->local) - 1] = '\0';
        ret_where->peer[sizeof(ret_where->peer) - 1] = '\0';
    }
    return rc;
}

static int poll_until(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now_ns = via_client_now_ns();
        struct pollfd any = {.fd = fd, .events = events};
        struct timespec time = {.tv_nsec = 10 * VIA_MSEC_NS};
        if (now_ns >= deadline_ns) {
            return -ETIMEDOUT;
        }
        if (syscall(SYS_ppoll, &any, 1, &time, NULL, 8) > 0) {
            return 0;
        }
    }
}

static int greet(int fd, const struct via_tcp_card *card, uint64_t deadline_ns)
{
    struct via_tcp_hello hello = {.magic = VIA_TCP_MAGIC};
    struct via_tcp_ready ready = {0};
    memcpy(hello.token, card->token, sizeof(hello.token));
    struct iovec iov = {.iov_base = &hello, .iov_len = sizeof(hello)};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    long rc = via_sys_sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (rc != (long)sizeof(hello)) {
        return rc < 0 ? (int)rc : -EPROTO; /* a new connection has room for it */
    }
    rc = poll_until(fd, POLLIN, deadline_ns);
    if (rc != 0) {
        return (int)rc;
    }
    iov = (struct iovec){.iov_base = &ready, .iov_len = sizeof(ready)};
    rc = via_sys_recvmsg(fd, &message, MSG_DONTWAIT);
    return rc == (long)sizeof(ready) && ready.magic == VIA_TCP_MAGIC ? 0
           : rc < 0                                                  ? (int)rc
                                                                     : -ECONNREFUSED;
}

/* The socket, or why there is none: -EHOSTDOWN when not even the peer's kernel has answered. */
static int connect_to(const struct via_tcp_card *card, const char *peer)
{
    struct sockaddr_storage address;
    struct via_tcp_card known = {.port = card->port};
    unsigned bytes = 0;
    int rc = via_client_tcp_address(peer, &known, &address, &bytes);
    if (rc == 0 && (known.family != card->family ||
                    memcmp(known.address, card->address, sizeof(known.address)) != 0)) {
        rc = -EXDEV; /* it is reached by another network */
    }
    int fd = rc == 0 ? via_sys_socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK)
                     : rc;
    if (fd < 0) {
        return fd;
    }
    uint64_t deadline_ns = via_client_now_ns() + DIAL_NS_MAX;
    via_sys_tcp_set_prompt(fd);
    rc = via_sys_connect(fd, &address, bytes);
    if (rc == -EINPROGRESS) {
        rc = poll_until(fd, POLLOUT, deadline_ns);
        rc = rc == -ETIMEDOUT ? -EHOSTDOWN : rc;
    }
    if (rc == 0) {
        rc = greet(fd, card, deadline_ns);
    }
    if (rc != 0) {
        via_sys_close(fd);
        return rc;
    }
    return via_client_fd_keep(fd);
}

static struct via_client_tcp *tcp_new(struct via_remote *remote, const struct via_tcp_card *card)
{
    struct via_client_tcp *tcp = calloc(1, sizeof(*tcp));
    unsigned char *memory = malloc(VIA_CLIENT_TCP_OUT_BYTES + VIA_CLIENT_TCP_IN_BYTES);
    struct expected *expected = calloc(VIA_CLIENT_TCP_EXPECTED_MAX, sizeof(*expected));
    if (tcp == NULL || memory == NULL || expected == NULL) {
        free(tcp);
        free(memory);
        free(expected);
        return NULL;
    }
    tcp->attach = remote->attach;
    tcp->host = remote->host;
    memcpy(tcp->token, card->token, sizeof(tcp->token));
    tcp->out = memory;
    tcp->in = memory + VIA_CLIENT_TCP_OUT_BYTES;
    tcp->expected = expected;
    pthread_mutex_init(&tcp->lock, NULL);
    return tcp;
}

static void tcp_free(struct via_client_tcp *tcp)
{
    pthread_mutex_destroy(&tcp->lock);
    free(tcp->out);
    free(tcp->expected);
    free(tcp);
}

/* [dial_lock] Can there be a connection more? */
static int check_room(const struct via_remote *remote)
{
    const struct via_attach *attach = remote->attach;
    if (via_client_tcp_count(attach) == VIA_CLIENT_TCP_MAX) {
        return -ENOSPC;
    }
    return attach->tcp_silent[remote->host] ? -EHOSTDOWN : 0;
}

/* [dial_lock] peer: the address of the host, as its daemons have it. A card that has another one is
 * not dialled. */
static int dial(struct via_remote *remote, const struct via_tcp_card *card, const char *peer,
                bool to_host)
{
    struct via_attach *attach = remote->attach;
    unsigned count = via_client_tcp_count(attach);
    struct via_client_tcp *tcp = tcp_new(remote, card);
    if (tcp == NULL) {
        return -ENOMEM;
    }
    tcp->to_host = to_host;
    tcp->fd = connect_to(card, peer);
    if (tcp->fd < 0) {
        int rc = tcp->fd;
        attach->tcp_silent[remote->host] = rc == -EHOSTDOWN;
        tcp_free(tcp);
        return rc;
    }
    attach->tcp_all[count] = tcp;
    atomic_store_explicit(&attach->tcp_count, count + 1, memory_order_release);
    remote->tcp = tcp;
    return 0;
}

static int dial_process(struct via_remote *remote, const struct via_tcp_card *card)
{
    struct via_attach_tcp where;
    int rc = check_room(remote);
    if (rc == 0) {
        rc = via_tcp_ask(remote->attach, remote->host, &where);
    }
    return rc == 0 ? dial(remote, card, where.peer, false) : rc;
}

int via_tcp_dial(struct via_remote *remote, const struct via_tcp_card *card)
{
    struct via_attach *attach = remote->attach;
    if (attach->serve == NULL || card->magic != VIA_TCP_MAGIC) {
        return -EXDEV;
    }
    pthread_mutex_lock(&attach->dial_lock);
    remote->tcp = find(attach, card);
    int rc = remote->tcp != NULL ? 0 : dial_process(remote, card);
    pthread_mutex_unlock(&attach->dial_lock);
    return rc;
}

/* --- to hosts --------------------------------------------------------------------------------- */

/* Asks the own host, which asks the other one, for a card. */
static int ask_host(struct via_attach *attach, unsigned host, struct via_attach_direct *ret_direct)
{
    struct via_attach_request ask = {.type = VIA_ATTACH_DIRECT, .host = (uint16_t)host};
    struct via_client_request request;
    via_client_lock(attach);
    int rc = via_client_ask(attach, &ask, -1, &request);
    via_client_unlock(attach);
    if (rc == 0) {
        memcpy(ret_direct, request.answer.value, sizeof(*ret_direct));
        ret_direct->where.peer[sizeof(ret_direct->where.peer) - 1] = '\0';
    }
    /* -EINVAL: the host is of an older version. */
    return rc == -EINVAL ? -EXDEV : rc;
}

/* [dial_lock] */
static int dial_host(struct via_remote *remote)
{
    struct via_attach *attach = remote->attach;
    struct via_attach_direct direct = {0};
    int rc = check_room(remote);
    if (rc == 0) {
        rc = ask_host(attach, remote->host, &direct);
    }
    if (rc == 0 && direct.card.magic != VIA_TCP_MAGIC) {
        rc = -EXDEV;
    }
    if (rc == 0 && attach->serve == NULL) {
        struct via_client_serve *serve = NULL;
        rc = via_client_serve_open(attach, NULL, &serve);
        attach->serve = serve;
    }
    return rc == 0 ? dial(remote, &direct.card, direct.where.peer, true) : rc;
}

int via_remote_connect(struct via_remote *remote)
{
    struct via_attach *attach = remote->attach;
    int rc = 0;
    if (remote->tcp != NULL) {
        return 0;
    }
    if (is_switched_off() || remote->host == attach->host) {
        rc = -EXDEV;
    } else {
        pthread_mutex_lock(&attach->dial_lock);
        remote->tcp = find_host(attach, remote->host);
        rc = remote->tcp != NULL ? 0 : dial_host(remote);
        pthread_mutex_unlock(&attach->dial_lock);
    }
    return rc == 0 ? 0
                   : via_client_error(rc, "host %u, segment: connect: %s", remote->host,
                                      rc == -EXDEV ? "no direct connections to this host"
                                                   : strerror(-rc));
}

/* --- the end ---------------------------------------------------------------------------------- */

void via_client_tcp_all_close(struct via_attach *attach)
{
    bool own = attach->pid == getpid();
    uint64_t deadline_ns = via_client_now_ns() + VIA_SEC_NS;
    while (own && !via_client_tcp_all_flush(attach) && via_client_now_ns() < deadline_ns) {
        (void)via_client_serve_poll(attach->serve);
        sched_yield();
    }
    via_client_serve_close(attach->serve, own); /* first: its thread uses the connections */
    attach->serve = NULL;
    unsigned count = via_client_tcp_count(attach);
    for (unsigned i = 0; i < count; i++) {
        if (own) {
            via_sys_shutdown(attach->tcp_all[i]->fd); /* a child may hold it */
        }
        via_client_fd_close(attach->tcp_all[i]->fd);
        tcp_free(attach->tcp_all[i]);
    }
    atomic_store_explicit(&attach->tcp_count, 0, memory_order_release);
}
