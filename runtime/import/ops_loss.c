/* SPDX-License-Identifier: Apache-2.0 */
/* Losses. */
#include <float.h>
#include <math.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/patterns.h"
#include "import/views.h"

/* PyTorch's numbers are 0 none, 1 mean, 2 sum. */
static int reduction(struct call *c)
{
    const int64_t i = call_int(c, "reduction");

    return i == 1 ? CKPT_REDUCE_MEAN : i == 2 ? CKPT_REDUCE_SUM : CKPT_REDUCE_NONE;
}

static struct tensor loss_of(struct call *c, ckpt_tensor y)
{
    if (c->r->failed)
        return tensor_number(c->r, c->dtype, 0, 0);
    return math_cast(c->r, tensor_of(c->r, PT2_F32, y), c->dtype);
}

/* All elements, their mean or their sum. */
static struct tensor reduced(struct call *c, struct tensor a)
{
    const int how = reduction(c);

    tensor_record(c->r, &a);
    if (how == CKPT_REDUCE_NONE || c->r->failed)
        return math_cast(c->r, a, c->dtype);
    ckpt_tensor y = how == CKPT_REDUCE_MEAN ? ckpt_mean(c->r->t, a.x, CKPT_ALL_AXES)
                                            : ckpt_sum(c->r->t, a.x, CKPT_ALL_AXES);
    return loss_of(c, ckpt_reshape(c->r->t, y, 0, NULL));
}

/* ---- of classes ------------------------------------------------------------------------------ */

/* Classes are axis 1, and the last one here. */
static struct tensor classes_last(struct call *c, struct tensor a)
{
    int axes[TENSOR_AXES];

    for (int i = 0; i < a.ndim; i++)
        axes[i] = i == 0 ? 0 : i == a.ndim - 1 ? 1 : i + 1;
    return a.ndim > 2 ? view_permute(c->r, a, axes) : a;
}

/* The linear layer whose results are the logits, one row for each label; or NULL. */
static const struct call *last_layer(struct call *c, const struct tensor *label)
{
    struct variable *self = call_variable(c, "self"), *logits = pattern_plain(self);
    const struct call *layer = pattern_call(logits, "aten.linear.default");

    if (!layer || c->r->failed)
        return NULL;
    /* Nothing is read: that would record the logits of all rows. */
    const struct pt2_tensor *x = self->facts, *y = logits->facts;
    return x->ndim == 2 && y->ndim > 0 && label->ndim == 1 && !x->size[1].expr &&
                   !y->size[y->ndim - 1].expr && x->size[1].n == y->size[y->ndim - 1].n
               ? layer
               : NULL;
}

/* The logits of a chunk of rows at a time. */
static ckpt_tensor layer_and_loss(const struct call *layer, const struct tensor *label,
                                  const struct ckpt_cross_entropy_spec *spec)
{
    struct call of = *layer;
    ckpt_tensor x = call_operand(&of, "input", of.dtype), w = call_operand(&of, "weight", of.dtype);
    ckpt_tensor b = call_operand(&of, "bias", of.dtype);
    const struct ckpt_desc d = ckpt_desc_of(of.r->t, x);

    if (of.r->failed || d.ndim < 1)
        return CKPT_NONE;
    x = ckpt_reshape(of.r->t, x, 2, (int64_t[]){label->shape[0], d.shape[d.ndim - 1]});
    return ckpt_linear_cross_entropy(of.r->t, x, w, b, label->x, spec);
}

/* -log_softmax(x) times the shares of the classes, added; the mean is over the rows. */
static struct tensor cross_entropy_of_shares(struct call *c, struct tensor share)
{
    const double smoothing = call_double(c, "label_smoothing");
    struct tensor x = classes_last(c, math_cast(c->r, call_tensor(c, "self"), PT2_F32));
    const int last = x.ndim - 1;

    share = classes_last(c, math_cast(c->r, share, PT2_F32));
    if (smoothing != 0)
        share = math_affine(c->r, share, 1 - smoothing, smoothing / (double)x.shape[last]);
    ckpt_tensor weight = call_operand(c, "weight", PT2_F32);
    ckpt_tensor y = tensor_record(c->r, &share), logits = tensor_record(c->r, &x);
    if (c->r->failed)
        return x;
    y = ckpt_mul(c->r->t, y, ckpt_log_softmax(c->r->t, logits, last));
    y = weight.id ? ckpt_mul(c->r->t, y, weight) : y;
    y = ckpt_squeeze(c->r->t, ckpt_sum(c->r->t, y, 1u << last), last);
    return reduced(c, tensor_of(c->r, PT2_F32, ckpt_neg(c->r->t, y)));
}

