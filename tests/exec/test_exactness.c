/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The place where bytes wait between uses changes no number.  Losses, norms, weights and optimizer
 * state after eight steps have the same bits when everything is resident, recomputed, or offloaded
 * to the host, to NVMe or to both, wherever the rules of plans allow it, and when updates run on
 * the host.  "make check-gpu" runs a part of the matrix on the GPU.
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
#include "plan/one_search.h"
#include "small.h"

/* Runs the first steps, saves, and runs the rest in a new context. */
static void run_in_parts(struct small *r, int first)
{
    char path[64];
    ckpt *c;
    ckpt_program *p;
    small_path(path, sizeof path, "state");
    small_open(r, &c, &p);
    small_train(r, c, p, 0, first);
    if (ckpt_save_state(c, path))
        fail_msg("%s", ckpt_error(c));
    ckpt_close(c);
    small_open(r, &c, &p);
    if (ckpt_load_state(c, path))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(ckpt_updates(c), first);
    unlink(path);
    small_train(r, c, p, first, SMALL_STEPS);
    small_collect(r, c);
    ckpt_close(c);
}

/* Inserts a step that is not finite, with another step submitted after it: neither counts. */
static void run_with_mishap(struct small *r)
{
    int64_t n = SMALL_BATCH * r->width;
    float *x = malloc((size_t)n * sizeof *x);
    ckpt *c;
    ckpt_program *p;
    small_open(r, &c, &p);
    small_train(r, c, p, 0, 3);
    ckpt_fill_normal(7, 3, 1, x, n);
    x[n / 2] = INFINITY;
    assert_int_equal(ckpt_feed(p, "x", x, n * 4), 0);
    assert_int_equal(ckpt_submit(p), 0);
    small_feed(p, r, 4);
    assert_int_equal(ckpt_submit(p), 0);
    assert_int_equal(ckpt_wait(p, NULL), CKPT_ENAN);
    small_train(r, c, p, 3, SMALL_STEPS);
    small_collect(r, c);
    ckpt_close(c);
    free(x);
}

static void expect_same(const struct small *a, const struct small *b, const char *what)
{
    if (a->numel != b->numel || memcmp(a->loss, b->loss, sizeof a->loss) ||
        memcmp(&a->norm, &b->norm, sizeof a->norm) ||
        memcmp(a->state, b->state, (size_t)a->numel * sizeof *a->state))
        fail_msg("%s: other numbers than with all resident; losses %g ... %g, %g ... %g", what,
                 (double)a->loss[0], (double)a->loss[SMALL_STEPS - 1], (double)b->loss[0],
                 (double)b->loss[SMALL_STEPS - 1]);
}

/* ---- the matrix ----------------------------------------------------------------------------- */

static void expect_offloads(const struct force *f, const struct force_count *n, int64_t n_micro)
{
    const bool used[] = {[TIER_HOST] = f->host, [TIER_NVME] = f->nvme};
    for (int t = 0; t < TIER_COUNT; t++) {
        assert_int_equal(n->persistent[t] > 0, used[t]);
        assert_int_equal(n->activations[t] > 0, used[t]);
    }
    assert_true(n->clean > 0);
    assert_int_equal(n->crossing > 0, n_micro == 1);
}

static void check_offloaded(const struct small *resident, int64_t n_micro, const struct force *f)
{
    struct small r = *resident;
    struct budgets tiers;
    struct force_count count;
    char path[64], nvme[64], what[64];
    small_path(path, sizeof path, "plan");
    small_force(resident, f, path, &tiers, &count);
    expect_offloads(f, &count, n_micro);
    snprintf(what, sizeof what, "host %d, nvme %d, seed %d", f->host, f->nvme, (int)f->seed);
    small_use_tiers(&r, path, &tiers, nvme);
    if (f->seed % 2)
        run_in_parts(&r, SMALL_STEPS / 2 - 1); /* two steps under way have changed places then */
    else if (f->host && f->nvme)
        run_with_mishap(&r);
    else
        small_run(&r, SMALL_STEPS);
    expect_same(resident, &r, what);
    free(r.state);
    unlink(path);
}

/* Updates on the host together with offloads; with several updates every other one runs on the
 * device. */
