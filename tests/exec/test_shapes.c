/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training programs of several shapes in one context: one arena of the largest size, the same bits
 * in every budget, and a shape trains alone as it does among the others.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "exec/program.h"
#include "plan/one_search.h"

enum { SHAPES = 7, LAYERS = 4, WIDTH = 32, STEPS = 24, LONG = 2000 };

enum { WIDE = 1450 }; /* state of layers so wide may leave the device */

/* Samples per step and rows per sample; the largest shape is neither the first nor the last. */
static const int64_t batches[SHAPES] = {4, 1, 2, 8, 1, 3, 2},
                     rows[SHAPES] = {2, 1, 9, 16, 40, 5, 2};

struct run {
    ckpt *c;
    int64_t width;
    ckpt_tensor layer[LAYERS];
    ckpt_program *program[SHAPES];
};

struct shape {
    const struct run *run;
    int64_t rows;
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct shape *s = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){batch, s->rows, s->run->width});
    ckpt_tensor h = ckpt_cast(t, x, CKPT_BF16);
    for (int i = 0; i < LAYERS; i++)
        h = ckpt_dropout(t, ckpt_gelu_tanh(t, ckpt_linear(t, h, s->run->layer[i], CKPT_NONE)),
                         0.1f);
    return ckpt_mse(t, h, x, CKPT_NONE);
}

static void run_open_wide(struct run *r, const struct ckpt_options *o, int64_t width)
{
    *r = (struct run){.width = width};
    assert_int_equal(ckpt_open(&r->c, o), 0);
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "layer.%d", i);
        r->layer[i] =
            ckpt_param(r->c, name, CKPT_BF16, 2, (int64_t[]){width, width}, CKPT_XAVIER, true);
    }
}

static void run_open(struct run *r, const struct ckpt_options *o)
{
    run_open_wide(r, o, WIDTH);
}

/* Compiles shapes [from, end) with one optimizer. */
static int run_compile(struct run *r, int from, int end)
{
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    a.ema_decay = 0.9f;
    a.clip_norm = 1.f;
    a.lr = 1e-2f;
    a.grad_dtype = r->width == WIDE ? CKPT_BF16 : CKPT_F32;
    const ckpt_optimizer *adamw = ckpt_adamw(r->c, &a);
    int rc = 0;
    for (int i = from; i < end && !rc; i++)
        rc = ckpt_compile(r->c, record, &(struct shape){r, rows[i]}, adamw, batches[i],
                          &r->program[i]);
    return rc;
}

static void feed(struct run *r, int shape, int step)
{
    int64_t n = batches[shape] * rows[shape] * r->width;
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    ckpt_fill_normal(7, (uint64_t)step, 1, x, n);
    assert_int_equal(ckpt_feed(r->program[shape], "x", x, n * (int64_t)sizeof *x), 0);
    free(x);
}

static int shape_of(int step)
{
    float u;
    ckpt_fill_uniform(11, (uint64_t)step, 2, &u, 1);
    int shape = (int)(u * SHAPES);
    return shape < SHAPES ? shape : SHAPES - 1;
}

struct result {
    float loss[STEPS];
    uint64_t value[LAYERS], average[LAYERS]; /* digests */
};

static uint64_t digest(struct run *r, ckpt_tensor layer, enum ckpt_slot slot)
{
    int64_t n = r->width * r->width;
    float *values = malloc((size_t)n * sizeof *values);
    uint64_t h = 14695981039346656037u;
    assert_non_null(values);
    assert_int_equal(ckpt_param_get(r->c, layer, slot, values, n), 0);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        h = (h ^ bits) * 1099511628211u;
    }
    free(values);
    return h;
}

static void take_values(struct run *r, struct result *out)
{
    for (int i = 0; i < LAYERS; i++) {
        out->value[i] = digest(r, r->layer[i], CKPT_VALUE);
        out->average[i] = digest(r, r->layer[i], CKPT_EMA);
    }
}

/* Runs steps [from, end); waits for each before the next. */
static void run_one_by_one(struct run *r, int from, int end, struct result *out)
{
    for (int s = from; s < end; s++) {
        feed(r, shape_of(s), s);
        assert_int_equal(ckpt_step(r->program[shape_of(s)], &out->loss[s]), 0);
    }
}

