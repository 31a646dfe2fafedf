/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The carrier within one machine: shared memory, and how the two ends map it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mutant.h"
#include "sockets/conn/demote.h"
#include "sockets/conn/share.h"
#include "sockets/epoll/epoll_set.h"
#include "sockets/io/io_internal.h"
#include "sockets/io/zcopy.h"
#include "sockets/meet/diag.h"
#include "sockets/meet/meeting.h"
#include "sockets/meet/rendezvous.h"
#include "sockets/process/lock.h"
#include "sockets/process/real.h"

/* --- memory ---------------------------------------------------------------------------------- */

/*
 * A program that moves megabytes without blocking sleeps whenever the ring is full or empty, and a
 * wake-up of another CPU takes longer than the copy of 256 KiB. With long rings it sleeps less
 * often (echoes of 32 MiB over Java's asynchronous channels: 1.5 to 2 times as fast). The bodies of
 * many connections would displace each other from the caches, so only a process with few
 * connections offers long rings.
 */
#define LONG_RINGS_MAX 8u

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static void note_memory(struct via_conn *conn, void *memory, size_t bytes)
{
    conn->memory = memory;
    conn->memory_bytes = bytes;
    via_share_map();
    via_share_charge(&conn->quiet.used_bytes, VIA_SHARE_IDLE_BYTES);
}

static void attach(struct via_conn *conn, const struct via_pipe_geometry *geometry,
                   unsigned char *own, unsigned char *peer)
{
    struct via_side *side = conn->side;
    via_side_attach(side, geometry, own, peer);
    if (side->tx_shut != 0) {
        /* The kernel's FIN was sent before there were pipes to announce it. */
        side->sent_flags |= VIA_FLAG_ENDS;
        via_side_publish_flags(side, side->sent_flags);
    }
}

/* --- the acceptor offers --------------------------------------------------------------------- */

/* Determines which process holds the other end of the kernel connection. NONE: that process may run
 * Viaduct. */
static enum via_reason find_peer(struct via_conn *conn, int fd)
{
    struct via_tuple tuple;
    struct via_diag diag;
    int rc = via_conn_read_tuple(fd, &tuple) ? via_diag_peer(&tuple, &diag) : -ENOENT;
    if (rc != 0 || !diag.marked) {
        return rc == 0         ? VIA_REASON_PEER
               : rc == -ENOENT ? VIA_REASON_SHORT /* closed already; the owner is unknown */
               : rc == -EMFILE ? VIA_REASON_RESOURCES
                               : VIA_REASON_KERNEL;
    }
    conn->peer_cookie = diag.cookie;
    conn->peer_uid = diag.uid;
    return VIA_REASON_NONE;
}

/* Records why there are no pipes yet. -EAGAIN, or the reason after enough calls. */
static int note_waiting(struct via_conn *conn, enum via_reason why)
{
    conn->stats->waits_for = (uint8_t)why;
    return via_conn_has_waited_enough(conn) ? (int)why : -EAGAIN;
}

/* Gives the connection the bell of the thread that makes its pipes, even if another thread has
 * waited for the connection before. False: there is no bell. */
static bool take_bell(struct via_conn *conn)
{
    int bell = via_sock_bell_of_thread();
    if (bell >= 0) {
        conn->bell_before = atomic_exchange_explicit(&conn->bell, bell, memory_order_relaxed);
    }
    return bell >= 0;
}

/* Descriptors of an offer: the memory, then the bell. */
#define OFFER_FDS (1 + VIA_BELL_FDS)

static struct via_pipe_geometry choose_geometry(void)
{
    struct via_pipe_geometry geometry = via_ring;
    if (via_share_mapped_count() < LONG_RINGS_MAX) {
        geometry.data_bytes = VIA_RING_LONG_BYTES;
    }
    return geometry;
}

