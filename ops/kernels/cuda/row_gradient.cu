/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of layer norm, RMS norm, modulation and gated residual.  The gradients of weight,
 * shift, scale and gate are sums over the rows that share such a vector.  They are computed in the
 * pass that computes dx: each chunk of rows yields a partial sum, and a second kernel adds these
 * (ops/kernels/cuda/workspace.h defines the partition).
 */
#include <string.h>
#include "kernels/cuda/gradient_rows.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row_sums.cuh"
#include "kernels/cuda/workspace.h"

constexpr int ELEMENTS = 512; /* threads of a block of gradient_elements */

/* Rows of any width, alignment and dtypes: one block per unit; each thread handles every
 * ELEMENTS-th column, whose sums are in memory. */
template <int KIND>
static __global__ void __launch_bounds__(ELEMENTS)
    gradient_elements(const __grid_constant__ struct rows r, const __grid_constant__ struct cut cut,
                      int64_t c, bool half, bool dy_half, float *partial, float *dx_partial,
                      uint32_t *amax_to)
{
    constexpr int SUMS = traits<KIND>::sums;
    largest<float> amax(amax_to);
    for (int64_t unit = blockIdx.x; unit < cut.units; unit += gridDim.x) {
        int64_t end, first = unit_rows(cut, unit, &end);
        float *to[2], *dx_to = dx_partial ? dx_partial + blockIdx.x * c : nullptr;
        for (int s = 0; s < SUMS; s++)
            to[s] = unit_sum<KIND>(r, cut, unit, first, c, partial, s);
        for (int64_t row = first; row < end; row++) {
            char *at[traits<KIND>::operands];
            float2 stats = make_float2(0.f, 1.f), mean = make_float2(0.f, 0.f);
            rows_seek(r, row, at);
            if constexpr (traits<KIND>::norm) {
                stats = stats_of<KIND>(at[traits<KIND>::stats]);
                for (int64_t j = threadIdx.x; j < c; j += ELEMENTS) {
                    float v = SUMS ? row_get(at[VECTOR], j, half) : 0.f;
                    float g = scaled<KIND>(row_get(at[1], j, dy_half), v);
                    mean.x += traits<KIND>::centred ? g : 0.f;
                    mean.y += g * normalized<KIND>(row_get(at[0], j, half), stats);
                }
                mean.x = block_sum(mean.x) / (float)c;
                mean.y = block_sum(mean.y) / (float)c;
            }
            for (int64_t j = threadIdx.x; j < c; j += ELEMENTS) {
                float v = SUMS ? row_get(at[VECTOR], j, half) : 0.f, d = row_get(at[1], j, dy_half);
                float x = normalized<KIND>(row_get(at[0], j, half), stats);
                float before = at[ADDEND] ? row_get(at[ADDEND], j, half) : 0.f;
                float dx = gradient_of<KIND>(scaled<KIND>(d, v), x, stats.y, mean) + before;
                row_put(at[2], j, dx, half, amax);
                if constexpr (SUMS == 2)
                    to[0][j] = d + (row == first ? 0.f : to[0][j]);
                float n = KIND == RMS ? rounded(x, half) : x;
                if constexpr (SUMS > 0)
                    to[SUMS - 1][j] = d * n + (row == first ? 0.f : to[SUMS - 1][j]);
                if (dx_to) {
                    bool begins = row == first && unit == blockIdx.x;
                    dx_to[j] = rounded(dx, half) + (begins ? 0.f : dx_to[j]);
                }
            }
        }
    }
    leave_largest(amax_to, amax);
}

/* The arguments of a launch. */
struct launch {
    const struct ckpt_kernel_args *a;
    struct rows r;
    struct cut cut;
    int64_t c, n; /* elements and pieces of a row */
    unsigned blocks;
    float *partial, *dx_partial; /* dx_partial is NULL if no sums of dx are requested */
    uint32_t *to;
};

/* Bytes of shared memory: the ring, which is reused for the sums of the groups at the end. */
template <typename T, int P, int KIND> static constexpr int shared_bytes(void)
{
    constexpr int sums = 4 * shape<P, KIND>::threads * P * piece<T>::n;
    constexpr int rows = ring<T, P, KIND>::BYTES;
    return sums > rows ? sums : rows;
}

/* Returns false if the device does not have enough shared memory. */
template <typename T, int P, int KIND> static bool launch_rows(const struct launch *l)
{
    const int threads = 32 * (int)((l->n + 32 * P - 1) / (32 * P)), last = l->r.ndim - 1;
    const int groups = (int)min_i64(MOST_GROUPS, shape<P, KIND>::threads / threads);
    constexpr int bytes = shared_bytes<T, P, KIND>();
    struct steps step = {};
    for (int k = 0; k < VECTOR; k++)
        step.row[k] = (int)l->r.step[k][last];
    step.stats = (int)l->r.step[l->r.n - 1][last];
    auto kernel = gradient_rows<T, P, KIND, false>;
    if constexpr (traits<KIND>::dx_sums)
        kernel = l->dx_partial ? gradient_rows<T, P, KIND, true> : kernel;
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) !=
        cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    kernel<<<l->blocks, (unsigned)(threads * groups), bytes, stream_of(l->a)>>>(
        l->r, l->cut, step, (int)l->n, threads, l->partial, l->dx_partial, l->to);
    return true;
}

/* Launches the kernel for rows of pieces; returns false if none fits. */
template <typename T, int KIND> static bool launch_pieces(const struct launch *l)
{
    if (l->n <= 32 * FEW)
        return launch_rows<T, 1, KIND>(l);
    if (l->n <= 2 * 32 * MANY)
        return launch_rows<T, 2, KIND>(l);
    return l->n <= 3 * 32 * MANY && launch_rows<T, 3, KIND>(l);
}

