/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* How an acceptor and a connector of one machine that know of each other get to pipes. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sockets/conn.h"
#include "sockets/demote.h"
#include "sockets/diag.h"
#include "sockets/epoll_set.h"
#include "sockets/fabric.h"
#include "sockets/meeting.h"
#include "sockets/real.h"
#include "sockets/rendezvous.h"
#include "sockets/shared.h"
#include "sockets/steward.h"
#include "sockets/zcopy.h"

/* What is not there yet is looked for at each call for a while, then at every 8th, then seldom. It
 * will not come when much has moved, too: calls alone tell nothing of the peer, who may get a CPU
 * for its first one after thousands of small ones here. The kernel holds some megabytes, so who
 * reads has made calls by then. */
#define LOOK_ALWAYS_CALLS 32u
#define LOOK_EVERY_CALLS 8u
#define LOOK_SELDOM_CALLS 256u
/* Who waits in a call takes an offer in less. */
#define TAKE_MS 5
#define TAKE_PAUSE_NS (20 * VIA_USEC_NS)
#define GIVE_UP_CALLS 4096u
#define GIVE_UP_BYTES (UINT64_C(64) << 20)
/* A connection is worth pipes after some calls, or when it moves a lot. */
#define WORTH_BYTES (64u * 1024)

/* Only one process and thread does what follows from a phase. */
static bool claim(struct via_conn *conn, enum via_phase phase)
{
    return via_phase_apply_in(&conn->side->phase, phase, VIA_EVENT_CLAIM);
}

/* ... and has done it. */
static void release(struct via_conn *conn, enum via_event event)
{
    via_phase_apply(&conn->side->phase, event);
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* A sealed memfd of that size, or a negative errno. */
static int make_memory(size_t bytes)
{
    int fd = memfd_create("viaduct-connection", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -errno;
    }
    if (via_os_extend(fd, bytes) != 0 || VIA_REAL(fcntl)(fd, F_ADD_SEALS, SEALS) != 0) {
        int error = errno;
        VIA_REAL(close)(fd);
        return -error;
    }
    return fd;
}

static int map_memory(struct via_conn *conn, int fd, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        return -errno;
    }
    conn->memory = memory;
    conn->memory_bytes = bytes;
    return 0;
}

static void attach(struct via_conn *conn, const struct via_pipe_geometry *geometry,
                   unsigned char *own, unsigned char *peer)
{
    struct via_side *side = conn->side;
    via_side_attach(side, geometry, own, peer);
    if (side->tx_shut != 0) {
        /* The kernel's FIN was before there were pipes to say so. */
        side->said |= VIA_FLAG_ENDS;
        via_side_say(side, side->said);
    }
}

/* --- the acceptor offers -----------------------------------------------------------------------
 */

uint64_t via_conn_bells(struct via_conn *conn)
{
    uint64_t bells = conn->fabric != NULL ? via_sock_bells_adopted() : 0;
    int bell = atomic_load_explicit(&conn->bell, memory_order_relaxed);
    if (bell < 0 && !via_alone() && via_conn_is_unsettled(conn)) {
        /* Pipes may come by another thread's doing while this one sleeps. */
        int none = -1;
        bell = via_sock_bell_of_thread();
        if (bell >= 0 &&
            !atomic_compare_exchange_strong_explicit(&conn->bell, &none, bell, memory_order_relaxed,
                                                     memory_order_relaxed)) {
            bell = none;
        }
    }
    return bell >= 0 ? bells | VIA_BELL_MASK((unsigned)bell) : bells;
}

/* The bell of the thread that makes pipes is the connection's, whoever has waited for it before. */
static bool has_bell(struct via_conn *conn)
{
    int bell = via_sock_bell_of_thread();
    if (bell >= 0) {
        conn->bell_before = atomic_exchange_explicit(&conn->bell, bell, memory_order_relaxed);
    }
    return bell >= 0;
}

/* The memory, then the bell. */
#define OFFER_FDS (1 + VIA_BELL_FDS)

