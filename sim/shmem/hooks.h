/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The library, compiled for the simulator, calls the machine by these names. */
#ifndef SIM_SHMEM_HOOKS_H
#define SIM_SHMEM_HOOKS_H

#include <pthread.h>
#include <stddef.h>
#include <time.h>

int sim_pe_sched_yield(void);
int sim_pe_nanosleep(const struct timespec *request, struct timespec *left);
int sim_pe_clock_gettime(clockid_t clock, struct timespec *ret_now);
long sim_pe_syscall(long number, ...);
void *sim_pe_malloc(size_t bytes);
void *sim_pe_calloc(size_t count, size_t bytes);
void *sim_pe_realloc(void *memory, size_t bytes);
void sim_pe_free(void *memory);
int sim_pe_pthread_mutex_lock(pthread_mutex_t *mutex);
int sim_pe_pthread_mutex_trylock(pthread_mutex_t *mutex);
int sim_pe_pthread_mutex_unlock(pthread_mutex_t *mutex);

#endif
