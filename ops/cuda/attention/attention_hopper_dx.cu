/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross attention backward for heads of 72 on Hopper (attention_resident.cuh).  Kernels for dq also
 * find what the last one needs to know of a query.  That one, for dk and dv, has three warpgroups
 * in a block, each with 64 keys of one head, before which the queries of a chunk pass.  Sums of
 * chunks are added up afterwards, in order (attention_tiles_dx.cu).
 */
#include "cuda/attention/attention_resident.cuh"

extern __shared__ __align__(128) char attention_shared[];

/* ---- dq ------------------------------------------------------------------------------------- */

constexpr int GROUPS = 3;
constexpr int THREADS = GROUP * GROUPS;

/* What a lane keeps of its two queries: lse in base 2 and delta = sum(o d_o) are statistics. */
struct query_rows {
    row_operand q, d_o;
    float2 statistics[2];
    float dq[UNITS][4];
};

__device__ __forceinline__ float add_products(float sum, uint32_t x, uint32_t y)
{
    const float2 a = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(&x));
    const float2 b = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(&y));
    return sum + (a.x * b.x + a.y * b.y);
}

/* Takes q, d_o and o from the warp's tiles; lse is that of its rows. */
__device__ __forceinline__ void open_queries(query_rows &r, const char *tiles, const float *lse)
{
    row_operand o;
    float delta[2] = {0.f, 0.f};
    load_rows(r.d_o, tiles + WARP_TILE);
    load_rows(o, tiles + 2 * WARP_TILE);
#pragma unroll
    for (int k = 0; k < STEPS; k++)
#pragma unroll
        for (int i = k < STEPS - 1 ? 0 : 2; i < 4; i++)
            delta[i % 2] = add_products(delta[i % 2], r.d_o[k][i], o[k][i]);
    load_rows(r.q, tiles);
#pragma unroll
    for (int half = 0; half < 2; half++)
        r.statistics[half] =
            float2{lse[lane_index() / 4 + half * 8] * LOG2E, quad_sum(delta[half])};
    clear_registers(r.dq);
}

/* For the next kernel: those of n rows. */
__device__ __forceinline__ void put_statistics(const query_rows &r, float2 *to, int n)
{
    const int row = lane_index() / 4;
#pragma unroll
    for (int half = 0; half < 2; half++)
        if (lane_index() % 4 == 0 && row + half * 8 < n)
            to[row + half * 8] = r.statistics[half];
}

