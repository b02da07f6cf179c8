/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that run different programs in one step: one trains on few long samples, the other on many
 * short ones, in turns.  The reference is one rank whose loss is the mean of both losses.  All
 * stages of sharding give the same bits, and a state goes on with them.  What cannot be mixed is
 * refused.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "dist/rank_threads.h"

enum { RANKS = 2, WIDTH = 8, LAYERS = 3, STEPS = 6, KINDS = 2, MOST = 12 };
enum { WEIGHTS = LAYERS * WIDTH * WIDTH, ROOM = MOST * WIDTH };

/* Samples and their rows, of each kind. */
static const int64_t batch_of[KINDS] = {2, 4}, rows_of[KINDS] = {6, 1};

struct job {
    int ranks, zero;
    int64_t micro;
    bool noisy, two, turned; /* two optimizers; the second program has its layers turned round */
    int from, to;            /* steps; from > 0: of the state */
    char state[64];
};

struct member {
    struct rank_thread as;
    const struct job *job;
    ckpt_tensor w[LAYERS];
    int kind;
    float loss[STEPS], values[WEIGHTS], noise[KINDS][ROOM];
    char sentence[CKPT_MESSAGE];
};

static ckpt_tensor loss_of(ckpt_tape *t, const struct member *m, int64_t n, int kind)
{
    const int64_t shape[] = {n, m->job->ranks < 2 ? batch_of[kind] * rows_of[kind] : rows_of[kind],
                             WIDTH};
    ckpt_tensor x = ckpt_input(t, kind ? "short" : "long", CKPT_F32, 3, shape), h = x;
    for (int i = 0; i < LAYERS; i++) {
        char label[16];
        snprintf(label, sizeof label, "block %d", i);
        ckpt_label(t, label);
        const int layer = m->job->turned && kind ? LAYERS - 1 - i : i;
        h = ckpt_gelu_tanh(t, ckpt_linear(t, h, m->w[layer], CKPT_NONE));
    }
    if (m->job->noisy) {
        ckpt_tensor noise = ckpt_randn(t, CKPT_F32, 3, shape);
        ckpt_output(t, "noise", noise);
        h = ckpt_add(t, h, noise);
    }
    h = ckpt_sub(t, h, x);
    return ckpt_mean(t, ckpt_mul(t, h, h), 7);
}

static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct member *m = user;
    return loss_of(t, m, n, m->kind);
}

static ckpt_tensor record_both(ckpt_tape *t, int64_t n, void *user)
{
    ckpt_tensor a = loss_of(t, user, n, 0), b = loss_of(t, user, n, 1);
    return ckpt_affine(t, ckpt_add(t, a, b), .5f, 0.f);
}

static int feed(ckpt_program *p, int step, int kind)
{
    float x[ROOM];
    const int64_t n = batch_of[kind] * rows_of[kind] * WIDTH;
    ckpt_fill_normal(5, (uint64_t)step, (uint32_t)kind, x, n);
    return ckpt_feed(p, kind ? "short" : "long", x, n * 4);
}

static int compile(struct member *m, ckpt *c, ckpt_program *p[KINDS])
{
    struct ckpt_adamw s = CKPT_ADAMW_INIT;
    s.lr = 1e-2f;
    ckpt_optimizer *o = ckpt_adamw(c, &s), *other = m->job->two ? ckpt_adamw(c, &s) : o;
    int rc = 0;
    if (m->job->ranks < 2)
        return ckpt_compile(c, record_both, m, o, 1, &p[0]);
    for (m->kind = 0; m->kind < KINDS && !rc; m->kind++)
        rc = ckpt_compile(c, record, m, m->kind ? other : o, batch_of[m->kind], &p[m->kind]);
    const ckpt_program *differs;
    rc = rc ? rc : ckpt_mix_programs(c, &differs);
    if (rc == CKPT_EINVAL)
        assert_ptr_equal(differs, p[1]);
    return rc || !m->job->from ? rc : ckpt_load_state(c, m->job->state);
}

/* Every rank has both kinds, in turns. */
static int step(struct member *m, ckpt_program *const p[KINDS], int s)
{
    const int kind = (s / 2 + m->as.rank) % KINDS;
    if (m->job->ranks < 2) {
        int rc = feed(p[0], s, 0);
        rc = rc ? rc : feed(p[0], s, 1);
        return rc ? rc : ckpt_step(p[0], &m->loss[s]);
    }
    int rc = feed(p[kind], s, kind);
    rc = rc ? rc : ckpt_step(p[kind], &m->loss[s]);
    if (!rc && m->job->noisy)
        rc = ckpt_fetch(p[kind], "noise", m->noise[kind],
                        batch_of[kind] * rows_of[kind] * WIDTH * 4);
    return rc;
}

