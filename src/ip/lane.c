/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "ip/lane.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "host/client.h"

/* Limit of unacknowledged puts by frames to one host: lower than the limit of a process on a
 * channel (docs/host.md, 3), so that some are left for other hosts. */
#define PENDING_MAX 24u
/* Smaller records are copied, because each lent record occupies a buffer of 64 KiB. */
#define LEND_BYTES_MIN 4096u

static void set_state(struct via_ip_lane *lane, enum via_ip_lane_state state)
{
    atomic_store_explicit(&lane->state, (uint8_t)state, memory_order_relaxed);
}

/* --- sessions -------------------------------------------------------------------------------- */

int via_ip_lane_new_inbox(struct via_ip_lane *lane, size_t ring_bytes)
{
    via_ip_lane_close(lane);
    int rc = via_segment_new(lane->attach, VIA_IP_INBOX_DATA_OFF + ring_bytes,
                             VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE, &lane->segment);
    if (rc != 0) {
        return rc;
    }
    uint8_t *base = via_segment_base(lane->segment);
    lane->inbox = (struct via_ip_inbox *)(void *)base;
    lane->reader = (struct via_ip_ring_reader){
        .data = base + VIA_IP_INBOX_DATA_OFF,
        .ring_bytes = ring_bytes,
    };
    lane->credit_given = 0;
    lane->armed = lane->wanted = false;
    set_state(lane, VIA_IP_LANE_MEETING);
    return 0;
}

int via_ip_lane_open(struct via_ip_lane *lane, uint64_t handle, uint64_t ring_bytes)
{
    int rc = via_remote_open(lane->attach, lane->host, handle, VIA_IP_INBOX_DATA_OFF + ring_bytes,
                             &lane->remote);
    if (rc != 0) {
        return rc;
    }
    lane->writer = (struct via_ip_ring_writer){.ring_bytes = ring_bytes};
    lane->published = 0;
    atomic_fetch_add_explicit(&lane->sessions, 1, memory_order_relaxed);
    set_state(lane, VIA_IP_LANE_UP);
    return 0;
}

/* Keeps the lent buffers of an ended session, because the host may still read them. */
static void leave_in_limbo(struct via_ip_lane *lane)
{
    struct via_ip_limbo *limbo = calloc(1, sizeof(*limbo));
    if (limbo == NULL) {
        via_log(VIA_LOG_ERROR, "host %u: keep lent buffers: out of memory, they are lost",
                lane->host);
        via_list_init(&lane->lent);
        via_remote_close(lane->remote);
        return;
    }
    via_list_init(&limbo->lent);
    for (struct via_list *link; (link = via_list_pop_front(&lane->lent)) != NULL;) {
        via_list_push_back(&limbo->lent, link);
    }
    limbo->remote = lane->remote;
    via_list_push_back(&lane->lending->limbo, &limbo->link);
}

void via_ip_lane_close(struct via_ip_lane *lane)
{
    set_state(lane, VIA_IP_LANE_DOWN);
    if (lane->remote != NULL) {
        if (via_list_is_empty(&lane->lent)) {
            via_remote_close(lane->remote);
        } else {
            leave_in_limbo(lane);
        }
        lane->remote = NULL;
    }
    if (lane->segment != NULL) {
        via_segment_free(lane->segment);
        lane->segment = NULL;
        lane->inbox = NULL;
    }
}

/* --- sending --------------------------------------------------------------------------------- */

static bool has_pending_max(struct via_ip_lane *lane)
{
    return via_remote_pending(lane->remote) >= PENDING_MAX;
}

/* Puts by stores if the inbox is mapped, else by frames. */
static int put_once(struct via_ip_lane *lane, uint64_t off, const void *src, size_t bytes,
                    unsigned flags)
{
    return via_remote_try_put(lane->remote, off, src, bytes, flags | VIADUCT_PUT_LAZY);
}

/* announce: the last piece also carries the new tail, which saves a frame and a wake-up. */
static int put_pieces(struct via_ip_lane *lane, uint64_t off, const uint8_t *src, size_t bytes,
                      bool announce)
{
    size_t max = via_remote_try_max(lane->remote);
    size_t done = 0;
    int rc = 0;
    for (; bytes - done > max && rc == 0; done += max) {
        rc = put_once(lane, off + done, src + done, max, 0);
    }
    if (rc != 0 || !announce) {
        return rc != 0 ? rc : put_once(lane, off + done, src + done, bytes - done, 0);
    }
    rc = via_client_try_put_signal(lane->remote, off + done, src + done, bytes - done,
                                   offsetof(struct via_ip_inbox, tail), lane->writer.tail,
                                   VIADUCT_PUT_NOTIFY | VIADUCT_PUT_LAZY);
    if (rc == 0) {
        lane->published = lane->writer.tail;
    }
    return rc;
}

