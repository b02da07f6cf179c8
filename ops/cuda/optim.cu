/*
 * The optimizer's kernels: sums of squares, the clip factor and the fused AdamW update.  What moves
 * from step to step is read on the device.
 */
#include "attr.h"
#include "cuda/kernels.h"
#include "cuda/walk.cuh"
#include "cuda/workspace.h"

#define THREADS 256
#define QUADS   4 /* vectors of 4 floats in flight, reading gradients */

/* ---- sum of squares ------------------------------------------------------------------------- */

#define BATCH 128 /* tensors per launch; their pointers travel as arguments */

struct gradients {
    int n;
    const float *g[BATCH];
    int64_t numel[BATCH];
    uint32_t first[BATCH + 1]; /* chunk of each; the last is their number */
};

/* The tensor that a chunk belongs to: the last whose first chunk is not behind it. */
static __device__ __forceinline__ int tensor_of(const struct gradients &all, uint32_t chunk)
{
    int low = 0, high = all.n - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (all.first[middle] <= chunk)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static __device__ __forceinline__ double square(float x)
{
    return (double)x * (double)x;
}

/* A thread block per chunk; every tensor is read as vectors where its address allows it. */
static __global__ void __launch_bounds__(THREADS)
    square_chunks(double *partial, const __grid_constant__ struct gradients all)
{
    int k = tensor_of(all, blockIdx.x);
    int64_t begin = (int64_t)(blockIdx.x - all.first[k]) * CUDA_SQUARES_CHUNK;
    int n = (int)min((int64_t)CUDA_SQUARES_CHUNK, all.numel[k] - begin);
    const float *g = all.g[k] + begin;
    int quads = (uintptr_t)g % 16 ? 0 : n / 4;
    double sum[4] = {};
    for (int i = threadIdx.x; i < quads; i += QUADS * THREADS) {
        float4 q[QUADS];
#pragma unroll
        for (int u = 0; u < QUADS; u++)
            q[u] = i + u * THREADS < quads ? reinterpret_cast<const float4 *>(g)[i + u * THREADS]
                                           : make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
        for (int u = 0; u < QUADS; u++) {
            sum[0] += square(q[u].x);
            sum[1] += square(q[u].y);
            sum[2] += square(q[u].z);
            sum[3] += square(q[u].w);
        }
    }
    for (int i = 4 * quads + threadIdx.x; i < n; i += THREADS)
        sum[0] += square(g[i]);
    double total = block_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    if (threadIdx.x == 0)
        partial[blockIdx.x] = total;
}

/* One thread block. */
static __global__ void __launch_bounds__(1024)
    add_partials(float *y, const double *partial, int64_t n)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += 1024)
        sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *y = (float)sum;
}

int cuda_sum_squares(const struct ckpt_kernel_args *a)
{
    double *partial = static_cast<double *>(a->workspace);
    int64_t chunks = 0;
    for (int from = 0; from < a->n_in; from += BATCH) {
        struct gradients some = {};
        some.n = (int)min_i64(BATCH, a->n_in - from);
        for (int i = 0; i < some.n; i++) {
            const struct ckpt_view *g = &a->in[from + i];
            some.g[i] = static_cast<const float *>(g->data);
            some.numel[i] = desc_numel(&g->desc);
            some.first[i + 1] = some.first[i] + (uint32_t)cuda_squares_chunks(&g->desc);
        }
        square_chunks<<<some.first[some.n], THREADS, 0, stream_of(a)>>>(partial + chunks, some);
        chunks += some.first[some.n];
    }
    add_partials<<<1, 1024, 0, stream_of(a)>>>(static_cast<float *>(a->out[0].data), partial,
                                               chunks);
    return launched();
}

/* ---- clip factor ---------------------------------------------------------------------------- */

#define SUMS 496 /* operands per launch: arguments stay below 4 KiB */

struct sums {
    int n;
    bool first, last; /* of the launches for one op */
    const float *at[SUMS];
};

