/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/conn/steward.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "sockets/conn/demote.h"
#include "sockets/conn/quiet.h"
#include "sockets/conn/shared.h"
#include "sockets/fabric/fabric.h"
#include "sockets/hooks/hooks.h"
#include "sockets/io/io.h"
#include "sockets/io/io_internal.h"
#include "sockets/io/wait.h"
#include "sockets/process/lock.h"
#include "sockets/process/real.h"

/* Time until the next attempt if the kernel had no room. */
#define PENDING_POLL_NS (10 * VIA_MSEC_NS)
/* Peers on other hosts can not call a process, so it checks this often. */
#define FABRIC_POLL_NS (100 * VIA_MSEC_NS)
/* How often the steward checks whether it is the last thread: it must then end, so that the process
 * ends. */
#define LAST_POLL_NS VIA_SEC_NS

/* How long to wait for frames to arrive, from when there is a path. */
#define PARTING_NS_MAX (4 * VIA_SEC_NS)

/* When the process exits, another thread may still be using a kept connection: how often to check,
 * and how many times. */
#define END_POLL_NS VIA_MSEC_NS
#define END_POLLS 100u

#define STACK_BYTES (256u * 1024)
#define KEPT_MAX 256u

_Atomic bool via_steward_had_pipes;
_Atomic bool via_steward_runs;
_Atomic bool via_steward_is_due;

/* This process may not call pthread_create(): see steward.h. */
static bool is_forbidden;

/* At the last check bytes had to be resent, and could not be. */
static _Atomic bool pending;

/* "/proc", kept open: it may not be visible any more after chroot(). Children use it, too. */
static _Atomic int proc_fd = -1;
_Atomic bool via_steward_is_prepared;

/* Connections that the program has closed or shut down while bytes had to be resent, or frames were
 * under way. */
static struct via_mutex lock = VIA_MUTEX_INIT(VIA_RANK_STEWARD);
static struct kept {
    struct via_conn *conn; /* held; NULL: the entry is free */
    _Atomic int fd;
    uint64_t end_ns; /* do not wait longer for frames to arrive */
    bool shuts;      /* shut down, and not closed: io_shut.c */
    bool busy;       /* a thread is working on this entry */
} kept[KEPT_MAX];
static _Atomic unsigned kept_count;

/* --- checking -------------------------------------------------------------------------------- */

/* Quick check without the token: true if the peer has left the pipes, or is about to, and this end
 * has work to do for that. */
static bool is_called(const struct via_conn *conn)
{
    return via_conn_has_demotion_request(conn) &&
           via_conn_is_in(conn, VIA_PHASES_MAY_FOLLOW | VIA_PHASES_REPLAY);
}

/* Handles a peer's call. A thread that sleeps for the connection watches only the pipe, so it must
 * wake and check again. */
static void answer_call(struct via_op *op)
{
    via_conn_follow_demotion(op);
    via_io_update_registrations(op);
    int bell = atomic_load_explicit(&op->conn->bell, memory_order_relaxed);
    if (bell >= 0) {
        via_sock_bell_ring((unsigned)bell);
    }
}

static bool serve(struct via_op *op, const void *unused)
{
    bool called = is_called(op->conn);
    (void)unused;
    if (via_unlikely(called)) {
        answer_call(op);
        called = is_called(op->conn);
    }
    via_shared_note(op->conn);
    return called;
}

/* With the tx token: continues the closing or shutdown of a connection. 0, -EAGAIN, or
 * -ETIMEDOUT. */
static int continue_closing(struct kept *entry, int fd)
{
    struct via_conn *conn = entry->conn;
    bool done = entry->shuts
                    ? conn->parting != VIA_PARTING_NOT || via_io_continue_shutdown(conn, fd)
                    : via_conn_continue_parting(conn, fd);
    uint64_t now = via_os_now_ns();
    if (conn->carrier->is_cut_off(conn)) {
        entry->end_ns = now + PARTING_NS_MAX;
    }
    return done ? 0 : now < entry->end_ns ? -EAGAIN : -ETIMEDOUT;
}

/* Makes one step for a claimed entry. 0: all bytes are resent, or can not be any more; or
 * -EAGAIN. */
static int send_kept(struct kept *entry, uint64_t patience_ns)
{
    struct via_conn *conn = entry->conn;
    struct via_op op = via_conn_op(conn, atomic_load_explicit(&entry->fd, memory_order_relaxed));
    if (via_tx_take(&op) != 0) {
        return -EAGAIN;
    }
    bool again = conn->parting == VIA_PARTING_NOT &&
                 (!entry->shuts || via_side_is_in(conn->side, VIA_PHASES_REPLAY));
    int rc = again ? via_conn_replay_all(conn, op.fd, patience_ns) : 0;
    if (rc != -EAGAIN && (entry->shuts || conn->parting != VIA_PARTING_NOT)) {
        rc = continue_closing(entry, op.fd);
        if (rc == -ETIMEDOUT && entry->shuts) {
            via_io_shut_now(conn, op.fd);
        }
    }
    via_tx_give(&op);
    return rc == -EAGAIN ? rc : 0;
}

