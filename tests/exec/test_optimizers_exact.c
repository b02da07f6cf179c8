/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The place where state is stored changes no bit, for every optimizer: after eight steps, with
 * everything resident, in the smallest budget, offloaded to the host and to NVMe, updated on the
 * host, resumed from a file, and with a non-finite step in between.  "make check-gpu" runs it on
 * the GPU.
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
#include "optimizer_kinds.h"
#include "plan/one_search.h"

/* Runs the first steps, saves, and runs the rest in a new context, with a non-finite step before.
 */
static void run_in_parts(struct small *r, bool mishap)
{
    int64_t n = SMALL_BATCH * r->width;
    float *x = calloc((size_t)n, sizeof *x);
    ckpt *c;
    ckpt_program *p;
    small_open_resumed(r, &c, &p);
    if (mishap) {
        x[n / 2] = INFINITY;
        assert_int_equal(ckpt_feed(p, "x", x, n * 4), 0);
        assert_int_equal(ckpt_step(p, NULL), CKPT_ENAN);
    }
    small_train(r, c, p, SMALL_SAVED, SMALL_STEPS);
    small_collect(r, c);
    ckpt_close(c);
    free(x);
}

static void expect_same(const char *name, const char *what, const struct small *a, struct small *b)
{
    if (a->numel != b->numel || memcmp(a->loss, b->loss, sizeof a->loss) ||
        memcmp(a->state, b->state, (size_t)a->numel * sizeof *a->state))
        fail_msg("%s, %s: other numbers than with all resident; last loss %g and %g", name, what,
                 (double)a->loss[SMALL_STEPS - 1], (double)b->loss[SMALL_STEPS - 1]);
    free(b->state);
}

static void check_forced(const char *name, const struct small *resident, const struct force *f,
                         const char *what)
{
    struct small r = *resident;
    struct budgets tiers;
    struct force_count count;
    char path[64], nvme[64];
    small_path(path, sizeof path, "optimizer-plan");
    small_force(resident, f, path, &tiers, &count);
    assert_true(count.persistent[TIER_HOST] + count.persistent[TIER_NVME] > 0);
    assert_true(!f->stepped || count.stepped > 0);
    small_use_tiers(&r, path, &tiers, nvme);
    run_in_parts(&r, f->nvme);
    expect_same(name, what, resident, &r);
    unlink(path);
}

/* state: as options.state; with small state gradients are bf16, too. */
static void check_exact(const struct optimizer_kind *k, enum ckpt_dtype dtype, const char *state,
                        int n_micro)
{
    struct small r = small_make(dtype, 24, n_micro, true), other;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    bool half = dtype == CKPT_BF16 && !state; /* values are made of masters */
    ckpt *c;
    ckpt_program *p;
    r.optimizer = k->make;
    r.options.state = state;
    r.adamw.grad_dtype = state ? CKPT_BF16 : CKPT_F32;
    small_run(&r, SMALL_STEPS);
    other = r;
    run_in_parts(&other, true);
    expect_same(k->name, "resumed after a mishap", &r, &other);
    if (!small_on_gpu()) {
        other = r;
        other.options.plan_only = true;
        small_open(&other, &c, &p);
        ckpt_program_info(p, &info);
        ckpt_close(c);
        other.options.plan_only = false;
        other.options.vram = info.min_budget;
        small_run(&other, SMALL_STEPS);
        expect_same(k->name, "the smallest budget", &r, &other);
    }
    check_forced(k->name, &r, &(struct force){.seed = 3, .host = true, .all = true, .half = half},
                 "on the host");
    check_forced(k->name, &r, &(struct force){.seed = 4, .nvme = true, .half = half}, "on NVMe");
    if (k->host && (half || !k->no_state))
        check_forced(
            k->name, &r,
            &(struct force){.seed = 5, .host = true, .all = true, .stepped = true, .half = half},
            "updated on the host");
    free(r.state);
}

static void test_exactness(void **state)
{
    (void)state;
    for (int i = 0; i < OPTIMIZER_KINDS; i++) {
        check_exact(&optimizer_kinds[i], CKPT_F32, NULL, i % 2 ? 3 : 1);
        check_exact(&optimizer_kinds[i], CKPT_BF16, NULL, i % 2 ? 1 : 3);
    }
}

/* Stochastic rounding is the same wherever it happens. */
static void test_state_in_bf16(void **state)
{
    (void)state;
    for (int i = 0; i < OPTIMIZER_KINDS; i++)
        check_exact(&optimizer_kinds[i], CKPT_BF16, "bf16", i % 2 ? 3 : 1);
}

/* The same of means in 8 bits, for the kinds that change each element by itself. */
static void test_state_in_8_bits(void **state)
{
    (void)state;
    for (int i = 0; i < OPTIMIZER_KINDS; i++)
        if (optimizer_kinds[i].host)
            check_exact(&optimizer_kinds[i], CKPT_BF16, "8bit", i % 2 ? 1 : 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_exactness),
                                       cmocka_unit_test(test_state_in_bf16),
                                       cmocka_unit_test(test_state_in_8_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
