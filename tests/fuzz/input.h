/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Shared by the fuzzers: an input that is consumed piece by piece, and invariants. */
#ifndef TESTS_FUZZ_INPUT_H
#define TESTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static inline void require(int condition)
{
    if (!condition) {
        abort();
    }
}

struct input {
    const uint8_t *data;
    size_t bytes;
};

/* Copies the next bytes to `to`; missing bytes are zero. */
static inline void input_take(struct input *input, void *to, size_t bytes)
{
    size_t have = bytes < input->bytes ? bytes : input->bytes;
    memset(to, 0, bytes);
    if (have != 0) {
        memcpy(to, input->data, have);
    }
    input->data += have;
    input->bytes -= have;
}

static inline uint8_t input_byte(struct input *input)
{
    uint8_t byte;
    input_take(input, &byte, 1);
    return byte;
}

static inline uint64_t input_word(struct input *input)
{
    uint64_t word;
    input_take(input, &word, sizeof(word));
    return word;
}

/* A number that is often close to a limit; takes one byte of the input, or nine. */
static inline uint64_t input_edgy(struct input *input)
{
    static const uint64_t edges[] = {63,
                                     64,
                                     65,
                                     255,
                                     256,
                                     4095,
                                     4096,
                                     4097,
                                     0xffff,
                                     0x10000,
                                     1u << 20,
                                     INT32_MAX,
                                     1u << 31,
                                     UINT32_MAX,
                                     UINT64_C(1) << 32,
                                     UINT64_C(1) << 63,
                                     UINT64_MAX - 7,
                                     UINT64_MAX};
    uint8_t byte = input_byte(input);
    if (byte == UINT8_MAX) {
        return input_word(input);
    }
    if (byte < 0x80) {
        return byte;
    }
    return edges[byte % (sizeof(edges) / sizeof(edges[0]))];
}

#endif
