/*
 * Attention backward for heads of 72 on Hopper (attention_hopper.cuh), by the method of
 * attention_tiles_dx.cu: a kernel for dq, then one for dk and dv.  In the first a block has two
 * warpgroups, each with 64 queries; in the second it is one warpgroup with 64 keys, of which three
 * share a multiprocessor.
 */
#include "cuda/attention_hopper.cuh"
#include "cuda/workspace.h"

constexpr int TILE = 64; /* keys or queries that a block takes in at once */
constexpr int RIGHT = column_pieces(TILE);
constexpr float LOG2E = 1.44269504f;

extern __shared__ uint4 attention_shared[];

/* ---- dq ------------------------------------------------------------------------------------- */

constexpr int GROUPS = 2;
constexpr int THREADS = GROUP * GROUPS;
constexpr int ROWS = GROUP_ROWS * GROUPS;

/* lse in base 2 and delta = sum(o d_o) of the block's rows, for this kernel and the next.  A thread
 * has one row; o is a right tile, d_o a left one. */
__device__ __forceinline__ void find_statistics(const struct attention_args &a, const float *lse,
                                                float2 *global, float2 *shared, const char *o,
                                                const char *d_o, int n_rows)
{
    const int row = threadIdx.x;
    if (row >= ROWS)
        return;
    float2 s = {0.f, 0.f};
    if (row < n_rows) {
        s.x = lse[row * a.lse.row] * LOG2E;
#pragma unroll
        for (int unit = 0; unit < UNITS; unit++) {
            float x[8], y[8];
            load_floats(x, (const bf16 *)(o + unit * column_bytes(ROWS) + row * 16));
            load_floats(y, (const bf16 *)(d_o + left_column(unit) * column_bytes(ROWS) + row * 16));
#pragma unroll
            for (int i = 0; i < 8; i++)
                s.y += x[i] * y[i];
        }
        global[row] = s;
    }
    shared[row] = s;
}

/* What a warpgroup keeps of its queries: first pieces of q and d_o, the rest of a lane's two rows.
 */
struct query_rows {
    uint32_t q, d_o;
    float2 statistics[2];
    float dq[UNITS][4];
};

/* One tile of keys, n_keys of them valid. */
__device__ __forceinline__ void query_step(query_rows &r, uint32_t k, uint32_t v, float scale,
                                           int n_keys)
{
    float s[TILE / 8][4], ds[TILE / 8][4];
    uint32_t operand[TILE / 16][4];
    products_begin();
    begin_scores<column_pieces(ROWS), RIGHT>(s, r.q, k);
    begin_scores<column_pieces(ROWS), RIGHT>(ds, r.d_o, v);
    products_wait<1>();
    pin_registers(s);
#pragma unroll
    for (int n = 0; n < TILE / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = power2(s[n][i] * scale - r.statistics[i / 2].x);
    if (n_keys < TILE) {
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (n * 8 + (threadIdx.x & 3) * 2 + i % 2 >= n_keys)
                    s[n][i] = 0;
    }
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
        multiply_rows<RIGHT>(r.dq, operand[step], k, step);
    }
    products_commit();
    products_wait<0>();
    pin_registers(operand);
    pin_registers(r.dq);
}

