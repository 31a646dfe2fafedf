/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_INFO_H
#define VIA_SHMEM_INFO_H

/* At PE 0: prints the output for SHMEM_VERSION and SHMEM_INFO on standard error. */
void via_info_at_start(void);

/* With VIADUCT_SHMEM_STATS=FILE: appends a line of JSON for this PE. */
void via_info_at_end(void);

#endif
