/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small network with convolutions of every kind and pools with overlapping windows: its loss
 * falls, budgets down to the smallest and offloading change no bit, and red zones stay intact.
 * Also properties that only numbers show: where NaN and equal values go, and rows that do not
 * depend on others.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt.h"

enum { B = 4, SIDE = 20, C = 12, K = 4, STEPS = 5 };

struct model {
    enum ckpt_dtype dtype;
    ckpt_tensor stem, groups, depthwise, up, bias, line;
};

static struct ckpt_conv_spec spec_of(int64_t stride, int64_t pad, int64_t dilation, int64_t groups)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    for (int i = 0; i < 3; i++) {
        spec.stride[i] = stride;
        spec.before[i] = spec.after[i] = pad;
        spec.dilation[i] = dilation;
    }
    spec.groups = groups;
    return spec;
}

static struct ckpt_pool_spec pool_of(int64_t stride, int64_t pad)
{
    struct ckpt_pool_spec spec = CKPT_POOL_INIT;
    for (int i = 0; i < 3; i++) {
        spec.stride[i] = stride;
        spec.before[i] = spec.after[i] = pad;
    }
    spec.count_include_pad = false;
    return spec;
}

static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct model *m = user;
    const int64_t three[] = {3, 3};
    struct ckpt_conv_spec stem = spec_of(2, 1, 1, 1), groups = spec_of(1, 1, 1, 3);
    struct ckpt_conv_spec wide = spec_of(1, 2, 2, C), up = spec_of(2, 1, 1, 2);
    struct ckpt_conv_spec line = spec_of(1, 0, 3, 1);
    struct ckpt_pool_spec same = pool_of(1, 1), half = pool_of(2, 1);
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 4, (int64_t[]){n, SIDE, SIDE, 3});
    up.output_padding[0] = up.output_padding[1] = 1;
    line.before[0] = 6; /* causal */
    ckpt_tensor h = ckpt_conv(t, ckpt_cast(t, x, m->dtype), m->stem, CKPT_NONE, &stem);
    h = ckpt_max_pool(t, ckpt_silu(t, h), three, &same);
    h = ckpt_add(t, h, ckpt_conv(t, h, m->groups, CKPT_NONE, &groups));
    h = ckpt_add(t, h, ckpt_conv(t, ckpt_silu(t, h), m->depthwise, CKPT_NONE, &wide));
    h = ckpt_avg_pool(t, ckpt_silu(t, h), three, &half);
    h = ckpt_conv_transpose(t, h, m->up, m->bias, &up);
    struct ckpt_desc d = ckpt_desc_of(t, h);
    h = ckpt_reshape(t, h, 3, (int64_t[]){n, d.shape[1] * d.shape[2], d.shape[3]});
    h = ckpt_conv(t, h, m->line, CKPT_NONE, &line);
    ckpt_tensor goal = ckpt_affine(t, h, 0.f, 1.f);
    ckpt_tensor loss = ckpt_mse(t, h, goal, CKPT_NONE);
    ckpt_output(t, "loss", loss);
    return loss;
}

static ckpt_tensor weight(ckpt *c, const struct model *m, const char *name, int ndim, int64_t k,
                          int64_t kernel, int64_t of_group)
{
    int64_t shape[] = {k, kernel, ndim == 3 ? of_group : kernel, of_group};
    return ckpt_param(c, name, m->dtype, ndim, shape, CKPT_NORMAL(0.2f), true);
}

static void create(ckpt *c, struct model *m)
{
    const int64_t channels = C;
    m->stem = weight(c, m, "stem", 4, C, 3, 3);
    m->groups = weight(c, m, "groups", 4, C, 3, C / 3);
    m->depthwise = weight(c, m, "depthwise", 4, C, 3, 1);
    m->up = weight(c, m, "up", 4, C, 3, C / 2);
    m->bias = ckpt_param(c, "bias", m->dtype, 1, &channels, CKPT_ZEROS, true);
    m->line = weight(c, m, "line", 3, K, 3, C);
}

struct result {
    float loss[STEPS], groups[C * 9 * C / 3], depthwise[C * 9], up[C * 9 * C / 2];
    int64_t peak, smallest;
};

