/* SPDX-License-Identifier: Apache-2.0 */
/* add, sub, mul, affine, where, accumulate, broadcast and cast: see cuda/map.cuh. */
#include "attr.h"
#include "kernels/cuda/copy.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/map.cuh"

namespace
{

CUDA_MAP(add, x + y)
CUDA_MAP(sub, x - y)
CUDA_MAP(mul, x *y)

struct affine {
    float a, b;
    __device__ float operator()(float x, float, float) const
    {
        return a * x + b;
    }
};

CUDA_MAP(where, x != 0.f ? y : z)

struct scale {
    float by;
    __device__ float operator()(float x, float, float) const
    {
        return by * x;
    }
};

CUDA_MAP(same, x)

} // namespace

/* The result is fp32 if the operands' dtypes differ. */
template <typename F> static int binary(const struct ckpt_kernel_args *a, const F &f)
{
    return cuda_map<map_types<bf16, bf16, bf16>, map_types<float, float, float>,
                    map_types<float, float, bf16>, map_types<float, bf16, float>>(a, &a->out[0], 2,
                                                                                  a->in, f);
}

int cuda_add(const struct ckpt_kernel_args *a)
{
    return binary(a, add());
}

int cuda_sub(const struct ckpt_kernel_args *a)
{
    return binary(a, sub());
}

int cuda_mul(const struct ckpt_kernel_args *a)
{
    return binary(a, mul());
}

int cuda_affine(const struct ckpt_kernel_args *a)
{
    const struct affine_attr *attr = static_cast<const struct affine_attr *>(a->attr);
    return cuda_map<map_types<bf16, bf16>, map_types<float, float>>(a, &a->out[0], 1, a->in,
                                                                    affine{attr->a, attr->b});
}

int cuda_where(const struct ckpt_kernel_args *a)
{
    return cuda_map<map_types<bf16, int32_t, bf16, bf16>, map_types<float, int32_t, float, float>>(
        a, &a->out[0], 3, a->in, where());
}

static int convert(const struct ckpt_kernel_args *a, const struct ckpt_view *x)
{
    if (x->desc.dtype == a->out[0].desc.dtype)
        return cuda_copy_view(a, &a->out[0], x);
    return cuda_map<map_types<bf16, float>, map_types<float, bf16>>(a, &a->out[0], 1, x, same());
}

/* The first contribution sets the sum, so it need not be cleared first. */
int cuda_accumulate(const struct ckpt_kernel_args *a)
{
    if (!a->accumulate)
        return convert(a, &a->in[1]);
    return cuda_map<map_types<float, float, float>, map_types<float, float, bf16>>(a, &a->out[0], 2,
                                                                                   a->in, add());
}

int cuda_broadcast(const struct ckpt_kernel_args *a)
{
    float by = static_cast<const struct broadcast_attr *>(a->attr)->scale;
    return cuda_map<map_types<bf16, bf16>, map_types<float, float>, map_types<bf16, float>,
                    map_types<float, bf16>>(a, &a->out[0], 1, a->in, scale{by});
}

int cuda_cast(const struct ckpt_kernel_args *a)
{
    return convert(a, &a->in[0]);
}
