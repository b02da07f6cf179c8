/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions, softmax, cumsum and order: results and gradients against the definitions; ties, NaN
 * and infinite elements; layer norm with weight and bias; gradients of gradients of softmax.
 */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- definitions ------------------------------------------------------------------------------*/

/* Sets out to the shape of x with size 1 on the axes of mask, filled with `start`, and into[i] to
 * the result of element i. */
static int64_t *reduce_into(const struct array *x, struct array *out, unsigned mask, double start)
{
    int64_t shape[CKPT_MAX_DIMS], *into = calloc((size_t)x->n, sizeof *into);
    if (!into)
        exit(99);
    for (int i = 0; i < x->ndim; i++)
        shape[i] = mask >> i & 1 ? 1 : x->shape[i];
    array_init(out, x->ndim, shape);
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] = start;
    for (int64_t i = 0; i < x->n; i++)
        into[i] = array_broadcast(x, out, i);
    return into;
}

static void ref_amax(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t *into = reduce_into(in, out, a->mask, -INFINITY);
    for (int64_t i = 0; i < in->n; i++)
        out->x[into[i]] = fmax(out->x[into[i]], in->x[i]);
    free(into);
}

static void ref_amin(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t *into = reduce_into(in, out, a->mask, INFINITY);
    for (int64_t i = 0; i < in->n; i++)
        out->x[into[i]] = fmin(out->x[into[i]], in->x[i]);
    free(into);
}

static void ref_prod(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t *into = reduce_into(in, out, a->mask, 1);
    for (int64_t i = 0; i < in->n; i++)
        out->x[into[i]] *= in->x[i];
    free(into);
}

static void ref_norm(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t *into = reduce_into(in, out, a->mask, 0);
    for (int64_t i = 0; i < in->n; i++)
        out->x[into[i]] += in->x[i] * in->x[i];
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] = sqrt(out->x[i]);
    free(into);
}

static void ref_var(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array mean;
    double n;
    free(reduce_into(in, &mean, a->mask, 0));
    int64_t *into = reduce_into(in, out, a->mask, 0);
    n = (double)in->n / (double)out->n;
    for (int64_t i = 0; i < in->n; i++)
        mean.x[into[i]] += in->x[i] / n;
    for (int64_t i = 0; i < in->n; i++) {
        double d = in->x[i] - mean.x[into[i]];
        out->x[into[i]] += d * d / (n - a->a);
    }
    array_free(&mean);
    free(into);
}

static void ref_logsumexp(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array top;
    ref_amax(in, &top, a);
    int64_t *into = reduce_into(in, out, a->mask, 0);
    for (int64_t i = 0; i < in->n; i++)
        out->x[into[i]] += exp(in->x[i] - top.x[into[i]]);
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] = top.x[i] + log(out->x[i]);
    array_free(&top);
    free(into);
}

static void ref_log_softmax(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array sum;
    struct op_attr one = *a;
    one.mask = 1u << a->axis;
    ref_logsumexp(in, &sum, &one);
    array_init(out, in->ndim, in->shape);
    for (int64_t i = 0; i < in->n; i++)
        out->x[i] = in->x[i] - sum.x[array_broadcast(in, &sum, i)];
    array_free(&sum);
}

static void ref_softmax(const struct array *in, struct array *out, const struct op_attr *a)
{
    ref_log_softmax(in, out, a);
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] = exp(out->x[i]);
}

static void ref_cumsum(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t inner = 1;
    for (int i = a->axis + 1; i < in->ndim; i++)
        inner *= in->shape[i];
    array_init(out, in->ndim, in->shape);
    for (int64_t i = 0; i < in->n; i++) {
        bool first = i / inner % in->shape[a->axis] == 0;
        out->x[i] = in->x[i] + (first ? 0 : out->x[i - inner]);
    }
}

/* The n_size largest of the last axis in order. */
static void ref_topk(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t shape[CKPT_MAX_DIMS], n = in->shape[in->ndim - 1], k = a->size[0];
    memcpy(shape, in->shape, sizeof shape);
    shape[in->ndim - 1] = k;
    array_init(out, in->ndim, shape);
    for (int64_t r = 0; r < in->n / n; r++)
        for (int64_t i = 0; i < n; i++) {
            int64_t before = 0;
            double x = in->x[r * n + i];
            for (int64_t j = 0; j < n; j++) {
                double y = in->x[r * n + j];
                before += (a->begin ? y > x : y < x) || (y == x && j < i);
            }
            if (before < k)
                out->x[r * k + before] = x;
        }
}