/* Submits each step before the previous one was waited for, whatever their shapes. */
static void run_steps(struct run *r, struct result *out)
{
    for (int s = 0; s <= STEPS; s++) {
        if (s < STEPS) {
            feed(r, shape_of(s), s);
            assert_int_equal(ckpt_submit(r->program[shape_of(s)]), 0);
        }
        if (s)
            assert_int_equal(ckpt_wait(r->program[shape_of(s - 1)], &out->loss[s - 1]), 0);
    }
    take_values(r, out);
}

static struct ckpt_program_info info_of(const ckpt_program *p)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    assert_int_equal(ckpt_program_info(p, &info), 0);
    return info;
}

static void run_free(struct result *out)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct run r;
    o.device = "cpu";
    run_open(&r, &o);
    assert_int_equal(run_compile(&r, 0, SHAPES), 0);
    run_one_by_one(&r, 0, STEPS, out);
    take_values(&r, out);
    ckpt_close(r.c);
}

/* ---- memory --------------------------------------------------------------------------------- */

static int64_t resident(void)
{
    long long pages[2] = {0};
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%lld %lld", &pages[0], &pages[1]) != 2)
        pages[1] = 0;
    if (f)
        fclose(f);
    return pages[1] * sysconf(_SC_PAGESIZE);
}

/* The arena has the size that the largest shape needs alone, from the first step to the last. */
static void test_one_arena(void **state)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    int64_t largest = 0, before = 0;
    struct run r;

    (void)state;
    o.device = "cpu";
    for (int i = 0; i < SHAPES; i++) {
        run_open(&r, &o);
        assert_int_equal(run_compile(&r, i, i + 1), 0);
        int64_t bytes = info_of(r.program[i]).arena_bytes;
        largest = bytes > largest ? bytes : largest;
        ckpt_close(r.c);
    }
    run_open(&r, &o);
    assert_int_equal(run_compile(&r, 0, SHAPES), 0);
    assert_int_equal(info_of(r.program[0]).arena_bytes, largest);
    for (int s = 0; s < LONG; s++) {
        feed(&r, shape_of(s), s);
        assert_int_equal(ckpt_step(r.program[shape_of(s)], NULL), 0);
        if (s == LONG / 10)
            before = resident();
    }
    assert_int_equal(info_of(r.program[0]).arena_bytes, largest);
    int64_t grown = resident() - before;
    assert_true(before > 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(grown <= 256 << 10);
#else
    (void)grown;
#endif
    ckpt_close(r.c);
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* Budgets from the smallest one in which all shapes fit, and lower tiers that hold the state. */
static void check_budgets(struct ckpt_options o, int64_t from, int64_t to, int64_t stride)
{
    struct result free, tight;
    int fitted = 0;

    run_free(&free);
    for (o.vram = from; o.vram <= to; o.vram += stride) {
        struct run r;
        run_open(&r, &o);
        int rc = run_compile(&r, 0, SHAPES);
        assert_true(!rc || rc == CKPT_EBUDGET);
        if (!rc) {
            fitted++;
            run_steps(&r, &tight);
            assert_memory_equal(&tight, &free, sizeof free);
            assert_true(info_of(r.program[0]).arena_bytes <= o.vram);
        }
        ckpt_close(r.c);
    }
    assert_true(fitted > 1);
}

static void test_budgets(void **state)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;

    (void)state;
    o.device = "cpu";
    check_budgets(o, 160 << 10, 260 << 10, 50 << 10);
}

static void test_host(void **state)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;

    (void)state;
    o.device = "cpu";
    o.host = 4 << 20;
    check_budgets(o, 150 << 10, 190 << 10, 20 << 10);
}

static void test_nvme(void **state)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    char directory[] = "/tmp/test_shapes-XXXXXX", nvme[64];

    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(nvme, sizeof nvme, "%s:16M", directory);
    o.device = "cpu";
    o.nvme = nvme;
    check_budgets(o, 150 << 10, 190 << 10, 20 << 10);
    assert_int_equal(rmdir(directory), 0);
}

