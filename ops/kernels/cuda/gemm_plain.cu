/* SPDX-License-Identifier: Apache-2.0 */
/*
 * c = a b + bias + addend in bf16; a and b are bf16 or 8-bit (gemm_plain.h, gemm_hopper.cuh).
 * Tiles of 128 x 192 fit widths of 768, 1,152, 1,536 and their multiples.  One warpgroup stores a
 * tile while the other one multiplies, so the gain over cuBLASLt grows as sums get shorter
 * (doc/bench/h200.md).
 *
 * A warp stores its part of a tile in steps of 16 rows and 64 columns, through slots of shared
 * memory in rotation.  An addend is prefetched into the slots: a step's load starts once the
 * previous step's result has been stored from its slot, so loads for the next tile run during its
 * products.
 *
 * Compiled only for sm_90a, since the PTX of these instructions is not portable.
 */
#include "kernels/cuda/gemm_hopper.cuh"
#include "kernels/cuda/gemm_plain.h"

namespace
{

constexpr int BOX = 64, SLOTS = 3;

struct plain_args {
    struct gemm_sizes sizes;
    const bf16 *bias;      /* or NULL */
    const float *scale[2]; /* of 8-bit operands */
    struct gemm_operands operands;
    CUtensorMap addend, c;
};

template <typename S> struct plain_shared {
    gemm_ring<S> ring;
    gemm_box<BOX> slot[GEMM_GROUPS][GEMM_WARPS][SLOTS];
    uint64_t full[GEMM_GROUPS][GEMM_WARPS][SLOTS];
    float scale;
};

/* Pairs of columns of a warp's step, in the layout of matrix stores. */
typedef uint32_t plain_step[BOX / 16][4];

template <typename S, bool ADDS> struct plain_group {
    static constexpr int STEPS = S::COLS / BOX * GEMM_HALVES;
    static_assert(STEPS % SLOTS == 0, "a step always has the same slot");

    const plain_args &a;
    plain_shared<S> *here;
    int group, rank, warp;

    __device__ __forceinline__ void step_coordinates(const struct gemm_tile &tile, int step,
                                                     int (&at)[2]) const
    {
        at[0] = tile.col + step / GEMM_HALVES * BOX;
        at[1] = gemm_box_row(tile, step % GEMM_HALVES, warp);
    }

    /* One lane starts the load of a step's addend. */
    __device__ __forceinline__ void load_step(const struct gemm_tile &tile, int step) const
    {
        gemm_box<BOX> &slot = here->slot[group][warp][step % SLOTS];
        const uint64_t *full = &here->full[group][warp][step % SLOTS];
        int at[2];
        step_coordinates(tile, step, at);
        barrier_expect(full, sizeof slot);
        box_load(&slot, &a.addend, full, at);
    }

    __device__ __forceinline__ struct gemm_tile tile_of(int number) const
    {
        return gemm_tile_of<S>(a.sizes, number < gemm_tiles(a.sizes) ? number : 0, rank);
    }

    __device__ __forceinline__ void load_first_steps(void) const
    {
        const int number = gemm_first() + group * gemm_step();
        if (!ADDS || threadIdx.x % 32 || number >= gemm_tiles(a.sizes))
            return;
        for (int step = 0; step < SLOTS; step++)
            load_step(tile_of(number), step);
    }

    /* The bias of the lane's two columns in columns 8 u to 8 u + 7 of the tile. */
    __device__ __forceinline__ float2 bias_of(const struct gemm_tile &tile, int u) const
    {
        const int col = tile.col + u * 8 + threadIdx.x % 4 * 2;
        return a.bias && col < a.sizes.cols
                   ? unpack2(*reinterpret_cast<const uint32_t *>(a.bias + col))
                   : float2{0, 0};
    }

    /* Multiplies the sums by the scale of 8-bit operands, a power of two, and adds the bias unless
     * add_step adds it after an addend. */
    __device__ __forceinline__ void complete(gemm_sums<S> &sums, const struct gemm_tile &tile) const
    {
        const float scale = here->scale;
#pragma unroll
        for (int u = 0; u < S::UNITS; u++) {
            const float2 b = ADDS ? float2{0, 0} : bias_of(tile, u);
#pragma unroll
            for (int m = 0; m < GEMM_HALVES; m++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float x = S::BYTES ? sums.c[m][u][i] * scale : sums.c[m][u][i];
                    sums.c[m][u][i] = x + (i % 2 ? b.y : b.x);
                }
        }
    }

    /* x = the step's sums + addend (in x) + bias, in cuBLASLt's order, rounded once. */
    __device__ __forceinline__ void add_step(plain_step &x, const gemm_sums<S> &sums,
                                             const struct gemm_tile &tile, int step) const
    {
#pragma unroll
        for (int n = 0; n < BOX / 16; n++)
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const int u = step / GEMM_HALVES * (BOX / 8) + 2 * n + k;
                const float2 b = bias_of(tile, u);
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    uint32_t &pair = x[n][2 * k + half];
                    const float *c = &sums.c[step % GEMM_HALVES][u][2 * half];
                    const float2 y = unpack2(pair);
                    pair = pack2(c[0] + y.x + b.x, c[1] + y.y + b.y);
                }
            }
    }

    /* i: the number of the tile in this block. */
    __device__ __forceinline__ void finish(gemm_sums<S> &sums, const struct gemm_tile &tile, int i,
                                           int next) const
    {
        const bool lane = threadIdx.x % 32 == 0, more = ADDS && next < gemm_tiles(a.sizes);
        const struct gemm_tile next_tile = tile_of(next);
        /* Starts the next load into the slot of `step`. */
        const auto load_next = [&](int step) {
            if (step + SLOTS < STEPS)
                load_step(tile, step + SLOTS);
            else if (more)
                load_step(next_tile, step + SLOTS - STEPS);
        };
        const gemm_box_lane<BOX> rows(here->slot[group][warp]);
        gemm_rounded<S> rounded;
        if (S::BYTES || (!ADDS && a.bias))
            complete(sums, tile);
        if (!ADDS)
            rounded.round(sums);
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            plain_step x;
            gemm_stores_read<ADDS ? SLOTS - 2 : SLOTS - 1>();
            if (ADDS) {
                if (lane && step >= 2)
                    load_next(step - 2);
                barrier_wait(&here->full[group][warp][step % SLOTS],
                             i / 2 * (STEPS / SLOTS) + step / SLOTS);
#pragma unroll
                for (int n = 0; n < BOX / 16; n++)
                    rows.take(x[n], step % SLOTS, n);
                add_step(x, sums, tile, step);
            }
#pragma unroll
            for (int n = 0; n < BOX / 16; n++) {
                if (!ADDS)
                    rounded.take(x[n], step % GEMM_HALVES, step / GEMM_HALVES * (BOX / 8) + 2 * n);
                rows.put(step % SLOTS, n, x[n]);
            }
            show_products();
            __syncwarp();
            if (lane)
                store(tile, step);
        }
        if (ADDS && lane) {
            stores_read<0>();
            load_next(STEPS - 2);
            load_next(STEPS - 1);
        }
    }

    __device__ __forceinline__ void store(const struct gemm_tile &tile, int step) const
    {
        int at[2];
        step_coordinates(tile, step, at);
        box_store(&a.c, &here->slot[group][warp][step % SLOTS], at);
        stores_commit();
    }
};

