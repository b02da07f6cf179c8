/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiny programs by brute force: every set of dropped storages is tried with an independent model, a
 * recursive executor and liveness from the end of the program.  The planner's smallest peak is at
 * most a tenth above the best.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "graphs.h"

#define MOST_STEPS 4000
#define MOST_DROPS 8

struct brute {
    const struct graph *g;
    const bool *drop;
    bool have[512];
    int32_t steps[MOST_STEPS];
    int32_t n;
};

static bool lists(const struct graph *g, int32_t from, int32_t n, int32_t s)
{
    for (int32_t j = 0; j < n; j++)
        if (g->refs[from + j] == s)
            return true;
    return false;
}

static bool reads(const struct graph *g, int32_t i, int32_t s)
{
    return lists(g, g->ops[i].reads, g->ops[i].n_reads, s);
}

static bool writes(const struct graph *g, int32_t i, int32_t s)
{
    return lists(g, g->ops[i].writes, g->ops[i].n_writes, s);
}

static int32_t writer_of(const struct graph *g, int32_t s)
{
    for (int32_t i = 0; i < g->n_ops; i++)
        if (writes(g, i, s))
            return i;
    return -1;
}

static void brute_run(struct brute *b, int32_t i)
{
    const struct graph_op *o = &b->g->ops[i];
    for (int32_t j = 0; j < o->n_reads; j++) {
        int32_t s = b->g->refs[o->reads + j];
        if (b->drop[s] && !b->have[s])
            brute_run(b, writer_of(b->g, s));
    }
    assert_true(b->n < MOST_STEPS);
    b->steps[b->n++] = i;
    for (int32_t j = 0; j < o->n_writes; j++)
        b->have[b->g->refs[o->writes + j]] = true;
}

/* Bytes alive at the worst step; a storage is alive from a write to the last read before the next
 * write that does not read it. */
static int64_t brute_peak(const struct brute *b)
{
    const struct graph *g = b->g;
    bool alive[512] = {false};
    int64_t most = 0;
    for (int32_t k = b->n - 1; k >= 0; k--) {
        int32_t i = b->steps[k];
        int64_t now = g->ops[i].workspace;
        for (int32_t s = 0; s < g->n_storages; s++) {
            if (!g->storages[s].persistent && (alive[s] || reads(g, i, s) || writes(g, i, s)))
                now += g->storages[s].bytes;
            alive[s] = reads(g, i, s) || (alive[s] && !writes(g, i, s));
        }
        most = max_i64(most, now);
    }
    return most;
}

static int64_t peak_without(const struct graph *g, const bool *drop)
{
    struct brute *b = calloc(1, sizeof(*b));
    b->g = g;
    b->drop = drop;
    for (int32_t i = 0; i < g->n_ops; i++) {
        brute_run(b, i);
        if (g->ops[i].phase != GRAPH_FORWARD)
            for (int32_t s = 0; s < g->n_storages; s++)
                b->have[s] = b->have[s] && !drop[s];
        if (i + 1 < g->n_ops && g->ops[i].phase == GRAPH_FORWARD &&
            g->ops[i + 1].phase != GRAPH_FORWARD)
            for (int32_t s = 0; s < g->n_storages; s++)
                b->have[s] = b->have[s] && !drop[s];
    }
    int64_t peak = brute_peak(b);
    free(b);
    return peak;
}

/* Lists the droppable storages: written by one rerunnable forward op whose inputs do not change.
 * Returns -1 if the model of this file does not cover the program. */
static int32_t list_drops(const struct graph *g, int32_t *list)
{
    int32_t n = 0, writers[512] = {0};
    bool in_place[512] = {false};
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int32_t s = 0; s < g->n_storages; s++)
            if (writes(g, i, s)) {
                writers[s]++;
                in_place[s] |= reads(g, i, s);
            }
    for (int32_t s = 0; s < g->n_storages; s++) {
        int32_t w = writer_of(g, s);
        if (g->storages[s].carried || (writers[s] > 1 && g->storages[s].kind == KIND_ACTIVATION))
            return -1;
        if (w >= 0 && !g->storages[s].persistent && g->ops[w].rerunnable && writers[s] == 1) {
            if (n == MOST_DROPS)
                return -1;
            list[n++] = s;
        }
    }
    return n;
}

static bool compare(struct graph *g)
{
    int32_t list[MOST_DROPS], n = list_drops(g, list);
    if (n > 0) {
        int64_t best = INT64_MAX;
        for (uint32_t set = 0; set < 1u << n; set++) {
            bool drop[512] = {false};
            for (int32_t i = 0; i < n; i++)
                drop[list[i]] = set >> i & 1;
            best = min_i64(best, peak_without(g, drop));
        }
        struct plan *all = plan_checked(g, INT64_MAX);
        int64_t found = all->min_budget - all->persistent;
        if ((double)found > 1.1 * (double)best)
            fail_msg("the planner needs %lld bytes, brute force %lld", (long long)found,
                     (long long)best);
        plan_free(all);
    }
    graph_free(g);
    return n > 0;
}

static void test_chains(void **state)
{
    (void)state;
    for (int32_t n = 2; n <= 7; n++)
        assert_true(compare(graph_chain(n, 1 << 12)));
}

static void test_random(void **state)
{
    (void)state;
    int compared = 0;
    for (uint32_t seed = 0; seed < 400; seed += 2)
        compared += compare(graph_random(seed, 4 + (int32_t)(seed / 2 % 5)));
    assert_true(compared > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
