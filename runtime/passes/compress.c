/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compression of activations to 8 bits between forward and backward (--activations 8bit).
 *
 * It runs on the complete tape, after fusion, over every storage that the forward pass writes.  A
 * storage is compressed if every op of the backward pass that reads it tolerates 8 bits.  Then
 * to_int8 encodes it after its last writer, from_int8 decodes it just before the ops of the
 * backward pass, and no op reads the original after the forward pass.  Ops of the forward pass read
 * the original, also where they are recomputed.
 *
 * The result of a cheap op (a norm, GELU, a fused chain) needs no codes if its one or two large
 * operands have codes: the backward pass recomputes it from the decoded operands.  This takes about
 * as long as decoding, and no memory; the error is similar.  It is never chained, so errors do not
 * add up over layers.
 *
 * The tape alone determines which values the backward pass reads, so a memory budget changes no
 * bit: the plan may keep the codes, recompute them from the same values, or offload them.
 *
 * Ops that tolerate 8 bits: gradients that are linear in the operand (of weights of layers and
 * convolutions, of gates and scales), and gradients of smooth functions and norms, whose statistics
 * stay fp32.  Not attention, whose scores are exponents, nor softmax, losses, masks, maxima,
 * lookups.  One reader that does not tolerate 8 bits keeps the storage uncompressed, because both
 * copies together would take more memory.  Small storages stay uncompressed: the conditioning of a
 * sample matters more than its bytes.
 */
#include <stdlib.h>
#include <string.h>
#include "expr/expr.h"
#include "int8.h"
#include "ops.h"
#include "passes/passes.h"

enum {
    MIN_VALUES = 4096, /* values per sample; a smaller storage stays uncompressed */
    MAX_RESULTS = 4,   /* of an op that is recomputed */
    REUSE_DISTANCE = 8 /* a decoded copy is reused by later ops within this distance */
};

/* Operands that may be read from 8-bit codes. */
static const struct {
    const struct ckpt_op_def *def;
    int operand;
} compressible[] = {
    {&op_linear_dw, 1},
    {&op_conv_dw, 1},
    {&op_grouped_matmul_dw, 0},
    {&op_grouped_matmul_dw, 1},
    {&op_gelu_dx, 1},
    {&op_silu_dx, 1},
    {&op_mul, 0},
    {&op_mul, 1},
    {&op_modulate_dx, 1},
    {&op_gated_residual_dx, 2},
    {&op_layer_norm_dx, 1},
    {&op_layer_norm_affine_dx, 1},
    {&op_layer_norm_modulate_dx, 1},
    {&op_rms_norm_dx, 1},
    {&op_rms_norm_rope_dx, 1},
    {&op_group_norm_dx, 1},
};

/*
 * Functions whose result changes at most in proportion to an argument (bounded slope).  Not exp,
 * powers and quotients, which may be steep, nor comparisons, whose results jump.
 */
static bool has_bounded_slope(const struct expr_node *n, const bool *depends)
{
    switch (n->code) {
    case EXPR_SCALE:
    case EXPR_AFFINE:
    case EXPR_SUM:
    case EXPR_BF16:
    case EXPR_TANH:
    case EXPR_SIGMOID:
    case EXPR_SOFTPLUS:
    case EXPR_ERF:
    case EXPR_GELU:
    case EXPR_SILU:
    case EXPR_ADD:
    case EXPR_SUB:
    case EXPR_MUL:
    case EXPR_GELU_DX:
    case EXPR_SILU_DX:
        return true;
    case EXPR_DIV:
        return !depends[n->arg[1]];
    case EXPR_WHERE:
        return !depends[n->arg[0]];
    default:
        return false;
    }
}

/* Whether all functions that an expression applies to an operand have a bounded slope. */
static bool expr_tolerates_codes(const struct expr *e, int operand)
{
    bool depends[EXPR_NODES] = {false};
    if (e->exact)
        return false;
    for (int i = 0; i < e->n_nodes; i++) {
        const struct expr_node *n = &e->node[i];
        const int arguments = expr_arguments(n->code);
        depends[i] = n->code == EXPR_INPUT && n->arg[0] == operand;
        for (int k = 0; k < arguments; k++)
            depends[i] |= depends[n->arg[k]];
        if (depends[i] && arguments && !has_bounded_slope(n, depends))
            return false;
    }
    return true;
}

