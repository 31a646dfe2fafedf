/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The switch's DMA engine as a target: bytes go from this host's memory through its slot to the
 * switch and back. It uses one descriptor at a time, polls the write-back, and uses no interrupts.
 * The chip may write back late, and may stop without an error (errata in Linux' plx_dma.c). A read
 * of its control register pushes a late write-back, and another start ends a stop.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/card.h"
#include "cli/perf_target.h"
#include "vfio/plx_dma.h"

#define PAGE_BYTES 4096u
#define SLOTS 16u /* size of the ring, which is a page */
#define CHANNEL 0u
#define VENDOR_DEVICE 0x87D010B5u
#define POLL_NS (200 * VIA_USEC_NS)
#define PATIENCE_NS (2 * VIA_SEC_NS)
#define SIZE_MIN 4u

struct engine {
    struct via_perf_target base;
    struct via_pci *pci;
    int fd;
    unsigned char *memory; /* the page of the ring, the source, the destination */
    uint64_t memory_bytes, iova;
    size_t buffer_bytes;
    uint32_t head;
};

static struct engine *engine_of(struct via_perf_target *target)
{
    return via_container_of(target, struct engine, base);
}

static uint32_t get(struct engine *engine, uint32_t off)
{
    return via_pci_read32(engine->pci, 0, VIA_PLX_DMA_REG(CHANNEL, off));
}

static void put(struct engine *engine, uint32_t off, uint32_t value)
{
    via_pci_write32(engine->pci, 0, VIA_PLX_DMA_REG(CHANNEL, off), value);
}

static unsigned char *source_of(const struct engine *engine)
{
    return engine->memory + PAGE_BYTES;
}

static unsigned char *destination_of(const struct engine *engine)
{
    return engine->memory + PAGE_BYTES + engine->buffer_bytes;
}

/* --- transfers --- */

/* Waits until the engine has written the descriptor back. */
static int await(struct engine *engine, struct via_plx_dma_descriptor *descriptor,
                 uint32_t *ret_flags, struct via_error *err)
{
    uint64_t begin_ns = via_perf_target_now_ns(), poll_ns = begin_ns + POLL_NS;
    for (;;) {
        /* Pairs with the engine's write-back, which follows its data. */
        *ret_flags = atomic_load_explicit(&descriptor->flags, memory_order_acquire);
        if ((*ret_flags & VIA_PLX_DMA_VALID) == 0) {
            return 0;
        }
        uint64_t now = via_perf_target_now_ns();
        if (now < poll_ns) {
            continue;
        }
        poll_ns = now + POLL_NS;
        uint32_t control = get(engine, VIA_PLX_DMA_CONTROL);
        if (control == UINT32_MAX || engine->pci->ops->gone(engine->pci)) {
            return via_error_set(err, -ENODEV, "the function does not answer any more");
        }
        if (now - begin_ns > PATIENCE_NS) {
            put(engine, VIA_PLX_DMA_CONTROL, VIA_PLX_DMA_ABORT | VIA_PLX_DMA_CLEARS);
            return via_error_set(err, -ETIMEDOUT, "not done after 2 s, control register 0x%08x",
                                 control);
        }
        if ((control & VIA_PLX_DMA_BUSY) == 0) {
            put(engine, VIA_PLX_DMA_CONTROL, VIA_PLX_DMA_START | VIA_PLX_DMA_CLEARS);
        }
    }
}

static int engine_transfer(struct via_perf_target *target, enum via_perf_direction direction,
                           size_t bytes, struct via_error *err)
{
    struct engine *engine = engine_of(target);
    struct via_plx_dma_descriptor *ring = (void *)engine->memory;
    struct via_plx_dma_descriptor *descriptor = &ring[engine->head++ % SLOTS];
    uint64_t from = engine->iova + PAGE_BYTES;
    uint32_t flags = 0;
    (void)direction;
    via_plx_dma_fill(descriptor, from, from + engine->buffer_bytes,
                     VIA_PLX_DMA_VALID | (uint32_t)bytes);
    put(engine, VIA_PLX_DMA_CONTROL, VIA_PLX_DMA_START | VIA_PLX_DMA_CLEARS);
    int rc = await(engine, descriptor, &flags, err);
    if (rc == 0 && (flags & VIA_PLX_DMA_GOOD) == 0) {
        rc = via_error_set(err, -EIO, "the engine reports that its %s failed",
                           (flags & VIA_PLX_DMA_READ_FAILED) != 0 ? "read" : "write");
    }
    return rc;
}

static int engine_check(struct via_perf_target *target, enum via_perf_direction direction,
                        size_t bytes, struct via_error *err)
{
    struct engine *engine = engine_of(target);
    via_perf_target_fill(source_of(engine), bytes, engine->head);
    memset(destination_of(engine), 0, bytes);
    int rc = engine_transfer(target, direction, bytes, err);
    if (rc == 0 && memcmp(source_of(engine), destination_of(engine), bytes) != 0) {
        rc = via_error_set(err, -EIO, "the engine reports completion, but the bytes differ");
    }
    return rc;
}

/* --- opening --- */

/* Closes the target. Clearing bus mastering stops all accesses of the engine. */
static void engine_close(struct via_perf_target *target)
{
    struct engine *engine = engine_of(target);
    if (engine->pci != NULL) {
        (void)engine->pci->ops->config_write(engine->pci, VIA_PCI_COMMAND, 2,
                                             VIA_PCI_COMMAND_MEMORY);
        if (engine->iova != 0) {
            (void)engine->pci->ops->dma_unmap(engine->pci, engine->iova);
        }
        engine->pci->ops->close(engine->pci);
    }
    if (engine->memory != NULL) {
        munmap(engine->memory, engine->memory_bytes);
    }
    if (engine->fd >= 0) {
        close(engine->fd);
    }
    free(engine);
}

static const struct via_perf_target_ops engine_ops = {
    .transfer = engine_transfer, .check = engine_check, .close = engine_close};

static int make_memory(struct engine *engine, size_t bytes_max, struct via_error *err)
{
    engine->buffer_bytes = via_align_up(bytes_max, PAGE_BYTES);
    engine->memory_bytes = PAGE_BYTES + 2 * engine->buffer_bytes;
    engine->fd = memfd_create("viaduct-perf-engine", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (engine->fd < 0 || ftruncate(engine->fd, (off_t)engine->memory_bytes) != 0 ||
        fcntl(engine->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        return via_error_set(err, -errno, "%llu bytes of memory: %s",
                             (unsigned long long)engine->memory_bytes, strerror(errno));
    }
    void *at = mmap(NULL, engine->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                    engine->fd, 0);
    if (at == MAP_FAILED) {
        return via_error_set(err, -errno, "map %llu bytes: %s",
                             (unsigned long long)engine->memory_bytes, strerror(errno));
    }
    engine->memory = at;
    const struct via_pci_memory memory = {
        .at = at, .bytes = engine->memory_bytes, .fd = engine->fd, .writable = true};
    int rc = engine->pci->ops->dma_map(engine->pci, &memory, PAGE_BYTES, &engine->iova);
    return rc == 0 ? 0
                   : via_error_set(err, rc, "let the engine reach %llu bytes: %s",
                                   (unsigned long long)engine->memory_bytes, strerror(-rc));
}

static int set_up(struct engine *engine, size_t bytes_max, struct via_error *err)
{
    uint32_t ids = 0;
    int rc = engine->pci->ops->config_read(engine->pci, VIA_PCI_VENDOR_ID, 4, &ids);
    if (rc != 0 || ids != VENDOR_DEVICE) {
        return via_error_set(err, rc != 0 ? rc : -ENODEV,
                             "ids %04x:%04x: not the DMA function of a PEX 87xx (10b5:87d0)",
                             ids & 0xffff, ids >> 16);
    }
    rc = make_memory(engine, bytes_max, err);
    if (rc != 0) {
        return rc;
    }
    rc = engine->pci->ops->config_write(engine->pci, VIA_PCI_COMMAND, 2,
                                        VIA_PCI_COMMAND_MEMORY | VIA_PCI_COMMAND_MASTER);
    if (rc != 0) {
        return via_error_set(err, rc, "bus mastering: %s", strerror(-rc));
    }
    put(engine, VIA_PLX_DMA_CONTROL, VIA_PLX_DMA_CLEARS);
    put(engine, VIA_PLX_DMA_RING_LOW, (uint32_t)engine->iova);
    put(engine, VIA_PLX_DMA_RING_HIGH, (uint32_t)(engine->iova >> 32));
    put(engine, VIA_PLX_DMA_RING_NEXT, (uint32_t)engine->iova);
    put(engine, VIA_PLX_DMA_RING_COUNT, SLOTS);
    put(engine, VIA_PLX_DMA_PREFETCH, VIA_PLX_DMA_PREFETCH_FOUR);
    put(engine, VIA_PLX_DMA_INTERRUPT, VIA_PLX_DMA_INTERRUPT_STATUS);
    return 0;
}

int via_perf_target_engine(const char *device, const struct via_perf_target_options *options,
                           struct via_perf_target **ret_target, struct via_error *err)
{
    struct engine *engine = calloc(1, sizeof(*engine));
    if (engine == NULL) {
        return via_error_set(err, -ENOMEM, "%s: open: %s", device, strerror(ENOMEM));
    }
    *engine =
        (struct engine){.base = {.ops = &engine_ops,
                                 .way = "DMA by the switch: memory to memory",
                                 .bytes = via_min(options->bytes_max, (size_t)VIA_PLX_DMA_SIZE_MAX),
                                 .size_min = SIZE_MIN,
                                 .directions = 1u << VIA_PERF_LOOP},
                        .fd = -1};
    snprintf(engine->base.name, sizeof(engine->base.name), "%s", device);
    int rc = via_cli_card_open(device, NULL, &engine->pci, err);
    if (rc == 0) {
        rc = set_up(engine, options->bytes_max, err);
        if (rc != 0) {
            via_error_prefix(err, "%s: ", device);
        }
    }
    if (rc != 0) {
        engine_close(&engine->base);
        return rc;
    }
    *ret_target = &engine->base;
    return 0;
}
