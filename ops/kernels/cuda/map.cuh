/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise maps y = f(a, b, c) with broadcasting: computed in fp32, rounded once. f is a
 * functor of three floats and uses as many as there are inputs.
 *
 * A thread handles a few vectors of V elements and loads all of them before it uses the first.
 * There are three kernels. map_dense: all operands are dense, so no index arithmetic. map_rows:
 * rows of any strides, or operands that are constant along the last axis; the offset of every
 * vector is computed. map_any: every other layout and dtype, one element at a time, with dtypes
 * selected at run time.
 */
#ifndef CKPT_CUDA_MAP_CUH
#define CKPT_CUDA_MAP_CUH

#include "kernels/cuda/largest.cuh"
#include "kernels/cuda/walk.cuh"

/* Defines the functor `name` of x, y and z. */
#define CUDA_MAP(name, value)                                                                      \
    struct name {                                                                                  \
        __device__ float operator()(float x, float y, float z) const                               \
        {                                                                                          \
            return value;                                                                          \
        }                                                                                          \
    };

/* A map that also writes the largest magnitude of its result: see largest.cuh. */
template <typename F> struct map_largest : F {
    uint32_t *to;
};

template <typename F> static constexpr bool leaves_largest = false;
template <typename F> static constexpr bool leaves_largest<map_largest<F>> = true;

/* Ends a block of such a map; all threads of the block must call it. */
template <typename F, typename Y>
__device__ __forceinline__ void map_end(const F &f, const largest<Y> &amax)
{
    if constexpr (leaves_largest<F>)
        leave_largest(f.to, amax);
}

/* The type of an absent input. */
struct nothing {
};

/* V elements in registers, in the dtype they have in memory. */
template <typename T, int V> struct lanes {
    vec<T, V> raw;
    __device__ __forceinline__ void load(const T *p)
    {
        raw = *reinterpret_cast<const vec<T, V> *>(p);
    }
    __device__ __forceinline__ void spread(const T *p)
    {
        T one = *p;
#pragma unroll
        for (int i = 0; i < V; i++)
            raw.at[i] = one;
    }
    __device__ __forceinline__ float get(int i) const
    {
        return to_float(raw.at[i]);
    }
};

template <int V> struct lanes<nothing, V> {
    __device__ __forceinline__ void load(const nothing *)
    {
    }
    __device__ __forceinline__ void spread(const nothing *)
    {
    }
    __device__ __forceinline__ float get(int) const
    {
        return 0.f;
    }
};

/* The result and the inputs of a map; absent inputs are NULL. */
template <typename Y, typename A, typename B, typename C> struct map_operands {
    Y *y;
    const A *a;
    const B *b;
    const C *c;
};

template <int V, typename A, typename B, typename C> struct map_lanes {
    lanes<A, V> a;
    lanes<B, V> b;
    lanes<C, V> c;

    template <typename F, typename Y>
    __device__ __forceinline__ void finish(const F &f, Y *y, largest<Y> &amax) const
    {
        vec<Y, V> r;
#pragma unroll
        for (int i = 0; i < V; i++)
            r.at[i] = from_float<Y>(f(a.get(i), b.get(i), c.get(i)));
        *reinterpret_cast<vec<Y, V> *>(y) = r;
        if constexpr (leaves_largest<F>)
            amax.see(r);
    }
};

/* Block i handles vectors from U * WALK_THREADS * i on; neighbouring lanes of a warp access
 * neighbouring vectors. */
template <int V, int U, typename F, typename Y, typename A, typename B, typename C>
static __global__ void __launch_bounds__(WALK_THREADS)
    map_dense(F f, struct map_operands<Y, A, B, C> o, int64_t vectors)
{
    int64_t first = (int64_t)blockIdx.x * (U * WALK_THREADS) + threadIdx.x;
    map_lanes<V, A, B, C> x[U];
    largest<Y> amax;
#pragma unroll
    for (int u = 0; u < U; u++) {
        int64_t i = first + u * WALK_THREADS;
        if (i < vectors) {
            x[u].a.load(o.a + i * V);
            x[u].b.load(o.b + i * V);
            x[u].c.load(o.c + i * V);
        }
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
        int64_t i = first + u * WALK_THREADS;
        if (i < vectors)
            x[u].finish(f, o.y + i * V, amax);
    }
    map_end(f, amax);
}

/* A map over strided operands in steps of V elements.  Bit k of `spread`: operand k is constant
 * along the last axis. */