static void write_machine(const char *path, double host_update, double copies)
{
    struct machine m = *(getenv("CKPT_TEST_GPU") ? &machine_cuda : &machine_cpu);
    m.host_update = host_update;
    m.d2h_both = m.h2d_both = copies;
    assert_int_equal(machine_write(&m, path), 0);
}

/* Number of programs in which a residence continues in the next step at the address that another
 * program uses, too. */
static int count_common(const struct run *r)
{
    int programs = 0;
    for (int i = 0; i < SHAPES; i++) {
        const struct plan *p = r->program[i]->plan;
        const struct graph *g = r->program[i]->graph;
        int32_t common = 0;
        for (int32_t k = 0; k < p->n_residences; k++) {
            const struct residence *e = &p->residences[k];
            common += e->storage >= 0 && e->last >= p->n_steps && g->storages[e->storage].crosses &&
                      g->storages[e->storage].crossing == e->offset;
        }
        programs += common > 0;
    }
    return programs;
}

/* State in host memory that the host updates in every program, whether or not the device has room
 * for it. */
static void test_state_on_host(void **state)
{
    char path[] = "/tmp/test_shapes-XXXXXX";
    struct ckpt_options o = CKPT_OPTIONS_INIT, none;
    struct result free, hosted;
    struct run r;
    int64_t most;

    (void)state;
    o.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    o.verify = true;
    none = o;
    run_open_wide(&r, &none, WIDE);
    assert_int_equal(run_compile(&r, 0, SHAPES), 0);
    run_one_by_one(&r, 0, STEPS, &free);
    take_values(&r, &free);
    most = info_of(r.program[3]).planned_peak + info_of(r.program[3]).overhead_bytes;
    ckpt_close(r.c);
    close(mkstemp(path));
    o.machine = path;
    o.host = 1 << 30;
    for (int tight = 0; tight < 2; tight++) {
        int n = 0;
        write_machine(path, tight ? 1e11 : 1e13, tight ? 1e9 : 1e12);
        o.vram = tight ? most - (16 << 20) : 0;
        run_open_wide(&r, &o, WIDE);
        int rc = run_compile(&r, 0, SHAPES);
        if (rc)
            fail_msg("%s", ckpt_error(r.c));
        for (int i = 0; i < SHAPES; i++)
            n += plan_uses_host(r.program[i]->plan);
        assert_true(n == SHAPES || (n > 1 && getenv("CKPT_TEST_GPU")));
        run_steps(&r, &hosted);
        ckpt_close(r.c);
        assert_memory_equal(&hosted, &free, sizeof free);
    }
    unlink(path);
}

/* State that is copied out during the next step, from one address in all programs. */
static void test_common_addresses(void **state)
{
    char path[] = "/tmp/test_shapes-XXXXXX";
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct result free, common;
    struct run r;

    (void)state;
    o.device = "cpu";
    o.verify = true;
    run_open_wide(&r, &o, WIDE);
    assert_int_equal(run_compile(&r, 0, SHAPES), 0);
    run_one_by_one(&r, 0, STEPS, &free);
    take_values(&r, &free);
    int64_t most = info_of(r.program[3]).planned_peak;
    ckpt_close(r.c);
    close(mkstemp(path));
    o.machine = path;
    o.host = 1 << 30;
    write_machine(path, 0, 5e9);
    o.vram = most - (64 << 20);
    run_open_wide(&r, &o, WIDE);
    if (run_compile(&r, 0, SHAPES))
        fail_msg("%s", ckpt_error(r.c));
    assert_true(count_common(&r) > SHAPES / 2);
    assert_true(info_of(r.program[0]).arena_bytes <= o.vram);
    run_steps(&r, &common);
    ckpt_close(r.c);
    assert_memory_equal(&common, &free, sizeof free);
    unlink(path);
}

/* ---- space in the tiers ---------------------------------------------------------------------- */

enum { NARROW = 64, LARGE = 2 }; /* activations so large may leave */

