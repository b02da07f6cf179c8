/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "modes.h"

enum { STEPS = 2, BUDGETS = 3, TAIL = 8 };

const struct tiny modes_tiny = {
    .dtype = CKPT_BF16, .batch = 2, .length = 64, .width = MODES_WIDTH, .heads = 4};

struct ckpt_options modes_options(void)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.verify = true;
    return o;
}

void modes_train(const struct ckpt_options *o, enum ckpt_dtype grad_dtype, struct tiny_result *r)
{
    char message[1024];
    struct ckpt_adamw a = tiny_adamw();
    struct tiny m = modes_tiny;
    m.batch *= o->micro_batch ? 2 : 1;
    a.grad_dtype = grad_dtype;
    if (tiny_train(m, o, &a, STEPS, r, message))
        fail_msg("--vram %lld: %s", (long long)o->vram, message);
}

/* Returns whether any op was recomputed. */
static bool expect_same(const struct tiny_result *whole, const struct ckpt_options *o,
                        enum ckpt_dtype grad_dtype)
{
    struct tiny_result r;
    modes_train(o, grad_dtype, &r);
    assert_true(!o->vram || r.info.planned_peak <= o->vram);
    if (!tiny_same(whole, &r))
        fail_msg("--vram %lld --threads %lld gives other bits", (long long)o->vram,
                 (long long)o->threads);
    const bool again = r.info.recomputed_ops > 0;
    tiny_result_free(&r);
    return again;
}

void modes_expect_budgets(const struct ckpt_options *o, enum ckpt_dtype grad_dtype)
{
    struct ckpt_options other = *o;
    struct tiny_result whole;
    int recomputed = 0;
    modes_train(o, grad_dtype, &whole);
    const int64_t low = whole.info.min_budget, high = whole.info.planned_peak;
    assert_true(small_on_gpu() || low < high); /* on a GPU the context counts, too */
    for (int i = 0; i < BUDGETS && !small_on_gpu(); i++) {
        other.vram = low + (high - low) * i / BUDGETS;
        recomputed += expect_same(&whole, &other, grad_dtype);
    }
    assert_true(small_on_gpu() || recomputed >= BUDGETS / 2);
    other.vram = 0;
    other.threads = 3;
    expect_same(&whole, &other, grad_dtype);
    tiny_result_free(&whole);
}

void modes_expect_tiers(struct small r)
{
    const bool half = !r.options.state; /* of wide state */
    small_run(&r, SMALL_STEPS);
    small_expect_resumed(&r);
    small_expect_forced(&r, &(struct force){.seed = 3, .host = true, .all = true, .half = half},
                        "host");
    small_expect_forced(&r, &(struct force){.seed = 4, .nvme = true, .half = half}, "NVMe");
    free(r.state);
}

double modes_learn(struct small r, int steps)
{
    double sum = 0;
    ckpt *c;
    ckpt_program *p;
    r.options.verify = false;
    r.adamw.lr = 2e-3f;
    r.adamw.ema_decay = 0.f;
    small_open(&r, &c, &p);
    for (int s = 0; s < steps; s++) {
        float loss;
        small_feed(p, &r, s % 4);
        if (ckpt_step(p, &loss))
            fail_msg("%s", ckpt_error(c));
        sum += s >= steps - TAIL ? (double)loss : 0;
    }
    ckpt_close(c);
    return sum / TAIL;
}

double modes_cosine(const float *x, const float *y, int64_t n)
{
    double xy = 0, xx = 0, yy = 0;
    for (int64_t i = 0; i < n; i++) {
        xy += (double)x[i] * (double)y[i];
        xx += (double)x[i] * (double)x[i];
        yy += (double)y[i] * (double)y[i];
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 1;
}

void modes_expect_refused(char *option, char *value, const char *sentence)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    char *argv[] = {"test", option, value, NULL};
    int argc = 3;
    ckpt *c;
    assert_int_equal(ckpt_options_parse(&o, &argc, argv), 0);
    o.device = "cpu";
    assert_int_equal(ckpt_open(&c, &o), CKPT_EINVAL);
    assert_string_equal(ckpt_error(NULL), sentence);
}
