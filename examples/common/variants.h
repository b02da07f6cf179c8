/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that are recorded in several variants. */
#ifndef EXAMPLES_VARIANTS_H
#define EXAMPLES_VARIANTS_H

#include "ckpt.h"

/*
 * Compiles one of n forward-only variants, ordered from the fastest to the one that needs the least
 * memory.  If vram (as in ckpt_options) is a size, all are planned and the fastest that fits is
 * selected; otherwise the first that fits.  *chosen is its index.  Returns as ckpt_compile.
 */
int variants_compile(ckpt *c, int64_t vram, int n, const struct ckpt_variant *variants,
                     ckpt_program **p, int *chosen);

/* What a recorder gets from variants_compile_step(): it computes in pieces of `size`. */
struct variant_step {
    void *user;
    int64_t size;
};

/*
 * Compiles one of n variants of a step (with an optimizer or without), which differ in the size of
 * their pieces and in the order of sums: the fastest that fits.  The sizes descend.  *chosen is the
 * size.  Returns as ckpt_compile.
 */
int variants_compile_step(ckpt *c, ckpt_recorder record, void *user, int n, const int64_t *size,
                          const ckpt_optimizer *optimizer, int64_t batch, ckpt_program **p,
                          int64_t *chosen);

enum { VARIANT_SIZES = 20 }; /* of one step */

/* Fills in size, size / 2, size / 4, ..., at least 1 and at most `most` of them.  Returns their
 * number. */
int variants_halve(int64_t size, int most, int64_t *list);

#endif
