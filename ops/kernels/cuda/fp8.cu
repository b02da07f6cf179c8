/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit copies of a tensor.  If its largest magnitude is not known yet, one kernel finds it;
 * another makes the copies.  A block of the latter handles a tile of 128 x 128: it writes codes in
 * row order and keeps them in shared memory, from where threads read words of four columns down 16
 * rows and write 16-byte pieces of the transposed copy.  Both can apply GELU, the second also a
 * modulated norm.
 *
 * The first kernel goes from the end to the beginning, the second the other way round: what was
 * read or written last is still in the L2 cache.
 */
#include <cuda_fp8.h>
#include "core/fp8.h"
#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/expr_math.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/largest.cuh"
#include "fp8.h"

namespace
{

enum {
    THREADS = 512,
    TILE = 128,              /* rows, and columns */
    RUN = 16,                /* consecutive codes that a thread writes, in either copy */
    ACROSS = TILE / RUN,     /* threads per row of a tile */
    STEP = THREADS / ACROSS, /* rows that a block loads at once */
    RUNS = TILE / STEP,      /* runs of a thread, all loaded before the first is used */
    WARPS = THREADS / 32,
    GROUP = 4,            /* columns in a word */
    WORDS = TILE / GROUP, /* words per row of a tile */
};

/* ---- the largest magnitude ------------------------------------------------------------------- */

/* Blocks that fill a large GPU. */
enum { PARTS = 512 };

/* Computes the values that the fused op would have stored. */
template <int SOURCE, int N, typename T> __device__ __forceinline__ void apply(T *x)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        if constexpr (SOURCE == FP8_GELU)
            x[i] = from_float<T>(expr_gelu(to_float(x[i]), 0.f, 0.f));
}

/* n is a multiple of RUN, as all row lengths are. */
template <typename T, int SOURCE>
__global__ void __launch_bounds__(THREADS) find_largest(const T *x, int64_t n, uint32_t *to)
{
    constexpr int N = wide<T>::n;
    const int64_t stride = (int64_t)gridDim.x * THREADS * N;
    const T *last = x + n - N;
    largest<T> amax;
#pragma unroll 8
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; i < n; i += stride) {
        vec<T, N> v = *reinterpret_cast<const vec<T, N> *>(last - i);
        apply<SOURCE, N>(v.at);
        amax.see(v);
    }
    leave_largest(to, amax);
}

/* ---- the copies ------------------------------------------------------------------------------ */

struct copies {
    int64_t rows, cols, pitch, across; /* across: tiles per row of tiles */
    uint8_t *by_rows, *by_columns;     /* either may be NULL */
    float *scale;                      /* or NULL */
    const uint32_t *amax[FP8_PARTS];   /* the largest magnitudes of parts, or NULL */
    float *sums;                       /* column sums of each row of tiles, or NULL */
};

/* Operands of a modulated norm besides x. */
struct modulation {
    const bf16 *shift, *scale;
    const float2 *stats;
    uint32_t share[2], step[2]; /* of shift and scale: struct fp8_vector */
};

template <__nv_fp8_interpretation_t KIND>
__device__ __forceinline__ uint32_t encode(const float *x, float power)
{
    const float2 a = make_float2(x[0] * power, x[1] * power);
    const float2 b = make_float2(x[2] * power, x[3] * power);
    const uint32_t low = __nv_cvt_float2_to_fp8x2(a, __NV_SATFINITE, KIND);
    const uint32_t high = __nv_cvt_float2_to_fp8x2(b, __NV_SATFINITE, KIND);
    return low | high << 16;
}

/* The factor of the values, NaN if one of them is infinite or NaN.  The first block writes the
 * inverse, the scale of the codes. */
template <__nv_fp8_interpretation_t KIND> __device__ __forceinline__ float power_of(const copies &c)
{
    uint32_t amax = *c.amax[0];
#pragma unroll
    for (int i = 1; i < FP8_PARTS; i++)
        amax = c.amax[i] ? max(amax, *c.amax[i]) : amax;
    const bool odd = fp8_is_odd(amax);
    const int k = odd ? 0 : fp8_exponent(amax, KIND == __NV_E4M3 ? FP8_E4M3_TOP : FP8_E5M2_TOP);
    const float nan = __uint_as_float(0x7fc00000u);
    if (c.scale && blockIdx.x == 0 && threadIdx.x == 0)
        *c.scale = odd ? nan : __uint_as_float(fp8_power_bits(-k));
    return odd ? nan : __uint_as_float(fp8_power_bits(k));
}

