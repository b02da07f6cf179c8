/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers, products of matrices, tables, dropout. */
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/views.h"

/* Rows of addmm in the shape they had before they became a matrix. */
static ckpt_tensor rows_of(struct call *c)
{
    struct tensor a = math_cast(c->r, call_tensor(c, "mat1"), c->dtype);

    tensor_record(c->r, &a);
    const struct ckpt_desc d = ckpt_desc_of(c->r->t, a.whole);
    return a.whole.id && d.ndim > 0 && d.shape[d.ndim - 1] == a.shape[a.ndim - 1] ? a.whole : a.x;
}

/* With a shape that it may have already: whatever looks back from the result then finds its op. */
static ckpt_tensor with_shape(ckpt_tape *t, ckpt_tensor x, int ndim, const int64_t *shape)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);

    if (d.ndim == ndim && !memcmp(d.shape, shape, (size_t)ndim * sizeof *shape))
        return x;
    return ckpt_reshape(t, x, ndim, shape);
}

ckpt_tensor record_layer(const struct call *layer, ckpt_tensor addend)
{
    struct call c = *layer;
    ckpt_tape *t = c.r->t;
    const bool matrices = !strcmp(c.op->name, "aten.addmm.default");
    struct tensor w = math_cast(c.r, call_tensor(&c, matrices ? "mat2" : "weight"), c.dtype);
    ckpt_tensor x = matrices ? rows_of(&c) : call_operand(&c, "input", c.dtype);
    ckpt_tensor b = call_operand(&c, matrices ? "self" : "bias", c.dtype);

    tensor_record(c.r, &w);
    w.constant = false;
    w = matrices && !c.r->failed ? view_swap(c.r, w, 0, 1) : w;
    if (c.r->failed)
        return CKPT_NONE;
    if (!addend.id)
        return ckpt_linear(t, x, w.x, b);
    const struct ckpt_desc d = ckpt_desc_of(t, addend), of_x = ckpt_desc_of(t, x);
    int64_t shape[TENSOR_AXES];
    memcpy(shape, of_x.shape, sizeof shape);
    if (of_x.ndim > 0)
        shape[of_x.ndim - 1] = w.shape[0];
    ckpt_tensor y = ckpt_linear_add(t, x, w.x, b, with_shape(t, addend, of_x.ndim, shape));
    return with_shape(t, y, d.ndim, d.shape);
}

static struct tensor op_linear(struct call *c, int part)
{
    ckpt_tensor y = record_layer(c, CKPT_NONE);
    int64_t shape[TENSOR_AXES];

    (void)part;
    if (c->r->failed)
        return tensor_number(c->r, c->dtype, 0, 0);
    struct tensor a = tensor_of(c->r, c->dtype, y);
    if (a.ndim == c->facts->ndim)
        return a;
    shape[0] = tensor_numel(&a) / a.shape[a.ndim - 1]; /* of addmm a matrix */
    shape[1] = a.shape[a.ndim - 1];
    return view_reshape(c->r, a, 2, shape);
}

/* ---- products -------------------------------------------------------------------------------- */

/* One matrix for many is a linear layer. */
static ckpt_tensor matrices(struct call *c, const struct tensor *a, const struct tensor *b)
{
    if (b->ndim == 2 && a->ndim > 2)
        return ckpt_linear(c->r->t, a->x, view_swap(c->r, *b, 0, 1).x, CKPT_NONE);
    return ckpt_matmul(c->r->t, a->x, b->x, false, false);
}

/* A column by a row, both constants, as angles of positions are made: the host multiplies them. */
static bool is_outer(const struct tensor *a, const struct tensor *b)
{
    return a->constant && b->constant && a->ndim > 1 && b->ndim > 1 && a->shape[a->ndim - 1] == 1 &&
           b->shape[b->ndim - 2] == 1;
}

static struct tensor product_of(struct call *c, struct tensor a, struct tensor b)
{
    if (is_outer(&a, &b))
        return math_binary(c->r, BINARY_MUL, a, b, c->dtype);
    tensor_record(c->r, &a);
    tensor_record(c->r, &b);
    a.constant = b.constant = false;
    return c->r->failed ? a : tensor_of(c->r, c->dtype, matrices(c, &a, &b));
}

/* A vector is a matrix of one row, or of one column. */
struct tensor record_product(struct call *c, struct tensor a, struct tensor b)
{
    const bool row = a.ndim == 1, column = b.ndim == 1;

    a = math_cast(c->r, row ? view_unsqueeze(c->r, a, 0) : a, c->dtype);
    b = math_cast(c->r, column ? view_unsqueeze(c->r, b, 1) : b, c->dtype);
    struct tensor y = product_of(c, a, b);
    if (column && !c->r->failed)
        y = view_squeeze(c->r, y, y.ndim - 1);
    return row && !c->r->failed ? view_squeeze(c->r, y, y.ndim - (column ? 1 : 2)) : y;
}

static struct tensor op_matmul(struct call *c, int part)
{
    const bool plain = !strcmp(c->op->name, "aten.matmul.default");

    (void)part;
    return record_product(c, call_tensor(c, "self"), call_tensor(c, plain ? "other" : "mat2"));
}

/* beta self + alpha (a b). */
static struct tensor product_and(struct call *c, const char *a, const char *b)
{
    const double alpha = call_double(c, "alpha"), beta = call_double(c, "beta");
    struct tensor y = record_product(c, call_tensor(c, a), call_tensor(c, b));
    struct tensor x = call_tensor(c, "self");

    if (alpha != 1)
        y = math_affine(c->r, y, alpha, 0);
    if (beta == 0)
        return y;
    if (beta != 1)
        x = math_binary(c->r, BINARY_MUL, x, tensor_number(c->r, c->dtype, beta, 0), c->dtype);
    return math_binary(c->r, BINARY_ADD, x, y, c->dtype);
}

