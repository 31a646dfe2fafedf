/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The register model of PEX 87xx, driven from both sides: a driver at one side (the pex port, or
 * raw accesses), raw accesses by a hostile host at the other, and faults of the chip. Nothing
 * crashes; a function never reaches memory that its other host did not map for it; the port is up
 * only with a peer that has completed the protocol, which these accesses can not do.
 *
 * Input: a byte (bit 0: which end is at side 0; bit 1: the chip has two NT ports; the others:
 * errata of the DMA function); then steps, each a byte with the kind, then its numbers.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/pex/pex.h"
#include "port/driver.h"
#include "tests/fuzz/input.h"

#define STEPS_MAX 64u
#define MEMORY_BYTES 8192u
#define MAPS_MAX 4u
#define FUNCTIONS_MAX 4u /* NT0's virtual and link side, NT1's */
#define BAR_BYTES (UINT64_C(1) << 20)

/* Guard memory around the mapped memory, which the other side must not touch. */
struct memory {
    unsigned char *at; /* guard page, MEMORY_BYTES, guard page */
    uint64_t iova;
};

struct raw {
    struct via_pci *pci;
    struct via_pci *engine; /* NULL: not attached */
    struct memory memory[MAPS_MAX];
    unsigned count;
    struct via_pci_mapping mapping;
    int irq_fd;
};

struct world {
    struct via_pex *pex;
    unsigned functions_count;
    struct raw raw[FUNCTIONS_MAX];
    struct via_driver_host host;
    struct via_port *port; /* at side 0; NULL: raw accesses */
    const struct via_driver *driver;
    uint64_t now_ns;
};

static int memory_fd = -1;

