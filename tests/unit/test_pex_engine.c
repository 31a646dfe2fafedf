/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The DMA function of the register model, as a PCI device. Offsets are written out, as in
 * test_pex_model.c. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/pex/pex.h"

/* One host, and an NT port whose function reaches `memory`. */
struct world {
    struct via_pex *pex;
    struct via_pci *pci;
    uint64_t iova;
    unsigned char *memory;
};

static int set_up(void **state)
{
    static _Alignas(4096) unsigned char memory[65536];
    static struct world world;
    struct via_pci_memory what = {
        .at = memory, .bytes = sizeof(memory), .fd = -1, .writable = true};
    world = (struct world){.memory = memory};
    memset(memory, 0, sizeof(memory));
    assert_int_equal(via_pex_new(&via_pex_options_default, &world.pex, NULL), 0);
    assert_int_equal(via_pex_attach(world.pex, VIA_PEX_VIRTUAL, &world.pci), 0);
    assert_int_equal(world.pci->ops->dma_map(world.pci, &what, 4096, &world.iova), 0);
    *state = &world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    world->pci->ops->close(world->pci);
    via_pex_free(world->pex);
    return 0;
}

/* --- the DMA function as a device of its own, as Linux' plx_dma.c uses it --- */

static uint32_t engine_config(struct via_pci *pci, unsigned off, unsigned len)
{
    uint32_t value;
    assert_int_equal(pci->ops->config_read(pci, off, len, &value), 0);
    return value;
}

static void the_dma_function_is_a_device(void **state)
{
    struct world *world = *state;
    struct via_pci *pci, *second;
    assert_int_equal(via_pex_attach_engine_apart(world->pex, VIA_PEX_VIRTUAL, &pci), 0);
    assert_int_equal(via_pex_attach_engine(world->pex, VIA_PEX_VIRTUAL, &second), -EBUSY);
    assert_int_equal(engine_config(pci, 0, 4), 0x87D010B5);
    assert_int_equal(engine_config(pci, 0x0A, 2), 0x0880); /* plx_dma_pci_tbl wants this class */
    assert_int_equal(engine_config(pci, 0x09, 1), 0);
    assert_int_equal(engine_config(pci, 0x0E, 1), 0); /* header type */
    assert_int_equal(engine_config(pci, 0x06, 2) & 0x10, 0x10);
    assert_int_equal(engine_config(pci, engine_config(pci, 0x34, 1), 1), 5); /* MSI */
    assert_int_equal(pci->ops->config_write(pci, 0x10, 4, UINT32_MAX), 0);
    assert_int_equal(engine_config(pci, 0x10, 4), 0xfffff000); /* sizing */
    assert_int_equal(pci->ops->config_write(pci, 0x13, 1, 0xfe), 0);
    assert_int_equal(engine_config(pci, 0x10, 4), 0xfefff000);
    assert_int_equal(pci->ops->config_write(pci, 0, 4, 0), 0);
    assert_int_equal(engine_config(pci, 0, 4), 0x87D010B5);
    assert_int_equal(pci->ops->config_write(pci, 0xffc, 4, 0), 0); /* nothing is there */
    assert_int_equal(engine_config(pci, 0xffc, 4), 0);
    pci->ops->close(pci);
}

/* Copies 4 bytes by channel 0 in block mode. Returns the status in the size register afterwards. */
static uint32_t copy_block(struct via_pci *pci, uint64_t from, uint64_t to, uint32_t flags)
{
    uint32_t regs[] = {(uint32_t)from, (uint32_t)(from >> 32), (uint32_t)to, (uint32_t)(to >> 32),
                       flags | 4};
    uint32_t start = 8, size = 0;
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(pci->ops->region_write(pci, 0, 0x200 + 4 * i, &regs[i], 4), 0);
    }
    assert_int_equal(pci->ops->region_write(pci, 0, 0x238, &start, 4), 0);
    assert_int_equal(pci->ops->region_read(pci, 0, 0x210, &size, 4), 0);
    return size;
}

static uint32_t copy_word(struct via_pci *pci, uint64_t from, uint64_t to)
{
    return copy_block(pci, from, to, 0x80000000u);
}

/* The number of interrupts. */
static unsigned copy_and_count(const struct world *world, struct via_pci *pci, int fd)
{
    eventfd_t count = 0;
    uint32_t done = copy_block(pci, world->iova, world->iova + 4096, 0xc0000000u);
    assert_int_equal(done, 0x40000000);
    return eventfd_read(fd, &count) == 0 ? (unsigned)count : 0;
}

/* A driver is unbound without clearing the status (like Linux' plx_dma under load), and bound
 * again. */
