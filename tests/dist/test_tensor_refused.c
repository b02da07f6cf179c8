/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks that have parts of layers refuse, each with a sentence.  Nothing runs: four ranks are
 * planned by one process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "plan/one_search.h"

enum { WIDTH = 16, INNER = 8 };

struct model {
    ckpt_tensor up, bias, down, whole, norm;
    ckpt_tensor (*record)(const struct model *m, ckpt_tape *t, ckpt_tensor x);
};

static ckpt_tensor linear(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w)
{
    return ckpt_linear(t, x, w, CKPT_NONE);
}

static ckpt_tensor up(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_linear(t, x, m->up, m->bias);
}

static ckpt_tensor mean(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_mean(t, x, CKPT_ALL_AXES);
}

/* ---- recorders that are right ---------------------------------------------------------------- */

static ckpt_tensor right(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    return mean(t, ckpt_mul(t, linear(t, ckpt_silu(t, up(m, t, x)), m->down), x));
}

/* Heads of an own width, each normalised by a weight that all share. */
static ckpt_tensor heads(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    ckpt_tensor y = ckpt_reshape(t, up(m, t, x), 3, (const int64_t[]){d.shape[0], 2, 2});
    y = ckpt_rms_norm(t, y, m->norm, 1e-5f);
    y = ckpt_reshape(t, ckpt_affine(t, y, 2, 0), 2, (const int64_t[]){d.shape[0], 4});
    return mean(t, linear(t, y, m->down));
}

/* ---- and those that are not ------------------------------------------------------------------ */

static ckpt_tensor norm(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    return mean(t,
                linear(t, ckpt_layer_norm(t, up(m, t, x), CKPT_NONE, CKPT_NONE, 1e-5f), m->down));
}

static ckpt_tensor dropout(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    return mean(t, linear(t, ckpt_dropout(t, up(m, t, x), .1f), m->down));
}

static ckpt_tensor whole_weight(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    return mean(
        t, linear(t, up(m, t, x),
                  ckpt_reshape(t, ckpt_slice(t, m->whole, 0, 0, 4), 2, (const int64_t[]){16, 4})));
}

static ckpt_tensor whole_operand(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    return mean(t, linear(t, ckpt_mul(t, up(m, t, x), ckpt_slice(t, x, 1, 0, 4)), m->down));
}

static ckpt_tensor no_bias(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor b = ckpt_slice(t, ckpt_reshape(t, m->whole, 1, (const int64_t[]){-1}), 0, 0, 4);
    return mean(t, linear(t, ckpt_linear(t, x, m->up, b), m->down));
}

static ckpt_tensor down_first(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    return mean(t, linear(t, ckpt_slice(t, x, 1, 0, 4), m->down));
}

static ckpt_tensor sum(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    return mean(t, up(m, t, x));
}

static ckpt_tensor cut(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    return mean(t, ckpt_slice(t, up(m, t, x), 1, 0, 2));
}

static ckpt_tensor joined(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    return mean(t, ckpt_reshape(t, up(m, t, x), 1, (const int64_t[]){-1}));
}

static ckpt_tensor output(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor y = up(m, t, x);
    ckpt_output(t, "hidden", y);
    return mean(t, linear(t, y, m->down));
}

static ckpt_tensor unsplit(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    return mean(t, linear(t, x, m->whole));
}

/* ---- compiling ------------------------------------------------------------------------------- */

static ckpt *open_planned(int64_t tensor)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    o.device = "cpu";
    o.ranks = "4";
    o.plan_only = true;
    o.tensor = tensor;
    assert_int_equal(ckpt_open(&c, &o), CKPT_OK);
    return c;
}

static ckpt_tensor param(ckpt *c, const char *name, int64_t rows, int64_t columns, bool trained)
{
    return ckpt_param(c, name, CKPT_F32, columns ? 2 : 1, (const int64_t[]){rows, columns},
                      CKPT_ONES, trained);
}

static void make(struct model *m, ckpt *c, bool trained)
{
    m->up = param(c, "up", INNER, WIDTH, trained);
    m->bias = param(c, "bias", INNER, 0, trained);
    m->down = param(c, "down", WIDTH, INNER, trained);
    m->whole = param(c, "whole", WIDTH, WIDTH, true);
    m->norm = param(c, "norm", 2, 0, true);
    assert_int_equal(ckpt_param_split(c, m->up, 0, 1), 0);
    assert_int_equal(ckpt_param_split(c, m->bias, 0, 1), 0);
    assert_int_equal(ckpt_param_split(c, m->down, 1, 1), 0);
}

/* All parameters take part in the loss: ranks train a block as one. */
static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct model *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (const int64_t[]){batch, WIDTH});
    ckpt_tensor loss = m->record(m, t, x);
    if (m->record == unsplit)
        return loss;
    loss = ckpt_add(t, loss, mean(t, linear(t, x, m->whole)));
    return ckpt_add(t, ckpt_add(t, loss, mean(t, m->norm)), right(m, t, x));
}

static int compile(ckpt *c, struct model *m, bool muon)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ckpt_adafactor other = CKPT_ADAFACTOR_INIT;
    ckpt_program *p;
    return ckpt_compile(c, record, m, muon ? ckpt_adafactor(c, &other) : ckpt_adamw(c, &adamw), 4,
                        &p);
}

