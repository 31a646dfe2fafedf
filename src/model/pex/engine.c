/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The DMA function 87D0: four channels, each with a ring of descriptors in its host's memory.
 * Registers, bits and descriptors: Linux, drivers/dma/plx_dma.c; block mode and errata: SDK. A chip
 * has one such function, at its upstream port. Here each host has one, as if it had a chip of its
 * own.
 *
 * A start copies synchronously, in the caller's thread. Destinations within the host's window BAR
 * go through the NT port; all other addresses are memory of the host, through its IOMMU.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/copy.h"
#include "model/pex/chip.h"
#include "vfio/event.h"

#define CHANNEL_BASE 0x200u
#define CHANNEL_BYTES 0x100u
/* Offsets from a channel's base. */
#define BLOCK_SOURCE 0x00u
#define BLOCK_DESTINATION 0x08u
#define BLOCK_SIZE 0x10u
#define RING_LOW 0x14u
#define RING_HIGH 0x18u
#define RING_NEXT 0x1Cu
#define RING_COUNT 0x20u
#define LAST_ADDRESS 0x24u
#define LAST_SIZE 0x28u
#define READ_DELAY 0x2Cu
#define PREFETCH 0x34u
#define CONTROL 0x38u
#define INTERRUPT 0x3Cu
#define PENDING_READS 0x54u
#define ALIGNMENT 64u /* misaligned transfers are slow (erratum) */

#define CONTROL_PAUSE (1u << 0)
#define CONTROL_ABORT (1u << 1)
#define CONTROL_WRITE_BACK (1u << 2)
#define CONTROL_START (1u << 3)
#define CONTROL_MODE(value) ((value) >> 5 & 3u)
#define CONTROL_INVALID (1u << 8)
#define CONTROL_PAUSED (1u << 9)
#define CONTROL_ABORTED (1u << 10)
#define CONTROL_CLEARS 0x1700u
#define CONTROL_BUSY (1u << 30)

#define INTERRUPT_ENABLES 0xffffu
#define INTERRUPT_INVALID (1u << 17)
#define INTERRUPT_DONE (1u << 18)
#define INTERRUPT_ABORTED (1u << 19)

#define DESCRIPTOR_VALID (1u << 31)
#define DESCRIPTOR_INTERRUPT (1u << 30)
#define DESCRIPTOR_SIZE 0x07ffffffu
#define DESCRIPTOR_GOOD (1u << 30)
#define DESCRIPTOR_READ_FAILED (1u << 29)
#define DESCRIPTOR_WRITE_FAILED (1u << 28)
/* Limits of one start, because accesses of the other host wait for it. At a limit the engine stops
 * without an error, as the chip may do (errata in Linux' driver), and the driver starts it
 * again. */
#define DESCRIPTORS_MAX 4096u
#define START_BYTES_MAX (UINT64_C(256) << 20)
#define DESCRIPTOR_BYTES 16u

static struct via_pex_engine *engine_of(struct via_pci *pci)
{
    return via_container_of(pci, struct via_pex_engine, pci);
}

static bool is_on(const struct via_pex_engine *engine, uint32_t command);

static uint32_t *reg_of(struct via_pex_engine *engine, unsigned channel, uint32_t off)
{
    return &engine->regs[(CHANNEL_BASE + channel * CHANNEL_BYTES + off) / 4];
}

/* --- copying --- */

/* Host memory at an address, with *ret_bytes contiguous bytes; NULL: not mapped. */
static unsigned char *memory_at(struct via_pex_engine *engine, uint64_t address, bool writes,
                                uint64_t *ret_bytes)
{
    for (unsigned i = 0; i < engine->domain->dmas_count; i++) {
        struct via_pex_dma *dma = &engine->domain->dmas[i];
        if (address >= dma->iova && address - dma->iova < dma->bytes &&
            (dma->writable || !writes)) {
            *ret_bytes = dma->bytes - (address - dma->iova);
            return dma->at + (address - dma->iova);
        }
    }
    engine->pex->stats.iommu_faults++;
    return NULL;
}

