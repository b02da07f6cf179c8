/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backward attention on Hopper in one pass (attention_onepass.cuh), for heads of some widths up to
 * 128: the kernels, and the calls that they support.  Compiled only for sm_90a, since the PTX of
 * these instructions is not portable.
 */
#include "kernels/cuda/attention/attention_onepass_group.cuh"

extern __shared__ __align__(1024) char attention_shared[];

/* ---- statistics ------------------------------------------------------------------------------ */

constexpr int STATISTICS_THREADS = 256, ROW_THREADS = 8;

/* Tiles of queries of all heads; after their counters are those of clusters of two blocks. */
__host__ __device__ static inline int64_t onepass_tiles(const struct attention_args &a)
{
    return a.n_sequences * a.n_heads *
           attention_tile_count(a.n_queries, CUDA_ATTENTION_ONEPASS_QUERIES);
}

/* Clears dq of queries that see no key, since no other block writes it. */
template <typename S>
__device__ __forceinline__ void clear_without_keys(const struct attention_args &a, int64_t sequence,
                                                   int64_t head, int64_t first, int n)
{
    const struct attention_span seen =
        attention_span_of_rows(a, first, first + n, attention_keys_of(a, sequence).n);
    if (seen.end > max(seen.begin, (int64_t)0))
        return;
    const attention_rows dq = attention_rows_at(a, a.dq, sequence, head, first);
    for (int i = threadIdx.x; i < n * S::UNITS; i += STATISTICS_THREADS)
        *reinterpret_cast<uint4 *>((bf16 *)dq.data + i / S::UNITS * dq.row + i % S::UNITS * 8) =
            uint4{0, 0, 0, 0};
}

/* The dot product of 8 pairs. */
__device__ __forceinline__ float dot8(const uint4 &x, const uint4 &y)
{
    const __nv_bfloat162 *p = (const __nv_bfloat162 *)&x, *q = (const __nv_bfloat162 *)&y;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 f = __bfloat1622float2(p[i]), g = __bfloat1622float2(q[i]);
        sum += f.x * g.x + f.y * g.y;
    }
    return sum;
}

/* Computes lse in base 2 and delta = sum(o d_o) of a tile of queries, zeros past the last one;
 * resets the tile's counter of the order.  Eight threads share a row. */
template <typename S>
__global__ void __launch_bounds__(STATISTICS_THREADS)
    onepass_statistics(const __grid_constant__ attention_args a, int64_t first_unit)
{
    constexpr int down = STATISTICS_THREADS / ROW_THREADS;
    const int64_t tile = first_unit + blockIdx.x;
    int64_t sequence = tile;
    const int64_t first =
        take_index(sequence, attention_tile_count(a.n_queries, S::QUERIES)) * S::QUERIES;
    const int64_t head = take_index(sequence, a.n_heads), left = a.n_queries - first;
    const int n = left < S::QUERIES ? (int)left : S::QUERIES, lane = threadIdx.x % ROW_THREADS;
    const attention_rows o = attention_rows_at(a, a.o, sequence, head, first);
    const attention_rows d_o = attention_rows_at(a, a.d_o, sequence, head, first);
    const float *lse = attention_lse_at(a, sequence, head) + first * a.lse.row;
    if (threadIdx.x == 0)
        a.dq_order[tile] = 0;
    if (tile < CUDA_ATTENTION_ONEPASS_PAIRS && threadIdx.x == 1)
        a.dq_order[onepass_tiles(a) + tile] = 0;
#pragma unroll
    for (int row = threadIdx.x / ROW_THREADS; row < S::QUERIES; row += down) {
        float sum = 0;
#pragma unroll
        for (int unit = lane; unit < S::UNITS; unit += ROW_THREADS)
            if (row < n)
                sum += dot8(*(const uint4 *)((const bf16 *)o.data + row * o.row + unit * 8),
                            *(const uint4 *)((const bf16 *)d_o.data + row * d_o.row + unit * 8));
#pragma unroll
        for (int apart = 1; apart < ROW_THREADS; apart *= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, apart);
        if (lane == 0)
            a.statistics[tile * S::QUERIES + row] =
                row < n ? float2{lse[row * a.lse.row] * ATTENTION_LOG2E, sum} : float2{0.f, 0.f};
    }
    clear_without_keys<S>(a, sequence, head, first, n);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Loads the warp's part of n rows; zeros after them.  A warp copies four pieces of eight rows at
 * once, which use all banks and whole sectors of memory. */
template <typename S>
__device__ __forceinline__ void load_keys(typename S::key_tile &tile, const attention_rows &x,
                                          int n)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = 4 * S::GROUPS;
    const char *from = (const char *)x.data;
    for (int row = warp * 8 + lane % 8; row < S::KEYS; row += warps * 8)
#pragma unroll
        for (int unit = lane / 8; unit < S::UNITS / 2 * 2; unit += 4)
            copy16(shared_address(&tile.unit[unit][row]), from + 2 * (row * x.row + unit * 8),
                   row < n);
    for (int row = warp * 32 + lane; S::UNITS % 2 && row < S::KEYS; row += warps * 32) {
        copy16(shared_address(&tile.unit[S::UNITS - 1][row]),
               from + 2 * (row * x.row + (S::UNITS - 1) * 8), row < n);
        tile.unit[S::UNITS][row] = uint4{0, 0, 0, 0};
    }
}

