/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct card eeprom: the EEPROM of a card of this machine. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "card/eeprom.h"
#include "cli/card.h"
#include "cli/cli.h"
#include "vfio/kernel.h"
#include "vfio/sysfs.h"
#include "vfio/user.h"

#define USER_PREFIX "vfio-user:"
#define SIZE_DEFAULT 4096u

static const char help[] =
    "usage: viaduct card eeprom read --device D --output FILE [OPTION...]\n"
    "       viaduct card eeprom verify FILE --device D [OPTION...]\n"
    "       viaduct card eeprom flash FILE --device D --backup FILE [OPTION...]\n"
    "\n"
    "The EEPROM of a card, by the controller in its chip. Tried on a register model, never on a\n"
    "chip. flash checks the image, saves the old image in a new file, prompts, writes and\n"
    "reads back. If power fails meanwhile, the card has its old image, one without registers,\n"
    "or the new one.\n"
    "\n"
    "  --device D         0000:03:00.0 (bound to vfio-pci), bridge:0000:02:00.0 (the upstream "
    "port\n"
    "                     of a transparent card, which its driver keeps) or vfio-user:PATH\n"
    "  --backup FILE      flash: the old content goes into this file, which must not exist\n"
    "  --card CARD        the card that it is, if the image does not name one\n"
    "  --address-bytes N  1 to 3, of a blank EEPROM whose width the chip does not know\n"
    "  --size BYTES       of the EEPROM, a multiple of 4 up to 65536 (default 4096)\n"
    "  --sysfs DIR        instead of /sys\n"
    "  --yes              flash: do not prompt\n"
    "  --output FILE      read: where the image goes\n"
    "  -h, --help         this text\n";

enum { OPT_BACKUP = 256, OPT_YES };

static const struct option long_options[] = {
    {"backup", required_argument, NULL, OPT_BACKUP},
    {"yes", no_argument, NULL, OPT_YES},
    {"output", required_argument, NULL, 'o'},
    VIA_CLI_CARD_DEVICE_OPTIONS,
    {NULL, 0, NULL, 0},
};

struct device_options {
    struct via_cli_card_device card;
    const char *backup, *output;
    bool yes;
};

/* -1: the option was taken; otherwise the exit code. */
static int take_option(int opt, struct device_options *options)
{
    switch (opt) {
    case OPT_BACKUP:
        options->backup = optarg;
        return -1;
    case OPT_YES:
        options->yes = true;
        return -1;
    case 'o':
        options->output = optarg;
        return -1;
    default:
        return via_cli_card_take_device(opt, help, &options->card);
    }
}

int via_cli_card_take_device(int opt, const char *text, struct via_cli_card_device *device)
{
    switch (opt) {
    case 'd':
        device->device = optarg;
        return -1;
    case 'y':
        device->sysfs = optarg;
        return -1;
    case 'c':
        return via_cli_card_take_card(device->name, optarg, &device->card) == VIA_CLI_OK
                   ? -1
                   : VIA_CLI_USAGE;
    case 'a':
        return via_cli_number(optarg, 1, 3, &device->address_bytes) == 0
                   ? -1
                   : via_cli_usage(device->name, "--address-bytes: '%s': not 1 to 3", optarg);
    case 's':
        return via_cli_number(optarg, 8, VIA_CARD_IMAGE_BYTES_MAX, &device->size) == 0 &&
                       device->size % 4 == 0
                   ? -1
                   : via_cli_usage(device->name, "--size: '%s': no multiple of 4 from 8 to %u",
                                   optarg, VIA_CARD_IMAGE_BYTES_MAX);
    default:
        return via_cli_take_help(device->name, opt, text);
    }
}

/* --- the device --- */

void via_cli_card_pause_us(unsigned us)
{
    usleep(us);
}

int via_cli_card_open(const char *device, const char *sysfs, struct via_pci **ret_pci,
                      struct via_error *err)
{
    struct via_kernel_options kernel = {.address = device, .sysfs = sysfs};
    struct via_sysfs_options bridge = {.sysfs = sysfs, .beside = "pcieport"};
    int rc;
    if (strncmp(device, USER_PREFIX, strlen(USER_PREFIX)) == 0) {
        rc = via_vfio_user_open(device + strlen(USER_PREFIX), ret_pci, err);
    } else if (strncmp(device, VIA_CLI_CARD_BRIDGE, strlen(VIA_CLI_CARD_BRIDGE)) == 0) {
        bridge.address = device + strlen(VIA_CLI_CARD_BRIDGE);
        rc = via_sysfs_open(&bridge, ret_pci, err);
    } else if (via_kernel_is_address(device)) {
        rc = via_kernel_open(&kernel, ret_pci, err);
    } else {
        rc = via_error_set(err, -EINVAL, "not 0000:03:00.0, bridge:0000:02:00.0 or vfio-user:PATH");
    }
    if (rc != 0) {
        via_error_prefix(err, "%s: ", device);
    }
    return rc;
}

