/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random values when several ranks share parameters: a sample gets the same values as with one rank
 * that trains all samples, at every stage.  Also messages between ranks, among them the origin of
 * a value that is not finite.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "dist/rank_threads.h"
#include "plan/one_search.h"

enum { RANKS = 2, BATCH = 6, WIDTH = 8, LAYERS = 3, STEPS = 2 };

struct member {
    struct rank_thread as;
    int zero;
    int64_t batch, micro;
    ckpt_tensor w[LAYERS];
    float noise[STEPS][RANKS * BATCH][WIDTH], kept[STEPS][RANKS * BATCH][WIDTH];
};

static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct member *m = user;
    const int64_t shape[] = {n, WIDTH};
    ckpt_tensor h = ckpt_input(t, "x", CKPT_F32, 2, shape), ones;
    for (int i = 0; i < LAYERS; i++)
        h = ckpt_dropout(t, ckpt_linear(t, h, m->w[i], CKPT_NONE), .3f);
    ones = ckpt_full(t, 1, CKPT_F32, 2, shape);
    ckpt_output(t, "kept", ckpt_dropout(t, ones, .5f));
    ckpt_tensor noise = ckpt_randn(t, CKPT_F32, 2, shape);
    ckpt_output(t, "noise", noise);
    h = ckpt_sub(t, h, noise);
    return ckpt_mean(t, ckpt_mul(t, h, h), 3);
}

static int step(struct member *m, ckpt_program *p, int s)
{
    static const float x[RANKS * BATCH][WIDTH];
    int64_t bytes = m->batch * (int64_t)sizeof x[0];
    int rc = ckpt_feed(p, "x", x, bytes);
    rc = rc ? rc : ckpt_step(p, NULL);
    rc = rc ? rc : ckpt_fetch(p, "noise", m->noise[s], bytes);
    return rc ? rc : ckpt_fetch(p, "kept", m->kept[s], bytes);
}

static void *train(void *arg)
{
    struct member *m = arg;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    ckpt_program *p;
    o.micro_batch = m->micro;
    ckpt *c = rank_open(&m->as, o, m->zero, 0);
    if (!c)
        return NULL;
    for (int i = 0; i < LAYERS; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        m->w[i] = ckpt_param(c, name, CKPT_F32, 2, (int64_t[]){WIDTH, WIDTH}, CKPT_XAVIER, true);
    }
    m->as.rc = ckpt_compile(c, record, m, ckpt_sgd(c, &sgd), m->batch, &p);
    for (int s = 0; s < STEPS && !m->as.rc; s++)
        m->as.rc = step(m, p, s);
    if (m->as.rc)
        print_message("rank %d: %s\n", m->as.rank, ckpt_error(c));
    ckpt_close(c);
    return NULL;
}

static struct member alone, ranks[RANKS];

static void check(int zero, int64_t micro)
{
    for (int r = 0; r < RANKS; r++)
        ranks[r] = (struct member){.zero = zero, .batch = BATCH, .micro = micro};
    run_ranks(ranks, sizeof ranks[0], RANKS, 0, train);
    for (int r = 0; r < RANKS; r++)
        for (int s = 0; s < STEPS; s++) {
            size_t bytes = BATCH * sizeof alone.kept[0][0];
            assert_memory_equal(ranks[r].kept[s], alone.kept[s][r * BATCH], bytes);
            assert_memory_equal(ranks[r].noise[s], alone.noise[s][r * BATCH], bytes);
        }
}

static void test_stages(void **state)
{
    (void)state;
    alone = (struct member){.batch = RANKS * BATCH};
    run_ranks(&alone, sizeof alone, 1, 0, train);
    assert_memory_not_equal(alone.noise[0], alone.noise[1], sizeof alone.noise[0]);
    for (int zero = 0; zero <= 3; zero++) {
        check(zero, 0);
        check(zero, 2);
    }
}

/* ---- what ranks tell each other -------------------------------------------------------------- */