__global__ void __launch_bounds__(THREADS, 2)
    hopper_queries(const __grid_constant__ attention_args a, int64_t first_unit)
{
    char *q_tile = (char *)attention_shared, *d_o_tile = q_tile + left_bytes(ROWS);
    char *k_tile = d_o_tile + left_bytes(ROWS), *v_tile = k_tile + right_bytes(TILE);
    char *o_tile = v_tile + right_bytes(TILE); /* the second tiles of keys and values, until then */
    float2 *statistics = (float2 *)(o_tile + 2 * right_bytes(TILE));
    int64_t unit = first_unit + blockIdx.x, head = take_index(unit, a.n_heads);
    int64_t first = take_index(unit, (a.n_queries + ROWS - 1) / ROWS) * ROWS;
    const int64_t sequence = unit;
    const struct attention_keys keys = attention_keys_of(a, sequence);
    if (a.lens && keys.n <= ATTENTION_RESIDENT)
        return;
    const struct attention_rows dq = attention_rows_at(a, a.dq, sequence, head, first);
    const int n_rows = a.n_queries - first < ROWS ? (int)(a.n_queries - first) : ROWS;
    const int row = group_index() * GROUP_ROWS; /* the group's first */
    const core_mover<THREADS> mover;
    core_stream<THREADS> k, v;
    query_rows r = {piece_at(q_tile) + row, piece_at(d_o_tile) + row};

    k.open(mover, attention_rows_at(a, a.k, sequence, head, keys.first), k_tile);
    v.open(mover, attention_rows_at(a, a.v, sequence, head, keys.first), v_tile);
    static_assert(2 * right_bytes(TILE) >= right_bytes(ROWS), "o does not fit");
    mover.template load_left<ROWS>(q_tile, attention_rows_at(a, a.q, sequence, head, first),
                                   n_rows);
    mover.template load_left<ROWS>(d_o_tile, attention_rows_at(a, a.d_o, sequence, head, first),
                                   n_rows);
    mover.template load_right<ROWS>(shared_address(o_tile),
                                    attention_rows_at(a, a.o, sequence, head, first), n_rows);
    int n = keys.n < TILE ? (int)keys.n : TILE, stage = 0;
    k.load(mover, 0, n);
    v.load(mover, 0, n);
    copies_wait();
    __syncthreads();
    find_statistics(a, attention_lse_at(a, sequence, head) + first * a.lse.row,
                    a.statistics + (sequence * a.n_heads + head) * a.n_queries + first, statistics,
                    o_tile, d_o_tile, n_rows);
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++)
        r.statistics[half] = statistics[threadIdx.x / 32 * 16 + half * 8 + (threadIdx.x & 31) / 4];
    clear_registers(r.dq);
    for (int64_t left = keys.n; left > 0; left -= TILE, stage ^= 1) {
        const int now = n;
        n = left - TILE < TILE ? (int)(left - TILE) : TILE;
        copies_wait();
        show_products();
        __syncthreads(); /* this tile has come; nobody works on the one before */
        if (n > 0) {
            k.load(mover, stage ^ 1, n);
            v.load(mover, stage ^ 1, n);
        }
        if (row < n_rows)
            query_step(r, k.tile(stage), v.tile(stage), a.scale * LOG2E, now);
    }
    copies_wait();
    __syncthreads();
    put_rows<ROWS>(q_tile + row * 16, r.dq, a.scale, a.scale);
    __syncthreads();
    mover.template store<ROWS>(dq, n_rows, q_tile);
}

/* ---- dk and dv ------------------------------------------------------------------------------ */

constexpr int KEYS = GROUP_ROWS;

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
    begin_scores<column_pieces(KEYS), RIGHT>(p, r.k, q);
    begin_scores<column_pieces(KEYS), RIGHT>(ds, r.v, d_o);
    products_wait<1>();
    pin_registers(p);
#pragma unroll
    for (int n = 0; n < TILE / 8; n++) {
        const float2 shift = *reinterpret_cast<const float2 *>(lse + n * 8 + column);
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[n][i] = power2(p[n][i] * scale - (i % 2 ? shift.y : shift.x));
    }
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
        multiply_rows<RIGHT>(r.dv, left[k], d_o, k);
        multiply_rows<RIGHT>(r.dk, other[k], q, k);
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
    const int lane = threadIdx.x & 31, row = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float *at = to + (row + half * 8) * a.n_heads * HOPPER_WIDTH + lane % 4 * 2;
        if (row + half * 8 < n_rows)
#pragma unroll
            for (int n = 0; n < UNITS; n++)
                *reinterpret_cast<float2 *>(at + n * 8) =
                    float2{c[n][half * 2] * factor, c[n][half * 2 + 1] * factor};
    }
}

