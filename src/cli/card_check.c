/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct card check: a system of hosts, boxes, cards and cables, before power-on. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card/system.h"
#include "cli/card.h"
#include "cli/cli.h"

static const char help[] =
    "usage: viaduct card check FILE [--svg FILE]\n"
    "\n"
    "Checks a system of hosts, expansion boxes, cards and cables before power-on. Prints errors, "
    "the\n"
    "order in which to switch the machines on, and the expected output of lspci. viaduct-card(1)\n"
    "describes the FILE; '-' is standard input. Exit status 1 if there is an error.\n"
    "\n"
    "  --svg FILE       draws it\n"
    "  -h, --help       this text\n";

static const struct option long_options[] = {
    {"svg", required_argument, NULL, 's'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static void print_finding(void *ctx, enum via_card_severity severity, unsigned line,
                          const char *text)
{
    printf("%s:%u: %s: %s\n", (const char *)ctx, line, via_card_severity_name(severity), text);
}

static int load(const char *path, struct via_card_system *ret_system, struct via_error *err)
{
    unsigned char *bytes;
    size_t count;
    int rc = via_cli_card_read(path, VIA_CARD_SYSTEM_BYTES_MAX, &bytes, &count, err);
    if (rc == 0) {
        rc = via_card_system_parse(path, (const char *)bytes, count, ret_system, err);
        free(bytes);
    }
    return rc;
}

static int draw(const char *path, const struct via_card_system *system, struct via_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) {
        return via_error_set(err, -errno, "%s: draw: %s", path, strerror(errno));
    }
    via_card_system_draw(system, out);
    int rc = fclose(out) == 0 ? via_cli_card_write(path, text, bytes, err)
                              : via_error_set(err, -errno, "%s: draw: %s", path, strerror(errno));
    free(text);
    return rc;
}

static int check(const char *name, char *path, const char *svg)
{
    static struct via_card_system system;
    struct via_error err = {0};
    if (load(path, &system, &err) != 0 || (svg != NULL && draw(svg, &system, &err) != 0)) {
        return via_cli_fail(name, &err);
    }
    unsigned errors = via_card_system_check(&system, print_finding, path);
    printf("%s: %u cards, %u cables, %u error%s\n", path, system.cards_count, system.cables_count,
           errors, errors == 1 ? "" : "s");
    if (errors != 0) {
        return VIA_CLI_FAILED;
    }
    via_card_system_print_order(&system, stdout);
    via_card_system_print_tree(&system, stdout);
    return VIA_CLI_OK;
}

int via_cli_card_check(int argc, char **argv)
{
    const char *svg = NULL;
    for (int c; (c = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        switch (c) {
        case 's':
            svg = optarg;
            break;
        default:
            return via_cli_take_help(argv[0], c, help);
        }
    }
    if (optind + 1 != argc) {
        return via_cli_usage(argv[0], "%d files given, 1 wanted", argc - optind);
    }
    return check(argv[0], argv[optind], svg);
}
