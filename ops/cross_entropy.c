/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax cross-entropy of rows of class scores, and the same fused with a linear layer.
 *
 * Results: the loss; per row its maximum and the sum of exp(x - maximum), from which the gradient
 * computes probabilities with one read of x; the divisor of the mean and the sum of all class
 * weights.
 *
 * Where the gradient does not depend on the loss, as in training, loss and gradient become one op
 * that reads x once (cross_entropy_both), when the tape is complete: see loss_at_turn.c.
 */
#include <math.h>
#include "adapter.h"
#include "call.h"
#include "decompose.h"
#include "attr.h"
#include "core/sized.h"
#include "ops.h"
#include "recorders.h"
#include "sequence.h"

enum { X, LABEL, WEIGHT };
/* Operands of the gradient. */
enum { DX_DLOSS, DX_X, DX_LABEL, DX_STATS, DX_COUNT, DX_WEIGHT };

static int64_t rows_of(const struct ckpt_desc *x)
{
    int64_t n = 1;
    for (int i = 0; i + 1 < x->ndim; i++)
        n *= x->shape[i];
    return n;
}

static bool is_label(const struct ckpt_desc *label, const struct ckpt_desc *x)
{
    bool fits = label->dtype == CKPT_I32 && label->ndim == x->ndim - 1;
    for (int i = 0; fits && i < label->ndim; i++)
        fits = label->shape[i] == x->shape[i];
    return fits;
}

static int check_rows(struct ckpt_call *call)
{
    const struct ckpt_desc *x = &call->in[X], *weight = &call->in[WEIGHT];
    if (call_float(call, X))
        return CKPT_ESHAPE;
    if (x->ndim < 1 || !is_label(&call->in[LABEL], x))
        return ckpt_call_fail(call, "x must be [..., V] and the label i32 [...]");
    if (call->n_in > WEIGHT && (weight->dtype != CKPT_F32 || weight->ndim != 1 ||
                                weight->shape[0] != x->shape[x->ndim - 1]))
        return ckpt_call_fail(call, "class weights must be fp32 with one axis of size %lld",
                              (long long)x->shape[x->ndim - 1]);
    return CKPT_OK;
}

static int cross_entropy_shape(struct ckpt_call *call)
{
    const struct cross_entropy_attr *attr = call->attr;
    const struct ckpt_desc *x = &call->in[X];
    if (check_rows(call))
        return CKPT_ESHAPE;
    const int64_t rows = rows_of(x);
    call->out[0] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 0};
    if (attr->reduction == CKPT_REDUCE_NONE) {
        call->out[0] = call->in[LABEL];
        call->out[0].dtype = CKPT_F32;
        call->out[0].offset = 0;
        desc_dense(&call->out[0]);
    }
    call->out[1] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 2, .shape = {rows, 2}};
    call->out[2] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 1, .shape = {2}};
    desc_dense(&call->out[1]);
    desc_dense(&call->out[2]);
    return CKPT_OK;
}

static void cross_entropy_grad(struct ckpt_grad *g)
{
    if (!g->need[X] || !g->dout[0].id)
        return;
    ckpt_tensor in[] = {g->dout[0], g->in[X],  g->in[LABEL],
                        g->out[1],  g->out[2], g->n_in > WEIGHT ? g->in[WEIGHT] : CKPT_NONE};
    g->din[X] = ops_record1(g->tape, &op_cross_entropy_dx, g->n_in > WEIGHT ? 6 : 5, in, g->attr,
                            sizeof(struct cross_entropy_attr));
}

OPS_COST(cross_entropy_cost, 10.0, in[X])

OPS_COST(cross_entropy_dx_cost, 10.0, in[DX_X])

OPS_DEF(cross_entropy, .shape = cross_entropy_shape, .grad = cross_entropy_grad,
        .cost = cross_entropy_cost);

static int cross_entropy_dx_shape(struct ckpt_call *call)
{
    call_like(call, 0, DX_X);
    return CKPT_OK;
}