static void expect(ckpt_tensor (*of)(const struct model *m, ckpt_tape *t, ckpt_tensor x),
                   const char *words)
{
    struct model m = {.record = of};
    ckpt *c = open_planned(2);
    make(&m, c, true);
    const int rc = compile(c, &m, false);
    if (!words)
        assert_int_equal(rc, CKPT_OK);
    else if (rc != CKPT_EINVAL || !strstr(ckpt_error(c), words) ||
             !strstr(ckpt_error(c), "--tensor 2"))
        fail_msg("%d instead of \"%s\": %s", rc, words, ckpt_error(c));
    ckpt_close(c);
}

static void test_recorders(void **state)
{
    (void)state;
    expect(right, NULL);
    expect(heads, NULL);
    expect(norm, "layer_norm: the ranks split");
    expect(dropout, "random numbers are drawn for whole layers");
    expect(whole_weight, "x is a part and the weight is whole");
    expect(whole_operand, "one operand is a part and one is whole");
    expect(no_bias, "the bias is not split");
    expect(down_first, "x is no part of that width");
    expect(sum, "it may relate parts");
    expect(cut, "it cuts the axis that is split");
    expect(joined, "it joins parts");
    expect(output, "its part of a layer");
    expect(unsplit, "no layer of this model is split");
}

static void test_parameters(void **state)
{
    struct model m = {.record = right};
    const int turned[] = {0, 2, 1};
    float values[WIDTH * WIDTH] = {0};
    ckpt *c = open_planned(2);
    (void)state;
    make(&m, c, false);
    assert_int_equal(compile(c, &m, false), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "so it must be trained"));
    ckpt_close(c);
    c = open_planned(4);
    make(&m, c, true);
    assert_int_equal(compile(c, &m, true), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "adafactor needs whole matrices"));
    assert_int_equal(ckpt_param_split(c, m.whole, 0, 1), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "a program was compiled before"));
    ckpt_close(c);
    c = open_planned(4);
    make(&m, c, true);
    ckpt_tensor odd = param(c, "odd", 6, 4, true);
    assert_int_equal(ckpt_param_split(c, odd, 0, 1), CKPT_ESHAPE);
    assert_non_null(strstr(ckpt_error(c), "1 block of 6, does not divide into 4 equal parts"));
    assert_int_equal(ckpt_param_split(c, odd, 0, 4), CKPT_EINVAL);
    assert_int_equal(ckpt_param_split(c, odd, 2, 1), CKPT_EINVAL);
    assert_int_equal(ckpt_param_split(c, CKPT_NONE, 0, 1), CKPT_ENAME);
    assert_int_equal(ckpt_param_split(c, m.up, 0, 1), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "it is split already"));
    ckpt_tensor third = param(c, "third", 6, 12, true);
    assert_int_equal(ckpt_param_split(c, third, 1, 1), 0);
    assert_int_equal(ckpt_param_file_axes(c, third, 3, (const int64_t[]){6, 2, 6}, turned), 0);
    assert_int_equal(ckpt_param_file_axes(c, third, 3, (const int64_t[]){6, 6, 2}, turned),
                     CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "which cut the axes of files"));
    assert_int_equal(ckpt_param_set(c, m.whole, CKPT_VALUE, values, WIDTH * WIDTH), 0);
    assert_int_equal(ckpt_param_split(c, m.whole, 0, 1), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "its values were set before"));
    ckpt_close(c);
    c = open_planned(1);
    make(&m, c, false); /* nothing is split */
    assert_int_equal(compile(c, &m, false), CKPT_OK);
    ckpt_close(c);
}

static void test_options(void **state)
{
    static const struct {
        int64_t tensor, sequence;
        const char *over, *state, *words;
    } all[] = {{3, 1, NULL, NULL, "--tensor 3: 4 ranks do not divide into groups of 3"},
               {2, 2, NULL, NULL, "--tensor 2 does not go together with --sequence"},
               {2, 1, "host", NULL, "--tensor 2 does not go together with --shard-over host"},
               {2, 1, NULL, "bf16", "--tensor 2 does not go together with --state"}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct ckpt_options o = CKPT_OPTIONS_INIT;
        ckpt *c;
        o.device = "cpu";
        o.ranks = "4";
        o.plan_only = true;
        o.tensor = all[i].tensor;
        o.sequence = all[i].sequence;
        o.shard_over = all[i].over;
        o.state = all[i].state;
        assert_int_equal(ckpt_open(&c, &o), CKPT_EINVAL);
        assert_non_null(strstr(ckpt_error(NULL), all[i].words));
    }
    ckpt *c = open_planned(2);
    assert_int_equal(ckpt_sample_groups(c), 2);
    ckpt_close(c);
}

/* Modules split what they make. */
static void test_modules(void **state)
{
    struct ckpt_nn nn = CKPT_NN_INIT;
    struct ckpt_nn_attention_spec spec = CKPT_NN_ATTENTION_INIT;
    struct model m = {.record = unsplit};
    ckpt *c = open_planned(4);
    (void)state;
    nn.context = c;
    spec.width = 18;
    spec.heads = 6;
    ckpt_nn_attention(&nn, &spec, "attention");
    assert_int_equal(compile(c, &m, false), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "6 heads do not divide into 4 equal parts (--tensor 4)"));
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorders), cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_options), cmocka_unit_test(test_modules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
