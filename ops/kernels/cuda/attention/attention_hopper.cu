/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forward attention on Hopper (attention_pingpong.cuh), for heads of 64, 72 and 128: the kernel,
 * and the calls that it supports.  Compiled only for sm_90a, since the PTX of these instructions is
 * not portable.
 */
#include "kernels/cuda/attention/attention_pingpong_group.cuh"

extern __shared__ __align__(1024) char attention_shared[];

/* ---- the kernel ------------------------------------------------------------------------------ */

__device__ __forceinline__ void init_barriers(uint64_t *full, uint64_t *empty, int n, int users)
{
    for (int i = 0; i < n; i++) {
        barrier_init(&full[i], 1);
        barrier_init(&empty[i], users);
    }
}

/* A multiprocessor has 64 Ki registers; the producer warpgroup needs few of them. */
template <typename S>
__global__ void __launch_bounds__(S::THREADS, 1)
    pingpong_forward(const __grid_constant__ attention_args a,
                     const __grid_constant__ pingpong_work w,
                     const __grid_constant__ pingpong_maps m)
{
    static_assert(sizeof(typename S::shared) <= 227 * 1024, "what a block may have");
    typename S::shared *here = (typename S::shared *)attention_shared;
    const int group = group_index(), warps = S::GROUPS * 4;
    if (threadIdx.x == 0) {
        init_barriers(here->q_full, here->q_empty, S::Q_STAGES, S::GROUPS);
        init_barriers(here->k_full, here->k_empty, S::STAGES, warps);
        init_barriers(here->v_full, here->v_empty, S::STAGES, warps);
        init_barriers(here->item_full, here->item_empty, S::ITEMS, warps + 1);
        barrier_inits_end();
    }
    __syncthreads();
    if (group == S::GROUPS) {
        registers_fewer<S::GROUPS == 2 ? 24 : 32>();
        if (threadIdx.x % GROUP == 0)
            pingpong_loader<S>{here, m}.run(w);
        else if (threadIdx.x % GROUP == 32)
            pingpong_schedule<S>(here, a, w);
    } else {
        registers_more<S::GROUPS == 2 ? 240 : 160>();
        pingpong_group<S> g{a, m, here, group};
        if (group == S::GROUPS - 1)
            g.ping_pong_end();
        g.run(w);
        if (group == 0) /* consumes the last arrival of the other warpgroup */
            g.ping_pong_begin();
    }
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Keys and values of the heads that are processed concurrently: well within the 50 MB L2 cache. */
constexpr int64_t SECTION_BYTES = 24 << 20;

bool attention_on_hopper(void)
{
    return device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
           device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

/* Causal items are ordered such that the same tile of several heads runs concurrently, so that
 * blocks have equal work; other items such that the tiles of one head do, which read the same keys.
 * If the last wave would leave most blocks idle, its items are split into one per warpgroup. */
template <typename S>
static struct pingpong_work work_of(const struct attention_args &a, int blocks)
{
    const int64_t head_bytes = 4 * a.n_keys * a.width / a.group;
    struct pingpong_work w = {};
    w.tiles = (int)attention_tile_count(a.n_queries, S::ROWS);
    w.units = (int)(a.n_sequences * a.n_heads);
    w.items = w.tiles * w.units;
    w.section = 1;
    if (a.mask.causal && head_bytes < SECTION_BYTES)
        w.section =
            (int)(SECTION_BYTES / head_bytes < w.units ? SECTION_BYTES / head_bytes : w.units);
    const int rest = w.items % blocks;
    w.whole = w.items;
    if (rest * S::GROUPS <= blocks) {
        w.whole = w.items - rest;
        w.items = w.whole + rest * S::GROUPS;
    }
    return w;
}

static bool query_map(CUtensorMap *to, const struct attention_args &a,
                      const struct attention_operand &x, int columns, int rows)
{
    return attention_box_map(to, a, x, a.n_queries, a.n_heads, false, columns, rows);
}

static bool key_map(CUtensorMap *to, const struct attention_args &a,
                    const struct attention_operand &x, int columns, int rows)
{
    return attention_box_map(to, a, x, a.n_keys, a.n_shared, a.lens, columns, rows);
}

template <typename S> static bool maps_of(struct pingpong_maps *m, const struct attention_args &a)
{
    return query_map(&m->q, a, a.q, 64, S::ROWS) && key_map(&m->k, a, a.k, 64, S::KEYS) &&
           key_map(&m->v, a, a.v, 64, S::VALUES) && query_map(&m->o, a, a.o, 64, GROUP_ROWS) &&
           (!S::NARROW || (query_map(&m->q_narrow, a, a.q, 16, S::ROWS) &&
                           key_map(&m->k_narrow, a, a.k, 16, S::KEYS) &&
                           query_map(&m->o_narrow, a, a.o, 16, GROUP_ROWS)));
}

template <typename S> static bool launch(const struct attention_args &a, cudaStream_t stream)
{
    const int blocks = device_attribute(cudaDevAttrMultiProcessorCount);
    const struct pingpong_work w = work_of<S>(a, blocks);
    const int shared = (int)sizeof(typename S::shared);
    struct pingpong_maps m = {};
    if (!maps_of<S>(&m, a))
        return false;
    cudaFuncSetAttribute(pingpong_forward<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    const int grid = w.items < blocks ? w.items : blocks;
    pingpong_forward<S><<<grid, S::THREADS, shared, stream>>>(a, w, m);
    return true;
}

/* Tile sizes by measurement (doc/bench/h200.md). */
typedef pingpong_shape<64, 128, 3, true> shape_64;
typedef pingpong_shape<72, 104, 3, true> shape_72;
typedef pingpong_shape<128, 128, 2, true> shape_128;

/* Does the kernel support the call?  Heads of 72, for which no other kernel is as fast, may have
 * any number of queries; others need more than 64, since fewer have not been measured. */
bool attention_pingpong_takes(const struct attention_args &a)
{
    const int64_t limit = INT32_MAX / 4, rows = attention_tile_count(a.n_queries, GROUP_ROWS);
    const bool worth = a.width == 72 || a.n_queries > GROUP_ROWS;
    return (a.width == 64 || a.width == 72 || a.width == 128) && worth && a.scale > 0 &&
           !a.mask.bias.data && !a.mask.first.data && a.n_queries > 0 && a.n_keys > 0 &&
           a.n_sequences > 0 && a.n_heads > 0 && a.n_queries <= limit && a.n_keys <= limit &&
           a.mask.window <= limit && a.n_sequences * a.n_heads <= limit / rows &&
           attention_box_takes(a, a.q, a.n_queries, a.n_heads, false) &&
           attention_box_takes(a, a.o, a.n_queries, a.n_heads, false) &&
           attention_box_takes(a, a.k, a.n_keys, a.n_shared, a.lens) &&
           attention_box_takes(a, a.v, a.n_keys, a.n_shared, a.lens) && attention_on_hopper();
}

/*
 * Is it as fast as cuDNN, according to doc/bench/h200.md?  Always with heads of 72 and with heads
 * that share keys; with causal masks up to half a billion scores; without masks with heads of 64,
 * and with heads of 128 that see few or many keys.  Windows have not been measured.
 */
constexpr double CAUSAL_SCORES = 5e8, FEW_SCORES = 1.6e7;
constexpr int64_t MANY_KEYS = 4096;

bool attention_pingpong_is_fast(const struct attention_args &a)
{
    const double scores = (double)a.n_sequences * a.n_heads * a.n_queries * a.n_keys;
    if (!attention_pingpong_takes(a) || a.mask.window)
        return false;
    return a.width == 72 || a.group > 1 ||
           (a.mask.causal ? scores <= CAUSAL_SCORES
                          : a.width == 64 || scores <= FEW_SCORES || a.n_keys > MANY_KEYS);
}

/* Returns false if it launched nothing. */
bool attention_pingpong_forward(const struct attention_args &a, cudaStream_t stream)
{
    return a.width == 64   ? launch<shape_64>(a, stream)
           : a.width == 72 ? launch<shape_72>(a, stream)
                           : launch<shape_128>(a, stream);
}