/* Ops that take no longer than encoding and decoding their result. */
static const struct ckpt_op_def *const cheap[] = {
    &op_gelu,     &op_silu,     &op_layer_norm, &op_layer_norm_modulate,
    &op_modulate, &op_rms_norm, &op_group_norm, &op_rms_norm_rope,
};

/* Whether op o can recompute its result from a decoded operand. */
static bool may_recompute(const struct op *o, int operand)
{
    if (o->def == &op_expr)
        return !((const struct expr *)o->attr)->reduced && expr_tolerates_codes(o->attr, operand);
    for (size_t i = 0; i < sizeof cheap / sizeof *cheap; i++)
        if (cheap[i] == o->def)
            return operand == 0;
    return false;
}

static bool tolerates_codes(const struct op *o, int operand)
{
    if (o->def == &op_expr)
        return expr_tolerates_codes(o->attr, operand);
    for (size_t i = 0; i < sizeof compressible / sizeof *compressible; i++)
        if (compressible[i].def == o->def && compressible[i].operand == operand)
            return true;
    return false;
}

/* ---- which storages -------------------------------------------------------------------------- */

/* What is known of a storage. */
struct candidate {
    int32_t writer;    /* last op of the forward pass that writes it, or -1 */
    int32_t writers;   /* number of tensors that are written to it */
    int64_t written;   /* number of values of all of them */
    bool read;         /* an op after the forward pass reads it */
    bool uncompressed; /* some reader needs the original */
    bool overwritten;  /* the backward pass writes it */
    bool compressed;   /* the backward pass reads a decoded copy */
    bool recomputed;   /* ... which is recomputed from the codes of its op's operands */
    int32_t codes;     /* tensor of to_int8, or 0 */
    int32_t copy;      /* the last copy that the backward pass reads instead, or 0 */
    int32_t copy_op;   /* the op for which `copy` was made */
};

static void note_reads(const ckpt_tape *t, struct candidate *c, int32_t x)
{
    for (int32_t u = uses_first(t, x); u >= 0; u = uses_next(t, u)) {
        const struct op *o = &t->ops.data[uses_op(t, u)];
        if (o->phase == PHASE_FORWARD || o->def->flags & CKPT_OP_VIEW)
            continue;
        c->read = true;
        c->uncompressed |= o->phase != PHASE_BACKWARD || !tolerates_codes(o, uses_operand(t, u));
    }
}

static void note_write(const ckpt_tape *t, struct candidate *c, int32_t x)
{
    const int32_t i = t->tensors.data[x].op;
    const struct op *o = i >= 0 ? &t->ops.data[i] : NULL;
    if (!o || o->def->flags & CKPT_OP_VIEW)
        return;
    c->writer = o->phase == PHASE_FORWARD && i > c->writer ? i : c->writer;
    c->overwritten |= o->phase == PHASE_BACKWARD;
    c->writers++;
    c->written += desc_numel(&t->tensors.data[x].desc);
    c->uncompressed |= o->phase != PHASE_FORWARD || o->accumulate != ACCUMULATE_NEVER ||
                       (o->def->flags & CKPT_OP_INPLACE);
}

/* Whether each step writes the storage anew, like an activation. */
static bool is_made(const struct storage *s)
{
    return s->kind == STORAGE_ACTIVATION && !s->carried && s->param < 0 && s->feed < 0;
}

static struct candidate note_storage(const ckpt_tape *t, int32_t s)
{
    struct candidate c = {.writer = -1, .uncompressed = !is_made(&t->storages.data[s])};
    for (int32_t x = uses_on(t, s); x; x = uses_older(t, x)) {
        c.uncompressed |= t->tensors.data[x].desc.dtype != CKPT_BF16 || x == t->loss;
        note_reads(t, &c, x);
        note_write(t, &c, x);
    }
    return c;
}

static int find_candidates(ckpt_tape *t, struct candidate **all)
{
    *all = malloc((size_t)(t->n_storages + 1) * sizeof **all);
    if (!*all)
        return tape_fail(t, CKPT_ENOMEM, "no memory to compress activations");
    for (int32_t s = 0; s < t->n_storages; s++)
        (*all)[s] = note_storage(t, s);
    return 0;
}

static int64_t values_of(const ckpt_tape *t, int32_t storage)
{
    return t->storages.data[storage].bytes / ckpt_dtype_size(CKPT_BF16);
}

