/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with a gate or its gradient in their epilogue (gemm_gated.h, gemm_hopper.cuh).  In the
 * forward kernel a tile has 96 columns of gate and the same 96 of up, so that a thread has both in
 * registers.
 *
 * In the backward kernel each warp loads boxes of gate and up into slots of shared memory while it
 * processes earlier ones; dgate and dup replace them in place.  Warp w of both warpgroups uses the
 * same slots in turn, since one warpgroup runs its epilogue while the other one multiplies.  Once a
 * slot's results have been stored, that warp starts the next load into the slot, at the end of a
 * tile for the other warpgroup.
 *
 * A backward tile takes 31,000 cycles for 1,536 channels; its epilogue takes 17,000 of them, and
 * products alone would take 19,000: the traffic of five matrices delays the operands.  So boxes of
 * the same rows are stored one after the other, which is 2 to 6 % faster than columns first (H100,
 * 16,384 x 1,536 x 8,960: 0.946 ms instead of 1.004; without these matrices 0.668).  Boxes for all
 * four warps, boxes of 32 columns, L2 hints, and other rasterizations of tiles change less.
 *
 * Compiled only for sm_90a, since the PTX of these instructions is not portable.
 */
#include "kernels/cuda/expr_math.cuh"
#include "kernels/cuda/expr_pair.cuh"
#include "kernels/cuda/gemm_gated.h"
#include "kernels/cuda/gemm_hopper.cuh"

namespace
{

/* silu(x) of a pair, rounded; s receives the sigmoids. */
__device__ __forceinline__ uint32_t silu2(float2 x, float (&s)[2])
{
    s[0] = expr_sigmoid2(__fmul_rn(EXPR_LOG2E, x.x));
    s[1] = expr_sigmoid2(__fmul_rn(EXPR_LOG2E, x.y));
    return pack2(__fmul_rn(x.x, s[0]), __fmul_rn(x.y, s[1]));
}

/* Same as expr_silu_dx, given s, the sigmoid of x. */
__device__ __forceinline__ float silu_dx(float dy, float x, float s)
{
    return __fmul_rn(__fmul_rn(dy, s), __fmaf_rn(x, __fsub_rn(1.f, s), 1.f));
}

/* ---- forward --------------------------------------------------------------------------------- */

enum { GATE, UP, HIDDEN, RESULTS };

constexpr int BOX = 32; /* columns of a box: 96 is not a multiple of anything larger than 32 */

struct forward_args {
    struct gemm_sizes sizes;
    bool has[RESULTS];
    struct gemm_operands operands;
    CUtensorMap results[RESULTS];
};

template <typename S> struct forward_shared {
    gemm_ring<S> ring;
    gemm_box<BOX> out[GEMM_GROUPS][GEMM_WARPS][GEMM_HALVES][RESULTS]; /* double buffered */
};

/* Computes box m of a warp, in a strip of BOX columns. */
template <typename S>
__device__ __forceinline__ void map_forward(const gemm_rounded<S> &both, int box, int m,
                                            const gemm_box_lane<BOX> &rows)
{
#pragma unroll
    for (int n = 0; n < BOX / 16; n++) {
        const int unit = box * (BOX / 8) + 2 * n;
        uint32_t gate[4], up[4], h[4];
        both.take(gate, m, unit);
        both.take(up, m, S::UNITS / 2 + unit);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float s[2];
            h[i] = expr_mul_pair(silu2(unpack2(gate[i]), s), up[i]);
        }
        rows.put(m * RESULTS + GATE, n, gate);
        rows.put(m * RESULTS + UP, n, up);
        rows.put(m * RESULTS + HIDDEN, n, h);
    }
}

