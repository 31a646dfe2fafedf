/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Checks, by sysfs, of a PCI function that a fabric is to use. */
#ifndef VIA_CLI_HARDWARE_H
#define VIA_CLI_HARDWARE_H

#include "cli/doctor.h"
#include "vfio/found.h"

/* The finding is empty and OK before the call, and stays so if nothing is wrong. */
typedef void via_hardware_check(const struct via_found *found, struct via_doctor_finding *finding);

extern via_hardware_check *const via_hardware_checks[];
extern const unsigned via_hardware_checks_count;

#endif
