/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tape: storages (blocks of bytes), tensors (views of storages) and ops, in order.
 *
 * SSA: a tensor is made by one op.  An in-place op makes a new tensor on the same storage.
 *
 * The tape room decides what a training step computes.  It records the calls of a model, infers
 * shapes at once, appends the reverse of what was recorded (differentiate.c), and, for ranks that
 * share parameters, the gathers and sums (shard.c).  The update is appended by the optim room with
 * the same calls.  What comes out is a straight line of ops over storages; every later room works
 * on that line, and none changes which numbers it gives.
 *
 * - The order of ops and of sums is fixed here: a gradient that is used often is added up in the
 *   reverse order of use, in fp32.
 * - An error sticks: the first bad call is kept with op, shapes and the caller's line, later calls
 *   do nothing, and ckpt_compile returns it.
 * - A feed is an op just before its first use, so that it can come late and can be dropped.
 * - Indices, not pointers, name storages, tensors and ops: all three arrays grow.
 *
 * It may know the core, the table of ops, and how ranks share parameters (sharing.h).  Of the
 * context it sees struct tape_env and no more; it knows nothing of plans, devices, tiers, files or
 * communicators.  A test makes a tape without a context (tests/unit/test_tape.c).  A tape is used
 * by one thread at a time.
 */
#ifndef CKPT_TAPE_H
#define CKPT_TAPE_H

#include "core/base.h"
#include "core/fp8.h"
#include "core/params.h"
#include "dist/shard/sharing.h"

enum storage_kind {
    STORAGE_INPUT,    /* fed before a step; its bytes also stand on the host */
    STORAGE_CONSTANT, /* the same, fed once */
    STORAGE_VALUE,    /* persistent: a parameter as the model reads it */
    STORAGE_MASTER,   /* persistent: its fp32 master */
    STORAGE_EXP_AVG,
    STORAGE_EXP_AVG_SQ,
    STORAGE_EMA,
    STORAGE_EXP_AVG_SQ_ROW,
    STORAGE_EXP_AVG_SQ_COL,
    STORAGE_GRADIENT,   /* of a parameter, summed over the micro-steps */
    STORAGE_ACTIVATION, /* made by the forward pass */
    STORAGE_TEMPORARY   /* made by the backward pass or the update */
};

struct storage {
    int64_t bytes;
    enum storage_kind kind;
    int32_t param;  /* index in env.params for persistent kinds and gradients, else -1 */
    bool carried;   /* keeps its bytes from one micro-step to the next */
    int32_t feed;   /* index in tape.feeds for inputs and constants, else -1 */
    int32_t tensor; /* the tensor that made it, for names in messages */
};

struct tensor {
    int32_t storage;
    struct ckpt_desc desc; /* desc.offset counts elements from the start of the storage */
    int32_t op;            /* producer, or -1 */
    int32_t index;         /* which output of it */
    bool needs_grad;       /* a trainable parameter takes part in it */
    bool learned;          /* a parameter of any kind does, in what its op read */
    int32_t fp8_op;        /* the op that made its 8-bit copies, or 0 */
};

enum phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_UPDATE };

/* When an op adds to out[0] instead of setting it. */
enum accumulate { ACCUMULATE_NEVER, ACCUMULATE_ALWAYS, ACCUMULATE_LATER_MICRO };

struct op {
    const struct ckpt_op_def *def;
    int32_t operands; /* from here in tape.operands: n_in inputs, n_out outputs; -1 is absent */
    int32_t n_in, n_out;
    void *attr;
    size_t attr_size;
    int64_t workspace;
    enum phase phase;
    enum accumulate accumulate;
    int32_t feed;  /* >= 0: copies this feed in (def is op_feed) */
    int32_t fetch; /* >= 0: copies this fetch out (def is op_fetch) */
    int32_t label;
    const char *file;
    int line;
    int first_line;    /* of several ops that became one; 0: line */
    bool of_gradients; /* ckpt_gradients recorded it: without a rule the loss cannot depend on it */
    int32_t number;    /* see struct ckpt_kernel_args */
};

