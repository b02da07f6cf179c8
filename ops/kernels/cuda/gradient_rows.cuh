/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of norms, modulation and gates for rows that consist of pieces of 16 bytes: kinds and
 * operands, the partition of rows, and the kernel. row_gradient.cu has the kernel for other rows,
 * and launches both.
 */
#ifndef CKPT_CUDA_GRADIENT_ROWS_CUH
#define CKPT_CUDA_GRADIENT_ROWS_CUH

#include "kernels/cuda/cp_async.cuh"
#include "kernels/cuda/rows.cuh"

constexpr int MOST_GROUPS = 15; /* named barriers of a block, one per group */

/* Most warps that share a row: with up to FEW, a thread has one piece; with up to MANY, two or
 * three. */
constexpr int FEW = 6, MANY = 12;

enum kind { NORM, MODULATE, GATE, NORM_MODULATE, NORM_AFFINE, RMS };

/* Operands: x (or a), dy, dx, the addend of dx; the vector and its sums; then the statistics, if
 * there are any. */
constexpr int ADDEND = 3, VECTOR = 4;

template <int KIND> struct traits {
    static constexpr bool centred = KIND == NORM || KIND == NORM_MODULATE || KIND == NORM_AFFINE;
    static constexpr bool norm = centred || KIND == RMS;
    static constexpr bool weight = KIND == GATE || KIND == NORM_AFFINE || KIND == RMS;
    static constexpr int sums = KIND == NORM ? 0 : KIND == GATE || KIND == RMS ? 1 : 2;
    static constexpr bool dx_sums = KIND != MODULATE; /* an op exists that also sums dx over rows */
    static constexpr int stats = KIND == NORM ? VECTOR : VECTOR + 1 + sums;
    static constexpr int operands = stats + (norm ? 1 : 0);
};

/* The partition of rows: a unit is one chunk of the rows of one vector. */
struct cut {
    int64_t each, chunk, chunks, units; /* rows per vector, rows per chunk; chunks per vector */
};

/* Mean and rstd of a row; RMS norm stores only rstd. */
template <int KIND> __device__ __forceinline__ float2 stats_of(const char *at)
{
    if constexpr (traits<KIND>::centred)
        return *reinterpret_cast<const float2 *>(at);
    else
        return make_float2(0.f, *reinterpret_cast<const float *>(at));
}

/* The normalized x, and the gradient of the normalized x. */
template <int KIND> __device__ __forceinline__ float normalized(float x, float2 stats)
{
    return traits<KIND>::norm ? (x - stats.x) * stats.y : x;
}

template <int KIND> __device__ __forceinline__ float scaled(float dy, float v)
{
    return KIND == NORM ? dy : traits<KIND>::weight ? dy * v : dy * (1.f + v);
}

/* dx from g = scaled(dy), n = normalized(x) and, for norms, the means of g and of g n. */
template <int KIND>
__device__ __forceinline__ float gradient_of(float g, float n, float rstd, float2 mean)
{
    return traits<KIND>::norm ? rstd * (g - mean.x - n * mean.y) : g;
}

/* Returns the first row of a unit; sets *end to the row after its last. */
__device__ __forceinline__ int64_t unit_rows(const struct cut &cut, int64_t unit, int64_t *end)
{
    int64_t vector = quotient(unit, cut.chunks), chunk = unit - vector * cut.chunks;
    int64_t first = chunk * cut.chunk, last = first + cut.chunk;
    *end = vector * cut.each + (last < cut.each ? last : cut.each);
    return vector * cut.each + first;
}

/* The address for sum s of a unit: among the partial sums, or the final place if there is a single
 * chunk. */
template <int KIND>
__device__ __forceinline__ float *unit_sum(const struct rows &r, const struct cut &cut,
                                           int64_t unit, int64_t first, int64_t c, float *partial,
                                           int s)
{
    if (cut.chunks == 1)
        return reinterpret_cast<float *>(rows_seek_one(r, first, VECTOR + 1 + s));
    return partial + (unit * traits<KIND>::sums + s) * c;
}

/* ---- rows in pieces -------------------------------------------------------------------------- */

/*
 * A block has several groups of warps, each with its own row.  A group synchronizes alone, at its
 * own named barrier, while the others fill the time.  One block runs on each multiprocessor, so
 * that few partial sums remain to be added.
 *
 * Rows of one vector that are one stride apart are dealt to all groups of its blocks round-robin,
 * so that concurrent reads are close together.  Other rows are split into contiguous ranges.
 * `depth` rows are in flight at a time.
 *
 * These kernels are bound by the instructions of a row and by the latency of its reduction.  So
 * there are as many warps as registers allow, and work that does not need the sums of a row is done
 * before them.
 */