/* Measured per sample, so the result does not depend on the size of a micro-step. */
static bool is_large(const ckpt_tape *t, int64_t values)
{
    return values / max_i64(1, t->micro_batch) >= MIN_VALUES;
}

/* Whether x is large; a row that broadcasts over all others (scale, shift) is not. */
static bool is_activation(const ckpt_tape *t, int32_t x)
{
    const struct tensor *v = &t->tensors.data[x];
    return is_made(&t->storages.data[v->storage]) && is_large(t, desc_numel(&v->desc));
}

/* Whether a storage is compressed.  Its values must fill it: unwritten gaps would change the scales
 * of the blocks that contain them. */
static bool is_compressed(const ckpt_tape *t, const struct candidate *u, int32_t storage)
{
    return !u->uncompressed && u->writer >= 0 && u->read && u->written == values_of(t, storage) &&
           is_large(t, values_of(t, storage));
}

/* Whether the result of op i can be recomputed from codes of its large operands, of which there
 * must be one or two. */
static bool can_recompute(const ckpt_tape *t, const struct candidate *all, int32_t i)
{
    const struct op *o = &t->ops.data[i];
    const struct ckpt_desc *y = &t->tensors.data[op_out(t, o, 0)].desc;
    int n = 0;
    if (o->n_in > EXPR_INPUTS || o->n_out > MAX_RESULTS || !desc_is_dense(y) || y->offset)
        return false;
    for (int k = 0; k < o->n_in; k++) {
        const int32_t x = op_in(t, o, k), s = x > 0 ? t->tensors.data[x].storage : -1;
        if (s >= 0 && all[s].overwritten)
            return false;
        if (s < 0 || !(all[s].compressed || is_activation(t, x)))
            continue;
        if (!all[s].compressed || all[s].recomputed || !desc_is_dense(&t->tensors.data[x].desc) ||
            !may_recompute(o, k))
            return false;
        n++;
    }
    return n == 1 || n == 2;
}

/* In tape order, so the operands of an op are decided before its result. */
static void select_storages(const ckpt_tape *t, struct candidate *all)
{
    for (int32_t s = 0; s < t->n_storages; s++)
        all[s].compressed = is_compressed(t, &all[s], s);
    for (int32_t i = 0; i < t->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        const int32_t x = o->n_out ? op_out(t, o, 0) : 0;
        struct candidate *u = x > 0 ? &all[t->tensors.data[x].storage] : NULL;
        if (u && u->compressed && u->writer == i && u->writers == 1)
            u->recomputed = can_recompute(t, all, i);
    }
}

/* ---- positions of the new ops ---------------------------------------------------------------- */

/* New ops are appended to the tape, then all ops are sorted by key. */
struct compression {
    ckpt_tape *t;
    struct candidate *storages; /* per storage */
    struct {
        int64_t *data; /* per op: see tape_key() */
        int64_t capacity;
    } keys;
};

static int set_key(struct compression *c, int32_t op, int64_t key)
{
    if (ARRAY_RESERVE(&c->keys, op))
        return tape_fail(c->t, CKPT_ENOMEM, "no memory to compress activations");
    c->keys.data[op] = key;
    return 0;
}

/* Places the ops from `first` to the end of the tape beside op i: after it (side 1) or before it
 * (side -1). */
static int place_beside(struct compression *c, int32_t first, int32_t i, int side)
{
    ckpt_tape *t = c->t;
    int rc = t->error.code;
    for (int32_t k = first; k < t->n_ops && !rc; k++) {
        t->ops.data[k].first_line = t->ops.data[i].first_line;
        rc = set_key(c, k, tape_key(i, side));
    }
    return rc;
}

/* Encodes a storage as a 1-D tensor of values in memory order. */
static int encode(struct compression *c, int32_t storage)
{
    ckpt_tape *t = c->t;
    struct candidate *u = &c->storages[storage];
    const int32_t first = t->n_ops;
    struct ckpt_desc d = {.dtype = CKPT_BF16, .ndim = 1, .shape = {values_of(t, storage)}};
    desc_dense(&d);
    tape_stand_at(t, u->writer);
    ckpt_tensor x = tape_view_tensor(t, tape_handle(t, t->storages.data[storage].tensor), &d);
    u->codes = int8_encode(t, x).id;
    return place_beside(c, first, u->writer, 1);
}

static bool can_reuse_copy(const struct candidate *u, int32_t i)
{
    return u->copy && i - u->copy_op <= REUSE_DISTANCE;
}