/* A run of elements in the format of memory. */
template <typename T> struct run {
    static constexpr int N = wide<T>::n, VECTORS = RUN / N;
    uint4 raw[VECTORS];

    /* Loads with a hint that the data is not read again. */
    __device__ __forceinline__ void load(const T *p)
    {
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            raw[i] = __ldcs(reinterpret_cast<const uint4 *>(p) + i);
    }

    template <int SOURCE> __device__ __forceinline__ void apply_source()
    {
        apply<SOURCE, RUN>(reinterpret_cast<T *>(raw));
    }

    template <__nv_fp8_interpretation_t KIND>
    __device__ __forceinline__ void codes(uint32_t (&word)[RUN / GROUP], float power) const
    {
        const T *x = reinterpret_cast<const T *>(raw);
#pragma unroll
        for (int i = 0; i < RUN / GROUP; i++) {
            float v[GROUP];
#pragma unroll
            for (int k = 0; k < GROUP; k++)
                v[k] = to_float(x[i * GROUP + k]);
            word[i] = encode<KIND>(v, power);
        }
    }
};

/*
 * The index in shared memory of word `word` of row `row` of a tile.  Rows are rotated against each
 * other so that neither the writers (four rows of eight runs a warp) nor the readers (four words of
 * every 16th row) have bank conflicts.
 */
__device__ __forceinline__ int tile_index(int row, int word)
{
    return row * WORDS + (word + row + row / RUN * GROUP) % WORDS;
}

/* A thread's part of a tile: the row and column in the tensor where its first run begins.  Its
 * other runs are STEP rows apart. */
struct mine {
    int64_t row, col;

    __device__ __forceinline__ bool has(const copies &c, int i) const
    {
        return row + i * STEP < c.rows && col < c.cols;
    }

    __device__ __forceinline__ int64_t at(const copies &c, int i) const
    {
        return (row + i * STEP) * c.cols + col;
    }
};

/* Writes the codes of a tile to the row copy and to shared memory, zeros outside of the tensor. */
template <typename T, __nv_fp8_interpretation_t KIND>
__device__ __forceinline__ void store_rows(const run<T> (&x)[RUNS], const copies &c, const mine &m,
                                           float power, uint32_t *tile)
{
    const int word = threadIdx.x % ACROSS * (RUN / GROUP);
#pragma unroll
    for (int i = 0; i < RUNS; i++) {
        uint32_t w[RUN / GROUP] = {};
        if (m.has(c, i)) {
            x[i].template codes<KIND>(w, power);
            if (c.by_rows)
                *reinterpret_cast<uint4 *>(c.by_rows + m.at(c, i)) =
                    make_uint4(w[0], w[1], w[2], w[3]);
        }
#pragma unroll
        for (int k = 0; k < RUN / GROUP && c.by_columns; k++)
            tile[tile_index((int)threadIdx.x / ACROSS + i * STEP, word + k)] = w[k];
    }
}

/* Gathers byte k of each of four words, that of the first word lowest. */
__device__ __forceinline__ uint32_t gather_bytes(const uint32_t *w, int k)
{
    const uint32_t pick = (uint32_t)k | (uint32_t)(k + 4) << 4;
    const uint32_t low = __byte_perm(w[0], w[1], pick), high = __byte_perm(w[2], w[3], pick);
    return __byte_perm(low, high, 0x5410);
}

/* Eight adjacent lanes of a warp write the pieces of one column: 128 bytes of a row of the
 * transposed copy. */
__device__ __forceinline__ void store_columns(const copies &c, int64_t row, int64_t col,
                                              const uint32_t *tile)
{
    const int piece = threadIdx.x % ACROSS, group = threadIdx.x / ACROSS;
    const int64_t first = row + piece * RUN, at = col + group * GROUP;
    uint32_t w[RUN];
    if (group >= WORDS || first >= c.pitch || at >= c.cols)
        return;
#pragma unroll
    for (int i = 0; i < RUN; i++)
        w[i] = tile[tile_index(piece * RUN + i, group)];
#pragma unroll
    for (int k = 0; k < GROUP; k++)
        *reinterpret_cast<uint4 *>(c.by_columns + (at + k) * c.pitch + first) =
            make_uint4(gather_bytes(w, k), gather_bytes(w + 4, k), gather_bytes(w + 8, k),
                       gather_bytes(w + 12, k));
}

