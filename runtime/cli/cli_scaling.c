/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt plan --world: a scaling study of a rank's step for numbers of ranks up to a limit; with
 * --sequence auto, --tensor auto or --stages auto, for one number of ranks, all ways to split
 * sequences or layers and to shard.
 */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include "cli/cli.h"
#include "dist/shard/sharing.h"
#include "plan/graph/graph_file.h"
#include "plan/scale/scaling_graph.h"
#include "plan/scale/scaling_study.h"
#include "report/scaling_svg.h"

enum {
    MAX_RANK_COUNTS = 24,
    VARIANTS = 7,
    LEAST_MEMORY = 3, /* the variant with the smallest memory */
    MAX_SPLITS = 48
};

static const char *const names[VARIANTS] = {"zero 0",
                                            "zero 1",
                                            "zero 2",
                                            "zero auto",
                                            "zero 1 in hosts",
                                            "zero 2 in hosts",
                                            "zero auto in hosts"};

struct row {
    int32_t ranks;
    struct scaling_step steps[VARIANTS];
    bool tried[VARIANTS];
};

struct curve {
    const struct plan_job *job;
    struct scaling_study *study;
    struct row rows[MAX_RANK_COUNTS];
    int32_t n;
    int32_t sequence; /* ranks that split a sequence, or */
    int32_t tensor;   /* layers: the smallest job; 1: none do */
    int32_t stages;   /* of a pipeline; below 2: none */
    double alone;     /* seconds of one rank's ops without any waiting */
};

static struct scaling_layout layout_of(const struct curve *c, int32_t ranks, int variant)
{
    int32_t host = (int32_t)c->job->machine.links.ranks_per_host;
    return (struct scaling_layout){ranks, variant > LEAST_MEMORY ? host : ranks,
                                   variant > LEAST_MEMORY ? variant - LEAST_MEMORY : variant};
}

/* Sharing within hosts differs from sharing among all only with several full hosts. */
static bool is_distinct(const struct curve *c, int32_t ranks, int variant)
{
    int64_t host = c->job->machine.links.ranks_per_host;
    if (c->stages > 1)
        return sharing_stages_may(ranks, c->stages, variant, variant > LEAST_MEMORY);
    if (variant > LEAST_MEMORY)
        return ranks > host && ranks % host == 0 && host > 1 && c->tensor < 2;
    return variant == 0 || ranks > 1;
}

static int fill_row(struct curve *c, struct row *r)
{
    const struct plan_job *job = c->job;
    int64_t device = job->budgets.device;
    if (device != INT64_MAX)
        device = max_i64(1, device - job->machine.process);
    for (int variant = 0; variant < VARIANTS; variant++) {
        struct scaling_layout l = layout_of(c, r->ranks, variant);
        r->tried[variant] = is_distinct(c, r->ranks, variant);
        if (r->tried[variant] && scaling_study_plan(c->study, &l, device, &r->steps[variant]))
            return cli_fail("out of host memory");
    }
    return 0;
}

/* The fastest variant that fits; on a tie the one with less memory; -1 if none fits. */
static int best_of(const struct row *r)
{
    int best = -1;
    for (int variant = 0; variant < VARIANTS; variant++) {
        const struct scaling_step *s = &r->steps[variant], *b = &r->steps[best < 0 ? 0 : best];
        if (!r->tried[variant] || !s->fits)
            continue;
        double slack = 1e-4 * b->seconds;
        if (best < 0 || s->seconds < b->seconds - slack ||
            (s->seconds <= b->seconds + slack && s->bytes < b->bytes))
            best = variant;
    }
    return best;
}

static void print_header(void)
{
    printf("%8s %6s  %-18s %12s %12s %10s %10s %10s %7s\n", "ranks", "hosts", "shares", "memory",
           "step", "recompute", "exposed", "comm", "speed");
}

static void print_step(const struct curve *c, const struct row *r, int variant)
{
    const struct scaling_step *s = &r->steps[variant < 0 ? LEAST_MEMORY : variant];
    int64_t host = c->job->machine.links.ranks_per_host;
    printf("%8d %6lld  %-18s ", (int)r->ranks, (long long)((r->ranks + host - 1) / host),
           variant < 0     ? "does not fit"
           : r->ranks == 1 ? "nothing"
                           : names[variant]);
    if (!r->tried[variant < 0 ? LEAST_MEMORY : variant]) {
        putchar('\n');
        return;
    }
    printf("%12s ", human_bytes(s->bytes + c->job->machine.process));
    if (!s->fits) {
        puts("  does not fit");
        return;
    }
    printf("%12s ", human_seconds(s->seconds));
    printf("%10s ", human_seconds(s->recompute));
    printf("%10s ", human_seconds(s->exposed));
    printf("%10s %6.1f%%\n", human_seconds(s->comm), 100 * c->alone / s->seconds);
}