static enum via_reason offer_send(struct via_conn *conn, int memory_fd, size_t segment_bytes)
{
    if (!has_bell(conn)) {
        return VIA_REASON_RESOURCES;
    }
    unsigned bell = (unsigned)conn->bell;
    struct via_offer offer = {.magic = VIA_RENDEZVOUS_MAGIC,
                              .version = VIA_RENDEZVOUS_VERSION,
                              .geometry = via_ring,
                              .segment_bytes = segment_bytes,
                              .bell_word = via_sock_bell_word_index(bell),
                              .bell_id = via_sock_bell_id(bell)};
    int fds[OFFER_FDS] = {memory_fd};
    via_sock_bell_fds(bell, fds + 1);
    return via_rendezvous_send(conn->control_fd, &offer, fds, OFFER_FDS) == 0 ? VIA_REASON_NONE
                                                                              : VIA_REASON_PEER;
}

static enum via_reason offer_make(struct via_conn *conn)
{
    size_t segment_bytes = via_segment_bytes_for(&via_ring);
    int fd = make_memory(2 * segment_bytes);
    if (fd < 0) {
        return VIA_REASON_RESOURCES;
    }
    enum via_reason reason = VIA_REASON_RESOURCES;
    if (map_memory(conn, fd, 2 * segment_bytes) == 0) {
        attach(conn, &via_ring, conn->memory, conn->memory + segment_bytes);
        via_zcopy_meet(conn, conn->control_fd);
        reason = offer_send(conn, fd, segment_bytes);
    }
    VIA_REAL(close)(fd);
    return reason;
}

/* The connector has answered: its bell. */
static void fetch_peer_bell(struct via_conn *conn)
{
    struct via_offer answer;
    int fds[VIA_BELL_FDS];
    if (conn->peer_bell == NULL &&
        via_rendezvous_peek(conn->control_fd, &answer, fds, VIA_BELL_FDS) == 0) {
        conn->peer_bell = via_peer_bell_get(answer.bell_id, fds, answer.bell_word,
                                            via_rendezvous_pid(conn->control_fd));
        if (conn->peer_bell != NULL) { /* else there is no descriptor for it: the next look may */
            via_hidden_close(&conn->control_fd);
        }
    }
}

static bool offer_is_taken(struct via_conn *conn)
{
    if (conn->fabric != NULL) {
        return via_fabric_is_taken(conn);
    }
    if ((via_side_flags(conn->side) & VIA_FLAG_TAKEN) != 0) {
        fetch_peer_bell(conn);
    }
    return conn->peer_bell != NULL;
}

bool via_conn_tx_can_switch(struct via_conn *conn)
{
    if (via_conn_is_in(conn, VIA_PHASE_BIT(OFFERED)) && claim(conn, VIA_PHASE_OFFERED)) {
        release(conn, offer_is_taken(conn) ? VIA_EVENT_TAKE : VIA_EVENT_NOT_YET);
    }
    return via_conn_is_in(conn, VIA_PHASE_BIT(LIVE)) &&
           (conn->side->tx_shut == 0 || conn->side->shutting != 0) &&
           via_likely((via_side_flags(conn->side) & VIA_FLAG_DEMOTE) == 0);
}

void via_conn_say(struct via_conn *conn, uint64_t flags)
{
    if (conn->fabric != NULL) {
        via_fabric_say(conn, flags, true);
        return;
    }
    /* A ring for what is no record is not the one for the next: epoll_cold.c. */
    uint32_t rung = atomic_load_explicit(&conn->side->cold_rung, memory_order_relaxed);
    via_side_say(conn->side, flags);
    via_conn_posted_record(conn);
    atomic_store_explicit(&conn->side->cold_rung, rung, memory_order_relaxed);
    if ((flags & (VIA_FLAG_DEMOTE | VIA_FLAG_LOOK | VIA_FLAG_SHARED)) != 0) {
        if (conn->peer_bell == NULL && !conn->side->connector) {
            fetch_peer_bell(conn);
        }
        if (conn->peer_bell != NULL) {
            via_peer_bell_call(conn->peer_bell);
        }
    }
}