__global__ void __launch_bounds__(GROUP, 3)
    hopper_keys(const __grid_constant__ attention_args a, int64_t first_unit)
{
    static_assert(KEYS == CUDA_ATTENTION_KEYS && GROUP == 2 * TILE, "as the host counts");
    char *k_tile = (char *)attention_shared, *v_tile = k_tile + left_bytes(KEYS);
    char *q_tile = v_tile + left_bytes(KEYS), *d_o_tile = q_tile + right_bytes(TILE);
    float *statistics = (float *)(q_tile + 4 * right_bytes(TILE)); /* [stage][lse, delta][TILE] */
    int64_t unit = first_unit + blockIdx.x, head = take_index(unit, a.n_heads);
    int64_t chunk = take_index(unit, a.n_chunks);
    const struct attention_key_tile tile = attention_key_tile_of(a, unit, KEYS);
    const int64_t sequence = tile.sequence;
    const int64_t first_key = tile.first, rest = a.n_keys - tile.first;
    const int n_rows = rest < KEYS ? (int)rest : KEYS;
    const int64_t begin = chunk * a.chunk;
    const int64_t end = begin + a.chunk < a.n_queries ? begin + a.chunk : a.n_queries;
    const int query = threadIdx.x % TILE; /* one half of the threads brings lse, the other delta */
    const float *from =
        &a.statistics[(sequence * a.n_heads + head) * a.n_queries + begin + query].x +
        threadIdx.x / TILE;
    const core_mover<GROUP> mover;
    core_stream<GROUP> q, d_o;
    key_rows r = {piece_at(k_tile), piece_at(v_tile)};

    q.open(mover, attention_rows_at(a, a.q, sequence, head, begin), q_tile);
    d_o.open(mover, attention_rows_at(a, a.d_o, sequence, head, begin), d_o_tile);
    auto load_queries = [&](int stage, int n) {
        q.load(mover, stage, n);
        d_o.load(mover, stage, n);
        copy4(shared_address(statistics + stage * 2 * TILE + threadIdx.x), from, query < n);
        from += 2 * TILE;
    };
    mover.template load_left<KEYS>(k_tile, attention_rows_at(a, a.k, sequence, head, first_key),
                                   n_rows);
    mover.template load_left<KEYS>(v_tile, attention_rows_at(a, a.v, sequence, head, first_key),
                                   n_rows);
    if (begin < end)
        load_queries(0, end - begin < TILE ? (int)(end - begin) : TILE);
    clear_registers(r.dk);
    clear_registers(r.dv);
    int stage = 0;
    for (int64_t left = end - begin; left > 0; left -= TILE, stage ^= 1) {
        const int next = left - TILE < TILE ? (int)(left - TILE) : TILE;
        copies_wait();
        show_products();
        __syncthreads(); /* this tile has come; nobody works on the one before */
        if (next > 0)
            load_queries(stage ^ 1, next);
        const float *lse = statistics + stage * 2 * TILE;
        key_step(r, q.tile(stage), d_o.tile(stage), lse, lse + TILE, a.scale * LOG2E);
    }
    if (a.partial) {
        int64_t at = sequence * a.n_keys + first_key;
        int64_t matrix = a.n_sequences * a.n_keys * a.n_heads * HOPPER_WIDTH;
        float *to = a.partial + chunk * 2 * matrix + (at * a.n_heads + head) * HOPPER_WIDTH;
        put_partial(a, to, n_rows, r.dk, a.scale);
        put_partial(a, to + matrix, n_rows, r.dv, 1.f);
        copies_wait(); /* where the chunk was empty */
        return;
    }
    copies_wait();
    __syncthreads();
    put_rows<KEYS>(k_tile, r.dk, a.scale, a.scale);
    put_rows<KEYS>(v_tile, r.dv, 1.f, 1.f);
    __syncthreads();
    mover.template store<KEYS>(attention_rows_at(a, a.dk, sequence, head, first_key), n_rows,
                               k_tile);
    mover.template store<KEYS>(attention_rows_at(a, a.dv, sequence, head, first_key), n_rows,
                               v_tile);
}

/* ---- launching ------------------------------------------------------------------------------- */

static void launch_queries(const struct attention_args &a, cudaStream_t stream)
{
    const size_t tiles = 2 * left_bytes(ROWS) + 4 * right_bytes(TILE);
    attention_launch(hopper_queries,
                     a.n_sequences * a.n_heads * attention_tile_count(a.n_queries, ROWS), THREADS,
                     tiles + sizeof(float2) * ROWS, stream, a);
}

static void launch_keys(const struct attention_args &a, cudaStream_t stream)
{
    const size_t tiles = 2 * left_bytes(KEYS) + 4 * right_bytes(TILE);
    attention_launch(hopper_keys,
                     a.n_sequences * attention_tile_count(a.n_keys, KEYS) * a.n_chunks * a.n_heads,
                     GROUP, tiles + sizeof(float2) * 2 * TILE, stream, a);
}

void attention_hopper_backward(const struct attention_args &a, cudaStream_t stream)
{
    if (!a.lens || a.n_keys > ATTENTION_RESIDENT)
        launch_queries(a, stream);
    if (a.lens)
        attention_resident_backward(a, stream);
    else
        launch_keys(a, stream);
}
