/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks on several hosts: one sharded copy per host, or one copy over all hosts. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "dist/comm_threads.h"
#include "dist/crew_checks.h"
#include "context/context.h"
#include "exec/program.h"
#include "dist/ranks.h"
#include "unit/test_directory.h"

/* Two hosts with this many ranks each. */
static struct crew two_hosts(int per_host, int zero, const char *over)
{
    struct crew crew = crew_small(2 * per_host, zero, 0);
    crew.per_host = per_host;
    crew.options.shard_over = over;
    return crew;
}

/* ---- where they are -------------------------------------------------------------------------- */

static void expect_hosts(int n, const uint64_t *of, int hosts, int most, int each, const int *order)
{
    int placements[8], found, with;
    assert_int_equal(ranks_sort_by_host(n, of, placements, &found, &with), each);
    assert_int_equal(found, hosts);
    assert_int_equal(with, most);
    assert_memory_equal(placements, order, (size_t)n * sizeof *order);
}

static void test_seats(void **state)
{
    (void)state;
    expect_hosts(1, (const uint64_t[]){7}, 1, 1, 1, (const int[]){0});
    expect_hosts(4, (const uint64_t[]){9, 8, 9, 8}, 2, 2, 2, (const int[]){0, 2, 1, 3});
    expect_hosts(5, (const uint64_t[]){2, 1, 2, 3, 2}, 3, 3, 0, (const int[]){0, 2, 4, 1, 3});
}

/* Ranks that a launcher binds to separate processors, or near another node, are not counted. */
static void test_beside(void **state)
{
    struct rank_place places[] = {{.host = 1, .processors = 5, .node = 0},
                                  {.host = 1, .processors = 5, .node = 0},
                                  {.host = 1, .processors = 6, .node = 0},
                                  {.host = 1, .processors = 5, .node = 1},
                                  {.host = 2, .processors = 5, .node = 0}};
    const int beside[] = {2, 2, 1, 1, 1};
    (void)state;
    for (int r = 0; r < 5; r++)
        assert_int_equal(
            ranks_beside(&(struct ranks){.sharing.ranks = 5, .rank = r, .places = places}),
            beside[r]);
    assert_int_equal(ranks_beside(&(struct ranks){.sharing.ranks = 5}), 1);
}

/* ---- copies of all ranks of a host ----------------------------------------------------------- */

enum { COPIERS = 3 };
#define COPIED (INT64_C(4) << 20) /* bytes of a round that the budget has room for */

/* A device whose copies take a given time; it may have no memory, or fail. */
struct slow_device {
    struct device device;
    double seconds;
    bool full, broken;
    bool other; /* it was to copy other sizes */
    char arena[16];
};

static int64_t slow_overhead(struct device *d)
{
    (void)d;
    return 1000;
}

static void *slow_alloc(struct device *d, int64_t bytes)
{
    (void)d;
    return calloc(1, (size_t)bytes);
}

static void slow_free(struct device *d, void *p)
{
    (void)d;
    free(p);
}

static int slow_pin(struct device *d, void *base, int64_t bytes)
{
    (void)d;
    (void)base;
    return bytes > 0 ? 0 : CKPT_EINVAL;
}

static int slow_map(struct device *d, int64_t bytes)
{
    return ((struct slow_device *)d)->full && bytes ? CKPT_ENOMEM : 0;
}

static char *slow_base(struct device *d)
{
    return ((struct slow_device *)d)->arena;
}

static void slow_copy(struct device *d, enum queue q, void *dst, const void *src, int64_t bytes)
{
    (void)q;
    (void)dst;
    (void)src;
    ((struct slow_device *)d)->other |= bytes != COPIED / 4;
}

static int slow_sync(struct device *d)
{
    const struct slow_device *s = (struct slow_device *)d;
    usleep((unsigned)(1e6 * s->seconds));
    return s->broken ? CKPT_EDEVICE : 0;
}

