/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kinds of LoRA: DoRA computes its formula, and its norm is a constant for gradients; dropout is of
 * steps that train and of the adapter's operand; adapters of one weight add up, also merged; and
 * parameters beside them stay trained.  "make check-gpu" runs it on the GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "ckpt_ops.h"
#include "ckpt_tools.h"
#include "plan/one_search.h"
#include "small.h"

enum { IN = 6, OUT = 5, RANK = 2, BATCH = 4, N = OUT * IN };
#define SCALE 1.5f

struct net {
    ckpt *c;
    ckpt_tensor w, b, la, lb, m, norm;
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *n = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, IN});
    ckpt_tensor y = ckpt_linear(t, x, n->w, n->b);

    ckpt_output(t, "y", y);
    if (n->m.id)
        ckpt_output_gradient(t, "dm", n->m);
    if (n->lb.id)
        ckpt_output_gradient(t, "db", n->lb);
    return ckpt_mean(t, ckpt_mul(t, y, y), 3);
}

static ckpt_tensor record_measure(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *n = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, IN});
    ckpt_tensor y = ckpt_linear(t, x, n->w, n->b);

    ckpt_output(t, "y", y);
    return ckpt_mean(t, ckpt_mul(t, y, y), 3);
}

static void open_net(struct net *n)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;

    *n = (struct net){.c = NULL};
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.threads = 1;
    if (ckpt_open(&n->c, &o))
        fail_msg("%s", ckpt_error(NULL));
    n->w = ckpt_param(n->c, "q.weight", CKPT_F32, 2, (int64_t[]){OUT, IN}, CKPT_XAVIER, true);
    n->b = ckpt_param(n->c, "q.bias", CKPT_F32, 1, (int64_t[]){OUT}, CKPT_UNIFORM(1.f), true);
    n->norm = ckpt_param(n->c, "norm.weight", CKPT_F32, 1, (int64_t[]){OUT}, CKPT_ONES, true);
}

static ckpt_tensor find(const struct net *n, const char *prefix, const char *part)
{
    char name[64];
    ckpt_tensor x = CKPT_NONE;

    snprintf(name, sizeof name, "%s.q.%s", prefix, part);
    return ckpt_param_find(n->c, name, &x) ? CKPT_NONE : x;
}

/* Adds an adapter whose B is not 0. */
static void adapt(struct net *n, const char *prefix, const struct ckpt_lora *kind)
{
    struct ckpt_lora lora = *kind;
    float b[OUT * RANK];
    char dotted[32];

    snprintf(dotted, sizeof dotted, "%s.", prefix);
    lora.prefix = dotted, lora.pattern = "q.weight", lora.rank = RANK, lora.alpha = SCALE * RANK;
    if (ckpt_lora(n->c, &lora) != 1)
        fail_msg("%s", ckpt_error(n->c));
    n->la = find(n, prefix, "lora_A.weight");
    n->lb = find(n, prefix, "lora_B.weight");
    n->m = find(n, prefix, "lora_magnitude_vector");
    for (int i = 0; i < OUT * RANK; i++)
        b[i] = (float)(i % 4) * 0.25f - 0.4f;
    assert_int_equal(ckpt_param_set(n->c, n->lb, CKPT_VALUE, b, OUT * RANK), 0);
}

static void get(const struct net *n, ckpt_tensor x, float *to, int64_t size)
{
    if (ckpt_param_get(n->c, x, CKPT_VALUE, to, size))
        fail_msg("%s", ckpt_error(n->c));
}

static void compile(struct net *n, ckpt_program **p, bool trains)
{
    struct ckpt_adamw o = CKPT_ADAMW_INIT;

    o.lr = 0.f;
    if (ckpt_compile(n->c, trains ? record : record_measure, n,
                     trains ? ckpt_adamw(n->c, &o) : NULL, BATCH, p))
        fail_msg("%s", ckpt_error(n->c));
}

static void step(const struct net *n, ckpt_program *p, float *x, float *y)
{
    ckpt_fill_normal(3, 0, 1, x, BATCH * IN);
    if (ckpt_feed(p, "x", x, BATCH * IN * sizeof *x) || ckpt_step(p, NULL) ||
        ckpt_fetch(p, "y", y, BATCH * OUT * sizeof *y))
        fail_msg("%s", ckpt_error(n->c));
}

/* W + SCALE B A in fp64. */
static void sum_of(const struct net *n, double to[N])
{
    float w[N], a[RANK * IN], b[OUT * RANK];

    get(n, n->w, w, N);
    get(n, n->la, a, RANK * IN);
    get(n, n->lb, b, OUT * RANK);
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < IN; i++) {
            to[o * IN + i] = (double)w[o * IN + i];
            for (int k = 0; k < RANK; k++)
                to[o * IN + i] += (double)SCALE * (double)b[o * RANK + k] * (double)a[k * IN + i];
        }
}