static int compile_large(struct run *r)
{
    static const int64_t large[LARGE] = {16384, 20000};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    const ckpt_optimizer *adamw = ckpt_adamw(r->c, &a);
    int rc = 0;
    for (int i = 0; i < LARGE && !rc; i++)
        rc = ckpt_compile(r->c, record, &(struct shape){r, large[i]}, adamw, 1, &r->program[i]);
    return rc;
}

static void step_large(struct run *r, float loss[LARGE])
{
    for (int i = 0; i < LARGE; i++) {
        struct ckpt_desc d;
        assert_int_equal(ckpt_program_desc(r->program[i], "x", &d), 0);
        int64_t n = d.shape[0] * d.shape[1] * d.shape[2];
        float *x = malloc((size_t)n * sizeof *x);
        assert_non_null(x);
        ckpt_fill_normal(7, (uint64_t)i, 1, x, n);
        assert_int_equal(ckpt_feed(r->program[i], "x", x, n * (int64_t)sizeof *x), 0);
        assert_int_equal(ckpt_step(r->program[i], &loss[i]), 0);
        free(x);
    }
}

/* Programs share the tier space of storages that leave the device within a step. */
static void test_shared_room(void **state)
{
    char path[] = "/tmp/test_shapes-XXXXXX";
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    float free[2][LARGE], offloaded[2][LARGE];
    struct run r;

    (void)state;
    o.device = "cpu";
    o.verify = true;
    run_open_wide(&r, &o, NARROW);
    assert_int_equal(compile_large(&r), 0);
    for (int i = 0; i < 2; i++)
        step_large(&r, free[i]);
    o.vram = info_of(r.program[0]).planned_peak * 3 / 4;
    ckpt_close(r.c);
    close(mkstemp(path));
    write_machine(path, 0, 1e12);
    o.machine = path;
    o.host = 1 << 30;
    run_open_wide(&r, &o, NARROW);
    assert_int_equal(compile_large(&r), 0);
    for (int i = 0; i < LARGE; i++) {
        assert_true(r.program[i]->plan->host_bytes > 0);
        assert_int_equal(r.program[i]->plan->budgets.tier_base[TIER_HOST], 0);
    }
    for (int i = 0; i < 2; i++) /* the first again, over what the second left there */
        step_large(&r, offloaded[i]);
    ckpt_close(r.c);
    assert_memory_equal(free, offloaded, sizeof free);
    unlink(path);
}

/* One shape among others that do not run, and alone. */
static void test_alone(void **state)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct result among, alone;
    struct run r;
    int shape = 3;

    (void)state;
    o.device = "cpu";
    memset(&among, 0, sizeof among);
    memset(&alone, 0, sizeof alone);
    for (int which = 0; which < 2; which++) {
        struct result *out = which ? &alone : &among;
        run_open(&r, &o);
        assert_int_equal(which ? run_compile(&r, shape, shape + 1) : run_compile(&r, 0, SHAPES), 0);
        for (int s = 0; s < STEPS; s++) {
            feed(&r, shape, s);
            assert_int_equal(ckpt_step(r.program[shape], &out->loss[s]), 0);
        }
        take_values(&r, out);
        ckpt_close(r.c);
    }
    assert_memory_equal(&among, &alone, sizeof among);
}

/* A pair of steps of two shapes. */
static int pair_at(void)
{
    int s = 0;
    while (shape_of(s) == shape_of(s + 1))
        s++;
    return s;
}

