/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives between ranks that are threads: results, faults, disagreements, and the end of a
 * communicator. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "dist/comm_threads.h"
#include "dist/exercise.h"

enum { MOST = 4 };

struct rank {
    struct comm *comm;
    int (*body)(struct rank *r);
    int rc, faulty;
    uint64_t digest;
    double seconds;
    char wrong[CKPT_MESSAGE];
};

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    double begin = clock_seconds();
    r->rc = r->body(r);
    r->seconds = clock_seconds() - begin;
    if (r->rc && !*r->wrong)
        snprintf(r->wrong, sizeof r->wrong, "%s", r->comm->reason);
    comm_close(r->comm);
    return NULL;
}

static void open_ranks(struct rank *ranks, int size, double deadline, int (*body)(struct rank *))
{
    struct comm *comms[MOST];
    assert_int_equal(comm_open_threads(comms, size, deadline), 0);
    memset(ranks, 0, (size_t)size * sizeof *ranks);
    for (int r = 0; r < size; r++) {
        ranks[r].comm = comms[r];
        ranks[r].body = body;
    }
}

static void run_ranks(struct rank *ranks, int size)
{
    pthread_t threads[MOST];
    for (int r = 0; r < size; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, rank_main, &ranks[r]), 0);
    for (int r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
}

/* ---- results --------------------------------------------------------------------------------- */

static int do_exercise(struct rank *r)
{
    return exercise(r->comm, &r->digest, r->wrong, sizeof r->wrong);
}

static int do_exercise_groups(struct rank *r)
{
    int rc = do_exercise(r);
    return rc ? rc : exercise_groups(r->comm, &r->digest, r->wrong, sizeof r->wrong);
}

static void test_results(void **state)
{
    (void)state;
    for (int size = 1; size <= MOST; size++) {
        struct rank ranks[MOST];
        open_ranks(ranks, size, 60, do_exercise_groups);
        run_ranks(ranks, size);
        for (int r = 0; r < size; r++) {
            assert_string_equal(ranks[r].wrong, "");
            assert_int_equal(ranks[r].rc, 0);
        }
    }
}

