/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of row groups: results and gradients against the definition, for empty groups, one group
 * with all rows, rows in no group and offsets that descend; a layer of experts in micro-steps;
 * offsets out of range.
 */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- against the definition ------------------------------------------------------------------ */

/* {x, w, offsets}; begin: w is transposed */
static void ref_grouped_matmul(const struct array *in, struct array *out, const struct op_attr *a)
{
    const struct array *x = &in[0], *w = &in[1];
    const int64_t rows = x->shape[0], inner = x->shape[1], cols = w->shape[a->begin ? 1 : 2];
    int64_t row = 0;

    array_init(out, 2, (int64_t[]){rows, cols});
    for (int64_t g = 0; g < in[2].n; g++)
        for (; row < rows && (double)row < in[2].x[g]; row++)
            for (int64_t i = 0; i < cols * inner; i++) {
                const int64_t c = i / inner, k = i % inner;
                const int64_t at = a->begin ? c * inner + k : k * cols + c;
                out->x[row * cols + c] += x->x[row * inner + k] * w->x[g * cols * inner + at];
            }
}

/* In turn: every row in a group, one group with all, any groups, none with rows, an end that
 * descends. */
static void draw_offsets(struct operand *o, struct rng *r, int64_t rows, int trial)
{
    const int64_t n = o->value.n;
    double *x = o->value.x;

    for (int64_t g = 0; g < n; g++) {
        const double former = g ? x[g - 1] : 0;
        const int64_t left = rows - (int64_t)former;
        x[g] = former + (double)rng_range(r, 0, left < 2 * rows / n + 1 ? left : 2 * rows / n + 1);
    }
    for (int64_t g = 0; g < n && trial % 5 == 1; g++)
        x[g] = g < n / 2 ? 0 : (double)rows;
    if (trial % 5 == 0)
        x[n - 1] = (double)rows;
    for (int64_t g = 0; g < n && trial % 5 == 3; g++)
        x[g] = 0;
    if (trial % 5 == 4)
        x[n / 2] = 0;
}

static void draw_grouped_matmul(struct op_case *c, struct rng *r, int trial)
{
    static const int64_t large[2][4] = {{333, 70, 45, 5}, {417, 136, 200, 37}};
    const int64_t unit = trial % 2 && trial > TRIALS_SECOND ? 8 : 1; /* pieces of 16 bytes */
    int64_t s[4];

    draw_shape(r, trial < TRIAL_LARGE ? trial : 1, 4, 9, s);
    if (trial >= TRIAL_LARGE)
        memcpy(s, large[trial - TRIAL_LARGE], sizeof s);
    else if (trial)
        s[0] *= 3;
    s[1] *= trial < TRIAL_LARGE ? unit : 1;
    s[2] *= trial < TRIAL_LARGE ? unit : 1;
    c->attr.begin = trial / 2 % 2;
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){s[0], s[1]});
    case_add(c, r, ROLE_PARAM, 3,
             c->attr.begin ? (int64_t[]){s[3], s[2], s[1]} : (int64_t[]){s[3], s[1], s[2]});
    draw_offsets(case_add(c, r, ROLE_INDEX, 1, &s[3]), r, s[0], trial);
}

static ckpt_tensor record_grouped_matmul(ckpt_tape *t, const ckpt_tensor *in,
                                         const struct op_case *c)
{
    return ckpt_grouped_matmul(t, in[0], in[1], in[2], c->attr.begin != 0);
}

static const struct op_row rows[] = {
    {"grouped_matmul", draw_grouped_matmul, record_grouped_matmul, ref_grouped_matmul},
    {NULL, NULL, NULL, NULL},
};

/* ---- a layer of experts ---------------------------------------------------------------------- */

enum { B = 8, R = 21, K = 24, N = 16, EXPERTS = 5 };

/* Rows are sorted by expert; the order of y does not matter to the loss. */
static ckpt_tensor record_experts(ckpt_tape *t, int64_t batch, void *user)
{
    const ckpt_tensor w = *(const ckpt_tensor *)user;
    const int64_t n = batch * R, shape[] = {n, K}, experts = EXPERTS;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){batch, R, K});
    ckpt_tensor id = ckpt_input(t, "id", CKPT_I32, 2, (int64_t[]){batch, R});
    ckpt_tensor none = ckpt_full(t, 0.f, CKPT_F32, 1, &experts), order;

    id = ckpt_reshape(t, id, 1, &n);
    order = ckpt_argsort(t, ckpt_cast(t, id, CKPT_F32), false);
    x = ckpt_index_select(t, ckpt_reshape(t, x, 2, shape), 0, order);
    none = ckpt_index_add(t, none, 0, id, ckpt_full(t, 1.f, CKPT_F32, 1, &n));
    id = ckpt_cast(t, ckpt_cumsum(t, none, 0), CKPT_I32);
    ckpt_tensor y = ckpt_grouped_matmul(t, x, w, id, false);
    ckpt_output_gradient(t, "gradient", w);
    return ckpt_reshape(t, ckpt_mean(t, ckpt_mul(t, y, y), 3u), 0, NULL);
}

