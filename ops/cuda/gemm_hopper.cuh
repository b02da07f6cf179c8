/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of bf16 on Hopper whose epilogues do more than cuBLASLt's: which tiles a block
 * takes, how operands come to shared memory, and the products.  c [rows, cols] = a b with a
 * [rows, inner] along the sum and b along (w^T of w [cols, inner]) or across it (w [inner, cols]).
 *
 * Blocks stay and take tiles in turn.  A tile of 128 rows is one warpgroup's: two of them take
 * tiles alternately, so that one rounds, maps and stores its tile while the tensor cores work for
 * the other.  They get the tensor cores in turn: `turn` passes once a warpgroup has begun its last
 * products.  A third warpgroup brings operands.
 *
 * Two blocks are a cluster with the same columns and 256 rows: either brings half of the right
 * operand for both.  A place of the ring is free once both have used it.
 */
#ifndef CKPT_CUDA_GEMM_HOPPER_CUH
#define CKPT_CUDA_GEMM_HOPPER_CUH

#include "cuda/hopper_cluster.cuh"
#include "cuda/hopper_map.h"

constexpr int GEMM_ROWS = 128;              /* of a tile */
constexpr int GEMM_HALVES = GEMM_ROWS / 64; /* products of a step, one below the other */
constexpr int GEMM_LINE = 128;              /* bytes of the sum in a place of the ring */
constexpr int GEMM_INNER = GEMM_LINE / 2;   /* of bf16 */
constexpr int GEMM_PAIR = 2;                /* blocks of a cluster */
constexpr int GEMM_GROUPS = 2;              /* warpgroups that multiply */
constexpr int GEMM_THREADS = GROUP * (GEMM_GROUPS + 1);
constexpr int GEMM_BOX = 64;       /* columns of a box of a result: 128 bytes */
constexpr int GEMM_WARP_ROWS = 16; /* of a box of a result: a warp's */

/* What operands are: bf16; e4m3; a left one of e5m2 and a right one of e4m3. */
enum gemm_kind { GEMM_BF16, GEMM_E4M3, GEMM_E5M2 };

/* Tiles of COLS columns; STAGES places of the ring. */
template <int COLS_, bool ACROSS_, int STAGES_, gemm_kind KIND_ = GEMM_BF16> struct gemm_shape {
    static constexpr int COLS = COLS_, STAGES = STAGES_;
    static constexpr gemm_kind KIND = KIND_;
    static constexpr bool ACROSS = ACROSS_, BYTES = KIND != GEMM_BF16;
    static constexpr int INNER = BYTES ? GEMM_LINE : GEMM_INNER; /* of the sum in a place */
    static_assert(!(BYTES && ACROSS), "8-bit operands lie along the sum");
    static constexpr int UNITS = COLS / 8, BOXES = COLS / GEMM_BOX;
    /* Rows of 128 bytes, swizzled.  The right operand: COLS rows along the sum, else BOXES boxes of
     * 64 rows across it. */
    struct alignas(1024) place {
        uint4 a[GEMM_ROWS][8], b[COLS][8];
    };
};

struct gemm_sizes {
    int rows, inner, cols;
    int pairs, strips; /* of tiles down, tiles across */
    int together;      /* pairs down that go side by side */
};

template <typename S> struct gemm_ring {
    typename S::place place[S::STAGES];
    uint64_t come[S::STAGES], done[S::STAGES];
    uint64_t turn[GEMM_GROUPS];
};

struct gemm_operands {
    CUtensorMap a, b;
};

/* Swizzled boxes of a result, 16 rows of 128 bytes. */
struct alignas(1024) gemm_box {
    uint4 row[GEMM_WARP_ROWS][8];
};

/* ---- tiles ----------------------------------------------------------------------------------- */

/* The cluster's tiles: number `first`, and each `step` further. */
__device__ __forceinline__ int gemm_first(void)
{
    return blockIdx.x / GEMM_PAIR;
}

__device__ __forceinline__ int gemm_step(void)
{
    return gridDim.x / GEMM_PAIR;
}

__device__ __forceinline__ int gemm_tiles(const struct gemm_sizes &g)
{
    return g.pairs * g.strips;
}

/* Where a block's tile begins. */
struct gemm_tile {
    int row, col;
};