/* An input or constant: host bytes that a feed op copies to the device. */
struct feed {
    char *name;
    int32_t tensor;
    void *constant; /* the bytes of a constant; NULL for an input */
    bool used;      /* its op is on the tape: it is recorded just before the first use */
};

struct fetch {
    char *name;
    int32_t tensor;
    int32_t param; /* >= 0: the gradient of this parameter, filled in by tape_differentiate */
};

/* All that recording needs to know of what is outside the tape. */
struct tape_env {
    enum ckpt_backend backend;   /* whose kernels the ops are for: it decides their workspace */
    bool deterministic;          /* kernels that add in a fixed order are asked for */
    enum matmul_dtype matmul;    /* operands of products of linear layers: --matmul */
    bool int8;                   /* the backward pass reads codes: --activations 8bit */
    int64_t joined_tiles;        /* products of layers of so many tiles or more do GELU or a gate
                                    at their end (cuda_joined_tiles()); 0: none do */
    int threads;                 /* of a kernel */
    const struct params *params; /* what handles below 0 stand for; outlives the tape */
    struct sharing sharing;      /* of the parameters, over ranks */
    const bool *frozen; /* per parameter: it takes no gradient here; NULL: all take theirs; only
                           while a model is recorded */
};

/* An op whose struct has another size than ours, and all of it. */
struct op_copy {
    struct op_copy *next;
    const struct ckpt_op_def *given;
    struct ckpt_op_def def;
};

struct ckpt_tape {
    struct tape_env env;
    uint32_t owner; /* of the handles of its tensors: see handle_owner */
    int64_t micro_batch;
    int32_t n_micro;
    enum phase phase;

    struct {
        struct storage *data;
        int64_t capacity;
    } storages;
    struct {
        struct tensor *data;
        int64_t capacity;
    } tensors;
    struct {
        struct op *data;
        int64_t capacity;
    } ops;
    struct {
        int32_t *data;
        int64_t capacity;
    } operands;
    struct {
        struct feed *data;
        int64_t capacity;
    } feeds;
    struct {
        struct fetch *data;
        int64_t capacity;
    } fetches;
    struct {
        char **data;
        int64_t capacity;
    } labels;
    int32_t n_storages, n_tensors, n_ops, n_operands, n_feeds, n_fetches, n_labels;

    int32_t (*slots)[SLOT_COUNT]; /* per parameter of env: the tensors of its slots here, or 0 */
    int32_t *param_gradient;      /* per parameter: the tensor of its summed gradient, or 0 */
    int32_t *param_next;          /* per buffer: the tensor of what the step gives it, or 0 */
    int32_t *buckets;             /* per bucket of the layout: the tensor of all of it, or 0 */
    int32_t *first_reader; /* per bucket: the op whose reverse completes its gradients, or 0 */
    int32_t n_params;
    int32_t n_bringing;         /* of the ops: those that bring parameters, from other ranks or out
                                   of codes */
    bool in_gradients;          /* what is recorded are gradients that the model asked for */
    bool trains;                /* it will be differentiated */
    bool full_precision;        /* layers recorded now have no 8-bit products */
    bool couples_samples;       /* what is computed depends on the size of micro-steps */
    bool updates_buffers;       /* else ckpt_update_buffer records nothing */
    enum ckpt_dtype grad_dtype; /* of bf16 parameters, where nothing is added up */
    int32_t loss;               /* tensor: the loss, summed over the micro-steps so far */

    struct op_copy *copies; /* a list */
    int32_t label;          /* of what is recorded now */
    const char *file;       /* where the caller stands */
    int line;
    struct error error; /* sticky: the first one; its code is 0 while all is well */
};

/* The tensor with index 0 is reserved, so that id 0 is "none".  env is copied.  Returns 0 or
 * CKPT_ENOMEM. */
int tape_new(ckpt_tape **t, const struct tape_env *env, int64_t micro_batch, int32_t n_micro);
void tape_free(ckpt_tape *t);

