/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena of a CUDA device: one reserved address range; its first bytes are backed by pieces of
 * device memory, each mapped and unmapped as a whole.
 */
#ifndef CKPT_CUDA_ARENA_H
#define CKPT_CUDA_ARENA_H

#include "core/base.h"

struct cuda_arena;

/* Reserves address space of `reserve` bytes on a device.  Returns 0, CKPT_ENOMEM or CKPT_EDEVICE;
 * the sentence says why. */
int cuda_arena_open(struct cuda_arena **arena, int device, int64_t reserve);
void cuda_arena_close(struct cuda_arena *arena);

char *cuda_arena_base(const struct cuda_arena *arena);

/* Bytes of device memory that back the arena. */
int64_t cuda_arena_mapped(const struct cuda_arena *arena);

/* Backs at least the first `bytes` bytes, and frees pieces that lie wholly beyond them.  Returns 0,
 * or CKPT_ENOMEM without having mapped anything more. */
int cuda_arena_map(struct cuda_arena *arena, int64_t bytes);

#endif