static float weight[EXPERTS * K * N], values[B * R * K];
static int32_t ids[B * R];

static void draw_values(void)
{
    struct rng r = {.state = 5};

    for (int i = 0; i < EXPERTS * K * N; i++)
        weight[i] = (float)rng_normal(&r);
    for (int i = 0; i < B * R * K; i++)
        values[i] = (float)rng_normal(&r);
    for (int i = 0; i < B * R; i++)
        ids[i] = i % 7 ? (int32_t)rng_range(&r, 0, EXPERTS - 2) : 0; /* one expert has none */
}

static int run_experts(int64_t micro, float *gradient)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *p = NULL;
    ckpt_tensor w;
    ckpt *c;

    adamw.lr = 0;
    o.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    o.verify = true;
    o.micro_batch = micro;
    int rc = ckpt_open(&c, &o);
    w = ckpt_param(c, "w", CKPT_F32, 3, (int64_t[]){EXPERTS, K, N}, CKPT_ZEROS, true);
    rc = rc || ckpt_param_set(c, w, CKPT_VALUE, weight, EXPERTS * K * N) ||
         ckpt_compile(c, record_experts, &w, ckpt_adamw(c, &adamw), B, &p) ||
         ckpt_feed(p, "x", values, sizeof values) || ckpt_feed(p, "id", ids, sizeof ids) ||
         ckpt_step(p, NULL) ||
         ckpt_fetch(p, "gradient", gradient, EXPERTS * K * N * (int64_t)sizeof *gradient);
    if (rc)
        printf("FAIL experts: %s\n", ckpt_error(c));
    ckpt_program_free(p);
    ckpt_close(c);
    return rc;
}

/* The gradient is added up over micro-steps. */
static int check_experts(int64_t micro)
{
    static float got[EXPERTS * K * N];
    static double expected[EXPERTS * K * N], have[EXPERTS * K * N];

    if (run_experts(micro, got))
        return 1;
    memset(expected, 0, sizeof expected);
    for (int r = 0; r < B * R; r++)
        for (int n = 0; n < N; n++) {
            const float *x = values + r * K, *w = weight + ids[r] * K * N + n;
            double y = 0;
            for (int k = 0; k < K; k++)
                y += (double)x[k] * (double)w[k * N];
            for (int k = 0; k < K; k++)
                expected[(ids[r] * K + k) * N + n] += 2 * y * (double)x[k] / (B * R * N);
        }
    for (int i = 0; i < EXPERTS * K * N; i++)
        have[i] = (double)got[i];
    const double error = relative_error(have, expected, EXPERTS * K * N, 1e-6);
    if (error > 1e-5)
        return printf("FAIL experts, micro-batch %lld: off by %.1e\n", (long long)micro, error) > 0;
    return 0;
}

/* ---- offsets out of range -------------------------------------------------------------------- */

static ckpt_tensor record_wrong(ckpt_tape *t, int64_t batch, void *user)
{
    static const float zeros[3 * K * N];
    const int32_t offsets[3] = {2, *(const int32_t *)user, R};
    ckpt_tensor x = ckpt_constant(t, "x", CKPT_F32, 2, (int64_t[]){R, K}, zeros);
    ckpt_tensor w = ckpt_constant(t, "w", CKPT_F32, 3, (int64_t[]){3, K, N}, zeros);
    ckpt_tensor at = ckpt_constant(t, "at", CKPT_I32, 1, (int64_t[]){3}, offsets);

    (void)batch;
    ckpt_output(t, "y", ckpt_grouped_matmul(t, x, w, at, false));
    return CKPT_NONE;
}

static int check_wrong(int32_t offset)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt_program *p = NULL;
    char place[64];
    ckpt *c;
    int failed = 0;

    o.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    o.verify = true;
    snprintf(place, sizeof place, "index %d at place 1 is not in [0, %d)", (int)offset, R + 1);
    int rc = ckpt_open(&c, &o);
    rc = rc ? rc : ckpt_compile(c, record_wrong, &offset, NULL, 1, &p);
    rc = rc ? rc : ckpt_step(p, NULL);
    if (rc != CKPT_EINDEX || !strstr(ckpt_error(c), place) ||
        !strstr(ckpt_error(c), "grouped_matmul"))
        failed = printf("FAIL an offset of %d: %d, %s\n", (int)offset, rc, ckpt_error(c)) > 0;
    ckpt_program_free(p);
    ckpt_close(c);
    return failed;
}

int main(int argc, char **argv)
{
    int failures = harness_main(argc, argv, rows);

    if (argc > 1)
        return failures != 0;
    draw_values();
    failures += check_experts(B) + check_experts(2);
    failures += check_wrong(R + 1) + check_wrong(-1) + check_wrong(INT32_MAX);
    return failures != 0;
}