/* Do all row strides, in bytes, fit in an int? */
static bool steps_are_small(const struct rows *r)
{
    for (int k = 0; k < r->n; k++)
        if (r->step[k][r->ndim - 1] != (int)r->step[k][r->ndim - 1])
            return false;
    return true;
}

/* Partitions the rows and places the partial sums in the workspace. */
static void cut_rows(struct launch *l, bool pieces, int sums, bool dx_sums)
{
    struct cut *cut = &l->cut;
    const int64_t vectors = l->r.count / cut->each;
    cut->chunk = cuda_row_chunk(cuda_row_wave(l->c, pieces), vectors, cut->each);
    cut->chunks = (cut->each + cut->chunk - 1) / cut->chunk;
    cut->units = cut->chunks * vectors;
    l->blocks = (unsigned)min_i64(cut->units, CUDA_ROW_BLOCKS);
    l->partial = (float *)l->a->workspace;
    l->dx_partial = dx_sums ? l->partial + (cut->chunks > 1 ? cut->units * sums * l->c : 0) : NULL;
}

template <int KIND>
static void launch_gradient(struct launch *l, bool half, bool dy_half, bool dx_sums)
{
    const bool pieces = half == dy_half && steps_are_small(&l->r) &&
                        rows_in_pieces(&l->r, traits<KIND>::stats, l->c, half);
    cut_rows(l, true, traits<KIND>::sums, dx_sums);
    if (pieces && (half ? launch_pieces<bf16, KIND>(l) : launch_pieces<float, KIND>(l)))
        return;
    cut_rows(l, false, traits<KIND>::sums, dx_sums);
    gradient_elements<KIND><<<l->blocks, ELEMENTS, 0, stream_of(l->a)>>>(
        l->r, l->cut, l->c, half, dy_half, l->partial, l->dx_partial, l->to);
}

/* x: the operand of dx; v: the vector. in[0] is dy and out[0] is dx; the sums for the vectors
 * follow.  The view after stats is the addend of a norm, if there is
 * one. */
template <int KIND>
static int gradient(const struct ckpt_kernel_args *a, const struct ckpt_view *x,
                    const struct ckpt_view *v, const struct ckpt_view *stats)
{
    constexpr int SUMS = traits<KIND>::sums;
    float *dx_sums = static_cast<float *>(extra_output(a, EXTRA_SUMS));
    struct launch l = {a};
    struct rows *r = &l.r;
    struct cut *cut = &l.cut;
    const bool half = view_half(x);
    rows_begin(r, x);
    rows_operand(r, &a->in[0]);
    rows_operand(r, &a->out[0]);
    if (stats && stats[1].data)
        rows_operand(r, &stats[1]);
    else
        rows_absent(r);
    if (v)
        rows_operand(r, v);
    for (int s = 0; s < SUMS; s++)
        rows_operand(r, &a->out[1 + s]);
    if (stats)
        rows_operand(r, stats);
    if (SUMS)
        cut->each = rows_finish_reduction(r, VECTOR + 1);
    else
        rows_finish(r);
    cut->each = SUMS ? cut->each : r->count;
    l.c = row_width(x);
    l.n = l.c / (half ? 8 : 4);
    l.to = largest_begin(a);
    launch_gradient<KIND>(&l, half, view_half(&a->in[0]), dx_sums != NULL);
    const struct total dx = {l.dx_partial, dx_sums, l.blocks};
    const bool chunks = SUMS && cut->chunks > 1;
    if (chunks || dx_sums)
        launch_add_chunks(r, cut->each, cut->chunks, l.c, VECTOR + 1, chunks ? SUMS : 0, l.partial,
                          dx, stream_of(a));
    return launched();
}

int cuda_layer_norm_dx(const struct ckpt_kernel_args *a)
{
    return gradient<NORM>(a, &a->in[1], NULL, &a->in[2]);
}

int cuda_modulate_dx(const struct ckpt_kernel_args *a)
{
    return gradient<MODULATE>(a, &a->in[1], &a->in[2], NULL);
}

int cuda_gated_residual_dx(const struct ckpt_kernel_args *a)
{
    return gradient<GATE>(a, &a->in[2], &a->in[1], NULL);
}

int cuda_layer_norm_modulate_dx(const struct ckpt_kernel_args *a)
{
    return gradient<NORM_MODULATE>(a, &a->in[1], &a->in[2], &a->in[3]);
}

int cuda_layer_norm_rows_affine_dx(const struct ckpt_kernel_args *a)
{
    const int ndim = a->in[1].desc.ndim;
    struct ckpt_view w = rows_vector(a->in[2], ndim);
    struct ckpt_view out[5] = {};
    struct ckpt_kernel_args spread = *a;
    memcpy(out, a->out, (size_t)a->n_out * sizeof *out);
    for (int i = 1; i < 3; i++)
        out[i] = rows_vector(out[i], ndim);
    spread.out = out;
    return gradient<NORM_AFFINE>(&spread, &a->in[1], &w, &a->in[3]);
}

int cuda_rms_norm_rows_dx(const struct ckpt_kernel_args *a)
{
    const int ndim = a->in[1].desc.ndim;
    struct ckpt_view w = rows_vector(a->in[2], ndim);
    struct ckpt_view out[4] = {};
    struct ckpt_kernel_args spread = *a;
    memcpy(out, a->out, (size_t)a->n_out * sizeof *out);
    out[1] = rows_vector(out[1], ndim);
    spread.out = out;
    return gradient<RMS>(&spread, &a->in[1], &w, &a->in[3]);
}
