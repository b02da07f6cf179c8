/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of classes on random shapes, as in test_gradients: ignored rows, class weights, smoothing,
 * z-loss, every reduction, and the loss of a linear layer in chunks. */
#include "harness.h"

#include <math.h>

enum { X, LABEL, WEIGHT };
enum { IGNORED = 2 };

/* The attributes of a case: a is the smoothing, b the z-loss, axis the reduction, begin whether
 * label IGNORED is. */
static double row_loss(const struct array *in, const struct op_attr *a, int64_t row, double *weight)
{
    int64_t V = in[X].shape[in[X].ndim - 1];
    const double *x = in[X].x + row * V;
    double top = -INFINITY, lse = 0, smooth = 0;
    int64_t label = (int64_t)in[LABEL].x[row];
    *weight = 0;
    if (a->begin && label == IGNORED)
        return 0;
    for (int64_t i = 0; i < V; i++)
        top = fmax(top, x[i]);
    for (int64_t i = 0; i < V; i++)
        lse += exp(x[i] - top);
    lse = top + log(lse);
    for (int64_t i = 0; i < V; i++)
        smooth += (in[WEIGHT].ndim < 0 ? 1 : in[WEIGHT].x[i]) * (lse - x[i]);
    *weight = in[WEIGHT].ndim < 0 ? 1 : in[WEIGHT].x[label];
    return (1 - a->a) * *weight * (lse - x[label]) + a->a / (double)V * smooth +
           a->b * *weight * lse * lse;
}

static void ref_rows(const struct array *in, struct array *out, const struct op_attr *a)
{
    double total = 0, weight;
    int64_t rows = 1;
    for (int i = 0; i + 1 < in[X].ndim; i++)
        rows *= in[X].shape[i];
    if (a->axis == CKPT_REDUCE_NONE)
        array_init(out, in[X].ndim - 1, in[X].shape);
    else
        array_init(out, 0, NULL);
    for (int64_t b = 0; b < rows; b++) {
        out->x[a->axis == CKPT_REDUCE_NONE ? b : 0] += row_loss(in, a, b, &weight);
        total += weight;
    }
    if (a->axis == CKPT_REDUCE_MEAN && total > 0)
        out->x[0] /= total;
}

static struct ckpt_cross_entropy_spec spec_of(const struct op_case *c, ckpt_tensor weight)
{
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;
    spec.label_smoothing = (float)c->attr.a;
    spec.z_loss = (float)c->attr.b;
    spec.reduction = c->attr.axis;
    spec.weight = weight;
    spec.chunk = c->attr.size[0];
    if (c->attr.begin)
        spec.ignore_index = IGNORED;
    return spec;
}

static ckpt_tensor record_rows(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    struct ckpt_cross_entropy_spec spec = spec_of(c, in[WEIGHT]);
    return ckpt_cross_entropy(t, in[X], in[LABEL], &spec);
}

static void draw_labels(struct op_case *c, struct rng *r, int ndim, const int64_t *shape, int64_t V)
{
    struct operand *label = case_add(c, r, ROLE_INDEX, ndim, shape);
    for (int64_t b = 0; b < label->value.n; b++)
        label->value.x[b] = (double)rng_range(r, 0, V - 1);
}

static void draw_options(struct op_case *c, struct rng *r, int trial)
{
    c->attr.a = trial % 3 ? 0.125 : 0;
    c->attr.b = trial % 4 == 1 ? 0.25 : 0;
    c->attr.axis = trial % 5 == 3 ? CKPT_REDUCE_SUM : CKPT_REDUCE_MEAN;
    c->attr.begin = rng_range(r, 0, 1);
}

static void draw_rows(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS], V = trial == TRIAL_LARGE ? 5003 : rng_range(r, 3, 40);
    int ndim = trial == TRIAL_TINY ? 1 : draw_rank(r, 1, 4);
    for (int i = 0; i < ndim; i++)
        shape[i] = rng_range(r, 1, 4);
    shape[ndim - 1] = trial > TRIAL_LARGE ? 4096 : V;
    V = shape[ndim - 1];
    case_add(c, r, ROLE_PARAM, ndim, shape);
    draw_labels(c, r, ndim - 1, shape, V);
    if (trial % 2) {
        struct operand *w = case_add(c, r, ROLE_FIXED, 1, &V);
        for (int64_t i = 0; i < V; i++)
            w->value.x[i] = fabs(w->value.x[i]);
    } else {
        case_add_absent(c);
    }
    draw_options(c, r, trial);
    if (trial % 5 == 4 && ndim > 1)
        c->attr.axis = CKPT_REDUCE_NONE;
}

/* ---- of a linear layer: x, w, b, labels --------------------------------------------------------
 */

static void ref_chunks(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array rows[] = {{0}, in[3], {.ndim = -1}};
    ref_linear(in, &rows[0], a);
    ref_rows(rows, out, a);
    array_free(&rows[0]);
}

static ckpt_tensor record_chunks(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    struct ckpt_cross_entropy_spec spec = spec_of(c, CKPT_NONE);
    return ckpt_linear_cross_entropy(t, in[0], in[1], in[2], in[3], &spec);
}

static void draw_chunks(struct op_case *c, struct rng *r, int trial)
{
    int64_t V = rng_range(r, 3, 12), K = rng_range(r, 1, 9);
    int64_t x[] = {rng_range(r, 1, 3), trial == TRIAL_TINY ? 1 : rng_range(r, 2, 6), K};
    case_add(c, r, ROLE_PARAM, 3, x);
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){V, K});
    if (trial % 2)
        case_add(c, r, ROLE_PARAM, 1, &V);
    else
        case_add_absent(c);
    draw_labels(c, r, 2, x, V);
    draw_options(c, r, trial);
    c->attr.size[0] = rng_range(r, 1, 4);
}

