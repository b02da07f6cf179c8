/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks that split sequences refuse, each with a sentence, and what their plans hold.  Nothing
 * runs: four ranks are planned by one process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_dist.h"
#include "plan/one_search.h"

enum { LENGTH = 16, WIDTH = 8 };

struct model {
    ckpt_tensor weight, bias, by_place;
    int64_t length;
};

/* Tokens [B, T, WIDTH] that depend on a parameter, split. */
static ckpt_tensor tokens(const struct model *m, ckpt_tape *t, int64_t batch)
{
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (const int64_t[]){batch, m->length, WIDTH});
    return ckpt_linear(t, ckpt_sequence(t, x, 1), m->weight, CKPT_NONE);
}

static ckpt_tensor mean(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_mean(t, x, CKPT_ALL_AXES);
}

/* ---- recorders that are right ---------------------------------------------------------------- */

static ckpt_tensor record_mean(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    return mean(t, ckpt_mul(t, x, x));
}

static ckpt_tensor record_error(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    return ckpt_mse(t, x, ckpt_stop_gradient(t, ckpt_silu(t, x)), CKPT_NONE);
}

/* Queries with tokens, and keys that all ranks have. */
static ckpt_tensor record_cross(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    ckpt_tensor text = ckpt_input(t, "text", CKPT_F32, 4, (const int64_t[]){d.shape[0], 3, 2, 4});
    x = ckpt_reshape(t, x, 4, (const int64_t[]){d.shape[0], d.shape[1], 2, 4});
    (void)m;
    return mean(t, ckpt_attention(t, x, text, text, CKPT_NONE, NULL));
}

/* ---- and those that are not ------------------------------------------------------------------ */

static ckpt_tensor record_whole_operand(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor part = ckpt_slice(t, m->by_place, 0, 0, ckpt_desc_of(t, x).shape[1]);
    return mean(t, ckpt_add(t, x, part));
}

static ckpt_tensor record_norm(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    const int64_t n = ckpt_desc_of(t, x).shape[1];
    (void)m;
    x = ckpt_contiguous(t, ckpt_permute(t, x, (const int[]){0, 2, 1}));
    return mean(t, ckpt_rms_norm(t, x, ckpt_full(t, 1, CKPT_F32, 1, &n), 1e-5f));
}

static ckpt_tensor record_softmax(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    return mean(t, ckpt_softmax(t, x, 1));
}

static ckpt_tensor record_fold(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    (void)m;
    return mean(t, ckpt_reshape(t, x, 2, (const int64_t[]){d.shape[0], d.shape[1] * WIDTH}));
}

static ckpt_tensor record_first(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    return mean(t, ckpt_slice(t, x, 1, 0, 1));
}

static ckpt_tensor record_pad(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    return mean(t, ckpt_pad(t, x, 1, 0, 1, CKPT_PAD_CONSTANT, 0));
}

static ckpt_tensor record_cumsum(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    return mean(t, ckpt_cumsum(t, x, 1));
}

static ckpt_tensor record_select(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    static const int32_t places[] = {0, 1};
    (void)m;
    return mean(t, ckpt_index_select(
                       t, x, 1, ckpt_constant(t, NULL, CKPT_I32, 1, (const int64_t[]){2}, places)));
}

static ckpt_tensor record_matmul(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    return mean(t, ckpt_matmul(t, x, x, false, true));
}

static ckpt_tensor record_dropout(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    return mean(t, ckpt_dropout(t, x, .1f));
}

static ckpt_tensor record_index(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    (void)m;
    return mean(t, ckpt_add(t, x, ckpt_iota(t, CKPT_F32, 3, d.shape, 1)));
}

static ckpt_tensor record_output(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    ckpt_output(t, "hidden", x);
    return mean(t, x);
}

static ckpt_tensor record_sum(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    return ckpt_reshape(t, ckpt_sum(t, x, CKPT_ALL_AXES), 0, NULL);
}

static ckpt_tensor record_square(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    x = mean(t, x);
    return ckpt_mul(t, x, x);
}

static ckpt_tensor record_root(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    return ckpt_sqrt(t, mean(t, ckpt_mul(t, x, x)));
}