/* Two steps of one optimizer may be under way, whatever their programs, and end in order. */
static void test_two_under_way(void **state)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct result free, two;
    struct run r;
    int s = pair_at();

    (void)state;
    run_free(&free);
    o.device = "cpu";
    run_open(&r, &o);
    assert_int_equal(run_compile(&r, 0, SHAPES), 0);
    run_steps(&r, &two);
    assert_memory_equal(&two, &free, sizeof free);
    ckpt_program *one = r.program[shape_of(s)], *other = r.program[shape_of(s + 1)];
    feed(&r, shape_of(s), s);
    feed(&r, shape_of(s + 1), s);
    assert_int_equal(ckpt_submit(one), 0);
    assert_int_equal(ckpt_step(other, NULL), CKPT_EINVAL);
    assert_int_equal(ckpt_submit(other), 0);
    for (int i = 0; i < SHAPES; i++) {
        feed(&r, i, s);
        assert_int_equal(ckpt_submit(r.program[i]), CKPT_EINVAL);
        assert_non_null(strstr(ckpt_error(r.c), "2 steps are under way"));
    }
    assert_int_equal(ckpt_wait(other, NULL), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(r.c), "submitted before"));
    assert_int_equal(ckpt_wait(one, NULL), 0);
    assert_int_equal(ckpt_wait(one, NULL), CKPT_EINVAL);
    assert_int_equal(ckpt_wait(other, NULL), 0);
    /* A freed program leaves its place to the ones after it. */
    assert_int_equal(ckpt_submit(one), 0);
    assert_int_equal(ckpt_submit(other), 0);
    ckpt_program_free(one);
    assert_int_equal(ckpt_wait(other, NULL), 0);
    assert_int_equal(ckpt_step(other, NULL), 0);
    ckpt_close(r.c);
}

/* Submits a step that ends in NaN and after it one of another shape. */
static void fail_before_other(struct run *r, int s)
{
    ckpt_program *one = r->program[shape_of(s)], *other = r->program[shape_of(s + 1)];
    int64_t n = batches[shape_of(s)] * rows[shape_of(s)] * r->width;
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = NAN;
    assert_int_equal(ckpt_feed(one, "x", x, n * (int64_t)sizeof *x), 0);
    free(x);
    assert_int_equal(ckpt_submit(one), 0);
    feed(r, shape_of(s + 1), s + 1);
    assert_int_equal(ckpt_submit(other), 0);
    assert_int_equal(ckpt_wait(one, NULL), CKPT_ENAN);
    assert_int_equal(ckpt_wait(other, NULL), CKPT_EINVAL); /* nothing of it counts */
    assert_non_null(strstr(ckpt_error(r->c), "no step is under way"));
}

/* After a failing step a step of another program changes nothing either; then both succeed again.
 */
static void test_failure(void **state)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct result free, failed;
    struct run r;
    int s = pair_at();

    (void)state;
    run_free(&free);
    o.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    run_open(&r, &o);
    assert_int_equal(run_compile(&r, 0, SHAPES), 0);
    run_one_by_one(&r, 0, s, &failed);
    fail_before_other(&r, s);
    run_one_by_one(&r, s, STEPS, &failed);
    take_values(&r, &failed);
    ckpt_close(r.c);
    if (!getenv("CKPT_TEST_GPU"))
        assert_memory_equal(&failed, &free, sizeof free);
}

/* ---- random numbers -------------------------------------------------------------------------- */

enum { DRAWS = 6, NOISE = 8 };

static ckpt_tensor record_noise(ckpt_tape *t, int64_t batch, void *user)
{
    const ckpt_tensor *w = user;
    ckpt_tensor noise = ckpt_randn(t, CKPT_F32, 2, (int64_t[]){batch, NOISE});

    ckpt_output(t, "noise", noise);
    return ckpt_mse(t, ckpt_mul(t, noise, *w), noise, CKPT_NONE);
}

/* Runs steps [from, end) of two programs in turn, each with its own optimizer or both with one. */
static void draw(int from, int end, bool own, const char *path, float drawn[DRAWS][NOISE])
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    ckpt_program *p[2];
    ckpt *c;

    o.device = "cpu";
    assert_int_equal(ckpt_open(&c, &o), 0);
    ckpt_tensor w = ckpt_param(c, "w", CKPT_F32, 1, (int64_t[]){NOISE}, CKPT_ZEROS, true);
    const ckpt_optimizer *first = ckpt_adamw(c, &a), *second = own ? ckpt_adamw(c, &a) : first;
    assert_int_equal(ckpt_compile(c, record_noise, &w, first, 1, &p[0]), 0);
    assert_int_equal(ckpt_compile(c, record_noise, &w, second, 1, &p[1]), 0);
    if (from)
        assert_int_equal(ckpt_load_state(c, path), 0);
    for (int s = from; s < end; s++) {
        assert_int_equal(ckpt_step(p[s % 2], NULL), 0);
        assert_int_equal(ckpt_fetch(p[s % 2], "noise", drawn[s], sizeof drawn[s]), 0);
    }
    assert_int_equal(ckpt_save_state(c, path), 0);
    ckpt_close(c);
}

