/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The emulated port for the suite, bare and wrapped in a fault port that injects no fault. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "port/emu/emu.h"
#include "port/emu/like.h"
#include "port/emu/memory.h"
#include "port/fault.h"
#include "port_conform.h"

struct emu_end {
    struct via_port *emu;
    struct via_port *fault; /* NULL: bare */
    int bell_fd;
};

static void cut_emu(void *ctx, struct via_port *inner, bool cut)
{
    (void)ctx;
    via_emu_port_cut(inner, cut);
}

static uint64_t seed(void)
{
    const char *text = getenv("VIADUCT_EMU_SEED");
    return text != NULL ? strtoull(text, NULL, 10) : 1;
}

static int open_emu(struct conform_end *end, const char *directory, const char *like, bool direct,
                    bool fault, unsigned dma_depth)
{
    struct emu_end *state = calloc(1, sizeof(*state));
    struct via_error err = {0};
    char path[96];

    int rc = via_emu_memfd_new("conform-bell", 4096, &state->bell_fd);
    if (rc != 0) {
        free(state);
        return rc;
    }
    end->bell = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, state->bell_fd, 0);
    snprintf(path, sizeof(path), "%s/link-1-2-0.sock", directory);
    struct via_emu_options options = {
        .path = path,
        .side = end->side,
        .host = (uint16_t)(end->side + 1),
        .inbox_bytes = CONFORM_INBOX_BYTES,
        .bell_fd = state->bell_fd,
        .bell_lines = CONFORM_BELL_LINES,
        .direct = direct,
        .like = via_emu_like_find(like),
        .window_bytes =
            via_emu_like_find(like)->window_bytes_max != 0 ? VIA_EMU_WINDOW_BYTES_MIN : 0,
        .seed = seed(),
        .dma_depth = dma_depth,
    };
    rc = via_emu_port_open(&options, &state->emu, &err);
    if (rc != 0) {
        fprintf(stderr, "%s\n", err.text);
        munmap(end->bell, 4096);
        close(state->bell_fd);
        free(state);
        return rc;
    }
    end->port = state->emu;
    if (fault) {
        struct via_fault_plan plan = {.cut = cut_emu};
        if (via_fault_port_open(state->emu, &plan, &state->fault) != 0) {
            abort();
        }
        end->port = state->fault;
    }
    end->state = state;
    return 0;
}

#define OPEN(name, like, direct, fault, dma_depth)                       \
    static int name(struct conform_end *end, const char *directory)      \
    {                                                                    \
        return open_emu(end, directory, like, direct, fault, dma_depth); \
    }
OPEN(open_direct, "memory", true, false, 0)
OPEN(open_indirect, "memory", false, false, 0)
OPEN(open_dma, "memory", true, false, 5)
OPEN(open_pex, "pex", false, false, 0)
OPEN(open_pex_dma, "pex", false, false, 5)
OPEN(open_ivshmem, "ivshmem", true, false, 0)
OPEN(open_network, "network", false, false, 0)
OPEN(open_fault_direct, "memory", true, true, 0)
OPEN(open_fault_indirect, "memory", false, true, 0)
OPEN(open_fault_dma, "memory", false, true, 5)

static int emu_fd(struct conform_end *end)
{
    struct emu_end *state = end->state;
    return via_emu_port_fd(state->emu);
}

static void emu_service(struct conform_end *end, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    struct emu_end *state = end->state;
    uint64_t fault_ns = VIA_NEVER_NS;
    if (state->fault != NULL) {
        via_fault_port_pump(state->fault, now_ns, &fault_ns);
    }
    via_emu_port_service(state->emu, now_ns, ret_deadline_ns);
    *ret_deadline_ns = via_min(*ret_deadline_ns, fault_ns);
}

static void emu_cut(struct conform_end *end, bool cut)
{
    struct emu_end *state = end->state;
    if (state->fault != NULL) {
        via_fault_port_cut(state->fault, cut);
    } else {
        via_emu_port_cut(state->emu, cut);
    }
}

static uint64_t emu_puts_out_of_bounds(struct conform_end *end)
{
    struct emu_end *state = end->state;
    struct via_emu_status status;
    via_emu_port_status(state->emu, &status);
    return status.puts_out_of_bounds;
}

static void emu_close(struct conform_end *end)
{
    struct emu_end *state = end->state;
    end->port->ops->close(end->port);
    munmap(end->bell, 4096);
    close(state->bell_fd);
    free(state);
}

#define EMU_KIND(symbol, text, opens, own, engine, survive) \
    const struct conform_kind symbol = {                    \
        .name = text,                                       \
        .cut_is_own = own,                                  \
        .only_dma = engine,                                 \
        .scratchpads_survive = survive,                     \
        .open = opens,                                      \
        .fd = emu_fd,                                       \
        .service = emu_service,                             \
        .cut = emu_cut,                                     \
        .puts_out_of_bounds = emu_puts_out_of_bounds,       \
        .close = emu_close,                                 \
    }

EMU_KIND(conform_emu_direct, "emu direct", open_direct, false, false, false);
EMU_KIND(conform_emu_indirect, "emu by functions", open_indirect, false, false, false);
EMU_KIND(conform_emu_dma, "emu direct with DMA", open_dma, false, true, false);
EMU_KIND(conform_emu_pex, "emu like pex", open_pex, false, false, true);
EMU_KIND(conform_emu_pex_dma, "emu like pex with DMA", open_pex_dma, false, true, true);
EMU_KIND(conform_emu_ivshmem, "emu like ivshmem", open_ivshmem, false, false, true);
EMU_KIND(conform_emu_network, "emu like network", open_network, false, false, false);
EMU_KIND(conform_fault_direct, "fault over emu direct", open_fault_direct, true, false, false);
EMU_KIND(conform_fault_indirect, "fault over emu by functions", open_fault_indirect, true, false,
         false);
EMU_KIND(conform_fault_dma, "fault over emu by functions with DMA", open_fault_dma, true, true,
         false);
