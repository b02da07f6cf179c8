/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention forward for heads of 72 on Hopper where the keys are packed and so few that they stay
 * in shared memory (attention_resident.cuh): faster than attention_hopper.cu where all samples
 * together have no more than RESIDENT, which is one sample's text.
 */
#include "cuda/attention/attention_resident.cuh"

constexpr int GROUPS = 4;
constexpr int THREADS = GROUP * GROUPS;
constexpr float LN2 = 0.69314718f;

extern __shared__ __align__(128) char attention_shared[];

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

/* One tile of keys, n_keys of them valid. */
__device__ __forceinline__ void forward_step(running &r, uint32_t k, uint32_t v, float scale,
                                             int n_keys)
{
    float s[TILE / 8][4];
    uint32_t p[TILE / 16][4];
    products_begin();
    begin_row_scores<RESIDENT>(s, r.q, k);
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
        multiply_rows<RESIDENT>(r.o, p[step], v, step);
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

/* ---- the kernel ------------------------------------------------------------------------------ */

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
            forward_step(r, piece_at(here->keys.k_tile) + key, piece_at(here->keys.v_tile) + key,
                         scale, n_keys - key);
        forward_finish(r, o_tile, here->lse + row * a.lse.row, a.lse.row, n_queries - row, scale,
                       n_keys > 0);
        __syncwarp();
        warp_rows(here->o, row).store(o_tile, n_queries - row);
    }
    copies_wait();
}

bool attention_resident_takes(const struct attention_args &a)
{
    return a.lens && a.n_keys <= RESIDENT && attention_hopper_takes(a);
}

void attention_resident_forward(struct attention_args a, cudaStream_t stream)
{
    const int64_t blocks = resident_blocks(a, GROUPS);
    attention_launch(resident_forward, blocks, THREADS, sizeof(struct forward_shared), stream, a);
}
