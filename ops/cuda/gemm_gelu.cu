/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with GELU or its gradient in their epilogue (gemm_gelu.h, gemm_hopper.cuh).
 *
 * A warp rounds its sums, which frees half of their registers, maps 16 rows and 64 columns at a
 * time and has them stored by box copies from places of its own, so that warps do not wait for each
 * other.  Going backward pre comes to such a place beforehand and dpre takes its place.  The same
 * warps of the two warpgroups share these, as only one of them has an epilogue at a time: whoever
 * is done with a place lets the other one's next box come there.
 *
 * Tried and slower (an H100, 13,800 x 1,152 x 4,608 backward, 0.301 ms): sums over rows as products
 * of mma.sync with ones, 0.316; with these, lines stored by warps instead of box copies, 0.333.
 *
 * Compiled for sm_90a alone, since PTX of these instructions fits no other device.
 */
#include "cuda/column_sum.cuh"
#include "cuda/expr_math.cuh"
#include "cuda/gemm_gelu.h"
#include "cuda/gemm_hopper.cuh"
#include "cuda/largest.cuh"
#include "cuda/workspace.h"

extern __shared__ __align__(1024) char gemm_shared[];

namespace
{

constexpr int WARPS = 4; /* of a warpgroup */

static_assert(GEMM_ROWS == CUDA_GELU_ROWS && GEMM_PAIR == 2, "the scratch for sums, and tiles");

/* Rows of the warp's box number m, one for each 64 rows. */
__device__ __forceinline__ int row_of(const struct gemm_tile &tile, int m, int warp)
{
    return tile.row + m * 64 + warp * GEMM_WARP_ROWS;
}

/* A lane's rows of four 8 x 8 matrices of a box each: units 2n and 2n + 1, upper and lower 8 rows.
 * Their places in shared memory, to which a box's distance from the first one is added. */
struct matrix_rows {
    uint32_t at[4];

    __device__ __forceinline__ explicit matrix_rows(const gemm_box *first)
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int n = 0; n < 4; n++)
            at[n] = shared_address(&first->row[lane % 16][(2 * n + lane / 16) ^ lane % 8]);
    }

    __device__ __forceinline__ void take(uint32_t (&x)[4], int box, int n) const
    {
        load_matrix4(x, at[n] + box * (int)sizeof(gemm_box));
    }

    __device__ __forceinline__ void put(int box, int n, const uint32_t (&x)[4]) const
    {
        store_matrix4(at[n] + box * (int)sizeof(gemm_box), x[0], x[1], x[2], x[3]);
    }
};

/* Until the lane's stores but N batches have been read. */
template <int N> __device__ __forceinline__ void wait_for_stores(void)
{
    if (threadIdx.x % 32 == 0)
        stores_read<N>();
    __syncwarp();
}

/* ---- forward --------------------------------------------------------------------------------- */

struct forward_args {
    struct gemm_sizes sizes;
    const bf16 *bias;
    bool has_pre, has_post;
    const float *scale[2]; /* of 8-bit operands */
    uint32_t *largest;     /* magnitude of GELU of a result of these, or NULL */
    struct gemm_operands operands;
    CUtensorMap pre, post;
};

template <typename S> struct forward_shared {
    gemm_ring<S> ring;
    /* Of two batches: pre and, of bf16, post. */
    gemm_box out[GEMM_GROUPS][WARPS][GEMM_HALVES][S::BYTES ? 1 : 2];
    uint32_t bias[GEMM_GROUPS][S::COLS / 2];
    float scale;
};

__device__ __forceinline__ uint32_t gelu2(uint32_t x)
{
    const float2 f = unpack2(x);
    return pack2(expr_gelu(f.x, 0.f, 0.f), expr_gelu(f.y, 0.f, 0.f));
}

/* The sums with their bias, rounded; those of 8-bit operands are times `scale`. */
template <typename S>
__device__ __forceinline__ void round_forward(gemm_rounded<S> &pre, const gemm_sums<S> &sums,
                                              const uint32_t *bias, float scale)
{
#pragma unroll
    for (int u = 0; u < S::UNITS; u++) {
        const float2 b = unpack2(bias[u * 4 + threadIdx.x % 4]);
#pragma unroll
        for (int m = 0; m < GEMM_HALVES; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float x = sums.c[m][u][2 * half], y = sums.c[m][u][2 * half + 1];
                pre.at[m][u][half] = S::BYTES ? pack2(fmaf(x, scale, b.x), fmaf(y, scale, b.y))
                                              : pack2(x + b.x, y + b.y);
            }
    }
    pre.pin();
}

