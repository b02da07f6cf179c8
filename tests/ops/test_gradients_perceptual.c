/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ReLU, max pooling, distances of features, codebooks and group norm in parts on random shapes.  As
 * test_gradients.
 */
#include "ckpt_tools.h"
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void draw_relu(struct op_case *c, struct rng *r, int trial)
{
    draw_one(c, r, trial);
}

static ckpt_tensor record_relu(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_relu(t, in[0]);
}

/* ---- pooling -------------------------------------------------------------------------------- */

/* No two values of a window are equal, also in bf16: a difference quotient would have two slopes.
 * */
static void draw_max_pool(struct op_case *c, struct rng *r, int trial)
{
    int64_t x[5];
    int ndim = draw_rank(r, 3, 5);
    if (trial == TRIAL_LARGE)
        ndim = 4, memcpy(x, (int64_t[]){2, 9, 10, 130}, 4 * sizeof(*x));
    else
        draw_shape(r, trial, ndim, trial > TRIAL_LARGE ? 2 : 4, x);
    for (int i = 1; i < ndim - 1; i++) {
        c->attr.size[i - 1] = trial == TRIAL_TINY ? 1 : rng_range(r, 1, 2);
        x[i] = x[i] < c->attr.size[i - 1] ? c->attr.size[i - 1] : x[i];
    }
    struct operand *o = case_add(c, r, ROLE_PARAM, ndim, x);
    for (int64_t i = 0; i < o->value.n; i++)
        o->value.x[i] = (double)(i * 37 % 251 - 125) / 16;
}

static ckpt_tensor record_max_pool(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_max_pool(t, in[0], c->attr.size, NULL);
}

/* ---- distance of features ------------------------------------------------------------------- */

static void draw_distance(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, 4, shape);
    shape[ndim - 1] += trial == TRIAL_TINY ? 0 : 2;
    if (trial == TRIAL_LARGE)
        ndim = 3, memcpy(shape, (int64_t[]){3, 101, 70}, 3 * sizeof(*shape));
    case_add(c, r, ROLE_PARAM, ndim, shape);
    case_add(c, r, ROLE_PARAM, ndim, shape);
    struct operand *w = case_add(c, r, ROLE_FIXED, 1, &shape[ndim - 1]);
    for (int64_t i = 0; i < w->value.n; i++)
        w->value.x[i] = (double)rng_range(r, 1, 32) / 32;
}

static ckpt_tensor record_distance(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_feature_distance(t, in[0], in[1], ckpt_cast(t, in[2], c->dtype));
}

/* ---- codebooks ------------------------------------------------------------------------------ */

/* Values that bf16 represents exactly, no row half way between two entries. */
static void draw_codebook(struct op_case *c, struct rng *r, int trial)
{
    int64_t z[CKPT_MAX_DIMS], book[2] = {rng_range(r, 1, 40), 0};
    int ndim = draw_rank(r, 2, 4);
    draw_shape(r, trial, ndim, 4, z);
    if (trial == TRIAL_LARGE)
        ndim = 2, z[0] = 300, z[1] = 4, book[0] = 70;
    book[1] = z[ndim - 1];
    struct operand *o = case_add(c, r, ROLE_PARAM, ndim, z);
    for (int64_t i = 0; i < o->value.n; i++)
        o->value.x[i] = (double)rng_range(r, -40, 38) / 32 + 1. / 128;
    o = case_add(c, r, ROLE_FIXED, 2, book);
    for (int64_t i = 0; i < o->value.n; i++)
        o->value.x[i] = (double)rng_range(r, -64, 64) / 32;
}

static ckpt_tensor record_commitment(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    ckpt_tensor commitment;
    ckpt_quantize(t, in[0], ckpt_cast(t, in[1], c->dtype), NULL, &commitment);
    return commitment;
}

/* ---- group norm in parts -------------------------------------------------------------------- */

