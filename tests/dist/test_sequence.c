/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that split the tokens of their samples, against one rank with all tokens: bits of the
 * forward pass, losses and gradients, finite differences, all stages, budgets and tiers, states
 * that another split resumes, and the activations of a plan.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "dist/rank_threads.h"
#include "plan/one_search.h"
#include "unit/test_directory.h"

enum {
    MOST = 4,
    SAMPLES = 4, /* of a step */
    LENGTH = 24,
    WIDTH = 32,
    HEADS = 4,
    KEYS = 2, /* heads of k and v */
    HEAD = WIDTH / HEADS,
    CLASSES = 24,
    LAYERS = 2,
    STEPS = 4
};

enum { EMBEDDING, PLACES, NORM, QKV, OUT, UP, DOWN, HEAD_WEIGHT, PROBE, PARAMS };

static const struct {
    const char *name;
    int64_t rows, columns;
} shapes[PARAMS] = {{"embedding", CLASSES, WIDTH},
                    {"places", LENGTH, WIDTH},
                    {"norm", 1, WIDTH},
                    {"qkv", (HEADS + 2 * KEYS) * HEAD, WIDTH},
                    {"out", WIDTH, WIDTH},
                    {"up", 2 * WIDTH, WIDTH},
                    {"down", WIDTH, 2 * WIDTH},
                    {"head", CLASSES, WIDTH},
                    {"probe", LENGTH, WIDTH}};

struct member {
    struct rank_thread as;
    struct ckpt_options options;
    int zero, group, ranks; /* group: ranks that split a sequence */
    enum { WHOLE_LOSS, PROBED, MASKED } loss;
    enum { CAUSAL, WINDOW, SHORT, SINK, CAPPED, BIASED, RULES } rule; /* of attention */
    int per_host;   /* ranks of a host; 0: all are on one */
    bool overflows; /* a place of the last rank gets a value that overflows */
    bool packed;    /* samples begin in the middle of rows */
    bool astray;    /* every rank takes the first tokens */
    bool nudges;    /* finite differences instead of steps */
    int first, steps;
    const char *load, *save;
    bool in_full; /* the information tells the smallest budget */
    ckpt_tensor param[PARAMS];
    /* results */
    float losses[STEPS], nudged[PARAMS][2];
    float *gradient[PARAMS], *value[PARAMS];
    char sentence[512];
    struct ckpt_program_info info;
};

#include "dist/sequence_member.h"

/* ---- the model ------------------------------------------------------------------------------- */

static ckpt_tensor angles(ckpt_tape *t)
{
    float table[LENGTH][HEAD / 2][2];
    for (int p = 0; p < LENGTH; p++)
        for (int i = 0; i < HEAD / 2; i++) {
            table[p][i][0] = (float)cos(p * pow(.3, i));
            table[p][i][1] = (float)sin(p * pow(.3, i));
        }
    ckpt_tensor x =
        ckpt_constant(t, NULL, CKPT_F32, 3, (const int64_t[]){LENGTH, HEAD / 2, 2}, table);
    return ckpt_sequence(t, x, 0);
}

/* What is near counts more, of a head more than of the next. */
static ckpt_tensor nearness(ckpt_tape *t)
{
    float x[HEADS][LENGTH][LENGTH];
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < LENGTH; i++)
            for (int j = 0; j < LENGTH; j++)
                x[h][i][j] = -.1f * (float)abs(i - j) / (float)(h + 1);
    return ckpt_constant(t, NULL, CKPT_F32, 3, (const int64_t[]){HEADS, LENGTH, LENGTH}, x);
}

static void set_rule(const struct member *m, ckpt_tape *t, int64_t batch,
                     struct ckpt_attention_spec *spec)
{
    *spec = (struct ckpt_attention_spec)CKPT_ATTENTION_INIT;
    spec->causal = m->rule != BIASED;
    spec->window = m->rule == WINDOW || m->rule == SINK ? 5 : 0;
    spec->cap = m->rule == CAPPED ? 2 : 0;
    spec->bias = m->rule == BIASED ? nearness(t) : CKPT_NONE;
    if (m->rule == SHORT)
        spec->lengths = ckpt_input(t, "lengths", CKPT_I32, 1, &batch);
    if (m->rule == SINK)
        spec->sink = ckpt_constant(t, NULL, CKPT_F32, 1, (const int64_t[]){HEADS},
                                   (const float[HEADS]){.5f, 1, -1, 0});
}

