/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The register model of PEX 87xx, register by register. Offsets are written out here, from the
 * public sources, so that a wrong offset in the model's table can not confirm itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/pex/pex.h"

#define VIRTUAL 0x3E000u
#define LINK 0x3F000u
#define MIB (UINT64_C(1) << 20)
#define MEMORY_BYTES (64u << 10)

struct host {
    struct via_pci *pci;
    unsigned char *memory;
    int memory_fd;
    uint64_t iova;
    int irq_fd;
};

struct world {
    struct via_pex *pex;
    struct host host[2];
};

static struct via_pex_options options;

/* --- access --- */

static uint32_t get(struct world *world, unsigned side, uint64_t off)
{
    uint32_t value;
    assert_int_equal(
        world->host[side].pci->ops->region_read(world->host[side].pci, 0, off, &value, 4), 0);
    return value;
}

static void put(struct world *world, unsigned side, uint64_t off, uint32_t value)
{
    assert_int_equal(
        world->host[side].pci->ops->region_write(world->host[side].pci, 0, off, &value, 4), 0);
}

static uint32_t config(struct world *world, unsigned side, unsigned off, unsigned len)
{
    uint32_t value;
    assert_int_equal(
        world->host[side].pci->ops->config_read(world->host[side].pci, off, len, &value), 0);
    return value;
}

static void set_config(struct world *world, unsigned side, unsigned off, unsigned len,
                       uint32_t value)
{
    assert_int_equal(
        world->host[side].pci->ops->config_write(world->host[side].pci, off, len, value), 0);
}

static uint64_t fired(struct world *world, unsigned side)
{
    uint64_t count = 0;
    return read(world->host[side].irq_fd, &count, sizeof(count)) == sizeof(count) ? count : 0;
}

/* A word through BAR 2. */
static uint64_t load(struct world *world, unsigned side, uint64_t off)
{
    uint64_t word = 0;
    assert_int_equal(
        world->host[side].pci->ops->region_read(world->host[side].pci, 2, off, &word, 8), 0);
    return word;
}

static void store(struct world *world, unsigned side, uint64_t off, uint64_t word)
{
    assert_int_equal(
        world->host[side].pci->ops->region_write(world->host[side].pci, 2, off, &word, 8), 0);
}

static uint64_t word_at(const struct host *host, uint64_t off)
{
    uint64_t word;
    memcpy(&word, host->memory + off, sizeof(word));
    return word;
}

/* --- two hosts --- */

static void open_host(struct world *world, unsigned side)
{
    struct host *host = &world->host[side];
    assert_int_equal(via_pex_attach(world->pex, side, &host->pci), 0);
    host->memory_fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(ftruncate(host->memory_fd, MEMORY_BYTES), 0);
    host->memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, host->memory_fd, 0);
    assert_true(host->memory != MAP_FAILED);
    struct via_pci_memory memory = {
        .at = host->memory, .bytes = MEMORY_BYTES, .fd = host->memory_fd, .writable = true};
    assert_int_equal(host->pci->ops->dma_map(host->pci, &memory, 4 * MIB, &host->iova), 0);
    assert_int_equal(host->iova % (4 * MIB), 0);
    host->irq_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    set_config(world, side, 4, 2, 2);
}

static int set_up_with(void **state)
{
    static struct world world;
    struct via_error err;
    memset(&world, 0, sizeof(world));
    assert_int_equal(via_pex_new(&options, &world.pex, &err), 0);
    open_host(&world, 0);
    open_host(&world, 1);
    *state = &world;
    return 0;
}

static int set_up(void **state)
{
    options = via_pex_options_default;
    return set_up_with(state);
}

static int tear_down(void **state)
{
    struct world *world = *state;
    for (unsigned side = 0; side < 2; side++) {
        struct host *host = &world->host[side];
        host->pci->ops->close(host->pci);
        munmap(host->memory, MEMORY_BYTES);
        close(host->memory_fd);
        close(host->irq_fd);
    }
    via_pex_free(world->pex);
    return 0;
}

/* The steps of a driver, each with the register that FreeBSD's driver uses. */
static void open_way(struct world *world, unsigned side)
{
    uint32_t own = side == 0 ? VIRTUAL : LINK, peer = side == 0 ? LINK : VIRTUAL;
    uint32_t lut = side == 0 ? 0xD94 : 0xDB4;
    set_config(world, side, 4, 2, 6);
    put(world, side, own + lut, (get(world, side, own + 0xC90) & 0xfff8) << 16 | 0x00010001);
    put(world, side, peer + 0xC3C, (uint32_t)world->host[side].iova);
    put(world, side, peer + 0xC40, (uint32_t)(world->host[side].iova >> 32));
}

