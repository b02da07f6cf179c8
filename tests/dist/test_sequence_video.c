/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that split the tokens of videos, against one rank with all: attention along one axis of two
 * (ckpt_sequence_along), text before the tokens, numbers of tokens that do not divide, and losses
 * of whole predictions (ckpt_sequence_all); gradients, bits of the forward pass, all stages,
 * budgets and tiers.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_dist.h"
#include "dist/rank_threads.h"
#include "plan/one_search.h"
#include "unit/test_directory.h"

enum {
    MOST = 4,
    SAMPLES = 4, /* of a step */
    FRAMES = 11, /* at most */
    PLACES = 11, /* at most */
    TEXT = 3,
    WIDTH = 48,
    HEAD = 4, /* 12 heads; or 4, which do not divide among 3 ranks */
    WIDE_HEAD = 12,
    STEPS = 3
};

enum { INPUT, POSITION, TABLE, QKV, OUT, QUERY, KEYS, UP, DOWN, LAST, PROBE, PARAMS };

static const struct {
    const char *name;
    int64_t rows, columns;
} shapes[PARAMS] = {
    {"input", WIDTH, WIDTH},    {"position", PLACES, WIDTH},     {"table", 2, WIDTH},
    {"qkv", 3 * WIDTH, WIDTH},  {"out", WIDTH, WIDTH},           {"query", WIDTH, WIDTH},
    {"keys", 2 * WIDTH, WIDTH}, {"up", 2 * WIDTH, WIDTH},        {"down", WIDTH, 2 * WIDTH},
    {"last", WIDTH, WIDTH},     {"probe", FRAMES *PLACES, WIDTH}};

struct member {
    struct rank_thread as;
    struct ckpt_options options;
    enum { BLOCKS, JOINT } kind;
    int frames, places, head;
    bool causal;                   /* JOINT */
    bool probed;                   /* no products, whose bits depend on the number of rows */
    int zero, group, ranks, steps; /* group: ranks that split a sequence */
    int per_host;                  /* 0: all are on one */
    bool in_full; /* the information tells the smallest budget */
    ckpt_tensor param[PARAMS];
    /* results */
    float losses[STEPS];
    float *gradient[PARAMS], *value[PARAMS];
    struct ckpt_program_info info;
};

#include "dist/sequence_member.h"

/* ---- the model ------------------------------------------------------------------------------- */

static ckpt_tensor as(ckpt_tape *t, ckpt_tensor x, int ndim, const int64_t *shape)
{
    return ckpt_reshape(t, x, ndim, shape);
}

static ckpt_tensor product(const struct member *m, ckpt_tape *t, ckpt_tensor x, int k)
{
    return m->probed ? ckpt_affine(t, x, 1.5f, .1f) : ckpt_linear(t, x, m->param[k], CKPT_NONE);
}

/* The last axis as heads. */
static ckpt_tensor heads(const struct member *m, ckpt_tape *t, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    d.shape[d.ndim - 1] /= m->head;
    d.shape[d.ndim] = m->head;
    return as(t, x, d.ndim + 1, d.shape);
}

/* Queries, keys and values [..., H, D] of x. */
static void project(const struct member *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor part[3])
{
    if (m->probed) {
        for (int k = 0; k < 3; k++)
            part[k] = heads(m, t, ckpt_affine(t, x, 1 + .25f * (float)k, 0));
        return;
    }
    ckpt_tensor y = ckpt_linear(t, x, m->param[QKV], CKPT_NONE);
    struct ckpt_desc d = ckpt_desc_of(t, y);
    d.shape[d.ndim - 1] = 3;
    d.shape[d.ndim] = WIDTH;
    ckpt_split(t, as(t, y, d.ndim + 1, d.shape), d.ndim - 1, 3, part);
    for (int k = 0; k < 3; k++)
        part[k] = heads(m, t, ckpt_squeeze(t, part[k], d.ndim - 1));
}

