/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers and groups over several ranks: every stage gives the same bits, and the results of one
 * rank.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "dist/crew_checks.h"
#include "plan/one_search.h"
#include "unit/test_directory.h"

/* See SUMS of test_ranks.c; signs of lion and small denominators of AdamW differ sooner. */
#define SUMS 1e-4
/* For one step: Newton-Schulz runs in bf16, so another order of sums rounds differently: 1.3e-4. */
#define MUON_SUMS 1e-3

static ckpt_optimizer *make_momentum(ckpt *c, const struct ckpt_adamw *a)
{
    struct ckpt_sgd o = CKPT_SGD_INIT;
    o.lr = 0.02f, o.momentum = 0.9f, o.nesterov = true;
    o.weight_decay = a->weight_decay, o.clip_norm = a->clip_norm, o.ema_decay = a->ema_decay;
    return ckpt_sgd(c, &o);
}

static ckpt_optimizer *make_lion(ckpt *c, const struct ckpt_adamw *a)
{
    struct ckpt_lion o = CKPT_LION_INIT;
    o.weight_decay = a->weight_decay, o.clip_norm = a->clip_norm, o.ema_decay = a->ema_decay;
    return ckpt_lion(c, &o);
}

/* Vectors without decay, a block frozen, another with SGD, a part unclipped at another rate. */
static ckpt_optimizer *make_groups(ckpt *c, const struct ckpt_adamw *a)
{
    struct ckpt_optimizer_group g = CKPT_OPTIMIZER_GROUP_INIT;
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    ckpt_optimizer *o = ckpt_adamw(c, a);
    g.max_ndim = 1, g.weight_decay = 0;
    ckpt_optimizer_group(o, "*", &g);
    g = (struct ckpt_optimizer_group)CKPT_OPTIMIZER_GROUP_INIT;
    g.frozen = true;
    ckpt_optimizer_group(o, "blocks.2.*", &g);
    g = (struct ckpt_optimizer_group)CKPT_OPTIMIZER_GROUP_INIT;
    sgd.lr = 0.05f, sgd.momentum = 0.8f;
    g.optimizer = ckpt_sgd(c, &sgd);
    ckpt_optimizer_group(o, "blocks.3.*", &g);
    g = (struct ckpt_optimizer_group)CKPT_OPTIMIZER_GROUP_INIT;
    g.unclipped = true, g.lr_factor = 0.5f;
    ckpt_optimizer_group(o, "*.fc[12].weight", &g);
    return o;
}

static ckpt_optimizer *make_adafactor(ckpt *c, const struct ckpt_adamw *a)
{
    struct ckpt_adafactor o = CKPT_ADAFACTOR_INIT;
    o.weight_decay = a->weight_decay, o.clip_norm = a->clip_norm, o.ema_decay = a->ema_decay;
    return ckpt_adafactor(c, &o);
}

static ckpt_optimizer *make_muon_alone(ckpt *c, const struct ckpt_adamw *a)
{
    struct ckpt_muon o = CKPT_MUON_INIT;
    (void)a;
    return ckpt_muon(c, &o);
}

/* Muon for its matrices, AdamW for the rest. */
static ckpt_optimizer *make_muon(ckpt *c, const struct ckpt_adamw *a)
{
    struct ckpt_optimizer_group g = CKPT_OPTIMIZER_GROUP_INIT;
    struct ckpt_muon o = CKPT_MUON_INIT;
    ckpt_optimizer *all = ckpt_adamw(c, a);
    g.min_ndim = 2;
    g.optimizer = ckpt_muon(c, &o);
    ckpt_optimizer_group(all, "*", &g);
    return all;
}

static void check_stages(struct crew crew, double sums)
{
    struct crew_result alone, first, other;
    crew.ranks = 1;
    crew_expect_end(&crew, &alone);
    crew.ranks = 2;
    crew_expect_end(&crew, &first);
    if (crew_distance(&first, &alone) > sums)
        fail_msg("two ranks differ from one by %g", crew_distance(&first, &alone));
    for (crew.zero = 1; crew.zero <= 3; crew.zero++) {
        crew_expect_end(&crew, &other);
        if (!crew_same(&first, 2, &other, 2))
            fail_msg("stage %d gives other bits than stage 0", crew.zero);
        crew_free(&other);
    }
    crew_free(&first);
    crew_free(&alone);
}