static int run_program(ckpt *c, struct model *m, struct result *r)
{
    static float x[B * SIDE * SIDE * 3];
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt_program *p = NULL;
    adamw.lr = 0.01f;
    for (int i = 0; i < B * SIDE * SIDE * 3; i++)
        x[i] = (float)(i * 37 % 101 - 50) / 50;
    int rc = ckpt_compile(c, record, m, ckpt_adamw(c, &adamw), B, &p);
    for (int i = 0; i < STEPS && !rc; i++) {
        rc = ckpt_feed(p, "x", x, sizeof x);
        rc = rc ? rc : ckpt_step(p, &r->loss[i]);
    }
    rc = rc ? rc : ckpt_program_info(p, &info);
    r->peak = info.planned_peak;
    r->smallest = info.min_budget;
    rc = rc ? rc : ckpt_param_get(c, m->groups, CKPT_VALUE, r->groups, C * 9 * C / 3);
    rc = rc ? rc : ckpt_param_get(c, m->depthwise, CKPT_VALUE, r->depthwise, C * 9);
    rc = rc ? rc : ckpt_param_get(c, m->up, CKPT_VALUE, r->up, C * 9 * C / 2);
    ckpt_program_free(p);
    return rc;
}

static ckpt *open_context(int64_t vram, int64_t host, int threads)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c = NULL;
    o.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    o.verify = true;
    o.vram = vram;
    o.host = host;
    o.threads = threads;
    if (ckpt_open(&c, &o))
        printf("FAIL ckpt_open: %s\n", ckpt_error(NULL));
    return c;
}

static int run(enum ckpt_dtype dtype, int64_t vram, int64_t host, int threads, struct result *r)
{
    struct model m = {.dtype = dtype};
    ckpt *c = open_context(vram, host, threads);
    if (!c)
        return 1;
    memset(r, 0, sizeof *r);
    create(c, &m);
    int rc = run_program(c, &m, r);
    if (rc)
        printf("FAIL budget %lld, host %lld: %s\n", (long long)vram, (long long)host,
               ckpt_error(c));
    ckpt_close(c);
    return rc != 0;
}

static int compare(const char *what, const struct result *a, const struct result *b)
{
    if (!memcmp(a, b, offsetof(struct result, peak)))
        return 0;
    return printf("FAIL %s: other bits, loss %.9g and %.9g\n", what, (double)a->loss[STEPS - 1],
                  (double)b->loss[STEPS - 1]) > 0;
}

static int run_budgets(enum ckpt_dtype dtype)
{
    static struct result whole, other;
    int failures = run(dtype, 0, 0, 0, &whole);
    if (!(whole.loss[STEPS - 1] < 0.9f * whole.loss[0]))
        failures += printf("FAIL the loss goes from %g to %g\n", (double)whole.loss[0],
                           (double)whole.loss[STEPS - 1]) > 0;
    if (getenv("CKPT_TEST_GPU")) /* budgets of a GPU hold its context, too */
        return failures;
    int64_t half = (whole.peak + whole.smallest) / 2;
    failures += run(dtype, 0, 0, 1, &other) || compare("one thread", &other, &whole);
    failures += run(dtype, half, 0, 0, &other) || compare("half way", &other, &whole);
    failures += run(dtype, whole.smallest, 0, 0, &other) || compare("smallest", &other, &whole);
    failures += run(dtype, half, 1 << 28, 0, &other) || compare("offloading", &other, &whole);
    return failures;
}

/* ---- NaN and equal values ---------------------------------------------------------------------
 */

enum { LINE = 9 };

struct picked {
    ckpt_tensor x;
    bool forward;
};

/* Outputs and the loss must be finite: they say which windows are numbers. */
static ckpt_tensor record_line(ckpt_tape *t, int64_t n, void *user)
{
    static const float weight[] = {1, 10, 100, 1000};
    const int64_t three[] = {3}, shape[] = {1, 4, 1};
    struct ckpt_pool_spec by_two = pool_of(2, 0);
    const struct picked *k = user;
    ckpt_tensor x = k->x;
    (void)n;
    ckpt_tensor most = ckpt_max_pool(t, x, three, &by_two);
    ckpt_tensor mean = ckpt_avg_pool(t, x, three, &by_two);
    ckpt_output(t, "most", ckpt_eq(t, most, most));
    ckpt_output(t, "mean", ckpt_eq(t, mean, mean));
    if (k->forward)
        return ckpt_constant(t, "loss", CKPT_F32, 0, NULL, weight);
    ckpt_output_gradient(t, "dx", x);
    most = ckpt_mul(t, most, ckpt_constant(t, "r", CKPT_F32, 3, shape, weight));
    return ckpt_reshape(t, ckpt_sum(t, most, 7), 0, NULL);
}