template <typename S, bool ADDS>
__global__ void __cluster_dims__(GEMM_PAIR, 1, 1) __launch_bounds__(GEMM_THREADS, 1)
    gemm_plain_kernel(const __grid_constant__ plain_args a)
{
    static_assert(sizeof(plain_shared<S>) <= 227 * 1024, "what a block may have");
    plain_shared<S> *here = (plain_shared<S> *)gemm_shared;
    const int group = group_index(), rank = cluster_rank();
    const int steps = gemm_stages<S>(a.sizes);
    if (threadIdx.x == 0) {
        gemm_init(here->ring);
        for (int i = 0; i < GEMM_GROUPS * GEMM_WARPS * SLOTS; i++)
            barrier_init(&here->full[0][0][0] + i, 1);
        barrier_inits_end();
        here->scale = S::BYTES ? *a.scale[0] * *a.scale[1] : 1.f;
    }
    cluster_sync();
    /* Constructed where it is used, so that it takes no registers during the products. */
    const auto own = [&] {
        return plain_group<S, ADDS>{a, here, group, rank, (int)threadIdx.x / 32 % GEMM_WARPS};
    };
    const auto work = [&](int i, int number) {
        const struct gemm_tile tile = gemm_tile_of<S>(a.sizes, number, rank);
        gemm_sums<S> sums;
        sums.compute(here->ring, i, steps, group);
        own().finish(sums, tile, i, number + 2 * gemm_step());
    };
    const auto begin = [&] { own().load_first_steps(); };
    gemm_run<S>(a.sizes, a.operands, here->ring, group, rank, begin, work);
}

