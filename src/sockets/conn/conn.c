/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/conn/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "sockets/conn/board.h"
#include "sockets/conn/demote.h"
#include "sockets/conn/share.h"
#include "sockets/conn/shared.h"
#include "sockets/conn/steward.h"
#include "sockets/epoll/epoll_set.h"
#include "sockets/fabric/directory.h"
#include "sockets/fabric/fabric.h"
#include "sockets/io/io_internal.h"
#include "sockets/meet/diag.h"
#include "sockets/meet/rendezvous.h"
#include "sockets/process/cancel.h"
#include "sockets/process/lock.h"
#include "sockets/process/pool.h"
#include "sockets/process/real.h"

#define CONNS_MAX (1u << 18)

/* asm-generic/socket.h; on 64 bits these mean the same as the options without _NEW. */
#define TIMESTAMP_NEW 63
#define TIMESTAMPNS_NEW 64

/* linux/socket.h */
#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif
#ifndef SOCK_SNDBUF_LOCK
#define SOCK_SNDBUF_LOCK 1
#define SOCK_RCVBUF_LOCK 2
#endif

static struct via_pool pool = VIA_POOL_INIT(sizeof(struct via_conn), CONNS_MAX);
static struct via_mutex all_lock = VIA_MUTEX_INIT(VIA_RANK_CONNS);
static struct via_list all = {&all, &all};
/* Number of connections in that list; written with the lock, read without it by threads that are
 * about to sleep. */
static _Atomic unsigned all_count;
static _Atomic uint64_t serials;

/* Frees a connection to which no reference is left. No handler forks meanwhile: its child would
 * free the side, too, and one of the two processes would clear memory that the other one still
 * uses. */
static void conn_free(struct via_file *file)
{
    struct via_conn *conn = via_container_of(file, struct via_conn, file);
    via_lock_enter();
    via_lock(&all_lock);
    via_list_remove(&conn->all);
    atomic_fetch_sub_explicit(&all_count, 1, memory_order_relaxed);
    via_unlock(&all_lock);
    via_shared_forget(conn);
    via_stats_add(conn->stats);
    via_hidden_close(&conn->listen_fd);
    via_hidden_close(&conn->control_fd);
    via_peer_bell_put(via_conn_peer_bell(conn));
    via_fabric_free(conn);
    if (conn->memory != NULL) {
        munmap(conn->memory, conn->memory_bytes);
        via_share_charge(&conn->quiet.used_bytes, 0);
        via_share_unmap();
    }
    via_side_free(conn->side);
    via_pool_put(&pool, conn);
    via_lock_leave();
}

/* The connection's counters are on the board, if that has room. */
static void place_stats(struct via_conn *conn)
{
    struct via_stats_conn *listed = via_board_entry(via_pool_index(&pool, conn));
    conn->stats = listed != NULL ? listed : &conn->own_stats;
}

/* Makes a connection and adds it to the list. The caller defers signal handlers: in a child that
 * one of them forked meanwhile, a connection outside the list would not be counted. */
static struct via_conn *make(bool connector)
{
    struct via_side *side = via_side_new();
    if (side == NULL) {
        return NULL;
    }
    struct via_conn *conn = via_pool_get(&pool);
    if (conn == NULL) {
        via_side_free(side);
        return NULL;
    }
    side->connector = connector;
    /* Keeps `file`, which a thread with a stale pointer may still load: via_file_get(). */
    memset((unsigned char *)conn + sizeof(conn->file), 0, sizeof(*conn) - sizeof(conn->file));
    conn->file.kind = VIA_FILE_CONN;
    conn->file.free = conn_free;
    conn->side = side;
    conn->serial = atomic_fetch_add_explicit(&serials, 1, memory_order_relaxed) + 1;
    conn->fds = 1;
    conn->fd = -1;
    conn->listen_fd = -1;
    conn->control_fd = -1;
    conn->bell = -1;
    conn->bell_before = -1;
    conn->carrier = &via_carrier_local;
    conn->peer_uid = (uid_t)-1; /* the peer's user is not known */
    conn->own_stats = (struct via_stats_conn){.reason = VIA_REASON_NONE};
    place_stats(conn);
    via_list_init(&conn->entries);
    via_lock(&all_lock);
    via_list_push_back(&all, &conn->all);
    atomic_fetch_add_explicit(&all_count, 1, memory_order_relaxed);
    via_unlock(&all_lock);
    /* Last: from now on a stale pointer to this object may look valid although it belongs to
     * another connection. */
    atomic_store_explicit(&conn->file.users, 1, memory_order_release);
    return conn;
}