static void draw_parts(struct op_case *c, struct rng *r, int trial)
{
    int64_t groups = rng_range(r, 1, 3);
    int64_t x[4] = {rng_range(r, 1, 2), rng_range(r, 3, 9), rng_range(r, 1, 4)};
    x[3] = groups * rng_range(r, 1, 4);
    if (trial >= TRIAL_LARGE)
        x[1] = 80, x[2] = 20, x[3] = trial == TRIAL_LARGE ? 264 : 63, groups = 3;
    c->attr.axis = (int)groups;
    c->attr.mask = trial % 2;
    c->attr.eps = (float)1e-5;
    c->attr.begin = rng_range(r, 1, x[1] - 2);
    c->attr.end = rng_range(r, c->attr.begin + 1, x[1] - 1);
    struct operand *o = case_add(c, r, ROLE_FIXED, 4, x);
    for (int64_t i = 0; i < o->value.n; i++) /* parts that differ in mean, what bf16 holds */
        o->value.x[i] = floor(o->value.x[i] * 32) / 32 + (double)(i / (x[2] * x[3]) % x[1]) / 4;
    case_add(c, r, ROLE_FIXED, 1, &x[3]);
    case_add(c, r, ROLE_FIXED, 1, &x[3]);
}

/* Three bands: the attributes' bands are the first rows of the second and third. */
static ckpt_tensor record_parts(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    int64_t rows = c->in[0].value.shape[1], cut[] = {0, c->attr.begin, c->attr.end, rows};
    ckpt_tensor x = ckpt_cast(t, in[0], c->dtype), part[3], moments[3];
    ckpt_tensor w = ckpt_cast(t, in[1], c->dtype), b = ckpt_cast(t, in[2], c->dtype);
    for (int i = 0; i < 3; i++) {
        part[i] = ckpt_contiguous(t, ckpt_slice(t, x, 1, cut[i], cut[i + 1]));
        moments[i] = ckpt_group_norm_moments(t, part[i], c->attr.axis);
    }
    ckpt_tensor stats = ckpt_group_norm_join(t, 3, moments, (float)c->attr.eps);
    for (int i = 0; i < 3; i++)
        part[i] = ckpt_group_norm_apply(t, part[i], stats, w, b, c->attr.mask != 0);
    return ckpt_concat(t, 1, 3, part);
}

static const struct op_row rows[] = {
    {"relu", draw_relu, record_relu, ref_relu},
    {"max_pool", draw_max_pool, record_max_pool, ref_max_pool},
    {"feature_distance", draw_distance, record_distance, ref_feature_distance},
    {"commitment", draw_codebook, record_commitment, ref_commitment},
    {"group_norm_parts", draw_parts, record_parts, ref_group_norm_silu},
    {NULL, NULL, NULL, NULL},
};

/* ---- what a difference of the loss does not show ----------------------------------------------
 */

enum { ROWS = 37, WIDTH = 3, ENTRIES = 11 };

struct codebook {
    ckpt_tensor z, entries;
    float value[ROWS * WIDTH], book[ENTRIES * WIDTH], weight[ROWS * WIDTH];
    bool committed;
};

static ckpt_tensor record_codebook(ckpt_tape *t, int64_t micro_batch, void *user)
{
    struct codebook *k = user;
    ckpt_tensor index, commitment;
    (void)micro_batch;
    ckpt_tensor y = ckpt_quantize(t, k->z, k->entries, &index, &commitment);
    ckpt_output(t, "index", index);
    ckpt_output(t, "y", y);
    ckpt_output_gradient(t, "dz", k->z);
    y = ckpt_mul(t, y, ckpt_constant(t, "r", CKPT_F32, 2, (int64_t[]){ROWS, WIDTH}, k->weight));
    ckpt_tensor loss = ckpt_reshape(t, ckpt_sum(t, y, 3), 0, NULL);
    return k->committed ? ckpt_add(t, loss, commitment) : loss;
}