static ckpt_tensor angles(const struct member *m, ckpt_tape *t, int64_t rows)
{
    float table[(TEXT + FRAMES * PLACES) * WIDE_HEAD], *at = table;
    for (int p = 0; p < rows; p++)
        for (int i = 0; i < m->head / 2; i++) {
            *at++ = (float)cos(p * pow(.3, i));
            *at++ = (float)sin(p * pow(.3, i));
        }
    return ckpt_constant(t, NULL, CKPT_F32, 3, (const int64_t[]){rows, m->head / 2, 2}, table);
}

/* x [B, T, S, C]; along the frames or the places. */
static ckpt_tensor attend(const struct member *m, ckpt_tape *t, ckpt_tensor x, bool temporal)
{
    static const int swap[] = {0, 2, 1, 3, 4};
    ckpt_tensor part[3];
    if (!temporal)
        x = ckpt_sequence_along(t, x, 1);
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    project(m, t, x, part);
    for (int k = 0; k < 3 && temporal; k++)
        part[k] = ckpt_permute(t, part[k], swap);
    const ckpt_tensor table = angles(m, t, m->frames);
    for (int k = 0; k < 2 && temporal; k++)
        part[k] = ckpt_rope(t, part[k], table, 2);
    ckpt_tensor a = ckpt_attention(t, part[0], part[1], part[2], CKPT_NONE, NULL);
    if (temporal)
        a = ckpt_permute(t, a, swap);
    return ckpt_sequence_along(t, product(m, t, as(t, a, d.ndim, d.shape), OUT), 2);
}

static ckpt_tensor look(const struct member *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor text,
                        ckpt_tensor mask)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    ckpt_tensor lens, kv[2];
    ckpt_tensor y = ckpt_pack(t, m->probed ? text : ckpt_linear(t, text, m->param[KEYS], CKPT_NONE),
                              mask, &lens);
    const int64_t rows = ckpt_desc_of(t, y).shape[0];
    if (m->probed)
        kv[0] = kv[1] = as(t, y, 3, (const int64_t[]){rows, WIDTH / m->head, m->head});
    else
        ckpt_split(t, as(t, y, 4, (const int64_t[]){rows, 2, WIDTH / m->head, m->head}), 1, 2, kv);
    for (int k = 0; k < 2 && !m->probed; k++)
        kv[k] = ckpt_squeeze(t, kv[k], 1);
    y = ckpt_cross_attention(t, heads(m, t, product(m, t, x, QUERY)), kv[0], kv[1], lens, .5f);
    return ckpt_add(t, x, as(t, y, d.ndim, d.shape));
}

static ckpt_tensor feed_forward(const struct member *m, ckpt_tape *t, ckpt_tensor x)
{
    if (m->probed)
        return ckpt_add(t, x, ckpt_gelu_tanh(t, x));
    ckpt_tensor y = ckpt_gelu_tanh(t, ckpt_linear(t, x, m->param[UP], CKPT_NONE));
    return ckpt_linear_add(t, y, m->param[DOWN], CKPT_NONE, x);
}

/* Rows of the table for noised frames and for others, [B, T, 1, C]. */
static ckpt_tensor rows_of(const struct member *m, ckpt_tape *t, ckpt_tensor noised)
{
    const int64_t one[] = {1, 1, 1, WIDTH}, shape[] = {-1, m->frames, 1, 1};
    ckpt_tensor a = as(t, ckpt_slice(t, m->param[TABLE], 0, 0, 1), 4, one);
    ckpt_tensor b = as(t, ckpt_slice(t, m->param[TABLE], 0, 1, 2), 4, one);
    return ckpt_where(t, as(t, noised, 4, shape), a, b);
}

