/* SPDX-License-Identifier: Apache-2.0 */
/* GELU (tanh) and SiLU, and their derivatives: see cuda/expr_math.cuh for the formulas. */
#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/expr_math.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/map.cuh"

namespace
{

CUDA_MAP(gelu, expr_gelu(x, 0.f, 0.f))
CUDA_MAP(gelu_dx, expr_gelu_dx(x, y))
CUDA_MAP(silu, expr_silu(x, 0.f, 0.f))
CUDA_MAP(silu_dx, expr_silu_dx(x, y))

/* gelu_dx as a source of column sums (column_sum.cuh): it writes dx while it makes it; the sums are
 * of the rounded dx. */
template <typename D, typename T, int N> struct gelu_dx_source {
    static constexpr int n = N;
    static constexpr int ahead = sizeof(D) > sizeof(T) ? 2 : 3;
    struct raw {
        loaded<D, N> dy;
        loaded<T, N> x;
    };
    const D *dy;
    const T *x;
    T *dx;
    uint32_t *to;            /* the largest magnitude of dx, or NULL */
    mutable largest<T> amax; /* of one thread */

    __device__ __forceinline__ void load(raw &r, int64_t at) const
    {
        r.dy.load(dy + at);
        r.x.load(x + at);
    }

    __device__ __forceinline__ void values(float (&v)[N], const raw &r, int64_t at) const
    {
        float input[N];
        vec<T, N> y;
        r.dy.floats(v);
        r.x.floats(input);
#pragma unroll
        for (int i = 0; i < N; i++)
            y.at[i] = from_float<T>(gelu_dx()(v[i], input[i], 0.f));
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = to_float(y.at[i]);
        *reinterpret_cast<vec<T, N> *>(dx + at) = y;
        amax.see(y);
    }

    __device__ __forceinline__ void end(void) const
    {
        leave_largest(to, amax);
    }
};

template <typename D, typename T> void gelu_dx_with_sums(const struct ckpt_kernel_args *a)
{
    const struct ckpt_desc *d = &a->in[1].desc;
    const int64_t rows = column_rows(d), cols = d->shape[d->ndim - 1];
    const D *dy = static_cast<const D *>(a->in[0].data);
    const T *x = static_cast<const T *>(a->in[1].data);
    T *dx = static_cast<T *>(a->out[0].data);
    float *sums = static_cast<float *>(extra_output(a, EXTRA_SUMS));
    uint32_t *amax = largest_begin(a);
    if (aligned16(dy) && aligned16(x) && aligned16(dx) && cols % wide<T>::n == 0)
        column_sums(sums, gelu_dx_source<D, T, wide<T>::n>{dy, x, dx, amax}, rows, cols, false,
                    a->workspace, stream_of(a));
    else
        column_sums(sums, gelu_dx_source<D, T, 1>{dy, x, dx, amax}, rows, cols, false, a->workspace,
                    stream_of(a));
}

/* Maps one operand; also writes the largest magnitude of the result if it is requested. */
template <typename F> int map_one(const struct ckpt_kernel_args *a, const F &f)
{
    return cuda_map<map_types<bf16, bf16>, map_types<float, float>>(a, &a->out[0], 1, a->in, f);
}

template <typename F> int activate(const struct ckpt_kernel_args *a)
{
    uint32_t *amax = largest_begin(a);
    return amax ? map_one(a, map_largest<F>{F(), amax}) : map_one(a, F());
}

/* The same for a gradient and an input. */
template <typename F> int map_two(const struct ckpt_kernel_args *a, const F &f)
{
    return cuda_map<map_types<bf16, bf16, bf16>, map_types<bf16, float, bf16>,
                    map_types<float, float, float>>(a, &a->out[0], 2, a->in, f);
}

template <typename F> int derive(const struct ckpt_kernel_args *a)
{
    uint32_t *amax = largest_begin(a);
    return amax ? map_two(a, map_largest<F>{F(), amax}) : map_two(a, F());
}

} // namespace

int cuda_gelu(const struct ckpt_kernel_args *a)
{
    return activate<gelu>(a);
}

static int gelu_dx_and_sums(const struct ckpt_kernel_args *a)
{
    const bool narrow = a->in[1].desc.dtype == CKPT_BF16;
    if (narrow && a->in[0].desc.dtype == CKPT_BF16)
        gelu_dx_with_sums<bf16, bf16>(a);
    else if (narrow)
        gelu_dx_with_sums<float, bf16>(a);
    else
        gelu_dx_with_sums<float, float>(a);
    return launched();
}

/* Operands with gaps are read by the general kernel; dx, which has none beside sums, is read again.
 */
static int gelu_dx_then_sums(const struct ckpt_kernel_args *a)
{
    const int rc = derive<gelu_dx>(a);
    struct ckpt_kernel_args of = *a;
    of.in = &a->out[0];
    of.out = &a->out[extra_index(a->extra, a->n_out, EXTRA_SUMS)];
    of.n_in = of.n_out = 1;
    of.extra = 0;
    of.accumulate = false;
    return rc ? rc : cuda_column_sum(&of);
}

int cuda_gelu_dx(const struct ckpt_kernel_args *a)
{
    if (!extra_output(a, EXTRA_SUMS))
        return derive<gelu_dx>(a);
    if (desc_is_dense(&a->in[0].desc) && desc_is_dense(&a->in[1].desc))
        return gelu_dx_and_sums(a);
    return gelu_dx_then_sums(a);
}

int cuda_silu(const struct ckpt_kernel_args *a)
{
    return activate<silu>(a);
}

int cuda_silu_dx(const struct ckpt_kernel_args *a)
{
    return derive<silu_dx>(a);
}
