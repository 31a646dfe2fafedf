/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "card/sensors.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "card/words.h"

#define BYTE_MAX 255u

/* Byte numbers of Samtec's ECUO x4 modules, from Mu3e's firefly_xcvr_ctrl.vhd and odin_devices'
 * firefly.py. The published cards have PCUO modules, whose map is not public. The limits of
 * temperature and supply are those of the module; the limits of received power are from a similar
 * standard (14.025 Gb/s, -10.5 to 0 dBm).
 */
static const char ecuo_x4[] =
    "text vendor i2c 0x50 148 16\n"
    "text part i2c 0x50 168 16\n"
    "value temperature i2c 0x50 22 s8 unit C low 0 high 85\n"
    "value supply i2c 0x50 26 u16 scale 0.0001 unit V low 3.135 high 3.465\n"
    "value receive-power-0 i2c 0x50 34 u16 scale 0.1 unit uW low 89.1 high 1000\n"
    "value receive-power-1 i2c 0x50 36 u16 scale 0.1 unit uW low 89.1 high 1000\n"
    "value receive-power-2 i2c 0x50 38 u16 scale 0.1 unit uW low 89.1 high 1000\n"
    "value receive-power-3 i2c 0x50 40 u16 scale 0.1 unit uW low 89.1 high 1000\n"
    "flags receive-signal-lost i2c 0x50 3 mask 0x0f\n"
    "flags transmit-signal-lost i2c 0x50 3 mask 0xf0\n"
    "flags transmitter-fault i2c 0x50 4 mask 0x0f\n"
    "flags temperature-alarm i2c 0x50 6 mask 0xf0\n"
    "flags supply-alarm i2c 0x50 7 mask 0xf0\n";

const char *via_card_sensors_known(const char *name)
{
    return strcmp(name, "ecuo-x4") == 0 ? ecuo_x4 : NULL;
}

/* --- the table --- */

static int expected(const struct via_card_lines *lines)
{
    const char *kind = lines->words[0];
    return via_card_lines_complain(
        lines, "'%s': expected '%s'", kind,
        strcmp(kind, "flags") == 0  ? "flags NAME i2c ADDRESS BYTE mask BITS"
        : strcmp(kind, "text") == 0 ? "text NAME i2c ADDRESS BYTE COUNT"
                                    : "value NAME i2c ADDRESS BYTE u8|s8|u16|s16 [KEY X]... or "
                                      "value NAME file PATH [KEY X]...");
}

static int take_word(const struct via_card_lines *lines, unsigned word, char *text, size_t bytes)
{
    if (strlen(lines->words[word]) >= bytes) {
        return via_card_lines_complain(lines, "'%s': longer than %zu bytes", lines->words[word],
                                       bytes - 1);
    }
    memcpy(text, lines->words[word], strlen(lines->words[word]) + 1);
    return 0;
}

static int take_real(const struct via_card_lines *lines, unsigned word, double *ret_value)
{
    const char *text = lines->words[word];
    char *end;
    double value = strtod(text, &end);
    if (strspn(text, "+-.0123456789eE") != strlen(text) || end == text || *end != '\0' ||
        !isfinite(value)) {
        return via_card_lines_complain(lines, "'%s': not a number", text);
    }
    *ret_value = value;
    return 0;
}

/* "i2c ADDRESS BYTE" */
static int take_place(const struct via_card_lines *lines, struct via_card_sensor *sensor)
{
    uint32_t address = 0, off = 0;
    int rc = via_card_lines_number(lines, 3, "an address", VIA_CARD_I2C_MAX, &address);
    if (rc == 0 && address < VIA_CARD_I2C_MIN) {
        return via_card_lines_complain(lines, "'%s': addresses below 0x08 are reserved",
                                       lines->words[3]);
    }
    rc = rc == 0 ? via_card_lines_number(lines, 4, "a byte", BYTE_MAX, &off) : rc;
    sensor->address = (uint8_t)address;
    sensor->off = (uint8_t)off;
    return rc;
}

static int take_keys(const struct via_card_lines *lines, unsigned word,
                     struct via_card_sensor *sensor)
{
    int rc = 0;
    if ((lines->words_count - word) % 2 != 0) {
        return expected(lines);
    }
    for (; rc == 0 && word < lines->words_count; word += 2) {
        const char *key = lines->words[word];
        if (strcmp(key, "unit") == 0) {
            rc = take_word(lines, word + 1, sensor->unit, sizeof(sensor->unit));
            continue;
        }
        double *number = strcmp(key, "scale") == 0  ? &sensor->scale
                         : strcmp(key, "low") == 0  ? &sensor->low
                         : strcmp(key, "high") == 0 ? &sensor->high
                                                    : NULL;
        rc = number != NULL
                 ? take_real(lines, word + 1, number)
                 : via_card_lines_complain(lines, "'%s': expected scale, unit, low or high", key);
    }
    if (rc == 0 && sensor->low > sensor->high) {
        rc = via_card_lines_complain(lines, "'%s': low is above high", sensor->name);
    }
    return rc;
}