static ckpt_tensor record_blocks(const struct member *m, ckpt_tape *t, const ckpt_tensor in[4])
{
    ckpt_tensor x = product(m, t, ckpt_sequence(t, in[0], 2), INPUT);
    ckpt_tensor position = ckpt_slice(t, m->param[POSITION], 0, 0, m->places);
    x = ckpt_add(t, x, ckpt_sequence(t, position, 0));
    ckpt_tensor row = rows_of(m, t, in[3]);
    for (int i = 0; i < 2; i++) {
        ckpt_tensor u = ckpt_layer_norm_modulate(t, x, row, row, 1e-5f);
        x = ckpt_gated_residual(t, x, row, attend(m, t, u, i));
        x = feed_forward(m, t, look(m, t, x, in[1], in[2]));
    }
    return x;
}

/* Text and video side by side, as one sequence; the last layer has no text. */
static ckpt_tensor record_joint(const struct member *m, ckpt_tape *t, const ckpt_tensor in[4])
{
    const int64_t tokens = (int64_t)m->frames * m->places, shape[] = {-1, tokens, WIDTH};
    const ckpt_tensor table = ckpt_sequence_after(t, angles(m, t, TEXT + tokens), 0, TEXT);
    ckpt_tensor text = product(m, t, in[1], INPUT), part[3];
    ckpt_tensor video = product(m, t, ckpt_sequence(t, as(t, in[0], 3, shape), 1), INPUT);
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
    spec.causal = m->causal;
    for (int i = 0; i < 2; i++) {
        ckpt_tensor both = ckpt_concat(t, 1, 2, (const ckpt_tensor[]){text, video});
        const int64_t all = ckpt_desc_of(t, both).shape[1];
        project(m, t, both, part);
        part[1] = ckpt_rope(t, part[1], table, 1);
        part[0] = ckpt_rope(t, part[0], table, 1);
        if (i)
            part[0] = ckpt_slice(t, part[0], 1, TEXT, all);
        ckpt_tensor a = ckpt_attention(t, part[0], part[1], part[2], CKPT_NONE, &spec);
        const struct ckpt_desc d = ckpt_desc_of(t, a);
        a = product(m, t, as(t, a, 3, (const int64_t[]){d.shape[0], d.shape[1], WIDTH}), OUT);
        if (!i) {
            text = feed_forward(m, t, ckpt_add(t, text, ckpt_slice(t, a, 1, 0, TEXT)));
            a = ckpt_slice(t, a, 1, TEXT, all);
        }
        video = feed_forward(m, t, ckpt_add(t, video, a));
    }
    return video;
}