static struct tensor op_cross_entropy(struct call *c, int part)
{
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;
    struct tensor label = call_tensor(c, "target");

    (void)part;
    if (pt2_is_float(label.dtype))
        return cross_entropy_of_shares(c, label);
    spec.ignore_index = (int32_t)call_int(c, "ignore_index");
    spec.label_smoothing = (float)call_double(c, "label_smoothing");
    spec.reduction = reduction(c);
    spec.weight = call_operand(c, "weight", PT2_F32);
    tensor_record(c->r, &label);
    const struct call *layer = last_layer(c, &label);
    if (layer)
        return loss_of(c, layer_and_loss(layer, &label, &spec));
    struct tensor x = classes_last(c, call_tensor(c, "self"));
    tensor_record(c->r, &x);
    return loss_of(c, c->r->failed ? x.x : ckpt_cross_entropy(c->r->t, x.x, label.x, &spec));
}

/* Minus the element at the label, by the weight of its class; the mean divides by the weights. */
static struct tensor op_nll(struct call *c, int part)
{
    struct tensor x = classes_last(c, math_cast(c->r, call_tensor(c, "self"), PT2_F32));
    struct tensor label = call_tensor(c, "target"), zero = tensor_number(c->r, PT2_I64, 0, 0);
    struct tensor ignored = tensor_number(c->r, PT2_I64, 0, call_int(c, "ignore_index"));
    struct tensor counts = math_binary(c->r, BINARY_NE, label, ignored, PT2_BOOL);
    ckpt_tape *t = c->r->t;

    if (part)
        recording_fail(c->r, CKPT_EFORMAT, "the weight of a loss is read");
    label = math_where(c->r, counts, label, zero, PT2_I64);
    counts = math_cast(c->r, counts, PT2_F32);
    ckpt_tensor of = call_operand(c, "weight", PT2_F32), at = tensor_record(c->r, &label);
    ckpt_tensor weight = tensor_record(c->r, &counts), y = tensor_record(c->r, &x);
    const int last = x.ndim - 1;
    if (c->r->failed)
        return x;
    if (of.id)
        weight = ckpt_mul(t, weight, ckpt_index_select(t, of, 0, at));
    y = ckpt_neg(t, ckpt_gather(t, y, last, ckpt_unsqueeze(t, at, last)));
    y = ckpt_squeeze(t, y, last);
    if (reduction(c) == CKPT_REDUCE_MEAN)
        return loss_of(c, ckpt_masked_mean(t, y, weight));
    return reduced(c, tensor_of(c->r, PT2_F32, ckpt_mul(t, y, weight)));
}

/* ---- of differences -------------------------------------------------------------------------- */

static struct tensor difference(struct call *c)
{
    return math_binary(c->r, BINARY_SUB, call_tensor(c, "self"), call_tensor(c, "target"),
                       c->dtype);
}

static struct tensor op_mse(struct call *c, int part)
{
    struct tensor d = difference(c);

    (void)part;
    return reduced(c, math_binary(c->r, BINARY_MUL, d, d, c->dtype));
}

static struct tensor op_l1(struct call *c, int part)
{
    static const struct unary magnitude = {NULL, ckpt_abs};

    (void)part;
    return reduced(c, math_unary(c->r, &magnitude, difference(c), c->dtype));
}

static struct tensor op_smooth_l1(struct call *c, int part)
{
    ckpt_tensor x = call_operand(c, "self", c->dtype), y = call_operand(c, "target", c->dtype);

    (void)part;
    return loss_of(c, c->r->failed ? x
                                   : ckpt_smooth_l1(c->r->t, x, y, (float)call_double(c, "beta"),
                                                    reduction(c)));
}

static struct tensor op_huber(struct call *c, int part)
{
    ckpt_tensor x = call_operand(c, "self", c->dtype), y = call_operand(c, "target", c->dtype);

    (void)part;
    return loss_of(
        c,
        c->r->failed ? x : ckpt_huber(c->r->t, x, y, (float)call_double(c, "delta"), reduction(c)));
}