static int open_device(const struct device_options *options, struct via_card_eeprom *eeprom,
                       struct via_error *err)
{
    struct via_pci *pci;
    int rc = via_cli_card_open(options->card.device, options->card.sysfs, &pci, err);
    if (rc != 0) {
        return rc;
    }
    rc = via_card_eeprom_open(eeprom, pci, options->card.address_bytes, via_cli_card_pause_us, err);
    if (rc != 0) {
        pci->ops->close(pci);
        via_error_prefix(err, "%s: ", options->card.device);
    }
    return rc;
}

static void close_device(struct via_card_eeprom *eeprom)
{
    eeprom->pci->ops->close(eeprom->pci);
}

static int fail(const struct device_options *options, struct via_error *err)
{
    via_error_prefix(err, "%s: ", options->card.device);
    return via_cli_fail(options->card.name, err);
}

/* Reads the whole EEPROM. The caller frees *ret_bytes. */
static int read_all(const struct device_options *options, struct via_card_eeprom *eeprom,
                    uint8_t **ret_bytes, struct via_error *err)
{
    uint8_t *bytes = malloc(options->card.size);
    int rc = bytes == NULL ? via_error_set(err, -ENOMEM, "EEPROM: read: %s", strerror(ENOMEM))
                           : via_card_eeprom_read(eeprom, 0, bytes, options->card.size, err);
    if (rc != 0) {
        free(bytes);
        return rc;
    }
    *ret_bytes = bytes;
    return 0;
}

/* The length without the blank end, which is not written to a file. */
static size_t without_padding(const uint8_t *bytes, size_t count)
{
    size_t least = 8;
    while (count > least && bytes[count - 1] == 0xff) {
        count--;
    }
    return count;
}

/* --- read and verify --- */

static int run_read(struct device_options *options, char **words)
{
    struct via_card_eeprom eeprom;
    struct via_error err = {0};
    uint8_t *bytes;
    (void)words;
    if (options->output == NULL) {
        return via_cli_usage(options->card.name, "--output is missing");
    }
    if (open_device(options, &eeprom, &err) != 0) {
        return via_cli_fail(options->card.name, &err);
    }
    int rc = read_all(options, &eeprom, &bytes, &err);
    if (rc == 0) {
        size_t count = without_padding(bytes, options->card.size);
        rc = via_cli_card_write(options->output, bytes, count, &err);
        if (rc == 0 && strcmp(options->output, "-") != 0) {
            printf("PEX %04x: %zu bytes; at power-on the chip found %s\n", eeprom.chip, count,
                   eeprom.is_valid        ? "a valid image"
                   : eeprom.had_crc_error ? "a wrong CRC"
                                          : "no valid image");
        }
        free(bytes);
    }
    close_device(&eeprom);
    return rc == 0 ? VIA_CLI_OK : fail(options, &err);
}

/* The bytes of an image, or of its text. The caller frees them. */
static int load_bytes(const char *path, struct via_cli_card_file **ret_file, uint8_t **ret_bytes,
                      size_t *ret_count, struct via_error *err)
{
    int rc = via_cli_card_load(path, ret_file, err);
    if (rc != 0) {
        return rc;
    }
    *ret_bytes = malloc(VIA_CARD_IMAGE_BYTES_MAX);
    rc = *ret_bytes == NULL ? -ENOMEM
                            : via_card_image_write(&(*ret_file)->image, *ret_bytes, ret_count);
    if (rc != 0) {
        free(*ret_bytes);
        free(*ret_file);
        return via_error_set(err, rc, "%s: %s", path, strerror(-rc));
    }
    return 0;
}