/* Heads of q, k and v along axis 2, after each other. */
static ckpt_tensor attend(ckpt_tape *t, ckpt_tensor all, const struct ckpt_attention_spec *spec)
{
    const ckpt_tensor table = angles(t);
    ckpt_tensor q = ckpt_slice(t, all, 2, 0, HEADS), k = ckpt_slice(t, all, 2, HEADS, HEADS + KEYS);
    return ckpt_attention(t, ckpt_rope(t, q, table, 1), ckpt_rope_halves(t, k, table, 1),
                          ckpt_slice(t, all, 2, HEADS + KEYS, HEADS + 2 * KEYS), CKPT_NONE, spec);
}

static ckpt_tensor as_heads(ckpt_tape *t, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    d.shape[3] = HEAD;
    d.shape[2] /= HEAD;
    return ckpt_reshape(t, x, 4, d.shape);
}

static ckpt_tensor normed(const struct member *m, ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_rms_norm(t, x, ckpt_reshape(t, m->param[NORM], 1, (const int64_t[]){WIDTH}), 1e-5f);
}

static ckpt_tensor block(const struct member *m, ckpt_tape *t, ckpt_tensor x,
                         const struct ckpt_attention_spec *spec)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    ckpt_tensor all = as_heads(t, ckpt_linear(t, normed(m, t, x), m->param[QKV], CKPT_NONE));
    ckpt_tensor y = ckpt_reshape(t, attend(t, all, spec), 3, d.shape);
    x = ckpt_add(t, x, ckpt_linear(t, y, m->param[OUT], CKPT_NONE));
    y = ckpt_gelu_tanh(t, ckpt_linear(t, x, m->param[UP], CKPT_NONE));
    return ckpt_linear_add(t, y, m->param[DOWN], CKPT_NONE, x);
}

/* The same without products, whose bits may depend on the number of their rows. */
static ckpt_tensor block_without_products(const struct member *m, ckpt_tape *t, ckpt_tensor x,
                                          const struct ckpt_attention_spec *spec)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    ckpt_tensor y = as_heads(t, normed(m, t, x));
    y = attend(t, ckpt_concat(t, 2, 2, (const ckpt_tensor[]){y, ckpt_gelu_tanh(t, y)}), spec);
    return ckpt_add(t, x, ckpt_reshape(t, y, 3, d.shape));
}

/* A parameter of all places, for this rank's tokens of each sample. */
static ckpt_tensor of_places(ckpt_tape *t, ckpt_tensor x)
{
    x = ckpt_reshape(t, x, 3, (const int64_t[]){1, LENGTH, WIDTH});
    return ckpt_sequence(t, x, 1);
}

/* The gradient of the probe is the result of the last layer, times a power of two. */
static ckpt_tensor probed(const struct member *m, ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_mean(t, ckpt_mul(t, x, of_places(t, m->param[PROBE])), CKPT_ALL_AXES);
}

