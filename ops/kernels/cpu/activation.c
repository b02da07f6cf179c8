/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: GELU (tanh), SiLU and their derivatives (functions.c). */
#include "functions.h"
#include "kernels.h"
#include "map.h"

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
