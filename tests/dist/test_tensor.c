/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that have parts of wide layers, against one rank with whole layers: losses and gradients,
 * values that are read whole, all stages and budgets, hosts, and states that another number of
 * ranks resumes.  Tiers: tests/model/test_lm_tensor.sh.
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

enum { MOST = 4, SAMPLES = 4, LENGTH = 8, WIDTH = 32, HEADS = 4, HEAD = WIDTH / HEADS };
enum { INNER = 48, CLASSES = 24, LAYERS = 3, STEPS = 5 };

enum { NORM, QKV, QKV_BIAS, OUT, OUT_BIAS, UP, UP_BIAS, DOWN, OF_LAYER };
enum { EMBEDDING = LAYERS * OF_LAYER, HEAD_WEIGHT, PARAMS };

struct shape {
    const char *name;
    int64_t rows, columns; /* columns 0: one axis */
    int axis, blocks;      /* that are split; blocks 0: none */
};

static const struct shape of_layer[OF_LAYER] = {
    {"norm", WIDTH, 0, 0, 0},    {"qkv", 3 * WIDTH, WIDTH, 0, 3}, {"qkv_bias", 3 * WIDTH, 0, 0, 3},
    {"out", WIDTH, WIDTH, 1, 1}, {"out_bias", WIDTH, 0, 0, 0},    {"up", INNER, WIDTH, 0, 1},
    {"up_bias", INNER, 0, 0, 1}, {"down", WIDTH, INNER, 1, 1}};

static struct shape shape_of(int k)
{
    static const struct shape whole[] = {{"embedding", CLASSES, WIDTH, 0, 0},
                                         {"head", CLASSES, WIDTH, 0, 0}};
    return k < EMBEDDING ? of_layer[k % OF_LAYER] : whole[k - EMBEDDING];
}

static const char *name_of(int k, char *text, size_t size)
{
    snprintf(text, size, k < EMBEDDING ? "h.%d.%s" : "%.0d%s", k < EMBEDDING ? k / OF_LAYER : 0,
             shape_of(k).name);
    return text;
}

struct member {
    struct rank_thread as;
    struct ckpt_options options;
    int zero, group, ranks; /* group: ranks that split layers */
    int per_host;           /* ranks of a host; 0: all are on one */
    int first, steps;
    bool turned; /* files have the columns of `down` first */
    bool ema;
    const char *load, *save;
    bool in_full; /* the information tells the smallest budget */
    ckpt_tensor param[PARAMS];
    /* results */
    float losses[STEPS];
    float *gradient[PARAMS], *before[PARAMS], *value[PARAMS];
    struct ckpt_program_info info;
};

static int64_t numel(int k)
{
    const struct shape s = shape_of(k);
    return s.rows * (s.columns ? s.columns : 1);
}

static const char *param_name(int k)
{
    return shape_of(k).name;
}

#define SPLIT tensor
#include "dist/split_member.h"

/* ---- the model ------------------------------------------------------------------------------- */

static ckpt_tensor attend(const ckpt_tensor *p, ckpt_tape *t, ckpt_tensor x)
{
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
    const int64_t batch = ckpt_desc_of(t, x).shape[0];
    ckpt_tensor q[3], all = ckpt_linear(t, x, p[QKV], p[QKV_BIAS]);
    spec.causal = true;
    ckpt_split(t, all, 2, 3, q);
    const int64_t heads = ckpt_desc_of(t, q[0]).shape[2] / HEAD;
    for (int i = 0; i < 3; i++)
        q[i] = ckpt_reshape(t, q[i], 4, (const int64_t[]){batch, LENGTH, heads, HEAD});
    x = ckpt_attention(t, q[0], q[1], q[2], CKPT_NONE, &spec);
    x = ckpt_reshape(t, x, 3, (const int64_t[]){batch, LENGTH, heads * HEAD});
    return ckpt_linear(t, x, p[OUT], p[OUT_BIAS]);
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct member *m = user;
    const int64_t shape[] = {batch, LENGTH};
    char name[32];
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;
    ckpt_tensor tokens = ckpt_input(t, "tokens", CKPT_I32, 2, shape);
    ckpt_tensor label = ckpt_input(t, "labels", CKPT_I32, 2, shape);
    ckpt_tensor x = ckpt_embedding(t, m->param[EMBEDDING], tokens, -1), y;
    for (int i = 0; i < LAYERS; i++) {
        const ckpt_tensor *p = &m->param[i * OF_LAYER];
        x = ckpt_add(t, x, attend(p, t, ckpt_rms_norm(t, x, p[NORM], 1e-5f)));
        y = ckpt_linear(t, x, p[UP], p[UP_BIAS]);
        x = ckpt_linear_add(t, ckpt_gelu_tanh(t, y), p[DOWN], CKPT_NONE, x);
    }
    for (int k = 0; k < PARAMS; k++)
        ckpt_output_gradient(t, name_of(k, name, sizeof name), m->param[k]);
    spec.ignore_index = 0;
    return ckpt_linear_cross_entropy(t, x, m->param[HEAD_WEIGHT], CKPT_NONE, label, &spec);
}