/* Sends an offer of this memory or, if memory_fd is -1, the answer to one. */
static enum via_reason send_bell(struct via_conn *conn, int memory_fd,
                                 const struct via_pipe_geometry *geometry, size_t segment_bytes)
{
    if (!take_bell(conn)) {
        return VIA_REASON_RESOURCES;
    }
    unsigned bell = (unsigned)conn->bell;
    struct via_offer offer = {.magic = VIA_RENDEZVOUS_MAGIC,
                              .version = VIA_RENDEZVOUS_VERSION,
                              .geometry = *geometry,
                              .segment_bytes = segment_bytes,
                              .bell_word = via_sock_bell_word_index(bell)};
    int fds[OFFER_FDS] = {memory_fd};
    unsigned skipped = memory_fd < 0 ? 1 : 0;
    via_sock_bell_fds(bell, fds + 1);
    int rc = via_rendezvous_send(conn->control_fd, &offer, fds + skipped, OFFER_FDS - skipped);
    return rc == 0 ? VIA_REASON_NONE : VIA_REASON_PEER;
}

static int make_memory(const struct via_pipe_geometry *geometry, void **ret_memory)
{
    return via_os_memory("viaduct-connection", 2 * via_segment_bytes_for(geometry), SEALS,
                         ret_memory);
}

static enum via_reason make_and_send_offer(struct via_conn *conn)
{
    struct via_pipe_geometry geometry = choose_geometry();
    void *memory;
    int fd = make_memory(&geometry, &memory);
    if (fd < 0) { /* RLIMIT_FSIZE or RLIMIT_AS may allow short rings */
        geometry = via_ring;
        fd = make_memory(&geometry, &memory);
    }
    if (fd < 0) {
        return VIA_REASON_RESOURCES;
    }
    size_t segment_bytes = via_segment_bytes_for(&geometry);
    note_memory(conn, memory, 2 * segment_bytes);
    attach(conn, &geometry, conn->memory, conn->memory + segment_bytes);
    via_zcopy_meet(conn, conn->control_fd);
    enum via_reason reason = send_bell(conn, fd, &geometry, segment_bytes);
    VIA_REAL(close)(fd);
    return reason;
}

/* A reader and a writer may find the answer at the same time: one of them fetches it. */
static struct via_mutex fetching = VIA_MUTEX_INIT(VIA_RANK_MEETING);

void via_local_forked(void)
{
    via_lock_reset(&fetching);
}

/* Opens the bell in the connector's answer. NULL: there is no answer, or no descriptor for the
 * bell; the next poll may find one. */
static struct via_peer_bell *fetch_peer_bell(struct via_conn *conn)
{
    struct via_offer answer;
    int fds[VIA_BELL_FDS];
    via_lock(&fetching);
    struct via_peer_bell *bell = via_conn_peer_bell(conn);
    if (bell == NULL && via_rendezvous_peek(conn->control_fd, &answer, fds, VIA_BELL_FDS) == 0) {
        bell = via_peer_bell_get(fds, answer.bell_word, via_rendezvous_peer(conn->control_fd).pid);
        if (bell != NULL) {
            /* Pairs with the acquire in via_conn_peer_bell(). */
            atomic_store_explicit(&conn->peer_bell, bell, memory_order_release);
            via_hidden_close(&conn->control_fd);
        }
    }
    via_unlock(&fetching);
    return bell;
}

/* The peer's bell. The acceptor fetches it from the answer; the connector got it with the offer. */
static struct via_peer_bell *find_peer_bell(struct via_conn *conn)
{
    struct via_peer_bell *bell = via_conn_peer_bell(conn);
    return bell != NULL || conn->side->connector ? bell : fetch_peer_bell(conn);
}

static bool is_taken(struct via_conn *conn)
{
    return (via_side_flags(conn->side) & VIA_FLAG_TAKEN) != 0 ? fetch_peer_bell(conn) != NULL
                                                              : via_conn_peer_bell(conn) != NULL;
}

/* Connects to the connector's listening socket. NONE if the two ends have met, or if the connector
 * does not listen yet (then there is no control socket). */