static ckpt_tensor record_of_all(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    return mean(t, ckpt_sub(t, x, ckpt_mean(t, x, 1u << 1)));
}

static ckpt_tensor record_twice(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    return mean(t, ckpt_sequence(t, x, 1));
}

static ckpt_tensor record_no_axis(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    ckpt_sequence(t, m->by_place, 2);
    return mean(t, x);
}

static ckpt_tensor attend(ckpt_tape *t, ckpt_tensor x, int64_t heads, bool causal, bool whole)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
    ckpt_tensor k =
        ckpt_input(t, "k", CKPT_F32, 4, (const int64_t[]){d.shape[0], 4, heads, WIDTH / heads});
    x = ckpt_reshape(t, x, 4, (const int64_t[]){d.shape[0], d.shape[1], heads, WIDTH / heads});
    spec.causal = causal;
    return mean(t, ckpt_attention(t, x, whole ? k : x, whole ? k : x, CKPT_NONE, &spec));
}

static ckpt_tensor record_two_heads(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    return attend(t, x, 2, false, false);
}

static ckpt_tensor record_causal_cross(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    return attend(t, x, 4, true, true);
}

static ckpt_tensor record_rope(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    static const float angles[LENGTH][WIDTH / 2][2];
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    ckpt_tensor table =
        ckpt_constant(t, NULL, CKPT_F32, 3, (const int64_t[]){d.shape[1], WIDTH / 2, 2}, angles);
    (void)m;
    return mean(t, ckpt_rope(t, x, table, 1));
}

static ckpt_tensor record_unsplit_labels(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    (void)m;
    return ckpt_cross_entropy(t, x, ckpt_input(t, "label", CKPT_I32, 2, d.shape), NULL);
}

static ckpt_tensor record_own_count(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor one = ckpt_gt(t, x, ckpt_full(t, 0, CKPT_F32, 0, NULL));
    (void)m;
    one = ckpt_cast(t, one, CKPT_F32);
    return ckpt_reshape(
        t, ckpt_div(t, ckpt_sum(t, x, CKPT_ALL_AXES), ckpt_sum(t, one, CKPT_ALL_AXES)), 0, NULL);
}

/* ---- running them ---------------------------------------------------------------------------- */

typedef ckpt_tensor recorder(const struct model *m, ckpt_tape *t, ckpt_tensor x);

static const struct {
    recorder *record;
    const char *words[2]; /* of the sentence; none: it compiles */
} table[] = {
    {record_mean, {NULL}},
    {record_error, {NULL}},
    {record_cross, {NULL}},
    {record_two_heads, {NULL}},
    {record_whole_operand, {"add: the ranks split", "one is not split"}},
    {record_norm, {"rms_norm: the ranks split", "before the last"}},
    {record_softmax, {"softmax: the ranks split", "before the last"}},
    {record_fold, {"reshape: the ranks split", "joins the axis of tokens"}},
    {record_first, {"slice: the ranks split", "cuts the axis of tokens"}},
    {record_pad, {"pad: concat: the ranks split", "the same tokens, on another axis"}},
    {record_cumsum, {"cumsum: the ranks split", "may relate tokens"}},
    {record_select, {"index_select: the ranks split", "looked up by index"}},
    {record_matmul, {"matmul: the ranks split", "may relate tokens"}},
    {record_dropout, {"dropout: the ranks split", "random numbers"}},
    {record_index, {"add: the ranks split", "one is not split"}},
    {record_output, {"output 'hidden'", "the part of its tokens"}},
    {record_sum, {"--sequence 4: the loss", "is a sum over the tokens"}},
    {record_square, {"mul: the ranks split", "product of two sums"}},
    {record_root, {"sqrt: the ranks split", "not linear in a sum over tokens"}},
    {record_of_all, {"sub: the ranks split", "read a sum or mean over the tokens of one rank"}},
    {record_twice, {"sequence: its tokens are split already", "test_sequence_refused.c:"}},
    {record_no_axis, {"sequence: there is no axis 2", "test_sequence_refused.c:"}},
    {record_causal_cross, {"attention: the ranks split", "without causal"}},
    {record_rope, {"rope: the ranks split", "angles of the same tokens"}},
    {record_unsplit_labels, {"cross_entropy: the ranks split", "the same tokens"}},
    {record_own_count, {"div: the ranks split", "ckpt_masked_mean"}},
};

