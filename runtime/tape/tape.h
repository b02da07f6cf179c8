/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tape: storages (blocks of bytes), tensors (views of storages) and ops, in order.
 *
 * SSA: a tensor is made by one op.  An in-place op makes a new tensor on the same storage.
 *
 * The room records the calls of a model and infers shapes at once.  Passes (passes.h) append the
 * reverse of the recorded ops, the sums over ranks and the update by the same calls, and rewrite
 * ops.  The result is a straight line of ops over storages; every later room works on that line,
 * and none changes the numbers it computes.
 *
 * - An error sticks: the first bad call is kept with op, shapes and the caller's line, later calls
 *   do nothing, and ckpt_compile returns it.
 * - A feed is an op just before its first use, so that it can be late and its copy can be freed.
 * - Storages, tensors and ops are named by index, not by pointer, since all three arrays grow.
 * - Who reads and writes a tensor is on the tape (uses.h), kept current by each call below.
 *
 * It may use the core, and how ranks share parameters (sharing.h, layout.h).  Of the context it
 * sees only struct tape_env; it knows no op, and nothing of plans, devices, tiers, files or
 * communicators.  A test makes a tape without a context (tests/unit/test_tape.c).  One thread at a
 * time uses a tape.
 */
#ifndef CKPT_TAPE_H
#define CKPT_TAPE_H

#include "core/base.h"
#include "core/fp8.h"
#include "core/params.h"
#include "dist/shard/sharing.h"
#include "tape/uses.h"

enum storage_kind {
    STORAGE_INPUT,    /* fed before a step; the host has a copy of its bytes */
    STORAGE_CONSTANT, /* the same, fed once */
    STORAGE_VALUE,    /* persistent: a parameter as the model reads it */
    STORAGE_MASTER,   /* persistent: the parameter's fp32 master */
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
    bool carried;   /* its bytes stay from one micro-step to the next */
    int32_t feed;   /* index in tape.feeds for inputs and constants, else -1 */
    int32_t tensor; /* the tensor that made it, for names in messages */
};

/*
 * What a rank has of a tensor where the ranks of a group split a sequence (ops/sequence.c): all, as
 * the others; a function of counts of the whole step, which is the same on all; its tokens, along
 * an axis, after the first ones that all ranks have; some rows, whose order does not matter; its
 * part of a sum, or of a mean, over tokens.
 */
enum part { PART_ALL, PART_COUNTS, PART_TOKENS, PART_ROWS, PART_SUM, PART_MEAN };

/* Where ranks split layers (ops/tensor_parts.c) it is all, PART_COUNTS, PART_WIDTH: its part of an
 * axis, or of each of part_first blocks of it, or PART_TERM: one of the terms of a sum that is the
 * result. */
enum { PART_WIDTH = PART_MEAN + 1, PART_TERM };

struct tensor {
    int32_t storage;
    struct ckpt_desc desc; /* desc.offset counts elements from the start of the storage */
    int32_t op;            /* producer, or -1 */
    int32_t index;         /* output number of the producer */
    bool needs_grad;       /* it depends on a trainable parameter */
    bool learned;          /* its op reads something that depends on any parameter */
    bool of_step;          /* it is the same in all parts of a step: see tape_mean_count */
    int32_t fp8_op;        /* the op that makes its 8-bit copies, or 0 */
    uint8_t part;          /* enum part, while t->splits */
    int8_t part_axis;      /* of tokens, rows or a width */
    int32_t part_first;    /* of tokens, how many of the first all ranks have; of a width: blocks */
};

enum phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_UPDATE };

/* When an op adds to out[0] instead of setting it. */
enum accumulate { ACCUMULATE_NEVER, ACCUMULATE_ALWAYS, ACCUMULATE_LATER_MICRO };

struct op {
    const struct ckpt_op_def *def;
    int32_t operands; /* first one in tape.operands: n_in inputs, n_out outputs; -1 is absent */
    int32_t n_in, n_out;
    uint32_t extra; /* the last outputs, which are none of the rule (ops/extra.h) */
    void *attr;
    size_t attr_size;
    ckpt_kernel run;   /* set with the scratch when kernels are chosen (kernel_bind); or NULL */
    int64_t workspace; /* bytes of scratch; before that those of an op of a program */
    enum phase phase;
    enum accumulate accumulate;
    int32_t feed;  /* >= 0: copies this feed in (def is op_feed) */
    int32_t fetch; /* >= 0: copies this fetch out (def is op_fetch) */
    int32_t label;
    const char *file;
    int line;
    int first_line;    /* of several ops that were joined; 0: line */
    bool of_gradients; /* recorded by ckpt_gradients: without a rule the loss cannot depend on it */
    int32_t number;    /* see struct ckpt_kernel_args; of a sum of a parameter: differentiate.c */
    int32_t micro;     /* the micro-step that it is of, where a tape has those of all; else 0 */
};