static void check_stepped(const struct small *resident, uint64_t seed, int steps)
{
    bool half = resident->dtype == CKPT_BF16, one = resident->width < 1000;
    struct force f = {
        .seed = seed, .host = true, .nvme = seed & 2, .all = one, .stepped = true, .half = half};
    struct small r = *resident;
    struct budgets tiers;
    struct force_count n;
    char path[64], nvme[64], what[64];
    small_path(path, sizeof path, "plan");
    small_force(resident, &f, path, &tiers, &n);
    assert_true(n.stepped > 0 && n.sent > 1 && n.written > 0);
    assert_int_equal(n.on_device > 0, !one);
    assert_int_equal(n.back > 0, half);
    bool narrow = resident->adamw.grad_dtype == CKPT_BF16;
    assert_int_equal(n.in_place > 0, narrow && resident->options.micro_batch == SMALL_BATCH);
    assert_true(one || n.persistent[TIER_HOST] > n.written);
    snprintf(what, sizeof what, "stepped on the host, seed %d", (int)seed);
    small_use_tiers(&r, path, &tiers, nvme);
    if (steps == SMALL_STEPS && seed % 2)
        run_in_parts(&r, SMALL_STEPS / 2 - 1);
    else if (steps == SMALL_STEPS)
        run_with_mishap(&r);
    else
        small_run(&r, steps);
    expect_same(resident, &r, what);
    free(r.state);
    unlink(path);
}

static void check_recompute(const struct small *resident)
{
    struct small r = *resident;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt *c;
    ckpt_program *p;
    r.options.plan_in = NULL;
    r.options.plan_only = true;
    small_open(&r, &c, &p);
    ckpt_program_info(p, &info);
    ckpt_close(c);
    r.options.plan_only = false;
    r.options.vram = info.min_budget;
    small_open(&r, &c, &p);
    ckpt_program_info(p, &info);
    assert_true(info.recomputed_ops > 0);
    small_train(&r, c, p, 0, SMALL_STEPS);
    small_collect(&r, c);
    ckpt_close(c);
    expect_same(resident, &r, "recompute");
    free(r.state);
}

static void check_all(enum ckpt_dtype dtype, int64_t width)
{
    for (int k = 0; k < 4; k += small_on_gpu() ? 3 : 1) {
        int64_t n_micro = k & 1 ? 3 : 1;
        struct small r = small_make(dtype, width, n_micro, k & 2), halves;
        char base[64];
        if (dtype == CKPT_BF16 && k == 2) /* they take the rooms of the values */
            r.adamw.grad_dtype = CKPT_BF16;
        halves = r;
        small_path(base, sizeof base, "base");
        r.options.plan_out = base;
        small_run(&r, SMALL_STEPS);
        r.options.plan_out = NULL;
        halves.options.plan_in = r.options.plan_in = base; /* the search is done */
        run_in_parts(&halves, SMALL_STEPS / 2);
        expect_same(&r, &halves, "resumed");
        if (!small_on_gpu()) /* where the budget also holds the context: test_gpu_promises */
            check_recompute(&r);
        for (int tiers = 1; tiers < 4; tiers++)
            for (uint64_t seed = 0; seed < 2; seed++)
                check_offloaded(&r, n_micro,
                                &(struct force){.seed = seed + 2 * (uint64_t)tiers,
                                                .host = tiers & 1,
                                                .nvme = tiers & 2,
                                                .all = seed == 0});
        check_stepped(&r, (uint64_t)k, SMALL_STEPS);
        free(r.state);
        free(halves.state);
        unlink(base);
    }
}

static void test_fp32_even(void **state)
{
    (void)state;
    check_all(CKPT_F32, 32);
}

static void test_fp32_odd(void **state)
{
    (void)state;
    check_all(CKPT_F32, 37);
}

static void test_bf16_even(void **state)
{
    (void)state;
    check_all(CKPT_BF16, 32);
}

static void test_bf16_odd(void **state)
{
    (void)state;
    check_all(CKPT_BF16, 37);
}

/* Storages larger than a staging slot go through several slots in turn. */
static void test_pieces(void **state)
{
    (void)state;
    struct force f = {.seed = 5, .nvme = true, .all = true};
    struct small r = small_make(CKPT_F32, 1500, 1, true), offloaded = r;
    struct budgets tiers;
    struct force_count count;
    char path[64], nvme[64];
    ckpt *c;
    ckpt_program *p;
    assert_true(r.width * r.width * 4 > PLAN_STAGING_MOST / (2 * PLAN_STAGING_SLOTS));
    small_path(path, sizeof path, "pieces");
    small_force(&r, &f, path, &tiers, &count);
    small_open(&r, &c, &p);
    small_train(&r, c, p, 0, 2);
    small_collect(&r, c);
    ckpt_close(c);
    small_use_tiers(&offloaded, path, &tiers, nvme);
    small_open(&offloaded, &c, &p);
    small_train(&offloaded, c, p, 0, 2);
    small_collect(&offloaded, c);
    ckpt_close(c);
    expect_same(&r, &offloaded, "pieces");
    free(r.state);
    free(offloaded.state);
    unlink(path);
}

