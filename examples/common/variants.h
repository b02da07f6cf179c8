/* SPDX-License-Identifier: Apache-2.0 */
/* Programs with several recorded variants that give the same bits. */
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

#endif
