/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers to budgets of three tiers: more of any of them is never slower and never refused,
 * whatever the order of requests; the smallest budget is exact; refusals name budgets that work;
 * the lower bound is below every plan and falls with memory.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "plan/search/bound.h"
#include "plan/search/chain.h"
#include "plan/graph/graph_file.h"
#include "graphs.h"
#include "models.h"

#define MIB  (INT64_C(1) << 20)
#define MOST (INT64_C(1) << 40)

static struct graph *read_graph(const char *name)
{
    char path[4096];
    const char *srcdir = getenv("srcdir");
    struct graph *g;
    snprintf(path, sizeof(path), "%s/tests/data/planner/%s.graph", srcdir ? srcdir : ".", name);
    if (graph_read(path, &g))
        fail_msg("%s", error_get());
    return g;
}

/* A model with a tied embedding as large as its activations.  A search that sees its budgets
 * directly finds plans with offloads at some budgets and not at larger ones. */
static struct graph *tied(void)
{
    return read_graph("big-tied-3");
}

/* A checked plan, or NULL with the message in error if it is refused. */
static struct plan *ask(struct frontier *pf, const struct budgets *b)
{
    struct plan *p;
    int rc = frontier_plan(pf, &graphs_machine, b, 0, &p);
    if (rc == CKPT_EBUDGET)
        return NULL;
    if (rc || plan_check(pf->p->g, p))
        fail_msg("%s", error_get());
    assert_true(plan_peak(p) <= b->device && p->nvme_bytes <= b->nvme);
    assert_true(p->host_bytes + (b->host ? p->staging_bytes : 0) <= b->host);
    assert_true((p->staging_bytes > 0) == (p->nvme_bytes > 0));
    assert_true(p->bound_seconds <= p->seconds);
    assert_true(p->min_budget <= b->device);
    return p;
}

/* Device bytes between least and most; small ones are closer together. */
static int64_t device_at(int64_t least, int64_t most, int i, int n)
{
    double share = (double)i / (n - 1);
    return least + (int64_t)((double)(most - least) * share * share);
}

/* ---- more never hurts ------------------------------------------------------------------------ */

struct asked {
    struct budgets b;
    double seconds; /* INFINITY: refused */
};

static bool has_no_less(const struct budgets *a, const struct budgets *b)
{
    return a->device >= b->device && a->host >= b->host && a->nvme >= b->nvme;
}

/* Compares all pairs of answers of which one had at least the budgets of the other. */
static void compare_all(const struct asked *list, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (has_no_less(&list[i].b, &list[j].b) && !(list[i].seconds <= list[j].seconds))
                fail_msg("%.9g s with %lld + %lld + %lld bytes, %.9g s with %lld + %lld + %lld",
                         list[i].seconds, (long long)list[i].b.device, (long long)list[i].b.host,
                         (long long)list[i].b.nvme, list[j].seconds, (long long)list[j].b.device,
                         (long long)list[j].b.host, (long long)list[j].b.nvme);
}

static double seconds_of(struct frontier *pf, const struct budgets *b)
{
    struct plan *p = ask(pf, b);
    double seconds = p ? p->seconds : INFINITY;
    plan_free(p);
    return seconds;
}

/* If no search is needed, the unsearched answer is as fast.  Returns whether that was the case. */
static int check_first(const struct graph *g, const struct asked *a)
{
    struct plan *p = plan_unsearched(g, &graphs_machine, &a->b, 0);
    if (!p)
        return 0;
    assert_int_equal(plan_check(g, p), 0);
    assert_true(p->seconds == a->seconds && plan_peak(p) <= a->b.device);
    plan_free(p);
    return 1;
}

enum { DEVICES = 8, HOSTS = 4, DRIVES = 2, ASKED = DEVICES * HOSTS * DRIVES };