static int take_value(const struct via_card_lines *lines, struct via_card_sensor *sensor)
{
    static const char *const kinds[] = {"u8", "s8", "u16", "s16"};
    if (lines->words_count >= 4 && strcmp(lines->words[2], "file") == 0) {
        sensor->kind = VIA_CARD_SENSOR_FILE;
        int rc = take_word(lines, 3, sensor->path, sizeof(sensor->path));
        return rc == 0 ? take_keys(lines, 4, sensor) : rc;
    }
    if (lines->words_count < 6 || strcmp(lines->words[2], "i2c") != 0) {
        return expected(lines);
    }
    unsigned kind = 0;
    while (kind < VIA_ARRAY_COUNT(kinds) && strcmp(lines->words[5], kinds[kind]) != 0) {
        kind++;
    }
    if (kind == VIA_ARRAY_COUNT(kinds)) {
        return via_card_lines_complain(lines, "'%s': not u8, s8, u16 or s16", lines->words[5]);
    }
    sensor->kind = (enum via_card_sensor_kind)kind;
    int rc = take_place(lines, sensor);
    if (rc == 0 && kind >= VIA_CARD_SENSOR_U16 && sensor->off == BYTE_MAX) {
        return via_card_lines_complain(lines, "'%s': there is no byte behind it", lines->words[4]);
    }
    return rc == 0 ? take_keys(lines, 6, sensor) : rc;
}

static int take_bits(const struct via_card_lines *lines, struct via_card_sensor *sensor)
{
    uint32_t number = 0;
    bool is_text = strcmp(lines->words[0], "text") == 0;
    if (lines->words_count != (is_text ? 6 : 7) || strcmp(lines->words[2], "i2c") != 0 ||
        (!is_text && strcmp(lines->words[5], "mask") != 0)) {
        return expected(lines);
    }
    int rc = take_place(lines, sensor);
    rc = rc == 0 ? via_card_lines_number(lines, is_text ? 5 : 6, is_text ? "a count" : "a mask",
                                         is_text ? VIA_CARD_SENSOR_TEXT_MAX : BYTE_MAX, &number)
                 : rc;
    if (rc == 0 && (number == 0 || (is_text && sensor->off + number > BYTE_MAX + 1))) {
        return via_card_lines_complain(lines, "'%s': nothing, or beyond byte 255",
                                       lines->words[is_text ? 5 : 6]);
    }
    sensor->kind = is_text ? VIA_CARD_SENSOR_TEXT : VIA_CARD_SENSOR_FLAGS;
    sensor->mask = sensor->count = (uint8_t)number;
    return rc;
}

static int take_line(const struct via_card_lines *lines, struct via_card_sensors *sensors)
{
    struct via_card_sensor sensor = {.scale = 1, .low = -INFINITY, .high = INFINITY};
    bool is_value = strcmp(lines->words[0], "value") == 0;
    if (!is_value && strcmp(lines->words[0], "flags") != 0 &&
        strcmp(lines->words[0], "text") != 0) {
        return via_card_lines_complain(lines, "'%s': unknown keyword (value, flags, text)",
                                       lines->words[0]);
    }
    if (lines->words_count < 4) {
        return expected(lines);
    }
    if (sensors->count == VIA_CARD_SENSORS_MAX) {
        return via_card_lines_complain(lines, "more than %u sensors", VIA_CARD_SENSORS_MAX);
    }
    int rc = take_word(lines, 1, sensor.name, sizeof(sensor.name));
    if (rc == 0) {
        rc = is_value ? take_value(lines, &sensor) : take_bits(lines, &sensor);
    }
    if (rc == 0) {
        sensors->sensors[sensors->count++] = sensor;
    }
    return rc;
}

int via_card_sensors_parse(const char *name, const char *text, size_t bytes,
                           struct via_card_sensors *ret_sensors, struct via_error *err)
{
    struct via_card_lines lines = {.name = name, .text = text, .bytes = bytes, .err = err};
    int rc;
    ret_sensors->count = 0;
    while ((rc = via_card_lines_next(&lines)) == 1) {
        rc = take_line(&lines, ret_sensors);
        if (rc != 0) {
            return rc;
        }
    }
    if (rc == 0 && ret_sensors->count == 0) {
        return via_card_lines_complain(&lines, "no sensor in the whole table");
    }
    return rc;
}

