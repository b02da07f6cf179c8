/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention for heads of 72 on Hopper (attention_hopper.cuh has the products).  A block takes a
 * part of the queries of one head, each of its warpgroups tiles of 64 of them.
 *
 * Cross attention has few keys: those of a head and their values, up to RESIDENT of them, stay in
 * shared memory while queries pass, and each warpgroup goes its own way, so that some find
 * exponentials while others multiply.  Where there are more keys, or in self attention, queries
 * stay and keys pass through a ring of tiles that all warpgroups share; barriers in shared memory
 * tell when a tile has come and when all are done with it, so that a warpgroup may run ahead of the
 * others.
 *
 * Queries are left operands in registers.  They come and their results go through tiles that each
 * warp has for itself, 16 rows that lie as in memory: 144 bytes apart, which keeps the rows that a
 * matrix load takes at once in different banks.  Columns of cores of the right operands, on the
 * other hand, begin at multiples of 128 bytes.
 */
#ifndef CKPT_CUDA_ATTENTION_RESIDENT_CUH
#define CKPT_CUDA_ATTENTION_RESIDENT_CUH

#include "cuda/attention/attention_hopper.cuh"
#include "cuda/workspace.h"

constexpr int TILE = GROUP_ROWS; /* queries of a warpgroup, keys of one product */
constexpr int RESIDENT = ATTENTION_RESIDENT;
constexpr int WARP_ROWS = 16;
constexpr int ROW_BYTES = 2 * HOPPER_WIDTH;
constexpr int WARP_TILE = WARP_ROWS * ROW_BYTES;
constexpr int RESIDENT_TILE = 16 * UNITS * RESIDENT;
constexpr int RIGHT_TILE = 16 * UNITS * TILE;
constexpr int STAGES = 4; /* of a ring; copies run two ahead */
constexpr float LOG2E = 1.44269504f;

