/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * io_uring: what is queued there never comes by a call of ours. A process that makes a ring has all
 * its connections go back to the kernel, and makes no others. liburing's calls into the kernel are
 * its own instructions, so its functions are caught; others (libuv) go through syscall().
 */
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>

#include "sockets/demote.h"
#include "sockets/hooks.h"
#include "sockets/real.h"

struct io_uring;
struct io_uring_params;

/* The library that has it is there, or nobody would call. */
static void find(const char *name, void *ret_function)
{
    void *function = dlsym(RTLD_NEXT, name);
    memcpy(ret_function, &function, sizeof(function));
}

static void begins(void)
{
    int saved = errno;
    via_hooks_init();
    via_demote_all(VIA_REASON_URING);
    errno = saved;
}

VIA_HOOK int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
VIA_HOOK int io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
                                        struct io_uring_params *params);
VIA_HOOK int io_uring_queue_init_mem(unsigned entries, struct io_uring *ring,
                                     struct io_uring_params *params, void *memory, size_t bytes);
VIA_HOOK int io_uring_setup(unsigned entries, struct io_uring_params *params);

VIA_HOOK int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    int (*real)(unsigned, struct io_uring *, unsigned);
    find("io_uring_queue_init", &real);
    begins();
    return real != NULL ? real(entries, ring, flags) : -ENOSYS;
}

VIA_HOOK int io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
                                        struct io_uring_params *params)
{
    int (*real)(unsigned, struct io_uring *, struct io_uring_params *);
    find("io_uring_queue_init_params", &real);
    begins();
    return real != NULL ? real(entries, ring, params) : -ENOSYS;
}

VIA_HOOK int io_uring_queue_init_mem(unsigned entries, struct io_uring *ring,
                                     struct io_uring_params *params, void *memory, size_t bytes)
{
    int (*real)(unsigned, struct io_uring *, struct io_uring_params *, void *, size_t);
    find("io_uring_queue_init_mem", &real);
    begins();
    return real != NULL ? real(entries, ring, params, memory, bytes) : -ENOSYS;
}

VIA_HOOK int io_uring_setup(unsigned entries, struct io_uring_params *params)
{
    int (*real)(unsigned, struct io_uring_params *);
    find("io_uring_setup", &real);
    begins();
    return real != NULL ? real(entries, params) : -ENOSYS;
}

#if defined(__x86_64__)
/*
 * syscall() itself. Not in C: clone by syscall() returns on another stack, which a function with a
 * frame of its own would not survive. Everything but io_uring_setup goes straight on.
 */
void via_uring_begins(void);
void via_uring_begins(void)
{
    begins();
}

void *via_uring_real_syscall(void);
void *via_uring_real_syscall(void)
{
    static void *real;
    int saved = errno;
    if (real == NULL) {
        find("syscall", &real);
    }
    errno = saved;
    return real;
}

extern void *via_uring_syscall;
void *via_uring_syscall;

_Static_assert(SYS_io_uring_setup == 425, "below");

__asm__(".text\n"
        ".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        "    .cfi_startproc\n"
        "    cmpq $425, %rdi\n"
        "    je 1f\n"
        "    movq via_uring_syscall(%rip), %rax\n"
        "    testq %rax, %rax\n"
        "    jz 1f\n"
        "    jmp *%rax\n"
        "1:  pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rdx\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rcx\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %r8\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %r9\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    cmpq $425, %rdi\n"
        "    jne 2f\n"
        "    call via_uring_begins\n"
        "2:  call via_uring_real_syscall\n"
        "    movq %rax, via_uring_syscall(%rip)\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %r9\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %r8\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rcx\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdx\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    jmp *%rax\n"
        "    .cfi_endproc\n"
        ".size syscall, .-syscall\n");
#endif
