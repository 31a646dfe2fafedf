/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A function of the chip: implements vfio/pci.h on the model, in one process. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/copy.h"
#include "model/pex/chip.h"

#define PAGE_BYTES 4096u
#define MSI_CONTROL 0x048u
#define MSI_ENABLED 0x00010000u
#define LINK_SETUP0 0x0E4u
/* Addresses that the machine's firmware gives to BARs: any but 0. */
#define BAR_ADDRESS_LOW 0xC0000000u
#define BAR_ADDRESS_HIGH 0x00000040u
#define BAR_ADDRESS_STEP 0x40u

static struct via_pex_function *function_of(struct via_pci *pci)
{
    return via_container_of(pci, struct via_pex_function, pci);
}

static struct via_pex *lock(struct via_pci *pci)
{
    struct via_pex *pex = function_of(pci)->pex;
    pthread_mutex_lock(pex->lock);
    return pex;
}

static void unlock(struct via_pex *pex)
{
    pthread_mutex_unlock(pex->lock);
}

static uint32_t base_of(const struct via_pex_function *function)
{
    return via_pex_base(function->pex->options.nt, function->side);
}

/* Bytes of a dword at a byte offset within it. */
static uint32_t take_bytes(uint32_t dword, unsigned shift, unsigned len)
{
    return len == 4 ? dword : dword >> 8 * shift & ((1u << 8 * len) - 1);
}

/* --- config space: the function's registers, and the addresses of its BARs --- */

/* Sets the BARs to the addresses that were last written, or to those of the firmware; none is 0. */
static void assign_bars(struct via_pex_function *function)
{
    uint32_t nt = function->pex->options.nt, high = BAR_ADDRESS_HIGH + BAR_ADDRESS_STEP * 2 * nt;
    const uint32_t firmware[6] = {
        BAR_ADDRESS_LOW + VIA_PEX_CHIP_BYTES * nt, 0, 0, high, 0, high + BAR_ADDRESS_STEP};
    for (unsigned i = 0; i < 6; i++) {
        const uint32_t *given = &function->bars_assigned[i & ~1u];
        bool is_given = ((given[0] & ~15u) | given[1]) != 0;
        via_pex_chip_write(function->pex, base_of(function) + VIA_PCI_BAR(i),
                           is_given ? given[i & 1] : firmware[i], 0xf);
    }
}

/* Records a write to a BAR, because a virtual machine chooses BAR addresses itself: a reset clears
 * them, and assign_bars() restores them. A write of all-ones probes the size. */
static void note_bar(struct via_pex_function *function, unsigned off, unsigned len, uint32_t value)
{
    if (off >= VIA_PCI_BAR(0) && off < VIA_PCI_BAR(6) && len == 4 && value != UINT32_MAX) {
        function->bars_assigned[(off - VIA_PCI_BAR(0)) / 4] = value;
    }
}

static int config_read(struct via_pci *pci, unsigned off, unsigned len, uint32_t *ret_value)
{
    if ((len != 1 && len != 2 && len != 4) || off % len != 0 || off >= VIA_PCI_CONFIG_BYTES) {
        return -EINVAL;
    }
    struct via_pex *pex = lock(pci);
    struct via_pex_function *function = function_of(pci);
    uint32_t dword = UINT32_MAX;
    if (via_pex_function_is_answering(function)) {
        dword = via_pex_chip_read(pex, base_of(function) + (off & ~3u));
    }
    unlock(pex);
    *ret_value = take_bytes(dword, off % 4, len);
    return 0;
}

static int config_write(struct via_pci *pci, unsigned off, unsigned len, uint32_t value)
{
    if ((len != 1 && len != 2 && len != 4) || off % len != 0 || off >= VIA_PCI_CONFIG_BYTES) {
        return -EINVAL;
    }
    struct via_pex *pex = lock(pci);
    struct via_pex_function *function = function_of(pci);
    if (via_pex_function_is_answering(function)) {
        if (off == VIA_PCI_COMMAND && (value & VIA_PCI_COMMAND_MEMORY) != 0) {
            assign_bars(function);
        }
        note_bar(function, off, len, value);
        via_pex_chip_write(pex, base_of(function) + (off & ~3u), value << 8 * (off % 4),
                           ((1u << len) - 1) << off % 4);
    }
    unlock(pex);
    return 0;
}

