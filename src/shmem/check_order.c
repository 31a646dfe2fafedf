/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * OpenSHMEM 1.6, section 9.12: puts are not ordered without shmem_fence or shmem_quiet. A program
 * that puts data and then a word on which the other PE waits, without one of these calls between
 * the two puts, works on some machines only. The check finds the error if the other PE has waited
 * on that word before. The signal of a put with signal is ordered after the put's own data, but not
 * after the data of an earlier put.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "shmem/api.h"
#include "shmem/check.h"
#include "shmem/path.h"
#include "shmem/trace.h"
#include "shmem/world.h"

/* The last put to a PE that no fence or quiet has followed yet. */
struct unordered {
    const char *call; /* NULL: none */
    uintptr_t address;
    uint64_t bytes;
};

/* One array for each thread, because a fence orders only the calls of its own thread. */
static _Thread_local struct unordered *puts_of;
static _Thread_local int puts_count;
static _Thread_local bool some;

static uint64_t word_of(uintptr_t address)
{
    enum via_region region;
    uint64_t off;

    return via_check_locate(address, &region, &off) ? 1 + region + VIA_REGIONS * off : 0;
}

#define PROBES 8u

/* The PROBES consecutive places where the table may hold the word. */
static _Atomic uint64_t *places_of(uint64_t word)
{
    uint64_t hash = (word * UINT64_C(0x9e3779b97f4a7c15) >> 32) % VIA_TRACE_WORDS;

    return &via_internal()->checks.words[hash / PROBES * PROBES];
}

/* Relaxed: other PEs learn only of the word, not of anything done before. */
void via_check_order_wait(uintptr_t address)
{
    uint64_t word = word_of(address), nothing;

    for (unsigned probe = 0; probe < PROBES && word != 0; probe++) {
        nothing = 0;
        if (atomic_compare_exchange_strong_explicit(&places_of(word)[probe], &nothing, word,
                                                    memory_order_relaxed, memory_order_relaxed) ||
            nothing == word)
            return;
    }
}

/* Freed memory may be reused for anything, so words in it are no longer flags. */
void via_check_order_forget(void)
{
    for (unsigned i = 0; i < VIA_TRACE_WORDS; i++)
        atomic_store_explicit(&via_internal()->checks.words[i], 0, memory_order_relaxed);
}

static bool is_waited_for(int pe, uintptr_t address)
{
    uint64_t word = word_of(address), words[PROBES];
    bool found = false;

    if (word == 0)
        return false;
    via_get("check", words, (const void *)places_of(word), sizeof(words), pe);
    for (unsigned probe = 0; probe < PROBES; probe++)
        found |= words[probe] == word;
    return found;
}

static bool make_room(void)
{
    if (puts_count == via_hot.n_pes)
        return true;
    free(puts_of);
    puts_of = calloc((size_t)via_hot.n_pes, sizeof(*puts_of));
    puts_count = puts_of ? via_hot.n_pes : 0;
    return puts_of != NULL;
}

void via_check_order_put(const struct via_arguments *arguments, uintptr_t address, uint64_t bytes,
                         int pe, bool flag)
{
    char data[VIA_CHECK_TEXT_BYTES], word[VIA_CHECK_TEXT_BYTES];

    if (!make_room())
        return;
    struct unordered *before = &puts_of[pe];
    if (flag && is_waited_for(pe, address)) {
        if (before->call && address - before->address >= before->bytes)
            via_check_report(arguments, "9.12.1",
                             "PE %d waits on %s, which may be seen there before %s of %s, as no "
                             "shmem_fence or shmem_quiet is between them",
                             pe, via_check_describe(address, word), before->call,
                             via_check_describe(before->address, data));
        return;
    }
    /* A word may be a flag that no PE has waited for yet, so only larger transfers count as
     * data. */
    if (bytes <= sizeof(uint64_t))
        return;
    *before = (struct unordered){arguments->call->name, address, bytes};
    some = true;
}

void via_check_order_done(void)
{
    for (int pe = 0; pe < puts_count && some; pe++)
        puts_of[pe].call = NULL;
    some = false;
}
