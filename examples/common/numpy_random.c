/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numpy's default generator: see numpy_random.h.
 *
 * SeedSequence (O'Neill's seed_seq) mixes the words of a seed into a pool of four words and hashes
 * eight words from it.  PCG64 is a 128-bit linear congruential generator with XSL-RR output.
 */
#include "numpy_random.h"

enum { POOL = 4, WORDS = 8 };

__extension__ typedef unsigned __int128 wide;

static uint32_t fold(uint32_t x)
{
    return x ^ x >> 16;
}

/* One step of either hash; each call advances the constant. */
static uint32_t hash(uint32_t value, uint32_t *constant, uint32_t multiplier)
{
    value ^= *constant;
    *constant *= multiplier;
    return fold(value * *constant);
}

static void fill_pool(uint64_t seed, uint32_t pool[POOL])
{
    const uint32_t entropy[POOL] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t multiplier = 0x931e8875;
    uint32_t constant = 0x43b0d7e5;

    for (int i = 0; i < POOL; i++)
        pool[i] = hash(entropy[i], &constant, multiplier);
    for (int from = 0; from < POOL; from++)
        for (int to = 0; to < POOL; to++)
            if (from != to)
                pool[to] = fold(0xca01f9ddU * pool[to] -
                                0x4973f715U * hash(pool[from], &constant, multiplier));
}

static void make_words(uint64_t seed, uint64_t words[WORDS / 2])
{
    uint32_t pool[POOL], constant = 0x8b51f9dd;

    fill_pool(seed, pool);
    for (int i = 0; i < WORDS; i++) {
        uint64_t word = hash(pool[i % POOL], &constant, 0x58f38ded);
        words[i / 2] = i % 2 ? words[i / 2] | word << 32 : word;
    }
}

static wide join(uint64_t high, uint64_t low)
{
    return (wide)high << 64 | low;
}

static void advance(struct numpy_random *r)
{
    wide state = join(r->high, r->low) * join(0x2360ed051fc65da4, 0x4385df649fccf645) +
                 join(r->increment_high, r->increment_low);

    r->high = (uint64_t)(state >> 64);
    r->low = (uint64_t)state;
}

struct numpy_random numpy_random_seed(uint64_t seed)
{
    uint64_t words[WORDS / 2];

    make_words(seed, words);
    wide increment = join(words[2], words[3]) << 1 | 1;
    wide state = increment + join(words[0], words[1]); /* the first step gives increment */
    struct numpy_random r = {.high = (uint64_t)(state >> 64),
                             .low = (uint64_t)state,
                             .increment_high = (uint64_t)(increment >> 64),
                             .increment_low = (uint64_t)increment};
    advance(&r);
    return r;
}

double numpy_random_next(struct numpy_random *r)
{
    advance(r);
    uint64_t x = r->high ^ r->low;
    unsigned turn = (unsigned)(r->high >> 58);
    x = x >> turn | x << (-turn & 63);
    return (double)(x >> 11) * 0x1p-53;
}