/* Budgets in a mixed order: an answer does not depend on earlier requests. */
static void more_never_hurts(struct graph *g, int64_t some_host)
{
    const int64_t hosts[HOSTS] = {0, some_host / 3, some_host, MOST};
    const int64_t drives[DRIVES] = {0, some_host * 2};
    struct asked list[ASKED];
    struct frontier *pf;
    struct budgets b = {.device = MOST, .host = MOST, .nvme = MOST};
    assert_int_equal(frontier_build(g, &pf), 0);
    struct plan *all = ask(pf, &b);
    int64_t least = all->min_budget - MIB, most = pf->options.data[pf->n - 1].load;
    int refused = 0, first = 0;
    for (int k = 0; k < ASKED; k++) {
        int i = k * 37 % ASKED;
        b.device = device_at(least, most + pf->p->persistent, i / (HOSTS * DRIVES), DEVICES);
        b.host = hosts[i / DRIVES % HOSTS];
        b.nvme = drives[i % DRIVES];
        list[k] = (struct asked){b, seconds_of(pf, &b)};
        refused += isinf(list[k].seconds);
        first += check_first(g, &list[k]);
    }
    assert_true(refused > 0 && refused < ASKED && first > 0);
    compare_all(list, ASKED);
    plan_free(all);
    frontier_free(pf);
    assert_int_equal(frontier_build(g, &pf), 0);
    for (int k = ASKED - 1; k > 0; k -= 23)
        assert_true(seconds_of(pf, &list[k].b) == list[k].seconds);
    frontier_free(pf);
    graph_free(g);
}

static void test_tied(void **state)
{
    (void)state;
    more_never_hurts(tied(), 200 * MIB);
}

static void test_transformer(void **state)
{
    (void)state;
    more_never_hurts(graph_transformer(2, 4 * MIB, 1), 30 * MIB);
}

static void test_micro_steps(void **state)
{
    (void)state;
    more_never_hurts(graph_transformer(1, 4 * MIB, 3), 20 * MIB);
}

/* ---- the smallest budgets -------------------------------------------------------------------- */

/* Reads the budget after given words of a refusal, like a user of the command line. */
static int64_t named_after(const char *message, const char *words)
{
    const char *at = strstr(message, words);
    char *end;
    if (!at)
        fail_msg("no \"%s\" in: %s", words, message);
    int64_t n = strtoll(at + strlen(words), &end, 10);
    return *end == 'G' ? n << 30 : *end == 'M' ? n << 20 : *end == 'K' ? n << 10 : n;
}

static void smallest_is_exact(struct graph *g, int64_t host)
{
    struct frontier *pf;
    struct budgets b = {.device = MOST, .host = host};
    assert_int_equal(frontier_build(g, &pf), 0);
    struct plan *all = ask(pf, &b);
    b.device = all->min_budget - 1;
    assert_null(ask(pf, &b));
    int64_t needs = named_after(error_get(), "needs at least ");
    assert_true(needs >= all->min_budget && needs < all->min_budget + MIB);
    b.device = needs;
    struct plan *p = ask(pf, &b);
    assert_non_null(p);
    assert_true(p->min_budget == all->min_budget);
    plan_free(p);
    b = (struct budgets){.device = all->min_budget, .host = 0};
    assert_null(ask(pf, &b));
    b.host = named_after(error_get(), "--host ");
    p = ask(pf, &b);
    assert_non_null(p);
    plan_free(p);
    plan_free(all);
    frontier_free(pf);
    graph_free(g);
}

static void test_smallest(void **state)
{
    (void)state;
    smallest_is_exact(tied(), MOST);
    smallest_is_exact(graph_transformer(2, 4 * MIB, 1), 16 * MIB);
}

/* The smallest device budget with this much memory in a lower tier. */
static int64_t smallest_beside(struct frontier *pf, int tier, int64_t bytes_below)
{
    bool nvme = tier == TIER_NVME;
    struct budgets b = {
        .device = MOST, .host = nvme ? 0 : bytes_below, .nvme = nvme ? bytes_below : 0};
    struct plan *p = ask(pf, &b);
    assert_non_null(p);
    int64_t bytes = p->min_budget;
    plan_free(p);
    return bytes;
}

/* Memory between two grid budgets of the search for speed helps: 80G of the host between 64G and
 * 96G. */
static void test_smallest_between(void **state)
{
    (void)state;
    struct stdit_shape shape = {.depth = 2, .tokens = 256};
    struct graph *g = model_stdit_shape(&shape, &machine_cuda);
    struct frontier *pf;
    int64_t state_bytes = 0, grid_budget = 1;
    for (int32_t s = 0; s < g->n_storages; s++)
        state_bytes += g->storages[s].persistent ? g->storages[s].bytes : 0;
    while (4 * grid_budget <= state_bytes)
        grid_budget *= 2;
    assert_int_equal(frontier_build(g, &pf), 0);
    for (int tier = 0; tier < TIER_COUNT; tier++) {
        int64_t below = smallest_beside(pf, tier, grid_budget);
        int64_t between = smallest_beside(pf, tier, grid_budget / 4 * 5);
        assert_true(smallest_beside(pf, tier, grid_budget / 2 * 3) < between && between < below);
    }
    frontier_free(pf);
    graph_free(g);
}

/* Adds an op with a workspace that reads x and storage `uses` (0: none), and writes a storage of
 * bytes, which it returns. */
