/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random losses: each is noted to depend on how its batch is divided, or loss, norm and weights
 * after a step are the same, up to the last bits, for every number of micro-steps and ranks.  Most
 * are sums of means with masks and counts of their own; others multiply and divide them, take some
 * of the samples, or compute over them.
 *
 *     test_random_losses [LOSSES [SEED]]
 *
 * What is drawn does not depend on the size of a micro-step, so recordings differ in sizes alone.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "dist/rank_threads.h"
#include "exec/program.h"

enum { BATCH = 8, PLACES = 4, WIDTH = 3, HIDDEN = 5, VALUES = 16, INPUTS = 3, MAX_RANKS = 4 };
enum { WEIGHTS = HIDDEN * WIDTH };

struct split {
    struct rank_thread as;
    uint64_t seed;
    int ranks, zero;
    int64_t micro;
    ckpt_tensor w;
    bool coupled;
    float loss, norm, weight[WEIGHTS];
};

/* A recording: values [n, ...], the first INPUTS of them inputs. */
struct draw {
    ckpt_tape *t;
    int64_t n;
    uint64_t state;
    ckpt_tensor v[VALUES], label;
    int n_values;
};

static int below(struct draw *d, int n)
{
    d->state = d->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((d->state >> 33) % (uint64_t)n);
}

static ckpt_tensor number(ckpt_tape *t, float x)
{
    return ckpt_full(t, x, CKPT_F32, 0, NULL);
}

static ckpt_tensor mean(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_reshape(t, ckpt_mean(t, x, CKPT_ALL_AXES), 0, NULL);
}

static ckpt_tensor sum(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_reshape(t, ckpt_sum(t, x, CKPT_ALL_AXES), 0, NULL);
}

/* ---- values of samples ----------------------------------------------------------------------- */

static ckpt_tensor unary(ckpt_tape *t, int how, ckpt_tensor x)
{
    switch (how) {
    case 0:
        return ckpt_tanh(t, x);
    case 1:
        return ckpt_exp(t, ckpt_tanh(t, x));
    case 2:
        return ckpt_sqrt(t, ckpt_affine(t, ckpt_mul(t, x, x), 1, .5f));
    case 3:
        return ckpt_cast(t, ckpt_gt(t, x, number(t, .1f)), CKPT_F32);
    default:
        return ckpt_affine(t, x, .7f, .2f);
    }
}

static ckpt_tensor binary(ckpt_tape *t, int how, ckpt_tensor x, ckpt_tensor y)
{
    switch (how) {
    case 0:
        return ckpt_add(t, x, y);
    case 1:
        return ckpt_mul(t, x, y);
    case 2:
        return ckpt_div(t, x, ckpt_affine(t, ckpt_mul(t, y, y), 1, 1));
    default:
        return ckpt_maximum(t, x, y);
    }
}

/* A function of x within its samples. */
static ckpt_tensor within(ckpt_tape *t, int how, ckpt_tensor x)
{
    const int64_t places = ckpt_desc_of(t, x).shape[1];
    switch (how) {
    case 0:
        return ckpt_mean(t, x, 2);
    case 1:
        return ckpt_sum(t, x, 4);
    case 2:
        return ckpt_softmax(t, x, 1);
    case 3:
        return ckpt_cumsum(t, x, 2);
    default:
        return ckpt_slice(t, x, 1, places / 2, places);
    }
}

/* A function of x that takes some samples, or relates them. */
static ckpt_tensor across(ckpt_tape *t, int how, ckpt_tensor x)
{
    ckpt_tensor two[] = {x, x};
    switch (how) {
    case 0:
        return ckpt_sum(t, x, 1);
    case 1:
        return ckpt_slice(t, x, 0, 0, 1);
    case 2:
        return ckpt_softmax(t, x, 0);
    case 3:
        return ckpt_cumsum(t, x, 0);
    case 4:
        return ckpt_norm(t, ckpt_affine(t, x, 1, .1f), 1);
    case 5:
        return ckpt_concat(t, 0, 2, two);
    default:
        return ckpt_amax(t, x, 1);
    }
}

/* Broadcasts, whatever the number of samples. */
static bool fit(ckpt_tape *t, ckpt_tensor x, ckpt_tensor y)
{
    const struct ckpt_desc a = ckpt_desc_of(t, x), b = ckpt_desc_of(t, y);
    bool fits = a.ndim == b.ndim && a.shape[0] == b.shape[0];
    for (int i = 1; fits && i < a.ndim; i++)
        fits = a.shape[i] == b.shape[i] || a.shape[i] == 1 || b.shape[i] == 1;
    return fits;
}

