/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <string.h>

#include "base/types.h"
#include "sockets/stream/stream.h"
#include "sockets/stream/stream_quick.h"

void via_stream_rx_init(struct via_stream_rx *rx)
{
    struct via_pipe_reader pipe = rx->pipe;
    *rx = (struct via_stream_rx){.pipe = pipe, .span = VIA_SPAN_KERNEL};
}

/* Releases one record. Posts credit after each quarter of the slots (the pipe does that) or of the
 * bytes. */
static void release(struct via_stream_rx *rx, uint32_t body_bytes)
{
    if (rx->probe) {
        return;
    }
    via_pipe_release(&rx->pipe, 1);
    rx->unposted_bytes += body_bytes;
    if (rx->pipe.posted != rx->pipe.released &&
        rx->unposted_bytes >= rx->pipe.geometry.data_bytes / 4 && body_bytes != 0) {
        via_pipe_post_credit(&rx->pipe);
    }
    if (rx->pipe.posted == rx->pipe.released) {
        rx->unposted_bytes = 0;
        rx->posted = true;
    }
}

static int mark_broken(struct via_stream_rx *rx)
{
    rx->broken = true;
    return -EPROTO;
}

/* --- zero-copy ------------------------------------------------------------------------------- */

void via_stream_rx_allow_avail(struct via_stream_rx *rx, const struct via_avail_words *own,
                               struct via_avail_words *peer)
{
    memset(&rx->avail, 0, sizeof(rx->avail));
    rx->avail.own = own;
    rx->avail.peer = peer;
}

void via_stream_rx_sink(struct via_stream_rx *rx, uint64_t bytes)
{
    if (rx->avail.own != NULL && rx->avail.sink != bytes) {
        rx->avail.sink = bytes;
        rx->avail.wanted = true;
        atomic_store_explicit(&rx->avail.peer->sink, bytes, memory_order_relaxed);
    }
}

static int take_avail(struct via_stream_rx *rx, const struct via_stream_head *head)
{
    if (rx->span != VIA_SPAN_PIPE || !rx->avail.wanted || head->u.avail.bytes == 0 ||
        head->u.avail.bytes > VIA_AVAIL_BYTES_MAX || head->u.avail.id > VIA_AVAIL_ID_MASK) {
        return mark_broken(rx);
    }
    rx->avail.address = head->u.avail.address;
    rx->avail.bytes = head->u.avail.bytes;
    rx->avail.id = (uint32_t)head->u.avail.id;
    rx->avail.done = 0;
    rx->avail.held = true;
    return 0;
}

static bool is_avail_void(const struct via_stream_rx *rx)
{
    uint32_t revoked =
        (uint32_t)atomic_load_explicit(&rx->avail.own->revoked, memory_order_relaxed);
    /* The ids have 24 bits and wrap. */
    return (int32_t)((revoked - rx->avail.id) << 8) >= 0;
}

static void post_pulled(struct via_stream_rx *rx, enum via_pull_state state)
{
    /* Pairs with the acquire in via_stream_tx_avail_state(): the fetch has read the writer's memory
     * before. */
    atomic_store_explicit(&rx->avail.peer->pulled,
                          via_pulled_word(rx->avail.id, state, rx->avail.done),
                          memory_order_release);
}

static void end_avail(struct via_stream_rx *rx)
{
    rx->avail.held = false;
    release(rx, 0);
}

void via_stream_rx_refuse(struct via_stream_rx *rx)
{
    if (!rx->probe) {
        post_pulled(rx, VIA_PULL_REFUSED);
    }
    end_avail(rx);
}

int via_stream_rx_claim(struct via_stream_rx *rx)
{
    post_pulled(rx, VIA_PULL_CLAIMED);
    /* Store claim, fence, load revoked: pairs with the fence in via_stream_tx_avail_revoke(). */
    atomic_thread_fence(memory_order_seq_cst);
    if (is_avail_void(rx)) {
        via_stream_rx_refuse(rx);
        return -ECANCELED;
    }
    return 0;
}

void via_stream_rx_pulled(struct via_stream_rx *rx, uint64_t bytes)
{
    rx->avail.done += bytes;
    post_pulled(rx, VIA_PULL_OPEN);
    if (rx->avail.done == rx->avail.bytes) {
        end_avail(rx);
    }
}

/* --- records --------------------------------------------------------------------------------- */

