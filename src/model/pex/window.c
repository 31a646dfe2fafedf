/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Memory BARs: translation of accesses, and mappings that follow the translation. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/hash.h"
#include "model/pex/chip.h"

#define TRANSLATION 0xC3Cu
#define ALUT_ENABLE 0xC94u
#define ALUT_BASE 0x38000u
#define LINK_SETUP0 0x0E4u
#define LUT_ENTRIES 32u
#define PAGE_BYTES 4096u
#define ONES_BYTES ((size_t)1 << 20)

static enum via_pex_side other(enum via_pex_side side)
{
    return side == VIA_PEX_VIRTUAL ? VIA_PEX_LINK : VIA_PEX_VIRTUAL;
}

/* --- access checks --- */

/* The index of a requester in the table; negative: none. */
static int find_requester(struct via_pex *pex, enum via_pex_side side, uint32_t requester)
{
    uint32_t off = side == VIA_PEX_LINK || pex->options.switches.lut_at_db4 ? 0xDB4u : 0xD94u;
    for (unsigned i = 0; i < LUT_ENTRIES; i++) {
        uint32_t entry = *via_pex_reg(pex, side, off + 4 * (i / 2)) >> (i % 2 * 16) & 0xffff;
        if ((entry & 1) != 0 && entry >> 3 == requester >> 3) {
            return (int)i; /* the function number is not compared (FreeBSD: passed through) */
        }
    }
    return -1;
}

/* True if the BAR of `side` decodes accesses, and the other side may master its bus. */
static bool is_open(struct via_pex *pex, enum via_pex_side side, unsigned bar)
{
    uint32_t mine = *via_pex_reg(pex, side, VIA_PCI_COMMAND);
    uint32_t theirs = *via_pex_reg(pex, other(side), VIA_PCI_COMMAND);
    uint32_t low = *via_pex_reg(pex, side, VIA_PCI_BAR(2 + 2 * bar));
    uint32_t high = *via_pex_reg(pex, side, VIA_PCI_BAR(3 + 2 * bar));
    return via_pex_link_is_up(pex) && !pex->function[side].removed &&
           !pex->function[other(side)].removed && (mine & VIA_PCI_COMMAND_MEMORY) != 0 &&
           (low | high) != 0 && (theirs & VIA_PCI_COMMAND_MASTER) != 0;
}

/* --- translation --- */

static bool alut_is_on(struct via_pex *pex, enum via_pex_side side, unsigned bar)
{
    const struct via_pex_switches *switches = &pex->options.switches;
    uint32_t needed = switches->alut_needs_bit_31 ? 0x90000000u : 0x10000000u;
    uint32_t enable =
        *via_pex_reg(pex, switches->alut_enable_at_bar ? side : other(side), ALUT_ENABLE);
    return pex->options.alut_entries != 0 && bar == 0 && (enable & needed) == needed;
}

/* The entry of the array that translates the BAR of `side`. FreeBSD: the driver of the virtual
 * side, whose memory the link side's BAR shows, fills array 1. */
static uint32_t alut_entry(const struct via_pex *pex, enum via_pex_side side, unsigned entry)
{
    bool wide = pex->options.alut_entries == 256;
    uint32_t array = (side == VIA_PEX_LINK ? 1u : 0u) + (wide ? 0 : 2 * pex->options.nt);
    return ALUT_BASE + array * (wide ? 0x2000u : 0x1000u) + entry % 128 * 4 +
           (entry >= 128 ? 0x1000u : 0);
}

/* The address on the other side, and the number of contiguous bytes from there. false: refused. */
static bool translate(struct via_pex *pex, enum via_pex_side side, unsigned bar, uint64_t off,
                      uint64_t *ret_address, uint64_t *ret_bytes)
{
    uint64_t bytes = via_pex_bar_bytes(pex, side, bar);
    if (alut_is_on(pex, side, bar)) {
        uint64_t piece = bytes / pex->options.alut_entries;
        uint32_t at = alut_entry(pex, side, (unsigned)(off / piece));
        uint64_t address = pex->regs[at / 4] | (uint64_t)pex->regs[(at + 0x400) / 4] << 32;
        *ret_bytes = piece - off % piece;
        *ret_address = (address & ~(piece - 1)) + off % piece;
        return (pex->regs[(at + 0x800) / 4] & 3) == 3;
    }
    uint64_t address = *via_pex_reg(pex, side, TRANSLATION + 8 * bar) |
                       (uint64_t)*via_pex_reg(pex, side, TRANSLATION + 8 * bar + 4) << 32;
    *ret_bytes = bytes - off;
    *ret_address = (address & ~(bytes - 1)) + off;
    return true;
}

