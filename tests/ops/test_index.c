/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookup: results and gradients against the definitions; an embedding whose table is also the
 * weight of a linear layer; sums in the order of the index, with the same bits for every
 * micro-batch.
 */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- definitions ------------------------------------------------------------------------------*/

struct cut {
    int64_t outer, size, inner;
};

static struct cut cut_at(const struct array *x, int axis)
{
    struct cut c = {1, x->shape[axis], 1};
    for (int i = 0; i < x->ndim; i++)
        if (i < axis)
            c.outer *= x->shape[i];
        else if (i > axis)
            c.inner *= x->shape[i];
    return c;
}

static void ref_index_select(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t shape[CKPT_MAX_DIMS];
    struct cut c = cut_at(&in[0], a->axis);
    int n = 0;
    for (int i = 0; i < a->axis; i++)
        shape[n++] = in[0].shape[i];
    for (int i = 0; i < in[1].ndim; i++)
        shape[n++] = in[1].shape[i];
    for (int i = a->axis + 1; i < in[0].ndim; i++)
        shape[n++] = in[0].shape[i];
    array_init(out, n, shape);
    for (int64_t o = 0; o < c.outer; o++)
        for (int64_t i = 0; i < in[1].n; i++)
            for (int64_t k = 0; k < c.inner; k++)
                out->x[(o * in[1].n + i) * c.inner + k] =
                    in[0].x[(o * c.size + (int64_t)in[1].x[i]) * c.inner + k];
}

static void ref_gather(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct cut c = cut_at(&in[0], a->axis), y = cut_at(&in[1], a->axis);
    array_init(out, in[1].ndim, in[1].shape);
    for (int64_t i = 0; i < out->n; i++) {
        int64_t o = i / (y.size * y.inner), k = i % y.inner;
        out->x[i] = in[0].x[(o * c.size + (int64_t)in[1].x[i]) * c.inner + k];
    }
}

/* {x, source, index} */
static void ref_scatter_add(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct cut c = cut_at(&in[0], a->axis), y = cut_at(&in[2], a->axis);
    array_init(out, in[0].ndim, in[0].shape);
    memcpy(out->x, in[0].x, (size_t)out->n * sizeof *out->x);
    for (int64_t i = 0; i < in[2].n; i++) {
        int64_t o = i / (y.size * y.inner), k = i % y.inner;
        out->x[(o * c.size + (int64_t)in[2].x[i]) * c.inner + k] += in[1].x[i];
    }
}

/* ---- cases ------------------------------------------------------------------------------------*/

/* Places below `size`; in some trials nearly all of them equal. */
static void draw_index(struct operand *o, struct rng *r, int64_t size, int trial)
{
    for (int64_t i = 0; i < o->value.n; i++)
        o->value.x[i] =
            (double)(trial % 4 == 3 && rng_range(r, 0, 20) ? size / 2 : rng_range(r, 0, size - 1));
}

static void draw_select(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS], places[3];
    int ndim = draw_rank(r, 1, 4), rank = draw_rank(r, 0, 2);
    draw_shape(r, trial, ndim, 6, shape);
    draw_shape(r, trial, rank, 8, places);
    if (trial >= TRIAL_LARGE) {
        ndim = 2;
        rank = 1;
        memcpy(shape, trial == TRIAL_LARGE ? (int64_t[]){71, 301} : (int64_t[]){600, 48},
               2 * sizeof *shape);
        places[0] = 1500;
    }
    c->attr.axis = trial >= TRIAL_LARGE ? 0 : (int)rng_range(r, 0, ndim - 1);
    case_add(c, r, ROLE_PARAM, ndim, shape);
    struct operand *index = case_add(c, r, ROLE_INDEX, rank, places);
    draw_index(index, r, shape[c->attr.axis], trial);
}

static ckpt_tensor record_select(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_index_select(t, in[0], c->attr.axis, in[1]);
}

static void draw_table(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[] = {rng_dim(r, 6), rng_dim(r, 40)}, places[] = {rng_dim(r, 7), rng_dim(r, 5)};
    if (trial >= TRIAL_LARGE) {
        draw_select(c, r, trial);
        return;
    }
    case_add(c, r, ROLE_PARAM, 2, shape);
    case_add(c, r, ROLE_INDEX, 2, places);
    draw_index(&c->in[1], r, shape[0], trial);
}

static ckpt_tensor record_table(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_embedding(t, in[0], in[1], -1);
}

