/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of bf16 or 8-bit operands on Hopper by libckpt's kernels: the tiles of a block,
 * the loads of operands to shared memory, the products, boxes of results, and launches.
 *
 * c [rows, cols] = a b, where a [rows, inner] is contiguous along the summed axis (K-major), and b
 * along it (w^T of w [cols, inner]) or across it (w [inner, cols], MN-major).  Or two products with
 * the same a and two such w, of which a tile has the same columns.
 *
 * Blocks are persistent and loop over tiles.  The schedule is ping-pong: a tile of 128 rows belongs
 * to one warpgroup, and two warpgroups take tiles alternately, so that one runs its epilogue while
 * the tensor cores work for the other one.  They hand the tensor cores over by the barrier `turn`,
 * at which a warpgroup arrives once it has issued its last products.  A third warpgroup loads
 * operands.
 *
 * Two blocks form a cluster with the same columns and 256 rows; each loads half of the right
 * operand and multicasts it to both.  A stage of the ring is free once both blocks have read it.
 */
#ifndef CKPT_CUDA_GEMM_HOPPER_CUH
#define CKPT_CUDA_GEMM_HOPPER_CUH

#include "kernels/cuda/hopper_cluster.cuh"
#include "kernels/cuda/hopper_map.h"
#include "kernels/cuda/workspace.h"

extern __shared__ __align__(1024) char gemm_shared[];

constexpr int GEMM_ROWS = 128;              /* of a tile */
constexpr int GEMM_HALVES = GEMM_ROWS / 64; /* products per step, one below the other */
constexpr int GEMM_LINE = 128;              /* bytes of the summed axis in a stage of the ring */
constexpr int GEMM_INNER = GEMM_LINE / 2;   /* the same in bf16 elements */
constexpr int GEMM_PAIR = 2;                /* blocks of a cluster */
constexpr int GEMM_GROUPS = 2;              /* warpgroups that multiply */
constexpr int GEMM_THREADS = GROUP * (GEMM_GROUPS + 1);
constexpr int GEMM_WARPS = GROUP / 32;
constexpr int GEMM_WARP_ROWS = 16; /* rows of a box of a result, stored by one warp */
constexpr int GEMM_TOGETHER = 8;   /* rasterization: pairs of tiles down a column, 2,048 rows */

static_assert(GEMM_ROWS == CUDA_EPILOGUE_ROWS && GEMM_PAIR == 2, "the scratch for sums, and tiles");

/* dtypes of the operands: bf16; e4m3; e5m2 on the left and e4m3 on the right. */
enum gemm_kind { GEMM_BF16, GEMM_E4M3, GEMM_E5M2 };

/* The shape of a tile: COLS columns, STAGES stages of the ring.  BESIDE: two products, with half of
 * the columns each. */
template <int COLS_, bool ACROSS_, int STAGES_, bool BESIDE_ = false, gemm_kind KIND_ = GEMM_BF16>
struct gemm_shape {
    static constexpr int COLS = COLS_, STAGES = STAGES_;
    static constexpr gemm_kind KIND = KIND_;
    static constexpr bool ACROSS = ACROSS_, BESIDE = BESIDE_, BYTES = KIND != GEMM_BF16;
    static constexpr int INNER = BYTES ? GEMM_LINE : GEMM_INNER; /* elements per stage */
    static_assert(!(BYTES && ACROSS), "8-bit operands lie along the sum");
    static constexpr int UNITS = COLS / 8;
    static constexpr int STRIP = BESIDE ? COLS / 2 : COLS; /* columns of a tile's results */
    static constexpr int BOXES = COLS / 64;                /* of an MN-major right operand */
    /* The operands of a stage, as swizzled rows of 128 bytes.  The right operand has COLS rows if
     * it is contiguous along the summed axis, else BOXES boxes of 64 rows. */
    struct alignas(1024) buffer {
        uint4 a[GEMM_ROWS][8], b[COLS][8];
    };
};

struct gemm_sizes {
    int rows, inner, cols;
    int pairs, strips; /* pairs of tiles down, tiles across */
};