static void open_ways(struct world *world)
{
    open_way(world, 0);
    open_way(world, 1);
}

static bool passes(struct world *world, unsigned side)
{
    static uint64_t word;
    word += UINT64_C(0x0101010101010101);
    store(world, side, 256, word);
    bool arrived = word_at(&world->host[1 - side], 256) == word;
    return (load(world, side, 256) == word) & arrived;
}

/* --- identity and config space --- */

static void functions_have_their_ids(void **state)
{
    struct world *world = *state;
    assert_int_equal(config(world, 0, 0, 4), 0x87B010B5);
    assert_int_equal(config(world, 1, 0, 4), 0x87A010B5);
    assert_int_equal(get(world, 0, VIRTUAL + 0xC8C), 0);
    assert_int_equal(get(world, 1, LINK + 0xC8C), 0x80000000);
    assert_int_equal(config(world, 1, 0xC8C, 4), 0x80000000); /* config space shows the registers */
    assert_int_equal(get(world, 0, LINK + 0xC8C), 0x80000000); /* BAR 0 shows both sides */
    assert_int_equal(get(world, 0, 0x360) >> 30, 1);
    assert_int_equal(get(world, 0, 0x360) >> 13 & 1, 1);
    assert_int_equal(config(world, 0, 8, 4) >> 16, 0x0680);
}

static void the_second_nt_port_is_elsewhere(void **state)
{
    struct world *world = *state;
    assert_int_equal(config(world, 0, 0, 4), 0x87B110B5);
    assert_int_equal(config(world, 1, 0, 4), 0x87A110B5);
    assert_int_equal(get(world, 0, 0x3C000 + 0xC8C), 1);
    assert_int_equal(get(world, 1, 0x3D000 + 0xC8C), 0x80000001);
    assert_int_equal(get(world, 0, 0x360), 5 << 16 | 1u << 21 | 3u << 30);
    assert_int_equal(get(world, 0, 0x3E000 + 0xC8C), 0); /* there is no NT0 */
}

static int set_up_second(void **state)
{
    options = via_pex_options_default;
    options.nt = 1;
    options.port = 5;
    options.alut_entries = 128;
    return set_up_with(state);
}

static void bars_are_sized_by_all_ones(void **state)
{
    struct world *world = *state;
    for (unsigned side = 0; side < 2; side++) {
        set_config(world, side, 0x10, 4, UINT32_MAX);
        assert_int_equal(config(world, side, 0x10, 4), 0xFFFC0000);
        set_config(world, side, 0x18, 4, UINT32_MAX);
        set_config(world, side, 0x1C, 4, UINT32_MAX);
        assert_int_equal(config(world, side, 0x18, 4),
                         0xFFC0000C); /* 4 MiB, 64-bit, prefetchable */
        assert_int_equal(config(world, side, 0x1C, 4), UINT32_MAX);
        set_config(world, side, 0x20, 4, UINT32_MAX);
        assert_int_equal(config(world, side, 0x20, 4), 0); /* off */
    }
    assert_int_equal(get(world, 0, VIRTUAL + 0xD4), 0xFFC0000C);
    assert_int_equal(get(world, 0, VIRTUAL + 0xD8), UINT32_MAX);
    assert_int_equal(get(world, 1, LINK + 0xE8), 0xFFC0000C);
    assert_int_equal(get(world, 1, LINK + 0xE4), 2);
    /* A set-up of 1 GiB. */
    put(world, 0, VIRTUAL + 0xD4, 0xC000000C);
    set_config(world, 0, 0x18, 4, UINT32_MAX);
    assert_int_equal(config(world, 0, 0x18, 4), 0xC000000C);
    /* BAR 0/1 of the link side becomes 64-bit. */
    put(world, 1, LINK + 0xE4, 3);
    assert_int_equal(config(world, 1, 0x10, 4) & 7, 4);
}

/* As in a virtual machine, the DMA function reaches the window at the address that the machine has
 * assigned. */
