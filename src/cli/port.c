/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct port: PCI functions of this machine that links can use, and the drivers that have
 * them. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/hardware.h"
#include "vfio/found.h"

static const char help[] =
    "usage: viaduct port list|show [ADDRESS] [--root DIR]\n"
    "       viaduct port bind|unbind ADDRESS [--root DIR]\n"
    "\n"
    "PCI functions of this machine with a chip that links can use: NT ports of a PEX 87xx,\n"
    "ivshmem; other NTBs are shown, and Viaduct has no driver for them. The driver of PEX 87xx\n"
    "is verified against a register model built from public sources, and was never tried on a\n"
    "chip.\n"
    "\n"
    "  list             a line for each: chip, IOMMU group, link, driver, processes that have it "
    "open\n"
    "  show [ADDRESS]   all that is known of one, or of each, and what is wrong\n"
    "  bind ADDRESS     take it from its driver, and give it to vfio-pci\n"
    "  unbind ADDRESS   take it from vfio-pci; a driver of the kernel's may take it\n"
    "  --root DIR       use DIR/sys and DIR/proc, not /sys and /proc\n"
    "  -h, --help       this text\n";

static const struct option long_options[] = {
    {"root", required_argument, NULL, 'r'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

struct text {
    char text[64];
};

static const char *or_dash(const char *text)
{
    return text[0] != '\0' ? text : "-";
}

static struct text link_text(const struct via_found *found)
{
    struct text text = {"-"};
    if (found->generation != 0 && found->width != 0) {
        snprintf(text.text, sizeof(text.text), "Gen%u x%u", found->generation, found->width);
    }
    return text;
}

static struct text holder_text(const struct via_found *found)
{
    struct text text = {"-"};
    if (found->holder != 0) {
        snprintf(text.text, sizeof(text.text), "%d (%s)", (int)found->holder, found->holder_name);
    }
    return text;
}

static struct text size_text(uint64_t bytes)
{
    struct text text;
    bool large = bytes >= UINT64_C(1) << 20;
    snprintf(text.text, sizeof(text.text), "%llu %s",
             (unsigned long long)(bytes >> (large ? 20 : 10)), large ? "MiB" : "KiB");
    return text;
}

static void print_line(const struct via_found *found)
{
    printf("%-13s %-28s %-6s %-9s %-10s %-9s %s\n", found->address, found->chip->name,
           or_dash(found->group), size_text(found->bars[found->chip->window_bar].bytes).text,
           link_text(found).text, or_dash(found->driver), holder_text(found).text);
}

static void print_all(const struct via_found *found)
{
    printf("%s\n", found->address);
    printf("  chip       %s (%04x:%04x), revision %02X\n", found->chip->name, found->chip->vendor,
           found->chip->device, found->revision);
    printf("  links      %s\n",
           found->chip->link != NULL ? found->chip->link : "no driver of ours");
    printf("  IOMMU      %s%s\n", found->group[0] != '\0' ? "group " : "none", found->group);
    for (unsigned i = 0; i < VIA_FOUND_BARS; i++) {
        const struct via_found_bar *bar = &found->bars[i];
        if (bar->bytes != 0) {
            printf("  BAR %u      %s%s%s%s\n", i, size_text(bar->bytes).text,
                   bar->is_prefetchable ? ", prefetchable" : "",
                   bar->has_write_combining ? ", write-combined" : "",
                   bar->is_unassigned ? ", no address" : "");
        }
    }
    printf("  interrupt  %s%s%s\n", found->has_msi ? "MSI " : "", found->has_msix ? "MSI-X " : "",
           !found->has_msi && !found->has_msix ? "INTx or none" : "");
    printf("  link       %s", link_text(found).text);
    if (found->generation_max != 0) {
        printf(" of Gen%u x%u", found->generation_max, found->width_max);
    }
    printf("\n  driver     %s\n", or_dash(found->driver));
    printf("  open by    %s\n", holder_text(found).text);
    for (unsigned i = 0; i < via_hardware_checks_count; i++) {
        struct via_doctor_finding finding = {0};
        via_hardware_checks[i](found, &finding);
        if (finding.level != VIA_DOCTOR_OK) {
            printf("  wrong      %s\n  mend       %s\n", finding.text, finding.mend);
        }
    }
}

static int show(const char *name, const struct via_found_paths *paths, const char *address,
                bool whole)
{
    static struct via_found found[VIA_FOUND_MAX];
    struct via_error err = {0};
    int count = address != NULL ? via_found_get(paths, address, found, &err) == 0 ? 1 : -1
                                : via_found_scan(paths, found, &err);
    if (count < 0) {
        return via_cli_fail(name, &err);
    }
    if (count == 0) {
        printf("no NTB function of a known chip\n");
    } else if (!whole) {
        printf("%-13s %-28s %-6s %-9s %-10s %-9s %s\n", "address", "chip", "group", "window",
               "link", "driver", "open by");
    }
    for (int i = 0; i < count; i++) {
        (whole ? print_all : print_line)(&found[i]);
    }
    return VIA_CLI_OK;
}

static int change(const char *name, const struct via_found_paths *paths, const char *address,
                  bool binds)
{
    static struct via_found found;
    struct via_error err = {0};
    sigset_t all, before;
    sigfillset(&all); /* after an interrupted change the function would have no driver */
    sigprocmask(SIG_SETMASK, &all, &before);
    int rc = (binds ? via_found_bind : via_found_unbind)(paths, address, &err);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) {
        rc = via_found_get(paths, address, &found, &err);
    }
    if (rc != 0) {
        return via_cli_fail(name, &err);
    }
    printf("%s: %s%s has it\n", address, found.driver[0] != '\0' ? "the driver " : "no driver",
           found.driver);
    return VIA_CLI_OK;
}

int via_cli_port(int argc, char **argv)
{
    struct via_found_paths paths = {.root = ""};
    for (int c; (c = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        switch (c) {
        case 'r':
            paths.root = optarg;
            break;
        default:
            return via_cli_take_help(argv[0], c, help);
        }
    }
    const char *verb = optind < argc ? argv[optind] : "";
    const char *address = optind + 1 < argc ? argv[optind + 1] : NULL;
    if (optind + 2 < argc) {
        return via_cli_usage(argv[0], "'%s': one argument too many", argv[optind + 2]);
    }
    if (strcmp(verb, "list") == 0 || strcmp(verb, "show") == 0) {
        return show(argv[0], &paths, address, verb[0] == 's');
    }
    if (strcmp(verb, "bind") != 0 && strcmp(verb, "unbind") != 0) {
        return via_cli_usage(argv[0], "'%s': not list, show, bind or unbind", verb);
    }
    return address != NULL ? change(argv[0], &paths, address, verb[0] == 'b')
                           : via_cli_usage(argv[0], "%s: which address?", verb);
}
