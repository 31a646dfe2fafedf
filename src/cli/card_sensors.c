/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Sensors of viaduct card status: on an I2C bus of this machine, or from a dump of their
 * registers. */
#include <errno.h>
#include <fcntl.h>
#include <linux/i2c-dev.h>
#include <linux/i2c.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "card/sensors.h"
#include "card/words.h"
#include "cli/card.h"

#define DUMP_PREFIX "dump:"
#define DUMP_BYTES_MAX (256u << 10)
#define BYTES 256u /* of a device */

struct dump {
    bool is_there[VIA_CARD_I2C_MAX + 1][BYTES];
    uint8_t bytes[VIA_CARD_I2C_MAX + 1][BYTES];
};

struct bus {
    int fd;            /* of /dev/i2c-N; -1 */
    struct dump *dump; /* NULL: no dump */
};

/* --- a bus --- */

static int read_bus(int fd, uint8_t address, uint8_t off, uint8_t *ret_bytes, size_t count)
{
    struct i2c_msg messages[] = {
        {.addr = address, .len = 1, .buf = &off},
        {.addr = address, .flags = I2C_M_RD, .len = (uint16_t)count, .buf = ret_bytes},
    };
    struct i2c_rdwr_ioctl_data both = {.msgs = messages, .nmsgs = 2};
    if (ioctl(fd, I2C_RDWR, &both) == 2) {
        return 0;
    }
    return errno == EREMOTEIO || errno == ENODEV ? -ENXIO : errno != 0 ? -errno : -EIO;
}

static int read_dump(const struct dump *dump, uint8_t address, uint8_t off, uint8_t *ret_bytes,
                     size_t count)
{
    bool answers = false;
    for (unsigned i = 0; i < BYTES; i++) {
        answers |= dump->is_there[address][i];
    }
    for (size_t i = 0; answers && i < count; i++) {
        if (!dump->is_there[address][off + i]) {
            return -EIO;
        }
        ret_bytes[i] = dump->bytes[address][off + i];
    }
    return answers ? 0 : -ENXIO;
}

static int read_i2c(void *ctx, uint8_t address, uint8_t off, uint8_t *ret_bytes, size_t count)
{
    struct bus *bus = ctx;
    return bus->dump != NULL ? read_dump(bus->dump, address, off, ret_bytes, count)
           : bus->fd >= 0    ? read_bus(bus->fd, address, off, ret_bytes, count)
                             : -ENOTSUP;
}

static int read_file(void *ctx, const char *path, char *ret_text, size_t bytes)
{
    (void)ctx;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t count = fd >= 0 ? read(fd, ret_text, bytes - 1) : -1;
    int rc = count > 0 ? 0 : count == 0 ? -ENODATA : -errno;
    ret_text[count > 0 ? count : 0] = '\0';
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

/* --- a dump: lines of "ADDRESS FIRST BYTE..." --- */

static int take_dump_line(const struct via_card_lines *lines, struct dump *dump)
{
    uint32_t address = 0, off = 0, byte = 0;
    int rc = via_card_lines_number(lines, 0, "an address", VIA_CARD_I2C_MAX, &address);
    if (rc == 0 && lines->words_count < 3) {
        rc = via_card_lines_complain(lines, "'%s': expected 'ADDRESS FIRST BYTE...'",
                                     lines->words[0]);
    }
    rc = rc == 0 ? via_card_lines_number(lines, 1, "the first byte", BYTES - 1, &off) : rc;
    for (unsigned word = 2; rc == 0 && word < lines->words_count; word++, off++) {
        if (off >= BYTES) {
            return via_card_lines_complain(lines, "'%s': beyond byte 255", lines->words[word]);
        }
        rc = via_card_lines_number(lines, word, "a byte", 0xff, &byte);
        if (rc == 0) {
            dump->is_there[address][off] = true;
            dump->bytes[address][off] = (uint8_t)byte;
        }
    }
    return rc;
}

static int load_dump(const char *path, struct dump *dump, struct via_error *err)
{
    unsigned char *text;
    size_t bytes;
    int rc = via_cli_card_read(path, DUMP_BYTES_MAX, &text, &bytes, err);
    if (rc != 0) {
        return rc;
    }
    struct via_card_lines lines = {
        .name = path, .text = (const char *)text, .bytes = bytes, .err = err};
    while ((rc = via_card_lines_next(&lines)) == 1) {
        rc = take_dump_line(&lines, dump);
        if (rc != 0) {
            break;
        }
    }
    free(text);
    return rc;
}

static int open_bus(const char *name, struct bus *bus, struct via_error *err)
{
    if (strncmp(name, DUMP_PREFIX, strlen(DUMP_PREFIX)) == 0) {
        bus->dump = calloc(1, sizeof(*bus->dump));
        return bus->dump == NULL ? via_error_set(err, -ENOMEM, "%s: %s", name, strerror(ENOMEM))
                                 : load_dump(name + strlen(DUMP_PREFIX), bus->dump, err);
    }
    bus->fd = open(name, O_RDWR | O_CLOEXEC);
    return bus->fd >= 0 ? 0 : via_error_set(err, -errno, "%s: open: %s", name, strerror(errno));
}

/* --- the table --- */

static int load_table(const char *name, struct via_card_sensors *sensors, struct via_error *err)
{
    const char *known = via_card_sensors_known(name);
    if (known != NULL) {
        return via_card_sensors_parse(name, known, strlen(known), sensors, err);
    }
    unsigned char *text;
    size_t bytes;
    int rc = via_cli_card_read(name, VIA_CARD_SENSORS_BYTES_MAX, &text, &bytes, err);
    if (rc == 0) {
        rc = via_card_sensors_parse(name, (const char *)text, bytes, sensors, err);
        free(text);
    }
    return rc;
}

int via_cli_card_print_sensors(const char *table, const char *i2c, unsigned *ret_wrong,
                               struct via_error *err)
{
    static struct via_card_sensors sensors;
    struct bus bus = {.fd = -1};
    int rc = load_table(table, &sensors, err);
    if (rc == 0 && i2c != NULL) {
        rc = open_bus(i2c, &bus, err);
    }
    if (rc == 0) {
        const struct via_card_sensor_access access = {
            .read_i2c = read_i2c, .read_file = read_file, .ctx = &bus};
        printf("sensors   table %s%s%s\n", table, i2c != NULL ? ", bus " : "",
               i2c != NULL ? i2c : "");
        *ret_wrong = via_card_sensors_print(&sensors, &access, stdout);
    }
    free(bus.dump);
    if (bus.fd >= 0) {
        close(bus.fd);
    }
    return rc;
}
