/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The process's attachment and mailbox, and how two ends meet over the fabric. */
#include "sockets/fabric/fabric.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>

#include "host/client.h"
#include "sockets/fabric/directory.h"
#include "sockets/fabric/fabric_internal.h"
#include "sockets/io/io_internal.h"
#include "sockets/process/fds.h"
#include "sockets/process/lock.h"
#include "sockets/process/pool.h"
#include "sockets/process/real.h"

/* Slots of the mailbox. A slot stays reserved until the acceptor writes to the pipe, or the
 * connection ends. */
#define SLOTS 16384u
#define MAILBOXES_MAX 64u
#define NOTE_TTL_MS 10000u

static struct via_mutex lock = VIA_MUTEX_INIT(VIA_RANK_FABRIC);
static struct via_attach *_Atomic attachment;
/* when attaching has failed last, 0: it has not */
static uint64_t attach_failed_ns;
#define ATTACH_AGAIN_NS (5 * VIA_SEC_NS)

static struct via_segment *mailbox;
static uint64_t slots_used[SLOTS / 64];
static unsigned slots_next;

/* Mailboxes of other processes, kept open, because connections of one program share them. */
static struct mailbox {
    unsigned host;
    uint64_t handle;
    struct via_remote *remote;
    unsigned users; /* threads that use it */
} mailboxes[MAILBOXES_MAX];
static unsigned mailboxes_next;

static struct via_pool pool = VIA_POOL_INIT(sizeof(struct via_fabric), 65536);

struct via_attach *via_fabric_attached(void)
{
    return atomic_load_explicit(&attachment, memory_order_acquire);
}

bool via_fabric_is_attached(void)
{
    return via_fabric_attached() != NULL;
}

/* Overrides the function of the client library (host/client.h): protects its descriptors from a
 * program that closes all descriptors. */
void via_client_fd_note_owner(int fd, bool ours)
{
    via_hidden_shield(fd, ours);
}

/* Puts that had not arrived at a fork: `behind` are the parent's, after which this process's must
 * arrive; `childs` are this process's, for its next child. */
static struct via_client_order behind;
static struct via_client_order childs;

/* [locked] */
static struct via_attach *attach_locked(void)
{
    struct via_attach *attach = via_fabric_attached();
    uint64_t now = attach == NULL ? via_os_now_ns() : 0;
    if (attach != NULL || (attach_failed_ns != 0 && now - attach_failed_ns < ATTACH_AGAIN_NS)) {
        return attach;
    }
    attach_failed_ns = now;
    if (via_client_attach_behind(behind, &attach) != 0) {
        return NULL;
    }
    if (via_sock_bell_adopt(via_attach_bell_fd(attach)) < 0) {
        via_attach_close(attach);
        return NULL;
    }
    attach_failed_ns = 0;
    atomic_store_explicit(&attachment, attach, memory_order_release);
    return attach;
}

struct via_attach *via_fabric_attach(void)
{
    via_lock(&lock);
    struct via_attach *attach = attach_locked();
    via_unlock(&lock);
    return attach;
}

/* --- puts that were cancelled ---------------------------------------------------------------- */

#define TAKE_IN_US 1000u

/* The attachment's count of cancelled puts up to which connections have been reset. */
static _Atomic uint32_t given_up_seen;
static _Atomic uint64_t taken_in_ticks;

static void end_given_up(struct via_conn *conn)
{
    int fd = !via_conn_is_local(conn) && via_conn_has_pipes(conn) ? via_conn_fd(conn) : -1;
    if (fd >= 0) {
        struct via_op op = via_conn_op(conn, fd);
        (void)via_io_is_given_up(&op);
    }
}

bool via_fabric_reset_given_up(void)
{
    const struct via_attach *attach = via_fabric_attached();
    if (attach == NULL) {
        return true;
    }
    uint32_t count = atomic_load_explicit(&attach->puts_given_up, memory_order_relaxed);
    if (via_likely(count == atomic_load_explicit(&given_up_seen, memory_order_relaxed))) {
        return true;
    }
    if (!via_conn_try_each(end_given_up)) {
        return false; /* another thread is visiting the connections */
    }
    atomic_store_explicit(&given_up_seen, count, memory_order_relaxed);
    return false; /* a thread that is about to sleep sends its words once more */
}

