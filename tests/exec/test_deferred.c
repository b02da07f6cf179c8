/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates that the host repeats, in their place or deferred to the next forward pass, change no
 * number: losses, norms, weights and state have the bits of a run with everything resident.  What
 * reads or writes parameters between steps finds the updates of the last one done.
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

enum { SEEDS = 6 };

/* Each matrix has an update of its own; moving: NULL, or the only parameter that changes. */
static ckpt_optimizer *make_groups(ckpt *c, const struct small *r, const char *moving)
{
    static const char *const names[] = {"in.weight",       "out.weight",      "layers.0.weight",
                                        "layers.1.weight", "layers.2.weight", "*.bias"};
    struct ckpt_optimizer_group g = CKPT_OPTIMIZER_GROUP_INIT;
    ckpt_optimizer *o = ckpt_adamw(c, &r->adamw);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        g.lr_factor = !moving || !strcmp(moving, names[i]) ? 1.f : 1e-30f;
        g.weight_decay = g.lr_factor < 1 ? 0.f : -1.f;
        assert_int_equal(ckpt_optimizer_group(o, names[i], &g), 0);
    }
    return o;
}

static ckpt_optimizer *separate(ckpt *c, const struct small *r)
{
    return make_groups(c, r, NULL);
}

/* An update that is deferred, so that no other one breaks a weight earlier. */
static ckpt_optimizer *move_one(ckpt *c, const struct small *r)
{
    return make_groups(c, r, "out.weight");
}

static struct small make(int64_t width)
{
    struct small r = small_make(CKPT_BF16, width, 1, true);
    r.adamw.grad_dtype = CKPT_BF16;
    r.optimizer = separate;
    return r;
}

/* A run of r with repeated updates: its plan goes to path. */
static struct small force(const struct small *r, uint64_t seed, const char *path, char nvme[64])
{
    const struct force f = {.seed = seed,
                            .host = true,
                            .nvme = seed & 2,
                            .all = seed & 1,
                            .repeated = true,
                            .half = true};
    struct small forced = *r;
    struct budgets tiers;
    struct force_count n;
    small_force(r, &f, path, &tiers, &n);
    assert_true(n.repeated > 0 && n.deferred > 0);
    small_use_tiers(&forced, path, &tiers, nvme);
    return forced;
}

static void expect_same(const char *what, const struct small *a, struct small *b)
{
    assert_memory_equal(&a->norm, &b->norm, sizeof a->norm);
    small_expect_same(what, a, b);
}

/* As small_run, with another learning rate in each step, and two of them under way. */
static void run_with_rates(struct small *r)
{
    ckpt *c;
    ckpt_program *p;
    small_open(r, &c, &p);
    for (int s = 0; s <= SMALL_STEPS; s++) {
        if (s < SMALL_STEPS) {
            assert_int_equal(ckpt_set_lr(p, r->adamw.lr / (float)(1 + s)), 0);
            small_feed(p, r, s);
            assert_int_equal(ckpt_submit(p), 0);
        }
        if (s > 0)
            assert_int_equal(ckpt_wait(p, &r->loss[s - 1]), 0);
    }
    r->norm = p->grad_norm;
    small_collect(r, c);
    ckpt_close(c);
}

static void test_bits(void **state)
{
    (void)state;
    for (int64_t width = 32; width < 40; width += 5) {
        struct small r = make(width);
        run_with_rates(&r);
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            char path[64], nvme[64];
            small_path(path, sizeof path, "deferred");
            struct small forced = force(&r, seed, path, nvme);
            run_with_rates(&forced);
            expect_same("deferred", &r, &forced);
            unlink(path);
        }
        free(r.state);
    }
}

/* State that is saved in the middle is complete: a run without tiers goes on from it, and a run
 * with deferred updates from that of one without. */
static void test_resume(void **state)
{
    (void)state;
    struct small r = make(32);
    small_run(&r, SMALL_STEPS);
    for (uint64_t seed = 0; seed < 4; seed++) {
        char path[64], saved[64], nvme[64];
        ckpt *c;
        ckpt_program *p;
        small_path(path, sizeof path, "deferred");
        small_path(saved, sizeof saved, "state");
        struct small forced = force(&r, seed, path, nvme), plain = r;
        struct small *first = seed & 1 ? &forced : &plain, *then = seed & 2 ? &forced : &plain;
        small_open(first, &c, &p);
        struct small whole = *first;
        small_train(&whole, c, p, 0, SMALL_SAVED);
        assert_int_equal(ckpt_save_state(c, saved), 0);
        ckpt_close(c);
        small_open(then, &c, &p);
        memcpy(whole.param, then->param, sizeof whole.param);
        assert_int_equal(ckpt_load_state(c, saved), 0);
        small_train(&whole, c, p, SMALL_SAVED, SMALL_STEPS);
        small_collect(&whole, c);
        ckpt_close(c);
        expect_same("resumed", &r, &whole);
        unlink(path);
        unlink(saved);
    }
    free(r.state);
}

