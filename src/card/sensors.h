/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Sensors of a card by a table that its owner can write, since no public source has the map of the
 * published cards. Lines:
 *
 *     value NAME i2c ADDRESS BYTE u8|s8|u16|s16 [scale X] [unit U] [low X] [high X]
 *     value NAME file PATH [scale X] [unit U] [low X] [high X]
 *     flags NAME i2c ADDRESS BYTE mask BITS
 *     text NAME i2c ADDRESS BYTE COUNT
 *
 * u16 and s16 have their upper byte first. A value is the raw number times the scale; a flag that
 * is set is a fault. The I2C bus is reached by a caller's function: a bus of this machine, or a
 * dump of one. Nothing is written to a device but the number of the byte that is read.
 */
#ifndef VIA_CARD_SENSORS_H
#define VIA_CARD_SENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

#define VIA_CARD_SENSORS_MAX 64u
#define VIA_CARD_SENSORS_BYTES_MAX (64u << 10) /* of a table's text */
#define VIA_CARD_SENSOR_NAME_BYTES 32u
#define VIA_CARD_SENSOR_TEXT_MAX 32u
#define VIA_CARD_SENSOR_PATH_BYTES 64u
#define VIA_CARD_I2C_MIN 0x08u /* below and above are reserved (I2C specification, 3.1.12) */
#define VIA_CARD_I2C_MAX 0x77u

enum via_card_sensor_kind {
    VIA_CARD_SENSOR_U8,
    VIA_CARD_SENSOR_S8,
    VIA_CARD_SENSOR_U16,
    VIA_CARD_SENSOR_S16,
    VIA_CARD_SENSOR_FILE, /* a decimal number, as the kernel's hwmon has them */
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
    double scale, low, high; /* low and high: in units, or infinite */
};

struct via_card_sensors {
    unsigned count;
    struct via_card_sensor sensors[VIA_CARD_SENSORS_MAX];
};

/* How sensors are reached; both may block for as long as a bus takes (milliseconds). */
struct via_card_sensor_access {
    /* count bytes from off on of the device at an address. 0; -ENXIO (no device answers there) or
     * another negative errno. NULL: there is no bus. */
    int (*read_i2c)(void *ctx, uint8_t address, uint8_t off, uint8_t *ret_bytes, size_t count);
    /* The file's text, ended, at most bytes with its end. 0 or negative errno. */
    int (*read_file)(void *ctx, const char *path, char *ret_text, size_t bytes);
    void *ctx;
};

/* Errors begin with "name:line: ". 0 or -EINVAL. */
VIA_MUST_CHECK int via_card_sensors_parse(const char *name, const char *text, size_t bytes,
                                          struct via_card_sensors *ret_sensors,
                                          struct via_error *err);
/* The text of a table of this project: "ecuo-x4". NULL: there is none of this name. */
const char *via_card_sensors_known(const char *name);

/* Prints a line for each sensor; how many are out of their limits, set, or not to be read. */
unsigned via_card_sensors_print(const struct via_card_sensors *sensors,
                                const struct via_card_sensor_access *access, FILE *out);

#endif
