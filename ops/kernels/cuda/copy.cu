/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy, pad, concat and fill.  Bits are copied unchanged, in the largest unit that both views
 * allow, from 16 bytes down to one element.  If the views are dense along different axes, blocks of
 * 64 x 64 elements are transposed in shared memory, so that reads and writes both are coalesced.
 */
#include "attr.h"
#include "kernels/cuda/copy.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/walk.cuh"
#include "ops.h"

#define SIDE 64 /* of a transposed block */
#define EACH 4  /* units per thread */

/* Copies units of T along a walk whose steps are in elements of `element` bytes; EACH loads are in
 * flight. */
template <typename T>
static __global__ void __launch_bounds__(WALK_THREADS)
    copy_units(char *y, const char *x, const __grid_constant__ struct walk w, int element)
{
    uint32_t first = blockIdx.x * (EACH * WALK_THREADS) + threadIdx.x;
    int64_t at[EACH][2];
    T unit[EACH];
#pragma unroll
    for (int u = 0; u < EACH; u++) {
        uint32_t i = first + u * WALK_THREADS;
        if (i < w.count) {
            walk_seek(w, i, at[u]);
            unit[u] = *reinterpret_cast<const T *>(x + at[u][1] * element);
        }
    }
#pragma unroll
    for (int u = 0; u < EACH; u++)
        if (first + u * WALK_THREADS < w.count)
            *reinterpret_cast<T *>(y + at[u][0] * element) = unit[u];
}

template <typename T>
static __global__ void __launch_bounds__(WALK_THREADS)
    fill_units(char *y, T value, const __grid_constant__ struct walk w, int element)
{
    uint32_t first = blockIdx.x * (EACH * WALK_THREADS) + threadIdx.x;
#pragma unroll
    for (int u = 0; u < EACH; u++) {
        uint32_t i = first + u * WALK_THREADS;
        int64_t at[1];
        if (i < w.count) {
            walk_seek(w, i, at);
            *reinterpret_cast<T *>(y + at[0] * element) = value;
        }
    }
}

/* A transposition of the last two axes. */
struct transposition {
    uint32_t rows, cols;    /* y is dense along cols, x along rows */
    uint32_t down, across;  /* blocks of SIDE along rows and columns */
    int64_t y_step, x_step; /* elements of y per row, of x per column */
};

/*
 * One thread block per block of elements: 32 lanes x 8 lines, along the rows for reads and along
 * the columns for writes.  Rows of the tile are padded by 4 bytes to avoid bank conflicts.
 */
template <typename T>
static __global__ void __launch_bounds__(WALK_THREADS)
    copy_transposed(T *y, const T *x, const __grid_constant__ struct walk outer,
                    struct transposition t)
{
    __shared__ T tile[SIDE][SIDE + 4 / sizeof(T)];
    uint32_t lane = threadIdx.x % 32, line = threadIdx.x / 32;
    uint32_t row = blockIdx.x % t.down * SIDE, rest = blockIdx.x / t.down;
    uint32_t col = rest % t.across * SIDE;
    int64_t at[2];
    walk_seek(outer, rest / t.across, at);
    const T *from = x + at[1] + row + (int64_t)col * t.x_step;
    T *to = y + at[0] + (int64_t)row * t.y_step + col;
    uint32_t rows = min(SIDE, t.rows - row), cols = min(SIDE, t.cols - col);
#pragma unroll
    for (uint32_t j = line; j < SIDE; j += 8)
#pragma unroll
        for (uint32_t i = lane; i < SIDE; i += 32)
            if (i < rows && j < cols)
                tile[j][i] = from[i + (int64_t)j * t.x_step];
    __syncthreads();
#pragma unroll
    for (uint32_t i = line; i < SIDE; i += 8)
#pragma unroll
        for (uint32_t j = lane; j < SIDE; j += 32)
            if (i < rows && j < cols)
                to[(int64_t)i * t.y_step + j] = tile[j][i];
}

/* ---- host ----------------------------------------------------------------------------------- */

/* The largest unit, in elements, in which every operand of the loops can be accessed. */
static int64_t unit_of(const struct loops *l, char *const *base, int64_t element)
{
    for (int64_t n = 16 / element; n > 1; n /= 2) {
        bool fits = true;
        for (int k = 0; k < l->n; k++)
            fits = fits && walk_runs(l, k, base[k], element, n);
        if (fits)
            return n;
    }
    return 1;
}

template <typename T>
static void launch_units(cudaStream_t stream, const struct walk *w, char *const *base, int element)
{
    copy_units<T><<<blocks_of(w->count, EACH * WALK_THREADS), WALK_THREADS, 0, stream>>>(
        base[0], base[1], *w, element);
}

static void copy_straight(cudaStream_t stream, struct loops l, char *const *base, int64_t element)
{
    int64_t n = unit_of(&l, base, element);
    walk_by_vectors(&l, n);
    struct walk w = walk_of(&l, l.ndim);
    if (n * element == 16)
        launch_units<uint4>(stream, &w, base, (int)element);
    else if (n * element == 8)
        launch_units<uint2>(stream, &w, base, (int)element);
    else if (n * element == 4)
        launch_units<uint32_t>(stream, &w, base, (int)element);
    else
        launch_units<uint16_t>(stream, &w, base, (int)element);
}

template <typename T>
static void launch_transposed(cudaStream_t stream, const struct loops *l, char *const *base)
{
    int p = l->ndim - 2, q = l->ndim - 1;
    struct transposition t = {};
    t.rows = (uint32_t)l->shape[p];
    t.cols = (uint32_t)l->shape[q];
    t.down = blocks_of(t.rows, SIDE);
    t.across = blocks_of(t.cols, SIDE);
    t.y_step = l->stride[0][p];
    t.x_step = l->stride[1][q];
    struct walk outer = walk_of(l, p);
    copy_transposed<T><<<outer.count * t.down * t.across, WALK_THREADS, 0, stream>>>(
        reinterpret_cast<T *>(base[0]), reinterpret_cast<const T *>(base[1]), outer, t);
}

