/* SPDX-License-Identifier: Apache-2.0 */
/* cache_append: appends the rows of a step to a cache (ckpt_cache_append). */
#ifndef CKPT_CACHE_H
#define CKPT_CACHE_H

#include "ckpt_op.h"

/* Operands of cache_append: the cache [B, S, ...], the rows [B, T, ...], the positions i32 [B]. */
enum { CACHE, CACHE_ROWS, CACHE_AT };

#endif