__device__ __forceinline__ uint32_t larger_values(uint32_t a, uint32_t b)
{
    uint32_t c;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}

__device__ __forceinline__ uint32_t smaller_values(uint32_t a, uint32_t b)
{
    uint32_t c;
    asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}

/* Rows behind the last one, which hold the bias, become zero. */
template <typename S> __device__ __forceinline__ void clear_tail(gemm_rounded<S> &pre, int left)
{
    const int row = threadIdx.x / 32 % WARPS * GEMM_WARP_ROWS + threadIdx.x % 32 / 4;
#pragma unroll
    for (int m = 0; m < GEMM_HALVES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int u = 0; u < S::UNITS; u++)
                if (m * 64 + row + half * 8 >= left)
                    pre.at[m][u][half] = 0;
}

/*
 * The largest magnitude of GELU of what a warp has, as bits of an fp32.  From its least value,
 * -0.17, on upwards GELU rises, so that of the largest operand is the largest of all, where it is
 * more than that.
 */
template <typename S> __device__ __forceinline__ uint32_t largest_gelu(const gemm_rounded<S> &pre)
{
    constexpr float dip = 0.17f;
    uint32_t top = 0xff80ff80u, low = 0x7f807f80u; /* infinities */
#pragma unroll
    for (int m = 0; m < GEMM_HALVES; m++)
#pragma unroll
        for (int u = 0; u < S::UNITS; u++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                top = larger_values(top, pre.at[m][u][half]);
                low = smaller_values(low, pre.at[m][u][half]);
            }
    const int pair = max((int)(top << 16), (int)(top & 0xffff0000u)); /* NaN is 0x7fff */
    const int most = __reduce_max_sync(0xffffffffu, pair);
    const bool below = low << 16 == 0xff800000u || (low & 0xffff0000u) == 0xff800000u;
    const float mapped = to_float(from_float<bf16>(expr_gelu(__int_as_float(most), 0.f, 0.f)));
    if (__any_sync(0xffffffffu, below))
        return 0x7fc00000u;
    if (!(mapped <= dip))
        return __float_as_uint(mapped) & 0x7fffffffu;
    largest<bf16> seen;
#pragma unroll
    for (int m = 0; m < GEMM_HALVES; m++)
#pragma unroll
        for (int u = 0; u < S::UNITS; u++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                seen.see(gelu2(pre.at[m][u][half]));
    return warp_largest(seen);
}

template <typename S>
__device__ __forceinline__ void finish_forward(const forward_args &a, forward_shared<S> *here,
                                               const gemm_sums<S> &sums,
                                               const struct gemm_tile &tile, int group)
{
    constexpr int results = S::BYTES ? 1 : 2;
    const int warp = threadIdx.x / 32 % WARPS;
    gemm_box(&out)[GEMM_HALVES][results] = here->out[group][warp];
    const matrix_rows rows(out[0]);
    gemm_rounded<S> pre;
    round_forward(pre, sums, here->bias[group], here->scale);
#pragma unroll
    for (int box = 0; box < S::BOXES; box++)
#pragma unroll
        for (int m = 0; m < GEMM_HALVES; m++) {
            wait_for_stores<1>();
#pragma unroll
            for (int n = 0; n < 4; n++) {
                uint32_t x[4], post[4];
                pre.take(x, m, box * 8 + 2 * n);
                rows.put(results * m, n, x);
                if constexpr (!S::BYTES) {
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        post[i] = gelu2(x[i]);
                    rows.put(results * m + 1, n, post);
                }
            }
            show_products();
            __syncwarp();
            if (threadIdx.x % 32 == 0) {
                const int at[2] = {tile.col + box * GEMM_BOX, row_of(tile, m, warp)};
                if (a.has_pre)
                    box_store(&a.pre, &out[m][0], at);
                if constexpr (!S::BYTES)
                    if (a.has_post)
                        box_store(&a.post, &out[m][1], at);
                stores_commit();
            }
        }
    if constexpr (S::BYTES)
        if (a.largest) {
            if (tile.row + GEMM_ROWS > a.sizes.rows)
                clear_tail(pre, a.sizes.rows - tile.row);
            warp_leave_largest(a.largest, largest_gelu(pre));
        }
}

template <typename S>
__device__ __forceinline__ void bring_bias(const forward_args &a, forward_shared<S> *here,
                                           const struct gemm_tile &tile, int group)
{
    const int i = threadIdx.x % GROUP, col = tile.col + 2 * i;
    named_sync(1 + group, GROUP); /* nobody reads that of the tile before */
    if (i < S::COLS / 2)
        here->bias[group][i] =
            a.bias && col < a.sizes.cols ? *reinterpret_cast<const uint32_t *>(a.bias + col) : 0;
}

template <typename S>
__global__ void __cluster_dims__(GEMM_PAIR, 1, 1) __launch_bounds__(GEMM_THREADS, 1)
    gemm_gelu_kernel(const __grid_constant__ forward_args a)
{
    static_assert(sizeof(forward_shared<S>) <= 227 * 1024, "what a block may have");
    forward_shared<S> *here = (forward_shared<S> *)gemm_shared;
    const int group = group_index(), rank = cluster_rank();
    const int steps = (a.sizes.inner + S::INNER - 1) / S::INNER;
    if (threadIdx.x == 0) {
        gemm_init(here->ring);
        barrier_inits_end();
        here->scale = S::BYTES ? *a.scale[0] * *a.scale[1] : 1.f;
    }
    cluster_sync();
    const auto work = [&](int i, int number) {
        const struct gemm_tile tile = gemm_tile_of<S>(a.sizes, number, rank);
        gemm_sums<S> sums;
        bring_bias(a, here, tile, group);
        sums.find(here->ring, i, steps, group);
        named_sync(1 + group, GROUP);
        finish_forward(a, here, sums, tile, group);
    };
    gemm_run<S>(
        a.sizes, a.operands, here->ring, group, rank, [] {}, work);
}

/* ---- backward -------------------------------------------------------------------------------- */

struct backward_args {
    struct gemm_sizes sizes;
    float *partial; /* sums of 128 rows each, or NULL */
    bool has_post;
    const float *scale[2]; /* of 8-bit operands */
    uint32_t *largest;     /* magnitude of a result of these, or NULL */
    struct gemm_operands operands;
    CUtensorMap pre, dpre, post;
};

template <typename S> struct backward_shared {
    gemm_ring<S> ring;
    struct {
        gemm_box pre[S::BOXES][GEMM_HALVES], post[S::BYTES ? 0 : GEMM_HALVES];
    } warp[WARPS];
    float2 sums[WARPS / 2][S::COLS / 2];
    uint64_t pre_come[GEMM_GROUPS][WARPS];
    float scale;
};

template <typename S> struct backward_group {
    const backward_args &a;
    backward_shared<S> *here;
    int group, rank, warp;

    /* One lane lets a box of pre of a tile come. */
    __device__ __forceinline__ void bring(const struct gemm_tile &tile, int owner, int box, int m)
    {
        box_load(&here->warp[warp].pre[box][m], &a.pre, &here->pre_come[owner][warp],
                 {tile.col + box * GEMM_BOX, row_of(tile, m, warp)});
    }

    __device__ __forceinline__ void expect(int owner)
    {
        barrier_expect(&here->pre_come[owner][warp], sizeof here->warp[warp].pre);
    }

    __device__ __forceinline__ void bring_first(void)
    {
        const struct gemm_tile tile = gemm_tile_of<S>(a.sizes, gemm_first(), rank);
        if (group == 0 || threadIdx.x % 32 || gemm_first() >= gemm_tiles(a.sizes))
            return;
        expect(0);
        for (int i = 0; i < S::BOXES * GEMM_HALVES; i++)
            bring(tile, 0, i / GEMM_HALVES, i % GEMM_HALVES);
    }

    /* A warp's box of v; adds what it stores to the lane's sums over rows. */
    __device__ __forceinline__ void map_box(const gemm_rounded<S> &v, int box, int m,
                                            const matrix_rows &rows, float (&sum)[16],
                                            largest<bf16> &most)
    {
        const int pre = box * GEMM_HALVES + m, post = S::BOXES * GEMM_HALVES + m;
        uint32_t x[4][4]; /* at once: stores keep their place among loads */
#pragma unroll
        for (int n = 0; n < 4; n++)
            rows.take(x[n], pre, n);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            uint32_t y[4], dx[4];
            v.take(dx, m, box * 8 + 2 * n);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 f = unpack2(x[n][i]), dy = unpack2(dx[i]);
                float slope[2], mapped[2];
                derive(slope[0], mapped[0], f.x);
                derive(slope[1], mapped[1], f.y);
                dx[i] = pack2(__fmul_rn(dy.x, slope[0]), __fmul_rn(dy.y, slope[1]));
                if constexpr (S::BYTES)
                    most.see(dx[i]);
                else
                    y[i] = pack2(mapped[0], mapped[1]);
                const float2 rounded = unpack2(dx[i]);
                sum[4 * n + i / 2 * 2] += rounded.x;
                sum[4 * n + i / 2 * 2 + 1] += rounded.y;
            }
            rows.put(pre, n, dx);
            if constexpr (!S::BYTES)
                rows.put(post, n, y);
        }
    }

    /* As expr_gelu_dx and expr_gelu: beyond |x| = 100 the sigmoid is 0 or 1 with either square. */
    static __device__ __forceinline__ void derive(float &slope, float &mapped, float x)
    {
        const float x2 = expr_gelu_square(x), s = expr_sigmoid2(expr_gelu_argument(x, x2));
        slope = expr_gelu_slope(x, x2, s);
        mapped = __fmul_rn(x, s);
    }

    /* Lanes `apart` share their sums: either keeps N of 2N. */
    template <int N> static __device__ __forceinline__ void halve(float (&sum)[16], int apart)
    {
        const bool upper = threadIdx.x & apart;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float mine = upper ? sum[N + i] : sum[i], other = upper ? sum[i] : sum[N + i];
            sum[i] = mine + __shfl_xor_sync(0xffffffffu, other, apart);
        }
    }

    /* The sums of lanes that have the same columns; a lane keeps columns 2 lane and 2 lane + 1. */
    static __device__ __forceinline__ float2 add_lanes(float (&sum)[16])
    {
        halve<8>(sum, 16);
        halve<4>(sum, 8);
        halve<2>(sum, 4);
        return float2{sum[0], sum[1]};
    }

    __device__ __forceinline__ void store(const struct gemm_tile &tile, int box, int m)
    {
        const int at[2] = {tile.col + box * GEMM_BOX, row_of(tile, m, warp)};
        box_store(&a.dpre, &here->warp[warp].pre[box][m], at);
        if constexpr (!S::BYTES)
            if (a.has_post)
                box_store(&a.post, &here->warp[warp].post[m], at);
        stores_commit();
    }

    /* The four warps' sums, first and third, second and fourth, and both. */
    __device__ __forceinline__ void leave_sums(const float2 (&sum)[S::BOXES],
                                               const struct gemm_tile &tile)
    {
        const int lane = threadIdx.x % 32, i = threadIdx.x % GROUP, col = tile.col + 2 * i;
        float2 *mine = here->sums[warp % 2] + lane;
#pragma unroll
        for (int box = 0; box < S::BOXES; box++)
            if (warp < 2)
                mine[box * 32] = sum[box];
        named_sync(1 + group, GROUP);
#pragma unroll
        for (int box = 0; box < S::BOXES; box++)
            if (warp >= 2) {
                const float2 x = mine[box * 32];
                mine[box * 32] = float2{x.x + sum[box].x, x.y + sum[box].y};
            }
        named_sync(1 + group, GROUP);
        if (i < S::COLS / 2 && col < a.sizes.cols && tile.row < a.sizes.rows) {
            const float2 x = here->sums[0][i], y = here->sums[1][i];
            *reinterpret_cast<float2 *>(a.partial + (int64_t)(tile.row / GEMM_ROWS) * a.sizes.cols +
                                        col) = float2{x.x + y.x, x.y + y.y};
        }
        named_sync(1 + group, GROUP);
    }

    /* i: the tile's number in the block.  The box of pre two before may be written again, and comes
     * of the next tile, whose warpgroup waits for all of them before it writes anywhere. */
    __device__ __forceinline__ void finish(const gemm_sums<S> &sums, const struct gemm_tile &tile,
                                           int i, int next)
    {
        constexpr int boxes = S::BOXES * GEMM_HALVES;
        const bool more = next < gemm_tiles(a.sizes), brings = more && threadIdx.x % 32 == 0;
        const struct gemm_tile next_tile = gemm_tile_of<S>(a.sizes, more ? next : 0, rank);
        const matrix_rows rows(here->warp[warp].pre[0]);
        gemm_rounded<S> v;
        float2 sum[S::BOXES];
        largest<bf16> most;
        v.round(sums, here->scale);
        barrier_wait(&here->pre_come[group][warp], i / 2);
#pragma unroll
        for (int box = 0; box < S::BOXES; box++) {
            float lane_sum[16] = {};
#pragma unroll
            for (int m = 0; m < GEMM_HALVES; m++) {
                const int before = box * GEMM_HALVES + m - 2;
                wait_for_stores<1>();
                if (brings && before == 0)
                    expect(1 - group);
                if (brings && before >= 0)
                    bring(next_tile, 1 - group, before / GEMM_HALVES, before % GEMM_HALVES);
                map_box(v, box, m, rows, lane_sum, most);
                show_products();
                __syncwarp();
                if (threadIdx.x % 32 == 0)
                    store(tile, box, m);
            }
            sum[box] = add_lanes(lane_sum);
        }
        if (a.partial)
            leave_sums(sum, tile);
        if constexpr (S::BYTES)
            if (a.largest)
                warp_leave_largest(a.largest, warp_largest(most));
        if (brings) {
            stores_read<0>();
            for (int n = boxes - 2; n < boxes; n++)
                bring(next_tile, 1 - group, n / GEMM_HALVES, n % GEMM_HALVES);
        }
    }
};

