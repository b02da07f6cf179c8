/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parking: a program that needs more than the device has gets by with a lower tier at no cost, the
 * plan is proved, written and read back; and the checker sees every way in which parks can be
 * wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "graphs.h"
#include "models.h"
#include "plan/offload/transfer.h"

#define UNIT (INT64_C(1) << 22)

/* A unit takes 4 ms to copy, as long as an elementwise op on it. */
static const struct machine machine = {.name = "test",
                                       .d2h = 1.1e9,
                                       .h2d = 1.1e9,
                                       .d2h_both = 1e9,
                                       .h2d_both = 1e9,
                                       .nvme_read = 5e8,
                                       .nvme_write = 4e8};

struct fixture {
    struct graph *g;
    struct plan *p;
    int64_t least, most; /* device bytes without parks */
};

/* A layer with gradients in bf16, searched once for all tests of it. */
static struct graph *narrow;
static struct portfolio *narrow_plans;

static int make_narrow(void **state)
{
    const struct stdit_shape shape = {.depth = 1, .tokens = 2048, .narrow = true};
    (void)state;
    narrow = model_stdit_shape(&shape, &machine_cuda);
    return portfolio_build(narrow, &narrow_plans);
}

static int free_narrow(void **state)
{
    (void)state;
    portfolio_free(narrow_plans);
    graph_free(narrow);
    return 0;
}

static int plan_for(const struct graph *g, const struct machine *m, const struct budgets *b,
                    struct plan **p, char message[CKPT_MESSAGE])
{
    return g == narrow ? portfolio_plan(narrow_plans, m, b, 0, p, message)
                       : plan_make(g, m, b, 0, p, message);
}

static struct plan *make(const struct graph *g, int64_t device, int64_t host, int64_t nvme)
{
    char message[CKPT_MESSAGE];
    struct budgets b = {.device = device, .host = host, .nvme = nvme};
    struct plan *p;
    if (plan_for(g, &machine, &b, &p, message))
        fail_msg("no plan: %s", message);
    if (plan_check_arrays(g, p, message))
        fail_msg("plan_check: %s", message);
    assert_true(p->persistent + p->transient <= device);
    assert_true(p->host_bytes <= host && p->nvme_bytes <= nvme);
    assert_true(p->bound_seconds <= p->seconds * (1 + 1e-12));
    assert_true(p->exposed_seconds >= 0);
    return p;
}

/* A third of the way from the smallest to the largest budget without parks; or below the smallest,
 * where state has to leave. */
static struct fixture fixture_at(bool below, int64_t host, int64_t nvme)
{
    static int64_t least, most; /* searched for once */
    struct fixture f = {.g = graph_transformer(2, UNIT, 1)};
    if (!most) {
        struct plan *all = make(f.g, INT64_MAX, 0, 0);
        least = all->min_budget;
        most = plan_peak(all);
        plan_free(all);
    }
    f.least = least;
    f.most = most;
    int64_t device = below ? f.least / 8 * 7 : f.least + (f.most - f.least) / 3;
    f.p = make(f.g, device, host, nvme);
    assert_true(f.p->n_parks > 0);
    return f;
}

static struct fixture fixture(int64_t host, int64_t nvme)
{
    return fixture_at(false, host, nvme);
}

static void done(struct fixture *f)
{
    plan_free(f->p);
    if (f->g != narrow)
        graph_free(f->g);
}

static void expect_fault(struct fixture *f, const char *what)
{
    char message[CKPT_MESSAGE];
    assert_int_equal(plan_check_arrays(f->g, f->p, message), CKPT_EPLAN);
    if (!strstr(message, what))
        fail_msg("expected \"%s\", got \"%s\"", what, message);
    done(f);
}

/* A park of an activation, or of what wraps round the end of the step. */
static struct plan_park *find_park(const struct fixture *f, bool wraps)
{
    for (int32_t i = 0; i < f->p->n_parks; i++)
        if ((f->p->parks[i].use_step <= f->p->parks[i].out_step) == wraps)
            return &f->p->parks[i];
    fail_msg("no such park");
    return NULL;
}

static struct plan_instance *find_instance(const struct fixture *f, int32_t s, int32_t first)
{
    for (int32_t i = 0; i < f->p->n_instances; i++)
        if (f->p->instances[i].storage == s && f->p->instances[i].first == first)
            return &f->p->instances[i];
    fail_msg("no such instance");
    return NULL;
}

static void test_pays(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct plan *without = make(f.g, f.least + (f.most - f.least) / 3, 0, 0);
    assert_int_equal(without->n_parks, 0);
    /* What recompute costs falls by a third at least. */
    assert_true(f.p->recompute_seconds <= without->recompute_seconds * 2 / 3);
    plan_free(without);
    done(&f);
}

