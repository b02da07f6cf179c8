/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that start with different values, or whose values diverge later: each difference is found,
 * and the error names the rank. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include "context/context.h"
#include "dist/comm_threads.h"
#include "dist/crew_checks.h"
#include "dist/ranks.h"
#include "unit/test_directory.h"

static char weights[96], states[2][96];

static void expect_words(struct crew crew, const char *first, const char *second)
{
    crew_expect_code(&crew, CKPT_ECOMM, (const char *[]){first, second, NULL});
}

/* Only rank 1, of two or three, differs from the others. */
static struct crew crew_of(int ranks, int zero)
{
    struct crew crew = crew_small(ranks, zero, 0);
    crew.faulty = 1;
    crew.steps = 6;
    return crew;
}

/* ---- before the first step ------------------------------------------------------------------- */

static void write_files(void)
{
    struct crew crew = crew_small(1, 0, 0);
    struct crew_result r;
    snprintf(weights, sizeof weights, "%s/weights", dir);
    crew.steps = 2;
    crew.save = weights;
    for (int i = 0; i < 2; i++) {
        snprintf(states[i], sizeof states[i], "%s/state%d", dir, i);
        crew.save_state = states[i];
        crew.adamw.lr *= (float)(i + 1);
        crew_expect_end(&crew, &r);
        crew_free(&r);
    }
}

static int remove_files(void **state)
{
    unlink(weights);
    unlink(states[0]);
    unlink(states[1]);
    return remove_dir(state);
}

static void test_loads_that_differ(void **state)
{
    (void)state;
    write_files();
    for (int zero = 0; zero <= 3; zero += 3) {
        struct crew crew = crew_of(2 + zero / 3, zero), other = crew;
        other.load = weights;
        crew.other = &other;
        expect_words(crew, "rank 1 ", " another value of '");
        other.load = NULL;
        crew.load_state = states[0];
        other.load_state = states[1];
        expect_words(crew, "rank 1 loaded another ", " than rank 0");
        other.load_state = NULL;
        expect_words(crew, "rank 1 ", "another number of steps than rank 0");
        crew.load_state = NULL;
        other.load_state = states[0];
        expect_words(crew, "rank 1 ", "another number of steps than rank 0");
    }
}

static void test_loads_alike(void **state)
{
    struct crew crew = crew_of(2, 3);
    struct crew_result r;
    (void)state;
    write_files();
    crew.load_state = states[0];
    crew_expect_end(&crew, &r);
    crew_free(&r);
}

/* ---- later ----------------------------------------------------------------------------------- */