static void test_bad_calls(void **state)
{
    (void)state;
    struct comm *c = NULL;
    assert_int_equal(comm_open_threads(&c, 1, 60), 0);
    assert_int_equal(
        comm_run(c, &(struct comm_call){.kind = COMM_ALL_REDUCE, .dtype = CKPT_I32}, NULL),
        CKPT_EINVAL);
    assert_int_equal(comm_run(c, &(struct comm_call){.kind = COMM_BROADCAST, .root = 1}, NULL),
                     CKPT_EINVAL);
    assert_int_equal(comm_run(c, &(struct comm_call){.count = -1}, NULL), CKPT_EINVAL);
    comm_close(c);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Every rank must end with one sentence that contains all of these words. */
static void assert_all_say(const struct rank *ranks, int size, const char *const *words)
{
    for (int r = 0; r < size; r++) {
        if (r == ranks->faulty)
            continue;
        assert_int_equal(ranks[r].rc, CKPT_ECOMM);
        for (const char *const *w = words; *w; w++)
            if (!strstr(ranks[r].wrong, *w))
                fail_msg("rank %d says \"%s\", without \"%s\"", r, ranks[r].wrong, *w);
    }
}

/* Every rank adds what it was doing itself. */
static void assert_all_tell(const struct rank *ranks, int size)
{
    for (int r = 0; r < size; r++) {
        char own[32];
        snprintf(own, sizeof own, "; rank %d wa", r); /* "waited 1.0 s" or "was in no call" */
        if (r != ranks->faulty && !strstr(ranks[r].wrong, own))
            fail_msg("rank %d says \"%s\", without \"%s\"", r, ranks[r].wrong, own);
    }
}

static int64_t call_of(enum comm_kind kind)
{
    return (COMM_SHIFT + 1) * 3 + (int64_t)kind; /* with 1021 elements */
}

static void check_fault(int size, double deadline, struct comm_fault fault, int at,
                        const char *const *words)
{
    struct rank ranks[MOST];
    open_ranks(ranks, size, deadline, do_exercise);
    for (int r = 0; r < size; r++)
        ranks[r].faulty = fault.kind == COMM_FAULT_KILL ? at : -1;
    comm_inject(ranks[at].comm, &fault);
    run_ranks(ranks, size);
    assert_all_say(ranks, size, words);
    if (fault.kind == COMM_FAULT_DELAY || fault.kind == COMM_FAULT_KILL)
        assert_all_tell(ranks, size);
    for (int r = 0; r < size; r++)
        assert_true(ranks[r].seconds < 20);
}

static const char *const names[] = {
    "all_gather \"exercise\" of step 18", "reduce_scatter \"exercise\" of step 19",
    "all_reduce \"exercise\" of step 20", "broadcast \"exercise\" of step 21",
    "all_to_all \"exercise\" of step 22", "shift \"exercise\" of step 23"};

/* The next message reveals the loss, unless there is none. */
static void test_lost_message(void **state)
{
    (void)state;
    for (int size = 2; size <= MOST; size++)
        for (int kind = COMM_ALL_GATHER; kind <= COMM_SHIFT; kind++) {
            struct comm_fault f = {COMM_FAULT_DROP, call_of((enum comm_kind)kind), 0, 0};
            check_fault(size, 10, f, 1,
                        (const char *[]){"message of rank 1 to rank 0", names[kind], "lost", NULL});
        }
}

/* No message follows, but the sender has gone. */
static void test_lost_last_message(void **state)
{
    (void)state;
    struct rank ranks[MOST];
    open_ranks(ranks, 3, 10, do_exercise);
    comm_inject(ranks[1].comm, &(struct comm_fault){COMM_FAULT_DROP, exercise_calls(), 0, 0});
    run_ranks(ranks, 3);
    assert_int_equal(ranks[0].rc, CKPT_ECOMM);
    assert_non_null(strstr(ranks[0].wrong, "rank 1 is gone at barrier \"the end\""));
    assert_int_equal(ranks[1].rc, 0);
}

static void test_damaged_message(void **state)
{
    (void)state;
    for (int size = 2; size <= MOST; size++) /* a shift to rank 0 has data of the last rank */
        for (int kind = COMM_ALL_GATHER; kind <= (size == 2 ? COMM_SHIFT : COMM_ALL_TO_ALL);
             kind++) {
            struct comm_fault f = {COMM_FAULT_CORRUPT, call_of((enum comm_kind)kind), 0, 0};
            check_fault(
                size, 10, f, 1,
                (const char *[]){"data from rank 1 to rank 0", names[kind], "damaged", NULL});
        }
}

static void test_late_rank(void **state)
{
    static const char *const words[] = {"", "", "rank 1", "rank 2", "rank 3"};
    (void)state;
    for (int size = 2; size <= MOST; size++) {
        struct comm_fault f = {COMM_FAULT_DELAY, call_of(COMM_ALL_REDUCE), 0, 2.5};
        check_fault(size, 1, f, size - 1,
                    (const char *[]){
                        words[size], "did not reach", names[COMM_ALL_REDUCE],
                        " s in call 21, all_reduce \"exercise\" of step 20 with 4084 bytes; its "
                        "last complete call is 20, reduce_scatter \"exercise\" of step 19 with ",
                        NULL});
    }
}

static void test_short_delay_is_no_fault(void **state)
{
    (void)state;
    struct rank ranks[MOST];
    open_ranks(ranks, 3, 5, do_exercise);
    comm_inject(ranks[1].comm,
                &(struct comm_fault){COMM_FAULT_DELAY, call_of(COMM_ALL_GATHER), 0, 0.1});
    run_ranks(ranks, 3);
    for (int r = 0; r < 3; r++)
        assert_int_equal(ranks[r].rc, 0);
}

/* A rank closes its communicator when it ends, so the others need not wait. */
static void test_dead_rank(void **state)
{
    (void)state;
    for (int size = 2; size <= MOST; size++) {
        struct comm_fault f = {COMM_FAULT_KILL, call_of(COMM_REDUCE_SCATTER), 0, 0};
        check_fault(size, 10, f, 1,
                    (const char *[]){"rank 1 is gone", names[COMM_REDUCE_SCATTER],
                                     "in call 20, reduce_scatter \"exercise\" of step 19 with ",
                                     "; its last complete call is 19, all_gather", NULL});
    }
}

/* In a call of ranks 2 and 3 only: 0 and 1 learn of the fault in the next call of all ranks. */
static int do_group_fault(struct rank *r)
{
    struct comm *groups[EXERCISE_GROUPS];
    int rc = exercise_open_groups(r->comm, groups, r->wrong, sizeof r->wrong);
    r->comm->step = 12;
    if (!rc)
        rc = exercise(groups[0], &r->digest, r->wrong, sizeof r->wrong);
    if (!rc)
        rc = comm_barrier(r->comm, "after it");
    snprintf(r->wrong, sizeof r->wrong, "%s", r->comm->reason);
    for (int i = 0; i < EXERCISE_GROUPS; i++)
        comm_close(groups[i]);
    return rc;
}

static void test_faults_in_groups(void **state)
{
    static const char *const words[][4] = {
        [COMM_FAULT_DROP] = {"message of rank 3 to rank 2", "of step 12", "lost", NULL},
        [COMM_FAULT_DELAY] = {"rank 3 did not reach", "of step 12", "(rank 2 waited; they may",
                              NULL},
        [COMM_FAULT_KILL] = {"rank 3 is gone at", "of step 12", NULL},
        [COMM_FAULT_CORRUPT] = {"data from rank 3 to rank 2", "of step 12", "damaged", NULL},
    };
    (void)state;
    for (int k = COMM_FAULT_DROP; k <= COMM_FAULT_CORRUPT; k++) {
        struct rank ranks[MOST];
        open_ranks(ranks, 4, k == COMM_FAULT_DELAY ? 1 : 10, do_group_fault);
        for (int r = 0; r < 4; r++)
            ranks[r].faulty = k == COMM_FAULT_KILL ? 3 : -1;
        comm_inject(ranks[3].comm, &(struct comm_fault){(enum comm_fault_kind)k, 20, 2, 2.5});
        run_ranks(ranks, 4);
        assert_all_say(ranks, 4, words[k]);
    }
}

/* ---- ranks that do not do the same ----------------------------------------------------------- */

static int do_different(struct rank *r)
{
    float x[4] = {0};
    struct comm_call call = {COMM_ALL_REDUCE, CKPT_F32, 0, 4, x, x, "gradients"};
    r->comm->step = 7;
    int rc = comm_run(r->comm, &call, NULL);
    if (rc || r->faulty != r->comm->rank)
        return rc ? rc : comm_run(r->comm, &call, NULL);
    call = (struct comm_call){COMM_BARRIER, CKPT_F32, 0, 0, NULL, NULL, "the save"};
    return comm_run(r->comm, &call, NULL);
}

static int do_other_count(struct rank *r)
{
    float x[4] = {0};
    r->comm->step = 7;
    return comm_run(r->comm,
                    &(struct comm_call){COMM_ALL_REDUCE, CKPT_F32, 0,
                                        r->faulty == r->comm->rank ? 3 : 4, x, x, "gradients"},
                    NULL);
}

static void check_odd_one(int (*body)(struct rank *), const char *const *words)
{
    struct rank ranks[MOST];
    open_ranks(ranks, 3, 5, body);
    for (int r = 0; r < 3; r++)
        ranks[r].faulty = 2;
    run_ranks(ranks, 3);
    assert_all_say(ranks, 3, words);
    assert_int_equal(ranks[2].rc, CKPT_ECOMM);
}

static void test_other_program(void **state)
{
    (void)state;
    check_odd_one(do_different,
                  (const char *[]){"rank 2", "all_reduce \"gradients\" of step 7",
                                   "barrier \"the save\" of step 7", "same program",
                                   "; its last complete call is 1, all_reduce \"gradients\"",
                                   NULL});
    check_odd_one(do_other_count, (const char *[]){"rank 2", "with 3", "with 4",
                                                   "; its last complete call is none", NULL});
}

static int do_agree(struct rank *r)
{
    struct comm_term terms[] = {
        {.name = "model", .value = 17},
        {.name = "plan", .value = r->comm->rank == r->faulty ? 1 : UINT64_C(1) << 60}};
    return comm_agree(r->comm, "started with", terms, 2);
}

static void test_agreement(void **state)
{
    (void)state;
    for (int odd = -1; odd < 3; odd++) {
        struct rank ranks[MOST];
        open_ranks(ranks, 3, 5, do_agree);
        for (int r = 0; r < 3; r++)
            ranks[r].faulty = odd;
        run_ranks(ranks, 3);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(ranks[r].rc, odd < 0 ? 0 : CKPT_ECOMM);
            assert_string_equal(ranks[r].wrong,
                                odd < 0    ? ""
                                : odd == 0 ? "rank 0 started with another plan than rank 1"
                                : odd == 1 ? "rank 1 started with another plan than rank 0"
                                           : "rank 2 started with another plan than rank 0");
        }
    }
}