/* Handles a record that was just taken. 0, or -EPROTO. */
static int handle_record(struct via_stream_rx *rx)
{
    struct via_stream_head head;
    memcpy(&head, rx->record.head, sizeof(head));

    if (head.kind == VIA_STREAM_DATA) {
        uint32_t bytes = rx->record.body_bytes != 0 ? rx->record.body_bytes : head.inline_bytes;
        if (rx->span != VIA_SPAN_PIPE ||
            (rx->record.body_bytes == 0 && head.inline_bytes > VIA_STREAM_INLINE_BYTES_MAX)) {
            return mark_broken(rx);
        }
        rx->held = bytes != 0;
        rx->record_off = 0;
        rx->record_bytes = bytes;
        if (bytes == 0) {
            release(rx, 0);
        }
        return 0;
    }
    if (rx->record.body_bytes != 0) {
        return mark_broken(rx);
    }
    if (head.kind == VIA_STREAM_AVAIL) {
        return take_avail(rx, &head);
    }
    if (head.kind == VIA_STREAM_SWITCH && rx->span == VIA_SPAN_KERNEL) {
        rx->span = VIA_SPAN_KERNEL_UNTIL;
        rx->switch_at = head.u.count;
        rx->kernel_known = false;
    } else if (head.kind == VIA_STREAM_DEMOTE && rx->span == VIA_SPAN_PIPE &&
               head.u.demote.count == rx->pipe_bytes && head.u.demote.again <= rx->pipe_bytes) {
        rx->span = VIA_SPAN_KERNEL;
        rx->again = head.u.demote.again;
        rx->whole = (head.flags & VIA_STREAM_DEMOTE_WHOLE) != 0;
    } else if (head.kind == VIA_STREAM_FIN && rx->span == VIA_SPAN_PIPE &&
               head.u.count == rx->switch_at + rx->pipe_bytes) {
        rx->ended = true;
        rx->fin_flags = head.flags;
    } else {
        return mark_broken(rx);
    }
    release(rx, 0);
    if (head.kind != VIA_STREAM_FIN && !rx->probe) {
        /* The writer waits for this credit before it uses the kernel (via_stream_tx_is_demoted) or,
         * when it has spilled, before it returns to the pipe (via_stream_stall_is_over). A reader
         * that never sleeps would not post it otherwise. */
        via_pipe_post_credit(&rx->pipe);
        rx->posted = true;
    }
    return 0;
}

int via_stream_rx_next(struct via_stream_rx *rx)
{
    /* Bounded: a hostile writer could send control records without end. */
    for (uint32_t i = 0; i <= rx->pipe.geometry.slots_count; i++) {
        if (rx->held) {
            return VIA_NEXT_DATA;
        }
        if (via_unlikely(rx->avail.held)) {
            if (!is_avail_void(rx)) {
                return VIA_NEXT_AVAIL;
            }
            via_stream_rx_refuse(rx);
        }
        if (rx->span == VIA_SPAN_KERNEL_UNTIL) {
            return VIA_NEXT_KERNEL_UNTIL;
        }
        if (via_unlikely(rx->again != 0)) {
            return VIA_NEXT_AGAIN;
        }
        if (rx->ended) {
            return VIA_NEXT_FIN;
        }
        int rc = rx->broken ? -EPROTO : via_pipe_take(&rx->pipe, &rx->record);
        if (rc == 0) {
            return rx->span == VIA_SPAN_PIPE ? VIA_NEXT_EMPTY : VIA_NEXT_KERNEL;
        }
        if (rc < 0) {
            return mark_broken(rx);
        }
        rc = handle_record(rx);
        if (rc < 0) {
            return rc;
        }
    }
    return mark_broken(rx);
}

static void check_switch(struct via_stream_rx *rx)
{
    if (rx->kernel_read == rx->switch_at) {
        rx->span = VIA_SPAN_PIPE;
    }
}

int via_stream_rx_kernel_total(struct via_stream_rx *rx, uint64_t total)
{
    if (total > rx->switch_at) {
        return mark_broken(rx);
    }
    rx->kernel_read = total;
    rx->kernel_known = true;
    check_switch(rx);
    return 0;
}

void via_stream_rx_kernel_read(struct via_stream_rx *rx, size_t bytes)
{
    rx->kernel_read += bytes;
    check_switch(rx);
}

uint64_t via_stream_rx_kernel_left(const struct via_stream_rx *rx)
{
    return rx->switch_at - rx->kernel_read;
}

static const unsigned char *record_data(const struct via_stream_rx *rx)
{
    const unsigned char *data = rx->record.body_bytes != 0
                                    ? rx->record.body
                                    : rx->record.head + VIA_STREAM_HEAD_FIXED_BYTES;
    return data + rx->record_off;
}

/* Moves past `bytes` of the held record. */
static void advance(struct via_stream_rx *rx, uint32_t bytes)
{
    rx->record_off += bytes;
    via_stream_rx_count(rx, bytes);
    if (rx->record_off == rx->record_bytes) {
        rx->held = false;
        release(rx, rx->record.body_bytes);
    }
}

ssize_t via_stream_rx_read(struct via_stream_rx *rx, struct via_iov *iov)
{
    ssize_t total = 0;
    while (iov->left != 0) {
        int next = via_stream_rx_next(rx);
        if (next != VIA_NEXT_DATA) {
            return total != 0 || next > 0 ? total : next;
        }
        uint32_t bytes = (uint32_t)via_min(iov->left, (size_t)(rx->record_bytes - rx->record_off));
        via_iov_put(iov, record_data(rx), bytes);
        advance(rx, bytes);
        total += bytes;
    }
    return total;
}