template <typename S> int launch_plain(const struct gemm *g, cudaStream_t stream)
{
    struct plain_args a = {};
    a.sizes = gemm_sizes_of<S>(g->rows, g->inner, g->cols);
    a.bias = static_cast<const bf16 *>(g->bias);
    a.scale[0] = g->a.scale;
    a.scale[1] = g->b.scale;
    if (!gemm_operand_maps<S>(&a.operands, a.sizes, g->a.data, g->b.data, NULL) ||
        !gemm_result_map<BOX>(&a.addend, g->addend, a.sizes) ||
        !gemm_result_map<BOX>(&a.c, g->c, a.sizes))
        return CKPT_EDEVICE;
    return gemm_launch(g->addend ? gemm_plain_kernel<S, true> : gemm_plain_kernel<S, false>, a,
                       sizeof(plain_shared<S>), stream);
}

template <bool ACROSS, gemm_kind KIND>
using shape = gemm_shape<CUDA_EPILOGUE_COLS, ACROSS, 4, false, KIND>;

bool is_dense(const struct gemm_operand *m)
{
    return !m->ld && !m->fill && (uintptr_t)m->data % 16 == 0;
}

bool is_bf16(const struct gemm *g)
{
    return g->a.dtype == CKPT_BF16 && g->b.dtype == CKPT_BF16;
}

/* Are both operands 8-bit and K-major, and may the sums stay in the accumulators? */
bool is_fp8(const struct gemm *g)
{
    return (g->a.dtype == CKPT_F8E4M3 || g->a.dtype == CKPT_F8E5M2) && g->b.dtype == CKPT_F8E4M3 &&
           g->b.transposed && g->a.scale && g->b.scale && g->short_sums && g->inner % 16 == 0;
}

} // namespace

bool cuda_gemm_plain_takes(const struct gemm *g)
{
    return (is_bf16(g) || is_fp8(g)) && is_dense(&g->a) && !g->a.transposed && is_dense(&g->b) &&
           g->c_dtype == CKPT_BF16 && !g->accumulate && (uintptr_t)g->c % 16 == 0 &&
           (uintptr_t)g->addend % 16 == 0 && (uintptr_t)g->bias % 4 == 0 &&
           gemm_takes(g->rows, g->inner, g->cols, CUDA_EPILOGUE_COLS);
}

/* Measured on an H100 for 512 to 65,536 rows, 256 to 4,096 columns and sums of 256 to 12,288.
 * cuBLASLt is faster for longer sums, for few tiles, and if the last wave of tiles leaves clusters
 * idle: by up to 10 % in between, and by half with a single wave. */
bool cuda_gemm_plain_is_fast(const struct gemm *g)
{
    enum { LONGEST = 3200, ROUNDS = 3, BUSY_PERCENT = 93 };
    const int64_t clusters = device_attribute(cudaDevAttrMultiProcessorCount) / GEMM_PAIR;
    const int64_t tiles = cuda_epilogue_tiles(g->rows, g->cols);
    const int64_t rounds = (tiles + clusters - 1) / clusters;
    return (!is_bf16(g) || g->inner <= LONGEST) && rounds >= ROUNDS &&
           tiles * 100 >= rounds * clusters * BUSY_PERCENT;
}

int cuda_gemm_plain(const struct gemm *g, void *stream)
{
    const cudaStream_t on = (cudaStream_t)stream;
    if (g->a.dtype == CKPT_F8E4M3)
        return launch_plain<shape<false, GEMM_E4M3>>(g, on);
    if (g->a.dtype == CKPT_F8E5M2)
        return launch_plain<shape<false, GEMM_E5M2>>(g, on);
    return g->b.transposed ? launch_plain<shape<false, GEMM_BF16>>(g, on)
                           : launch_plain<shape<true, GEMM_BF16>>(g, on);
}