/* Is the copy a transposition, of blocks wide enough to be worth it? */
static bool worth_transposing(const struct loops *l, int axis)
{
    int last = l->ndim - 1;
    return axis >= 0 && axis != last && l->stride[0][last] == 1 && l->shape[axis] >= 8 &&
           l->shape[last] >= 8;
}

static void copy_piece(cudaStream_t stream, const struct loops *l, char *const *base,
                       int64_t element)
{
    int axis = loops_dense_axis(l);
    if (!worth_transposing(l, axis)) {
        copy_straight(stream, *l, base, element);
        return;
    }
    struct loops moved = *l;
    loops_move_axis(&moved, axis);
    if (element == 4)
        launch_transposed<uint32_t>(stream, &moved, base);
    else
        launch_transposed<uint16_t>(stream, &moved, base);
}

int cuda_copy_view(const struct ckpt_kernel_args *a, const struct ckpt_view *y,
                   const struct ckpt_view *x)
{
    const struct ckpt_desc *const desc[] = {&y->desc, &x->desc};
    char *const base[] = {static_cast<char *>(y->data), static_cast<char *>(x->data)};
    int64_t element = ckpt_dtype_size(y->desc.dtype);
    const int64_t size[] = {element, element};
    struct loops l;
    if (desc_numel(&y->desc) == 0)
        return CKPT_OK;
    loops_init(&l, 2, desc);
    walk_pieces(&l, base, size, [&](const struct loops *part, char *const *at) {
        copy_piece(stream_of(a), part, at, element);
    });
    return launched();
}

/* The bits of a value of dtype; those of 16-bit types are repeated in both halves. */
static uint32_t bits_of(float value, enum ckpt_dtype dtype)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == CKPT_I32)
        return (uint32_t)(int32_t)value;
    if (dtype == CKPT_F32)
        return bits;
    if ((bits & 0x7fffffff) > 0x7f800000)
        return 0x7fff7fff;
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) * 0x10001;
}

static void fill_piece(cudaStream_t stream, struct loops l, char *const *base, uint32_t bits,
                       int64_t element)
{
    int64_t n = unit_of(&l, base, element);
    if (n * element < 16)
        n = 1;
    walk_by_vectors(&l, n);
    struct walk w = walk_of(&l, l.ndim);
    unsigned blocks = blocks_of(w.count, EACH * WALK_THREADS);
    int size = (int)element;
    if (n * element == 16)
        fill_units<<<blocks, WALK_THREADS, 0, stream>>>(base[0], make_uint4(bits, bits, bits, bits),
                                                        w, size);
    else if (element == 4)
        fill_units<<<blocks, WALK_THREADS, 0, stream>>>(base[0], bits, w, size);
    else
        fill_units<<<blocks, WALK_THREADS, 0, stream>>>(base[0], (uint16_t)bits, w, size);
}

int cuda_fill_view(const struct ckpt_kernel_args *a, const struct ckpt_view *y, float value)
{
    const struct ckpt_desc *const desc[] = {&y->desc};
    char *const base[] = {static_cast<char *>(y->data)};
    const int64_t element = ckpt_dtype_size(y->desc.dtype);
    struct loops l;
    if (desc_numel(&y->desc) == 0)
        return CKPT_OK;
    loops_init(&l, 1, desc);
    walk_pieces(&l, base, &element, [&](const struct loops *part, char *const *at) {
        fill_piece(stream_of(a), *part, at, bits_of(value, y->desc.dtype), element);
    });
    return launched();
}

int cuda_copy(const struct ckpt_kernel_args *a)
{
    return cuda_copy_view(a, &a->out[0], &a->in[0]);
}

int cuda_fill(const struct ckpt_kernel_args *a)
{
    return cuda_fill_view(a, &a->out[0], static_cast<const struct make_attr *>(a->attr)->value);
}

/* The part [begin, end) of v along an axis. */
static struct ckpt_view band(const struct ckpt_view *v, int axis, int64_t begin, int64_t end)
{
    struct ckpt_view part = *v;
    int64_t move = begin * v->desc.stride[axis] * ckpt_dtype_size(v->desc.dtype);
    part.data = static_cast<char *>(v->data) + move;
    part.desc.shape[axis] = end - begin;
    return part;
}

int cuda_pad(const struct ckpt_kernel_args *a)
{
    const struct pad_attr *attr = static_cast<const struct pad_attr *>(a->attr);
    int64_t end = attr->begin + a->in[0].desc.shape[attr->axis];
    struct ckpt_view before = band(&a->out[0], attr->axis, 0, attr->begin);
    struct ckpt_view middle = band(&a->out[0], attr->axis, attr->begin, end);
    struct ckpt_view after = band(&a->out[0], attr->axis, end, attr->size);
    int rc = cuda_fill_view(a, &before, 0.f);
    if (!rc)
        rc = cuda_copy_view(a, &middle, &a->in[0]);
    return rc ? rc : cuda_fill_view(a, &after, 0.f);
}

int cuda_concat(const struct ckpt_kernel_args *a)
{
    int axis = *static_cast<const int *>(a->attr), rc = CKPT_OK;
    int64_t at = 0;
    for (int i = 0; i < a->n_in && !rc; i++) {
        int64_t size = a->in[i].desc.shape[axis];
        struct ckpt_view part = band(&a->out[0], axis, at, at + size);
        rc = cuda_copy_view(a, &part, &a->in[i]);
        at += size;
    }
    return rc;
}
