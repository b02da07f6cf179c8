/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses that depend on how a batch is divided: the library sees them, says why, and then
 * --micro-batch auto keeps the batch whole under every budget; sums of means are divided.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "context/context.h"
#include "exec/program.h"
#include "recorders.h"

enum { BATCH = 12, WIDTH = 6, HIDDEN = 96 };

/* What a loss is made of: h [n, HIDDEN] depends on the weights w, x [n, WIDTH] and mask [n, 1] are
 * inputs. */
struct parts {
    ckpt_tensor h, x, mask, square, w; /* square: h^2 */
};

typedef ckpt_tensor (*loss_of)(ckpt_tape *t, const struct parts *p);

struct model {
    ckpt_tensor w;
    loss_of loss;
};

static ckpt_tensor mean(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_mean(t, x, CKPT_ALL_AXES);
}

static ckpt_tensor scalar(ckpt_tape *t, float value)
{
    return ckpt_full(t, value, CKPT_F32, 0, NULL);
}

/* ---- sums of means --------------------------------------------------------------------------- */

static ckpt_tensor plain(ckpt_tape *t, const struct parts *p)
{
    return mean(t, p->square);
}

static ckpt_tensor combination(ckpt_tape *t, const struct parts *p)
{
    ckpt_tensor a = ckpt_masked_mean(t, p->square, p->mask), b = ckpt_mse(t, p->h, p->h, CKPT_NONE);
    a = ckpt_reshape(t, ckpt_mul(t, a, scalar(t, .01f)), 0, NULL);
    b = ckpt_add(t, b, ckpt_reshape(t, mean(t, ckpt_exp(t, p->h)), 0, NULL));
    return ckpt_sub(t, ckpt_div(t, b, scalar(t, 3)), ckpt_affine(t, a, -1, 2));
}

/* The sum over the samples, divided by their number. */
static ckpt_tensor sum_over_n(ckpt_tape *t, const struct parts *p)
{
    const int64_t n = ckpt_desc_of(t, p->h).shape[0];
    return ckpt_affine(t, ckpt_sum(t, p->square, CKPT_ALL_AXES), 1 / (float)n, 0);
}

/* The same, divided by a number on the tape, and a constant added. */
static ckpt_tensor sum_by_n(ckpt_tape *t, const struct parts *p)
{
    const int64_t n = ckpt_desc_of(t, p->h).shape[0];
    ckpt_tensor sum = ckpt_sum(t, p->square, CKPT_ALL_AXES), a = mean(t, p->h);
    a = ckpt_add(t, a, ckpt_div(t, sum, scalar(t, (float)n)));
    return ckpt_add(t, scalar(t, 1), a);
}

/* The squared error in single ops: one of its terms follows from inputs alone. */
static ckpt_tensor expanded(ckpt_tape *t, const struct parts *p)
{
    ckpt_tensor y = ckpt_slice(t, p->x, 1, 0, 1), b = mean(t, ckpt_mul(t, p->h, y));
    ckpt_tensor a = ckpt_add(t, mean(t, p->square), ckpt_affine(t, b, -2, 0));
    return ckpt_add(t, a, ckpt_affine(t, mean(t, ckpt_mul(t, y, y)), .5f, 1));
}

/* By a number that is trained, and beside a penalty on weights. */
static ckpt_tensor trained_scale(ckpt_tape *t, const struct parts *p)
{
    ckpt_tensor penalty = mean(t, ckpt_mul(t, p->w, p->w)), a = mean(t, p->square);
    return ckpt_add(t, penalty, ckpt_mul(t, a, ckpt_exp(t, ckpt_neg(t, mean(t, p->w)))));
}

/* Products, quotients and roots of each sample. */
static ckpt_tensor ratios(ckpt_tape *t, const struct parts *p)
{
    ckpt_tensor a = ckpt_sum(t, p->square, 2), b = ckpt_sum(t, ckpt_mul(t, p->x, p->x), 2);
    return mean(t, ckpt_sqrt(t, ckpt_div(t, a, ckpt_affine(t, b, 1, 1))));
}

/* A quotient of sums whose divisor follows from inputs alone. */
static ckpt_tensor by_hand(ckpt_tape *t, const struct parts *p)
{
    ckpt_tensor one = ckpt_cast(t, ckpt_gt(t, p->x, scalar(t, 0)), CKPT_F32);
    ckpt_tensor rows = ckpt_sum(t, p->square, 2), count = ckpt_sum(t, one, CKPT_ALL_AXES);
    rows = ckpt_sum(t, ckpt_mul(t, rows, ckpt_sum(t, one, 2)), CKPT_ALL_AXES);
    return ckpt_div(t, rows, ckpt_maximum(t, ckpt_affine(t, count, 1, 1e-6f), scalar(t, 1)));
}