/* Large parameters have separate updates: some on the host, some on the device, with resident or
 * streamed state. */
static void test_stepped_and_streamed(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) { /* the last with gradients in the rooms of their values */
        struct small r = small_make(k ? CKPT_BF16 : CKPT_F32, 1450, k == 2 ? 3 : 1, true);
        r.adamw.grad_dtype = k == 3 ? CKPT_BF16 : CKPT_F32;
        ckpt *c;
        ckpt_program *p;
        small_open(&r, &c, &p);
        small_train(&r, c, p, 0, 3);
        small_collect(&r, c);
        ckpt_close(c);
        check_stepped(&r, (uint64_t)k + 4, 3);
        free(r.state);
    }
}

/* Another program, with parameters as large as the training program's. */
static ckpt_tensor probe(ckpt_tape *t, int64_t batch, void *user)
{
    const ckpt_tensor *w = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 64});
    ckpt_tensor y =
        ckpt_linear(t, ckpt_gelu_tanh(t, ckpt_linear(t, x, *w, CKPT_NONE)), *w, CKPT_NONE);
    ckpt_output(t, "y", y);
    return y;
}

/* Copies to files, which are as slow as the drive, do not delay copies to or from host memory. */
static void expect_queues(const struct lowered *l, const struct plan *p)
{
    int file = 0, host = 0;
    for (int32_t i = 0; i < l->n_instrs; i++) {
        const struct instr *n = &l->instrs.data[i];
        if (n->kind != INSTR_OFFLOAD_IN && n->kind != INSTR_OFFLOAD_OUT)
            continue;
        bool in = n->kind == INSTR_OFFLOAD_IN;
        bool far = copy_tier(p->residences, &p->copies[n->copy]) == TIER_NVME;
        assert_int_equal(n->queue, far ? (in ? QUEUE_FILE_IN : QUEUE_FILE_OUT)
                                       : (in ? QUEUE_COPY_IN : QUEUE_COPY_OUT));
        file += far;
        host += !far;
    }
    assert_true(file && host);
}

/* Steps of two programs alternate: copies of one are under way when the other begins, in the same
 * part of the arena. */
static void test_two_programs(void **state)
{
    (void)state;
    enum { SAMPLES = 400, WIDTH = 64 };
    struct force f = {.seed = 9, .host = true, .nvme = true, .all = true};
    struct small r = small_make(CKPT_F32, 96, 1, true), offloaded = r;
    struct budgets tiers;
    struct force_count count;
    char path[64], nvme[64];
    ckpt *c;
    ckpt_program *p, *other;
    float *x = malloc(SAMPLES * WIDTH * sizeof *x), *y = malloc(SAMPLES * WIDTH * sizeof *y);
    float *first = malloc(SAMPLES * WIDTH * sizeof *first);
    ckpt_fill_normal(3, 0, 1, x, SAMPLES * WIDTH);
    small_run(&r, SMALL_STEPS);
    small_path(path, sizeof path, "two");
    small_force(&offloaded, &f, path, &tiers, &count);
    small_use_tiers(&offloaded, path, &tiers, nvme);
    small_open(&offloaded, &c, &p);
    expect_queues(&p->lowered, p->plan);
    ckpt_tensor w = ckpt_param(c, "probe", CKPT_F32, 2, (int64_t[]){WIDTH, WIDTH}, CKPT_XAVIER, 0);
    c->options.micro_batch = 0;
    if (ckpt_compile(c, probe, &w, NULL, SAMPLES, &other))
        fail_msg("%s", ckpt_error(c));
    assert_true(other->lowered.first_event >= p->lowered.end_event);
    assert_int_equal(ckpt_feed(other, "x", x, SAMPLES * WIDTH * 4), 0);
    for (int s = 0; s < SMALL_STEPS; s++) {
        small_train(&offloaded, c, p, s, s + 1);
        assert_int_equal(ckpt_step(other, NULL), 0);
        assert_int_equal(ckpt_fetch(other, "y", s ? y : first, SAMPLES * WIDTH * 4), 0);
        if (s)
            assert_memory_equal(first, y, SAMPLES * WIDTH * sizeof *y);
    }
    small_collect(&offloaded, c);
    ckpt_close(c);
    expect_same(&r, &offloaded, "two programs");
    free(r.state);
    free(offloaded.state);
    free(x);
    free(y);
    free(first);
    unlink(path);
}

