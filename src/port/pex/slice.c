/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Slices of the window (port/slice.h): each is one A-LUT entry behind those of the inbox. The owner
 * maps the memory for the device, writes the A-LUT entry of the peer's BAR, then posts the exposure
 * number into the peer's page. Stores through a disabled entry are dropped.
 *
 * A process maps its slice with a descriptor that gives access to the whole BAR.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "port/emu/memory.h"
#include "port/pex/port.h"
#include "port/pex/regs.h"

#define SLICES_MIN 16u
#define READ_NS 1500u /* approximate time of a read; docs/pex-port.md */

static struct via_pex_port *port_of(struct via_port_slices *slices)
{
    return via_container_of((uintptr_t)slices, struct via_pex_port, slices.base);
}

/* --- the owner -------------------------------------------------------------------------------- */

static bool is_piece(const struct via_port_slices *slices, uint32_t slice, uint64_t off,
                     uint64_t bytes)
{
    return slice < slices->count && bytes != 0 && bytes <= slices->slice_bytes &&
           off % slices->slice_bytes == 0 && off <= INT64_MAX - slices->slice_bytes;
}

/* Posts the exposure number of the slice to the peer; 0: the slice shows nothing. */
static void publish_slice(struct via_pex_port *pex, uint32_t slice, uint64_t exposure)
{
    via_pex_store_word(pex, offsetof(struct via_pex_page, exposed) + slice * sizeof(uint64_t),
                       exposure);
    via_pex_drain(pex);
    via_pex_chip_ring(pex, 1); /* makes the peer read its page now */
}

static void take_back(struct via_pex_port *pex, uint32_t slice)
{
    struct via_pex_shown *shown = &pex->slices.shown[slice];
    if (shown->at == NULL) {
        return;
    }
    via_pex_chip_set_alut(pex, pex->slices.first + slice, 0, false);
    (void)pex->pci->ops->dma_unmap(pex->pci, shown->iova);
    munmap(shown->at, shown->bytes);
    *shown = (struct via_pex_shown){0};
}

static int show(struct via_pex_port *pex, uint32_t slice, int memory_fd, uint64_t off,
                uint64_t bytes)
{
    struct via_pex_shown *shown = &pex->slices.shown[slice];
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, (off_t)off);
    if (at == MAP_FAILED) {
        return -errno;
    }
    struct via_pci_memory memory = {
        .at = at, .bytes = bytes, .fd = memory_fd, .fd_off = off, .writable = true};
    uint64_t iova;
    int rc = pex->pci->ops->dma_map(pex->pci, &memory, pex->slices.base.slice_bytes, &iova);
    if (rc != 0) {
        munmap(at, bytes);
        return rc;
    }
    *shown = (struct via_pex_shown){.at = at, .bytes = bytes, .iova = iova};
    via_pex_chip_set_alut(pex, pex->slices.first + slice, iova, true);
    return 0;
}

static int expose(struct via_port_slices *slices, uint32_t slice, uint64_t exposure, int memory_fd,
                  uint64_t off, uint64_t bytes)
{
    struct via_pex_port *pex = port_of(slices);
    if (!is_piece(slices, slice, off, bytes) || exposure == 0) {
        return -EINVAL;
    }
    uint64_t whole = via_align_up(bytes, (uint64_t)VIA_PEX_PAGE_BYTES);
    int rc = via_emu_memfd_check(memory_fd, off + whole);
    if (rc != 0) {
        return rc;
    }
    if (!via_pex_port_is_up(pex)) {
        return -ENOLINK;
    }
    take_back(pex, slice);
    rc = show(pex, slice, memory_fd, off, whole);
    publish_slice(pex, slice, rc == 0 ? exposure : 0);
    return rc;
}

static void conceal(struct via_port_slices *slices, uint32_t slice)
{
    struct via_pex_port *pex = port_of(slices);
    if (slice >= slices->count) {
        return;
    }
    take_back(pex, slice);
    if (via_pex_port_is_up(pex)) {
        publish_slice(pex, slice, 0);
    }
}

/* --- the importer ----------------------------------------------------------------------------- */

static void forget(struct via_pex_port *pex, uint32_t slice)
{
    int *fd = &pex->slices.fds[slice];
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
    pex->slices.mapped[slice] = 0;
}

