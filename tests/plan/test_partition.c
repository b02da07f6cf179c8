/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner beside the partitioner of torch.compile, on the same graph.  PyTorch chooses which
 * storages to save from the forward to the backward pass, within a share of their bytes, and runs
 * the ops of the others once more.  Its answers are data (tests/bench/torch_partition.py); the
 * seconds of these graphs are those of products alone, and proportional to their FLOP.
 *
 * The planner gets PyTorch's question: the first backward op of a copy of the graph has a workspace
 * as large as a whole step, so the peak is there, and the bytes alive there are the saved ones.
 * Then it gets its own: the FLOP within the peak of PyTorch's answer, and the peak with its FLOP.
 *
 * usage: test_partition [GRAPH PRICED ANSWERS]
 * With arguments it prints rows of a table; in PRICED, the same graph, all ops have seconds.
 */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "plan/graph/graph_file.h"
#include "graphs.h"

/* Options of a frontier differ by this part of their load or more (thin in frontier.c): ours may
 * need this much more than PyTorch's answer. */
#define STEP 512

/* A graph and its schedules. */
struct question {
    struct graph *g;
    struct frontier *frontier;
    int32_t boundary; /* the first backward op */
};

/* An answer of PyTorch, and ours. */
struct row {
    double budget;         /* activation_memory_budget */
    int64_t saved;         /* bytes that PyTorch saves */
    double torch, optimum; /* FLOP that it recomputes; the fewest with as many bytes */
    double same;           /* FLOP of ours that saves as many bytes, to 1/STEP of the load */
    int64_t same_saved;    /* bytes that this saves */
    int64_t peak;          /* live bytes of a step with PyTorch's answer */
    double within;         /* FLOP of ours within this peak */
    int64_t peak_same;     /* the smallest peak of ours that recomputes no more than PyTorch */
};

static struct question pose(const char *path, int64_t workspace)
{
    struct question q = {0};
    if (graph_read(path, &q.g))
        fail_msg("%s", error_get());
    while (q.g->ops[q.boundary].phase == GRAPH_FORWARD)
        q.boundary++;
    q.g->ops[q.boundary].workspace += workspace;
    assert_int_equal(frontier_build(q.g, &q.frontier), 0);
    return q;
}

static void question_free(struct question *q)
{
    frontier_free(q->frontier);
    graph_free(q->g);
}

static const struct schedule *play(const struct question *q, const int32_t *retention)
{
    const struct schedule *s;
    assert_int_equal(simulate(q->frontier->sim, retention, &s), 0);
    return s;
}

static double flops(const struct graph *g, const struct plan_step *steps, int32_t n)
{
    double sum = 0;
    for (int32_t k = 0; k < n; k++)
        if (steps[k].again)
            sum += g->ops[steps[k].op].flops;
    return sum;
}

static double option_flops(const struct question *q, const struct option *o)
{
    const struct schedule *s = play(q, o->retention);
    return flops(q->g, s->steps.data, s->n_steps);
}

/* Bytes alive at the first backward op, without its workspace. */
static int64_t bytes_saved(const struct question *q, const int32_t *retention)
{
    const struct schedule *s = play(q, retention);
    int32_t k = 0;
    while (s->steps.data[k].op != q->boundary)
        k++;
    return s->alive[k] - q->g->ops[q->boundary].workspace;
}

/* PyTorch's answer: what is saved stays, all else is recomputed once, when it is needed first. */
static int32_t *torch_retention(const struct question *q, const json_t *answer)
{
    const struct program *p = q->frontier->p;
    int32_t n = q->g->n_storages, *retention = calloc((size_t)n + 1, sizeof(*retention));
    size_t i;
    json_t *s;
    assert_non_null(retention);
    for (int32_t t = 0; t < n; t++)
        retention[t] = p->droppable[t] ? q->g->n_body - 1 : RETAIN_ALWAYS;
    json_array_foreach(json_object_get(answer, "saved"), i, s)
    {
        assert_in_range(json_integer_value(s), 0, n - 1);
        retention[json_integer_value(s)] = RETAIN_ALWAYS;
    }
    return retention;
}

/* A search with other random choices may recompute this part of a step more. */
#define SLACK 0.002

static int64_t with_step(int64_t load)
{
    return load + load / STEP;
}

static double number(const json_t *answer, const char *name)
{
    return json_number_value(json_object_get(answer, name));
}

/* PyTorch's question.  PyTorch's answer is played first: its load is the limit of ours. */
static void ask_same(const struct question *q, const int32_t *retention, struct row *r)
{
    const struct schedule *s = play(q, retention);
    const struct option *o = frontier_within(q->frontier, with_step(s->load));
    assert_true(flops(q->g, s->steps.data, s->n_steps) == r->torch);
    assert_non_null(o);
    int64_t fixed = bytes_saved(q, retention) - r->saved;
    r->same = option_flops(q, o);
    r->same_saved = bytes_saved(q, o->retention) - fixed;
}

/* Our question. */
static void ask_own(const struct question *q, const int32_t *retention, struct row *r)
{
    int32_t k = 0;
    r->peak = play(q, retention)->load;
    const struct option *o = frontier_within(q->frontier, with_step(r->peak));
    assert_non_null(o);
    r->within = option_flops(q, o);
    while (option_flops(q, &q->frontier->options.data[k]) > r->torch)
        k++; /* the last option recomputes nothing */
    r->peak_same = q->frontier->options.data[k].load;
}