/* A mean of the squares of some tokens. */
static ckpt_tensor masked(const struct member *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor label)
{
    ckpt_tensor y = ckpt_mul(t, x, ckpt_add(t, x, of_places(t, m->param[PROBE])));
    return ckpt_masked_mean(t, y, ckpt_unsqueeze(t, label, 2));
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct member *m = user;
    const int64_t shape[] = {batch, LENGTH};
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;
    struct ckpt_attention_spec rule;
    ckpt_tensor tokens = ckpt_input(t, "tokens", CKPT_I32, 2, shape);
    ckpt_tensor label = ckpt_sequence(t, ckpt_input(t, "labels", CKPT_I32, 2, shape), 1);
    set_rule(m, t, batch, &rule);
    rule.first = m->packed ? ckpt_input(t, "first", CKPT_I32, 2, shape) : CKPT_NONE;
    ckpt_tensor x = ckpt_embedding(t, m->param[EMBEDDING], ckpt_sequence(t, tokens, 1), -1);
    x = ckpt_add(t, x, of_places(t, m->param[PLACES]));
    for (int i = 0; i < LAYERS; i++)
        x = m->loss == PROBED ? block_without_products(m, t, x, &rule) : block(m, t, x, &rule);
    for (int k = 0; k < PARAMS; k++)
        ckpt_output_gradient(t, shapes[k].name, m->param[k]);
    ckpt_tensor probe = probed(m, t, x);
    for (int k = NORM; k < PROBE && m->loss != WHOLE_LOSS; k++) { /* ranks train all of a block */
        ckpt_tensor unread = ckpt_mean(t, m->param[k], CKPT_ALL_AXES);
        probe = ckpt_add(t, probe, ckpt_affine(t, unread, 0, 0));
    }
    if (m->loss == PROBED)
        return probe;
    spec.ignore_index = 0;
    spec.chunk = 8;
    ckpt_tensor loss = m->loss == MASKED ? masked(m, t, x, label)
                                         : ckpt_linear_cross_entropy(t, x, m->param[HEAD_WEIGHT],
                                                                     CKPT_NONE, label, &spec);
    return ckpt_add(t, loss, ckpt_affine(t, probe, .25f, 0));
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* The whole samples of this rank's group; the labels of some tokens do not count, and how many
 * those are differs from rank to rank. */
static int feed(const struct member *m, ckpt *c, ckpt_program *p, int step)
{
    /* the last query of a sequence is at its last key */
    static const int32_t lengths[SAMPLES] = {LENGTH - 5, LENGTH, LENGTH - 11, 2 * LENGTH};
    int32_t tokens[SAMPLES][LENGTH], labels[SAMPLES][LENGTH], first[SAMPLES][LENGTH];
    const int64_t batch = batch_of(m), at = batch * ckpt_sample_group(c);
    const size_t bytes = (size_t)batch * sizeof tokens[0];
    float u[SAMPLES][LENGTH][3];
    ckpt_fill_uniform(5, (uint64_t)step, 1, &u[0][0][0], SAMPLES * LENGTH * 3);
    for (int b = 0; b < SAMPLES; b++)
        for (int i = 0; i < LENGTH; i++) {
            tokens[b][i] = (int32_t)(u[b][i][0] * CLASSES);
            labels[b][i] = u[b][i][2] * LENGTH < (float)i ? (int32_t)(u[b][i][1] * CLASSES) : 0;
            first[b][i] = i < 5 + b ? 0 : 5 + b;
        }
    int rc = ckpt_feed(p, "tokens", tokens[at], (int64_t)bytes);
    if (!rc)
        rc = ckpt_feed(p, "labels", labels[at], (int64_t)bytes);
    if (!rc && m->packed)
        rc = ckpt_feed(p, "first", first[at], (int64_t)bytes);
    if (!rc && m->rule == SHORT)
        rc = ckpt_feed(p, "lengths", lengths + at, batch * (int64_t)sizeof *lengths);
    return rc;
}

static void make(struct member *m, ckpt *c)
{
    for (int k = 0; k < PARAMS; k++) {
        const int64_t shape[] = {shapes[k].rows, shapes[k].columns};
        m->param[k] = ckpt_param(c, shapes[k].name, CKPT_F32, 2, shape,
                                 k == NORM ? CKPT_ONES : CKPT_NORMAL(.2f), true);
    }
}

#define NUDGE 1e-3f

/* The losses where a parameter is moved along a direction, and against it. */
static int nudge(struct member *m, ckpt *c, ckpt_program *p, int k)
{
    float *old = calloc((size_t)numel(k), sizeof *old), *to = calloc((size_t)numel(k), sizeof *to),
          *way = calloc((size_t)numel(k), sizeof *way);
    int rc = ckpt_param_get(c, m->param[k], CKPT_VALUE, old, numel(k));
    ckpt_fill_normal(11, (uint64_t)k, 1, way, numel(k));
    for (int side = 0; side < 2 && !rc; side++) {
        for (int64_t i = 0; i < numel(k); i++)
            to[i] = old[i] + (side ? -NUDGE : NUDGE) * way[i];
        rc = ckpt_param_set(c, m->param[k], CKPT_VALUE, to, numel(k));
        if (!rc)
            rc = feed(m, c, p, 0);
        if (!rc)
            rc = ckpt_step(p, &m->nudged[k][side]);
    }
    if (!rc)
        rc = ckpt_param_set(c, m->param[k], CKPT_VALUE, old, numel(k));
    free(old);
    free(to);
    free(way);
    return rc;
}

/* The step of all ranks ends, and each names the rank that has the token. */
static int overflow(struct member *m, ckpt *c, ckpt_program *p)
{
    float *places = calloc((size_t)numel(PLACES), sizeof *places);
    for (int64_t i = 0; i < numel(PLACES); i++)
        places[i] = i < numel(PLACES) - WIDTH ? .1f : 3e38f;
    int rc = ckpt_param_set(c, m->param[PLACES], CKPT_VALUE, places, numel(PLACES));
    free(places);
    if (!rc)
        rc = feed(m, c, p, 0);
    if (!rc)
        rc = ckpt_step(p, NULL);
    snprintf(m->sentence, sizeof m->sentence, "%s", ckpt_error(c));
    return rc == CKPT_ENAN ? 0 : CKPT_EINVAL;
}

static int train(struct member *m, ckpt *c)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *p;
    make(m, c);
    if (m->astray)
        c->ranks.sharing.sequence_place = 0;
    adamw.lr = m->nudges ? 0 : 1e-2f;
    adamw.weight_decay = 0;
    int rc = ckpt_compile(c, record, m, ckpt_adamw(c, &adamw), batch_of(m), &p);
    if (!rc && m->overflows)
        return overflow(m, c, p);
    if (!rc && m->load)
        rc = ckpt_load_state(c, m->load);
    for (int s = m->first; s < m->steps && !rc; s++) {
        rc = feed(m, c, p, s);
        if (!rc)
            rc = ckpt_step(p, &m->losses[s]);
    }
    if (!rc)
        rc = fetch(m, c, p);
    for (int k = 0; k < PARAMS && m->nudges && !rc; k++)
        rc = nudge(m, c, p, k);
    m->info = (struct ckpt_program_info)CKPT_PROGRAM_INFO_INIT;
    if (!rc)
        rc = ckpt_program_info(p, &m->info);
    return !rc && m->save ? ckpt_save_state(c, m->save) : rc;
}