template <typename S> struct gemm_ring {
    typename S::buffer buffer[S::STAGES];
    uint64_t full[S::STAGES], empty[S::STAGES];
    uint64_t turn[GEMM_GROUPS];
};

struct gemm_operands {
    CUtensorMap a, b[2]; /* the second one for a second product */
};

/* ---- tiles ----------------------------------------------------------------------------------- */

/* A cluster starts with tile number `first` and advances by `step`. */
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

/* The number of ring stages that the sums of a tile take. */
template <typename S> __device__ __forceinline__ int gemm_stages(const struct gemm_sizes &g)
{
    return (g.inner + S::INNER - 1) / S::INNER;
}

/* The first row and column of a block's tile. */
struct gemm_tile {
    int row, col;
};

/* Groups of GEMM_TOGETHER pairs go down first, so that concurrent tiles share rows and columns of
 * operands in the L2 cache. */
template <typename S>
__device__ __forceinline__ struct gemm_tile gemm_tile_of(const struct gemm_sizes &g, int number,
                                                         int rank)
{
    const int first = number / (GEMM_TOGETHER * g.strips) * GEMM_TOGETHER;
    const int down = min(g.pairs - first, GEMM_TOGETHER), left = number - first * g.strips;
    return gemm_tile{((first + left % down) * GEMM_PAIR + rank) * GEMM_ROWS,
                     left / down * S::STRIP};
}

/* ---- loads of operands ----------------------------------------------------------------------- */

/* Loads this block's half of the right operand (of one of two right operands) and multicasts it to
 * both blocks.  The halves are of the tile's columns or of the summed axis. */
template <typename S>
__device__ __forceinline__ void gemm_load_right(const CUtensorMap *maps, typename S::buffer &to,
                                                const uint64_t *full, int col, int k, int rank)
{
    const uint16_t both = (1 << GEMM_PAIR) - 1;
    const CUtensorMap *map = maps + (S::BESIDE ? rank : 0);
    if constexpr (S::ACROSS) {
        constexpr int half = GEMM_INNER / GEMM_PAIR;
#pragma unroll
        for (int i = 0; i < S::BOXES; i++)
            box_load_all(to.b[i * GEMM_INNER + rank * half], map, full,
                         {col + i * 64, k + rank * half}, both);
    } else {
        constexpr int half = S::COLS / GEMM_PAIR;
        box_load_all(to.b[rank * half], map, full, {k, col + (S::BESIDE ? 0 : rank * half)}, both);
    }
}

