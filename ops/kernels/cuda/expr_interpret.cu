/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel that interprets the program of an expression, one element per thread.  Values are in
 * local memory, so it is several times slower than a kernel compiled for the program.  It is used
 * where NVRTC is missing.
 */
#include <string.h>
#include "kernels/cuda/expr_args.cuh"
#include "kernels/cuda/expr_kernel.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/largest.cuh"

namespace
{

/* Together with struct expr_args it fits in 4 KiB, the size of kernel arguments on every device. */
struct program {
    int n_nodes, n_in, second, per_row; /* as in struct expr */
    unsigned char dtype[EXPR_POINTERS]; /* of the result and the operands */
    struct expr_node node[EXPR_LIMIT];
};

__device__ float load(const void *data, long long bytes, unsigned char dtype)
{
    const char *at = static_cast<const char *>(data) + bytes;
    if (dtype == CKPT_BF16)
        return to_float(*reinterpret_cast<const bf16 *>(at));
    if (dtype == CKPT_F32)
        return *reinterpret_cast<const float *>(at);
    return (float)*reinterpret_cast<const int32_t *>(at);
}

__device__ void store(void *data, long long bytes, unsigned char dtype, float v)
{
    char *at = static_cast<char *>(data) + bytes;
    if (dtype == CKPT_BF16)
        *reinterpret_cast<bf16 *>(at) = from_float<bf16>(v);
    else if (dtype == CKPT_F32)
        *reinterpret_cast<float *>(at) = v;
    else
        *reinterpret_cast<int32_t *>(at) = (int32_t)v; /* saturates; NaN is 0 */
}

__device__ float apply(const struct expr_node &n, float x, float y, float z)
{
#define CALL1(f) expr_##f(x, n.p, n.q)
#define CALL2(f) expr_##f(x, y)
#define CALL3(f) expr_##f(x, y, z)
#define X(code, function, arguments, flops)                                                        \
    case EXPR_##code:                                                                              \
        return CALL##arguments(function);
    switch (n.code) {
        EXPR_FUNCTIONS(X)
    default:
        return n.p; /* a constant */
    }
#undef X
}

__device__ bool is_row_node(const struct expr_node &n)
{
    return n.code == EXPR_SUM || n.code == EXPR_MAX;
}

__device__ long long place_of(const struct expr_args &a, const long long *at, int n_in, int leaf)
{
    return at[n_in + 1 + leaf] + a.place[leaf];
}

/* The value of node `last` at position i, with the row's values before it; sets *result to the
 * offset of the result.  Stores the second result, if there is one. */
__device__ float evaluate(const struct expr_args &a, const struct program &p, unsigned i,
                          const float *row, int last, long long *result)
{
    long long at[EXPR_STEPS];
    float value[EXPR_LIMIT];
    int leaf = 0;
    expr_seek(a, i, at);
    for (int k = 0; k <= last; k++) {
        const struct expr_node &n = p.node[k];
        if (n.code == EXPR_INPUT)
            value[k] = load(a.data[n.arg[0] + 1], at[n.arg[0] + 1], p.dtype[n.arg[0] + 1]);
        else if (n.code == EXPR_INDEX)
            value[k] = (float)place_of(a, at, p.n_in, leaf++);
        else if (n.code == EXPR_UNIFORM)
            value[k] = expr_uniform(a, place_of(a, at, p.n_in, leaf++), n.stream);
        else if (is_row_node(n))
            value[k] = *row++;
        else
            value[k] = apply(n, value[n.arg[0]], value[n.arg[1]], value[n.arg[2]]);
    }
    *result = at[0];
    if (p.second)
        store(a.data[p.n_in + 1], at[p.n_in + 1], p.dtype[0], value[p.second - 1]);
    return value[last];
}

__global__ void __launch_bounds__(256)
    interpret(const __grid_constant__ struct expr_args a, const __grid_constant__ struct program p)
{
    unsigned i = blockIdx.x * 256 + threadIdx.x, most = 0;
    if (i < a.count) {
        long long result;
        float y = evaluate(a, p, i, NULL, p.n_nodes - 1, &result);
        store(a.data[0], result, p.dtype[0], y);
        most = expr_magnitude(p.dtype[0] == CKPT_BF16 ? to_float(from_float<bf16>(y)) : y);
    }
    if (a.largest)
        expr_leave_largest(most, a.largest);
}

/* A block handles a row. */
__global__ void __launch_bounds__(256) interpret_rows(const __grid_constant__ struct expr_args a,
                                                      const __grid_constant__ struct program p)
{
    const unsigned first = blockIdx.x * a.length;
    float row[EXPR_ROW_NODES];
    long long result;
    for (int k = 0, n = 0; k < p.n_nodes; k++) {
        const bool max = p.node[k].code == EXPR_MAX;
        float part = max ? -INFINITY : 0.f;
        if (!is_row_node(p.node[k]))
            continue;
        for (unsigned i = threadIdx.x; i < a.length; i += blockDim.x) {
            const float y = evaluate(a, p, first + i, row, p.node[k].arg[0], &result);
            part = max ? expr_larger(part, y) : __fadd_rn(part, y);
        }
        row[n++] = max ? expr_reduce_block<true>(part)
                       : __fmul_rn(p.node[k].p, expr_reduce_block<false>(part));
    }
    for (unsigned i = threadIdx.x; i < (p.per_row ? 1 : a.length); i += blockDim.x) {
        const float y = evaluate(a, p, first + i, row, p.n_nodes - 1, &result);
        if (p.per_row)
            result = (long long)blockIdx.x * (p.dtype[0] == CKPT_BF16 ? 2 : 4);
        store(a.data[0], result, p.dtype[0], y);
    }
}

} // namespace

int expr_interpret(const struct ckpt_kernel_args *args)
{
    const struct expr *e = static_cast<const struct expr *>(args->attr);
    struct program p = {};
    p.n_nodes = e->n_nodes;
    p.n_in = args->n_in;
    p.second = e->second;
    p.per_row = e->per_row;
    memcpy(p.node, e->node, (size_t)e->n_nodes * sizeof *e->node);
    p.dtype[0] = (unsigned char)args->out[0].desc.dtype;
    for (int k = 0; k < args->n_in; k++)
        p.dtype[k + 1] = (unsigned char)args->in[k].desc.dtype;
    unsigned *largest = e->largest ? largest_begin(args) : NULL;
    expr_each_part(args, 1, [&](const struct expr_args &part) {
        struct expr_args a = part;
        a.largest = largest;
        const unsigned rows = a.length ? a.count / a.length : 0;
        if (!e->reduced)
            interpret<<<blocks_of(a.count, 256), 256, 0, stream_of(args)>>>(a, p);
        else if (rows)
            interpret_rows<<<rows, expr_row_threads(a.length), 0, stream_of(args)>>>(a, p);
    });
    return launched();
}
