/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times on the streams of a CUDA device: how long kernels took, and when streams came somewhere, on
 * the clock of the host, which threads for files note, too.  Events are made when first needed and
 * kept; what they say is read once the streams are idle.
 */
#ifndef CKPT_CUDA_CLOCK_H
#define CKPT_CUDA_CLOCK_H

#include <cuda_runtime_api.h>
#include "core/base.h"

/* A kernel whose time is wanted, or a moment: then only begin is recorded. */
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
    double zero_time; /* of the host, as zero was recorded; 0: it was not, since the last read */
};

/* Around a kernel: *seconds is what it took, after cuda_clock_read.  Return the error, after which
 * nothing is noted. */
cudaError_t cuda_clock_start(struct cuda_clock *k, cudaStream_t stream, double *seconds);
cudaError_t cuda_clock_stop(struct cuda_clock *k, cudaStream_t stream);
/* *when is the time of the host at which the stream came here, after cuda_clock_read; the first one
 * since then should find `idle` so. */
cudaError_t cuda_clock_stamp(struct cuda_clock *k, cudaStream_t idle, cudaStream_t stream,
                             double *when);
/* While the streams are idle. */
void cuda_clock_read(struct cuda_clock *k);
void cuda_clock_close(struct cuda_clock *k);

#endif