static void print_links(const struct plan_job *job)
{
    const struct links *l = &job->machine.links;
    printf("%s: a rank's step on %s%s, %lld ranks a host\n", plan_source(job->o), job->machine.name,
           job->machine.estimate ? " (an estimate)" : "", (long long)l->ranks_per_host);
    printf("links: %.4g GB/s and %.3g us a hop within a host, %.4g GB/s a rank and %.3g us between "
           "hosts;\n%.3g us a collective, and %.3g of its time from what runs beside it\n\n",
           1e-9 * l->host, 1e6 * l->host_latency, 1e-9 * l->net, 1e6 * l->net_latency,
           1e6 * l->overhead, l->contention);
}

static void print_curve(const struct curve *c)
{
    const struct row *last = &c->rows[c->n - 1];
    print_links(c->job);
    if (c->sequence > 1)
        printf("each %d ranks split the tokens of their samples\n\n", (int)c->sequence);
    if (c->tensor > 1)
        printf("each %d ranks split the layers, and have the same samples\n\n", (int)c->tensor);
    print_header();
    for (int32_t i = 0; i < c->n; i++)
        print_step(c, &c->rows[i], best_of(&c->rows[i]));
    printf("\nways to share among %d ranks:\n", (int)last->ranks);
    print_header();
    for (int variant = 0; variant < VARIANTS; variant++)
        if (last->tried[variant])
            print_step(c, last, variant);
    int best = best_of(last);
    if (best >= 0)
        printf("\nbest for %d ranks: %s\n", (int)last->ranks,
               last->ranks == 1 ? "one rank shares nothing" : names[best]);
}

static int draw(const struct curve *c)
{
    double values[VARIANTS][MAX_RANK_COUNTS], memory[VARIANTS][MAX_RANK_COUNTS];
    const double *lines[VARIANTS], *bytes[VARIANTS];
    int64_t budget = c->job->budgets.device;
    int32_t ranks[MAX_RANK_COUNTS];
    for (int32_t i = 0; i < c->n; i++)
        ranks[i] = c->rows[i].ranks;
    for (int variant = 0; variant < VARIANTS; variant++) {
        lines[variant] = values[variant];
        bytes[variant] = memory[variant];
        for (int32_t i = 0; i < c->n; i++) {
            const struct row *r = &c->rows[i];
            bool fits = r->tried[variant] && r->steps[variant].fits;
            values[variant][i] = fits ? c->alone / r->steps[variant].seconds : -1;
            memory[variant][i] =
                fits ? (double)(r->steps[variant].bytes + c->job->machine.process) : -1;
        }
    }
    struct scaling_chart chart = {.title = "Speed against ranks, each with a batch of its own",
                                  .machine = c->job->machine.name,
                                  .ranks = ranks,
                                  .n = c->n,
                                  .names = names,
                                  .efficiency = lines,
                                  .bytes = bytes,
                                  .budget = budget == INT64_MAX ? 0 : (double)budget,
                                  .n_lines = VARIANTS};
    return scaling_svg_write(&chart, c->job->o->svg) ? cli_fail("%s", error_get()) : 0;
}

static int fill_curve(struct curve *c)
{
    struct scaling_layout one = {1, 1, 0};
    struct scaling_step alone;
    int32_t last = (int32_t)c->job->o->world;
    int rc = 0;
    const int32_t group = c->sequence > 1 ? c->sequence : c->tensor;
    if (last % group)
        return cli_fail("--world %d: the ranks do not divide into groups of %d, which split %s in "
                        "this graph",
                        (int)last, (int)group, c->sequence > 1 ? "a sequence" : "layers");
    if (scaling_study_plan(c->study, &one, INT64_MAX, &alone))
        return cli_fail("out of host memory");
    c->alone = alone.compute;
    for (int32_t ranks = group; ranks < last; ranks *= 2)
        c->rows[c->n++].ranks = ranks;
    c->rows[c->n++].ranks = last;
    for (int32_t i = 0; i < c->n && !rc; i++)
        rc = fill_row(c, &c->rows[i]);
    return rc;
}

