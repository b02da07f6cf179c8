/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Own times of ranks (ckpt_rank_seconds): a rank that sleeps in each step is the slow one, the
 * others, which wait for it, are not; all ranks get the same numbers, a request to save passes
 * beside them, and losses have the bits of a run without sleep.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "ckpt_dist.h"
#include "ckpt_op.h"
#include "ckpt_optim.h"
#include "dist/rank_threads.h"

enum { RANKS = 3, BATCH = 4, WIDTH = 24, STEPS = 10, SLOW = 1, ASKS = 2, ASKED = 4 };
enum { MILLISECONDS = 40 };

struct member {
    struct rank_thread as;
    int zero, saves, saved; /* requests to save; the step after which the last one came */
    ckpt_tensor w[2];
    float loss[STEPS];
    double seconds[RANKS];
};

static int sleep_ms; /* of rank SLOW in each step */

static int nap_shape(struct ckpt_call *call)
{
    call->out[0] = call->in[0];
    return CKPT_OK;
}

/* Micro-steps are numbered over all ranks. */
static int nap(const struct ckpt_kernel_args *a)
{
    if (a->run->micro / a->run->n_micro == SLOW)
        nanosleep(&(struct timespec){0, sleep_ms * 1000000L / a->run->n_micro}, NULL);
    memcpy(a->out[0].data, a->in[0].data, BATCH / (size_t)a->run->n_micro * WIDTH * sizeof(float));
    return 0;
}

static const struct ckpt_op_def nap_op = {
    .size = sizeof(struct ckpt_op_def), .name = "nap", .shape = nap_shape, .cpu = nap};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct member *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, WIDTH}), y;
    ckpt_record(t, &nap_op, 1, &x, 1, &y, NULL, 0);
    ckpt_tensor h = ckpt_gelu_tanh(t, ckpt_linear(t, y, m->w[0], CKPT_NONE));
    return ckpt_mse(t, ckpt_linear(t, h, m->w[1], CKPT_NONE), x, CKPT_NONE);
}

static int train(struct member *m, ckpt *c)
{
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    ckpt_program *p;
    float x[BATCH * WIDTH];
    for (int i = 0; i < 2; i++)
        m->w[i] = ckpt_param(c, i ? "second" : "first", CKPT_F32, 2, (int64_t[]){WIDTH, WIDTH},
                             CKPT_XAVIER, true);
    int rc = ckpt_compile(c, record, m, ckpt_adamw(c, &a), BATCH, &p);
    for (int s = 0; s < STEPS && !rc; s++) {
        ckpt_fill_normal(3, (uint64_t)(s * RANKS + m->as.rank), 1, x, BATCH * WIDTH);
        rc = ckpt_feed(p, "x", x, sizeof x);
        if (m->as.rank == ASKS && s == ASKED)
            ckpt_request_save(c);
        if (!rc)
            rc = ckpt_step(p, &m->loss[s]);
        if (ckpt_save_requested(c))
            m->saves++, m->saved = s;
    }
    return rc ? rc : ckpt_rank_seconds(c, m->seconds);
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.micro_batch = BATCH / 2;
    ckpt *c = rank_open(&m->as, o, m->zero, 0);
    if (!c)
        return NULL;
    m->as.rc = train(m, c);
    if (m->as.rc)
        print_message("rank %d: %s\n", m->as.rank, ckpt_error(c));
    ckpt_close(c);
    return NULL;
}

static void run(struct member *m, int zero, int ms)
{
    memset(m, 0, RANKS * sizeof *m);
    for (int r = 0; r < RANKS; r++)
        m[r].zero = zero;
    sleep_ms = ms;
    run_ranks(m, sizeof *m, RANKS, 0, member_main);
}

static void test_slow_rank(void **state)
{
    static struct member even[RANKS], slow[RANKS];
    (void)state;
    for (int zero = 0; zero <= 3; zero += 3) {
        run(even, zero, 0);
        run(slow, zero, MILLISECONDS);
        for (int r = 0; r < RANKS; r++) {
            assert_memory_equal(slow[r].loss, even[r].loss, sizeof even[r].loss);
            assert_memory_equal(slow[r].seconds, slow[0].seconds, sizeof slow[r].seconds);
            assert_int_equal(slow[r].saves, 1);
            assert_int_equal(slow[r].saved, ASKED);
            assert_true(even[0].seconds[r] > 0);
            if (r != SLOW && slow[0].seconds[r] * 1.2 > slow[0].seconds[SLOW])
                fail_msg("stage %d: rank %d computes %g s, the slow one %g s", zero, r,
                         slow[0].seconds[r], slow[0].seconds[SLOW]);
        }
        assert_true(slow[0].seconds[SLOW] > MILLISECONDS * 1e-3);
    }
}

/* The numbers alone: whose turn it is, what it tells, and what does not count. */
static void test_turns(void **state)
{
    struct pace w = {.here = {0}};
    (void)state;
    assert_int_equal(pace_open(&w, 2, 1), 0);
    assert_true(pace_send(&w, 1) == 0);
    pace_step(&w, 10, 12); /* two seconds, half a second of them waiting */
    w.here[0] = 500000000;
    pace_step(&w, 11, 15); /* submitted during the step before: three seconds */
    assert_true(pace_send(&w, 2) == 0);
    assert_true(pace_send(&w, 3) == 2.25f);
    assert_true(pace_send(&w, 5) == 0);
    pace_step(&w, 115, 116); /* after a save */
    assert_true(pace_send(&w, 7) == 1);
    pace_receive(&w, 6, 3);
    pace_receive(&w, 7, 1);
    pace_receive(&w, 8, 0); /* it had nothing to tell */
    assert_true(w.seconds[0] == 3 && w.seconds[1] == 1);
    pace_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_turns),
                                       cmocka_unit_test(test_slow_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