/* One thread block; `carry` takes the sum from launch to launch. */
static __global__ void __launch_bounds__(THREADS)
    clip(float *y, double *carry, const float *loss, float clip_norm,
         const __grid_constant__ struct sums some)
{
    double sum = 0;
    for (int i = threadIdx.x; i < some.n; i += THREADS)
        sum += (double)*some.at[i];
    sum = block_sum(sum);
    if (threadIdx.x)
        return;
    sum += some.first ? (isfinite(*loss) ? 0.0 : (double)NAN) : *carry;
    if (!some.last) {
        *carry = sum;
        return;
    }
    double norm = sqrt(sum), factor = (double)clip_norm / (norm + 1e-6);
    y[0] = (float)norm;
    y[1] = clip_norm > 0.f && factor < 1 ? (float)factor : 1.f;
}

int cuda_clip_coefficient(const struct ckpt_kernel_args *a)
{
    const struct clip_attr *attr = static_cast<const struct clip_attr *>(a->attr);
    const float *loss = static_cast<const float *>(a->in[0].data);
    int from = 1;
    do {
        struct sums some = {};
        some.n = (int)min_i64(SUMS, a->n_in - from);
        some.first = from == 1;
        some.last = from + some.n == a->n_in;
        for (int i = 0; i < some.n; i++)
            some.at[i] = static_cast<const float *>(a->in[from + i].data);
        clip<<<1, THREADS, 0, stream_of(a)>>>(static_cast<float *>(a->out[0].data),
                                              static_cast<double *>(a->workspace), loss,
                                              attr->clip_norm, some);
        from += some.n;
    } while (from < a->n_in);
    return launched();
}

/* ---- AdamW ---------------------------------------------------------------------------------- */

/* Operands, where a launch begins; value is bf16 beside a master, ema may be NULL. */
struct adamw_rows {
    float *w, *m, *v, *ema;
    bf16 *value;
    const float *g, *clip;
};

/* Constants of one optimizer. */
struct adamw_options {
    double beta1, beta2;
    float b1, b2, new1, new2; /* beta as a float, 1 - beta */
    float eps, weight_decay, ema, new_ema;
};

/* beta^k by squaring: off by k ulp at most, which leaves 1 - beta^k ten digits and more. */
static __device__ double power(double beta, int64_t k)
{
    double p = 1;
    for (; k; k >>= 1, beta *= beta)
        if (k & 1)
            p *= beta;
    return p;
}

template <int V, bool EMA> struct adamw_lanes {
    float w[V], m[V], v[V], g[V], ema[V];
    __device__ __forceinline__ void load(const struct adamw_rows &r, int64_t i)
    {
        load_floats(w, r.w + i);
        load_floats(m, r.m + i);
        load_floats(v, r.v + i);
        load_floats(g, r.g + i);
        if (EMA)
            load_floats(ema, r.ema + i);
    }
};

/* What all elements of one update share: the clip factor, 1 / (1 - beta^k), the learning rate. */
struct adamw_moving {
    float clip, unbias1, unbias2, lr;
};

template <int V, bool EMA>
static __device__ __forceinline__ void adamw_update(struct adamw_lanes<V, EMA> &x,
                                                    const struct adamw_options &c,
                                                    const struct adamw_moving &s)
{
#pragma unroll
    for (int i = 0; i < V; i++) {
        float g = x.g[i] * s.clip;
        x.m[i] = c.b1 * x.m[i] + c.new1 * g;
        x.v[i] = c.b2 * x.v[i] + c.new2 * g * g;
        float update = x.m[i] * s.unbias1 / (sqrtf(x.v[i] * s.unbias2) + c.eps);
        x.w[i] -= s.lr * (update + c.weight_decay * x.w[i]);
        if (EMA)
            x.ema[i] = c.ema * x.ema[i] + c.new_ema * x.w[i];
    }
}

/*
 * A thread takes U vectors of V elements, all loaded at once; while they come, two threads of the
 * block work out the bias corrections for all.
 */