/* One tile of keys, n_keys of them valid; columns of its tiles are PITCH pieces apart. */
template <int PITCH>
__device__ __forceinline__ void query_step(query_rows &r, uint32_t k, uint32_t v, float scale,
                                           int n_keys)
{
    float s[TILE / 8][4], ds[TILE / 8][4];
    uint32_t operand[TILE / 16][4];
    products_begin();
    begin_row_scores<PITCH>(s, r.q, k);
    begin_row_scores<PITCH>(ds, r.d_o, v);
    products_wait<1>();
    pin_registers(s);
#pragma unroll
    for (int n = 0; n < TILE / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = probability(s[n][i] * scale, r.statistics[i / 2].x);
    if (n_keys < TILE) {
        n_keys -= (threadIdx.x & 3) * 2;
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (n * 8 + i % 2 >= n_keys)
                    s[n][i] = 0;
    }
    pin_registers(s); /* exponentials are found while the second product runs */
    products_wait<0>();
    pin_registers(ds);
    pin_registers(r.dq);
    /* Sixteen keys after the other: their product runs while the next are rounded. */
#pragma unroll
    for (int step = 0; step < TILE / 16; step++) {
#pragma unroll
        for (int n = 2 * step; n < 2 * step + 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                ds[n][i] = s[n][i] * (ds[n][i] - r.statistics[i / 2].y);
        round_operand(operand[step], ds, step);
        products_begin();
        multiply_rows<PITCH>(r.dq, operand[step], k, step);
    }
    products_commit();
    products_wait<0>();
    pin_registers(operand);
    pin_registers(r.dq);
}

/* Where the rows of a block's part begin; read again for every tile, as registers are short. */
struct query_shared {
    struct resident_keys keys;
    struct attention_rows q, d_o, o, dq;
    float *lse;
    float2 *statistics;
    float warp_lse[THREADS / 32][WARP_ROWS];
    alignas(128) char tiles[THREADS / 32][4][WARP_TILE]; /* q, d_o, o and dq of each warp */

    /* Rows from `row` on begin to come, n of them. */
    __device__ __forceinline__ void load(int warp, int row, int n, int64_t lse_row)
    {
        const int lane = lane_index();
        warp_rows(q, row).load(tiles[warp][0], n);
        warp_rows(d_o, row).load(tiles[warp][1], n);
        warp_rows(o, row).load(tiles[warp][2], n);
        if (lane < WARP_ROWS)
            copy4(shared_address(&warp_lse[warp][lane]), lse + (row + lane) * lse_row, lane < n);
    }
};

__global__ void __launch_bounds__(THREADS, 1)
    resident_queries(const __grid_constant__ attention_args a, int64_t first_unit)
{
    struct query_shared *here = (struct query_shared *)attention_shared;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const struct resident_part part = resident_part_of(a, first_unit + blockIdx.x);
    const struct attention_keys keys = attention_keys_of(a, part.sequence);
    if (keys.n > RESIDENT)
        return;
    const int n_keys = (int)keys.n, n_queries = (int)(part.end - part.first);
    const float scale = attention_scale(a, keys);
    query_rows r;

    here->keys.load(attention_rows_at(a, a.k, part.sequence, part.head, keys.first),
                    attention_rows_at(a, a.v, part.sequence, part.head, keys.first), n_keys);
    if (threadIdx.x == 0) {
        here->q = attention_rows_at(a, a.q, part.sequence, part.head, part.first);
        here->d_o = attention_rows_at(a, a.d_o, part.sequence, part.head, part.first);
        here->o = attention_rows_at(a, a.o, part.sequence, part.head, part.first);
        here->dq = attention_rows_at(a, a.dq, part.sequence, part.head, part.first);
        here->lse = attention_lse_at(a, part.sequence, part.head) + part.first * a.lse.row;
        here->statistics =
            a.statistics + (part.sequence * a.n_heads + part.head) * a.n_queries + part.first;
    }
    __syncthreads();
    int row = warp * WARP_ROWS; /* the warp's first */
    here->load(warp, row, n_queries - row, a.lse.row);
    finish_copies();
    for (; row - warp * WARP_ROWS < n_queries; row += TILE * GROUPS) {
        const bool busy = row - warp % 4 * WARP_ROWS < n_queries; /* the same for a warpgroup */
        copies_wait();
        __syncwarp();
        open_queries(r, here->tiles[warp][0], here->warp_lse[warp]);
        __syncwarp();
        here->load(warp, row + TILE * GROUPS, n_queries - row - TILE * GROUPS, a.lse.row);
        put_statistics(r, here->statistics + row, n_queries - row);
        for (int key = 0; busy && key < n_keys; key += TILE)
            query_step<RESIDENT>(r, piece_at(here->keys.k_tile) + key,
                                 piece_at(here->keys.v_tile) + key, scale * LOG2E, n_keys - key);
        put_warp_rows(here->tiles[warp][3], r.dq, scale, scale);
        __syncwarp();
        warp_rows(here->dq, row).store(here->tiles[warp][3], n_queries - row);
    }
    copies_wait();
}

/* The same where keys pass, 64 queries a warpgroup. */
struct ring_shared {
    struct key_ring<THREADS / 32> ring;
    struct attention_rows dq;
    float warp_lse[THREADS / 32][WARP_ROWS];
    alignas(128) char tiles[THREADS / 32][3][WARP_TILE]; /* q and then dq, d_o, o of each warp */
};

__global__ void __launch_bounds__(THREADS, 1)
    ring_queries(const __grid_constant__ attention_args a, int64_t first_unit)
{
    struct ring_shared *here = (struct ring_shared *)attention_shared;
    struct key_ring<THREADS / 32> *ring = &here->ring;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), row = warp * WARP_ROWS;
    char *tile = here->tiles[warp][0];
    const struct resident_part part = resident_part_of(a, first_unit + blockIdx.x);
    const struct attention_keys keys = attention_keys_of(a, part.sequence);
    if (keys.n <= RESIDENT)
        return;
    const int n_keys = (int)keys.n, n_queries = (int)(part.end - part.first);
    const bool busy = row - warp % 4 * WARP_ROWS < n_queries; /* the same for a warpgroup */
    const struct attention_operand *operand[3] = {&a.q, &a.d_o, &a.o};
    const float *lse =
        attention_lse_at(a, part.sequence, part.head) + (part.first + row) * a.lse.row;
    const float scale = attention_scale(a, keys);
    const int lane = lane_index();
    query_rows r;

#pragma unroll
    for (int i = 0; i < 3; i++)
        warp_rows(attention_rows_at(a, *operand[i], part.sequence, part.head, part.first), row)
            .load(tile + i * WARP_TILE, n_queries - row);
    if (lane < WARP_ROWS)
        copy4(shared_address(&here->warp_lse[warp][lane]), lse + lane * a.lse.row,
              row + lane < n_queries);
    if (threadIdx.x == 0)
        here->dq = attention_rows_at(a, a.dq, part.sequence, part.head, part.first);
    ring->open(attention_rows_at(a, a.k, part.sequence, part.head, keys.first),
               attention_rows_at(a, a.v, part.sequence, part.head, keys.first), n_keys);
    auto load = [&](int t) { ring->load(warp, t); };
    ring->passing.begin(load);
    open_queries(r, tile, here->warp_lse[warp]);
    put_statistics(
        r, a.statistics + (part.sequence * a.n_heads + part.head) * a.n_queries + part.first + row,
        n_queries - row);
    ring->passing.pass(load, [&](int t, int stage) {
        if (busy)
            query_step<TILE>(r, piece_at(ring->tile[stage][0]), piece_at(ring->tile[stage][1]),
                             scale * LOG2E, ring->n - t * TILE);
    });
    __syncwarp();
    put_warp_rows(tile, r.dq, scale, scale);
    __syncwarp();
    warp_rows(here->dq, row).store(tile, n_queries - row);
}

/* ---- dk and dv ------------------------------------------------------------------------------ */

constexpr int KEYS = TILE * GROUPS; /* of a block */
constexpr int LEFT_TILE = 16 * TILE * (UNITS + 1);

/* Where the keys of a warpgroup are, n of them, and the scale of their scores; the chunk of queries
 * that pass.  It stays in shared memory, as registers are short. */
struct key_place {
    int64_t sequence, head, first, chunk;
    int n, n_queries;
    float scale;
};

/* Keys and values of each warpgroup, and the ring: tiles of q and of d_o, lse and delta of their
 * rows. */
struct query_ring {
    alignas(128) char keys[GROUPS][2][LEFT_TILE];
    char tile[STAGES][2][RIGHT_TILE];
    float statistics[STAGES][2][TILE];
    struct key_place place[GROUPS];
    struct passing_tiles passing;
};

/* What a thread does to bring tiles in: warps 0 to 7 copy eight pieces of rows, the others the
 * ninth and statistics. */
struct ring_mover {
    const char *from[2];
    int64_t step[2]; /* bytes per row */
    uint32_t to;
    int row, query;
    bool main;

    __device__ __forceinline__ ring_mover(const struct query_ring *ring, const attention_rows &q,
                                          const attention_rows &d_o, const float2 *statistics)
    {
        const int warp = threadIdx.x / 32, lane = lane_index(), second = (warp - 8) / 2;
        const int unit = lane / 8 * 2 + lane / 4 % 2;
        main = warp < 8;
        row = main ? warp * 8 + lane % 4 : warp % 2 * 32 + lane;
        query = row;
        to = shared_address(ring->tile);
        if (main) {
            from[0] = (const char *)q.data + 2 * (row * q.row + unit * 8);
            from[1] = (const char *)d_o.data + 2 * (row * d_o.row + unit * 8);
            step[0] = 2 * q.row;
            step[1] = 2 * d_o.row;
            to += (unit * TILE + row) * 16;
        } else {
            const attention_rows &x = second ? d_o : q;
            from[0] = (const char *)x.data + 2 * (row * x.row + (UNITS - 1) * 8);
            from[1] = (const char *)(&statistics[row].x + second);
            step[0] = 2 * x.row;
            step[1] = sizeof *statistics;
            to += second * RIGHT_TILE + ((UNITS - 1) * TILE + row) * 16;
            query += second * TILE;
        }
    }

    /* The next tile of n rows. */
    __device__ __forceinline__ void load(const struct query_ring *ring, int stage, int n)
    {
        const uint32_t at = to + stage * 2 * RIGHT_TILE;
        copy16(at, from[0], row < n);
        if (main) {
            copy16(at + 4 * 16, from[0] + 4 * step[0], row + 4 < n);
            copy16(at + RIGHT_TILE, from[1], row < n);
            copy16(at + RIGHT_TILE + 4 * 16, from[1] + 4 * step[1], row + 4 < n);
        } else {
            copy4(shared_address(&ring->statistics[stage][0][0] + query), from[1], row < n);
        }
        from[0] += TILE * step[0];
        from[1] += TILE * step[1];
    }
};

/* What a warpgroup keeps of its keys. */
struct key_rows {
    uint32_t k, v; /* first pieces */
    float dk[UNITS][4], dv[UNITS][4];
};

/* One tile of queries, with lse and delta of each.  Scores stand transposed, keys down and queries
 * across, so that rounded they are the left operands that both sums need.  Missing queries add
 * nothing: their q and d_o are zero, their lse and delta too. */
__device__ __forceinline__ void key_step(key_rows &r, uint32_t q, uint32_t d_o, const float *lse,
                                         const float *delta, float scale)
{
    const int column = (threadIdx.x & 3) * 2;
    float p[TILE / 8][4], ds[TILE / 8][4];
    uint32_t left[TILE / 16][4], other[TILE / 16][4];
    products_begin();
    begin_scores<TILE, TILE>(p, r.k, q);
    begin_scores<TILE, TILE>(ds, r.v, d_o);
    products_wait<1>();
    pin_registers(p);
#pragma unroll
    for (int n = 0; n < TILE / 8; n++) {
        const float2 shift = *reinterpret_cast<const float2 *>(lse + n * 8 + column);
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[n][i] = probability(p[n][i] * scale, i % 2 ? shift.y : shift.x);
    }
    pin_registers(p); /* exponentials are found while the second product runs */
    products_wait<0>();
    pin_registers(ds);
    pin_registers(r.dv);
    pin_registers(r.dk);
    /* Sixteen queries after the other: their products run while the next are rounded. */
#pragma unroll
    for (int k = 0; k < TILE / 16; k++) {
#pragma unroll
        for (int n = 2 * k; n < 2 * k + 2; n++) {
            const float2 less = *reinterpret_cast<const float2 *>(delta + n * 8 + column);
#pragma unroll
            for (int i = 0; i < 4; i++)
                ds[n][i] = p[n][i] * (ds[n][i] - (i % 2 ? less.y : less.x));
        }
        round_operand(left[k], p, k);
        round_operand(other[k], ds, k);
        products_begin();
        multiply_rows<TILE>(r.dv, left[k], d_o, k);
        multiply_rows<TILE>(r.dk, other[k], q, k);
    }
    products_commit();
    products_wait<0>();
    pin_registers(left);
    pin_registers(other);
    pin_registers(r.dv);
    pin_registers(r.dk);
}

/* A warpgroup's rows of a sum, in fp32 to the scratch of a chunk. */
__device__ __forceinline__ void put_partial(const struct attention_args &a, float *to, int n_rows,
                                            const float (&c)[UNITS][4], float factor)
{
    const int row = threadIdx.x % GROUP / 32 * 16 + lane_index() / 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float *at = to + (row + half * 8) * a.n_heads * HOPPER_WIDTH + threadIdx.x % 4 * 2;
        if (row + half * 8 < n_rows)
#pragma unroll
            for (int n = 0; n < UNITS; n++)
                *reinterpret_cast<float2 *>(at + n * 8) =
                    float2{c[n][half * 2] * factor, c[n][half * 2 + 1] * factor};
    }
}

