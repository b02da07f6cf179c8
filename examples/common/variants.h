/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that are recorded in several variants with the same bits. */
#ifndef EXAMPLES_VARIANTS_H
#define EXAMPLES_VARIANTS_H

#include "ckpt.h"

/*
 * Compiles one of n variants, which come from the fastest to the one that needs least, forward
 * only.  With a size for --vram (vram, as in ckpt_options) all are planned and the fastest that
 * fits is taken; without, the first that fits.  *chosen tells which.  Returns as ckpt_compile.
 */
int variants_compile(ckpt *c, int64_t vram, int n, const struct ckpt_variant *variants,
                     ckpt_program **p, int *chosen);

#endif
