/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers from a counter: every value follows from (seed, step, stream, index) alone, so it
 * can be drawn again, in any order, by any number of threads.
 */
#ifndef CKPT_RANDOM_H
#define CKPT_RANDOM_H

#include "ckpt.h"

/* A position in the sequences of one seed. */
struct random_stream {
    uint64_t seed;
    uint64_t step; /* below 2^52 */
    uint32_t stream;
};

/* Values first .. first + n - 1 of a stream; first + n is below 2^42. */
void random_normal(const struct random_stream *s, int64_t first, float *dst, int64_t n);
void random_uniform(const struct random_stream *s, int64_t first, float *dst, int64_t n);

/* Raw words of a stream; they are independent of the values above. */
void random_words(const struct random_stream *s, int64_t first, uint32_t *dst, int64_t n);

#endif
