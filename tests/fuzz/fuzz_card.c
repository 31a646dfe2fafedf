/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * EEPROM images of adapter cards, their text form, systems of cards, and tables of sensors: an
 * accepted input survives the conversion to the other form and back, and a refused one gets a
 * reason. The first byte selects the kind.
 */
#include <errno.h>
#include <stdio.h>

#include "card/lint.h"
#include "card/sensors.h"
#include "card/system.h"
#include "card/text.h"
#include "tests/fuzz/input.h"

static struct via_card_image image, again;
static unsigned lines[VIA_CARD_ENTRIES_MAX];

static void take(void *ctx, const struct via_card_finding *finding)
{
    (void)ctx;
    require(finding->text[0] != '\0');
    require(finding->place != VIA_CARD_AT_ENTRY || finding->entry < image.entries_count);
}

static void check_image(void)
{
    static uint8_t bytes[2][VIA_CARD_IMAGE_BYTES_MAX];
    const struct via_card_lint_options options = {.dip = 9};
    size_t count[2], text_bytes = 0;
    struct via_error err = {0};
    char *text = NULL;
    require(via_card_image_write(&image, bytes[0], &count[0]) == 0);
    via_card_lint(&image, &options, take, NULL);
    FILE *out = open_memstream(&text, &text_bytes);
    require(out != NULL);
    via_card_text_print(&image, out);
    fclose(out);
    require(via_card_text_parse("T", text, text_bytes, &again, NULL, &err) == 0);
    require(via_card_image_write(&again, bytes[1], &count[1]) == 0);
    require(count[0] == count[1] && memcmp(bytes[0], bytes[1], count[0]) == 0);
    require(via_card_image_parse("I", bytes[1], count[1], &again, &err) == 0);
    free(text);
}

static void take_of_system(void *ctx, enum via_card_severity severity, unsigned line,
                           const char *text)
{
    (void)ctx;
    require(severity <= VIA_CARD_UNDECIDED && line != 0 && text[0] != '\0');
}

static void check_system(const char *text, size_t bytes)
{
    static struct via_card_system system;
    struct via_error err = {0};
    char *drawn = NULL;
    size_t drawn_bytes = 0;
    if (via_card_system_parse("F", text, bytes, &system, &err) != 0) {
        require(strncmp(err.text, "F:", 2) == 0);
        return;
    }
    FILE *out = open_memstream(&drawn, &drawn_bytes);
    require(out != NULL);
    via_card_system_check(&system, take_of_system, NULL);
    via_card_system_print_order(&system, out);
    via_card_system_print_tree(&system, out);
    via_card_system_draw(&system, out);
    fclose(out);
    free(drawn);
}

static int read_i2c(void *ctx, uint8_t address, uint8_t off, uint8_t *ret_bytes, size_t count)
{
    (void)ctx;
    require(address >= VIA_CARD_I2C_MIN && address <= VIA_CARD_I2C_MAX);
    require(count != 0 && off + count <= 256 && count <= VIA_CARD_SENSOR_TEXT_MAX);
    memset(ret_bytes, off, count);
    return off == 0 ? -ENXIO : 0;
}

static int read_file(void *ctx, const char *path, char *ret_text, size_t bytes)
{
    (void)ctx;
    require(path[0] != '\0');
    snprintf(ret_text, bytes, "%.*s", (int)bytes - 1, path);
    return 0;
}

static void check_sensors(const char *text, size_t bytes)
{
    static struct via_card_sensors sensors;
    const struct via_card_sensor_access access = {.read_i2c = read_i2c, .read_file = read_file};
    struct via_error err = {0};
    char *printed = NULL;
    size_t printed_bytes = 0;
    if (via_card_sensors_parse("F", text, bytes, &sensors, &err) != 0) {
        require(strncmp(err.text, "F:", 2) == 0);
        return;
    }
    FILE *out = open_memstream(&printed, &printed_bytes);
    require(out != NULL);
    require(via_card_sensors_print(&sensors, &access, out) <= sensors.count);
    fclose(out);
    free(printed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, bytes};
    struct via_error err = {0};
    unsigned kind = input_byte(&input) % 4;
    bool is_text = kind == 1;
    /* A copy of exact size, so that the sanitizer finds reads beyond its end. */
    unsigned char *copy = malloc(input.bytes + 1);
    require(copy != NULL);
    unsigned char *at = copy + 1;
    if (input.bytes != 0) {
        memcpy(at, input.data, input.bytes);
    }
    if (kind >= 2) {
        (kind == 2 ? check_system : check_sensors)((const char *)at, input.bytes);
        free(copy);
        return 0;
    }
    int rc = is_text ? via_card_text_parse("F", (const char *)at, input.bytes, &image, lines, &err)
                     : via_card_image_parse("F", at, input.bytes, &image, &err);
    if (rc == 0) {
        check_image();
    } else {
        require(strncmp(err.text, is_text ? "F:" : "F: byte ", is_text ? 2 : 8) == 0);
    }
    free(copy);
    return 0;
}
