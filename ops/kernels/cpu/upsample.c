/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: nearest-neighbour upsampling, and the sums that are its gradient. */
#include "kernels.h"
#include "rows.h"
#include "upsample.h"

#define CHANNELS 1024 /* channels summed at once */

/* The position in the result of copy i of position p of x. */
static int64_t place_of(const struct upsample_shape *s, int64_t p, int64_t i)
{
    int64_t at = 0;
    for (int axis = 2; axis >= 0; axis--) {
        int64_t f = s->factor[axis];
        at += (p % s->size[axis] * f + i % f) * s->step[axis];
        p /= s->size[axis];
        i /= f;
    }
    return at + p * s->size[0] * s->factor[0] * s->step[0];
}

int cpu_upsample_nearest(const struct ckpt_kernel_args *a)
{
    struct upsample_shape s = upsample_shape(&a->in[0].desc, a->attr);
    int64_t places = upsample_places(&s), copies = upsample_copies(&s);
    int64_t row = s.c * ckpt_dtype_size(a->in[0].desc.dtype);
    const char *x = a->in[0].data;
    char *y = a->out[0].data;
#pragma omp parallel for schedule(static) if (places * copies * s.c > ROWS_CHUNK)
    for (int64_t p = 0; p < places; p++)
        for (int64_t i = 0; i < copies; i++)
            memcpy(y + place_of(&s, p, i) * row, x + p * row, (size_t)row);
    return CKPT_OK;
}

ROWS_INLINE void add_row(float *restrict sum, const void *restrict x, int64_t n, bool half)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        sum[j] += row_get(x, j, half);
}

CKPT_CLONES static void add_leaf(float *sum, const void *x, int64_t n, bool half)
{
    WITH_FLAG(half, add_row, sum, x, n);
}

/* Sums the copies of channels [j, j + n) of position p in order, and rounds once. */
static void sum_copies(const struct upsample_shape *s, const struct ckpt_kernel_args *a, int64_t p,
                       int64_t j, int64_t n)
{
    float sum[CHANNELS] = {0};
    enum ckpt_dtype dtype = a->out[0].desc.dtype;
    int64_t size = ckpt_dtype_size(dtype), copies = upsample_copies(s);
    const char *dy = a->in[0].data;
    for (int64_t i = 0; i < copies; i++)
        add_leaf(sum, dy + (place_of(s, p, i) * s->c + j) * size, n, dtype == CKPT_BF16);
    cpu_store((char *)a->out[0].data + (p * s->c + j) * size, sum, dtype, n);
}

int cpu_upsample_nearest_dx(const struct ckpt_kernel_args *a)
{
    struct upsample_shape s = upsample_shape(&a->out[0].desc, a->attr);
    int64_t places = upsample_places(&s);
#pragma omp parallel for schedule(static) if (places * upsample_copies(&s) * s.c > ROWS_CHUNK)
    for (int64_t p = 0; p < places; p++)
        for (int64_t j = 0; j < s.c; j += CHANNELS)
            sum_copies(&s, a, p, j, min_i64(CHANNELS, s.c - j));
    return CKPT_OK;
}