template <int P, int KIND> struct shape {
    static constexpr bool norm = traits<KIND>::norm;
    static constexpr int threads = P > 2 || (P > 1 && norm) ? 32 * MANY : P > 1 ? 512 : 640;
    static constexpr int depth = P == (norm ? 2 : 1) ? 3 : 2; /* threads: at most */
    static constexpr int most_warps = P > 1 ? MANY : FEW;     /* of a group */
    static constexpr int row_sums = traits<KIND>::centred ? 2 : 1;
    static constexpr int parts = (most_warps * row_sums + 3) / 4 * 4; /* partial sums of a row */
};

/* Bytes from one row to the next, of the operands before VECTOR and of the statistics. */
struct steps {
    int row[VECTOR], stats;
};

/* The index of a group in its block, the number of groups, and a thread's rank in its group. */
struct group {
    int index, count, rank, threads;
};

/* Keeps x in a register; the compiler would otherwise recompute it for every row. */
template <typename X> __device__ __forceinline__ void keep_in_register(X &x)
{
    asm volatile("" : "+r"(x));
}

/* A thread's state: the positions of its pieces in a row, the factors of its columns (zeros past
 * the end of a row), and its sums: SUMS for the vectors, and those of dx. */
template <typename T, int P, int KIND, bool DX> struct columns {
    static constexpr int N = piece<T>::n, SUMS = traits<KIND>::sums;
    int offset;   /* of the first piece, in bytes; past the end of a row, of its last piece */
    int delta[P]; /* of the others, relative to `offset` */
    int valid[P];
    piece<T> vector[P];
    float factor[P][N]; /* of `vector`, unpacked once the first rows are in flight */
    float share;        /* one over the number of columns */
    float sum[SUMS ? SUMS : 1][P][N];
    float dx[DX ? P : 1][N];
};

/* The factor that turns dy into the gradient of the normalized x, per column. */
template <int KIND> __device__ __forceinline__ float factor_of(float v)
{
    return KIND == NORM ? 1.f : traits<KIND>::weight ? v : 1.f + v;
}

template <typename T, int P, int KIND, bool DX>
__device__ __forceinline__ void columns_find(columns<T, P, KIND, DX> &c, const struct group &g,
                                             int n)
{
    c.share = 1.f / (float)(n * piece<T>::n);
    c.offset = min(g.rank, n - 1) * 16;
#pragma unroll
    for (int i = 0; i < P; i++) {
        int at = g.rank + i * g.threads;
        c.valid[i] = at < n;
        c.delta[i] = i ? min(at, n - 1) * 16 - c.offset : 0;
        keep_in_register(c.valid[i]);
#pragma unroll
        for (int j = 0; j < piece<T>::n; j++)
            c.dx[DX ? i : 0][j] = 0.f;
    }
}

template <typename T, int P, int KIND, bool DX>
__device__ __forceinline__ void columns_begin(columns<T, P, KIND, DX> &c, const char *vector)
{
#pragma unroll
    for (int i = 0; i < P; i++) {
        c.vector[i] = piece<T>{};
        if constexpr (traits<KIND>::sums > 0)
            c.vector[i] = piece_load<T>(vector + c.offset + c.delta[i], 0);
#pragma unroll
        for (int j = 0; j < piece<T>::n; j++)
#pragma unroll
            for (int s = 0; s < traits<KIND>::sums; s++)
                c.sum[s][i][j] = 0.f;
    }
}

template <typename T, int P, int KIND, bool DX>
__device__ __forceinline__ void columns_unpack(columns<T, P, KIND, DX> &c)
{
#pragma unroll
    for (int i = 0; i < P; i++)
#pragma unroll
        for (int j = 0; j < piece<T>::n; j++)
            c.factor[i][j] = c.valid[i] ? factor_of<KIND>(c.vector[i].at(j)) : 0.f;
}

/*
 * Sums one row over the threads of its group, through shared memory.  Consecutive rows use
 * alternate halves of it, so one barrier per row suffices: a thread that has passed it has read the
 * values of the row before.  The slots of warps that a group does not have stay zero.
 */