static int map(struct via_port_slices *slices, uint32_t slice, uint64_t exposure, int *ret_fd,
               uint64_t *ret_off)
{
    struct via_pex_port *pex = port_of(slices);
    if (slice >= slices->count) {
        return -EINVAL;
    }
    if (!via_pex_port_is_up(pex)) {
        return -ENOLINK;
    }
    /* Pairs with the owner's release store in publish_slice(). */
    uint64_t exposed = atomic_load_explicit(&pex->page->exposed[slice], memory_order_acquire);
    if (exposed != exposure || exposure == 0 || pex->slices.unmapped[slice] == exposure) {
        return -EAGAIN;
    }
    if (pex->slices.mapped[slice] != exposure) {
        forget(pex, slice);
        uint64_t off = pex->window_off + (pex->slices.first + slice) * slices->slice_bytes;
        int rc = pex->pci->ops->window_fd(pex->pci, pex->config.bar, off, slices->slice_bytes,
                                          &pex->slices.fds[slice], &pex->slices.offs[slice]);
        if (rc != 0) {
            pex->slices.fds[slice] = -1;
            return rc;
        }
        pex->slices.mapped[slice] = exposure;
    }
    *ret_fd = pex->slices.fds[slice];
    *ret_off = pex->slices.offs[slice];
    return 0;
}

static void unmap(struct via_port_slices *slices, uint32_t slice)
{
    struct via_pex_port *pex = port_of(slices);
    if (slice < slices->count) {
        pex->slices.unmapped[slice] = pex->slices.mapped[slice];
        forget(pex, slice);
    }
}

/* --- link down, open
 * --------------------------------------------------------------------------- */

void via_pex_slices_conceal(struct via_pex_port *pex)
{
    for (uint32_t i = 0; i < pex->slices.base.count; i++) {
        take_back(pex, i);
    }
}

void via_pex_slices_forget(struct via_pex_port *pex)
{
    for (uint32_t i = 0; i < pex->slices.base.count; i++) {
        forget(pex, i);
        pex->slices.unmapped[i] = 0;
        atomic_store_explicit(&pex->page->exposed[i], 0, memory_order_relaxed);
    }
}

static const struct via_port_slice_ops slice_ops = {
    .expose = expose,
    .conceal = conceal,
    .map = map,
    .unmap = unmap,
};

/* At most three quarters of the BAR are for pipes; each A-LUT entry behind them is a slice. Both
 * ends read the same registers, so they compute the same values. */
int via_pex_slices_init(struct via_pex_port *pex, uint64_t *bytes, struct via_error *err)
{
    const struct via_pex_chip *chip = &pex->chip;
    uint64_t own_bytes = chip->bar_bytes - pex->window_off;
    if (own_bytes != chip->peer_bar_bytes || chip->alut_entries < 2 * SLICES_MIN ||
        own_bytes / chip->alut_entries < VIA_PEX_PAGE_BYTES || pex->pci->ops->window_fd == NULL) {
        return via_error_set(err, -ENOTSUP,
                             "slices: BARs of %llu and %llu bytes, an A-LUT of %u entries, a "
                             "function that %s be mapped: they need BARs of one size, and entries "
                             "of a page at least",
                             (unsigned long long)own_bytes,
                             (unsigned long long)chip->peer_bar_bytes, chip->alut_entries,
                             pex->pci->ops->window_fd != NULL ? "can" : "can not");
    }
    uint64_t piece = own_bytes / chip->alut_entries;
    *bytes = via_align_down(via_min(*bytes, own_bytes / 4 * 3), piece);
    pex->slices.first = (unsigned)(*bytes / piece);
    pex->slices.base = (struct via_port_slices){
        .ops = &slice_ops,
        .count = via_min(chip->alut_entries - pex->slices.first, VIA_PEX_SLICES_MAX),
        .slice_bytes = piece,
        .read_ns = READ_NS,
        .combines = true, /* possibly; stores are fenced in any case */
        .shares_window = true,
    };
    for (uint32_t i = 0; i < VIA_PEX_SLICES_MAX; i++) {
        pex->slices.fds[i] = -1;
    }
    return 0;
}

struct via_port_slices *via_pex_port_slices(struct via_port *port)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    return pex->slices.base.count != 0 ? &pex->slices.base : NULL;
}