/* Runs a forward-only program beside the training program; returns the loss of one more training
 * step. */
static float sample(struct small *r, ckpt *c, ckpt_program *p, float *h)
{
    float loss;
    ckpt_program *forward;
    c->options.micro_batch = 0;
    if (ckpt_compile(c, small_record, r, NULL, SMALL_BATCH, &forward))
        fail_msg("%s", ckpt_error(c));
    small_feed(forward, r, 1);
    small_feed(p, r, 0);
    for (int i = 0; i < 2; i++)
        if (ckpt_step(p, &loss) || ckpt_step(forward, NULL))
            fail_msg("%s", ckpt_error(c));
    assert_int_equal(ckpt_fetch(forward, "h", h, SMALL_BATCH * r->width * 4), 0);
    return loss;
}

/* Offloads that the planner selects if the device is too small for the weights and their state. */
static void check_planned(int64_t n_micro, bool nvme)
{
    struct small r = small_make(CKPT_F32, 1100, n_micro, true), offloaded = r;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct force_count n;
    ckpt *c;
    ckpt_program *p;
    small_open(&r, &c, &p);
    ckpt_program_info(p, &info);
    small_train(&r, c, p, 0, SMALL_STEPS);
    small_collect(&r, c);
    size_t bytes = (size_t)(SMALL_BATCH * r.width) * sizeof(float);
    float *h = malloc(bytes), *same = malloc(bytes), loss = sample(&r, c, p, h);
    ckpt_close(c);
    offloaded.options.vram = info.planned_peak * 3 / 4;
    offloaded.options.host = nvme ? 0 : INT64_C(1) << 30;
    offloaded.options.nvme = nvme ? ".:256M" : NULL;
    small_open(&offloaded, &c, &p);
    force_count(p->graph, p->plan, &n);
    assert_true(n.persistent[nvme ? TIER_NVME : TIER_HOST] > 0);
    small_train(&offloaded, c, p, 0, SMALL_STEPS);
    small_collect(&offloaded, c);
    assert_true(sample(&offloaded, c, p, same) == loss);
    assert_memory_equal(h, same, bytes);
    ckpt_close(c);
    expect_same(&r, &offloaded, "planned");
    free(h);
    free(same);
    free(r.state);
    free(offloaded.state);
}

static void test_planned(void **state)
{
    (void)state;
    check_planned(1, false);
    check_planned(3, false);
    check_planned(1, true);
    check_planned(3, true);
}

/* Host updates that the planner selects on a machine with a fast host. */
static void test_planned_on_host(void **state)
{
    (void)state;
    enum { STEPS = 3 };
    struct small r = small_make(CKPT_BF16, 1450, 1, true), hosted;
    struct machine fast = machine_cpu;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct force_count n;
    char path[64];
    ckpt *c;
    ckpt_program *p;
    r.adamw.grad_dtype = CKPT_BF16;
    hosted = r;
    small_open(&r, &c, &p);
    ckpt_program_info(p, &info);
    small_train(&r, c, p, 0, STEPS);
    small_collect(&r, c);
    ckpt_close(c);
    fast.host_update = 1e13;
    small_path(path, sizeof path, "machine");
    assert_int_equal(machine_write(&fast, path), 0);
    hosted.options.machine = path;
    hosted.options.vram = info.planned_peak / 2;
    hosted.options.host = INT64_C(1) << 30;
    small_open(&hosted, &c, &p);
    force_count(p->graph, p->plan, &n);
    assert_true(n.stepped > 0 && n.written > 0);
    small_train(&hosted, c, p, 0, STEPS);
    small_collect(&hosted, c);
    ckpt_close(c);
    expect_same(&r, &hosted, "planned on the host");
    free(r.state);
    free(hosted.state);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest some[] = {
        cmocka_unit_test(test_fp32_odd),     cmocka_unit_test(test_bf16_even),
        cmocka_unit_test(test_pieces),       cmocka_unit_test(test_stepped_and_streamed),
        cmocka_unit_test(test_two_programs),
    };
    const struct CMUnitTest others[] = {
        cmocka_unit_test(test_fp32_even),
        cmocka_unit_test(test_bf16_odd),
        cmocka_unit_test(test_planned),
        cmocka_unit_test(test_planned_on_host),
    };
    int failed = cmocka_run_group_tests(some, NULL, NULL);
    return small_on_gpu() ? failed : failed + cmocka_run_group_tests(others, NULL, NULL);
}