/* Asked for each time, so that nothing made of it is kept in registers over the products. */
__device__ __forceinline__ int lane_index(void)
{
    int lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

/* ---- a warp's rows -------------------------------------------------------------------------- */

/* Rows of one operand that a warp works on, between memory and its tile.  A lane has one piece of
 * every third row. */
struct warp_rows {
    static constexpr int down = 32 / UNITS; /* rows of a pass */
    static constexpr int passes = (WARP_ROWS + down - 1) / down;
    int lane;
    char *at; /* the lane's first piece */
    int64_t step;

    /* From row `first` of x on. */
    __device__ __forceinline__ warp_rows(const attention_rows &x, int first)
    {
        lane = lane_index();
        at = (char *)x.data + 2 * ((first + lane / UNITS) * x.row + lane % UNITS * 8);
        step = 2 * down * x.row;
    }

    __device__ __forceinline__ bool takes(int pass) const
    {
        return lane < (pass < passes - 1 ? down * UNITS : UNITS);
    }

    /* n rows begin to come; the rest of the tile becomes zero. */
    __device__ __forceinline__ void load(char *tile, int n) const
    {
        const uint32_t to = shared_address(tile) + lane * 16;
#pragma unroll
        for (int i = 0; i < passes; i++)
            if (takes(i))
                copy16(to + i * down * ROW_BYTES, at + i * step, lane / UNITS + i * down < n);
    }

    /* n rows go. */
    __device__ __forceinline__ void store(const char *tile, int n) const
    {
#pragma unroll
        for (int i = 0; i < passes; i++)
            if (takes(i) && lane / UNITS + i * down < n)
                *reinterpret_cast<uint4 *>(at + i * step) =
                    *reinterpret_cast<const uint4 *>(tile + lane * 16 + i * down * ROW_BYTES);
    }
};

/* Left operands of the steps along the width; the first half of the last one is zero, as its right
 * operand begins with a column that has been seen. */
typedef uint32_t row_operand[STEPS][4];

__device__ __forceinline__ void load_rows(row_operand &x, const char *tile)
{
    const int lane = lane_index();
    const char *row = tile + lane % 16 * ROW_BYTES;
    uint32_t last[2];
#pragma unroll
    for (int k = 0; k < STEPS - 1; k++)
        load_matrix4(x[k], (const bf16 *)(row + k * 32 + lane / 16 * 16));
    load_matrix2(last, (const bf16 *)(row + (UNITS - 1) * 16));
    x[STEPS - 1][0] = x[STEPS - 1][1] = 0;
    x[STEPS - 1][2] = last[0];
    x[STEPS - 1][3] = last[1];
}

/* Accumulators, rows times factor. */
__device__ __forceinline__ void put_warp_rows(char *tile, const float (&c)[UNITS][4], float upper,
                                              float lower)
{
    const int lane = lane_index();
    char *at = tile + lane / 4 * ROW_BYTES + lane % 4 * 4;
#pragma unroll
    for (int n = 0; n < UNITS; n++) {
        *reinterpret_cast<uint32_t *>(at + n * 16) = pack2(c[n][0] * upper, c[n][1] * upper);
        *reinterpret_cast<uint32_t *>(at + n * 16 + 8 * ROW_BYTES) =
            pack2(c[n][2] * lower, c[n][3] * lower);
    }
}

/* ---- right operands ------------------------------------------------------------------------- */

/* Warp number `warp` of `warps` copies its share of rows [0, n), and of zeros up to `all`, a
 * multiple of 32, into columns `pitch` pieces apart, the last of them at `last`.  Eight lanes write
 * two pieces of four rows: two visits to their banks, and rows are read in whole. */
__device__ __forceinline__ void load_cores(const char *tile, int pitch, int last,
                                           const attention_rows &x, int n, int all, int warp,
                                           int warps)
{
    const int lane = lane_index(), unit = lane / 8 * 2 + lane / 4 % 2;
    const uint32_t to = shared_address(tile);
    const char *from = (const char *)x.data;
    for (int row = warp * 4 + lane % 4; row < all; row += warps * 4)
        copy16(to + (unit * pitch + row) * 16, from + 2 * (row * x.row + unit * 8), row < n);
    for (int row = warp * 32 + lane; row < all; row += warps * 32)
        copy16(to + (last * pitch + row) * 16, from + 2 * (row * x.row + (UNITS - 1) * 8), row < n);
}

/* A head's keys and values. */
struct resident_keys {
    char k_tile[RESIDENT_TILE], v_tile[RESIDENT_TILE];

    /* For the whole block: n rows begin to come. */
    __device__ __forceinline__ void load(const attention_rows &k, const attention_rows &v,
                                         int n) const
    {
        const int warp = threadIdx.x / 32, warps = blockDim.x / 32, all = (n + 63) & ~63;
        load_cores(k_tile, RESIDENT, UNITS - 1, k, n, all, warp, warps);
        load_cores(v_tile, RESIDENT, UNITS - 1, v, n, all, warp, warps);
    }
};

/* For the whole block: its copies have come and may be used. */
__device__ __forceinline__ void finish_copies(void)
{
    copies_wait();
    show_products();
    __syncthreads();
}

/* c [64, 64] = x y^T: y are 64 rows of a tile whose columns are PITCH pieces apart. */
template <int PITCH>
__device__ __forceinline__ void begin_row_scores(float (&c)[8][4], const row_operand &x, uint32_t y)
{
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        const int column = k < STEPS - 1 ? 2 * k : UNITS - 2;
        multiply_registers<0>(c, x[k], operand_at(y + column * PITCH, PITCH, 8), k > 0);
    }
    products_commit();
}

__device__ __forceinline__ int tile_count(int n)
{
    return (n + TILE - 1) / TILE;
}

/* ---- tiles that pass ------------------------------------------------------------------------ */

/* The barriers of a ring of tiles, which all threads of a block tell: their share of a tile has
 * come, they are done with it.  Tile t is number t / STAGES that its stage holds.  (Were each told
 * by one lane of a warp, behind __syncwarp(), it would be no faster, and racecheck would not see
 * that the others are done.)
 */
struct passing_tiles {
    uint64_t come[STAGES], done[STAGES];
    int n; /* tiles; read anew each time, as registers are short */

    /* For the whole block, which meets before begin().  A loop, as others have to branch around it:
     * where an init is merely predicated, racecheck takes it as done by all threads, at whatever
     * address they have. */
    __device__ __forceinline__ void init(int n_tiles)
    {
        if (threadIdx.x == 0)
            n = n_tiles;
#pragma unroll 1
        for (int i = threadIdx.x; i < STAGES; i += blockDim.x) {
            barrier_init(&come[i], blockDim.x);
            barrier_init(&done[i], blockDim.x);
        }
    }

    /* For the whole block: load(t) begins to copy the warp's share of a tile.  What was copied
     * before has come afterwards. */
    template <typename L> __device__ __forceinline__ void begin(const L &load) const
    {
#pragma unroll
        for (int t = 0; t < 2; t++) {
            if (t < n)
                load(t);
            copies_commit();
        }
        copies_wait_but<1>();
        show_products();
        __syncthreads();
        barrier_arrive(&come[0]);
    }

