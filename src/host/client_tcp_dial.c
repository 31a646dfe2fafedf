/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Direct connections: how the connector opens and closes them. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/client_auto.h"
#include "host/client_kept.h"
#include "host/client_sys.h"
#include "host/client_tcp_inside.h"

#define DIAL_NS_MAX VIA_SEC_NS
/* Of a connection that keeps its puts: a firewall may drop its packets, but not those of the link.
 * Frames then carry the rest. A link is silent for less time before it is down. */
#define SILENT_MS_MAX 5000u

/* --- connecting ------------------------------------------------------------------------------- */

/* The connection to the host, which all remotes of that host share; NULL: none. */
static struct via_client_tcp *find_host(const struct via_attach *attach, uint16_t host)
{
    unsigned count = via_client_tcp_count(attach);
    for (unsigned i = 0; i < count; i++) {
        struct via_client_tcp *tcp = attach->tcp_all[i];
        if (tcp->to_host && tcp->kept == NULL && tcp->host == host &&
            via_client_tcp_is_alive(tcp)) {
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

int via_tcp_setting_read(enum via_tcp_setting *ret_setting)
{
    const char *text = getenv("VIADUCT_DIRECT");
    if (text == NULL || text[0] == '\0' || strcmp(text, "auto") == 0) {
        *ret_setting = VIA_TCP_AUTO;
    } else if (strcmp(text, "asked") == 0) {
        *ret_setting = VIA_TCP_ON_REQUEST;
    } else if (strcmp(text, "off") == 0) {
        *ret_setting = VIA_TCP_OFF;
    } else {
        return -EINVAL;
    }
    return 0;
}

bool via_tcp_is_switched_off(void)
{
    enum via_tcp_setting setting;
    return via_tcp_setting_read(&setting) == 0 && setting == VIA_TCP_OFF;
}

int via_tcp_request_address(struct via_attach *attach, unsigned host,
                            struct via_attach_tcp *ret_where)
{
    struct via_attach_request message = {.type = VIA_ATTACH_TCP, .host = (uint16_t)host};
    struct via_client_request request;
    if (via_tcp_is_switched_off()) {
        return -EXDEV;
    }
    via_client_lock(attach);
    int rc = via_client_request_wait(attach, &message, -1, &request);
    via_client_unlock(attach);
    if (rc == 0) {
        memcpy(ret_where, request.answer.value, sizeof(*ret_where));
        ret_where->local[sizeof(ret_where->local) - 1] = '\0';
        ret_where->peer[sizeof(ret_where->peer) - 1] = '\0';
    }
    return rc == -EINVAL ? -EXDEV : rc; /* -EINVAL: the daemon is of an older version */
}

static bool is_closing(const struct via_attach *attach)
{
    return atomic_load_explicit(&attach->closing, memory_order_relaxed);
}

static int poll_until(const struct via_attach *attach, int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now_ns = via_client_now_ns();
        struct pollfd any = {.fd = fd, .events = events};
        struct timespec time = {.tv_nsec = 10 * VIA_MSEC_NS};
        if (is_closing(attach)) {
            return -ECANCELED;
        }
        if (now_ns >= deadline_ns) {
            return -ETIMEDOUT;
        }
        if (syscall(SYS_ppoll, &any, 1, &time, NULL, 8) > 0) {
            return 0;
        }
    }
}

static int greet(const struct via_attach *attach, int fd, const struct via_tcp_card *card,
                 uint64_t deadline_ns)
{
    struct via_tcp_hello hello = {.magic = VIA_TCP_MAGIC};
    struct via_tcp_ready ready = {0};
    memcpy(hello.token, card->token, sizeof(hello.token));
    struct iovec iov = {.iov_base = &hello, .iov_len = sizeof(hello)};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    long rc = via_sys_sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (rc != (long)sizeof(hello)) {
        return rc < 0 ? (int)rc : -EPROTO; /* a new connection has room for all of it */
    }
    rc = poll_until(attach, fd, POLLIN, deadline_ns);
    if (rc != 0) {
        return (int)rc;
    }
    iov = (struct iovec){.iov_base = &ready, .iov_len = sizeof(ready)};
    rc = via_sys_recvmsg(fd, &message, MSG_DONTWAIT);
    return rc == (long)sizeof(ready) && ready.magic == VIA_TCP_MAGIC ? 0
           : rc < 0                                                  ? (int)rc
                                                                     : -ECONNREFUSED;
}

/* Returns the socket or a negative errno. -EHOSTDOWN: not even the peer's kernel has answered. */
static int connect_to(const struct via_attach *attach, const struct via_tcp_card *card,
                      const char *peer)
{
    struct sockaddr_storage address;
    struct via_tcp_card known = {.port = card->port};
    unsigned bytes = 0;
    int rc = via_client_tcp_address(peer, &known, &address, &bytes);
    if (rc == 0 && (known.family != card->family ||
                    memcmp(known.address, card->address, sizeof(known.address)) != 0)) {
        rc = -EXDEV; /* the card's address is not that of the host over this link */
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
        rc = poll_until(attach, fd, POLLOUT, deadline_ns);
        rc = rc == -ETIMEDOUT ? -EHOSTDOWN : rc;
    }
    if (rc == 0) {
        rc = greet(attach, fd, card, deadline_ns);
    }
    if (rc != 0) {
        via_sys_close(fd);
        return rc;
    }
    return via_client_fd_keep(fd);
}

static struct via_client_tcp *tcp_new(struct via_attach *attach)
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
    tcp->attach = attach;
    tcp->fd = -1;
    tcp->out = memory;
    tcp->in = memory + VIA_CLIENT_TCP_OUT_BYTES;
    tcp->expected = expected;
    pthread_mutex_init(&tcp->lock, NULL);
    return tcp;
}

static void tcp_free(struct via_client_tcp *tcp)
{
    pthread_mutex_destroy(&tcp->lock);
    free(tcp->kept); /* its segment stays until the attachment ends */
    free(tcp->out);
    free(tcp->expected);
    free(tcp);
}

/* Makes a connection that keeps its puts, in a segment that only this process's host reads. */
static int keeper_new(struct via_attach *attach, struct via_client_tcp **ret_tcp)
{
    struct via_segment *segment = NULL;
    int rc = via_segment_new(attach, sizeof(struct via_kept_area), 0, &segment);
    struct via_client_tcp *tcp = rc == 0 ? tcp_new(attach) : NULL;
    struct via_kept *kept = tcp != NULL ? calloc(1, sizeof(*kept)) : NULL;
    if (kept == NULL) {
        if (tcp != NULL) {
            tcp_free(tcp);
        }
        if (segment != NULL) {
            via_client_segment_leave(segment);
        }
        return rc != 0 ? rc : -ENOMEM;
    }
    via_kept_init(kept, via_segment_base(segment));
    tcp->kept = kept;
    tcp->segment = segment;
    *ret_tcp = tcp;
    return 0;
}

static void keeper_free(struct via_client_tcp *tcp)
{
    struct via_segment *segment = tcp->segment;
    tcp_free(tcp);
    via_client_segment_leave(segment);
}

/* True if a connection to the host has ended and no remote uses it. If it may have lost requests,
 * its end was reported. */
static bool is_dead(struct via_client_tcp *tcp, unsigned host)
{
    return tcp->to_host && tcp->host == host && tcp->kept == NULL &&
           atomic_load_explicit(&tcp->remotes, memory_order_relaxed) == 0 &&
           (atomic_load_explicit(&tcp->end_reported, memory_order_relaxed) ||
            via_client_tcp_is_harmless_end(tcp)) &&
           via_client_tcp_is_over(tcp);
}

/* [dial_lock] A dead connection whose struct a new connection to the host may reuse, or NULL. The
 * host must be the same, because other threads load it without a lock. */
static struct via_client_tcp *find_dead(const struct via_attach *attach, unsigned host)
{
    unsigned count = via_client_tcp_count(attach);
    for (unsigned i = 0; i < count; i++) {
        if (is_dead(attach->tcp_all[i], host)) {
            return attach->tcp_all[i];
        }
    }
    return NULL;
}

/* [dial_lock] 0 if one more connection is possible. */
static int check_room(const struct via_attach *attach, unsigned host)
{
    if (via_client_tcp_count(attach) == VIA_CLIENT_TCP_MAX && find_dead(attach, host) == NULL) {
        return -ENOSPC;
    }
    return attach->tcp_silent[host] ? -EHOSTDOWN : 0;
}

struct dialled {
    uint16_t host;
    bool to_host;
    uint64_t way; /* 0: a connection that does not keep its puts */
    const struct via_tcp_card *card;
};

/* Puts a new socket into the struct. Other threads may still be about to find that the previous
 * connection had ended. */
static void set_up(struct via_client_tcp *tcp, const struct dialled *dialled, int fd)
{
    pthread_mutex_lock(&tcp->lock);
    if (tcp->fd >= 0) {
        via_client_fd_close(tcp->fd);
    } else {
        tcp->host = dialled->host;
        tcp->to_host = dialled->to_host;
    }
    tcp->fd = fd;
    memcpy(tcp->token, dialled->card->token, sizeof(tcp->token));
    if (tcp->kept != NULL) {
        memcpy(tcp->kept->area->token, tcp->token, sizeof(tcp->token)); /* no put is kept now */
    }
    tcp->out_begin = tcp->in_begin = tcp->in_end = 0;
    tcp->left = tcp->answer_at = tcp->position = tcp->answered = 0;
    atomic_store_explicit(&tcp->way, dialled->way, memory_order_relaxed);
    atomic_store_explicit(&tcp->end_reported, false, memory_order_relaxed);
    uint64_t issued = atomic_load_explicit(&tcp->issued, memory_order_relaxed);
    uint64_t counted = atomic_load_explicit(&tcp->counted, memory_order_relaxed);
    atomic_store_explicit(&tcp->applied, issued, memory_order_relaxed);
    atomic_store_explicit(&tcp->counted_applied, counted, memory_order_relaxed);
    atomic_store_explicit(&tcp->error, 0, memory_order_release);
    pthread_mutex_unlock(&tcp->lock);
}

/* [dial_lock] peer: the address of the host that its daemons know; a card with another address is
 * refused. place: a new struct, or that of a connection that has ended. */
static int dial(struct via_attach *attach, const struct dialled *dialled, const char *peer,
                struct via_client_tcp *place)
{
    unsigned count = via_client_tcp_count(attach);
    bool is_new = place->fd < 0;
    int fd =
        is_new && count == VIA_CLIENT_TCP_MAX ? -ENOSPC : connect_to(attach, dialled->card, peer);
    if (fd < 0) {
        attach->tcp_silent[dialled->host] = fd == -EHOSTDOWN;
        return fd;
    }
    if (place->kept != NULL) {
        via_sys_tcp_limit_silence(fd, SILENT_MS_MAX);
    }
    set_up(place, dialled, fd);
    if (is_new) {
        attach->tcp_all[count] = place;
        atomic_store_explicit(&attach->tcp_count, count + 1, memory_order_release);
    }
    return 0;
}

/* [dial_lock] As dial(), with the struct of a dead connection, or a new one. */
static int dial_place(struct via_attach *attach, const struct dialled *dialled, const char *peer,
                      struct via_client_tcp **ret_tcp)
{
    struct via_client_tcp *place = dialled->to_host ? find_dead(attach, dialled->host) : NULL;
    place = place != NULL ? place : tcp_new(attach);
    int rc = place != NULL ? dial(attach, dialled, peer, place) : -ENOMEM;
    if (rc == 0) {
        *ret_tcp = place;
    } else if (place != NULL && place->fd < 0) {
        tcp_free(place);
    }
    return rc;
}

static int dial_process(struct via_remote *remote, const struct via_tcp_card *card)
{
    struct via_attach *attach = remote->attach;
    struct via_attach_tcp where;
    struct dialled dialled = {.host = remote->host, .card = card};
    struct via_client_tcp *tcp = NULL;
    int rc = check_room(attach, remote->host);
    if (rc == 0) {
        rc = via_tcp_request_address(attach, remote->host, &where);
    }
    if (rc == 0) {
        rc = dial_place(attach, &dialled, where.peer, &tcp);
    }
    remote->tcp = tcp;
    return rc;
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

static int send_and_wait(struct via_attach *attach, struct via_attach_request *request,
                         struct via_client_request *answered, via_client_given_up *is_given_up)
{
    via_client_lock(attach);
    int rc = via_client_request_wait_until(attach, request, -1, answered, is_given_up);
    via_client_unlock(attach);
    /* -EINVAL: the daemon is of an older version. */
    return rc == -EINVAL ? -EXDEV : rc;
}

/* Requests a card of the host from this process's own host, which requests it from that host.
 * keeper: NULL, or the connection that is to keep its puts. */
static int request_card(struct via_attach *attach, unsigned host,
                        const struct via_client_tcp *keeper, struct via_attach_direct *ret_direct)
{
    struct via_attach_request request = {.type = VIA_ATTACH_DIRECT, .host = (uint16_t)host};
    struct via_client_request answered;
    if (keeper != NULL) {
        request.access = VIA_ATTACH_KEEPS;
        request.handle = via_segment_handle(keeper->segment);
    }
    int rc = send_and_wait(attach, &request, &answered, is_closing);
    if (rc == 0) {
        memcpy(ret_direct, answered.answer.value, sizeof(*ret_direct));
        ret_direct->where.peer[sizeof(ret_direct->where.peer) - 1] = '\0';
        bool known = keeper == NULL ||
                     (answered.answer.value_bytes == sizeof(*ret_direct) &&
                      ret_direct->keeps != 0 && ret_direct->kept_layout == VIA_KEPT_LAYOUT);
        rc = ret_direct->card.magic == VIA_TCP_MAGIC && known ? 0 : -EXDEV;
    }
    return rc;
}

/* Opens the thread that sends delayed requests of this process's connections. */
static int open_thread(struct via_attach *attach)
{
    struct via_client_serve *serve = NULL;
    if (attach->serve != NULL) {
        return 0;
    }
    int rc = via_client_serve_open(attach, NULL, &serve);
    attach->serve = serve;
    return rc;
}

/* [dial_lock] */
static int dial_host(struct via_attach *attach, uint16_t host, struct via_client_tcp **ret_tcp)
{
    struct via_attach_direct direct = {0};
    struct dialled dialled = {.host = host, .to_host = true, .card = &direct.card};
    int rc = check_room(attach, host);
    if (rc == 0) {
        rc = request_card(attach, host, NULL, &direct);
    }
    if (rc == 0) {
        rc = open_thread(attach);
    }
    return rc == 0 ? dial_place(attach, &dialled, direct.where.peer, ret_tcp) : rc;
}

/* [dial_lock] */
static int dial_kept(struct via_attach *attach, uint16_t host, uint64_t way,
                     struct via_client_tcp *keeper)
{
    struct via_attach_direct direct = {0};
    struct dialled dialled = {.host = host, .to_host = true, .way = way, .card = &direct.card};
    int rc = request_card(attach, host, keeper, &direct);
    if (rc == 0) {
        rc = open_thread(attach);
    }
    return rc == 0 ? dial(attach, &dialled, direct.where.peer, keeper) : rc;
}

int via_client_tcp_dial_kept(struct via_attach *attach, uint16_t host, uint64_t way,
                             struct via_client_tcp **tcp)
{
    if (via_tcp_is_switched_off()) {
        return -EXDEV;
    }
    pthread_mutex_lock(&attach->dial_lock);
    struct via_client_tcp *keeper = *tcp;
    struct via_attach_tcp where;
    int rc = keeper == NULL ? check_room(attach, host) : 0;
    if (rc == 0) {
        /* checked first, because most links have no direct connections */
        rc = via_tcp_request_address(attach, host, &where);
    }
    if (rc == 0 && keeper == NULL) {
        rc = keeper_new(attach, &keeper);
    }
    if (rc == 0) {
        rc = dial_kept(attach, host, way, keeper);
    }
    if (rc == 0) {
        *tcp = keeper;
    } else if (*tcp == NULL && keeper != NULL) {
        keeper_free(keeper);
    }
    pthread_mutex_unlock(&attach->dial_lock);
    return rc;
}

int via_client_tcp_request_position(struct via_client_tcp *tcp,
                                    struct via_attach_position *ret_position)
{
    struct via_attach_request request = {
        .type = VIA_ATTACH_DIRECT, .host = tcp->host, .key_bytes = sizeof(tcp->token)};
    struct via_client_request answered;
    memcpy(request.key, tcp->token, sizeof(tcp->token));
    int rc = send_and_wait(tcp->attach, &request, &answered, via_client_tcp_is_time_over);
    if (rc == 0 && answered.answer.value_bytes != sizeof(*ret_position)) {
        return -EXDEV;
    }
    if (rc == 0) {
        memcpy(ret_position, answered.answer.value, sizeof(*ret_position));
    }
    return rc;
}

static void join(struct via_remote *remote, struct via_client_tcp *tcp)
{
    atomic_fetch_add_explicit(&tcp->remotes, 1, memory_order_relaxed);
    remote->tcp = tcp;
}

void via_client_tcp_release(struct via_remote *remote)
{
    /* When the attachment ends, connections are freed before remotes. */
    if (via_client_tcp_count(remote->attach) != 0) {
        atomic_fetch_sub_explicit(&remote->tcp->remotes, 1, memory_order_relaxed);
    }
}

/* [dial_lock] */
static int connect_remote(struct via_remote *remote)
{
    struct via_attach *attach = remote->attach;
    struct via_client_tcp *tcp = find_host(attach, remote->host);
    int rc = tcp != NULL ? 0 : dial_host(attach, remote->host, &tcp);
    if (rc == 0) {
        join(remote, tcp);
    }
    return rc;
}

int via_remote_connect(struct via_remote *remote)
{
    struct via_attach *attach = remote->attach;
    int rc = 0;
    if (remote->tcp != NULL) {
        return 0;
    }
    if (via_tcp_is_switched_off() || remote->host == attach->host) {
        rc = -EXDEV;
    } else {
        rc = via_client_auto_give_up(attach, remote->host);
        pthread_mutex_lock(&attach->dial_lock);
        rc = rc == 0 ? connect_remote(remote) : rc;
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
    via_client_serve_close(attach->serve, own); /* first, because its thread uses the connections */
    attach->serve = NULL;
    unsigned count = via_client_tcp_count(attach);
    for (unsigned i = 0; i < count; i++) {
        if (own) {
            via_sys_shutdown(attach->tcp_all[i]->fd); /* a child may hold the descriptor */
        }
        via_client_fd_close(attach->tcp_all[i]->fd);
        tcp_free(attach->tcp_all[i]);
    }
    atomic_store_explicit(&attach->tcp_count, 0, memory_order_release);
}