bool via_conn_peer_is_over(struct via_conn *conn, int fd)
{
    struct via_tuple tuple;
    struct via_diag diag;
    if (conn->fabric != NULL) {
        return via_fabric_is_over(conn);
    }
    int rc = via_conn_tuple(fd, &tuple) ? via_diag_peer(&tuple, &diag) : -ENOENT; /* by RST */
    return rc == -ENOENT || (rc == 0 && !diag.held);
}

void via_conn_posted_slowly(struct via_conn *conn, bool record)
{
    int saved = errno;
    if (conn->peer_bell == NULL) {
        if (conn->side->connector) {
            return;
        }
        fetch_peer_bell(conn);
    }
    if (conn->peer_bell != NULL) {
        struct via_side *side = conn->side;
        uint32_t word = via_side_cold(side);
        bool cold = record &&
                    atomic_exchange_explicit(&side->cold_rung, word, memory_order_relaxed) != word;
        via_stats_count(&conn->stats->rings, 1);
        via_peer_bell_ring(conn->peer_bell, cold);
    }
    errno = saved;
}

/* --- the connector takes -----------------------------------------------------------------------
 */

/* Is this the memory that the offer describes, and will it stay so? */
static bool offer_is_sound(const struct via_offer *offer, int memory_fd)
{
    struct stat stat;
    int seals = VIA_REAL(fcntl)(memory_fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(memory_fd, &stat) == 0 &&
           via_offer_is_sound(offer, (uint64_t)stat.st_size);
}

static enum via_reason offer_answer(struct via_conn *conn)
{
    if (!has_bell(conn)) {
        return VIA_REASON_RESOURCES;
    }
    unsigned bell = (unsigned)conn->bell;
    struct via_offer answer = {.magic = VIA_RENDEZVOUS_MAGIC,
                               .version = VIA_RENDEZVOUS_VERSION,
                               .bell_word = via_sock_bell_word_index(bell),
                               .bell_id = via_sock_bell_id(bell)};
    int fds[VIA_BELL_FDS];
    via_sock_bell_fds(bell, fds);
    return via_rendezvous_send(conn->control_fd, &answer, fds, VIA_BELL_FDS) == 0 ? VIA_REASON_NONE
                                                                                  : VIA_REASON_PEER;
}

/* Maps what was offered. fds: memory, and those of the bell; given up. */
static enum via_reason offer_map(struct via_conn *conn, const struct via_offer *offer,
                                 const int *fds)
{
    enum via_reason reason = VIA_REASON_PROTOCOL;
    conn->peer_bell = NULL;
    if (offer_is_sound(offer, fds[0])) {
        reason = VIA_REASON_RESOURCES;
        conn->peer_bell = via_peer_bell_get(offer->bell_id, fds + 1, offer->bell_word,
                                            via_rendezvous_pid(conn->control_fd));
        if (conn->peer_bell != NULL && map_memory(conn, fds[0], 2 * offer->segment_bytes) == 0) {
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

/* Takes the offer if it is there: 0, -EAGAIN, or settled plain. */
static int offer_take(struct via_conn *conn)
{
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
        reason = offer_map(conn, &offer, fds);
    }
    if (reason == VIA_REASON_NONE) {
        attach(conn, &offer.geometry, conn->memory + offer.segment_bytes, conn->memory);
        via_zcopy_meet(conn, conn->control_fd);
        reason = offer_answer(conn);
    }
    if (reason != VIA_REASON_NONE) {
        via_conn_settle_plain(conn, reason);
        return -ECONNREFUSED;
    }
    return 0;
}

/* --- steps -------------------------------------------------------------------------------------
 */

/* Pipes are there: whoever sleeps on the kernel's connection alone must look again. */
static void now_has_pipes(struct via_conn *conn, enum via_event event)
{
    conn->stats->accelerated = true;
    atomic_store_explicit(&conn->attached, true, memory_order_release);
    atomic_store_explicit(&via_steward_had_pipes, true, memory_order_relaxed);
    release(conn, event);
    via_ep_conn_changed(conn);
    via_shared_note(conn);
    if (!via_alone() || conn->side->forked != 0) {
        /* Carried by the fabric it has no bell of ours but that of who waits. */
        int waiter = conn->fabric != NULL ? conn->bell : conn->bell_before;
        if (waiter >= 0) {
            via_sock_bell_ring((unsigned)waiter);
        }
    }
}

/* Who is at the other end of the kernel's connection? NONE when it may run Viaduct. */
static enum via_reason find_peer(struct via_conn *conn, int fd)
{
    struct via_tuple tuple;
    struct via_diag diag;
    int rc = via_conn_tuple(fd, &tuple) ? via_diag_peer(&tuple, &diag) : -ENOENT;
    if (rc != 0 || !diag.marked) {
        return rc == 0         ? VIA_REASON_PEER
               : rc == -ENOENT ? VIA_REASON_SHORT /* closed already, whatever it was */
                               : VIA_REASON_KERNEL;
    }
    conn->peer_cookie = diag.cookie;
    conn->peer_uid = diag.uid;
    return VIA_REASON_NONE;
}

/* Is this call one at which to look for what was not there yet? */
static bool is_its_turn(uint32_t calls)
{
    return calls <= via_policy.rules.after_calls + LOOK_ALWAYS_CALLS ||
           calls % (calls <= GIVE_UP_CALLS ? LOOK_EVERY_CALLS : LOOK_SELDOM_CALLS) == 0;
}

/* The peer has had its turns, and has not come. */
static bool has_looked_enough(const struct via_conn *conn)
{
    return conn->calls > GIVE_UP_CALLS &&
           conn->stats->tx_kernel_bytes + conn->stats->rx_kernel_bytes > GIVE_UP_BYTES;
}

/* --- the connector's steps ----------------------------------------------------------------------
 */

uint64_t via_conn_cookie(int fd)
{
    uint64_t cookie = 0;
    socklen_t bytes = sizeof(cookie);
    VIA_REAL(getsockopt)(fd, SOL_SOCKET, SO_COOKIE, &cookie, &bytes);
    return cookie;
}

/* There is no descriptor to be had: perhaps later. */
static void wait_for_descriptors(struct via_conn *conn)
{
    if (has_looked_enough(conn)) {
        via_conn_settle_plain(conn, VIA_REASON_RESOURCES);
    } else {
        release(conn, VIA_EVENT_NOT_YET);
    }
}

/* Worth it: listens for the acceptor, unless that is a plain program. */
static void begin_listening(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    if (!via_meeting_may_open()) {
        wait_for_descriptors(conn);
        return;
    }
    enum via_reason reason = find_peer(conn, op->fd);
    if (reason == VIA_REASON_NONE) {
        int fd = via_rendezvous_listen(via_conn_cookie(op->fd));
        if (fd < 0 || via_hidden_new_meeting(fd, &conn->listen_fd) != 0) {
            reason = VIA_REASON_RESOURCES;
        }
    }
    if (reason == VIA_REASON_NONE) {
        release(conn, VIA_EVENT_NOT_YET);
    } else {
        via_conn_settle_plain(conn, reason);
    }
}

/* May the user at the other end of the control socket speak for the accepted TCP connection? Before
 * it was accepted it had no owner, so what was learnt then is looked up again. */
static bool acceptor_is_trusted(struct via_op *op, uid_t uid)
{
    return via_os_uid_is_one(uid) &&
           (uid == op->conn->peer_uid ||
            (find_peer(op->conn, op->fd) == VIA_REASON_NONE && uid == op->conn->peer_uid));
}

/* The connector, which listens: has the acceptor come? */
static void look_for_acceptor(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    uid_t uid = 0;
    int control_fd = via_rendezvous_accept(conn->listen_fd, &uid);
    enum via_reason reason = VIA_REASON_NONE;
    if (control_fd < 0 && conn->calls == 1 && conn->peer_cookie == 0) {
        reason = find_peer(conn, op->fd); /* it has announced itself without asking */
    }
    if (reason != VIA_REASON_NONE) {
        via_conn_settle_plain(conn, reason);
    } else if (control_fd >= 0 && !acceptor_is_trusted(op, uid)) {
        VIA_REAL(close)(control_fd);
        via_conn_settle_plain(conn, VIA_REASON_USER);
    } else if (control_fd >= 0 && via_hidden_new_meeting(control_fd, &conn->control_fd) == 0) {
        via_hidden_close(&conn->listen_fd);
        release(conn, VIA_EVENT_MEET);
    } else if (control_fd >= 0) {
        via_conn_settle_plain(conn, VIA_REASON_RESOURCES);
    } else if (has_looked_enough(conn)) {
        via_conn_settle_plain(conn, VIA_REASON_PEER);
    } else {
        release(conn, VIA_EVENT_NOT_YET);
    }
}

/* A direction that has ended before there were pipes never goes by them: the peer need not wait. */
static void say_kernel_end(struct via_conn *conn)
{
    struct via_side *side = conn->side;
    bool exclusive = via_alone() && side->forked == 0;
    if (side->tx_shut && via_token_take(&side->tx_token, exclusive, via_os_thread()) == 0) {
        side->tx.ended = true;
        side->said |= VIA_FLAG_TAKEN | VIA_FLAG_KERNEL_END;
        via_conn_say(conn, side->said);
        via_token_give(&side->tx_token);
    }
}

/* The connector, with a note on another host's board: has the offer come? */
static void look_for_offer(struct via_conn *conn)
{
    int rc = via_fabric_take(conn);
    if (rc == 0) {
        now_has_pipes(conn, VIA_EVENT_TAKE);
        say_kernel_end(conn);
    } else if (rc == -EAGAIN && !has_looked_enough(conn)) {
        release(conn, VIA_EVENT_NOT_YET);
    } else if (rc == -EAGAIN) {
        via_conn_settle_plain(conn, VIA_REASON_PEER);
    } else {
        /* -EACCES: its maker has closed meanwhile. */
        via_conn_settle_plain(conn, rc == -ECANCELED                    ? VIA_REASON_DEMOTED
                                    : rc == -ESHUTDOWN || rc == -EACCES ? VIA_REASON_SHORT
                                                                        : VIA_REASON_FABRIC);
    }
}

static void step_pending(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    if (!claim(conn, VIA_PHASE_PENDING)) {
        return;
    }
    if (conn->fabric != NULL) {
        look_for_offer(conn);
    } else if (conn->listen_fd < 0) {
        begin_listening(op);
    } else {
        look_for_acceptor(op);
    }
}

static void step_announced(struct via_conn *conn)
{
    if (!claim(conn, VIA_PHASE_ANNOUNCED)) {
        return;
    }
    int rc = offer_take(conn);
    if (rc == 0) {
        via_rendezvous_drop(conn->control_fd);
        via_hidden_close(&conn->control_fd);
        now_has_pipes(conn, VIA_EVENT_TAKE);
        via_side_say(conn->side, conn->side->said | VIA_FLAG_TAKEN);
    } else if (rc == -EAGAIN) {
        release(conn, VIA_EVENT_NOT_YET);
    }
}

/* --- the acceptor's step ------------------------------------------------------------------------
 */

/* Goes to where the connector listens. NONE when it has met it, or (then there is no control
 * socket) when it does not listen yet. */
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
        return has_looked_enough(conn) ? VIA_REASON_PEER : VIA_REASON_NONE;
    }
    if (fd < 0) {
        return fd == -EACCES ? VIA_REASON_USER : VIA_REASON_RESOURCES;
    }
    return via_hidden_new_meeting(fd, &conn->control_fd) == 0 ? VIA_REASON_NONE
                                                              : VIA_REASON_RESOURCES;
}

/* This process may talk to itself: then nobody else need be woken for its other end to take the
 * offer. */
static void take_here(const struct via_conn *acceptor)
{
    struct via_op op;
    int fd = -1;
    if (via_rendezvous_pid(acceptor->control_fd) == getpid()) {
        fd = via_conn_fd_by_cookie(acceptor->peer_cookie);
    }
    if (fd >= 0 && via_op_begin(&op, fd)) {
        via_conn_look_early_now(&op);
        via_op_end(&op);
    }
}

static void step_accepted(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    enum via_reason reason = VIA_REASON_NONE;
    if (!claim(conn, VIA_PHASE_ACCEPTED)) {
        return;
    }
    if (conn->fabric != NULL) {
        reason = via_fabric_offer(conn);
    } else if (!via_meeting_may_open()) {
        wait_for_descriptors(conn);
        return;
    } else {
        reason = meet_connector(op);
        if (reason == VIA_REASON_NONE && conn->control_fd < 0) {
            release(conn, VIA_EVENT_NOT_YET);
            return;
        }
        reason = reason == VIA_REASON_NONE ? offer_make(conn) : reason;
    }
    if (reason == VIA_REASON_NONE) {
        now_has_pipes(conn, VIA_EVENT_OFFER);
        if (via_policy.rules.after_calls == 0 && conn->fabric == NULL) {
            take_here(conn);
        }
    } else {
        via_conn_settle_plain(conn, reason);
    }
}

/*
 * Processes that hold a connection together can not agree on what one of them has found out; so
 * nothing is done before all but one have closed it. (Those that were killed did not say so: then
 * it stays with the kernel.)
 */
static bool is_sole_holder(struct via_conn *conn)
{
    struct via_side *side = conn->side;
    if (side->forked == 0) {
        return true;
    }
    if (side->refs != conn->fds) {
        return false;
    }
    side->forked = 0;
    return true;
}

static void step(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    step_pending(op);
    step_announced(conn);
    step_accepted(op);
}

/* --- giving up ----------------------------------------------------------------------------------
 */

static bool is_readable(int fd)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    return VIA_REAL(poll)(&pfd, 1, 0) > 0;
}