static void bars_lie_where_the_machine_puts_them(void **state)
{
    struct world *world = *state;
    for (unsigned side = 0; side < 2; side++) {
        enum via_pex_side which = side == 0 ? VIA_PEX_VIRTUAL : VIA_PEX_LINK;
        uint32_t low = config(world, side, 0x18, 4);
        set_config(world, side, 0x18, 4, 0x80000000);
        set_config(world, side, 0x1C, 4, 0x38);
        set_config(world, side, 0x18, 4, UINT32_MAX); /* sizing assigns no address */
        set_config(world, side, 0x04, 2, 6);
        assert_int_equal(config(world, side, 0x18, 4), 0x8000000C);
        assert_int_equal(config(world, side, 0x1C, 4), 0x38);
        via_pex_reset_host(world->pex, which);
        assert_int_equal(config(world, side, 0x18, 4), 0xC);
        set_config(world, side, 0x04, 2, 6);
        assert_int_equal(config(world, side, 0x18, 4), 0x8000000C);
        assert_int_not_equal(low, 0x8000000C);
    }
}

static void writes_go_by_byte(void **state)
{
    struct world *world = *state;
    struct via_pci *pci = world->host[0].pci;
    uint8_t byte = 0xAB;
    uint16_t half = 0x1234;
    put(world, 0, VIRTUAL + 0xC6C, 0x11223344);
    assert_int_equal(pci->ops->region_write(pci, 0, VIRTUAL + 0xC6E, &byte, 1), 0);
    assert_int_equal(get(world, 0, VIRTUAL + 0xC6C), 0x11AB3344);
    assert_int_equal(pci->ops->region_write(pci, 0, VIRTUAL + 0xC6C, &half, 2), 0);
    assert_int_equal(get(world, 0, VIRTUAL + 0xC6C), 0x11AB1234);
    assert_int_equal(pci->ops->region_read(pci, 0, VIRTUAL + 0xC6F, &byte, 1), 0);
    assert_int_equal(byte, 0x11);
    /* A byte with 1s clears no bit of the other bytes. */
    via_pex_raise_error(world->pex, 3);
    byte = 0xff;
    assert_int_equal(pci->ops->region_write(pci, 0, VIRTUAL + 0xFE1, &byte, 1), 0);
    assert_int_equal(get(world, 0, VIRTUAL + 0xFE0), 3);
}

static void what_is_not_there_reads_zero_and_what_is_outside_is_refused(void **state)
{
    struct world *world = *state;
    struct via_pci *pci = world->host[0].pci;
    uint32_t value = 5;
    put(world, 0, VIRTUAL + 0x400, 0x55555555);
    assert_int_equal(get(world, 0, VIRTUAL + 0x400), 0);
    put(world, 0, 0x10000, 0x55555555);
    assert_int_equal(get(world, 0, 0x10000), 0);
    assert_int_equal(pci->ops->region_read(pci, 0, 0x40000, &value, 4), -EINVAL);
    assert_int_equal(pci->ops->region_read(pci, 2, 4 * MIB - 4, &value, 8), -EINVAL);
    assert_int_equal(pci->ops->region_read(pci, 4, 0, &value, 4), -EINVAL);
    assert_int_equal(pci->ops->config_read(pci, 2, 4, &value), -EINVAL);
    set_config(world, 0, 4, 2, 0); /* memory decoding off */
    assert_int_equal(pci->ops->region_read(pci, 0, 0, &value, 4), -ENXIO);
}

/* --- windows --- */

static void a_window_leads_to_the_others_memory(void **state)
{
    struct world *world = *state;
    open_ways(world);
    for (unsigned side = 0; side < 2; side++) {
        struct via_pci *pci = world->host[side].pci;
        struct via_pci_mapping mapping;
        assert_true(passes(world, side));
        store(world, side, MEMORY_BYTES - 8, 77);
        assert_int_equal(word_at(&world->host[1 - side], MEMORY_BYTES - 8), 77);
        /* The other function's IOMMU allows no more than its memory. */
        assert_true(load(world, side, MEMORY_BYTES) == UINT64_MAX);
        assert_int_equal(pci->ops->map(pci, 2, 0, 2 * MEMORY_BYTES, true, &mapping), 0);
        assert_int_equal(mapping.caching, VIA_PCI_MEMORY);
        mapping.at[100] = 0x5a;
        assert_int_equal(world->host[1 - side].memory[100], 0x5a);
        assert_int_equal(mapping.at[MEMORY_BYTES], 0xff);
        mapping.at[MEMORY_BYTES] = 1; /* vanishes */
        pci->ops->unmap(pci, &mapping);
        assert_int_equal(pci->ops->map(pci, 0, 0, 4096, false, &mapping), -ENOTSUP);
    }
}