template <typename S> __device__ __forceinline__ void init_barriers(onepass_shared<S> *here)
{
    constexpr int warps = 4 * S::GROUPS;
    for (int i = 0; i < S::STAGES; i++) {
        barrier_init(&here->come[i], 1);
        barrier_init(&here->done[i], here->work.halves ? 4 : warps);
    }
    if constexpr (S::DQ) {
        for (int i = 0; i < 2; i++)
            barrier_init(&here->exchanged[i], warps);
        for (int i = 0; i < S::IN_FLIGHT; i++) {
            barrier_init(&here->room[i], 1);
            barrier_init(&here->full[i], warps);
        }
    }
    barrier_inits_end();
}

/* A multiprocessor has 64 Ki registers; the producer warpgroup needs few of them. */
template <typename S, bool MASKED>
__global__ void __launch_bounds__(S::THREADS, 1)
    onepass_backward(const __grid_constant__ attention_args a,
                     const __grid_constant__ onepass_maps maps,
                     const __grid_constant__ onepass_grid grid)
{
    static_assert(sizeof(onepass_shared<S>) <= 227 * 1024, "what a block may have");
    onepass_shared<S> *here = (onepass_shared<S> *)attention_shared;
    const int group = group_index(), warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0) % 4;
    const onepass_work &w = here->work;
    if (threadIdx.x == 0) {
        here->work = onepass_work_of<S>(a, grid);
        init_barriers(here);
    }
    __syncthreads();
    if (w.n < 0)
        return;
    if (group == S::GROUPS) {
        registers_fewer<24>();
        if (threadIdx.x % 32 == 0 && warp == 0)
            onepass_bring<S>(a, maps, here);
        if constexpr (S::DQ)
            if (threadIdx.x % 32 == 0 && warp > 0 && warp <= S::IN_FLIGHT)
                onepass_take<S>(a, here, warp - 1);
    } else {
        registers_more<240>();
        load_keys<S>(here->k, attention_rows_at(a, a.k, w.sequence, w.shared, w.first_row),
                     w.n_keys);
        load_keys<S>(here->v, attention_rows_at(a, a.v, w.sequence, w.shared, w.first_row),
                     w.n_keys);
        copies_wait();
        show_products();
        named_sync(1, GROUP * S::GROUPS);
        onepass_group<S, MASKED> g(a, here, group);
        if constexpr (S::DQ)
            g.run();
        else
            g.run_keys();
        g.finish(grid);
    }
}

/* ---- launching ------------------------------------------------------------------------------- */

/* As many stages and sums as fit in shared memory. */
typedef onepass_shape<32, 4, 3> shape_32;
typedef onepass_shape<40, 4, 3> shape_40;
typedef onepass_shape<48, 4, 3> shape_48;
typedef onepass_shape<64, 4, 3> shape_64;
typedef onepass_shape<72, 3, 3> shape_72;
typedef onepass_shape<80, 2, 3> shape_80;
typedef onepass_shape<96, 2, 3> shape_96;
typedef onepass_shape<128, 2, 2> shape_128;
typedef onepass_shape<64, 5, 0> keys_64;
typedef onepass_shape<72, 5, 0> keys_72;