/* After step 3, with checks every third step; and a difference found later, by its effects. */
static void test_bit_that_flipped(void **state)
{
    static const struct {
        int zero, slot;
        const char *what;
    } cases[] = {
        {0, SLOT_VALUE, "another value of '"},
        {0, SLOT_EXP_AVG, "another exp_avg of '"},
        {0, SLOT_EXP_AVG_SQ, "another exp_avg_sq of '"},
        {0, SLOT_EMA, "another moving average of '"},
        {1, SLOT_VALUE, "another value of '"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct crew crew = crew_of(i ? 2 : 3, cases[i].zero);
        crew.flip_step = 3;
        crew.flip_slot = cases[i].slot;
        crew.options.check_ranks = 3;
        expect_words(crew, "rank 1 reached step 4 with another ", cases[i].what);
        crew.options.check_ranks = 2;
        if (i == 0)
            expect_words(crew, "rank 1 reached step 5 with another ", cases[i].what);
    }
}

/* A share is compared with the same place on the other hosts. */
static void test_bit_of_a_share(void **state)
{
    struct crew crew = crew_of(4, 3);
    struct crew_result r;
    (void)state;
    crew.faulty = 3;
    crew.per_host = 2;
    crew.options.shard_over = "host";
    crew.options.check_ranks = 3;
    crew_expect_end(&crew, &r);
    crew_free(&r);
    crew.flip_step = 3;
    crew.flip_slot = SLOT_EXP_AVG;
    expect_words(crew, "rank 3 reached step 4 with another exp_avg of '", "than rank 1");
}

static void test_bf16_values(void **state)
{
    struct crew crew = crew_of(2, 0);
    (void)state;
    crew.model.dtype = CKPT_BF16;
    crew.options.check_ranks = 1;
    crew.flip_step = 2;
    crew.flip_slot = SLOT_MASTER;
    crew_expect_code(&crew, CKPT_ECOMM,
                     (const char *[]){"rank 1 reached step 3 with another fp32 value of '", NULL});
}

static void test_rates_that_differ(void **state)
{
    struct crew crew = crew_of(2, 3);
    (void)state;
    crew.options.check_ranks = 2;
    crew.lr_step = 1;
    expect_words(crew, "rank 1 reached step 1 with another learning rate (", ") than rank 0 (");
    crew.lr_step = 4;
    expect_words(crew, "rank 1 reached step 5 with another history of learning rates", "rank 0");
}

/* Without checks (0) the difference is not found; checks change no bit. */
static void test_checks_change_nothing(void **state)
{
    struct crew crew = crew_of(2, 0);
    struct crew_result with, without;
    (void)state;
    crew.steps = 0;
    crew.options.check_ranks = 1;
    crew_expect_end(&crew, &with);
    crew.options.check_ranks = 0;
    crew_expect_end(&crew, &without);
    assert_true(crew_same(&with, 2, &without, 2));
    crew_free(&with);
    crew_free(&without);
    crew.flip_step = 3;
    crew_expect_end(&crew, &without);
    crew_free(&without);
}

/* Gradients are finite but weights are not: no rank saves them, and each names one of them. */
static void test_broken_update(void **state)
{
    (void)state;
    for (int zero = 0; zero <= 3; zero += 3) {
        struct crew crew = crew_of(2, zero);
        crew.steps = 2;
        crew.adamw.lr = 3e38f;
        crew.adamw.weight_decay = 10.f;
        crew_expect_code(
            &crew, CKPT_ENAN,
            (const char *[]){"step 1: the update made '", "the weights are lost", NULL});
    }
}

/* A value that only one rank sets: only that rank has something to compare. */
static void test_set_by_one(void **state)
{
    struct crew crew = crew_of(2, 3);
    (void)state;
    crew.set_step = 2;
    expect_words(crew, "rank 1", "agreement");
}

/* ---- what one of them could not do ----------------------------------------------------------- */

enum { CODES = 3 };

struct coder {
    struct ckpt_options options;
    struct params params;
    struct ranks job;
    int own, rc;
    char text[CKPT_MESSAGE];
};

static void *run_coder(void *user)
{
    struct coder *k = user;
    if (k->own)
        error_set(k->own, "no bytes on rank %d", k->job.rank);
    k->rc = ranks_agree_code(&k->job, k->own);
    snprintf(k->text, sizeof k->text, "%s", error_get());
    comm_close(k->job.comm);
    return NULL;
}

/* Each rank says what it could not do itself; the others, what the first of these said. */
static void test_codes(void **state)
{
    struct coder k[CODES] = {{.own = 0}, {.own = CKPT_ENOMEM}, {.own = CKPT_EBUDGET}};
    struct comm *comms[CODES];
    pthread_t threads[CODES];
    (void)state;
    assert_int_equal(comm_open_threads(comms, CODES, 60), 0);
    for (int r = 0; r < CODES; r++) {
        k[r].job = (struct ranks){.options = &k[r].options,
                                  .params = &k[r].params,
                                  .sharing.ranks = CODES,
                                  .rank = r,
                                  .comm = comms[r]};
        assert_int_equal(pthread_create(&threads[r], NULL, run_coder, &k[r]), 0);
    }
    for (int r = 0; r < CODES; r++) {
        pthread_join(threads[r], NULL);
        assert_int_equal(k[r].rc, CKPT_ENOMEM);
    }
    assert_string_equal(k[0].text, "rank 1: no bytes on rank 1");
    assert_string_equal(k[1].text, "no bytes on rank 1");
    assert_string_equal(k[2].text, "no bytes on rank 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_loads_that_differ, make_fresh_dir, remove_files),
        cmocka_unit_test_setup_teardown(test_loads_alike, make_fresh_dir, remove_files),
        cmocka_unit_test(test_bit_that_flipped),
        cmocka_unit_test(test_bit_of_a_share),
        cmocka_unit_test(test_bf16_values),
        cmocka_unit_test(test_rates_that_differ),
        cmocka_unit_test(test_checks_change_nothing),
        cmocka_unit_test(test_broken_update),
        cmocka_unit_test(test_set_by_one),
        cmocka_unit_test(test_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
