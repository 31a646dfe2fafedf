/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/client_auto.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/client_kept.h"
#include "host/client_sys.h"
#include "host/client_tcp.h"

/* The library opens a connection to a host after this number of consecutive puts to it, or of bytes
 * of such puts. After another kind of operation to that host, puts use the connection again only
 * after the same number. */
#define PLAIN_PUTS_MIN 64u
#define PLAIN_BYTES_MIN (1u << 20)
/* The change to the connection and back takes about the time that the connection saves with 512
 * short puts, or with 1 MiB. A stretch with less quadruples the number of puts that must precede
 * the next stretch, up to 16,384; a longer stretch resets that number. */
#define STRETCH_BYTES_MIN (1u << 20)
#define BYTES_OF_A_PUT 2048u /* for each put, added to its own bytes */
#define CAUTION_STEP 2u
#define CAUTION_MAX 8u
/* A put of up to this length is sent in pieces that are copied, so its call does not wait until the
 * host has applied it. The length from which the copy takes more time than that wait is not
 * measured. */
#define SPLIT_BYTES_MAX (512u << 10)
#define PIECE_BYTES_MAX (128u << 10)
_Static_assert(PIECE_BYTES_MAX <= VIA_KEPT_COPY_BYTES_MAX, "pieces are copied");
/* Longest time for which a put waits for earlier frames before it uses the connection. */
#define DRAIN_NS_MAX (10 * VIA_MSEC_NS)
/* Intervals: between attempts to open a connection; between polls of a wait; between runs of
 * via_client_auto_tend(). */
#define AGAIN_NS VIA_SEC_NS
#define RETRY_NS VIA_MSEC_NS
#define TEND_NS (50 * VIA_MSEC_NS)

struct via_client_auto_host {
    /* constant once set; reopened after its connection has ended */
    struct via_client_tcp *_Atomic tcp;
    _Atomic uint32_t plain_puts;
    _Atomic uint64_t plain_bytes;
    /* of puts over the connection since the last operation of another kind */
    _Atomic uint64_t stretch_bytes;
    /* the thresholds are PLAIN_PUTS_MIN << caution and PLAIN_BYTES_MIN << caution */
    _Atomic unsigned caution;
    _Atomic uint64_t refused_way; /* the state of the path in which no connection is possible */
    _Atomic uint64_t again_ns;
    _Atomic bool off;
};

struct via_client_auto {
    /* One thread at a time opens a connection. Its last store sets `opening` to false. */
    _Atomic bool opening;
    bool started;
    pthread_t thread;
    struct via_attach *attach;
    uint16_t host; /* to which that thread connects */
    uint64_t way;
    _Atomic uint64_t tended_ns;
    _Atomic bool dozes; /* the library's thread sleeps until a put pokes it */
    struct via_client_auto_host hosts[];
};

static struct via_client_auto *autos_of(const struct via_attach *attach)
{
    /* Pairs with the release in make_autos(). */
    return atomic_load_explicit(&attach->autos, memory_order_acquire);
}

static struct via_client_auto *make_autos(struct via_attach *attach)
{
    struct via_client_auto *expected = NULL;
    struct via_client_auto *made =
        calloc(1, sizeof(*made) + attach->hosts_max * sizeof(made->hosts[0]));
    if (made == NULL) {
        return NULL;
    }
    made->attach = attach;
    /* nothing but the first put over a connection may wake the library's thread */
    atomic_init(&made->dozes, true);
    if (!atomic_compare_exchange_strong_explicit(&attach->autos, &expected, made,
                                                 memory_order_release, memory_order_acquire)) {
        free(made);
        return expected;
    }
    return made;
}

static struct via_client_tcp *tcp_of(const struct via_client_auto_host *host)
{
    return atomic_load_explicit(&host->tcp, memory_order_acquire);
}

/* False: the host has applied all puts of the connection, or frames carry them. */
static bool has_kept(const struct via_client_tcp *tcp)
{
    return via_kept_count(tcp->kept) != 0;
}