static void draw_lanes(struct op_case *c, struct rng *r, int trial, int sources)
{
    int64_t shape[CKPT_MAX_DIMS], places[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, 6, shape);
    c->attr.axis = (int)rng_range(r, 0, ndim - 1);
    memcpy(places, shape, sizeof places);
    if (trial != TRIAL_TINY)
        places[c->attr.axis] = trial < TRIAL_LARGE ? rng_dim(r, 9) : 1 + shape[c->attr.axis] / 2;
    case_add(c, r, ROLE_PARAM, ndim, shape);
    if (sources)
        case_add(c, r, ROLE_PARAM, ndim, places);
    struct operand *index = case_add(c, r, ROLE_INDEX, ndim, places);
    draw_index(index, r, shape[c->attr.axis], trial);
}

static void draw_gather(struct op_case *c, struct rng *r, int trial)
{
    draw_lanes(c, r, trial, 0);
}

static ckpt_tensor record_gather(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_gather(t, in[0], c->attr.axis, in[1]);
}

static void draw_scatter(struct op_case *c, struct rng *r, int trial)
{
    draw_lanes(c, r, trial, 1);
}

static ckpt_tensor record_scatter(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_scatter_add(t, in[0], c->attr.axis, in[2], in[1]);
}

/* {x, source, index} */
static void ref_index_add(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct cut c = cut_at(&in[0], a->axis);
    const int64_t n = in[2].n;

    array_init(out, in[0].ndim, in[0].shape);
    memcpy(out->x, in[0].x, (size_t)out->n * sizeof *out->x);
    for (int64_t i = 0; i < in[1].n; i++) {
        int64_t o = i / (n * c.inner), to = (int64_t)in[2].x[i / c.inner % n];
        out->x[(o * c.size + to) * c.inner + i % c.inner] += in[1].x[i];
    }
}

static void draw_add(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[3], source[4];
    const int axis = c->attr.axis = (int)rng_range(r, 0, 2), more = trial % 3 == 1;

    draw_shape(r, trial, 3, 6, shape);
    case_add(c, r, ROLE_PARAM, 3, shape);
    for (int i = 0; i < 3; i++)
        source[i + (more && i > axis)] = shape[i];
    for (int i = axis; i <= axis + more; i++)
        source[i] = trial < TRIAL_LARGE ? rng_dim(r, 5) : 1 + shape[axis] * 2;
    case_add(c, r, ROLE_PARAM, 3 + more, source);
    draw_index(case_add(c, r, ROLE_INDEX, 1 + more, source + axis), r, shape[axis], trial);
}

static ckpt_tensor record_add(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_index_add(t, in[0], c->attr.axis, in[2], in[1]);
}

static const struct op_row rows[] = {
    {"index_select", draw_select, record_select, ref_index_select},
    {"embedding", draw_table, record_table, ref_index_select},
    {"gather", draw_gather, record_gather, ref_gather},
    {"scatter_add", draw_scatter, record_scatter, ref_scatter_add},
    {"index_add", draw_add, record_add, ref_index_add},
    {NULL, NULL, NULL, NULL},
};

/* ---- a table that is a weight too -------------------------------------------------------------*/

enum { V = 37, D = 24, B = 8, L = 50 };

struct tied {
    ckpt_tensor table;
    int64_t padding;
};

static ckpt_tensor record_tied(ckpt_tape *t, int64_t batch, void *user)
{
    const struct tied *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_I32, 2, (int64_t[]){batch, L});
    ckpt_tensor h = ckpt_embedding(t, m->table, x, m->padding);
    ckpt_tensor y = ckpt_linear(t, ckpt_mul(t, h, h), m->table, CKPT_NONE);
    ckpt_output_gradient(t, "gradient", m->table);
    y = ckpt_mean(t, ckpt_mul(t, y, y), 7);
    return ckpt_reshape(t, y, 0, NULL);
}

/* One step with micro-batches of a size; the gradient of the table. */
static int run_tied(int64_t padding, int64_t micro, float *gradient)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct tied m = {.padding = padding};
    static float value[V * D];
    static int32_t x[B * L];
    ckpt_program *p = NULL;
    ckpt *c;
    for (int i = 0; i < V * D; i++)
        value[i] = (float)(i % 17 - 8) / 16.f;
    for (int i = 0; i < B * L; i++)
        x[i] = i % 3 ? i * 7 % V : 5;
    adamw.lr = 0;
    o.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    o.verify = true;
    o.micro_batch = micro;
    int rc = ckpt_open(&c, &o);
    m.table = ckpt_param(c, "table", CKPT_F32, 2, (int64_t[]){V, D}, CKPT_ZEROS, true);
    rc = rc || ckpt_param_set(c, m.table, CKPT_VALUE, value, V * D) ||
         ckpt_compile(c, record_tied, &m, ckpt_adamw(c, &adamw), B, &p) ||
         ckpt_feed(p, "x", x, sizeof x) || ckpt_step(p, NULL) ||
         ckpt_fetch(p, "gradient", gradient, V * D * (int64_t)sizeof *gradient);
    if (rc)
        printf("FAIL tied table: %s\n", ckpt_error(c));
    ckpt_program_free(p);
    ckpt_close(c);
    return rc;
}