/* Applies a modulated norm to a run of row `row`, with the arithmetic of norm.cu. */
__device__ __forceinline__ void normalise(run<bf16> &x, const modulation &m, int64_t row,
                                          int64_t col)
{
    const float2 stats = m.stats[row];
    const int64_t at[2] = {(int64_t)((uint32_t)row / m.share[0]) * m.step[0] + col,
                           (int64_t)((uint32_t)row / m.share[1]) * m.step[1] + col};
    bf16 *v = reinterpret_cast<bf16 *>(x.raw);
#pragma unroll
    for (int k = 0; k < RUN; k += 8) {
        const vec<bf16, 8> shift = *reinterpret_cast<const vec<bf16, 8> *>(m.shift + at[0] + k);
        const vec<bf16, 8> scale = *reinterpret_cast<const vec<bf16, 8> *>(m.scale + at[1] + k);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float n = __fmul_rn(__fsub_rn(to_float(v[k + i]), stats.x), stats.y);
            v[k + i] = from_float<bf16>(
                __fmaf_rn(n, __fadd_rn(1.f, to_float(scale.at[i])), to_float(shift.at[i])));
        }
    }
}

/* Adds the 2 N values of two lanes `apart` from each other; each lane gets N of the sums. */
template <int N>
__device__ __forceinline__ void add_halves(float (&half)[N], const float (&all)[2 * N], int apart)
{
    const bool upper = threadIdx.x & apart;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float other = __shfl_xor_sync(0xffffffffu, upper ? all[i] : all[i + N], apart);
        half[i] = (upper ? all[i + N] : all[i]) + other;
    }
}

/* Sums the columns of a tile: over a thread's rows, then over a warp, then over all warps. */
template <typename T>
__device__ __forceinline__ void sum_columns(const run<T> (&x)[RUNS], const copies &c, int64_t down,
                                            int64_t col, float *part)
{
    static_assert(32 / ACROSS == 4, "four lanes have runs of the same columns");
    const int lane = threadIdx.x % 32, first = lane / 8 % 2 * 8 + lane / 16 * 4;
    float mine[RUN], two[RUN / 2], four[RUN / 4];
#pragma unroll
    for (int i = 0; i < RUN; i++) {
        mine[i] = 0.f;
#pragma unroll
        for (int k = 0; k < RUNS; k++)
            mine[i] += to_float(reinterpret_cast<const T *>(x[k].raw)[i]);
    }
    add_halves(two, mine, ACROSS);
    add_halves(four, two, 2 * ACROSS);
    *reinterpret_cast<float4 *>(part + threadIdx.x / 32 * TILE + lane % ACROSS * RUN + first) =
        make_float4(four[0], four[1], four[2], four[3]);
    __syncthreads();
    if (threadIdx.x < TILE && col + threadIdx.x < c.cols) {
        float sum = 0.f;
#pragma unroll
        for (int k = 0; k < WARPS; k++)
            sum += part[k * TILE + threadIdx.x];
        c.sums[down * c.cols + col + threadIdx.x] = sum;
    }
    __syncthreads();
}

template <typename T, __nv_fp8_interpretation_t KIND, int SOURCE, bool SUMS>
__global__ void __launch_bounds__(THREADS, 2)
    make_copies(const T *x, const copies c, const modulation norm)
{
    static_assert(WORDS * ACROSS <= THREADS, "a piece of 16 rows and a word of columns a thread");
    static_assert(WARPS * TILE <= TILE * WORDS, "sums fit in the tile");
    __shared__ alignas(16) uint32_t tile[TILE * WORDS];
    const int64_t down = blockIdx.x / (uint32_t)c.across, row = down * TILE;
    const int64_t col = (blockIdx.x - down * c.across) * TILE;
    const mine m = {row + threadIdx.x / ACROSS, col + threadIdx.x % ACROSS * RUN};
    run<T> v[RUNS];
#pragma unroll
    for (int i = 0; i < RUNS; i++)
        if (m.has(c, i))
            v[i].load(x + m.at(c, i));
        else if (SUMS)
            v[i] = {};
    if constexpr (SUMS)
        sum_columns(v, c, down, col, reinterpret_cast<float *>(tile));
#pragma unroll
    for (int i = 0; i < RUNS; i++)
        if constexpr (SOURCE == FP8_NORM_MODULATE) {
            if (m.has(c, i))
                normalise(v[i], norm, m.row + i * STEP, m.col);
        } else {
            v[i].template apply_source<SOURCE>();
        }
    store_rows<T, KIND>(v, c, m, power_of<KIND>(c), tile);
    if (!c.by_columns)
        return;
    __syncthreads();
    store_columns(c, row, col, tile);
}

unsigned tiles_of(const copies &c)
{
    return (unsigned)((c.rows + TILE - 1) / TILE * c.across);
}

