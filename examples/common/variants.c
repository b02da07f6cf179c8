/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles one of several variants: see variants.h. */
#include "variants.h"

int variants_compile(ckpt *c, int64_t vram, int n, const struct ckpt_variant *variants,
                     ckpt_program **p, int *chosen)
{
    int rc = CKPT_EBUDGET;

    if (vram && vram != CKPT_VRAM_AUTO && vram != CKPT_VRAM_NONE)
        return ckpt_compile_variants(c, n, variants, NULL, 1, p, chosen);
    for (*chosen = 0; rc == CKPT_EBUDGET && *chosen < n; ++*chosen)
        rc = ckpt_compile(c, variants[*chosen].record, variants[*chosen].user, NULL, 1, p);
    --*chosen;
    return rc;
}