/* Loads the operands of all tiles; called by one thread. */
template <typename S>
__device__ __forceinline__ void gemm_load_operands(const struct gemm_sizes &g,
                                                   const struct gemm_operands &maps,
                                                   gemm_ring<S> &ring, int rank)
{
    int stage = 0, round = 0;
    for (int number = gemm_first(); number < gemm_tiles(g); number += gemm_step()) {
        const struct gemm_tile tile = gemm_tile_of<S>(g, number, rank);
#pragma unroll 1
        for (int k = 0; k < g.inner; k += S::INNER) {
            if (round > 0)
                barrier_wait(&ring.empty[stage], round - 1);
            barrier_expect(&ring.full[stage], sizeof(typename S::buffer));
            box_load(ring.buffer[stage].a, &maps.a, &ring.full[stage], {k, tile.row});
            gemm_load_right<S>(maps.b, ring.buffer[stage], &ring.full[stage], tile.col, k, rank);
            if (++stage == S::STAGES) {
                stage = 0;
                round++;
            }
        }
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* Initializes the barriers; called by one thread. */
template <typename S> __device__ __forceinline__ void gemm_init(gemm_ring<S> &ring)
{
    for (int i = 0; i < S::STAGES; i++) {
        barrier_init(&ring.full[i], 1);
        barrier_init(&ring.empty[i], 4 * GEMM_PAIR);
    }
    for (int i = 0; i < GEMM_GROUPS; i++)
        barrier_init(&ring.turn[i], 4);
}

/* The sums of a tile in accumulator layout: two times 64 rows. */
template <typename S> struct gemm_sums {
    float c[GEMM_HALVES][S::UNITS][4];

    __device__ __forceinline__ void pin(void)
    {
#pragma unroll
        for (int m = 0; m < GEMM_HALVES; m++)
            pin_registers(c[m]);
    }

    /* All products add to cleared sums.  If the first product overwrote them instead, the compiler
     * would treat the old registers as read and keep them live through the epilogue. */
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

    /* Adds the products of 32 bytes of the summed axis. */
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

    /* Adds the products of one stage. */
    __device__ __forceinline__ void add(const typename S::buffer &x)
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

    /* Tells both blocks that this warp has read a stage. */
    static __device__ __forceinline__ void release(const gemm_ring<S> &ring, int stage)
    {
        __syncwarp();
        if (threadIdx.x % 32 < GEMM_PAIR)
            barrier_arrive_in(&ring.empty[stage], threadIdx.x % 32);
    }

    /* Computes the block's tile number i, counted from 0, over `steps` stages.  The other warpgroup
     * has waited for all stages of the previous tile, so no barrier can be more than one phase
     * ahead. */
    __device__ __forceinline__ void compute(const gemm_ring<S> &ring, int i, int steps, int group)
    {
        int stage = i * steps % S::STAGES, round = i * steps / S::STAGES, before = 0;
        clear();
        if (i > 0)
            barrier_wait(&ring.turn[group], group == 0 ? i / 2 - 1 : i / 2);
#pragma unroll 1
        for (int k = 0; k < steps; k++) {
            barrier_wait(&ring.full[stage], round);
            add(ring.buffer[stage]);
            if (k > 0) {
                products_wait<1>();
                release(ring, before);
            }
            before = stage;
            if (++stage == S::STAGES) {
                stage = 0;
                round++;
            }
        }
        barrier_arrive_warp(&ring.turn[1 - group]);
        products_wait<0>();
        pin();
        release(ring, before);
    }
};

/* The sums rounded to bf16 and packed in pairs of columns, which halves their registers. */
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

    /* scale: the product of the scales of 8-bit operands. */
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

    /* Units u and u + 1 in the layout of matrix loads and stores. */
    __device__ __forceinline__ void take(uint32_t (&x)[4], int m, int u) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = at[m][u + i / 2][i % 2];
    }
};

/* ---- boxes of results ------------------------------------------------------------------------ */

/* A box of COLS columns, swizzled with the width of its rows. */
template <int COLS> struct alignas(1024) gemm_box {
    uint4 row[GEMM_WARP_ROWS][COLS / 8];
};

/* The first row of box number m of a warp; there is one for each 64 rows of the tile. */
__device__ __forceinline__ int gemm_box_row(const struct gemm_tile &tile, int m, int warp)
{
    return tile.row + m * 64 + warp * GEMM_WARP_ROWS;
}

/* The addresses of a lane's rows for matrix loads and stores of a box: four 8 x 8 matrices, units
 * 2n and 2n + 1, upper and lower 8 rows.  They are addresses in the first box; other boxes are at
 * constant distances from it. */
template <int COLS> struct gemm_box_lane {
    uint32_t at[COLS / 16];

    __device__ __forceinline__ explicit gemm_box_lane(const gemm_box<COLS> *first)
    {
        static_assert(COLS == 64 || COLS == 32, "swizzles of 128 and of 64 bytes");
        const int lane = threadIdx.x % 32, swizzle = COLS == 64 ? lane % 8 : lane / 2 % 4;
#pragma unroll
        for (int n = 0; n < COLS / 16; n++)
            at[n] = shared_address(&first->row[lane % 16][(2 * n + lane / 16) ^ swizzle]);
    }

    __device__ __forceinline__ void take(uint32_t (&x)[4], int box, int n) const
    {
        load_matrix4(x, at[n] + box * (int)sizeof(gemm_box<COLS>));
    }

    __device__ __forceinline__ void put(int box, int n, const uint32_t (&x)[4]) const
    {
        store_matrix4(at[n] + box * (int)sizeof(gemm_box<COLS>), x[0], x[1], x[2], x[3]);
    }
};

/* Waits until all but N groups of the lane's stores have read shared memory. */
template <int N> __device__ __forceinline__ void gemm_stores_read(void)
{
    if (threadIdx.x % 32 == 0)
        stores_read<N>();
    __syncwarp();
}

