/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Receives replies and messages of the host, and waits for them.
 *
 * The library never drains the bell (an eventfd), because the program may watch it, too. So the
 * private epoll set watches the bell edge-triggered: each ring of the host is an event. One thread
 * at a time, the leader, spins or sleeps on that set; the other threads wait on `turn` until the
 * leader has woken. While the leader sleeps no other thread takes replies, because the leader would
 * not notice that its own reply was taken. A thread that finds replies then wakes the leader.
 */
#include "host/client_auto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mutant.h"
#include "base/pause.h"
#include "host/client_sys.h"
#include "port/bell.h"

#define SLEEP_NS_MAX VIA_SEC_NS
#define DEATH_POLL_NS (4 * VIA_MSEC_NS)

uint64_t via_client_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

void via_client_lock(struct via_attach *attach)
{
    if (pthread_mutex_trylock(&attach->lock) == 0) {
        return;
    }
    atomic_fetch_add_explicit(&attach->lockers, 1, memory_order_relaxed);
    pthread_mutex_lock(&attach->lock);
    atomic_fetch_sub_explicit(&attach->lockers, 1, memory_order_relaxed);
}

void via_client_unlock(struct via_attach *attach)
{
    pthread_mutex_unlock(&attach->lock);
}

void via_client_ring(struct via_client_channel *channel)
{
    if (via_pipe_take_reader_ring(&channel->writer)) {
        via_bell_ring(channel->bell);
    }
}

void via_client_die(struct via_attach *attach)
{
    atomic_store_explicit(&attach->dead, true, memory_order_relaxed);
    if (attach->asleep) {
        via_sys_bell_ring(attach->nudge_fd);
    }
    pthread_cond_broadcast(&attach->turn);
}

/* --- receiving -------------------------------------------------------------------------------- */

/* Finds the payload of a record; *ret_data is its address. The length is at most that of the
 * record. */
static size_t payload(const struct via_pipe_record *record, const struct via_reply *reply,
                      const void **ret_data)
{
    if (record->body_bytes != 0) {
        *ret_data = record->body;
        return record->body_bytes;
    }
    *ret_data = reply->data;
    return via_min((size_t)reply->inline_bytes, sizeof(reply->data));
}

/* False: there is no room for the message. */
static bool keep_message(struct via_attach *attach, const struct via_reply *reply, const void *data,
                         size_t bytes)
{
    if (attach->messages_bytes >= attach->inbox_bytes_max) {
        return false;
    }
    struct via_client_message *message = malloc(sizeof(*message) + bytes);
    if (message == NULL) {
        return false;
    }
    message->info = (struct via_message_info){
        .source_host = reply->source_host,
        .source_endpoint = reply->source_endpoint,
        .endpoint = reply->endpoint,
        .bytes = (uint32_t)bytes,
    };
    memcpy(message->data, data, bytes);
    via_list_push_back(&attach->messages, &message->link);
    attach->messages_bytes += sizeof(*message) + bytes;
    return true;
}

/* 1: took a record. 0: there is none, or it has to stay. -EPROTO. */
static int take_one(struct via_attach *attach, struct via_client_channel *channel)
{
    struct via_pipe_record record;
    int rc = via_pipe_peek(&channel->reader, &record);
    if (rc <= 0) {
        return rc;
    }
    struct via_reply reply;
    memcpy(&reply, record.head, sizeof(reply));
    const void *data;
    size_t bytes = payload(&record, &reply, &data);
    if (reply.kind == VIA_REPLY_MESSAGE) {
        if (!keep_message(attach, &reply, data, bytes)) {
            channel->stuck_ns = channel->stuck_ns != 0 ? channel->stuck_ns : via_client_now_ns();
            return 0;
        }
        channel->stuck_ns = 0;
    }
    if (reply.kind == VIA_REPLY_COMPLETE || reply.kind == VIA_REPLY_DATA) {
        via_client_command_end(attach, &reply, data, bytes);
    }
    via_pipe_advance(&channel->reader, &record);
    via_pipe_release(&channel->reader, 1);
    return 1;
}

static unsigned take_channel(struct via_attach *attach, struct via_client_channel *channel)
{
    unsigned taken = 0;
    int rc = 0;
    while (taken < channel->reader.geometry.slots_count) {
        rc = take_one(attach, channel);
        if (rc <= 0) {
            break;
        }
        taken++;
    }
    if (rc < 0) {
        via_client_die(attach);
    }
    if (taken != 0 && via_pipe_take_writer_ring(&channel->reader)) {
        via_bell_ring(channel->bell);
    }
    return taken;
}

unsigned via_client_take(struct via_attach *attach)
{
    unsigned taken = 0;
    for (unsigned i = 0; i < attach->channels_count; i++) {
        taken += take_channel(attach, &attach->channels[i]);
    }
    if (attach->socket_ready) {
        taken += via_client_take_answers(attach);
    }
    return taken;
}