/* ---- one rank -------------------------------------------------------------------------------- */

static int feed(const struct member *m, ckpt *c, ckpt_program *p, int step)
{
    int32_t tokens[SAMPLES][LENGTH], labels[SAMPLES][LENGTH];
    const int64_t batch = batch_of(m), at = batch * ckpt_sample_group(c);
    const size_t bytes = (size_t)batch * sizeof tokens[0];
    float u[SAMPLES][LENGTH][2];
    ckpt_fill_uniform(5, (uint64_t)step, 1, &u[0][0][0], SAMPLES * LENGTH * 2);
    for (int b = 0; b < SAMPLES; b++)
        for (int i = 0; i < LENGTH; i++) {
            tokens[b][i] = (int32_t)(u[b][i][0] * CLASSES);
            labels[b][i] = (int32_t)(u[b][i][1] * CLASSES);
        }
    int rc = ckpt_feed(p, "tokens", tokens[at], (int64_t)bytes);
    return rc ? rc : ckpt_feed(p, "labels", labels[at], (int64_t)bytes);
}

static int make(struct member *m, ckpt *c)
{
    char name[32];
    int rc = 0;
    for (int k = 0; k < PARAMS && !rc; k++) {
        const struct shape s = shape_of(k);
        const bool norm = k < EMBEDDING && k % OF_LAYER == NORM;
        m->param[k] = ckpt_param(c, name_of(k, name, sizeof name), CKPT_F32, s.columns ? 2 : 1,
                                 (const int64_t[]){s.rows, s.columns},
                                 norm ? CKPT_ONES : CKPT_NORMAL(.2f), true);
        if (s.blocks)
            rc = ckpt_param_split(c, m->param[k], s.axis, s.blocks);
        if (!rc && m->turned && s.axis == 1)
            rc = ckpt_param_file_axes(c, m->param[k], 2, NULL, (const int[]){1, 0});
    }
    return rc;
}

static int read_values(struct member *m, ckpt *c, float **to)
{
    int rc = 0;
    for (int k = 0; k < PARAMS && !rc; k++) {
        to[k] = calloc((size_t)numel(k), sizeof(float));
        rc = ckpt_param_get(c, m->param[k], CKPT_VALUE, to[k], numel(k));
    }
    return rc;
}

static int fetch(struct member *m, ckpt_program *p)
{
    char name[32];
    int rc = 0;
    for (int k = 0; k < PARAMS && !rc; k++) {
        const int64_t n = numel(k) / (shape_of(k).blocks ? m->group : 1);
        m->gradient[k] = calloc((size_t)n, sizeof(float));
        rc = ckpt_fetch(p, name_of(k, name, sizeof name), m->gradient[k], n * 4);
    }
    return rc;
}

static int train(struct member *m, ckpt *c)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *p;
    int rc = make(m, c);
    adamw.lr = 1e-2f;
    adamw.clip_norm = .5f;
    adamw.eps = 1e-3f; /* the gradient of the bias of keys is 0 but for rounding */
    adamw.ema_decay = m->ema ? .9f : 0;
    if (!rc)
        rc = ckpt_compile(c, record, m, ckpt_adamw(c, &adamw), batch_of(m), &p);
    if (!rc && m->load)
        rc = ckpt_load_state(c, m->load);
    if (!rc)
        rc = read_values(m, c, m->before);
    for (int s = m->first; s < m->steps && !rc; s++) {
        rc = feed(m, c, p, s);
        if (!rc)
            rc = ckpt_step(p, &m->losses[s]);
    }
    if (!rc)
        rc = fetch(m, p);
    if (!rc)
        rc = read_values(m, c, m->value);
    m->info = (struct ckpt_program_info)CKPT_PROGRAM_INFO_INIT;
    if (!rc)
        rc = ckpt_program_info(p, &m->info);
    return !rc && m->save ? ckpt_save_state(c, m->save) : rc;
}

static void release(struct member *m, int ranks)
{
    for (int r = 0; r < ranks; r++)
        for (int k = 0; k < PARAMS; k++) {
            free(m[r].gradient[k]);
            free(m[r].before[k]);
            free(m[r].value[k]);
        }
}

/* ---- comparisons ----------------------------------------------------------------------------- */

static const struct member plain = {.options = CKPT_OPTIONS_INIT};
static struct member alone[1], ranks[MOST], others[MOST];

/* Element i of the part of a rank, as an element of the whole. */
static int64_t whole_of(int k, int tensor, int part, int64_t i)
{
    const struct shape s = shape_of(k);
    if (s.axis == 1) {
        const int64_t n = s.columns / tensor;
        return i / n * s.columns + part * n + i % n;
    }
    const int64_t n = numel(k) / s.blocks / tensor;
    return (i / n * tensor + part) * n + i % n;
}

