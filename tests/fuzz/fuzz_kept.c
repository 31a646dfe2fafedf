/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The segment in which a process kept its puts, after the process has ended (attach_server_kept.c).
 * The process wrote all of it, a child of the process still writes to it, and neighbours may send
 * any answers. The host may put only bytes of this segment, at most as many as a process keeps, and
 * only to the neighbour for which the process kept them.
 *
 * Input: the number of neighbours, a segment for each, then the answers, then whether there is room
 * for each put. This file replaces the parts of the host that the puts need.
 */
#include <errno.h>

#include "host/client_kept.h"
#include "host/host_private.h"
#include "tests/fuzz/input.h"

#define HOSTS 4u /* and a channel for each, but the last one */
#define RECORDS_MAX 8u
#define ROUNDS_MAX 64u

enum fault { FAULT_NONE, FAULT_MISSING, FAULT_SHORT, FAULT_REACHED, FAULT_LAYOUT, FAULTS_COUNT };

static struct scene {
    struct input *input;
    struct via_process process;
    struct via_process_channel channels[HOSTS - 1];
    struct via_host_segment segments[HOSTS];
    enum fault faults[HOSTS];
    unsigned hosts_count;
    unsigned puts_counts[HOSTS];
    bool is_under_way[HOSTS];
} scene;

/* --- replacements for other files of the host ------------------------------------------------- */

struct via_host_segment *via_segment_find_own(const struct via_process *process, uint64_t handle)
{
    require(process == &scene.process && handle < scene.hosts_count);
    return scene.faults[handle] == FAULT_MISSING ? NULL : &scene.segments[handle];
}

int via_host_direct_request(struct via_process *process, const struct via_attach_request *request)
{
    static const int results[] = {0, 0, -EAGAIN, -ENOMEM, -EXDEV};
    int rc = results[input_byte(scene.input) % VIA_ARRAY_COUNT(results)];
    require(process == &scene.process && request->host < scene.hosts_count);
    require(request->type == VIA_ATTACH_DIRECT && request->key_bytes == VIA_TCP_TOKEN_BYTES);
    require(!scene.is_under_way[request->host] && scene.faults[request->host] == FAULT_NONE);
    scene.is_under_way[request->host] = rc == 0;
    return rc;
}

static void check_put(const struct via_host_segment *segment, const struct via_op *op)
{
    const struct via_kept_area *area = segment->memory.base;
    const unsigned char *source = op->source;
    require(op->destination < scene.hosts_count && segment == &scene.segments[op->destination]);
    require(scene.faults[op->destination] == FAULT_NONE);
    require(op->kind == VIA_OP_PUT && op->flags == 0);
    require(op->bytes != 0 && op->bytes <= VIA_KEPT_COPY_BYTES_MAX);
    require(source >= area->memory && source <= area->memory + VIA_KEPT_BYTES - op->bytes);
    scene.puts_counts[op->destination]++;
    require(scene.puts_counts[op->destination] <= VIA_KEPT_PUTS_MAX);
}

int via_process_channel_put(struct via_transfer *transfer, struct via_process_channel *pc,
                            struct via_host_segment *segment, struct via_op *op)
{
    uint8_t byte = input_byte(scene.input);
    require(transfer == NULL && pc->process == &scene.process);
    if (byte % 4 == 3) { /* a child of the process writes, and there is no room for the put */
        struct via_kept_area *area = segment->memory.base;
        uint32_t first = atomic_load_explicit(&area->first, memory_order_relaxed);
        input_take(scene.input, &area->records[(first + byte) % VIA_KEPT_PUTS_MAX],
                   sizeof(area->records[0]));
        return -EAGAIN;
    }
    check_put(segment, op);
    return byte % 4 == 2 ? -ERANGE : 0;
}

/* --- a process -------------------------------------------------------------------------------- */

