/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_CHECK_CALLS_H
#define VIA_SHMEM_CHECK_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/*
 * Every entry point of the library as data: its name, and the location of each of its arguments at
 * the call, parsed from the same prototypes that shmem.h consists of. So one function can check the
 * arguments of 1,800 calls.
 */

/* The role of an argument, from the names that the standard gives. */
enum via_role {
    VIA_ROLE_CTX,
    VIA_ROLE_TEAM,
    VIA_ROLE_DEST,
    VIA_ROLE_SOURCE,
    VIA_ROLE_PE,
    VIA_ROLE_NELEMS,
    VIA_ROLE_DST,
    VIA_ROLE_SST,
    VIA_ROLE_BSIZE,
    VIA_ROLE_NBLOCKS,
    VIA_ROLE_SIGNAL_ADDRESS,
    VIA_ROLE_IVAR,
    VIA_ROLE_ROOT,
    VIA_ROLE_START,
    VIA_ROLE_LOG_STRIDE,
    VIA_ROLE_SIZE,
    VIA_ROLE_WORK,
    VIA_ROLE_SYNC,
    VIA_ROLE_LOCK,
    VIA_ROLE_POINTER, /* free, realloc */
    VIA_ROLE_BYTES,   /* malloc ... */
    VIA_ROLE_COUNT,
    VIA_ROLE_ALIGNMENT,
    VIA_ROLE_TEAM_START,
    VIA_ROLE_TEAM_STRIDE,
    VIA_ROLE_XRANGE,
    VIA_ROLES,
};

enum via_family {
    VIA_FAMILY_OTHER,
    VIA_FAMILY_PUT,        /* writes to another PE */
    VIA_FAMILY_GET,        /* reads from another PE */
    VIA_FAMILY_ATOMIC,     /* writes, and may read */
    VIA_FAMILY_SIGNAL,     /* put with signal, signal_set, signal_add */
    VIA_FAMILY_WAIT,       /* wait, test, signal_fetch */
    VIA_FAMILY_ORDER,      /* fence, quiet */
    VIA_FAMILY_COLLECTIVE, /* of a team, an active set or all PEs */
    VIA_FAMILY_MEMORY,     /* collective, of all PEs */
    VIA_FAMILY_LOCK,
};

/*
 * Places count the registers for integers and pointers first, then words on the stack. rdi, rsi,
 * rdx, rcx, r8, r9 (System V ABI for x86-64, section 3.2.3); x0 to x7 (AAPCS64, section 6.4).
 */
#ifdef __x86_64__
#define VIA_PLACE_REGISTERS 6u
#else
#define VIA_PLACE_REGISTERS 8u
#endif
#define VIA_PLACE_NONE 0xffu

struct via_call {
    const char *name;
    const char *parameters;
    void *target; /* the function that is called in the end */
    enum via_family family;
    uint8_t place[VIA_ROLES];
    uint8_t element_bytes; /* size of the elements that dest, source, ivar point to; 0 = unknown */
    bool narrow;           /* nelems is an int */
    bool anytime;          /* allowed before shmem_init and after shmem_finalize */
    const char *section;   /* of OpenSHMEM 1.6 */
};

/* The arguments of a call at the moment of the call. */
struct via_arguments {
    const struct via_call *call;
    const uint64_t *registers; /* VIA_PLACE_REGISTERS of them */
    const uint64_t *stack;     /* [0] is the return address */
};

static inline bool via_has_argument(const struct via_arguments *arguments, enum via_role role)
{
    return arguments->call->place[role] != VIA_PLACE_NONE;
}

static inline uint64_t via_argument(const struct via_arguments *arguments, enum via_role role)
{
    unsigned place = arguments->call->place[role];
    return place < VIA_PLACE_REGISTERS ? arguments->registers[place]
                                       : arguments->stack[place - VIA_PLACE_REGISTERS + 1];
}

static inline int via_int_argument(const struct via_arguments *arguments, enum via_role role)
{
    return (int)(uint32_t)via_argument(arguments, role);
}

static inline uintptr_t via_return_address(const struct via_arguments *arguments)
{
    return (uintptr_t)arguments->stack[0];
}

/* Parses all prototypes; call it before any other function here. */
void via_calls_init(void);
/* Returns NULL if there is none. name: "shmem_..." */
struct via_call *via_call_of_name(const char *name);
/* The call whose code or whose stub is at this address; NULL for any other address. */
struct via_call *via_call_of_code(uintptr_t function);
/* check_stubs.c: the stub of call `index` begins at index * VIA_CHECK_STUB_BYTES. */
#define VIA_CHECK_STUBS 2048
#define VIA_CHECK_STUB_BYTES 16
extern char via_check_stubs[];
/* The common part of all stubs: reports the call to via_check_enter and jumps to the call's
 * target. */
void *via_call_stub(const struct via_call *call);

/* Called by the stubs: does all checks of a call. Returns the target. */
void *via_check_enter(uint64_t index, const uint64_t *registers, const uint64_t *stack);
struct via_call *via_call_of_index(uint64_t index);

/*
 * check_hook.c: redirects calls from other objects of this process to the stubs, by changing their
 * entries in the global offset tables. A call that a profiling tool wraps still goes to the tool,
 * and is checked when the tool calls pshmem_... Call this function again after objects have been
 * loaded.
 */
int via_check_hook(struct via_error *err) VIA_MUST_CHECK;
/* Where this library is mapped. */
void *via_call_object(void);

#endif
