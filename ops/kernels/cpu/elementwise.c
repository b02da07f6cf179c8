/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: add, sub, mul, affine, where, accumulate, broadcast, cast and fill. */
#include "attr.h"
#include "functions.h"
#include "kernels.h"
#include "map.h"

CPU_BINARY(map_add, u + v)
CPU_BINARY(map_sub, u - v)
CPU_BINARY(map_mul, u *v)

CPU_MAP(map_affine)
{
    const struct affine_attr *attr = ctx;
    const float *u = x[0], a = attr->a, b = attr->b;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = a * u[i] + b;
}
CPU_MAP_CALL(map_affine)

CPU_MAP(map_where)
{
    const float *cond = x[0], *a = x[1], *b = x[2];
    (void)ctx;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = cond[i] != 0.f ? a[i] : b[i];
}
CPU_MAP_CALL(map_where)

CPU_MAP(map_scale)
{
    const float *u = x[0], scale = *(const float *)ctx;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = scale * u[i];
}
CPU_MAP_CALL(map_scale)

static void map_copy(float *y, const float *const *x, int64_t n, const void *ctx)
{
    (void)ctx;
    memcpy(y, x[0], (size_t)n * sizeof *y);
}

CKPT_CLONES static void map_fill(float *y, const float *const *x, int64_t n, const void *ctx)
{
    const float value = *(const float *)ctx;
    (void)x;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = value;
}

CPU_ELEMENTS(add, 2, map_add, NULL)
CPU_ELEMENTS(sub, 2, map_sub, NULL)
CPU_ELEMENTS(mul, 2, map_mul, NULL)
CPU_ELEMENTS(affine, 1, map_affine, a->attr)
CPU_ELEMENTS(where, 3, map_where, NULL)

/* The first contribution sets the sum, so the accumulator is never cleared. */
int cpu_accumulate(const struct ckpt_kernel_args *a)
{
    if (a->accumulate)
        cpu_map(&a->out[0], 2, a->in, map_add, NULL);
    else
        cpu_map(&a->out[0], 1, &a->in[1], map_copy, NULL);
    return CKPT_OK;
}

CPU_ELEMENTS(broadcast, 1, map_scale, &((const struct broadcast_attr *)a->attr)->scale)
CPU_ELEMENTS(cast, 1, map_copy, NULL)
CPU_ELEMENTS(fill, 0, map_fill, &((const struct make_attr *)a->attr)->value)