static struct via_conn *conn_new(bool connector)
{
    via_steward_prepare();
    via_lock_enter();
    struct via_conn *conn = make(connector);
    via_lock_leave();
    return conn;
}

void via_conn_settle_plain(struct via_conn *conn, enum via_reason reason)
{
    conn->stats->reason = reason;
    via_phase_apply(&conn->side->phase, VIA_EVENT_SETTLE);
    via_hidden_close(&conn->listen_fd);
    via_hidden_close(&conn->control_fd);
}

bool via_conn_try_settle_plain(struct via_conn *conn, enum via_reason reason)
{
    enum via_phase phase = via_phase_get(&conn->side->phase);
    bool mine =
        via_phase_is_in(phase, VIA_PHASES_UNDECIDED) &&
        (phase == VIA_PHASE_NEW || via_phase_apply_in(&conn->side->phase, phase, VIA_EVENT_CLAIM));
    if (mine) {
        via_conn_settle_plain(conn, reason);
    }
    return mine;
}

int via_conn_fd(const struct via_conn *conn)
{
    int last = atomic_load_explicit(&conn->fd, memory_order_relaxed);
    if (via_fd_peek(last) == &conn->file) {
        return last;
    }
    unsigned top = via_fds_top();
    for (unsigned fd = 0; fd < top; fd++) {
        if (via_fd_peek((int)fd) == &conn->file) {
            return (int)fd;
        }
    }
    return -1;
}

struct via_op via_conn_op(struct via_conn *conn, int fd)
{
    bool alone = via_is_alone();
    return (struct via_op){.conn = conn,
                           .side = conn->side,
                           .fd = fd,
                           .alone = alone,
                           .exclusive = alone && conn->side->forked == 0,
                           .thread = via_os_thread()};
}

bool via_conn_is_none(void)
{
    return atomic_load_explicit(&all_count, memory_order_relaxed) == 0;
}

static void visit_locked(void (*visit)(struct via_conn *conn))
{
    via_list_foreach(it, &all) {
        visit(via_list_entry(it, struct via_conn, all));
    }
}

void via_conn_each(void (*visit)(struct via_conn *conn))
{
    via_lock(&all_lock);
    visit_locked(visit);
    via_unlock(&all_lock);
}

bool via_conn_try_each(void (*visit)(struct via_conn *conn))
{
    if (!via_try_lock(&all_lock)) {
        return false;
    }
    visit_locked(visit);
    via_unlock(&all_lock);
    return true;
}

unsigned via_op_each(bool (*visit)(struct via_op *op, const void *context), const void *context)
{
    unsigned top = via_fds_top();
    unsigned count = 0;
    for (unsigned fd = 0; fd < top; fd++) {
        struct via_op op;
        if (via_unlikely(via_fd_peek((int)fd) != NULL) && via_op_begin(&op, (int)fd)) {
            count += visit(&op, context) ? 1 : 0;
            via_op_end(&op);
        }
    }
    return count;
}

/* --- connecting ------------------------------------------------------------------------------ */