/* Finds the window that has this bus address: the NT port, its BAR and the offset, or NULL. */
static struct via_pex *find_window(struct via_pex_engine *engine, uint64_t address,
                                   unsigned *ret_bar, uint64_t *ret_off)
{
    struct via_pex *ports[] = {engine->pex,
                               engine->side == VIA_PEX_VIRTUAL ? engine->pex->twin : NULL};
    for (unsigned i = 0; i < 2 * VIA_PEX_BARS; i++) {
        struct via_pex *pex = ports[i / VIA_PEX_BARS];
        unsigned bar = i % VIA_PEX_BARS;
        uint64_t bytes = pex != NULL ? via_pex_bar_bytes(pex, engine->side, bar) : 0;
        if (bytes == 0) {
            continue;
        }
        uint64_t at = (*via_pex_reg(pex, engine->side, VIA_PCI_BAR(2 + 2 * bar)) & ~15u) |
                      (uint64_t)*via_pex_reg(pex, engine->side, VIA_PCI_BAR(3 + 2 * bar)) << 32;
        if (at != 0 && address >= at && address - at < bytes) {
            *ret_bar = bar;
            *ret_off = address - at;
            return pex;
        }
    }
    return NULL;
}

/* 0, or an error bit for the write-back. If the NT port drops a posted write, that is not an
 * error. */
static uint32_t copy(struct via_pex_engine *engine, uint64_t source, uint64_t destination,
                     uint64_t bytes)
{
    while (bytes != 0) {
        uint64_t from_bytes, to_bytes = bytes, off;
        unsigned bar;
        const unsigned char *from = memory_at(engine, source, false, &from_bytes);
        if (from == NULL) {
            return DESCRIPTOR_READ_FAILED;
        }
        unsigned char *to = NULL;
        struct via_pex *window = find_window(engine, destination, &bar, &off);
        if (window != NULL) {
            struct via_pex_run run = via_pex_resolve_from(
                window, engine->side, bar, off, engine->pex->engine_requester[engine->side], true);
            to = run.dma != NULL ? run.dma->at + run.off : NULL;
            to_bytes = run.bytes;
        } else {
            to = memory_at(engine, destination, true, &to_bytes);
            if (to == NULL) {
                return DESCRIPTOR_WRITE_FAILED;
            }
        }
        uint64_t step = via_min(bytes, via_min(from_bytes, to_bytes));
        if (to != NULL) {
            via_copy_once(to, from, step);
        }
        source += step;
        destination += step;
        bytes -= step;
    }
    return 0;
}

/* --- interrupts --- */

static void fire(struct via_pex_engine *engine)
{
    if (engine->irq_fd >= 0 && is_on(engine, VIA_PCI_COMMAND_MASTER)) {
        via_event_signal(engine->irq_fd);
    }
}

static void raise(struct via_pex_engine *engine, unsigned channel, uint32_t bits)
{
    uint32_t *interrupt = reg_of(engine, channel, INTERRUPT);
    /* Status bits other than "done" have enable bits (bits 0, 1, 3 of the same register). */
    uint32_t enabled = bits & (INTERRUPT_DONE | (*interrupt & INTERRUPT_ENABLES) << 16);
    bool fires = (~*interrupt & enabled) != 0;
    *interrupt |= bits;
    if (fires) {
        fire(engine);
    }
}

static void fire_pending(struct via_pex_engine *engine)
{
    for (unsigned channel = 0; channel < VIA_PEX_CHANNELS; channel++) {
        uint32_t interrupt = *reg_of(engine, channel, INTERRUPT);
        if ((interrupt & (INTERRUPT_DONE | (interrupt & INTERRUPT_ENABLES) << 16)) != 0) {
            fire(engine);
            return;
        }
    }
}

/* --- descriptors --- */

static void write_back(struct via_pex_engine *engine, uint64_t address, uint32_t value)
{
    uint64_t bytes;
    unsigned char *at = memory_at(engine, address, true, &bytes);
    if (at != NULL && bytes >= sizeof(value)) {
        atomic_store_explicit((_Atomic uint32_t *)(void *)at, value, memory_order_release);
    }
}

static void write_back_late(struct via_pex_engine *engine)
{
    if (engine->late_address != 0) {
        write_back(engine, engine->late_address, engine->late_value);
        engine->late_address = 0;
    }
}

