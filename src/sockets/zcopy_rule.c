/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/zcopy_rule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_VERSION "2"

unsigned via_zcopy_size(size_t bytes)
{
    unsigned size = 0;
    while (size + 1 < VIA_ZCOPY_SIZES && bytes >> (size + 1) >= VIA_ZCOPY_LEAST) {
        size++;
    }
    return size;
}

static bool prefers_fetch(const struct via_zcopy_choice *choice)
{
    bool known = choice->copy_ps != 0 && choice->fetch_ps != 0;
    return known ? choice->fetch_ps < choice->copy_ps : choice->prior;
}

#define FIRST (2u * VIA_ZCOPY_BLOCK)

static uint32_t explore_every(const struct via_zcopy_choice *choice)
{
    uint64_t less = choice->copy_ps < choice->fetch_ps ? choice->copy_ps : choice->fetch_ps;
    uint64_t more = choice->copy_ps < choice->fetch_ps ? choice->fetch_ps : choice->copy_ps;
    bool seldom = choice->tries > VIA_ZCOPY_EXPLORE_OFTEN && more >= less + less / 4;
    return seldom && less != 0 ? VIA_ZCOPY_EXPLORE_SELDOM : VIA_ZCOPY_EXPLORE;
}

bool via_zcopy_choose(struct via_zcopy_choice *choice)
{
    uint32_t tries = choice->tries++;
    if (tries < FIRST) {
        return tries >= VIA_ZCOPY_BLOCK;
    }
    uint32_t every = explore_every(choice);
    bool explores = tries % every >= every - VIA_ZCOPY_BLOCK;
    return prefers_fetch(choice) != explores;
}

bool via_zcopy_learn(struct via_zcopy_choice *choice, bool fetched, size_t bytes, uint64_t ns)
{
    if (choice->run_fetched != fetched) {
        choice->run_fetched = fetched;
        choice->run = 0;
        choice->run_ns = 0;
        choice->run_bytes = 0;
    }
    if (++choice->run <= VIA_ZCOPY_BLOCK_SKIP) {
        return false;
    }
    choice->run_ns += ns > UINT32_MAX ? UINT32_MAX : ns;
    choice->run_bytes += bytes;
    if (choice->run < VIA_ZCOPY_BLOCK) {
        return false;
    }
    bool known = choice->copy_ps != 0 && choice->fetch_ps != 0;
    uint32_t *known_ps = fetched ? &choice->fetch_ps : &choice->copy_ps;
    uint64_t ps = choice->run_ns * 1000 / choice->run_bytes + 1;
    ps = ps > INT32_MAX ? INT32_MAX : ps;
    /* Others may have had the CPU meanwhile, for a thousand times as long as a send takes. */
    uint64_t most = (uint64_t)*known_ps + *known_ps / 8 + 1;
    *known_ps = (uint32_t)(*known_ps != 0 && ps > most ? most : ps);
    choice->run = VIA_ZCOPY_BLOCK_SKIP;
    choice->run_ns = 0;
    choice->run_bytes = 0;
    return !known && choice->copy_ps != 0 && choice->fetch_ps != 0;
}

size_t via_zcopy_least_of(struct via_zcopy_choice choices[VIA_ZCOPY_SIZES])
{
    size_t least = 0;
    /* From the largest down, until one is better copied. */
    for (unsigned i = VIA_ZCOPY_SIZES; i-- > 0;) {
        if (choices[i].tries < FIRST) {
            continue;
        }
        if (!prefers_fetch(&choices[i])) {
            return least == 0 ? SIZE_MAX : least;
        }
        least = (size_t)VIA_ZCOPY_LEAST << i;
    }
    return least;
}

void via_zcopy_begin(struct via_zcopy_choice choices[VIA_ZCOPY_SIZES], size_t least)
{
    for (unsigned i = 0; i < VIA_ZCOPY_SIZES; i++) {
        choices[i].tries = FIRST;
        choices[i].prior = (size_t)VIA_ZCOPY_LEAST << i >= least;
    }
}

int via_zcopy_format(char *ret_line, size_t max, const char *machine, size_t least)
{
    int n = least == SIZE_MAX ? snprintf(ret_line, max, FORMAT_VERSION " %s never\n", machine)
                              : snprintf(ret_line, max, FORMAT_VERSION " %s %zu\n", machine, least);
    return n > 0 && (size_t)n < max ? n : -1;
}

int via_zcopy_parse(const char *line, const char *machine, size_t *ret_least)
{
    size_t machine_bytes = strlen(machine);
    size_t version_bytes = strlen(FORMAT_VERSION " ");
    if (strncmp(line, FORMAT_VERSION " ", version_bytes) != 0 ||
        strncmp(line + version_bytes, machine, machine_bytes) != 0) {
        return -1;
    }
    const char *value = line + version_bytes + machine_bytes;
    if (strcmp(value, " never\n") == 0) {
        *ret_least = SIZE_MAX;
        return 0;
    }
    if (value[0] != ' ' || value[1] < '1' || value[1] > '9') {
        return -1;
    }
    char *end;
    unsigned long long least = strtoull(value + 1, &end, 10);
    if (strcmp(end, "\n") != 0 || least < VIA_ZCOPY_LEAST ||
        least > (unsigned long long)VIA_ZCOPY_LEAST << (VIA_ZCOPY_SIZES - 1)) {
        return -1;
    }
    *ret_least = (size_t)least;
    return 0;
}