static void ref_norm_affine(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t d = in[0].shape[in[0].ndim - 1];
    ref_layer_norm(in, out, a);
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] = out->x[i] * in[1].x[i % d] + (in[2].ndim < 0 ? 0 : in[2].x[i % d]);
}

/* ---- cases ------------------------------------------------------------------------------------*/

/* Distinct values: ties would make the difference quotient wrong. */
static void spread_values(struct operand *o)
{
    for (int64_t i = 0; i < o->value.n; i++)
        o->value.x[i] = (double)((i * 7919) % (2 * o->value.n + 1)) / (double)o->value.n * 3 - 2.5;
}

static void draw_mask_of(struct op_case *c, struct rng *r, int trial)
{
    struct operand *o = draw_one(c, r, trial);
    c->attr.mask = (unsigned)rng_range(r, 1, (1 << o->value.ndim) - 1);
}

static void draw_distinct(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, 4, shape);
    if (trial >= TRIAL_LARGE) { /* bf16 tells few values apart */
        ndim = 2;
        memcpy(shape, (int64_t[]){5, 9}, 2 * sizeof *shape);
    }
    struct operand *o = case_add(c, r, ROLE_PARAM, ndim, shape);
    spread_values(o);
    c->attr.mask = (unsigned)rng_range(r, 1, (1 << ndim) - 1);
}

static void draw_prod(struct op_case *c, struct rng *r, int trial)
{
    draw_distinct(c, r, trial);
    for (int64_t i = 0; i < c->in[0].value.n; i++)
        c->in[0].value.x[i] = trial % 3 == 1 && rng_range(r, 0, 5) == 0 ? 0 : 1 + rng_normal(r) / 4;
}

static void draw_var(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, 5, shape);
    int axis = (int)rng_range(r, 0, ndim - 1);
    shape[axis] += 2;
    case_add(c, r, ROLE_PARAM, ndim, shape);
    c->attr.mask = (unsigned)rng_range(r, 1, (1 << ndim) - 1) | 1u << axis;
    c->attr.a = trial % 2;
}

static void draw_axis(struct op_case *c, struct rng *r, int trial)
{
    struct operand *o = draw_one(c, r, trial);
    c->attr.axis = (int)rng_range(r, 0, o->value.ndim - 1);
}

static void draw_order(struct op_case *c, struct rng *r, int trial)
{
    draw_distinct(c, r, trial);
    c->attr.begin = trial % 2;
    c->attr.size[0] = c->in[0].value.shape[c->in[0].value.ndim - 1];
}

static void draw_topk(struct op_case *c, struct rng *r, int trial)
{
    draw_order(c, r, trial);
    c->attr.begin = 1;
    c->attr.size[0] = rng_range(r, 1, c->attr.size[0]);
}

static void draw_affine_norm(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, 6, shape);
    shape[ndim - 1] += 3;
    if (trial >= TRIAL_LARGE) {
        ndim = 2;
        memcpy(shape, trial == TRIAL_LARGE ? (int64_t[]){301, 67} : (int64_t[]){400, 128},
               2 * sizeof *shape);
    }
    case_add(c, r, ROLE_PARAM, ndim, shape)->keep_last = true;
    case_add(c, r, ROLE_PARAM, 1, &shape[ndim - 1]);
    if (trial % 4 == 3)
        case_add_absent(c);
    else
        case_add(c, r, ROLE_PARAM, 1, &shape[ndim - 1]);
    c->attr.eps = 1e-5f;
}

#define RECORD(name, call)                                                                         \
    static ckpt_tensor record_##name(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c) \
    {                                                                                              \
        return call;                                                                               \
    }
static unsigned mask_of(const struct op_case *c)
{
    return c->attr.mask + 1 == 1u << c->in[0].value.ndim ? CKPT_ALL_AXES : c->attr.mask;
}