/* True if a descriptor must wait now. After the wait *has_waited is true, and the descriptor
 * executes. */
static bool is_slow(struct via_pex_engine *engine, unsigned channel, uint64_t source,
                    uint64_t destination, bool *has_waited)
{
    bool is_aligned = source % ALIGNMENT == 0 && destination % ALIGNMENT == 0;
    if (is_aligned || *has_waited || engine->faults.misaligned_reads == 0) {
        *has_waited = false;
        return false;
    }
    engine->waits[channel] = engine->faults.misaligned_reads;
    *reg_of(engine, channel, CONTROL) |= CONTROL_BUSY;
    return true;
}

enum outcome { DONE, SLOW, INVALID };

/* INVALID: the descriptor is not valid, or its memory is not mapped. */
static enum outcome run_descriptor(struct via_pex_engine *engine, unsigned channel,
                                   uint64_t address, bool *has_waited, uint64_t *bytes_copied)
{
    uint64_t bytes;
    uint32_t dword[4];
    const unsigned char *at = memory_at(engine, address, false, &bytes);
    if (at == NULL || bytes < sizeof(dword)) {
        return INVALID;
    }
    dword[0] =
        atomic_load_explicit((const _Atomic uint32_t *)(const void *)at, memory_order_acquire);
    if ((dword[0] & DESCRIPTOR_VALID) == 0) {
        return INVALID;
    }
    memcpy(dword + 1, at + 4, sizeof(dword) - 4);
    uint64_t source = (uint64_t)(dword[1] >> 16) << 32 | dword[3];
    uint64_t destination = (uint64_t)(dword[1] & 0xffff) << 32 | dword[2];
    uint32_t size = dword[0] & DESCRIPTOR_SIZE;
    if (is_slow(engine, channel, source, destination, has_waited)) {
        return SLOW;
    }
    uint32_t failed = copy(engine, source, destination, engine->faults.fails ? size / 2 : size);
    failed |= engine->faults.fails ? DESCRIPTOR_READ_FAILED : 0;
    *bytes_copied += size;
    *reg_of(engine, channel, LAST_ADDRESS) = (uint32_t)address;
    *reg_of(engine, channel, LAST_SIZE) = size;
    if ((*reg_of(engine, channel, CONTROL) & CONTROL_WRITE_BACK) != 0) {
        /* The remaining bytes: none, or all. */
        uint32_t value = failed != 0 ? failed | size : DESCRIPTOR_GOOD;
        write_back_late(engine);
        if (engine->faults.late_write_back) {
            engine->late_address = address;
            engine->late_value = value;
        } else {
            write_back(engine, address, value);
        }
    }
    if ((dword[0] & DESCRIPTOR_INTERRUPT) != 0) {
        raise(engine, channel, INTERRUPT_DONE);
    }
    return DONE;
}

/* has_waited: the next descriptor has already waited, if it is slow. */
static void run_ring(struct via_pex_engine *engine, unsigned channel, bool has_waited)
{
    uint64_t ring =
        *reg_of(engine, channel, RING_LOW) | (uint64_t)*reg_of(engine, channel, RING_HIGH) << 32;
    uint32_t count = *reg_of(engine, channel, RING_COUNT);
    uint32_t *next = reg_of(engine, channel, RING_NEXT);
    uint64_t copied = 0;
    for (unsigned i = 0; i < DESCRIPTORS_MAX && count != 0 && copied < START_BYTES_MAX; i++) {
        uint32_t off = *next - (uint32_t)ring;
        /* Assumed: a ring is aligned to the size of a descriptor. */
        bool is_place = ring % DESCRIPTOR_BYTES == 0 && off % DESCRIPTOR_BYTES == 0 &&
                        off / DESCRIPTOR_BYTES < count;
        enum outcome outcome =
            is_place ? run_descriptor(engine, channel, ring + off, &has_waited, &copied) : INVALID;
        if (outcome == SLOW) {
            return;
        }
        if (outcome == INVALID) {
            *reg_of(engine, channel, CONTROL) |= CONTROL_INVALID;
            raise(engine, channel, INTERRUPT_INVALID);
            return;
        }
        uint64_t after = (uint64_t)off + DESCRIPTOR_BYTES;
        *next = (uint32_t)(ring + after % ((uint64_t)DESCRIPTOR_BYTES * count));
        if (engine->faults.stops_silently) {
            return;
        }
    }
}

