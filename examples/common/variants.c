/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles one of several variants: see variants.h. */
#include "variants.h"

int variants_compile(ckpt *c, int64_t vram, int n, const struct ckpt_variant *variants,
                     ckpt_program **p, int *chosen)
{
    struct ckpt_forecast f = CKPT_FORECAST_INIT;
    int rc = CKPT_EBUDGET;

    if (vram && vram != CKPT_VRAM_AUTO && vram != CKPT_VRAM_NONE)
        return ckpt_compile_variants(c, n, variants, NULL, 1, p, chosen);
    for (*chosen = 0; rc == CKPT_EBUDGET && *chosen < n - 1; *chosen += rc == CKPT_EBUDGET)
        rc = ckpt_forecast(c, variants[*chosen].record, variants[*chosen].user, NULL, 1, 0, &f);
    return rc && rc != CKPT_EBUDGET
               ? rc
               : ckpt_compile(c, variants[*chosen].record, variants[*chosen].user, NULL, 1, p);
}

int variants_compile_step(ckpt *c, ckpt_recorder record, void *user, int n, const int64_t *size,
                          const ckpt_optimizer *optimizer, int64_t batch, ckpt_program **p,
                          int64_t *chosen)
{
    struct variant_step step[VARIANT_SIZES];
    struct ckpt_variant variants[VARIANT_SIZES];
    int index;

    for (int i = 0; i < n; i++) {
        step[i] = (struct variant_step){user, size[i]};
        variants[i] = (struct ckpt_variant){.record = record, .user = &step[i]};
    }
    int rc = ckpt_compile_variants(c, n, variants, optimizer, batch, p, &index);
    *chosen = rc ? *chosen : size[index];
    return rc;
}

int variants_halve(int64_t size, int most, int64_t *list)
{
    int n = 0;

    for (; n < most && size >= 1; size /= 2)
        list[n++] = size;
    return n;
}
