/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_BASE_PAUSE_H
#define VIA_BASE_PAUSE_H

/*
 * For the body of a loop that polls memory: tells the CPU that it spins, so that the sibling
 * hyperthread gets its share, and that the loop's exit is no memory-order violation (Intel SDM,
 * PAUSE; Arm ARM, YIELD). A few to 140 cycles on x86; nothing on other machines.
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
