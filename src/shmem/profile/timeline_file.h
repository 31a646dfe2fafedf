/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_PROFILE_TIMELINE_FILE_H
#define VIA_SHMEM_PROFILE_TIMELINE_FILE_H

#include <stdbool.h>
#include <stdio.h>

/*
 * The file of a timeline, to which the PEs of a machine append events one after another. A PE may
 * be killed at any time, so it appends to PATH.part, which is then renamed to PATH: PATH is a
 * complete array or absent.
 */

/* At the begin of a job: removes the files of an earlier job. */
void via_profile_timeline_reset(const char *path);
/* Locks PATH.part, with the events that PATH has, for events of this PE. NULL with errno. If
 * `shared`, other PEs have added theirs to PATH.part, or will. */
FILE *via_profile_timeline_open(const char *path, bool shared);
/* Ends the array and unlocks; unless `shared`, renames PATH.part to PATH. False with errno. */
bool via_profile_timeline_close(FILE *out, const char *path, bool shared);
/* Renames the shared PATH.part, after all PEs have added their events. Any number of PEs may call
 * this. False with errno. */
bool via_profile_timeline_finish(const char *path);

#endif