static void add_value(struct draw *d)
{
    const int how = below(d, 10), detail = below(d, 140);
    const ckpt_tensor x = d->v[below(d, d->n_values)], y = d->v[below(d, d->n_values)];
    ckpt_tensor z = x;
    if (how < 3)
        z = unary(d->t, detail % 5, x);
    else if (how < 6 && fit(d->t, x, y))
        z = binary(d->t, detail % 4, x, y);
    else if (how < 9)
        z = within(d->t, detail % 5, x);
    else if (how == 9)
        z = across(d->t, detail % 7, x);
    d->v[d->n_values++] = z;
}

/* ---- the loss -------------------------------------------------------------------------------- */

/* A quotient of sums in single ops. */
static ckpt_tensor quotient(ckpt_tape *t, int how, ckpt_tensor x, ckpt_tensor y)
{
    const ckpt_tensor mask = unary(t, 3, y), top = sum(t, ckpt_mul(t, x, mask));
    const ckpt_tensor count = sum(t, mask);
    if (how == 0)
        return ckpt_div(t, top, ckpt_maximum(t, count, number(t, 1)));
    if (how == 1)
        return ckpt_div(t, top, ckpt_affine(t, count, 1, 1e-3f));
    return ckpt_mul(t, top, ckpt_pow_scalar(t, ckpt_maximum(t, count, number(t, 1)), -1));
}

static ckpt_tensor scalar(struct draw *d)
{
    const int how = below(d, 16), detail = below(d, 3);
    const ckpt_tensor x = d->v[below(d, d->n_values)], any = d->v[below(d, d->n_values)];
    const ckpt_tensor input = d->v[below(d, INPUTS - 1)];
    ckpt_tape *t = d->t;
    if (how < 2)
        return ckpt_cross_entropy(t, d->v[INPUTS], d->label, NULL);
    if (how == 2)
        return ckpt_affine(t, sum(t, x), 1 / (float)d->n, 0);
    if (how < 5 && fit(t, d->v[INPUTS], input))
        return ckpt_masked_mean(t, d->v[INPUTS], unary(t, 3, input));
    if (how < 8)
        return quotient(t, detail, d->v[INPUTS], input);
    if (how == 8 && fit(t, x, any))
        return quotient(t, detail, x, any);
    if (how == 9)
        return sum(t, x);
    return how == 10 ? ckpt_affine(t, mean(t, x), 1 / (float)d->n, 0) : mean(t, x);
}

static ckpt_tensor term(struct draw *d)
{
    const int how = below(d, 20);
    const ckpt_tensor x = scalar(d);
    switch (how) {
    case 0:
        return ckpt_mul(d->t, x, scalar(d));
    case 1:
        return ckpt_div(d->t, x, ckpt_exp(d->t, ckpt_tanh(d->t, scalar(d))));
    case 2:
        return ckpt_maximum(d->t, x, scalar(d));
    case 3:
    case 4:
        return unary(d->t, how - 2, x);
    case 5:
    case 6:
    case 7:
        return ckpt_div(d->t, x, number(d->t, 3));
    default:
        return how < 12 ? ckpt_affine(d->t, x, .3f, .1f) : x;
    }
}

static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct split *m = user;
    struct draw d = {.t = t, .n = n, .state = m->seed * 0x9e3779b97f4a7c15u};
    d.v[0] = ckpt_input(t, "mask", CKPT_F32, 3, (int64_t[]){n, PLACES, 1});
    d.v[1] = ckpt_input(t, "weight", CKPT_F32, 3, (int64_t[]){n, 1, 1});
    d.v[2] = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){n, PLACES, WIDTH});
    d.label = ckpt_input(t, "label", CKPT_I32, 2, (int64_t[]){n, PLACES});
    d.v[INPUTS] = ckpt_gelu_tanh(t, ckpt_linear(t, d.v[2], m->w, CKPT_NONE));
    d.n_values = INPUTS + 1;
    below(&d, 2);
    for (int i = below(&d, 6); i >= 0; i--)
        add_value(&d);
    ckpt_tensor loss = mean(t, d.v[INPUTS]);
    for (int i = below(&d, 3); i >= 0; i--)
        loss = ckpt_add(t, loss, term(&d));
    return loss;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Samples 4 and 5 have no label, 2 and 3 nothing under the mask. */