/* No two steps draw the same numbers, whichever program runs them, and a resumed state continues
 * with the next ones. */
static void test_draws(void **state)
{
    (void)state;
    for (int own = 0; own < 2; own++) {
        char path[] = "/tmp/test_shapes-XXXXXX";
        float whole[DRAWS][NOISE], parts[DRAWS][NOISE];
        int fd = mkstemp(path);

        assert_true(fd >= 0);
        close(fd);
        draw(0, DRAWS, own, path, whole);
        draw(0, 3, own, path, parts);
        draw(3, DRAWS, own, path, parts);
        assert_memory_equal(whole, parts, sizeof whole);
        for (int i = 0; i < DRAWS; i++)
            for (int k = 0; k < i; k++)
                assert_memory_not_equal(whole[i], whole[k], sizeof whole[i]);
        assert_int_equal(unlink(path), 0);
    }
}

/* ---- scalars --------------------------------------------------------------------------------- */

static const float twelve[12] = {1, 2, 3, -1, 0.5f, 2, 0, 0, 1, 3, -2, 1};

static ckpt_tensor scalars(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 3});
    ckpt_tensor mean = ckpt_reshape(t, ckpt_mean(t, x, CKPT_ALL_AXES), 0, NULL);
    ckpt_tensor above = ckpt_cast(t, ckpt_gt(t, x, ckpt_affine(t, x, 0, 0)), CKPT_F32);
    (void)user;
    above = ckpt_reshape(t, ckpt_sum(t, above, CKPT_ALL_AXES), 0, NULL);
    ckpt_output(t, "mean", mean);
    ckpt_output(t, "half", ckpt_cast(t, ckpt_affine(t, mean, 0, 1.5f), CKPT_BF16));
    ckpt_output(t, "above", ckpt_cast(t, above, CKPT_I32));
    return mean;
}

/* A scalar output is one value, whatever the number of micro-steps. */
static void test_scalars(void **state)
{
    (void)state;
    for (int64_t micro = 1; micro <= 4; micro *= 2) {
        struct ckpt_options o = CKPT_OPTIONS_INIT;
        struct ckpt_desc d;
        ckpt_program *p;
        float mean, both[2];
        uint16_t half;
        int32_t above;
        ckpt *c;
        o.device = "cpu";
        o.micro_batch = micro;
        assert_int_equal(ckpt_open(&c, &o), 0);
        assert_int_equal(ckpt_compile(c, scalars, NULL, NULL, 4, &p), 0);
        assert_int_equal(ckpt_feed(p, "x", twelve, sizeof twelve), 0);
        assert_int_equal(ckpt_step(p, NULL), 0);
        assert_int_equal(ckpt_fetch(p, "mean", both, sizeof both), CKPT_EINVAL);
        assert_int_equal(ckpt_fetch(p, "mean", &mean, sizeof mean), 0);
        assert_int_equal(ckpt_fetch(p, "half", &half, sizeof half), 0);
        assert_int_equal(ckpt_fetch(p, "above", &above, sizeof above), 0);
        assert_true(fabsf(mean - 10.5f / 12) < 1e-6f);
        assert_int_equal(half, 0x3fc0);
        assert_int_equal(above, 8);
        assert_int_equal(ckpt_program_desc(p, "mean", &d), 0);
        assert_int_equal(d.ndim, 0);
        ckpt_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_arena),     cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_host),          cmocka_unit_test(test_nvme),
        cmocka_unit_test(test_state_on_host), cmocka_unit_test(test_shared_room),
        cmocka_unit_test(test_alone),         cmocka_unit_test(test_two_under_way),
        cmocka_unit_test(test_failure),       cmocka_unit_test(test_common_addresses),
        cmocka_unit_test(test_draws),         cmocka_unit_test(test_scalars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