/* Losses of elements by their weights, if there are any, and reduced. */
static struct tensor weighted(struct call *c, struct tensor a)
{
    if (call_has(c, "weight"))
        a = math_binary(c->r, BINARY_MUL, a, call_tensor(c, "weight"), PT2_F32);
    return reduced(c, a);
}

static struct tensor op_bce_with_logits(struct call *c, int part)
{
    ckpt_tensor x = call_operand(c, "self", c->dtype), y = call_operand(c, "target", c->dtype);
    ckpt_tensor positive = call_operand(c, "pos_weight", c->dtype);

    (void)part;
    if (c->r->failed || !call_has(c, "weight"))
        return loss_of(
            c, c->r->failed ? x : ckpt_bce_with_logits(c->r->t, x, y, positive, reduction(c)));
    x = ckpt_bce_with_logits(c->r->t, x, y, positive, CKPT_REDUCE_NONE);
    return weighted(c, tensor_of(c->r, PT2_F32, x));
}

/* A logarithm where x is above 0, else -100 without a gradient. */
static ckpt_tensor bounded(ckpt_tape *t, ckpt_tensor x, ckpt_tensor log)
{
    ckpt_tensor above = ckpt_gt(t, x, ckpt_full(t, 0.f, CKPT_F32, 0, NULL));

    return ckpt_where(t, above, log, ckpt_full(t, -100.f, CKPT_F32, 0, NULL));
}

/* -(y log x + (1 - y) log(1 - x)), with logarithms of at least -100. */
static struct tensor op_bce(struct call *c, int part)
{
    ckpt_tensor x = call_operand(c, "self", PT2_F32), y = call_operand(c, "target", PT2_F32);
    ckpt_tape *t = c->r->t;

    (void)part;
    if (c->r->failed)
        return tensor_number(c->r, c->dtype, 0, 0);
    ckpt_tensor yes = bounded(t, x, ckpt_log(t, ckpt_clamp(t, x, FLT_MIN, INFINITY)));
    ckpt_tensor below = ckpt_clamp(t, x, -INFINITY, 0x1.fffffep-1f); /* 1 */
    ckpt_tensor no = bounded(t, ckpt_affine(t, x, -1.f, 1.f), ckpt_log1p(t, ckpt_neg(t, below)));
    ckpt_tensor rest = ckpt_affine(t, y, -1.f, 1.f);
    x = ckpt_neg(t, ckpt_add(t, ckpt_mul(t, y, yes), ckpt_mul(t, rest, no)));
    return weighted(c, tensor_of(c->r, PT2_F32, x));
}

static struct tensor op_kl_div(struct call *c, int part)
{
    ckpt_tensor x = call_operand(c, "self", c->dtype), y = call_operand(c, "target", c->dtype);

    (void)part;
    return loss_of(
        c, c->r->failed ? x : ckpt_kl_div(c->r->t, x, y, call_bool(c, "log_target"), reduction(c)));
}

/* ---- of distances ---------------------------------------------------------------------------- */

static struct tensor plus(struct call *c, enum binary f, struct tensor a, struct tensor b)
{
    return math_binary(c->r, f, a, b, c->dtype);
}

static struct tensor number(struct call *c, double f)
{
    return tensor_number(c->r, c->dtype, f, 0);
}

/* What is above 0 of a + b. */
static struct tensor above_zero(struct call *c, struct tensor a, double b)
{
    static const struct unary hinge = {NULL, ckpt_relu};

    return math_unary(c->r, &hinge, plus(c, BINARY_ADD, a, number(c, b)), c->dtype);
}

/* a where the target is so to a number, else 0. */
static struct tensor where_target(struct call *c, enum binary f, double to, struct tensor a)
{
    struct tensor is = math_binary(c->r, f, call_tensor(c, "target"), number(c, to), PT2_BOOL);

    return math_where(c->r, is, a, number(c, 0), c->dtype);
}

static struct tensor distance_of(struct call *c, struct tensor a, const char *other, bool keep)
{
    struct tensor d = plus(c, BINARY_SUB, a, call_tensor(c, other));

    return reduce_norm(c, plus(c, BINARY_ADD, d, number(c, call_double(c, "eps"))),
                       call_double(c, "p"), keep);
}

static struct tensor op_pairwise_distance(struct call *c, int part)
{
    (void)part;
    return distance_of(c, call_tensor(c, "x1"), "x2", call_bool(c, "keepdim"));
}

