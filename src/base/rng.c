/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "base/rng.h"

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t rotate_left(uint64_t value, int bits)
{
    return (value << bits) | (value >> (64 - bits));
}

void via_rng_init(struct via_rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        rng->state[i] = splitmix64(&seed);
}

uint64_t via_rng_next(struct via_rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

uint64_t via_rng_below(struct via_rng *rng, uint64_t n)
{
    if (n == 0)
        return 0;

    /* Draws below 2^64 mod n would make the small results more probable, so they are repeated: in
     * the worst case one draw in two. */
    uint64_t unfair = -n % n;
    uint64_t draw;
    do
        draw = via_rng_next(rng);
    while (draw < unfair);
    return draw % n;
}

uint64_t via_rng_between(struct via_rng *rng, uint64_t lo, uint64_t hi)
{
    uint64_t count = hi - lo + 1;

    return count ? lo + via_rng_below(rng, count) : via_rng_next(rng);
}

bool via_rng_chance(struct via_rng *rng, uint64_t num, uint64_t den)
{
    return via_rng_below(rng, den) < num;
}
