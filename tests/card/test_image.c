/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * EEPROM images. Expected bytes and CRCs were made from the SDK's description independently of
 * src/card, so that a mistake there can not confirm itself.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "card/lint.h"
#include "card/make.h"
#include "card/registers.h"
#include "card/text.h"

#define IMAGES 10000u
#define SEED 38u

static struct via_card_image image, again;
static uint8_t bytes[VIA_CARD_IMAGE_BYTES_MAX], bytes_again[VIA_CARD_IMAGE_BYTES_MAX];

/* --- bytes --- */

static void the_crc_is_the_sdks(void **state)
{
    static const uint32_t expected[] = {0x9226f562, 0x87e5fe00, 0xf17e4dec};
    (void)state;
    for (unsigned count = 0; count < VIA_ARRAY_COUNT(expected); count++) {
        memset(&image, 0, sizeof(image));
        for (unsigned i = 0; i < count; i++) {
            assert_int_equal(via_card_image_add(&image, (uint16_t)(0xd8 + i), 0x12345678 + i), 0);
        }
        assert_int_equal(via_card_image_crc(&image), expected[count]);
    }
}

static void bytes_are_where_the_format_has_them(void **state)
{
    static const uint8_t expected[] = {0x5a, 0x80, 0x06, 0x00, 0xd8, 0x00, 0x78,
                                       0x56, 0x34, 0x12, 0x00, 0xfe, 0xe5, 0x87};
    size_t count;
    (void)state;
    memset(&image, 0, sizeof(image));
    image.flags = 0x80;
    image.crc_is_there = true;
    assert_int_equal(via_card_address(0, 0x360), 0xd8);
    assert_int_equal(via_card_address(0x39, 0xd4), 0x39 << 10 | 0xd4 >> 2);
    assert_int_equal(via_card_image_add(&image, via_card_address(0, 0x360), 0x12345678), 0);
    image.crc = via_card_image_crc(&image);
    assert_int_equal(via_card_image_write(&image, bytes, &count), 0);
    assert_int_equal(count, sizeof(expected));
    assert_memory_equal(bytes, expected, sizeof(expected));
}

static void assert_refused(const uint8_t *data, size_t count, const char *complaint)
{
    struct via_error err = {0};
    assert_int_equal(via_card_image_parse("I", data, count, &image, &err), -EINVAL);
    assert_string_equal(err.text, complaint);
}

static void damaged_images_are_refused_with_the_place(void **state)
{
    static const uint8_t blank[16] = {0xff, 0xff, 0xff, 0xff, 0xff};
    static uint8_t large[VIA_CARD_IMAGE_BYTES_MAX + 1];
    (void)state;
    assert_refused((const uint8_t *)"Z", 1, "I: byte 1: ends within the header of 4 bytes");
    assert_refused(blank, sizeof(blank), "I: byte 0: all ones: a blank EEPROM");
    assert_refused((const uint8_t *)"Y\0\0\0", 4, "I: byte 0: 0x59 is not the signature 0x5a");
    assert_refused((const uint8_t *)"Z\0\7\0", 4,
                   "I: byte 2: a byte count of 7 is no multiple of 6 (registers have 6 bytes "
                   "each)");
    assert_refused((const uint8_t *)"Z\0\14\0"
                                    "123456",
                   10, "I: byte 2: 12 bytes of registers are promised, 6 are there");
    assert_refused((const uint8_t *)"Z\x80\6\0"
                                    "123456",
                   10, "I: byte 10: ends before or within the CRC of 4 bytes");
    assert_refused((const uint8_t *)"Z\0\0\0cr", 6,
                   "I: byte 6: ends before or within the CRC of 4 bytes");
    assert_refused(large, sizeof(large), "I: byte 65536: more than 64 KiB are no image");
    struct via_error err = {0};
    assert_int_equal(via_card_image_parse("I",
                                          (const uint8_t *)"Z\0\6\0"
                                                           "123456",
                                          10, &image, &err),
                     0);
    assert_false(image.crc_is_there);
}

/* --- image to text to image --- */

