/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "daemon/number.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log_writer.h"

#define FIELD(member) \
    offsetof(struct via_daemon_options, member), sizeof(((struct via_daemon_options *)NULL)->member)

static const struct via_daemon_number numbers[] = {
    {"host", FIELD(host.host), false, 0, VIA_HOSTS_MAX - 1, 0, 1, 0},
    {"hosts-max", FIELD(host.hosts_max), false, 1, VIA_HOSTS_MAX, 64, 1, 0},
    {"channels", FIELD(host.channels_count), false, 1, VIA_CHANNELS_MAX, 2, 1, 0},
    {"slots", FIELD(host.pipe_slots), false, 1, 65536, 32, 1, 0},
    {"frame-bytes", FIELD(host.frame_bytes_max), false, 64, 65472, 32768, 1, 0},
    {"dma-bytes", FIELD(host.dma_bytes_min), false, 0, 65472, 0, 1, 0},
    {"give-up-ms", FIELD(host.give_up_ns), true, 0, 86400000, 120000, VIA_MSEC_NS, VIA_NEVER_NS},
    {"wait-ms", FIELD(host.wait_ns_max), true, 0, 86400000, 600000, VIA_MSEC_NS, VIA_NEVER_NS},
    {"heartbeat-ms", FIELD(host.heartbeat_ns), false, 1, 60000, 25, VIA_MSEC_NS, 0},
    {"dead-ms", FIELD(host.dead_ns), false, 1, 600000, 80, VIA_MSEC_NS, 0},
    {"spin-us", FIELD(host.spin_ns_max), true, 0, 10000, 50, VIA_USEC_NS, 1},
    {"processes", FIELD(host.processes_max), false, 1, 4096, 256, 1, 0},
    {"links", FIELD(host.links_max), false, 1, VIA_PORTS_MAX, VIA_DAEMON_LINKS_MAX, 1, 0},
    {"log-bytes", FIELD(log_bytes), false, VIA_DAEMON_LOG_BYTES_MIN, 1u << 30, VIA_DAEMON_LOG_BYTES,
     1, 0},
    {"ready-fd", FIELD(ready_fd), false, 0, 1u << 20, 0, 1, 0},
    {"with", FIELD(with), false, 1, INT32_MAX, 0, 1, 0},
    {"protocol-version", FIELD(host.protocol_version), false, 1, 255, VIA_PROTOCOL_VERSION, 1, 0},
};

const struct via_daemon_number *via_daemon_number_find(const char *name)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(numbers); i++) {
        if (strcmp(numbers[i].name, name) == 0) {
            return &numbers[i];
        }
    }
    return NULL;
}

bool via_daemon_number_parse(const char *text, uint64_t min, uint64_t max, uint64_t *ret_number)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || number < min ||
        number > max) {
        return false;
    }
    *ret_number = number;
    return true;
}

static void store(void *field, unsigned bytes, uint64_t value)
{
    switch (bytes) {
    case 1:
        *(uint8_t *)field = (uint8_t)value;
        break;
    case 2:
        *(uint16_t *)field = (uint16_t)value;
        break;
    case 4:
        *(uint32_t *)field = (uint32_t)value;
        break;
    default:
        *(uint64_t *)field = value;
    }
}

static uint64_t load(const void *field, unsigned bytes)
{
    switch (bytes) {
    case 1:
        return *(const uint8_t *)field;
    case 2:
        return *(const uint16_t *)field;
    case 4:
        return *(const uint32_t *)field;
    default:
        return *(const uint64_t *)field;
    }
}

int via_daemon_number_set(const struct via_daemon_number *number,
                          struct via_daemon_options *options, const char *text,
                          struct via_error *err)
{
    uint64_t value;
    if (!via_daemon_number_parse(text, number->min, number->max, &value)) {
        return via_error_set(err, -EINVAL, "a number from %" PRIu64 " to %" PRIu64 " is expected",
                             number->min, number->max);
    }
    store((char *)options + number->offset, number->bytes,
          value == 0 && number->zero_is_stored ? number->zero : value * number->scale);
    return 0;
}

uint64_t via_daemon_number_get(const struct via_daemon_number *number,
                               const struct via_daemon_options *options)
{
    uint64_t value = load((const char *)options + number->offset, number->bytes);
    if (number->zero_is_stored && value == number->zero) {
        return 0;
    }
    return value != 0 ? value / number->scale : number->otherwise;
}
