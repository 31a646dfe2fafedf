/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_SYMBOLS_H
#define VIA_SHMEM_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The names of a program's variables and functions, for messages: from the symbol table of its
 * file, which includes static ones; for a stripped program from the dynamic symbol table. Read at
 * the first use, and cached. Any thread.
 */
struct via_symbol {
    const char *name;
    uintptr_t address;
    size_t bytes;
};

/* Finds the variable that contains the address. False if there is none, or none is known. */
bool via_symbol_find_data(uintptr_t address, struct via_symbol *ret_symbol);

#define VIA_SYMBOL_TEXT_BYTES 96u

/* "exchange+0x1c", or without a symbol "libfoo.so+0x1234". */
const char *via_symbol_describe_code(uintptr_t address, char text[VIA_SYMBOL_TEXT_BYTES]);

#endif
