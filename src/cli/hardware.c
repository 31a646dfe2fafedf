/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "cli/hardware.h"

#include <string.h>

/* The registers of a PEX 87xx (FreeBSD: ntb_hw_plx.c maps them by BAR 0). */
#define PEX_REGISTERS_BYTES 0x40000u
/* Room for a page, and for pipes of the default size of a few threads. */
#define WINDOW_BYTES_MIN (UINT64_C(1) << 20)
#define WINDOW_BYTES_GOOD (UINT64_C(4) << 20)

static bool is_pex(const struct via_found *found)
{
    return found->chip->link != NULL && strcmp(found->chip->link, "pex") == 0;
}

static void check_iommu(const struct via_found *found, struct via_doctor_finding *finding)
{
    if (found->group[0] == '\0') {
        via_doctor_report(
            finding, VIA_DOCTOR_WARN,
            "it is in no IOMMU group: the machine has no IOMMU, or it is off. Without "
            "one the peer would reach all memory, and Viaduct does not open it");
        via_doctor_mend(finding, "switch VT-d or AMD-Vi on in the firmware's set-up, and boot with "
                                 "intel_iommu=on or amd_iommu=on");
    }
}

static void check_group(const struct via_found *found, struct via_doctor_finding *finding)
{
    char list[VIA_FOUND_NEIGHBOURS_MAX * 18] = "";
    for (unsigned i = 0; i < found->neighbours_count; i++) {
        strcat(list, i == 0 ? "" : ", ");
        strcat(list, found->neighbours[i]);
    }
    if (found->neighbours_count != 0) {
        via_doctor_report(
            finding, VIA_DOCTOR_WARN,
            "IOMMU group %s is shared with %s, which drivers of the kernel have: VFIO "
            "does not give the group out",
            found->group, list);
        via_doctor_mend(finding, "put the card into a slot with a root port of its own, or switch "
                                 "ACS on in the firmware's set-up; else unbind those drivers");
    }
}

static void check_assigned(const struct via_found *found, struct via_doctor_finding *finding)
{
    for (unsigned i = 0; i < VIA_FOUND_BARS; i++) {
        if (found->bars[i].is_unassigned) {
            via_doctor_report(finding, VIA_DOCTOR_WARN,
                              "BAR %u of %llu MiB has no address: the firmware found no room", i,
                              (unsigned long long)(found->bars[i].bytes >> 20));
            via_doctor_mend(finding, "switch 'above 4G decoding' on in the firmware's set-up; else "
                                     "boot with pci=realloc, or make the BAR smaller by EEPROM");
            return;
        }
    }
}

static void check_bars(const struct via_found *found, struct via_doctor_finding *finding)
{
    uint64_t window = found->bars[found->chip->window_bar].bytes;
    if (found->chip->window_bar == 0) {
        return;
    }
    if (is_pex(found) && found->bars[0].bytes < PEX_REGISTERS_BYTES) {
        via_doctor_report(finding, VIA_DOCTOR_WARN,
                          "BAR 0 has %llu bytes: the chip's registers take %u",
                          (unsigned long long)found->bars[0].bytes, PEX_REGISTERS_BYTES);
        via_doctor_mend(finding, "the card's EEPROM must enable BAR 0: viaduct card check");
    } else if (window < WINDOW_BYTES_GOOD) {
        via_doctor_report(finding, VIA_DOCTOR_WARN, "BAR %u has %llu KiB: %s",
                          found->chip->window_bar, (unsigned long long)(window >> 10),
                          window == 0 ? "there is no window to the peer"
                          : window < WINDOW_BYTES_MIN
                              ? "the pipes of a link need more"
                              : "there is no room for windows of processes");
        via_doctor_mend(finding, "give it 4 MiB or more, by EEPROM (viaduct card image) or by the "
                                 "size of ivshmem's memory");
    }
}

static void check_speed(const struct via_found *found, struct via_doctor_finding *finding)
{
    bool slow = found->generation != 0 && found->generation < found->generation_max;
    bool narrow = found->width != 0 && found->width < found->width_max;
    if (slow || narrow) {
        via_doctor_report(finding, VIA_DOCTOR_WARN,
                          "the link trained to Gen%u x%u, the function is able to do Gen%u x%u",
                          found->generation, found->width, found->generation_max, found->width_max);
        via_doctor_mend(finding, "reseat card and cable, look for a slot or cable with fewer "
                                 "lanes, and for a limit in the firmware's set-up");
    }
}

static void check_msi(const struct via_found *found, struct via_doctor_finding *finding)
{
    if (found->chip->link == NULL) {
        return;
    }
    if (found->bus_refuses_msi || (!found->has_msi && !found->has_msix)) {
        via_doctor_report(finding, VIA_DOCTOR_WARN, "%s: doorbells come by INTx, or by polling",
                          found->bus_refuses_msi ? "a bridge above it blocks MSIs"
                                                 : "the function has neither MSI nor MSI-X");
        via_doctor_mend(finding, "boot without pci=nomsi; run this as root, if the function's "
                                 "config space could not be read");
    }
}

static void check_combining(const struct via_found *found, struct via_doctor_finding *finding)
{
    const struct via_found_bar *bar = &found->bars[found->chip->window_bar];
    if (found->chip->window_bar != 0 && bar->bytes != 0 && !bar->has_write_combining) {
        via_doctor_report(finding, VIA_DOCTOR_WARN,
                          "BAR %u cannot be mapped write-combined (%s): each store of 8 bytes is a "
                          "packet of its own",
                          found->chip->window_bar,
                          bar->is_prefetchable ? "the kernel does not offer it"
                                               : "not prefetchable");
        via_doctor_mend(finding, "%s",
                        bar->is_prefetchable ? "boot without nopat; the processor must have PAT"
                                             : "make the BAR prefetchable, by EEPROM");
    }
}

static void check_driver(const struct via_found *found, struct via_doctor_finding *finding)
{
    if (found->chip->link == NULL || strcmp(found->driver, "vfio-pci") == 0) {
        return;
    }
    if (found->driver[0] != '\0') {
        via_doctor_report(finding, VIA_DOCTOR_WARN, "the driver %s has it", found->driver);
        via_doctor_mend(finding, "viaduct port bind %s", found->address);
    } else if (is_pex(found)) {
        via_doctor_report(finding, VIA_DOCTOR_WARN, "no driver has it");
        via_doctor_mend(finding, "viaduct port bind %s", found->address);
    }
}

via_hardware_check *const via_hardware_checks[] = {
    check_iommu, check_group, check_assigned,  check_bars,
    check_speed, check_msi,   check_combining, check_driver,
};
const unsigned via_hardware_checks_count = VIA_ARRAY_COUNT(via_hardware_checks);