/* ---- others ---------------------------------------------------------------------------------- */

static ckpt_tensor root(ckpt_tape *t, const struct parts *p)
{
    return ckpt_sqrt(t, mean(t, p->square));
}

static ckpt_tensor product(ckpt_tape *t, const struct parts *p)
{
    return ckpt_mul(t, mean(t, p->square), mean(t, p->h));
}

static ckpt_tensor quotient(ckpt_tape *t, const struct parts *p)
{
    ckpt_tensor soft = ckpt_sigmoid(t, p->h);
    return ckpt_div(t, mean(t, ckpt_mul(t, soft, p->square)), mean(t, soft));
}

static ckpt_tensor learned_mask(ckpt_tape *t, const struct parts *p)
{
    return ckpt_masked_mean(t, p->square, ckpt_gt(t, p->h, scalar(t, 0)));
}

/* The host has no products on a GPU. */
static ckpt_tensor mask_of_product(ckpt_tape *t, const struct parts *p)
{
    static const float ones[WIDTH] = {1, 1, 1, 1, 1, 1};
    ckpt_tensor w = ckpt_constant(t, NULL, CKPT_F32, 2, (int64_t[]){WIDTH, 1}, ones);
    ckpt_tensor score = ckpt_matmul(t, p->x, w, false, false);
    return ckpt_masked_mean(t, p->square, ckpt_gt(t, score, scalar(t, 0)));
}

static ckpt_tensor sum(ckpt_tape *t, const struct parts *p)
{
    return ckpt_sum(t, p->square, CKPT_ALL_AXES);
}

static ckpt_tensor scaled_sum(ckpt_tape *t, const struct parts *p)
{
    ckpt_tensor sum = ckpt_sum(t, p->square, CKPT_ALL_AXES);
    return ckpt_add(t, ckpt_mul(t, sum, scalar(t, .01f)), ckpt_div(t, sum, scalar(t, 3)));
}

/* A penalty that forgot the size of the batch. */
static ckpt_tensor mean_and_sum(ckpt_tape *t, const struct parts *p)
{
    ckpt_tensor sum = ckpt_affine(t, ckpt_sum(t, p->square, CKPT_ALL_AXES), 1e-4f, 0);
    return ckpt_add(t, ckpt_mse(t, p->h, p->square, CKPT_NONE), ckpt_reshape(t, sum, 0, NULL));
}

static ckpt_tensor masked_and_sum(ckpt_tape *t, const struct parts *p)
{
    ckpt_tensor sum = ckpt_reshape(t, ckpt_sum(t, p->square, CKPT_ALL_AXES), 0, NULL);
    return ckpt_sub(t, ckpt_masked_mean(t, p->square, p->mask), sum);
}

/* A sum by a mean is a sum. */
static ckpt_tensor sum_by_mean(ckpt_tape *t, const struct parts *p)
{
    return ckpt_div(t, sum(t, p), mean(t, ckpt_exp(t, p->x)));
}

static ckpt_tensor mean_by_n(ckpt_tape *t, const struct parts *p)
{
    const int64_t n = ckpt_desc_of(t, p->h).shape[0];
    return ckpt_affine(t, mean(t, p->square), 1 / (float)n, 0);
}

/* By a mean of inputs that is divided once more by the number of samples. */
static ckpt_tensor by_mean_by_n(ckpt_tape *t, const struct parts *p)
{
    const int64_t n = ckpt_desc_of(t, p->h).shape[0];
    return ckpt_mul(t, mean(t, p->h), ckpt_affine(t, mean(t, p->x), 1 / (float)n, 0));
}

/* A sum by something that is trained stays a sum. */
static ckpt_tensor sum_by_weight(ckpt_tape *t, const struct parts *p)
{
    return ckpt_div(t, sum(t, p), ckpt_exp(t, mean(t, p->w)));
}

/* Of inputs, but no mean. */
static ckpt_tensor constant_term(ckpt_tape *t, const struct parts *p)
{
    return ckpt_add(t, mean(t, p->h), ckpt_sqrt(t, mean(t, ckpt_mul(t, p->x, p->x))));
}

static ckpt_tensor first_sample(ckpt_tape *t, const struct parts *p)
{
    return mean(t, ckpt_slice(t, p->square, 0, 0, 1));
}

