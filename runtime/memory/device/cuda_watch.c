/* SPDX-License-Identifier: Apache-2.0 */
/* Detects copies that hang: see cuda_watch.h. */
#include "memory/device/cuda_watch.h"

static void make_event(cudaEvent_t *event)
{
    if (cudaEventCreateWithFlags(event, cudaEventDisableTiming) == cudaSuccess)
        return;
    *event = NULL;
    cudaGetLastError();
}

/* Clears CUDA's "not ready", so that it is not taken for an error of the next call. */
static bool is_ready(cudaEvent_t event)
{
    bool ready = cudaEventQuery(event) != cudaErrorNotReady;
    if (!ready)
        cudaGetLastError();
    return ready;
}

/* Makes all events of a queue at once, so that later steps allocate nothing. */
static void make_events(struct cuda_watch *w, int q)
{
    for (int i = 0; i < CUDA_WATCHED; i++) {
        make_event(&w->queues[q].ring[i].begin);
        make_event(&w->queues[q].ring[i].end);
    }
    w->queues[q].made = true;
}

/* Removes copies that have ended from the ring. */
static void drop_ended(struct cuda_watch *w, int q)
{
    while (w->queues[q].head < w->queues[q].tail &&
           is_ready(w->queues[q].ring[w->queues[q].head % CUDA_WATCHED].end)) {
        w->queues[q].head++;
        w->queues[q].since = 0;
    }
}

void cuda_watch_begin(struct cuda_watch *w, enum queue q, cudaStream_t stream, int64_t bytes)
{
    if (!w->queues[q].made)
        make_events(w, q);
    if (w->queues[q].tail - w->queues[q].head == CUDA_WATCHED)
        drop_ended(w, q);
    if (w->queues[q].tail - w->queues[q].head == CUDA_WATCHED)
        return;
    struct cuda_watched *c = &w->queues[q].ring[w->queues[q].tail % CUDA_WATCHED];
    bool begun = c->begin && c->end && cudaEventRecord(c->begin, stream) == cudaSuccess;
    c->bytes = begun ? bytes : 0;
}

void cuda_watch_end(struct cuda_watch *w, enum queue q, cudaStream_t stream)
{
    struct cuda_watched *c = &w->queues[q].ring[w->queues[q].tail % CUDA_WATCHED];
    if (w->queues[q].tail - w->queues[q].head < CUDA_WATCHED && c->bytes &&
        cudaEventRecord(c->end, stream) == cudaSuccess)
        w->queues[q].tail++;
}

bool cuda_watch_busy(const struct cuda_watch *w)
{
    bool busy = false;
    for (int q = 0; q < QUEUE_COUNT; q++)
        busy |= w->queues[q].head < w->queues[q].tail;
    return busy;
}

static void poll_queue(struct cuda_watch *w, int q, double deadline)
{
    drop_ended(w, q);
    if (w->queues[q].head == w->queues[q].tail)
        return;
    const struct cuda_watched *c = &w->queues[q].ring[w->queues[q].head % CUDA_WATCHED];
    double now = clock_seconds();
    if (w->queues[q].since == 0 && is_ready(c->begin))
        w->queues[q].since = now;
    if (w->queues[q].since == 0 || now - w->queues[q].since < deadline)
        return;
    w->lost = true;
    snprintf(w->reason, sizeof w->reason, "%s %s the device: not finished within %g s",
             human_bytes(c->bytes), q == QUEUE_COPY_IN || q == QUEUE_FILE_IN ? "to" : "from",
             deadline);
}

bool cuda_watch_poll(struct cuda_watch *w, double deadline)
{
    for (int q = 0; q < QUEUE_COUNT && !w->lost; q++)
        poll_queue(w, q, deadline);
    return w->lost;
}

void cuda_watch_close(struct cuda_watch *w)
{
    for (int q = 0; q < QUEUE_COUNT; q++) {
        for (int i = 0; i < CUDA_WATCHED; i++) {
            if (w->queues[q].ring[i].begin)
                cudaEventDestroy(w->queues[q].ring[i].begin);
            if (w->queues[q].ring[i].end)
                cudaEventDestroy(w->queues[q].ring[i].end);
        }
    }
}