/* The gradients of all ranks together, whole, as those of one. */
static float *sum_gradients(const struct member *m, int k)
{
    float *sum = calloc((size_t)numel(k), sizeof *sum);
    const bool split = shape_of(k).blocks > 0;
    const int64_t n = numel(k) / (split ? m->group : 1);
    for (int r = 0; r < m->ranks; r++)
        for (int64_t i = 0; i < n; i++)
            sum[split ? whole_of(k, m->group, r % m->group, i) : i] += m[r].gradient[k][i];
    return sum;
}

static void expect_near(const struct member *a, const struct member *b, const char *what)
{
    for (int s = 0; s < STEPS; s++)
        if (!(fabs((double)a->losses[s] / (double)b->losses[s] - 1) < 1e-6))
            fail_msg("%s: loss %.9g of step %d, not %.9g", what, (double)a->losses[s], s + 1,
                     (double)b->losses[s]);
    for (int k = 0; k < PARAMS; k++)
        if (!(distance(numel(k), a->value[k], b->value[k]) < 1e-6))
            fail_msg("%s: %s differs by %g", what, shape_of(k).name,
                     distance(numel(k), a->value[k], b->value[k]));
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const int splits[][2] = {{2, 2}, {4, 2}}; /* ranks and those of a layer */
enum { SPLITS = sizeof splits / sizeof *splits };

static void test_gradients(void **state)
{
    struct member what = plain;
    (void)state;
    what.steps = 1;
    run(alone, &what, 1, 1, 0);
    for (int i = 0; i < SPLITS; i++) {
        run(ranks, &what, splits[i][0], splits[i][1], 3);
        assert_true(fabs((double)ranks->losses[0] / (double)alone->losses[0] - 1) < 1e-6);
        for (int k = 0; k < PARAMS; k++) {
            float *sum = sum_gradients(ranks, k);
            const double d = distance(numel(k), sum, alone->gradient[k]);
            if (!(d < 1e-6))
                fail_msg("%d ranks: the gradient of %s differs by %g", splits[i][0],
                         shape_of(k).name, d);
            assert_memory_equal(ranks->before[k], alone->before[k], (size_t)numel(k) * 4);
            free(sum);
        }
        release(ranks, splits[i][0]);
    }
    release(alone, 1);
}

/* Steps are those of one rank.  One number of ranks has the same bits at every stage and under
 * every budget. */
static void test_stages_and_budgets(void **state)
{
    struct member what = plain;
    (void)state;
    what.ema = true;
    what.in_full = true;
    run(alone, &what, 1, 1, 0);
    run(ranks, &what, 4, 2, 0);
    expect_near(ranks, alone, "four ranks");
    for (int r = 1; r < 4; r++)
        expect_same(&ranks[r], ranks, "another rank");
    for (int zero = 1; zero <= 3; zero++) {
        run(others, &what, 4, 2, zero);
        expect_same(others, ranks, "a stage");
        what.options.vram = others[0].info.min_budget;
        assert_true(what.options.vram > 0);
        release(others, 4);
        run(others, &what, 4, 2, zero);
        expect_same(others, ranks, "the smallest budget");
        release(others, 4);
        what.options.vram = 0;
    }
    what.options.micro_batch = 1;
    run(others, &what, 4, 2, 2);
    expect_near(others, alone, "micro-steps");
    release(others, 4);
    what.options.micro_batch = 0;
    what.per_host = 2;
    run(others, &what, 4, 2, 3);
    expect_near(others, alone, "two hosts");
    release(others, 4);
    release(ranks, 4);
    run(ranks, &what, 2, 2, 3);
    expect_near(ranks, alone, "two ranks");
    release(ranks, 2);
    release(alone, 1);
}

/* A state of one number of ranks continues with another. */
static void resume(const struct member *as, int from, int tensor, int zero, const int (*to)[2],
                   int n)
{
    struct member what = *as;
    what.steps = 2;
    what.save = path;
    run(ranks, &what, from, tensor, zero);
    release(ranks, from);
    what = *as;
    what.load = path;
    what.first = 2;
    for (int i = 0; i < n; i++) {
        run(ranks, &what, to[i][0], to[i][1], 2 * (i % 2));
        memcpy(ranks[0].losses, alone->losses, 2 * sizeof(float));
        expect_near(ranks, alone, "a state of another number of ranks");
        release(ranks, to[i][0]);
    }
    assert_int_equal(ckpt_file_remove(path), 0); /* with its parts */
}

static void test_resume(void **state)
{
    static const int to[][2] = {{1, 1}, {2, 2}, {2, 1}, {4, 2}};
    struct member what = plain;
    (void)state;
    run(alone, &what, 1, 1, 0);
    for (int turned = 0; turned < 2; turned++) {
        what.turned = turned;
        resume(&what, 2, 2, 3, to, 4);
        resume(&what, 4, 2, 3 * turned, to, 1);
        resume(&what, 1, 1, 0, &to[1], 1);
    }
    release(alone, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients),
                                       cmocka_unit_test(test_stages_and_budgets),
                                       cmocka_unit_test(test_resume)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
