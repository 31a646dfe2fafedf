/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_PROFILE_MACHINES_H
#define VIA_SHMEM_PROFILE_MACHINES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/*
 * The timeline of PEs on several machines uses the clock of PE 0, and a file on PE 0's machine. It
 * uses only calls of OpenSHMEM.
 *
 * A PE on another machine measures the offset of its clock from PE 0's by round trips, at the
 * beginning and at the end, and interpolates linearly. The error is at most half of the shortest
 * round trip.
 */

/* Collective, after the first init. False: the symmetric heap has no room; each machine then keeps
 * its own clock and file. */
bool via_profile_machines_begin(int me, int pes);
/* Collective, when the job ends: measures once more. */
void via_profile_machines_measure(void);
/* Collective, the last call: frees the memory. */
void via_profile_machines_end(void);

/* True if the PE shares the machine, and so clock and files, with PE 0. */
bool via_profile_machines_has(int pe);
/* Converts a time of this PE's CLOCK_MONOTONIC to microseconds since the begin of the job, by PE
 * 0's clock. */
double via_profile_machines_us(uint64_t monotonic_ns);

/* A PE on another machine sends a text to PE 0, which calls receive for one PE after another. */
void via_profile_machines_send(const char *text, size_t bytes);
void via_profile_machines_receive(int pe, FILE *out);

#endif