/* --- regions --- */

static uint64_t region_bytes(struct via_pex_function *function, unsigned region)
{
    if (region == 0) {
        return VIA_PEX_CHIP_BYTES;
    }
    return region == 2 || region == 4
               ? function->pex->options.bar_bytes[function->side][(region - 2) / 2]
               : 0;
}

static int region(struct via_pci *pci, unsigned index, struct via_pci_region *ret_region)
{
    if (index >= VIA_PCI_REGIONS) {
        return -EINVAL;
    }
    *ret_region = (struct via_pci_region){
        .bytes = region_bytes(function_of(pci), index),
        .mappable = index == 2 || index == 4,
        .prefetchable = index == 2 || index == 4,
    };
    return 0;
}

static void read_register(struct via_pex *pex, uint64_t off, unsigned char *ret, size_t len)
{
    uint32_t value =
        take_bytes(via_pex_chip_read(pex, (uint32_t)off & ~3u), off % 4, (unsigned)len);
    memcpy(ret, &value, len);
}

static void write_register(struct via_pex *pex, uint64_t off, const unsigned char *data, size_t len)
{
    uint32_t value = 0;
    memcpy(&value, data, len);
    via_pex_chip_write(pex, (uint32_t)off & ~3u, value << 8 * (off % 4),
                       ((1u << len) - 1) << off % 4);
}

/* The width of the next access: the largest power of two up to `max` that fits alignment and
 * length.
 */
static size_t step_of(uint64_t off, size_t len, size_t max)
{
    size_t step = max;
    while (step > 1 && (off % step != 0 || step > len)) {
        step /= 2;
    }
    return step;
}

static void access_registers(struct via_pex *pex, uint64_t off, unsigned char *data, size_t len,
                             bool writes)
{
    for (size_t done = 0, step; done < len; done += step) {
        step = step_of(off + done, len - done, 4);
        if (writes) {
            write_register(pex, off + done, data + done, step);
        } else {
            read_register(pex, off + done, data + done, step);
        }
    }
}

static void access_memory(struct via_pex *pex, struct via_pex_function *function, unsigned bar,
                          uint64_t off, unsigned char *data, size_t len, bool writes)
{
    while (len != 0) {
        struct via_pex_run run = {.bytes = len};
        if (off < via_pex_bar_bytes(pex, function->side, bar)) {
            run = via_pex_resolve(pex, function->side, bar, off, true);
        }
        size_t step = (size_t)via_min(run.bytes, (uint64_t)len);
        if (run.registers != NULL) {
            access_registers(run.registers, run.off, data, step, writes);
        } else if (run.dma == NULL && !writes) {
            memset(data, 0xff, step);
        } else if (run.dma != NULL && writes) {
            via_copy_once(run.dma->at + run.off, data, step);
        } else if (run.dma != NULL) {
            via_copy_once(data, run.dma->at + run.off, step);
        }
        data += step;
        off += step;
        len -= step;
    }
}

static int access_region(struct via_pci *pci, unsigned index, uint64_t off, unsigned char *data,
                         size_t len, bool writes)
{
    struct via_pex_function *function = function_of(pci);
    uint64_t bytes = index < VIA_PCI_REGIONS ? region_bytes(function, index) : 0;
    if (len == 0 || off > bytes || len > bytes - off) {
        return -EINVAL;
    }
    int rc = 0;
    struct via_pex *pex = lock(pci);
    if (!via_pex_function_is_answering(function)) {
        if (!writes) {
            memset(data, 0xff, len);
        }
        pex->stats.unclaimed++;
    } else if ((*via_pex_reg(pex, function->side, VIA_PCI_COMMAND) & VIA_PCI_COMMAND_MEMORY) == 0) {
        rc = -ENXIO;
    } else if (index != 0) {
        access_memory(pex, function, (index - 2) / 2, off, data, len, writes);
    } else {
        access_registers(pex, off, data, len, writes);
    }
    unlock(pex);
    return rc;
}