/* The loss of each row, [..., 1]: see ckpt_cross_entropy(). */
static ckpt_tensor row_losses(const struct ckpt_grad *g, const ckpt_tensor *in)
{
    ckpt_tape *t = g->tape;
    const struct cross_entropy_attr *a = g->attr;
    struct ckpt_desc d = ckpt_desc_of(t, in[DX_X]);
    const int64_t classes = d.shape[d.ndim - 1];
    const unsigned last = 1u << (d.ndim - 1);
    d.shape[d.ndim - 1] = 1;
    ckpt_tensor weight =
        g->n_in > DX_WEIGHT ? ckpt_stop_gradient(t, in[DX_WEIGHT]) : ops_scalar(t, 1);
    ckpt_tensor hit = ckpt_one_hot(t, in[DX_LABEL], classes, CKPT_I32);
    ckpt_tensor counts = ckpt_ne(t, ckpt_reshape(t, in[DX_LABEL], d.ndim, d.shape),
                                 ops_scalar(t, (float)a->ignore_index));
    ckpt_tensor lse = ckpt_logsumexp(t, in[DX_X], last);
    ckpt_tensor loss = ckpt_mul(t, weight, ckpt_sub(t, lse, in[DX_X])); /* -c log p */
    ckpt_tensor y = ckpt_sum(t, ckpt_where(t, hit, loss, ops_scalar(t, 0)), last);
    y = ckpt_affine(t, y, 1.f - a->label_smoothing, 0.f);
    if (a->label_smoothing > 0) {
        loss = ckpt_sum(t, loss, last);
        y = ckpt_add(t, y, ckpt_affine(t, loss, a->label_smoothing / (float)classes, 0.f));
    }
    if (a->z_loss > 0) {
        ckpt_tensor at = ckpt_sum(t, ckpt_where(t, hit, weight, ops_scalar(t, 0)), last);
        y = ckpt_add(t, y, ckpt_affine(t, ckpt_mul(t, at, ckpt_mul(t, lse, lse)), a->z_loss, 0.f));
    }
    return ckpt_where(t, counts, y, ops_scalar(t, 0));
}

static void decompose_cross_entropy_dx(const struct ckpt_grad *g, const ckpt_tensor *in,
                                       ckpt_tensor *out)
{
    ckpt_tape *t = g->tape;
    const struct cross_entropy_attr *a = g->attr;
    const struct ckpt_desc d = ckpt_desc_of(t, in[DX_X]), of_dy = ckpt_desc_of(t, in[DX_DLOSS]);
    const int first = ops_count(t);
    ckpt_tensor y = row_losses(g, in);
    if (a->reduction != CKPT_REDUCE_NONE)
        y = ckpt_sum(t, y, ~(~0u << d.ndim));
    y = ckpt_reshape(t, y, of_dy.ndim, of_dy.shape);
    if (a->reduction == CKPT_REDUCE_MEAN) {
        ckpt_tensor count = ckpt_slice(t, ckpt_stop_gradient(t, in[DX_COUNT]), 0, 0, 1);
        count = ckpt_reshape(t, count, 0, NULL);
        count = ckpt_where(t, ckpt_eq(t, count, ops_scalar(t, 0.f)), ops_scalar(t, 1.f), count);
        y = ckpt_div(t, y, count);
    }
    ops_pull(t, first, y, in[DX_DLOSS], 1, &in[DX_X], out);
}

OPS_DECOMPOSED(cross_entropy_dx_grad, decompose_cross_entropy_dx)

OPS_DEF(cross_entropy_dx, .shape = cross_entropy_dx_shape, .grad = cross_entropy_dx_grad,
        .cost = cross_entropy_dx_cost);

/* Loss and gradient of the same rows.  Operands: dloss, x, label and the class weights if any. */
static int cross_entropy_both_shape(struct ckpt_call *call)
{
    const struct cross_entropy_attr *attr = call->attr;
    const struct ckpt_desc *label = &call->in[DX_LABEL];
    call->out[0] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 0};
    if (attr->reduction == CKPT_REDUCE_NONE) {
        call->out[0] = *label;
        call->out[0].dtype = CKPT_F32;
        call->out[0].offset = 0;
    }
    desc_dense(&call->out[0]);
    call_like(call, 1, DX_X);
    return CKPT_OK;
}

OPS_COST(cross_entropy_both_cost, 20.0, in[DX_X])

