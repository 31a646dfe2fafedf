/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_GATE_H
#define VIA_SHMEM_GATE_H

/*
 * The barrier of all PEs for set-up and for growing the heap. Data that a PE publishes in the job
 * block before the gate is in the job blocks of all machines after the gate. Ends the program if
 * the launcher does not respond.
 */
void via_gate_pass(void);

#endif