void via_fabric_handle_results(void)
{
    struct via_attach *attach = via_fabric_attached();
    if (via_likely(attach == NULL ||
                   atomic_load_explicit(&attach->puts_pending, memory_order_relaxed) == 0)) {
        return;
    }
    uint64_t now = via_os_ticks();
    if (now - atomic_load_explicit(&taken_in_ticks, memory_order_relaxed) >
        via_os_us_to_ticks(TAKE_IN_US)) {
        atomic_store_explicit(&taken_in_ticks, now, memory_order_relaxed);
        via_attach_poll(attach);
    }
}

/* The words by which this thread announces its sleep to peers may still be under way. */
static __thread bool unproven __attribute__((tls_model("initial-exec")));

void via_fabric_before_sleep(void)
{
    struct via_attach *attach = via_fabric_attached();
    int taken = 0;
    while (attach != NULL && (taken = via_attach_poll(attach)) > 0) {
    }
    /* Pairs with the releases of puts_pending's decrements: at 0 all puts have arrived. */
    unproven = attach != NULL && taken == 0 &&
               atomic_load_explicit(&attach->puts_pending, memory_order_acquire) != 0;
    unproven |= !via_fabric_reset_given_up();
}

bool via_fabric_take_unproven(void)
{
    bool was = unproven;
    unproven = false;
    return was;
}

/* How long fork() waits for frames. They take longer only while their path changes. */
#define FORK_WAIT_NS VIA_SEC_NS

void via_fabric_fork_prepare(void)
{
    struct via_attach *attach = via_fabric_attached();
    childs = behind;
    if (attach == NULL || atomic_load_explicit(&attach->puts_pending, memory_order_acquire) == 0) {
        return;
    }
    via_client_hurry(attach);
    uint64_t end_ns = via_os_now_ns() + FORK_WAIT_NS;
    while (via_attach_poll(attach) >= 0 && !via_client_is_quiet(attach) &&
           via_os_now_ns() < end_ns) {
        via_os_pause(50000);
    }
    if (atomic_load_explicit(&attach->puts_pending, memory_order_acquire) != 0) {
        (void)!via_client_hand_over(attach, end_ns); /* fails only if the daemon does not respond */
        childs = via_client_order_of(attach);
    }
}

void via_fabric_forked(void)
{
    /* The attachment is the parent's: the child must neither use nor close it. */
    via_lock_reset(&lock);
    atomic_store_explicit(&attachment, NULL, memory_order_relaxed);
    attach_failed_ns = 0;
    via_directory_forked();
    atomic_store_explicit(&given_up_seen, 0, memory_order_relaxed);
    behind = childs;
    via_fabric_mirrors_forked();
    mailbox = NULL;
    memset(slots_used, 0, sizeof(slots_used));
    memset(mailboxes, 0, sizeof(mailboxes));
}

void via_fabric_end(void)
{
    struct via_attach *attach = via_fabric_attached();
    if (attach != NULL && !via_is_alone()) {
        via_client_drain(attach); /* other threads run until the kernel ends them */
    } else if (attach != NULL) {
        atomic_store_explicit(&attachment, NULL, memory_order_relaxed);
        via_fabric_mirrors_end();
        via_attach_close(attach);
    }
}

/* --- the mailbox ----------------------------------------------------------------------------- */

/* [locked] Reserves a slot. Returns its index, or -ENOSPC. */
static int32_t slot_take(struct via_attach *attach)
{
    if (mailbox == NULL && via_segment_new(attach, SLOTS * sizeof(struct via_fabric_offer),
                                           VIADUCT_SEGMENT_WRITE, &mailbox) != 0) {
        mailbox = NULL;
        return -ENOSPC;
    }
    /* Round robin, so that a slot is not reused soon: an offer for its former connection may be
     * late. */
    for (unsigned i = 0; i < SLOTS; i++) {
        unsigned slot = slots_next++ % SLOTS;
        if ((slots_used[slot / 64] >> slot % 64 & 1) == 0) {
            slots_used[slot / 64] |= UINT64_C(1) << slot % 64;
            return (int32_t)slot;
        }
    }
    return -ENOSPC;
}

