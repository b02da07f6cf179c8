/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena of a CUDA device: one reserved range of addresses, backed from its start by pieces of
 * device memory that are mapped and unmapped whole.
 */
#ifndef CKPT_CUDA_ARENA_H
#define CKPT_CUDA_ARENA_H

#include "core/base.h"

struct cuda_arena;

/* Reserves address space for so many bytes on a device.  Returns 0, CKPT_ENOMEM or CKPT_EDEVICE;
 * the sentence is in error_get(). */
int cuda_arena_open(struct cuda_arena **arena, int device, int64_t reserve);
void cuda_arena_close(struct cuda_arena *arena);

char *cuda_arena_base(const struct cuda_arena *arena);

/* Bytes of device memory behind it. */
int64_t cuda_arena_mapped(const struct cuda_arena *arena);

/* Backs at least the first `bytes` bytes, and gives back pieces that lie wholly beyond them.
 * Returns 0 or CKPT_ENOMEM, having mapped nothing more. */
int cuda_arena_map(struct cuda_arena *arena, int64_t bytes);

#endif
