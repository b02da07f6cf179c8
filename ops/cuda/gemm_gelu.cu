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

namespace
{

constexpr int BOX = 64; /* columns of a box of a result: 128 bytes */

/* ---- forward --------------------------------------------------------------------------------- */

struct forward_args {
    struct gemm_sizes sizes;
    const bf16 *bias;
    bool has_pre, has_post;
    struct gemm_operands operands;
    CUtensorMap pre, post;
};

template <typename S> struct forward_shared {
    gemm_ring<S> ring;
    gemm_box<BOX> out[GEMM_GROUPS][GEMM_WARPS][GEMM_HALVES][2]; /* of two batches: pre, post */
    uint32_t bias[GEMM_GROUPS][S::COLS / 2];
};

__device__ __forceinline__ uint32_t gelu2(uint32_t x)
{
    const float2 f = unpack2(x);
    return pack2(expr_gelu(f.x, 0.f, 0.f), expr_gelu(f.y, 0.f, 0.f));
}

/* The sums with their bias, rounded. */
template <typename S>
__device__ __forceinline__ void round_forward(gemm_rounded<S> &pre, const gemm_sums<S> &sums,
                                              const uint32_t *bias)
{
#pragma unroll
    for (int u = 0; u < S::UNITS; u++) {
        const float2 b = unpack2(bias[u * 4 + threadIdx.x % 4]);
#pragma unroll
        for (int m = 0; m < GEMM_HALVES; m++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                pre.at[m][u][half] =
                    pack2(sums.c[m][u][2 * half] + b.x, sums.c[m][u][2 * half + 1] + b.y);
    }
    pre.pin();
}

template <typename S>
__device__ __forceinline__ void finish_forward(const forward_args &a, forward_shared<S> *here,
                                               const gemm_sums<S> &sums,
                                               const struct gemm_tile &tile, int group)
{
    const int warp = threadIdx.x / 32 % GEMM_WARPS;
    gemm_box<BOX>(&out)[GEMM_HALVES][2] = here->out[group][warp];
    const gemm_box_lane<BOX> rows(out[0]);
    gemm_rounded<S> pre;
    round_forward(pre, sums, here->bias[group]);
#pragma unroll
    for (int box = 0; box < S::BOXES; box++)
#pragma unroll
        for (int m = 0; m < GEMM_HALVES; m++) {
            gemm_stores_read<1>();
#pragma unroll
            for (int n = 0; n < 4; n++) {
                uint32_t x[4], post[4];
                pre.take(x, m, box * 8 + 2 * n);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    post[i] = gelu2(x[i]);
                rows.put(2 * m, n, x);
                rows.put(2 * m + 1, n, post);
            }
            show_products();
            __syncwarp();
            if (threadIdx.x % 32 == 0) {
                const int at[2] = {tile.col + box * BOX, gemm_box_row(tile, m, warp)};
                if (a.has_pre)
                    box_store(&a.pre, &out[m][0], at);
                if (a.has_post)
                    box_store(&a.post, &out[m][1], at);
                stores_commit();
            }
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
    const int steps = (a.sizes.inner + GEMM_INNER - 1) / GEMM_INNER;
    if (threadIdx.x == 0) {
        gemm_init(here->ring);
        barrier_inits_end();
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
    gemm_run<S>(a.sizes, a.operands, here->ring, group, rank, [] {}, work);
}

/* ---- backward -------------------------------------------------------------------------------- */

struct backward_args {
    struct gemm_sizes sizes;
    float *partial; /* sums of 128 rows each, or NULL */
    bool has_post;
    struct gemm_operands operands;
    CUtensorMap pre, dpre, post;
};

template <typename S> struct backward_shared {
    gemm_ring<S> ring;
    struct {
        gemm_box<BOX> pre[S::BOXES][GEMM_HALVES], post[GEMM_HALVES];
    } warp[GEMM_WARPS];
    float2 sums[GEMM_WARPS / 2][S::COLS / 2];
    uint64_t pre_come[GEMM_GROUPS][GEMM_WARPS];
};

template <typename S> struct backward_group {
    const backward_args &a;
    backward_shared<S> *here;
    int group, rank, warp;

    /* One lane lets a box of pre of a tile come. */
    __device__ __forceinline__ void bring(const struct gemm_tile &tile, int owner, int box, int m)
    {
        box_load(&here->warp[warp].pre[box][m], &a.pre, &here->pre_come[owner][warp],
                 {tile.col + box * BOX, gemm_box_row(tile, m, warp)});
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
                                            const gemm_box_lane<BOX> &rows, float (&sum)[16])
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
                y[i] = pack2(mapped[0], mapped[1]);
                const float2 rounded = unpack2(dx[i]);
                sum[4 * n + i / 2 * 2] += rounded.x;
                sum[4 * n + i / 2 * 2 + 1] += rounded.y;
            }
            rows.put(pre, n, dx);
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
        const int at[2] = {tile.col + box * BOX, gemm_box_row(tile, m, warp)};
        box_store(&a.dpre, &here->warp[warp].pre[box][m], at);
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
        const gemm_box_lane<BOX> rows(here->warp[warp].pre[0]);
        gemm_rounded<S> v;
        float2 sum[S::BOXES];
        v.round(sums);
        barrier_wait(&here->pre_come[group][warp], i / 2);
#pragma unroll
        for (int box = 0; box < S::BOXES; box++) {
            float lane_sum[16] = {};
#pragma unroll
            for (int m = 0; m < GEMM_HALVES; m++) {
                const int before = box * GEMM_HALVES + m - 2;
                gemm_stores_read<1>();
                if (brings && before == 0)
                    expect(1 - group);
                if (brings && before >= 0)
                    bring(next_tile, 1 - group, before / GEMM_HALVES, before % GEMM_HALVES);
                map_box(v, box, m, rows, lane_sum);
                show_products();
                __syncwarp();
                if (threadIdx.x % 32 == 0)
                    store(tile, box, m);
            }
            sum[box] = add_lanes(lane_sum);
        }
        if (a.partial)
            leave_sums(sum, tile);
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
    const int steps = (a.sizes.inner + GEMM_INNER - 1) / GEMM_INNER;
    if (threadIdx.x == 0) {
        gemm_init(here->ring);
        for (int i = 0; i < GEMM_GROUPS * GEMM_WARPS; i++)
            barrier_init(&here->pre_come[i / GEMM_WARPS][i % GEMM_WARPS], 1);
        barrier_inits_end();
    }
    cluster_sync();
    const auto own = [&] { /* made where it is used: it takes no registers beside the products */
        return backward_group<S>{a, here, group, rank, (int)threadIdx.x / 32 % GEMM_WARPS};
    };
    const auto work = [&](int i, int number) {
        const struct gemm_tile tile = gemm_tile_of<S>(a.sizes, number, rank);
        gemm_sums<S> sums;
        sums.find(here->ring, i, steps, group);
        own().finish(sums, tile, i, number + gemm_step());
    };
    gemm_run<S>(a.sizes, a.operands, here->ring, group, rank, [&] { own().bring_first(); }, work);
}

/* ---- launching ------------------------------------------------------------------------------- */

template <typename S> int forward(const struct gemm_gelu *g, cudaStream_t stream)
{
    struct forward_args a = {};
    a.sizes = gemm_sizes_of<S>(g->rows, g->inner, g->cols);
    a.bias = static_cast<const bf16 *>(g->bias);
    a.has_pre = g->pre;
    a.has_post = g->post;
    if (!gemm_operand_maps<S>(&a.operands, a.sizes, g->x, g->w, NULL) ||
        !gemm_result_map<BOX>(&a.pre, g->pre, a.sizes) ||
        !gemm_result_map<BOX>(&a.post, g->post, a.sizes))
        return CKPT_EDEVICE;
    return gemm_launch(gemm_gelu_kernel<S>, a, sizeof(forward_shared<S>), stream);
}

template <typename S> int backward(const struct gemm_gelu_dx *g, cudaStream_t stream)
{
    struct backward_args a = {};
    a.sizes = gemm_sizes_of<S>(g->rows, g->inner, g->cols);
    a.partial = g->sums ? static_cast<float *>(g->workspace) : nullptr;
    a.has_post = g->post;
    if (!gemm_operand_maps<S>(&a.operands, a.sizes, g->dy, g->w, NULL) ||
        !gemm_result_map<BOX>(&a.pre, g->pre, a.sizes) ||
        !gemm_result_map<BOX>(&a.dpre, g->dpre, a.sizes) ||
        !gemm_result_map<BOX>(&a.post, g->post, a.sizes))
        return CKPT_EDEVICE;
    int rc = gemm_launch(gemm_gelu_dx_kernel<S>, a, sizeof(backward_shared<S>), stream);
    if (!rc && g->sums)
        add_partial<4>(g->sums, a.partial, gemm_parts(g->rows, GEMM_ROWS), g->cols, false, stream);
    return rc ? rc : launched();
}

typedef gemm_shape<CUDA_JOINED_COLS, false, 4> forward_shape;
typedef gemm_shape<CUDA_JOINED_COLS, true, 4> backward_shape;

} // namespace

bool cuda_gemm_gelu_takes(int64_t rows, int64_t inner, int64_t cols)
{
    return gemm_takes(rows, inner, cols, CUDA_JOINED_COLS);
}

int cuda_gemm_gelu(const struct gemm_gelu *g, void *stream)
{
    return forward<forward_shape>(g, (cudaStream_t)stream);
}

int cuda_gemm_gelu_dx(const struct gemm_gelu_dx *g, void *stream)
{
    return backward<backward_shape>(g, (cudaStream_t)stream);
}