template <typename T, __nv_fp8_interpretation_t KIND, int SOURCE = FP8_OPERAND, bool SUMS = false>
void launch(const struct ckpt_kernel_args *a, const copies &c, const modulation &norm = {})
{
    const unsigned grid = tiles_of(c);
    make_copies<T, KIND, SOURCE, SUMS>
        <<<grid, THREADS, 0, stream_of(a)>>>(static_cast<const T *>(a->in[0].data), c, norm);
}

/* Adds the column sums of the rows of tiles. */
void add_sums(const struct ckpt_kernel_args *a, const copies &c)
{
    const int64_t down = (c.rows + TILE - 1) / TILE;
    column_sums(static_cast<float *>(extra_output(a, EXTRA_SUMS)), matrix_source<float, 4>{c.sums},
                down, c.cols, false, c.sums + down * c.cols, stream_of(a));
}

modulation modulation_of(const struct ckpt_kernel_args *a)
{
    modulation m = {};
    m.shift = static_cast<const bf16 *>(a->in[FP8_SHIFT].data);
    m.scale = static_cast<const bf16 *>(a->in[FP8_SCALE].data);
    m.stats = static_cast<const float2 *>(a->in[FP8_STATS].data);
    for (int i = 0; i < 2; i++) {
        struct fp8_vector v;
        fp8_vector_of(&a->in[FP8_SHIFT + i].desc, &a->in[FP8_FROM].desc, &v);
        m.share[i] = (uint32_t)v.share;
        m.step[i] = (uint32_t)v.step;
    }
    return m;
}

template <typename T, int SOURCE = FP8_OPERAND>
void launch_largest(const struct ckpt_kernel_args *a, uint32_t *to)
{
    find_largest<T, SOURCE><<<PARTS, THREADS, 0, stream_of(a)>>>(
        static_cast<const T *>(a->in[0].data), desc_numel(&a->in[0].desc), to);
}

} // namespace

int cuda_to_fp8_largest(const struct ckpt_kernel_args *a)
{
    const struct to_fp8_largest_attr *attr =
        static_cast<const struct to_fp8_largest_attr *>(a->attr);
    uint32_t *to = largest_zero(a, a->out[0].data);
    if (a->in[0].desc.dtype == CKPT_F32)
        launch_largest<float>(a, to);
    else if (attr->source == FP8_GELU)
        launch_largest<bf16, FP8_GELU>(a, to);
    else
        launch_largest<bf16>(a, to);
    return launched();
}

int cuda_to_fp8(const struct ckpt_kernel_args *a)
{
    const struct to_fp8_attr *attr = static_cast<const struct to_fp8_attr *>(a->attr);
    const struct ckpt_desc *x = &a->in[0].desc;
    copies c = {};
    int n = 1;
    c.cols = x->shape[x->ndim - 1];
    c.rows = desc_numel(x) / c.cols;
    c.pitch = fp8_pitch(c.rows, attr);
    c.across = (c.cols + TILE - 1) / TILE;
    c.scale = static_cast<float *>(a->out[0].data);
    c.amax[0] = static_cast<const uint32_t *>(a->in[FP8_MOST].data);
    for (int i = FP8_FROM_INPUTS; i < a->n_in; i++)
        c.amax[1 + i - FP8_FROM_INPUTS] = static_cast<const uint32_t *>(a->in[i].data);
    if (attr->copies & FP8_ROWS)
        c.by_rows = static_cast<uint8_t *>(a->out[n++].data);
    if (attr->copies & FP8_COLUMNS)
        c.by_columns = static_cast<uint8_t *>(a->out[n].data);
    if (extra_output(a, EXTRA_SUMS))
        c.sums = static_cast<float *>(a->workspace);
    const bool half = x->dtype == CKPT_BF16, e4m3 = attr->dtype == CKPT_F8E4M3;
    if (attr->source == FP8_GELU)
        launch<bf16, __NV_E4M3, FP8_GELU>(a, c);
    else if (attr->source == FP8_NORM_MODULATE)
        launch<bf16, __NV_E4M3, FP8_NORM_MODULATE>(a, c, modulation_of(a));
    else if (c.sums)
        launch<bf16, __NV_E5M2, FP8_OPERAND, true>(a, c);
    else if (half)
        e4m3 ? launch<bf16, __NV_E4M3>(a, c) : launch<bf16, __NV_E5M2>(a, c);
    else
        e4m3 ? launch<float, __NV_E4M3>(a, c) : launch<float, __NV_E5M2>(a, c);
    if (c.sums)
        add_sums(a, c);
    return launched();
}
