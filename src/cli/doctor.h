/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_DOCTOR_H
#define VIA_CLI_DOCTOR_H

#include "base/types.h"

enum via_doctor_level {
    VIA_DOCTOR_OK,
    VIA_DOCTOR_WARN, /* Viaduct runs, but slower or with fewer functions */
    VIA_DOCTOR_FAIL, /* Viaduct can not run */
};

struct via_doctor_finding {
    enum via_doctor_level level;
    char text[600]; /* what was found */
    char mend[300]; /* how to improve it; "": nothing to improve */
};

/* One check. Its finding is empty and OK before the call. */
struct via_doctor_check {
    const char *object;
    void (*check)(struct via_doctor_finding *finding);
};

/* Checks of the machine (doctor_machine.c), and of the installation (doctor.c). */
extern const struct via_doctor_check via_doctor_machine_checks[];
extern const size_t via_doctor_machine_checks_count;

/* Checks of the hosts of this machine's fabric (doctor_fabric.c). */
extern const struct via_doctor_check via_doctor_fabric_checks[];
extern const size_t via_doctor_fabric_checks_count;

void via_doctor_report(struct via_doctor_finding *finding, enum via_doctor_level level,
                       const char *format, ...) VIA_PRINTF(3, 4);
void via_doctor_mend(struct via_doctor_finding *finding, const char *format, ...) VIA_PRINTF(2, 3);

#endif
