/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of row groups.  The host does not know the offsets, so a grid has the most tiles that
 * any offsets need, and each warp finds the group of its tile from them: it counts the tiles of 32
 * groups at a time.  A sum has one order, whatever the groups.
 *
 * bf16 whose rows are whole pieces of 16 bytes goes to the tensor cores, through three stages of
 * shared memory; fp32 and other widths to a plain kernel.
 */
#include "grouped_matmul.h"
#include "kernels/cuda/cp_async.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/report.cuh"
#include "kernels/cuda/rows.cuh"

namespace
{

/* ---- groups ---------------------------------------------------------------------------------- */

struct groups {
    const int32_t *offsets;
    int count, rows;
};

/* The end of group `at`, before that is compared with groups before it; behind the last group: of
 * the rows that belong to none. */
__device__ __forceinline__ int end_alone(const groups &g, int at)
{
    return at < g.count ? max(0, min(g.offsets[at], g.rows)) : g.rows;
}

/* Sum and maximum of the lanes up to this one. */
__device__ __forceinline__ int sum_up_to(int x)
{
    for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(~0u, x, step);
        x += (int)threadIdx.x % 32 >= step ? other : 0;
    }
    return x;
}

__device__ __forceinline__ int maximum_up_to(int x)
{
    for (int step = 1; step < 32; step *= 2)
        x = max(x, __shfl_up_sync(~0u, x, step)); /* lanes below `step` get their own */
    return x;
}

/* Rows [begin, end) of a group, from the first row of a tile on. */
struct span {
    int group, begin, end;
};

/* Tile `number` of all, at most ROWS rows of one group each; group g.count has the rows after the
 * last one.  A span without rows: there are fewer tiles. */
template <int ROWS> __device__ __forceinline__ span find_tile(const groups &g, int64_t number)
{
    const int lane = threadIdx.x % 32;
    int before = 0;
    for (int base = 0; base <= g.count; base += 32) {
        const int end = max(before, maximum_up_to(end_alone(g, base + lane)));
        const int former = __shfl_up_sync(~0u, end, 1), begin = lane ? former : before;
        const int tiles = (end - begin) / ROWS + ((end - begin) % ROWS != 0);
        const int sum = sum_up_to(tiles);
        const unsigned found = __ballot_sync(~0u, number < sum);
        if (found) {
            const int at = __ffs(found) - 1;
            const int first = (int)number - __shfl_sync(~0u, sum - tiles, at);
            return {base + at, __shfl_sync(~0u, begin, at) + first * ROWS,
                    __shfl_sync(~0u, end, at)};
        }
        number -= __shfl_sync(~0u, sum, 31);
        before = __shfl_sync(~0u, end, 31);
    }
    return {g.count, g.rows, g.rows};
}

/* All rows of a group. */
__device__ __forceinline__ span find_group(const groups &g, int group)
{
    int before = 0;
    for (int at = threadIdx.x % 32; at < group; at += 32)
        before = max(before, end_alone(g, at));
    const int begin = __reduce_max_sync(~0u, before);
    return {group, begin, max(begin, end_alone(g, group))};
}

/* One block reports offsets out of range. */
__device__ __forceinline__ void check_offsets(const groups &g, const index_reporter &reporter)
{
    if (blockIdx.x == 0)
        for (int i = threadIdx.x; i < g.count; i += blockDim.x)
            index_fits(reporter, i, g.offsets[i]);
}

/* ---- one tile of a product ------------------------------------------------------------------- */

/* c [rows, cols] = a [rows, inner] b [inner, cols]; an operand whose tile says so is stored as its
 * transpose.  a_row, b_row: elements from one stored row to the next. */
template <typename T> struct product {
    const T *a, *b;
    int64_t a_row, b_row;
    int rows, cols, inner;
};