/* dz is the gradient of the entries, plus 2 (z - entry) / n where there is a commitment. */
static int check_codebook(const struct codebook *k, const int32_t *index, const float *y,
                          const float *dz)
{
    double book[ENTRIES * WIDTH], z[ROWS * WIDTH], worst = 0, least;
    struct array entries = {.ndim = 2, .shape = {ENTRIES, WIDTH}, .x = book};
    int wrong = 0;
    for (int i = 0; i < ENTRIES * WIDTH; i++)
        book[i] = k->book[i];
    for (int i = 0; i < ROWS * WIDTH; i++)
        z[i] = k->value[i];
    for (int r = 0; r < ROWS; r++) {
        wrong += index[r] != ref_nearest(&entries, z + (ptrdiff_t)r * WIDTH, &least);
        for (int j = r * WIDTH; j < (r + 1) * WIDTH; j++) {
            double entry = book[index[r] * WIDTH + j % WIDTH];
            double pull = k->committed ? 2 * (z[j] - entry) / (ROWS * WIDTH) : 0;
            wrong += y[j] != (float)entry;
            worst = fmax(worst, fabs(dz[j] - (k->weight[j] + pull)));
        }
    }
    bool ok = !wrong && worst < 1e-6;
    printf("%-4s straight through%s: %d wrong entries, gradient off by %.1e\n", ok ? "ok" : "FAIL",
           k->committed ? ", committed" : "", wrong, worst);
    return !ok;
}

static int run_codebook(bool committed)
{
    struct codebook k = {.committed = committed};
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    float y[ROWS * WIDTH], dz[ROWS * WIDTH];
    int32_t index[ROWS];
    ckpt *c = NULL;
    ckpt_program *p = NULL;
    ckpt_fill_normal(5, 0, 0, k.value, ROWS * WIDTH);
    ckpt_fill_normal(5, 0, 1, k.book, ENTRIES * WIDTH);
    ckpt_fill_normal(5, 0, 2, k.weight, ROWS * WIDTH);
    int e = ckpt_open(&c, NULL);
    if (!e) {
        k.z = ckpt_param(c, "z", CKPT_F32, 2, (int64_t[]){ROWS, WIDTH}, CKPT_ZEROS, true);
        k.entries =
            ckpt_param(c, "book", CKPT_F32, 2, (int64_t[]){ENTRIES, WIDTH}, CKPT_ZEROS, false);
        e = ckpt_param_set(c, k.z, CKPT_VALUE, k.value, ROWS * WIDTH);
    }
    e = e ? e : ckpt_param_set(c, k.entries, CKPT_VALUE, k.book, ENTRIES * WIDTH);
    e = e ? e : ckpt_compile(c, record_codebook, &k, ckpt_adamw(c, &adamw), 1, &p);
    e = e ? e : ckpt_step(p, NULL);
    e = e ? e : ckpt_fetch(p, "index", index, sizeof(index));
    e = e ? e : ckpt_fetch(p, "y", y, sizeof(y));
    e = e ? e : ckpt_fetch(p, "dz", dz, sizeof(dz));
    if (e)
        printf("FAIL codebook: %s\n", ckpt_error(c));
    int failed = e ? 1 : check_codebook(&k, index, y, dz);
    ckpt_program_free(p);
    ckpt_close(c);
    return failed;
}

static ckpt_tensor record_refused(ckpt_tape *t, int64_t micro_batch, void *user)
{
    (void)micro_batch;
    return ckpt_mean(t, ckpt_group_norm_moments(t, *(ckpt_tensor *)user, 1), 15);
}

/* Group norm in parts reports that it has no gradient instead of omitting one. */
static int check_refusal(void)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt *c = NULL;
    ckpt_program *p = NULL;
    if (ckpt_open(&c, NULL))
        return 1;
    ckpt_tensor x = ckpt_param(c, "x", CKPT_F32, 3, (int64_t[]){2, 1, 3}, CKPT_ONES, true);
    int e = ckpt_compile(c, record_refused, &x, ckpt_adamw(c, &adamw), 1, &p);
    bool ok = e == CKPT_EINVAL && strstr(ckpt_error(c), "no gradient");
    printf("%-4s group norm in parts is not trained through\n", ok ? "ok" : "FAIL");
    ckpt_program_free(p);
    ckpt_close(c);
    return !ok;
}

int main(int argc, char **argv)
{
    int failed = harness_main(argc, argv, rows);
    if (argc > 1)
        return failed;
    return failed | run_codebook(false) | run_codebook(true) | check_refusal();
}
