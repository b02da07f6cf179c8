/* SPDX-License-Identifier: Apache-2.0 */
/* The checker finds and names every planted fault. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "graphs.h"

/* A plan with recompute, and its graph. */
struct fixture {
    struct graph *g;
    struct plan *p;
};

static struct fixture smallest(struct graph *g)
{
    struct plan *all = plan_checked(g, INT64_MAX);
    struct fixture f = {g, plan_checked(g, all->min_budget)};
    plan_free(all);
    return f;
}

static void done(struct fixture *f)
{
    plan_free(f->p);
    graph_free(f->g);
}

/* Recomputes the load, so that the planted fault is the only one. */
static void refit(struct fixture *f)
{
    assert_int_equal(plan_measure(f->g, f->p), 0);
}

static void expect_fault(struct fixture *f, const char *what)
{
    assert_int_equal(plan_check(f->g, f->p), CKPT_EPLAN);
    if (!strstr(error_get(), what))
        fail_msg("expected \"%s\" in \"%s\"", what, error_get());
}

static int32_t find_again(const struct plan *p)
{
    for (int32_t k = 0; k < p->n_steps; k++)
        if (p->steps[k].again)
            return k;
    fail_msg("the plan recomputes nothing");
    return -1;
}

/* A residence that lasts for some steps, of a carried storage or of another one. */
static struct residence *find_long(struct fixture *f, bool carried)
{
    for (int32_t n = 0; n < f->p->n_residences; n++) {
        struct residence *i = &f->p->residences[n];
        if (i->storage >= 0 && i->last > i->first && !f->g->storages[i->storage].persistent &&
            f->g->storages[i->storage].carried == carried)
            return i;
    }
    fail_msg("no such residence");
    return NULL;
}

static void test_overlap(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_chain(8, 1 << 12));
    struct residence *a = f.p->residences;
    int32_t n = 1;
    while (a[n].first > a[n - 1].last || a[n].first < a[n - 1].first)
        n++;
    a[n].offset = a[n - 1].offset;
    expect_fault(&f, "overlap");
    done(&f);
}

static void test_workspace_overlaps(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_transformer(1, 1 << 14, 1));
    struct residence *a = f.p->residences, *w = a, *other = a;
    while (w->storage >= 0)
        w++;
    while (other->offset < 0 || other->storage < 0 || other->first > w->first ||
           other->last < w->first)
        other++;
    w->offset = other->offset;
    expect_fault(&f, "a workspace");
    done(&f);
}

static void test_workspace_missing(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_transformer(1, 1 << 14, 1));
    struct residence *w = f.p->residences;
    while (w->storage >= 0)
        w++;
    size_t left = (size_t)(f.p->residences + f.p->n_residences - w - 1);
    memmove(w, w + 1, left * sizeof(*w));
    f.p->n_residences--;
    expect_fault(&f, "has no workspace");
    done(&f);
}

static void test_shorter_than_its_uses(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_chain(8, 1 << 12));
    find_long(&f, false)->last--;
    refit(&f);
    expect_fault(&f, "which is not there");
    done(&f);
}

static void test_read_of_dropped(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_chain(8, 1 << 12));
    int32_t k = find_again(f.p);
    const struct graph_op *o = &f.g->ops[f.p->steps[k].op];
    for (int32_t n = 0; n < f.p->n_residences; n++) {
        struct residence *i = &f.p->residences[n];
        if (i->storage == f.g->refs[o->writes] && i->first == k) {
            memmove(i, i + 1, (size_t)(f.p->n_residences - n - 1) * sizeof(*i));
            f.p->n_residences--;
            break;
        }
    }
    refit(&f);
    expect_fault(&f, "writes input, which is not there");
    done(&f);
}

static void test_missing_base_op(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_chain(8, 1 << 12));
    f.p->n_steps--;
    f.p->n_body--;
    expect_fault(&f, "is missing");
    done(&f);
}

