/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epilogue fusion: ops after a product become part of it where the device has a kernel for both
 * (epilogue.c).  One file per pattern: epilogue_gelu.c, epilogue_gate.c, and epilogue_fp8.c for
 * 8-bit products.
 */
#ifndef CKPT_PASSES_EPILOGUE_H
#define CKPT_PASSES_EPILOGUE_H

#include "ops.h"
#include "passes/passes.h"

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
int32_t epilogue_layer_dx(const ckpt_tape *t, int32_t dx, int32_t readers);

/* The last op `def` of the forward pass that reads x, or -1. */
int32_t epilogue_reader(const ckpt_tape *t, int32_t x, const struct ckpt_op_def *def);

/* The first read of x after the forward pass (uses.h), or -1. */
int32_t epilogue_backward_read(const ckpt_tape *t, int32_t x);

/* Whether the backward pass reads x only after op i, through plain tensors, so that a copy of x
 * written by op i can replace it.  True without such reads. */
bool epilogue_can_redirect(const ckpt_tape *t, int32_t x, int32_t i);

/* ---- rewriting ------------------------------------------------------------------------------- */

/* Replaces op i by an op `def` with these operands and results, of which the last are `extra`
 * (ops/extra.h).  Returns 0 or the error of the tape. */
int epilogue_replace_op(ckpt_tape *t, int32_t i, const struct ckpt_op_def *def, uint32_t extra,
                        int n_in, const int32_t *in, int n_out, const int32_t *out);

/* Removes op i, whose work op `by` now does; its position on the tape becomes empty. */
void epilogue_remove_op(ckpt_tape *t, int32_t i, int32_t by);

/* Creates a tensor like x and makes all reads of x in the backward pass read it.  Returns its id, 0
 * on failure. */
int32_t epilogue_redirect_reads(ckpt_tape *t, int32_t x);

/* ---- patterns -------------------------------------------------------------------------------- */

/* Op i is the gradient of GELU (SiLU) in the backward pass. */
void epilogue_gelu_dx(ckpt_tape *t, int32_t i);
void epilogue_gelu_fp8_dx(ckpt_tape *t, int32_t i);
void epilogue_gate_dx(ckpt_tape *t, int32_t i);

/* Op i is GELU (SiLU) in the forward pass.  All gradients are processed first, because a result
 * that the backward pass still reads must be kept. */
void epilogue_gelu(ckpt_tape *t, int32_t i);
void epilogue_gate(ckpt_tape *t, int32_t i);

#endif