template <typename S>
__device__ __forceinline__ void finish_forward(const forward_args &a, forward_shared<S> *here,
                                               const gemm_sums<S> &sums,
                                               const struct gemm_tile &tile, int group)
{
    const int warp = threadIdx.x / 32 % GEMM_WARPS;
    gemm_box<BOX>(&out)[GEMM_HALVES][RESULTS] = here->out[group][warp];
    const gemm_box_lane<BOX> rows(out[0]);
    gemm_rounded<S> both;
    both.round(sums);
#pragma unroll
    for (int box = 0; box < S::STRIP / BOX; box++)
#pragma unroll
        for (int m = 0; m < GEMM_HALVES; m++) {
            gemm_stores_read<1>();
            map_forward(both, box, m, rows);
            show_products();
            __syncwarp();
            if (threadIdx.x % 32 == 0) {
                const int at[2] = {tile.col + box * BOX, gemm_box_row(tile, m, warp)};
#pragma unroll
                for (int r = 0; r < RESULTS; r++)
                    if (a.has[r])
                        box_store(&a.results[r], &out[m][r], at);
                stores_commit();
            }
        }
}

template <typename S>
__global__ void __cluster_dims__(GEMM_PAIR, 1, 1) __launch_bounds__(GEMM_THREADS, 1)
    gemm_gated_kernel(const __grid_constant__ forward_args a)
{
    static_assert(sizeof(forward_shared<S>) <= 227 * 1024, "what a block may have");
    static_assert(S::STRIP % BOX == 0, "whole boxes");
    forward_shared<S> *here = (forward_shared<S> *)gemm_shared;
    const int group = group_index(), rank = cluster_rank();
    const int steps = gemm_stages<S>(a.sizes);
    if (threadIdx.x == 0) {
        gemm_init(here->ring);
        barrier_inits_end();
    }
    cluster_sync();
    const auto work = [&](int i, int number) {
        const struct gemm_tile tile = gemm_tile_of<S>(a.sizes, number, rank);
        gemm_sums<S> sums;
        sums.compute(here->ring, i, steps, group);
        finish_forward(a, here, sums, tile, group);
    };
    gemm_run<S>(a.sizes, a.operands, here->ring, group, rank, [] {}, work);
}

/* ---- backward -------------------------------------------------------------------------------- */

struct backward_args {
    struct gemm_sizes sizes;
    bool has_h;
    struct gemm_operands operands;
    CUtensorMap gate, up, dgate, dup, h;
};

constexpr int DX_BOX = 64, SLOTS = 3;

/* A warp processes a tile in steps of 16 rows and 64 columns, all columns of one half of the rows
 * first; step k of each tile uses slot k % SLOTS. */
template <typename S> struct backward_shared {
    gemm_ring<S> ring;
    struct {
        gemm_box<DX_BOX> slot[SLOTS][2]; /* gate and up, later their gradients */
        gemm_box<DX_BOX> h[2];           /* of two steps */
    } warp[GEMM_WARPS];
    uint64_t full[GEMM_WARPS][SLOTS], turn[GEMM_GROUPS][GEMM_WARPS];
};