    /* use(t, stage) works on a whole tile. */
    template <typename L, typename U>
    __device__ __forceinline__ void pass(const L &load, const U &use) const
    {
#pragma unroll 1
        for (int t = 0; t < n; t++) {
            if (t + 2 < n) {
                if (t + 2 >= STAGES)
                    barrier_wait(&done[(t + 2) % STAGES], (t + 2) / STAGES - 1);
                load(t + 2);
            }
            copies_commit();
            copies_wait_but<1>(); /* the warp's share of tile t + 1 has come */
            show_products();
            barrier_arrive(&come[(t + 1) % STAGES]);
            barrier_wait(&come[t % STAGES], t / STAGES);
            use(t, t % STAGES);
            barrier_arrive(&done[t % STAGES]);
        }
    }
};

/* A piece of each tile that a thread copies: where the next one is, and how many rows there are
 * from it on. */
struct coming_piece {
    const char *from;
    uint32_t to; /* in the first stage */
    int left;
};

/* Keys and values of a head that pass before WARPS warps.  What a thread knows of its pieces stays
 * in shared memory, as registers are short. */
template <int WARPS> struct key_ring {
    static constexpr int pieces = 2 * TILE / 4, turns = pieces + 2 * TILE / 32;
    static constexpr int each = (turns + WARPS - 1) / WARPS; /* turns of a warp */
    alignas(128) char tile[STAGES][2][RIGHT_TILE];
    struct coming_piece coming[each][32 * WARPS];
    int64_t step[each][WARPS]; /* bytes from tile to tile */
    int n;                     /* keys */
    struct passing_tiles passing;

    /* A warp takes in one turn eight pieces of 4 rows of an operand, or the ninth of 32. */
    __device__ __forceinline__ void open(const attention_rows &k, const attention_rows &v,
                                         int n_keys)
    {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        passing.init(tile_count(n_keys));
        if (threadIdx.x == 0)
            n = n_keys;
#pragma unroll
        for (int i = 0; i < each; i++) {
            const int turn = warp + i * WARPS;
            const bool ninth = turn >= pieces;
            const int second = ninth ? (turn - pieces) / 2 : turn / (pieces / 2);
            const int row = ninth ? turn % 2 * 32 + lane : turn % (pieces / 2) * 4 + lane % 4;
            const int unit = ninth ? UNITS - 1 : lane / 4;
            const attention_rows &x = second ? v : k;
            coming[i][threadIdx.x] = coming_piece{
                (const char *)x.data + 2 * (row * x.row + unit * 8),
                shared_address(tile[0][0]) + second * RIGHT_TILE + (unit * TILE + row) * 16,
                n_keys - row};
            if (lane == 0)
                step[i][warp] = 2 * TILE * x.row;
        }
        __syncthreads();
    }

    /* The warp's share of the next tile, number t; what is beyond the keys becomes zero. */
    __device__ __forceinline__ void load(int warp, int t)
    {
#pragma unroll
        for (int i = 0; i < each; i++) {
            if (warp + i * WARPS >= turns)
                continue;
            struct coming_piece p = coming[i][threadIdx.x];
            copy16(p.to + t % STAGES * 2 * RIGHT_TILE, p.from, p.left > 0);
            p.from += step[i][warp];
            p.left -= TILE;
            coming[i][threadIdx.x] = p;
        }
    }
};

/* ---- parts ---------------------------------------------------------------------------------- */

/* Cuts the queries of each head into parts, a block each, where a block takes `groups` tiles at a
 * time; both return the number of blocks.  Where keys stay: so that the device is done first. */
static inline int64_t resident_blocks(struct attention_args &a, int64_t groups)
{
    const int64_t units = a.n_sequences * a.n_heads;
    const int64_t tiles = attention_tile_count(a.n_queries, TILE);
    a.n_chunks = attention_parts(units, tiles, groups, tiles);
    a.chunk = attention_tile_count(tiles, a.n_chunks) * TILE;
    return units * a.n_chunks;
}

/* Where queries stay: all that a block can hold. */
static inline int64_t ring_blocks(struct attention_args &a, int64_t groups)
{
    a.chunk = TILE * groups;
    a.n_chunks = attention_tile_count(a.n_queries, a.chunk);
    return a.n_sequences * a.n_heads * a.n_chunks;
}

/* The part of the queries of a head that a block has. */
struct resident_part {
    int64_t sequence, head, first, end; /* queries [first, end) */
    int64_t number;
};

__device__ __forceinline__ struct resident_part resident_part_of(const struct attention_args &a,
                                                                 int64_t unit)
{
    struct resident_part p;
    p.number = take_index(unit, a.n_chunks);
    p.head = take_index(unit, a.n_heads);
    p.sequence = unit;
    p.first = p.number * a.chunk;
    p.end = p.first + a.chunk < a.n_queries ? p.first + a.chunk : a.n_queries;
    return p;
}

#endif