/* Claims an entry for this thread, so that no thread waits for a token while it holds the lock.
 * False: the entry is free, or (*ret_left) another thread is working on it. */
static bool claim(struct kept *entry, bool *ret_left)
{
    if (!via_try_lock(&lock)) {
        *ret_left = true;
        return false;
    }
    bool claimed = entry->conn != NULL && !entry->busy;
    *ret_left |= entry->conn != NULL && entry->busy;
    entry->busy |= claimed;
    via_unlock(&lock);
    return claimed;
}

/* Ends the claim; done: frees the entry. */
static void unclaim(struct kept *entry, bool done)
{
    struct via_conn *conn = entry->conn;
    if (done) {
        via_hidden_close(&entry->fd);
    }
    via_lock(&lock);
    entry->busy = false;
    if (done) {
        entry->conn = NULL;
        atomic_fetch_sub_explicit(&kept_count, 1, memory_order_relaxed);
    }
    via_unlock(&lock);
    if (done) {
        via_file_put_slowly(&conn->file);
    }
}

static bool retry_kept(void)
{
    bool left = false;
    for (unsigned i = 0; i < KEPT_MAX; i++) {
        if (claim(&kept[i], &left)) {
            bool done = send_kept(&kept[i], 0) == 0;
            left |= !done;
            unclaim(&kept[i], done);
        }
    }
    return left;
}

void via_steward_serve_all(void)
{
    VIA_KEEP_ERRNO;
    bool left = via_op_each(serve, NULL) != 0;
    if (atomic_load_explicit(&kept_count, memory_order_relaxed) != 0) {
        left |= retry_kept();
    }
    atomic_store_explicit(&pending, left, memory_order_relaxed);
    if (via_unlikely(atomic_load_explicit(&via_steward_is_due, memory_order_relaxed))) {
        via_steward_start_slowly();
    }
}

void via_steward_take_calls(void)
{
    bool own = via_sock_bell_calls_take();
    via_quiet_check();
    if (!own) {
        via_steward_serve_all();
    }
}

uint64_t via_steward_sleep_ns_max(void)
{
    return atomic_load_explicit(&pending, memory_order_relaxed) ? PENDING_POLL_NS
           : via_fabric_is_attached()                           ? FABRIC_POLL_NS
                                                                : VIA_NEVER_NS;
}

/* --- threads that sleep elsewhere ------------------------------------------------------------ */

int via_steward_sleep(struct pollfd *fds, unsigned count, uint64_t deadline_ns,
                      const sigset_t *mask)
{
    int n;
    do {
        uint64_t most_ns = via_steward_sleep_ns_max();
        uint64_t until_ns = deadline_ns;
        if (most_ns != VIA_NEVER_NS) {
            until_ns = via_min(until_ns, via_os_now_ns() + most_ns);
        }
        n = via_sleep(fds, count, 0, until_ns, mask);
        if (n == 0 && most_ns != VIA_NEVER_NS) {
            via_steward_serve_all();
        }
    } while (n == 0 && (deadline_ns == VIA_NEVER_NS || via_os_now_ns() < deadline_ns));
    return n;
}

/* --- the thread ------------------------------------------------------------------------------ */

/* True if the main thread has ended: it stays as a zombie until the last thread ends. In
 * /proc/self/stat the state follows the name, which may contain any characters (proc(5)). */
static bool has_main_ended(void)
{
    char text[256];
    int fd = openat(atomic_load_explicit(&proc_fd, memory_order_relaxed), "self/stat",
                    O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? VIA_REAL(read)(fd, text, sizeof(text) - 1) : 0;
    if (fd >= 0) {
        VIA_REAL(close)(fd);
    }
    text[n > 0 ? n : 0] = 0;
    const char *name_end = strrchr(text, ')');
    return name_end != NULL && name_end[1] == ' ' && name_end[2] == 'Z';
}

/* The link count of /proc/self/task: two of its own, and one for each thread's folder. */
#define LINKS_OF_TWO_THREADS 4

static bool is_last_thread(void)
{
    struct stat stat_of;
    int proc = atomic_load_explicit(&proc_fd, memory_order_relaxed);
    return fstatat(proc, "self/task", &stat_of, 0) == 0 &&
           stat_of.st_nlink <= LINKS_OF_TWO_THREADS && has_main_ended();
}

void via_steward_prepare_slowly(void)
{
    VIA_KEEP_ERRNO;
    if (!atomic_exchange_explicit(&via_steward_is_prepared, true, memory_order_relaxed)) {
        int fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0) {
            via_hidden_new(fd, &proc_fd);
        }
    }
}

/* How long the steward sleeps if poll() refuses its descriptors (RLIMIT_NOFILE). */
#define BLIND_NS (10 * VIA_MSEC_NS)

