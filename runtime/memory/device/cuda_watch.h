/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches copies on the streams of a CUDA device, to notice one that hangs: an event before the
 * copy, after all that its stream waits for, and one after it show when it runs.
 */
#ifndef CKPT_CUDA_WATCH_H
#define CKPT_CUDA_WATCH_H

#include <cuda_runtime_api.h>
#include "memory/device/device.h"

enum { CUDA_WATCHED = 512 }; /* copies of one stream; more are submitted unwatched */

struct cuda_watched {
    cudaEvent_t begin, end;
    int64_t bytes;
};

struct cuda_watch {
    struct {
        struct cuda_watched ring[CUDA_WATCHED];
        bool made;          /* the ring's events exist; made with the first copy */
        int64_t head, tail; /* copies ended; submitted */
        double since;       /* when the copy at head was first seen to run, or 0 */
    } queues[QUEUE_COUNT];
    bool lost; /* a copy hangs: no stream may be waited for any more */
    char reason[160];
};

/* Around a copy on a stream. */
void cuda_watch_begin(struct cuda_watch *w, enum queue q, cudaStream_t stream, int64_t bytes);
void cuda_watch_end(struct cuda_watch *w, enum queue q, cudaStream_t stream);

/* Whether copies are in flight. */
bool cuda_watch_busy(const struct cuda_watch *w);
/* Checks all of them.  Returns w->lost, which is set once a copy has run for more than `deadline`
 * seconds; the sentence is in w->reason. */
bool cuda_watch_poll(struct cuda_watch *w, double deadline);
void cuda_watch_close(struct cuda_watch *w);

#endif