template <typename S>
__global__ void __cluster_dims__(GEMM_PAIR, 1, 1) __launch_bounds__(GEMM_THREADS, 1)
    gemm_gelu_dx_kernel(const __grid_constant__ backward_args a)
{
    static_assert(sizeof(backward_shared<S>) <= 227 * 1024, "what a block may have");
    backward_shared<S> *here = (backward_shared<S> *)gemm_shared;
    const int group = group_index(), rank = cluster_rank();
    const int steps = (a.sizes.inner + S::INNER - 1) / S::INNER;
    if (threadIdx.x == 0) {
        gemm_init(here->ring);
        for (int i = 0; i < GEMM_GROUPS * WARPS; i++)
            barrier_init(&here->pre_come[i / WARPS][i % WARPS], 1);
        barrier_inits_end();
        here->scale = S::BYTES ? *a.scale[0] * *a.scale[1] : 1.f;
    }
    cluster_sync();
    const auto own =
        [&] { /* made where it is used: it takes no registers beside the products */
              return backward_group<S>{a, here, group, rank, (int)threadIdx.x / 32 % WARPS};
        };
    const auto work = [&](int i, int number) {
        const struct gemm_tile tile = gemm_tile_of<S>(a.sizes, number, rank);
        gemm_sums<S> sums;
        sums.find(here->ring, i, steps, group);
        own().finish(sums, tile, i, number + gemm_step());
    };
    gemm_run<S>(
        a.sizes, a.operands, here->ring, group, rank, [&] { own().bring_first(); }, work);
}