/* Removes each condition of a window, one at a time. */
static void a_window_needs_all_of(void **state)
{
    struct world *world = *state;
    struct via_pci *pci = world->host[0].pci;
    struct via_pci_mapping mapping;
    open_ways(world);
    assert_int_equal(pci->ops->map(pci, 2, 0, 4096, true, &mapping), 0);
    assert_true(passes(world, 0));
    mapping.at[0] = 0x11;

    set_config(world, 1, 4, 2, 2); /* bus mastering of the other function is off */
    assert_false(passes(world, 0));
    assert_int_equal(mapping.at[0], 0xff);
    set_config(world, 1, 4, 2, 6);
    assert_int_equal(mapping.at[0], 0x11);

    struct via_pex_stats before, after;
    via_pex_stats(world->pex, &before);
    put(world, 0, VIRTUAL + 0xD94, 0x00000001); /* the requester is not in the table */
    assert_false(passes(world, 0));
    assert_int_equal(mapping.at[0], 0xff);
    via_pex_stats(world->pex, &after);
    assert_int_equal(after.requester_refused, before.requester_refused + 2);
    put(world, 0, VIRTUAL + 0xD94, 0x00190000); /* 0:3.0, enabled */
    assert_true(passes(world, 0));
    put(world, 0, VIRTUAL + 0xD94, 0x00180000); /* not enabled */
    assert_false(passes(world, 0));
    put(world, 0, VIRTUAL + 0xD94, 0);
    put(world, 0, VIRTUAL + 0xD94 + 60, 0x001b0000); /* the last entry, no-snoop */
    assert_true(passes(world, 0));

    put(world, 1, VIRTUAL + 0xC40, 0x77); /* a translation to an address without memory */
    assert_false(passes(world, 0));
    put(world, 1, VIRTUAL + 0xC40, (uint32_t)(world->host[1].iova >> 32));
    assert_true(passes(world, 0));

    via_pex_set_link(world->pex, false);
    assert_false(passes(world, 0));
    via_pex_set_link(world->pex, true);
    set_config(world, 1, 4, 2, 6);
    assert_true(passes(world, 0)); /* the virtual side's registers were kept */
    set_config(world, 0, 0x18, 4, 0);
    set_config(world, 0, 0x1C, 4, 0);
    assert_false(passes(world, 0)); /* the BAR has no address */
    set_config(world, 0, 4, 2, 6);
    assert_true(passes(world, 0)); /* and gets it again with memory decoding */

    assert_int_equal(world->host[1].pci->ops->dma_unmap(world->host[1].pci, world->host[1].iova),
                     0);
    assert_false(passes(world, 0));
    pci->ops->unmap(pci, &mapping);
}

static void fill_alut(struct world *world, unsigned side, uint32_t array, unsigned entry,
                      uint64_t address, uint32_t permission)
{
    uint32_t at = 0x38000 + array * 0x1000 + entry % 128 * 4 + (entry >= 128 ? 0x1000 : 0);
    put(world, side, at, (uint32_t)address);
    put(world, side, at + 0x400, (uint32_t)(address >> 32));
    put(world, side, at + 0x800, permission);
}

static void the_alut_shows_pieces(void **state)
{
    struct world *world = *state;
    uint64_t piece = 4 * MIB / 256; /* 16 KiB */
    open_ways(world);
    struct via_pci *pci = world->host[0].pci;
    struct via_pci_mapping mapping;
    assert_int_equal(pci->ops->map(pci, 2, 0, 4 * MIB, true, &mapping), 0);
    /* Host 1 maps its memory in reverse order at the virtual side's BAR: array 0, entries 0, 1 and
     * 200. */
    fill_alut(world, 1, 0, 0, world->host[1].iova + piece, 3);
    fill_alut(world, 1, 0, 1, world->host[1].iova, 3);
    fill_alut(world, 1, 0, 200, world->host[1].iova + 2 * piece, 3);
    fill_alut(world, 1, 0, 2, world->host[1].iova + 2 * piece, 2); /* no writes: refused whole */
    put(world, 1, LINK + 0xC94, 0x10000000);
    mapping.at[0] = 0x21;
    mapping.at[piece] = 0x22;
    mapping.at[200 * piece + 5] = 0x23;
    mapping.at[2 * piece] = 0x24;
    assert_int_equal(world->host[1].memory[piece], 0x21);
    assert_int_equal(world->host[1].memory[0], 0x22);
    assert_int_equal(world->host[1].memory[2 * piece + 5], 0x23);
    assert_int_equal(world->host[1].memory[2 * piece], 0);
    assert_int_equal(mapping.at[3 * piece], 0xff);
    put(world, 1, LINK + 0xC94, 0);
    mapping.at[8] = 0x25;
    assert_int_equal(world->host[1].memory[8], 0x25);
    pci->ops->unmap(pci, &mapping);
}

