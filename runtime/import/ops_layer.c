/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers, products of matrices, tables, dropout. */
#include <math.h>
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

/* A layer without inputs: its matrix has no elements, and the product is zeros. */
static ckpt_tensor layer_of_nothing(struct call *c, bool matrices, ckpt_tensor addend)
{
    struct tensor w = call_tensor(c, matrices ? "mat2" : "weight");
    struct tensor y = record_product(c, call_tensor(c, matrices ? "mat1" : "input"),
                                     matrices ? w : view_swap(c->r, w, 0, 1));
    const char *bias = matrices ? "self" : "bias";

    if (call_has(c, bias))
        y = math_binary(c->r, BINARY_ADD, y, call_tensor(c, bias), c->dtype);
    if (addend.id)
        y = math_binary(c->r, BINARY_ADD, y, tensor_of(c->r, c->dtype, addend), c->dtype);
    return tensor_record(c->r, &y);
}

ckpt_tensor record_layer(const struct call *layer, ckpt_tensor addend)
{
    struct call c = *layer;
    ckpt_tape *t = c.r->t;
    const bool matrices = !strcmp(c.op->name, "aten.addmm.default");
    struct tensor w = math_cast(c.r, call_tensor(&c, matrices ? "mat2" : "weight"), c.dtype);
    if (!tensor_numel(&w))
        return layer_of_nothing(&c, matrices, addend);
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

/* Sums of no products. */
static struct tensor product_of_nothing(struct call *c, struct tensor a, struct tensor b)
{
    a = view_unsqueeze(c->r, a, a.ndim);
    b = view_unsqueeze(c->r, b, b.ndim - 2);
    a = math_binary(c->r, BINARY_MUL, a, b, c->dtype);
    return c->r->failed ? a : reduce_sum(c, a, 1u << (a.ndim - 2));
}

static struct tensor product_of(struct call *c, struct tensor a, struct tensor b)
{
    if (!tensor_numel(&a))
        return product_of_nothing(c, a, b);
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

/* (a + bi)(c + di) */
static struct tensor complex_product(struct call *c, const char *other)
{
    const bool i = c->imaginary;
    struct tensor x = record_product(c, call_part(c, "self", false), call_part(c, other, i));
    struct tensor y = record_product(c, call_part(c, "self", true), call_part(c, other, !i));

    return math_binary(c->r, i ? BINARY_ADD : BINARY_SUB, x, y, c->dtype);
}

static struct tensor op_matmul(struct call *c, int part)
{
    static const char *const names[] = {"mat2", "tensor", "vec", "other"};
    int k = 0;

    (void)part;
    while (k < 3 && !pt2_arg_find(c->node, names[k]))
        k++;
    if (pt2_is_complex(c->facts->dtype))
        return complex_product(c, names[k]);
    return record_product(c, call_tensor(c, "self"), call_tensor(c, names[k]));
}

struct tensor add_product(struct call *c, struct tensor y)
{
    const double beta = call_double(c, "beta");

    y = math_times(c->r, y, call_double(c, "alpha"));
    if (beta == 0)
        return y;
    return math_binary(c->r, BINARY_ADD, math_times(c->r, call_tensor(c, "self"), beta), y,
                       c->dtype);
}

static struct tensor product_and(struct call *c, const char *a, const char *b)
{
    return add_product(c, record_product(c, call_tensor(c, a), call_tensor(c, b)));
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

static struct tensor op_addmv(struct call *c, int part)
{
    (void)part;
    return product_and(c, "mat", "vec");
}

/* Result k of a row is x times the k-th matrix times y. */
static struct tensor op_bilinear(struct call *c, int part)
{
    struct tensor x = call_tensor(c, "input1"), y = call_tensor(c, "input2");
    struct tensor w = call_tensor(c, "weight");

    (void)part;
    if (w.ndim != 3 || !x.ndim || x.ndim == TENSOR_AXES)
        recording_fail(c->r, CKPT_EFORMAT, "matrices of a bilinear layer with %d axes", w.ndim);
    if (c->r->failed)
        return x;
    int64_t shape[TENSOR_AXES + 1] = {w.shape[1], w.shape[0] * w.shape[2]};
    w = view_reshape(c->r, view_permute(c->r, w, (int[]){1, 0, 2}), 2, shape);
    const int64_t n = y.ndim ? y.shape[y.ndim - 1] : 1;
    x = record_product(c, x, w);
    memcpy(shape, x.shape, sizeof x.shape);
    const int last = x.ndim - 1;
    shape[last] /= n;
    shape[last + 1] = n;
    x = c->r->failed ? x : view_reshape(c->r, x, last + 2, shape);
    y = c->r->failed ? y : view_unsqueeze(c->r, y, last);
    x = reduce_sum(c, math_binary(c->r, BINARY_MUL, x, y, c->dtype), 1u << (last + 1));
    return call_has(c, "bias") ? math_binary(c->r, BINARY_ADD, x, call_tensor(c, "bias"), c->dtype)
                               : x;
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

/* Rows of a table that are joined by bags, each from its offset in the list of indices on. */
struct bags {
    struct tensor rows, of, counts; /* [n, width]; the bag of each [n]; 1 where it counts [n] */
    int64_t n, count, each;         /* rows, bags, and the rows that all have, or 0 */
};

/* The rows that all bags have, or 0. */
static int64_t rows_of_each(const struct tensor *offsets, int64_t rows, int64_t count)
{
    const int64_t each = count > 0 ? rows / count : 0;
    bool even = offsets->constant && each * count == rows;

    for (int64_t k = 0; k < count && even; k++)
        even = tensor_i(offsets, k) == k * each;
    return even ? each : 0;
}

/* As many offsets as are not above its position: the bag of a row, counted from 1. */
static struct tensor bag_of(struct call *c, struct tensor offsets, int64_t rows)
{
    struct tensor place = tensor_zeros(c->r, PT2_I64, 2, (int64_t[]){rows, 1});
    const struct tensor one = tensor_number(c->r, PT2_I64, 1, 1);
    struct call of = *c;

    of.dtype = PT2_I64;
    for (int64_t k = 0; k < rows && !c->r->failed; k++)
        place.i[k] = k;
    place = math_binary(c->r, BINARY_GE, place, view_unsqueeze(c->r, offsets, 0), PT2_BOOL);
    place = reduce_sum(&of, math_cast(c->r, place, PT2_I64), 2);
    return math_binary(c->r, BINARY_SUB, place, one, PT2_I64);
}

static struct bags read_bags(struct call *c)
{
    struct bags b = {.of = call_tensor(c, "offsets")};
    struct tensor table = call_tensor(c, "weight"), index = call_tensor(c, "indices");
    struct tensor one = tensor_number(c->r, PT2_F32, 1, 1);
    int64_t skipped = call_has(c, "padding_idx") ? call_int(c, "padding_idx") : -1;

    if (call_bool(c, "scale_grad_by_freq") || b.of.ndim != 1 || index.ndim != 1 || table.ndim != 2)
        recording_fail(c->r, CKPT_EFORMAT, "these bags of an embedding cannot be recorded");
    if (c->r->failed)
        return b;
    b.n = index.shape[0];
    b.count = b.of.shape[0] - call_bool(c, "include_last_offset");
    b.of = view_slice(c->r, b.of, 0, 0, b.count, 1);
    b.each = rows_of_each(&b.of, b.n, b.count);
    b.of = bag_of(c, b.of, b.n);
    b.counts = view_expand(c->r, one, 1, &b.n);
    if (skipped >= 0)
        b.counts = math_cast(
            c->r,
            math_binary(c->r, BINARY_NE, index, tensor_number(c->r, PT2_I64, 0, skipped), PT2_BOOL),
            PT2_F32);
    tensor_record(c->r, &table);
    tensor_record(c->r, &index);
    if (!c->r->failed)
        b.rows = tensor_of(c->r, c->dtype, ckpt_embedding(c->r->t, table.x, index.x, skipped));
    return b;
}

/* The sums over the rows of each bag: [count, width]. */
static struct tensor sum_bags(struct call *c, const struct bags *b, struct tensor rows)
{
    struct tensor zeros, of = b->of;
    int64_t shape[3] = {b->count, b->each, c->r->failed ? 0 : rows.shape[1]};

    if (c->r->failed)
        return rows;
    if (b->each)
        return reduce_sum(c, view_reshape(c->r, rows, 3, shape), 2);
    shape[1] = shape[2];
    zeros = tensor_zeros(c->r, c->dtype, 2, shape);
    tensor_record(c->r, &zeros);
    tensor_record(c->r, &of);
    tensor_record(c->r, &rows);
    return c->r->failed
               ? rows
               : tensor_of(c->r, c->dtype, ckpt_index_add(c->r->t, zeros.x, 0, of.x, rows.x));
}

/* Sums, means or the largest of the rows of bags. */
static struct tensor op_embedding_bag(struct call *c, int part)
{
    enum { SUM, MEAN, MAX };
    const int64_t mode = call_int(c, "mode");
    struct bags b = read_bags(c);

    if (part || (mode == MAX && (!b.each || call_has(c, "padding_idx"))))
        recording_fail(c->r, CKPT_EFORMAT, "the largest of bags that differ, or a second result");
    if (c->r->failed)
        return tensor_number(c->r, c->dtype, 0, 0);
    if (mode == MAX)
        return reduce_largest(
            c, view_reshape(c->r, b.rows, 3, (int64_t[]){b.count, b.each, b.rows.shape[1]}), 1);
    struct tensor weight = b.counts;
    if (call_has(c, "per_sample_weights"))
        weight =
            math_binary(c->r, BINARY_MUL, weight, call_tensor(c, "per_sample_weights"), PT2_F32);
    weight = c->r->failed ? weight : view_unsqueeze(c->r, weight, 1);
    struct tensor y = sum_bags(c, &b, math_binary(c->r, BINARY_MUL, b.rows, weight, c->dtype));
    if (mode == SUM || c->r->failed)
        return y;
    struct tensor n = sum_bags(c, &b, math_cast(c->r, view_unsqueeze(c->r, b.counts, 1), c->dtype));
    n = math_binary(c->r, BINARY_MAX, n, tensor_number(c->r, c->dtype, 1, 1), c->dtype);
    return math_binary(c->r, BINARY_DIV, y, n, c->dtype);
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

/* One random value for each element, or for each channel of the first two axes: 1 is kept. */
static struct tensor kept_ones(struct call *c, const struct tensor *a, double p, bool channels)
{
    int64_t shape[TENSOR_AXES];

    if ((channels && a->ndim < 2) || !(p > 0 && p < 1))
        recording_fail(c->r, CKPT_EFORMAT, "elements of %d axes dropped at a rate of %g", a->ndim,
                       p);
    if (c->r->failed)
        return *a;
    for (int i = 0; i < a->ndim; i++)
        shape[i] = !channels || i < 2 ? a->shape[i] : 1;
    return tensor_of(c->r, c->dtype,
                     ckpt_bernoulli(c->r->t, (float)(1 - p), tape_dtype(c->dtype), a->ndim, shape));
}

/* Channels, the first two axes, are dropped as a whole. */
static struct tensor op_feature_dropout(struct call *c, int part)
{
    struct tensor a = call_tensor(c, pt2_arg_find(c->node, "input") ? "input" : "self");
    const double p = call_double(c, "p");

    (void)part;
    if (p == 0 || !call_bool(c, "train"))
        return a;
    struct tensor kept = kept_ones(c, &a, p, true);
    kept = c->r->failed ? kept : math_affine(c->r, kept, 1 / (1 - p), 0);
    return math_binary(c->r, BINARY_MUL, a, kept, c->dtype);
}

/* What is dropped becomes the least value of SELU; mean and variance stay (Klambauer et al. 2017).
 */
static struct tensor op_alpha_dropout(struct call *c, int part)
{
    struct tensor a = call_tensor(c, pt2_arg_find(c->node, "input") ? "input" : "self");
    const double p = call_double(c, "p"), least = 1.7580993408473766;
    const double scale = 1 / sqrt((least * least * p + 1) * (1 - p));

    (void)part;
    if (p == 0 || !call_bool(c, "train"))
        return a;
    struct tensor kept = kept_ones(c, &a, p, strstr(c->op->name, "feature") != NULL);
    if (c->r->failed)
        return a;
    a = math_affine(c->r, math_binary(c->r, BINARY_MUL, a, kept, c->dtype), scale, 0);
    kept = math_affine(c->r, kept, least * scale, least * scale * (p - 1));
    return math_binary(c->r, BINARY_ADD, a, kept, c->dtype);
}

/* Without anything to drop they return what they are given. */
static bool dropout_copies(const struct pt2_node *n, const struct pt2_tensor *self,
                           const struct pt2_tensor *result)
{
    const struct pt2_arg *p = pt2_arg_find(n, "p"), *train = pt2_arg_find(n, "train");
    const bool none = p && ((p->kind == ARG_FLOAT && p->f == 0) || (p->kind == ARG_INT && !p->i));

    (void)self;
    (void)result;
    return !none && !(train && train->kind == ARG_BOOL && !train->b);
}

#define DROPOUT(name, record)                                                                      \
    {                                                                                              \
        "aten." name, record, put_same, dropout_copies, false                                      \
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
    OP("dot.default", op_matmul),
    OP("vdot.default", op_matmul),
    OP("mv.default", op_matmul),
    OP("addmv.default", op_addmv),
    OP("bilinear.default", op_bilinear),
    OP("embedding.default", op_embedding),
    OP("embedding_bag.padding_idx", op_embedding_bag),
    OP("embedding_bag.default", op_embedding_bag),
    DROPOUT("dropout.default", op_dropout),
    OP("native_dropout.default", op_dropout),
    DROPOUT("feature_dropout.default", op_feature_dropout),
    DROPOUT("alpha_dropout.default", op_alpha_dropout),
    DROPOUT("feature_alpha_dropout.default", op_alpha_dropout),
    OP("_grouped_mm.default", op_grouped_mm),
    {"transformers.grouped_mm_fallback.default", op_grouped_mm_fallback, NULL, NULL, false},
    {NULL, NULL, NULL, NULL, false},
};