template <int V, int U, typename F, typename Y, typename A, typename B, typename C>
static __global__ void __launch_bounds__(WALK_THREADS)
    map_rows(F f, struct map_operands<Y, A, B, C> o, const __grid_constant__ struct walk w,
             unsigned spread)
{
    uint32_t first = blockIdx.x * (U * WALK_THREADS) + threadIdx.x;
    map_lanes<V, A, B, C> x[U];
    largest<Y> amax;
    int64_t at[U][4];
#pragma unroll
    for (int u = 0; u < U; u++) {
        uint32_t i = first + u * WALK_THREADS;
        if (i < w.count) {
            walk_seek(w, i, at[u]);
            if (spread & 2)
                x[u].a.spread(o.a + at[u][1]);
            else
                x[u].a.load(o.a + at[u][1]);
            if (spread & 4)
                x[u].b.spread(o.b + at[u][2]);
            else
                x[u].b.load(o.b + at[u][2]);
            if (spread & 8)
                x[u].c.spread(o.c + at[u][3]);
            else
                x[u].c.load(o.c + at[u][3]);
        }
    }
#pragma unroll
    for (int u = 0; u < U; u++)
        if (first + u * WALK_THREADS < w.count)
            x[u].finish(f, o.y + at[u][0], amax);
    map_end(f, amax);
}

/* An operand whose dtype is known at run time. */
struct any_operand {
    char *data;
    enum ckpt_dtype dtype;
};

static __device__ __forceinline__ float any_load(const struct any_operand &x, int64_t i)
{
    if (!x.data)
        return 0.f;
    if (x.dtype == CKPT_BF16)
        return to_float(reinterpret_cast<const bf16 *>(x.data)[i]);
    if (x.dtype == CKPT_F32)
        return reinterpret_cast<const float *>(x.data)[i];
    return to_float(reinterpret_cast<const int32_t *>(x.data)[i]);
}

/* The bits, as fp32, of the value that any_store writes. */
static __device__ __forceinline__ uint32_t any_bits(const struct any_operand &y, float v)
{
    return __float_as_uint(y.dtype == CKPT_BF16 ? to_float(from_float<bf16>(v)) : v);
}

static __device__ __forceinline__ void any_store(const struct any_operand &y, int64_t i, float v)
{
    if (y.dtype == CKPT_BF16)
        reinterpret_cast<bf16 *>(y.data)[i] = from_float<bf16>(v);
    else if (y.dtype == CKPT_F32)
        reinterpret_cast<float *>(y.data)[i] = v;
    else
        reinterpret_cast<int32_t *>(y.data)[i] = (int32_t)v;
}

struct any_operands {
    struct any_operand x[WALK_OPERANDS];
};

/* One thread per element. */
template <typename F>
static __global__ void __launch_bounds__(WALK_THREADS)
    map_any(F f, struct any_operands o, const __grid_constant__ struct walk w)
{
    uint32_t i = blockIdx.x * WALK_THREADS + threadIdx.x;
    int64_t at[WALK_OPERANDS];
    largest<float> amax;
    if (i < w.count) {
        walk_seek(w, i, at);
        float y = f(any_load(o.x[1], at[1]), any_load(o.x[2], at[2]), any_load(o.x[3], at[3]));
        any_store(o.x[0], at[0], y);
        if constexpr (leaves_largest<F>)
            amax.see(any_bits(o.x[0], y));
    }
    map_end(f, amax);
}

/* ---- host ----------------------------------------------------------------------------------- */

/* The operands of a map: y first, then its inputs. */
struct map_job {
    int n;
    enum ckpt_dtype dtype[WALK_OPERANDS];
    int64_t size[WALK_OPERANDS];
    char *base[WALK_OPERANDS];
    cudaStream_t stream;
};

static inline bool map_is_dense(const struct loops *l)
{
    if (l->ndim > 1)
        return false;
    for (int k = 0; k < l->n; k++)
        if (l->stride[k][0] != 1 && l->shape[0] != 1)
            return false;
    return true;
}

template <typename F>
static void map_any_launch(const F &f, const struct map_job *job, const struct loops *l,
                           char *const *base)
{
    struct any_operands o = {};
    for (int k = 0; k < job->n; k++)
        o.x[k] = {base[k], job->dtype[k]};
    struct walk w = walk_of(l, l->ndim);
    map_any<<<blocks_of(w.count, WALK_THREADS), WALK_THREADS, 0, job->stream>>>(f, o, w);
}

/* Maps the elements of a dense map behind the last whole vector. */
template <typename F>
static void map_tail(const F &f, const struct map_job *job, const struct loops *l,
                     char *const *base, int64_t done)
{
    struct loops tail = *l;
    char *at[WALK_OPERANDS] = {};
    for (int k = 0; k < job->n; k++)
        at[k] = base[k] + done * job->size[k];
    tail.shape[0] -= done;
    if (tail.shape[0])
        map_any_launch(f, job, &tail, at);
}