static struct row compare(const struct question *same, const struct question *own,
                          const json_t *answer)
{
    struct row r = {.budget = number(answer, "budget"),
                    .saved = (int64_t)number(answer, "saved_bytes"),
                    .torch = number(answer, "flops"),
                    .optimum = number(answer, "optimum")};
    int32_t *retention = torch_retention(own, answer);
    ask_same(same, retention, &r);
    ask_own(own, retention, &r);
    free(retention);
    return r;
}

/* No schedule that recomputes an op once has a larger peak than one of these. */
static int64_t largest_peak(const struct question *own, const json_t *answers)
{
    int64_t peak = own->frontier->options.data[own->frontier->n - 1].load;
    size_t i;
    json_t *answer;
    json_array_foreach(answers, i, answer)
    {
        int32_t *retention = torch_retention(own, answer);
        peak = max_i64(peak, play(own, retention)->load);
        free(retention);
    }
    return peak;
}

/* The graph, the same graph in PyTorch's question, and PyTorch's answers. */
struct model {
    json_t *file, *answers;
    struct question own, same;
};

static struct model read_model(const char *graph, const char *answers)
{
    struct model m;
    json_error_t error;
    m.file = json_load_file(answers, 0, &error);
    if (!m.file)
        fail_msg("%s: %s", answers, error_get());
    m.answers = json_object_get(m.file, "answers");
    m.own = pose(graph, 0);
    m.same = pose(graph, largest_peak(&m.own, m.answers));
    return m;
}

static void model_free(struct model *m)
{
    json_decref(m->file);
    question_free(&m->own);
    question_free(&m->same);
}

/* The FLOP of a step that recomputes nothing. */
static double step_flops(const struct graph *g)
{
    double sum = 0;
    for (int32_t i = 0; i < g->n_ops; i++)
        sum += g->ops[i].flops;
    return sum;
}

/* ---- the table ------------------------------------------------------------------------------ */

static double giga(double x)
{
    return x * 1e-9;
}

/* Seconds within the peak of PyTorch's answer, of it and of ours, as parts of a step that
 * recomputes nothing. */
static void print_times(const struct question *priced, const json_t *answer)
{
    const struct program *p = priced->frontier->p;
    int32_t *retention = torch_retention(priced, answer);
    const struct schedule *s = play(priced, retention);
    const struct option *o = frontier_within(priced->frontier, s->load);
    printf(" %.3f | %.3f |\n", schedule_seconds(p, s->ticks) / p->seconds,
           o ? o->seconds / p->seconds : NAN);
    free(retention);
}

static void print_table(const struct model *m, const struct question *priced)
{
    size_t i;
    json_t *answer;
    json_array_foreach(m->answers, i, answer)
    {
        struct row r = compare(&m->same, &m->own, answer);
        printf("| %s | %.1f | %.3f | %.2f | %.2f | %.2f | %.2f %% | %.3f | %.2f | %.3f |",
               json_string_value(json_object_get(m->file, "model")), r.budget,
               giga((double)r.saved), giga(r.torch), giga(r.optimum), giga(r.same),
               100 * (r.same - r.optimum) / step_flops(m->own.g), giga((double)r.peak),
               giga(r.within), giga((double)r.peak_same));
        print_times(priced, answer);
    }
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* PyTorch's answer as a plan with addresses, which the checker proves; its budget is what it needs.
 */
static struct plan *torch_plan(const struct question *q, const int32_t *retention)
{
    struct frontier *f;
    assert_int_equal(frontier_build_first(q->g, &f), 0);
    assert_int_equal(frontier_try(f, retention, NULL), 0);
    struct plan *any = frontier_checked(f, INT64_MAX), *p = frontier_checked(f, any->min_budget);
    plan_free(any);
    frontier_free(f);
    return p;
}

static void check_answer(const struct model *m, const json_t *answer)
{
    struct row r = compare(&m->same, &m->own, answer);
    int32_t *retention = torch_retention(&m->own, answer);
    struct plan *theirs = torch_plan(&m->own, retention), *ours;
    double most = r.torch + SLACK * step_flops(m->own.g);
    /* At equal saved bytes. */
    assert_true(r.optimum <= r.torch && r.optimum <= r.same && r.same <= most);
    assert_true((double)r.same_saved <= (double)r.saved + 2 * (double)r.peak / STEP);
    /* At equal peaks, without and with addresses. */
    assert_true(r.within <= most && r.peak_same <= with_step(r.peak));
    ours = frontier_checked(m->own.frontier, with_step(plan_peak(theirs)));
    assert_true(ours->seconds <= theirs->seconds);
    plan_free(theirs);
    plan_free(ours);
    free(retention);
}

static void check_model(const char *name)
{
    const char *srcdir = getenv("srcdir");
    char graph[4096], answers[4096];
    size_t i;
    json_t *answer;
    srcdir = srcdir ? srcdir : ".";
    snprintf(graph, sizeof(graph), "%s/tests/data/partition/%s.graph", srcdir, name);
    snprintf(answers, sizeof(answers), "%s/tests/data/partition/%s.json", srcdir, name);
    struct model m = read_model(graph, answers);
    assert_true(json_array_size(m.answers) >= 4);
    json_array_foreach(m.answers, i, answer) check_answer(&m, answer);
    model_free(&m);
}

static void test_transformer(void **state)
{
    (void)state;
    check_model("transformer4");
}

/* Skips of every length: PyTorch's answers are not optimal here. */
static void test_unet(void **state)
{
    (void)state;
    check_model("unet3d");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_transformer),
                                              cmocka_unit_test(test_unet)};
    if (argc != 4)
        return cmocka_run_group_tests(tests, NULL, NULL);
    struct model m = read_model(argv[1], argv[3]);
    struct question priced = pose(argv[2], 0);
    print_table(&m, &priced);
    question_free(&priced);
    model_free(&m);
    return 0;
}