static void test_out_of_order(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_chain(8, 1 << 12));
    f.p->steps[1].op = 2;
    f.p->steps[2].op = 1;
    expect_fault(&f, "is due");
    done(&f);
}

static void test_base_op_twice(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_chain(8, 1 << 12));
    f.p->steps[find_again(f.p)].again = false;
    expect_fault(&f, "is due");
    done(&f);
}

static void test_must_not_rerun(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_chain(8, 1 << 12));
    f.g->ops[f.p->steps[find_again(f.p)].op].rerunnable = false;
    f.p->signature = graph_signature(f.g);
    expect_fault(&f, "must not run again");
    done(&f);
}

static void test_update_must_not_rerun(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_transformer(1, 1 << 14, 1));
    f.p->steps[f.p->n_steps - 1] = (struct plan_step){.op = 1, .again = true};
    expect_fault(&f, "runs again in the update");
    done(&f);
}

static void test_body_and_update(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_transformer(1, 1 << 14, 1));
    f.p->n_body--;
    expect_fault(&f, "the body ends");
    done(&f);
}

static void test_over_budget(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_transformer(1, 1 << 14, 1));
    f.p->budgets.device = plan_peak(f.p) - 1;
    expect_fault(&f, "over the budget");
    done(&f);
}

static void test_carried_comes_late(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_transformer(1, 1 << 14, 2));
    for (int32_t n = 0; n < f.p->n_residences; n++) {
        struct residence *r = &f.p->residences[n];
        if (r->first == 0 && r->storage >= 0 && f.g->storages[r->storage].carried)
            r->first = 1;
    }
    refit(&f);
    assert_int_equal(plan_sort(f.p), 0);
    expect_fault(&f, "comes only at step 1");
    done(&f);
}

static void test_carried_leaves(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_transformer(1, 1 << 14, 2));
    find_long(&f, true)->last = f.p->n_body - 2;
    refit(&f);
    expect_fault(&f, "leaves after");
    done(&f);
}

static void test_carried_leaves_in_update(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_transformer(1, 1 << 14, 2));
    struct residence *late = NULL;
    for (int32_t n = 0; n < f.p->n_residences; n++)
        if (f.p->residences[n].last > f.p->n_body && f.p->residences[n].offset >= 0)
            late = &f.p->residences[n];
    assert_non_null(late);
    late->last--;
    refit(&f);
    expect_fault(&f, "leaves after");
    done(&f);
}

static void test_outside(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_chain(8, 1 << 12));
    int64_t was = f.p->residences[3].offset;
    f.p->residences[3].offset = f.p->transient;
    expect_fault(&f, "leave the");
    f.p->residences[3].offset = -CKPT_ALIGN;
    expect_fault(&f, "leave the");
    f.p->residences[3].offset = was + 8;
    expect_fault(&f, "no multiple of");
    f.p->residences[3].offset = INT64_MAX / CKPT_ALIGN * CKPT_ALIGN;
    expect_fault(&f, "leave the");
    done(&f);
}

static void test_bad_residences(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_transformer(1, 1 << 14, 1));
    struct residence *i = find_long(&f, false), was = *i;
    i->storage = f.g->n_storages;
    expect_fault(&f, "is of storage");
    for (i->storage = 0; !f.g->storages[i->storage].persistent; i->storage++)
        ;
    expect_fault(&f, "lives on the device already");
    *i = was;
    i->last = f.p->n_steps;
    expect_fault(&f, "lasts from");
    i->last = was.first - 1;
    expect_fault(&f, "lasts from");
    i->storage = INT32_MIN;
    i->last = was.last;
    expect_fault(&f, "the workspace of step");
    *i = was;
    struct residence first = f.p->residences[0];
    f.p->residences[0] = f.p->residences[1];
    f.p->residences[1] = first;
    expect_fault(&f, "is out of order");
    done(&f);
}