static void the_alut_of_two_nt_ports_is_halved(void **state)
{
    struct world *world = *state;
    uint32_t base = 0x3C000;
    uint64_t piece = 4 * MIB / 128;
    for (unsigned side = 0; side < 2; side++) {
        uint32_t own = base + 0x1000 * side;
        set_config(world, side, 4, 2, 6);
        put(world, side, own + (side == 0 ? 0xD94 : 0xDB4),
            (get(world, side, own + 0xC90) & 0xfff8) << 16 | 0x00010001);
    }
    /* The link side's BAR leads to host 0: array 1 + 2 * NT. */
    fill_alut(world, 0, 3, 1, world->host[0].iova, 3);
    put(world, 0, base + 0xC94, 0x10000000);
    store(world, 1, piece + 16, 99);
    assert_int_equal(word_at(&world->host[0], 16), 99);
    assert_true(load(world, 1, 0) == UINT64_MAX);
}

/* --- doorbells and scratchpads --- */

/* A holder of the eventfd can fill it, and clear O_NONBLOCK for all its writers. */
static void a_full_eventfd_blocks_no_thread(void **state)
{
    struct world *world = *state;
    struct host *host = &world->host[0];
    uint64_t full = UINT64_MAX - 1;
    assert_int_equal(host->pci->ops->irq_set(host->pci, VIA_PCI_MSI, 1, &host->irq_fd), 0);
    set_config(world, 0, 4, 2, 6);
    put(world, 0, VIRTUAL + 0xC4C + 4, 0xffff);
    put(world, 0, VIRTUAL + 0xC4C + 12, 0xffff);
    assert_int_equal(write(host->irq_fd, &full, sizeof(full)), sizeof(full));
    assert_int_equal(fcntl(host->irq_fd, F_SETFL, 0), 0);
    alarm(20);
    put(world, 1, LINK + 0xC4C, 1);
    alarm(0);
    assert_int_equal(fcntl(host->irq_fd, F_SETFL, O_NONBLOCK), 0);
}

static void an_msi_comes_on_the_edge(void **state)
{
    struct world *world = *state;
    static const uint32_t bells[] = {VIRTUAL + 0xC4C, LINK + 0xC5C};
    for (unsigned side = 0; side < 2; side++) {
        struct host *host = &world->host[side];
        uint32_t bell = bells[side];
        /* The other host sees both sets of doorbells at its own base, too. */
        uint32_t from_peer = (side == 0 ? LINK : VIRTUAL) + (bell & 0xfff);
        assert_int_equal(host->pci->ops->irq_set(host->pci, VIA_PCI_MSI, 1, &host->irq_fd), 0);
        put(world, 1 - side, from_peer, 1);
        assert_int_equal(fired(world, side), 0); /* masked, and no bus mastering */
        set_config(world, side, 4, 2, 6);
        put(world, side, bell + 4, 0xffff);
        put(world, side, bell + 12, 0xffff);
        assert_int_equal(get(world, side, bell + 8), 0);
        put(world, 1 - side, from_peer, 1u << 3);
        assert_int_equal(fired(world, side), 1);
        put(world, 1 - side, from_peer, 1u << 3);
        put(world, 1 - side, from_peer, 1u << 9);
        assert_int_equal(fired(world, side), 0); /* it is not zero */
        assert_int_equal(get(world, side, bell), 1u << 3 | 1u << 9);
        put(world, side, bell + 4, 1u << 3);
        put(world, 1 - side, from_peer, 1u << 3);
        assert_int_equal(fired(world, side), 0); /* partial clear: still not */
        put(world, side, bell + 4, 0xffff);
        put(world, 1 - side, from_peer, 0x10008);
        assert_int_equal(fired(world, side), 1);
        assert_int_equal(get(world, side, bell), 8); /* 16 bits */
        put(world, side, bell + 8, 8);
        put(world, side, bell + 12, 8);
        assert_int_equal(fired(world, side), 0); /* masking and unmasking does not help (FreeBSD) */
        via_pex_lose_interrupts(world->pex, side, 1);
        put(world, side, bell + 4, 8);
        put(world, 1 - side, from_peer, 8);
        assert_int_equal(fired(world, side), 0);
        via_pex_hold_interrupts(world->pex, side, true);
        put(world, side, bell + 4, 8);
        put(world, 1 - side, from_peer, 8);
        put(world, side, bell + 4, 8);
        put(world, 1 - side, from_peer, 8);
        assert_int_equal(fired(world, side), 0);
        via_pex_hold_interrupts(world->pex, side, false);
        assert_int_equal(fired(world, side), 1); /* late and merged */
    }
}

