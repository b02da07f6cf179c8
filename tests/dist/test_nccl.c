/* SPDX-License-Identifier: Apache-2.0 */
/* The callers of NCCL, with a fake one between threads on the CPU (fake_nccl.c). */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "dist/comm_threads.h"
#include "dist/exercise.h"

enum { MOST = 4 };

struct rank {
    struct comm *control, *comm;
    bool together;
    int rc;
    uint64_t digest;
    char wrong[CKPT_MESSAGE];
    pthread_t thread;
};

static void *fake;

static int counted(const char *symbol)
{
    return __atomic_load_n((int *)dlsym(fake, symbol), __ATOMIC_SEQ_CST);
}

static void pause_for(double seconds)
{
    nanosleep(&(struct timespec){(time_t)seconds, (long)(seconds * 1e9) % 1000000000}, NULL);
}

static void run_all(struct rank *ranks, int n, double deadline, void *(*body)(void *))
{
    struct comm *controls[MOST];
    memset(ranks, 0, (size_t)n * sizeof *ranks);
    assert_int_equal(comm_open_threads(controls, n, deadline), 0);
    for (int r = 0; r < n; r++) {
        ranks[r].control = controls[r];
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, body, &ranks[r]), 0);
    }
    for (int r = 0; r < n; r++)
        pthread_join(ranks[r].thread, NULL);
}

static bool open_rank(struct rank *r)
{
    r->rc = comm_open_nccl(&r->comm, r->control, r->together);
    if (r->rc)
        snprintf(r->wrong, sizeof r->wrong, "%s", error_get());
    return r->rc == 0;
}

/* ---- results --------------------------------------------------------------------------------- */

static void *exercise_rank(void *arg)
{
    struct rank *r = arg;
    if (!open_rank(r))
        return NULL;
    r->rc = exercise(r->comm, &r->digest, r->wrong, sizeof r->wrong);
    if (!r->rc)
        r->rc = exercise_groups(r->comm, &r->digest, r->wrong, sizeof r->wrong);
    if (comm_of_hosts(r->comm) != r->control || !r->comm->ops->takes_stream)
        r->rc = CKPT_EINVAL;
    comm_close(r->comm);
    return NULL;
}

static void test_results(void **state)
{
    struct rank ranks[MOST];
    (void)state;
    for (int n = 2; n <= MOST; n++) {
        int destroyed = counted("fake_nccl_destroyed");
        run_all(ranks, n, 60, exercise_rank);
        for (int r = 0; r < n; r++)
            if (ranks[r].rc)
                fail_msg("rank %d of %d: %s", r, n, ranks[r].wrong);
        /* itself and, from three on, one for each rank of each pair */
        assert_int_equal(counted("fake_nccl_destroyed"), destroyed + n + (n > 2 ? 4 * (n - 2) : 0));
    }
    assert_int_equal(counted("fake_nccl_aborted"), 0);
}

/* ---- the environment ------------------------------------------------------------------------- */

static void *apart_rank(void *arg)
{
    struct rank *r = arg;
    if (open_rank(r))
        comm_close(r->comm);
    return NULL;
}

static void *together_rank(void *arg)
{
    ((struct rank *)arg)->together = true;
    return apart_rank(arg);
}

/* Between hosts NCCL decides itself; a value set by the user holds everywhere. */
static void test_multiprocessors(void **state)
{
    struct rank ranks[2];
    (void)state;
    unsetenv("NCCL_MIN_CTAS");
    run_all(ranks, 2, 60, apart_rank);
    assert_null(getenv("NCCL_MIN_CTAS"));
    run_all(ranks, 2, 60, together_rank);
    assert_string_equal(getenv("NCCL_MIN_CTAS"), "32");
    setenv("NCCL_MIN_CTAS", "8", 1);
    run_all(ranks, 2, 60, together_rank);
    assert_string_equal(getenv("NCCL_MIN_CTAS"), "8");
    assert_int_equal(ranks[0].rc | ranks[1].rc, 0);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Rank 1 takes the id and then stops. */
static void *absent_rank(void *arg)
{
    struct rank *r = arg;
    int32_t id[32];
    struct comm_call take = {
        .kind = COMM_BROADCAST, .dtype = CKPT_I32, .count = 32, .dst = id, .name = "NCCL id"};
    if (r->control->rank == 0) {
        open_rank(r);
        comm_close(r->rc ? r->control : r->comm);
        return NULL;
    }
    comm_run(r->control, &take, NULL);
    pause_for(5);
    r->rc = comm_barrier(r->control, "late");
    snprintf(r->wrong, sizeof r->wrong, "%s", r->control->reason);
    comm_close(r->control);
    return NULL;
}

static void test_rank_that_never_opens(void **state)
{
    struct rank ranks[2];
    int aborted = counted("fake_nccl_aborted");
    (void)state;
    run_all(ranks, 2, 3, absent_rank);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].rc, CKPT_ECOMM);
        assert_non_null(strstr(ranks[r].wrong, "the start of NCCL did not get through within"));
    }
    assert_int_equal(counted("fake_nccl_aborted"), aborted + 1);
}