static void test_declines(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct plan *p = make(f.g, f.most, INT64_C(1) << 40, INT64_C(1) << 40);
    assert_int_equal(p->n_parks, 0);
    plan_free(p);
    done(&f);
}

static void test_tiers(void **state)
{
    (void)state;
    struct fixture host = fixture(INT64_C(1) << 40, 0);
    struct fixture both = fixture(2 * UNIT, INT64_C(1) << 40);
    assert_true(both.p->host_bytes <= 2 * UNIT && both.p->nvme_bytes > 0);
    assert_true(both.p->seconds >= host.p->seconds);
    done(&host);
    done(&both);
}

static void test_sweep(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct portfolio *pf;
    struct plan *plans[100];
    int64_t device[100];
    char message[CKPT_MESSAGE];
    double slower = 1e300;
    for (int i = 0; i < 100; i++)
        device[i] = f.least + (f.most - f.least) * i / 99;
    assert_int_equal(portfolio_build(f.g, &pf), 0);
    assert_int_equal(portfolio_sweep(pf, &machine, &f.p->budgets, 0, device, 100, plans), 0);
    portfolio_free(pf);
    for (int i = 0; i < 100; i++) {
        assert_non_null(plans[i]);
        assert_int_equal(plan_check_arrays(f.g, plans[i], message), 0);
        assert_true(plans[i]->seconds <= slower);
        slower = plans[i]->seconds;
        plan_free(plans[i]);
    }
    done(&f);
}

static void test_file(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    char path[] = "/tmp/ckpt-parks-XXXXXX", again[] = "/tmp/ckpt-parks-XXXXXX";
    char message[CKPT_MESSAGE], command[128];
    struct plan *p;
    close(mkstemp(path));
    close(mkstemp(again));
    assert_int_equal(plan_write(f.g, f.p, path, message), 0);
    assert_int_equal(plan_read(f.g, path, &p, message), 0);
    assert_int_equal(plan_check(f.g, p, message), 0);
    assert_int_equal(plan_write(f.g, p, again, message), 0);
    snprintf(command, sizeof(command), "cmp %s %s", path, again);
    assert_int_equal(system(command), 0);
    assert_int_equal(p->n_copies, f.p->n_copies);
    plan_free(p);
    unlink(path);
    unlink(again);
    done(&f);
}

/* The first, or the last, copy of a queue. */
static struct plan_park *find_copy(const struct fixture *f, bool out, bool last)
{
    struct plan_park *found = NULL;
    double best = 0;
    for (int32_t i = 0; i < f->p->n_parks; i++) {
        struct plan_park *k = &f->p->parks[i];
        double at = out ? k->out_start : k->in_start;
        if ((out && k->clean) || (found && last != (at > best)))
            continue;
        found = k;
        best = at;
    }
    assert_non_null(found);
    return found;
}

/* A copy in that ends later than the plan says makes the step longer than the plan says. */
static void test_wait_not_counted(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    find_copy(&f, false, true)->in_end += f.p->seconds / 10;
    expect_fault(&f, "with its copies a step takes");
    f = fixture(INT64_C(1) << 40, 0);
    f.p->exposed_seconds += f.p->seconds;
    f.p->seconds *= 2;
    expect_fault(&f, "with its copies a step takes");
}

static void test_used_while_away(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct plan_park *k = find_park(&f, false);
    k->use_step++;
    expect_fault(&f, "and is on the device from");
}

static void test_back_before_out(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct plan_park *last = NULL;
    for (int32_t i = 0; i < f.p->n_parks; i++) {
        struct plan_park *k = &f.p->parks[i];
        if (k->use_step > k->out_step && (!last || k->out_start > last->out_start))
            last = k;
    }
    assert_non_null(last);
    last->out_end = last->in_start + f.p->seconds / 1000;
    expect_fault(&f, "before it is out");
}

static void test_goes_too_early(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    find_park(&f, false)->out_start = 0;
    expect_fault(&f, "still uses its bytes");
}

static void test_no_room(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct plan_park *k = find_copy(&f, false, false);
    assert_true(k->in_step > 0);
    k->in_start = k->use_step > k->out_step ? k->out_end : 0;
    expect_fault(&f, "still uses its bytes");
}

static void test_order(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct plan_park *k = find_park(&f, false);
    k->free_step = k->in_step;
    expect_fault(&f, "no instance of");
}