/* ---- comparisons ----------------------------------------------------------------------------- */

static const struct member plain = {.options = CKPT_OPTIONS_INIT};

/* ---- tests ----------------------------------------------------------------------------------- */

static struct member alone[1], ranks[MOST], others[MOST];

/* Ranks, and those of a sequence; the heads do not divide among three. */
static const int splits[][2] = {{2, 2}, {4, 4}, {4, 2}, {3, 3}};
enum { SPLITS = sizeof splits / sizeof *splits };

static void compare_one_step(const struct member *what)
{
    run(alone, what, 1, 1, 0);
    for (int i = 0; i < SPLITS; i++) {
        const int n = splits[i][0];
        run(ranks, what, n, splits[i][1], 3);
        sum_gradients(ranks, n);
        if (fabs((double)ranks[0].losses[0] / (double)alone->losses[0] - 1) > 1e-6)
            fail_msg("rule %d, %d ranks: loss %.9g, alone %.9g", what->rule, n,
                     (double)ranks[0].losses[0], (double)alone->losses[0]);
        for (int k = 0; k < PARAMS; k++) {
            double d = distance(numel(k), ranks[0].gradient[k], alone->gradient[k]);
            if (d > 1e-6)
                fail_msg("rule %d, %d ranks: the gradient of %s differs by %g", what->rule, n,
                         shapes[k].name, d);
        }
        release(ranks, n);
    }
    release(alone, 1);
}

static void test_gradients(void **state)
{
    struct member what = plain;
    (void)state;
    what.steps = 1;
    compare_one_step(&what);
    what.packed = true;
    what.options.micro_batch = 1;
    compare_one_step(&what);
    what.loss = MASKED;
    compare_one_step(&what);
}

static void test_rules(void **state)
{
    struct member what = plain;
    (void)state;
    what.steps = 1;
    for (what.rule = WINDOW; what.rule < RULES; what.rule++)
        compare_one_step(&what);
}

/* Attention of a head reads the same rows, and all else but products is computed row by row.
 * Where heads do not divide, attention has products of fewer rows. */
static void test_forward_bits(void **state)
{
    struct member what = plain;
    (void)state;
    what.steps = 1;
    what.loss = PROBED;
    run(alone, &what, 1, 1, 0);
    for (int i = 0; i < SPLITS; i++) {
        run(ranks, &what, splits[i][0], splits[i][1], 0);
        sum_gradients(ranks, splits[i][0]);
        const double d = distance(numel(PROBE), ranks[0].gradient[PROBE], alone->gradient[PROBE]);
        const bool same = splits[i][0] == splits[i][1] && HEADS % splits[i][1] == 0;
        if (same ? d > 0 : d > 1e-6) /* sums of two groups have an order */
            fail_msg("%d ranks: the forward pass differs by %g", splits[i][0], d);
        release(ranks, splits[i][0]);
    }
    release(alone, 1);
}

static void test_finite_differences(void **state)
{
    struct member what = plain;
    float *way = calloc((size_t)CLASSES * 8 * WIDTH, sizeof *way);
    (void)state;
    what.steps = 1;
    what.nudges = true;
    run(ranks, &what, 4, 2, 3);
    sum_gradients(ranks, 4);
    for (int k = 0; k < PARAMS; k++) {
        double slope = 0, norm = 0;
        ckpt_fill_normal(11, (uint64_t)k, 1, way, numel(k));
        for (int64_t i = 0; i < numel(k); i++) {
            slope += (double)ranks[0].gradient[k][i] * (double)way[i];
            norm += pow((double)ranks[0].gradient[k][i], 2);
        }
        const double difference =
            ((double)ranks[0].nudged[k][0] - (double)ranks[0].nudged[k][1]) / (2. * (double)NUDGE);
        if (fabs(slope - difference) > 5e-3 * sqrt(norm) + 1e-3)
            fail_msg("%s: slope %g, finite difference %g", shapes[k].name, slope, difference);
    }
    release(ranks, 4);
    free(way);
}

