/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernels of one expression are made of.  NVRTC gets this text behind expr_math.cuh and
 * expr_pair.cuh, and behind it what expr_source.c writes: the program as a function, and two
 * kernels.  A position is a vector of V elements along the last axis, or one element.
 */

/* bf16 as it lies in memory. */
struct expr_half {
    unsigned short bits;
};

EXPR_FUNCTION expr_float(struct expr_half x)
{
    return __uint_as_float((unsigned)x.bits << 16);
}

EXPR_FUNCTION expr_float(float x)
{
    return x;
}

EXPR_FUNCTION expr_float(int x)
{
    return (float)x;
}

template <typename T> static __device__ __forceinline__ T expr_to(float x);

template <> __device__ __forceinline__ float expr_to<float>(float x)
{
    return x;
}

template <> __device__ __forceinline__ struct expr_half expr_to<struct expr_half>(float x) {
    struct expr_half h = {expr_bf16_bits(x)};
    return h;
}

template <>
__device__ __forceinline__ int expr_to<int>(float x)
{
    return (int)x; /* saturates; NaN is 0 */
}

template <typename T, int V> struct alignas(sizeof(T) * V) expr_vector {
    T at[V];
};

/* from + n step, in one instruction: what the compiler makes of 64 bits takes five. */
static __device__ __forceinline__ long long expr_move(long long from, unsigned n, long long step)
{
    long long to;
    asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(to) : "r"(n), "r"((int)step), "l"(from));
    return to;
}

/* What position i is along an axis; i becomes the position among the axes above. */
static __device__ __forceinline__ unsigned expr_along(const struct expr_args &a, int axis,
                                                      unsigned &i)
{
    if (axis + 1 >= a.ndim)
        return i;
    const unsigned above = expr_divide(i, a.axis[axis]);
    const unsigned here = i - above * a.axis[axis].size;
    i = above;
    return here;
}

/* Offsets of N operands in bytes, and places of leaves, at a position. */
template <int N>
static __device__ __forceinline__ void expr_seek(const struct expr_args &a, unsigned i,
                                                 long long (&at)[N])
{
#pragma unroll
    for (int k = 0; k < N; k++)
        at[k] = 0;
    if (!a.far) {
#pragma unroll
        for (int axis = 0; axis < 2 && axis < a.ndim; axis++) {
            const unsigned here = expr_along(a, axis, i);
#pragma unroll
            for (int k = 0; k < N; k++)
                at[k] = expr_move(at[k], here, a.axis[axis].step[k]);
        }
    }
#pragma unroll 1
    for (int axis = a.far ? 0 : 2; axis < a.ndim; axis++) {
        const unsigned here = expr_along(a, axis, i);
#pragma unroll
        for (int k = 0; k < N; k++)
            at[k] += here * a.axis[axis].step[k];
    }
}

/* The same at position i of a row that is one axis and begins at `from`. */
template <int N>
static __device__ __forceinline__ void
expr_step(const struct expr_args &a, const long long (&from)[N], unsigned i, long long (&at)[N])
{
#pragma unroll
    for (int k = 0; k < N; k++)
        at[k] = expr_move(from[k], i, a.axis[0].step[k]);
}

/* V elements of operand k side by side, or one of them V times. */
template <typename T, int V>
static __device__ __forceinline__ void expr_load(struct expr_vector<T, V> &x,
                                                 const struct expr_args &a, int k, long long at)
{
    const T *p = reinterpret_cast<const T *>(static_cast<const char *>(a.data[k]) + at);
    if (a.spread >> k & 1) {
        T one = *p;
#pragma unroll
        for (int j = 0; j < V; j++)
            x.at[j] = one;
    } else {
        x = *reinterpret_cast<const struct expr_vector<T, V> *>(p);
    }
}

/* The same of bf16, as words of two. */
template <int W>
static __device__ __forceinline__ void expr_load(struct expr_vector<unsigned, W> &x,
                                                 const struct expr_args &a, int k, long long at)
{
    const char *place = static_cast<const char *>(a.data[k]) + at;
    const unsigned short *p = reinterpret_cast<const unsigned short *>(place);
    if (a.spread >> k & 1) {
        const unsigned one = *p * 0x10001u;
#pragma unroll
        for (int j = 0; j < W; j++)
            x.at[j] = one;
    } else {
        x = *reinterpret_cast<const struct expr_vector<unsigned, W> *>(p);
    }
}

template <typename T, int V>
static __device__ __forceinline__ void expr_store(const struct expr_vector<T, V> &y,
                                                  const struct expr_args &a, int k, long long at)
{
    char *p = static_cast<char *>(a.data[k]) + at;
    *reinterpret_cast<struct expr_vector<T, V> *>(p) = y;
}

/* The bits of a magnitude as it was written, as those of an fp32. */
static __device__ __forceinline__ unsigned expr_magnitude(struct expr_half x)
{
    return (x.bits & 0x7fffu) << 16;
}

static __device__ __forceinline__ unsigned expr_magnitude(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

static __device__ __forceinline__ unsigned expr_magnitude(int)
{
    return 0; /* no operand of an 8-bit product */
}

/* Raises *to to the largest of a block of 256 threads, all of which come here: see largest.cuh. */
static __device__ __forceinline__ void expr_leave_largest(unsigned most, unsigned *to)
{
    __shared__ unsigned part[8];
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        most = max(most, __shfl_xor_sync(0xffffffffu, most, step));
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = most;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 1; k < 8; k++)
            most = max(most, part[k]);
        if (most > __ldcg(to))
            atomicMax(to, most);
    }
}

/* y becomes scale times the sum over the threads of a block, of whole warps, in a fixed order. */
static __device__ __forceinline__ void expr_sum_block(float sum, float scale, float *y)
{
    __shared__ float part[8];
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, step));
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = part[0];
        for (unsigned k = 1; k < blockDim.x / 32; k++)
            total = __fadd_rn(total, part[k]);
        *y = __fmul_rn(scale, total);
    }
}

/* Values of a leaf; step: from element to element. */
template <int V>
static __device__ __forceinline__ void expr_indices(float (&x)[V], long long at, long long step)
{
#pragma unroll
    for (int j = 0; j < V; j++)
        x[j] = (float)(at + j * step);
}

template <int V>
static __device__ __forceinline__ void expr_uniforms(float (&x)[V], const struct expr_args &a,
                                                     long long at, long long step, unsigned stream)
{
    if (V % 4 == 0 && a.aligned) {
#pragma unroll
        for (int j = 0; j < V; j += 4) {
            struct expr_words w = expr_draw(a, (a.first + at + j) >> 2, stream);
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[(j + i) % V] = expr_unit(w.at[i]);
        }
    } else {
#pragma unroll
        for (int j = 0; j < V; j++)
            x[j] = expr_uniform(a, at + j * step, stream);
    }
}