static struct via_fabric_offer *slot_at(int32_t slot)
{
    return (struct via_fabric_offer *)via_segment_base(mailbox) + slot;
}

void via_fabric_slot_give(struct via_fabric *fabric)
{
    if (fabric->slot < 0 || mailbox == NULL || fabric->slot_attach != via_fabric_attached()) {
        return;
    }
    via_lock(&lock);
    atomic_store_explicit(&slot_at(fabric->slot)->ready, 0, memory_order_relaxed);
    slots_used[fabric->slot / 64] &= ~(UINT64_C(1) << fabric->slot % 64);
    via_unlock(&lock);
    fabric->slot = -1;
}

/* [locked] Returns the entry of an open mailbox, or NULL. */
static struct mailbox *mailbox_find(const struct via_fabric_note *note)
{
    for (unsigned i = 0; i < MAILBOXES_MAX; i++) {
        if (mailboxes[i].remote != NULL && mailboxes[i].host == note->host &&
            mailboxes[i].handle == note->mailbox) {
            return &mailboxes[i];
        }
    }
    return NULL;
}

/* [locked] Keeps a mailbox open for later connections, in place of one that no thread uses. If
 * threads use all entries, via_fabric_mailbox_put() closes it. */
static void mailbox_keep(const struct via_fabric_note *note, struct via_remote *remote)
{
    for (unsigned tries = 0; tries < MAILBOXES_MAX; tries++) {
        struct mailbox *entry = &mailboxes[mailboxes_next++ % MAILBOXES_MAX];
        if (entry->users == 0) {
            via_remote_close(entry->remote);
            *entry = (struct mailbox){
                .host = note->host, .handle = note->mailbox, .remote = remote, .users = 1};
            return;
        }
    }
}

struct via_remote *via_fabric_mailbox_get(struct via_attach *attach,
                                          const struct via_fabric_note *note)
{
    struct via_remote *remote = NULL;
    via_lock(&lock);
    struct mailbox *entry = mailbox_find(note);
    if (entry != NULL) {
        entry->users++;
        remote = entry->remote;
    } else if (via_remote_open(attach, note->host, note->mailbox, note->mailbox_bytes, &remote) ==
               0) {
        mailbox_keep(note, remote);
    }
    via_unlock(&lock);
    return remote;
}

void via_fabric_mailbox_put(struct via_remote *remote)
{
    bool kept = remote == NULL;
    via_lock(&lock);
    for (unsigned i = 0; i < MAILBOXES_MAX && !kept; i++) {
        kept = mailboxes[i].remote == remote;
        mailboxes[i].users -= kept ? 1 : 0;
    }
    via_unlock(&lock);
    if (!kept) {
        via_remote_close(remote);
    }
}

/* --- notes ----------------------------------------------------------------------------------- */

/* The key of a connection's note: both ends compute the same one. */
struct key {
    char name[8];
    unsigned char connector[16];
    unsigned char acceptor[16];
    uint16_t connector_port;
    uint16_t acceptor_port;
};

static struct key key_of(const struct via_address *connector, const struct via_address *acceptor)
{
    struct key key = {
        .name = "sockets", .connector_port = connector->port, .acceptor_port = acceptor->port};
    memcpy(key.connector, connector->ip, sizeof(key.connector));
    memcpy(key.acceptor, acceptor->ip, sizeof(key.acceptor));
    return key;
}