/* A warpgroup's 64 rows as a left operand, n of them there: its ninth column is of zeros. */
__device__ __forceinline__ void load_left_cores(char *tile, const attention_rows &x, int n)
{
    load_cores(tile, TILE, UNITS, x, n, TILE, threadIdx.x % GROUP / 32, GROUP / 32);
    if (threadIdx.x % GROUP < TILE)
        *reinterpret_cast<uint4 *>(tile + ((UNITS - 1) * TILE + threadIdx.x % GROUP) * 16) =
            uint4{0, 0, 0, 0};
}

/* For the thread's warpgroup. */
__device__ __forceinline__ struct key_place find_keys(const struct attention_args &a, int64_t unit)
{
    struct key_place p;
    p.head = take_index(unit, a.n_heads);
    p.chunk = take_index(unit, a.n_chunks);
    const struct attention_key_tile tile = attention_key_tile_of(a, unit, KEYS);
    p.sequence = tile.sequence;
    p.first = tile.keys.first + tile.first + group_index() * TILE;
    const int64_t rest = tile.keys.n - tile.first - group_index() * TILE;
    const int64_t begin = p.chunk * a.chunk, left = a.n_queries - begin;
    p.n = rest < TILE ? (int)rest : TILE;
    p.scale = attention_scale(a, tile.keys);
    p.n_queries = left < a.chunk ? (int)left : (int)a.chunk;
    return p;
}

