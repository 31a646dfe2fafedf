/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Seeded pseudo-random numbers: xoshiro256**, its state filled by splitmix64 (Blackman and Vigna,
 * "Scrambled linear pseudorandom number generators", 2021). The same seed gives the same numbers on
 * every machine. Not for secrets.
 */
#ifndef VIA_BASE_RNG_H
#define VIA_BASE_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct via_rng {
    uint64_t state[4];
};

void via_rng_init(struct via_rng *rng, uint64_t seed);
uint64_t via_rng_next(struct via_rng *rng);
/* 0 to n - 1 with equal probability; 0 if n is 0. */
uint64_t via_rng_below(struct via_rng *rng, uint64_t n);
/* lo to hi, both included. */
uint64_t via_rng_between(struct via_rng *rng, uint64_t lo, uint64_t hi);
/* True with probability num/den. */
bool via_rng_chance(struct via_rng *rng, uint64_t num, uint64_t den);

#endif