static enum via_reason meet_connector(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    if (conn->peer_cookie == 0) {
        enum via_reason reason = find_peer(conn, op->fd);
        if (reason != VIA_REASON_NONE) {
            return reason;
        }
    }
    int fd = via_rendezvous_connect(conn->peer_cookie, conn->peer_uid);
    if (fd == -ECONNREFUSED) {
        int rc = note_waiting(conn, VIA_REASON_WAITS);
        return rc == -EAGAIN ? VIA_REASON_NONE : (enum via_reason)rc;
    }
    if (fd < 0) {
        return fd == -EACCES ? VIA_REASON_USER : VIA_REASON_RESOURCES;
    }
    return via_hidden_new_meeting(fd, &conn->control_fd) == 0 ? VIA_REASON_NONE
                                                              : VIA_REASON_RESOURCES;
}

static int make_offer(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    if (!via_share_is_map_allowed()) {
        return VIA_REASON_LIMIT;
    }
    if (!via_meeting_is_open_allowed()) {
        return note_waiting(conn, VIA_REASON_RESOURCES);
    }
    enum via_reason reason = meet_connector(op);
    if (reason == VIA_REASON_NONE && conn->control_fd < 0) {
        return -EAGAIN;
    }
    return (int)(reason == VIA_REASON_NONE ? make_and_send_offer(conn) : reason);
}

/* --- the connector takes --------------------------------------------------------------------- */

/* True if this is the memory that the offer describes, and no access to it can raise SIGBUS. */
static bool is_offer_sound(const struct via_offer *offer, int memory_fd)
{
    uint64_t bytes;
    return via_os_is_safe_memory(memory_fd, &bytes) && via_offer_is_sound(offer, bytes);
}

