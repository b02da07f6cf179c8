/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of ranks on devices through the host, with a device whose streams run at once.  Ranks
 * that go this way beside others that do not: test_pipeline.c. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "dist/comm_threads.h"
#include "dist/exercise.h"
#include "dist/through_host.h"

enum { MOST = 4 };

static int allocations, visits;

static void *host_alloc(struct device *d, int64_t bytes)
{
    (void)d;
    __atomic_add_fetch(&allocations, 1, __ATOMIC_SEQ_CST);
    return calloc(1, (size_t)bytes);
}

static void host_free(struct device *d, void *p)
{
    (void)d;
    __atomic_sub_fetch(&allocations, 1, __ATOMIC_SEQ_CST);
    free(p);
}

static void visit_host(struct device *d, void *stream, const struct device_visit *v)
{
    (void)d;
    (void)stream;
    __atomic_add_fetch(&visits, 1, __ATOMIC_SEQ_CST);
    memcpy(v->host_src, v->src, (size_t)v->src_bytes);
    v->call(v->user);
    memcpy(v->dst, v->host_dst, (size_t)v->dst_bytes);
}

static const struct device_ops ops = {
    .name = "fake", .host_alloc = host_alloc, .host_free = host_free, .visit_host = visit_host};
static struct device fake = {.ops = &ops};

struct rank {
    struct comm *comm;
    int rc;
    uint64_t digest;
    char wrong[CKPT_MESSAGE];
    pthread_t thread;
};

static void *exercise_rank(void *arg)
{
    struct rank *r = arg;
    r->rc = exercise(r->comm, &r->digest, r->wrong, sizeof r->wrong);
    if (!r->rc)
        r->rc = exercise_groups(r->comm, &r->digest, r->wrong, sizeof r->wrong);
    comm_close(r->comm);
    return NULL;
}

/* most: ranks that have the device. */
static void run_all(struct rank *ranks, int n, int most, double deadline, void *(*body)(void *))
{
    struct comm *comms[MOST];
    memset(ranks, 0, (size_t)n * sizeof *ranks);
    assert_int_equal(comm_open_threads(comms, n, deadline), 0);
    for (int r = 0; r < n; r++) {
        if (r < most)
            assert_int_equal(comm_open_through_host(&comms[r], comms[r], &fake), 0);
        ranks[r].comm = comms[r];
    }
    for (int r = 0; r < n; r++)
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, body, &ranks[r]), 0);
    for (int r = 0; r < n; r++)
        pthread_join(ranks[r].thread, NULL);
}

static void test_results(void **state)
{
    struct rank ranks[MOST];
    (void)state;
    for (int n = 2; n <= MOST; n++) {
        run_all(ranks, n, n, 60, exercise_rank);
        for (int r = 0; r < n; r++)
            if (ranks[r].rc)
                fail_msg("rank %d of %d: %s", r, n, ranks[r].wrong);
    }
    assert_true(visits > 0);
    assert_int_equal(allocations, 0);
}

/* A stream has no result: the rank asks later, and every call after it fails. */
static void *meet_nobody(void *arg)
{
    struct rank *r = arg;
    float x = 1, y = 0;
    const struct comm_call call = {
        .kind = COMM_ALL_REDUCE, .dtype = CKPT_F32, .count = 1, .src = &x, .dst = &y, .name = "x"};
    if (r->comm->rank == 0) {
        r->comm->step = 7;
        r->rc = comm_run(r->comm, &call, NULL);
        assert_int_equal(r->comm->ops->check(r->comm), CKPT_ECOMM);
        assert_int_equal(comm_run(r->comm, &call, NULL), CKPT_ECOMM);
        snprintf(r->wrong, sizeof r->wrong, "%s", r->comm->reason);
    } else {
        r->comm->ops->give_up(r->comm, "no more");
    }
    comm_close(r->comm);
    return NULL;
}

static void test_failure(void **state)
{
    struct rank ranks[2];
    (void)state;
    run_all(ranks, 2, 1, 20, meet_nobody);
    assert_int_equal(ranks[0].rc, 0);
    assert_non_null(strstr(ranks[0].wrong, "rank 1 gave up at step 0: no more"));
    assert_int_equal(allocations, 0);
}

/* ---- a recorded step ------------------------------------------------------------------------- */

static struct device_visit recorded;

static void record_visit(struct device *d, void *stream, const struct device_visit *v)
{
    (void)d;
    (void)stream;
    recorded = *v;
}

/* Rank 0 queues one call and a thread of its device runs it in two steps; rank 1 calls twice. */
static void *two_steps(void *arg)
{
    struct rank *r = arg;
    struct device_ops records = ops;
    struct device d = {.ops = &records};
    int64_t before = 0;
    float x = 1 + (float)r->comm->rank, y = 0;
    const struct comm_call call = {
        .kind = COMM_ALL_REDUCE, .dtype = CKPT_F32, .count = 1, .src = &x, .dst = &y, .name = "x"};
    records.visit_host = record_visit;
    if (r->comm->rank == 0) {
        assert_int_equal(comm_open_through_host(&r->comm, r->comm, &d), 0);
        r->comm->steps_before = &before;
        r->rc = comm_run(r->comm, &call, NULL);
    }
    for (; before < 2 && !r->rc; before++) {
        r->comm->step = r->comm->rank ? before + 1 : 0;
        if (r->comm->rank)
            r->rc = comm_run(r->comm, &call, NULL);
        else
            visit_host(&d, NULL, &recorded);
        if (y != 3 || (!r->rc && r->comm->ops->check && r->comm->ops->check(r->comm)))
            r->rc = CKPT_ECOMM;
    }
    snprintf(r->wrong, sizeof r->wrong, "%s", r->comm->reason);
    comm_close(r->comm);
    return NULL;
}

static void test_recorded(void **state)
{
    struct rank ranks[2];
    (void)state;
    run_all(ranks, 2, 0, 20, two_steps);
    for (int r = 0; r < 2; r++)
        if (ranks[r].rc)
            fail_msg("rank %d: %s", r, ranks[r].wrong);
}

/* One buffer serves all; one that is too small stays for the steps that were recorded with it. */
static void test_memory(void **state)
{
    struct comm *comms[2];
    (void)state;
    assert_int_equal(comm_open_threads(comms, 2, 20), 0);
    for (int r = 0; r < 2; r++)
        assert_int_equal(comm_open_through_host(&comms[r], comms[r], &fake), 0);
    assert_int_equal(comm_reserve_through_host(comms[0], 100), 0);
    assert_int_equal(comm_reserve_through_host(comms[0], 50), 0);
    assert_int_equal(allocations, 1);
    assert_int_equal(comm_reserve_through_host(comms[0], 10000), 0);
    assert_int_equal(allocations, 2);
    for (int r = 0; r < 2; r++)
        comm_close(comms[r]);
    assert_int_equal(allocations, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