/*
 * The number of lines that run concurrently.  The next tile may add after the time of about two
 * tiles, and the 132 blocks that run at once start spread over the time of a block.  So 2 x 132 /
 * tiles lines would suffice if all blocks took the same time; twice as many are faster.
 *
 * Causal tiles of keys have unequal work.  There as many lines run as the L2 cache serves, so that
 * the longest blocks of all start first while sums of dq stay in the cache; at least 32 of long
 * lines, since otherwise too many blocks of a line wait for each other.  Groups of lines have equal
 * sizes, because the blocks of a small rest would wait for each other, too.
 */
template <typename S> static int64_t lines_together(const struct attention_args &a, int64_t lines)
{
    const int64_t bytes = a.n_queries * S::D * 8, served = (int64_t)33 << 20, fewest = 32;
    int64_t n = 528 / attention_tile_count(a.n_queries, S::QUERIES) + 1;
    if (a.mask.causal && n < served / bytes)
        n = served / bytes;
    if (a.mask.causal && n < fewest)
        n = fewest;
    return attention_tile_count(lines, attention_tile_count(lines, n));
}

static bool query_map(CUtensorMap *to, const struct attention_args &a,
                      const struct attention_operand &x, int rows)
{
    return attention_box_map(to, a, x, a.n_queries, a.n_heads, false, 64, rows);
}

/* Pairs of the last wave (onepass_grid): no block depends on one that starts later, and a pair has
 * two tiles of queries at least. */
template <typename S>
static int64_t pairs_of(const struct attention_args &a, int64_t blocks, bool even)
{
    const int64_t rest = blocks % CUDA_ATTENTION_WAVE;
    const bool good = S::PAIRS && even && !a.mask.causal && !a.mask.window && a.group == 1 &&
                      !a.partial && a.n_queries > S::QUERIES && onepass_tiles(a) >= rest;
    return good ? cuda_attention_onepass_pairs(blocks) : 0;
}

template <typename S> static struct onepass_grid grid_of(const struct attention_args &a)
{
    const int64_t lines = a.n_sequences * a.n_chunks * a.n_shared;
    const int64_t together = lines_together<S>(a, lines);
    const int64_t tiles = attention_tile_count(a.n_keys, S::KEYS);
    const int64_t items = attention_tile_count(lines, together) * together * tiles;
    const int64_t pairs = pairs_of<S>(a, items, lines % together == 0);
    int *ended = a.dq_order + onepass_tiles(a);
    const uintptr_t sums = (uintptr_t)(ended + CUDA_ATTENTION_ONEPASS_PAIRS);
    return onepass_grid{(int)lines,
                        (int)together,
                        (int)tiles,
                        (int)(items - pairs),
                        (int)(items + pairs),
                        (float4 *)(sums + -sums % 16),
                        ended};
}

template <typename S, bool MASKED>
static void launch_onepass(const struct attention_args &a, const struct onepass_maps &maps,
                           const struct onepass_grid &grid, cudaStream_t stream)
{
    const int shared = (int)sizeof(onepass_shared<S>);
    cudaFuncSetAttribute(onepass_backward<S, MASKED>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         shared);
    onepass_backward<S, MASKED><<<grid.blocks, S::THREADS, shared, stream>>>(a, maps, grid);
}

/* dk and dv alone, for packed keys, whose statistics must have been computed. */
template <typename S> static bool launch_keys(const struct attention_args &a, cudaStream_t stream)
{
    struct onepass_maps maps;
    const int lines = (int)(a.n_chunks * a.n_shared);
    const int tiles = (int)(a.n_keys / S::KEYS + a.n_sequences), blocks = lines * tiles;
    if (!query_map(&maps.q, a, a.q, S::QUERIES) || !query_map(&maps.d_o, a, a.d_o, S::QUERIES))
        return false;
    launch_onepass<S, false>(a, maps, onepass_grid{lines, lines, tiles, blocks, blocks, NULL, NULL},
                             stream);
    return true;
}