/* Looks up an address in the host's IOMMU. */
static struct via_pex_run reach(struct via_pex_function *function, uint64_t address, uint64_t bytes)
{
    struct via_pex_run run = {.bytes = bytes};
    for (unsigned i = 0; i < function->domain.dmas_count; i++) {
        const struct via_pex_dma *dma = &function->domain.dmas[i];
        if (address >= dma->iova && address - dma->iova < dma->bytes && dma->writable) {
            run.dma = dma;
            run.off = address - dma->iova;
            run.bytes = via_min(bytes, dma->bytes - run.off);
            return run;
        }
        if (dma->iova > address && dma->writable) {
            run.bytes = via_min(run.bytes, dma->iova - address);
        }
    }
    return run;
}

/* --- two chips back to back --- */

/* The address range on the cable that a BAR of a link side claims; 0: none. bar VIA_PEX_BARS is the
 * BAR of the registers. */
static uint64_t claim_of(struct via_pex *pex, unsigned bar, uint64_t *ret_at)
{
    unsigned index = bar == VIA_PEX_BARS ? 0 : 2 + 2 * bar;
    uint32_t setup = *via_pex_reg(pex, VIA_PEX_LINK, LINK_SETUP0);
    uint64_t bytes = bar != VIA_PEX_BARS ? via_pex_bar_bytes(pex, VIA_PEX_LINK, bar)
                     : setup >= 2        ? VIA_PEX_CHIP_BYTES
                                         : 0;
    uint64_t high = bar != VIA_PEX_BARS || setup == 3
                        ? *via_pex_reg(pex, VIA_PEX_LINK, VIA_PCI_BAR(index + 1))
                        : 0;
    uint64_t low = *via_pex_reg(pex, VIA_PEX_LINK, VIA_PCI_BAR(index)) & ~UINT32_C(0xf);
    unsigned pair = bar == VIA_PEX_BARS ? 0 : 1 + bar;
    bool is_copied = !pex->options.switches.shadows_bars || (pex->bars_copied >> pair & 1) != 0;
    *ret_at = high << 32 | low;
    return *ret_at != 0 && is_copied ? bytes : 0;
}

/* Handles a request from the cable. Its requester id is the index i of the other chip's table
 * entry, as device number i of bus 0 (FreeBSD: "slot field keeps LUT index"). */
static struct via_pex_run take_from_cable(struct via_pex *pex, uint64_t address, uint64_t bytes,
                                          unsigned entry, bool counts)
{
    struct via_pex_run run = {.bytes = bytes};
    bool decodes = (*via_pex_reg(pex, VIA_PEX_LINK, VIA_PCI_COMMAND) & VIA_PCI_COMMAND_MEMORY) != 0;
    for (unsigned bar = 0; bar <= VIA_PEX_BARS && decodes; bar++) {
        uint64_t at, whole = claim_of(pex, bar, &at);
        if (whole == 0 || address >= at + whole) {
            continue;
        }
        if (address < at) {
            run.bytes = via_min(run.bytes, at - address);
            continue;
        }
        if (bar != VIA_PEX_BARS) {
            run = via_pex_resolve_from(pex, VIA_PEX_LINK, bar, address - at, (uint16_t)(entry << 3),
                                       counts);
        } else if (find_requester(pex, VIA_PEX_LINK, entry << 3) >= 0) {
            run = (struct via_pex_run){
                .registers = pex, .off = address - at, .bytes = at + whole - address};
        }
        run.bytes = via_min(via_min(run.bytes, bytes), at + whole - address);
        return run;
    }
    pex->stats.unclaimed += counts;
    return run;
}

struct via_pex_run via_pex_resolve(struct via_pex *pex, enum via_pex_side side, unsigned bar,
                                   uint64_t off, bool counts)
{
    return via_pex_resolve_from(pex, side, bar, off, pex->options.requester[side], counts);
}

struct via_pex_run via_pex_resolve_from(struct via_pex *pex, enum via_pex_side side, unsigned bar,
                                        uint64_t off, uint16_t requester, bool counts)
{
    struct via_pex_run nothing = {.bytes = via_pex_bar_bytes(pex, side, bar) - off};
    uint64_t address, bytes;
    if (!is_open(pex, side, bar)) {
        pex->stats.unclaimed += counts;
        return nothing;
    }
    int entry = find_requester(pex, side, requester);
    if (entry < 0) {
        pex->stats.requester_refused += counts;
        return nothing;
    }
    if (!translate(pex, side, bar, off, &address, &bytes)) {
        nothing.bytes = bytes;
        pex->stats.unclaimed += counts;
        return nothing;
    }
    if (pex->joined != NULL && side == VIA_PEX_VIRTUAL) {
        return take_from_cable(pex->joined, address, bytes, (unsigned)entry, counts);
    }
    struct via_pex_run run = reach(&pex->function[other(side)], address, bytes);
    pex->stats.iommu_faults += counts && run.dma == NULL;
    return run;
}

/* --- mappings --- */