static void test_residence(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct plan_park *k = find_park(&f, false);
    find_instance(&f, k->storage, k->in_step)->last++;
    k->free_step--;
    expect_fault(&f, "no instance of");
}

static void test_one_address(void **state)
{
    (void)state;
    struct fixture f = fixture_at(true, INT64_C(1) << 40, 0);
    for (int32_t i = 0; i < f.p->n_parks; i++) {
        struct plan_park *k = &f.p->parks[i];
        if (k->use_step > k->out_step || k->free_step >= k->out_step)
            continue;
        struct plan_instance *t = find_instance(&f, k->storage, 0);
        t->offset = f.p->transient;
        f.p->transient += f.g->storages[k->storage].bytes;
        f.p->budgets.device = INT64_MAX;
        expect_fault(&f, "one address");
        return;
    }
    fail_msg("nothing wraps round the end of the step");
}

/* The times of a machine with other costs are not compared, but the order of the queues is. */
static void test_busy_queue(void **state)
{
    (void)state;
    struct fixture f = fixture_at(true, INT64_C(1) << 40, 0);
    f.g->ops[0].seconds *= 2;
    struct plan_park *k = find_park(&f, true);
    assert_ptr_not_equal(k + 1, f.p->parks + f.p->n_parks);
    k->out_end += (k->out_end - k->out_start) * 2;
    expect_fault(&f, "while the queue is busy");
}

/* The copy in that follows that of k in their queue. */
static struct plan_park *find_next(const struct fixture *f, const struct plan_park *k)
{
    struct plan_park *next = NULL;
    for (int32_t i = 0; i < f->p->n_parks; i++) {
        struct plan_park *a = &f->p->parks[i];
        if (a != k && a->in_start >= k->in_end && (!next || a->in_start < next->in_start))
            next = a;
    }
    assert_non_null(next);
    return next;
}

/* A drive has queues of its own: its copies run beside those of the host. */
static void test_file_queues(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    char message[CKPT_MESSAGE];
    struct plan_park *k = find_park(&f, false), *next = find_next(&f, k);
    f.g->ops[0].seconds *= 2; /* other costs: only the order of the queues is compared */
    k->in_end = (next->in_start + next->in_end) / 2;
    assert_int_equal(plan_check_arrays(f.g, f.p, message), CKPT_EPLAN);
    assert_non_null(strstr(message, "while the queue is busy"));
    k->tier = FATE_PARK_NVME;
    k->tier_offset = 0;
    f.p->budgets.nvme = f.p->nvme_bytes = f.g->storages[k->storage].bytes;
    f.p->staging_bytes = 2 * PLAN_STAGING_SLOTS * PLAN_STAGING_SLOT;
    if (plan_check_arrays(f.g, f.p, message))
        fail_msg("plan_check: %s", message);
    done(&f);
}

/* Two copies change places in a queue: the first then waits for a step behind the one that waits
 * for the second. */
static void test_event_cycle(void **state)
{
    (void)state;
    struct fixture f = fixture_at(true, INT64_C(1) << 40, 0);
    struct plan_park *first = NULL, *last = NULL;
    f.g->ops[0].seconds *= 2;
    for (int32_t i = 0; i < f.p->n_parks; i++) {
        struct plan_park *k = &f.p->parks[i];
        if (!first || k->in_start < first->in_start)
            first = k;
        if (k->use_step <= k->out_step && (!last || k->in_start > last->in_start))
            last = k;
    }
    assert_true(first && last && first != last);
    double start = first->in_start, end = first->in_end;
    first->in_start = last->in_start;
    first->in_end = last->in_end;
    last->in_start = start;
    last->in_end = end;
    expect_fault(&f, "while the queue is busy");
}

static void test_tier_overflow(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    f.p->budgets.host = f.p->host_bytes - 1;
    expect_fault(&f, "over its budget");
    f = fixture(INT64_C(1) << 40, 0);
    f.p->host_bytes -= CKPT_ALIGN;
    expect_fault(&f, "leave the");
}

static void test_tier_overlap(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    assert_true(f.p->n_parks > 1);
    f.p->parks[1].tier_offset = f.p->parks[0].tier_offset;
    expect_fault(&f, "overlap");
}

static void test_cannot_leave(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct plan_park *k = find_park(&f, false);
    f.g->storages[k->storage].carried = true;
    f.p->signature = graph_signature(f.g);
    expect_fault(&f, "is carried but");
    f = fixture(INT64_C(1) << 40, 0);
    f.p->parks[0].tier = FATE_DROP;
    expect_fault(&f, "goes to no tier");
}