/* ---- giving up ------------------------------------------------------------------------------- */

static int do_give_up(struct rank *r)
{
    struct comm_call call = {COMM_BARRIER, CKPT_F32, 0, 0, NULL, NULL, "a step"};
    r->comm->step = 3;
    int rc = comm_run(r->comm, &call, NULL);
    if (r->comm->rank != r->faulty)
        return rc ? rc : comm_run(r->comm, &call, NULL);
    r->comm->ops->give_up(r->comm, "the disk is full");
    return comm_run(r->comm, &call, NULL);
}

/* Waits without taking part in a collective, like a thread that waits for a stream. */
static int do_check(struct rank *r)
{
    if (r->comm->rank == 0) {
        r->comm->ops->give_up(r->comm, "a test");
        return CKPT_ECOMM;
    }
    double until = clock_seconds() + 10;
    while (clock_seconds() < until)
        if (r->comm->ops->check(r->comm))
            return CKPT_ECOMM;
    return 0;
}

static void test_giving_up(void **state)
{
    (void)state;
    struct rank ranks[MOST];
    open_ranks(ranks, 4, 30, do_give_up);
    for (int r = 0; r < 4; r++)
        ranks[r].faulty = 1;
    run_ranks(ranks, 4);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(ranks[r].rc, CKPT_ECOMM);
        assert_string_equal(ranks[r].wrong, "rank 1 gave up at step 3: the disk is full");
        assert_true(ranks[r].seconds < 10);
    }
    open_ranks(ranks, 3, 30, do_check);
    run_ranks(ranks, 3);
    for (int r = 0; r < 3; r++)
        assert_string_equal(ranks[r].wrong, "rank 0 gave up at step 0: a test");
}

/* ---- no memory ------------------------------------------------------------------------------- */

static bool close_fake(struct link *l, bool failed)
{
    (void)failed;
    free(l);
    return true;
}

/* More than the address space.  Sanitizers would end the process instead. */
static void test_no_memory(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#endif
    static const struct link_ops ops = {.close = close_fake};
    struct comm *c = NULL;
    struct link *l = calloc(1, sizeof *l);
    assert_non_null(l);
    *l = (struct link){.ops = &ops, .size = INT32_MAX, .lost = -1};
    assert_int_equal(comm_open_linked(&c, "fake", l, 1), CKPT_ENOMEM);
    assert_string_equal(error_get(), "no memory for the messages of 2147483647 ranks");
    assert_null(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_calls),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_lost_message),
        cmocka_unit_test(test_lost_last_message),
        cmocka_unit_test(test_damaged_message),
        cmocka_unit_test(test_late_rank),
        cmocka_unit_test(test_short_delay_is_no_fault),
        cmocka_unit_test(test_dead_rank),
        cmocka_unit_test(test_faults_in_groups),
        cmocka_unit_test(test_other_program),
        cmocka_unit_test(test_agreement),
        cmocka_unit_test(test_giving_up),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