/* True if replies can be taken. */
static bool has_replies(const struct via_attach *attach)
{
    for (unsigned i = 0; i < attach->channels_count; i++) {
        const struct via_client_channel *channel = &attach->channels[i];
        if (channel->stuck_ns == 0 && via_pipe_is_ready(&channel->reader)) {
            return true;
        }
    }
    return false;
}

/* Requests a ring from the host: for replies, and for room in pipes for which a thread waits. */
static void arm(struct via_attach *attach)
{
    for (unsigned i = 0; i < attach->channels_count; i++) {
        struct via_client_channel *channel = &attach->channels[i];
        via_pipe_arm(&channel->reader);
        /* Arming returns credits. The host may have begun to wait for credits after the last check
         * for its request. */
        if (!VIA_MUTANT(CLIENT_NO_WANT) && via_pipe_take_writer_ring(&channel->reader)) {
            via_bell_ring(channel->bell);
        }
        if (channel->room_waiters != 0) {
            via_pipe_request_room(&channel->writer);
        }
    }
}

/* --- waiting -----------------------------------------------------------------------------------*/

/* True if a pipe or the socket may have received something. Ends early when another thread waits
 * for the lock, which this thread holds. */
static bool spin(struct via_attach *attach, const struct via_client_wait *wait, uint64_t start_ns)
{
    uint64_t end_ns = start_ns + attach->spin.budget_ns;
    if (attach->spin.budget_ns == 0) {
        return false;
    }
    do {
        for (int i = 0; i < 16; i++) {
            if (has_replies(attach) || wait->done(attach, wait->ctx)) {
                return true;
            }
            via_cpu_pause();
        }
    } while (atomic_load_explicit(&attach->lockers, memory_order_relaxed) == 0 &&
             via_client_now_ns() < end_ns);
    return false;
}

static int sleep_ms(uint64_t deadline_ns)
{
    uint64_t now = via_client_now_ns();
    uint64_t left_ns = deadline_ns > now ? deadline_ns - now : 0;
    return (int)((via_min(left_ns, SLEEP_NS_MAX) + VIA_MSEC_NS - 1) / VIA_MSEC_NS);
}

/* Spins or sleeps as the leader. 1: check again. -EINTR. */
static int wait_as_leader(struct via_attach *attach, const struct via_client_wait *wait)
{
    uint64_t start_ns = via_client_now_ns();
    if (spin(attach, wait, start_ns)) {
        via_host_spin_learn(&attach->spin, via_client_now_ns() - start_ns, true);
        return 1;
    }
    arm(attach);
    if (has_replies(attach) || wait->done(attach, wait->ctx)) {
        return 1;
    }
    struct epoll_event events[4];
    int timeout_ms = sleep_ms(wait->deadline_ns);
    attach->asleep = true;
    via_client_unlock(attach);
    int count =
        via_sys_epoll_wait(attach->epoll_fd, events, (int)VIA_ARRAY_COUNT(events), timeout_ms);
    via_client_lock(attach);
    attach->asleep = false;
    via_host_spin_learn(&attach->spin, via_client_now_ns() - start_ns, false);
    for (int i = 0; i < count; i++) {
        if ((int)events[i].data.u32 == attach->socket_fd) {
            attach->socket_ready = true;
        }
    }
    return count == -EINTR && wait->interruptible ? -EINTR : 1;
}

static void wait_as_follower(struct via_attach *attach, const struct via_client_wait *wait)
{
    if (wait->room != NULL) {
        via_pipe_request_room(&wait->room->writer);
        if (wait->done(attach, wait->ctx)) {
            return;
        }
    }
    uint64_t until_ns = via_min(wait->deadline_ns, via_client_now_ns() + SLEEP_NS_MAX);
    struct timespec until = {
        .tv_sec = (time_t)(until_ns / VIA_SEC_NS),
        .tv_nsec = (long)(until_ns % VIA_SEC_NS),
    };
    attach->followers++;
    pthread_cond_timedwait(&attach->turn, &attach->lock, &until);
    attach->followers--;
}

/* True if the replies are stuck behind messages. Another thread may be about to receive those,
 * hence the time limit; without it this wait would never end. */
static bool is_stuck(const struct via_attach *attach, uint32_t replies, uint64_t start_ns)
{
    for (unsigned i = 0; i < attach->channels_count; i++) {
        uint64_t since_ns = attach->channels[i].stuck_ns;
        if ((replies >> i & 1) != 0 && since_ns != 0 &&
            via_client_now_ns() - via_max(since_ns, start_ns) > attach->stuck_ns_max) {
            return true;
        }
    }
    return false;
}

