/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that split sequences or layers, each a struct member of its test: included behind that,
 * numel(k) and param_name(k) of its PARAMS parameters, and SPLIT, the option that is tested. */
#ifndef TESTS_DIST_SPLIT_MEMBER_H
#define TESTS_DIST_SPLIT_MEMBER_H

#include <math.h>
#include <string.h>

static int train(struct member *m, ckpt *c);

/* Samples of a step of a group. */
static int64_t batch_of(const struct member *m)
{
    return SAMPLES * m->group / m->ranks;
}

static void *work(void *arg)
{
    struct member *m = arg;
    m->options.SPLIT = m->group;
    ckpt *c = rank_open(&m->as, m->options, m->zero, m->per_host);
    if (!c)
        return NULL;
    ckpt_plan_in_full(c, m->in_full);
    m->as.rc = train(m, c);
    if (m->as.rc)
        print_message("rank %d: %s\n", m->as.rank, ckpt_error(c));
    ckpt_close(c);
    return NULL;
}

static void run(struct member *m, const struct member *what, int ranks, int group, int zero)
{
    for (int r = 0; r < ranks; r++) {
        m[r] = *what;
        m[r].ranks = ranks;
        m[r].group = group;
        m[r].zero = zero;
        m[r].steps = what->steps ? what->steps : STEPS;
    }
    run_ranks(m, sizeof *m, ranks, 0, work);
}

static double distance(int64_t n, const float *a, const float *b)
{
    double d = 0, of = 0;
    for (int64_t i = 0; i < n; i++) {
        d += pow((double)a[i] - (double)b[i], 2);
        of += pow((double)b[i], 2);
    }
    return sqrt(d / fmax(of, 1e-30));
}

static void expect_same(const struct member *a, const struct member *b, const char *what)
{
    if (memcmp(a->losses, b->losses, sizeof a->losses))
        fail_msg("%s: other losses", what);
    for (int k = 0; k < PARAMS; k++)
        if (memcmp(a->value[k], b->value[k], (size_t)numel(k) * 4))
            fail_msg("%s: another %s", what, param_name(k));
}

#endif