/* x w + b with w stored [in, out] is a linear layer of w with its axes swapped. */
static struct tensor op_addmm(struct call *c, int part)
{
    struct tensor b = call_tensor(c, "self");

    (void)part;
    if (call_double(c, "alpha") != 1 || call_double(c, "beta") != 1 || b.ndim != 1)
        return product_and(c, "mat1", "mat2");
    return op_linear(c, part);
}

static struct tensor op_baddbmm(struct call *c, int part)
{
    (void)part;
    return product_and(c, "batch1", "batch2");
}

/* ---- products of row groups ------------------------------------------------------------------ */

/* Rows sorted by group, a matrix for each group, and the ends of the groups. */
static struct tensor products(struct call *c, struct tensor x, struct tensor w)
{
    struct tensor offsets = math_cast(c->r, call_tensor(c, "offs"), PT2_I32);

    x = math_cast(c->r, x, c->dtype);
    w = math_cast(c->r, w, c->dtype);
    if (x.ndim != 2 || w.ndim != 3)
        recording_fail(c->r, CKPT_EFORMAT, "products of groups that are no rows");
    tensor_record(c->r, &x);
    tensor_record(c->r, &w);
    tensor_record(c->r, &offsets);
    if (c->r->failed)
        return x;
    const bool swapped = w.plain.id && w.order[0] == 0 && w.order[1] == 2;
    return tensor_of(
        c->r, c->dtype,
        ckpt_grouped_matmul(c->r->t, x.x, swapped ? w.plain : w.x, offsets.x, swapped));
}

static struct tensor op_grouped_mm(struct call *c, int part)
{
    struct tensor x = call_tensor(c, "self"), w = call_tensor(c, "mat2");

    (void)part;
    if (call_has(c, "bias"))
        recording_fail(c->r, CKPT_EFORMAT, "products of groups with a bias");
    return call_has(c, "offs") ? products(c, x, w) : record_product(c, x, w);
}

/* The op of transformers. */
static struct tensor op_grouped_mm_fallback(struct call *c, int part)
{
    (void)part;
    return products(c, call_tensor(c, "input"), call_tensor(c, "weight"));
}

/* ---- tables ---------------------------------------------------------------------------------- */

static struct tensor op_embedding(struct call *c, int part)
{
    struct tensor table = call_tensor(c, "weight"), index = call_tensor(c, "indices");
    int64_t padding = call_int(c, "padding_idx");

    (void)part;
    if (call_bool(c, "scale_grad_by_freq"))
        recording_fail(c->r, CKPT_EFORMAT, "gradients scaled by frequency cannot be recorded");
    tensor_record(c->r, &table);
    tensor_record(c->r, &index);
    if (c->r->failed)
        return table;
    padding = padding < -1 ? padding + table.shape[0] : padding;
    return tensor_of(c->r, c->dtype, ckpt_embedding(c->r->t, table.x, index.x, padding));
}

/* ---- dropout --------------------------------------------------------------------------------- */

static struct tensor op_dropout(struct call *c, int part)
{
    struct tensor a = call_tensor(c, pt2_arg_find(c->node, "input") ? "input" : "self");
    const double p = call_double(c, "p");

    if (part)
        recording_fail(c->r, CKPT_EFORMAT, "the mask of a dropout is read");
    if (p == 0 || (call_has(c, "train") && !call_bool(c, "train")))
        return a;
    if (p == 1)
        return view_expand(c->r, tensor_number(c->r, c->dtype, 0, 0), a.ndim, a.shape);
    tensor_record(c->r, &a);
    return c->r->failed ? a : tensor_of(c->r, c->dtype, ckpt_dropout(c->r->t, a.x, (float)p));
}

/* Channels, the first two axes, are dropped as a whole. */
static struct tensor op_feature_dropout(struct call *c, int part)
{
    struct tensor a = call_tensor(c, pt2_arg_find(c->node, "input") ? "input" : "self");
    const double p = call_double(c, "p");
    int64_t shape[TENSOR_AXES];

    (void)part;
    if (p == 0 || !call_bool(c, "train"))
        return a;
    if (a.ndim < 2 || !(p > 0 && p < 1))
        recording_fail(c->r, CKPT_EFORMAT, "channels of %d axes dropped at a rate of %g", a.ndim,
                       p);
    if (c->r->failed)
        return a;
    for (int i = 0; i < a.ndim; i++)
        shape[i] = i < 2 ? a.shape[i] : 1;
    ckpt_tensor kept = ckpt_bernoulli(c->r->t, (float)(1 - p), tape_dtype(c->dtype), a.ndim, shape);
    kept = ckpt_affine(c->r->t, kept, (float)(1 / (1 - p)), 0.f);
    return math_binary(c->r, BINARY_MUL, a, tensor_of(c->r, c->dtype, kept), c->dtype);
}

#define OP(name, record)                                                                           \
    {                                                                                              \
        "aten." name, record, NULL, NULL, false                                                    \
    }

const struct op ops_layer[] = {
    OP("linear.default", op_linear),
    OP("matmul.default", op_matmul),
    OP("mm.default", op_matmul),
    OP("bmm.default", op_matmul),
    OP("addmm.default", op_addmm),
    OP("baddbmm.default", op_baddbmm),
    OP("embedding.default", op_embedding),
    OP("dropout.default", op_dropout),
    OP("native_dropout.default", op_dropout),
    OP("feature_dropout.default", op_feature_dropout),
    OP("_grouped_mm.default", op_grouped_mm),
    {"transformers.grouped_mm_fallback.default", op_grouped_mm_fallback, NULL, NULL, false},
    {NULL, NULL, NULL, NULL, false},
};