static void with_a_switch_unmasking_is_an_edge(void **state)
{
    struct world *world = *state;
    struct host *host = &world->host[0];
    assert_int_equal(host->pci->ops->irq_set(host->pci, VIA_PCI_MSI, 1, &host->irq_fd), 0);
    set_config(world, 0, 4, 2, 6);
    put(world, 1, LINK + 0xC4C, 1);
    assert_int_equal(fired(world, 0), 0);
    put(world, 0, VIRTUAL + 0xC58, 1);
    assert_int_equal(fired(world, 0), 1);
}

static int set_up_unmask(void **state)
{
    options = via_pex_options_default;
    options.switches.unmask_fires_msi = true;
    return set_up_with(state);
}

static void intx_stays_until_it_is_cleared(void **state)
{
    struct world *world = *state;
    struct host *host = &world->host[1];
    assert_int_equal(host->pci->ops->irq_set(host->pci, VIA_PCI_INTX, 1, &host->irq_fd), 0);
    put(world, 1, LINK + 0xC68, 0xffff);
    put(world, 0, VIRTUAL + 0xC5C, 4);
    assert_int_equal(fired(world, 1), 1);
    put(world, 0, VIRTUAL + 0xC5C, 2);
    assert_int_equal(fired(world, 1), 0); /* masked until it is unmasked */
    assert_int_equal(host->pci->ops->irq_unmask(host->pci), 0);
    assert_int_equal(fired(world, 1), 1); /* a level */
    put(world, 1, LINK + 0xC60, 6);
    assert_int_equal(host->pci->ops->irq_unmask(host->pci), 0);
    assert_int_equal(fired(world, 1), 0);
    set_config(world, 1, 4, 2, 0x402); /* INTx disable */
    put(world, 0, VIRTUAL + 0xC5C, 4);
    assert_int_equal(fired(world, 1), 0);
}

static void scratchpads_are_shared(void **state)
{
    struct world *world = *state;
    for (uint32_t i = 0; i < 8; i++) {
        put(world, i % 2, (i % 2 == 0 ? VIRTUAL : LINK) + 0xC6C + 4 * i, 0xabc0 + i);
    }
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(get(world, 0, VIRTUAL + 0xC6C + 4 * i), 0xabc0 + i);
        assert_int_equal(get(world, 1, LINK + 0xC6C + 4 * i), 0xabc0 + i);
        assert_int_equal(get(world, 0, LINK + 0xC6C + 4 * i), 0xabc0 + i);
    }
    assert_int_equal(get(world, 0, VIRTUAL + 0xC8C), 0); /* there is no ninth */
    for (uint32_t i = 0; i < 4; i++) {
        put(world, 0, 0x20C + 4 * i, 0x55 + i);
        assert_int_equal(get(world, 1, 0x20C + 4 * i), 0x55 + i);
    }
    via_pex_set_link(world->pex, false);
    via_pex_set_link(world->pex, true);
    set_config(world, 1, 4, 2, 2);
    /* They keep their values when the link goes down. */
    assert_int_equal(get(world, 1, LINK + 0xC6C), 0xabc0);
    put(world, 0, 0x20C, 1);
    assert_int_equal(get(world, 0, 0x20C), 0x55); /* read-only for a while */
    for (unsigned i = 0; i < 200; i++) {
        put(world, 0, 0x20C, 1);
    }
    assert_int_equal(get(world, 0, 0x20C), 1);
}

/* --- link --- */

static void link_errors_are_the_virtual_sides(void **state)
{
    struct world *world = *state;
    struct host *host = &world->host[0];
    assert_int_equal(host->pci->ops->irq_set(host->pci, VIA_PCI_MSI, 1, &host->irq_fd), 0);
    set_config(world, 0, 4, 2, 6);
    via_pex_raise_error(world->pex, 1);
    assert_int_equal(fired(world, 0), 0); /* masked */
    put(world, 0, VIRTUAL + 0xFE0, 0xf);
    put(world, 0, VIRTUAL + 0xFE4, 0);
    via_pex_raise_error(world->pex, 8);
    assert_int_equal(fired(world, 0), 1);
    assert_int_equal(get(world, 0, VIRTUAL + 0xFE0), 8);
    put(world, 0, VIRTUAL + 0xFE0, 8);
    assert_int_equal(get(world, 0, VIRTUAL + 0xFE0), 0);
    via_pex_raise_error(world->pex, 2);
    assert_int_equal(fired(world, 0), 1);
    assert_int_equal(get(world, 1, LINK + 0xFE0), 0); /* the link side has none (FreeBSD) */
}