/* All state after each step, and parameters that are set between two steps. */
static void run_with_reads(struct small *r, int steps)
{
    ckpt *c;
    ckpt_program *p;
    int64_t n = r->width * r->width;
    float *w = malloc((size_t)n * sizeof *w), sum = 0;
    small_open(r, &c, &p);
    for (int s = 0; s < steps; s++) {
        small_train(r, c, p, s, s + 1);
        small_collect(r, c);
        for (int64_t i = 0; i < r->numel; i++)
            sum = sum * 0.999f + r->state[i];
        free(r->state);
        assert_int_equal(ckpt_param_get(c, r->param[3], CKPT_VALUE, w, n), 0);
        w[s] = -w[s];
        if (s % 3 == 0)
            assert_int_equal(ckpt_param_set(c, r->param[3], CKPT_VALUE, w, n), 0);
    }
    small_collect(r, c);
    r->loss[SMALL_STEPS - 1] = sum;
    ckpt_close(c);
    free(w);
}

static void test_reads_and_writes(void **state)
{
    (void)state;
    struct small r = make(32);
    run_with_reads(&r, SMALL_STEPS - 1);
    for (uint64_t seed = 0; seed < 3; seed++) {
        char path[64], nvme[64];
        small_path(path, sizeof path, "deferred");
        struct small forced = force(&r, seed, path, nvme);
        run_with_reads(&forced, SMALL_STEPS - 1);
        expect_same("with reads", &r, &forced);
        unlink(path);
    }
    free(r.state);
}


/* A program without updates between the steps sees the weights of the last one, and takes the
 * bytes above the parameters. */
static ckpt_program *compile_validation(struct small *r, ckpt *c)
{
    ckpt_program *forward;
    c->options.micro_batch = 0;
    if (ckpt_compile(c, small_record, r, NULL, SMALL_BATCH, &forward))
        fail_msg("%s", ckpt_error(c));
    return forward;
}

static void run_with_validation(struct small *r, uint16_t *h)
{
    ckpt *c;
    ckpt_program *p, *forward;
    const int64_t n = SMALL_BATCH * r->width, bytes = n * 2;
    small_open(r, &c, &p);
    forward = compile_validation(r, c);
    for (int s = 0; s < SMALL_STEPS; s++) {
        small_train(r, c, p, s, s + 1);
        small_feed(forward, r, s);
        for (int k = 0; k < s % 3; k++) /* none, one or two in a row */
            if (ckpt_step(forward, NULL) || ckpt_fetch(forward, "h", h + s * n, bytes))
                fail_msg("%s", ckpt_error(c));
    }
    small_collect(r, c);
    ckpt_close(c);
}

static void test_validation(void **state)
{
    (void)state;
    struct small r = make(32);
    size_t n = (size_t)(SMALL_STEPS * SMALL_BATCH * r.width);
    uint16_t *h = calloc(n, sizeof *h), *same = calloc(n, sizeof *same);
    run_with_validation(&r, h);
    for (uint64_t seed = 0; seed < 4; seed++) {
        char path[64], nvme[64];
        small_path(path, sizeof path, "deferred");
        struct small forced = force(&r, seed, path, nvme);
        run_with_validation(&forced, same);
        assert_memory_equal(h, same, n * sizeof *h);
        expect_same("with validation", &r, &forced);
        unlink(path);
    }
    free(r.state);
    free(h);
    free(same);
}

/* A step that is not finite, with another one submitted after it, changes nothing: the weights of
 * the step before are kept, also where its updates were still pending. */
static void run_with_mishap(struct small *r, bool look)
{
    int64_t n = SMALL_BATCH * r->width;
    float *x = malloc((size_t)n * sizeof *x);
    ckpt *c;
    ckpt_program *p;
    small_open(r, &c, &p);
    small_train(r, c, p, 0, 3);
    ckpt_fill_normal(7, 3, 1, x, n);
    for (int k = 0; k < 2; k++) { /* in the input, and first in a result */
        x[n / 2] = k ? 3e38f : INFINITY;
        assert_int_equal(ckpt_feed(p, "x", x, n * 4), 0);
        assert_int_equal(ckpt_submit(p), 0);
        small_feed(p, r, 4);
        assert_int_equal(ckpt_submit(p), 0);
        assert_int_equal(ckpt_wait(p, NULL), CKPT_ENAN);
        if (look) {
            small_collect(r, c);
            free(r->state);
        }
        ckpt_fill_normal(7, 3, 1, x, n);
    }
    small_train(r, c, p, 3, SMALL_STEPS);
    small_collect(r, c);
    ckpt_close(c);
    free(x);
}