static int read_links(struct plan_job *job)
{
    const struct plan_options *o = job->o;
    if (o->link_file && machine_read_links(o->link_file, &job->machine))
        return cli_fail("%s", error_get());
    if (o->hosts)
        job->machine.links.ranks_per_host = (o->world + o->hosts - 1) / o->hosts;
    return 0;
}

/* ---- ways to split sequences and layers ------------------------------------------------------ */

/* Of one way to split: its best variant, and seconds for as many samples as groups of one rank have
 * in a step; without one that fits, the memory it would take. */
struct split {
    int32_t sequence, tensor, stages; /* ranks of a group; 1: they split nothing */
    int best;
    double seconds;
    int64_t bytes;
};

static int32_t ranks_of(const struct split *s)
{
    return s->sequence * s->tensor * s->stages;
}

static const char *name_of(const struct split *s, char dst[32])
{
    if (ranks_of(s) == 1)
        snprintf(dst, 32, "no split");
    else
        snprintf(dst, 32, "%s %d",
                 s->stages > 1   ? "stages"
                 : s->tensor > 1 ? "tensor"
                                 : "sequence",
                 (int)ranks_of(s));
    return dst;
}

/* The file that a program has written for this way, or its stage i. */
static int name_file(const char *graph, const struct split *s, int32_t i, char path[4096])
{
    if (s->stages > 1)
        return graph_name_stage(path, 4096, graph, s->stages, i) ? cli_fail("%s", error_get()) : 0;
    snprintf(path, 4096, "%s.%s%d", graph, s->tensor > 1 ? "tensor." : "", (int)ranks_of(s));
    return 0;
}

/* Whether the graph of a file is of this way, and of the same pipeline as that of stage 1. */
static int check_graph(const struct plan_job *job, const struct split *s, int32_t i,
                       const struct graph *g, const struct graph *first, const char *path)
{
    const struct graph_pipeline *of = &g->pipeline, *all = &first->pipeline;
    if ((of->stages ? of->stages : 1) != s->stages || of->stage != i)
        return cli_fail("%s: it is of stage %d of %d, not of stage %d of %d", path, of->stage + 1,
                        of->stages ? of->stages : 1, (int)i + 1, (int)s->stages);
    if (of->pipelines != all->pipelines || of->unrolled != all->unrolled)
        return cli_fail("%s: it has %d micro-steps, of %d pipelines, where stage 1 has %d of %d: "
                        "write the graphs of all stages anew",
                        path, of->unrolled, of->pipelines, all->unrolled, all->pipelines);
    if (scaling_sequence(g) != s->sequence || scaling_tensor(g) != s->tensor)
        return cli_fail("%s: its ranks split sequences in groups of %d and layers in groups of %d, "
                        "not of %d and %d",
                        path, (int)scaling_sequence(g), (int)scaling_tensor(g), (int)s->sequence,
                        (int)s->tensor);
    return scaling_has_groups(g, (int32_t)job->o->world) ? 0
                                                         : cli_fail("%s: %s", path, error_get());
}

/* The graphs of all stages, or the only one. *graphs stays NULL where the first has no file. */
static int read_split(const struct plan_job *job, const struct split *s, struct graph ***graphs)
{
    char path[4096];
    int rc = name_file(job->o->graph, s, 0, path);
    if (rc || access(path, F_OK))
        return rc;
    struct graph **g = *graphs = calloc((size_t)s->stages, sizeof(*g));
    if (!g)
        return cli_fail("out of host memory");
    for (int32_t i = 0; i < s->stages && !rc; i++) {
        rc = name_file(job->o->graph, s, i, path);
        if (!rc && graph_read(path, &g[i]))
            rc = cli_fail("%s", error_get());
        rc = rc ? rc : check_graph(job, s, i, g[i], g[0], path);
    }
    return rc;
}

static void free_graphs(struct graph **graphs, const struct split *s)
{
    for (int32_t i = 0; i < s->stages && graphs; i++)
        graph_free(graphs[i]);
    free(graphs);
}