static void run_block(struct via_pex_engine *engine, unsigned channel)
{
    uint32_t *size = reg_of(engine, channel, BLOCK_SIZE);
    uint64_t from, to;
    memcpy(&from, reg_of(engine, channel, BLOCK_SOURCE), sizeof(from));
    memcpy(&to, reg_of(engine, channel, BLOCK_DESTINATION), sizeof(to));
    if ((*size & DESCRIPTOR_VALID) == 0) {
        *reg_of(engine, channel, CONTROL) |= CONTROL_INVALID;
        return;
    }
    uint32_t failed = copy(engine, from, to, *size & DESCRIPTOR_SIZE);
    bool interrupts = (*size & DESCRIPTOR_INTERRUPT) != 0;
    *size = failed != 0 ? failed : DESCRIPTOR_GOOD;
    if (interrupts) {
        raise(engine, channel, INTERRUPT_DONE);
    }
}

/* --- registers --- */

static void write_control(struct via_pex_engine *engine, unsigned channel, uint32_t value)
{
    uint32_t *control = reg_of(engine, channel, CONTROL);
    uint32_t status = *control & (CONTROL_CLEARS | CONTROL_BUSY) & ~(value & CONTROL_CLEARS);
    *control = (value & ~(CONTROL_CLEARS | CONTROL_BUSY | CONTROL_START | CONTROL_ABORT)) | status;
    if ((value & CONTROL_PAUSE) != 0 && !engine->faults.hangs) {
        *control = (*control & ~CONTROL_BUSY) | CONTROL_PAUSED;
    }
    if ((value & (CONTROL_ABORT | CONTROL_PAUSE)) != 0) {
        engine->waits[channel] = 0;
    }
    if ((value & CONTROL_ABORT) != 0 && !engine->faults.hangs) {
        *control = (*control & ~CONTROL_BUSY) | CONTROL_ABORTED;
        raise(engine, channel, INTERRUPT_ABORTED);
    }
    if ((value & CONTROL_START) == 0 || !is_on(engine, VIA_PCI_COMMAND_MASTER) ||
        engine->waits[channel] != 0) {
        return;
    }
    if (engine->faults.hangs || engine->faults.stalls) {
        *control |= CONTROL_BUSY;
    } else if (CONTROL_MODE(value) == 2) {
        run_ring(engine, channel, false);
    } else if (CONTROL_MODE(value) == 0) {
        run_block(engine, channel);
    }
}

/* Each read of a control register counts as time for a slow transfer. */
static void pass_time(struct via_pex_engine *engine, uint32_t off)
{
    unsigned channel = (off - CHANNEL_BASE) / CHANNEL_BYTES;
    if (off < CHANNEL_BASE || channel >= VIA_PEX_CHANNELS || off % CHANNEL_BYTES != CONTROL ||
        engine->waits[channel] == 0 || --engine->waits[channel] != 0) {
        return;
    }
    *reg_of(engine, channel, CONTROL) &= ~CONTROL_BUSY;
    if (is_on(engine, VIA_PCI_COMMAND_MASTER)) {
        run_ring(engine, channel, true);
    }
}

static void write_register(struct via_pex_engine *engine, uint32_t off, uint32_t value)
{
    unsigned channel = (off - CHANNEL_BASE) / CHANNEL_BYTES;
    if (off < CHANNEL_BASE || channel >= VIA_PEX_CHANNELS) {
        return;
    }
    switch ((off - CHANNEL_BASE) % CHANNEL_BYTES) {
    case CONTROL:
        write_control(engine, channel, value);
        break;
    case INTERRUPT:
        engine->regs[off / 4] &= ~(value & ~INTERRUPT_ENABLES) & ~INTERRUPT_ENABLES;
        engine->regs[off / 4] |= value & INTERRUPT_ENABLES;
        break;
    default:
        engine->regs[off / 4] = value;
    }
}

