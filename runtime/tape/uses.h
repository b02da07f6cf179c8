/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses: which ops read each tensor, and which tensors are on each storage.  The op that writes a
 * tensor is in the tensor (struct tensor).  The calls that record on a tape or change it keep uses
 * current, so a pass makes no lists of its own; the verifier compares them with the ops.
 *
 * Reads of a tensor are a list through the operands of ops, in the order of the ops.
 */
#ifndef CKPT_TAPE_USES_H
#define CKPT_TAPE_USES_H

#include "core/base.h"

/* An entry of tape.operands, if it is an operand that an op reads. */
struct use {
    int32_t op;
    int32_t before, next; /* entries that read the same tensor, or -1 */
};

struct tensor_uses {
    int32_t first, last; /* entries that read it, or -1 */
    int32_t n;           /* number of them */
    int32_t older;       /* the next tensor on its storage, or 0 */
};

struct uses {
    struct {
        struct use *data; /* per entry of tape.operands */
        int64_t capacity;
    } reads;
    struct {
        struct tensor_uses *data; /* per tensor */
        int64_t capacity;
    } of;
    struct {
        int32_t *data; /* per storage: the tensor that came to it last, or 0 */
        int64_t capacity;
    } on;
};

/* Makes room for so many entries, tensors and storages.  Returns 0 or CKPT_ENOMEM. */
int uses_reserve(struct uses *u, int64_t operands, int64_t tensors, int64_t storages);
void uses_free(struct uses *u);

/* Tensor x is new, on this storage; it moves to another one. */
void uses_add_tensor(struct uses *u, int32_t x, int32_t storage);
void uses_move_tensor(struct uses *u, int32_t x, int32_t from, int32_t to);

/* Op i reads tensor x by this entry; it no longer does. */
void uses_enter(struct uses *u, int32_t entry, int32_t x, int32_t i);
void uses_leave(struct uses *u, int32_t entry, int32_t x);

/* No op reads any of n tensors. */
void uses_clear(struct uses *u, int32_t n);

#endif