static struct tensor op_triplet_margin(struct call *c, int part)
{
    struct tensor anchor = call_tensor(c, "anchor");
    struct tensor near = distance_of(c, anchor, "positive", false);
    struct tensor far = distance_of(c, anchor, "negative", false);

    (void)part;
    if (call_bool(c, "swap"))
        far =
            plus(c, BINARY_MIN, far, distance_of(c, call_tensor(c, "positive"), "negative", false));
    return reduced(c, above_zero(c, plus(c, BINARY_SUB, near, far), call_double(c, "margin")));
}

static struct tensor op_margin_ranking(struct call *c, int part)
{
    struct tensor d = plus(c, BINARY_SUB, call_tensor(c, "input2"), call_tensor(c, "input1"));

    (void)part;
    d = plus(c, BINARY_MUL, d, call_tensor(c, "target"));
    return reduced(c, above_zero(c, d, call_double(c, "margin")));
}

static struct tensor op_hinge_embedding(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    struct tensor far = above_zero(c, math_affine(c->r, a, -1, 0), call_double(c, "margin"));

    (void)part;
    return reduced(c, plus(c, BINARY_ADD, where_target(c, BINARY_NE, 1, far),
                           where_target(c, BINARY_NE, -1, a)));
}

static struct tensor op_cosine_embedding(struct call *c, int part)
{
    enum { FIRST, SECOND, BOTH };
    struct tensor x = call_tensor(c, "input1"), y = call_tensor(c, "input2"), s[3];
    static const struct unary root = {NULL, ckpt_sqrt};

    (void)part;
    for (int k = FIRST; k <= BOTH && !c->r->failed; k++) {
        s[k] = plus(c, BINARY_MUL, k == SECOND ? y : x, k == FIRST ? x : y);
        s[k] = reduce_sum(c, s[k], 1u << (s[k].ndim ? s[k].ndim - 1 : 0));
        s[k] = k == BOTH ? s[k] : plus(c, BINARY_ADD, s[k], number(c, 1e-12));
    }
    if (c->r->failed)
        return x;
    y = math_unary(c->r, &root, plus(c, BINARY_MUL, s[FIRST], s[SECOND]), c->dtype);
    x = plus(c, BINARY_DIV, s[BOTH], y);
    y = above_zero(c, x, -call_double(c, "margin"));
    x = math_affine(c->r, x, -1, 1);
    return reduced(c, plus(c, BINARY_ADD, where_target(c, BINARY_EQ, 1, x),
                           where_target(c, BINARY_EQ, -1, y)));
}

/* log(1 + exp(-target x)) */
static struct tensor op_soft_margin(struct call *c, int part)
{
    static const struct unary f = {NULL, ckpt_softplus};
    struct tensor x = plus(c, BINARY_MUL, call_tensor(c, "self"), call_tensor(c, "target"));

    (void)part;
    return reduced(c, math_unary(c->r, &f, math_affine(c->r, x, -1, 0), c->dtype));
}

#define OP(name, record)                                                                           \
    {                                                                                              \
        "aten." name, record, NULL, NULL, false                                                    \
    }

const struct op ops_loss[] = {
    OP("cross_entropy_loss.default", op_cross_entropy),
    OP("nll_loss_nd.default", op_nll),
    OP("nll_loss.default", op_nll),
    OP("nll_loss_forward.default", op_nll),
    OP("nll_loss2d_forward.default", op_nll),
    OP("binary_cross_entropy.default", op_bce),
    OP("mse_loss.default", op_mse),
    OP("l1_loss.default", op_l1),
    OP("smooth_l1_loss.default", op_smooth_l1),
    OP("huber_loss.default", op_huber),
    OP("binary_cross_entropy_with_logits.default", op_bce_with_logits),
    OP("kl_div.default", op_kl_div),
    OP("pairwise_distance.default", op_pairwise_distance),
    OP("triplet_margin_loss.default", op_triplet_margin),
    OP("margin_ranking_loss.default", op_margin_ranking),
    OP("hinge_embedding_loss.default", op_hinge_embedding),
    OP("cosine_embedding_loss.default", op_cosine_embedding),
    OP("soft_margin_loss.default", op_soft_margin),
    {NULL, NULL, NULL, NULL, false},
};