static void store_record(uint8_t *base, uint64_t off, uint64_t skip,
                         const struct via_ip_buffer *buffer)
{
    static const uint32_t skip_word = VIA_IP_RECORD_SKIP;
    uint8_t *data = base + VIA_IP_INBOX_DATA_OFF;
    if (skip != UINT64_MAX) {
        memcpy(data + skip, &skip_word, sizeof(skip_word));
    }
    memcpy(data + off, buffer->record, buffer->bytes);
}

/* 1: lent. */
static int put_record(struct via_ip_lane *lane, uint64_t off, const struct via_ip_buffer *buffer,
                      bool is_lending_allowed, bool announce)
{
    const struct via_ip_lending *lending = lane->lending;
    off += VIA_IP_INBOX_DATA_OFF;
    if (!is_lending_allowed || lending->segment == NULL || buffer->bytes < LEND_BYTES_MIN) {
        return put_pieces(lane, off, buffer->record, buffer->bytes, announce);
    }
    int rc = via_remote_try_put_from(lane->remote, off, lending->segment,
                                     (uint64_t)(buffer->record - lending->base), buffer->bytes,
                                     VIADUCT_PUT_LAZY);
    return rc == 0 ? 1 : rc;
}

static int write_record(struct via_ip_lane *lane, uint64_t off, uint64_t skip,
                        const struct via_ip_buffer *buffer, bool is_lending_allowed, bool announce)
{
    static const uint32_t skip_word = VIA_IP_RECORD_SKIP;
    uint8_t *base = via_remote_direct(lane->remote);
    if (base != NULL) {
        store_record(base, off, skip, buffer);
        return 0;
    }
    if (has_pending_max(lane)) {
        return -EAGAIN;
    }
    int rc = 0;
    if (skip != UINT64_MAX) {
        rc = put_once(lane, VIA_IP_INBOX_DATA_OFF + skip, &skip_word, sizeof(skip_word), 0);
    }
    return rc == 0 ? put_record(lane, off, buffer, is_lending_allowed, announce) : rc;
}

static int take_credit(struct via_ip_lane *lane)
{
    return via_ip_ring_take_credit(
        &lane->writer, atomic_load_explicit(&lane->inbox->credit, memory_order_acquire));
}

int via_ip_lane_send(struct via_ip_lane *lane, struct via_ip_buffer *buffer,
                     bool is_lending_allowed, bool announce)
{
    uint32_t frame_bytes = (uint32_t)(buffer->bytes - VIA_IP_RECORD_HEADER_BYTES);
    memcpy(buffer->record, &frame_bytes, sizeof(frame_bytes));
    memset(buffer->record + sizeof(frame_bytes), 0,
           VIA_IP_RECORD_HEADER_BYTES - sizeof(frame_bytes));
    struct via_ip_ring_writer before = lane->writer;
    uint64_t off;
    uint64_t skip;
    int rc = via_ip_ring_reserve(&lane->writer, buffer->bytes, &off, &skip);
    if (rc == -EAGAIN) {
        rc = take_credit(lane);
        before.credit = lane->writer.credit;
        rc = rc == 0 ? via_ip_ring_reserve(&lane->writer, buffer->bytes, &off, &skip) : rc;
    }
    if (rc == 0) {
        rc = write_record(lane, off, skip, buffer, is_lending_allowed, announce);
        if (rc < 0) {
            lane->writer = before; /* not published: the next record reuses the room */
        }
    }
    if (rc == 1) {
        buffer->end = lane->writer.tail;
        buffer->number = via_client_remote_begun(lane->remote);
        via_list_push_back(&lane->lent, &buffer->link);
    }
    return rc;
}