/* What is dropped and made again between two uses did not stay, so it cannot leave. */
static void test_absences(void **state)
{
    (void)state;
    struct graph *g = graph_transformer(3, UNIT, 1);
    struct portfolio *pf;
    int32_t found = 0;
    assert_int_equal(portfolio_build(g, &pf), 0);
    for (int32_t i = 0; i < pf->n; i++) {
        struct plan *p;
        struct absence *list;
        int32_t n;
        assert_int_equal(option_steps(pf, &pf->options.data[i], &p), 0);
        assert_int_equal(absences_find(g, &machine, p, &list, &n), 0);
        for (int32_t k = 0; k < n; k++) {
            if (list[k].instance < 0)
                continue;
            const struct plan_instance *t = &p->instances[list[k].instance];
            assert_true(t->first <= list[k].out_step && t->last >= list[k].use_step);
            found++;
        }
        free(list);
        plan_free(p);
    }
    assert_true(found > 0);
    portfolio_free(pf);
    graph_free(g);
}

static void test_clean_activation(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    find_park(&f, false)->clean = true;
    expect_fault(&f, "cannot leave without a copy");
}

/* y = w x, whose gradient goes where w was; the last op of the backward pass reads y or not. */
static bool runs_again(bool late)
{
    struct sketch *k = sketch_new();
    struct graph *g = k->g;
    struct program *p;
    int32_t x = sketch_input(k, UNIT), w = sketch_storage(k, UNIT, KIND_PARAMETER, "w");
    int32_t m = sketch_storage(k, UNIT, KIND_OPTIMIZER, "master");
    int32_t y = sketch_storage(k, UNIT, KIND_ACTIVATION, "y");
    int32_t d = sketch_storage(k, UNIT, KIND_TEMPORARY, "dy");
    int32_t e = sketch_storage(k, UNIT, KIND_TEMPORARY, "dx");
    int32_t op = sketch_op(k, GRAPH_FORWARD, "linear", 2, (int32_t[]){x, w}, 1, &y, 1e-3);
    sketch_op(k, GRAPH_BACKWARD, "dy", 1, &y, 1, &d, 1e-3);
    sketch_op(k, GRAPH_BACKWARD, "dw", 2, (int32_t[]){d, x}, 1, &w, 1e-3);
    sketch_op(k, GRAPH_BACKWARD, "dx", 1, late ? &y : &d, 1, &e, 1e-3);
    g->n_body = g->n_ops;
    g->n_micro = 1;
    sketch_op(k, GRAPH_UPDATE, "adamw", 2, (int32_t[]){w, m}, 2, (int32_t[]){w, m}, 1e-3);
    assert_int_equal(program_build(g, &p), 0);
    bool again = p->rerun[op];
    program_free(p);
    graph_free(g);
    free(k->gradient);
    free(k->forward);
    free(k);
    return again;
}

/* Gradients in the rooms of values: what reads a value runs again as long as it is there, and the
 * storage goes and comes with what it holds. */
static void test_gradients_in_values(void **state)
{
    (void)state;
    const struct graph *g = narrow;
    struct plan *all = make(g, INT64_MAX, 0, 0), *least = make(g, all->min_budget, 0, 0);
    struct plan *parked = make(g, all->persistent / 7 * 2, INT64_C(1) << 40, 0);
    bool *written = calloc((size_t)g->n_storages, sizeof(*written));
    int32_t again = 0, weights = 0;
    for (int32_t i = 0; i < g->n_body; i++)
        for (int32_t j = 0; j < g->ops[i].n_writes; j++)
            written[g->refs[g->ops[i].writes + j]] = true;
    for (int32_t k = 0; k < least->n_steps; k++)
        for (int32_t j = 0; j < g->ops[least->steps[k].op].n_reads; j++)
            again += least->steps[k].again &&
                     written[g->refs[g->ops[least->steps[k].op].reads + j]] &&
                     g->storages[g->refs[g->ops[least->steps[k].op].reads + j]].persistent;
    for (int32_t i = 0; i < parked->n_parks; i++)
        weights +=
            written[parked->parks[i].storage] && g->storages[parked->parks[i].storage].persistent;
    assert_true(again > 0 && weights > 0);
    assert_true(runs_again(false) && !runs_again(true));
    free(written);
    plan_free(all);
    plan_free(least);
    plan_free(parked);
}

/* Seconds in which copies in run from both tiers. */
static double both_come(const struct plan *p)
{
    double seconds = 0;
    for (int32_t i = 0; i < p->n_parks; i++)
        for (int32_t j = 0; j < p->n_parks; j++) {
            const struct plan_park *a = &p->parks[i], *b = &p->parks[j];
            double from = a->in_start > b->in_start ? a->in_start : b->in_start;
            double to = a->in_end < b->in_end ? a->in_end : b->in_end;
            if (a->tier == FATE_PARK_HOST && b->tier == FATE_PARK_NVME && from < to)
                seconds += to - from;
        }
    return seconds;
}

