/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --activations 8bit in whole steps: budgets, tiers, threads, micro-steps and resuming change no
 * bit, also if codes are recomputed; gradients are close to bf16's and a model learns; non-finite
 * values, tables, graphs, and files of other runs.  test_int8_tape tests which storages have codes,
 * test_int8 the conversions.  "make check-gpu" runs it on the GPU.
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
#include "modes.h"
#include "ops.h"
#include "plan/graph/graph_file.h"
#include "plan/one_search.h"

enum { WIDTH = MODES_WIDTH, ROWS = 32 };

/* ---- the same bits --------------------------------------------------------------------------- */

static struct ckpt_options narrow_options(void)
{
    struct ckpt_options o = modes_options();
    o.activations = "8bit";
    return o;
}

static void expect_budgets(int64_t micro, enum ckpt_dtype grad_dtype)
{
    struct ckpt_options o = narrow_options();
    o.micro_batch = micro;
    modes_expect_budgets(&o, grad_dtype);
}

static void test_budgets(void **state)
{
    (void)state;
    expect_budgets(0, CKPT_F32);
}

static void test_budgets_micro_steps(void **state)
{
    (void)state;
    expect_budgets(2, CKPT_BF16);
}

/* The purpose of the mode: the step without recomputation needs less memory. */
static void test_peak(void **state)
{
    struct ckpt_options o = narrow_options();
    struct tiny_result narrow, wide;
    (void)state;
    modes_train(&o, CKPT_F32, &narrow);
    o.activations = NULL;
    modes_train(&o, CKPT_F32, &wide);
    print_message("activations kept: %lld bytes, of bf16 %lld; peak %lld and %lld\n",
                  (long long)narrow.info.kept_bytes, (long long)wide.info.kept_bytes,
                  (long long)narrow.info.planned_peak, (long long)wide.info.planned_peak);
    assert_true(4 * narrow.info.kept_bytes < 3 * wide.info.kept_bytes);
    assert_true(narrow.info.planned_peak < wide.info.planned_peak);
    assert_false(tiny_same(&narrow, &wide));
    tiny_result_free(&narrow);
    tiny_result_free(&wide);
}

static struct small make(int64_t n_micro, const char *activations)
{
    struct small r = small_make(CKPT_BF16, WIDTH, n_micro, true);
    r.rows = ROWS;
    r.options.activations = activations;
    return r;
}

static const char path[] = "test_int8_steps.tmp.safetensors";

static void test_tiers(void **state)
{
    (void)state;
    struct small wide = make(1, "8bit"), narrow = make(3, "8bit");
    narrow.options.state = "8bit";
    modes_expect_tiers(wide);
    modes_expect_tiers(narrow);
}

/* ---- accuracy -------------------------------------------------------------------------------- */

/* Checks the cosine of all gradients, and the smallest cosine of rows of WIDTH elements. */
static void compare_gradients(const struct tiny_result *a, const struct tiny_result *b)
{
    const int64_t w = WIDTH;
    const double all = modes_cosine(a->gradients, b->gradients, a->numel);
    double least = 1;
    for (int64_t at = 0; at + w <= a->numel; at += w) /* sizes are multiples of it, but for norms */
        least = fmin(least, modes_cosine(a->gradients + at, b->gradients + at, w));
    print_message("cosine of all gradients with those of bf16 %.6f, of rows of %d at least %.4f\n",
                  all, WIDTH, least);
    assert_true(all > 0.999 && all < 1);
    assert_true(least > 0.9);
}

static void test_gradients(void **state)
{
    struct ckpt_options o = narrow_options();
    struct ckpt_adamw a = tiny_adamw();
    struct tiny_result narrow, wide;
    char message[1024];
    (void)state;
    assert_int_equal(tiny_train(modes_tiny, &o, &a, 1, &narrow, message), 0);
    o.activations = NULL;
    assert_int_equal(tiny_train(modes_tiny, &o, &a, 1, &wide, message), 0);
    assert_true(narrow.loss[0] == wide.loss[0]);
    compare_gradients(&narrow, &wide);
    tiny_result_free(&narrow);
    tiny_result_free(&wide);
}

static void test_learning(void **state)
{
    (void)state;
    const double wide = modes_learn(make(1, "bf16"), 40), narrow = modes_learn(make(1, "8bit"), 40);
    print_message("loss %g with activations of bf16, %g of 8 bits\n", wide, narrow);
    assert_true(fabs(narrow - wide) < 0.02 * wide);
}

