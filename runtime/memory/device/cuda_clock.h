/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times on the streams of a CUDA device: the durations of kernels, and the times at which streams
 * reach a point, on the host's clock, which the I/O threads use as well.  Events are made when
 * first needed and kept; they are read once the streams are idle.
 */
#ifndef CKPT_CUDA_CLOCK_H
#define CKPT_CUDA_CLOCK_H

#include <cuda_runtime_api.h>
#include "core/base.h"

/* A timed kernel, or a point in time: then only begin is recorded. */
struct cuda_timed {
    cudaEvent_t begin, end;
    double *seconds, *when; /* one of them is NULL */
};

struct cuda_clock {
    struct {
        struct cuda_timed *data;
        int64_t capacity;
    } timed;
    int64_t n, made;
    cudaEvent_t zero; /* NULL: not made */
    double zero_time; /* host time when zero was recorded; 0: not recorded since the last read */
};

/* Around a kernel: cuda_clock_read sets *seconds to its duration.  Return CUDA's error; then
 * nothing is recorded. */
cudaError_t cuda_clock_start(struct cuda_clock *k, cudaStream_t stream, double *seconds);
cudaError_t cuda_clock_stop(struct cuda_clock *k, cudaStream_t stream);
/* cuda_clock_read sets *when to the host time at which the stream got here.  The first call since
 * the last read records the zero of the clock on `idle`, a stream that is idle then. */
cudaError_t cuda_clock_stamp(struct cuda_clock *k, cudaStream_t idle, cudaStream_t stream,
                             double *when);
/* Sets all requested times.  Only while the streams are idle. */
void cuda_clock_read(struct cuda_clock *k);
void cuda_clock_close(struct cuda_clock *k);

#endif
