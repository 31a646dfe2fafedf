/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Emulated slices (port/slice.h): the owner's end sends the descriptor of the memory over the
 * cable, and the importer's end passes it to the process. A mapping therefore detaches from its
 * slice: it shows the same memory as long as it exists. The storing process imitates the delays and
 * the order of stores through hardware (base/combine.h).
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "port/emu/cable.h"
#include "port/emu/memory.h"
#include "port/emu/port.h"

#define PAGE_BYTES 4096u
#define SLICES_MIN 32u /* least number in a window */

static struct via_emu_port *port_of(struct via_port_slices *slices)
{
    return via_container_of(slices, struct via_emu_port, slices);
}

static void forget(struct via_emu_slice *shown)
{
    if (shown->fd >= 0) {
        close(shown->fd);
    }
    *shown = (struct via_emu_slice){.fd = -1};
}

static uint32_t round_of(const struct via_emu_port *emu)
{
    return via_emu_bridge_link(emu->bridge) >> VIA_EMU_LINK_ROUND_SHIFT;
}

/* --- the owner -------------------------------------------------------------------------------- */

static bool is_piece(const struct via_port_slices *slices, uint32_t slice, uint64_t off,
                     uint64_t bytes)
{
    return slice < slices->count && bytes != 0 && bytes <= slices->slice_bytes &&
           off % slices->slice_bytes == 0 && off <= INT64_MAX - slices->slice_bytes;
}

static int send_shown(struct via_emu_port *emu, const struct via_emu_cable_slice *shown, int fd)
{
    if (!via_emu_port_is_up(emu)) {
        return -ENOLINK;
    }
    int rc = via_emu_cable_send(emu->cable_fd, VIA_EMU_CABLE_SLICE, shown, sizeof(*shown), &fd,
                                fd >= 0 ? 1 : 0);
    return rc == -EPIPE || rc == -ECONNRESET ? -ENOLINK : rc;
}

static int expose(struct via_port_slices *slices, uint32_t slice, uint64_t exposure, int memory_fd,
                  uint64_t off, uint64_t bytes)
{
    struct via_emu_port *emu = port_of(slices);
    if (!is_piece(slices, slice, off, bytes) || exposure == 0) {
        return -EINVAL;
    }
    int rc = via_emu_memfd_check(memory_fd, off + bytes);
    if (rc != 0) {
        return rc;
    }
    struct via_emu_cable_slice shown = {
        .round = round_of(emu), .slice = slice, .exposure = exposure, .off = off, .bytes = bytes};
    return send_shown(emu, &shown, memory_fd);
}

static void conceal(struct via_port_slices *slices, uint32_t slice)
{
    struct via_emu_port *emu = port_of(slices);
    if (slice < slices->count) {
        struct via_emu_cable_slice shown = {.round = round_of(emu), .slice = slice};
        /* If it fails, the importer keeps the descriptor until the next exposure. */
        (void)send_shown(emu, &shown, -1);
    }
}

/* --- the importer ----------------------------------------------------------------------------- */

static int map(struct via_port_slices *slices, uint32_t slice, uint64_t exposure, int *ret_fd,
               uint64_t *ret_off)
{
    struct via_emu_port *emu = port_of(slices);
    if (slice >= slices->count) {
        return -EINVAL;
    }
    if (!via_emu_port_is_up(emu)) {
        return -ENOLINK;
    }
    const struct via_emu_slice *shown = &emu->shown[slice];
    if (shown->fd < 0 || shown->exposure != exposure) {
        return -EAGAIN;
    }
    *ret_fd = shown->fd;
    *ret_off = shown->off;
    return 0;
}

static void unmap(struct via_port_slices *slices, uint32_t slice)
{
    if (slice < slices->count) {
        forget(&port_of(slices)->shown[slice]);
    }
}

bool via_emu_slice_take(struct via_emu_port *emu, struct via_emu_cable_message *message)
{
    struct via_emu_cable_slice shown;
    if (message->body_bytes != sizeof(shown) || message->fds_count > 1) {
        return false;
    }
    memcpy(&shown, message->body, sizeof(shown));
    if (!via_emu_port_is_up(emu) || shown.round != round_of(emu) ||
        shown.slice >= emu->slices.count) {
        return false; /* sent before the link went down, or the peer's window has more slices */
    }
    struct via_emu_slice *slice = &emu->shown[shown.slice];
    if (message->fds_count == 0) {
        forget(slice);
        return true;
    }
    if (!is_piece(&emu->slices, shown.slice, shown.off, shown.bytes) ||
        via_emu_memfd_check(message->fds[0], shown.off + shown.bytes) != 0) {
        return false;
    }
    forget(slice);
    *slice =
        (struct via_emu_slice){.exposure = shown.exposure, .off = shown.off, .fd = message->fds[0]};
    message->fds[0] = -1;
    return true;
}

void via_emu_slices_forget(struct via_emu_port *emu)
{
    for (uint32_t i = 0; i < VIA_EMU_SLICES_MAX; i++) {
        forget(&emu->shown[i]);
    }
}

/* --- open ------------------------------------------------------------------------------------- */

static const struct via_port_slice_ops slice_ops = {
    .expose = expose,
    .conceal = conceal,
    .map = map,
    .unmap = unmap,
};

/* The inbox, for the pipes, gets inbox_bytes, but at most three quarters of the window and at least
 * inbox_bytes_min. The rest of the window is slices. */
uint64_t via_emu_slices_init(struct via_emu_port *emu, const struct via_emu_options *options,
                             uint64_t window_bytes)
{
    for (uint32_t i = 0; i < VIA_EMU_SLICES_MAX; i++) {
        emu->shown[i].fd = -1;
    }
    if (!options->slices || !emu->like->slices) {
        return window_bytes;
    }
    uint64_t most = via_align_down(window_bytes / 4 * 3, PAGE_BYTES);
    uint64_t inbox_bytes = via_min(
        via_max(via_min(options->inbox_bytes, most), options->inbox_bytes_min), window_bytes);
    uint64_t rest = window_bytes - inbox_bytes;
    /* Computed from the window alone, so that both ends get the same size even if their inboxes
     * differ. */
    uint64_t slice_bytes = UINT64_C(1) << via_log2_u64(window_bytes / 4 / SLICES_MIN);
    emu->slices = (struct via_port_slices){
        .ops = &slice_ops,
        .count = (uint32_t)via_min(rest / slice_bytes, (uint64_t)VIA_EMU_SLICES_MAX),
        .slice_bytes = slice_bytes,
        .read_ns = emu->like->read_ns,
        .combines = !emu->like->coherent,
        .imitates = !emu->like->coherent,
        .detaches = true,
    };
    return inbox_bytes;
}

struct via_port_slices *via_emu_port_slices(struct via_port *port)
{
    struct via_emu_port *emu = via_emu_port_of(port);
    return emu->slices.count != 0 ? &emu->slices : NULL;
}