static void *run(void *unused)
{
    bool checks = true;
    while (!is_last_thread()) {
        struct pollfd calls = {.fd = via_sock_bell_calls(), .events = POLLIN};
        struct timespec storage;
        if (checks) {
            via_steward_serve_all();
        }
        uint64_t most_ns = via_steward_sleep_ns_max();
        uint64_t until_ns = via_os_now_ns() + via_min(most_ns, LAST_POLL_NS);
        int n = VIA_REAL(ppoll)(&calls, 1, via_os_time_left(until_ns, &storage), NULL);
        if (via_unlikely(n < 0)) { /* EINVAL: RLIMIT_NOFILE allows fewer entries */
            via_os_pause(BLIND_NS);
        }
        checks = n != 0 || most_ns != VIA_NEVER_NS;
        if (n > 0) {
            checks = !via_sock_bell_calls_take() || most_ns != VIA_NEVER_NS;
            via_quiet_check();
        }
    }
    return unused;
}

static bool start(size_t stack_bytes)
{
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (stack_bytes != 0) {
        pthread_attr_setstacksize(&attr, stack_bytes);
    }
    bool started = pthread_create(&thread, &attr, run, NULL) == 0;
    pthread_attr_destroy(&attr);
    return started;
}

void via_steward_start_slowly(void)
{
    VIA_KEEP_ERRNO;
    sigset_t all;
    sigset_t before;
    if (is_forbidden || via_hooks_is_guest()) {
        return;
    }
    bool handled = via_token_is_in_handler();
    atomic_store_explicit(&via_steward_is_due, handled, memory_order_relaxed);
    if (handled || atomic_exchange_explicit(&via_steward_runs, true, memory_order_relaxed)) {
        return;
    }
    sigfillset(&all);
    /* signals must be delivered to the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (via_sock_bell_calls() >= 0 && !start(STACK_BYTES)) {
        start(0); /* with the default stack: thread-local storage may need more */
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void via_steward_forbid(void)
{
    is_forbidden = true;
}

/* --- connections that were closed ------------------------------------------------------------ */

/* [locked] */
static bool keep_entry(struct kept *entry, struct via_conn *conn, int fd)
{
    int copy = VIA_REAL(fcntl)(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0 || via_hidden_new(copy, &entry->fd) != 0) {
        return false;
    }
    atomic_fetch_add_explicit(&conn->file.users, 1, memory_order_relaxed);
    entry->conn = conn;
    conn->kept = true;
    entry->shuts = conn->side->shutting != 0 && conn->parting == VIA_PARTING_NOT;
    entry->busy = false;
    entry->end_ns = via_os_now_ns() + PARTING_NS_MAX;
    atomic_fetch_add_explicit(&kept_count, 1, memory_order_relaxed);
    atomic_store_explicit(&pending, true, memory_order_relaxed);
    return true;
}

bool via_steward_keep_conn(struct via_conn *conn, int fd)
{
    bool done = false;
    bool tried = false;
    via_lock(&lock);
    for (unsigned i = 0; i < KEPT_MAX && !tried; i++) {
        if (kept[i].conn == NULL) {
            tried = true;
            done = keep_entry(&kept[i], conn, fd);
        }
    }
    via_unlock(&lock);
    return done;
}

/* Called when the process exits: ends the entry's connection. Puts to a host that is cut off are
 * left to the daemon. False: bytes or puts were left. */
static bool end_kept(struct kept *entry)
{
    struct via_conn *conn = entry->conn;
    int fd = atomic_load_explicit(&entry->fd, memory_order_relaxed);
    while (send_kept(entry, VIA_REPLAY_EXIT_NS) != 0) {
        if (via_side_is_in(conn->side, VIA_PHASES_REPLAY) || via_conn_is_local(conn)) {
            via_conn_reset(fd);
            return false;
        }
        if (conn->carrier->is_cut_off(conn)) {
            via_io_shut_now(conn, fd);
            return false;
        }
        via_os_pause(END_POLL_NS);
    }
    return true;
}

/* Claims the entry; waits for up to END_POLLS checks if another thread is using it. */
static bool claim_soon(struct kept *entry)
{
    bool left = true;
    bool claimed = false;
    for (unsigned tries = 0; tries < END_POLLS && left && !claimed; tries++) {
        left = false;
        claimed = claim(entry, &left);
        if (left) {
            via_os_pause(END_POLL_NS);
        }
    }
    return claimed;
}

void via_steward_end(void)
{
    if (atomic_load_explicit(&kept_count, memory_order_relaxed) == 0) {
        return;
    }
    for (unsigned i = 0; i < KEPT_MAX; i++) {
        if (claim_soon(&kept[i])) {
            unclaim(&kept[i], end_kept(&kept[i]));
        }
    }
}

void via_steward_forked(void)
{
    via_lock_reset(&lock);
    atomic_store_explicit(&via_steward_runs, false, memory_order_relaxed);
    atomic_store_explicit(&via_steward_is_due, false, memory_order_relaxed);
    for (unsigned i = 0; i < KEPT_MAX; i++) {
        if (kept[i].conn != NULL) { /* the parent handles this connection */
            struct via_conn *conn = kept[i].conn;
            kept[i].conn = NULL;
            via_hidden_close(&kept[i].fd);
            via_file_put_slowly(&conn->file);
        }
    }
    atomic_store_explicit(&kept_count, 0, memory_order_relaxed);
}