/* ---- launching ------------------------------------------------------------------------------- */

constexpr int TOGETHER = 8; /* pairs of tiles: 2,048 rows */

int64_t parts(int64_t n, int64_t of)
{
    return (n + of - 1) / of;
}

template <typename S> struct gemm_sizes sizes_of(int64_t rows, int64_t inner, int64_t cols)
{
    return gemm_sizes{(int)rows,
                      (int)inner,
                      (int)cols,
                      (int)parts(rows, GEMM_PAIR * GEMM_ROWS),
                      (int)parts(cols, S::COLS),
                      TOGETHER};
}

/* A dense matrix, in boxes of 128 bytes of a row. */
bool matrix_map(CUtensorMap *map, const void *data, int64_t rows, int64_t cols, int box_rows,
                bool bytes = false)
{
    const struct hopper_tensor x = {
        (void *)data, 2, {cols, rows}, {1, cols}, bytes ? HOPPER_BYTE : HOPPER_BF16};
    const int box[2] = {bytes ? GEMM_LINE : GEMM_LINE / 2, box_rows};
    return cuda_hopper_map(map, &x, box, 128);
}

bool result_map(CUtensorMap *map, const void *data, const struct gemm_sizes &s)
{
    return matrix_map(map, data, s.rows, s.cols, GEMM_WARP_ROWS);
}

