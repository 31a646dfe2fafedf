/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The pex port for the suite, on the register model in the same process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "port/bell.h"
#include "port/driver.h"
#include "port/pex/driver.h"
#include "port/pex/port.h"
#include "port_conform.h"

struct pex_end {
    struct via_driver_host host; /* outlives the port */
    struct via_bell bells[CONFORM_BELL_LINES];
};

static void wake(void *ctx, unsigned thread)
{
    struct pex_end *state = ctx;
    via_bell_ring(&state->bells[thread]);
}

static int open_pex(struct conform_end *end, const char *directory, const char *options)
{
    struct via_error err = {0};
    struct via_link_config config;
    char text[VIA_LINK_DESCRIPTION_BYTES];
    struct pex_end *state = aligned_alloc(VIA_CACHELINE, VIA_ALIGN_UP(sizeof(*state), 64));
    memset(state, 0, sizeof(*state));
    state->host = (struct via_driver_host){.host = (uint16_t)(end->side + 1),
                                           .inbox_bytes = CONFORM_INBOX_BYTES,
                                           .inbox_bytes_min = CONFORM_INBOX_BYTES,
                                           .threads_count = CONFORM_BELL_LINES,
                                           .bell_fd = -1,
                                           .wake = wake,
                                           .ctx = state};
    snprintf(text, sizeof(text), "pex:model:%s,side=%s%s", directory,
             end->side == 0 ? "virtual" : "link", options);
    int rc = via_link_parse(text, &config, &err);
    if (rc == 0) {
        rc = via_pex_driver.open(config.config, &state->host, &end->port, &err);
    }
    if (rc != 0) {
        fprintf(stderr, "%s\n", err.text);
        free(state);
        return rc;
    }
    end->bell = state->bells;
    end->state = state;
    return 0;
}

#define OPEN(name, options)                                         \
    static int name(struct conform_end *end, const char *directory) \
    {                                                               \
        return open_pex(end, directory, options);                   \
    }
OPEN(open_plain, "")
OPEN(open_alut, ",alut,window=2MiB,irq=intx")
OPEN(open_polls, ",irq=none,window=1MiB")

static int pex_fd(struct conform_end *end)
{
    return via_pex_driver.fd(end->port);
}

static void pex_service(struct conform_end *end, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    via_pex_driver.service(end->port, now_ns, ret_deadline_ns);
}

static void pex_cut(struct conform_end *end, bool cut)
{
    via_pex_driver.cut(end->port, cut);
}

static uint64_t pex_puts_out_of_bounds(struct conform_end *end)
{
    return atomic_load(&via_pex_port_of(end->port)->counters.puts_out_of_bounds);
}

static void pex_close(struct conform_end *end)
{
    end->port->ops->close(end->port);
    free(end->state);
}

#define PEX_KIND(symbol, text, opens)                 \
    const struct conform_kind symbol = {              \
        .name = text,                                 \
        .cut_is_own = true,                           \
        .scratchpads_survive = true,                  \
        .open = opens,                                \
        .fd = pex_fd,                                 \
        .service = pex_service,                       \
        .cut = pex_cut,                               \
        .puts_out_of_bounds = pex_puts_out_of_bounds, \
        .close = pex_close,                           \
    }
PEX_KIND(conform_pex, "pex on the model", open_plain);
PEX_KIND(conform_pex_alut, "pex on the model, A-LUT, INTx", open_alut);
PEX_KIND(conform_pex_polls, "pex on the model, no interrupts", open_polls);