static int engine_access(struct via_pci *pci, unsigned region, uint64_t off, unsigned char *data,
                         size_t len, bool writes)
{
    struct via_pex_engine *engine = engine_of(pci);
    int rc = 0;
    if (region != 0 || (len != 2 && len != 4) || off % len != 0 ||
        off > sizeof(engine->regs) - len) {
        return -EINVAL;
    }
    pthread_mutex_lock(engine->pex->lock);
    uint32_t aligned = (uint32_t)off & ~3u, shift = 8 * (off % 4);
    uint32_t value = engine->regs[aligned / 4];
    if (!is_on(engine, VIA_PCI_COMMAND_MEMORY)) {
        rc = -ENXIO;
    } else if (writes) {
        uint32_t given = 0;
        memcpy(&given, data, len);
        bool is_status = (aligned - CHANNEL_BASE) % CHANNEL_BYTES == INTERRUPT ||
                         (aligned - CHANNEL_BASE) % CHANNEL_BYTES == CONTROL;
        /* The half that is not written keeps its value, and clears no status bits. */
        uint32_t keeps =
            len == 4 ? 0
            : is_status
                ? value & ~(0xffffu << shift) &
                      ~(aligned % CHANNEL_BYTES == CONTROL ? CONTROL_CLEARS : ~INTERRUPT_ENABLES)
                : value & ~(0xffffu << shift);
        write_register(engine, aligned, keeps | given << shift);
    } else {
        pass_time(engine, aligned);
        write_back_late(engine); /* a read pushes delayed write-backs */
        value = engine->regs[aligned / 4] >> shift;
        memcpy(data, &value, len);
    }
    pthread_mutex_unlock(engine->pex->lock);
    return rc;
}

static int engine_read(struct via_pci *pci, unsigned region, uint64_t off, void *ret_data,
                       size_t len)
{
    return engine_access(pci, region, off, ret_data, len, false);
}

static int engine_write(struct via_pci *pci, unsigned region, uint64_t off, const void *data,
                        size_t len)
{
    return engine_access(pci, region, off, (unsigned char *)(uintptr_t)data, len, true);
}

/* --- the function --- */

/* Base system peripheral, other: Linux' driver matches this class. The offsets of BAR 0 and of the
 * MSI capability are assumed. */
#define CONFIG_CLASS (0x08 / 4)
#define CONFIG_BAR0 (0x10 / 4)
#define CONFIG_MSI (0x48 / 4)

static void reset_config(struct via_pex_engine *engine)
{
    memset(engine->config, 0, sizeof(engine->config));
    engine->config[0] = 0x87D010B5u;
    engine->config[VIA_PCI_COMMAND / 4] = 0x00100000u; /* has capabilities */
    engine->config[CONFIG_CLASS] = 0x088000CAu;
    engine->config[0x2C / 4] = 0x87D010B5u;
    engine->config[0x34 / 4] = 4 * CONFIG_MSI;
    engine->config[CONFIG_MSI] = 0x00800005u; /* the last capability; one vector, 64-bit address */
}

static bool is_on(const struct via_pex_engine *engine, uint32_t command)
{
    return (engine->config[VIA_PCI_COMMAND / 4] & command) != 0;
}

/* The writable bits of a dword. */
static uint32_t config_mask(unsigned index)
{
    switch (index) {
    case VIA_PCI_COMMAND / 4:
        return 0x546;
    case CONFIG_BAR0:
        return ~(uint32_t)(sizeof(((struct via_pex_engine *)NULL)->regs) - 1);
    case 0x3C / 4:
        return 0xff; /* interrupt line, of the machine's firmware */
    case CONFIG_MSI:
        return 0x00010000;
    case CONFIG_MSI + 1:
    case CONFIG_MSI + 2:
    case CONFIG_MSI + 3:
        return UINT32_MAX;
    default:
        return 0;
    }
}

static bool is_config_access(unsigned off, unsigned len)
{
    return (len == 1 || len == 2 || len == 4) && off % len == 0 && off < VIA_PCI_CONFIG_BYTES;
}

static int engine_config_read(struct via_pci *pci, unsigned off, unsigned len, uint32_t *ret_value)
{
    struct via_pex_engine *engine = engine_of(pci);
    if (!is_config_access(off, len)) {
        return -EINVAL;
    }
    pthread_mutex_lock(engine->pex->lock);
    uint32_t dword = off / 4 < VIA_ARRAY_COUNT(engine->config) ? engine->config[off / 4] : 0;
    pthread_mutex_unlock(engine->pex->lock);
    *ret_value = dword >> 8 * (off % 4) & (UINT32_MAX >> (32 - 8 * len));
    return 0;
}

