/* SPDX-License-Identifier: Apache-2.0 */
/* The fused update of one parameter or of many, of each kind, the assignment of states, and the
 * averages of buffers.  What moves from step to step is read on the device. */
#include "attr.h"
#include "cuda/kernels.h"
#include "cuda/walk.cuh"
#include "optim/update_math.h"

#define THREADS 256
#define CHUNK   (4 * THREADS) /* elements of a thread block: one vector a thread */

/* Value is bf16 beside a master, else NULL; m, v and ema may be NULL. */
struct update_param {
    float *w, *m, *v, *ema;
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

/* MEAN: there is a first running mean. */
template <int KIND, bool MEAN, int V, bool EMA> struct update_lanes {
    static constexpr bool SQUARE = KIND == UPDATE_ADAMW;
    float w[V], m[V], v[V], g[V], ema[V];

    __device__ __forceinline__ void load(const struct update_param &p, int64_t i)
    {
        if (p.half)
            load_floats(g, static_cast<const bf16 *>(p.g) + i);
        else
            load_floats(g, static_cast<const float *>(p.g) + i);
        if (MEAN)
            load_floats(m, p.m + i);
        if (SQUARE)
            load_floats(v, p.v + i);
        load_floats(w, p.w + i);
        if (EMA)
            load_floats(ema, p.ema + i);
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
            store_floats(p.m + i, m);
        if (SQUARE)
            store_floats(p.v + i, v);
        store_floats(p.w + i, w);
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
template <int KIND, bool MEAN, bool EMA>
static __global__ void __launch_bounds__(THREADS, 5)
    update(const __grid_constant__ struct update_all all, struct update_constants c,
           const __grid_constant__ struct update_attr attr, const float *clip,
           const struct ckpt_run *run)
{
    const struct update_param &p = all.of[param_of(all, blockIdx.x)];
    int64_t begin = (int64_t)(blockIdx.x - p.first) * CHUNK;
    int n = (int)min((int64_t)CHUNK, p.numel - begin), whole = p.vectors ? n / 4 * 4 : 0;
    int at = 4 * (int)threadIdx.x;
    struct update_lanes<KIND, MEAN, 4, EMA> x;
    if (at < whole)
        x.load(p, begin + at);
    const bool finite = isfinite(clip[CLIP_NORM]); /* else the value is restored: see CLIP_NORM */
    update_begin(&c, &attr, clip, run->lr, run->opt_step);
    if (at < whole) {
        if (!finite) {
            x.store_value(p, begin + at);
        } else {
            x.update(c, run);
            x.store(p, begin + at);
        }
    }
    for (int i = whole + (int)threadIdx.x; i < n; i += THREADS) {
        struct update_lanes<KIND, MEAN, 1, EMA> one;
        one.load(p, begin + i);
        if (!finite) {
            one.store_value(p, begin + i);
        } else {
            one.update(c, run);
            one.store(p, begin + i);
        }
    }
}

static struct update_param param_at(const struct ckpt_view *state, const struct ckpt_view *gradient)
{
    const bool master = state[UPDATE_VALUE].desc.dtype == CKPT_BF16;
    struct update_param p = {};
    p.w = static_cast<float *>(state[master ? UPDATE_MASTER : UPDATE_VALUE].data);
    p.m = static_cast<float *>(state[UPDATE_EXP_AVG].data);
    p.v = static_cast<float *>(state[UPDATE_EXP_AVG_SQ].data);
    p.ema = static_cast<float *>(state[UPDATE_EMA].data);
    p.value = master ? static_cast<bf16 *>(state[UPDATE_VALUE].data) : NULL;
    p.g = gradient->data;
    p.numel = desc_numel(&state[UPDATE_VALUE].desc);
    p.half = gradient->desc.dtype == CKPT_BF16;
    p.vectors = aligned16(p.w) && aligned16(p.m) && aligned16(p.v) && aligned16(p.ema) &&
                (uintptr_t)p.value % 8 == 0 && (uintptr_t)p.g % (p.half ? 8 : 16) == 0;
    return p;
}

template <int KIND, bool MEAN>
static void launch(const struct ckpt_kernel_args *a, const struct update_all &all, unsigned blocks)
{
    const struct update_attr *attr = static_cast<const struct update_attr *>(a->attr);
    const struct update_constants c = update_constants_of(attr);
    const float *clip = static_cast<const float *>(a->in[a->n_in - 1].data);
    if (all.of[0].ema)
        update<KIND, MEAN, true>
            <<<blocks, THREADS, 0, stream_of(a)>>>(all, c, *attr, clip, a->run_device);
    else
        update<KIND, MEAN, false>
            <<<blocks, THREADS, 0, stream_of(a)>>>(all, c, *attr, clip, a->run_device);
}

int cuda_update(const struct ckpt_kernel_args *a)
{
    const struct update_attr *attr = static_cast<const struct update_attr *>(a->attr);
    const struct ckpt_view *gradient = a->in + a->n_out;
    struct update_all all = {};
    unsigned blocks = 0;
    all.n = update_params(a->n_in);
    for (int k = 0; k < all.n; k++) {
        all.of[k] = param_at(a->out + k * UPDATE_STATES, &gradient[k]);
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

int cuda_assign(const struct ckpt_kernel_args *a)
{
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