template <typename Y, typename A, typename B, typename C>
static struct map_operands<Y, A, B, C> map_cast(char *const *base) {
    return {reinterpret_cast<Y *>(base[0]), reinterpret_cast<const A *>(base[1]),
            reinterpret_cast<const B *>(base[2]), reinterpret_cast<const C *>(base[3])};
}

/* Launches a map whose operands have these element types. */
template <typename F, typename Y, typename A, typename B, typename C>
struct map_typed {
    static constexpr int V =
        sizeof(Y) == 2 &&
                (sizeof(A) == 2 || std::is_same_v<A, nothing>)&&(
                    sizeof(B) == 2 || std::is_same_v<B, nothing>)&&(sizeof(C) == 2 ||
                                                                    std::is_same_v<C, nothing>)
            ? 8
            : 4;
    static constexpr int U = std::is_same_v<B, nothing> ? 4 : 2;

    /* Returns false if the operands cannot be accessed in vectors. */
    static bool launch(const F &f, const struct map_job *job, const struct loops *l,
                       char *const *base)
    {
        struct loops steps = *l;
        unsigned spread = 0;
        if (map_is_dense(l))
            return dense(f, job, l, base);
        for (int k = 0; k < job->n; k++) {
            if (k && l->stride[k][l->ndim - 1] == 0 && l->shape[l->ndim - 1] % V == 0)
                spread |= 1u << k;
            else if (!walk_runs(l, k, base[k], job->size[k], V))
                return false;
        }
        walk_by_vectors(&steps, V);
        struct walk w = walk_of(&steps, steps.ndim);
        map_rows<V, U><<<blocks_of(w.count, U * WALK_THREADS), WALK_THREADS, 0, job->stream>>>(
            f, map_cast<Y, A, B, C>(base), w, spread);
        return true;
    }

    static bool dense(const F &f, const struct map_job *job, const struct loops *l,
                      char *const *base)
    {
        int64_t n = l->shape[0], vectors = n / V;
        for (int k = 0; k < job->n; k++)
            if ((uintptr_t)base[k] % (uintptr_t)(V * job->size[k]))
                return false;
        if (vectors)
            map_dense<V, U><<<blocks_of(vectors, U * WALK_THREADS), WALK_THREADS, 0, job->stream>>>(
                f, map_cast<Y, A, B, C>(base), vectors);
        map_tail(f, job, l, base, vectors * V);
        return true;
    }
};

/* The dtype of a C++ type; -1 for an absent operand. */
template <typename T> static constexpr int dtype_of()
{
    return std::is_same_v<T, float>     ? (int)CKPT_F32
           : std::is_same_v<T, bf16>    ? (int)CKPT_BF16
           : std::is_same_v<T, nothing> ? -1
                                        : (int)CKPT_I32;
}

/* One combination of operand types. cuda_map tries its combinations in order and launches the first
 * that matches. */
template <typename Y, typename A = nothing, typename B = nothing, typename C = nothing>
struct map_types {
    template <typename F>
    static bool launch(const F &f, const struct map_job *job, const struct loops *l,
                       char *const *base)
    {
        const int want[] = {dtype_of<Y>(), dtype_of<A>(), dtype_of<B>(), dtype_of<C>()};
        for (int k = 0; k < WALK_OPERANDS; k++)
            if (want[k] != (k < job->n ? (int)job->dtype[k] : -1))
                return false;
        return map_typed<F, Y, A, B, C>::launch(f, job, l, base);
    }
};

/*
 * y = f(x[0], x[1], ...): with vectors if the operand types are one of Types and the layout allows
 * it, else one element at a time.
 */
template <typename... Types, typename F>
static int cuda_map(const struct ckpt_kernel_args *args, const struct ckpt_view *y, int n_in,
                    const struct ckpt_view *x, const F &f)
{
    struct map_job job = {};
    const struct ckpt_desc *desc[WALK_OPERANDS];
    struct loops l;
    job.n = n_in + 1;
    job.stream = stream_of(args);
    for (int k = 0; k < job.n; k++) {
        const struct ckpt_view *v = k ? &x[k - 1] : y;
        desc[k] = &v->desc;
        job.dtype[k] = v->desc.dtype;
        job.size[k] = ckpt_dtype_size(v->desc.dtype);
        job.base[k] = static_cast<char *>(v->data);
    }
    loops_init(&l, job.n, desc);
    walk_pieces(&l, job.base, job.size, [&](const struct loops *part, char *const *base) {
        if (!(Types::launch(f, &job, part, base) || ...))
            map_any_launch(f, &job, part, base);
    });
    return launched();
}

#endif