OPS_DEF(cross_entropy_both, .shape = cross_entropy_both_shape, .cost = cross_entropy_both_cost);

/* {labels, class weights} -> the divisor of a mean over these labels, and the sum of all class
 * weights, 0 without weights. */
static int cross_entropy_count_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *label = &call->in[0], *weight = &call->in[1];
    if (label->dtype != CKPT_I32)
        return ckpt_call_fail(call, "labels must be i32");
    if (call->n_in > 1 && (weight->dtype != CKPT_F32 || weight->ndim != 1))
        return ckpt_call_fail(call, "class weights must be fp32 with one axis");
    call->out[0] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 1, .shape = {2}};
    desc_dense(&call->out[0]);
    return CKPT_OK;
}

OPS_DEF(cross_entropy_count, .shape = cross_entropy_count_shape);

/* ---- recording ------------------------------------------------------------------------------ */

/* Copies and checks the caller's spec.  Returns false if it is invalid; then the tape has the
 * error. */
static bool read_spec(ckpt_tape *t, const struct ckpt_cross_entropy_spec *spec,
                      struct ckpt_cross_entropy_spec *whole)
{
    *whole = (struct ckpt_cross_entropy_spec)CKPT_CROSS_ENTROPY_INIT;
    if (spec && sized_read("struct ckpt_cross_entropy_spec", whole, sizeof *whole, spec))
        return ckpt_tape_fail(t, CKPT_EINVAL, "cross_entropy: %s", error_get()), false;
    if (!(whole->label_smoothing >= 0.f && whole->label_smoothing <= 1.f) ||
        !(whole->z_loss >= 0.f && isfinite(whole->z_loss)) || whole->reduction < CKPT_REDUCE_MEAN ||
        whole->reduction > CKPT_REDUCE_NONE || whole->chunk < 0 ||
        !(whole->cap >= 0.f && isfinite(whole->cap))) {
        ckpt_tape_fail(t, CKPT_EINVAL,
                       "cross_entropy: label_smoothing %g must be in [0, 1], z_loss %g finite and "
                       "0 or more, reduction %d one of three, chunk %lld and cap %g 0 or more",
                       (double)whole->label_smoothing, (double)whole->z_loss, whole->reduction,
                       (long long)whole->chunk, (double)whole->cap);
        return false;
    }
    return true;
}

static struct cross_entropy_attr attr_of(const struct ckpt_cross_entropy_spec *spec, int reduction)
{
    return (struct cross_entropy_attr){.ignore_index = spec->ignore_index,
                                       .reduction = reduction,
                                       .label_smoothing = spec->label_smoothing,
                                       .z_loss = spec->z_loss};
}

/* Records the loss of rows with the given reduction. classes: as in struct cross_entropy_attr. */
static ckpt_tensor record_rows(ckpt_tape *t, ckpt_tensor x, ckpt_tensor label,
                               const struct ckpt_cross_entropy_spec *spec, int reduction,
                               int64_t classes)
{
    struct cross_entropy_attr attr = attr_of(spec, reduction);
    attr.classes = classes;
    ckpt_tensor in[] = {x, label, spec->weight}, out[3] = {CKPT_NONE};
    ckpt_record(t, &op_cross_entropy, spec->weight.id ? 3 : 2, in, 3, out, &attr, sizeof attr);
    return out[0];
}

/* The divisor of the mean over all labels of a step.  It needs no logits, so the gradient of the
 * first chunk does not wait for the last chunk. */
static ckpt_tensor count_labels(ckpt_tape *t, ckpt_tensor label,
                                const struct ckpt_cross_entropy_spec *spec)
{
    const struct cross_entropy_attr attr = attr_of(spec, CKPT_REDUCE_MEAN);
    ckpt_tensor in[] = {label, spec->weight};
    const int n = spec->weight.id ? 2 : 1;
    ckpt_tape *on = tape_count_on(t, "cross_entropy", n, in);
    ckpt_tensor count = ops_record1(on, &op_cross_entropy_count, n, in, &attr, sizeof attr);
    return tape_mean_count(t, on, ckpt_reshape(on, ckpt_slice(on, count, 0, 0, 1), 0, NULL));
}

