/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/stream/edge.h"

#include "base/bits.h"
#include "core/pipe_inline.h"

uint32_t via_edge_next_record(const struct via_pipe_reader *pipe, uint32_t sequence)
{
    if (via_seq_is_before_u32(sequence, pipe->sequence)) {
        sequence = pipe->sequence; /* the program has read it before it was reported */
    }
    while (via_pipe_is_ready_at(pipe, sequence)) {
        sequence++;
    }
    return sequence;
}

bool via_edge_is_missed(const struct via_edge *reported, uint32_t events, uint32_t read)
{
    return (events & EPOLLET) != 0 && (events & VIA_EDGE_READ) != 0 &&
           via_seq_is_before_u32(reported->sequence, read);
}

/* The first record that the bits do not report. A program that gets POLLIN reads everything. If it
 * gets another event while a record arrives, that record is not reported yet. */
static uint32_t last_reported(const struct via_edge_now *now)
{
    return (now->bits & VIA_EDGE_IN) != 0 ? now->next : now->sequence;
}

/* True if records have arrived that were not reported, whether the program has read them or not. */
static bool has_records(const struct via_edge *reported, const struct via_edge_now *now)
{
    return now->piped && (now->events & VIA_EDGE_READ) != 0 &&
           (via_edge_is_missed(reported, now->events, now->read) ||
            last_reported(now) != reported->sequence);
}

/* True if the kernel has reported bytes of a kind that the program waits for. */
static bool has_kernel_bytes(const struct via_edge *reported, const struct via_edge_now *now)
{
    return reported->recheck && ((now->bits & VIA_EDGE_URGENT) != 0 ||
                                 (now->reads_kernel && (now->events & VIA_EDGE_READ) != 0));
}

bool via_edge_is_news(const struct via_edge *reported, const struct via_edge_now *now)
{
    return now->bits != 0 &&
           (reported->due || now->shuts != reported->shuts || has_records(reported, now) ||
            ((now->bits & VIA_EDGE_OUT) != 0 && now->full != reported->full) ||
            (now->ends & ~reported->ends) != 0 || has_kernel_bytes(reported, now));
}

void via_edge_report(struct via_edge *reported, const struct via_edge_now *now)
{
    reported->due = false;
    reported->recheck = false;
    reported->shuts = now->shuts;
    reported->sequence = last_reported(now);
    if ((now->bits & VIA_EDGE_OUT) != 0) {
        reported->full = now->full;
    }
    reported->ends |= now->ends;
}