static void map_memory(struct raw *raw, uint64_t alignment)
{
    struct memory *memory = &raw->memory[raw->count];
    if (raw->count == MAPS_MAX) {
        return;
    }
    memory->at =
        mmap(NULL, MEMORY_BYTES + 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(memory->at != MAP_FAILED);
    require(mmap(memory->at + 4096, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                 memory_fd, 0) != MAP_FAILED);
    memset(memory->at, 0x5a, 4096);
    memset(memory->at + 4096 + MEMORY_BYTES, 0x5a, 4096);
    struct via_pci_memory what = {
        .at = memory->at + 4096, .bytes = MEMORY_BYTES, .fd = memory_fd, .writable = true};
    if (raw->pci->ops->dma_map(raw->pci, &what, UINT64_C(4096) << alignment % 12, &memory->iova) ==
        0) {
        raw->count++;
    } else {
        munmap(memory->at, MEMORY_BYTES + 8192);
    }
}

static void check_guards(const struct raw *raw)
{
    for (unsigned i = 0; i < raw->count; i++) {
        const unsigned char *at = raw->memory[i].at;
        for (unsigned k = 0; k < 4096; k += 64) {
            require(at[k] == 0x5a && at[4096 + MEMORY_BYTES + k] == 0x5a);
        }
    }
}

static void access_region(struct raw *raw, struct input *input, bool writes)
{
    static unsigned char data[256];
    unsigned region = input_byte(input) % 6;
    uint64_t off = input_edgy(input);
    size_t len = input_byte(input);
    /* Most registers are at the end of BAR 0. */
    if (region == 0 && (off & 0x80) == 0) {
        off = 0x3E000 + (off << 5) % 0x2000 + (input_byte(input) & ~UINT64_C(3));
        len = 4;
    }
    if (writes) {
        input_take(input, data, len % sizeof(data));
        (void)raw->pci->ops->region_write(raw->pci, region, off, data, len % sizeof(data));
    } else {
        (void)raw->pci->ops->region_read(raw->pci, region, off, data, len % sizeof(data));
    }
}

/* Acts like a driver, so that windows are open. */
static void open_way(struct raw *raw, unsigned function, uint64_t address)
{
    uint32_t own = 0x3E000 + function % 2 * 0x1000 - function / 2 * 0x2000;
    via_pci_write32(raw->pci, 0, own + (function % 2 == 0 ? 0xD94 : 0xDB4), 0x00190021);
    via_pci_write32(raw->pci, 0, (own ^ 0x1000) + 0xC3C, (uint32_t)address);
    via_pci_write32(raw->pci, 0, (own ^ 0x1000) + 0xC40, (uint32_t)(address >> 32));
    (void)raw->pci->ops->config_write(raw->pci, 4, 2, 6);
}

static void touch_mapping(struct raw *raw, uint64_t off)
{
    if (raw->mapping.at == NULL) {
        (void)raw->pci->ops->map(raw->pci, 2, 0, BAR_BYTES, off % 2 != 0, &raw->mapping);
    }
    if (raw->mapping.at != NULL) {
        raw->mapping.at[off % BAR_BYTES] ^= 1;
    }
}

/* The DMA function: a ring or a block within mapped memory, or anywhere. */
static void step_engine(struct raw *raw, struct input *input)
{
    static const uint32_t registers[] = {0x00, 0x04, 0x08, 0x0C, 0x10, 0x14, 0x18,
                                         0x1C, 0x20, 0x38, 0x3A, 0x3C, 0x3E};
    unsigned what = input_byte(input);
    uint64_t mapped = raw->count != 0 ? raw->memory[0].iova : 0;
    if (raw->engine == NULL) {
        return;
    }
    if (what % 4 == 0 && raw->count != 0) { /* a descriptor, in memory that the ring may be in */
        uint32_t dword[4] = {(uint32_t)input_edgy(input) | 0x80000000u, (uint32_t)input_edgy(input),
                             (uint32_t)mapped, (uint32_t)mapped};
        dword[1] = what % 8 == 0 ? (uint32_t)(mapped >> 32) * 0x10001u : dword[1];
        memcpy(raw->memory[0].at + 4096 + what / 8 * 16, dword, sizeof(dword));
        return;
    }
    uint32_t off = registers[input_byte(input) % VIA_ARRAY_COUNT(registers)];
    uint32_t value = (uint32_t)(what % 4 == 1 ? mapped : input_edgy(input));
    if (what % 4 == 1 && (off == 0x04 || off == 0x0C || off == 0x18)) {
        value = (uint32_t)(mapped >> 32);
    } else if (off == 0x38 && what % 4 == 2) {
        value = 0x174c; /* as Linux starts a ring */
    }
    (void)raw->engine->ops->config_write(raw->engine, 4, 2, what % 16 == 15 ? 0 : 6);
    (void)raw->engine->ops->region_write(raw->engine, 0, 0x200 + 0x100 * (what >> 6) + off, &value,
                                         off % 4 == 0 ? 4 : 2);
    (void)raw->engine->ops->region_read(raw->engine, 0, 0x200 + off, &value, off % 4 == 0 ? 4 : 2);
}

static void step_raw(struct world *world, unsigned function, unsigned what, struct input *input)
{
    struct raw *raw = &world->raw[function];
    uint32_t value;
    switch (what) {
    case 0:
    case 1:
        access_region(raw, input, what == 1);
        break;
    case 2:
        (void)raw->pci->ops->config_read(raw->pci, (unsigned)input_edgy(input), input_byte(input),
                                         &value);
        break;
    case 3:
        (void)raw->pci->ops->config_write(raw->pci, (unsigned)input_edgy(input),
                                          input_byte(input) % 5, (uint32_t)input_edgy(input));
        break;
    case 4:
        map_memory(raw, input_byte(input));
        break;
    case 5:
        if (raw->count != 0) {
            raw->count--;
            require(raw->pci->ops->dma_unmap(raw->pci, raw->memory[raw->count].iova) == 0);
            munmap(raw->memory[raw->count].at, MEMORY_BYTES + 8192);
        }
        break;
    case 6:
        (void)raw->pci->ops->irq_set(raw->pci, input_byte(input) % VIA_PCI_IRQ_KINDS,
                                     input_byte(input) % 3, (int[]){raw->irq_fd, raw->irq_fd});
        (void)raw->pci->ops->irq_unmask(raw->pci);
        break;
    case 7:
        open_way(raw, function, raw->count != 0 ? raw->memory[0].iova : input_edgy(input));
        break;
    default:
        touch_mapping(raw, input_edgy(input));
    }
}

static void step_fault(struct world *world, struct input *input)
{
    unsigned function = input_byte(input) % world->functions_count;
    enum via_pex_side side = function % 2;
    struct via_pex *pex = function >= 2 ? via_pex_twin(world->pex) : world->pex;
    switch (input_byte(input) % 6) {
    case 0:
        via_pex_set_link(pex, side != 0);
        break;
    case 1:
        via_pex_reset_host(pex, side);
        break;
    case 2:
        via_pex_remove(pex, side, input_byte(input) % 2);
        break;
    case 3:
        via_pex_hold_interrupts(pex, side, input_byte(input) % 2);
        break;
    case 4:
        via_pex_lose_interrupts(pex, side, 1);
        break;
    default:
        via_pex_raise_error(pex, input_byte(input));
    }
}

static void step_port(struct world *world)
{
    struct via_port *port = world->port;
    uint64_t deadline_ns, word = 1;
    world->now_ns += 7 * VIA_MSEC_NS;
    world->driver->service(port, world->now_ns, &deadline_ns);
    require(deadline_ns > world->now_ns);
    require(!port->ops->link_is_up(port));
    port->ops->commit(port, 0, 0, &word, sizeof(word));
    require(port->ops->ring(port, 0, 1) != 0 && port->ops->fence_start(port, 0) != 0);
    require(port->ops->scratchpad_read(port, 1) == UINT32_MAX);
}

/* --- the world --- */

static void attach(struct world *world, unsigned function, const struct via_pex_options *options)
{
    struct via_pci **pci = &world->raw[function].pci;
    enum via_pex_side side = function % 2 == 0 ? VIA_PEX_VIRTUAL : VIA_PEX_LINK;
    require((world->functions_count > 2
                 ? via_pex_attach_named_twin("fuzz", function / 2, side, options, pci, NULL)
                 : via_pex_attach_named("fuzz", side, options, pci, NULL)) == 0);
    (void)(*pci)->ops->config_write(*pci, 4, 2, 6);
}

static void give_errata(struct world *world, unsigned bits)
{
    const struct via_pex_engine_faults faults = {
        .stops_silently = (bits & 1) != 0,
        .late_write_back = (bits & 2) != 0,
        .fails = (bits & 4) != 0,
        .stalls = (bits & 8) != 0,
        .misaligned_reads = bits >> 4 & 3,
        .enable_fires_msi = (bits & 4) != 0,
    };
    via_pex_engine_set_faults(world->pex, VIA_PEX_LINK, &faults);
}

static void begin(struct world *world, bool with_port, bool two_ports, unsigned errata)
{
    struct via_link_config config;
    struct via_pex_options options = via_pex_options_default;
    options.bar_bytes[0][0] = options.bar_bytes[1][0] = BAR_BYTES;
    memset(world, 0, sizeof(*world));
    world->functions_count = two_ports ? 4 : 2;
    world->host = (struct via_driver_host){.host = 1, .threads_count = 1, .bell_fd = -1};
    if (with_port) {
        require(via_link_parse(two_ports ? "pex:model:fuzz,side=virtual,window=64KiB,nt=0"
                                         : "pex:model:fuzz,side=virtual,window=64KiB",
                               &config, NULL) == 0);
        world->driver = config.driver;
        require(config.driver->open(config.config, &world->host, &world->port, NULL) == 0);
    }
    for (unsigned i = with_port ? 1 : 0; i < world->functions_count; i++) {
        attach(world, i, &options);
    }
    world->pex = via_pex_find("fuzz");
    require(via_pex_attach_engine(world->pex, VIA_PEX_LINK, &world->raw[1].engine) == 0);
    give_errata(world, errata);
    for (unsigned i = 0; i < world->functions_count; i++) {
        world->raw[i].irq_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    }
}

static void end(struct world *world)
{
    if (world->port != NULL) {
        world->port->ops->close(world->port);
    }
    world->raw[1].engine->ops->close(world->raw[1].engine);
    for (unsigned i = 0; i < world->functions_count; i++) {
        struct raw *raw = &world->raw[i];
        if (raw->pci != NULL) {
            if (raw->mapping.at != NULL) {
                raw->pci->ops->unmap(raw->pci, &raw->mapping);
            }
            raw->pci->ops->close(raw->pci);
        }
        for (unsigned k = 0; k < raw->count; k++) {
            munmap(raw->memory[k].at, MEMORY_BYTES + 8192);
        }
        close(raw->irq_fd);
    }
    require(via_pex_find("fuzz") == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, bytes};
    static struct world world;
    if (memory_fd < 0) {
        memory_fd = memfd_create("fuzz-pex", MFD_CLOEXEC);
        require(ftruncate(memory_fd, MEMORY_BYTES) == 0);
    }
    uint8_t who = input_byte(&input);
    begin(&world, (who & 1) != 0, (who & 2) != 0, who >> 2);
    for (unsigned i = 0; i < STEPS_MAX && input.bytes != 0; i++) {
        uint8_t what = input_byte(&input);
        unsigned function = (what >> 4) % world.functions_count;
        function = world.port != NULL && function == 0 ? 1 : function;
        if ((what & 0xf) > 13) {
            step_fault(&world, &input);
        } else if ((what & 0xf) > 11 && world.port != NULL) {
            step_port(&world);
        } else if ((what & 0xf) > 10) {
            step_engine(&world.raw[1], &input);
            function = 1;
        } else {
            step_raw(&world, function, what & 0xf, &input);
        }
        check_guards(&world.raw[function]);
    }
    end(&world);
    return 0;
}