static int run_verify(struct device_options *options, char **words)
{
    struct via_card_eeprom eeprom;
    struct via_cli_card_file *file;
    struct via_error err = {0};
    uint8_t *bytes;
    size_t count;
    int64_t differs = -1;
    if (load_bytes(words[0], &file, &bytes, &count, &err) != 0) {
        return via_cli_fail(options->card.name, &err);
    }
    int code = VIA_CLI_OK;
    if (open_device(options, &eeprom, &err) != 0) {
        code = via_cli_fail(options->card.name, &err);
    } else {
        int rc = via_card_eeprom_verify(&eeprom, bytes, count, &differs, &err);
        close_device(&eeprom);
        if (rc != 0) {
            code = fail(options, &err);
        } else if (differs >= 0) {
            printf("%s: the EEPROM differs from %s, last in the dword at byte %lld\n",
                   options->card.device, words[0], (long long)differs);
            code = VIA_CLI_FAILED;
        } else {
            printf("%s: the EEPROM has %s, %zu bytes\n", options->card.device, words[0], count);
        }
    }
    free(bytes);
    free(file);
    return code;
}

/* --- flash --- */

/* Checks that the image is for this chip and has no errors. */
static int check_image(const struct device_options *options, const struct via_cli_card_file *file,
                       const struct via_card_eeprom *eeprom, size_t count, struct via_error *err)
{
    struct via_card_mark mark = via_card_mark_find(file->image.tail, file->image.tail_bytes);
    const struct via_card *card = mark.card != NULL ? mark.card : options->card.card;
    if (card == NULL) {
        return via_error_set(err, -EINVAL, "%s: it names no card: --card is missing", file->path);
    }
    if (card->chip != eeprom->chip) {
        return via_error_set(err, -EINVAL, "%s: it is for %s, a PEX %04x, and this is a PEX %04x",
                             file->path, card->name, card->chip, eeprom->chip);
    }
    if (count > options->card.size) {
        return via_error_set(err, -EFBIG, "%s: %zu bytes, and the EEPROM has %u (--size)",
                             file->path, count, options->card.size);
    }
    const struct via_card_lint_options lint = {.card = options->card.card, .dip = -1};
    unsigned errors = via_cli_card_print_lint(file, &lint);
    return errors == 0 ? 0
                       : via_error_set(err, -EINVAL, "%s: %u error%s: nothing was written",
                                       file->path, errors, errors == 1 ? "" : "s");
}

/* Writes the name of the file to the disk, too, because power may fail while the card is
 * written. */
static int sync_folder(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t length = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    if (length >= sizeof(folder)) {
        return -ENAMETOOLONG;
    }
    memcpy(folder, length != 0 ? path : "./", length != 0 ? length : 3);
    folder[length != 0 ? length : 2] = '\0';
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 || fsync(fd) != 0 ? -errno : 0;
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

static int write_all(int fd, const uint8_t *bytes, size_t count)
{
    for (size_t at = 0; at < count;) {
        ssize_t done = write(fd, bytes + at, count - at);
        if (done < 0 && errno != EINTR) {
            return -errno;
        }
        at += done > 0 ? (size_t)done : 0;
    }
    return fsync(fd) == 0 ? 0 : -errno;
}

/* Saves the whole EEPROM in a new file, and in *ret_bytes, which the caller frees. Never overwrites
 * an existing file, which may be the only copy of an older image. */
static int keep_backup(const struct device_options *options, struct via_card_eeprom *eeprom,
                       uint8_t **ret_bytes, struct via_error *err)
{
    int rc = read_all(options, eeprom, ret_bytes, err);
    if (rc != 0) {
        return rc;
    }
    int fd = open(options->backup, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    rc = fd < 0 ? -errno : write_all(fd, *ret_bytes, options->card.size);
    if (fd >= 0) {
        close(fd);
        rc = rc == 0 ? sync_folder(options->backup) : rc;
        if (rc != 0) {
            unlink(options->backup); /* an incomplete backup is useless */
        }
    }
    if (rc != 0) {
        free(*ret_bytes);
        return via_error_set(err, rc, "%s: backup: %s; nothing was written to the card",
                             options->backup, strerror(-rc));
    }
    return 0;
}

static bool is_agreed(const struct device_options *options, const struct via_card_eeprom *eeprom,
                      const char *path)
{
    char answer[16] = "";
    if (options->yes) {
        return true;
    }
    printf("Write %s into the EEPROM of the PEX %04x at %s? It was %s. [yes/NO] ", path,
           eeprom->chip, options->card.device, eeprom->is_valid ? "valid" : "not valid");
    fflush(stdout);
    return fgets(answer, sizeof(answer), stdin) != NULL && strcmp(answer, "yes\n") == 0;
}

/* Holds back signals that end a process: between the first write and the last one the card has no
 * image. */
static void hold_signals(sigset_t *ret_before)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP};
    sigset_t held;
    sigemptyset(&held);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(numbers); i++) {
        sigaddset(&held, numbers[i]);
    }
    sigprocmask(SIG_BLOCK, &held, ret_before);
}