static int engine_config_write(struct via_pci *pci, unsigned off, unsigned len, uint32_t value)
{
    struct via_pex_engine *engine = engine_of(pci);
    if (!is_config_access(off, len)) {
        return -EINVAL;
    }
    if (off / 4 < VIA_ARRAY_COUNT(engine->config)) {
        uint32_t lanes = UINT32_MAX >> (32 - 8 * len) << 8 * (off % 4) & config_mask(off / 4);
        pthread_mutex_lock(engine->pex->lock);
        uint32_t *dword = &engine->config[off / 4];
        *dword = (*dword & ~lanes) | (value << 8 * (off % 4) & lanes);
        pthread_mutex_unlock(engine->pex->lock);
    }
    return 0;
}

static int engine_region(struct via_pci *pci, unsigned region, struct via_pci_region *ret_region)
{
    (void)pci;
    *ret_region = (struct via_pci_region){.bytes = region == 0 ? sizeof(engine_of(pci)->regs) : 0};
    return region < VIA_PCI_REGIONS ? 0 : -EINVAL;
}

static int engine_map(struct via_pci *pci, unsigned region, uint64_t off, uint64_t bytes,
                      bool combining, struct via_pci_mapping *ret_mapping)
{
    (void)pci;
    (void)region;
    (void)off;
    (void)bytes;
    (void)combining;
    (void)ret_mapping;
    return -ENOTSUP;
}

static void engine_unmap(struct via_pci *pci, struct via_pci_mapping *mapping)
{
    (void)pci;
    (void)mapping;
}

static unsigned engine_irqs(struct via_pci *pci, enum via_pci_irq_kind kind)
{
    (void)pci;
    return kind == VIA_PCI_MSI ? 1 : 0;
}

static int engine_irq_set(struct via_pci *pci, enum via_pci_irq_kind kind, unsigned count,
                          const int *fds)
{
    struct via_pex_engine *engine = engine_of(pci);
    if (count > engine_irqs(pci, kind)) {
        return -EINVAL;
    }
    pthread_mutex_lock(engine->pex->lock);
    engine->irq_fd = count != 0 ? fds[0] : -1;
    if (count != 0 && engine->faults.enable_fires_msi) {
        fire_pending(engine);
    }
    pthread_mutex_unlock(engine->pex->lock);
    return 0;
}

static int engine_irq_unmask(struct via_pci *pci)
{
    (void)pci;
    return 0;
}

static int engine_dma_map(struct via_pci *pci, const struct via_pci_memory *memory,
                          uint64_t alignment, uint64_t *ret_iova)
{
    struct via_pex_engine *engine = engine_of(pci);
    pthread_mutex_lock(engine->pex->lock);
    int rc = via_pex_domain_map(engine->pex, engine->domain, memory, alignment, ret_iova);
    pthread_mutex_unlock(engine->pex->lock);
    return rc;
}

static int engine_dma_unmap(struct via_pci *pci, uint64_t iova)
{
    struct via_pex_engine *engine = engine_of(pci);
    pthread_mutex_lock(engine->pex->lock);
    int rc = via_pex_domain_unmap(engine->pex, engine->domain, iova);
    pthread_mutex_unlock(engine->pex->lock);
    return rc;
}

static void reset_registers(struct via_pex_engine *engine)
{
    memset(engine->regs, 0, sizeof(engine->regs));
    memset(engine->waits, 0, sizeof(engine->waits));
    engine->late_address = 0;
    reset_config(engine);
}

