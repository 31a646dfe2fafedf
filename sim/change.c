/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/change.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"

#define NAMED(label, field, lo, hi, plain, texts)                                         \
    {                                                                                     \
        .name = (label), .off = (uint16_t)offsetof(struct sim_config, field),             \
        .bytes = (uint16_t)sizeof(((const struct sim_config *)NULL)->field), .min = (lo), \
        .max = (hi), .simplest = (plain), .names = (texts)                                \
    }

#define KEY(label, field, lo, hi, plain) NAMED(label, field, lo, hi, plain, NULL)

/* The values in the order in which a failing seed is shrunk: the most important for a reader come
 * first. */
static const struct sim_knob keys[] = {
    /* sim_config_make() reads the first three. */
    KEY("classic", classic, 0, 1, SIM_NO_SIMPLEST),
    KEY("mood", mood, 0, SIM_MOODS - 1, SIM_NO_SIMPLEST),
    NAMED("like", like, SIM_LIKE_ANY, SIM_LIKES - 1, SIM_NO_SIMPLEST, sim_like_names),
    NAMED("graph", graph, SIM_GRAPH_RING, SIM_GRAPH_CUBE, SIM_GRAPH_CHAIN, sim_graph_names),
    KEY("streams", streams.count, 0, 16, 0),
    KEY("stream-bytes", streams.bytes_max, 0, 1 << 20, 0),
    KEY("stream-avail", streams.avail_chance, 0, 1000, 0),
    KEY("stream-hosts", streams.hosts_count, 0, 16, 0),
    KEY("stream-bursts", streams.burst_chance, 0, 1000, 0),
    KEY("stream-leave", streams.leave_chance, 0, 1000, 0),
    KEY("stream-switch", streams.switch_chance, 0, 1000, 0),
    KEY("stream-kills", streams.kill_chance, 0, 1000, 0),
    KEY("stream-execs", streams.exec_chance, 0, 1000, 0),
    KEY("stream-preempts", streams.preempts, 0, 1, 0),
    KEY("pes", shmem.pes, 0, 64, 0),
    KEY("pe-nodes", shmem.nodes, 1, SIM_HOSTS_MAX, 1),
    KEY("pe-steps", shmem.steps, 1, 1000, 1),
    KEY("pe-elements", shmem.elements_max, 1, 4096, 1),
    KEY("pe-accesses", shmem.accesses_max, 1, 1u << 30, SIM_NO_SIMPLEST),
    KEY("pe-stall", shmem.stall_chance, 0, 1000, 0),
    KEY("pe-crash", shmem.crashes, 0, 1, 0),
    KEY("pe-slots", shmem.slots, 4, 64, SIM_NO_SIMPLEST),
    KEY("pe-replies", shmem.reply_slots, 4, 64, SIM_NO_SIMPLEST),
    KEY("hosts", hosts_count, 2, SIM_HOSTS_MAX, 2),
    KEY("extra-links", extra_links, 0, SIM_HOSTS_MAX, 0),
    KEY("rogues", faults.rogues_count, 0, 8, 0),
    KEY("lies", faults.lies_chance, 0, 1000, 0),
    KEY("names", faults.names_chance, 0, 1000, 0),
    KEY("crashes", faults.crashes_count, 0, 16, 0),
    KEY("freezes", faults.freezes_count, 0, 16, 0),
    KEY("cuts", faults.cuts_count, 0, 64, 0),
    KEY("cut-ns", faults.cut_ns_max, 1000, 1000000000, SIM_NO_SIMPLEST),
    KEY("ops", work.ops_count, 1, 100000, 1),
    KEY("channels", node.channels_count, 1, VIA_PORT_DATA_DOORBELLS, 1),
    KEY("flows", node.flows_count, 1, 64, 1),
    KEY("barrier-groups", work.barrier_groups, 0, 8, 0),
    KEY("barrier-rounds", work.barrier_rounds, 1, 64, 1),
    KEY("cancels", work.cancels_count, 0, 64, 0),
    KEY("wrong", work.wrong, 0, 1, 0),
    KEY("gets", work.get, 0, 100, 0),
    KEY("atomics", work.atomic, 0, 100, 0),
    KEY("put-signals", work.put_signal, 0, 100, 0),
    KEY("puts", work.put, 0, 100, 0),
    KEY("messages", work.message, 0, 100, 0),
    KEY("shift", work.shift, 0, SIM_HOSTS_MAX - 1, 0),
    KEY("burst", work.burst_max, 1, 1000, SIM_NO_SIMPLEST),
    KEY("busy", work.busy_chance, 0, 1000, 0),
    KEY("region", work.region_bytes, 128, 65536, SIM_NO_SIMPLEST),
    KEY("library", work.library_bytes, 8, 65536, SIM_NO_SIMPLEST),
    KEY("direct", port.direct_percent, 0, 100, 0),
    KEY("write-combining", port.wc_percent, 0, 100, 0),
    KEY("wc-buffers", port.wc_buffers, 1, SIM_WC_BUFFERS_MAX, SIM_NO_SIMPLEST),
    KEY("relaxed", port.relaxed_chance, 0, 1000, 0),
    KEY("all-ones", port.ones_chance, 0, 1000, 0),
    KEY("blind", port.blind_ns_max, 0, 1000000000, 0),
    KEY("narrow", port.narrow_percent, 0, 100, 0),
    KEY("forgets", port.forgets, 0, 1, 0),
    KEY("pads-survive", port.pads_survive, 0, 1, 0),
    KEY("dma", dma.percent, 0, 100, 0),
    KEY("dma-fails", dma.fail_chance, 0, 1000, 0),
    KEY("dma-hangs", dma.hang_chance, 0, 1000, 0),
    KEY("dma-stubborn", dma.stubborn_chance, 0, 1000, 0),
    KEY("dma-lost", dma.lost_chance, 0, 1000, 0),
    KEY("dma-busy", dma.busy_chance, 0, 1000, 0),
    KEY("dma-show", dma.show_chance, 0, 1000, 0),
    KEY("dma-trail", dma.trail_chance, 0, 1000, 0),
    KEY("dma-depth", dma.depth, 1, 64, 1),
    KEY("dma-ns", dma.ns_max, 200, 1000000000, SIM_NO_SIMPLEST),
    KEY("dma-abort", dma.abort_ns_max, 100, 1000000000, SIM_NO_SIMPLEST),
    KEY("dma-in-order", dma.in_order, 0, 1, 1),
    KEY("dma-from", dma.bytes_min, 0, 65472, SIM_NO_SIMPLEST),
    KEY("dma-buffers", node.dma_buffers, 1, 64, 1),
    KEY("linger", port.linger_chance, 0, 1000, 0),
    KEY("show", port.show_chance, 0, 1000, 0),
    KEY("pump", port.pump_chance, 0, 1000, 0),
    KEY("bell-late", port.bell_late_chance, 0, 1000, 0),
    KEY("bell-double", port.bell_double_chance, 0, 1000, 0),
    KEY("bell-drop", port.bell_drop_chance, 0, 1000, 0),
    KEY("bell-edge", port.bell_edge, 0, 1, 0),
    KEY("notice", port.notice_ns, 0, 1000000000, 0),
    KEY("stall", cpu.stall_chance, 0, 1000, 0),
    KEY("spin", cpu.spin_ns_max, 0, 1000000000, 0),
    KEY("crowded", cpu.crowded_chance, 0, 1000, 1000),
    KEY("give-up", node.give_up_ns, 0, UINT64_MAX / 4, 0),
    KEY("wait", node.wait_ns_max, 0, UINT64_MAX / 4, 0),
    KEY("epoch-first", node.epoch_first, 0, VIA_EPOCH_MAX, 0),
    KEY("pipe-first", node.pipe_first, 0, UINT32_MAX, 0),
    KEY("slots", node.pipe_slots, 1, 4096, SIM_NO_SIMPLEST),
    KEY("frame", node.frame_bytes_max, 64, 65472, SIM_NO_SIMPLEST),
    KEY("bypass", node.bypass_count, 1, 1024, SIM_NO_SIMPLEST),
    KEY("ops-slots", node.ops_count, 2, 4096, SIM_NO_SIMPLEST),
    KEY("window", node.window_frames, 1, 1024, SIM_NO_SIMPLEST),
    KEY("batch", node.batch_frames, 1, 1024, SIM_NO_SIMPLEST),
    KEY("active-ns", active_ns, 100000, UINT64_MAX / 4, SIM_NO_SIMPLEST),
};
_Static_assert(VIA_ARRAY_COUNT(keys) <= SIM_KNOBS_MAX, "room in struct sim_changes");