static double norm_of(const double *row)
{
    double sum = 0;

    for (int i = 0; i < IN; i++)
        sum += row[i] * row[i];
    return sqrt(sum);
}

static double product(const float *x, const double *row)
{
    double sum = 0;

    for (int i = 0; i < IN; i++)
        sum += (double)x[i] * row[i];
    return sum;
}

/* y, and the gradients of the mean of y^2. */
static void check_dora(const struct net *n, ckpt_program *p, const float *x, const float *y)
{
    float b[OUT], m[OUT], a[RANK * IN], dm[OUT], db[OUT * RANK];
    double v[N];

    sum_of(n, v);
    get(n, n->b, b, OUT);
    get(n, n->m, m, OUT);
    get(n, n->la, a, RANK * IN);
    assert_int_equal(ckpt_fetch(p, "dm", dm, sizeof dm), 0);
    assert_int_equal(ckpt_fetch(p, "db", db, sizeof db), 0);
    for (int o = 0; o < OUT; o++) {
        const double norm = norm_of(v + (ptrdiff_t)o * IN), s = (double)m[o] / norm;
        double gm = 0, gb[RANK] = {0};
        for (int r = 0; r < BATCH; r++) {
            const float *row = x + (ptrdiff_t)r * IN;
            const double u = product(row, v + (ptrdiff_t)o * IN), is = s * u + (double)b[o];
            const double dy = 2 * is / (BATCH * OUT);
            assert_true(fabs(is - (double)y[r * OUT + o]) < 1e-5);
            gm += dy * u / norm;
            for (int k = 0; k < RANK; k++) {
                double h = 0;
                for (int i = 0; i < IN; i++)
                    h += (double)row[i] * (double)a[k * IN + i];
                gb[k] += dy * s * (double)SCALE * h;
            }
        }
        assert_true(fabs(gm - (double)dm[o]) < 1e-5);
        for (int k = 0; k < RANK; k++)
            assert_true(fabs(gb[k] - (double)db[o * RANK + k]) < 1e-5);
    }
}

static void test_dora(void **state)
{
    const struct ckpt_lora kind = {.size = sizeof kind, .dora = true};
    float x[BATCH * IN], y[BATCH * OUT], merged[BATCH * OUT], m[OUT], after[OUT];
    ckpt_program *p;
    struct net n;
    (void)state;
    open_net(&n);
    adapt(&n, "one", &kind);
    assert_true(ckpt_lora_only(NULL, "one.q.lora_magnitude_vector"));
    assert_int_equal(ckpt_lora_magnitudes(n.c), 0);
    get(&n, n.m, m, OUT);
    for (int o = 0; o < OUT; o++)
        m[o] *= o == 2 ? -1.f : 1.f + 0.1f * (float)o;
    assert_int_equal(ckpt_param_set(n.c, n.m, CKPT_VALUE, m, OUT), 0);
    compile(&n, &p, true);
    step(&n, p, x, y);
    check_dora(&n, p, x, y);
    assert_int_equal(ckpt_lora_merge(n.c), 0);
    step(&n, p, x, merged);
    get(&n, n.m, after, OUT);
    for (int i = 0; i < BATCH * OUT; i++)
        assert_true(fabs((double)(merged[i] - y[i])) < 1e-5);
    for (int o = 0; o < OUT; o++)
        assert_true(fabs(fabs((double)m[o]) - (double)after[o]) < 1e-5);
    ckpt_close(n.c);
}

/* A program that does not train has no dropout; one that trains has another y, whose mean over many
 * steps is that y: dropout is of the adapter's operand alone. */
static void check_dropout(bool dora)
{
    enum { STEPS = 4000 };
    const struct ckpt_lora kind = {.size = sizeof kind, .dora = dora, .dropout = 0.4f};
    float x[BATCH * IN], y[BATCH * OUT], plain[BATCH * OUT];
    double mean[BATCH * OUT] = {0}, most = 0, spread = 0;
    ckpt_program *p, *q;
    struct net n;

    open_net(&n);
    adapt(&n, "one", &kind);
    assert_int_equal(ckpt_lora_magnitudes(n.c), 0);
    compile(&n, &p, true);
    compile(&n, &q, false);
    step(&n, q, x, plain);
    for (int s = 0; s < STEPS; s++) {
        step(&n, p, x, y);
        for (int i = 0; i < BATCH * OUT; i++) {
            mean[i] += (double)y[i] / STEPS;
            spread = fmax(spread, fabs((double)(y[i] - plain[i])));
        }
    }
    for (int i = 0; i < BATCH * OUT; i++)
        most = fmax(most, fabs(mean[i] - (double)plain[i]));
    assert_true(spread > 0.2);
    assert_true(most < 0.1);
    ckpt_close(n.c);
}

static void test_dropout(void **state)
{
    (void)state;
    check_dropout(false);
    check_dropout(true);
}