enum { TEXT = 7 }; /* bytes: no whole number of words */

struct teller {
    struct rank_thread as;
    char all[3][TEXT];
};

static void *tell(void *arg)
{
    struct teller *m = arg;
    ckpt *c = rank_open(&m->as, (struct ckpt_options)CKPT_OPTIONS_INIT, 0, 0);
    char own[TEXT];
    if (!c)
        return NULL;
    memset(own, 'a' + m->as.rank, sizeof own);
    m->as.rc = ckpt_gather_ranks(c, own, sizeof own, m->all);
    if (!m->as.rc)
        m->as.rc = ckpt_gather_ranks(c, NULL, 0, NULL);
    if (!m->as.rc && (ckpt_gather_ranks(c, NULL, 4, own) != CKPT_EINVAL ||
                      ckpt_gather_ranks(c, own, 4, NULL) != CKPT_EINVAL))
        m->as.rc = CKPT_EINVAL;
    ckpt_close(c);
    return NULL;
}

static void test_gather(void **state)
{
    static struct teller tellers[3];
    (void)state;
    assert_int_equal(ckpt_gather_ranks(NULL, tellers, 4, tellers), CKPT_EINVAL);
    for (int n = 1; n <= 3; n++) {
        memset(tellers, 0, sizeof tellers);
        run_ranks(tellers, sizeof tellers[0], n, 0, tell);
        for (int r = 0; r < n; r++)
            assert_memory_equal(tellers[r].all, "aaaaaaabbbbbbbccccccc", (size_t)n * TEXT);
    }
}

/* ---- the rank where a step goes wrong -------------------------------------------------------- */

enum { ROWS = 5, GOOD_STEPS = 3, VALUES = LAYERS * WIDTH * WIDTH + ROWS * WIDTH };

/* What rank 1 is fed before its last step.  A step of HUGE_VALUE overflows in an op. */
enum mishap { NO_MISHAP, NAN_VALUE, HUGE_VALUE, WRONG_INDEX, MISHAPS };

struct victim {
    struct rank_thread as;
    enum mishap mishap;
    int zero;
    ckpt_tensor table, w[LAYERS];
    int code; /* of the step that goes wrong */
    char sentence[512];
    float values[VALUES];
};

static ckpt_tensor record_victim(ckpt_tape *t, int64_t n, void *user)
{
    const struct victim *m = user;
    ckpt_tensor h = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){n, WIDTH});
    h = ckpt_add(t, h, ckpt_embedding(t, m->table, ckpt_input(t, "row", CKPT_I32, 1, &n), -1));
    for (int i = 0; i < LAYERS; i++) {
        ckpt_label(t, "layer %d", i);
        h = ckpt_linear(t, ckpt_silu(t, h), m->w[i], CKPT_NONE);
    }
    ckpt_label(t, "end");
    return ckpt_mean(t, ckpt_mul(t, h, h), 3);
}

static int step_victim(struct victim *m, ckpt_program *p, enum mishap mishap)
{
    float x[BATCH * WIDTH];
    int32_t row[BATCH] = {0, 1, 2, 3, 4, 0};
    ckpt_fill_normal(3, (uint64_t)m->as.rank, 1, x, BATCH * WIDTH);
    if (mishap == NAN_VALUE || mishap == HUGE_VALUE)
        x[WIDTH * BATCH - 1] = mishap == NAN_VALUE ? NAN : 1e30f;
    row[1] += mishap == WRONG_INDEX ? ROWS : 0;
    int rc = ckpt_feed(p, "x", x, sizeof x);
    rc = rc ? rc : ckpt_feed(p, "row", row, sizeof row);
    return rc ? rc : ckpt_step(p, NULL);
}