static int32_t add_op(struct graph_builder *k, const char *name, int32_t x, int32_t uses,
                      int64_t bytes, int64_t workspace)
{
    int32_t y = build_storage(k, bytes, KIND_ACTIVATION, name), reads[] = {x, uses};
    int32_t op = build_op(k, GRAPH_FORWARD, name, uses ? 2 : 1, reads, 1, &y, 1e-2);
    k->g->ops[op].workspace = workspace;
    k->g->ops[op].rerunnable = false;
    return y;
}

/*
 * A parameter of 4 MiB is idle during three ops with workspaces of 10, 12 and 4 MiB, and
 * activations of 8, 3 and 9 MiB are idle during one of them each.  A selection that stops as soon
 * as the first op fits takes the activations of the first two, and 12 MiB of host then have no room
 * for the parameter.
 */
static struct graph *crowded(void)
{
    static const int64_t idle[] = {8, 3, 9}, workspace[] = {10, 12, 4};
    struct graph_builder *k = build_new();
    int32_t weight = build_storage(k, 4 * MIB, KIND_PARAMETER, "weight");
    int32_t x = add_op(k, "embed", weight, 0, 1, 0);
    for (int i = 0; i < 3; i++) {
        int32_t a = add_op(k, "idle", x, 0, idle[i] * MIB, 0);
        x = add_op(k, "large", x, 0, 1, workspace[i] * MIB);
        x = add_op(k, "use", x, a, 1, 0);
    }
    return build_finish(k, add_op(k, "head", x, weight, 1, 0), 1);
}

/* A selection for the fewest bytes always has a plan, and so has every smaller host. */
static void test_crowded(void **state)
{
    (void)state;
    struct graph *g = crowded();
    struct frontier *pf;
    assert_int_equal(frontier_build(g, &pf), 0);
    int64_t alone = smallest_beside(pf, TIER_HOST, 0);
    int64_t some = smallest_beside(pf, TIER_HOST, 12 * MIB);
    int64_t less = smallest_beside(pf, TIER_HOST, 8 * MIB);
    assert_true(some < less && less < alone && some < alone - 6 * MIB);
    frontier_free(pf);
    graph_free(g);
}

/* Without tiers: the option of least load is the smallest budget, after a longer search for its
 * addresses; the usual one leaves 536,576 bytes. */
static void test_smallest_alone(void **state)
{
    (void)state;
    struct graph *g = read_graph("multi-3");
    struct frontier *pf;
    assert_int_equal(frontier_build(g, &pf), 0);
    int64_t least = smallest_beside(pf, TIER_HOST, 0);
    assert_true(least <= 534528);
    struct budgets b = {.device = least};
    struct plan *p = ask(pf, &b);
    assert_true(p && plan_peak(p) == least);
    plan_free(p);
    frontier_free(pf);
    graph_free(g);
}

/* ---- the lower bound ------------------------------------------------------------------------- */

static void test_bound_falls(void **state)
{
    (void)state;
    enum { STEPS = 24 };
    for (int n_micro = 1; n_micro <= 2; n_micro++) {
        struct graph *g = n_micro == 1 ? tied() : graph_transformer(2, 4 * MIB, 2);
        struct frontier *pf;
        struct bound *bound;
        double last[3] = {INFINITY, INFINITY, INFINITY};
        assert_int_equal(frontier_build(g, &pf), 0);
        assert_int_equal(bound_new(pf, &graphs_machine, &bound), 0);
        int64_t most = pf->p->persistent + pf->options.data[pf->n - 1].load;
        for (int i = 0; i <= STEPS; i++) {
            int64_t part = most / STEPS * i, half = most / 2;
            const struct budgets each[3] = {{.device = part, .host = half, .nvme = half / 4},
                                            {.device = half, .host = part, .nvme = half / 4},
                                            {.device = half, .host = half / 4, .nvme = part}};
            for (int t = 0; t < 3; t++) {
                double seconds = bound_seconds(bound, &each[t]);
                assert_true(seconds <= last[t] * (1 + 1e-8));
                last[t] = seconds;
            }
        }
        assert_true(last[0] <= pf->p->seconds && last[0] > 0.5 * pf->p->seconds);
        bound_free(bound);
        frontier_free(pf);
        graph_free(g);
    }
}

/* Options of a large program of equal blocks have the seconds and the bytes that a simulation
 * gives; and more memory is never slower. */