static ckpt_tensor gram(ckpt_tape *t, const struct parts *p)
{
    return mean(t, ckpt_matmul(t, p->h, p->h, true, false));
}

/* Each sample beside the next one. */
static ckpt_tensor neighbours(ckpt_tape *t, const struct parts *p)
{
    return mean(t, ckpt_mul(t, p->h, ckpt_roll(t, p->h, 0, 1)));
}

/* A mean, but in ops whose number depends on the samples. */
static ckpt_tensor loop(ckpt_tape *t, const struct parts *p)
{
    const int64_t n = ckpt_desc_of(t, p->h).shape[0];
    ckpt_tensor all = mean(t, ckpt_slice(t, p->square, 0, 0, 1));
    for (int64_t i = 1; i < n; i++)
        all = ckpt_add(t, all, mean(t, ckpt_slice(t, p->square, 0, i, i + 1)));
    return ckpt_affine(t, all, 1 / (float)n, 0);
}

/* The logits of a sample against all, and against a queue of others. */
static ckpt_tensor queue(ckpt_tape *t, const struct parts *p)
{
    const ckpt_tensor all[] = {p->h, ckpt_full(t, .5f, CKPT_F32, 2, (int64_t[]){3, HIDDEN})};
    ckpt_tensor logits = ckpt_matmul(t, p->h, ckpt_concat(t, 0, 2, all), false, true);
    return mean(t, ckpt_logsumexp(t, logits, 2));
}

static ckpt_tensor softmax_over_batch(ckpt_tape *t, const struct parts *p)
{
    return mean(t, ckpt_mul(t, p->h, ckpt_softmax(t, p->h, 0)));
}

static ckpt_tensor running_sum(ckpt_tape *t, const struct parts *p)
{
    return mean(t, ckpt_cumsum(t, p->h, 0));
}

/* Every sample is normalised by the batch. */
static ckpt_tensor moments(ckpt_tape *t, const struct parts *p)
{
    ckpt_tensor h = ckpt_sub(t, p->h, ckpt_mean(t, p->h, 1));
    return mean(t, ckpt_mul(t, h, h));
}

static ckpt_tensor contrast(ckpt_tape *t, const struct parts *p)
{
    return mean(t, ckpt_softplus(t, ckpt_matmul(t, p->h, p->h, false, true)));
}

static ckpt_tensor largest(ckpt_tape *t, const struct parts *p)
{
    return ckpt_amax(t, p->square, CKPT_ALL_AXES);
}

/* The balance of experts: shares of the batch times mean probabilities. */
static ckpt_tensor balance(ckpt_tape *t, const struct parts *p)
{
    ckpt_tensor of = ckpt_softmax(t, p->h, 1);
    ckpt_tensor share = ckpt_mean(t, ckpt_cast(t, ckpt_gt(t, p->h, scalar(t, 1)), CKPT_F32), 1);
    return ckpt_sum(t, ckpt_mul(t, share, ckpt_mean(t, of, 1)), CKPT_ALL_AXES);
}

static ckpt_tensor distance(ckpt_tape *t, const struct parts *p)
{
    return ckpt_l1(t, p->h, p->square);
}

static ckpt_tensor divergence(ckpt_tape *t, const struct parts *p)
{
    return ckpt_kl_normal(t, p->h, p->square);
}

static ckpt_tensor noted(ckpt_tape *t, const struct parts *p)
{
    ckpt_couple_samples(t, "experts have a capacity");
    ckpt_couple_samples(t, "a second reason");
    return mean(t, p->square);
}

static const struct {
    const char *name;
    loss_of loss;
    const char *reason; /* NULL: none */
} cases[] = {{"plain", plain, NULL},
             {"combination", combination, NULL},
             {"distance", distance, NULL},
             {"divergence", divergence, NULL},
             {"sum over n", sum_over_n, NULL},
             {"sum by n", sum_by_n, NULL},
             {"ratios", ratios, NULL},
             {"by hand", by_hand, NULL},
             {"expanded", expanded, NULL},
             {"trained scale", trained_scale, NULL},
             {"mean by n", mean_by_n, "not seen to be a mean"},
             {"by mean by n", by_mean_by_n, "no mean over"},
             {"sum by weight", sum_by_weight, "not a mean"},
             {"constant term", constant_term, "no mean over"},
             {"first sample", first_sample, "not seen to be a mean"},
             {"loop", loop, "not seen to be a mean"},
             {"gram", gram, "not seen to be a mean"},
             {"neighbours", neighbours, "relates samples"},
             {"queue", queue, "relates samples"},
             {"softmax", softmax_over_batch, "relates samples"},
             {"running sum", running_sum, "relates samples"},
             {"sum by mean", sum_by_mean, "not a mean"},
             {"root", root, "sqrt"},
             {"product", product, "mul"},
             {"quotient", quotient, "div"},
             {"learned mask", learned_mask, "masked_mean"},
             {"mask of a product", mask_of_product, "masked_mean"},
             {"sum", sum, "not a mean"},
             {"scaled sum", scaled_sum, "not a mean"},
             {"mean and sum", mean_and_sum, "adds a sum"},
             {"masked and sum", masked_and_sum, "adds a sum"},
             {"moments", moments, "whole batch"},
             {"contrast", contrast, "to each other"},
             {"largest", largest, "amax"},
             {"balance", balance, "mul"},
             {"noted", noted, "experts have a capacity"}};