/* The loss of all rows. */
static ckpt_tensor record_whole(ckpt_tape *t, ckpt_tensor x, ckpt_tensor label,
                                const struct ckpt_cross_entropy_spec *spec, int64_t classes)
{
    if (spec->reduction != CKPT_REDUCE_MEAN || !tape_has_parts(t))
        return record_rows(t, x, label, spec, spec->reduction, classes);
    ckpt_tensor mean = record_rows(t, x, label, spec, CKPT_REDUCE_SUM, classes);
    const int32_t number = tape_number(t); /* as after the one op of a step in one part */
    mean = ops_over_count(t, mean, count_labels(t, label, spec));
    tape_set_number(t, number);
    return mean;
}

ckpt_tensor ckpt_cross_entropy(ckpt_tape *t, ckpt_tensor x, ckpt_tensor label,
                               const struct ckpt_cross_entropy_spec *spec)
{
    struct ckpt_cross_entropy_spec whole;
    if (!read_spec(t, spec, &whole))
        return CKPT_NONE;
    return record_whole(t, ops_soft_cap(t, x, whole.cap), label, &whole, 0);
}

/* ---- fused with a linear layer --------------------------------------------------------------- */

/* Logits in one chunk.  1 GiB in bf16: the products of GPT-2 124M run at 751 to 791 TFLOP/s on an
 * H100 with 8,192 rows, at 565 to 715 with 4,096. */
enum { LOGITS_AT_ONCE = 1 << 29 };

/* The smallest number of equal parts with at most `max_rows` rows each, limited to CKPT_MAX_PARTS.
 */
static int parts_of(int64_t rows, int64_t max_rows)
{
    for (int64_t n = 1; n <= CKPT_MAX_PARTS; n++)
        if (rows % n == 0 && rows / n <= max_rows)
            return (int)n;
    for (int n = CKPT_MAX_PARTS; n > 1; n--)
        if (rows % n == 0)
            return n;
    return 1;
}

/* The logits, in full precision: the last layer of a model is never computed in 8 bits. */
static ckpt_tensor logits_of(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b, float cap)
{
    const bool before = t->full_precision;
    ckpt_full_precision(t, true);
    ckpt_tensor y = ckpt_linear(t, x, w, b);
    ckpt_full_precision(t, before);
    return ops_soft_cap(t, y, cap);
}

/* Rows of logits that are multiples of 16 bytes: products of others take several times as long
 * (doc/bench/h200.md).  A score of LOW has probability 0. */
enum { ALIGNED = 8, FEW_CLASSES = 256 };
#define LOW (-1e30f)

/* Gives the layer rows that are no classes, so that rows of its scores are aligned.  Returns the
 * number of classes, or 0: all rows are. */
static int64_t align_classes(ckpt_tape *t, ckpt_tensor *w, ckpt_tensor *b,
                             const struct ckpt_cross_entropy_spec *spec)
{
    const struct ckpt_desc d = ckpt_desc_of(t, *w);
    const int64_t classes = d.ndim == 2 ? d.shape[0] : 0, more = -classes & (ALIGNED - 1);
    if (d.dtype != CKPT_BF16 || !more || spec->cap > 0 || classes < FEW_CLASSES ||
        spec->weight.id || spec->label_smoothing > 0 || find_adapter(t, *w))
        return 0;
    const ckpt_tensor bias = b->id ? *b : ops_fill(t, 0.f, d.dtype, 1, &classes);
    *w = ckpt_pad(t, *w, 0, 0, more, CKPT_PAD_CONSTANT, 0.f);
    *b = ckpt_pad(t, bias, 0, 0, more, CKPT_PAD_CONSTANT, LOW);
    return classes;
}

/* The number of ops recorded from op `first` on that are no views, as feeds and copies are. */
static int32_t ops_since(const ckpt_tape *t, int32_t first)
{
    int32_t n = 0;
    for (int32_t i = first; i < t->n_ops; i++)
        n += !(t->ops.data[i].def->flags & CKPT_OP_VIEW);
    return n;
}

