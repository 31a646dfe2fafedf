/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Puts of an ended process which it kept because a direct connection to a neighbour had not
 * acknowledged them (client_kept.h). The neighbour reports how much of the connection it has
 * applied. Frames carry the rest, as if these puts were commands of the process. So puts that have
 * returned arrive whichever way a process ends, over a connection as in frames.
 *
 * First the control thread queries all neighbours. Then the transfer threads finish the commands of
 * the process, and then these puts. The memory belongs to the process and is hostile input.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "base/mutant.h"
#include "host/client_kept.h"
#include "host/host_private.h"

/* Time in which a neighbour answers. */
#define QUERY_NS VIA_SEC_NS
#define QUERY_AGAIN_NS VIA_MSEC_NS

/* The kept puts of one process to one neighbour. */
struct via_process_kept {
    struct via_process_kept *next;
    uint16_t host;
    uint64_t handle; /* of the segment with the kept puts */
    /* Valid once the process has ended. */
    struct via_host_segment *segment; /* NULL: no put is left */
    bool under_way, known;
    uint64_t query_ns; /* time of the next query */
    uint64_t position;
    /* numbers of the first record that is left, and of the one after the last */
    uint32_t record, end;
};

static struct via_kept_area *area_of(const struct via_process_kept *kept)
{
    return kept->segment->memory.base;
}

int via_process_kept_note(struct via_process *process, uint16_t host, uint64_t handle)
{
    struct via_process_kept *kept = process->kept;
    while (kept != NULL && kept->host != host) {
        kept = kept->next;
    }
    if (kept == NULL) {
        kept = calloc(1, sizeof(*kept));
        if (kept == NULL) {
            return -ENOMEM;
        }
        kept->host = host;
        kept->next = process->kept;
        process->kept = kept;
    }
    kept->handle = handle;
    return 0;
}

void via_process_kept_free(struct via_process *process)
{
    for (struct via_process_kept *kept = process->kept, *next; kept != NULL; kept = next) {
        next = kept->next;
        free(kept);
    }
    process->kept = NULL;
}

/* --- the control thread ----------------------------------------------------------------------- */

/* Called when the process has ended: finds its segment, and the records that are left in it. A
 * segment that other processes reach is not accepted, because it may be freed before the puts have
 * ended (via_segment_leave_all_for()). */
static void begin(struct via_process *process, struct via_process_kept *kept)
{
    kept->segment = via_segment_find_own(process, kept->handle);
    if (kept->segment == NULL || kept->segment->access != 0 ||
        kept->segment->memory.bytes < sizeof(struct via_kept_area) ||
        area_of(kept)->layout != VIA_KEPT_LAYOUT) {
        kept->segment = NULL;
        return;
    }
    kept->record = atomic_load_explicit(&area_of(kept)->first, memory_order_acquire);
    kept->end = atomic_load_explicit(&area_of(kept)->end, memory_order_acquire);
    if (kept->end == kept->record || kept->end - kept->record > VIA_KEPT_PUTS_MAX) {
        kept->segment = NULL;
    }
}

bool via_process_kept_begin(struct via_process *process)
{
    bool any = false;
    for (struct via_process_kept *kept = process->kept; kept != NULL; kept = kept->next) {
        begin(process, kept);
        any = any || kept->segment != NULL;
    }
    return any;
}

static void query(struct via_process *process, struct via_process_kept *kept)
{
    struct via_attach_request request = {
        .type = VIA_ATTACH_DIRECT, .host = kept->host, .key_bytes = VIA_TCP_TOKEN_BYTES};
    memcpy(request.key, area_of(kept)->token, VIA_TCP_TOKEN_BYTES);
    int rc = via_host_direct_request(process, &request);
    kept->under_way = rc == 0;
    kept->query_ns = process->host->now_ns + QUERY_AGAIN_NS;
    if (rc != 0 && rc != -EAGAIN && rc != -ENOMEM) {
        kept->segment = NULL; /* no host has this id */
    }
}

uint64_t via_process_kept_tick(struct via_process *process)
{
    uint64_t now_ns = process->host->now_ns;
    uint64_t next_ns = 0;
    for (struct via_process_kept *kept = process->kept; kept != NULL; kept = kept->next) {
        if (kept->segment == NULL || kept->known) {
            continue;
        }
        if (!kept->under_way && now_ns >= kept->query_ns) {
            query(process, kept);
        }
        uint64_t due_ns = kept->under_way ? VIA_NEVER_NS : kept->query_ns;
        next_ns = next_ns == 0 ? due_ns : via_min(next_ns, due_ns);
    }
    return next_ns;
}

void via_process_kept_answered(struct via_process *process, uint16_t host,
                               const struct via_attach_answer *answer)
{
    struct via_process_kept *kept = process->kept;
    while (kept != NULL && kept->host != host) {
        kept = kept->next;
    }
    if (kept == NULL || !kept->under_way) {
        return;
    }
    kept->under_way = false;
    if (answer->status == 0 && answer->value_bytes == sizeof(struct via_attach_position)) {
        struct via_attach_position position;
        memcpy(&position, answer->value, sizeof(position));
        kept->position = position.position;
        kept->known = true;
    } else if (answer->status == -ENOENT) {
        kept->segment = NULL; /* the neighbour has restarted: puts by frames would be lost, too */
    }
}

void via_process_kept_give_up(struct via_process *process)
{
    for (struct via_process_kept *kept = process->kept; kept != NULL; kept = kept->next) {
        if (!kept->known) {
            kept->segment = NULL;
        }
    }
}

/* --- transfer threads ------------------------------------------------------------------------- */

/* Submits a record. 1: the neighbour has applied the whole record, or the record is not valid. */
static int put_record(struct via_transfer *transfer, struct via_process_channel *pc,
                      const struct via_process_kept *kept)
{
    const struct via_kept_area *area = area_of(kept);
    struct via_kept_record record;
    /* Loads each field once. A child of the process may write to the record meanwhile, and after a
     * struct assignment the compiler may load a checked field again. */
    via_copy_once(&record, &area->records[kept->record % VIA_KEPT_PUTS_MAX], sizeof(record));
    uint64_t done = via_kept_applied(&record, kept->position);
    /* A longer put is not complete: its call has not returned. */
    if (record.bytes > VIA_KEPT_COPY_BYTES_MAX || record.bytes == done) {
        return 1;
    }
    if ((record.memory_off > VIA_KEPT_BYTES || record.bytes > VIA_KEPT_BYTES - record.memory_off) &&
        !VIA_MUTANT(KEPT_RANGE)) {
        return 1;
    }
    struct via_op op = {
        .kind = VIA_OP_PUT,
        .destination = kept->host,
        .segment = record.handle,
        .offset = record.off + done,
        .source = area->memory + record.memory_off + done,
        .bytes = record.bytes - done,
    };
    return via_process_channel_put(transfer, pc, kept->segment, &op);
}

static bool is_of_channel(const struct via_process_channel *pc, const struct via_process_kept *kept)
{
    const struct via_process *process = pc->process;
    uint32_t channel = (process->channel_first + kept->host) % process->channels_count;
    return pc == &process->channels[channel];
}

bool via_process_channel_put_kept(struct via_transfer *transfer, struct via_process_channel *pc)
{
    for (struct via_process_kept *kept = pc->process->kept; kept != NULL; kept = kept->next) {
        if (!is_of_channel(pc, kept) || kept->segment == NULL) {
            continue;
        }
        while (kept->record != kept->end) {
            if (put_record(transfer, pc, kept) == -EAGAIN) {
                return false;
            }
            kept->record++;
        }
    }
    return true;
}