static bool is_tcp(int fd)
{
    return via_real_option(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP;
}

bool via_op_is_nonblocking_slowly(const struct via_op *op)
{
    VIA_KEEP_ERRNO;
    int flags = VIA_REAL(fcntl)(op->fd, F_GETFL);
    via_op_set_nonblocking(op, flags >= 0 && (flags & O_NONBLOCK) != 0);
    return flags >= 0 && (flags & O_NONBLOCK) != 0;
}

static uint64_t timeout_of(int fd, int name)
{
    struct timeval tv = {.tv_sec = 0};
    socklen_t bytes = sizeof(tv);
    return VIA_REAL(getsockopt)(fd, SOL_SOCKET, name, &tv, &bytes) != 0
               ? 0
               : (uint64_t)tv.tv_sec * VIA_SEC_NS + (uint64_t)tv.tv_usec * VIA_USEC_NS;
}

/* True if the program has set a socket buffer smaller than VIA_CONN_BUFFER_BYTES_MIN. SO_BUF_LOCK
 * tells which sizes the program has set; the kernel returns twice the value that was set
 * (socket(7)). */
static bool has_small_buffers(int fd)
{
    int locks = via_real_option(fd, SOL_SOCKET, SO_BUF_LOCK); /* 0 before Linux 5.14 */
    return ((locks & SOCK_SNDBUF_LOCK) != 0 &&
            via_real_option(fd, SOL_SOCKET, SO_SNDBUF) < 2 * VIA_CONN_BUFFER_BYTES_MIN) ||
           ((locks & SOCK_RCVBUF_LOCK) != 0 &&
            via_real_option(fd, SOL_SOCKET, SO_RCVBUF) < 2 * VIA_CONN_BUFFER_BYTES_MIN);
}

/* Sets the time-out unless another thread's setsockopt() has set one meanwhile. */
static void set_if_none(_Atomic uint64_t *timeout_ns, uint64_t value)
{
    uint64_t none = 0;
    atomic_compare_exchange_strong_explicit(timeout_ns, &none, value, memory_order_relaxed,
                                            memory_order_relaxed);
}

/* True if the socket has an option that pipes do not support, set before it was connected, or
 * inherited from its listener. */
static bool has_kernel_options(int fd)
{
    static const struct {
        int level, name, least;
    } options[] = {
        {SOL_SOCKET, SO_RCVLOWAT, 2}, {SOL_SOCKET, SO_OOBINLINE, 1}, {IPPROTO_TCP, TCP_INQ, 1}};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(options); i++) {
        if (via_real_option(fd, options[i].level, options[i].name) >= options[i].least) {
            return true;
        }
    }
    return via_conn_is_tx_stamping(via_real_option(fd, SOL_SOCKET, SO_TIMESTAMPING));
}

/* Time stamps of sent bytes come by the kernel's error queue. Until they are read poll() reports
 * POLLERR. */
bool via_conn_is_tx_stamping(int flags)
{
    const int tx = SOF_TIMESTAMPING_TX_HARDWARE | SOF_TIMESTAMPING_TX_SOFTWARE |
                   SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_ACK;
    return (flags & tx) != 0;
}

void via_conn_learn_stamps(struct via_op *op)
{
    static const int options[] = {SO_TIMESTAMP, SO_TIMESTAMPNS, TIMESTAMP_NEW, TIMESTAMPNS_NEW};
    const int rx = SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RX_SOFTWARE;
    bool stamps = (via_real_option(op->fd, SOL_SOCKET, SO_TIMESTAMPING) & rx) != 0;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(options) && !stamps; i++) {
        stamps = via_real_option(op->fd, SOL_SOCKET, options[i]) > 0;
    }
    atomic_store_explicit(&op->side->stamps, stamps, memory_order_relaxed);
}

void via_conn_learn_options_slowly(struct via_op *op)
{
    struct via_side *side = op->side;
    VIA_KEEP_ERRNO;
    set_if_none(&side->rcvtimeo_ns, timeout_of(op->fd, SO_RCVTIMEO));
    set_if_none(&side->sndtimeo_ns, timeout_of(op->fd, SO_SNDTIMEO));
    via_conn_learn_stamps(op);
    atomic_store_explicit(&side->options_known, true, memory_order_relaxed);
    int flags = VIA_REAL(fcntl)(op->fd, F_GETFL);
    if ((flags >= 0 && (flags & O_ASYNC) != 0) || has_small_buffers(op->fd) ||
        has_kernel_options(op->fd)) {
        via_conn_demote(op, VIA_REASON_OPTION); /* only the kernel sends SIGIO */
    }
}

/* Prepares a connection to another host of the fabric. */
static struct via_conn *prepare_fabric(int fd, const struct via_address *to, unsigned host)
{
    struct via_conn *conn = conn_new(true);
    if (conn == NULL) {
        return NULL;
    }
    if (via_fabric_prepare(conn, fd, to, host) == 0) {
        via_phase_apply(&conn->side->phase, VIA_EVENT_CONNECT);
    } else {
        via_conn_settle_plain(conn, VIA_REASON_FABRIC);
    }
    return conn;
}

/* Where the peer of a connection is, by its address. */
enum place {
    PLACE_FAR,     /* not on a host of the fabric */
    PLACE_HERE,    /* on this machine */
    PLACE_HOST,    /* on another host of the fabric */
    PLACE_NETWORK, /* on a host of the fabric that is reached over an ordinary network only: kernel
                      TCP is as fast there */
};

static enum place place_of(const struct via_address *address, unsigned *ret_host)
{
    bool pipes;
    if (via_directory_find_host(address, ret_host, &pipes)) {
        return pipes || via_policy.rules.network_links ? PLACE_HOST : PLACE_NETWORK;
    }
    return via_address_is_local(address) ? PLACE_HERE : PLACE_FAR;
}

