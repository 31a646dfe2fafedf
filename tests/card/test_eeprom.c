/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Flashing, on the register model: a busy EEPROM, CRC errors, write protection, power loss at any
 * write. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "card/eeprom.h"
#include "card/make.h"
#include "model/pex/pex.h"

#define PART_BYTES 1024u

static uint8_t part[PART_BYTES];
static struct via_card_image image;
static uint8_t old_image[VIA_CARD_IMAGE_BYTES_MAX], new_image[VIA_CARD_IMAGE_BYTES_MAX];
static size_t old_bytes, new_bytes;

struct world {
    struct via_pex *pex;
    struct via_pci *pci;
    struct via_card_eeprom eeprom;
};

static size_t make(uint8_t *bytes, unsigned setup)
{
    struct via_error err = {0};
    size_t count;
    struct via_card_make_options options = {.card = via_card_at(0),
                                            .setup = via_card_setup_at(setup),
                                            .bar_bytes = 4u << 20,
                                            .with_assumed = true};
    assert_int_equal(via_card_image_make(&options, &image, &err), 0);
    assert_int_equal(via_card_image_write(&image, bytes, &count), 0);
    return count;
}

/* Power returns, and the chip loads its EEPROM. */
static void power_on(struct world *world)
{
    struct via_pex_options options = via_pex_options_default;
    struct via_error err = {0};
    options.eeprom = part;
    options.eeprom_bytes = sizeof(part);
    assert_int_equal(via_pex_new(&options, &world->pex, &err), 0);
    assert_int_equal(via_pex_attach(world->pex, VIA_PEX_VIRTUAL, &world->pci), 0);
}

static void power_off(struct world *world)
{
    world->pci->ops->close(world->pci);
    via_pex_free(world->pex);
}

