/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the library kernels of one device share: the handles of cuBLASLt and cuDNN, and the calls
 * that were prepared for a shape (descriptors, chosen algorithm, compiled plan), found again by
 * key.  args->device points at it.  Preparing may allocate and compile; it happens when a kernel
 * runs for the first time, which is before the first step.
 */
#ifndef CKPT_CUDA_LIBS_H
#define CKPT_CUDA_LIBS_H

#include "pins.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_libs;

/* Returns 0 or CKPT_ENOMEM.  The handles themselves are made when first asked for. */
int cuda_libs_open(struct cuda_libs **libs);
void cuda_libs_close(struct cuda_libs *libs);

/* The cublasLtHandle_t or cudnnHandle_t (its stream set), or NULL if the library refuses. */
void *cuda_libs_cublaslt(struct cuda_libs *libs);
void *cuda_libs_cudnn(struct cuda_libs *libs, void *stream);

/* Use the deterministic variant where a library has a faster one that is not. */
void cuda_libs_set_deterministic(struct cuda_libs *libs, bool deterministic);
bool cuda_libs_deterministic(const struct cuda_libs *libs);

/*
 * The algorithms that prepared calls use.  Whoever prepares one takes the pin of its key where it
 * fits, and leaves there what it chose: read pins before the first kernel runs, write them out when
 * all calls are prepared.
 */
struct pins *cuda_libs_pins(struct cuda_libs *libs);

/*
 * While measuring, a call without a fitting pin is prepared by timing what the library proposes on
 * the operands of its first run, instead of trusting the first proposal.  That waits for the device
 * and runs the call many times: a call that adds to its output leaves garbage there.  cold: bytes
 * of the device that are written before each timed run, more than its caches hold, so that operands
 * come from memory; NULL where there is no room.
 */
void cuda_libs_set_measuring(struct cuda_libs *libs, bool measuring, void *cold, int64_t bytes);
bool cuda_libs_measuring(const struct cuda_libs *libs);
void *cuda_libs_cold(const struct cuda_libs *libs, size_t *bytes);

/* The call prepared under this key, or NULL. */
void *cuda_libs_find(const struct cuda_libs *libs, uint64_t key);

/* Keeps a prepared call until the device is closed, when release frees it.  Returns 0 or
 * CKPT_ENOMEM, having released it. */
int cuda_libs_keep(struct cuda_libs *libs, uint64_t key, void *call, void (*release)(void *));

/* Stores the reason why a library refused a call, once until it is read; returns CKPT_EDEVICE. */
int cuda_libs_fail(struct cuda_libs *libs, const char *fmt, ...) CKPT_PRINTF(2, 3);
/* That reason, or "". */
const char *cuda_libs_reason(struct cuda_libs *libs);

#ifdef __cplusplus
}
#endif
#endif