/* Maps the offered memory. fds: the memory and the bell; all are closed here. */
static enum via_reason map_offer(struct via_conn *conn, const struct via_offer *offer,
                                 const int *fds)
{
    enum via_reason reason = VIA_REASON_PROTOCOL;
    if (!via_share_is_map_allowed()) {
        reason = VIA_REASON_LIMIT;
    }
    if (reason == VIA_REASON_PROTOCOL && is_offer_sound(offer, fds[0])) {
        reason = VIA_REASON_RESOURCES;
        struct via_peer_bell *bell =
            via_peer_bell_get(fds + 1, offer->bell_word, via_rendezvous_peer(conn->control_fd).pid);
        void *memory = MAP_FAILED;
        atomic_store_explicit(&conn->peer_bell, bell, memory_order_relaxed);
        if (bell != NULL) {
            memory =
                mmap(NULL, 2 * offer->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
        }
        if (memory != MAP_FAILED) {
            note_memory(conn, memory, 2 * offer->segment_bytes);
            reason = VIA_REASON_NONE;
        }
    } else {
        for (unsigned i = 1; i < OFFER_FDS; i++) {
            VIA_REAL(close)(fds[i]);
        }
    }
    VIA_REAL(close)(fds[0]);
    return reason;
}

static int take_offer(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    struct via_offer offer;
    int fds[OFFER_FDS];
    int rc = via_rendezvous_peek(conn->control_fd, &offer, fds, OFFER_FDS);
    if (rc == -EAGAIN) {
        return rc;
    }
    enum via_reason reason = rc == -EPROTO   ? VIA_REASON_PROTOCOL
                             : rc == -EMFILE ? VIA_REASON_RESOURCES
                                             : VIA_REASON_PEER;
    if (rc == 0) {
        reason = map_offer(conn, &offer, fds);
    }
    if (reason == VIA_REASON_NONE) {
        attach(conn, &offer.geometry, conn->memory + offer.segment_bytes, conn->memory);
        via_zcopy_meet(conn, conn->control_fd);
        reason = send_bell(conn, -1, &(struct via_pipe_geometry){.slots_count = 0}, 0);
    }
    if (reason == VIA_REASON_NONE) {
        via_rendezvous_drop(conn->control_fd);
        via_hidden_close(&conn->control_fd);
    }
    return (int)reason;
}

/* Listens for the acceptor, unless the peer does not run Viaduct and so never connects. */
static int begin_listening(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    if (!via_share_is_map_allowed()) {
        return VIA_REASON_LIMIT;
    }
    if (!via_meeting_is_open_allowed()) {
        return note_waiting(conn, VIA_REASON_RESOURCES);
    }
    enum via_reason reason = find_peer(conn, op->fd);
    if (reason == VIA_REASON_NONE) {
        int fd = via_rendezvous_listen(via_conn_cookie(op->fd));
        if (fd < 0 || via_hidden_new_meeting(fd, &conn->listen_fd) != 0) {
            reason = VIA_REASON_RESOURCES;
        }
    }
    return reason == VIA_REASON_NONE ? -EAGAIN : (int)reason;
}

/* True if the user at the other end of the control socket may act for the accepted TCP connection.
 * The connection had no owner before it was accepted, so an earlier answer of the kernel may be out
 * of date: this function queries the kernel again. */
static bool is_acceptor_trusted(struct via_op *op, uid_t uid)
{
    return via_os_uid_is_one(uid) &&
           (uid == op->conn->peer_uid ||
            (find_peer(op->conn, op->fd) == VIA_REASON_NONE && uid == op->conn->peer_uid));
}

/* For a connector that listens: -EALREADY if the acceptor has connected. */
static int poll_for_acceptor(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    uid_t uid = 0;
    int control_fd = via_rendezvous_accept(conn->listen_fd, &uid);
    if (control_fd < 0) {
        return note_waiting(conn, VIA_REASON_WAITS);
    }
    if (!is_acceptor_trusted(op, uid)) {
        VIA_REAL(close)(control_fd);
        return (int)VIA_REASON_USER;
    }
    if (via_hidden_new_meeting(control_fd, &conn->control_fd) != 0) {
        return (int)VIA_REASON_RESOURCES;
    }
    via_hidden_close(&conn->listen_fd);
    return -EALREADY;
}

static int find_offer(struct via_op *op)
{
    return op->conn->listen_fd < 0 ? begin_listening(op) : poll_for_acceptor(op);
}

static void publish_taken(struct via_conn *conn)
{
    via_side_publish_flags(conn->side, conn->side->sent_flags | VIA_FLAG_TAKEN);
}

/* --- carrying -------------------------------------------------------------------------------- */

void via_conn_posted_slowly(struct via_conn *conn, bool record)
{
    VIA_KEEP_ERRNO;
    struct via_peer_bell *bell = find_peer_bell(conn);
    if (bell != NULL && !(record && VIA_MUTANT(CONN_NO_RING))) {
        struct via_side *side = conn->side;
        uint32_t word = via_side_cold(side);
        bool cold = record &&
                    atomic_exchange_explicit(&side->cold_rung, word, memory_order_relaxed) != word;
        via_stats_count(&conn->stats->rings, 1);
        via_peer_bell_ring(bell, cold);
    }
}

static int publish_flags(struct via_conn *conn, uint64_t flags, bool wait)
{
    (void)wait;
    /* This ring is not for a record, so it does not count as the ring for the next record:
     * epoll_cold.c. */
    uint32_t rung = atomic_load_explicit(&conn->side->cold_rung, memory_order_relaxed);
    via_side_publish_flags(conn->side, flags);
    via_conn_posted_record(conn);
    atomic_store_explicit(&conn->side->cold_rung, rung, memory_order_relaxed);
    if ((flags & (VIA_FLAG_DEMOTE | VIA_FLAG_LEAVING | VIA_FLAG_SHARED)) != 0) {
        struct via_peer_bell *bell = find_peer_bell(conn);
        if (bell != NULL) {
            via_peer_bell_call(bell);
        }
    }
    return 0;
}

static int send_fin(struct via_conn *conn, int fd, uint8_t flags, bool wait)
{
    (void)fd;
    (void)wait;
    /* Published before the kernel's FIN: the peer takes a FIN without this flag for a death
     * (io_end.c). */
    conn->side->sent_flags |= VIA_FLAG_TAKEN | VIA_FLAG_ENDS;
    via_side_publish_flags(conn->side, conn->side->sent_flags);
    if (via_stream_tx_fin(&conn->side->tx, flags) == 0) {
        via_conn_posted_record(conn);
    }
    return 0;
}

static bool is_over(struct via_conn *conn, int fd)
{
    struct via_tuple tuple;
    struct via_diag diag;
    (void)conn;
    /* an RST has ended it */
    int rc = via_conn_read_tuple(fd, &tuple) ? via_diag_peer(&tuple, &diag) : -ENOENT;
    return rc == -ENOENT || (rc == 0 && !diag.held);
}

static void tx_request_room(struct via_conn *conn)
{
    via_pipe_request_room(&conn->side->tx.pipe);
}

/* --- operations without effect on stored memory ---------------------------------------------- */

static void do_nothing(struct via_conn *conn)
{
    (void)conn;
}

static int need_nothing(struct via_conn *conn)
{
    (void)conn;
    return 0;
}

static bool return_true(struct via_conn *conn)
{
    (void)conn;
    return true;
}

static bool return_false(struct via_conn *conn)
{
    (void)conn;
    return false;
}

static bool is_cut_off(const struct via_conn *conn)
{
    (void)conn;
    return false;
}

static void decline(struct via_conn *conn, uint64_t flag)
{
    (void)conn;
    (void)flag;
}

static enum via_carrier_end end_of(struct via_conn *conn)
{
    (void)conn;
    return VIA_CARRIER_END_PLAIN;
}

/* NULL: inline in carrier.h. */
const struct via_carrier via_carrier_local = {
    .find_offer = find_offer,
    .take_offer = take_offer,
    .make_offer = make_offer,
    .announce_taken = publish_taken,
    .is_taken = is_taken,
    .decline = decline,
    .tx_request_room = tx_request_room,
    .send_flags = publish_flags,
    .send_fin = send_fin,
    .has_arrived = return_true,
    .is_cut_off = is_cut_off,
    .announce_close = via_conn_announce_end,
    .is_over = is_over,
    .is_follow_possible = return_false,
    .is_switch_allowed = return_false,
    .stop_following = do_nothing,
    .end_of = end_of,
    .leave_begin = need_nothing,
    .gather = need_nothing,
};

/* --- giving up ------------------------------------------------------------------------------- */

static bool is_readable(int fd)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    return VIA_REAL(poll)(&pfd, 1, 0) > 0;
}

