/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_BASE_PAUSE_H
#define VIA_BASE_PAUSE_H

/*
 * For the body of a loop that polls memory. It signals to the CPU that the thread spins, so that
 * the sibling hyperthread gets its share, and the exit of the loop causes no memory-order violation
 * (Intel SDM, PAUSE; Arm ARM, YIELD). It takes from a few to 140 cycles on x86, and does nothing on
 * CPUs other than x86 and Arm.
 */
static inline void via_cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
