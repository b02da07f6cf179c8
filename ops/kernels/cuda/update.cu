/* SPDX-License-Identifier: Apache-2.0 */
/* The fused update of one parameter or of many, of each kind, the assignment of states, and the
 * averages of buffers.  What moves from step to step is read on the device. */
#include "attr.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/update_bytes.cuh"
#include "kernels/cuda/walk.cuh"

/* What rounds: nothing where the state is fp32. */
struct no_rounding {
};

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

    /* After that, storing to nearest changes nothing. */
    __device__ __forceinline__ void round_lane(int i)
    {
        w[i] = update_round(w[i], update_noise(word[i], NOISE_VALUE));
        if (MEAN)
            m[i] = update_round(m[i], update_noise(word[i], NOISE_MEAN));
        if (SQUARE)
            v[i] = update_round(v[i], update_noise(word[i], NOISE_SQUARE));
    }

    /* Reports a weight that is not finite: see HALT_UPDATE. */
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

/* ---- launching ------------------------------------------------------------------------------- */

/* Whether so many bytes may be read at once. */
static bool is_aligned(const void *p, int bytes)
{
    return (uintptr_t)p % (uintptr_t)bytes == 0;
}

static struct update_param param_at(const struct ckpt_view *state, const struct ckpt_view *gradient,
                                    int narrow)
{
    const bool master = !narrow && state[UPDATE_VALUE].desc.dtype == CKPT_BF16;
    const bool bytes = narrow == NARROW_8BIT; /* 8 elements at a time, others 4 */
    const int half = bytes ? 16 : 8, weight = narrow ? half : 16, mean = bytes ? 8 : weight;
    struct update_param p = {};
    p.w = state[master ? UPDATE_MASTER : UPDATE_VALUE].data;
    p.m = state[UPDATE_EXP_AVG].data;
    p.v = state[UPDATE_EXP_AVG_SQ].data;
    p.ema = static_cast<float *>(state[UPDATE_EMA].data);
    p.value = master ? static_cast<bf16 *>(state[UPDATE_VALUE].data) : NULL;
    p.g = gradient->data;
    p.numel = desc_numel(&state[UPDATE_VALUE].desc);
    p.half = gradient->desc.dtype == CKPT_BF16;
    p.vectors = is_aligned(p.w, weight) && is_aligned(p.m, mean) && is_aligned(p.v, mean) &&
                is_aligned(p.ema, 16) && is_aligned(p.value, 8) &&
                is_aligned(p.g, p.half ? half : 16);
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
        update_bytes<KIND, true><<<blocks, BYTE_THREADS, 0, stream_of(a)>>>(
            all, c, attr->update, attr->rounding, clip, a->run_device);
    else
        update_bytes<KIND, false><<<blocks, BYTE_THREADS, 0, stream_of(a)>>>(
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
    const bool bytes = attr->narrow == NARROW_8BIT && update_has_mean(attr); /* launch_bytes */
    const int64_t chunk = bytes ? BYTE_TURNS * CHUNK : CHUNK;
    unsigned blocks = 0;
    all.n = update_params(a->n_in);
    for (int k = 0; k < all.n; k++) {
        all.of[k] = param_at(a->out + k * UPDATE_STATES, &gradient[k], attr->narrow);
        all.of[k].first = blocks;
        blocks += blocks_of(all.of[k].numel, chunk);
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