/* A thread has 4 x 4 elements, 16 apart; tiles are loaded along the axis that is dense. */
template <typename T, bool AT, bool BT> struct plain_tile {
    typedef T type;
    static constexpr int ROWS = 64, COLS = 64, THREADS = 256, DEPTH = 16;
    float sum[4][4] = {};

    __device__ void compute(const product<T> &p, int row, int col)
    {
        __shared__ float as[DEPTH][ROWS + 1], bs[DEPTH][COLS + 1];
        for (int k = 0; k < p.inner; k += DEPTH) {
            for (int i = threadIdx.x; i < ROWS * DEPTH; i += THREADS) {
                int deep = AT ? i / ROWS : i % DEPTH, wide = AT ? i % ROWS : i / DEPTH;
                as[deep][wide] = element<AT>(p.a, p.a_row, row + wide, k + deep, p.rows, p.inner);
                deep = BT ? i % DEPTH : i / COLS;
                wide = BT ? i / DEPTH : i % COLS;
                bs[deep][wide] = element<!BT>(p.b, p.b_row, col + wide, k + deep, p.cols, p.inner);
            }
            __syncthreads();
            multiply(as, bs);
            __syncthreads();
        }
    }

    /* Element k of a row or column `at` of the result. */
    template <bool ACROSS>
    static __device__ __forceinline__ float element(const T *x, int64_t pitch, int at, int k, int n,
                                                    int inner)
    {
        if (at >= n || k >= inner)
            return 0.f;
        return to_float(ACROSS ? x[k * pitch + at] : x[at * pitch + k]);
    }

    __device__ __forceinline__ void multiply(const float (&as)[DEPTH][ROWS + 1],
                                             const float (&bs)[DEPTH][COLS + 1])
    {
        const int r = threadIdx.x / 16, c = threadIdx.x % 16;
#pragma unroll
        for (int deep = 0; deep < DEPTH; deep++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] += as[deep][r + 16 * i] * bs[deep][c + 16 * j];
    }

    template <typename R>
    __device__ __forceinline__ void store(R *out, const product<T> &p, int row, int col, bool add)
    {
        const int r = row + threadIdx.x / 16, c = col + threadIdx.x % 16;
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                if (r + 16 * i < p.rows && c + 16 * j < p.cols) {
                    R *to = out + (int64_t)(r + 16 * i) * p.cols + c + 16 * j;
                    *to = from_float<R>(sum[i][j] + (add ? to_float(*to) : 0.f));
                }
    }
};

__device__ __forceinline__ void store_pair(bf16 *to, float x, float y, bool add)
{
    const float2 old = add ? unpack2(*reinterpret_cast<uint32_t *>(to)) : float2{0, 0};
    *reinterpret_cast<uint32_t *>(to) = pack2(x + old.x, y + old.y);
}

__device__ __forceinline__ void store_pair(float *to, float x, float y, bool add)
{
    const float2 old = add ? *reinterpret_cast<float2 *>(to) : float2{0, 0};
    *reinterpret_cast<float2 *>(to) = float2{x + old.x, y + old.y};
}

/*
 * A warp has 32 x 64 elements.  Operands lie in shared memory as they are stored, with 16 bytes
 * between rows, so that the rows of a matrix load are in different banks; those that are stored
 * along the result are transposed by the load.
 */