template <int P, int KIND> struct row_total {
    static constexpr int M = shape<P, KIND>::row_sums, PARTS = shape<P, KIND>::parts;
    struct memory {
        float4 parts[2][MOST_GROUPS][PARTS / 4];
    };
    uint32_t from; /* address of the group's partial sums; the other half is HALF bytes away */
    uint32_t to;   /* offset of this warp's partial sum */
    int barrier, threads;
    static constexpr uint32_t HALF = 4 * MOST_GROUPS * PARTS;

    __device__ __forceinline__ row_total(struct memory &m, const struct group &g)
    {
        for (int i = (int)threadIdx.x; i < 2 * MOST_GROUPS * PARTS / 4; i += (int)blockDim.x)
            m.parts[0][0][i] = make_float4(0.f, 0.f, 0.f, 0.f);
        __syncthreads();
        from = shared_address(&m) + 4 * PARTS * g.index;
        to = 4 * (M * (g.rank >> 5) + (M > 1 ? (threadIdx.x & 31) >> 4 : 0));
        barrier = g.index + 1;
        threads = g.threads;
        keep_in_register(from), keep_in_register(to), keep_in_register(barrier),
            keep_in_register(threads);
    }

    /* Every thread gets the sums; half: alternately 0 and 1. */
    __device__ __forceinline__ void add(float (&x)[M], uint32_t half) const
    {
        const uint32_t at = from + half * HALF;
        float mine = x[0];
        if constexpr (M == 2) { /* the upper half of a warp sums x[1] */
            const bool upper = threadIdx.x & 16;
            mine = (upper ? x[1] : x[0]) + __shfl_xor_sync(0xffffffffu, upper ? x[0] : x[1], 16);
        }
#pragma unroll
        for (int offset = M == 2 ? 8 : 16; offset; offset /= 2)
            mine += __shfl_xor_sync(0xffffffffu, mine, offset);
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(at + to), "f"(mine) : "memory");
        asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
        float4 part[PARTS / 4];
#pragma unroll
        for (int i = 0; i < PARTS / 4; i++)
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(part[i].x), "=f"(part[i].y), "=f"(part[i].z), "=f"(part[i].w)
                         : "r"(at + 16 * i));
        float4 all = part[0];
#pragma unroll
        for (int i = 1; i < PARTS / 4; i++)
            all = make_float4(all.x + part[i].x, all.y + part[i].y, all.z + part[i].z,
                              all.w + part[i].w);
        if constexpr (M == 2) {
            x[0] = all.x + all.z;
            x[1] = all.y + all.w;
        } else {
            x[0] = (all.x + all.z) + (all.y + all.w);
        }
    }
};

/*
 * A ring of rows in flight, in shared memory: x, dy and, for norms, the addend.  A thread copies
 * and reads only its own pieces, so it needs no barrier.
 */
template <typename T, int P, int KIND> struct ring {
    static constexpr int PIECE = 16 * shape<P, KIND>::threads; /* bytes from piece to piece */
    static constexpr int ROW = P * PIECE, SLOT = (traits<KIND>::norm ? 3 : 2) * ROW;
    static constexpr int BYTES = shape<P, KIND>::depth * SLOT;
    uint32_t begin, at; /* the first slot; the current one */

    __device__ __forceinline__ explicit ring(const void *shared)
    {
        begin = shared_address(shared) + 16 * threadIdx.x;
        keep_in_register(begin);
        at = begin;
    }

    __device__ __forceinline__ void next(void)
    {
        at += SLOT;
        at = at == begin + BYTES ? begin : at;
    }

    __device__ __forceinline__ piece<T> get(int operand, int i) const
    {
        piece<T> p;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(p.word[0]), "=r"(p.word[1]), "=r"(p.word[2]), "=r"(p.word[3])
                     : "r"(at + operand * ROW + i * PIECE));
        return p;
    }

    __device__ __forceinline__ void copy(int operand, int i, const char *from) const
    {
        copy16(at + operand * ROW + i * PIECE, from, true);
    }
};

/* The position of a group in its rows: addresses of the next loads and of the next store. */
template <int KIND> struct cursor {
    char *at[VECTOR + 1]; /* x, dy, dx, the addend; then the statistics */
    bool adds;
};

/* Starts the loads of the next row and advances. */
template <typename T, int P, int KIND, bool DX>
__device__ __forceinline__ void prefetch_row(const ring<T, P, KIND> &ring,
                                             const columns<T, P, KIND, DX> &c,
                                             const struct steps &step, cursor<KIND> &row, int apart)
{
#pragma unroll
    for (int i = 0; i < P; i++) {
        ring.copy(0, i, row.at[0] + c.delta[i]);
        ring.copy(1, i, row.at[1] + c.delta[i]);
        if constexpr (traits<KIND>::norm)
            if (row.adds)
                ring.copy(2, i, row.at[ADDEND] + c.delta[i]);
    }
    row.at[0] += (int64_t)apart * step.row[0];
    row.at[1] += (int64_t)apart * step.row[1];
    row.at[ADDEND] += (int64_t)apart * step.row[ADDEND];
}