static int study_split(struct plan_job *job, struct graph *const *graphs, struct split *s)
{
    struct curve c = {
        .job = job, .sequence = s->sequence, .tensor = s->tensor, .stages = s->stages, .n = 1};
    struct row *r = c.rows;
    const struct scaling_layout one = {1, 1, 0};
    struct scaling_step alone;
    char name[32];
    if (scaling_study_open_stages(graphs, s->stages, &job->machine, &c.study))
        return cli_fail("%s", error_get());
    r->ranks = (int32_t)job->o->world;
    int rc = scaling_study_plan(c.study, &one, INT64_MAX, &alone) ? cli_fail("out of host memory")
                                                                  : fill_row(&c, r);
    c.alone = alone.compute;
    scaling_study_free(c.study);
    if (rc)
        return rc;
    for (int variant = 0; variant < VARIANTS; variant++)
        if (r->tried[variant]) {
            printf("%-12s ", name_of(s, name));
            print_step(&c, r, variant);
        }
    s->best = best_of(r);
    const struct scaling_step *step = &r->steps[s->best >= 0             ? s->best
                                                : r->tried[LEAST_MEMORY] ? LEAST_MEMORY
                                                                         : 0];
    s->seconds = ranks_of(s) * step->seconds;
    s->bytes = step->bytes + job->machine.process;
    return 0;
}

/* Why no other way is taken. */
static void explain_split(const struct split *s, const struct split *best)
{
    char name[32];
    if (s == best)
        return;
    name_of(s, name);
    if (s->best < 0)
        printf("  %s: does not fit; it takes %s\n", name, human_bytes(s->bytes));
    else
        printf("  %s, %s: %.1f %% more time for each sample\n", name, names[s->best],
               100 * (s->seconds / best->seconds - 1));
}

static void print_best(const struct split *splits, int n)
{
    const struct split *best = NULL;
    char name[32];
    for (int i = 0; i < n; i++)
        if (splits[i].best >= 0 && (!best || splits[i].seconds < best->seconds * (1 - 1e-4)))
            best = &splits[i];
    if (!best) {
        puts("\nno way fits");
        return;
    }
    printf("\nbest: %s, %s: of what fits, the least time for each sample\n", name_of(best, name),
           names[best->best]);
    for (int i = 0; i < n; i++)
        explain_split(&splits[i], best);
}

/* Adds a way whose graphs are there. */
static int add_split(struct plan_job *job, struct split s, struct split *splits, int *n)
{
    struct graph **graphs = NULL;
    int rc = read_split(job, &s, &graphs);
    if (graphs && !rc)
        rc = study_split(job, graphs, &s);
    if (graphs && !rc)
        splits[(*n)++] = s;
    free_graphs(graphs, &s);
    return rc;
}

static int compare_splits(struct plan_job *job)
{
    const struct plan_options *o = job->o;
    struct split splits[MAX_SPLITS];
    int n = 0, rc = 0;
    print_links(job);
    printf("%-12s ", "");
    print_header();
    for (int32_t k = 1; k <= o->world && n < MAX_SPLITS && !rc; k++)
        if (o->world % k == 0 && (k == 1 || o->sequence))
            rc = add_split(job, (struct split){k, 1, 1, .best = -1}, splits, &n);
    for (int32_t k = 2; k <= o->world && n < MAX_SPLITS && !rc; k++)
        if (o->world % k == 0 && o->tensor)
            rc = add_split(job, (struct split){1, k, 1, .best = -1}, splits, &n);
    for (int32_t k = 2; k <= o->world && n < MAX_SPLITS && !rc; k++)
        if (o->world % k == 0 && o->stages)
            rc = add_split(job, (struct split){1, 1, k, .best = -1}, splits, &n);
    if (!rc && !n)
        rc = cli_fail("%s.1, ...: there is no such graph; a program writes them with %s "
                      "--plan-only --graph-out %s",
                      o->graph,
                      o->stages   ? "--stages auto"
                      : o->tensor ? "--tensor auto"
                                  : "--sequence auto",
                      o->graph);
    if (!rc)
        print_best(splits, n);
    return rc;
}

int cli_scaling(struct plan_job *job)
{
    struct curve c = {.job = job};
    int rc = read_links(job);
    if (rc || plan_compares(job->o))
        return rc ? rc : compare_splits(job);
    if (job->graph->pipeline.stages)
        return cli_fail("%s: it is of stage %d of %d alone: give the FILE of all FILE.stages.%d.1, "
                        "... with --stages auto",
                        plan_source(job->o), job->graph->pipeline.stage + 1,
                        job->graph->pipeline.stages, job->graph->pipeline.stages);
    c.sequence = scaling_sequence(job->graph);
    c.tensor = scaling_tensor(job->graph);
    if (!scaling_has_groups(job->graph, (int32_t)job->o->world))
        return cli_fail("%s", error_get());
    if (scaling_study_open(job->graph, &job->machine, &c.study))
        return cli_fail("%s", error_get());
    rc = fill_curve(&c);
    if (!rc)
        print_curve(&c);
    if (!rc && job->o->svg)
        rc = draw(&c);
    scaling_study_free(c.study);
    return rc;
}