/* --- reading and printing --- */

static int read_value(const struct via_card_sensor *sensor,
                      const struct via_card_sensor_access *access, double *ret_value)
{
    char text[64] = "";
    uint8_t bytes[2] = {0};
    if (sensor->kind == VIA_CARD_SENSOR_FILE) {
        char *end;
        int rc = access->read_file != NULL
                     ? access->read_file(access->ctx, sensor->path, text, sizeof(text))
                     : -ENOTSUP;
        double raw = rc == 0 ? strtod(text, &end) : 0;
        *ret_value = raw * sensor->scale;
        return rc != 0 ? rc : end == text || !isfinite(*ret_value) ? -EINVAL : 0;
    }
    bool is_wide = sensor->kind == VIA_CARD_SENSOR_U16 || sensor->kind == VIA_CARD_SENSOR_S16;
    int rc = access->read_i2c != NULL ? access->read_i2c(access->ctx, sensor->address, sensor->off,
                                                         bytes, is_wide ? 2 : 1)
                                      : -ENOTSUP;
    int wide = bytes[0] << 8 | bytes[1];
    int raw = sensor->kind == VIA_CARD_SENSOR_U8    ? bytes[0]
              : sensor->kind == VIA_CARD_SENSOR_S8  ? (int8_t)bytes[0]
              : sensor->kind == VIA_CARD_SENSOR_U16 ? wide
                                                    : (int16_t)wide;
    *ret_value = raw * sensor->scale;
    return rc;
}

static bool print_value(const struct via_card_sensor *sensor, double value, FILE *out)
{
    fprintf(out, "%.4g%s%s", value, sensor->unit[0] != '\0' ? " " : "", sensor->unit);
    if (strcmp(sensor->unit, "uW") == 0 && value > 0) {
        fprintf(out, " (%.1f dBm)", 10 * log10(value / 1000));
    }
    bool is_low = value<sensor->low, is_high = value> sensor->high;
    if (is_low || is_high) {
        fprintf(out, ", NOT %s %.4g", is_low ? "at least" : "at most",
                is_low ? sensor->low : sensor->high);
    }
    return !is_low && !is_high;
}

static bool print_text(const uint8_t *bytes, unsigned count, FILE *out)
{
    while (count > 0 && (bytes[count - 1] == ' ' || bytes[count - 1] == '\0')) {
        count--;
    }
    for (unsigned i = 0; i < count; i++) {
        fputc(bytes[i] >= ' ' && bytes[i] < 0x7f ? bytes[i] : '?', out);
    }
    return true;
}

static bool print_sensor(const struct via_card_sensor *sensor,
                         const struct via_card_sensor_access *access, FILE *out)
{
    uint8_t bytes[VIA_CARD_SENSOR_TEXT_MAX] = {0};
    double value = 0;
    int rc;
    bool is_text = sensor->kind == VIA_CARD_SENSOR_TEXT;
    bool is_value = !is_text && sensor->kind != VIA_CARD_SENSOR_FLAGS;
    if (is_value) {
        rc = read_value(sensor, access, &value);
    } else {
        rc = access->read_i2c != NULL ? access->read_i2c(access->ctx, sensor->address, sensor->off,
                                                         bytes, is_text ? sensor->count : 1)
                                      : -ENOTSUP;
    }
    fprintf(out, "  %-24s ", sensor->name);
    if (rc == -ENXIO) {
        fprintf(out, "NO device answers at I2C address 0x%02x\n", sensor->address);
        return false;
    }
    if (rc != 0) {
        fprintf(out, "can NOT be read: %s\n",
                rc == -ENOTSUP ? "no I2C bus was named (--i2c)" : strerror(-rc));
        return false;
    }
    bool is_good = true;
    if (is_value) {
        is_good = print_value(sensor, value, out);
    } else if (is_text) {
        is_good = print_text(bytes, sensor->count, out);
    } else {
        is_good = (bytes[0] & sensor->mask) == 0;
        fprintf(out, is_good ? "no" : "SET: 0x%02x", bytes[0] & sensor->mask);
    }
    fputc('\n', out);
    return is_good;
}

unsigned via_card_sensors_print(const struct via_card_sensors *sensors,
                                const struct via_card_sensor_access *access, FILE *out)
{
    unsigned wrong = 0;
    for (unsigned i = 0; i < sensors->count; i++) {
        wrong += !print_sensor(&sensors->sensors[i], access, out);
    }
    return wrong;
}