/* ---- of single elements: attr.axis is the reduction, a a parameter, begin a choice --------------
 */

static double element(const struct array *in, const struct op_attr *a, int which, int64_t i)
{
    double x = in[0].x[i], y = in[1].x[i], d = fabs(x - y);
    double w = in[2].ndim < 0 ? 1 : in[2].x[i];
    switch (which) {
    case 0:
        return (1 - y) * x + (1 + (w - 1) * y) * log1p(exp(-x));
    case 1:
        return d <= a->a ? d * d / 2 : a->a * (d - a->a / 2);
    case 2:
        return (d <= a->a ? d * d / 2 : a->a * (d - a->a / 2)) / a->a;
    default:
        return a->begin ? exp(y) * (y - x) : y > 0 ? y * (log(y) - x) : 0;
    }
}

static void reduce(const struct array *each, struct array *out, const struct op_attr *a)
{
    if (a->axis == CKPT_REDUCE_NONE)
        array_init(out, each->ndim, each->shape);
    else
        array_init(out, 0, NULL);
    for (int64_t i = 0; i < each->n; i++)
        out->x[a->axis == CKPT_REDUCE_NONE ? i : 0] +=
            each->x[i] / (a->axis == CKPT_REDUCE_MEAN ? (double)each->n : 1);
}

static void ref_elements(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array each;
    array_init(&each, in[0].ndim, in[0].shape);
    for (int64_t i = 0; i < each.n; i++)
        each.x[i] = element(in, a, (int)a->end, i);
    reduce(&each, out, a);
    array_free(&each);
}

static ckpt_tensor record_elements(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    const int reduction = c->attr.axis;
    switch (c->attr.end) {
    case 0:
        return ckpt_bce_with_logits(t, in[0], in[1], in[2], reduction);
    case 1:
        return ckpt_huber(t, in[0], in[1], (float)c->attr.a, reduction);
    case 2:
        return ckpt_smooth_l1(t, in[0], in[1], (float)c->attr.a, reduction);
    default:
        return ckpt_kl_div(t, in[0], in[1], c->attr.begin, reduction);
    }
}

static void draw_elements(struct op_case *c, struct rng *r, int trial, int which)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 3);
    draw_shape(r, trial, ndim, 4, shape);
    case_add(c, r, ROLE_PARAM, ndim, shape);
    struct operand *y = case_add(c, r, which == 3 ? ROLE_FIXED : ROLE_PARAM, ndim, shape);
    c->attr.begin = trial % 2;
    for (int64_t i = 0; i < y->value.n && which == 3 && !c->attr.begin; i++)
        y->value.x[i] = i % 3 ? fabs(y->value.x[i]) : 0;
    if (which == 0 && trial % 2)
        case_add(c, r, ROLE_PARAM, ndim, shape);
    else
        case_add_absent(c);
    c->attr.axis = trial % 3;
    c->attr.a = trial % 2 ? 0.5 : 1.25;
    c->attr.end = which;
}

static void draw_bce(struct op_case *c, struct rng *r, int trial)
{
    draw_elements(c, r, trial, 0);
}

static void draw_huber(struct op_case *c, struct rng *r, int trial)
{
    draw_elements(c, r, trial, 1);
}

static void draw_smooth_l1(struct op_case *c, struct rng *r, int trial)
{
    draw_elements(c, r, trial, 2);
}

static void draw_kl(struct op_case *c, struct rng *r, int trial)
{
    draw_elements(c, r, trial, 3);
}

static void ref_cosine(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t D = in[0].shape[in[0].ndim - 1];
    struct array each;
    array_init(&each, in[2].ndim, in[2].shape);
    for (int64_t row = 0; row < each.n; row++) {
        double dot = 0, aa = 1e-12, bb = 1e-12;
        for (int64_t i = row * D; i < (row + 1) * D; i++) {
            dot += in[0].x[i] * in[1].x[i];
            aa += in[0].x[i] * in[0].x[i];
            bb += in[1].x[i] * in[1].x[i];
        }
        double cosine = dot / sqrt(aa * bb);
        each.x[row] = in[2].x[row] > 0 ? 1 - cosine : fmax(0, cosine - a->a);
    }
    reduce(&each, out, a);
    array_free(&each);
}

static ckpt_tensor record_cosine(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_cosine_embedding(t, in[0], in[1], in[2], (float)c->attr.a, c->attr.axis);
}

static void draw_cosine(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 3);
    draw_shape(r, trial, ndim, 4, shape);
    shape[ndim - 1] += 2; /* the cosine of one number is 1 or -1 */
    case_add(c, r, ROLE_PARAM, ndim, shape);
    case_add(c, r, ROLE_PARAM, ndim, shape);
    struct operand *label = case_add(c, r, ROLE_INDEX, ndim - 1, shape);
    for (int64_t i = 0; i < label->value.n; i++)
        label->value.x[i] = rng_range(r, 0, 1) ? 1 : -1;
    c->attr.axis = trial % 3;
    c->attr.a = 0.1;
}

static const struct op_row rows[] = {
    {"cross_entropy", draw_rows, record_rows, ref_rows},
    {"linear_cross_entropy", draw_chunks, record_chunks, ref_chunks},
    {"bce_with_logits", draw_bce, record_elements, ref_elements},
    {"huber", draw_huber, record_elements, ref_elements},
    {"smooth_l1", draw_smooth_l1, record_elements, ref_elements},
    {"kl_div", draw_kl, record_elements, ref_elements},
    {"cosine_embedding", draw_cosine, record_cosine, ref_cosine},
    {NULL, NULL, NULL, NULL}};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, rows);
}
