/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queues of a CUDA device that are host threads, two for file I/O and one for kernels: streams
 * wait for them, and they wait for streams, while the caller waits for neither.  A stream notifies
 * a thread by a host function that the driver calls in stream order; a thread notifies a stream by
 * a counter in host memory that the stream polls.
 */
#ifndef CKPT_CUDA_FILES_H
#define CKPT_CUDA_FILES_H

#include <cuda_runtime_api.h>
#include "memory/device/host_queue.h"

struct cuda_files;

/* poll: as in struct host_shared.  Returns 0, CKPT_ENOMEM, or CKPT_EDEVICE if streams cannot wait
 * for counters. */
int cuda_files_open(struct cuda_files **f, int device, double deadline, bool (*poll)(void *user),
                    void *user);
bool cuda_files_stop(struct cuda_files *f); /* as device_ops.stop */
void cuda_files_close(struct cuda_files *f);

/* Events 0 .. n-1 exist after this.  Only while idle. */
int cuda_files_events(struct cuda_files *f, int32_t n);

struct host_shared *cuda_files_shared(struct cuda_files *f);
struct host_queue *cuda_files_queue(struct cuda_files *f, enum queue q);

/* Submits a record or wait; q is one of the queues that are threads. */
void cuda_files_record(struct cuda_files *f, enum queue q, int32_t event);
void cuda_files_wait(struct cuda_files *f, enum queue q, int32_t event);
/* The same on a stream: signals an event to threads; waits for an event that a thread reaches. */
cudaError_t cuda_files_signal(struct cuda_files *f, cudaStream_t stream, int32_t event);
cudaError_t cuda_files_await(struct cuda_files *f, cudaStream_t stream, int32_t event);
/* Whether a thread's queue recorded the event last; notes that a stream records it now. */
bool cuda_files_is_by_thread(const struct cuda_files *f, int32_t event);
void cuda_files_set_by_stream(struct cuda_files *f, int32_t event);

/* Checks for hung operations; after one, streams no longer wait for the threads. */
void cuda_files_check(struct cuda_files *f);

#endif