static void a_status_that_a_driver_has_left(void **state)
{
    struct world *world = *state;
    for (unsigned fires = 0; fires < 2; fires++) {
        const struct via_pex_engine_faults faults = {.enable_fires_msi = fires != 0};
        const uint32_t clear = 0x00040000u;
        struct via_pci *pci;
        eventfd_t count = 0;
        int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        assert_int_equal(via_pex_attach_engine(world->pex, VIA_PEX_VIRTUAL, &pci), 0);
        via_pex_engine_set_faults(world->pex, VIA_PEX_VIRTUAL, &faults);
        assert_int_equal(pci->ops->config_write(pci, VIA_PCI_COMMAND, 2,
                                                VIA_PCI_COMMAND_MEMORY | VIA_PCI_COMMAND_MASTER),
                         0);
        assert_int_equal(pci->ops->irq_set(pci, VIA_PCI_MSI, 1, &fd), 0);
        assert_int_equal(copy_and_count(world, pci, fd), 1);
        assert_int_equal(pci->ops->irq_set(pci, VIA_PCI_MSI, 0, NULL), 0);
        assert_int_equal(pci->ops->irq_set(pci, VIA_PCI_MSI, 1, &fd), 0);
        assert_int_equal(eventfd_read(fd, &count) == 0, fires);
        assert_int_equal(copy_and_count(world, pci, fd), 0);
        assert_int_equal(pci->ops->region_write(pci, 0, 0x23C, &clear, 4), 0);
        assert_int_equal(copy_and_count(world, pci, fd), 1);
        pci->ops->close(pci);
        close(fd);
    }
}

static void the_dma_function_reaches_what_is_mapped_for_it(void **state)
{
    struct world *world = *state;
    struct world *host = world;
    struct via_pci *pci;
    uint64_t iova = host->iova; /* the same address in both domains, but other memory */
    static _Alignas(4096) uint32_t memory[2048];
    struct via_pci_memory mine = {
        .at = memory, .bytes = sizeof(memory), .fd = -1, .writable = true};
    assert_int_equal(via_pex_attach_engine_apart(world->pex, VIA_PEX_VIRTUAL, &pci), 0);
    assert_int_equal(pci->ops->config_write(pci, VIA_PCI_COMMAND, 2,
                                            VIA_PCI_COMMAND_MEMORY | VIA_PCI_COMMAND_MASTER),
                     0);
    assert_int_equal(copy_word(pci, iova, iova + 4096), 0x20000000); /* not mapped in its domain */
    assert_int_equal(pci->ops->dma_map(pci, &mine, 0, &iova), 0);
    assert_int_equal(iova, host->iova);
    memory[0] = 0x5eed;
    assert_int_equal(copy_word(pci, iova, iova + 4096), 0x40000000);
    assert_int_equal(memory[1024], 0x5eed);
    assert_memory_not_equal(host->memory + 4096, memory + 1024, 4);
    mine.at = memory;
    assert_int_equal(pci->ops->dma_unmap(pci, iova), 0);
    assert_int_equal(copy_word(pci, iova, iova + 4096), 0x20000000);
    assert_int_equal(pci->ops->dma_map(pci, &mine, 0, &iova), 0);
    pci->ops->close(pci); /* ends this mapping, but no mapping of the NT port */
    assert_int_equal(via_pex_attach_engine(world->pex, VIA_PEX_VIRTUAL, &pci), 0);
    assert_int_equal(pci->ops->config_write(pci, VIA_PCI_COMMAND, 2,
                                            VIA_PCI_COMMAND_MEMORY | VIA_PCI_COMMAND_MASTER),
                     0);
    memory[1024] = 0;
    assert_int_equal(copy_word(pci, host->iova, host->iova + 4096), 0x40000000);
    assert_int_equal(memory[1024], 0);
    pci->ops->close(pci);
}

/* A hostile driver: a ring whose size in bytes was 0 modulo 2^32 caused a division by zero, and a
 * misaligned one a misaligned access. */
static void rings_of_odd_sizes_and_places(void **state)
{
    struct world *world = *state;
    struct world *host = world;
    static const struct {
        uint32_t off, count;
        bool runs;
    } rings[] = {
        {0, 0x10000000, true}, {0, UINT32_MAX, true}, {4, 16, false}, {1, 16, false}, {0, 0, true}};
    struct via_pci *pci;
    assert_int_equal(via_pex_attach_engine(world->pex, VIA_PEX_VIRTUAL, &pci), 0);
    assert_int_equal(pci->ops->config_write(pci, VIA_PCI_COMMAND, 2,
                                            VIA_PCI_COMMAND_MEMORY | VIA_PCI_COMMAND_MASTER),
                     0);
    for (unsigned i = 0; i < sizeof(rings) / sizeof(rings[0]); i++) {
        uint64_t at = host->iova + rings[i].off;
        uint32_t descriptor[] = {0x80000004, 0, (uint32_t)host->iova + 64,
                                 (uint32_t)host->iova + 32};
        descriptor[1] = (uint32_t)(host->iova >> 32) * 0x10001u;
        memset(host->memory, 0, 128);
        memcpy(host->memory + rings[i].off, descriptor, sizeof(descriptor));
        memcpy(host->memory + 32, "ring", 4);
        via_pci_write32(pci, 0, 0x214, (uint32_t)at);
        via_pci_write32(pci, 0, 0x218, (uint32_t)(at >> 32));
        via_pci_write32(pci, 0, 0x21C, (uint32_t)at);
        via_pci_write32(pci, 0, 0x220, rings[i].count);
        via_pci_write32(pci, 0, 0x238, 0x174c); /* as Linux' plx_dma.c starts it */
        bool ran = memcmp(host->memory + 64, "ring", 4) == 0;
        assert_int_equal(ran, rings[i].runs && rings[i].count != 0);
        if (rings[i].count != 0) { /* the next descriptor is not valid, or the ring has none */
            assert_int_equal(via_pci_read32(pci, 0, 0x238) & 0x100, 0x100);
        }
    }
    pci->ops->close(pci);
}