/* The reason why a connection to this address can not be accelerated; NONE: it can. */
static enum via_reason find_refusal(int fd, const struct via_address *to, enum place place)
{
    if (!via_policy.on) {
        return via_policy.off_reason;
    }
    if (place == PLACE_FAR || place == PLACE_NETWORK) {
        return place == PLACE_FAR ? VIA_REASON_REMOTE : VIA_REASON_NETWORK;
    }
    if (!via_policy_is_allowed(&via_policy, to, to)) {
        return VIA_REASON_RULES;
    }
    if (via_fd_is_marked(fd, VIA_FD_IN_RING)) {
        return VIA_REASON_URING;
    }
    return via_ep_is_adoptable(fd) ? VIA_REASON_NONE : VIA_REASON_EPOLL;
}

struct via_conn *via_conn_prepare(int fd, const struct sockaddr *addr, socklen_t addr_bytes)
{
    VIA_CANCEL_NEVER;
    struct via_address to;
    if (via_policy.off_reason == VIA_REASON_SECCOMP || !via_address_read(addr, addr_bytes, &to) ||
        to.port == 0 || via_fd_peek(fd) != NULL || !is_tcp(fd)) {
        return NULL;
    }
    via_address_of_any(&to);
    unsigned host;
    enum place place = via_policy.on ? place_of(&to, &host) : PLACE_FAR;
    enum via_reason reason = find_refusal(fd, &to, place);
    if (reason != VIA_REASON_NONE) {
        via_board_refuse(fd, reason);
        return NULL;
    }
    if (place == PLACE_HOST) {
        return prepare_fabric(fd, &to, host);
    }
    struct via_conn *conn = conn_new(true);
    if (conn != NULL) {
        via_diag_mark(fd);
        via_phase_apply(&conn->side->phase, VIA_EVENT_CONNECT);
    }
    return conn;
}

/* Enters the descriptor fd into the table, in which it has no object yet. */
static bool enter_fd(struct via_conn *conn, int fd)
{
    if (!via_fd_set(fd, &conn->file)) {
        return false;
    }
    atomic_store_explicit(&conn->fd, fd, memory_order_relaxed);
    via_board_show(fd, via_pool_index(&pool, conn));
    return true;
}

/* Enters the connection's first descriptor, which make() has counted. False: the table has no place
 * for it, and the connection is freed. */
static bool enter_first_fd(struct via_conn *conn, int fd)
{
    via_lock_enter(); /* no signal handler forks between the count and the table */
    if (via_unlikely(conn->fds == 0)) {
        /* This is a child that a signal handler has forked during connect() or accept():
         * count_fds() has not counted this descriptor, which was not in the table yet. */
        conn->fds = 1;
        atomic_fetch_add_explicit(&conn->side->refs, 1, memory_order_relaxed);
    }
    bool entered = enter_fd(conn, fd);
    via_lock_leave();
    if (!entered) {
        via_file_put_slowly(&conn->file);
    }
    return entered;
}

/* The program has called dup() on the socket before it was connected: enters the copies, too. */
static void adopt_copies(struct via_conn *conn, int fd)
{
    uint64_t cookie = via_conn_cookie(fd);
    for (int copy = 0; cookie != 0 && (unsigned)copy < via_fds_count; copy++) {
        if (via_fd_is_marked(copy, VIA_FD_IS_COPIED) && via_fd_peek(copy) == NULL &&
            via_conn_cookie(copy) == cookie) {
            via_conn_dup(conn, copy);
            via_ep_adopt(conn, copy);
            if (copy <= STDERR_FILENO) {
                via_fd_demote(copy, VIA_REASON_STDIO);
            }
        }
    }
}

void via_conn_publish(struct via_conn *conn, int fd)
{
    if (!enter_first_fd(conn, fd)) {
        return;
    }
    via_ep_adopt(conn, fd);
    if (via_unlikely(via_fd_is_marked(fd, VIA_FD_IS_COPIED))) {
        adopt_copies(conn, fd);
    }
}

/* --- accepting ------------------------------------------------------------------------------- */

bool via_conn_read_tuple(int fd, struct via_tuple *ret_tuple)
{
    struct sockaddr_storage storage;
    struct sockaddr *addr = (struct sockaddr *)&storage;
    socklen_t bytes = sizeof(storage);
    if (getpeername(fd, addr, &bytes) != 0 || !via_address_read(addr, bytes, &ret_tuple->remote)) {
        return false;
    }
    bytes = sizeof(storage);
    return getsockname(fd, addr, &bytes) == 0 && via_address_read(addr, bytes, &ret_tuple->local);
}