static void write_area(struct input *input, struct via_kept_area *area, enum fault fault)
{
    uint32_t first = (uint32_t)input_edgy(input);
    uint32_t count = (uint32_t)input_edgy(input);
    memset(area->records, 0, sizeof(area->records));
    area->layout = fault == FAULT_LAYOUT ? VIA_KEPT_LAYOUT + 1 : VIA_KEPT_LAYOUT;
    atomic_store_explicit(&area->first, first, memory_order_relaxed);
    atomic_store_explicit(&area->end, first + count, memory_order_relaxed);
    for (uint32_t i = 0; i < RECORDS_MAX; i++) {
        struct via_kept_record *record = &area->records[(first + i) % VIA_KEPT_PUTS_MAX];
        record->handle = i;
        record->off = input_edgy(input);
        record->bytes = input_edgy(input);
        record->begin = input_edgy(input);
        record->memory_off = input_edgy(input);
    }
}

static void make_segment(struct input *input, unsigned host)
{
    static struct via_kept_area *areas[HOSTS]; /* that of a short one ends where the segment does */
    struct via_host_segment *segment = &scene.segments[host];
    enum fault fault = input_byte(input) % FAULTS_COUNT;
    if (areas[host] == NULL) {
        areas[host] = calloc(1, sizeof(*areas[host]));
        require(areas[host] != NULL);
    }
    write_area(input, areas[host], fault);
    scene.faults[host] = fault;
    segment->memory.base = areas[host];
    segment->memory.bytes = sizeof(*areas[host]) - (fault == FAULT_SHORT ? 1 : 0);
    segment->access = fault == FAULT_REACHED ? VIA_SEGMENT_WRITE : 0;
    require(via_process_kept_note(&scene.process, (uint16_t)host, host) == 0);
}

static void begin(struct input *input, struct via_host *host)
{
    memset(&scene, 0, sizeof(scene));
    scene.input = input;
    scene.hosts_count = 1 + input_byte(input) % HOSTS;
    scene.process.host = host;
    scene.process.channels = scene.channels;
    scene.process.channels_count = VIA_ARRAY_COUNT(scene.channels);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(scene.channels); i++) {
        scene.channels[i].process = &scene.process;
    }
    for (unsigned i = 0; i < scene.hosts_count; i++) {
        make_segment(input, i);
    }
}

/* --- its host --------------------------------------------------------------------------------- */

static void answer(struct input *input, unsigned host)
{
    struct via_attach_answer content = {.type = VIA_ATTACH_DIRECT};
    struct via_attach_position position = {.position = input_edgy(input)};
    uint8_t byte = input_byte(input);
    static const int statuses[] = {0, 0, 0, -ENOENT, -EAGAIN, -EXDEV, 1};
    content.status = statuses[byte % VIA_ARRAY_COUNT(statuses)];
    content.value_bytes = byte < 0x80 ? sizeof(position) : byte % sizeof(content.value);
    memcpy(content.value, &position, sizeof(position));
    via_process_kept_answered(&scene.process, (uint16_t)host, &content);
    scene.is_under_way[host] = false;
}

/* True if all neighbours have answered. */
static bool send_request(struct input *input, struct via_host *host)
{
    for (unsigned round = 0; round < ROUNDS_MAX; round++) {
        uint64_t next_ns = via_process_kept_tick(&scene.process);
        if (next_ns == 0) {
            return true;
        }
        require(next_ns > host->now_ns);
        host->now_ns += VIA_MSEC_NS;
        answer(input, input_byte(input) % HOSTS);
    }
    return false;
}

static void put(void)
{
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(scene.channels); i++) {
        for (unsigned round = 0; round < ROUNDS_MAX; round++) {
            if (via_process_channel_put_kept(NULL, &scene.channels[i])) {
                break;
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {.data = data, .bytes = bytes};
    static struct via_host host;
    begin(&input, &host);
    if (via_process_kept_begin(&scene.process)) {
        if (!send_request(&input, &host)) {
            via_process_kept_give_up(&scene.process);
        }
        put();
    }
    via_process_kept_free(&scene.process);
    return 0;
}