/* Stores dx of a piece, and adds the stored values to the column sums. */
template <typename T, int P, int KIND, bool DX>
__device__ __forceinline__ void finish_piece(columns<T, P, KIND, DX> &c, char *row, int i,
                                             float (&dx)[piece<T>::n], largest<T> &amax)
{
    if (c.valid[i])
        piece_store<T>(row + c.delta[i], 0, dx, amax);
    if constexpr (DX) {
        round_piece<T>(dx);
#pragma unroll
        for (int j = 0; j < piece<T>::n; j++)
            c.dx[i][j] += dx[j];
    }
}

/* A row of a norm.  The column sums need no means, so x and dy are consumed in one pass; only the
 * values for dx are kept. */
template <typename T, int P, int KIND, bool DX>
__device__ __forceinline__ void
norm_row(columns<T, P, KIND, DX> &c, const ring<T, P, KIND> &ring, float2 stats,
         const cursor<KIND> &row, const row_total<P, KIND> &sums, uint32_t half, largest<T> &amax)
{
    constexpr int N = piece<T>::n, SUMS = traits<KIND>::sums, M = shape<P, KIND>::row_sums;
    const float rstd = stats.y, shift = -stats.x * rstd;
    float v[P][N], s[P][N], mean[M] = {};
#pragma unroll
    for (int i = 0; i < P; i++) {
        const piece<T> x = ring.get(0, i), dy = ring.get(1, i);
        float n[N];
#pragma unroll
        for (int j = 0; j < N; j++) {
            n[j] = traits<KIND>::centred ? x.at(j) * rstd + shift : x.at(j) * rstd;
            v[i][j] = n[j];
            s[i][j] = dy.at(j) * c.factor[i][j];
            if constexpr (M == 2)
                mean[0] += s[i][j];
            mean[M - 1] += s[i][j] * n[j];
        }
        if constexpr (KIND == RMS) /* rounds its result before it multiplies by the weight */
            round_piece<T>(n);
#pragma unroll
        for (int j = 0; j < N; j++) {
            if constexpr (SUMS == 2)
                c.sum[0][i][j] += dy.at(j);
            if constexpr (SUMS > 0)
                c.sum[SUMS - 1][i][j] += dy.at(j) * n[j];
        }
    }
    sums.add(mean, half);
    const float by = -rstd * c.share, slope = mean[M - 1] * by, level = M == 2 ? mean[0] * by : 0.f;
#pragma unroll
    for (int i = 0; i < P; i++) {
        float dx[N];
#pragma unroll
        for (int j = 0; j < N; j++)
            dx[j] = s[i][j] * rstd + (v[i][j] * slope + level);
        if (row.adds) {
            const piece<T> addend = ring.get(2, i);
#pragma unroll
            for (int j = 0; j < N; j++)
                dx[j] += addend.at(j);
        }
        finish_piece(c, row.at[2], i, dx, amax);
    }
}

/* A row of a kind that has no sums over a row. */
template <typename T, int P, int KIND, bool DX>
__device__ __forceinline__ void plain_row(columns<T, P, KIND, DX> &c, const ring<T, P, KIND> &ring,
                                          const cursor<KIND> &row, largest<T> &amax)
{
    constexpr int N = piece<T>::n, SUMS = traits<KIND>::sums;
#pragma unroll
    for (int i = 0; i < P; i++) {
        const piece<T> x = ring.get(0, i), dy = ring.get(1, i);
        float dx[N];
#pragma unroll
        for (int j = 0; j < N; j++) {
            dx[j] = dy.at(j) * c.factor[i][j];
            if constexpr (SUMS == 2)
                c.sum[0][i][j] += dy.at(j);
            c.sum[SUMS - 1][i][j] += dy.at(j) * x.at(j);
        }
        finish_piece(c, row.at[2], i, dx, amax);
    }
}

/* Processes rows first, first + apart, ... below `end` of the equidistant rows that begin at
 * start[]. */