struct via_ip_buffer *via_ip_lane_take_back(struct via_ip_lane *lane)
{
    if (via_list_is_empty(&lane->lent)) {
        return NULL;
    }
    struct via_ip_buffer *first =
        via_list_entry(via_list_first(&lane->lent), struct via_ip_buffer, link);
    bool has_ended = (int32_t)(via_client_remote_ended(lane->remote) - first->number) >= 0;
    /* The next send detects an invalid credit. */
    if (!has_ended || take_credit(lane) != 0 || (int64_t)(lane->writer.credit - first->end) < 0) {
        return NULL;
    }
    via_list_remove(&first->link);
    return first;
}

/* Rings the peer's bell if the peer has requested that by this word; only if the inbox is mapped.
 */
static int ring_if_requested(struct via_ip_lane *lane, _Atomic uint32_t *request)
{
    /* Between the store of the position and the load of the peer's word. Pairs with the fence
     * before via_ip_lane_has_news(). */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(request, memory_order_relaxed) == 0) {
        return 0;
    }
    atomic_store_explicit(request, 0, memory_order_relaxed);
    return via_remote_ring(lane->remote);
}

/* Writes a position to a word of the peer's inbox. */
static int put_position(struct via_ip_lane *lane, size_t off, size_t request_off, uint64_t position)
{
    uint8_t *base = via_remote_direct(lane->remote);
    if (base == NULL) {
        return put_once(lane, off, &position, sizeof(position), VIADUCT_PUT_NOTIFY);
    }
    /* Pairs with the acquire of the peer's poll: orders the stores, or the reads, of the records
     * before the position. */
    atomic_store_explicit((_Atomic uint64_t *)(void *)(base + off), position, memory_order_release);
    return ring_if_requested(lane, (_Atomic uint32_t *)(void *)(base + request_off));
}

int via_ip_lane_publish(struct via_ip_lane *lane)
{
    if (lane->published == lane->writer.tail) {
        return 0;
    }
    int rc = put_position(lane, offsetof(struct via_ip_inbox, tail),
                          offsetof(struct via_ip_inbox, armed), lane->writer.tail);
    if (rc == 0) {
        lane->published = lane->writer.tail;
    }
    return rc;
}

/* --- receiving ------------------------------------------------------------------------------- */

int via_ip_lane_next(struct via_ip_lane *lane, const uint8_t **ret_frame, size_t *ret_bytes,
                     uint64_t *ret_end)
{
    uint64_t tail = atomic_load_explicit(&lane->inbox->tail, memory_order_acquire);
    return via_ip_ring_next(&lane->reader, tail, ret_frame, ret_bytes, ret_end);
}

void via_ip_lane_advance(struct via_ip_lane *lane, uint64_t end)
{
    lane->reader.head = end;
}

int via_ip_lane_give_credit(struct via_ip_lane *lane)
{
    uint64_t taken = lane->reader.head - lane->credit_given;
    bool direct = taken != 0 && via_remote_direct(lane->remote) != NULL;
    /* As a frame a credit costs as much as a packet, so it is sent after a quarter of the ring: a
     * writer that waits for room then knows that three quarters are free. */
    if (taken == 0 || (!direct && taken < lane->reader.ring_bytes / 4)) {
        return 0;
    }
    int rc = put_position(lane, offsetof(struct via_ip_inbox, credit),
                          offsetof(struct via_ip_inbox, wanted), lane->reader.head);
    if (rc == 0) {
        lane->credit_given = lane->reader.head;
    }
    return rc == -EAGAIN ? 0 : rc;
}

/* --- sleeping -------------------------------------------------------------------------------- */

void via_ip_lane_arm(struct via_ip_lane *lane)
{
    lane->armed = true;
    atomic_store_explicit(&lane->inbox->armed, 1, memory_order_relaxed);
    if (lane->held_count != 0) {
        lane->wanted = true;
        atomic_store_explicit(&lane->inbox->wanted, 1, memory_order_relaxed);
    }
}

void via_ip_lane_disarm(struct via_ip_lane *lane)
{
    if (lane->armed) {
        lane->armed = false;
        atomic_store_explicit(&lane->inbox->armed, 0, memory_order_relaxed);
    }
    if (lane->wanted) {
        lane->wanted = false;
        atomic_store_explicit(&lane->inbox->wanted, 0, memory_order_relaxed);
    }
}

bool via_ip_lane_has_news(const struct via_ip_lane *lane)
{
    return atomic_load_explicit(&lane->inbox->tail, memory_order_acquire) != lane->reader.head ||
           (lane->held_count != 0 &&
            atomic_load_explicit(&lane->inbox->credit, memory_order_acquire) !=
                lane->writer.credit);
}