RECORD(amax, ckpt_amax(t, in[0], mask_of(c)))
RECORD(amin, ckpt_amin(t, in[0], mask_of(c)))
RECORD(prod, ckpt_prod(t, in[0], mask_of(c)))
RECORD(var, ckpt_var(t, in[0], mask_of(c), (int64_t)c->attr.a))
RECORD(norm, ckpt_norm(t, in[0], mask_of(c)))
RECORD(logsumexp, ckpt_logsumexp(t, in[0], mask_of(c)))
RECORD(softmax, ckpt_softmax(t, in[0], c->attr.axis))
RECORD(log_softmax, ckpt_log_softmax(t, in[0], c->attr.axis))
RECORD(cumsum, ckpt_cumsum(t, in[0], c->attr.axis))
RECORD(sort, ckpt_sort(t, in[0], c->attr.begin, NULL))
RECORD(topk, ckpt_topk(t, in[0], c->attr.size[0], NULL))
RECORD(affine, ckpt_layer_norm(t, in[0], in[1], in[2], (float)c->attr.eps))

static const struct op_row rows[] = {
    {"amax", draw_distinct, record_amax, ref_amax},
    {"amin", draw_distinct, record_amin, ref_amin},
    {"prod", draw_prod, record_prod, ref_prod},
    {"var", draw_var, record_var, ref_var},
    {"norm", draw_mask_of, record_norm, ref_norm},
    {"logsumexp", draw_mask_of, record_logsumexp, ref_logsumexp},
    {"softmax", draw_axis, record_softmax, ref_softmax},
    {"log_softmax", draw_axis, record_log_softmax, ref_log_softmax},
    {"cumsum", draw_axis, record_cumsum, ref_cumsum},
    {"sort", draw_order, record_sort, ref_topk},
    {"topk", draw_topk, record_topk, ref_topk},
    {"layer_norm, affine", draw_affine_norm, record_affine, ref_norm_affine},
    {NULL, NULL, NULL, NULL},
};

/* ---- values that are easily wrong -------------------------------------------------------------*/

enum { N = 8, LONG = 70000 };

static int failures;

struct few {
    ckpt_tensor w;
    float value[2 * N];
};

static ckpt_tensor record_few(ckpt_tape *t, int64_t batch, void *user)
{
    const struct few *f = user;
    (void)batch;
    ckpt_tensor max = ckpt_amax(t, f->w, 2), lse = ckpt_logsumexp(t, f->w, 2);
    ckpt_tensor norm = ckpt_norm(t, f->w, 2), index;
    ckpt_tensor sorted = ckpt_sort(t, f->w, true, &index);
    ckpt_output_gradient(t, "gradient", f->w);
    ckpt_output(t, "argmax", ckpt_argmax(t, f->w, 1));
    ckpt_output(t, "index", index);
    ckpt_output(t, "one_hot", ckpt_one_hot(t, index, N, CKPT_F32));
    ckpt_output(t, "sorted", sorted);
    ckpt_output(t, "norm", norm);
    ckpt_tensor floor = ckpt_maximum(t, lse, ckpt_affine(t, norm, 0.f, -100.f));
    ckpt_tensor sum = ckpt_add(t, ckpt_add(t, max, norm), floor);
    return ckpt_reshape(t, ckpt_sum(t, sum, 3), 0, NULL);
}

static void expect(const char *what, const float *got, const float *expected, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabsf(got[i] - expected[i]) <= 1e-6f))
            failures += printf("FAIL %s: element %d is %g, not %g\n", what, i, (double)got[i],
                               (double)expected[i]) > 0;
}