static void test_momentum(void **state)
{
    struct crew crew = crew_small(1, 0, 0);
    (void)state;
    crew.optimizer = make_momentum;
    check_stages(crew, SUMS);
}

static void test_lion(void **state)
{
    struct crew crew = crew_small(1, 0, 0);
    (void)state;
    crew.optimizer = make_lion;
    check_stages(crew, SUMS);
}

static void test_groups(void **state)
{
    struct crew crew = crew_small(1, 0, 0);
    (void)state;
    crew.optimizer = make_groups;
    crew.model.no_gradients = true;
    check_stages(crew, SUMS);
}

/* Optimizers that read whole matrices. */
static void test_muon(void **state)
{
    struct crew crew = crew_small(1, 0, 0);
    (void)state;
    crew.optimizer = make_muon;
    crew.steps = 1;
    check_stages(crew, MUON_SUMS);
}

static void test_adafactor(void **state)
{
    struct crew crew = crew_small(1, 0, 0);
    (void)state;
    crew.optimizer = make_adafactor;
    check_stages(crew, SUMS);
}

/* Two hosts with one copy each; values are compared after every step. */
static void test_matrices_of_hosts(void **state)
{
    ckpt_optimizer *(*const make[])(ckpt *, const struct ckpt_adamw *) = {make_muon,
                                                                          make_adafactor};
    struct crew crew = crew_small(4, 3, 0);
    (void)state;
    crew.per_host = 2;
    crew.options.shard_over = "host";
    crew.options.check_ranks = 1;
    for (int i = 0; i < 2; i++) {
        struct crew_result r;
        crew.optimizer = make[i];
        crew_expect_end(&crew, &r);
        assert_int_equal(r.group_ranks, 2);
        assert_true(crew_same(&r, 4, &r, 4));
        crew_free(&r);
    }
}

/* The first steps by two ranks, a state, the rest at another stage: the bits of one run. */
static void check_resume(ckpt_optimizer *(*make)(ckpt *, const struct ckpt_adamw *))
{
    struct crew crew = crew_small(2, 3, 0);
    struct crew_result whole, part;
    crew.optimizer = make;
    crew.model.no_gradients = true;
    crew_expect_end(&crew, &whole);
    crew.steps = 3;
    crew.save_state = path;
    crew_expect_end(&crew, &part);
    crew_free(&part);
    crew.steps = CREW_STEPS;
    crew.save_state = NULL;
    crew.load_state = path;
    crew.zero = 1;
    crew_expect_end(&crew, &part);
    for (int64_t i = 0; i < whole.numel; i++)
        assert_true(whole.values[0][i] == part.values[0][i]);
    crew_free(&part);
    crew_free(&whole);
}

static void test_resume(void **state)
{
    (void)state;
    check_resume(make_groups);
    check_resume(make_muon);
    check_resume(make_adafactor);
}

/* ---- what is refused ------------------------------------------------------------------------ */

static void test_no_matrix(void **state)
{
    struct crew crew = crew_small(2, 0, 0);
    (void)state;
    crew.optimizer = make_muon_alone;
    crew_expect_code(&crew, CKPT_EINVAL,
                     (const char *[]){"has 1 axes and is no matrix", "by a group", NULL});
}

/* A rank that was started with another optimizer. */
static void test_others(void **state)
{
    struct crew other = crew_small(2, 1, 0), crew = other;
    (void)state;
    crew.optimizer = make_lion;
    other.optimizer = make_momentum;
    crew.other = &other;
    crew.faulty = 1;
    crew_expect_code(&crew, CKPT_ECOMM, (const char *[]){"optimizer", NULL});
}

static int finish(void **state)
{
    ckpt_file_remove(path); /* a state of ranks has parts */
    return remove_dir(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_momentum),  cmocka_unit_test(test_lion),
        cmocka_unit_test(test_groups),    cmocka_unit_test(test_muon),
        cmocka_unit_test(test_adafactor), cmocka_unit_test(test_matrices_of_hosts),
        cmocka_unit_test(test_resume),    cmocka_unit_test(test_no_matrix),
        cmocka_unit_test(test_others),
    };
    return cmocka_run_group_tests(tests, make_dir, finish);
}
