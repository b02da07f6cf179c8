/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies under way on the streams of a CUDA device, to notice one that has no end: an event before
 * it, behind all that its stream waits for, and one behind it tell when it runs.
 */
#ifndef CKPT_CUDA_WATCH_H
#define CKPT_CUDA_WATCH_H

#include <cuda_runtime_api.h>
#include "memory/device/device.h"

enum { CUDA_WATCHED = 512 }; /* copies of one stream; more are handed over unwatched */

struct cuda_watched {
    cudaEvent_t begin, end;
    int64_t bytes;
};

struct cuda_watch {
    struct {
        struct cuda_watched ring[CUDA_WATCHED];
        bool made;          /* the events of the ring, with the first copy */
        int64_t head, tail; /* ended, handed over */
        double since;       /* when the one at head was first seen to run, or 0 */
    } queues[QUEUE_COUNT];
    bool lost; /* a copy had no end: no stream may be waited for any more */
    char reason[160];
};

/* Around a copy on a stream. */
void cuda_watch_begin(struct cuda_watch *w, enum queue q, cudaStream_t stream, int64_t bytes);
void cuda_watch_end(struct cuda_watch *w, enum queue q, cudaStream_t stream);

/* Whether copies are under way. */
bool cuda_watch_busy(const struct cuda_watch *w);
/* Looks at all of them.  Returns w->lost, which is set once one has run for more than so many
 * seconds; the sentence is in w->reason. */
bool cuda_watch_look(struct cuda_watch *w, double deadline);
void cuda_watch_close(struct cuda_watch *w);

#endif
