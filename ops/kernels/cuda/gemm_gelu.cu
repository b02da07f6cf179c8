/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with GELU or its gradient in their epilogue (gemm_gelu.h, gemm_hopper.cuh).  A warp
 * rounds its sums, which frees half of their registers, processes 16 rows and 64 columns at a time,
 * and stores them by TMA from its own slots, so that warps do not wait for each other.  In the
 * backward kernel pre is prefetched into such a slot and dpre replaces it in place; whoever has
 * finished with a slot starts its next load.
 *
 * Tried and slower (H100, 13,800 x 1,152 x 4,608 backward, 0.301 ms): column sums as products of
 * mma.sync with ones, 0.316; the same with stores by warps instead of TMA, 0.333.
 *
 * Compiled only for sm_90a, since the PTX of these instructions is not portable.
 */
#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/expr_math.cuh"
#include "kernels/cuda/expr_pair.cuh"
#include "kernels/cuda/gemm_gelu.h"
#include "kernels/cuda/gemm_hopper.cuh"
#include "kernels/cuda/largest.cuh"

namespace
{

constexpr int BOX = 64; /* columns of a box of a result: 128 bytes */

/* ---- forward --------------------------------------------------------------------------------- */

struct forward_args {
    struct gemm_sizes sizes;
    const bf16 *bias;
    bool has_pre, has_post;
    const float *scale[2]; /* of 8-bit operands */
    uint32_t *largest;     /* of GELU, for 8-bit operands; or NULL */
    struct gemm_operands operands;
    CUtensorMap pre, post;
};

template <typename S> struct forward_shared {
    gemm_ring<S> ring;
    /* Double buffered: pre and, for bf16, post. */
    gemm_box<BOX> out[GEMM_GROUPS][GEMM_WARPS][GEMM_HALVES][S::BYTES ? 1 : 2];
    uint32_t bias[GEMM_GROUPS][S::COLS / 2];
    float scale;
};

__device__ __forceinline__ uint32_t gelu2(uint32_t x)
{
    const float2 f = unpack2(x);
    return pack2(expr_gelu(f.x, 0.f, 0.f), expr_gelu(f.y, 0.f, 0.f));
}

/* Adds the bias and rounds; the sums of 8-bit operands are multiplied by `scale`. */
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

/* Clears the rows past the last one, which contain the bias. */
template <typename S> __device__ __forceinline__ void clear_tail(gemm_rounded<S> &pre, int left)
{
    const int row = threadIdx.x / 32 % GEMM_WARPS * GEMM_WARP_ROWS + threadIdx.x % 32 / 4;
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
 * The largest magnitude of GELU over a warp's values, as the bits of an fp32.  GELU increases from
 * its minimum of -0.17 upwards.  So if GELU of the largest operand is above 0.17, that is the
 * largest magnitude.
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
                top = expr_larger_pair(top, pre.at[m][u][half]);
                low = expr_smaller_pair(low, pre.at[m][u][half]);
            }
    const int pair = max((int)(top << 16), (int)(top & 0xffff0000u)); /* NaN is 0x7fff */
    const int maximum = __reduce_max_sync(0xffffffffu, pair);
    const bool below = low << 16 == 0xff800000u || (low & 0xffff0000u) == 0xff800000u;
    const float mapped = to_float(from_float<bf16>(expr_gelu(__int_as_float(maximum), 0.f, 0.f)));
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
    const int warp = threadIdx.x / 32 % GEMM_WARPS;
    gemm_box<BOX>(&out)[GEMM_HALVES][results] = here->out[group][warp];
    const gemm_box_lane<BOX> rows(out[0]);
    gemm_rounded<S> pre;
    round_forward(pre, sums, here->bias[group], here->scale);
#pragma unroll
    for (int box = 0; box < S::BOXES; box++)
#pragma unroll
        for (int m = 0; m < GEMM_HALVES; m++) {
            gemm_stores_read<1>();
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
                const int at[2] = {tile.col + box * BOX, gemm_box_row(tile, m, warp)};
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
__device__ __forceinline__ void load_bias(const forward_args &a, forward_shared<S> *here,
                                          const struct gemm_tile &tile, int group)
{
    const int i = threadIdx.x % GROUP, col = tile.col + 2 * i;
    named_sync(1 + group, GROUP); /* no thread still reads the bias of the previous tile */
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
    const int steps = gemm_stages<S>(a.sizes);
    if (threadIdx.x == 0) {
        gemm_init(here->ring);
        barrier_inits_end();
        here->scale = S::BYTES ? *a.scale[0] * *a.scale[1] : 1.f;
    }
    cluster_sync();
    const auto work = [&](int i, int number) {
        const struct gemm_tile tile = gemm_tile_of<S>(a.sizes, number, rank);
        gemm_sums<S> sums;
        load_bias(a, here, tile, group);
        sums.compute(here->ring, i, steps, group);
        named_sync(1 + group, GROUP);
        finish_forward(a, here, sums, tile, group);
    };
    gemm_run<S>(
        a.sizes, a.operands, here->ring, group, rank, [] {}, work);
}

/* ---- backward -------------------------------------------------------------------------------- */

struct backward_args {
    struct gemm_sizes sizes;
    float *partial; /* column sums of 128 rows each, or NULL */
    bool has_post;
    const float *scale[2]; /* of 8-bit operands */
    uint32_t *largest;     /* magnitude of the result, for 8-bit operands; or NULL */
    struct gemm_operands operands;
    CUtensorMap pre, dpre, post;
};

/*
 * Boxes of pre are prefetched into slots, and dpre is stored from there.  The products of 8-bit
 * operands may take less time than an epilogue.  Each warpgroup then has its own slots, so that the
 * two epilogues run concurrently (54,000 x 1,152 x 4,608 in 0.63 ms on an H100, instead of 0.70);
 * to fit, there are fewer of them.  Otherwise warp w of both warpgroups shares its slots, for a
 * whole tile at a time.
 */
template <typename S> struct backward_shared {
    static constexpr int OWNERS = S::BYTES ? GEMM_GROUPS : 1;
    static constexpr int BOXES = S::BOXES * GEMM_HALVES; /* of a warp's part of a tile */
    static constexpr int SLOTS = S::BYTES ? 3 : BOXES;
    static_assert(BOXES % SLOTS == 0, "box n of any tile comes to the same place");
    gemm_ring<S> ring;
    struct {
        gemm_box<BOX> pre[SLOTS], post[S::BYTES ? 0 : GEMM_HALVES];
    } warp[OWNERS][GEMM_WARPS];
    float2 sums[OWNERS][S::COLS / 2];
    uint64_t full[GEMM_GROUPS][GEMM_WARPS][SLOTS]; /* of the warpgroup that processes the box */
    float scale;
};

template <typename S> struct backward_group {
    const backward_args &a;
    backward_shared<S> *here;
    int group, rank, warp;

    static constexpr int OWNERS = backward_shared<S>::OWNERS, BOXES = backward_shared<S>::BOXES;
    static constexpr int SLOTS = backward_shared<S>::SLOTS;

    __device__ __forceinline__ int owner(void) const
    {
        return OWNERS > 1 ? group : 0;
    }

    /* One lane starts the load of box n of pre, for a tile of warpgroup `user`. */
    __device__ __forceinline__ void load_box(const struct gemm_tile &tile, int n, int user)
    {
        const uint64_t *full = &here->full[user][warp][n % SLOTS];
        barrier_expect(full, sizeof(gemm_box<BOX>));
        box_load(&here->warp[owner()][warp].pre[n % SLOTS], &a.pre, full,
                 {tile.col + n / GEMM_HALVES * BOX, gemm_box_row(tile, n % GEMM_HALVES, warp)});
    }

    /* Starts the loads of a first tile that finish() does not start: if slots are shared, all of
     * them. */
    __device__ __forceinline__ void load_first_boxes(void)
    {
        const int number = gemm_first() + owner() * gemm_step();
        if (threadIdx.x % 32 || number >= gemm_tiles(a.sizes) || (OWNERS == 1 && group == 0))
            return;
        const struct gemm_tile tile = gemm_tile_of<S>(a.sizes, number, rank);
        for (int n = 0; n < (OWNERS > 1 ? SLOTS - 2 : SLOTS); n++)
            load_box(tile, n, owner());
    }

    /* Processes a box of v, and adds the stored values to the lane's column sums. */
    __device__ __forceinline__ void map_box(const gemm_rounded<S> &v, int box, int m, int pre,
                                            const gemm_box_lane<BOX> &rows, float (&sum)[16],
                                            largest<bf16> &amax)
    {
        const int post = SLOTS + m;
        uint32_t x[4][4]; /* all loads first: the compiler does not move loads across the stores */
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
                    amax.see(dx[i]);
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

    /* The same values as expr_gelu_dx and expr_gelu.  The clamped square may serve both: for |x| >
     * 100 the sigmoid is 0 or 1 either way. */
    static __device__ __forceinline__ void derive(float &slope, float &mapped, float x)
    {
        const float x2 = expr_gelu_square(x), s = expr_sigmoid2(expr_gelu_argument(x, x2));
        slope = expr_gelu_slope(x, x2, s);
        mapped = __fmul_rn(x, s);
    }

    /* Lanes that are `apart` add their sums; each keeps N of 2N. */
    template <int N> static __device__ __forceinline__ void halve(float (&sum)[16], int apart)
    {
        const bool upper = threadIdx.x & apart;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float mine = upper ? sum[N + i] : sum[i], other = upper ? sum[i] : sum[N + i];
            sum[i] = mine + __shfl_xor_sync(0xffffffffu, other, apart);
        }
    }

    /* Adds the sums of lanes that have the same columns; a lane keeps columns 2 lane and 2 lane +
     * 1. */
    static __device__ __forceinline__ float2 add_lanes(float (&sum)[16])
    {
        halve<8>(sum, 16);
        halve<4>(sum, 8);
        halve<2>(sum, 4);
        return float2{sum[0], sum[1]};
    }

    __device__ __forceinline__ void store(const struct gemm_tile &tile, int box, int m, int slot)
    {
        const int at[2] = {tile.col + box * BOX, gemm_box_row(tile, m, warp)};
        box_store(&a.dpre, &here->warp[owner()][warp].pre[slot], at);
        if constexpr (!S::BYTES)
            if (a.has_post)
                box_store(&a.post, &here->warp[owner()][warp].post[m], at);
        stores_commit();
    }

    /* Adds the sums of warp `from` to those of warp `to`, through shared memory. */
    __device__ __forceinline__ void add_warp(float2 (&sum)[S::BOXES], int from, int to)
    {
        float2 *between = here->sums[owner()] + threadIdx.x % 32;
#pragma unroll
        for (int box = 0; box < S::BOXES; box++)
            if (warp == from)
                between[box * 32] = sum[box];
        named_sync(1 + group, GROUP);
#pragma unroll
        for (int box = 0; box < S::BOXES; box++)
            if (warp == to) {
                const float2 x = between[box * 32];
                sum[box] = float2{sum[box].x + x.x, sum[box].y + x.y};
            }
        named_sync(1 + group, GROUP);
    }

    /* Adds the sums of the four warps, (0 + 2) + (1 + 3), and stores them. */
    __device__ __forceinline__ void store_sums(float2 (&sum)[S::BOXES],
                                               const struct gemm_tile &tile)
    {
        add_warp(sum, 2, 0);
        add_warp(sum, 3, 1);
        add_warp(sum, 1, 0);
        if (warp > 0 || tile.row >= a.sizes.rows)
            return;
        float *to = a.partial + (int64_t)(tile.row / GEMM_ROWS) * a.sizes.cols;
#pragma unroll
        for (int box = 0; box < S::BOXES; box++) {
            const int col = tile.col + box * BOX + threadIdx.x % 32 * 2;
            if (col < a.sizes.cols)
                *reinterpret_cast<float2 *>(to + col) = sum[box];
        }
    }

    __device__ __forceinline__ void wait_for_box(int i, int n) const
    {
        barrier_wait(&here->full[group][warp][n % SLOTS],
                     i / GEMM_GROUPS * (BOXES / SLOTS) + n / SLOTS);
    }

    /* i: the number of the tile in this block.  At each step the results of two boxes ago have been
     * read out of their slot, so the next load into that slot starts, for this tile or the next one
     * that uses the slots. */
    __device__ __forceinline__ void finish(const gemm_sums<S> &sums, const struct gemm_tile &tile,
                                           int i, int number)
    {
        const int next = number + OWNERS * gemm_step();
        const bool more = next < gemm_tiles(a.sizes), is_leader = threadIdx.x % 32 == 0;
        const struct gemm_tile next_tile = gemm_tile_of<S>(a.sizes, more ? next : 0, rank);
        const gemm_box_lane<BOX> rows(here->warp[owner()][warp].pre);
        const auto load_next = [&](int n) {
            const int k = n + SLOTS;
            if (is_leader && (k < BOXES || more))
                load_box(k < BOXES ? tile : next_tile, k % BOXES, OWNERS > 1 ? group : 1 - group);
        };
        gemm_rounded<S> v;
        float2 sum[S::BOXES];
        largest<bf16> amax;
        v.round(sums, here->scale);
        for (int n = 0; OWNERS == 1 && n < BOXES; n++) /* the slots of post are free by then */
            wait_for_box(i, n);
#pragma unroll
        for (int box = 0; box < S::BOXES; box++) {
            float lane_sum[16] = {};
#pragma unroll
            for (int m = 0; m < GEMM_HALVES; m++) {
                const int n = box * GEMM_HALVES + m, slot = n % SLOTS;
                gemm_stores_read<1>();
                if (OWNERS > 1 || n >= 2)
                    load_next(n - 2);
                if (OWNERS > 1)
                    wait_for_box(i, n);
                map_box(v, box, m, slot, rows, lane_sum, amax);
                show_products();
                __syncwarp();
                if (is_leader)
                    store(tile, box, m, slot);
            }
            sum[box] = add_lanes(lane_sum);
        }
        if (a.partial)
            store_sums(sum, tile);
        if constexpr (S::BYTES)
            if (a.largest)
                warp_leave_largest(a.largest, warp_largest(amax));
        if (OWNERS == 1) { /* the other warpgroup cannot know when its slots are free */
            if (is_leader)
                stores_read<0>();
            load_next(BOXES - 2);
            load_next(BOXES - 1);
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
    const int steps = gemm_stages<S>(a.sizes);
    if (threadIdx.x == 0) {
        gemm_init(here->ring);
        for (uint64_t *full = here->full[0][0]; full < (uint64_t *)(&here->full + 1); full++)
            barrier_init(full, 1);
        barrier_inits_end();
        here->scale = S::BYTES ? *a.scale[0] * *a.scale[1] : 1.f;
    }
    cluster_sync();
    /* Constructed where it is used, so that it takes no registers during the products. */
    const auto own = [&] {
        return backward_group<S>{a, here, group, rank, (int)threadIdx.x / 32 % GEMM_WARPS};
    };
    const auto work = [&](int i, int number) {
        const struct gemm_tile tile = gemm_tile_of<S>(a.sizes, number, rank);
        gemm_sums<S> sums;
        sums.compute(here->ring, i, steps, group);
        own().finish(sums, tile, i, number);
    };
    const auto begin = [&] { own().load_first_boxes(); };
    gemm_run<S>(a.sizes, a.operands, here->ring, group, rank, begin, work);
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Sets both scales, and clears the largest magnitude if it is requested. */
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
    a.sizes = gemm_sizes_of<S>(g->rows, g->inner, g->cols);
    a.bias = static_cast<const bf16 *>(g->bias);
    a.has_pre = g->pre;
    a.has_post = g->post;
    if (!gemm_operand_maps<S>(&a.operands, a.sizes, g->x, g->w, NULL) ||
        !gemm_result_map<BOX>(&a.pre, g->pre, a.sizes) ||
        !gemm_result_map<BOX>(&a.post, g->post, a.sizes) || begin_fp8(&a, g->fp8, stream))
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
        !gemm_result_map<BOX>(&a.post, g->post, a.sizes) || begin_fp8(&a, g->fp8, stream))
        return CKPT_EDEVICE;
    int rc = gemm_launch(gemm_gelu_dx_kernel<S>, a, sizeof(backward_shared<S>), stream);
    if (!rc && g->sums)
        add_partial<4>(g->sums, a.partial, gemm_parts(g->rows, GEMM_ROWS), g->cols, false, stream);
    return rc ? rc : launched();
}

typedef gemm_shape<CUDA_EPILOGUE_COLS, false, 4> forward_shape;
typedef gemm_shape<CUDA_EPILOGUE_COLS, true, 4> backward_shape;
typedef gemm_shape<CUDA_EPILOGUE_COLS, false, 4, false, GEMM_E4M3> forward_fp8_shape;
typedef gemm_shape<CUDA_EPILOGUE_COLS, false, 4, false, GEMM_E5M2> backward_fp8_shape;

} // namespace

bool cuda_gemm_gelu_takes(int64_t rows, int64_t inner, int64_t cols)
{
    return gemm_takes(rows, inner, cols, CUDA_EPILOGUE_COLS);
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