struct job {
    struct model model;
    recorder *record;
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct job *j = user;
    return j->record(&j->model, t, tokens(&j->model, t, batch));
}

static ckpt *open_planned(int64_t sequence, const char *ranks)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    o.device = "cpu";
    o.ranks = ranks;
    o.plan_only = true;
    o.sequence = sequence;
    o.verify = true;
    if (ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    return c;
}

static int compile(ckpt *c, struct job *j, ckpt_recorder how, ckpt_program **p)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    j->model.weight =
        ckpt_param(c, "weight", CKPT_F32, 2, (const int64_t[]){WIDTH, WIDTH}, CKPT_NORMAL(1), true);
    j->model.by_place =
        ckpt_param(c, "by_place", CKPT_F32, 2, (const int64_t[]){LENGTH, WIDTH}, CKPT_ZEROS, false);
    return ckpt_compile(c, how, j, ckpt_adamw(c, &adamw), 2, p);
}

static void expect(int64_t length, recorder *what, const char *const words[2])
{
    struct job j = {.model = {.length = length}, .record = what};
    ckpt *c = open_planned(4, "4");
    ckpt_program *p;
    const int rc = compile(c, &j, record, &p);
    if (!words[0] && rc)
        fail_msg("%s", ckpt_error(c));
    for (int i = 0; i < 2 && words[0]; i++)
        if (!rc || !strstr(ckpt_error(c), words[i]))
            fail_msg("\"%s\", without \"%s\"", ckpt_error(c), words[i]);
    ckpt_close(c);
}

static void test_recorders(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        expect(LENGTH, table[i].record, table[i].words);
}

static ckpt_tensor record_whole_mean(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    return mean(t, ckpt_sequence_all(t, x));
}

static ckpt_tensor record_odd_labels(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    const int64_t shape[] = {2, m->length};
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;
    spec.reduction = CKPT_REDUCE_SUM;
    return ckpt_cross_entropy(t, x, ckpt_sequence(t, ckpt_input(t, "l", CKPT_I32, 2, shape), 1),
                              &spec);
}

/* Two tokens of ten that all ranks have. */
static ckpt_tensor record_first_two(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    return mean(t, ckpt_mul(t, ckpt_slice(t, x, 1, 0, 2), ckpt_slice(t, x, 1, 0, 2)));
}

static ckpt_tensor record_rest(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    const int64_t size = ckpt_desc_of(t, x).shape[1];
    (void)m;
    return mean(t, ckpt_slice(t, x, 1, 2, size));
}

static ckpt_tensor record_third(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    (void)m;
    return mean(t, ckpt_slice(t, x, 1, 0, 3));
}

/* Both have tokens on axis 1, but not the same. */
static ckpt_tensor record_other_first(const struct model *m, ckpt_tape *t, ckpt_tensor x)
{
    const int64_t shape[] = {2, 1 + 12, WIDTH};
    ckpt_tensor y = ckpt_input(t, "y", CKPT_F32, 3, shape);
    (void)m;
    return mean(t, ckpt_sequence_all(t, ckpt_add(t, x, ckpt_sequence_after(t, y, 1, 1))));
}

static void test_lengths(void **state)
{
    static const char *const few[] = {"sequence: axis 1 of", "parts of two or more"};
    static const char *const sum[] = {"the ranks split", "of which all ranks have the first"};
    static const char *const compiles[] = {NULL, NULL};
    (void)state;
    expect(7, record_mean, few);
    expect(4, record_mean, few);
    expect(8, record_mean, compiles);
    expect(10, record_mean, sum);
    expect(10, record_odd_labels, sum);
    expect(10, record_whole_mean, compiles);
    expect(10, record_first_two, compiles);
    expect(10, record_rest, compiles);
    expect(10, record_third, (const char *const[]){"slice: the ranks split", "cuts the tokens"});
    expect(10, record_other_first, (const char *const[]){"add: the ranks split", "different axes"});
}