/* Pairs side by side go down first: tiles of one time share operands in the L2 both ways. */
template <typename S>
__device__ __forceinline__ struct gemm_tile gemm_tile_of(const struct gemm_sizes &g, int number,
                                                         int rank)
{
    const int first = number / (g.together * g.strips) * g.together;
    const int down = min(g.pairs - first, g.together), left = number - first * g.strips;
    return gemm_tile{((first + left % down) * GEMM_PAIR + rank) * GEMM_ROWS, left / down * S::COLS};
}

/* ---- operands that come ---------------------------------------------------------------------- */

/* Half of the right operand, for both blocks: rows of columns, or of the sum. */
template <typename S>
__device__ __forceinline__ void gemm_bring_right(const CUtensorMap *map, typename S::place &to,
                                                 const uint64_t *come, int col, int k, int rank)
{
    const uint16_t both = (1 << GEMM_PAIR) - 1;
    if constexpr (S::ACROSS) {
        constexpr int half = GEMM_INNER / GEMM_PAIR;
#pragma unroll
        for (int i = 0; i < S::BOXES; i++)
            box_load_all(to.b[i * GEMM_INNER + rank * half], map, come,
                         {col + i * GEMM_BOX, k + rank * half}, both);
    } else {
        constexpr int half = S::COLS / GEMM_PAIR;
        box_load_all(to.b[rank * half], map, come, {k, col + rank * half}, both);
    }
}