/* A chunk has no axis of samples, by whose number dropout draws. */
static void refuse_dropout(ckpt_tape *t, ckpt_tensor w)
{
    const struct param *p = t->trains ? find_adapter(t, w) : NULL;
    const struct params *ps = t->env.params;
    for (int32_t a = p ? p->training.lora : 0; a; a = ps->data[a].training.factor.next) {
        if (!(ps->data[a].training.factor.dropout > 0.f))
            continue;
        ckpt_tape_fail(t, CKPT_EINVAL,
                       "linear_cross_entropy: '%s' has an adapter with dropout (ckpt_lora), which "
                       "this op has not",
                       p->name);
        return;
    }
}

/* The result of all chunks: their losses one after the other with the shape of the labels, or their
 * sum. */
static ckpt_tensor join_chunks(ckpt_tape *t, int n, const ckpt_tensor *part, bool each,
                               const struct ckpt_desc *label)
{
    const int32_t number = tape_number(t);
    ckpt_tensor sum = part[0];
    if (each)
        return ckpt_reshape(t, ckpt_concat(t, 0, n, part), label->ndim, label->shape);
    for (int i = 1; i < n; i++) {
        tape_set_number(t, number);
        sum = ckpt_add(t, sum, part[i]);
    }
    return sum;
}

/*
 * Records one chunk after the other.  A training step holds the logits of one chunk at a time
 * (loss_at_turn.c) where the gradient does not depend on the losses; where it may, as with the
 * losses of single rows, the logits of each chunk are a tensor of their own, which a plan keeps or
 * recomputes.  Later ops draw the random numbers that they draw after one chunk, since the number
 * of chunks depends on the micro-batch.
 */
ckpt_tensor ckpt_linear_cross_entropy(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                                      ckpt_tensor label, const struct ckpt_cross_entropy_spec *spec)
{
    OPS_CALL(t);
    struct ckpt_cross_entropy_spec whole;
    struct ckpt_desc of_x = ckpt_desc_of(t, x), of_w = ckpt_desc_of(t, w);
    ckpt_tensor xs[CKPT_MAX_PARTS], labels[CKPT_MAX_PARTS], part[CKPT_MAX_PARTS];
    if (!read_spec(t, spec, &whole))
        return CKPT_NONE;
    const int64_t rows = of_x.ndim > 0 ? rows_of(&of_x) : 0;
    const int64_t classes = of_w.ndim > 0 ? max_i64(1, of_w.shape[0]) : 1;
    const int64_t chunk = whole.chunk ? whole.chunk : max_i64(1, LOGITS_AT_ONCE / classes);
    const int n = rows > 0 ? parts_of(rows, chunk) : 1;
    const int64_t few = align_classes(t, &w, &b, &whole);
    refuse_dropout(t, w);
    if (n == 1)
        return record_whole(t, logits_of(t, x, w, b, whole.cap), label, &whole, few);
    const int32_t first = t->n_ops, start = tape_number(t);
    const bool in_order = sequence_as_rows(t, true);
    ckpt_split(t, ckpt_reshape(t, x, 2, (int64_t[]){rows, of_x.shape[of_x.ndim - 1]}), 0, n, xs);
    ckpt_split(t, ckpt_reshape(t, label, 1, &rows), 0, n, labels);
    sequence_as_rows(t, in_order);
    const int32_t number = start + ops_since(t, first); /* one chunk reads x and label, too */
    int32_t next = number;
    const bool mean = whole.reduction == CKPT_REDUCE_MEAN,
               each = whole.reduction == CKPT_REDUCE_NONE;
    const struct ckpt_desc of_label = ckpt_desc_of(t, label);
    const ckpt_tensor count = mean ? count_labels(t, label, &whole) : CKPT_NONE;
    for (int i = 0; i < n; i++) {
        tape_set_number(t, number);
        part[i] = record_rows(t, logits_of(t, xs[i], w, b, whole.cap), labels[i], &whole,
                              each ? CKPT_REDUCE_NONE : CKPT_REDUCE_SUM, few);
        next = i ? next : tape_number(t); /* the first chunk may record a parameter, too */
    }
    tape_set_number(t, number);
    ckpt_tensor loss = join_chunks(t, n, part, each, &of_label);
    if (mean)
        loss = ops_over_count(t, loss, count);
    tape_set_number(t, next);
    return loss;
}