/* With the erratum a function-level reset erases settings that an EEPROM, or a driver, has made. */
static void a_reset_erases_tuning(void **state)
{
    struct world *world = *state;
    struct via_pci *pci;
    assert_int_equal(via_pex_attach_engine(world->pex, VIA_PEX_VIRTUAL, &pci), 0);
    for (unsigned erases = 0; erases < 2; erases++) {
        const struct via_pex_engine_faults faults = {.reset_erases_tuning = erases != 0};
        static const uint32_t offs[] = {0x22C, 0x234, 0x554};
        via_pex_engine_set_faults(world->pex, VIA_PEX_VIRTUAL, &faults);
        assert_int_equal(pci->ops->config_write(pci, VIA_PCI_COMMAND, 2, VIA_PCI_COMMAND_MEMORY),
                         0);
        for (unsigned i = 0; i < 3; i++) {
            via_pci_write32(pci, 0, offs[i], 7 + i);
        }
        via_pci_write32(pci, 0, 0x214, 0x1000); /* the address of a ring is no such setting */
        assert_int_equal(pci->ops->reset(pci), 0);
        assert_int_equal(engine_config(pci, VIA_PCI_COMMAND, 2), 0);
        assert_int_equal(pci->ops->config_write(pci, VIA_PCI_COMMAND, 2, VIA_PCI_COMMAND_MEMORY),
                         0);
        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(via_pci_read32(pci, 0, offs[i]), erases ? 0 : 7 + i);
        }
        assert_int_equal(via_pci_read32(pci, 0, 0x214), 0);
    }
    pci->ops->close(pci);
}

/* A transfer that is not aligned to 64 bytes is slow, and an abort ends it. */
static void an_unaligned_transfer_is_slow(void **state)
{
    struct world *world = *state;
    const struct via_pex_engine_faults faults = {.misaligned_reads = 2};
    struct via_pci *pci;
    assert_int_equal(via_pex_attach_engine(world->pex, VIA_PEX_VIRTUAL, &pci), 0);
    via_pex_engine_set_faults(world->pex, VIA_PEX_VIRTUAL, &faults);
    assert_int_equal(pci->ops->config_write(pci, VIA_PCI_COMMAND, 2,
                                            VIA_PCI_COMMAND_MEMORY | VIA_PCI_COMMAND_MASTER),
                     0);
    for (unsigned round = 0; round < 3; round++) {
        bool is_aligned = round == 0, is_aborted = round == 2;
        uint32_t from = (uint32_t)world->iova + (is_aligned ? 128 : 129);
        uint32_t descriptor[] = {0x80000004, (uint32_t)(world->iova >> 32) * 0x10001u,
                                 (uint32_t)world->iova + 64, from};
        memset(world->memory, 0, 256);
        memcpy(world->memory, descriptor, sizeof(descriptor));
        memcpy(world->memory + from % 4096, "slow", 4);
        via_pci_write32(pci, 0, 0x214, (uint32_t)world->iova);
        via_pci_write32(pci, 0, 0x218, (uint32_t)(world->iova >> 32));
        via_pci_write32(pci, 0, 0x21C, (uint32_t)world->iova);
        via_pci_write32(pci, 0, 0x220, 1);
        via_pci_write32(pci, 0, 0x238, 0x174c);
        assert_int_equal(memcmp(world->memory + 64, "slow", 4) == 0, is_aligned);
        uint32_t first = via_pci_read32(pci, 0, 0x238);
        assert_int_equal(first >> 30 & 1, is_aligned ? 0 : 1);
        if (is_aborted) {
            via_pci_write32(pci, 0, 0x238, 0x1702);
        }
        (void)via_pci_read32(pci, 0, 0x238);
        assert_int_equal(via_pci_read32(pci, 0, 0x238) >> 30 & 1, 0);
        assert_int_equal(memcmp(world->memory + 64, "slow", 4) == 0, !is_aborted);
    }
    pci->ops->close(pci);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_status_that_a_driver_has_left, set_up, tear_down),
        TEST(the_dma_function_is_a_device),
        TEST(the_dma_function_reaches_what_is_mapped_for_it),
        TEST(rings_of_odd_sizes_and_places),
        TEST(a_reset_erases_tuning),
        TEST(an_unaligned_transfer_is_slow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
