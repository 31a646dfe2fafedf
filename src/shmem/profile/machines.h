/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_PROFILE_MACHINES_H
#define VIA_SHMEM_PROFILE_MACHINES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/*
 * A timeline of PEs on several machines: one clock, that of PE 0, and one file, on its machine. By
 * calls of OpenSHMEM only.
 *
 * A PE on another machine measures by round trips how far its clock is from PE 0's, at the
 * beginning and at the end, and takes the line between the two. The error is at most half of the
 * shortest round trip.
 */

/* Collective, after the first init. False: the symmetric heap has no room; each machine then keeps
 * its own clock and file. */
bool via_profile_machines_begin(int me, int pes);
/* Collective, when the job ends: measures once more. */
void via_profile_machines_measure(void);
/* Collective, the last one: gives the memory back. */
void via_profile_machines_end(void);

/* Does the PE share the machine, and so clock and files, with PE 0? */
bool via_profile_machines_has(int pe);
/* Microseconds since the job began, by PE 0's clock, of a time of this PE's CLOCK_MONOTONIC. */
double via_profile_machines_us(uint64_t monotonic_ns);

/* From a PE on another machine to PE 0, which calls receive for one after the other. */
void via_profile_machines_send(const char *text, size_t bytes);
void via_profile_machines_receive(int pe, FILE *out);

#endif
