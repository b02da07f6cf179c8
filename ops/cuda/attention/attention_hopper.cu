/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention forward for heads of 72 on Hopper (attention_resident.cuh), where operands can be moved
 * in pieces of 16 bytes: a kernel for keys that stay, and one for keys that pass.
 *
 * Compiled for sm_90a alone, since PTX of these instructions fits no other device.
 */
#include "cuda/attention/attention_resident.cuh"

constexpr int GROUPS = 4;
constexpr int THREADS = GROUP * GROUPS;
constexpr float LN2 = 0.69314718f;

extern __shared__ __align__(128) char attention_shared[];

/* Operands that a direction does not have are NULL. */
static bool movable(const struct attention_operand &x)
{
    return !x.data || x.vectors;
}

static bool on_hopper(void)
{
    int device, major = 0, minor = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) ==
               cudaSuccess &&
           major == 9 && minor == 0;
}

/* Whether these kernels take the call, in either direction. */
bool attention_hopper_takes(const struct attention_args &a)
{
    return a.width == HOPPER_WIDTH && !a.mask.hidden && !a.mask.bias.data && a.group == 1 &&
           movable(a.q) && movable(a.k) && movable(a.v) && movable(a.o) && movable(a.d_o) &&
           movable(a.dq) && movable(a.dk) && movable(a.dv) && on_hopper();
}

/* ---- a tile of keys ------------------------------------------------------------------------- */

/* What a lane knows of its two rows: maximum of scores not scaled yet, its share of the sum. */
struct running {
    row_operand q;
    float o[UNITS][4], maximum[2], sum[2];
};

/* What was summed before is brought to the new maximum; returns that as the exponent sees it, scale
 * being that of scores in base 2. */
__device__ __forceinline__ float raise_maximum(running &r, const float (&s)[TILE / 8][4],
                                               float scale, int half)
{
    float top[2] = {r.maximum[half], s[0][2 * half]};
#pragma unroll
    for (int n = 0; n < TILE / 8; n++) {
        top[0] = fmaxf(top[0], s[n][2 * half]);
        top[1] = fmaxf(top[1], s[n][2 * half + 1]);
    }
    top[0] = quad_maximum(fmaxf(top[0], top[1]));
    const float factor = power2((r.maximum[half] - top[0]) * scale);
    r.maximum[half] = top[0];
    r.sum[half] *= factor;
#pragma unroll
    for (int n = 0; n < UNITS; n++) {
        r.o[n][2 * half] *= factor;
        r.o[n][2 * half + 1] *= factor;
    }
    return top[0] * scale;
}

/* One tile of keys, n_keys of them valid; columns of its tiles are PITCH pieces apart. */
template <int PITCH>
__device__ __forceinline__ void forward_step(running &r, uint32_t k, uint32_t v, float scale,
                                             int n_keys)
{
    float s[TILE / 8][4];
    uint32_t p[TILE / 16][4];
    products_begin();
    begin_row_scores<PITCH>(s, r.q, k);
    products_wait<0>();
    pin_registers(s);
    if (n_keys < TILE) {
        n_keys -= (threadIdx.x & 3) * 2;
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (n * 8 + i % 2 >= n_keys)
                    s[n][i] = -INFINITY;
    }
    const float shift[2] = {raise_maximum(r, s, scale, 0), raise_maximum(r, s, scale, 1)};
    pin_registers(r.o);
    /* Sixteen keys after the other: their product runs while the next exponentials are found. */
#pragma unroll
    for (int step = 0; step < TILE / 16; step++) {
#pragma unroll
        for (int n = 2 * step; n < 2 * step + 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[n][i] = power2(s[n][i] * scale - shift[i / 2]);
                r.sum[i / 2] += s[n][i];
            }
        round_operand(p[step], s, step);
        products_begin();
        multiply_rows<PITCH>(r.o, p[step], v, step);
    }
    products_commit();
    products_wait<0>();
    pin_registers(p);
    pin_registers(r.o);
}

/* Queries from the warp's tile; signs are turned where the largest score is the smallest product.
 */
__device__ __forceinline__ void open_queries(running &r, const char *tile, bool negative)
{
    load_rows(r.q, tile);
    const uint32_t signs = negative ? 0x80008000u : 0;
#pragma unroll
    for (int k = 0; k < STEPS; k++)
#pragma unroll
        for (int i = k < STEPS - 1 ? 0 : 2; i < 4; i++)
            r.q[k][i] ^= signs;
    clear_registers(r.o);
    r.maximum[0] = r.maximum[1] = -INFINITY;
    r.sum[0] = r.sum[1] = 0;
}

/* o into the warp's tile, lse to where it belongs.  Without keys both are zero. */
__device__ __forceinline__ void forward_finish(running &r, char *tile, float *lse, int64_t lse_row,
                                               int n_rows, float scale, bool any)
{
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = quad_sum(r.sum[half]);
        const int row = half * 8 + lane_index() / 4;
        if (lane_index() % 4 == 0 && row < n_rows)
            lse[row * lse_row] = any ? r.maximum[half] * scale * LN2 + logf(sum) : 0.f;
        factor[half] = any ? 1.f / sum : 0.f;
    }
    put_warp_rows(tile, r.o, factor[0], factor[1]);
}

/* ---- keys that stay ------------------------------------------------------------------------- */

/* Where the rows of a block's part begin; read again for every tile, as registers are short. */
struct forward_shared {
    struct resident_keys keys;
    struct attention_rows q, o;
    float *lse;
    alignas(128) char tiles[THREADS / 32][2][WARP_TILE]; /* q and o of each warp */
};