/* ---- non-finite values ----------------------------------------------------------------------- */

/* An infinite bias reaches the loss; the step fails as without codes. */
static void test_not_finite(void **state)
{
    struct small r = make(1, "8bit");
    float bias[WIDTH] = {0};
    ckpt *c;
    ckpt_program *p;
    (void)state;
    bias[7] = INFINITY;
    small_open(&r, &c, &p);
    assert_int_equal(ckpt_param_set(c, r.param[4], CKPT_VALUE, bias, WIDTH), 0);
    small_feed(p, &r, 0);
    assert_int_equal(ckpt_step(p, NULL), CKPT_ENAN);
    print_message("%s\n", ckpt_error(c));
    assert_null(strstr(ckpt_error(c), "int8"));
    ckpt_close(c);
}

/* ---- reports and files ----------------------------------------------------------------------- */

static void print_table(struct small *r, char *table, size_t size)
{
    ckpt *c;
    ckpt_program *p;
    small_open(r, &c, &p);
    FILE *f = fmemopen(table, size, "w");
    ckpt_plan_print(p, f);
    fclose(f);
    ckpt_close(c);
}

static void test_table(void **state)
{
    char table[8192];
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct small r = make(1, k ? "8bit" : NULL);
        print_table(&r, table, sizeof table);
        assert_int_equal(strstr(table, "--activations 8bit") != NULL, k);
    }
    print_message("%s", table);
    assert_non_null(strstr(table, "linear_dw"));
    struct small r = make(1, "8bit");
    r.rows = 1; /* too few values a sample */
    print_table(&r, table, sizeof table);
    assert_non_null(strstr(table, "none  (--activations 8bit) 0 of the "));
}

/* The graph of "ckpt plan" has the codes as storages and ops. */
static void test_graph(void **state)
{
    struct small r = make(1, "8bit");
    struct graph *g;
    char file[64];
    ckpt *c;
    ckpt_program *p;
    int codes = 0, copies = 0;
    (void)state;
    small_path(file, sizeof file, "int8-graph");
    r.options.graph_out = file;
    r.options.plan_only = true;
    small_open(&r, &c, &p);
    assert_int_equal(graph_read(file, &g), 0);
    assert_int_equal(g->n_ops, p->graph->n_ops);
    for (int32_t i = 0; i < g->n_ops; i++) {
        codes += !strncmp(g->ops[i].name, "to_int8", 7);
        copies += !strncmp(g->ops[i].name, "from_int8", 9);
    }
    assert_true(codes > 4 && copies >= codes);
    for (int32_t i = 0; i < p->tape->n_ops; i++)
        codes -= p->tape->ops.data[i].def == &op_to_int8;
    assert_int_equal(codes, 0);
    graph_free(g);
    ckpt_close(c);
    unlink(file);
}

static bool allow_activations(void *user, const char *name, const char *was, const char *is)
{
    (void)user;
    return !strcmp(name, "ckpt.activations") || !was || !is;
}

/* A resumed run must use the activation format it began with, unless its program permits a change.
 */
static void test_resume(void **state)
{
    static const char *const modes[] = {NULL, "8bit"};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct small r = make(1, modes[k]);
        ckpt *c;
        ckpt_program *p;
        small_open(&r, &c, &p);
        small_train(&r, c, p, 0, 1);
        assert_int_equal(ckpt_save_state(c, path), 0);
        ckpt_close(c);
        r.options.activations = modes[!k];
        small_open(&r, &c, &p);
        assert_int_equal(ckpt_load_state(c, path), CKPT_EINVAL);
        assert_non_null(strstr(ckpt_error(c), k ? "ckpt.activations 8bit, this run has bf16"
                                                : "ckpt.activations bf16, this run has 8bit"));
        if (ckpt_load_state_changed(c, path, allow_activations, NULL))
            fail_msg("%s", ckpt_error(c));
        small_train(&r, c, p, 1, 2);
        ckpt_close(c);
        unlink(path);
    }
}

int main(int argc, char **argv)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budgets),    cmocka_unit_test(test_budgets_micro_steps),
        cmocka_unit_test(test_peak),       cmocka_unit_test(test_tiers),
        cmocka_unit_test(test_gradients),  cmocka_unit_test(test_learning),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_table),
        cmocka_unit_test(test_graph),      cmocka_unit_test(test_resume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
