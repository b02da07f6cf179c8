/*
 * Attention forward for heads of 72 on Hopper (attention_hopper.cuh), where operands can be moved
 * in pieces of 16 bytes; else as attention_tiles.cu, whose method this is.  A block has two
 * warpgroups, each with 64 queries of one head; both use the tiles of 64 keys that come in.  Two
 * blocks on a multiprocessor keep its tensor cores busy while others find exponentials.
 *
 * Compiled for sm_90a alone, since PTX of these instructions fits no other device.
 */
#include "cuda/attention_hopper.cuh"

constexpr int GROUPS = 2;
constexpr int THREADS = GROUP * GROUPS;
constexpr int ROWS = GROUP_ROWS * GROUPS;
constexpr int KEYS = 64;
constexpr int RIGHT = column_pieces(KEYS);
constexpr float LOG2E = 1.44269504f;
constexpr float LN2 = 0.69314718f;

extern __shared__ uint4 attention_shared[];

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
    return a.width == HOPPER_WIDTH && movable(a.q) && movable(a.k) && movable(a.v) &&
           movable(a.o) && movable(a.d_o) && movable(a.dq) && movable(a.dk) && movable(a.dv) &&
           on_hopper();
}

/* What a lane knows of its two rows: maximum of scores not scaled yet, its share of the sum. */
struct running {
    float o[UNITS][4], maximum[2], sum[2];
};

/* What was summed before is brought to the new maximum; returns that as the exponent sees it, scale
 * being that of scores in base 2. */
__device__ __forceinline__ float raise_maximum(running &r, const float (&s)[KEYS / 8][4],
                                               float scale, int half)
{
    float top = r.maximum[half];
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
        top = fmaxf(top, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    top = quad_maximum(top);
    const float factor = power2((r.maximum[half] - top) * scale);
    r.maximum[half] = top;
    r.sum[half] *= factor;
#pragma unroll
    for (int n = 0; n < UNITS; n++) {
        r.o[n][2 * half] *= factor;
        r.o[n][2 * half + 1] *= factor;
    }
    return top * scale;
}

/* One tile of keys, n_keys of them valid.  Products are turned around where the scale is negative.
 */
__device__ __forceinline__ void forward_step(running &r, uint32_t q, uint32_t k, uint32_t v,
                                             float scale, bool negative, int n_keys)
{
    float s[KEYS / 8][4];
    uint32_t p[KEYS / 16][4];
    products_begin();
    begin_scores<column_pieces(ROWS), RIGHT>(s, q, k);
    products_wait<0>();
    pin_registers(s);
    if (negative || n_keys < KEYS) {
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float x = negative ? -s[n][i] : s[n][i];
                s[n][i] = n * 8 + (threadIdx.x & 3) * 2 + i % 2 >= n_keys ? -INFINITY : x;
            }
    }
    const float shift[2] = {raise_maximum(r, s, scale, 0), raise_maximum(r, s, scale, 1)};
    pin_registers(r.o);
    /* Sixteen keys after the other: their product runs while the next exponentials are found. */
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++) {
#pragma unroll
        for (int n = 2 * step; n < 2 * step + 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[n][i] = power2(s[n][i] * scale - shift[i / 2]);
                r.sum[i / 2] += s[n][i];
            }
        round_operand(p[step], s, step);
        products_begin();
        multiply_rows<RIGHT>(r.o, p[step], v, step);
    }
    products_commit();
    products_wait<0>();
    pin_registers(p);
    pin_registers(r.o);
}

/* o into the group's rows of the tile, lse to where it belongs.  Without keys both are zero. */
__device__ __forceinline__ void forward_finish(running &r, char *tile, float *lse, int64_t lse_row,
                                               int n_rows, float scale, bool any)
{
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = quad_sum(r.sum[half]);
        const int row = threadIdx.x % GROUP / 32 * 16 + half * 8 + (threadIdx.x & 31) / 4;
        if (threadIdx.x % 4 == 0 && row < n_rows)
            lse[row * lse_row] = any ? r.maximum[half] * scale * LN2 + logf(sum) : 0.f;
        factor[half] = any ? 1.f / sum : 0.f;
    }
    put_rows<ROWS>(tile, r.o, factor[0], factor[1]);
}

__global__ void __launch_bounds__(THREADS, 2)
    hopper_forward(const __grid_constant__ attention_args a, int64_t first_unit)
{
    char *q_tile = (char *)attention_shared, *k_tile = q_tile + left_bytes(ROWS);
    char *v_tile = k_tile + right_bytes(KEYS);
    int64_t unit = first_unit + blockIdx.x, head = take_index(unit, a.n_heads);
    int64_t first = take_index(unit, (a.n_queries + ROWS - 1) / ROWS) * ROWS;
    const int64_t sequence = unit;
    const struct attention_keys keys = attention_keys_of(a, sequence);
    if (a.lens && keys.n <= ATTENTION_RESIDENT)
        return;
    const struct attention_rows o = attention_rows_at(a, a.o, sequence, head, first);
    const int n_rows = a.n_queries - first < ROWS ? (int)(a.n_queries - first) : ROWS;
    const int row = group_index() * GROUP_ROWS; /* the group's first */
    const uint32_t q = piece_at(q_tile) + row;
    /* Positive, so that the largest product has the largest score. */
    const float scale = fmaxf(fabsf(a.scale) * LOG2E, 1e-30f);
    const core_mover<THREADS> mover;
    core_stream<THREADS> k, v;
    running r;

    k.open(mover, attention_rows_at(a, a.k, sequence, head, keys.first), k_tile);
    v.open(mover, attention_rows_at(a, a.v, sequence, head, keys.first), v_tile);
    mover.template load_left<ROWS>(q_tile, attention_rows_at(a, a.q, sequence, head, first),
                                   n_rows);
    int n = keys.n < KEYS ? (int)keys.n : KEYS, stage = 0;
    k.load(mover, 0, n);
    v.load(mover, 0, n);
    clear_registers(r.o);
    r.maximum[0] = r.maximum[1] = -INFINITY;
    r.sum[0] = r.sum[1] = 0;
    for (int64_t left = keys.n; left > 0; left -= KEYS, stage ^= 1) {
        const int now = n;
        n = left - KEYS < KEYS ? (int)(left - KEYS) : KEYS;
        copies_wait();
        show_products();
        __syncthreads(); /* this tile has come; nobody works on the one before */
        if (n > 0) {
            k.load(mover, stage ^ 1, n);
            v.load(mover, stage ^ 1, n);
        }
        if (row < n_rows)
            forward_step(r, q, k.tile(stage), v.tile(stage), scale, a.scale < 0, now);
    }
    copies_wait();
    __syncthreads();
    forward_finish(r, q_tile + row * 16,
                   attention_lse_at(a, sequence, head) + (first + row) * a.lse.row, a.lse.row,
                   n_rows - row, scale, keys.n > 0);
    __syncthreads();
    mover.template store<ROWS>(o, n_rows, q_tile);
}

void attention_hopper_forward(const struct attention_args &a, cudaStream_t stream)
{
    const size_t shared = left_bytes(ROWS) + 4 * right_bytes(KEYS);
    if (a.lens)
        attention_resident_forward(a, stream);
    if (a.lens && a.n_keys <= ATTENTION_RESIDENT)
        return;
    attention_launch(hopper_forward,
                     a.n_sequences * a.n_heads * attention_tile_count(a.n_queries, ROWS), THREADS,
                     shared, stream, a);
}
