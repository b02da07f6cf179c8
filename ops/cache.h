/* SPDX-License-Identifier: Apache-2.0 */
/* cache_append: appends the rows of a step to a cache (ckpt_cache_append). */
#ifndef CKPT_CACHE_H
#define CKPT_CACHE_H

#include "ckpt_op.h"

/* Operands of cache_append: the cache [B, S, ...], the rows [B, T, ...], the positions i32 [B]. */
enum { CACHE, CACHE_ROWS, CACHE_AT };

extern const struct ckpt_op_def op_cache_append;

#ifdef __cplusplus
extern "C" {
#endif

int cpu_cache_append(const struct ckpt_kernel_args *a);
int cuda_cache_append(const struct ckpt_kernel_args *a);

#ifdef __cplusplus
}
#endif

#endif