template <typename S> static bool launch(const struct attention_args &a, cudaStream_t stream)
{
    struct onepass_maps maps;
    if (!query_map(&maps.q, a, a.q, S::QUERIES) || !query_map(&maps.d_o, a, a.d_o, S::QUERIES))
        return false;
    attention_launch(onepass_statistics<S>,
                     a.n_sequences * a.n_heads * attention_tile_count(a.n_queries, S::QUERIES),
                     STATISTICS_THREADS, 0, stream, a);
    if (a.mask.causal || a.mask.window)
        launch_onepass<S, true>(a, maps, grid_of<S>(a), stream);
    else
        launch_onepass<S, false>(a, maps, grid_of<S>(a), stream);
    return true;
}

/* One of the widths of cuda_attention_onepass_width(). */
static bool launch_width(const struct attention_args &a, cudaStream_t stream)
{
    switch (a.width) {
    case 32:
        return launch<shape_32>(a, stream);
    case 40:
        return launch<shape_40>(a, stream);
    case 48:
        return launch<shape_48>(a, stream);
    case 64:
        return launch<shape_64>(a, stream);
    case 72:
        return launch<shape_72>(a, stream);
    case 80:
        return launch<shape_80>(a, stream);
    case 96:
        return launch<shape_96>(a, stream);
    default:
        return launch<shape_128>(a, stream);
    }
}

/* Do the kernels support the call? */
bool attention_onepass_takes(const struct attention_args &a)
{
    const int64_t limit = INT32_MAX / 4;
    const int64_t tiles = attention_tile_count(a.n_queries, CUDA_ATTENTION_ONEPASS_QUERIES);
    const int64_t key_tiles = attention_tile_count(a.n_keys, CUDA_ATTENTION_ONEPASS_KEYS);
    return cuda_attention_onepass_width(a.width) && !a.lens && !a.mask.bias.data &&
           !a.mask.first.data && a.n_queries > 0 && a.n_keys > 0 && a.n_sequences > 0 &&
           a.n_heads > 0 && a.n_queries <= limit && a.n_keys <= limit && a.mask.window <= limit &&
           a.n_sequences * a.n_heads <= limit / tiles &&
           a.n_sequences * a.n_shared <= limit / key_tiles && a.k.vectors && a.v.vectors &&
           a.o.vectors && a.dq.vectors && a.dk.vectors && a.dv.vectors &&
           attention_box_takes(a, a.q, a.n_queries, a.n_heads, false) &&
           attention_box_takes(a, a.d_o, a.n_queries, a.n_heads, false) && attention_on_hopper();
}

/* Is it as fast as cuDNN's unordered kernel?  As measured (doc/bench/h200.md): everywhere but for
 * heads of 128 without a mask over 2,048 to 8,192 places, where it takes 1.12 to 1.2 times as
 * long. */
bool attention_onepass_is_fast(const struct attention_args &a)
{
    const bool middle = a.n_keys >= 2048 && a.n_keys <= 8192;
    return attention_onepass_takes(a) && (a.width < 128 || a.mask.causal || !middle);
}

/* Returns false if it launched nothing. */
bool attention_onepass_backward(const struct attention_args &a, cudaStream_t stream)
{
    const bool launched = launch_width(a, stream);
    if (launched)
        attention_sum_chunks(a, stream);
    return launched;
}

/* ---- packed keys ----------------------------------------------------------------------------- */

bool attention_onepass_takes_keys(const struct attention_args &a)
{
    return (a.width == 64 || a.width == 72) && a.lens && a.partial &&
           a.n_keys / CUDA_ATTENTION_ONEPASS_KEYS + a.n_sequences < INT32_MAX / 4 / a.n_shared &&
           attention_box_takes(a, a.q, a.n_queries, a.n_heads, false) &&
           attention_box_takes(a, a.d_o, a.n_queries, a.n_heads, false) && attention_on_hopper();
}

/* Computed as if there were one sequence of keys. */
int64_t attention_onepass_key_chunks(const struct attention_args &a)
{
    const int64_t tiles = attention_tile_count(a.n_queries, CUDA_ATTENTION_ONEPASS_QUERIES);
    const int64_t blocks = attention_tile_count(a.n_keys, CUDA_ATTENTION_ONEPASS_KEYS);
    return attention_parts(blocks * a.n_heads, tiles, 1, a.n_chunks);
}

bool attention_onepass_keys(const struct attention_args &a, cudaStream_t stream)
{
    return a.width == 64 ? launch_keys<keys_64>(a, stream) : launch_keys<keys_72>(a, stream);
}