static void test_planted_fault(void **state)
{
    struct member what = plain;
    (void)state;
    what.steps = 1;
    run(alone, &what, 1, 1, 0);
    what.astray = true;
    run(ranks, &what, 2, 2, 0);
    sum_gradients(ranks, 2);
    assert_true(fabs((double)ranks[0].losses[0] / (double)alone->losses[0] - 1) > 1e-3);
    assert_true(distance(numel(QKV), ranks[0].gradient[QKV], alone->gradient[QKV]) > 1e-2);
    release(ranks, 2);
    release(alone, 1);
}

static void expect_near(const struct member *a, const struct member *b, const char *what)
{
    for (int s = 0; s < STEPS; s++)
        if (fabs((double)a->losses[s] - (double)b->losses[s]) > 2e-6 * (double)b->losses[s])
            fail_msg("%s: loss %.9g of step %d, not %.9g", what, (double)a->losses[s], s + 1,
                     (double)b->losses[s]);
}

/* One split has the same bits at every stage, under every budget and in every tier. */
static void compare_stages(int n, int sequence)
{
    struct member what = plain;
    what.in_full = true;
    run(ranks, &what, n, sequence, 0);
    expect_near(ranks, alone, "stage 0");
    for (int zero = 1; zero <= 3; zero++) {
        run(others, &what, n, sequence, zero);
        expect_same(others, ranks, "a stage");
        what.options.vram = others[0].info.min_budget;
        assert_true(what.options.vram > 0);
        release(others, n);
        run(others, &what, n, sequence, zero);
        expect_same(others, ranks, "the smallest budget");
        release(others, n);
        what.options.vram = 0;
    }
    what.options.vram = ranks[0].info.min_budget - 4096;
    what.options.host = 1 << 20;
    run(others, &what, n, sequence, 3);
    expect_same(others, ranks, "a host tier");
    release(others, n);
    release(ranks, n);
}

static void test_stages_and_budgets(void **state)
{
    (void)state;
    run(alone, &plain, 1, 1, 0);
    compare_stages(4, 2);
    compare_stages(3, 3);
    release(alone, 1);
}

/* Two hosts with a copy of the model each, and a sequence on each host. */
static void test_hosts(void **state)
{
    struct member what = plain;
    (void)state;
    run(alone, &what, 1, 1, 0);
    what.per_host = 2;
    what.options.shard_over = "host";
    run(ranks, &what, 4, 2, 3);
    expect_near(ranks, alone, "two hosts");
    release(ranks, 4);
    run(ranks, &what, 4, 4, 3);
    expect_near(ranks, alone, "a sequence over two hosts");
    release(ranks, 4);
    release(alone, 1);
}

static void test_not_finite(void **state)
{
    struct member what = plain;
    (void)state;
    what.overflows = true;
    run(ranks, &what, 4, 4, 3);
    for (int r = 0; r < 4; r++)
        if (!strstr(ranks[r].sentence, " on rank 3; the weights"))
            fail_msg("rank %d: %s", r, ranks[r].sentence);
}

/* A state of one split continues with another, with one rank and with several. */
static void test_resume(void **state)
{
    static const int to[][2] = {{1, 1}, {2, 2}, {2, 1}, {4, 4}, {3, 3}};
    struct member what = plain;
    (void)state;
    run(alone, &what, 1, 1, 0);
    what.steps = STEPS / 2;
    what.save = path;
    run(ranks, &what, 4, 2, 3);
    release(ranks, 4);
    what = plain;
    what.load = path;
    what.first = STEPS / 2;
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        run(ranks, &what, to[i][0], to[i][1], 2);
        memcpy(ranks[0].losses, alone->losses, STEPS / 2 * sizeof(float));
        expect_near(ranks, alone, "a state of another split");
        release(ranks, to[i][0]);
    }
    release(alone, 1);
    assert_int_equal(ckpt_file_remove(path), 0); /* with its parts */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),     cmocka_unit_test(test_rules),
        cmocka_unit_test(test_forward_bits),  cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_planted_fault), cmocka_unit_test(test_stages_and_budgets),
        cmocka_unit_test(test_resume),        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_not_finite)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