static void *failing_rank(void *arg)
{
    struct rank *r = arg;
    double until = clock_seconds() + 30;
    struct comm *groups[EXERCISE_GROUPS];
    if (!open_rank(r))
        return NULL;
    r->rc = exercise_open_groups(r->comm, groups, r->wrong, sizeof r->wrong);
    if (r->rc)
        return NULL;
    r->comm->step = 7;
    if (r->comm->rank == 1)
        r->comm->ops->give_up(r->comm, "no memory for it");
    while (!(r->rc = r->comm->ops->check(r->comm)) && clock_seconds() < until)
        pause_for(0.01);
    snprintf(r->wrong, sizeof r->wrong, "%s", r->comm->reason);
    struct comm_call call = {.kind = COMM_ALL_REDUCE, .name = "after it"};
    if (comm_run(r->comm, &call, NULL) != CKPT_ECOMM)
        r->rc = 0;
    for (int i = 0; i < EXERCISE_GROUPS; i++) {
        if (groups[i] && (comm_run(groups[i], &call, NULL) != CKPT_ECOMM ||
                          strcmp(groups[i]->reason, r->comm->reason) != 0))
            r->rc = 0;
        comm_close(groups[i]);
    }
    comm_close(r->comm);
    return NULL;
}

static void test_rank_that_gives_up(void **state)
{
    struct rank ranks[3];
    int aborted = counted("fake_nccl_aborted");
    (void)state;
    run_all(ranks, 3, 60, failing_rank);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].rc, CKPT_ECOMM);
        assert_non_null(strstr(ranks[r].wrong, "no memory for it"));
    }
    assert_non_null(strstr(ranks[0].wrong, "rank 1 gave up at step 7"));
    assert_int_equal(counted("fake_nccl_aborted"), aborted + 3 + 4);
}

/* A sum, a barrier, and the end. */
static void *short_rank(void *arg)
{
    struct rank *r = arg;
    float x = 1, sum = 0;
    struct comm_call call = {.kind = COMM_ALL_REDUCE,
                             .dtype = CKPT_F32,
                             .count = 1,
                             .src = &x,
                             .dst = &sum,
                             .name = "a sum"};
    if (!open_rank(r)) {
        comm_close(r->control);
        return NULL;
    }
    r->rc = comm_run(r->comm, &call, NULL);
    if (!r->rc)
        r->rc = comm_barrier(r->comm, "the end");
    if (r->rc) {
        snprintf(r->wrong, sizeof r->wrong, "%s", r->comm->reason);
        r->comm->ops->give_up(r->comm, r->wrong);
    } else if (sum != 2) {
        r->rc = CKPT_EINVAL;
    }
    comm_close(r->comm);
    return NULL;
}

/* Each call of NCCL fails in turn: the ranks end with a correct sum or with an error sentence. */
static void test_each_call_fails(void **state)
{
    int *calls = dlsym(fake, "fake_nccl_calls"), *which = dlsym(fake, "fake_nccl_fails");
    int failed = 0;
    (void)state;
    for (int n = 1;; n++) {
        struct rank ranks[2];
        *calls = 0;
        *which = n;
        run_all(ranks, 2, 2, short_rank);
        for (int r = 0; r < 2; r++) {
            if (ranks[r].rc && !*ranks[r].wrong)
                fail_msg("call %d: rank %d ended with %d and no sentence", n, r, ranks[r].rc);
            assert_int_not_equal(ranks[r].rc, CKPT_EINVAL);
            failed += ranks[r].rc != 0;
        }
        if (*calls < n)
            break;
    }
    *which = 0;
    assert_true(failed > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_multiprocessors),
        cmocka_unit_test(test_rank_that_never_opens),
        cmocka_unit_test(test_rank_that_gives_up),
        cmocka_unit_test(test_each_call_fails),
    };
    /* A later dlopen by name gets the fake library that is already loaded. */
    fake = dlopen("tests/dist/libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!fake) {
        printf("%s\n", dlerror());
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
