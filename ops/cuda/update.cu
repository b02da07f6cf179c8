/* SPDX-License-Identifier: Apache-2.0 */
/* The fused update of one parameter or of many, of each kind, the assignment of states, and the
 * averages of buffers.  What moves from step to step is read on the device. */
#include "attr.h"
#include "core/mean8.h"
#include "cuda/kernels.h"
#include "cuda/philox.cuh"
#include "cuda/walk.cuh"
#include "optim/update_math.h"

#define THREADS 256
#define CHUNK   (4 * THREADS) /* elements of a thread block: one vector a thread */

/* w, m and v are fp32, or bf16 where the state is, or bf16 with m and v in 8 bits; value is bf16
 * beside a master, else NULL; m, v and ema may be NULL. */
struct update_param {
    void *w, *m, *v;
    float *ema;
    bf16 *value;
    const void *g;
    int64_t numel;
    uint32_t first; /* of its thread blocks */
    bool half;      /* the gradient is bf16 */
    bool vectors;   /* all addresses are good for vectors of 4 elements */
};

struct update_all {
    int n;
    struct update_param of[UPDATE_PARAMS];
};

/* The parameter that a block belongs to: the last whose first block is not behind it. */
static __device__ __forceinline__ int param_of(const struct update_all &all, uint32_t block)
{
    int low = 0, high = all.n - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (all.of[middle].first <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* What rounds: nothing where the state is fp32. */
struct no_rounding {
};

/* The part that element i of parameter k belongs to: the last that does not begin behind it. */
static __device__ __forceinline__ const struct rounding_part &part_at(const struct rounding &r,
                                                                      int k, int64_t i)
{
    int low = r.begin[k], high = r.begin[k + 1] - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (r.part[middle].first <= i)
            low = middle;
        else
            high = middle - 1;
    }
    return r.part[low];
}

/* The words of elements i .. i + V - 1 of parameter k; of four, i is a multiple of 4. */
template <int V>
static __device__ __forceinline__ void draw(uint32_t (&word)[V], const struct rounding &r, int k,
                                            int64_t i, const struct ckpt_run *run)
{
    const struct rounding_part &part = part_at(r, k, i);
    int64_t at = i - part.first;
    uint4 w = philox(philox_counter(PHILOX_WORDS, at / 4, (uint64_t)run->opt_step, 0),
                     run->seed ^ part.name);
    const uint32_t all[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (V == 4)
            word[j % V] = all[j];
        else if (at % 4 == j)
            word[0] = all[j];
}

template <int V>
static __device__ __forceinline__ void draw(uint32_t (&)[V], const struct no_rounding &, int,
                                            int64_t, const struct ckpt_run *)
{
}

/* MEAN: there is a first running mean.  S: what w, m and v are. */
template <int KIND, bool MEAN, int V, bool EMA, typename S> struct update_lanes {
    static constexpr bool SQUARE = KIND == UPDATE_ADAMW, NARROW = sizeof(S) == 2;
    float w[V], m[V], v[V], g[V], ema[V];
    uint32_t word[V]; /* where the state is bf16 */

    __device__ __forceinline__ void load(const struct update_param &p, int64_t i)
    {
        if (p.half)
            load_floats(g, static_cast<const bf16 *>(p.g) + i);
        else
            load_floats(g, static_cast<const float *>(p.g) + i);
        if (MEAN)
            load_floats(m, static_cast<const S *>(p.m) + i);
        if (SQUARE)
            load_floats(v, static_cast<const S *>(p.v) + i);
        load_floats(w, static_cast<const S *>(p.w) + i);
        if (EMA)
            load_floats(ema, p.ema + i);
    }

    /* What is stored to nearest after that is what it is. */
    __device__ __forceinline__ void round_lane(int i)
    {
        w[i] = update_round(w[i], update_noise(word[i], NOISE_VALUE));
        if (MEAN)
            m[i] = update_round(m[i], update_noise(word[i], NOISE_MEAN));
        if (SQUARE)
            v[i] = update_round(v[i], update_noise(word[i], NOISE_SQUARE));
    }

    /* A weight that is not finite any more is told of: see HALT_UPDATE. */
    __device__ __forceinline__ void update(const struct update_constants &c,
                                           const struct ckpt_run *run)
    {
        bool finite = true;
#pragma unroll
        for (int i = 0; i < V; i++) {
            w[i] =
                update_weight((enum update_kind)KIND, &c, g[i], w[i], MEAN ? &m[i] : NULL, &v[i]);
            if (NARROW)
                round_lane(i);
            finite = finite && isfinite(w[i]);
            if (EMA)
                ema[i] = update_ema(&c, ema[i], w[i]);
        }
        if (!finite && run->halt)
            *run->halt = HALT_UPDATE + (int32_t)(run->opt_step & 1);
    }

    __device__ __forceinline__ void store(const struct update_param &p, int64_t i) const
    {
        if (MEAN)
            store_floats(static_cast<S *>(p.m) + i, m);
        if (SQUARE)
            store_floats(static_cast<S *>(p.v) + i, v);
        store_floats(static_cast<S *>(p.w) + i, w);
        if (EMA)
            store_floats(p.ema + i, ema);
        store_value(p, i);
    }

    /* Behind the loads of all lanes: its room may be the gradient's. */
    __device__ __forceinline__ void store_value(const struct update_param &p, int64_t i) const
    {
        if (p.value)
            store_floats(p.value + i, w);
    }
};

/*
 * A thread block takes one chunk of one parameter.  Warps wait for nothing but their own loads,
 * which are all under way before the first is used; few registers leave room for many warps.
 */
template <int KIND, bool MEAN, bool EMA, typename S, typename R>
static __global__ void __launch_bounds__(THREADS, 5)
    update(const __grid_constant__ struct update_all all, struct update_constants c,
           const __grid_constant__ struct update_attr attr, const __grid_constant__ R rounding,
           const float *clip, const struct ckpt_run *run)
{
    const int k = param_of(all, blockIdx.x);
    const struct update_param &p = all.of[k];
    int64_t begin = (int64_t)(blockIdx.x - p.first) * CHUNK;
    int n = (int)min((int64_t)CHUNK, p.numel - begin), whole = p.vectors ? n / 4 * 4 : 0;
    int at = 4 * (int)threadIdx.x;
    struct update_lanes<KIND, MEAN, 4, EMA, S> x;
    if (at < whole)
        x.load(p, begin + at);
    const bool finite = isfinite(clip[CLIP_NORM]); /* else the value is restored: see CLIP_NORM */
    update_begin(&c, &attr, clip, run->lr, run->opt_step);
    if (at < whole) {
        if (!finite) {
            x.store_value(p, begin + at);
        } else {
            draw(x.word, rounding, k, begin + at, run);
            x.update(c, run);
            x.store(p, begin + at);
        }
    }
    for (int i = whole + (int)threadIdx.x; i < n; i += THREADS) {
        struct update_lanes<KIND, MEAN, 1, EMA, S> one;
        one.load(p, begin + i);
        if (!finite) {
            one.store_value(p, begin + i);
        } else {
            draw(one.word, rounding, k, begin + i, run);
            one.update(c, run);
            one.store(p, begin + i);
        }
    }
}

/* ---- means in 8 bits ------------------------------------------------------------------------- */

/* Threads that have a block of codes, 4 elements each; half a warp. */
#define BLOCK_THREADS (MEAN8_BLOCK / 4)

/* The tops of both means over the threads of a block, in the halves of a word. */
static __device__ __forceinline__ uint32_t max_of_block(uint32_t tops)
{
#pragma unroll
    for (int lane = BLOCK_THREADS / 2; lane > 0; lane /= 2)
        tops = __vmaxu2(tops, __shfl_xor_sync(0xffffffffu, tops, lane));
    return tops;
}

static __device__ __forceinline__ struct mean8 mean8_of(void *memory, int64_t numel, int64_t i)
{
    uint8_t *code = static_cast<uint8_t *>(memory);
    int64_t blocks = (numel + MEAN8_BLOCK - 1) / MEAN8_BLOCK;
    struct mean8 s = {code + i,
                      reinterpret_cast<uint16_t *>(code + blocks * MEAN8_BLOCK) + i / MEAN8_BLOCK};
    return s;
}

/* Elements i .. i + 3, of which n are there (0 to 4); those that are not count as 0.  The kind has
 * a first mean: without one nothing is in 8 bits. */
template <int KIND, bool EMA> struct byte_lanes {
    static constexpr bool SQUARE = KIND == UPDATE_ADAMW;
    float w[4], m[4], v[4], g[4], ema[4];
    uint32_t word[4];

    template <typename T>
    static __device__ __forceinline__ void load_some(float (&x)[4], const T *src, int n,
                                                     bool vector)
    {
        if (vector) {
            load_floats(x, src);
            return;
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[j] = j < n ? to_float(src[j]) : 0.f;
    }

    template <typename T>
    static __device__ __forceinline__ void store_some(T *dst, const float (&x)[4], int n,
                                                      bool vector)
    {
        if (vector) {
            store_floats(dst, x);
            return;
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (j < n)
                dst[j] = from_float<T>(x[j]);
    }

    /* Codes stand in whole blocks, so 4 of them are always there. */
    static __device__ __forceinline__ void load_mean(float (&x)[4], void *memory, int64_t numel,
                                                     int64_t i, int n, bool square)
    {
        const struct mean8 s = mean8_of(memory, numel, i);
        const uint32_t codes = n > 0 ? *reinterpret_cast<const uint32_t *>(s.code) : 0u;
        const uint32_t base = mean8_base(n > 0 ? *s.top >> MEAN8_TOP : 0u, square);
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[j] = mean8_decode(codes >> 8 * j & 255u, base, square);
    }

    static __device__ __forceinline__ void store_mean(const float (&x)[4],
                                                      const uint32_t (&word)[4], uint32_t top,
                                                      void *memory, int64_t numel, int64_t i,
                                                      bool square)
    {
        const struct mean8 s = mean8_of(memory, numel, i);
        const uint32_t base = mean8_base(top, square);
        const int of = square ? NOISE_SQUARE : NOISE_MEAN;
        uint32_t codes = 0;
#pragma unroll
        for (int j = 0; j < 4; j++)
            codes |= mean8_encode(x[j], base, update_noise(word[j], of), square) << 8 * j;
        *reinterpret_cast<uint32_t *>(s.code) = codes;
        if (i % MEAN8_BLOCK == 0)
            *s.top = (uint16_t)(top << MEAN8_TOP);
    }

    __device__ __forceinline__ void load(const struct update_param &p, int64_t i, int n)
    {
        const bool vector = p.vectors && n == 4;
        if (p.half)
            load_some(g, static_cast<const bf16 *>(p.g) + i, n, vector);
        else
            load_some(g, static_cast<const float *>(p.g) + i, n, vector);
        load_some(w, static_cast<const bf16 *>(p.w) + i, n, vector);
        if (EMA)
            load_some(ema, p.ema + i, n, vector);
        load_mean(m, p.m, p.numel, i, n, false);
        if (SQUARE)
            load_mean(v, p.v, p.numel, i, n, true);
    }

    __device__ __forceinline__ void update(const struct update_constants &c, int n,
                                           const struct ckpt_run *run)
    {
        bool finite = true;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            w[j] = update_weight((enum update_kind)KIND, &c, g[j], w[j], &m[j], &v[j]);
            w[j] = update_round(w[j], update_noise(word[j], NOISE_VALUE));
            finite = finite && (j >= n || isfinite(w[j]));
            if (EMA)
                ema[j] = update_ema(&c, ema[j], w[j]);
        }
        if (!finite && run->halt)
            *run->halt = HALT_UPDATE + (int32_t)(run->opt_step & 1);
    }

    /* Every thread of a warp is here, for the tops. */
    __device__ __forceinline__ void store(const struct update_param &p, int64_t i, int n) const
    {
        const bool vector = p.vectors && n == 4;
        uint32_t tops = 0;
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (j < n)
                tops = __vmaxu2(tops, mean8_ceil(m[j]) | (SQUARE ? mean8_ceil(v[j]) << 16 : 0u));
        tops = max_of_block(tops);
        if (n <= 0)
            return;
        store_some(static_cast<bf16 *>(p.w) + i, w, n, vector);
        if (EMA)
            store_some(p.ema + i, ema, n, vector);
        store_mean(m, word, tops & 0xffffu, p.m, p.numel, i, false);
        if (SQUARE)
            store_mean(v, word, tops >> 16, p.v, p.numel, i, true);
    }
};

/* As update: a thread block takes a chunk, which is whole blocks of codes. */
template <int KIND, bool EMA>
static __global__ void __launch_bounds__(THREADS, EMA ? 4 : 5)
    update_bytes(const __grid_constant__ struct update_all all, struct update_constants c,
                 const __grid_constant__ struct update_attr attr,
                 const __grid_constant__ struct rounding rounding, const float *clip,
                 const struct ckpt_run *run)
{
    const int k = param_of(all, blockIdx.x);
    const struct update_param &p = all.of[k];
    const int64_t i = (int64_t)(blockIdx.x - p.first) * CHUNK + 4 * (int64_t)threadIdx.x;
    const int n = (int)max((int64_t)0, min((int64_t)4, p.numel - i));
    struct byte_lanes<KIND, EMA> x;
    x.load(p, i, n);
    if (!isfinite(clip[CLIP_NORM]))
        return;
    update_begin(&c, &attr, clip, run->lr, run->opt_step);
    draw(x.word, rounding, k, i, run);
    x.update(c, n, run);
    x.store(p, i, n);
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Whether four elements of this size may be read at once. */
static bool is_aligned(const void *p, int size)
{
    return (uintptr_t)p % (4 * (uintptr_t)size) == 0;
}

static struct update_param param_at(const struct ckpt_view *state, const struct ckpt_view *gradient,
                                    int narrow)
{
    const bool master = !narrow && state[UPDATE_VALUE].desc.dtype == CKPT_BF16;
    const int size = narrow ? 2 : 4, mean = narrow == NARROW_8BIT ? 1 : size;
    struct update_param p = {};
    p.w = state[master ? UPDATE_MASTER : UPDATE_VALUE].data;
    p.m = state[UPDATE_EXP_AVG].data;
    p.v = state[UPDATE_EXP_AVG_SQ].data;
    p.ema = static_cast<float *>(state[UPDATE_EMA].data);
    p.value = master ? static_cast<bf16 *>(state[UPDATE_VALUE].data) : NULL;
    p.g = gradient->data;
    p.numel = desc_numel(&state[UPDATE_VALUE].desc);
    p.half = gradient->desc.dtype == CKPT_BF16;
    p.vectors = is_aligned(p.w, size) && is_aligned(p.m, mean) && is_aligned(p.v, mean) &&
                is_aligned(p.ema, 4) && is_aligned(p.value, 2) && is_aligned(p.g, p.half ? 2 : 4);
    return p;
}

template <int KIND, bool MEAN, typename S, typename R>
static void launch_state(const struct ckpt_kernel_args *a, const struct update_all &all,
                         unsigned blocks, const R &rounding)
{
    const struct update_attr *attr = static_cast<const struct update_attr *>(a->attr);
    const struct update_constants c = update_constants_of(attr);
    const float *clip = static_cast<const float *>(a->in[a->n_in - 1].data);
    if (all.of[0].ema)
        update<KIND, MEAN, true, S, R>
            <<<blocks, THREADS, 0, stream_of(a)>>>(all, c, *attr, rounding, clip, a->run_device);
    else
        update<KIND, MEAN, false, S, R>
            <<<blocks, THREADS, 0, stream_of(a)>>>(all, c, *attr, rounding, clip, a->run_device);
}

template <int KIND>
static void launch_bytes(const struct ckpt_kernel_args *a, const struct update_all &all,
                         unsigned blocks)
{
    const struct narrow_update_attr *attr = static_cast<const struct narrow_update_attr *>(a->attr);
    const struct update_constants c = update_constants_of(&attr->update);
    const float *clip = static_cast<const float *>(a->in[a->n_in - 1].data);
    if (all.of[0].ema)
        update_bytes<KIND, true><<<blocks, THREADS, 0, stream_of(a)>>>(
            all, c, attr->update, attr->rounding, clip, a->run_device);
    else
        update_bytes<KIND, false><<<blocks, THREADS, 0, stream_of(a)>>>(
            all, c, attr->update, attr->rounding, clip, a->run_device);
}

template <int KIND, bool MEAN>
static void launch(const struct ckpt_kernel_args *a, const struct update_all &all, unsigned blocks)
{
    const struct narrow_update_attr *attr = static_cast<const struct narrow_update_attr *>(a->attr);
    if constexpr (MEAN) {
        if (attr->update.narrow == NARROW_8BIT) {
            launch_bytes<KIND>(a, all, blocks);
            return;
        }
    }
    if (attr->update.narrow)
        launch_state<KIND, MEAN, bf16>(a, all, blocks, attr->rounding);
    else
        launch_state<KIND, MEAN, float>(a, all, blocks, no_rounding());
}

int cuda_update(const struct ckpt_kernel_args *a)
{
    const struct update_attr *attr = static_cast<const struct update_attr *>(a->attr);
    const struct ckpt_view *gradient = a->in + a->n_out;
    struct update_all all = {};
    unsigned blocks = 0;
    all.n = update_params(a->n_in);
    for (int k = 0; k < all.n; k++) {
        all.of[k] = param_at(a->out + k * UPDATE_STATES, &gradient[k], attr->narrow);
        all.of[k].first = blocks;
        blocks += blocks_of(all.of[k].numel, CHUNK);
    }
    if (attr->kind == UPDATE_ADAMW)
        launch<UPDATE_ADAMW, true>(a, all, blocks);
    else if (attr->kind == UPDATE_LION)
        launch<UPDATE_LION, true>(a, all, blocks);
    else if (attr->kind == UPDATE_STEP)
        launch<UPDATE_STEP, false>(a, all, blocks);
    else if (update_has_mean(attr))
        launch<UPDATE_SGD, true>(a, all, blocks);
    else
        launch<UPDATE_SGD, false>(a, all, blocks);
    return launched();
}

/* ---- states that take a value ---------------------------------------------------------------- */

/* Row k of the grid has pair k. */
struct assign_pairs {
    float *state[ASSIGN_PAIRS];
    const float *x[ASSIGN_PAIRS];
    int64_t numel[ASSIGN_PAIRS];
};

/* A state takes its next value, unless the norm is not finite. */
static __global__ void __launch_bounds__(THREADS)
    assign(const __grid_constant__ struct assign_pairs all, const float *clip)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int k = (int)blockIdx.y;
    if (i < all.numel[k] && isfinite(clip[CLIP_NORM]))
        all.state[k][i] = all.x[k][i];
}

/* One state in bf16, k of its op: a thread has four elements. */
static __global__ void __launch_bounds__(THREADS)
    assign_narrow(bf16 *state, const float *x, int64_t n, int k, int of,
                  const __grid_constant__ struct rounding rounding, const float *clip,
                  const struct ckpt_run *run)
{
    int64_t i = 4 * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    uint32_t word[4];
    if (i >= n || !isfinite(clip[CLIP_NORM]))
        return;
    draw(word, rounding, k, i, run);
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (i + j < n)
            state[i + j] = from_float<bf16>(update_round(x[i + j], update_noise(word[j], of)));
}

static int assign_all_narrow(const struct ckpt_kernel_args *a)
{
    const struct narrow_assign_attr *attr = static_cast<const struct narrow_assign_attr *>(a->attr);
    for (int k = 0; k < a->n_out; k++) {
        int64_t n = desc_numel(&a->out[k].desc);
        assign_narrow<<<blocks_of((n + 3) / 4, THREADS), THREADS, 0, stream_of(a)>>>(
            static_cast<bf16 *>(a->out[k].data),
            static_cast<const float *>(a->in[a->n_out + k].data), n, k, attr->noise, attr->rounding,
            static_cast<const float *>(a->in[a->n_in - 1].data), a->run_device);
    }
    return launched();
}

int cuda_assign(const struct ckpt_kernel_args *a)
{
    if (a->out[0].desc.dtype == CKPT_BF16)
        return assign_all_narrow(a);
    struct assign_pairs all = {};
    int64_t most = 1;
    for (int k = 0; k < a->n_out; k++) {
        all.state[k] = static_cast<float *>(a->out[k].data);
        all.x[k] = static_cast<const float *>(a->in[a->n_out + k].data);
        all.numel[k] = desc_numel(&a->out[k].desc);
        most = max_i64(most, all.numel[k]);
    }
    assign<<<dim3(blocks_of(most, THREADS), (unsigned)a->n_out), THREADS, 0, stream_of(a)>>>(
        all, static_cast<const float *>(a->in[a->n_in - 1].data));
    return launched();
}

/* before may be after.  step: between elements of x. */
struct average_pairs {
    const float *before[AVERAGE_PAIRS], *x[AVERAGE_PAIRS];
    float *after[AVERAGE_PAIRS];
    int64_t numel[AVERAGE_PAIRS], step[AVERAGE_PAIRS];
};

static __global__ void __launch_bounds__(THREADS)
    moving_average(const __grid_constant__ struct average_pairs all, float momentum)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int k = (int)blockIdx.y;
    if (i < all.numel[k])
        all.after[k][i] = __fadd_rn(__fmul_rn(1.f - momentum, all.before[k][i]),
                                    __fmul_rn(momentum, all.x[k][i * all.step[k]]));
}

int cuda_moving_average(const struct ckpt_kernel_args *a)
{
    const struct moving_average_attr *attr =
        static_cast<const struct moving_average_attr *>(a->attr);
    const struct ckpt_view *buffer = a->in + a->n_out, *x = buffer + a->n_out;
    struct average_pairs all = {};
    int64_t most = 1;
    for (int k = 0; k < a->n_out; k++) {
        all.after[k] = static_cast<float *>(a->out[k].data);
        all.before[k] = a->accumulate ? all.after[k] : static_cast<const float *>(buffer[k].data);
        all.x[k] = static_cast<const float *>(x[k].data);
        all.numel[k] = desc_numel(&a->out[k].desc);
        all.step[k] = desc_step(&x[k].desc);
        most = max_i64(most, all.numel[k]);
    }
    moving_average<<<dim3(blocks_of(most, THREADS), (unsigned)a->n_out), THREADS, 0,
                     stream_of(a)>>>(all, attr->momentum);
    return launched();
}
