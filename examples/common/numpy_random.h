/* SPDX-License-Identifier: Apache-2.0 */
/* Uniform numbers as numpy.random.default_rng(seed).random() draws them: SeedSequence and PCG64. */
#ifndef EXAMPLES_NUMPY_RANDOM_H
#define EXAMPLES_NUMPY_RANDOM_H

#include <stdint.h>

struct numpy_random {
    uint64_t high, low;                     /* the state, 128 bits */
    uint64_t increment_high, increment_low; /* odd */
};

struct numpy_random numpy_random_seed(uint64_t seed);
/* In [0, 1), 53 bits. */
double numpy_random_next(struct numpy_random *r);

#endif