/* Known and unknown registers, right and wrong CRCs, tails with and without runs. */
static size_t random_image(struct via_rng *rng)
{
    static const uint16_t usual[] = {0x00d8, 0x00c0, 0xe035, 0xe435, 0xe03a, 0x201f};
    size_t count;
    image.flags = (uint8_t)(via_rng_chance(rng, 1, 2) ? 0x80 : via_rng_next(rng));
    image.entries_count = (unsigned)via_rng_below(rng, via_rng_chance(rng, 1, 50) ? 500 : 12);
    for (unsigned i = 0; i < image.entries_count; i++) {
        image.entries[i].address = via_rng_chance(rng, 1, 2)
                                       ? usual[via_rng_below(rng, VIA_ARRAY_COUNT(usual))]
                                       : (uint16_t)via_rng_next(rng);
        image.entries[i].value = (uint32_t)via_rng_next(rng);
    }
    image.crc_is_there = (image.flags & 0x80) != 0 || via_rng_chance(rng, 4, 5);
    image.crc =
        via_rng_chance(rng, 2, 3) ? via_card_image_crc(&image) : (uint32_t)via_rng_next(rng);
    image.tail_bytes = 0;
    if (image.crc_is_there && via_rng_chance(rng, 1, 3)) {
        unsigned index = (unsigned)via_rng_below(rng, 2);
        const struct via_card_setup *setup = via_card_setup_at((unsigned)via_rng_below(rng, 8));
        image.tail_bytes =
            via_card_mark_make(via_card_at(index), setup, (char *)image.tail); /* or nearly one */
        image.tail[via_rng_below(rng, 400) % VIA_CARD_MARK_BYTES] ^= via_rng_chance(rng, 1, 4);
    }
    for (unsigned runs = (unsigned)via_rng_below(rng, 4); image.crc_is_there && runs > 0; runs--) {
        unsigned run = (unsigned)via_rng_below(rng, 40);
        uint8_t byte = (uint8_t)via_rng_next(rng);
        bool same = via_rng_chance(rng, 1, 2);
        for (unsigned i = 0; i < run; i++) {
            image.tail[image.tail_bytes++] = same ? byte : (uint8_t)via_rng_next(rng);
        }
    }
    assert_int_equal(via_card_image_write(&image, bytes, &count), 0);
    return count;
}

static void assert_round_trip(size_t count)
{
    struct via_error err = {0};
    char *text = NULL;
    size_t text_bytes = 0, count_again;
    if (via_card_image_parse("I", bytes, count, &image, &err) != 0) {
        fail_msg("%s", err.text);
    }
    FILE *out = open_memstream(&text, &text_bytes);
    assert_non_null(out);
    via_card_text_print(&image, out);
    fclose(out);
    if (via_card_text_parse("T", text, text_bytes, &again, NULL, &err) != 0) {
        fail_msg("%s\n%s", err.text, text);
    }
    assert_int_equal(via_card_image_write(&again, bytes_again, &count_again), 0);
    assert_int_equal(count_again, count);
    assert_memory_equal(bytes_again, bytes, count);
    free(text);
}

static void random_images_survive_being_text(void **state)
{
    struct via_rng rng;
    (void)state;
    via_rng_init(&rng, SEED);
    for (unsigned i = 0; i < IMAGES; i++) {
        assert_round_trip(random_image(&rng));
    }
}

static void the_largest_image_survives_being_text(void **state)
{
    (void)state;
    memset(bytes, 0xa5, sizeof(bytes));
    memcpy(bytes, "Z\x80", 2);
    bytes[2] = (uint8_t)(VIA_CARD_ENTRIES_MAX * 6);
    bytes[3] = (uint8_t)(VIA_CARD_ENTRIES_MAX * 6 >> 8);
    assert_round_trip(sizeof(bytes));
    assert_int_equal(again.entries_count, VIA_CARD_ENTRIES_MAX);
}

static void assert_no_text(const char *text, const char *complaint)
{
    struct via_error err = {0};
    assert_int_equal(via_card_text_parse("T", text, strlen(text), &image, NULL, &err), -EINVAL);
    assert_string_equal(err.text, complaint);
}