static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct model *m = user;
    struct parts p = {.x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){n, WIDTH}),
                      .mask = ckpt_input(t, "mask", CKPT_I32, 2, (int64_t[]){n, 1})};
    p.h = ckpt_gelu_tanh(t, ckpt_linear(t, p.x, m->w, CKPT_NONE));
    p.square = ckpt_mul(t, p.h, p.h);
    p.w = m->w;
    ckpt_tensor loss = m->loss(t, &p);
    ckpt_output(t, "scalar", ckpt_reshape(t, ckpt_mean(t, p.square, 3), 0, NULL));
    return ckpt_reshape(t, loss, 0, NULL);
}

/* The reason on the plan table and the size of micro-steps, with a budget and --micro-batch. */
static struct ckpt_program_info plan(loss_of loss, int64_t micro, int64_t vram, char reason[160])
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    struct model m = {.loss = loss};
    char table[8192] = "", *line;
    struct ckpt_desc d;
    ckpt_program *p;
    ckpt *c;
    o.device = "cpu";
    o.micro_batch = micro;
    o.vram = vram;
    assert_int_equal(ckpt_open(&c, &o), 0);
    m.w = ckpt_param(c, "w", CKPT_F32, 2, (int64_t[]){HIDDEN, WIDTH}, CKPT_XAVIER, true);
    if (ckpt_compile(c, record, &m, ckpt_sgd(c, &sgd), BATCH, &p))
        fail_msg("%s", ckpt_error(c));
    FILE *f = fmemopen(table, sizeof table, "w");
    ckpt_plan_print(p, f);
    fclose(f);
    line = strstr(table, "other results: ");
    *reason = 0;
    if (line)
        sscanf(line, "other results: %159[^\n]", reason);
    assert_string_equal(reason, p->tape->coupled);
    assert_int_equal(ckpt_program_info(p, &info), 0);
    assert_int_equal(ckpt_program_desc(p, "scalar", &d), 0);
    assert_int_equal(d.ndim, 0); /* under every plan */
    ckpt_close(c);
    return info;
}

static void test_reasons(void **state)
{
    char reason[160];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *want = cases[i].reason;
        for (int k = 0; k < 3; k++) {
            plan(cases[i].loss, k ? 2 * k : CKPT_AUTO, 0, reason);
            if (want ? !strstr(reason, want) : *reason)
                fail_msg("%s: '%s' instead of '%s'", cases[i].name, reason, want ? want : "");
        }
    }
}

static void test_auto(void **state)
{
    char reason[160];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool whole = cases[i].reason;
        const int64_t least = plan(cases[i].loss, whole ? BATCH : 1, 0, reason).min_budget;
        const struct ckpt_program_info got = plan(cases[i].loss, CKPT_AUTO, least, reason);
        if (whole ? got.micro_batch != BATCH || got.choice_changes_bits : got.micro_batch == BATCH)
            fail_msg("%s: micro-steps of %lld", cases[i].name, (long long)got.micro_batch);
    }
}

static void test_no_reason(void **state)
{
    (void)state;
    ckpt_couple_samples(NULL, "nothing");
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    ckpt_tape *t;
    o.device = "cpu";
    assert_int_equal(ckpt_open(&c, &o), 0);
    const struct tape_env env = {.calls = &ops_calls, .params = &c->params};
    assert_int_equal(tape_new(&t, &env, 1, 1), 0);
    ckpt_couple_samples(t, "");
    assert_int_equal(t->error.code, CKPT_EINVAL);
    tape_free(t);
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reasons), cmocka_unit_test(test_auto),
                                       cmocka_unit_test(test_no_reason)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