bool via_local_stop_listening(struct via_conn *conn, bool at_once)
{
    if (!via_phase_apply_in(&conn->side->phase, VIA_PHASE_PENDING, VIA_EVENT_CLAIM)) {
        return false;
    }
    bool comes = is_readable(conn->listen_fd);
    if (!comes) {
        via_hidden_close(&conn->listen_fd);
    } else if (at_once) {
        /* The acceptor will find that the connection stays with the kernel. */
        via_conn_settle_plain(conn, VIA_REASON_RESOURCES);
        return true;
    }
    via_phase_apply(&conn->side->phase, VIA_EVENT_NOT_YET);
    return !comes;
}

bool via_local_withdraw(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    char byte;
    if (!via_phase_apply_in(&conn->side->phase, VIA_PHASE_OFFERED, VIA_EVENT_CLAIM)) {
        return false;
    }
    /* After shutdown() the peer's answer fails, and the peer stays with the kernel (unix(7)). */
    via_lock(&fetching); /* another thread may fetch the answer and close control_fd meanwhile */
    VIA_REAL(shutdown)(conn->control_fd, SHUT_RD);
    via_unlock(&fetching);
    bool fetched = fetch_peer_bell(conn) != NULL;
    via_lock(&fetching);
    bool taken = fetched || VIA_REAL(recv)(conn->control_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
    via_unlock(&fetching);
    via_phase_apply(&conn->side->phase, VIA_EVENT_NOT_YET);
    if (taken || !via_conn_end_pipes(op, VIA_EVENT_WITHDRAW, VIA_REASON_RESOURCES)) {
        return fetched; /* false: this process has no descriptor for the bell now */
    }
    via_lock(&fetching);
    via_hidden_close(&conn->control_fd);
    via_unlock(&fetching);
    via_ep_conn_changed(conn);
    return true;
}
