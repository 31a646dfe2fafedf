/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A call is interrupted at one of its instructions by a signal. The processor traps after each
 * instruction of the call, and the handler of the trap counts them. */
#ifndef VIA_TESTS_SOCKETS_STEPS_H
#define VIA_TESTS_SOCKETS_STEPS_H

#include <stdbool.h>

#if defined(__x86_64__)
#define STEPS_WORK 1 /* only with a trap flag */
#endif

/* The handler that interrupts the call. */
void steps_install(void (*handler)(int));
/* Makes the call; instruction: after which the signal is raised, counted from 1; 0: no signal. A
 * library may defer the handler. */
bool steps_call(bool (*call)(int fd), int fd, int instruction);
/* Instructions of the last call until the signal, or until the call's end. */
int steps_made(void);
/* VIADUCT_CHECKS_STRIDE, or usual: how many instructions lie between two signals. */
int steps_stride(int usual);

#endif
