/* SPDX-License-Identifier: Apache-2.0 */
/*
 * c = a b^T + bias + addend of e4m3 operands with a scale per block, on Hopper (block_product.cuh):
 * the roles of warpgroups, the partition of the work, and launches.
 *
 * Tensor cores keep 14 bits of a sum of 8-bit products, so sums of 128 products are multiplied by
 * their scales and added to fp32 registers.  A tile has three warpgroups of 64 rows: while one adds
 * its sums or stores its results, the tensor cores compute the products of the two others.
 *
 * Compiled only for sm_90a, since the PTX of these instructions is not portable.
 */
#include "kernels/cuda/block_product.cuh"
#include "kernels/cuda/block_product.h"
#include "kernels/cuda/hopper_map.h"
#include "kernels/cuda/libs.h"

extern __shared__ __align__(1024) char block_shared_memory[];

struct block_args {
    void *c;
    const bf16 *bias;
    float *parts; /* of split tiles: [part][BLOCK_ROWS][N] */
    int64_t rows, cols;
    bool add, accumulate; /* there is an addend; add to c */
};

/* ---- the rows of a warpgroup ----------------------------------------------------------------- */

template <typename S> struct block_group {
    const struct block_args &a;
    const struct block_maps &m;
    block_shared *here;
    int group, rank;
    float product[BLOCK_UNITS][4], sum[BLOCK_UNITS][4];

    __device__ __forceinline__ bool is_leader(void) const
    {
        return threadIdx.x % GROUP == 0;
    }

    /* The thread's first row within its warpgroup; its other row is 8 below. */
    static __device__ __forceinline__ int row(void)
    {
        return threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4;
    }

    __device__ __forceinline__ void begin(int stage)
    {
        const uint32_t left = piece_in_block(here->stage[stage].a[group * GROUP_ROWS]);
        const uint32_t right = piece_in_block(here->stage[stage].b);
        products_begin();
#pragma unroll
        for (int k = 0; k < FP8_BLOCK / 32; k++)
            multiply_e4m3(product, operand_with<SWIZZLE_128>(left + 2 * k, 1, 64),
                          operand_with<SWIZZLE_128>(right + 2 * k, 1, 64), k > 0);
        products_commit();
    }

    /* Adds the products times their scales; the scales of rows are loaded while the products
     * run. */
    __device__ __forceinline__ void add(int stage, int k)
    {
        const float *left = here->a_scale[stage] + group * GROUP_ROWS + row();
        const float *right = here->b_scale[stage];
        const float square = S::SQUARE ? right[k % BLOCK_FEW] : 1.f;
        const float above = left[0] * square, below = left[8] * square;
        products_wait<0>();
        pin_registers(product);
#pragma unroll
        for (int n = 0; n < BLOCK_UNITS; n++) {
            const float2 b = S::SQUARE ? float2{1.f, 1.f}
                                       : *(const float2 *)(right + n * 8 + threadIdx.x % 4 * 2);
            sum[n][0] = fmaf(product[n][0], above * b.x, sum[n][0]);
            sum[n][1] = fmaf(product[n][1], above * b.y, sum[n][1]);
            sum[n][2] = fmaf(product[n][2], below * b.x, sum[n][2]);
            sum[n][3] = fmaf(product[n][3], below * b.y, sum[n][3]);
        }
    }

    /* Tells both blocks that this warp has read the stage. */
    __device__ __forceinline__ void release(int stage) const
    {
        __syncwarp();
        if (threadIdx.x % 32 < 2)
            barrier_arrive_in(&here->empty[stage], threadIdx.x % 32);
    }

    /* Loads the addend to the buffer from which the previous result was stored. */
    __device__ __forceinline__ void load_addend(const struct block_tile &t) const
    {
        const uint64_t *barrier = &here->addend[group];
        if (!is_leader())
            return;
        stores_read<0>();
        barrier_expect(barrier, sizeof here->result[0]);
#pragma unroll
        for (int i = 0; i < BLOCK_LINES; i++)
            box_load(here->result[group].line[i], &m.addend, barrier,
                     {t.col + i * BLOCK_LINE, t.row + group * GROUP_ROWS});
    }

    __device__ __forceinline__ void multiply(const struct block_tile &t, block_turn &turn)
    {
#pragma unroll
        for (int n = 0; n < BLOCK_UNITS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[n][i] = 0;
#pragma unroll 1
        for (int k = t.first; k < t.last; k++, turn.next()) {
            barrier_wait(&here->full[turn.stage], turn.round);
            begin(turn.stage);
            add(turn.stage, k);
            release(turn.stage);
            if (a.add && k == min(t.first + 1, t.last - 1))
                load_addend(t);
        }
    }

    /* The address of a pair of columns in the layout of TMA copies. */
    __device__ __forceinline__ uint32_t *pair_at(int unit, int below) const
    {
        const int r = row() + below;
        return &here->result[group].line[unit / 8][r][(unit % 8 ^ r % 8) * 4 + threadIdx.x % 4];
    }

    __device__ __forceinline__ void add_bias(const struct block_tile &t)
    {
        uint32_t bias[BLOCK_UNITS];
#pragma unroll
        for (int n = 0; n < BLOCK_UNITS; n++) {
            const int64_t col = t.col + n * 8 + threadIdx.x % 4 * 2;
            bias[n] = col < a.cols ? __ldg((const uint32_t *)(a.bias + col)) : 0;
        }
#pragma unroll
        for (int n = 0; n < BLOCK_UNITS; n++) {
            const float2 b = unpack2(bias[n]);
            float(&c)[4] = sum[n];
            c[0] += b.x;
            c[1] += b.y;
            c[2] += b.x;
            c[3] += b.y;
        }
    }

    __device__ __forceinline__ void add_addend(int round)
    {
        barrier_wait(&here->addend[group], round);
#pragma unroll
        for (int n = 0; n < BLOCK_UNITS; n++) {
            const float2 above = unpack2(*pair_at(n, 0)), below = unpack2(*pair_at(n, 8));
            float(&c)[4] = sum[n];
            c[0] += above.x;
            c[1] += above.y;
            c[2] += below.x;
            c[3] += below.y;
        }
    }

    /* Stores the result as bf16; round: the number of earlier tiles of this block. */
    __device__ __forceinline__ void store_boxes(const struct block_tile &t, int round)
    {
        if (a.bias)
            add_bias(t);
        if (a.add) {
            add_addend(round);
        } else {
            if (is_leader())
                stores_read<0>();
            named_sync(1 + group, GROUP);
        }
#pragma unroll
        for (int n = 0; n < BLOCK_UNITS; n++) {
            const float(&c)[4] = sum[n];
            *pair_at(n, 0) = pack2(c[0], c[1]);
            *pair_at(n, 8) = pack2(c[2], c[3]);
        }
        show_products();
        named_sync(1 + group, GROUP);
        if (!is_leader())
            return;
#pragma unroll
        for (int i = 0; i < BLOCK_LINES; i++)
            box_store(&m.c, here->result[group].line[i],
                      {t.col + i * BLOCK_LINE, t.row + group * GROUP_ROWS});
        stores_commit();
    }

    /* Stores the result as fp32, to c or to the scratch. */
    __device__ __forceinline__ void store_floats(float *to, int64_t ld, int64_t rows, int64_t cols,
                                                 bool accumulate) const
    {
#pragma unroll
        for (int n = 0; n < BLOCK_UNITS; n++)
#pragma unroll
            for (int below = 0; below < 2; below++) {
                const float(&c)[4] = sum[n];
                const int r = group * GROUP_ROWS + row() + 8 * below;
                const int col = n * 8 + threadIdx.x % 4 * 2;
                float2 *at = reinterpret_cast<float2 *>(to + r * ld + col);
                if (r >= rows || col >= cols)
                    continue;
                const float2 old = accumulate ? *at : float2{0.f, 0.f};
                *at = float2{c[2 * below] + old.x, c[2 * below + 1] + old.y};
            }
    }

    __device__ __forceinline__ void store(const struct block_tile &t, int round)
    {
        if (t.part >= 0)
            store_floats(a.parts + (int64_t)t.part * BLOCK_ROWS * BLOCK_COLS, BLOCK_COLS,
                         BLOCK_ROWS, BLOCK_COLS, false);
        else if constexpr (sizeof(typename S::result) == 2)
            store_boxes(t, round);
        else
            store_floats((float *)a.c + t.row * a.cols + t.col, a.cols, a.rows - t.row,
                         a.cols - t.col, a.accumulate);
    }

    __device__ __forceinline__ void run(const struct block_work &w)
    {
        block_turn turn = {0, 0};
        const int n = block_items(w), clusters = gridDim.x / 2;
        int round = 0;
#pragma unroll 1
        for (int item = blockIdx.x / 2; item < n; item += clusters, round++) {
            const struct block_tile t = block_tile_of(w, item, rank);
            multiply(t, turn);
            store(t, round);
        }
        if (is_leader())
            stores_read<0>();
    }
};

/* ---- the kernels ----------------------------------------------------------------------------- */

template <typename S>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(BLOCK_THREADS, 1)
    multiply_blocks(const block_args a, const block_work w, const __grid_constant__ block_maps m)
{
    static_assert(sizeof(block_shared) <= 227 * 1024, "what a block may have");
    block_shared *here = (block_shared *)block_shared_memory;
    const int group = group_index(), rank = same_in_warp(cluster_rank());
    if (threadIdx.x == 0) {
        for (int i = 0; i < BLOCK_STAGES; i++) {
            barrier_init(&here->full[i], 1);
            barrier_init(&here->empty[i], 2 * BLOCK_GROUPS * 4);
        }
        for (int i = 0; i < BLOCK_GROUPS; i++)
            barrier_init(&here->addend[i], 1);
        barrier_inits_end();
    }
    cluster_sync();
    if (group == BLOCK_GROUPS) {
        registers_fewer<32>();
        if (threadIdx.x == BLOCK_GROUPS * GROUP)
            block_load_operands<S>(m, w, here, rank);
    } else {
        registers_more<160>();
        block_group<S> g = {a, m, here, group, rank};
        g.run(w);
    }
    __syncwarp();
    cluster_sync();
}

constexpr int ADD_THREADS = 256, ADD_ROWS = 8; /* rows of a tile per block */

/* Adds the parts of split tile blockIdx.x in order, and the old c if requested. */
template <typename S>
__global__ void __launch_bounds__(ADD_THREADS) add_parts(const block_args a, const block_work w)
{
    constexpr int ROW = BLOCK_COLS / 4;
    const struct block_tile t =
        block_tile_of(w, w.whole + (int)blockIdx.x / 2, (int)blockIdx.x % 2);
    for (int i = threadIdx.x; i < ADD_ROWS * ROW; i += ADD_THREADS) {
        const int64_t r = blockIdx.y * ADD_ROWS + i / ROW, col = i % ROW * 4;
        const float *from = a.parts + ((int64_t)blockIdx.x * BLOCK_ROWS + r) * BLOCK_COLS + col;
        if (t.row + r >= a.rows || t.col + col >= a.cols)
            continue;
        typename S::result *to = (typename S::result *)a.c + (t.row + r) * a.cols + t.col + col;
        float sum[4] = {};
        for (int part = 0; part < w.parts; part++) {
            const float4 x =
                *(const float4 *)(from + (int64_t)part * 2 * w.cut * BLOCK_ROWS * BLOCK_COLS);
            sum[0] += x.x;
            sum[1] += x.y;
            sum[2] += x.z;
            sum[3] += x.w;
        }
        if (a.accumulate) {
            float old[4];
            load_floats(old, to);
            for (int k = 0; k < 4; k++)
                sum[k] += old[k];
        }
        store_floats(to, sum);
    }
}

/* ---- partition of a product ------------------------------------------------------------------ */

/* The estimated time, in units of one 128-wide step of a tile on all `clusters`.  A part of a split
 * item is written and read again, which takes a third of a unit of the whole device. */
static double block_time(const struct block_work &w, int clusters)
{
    const int parts = w.cut * w.parts;
    const double whole = (double)((w.whole + clusters - 1) / clusters) * w.blocks;
    const double cut =
        (double)((parts + clusters - 1) / clusters) * ((w.blocks + w.parts - 1) / w.parts);
    return whole + cut + (parts ? parts / 3. + 8 : 0);
}

/* Splits the items of the last wave into the number of parts that takes the least time.  Parts of
 * fewer than 16 steps of 128 are not worth it. */
static struct block_work split_last(struct block_work w, int clusters, int64_t room)
{
    const int64_t bytes = 2 * (int64_t)BLOCK_ROWS * BLOCK_COLS * (int64_t)sizeof(float);
    struct block_work best = w;
    w.cut = w.whole % clusters;
    w.whole -= w.cut;
    for (w.parts = 2; w.parts <= 16 && w.blocks / w.parts >= 16; w.parts++)
        if (w.cut * w.parts * bytes <= room && block_time(w, clusters) < block_time(best, clusters))
            best = w;
    return best;
}

/* room: bytes of scratch for parts. */
static struct block_work partition(const struct gemm *g, int clusters, int64_t room)
{
    const int down = (int)((g->rows + BLOCK_ROWS - 1) / BLOCK_ROWS);
    const int across = (int)((g->cols + BLOCK_COLS - 1) / BLOCK_COLS);
    struct block_work best = {};
    for (int beside = 0; beside < 2; beside++) {
        struct block_work w = {};
        w.down = beside ? down : (down + 1) / 2;
        w.across = beside ? (across + 1) / 2 : across;
        w.beside = beside;
        w.blocks = (int)((g->inner + FP8_BLOCK - 1) / FP8_BLOCK);
        w.whole = w.down * w.across;
        w.parts = 1;
        w = split_last(w, clusters, room);
        if (!beside || block_time(w, clusters) < .97 * block_time(best, clusters))
            best = w;
    }
    return best;
}

/* ---- launching ------------------------------------------------------------------------------- */

static bool map_codes(CUtensorMap *map, const struct gemm_operand *x, int64_t rows, int64_t inner,
                      int box_rows)
{
    const struct hopper_tensor t = {(void *)x->data, 2, {inner, rows}, {1, inner}, HOPPER_BYTE};
    const int box[] = {FP8_BLOCK, box_rows};
    return cuda_hopper_map(map, &t, box, FP8_BLOCK);
}

static bool map_scales(CUtensorMap *map, const struct gemm_operand *x, int64_t rows, int64_t inner,
                       int box_rows)
{
    const int64_t blocks = (inner + FP8_BLOCK - 1) / FP8_BLOCK;
    const bool square = x->scaling == SCALE_BLOCKS;
    const struct hopper_tensor t = {
        (void *)x->scale,
        2,
        {square ? blocks : rows, square ? (rows + FP8_BLOCK - 1) / FP8_BLOCK : blocks},
        {1, x->scale_ld},
        HOPPER_FLOAT};
    const int rows_box[] = {box_rows, 1}, square_box[] = {BLOCK_FEW, 1};
    return cuda_hopper_map(map, &t, square ? square_box : rows_box, 0);
}

static bool map_result(CUtensorMap *map, const void *c, const struct gemm *g)
{
    const struct hopper_tensor t = {(void *)c, 2, {g->cols, g->rows}, {1, g->cols}};
    const int box[] = {BLOCK_LINE, GROUP_ROWS};
    return cuda_hopper_map(map, &t, box, 2 * BLOCK_LINE);
}

static bool map_all(struct block_maps *m, const struct gemm *g)
{
    return map_codes(&m->a, &g->a, g->rows, g->inner, BLOCK_ROWS / 2) &&
           map_codes(&m->b, &g->b, g->cols, g->inner, BLOCK_COLS / 2) &&
           map_scales(&m->a_scale, &g->a, g->rows, g->inner, BLOCK_ROWS) &&
           map_scales(&m->b_scale, &g->b, g->cols, g->inner, BLOCK_COLS) &&
           (g->c_dtype == CKPT_F32 || map_result(&m->c, g->c, g)) &&
           (!g->addend || map_result(&m->addend, g->addend, g));
}

template <typename S> static int launch(const struct ckpt_kernel_args *args, const struct gemm *g)
{
    typedef typename S::result T;
    const int shared = (int)sizeof(block_shared);
    const int clusters = device_attribute(cudaDevAttrMultiProcessorCount) / 2;
    const bool may_cut = !S::SQUARE && !g->bias && !g->addend && aligned16(args->workspace);
    const block_work w = partition(g, clusters, may_cut ? args->workspace_bytes : 0);
    const block_args a = {g->c,
                          static_cast<const bf16 *>(g->bias),
                          static_cast<float *>(args->workspace),
                          g->rows,
                          g->cols,
                          g->addend != NULL,
                          g->accumulate};
    struct block_maps m = {};
    if (!map_all(&m, g))
        return cuda_libs_fail(static_cast<struct cuda_libs *>(args->device),
                              "product of %lld x %lld x %lld in blocks: the driver rejects the "
                              "tensor maps of its operands",
                              (long long)g->rows, (long long)g->inner, (long long)g->cols);
    cudaFuncSetAttribute(multiply_blocks<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    const int grid = 2 * (block_items(w) < clusters ? block_items(w) : clusters);
    multiply_blocks<S><<<grid, BLOCK_THREADS, shared, stream_of(args)>>>(a, w, m);
    if (w.cut)
        add_parts<S>
            <<<dim3(2 * w.cut, BLOCK_ROWS / ADD_ROWS), ADD_THREADS, 0, stream_of(args)>>>(a, w);
    return launched();
}

int cuda_block_product(const struct ckpt_kernel_args *a, const struct gemm *g)
{
    const bool square = g->b.scaling == SCALE_BLOCKS;
    if (g->c_dtype == CKPT_F32)
        return square ? launch<block_shape<true, float>>(a, g)
                      : launch<block_shape<false, float>>(a, g);
    return square ? launch<block_shape<true, bf16>>(a, g) : launch<block_shape<false, bf16>>(a, g);
}