static int feed(const struct split *m, ckpt_program *p)
{
    float x[BATCH][PLACES][WIDTH], mask[BATCH][PLACES], weight[BATCH];
    int32_t label[BATCH][PLACES];
    const int64_t n = BATCH / m->ranks, first = m->as.rank * n;
    ckpt_fill_normal(3, 1, 1, x[0][0], BATCH * PLACES * WIDTH);
    ckpt_fill_normal(3, 1, 2, mask[0], BATCH * PLACES);
    for (int i = 0; i < BATCH; i++) {
        weight[i] = i % 3 ? 0 : .4f * (float)i;
        for (int k = 0; k < PLACES; k++) {
            const bool counts = i == 0 || (i != 4 && i != 5 && k < 1 + i % 2);
            label[i][k] = counts ? (i + k) % HIDDEN : -100;
            mask[i][k] = i == 2 || i == 3 ? 0 : i == 7 ? 1 : mask[i][k];
        }
    }
    /* CKPT_ENAME: the loss does not read it */
    const int rc[] = {ckpt_feed(p, "x", x[first], n * (int64_t)sizeof x[0]),
                      ckpt_feed(p, "mask", mask[first], n * (int64_t)sizeof mask[0]),
                      ckpt_feed(p, "weight", weight + first, n * 4),
                      ckpt_feed(p, "label", label[first], n * (int64_t)sizeof label[0])};
    for (int i = 0; i < 4; i++)
        if (rc[i] && rc[i] != CKPT_ENAME)
            return rc[i];
    return 0;
}

static int step(struct split *m, ckpt *c)
{
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt_program *p;
    sgd.lr = .1f;
    int rc = ckpt_compile(c, record, m, ckpt_sgd(c, &sgd), BATCH / m->ranks, &p);
    if (rc)
        return rc;
    m->coupled = *p->tape->coupled;
    rc = feed(m, p);
    rc = rc ? rc : ckpt_step(p, &m->loss);
    rc = rc ? rc : ckpt_program_info(p, &info);
    m->norm = (float)info.grad_norm;
    return rc ? rc : ckpt_param_get(c, m->w, CKPT_VALUE, m->weight, WEIGHTS);
}

static void *train(void *arg)
{
    struct split *m = arg;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.micro_batch = m->micro;
    o.vram = CKPT_VRAM_NONE;
    ckpt *c = rank_open(&m->as, o, m->zero, 0);
    if (!c)
        return NULL;
    m->w = ckpt_param(c, "w", CKPT_F32, 2, (int64_t[]){HIDDEN, WIDTH}, CKPT_XAVIER, true);
    m->as.rc = step(m, c);
    if (m->as.rc)
        print_message("rank %d: %s\n", m->as.rank, ckpt_error(c));
    ckpt_close(c);
    return NULL;
}

static struct split run(uint64_t seed, int ranks, int64_t micro)
{
    static struct split all[MAX_RANKS];
    for (int r = 0; r < ranks; r++)
        all[r] =
            (struct split){.seed = seed, .ranks = ranks, .zero = (int)(seed % 4), .micro = micro};
    run_ranks(all, sizeof all[0], ranks, 0, train);
    return all[0];
}

/* Whether both are the same up to roundings of sums. */
static bool is_close(const struct split *a, const struct split *b)
{
    const float bound = 3e-5f * (1 + a->norm);
    bool close = fabsf(a->loss - b->loss) <= 3e-5f * (1 + fabsf(a->loss));
    for (int i = 0; i < WEIGHTS; i++)
        close &= fabsf(a->weight[i] - b->weight[i]) <= bound;
    return close;
}

static long losses = 40, seed = 30;

static void test_losses(void **state)
{
    static const int ranks[] = {1, 1, 2, 4}, micro[] = {4, 2, 2, 1};
    long divided = 0;
    (void)state;
    for (long i = seed; i < seed + losses; i++) {
        struct split one = run((uint64_t)i, 1, 1);
        if (one.coupled)
            continue;
        const struct split whole = run((uint64_t)i, 1, BATCH);
        for (int k = -1; k < 4; k++) {
            one = k < 0 ? one : run((uint64_t)i, ranks[k], micro[k]);
            if (!is_close(&whole, &one))
                fail_msg("loss %ld: %.8g in micro-steps of %d on %d ranks, not %.8g", i,
                         (double)one.loss, (int)one.micro, one.ranks, (double)whole.loss);
        }
        divided++;
    }
    assert_true(divided > losses / 8); /* not everything is noted */
    print_message("%ld of %ld losses may be divided\n", divided, losses);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_losses)};
    losses = argc > 1 ? atol(argv[1]) : losses;
    seed = argc > 2 ? atol(argv[2]) : seed;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