template <int V, int U, bool HALF, bool EMA>
static __global__ void __launch_bounds__(THREADS)
    adamw(struct adamw_rows r, struct adamw_options c, const struct ckpt_run *run, int64_t vectors)
{
    __shared__ float unbias[2];
    int64_t first = (int64_t)blockIdx.x * (U * THREADS) + threadIdx.x;
    struct adamw_lanes<V, EMA> x[U];
#pragma unroll
    for (int u = 0; u < U; u++)
        if (first + u * THREADS < vectors)
            x[u].load(r, (first + u * THREADS) * V);
    if (threadIdx.x % 32 == 0 && threadIdx.x < 64)
        unbias[threadIdx.x / 32] =
            (float)(1.0 / (1.0 - power(threadIdx.x ? c.beta2 : c.beta1, run->opt_step + 1)));
    float norm = r.clip[0];
    struct adamw_moving s = {r.clip[1], 0.f, 0.f, run->lr};
    __syncthreads();
    if (!isfinite(norm))
        return;
    s.unbias1 = unbias[0];
    s.unbias2 = unbias[1];
#pragma unroll
    for (int u = 0; u < U; u++) {
        int64_t i = (first + u * THREADS) * V;
        if (first + u * THREADS >= vectors)
            continue;
        adamw_update(x[u], c, s);
        store_floats(r.w + i, x[u].w);
        store_floats(r.m + i, x[u].m);
        store_floats(r.v + i, x[u].v);
        if (HALF)
            store_floats(r.value + i, x[u].w);
        if (EMA)
            store_floats(r.ema + i, x[u].ema);
    }
}

static struct adamw_options options_of(const struct ckpt_adamw *o)
{
    struct adamw_options c = {};
    c.beta1 = (double)o->beta1;
    c.beta2 = (double)o->beta2;
    c.b1 = o->beta1;
    c.b2 = o->beta2;
    c.new1 = (float)(1.0 - (double)o->beta1);
    c.new2 = (float)(1.0 - (double)o->beta2);
    c.eps = o->eps;
    c.weight_decay = o->weight_decay;
    c.ema = o->ema_decay;
    c.new_ema = (float)(1.0 - (double)o->ema_decay);
    return c;
}

/* Elements from i on. */
static struct adamw_rows rows_at(const struct ckpt_kernel_args *a, int64_t i)
{
    const struct ckpt_view *out = a->out;
    bool half = out[0].desc.dtype == CKPT_BF16;
    struct adamw_rows r = {};
    r.w = static_cast<float *>(out[half ? 1 : 0].data) + i;
    r.m = static_cast<float *>(out[2].data) + i;
    r.v = static_cast<float *>(out[3].data) + i;
    r.ema = out[4].data ? static_cast<float *>(out[4].data) + i : NULL;
    r.value = half ? static_cast<bf16 *>(out[0].data) + i : NULL;
    r.g = static_cast<const float *>(a->in[5].data) + i;
    r.clip = static_cast<const float *>(a->in[6].data);
    return r;
}

/* n elements from `from` on, n a multiple of V. */
template <int V> static void launch(const struct ckpt_kernel_args *a, int64_t from, int64_t n)
{
    constexpr int U = V == 1 ? 4 : 2;
    struct adamw_rows r = rows_at(a, from);
    struct adamw_options c = options_of(static_cast<const struct ckpt_adamw *>(a->attr));
    unsigned blocks = blocks_of(n / V, U * THREADS);
    if (!blocks)
        return;
    if (r.value && r.ema)
        adamw<V, U, true, true><<<blocks, THREADS, 0, stream_of(a)>>>(r, c, a->run_device, n / V);
    else if (r.value)
        adamw<V, U, true, false><<<blocks, THREADS, 0, stream_of(a)>>>(r, c, a->run_device, n / V);
    else if (r.ema)
        adamw<V, U, false, true><<<blocks, THREADS, 0, stream_of(a)>>>(r, c, a->run_device, n / V);
    else
        adamw<V, U, false, false><<<blocks, THREADS, 0, stream_of(a)>>>(r, c, a->run_device, n / V);
}

int cuda_adamw(const struct ckpt_kernel_args *a)
{
    struct adamw_rows r = rows_at(a, 0);
    int64_t n = desc_numel(&a->in[0].desc);
    bool vectors = aligned16(r.w) && aligned16(r.m) && aligned16(r.v) && aligned16(r.g) &&
                   aligned16(r.ema) && (uintptr_t)r.value % 8 == 0;
    int64_t whole = vectors ? n / 4 * 4 : 0;
    launch<4>(a, 0, whole);
    launch<1>(a, whole, n - whole);
    return launched();
}