/* An input or constant: host bytes that a feed op copies to the device. */
struct feed {
    char *name;
    int32_t tensor;
    void *constant; /* the bytes of a constant; NULL for an input */
    bool used;      /* its op is on the tape; it is recorded just before the first use */
    bool counted;   /* the mean of a count, which the host computes: see struct counting */
};

struct fetch {
    char *name;
    int32_t tensor;
    int32_t param; /* >= 0: the gradient of this parameter, filled in by pass_differentiate */
};

/*
 * The rewrites of a tape.  Each makes the step faster or smaller, and a tape is complete without
 * it.  tests/tapes compares tapes with all of them, without some, and with none.
 */
#define TAPE_REWRITES(X)                                                                           \
    X(PARTS)    /* parts of a concat are written in place (ops/concat.c) */                        \
    X(SLICES)   /* gradients of disjoint slices are joined (differentiate.c) */                    \
    X(WIDE)     /* those of a split are joined in fp32 (differentiate.c) */                        \
    X(ADDENDS)  /* a kernel adds the sum so far to a gradient (differentiate.c) */                 \
    X(IN_PLACE) /* a kernel adds to the sum of a parameter's gradient (differentiate.c) */         \
    X(VALUES)   /* a bf16 gradient takes the place of the value (differentiate.c) */               \
    X(SUMS)     /* a kernel also sums the columns of a gradient, for a bias (passes/extra.c) */    \
    X(PRODUCTS) /* GELU and gates in products (passes/epilogue.c) */                               \
    X(LOSSES)   /* losses at the start of the backward pass (passes/loss_at_turn.c) */             \
    X(FUSION)   /* chains of expressions (passes/fuse.c) */                                        \
    X(LARGEST)  /* a kernel also finds the largest magnitude (passes/extra.c) */                   \
    X(PAIRS)    /* two expressions with the same operands (passes/pair.c) */
#define X(name) REWRITE_##name,
enum rewrite { TAPE_REWRITES(X) REWRITES };
#undef X

/* What recording needs of ops, which the tape does not know (ops/values.c). */
struct tape_calls {
    const char *(*name)(const struct ckpt_op_def *def, const void *attr); /* for messages */
    ckpt_tensor (*dense)(ckpt_tape *t, ckpt_tensor x);                    /* x, or a dense copy */
    ckpt_tensor (*value)(ckpt_tape *t, int32_t param); /* what ops make of a parameter's slots */
    void (*follow)(ckpt_tape *t, int32_t op);          /* sets the parts of an op's results */
};

/* A view op whose shape rule sets strides of 0 on purpose: no axis of the result is made dense. */
#define TAPE_OP_BROADCASTS (1u << 16)

extern const struct ckpt_op_def op_feed, op_fetch;

/* The tape's environment: everything that recording needs from outside the tape. */
struct tape_env {
    const struct tape_calls *calls;
    enum ckpt_backend backend;   /* of the kernels; recording tells it to ops of programs */
    bool unordered;              /* kernels may add in no fixed order */
    enum matmul_dtype matmul;    /* operands of products of linear layers: --matmul */
    bool int8;                   /* the backward pass reads codes: --activations 8bit */
    int64_t epilogue_tiles;      /* products of layers with this many tiles or more do GELU or a
                                  gate in their epilogue (kernel_has_epilogue()); 0: none do */
    int threads;                 /* of a kernel */
    const struct params *params; /* the parameters, whose handles are below 0; outlives the tape */
    struct sharing sharing;      /* how ranks share the parameters */
    /* Whether the host can run an op, to count inputs before a step (means.c); NULL: it cannot. */
    bool (*on_host)(const struct ckpt_op_def *op);
    unsigned without;   /* rewrites that a test leaves out, as bits 1 << enum rewrite */
    const bool *frozen; /* per parameter: it takes no gradient on this tape; NULL: all do; valid
                           while a model is recorded */
};

/* The mean over the micro-steps of a value that updates a buffer once. */
struct buffer_mean {
    ckpt_tensor buffer, mean;
    float momentum;
};