/* Takes the note that a connector on another host has posted on this host's board; without a note
 * the connection is plain. */
static void take_note(struct via_conn *conn, int fd, unsigned host)
{
    struct via_tuple tuple;
    int rc = via_conn_read_tuple(fd, &tuple) ? via_fabric_accepted(conn, &tuple, host) : -ENOTCONN;
    if (rc == 0) {
        via_phase_apply(&conn->side->phase, VIA_EVENT_ACCEPT);
    } else {
        via_conn_settle_plain(conn, rc == -ENOENT ? VIA_REASON_PEER : VIA_REASON_FABRIC);
    }
}

/* True if the rules allow acceleration. Rules name ports of servers, so the local address is read
 * if there are such rules. */
static bool is_allowed(int fd, const struct via_address *peer)
{
    struct via_tuple tuple = {.remote = *peer};
    if (via_policy.rules.ports_count != 0 && !via_conn_read_tuple(fd, &tuple)) {
        return false;
    }
    return via_policy_is_allowed(&via_policy, &tuple.local, peer);
}

static void handle_accepted(int fd, const struct via_address *peer)
{
    unsigned host;
    enum place place = place_of(peer, &host);
    bool near = place == PLACE_HERE || place == PLACE_HOST;
    if (!near || !is_allowed(fd, peer)) {
        via_board_refuse(fd, near                     ? VIA_REASON_RULES
                             : place == PLACE_NETWORK ? VIA_REASON_NETWORK
                                                      : VIA_REASON_REMOTE);
        return;
    }
    struct via_conn *conn = conn_new(false);
    if (conn == NULL) {
        return;
    }
    if (place == PLACE_HOST) {
        take_note(conn, fd, host);
    } else {
        via_phase_apply(&conn->side->phase, VIA_EVENT_ACCEPT);
    }
    (void)enter_first_fd(conn, fd);
}

void via_conn_accepted(int fd, const struct sockaddr *peer, socklen_t peer_bytes)
{
    struct via_address address;
    VIA_KEEP_ERRNO;
    if (via_policy.on && via_address_read(peer, peer_bytes, &address)) {
        handle_accepted(fd, &address);
    }
}

/* --- descriptors ----------------------------------------------------------------------------- */

void via_conn_dup(struct via_conn *conn, int new_fd)
{
    atomic_fetch_add_explicit(&conn->side->refs, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&conn->fds, 1, memory_order_relaxed);
    if (!enter_fd(conn, new_fd)) {
        via_conn_closed(conn);
    }
    via_ep_unpark(conn);
}

/* --- fork ------------------------------------------------------------------------------------ */

/* Announces to each peer that several processes are about to hold this end (shared.h). */
void via_conn_fork_begin(void)
{
    via_op_each(via_shared_announce, NULL);
}

static uint32_t last_fork; /* with all_lock */
static __thread uint32_t own_fork __attribute__((tls_model("initial-exec")));

static void count_child(struct via_conn *conn)
{
    unsigned at = last_fork % VIA_CONN_FORKS;
    conn->side->ever_forked = true;
    atomic_store_explicit(&conn->side->forked, 1, memory_order_relaxed);
    conn->children[at].fork = last_fork;
    conn->children[at].fds = conn->fds;
    atomic_fetch_add_explicit(&conn->side->refs, conn->children[at].fds, memory_order_relaxed);
    /* Keeps a copy for the child: the parent may close the connection, and reuse its entry on the
     * board, before the child reads the entry. */
    conn->own_stats.reason = conn->stats->reason;
    conn->own_stats.accelerated = conn->stats->accelerated;
    conn->own_stats.demoted = conn->stats->demoted;
}

static void uncount_child(struct via_conn *conn)
{
    unsigned at = own_fork % VIA_CONN_FORKS;
    if (conn->children[at].fork == own_fork) {
        atomic_fetch_sub_explicit(&conn->side->refs, conn->children[at].fds, memory_order_acq_rel);
    }
}

