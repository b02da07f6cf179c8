/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a recording with every rewrite of the tape, without those that promise the same bits, and
 * without any, each under three budgets: none, the smallest, and one between.
 *
 * - On the CPU losses, gradients and values after two steps have the same bits under every budget,
 *   and with and without the rewrites of `exact`.
 * - Gradients agree with fp64 within a bound of rounding: a multiple of what rounding each result
 *   and each gradient once changes in fp64, and a share of what it would be if nothing cancelled.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "context/context.h"
#include "exec/program.h"
#include "trial.h"

enum {
    ALL = (1 << REWRITES) - 1,
    /* The same bits on the CPU with and without these: others change the order of sums, or where a
     * value is rounded. */
    EXACT = 1 << REWRITE_LOSSES | 1 << REWRITE_FUSION | 1 << REWRITE_LARGEST | 1 << REWRITE_PAIRS,
    STEPS = 2
};

static const char *const rewrite_names[] = {
#define X(name) #name,
    TAPE_REWRITES(X)
#undef X
};

struct setting {
    unsigned without;
    int64_t budget; /* 0: none */
};

struct outcome {
    int code;
    char error[400];
    int64_t peak, smallest;
    int64_t n;                    /* losses, gradients, values after the last step */
    float *number;                /* losses first */
    int64_t gradient[MAX_VALUES]; /* per parameter: where the first step's begins; 0: none */
};

/* ---- planning --------------------------------------------------------------------------------*/

/* One search for the budgets of a tape: linked in place of the calls of plan/plan.h. */
int __real_frontiers_new(struct frontiers **all);
void __real_frontiers_free(struct frontiers *all);
int __wrap_frontiers_new(struct frontiers **all);
void __wrap_frontiers_free(struct frontiers *all);

static struct frontiers *searched;

int __wrap_frontiers_new(struct frontiers **all)
{
    const int rc = searched ? 0 : __real_frontiers_new(&searched);
    *all = searched;
    return rc;
}

void __wrap_frontiers_free(struct frontiers *all)
{
    (void)all;
}

/* The local search, which takes four fifths of the time: any plan will do here. */
struct frontier;
int __wrap_frontier_anneal(struct frontier *f, int64_t work, int64_t most);
int __wrap_frontier_anneal(struct frontier *f, int64_t work, int64_t most)
{
    (void)f, (void)work, (void)most;
    return 0;
}

static void forget_search(void)
{
    if (searched)
        __real_frontiers_free(searched);
    searched = NULL;
}

static bool on_gpu(void)
{
    return getenv("CKPT_TEST_GPU") != NULL;
}

/* ---- running ---------------------------------------------------------------------------------*/

struct run {
    const struct recording *r;
    ckpt_tensor param[MAX_VALUES];
    bool reaches[MAX_VALUES]; /* the loss depends on it */
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct run *u = user;
    char name[24];
    (void)batch;
    ckpt_tensor loss = recording_play(u->r, t, u->param);
    for (int k = 0; k < u->r->n_values; k++)
        if (u->param[k].id && u->reaches[k]) {
            snprintf(name, sizeof name, "g%d", k);
            ckpt_output_gradient(t, name, u->param[k]);
        }
    return loss;
}

static void make_params(struct run *u, ckpt *c)
{
    float x[MAX_NUMEL];
    char name[24];
    for (int i = 0; i < u->r->n_calls; i++) {
        const struct call *call = &u->r->call[i];
        const struct value *v = &u->r->value[call->out];
        if (call->kind != CALL_PARAM)
            continue;
        snprintf(name, sizeof name, "w%d", call->out);
        u->param[call->out] = ckpt_param(c, name, v->dtype, v->ndim, v->shape, CKPT_ZEROS, true);
        recording_fill(u->r, call, x, value_numel(v));
        ckpt_param_set(c, u->param[call->out], CKPT_VALUE, x, value_numel(v));
    }
}