struct line {
    int32_t most[4], mean[4];
    float dx[LINE];
};

static int run_line(const float *x, struct line *l, bool forward)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *p = NULL;
    ckpt *c = open_context(0, 0, 0);
    if (!c)
        return 1;
    struct picked k = {.forward = forward};
    k.x = ckpt_param(c, "x", CKPT_F32, 3, (int64_t[]){1, LINE, 1}, CKPT_ZEROS, true);
    int rc = ckpt_param_set(c, k.x, CKPT_VALUE, x, LINE);
    rc = rc ? rc : ckpt_compile(c, record_line, &k, forward ? NULL : ckpt_adamw(c, &adamw), 1, &p);
    rc = rc ? rc : ckpt_step(p, NULL);
    rc = rc ? rc : ckpt_fetch(p, "most", l->most, sizeof l->most);
    rc = rc ? rc : ckpt_fetch(p, "mean", l->mean, sizeof l->mean);
    if (!forward)
        rc = rc ? rc : ckpt_fetch(p, "dx", l->dx, sizeof l->dx);
    if (rc)
        printf("FAIL line: %s\n", ckpt_error(c));
    ckpt_program_free(p);
    ckpt_close(c);
    return rc != 0;
}

/* Windows 0-2, 2-4, 4-6, 6-8.  Place 2 wins two of them; of the equal ones the first does. */
static int check_line(void)
{
    const float x[LINE] = {1, 1, 5, 1, 2, 7, 7, 3, 3};
    const float want[LINE] = {0, 0, 11, 0, 0, 100, 1000, 0, 0};
    const float nan[LINE] = {1, 1, 5, 1, NAN, 7, 7, 3, 3};
    struct line l;
    int failures = run_line(x, &l, false);
    for (int i = 0; i < LINE; i++)
        if (l.dx[i] != want[i])
            failures += printf("FAIL line: gradient %d is %g\n", i, (double)l.dx[i]) > 0;
    failures += run_line(nan, &l, true);
    for (int i = 0; i < 4; i++)
        if (l.most[i] != (i == 0 || i == 3) || l.mean[i] != l.most[i])
            failures += printf("FAIL NaN: window %d\n", i) > 0;
    return failures;
}

/* ---- rows that do not depend on others --------------------------------------------------------
 */

enum { ROWS = 37, WIDE = 23, CHANNELS = 24 };

struct rows {
    ckpt_tensor w;
    int64_t groups, rows, samples;
};

static ckpt_tensor record_rows(ckpt_tape *t, int64_t n, void *user)
{
    const struct rows *k = user;
    struct ckpt_conv_spec spec = spec_of(1, 0, 1, k->groups);
    const int64_t shape[] = {n, k->rows, WIDE, CHANNELS};
    spec.invariant = true;
    ckpt_tensor y = ckpt_conv(t, ckpt_input(t, "x", CKPT_F32, 4, shape), k->w, CKPT_NONE, &spec);
    ckpt_output(t, "y", y);
    return ckpt_mean(t, y, 15);
}

/* The first rows of the first sample, or all rows of two. */
static int run_rows(ckpt *c, struct rows *k, const float *x, float *y)
{
    ckpt_program *p = NULL;
    int64_t in = k->samples * k->rows * WIDE, out = k->samples * (k->rows - 2) * (WIDE - 2);
    int rc = ckpt_compile(c, record_rows, k, NULL, k->samples, &p);
    rc = rc ? rc : ckpt_feed(p, "x", x, in * CHANNELS * (int64_t)sizeof *x);
    rc = rc ? rc : ckpt_step(p, NULL);
    rc = rc ? rc : ckpt_fetch(p, "y", y, out * CHANNELS * (int64_t)sizeof *y);
    ckpt_program_free(p);
    return rc;
}