static void open_eeprom(struct world *world, unsigned address_bytes)
{
    struct via_error err = {0};
    if (via_card_eeprom_open(&world->eeprom, world->pci, address_bytes, NULL, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static int flash(struct world *world, struct via_error *err)
{
    return via_card_eeprom_flash(&world->eeprom, new_image, new_bytes, err);
}

static void set_faults(struct world *world, struct via_pex_eeprom_faults faults)
{
    via_pex_eeprom_set_faults(world->pex, &faults);
}

static int set_up(void **state)
{
    static struct world world;
    memset(part, 0xff, sizeof(part));
    old_bytes = make(old_image, 0);
    new_bytes = make(new_image, 2);
    memcpy(part, old_image, old_bytes);
    power_on(&world);
    *state = &world;
    return 0;
}

static int tear_down(void **state)
{
    power_off(*state);
    return 0;
}

/* --- without faults --- */

static void an_image_is_written_and_verified(void **state)
{
    struct world *world = *state;
    struct via_error err = {0};
    int64_t differs;
    uint8_t read[128];
    open_eeprom(world, 0);
    assert_int_equal(world->eeprom.chip, 0x8749);
    assert_true(world->eeprom.is_valid);
    assert_int_equal(world->eeprom.address_bytes, 2);
    assert_int_equal(via_card_eeprom_read(&world->eeprom, 0, read, sizeof(read), &err), 0);
    assert_memory_equal(read, old_image, old_bytes);
    assert_int_equal(via_card_eeprom_verify(&world->eeprom, new_image, new_bytes, &differs, &err),
                     0);
    assert_true(differs >= 0);
    assert_int_equal(flash(world, &err), 0);
    assert_memory_equal(part, new_image, new_bytes);
    for (size_t i = new_bytes > old_bytes ? new_bytes : old_bytes; i < sizeof(part); i++) {
        assert_int_equal(part[i], 0xff); /* the rest of the EEPROM stays unchanged */
    }
    assert_int_equal(via_card_eeprom_verify(&world->eeprom, new_image, new_bytes, &differs, &err),
                     0);
    assert_int_equal(differs, -1);
}

static void a_busy_controller_is_waited_for(void **state)
{
    struct world *world = *state;
    struct via_error err = {0};
    open_eeprom(world, 0);
    set_faults(world, (struct via_pex_eeprom_faults){.busy_reads = 7, .write_polls = 20});
    assert_int_equal(flash(world, &err), 0);
    assert_memory_equal(part, new_image, new_bytes);
}

static void a_blank_part_wants_its_width(void **state)
{
    struct world *world = *state;
    struct via_error err = {0};
    power_off(world);
    memset(part, 0xff, sizeof(part));
    power_on(world);
    assert_int_equal(via_card_eeprom_open(&world->eeprom, world->pci, 0, NULL, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--address-bytes"));
    open_eeprom(world, 2);
    assert_false(world->eeprom.is_valid);
    assert_int_equal(flash(world, &err), 0);
    assert_memory_equal(part, new_image, new_bytes);
}

static void a_crc_error_is_cleared_first(void **state)
{
    struct world *world = *state;
    struct via_error err = {0};
    power_off(world);
    part[6] ^= 1;
    power_on(world);
    open_eeprom(world, 0);
    assert_true(world->eeprom.had_crc_error);
    assert_false(world->eeprom.is_valid);
    assert_int_equal(flash(world, &err), 0);
    assert_memory_equal(part, new_image, new_bytes);
}

/* --- with faults --- */

static void a_hanging_controller_is_given_up(void **state)
{
    struct world *world = *state;
    struct via_error err = {0};
    open_eeprom(world, 0);
    set_faults(world, (struct via_pex_eeprom_faults){.busy_reads = 1, .hangs = true});
    assert_int_equal(flash(world, &err), -ETIME);
    assert_memory_equal(part, old_image, old_bytes);
}

static void an_endless_write_cycle_is_given_up(void **state)
{
    struct world *world = *state;
    struct via_error err = {0};
    open_eeprom(world, 0);
    set_faults(world, (struct via_pex_eeprom_faults){.write_polls = 1, .hangs = true});
    assert_int_equal(flash(world, &err), -ETIME);
    assert_string_equal(err.text, "EEPROM: its write cycle does not end");
}

static void a_protected_part_is_left_alone(void **state)
{
    struct world *world = *state;
    struct via_error err = {0};
    open_eeprom(world, 0);
    set_faults(world, (struct via_pex_eeprom_faults){.is_protected = true});
    assert_int_equal(flash(world, &err), -EACCES);
    assert_memory_equal(part, old_image, old_bytes);
}

static void a_chip_without_eeprom_or_without_answer_is_reported(void **state)
{
    struct via_pex_options options = via_pex_options_default;
    struct via_card_eeprom eeprom;
    struct via_error err = {0};
    struct via_pex *pex;
    struct via_pci *pci;
    (void)state;
    assert_int_equal(via_pex_new(&options, &pex, &err), 0);
    assert_int_equal(via_pex_attach(pex, VIA_PEX_LINK, &pci), 0);
    assert_int_equal(via_card_eeprom_open(&eeprom, pci, 0, NULL, &err), -ENODEV);
    assert_non_null(strstr(err.text, "the chip found none"));
    via_pex_remove(pex, VIA_PEX_LINK, true);
    assert_int_equal(via_card_eeprom_open(&eeprom, pci, 0, NULL, &err), -ENODEV);
    assert_non_null(strstr(err.text, "nothing answers"));
    pci->ops->close(pci);
    via_pex_free(pex);
}

/* The EEPROM holds an image that a chip accepts: with the old registers, with none, or with the new
 * ones. */
static enum { OLD, EMPTY, NEW, DAMAGED } what_is_there(void)
{
    struct via_error err = {0};
    if (via_card_image_parse("part", part, sizeof(part), &image, &err) != 0 ||
        ((image.flags & VIA_CARD_IMAGE_HAS_CRC) != 0 && image.crc != via_card_image_crc(&image))) {
        return DAMAGED;
    }
    size_t entries = image.entries_count * (size_t)VIA_CARD_ENTRY_BYTES;
    if (entries == 0) {
        return EMPTY;
    }
    bool is_new = memcmp(part + 2, new_image + 2, 2 + entries) == 0;
    bool is_old = memcmp(part + 2, old_image + 2, 2 + entries) == 0;
    return is_new ? NEW : is_old ? OLD : DAMAGED;
}

static void power_lost_at_any_write_leaves_no_mixture(void **state)
{
    struct world *world = *state;
    struct via_error err = {0};
    unsigned seen[4] = {0}, at = 0;
    int rc;
    do {
        at++;
        for (unsigned half = 0; half < 2; half++) {
            power_off(world);
            memset(part, 0xff, sizeof(part));
            memcpy(part, old_image, old_bytes);
            power_on(world);
            open_eeprom(world, 0);
            set_faults(world, (struct via_pex_eeprom_faults){.power_loss_at = at,
                                                             .tears_upper_half = half != 0});
            rc = flash(world, &err);
            assert_true(rc == 0 || rc == -ENODEV);
            seen[what_is_there()]++;
            power_off(world);
            power_on(world);
            open_eeprom(world, 0); /* and it can be flashed again */
            assert_true(world->eeprom.is_valid);
            assert_int_equal(flash(world, &err), 0);
            assert_memory_equal(part, new_image, new_bytes);
        }
    } while (rc != 0);
    assert_int_equal(seen[DAMAGED], 0);
    assert_true(seen[OLD] >= 2 && seen[EMPTY] >= 10 && seen[NEW] >= 3);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_image_is_written_and_verified),
        TEST(a_busy_controller_is_waited_for),
        TEST(a_blank_part_wants_its_width),
        TEST(a_crc_error_is_cleared_first),
        TEST(a_hanging_controller_is_given_up),
        TEST(an_endless_write_cycle_is_given_up),
        TEST(a_protected_part_is_left_alone),
        cmocka_unit_test(a_chip_without_eeprom_or_without_answer_is_reported),
        TEST(power_lost_at_any_write_leaves_no_mixture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
