/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The ofi port for the suite: both ends use loopback addresses of their own, so that several runs
 * of the suite do not collide. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "port/ofi/driver.h"
#include "port/ofi/ops.h"
#include "port_conform.h"
#include "sim/ofi/mac.h"

struct ofi_end {
    struct via_driver_host host;
    struct via_bell *bells;
};

static void wake(void *ctx, unsigned thread)
{
    struct ofi_end *state = ctx;
    via_bell_ring(&state->bells[thread != VIA_DRIVER_CONTROL ? thread : CONFORM_BELL_CONTROL]);
}

/* The same for both ends of a link, and for no other link of this machine at this time. */
static void find_addresses(const char *directory, char ret_addresses[2][32])
{
    uint32_t hash = 2166136261u;
    for (const char *at = directory; *at != '\0'; at++) {
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    }
    for (unsigned side = 0; side < 2; side++) {
        snprintf(ret_addresses[side], sizeof(ret_addresses[side]), "127.%u.%u.%u",
                 64 + (hash >> 16) % 64, (hash >> 8) & 0xff, (hash & 0x7e) + 1 + side);
    }
}

/* A function of a key that both ends have; no test tries to break it here. */
static void mac(void *ctx, const void *data, size_t bytes, uint8_t ret_mac[32])
{
    (void)ctx;
    sim_ofi_mac(1, data, bytes, ret_mac);
}

enum kind { ORDERED, UNORDERED, ENCRYPTED };

static int open_ofi(struct conform_end *end, const char *directory, enum kind kind, bool dma)
{
    char addresses[2][32];
    struct ofi_end *state = calloc(1, sizeof(*state));
    struct via_error err = {0};
    state->bells = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    state->host = (struct via_driver_host){
        .host = (uint16_t)(end->side + 1),
        .peer = (uint16_t)(2 - end->side),
        .inbox_bytes = CONFORM_INBOX_BYTES,
        .inbox_bytes_min = CONFORM_INBOX_BYTES,
        .threads_count = CONFORM_BELL_LINES,
        .dma = dma,
        .wake = wake,
        .mac = kind == ENCRYPTED ? mac : NULL,
        .ctx = state,
    };
    find_addresses(directory, addresses);
    struct via_ofi_options options = {
        .system = &via_ofi_system,
        .provider = "tcp",
        .place.port = VIA_OFI_PORT_DEFAULT,
        .listen.port = VIA_OFI_PORT_DEFAULT,
        .unordered = kind == UNORDERED,
        .encrypted = kind == ENCRYPTED,
        .host = &state->host,
    };
    snprintf(options.place.host, sizeof(options.place.host), "%s", addresses[1 - end->side]);
    snprintf(options.listen.host, sizeof(options.listen.host), "%s", addresses[end->side]);
    int rc = via_ofi_port_open(&options, &end->port, &err);
    if (rc != 0) {
        fprintf(stderr, "%s\n", err.text);
        munmap(state->bells, 4096);
        free(state);
        return rc;
    }
    end->bell = state->bells;
    end->state = state;
    return 0;
}

#define OPEN(name, kind, dma)                                       \
    static int name(struct conform_end *end, const char *directory) \
    {                                                               \
        return open_ofi(end, directory, kind, dma);                 \
    }
OPEN(open_ordered, ORDERED, false)
OPEN(open_unordered, UNORDERED, false)
OPEN(open_encrypted, ENCRYPTED, false)
OPEN(open_dma, ORDERED, true)
OPEN(open_unordered_dma, UNORDERED, true)

static int ofi_fd(struct conform_end *end)
{
    return via_ofi_driver.fd(end->port);
}

static void ofi_service(struct conform_end *end, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    (void)via_ofi_driver.service(end->port, now_ns, ret_deadline_ns);
}

static void ofi_cut(struct conform_end *end, bool cut)
{
    via_ofi_driver.cut(end->port, cut);
}

static uint64_t ofi_puts_out_of_bounds(struct conform_end *end)
{
    return via_ofi_puts_out_of_bounds(end->port);
}

static void ofi_close(struct conform_end *end)
{
    struct ofi_end *state = end->state;
    end->port->ops->close(end->port);
    munmap(state->bells, 4096);
    free(state);
}

#define OFI_KIND(symbol, text, opens, engine)         \
    const struct conform_kind symbol = {              \
        .name = text,                                 \
        .only_dma = engine,                           \
        .doorbells_travel = true,                     \
        .open = opens,                                \
        .fd = ofi_fd,                                 \
        .service = ofi_service,                       \
        .cut = ofi_cut,                               \
        .puts_out_of_bounds = ofi_puts_out_of_bounds, \
        .close = ofi_close,                           \
    }

OFI_KIND(conform_ofi, "ofi over tcp", open_ordered, false);
OFI_KIND(conform_ofi_unordered, "ofi over tcp, unordered", open_unordered, false);
OFI_KIND(conform_ofi_encrypted, "ofi over tcp, encrypted", open_encrypted, false);
OFI_KIND(conform_ofi_dma, "ofi over tcp with DMA", open_dma, true);
OFI_KIND(conform_ofi_unordered_dma, "ofi over tcp, unordered, with DMA", open_unordered_dma, true);
