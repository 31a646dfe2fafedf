/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_BARRIER_H
#define VIA_SHMEM_BARRIER_H

/*
 * The barrier of all PEs. Within a host through its node block: every PE writes its own line and
 * reads the others'. Among hosts the leaders (the first PE of each) disseminate: log2(hosts) rounds
 * of one word each, put like any other data, so it works over every path and while links are cut
 * and mended.
 *
 * Everything a PE stored before is seen by all afterwards. Puts by frames are not waited for: that
 * is via_quiet's work.
 */
void via_barrier_world(void);

#endif
