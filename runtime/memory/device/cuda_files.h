/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queues of a CUDA device that are threads of the host, two for files and one for kernels:
 * streams wait for them, and they wait for streams, while the caller waits for neither.  A stream
 * tells a thread by a function that the driver calls in its turn; a thread tells a stream by a
 * counter in host memory that the stream looks at.
 */
#ifndef CKPT_CUDA_FILES_H
#define CKPT_CUDA_FILES_H

#include <cuda_runtime_api.h>
#include "memory/device/host_queue.h"

struct cuda_files;

/* look: as in struct host_shared.  Returns 0, CKPT_ENOMEM, or CKPT_EDEVICE where streams cannot
 * wait for counters. */
int cuda_files_open(struct cuda_files **f, int device, double deadline, bool (*look)(void *user),
                    void *user);
bool cuda_files_stop(struct cuda_files *f); /* as device_ops.stop */
void cuda_files_close(struct cuda_files *f);

/* Events 0 .. n-1 exist after this.  Only while idle. */
int cuda_files_events(struct cuda_files *f, int32_t n);

struct host_shared *cuda_files_shared(struct cuda_files *f);
struct host_queue *cuda_files_queue(struct cuda_files *f, enum queue q);

/* Hands a record or wait over; q is one of the queues of files. */
void cuda_files_record(struct cuda_files *f, enum queue q, int32_t event);
void cuda_files_wait(struct cuda_files *f, enum queue q, int32_t event);
/* The same for a stream: an event that threads wait for, or that a thread reaches. */
cudaError_t cuda_files_signal(struct cuda_files *f, cudaStream_t stream, int32_t event);
cudaError_t cuda_files_await(struct cuda_files *f, cudaStream_t stream, int32_t event);
/* Whether the last record of an event was handed to a thread; a stream records it now. */
bool cuda_files_recorded(const struct cuda_files *f, int32_t event);
void cuda_files_by_stream(struct cuda_files *f, int32_t event);

/* Looks for an operation without end; after one no stream waits for the threads any more. */
void cuda_files_check(struct cuda_files *f);

#endif