static const struct device_ops slow_ops = {.overhead = slow_overhead,
                                           .host_alloc = slow_alloc,
                                           .host_free = slow_free,
                                           .pin = slow_pin,
                                           .map = slow_map,
                                           .base = slow_base,
                                           .copy = slow_copy,
                                           .sync = slow_sync};

struct copier {
    pthread_t thread;
    struct slow_device slow;
    struct ckpt_options options;
    struct params params;
    struct memory memory;
    struct machine machine;
    struct ranks job;
    int rc;
};

/* A rank without a context. */
static void set_up(struct copier *k, int rank, struct comm *comm, int64_t host)
{
    k->slow.device.ops = &slow_ops;
    k->options = (struct ckpt_options){.host = host};
    k->memory = (struct memory){
        .device = &k->slow.device, .budget = 1000 + 2 * COPIED - host, .host = host};
    k->machine = (struct machine){.links.ranks_per_host = 2};
    k->job = (struct ranks){.options = &k->options,
                            .params = &k->params,
                            .memory = &k->memory,
                            .machine = &k->machine,
                            .sharing.ranks = COPIERS,
                            .rank = rank,
                            .comm = comm};
}

static void *run_copier(void *user)
{
    struct copier *k = user;
    k->rc = ranks_time_copies(&k->job);
    comm_close(k->job.comm);
    return NULL;
}

/* The rate of copies, the same on all ranks, of two hosts with two ranks and with one. */
static double time_copies(struct copier *k, int64_t host, int without)
{
    struct rank_place places[COPIERS] = {{.host = 1}, {.host = 1}, {.host = 2}};
    struct comm *comms[COPIERS];
    assert_int_equal(comm_open_threads(comms, COPIERS, 60), 0);
    for (int r = 0; r < COPIERS; r++) {
        set_up(&k[r], r, comms[r], host);
        places[r].wants_copies = r != without && ranks_want_copies(&k[r].job);
        k[r].job.places = places;
    }
    for (int r = 0; r < COPIERS; r++)
        assert_int_equal(pthread_create(&k[r].thread, NULL, run_copier, &k[r]), 0);
    for (int r = 0; r < COPIERS; r++)
        pthread_join(k[r].thread, NULL);
    for (int r = 0; r < COPIERS; r++) {
        assert_int_equal(k[r].rc, 0);
        assert_false(k[r].slow.other);
        assert_true(k[r].machine.host_copies == k[0].machine.host_copies);
    }
    return k[0].machine.host_copies;
}

/* The slowest rank determines the rate of each rank on its host. */
static void test_copies(void **state)
{
    struct copier k[COPIERS] = {0};
    (void)state;
    for (int r = 0; r < COPIERS; r++)
        k[r].slow.seconds = r == 1 ? .05 : .001;
    double together = time_copies(k, COPIED / 2, -1);
    assert_true(together <= 2 * COPIED / .05 && together > 2 * COPIED / 5.);
    assert_true(time_copies(k, 3 * COPIED / 2, -1) > 0); /* now the device has the least */
    assert_true(time_copies(k, COPIED / 2, 2) == 0);
    k[0].slow.full = true;
    assert_true(time_copies(k, COPIED / 2, -1) == 0);
    k[0].slow.full = false;
    k[2].slow.broken = true;
    assert_true(time_copies(k, COPIED / 2, -1) == 0);
}

/* Nothing is measured without a host tier, with a known rate in the machine file, or without a
 * device. */
static void test_copies_wanted(void **state)
{
    static struct copier k;
    (void)state;
    set_up(&k, 0, NULL, 1);
    assert_true(ranks_want_copies(&k.job));
    k.options.host = 0;
    assert_false(ranks_want_copies(&k.job));
    k.options.host = 1;
    k.machine.host_copies = 1e10;
    assert_false(ranks_want_copies(&k.job));
    k.machine.host_copies = 0;
    k.memory.device = NULL;
    assert_false(ranks_want_copies(&k.job));
}