template <typename A>
int launch_gemm(void (*kernel)(A), const A &a, size_t shared, cudaStream_t stream)
{
    const int64_t clusters = device_attribute(cudaDevAttrMultiProcessorCount) / GEMM_PAIR;
    const int64_t tiles = (int64_t)a.sizes.pairs * a.sizes.strips;
    const int64_t blocks = GEMM_PAIR * (tiles < clusters ? tiles : clusters);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    kernel<<<(unsigned)blocks, GEMM_THREADS, shared, stream>>>(a);
    return launched();
}

/* Both scales, and the largest magnitude, now 0, of what has such. */
template <typename A> int begin_fp8(A *a, const struct gemm_gelu_fp8 &fp8, cudaStream_t stream)
{
    a->scale[0] = fp8.scale[0];
    a->scale[1] = fp8.scale[1];
    a->largest = fp8.largest;
    return fp8.largest && cudaMemsetAsync(fp8.largest, 0, sizeof *fp8.largest, stream)
               ? CKPT_EDEVICE
               : 0;
}

template <typename S> int forward(const struct gemm_gelu *g, cudaStream_t stream)
{
    struct forward_args a = {};
    a.sizes = sizes_of<S>(g->rows, g->inner, g->cols);
    a.bias = static_cast<const bf16 *>(g->bias);
    a.has_pre = g->pre;
    a.has_post = g->post;
    if (!matrix_map(&a.operands.a, g->x, g->rows, g->inner, GEMM_ROWS, S::BYTES) ||
        !matrix_map(&a.operands.b, g->w, g->cols, g->inner, S::COLS / GEMM_PAIR, S::BYTES) ||
        (g->pre && !result_map(&a.pre, g->pre, a.sizes)) ||
        (g->post && !result_map(&a.post, g->post, a.sizes)) || begin_fp8(&a, g->fp8, stream))
        return CKPT_EDEVICE;
    return launch_gemm(gemm_gelu_kernel<S>, a, sizeof(forward_shared<S>), stream);
}

