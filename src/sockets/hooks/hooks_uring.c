/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * io_uring: its entries bypass the hooks. Entries queued by liburing's functions are checked before
 * those functions submit them to the kernel (uring.h). If a process has other rings, or entries
 * that are not about files, all its connections are demoted, and it makes no new ones. liburing
 * makes system calls by instructions of its own, so its functions are intercepted; other code
 * (libuv) uses syscall(2).
 */
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>

#include "sockets/conn/demote.h"
#include "sockets/hooks/hooks.h"
#include "sockets/hooks/uring.h"
#include "sockets/process/real.h"

struct io_uring;

/* Finds a function of liburing. The library is loaded, or the program could not call the function;
 * but if a module has loaded it, RTLD_NEXT does not find it. */
static void find_function(const char *name, void *ret_function)
{
    void *function = dlsym(RTLD_NEXT, name);
    void *library = function == NULL ? dlopen("liburing.so.2", RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (library != NULL) {
        function = dlsym(library, name);
        dlclose(library);
    }
    memcpy(ret_function, &function, sizeof(function));
}

static void demote_all(void)
{
    VIA_KEEP_ERRNO;
    via_hooks_init();
    via_demote_all(VIA_REASON_URING);
}

/* --- rings of liburing's --------------------------------------------------------------------- */

/* True if all functions of this version that submit entries are intercepted here. */
static bool is_known_version(void)
{
    int (*major)(void);
    int (*minor)(void);
    find_function("io_uring_major_version", &major);
    find_function("io_uring_minor_version", &minor);
    return major == NULL || minor == NULL || (major() == 2 && minor() <= 9);
}

static int check_ring(int rc, const struct io_uring *ring, unsigned flags)
{
    if (rc >= 0 && (!is_known_version() || !via_uring_is_clear(ring, flags))) {
        demote_all();
    }
    return rc;
}

static void check_submissions(const struct io_uring *ring)
{
    VIA_KEEP_ERRNO;
    via_hooks_init();
    if (via_policy.on && !via_uring_check_submissions(ring)) {
        demote_all();
    }
}

/*
 * Defines hooks of liburing's functions. Each hook takes six words: the calling conventions pass
 * these in registers, and functions with fewer parameters ignore the rest. `before` runs before the
 * function, and `after` with its result rc.
 */
#define WORDS uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f
#define CATCH(name, before, after)                                \
    VIA_HOOK int name(WORDS);                                     \
    VIA_HOOK int name(WORDS)                                      \
    {                                                             \
        int (*real)(WORDS);                                       \
        find_function(#name, &real);                              \
        before;                                                   \
        int rc = real != NULL ? real(a, b, c, d, e, f) : -ENOSYS; \
        return after;                                             \
    }
#define RING(word) ((const struct io_uring *)(word))

CATCH(io_uring_queue_init, (void)0, check_ring(rc, RING(b), (unsigned)c))
CATCH(io_uring_queue_init_params, (void)0,
      check_ring(rc, RING(b), ((const struct io_uring_params *)c)->flags))
CATCH(io_uring_queue_init_mem, demote_all(), rc)

/* Functions that submit entries to the kernel. */

CATCH(io_uring_submit, check_submissions(RING(a)), rc)
CATCH(io_uring_submit_and_wait, check_submissions(RING(a)), rc)
CATCH(io_uring_submit_and_wait_timeout, check_submissions(RING(a)), rc)
CATCH(io_uring_submit_and_wait_min_timeout, check_submissions(RING(a)), rc)
CATCH(io_uring_submit_and_wait_reg, check_submissions(RING(a)), rc)
CATCH(io_uring_submit_and_get_events, check_submissions(RING(a)), rc)
CATCH(io_uring_wait_cqes, check_submissions(RING(a)), rc)
CATCH(io_uring_wait_cqes_min_timeout, check_submissions(RING(a)), rc)
CATCH(io_uring_wait_cqe_timeout, check_submissions(RING(a)), rc)

/* Functions that register descriptors with the ring, whose entries then contain indexes of
 * these. */

CATCH(io_uring_register_files, demote_all(), rc)
CATCH(io_uring_register_files_tags, demote_all(), rc)
CATCH(io_uring_register_files_update, demote_all(), rc)
CATCH(io_uring_register_files_update_tag, demote_all(), rc)

/* Functions that set up rings for other code. */

CATCH(io_uring_setup, demote_all(), rc)
CATCH(io_uring_enter, demote_all(), rc)
CATCH(io_uring_enter2, demote_all(), rc)
CATCH(io_uring_register, demote_all(), rc)

#if defined(__x86_64__)
/*
 * syscall(2) itself. In assembly, because clone by syscall() returns on another stack, on which a
 * function of C would not find its frame. Handles io_uring_setup, close (by which libuv closes
 * rings), seccomp, fork, and clone with neither a new stack nor CLONE_VM. All other numbers go
 * directly to the kernel, as in the C library's function.
 */
long via_uring_syscall_setup(long number, unsigned entries, void *params);
long via_uring_syscall_setup(long number, unsigned entries, void *params)
{
    demote_all();
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