const struct sim_knob *sim_knob_at(unsigned index)
{
    return index < VIA_ARRAY_COUNT(keys) ? &keys[index] : NULL;
}

/* --- values ---------------------------------------------------------------------------------- */

static uint64_t knob_get(const struct sim_knob *key, const struct sim_config *config)
{
    uint64_t value = 0;
    /* Little-endian, as the wire is. */
    memcpy(&value, (const unsigned char *)config + key->off, key->bytes);
    return value;
}

static void key_set(const struct sim_knob *key, struct sim_config *config, uint64_t value)
{
    memcpy((unsigned char *)config + key->off, &value, key->bytes);
}

void sim_config_make(struct sim_config *config, uint64_t seed, enum sim_graph graph,
                     const struct sim_changes *changes)
{
    if (changes != NULL && changes->changed[0] && changes->values[0] != 0) {
        sim_config_from_old_seed(config, seed, graph);
    } else if (changes != NULL && changes->changed[1]) {
        sim_config_from_mood(config, seed, graph, (enum sim_mood)changes->values[1]);
    } else {
        sim_config_from_seed(config, seed, graph);
    }
    if (changes == NULL) {
        return;
    }
    if (changes->changed[2]) {
        sim_config_like(config, (enum sim_like)changes->values[2]);
    }
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(keys); i++) {
        if (changes->changed[i]) {
            key_set(&keys[i], config, changes->values[i]);
        }
    }
    config->faults_mask = changes->faults;
    config->work_mask = changes->work;
    sim_config_mend(config);
}