static int work(struct member *m, ckpt *c)
{
    ckpt_program *p[KINDS] = {NULL};
    for (int i = 0; i < LAYERS; i++) {
        char name[24];
        snprintf(name, sizeof name, "block.%d.weight", i);
        m->w[i] = ckpt_param(c, name, CKPT_F32, 2, (int64_t[]){WIDTH, WIDTH}, CKPT_XAVIER, true);
    }
    int rc = compile(m, c, p);
    for (int s = m->job->from; s < m->job->to && !rc; s++)
        rc = step(m, p, s);
    if (!rc && m->job->to < STEPS)
        rc = ckpt_save_state(c, m->job->state);
    for (int i = 0; i < LAYERS && !rc; i++)
        rc = ckpt_param_get(c, m->w[i], CKPT_VALUE, m->values + i * WIDTH * WIDTH, WIDTH * WIDTH);
    return rc;
}

static void *train(void *arg)
{
    struct member *m = arg;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.micro_batch = m->job->micro;
    ckpt *c = rank_open(&m->as, o, m->job->zero, 0);
    if (!c)
        return NULL;
    int rc = work(m, c);
    snprintf(m->sentence, sizeof m->sentence, "%s", rc ? ckpt_error(c) : "");
    m->as.rc = rc == CKPT_EINVAL ? 0 : rc; /* a refusal, which the test reads */
    if (m->as.rc)
        print_message("rank %d: %s\n", m->as.rank, m->sentence);
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

static void test_stages(void **state)
{
    struct job one = {.ranks = 1, .to = STEPS}, job = {.ranks = RANKS, .to = STEPS};
    (void)state;
    run(&one, alone);
    run(&job, first);
    assert_string_equal(first[0].sentence, "");
    for (int s = 0; s < STEPS; s++) {
        assert_true(first[0].loss[s] == first[1].loss[s]);
        assert_true(fabsf(first[0].loss[s] - alone->loss[s]) <= 1e-5f);
    }
    for (int i = 0; i < WEIGHTS; i++)
        assert_true(fabsf(first[0].values[i] - alone->values[i]) <= 1e-4f);
    for (job.zero = 1; job.zero <= 3; job.zero++) {
        run(&job, other);
        for (int r = 0; r < RANKS; r++)
            assert_memory_equal(first[0].values, other[r].values, sizeof first[0].values);
    }
}

/* Two runs with a state between them have the bits of one, random values included. */
static void test_state(void **state)
{
    struct job job = {.ranks = RANKS, .zero = 2, .to = STEPS, .noisy = true};
    (void)state;
    snprintf(job.state, sizeof job.state, "mixed-%d.state", (int)getpid());
    run(&job, first);
    job.to = 3;
    run(&job, other);
    job.from = job.to, job.to = STEPS;
    run(&job, other);
    ckpt_file_remove(job.state);
    assert_string_equal(other[0].sentence, "");
    assert_memory_equal(first[0].values, other[0].values, sizeof first[0].values);
}

static bool has(const struct member *m, int kind, float value)
{
    for (int i = 0; i < batch_of[kind] * rows_of[kind] * WIDTH; i++)
        if (m->noise[kind][i] == value)
            return true;
    return false;
}

static void test_noise(void **state)
{
    struct job job = {.ranks = RANKS, .to = 1, .noisy = true};
    (void)state;
    snprintf(job.state, sizeof job.state, "mixed-%d.state", (int)getpid());
    run(&job, first);
    ckpt_file_remove(job.state);
    for (int i = 0; i < batch_of[1] * rows_of[1] * WIDTH; i++)
        assert_false(has(&first[0], 0, first[1].noise[1][i]));
}

static void check_refused(struct job job, const char *why)
{
    job.ranks = RANKS, job.to = STEPS;
    run(&job, first);
    assert_non_null(strstr(first[0].sentence, why));
    assert_string_equal(first[0].sentence, first[1].sentence);
}

static void test_refused(void **state)
{
    (void)state;
    check_refused((struct job){.two = true}, "program 2 trains with another optimizer");
    check_refused((struct job){.zero = 2, .turned = true},
                  "collective 1 of program 2 is all_gather");
    check_refused((struct job){.micro = 2}, "program 2 has 2 micro-steps and program 1 has 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stages), cmocka_unit_test(test_state),
                                       cmocka_unit_test(test_noise),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