static void test_several(void **state)
{
    const struct ckpt_lora plain = {.size = sizeof plain},
                           kept = {.size = sizeof kept, .frozen = true},
                           dora = {.size = sizeof dora, .dora = true};
    float x[BATCH * IN], one[BATCH * OUT], y[BATCH * OUT], zeros[OUT * RANK] = {0};
    struct ckpt_lora again = plain;
    struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
    ckpt_program *p;
    struct net n;
    (void)state;
    open_net(&n);
    assert_int_equal(ckpt_lora_whole(n.c, "norm.*"), 1);
    adapt(&n, "one", &kept);
    assert_int_equal(ckpt_param_info(n.c, n.lb, &info), 0);
    assert_false(info.trainable);
    const ckpt_tensor first = n.lb;
    adapt(&n, "two", &plain);
    assert_int_equal(ckpt_param_info(n.c, n.norm, &info), 0);
    assert_true(info.trainable);
    assert_int_equal(ckpt_param_info(n.c, n.w, &info), 0);
    assert_false(info.trainable);
    compile(&n, &p, false);
    step(&n, p, x, y);
    assert_int_equal(ckpt_lora_merge(n.c), 0);
    step(&n, p, x, one);
    for (int i = 0; i < BATCH * OUT; i++)
        assert_true(fabs((double)(one[i] - y[i])) < 1e-5);
    get(&n, first, zeros, OUT * RANK);
    for (int i = 0; i < OUT * RANK; i++)
        assert_true(zeros[i] == 0.f);
    ckpt_close(n.c);
    open_net(&n);
    adapt(&n, "one", &plain);
    again.prefix = "one.", again.pattern = "q.weight", again.rank = 1;
    assert_true(ckpt_lora(n.c, &again) < 0);
    assert_non_null(strstr(ckpt_error(n.c), "of this prefix already"));
    ckpt_close(n.c);
    open_net(&n);
    adapt(&n, "one", &dora);
    again.prefix = "two.";
    assert_true(ckpt_lora(n.c, &again) < 0);
    assert_non_null(strstr(ckpt_error(n.c), "allows no other one"));
    ckpt_close(n.c);
}

static ckpt_tensor record_chunks(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *n = user;
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, IN});
    ckpt_tensor label = ckpt_input(t, "label", CKPT_I32, 1, &batch);

    spec.chunk = 2;
    return ckpt_linear_cross_entropy(t, x, n->w, CKPT_NONE, label, &spec);
}

/* Chunks of a loss have no samples to draw for, whichever adapter drops; a file has one adapter of
 * a weight. */
static void test_second_refused(void **state)
{
    const struct ckpt_lora plain = {.size = sizeof plain},
                           drops = {.size = sizeof drops, .dropout = 0.5f};
    struct ckpt_adamw o = CKPT_ADAMW_INIT;
    ckpt_program *p;
    struct net n;
    (void)state;
    open_net(&n);
    adapt(&n, "one", &plain);
    adapt(&n, "two", &drops);
    assert_true(ckpt_compile(n.c, record_chunks, &n, ckpt_adamw(n.c, &o), BATCH, &p) < 0);
    assert_non_null(strstr(ckpt_error(n.c), "has an adapter with dropout"));
    ckpt_close(n.c);
    open_net(&n);
    adapt(&n, "one", &plain);
    adapt(&n, "two", &plain);
    assert_int_equal(ckpt_save_params_filtered(n.c, "test_lora_kinds.tmp", CKPT_VALUE,
                                               ckpt_lora_only, NULL),
                     CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(n.c), "has several adapters"));
    ckpt_close(n.c);
}

static void test_refused(void **state)
{
    const struct ckpt_lora dora = {.size = sizeof dora, .dora = true};
    struct ckpt_lora lora = CKPT_LORA_INIT;
    float zeros[N] = {0}, few[OUT * RANK] = {0};
    struct net n;
    (void)state;
    open_net(&n);
    assert_int_equal(ckpt_lora_whole(n.c, "nothing"), CKPT_EINVAL);
    adapt(&n, "one", &dora);
    assert_int_equal(ckpt_param_set(n.c, n.w, CKPT_VALUE, zeros, N), 0);
    assert_int_equal(ckpt_param_set(n.c, n.lb, CKPT_VALUE, few, OUT * RANK), 0);
    assert_int_equal(ckpt_lora_magnitudes(n.c), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(n.c), "row 0 of 'q.weight' is 0"));
    ckpt_close(n.c);
    open_net(&n);
    lora.pattern = "q.weight", lora.dropout = 1.f;
    assert_int_equal(ckpt_lora(n.c, &lora), CKPT_EINVAL);
    ckpt_close(n.c);
    open_net(&n);
    lora.dropout = 0.f;
    assert_int_equal(ckpt_lora_whole(n.c, "q.*"), 2);
    assert_int_equal(ckpt_lora(n.c, &lora), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(n.c), "trained as a whole"));
    ckpt_close(n.c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dora),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_second_refused),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