int via_pex_ones_new(int *ret_fd)
{
    unsigned char page[PAGE_BYTES];
    int fd = memfd_create("viaduct-pex-ones", MFD_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    memset(page, 0xff, sizeof(page));
    for (size_t off = 0; off < ONES_BYTES; off += sizeof(page)) {
        ssize_t done = pwrite(fd, page, sizeof(page), (off_t)off);
        if (done != (ssize_t)sizeof(page)) {
            int rc = done < 0 ? -errno : -ENOSPC;
            close(fd);
            return rc;
        }
    }
    *ret_fd = fd;
    return 0;
}

/* Replaces a mapping while threads store there: they access the old or the new memory (Linux,
 * mm/mmap.c, mmap_region). By system call, because ThreadSanitizer models mmap() as a write. */
static bool map_over(unsigned char *at, uint64_t bytes, int flags, int fd, uint64_t off)
{
    return syscall(SYS_mmap, at, (size_t)bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd,
                   (long)off) != -1;
}

static bool show_ones(const struct via_pex *pex, unsigned char *at, uint64_t bytes)
{
    bool mapped = true;
    for (uint64_t off = 0; off < bytes && mapped; off += ONES_BYTES) {
        mapped = map_over(at + off, via_min(bytes - off, (uint64_t)ONES_BYTES),
                          MAP_PRIVATE | MAP_NORESERVE, pex->ones_fd, 0);
    }
    return mapped;
}

/* True if the run can be mapped: whole pages of memory with a descriptor. */
static bool is_show_possible(const struct via_pex_run *run)
{
    return run->dma != NULL && run->dma->fd >= 0 &&
           (run->dma->fd_off + run->off) % PAGE_BYTES == 0 && run->bytes % PAGE_BYTES == 0;
}

/* Walks the runs of a view, and maps them or only computes their hash. */
static bool walk(struct via_pex_function *function, struct via_pex_view *view, bool maps,
                 uint64_t *ret_hash)
{
    struct via_pex *pex = function->pex;
    uint64_t hash = VIA_HASH64_INIT;
    bool mapped = true;
    for (uint64_t off = 0; off < view->bytes && mapped;) {
        struct via_pex_run run =
            via_pex_resolve(pex, function->side, view->bar, view->off + off, false);
        uint64_t bytes = via_min(run.bytes, view->bytes - off);
        run.bytes = bytes;
        bool shows = is_show_possible(&run);
        uint64_t what[] = {off, bytes, shows ? run.dma->fd_off + run.off + 1 : 0,
                           shows ? run.dma->serial : 0};
        hash = via_hash64(hash, what, sizeof(what));
        if (maps && shows) {
            mapped =
                map_over(view->at + off, bytes, MAP_SHARED, run.dma->fd, run.dma->fd_off + run.off);
        } else if (maps) {
            mapped = show_ones(pex, view->at + off, bytes);
        }
        off += bytes;
    }
    *ret_hash = hash;
    return mapped;
}

static void update_view(struct via_pex_function *function, struct via_pex_view *view)
{
    uint64_t hash;
    if (view->off >= via_pex_bar_bytes(function->pex, function->side, view->bar)) {
        view->is_torn = !show_ones(function->pex, view->at, view->bytes);
        view->shows = 0;
        return;
    }
    (void)walk(function, view, false, &hash);
    if (hash != view->shows || view->is_torn) {
        view->is_torn = !walk(function, view, true, &hash);
        view->shows = hash;
    }
}

static void update_views_of(struct via_pex *pex)
{
    for (unsigned side = 0; side < VIA_PEX_SIDES; side++) {
        struct via_pex_function *function = &pex->function[side];
        for (unsigned i = 0; i < function->views_count; i++) {
            update_view(function, &function->views[i]);
        }
    }
}

void via_pex_update_views(struct via_pex *pex)
{
    update_views_of(pex);
    if (pex->joined != NULL) {
        update_views_of(pex->joined); /* views of the joined chip lead through this one */
    }
}

int via_pex_view_init(struct via_pex *pex, struct via_pex_function *function, unsigned bar,
                      uint64_t off, uint64_t bytes, unsigned char **ret_at)
{
    if (function->views_count == VIA_PEX_MAPPINGS_MAX) {
        return -ENOSPC;
    }
    unsigned char *at =
        mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        return -errno;
    }
    struct via_pex_view *view = &function->views[function->views_count++];
    *view = (struct via_pex_view){.at = at, .off = off, .bytes = bytes, .bar = bar};
    if (!show_ones(pex, at, bytes)) {
        function->views_count--;
        munmap(at, bytes);
        return -ENOMEM;
    }
    update_view(function, view);
    *ret_at = at;
    return 0;
}

void via_pex_view_fini(struct via_pex_function *function, const unsigned char *at)
{
    for (unsigned i = 0; i < function->views_count; i++) {
        struct via_pex_view *view = &function->views[i];
        if (view->at == at) {
            munmap(view->at, view->bytes);
            *view = function->views[--function->views_count];
            return;
        }
    }
}