static void dl_down_resets_the_link_side(void **state)
{
    struct world *world = *state;
    struct via_pci *pci = world->host[1].pci;
    uint32_t value;
    open_ways(world);
    assert_int_equal(get(world, 0, VIRTUAL + 0x78) >> 16, 0x83); /* Gen3 x8 */
    via_pex_set_link(world->pex, false);
    assert_int_equal(get(world, 0, VIRTUAL + 0x78) >> 16, 0);
    assert_int_equal(get(world, 0, VIRTUAL + 0xFE0), 4);
    /* The host of the link side does not see it. */
    assert_true(pci->ops->gone(pci));
    assert_int_equal(config(world, 1, 0, 4), UINT32_MAX);
    assert_int_equal(pci->ops->region_read(pci, 0, 0, &value, 4), 0);
    assert_int_equal(value, UINT32_MAX);
    assert_true(load(world, 1, 0) == UINT64_MAX);
    via_pex_set_link(world->pex, true);
    assert_false(pci->ops->gone(pci));
    assert_int_equal(config(world, 1, 4, 2), 0);
    assert_int_equal(config(world, 1, 0x18, 4), 0xC); /* no address */
    assert_int_equal(get(world, 0, LINK + 0xC3C), 0);
    assert_int_equal(get(world, 0, LINK + 0xDB4), 0);
    assert_int_equal(get(world, 0, LINK + 0xE8), 0xFFC0000C); /* by EEPROM */
    assert_int_equal(get(world, 0, VIRTUAL + 0xC40), (uint32_t)(world->host[1].iova >> 32));
    open_way(world, 0); /* the peer's translation was reset */
    open_way(world, 1);
    assert_true(passes(world, 0) && passes(world, 1));
    via_pex_set_speed(world->pex, 2, 4);
    assert_int_equal(get(world, 0, VIRTUAL + 0x78) >> 16, 0x42);
    assert_int_equal(get(world, 0, VIRTUAL + 0x74) & 0x3ff, 0x83);
}

static void a_port_can_be_disabled(void **state)
{
    struct world *world = *state;
    put(world, 0, 0x208, 2); /* a link of another port */
    assert_int_equal(get(world, 0, VIRTUAL + 0x78) >> 16, 0x83);
    put(world, 0, 0x208, 1);
    assert_int_equal(get(world, 0, VIRTUAL + 0x78) >> 16, 0);
    assert_int_equal(config(world, 1, 0, 4), UINT32_MAX);
    put(world, 0, 0x208, 0);
    assert_int_equal(config(world, 1, 0, 4), 0x87A010B5);
}

static void a_host_reset_clears_its_side(void **state)
{
    struct world *world = *state;
    open_ways(world);
    put(world, 0, VIRTUAL + 0xC6C, 7);
    via_pex_reset_host(world->pex, VIA_PEX_LINK);
    assert_int_equal(get(world, 0, LINK + 0xC3C), 0);
    assert_true(get(world, 0, VIRTUAL + 0xC40) != 0);
    assert_int_equal(get(world, 0, VIRTUAL + 0xC6C), 7);
    via_pex_reset_host(world->pex, VIA_PEX_VIRTUAL);
    set_config(world, 0, 4, 2, 2);
    set_config(world, 1, 4, 2, 2);
    assert_int_equal(get(world, 0, VIRTUAL + 0xC40), 0);
    assert_int_equal(get(world, 0, VIRTUAL + 0xC6C), 0);
    via_pex_remove(world->pex, VIA_PEX_VIRTUAL, true);
    assert_int_equal(config(world, 0, 0, 4), UINT32_MAX);
    assert_int_equal(get(world, 0, VIRTUAL + 0xC8C), UINT32_MAX);
}

/* --- switches and the table --- */

static void conflicting_sources_are_switches(void **state)
{
    struct world *world = *state;
    uint64_t piece = 4 * MIB / 256;
    open_ways(world);
    assert_false(passes(world, 0)); /* the virtual side's table is at 0xDB4 */
    put(world, 0, VIRTUAL + 0xDB4, 0x00190001);
    assert_true(passes(world, 0));
    fill_alut(world, 1, 0, 10, world->host[1].iova, 3);
    put(world, 0, VIRTUAL + 0xC94, 0x10000000);
    assert_true(load(world, 0, 10 * piece) == UINT64_MAX); /* bit 31 is missing */
    put(world, 0, VIRTUAL + 0xC94, 0x90000000); /* the side that has the BAR enables it */
    store(world, 0, 10 * piece, 0x1234);
    assert_int_equal(word_at(&world->host[1], 0), 0x1234);
    via_pex_set_link(world->pex, false);
    via_pex_set_link(world->pex, true);
    assert_int_equal(get(world, 0, 0x38000 + 40 + 0x800), 3);
}

