/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding: rotates each pair, adjacent elements or those at one place of the two halves of
 * a row, by the angle of its position. */
#include "kernels.h"
#include "rope.h"
#include "rows.h"

struct turn {
    float sign; /* of the angles */
    bool halves;
};

/* A bf16 pair is loaded and stored as one word, so both halves widen without a shuffle. */
ROWS_INLINE void rope_row_bf16(const char *restrict x, const float *restrict table,
                               char *restrict y, int64_t pairs, float sign)
{
#pragma omp simd
    for (int64_t k = 0; k < pairs; k++) {
        uint32_t in, low, high;
        memcpy(&in, x + 4 * k, sizeof in);
        float a = bf16_load((uint16_t)in), b = bf16_load((uint16_t)(in >> 16));
        float c = table[2 * k], s = sign * table[2 * k + 1];
        low = bf16_round(a * c - b * s);
        high = bf16_round(b * c + a * s);
        in = low | high << 16;
        memcpy(y + 4 * k, &in, sizeof in);
    }
}

ROWS_INLINE void rope_row_f32(const float *restrict x, const float *restrict table,
                              float *restrict y, int64_t pairs, float sign)
{
#pragma omp simd
    for (int64_t k = 0; k < pairs; k++) {
        float a = x[2 * k], b = x[2 * k + 1];
        float c = table[2 * k], s = sign * table[2 * k + 1];
        y[2 * k] = a * c - b * s;
        y[2 * k + 1] = b * c + a * s;
    }
}

ROWS_INLINE void rope_row_halves(const void *restrict x, const float *restrict table,
                                 void *restrict y, int64_t pairs, float sign, bool half)
{
#pragma omp simd
    for (int64_t k = 0; k < pairs; k++) {
        float a = row_get(x, k, half), b = row_get(x, k + pairs, half);
        float c = table[2 * k], s = sign * table[2 * k + 1];
        row_put(y, k, a * c - b * s, half);
        row_put(y, k + pairs, b * c + a * s, half);
    }
}

/* run: x, y, table */
ROWS_INLINE void rope_rows(const struct row_run *run, int64_t c, const struct turn *turn, bool half)
{
    const int64_t pairs = c / 2;
    const float sign = turn->sign;

    for (int64_t i = 0; i < run->n; i++) {
        const char *x = run->at[0] + i * run->step[0];
        char *y = run->at[1] + i * run->step[1];
        const float *table = (const float *)(run->at[2] + i * run->step[2]);
        if (turn->halves)
            rope_row_halves(x, table, y, pairs, sign, half);
        else if (half)
            rope_row_bf16(x, table, y, pairs, sign);
        else
            rope_row_f32((const float *)x, table, (float *)y, pairs, sign);
    }
}

ROWS_LEAVES(rope, rope_rows)

int cpu_rope(const struct ckpt_kernel_args *a)
{
    const struct rope_attr *attr = a->attr;
    const struct ckpt_view *x = &a->in[0];
    struct turn turn = {.sign = attr->inverse ? -1.f : 1.f, .halves = attr->halves};
    struct ckpt_view table = rope_table_rows(&a->in[1], &x->desc, attr->axis);
    struct rows r;
    rows_begin(&r, x);
    rows_operand(&r, &a->out[0]);
    rows_operand(&r, &table);
    rows_finish(&r);
    rows_for_all(&r, x->desc.shape[x->desc.ndim - 1], view_half(x) ? rope_bf16 : rope_f32, &turn);
    return CKPT_OK;
}