template <typename T, int P, int KIND, bool DX>
__device__ __forceinline__ void
group_rows(columns<T, P, KIND, DX> &c, const struct steps &step,
           char *const (&start)[traits<KIND>::operands], int first, int apart, int end,
           char *memory, const row_total<P, KIND> &sums, uint32_t &half, largest<T> &amax)
{
    constexpr bool NORMS = traits<KIND>::norm;
    constexpr int DEPTH = shape<P, KIND>::depth;
    ring<T, P, KIND> in(memory), out = in;
    cursor<KIND> row;
    float2 stats = {};
    int prefetched = first;
    if (first >= end)
        return;
    row.adds = NORMS && start[ADDEND];
#pragma unroll
    for (int o = 0; o < VECTOR; o++)
        row.at[o] = start[o] + c.offset + (int64_t)first * step.row[o];
    if constexpr (NORMS) {
        row.at[VECTOR] = start[traits<KIND>::operands - 1] + (int64_t)first * step.stats;
        stats = stats_of<KIND>(row.at[VECTOR]);
    }
    auto prefetch = [&](void) {
        if (prefetched < end)
            prefetch_row(in, c, step, row, apart);
        prefetched += apart;
        in.next();
        copies_commit();
    };
#pragma unroll
    for (int i = 0; i < DEPTH; i++)
        prefetch();
    columns_unpack(c);
    for (; first < end; first += apart) {
        copies_wait_but<DEPTH - 1>();
        if constexpr (NORMS) {
            const float2 now = stats;
            row.at[VECTOR] += (int64_t)apart * step.stats;
            if (first + apart < end)
                stats = stats_of<KIND>(row.at[VECTOR]);
            norm_row(c, out, now, row, sums, half, amax);
            half ^= 1;
        } else {
            plain_row(c, out, row, amax);
        }
        row.at[2] += (int64_t)apart * step.row[2];
        out.next();
        prefetch();
    }
    copies_wait_but<0>();
}

/* Adds the sums of a block's groups in order, and stores the total at `to`. */
template <typename T, int P>
__device__ __forceinline__ void store_sums(float *to, const float (&sum)[P][piece<T>::n],
                                           const struct group &g, int n, const int (&valid)[P],
                                           float *shared)
{
    constexpr int N = piece<T>::n;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < P; i++)
        if (valid[i])
            floats_store((g.count > 1 ? shared + g.index * n * N : to) +
                             (g.rank + i * g.threads) * N,
                         sum[i]);
    if (g.count == 1)
        return;
    __syncthreads();
    for (int j = (int)threadIdx.x; j < n * N; j += (int)blockDim.x) {
        float all = shared[j];
        for (int k = 1; k < g.count; k++)
            all += shared[k * n * N + j];
        to[j] = all;
    }
}

template <typename T, int P, int KIND, bool DX>
static __global__ void __launch_bounds__(shape<P, KIND>::threads, 1)
    gradient_rows(const __grid_constant__ struct rows r, const __grid_constant__ struct cut cut,
                  const __grid_constant__ struct steps step, int n, int threads, float *partial,
                  float *dx_partial, uint32_t *to)
{
    constexpr int N = piece<T>::n;
    extern __shared__ float4 shared[];
    __shared__ typename row_total<P, KIND>::memory parts;
    const int index = (int)threadIdx.x / threads;
    const struct group g = {index, (int)blockDim.x / threads, (int)threadIdx.x - index * threads,
                            threads};
    const row_total<P, KIND> sums(parts, g);
    const bool interleaved = cut.each == r.size[r.ndim - 1];
    largest<T> amax(to);
    columns<T, P, KIND, DX> c;
    uint32_t half = 0;
    launch_dependents();
    columns_find(c, g, n);
    for (int64_t unit = blockIdx.x; unit < cut.units; unit += gridDim.x) {
        int64_t end, first = unit_rows(cut, unit, &end);
        int begin = g.index, apart = g.count;
        if (interleaved) {
            const int64_t vector = quotient(unit, cut.chunks);
            begin += (int)(unit - vector * cut.chunks) * g.count;
            apart *= (int)cut.chunks;
            first = vector * cut.each;
            end = first + cut.each;
        }
        columns_begin(c, traits<KIND>::sums ? rows_seek_one(r, first, VECTOR) : nullptr);
        for (int64_t row = first; row < end;) {
            char *at[traits<KIND>::operands];
            const int ahead = rows_ahead(r, row, end, at);
            group_rows(c, step, at, begin, apart, ahead, reinterpret_cast<char *>(shared), sums,
                       half, amax);
            row += ahead;
        }
#pragma unroll
        for (int s = 0; s < traits<KIND>::sums; s++)
            store_sums<T, P>(unit_sum<KIND>(r, cut, unit, first, n * N, partial, s), c.sum[s], g, n,
                             c.valid, reinterpret_cast<float *>(shared));
        __syncthreads(); /* before rows are loaded into the same memory again */
    }
    if constexpr (DX)
        store_sums<T, P>(dx_partial + blockIdx.x * (int64_t)(n * N), c.dx, g, n, c.valid,
                         reinterpret_cast<float *>(shared));
    leave_largest(to, amax);
}

#endif
