/* SPDX-License-Identifier: Apache-2.0 */
/* Times on streams: see cuda_clock.h. */
#include <stdlib.h>
#include "memory/device/cuda_clock.h"

static cudaError_t make_one_more(struct cuda_clock *k)
{
    if (ARRAY_RESERVE(&k->timed, k->n))
        return cudaErrorMemoryAllocation;
    struct cuda_timed *t = &k->timed.data[k->n];
    cudaError_t e = cudaEventCreate(&t->begin);
    if (e != cudaSuccess)
        return e;
    e = cudaEventCreate(&t->end);
    if (e != cudaSuccess)
        cudaEventDestroy(t->begin);
    else
        k->made++;
    return e;
}

static cudaError_t begin(struct cuda_clock *k, cudaStream_t stream, double *seconds, double *when)
{
    cudaError_t e = k->n < k->made ? cudaSuccess : make_one_more(k);
    if (e == cudaSuccess)
        e = cudaEventRecord(k->timed.data[k->n].begin, stream);
    if (e != cudaSuccess)
        return e;
    k->timed.data[k->n].seconds = seconds;
    k->timed.data[k->n++].when = when;
    return e;
}

cudaError_t cuda_clock_start(struct cuda_clock *k, cudaStream_t stream, double *seconds)
{
    return begin(k, stream, seconds, NULL);
}

cudaError_t cuda_clock_stop(struct cuda_clock *k, cudaStream_t stream)
{
    return cudaEventRecord(k->timed.data[k->n - 1].end, stream);
}

static cudaError_t set_zero(struct cuda_clock *k, cudaStream_t stream)
{
    cudaError_t e = k->zero ? cudaSuccess : cudaEventCreate(&k->zero);
    if (e == cudaSuccess)
        e = cudaEventRecord(k->zero, stream);
    if (e == cudaSuccess)
        k->zero_time = clock_seconds();
    return e;
}

cudaError_t cuda_clock_stamp(struct cuda_clock *k, cudaStream_t idle, cudaStream_t stream,
                             double *when)
{
    cudaError_t e = k->zero_time > 0 ? cudaSuccess : set_zero(k, idle);
    return e == cudaSuccess ? begin(k, stream, NULL, when) : e;
}

void cuda_clock_read(struct cuda_clock *k)
{
    for (int64_t i = 0; i < k->n; i++) {
        const struct cuda_timed *t = &k->timed.data[i];
        float ms = 0;
        if (t->when && cudaEventElapsedTime(&ms, k->zero, t->begin) == cudaSuccess)
            *t->when = k->zero_time + (double)ms * 1e-3;
        if (t->seconds && cudaEventElapsedTime(&ms, t->begin, t->end) == cudaSuccess)
            *t->seconds = (double)ms * 1e-3;
    }
    k->n = 0;
    k->zero_time = 0;
}

void cuda_clock_close(struct cuda_clock *k)
{
    if (k->zero)
        cudaEventDestroy(k->zero);
    for (int64_t i = 0; i < k->made; i++) {
        cudaEventDestroy(k->timed.data[i].begin);
        cudaEventDestroy(k->timed.data[i].end);
    }
    free(k->timed.data);
}
