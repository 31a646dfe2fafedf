/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_GATE_H
#define VIA_SHMEM_GATE_H

/*
 * The barrier of all PEs for set-up and for a heap that grows. What a PE has published in the job
 * block before is in the blocks of all machines after it. Ends the program when the launcher does
 * not help.
 */
void via_gate_pass(void);

#endif