/* --- as text --------------------------------------------------------------------------------- */

static int find_key(const char *name, size_t length)
{
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(keys); i++) {
        if (strlen(keys[i].name) == length && memcmp(keys[i].name, name, length) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static bool parse_value(const struct sim_knob *key, const char *text, uint64_t *ret_value)
{
    if (key->names != NULL) {
        int number = sim_name_find(key->names, (unsigned)key->max + 1, text);
        *ret_value = (uint64_t)number;
        return number >= 0;
    }
    char *end;
    errno = 0;
    *ret_value = strtoull(text, &end, 0);
    return errno == 0 && text[0] >= '0' && text[0] <= '9' && *end == '\0';
}

static bool is_power_of_two(const struct sim_knob *key)
{
    return strcmp(key->name, "slots") == 0 || strcmp(key->name, "pe-slots") == 0 ||
           strcmp(key->name, "pe-replies") == 0;
}

/* Parses one "name=value"; modifies the text. */
static int parse_one(struct sim_changes *changes, char *item, char *ret_error, size_t error_bytes)
{
    char *equals = strchr(item, '=');
    int index = equals == NULL ? -1 : find_key(item, (size_t)(equals - item));
    if (index < 0) {
        snprintf(ret_error, error_bytes, "'%s' is not KEY=VALUE with a key that exists", item);
        return -EINVAL;
    }
    const struct sim_knob *key = &keys[index];
    uint64_t value;
    bool is_value = parse_value(key, equals + 1, &value);
    bool power = !is_power_of_two(key) || (value & (value - 1)) == 0;
    bool lines = strcmp(key->name, "frame") != 0 || value % 64 == 0;
    if (!is_value || value < key->min || value > key->max || !power || !lines) {
        snprintf(ret_error, error_bytes, "%s: '%s' is not a value for it", key->name, equals + 1);
        return -EINVAL;
    }
    changes->changed[index] = true;
    changes->values[index] = value;
    return 0;
}

int sim_changes_parse(struct sim_changes *changes, const char *text, char *ret_error,
                      size_t error_bytes)
{
    char *copy = strdup(text);
    char *rest = NULL;
    int rc = copy == NULL ? -ENOMEM : 0;
    for (char *item = rc == 0 ? strtok_r(copy, ",", &rest) : NULL; rc == 0 && item != NULL;
         item = strtok_r(NULL, ",", &rest)) {
        rc = parse_one(changes, item, ret_error, error_bytes);
    }
    free(copy);
    return rc;
}

int sim_mask_parse(struct sim_mask *mask, const char *text)
{
    memset(mask, 0xff, sizeof(*mask));
    if (strcmp(text, "none") == 0) {
        return 0;
    }
    while (*text >= '0' && *text <= '9') {
        char *end;
        unsigned long first = strtoul(text, &end, 10);
        unsigned long last = first;
        if (*end == '-') {
            text = end + 1;
            if (*text < '0' || *text > '9') {
                return -EINVAL;
            }
            last = strtoul(text, &end, 10);
        }
        if (first > last || last >= SIM_MASK_BITS) {
            return -EINVAL;
        }
        for (; first <= last; first++) {
            mask->left_out[first / 64] &= ~(UINT64_C(1) << (first % 64));
        }
        if (*end == '\0') {
            return 0;
        }
        text = *end == ',' ? end + 1 : "";
    }
    return -EINVAL;
}

struct text {
    char *at;
    size_t left;
};

static void VIA_PRINTF(2, 3) append(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text->at, text->left, format, args);
    va_end(args);
    size_t used = via_min((size_t)length, text->left - 1);
    text->at += used;
    text->left -= used;
}

static void append_value(struct text *out, const char *before, const struct sim_knob *key,
                         uint64_t value)
{
    if (key->names != NULL) {
        append(out, "%s%s=%s", before, key->name, key->names[value]);
    } else {
        append(out, "%s%s=%" PRIu64, before, key->name, value);
    }
}

void sim_config_text(const struct sim_config *config, char *text, size_t bytes)
{
    struct text out = {text, bytes};
    const char *before = "";
    text[0] = '\0';
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(keys); i++) {
        uint64_t value = knob_get(&keys[i], config);
        bool is_unset = keys[i].simplest == SIM_NO_SIMPLEST && value == 0; /* mood, like */
        if (value != keys[i].simplest && !is_unset) {
            append_value(&out, before, &keys[i], value);
            before = ",";
        }
    }
}