static void texts_are_refused_with_their_line(void **state)
{
    (void)state;
    assert_no_text("\nreg 0 0x360\n", "T:2: 'reg': expected 'reg CODE OFFSET VALUE'");
    assert_no_text("reg 0x40 0 0", "T:1: '0x40': the code of a port is a number up to 0x3f");
    assert_no_text("reg 0 0x362 0", "T:1: '0x362': an offset is a multiple of 4");
    assert_no_text("reg 0 0x360 0x100000000", "T:1: '0x100000000': a value is a number up to "
                                              "0xffffffff");
    assert_no_text("reg 0 0x360 -1", "T:1: '-1': a value is a number up to 0xffffffff");
    assert_no_text("reg 0 0x360 0x", "T:1: '0x': a value is a number up to 0xffffffff");
    assert_no_text("flags 1\nflags 1", "T:2: 'flags': given already, in line 1");
    assert_no_text("rag 0", "T:1: 'rag': unknown keyword (flags, reg, crc, card, fill, bytes)");
    assert_no_text("card pex8749-x8 box ntb optical",
                   "T:1: 'card': an NT port joins two hosts, and a box has none: mode transparent");
    assert_no_text("fill 0 65536\nfill 0 1", "T:2: the image has more than 64 KiB");
    assert_no_text("fill 0 65536", "T:1: the image has more than 64 KiB");
    assert_no_text("crc none", "T:1: 'crc none': only where flags have no bit 7 and nothing "
                               "follows");
    assert_no_text("reg 0 \x01", "T:1: byte 0x01 is no printable character");
}

/* --- make and lint --- */

struct found {
    unsigned count[3];
    char first[3][400]; /* text, by severity */
    unsigned entry[3];
};

static void take(void *ctx, const struct via_card_finding *finding)
{
    struct found *found = ctx;
    if (found->count[finding->severity]++ == 0) {
        snprintf(found->first[finding->severity], sizeof(found->first[0]), "%s", finding->text);
        found->entry[finding->severity] = finding->entry;
    }
}

static struct found lint_image(const struct via_card *card, int dip)
{
    struct found found = {0};
    const struct via_card_lint_options options = {.card = card, .dip = dip};
    unsigned errors = via_card_lint(&image, &options, take, &found);
    assert_int_equal(errors, found.count[VIA_CARD_ERROR]);
    return found;
}

static void images_for_all_roles_are_clean(void **state)
{
    const struct via_card *card;
    const struct via_card_setup *setup;
    struct via_error err = {0};
    unsigned made = 0;
    (void)state;
    for (unsigned i = 0; (card = via_card_at(i)) != NULL; i++) {
        for (unsigned k = 0; (setup = via_card_setup_at(k)) != NULL; k++) {
            struct via_card_make_options options = {
                .card = card, .setup = setup, .bar_bytes = 1u << 20, .with_assumed = k % 2 == 0};
            int rc = via_card_image_make(&options, &image, &err);
            assert_int_equal(rc, setup->refused != NULL ? -EINVAL : 0);
            if (rc == 0) {
                struct found found = lint_image(NULL, setup->dip | (int)VIA_CARD_DIP_EEPROM);
                assert_string_equal(found.first[VIA_CARD_ERROR], "");
                assert_string_equal(found.first[VIA_CARD_WARNING], "");
                struct via_card_mark mark = via_card_mark_find(image.tail, image.tail_bytes);
                assert_ptr_equal(mark.card, card);
                assert_ptr_equal(mark.setup, setup);
                made++;
            }
        }
    }
    assert_int_equal(made, 12);
    struct via_card_make_options odd = {.card = via_card_at(0), .setup = via_card_setup_at(2)};
    odd.bar_bytes = 3u << 20;
    assert_int_equal(via_card_image_make(&odd, &image, &err), -EINVAL);
}

static void dips_select_each_role_once(void **state)
{
    (void)state;
    unsigned roles = 0;
    for (unsigned dip = 0; dip < 8; dip++) {
        const struct via_card_setup *setup = via_card_setup_by_dip(dip);
        assert_true(setup == NULL || setup->dip == dip);
        roles += setup != NULL;
    }
    assert_int_equal(roles, 6);
}

