/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers that a program updates, over several ranks: all ranks have the same bits at every stage,
 * equal to the mean of the buffers that each rank would compute alone; a step that fails on one
 * rank changes none.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_nn.h"
#include "dist/rank_threads.h"

enum { RANKS = 2, BATCH = 6, WIDTH = 8, STEPS = 3, LAYERS = 40, MOST = LAYERS * 4 * WIDTH };

struct job {
    int ranks, zero, layers;
    int64_t micro;
    int nan_step; /* of the last rank */
};

struct member {
    struct rank_thread as;
    const struct job *job;
    struct ckpt_nn_batch_norm bn[LAYERS];
    struct ckpt_nn_linear fc;
    float buffers[MOST]; /* mean, then variance, of each layer */
};

static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct member *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){n, WIDTH});
    ckpt_tensor h = x;
    for (int i = 0; i < m->job->layers; i++)
        h = ckpt_nn_apply_batch_norm(t, &m->bn[i], h, true);
    h = ckpt_nn_apply_linear(t, &m->fc, h);
    return ckpt_mean(t, ckpt_mul(t, h, ckpt_add(t, h, x)), 3);
}

static ckpt_program *compile(struct member *m, ckpt *c)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ckpt_nn nn = CKPT_NN_INIT;
    ckpt_program *p;
    nn.context = c;
    for (int i = 0; i < m->job->layers; i++)
        m->bn[i] = ckpt_nn_batch_norm(&nn, WIDTH, 0.1f, 1e-5f, "layers.%d.bn", i);
    m->fc = ckpt_nn_linear(&nn, WIDTH, WIDTH, true, "fc");
    m->as.rc = ckpt_compile(c, record, m, ckpt_adamw(c, &adamw), BATCH, &p);
    return m->as.rc ? NULL : p;
}

static void collect(struct member *m, ckpt *c)
{
    for (int i = 0; i < m->job->layers && !m->as.rc; i++) {
        float *to = m->buffers + (int64_t)i * 2 * WIDTH;
        m->as.rc = ckpt_param_get(c, m->bn[i].running_mean, CKPT_VALUE, to, WIDTH);
        if (!m->as.rc)
            m->as.rc = ckpt_param_get(c, m->bn[i].running_var, CKPT_VALUE, to + WIDTH, WIDTH);
    }
}

/* Sample i of a step, counted over all ranks. */
static void fill(float *x, int step, int sample)
{
    for (int k = 0; k < WIDTH; k++)
        x[k] = sinf((float)(7 * step + 13 * sample + 5 * k)) * (float)(sample + 1);
}

static void *train(void *arg)
{
    struct member *m = arg;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    float x[BATCH][WIDTH];
    o.micro_batch = m->job->micro;
    ckpt *c = rank_open(&m->as, o, m->job->zero, 0);
    if (!c)
        return NULL;
    ckpt_program *p = compile(m, c);
    for (int s = 0; s < STEPS && !m->as.rc; s++) {
        for (int i = 0; i < BATCH; i++)
            fill(x[i], s, m->as.rank * BATCH + i);
        if (s + 1 == m->job->nan_step && m->as.rank == m->job->ranks - 1)
            x[0][0] = NAN;
        m->as.rc = ckpt_feed(p, "x", x, sizeof x);
        if (!m->as.rc)
            m->as.rc = ckpt_step(p, NULL);
        if (m->as.rc == CKPT_ENAN && s + 1 == m->job->nan_step) {
            m->as.rc = 0;
            break;
        }
    }
    collect(m, c);
    if (m->as.rc)
        print_message("rank %d: %s\n", m->as.rank, ckpt_error(c));
    ckpt_close(c);
    return NULL;
}

/* With first > 0, a single rank has the samples of that rank. */
static void run(const struct job *job, struct member *m, int first)
{
    for (int i = 0; i < job->ranks; i++)
        m[i] = (struct member){.job = job};
    run_ranks(m, sizeof *m, job->ranks, first, train);
}

static struct member alone[RANKS], first[RANKS], other[RANKS];

/* The input of a layer in front follows from its own samples alone. */
static void check_mean(int64_t micro)
{
    for (int r = 0; r < RANKS; r++)
        run(&(struct job){.ranks = 1, .layers = 1, .micro = micro}, &alone[r], r);
    run(&(struct job){.ranks = RANKS, .layers = 1, .micro = micro}, first, 0);
    assert_memory_equal(first[0].buffers, first[1].buffers, sizeof first[0].buffers);
    for (int k = 0; k < 2 * WIDTH; k++) {
        float mean = (alone[0].buffers[k] + alone[1].buffers[k]) / 2;
        assert_true(fabsf(first[0].buffers[k] - mean) <= 1e-5f * fmaxf(1, fabsf(mean)));
        assert_true(fabsf(alone[0].buffers[k] - mean) > 1e-4f);
    }
}

static void test_mean(void **state)
{
    (void)state;
    check_mean(BATCH);
    check_mean(2);
}

/* More buffers than one collective carries, at every stage. */
static void test_stages(void **state)
{
    struct job job = {.ranks = RANKS, .layers = LAYERS, .micro = 2};
    (void)state;
    run(&job, first, 0);
    for (job.zero = 1; job.zero <= 3; job.zero++) {
        run(&job, other, 0);
        for (int r = 0; r < RANKS; r++)
            assert_memory_equal(first[0].buffers, other[r].buffers, sizeof first[0].buffers);
    }
}

static void test_failure(void **state)
{
    struct job job = {.ranks = RANKS, .layers = 2, .micro = 2, .nan_step = 1};
    (void)state;
    run(&job, first, 0);
    for (int r = 0; r < RANKS; r++)
        for (int k = 0; k < 4 * WIDTH; k++) /* zeros and ones, as they begin */
            assert_true(first[r].buffers[k] == (float)(k / WIDTH % 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mean), cmocka_unit_test(test_stages),
                                       cmocka_unit_test(test_failure)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
