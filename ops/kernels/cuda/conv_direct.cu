/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions without cuDNN, for shapes that cuDNN refuses: matrix products in fp32 that gather
 * one operand element by element (implicit GEMM, see struct conv_gather).  Each group is a product
 * of its own; one launch computes all.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/conv_direct.h"
#include "kernels/cuda/workspace.h"

namespace
{

enum { TILE = CUDA_CONV_TILE, DEPTH = 16, THREADS = 256, EACH = TILE / 16 };

/* The product: y = gathered x w^T, dx = gathered dy w, dw = dy^T gathered x. */
enum kind { FORWARD, DX, DW };

struct product {
    struct conv_gather g;
    int64_t rows, cols, inner;    /* of the result; length of the summed axis */
    int64_t across, splits, part; /* tiles in a row; parts of the sum, and their length */
    int64_t tiles, groups;        /* tiles of one part */
    int64_t k;                    /* channels of y per group */
    int64_t pitch, left_pitch;    /* elements from one row to the next, of the result and of the
                                     operand that is not gathered */
    int64_t left_step, right_step, out_step, bias_step; /* elements from one group to the next */
    int taps;
};

/* Element (row, col) of the gathered matrix; source points to the first channel of the group. */
template <typename T>
__device__ float gathered(const struct conv_gather &g, const T *source, int64_t row, int col)
{
    int places = (int)(g.positions[0] * g.positions[1] * g.positions[2]);
    int64_t sample = row / places;
    int position = (int)(row - sample * places), channels = (int)g.channels;
    int tap = col / channels, channel = col - tap * channels;
    int64_t at = 0, step = 1;
#pragma unroll
    for (int i = 2; i >= 0; i--) {
        int positions = (int)g.positions[i], taps = (int)g.taps[i], divide = (int)g.divide[i];
        int64_t p = position % positions * g.scale[i] + g.shift[i] + tap % taps * g.turn[i];
        position /= positions;
        tap /= taps;
        if (p < 0 || p % divide)
            return 0.f;
        p /= divide;
        if (p >= g.source[i])
            return 0.f;
        at += p * step;
        step *= g.source[i];
    }
    return to_float(source[(sample * step + at) * g.pitch + channel]);
}

template <typename T, int KIND>
__device__ float left(const struct product &p, const T *a, int64_t row, int64_t k)
{
    if (row >= p.rows || k >= p.inner)
        return 0.f;
    if (KIND == DW)
        return to_float(a[k * p.left_pitch + row]);
    return gathered(p.g, a, row, (int)k);
}

template <typename T, int KIND>
__device__ float right(const struct product &p, const T *b, int64_t k, int64_t col)
{
    if (col >= p.cols || k >= p.inner)
        return 0.f;
    if (KIND == FORWARD)
        return to_float(b[col * p.inner + k]);
    if (KIND == DW)
        return gathered(p.g, b, k, (int)col);
    int tap = (int)k / (int)p.k, from = (int)k - tap * (int)p.k;
    return to_float(b[((int64_t)from * p.taps + tap) * p.cols + col]);
}

/*
 * A block computes one tile of the result over one part of the sum, a thread 4 x 4 elements.  Tiles
 * are loaded along the axis that is dense in memory: the summed one, or rows or columns of the
 * result.
 */
template <typename T, int KIND>
__device__ void load_tiles(const struct product &p, const T *a, const T *b, int64_t row,
                           int64_t col, int64_t k, int64_t end, float (&as)[DEPTH][TILE + 1],
                           float (&bs)[DEPTH][TILE + 1])
{
    for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
        int deep = KIND == DW ? i / TILE : i % DEPTH, wide = KIND == DW ? i % TILE : i / DEPTH;
        as[deep][wide] = k + deep < end ? left<T, KIND>(p, a, row + wide, k + deep) : 0.f;
        deep = KIND == FORWARD ? i % DEPTH : i / TILE;
        wide = KIND == FORWARD ? i / DEPTH : i % TILE;
        bs[deep][wide] = k + deep < end ? right<T, KIND>(p, b, k + deep, col + wide) : 0.f;
    }
}

template <typename T, typename R, int KIND>
__global__ void __launch_bounds__(THREADS)
    multiply(const __grid_constant__ struct product p, const T *a, const T *b, const T *bias,
             R *out, bool add)
{
    __shared__ float as[DEPTH][TILE + 1], bs[DEPTH][TILE + 1];
    int64_t split = blockIdx.x % p.splits, tile = blockIdx.x / p.splits, group = 0;
    if (p.groups > 1) {
        group = tile / p.tiles;
        tile -= group * p.tiles;
    }
    a += group * p.left_step;
    b += group * p.right_step;
    int64_t row = tile / p.across * TILE, col = tile % p.across * TILE;
    int64_t end = min(p.inner, (split + 1) * p.part);
    int r = threadIdx.x / 16, c = threadIdx.x % 16;
    float sum[EACH][EACH] = {};
    for (int64_t k = split * p.part; k < end; k += DEPTH) {
        load_tiles<T, KIND>(p, a, b, row, col, k, end, as, bs);
        __syncthreads();
#pragma unroll
        for (int deep = 0; deep < DEPTH; deep++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    sum[i][j] += as[deep][r + 16 * i] * bs[deep][c + 16 * j];
        __syncthreads();
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            int64_t y = row + r + 16 * i, x = col + c + 16 * j;
            if (y >= p.rows || x >= p.cols)
                continue;
            int64_t at = (split * p.groups * p.rows + y) * p.pitch + group * p.out_step + x;
            float value = sum[i][j] + (bias ? to_float(bias[group * p.bias_step + x]) : 0.f);
            out[at] = from_float<R>(value + (add ? to_float(out[at]) : 0.f));
        }
}

/* A thread adds the parts of one element, in order. */
__global__ void add_parts(const float *part, int64_t splits, int64_t n, float *out, bool add)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float sum = 0.f;
    for (int64_t s = 0; s < splits; s++)
        sum += part[s * n + i];
    out[i] = add ? out[i] + sum : sum;
}