static bool start_thread(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool started = pthread_create(thread, NULL, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return started;
}

/* --- the end of a connection ------------------------------------------------------------------ */

static void sleep_before_retry(void)
{
    struct timespec time = {.tv_nsec = RETRY_NS};
    (void)!syscall(SYS_ppoll, NULL, 0, &time, NULL, 8);
}

/* No route leads to the host, and only the host knows which puts it has applied. */
static bool is_cut_off(const struct via_client_tcp *tcp)
{
    return !via_status_is_reachable(via_client_status(tcp->attach, tcp->host));
}

static bool is_usable(const struct via_client_tcp *tcp)
{
    return !via_client_tcp_is_over(tcp) && via_client_tcp_has_way(tcp);
}

/* How long a call may wait while puts are kept. Frames may have to wait for room in a pipe, and the
 * request for the position may have to wait for a link. */
enum patience {
    NEVER_BLOCKS,
    WAITS_FOR_A_WAY_IN_USE, /* waits, but not for a host that is cut off */
    WAITS,
};

static bool is_over_patience(const struct via_client_tcp *tcp, enum patience patience)
{
    return (patience != WAITS && is_cut_off(tcp)) || via_client_tcp_is_time_over(tcp->attach);
}

/* Repeats the request for the position until the host answers how many bytes it has applied.
 * -EAGAIN: the host is cut off and the caller does not wait for a route; or the attachment is being
 * closed, and its host then does this work (attach_server_kept.c). -EHOSTUNREACH: no answer within
 * tcp_lost_ns_max. */
static int find_position(struct via_client_tcp *tcp, enum patience patience,
                         struct via_attach_position *ret_position)
{
    struct via_attach *attach = tcp->attach;
    uint64_t begin_ns = via_client_now_ns();
    for (;;) {
        if (is_over_patience(tcp, patience)) {
            return -EAGAIN;
        }
        int rc = via_client_tcp_request_position(tcp, ret_position);
        if (rc == 0 || rc == -ENOENT || rc == -ENOTCONN) {
            return rc;
        }
        if (via_client_now_ns() - begin_ns > attach->tcp_lost_ns_max) {
            return -EHOSTUNREACH;
        }
        sleep_before_retry();
    }
}

/* [tcp->lock] Keeps closed remotes until their last kept put is popped. Otherwise the end of a put
 * by frames would free them earlier. */
static void hold_remotes(struct via_client_tcp *tcp)
{
    struct via_kept *kept = tcp->kept;
    unsigned count = via_kept_count(kept);
    via_client_lock(tcp->attach);
    for (unsigned i = 0; i < count; i++) {
        via_kept_remote(kept, i)->held++;
    }
    via_client_unlock(tcp->attach);
}

/* [locked, tcp->lock] */
static void pop(struct via_client_tcp *tcp, struct via_remote *remote)
{
    /* Increment before the put leaves the list of kept puts: a quiet that then finds nothing kept,
     * but has not waited for the frames of this put, waits once more. */
    atomic_fetch_add_explicit(&tcp->attach->recoveries, 1, memory_order_relaxed);
    via_kept_pop(tcp->kept);
    via_client_remote_release(remote);
}

/* The host is lost: the kept puts fail, as puts by frames do. */
static void fail_kept(struct via_client_tcp *tcp, int status)
{
    struct via_attach *attach = tcp->attach;
    struct via_kept_put put;
    via_client_lock(attach);
    if (attach->async_status == 0) {
        attach->async_status = status;
        attach->async_host = tcp->host;
    }
    while (via_kept_first(tcp->kept, 0, &put)) {
        via_client_remote_fail(put.remote, status);
        pop(tcp, put.remote);
    }
    via_client_unlock(attach);
}

/* [tcp->lock, released meanwhile] Sends in frames what the host has not applied. rc: the result of
 * find_position(). */
static int hand_over_rest(struct via_client_tcp *tcp, int rc, const struct via_attach_position *end)
{
    struct via_attach *attach = tcp->attach;
    struct via_kept_put put;
    hold_remotes(tcp);
    while (rc == 0 && via_kept_first(tcp->kept, end->position, &put)) {
        if (put.bytes != 0) {
            pthread_mutex_unlock(&tcp->lock);
            rc = via_client_put_by_frames(put.remote, put.off, put.data, put.bytes, 0);
            pthread_mutex_lock(&tcp->lock);
        }
        if (rc == 0) {
            via_client_lock(attach);
            pop(tcp, put.remote);
            via_client_unlock(attach);
        }
    }
    if (rc != 0) {
        fail_kept(tcp, rc == -ENOENT ? -ECONNRESET : rc);
        rc = rc == -ENOTCONN ? rc : 0; /* a later put or quiet reports the failure */
    }
    return rc;
}

/* [tcp->lock] True if this process has not received an answer that reports the refusal. */
static bool is_news(const struct via_client_tcp *tcp, const struct via_attach_position *end)
{
    bool is_answered = end->answered_bytes != 0 && end->answered_bytes <= end->position;
    return end->refusal < 0 &&
           (!is_answered || end->position - end->answered_bytes > tcp->answered);
}

/* [tcp->lock, released meanwhile] Hands the kept puts of a connection that has ended over to
 * frames. One thread at a time. */
static int hand_over(struct via_client_tcp *tcp, enum patience patience)
{
    struct via_attach_position end = {0};
    tcp->hands_over = true;
    pthread_mutex_unlock(&tcp->lock);
    int rc = find_position(tcp, patience, &end);
    pthread_mutex_lock(&tcp->lock);
    if (is_news(tcp, &end)) {
        atomic_store_explicit(&tcp->refused, end.refusal, memory_order_relaxed);
    }
    if (rc != -EAGAIN) {
        tcp->holds = true;
        rc = hand_over_rest(tcp, rc, &end);
        tcp->holds = false;
    }
    tcp->hands_over = false;
    return rc;
}

static void hand_over_later(struct via_client_tcp *tcp);

/* [tcp->lock, released meanwhile] Ends the connection and hands its kept puts over to frames.
 * -EAGAIN: the connection still keeps its puts, because the caller does not wait. */
static int recover(struct via_client_tcp *tcp, enum patience patience)
{
    via_client_tcp_end(tcp, -ENOLINK);
    /* Another thread may hand the kept puts over meanwhile, and a third thread may connect
     * again. */
    while (has_kept(tcp) && via_client_tcp_is_over(tcp)) {
        if (patience == NEVER_BLOCKS) {
            hand_over_later(tcp);
            return -EAGAIN;
        }
        if (!tcp->hands_over) {
            return hand_over(tcp, patience);
        }
        if (is_over_patience(tcp, patience)) {
            return -EAGAIN;
        }
        pthread_mutex_unlock(&tcp->lock);
        sleep_before_retry();
        pthread_mutex_lock(&tcp->lock);
    }
    return 0;
}

static void *run_hand_over(void *argument)
{
    struct via_client_tcp *tcp = argument;
    pthread_mutex_lock(&tcp->lock);
    if (!is_usable(tcp)) {
        (void)recover(tcp, WAITS_FOR_A_WAY_IN_USE); /* a later put or quiet reports a failure */
    }
    tcp->helps = false;
    pthread_mutex_unlock(&tcp->lock);
    return NULL;
}

/* [tcp->lock] Hands over in a separate thread, because handing over may take long. */
static void hand_over_later(struct via_client_tcp *tcp)
{
    if (tcp->helps || tcp->hands_over || is_cut_off(tcp) ||
        atomic_load_explicit(&tcp->attach->closing, memory_order_relaxed)) {
        return;
    }
    if (tcp->has_helper) {
        pthread_join(tcp->helper, NULL); /* it has cleared `helps` as its last step */
    }
    tcp->helps = true;
    tcp->has_helper = start_thread(&tcp->helper, run_hand_over, tcp);
    tcp->helps = tcp->has_helper;
}

/* Called before the attachment closes. attach->closing prevents the start of another helper. */
static void join_helper(struct via_client_tcp *tcp)
{
    pthread_mutex_lock(&tcp->lock);
    bool has_helper = tcp->has_helper;
    tcp->has_helper = false;
    pthread_mutex_unlock(&tcp->lock);
    if (has_helper) {
        pthread_join(tcp->helper, NULL);
    }
}

/* [tcp->lock] Called after an attempt to use the connection, with its result. -ECONNRESET: another
 * thread has found that the connection had ended, and frames carry what it kept. Returns as
 * recover(). */
static int settle(struct via_client_tcp *tcp, int rc, enum patience patience)
{
    if (!is_usable(tcp)) {
        return recover(tcp, patience);
    }
    if (rc != 0 && rc != -ECONNRESET) {
        /* the next quiet reports it */
        atomic_store_explicit(&tcp->refused, rc, memory_order_relaxed);
    }
    return 0;
}

/* Waits until the host has applied all kept puts, or frames carry them. patience: not
 * NEVER_BLOCKS. */
static int wait_until_applied(struct via_client_tcp *tcp, enum patience patience)
{
    int rc = 0;
    if (has_kept(tcp)) {
        pthread_mutex_lock(&tcp->lock);
        rc = settle(tcp, has_kept(tcp) && is_usable(tcp) ? via_client_tcp_fence(tcp) : 0, patience);
        pthread_mutex_unlock(&tcp->lock);
    }
    return rc;
}

/* [tcp->lock] Takes received answers and requests the missing ones, without waiting. */
static void request_answers(struct via_client_tcp *tcp)
{
    if (is_usable(tcp)) {
        via_client_tcp_fence_soon(tcp);
    }
    if (!is_usable(tcp)) {
        (void)recover(tcp, NEVER_BLOCKS); /* a later put or quiet reports a failure */
    }
}

int via_client_auto_quiet(struct via_client_tcp *tcp, bool reports)
{
    int rc = wait_until_applied(tcp, WAITS);
    if (rc != 0 || !reports) {
        return rc;
    }
    int refusal = atomic_exchange_explicit(&tcp->refused, 0, memory_order_relaxed);
    return refusal == 0
               ? 0
               : via_client_error(refusal, "host %u, segment: a put since the last quiet: %s",
                                  tcp->host, strerror(-refusal));
}

/* An operation of another kind ends the stretch of puts over the connection, if there was one. */
static void end_stretch(struct via_client_auto_host *entry)
{
    uint64_t bytes = atomic_load_explicit(&entry->stretch_bytes, memory_order_relaxed);
    unsigned caution = atomic_load_explicit(&entry->caution, memory_order_relaxed) + CAUTION_STEP;
    if (bytes != 0) {
        atomic_store_explicit(&entry->caution,
                              bytes >= STRETCH_BYTES_MIN ? 0 : via_min(caution, CAUTION_MAX),
                              memory_order_relaxed);
        atomic_store_explicit(&entry->stretch_bytes, 0, memory_order_relaxed);
    }
}

/* Called before an operation of another kind is sent to the host. Returns the connection to the
 * host, or NULL. */
static struct via_client_tcp *find_left(struct via_attach *attach, unsigned host)
{
    struct via_client_auto *autos = autos_of(attach);
    if (autos == NULL) {
        return NULL;
    }
    struct via_client_auto_host *entry = &autos->hosts[host];
    atomic_store_explicit(&entry->plain_puts, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->plain_bytes, 0, memory_order_relaxed);
    end_stretch(entry);
    return tcp_of(entry);
}

int via_client_auto_leave_slow(struct via_attach *attach, unsigned host)
{
    struct via_client_tcp *tcp = find_left(attach, host);
    return tcp == NULL ? 0 : wait_until_applied(tcp, WAITS);
}

int via_client_auto_try_leave(struct via_attach *attach, unsigned host)
{
    struct via_client_tcp *tcp = find_left(attach, host);
    if (tcp == NULL || !has_kept(tcp)) {
        return 0;
    }
    if (pthread_mutex_trylock(&tcp->lock) == 0) {
        request_answers(tcp);
        pthread_mutex_unlock(&tcp->lock);
    }
    return has_kept(tcp) ? -EAGAIN : 0;
}

/* --- opening ---------------------------------------------------------------------------------- */

static void *run(void *argument)
{
    struct via_client_auto *autos = argument;
    struct via_client_auto_host *entry = &autos->hosts[autos->host];
    struct via_client_tcp *tcp = tcp_of(entry);
    int rc = via_client_tcp_dial_kept(autos->attach, autos->host, autos->way, &tcp);
    if (rc == 0) {
        atomic_store_explicit(&entry->tcp, tcp, memory_order_release);
    } else if (rc == -EXDEV || rc == -EHOSTDOWN || rc == -ENOSPC) {
        atomic_store_explicit(&entry->refused_way, autos->way, memory_order_relaxed);
    }
    atomic_store_explicit(&entry->again_ns, via_client_now_ns() + AGAIN_NS, memory_order_relaxed);
    /* Pairs with the acquire in open_soon(). */
    atomic_store_explicit(&autos->opening, false, memory_order_release);
    return NULL;
}

static bool start(struct via_client_auto *autos)
{
    if (autos->started) {
        pthread_join(autos->thread, NULL); /* it has cleared `opening` as its last step */
    }
    autos->started = start_thread(&autos->thread, run, autos);
    return autos->started;
}

/* Starts the thread that opens a connection. Does not wait. */
static void open_soon(struct via_client_auto *autos, uint16_t host)
{
    struct via_client_auto_host *entry = &autos->hosts[host];
    uint64_t way = via_client_tcp_way_to(autos->attach, host);
    bool opening = false;
    if (way == 0 || way == atomic_load_explicit(&entry->refused_way, memory_order_relaxed) ||
        via_client_now_ns() < atomic_load_explicit(&entry->again_ns, memory_order_relaxed) ||
        !atomic_compare_exchange_strong_explicit(&autos->opening, &opening, true,
                                                 memory_order_acquire, memory_order_relaxed)) {
        return;
    }
    autos->host = host;
    autos->way = way;
    if (atomic_load_explicit(&autos->attach->closing, memory_order_relaxed) || !start(autos)) {
        atomic_store_explicit(&autos->opening, false, memory_order_release);
    }
}

/* --- puts ------------------------------------------------------------------------------------- */

/* Counts a put. True if enough puts preceded it. */
static bool count_plain(struct via_client_auto_host *entry, size_t bytes)
{
    unsigned caution = atomic_load_explicit(&entry->caution, memory_order_relaxed);
    if (atomic_load_explicit(&entry->plain_puts, memory_order_relaxed) >= PLAIN_PUTS_MIN
                                                                              << caution ||
        atomic_load_explicit(&entry->plain_bytes, memory_order_relaxed) >= PLAIN_BYTES_MIN
                                                                               << caution) {
        return true;
    }
    atomic_fetch_add_explicit(&entry->plain_puts, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&entry->plain_bytes, bytes, memory_order_relaxed);
    return false;
}

static bool has_frames(const struct via_remote *remote)
{
    /* Pairs with the releases that decrement host_pending: at 0 all frames have arrived. */
    return atomic_load_explicit(&remote->attach->host_pending[remote->host],
                                memory_order_acquire) != 0;
}

static bool are_frames_over(struct via_attach *attach, void *ctx)
{
    (void)attach;
    return !has_frames(ctx);
}

/* Waits for earlier frames. False: they have not arrived within DRAIN_NS_MAX. */
static bool drain_frames(struct via_remote *remote)
{
    return !has_frames(remote) ||
           via_client_wait_remote(remote, are_frames_over, via_client_now_ns() + DRAIN_NS_MAX) == 0;
}

/* Wakes the library's thread, which finishes kept puts while no thread of the program makes a
 * call. */
static void wake_tender(const struct via_attach *attach)
{
    struct via_client_auto *autos = autos_of(attach);
    /* The kept put is stored before `dozes` is loaded; via_client_auto_tend() stores `dozes` before
     * it loads the number of kept puts. Pairs with the fence there. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&autos->dozes, memory_order_relaxed) &&
        atomic_exchange_explicit(&autos->dozes, false, memory_order_relaxed)) {
        via_client_serve_poke(attach->serve);
    }
}

/* [tcp->lock] If no route leads to the host and earlier puts must arrive first, keeps the put
 * without sending it, as a pipe keeps a put by frames. False: the put is not kept. */
static bool keep_only(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                      const unsigned char *src, size_t bytes)
{
    if (is_usable(tcp) || !has_kept(tcp) || !is_cut_off(tcp) || bytes > VIA_KEPT_COPY_BYTES_MAX ||
        !via_kept_has_room(tcp->kept, bytes)) {
        return false;
    }
    via_kept_add(tcp->kept, remote, UINT64_MAX, off, src, bytes);
    if (tcp->holds) {
        via_client_lock(tcp->attach);
        remote->held++; /* see hold_remotes() */
        via_client_unlock(tcp->attach);
    }
    return true;
}

/* 0: the connection carries the put, or keeps it. 1: frames have to carry it. */
static int put_piece(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                     const unsigned char *src, size_t bytes)
{
    bool kept = false;
    pthread_mutex_lock(&tcp->lock);
    int rc = 0;
    if (is_usable(tcp) && !has_frames(remote)) {
        rc = via_client_tcp_put_kept(tcp, remote, off, src, bytes, &kept);
    }
    rc = settle(tcp, rc, WAITS_FOR_A_WAY_IN_USE);
    if (rc == -EAGAIN) {
        kept = kept || keep_only(tcp, remote, off, src, bytes);
        rc = kept && bytes <= VIA_KEPT_COPY_BYTES_MAX ? 0 : settle(tcp, 0, WAITS);
    }
    pthread_mutex_unlock(&tcp->lock);
    wake_tender(remote->attach);
    return rc != 0 ? rc : kept ? 0 : 1;
}

static int put_whole(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                     const unsigned char *src, size_t bytes)
{
    bool is_split = bytes > VIA_KEPT_COPY_BYTES_MAX && bytes <= SPLIT_BYTES_MAX;
    size_t bytes_max = is_split ? PIECE_BYTES_MAX : bytes;
    int rc = 0;
    while (rc == 0 && bytes != 0) {
        size_t piece_bytes = via_min(bytes, bytes_max);
        rc = put_piece(tcp, remote, off, src, piece_bytes);
        if (rc == 0) {
            off += piece_bytes;
            src += piece_bytes;
            bytes -= piece_bytes;
        }
    }
    if (rc == 1) {
        rc = via_client_auto_leave(remote->attach, remote->host);
        rc = rc == 0 ? via_client_put_by_frames(remote, off, src, bytes, 0) : rc;
    }
    return rc;
}

/* Sends the last aligned 8 bytes as a put of their own after the other bytes, so that the host
 * stores them as a whole. */
static int put_last_word(struct via_client_tcp *tcp, struct via_remote *remote, uint64_t off,
                         const unsigned char *src, size_t bytes)
{
    size_t end = (size_t)(via_align_down(off + bytes, 8) - off);
    if (bytes <= 8 || end < 8 || end > bytes) {
        return put_whole(tcp, remote, off, src, bytes);
    }
    int rc = end == 8 ? 0 : put_whole(tcp, remote, off, src, end - 8);
    if (rc == 0 && end != bytes) {
        rc = put_whole(tcp, remote, off + end, src + end, bytes - end);
    }
    return rc == 0 ? put_whole(tcp, remote, off + end - 8, src + end - 8, 8) : rc;
}

int via_client_auto_put(struct via_remote *remote, uint64_t off, const void *src, size_t bytes,
                        unsigned flags, bool *ret_end)
{
    struct via_attach *attach = remote->attach;
    struct via_client_auto *autos = autos_of(attach);
    *ret_end = false;
    if (autos == NULL) {
        bool wants = !atomic_load_explicit(&attach->auto_off, memory_order_relaxed) &&
                     via_client_tcp_way_to(attach, remote->host) != 0;
        autos = wants ? make_autos(attach) : NULL;
        if (autos == NULL) {
            return 0;
        }
    }
    struct via_client_auto_host *entry = &autos->hosts[remote->host];
    struct via_client_tcp *tcp = tcp_of(entry);
    bool is_plain = bytes != 0 && (flags & ~VIADUCT_PUT_LAST_WORD) == 0 && !remote->alone &&
                    !atomic_load_explicit(&entry->off, memory_order_relaxed) &&
                    !atomic_load_explicit(&attach->auto_off, memory_order_relaxed);
    if (!is_plain) {
        return via_client_auto_leave(attach, remote->host);
    }
    if (!count_plain(entry, bytes)) {
        /* Another thread may have reset the count since this thread put over the connection. Frames
         * carry this put, so those puts must be applied first. */
        return tcp == NULL ? 0 : wait_until_applied(tcp, WAITS);
    }
    if (tcp == NULL || (via_client_tcp_is_over(tcp) && !has_kept(tcp))) {
        open_soon(autos, remote->host);
        return 0;
    }
    /* No locked instruction: concurrent puts of several threads may lose a part of this count. */
    uint64_t stretch_bytes = atomic_load_explicit(&entry->stretch_bytes, memory_order_relaxed);
    atomic_store_explicit(&entry->stretch_bytes, stretch_bytes + bytes + BYTES_OF_A_PUT,
                          memory_order_relaxed);
    if (!via_client_tcp_is_over(tcp) && !drain_frames(remote)) {
        return via_client_auto_leave(attach, remote->host);
    }
    int rc = (flags & VIADUCT_PUT_LAST_WORD) != 0 ? put_last_word(tcp, remote, off, src, bytes)
                                                  : put_whole(tcp, remote, off, src, bytes);
    *ret_end = rc == 0;
    return rc;
}

/* --- the rest of the library ------------------------------------------------------------------ */

unsigned via_client_auto_pending(struct via_remote *remote)
{
    struct via_client_auto *autos = autos_of(remote->attach);
    struct via_client_tcp *tcp = autos != NULL ? tcp_of(&autos->hosts[remote->host]) : NULL;
    struct via_kept *kept = tcp != NULL ? tcp->kept : NULL;
    unsigned pending = 0;
    if (kept == NULL || !has_kept(tcp)) {
        return 0;
    }
    if (pthread_mutex_trylock(&tcp->lock) != 0) {
        /* another thread uses the connection: this is an upper bound */
        return via_kept_count(kept);
    }
    request_answers(tcp);
    for (unsigned i = 0; i < via_kept_count(kept); i++) {
        pending += via_kept_remote(kept, i) == remote ? 1 : 0;
    }
    pthread_mutex_unlock(&tcp->lock);
    return pending;
}

bool via_client_auto_close_remote(struct via_remote *remote)
{
    struct via_client_auto *autos = autos_of(remote->attach);
    struct via_client_tcp *tcp = autos != NULL ? tcp_of(&autos->hosts[remote->host]) : NULL;
    if (tcp == NULL || remote->attach->pid != getpid() || !has_kept(tcp)) {
        return true;
    }
    /* quiet reports a failure. */
    return wait_until_applied(tcp, WAITS_FOR_A_WAY_IN_USE) != -EAGAIN ||
           via_client_auto_pending(remote) == 0;
}

void via_client_auto_off(struct via_attach *attach)
{
    struct via_client_auto *autos = autos_of(attach);
    atomic_store_explicit(&attach->auto_off, true, memory_order_relaxed);
    for (unsigned host = 0; autos != NULL && host < attach->hosts_max; host++) {
        if (tcp_of(&autos->hosts[host]) != NULL) {
            (void)!via_client_auto_leave(attach, host); /* a later put or quiet reports a failure */
        }
    }
}

int via_client_auto_give_up(struct via_attach *attach, unsigned host)
{
    if (autos_of(attach) == NULL && make_autos(attach) == NULL) {
        return -ENOMEM;
    }
    atomic_store_explicit(&autos_of(attach)->hosts[host].off, true, memory_order_relaxed);
    return via_client_auto_leave(attach, host);
}

int via_client_auto_refusal(const struct via_attach *attach)
{
    const struct via_client_auto *autos = autos_of(attach);
    for (unsigned host = 0; autos != NULL && host < attach->hosts_max; host++) {
        const struct via_client_tcp *tcp = tcp_of(&autos->hosts[host]);
        int rc = tcp != NULL ? atomic_load_explicit(&tcp->refused, memory_order_relaxed) : 0;
        if (rc != 0) {
            return via_client_error(rc, "host %u, segment: a put since the last quiet: %s", host,
                                    strerror(-rc));
        }
    }
    return 0;
}

/* [tcp->lock] Requests the acknowledgement of all kept puts, unless an answer or a gathered request
 * is under way. Does not wait. */
static void request_fence_soon(struct via_client_tcp *tcp)
{
    if (has_kept(tcp) && atomic_load_explicit(&tcp->expected_count, memory_order_relaxed) == 0 &&
        !via_client_tcp_is_held_back(tcp)) {
        via_client_tcp_fence_soon(tcp);
    }
}

/* True: some puts are still kept. */
static bool tend(struct via_client_auto *autos)
{
    bool any = false;
    for (unsigned host = 0; host < autos->attach->hosts_max; host++) {
        struct via_client_tcp *tcp = tcp_of(&autos->hosts[host]);
        if (tcp == NULL || !has_kept(tcp)) {
            continue;
        }
        if (pthread_mutex_trylock(&tcp->lock) == 0) {
            via_client_tcp_take(tcp);
            if (is_usable(tcp)) {
                request_fence_soon(tcp);
            }
            if (!is_usable(tcp)) {
                (void)recover(tcp, NEVER_BLOCKS); /* a later put or quiet reports a failure */
            }
            pthread_mutex_unlock(&tcp->lock);
        }
        any = any || has_kept(tcp);
    }
    return any;
}

bool via_client_auto_tend(struct via_attach *attach)
{
    struct via_client_auto *autos = autos_of(attach);
    uint64_t now_ns = autos != NULL ? via_client_now_ns() : 0;
    if (autos == NULL) {
        return false;
    }
    if (now_ns - atomic_load_explicit(&autos->tended_ns, memory_order_relaxed) < TEND_NS) {
        return true;
    }
    atomic_store_explicit(&autos->tended_ns, now_ns, memory_order_relaxed);
    if (tend(autos)) {
        return true;
    }
    atomic_store_explicit(&autos->dozes, true, memory_order_relaxed);
    /* Pairs with the fence in wake_tender(). */
    atomic_thread_fence(memory_order_seq_cst);
    return tend(autos);
}

void via_client_auto_close(struct via_attach *attach)
{
    struct via_client_auto *autos = autos_of(attach);
    bool own = attach->pid == getpid();
    if (autos == NULL || !own) {
        return;
    }
    /* The thread that opens a connection checks this in each of its waits. */
    atomic_store_explicit(&attach->closing, true, memory_order_relaxed);
    if (autos->started) {
        pthread_join(autos->thread, NULL);
        autos->started = false;
    }
    atomic_store_explicit(&attach->leave_deadline_ns, via_client_now_ns() + VIA_SEC_NS,
                          memory_order_relaxed);
    via_client_auto_off(attach);
    for (unsigned host = 0; host < attach->hosts_max; host++) {
        if (tcp_of(&autos->hosts[host]) != NULL) {
            join_helper(tcp_of(&autos->hosts[host]));
        }
    }
}
