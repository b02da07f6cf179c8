/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two programs that train different parts of a model by optimizers of their own, over several
 * ranks: generator and critic, one frozen where the other is trained; a third program samples with
 * averaged weights.  All stages give the same bits, and the results of one rank.
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

enum { RANKS = 2, BATCH = 8, WIDTH = 16, LAYERS = 2, STEPS = 4, PARTS = 2 };
enum { MOST = PARTS * LAYERS * (WIDTH * WIDTH + WIDTH) + 2 * BATCH * WIDTH };

struct job {
    int ranks, zero;
    int64_t micro;
    enum ckpt_dtype dtype;
    bool late; /* the second optimizer is made after the first program */
};

struct member {
    struct rank_thread as;
    const struct job *job;
    struct ckpt_nn_linear part[PARTS][LAYERS]; /* generator, critic */
    float values[MOST];
    char sentence[CKPT_MESSAGE];
};

static ckpt_tensor apply(ckpt_tape *t, const struct ckpt_nn_linear *l, ckpt_tensor x)
{
    for (int i = 0; i < LAYERS; i++)
        x = ckpt_gelu_tanh(t, ckpt_nn_apply_linear(t, &l[i], x));
    return x;
}

static ckpt_tensor generate(ckpt_tape *t, const struct member *m, int64_t n)
{
    ckpt_tensor x = ckpt_input(t, "noise", CKPT_F32, 2, (int64_t[]){n, WIDTH});
    return apply(t, m->part[0], ckpt_cast(t, x, m->job->dtype));
}

static ckpt_tensor judge(ckpt_tape *t, const struct member *m, ckpt_tensor x, float want)
{
    ckpt_tensor y = ckpt_cast(t, apply(t, m->part[1], x), CKPT_F32);
    y = ckpt_affine(t, y, 1.f, -want);
    return ckpt_mean(t, ckpt_mul(t, y, y), CKPT_ALL_AXES);
}

static ckpt_tensor record_critic(ckpt_tape *t, int64_t n, void *user)
{
    ckpt_tensor x = ckpt_input(t, "real", CKPT_F32, 2, (int64_t[]){n, WIDTH});
    ckpt_tensor real = judge(t, user, ckpt_cast(t, x, ((struct member *)user)->job->dtype), 1.f);
    return ckpt_add(t, real, judge(t, user, generate(t, user, n), 0.f));
}

static ckpt_tensor record_generator(ckpt_tape *t, int64_t n, void *user)
{
    return judge(t, user, generate(t, user, n), 1.f);
}

static ckpt_tensor record_sample(ckpt_tape *t, int64_t n, void *user)
{
    ckpt_read_ema(t);
    ckpt_tensor y = ckpt_cast(t, generate(t, user, n), CKPT_F32);
    ckpt_output(t, "y", y);
    return y;
}

static ckpt_optimizer *adamw_without(ckpt *c, const char *frozen)
{
    struct ckpt_optimizer_group group = CKPT_OPTIMIZER_GROUP_INIT;
    struct ckpt_adamw s = CKPT_ADAMW_INIT;
    s.lr = 1e-2f, s.clip_norm = 0.5f, s.ema_decay = 0.9f;
    ckpt_optimizer *o = ckpt_adamw(c, &s);
    group.max_ndim = 1, group.weight_decay = 0.f; /* groups beside the frozen one */
    ckpt_optimizer_group(o, "*", &group);
    group = (struct ckpt_optimizer_group)CKPT_OPTIMIZER_GROUP_INIT;
    group.frozen = true;
    ckpt_optimizer_group(o, frozen, &group);
    return o;
}

static void fill(const struct member *m, int step, int stream, float *x)
{
    const int64_t n = BATCH * 2 / m->job->ranks * WIDTH;
    float all[2 * BATCH * WIDTH];
    ckpt_fill_normal(11, (uint64_t)step, (uint32_t)stream, all, 2 * BATCH * WIDTH);
    memcpy(x, all + m->as.rank * n, (size_t)n * sizeof *x);
}

static int step(struct member *m, ckpt_program *p, bool critic, int number)
{
    float x[2 * BATCH * WIDTH];
    const int64_t bytes = BATCH * 2 / m->job->ranks * WIDTH * 4;
    fill(m, number, 1, x);
    int rc = ckpt_feed(p, "noise", x, bytes);
    fill(m, number, 2, x);
    if (!rc && critic)
        rc = ckpt_feed(p, "real", x, bytes);
    return rc ? rc : ckpt_step(p, NULL);
}

