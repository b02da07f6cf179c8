/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epilogue fusion: ops after a product become part of it where the device has a kernel for both
 * (epilogue.c).  One file per pattern: linear_gelu.c, linear_gated.c, and fp8_gelu.c for 8-bit
 * products.
 */
#ifndef CKPT_OPS_EPILOGUE_H
#define CKPT_OPS_EPILOGUE_H

#include "ops.h"
#include "passes/passes.h"

/* Number of reads of a tensor, in all and in the backward pass, and its first reader there. */
struct reads {
    int32_t all, backward, first;
};

struct epilogues {
    ckpt_tape *t;
    struct reads *reads; /* per tensor */
    int32_t *backward;   /* per storage: reads by the backward pass, over all tensors on it */
    int32_t *activation; /* per tensor: its GELU or SiLU op in the forward pass, or 0 */
    int32_t *mul;        /* per tensor: its last mul op in the forward pass, or 0 */
};

/* Allocates the tables and counts all reads; false: no memory. */
bool epilogue_open(struct epilogues *j, ckpt_tape *t);
void epilogue_close(struct epilogues *j);

/* ---- tests ----------------------------------------------------------------------------------- */

/* The op that produces x if it is a `def` that does not accumulate into x, else NULL. */
const struct op *epilogue_producer(const ckpt_tape *t, int32_t x, const struct ckpt_op_def *def);

/* Whether x is bf16, dense and at the start of its storage. */
bool epilogue_is_plain(const ckpt_tape *t, int32_t x);

/* Whether x is produced before op i. */
bool epilogue_is_before(const ckpt_tape *t, int32_t x, int32_t i);

/* The linear op (with or without bias) that produces x if an epilogue can be fused into it, else
 * -1. */
int32_t epilogue_layer(const ckpt_tape *t, int32_t x);

/* The linear_dx op that produces dx if an epilogue can be fused into it and dx has exactly
 * `readers` reads, else -1. */
int32_t epilogue_layer_dx(const struct epilogues *j, int32_t dx, int32_t readers);

/* Whether the backward pass reads x only after op i, through plain tensors, so that a copy of x
 * written by op i can replace it.  True without such reads. */
bool epilogue_can_redirect(const struct epilogues *j, int32_t x, int32_t i);

/* ---- rewriting ------------------------------------------------------------------------------- */

/* Replaces op i by an op `def` with these operands and results, of which the last are `extra`
 * (ops/extra.h).  Returns 0 or the error of the tape. */
int epilogue_replace_op(struct epilogues *j, int32_t i, const struct ckpt_op_def *def,
                        uint32_t extra, int n_in, const int32_t *in, int n_out, const int32_t *out);

/* Removes op i, whose work op `by` now does; its position on the tape becomes empty. */
void epilogue_remove_op(struct epilogues *j, int32_t i, int32_t by);

/* Creates a tensor like x and makes all reads of x in the backward pass read it.  Returns its id, 0
 * on failure. */
int32_t epilogue_redirect_reads(struct epilogues *j, int32_t x);

/* ---- patterns -------------------------------------------------------------------------------- */

/* Op i is the gradient of GELU (SiLU) in the backward pass. */
void epilogue_gelu_dx(struct epilogues *j, int32_t i);
void epilogue_gelu_fp8_dx(struct epilogues *j, int32_t i);
void epilogue_gate_dx(struct epilogues *j, int32_t i);

/* Op i is GELU (SiLU) in the forward pass.  All gradients are processed first, because a result
 * that the backward pass still reads must be kept. */
void epilogue_gelu(struct epilogues *j, int32_t i);
void epilogue_gate(struct epilogues *j, int32_t i);

#endif
