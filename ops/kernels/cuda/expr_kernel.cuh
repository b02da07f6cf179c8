/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building blocks of the kernels of one expression.  The source for NVRTC consists of
 * expr_math.cuh, expr_pair.cuh, this text, and the text that expr_source.c writes: the program as a
 * function, and two kernels.  A position is a vector of V elements along the last axis, or one
 * element.
 */

/* The memory format of bf16. */
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

/* from + n step in one instruction; the compiler's 64-bit code takes five. */
static __device__ __forceinline__ long long expr_move(long long from, unsigned n, long long step)
{
    long long to;
    asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(to) : "r"(n), "r"((int)step), "l"(from));
    return to;
}

/* Returns the index of position i along an axis; sets i to the position within the axes above. */
static __device__ __forceinline__ unsigned expr_index(const struct expr_args &a, int axis,
                                                      unsigned &i)
{
    if (axis + 1 >= a.ndim)
        return i;
    const unsigned above = expr_divide(i, a.axis[axis]);
    const unsigned here = i - above * a.axis[axis].size;
    i = above;
    return here;
}

/* The offsets of N operands in bytes, and the indices of leaves, at position i. */
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
            const unsigned here = expr_index(a, axis, i);
#pragma unroll
            for (int k = 0; k < N; k++)
                at[k] = expr_move(at[k], here, a.axis[axis].step[k]);
        }
    }
#pragma unroll 1
    for (int axis = a.far ? 0 : 2; axis < a.ndim; axis++) {
        const unsigned here = expr_index(a, axis, i);
#pragma unroll
        for (int k = 0; k < N; k++)
            at[k] += here * a.axis[axis].step[k];
    }
}

/* The same for position i of a row that consists of one axis and begins at `from`. */
template <int N>
static __device__ __forceinline__ void
expr_step(const struct expr_args &a, const long long (&from)[N], unsigned i, long long (&at)[N])
{
#pragma unroll
    for (int k = 0; k < N; k++)
        at[k] = expr_move(from[k], i, a.axis[0].step[k]);
}

/* Loads V contiguous elements of operand k, or one element into all of x if the operand is constant
 * along the axis. */
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

/* The same for bf16, in words of two elements. */
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

/* The bits, as fp32, of the magnitude of a stored value. */
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
    return 0; /* an int32 result never is an operand of an 8-bit product */
}

/* Raises *to to the maximum of a block of 256 threads; all of them must call it: see
 * largest.cuh. */
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

/* The larger, +0 above -0; NaN wins. */
EXPR_FUNCTION expr_larger(float x, float y)
{
    float z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

/* Returns the sum, or the largest, of x over the threads of a block of whole warps, in a fixed
 * order. */
template <bool MAX> static __device__ __forceinline__ float expr_reduce_block(float x)
{
    __shared__ float part[8];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, x, step);
        x = MAX ? expr_larger(x, other) : __fadd_rn(x, other);
    }
    if (blockDim.x == 32)
        return x;
    __syncthreads(); /* the parts before have been read */
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    float all = part[0];
    for (unsigned k = 1; k < blockDim.x / 32; k++)
        all = MAX ? expr_larger(all, part[k]) : __fadd_rn(all, part[k]);
    return all;
}

/* The values of a leaf; step: the difference between consecutive elements. */
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
