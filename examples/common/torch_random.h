/* SPDX-License-Identifier: Apache-2.0 */
/* Permutations as torch.randperm(n, generator=g) draws them on the CPU, g a Mersenne twister. */
#ifndef EXAMPLES_TORCH_RANDOM_H
#define EXAMPLES_TORCH_RANDOM_H

#include <stdint.h>

enum { TORCH_WORDS = 624 };
/* From this size on torch draws 64-bit numbers; callers refuse it. */
#define TORCH_PERMUTATION_MAX (UINT32_MAX / 20)

struct torch_random {
    uint32_t word[TORCH_WORDS];
    int next; /* TORCH_WORDS: generate new words first */
};

/* As g.manual_seed(seed), which uses the low 32 bits. */
void torch_random_seed(struct torch_random *r, uint64_t seed);
/* Fills in 0 .. n-1 in their new order; 0 <= n < TORCH_PERMUTATION_MAX. */
void torch_random_permutation(struct torch_random *r, int64_t n, int64_t *order);

#endif