/* A warpgroup's sums to the scratch of the chunk. */
__device__ __forceinline__ void put_sums(const struct attention_args &a, const key_place &p,
                                         const key_rows &r)
{
    const int64_t matrix = a.n_keys * a.n_heads * HOPPER_WIDTH;
    float *to = a.partial + p.chunk * 2 * matrix + (p.first * a.n_heads + p.head) * HOPPER_WIDTH;
    put_partial(a, to, p.n, r.dk, p.scale);
    put_partial(a, to + matrix, p.n, r.dv, 1.f);
}

__global__ void __launch_bounds__(THREADS, 1)
    key_sums(const __grid_constant__ attention_args a, int64_t first_unit)
{
    const int group = group_index();
    struct query_ring *ring = (struct query_ring *)attention_shared;
    char *k_tile = ring->keys[group][0], *v_tile = ring->keys[group][1];
    const struct key_place p = find_keys(a, first_unit + blockIdx.x);
    if (p.sequence < 0)
        return;
    key_rows r = {piece_at(k_tile), piece_at(v_tile)};
    const int64_t begin = p.chunk * a.chunk;
    struct ring_mover mover(ring, attention_rows_at(a, a.q, p.sequence, p.head, begin),
                            attention_rows_at(a, a.d_o, p.sequence, p.head, begin),
                            a.statistics + (p.sequence * a.n_heads + p.head) * a.n_queries + begin);

    ring->passing.init(tile_count(p.n_queries));
    if (threadIdx.x % GROUP == 0)
        ring->place[group] = p;
    load_left_cores(k_tile, attention_rows_at(a, a.k, p.sequence, p.head, p.first), p.n);
    load_left_cores(v_tile, attention_rows_at(a, a.v, p.sequence, p.head, p.first), p.n);
    clear_registers(r.dk);
    clear_registers(r.dv);
    __syncthreads();
    const struct key_place *place = &ring->place[group];
    auto load = [&](int t) { mover.load(ring, t % STAGES, place->n_queries - t * TILE); };
    ring->passing.begin(load);
    ring->passing.pass(load, [&](int, int stage) {
        if (place->n > 0)
            key_step(r, piece_at(ring->tile[stage][0]), piece_at(ring->tile[stage][1]),
                     ring->statistics[stage][0], ring->statistics[stage][1], place->scale * LOG2E);
    });
    put_sums(a, *place, r);
}

/* ---- launching ------------------------------------------------------------------------------- */

static int64_t key_blocks(const struct attention_args &a)
{
    return a.n_keys / KEYS + a.n_sequences;
}

int64_t attention_hopper_chunks(const struct attention_args &a)
{
    return attention_parts(key_blocks(a) * a.n_heads, attention_tile_count(a.n_queries, TILE), 1,
                           a.n_chunks);
}

static void launch_resident(struct attention_args a, cudaStream_t stream)
{
    const int64_t blocks = resident_blocks(a, GROUPS);
    attention_launch(resident_queries, blocks, THREADS, sizeof(struct query_shared), stream, a);
}

static void launch_ring(struct attention_args a, cudaStream_t stream)
{
    const int64_t blocks = ring_blocks(a, GROUPS);
    attention_launch(ring_queries, blocks, THREADS, sizeof(struct ring_shared), stream, a);
}

void attention_hopper_backward(const struct attention_args &a, cudaStream_t stream)
{
    launch_resident(a, stream);
    if (a.n_keys > RESIDENT)
        launch_ring(a, stream);
    attention_launch(key_sums, key_blocks(a) * a.n_chunks * a.n_heads, THREADS,
                     sizeof(struct query_ring), stream, a);
}