/* ---- numbers and memory ---------------------------------------------------------------------- */

static struct crew_result whole; /* of two hosts of two, stage 3 */
static struct crew_result alone; /* of one rank */
static char plan[80];            /* a file: that of the former */

static void assert_says(const struct crew_result *r, const char *line)
{
    if (!strstr(r->table, line))
        fail_msg("without \"%s\":\n%s", line, r->table);
}

/* All ranks have the same bits, equal to those of one rank but for the order of sums. */
static void assert_near(const struct crew_result *r, int ranks)
{
    assert_true(crew_same(r, ranks, r, ranks));
    if (crew_distance(r, &alone) > 4e-6) /* 1.6e-6 with the kernels for AVX-512 */
        fail_msg("%d ranks differ from one by %g", ranks, crew_distance(r, &alone));
}

static char last_place[96]; /* where rank 3 of the former runs */

static void note_place(const ckpt_program *p, void *user)
{
    (void)user;
    snprintf(last_place, sizeof last_place, "%.95s", p->programs->ranks->places[3].text);
}

static int start(void **state)
{
    struct crew crew = two_hosts(2, 3, "host"), one = crew_small(1, 0, 0);
    make_dir(state);
    snprintf(plan, sizeof plan, "%s/plan", dir);
    crew.options.plan_out = plan;
    crew.look = note_place;
    crew_expect_end(&crew, &whole);
    crew_expect_end(&one, &alone);
    return 0;
}

static int finish(void **state)
{
    crew_free(&whole);
    crew_free(&alone);
    unlink(plan);
    ckpt_file_remove(path); /* a state of ranks has parts */
    return remove_dir(state);
}

/* The crew that runs the plan of the first one. */
static struct crew planned(void)
{
    struct crew crew = two_hosts(2, 3, "host");
    crew.options.plan_in = plan;
    return crew;
}

static void test_two_of_two(void **state)
{
    struct crew crew = planned();
    struct crew_result other;
    (void)state;
    assert_near(&whole, 4);
    assert_int_equal(whole.group_ranks, 2);
    assert_says(&whole, "4  on 2 hosts; 4 threads");
    assert_says(&whole, "CPUs  NUMA nodes of the first host ");
    assert_int_equal(strncmp(last_place, "host 1, NUMA node ", 18), 0);
    assert_says(&whole, "2  of each host share one copy");
    for (int i = 0; i < 4; i++) {
        assert_int_equal(whole.taken[i], whole.info[i].planned_peak);
        assert_true(whole.calls[i] == whole.calls[0]); /* one order over both kinds of groups */
    }
    assert_true(whole.calls[0] != alone.calls[0]);
    assert_int_equal(whole.left, whole.shares + CKPT_ALIGN);
    crew.in_turns = true; /* other sums, but no other plan */
    crew_expect_end(&crew, &other);
    assert_near(&other, 4);
    assert_false(crew_same(&whole, 4, &other, 4));
    crew_free(&other);
    crew = two_hosts(2, 1, "host");
    crew_expect_end(&crew, &other);
    assert_true(crew_same(&whole, 4, &other, 4));
    crew_free(&other);
}

/* With one rank per host, a copy on each host is stage 0. */
static void test_two_of_one(void **state)
{
    struct crew crew = two_hosts(1, 3, "host");
    struct crew_result r;
    (void)state;
    crew_expect_end(&crew, &r);
    assert_near(&r, 2);
    assert_says(&r, "none  share, because each is alone on its host");
    assert_int_equal(r.gathers, 0);
    crew_free(&r);
}

static void test_unequal_hosts(void **state)
{
    struct crew crew = crew_small(3, 2, 0);
    struct crew_result r;
    (void)state;
    crew.per_host = 2;
    crew.options.shard_over = "host";
    crew_expect_end(&crew, &r);
    assert_near(&r, 3);
    assert_int_equal(r.group_ranks, 3);
    assert_says(&r, "all  share, because hosts have different numbers of ranks");
    crew_free(&r);
}