/* Tries to restore the old image after a failure. Returns a text about the present content of the
 * card. */
static const char *put_back(const struct device_options *options, struct via_card_eeprom *eeprom,
                            const uint8_t *old, int rc)
{
    struct via_error ignored = {0};
    if (rc == -EACCES) {
        return "nothing was written";
    }
    if (!eeprom->is_valid || old[0] != VIA_CARD_IMAGE_SIGNATURE) {
        return "it had no image before, and has none now";
    }
    return via_card_eeprom_flash(eeprom, old, options->card.size, &ignored) == 0
               ? "the old image is back"
               : "the old image can not be put back: do not switch the machine off, and try again";
}

static int write_image(const struct device_options *options, struct via_card_eeprom *eeprom,
                       const uint8_t *bytes, size_t count)
{
    struct via_error err = {0};
    uint8_t *old;
    sigset_t before;
    hold_signals(&before);
    if (keep_backup(options, eeprom, &old, &err) != 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        return via_cli_fail(options->card.name, &err);
    }
    int rc = via_card_eeprom_flash(eeprom, bytes, count, &err);
    const char *state = rc != 0 ? put_back(options, eeprom, old, rc) : NULL;
    free(old);
    if (rc != 0) {
        char cause[VIA_ERROR_TEXT_BYTES];
        snprintf(cause, sizeof(cause), "%s", via_error_describe(&err));
        via_error_set(&err, rc, "%.400s; %s", cause, state);
        rc = fail(options, &err);
    } else {
        printf("%s: written and read back, %zu bytes; the old content is in %s. The chip takes it "
               "at the next power-on.\n",
               options->card.device, count, options->backup);
        fflush(stdout);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static int flash_device(const struct device_options *options, struct via_card_eeprom *eeprom,
                        const struct via_cli_card_file *file, const uint8_t *bytes, size_t count)
{
    struct via_error err = {0};
    if (check_image(options, file, eeprom, count, &err) != 0) {
        return via_cli_fail(options->card.name, &err);
    }
    if (!is_agreed(options, eeprom, file->path)) {
        fprintf(stderr, "%s: not confirmed: nothing was written\n", options->card.name);
        return VIA_CLI_FAILED;
    }
    return write_image(options, eeprom, bytes, count);
}

static int run_flash(struct device_options *options, char **words)
{
    struct via_card_eeprom eeprom;
    struct via_cli_card_file *file;
    struct via_error err = {0};
    uint8_t *bytes;
    size_t count;
    if (options->backup == NULL) {
        return via_cli_usage(options->card.name, "--backup is missing");
    }
    if (load_bytes(words[0], &file, &bytes, &count, &err) != 0) {
        return via_cli_fail(options->card.name, &err);
    }
    int code;
    if (open_device(options, &eeprom, &err) != 0) {
        code = via_cli_fail(options->card.name, &err);
    } else {
        code = flash_device(options, &eeprom, file, bytes, count);
        close_device(&eeprom);
    }
    free(bytes);
    free(file);
    return code;
}

/* --- the command --- */

static const struct {
    const char *name;
    int files_count;
    int (*run)(struct device_options *options, char **words);
} verbs[] = {{"read", 0, run_read}, {"verify", 1, run_verify}, {"flash", 1, run_flash}};

int via_cli_card_eeprom(int argc, char **argv)
{
    struct device_options options = {.card = {.name = argv[0], .size = SIZE_DEFAULT}};
    for (int c; (c = getopt_long(argc, argv, "ho:", long_options, NULL)) != -1;) {
        int code = take_option(c, &options);
        if (code >= 0) {
            return code;
        }
    }
    if (optind == argc) {
        return via_cli_usage(argv[0], "read, verify or flash?");
    }
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(verbs); i++) {
        if (strcmp(verbs[i].name, argv[optind]) != 0) {
            continue;
        }
        if (argc - optind - 1 != verbs[i].files_count) {
            return via_cli_usage(argv[0], "%s: %d files given, %d wanted", verbs[i].name,
                                 argc - optind - 1, verbs[i].files_count);
        }
        if (options.card.device == NULL) {
            return via_cli_usage(argv[0], "--device is missing");
        }
        return verbs[i].run(&options, argv + optind + 1);
    }
    return via_cli_usage(argv[0], "'%s': unknown verb", argv[optind]);
}
