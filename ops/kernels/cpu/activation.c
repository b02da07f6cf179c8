/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: GELU (tanh), SiLU and their derivatives. */
#include "functions.h"
#include "kernels.h"
#include "map.h"
#include "vmath.h"

/* tanh(u) = 2 sigmoid(2u) - 1, so x/2 (1 + tanh(u)) = x sigmoid(2u), which is accurate where the
 * tanh is close to -1.  2u = x (C1 + C3 x^2). */
#define GELU_C1 1.5957691216057308f  /* 2 sqrt(2/pi) */
#define GELU_C3 0.07135481627159595f /* C1 * 0.044715 */

CPU_UNARY(map_gelu, u *vsigmoid(u *(GELU_C1 + GELU_C3 * (u * u))))

/*
 * With s = sigmoid(v): d(x s)/dx = s + x s (1 - s) v'.  For |x| > 100, s is 0 or 1, and x^2 is
 * clamped to stay finite.
 */
CPU_MAP(map_gelu_dx)
{
    const float *dy = x[0], *u = x[1];
    (void)ctx;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float square = u[i] * u[i], u2 = vmath_select(square > 1e4f, 1e4f, square);
        float v = u[i] * (GELU_C1 + GELU_C3 * u2);
        float s = vsigmoid(v), rest = vsigmoid(-v);
        float slope = GELU_C1 + 3.f * GELU_C3 * u2;
        y[i] = dy[i] * (s + u[i] * (s * rest) * slope);
    }
}
CPU_MAP_CALL(map_gelu_dx)

CPU_UNARY(map_silu, u *vsigmoid(u))

CPU_MAP(map_silu_dx)
{
    const float *dy = x[0], *u = x[1];
    (void)ctx;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float s = vsigmoid(u[i]), rest = vsigmoid(-u[i]);
        y[i] = dy[i] * s * (1.f + u[i] * rest);
    }
}
CPU_MAP_CALL(map_silu_dx)

int cpu_gelu(const struct ckpt_kernel_args *a)
{
    cpu_map(&a->out[0], 1, a->in, map_gelu, NULL);
    return cpu_write_extra(a, CKPT_OK);
}

int cpu_gelu_dx(const struct ckpt_kernel_args *a)
{
    cpu_map(&a->out[0], 2, a->in, map_gelu_dx, NULL);
    return cpu_write_extra(a, CKPT_OK);
}

int cpu_silu(const struct ckpt_kernel_args *a)
{
    cpu_map(&a->out[0], 1, a->in, map_silu, NULL);
    return cpu_write_extra(a, CKPT_OK);
}

int cpu_silu_dx(const struct ckpt_kernel_args *a)
{
    cpu_map(&a->out[0], 2, a->in, map_silu_dx, NULL);
    return cpu_write_extra(a, CKPT_OK);
}