/* One thread. */
template <typename S>
__device__ __forceinline__ void gemm_bring(const struct gemm_sizes &g,
                                           const struct gemm_operands &maps, gemm_ring<S> &ring,
                                           int rank)
{
    int stage = 0, round = 0;
    for (int number = gemm_first(); number < gemm_tiles(g); number += gemm_step()) {
        const struct gemm_tile tile = gemm_tile_of<S>(g, number, rank);
#pragma unroll 1
        for (int k = 0; k < g.inner; k += S::INNER) {
            if (round > 0)
                barrier_wait(&ring.done[stage], round - 1);
            barrier_expect(&ring.come[stage], sizeof(typename S::place));
            box_load(ring.place[stage].a, &maps.a, &ring.come[stage], {k, tile.row});
            gemm_bring_right<S>(&maps.b, ring.place[stage], &ring.come[stage], tile.col, k, rank);
            if (++stage == S::STAGES) {
                stage = 0;
                round++;
            }
        }
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* One lane tells for its warp. */
__device__ __forceinline__ void gemm_tell(const uint64_t *barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(barrier);
}

/* One thread. */
template <typename S> __device__ __forceinline__ void gemm_init(gemm_ring<S> &ring)
{
    for (int i = 0; i < S::STAGES; i++) {
        barrier_init(&ring.come[i], 1);
        barrier_init(&ring.done[i], 4 * GEMM_PAIR);
    }
    for (int i = 0; i < GEMM_GROUPS; i++)
        barrier_init(&ring.turn[i], 4);
}

/* A tile's sums, as accumulators lie: two times 64 rows. */
template <typename S> struct gemm_sums {
    float c[GEMM_HALVES][S::UNITS][4];

    __device__ __forceinline__ void pin(void)
    {
#pragma unroll
        for (int m = 0; m < GEMM_HALVES; m++)
            pin_registers(c[m]);
    }

    /* Products that only add: where the first one stored, the compiler would keep what it believes
     * to be read, all registers of the tile before, through the epilogue. */
    __device__ __forceinline__ void clear(void)
    {
#pragma unroll
        for (int m = 0; m < GEMM_HALVES; m++)
#pragma unroll
            for (int u = 0; u < S::UNITS; u++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    c[m][u][i] = 0;
    }

    /* += the products of 32 bytes of the sum. */
    static __device__ __forceinline__ void multiply(float (&sum)[S::UNITS][4], uint64_t a,
                                                    uint64_t b)
    {
        if constexpr (S::KIND == GEMM_E4M3)
            multiply_e4m3(sum, a, b, 1);
        else if constexpr (S::KIND == GEMM_E5M2)
            multiply_e5m2(sum, a, b, 1);
        else
            multiply_shared<0, S::ACROSS>(sum, a, b, 1);
    }

    /* += a place's products. */
    __device__ __forceinline__ void add(const typename S::place &x)
    {
        const uint32_t a = piece_in_block(x.a), b = piece_in_block(x.b);
        products_begin();
#pragma unroll
        for (int k = 0; k < GEMM_LINE / 32; k++) {
            const uint64_t right = S::ACROSS
                                       ? operand_with<SWIZZLE_128>(b + k * 128, GEMM_INNER * 8, 64)
                                       : operand_with<SWIZZLE_128>(b + k * 2, 1, 64);
#pragma unroll
            for (int m = 0; m < GEMM_HALVES; m++)
                multiply(c[m], operand_with<SWIZZLE_128>(a + m * 64 * 8 + k * 2, 1, 64), right);
        }
        products_commit();
    }

    /* Both blocks may write there again. */
    static __device__ __forceinline__ void free(const gemm_ring<S> &ring, int stage)
    {
        __syncwarp();
        if (threadIdx.x % 32 < GEMM_PAIR)
            barrier_arrive_in(&ring.done[stage], threadIdx.x % 32);
    }

    /* The block's tile number i, counted from 0, of `steps` places.  The other warpgroup has waited
     * for all places before, so that no barrier is more than one use behind. */
    __device__ __forceinline__ void find(const gemm_ring<S> &ring, int i, int steps, int group)
    {
        int stage = i * steps % S::STAGES, round = i * steps / S::STAGES, before = 0;
        clear();
        if (i > 0)
            barrier_wait(&ring.turn[group], group == 0 ? i / 2 - 1 : i / 2);
#pragma unroll 1
        for (int k = 0; k < steps; k++) {
            barrier_wait(&ring.come[stage], round);
            add(ring.place[stage]);
            if (k > 0) {
                products_wait<1>();
                free(ring, before);
            }
            before = stage;
            if (++stage == S::STAGES) {
                stage = 0;
                round++;
            }
        }
        gemm_tell(&ring.turn[1 - group]);
        products_wait<0>();
        pin();
        free(ring, before);
    }
};

/* Rounded to bf16, pairs of columns: they take half of the registers from then on. */
template <typename S> struct gemm_rounded {
    uint32_t at[GEMM_HALVES][S::UNITS][2]; /* upper and lower 8 rows */

    __device__ __forceinline__ void pin(void)
    {
#pragma unroll
        for (int m = 0; m < GEMM_HALVES; m++)
#pragma unroll
            for (int u = 0; u < S::UNITS; u++)
                asm volatile("" : "+r"(at[m][u][0]), "+r"(at[m][u][1])::"memory");
    }

    /* scale: of 8-bit operands. */
    __device__ __forceinline__ void round(const gemm_sums<S> &sums, float scale = 1.f)
    {
#pragma unroll
        for (int m = 0; m < GEMM_HALVES; m++)
#pragma unroll
            for (int u = 0; u < S::UNITS; u++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    at[m][u][half] =
                        S::BYTES ? pack2(__fmul_rn(sums.c[m][u][2 * half], scale),
                                         __fmul_rn(sums.c[m][u][2 * half + 1], scale))
                                 : pack2(sums.c[m][u][2 * half], sums.c[m][u][2 * half + 1]);
        pin();
    }

    /* Units u and u + 1 as matrix loads and stores have them. */
    __device__ __forceinline__ void take(uint32_t (&x)[4], int m, int u) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = at[m][u + i / 2][i % 2];
    }
};

/* ---- a block --------------------------------------------------------------------------------- */

/* What the warpgroups do, to the end of the kernel: one brings operands, the others begin() and then
 * work(i, number) on every second tile, the block's i-th. */
template <typename S, typename Begin, typename Work>
__device__ __forceinline__ void gemm_run(const struct gemm_sizes &g,
                                         const struct gemm_operands &operands, gemm_ring<S> &ring,
                                         int group, int rank, const Begin &begin, const Work &work)
{
    if (group == GEMM_GROUPS) {
        registers_fewer<24>();
        if (threadIdx.x % GROUP == 0)
            gemm_bring<S>(g, operands, ring, rank);
        __syncwarp();
    } else {
        registers_more<240>();
        int number = gemm_first() + group * gemm_step();
        begin();
#pragma unroll 1
        for (int i = group; number < gemm_tiles(g); i += 2, number += 2 * gemm_step())
            work(i, number);
        stores_read<0>();
    }
    cluster_sync(); /* the other one may still free places here */
}

#endif
