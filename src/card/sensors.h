/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Reads sensors of a card as described by a table. The owner of a card can write the table, because
 * no public source has the map of the published cards. Lines:
 *
 *     value NAME i2c ADDRESS BYTE u8|s8|u16|s16 [scale X] [unit U] [low X] [high X]
 *     value NAME file PATH [scale X] [unit U] [low X] [high X]
 *     flags NAME i2c ADDRESS BYTE mask BITS
 *     text NAME i2c ADDRESS BYTE COUNT
 *
 * u16 and s16 are big-endian. A value is the raw number times the scale; a set flag is a fault. The
 * caller provides a function that reads the I2C bus of this machine, or a dump of one. The only
 * write to a device is the number of the byte to read.
 */
#ifndef VIA_CARD_SENSORS_H
#define VIA_CARD_SENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

#define VIA_CARD_SENSORS_MAX 64u
#define VIA_CARD_SENSORS_BYTES_MAX (64u << 10) /* size of a table's text */
#define VIA_CARD_SENSOR_NAME_BYTES 32u
#define VIA_CARD_SENSOR_TEXT_MAX 32u
#define VIA_CARD_SENSOR_PATH_BYTES 64u
#define VIA_CARD_I2C_MIN 0x08u /* others are reserved (I2C specification, 3.1.12) */
#define VIA_CARD_I2C_MAX 0x77u

enum via_card_sensor_kind {
    VIA_CARD_SENSOR_U8,
    VIA_CARD_SENSOR_S8,
    VIA_CARD_SENSOR_U16,
    VIA_CARD_SENSOR_S16,
    VIA_CARD_SENSOR_FILE, /* a decimal number, as in the kernel's hwmon files */
    VIA_CARD_SENSOR_FLAGS,
    VIA_CARD_SENSOR_TEXT,
};

struct via_card_sensor {
    enum via_card_sensor_kind kind;
    char name[VIA_CARD_SENSOR_NAME_BYTES];
    uint8_t address, off; /* on the I2C bus */
    uint8_t mask;         /* of FLAGS */
    uint8_t count;        /* bytes of TEXT */
    char path[VIA_CARD_SENSOR_PATH_BYTES];
    char unit[8];
    double scale, low, high; /* low and high: limits in units, or infinite */
};

struct via_card_sensors {
    unsigned count;
    struct via_card_sensor sensors[VIA_CARD_SENSORS_MAX];
};

/* Functions that read sensors; they may block for the time of a bus access (milliseconds). */
struct via_card_sensor_access {
    /* Reads count bytes of a device, from off on. 0; -ENXIO (no device answers) or another negative
     * errno. NULL: no bus. */
    int (*read_i2c)(void *ctx, uint8_t address, uint8_t off, uint8_t *ret_bytes, size_t count);
    /* Reads a file as a NUL-terminated text of at most `bytes` bytes. 0 or negative errno. */
    int (*read_file)(void *ctx, const char *path, char *ret_text, size_t bytes);
    void *ctx;
};

/* Errors begin with "name:line: ". 0 or -EINVAL. */
VIA_MUST_CHECK int via_card_sensors_parse(const char *name, const char *text, size_t bytes,
                                          struct via_card_sensors *ret_sensors,
                                          struct via_error *err);
/* The text of a built-in table, "ecuo-x4". NULL: unknown name. */
const char *via_card_sensors_known(const char *name);

/* Prints a line for each sensor. Returns how many are out of limits, set, or unreadable. */
unsigned via_card_sensors_print(const struct via_card_sensors *sensors,
                                const struct via_card_sensor_access *access, FILE *out);

#endif