static void check_options(struct frontier *pf)
{
    struct budgets b = {.device = MOST};
    double before = INFINITY;
    for (int32_t i = 0; i < pf->n; i += 5) {
        const struct option *o = &pf->options.data[i];
        struct plan *p;
        assert_int_equal(option_steps(pf, o, &p), 0);
        assert_true(p->seconds == o->seconds && p->load == o->load);
        plan_free(p);
    }
    int64_t low = pf->options.data[0].load, high = pf->options.data[pf->n - 1].load;
    for (int k = 0; k <= 40; k++) {
        b.device = pf->p->persistent + low + (high - low) / 40 * k;
        struct plan *p = ask(pf, &b);
        assert_true(p || before == INFINITY);
        if (!p)
            continue;
        assert_true(p->seconds <= before && p->persistent + p->transient <= b.device);
        before = p->seconds;
        plan_free(p);
    }
    assert_true(before < INFINITY);
}

static void test_equal_blocks(void **state)
{
    struct graph *g = model_stdit(12, false, &machine_cpu);
    struct frontier *pf;
    (void)state;
    assert_true(g->n_ops > 2000);
    assert_int_equal(frontier_build(g, &pf), 0);
    assert_true(pf->chained);
    check_options(pf);
    frontier_free(pf);
    graph_free(g);
}

/* Steps of a recurrent cell: the chain is wrong about their bytes, so the local search covers all
 * loads. */
static void test_recurrent(void **state)
{
    struct graph *g = graph_recurrent(96, 1 << 18);
    struct budgets b = {.device = MOST};
    struct frontier *pf;
    (void)state;
    assert_true(g->n_ops > 2000);
    assert_int_equal(frontier_build(g, &pf), 0);
    assert_false(pf->chained);
    check_options(pf);
    struct plan *all = ask(pf, &b);
    b.device = plan_peak(all) / 10 * 3;
    struct plan *p = ask(pf, &b);
    assert_non_null(p);
    assert_true(p->seconds < 1.2 * all->seconds);
    plan_free(p);
    plan_free(all);
    frontier_free(pf);
    graph_free(g);
}

/* Layers that read their input and two outputs of a norm: a small tensor and a scalar. */
static struct graph *with_scalars(int32_t layers)
{
    const int64_t bytes = 1 << 27;
    struct graph_builder *k = build_new();
    int32_t x = build_input(k, bytes);
    for (int32_t i = 0; i < layers; i++) {
        struct forward norm = {.name = "norm",
                               .n_in = 1,
                               .in = {x},
                               .n_out = 2,
                               .out_bytes = {bytes / 256, 8},
                               .constant_outputs = 3,
                               .seconds = 1e-3};
        build_forward(k, &norm);
        struct forward layer = {.name = "layer",
                                .n_in = 3,
                                .in = {x, norm.out[0], norm.out[1]},
                                .n_out = 1,
                                .out_bytes = {bytes},
                                .weight = 512,
                                .needs = 1 | 2 | 4,
                                .seconds = 1e-2};
        build_forward(k, &layer);
        x = layer.out[0];
    }
    return build_finish(k, x, 1);
}

/* The search does not drop scalars: it changes one storage at a time. */
static void test_scalars(void **state)
{
    struct graph *g = with_scalars(24);
    struct program *p;
    struct pool m = {NULL, false};
    struct chain c;
    int scalars = 0, others = 0, listed = 0;
    (void)state;
    assert_int_equal(program_build(g, &p), 0);
    assert_int_equal(chain_build(p, 1, 0, &m, &c), 0);
    for (int32_t s = 0; s < g->n_storages; s++) {
        const bool scalar = g->storages[s].bytes <= CKPT_ALIGN;
        scalars += p->droppable[s] && scalar;
        others += p->droppable[s] && !scalar;
    }
    assert_true(scalars >= 24 && others >= 2 * 24);
    for (int32_t n = 0; n < c.n; n++)
        for (int32_t i = 0; i < c.blocks[n].n_storage; i++, listed++)
            assert_true(g->storages[c.storages[c.blocks[n].storage + i]].bytes > CKPT_ALIGN);
    assert_int_equal(listed, others);
    pool_free(&m);
    program_free(p);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tied),
        cmocka_unit_test(test_transformer),
        cmocka_unit_test(test_micro_steps),
        cmocka_unit_test(test_smallest),
        cmocka_unit_test(test_smallest_between),
        cmocka_unit_test(test_crowded),
        cmocka_unit_test(test_smallest_alone),
        cmocka_unit_test(test_bound_falls),
        cmocka_unit_test(test_equal_blocks),
        cmocka_unit_test(test_recurrent),
        cmocka_unit_test(test_scalars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