/* A copy on each host takes more memory and less time between hosts: it is selected if there is
 * memory for it.  A plan from a file is for one of the two. */
static void test_choice(void **state)
{
    struct crew crew = two_hosts(2, 3, NULL);
    struct crew_result r;
    (void)state;
    crew.in_full = true;
    crew.steps = 1;
    crew_expect_end(&crew, &r);
    assert_int_equal(r.group_ranks, 2);
    assert_true(r.order == whole.order);
    crew_free(&r);
    crew.steps = 0;
    crew.options.vram = whole.info[0].min_budget - 1;
    crew_expect_end(&crew, &r);
    assert_near(&r, 4);
    assert_int_equal(r.group_ranks, 4);
    assert_true(r.shares < whole.shares);
    assert_true(r.info[0].min_budget < whole.info[0].min_budget);
    assert_true(r.info[0].step_seconds > whole.info[0].step_seconds);
    crew_free(&r);
    crew.options.plan_in = plan;
    crew_expect_code(&crew, CKPT_EINVAL, (const char *[]){"add --shard-over host or all", NULL});
}

/* ---- files ----------------------------------------------------------------------------------- */

/* A state written half-way leads to the same bits. */
static void test_resume(void **state)
{
    struct crew crew = planned();
    struct crew_result first, rest;
    (void)state;
    crew.steps = CREW_STEPS / 2;
    crew.save_state = path;
    crew_expect_end(&crew, &first);
    crew.steps = CREW_STEPS;
    crew.save_state = NULL;
    crew.load_state = path;
    crew_expect_end(&crew, &rest);
    for (int i = 0; i < 4; i++) {
        memcpy(rest.loss[i], first.loss[i], sizeof rest.loss[i] / 2);
        memcpy(rest.norm[i], first.norm[i], sizeof rest.norm[i] / 2);
    }
    assert_true(crew_same(&whole, 4, &rest, 4));
    crew_free(&first);
    crew_free(&rest);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* In the second step, when two ranks of one host gather: before the first step there are eight
 * calls of all ranks, and a step has one or two gathers per bucket, two sums per bucket, and one
 * more.  The ranks of the other host are told of the failure. */
static void test_faults(void **state)
{
    struct crew crew = planned();
    int calls_of_a_step = whole.gathers + 2 * whole.n_buckets + 1;
    (void)state;
    crew.faulty = 3;
    crew.steps = 3;
    for (int k = COMM_FAULT_DROP; k <= COMM_FAULT_CORRUPT; k++)
        crew_expect_fault(crew, (enum comm_fault_kind)k, 8 + calls_of_a_step + 1, 2, 2, 3);
}

static void test_other_orders(void **state)
{
    struct crew crew = planned(), other = crew;
    ckpt *c;
    (void)state;
    other.options.shard_over = "hosts";
    assert_int_equal(ckpt_open(&c, &other.options), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(NULL), "--shard-over hosts: there are"));
    other.options.shard_over = "all";
    crew.faulty = 1;
    crew.other = &other;
    crew_expect_code(&crew, CKPT_ECOMM,
                     (const char *[]){"rank 1 started with another --shard-over", NULL});
    other = planned();
    other.options.save_async = true;
    crew_expect_code(&crew, CKPT_ECOMM,
                     (const char *[]){"rank 1 started with another --save-async", NULL});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seats),         cmocka_unit_test(test_beside),
        cmocka_unit_test(test_copies),        cmocka_unit_test(test_copies_wanted),
        cmocka_unit_test(test_two_of_two),    cmocka_unit_test(test_two_of_one),
        cmocka_unit_test(test_unequal_hosts), cmocka_unit_test(test_choice),
        cmocka_unit_test(test_resume),        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_other_orders),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