/* w: across the sum, or along it. */
template <typename S> bool right_map(CUtensorMap *map, const struct gemm_gelu_dx *g)
{
    return S::ACROSS ? matrix_map(map, g->w, g->inner, g->cols, GEMM_INNER / GEMM_PAIR)
                     : matrix_map(map, g->w, g->cols, g->inner, S::COLS / GEMM_PAIR, S::BYTES);
}

template <typename S> int backward(const struct gemm_gelu_dx *g, cudaStream_t stream)
{
    struct backward_args a = {};
    a.sizes = sizes_of<S>(g->rows, g->inner, g->cols);
    a.partial = g->sums ? static_cast<float *>(g->workspace) : nullptr;
    a.has_post = g->post;
    if (!matrix_map(&a.operands.a, g->dy, g->rows, g->inner, GEMM_ROWS, S::BYTES) ||
        !right_map<S>(&a.operands.b, g) || !result_map(&a.pre, g->pre, a.sizes) ||
        !result_map(&a.dpre, g->dpre, a.sizes) ||
        (g->post && !result_map(&a.post, g->post, a.sizes)) || begin_fp8(&a, g->fp8, stream))
        return CKPT_EDEVICE;
    int rc = launch_gemm(gemm_gelu_dx_kernel<S>, a, sizeof(backward_shared<S>), stream);
    if (!rc && g->sums)
        add_partial<4>(g->sums, a.partial, parts(g->rows, GEMM_ROWS), g->cols, false, stream);
    return rc ? rc : launched();
}

typedef gemm_shape<CUDA_GELU_COLS, false, 4> forward_shape;
typedef gemm_shape<CUDA_GELU_COLS, true, 4> backward_shape;
typedef gemm_shape<CUDA_GELU_COLS, false, 4, GEMM_E4M3> forward_fp8_shape;
typedef gemm_shape<CUDA_GELU_COLS, false, 4, GEMM_E5M2> backward_fp8_shape;

} // namespace

bool cuda_gemm_gelu_takes(int64_t rows, int64_t inner, int64_t cols)
{
    const int64_t most = INT32_MAX / 2;
    return rows > 0 && inner > 0 && cols > 0 && rows < most && inner < most && cols < most &&
           inner % 8 == 0 && cols % 8 == 0 && cuda_gelu_tiles(rows, cols) < most &&
           device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
           device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

int cuda_gemm_gelu(const struct gemm_gelu *g, void *stream)
{
    return g->fp8.scale[0] ? forward<forward_fp8_shape>(g, (cudaStream_t)stream)
                           : forward<forward_shape>(g, (cudaStream_t)stream);
}

int cuda_gemm_gelu_dx(const struct gemm_gelu_dx *g, void *stream)
{
    return g->fp8.scale[0] ? backward<backward_fp8_shape>(g, (cudaStream_t)stream)
                           : backward<backward_shape>(g, (cudaStream_t)stream);
}