void via_client_unstick(struct via_attach *attach)
{
    for (unsigned i = 0; i < attach->channels_count && attach->asleep; i++) {
        if (attach->channels[i].stuck_ns != 0) {
            via_sys_bell_ring(attach->nudge_fd);
            return;
        }
    }
}

/* 1: call again. 0: done. Or a negative errno. */
static int wait_step(struct via_attach *attach, const struct via_client_wait *wait,
                     uint64_t start_ns)
{
    if (!attach->asleep) {
        via_client_take(attach);
    }
    if (wait->done(attach, wait->ctx)) {
        return 0;
    }
    if (attach->dead) {
        return via_client_dead(attach);
    }
    if (is_stuck(attach, wait->replies, start_ns)) {
        return via_client_error(-ENOBUFS,
                                "host %u: waiting: %zu bytes of messages have not been received, "
                                "and the reply is behind them",
                                attach->host, attach->messages_bytes);
    }
    if (wait->deadline_ns != VIA_NEVER_NS && via_client_now_ns() >= wait->deadline_ns) {
        return -ETIMEDOUT;
    }
    if (attach->leading) {
        wait_as_follower(attach, wait);
        return 1;
    }
    attach->leading = true;
    int rc = wait_as_leader(attach, wait);
    attach->leading = false;
    if (attach->followers != 0) {
        pthread_cond_broadcast(&attach->turn);
    }
    return rc;
}

int via_client_wait(struct via_attach *attach, const struct via_client_wait *wait)
{
    int rc;
    if (wait->room != NULL) {
        wait->room->room_waiters++;
    }
    uint64_t start_ns = via_client_now_ns();
    do {
        rc = wait_step(attach, wait, start_ns);
    } while (rc > 0);
    if (wait->room != NULL) {
        wait->room->room_waiters--;
    }
    return rc;
}

int via_client_wait_remote(struct via_remote *remote, via_client_condition *is_over,
                           uint64_t deadline_ns)
{
    struct via_attach *attach = remote->attach;
    struct via_client_wait wait = {
        .done = is_over,
        .ctx = remote,
        .deadline_ns = deadline_ns,
        .replies = via_client_replies(attach, via_client_channel_to(attach, remote->host)),
    };
    via_client_lock(attach);
    int rc = via_client_wait(attach, &wait);
    via_client_unlock(attach);
    return rc;
}

static bool result_is_there(struct via_attach *attach, void *ctx)
{
    (void)attach;
    return ((struct via_client_result *)ctx)->left == 0;
}

int via_client_wait_result(struct via_attach *attach, const struct via_client_channel *channel,
                           struct via_client_result *result)
{
    struct via_client_wait wait = {
        .done = result_is_there,
        .ctx = result,
        .deadline_ns = VIA_NEVER_NS,
        .replies = via_client_replies(attach, channel),
    };
    int rc = via_client_wait(attach, &wait);
    if (rc != 0) {
        via_client_command_forget(attach, result);
        return rc;
    }
    return result->status;
}

/* Only the socket shows that the host has died. Without another reason it is checked once in
 * DEATH_POLL_NS. */
static unsigned poll_for_death(struct via_attach *attach)
{
    uint64_t now = via_client_now_ns();
    if (now - attach->death_poll_ns < DEATH_POLL_NS) {
        return 0;
    }
    attach->death_poll_ns = now;
    return via_client_take_answers(attach);
}

bool via_client_check_death(struct via_attach *attach)
{
    via_client_lock(attach);
    if (!attach->dead && !attach->asleep) {
        via_client_take_answers(attach);
    }
    via_client_unlock(attach);
    return attach->dead;
}

static unsigned poll_locked(struct via_attach *attach)
{
    if (attach->asleep) {
        if (has_replies(attach)) {
            via_sys_bell_ring(attach->nudge_fd);
        }
        return 0;
    }
    unsigned taken = via_client_take(attach);
    if (taken == 0) {
        taken = poll_for_death(attach);
    }
    if (atomic_load_explicit(&attach->bell_watched, memory_order_relaxed)) {
        arm(attach);
        if (has_replies(attach)) {
            taken += via_client_take(attach);
            arm(attach);
        }
    }
    return taken;
}

int via_attach_poll(struct via_attach *attach)
{
    via_client_lock(attach);
    unsigned taken = poll_locked(attach);
    int rc = attach->dead ? via_client_dead(attach) : (int)taken;
    via_client_unlock(attach);
    return rc;
}

int via_attach_bell_fd(const struct via_attach *attach)
{
    /* From now on each poll leaves the pipes armed. The caller makes its first poll after this
     * call. */
    atomic_store_explicit(&((struct via_attach *)attach)->bell_watched, true, memory_order_relaxed);
    /* acknowledgements on a direct connection do not ring the bell */
    via_client_auto_off((struct via_attach *)attach);
    return attach->bell_fd;
}
