/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "ip/hello.h"

#include <errno.h>
#include <string.h>

#include "ip/ring.h"

/* Common to all versions: magic and version. */
#define BEGINNING_BYTES offsetof(struct via_ip_hello, type)

int via_ip_hello_check(const void *data, size_t bytes, struct via_ip_hello *ret_hello,
                       uint16_t *ret_version)
{
    struct via_ip_hello hello = {0};
    if (bytes < BEGINNING_BYTES) {
        return -EPROTO;
    }
    memcpy(&hello, data, via_min(bytes, sizeof(hello)));
    if (hello.magic != VIA_IP_HELLO_MAGIC) {
        return -EPROTO;
    }
    if (hello.version != VIA_IP_HELLO_VERSION) {
        *ret_version = hello.version;
        return -EPROTONOSUPPORT;
    }
    bool has_inbox = hello.type == VIA_IP_HELLO_OFFER || hello.type == VIA_IP_HELLO_ACCEPT;
    if (bytes != sizeof(hello) || hello.type < VIA_IP_HELLO_OFFER ||
        hello.type > VIA_IP_HELLO_BYE || hello.queues == 0 || hello.queues > VIA_IP_QUEUES_MAX ||
        (has_inbox && (hello.session == 0 || !via_ip_ring_is_size(hello.ring_bytes)))) {
        return -EPROTO;
    }
    *ret_hello = hello;
    return 0;
}
