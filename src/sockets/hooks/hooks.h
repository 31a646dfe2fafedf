/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_HOOKS_H
#define VIA_SOCKETS_HOOKS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/types.h"

/* Shared by the files of hooks. */

extern bool via_hooks_ready;
void via_hooks_init_slowly(void);

/* Before the first connection is made; other calls find nothing in the table and pass through. */
static inline void via_hooks_init(void)
{
    if (via_unlikely(!via_hooks_ready)) {
        via_hooks_init_slowly();
    }
}

/*
 * Does this process share our memory but not our descriptors, as a child of vfork() does? Changes
 * of its descriptors do not concern our table. Costs a system call; asked only about descriptors of
 * ours.
 */
extern pid_t via_hooks_pid;

static inline bool via_hooks_is_guest(void)
{
    return syscall(SYS_getpid) != via_hooks_pid;
}

/* The upper half of the address space belongs to the kernel, which refuses it before anything
 * else. */
static inline bool via_hooks_is_kernel_address(const void *address)
{
#ifdef __x86_64__
    return (intptr_t)address < 0;
#else
    return address == (const void *)-1;
#endif
}

/*
 * Can there be no memory of the program? NULL, and numbers that are no addresses. The kernel
 * returns EFAULT for these, and for unmapped memory: see memory.h.
 */
static inline bool via_hooks_is_no_address(const void *address)
{
#ifdef __x86_64__
    return (intptr_t)address < 4096;
#else
    return (uintptr_t)address < 4096;
#endif
}

/* From a negative errno to what the C library's calls return. errno is left alone on success. */
static inline ssize_t via_hooks_result(ssize_t rc)
{
    if (via_unlikely(rc < 0)) {
        errno = (int)-rc;
        return -1;
    }
    return rc;
}

/* Ends the call; like via_hooks_result(). Success must not change errno: some programs read it
 * anyway. */
struct via_op;
ssize_t via_hooks_finish(struct via_op *op, ssize_t rc, int saved_errno);

/* fd is closed, or has been, without a call of close(). */
void via_hooks_forget(int fd);

/* The effect of syscall() with SYS_close, that number. */
long via_hooks_syscall_close(long number, int fd);
/* ... and SYS_fork or SYS_clone, for a child that continues on a copy of the same stack. */
long via_hooks_syscall_clone(long number, unsigned long flags, void *stack, void *third,
                             void *fourth, void *fifth);
/* ... and SYS_seccomp. */
long via_hooks_syscall_seccomp(long number, unsigned long operation, unsigned long flags,
                               void *argument);
/* As the C library's. */
long via_hooks_real_syscall(long number, ...);

#endif