static int feed(const struct run *u, ckpt_program *p)
{
    static float x[4 * MAX_NUMEL];
    char name[24];
    int rc = 0;
    for (int i = 0; i < u->r->n_calls && !rc; i++) {
        const struct call *call = &u->r->call[i];
        const struct value *v = &u->r->value[call->out];
        const int64_t n = value_numel(v) * u->r->n_micro;
        if (call->kind != CALL_INPUT)
            continue;
        snprintf(name, sizeof name, "x%d", call->out);
        recording_fill(u->r, call, x, n);
        for (int64_t k = 0; k < n && v->dtype == CKPT_BF16; k++)
            ((uint16_t *)x)[k] = (uint16_t)(((const uint32_t *)x)[k] >> 16);
        rc = ckpt_feed(p, name, x, n * ckpt_dtype_size(v->dtype));
    }
    return rc;
}

/* Appends n numbers; returns where. */
static float *more(struct outcome *o, int64_t n)
{
    float *p = realloc(o->number, (size_t)(o->n + n) * sizeof *p);
    if (!p)
        abort();
    o->number = p;
    o->n += n;
    return p + o->n - n;
}

static int fetch_all(const struct run *u, ckpt *c, ckpt_program *p, bool first, struct outcome *o)
{
    char name[24];
    int rc = 0;
    for (int k = 0; k < u->r->n_values && !rc; k++) {
        const int64_t n = value_numel(&u->r->value[k]);
        if (!u->param[k].id)
            continue;
        if (u->reaches[k]) {
            snprintf(name, sizeof name, "g%d", k);
            o->gradient[k] = first ? o->n : o->gradient[k];
            rc = ckpt_fetch(p, name, more(o, n), n * 4);
        }
        if (!first && !rc)
            rc = ckpt_param_get(c, u->param[k], CKPT_VALUE, more(o, n), n);
    }
    return rc;
}

static const ckpt_optimizer *optimizer(const struct recording *r, ckpt *c)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    adamw.grad_dtype = sgd.grad_dtype = r->bf16_gradient ? CKPT_BF16 : CKPT_F32;
    adamw.lr = 1e-3f;
    sgd.lr = 1e-2f;
    return r->adamw ? ckpt_adamw(c, &adamw) : ckpt_sgd(c, &sgd);
}

static int64_t batch_of(const struct recording *r)
{
    for (int i = 0; i < r->n_calls; i++)
        if (r->call[i].kind == CALL_INPUT)
            return r->value[r->call[i].out].shape[0];
    return 1;
}

static int steps(struct run *u, ckpt *c, struct outcome *o)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt_program *p;
    float loss = 0;
    make_params(u, c);
    int rc = ckpt_compile(c, record, u, optimizer(u->r, c), batch_of(u->r) * u->r->n_micro, &p);
    if (rc)
        return rc;
    ckpt_program_info(p, &info);
    o->peak = info.planned_peak + info.overhead_bytes;
    o->smallest = info.min_budget;
    more(o, STEPS);
    rc = feed(u, p);
    for (int i = 0; i < STEPS && !rc; i++) {
        rc = ckpt_step(p, &loss);
        o->number[i] = loss;
        rc = rc ? rc : fetch_all(u, c, p, i == 0, o);
    }
    return rc;
}

static void run(const struct recording *r, const struct setting *s, struct outcome *o)
{
    struct ckpt_options options = CKPT_OPTIONS_INIT;
    struct run u = {.r = r};
    ckpt *c = NULL;
    recording_reach(r, u.reaches);
    options.device = on_gpu() ? "cuda" : "cpu";
    options.threads = r->threads;
    options.verify = r->verify;
    options.vram = s->budget ? s->budget : CKPT_VRAM_NONE;
    options.micro_batch = batch_of(r);
    *o = (struct outcome){0};
    o->code = ckpt_open(&c, &options);
    if (!o->code) {
        c->programs.without = s->without;
        ckpt_plan_in_full(c, !s->budget);
        o->code = steps(&u, c, o);
    }
    if (o->code)
        snprintf(o->error, sizeof o->error, "%s", ckpt_error(c));
    ckpt_close(c);
}

/* ---- comparing -------------------------------------------------------------------------------*/