/* Function-level reset. Assumed: a chip without the erratum keeps the tuning registers. */
static int engine_reset(struct via_pci *pci)
{
    static const uint32_t tuning[] = {READ_DELAY, PREFETCH, PENDING_READS};
    struct via_pex_engine *engine = engine_of(pci);
    uint32_t kept[VIA_PEX_CHANNELS][VIA_ARRAY_COUNT(tuning)];
    pthread_mutex_lock(engine->pex->lock);
    for (unsigned i = 0; i < VIA_PEX_CHANNELS * VIA_ARRAY_COUNT(tuning); i++) {
        unsigned channel = i / VIA_ARRAY_COUNT(tuning), k = i % VIA_ARRAY_COUNT(tuning);
        kept[channel][k] = *reg_of(engine, channel, tuning[k]);
    }
    reset_registers(engine);
    for (unsigned i = 0; i < VIA_PEX_CHANNELS * VIA_ARRAY_COUNT(tuning); i++) {
        unsigned channel = i / VIA_ARRAY_COUNT(tuning), k = i % VIA_ARRAY_COUNT(tuning);
        if (!engine->faults.reset_erases_tuning) {
            *reg_of(engine, channel, tuning[k]) = kept[channel][k];
        }
    }
    pthread_mutex_unlock(engine->pex->lock);
    return 0;
}

static bool engine_is_gone(struct via_pci *pci)
{
    (void)pci;
    return false;
}

static const char *engine_describe(struct via_pci *pci)
{
    (void)pci;
    return "model of 87D0";
}

static void engine_close(struct via_pci *pci)
{
    struct via_pex_engine *engine = engine_of(pci);
    (void)engine_reset(pci);
    pthread_mutex_lock(engine->pex->lock);
    engine->irq_fd = -1;
    engine->attached = false;
    via_pex_domain_clear(engine->pex, &engine->own);
    pthread_mutex_unlock(engine->pex->lock);
}

static const struct via_pci_ops engine_ops = {
    .config_read = engine_config_read,
    .config_write = engine_config_write,
    .region = engine_region,
    .region_read = engine_read,
    .region_write = engine_write,
    .map = engine_map,
    .unmap = engine_unmap,
    .irqs = engine_irqs,
    .irq_set = engine_irq_set,
    .irq_unmask = engine_irq_unmask,
    .dma_map = engine_dma_map,
    .dma_unmap = engine_dma_unmap,
    .reset = engine_reset,
    .gone = engine_is_gone,
    .describe = engine_describe,
    .close = engine_close,
};

static int attach(struct via_pex *pex, enum via_pex_side side, bool is_apart,
                  struct via_pci **ret_pci)
{
    struct via_pex_domain *domain = &pex->function[side].domain;
    pex = side == VIA_PEX_VIRTUAL ? via_pex_first(pex) : pex;
    struct via_pex_engine *engine = &pex->engine[side];
    pthread_mutex_lock(pex->lock);
    if (engine->attached) {
        pthread_mutex_unlock(pex->lock);
        return -EBUSY;
    }
    engine->pci = (struct via_pci){.ops = &engine_ops, .requester = VIA_PEX_ENGINE_REQUESTER};
    engine->pex = pex;
    engine->side = side;
    engine->attached = true;
    engine->irq_fd = -1;
    engine->domain = is_apart ? &engine->own : domain;
    engine->faults = (struct via_pex_engine_faults){0};
    reset_registers(engine);
    pthread_mutex_unlock(pex->lock);
    *ret_pci = &engine->pci;
    return 0;
}

int via_pex_attach_engine(struct via_pex *pex, enum via_pex_side side, struct via_pci **ret_pci)
{
    return attach(pex, side, false, ret_pci);
}

int via_pex_attach_engine_apart(struct via_pex *pex, enum via_pex_side side,
                                struct via_pci **ret_pci)
{
    return attach(pex, side, true, ret_pci);
}

void via_pex_engine_set_faults(struct via_pex *pex, enum via_pex_side side,
                               const struct via_pex_engine_faults *faults)
{
    pex = side == VIA_PEX_VIRTUAL ? via_pex_first(pex) : pex;
    pthread_mutex_lock(pex->lock);
    pex->engine[side].faults = *faults;
    pthread_mutex_unlock(pex->lock);
}

void via_pex_engine_set_requester(struct via_pex *pex, enum via_pex_side side, uint16_t requester)
{
    pex = side == VIA_PEX_VIRTUAL ? via_pex_first(pex) : pex;
    pthread_mutex_lock(pex->lock);
    pex->engine_requester[side] = requester;
    pthread_mutex_unlock(pex->lock);
}