static void begin_child(struct via_conn *conn)
{
    /* The child has no other threads, so no call holds the connection there: only the table does.
     */
    atomic_store_explicit(&conn->file.users, 1, memory_order_relaxed);
    atomic_store_explicit(&conn->fds, 0, memory_order_relaxed); /* count_fds() */
    place_stats(conn);
    *conn->stats = (struct via_stats_conn){.reason = conn->own_stats.reason,
                                           .accelerated = conn->own_stats.accelerated,
                                           .demoted = conn->own_stats.demoted};
}

void via_conn_fork_prepare(void)
{
    via_lock(&all_lock);
    own_fork = ++last_fork;
    visit_locked(count_child);
}

void via_conn_fork_parent(void)
{
    via_unlock(&all_lock);
}

void via_conn_fork_failed(void)
{
    VIA_KEEP_ERRNO;
    via_conn_each(uncount_child);
}

/* Counts the child's descriptors in its table: another thread of the parent may have closed some
 * since count_child(). The table matches the kernel's descriptors (via_fds_begin_change()). */
static void count_fds(void)
{
    unsigned top = via_fds_top();
    for (unsigned fd = 0; fd < top; fd++) {
        struct via_file *file = via_fd_peek((int)fd);
        if (file == NULL || file->kind != VIA_FILE_CONN) {
            continue;
        }
        struct via_conn *conn = via_container_of(file, struct via_conn, file);
        conn->fds++;
        via_board_show((int)fd, via_pool_index(&pool, conn));
    }
}

static void correct_count(struct via_conn *conn)
{
    uint32_t counted = conn->children[last_fork % VIA_CONN_FORKS].fds;
    atomic_fetch_add_explicit(&conn->side->refs, conn->fds - counted, memory_order_acq_rel);
}

void via_conn_fork_child(void)
{
    bool any = !via_list_is_empty(&all);
    via_board_forked(any);
    visit_locked(begin_child);
    if (any) {
        count_fds();
    }
    visit_locked(correct_count);
    via_unlock(&all_lock);
}

/* --- the kernel's counters ------------------------------------------------------------------- */

static int tcp_info(int fd, struct tcp_info *ret_info)
{
    socklen_t bytes = sizeof(*ret_info);
    memset(ret_info, 0, sizeof(*ret_info));
    if (VIA_REAL(getsockopt)(fd, IPPROTO_TCP, TCP_INFO, ret_info, &bytes) != 0) {
        return -errno;
    }
    /* tcpi_bytes_acked and tcpi_bytes_received exist since Linux 4.1. */
    return bytes < offsetof(struct tcp_info, tcpi_bytes_received) + 8 ? -ENOTSUP : 0;
}

/* The bytes of one direction that the kernel has moved, and those that it has queued. Reads the
 * first counter twice, because bytes may move from one counter to the other between two system
 * calls. 0 or a negative errno. */
static int read_counters(int fd, unsigned long queue, uint64_t *ret_moved, uint64_t *ret_queued)
{
    struct tcp_info before, after;
    int queued = 0;
    for (int tries = 0; tries < 16; tries++) {
        int rc = tcp_info(fd, &before);
        if (rc != 0 || VIA_REAL(ioctl)(fd, queue, &queued) != 0) {
            return rc != 0 ? rc : -errno;
        }
        if (tcp_info(fd, &after) == 0 &&
            (queue == SIOCOUTQ ? before.tcpi_bytes_acked == after.tcpi_bytes_acked
                               : before.tcpi_bytes_received == after.tcpi_bytes_received)) {
            *ret_moved = queue == SIOCOUTQ ? after.tcpi_bytes_acked : after.tcpi_bytes_received;
            *ret_queued = (uint64_t)queued;
            return 0;
        }
    }
    return -EAGAIN;
}

int via_kernel_sent(int fd, bool connector, uint64_t *ret_bytes)
{
    uint64_t acked, queued;
    int rc = read_counters(fd, SIOCOUTQ, &acked, &queued);
    /* The connector's SYN counts as one acknowledged byte. */
    if (rc != 0 || (connector && acked == 0)) {
        return rc != 0 ? rc : -ENOTCONN;
    }
    *ret_bytes = acked + queued - (connector ? 1 : 0);
    return 0;
}

int via_kernel_read(int fd, uint64_t sent, uint64_t *ret_bytes)
{
    uint64_t received, unread;
    int rc = read_counters(fd, SIOCINQ, &received, &unread);
    /* A FIN counts as one received byte, and comes after all that was sent. */
    if (rc != 0 || received > sent + 1) {
        return rc != 0 ? rc : -EPROTO;
    }
    *ret_bytes = via_min(received, sent) - unread;
    return 0;
}