static void test_bad_totals(void **state)
{
    (void)state;
    struct fixture f = smallest(graph_transformer(1, 1 << 14, 1));
    f.p->load += CKPT_ALIGN;
    expect_fault(&f, "the plan says");
    refit(&f);
    f.p->peak_step++;
    expect_fault(&f, "the plan says");
    f.p->persistent -= CKPT_ALIGN;
    expect_fault(&f, "persistent storages take");
    f.p->signature++;
    expect_fault(&f, "another program");
    done(&f);
}

/* ---- programs written by hand ---------------------------------------------------------------- */

/* x = f(w); w changes; y = g(x), where w is persistent or not. */
static struct graph *changing(enum graph_kind kind)
{
    struct graph_builder *k = build_new();
    int32_t w = build_storage(k, CKPT_ALIGN, kind, "running mean");
    int32_t x = build_storage(k, CKPT_ALIGN, KIND_ACTIVATION, "x");
    int32_t y = build_storage(k, CKPT_ALIGN, KIND_TEMPORARY, "y");
    if (kind == KIND_ACTIVATION)
        build_op(k, GRAPH_FORWARD, "make", 0, NULL, 1, &w, 1);
    build_op(k, GRAPH_FORWARD, "f", 1, &w, 1, &x, 1);
    build_op(k, GRAPH_FORWARD, "change", 1, &w, 1, &w, 1);
    int32_t big = build_storage(k, 64 * CKPT_ALIGN, KIND_ACTIVATION, "big");
    build_op(k, GRAPH_FORWARD, "other", 0, NULL, 1, &big, 1);
    build_op(k, GRAPH_BACKWARD, "g", 1, &x, 1, &y, 1);
    struct graph *g = k->g;
    g->n_body = g->n_ops;
    g->n_micro = 1;
    free(k->gradient);
    free(k->forward);
    free(k);
    return g;
}

/* A plan of the given steps (negative: again, which leaves op 0 to the caller) with residences of
 * one page each, at consecutive addresses. */
static struct plan *by_hand(struct graph *g, const int32_t *steps, int32_t n_steps,
                            const struct residence *residences, int32_t n)
{
    struct plan *p = calloc(1, sizeof(*p));
    p->signature = graph_signature(g);
    p->budgets.device = INT64_MAX;
    p->n_steps = p->n_body = n_steps;
    p->steps = calloc((size_t)n_steps, sizeof(*p->steps));
    for (int32_t k = 0; k < n_steps; k++)
        p->steps[k] = (struct plan_step){.op = abs(steps[k]), .again = steps[k] < 0};
    assert_int_equal(plan_reserve(p, n, 0), 0);
    for (int32_t i = 0; i < n; i++) {
        p->residences[plan_add_residence(p, residences[i])].offset = p->transient;
        p->transient += g->storages[residences[i].storage].bytes;
    }
    for (int32_t s = 0; s < g->n_storages; s++)
        p->persistent += g->storages[s].persistent ? g->storages[s].bytes : 0;
    assert_int_equal(plan_add_backings(g, p), 0);
    return p;
}

#define COUNT(a) ((int32_t)(sizeof(a) / sizeof(*(a))))

/* Storages of changing(): 1 w, 2 x, 3 y, 4 big. */
static void test_rerun_reads_changed_persistent(void **state)
{
    (void)state;
    struct graph *g = changing(KIND_PARAMETER);
    struct residence list[] = {{2, TIER_DEVICE, 0, 0, 0},
                               {4, TIER_DEVICE, 2, 2, 0},
                               {2, TIER_DEVICE, 3, 4, 0},
                               {3, TIER_DEVICE, 4, 4, 0}};
    int32_t steps[] = {0, 1, 2, 0, 3};
    struct fixture f = {g, by_hand(g, steps, COUNT(steps), list, COUNT(list))};
    f.p->steps[3].again = true;
    refit(&f);
    expect_fault(&f, "reads running mean in version 1, not 0");
    done(&f);
}