static int check_rows(int64_t groups)
{
    static float x[2 * ROWS * WIDE * CHANNELS], whole[2 * ROWS * WIDE * CHANNELS], part[sizeof x];
    struct rows k = {.groups = groups, .rows = ROWS, .samples = 2};
    ckpt *c = open_context(0, 0, 0);
    int rc = !c;
    if (rc)
        return 1;
    k.w = ckpt_param(c, "w", CKPT_F32, 4, (int64_t[]){CHANNELS, 3, 3, CHANNELS / groups},
                     CKPT_NORMAL(1.f), true);
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)(i * 7919 % 1009) / 500 - 1;
    rc = run_rows(c, &k, x, whole);
    k.samples = 1;
    for (k.rows = 3; k.rows < ROWS && !rc; k.rows += 11) {
        rc = run_rows(c, &k, x, part);
        size_t bytes = (size_t)((k.rows - 2) * (WIDE - 2) * CHANNELS) * sizeof *part;
        if (!rc && memcmp(part, whole, bytes))
            rc = printf("FAIL %d groups: %d rows have other bits\n", (int)groups, (int)k.rows);
    }
    if (rc < 0)
        printf("FAIL rows: %s\n", ckpt_error(c));
    ckpt_close(c);
    return rc != 0;
}

/* ---- frames that do not depend on how many there are ----------------------------------------- */

enum { CLIP = 9, CLIP_SIDE = 12, CLIP_CHANNELS = 256, CLIP_FRAME = 12 * 12 * 256 };

struct clip {
    ckpt_tensor w, b;
    int64_t frames; /* of x: two more than of y */
};

static ckpt_tensor record_clip(ckpt_tape *t, int64_t n, void *user)
{
    const struct clip *k = user;
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    const int64_t shape[] = {n, k->frames, CLIP_SIDE, CLIP_SIDE, CLIP_CHANNELS};
    spec.invariant = true;
    for (int i = 1; i < 3; i++)
        spec.before[i] = spec.after[i] = 1;
    ckpt_tensor x = ckpt_cast(t, ckpt_input(t, "x", CKPT_F32, 5, shape), CKPT_BF16);
    ckpt_tensor y = ckpt_cast(t, ckpt_conv(t, x, k->w, k->b, &spec), CKPT_F32);
    ckpt_output(t, "y", y);
    return ckpt_mean(t, y, 31);
}

static int run_clip(ckpt *c, struct clip *k, const float *x, float *y)
{
    const int64_t frame = CLIP_FRAME * (int64_t)sizeof *x;
    ckpt_program *p = NULL;
    int rc = ckpt_compile(c, record_clip, k, NULL, 1, &p);
    rc = rc ? rc : ckpt_feed(p, "x", x, k->frames * frame);
    rc = rc ? rc : ckpt_step(p, NULL);
    rc = rc ? rc : ckpt_fetch(p, "y", y, (k->frames - 2) * frame);
    ckpt_program_free(p);
    return rc;
}

/* A clip at once and in parts of any length: with few frames, engines sum in parts. */
static int check_clip(void)
{
    static float x[CLIP * CLIP_FRAME], whole[(CLIP - 2) * CLIP_FRAME];
    static float part[(CLIP - 2) * CLIP_FRAME];
    static const int64_t w[] = {CLIP_CHANNELS, 3, 3, 3, CLIP_CHANNELS}, channels = CLIP_CHANNELS;
    struct clip k = {.frames = CLIP};
    ckpt *c = open_context(0, 0, 0);
    int rc = !c;
    if (rc)
        return 1;
    k.w = ckpt_param(c, "w", CKPT_BF16, 5, w, CKPT_NORMAL(.02f), true);
    k.b = ckpt_param(c, "b", CKPT_BF16, 1, &channels, CKPT_NORMAL(1.f), true);
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)(i * 7919 % 1009) / 500 - 1;
    rc = run_clip(c, &k, x, whole);
    for (k.frames = 3; k.frames < CLIP && !rc; k.frames++) {
        int64_t first = CLIP - k.frames;
        rc = run_clip(c, &k, x + first * CLIP_FRAME, part);
        size_t bytes = (size_t)((k.frames - 2) * CLIP_FRAME) * sizeof *part;
        if (!rc && memcmp(part, whole + first * CLIP_FRAME, bytes))
            rc = printf("FAIL clip: %d frames have other bits\n", (int)k.frames - 2);
    }
    if (rc < 0)
        printf("FAIL clip: %s\n", ckpt_error(c));
    ckpt_close(c);
    return rc != 0;
}

int main(void)
{
    int failures = run_budgets(CKPT_F32) + run_budgets(CKPT_BF16) + check_line() + check_clip();
    failures += check_rows(1) + check_rows(3) + check_rows(CHANNELS);
    return failures != 0;
}