/* The gradient of the probe is the result of the last layer, by powers of two. */
static ckpt_tensor probe(const struct member *m, ckpt_tape *t, ckpt_tensor y)
{
    ckpt_tensor p = ckpt_slice(t, m->param[PROBE], 0, 0, (int64_t)m->frames * m->places);
    p = as(t, p, 4, (const int64_t[]){1, m->frames, m->places, WIDTH});
    ckpt_tensor loss = ckpt_mean(t, ckpt_mul(t, y, p), CKPT_ALL_AXES);
    for (int k = 0; k < PROBE; k++) { /* ranks train all */
        ckpt_tensor unread = ckpt_mean(t, m->param[k], CKPT_ALL_AXES);
        loss = ckpt_add(t, loss, ckpt_affine(t, unread, 0, 0));
    }
    return loss;
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct member *m = user;
    const int64_t x[] = {batch, m->frames, m->places, WIDTH}, text[] = {batch, TEXT, WIDTH};
    const ckpt_tensor in[] = {
        ckpt_input(t, "x", CKPT_F32, 4, x), ckpt_input(t, "text", CKPT_F32, 3, text),
        ckpt_input(t, "mask", CKPT_I32, 2, text), ckpt_input(t, "noised", CKPT_I32, 2, x)};
    for (int k = 0; k < PARAMS; k++)
        ckpt_output_gradient(t, shapes[k].name, m->param[k]);
    ckpt_tensor y = m->kind == BLOCKS ? record_blocks(m, t, in) : record_joint(m, t, in);
    y = as(t, ckpt_sequence_all(t, product(m, t, y, LAST)), 4, x);
    if (m->probed)
        return probe(m, t, y);
    static const int channels[] = {0, 3, 1, 2};
    ckpt_tensor noise = ckpt_randn(t, CKPT_F32, 4, x); /* the numbers of one rank */
    ckpt_tensor pred = ckpt_permute(t, ckpt_add(t, y, noise), channels);
    ckpt_tensor loss = ckpt_mse(t, pred, ckpt_permute(t, in[0], channels), in[3]);
    return ckpt_add(t, loss, ckpt_affine(t, probe(m, t, y), .25f, 0));
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* The whole samples of this rank's group; samples have other numbers of words and noised frames. */
static int feed(const struct member *m, ckpt *c, ckpt_program *p, int step)
{
    const int64_t batch = batch_of(m), at = batch * ckpt_sample_group(c);
    const int64_t values = (int64_t)m->frames * m->places * WIDTH;
    float *x = calloc((size_t)(SAMPLES * values), sizeof *x), text[SAMPLES][TEXT][WIDTH];
    int32_t mask[SAMPLES][TEXT], noised[SAMPLES][FRAMES];
    ckpt_fill_normal(5, (uint64_t)step, 1, x, SAMPLES * values);
    ckpt_fill_normal(5, (uint64_t)step, 2, &text[0][0][0], SAMPLES * TEXT * WIDTH);
    for (int b = 0; b < SAMPLES; b++) {
        for (int i = 0; i < TEXT; i++)
            mask[b][i] = i <= b % TEXT;
        for (int i = 0; i < m->frames; i++)
            (&noised[0][0])[b * m->frames + i] = i >= b % m->frames;
    }
    int rc = ckpt_feed(p, "x", x + at * values, batch * values * 4);
    rc = rc ? rc : ckpt_feed(p, "text", text[at], batch * TEXT * WIDTH * 4);
    rc = rc || m->kind == JOINT ? rc : ckpt_feed(p, "mask", mask[at], batch * TEXT * 4);
    if (!rc && (m->kind == BLOCKS || !m->probed))
        rc = ckpt_feed(p, "noised", &noised[0][0] + at * m->frames, batch * m->frames * 4);
    free(x);
    return rc;
}

static int train(struct member *m, ckpt *c)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *p;
    for (int k = 0; k < PARAMS; k++)
        m->param[k] = ckpt_param(c, shapes[k].name, CKPT_F32, 2,
                                 (const int64_t[]){shapes[k].rows, shapes[k].columns},
                                 CKPT_NORMAL(.1f), true);
    adamw.lr = 1e-2f;
    adamw.weight_decay = 0;
    int rc = ckpt_compile(c, record, m, ckpt_adamw(c, &adamw), batch_of(m), &p);
    for (int s = 0; s < m->steps && !rc; s++) {
        rc = feed(m, c, p, s);
        if (!rc)
            rc = ckpt_step(p, &m->losses[s]);
    }
    if (!rc)
        rc = fetch(m, c, p);
    m->info = (struct ckpt_program_info)CKPT_PROGRAM_INFO_INIT;
    return rc ? rc : ckpt_program_info(p, &m->info);
}

/* ---- comparisons ----------------------------------------------------------------------------- */

static const struct member plain = {
    .options = CKPT_OPTIONS_INIT, .frames = 4, .places = 8, .head = HEAD, .steps = 1};

static struct member alone[1], ranks[MOST], others[MOST];

/* Ranks and those of a sequence. */
static const int splits[][2] = {{2, 2}, {4, 4}, {4, 2}, {1, 1}}, three[][2] = {{3, 3}};
enum { SPLITS = sizeof splits / sizeof *splits };

/* Frames and places that divide, one of them, none; the last without many in excess. */
static const int sizes[][2] = {{4, 8}, {3, 8}, {4, 11}, {3, 9}, {11, 11}};

/* Calls test for both models and all sizes. */
static void for_all(void (*test)(const struct member *what), bool probed)
{
    for (int kind = BLOCKS; kind <= JOINT; kind++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct member what = plain;
            what.kind = kind;
            what.probed = probed;
            what.frames = sizes[i][0];
            what.places = sizes[i][1];
            test(&what);
        }
}