template <bool AT, bool BT> struct mma_tile {
    typedef bf16 type;
    static constexpr int ROWS = 64, COLS = 128, THREADS = 128, DEPTH = 32, STAGES = 3;
    static constexpr int A_LINES = AT ? DEPTH : ROWS, A_WIDTH = AT ? ROWS : DEPTH;
    static constexpr int B_LINES = BT ? COLS : DEPTH, B_WIDTH = BT ? DEPTH : COLS;
    static constexpr int A_PITCH = A_WIDTH + 8, B_PITCH = B_WIDTH + 8;
    float sum[2][8][4] = {};

    struct stage {
        bf16 a[A_LINES * A_PITCH], b[B_LINES * B_PITCH];
    };

    /* Starts the copy of LINES stored rows; what is beyond the operand becomes 0. */
    template <int LINES, int WIDTH>
    static __device__ __forceinline__ void load(bf16 *to, const bf16 *from, int64_t pitch,
                                                int lines, int width)
    {
        constexpr int PIECES = WIDTH / 8;
#pragma unroll
        for (int i = threadIdx.x; i < LINES * PIECES; i += THREADS) {
            const int line = i / PIECES, at = i % PIECES * 8;
            copy16(shared_address(to + line * (WIDTH + 8) + at), from + line * pitch + at,
                   line < lines && at < width);
        }
    }

    static __device__ __forceinline__ void load(stage &s, const product<bf16> &p, int row, int col,
                                                int k)
    {
        const int a_line = AT ? k : row, a_at = AT ? row : k;
        const int b_line = BT ? col : k, b_at = BT ? k : col;
        load<A_LINES, A_WIDTH>(s.a, p.a + a_line * p.a_row + a_at, p.a_row,
                               (AT ? p.inner : p.rows) - a_line, (AT ? p.rows : p.inner) - a_at);
        load<B_LINES, B_WIDTH>(s.b, p.b + b_line * p.b_row + b_at, p.b_row,
                               (BT ? p.cols : p.inner) - b_line, (BT ? p.inner : p.cols) - b_at);
    }

    __device__ void compute(const product<bf16> &p, int row, int col)
    {
        __shared__ alignas(16) stage ring[STAGES];
        const int steps = (p.inner + DEPTH - 1) / DEPTH;
#pragma unroll
        for (int i = 0; i < STAGES - 1; i++) {
            if (i < steps)
                load(ring[i], p, row, col, i * DEPTH);
            copies_commit();
        }
        for (int i = 0; i < steps; i++) {
            const int next = i + STAGES - 1;
            copies_wait_but<STAGES - 2>();
            __syncthreads();
            if (next < steps)
                load(ring[next % STAGES], p, row, col, next * DEPTH);
            copies_commit();
            multiply(ring[i % STAGES]);
        }
    }

    static __device__ __forceinline__ int row_of_warp(void)
    {
        return threadIdx.x / 32 % 2 * 32;
    }

    static __device__ __forceinline__ int column_of_warp(void)
    {
        return threadIdx.x / 64 * 64;
    }

    __device__ __forceinline__ void multiply(const stage &s)
    {
        const int lane = threadIdx.x % 32, low = lane & 7, one = lane >> 3 & 1, two = lane >> 4;
        const int row = row_of_warp(), col = column_of_warp();
#pragma unroll
        for (int k = 0; k < DEPTH; k += 16) {
            uint32_t a[2][4], b[4];
#pragma unroll
            for (int m = 0; m < 2; m++)
                if (AT)
                    load_matrix4_transposed(a[m], s.a + (k + low + two * 8) * A_PITCH + row +
                                                      m * 16 + one * 8);
                else
                    load_matrix4(a[m],
                                 s.a + (row + m * 16 + low + one * 8) * A_PITCH + k + two * 8);
#pragma unroll
            for (int n = 0; n < 8; n += 2) {
                if (BT)
                    load_matrix4(b, s.b + (col + n * 8 + low + two * 8) * B_PITCH + k + one * 8);
                else
                    load_matrix4_transposed(b, s.b + (k + low + one * 8) * B_PITCH + col + n * 8 +
                                                   two * 8);
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    multiply16(sum[m][n], a[m], b[0], b[1]);
                    multiply16(sum[m][n + 1], a[m], b[2], b[3]);
                }
            }
        }
    }

    template <typename R>
    __device__ __forceinline__ void store(R *out, const product<bf16> &p, int row, int col,
                                          bool add)
    {
        const int lane = threadIdx.x % 32;
        row += row_of_warp() + lane / 4;
        col += column_of_warp() + lane % 4 * 2;
#pragma unroll
        for (int m = 0; m < 4; m++)
#pragma unroll
            for (int n = 0; n < 8; n++)
                if (row + m * 8 < p.rows && col + n * 8 < p.cols)
                    store_pair(out + (int64_t)(row + m * 8) * p.cols + col + n * 8,
                               sum[m / 2][n][m % 2 * 2], sum[m / 2][n][m % 2 * 2 + 1], add);
    }
};

/* ---- kernels --------------------------------------------------------------------------------- */

/* y_g = x_g w_g, or x_g w_g^T.  Blocks of one tile of rows follow each other, so that they find x
 * and, with the next ones, w in the cache. */
template <typename E, bool BT>
__global__ void __launch_bounds__(E::THREADS)
    multiply_rows(typename E::type *y, const typename E::type *x, const typename E::type *w,
                  groups g, int inner, int cols, int across, index_reporter reporter)
{
    const int64_t tile = blockIdx.x / across;
    const int col = (int)(blockIdx.x - tile * across) * E::COLS;
    check_offsets(g, reporter);
    const span s = find_tile<E::ROWS>(g, tile);
    if (s.begin >= s.end)
        return;
    const product<typename E::type> p = {x + (int64_t)s.begin * inner,
                                         w + (int64_t)s.group * inner * cols,
                                         inner,
                                         BT ? inner : cols,
                                         s.end - s.begin,
                                         cols,
                                         inner};
    E e;
    if (s.group < g.count)
        e.compute(p, 0, col);
    e.store(y + (int64_t)s.begin * cols, p, 0, col, false);
}