static int bind_to(int fd, int family, const struct via_address *own)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    int reuse = 1;
    memcpy(&in.sin_addr, own->ip + 12, 4);
    memcpy(&in6.sin6_addr, own->ip, 16);
    /* Without SO_REUSEADDR bind() would not choose ports of connections in TIME_WAIT, as connect()
     * does. */
    int before = via_real_option(fd, SOL_SOCKET, SO_REUSEADDR);
    VIA_REAL(setsockopt)(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
    int rc = family == AF_INET ? bind(fd, (struct sockaddr *)&in, sizeof(in))
                               : bind(fd, (struct sockaddr *)&in6, sizeof(in6));
    rc = rc == 0 ? 0 : -errno;
    VIA_REAL(setsockopt)(fd, SOL_SOCKET, SO_REUSEADDR, &before, sizeof(before));
    return rc;
}

/*
 * Determines the address that this end of the connection will have, which the note contains. If the
 * socket is not bound, chooses an address of this host as the kernel would, and binds the socket to
 * it and a port.
 */
static int bind_own(int fd, const struct via_address *to, struct via_address *ret_own)
{
    struct sockaddr_storage storage;
    struct sockaddr *addr = (struct sockaddr *)&storage;
    struct via_address bound;
    struct via_address own;
    socklen_t bytes = sizeof(storage);
    if (getsockname(fd, addr, &bytes) != 0 || !via_address_read(addr, bytes, &bound)) {
        return -EAFNOSUPPORT;
    }
    int family = storage.ss_family;
    if (!via_address_is_any(&bound)) {
        own = bound;
    } else if (via_directory_own_address(to, &own) != 0) {
        return -EADDRNOTAVAIL;
    }
    if (!via_directory_is_own(&own) || (family == AF_INET && !via_address_is_v4(&own))) {
        return -EADDRNOTAVAIL;
    }
    own.port = bound.port;
    if (own.port == 0) {
        int rc = bind_to(fd, family, &own);
        bytes = sizeof(storage);
        if (rc != 0) {
            return rc;
        }
        if (getsockname(fd, addr, &bytes) != 0 || !via_address_read(addr, bytes, &own)) {
            return -EAFNOSUPPORT;
        }
    }
    *ret_own = own;
    return 0;
}

static struct via_fabric *fabric_new(const struct via_attach *attach, unsigned host)
{
    struct via_fabric *fabric = via_pool_get(&pool);
    if (fabric != NULL) {
        *fabric = (struct via_fabric){.host = host, .slot = -1};
        if (host < attach->hosts_max) {
            fabric->way = via_client_watch(attach, host) & VIA_CLIENT_WAY_MASK;
        }
    }
    return fabric;
}

static int post_note(struct via_attach *attach, struct via_fabric *fabric,
                     const struct via_address *own, const struct via_address *to)
{
    via_lock(&lock);
    fabric->slot = slot_take(attach);
    fabric->slot_attach = attach;
    via_unlock(&lock);
    if (fabric->slot < 0) {
        return -ENOSPC;
    }
    if (getrandom(&fabric->nonce, sizeof(fabric->nonce), 0) != sizeof(fabric->nonce)) {
        return -EIO;
    }
    struct via_fabric_note note = {.magic = VIA_FABRIC_MAGIC,
                                   .version = VIA_FABRIC_VERSION,
                                   .host = attach->host,
                                   .mailbox = via_segment_handle(mailbox),
                                   .mailbox_bytes = via_segment_bytes(mailbox),
                                   .slot = (uint32_t)fabric->slot,
                                   .nonce = fabric->nonce};
    struct key key = key_of(own, to);
    return via_board_post(attach, fabric->host, &key, sizeof(key), &note, sizeof(note),
                          NOTE_TTL_MS);
}

int via_fabric_prepare(struct via_conn *conn, int fd, const struct via_address *to, unsigned host)
{
    struct via_attach *attach = via_fabric_attach();
    struct via_address own;
    if (attach == NULL) {
        return -ENOTCONN;
    }
    if (via_attach_hops(attach, host) < 0) {
        return -EHOSTUNREACH;
    }
    int rc = bind_own(fd, to, &own);
    if (rc != 0) {
        return rc;
    }
    conn->fabric = fabric_new(attach, host);
    if (conn->fabric == NULL) {
        return -ENOMEM;
    }
    conn->carrier = &via_carrier_fabric;
    return post_note(attach, conn->fabric, &own, to);
}