/* Returns a copy of the reader that releases no records: shared memory does not change. */
static struct via_stream_rx make_probe(const struct via_stream_rx *rx)
{
    struct via_stream_rx copy = *rx;
    copy.probe = true;
    copy.read = NULL;
    return copy;
}

/* The same, as if the kernel's bytes that precede the pipe span had been read. */
static struct via_stream_rx make_probe_behind_kernel(const struct via_stream_rx *rx)
{
    struct via_stream_rx copy = make_probe(rx);
    if (copy.span == VIA_SPAN_KERNEL_UNTIL) {
        copy.span = VIA_SPAN_PIPE;
    }
    return copy;
}

ssize_t via_stream_rx_peek(const struct via_stream_rx *rx, struct via_iov *iov, bool *ret_kernel)
{
    struct via_stream_rx copy = make_probe_behind_kernel(rx);
    ssize_t n = via_stream_rx_read(&copy, iov);
    *ret_kernel = copy.span == VIA_SPAN_KERNEL && copy.again == 0;
    return n;
}

/* Advances a copy to the end of the held record, or of the AVAIL. Returns the number of bytes; 0:
 * the next record is of another kind. */
static size_t advance_copy(struct via_stream_rx *copy)
{
    int next = via_stream_rx_next(copy);
    size_t bytes = 0;
    if (next == VIA_NEXT_DATA) {
        bytes = copy->record_bytes - copy->record_off;
        advance(copy, (uint32_t)bytes);
    } else if (next == VIA_NEXT_AVAIL) {
        bytes = (size_t)(copy->avail.bytes - copy->avail.done);
        copy->avail.held = false;
    }
    return bytes;
}

size_t via_stream_rx_bytes(const struct via_stream_rx *rx, size_t enough)
{
    struct via_stream_rx copy = make_probe_behind_kernel(rx);
    size_t total = 0;
    size_t bytes;
    while (total < enough && (bytes = advance_copy(&copy)) != 0) {
        total += bytes;
    }
    return total;
}

/* Advances a copy to the end of the present records. */
static struct via_stream_rx advance_to_end(struct via_stream_rx copy)
{
    while (advance_copy(&copy) != 0) {
    }
    return copy;
}

bool via_stream_rx_is_ending(const struct via_stream_rx *rx)
{
    return advance_to_end(make_probe(rx)).ended;
}

bool via_stream_rx_is_left(const struct via_stream_rx *rx)
{
    return advance_to_end(make_probe_behind_kernel(rx)).span == VIA_SPAN_KERNEL;
}

uint64_t via_stream_rx_resent_bytes(const struct via_stream_rx *rx)
{
    return advance_to_end(make_probe_behind_kernel(rx)).again;
}

/* --- leaving a pipe whose bytes the kernel has ----------------------------------------------- */

/* Discards the unread bytes of the pipe, and returns their number. Refuses an AVAIL: its bytes
 * follow through the kernel. */
static uint64_t take_unread(struct via_stream_rx *rx)
{
    uint64_t total = 0;
    /* Bounded, as in via_stream_rx_next(). */
    for (uint32_t i = 0; i <= rx->pipe.geometry.slots_count; i++) {
        int next = via_stream_rx_next(rx);
        if (next == VIA_NEXT_DATA) {
            uint32_t bytes = rx->record_bytes - rx->record_off;
            advance(rx, bytes);
            total += bytes;
        } else if (next == VIA_NEXT_AVAIL) {
            via_stream_rx_refuse(rx);
        } else {
            break;
        }
    }
    return total;
}

bool via_stream_rx_skip(struct via_stream_rx *rx)
{
    struct via_stream_rx copy = make_probe_behind_kernel(rx);
    if (rx->broken || rx->span == VIA_SPAN_KERNEL) {
        return false;
    }
    uint64_t unread = take_unread(&copy);
    if (copy.broken || copy.span != VIA_SPAN_KERNEL || (!copy.whole && unread != 0) ||
        unread > copy.again || (rx->span == VIA_SPAN_KERNEL_UNTIL && unread != copy.again)) {
        return false;
    }
    rx->span = VIA_SPAN_PIPE; /* the kernel returns its bytes before the span first, and then the
                                 resent ones */
    take_unread(rx);
    rx->again -= via_min(unread, rx->again);
    return true;
}

void via_stream_rx_arm(struct via_stream_rx *rx)
{
    rx->posted |= rx->pipe.posted != rx->pipe.released;
    rx->unposted_bytes = 0;
    via_pipe_arm(&rx->pipe);
}

bool via_stream_rx_take_writer_ring(struct via_stream_rx *rx)
{
    if (!rx->posted) {
        return false;
    }
    rx->posted = false;
    return via_pipe_take_writer_ring(&rx->pipe);
}