/* What layers have recorded of a weight that they round (ops/fake_quantize.c). */
struct rounded {
    int32_t weight;   /* the tensor of the rounded weight, or 0 */
    int32_t range[2]; /* those of the range of what it multiplies, or 0 */
    bool whole;       /* one scale for the weight, else one for each row */
};

/* A count: a tensor of one value on the tape of the counts, and the feed that gets its mean over
 * the micro-steps. */
struct host_count {
    int32_t tensor, feed;
};

/* What the host computes from the inputs before a step (means.c). */
struct counting {
    ckpt_tape *tape; /* feeds with a name are inputs of the step */
    int32_t *copy;   /* per tensor of the step's tape: its copy here, or 0 */
    int32_t n_copy;
    int32_t number; /* tape_number there, before the count that is being recorded */
    struct {
        struct host_count *data;
        int64_t capacity;
    } counts;
    int32_t n_counts;
};

/* The complete def of an op whose struct, built against another header, has another size. */
struct op_copy {
    struct op_copy *next;
    const struct ckpt_op_def *given;
    struct ckpt_op_def def;
};

struct ckpt_tape {
    struct tape_env env;
    uint32_t owner; /* owner of its tensors' handles: see handle_owner */
    int64_t micro_batch;
    int32_t n_micro;
    int32_t n_bodies; /* how often the ops before the update run in a step: n_micro times, or once
                         if they are those of all micro-steps (passes/unroll.c) */
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
    struct uses uses; /* of tensors and storages */
    int32_t n_storages, n_tensors, n_ops, n_operands, n_feeds, n_fetches, n_labels, n_means;

    int32_t (*slots)[SLOT_COUNT]; /* per parameter of env: the tensors of its slots here, or 0 */
    int32_t *param_gradient;      /* per parameter: the tensor of its summed gradient, or 0 */
    int32_t *param_stage;         /* per parameter: the stage that trains it, or -1 for none */
    uint64_t cuts;                /* a digest of where the stages begin, 0 without */
    int32_t cut_from, cut_to;     /* the ops of the model that this stage has */
    int32_t *param_next;          /* per buffer: the tensor of its next value, or 0 */
    struct rounded *rounded;      /* per parameter */
    struct {
        struct buffer_mean *data;
        int64_t capacity;
    } means;               /* with which buffers are updated once per step */
    int32_t *buckets;      /* per bucket of the layout: the tensor of the whole, or 0 */
    int32_t *first_reader; /* per bucket: the op whose reverse completes its gradients, or 0 */
    int32_t n_params;
    int32_t n_unnumbered;       /* number of ops that random numbers of later ones do not depend on:
                                   they gather or decode parameters, or count for a mean */
    bool splits;                /* ranks split a sequence, or layers, in what is recorded now */
    bool as_rows;               /* see sequence_as_rows() */
    bool in_gradients;          /* ckpt_gradients is recording */
    bool trains;                /* it will be differentiated */
    bool full_precision;        /* layers recorded now have no 8-bit products */
    bool no_adapters;           /* nor adapters (ckpt_use_adapters) */
    char coupled[160];          /* why the results depend on the size of micro-steps; or "" */
    struct counting *counting;  /* NULL: no count is computed by the host */
    bool updates_buffers;       /* else ckpt_update_buffer records nothing */
    bool reads_ema;             /* a parameter is its moving average here, if it has one */
    enum ckpt_dtype grad_dtype; /* of gradients of bf16 parameters that nothing is added to */
    int32_t loss;               /* tensor: the loss, summed over the micro-steps so far */
    int32_t constant_ops;       /* number of ops that cut a gradient, having no rule */
    char constant_op[128];      /* the first of them */

    struct op_copy *copies; /* a list */
    int32_t label;          /* of the ops recorded now */
    const char *file;       /* the caller's place */
    const char *call;       /* what the caller called, if it records calls of others; or NULL */
    int line;
    struct error error; /* sticky: the first failure; code is 0 without one */
};

static inline bool tape_rewrites(const ckpt_tape *t, enum rewrite r)
{
    return !(t->env.without >> r & 1);
}

/* The tensor with index 0 is reserved, so that id 0 means "none".  env is copied.  Returns 0 or
 * CKPT_ENOMEM. */
int tape_new(ckpt_tape **t, const struct tape_env *env, int64_t micro_batch, int32_t n_micro);
void tape_free(ckpt_tape *t);

/* Sets the sticky error (the first one wins), with the caller's place in front.  Returns the code.
 */