/* dw_g = a_g^T b_g, [m, n] */
template <typename E, typename R>
__global__ void __launch_bounds__(E::THREADS)
    multiply_groups(R *dw, const typename E::type *a, const typename E::type *b, groups g, int m,
                    int n, int down, int across, bool add, index_reporter reporter)
{
    const int64_t strip = blockIdx.x / across;
    const int group = (int)(strip / down), col = (int)(blockIdx.x - strip * across) * E::COLS;
    const int row = (int)(strip - (int64_t)group * down) * E::ROWS;
    check_offsets(g, reporter);
    const span s = find_group(g, group);
    const product<typename E::type> p = {
        a + (int64_t)s.begin * m, b + (int64_t)s.begin * n, m, n, m, n, s.end - s.begin};
    E e;
    e.compute(p, row, col);
    e.store(dw + (int64_t)group * m * n, p, row, col, add);
}

/* ---- launches -------------------------------------------------------------------------------- */

groups groups_of(const struct ckpt_kernel_args *a)
{
    return {(const int32_t *)a->in[2].data, (int)a->in[2].desc.shape[0],
            (int)a->in[0].desc.shape[0]};
}

/* Are the rows of all operands whole pieces of 16 bytes? */
bool in_pieces(const struct ckpt_kernel_args *a, int64_t m, int64_t n)
{
    return a->in[0].desc.dtype == CKPT_BF16 && m % 8 == 0 && n % 8 == 0 &&
           aligned16(a->in[0].data) && aligned16(a->in[1].data) && aligned16(a->out[0].data);
}

template <typename E, bool BT> int run_rows(const struct ckpt_kernel_args *a)
{
    typedef typename E::type T;
    const groups g = groups_of(a);
    const int inner = (int)a->in[0].desc.shape[1], cols = (int)a->out[0].desc.shape[1];
    const int across = (cols + E::COLS - 1) / E::COLS;
    const int64_t tiles = g.rows / E::ROWS + g.count + 1; /* every group may end with a short one */
    multiply_rows<E, BT><<<(unsigned)(tiles * across), E::THREADS, 0, stream_of(a)>>>(
        (T *)a->out[0].data, (const T *)a->in[0].data, (const T *)a->in[1].data, g, inner, cols,
        across, index_reporter_of(a, (int64_t)g.rows + 1));
    return launched();
}

template <typename E, typename R> int run_groups(const struct ckpt_kernel_args *a)
{
    typedef typename E::type T;
    const groups g = groups_of(a);
    const int m = (int)a->in[0].desc.shape[1], n = (int)a->in[1].desc.shape[1];
    const int down = (m + E::ROWS - 1) / E::ROWS, across = (n + E::COLS - 1) / E::COLS;
    multiply_groups<E, R>
        <<<(unsigned)((int64_t)g.count * down * across), E::THREADS, 0, stream_of(a)>>>(
            (R *)a->out[0].data, (const T *)a->in[0].data, (const T *)a->in[1].data, g, m, n, down,
            across, a->accumulate, index_reporter_of(a, (int64_t)g.rows + 1));
    return launched();
}

template <bool BT> int run_rows_of(const struct ckpt_kernel_args *a)
{
    if (in_pieces(a, a->in[0].desc.shape[1], a->out[0].desc.shape[1]))
        return run_rows<mma_tile<false, BT>, BT>(a);
    return view_half(&a->in[0]) ? run_rows<plain_tile<bf16, false, BT>, BT>(a)
                                : run_rows<plain_tile<float, false, BT>, BT>(a);
}

template <typename R> int run_groups_of(const struct ckpt_kernel_args *a)
{
    if (in_pieces(a, a->in[0].desc.shape[1], a->in[1].desc.shape[1]))
        return run_groups<mma_tile<true, false>, R>(a);
    return view_half(&a->in[0]) ? run_groups<plain_tile<bf16, true, false>, R>(a)
                                : run_groups<plain_tile<float, true, false>, R>(a);
}

} // namespace

int cuda_grouped_matmul(const struct ckpt_kernel_args *a)
{
    const struct grouped_attr *attr = (const struct grouped_attr *)a->attr;
    return attr->transpose_w ? run_rows_of<true>(a) : run_rows_of<false>(a);
}

int cuda_grouped_matmul_dw(const struct ckpt_kernel_args *a)
{
    return view_half(&a->out[0]) ? run_groups_of<bf16>(a) : run_groups_of<float>(a);
}