static int make_victim(struct victim *m, ckpt *c, ckpt_program **p)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    m->table =
        ckpt_param(c, "table", CKPT_F32, 2, (int64_t[]){ROWS, WIDTH}, CKPT_NORMAL(1.f), true);
    for (int i = 0; i < LAYERS; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        m->w[i] = ckpt_param(c, name, CKPT_F32, 2, (int64_t[]){WIDTH, WIDTH}, CKPT_XAVIER, true);
    }
    return ckpt_compile(c, record_victim, m, ckpt_adamw(c, &adamw), BATCH, p);
}

static int read_victim(struct victim *m, ckpt *c)
{
    enum { TABLE = ROWS * WIDTH, LAYER = WIDTH * WIDTH };
    int rc = ckpt_param_get(c, m->table, CKPT_VALUE, m->values, TABLE);
    for (int i = 0; i < LAYERS && !rc; i++)
        rc = ckpt_param_get(c, m->w[i], CKPT_VALUE, m->values + TABLE + i * LAYER, LAYER);
    return rc;
}

/* A forward step fails on rank 1 alone: the others need not help it to find the origin. */
static int measure_victim(struct victim *m, ckpt *c)
{
    const bool wrong = m->as.rank == 1 && m->mishap == HUGE_VALUE;
    ckpt_program *p;
    int rc = ckpt_compile(c, record_victim, m, NULL, BATCH, &p);
    rc = rc ? rc : step_victim(m, p, wrong ? HUGE_VALUE : NO_MISHAP);
    return wrong && rc == CKPT_ENAN ? 0 : rc;
}

static void *suffer(void *arg)
{
    struct victim *m = arg;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt_program *p;
    o.micro_batch = BATCH / 2;
    ckpt *c = rank_open(&m->as, o, m->zero, 0);
    if (!c)
        return NULL;
    m->as.rc = make_victim(m, c, &p);
    for (int s = 0; s < GOOD_STEPS && !m->as.rc; s++) {
        if (s + 1 == GOOD_STEPS && m->mishap) {
            m->code = step_victim(m, p, m->as.rank == 1 ? m->mishap : NO_MISHAP);
            snprintf(m->sentence, sizeof m->sentence, "%s", ckpt_error(c));
        }
        m->as.rc = step_victim(m, p, NO_MISHAP);
    }
    if (!m->as.rc)
        m->as.rc = measure_victim(m, c);
    if (!m->as.rc)
        m->as.rc = read_victim(m, c);
    if (m->as.rc)
        print_message("rank %d: %s\n", m->as.rank, ckpt_error(c));
    ckpt_close(c);
    return NULL;
}

/* Every rank names the rank and the place, and the next step is as if nothing had happened. */
static void test_origin(void **state)
{
    static const char *const words[MISHAPS] = {
        [NAN_VALUE] = "comes from the input 'x' on rank 1; the weights",
        [HUGE_VALUE] = "comes from mul+sum in end (test_rank_random.c:",
        [WRONG_INDEX] = "comes from an index out of range on rank 1; the weights",
    };
    static struct victim good[3], bad[3];
    (void)state;
    for (int zero = 0; zero <= 3; zero++)
        for (int k = 0; k < MISHAPS; k++) {
            struct victim *m = k ? bad : good;
            for (int r = 0; r < 3; r++)
                m[r] = (struct victim){.mishap = (enum mishap)k, .zero = zero};
            run_ranks(m, sizeof m[0], 3, 0, suffer);
            for (int r = 0; r < 3 && k; r++) {
                bool index = k == WRONG_INDEX && r == 1;
                assert_int_equal(m[r].code, index ? CKPT_EINDEX : CKPT_ENAN);
                if (!strstr(m[r].sentence, index ? "index 6 at place 1" : words[k]) ||
                    (!index && !strstr(m[r].sentence, " on rank 1; the weights")))
                    fail_msg("--zero %d, rank %d: %s", zero, r, m[r].sentence);
                assert_memory_equal(m[r].values, good[r].values, sizeof good[r].values);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stages), cmocka_unit_test(test_gather),
                                       cmocka_unit_test(test_origin)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