int tape_fail(ckpt_tape *t, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

/* The handle of a tensor. */
static inline ckpt_tensor tape_handle(const ckpt_tape *t, int32_t id)
{
    return (ckpt_tensor){.id = id, .owner = t->owner};
}

/* The tensor of a handle; a parameter gets one on first use.  NULL if it is not of this tape. */
struct tensor *tape_tensor(ckpt_tape *t, ckpt_tensor x);

/* Whether the model reads the moving average of a parameter, or of a bucket, here. */
static inline bool tape_reads_ema(const ckpt_tape *t, int32_t param)
{
    return t->reads_ema && t->env.params->data[param].place.offset[SLOT_EMA] >= 0;
}

/* The handle on this tape: a parameter's handle becomes that of its tensor here. */
ckpt_tensor tape_resolve(ckpt_tape *t, ckpt_tensor x);

/* Make a tensor on a new storage; make a tensor on the storage of another. */
ckpt_tensor tape_new_tensor(ckpt_tape *t, const struct ckpt_desc *d, enum storage_kind kind);
ckpt_tensor tape_view_tensor(ckpt_tape *t, ckpt_tensor base, const struct ckpt_desc *d);
/* A persistent storage of a parameter (master, moments, EMA) as a tensor. */
ckpt_tensor tape_slot(ckpt_tape *t, int32_t param, enum storage_kind kind);

/* Whether a parameter takes a gradient on this tape. */
static inline bool tape_trains(const ckpt_tape *t, int32_t param)
{
    return t->env.params->data[param].trainable && !(t->env.frozen && t->env.frozen[param]);
}

/* The parameter whose value a tensor is on this tape, or -1. */
int32_t tape_param_of(const ckpt_tape *t, int32_t x);

/* Several ranks.  Whether a parameter is part of a bucket; the parameter that is a bucket; whether
 * every rank has all gradients and state. */
bool tape_is_sharded(const ckpt_tape *t, int32_t param);
static inline int32_t tape_bucket_param(const ckpt_tape *t, int32_t bucket)
{
    return t->env.params->n - t->env.params->n_hidden + bucket;
}
static inline bool tape_has_all(const ckpt_tape *t)
{
    return t->env.sharing.zero == 0;
}
/* Sets the bucket's label; returns the caller's, to be assigned to t->label afterwards. */
int32_t tape_label_bucket(ckpt_tape *t, int32_t bucket);

/* Notes that results depend on the size of micro-steps; the first reason stays. */
void tape_couple(ckpt_tape *t, const char *fmt, ...) CKPT_PRINTF(2, 3);
void counting_free(struct counting *c);

/* The number of the next op, on which its random numbers depend.  tape_set_number: ops recorded
 * since then do not change it. */
int32_t tape_number(const ckpt_tape *t);
void tape_set_number(ckpt_tape *t, int32_t number);

/* Whether only its op knows a tensor: it is alone on its storage and has no reader. */
bool tape_is_fresh(const ckpt_tape *t, ckpt_tensor x);

/* tape_can_rehome: whether x, fresh from its producer (see tape_is_fresh), can be written elsewhere
 * with these strides.  tape_rehome moves it onto the storage of another tensor. */
bool tape_can_rehome(const ckpt_tape *t, ckpt_tensor x, const struct ckpt_desc *as);
void tape_rehome(ckpt_tape *t, ckpt_tensor x, ckpt_tensor onto, const struct ckpt_desc *as);

/* Records the copy-in of an input or constant, unless it was recorded before. */
void tape_use_feed(ckpt_tape *t, int32_t feed);
/* Records the copy-out of x to a fetch. */
void tape_record_fetch(ckpt_tape *t, int32_t fetch, ckpt_tensor x);
/* Gives t an input or constant of another tape; returns its tensor.  tape_count_feed: an input for
 * the mean of a count. */
int32_t tape_copy_feed(ckpt_tape *t, const ckpt_tape *from, int32_t feed);
ckpt_tensor tape_count_feed(ckpt_tape *t);

/* The kind of storages that ops of a pass make. */
static inline enum storage_kind tape_kind_of(enum phase phase)
{
    return phase == PHASE_FORWARD ? STORAGE_ACTIVATION : STORAGE_TEMPORARY;
}

/* Makes room for n more operands.  Returns 0 or CKPT_ENOMEM.  The operands that op i reads are
 * entered in the lists of uses, or leave them. */
int tape_reserve_operands(ckpt_tape *t, int32_t n);
void tape_enter_reads(ckpt_tape *t, int32_t i);
void tape_leave_reads(ckpt_tape *t, int32_t i);

/* Appends an op without calling its def's rules.  Returns its index, or -1. */
int32_t tape_append(ckpt_tape *t, const struct ckpt_op_def *def, int n_in, const ckpt_tensor *in,
                    int n_out, const ckpt_tensor *out);

/* Has the kernel of op i write an extra output, after its others.  Returns its tensor, or none with
 * the tape's error. */
ckpt_tensor tape_add_extra(ckpt_tape *t, int32_t i, int what, const struct ckpt_desc *d);

/* Gives op i tensor x as one more input, after its others.  tape_set_input: as its input k, instead
 * of another; -1: none. */
void tape_add_input(ckpt_tape *t, int32_t i, int32_t x);
void tape_set_input(ckpt_tape *t, int32_t i, int k, int32_t x);

/* Moves all tensors of a storage to another one. */
void tape_move_storage(ckpt_tape *t, int32_t from, int32_t to);

/* Replaces op i, in its place and phase, by one with these operands, which makes the tensors of
 * `out`; attr is copied and may be that of the op.  Former outputs that are not in `out` have no
 * producer then.  It has no workspace and no extra outputs.  Returns 0 or the tape's error. */
int tape_replace_op(ckpt_tape *t, int32_t i, const struct ckpt_op_def *def, const void *attr,
                    size_t attr_size, int n_in, const int32_t *in, int n_out, const int32_t *out);

/* Ops recorded next get the phase, label and place of op i. */
void tape_stand_at(ckpt_tape *t, int32_t i);

/* The op of an empty position: it is part of another op now.  Positions stay, because they select
 * the streams of random ops.  tape_remove_op makes op i one; its results have no op unless another
 * op writes them by now. */
extern const struct ckpt_op_def tape_removed;
void tape_remove_op(ckpt_tape *t, int32_t i);

/* Extends the source lines of b by those of a, if both are in one file. */
void tape_merge_lines(const struct op *a, struct op *b);

/* Sorts the ops by key[i] of op i; equal keys keep their order, and each op must still follow those
 * that it reads from.  tape_key() leaves op i in place, or (side -1 or 1) puts an op just before or
 * after it.  Returns 0 or the tape's error. */
int tape_sort(ckpt_tape *t, const int64_t *key);
static inline int64_t tape_key(int32_t i, int side)
{
    return 3 * (int64_t)i + 1 + side;
}

/* Fills the public description of an op's call; in and out have room for its operands. */
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

/* The reads of tensor x, in the order of ops: the first, or the one after read u, or -1; the op of
 * a read; which of its operands it is. */
static inline int32_t uses_first(const ckpt_tape *t, int32_t x)
{
    return t->uses.of.data[x].first;
}

static inline int32_t uses_next(const ckpt_tape *t, int32_t u)
{
    return t->uses.reads.data[u].next;
}

static inline int32_t uses_op(const ckpt_tape *t, int32_t u)
{
    return t->uses.reads.data[u].op;
}

static inline int uses_operand(const ckpt_tape *t, int32_t u)
{
    return u - t->ops.data[uses_op(t, u)].operands;
}

/* The number of reads of tensor x. */
static inline int32_t uses_count(const ckpt_tape *t, int32_t x)
{
    return t->uses.of.data[x].n;
}

/* The tensors on a storage: the first of the list, or the one after x, or 0. */
static inline int32_t uses_on(const ckpt_tape *t, int32_t storage)
{
    return t->uses.on.data[storage];
}

static inline int32_t uses_older(const ckpt_tape *t, int32_t x)
{
    return t->uses.of.data[x].older;
}

/* The first op after op `after` that reads tensor x, or -1. */
int32_t uses_next_reader(const ckpt_tape *t, int32_t x, int32_t after);

/* Whether only tensor x is on its storage. */
bool uses_is_alone(const ckpt_tape *t, int32_t x);

/* The last op that reads the storage, or -1. */
int32_t uses_last_reader(const ckpt_tape *t, int32_t storage);

/* Whether an op in the open interval (after, before) writes the storage.  Views do not. */
bool uses_is_written(const ckpt_tape *t, int32_t storage, int32_t after, int32_t before);

/* Whether an op other than op i reads the storage. */
bool uses_has_reader_but(const ckpt_tape *t, int32_t storage, int32_t i);

/* "linear in spatial_blocks.3 (model.c:120)", "mul+add+gelu (model.c:12-14)" */
void tape_op_name(const ckpt_tape *t, int32_t op, char *dst, size_t size);

#endif