static int region_read(struct via_pci *pci, unsigned index, uint64_t off, void *ret_data,
                       size_t len)
{
    return access_region(pci, index, off, ret_data, len, false);
}

static int region_write(struct via_pci *pci, unsigned index, uint64_t off, const void *data,
                        size_t len)
{
    return access_region(pci, index, off, (unsigned char *)(uintptr_t)data, len, true);
}

static int map(struct via_pci *pci, unsigned index, uint64_t off, uint64_t bytes, bool combining,
               struct via_pci_mapping *ret_mapping)
{
    struct via_pex_function *function = function_of(pci);
    (void)combining;
    if (index != 2 && index != 4) {
        return -ENOTSUP; /* registers have side effects */
    }
    uint64_t whole = region_bytes(function, index);
    if (bytes == 0 || bytes % PAGE_BYTES != 0 || off % PAGE_BYTES != 0 || off > whole ||
        bytes > whole - off) {
        return -EINVAL;
    }
    struct via_pci_mapping mapping = {.bytes = bytes, .caching = VIA_PCI_MEMORY};
    struct via_pex *pex = lock(pci);
    int rc = via_pex_view_init(pex, function, (index - 2) / 2, off, bytes, &mapping.at);
    unlock(pex);
    if (rc == 0) {
        *ret_mapping = mapping;
    }
    return rc;
}

/* Returns the memory that the BAR shows now; with hardware the process would map the BAR. */
static int window_fd(struct via_pci *pci, unsigned index, uint64_t off, uint64_t bytes, int *ret_fd,
                     uint64_t *ret_off)
{
    struct via_pex_function *function = function_of(pci);
    if ((index != 2 && index != 4) || bytes == 0 || off % PAGE_BYTES != 0) {
        return -EINVAL;
    }
    struct via_pex *pex = lock(pci);
    uint64_t whole = region_bytes(function, index);
    struct via_pex_run run = {0};
    if (off < whole && bytes <= whole - off) {
        run = via_pex_resolve(pex, function->side, (index - 2) / 2, off, false);
    }
    int rc = run.dma == NULL || run.dma->fd < 0 ? -EAGAIN : 0;
    if (rc == 0) {
        *ret_off = run.dma->fd_off + run.off;
        *ret_fd = fcntl(run.dma->fd, F_DUPFD_CLOEXEC, 0);
        rc = *ret_fd >= 0 ? 0 : -errno;
    }
    unlock(pex);
    return rc;
}

static void unmap(struct via_pci *pci, struct via_pci_mapping *mapping)
{
    struct via_pex *pex = lock(pci);
    via_pex_view_fini(function_of(pci), mapping->at);
    unlock(pex);
    *mapping = (struct via_pci_mapping){0};
}

/* --- interrupts --- */

static unsigned irqs(struct via_pci *pci, enum via_pci_irq_kind kind)
{
    (void)pci;
    return kind == VIA_PCI_INTX || kind == VIA_PCI_MSI ? 1 : 0;
}

static void set_msi(struct via_pex_function *function, bool on)
{
    uint32_t *control = via_pex_reg(function->pex, function->side, MSI_CONTROL);
    *control = (*control & ~MSI_ENABLED) | (on ? MSI_ENABLED : 0);
}

static int irq_set(struct via_pci *pci, enum via_pci_irq_kind kind, unsigned count, const int *fds)
{
    if (count > irqs(pci, kind)) {
        return -EINVAL;
    }
    struct via_pex *pex = lock(pci);
    struct via_pex_function *function = function_of(pci);
    function->irq_kind = kind;
    function->irq_fd = count != 0 ? fds[0] : -1;
    function->intx_masked = false;
    set_msi(function, kind == VIA_PCI_MSI && count != 0);
    via_pex_update_interrupts(pex);
    unlock(pex);
    return 0;
}