/* ---- the roles of a block -------------------------------------------------------------------- */

/* Runs the warpgroups to the end of the kernel: one loads operands; the others call begin() and
 * then work(i, number) for every second tile, i being its number within the block. */
template <typename S, typename Begin, typename Work>
__device__ __forceinline__ void gemm_run(const struct gemm_sizes &g,
                                         const struct gemm_operands &operands, gemm_ring<S> &ring,
                                         int group, int rank, const Begin &begin, const Work &work)
{
    if (group == GEMM_GROUPS) {
        registers_fewer<24>();
        if (threadIdx.x % GROUP == 0)
            gemm_load_operands<S>(g, operands, ring, rank);
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
    cluster_sync(); /* the other block may still arrive at barriers of this one */
}

/* ---- launching ------------------------------------------------------------------------------- */

static inline int gemm_parts(int64_t n, int64_t of)
{
    return (int)((n + of - 1) / of);
}

template <typename S> struct gemm_sizes gemm_sizes_of(int64_t rows, int64_t inner, int64_t cols)
{
    return gemm_sizes{(int)rows, (int)inner, (int)cols, gemm_parts(rows, GEMM_PAIR * GEMM_ROWS),
                      gemm_parts(cols, S::STRIP)};
}

/* Describes a dense matrix of bf16, or of bytes, in boxes of box_rows x box_cols, swizzled with the
 * width of a box. */
static inline bool gemm_matrix_map(CUtensorMap *map, const void *data, int64_t rows, int64_t cols,
                                   int box_rows, int box_cols, bool bytes = false)
{
    const struct hopper_tensor x = {
        (void *)data, 2, {cols, rows}, {1, cols}, bytes ? HOPPER_BYTE : HOPPER_BF16};
    const int box[2] = {box_cols, box_rows};
    return cuda_hopper_map(map, &x, box, (bytes ? 1 : 2) * box_cols);
}

/* The maps of a, and of b for one product or both. */
template <typename S>
bool gemm_operand_maps(struct gemm_operands *maps, const struct gemm_sizes &g, const void *a,
                       const void *b, const void *beside)
{
    const int rows = S::ACROSS ? g.inner : g.cols, cols = S::ACROSS ? g.cols : g.inner;
    const int box_rows = (S::ACROSS ? GEMM_INNER : S::COLS) / GEMM_PAIR;
    return gemm_matrix_map(&maps->a, a, g.rows, g.inner, GEMM_ROWS, S::INNER, S::BYTES) &&
           gemm_matrix_map(&maps->b[0], b, rows, cols, box_rows, S::INNER, S::BYTES) &&
           (!S::BESIDE ||
            gemm_matrix_map(&maps->b[1], beside, rows, cols, box_rows, S::INNER, S::BYTES));
}

/* The map of a result or of an operand of the epilogue; true if it is absent. */
template <int COLS>
bool gemm_result_map(CUtensorMap *map, const void *data, const struct gemm_sizes &g)
{
    return !data || gemm_matrix_map(map, data, g.rows, g.cols, GEMM_WARP_ROWS, COLS);
}

template <typename A>
int gemm_launch(void (*kernel)(A), const A &a, size_t shared, cudaStream_t stream)
{
    const int64_t clusters = device_attribute(cudaDevAttrMultiProcessorCount) / GEMM_PAIR;
    const int64_t tiles = (int64_t)a.sizes.pairs * a.sizes.strips;
    const int64_t blocks = GEMM_PAIR * (tiles < clusters ? tiles : clusters);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    kernel<<<(unsigned)blocks, GEMM_THREADS, shared, stream>>>(a);
    return launched();
}

/* Can the current device compute these products, with results in tiles of `strip` columns? */
static inline bool gemm_takes(int64_t rows, int64_t inner, int64_t cols, int strip)
{
    const int64_t limit = INT32_MAX / 2;
    return rows > 0 && inner > 0 && cols > 0 && rows < limit && inner < limit && cols < limit &&
           inner % 8 == 0 && cols % 8 == 0 &&
           (rows + GEMM_ROWS) / GEMM_ROWS * ((cols + strip) / strip) < limit &&
           device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
           device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

#endif