/* Sets the sticky error (the first one wins) with the caller's place in front. Returns the code. */
int tape_fail(ckpt_tape *t, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

/* The handle of a tensor. */
static inline ckpt_tensor tape_handle(const ckpt_tape *t, int32_t id)
{
    return (ckpt_tensor){.id = id, .owner = t->owner};
}

/* The tensor behind a handle: parameters are imported on first use.  NULL if it is none of ours. */
struct tensor *tape_tensor(ckpt_tape *t, ckpt_tensor x);

/* The tensor a handle stands for on this tape: parameters become one on first use. */
ckpt_tensor tape_resolve(ckpt_tape *t, ckpt_tensor x);

/* A new tensor on a new storage of its own, and one on the storage of another. */
ckpt_tensor tape_new_tensor(ckpt_tape *t, const struct ckpt_desc *d, enum storage_kind kind);
ckpt_tensor tape_view_tensor(ckpt_tape *t, ckpt_tensor base, const struct ckpt_desc *d);
/* A persistent storage of a parameter (master, moments, EMA) as a tensor. */
ckpt_tensor tape_slot(ckpt_tape *t, int32_t param, enum storage_kind kind);

/* Whether a parameter takes a gradient on this tape. */
static inline bool tape_trains(const ckpt_tape *t, int32_t param)
{
    return t->env.params->data[param].trainable && !(t->env.frozen && t->env.frozen[param]);
}

/* The parameter that a tensor is on this tape, or -1. */
int32_t tape_param_of(const ckpt_tape *t, int32_t x);

/* Several ranks (shard.c).  Whether a parameter stands in a bucket, and its tensor then. */
bool tape_is_sharded(const ckpt_tape *t, int32_t param);
ckpt_tensor tape_sharded_value(ckpt_tape *t, int32_t param);
/* Notes, before the first op is reversed, which op is the first of the forward pass to read from
 * each bucket; then, when it has been reversed, reduces the bucket's gradients, which are complete.
 */
void tape_watch_buckets(ckpt_tape *t);
void tape_reversed(ckpt_tape *t, int32_t op);
/* Replaces the gradients of parameters by those of buckets, summed over the ranks, where that was
 * not done yet.  Returns 0 or the tape's error. */
int tape_shard_gradients(ckpt_tape *t);
/* What this rank adds to the norm, of a gradient of a parameter or bucket. */
ckpt_tensor tape_norm_part(ckpt_tape *t, int32_t param, ckpt_tensor gradient);
/* What this rank updates of the value of a parameter or bucket; and the gathering of what others
 * updated of it, where they did. */
ckpt_tensor tape_updated_value(ckpt_tape *t, int32_t param);
void tape_gather_updated(ckpt_tape *t, int32_t param);
/* Of a bucket, flat: the whole of what this rank has its part of; and the part that it updates of
 * what every rank has.  tape_bucket_of: its number, below 0 for a parameter that is none. */
ckpt_tensor tape_whole_bucket(ckpt_tape *t, int32_t param, ckpt_tensor part);
ckpt_tensor tape_updated_part(ckpt_tape *t, int32_t param, ckpt_tensor whole);
int32_t tape_bucket_of(const ckpt_tape *t, int32_t param);
/* Buffers (buffers.c).  n <= AVERAGE_PAIRS of them, as ckpt_update_buffer, by one op. */
void tape_update_buffers(ckpt_tape *t, int n, const ckpt_tensor *buffer, const ckpt_tensor *value,
                         float momentum);
/* Replaces what the step gives each buffer by the mean over the ranks. */
void tape_share_buffers(ckpt_tape *t);
/* Replaces each of n single values by its sum over several ranks: the first ones, up to `once`, are
 * of a rank alone, the others are of its shares. */
void tape_sum_over_ranks(ckpt_tape *t, int once, int n, ckpt_tensor *x);

/* Whether an op behind the one that made x has it as an operand. */
bool tape_is_read(const ckpt_tape *t, ckpt_tensor x);
/* Whether nobody but its op has seen a tensor: it is alone on its storage and has no reader. */
bool tape_is_fresh(const ckpt_tape *t, ckpt_tensor x);

/* Whether a tensor, fresh from its producer and seen by nobody else, can be written elsewhere with
 * these strides; and the move onto the storage of another tensor. */
bool tape_can_rehome(const ckpt_tape *t, ckpt_tensor x, const struct ckpt_desc *as);
void tape_rehome(ckpt_tape *t, ckpt_tensor x, ckpt_tensor onto, const struct ckpt_desc *as);

/* Records the copy-in of an input or constant, unless it was recorded. */
void tape_use_feed(ckpt_tape *t, int32_t feed);

/* Appends an op without looking at its def's rules.  Returns its index, or -1. */
int32_t tape_append(ckpt_tape *t, const struct ckpt_op_def *def, int n_in, const ckpt_tensor *in,
                    int n_out, const ckpt_tensor *out);

/* Gives op i one more output, behind those that it has.  Returns its tensor, or none with the
 * tape's error. */
ckpt_tensor tape_add_output(ckpt_tape *t, int32_t i, const struct ckpt_desc *d);

/* Gives op i tensor x as one more input, behind those that it has. */
void tape_add_input(ckpt_tape *t, int32_t i, int32_t x);

/* Makes op i, in its place and phase, one of these operands, which makes the tensors of `out`; attr
 * is copied.  What it made before has no maker then, where it is not among them.  Scratch: none.
 * Returns 0 or the tape's error. */
int tape_replace_op(ckpt_tape *t, int32_t i, const struct ckpt_op_def *def, const void *attr,
                    size_t attr_size, int n_in, const int32_t *in, int n_out, const int32_t *out);

/* What is recorded next is of the phase of op i, and named as that is. */
void tape_stand_at(ckpt_tape *t, int32_t i);

/* Puts the ops into another order, in which each still follows those that it reads from: order[i]
 * is the position, as it is now, of the op that comes to stand at i.  Returns 0 or the tape's
 * error. */
int tape_reorder(ckpt_tape *t, const int32_t *order);

/* Makes outputs fetchable (see ckpt_output); the gradients asked for, once they are complete: of
 * one parameter, and of all whose were not fetched so. */
void tape_fetch_gradient(ckpt_tape *t, int32_t param);
void tape_fetch_gradients(ckpt_tape *t);

/* Whether g, which a gradient rule returned, can be the gradient of tensor x.  Returns 0 or the
 * tape's error. */
int tape_check_gradient(ckpt_tape *t, int32_t x, ckpt_tensor g);

/* The gradients of x[0] to x[n - 1] through the ops from first_op on, where those of y are dy; for
 * rules of ops that are gradients (ops/decompose.h).  x are not made by these ops, and no two are
 * one tensor.  dx[i] is CKPT_NONE where no y depends on x[i].  Returns 0 or the tape's error. */
int tape_pull(ckpt_tape *t, int32_t first_op, int ny, const ckpt_tensor *y, const ckpt_tensor *dy,
              int n, const ckpt_tensor *x, ckpt_tensor *dx);

/* Appends the reverse of everything that leads to loss; fills param_gradient and loss. */
int tape_differentiate(ckpt_tape *t, ckpt_tensor loss);

/* Inputs (in = true) and outputs of an op as a public call description; arrays have room. */
void tape_call(const ckpt_tape *t, const struct op *o, struct ckpt_call *call, struct ckpt_desc *in,
               struct ckpt_desc *out);

static inline int32_t op_in(const ckpt_tape *t, const struct op *o, int i)
{
    return t->operands.data[o->operands + i];
}

static inline int32_t op_out(const ckpt_tape *t, const struct op *o, int i)
{
    return t->operands.data[o->operands + o->n_in + i];
}

/* "linear in spatial_blocks.3 (model.c:120)", "mul+add+gelu (model.c:12-14)" */
void tape_op_name(const ckpt_tape *t, int32_t op, char *dst, size_t size);

#endif