static void compare_splits(const struct member *what, const int (*split)[2], int n_splits)
{
    run(alone, what, 1, 1, 0);
    for (int i = 0; i < n_splits; i++) {
        const int n = split[i][0];
        run(ranks, what, n, split[i][1], 3);
        sum_gradients(ranks, n);
        if (fabs((double)ranks[0].losses[0] / (double)alone->losses[0] - 1) > 1e-6)
            fail_msg("kind %d, %d x %d, %d ranks: loss %.9g, alone %.9g", what->kind, what->frames,
                     what->places, n, (double)ranks[0].losses[0], (double)alone->losses[0]);
        for (int k = 0; k < PARAMS; k++) {
            double d = distance(numel(k), ranks[0].gradient[k], alone->gradient[k]);
            if (d > 1e-6)
                fail_msg("kind %d, %d x %d, %d ranks: the gradient of %s differs by %g", what->kind,
                         what->frames, what->places, n, shapes[k].name, d);
        }
        release(ranks, n);
    }
    release(alone, 1);
}

static void compare_one_step(const struct member *what)
{
    compare_splits(what, splits, SPLITS);
}

static void test_gradients(void **state)
{
    (void)state;
    for_all(compare_one_step, false);
}

/* Keys of all ranks: the first tokens, which all ranks have, and those of a text. */
static void test_gathered_keys(void **state)
{
    struct member what = plain;
    (void)state;
    what.kind = JOINT;
    what.head = WIDE_HEAD;
    for (int causal = 0; causal < 2; causal++)
        for (what.places = 8; what.places <= 9; what.places++) {
            what.causal = causal;
            compare_splits(&what, three, 1);
        }
}

static void test_micro_steps(void **state)
{
    struct member what = plain;
    (void)state;
    what.options.micro_batch = 1;
    what.places = 11;
    compare_one_step(&what);
    what.kind = JOINT;
    compare_one_step(&what);
}

/* The bits of the last layer, of a group: without products all else is computed row by row. */
static void compare_bits(const struct member *what)
{
    run(alone, what, 1, 1, 0);
    for (int n = 2; n <= 4; n += 2) {
        run(ranks, what, n, n, 0);
        sum_gradients(ranks, n);
        const double d = distance(numel(PROBE), ranks[0].gradient[PROBE], alone->gradient[PROBE]);
        if (d > 0 || !(fabsf(alone->gradient[PROBE][0]) > 0))
            fail_msg("kind %d, %d x %d, %d ranks: the forward pass differs by %g", what->kind,
                     what->frames, what->places, n, d);
        release(ranks, n);
    }
    release(alone, 1);
}

static void test_forward_bits(void **state)
{
    (void)state;
    for_all(compare_bits, true);
}

/* One split has the same bits at every stage, under every budget and in every tier. */
static void test_stages_and_budgets(void **state)
{
    (void)state;
    for (int kind = BLOCKS; kind <= JOINT; kind++) {
        struct member what = plain;
        what.kind = kind;
        what.steps = STEPS;
        what.in_full = true;
        run(ranks, &what, 4, 2, 0);
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
        what.options.vram = ranks[0].info.min_budget - 4096;
        what.options.host = 1 << 20;
        run(others, &what, 4, 2, 3);
        expect_same(others, ranks, "a host tier");
        release(others, 4);
        char disk[sizeof dir + 8];
        snprintf(disk, sizeof disk, "%s:1M", dir);
        what.options.host = 0;
        what.options.nvme = disk;
        run(others, &what, 4, 2, 3);
        expect_same(others, ranks, "an NVMe tier");
        release(others, 4);
        release(ranks, 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_gathered_keys),
        cmocka_unit_test(test_micro_steps), cmocka_unit_test(test_forward_bits),
        cmocka_unit_test(test_stages_and_budgets)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
