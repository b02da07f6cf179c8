/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of bf16 or 8 bits on Hopper by kernels of our own: which tiles a block
 * takes, how operands come to shared memory, the products, boxes of results, and launching.
 * c [rows, cols] = a b with a [rows, inner] along the sum and b along (w^T of w [cols, inner]) or
 * across it (w [inner, cols]).  Or two products with one a and two such w beside each other, of
 * which a tile has the same columns.
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
#include "cuda/workspace.h"

extern __shared__ __align__(1024) char gemm_shared[];

constexpr int GEMM_ROWS = 128;              /* of a tile */
constexpr int GEMM_HALVES = GEMM_ROWS / 64; /* products of a step, one below the other */
constexpr int GEMM_LINE = 128;              /* bytes of the sum in a place of the ring */
constexpr int GEMM_INNER = GEMM_LINE / 2;   /* of bf16 */
constexpr int GEMM_PAIR = 2;                /* blocks of a cluster */
constexpr int GEMM_GROUPS = 2;              /* warpgroups that multiply */
constexpr int GEMM_THREADS = GROUP * (GEMM_GROUPS + 1);
constexpr int GEMM_WARPS = GROUP / 32;
constexpr int GEMM_WARP_ROWS = 16; /* of a box of a result: a warp's */
constexpr int GEMM_TOGETHER = 8;   /* pairs of tiles down that go side by side: 2,048 rows */

static_assert(GEMM_ROWS == CUDA_JOINED_ROWS && GEMM_PAIR == 2, "the scratch for sums, and tiles");

/* What operands are: bf16; e4m3; a left one of e5m2 and a right one of e4m3. */
enum gemm_kind { GEMM_BF16, GEMM_E4M3, GEMM_E5M2 };

/* Tiles of COLS columns; STAGES places of the ring.  BESIDE: half of them is of either product. */
template <int COLS_, bool ACROSS_, int STAGES_, bool BESIDE_ = false, gemm_kind KIND_ = GEMM_BF16>
struct gemm_shape {
    static constexpr int COLS = COLS_, STAGES = STAGES_;
    static constexpr gemm_kind KIND = KIND_;
    static constexpr bool ACROSS = ACROSS_, BESIDE = BESIDE_, BYTES = KIND != GEMM_BF16;
    static constexpr int INNER = BYTES ? GEMM_LINE : GEMM_INNER; /* of the sum in a place */
    static_assert(!(BYTES && ACROSS), "8-bit operands lie along the sum");
    static constexpr int UNITS = COLS / 8;
    static constexpr int STRIP = BESIDE ? COLS / 2 : COLS; /* columns of a result */
    static constexpr int BOXES = COLS / 64; /* of a right operand across the sum */
    /* Rows of 128 bytes, swizzled.  The right operand: COLS rows along the sum, else BOXES boxes of
     * 64 rows across it. */
    struct alignas(1024) place {
        uint4 a[GEMM_ROWS][8], b[COLS][8];
    };
};

struct gemm_sizes {
    int rows, inner, cols;
    int pairs, strips; /* of tiles down, tiles across */
};

template <typename S> struct gemm_ring {
    typename S::place place[S::STAGES];
    uint64_t come[S::STAGES], done[S::STAGES];
    uint64_t turn[GEMM_GROUPS];
};

struct gemm_operands {
    CUtensorMap a, b[2]; /* the second of two products beside each other */
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

/* Places of the ring that a tile's sums take. */
template <typename S> __device__ __forceinline__ int gemm_places(const struct gemm_sizes &g)
{
    return (g.inner + S::INNER - 1) / S::INNER;
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
    const int first = number / (GEMM_TOGETHER * g.strips) * GEMM_TOGETHER;
    const int down = min(g.pairs - first, GEMM_TOGETHER), left = number - first * g.strips;
    return gemm_tile{((first + left % down) * GEMM_PAIR + rank) * GEMM_ROWS,
                     left / down * S::STRIP};
}

/* ---- operands that come ---------------------------------------------------------------------- */

/* Half of the right operand, or one of two, for both blocks: rows of columns, or of the sum. */
template <typename S>
__device__ __forceinline__ void gemm_bring_right(const CUtensorMap *maps, typename S::place &to,
                                                 const uint64_t *come, int col, int k, int rank)
{
    const uint16_t both = (1 << GEMM_PAIR) - 1;
    const CUtensorMap *map = maps + (S::BESIDE ? rank : 0);
    if constexpr (S::ACROSS) {
        constexpr int half = GEMM_INNER / GEMM_PAIR;
#pragma unroll
        for (int i = 0; i < S::BOXES; i++)
            box_load_all(to.b[i * GEMM_INNER + rank * half], map, come,
                         {col + i * 64, k + rank * half}, both);
    } else {
        constexpr int half = S::COLS / GEMM_PAIR;
        box_load_all(to.b[rank * half], map, come, {k, col + (S::BESIDE ? 0 : rank * half)}, both);
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
            gemm_bring_right<S>(maps.b, ring.place[stage], &ring.come[stage], tile.col, k, rank);
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

/* ---- boxes of results ------------------------------------------------------------------------ */

/* COLS columns, swizzled as wide as a row is. */
template <int COLS> struct alignas(1024) gemm_box {
    uint4 row[GEMM_WARP_ROWS][COLS / 8];
};

/* Rows of the warp's box number m, one for each 64 rows. */
__device__ __forceinline__ int gemm_box_row(const struct gemm_tile &tile, int m, int warp)
{
    return tile.row + m * 64 + warp * GEMM_WARP_ROWS;
}

/* A lane's rows of four 8 x 8 matrices of a box each: units 2n and 2n + 1, upper and lower 8 rows.
 * Their places in shared memory, to which a box's distance from the first one is added. */
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

/* Until the lane's stores but N batches have been read. */
template <int N> __device__ __forceinline__ void gemm_stores_read(void)
{
    if (threadIdx.x % 32 == 0)
        stores_read<N>();
    __syncwarp();
}

/* ---- a block --------------------------------------------------------------------------------- */

/* What the warpgroups do, to the end of the kernel: one brings operands, the others begin() and
 * then work(i, number) on every second tile, the block's i-th. */
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

/* A dense matrix of bf16, or of bytes, in boxes of so many rows and columns, swizzled as wide as
 * these are. */
static inline bool gemm_matrix_map(CUtensorMap *map, const void *data, int64_t rows, int64_t cols,
                                   int box_rows, int box_cols, bool bytes = false)
{
    const struct hopper_tensor x = {
        (void *)data, 2, {cols, rows}, {1, cols}, bytes ? HOPPER_BYTE : HOPPER_BF16};
    const int box[2] = {box_cols, box_rows};
    return cuda_hopper_map(map, &x, box, (bytes ? 1 : 2) * box_cols);
}

/* a, and b of the product or of both. */
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

/* A result or an operand of the epilogue, unless it is absent. */
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

/* Whether the current device has these products, for results in tiles of `strip` columns. */
static inline bool gemm_takes(int64_t rows, int64_t inner, int64_t cols, int strip)
{
    const int64_t most = INT32_MAX / 2;
    return rows > 0 && inner > 0 && cols > 0 && rows < most && inner < most && cols < most &&
           inner % 8 == 0 && cols % 8 == 0 &&
           (rows + GEMM_ROWS) / GEMM_ROWS * ((cols + strip) / strip) < most &&
           device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
           device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

#endif