int via_fabric_accepted(struct via_conn *conn, const struct via_tuple *tuple, unsigned host)
{
    struct via_attach *attach = via_fabric_attach();
    struct via_fabric_note note;
    if (attach == NULL) {
        return -ENOTCONN;
    }
    struct key key = key_of(&tuple->remote, &tuple->local);
    int rc = via_board_take(attach, &key, sizeof(key), &note, sizeof(note));
    if (rc < 0) {
        return rc;
    }
    if (!via_meet_note_is_sound(&note, (size_t)rc, host)) {
        return -EPROTO;
    }
    conn->fabric = fabric_new(attach, host);
    if (conn->fabric == NULL) {
        return -ENOMEM;
    }
    conn->carrier = &via_carrier_fabric;
    conn->fabric->note = note;
    return 0;
}

/* --- offer and hello ------------------------------------------------------------------------- */

static struct via_fabric_hello *hello_line(const struct via_fabric *fabric)
{
    return (struct via_fabric_hello *)(void *)((unsigned char *)via_segment_base(fabric->segment) +
                                               VIA_SEGMENT_HELLO_OFF);
}

/* Makes this end's segment and the mirror of the peer's, and attaches the side to both. */
static int make_memory(struct via_conn *conn, struct via_attach *attach,
                       const struct via_pipe_geometry *geometry)
{
    struct via_fabric *fabric = conn->fabric;
    fabric->geometry = *geometry;
    fabric->bytes = via_segment_bytes_for(geometry);
    fabric->segment_attach = attach;
    /* Readable, too, because write-only segments are not mapped into other processes. (The mailbox
     * is not readable: no peer may read offers for other peers.) */
    int rc = via_segment_new(attach, fabric->bytes,
                             VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE | VIADUCT_SEGMENT_LINGER,
                             &fabric->segment);
    if (rc != 0) {
        fabric->segment = NULL;
        return rc;
    }
    rc = via_fabric_mirror_new(fabric, attach);
    if (rc == 0) {
        via_side_attach(conn->side, geometry, via_segment_base(fabric->segment), fabric->mirror);
    }
    return rc;
}

int via_fabric_put_offer(struct via_conn *conn, uint64_t ready)
{
    const struct via_fabric *fabric = conn->fabric;
    struct via_attach *attach = via_fabric_attach();
    struct via_remote *box = attach == NULL ? NULL : via_fabric_mailbox_get(attach, &fabric->note);
    if (box == NULL) {
        return -ENOTCONN;
    }
    struct via_fabric_offer offer = {.nonce = fabric->note.nonce,
                                     .segment = via_segment_handle(fabric->segment),
                                     .segment_bytes = fabric->bytes,
                                     .geometry = fabric->geometry,
                                     .host = attach->host,
                                     .ready = ready};
    int rc = via_remote_put(box, (uint64_t)fabric->note.slot * sizeof(offer), &offer, sizeof(offer),
                            VIADUCT_PUT_LAST_WORD | VIADUCT_PUT_NOTIFY);
    via_fabric_mailbox_put(box);
    return rc;
}

enum via_reason via_fabric_offer(struct via_conn *conn)
{
    struct via_attach *attach = via_fabric_attach();
    struct via_pipe_geometry geometry = via_fabric_geometry(conn->fabric);
    bool made = attach != NULL && make_memory(conn, attach, &geometry) == 0;
    return made && via_fabric_put_offer(conn, VIA_FABRIC_READY) == 0 ? VIA_REASON_NONE
                                                                     : VIA_REASON_FABRIC;
}

/* Reads the offer in this end's slot, if there is one for this connection. */
int via_fabric_read_offer(const struct via_fabric *fabric, struct via_fabric_offer *ret_offer)
{
    return via_meet_take_offer(slot_at(fabric->slot), fabric->nonce, fabric->host, ret_offer);
}