struct product product_of(const struct conv_shape *s, enum kind kind)
{
    const int64_t taps = conv_volume(s->kernel), c = conv_group_c(s), k = conv_group_k(s);
    struct product p = {};
    p.taps = (int)taps;
    p.k = k;
    p.groups = s->groups;
    p.g = kind == DX ? conv_gather_dy(s) : conv_gather_x(s);
    p.rows = kind == DW ? k : s->n * conv_volume(kind == DX ? s->in : s->out);
    p.cols = kind == FORWARD ? k : kind == DX ? c : taps * c;
    p.inner = kind == DW ? s->n * conv_volume(s->out) : taps * (kind == DX ? k : c);
    p.across = (p.cols + TILE - 1) / TILE;
    p.tiles = (p.rows + TILE - 1) / TILE * p.across;
    p.splits = kind == DW ? cuda_conv_dw_splits(s) : 1;
    p.part = (p.inner + p.splits - 1) / p.splits;
    p.pitch = kind == FORWARD ? s->k : kind == DX ? s->c : p.cols;
    p.left_pitch = s->k;
    p.left_step = kind == FORWARD ? c : k; /* channels of x, channels of dy */
    p.right_step = kind == DW ? c : k * taps * c;
    p.out_step = kind == FORWARD ? k : kind == DX ? c : k * taps * c;
    p.bias_step = k;
    return p;
}

template <typename T, typename R, int KIND>
int run(const struct ckpt_kernel_args *a, const struct conv_shape *s, const void *bias, void *out,
        bool add)
{
    struct product p = product_of(s, (enum kind)KIND);
    int64_t blocks = p.tiles * p.groups * p.splits;
    multiply<T, R, KIND><<<(unsigned)blocks, THREADS, 0, stream_of(a)>>>(
        p, (const T *)a->in[0].data, (const T *)a->in[1].data, (const T *)bias, (R *)out, add);
    return launched();
}

/* A thread converts one element of a weight gradient to fp32. */
__global__ void widen(const bf16 *from, float *to, int64_t n, bool add)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        to[i] = add ? to[i] + to_float(from[i]) : to_float(from[i]);
}

} // namespace

int cuda_conv_direct(const struct ckpt_kernel_args *a, const struct conv_shape *s)
{
    if (a->in[0].desc.dtype == CKPT_BF16)
        return run<bf16, bf16, FORWARD>(a, s, a->in[2].data, a->out[0].data, false);
    return run<float, float, FORWARD>(a, s, a->in[2].data, a->out[0].data, false);
}

int cuda_conv_dx_direct(const struct ckpt_kernel_args *a, const struct conv_shape *s)
{
    if (a->in[0].desc.dtype == CKPT_BF16)
        return run<bf16, bf16, DX>(a, s, NULL, a->out[0].data, false);
    return run<float, float, DX>(a, s, NULL, a->out[0].data, false);
}

int cuda_conv_dw_direct(const struct ckpt_kernel_args *a, const struct conv_shape *s)
{
    int64_t splits = cuda_conv_dw_splits(s), n = cuda_conv_weights(s);
    float *part = (float *)a->workspace, *out = (float *)a->out[0].data;
    void *to = splits > 1 ? part : out;
    bool add = a->accumulate && splits == 1;
    int rc = a->in[0].desc.dtype == CKPT_BF16 ? run<bf16, float, DW>(a, s, NULL, to, add)
                                              : run<float, float, DW>(a, s, NULL, to, add);
    return rc || splits == 1 ? rc : cuda_conv_add_parts(a, part, splits, n);
}

int cuda_conv_add_parts(const struct ckpt_kernel_args *a, const float *part, int64_t parts,
                        int64_t n)
{
    add_parts<<<(unsigned)((n + 255) / 256), 256, 0, stream_of(a)>>>(
        part, parts, n, (float *)a->out[0].data, a->accumulate);
    return launched();
}

int cuda_conv_widen(const struct ckpt_kernel_args *a)
{
    int64_t n = desc_numel(&a->out[0].desc);
    widen<<<(unsigned)((n + 255) / 256), 256, 0, stream_of(a)>>>(
        (const bf16 *)a->workspace, (float *)a->out[0].data, n, a->accumulate);
    return launched();
}
