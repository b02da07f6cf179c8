/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of experts against the definition in double: results, all gradients by differences, the
 * balance; with an expert that no token chose, a single expert, and all experts chosen. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "../../examples/lm/experts.h"

enum { TOKENS = 6, WIDTH = 5, INNER = 3, MOST = 4 };
enum { X, ROUTER, ROUTER_BIAS, UP, UP_BIAS, DOWN, DOWN_BIAS, PARAMS };
enum { ELEMENTS = MOST * 2 * INNER * WIDTH, UNUSED = MOST - 1 };

struct sample {
    struct lm_experts_config g;
    bool unused; /* no token chooses the last expert */
    int64_t n[PARAMS];
    float value[PARAMS][ELEMENTS];
    ckpt_tensor param[PARAMS];
    struct lm_experts m;
};

static const char *const names[PARAMS] = {
    "x", "m.router.weight", "m.router.bias", "up", "up_bias", "down", "down_bias"};

/* ---- the definition ---------------------------------------------------------------------------
 */

typedef double values[PARAMS][ELEMENTS];

struct routed {
    double chance[TOKENS][MOST], share[TOKENS][MOST]; /* share: 0 if not chosen */
};

static void softmax(int64_t n, const double *score, const bool *counts, double *p)
{
    double sum = 0;

    for (int64_t e = 0; e < n; e++)
        sum += p[e] = !counts || counts[e] ? exp(score[e]) : 0;
    for (int64_t e = 0; e < n; e++)
        p[e] /= sum;
}

static void route(const struct sample *s, const values v, int64_t token, struct routed *r)
{
    const int64_t E = s->g.count;
    double score[MOST], *share = r->share[token], sum = 0;
    bool chosen[MOST] = {false};

    for (int64_t e = 0; e < E; e++) {
        score[e] = s->g.bias ? v[ROUTER_BIAS][e] : 0;
        for (int i = 0; i < WIDTH; i++)
            score[e] += v[ROUTER][e * WIDTH + i] * v[X][token * WIDTH + i];
    }
    for (int64_t k = 0; k < s->g.chosen; k++) {
        int64_t best = -1;
        for (int64_t e = 0; e < E; e++)
            if (!chosen[e] && (best < 0 || score[e] > score[best]))
                best = e;
        chosen[best] = true;
    }
    softmax(E, score, NULL, r->chance[token]);
    softmax(E, score, s->g.late_softmax ? chosen : NULL, share);
    for (int64_t e = 0; e < E; e++)
        sum += share[e] *= chosen[e];
    for (int64_t e = 0; e < E && s->g.normalized; e++)
        share[e] /= sum;
}

static double activation(const struct sample *s, double gate, double up)
{
    const double limit = (double)s->g.limit;

    if (!s->g.clamped)
        return up * gate / (1 + exp(-gate));
    gate = fmin(gate, limit);
    return (fmax(fmin(up, limit), -limit) + 1) * gate / (1 + exp(-1.702 * gate));
}

static double inner(const struct sample *s, const values v, int64_t e, int64_t token, int64_t i)
{
    double x[2];

    for (int k = 0; k < 2; k++) {
        const int64_t row = e * 2 * INNER + (s->g.clamped ? 2 * i + k : k * INNER + i);
        x[k] = s->g.bias ? v[UP_BIAS][row] : 0;
        for (int c = 0; c < WIDTH; c++)
            x[k] += v[UP][row * WIDTH + c] * v[X][token * WIDTH + c];
    }
    return activation(s, x[0], x[1]);
}

static double output(const struct sample *s, const values v, const struct routed *r, int64_t token,
                     int64_t column)
{
    double y = 0;

    for (int64_t e = 0; e < s->g.count; e++) {
        const int64_t row = e * WIDTH + column;
        double of = s->g.bias ? v[DOWN_BIAS][row] : 0;
        for (int64_t i = 0; i < INNER && r->share[token][e] > 0; i++)
            of += v[DOWN][row * INNER + i] * inner(s, v, e, token, i);
        y += r->share[token][e] * of;
    }
    return y;
}

static double balance(const struct sample *s, const struct routed *r)
{
    double sum = 0;

    for (int64_t e = 0; e < s->g.count; e++) {
        double part = 0, chance = 0;
        for (int t = 0; t < TOKENS; t++) {
            part += (r->share[t][e] > 0) / (double)TOKENS;
            chance += r->chance[t][e] / TOKENS;
        }
        sum += part * chance;
    }
    return sum * (double)s->g.count;
}

/* The mean of the squares of y, plus the balance. */
static double loss_of(const struct sample *s, const values v, double *y, double *even)
{
    struct routed r = {0};
    double sum = 0;

    for (int64_t t = 0; t < TOKENS; t++) {
        route(s, v, t, &r);
        for (int64_t c = 0; c < WIDTH; c++) {
            const double x = output(s, v, &r, t, c);
            sum += x * x / (TOKENS * WIDTH);
            if (y)
                y[t * WIDTH + c] = x;
        }
    }
    if (even)
        *even = balance(s, &r);
    return sum + balance(s, &r);
}