template <typename S> struct backward_group {
    static constexpr int ACROSS = S::STRIP / DX_BOX, STEPS = ACROSS * GEMM_HALVES, H = SLOTS * 2;

    const backward_args &a;
    backward_shared<S> *here;
    int group, rank, warp;

    static __device__ __forceinline__ int step_col(const struct gemm_tile &tile, int step)
    {
        return tile.col + step % ACROSS * DX_BOX;
    }

    __device__ __forceinline__ int step_row(const struct gemm_tile &tile, int step) const
    {
        return gemm_box_row(tile, step / ACROSS, warp);
    }

    /* One lane starts the loads of gate and up of a step. */
    __device__ __forceinline__ void load_step(const struct gemm_tile &tile, int step) const
    {
        gemm_box<DX_BOX>(&slot)[2] = here->warp[warp].slot[step % SLOTS];
        const uint64_t *full = &here->full[warp][step % SLOTS];
        const int at[2] = {step_col(tile, step), step_row(tile, step)};
        barrier_expect(full, sizeof slot);
        box_load(&slot[0], &a.gate, full, at);
        box_load(&slot[1], &a.up, full, at);
    }

    __device__ __forceinline__ void load_first_steps(void) const
    {
        const struct gemm_tile tile = gemm_tile_of<S>(a.sizes, gemm_first(), rank);
        if (group == 0 || threadIdx.x % 32 || gemm_first() >= gemm_tiles(a.sizes))
            return;
        for (int step = 0; step < SLOTS; step++)
            load_step(tile, step);
    }

    /* Computes dgate, dup and h of a step. */
    static __device__ __forceinline__ void map_step(const gemm_rounded<S> &dh, int step,
                                                    const gemm_box_lane<DX_BOX> &rows)
    {
        constexpr int PAIRS = DX_BOX / 16;
        const int slot = step % SLOTS * 2;
        /* All loads first: the compiler does not move loads across the stores. */
        uint32_t gate[PAIRS][4], up[PAIRS][4];
#pragma unroll
        for (int n = 0; n < PAIRS; n++) {
            rows.take(gate[n], slot, n);
            rows.take(up[n], slot + 1, n);
        }
#pragma unroll
        for (int n = 0; n < PAIRS; n++) {
            uint32_t d[4], h[4];
            dh.take(d, step / ACROSS, step % ACROSS * (DX_BOX / 8) + 2 * n);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 x = unpack2(gate[n][i]), dy = unpack2(expr_mul_pair(d[i], up[n][i]));
                float s[2];
                const uint32_t y = silu2(x, s);
                gate[n][i] = pack2(silu_dx(dy.x, x.x, s[0]), silu_dx(dy.y, x.y, s[1]));
                h[i] = expr_mul_pair(y, up[n][i]);
                up[n][i] = expr_mul_pair(d[i], y);
            }
            rows.put(slot, n, gate[n]);
            rows.put(slot + 1, n, up[n]);
            rows.put(H + step % 2, n, h);
        }
    }

    __device__ __forceinline__ void store(const struct gemm_tile &tile, int step) const
    {
        const auto &own = here->warp[warp];
        const int at[2] = {step_col(tile, step), step_row(tile, step)};
        box_store(&a.dgate, &own.slot[step % SLOTS][0], at);
        box_store(&a.dup, &own.slot[step % SLOTS][1], at);
        if (a.has_h)
            box_store(&a.h, &own.h[step % 2], at);
        stores_commit();
    }

    /* i: the number of the tile in this block.  At each step the results of two steps ago have been
     * read out of their slot, so the next loads into that slot start, for this tile or the next
     * one. */
    __device__ __forceinline__ void finish(const gemm_sums<S> &sums, const struct gemm_tile &tile,
                                           int i, int next) const
    {
        static_assert(STEPS % SLOTS == 0, "a step always has the same slot");
        const bool lane = threadIdx.x % 32 == 0, more = next < gemm_tiles(a.sizes);
        const struct gemm_tile next_tile = gemm_tile_of<S>(a.sizes, more ? next : 0, rank);
        /* Starts the next load into the slot of `step`. */
        const auto load_next = [&](int step) {
            if (step + SLOTS < STEPS)
                load_step(tile, step + SLOTS);
            else if (more)
                load_step(next_tile, step + SLOTS - STEPS);
        };
        const gemm_box_lane<DX_BOX> rows(here->warp[warp].slot[0]);
        gemm_rounded<S> dh;
        dh.round(sums);
        if (i > 0)
            barrier_wait(&here->turn[group][warp], group == 0 ? i / 2 - 1 : i / 2);
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            gemm_stores_read<1>();
            if (lane && step >= 2)
                load_next(step - 2);
            barrier_wait(&here->full[warp][step % SLOTS], i * (STEPS / SLOTS) + step / SLOTS);
            map_step(dh, step, rows);
            show_products();
            __syncwarp();
            if (lane)
                store(tile, step);
        }
        if (lane) {
            stores_read<0>();
            load_next(STEPS - 2);
            load_next(STEPS - 1);
            barrier_arrive(&here->turn[1 - group][warp]);
        }
    }
};

