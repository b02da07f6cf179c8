/* SPDX-License-Identifier: Apache-2.0 */
/* Philox 4x32 with 10 rounds, one block at a time, as its paper defines it. */
#ifndef TESTS_UNIT_PHILOX_H
#define TESTS_UNIT_PHILOX_H

#include <stdint.h>

/* Four words from a counter and a key. */
static inline void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    for (uint32_t round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)c[0] * 0xd2511f53u, p1 = (uint64_t)c[2] * 0xcd9e8d57u;
        c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ (key[0] + round * 0x9e3779b9u);
        c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ (key[1] + round * 0xbb67ae85u);
        c[3] = (uint32_t)p0;
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

#endif
