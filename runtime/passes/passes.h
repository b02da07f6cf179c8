/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes make the tape of a step from the tape of a model: they differentiate it, share it among
 * ranks, and rewrite its ops.  passes.c has them in one table, in order, with the reason for each
 * one's place.
 *
 * The tape alone decides what a pass does: its ops, and the options of its environment.  No pass
 * knows a plan or a budget, so neither can change a bit.  A pass changes a tape only through the
 * calls of tape.h, which keep the uses of its tensors current.  A failure is the tape's error.
 */
#ifndef CKPT_PASSES_H
#define CKPT_PASSES_H

#include "tape/tape.h"

struct ckpt_optimizer;

/* What a program is compiled from. */
struct compilation {
    ckpt_tape *tape;
    ckpt_tensor loss;       /* that the recorder returned */
    const ckpt_tape *other; /* a recording with another size of micro-steps; NULL: there is none */
    ckpt_tensor again;      /* its loss */
    const struct ckpt_optimizer *optimizer; /* NULL: the program does not train */
    const int32_t *groups;                  /* of the optimizer, per parameter */
    const char *last;                       /* the pass after which it ends; NULL: all run */
    bool verify;                            /* check the tape after each pass */
    const char *dump;                       /* print the tape after this pass; NULL: never */
};

/* What holds of a tape between two passes, as bits. */
enum tape_state {
    TAPE_RECORDED = 1,   /* the forward pass is complete */
    TAPE_GRADIENTS = 2,  /* param_gradient holds the gradients of parameters */
    TAPE_COMPLETE = 4,   /* the update is recorded: nothing is appended any more */
    TAPE_SINGLE_OPS = 8, /* an op computes one function, as models and gradient rules record it */
    TAPE_CHAINS = 16     /* values between element-wise ops are gone, as far as they will go */
};

struct pass {
    const char *name;
    bool (*gate)(const struct compilation *c); /* whether the program needs it; NULL: always */
    int (*run)(const struct compilation *c);   /* returns 0 or the tape's error */
    int rewrite;         /* enum rewrite that a test may leave out, or NO_REWRITE */
    unsigned needs;      /* enum tape_state: bits that must hold before it */
    unsigned gives, end; /* bits that hold, and that no longer hold, after it */
    const char *reason;  /* for its place */
};

enum { NO_REWRITE = -1 };

/* The table, which ends with a row without a name. */
extern const struct pass passes[];

/* Runs all passes.  Returns 0 or the tape's error. */
int passes_run(const struct compilation *c);

/* ---- the passes ------------------------------------------------------------------------------ */

/*
 * Notes on the tape (tape_couple) if the loss of a step depends on how its batch is divided, as the
 * other recording shows; quotients by counts become those of the step (coupled.c, quotients.c).
 */
int pass_counts(const struct compilation *c);

/* Removes ops whose results nothing reads (unused.c). */
int pass_unused(const struct compilation *c);

/* Keeps the ops of this stage of a pipeline, with transfers from and to its neighbours; sets
 * param_stage and cuts (stages.c).  pass_unroll puts all micro-steps on the tape, in the order in
 * which stages work at once (unroll.c). */
int pass_stages(const struct compilation *c);
int pass_unroll(const struct compilation *c);

/* Appends the reverse of all ops that the loss depends on; sets param_gradient and t->loss. */
int pass_differentiate(const struct compilation *c);

/* Records the outputs of requested gradients (ckpt_output_gradient), but for those that
 * shard_reversed has recorded. */
int pass_outputs(const struct compilation *c);

/* Replaces the gradients of parameters by those of buckets, summed over the ranks, for buckets not
 * reduced yet (shard.c). */
int pass_shard(const struct compilation *c);

/* Has ops that make 8-bit copies compute a GELU or a norm that only they read, and drops operands
 * that only gradient rules read (sources.c). */
int pass_sources(const struct compilation *c);

/* Fuses GELU, gates and their gradients into adjacent products of layers (products.c). */
int pass_products(const struct compilation *c);

/* Moves cross-entropy losses to the start of the backward pass, each with its gradient
 * (loss_at_turn.c). */
int pass_losses(const struct compilation *c);

/* Fuses chains of element-wise ops (fuse.c). */
int pass_fuse(const struct compilation *c);

/* The backward pass reads 8-bit codes of the storages of the forward pass that permit it
 * (compress.c). */
int pass_activations(const struct compilation *c);

/* Producers of operands of to_fp8 write the largest magnitude as an extra output where they can; an
 * op of its own finds the others (extra.c). */
int pass_extra(const struct compilation *c);

/* Combines adjacent ops that read the same operands into one op with two results (pair.c). */
int pass_pair(const struct compilation *c);

/* ---- between files of this room -------------------------------------------------------------- */

/* Refuses a loss that depends on a parameter only through ops without a gradient rule, and counts
 * such ops beside other paths (no_gradient.c).  Returns 0 or the tape's error. */
int passes_check_rules(ckpt_tape *t, ckpt_tensor loss);

/* Refuses a loss that is none, or that nothing trains.  Returns 0 or the tape's error. */
int passes_check_loss(ckpt_tape *t, ckpt_tensor loss);

/* Records the outputs of the gradient of one parameter. */
void passes_fetch_gradient(ckpt_tape *t, int32_t param);

/* shard_watch, called before the first op is reversed, finds for each bucket the first op of the
 * forward pass that reads from it.  shard_reversed, called when an op has been reversed, reduces
 * the gradients of a bucket if that was this op, since they are complete then. */
void shard_watch(ckpt_tape *t);
void shard_reversed(ckpt_tape *t, int32_t op);

/* Has the op that makes dx, if it was recorded since first_op, write the column sums of dx where x
 * is the result of a layer whose bias needs them (extra.c). */
void passes_request_sums(ckpt_tape *t, ckpt_tensor x, ckpt_tensor dx, int32_t first_op);

/* Whether op o is a linear_fp8 whose kernel can output the largest magnitude of GELU of its result
 * (epilogue_fp8.c). */
bool epilogue_has_gelu_largest(const ckpt_tape *t, const struct op *o);

#endif