static int set_up_switched(void **state)
{
    options = via_pex_options_default;
    options.switches = (struct via_pex_switches){.alut_needs_bit_31 = true,
                                                 .alut_enable_at_bar = true,
                                                 .lut_at_db4 = true,
                                                 .dl_down_keeps_alut = true};
    return set_up_with(state);
}

static void each_register_names_its_source(void **state)
{
    (void)state;
    const struct via_pex_register *reg;
    unsigned count = 0;
    for (; (reg = via_pex_register_at(count)) != NULL; count++) {
        assert_true(reg->words != 0 && reg->off % 4 == 0 && reg->places != 0);
        assert_true(reg->name[0] != '\0');
        assert_true(strstr(reg->source, "PCI") != NULL || strstr(reg->source, "FreeBSD") != NULL ||
                    strstr(reg->source, "VCA") != NULL || strstr(reg->source, "SDK") != NULL);
    }
    assert_true(count > 30);
}

static void an_invalid_chip_is_refused(void **state)
{
    struct via_pex *pex;
    struct via_error err;
    (void)state;
    struct via_pex_options wrong = via_pex_options_default;
    wrong.bar_bytes[1][0] = 3 * MIB;
    assert_int_equal(via_pex_new(&wrong, &pex, &err), -EINVAL);
    assert_non_null(strstr(err.text, "BAR 2 of side 1"));
    wrong = via_pex_options_default;
    wrong.alut_entries = 64;
    assert_int_equal(via_pex_new(&wrong, &pex, &err), -EINVAL);
}

static void a_function_has_one_driver(void **state)
{
    struct via_pci *pci, *other;
    struct via_error err;
    (void)state;
    assert_null(via_pex_find("one"));
    assert_int_equal(
        via_pex_attach_named("one", VIA_PEX_VIRTUAL, &via_pex_options_default, &pci, &err), 0);
    assert_int_equal(
        via_pex_attach_named("one", VIA_PEX_VIRTUAL, &via_pex_options_default, &other, &err),
        -EBUSY);
    assert_int_equal(
        via_pex_attach_named("one", VIA_PEX_LINK, &via_pex_options_default, &other, &err), 0);
    pci->ops->close(pci);
    assert_non_null(via_pex_find("one"));
    assert_int_equal(
        via_pex_attach_named("one", VIA_PEX_VIRTUAL, &via_pex_options_default, &pci, &err), 0);
    pci->ops->close(pci);
    other->ops->close(other);
    assert_null(via_pex_find("one"));
}

#define TEST(name, with) cmocka_unit_test_setup_teardown(name, with, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(functions_have_their_ids, set_up),
        TEST(the_second_nt_port_is_elsewhere, set_up_second),
        TEST(bars_are_sized_by_all_ones, set_up),
        TEST(bars_lie_where_the_machine_puts_them, set_up),
        TEST(writes_go_by_byte, set_up),
        TEST(what_is_not_there_reads_zero_and_what_is_outside_is_refused, set_up),
        TEST(a_window_leads_to_the_others_memory, set_up),
        TEST(a_window_needs_all_of, set_up),
        TEST(the_alut_shows_pieces, set_up),
        TEST(the_alut_of_two_nt_ports_is_halved, set_up_second),
        TEST(an_msi_comes_on_the_edge, set_up),
        TEST(a_full_eventfd_blocks_no_thread, set_up),
        TEST(with_a_switch_unmasking_is_an_edge, set_up_unmask),
        TEST(intx_stays_until_it_is_cleared, set_up),
        TEST(scratchpads_are_shared, set_up),
        TEST(link_errors_are_the_virtual_sides, set_up),
        TEST(dl_down_resets_the_link_side, set_up),
        TEST(a_port_can_be_disabled, set_up),
        TEST(a_host_reset_clears_its_side, set_up),
        TEST(conflicting_sources_are_switches, set_up_switched),
        cmocka_unit_test(each_register_names_its_source),
        cmocka_unit_test(an_invalid_chip_is_refused),
        cmocka_unit_test(a_function_has_one_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
