/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State shared by the library kernels of one device: the handles of cuBLASLt and cuDNN, and the
 * calls prepared for a shape (descriptors, selected algorithm, compiled plan), cached by key.
 * args->device points to it.  Preparing a call may allocate and compile; it happens when a kernel
 * first runs, which is before the first step.
 */
#ifndef CKPT_CUDA_LIBS_H
#define CKPT_CUDA_LIBS_H

#include "algorithms.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_libs;

/* Returns 0 or CKPT_ENOMEM.  The library handles are created on first use. */
int cuda_libs_open(struct cuda_libs **libs);
void cuda_libs_close(struct cuda_libs *libs);

/* Return the cublasLtHandle_t or cudnnHandle_t (with its stream set), or NULL if the library
 * fails. */
void *cuda_libs_cublaslt(struct cuda_libs *libs);
void *cuda_libs_cudnn(struct cuda_libs *libs, void *stream);

/* May faster kernels that add in no fixed order take the place of ordered ones? */
void cuda_libs_set_unordered(struct cuda_libs *libs, bool unordered);
bool cuda_libs_unordered(const struct cuda_libs *libs);

/*
 * The algorithms of prepared calls.  Preparing a call uses the recorded one of its key if it is
 * valid, and records the selected algorithm there.  Read them before the first kernel runs; write
 * them when all calls are prepared.
 */
struct algorithms *cuda_libs_algorithms(struct cuda_libs *libs);

/*
 * While measuring, a call without a recorded one is prepared by timing the library's proposals on
 * the operands of its first run, instead of using the first proposal.  This waits for the device
 * and runs the call many times, so a call that adds to its output leaves garbage there. cold:
 * device memory, larger than the caches, that is written before each timed run so that operands
 * come from memory; NULL if there is no room.
 */
void cuda_libs_set_measuring(struct cuda_libs *libs, bool measuring, void *cold, int64_t bytes);
bool cuda_libs_measuring(const struct cuda_libs *libs);
void *cuda_libs_cold(const struct cuda_libs *libs, size_t *bytes);

/* Returns the call prepared under this key, or NULL. */
void *cuda_libs_find(const struct cuda_libs *libs, uint64_t key);

/* Stores a prepared call until the device is closed, when `release` frees it.  Returns 0, or
 * CKPT_ENOMEM after releasing it. */
int cuda_libs_keep(struct cuda_libs *libs, uint64_t key, void *call, void (*release)(void *));

/* Records why a library refused a call; the first reason is kept.  Returns CKPT_EDEVICE. */
int cuda_libs_fail(struct cuda_libs *libs, const char *fmt, ...) CKPT_PRINTF(2, 3);
/* Returns that reason, or "". */
const char *cuda_libs_reason(struct cuda_libs *libs);

#ifdef __cplusplus
}
#endif
#endif