/* A text, and the first expected error or warning, with its entry. */
static const struct {
    const char *text;
    enum via_card_severity severity;
    unsigned entry;
    const char *expected;
} bad_images[] = {
    {"crc 0x1", VIA_CARD_ERROR, 0, "CRC 0x00000001 is wrong"},
    {"flags 0", VIA_CARD_WARNING, 0, "does not check the CRC"},
    {"reg 0 0x360 0x1a1a00\nreg 0 0xffc 1", VIA_CARD_WARNING, 1, "unknown register"},
    {"reg 0 0x360 0x1a1a00\nreg 0 0x360 0x1a1a08", VIA_CARD_ERROR, 1, "written before"},
    {"reg 0 0x360 0x1a1a00\nreg 6 0x0 0", VIA_CARD_ERROR, 1, "port 6, 0x000: the PEX 8749 has no"},
    {"reg 0 0x360 0x1a1a07", VIA_CARD_ERROR, 0, "upstream port 7: the PEX 8749 has none"},
    {"reg 0 0x360 0x1a2000", VIA_CARD_ERROR, 0, "port 0 is upstream and NT0"},
    {"reg 0 0x360 0x1a2800", VIA_CARD_ERROR, 0, "nothing sets up BAR 2/3 of NT0 virtual"},
    {"reg 0 0x360 0x1a1a00\nreg 0 0x364 8", VIA_CARD_ERROR, 1, "a second upstream port (8)"},
    {"reg 0 0x300 0x3f\nreg 0 0x360 0x1a1a00", VIA_CARD_ERROR, 0, "station 0: 7 is no split"},
    {"reg 0 0x360 0x1a1a00\nreg 0 0x0 0x8749ffff", VIA_CARD_ERROR, 1, "ids ffff:8749"},
    {"reg 0 0x360 0x1a1a00\nreg 0 0x300 0x12", VIA_CARD_WARNING, 1, "order: 0x300"},
    {"reg 0 0x360 0x1a2808\ncard pex8733-x16 host ntb optical", VIA_CARD_ERROR, 0,
     "the image is for pex8733-x16, a PEX 8733, and not for pex8749-x8"},
    {"reg 0 0x360 0x3ffa1a00", VIA_CARD_WARNING, 0, "no public source names bits 0x3fc00000"},
    {"reg 0 0x360 0x1a2800\nreg 0x39 0xd4 0xffc0000c\nreg 0x39 0xd8 0xffffffff\n"
     "reg 0x38 0xe8 0xffd0000c\nreg 0x38 0xec 0xffffffff",
     VIA_CARD_ERROR, 3, "is the mask of no size"},
};

static void lint_names_the_place_and_the_cause(void **state)
{
    struct via_error err = {0};
    (void)state;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(bad_images); i++) {
        const char *text = bad_images[i].text;
        if (via_card_text_parse("T", text, strlen(text), &image, NULL, &err) != 0) {
            fail_msg("%s", err.text);
        }
        struct found found = lint_image(via_card_find("pex8749-x8"), -1);
        enum via_card_severity severity = bad_images[i].severity;
        if (strstr(found.first[severity], bad_images[i].expected) == NULL ||
            found.entry[severity] != bad_images[i].entry) {
            fail_msg("%s: entry %u: '%s', not '%s'", text, found.entry[severity],
                     found.first[severity], bad_images[i].expected);
        }
    }
    struct via_card_make_options options = {
        .card = via_card_find("pex8733-x16"), .setup = via_card_setup_at(0), .bar_bytes = 1u << 20};
    assert_int_equal(via_card_image_make(&options, &image, &err), 0);
    assert_int_equal(via_card_image_add(&image, via_card_address(0, 0x300), 0x49), 0);
    image.crc = via_card_image_crc(&image);
    struct found found = lint_image(NULL, 1 | VIA_CARD_DIP_EEPROM);
    assert_string_equal(found.first[VIA_CARD_ERROR],
                        "the DIP switches select box, transparent, optical; the image's role needs "
                        "1 off, 2 off, 3 off, 4 on");
    assert_int_equal(found.count[VIA_CARD_ERROR], 2); /* and 48 lanes */
    found = lint_image(NULL, 0);
    assert_string_equal(found.first[VIA_CARD_ERROR],
                        "DIP position 4 is off: the card does not read its EEPROM");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_crc_is_the_sdks),
        cmocka_unit_test(bytes_are_where_the_format_has_them),
        cmocka_unit_test(damaged_images_are_refused_with_the_place),
        cmocka_unit_test(random_images_survive_being_text),
        cmocka_unit_test(the_largest_image_survives_being_text),
        cmocka_unit_test(texts_are_refused_with_their_line),
        cmocka_unit_test(images_for_all_roles_are_clean),
        cmocka_unit_test(dips_select_each_role_once),
        cmocka_unit_test(lint_names_the_place_and_the_cause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