static void test_rerun_reads_changed_activation(void **state)
{
    (void)state;
    struct graph *g = changing(KIND_ACTIVATION);
    struct residence list[] = {{1, TIER_DEVICE, 0, 4, 0},
                               {2, TIER_DEVICE, 1, 1, 0},
                               {4, TIER_DEVICE, 3, 3, 0},
                               {2, TIER_DEVICE, 4, 5, 0},
                               {3, TIER_DEVICE, 5, 5, 0}};
    int32_t steps[] = {0, 1, 2, 3, -1, 4};
    struct fixture f = {g, by_hand(g, steps, COUNT(steps), list, COUNT(list))};
    refit(&f);
    expect_fault(&f, "reads running mean in version 2, not 1");
    done(&f);
}

static void test_rerun_overwrites_changed(void **state)
{
    (void)state;
    struct graph *g = changing(KIND_ACTIVATION);
    struct residence list[] = {{1, TIER_DEVICE, 0, 3, 0},
                               {2, TIER_DEVICE, 1, 5, 0},
                               {4, TIER_DEVICE, 4, 4, 0},
                               {3, TIER_DEVICE, 5, 5, 0}};
    int32_t steps[] = {0, 1, 2, 0, 3, 4};
    struct fixture f = {g, by_hand(g, steps, COUNT(steps), list, COUNT(list))};
    f.p->steps[3].again = true;
    refit(&f);
    expect_fault(&f, "runs again and would change running mean");
    done(&f);
}

static void test_read_before_write(void **state)
{
    (void)state;
    struct graph *g = changing(KIND_PARAMETER);
    struct residence list[] = {{2, TIER_DEVICE, 0, 0, 0},
                               {4, TIER_DEVICE, 2, 2, 0},
                               {2, TIER_DEVICE, 3, 3, 0},
                               {3, TIER_DEVICE, 3, 3, 0}};
    int32_t steps[] = {0, 1, 2, 3};
    struct fixture f = {g, by_hand(g, steps, COUNT(steps), list, COUNT(list))};
    refit(&f);
    expect_fault(&f, "reads x before anything wrote it");
    struct residence *x = f.p->residences;
    while (x->storage != 2)
        x++;
    x->last = 3;
    refit(&f);
    expect_fault(&f, "is there already");
    done(&f);
}

/* The planner handles the same programs: it keeps x. */
static void test_planner_keeps_what_changes(void **state)
{
    (void)state;
    enum graph_kind kinds[] = {KIND_PARAMETER, KIND_ACTIVATION};
    for (int i = 0; i < 2; i++) {
        struct fixture f = smallest(changing(kinds[i]));
        assert_true(f.p->recompute_seconds == 0);
        done(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_workspace_overlaps),
        cmocka_unit_test(test_workspace_missing),
        cmocka_unit_test(test_shorter_than_its_uses),
        cmocka_unit_test(test_read_of_dropped),
        cmocka_unit_test(test_missing_base_op),
        cmocka_unit_test(test_out_of_order),
        cmocka_unit_test(test_base_op_twice),
        cmocka_unit_test(test_must_not_rerun),
        cmocka_unit_test(test_update_must_not_rerun),
        cmocka_unit_test(test_body_and_update),
        cmocka_unit_test(test_over_budget),
        cmocka_unit_test(test_carried_comes_late),
        cmocka_unit_test(test_carried_leaves),
        cmocka_unit_test(test_carried_leaves_in_update),
        cmocka_unit_test(test_outside),
        cmocka_unit_test(test_bad_residences),
        cmocka_unit_test(test_bad_totals),
        cmocka_unit_test(test_rerun_reads_changed_persistent),
        cmocka_unit_test(test_rerun_reads_changed_activation),
        cmocka_unit_test(test_rerun_overwrites_changed),
        cmocka_unit_test(test_read_before_write),
        cmocka_unit_test(test_planner_keeps_what_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