/* The connector stops listening, for now: it listens again at a later call. */
static bool stop_listening(struct via_conn *conn, bool at_once)
{
    if (!claim(conn, VIA_PHASE_PENDING)) {
        return false;
    }
    bool comes = is_readable(conn->listen_fd);
    if (!comes) {
        via_hidden_close(&conn->listen_fd);
    } else if (at_once) {
        via_conn_settle_plain(conn, VIA_REASON_RESOURCES); /* the acceptor will find that */
        return true;
    }
    release(conn, VIA_EVENT_NOT_YET);
    return !comes;
}

/* The acceptor takes its offer back, unless that has been taken. */
static bool withdraw(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    char byte;
    if (!claim(conn, VIA_PHASE_OFFERED)) {
        return false;
    }
    /* From now on an answer fails at the peer, which stays with the kernel then (unix(7)). */
    VIA_REAL(shutdown)(conn->control_fd, SHUT_RD);
    fetch_peer_bell(conn);
    bool taken = conn->peer_bell != NULL ||
                 VIA_REAL(recv)(conn->control_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
    release(conn, VIA_EVENT_NOT_YET);
    if (taken || !via_conn_withdraw(op, VIA_REASON_RESOURCES)) {
        return conn->peer_bell != NULL; /* else the kernel has no descriptors for the answer now */
    }
    via_hidden_close(&conn->control_fd);
    via_ep_conn_changed(conn);
    return true;
}

bool via_conn_stop_meeting(struct via_op *op, bool at_once)
{
    struct via_conn *conn = op->conn;
    if (!is_sole_holder(conn)) {
        return false;
    }
    int saved = errno;
    bool stopped = false;
    if (via_conn_is_in(conn, VIA_PHASE_BIT(OFFERED))) {
        stopped = withdraw(op);
    } else if (via_conn_is_in(conn, VIA_PHASE_BIT(PENDING))) {
        stopped = stop_listening(conn, at_once);
    }
    if (!stopped && !at_once) {
        via_conn_learn_options(op);
        step(op);
        stopped = !via_conn_is_meeting(conn);
    }
    errno = saved;
    return stopped;
}

/* --- before the first byte ---------------------------------------------------------------------
 */

void via_conn_announce(struct via_conn *conn, int fd)
{
    int saved = errno;
    conn->own_cookie = via_conn_cookie(fd);
    int listen_fd = via_meeting_may_open() ? via_rendezvous_listen(conn->own_cookie) : -EMFILE;
    if (listen_fd >= 0) {
        via_hidden_new_meeting(listen_fd, &conn->listen_fd); /* without, it is tried later */
    }
    errno = saved;
}

int via_conn_early_fd(const struct via_conn *conn)
{
    int fd = atomic_load_explicit(&conn->control_fd, memory_order_relaxed);
    return fd >= 0 ? fd : atomic_load_explicit(&conn->listen_fd, memory_order_relaxed);
}

void via_conn_look_early_slowly(struct via_op *op)
{
    uint32_t looks = 1 + atomic_fetch_add_explicit(&op->conn->early_looks, 1, memory_order_relaxed);
    if (looks <= LOOK_ALWAYS_CALLS || looks % LOOK_EVERY_CALLS == 0 ||
        via_conn_is_unaccepted(op->conn)) {
        via_conn_look_early_now(op);
    }
}

/* Nothing is carried any more, or nothing that the kernel would not answer by RST. */
static bool has_ended_here(struct via_conn *conn)
{
    const struct via_side *side = conn->side;
    bool ended = side->rx_shut != 0 && side->tx_shut != 0;
    if (via_unlikely(ended) && conn->fabric == NULL) {
        via_conn_try_settle_plain(conn, VIA_REASON_SHORT);
    }
    return ended && conn->fabric == NULL;
}

void via_conn_look_early_now(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    if (!via_conn_is_eager(conn) || !is_sole_holder(conn) || has_ended_here(conn)) {
        return;
    }
    int saved = errno;
    via_conn_learn_options(op);
    if (conn->listen_fd >= 0) {
        step_pending(op);
    }
    step_announced(conn);
    step_accepted(op);
    errno = saved;
}

void via_conn_await_taken_slowly(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    int saved = errno;
    struct pollfd pfd = {.fd = conn->control_fd, .events = POLLIN};
    if (!conn->awaited && pfd.fd >= 0 && (via_side_flags(op->side) & VIA_FLAG_TAKEN) == 0 &&
        VIA_REAL(poll)(&pfd, 1, TAKE_MS) > 0) {
        /* It has answered, and says so in the pipes' memory when they are set up there. */
        uint64_t end_ns = via_os_now_ns() + TAKE_MS * VIA_MSEC_NS;
        while ((via_side_flags(op->side) & VIA_FLAG_TAKEN) == 0 && via_os_now_ns() < end_ns) {
            struct timespec pause = {.tv_nsec = TAKE_PAUSE_NS};
            nanosleep(&pause, NULL);
        }
    }
    conn->awaited = true;
    errno = saved;
}

void via_conn_look(struct via_op *op)
{
    int saved = errno;
    if (is_sole_holder(op->conn)) {
        via_conn_learn_options(op);
        step_pending(op);
    }
    errno = saved;
}

void via_conn_step(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    uint32_t calls = 1 + atomic_fetch_add_explicit(&conn->calls, 1, memory_order_relaxed);
    if ((calls < via_policy.rules.after_calls &&
         conn->stats->tx_kernel_bytes + conn->stats->rx_kernel_bytes < WORTH_BYTES) ||
        (!is_its_turn(calls) && !via_conn_is_unaccepted(conn)) || !is_sole_holder(conn) ||
        has_ended_here(conn)) {
        return;
    }
    int saved = errno;
    via_conn_learn_options(op);
    step(op);
    errno = saved;
}