/* All parameters, then the samples of this rank. */
static int collect(struct member *m, ckpt *c, ckpt_program *sample)
{
    float *to = m->values;
    int rc = step(m, sample, false, STEPS);
    for (int i = 0; i < ckpt_param_count(c) && !rc; i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        rc = ckpt_param_info(c, ckpt_param_at(c, i), &info);
        if (!rc)
            rc = ckpt_param_get(c, ckpt_param_at(c, i), i % 2 ? CKPT_VALUE : CKPT_EMA, to,
                                info.numel);
        to += info.numel;
    }
    return rc ? rc : ckpt_fetch(sample, "y", to, BATCH * 2 / m->job->ranks * WIDTH * 4);
}

static int work(struct member *m, ckpt *c)
{
    const int64_t batch = BATCH * 2 / m->job->ranks;
    struct ckpt_nn nn = CKPT_NN_INIT;
    ckpt_program *critic, *generator = NULL, *sample = NULL;
    nn.context = c, nn.dtype = m->job->dtype;
    for (int k = 0; k < PARTS; k++)
        for (int i = 0; i < LAYERS; i++)
            m->part[k][i] =
                ckpt_nn_linear(&nn, WIDTH, WIDTH, true, "%s.%d", k ? "critic" : "generator", i);
    ckpt_optimizer *of_critic = adamw_without(c, "generator.*");
    ckpt_optimizer *of_generator = m->job->late ? NULL : adamw_without(c, "critic.*");
    int rc = ckpt_compile(c, record_critic, m, of_critic, batch, &critic);
    if (!rc && m->job->late)
        of_generator = adamw_without(c, "critic.*");
    if (!rc)
        rc = ckpt_compile(c, record_generator, m, of_generator, batch, &generator);
    if (!rc)
        rc = ckpt_compile(c, record_sample, m, NULL, batch, &sample);
    for (int s = 0; s < STEPS && !rc; s++) {
        rc = step(m, critic, true, s);
        if (!rc)
            rc = step(m, generator, false, s);
    }
    return rc ? rc : collect(m, c, sample);
}

static void *train(void *arg)
{
    struct member *m = arg;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.micro_batch = m->job->micro;
    ckpt *c = rank_open(&m->as, o, m->job->zero, 0);
    if (!c)
        return NULL;
    m->as.rc = work(m, c);
    snprintf(m->sentence, sizeof m->sentence, "%s", m->as.rc ? ckpt_error(c) : "");
    if (m->job->late && m->as.rc == CKPT_EINVAL)
        m->as.rc = 0;
    else if (m->as.rc)
        print_message("rank %d: %s\n", m->as.rank, ckpt_error(c));
    ckpt_close(c);
    return NULL;
}

static struct member alone[1], first[RANKS], other[RANKS];

static void run(const struct job *job, struct member *m)
{
    for (int i = 0; i < job->ranks; i++)
        m[i] = (struct member){.job = job};
    run_ranks(m, sizeof *m, job->ranks, 0, train);
}

static void check_stages(enum ckpt_dtype dtype, int64_t micro)
{
    struct job one = {.ranks = 1, .dtype = dtype, .micro = 2 * micro};
    struct job job = {.ranks = RANKS, .dtype = dtype, .micro = micro};
    run(&one, alone);
    run(&job, first);
    for (int i = 0; i < MOST - 2 * BATCH * WIDTH; i++) {
        assert_true(first[0].values[i] == first[1].values[i]);
        if (dtype == CKPT_F32)
            assert_true(fabsf(first[0].values[i] - alone[0].values[i]) <= 1e-4f);
    }
    const int samples = MOST - 2 * BATCH * WIDTH, own = BATCH * WIDTH;
    for (int i = 0; i < 2 * own && dtype == CKPT_F32; i++)
        assert_true(fabsf(first[i / own].values[samples + i % own] -
                          alone[0].values[samples + i]) <= 1e-4f);
    for (job.zero = 1; job.zero <= 3; job.zero++) {
        run(&job, other);
        for (int r = 0; r < RANKS; r++)
            assert_memory_equal(first[r].values, other[r].values, sizeof first[r].values);
    }
}

static void test_stages(void **state)
{
    (void)state;
    check_stages(CKPT_F32, 0);
    check_stages(CKPT_F32, 4);
    check_stages(CKPT_BF16, 0);
}

static void test_late(void **state)
{
    (void)state;
    run(&(struct job){.ranks = RANKS, .zero = 2, .dtype = CKPT_F32, .late = true}, first);
    for (int r = 0; r < RANKS; r++)
        assert_non_null(strstr(first[r].sentence, "make every optimizer, and its groups, before"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stages), cmocka_unit_test(test_late)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