static void fail(struct verdict *v, enum failure failure, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    if (!v->failure)
        vsnprintf(v->text, sizeof v->text, format, ap);
    v->failure = v->failure ? v->failure : failure;
    va_end(ap);
}

/* A run that ended with a code; one that is not finite is off by more than any bound. */
static void fail_run(struct verdict *v, const char *what, const struct outcome *o)
{
    v->code = o->code;
    v->excess = INFINITY;
    fail(v, o->code == CKPT_ENAN ? FAIL_NUMBER : FAIL_CODE, "%s: %s", what, o->error);
}

static void expect_below(struct verdict *v, double error, double bound, const char *what,
                         const char *of, int k)
{
    if (error <= bound)
        return;
    if (!v->failure)
        v->excess = isfinite(error) ? error / bound : INFINITY;
    fail(v, FAIL_NUMBER, "%s: the %s%d is off by %.3g, more than %.3g", what, of, k, error, bound);
}

static void expect_bits(const struct outcome *a, const struct outcome *b, const char *what,
                        struct verdict *v)
{
    if (b->code) {
        fail_run(v, what, b);
        return;
    }
    for (int64_t i = 0; i < a->n && i < b->n; i++)
        if (memcmp(&a->number[i], &b->number[i], sizeof *a->number)) {
            int k = 0;
            for (int g = 0; g < MAX_VALUES; g++)
                k = a->gradient[g] && a->gradient[g] <= i ? g : k;
            fail(v, FAIL_BITS, "%s: other bits: %.9g, not %.9g, number %lld, gradient %d or later",
                 what, (double)b->number[i], (double)a->number[i], (long long)i, k);
            return;
        }
}

/* Runs `s` under the two smaller budgets of a. */
static void compare_budgets(const struct recording *r, const struct outcome *a, unsigned without,
                            const char *what, struct verdict *v)
{
    const int64_t budgets[] = {a->smallest, (a->smallest + a->peak) / 2};
    /* A GPU's context takes some MiB more or less each time, and a tape a few KiB. */
    const int n = on_gpu() ? 0 : 2;
    for (int i = 0; i < n && !v->failure; i++) {
        const struct setting s = {without, budgets[i]};
        struct outcome b;
        char text[100];
        run(r, &s, &b);
        snprintf(text, sizeof text, "%s under %lld bytes of %lld", what, (long long)budgets[i],
                 (long long)a->peak);
        expect_bits(a, &b, text, v);
        free(b.number);
    }
}

struct expected {
    struct reference to[ROUNDINGS];
    double largest; /* of all gradients */
    bool bf16;
};

static double *copy_room(const struct recording *r, int k)
{
    return calloc((size_t)value_numel(&r->value[k]), sizeof(double));
}

static bool expect(const struct recording *r, struct expected *e)
{
    *e = (struct expected){.bf16 = r->bf16_gradient};
    for (int k = 0; k < r->n_values; k++) {
        e->bf16 |= r->value[k].dtype == CKPT_BF16;
        if (r->call[r->value[k].call].kind == CALL_PARAM) {
            for (int i = 0; i < ROUNDINGS; i++)
                e->to[i].gradient[k] = copy_room(r, k);
        }
    }
    for (int i = 0; i < ROUNDINGS; i++)
        recording_compute(r, (enum rounding)i, &e->to[i]);
    const struct reference *exact = &e->to[ROUND_NOTHING];
    for (int k = 0; k < r->n_values; k++)
        for (int64_t i = 0; exact->gradient[k] && i < value_numel(&r->value[k]); i++)
            e->largest = fmax(e->largest, fabs(exact->gradient[k][i]));
    return !exact->near && exact->largest < 50 && e->largest < 50;
}

static void release(struct expected *e)
{
    for (int i = 0; i < ROUNDINGS; i++)
        for (int k = 0; k < MAX_VALUES; k++)
            free(e->to[i].gradient[k]);
}

