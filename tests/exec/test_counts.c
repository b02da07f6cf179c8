/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts that the host computes: of labels that ops make of inputs, of one input for two means, in
 * programs without an optimizer, for labels out of range, and with recorders that do not take the
 * size of the second recording.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "context/context.h"
#include "exec/program.h"
#include "memory/device/team.h"

enum { BATCH = 6, PLACES = 8, WIDTH = 5, CLASSES = 7, IGNORED = 3 };

struct model {
    ckpt_tensor w;
    bool trains, refuses; /* refuses: micro-steps of a size other than `micro` */
    bool huge;            /* the weights of a mean have an infinite sum */
    int64_t batch, micro;
    int bad;      /* the place of a label out of range, or -1 */
    double value; /* of the loss */
    double mean;  /* of the output */
    int calls;
};

/* Means over labels that are a part of an input, over the same ones under a condition, and over one
 * of these conditions. */
static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    struct model *m = user;
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;
    m->calls++;
    if (m->refuses && n != m->micro) {
        ckpt_tape_fail(t, CKPT_EINVAL, "only micro-steps of %lld", (long long)m->micro);
        return CKPT_NONE;
    }
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){n, PLACES, WIDTH});
    ckpt_tensor token = ckpt_input(t, "token", CKPT_I32, 2, (int64_t[]){n, PLACES + 1});
    ckpt_tensor label = ckpt_slice(t, token, 1, 1, PLACES + 1);
    ckpt_tensor ignored = ckpt_full(t, IGNORED, CKPT_I32, 0, NULL);
    ckpt_tensor low = ckpt_lt(t, label, ckpt_full(t, 2, CKPT_I32, 0, NULL));
    ckpt_tensor logits = ckpt_linear(t, x, m->w, CKPT_NONE);
    spec.ignore_index = IGNORED;
    ckpt_tensor loss = ckpt_cross_entropy(t, logits, label, &spec);
    ckpt_tensor some = ckpt_cross_entropy(t, ckpt_affine(t, logits, 2, 0),
                                          ckpt_where(t, low, label, ignored), &spec);
    ckpt_tensor mean = ckpt_masked_mean(t, ckpt_mul(t, logits, logits),
                                        ckpt_reshape(t, low, 3, (int64_t[]){n, PLACES, 1}));
    ckpt_output(t, "mean", mean);
    loss = ckpt_add(t, loss, ckpt_affine(t, some, .1f, 0));
    loss = ckpt_add(t, loss, ckpt_affine(t, mean, .01f, 0));
    ckpt_tensor weight = ckpt_affine(t, ckpt_slice(t, x, 2, 0, 1), 3e38f, 0);
    if (m->huge)
        loss = ckpt_add(t, loss, ckpt_masked_mean(t, logits, ckpt_mul(t, weight, weight)));
    if (!m->trains)
        ckpt_output(t, "loss", loss);
    return loss;
}

static int feed(const struct model *m, ckpt_program *p)
{
    float x[BATCH * PLACES * WIDTH];
    int32_t token[BATCH * (PLACES + 1)];
    ckpt_fill_normal(3, 1, 1, x, BATCH * PLACES * WIDTH);
    for (int i = 0; i < BATCH * (PLACES + 1); i++)
        token[i] = i / (PLACES + 1) % 3 && i % 4 ? IGNORED : i * 5 % CLASSES;
    if (m->bad >= 0)
        token[m->bad] = CLASSES;
    int rc = ckpt_feed(p, "x", x, m->batch * PLACES * WIDTH * 4);
    return rc ? rc : ckpt_feed(p, "token", token, m->batch * (PLACES + 1) * 4);
}

/* One step.  Returns the code of the call that failed, with its sentence. */
static int run(struct model *m, char sentence[CKPT_MESSAGE])
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    float loss = 0, mean = 0;
    ckpt_program *p = NULL;
    ckpt *c;
    o.device = "cpu";
    o.verify = true;
    o.micro_batch = m->micro;
    assert_int_equal(ckpt_open(&c, &o), 0);
    m->w = ckpt_param(c, "w", CKPT_F32, 2, (int64_t[]){CLASSES, WIDTH}, CKPT_XAVIER, true);
    int rc = ckpt_compile(c, record, m, m->trains ? ckpt_sgd(c, &sgd) : NULL, m->batch, &p);
    rc = rc ? rc : feed(m, p);
    rc = rc ? rc : ckpt_step(p, &loss);
    rc = rc ? rc : ckpt_fetch(p, "mean", &mean, sizeof mean);
    if (!rc && !m->trains)
        rc = ckpt_fetch(p, "loss", &loss, sizeof loss);
    snprintf(sentence, CKPT_MESSAGE, "%s", rc ? ckpt_error(c) : "");
    m->value = (double)loss;
    m->mean = (double)mean;
    ckpt_close(c);
    return rc;
}

static struct model try(bool trains, int64_t micro, bool refuses)
{
    char sentence[CKPT_MESSAGE];
    struct model m = {
        .trains = trains, .batch = BATCH, .micro = micro, .refuses = refuses, .bad = -1};
    if (run(&m, sentence))
        fail_msg("micro-steps of %lld: %s", (long long)micro, sentence);
    return m;
}

static void test_sizes(void **state)
{
    (void)state;
    const int team = 3; /* of this thread: the step has threads of its own */
    team_size(team);
    const struct model whole = try(true, BATCH, false);
    for (int trains = 0; trains < 2; trains++)
        for (int64_t micro = 1; micro <= BATCH; micro++) {
            if (BATCH % micro)
                continue;
            const struct model m = try(trains, micro, trains && micro > 1);
            assert_true(fabs(m.value - whole.value) < 2e-6 * whole.value);
            assert_true(fabs(m.mean - whole.mean) < 2e-6 * whole.mean);
        }
    assert_true(whole.value > 0 && whole.mean > 0);
    assert_int_equal(team_size(0), team);
}

static void test_one_sample(void **state)
{
    char sentence[CKPT_MESSAGE];
    struct model m = {.trains = true, .batch = 1, .micro = CKPT_AUTO, .bad = -1};
    (void)state;
    assert_int_equal(run(&m, sentence), 0);
    assert_true(m.value > 0);
}

static void test_bad_label(void **state)
{
    char sentence[CKPT_MESSAGE], micro[40];
    (void)state;
    for (int64_t size = 1; size <= BATCH; size += size == 3 ? 3 : 1) {
        struct model m = {
            .trains = true, .batch = BATCH, .micro = size, .bad = 4 * (PLACES + 1) + 2};
        assert_int_equal(run(&m, sentence), CKPT_EINDEX);
        snprintf(micro, sizeof micro, " of micro-step %d", (int)(4 / size + 1));
        if (!strstr(sentence, "cross_entropy") || !strstr(sentence, "index 7") ||
            (size < BATCH && !strstr(sentence, micro)))
            fail_msg("%s", sentence);
    }
}

static void test_infinite_count(void **state)
{
    char sentence[CKPT_MESSAGE];
    struct model m = {.trains = true, .batch = BATCH, .micro = 2, .bad = -1, .huge = true};
    (void)state;
    assert_int_equal(run(&m, sentence), CKPT_ENAN);
    if (!strstr(sentence, "from the count that a mean divides by"))
        fail_msg("%s", sentence);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes), cmocka_unit_test(test_one_sample),
        cmocka_unit_test(test_bad_label), cmocka_unit_test(test_infinite_count)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