__global__ void __launch_bounds__(THREADS, 1)
    resident_forward(const __grid_constant__ attention_args a, int64_t first_unit)
{
    struct forward_shared *here = (struct forward_shared *)attention_shared;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    char *q_tile = here->tiles[warp][0], *o_tile = here->tiles[warp][1];
    const struct resident_part part = resident_part_of(a, first_unit + blockIdx.x);
    const struct attention_keys keys = attention_keys_of(a, part.sequence);
    if (keys.n > RESIDENT)
        return;
    const int n_keys = (int)keys.n, n_queries = (int)(part.end - part.first);
    /* Positive, so that the largest product has the largest score. */
    const float scale = fmaxf(fabsf(attention_scale(a, keys)) * LOG2E, 1e-30f);
    running r;

    here->keys.load(attention_rows_at(a, a.k, part.sequence, part.head, keys.first),
                    attention_rows_at(a, a.v, part.sequence, part.head, keys.first), n_keys);
    if (threadIdx.x == 0) {
        here->q = attention_rows_at(a, a.q, part.sequence, part.head, part.first);
        here->o = attention_rows_at(a, a.o, part.sequence, part.head, part.first);
        here->lse = attention_lse_at(a, part.sequence, part.head) + part.first * a.lse.row;
    }
    __syncthreads();
    int row = warp * WARP_ROWS; /* the warp's first */
    warp_rows(here->q, row).load(q_tile, n_queries - row);
    finish_copies();
    for (; row - warp * WARP_ROWS < n_queries; row += TILE * GROUPS) {
        const bool busy = row - warp % 4 * WARP_ROWS < n_queries; /* the same for a warpgroup */
        copies_wait();
        __syncwarp();
        open_queries(r, q_tile, a.scale < 0);
        __syncwarp();
        warp_rows(here->q, row + TILE * GROUPS).load(q_tile, n_queries - row - TILE * GROUPS);
        for (int key = 0; busy && key < n_keys; key += TILE)
            forward_step<RESIDENT>(r, piece_at(here->keys.k_tile) + key,
                                   piece_at(here->keys.v_tile) + key, scale, n_keys - key);
        forward_finish(r, o_tile, here->lse + row * a.lse.row, a.lse.row, n_queries - row, scale,
                       n_keys > 0);
        __syncwarp();
        warp_rows(here->o, row).store(o_tile, n_queries - row);
    }
    copies_wait();
}

/* ---- keys that pass ------------------------------------------------------------------------- */

constexpr int RING_GROUPS = 4;
constexpr int RING_THREADS = GROUP * RING_GROUPS;

struct ring_shared {
    struct key_ring<RING_THREADS / 32> ring;
    struct attention_rows o;
    float *lse;
    alignas(128) char tiles[RING_THREADS / 32][WARP_TILE]; /* q and then o of each warp */
};

__global__ void __launch_bounds__(RING_THREADS, GROUPS / RING_GROUPS)
    ring_forward(const __grid_constant__ attention_args a, int64_t first_unit)
{
    struct ring_shared *here = (struct ring_shared *)attention_shared;
    struct key_ring<RING_THREADS / 32> *ring = &here->ring;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), row = warp * WARP_ROWS;
    char *tile = here->tiles[warp];
    const struct resident_part part = resident_part_of(a, first_unit + blockIdx.x);
    const struct attention_keys keys = attention_keys_of(a, part.sequence);
    if (a.lens && keys.n <= RESIDENT)
        return;
    const int n_keys = (int)keys.n, n_queries = (int)(part.end - part.first);
    const bool busy = row - warp % 4 * WARP_ROWS < n_queries; /* the same for a warpgroup */
    /* Positive, so that the largest product has the largest score. */
    const float scale = fmaxf(fabsf(attention_scale(a, keys)) * LOG2E, 1e-30f);
    running r;

    warp_rows(attention_rows_at(a, a.q, part.sequence, part.head, part.first), row)
        .load(tile, n_queries - row);
    if (threadIdx.x == 0) {
        here->o = attention_rows_at(a, a.o, part.sequence, part.head, part.first);
        here->lse = attention_lse_at(a, part.sequence, part.head) + part.first * a.lse.row;
    }
    ring->open(attention_rows_at(a, a.k, part.sequence, part.head, keys.first),
               attention_rows_at(a, a.v, part.sequence, part.head, keys.first), n_keys);
    auto load = [&](int t) { ring->load(warp, t); };
    ring->passing.begin(load);
    open_queries(r, tile, a.scale < 0);
    ring->passing.pass(load, [&](int t, int stage) {
        if (busy)
            forward_step<TILE>(r, piece_at(ring->tile[stage][0]), piece_at(ring->tile[stage][1]),
                               scale, ring->n - t * TILE);
    });
    __syncwarp();
    forward_finish(r, tile, here->lse + row * a.lse.row, a.lse.row, n_queries - row, scale,
                   ring->n > 0);
    __syncwarp();
    warp_rows(here->o, row).store(tile, n_queries - row);
}

/* ---- launching ------------------------------------------------------------------------------- */

static void launch_resident(struct attention_args a, cudaStream_t stream)
{
    const int64_t blocks = resident_blocks(a, GROUPS);
    attention_launch(resident_forward, blocks, THREADS, sizeof(struct forward_shared), stream, a);
}

static void launch_ring(struct attention_args a, cudaStream_t stream)
{
    const int64_t blocks = ring_blocks(a, RING_GROUPS);
    attention_launch(ring_forward, blocks, RING_THREADS, sizeof(struct ring_shared), stream, a);
}

void attention_hopper_forward(const struct attention_args &a, cudaStream_t stream)
{
    if (a.lens)
        launch_resident(a, stream);
    if (!a.lens || a.n_keys > RESIDENT)
        launch_ring(a, stream);
}
