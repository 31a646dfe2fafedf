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

/* Shared by the hooks_*.c files. */

extern bool via_hooks_ready;
void via_hooks_init_slowly(void);

/* Called by hooks that make connections, before the first one. Other hooks find no connection in
 * the table, and call the C library's function. */
static inline void via_hooks_init(void)
{
    if (via_unlikely(!via_hooks_ready)) {
        via_hooks_init_slowly();
    }
}

/*
 * True if this process shares the library's memory but not the descriptors, as a child of vfork()
 * does. Then changes of its descriptors do not concern the table. Makes a system call, so hooks of
 * frequent calls check only descriptors of connections.
 */
extern pid_t via_hooks_pid;

static inline bool via_hooks_is_guest(void)
{
    return syscall(SYS_getpid) != via_hooks_pid;
}

/* The upper half of the address space belongs to the kernel, which returns EFAULT for it before it
 * checks anything else. */
static inline bool via_hooks_is_kernel_address(const void *address)
{
#ifdef __x86_64__
    return (intptr_t)address < 0;
#else
    return address == (const void *)-1;
#endif
}

/*
 * True if the program can have no memory at this address: NULL, and numbers that are not addresses.
 * For these, and for unmapped memory (memory.h), the kernel returns EFAULT.
 */
static inline bool via_hooks_is_no_address(const void *address)
{
#ifdef __x86_64__
    return (intptr_t)address < 4096;
#else
    return (uintptr_t)address < 4096;
#endif
}

/* Converts a negative errno to what the C library's calls return. Keeps errno on success. */
static inline ssize_t via_hooks_result(ssize_t rc)
{
    if (via_unlikely(rc < 0)) {
        errno = (int)-rc;
        return -1;
    }
    return rc;
}

/* Ends the operation, and converts as via_hooks_result(). Success must not change errno: some
 * programs read it anyway. */
struct via_op;
ssize_t via_hooks_finish(struct via_op *op, ssize_t rc, int saved_errno);

/* For a fortified call: returns `count`, or ends the program if the buffer has less room. */
size_t via_hooks_check_room(size_t count, size_t room);

/* Called when fd has been closed, or is being closed, without a call of close(). */
void via_hooks_forget(int fd);

/* Hook of syscall() with SYS_close. */
long via_hooks_syscall_close(long number, int fd);
/* Hook of syscall() with SYS_fork, or SYS_clone whose child continues on a copy of the same
 * stack. */
long via_hooks_syscall_clone(long number, unsigned long flags, void *stack, void *third,
                             void *fourth, void *fifth);
/* Hook of syscall() with SYS_seccomp. */
long via_hooks_syscall_seccomp(long number, unsigned long operation, unsigned long flags,
                               void *argument);
/* The C library's syscall(). */
long via_hooks_real_syscall(long number, ...);

#endif