static int irq_unmask(struct via_pci *pci)
{
    struct via_pex *pex = lock(pci);
    function_of(pci)->intx_masked = false;
    via_pex_update_interrupts(pex);
    unlock(pex);
    return 0;
}

/* --- the host's memory --- */

static int dma_map(struct via_pci *pci, const struct via_pci_memory *memory, uint64_t alignment,
                   uint64_t *ret_iova)
{
    struct via_pex *pex = lock(pci);
    int rc = via_pex_domain_map(pex, &function_of(pci)->domain, memory, alignment, ret_iova);
    unlock(pex);
    return rc;
}

static int dma_unmap(struct via_pci *pci, uint64_t iova)
{
    struct via_pex *pex = lock(pci);
    int rc = via_pex_domain_unmap(pex, &function_of(pci)->domain, iova);
    unlock(pex);
    return rc;
}

/* --- the function as a whole --- */

static int reset(struct via_pci *pci)
{
    (void)pci;
    return -ENOTSUP; /* no public source says which registers a function-level reset of an NT port
                        clears */
}

static bool is_gone(struct via_pci *pci)
{
    struct via_pex *pex = lock(pci);
    bool is_gone = !via_pex_function_is_answering(function_of(pci));
    unlock(pex);
    return is_gone;
}

static const char *describe(struct via_pci *pci)
{
    return function_of(pci)->describe;
}

void via_pex_function_detach(struct via_pex_function *function)
{
    struct via_pex *pex = function->pex;
    if (!function->attached) {
        return;
    }
    function->attached = false;
    function->irq_fd = -1;
    set_msi(function, false);
    /* The kernel does this when the last descriptor of a device is closed. */
    *via_pex_reg(pex, function->side, VIA_PCI_COMMAND) &=
        ~(VIA_PCI_COMMAND_MASTER | VIA_PCI_COMMAND_MEMORY);
    while (function->views_count != 0) {
        via_pex_view_fini(function, function->views[0].at);
    }
    via_pex_update_views(pex);
    via_pex_domain_clear(pex, &function->domain);
}

static void function_close(struct via_pci *pci)
{
    struct via_pex *pex = lock(pci);
    struct via_pex *owner = pex->is_owned && pex->joined != NULL ? pex->joined : via_pex_first(pex);
    via_pex_function_detach(function_of(pci));
    unlock(pex);
    via_pex_named_closed(owner);
}

const struct via_pci_ops via_pex_function_ops = {
    .config_read = config_read,
    .config_write = config_write,
    .region = region,
    .region_read = region_read,
    .region_write = region_write,
    .map = map,
    .unmap = unmap,
    .window_fd = window_fd,
    .irqs = irqs,
    .irq_set = irq_set,
    .irq_unmask = irq_unmask,
    .dma_map = dma_map,
    .dma_unmap = dma_unmap,
    .reset = reset,
    .gone = is_gone,
    .describe = describe,
    .close = function_close,
};

int via_pex_attach(struct via_pex *pex, enum via_pex_side side, struct via_pci **ret_pci)
{
    struct via_pex_function *function = &pex->function[side];
    pthread_mutex_lock(pex->lock);
    if (function->attached) {
        pthread_mutex_unlock(pex->lock);
        return -EBUSY;
    }
    function->attached = true;
    via_iova_init(&function->domain.iova);
    memset(function->bars_assigned, 0, sizeof(function->bars_assigned));
    if (via_pex_function_is_answering(function)) {
        assign_bars(function);
    }
    const char *name = via_pex_first(pex)->name;
    snprintf(function->describe, sizeof(function->describe), "model%s%s, %s%s side",
             name[0] != '\0' ? " " : "", name,
             pex->twin == NULL      ? ""
             : pex->options.nt == 0 ? "NT0 "
                                    : "NT1 ",
             side == VIA_PEX_VIRTUAL ? "virtual" : "link");
    pthread_mutex_unlock(pex->lock);
    *ret_pci = &function->pci;
    return 0;
}