int via_fabric_take(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    struct via_attach *attach = via_fabric_attached();
    struct via_fabric_offer offer;
    if (attach == NULL || fabric->slot < 0 || fabric->slot_attach != attach) {
        return -ENOTCONN; /* a forked child: the mailbox belongs to its parent */
    }
    int rc = via_fabric_read_offer(fabric, &offer);
    if (rc != 0) {
        return rc;
    }
    rc = via_remote_open(attach, fabric->host, offer.segment, offer.segment_bytes, &fabric->remote);
    if (rc != 0) {
        fabric->remote = NULL;
        return rc;
    }
    via_client_remote_keep_mapping(fabric->remote); /* processes forked from the peer may read it */
    fabric->attach = attach;
    fabric->remote_handle = offer.segment;
    rc = make_memory(conn, attach, &offer.geometry);
    if (rc != 0) {
        return rc;
    }
    struct via_fabric_hello hello = {.segment = via_segment_handle(fabric->segment),
                                     .segment_bytes = fabric->bytes,
                                     .host = attach->host,
                                     .ready = VIA_FABRIC_READY};
    return via_remote_put(fabric->remote, VIA_SEGMENT_HELLO_OFF, &hello, sizeof(hello),
                          VIADUCT_PUT_LAST_WORD | VIADUCT_PUT_NOTIFY);
}

bool via_fabric_is_taken(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    if (fabric->remote != NULL) {
        return true;
    }
    struct via_fabric_hello hello;
    if (!via_meet_take_hello(hello_line(fabric), fabric->host, fabric->bytes, &hello)) {
        return false;
    }
    struct via_attach *attach = via_fabric_attach();
    if (attach == NULL || via_remote_open(attach, fabric->host, hello.segment, hello.segment_bytes,
                                          &fabric->remote) != 0) {
        fabric->remote = NULL;
        return false;
    }
    via_client_remote_keep_mapping(fabric->remote);
    fabric->attach = attach;
    fabric->remote_handle = hello.segment;
    /* From now on the next call also sends the words that could not be sent before. */
    atomic_fetch_add_explicit(&fabric->version, 1, memory_order_release);
    return true;
}

/* In a process forked from the one that opened the peer's segment: opens it once more. False: not
 * possible now. */
static bool open_again(struct via_fabric *fabric)
{
    struct via_attach *attach = via_fabric_attach();
    struct via_remote *remote;
    via_lock(&lock);
    bool opened =
        attach != NULL && fabric->attach == attach; /* another thread has opened it meanwhile */
    if (attach != NULL && !opened &&
        via_remote_open(attach, fabric->host, fabric->remote_handle, fabric->bytes, &remote) == 0) {
        via_client_remote_keep_mapping(remote);
        opened = behind.flow == 0 || via_client_remote_follow(remote) == 0;
        if (opened) {
            fabric->remote = remote; /* the parent owns the other object */
            fabric->attach = attach;
        } else {
            via_remote_close(remote);
        }
    }
    via_unlock(&lock);
    return opened;
}

void via_fabric_follow(struct via_fabric *fabric)
{
    if (via_unlikely(behind.flow != 0)) {
        (void)via_fabric_is_put_possible(fabric);
    }
}

bool via_fabric_is_put_possible(struct via_fabric *fabric)
{
    return fabric->remote != NULL &&
           (via_likely(fabric->attach == via_fabric_attached()) || open_again(fabric));
}

void via_fabric_free(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    if (fabric == NULL) {
        return;
    }
    via_fabric_stop_following(conn);
    if (fabric->read.attach == via_fabric_attached()) { /* otherwise the parent owns the request */
        via_client_word_forget(&fabric->read);
    }
    if (fabric->sent.attach == via_fabric_attached()) {
        via_client_word_forget(&fabric->sent);
    }
    via_fabric_slot_give(fabric);
    /* Forked processes may still read the segment, and the peer may still write to it. */
    via_fabric_give_back(conn);
    via_fabric_mirror_free(fabric);
    via_pool_put(&pool, fabric);
    conn->fabric = NULL;
}