/* Decodes a storage for op i, or reuses the copy made for a nearby earlier op. */
static int decode(struct compression *c, int32_t storage, int32_t i)
{
    ckpt_tape *t = c->t;
    struct candidate *u = &c->storages[storage];
    const int32_t first = t->n_ops;
    if (can_reuse_copy(u, i))
        return 0;
    tape_stand_at(t, i);
    u->copy = int8_decode(t, tape_handle(t, u->codes), values_of(t, storage)).id;
    u->copy_op = i;
    return place_beside(c, first, i, -1);
}

/* Tensor x viewed in the decoded copy of its storage. */
static ckpt_tensor view_copy(struct compression *c, int32_t x)
{
    ckpt_tape *t = c->t;
    const struct ckpt_desc d = t->tensors.data[x].desc;
    const int32_t copy = c->storages[t->tensors.data[x].storage].copy;
    return tape_view_tensor(t, tape_handle(t, copy), &d);
}

/* Recomputes a storage for op i: records its producer again on decoded operands.  The new op has
 * the same op number, so it draws the same random numbers. */
static int recompute(struct compression *c, int32_t storage, int32_t i)
{
    ckpt_tape *t = c->t;
    struct candidate *u = &c->storages[storage];
    const struct op o = t->ops.data[u->writer];
    ckpt_tensor in[EXPR_INPUTS], out[MAX_RESULTS];
    if (can_reuse_copy(u, i))
        return 0;
    int rc = 0;
    for (int k = 0; k < o.n_in && !rc; k++) {
        const int32_t x = op_in(t, &o, k), s = x > 0 ? t->tensors.data[x].storage : -1;
        const bool coded = s >= 0 && c->storages[s].compressed;
        rc = coded ? decode(c, s, i) : 0;
        in[k] = coded && !rc ? view_copy(c, x) : x > 0 ? tape_handle(t, x) : CKPT_NONE;
    }
    const int32_t first = t->n_ops;
    tape_stand_at(t, i);
    if (!rc)
        rc = ckpt_record(t, o.def, o.n_in, in, o.n_out, out, o.attr, o.attr_size);
    if (rc)
        return rc;
    t->ops.data[t->n_ops - 1].number = o.number;
    u->copy = out[0].id;
    u->copy_op = i;
    return place_beside(c, first, i, -1);
}

/* Makes op i of the backward pass read copies of the compressed storages. */
static int redirect(struct compression *c, int32_t i)
{
    ckpt_tape *t = c->t;
    int rc = 0;
    for (int k = 0; k < t->ops.data[i].n_in && !rc; k++) {
        const int32_t x = op_in(t, &t->ops.data[i], k);
        const int32_t storage = x > 0 ? t->tensors.data[x].storage : -1;
        if (storage < 0 || !c->storages[storage].compressed)
            continue;
        rc = (c->storages[storage].recomputed ? recompute : decode)(c, storage, i);
        if (!rc) {
            const ckpt_tensor copy = view_copy(c, x);
            rc = t->error.code;
            if (!rc)
                tape_set_input(t, i, k, copy.id);
        }
    }
    return rc;
}

static int record_ops(struct compression *c, int32_t n_ops, int32_t n_storages)
{
    ckpt_tape *t = c->t;
    int rc = 0;
    for (int32_t i = 0; i < n_ops && !rc; i++)
        rc = set_key(c, i, tape_key(i, 0));
    for (int32_t s = 0; s < n_storages && !rc; s++)
        if (c->storages[s].compressed && !c->storages[s].recomputed)
            rc = encode(c, s);
    for (int32_t i = 0; i < n_ops && !rc; i++)
        if (t->ops.data[i].phase == PHASE_BACKWARD && !(t->ops.data[i].def->flags & CKPT_OP_VIEW))
            rc = redirect(c, i);
    return rc;
}

int pass_activations(const struct compilation *of)
{
    ckpt_tape *t = of->tape;
    struct compression c = {.t = t};
    const enum phase phase = t->phase;
    const int32_t n_ops = t->n_ops, n_storages = t->n_storages;
    int rc = find_candidates(t, &c.storages);
    if (!rc)
        select_storages(t, c.storages);
    if (!rc)
        rc = record_ops(&c, n_ops, n_storages);
    if (!rc && t->n_ops > n_ops)
        rc = tape_sort(t, c.keys.data);
    t->phase = phase;
    free(c.storages);
    free(c.keys.data);
    return rc;
}