/* Ties share the gradient of amax; a row of zeros has no gradient of the norm. */
static void check_few(void)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct few f = {.value = {1, 3, 3, -2, 3, 0, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0}};
    const float lse = logf(4 + 2 * expf(-2) + expf(-5) + expf(-3)) + 3, norm = sqrtf(42);
    float gradient[2 * N], expected[2 * N], sorted[2 * N], norms[2];
    int32_t argmax[2], index[2 * N];
    static const int32_t order[2 * N] = {1, 2, 4, 7, 0, 6, 5, 3, 0, 1, 2, 3, 4, 5, 6, 7};
    ckpt_program *p = NULL;
    ckpt *c;
    adamw.lr = 0;
    o.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    int rc = ckpt_open(&c, &o);
    f.w = ckpt_param(c, "w", CKPT_F32, 2, (int64_t[]){2, N}, CKPT_ZEROS, true);
    rc = rc || ckpt_param_set(c, f.w, CKPT_VALUE, f.value, 2 * N) ||
         ckpt_compile(c, record_few, &f, ckpt_adamw(c, &adamw), 1, &p) || ckpt_step(p, NULL) ||
         ckpt_fetch(p, "gradient", gradient, sizeof gradient) ||
         ckpt_fetch(p, "argmax", argmax, sizeof argmax) ||
         ckpt_fetch(p, "index", index, sizeof index) ||
         ckpt_fetch(p, "sorted", sorted, sizeof sorted) ||
         ckpt_fetch(p, "norm", norms, sizeof norms);
    if (rc)
        failures += printf("FAIL ties: %s\n", ckpt_error(c)) > 0;
    for (int i = 0; i < 2 * N && !rc; i++) {
        bool first = i < N;
        float share = first ? (f.value[i] == 3 ? 0.25f : 0.f) : 1.f / N;
        float soft = expf(f.value[i] - (first ? lse : logf(N)));
        expected[i] = share + soft + (first ? f.value[i] / norm : 0.f);
        if (index[i] != order[i] || sorted[i] != f.value[i / N * N + order[i]])
            failures += printf("FAIL order: element %d is %d, not %d\n", i, index[i], order[i]) > 0;
    }
    if (!rc) {
        expect("gradient with ties", gradient, expected, 2 * N);
        expect("norm", norms, (float[]){norm, 0}, 2);
        if (argmax[0] != 1 || argmax[1] != 0)
            failures += printf("FAIL argmax: %d and %d\n", argmax[0], argmax[1]) > 0;
    }
    ckpt_program_free(p);
    ckpt_close(c);
}

/* One long row: in parts, and on CUDA by radix sort. */
static float line[LONG];

static ckpt_tensor record_long(ckpt_tape *t, int64_t batch, void *user)
{
    int64_t n = LONG;
    ckpt_tensor x = ckpt_constant(t, "x", CKPT_F32, 1, &n, line);
    (void)batch;
    (void)user;
    ckpt_output(t, "max", ckpt_amax(t, x, 1));
    ckpt_output(t, "argmax", ckpt_argmax(t, x, 0));
    ckpt_output(t, "lse", ckpt_logsumexp(t, x, 1));
    ckpt_output(t, "index", ckpt_argsort(t, x, false));
    ckpt_output(t, "sum", ckpt_cumsum(t, x, 0));
    return CKPT_NONE;
}

static void check_long_values(float max, int32_t at, float lse, const int32_t *index,
                              const float *sums)
{
    double sum = 0, expected = 0;
    int largest = 0, wrong = 0;
    for (int i = 0; i < LONG; i++) {
        expected += exp((double)line[i]);
        sum += (double)line[i];
        largest = line[i] > line[largest] ? i : largest;
        wrong += fabs(sum - (double)sums[i]) > 1e-6 * (fabs(sum) + 1);
        if (i)
            wrong += line[index[i - 1]] > line[index[i]] ||
                     (line[index[i - 1]] == line[index[i]] && index[i - 1] > index[i]);
    }
    if (wrong || at != largest || max != line[largest] || fabs(log(expected) - (double)lse) > 1e-5)
        failures += printf("FAIL long row: %d wrong, largest %d and not %d, logsumexp %g, not %g\n",
                           wrong, at, largest, (double)lse, log(expected)) > 0;
}

static void check_long(void)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    static int32_t index[LONG], at;
    static float sums[LONG];
    float max, lse;
    ckpt_program *p = NULL;
    ckpt *c;
    for (int i = 0; i < LONG; i++)
        line[i] = (float)(i * 7919 % 5003 - 2500) / 500.f;
    o.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    if (ckpt_open(&c, &o) || ckpt_compile(c, record_long, NULL, NULL, 1, &p) ||
        ckpt_step(p, NULL) || ckpt_fetch(p, "max", &max, sizeof max) ||
        ckpt_fetch(p, "argmax", &at, sizeof at) || ckpt_fetch(p, "lse", &lse, sizeof lse) ||
        ckpt_fetch(p, "index", index, sizeof index) || ckpt_fetch(p, "sum", sums, sizeof sums))
        failures += printf("FAIL long row: %s\n", ckpt_error(c)) > 0;
    else
        check_long_values(max, at, lse, index, sums);
    ckpt_program_free(p);
    ckpt_close(c);
}

int main(int argc, char **argv)
{
    failures = harness_main(argc, argv, rows);
    if (argc == 1) {
        check_few();
        check_long();
    }
    return failures != 0;
}
