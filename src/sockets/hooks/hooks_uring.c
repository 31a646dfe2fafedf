/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * io_uring: its entries never pass a call of ours. Entries queued by liburing's functions are
 * checked before these give them to the kernel (uring.h). A process that has other rings, or more
 * in them than files, has all its connections go back to the kernel, and makes no others.
 * liburing's calls into the kernel are its own instructions, so its functions are caught; others
 * (libuv) go through syscall().
 */
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>

#include "sockets/conn/demote.h"
#include "sockets/hooks/hooks.h"
#include "sockets/hooks/uring.h"
#include "sockets/process/real.h"

struct io_uring;
struct io_uring_cqe;
struct __kernel_timespec;

/* The library that defines it is loaded, or no program would call it; but it is not in the global
 * scope if a module has loaded it. */
static void find(const char *name, void *ret_function)
{
    void *function = dlsym(RTLD_NEXT, name);
    void *library = function == NULL ? dlopen("liburing.so.2", RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (library != NULL) {
        function = dlsym(library, name);
        dlclose(library);
    }
    memcpy(ret_function, &function, sizeof(function));
}

static void begins(void)
{
    int saved = errno;
    via_hooks_init();
    via_demote_all(VIA_REASON_URING);
    errno = saved;
}

/* --- rings of liburing's -----------------------------------------------------------------------
 */

/* Later versions may have calls that submit entries and are not intercepted here. */
static bool is_known_version(void)
{
    int (*major)(void);
    int (*minor)(void);
    find("io_uring_major_version", &major);
    find("io_uring_minor_version", &minor);
    return major == NULL || minor == NULL || (major() == 2 && minor() <= 9);
}

static int made(int rc, const struct io_uring *ring, unsigned flags)
{
    if (rc >= 0 && (!is_known_version() || !via_uring_is_clear(ring, flags))) {
        begins();
    }
    return rc;
}

static void check_submissions(const struct io_uring *ring)
{
    int saved = errno;
    via_hooks_init();
    if (via_policy.on && !via_uring_check_submissions(ring)) {
        begins();
    }
    errno = saved;
}

static void check_files(const int *files, unsigned count)
{
    int saved = errno;
    via_hooks_init();
    if (via_policy.on && !via_uring_check_files(files, count)) {
        begins();
    }
    errno = saved;
}

/* A function of liburing's: `before` runs before it is called, and `after` with its result rc. */
#define CATCH(name, parameters, arguments, before, after) \
    VIA_HOOK int name parameters;                         \
    VIA_HOOK int name parameters                          \
    {                                                     \
        int(*real) parameters;                            \
        find(#name, &real);                               \
        before;                                           \
        int rc = real != NULL ? real arguments : -ENOSYS; \
        return after;                                     \
    }

CATCH(io_uring_queue_init, (unsigned entries, struct io_uring *ring, unsigned flags),
      (entries, ring, flags), (void)0, made(rc, ring, flags))
CATCH(io_uring_queue_init_params,
      (unsigned entries, struct io_uring *ring, struct io_uring_params *params),
      (entries, ring, params), (void)0, made(rc, ring, params->flags))
CATCH(io_uring_queue_init_mem,
      (unsigned entries, struct io_uring *ring, struct io_uring_params *params, void *memory,
       size_t bytes),
      (entries, ring, params, memory, bytes), begins(), rc)

/* All functions that submit entries to the kernel. */

CATCH(io_uring_submit, (struct io_uring * ring), (ring), check_submissions(ring), rc)
CATCH(io_uring_submit_and_wait, (struct io_uring * ring, unsigned count), (ring, count),
      check_submissions(ring), rc)
CATCH(io_uring_submit_and_wait_timeout,
      (struct io_uring * ring, struct io_uring_cqe **ret_cqe, unsigned count,
       struct __kernel_timespec *timeout, sigset_t *mask),
      (ring, ret_cqe, count, timeout, mask), check_submissions(ring), rc)
CATCH(io_uring_submit_and_wait_min_timeout,
      (struct io_uring * ring, struct io_uring_cqe **ret_cqe, unsigned count,
       struct __kernel_timespec *timeout, unsigned least_us, sigset_t *mask),
      (ring, ret_cqe, count, timeout, least_us, mask), check_submissions(ring), rc)
CATCH(io_uring_submit_and_wait_reg,
      (struct io_uring * ring, struct io_uring_cqe **ret_cqe, unsigned count, int place),
      (ring, ret_cqe, count, place), check_submissions(ring), rc)
CATCH(io_uring_submit_and_get_events, (struct io_uring * ring), (ring), check_submissions(ring), rc)
CATCH(io_uring_wait_cqes,
      (struct io_uring * ring, struct io_uring_cqe **ret_cqe, unsigned count,
       struct __kernel_timespec *timeout, sigset_t *mask),
      (ring, ret_cqe, count, timeout, mask), check_submissions(ring), rc)
CATCH(io_uring_wait_cqes_min_timeout,
      (struct io_uring * ring, struct io_uring_cqe **ret_cqe, unsigned count,
       struct __kernel_timespec *timeout, unsigned least_us, sigset_t *mask),
      (ring, ret_cqe, count, timeout, least_us, mask), check_submissions(ring), rc)
CATCH(io_uring_wait_cqe_timeout,
      (struct io_uring * ring, struct io_uring_cqe **ret_cqe, struct __kernel_timespec *timeout),
      (ring, ret_cqe, timeout), check_submissions(ring), rc)

/* Descriptors that get numbers of the ring's. */

CATCH(io_uring_register_files, (struct io_uring * ring, const int *files, unsigned count),
      (ring, files, count), check_files(files, count), rc)
CATCH(io_uring_register_files_tags,
      (struct io_uring * ring, const int *files, const unsigned long long *tags, unsigned count),
      (ring, files, tags, count), check_files(files, count), rc)
CATCH(io_uring_register_files_update,
      (struct io_uring * ring, unsigned first, const int *files, unsigned count),
      (ring, first, files, count), check_files(files, count), rc)
CATCH(io_uring_register_files_update_tag,
      (struct io_uring * ring, unsigned first, const int *files, const unsigned long long *tags,
       unsigned count),
      (ring, first, files, tags, count), check_files(files, count), rc)

/* Rings of other code. */

CATCH(io_uring_setup, (unsigned entries, struct io_uring_params *params), (entries, params),
      begins(), rc)
CATCH(io_uring_enter, (unsigned fd, unsigned submit, unsigned wait, unsigned flags, sigset_t *mask),
      (fd, submit, wait, flags, mask), begins(), rc)
CATCH(io_uring_enter2,
      (unsigned fd, unsigned submit, unsigned wait, unsigned flags, sigset_t *mask, size_t bytes),
      (fd, submit, wait, flags, mask, bytes), begins(), rc)
CATCH(io_uring_register, (unsigned fd, unsigned what, const void *argument, unsigned count),
      (fd, what, argument, count), begins(), rc)

#if defined(__x86_64__)
/*
 * syscall() itself. Not in C: clone by syscall() returns on another stack, which a function with a
 * frame of its own would not survive. Everything but io_uring_setup, close, by which libuv closes,
 * seccomp, fork, and clone with neither that nor CLONE_VM goes straight to the kernel, as the C
 * library's function does.
 */
long via_uring_syscall_setup(long number, unsigned entries, void *params);
long via_uring_syscall_setup(long number, unsigned entries, void *params)
{
    begins();
    return via_hooks_real_syscall(number, entries, params);
}

long via_uring_syscall_failed(long rc);
long via_uring_syscall_failed(long rc)
{
    errno = (int)-rc;
    return -1;
}

_Static_assert(SYS_seccomp == 317 && SYS_io_uring_setup == 425 && SYS_close == 3 &&
                   SYS_clone == 56 && SYS_fork == 57 && CLONE_VM == 0x100,
               "below");

__asm__(".text\n"
        ".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        "    .cfi_startproc\n"
        "    cmpq $3, %rdi\n"
        "    je via_hooks_syscall_close\n"
        "    cmpq $317, %rdi\n"
        "    je via_hooks_syscall_seccomp\n"
        "    cmpq $425, %rdi\n"
        "    je via_uring_syscall_setup\n"
        "    cmpq $57, %rdi\n"
        "    je via_hooks_syscall_clone\n"
        "    cmpq $56, %rdi\n"
        "    jne via_hooks_real_syscall\n"
        "    testq %rdx, %rdx\n"
        "    jnz via_hooks_real_syscall\n"
        "    testq $0x100, %rsi\n"
        "    jz via_hooks_syscall_clone\n"
        ".globl via_hooks_real_syscall\n"
        ".hidden via_hooks_real_syscall\n"
        "via_hooks_real_syscall:\n"
        "    movq %rdi, %rax\n"
        "    movq %rsi, %rdi\n"
        "    movq %rdx, %rsi\n"
        "    movq %rcx, %rdx\n"
        "    movq %r8, %r10\n"
        "    movq %r9, %r8\n"
        "    movq 8(%rsp), %r9\n"
        "    syscall\n"
        "    cmpq $-4095, %rax\n"
        "    jae 1f\n"
        "    ret\n"
        "1:  movq %rax, %rdi\n"
        "    jmp via_uring_syscall_failed\n"
        "    .cfi_endproc\n"
        ".size syscall, .-syscall\n");
#endif