static void test_mishap(void **state)
{
    (void)state;
    struct small r = make(32);
    small_run(&r, SMALL_STEPS);
    for (uint64_t seed = 0; seed < 4; seed++) {
        char path[64], nvme[64];
        small_path(path, sizeof path, "deferred");
        struct small forced = force(&r, seed, path, nvme);
        run_with_mishap(&forced, seed & 1);
        expect_same("a step that fails", &r, &forced);
        unlink(path);
    }
    free(r.state);
}

/* A deferred update that makes a weight infinite is found by the next step, by what reads
 * parameters first, or by a step of another program, whether its own step was waited for or not. */
enum finder { NEXT_STEP, SAVED, OTHER_PROGRAM, UNDER_WAY };

static int find_broken(enum finder by, ckpt *c, ckpt_program *p, struct small *r, const char *saved)
{
    ckpt_program *forward = by >= OTHER_PROGRAM ? compile_validation(r, c) : NULL;
    small_feed(p, r, 2);
    int rc = ckpt_submit(p);
    if (!rc && by != UNDER_WAY)
        rc = ckpt_wait(p, NULL);
    if (rc || by == SAVED)
        return rc ? rc : ckpt_save_state(c, saved);
    small_feed(forward ? forward : p, r, 3);
    return ckpt_step(forward ? forward : p, NULL);
}

static void check_broken(enum finder by)
{
    struct small r = make(32);
    char path[64], nvme[64], saved[64];
    ckpt *c;
    ckpt_program *p;
    r.adamw.weight_decay = 10.f;
    r.optimizer = move_one;
    small_path(path, sizeof path, "deferred");
    small_path(saved, sizeof saved, "state");
    struct small forced = force(&r, 1, path, nvme);
    small_open(&forced, &c, &p);
    small_train(&forced, c, p, 0, 2);
    assert_int_equal(ckpt_save_state(c, saved), 0);
    assert_int_equal(ckpt_set_lr(p, 3e38f), 0);
    assert_int_equal(find_broken(by, c, p, &forced, saved), CKPT_ENAN);
    assert_non_null(strstr(ckpt_error(c), "step 3: the update made '"));
    assert_true((by == SAVED || by == OTHER_PROGRAM) ==
                !!strstr(ckpt_error(c), ", with a learning rate of 3e+38 and a gradient norm of "));
    assert_null(strstr(ckpt_error(c), "nan"));
    assert_int_equal(ckpt_save_state(c, saved), CKPT_EDEVICE);
    assert_int_equal(ckpt_step(p, NULL), CKPT_EDEVICE);
    ckpt_close(c);
    small_open(&forced, &c, &p);
    assert_int_equal(ckpt_load_state(c, saved), 0);
    small_train(&forced, c, p, 2, 3);
    ckpt_close(c);
    unlink(saved);
    unlink(path);
}

static void test_broken(void **state)
{
    (void)state;
    for (enum finder by = NEXT_STEP; by <= UNDER_WAY; by++)
        check_broken(by);
}

/* A program compiled later that trains, too: the first one gets a plan without deferred updates.
 * Both train in turn, and give the numbers of a run without tiers. */
static void run_in_turn(struct small *r, bool given)
{
    ckpt *c;
    ckpt_program *p, *other;
    small_open(r, &c, &p);
    const ckpt_optimizer *o = p->optimizer;
    assert_true(given == (plan_find_deferred(p->plan, p->plan->n_body) < p->plan->n_steps));
    c->options.plan_in = NULL;
    if (ckpt_compile(c, small_record, r, o, SMALL_BATCH, &other))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(plan_find_deferred(p->plan, p->plan->n_body), p->plan->n_steps);
    for (int s = 0; s < SMALL_STEPS; s++)
        small_train(r, c, s & 1 ? other : p, s, s + 1);
    small_collect(r, c);
    ckpt_close(c);
}

static void test_in_turn(void **state)
{
    (void)state;
    struct small r = make(32);
    char path[64], nvme[64];
    run_in_turn(&r, false);
    small_path(path, sizeof path, "deferred");
    struct small forced = force(&r, 1, path, nvme);
    run_in_turn(&forced, true);
    expect_same("in turn", &r, &forced);
    unlink(path);
    free(r.state);
}

/* A program that is the first of several is planned like all of them. */
static void test_announced(void **state)
{
    (void)state;
    struct small r = make(32);
    ckpt *c;
    ckpt_program *p, *only;
    small_open(&r, &c, &p);
    assert_false(p->graph->in_turn);
    const ckpt_optimizer *o = p->optimizer;
    ckpt_program_free(p);
    assert_int_equal(ckpt_train_in_turn(c), 0);
    if (ckpt_compile(c, small_record, &r, o, SMALL_BATCH, &only))
        fail_msg("%s", ckpt_error(c));
    assert_true(only->graph->in_turn);
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_reads_and_writes),
        cmocka_unit_test(test_validation),
        cmocka_unit_test(test_mishap),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_in_turn),
        cmocka_unit_test(test_announced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