static void compare_gradient(const struct recording *r, const struct expected *e, int k,
                             const float *g, const char *what, struct verdict *v)
{
    /* 5e-6: functions that saturate, as 1 - tanh(x)^2, cancel inside. */
    const struct reference *exact = &e->to[ROUND_NOTHING];
    const double *want = exact->gradient[k];
    const int64_t n = value_numel(&r->value[k]);
    double error = 0, noise = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)g[i] - want[i];
        error += d * d;
        for (int way = ROUND_NEAREST; way < ROUNDINGS; way++)
            noise += pow(e->to[way].gradient[k][i] - want[i], 2);
    }
    const double bound =
        (e->bf16 ? 16 : 8) * sqrt(noise) + (e->bf16 ? 0.02 : 2e-6) * exact->scale[k] + 5e-6;
    expect_below(v, sqrt(error), bound, what, "gradient of value ", k);
}

static void compare_reference(const struct recording *r, const struct expected *e,
                              const struct outcome *o, const char *what, struct verdict *v)
{
    const double exact = e->to[ROUND_NOTHING].loss;
    const double noise =
        fabs(e->to[ROUND_NEAREST].loss - exact) + fabs(e->to[ROUND_DOWN].loss - exact);
    const double bound = 16 * noise + (e->bf16 ? 0.02 : 1e-5) * (1 + fabs(exact));
    expect_below(v, fabs((double)o->number[0] - exact), bound, what, "loss, value ", r->loss);
    for (int k = 0; k < r->n_values; k++)
        if (o->gradient[k] && e->to[ROUND_NOTHING].gradient[k])
            compare_gradient(r, e, k, o->number + o->gradient[k], what, v);
}

/* The rewrites of `exact` that change a bit, by name. */
static void name_rewrite(const struct recording *r, const struct outcome *a, struct verdict *v)
{
    for (int i = 0; i < REWRITES; i++) {
        const struct setting s = {1u << i, 0};
        struct verdict one = {.failure = FAIL_NONE};
        struct outcome b;
        if (!(EXACT >> i & 1))
            continue;
        run(r, &s, &b);
        expect_bits(a, &b, "", &one);
        if (one.failure)
            snprintf(v->text + strlen(v->text), sizeof v->text - strlen(v->text), " (%s)",
                     rewrite_names[i]);
        free(b.number);
    }
}

static void compare_exact(const struct recording *r, const struct outcome *a, struct verdict *v)
{
    const struct setting s = {EXACT, 0};
    struct outcome b;
    if (v->failure || on_gpu())
        return;
    run(r, &s, &b);
    expect_bits(a, &b, "without exact rewrites", v);
    free(b.number);
    if (v->failure)
        name_rewrite(r, a, v);
}

/* Whether a step after the first overflows, as it does without rewrites: expect() knows the first
 * one alone. */
static bool overflows(const struct recording *r, const struct outcome *a)
{
    const struct setting s = {ALL, 0};
    struct outcome b;
    if (a->code != CKPT_ENAN || a->n <= STEPS)
        return false;
    forget_search();
    run(r, &s, &b);
    forget_search();
    free(b.number);
    return b.code == CKPT_ENAN && b.n == a->n;
}

void trial(const struct recording *r, struct verdict *v)
{
    const struct setting with = {0, 0}, without = {ALL, 0};
    struct outcome a, b = {0};
    struct expected e;
    *v = (struct verdict){.failure = FAIL_NONE};
    if (!expect(r, &e)) {
        release(&e);
        return;
    }
    run(r, &with, &a);
    if (overflows(r, &a)) {
        release(&e);
        free(a.number);
        return;
    }
    v->checked = true;
    if (a.code)
        fail_run(v, "all rewrites", &a);
    else
        compare_reference(r, &e, &a, "all rewrites", v);
    if (!v->failure)
        compare_budgets(r, &a, 0, "all rewrites", v);
    compare_exact(r, &a, v);
    forget_search();
    if (!v->failure) {
        run(r, &without, &b);
        if (b.code)
            fail_run(v, "no rewrites", &b);
        else
            compare_reference(r, &e, &b, "no rewrites", v);
    }
    if (!v->failure)
        compare_budgets(r, &b, ALL, "no rewrites", v);
    forget_search();
    release(&e);
    free(a.number);
    free(b.number);
}