/* Sets gradient to the value of the definition. */
static void tied_gradient(int64_t padding, double *gradient)
{
    static double dh[B * L][D];
    memset(gradient, 0, V * D * sizeof *gradient);
    for (int r = 0; r < B * L; r++) {
        int row = r % 3 ? r * 7 % V : 5;
        memset(dh[r], 0, sizeof dh[r]);
        for (int v = 0; v < V; v++) {
            double y = 0, h;
            for (int d = 0; d < D; d++) {
                h = ((row * D + d) % 17 - 8) / 16.;
                y += h * h * ((v * D + d) % 17 - 8) / 16.;
            }
            for (int d = 0; d < D; d++) {
                h = ((row * D + d) % 17 - 8) / 16.;
                gradient[v * D + d] += 2 * y * h * h / (B * L * V);
                dh[r][d] += 2 * y * 2 * h * ((v * D + d) % 17 - 8) / 16. / (B * L * V);
            }
        }
        for (int d = 0; d < D; d++)
            gradient[row * D + d] += row == padding ? 0 : dh[r][d];
    }
}

static int check_tied(int64_t padding, int64_t micro)
{
    static float got[V * D];
    static double expected[V * D], values[V * D];
    if (run_tied(padding, micro, got))
        return 1;
    tied_gradient(padding, expected);
    for (int i = 0; i < V * D; i++)
        values[i] = (double)got[i];
    double error = relative_error(values, expected, V * D, 1e-6);
    if (error > 1e-5)
        return printf("FAIL tied table, padding %lld, micro-batch %lld: off by %.1e\n",
                      (long long)padding, (long long)micro, error) > 0;
    return 0;
}

/* ---- indices out of range
 * ----------------------------------------------------------------------*/

struct wrong {
    int which;
    int32_t index;
};

static ckpt_tensor record_wrong(ckpt_tape *t, int64_t batch, void *user)
{
    const struct wrong *w = user;
    static const float zeros[V * D];
    ckpt_tensor x = ckpt_constant(t, "x", CKPT_F32, 2, (int64_t[]){V, D}, zeros);
    ckpt_tensor source = ckpt_constant(t, "source", CKPT_F32, 2, (int64_t[]){2, D}, zeros);
    int32_t index[2 * D] = {0};
    (void)batch;
    index[D + 1] = w->index;
    index[1] = w->which ? 0 : w->index;
    ckpt_tensor at = ckpt_constant(t, "at", CKPT_I32, 2, (int64_t[]){2, D}, index);
    ckpt_tensor y = w->which == 0   ? ckpt_embedding(t, x, at, -1)
                    : w->which == 1 ? ckpt_gather(t, x, 0, at)
                                    : ckpt_scatter_add(t, x, 0, at, source);
    ckpt_output(t, "y", y);
    return CKPT_NONE;
}

/* The step fails and names the op, the place and the value. */
static int check_wrong(int which, int32_t index)
{
    static const char *const name[] = {"index_select", "gather", "scatter"};
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct wrong w = {which, index};
    ckpt_program *p = NULL;
    char place[64];
    ckpt *c;
    int failed = 0;
    o.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    snprintf(place, sizeof place, "index %d at place %d is not in [0, %d)", (int)index,
             which ? D + 1 : 1, V);
    int rc = ckpt_open(&c, &o);
    rc = rc ? rc : ckpt_compile(c, record_wrong, &w, NULL, 1, &p);
    rc = rc ? rc : ckpt_step(p, NULL);
    if (rc != CKPT_EINDEX || !strstr(ckpt_error(c), place) || !strstr(ckpt_error(c), name[which]))
        failed =
            printf("FAIL %s of index %d: %d, %s\n", name[which], (int)index, rc, ckpt_error(c)) > 0;
    ckpt_program_free(p);
    ckpt_close(c);
    return failed;
}

int main(int argc, char **argv)
{
    int failures = harness_main(argc, argv, rows);
    if (argc > 1)
        return failures != 0;
    failures += check_tied(-1, 8) + check_tied(5, 8) + check_tied(-1, 2) + check_tied(5, 1);
    for (int which = 0; which < 3; which++)
        failures += check_wrong(which, V) + check_wrong(which, -1);
    return failures != 0;
}