template <typename S>
__global__ void __cluster_dims__(GEMM_PAIR, 1, 1) __launch_bounds__(GEMM_THREADS, 1)
    gemm_gated_dx_kernel(const __grid_constant__ backward_args a)
{
    static_assert(sizeof(backward_shared<S>) <= 227 * 1024, "what a block may have");
    backward_shared<S> *here = (backward_shared<S> *)gemm_shared;
    const int group = group_index(), rank = cluster_rank();
    const int steps = gemm_stages<S>(a.sizes);
    if (threadIdx.x == 0) {
        gemm_init(here->ring);
        for (int i = 0; i < GEMM_WARPS * SLOTS; i++)
            barrier_init(&here->full[i / SLOTS][i % SLOTS], 1);
        for (int i = 0; i < GEMM_GROUPS * GEMM_WARPS; i++)
            barrier_init(&here->turn[i / GEMM_WARPS][i % GEMM_WARPS], 1);
        barrier_inits_end();
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
        own().finish(sums, tile, i, number + gemm_step());
    };
    const auto begin = [&] { own().load_first_steps(); };
    gemm_run<S>(a.sizes, a.operands, here->ring, group, rank, begin, work);
}

/* ---- launching ------------------------------------------------------------------------------- */

template <typename S> int forward(const struct gemm_gated *g, cudaStream_t stream)
{
    void *const results[RESULTS] = {g->gate, g->up, g->h};
    struct forward_args a = {};
    a.sizes = gemm_sizes_of<S>(g->rows, g->inner, g->cols);
    bool ok = gemm_operand_maps<S>(&a.operands, a.sizes, g->x, g->wg, g->wu);
    for (int r = 0; r < RESULTS; r++) {
        a.has[r] = results[r];
        ok = ok && gemm_result_map<BOX>(&a.results[r], results[r], a.sizes);
    }
    return ok ? gemm_launch(gemm_gated_kernel<S>, a, sizeof(forward_shared<S>), stream)
              : CKPT_EDEVICE;
}

template <typename S> int backward(const struct gemm_gated_dx *g, cudaStream_t stream)
{
    struct backward_args a = {};
    a.sizes = gemm_sizes_of<S>(g->rows, g->inner, g->cols);
    a.has_h = g->h;
    if (!gemm_operand_maps<S>(&a.operands, a.sizes, g->dy, g->w, NULL) ||
        !gemm_result_map<DX_BOX>(&a.gate, g->gate, a.sizes) ||
        !gemm_result_map<DX_BOX>(&a.up, g->up, a.sizes) ||
        !gemm_result_map<DX_BOX>(&a.dgate, g->dgate, a.sizes) ||
        !gemm_result_map<DX_BOX>(&a.dup, g->dup, a.sizes) ||
        !gemm_result_map<DX_BOX>(&a.h, g->h, a.sizes))
        return CKPT_EDEVICE;
    return gemm_launch(gemm_gated_dx_kernel<S>, a, sizeof(backward_shared<S>), stream);
}

typedef gemm_shape<192, false, 4, true> forward_shape;
typedef gemm_shape<192, true, 4> backward_shape;

} // namespace

bool cuda_gemm_gated_takes(int64_t rows, int64_t inner, int64_t cols)
{
    return gemm_takes(rows, inner, cols, forward_shape::STRIP);
}

int cuda_gemm_gated(const struct gemm_gated *g, void *stream)
{
    return forward<forward_shape>(g, (cudaStream_t)stream);
}

int cuda_gemm_gated_dx(const struct gemm_gated_dx *g, void *stream)
{
    return backward<backward_shape>(g, (cudaStream_t)stream);
}
