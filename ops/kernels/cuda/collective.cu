/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives on a GPU, which are passed on to the communicator, and flatten.  A kernel before and
 * after each collective records in host memory which collective the device is in; a recorded step
 * (CUDA graph) gives no other sign of it.
 */
#include "collective.h"
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/kernels.h"

#define THREADS 256
#define EACH    4                    /* elements that a thread copies at once */
#define PIECE   (THREADS * EACH * 4) /* elements that a thread block copies */

/* ---- collectives ----------------------------------------------------------------------------- */

/* Only one stream runs this kernel, by one thread, so the count needs no atomics. */
static __global__ void note_kernel(volatile int32_t *noted, int32_t op)
{
    if (!op)
        noted[NOTED_LAST] = noted[NOTED_OP];
    noted[NOTED_OP] = op;
    noted[NOTED_COUNT] = noted[NOTED_COUNT] + 1;
    __threadfence_system();
}

static void note(const struct ops_ranks *ranks, const struct ckpt_kernel_args *a, int32_t op)
{
    if (ranks->noted)
        note_kernel<<<1, 1, 0, stream_of(a)>>>(ranks->noted, op);
}

static int run(enum collective kind, const struct ckpt_kernel_args *a)
{
    struct ops_ranks *ranks = static_cast<struct ops_ranks *>(a->device);
    if (!ranks)
        return CKPT_EDEVICE;
    note(ranks, a, a->op + 1);
    int rc = ranks->run(ranks, kind, a);
    if (rc)
        return rc;
    note(ranks, a, 0);
    return launched();
}

int cuda_all_gather(const struct ckpt_kernel_args *a)
{
    return run(COLLECTIVE_ALL_GATHER, a);
}

int cuda_reduce_scatter(const struct ckpt_kernel_args *a)
{
    return run(COLLECTIVE_REDUCE_SCATTER, a);
}

int cuda_all_reduce(const struct ckpt_kernel_args *a)
{
    return run(COLLECTIVE_ALL_REDUCE, a);
}

int cuda_all_to_all(const struct ckpt_kernel_args *a)
{
    return run(COLLECTIVE_ALL_TO_ALL, a);
}

int cuda_send(const struct ckpt_kernel_args *a)
{
    cudaMemsetAsync(a->out[0].data, 0, sizeof(float), stream_of(a));
    return run(COLLECTIVE_SEND, a);
}

int cuda_receive(const struct ckpt_kernel_args *a)
{
    return run(COLLECTIVE_RECEIVE, a);
}

/* ---- flatten ----------------------------------------------------------------------------------
 */

/* An operand and its place in the output.  The gap before it, from the end of the previous operand,
 * is cleared. */
struct part {
    const void *from;
    int64_t before, offset, numel;
    uint32_t first; /* its first thread block */
    bool narrow;    /* bf16 */
};

struct parts {
    struct part at[FLATTEN_PARTS + 1]; /* an empty one at the very end follows the last operand */
    int n;
};

template <typename T, typename To>
static __device__ __forceinline__ void move_piece(To *to, const T *from, int64_t n)
{
    bool wide = (reinterpret_cast<uintptr_t>(from) & (EACH * sizeof(T) - 1)) == 0 &&
                (reinterpret_cast<uintptr_t>(to) & (EACH * sizeof(To) - 1)) == 0;
    int64_t whole = wide ? n / EACH * EACH : 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x * EACH; i < whole; i += THREADS * EACH) {
        float x[EACH];
        load_floats<T, EACH>(x, from + i);
        store_floats<To, EACH>(to + i, x);
    }
    for (int64_t i = whole + threadIdx.x; i < n; i += THREADS)
        to[i] = from_float<To>(to_float(from[i]));
}

/* The grid has one thread block per piece of every operand, at least one for each. */
template <typename To>
static __global__ void __launch_bounds__(THREADS)
    flatten_kernel(To *out, const __grid_constant__ struct parts parts)
{
    int k = 0;
    while (k + 1 < parts.n && parts.at[k + 1].first <= blockIdx.x)
        k++;
    const struct part &p = parts.at[k];
    int64_t begin = (int64_t)(blockIdx.x - p.first) * PIECE;
    if (begin == 0)
        for (int64_t i = p.before + threadIdx.x; i < p.offset; i += THREADS)
            out[i] = from_float<To>(0.f);
    int64_t n = min((int64_t)PIECE, p.numel - begin);
    To *to = out + p.offset + begin;
    if (n <= 0)
        return;
    if (p.narrow)
        move_piece(to, static_cast<const bf16 *>(p.from) + begin, n);
    else
        move_piece(to, static_cast<const float *>(p.from) + begin, n);
}

int cuda_flatten(const struct ckpt_kernel_args *a)
{
    const struct flatten_attr *attr = static_cast<const struct flatten_attr *>(a->attr);
    struct parts parts = {};
    int64_t end = 0;
    uint32_t blocks = 0;
    for (; parts.n <= a->n_in; parts.n++) {
        struct part *p = &parts.at[parts.n];
        bool last = parts.n == a->n_in;
        p->first = blocks;
        p->before = end;
        p->offset = last ? attr->numel : attr->offset[parts.n];
        if (!last) {
            const struct ckpt_view *v = &a->in[parts.n];
            p->from = v->data;
            p->narrow = v->desc.dtype == CKPT_BF16;
            p->numel = 1;
            for (int i = 0; i < v->desc.ndim; i++)
                p->numel *= v->desc.shape[i];
        }
        end = p->offset + p->numel;
        blocks += (uint32_t)(p->numel > PIECE ? (p->numel + PIECE - 1) / PIECE : 1);
    }
    if (attr->dtype == CKPT_BF16)
        flatten_kernel<<<blocks, THREADS, 0, stream_of(a)>>>(static_cast<bf16 *>(a->out[0].data),
                                                             parts);
    else
        flatten_kernel<<<blocks, THREADS, 0, stream_of(a)>>>(static_cast<float *>(a->out[0].data),
                                                             parts);
    return launched();
}

/* ---- requests -------------------------------------------------------------------------------- */

static __global__ void requests_kernel(float *out, const struct ckpt_run *run)
{
    out[threadIdx.x] = run->request[threadIdx.x];
}

int cuda_requests(const struct ckpt_kernel_args *a)
{
    requests_kernel<<<1, CKPT_REQUESTS, 0, stream_of(a)>>>(static_cast<float *>(a->out[0].data),
                                                           a->run_device);
    return launched();
}

/* ---- waits ----------------------------------------------------------------------------------- */

static __global__ void stopwatch_kernel(volatile int64_t *waited, bool ends)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (ends)
        waited[0] = waited[0] + (int64_t)now - waited[1];
    else
        waited[1] = (int64_t)now;
}

int cuda_stopwatch(const struct ckpt_kernel_args *a)
{
    int64_t *waited = static_cast<int64_t *>(const_cast<void *>(a->attr));
    stopwatch_kernel<<<1, 1, 0, stream_of(a)>>>(waited, a->accumulate);
    return launched();
}
