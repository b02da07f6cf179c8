/* SPDX-License-Identifier: Apache-2.0 */
/* torch's generator on the CPU: see torch_random.h.  MT19937 of Matsumoto and Nishimura (1998). */
#include "torch_random.h"

enum { MIDDLE = 397 };

void torch_random_seed(struct torch_random *r, uint64_t seed)
{
    r->word[0] = (uint32_t)seed;
    for (int i = 1; i < TORCH_WORDS; i++) {
        uint32_t before = r->word[i - 1];
        r->word[i] = 1812433253U * (before ^ before >> 30) + (uint32_t)i;
    }
    r->next = TORCH_WORDS;
}

static void twist(struct torch_random *r)
{
    for (int i = 0; i < TORCH_WORDS; i++) {
        uint32_t follows = r->word[(i + 1) % TORCH_WORDS];
        uint32_t y = (r->word[i] & 0x80000000U) | (follows & 0x7fffffffU);
        r->word[i] = r->word[(i + MIDDLE) % TORCH_WORDS] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfU : 0);
    }
    r->next = 0;
}

static uint32_t draw(struct torch_random *r)
{
    if (r->next == TORCH_WORDS)
        twist(r);
    uint32_t y = r->word[r->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680U;
    y ^= y << 15 & 0xefc60000U;
    return y ^ y >> 18;
}

void torch_random_permutation(struct torch_random *r, int64_t n, int64_t *order)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t i = 0; i < n - 1; i++) {
        int64_t other = i + draw(r) % (n - i), moved = order[i];
        order[i] = order[other];
        order[other] = moved;
    }
}