static ckpt_tensor record_unsplit(ckpt_tape *t, int64_t batch, void *user)
{
    const struct job *j = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (const int64_t[]){batch, WIDTH});
    return mean(t, ckpt_linear(t, x, j->model.weight, CKPT_NONE));
}

static void test_no_sequence(void **state)
{
    struct job j = {0};
    ckpt *c = open_planned(2, "4");
    ckpt_program *p;
    (void)state;
    assert_int_equal(ckpt_sample_groups(c), 2);
    assert_int_equal(ckpt_sample_group(c), 0);
    assert_int_equal(compile(c, &j, record_unsplit, &p), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "does not say which axis of its inputs"));
    ckpt_close(c);
    c = open_planned(1, "4");
    assert_int_equal(compile(c, &j, record_unsplit, &p), CKPT_OK);
    ckpt_close(c);
    assert_int_equal(ckpt_sample_groups(NULL), 1);
    assert_int_equal(ckpt_sample_group(NULL), 0);
    assert_int_equal(ckpt_sequence(NULL, CKPT_NONE, 0).id, 0);
}

static void test_groups(void **state)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    (void)state;
    o.device = "cpu";
    o.sequence = 3;
    assert_int_equal(ckpt_open(&c, &o), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(NULL), "--sequence 3: 1 rank does not divide into groups"));
    o.ranks = "4";
    o.plan_only = true;
    assert_int_equal(ckpt_open(&c, &o), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(NULL), "--sequence 3: 4 ranks do not divide into groups"));
}

/* ---- plans ----------------------------------------------------------------------------------- */

enum { LONG = 4096, LAYERS = 4, WIDE = 64 };

struct deep {
    ckpt_tensor qkv[LAYERS], out[LAYERS];
};

static ckpt_tensor record_deep(ckpt_tape *t, int64_t batch, void *user)
{
    const struct deep *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (const int64_t[]){batch, LONG, WIDE});
    x = ckpt_sequence(t, x, 1);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    for (int i = 0; i < LAYERS; i++) {
        ckpt_tensor part[3];
        const int64_t heads[] = {batch, d.shape[1], 3, 4, WIDE / 4};
        ckpt_split(t, ckpt_reshape(t, ckpt_linear(t, x, m->qkv[i], CKPT_NONE), 5, heads), 2, 3,
                   part);
        for (int k = 0; k < 3; k++)
            part[k] = ckpt_squeeze(t, part[k], 2);
        ckpt_tensor y = ckpt_attention(t, part[0], part[1], part[2], CKPT_NONE, NULL);
        x = ckpt_linear_add(t, ckpt_reshape(t, y, 3, d.shape), m->out[i], CKPT_NONE, x);
    }
    return mean(t, ckpt_mul(t, x, x));
}

static int64_t activations(int64_t sequence)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct deep m;
    ckpt *c = open_planned(sequence, "4");
    ckpt_program *p;
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "qkv.%d", i);
        m.qkv[i] =
            ckpt_param(c, name, CKPT_F32, 2, (const int64_t[]){3 * WIDE, WIDE}, CKPT_XAVIER, true);
        snprintf(name, sizeof name, "out.%d", i);
        m.out[i] =
            ckpt_param(c, name, CKPT_F32, 2, (const int64_t[]){WIDE, WIDE}, CKPT_XAVIER, true);
    }
    if (ckpt_compile(c, record_deep, &m, ckpt_adamw(c, &adamw), 1, &p))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(ckpt_program_info(p, &info), 0);
    print_message("sequence %d: %d KiB kept for the backward pass, %d KiB at the peak\n",
                  (int)sequence, (int)(info.kept_bytes >> 10),
                  (int)((info.planned_peak - info.parameter_bytes - info.optimizer_bytes) >> 10));
    ckpt_close(c);
    return info.kept_bytes;
}

/* A rank keeps an N-th of all, and of attention the result in both layouts, as heads of all tokens
 * and as tokens: one tensor of six more. */
static void test_activations(void **state)
{
    const int64_t all = activations(1), half = activations(2), quarter = activations(4);
    (void)state;
    assert_in_range(half * 100 / all, 50, 63);
    assert_in_range(quarter * 100 / all, 25, 35);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorders), cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_no_sequence), cmocka_unit_test(test_groups),
        cmocka_unit_test(test_activations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
