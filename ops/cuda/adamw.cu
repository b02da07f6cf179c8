/* SPDX-License-Identifier: Apache-2.0 */
/* The fused AdamW update of one parameter or of many.  What moves from step to step is read on the
 * device. */
#include "attr.h"
#include "cuda/kernels.h"
#include "cuda/walk.cuh"
#include "optim/adamw_math.h"

#define THREADS 256
#define CHUNK   (4 * THREADS) /* elements of a thread block: one vector a thread */

/* Value is bf16 beside a master, else NULL; ema may be NULL. */
struct adamw_param {
    float *w, *m, *v, *ema;
    bf16 *value;
    const void *g;
    int64_t numel;
    uint32_t first; /* of its thread blocks */
    bool half;      /* the gradient is bf16 */
    bool vectors;   /* all addresses are good for vectors of 4 elements */
};

struct adamw_params {
    int n;
    struct adamw_param of[ADAMW_PARAMS];
};

/* The parameter that a block belongs to: the last whose first block is not behind it. */
static __device__ __forceinline__ int param_of(const struct adamw_params &all, uint32_t block)
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

template <int V, bool EMA> struct adamw_lanes {
    float w[V], m[V], v[V], g[V], ema[V];

    __device__ __forceinline__ void load(const struct adamw_param &p, int64_t i)
    {
        if (p.half)
            load_floats(g, static_cast<const bf16 *>(p.g) + i);
        else
            load_floats(g, static_cast<const float *>(p.g) + i);
        load_floats(m, p.m + i);
        load_floats(v, p.v + i);
        load_floats(w, p.w + i);
        if (EMA)
            load_floats(ema, p.ema + i);
    }

    /* A weight that is not finite any more is told of: see HALT_UPDATE. */
    __device__ __forceinline__ void update(const struct adamw_constants &c,
                                           const struct ckpt_run *run)
    {
        bool finite = true;
#pragma unroll
        for (int i = 0; i < V; i++) {
            w[i] = adamw_weight(&c, g[i], w[i], &m[i], &v[i]);
            finite = finite && isfinite(w[i]);
            if (EMA)
                ema[i] = adamw_ema(&c, ema[i], w[i]);
        }
        if (!finite && run->halt)
            *run->halt = HALT_UPDATE + (int32_t)(run->opt_step & 1);
    }

    __device__ __forceinline__ void store(const struct adamw_param &p, int64_t i) const
    {
        store_floats(p.m + i, m);
        store_floats(p.v + i, v);
        store_floats(p.w + i, w);
        if (EMA)
            store_floats(p.ema + i, ema);
        store_value(p, i);
    }

    /* Behind the loads of all lanes: its room may be the gradient's. */
    __device__ __forceinline__ void store_value(const struct adamw_param &p, int64_t i) const
    {
        if (p.value)
            store_floats(p.value + i, w);
    }
};

/*
 * A thread block takes one chunk of one parameter.  Warps wait for nothing but their own loads,
 * which are all under way before the first is used; few registers leave room for many warps.
 */
template <bool EMA>
static __global__ void __launch_bounds__(THREADS, 5)
    adamw(const __grid_constant__ struct adamw_params all, struct adamw_constants c,
          const float *clip, const struct ckpt_run *run)
{
    const struct adamw_param &p = all.of[param_of(all, blockIdx.x)];
    int64_t begin = (int64_t)(blockIdx.x - p.first) * CHUNK;
    int n = (int)min((int64_t)CHUNK, p.numel - begin), whole = p.vectors ? n / 4 * 4 : 0;
    int at = 4 * (int)threadIdx.x;
    struct adamw_lanes<4, EMA> x;
    if (at < whole)
        x.load(p, begin + at);
    const bool finite = isfinite(clip[CLIP_NORM]); /* else the value is restored: see CLIP_NORM */
    c.clip = clip[CLIP_FACTOR];
    c.unbias1 = clip[CLIP_UNBIAS1];
    c.unbias2 = clip[CLIP_UNBIAS2];
    c.lr = run->lr;
    if (at < whole) {
        if (!finite) {
            x.store_value(p, begin + at);
        } else {
            x.update(c, run);
            x.store(p, begin + at);
        }
    }
    for (int i = whole + (int)threadIdx.x; i < n; i += THREADS) {
        struct adamw_lanes<1, EMA> one;
        one.load(p, begin + i);
        if (!finite) {
            one.store_value(p, begin + i);
        } else {
            one.update(c, run);
            one.store(p, begin + i);
        }
    }
}

static struct adamw_param param_at(const struct ckpt_view *state, const struct ckpt_view *gradient)
{
    const bool master = state[ADAMW_VALUE].desc.dtype == CKPT_BF16;
    struct adamw_param p = {};
    p.w = static_cast<float *>(state[master ? ADAMW_MASTER : ADAMW_VALUE].data);
    p.m = static_cast<float *>(state[ADAMW_EXP_AVG].data);
    p.v = static_cast<float *>(state[ADAMW_EXP_AVG_SQ].data);
    p.ema = static_cast<float *>(state[ADAMW_EMA].data);
    p.value = master ? static_cast<bf16 *>(state[ADAMW_VALUE].data) : NULL;
    p.g = gradient->data;
    p.numel = desc_numel(&state[ADAMW_VALUE].desc);
    p.half = gradient->desc.dtype == CKPT_BF16;
    p.vectors = aligned16(p.w) && aligned16(p.m) && aligned16(p.v) && aligned16(p.ema) &&
                (uintptr_t)p.value % 8 == 0 && (uintptr_t)p.g % (p.half ? 8 : 16) == 0;
    return p;
}

int cuda_adamw(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *gradient = a->in + a->n_out;
    const float *clip = static_cast<const float *>(a->in[a->n_in - 1].data);
    struct adamw_constants c = adamw_constants_of(static_cast<const struct ckpt_adamw *>(a->attr));
    struct adamw_params all = {};
    unsigned blocks = 0;
    all.n = adamw_params(a->n_in);
    for (int k = 0; k < all.n; k++) {
        all.of[k] = param_at(a->out + k * ADAMW_STATES, &gradient[k]);
        all.of[k].first = blocks;
        blocks += blocks_of(all.of[k].numel, CHUNK);
    }
    if (all.of[0].ema)
        adamw<true><<<blocks, THREADS, 0, stream_of(a)>>>(all, c, clip, a->run_device);
    else
        adamw<false><<<blocks, THREADS, 0, stream_of(a)>>>(all, c, clip, a->run_device);
    return launched();
}