/* Where the update waits for copies, a drive beside the host's link makes it wait less than alone.
 */
static void test_two_lines(void **state)
{
    (void)state;
    const struct graph *g = narrow;
    int64_t device = 0;
    for (int32_t s = 0; s < g->n_storages; s++)
        device += g->storages[s].persistent ? g->storages[s].bytes / 3 : 0;
    struct plan *file = make(g, device, 0, INT64_C(1) << 40);
    struct plan *both = make(g, device, file->nvme_bytes * 3 / 5, INT64_C(1) << 40);
    assert_true(both_come(both) > both->seconds / 4);
    assert_true(both->seconds < file->seconds * 0.7);
    plan_free(file);
    plan_free(both);
}

/* A copy takes its bytes and what each copy takes. */
static void test_copy_overhead(void **state)
{
    (void)state;
    struct machine slow = machine;
    struct budgets b = {.host = INT64_C(1) << 40};
    struct plan *p, *other;
    char message[CKPT_MESSAGE];
    slow.copy_overhead = 2e-3;
    for (int32_t s = 0; s < narrow->n_storages; s++)
        b.device += narrow->storages[s].persistent ? narrow->storages[s].bytes / 2 : 0;
    assert_int_equal(plan_for(narrow, &machine, &b, &other, message), 0);
    assert_int_equal(plan_for(narrow, &slow, &b, &p, message), 0);
    assert_int_equal(plan_check_arrays(narrow, p, message), 0);
    assert_true(p->n_parks > 0 && p->seconds > other->seconds);
    for (int32_t i = 0; i < p->n_parks; i++) {
        const struct plan_park *k = &p->parks[i];
        double least = (double)narrow->storages[k->storage].bytes / 1e9 + 2e-3;
        assert_true(k->in_end - k->in_start >= least * (1 - 1e-9));
        assert_true(k->clean || k->out_end - k->out_start >= least * (1 - 1e-9));
    }
    plan_free(other);
    plan_free(p);
}

/* A drive that shares its rate between both ways: a copy beside another takes longer. */
static void test_drive_both_ways(void **state)
{
    (void)state;
    struct machine shared = machine;
    struct budgets b = {.nvme = INT64_C(1) << 40};
    struct plan *p, *other;
    char message[CKPT_MESSAGE];
    int32_t slower = 0;
    shared.nvme_both = 2e8;
    for (int32_t s = 0; s < narrow->n_storages; s++)
        b.device += narrow->storages[s].persistent ? narrow->storages[s].bytes / 2 : 0;
    assert_int_equal(plan_for(narrow, &machine, &b, &other, message), 0);
    assert_int_equal(plan_for(narrow, &shared, &b, &p, message), 0);
    assert_int_equal(plan_check_arrays(narrow, p, message), 0);
    assert_true(p->n_parks > 0 && p->seconds > 1.2 * other->seconds);
    for (int32_t i = 0; i < p->n_parks; i++) {
        const struct plan_park *k = &p->parks[i];
        double alone = (double)narrow->storages[k->storage].bytes / machine.nvme_read;
        double took = k->in_end - k->in_start;
        assert_true(took >= alone * (1 - 1e-9) && took <= 2.5 * alone * (1 + 1e-9));
        slower += took > 2.4 * alone;
    }
    assert_true(slower > 0);
    plan_free(other);
    plan_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pays),
        cmocka_unit_test(test_declines),
        cmocka_unit_test(test_tiers),
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_wait_not_counted),
        cmocka_unit_test(test_used_while_away),
        cmocka_unit_test(test_back_before_out),
        cmocka_unit_test(test_goes_too_early),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_residence),
        cmocka_unit_test(test_one_address),
        cmocka_unit_test(test_busy_queue),
        cmocka_unit_test(test_file_queues),
        cmocka_unit_test(test_event_cycle),
        cmocka_unit_test(test_tier_overflow),
        cmocka_unit_test(test_tier_overlap),
        cmocka_unit_test(test_cannot_leave),
        cmocka_unit_test(test_clean_activation),
        cmocka_unit_test(test_absences),
        cmocka_unit_test(test_gradients_in_values),
        cmocka_unit_test(test_two_lines),
        cmocka_unit_test(test_copy_overhead),
        cmocka_unit_test(test_drive_both_ways),
    };
    return cmocka_run_group_tests(tests, make_narrow, free_narrow);
}