/* ---- the library ------------------------------------------------------------------------------
 */

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct sample *s = user;
    struct lm_routes routes;
    ckpt_tensor y = lm_experts_apply(&s->m, &s->g, t, s->param[X], &routes);
    ckpt_tensor even = lm_experts_balance(&s->g, t, 1, &routes);
    ckpt_tensor loss = ckpt_mean(t, ckpt_mul(t, y, y), CKPT_ALL_AXES);

    (void)batch;
    ckpt_output(t, "y", y);
    ckpt_output(t, "even", even);
    for (int i = 0; i < PARAMS; i++)
        if (s->n[i])
            ckpt_output_gradient(t, names[i], s->param[i]);
    return ckpt_add(t, ckpt_reshape(t, loss, 0, NULL), even);
}

static void make(struct sample *s, ckpt *c)
{
    const int64_t E = s->g.count;
    const int64_t shape[PARAMS][3] = {
        {TOKENS, WIDTH}, {E, WIDTH},        {E},       {E, 2 * INNER, WIDTH},
        {E, 2 * INNER},  {E, WIDTH, INNER}, {E, WIDTH}};
    static const int ndim[PARAMS] = {2, 2, 1, 3, 2, 3, 2};

    for (int i = 0; i < PARAMS; i++) {
        const bool is_bias = i == ROUTER_BIAS || i == UP_BIAS || i == DOWN_BIAS;
        s->n[i] = s->g.bias || !is_bias;
        if (!s->n[i])
            continue;
        for (int k = 0; k < ndim[i]; k++)
            s->n[i] *= shape[i][k];
        s->param[i] = ckpt_param(c, names[i], CKPT_F32, ndim[i], shape[i], CKPT_NORMAL(1.f), true);
        assert_int_equal(ckpt_param_get(c, s->param[i], CKPT_VALUE, s->value[i], s->n[i]), 0);
        for (int64_t k = 0; k < s->n[i] && i == X; k++)
            s->value[i][k] = fabsf(s->value[i][k]); /* so that a sign of the router decides */
        for (int64_t k = 0; k < WIDTH && i == ROUTER && s->unused; k++)
            s->value[i][UNUSED * WIDTH + k] = -20;
        assert_int_equal(ckpt_param_set(c, s->param[i], CKPT_VALUE, s->value[i], s->n[i]), 0);
    }
    s->m = (struct lm_experts){.router = {s->param[ROUTER], s->param[ROUTER_BIAS]},
                               .gate_up = s->param[UP],
                               .down = s->param[DOWN],
                               .gate_up_bias = s->param[UP_BIAS],
                               .down_bias = s->param[DOWN_BIAS]};
}

static void check_near(double got, double want, const char *what, int64_t i)
{
    if (!(fabs(got - want) <= 2e-4 * (1 + fabs(want))))
        fail_msg("%s %lld: %g and not %g", what, (long long)i, got, want);
}

static void check_gradients(const struct sample *s, ckpt_program *p, values v)
{
    static float got[ELEMENTS];
    const double step = 1e-6;

    for (int i = 0; i < PARAMS; i++) {
        if (!s->n[i])
            continue;
        assert_int_equal(ckpt_fetch(p, names[i], got, s->n[i] * (int64_t)sizeof *got), 0);
        for (int64_t k = 0; k < s->n[i]; k++) {
            const double x = v[i][k];
            v[i][k] = x + step;
            double slope = loss_of(s, v, NULL, NULL);
            v[i][k] = x - step;
            slope = (slope - loss_of(s, v, NULL, NULL)) / (2 * step);
            v[i][k] = x;
            check_near((double)got[k], slope, names[i], k);
            if (s->unused && (i == UP || i == DOWN) && k / (s->n[i] / MOST) == UNUSED)
                assert_true(got[k] == 0.f); /* exactly */
        }
    }
}

static void check(struct lm_experts_config g, bool unused)
{
    static values v;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    static struct sample s;
    float y[TOKENS * WIDTH], loss, even;
    double want[TOKENS * WIDTH], want_even;
    ckpt_program *p;
    ckpt *c;

    s = (struct sample){.g = g, .unused = unused};
    s.g.inner = INNER;
    o.threads = 1;
    if (ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    make(&s, c);
    for (int i = 0; i < PARAMS; i++)
        for (int64_t k = 0; k < s.n[i]; k++)
            v[i][k] = (double)s.value[i][k];
    sgd.lr = 0;
    if (ckpt_compile(c, record, &s, ckpt_sgd(c, &sgd), 1, &p) || ckpt_step(p, &loss))
        fail_msg("%s", ckpt_error(c));
    check_near((double)loss, loss_of(&s, v, want, &want_even), "loss", 0);
    assert_int_equal(ckpt_fetch(p, "y", y, sizeof y), 0);
    assert_int_equal(ckpt_fetch(p, "even", &even, sizeof even), 0);
    check_near((double)even, want_even, "balance", 0);
    for (int i = 0; i < TOKENS * WIDTH; i++)
        check_near((double)y[i], want[i], "y", i);
    check_gradients(&s, p, v);
    ckpt_close(c);
}

static void test_experts(void **state)
{
    const struct lm_experts_config silu = {.count = 4, .chosen = 2, .normalized = true};
    const struct lm_experts_config clamped = {.count = 4,
                                              .chosen = 2,
                                              .late_softmax = true,
                                              .bias = true,
                                              .clamped = true,
                                              .alpha = 1.702f,
                                              .limit = 1.2f};
    struct lm_experts_config g = silu;

    (void)state;
    check(silu, false);
    check(silu, true);
    check(clamped, false);
    check(clamped, true);
    g.normalized = false;
    check(g, false);
    g.chosen = 4;
    check(g, false);
    g.count = g.chosen = 1;
    check(g, false);
    g = clamped;
    g.chosen = 4;
    check(g, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_experts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
