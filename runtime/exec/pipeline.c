/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the stages of a pipeline plan together: each has its own plan, and the step takes as long as
 * the order of 1F1B (passes/unroll.c) lets them work at once.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "exec/program.h"

static bool reads_parameter(const struct graph *g, const struct graph_op *o)
{
    for (int32_t j = 0; j < o->n_reads; j++)
        if (g->storages[g->refs[o->reads + j]].kind == KIND_PARAMETER)
            return true;
    return false;
}

/* The first and the last labelled op of the forward pass with a parameter. */
static void name_layers(const struct ckpt_program *p, struct stage_plan *s)
{
    const ckpt_tape *t = p->tape;
    const char *first = NULL, *last = NULL;
    for (int32_t i = 0; i < p->graph->n_body; i++) {
        const struct graph_op *g = &p->graph->ops[i];
        const struct op *o = &t->ops.data[g->tape_op];
        if (g->phase != GRAPH_FORWARD || !reads_parameter(p->graph, g) ||
            !*t->labels.data[o->label])
            continue;
        first = first ? first : t->labels.data[o->label];
        last = t->labels.data[o->label];
    }
    if (first)
        snprintf(s->layers, sizeof s->layers, strcmp(first, last) ? "%.24s to %.24s" : "%.24s",
                 first, last);
}

/* Seconds of a micro-step.  What a plan adds, such as recompute, is in the backward pass. */
static struct stage_plan describe(const struct ckpt_program *p)
{
    const struct graph *g = p->graph;
    const int n = p->tape->n_micro;
    struct stage_plan s = {.peak = p->plan->persistent + p->plan->transient,
                           .least = p->plan->min_budget};
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *o = &g->ops[i];
        if (i >= g->n_body)
            s.update += o->collective ? 0 : o->seconds;
        else if (!o->collective)
            *(o->phase == GRAPH_FORWARD ? &s.forward : &s.backward) += o->seconds / n;
        else if (o->collective == GRAPH_SEND)
            *(o->phase == GRAPH_FORWARD ? &s.send : &s.send_back) += o->comm_seconds / n;
        if (o->collective == GRAPH_SEND && o->phase == GRAPH_FORWARD)
            s.sent += g->storages[g->refs[o->reads]].bytes / n;
    }
    const double more = p->plan->recompute_seconds + p->plan->exposed_seconds;
    s.backward += more > 0 ? more / n : 0;
    name_layers(p, &s);
    return s;
}

/* ---- the step -------------------------------------------------------------------------------- */

struct clock_of {
    const struct stage_plan *s;
    int n, micro;
    double *forward, *backward; /* when a pass of a stage and micro-step has ended; -1: not yet */
};

static double *at(const struct clock_of *k, double *when, int stage, int micro)
{
    return &when[stage * k->micro + micro];
}

/* Forward passes of a stage before its first backward pass, but one. */
static int first_of(const struct clock_of *k, int stage)
{
    return k->n - 1 - stage < k->micro ? k->n - 1 - stage : k->micro;
}

/* When a gradient is there; 0 where none comes; -1: not yet known. */
static double gradient_comes(const struct clock_of *k, int stage, int micro)
{
    if (stage == k->n - 1)
        return 0;
    const double end = *at(k, k->backward, stage + 1, micro);
    return end < 0 ? -1 : end + k->s[stage + 1].send_back;
}

/* When an activation is there: a stage sends it after it has the gradient that is due. */
static double activation_comes(const struct clock_of *k, int stage, int micro)
{
    if (stage == 0)
        return 0;
    const int due = micro - first_of(k, stage - 1);
    const double made = *at(k, k->forward, stage - 1, micro),
                 turn = due < 0 ? 0 : gradient_comes(k, stage - 1, due);
    return made < 0 || turn < 0 ? -1 : (made > turn ? made : turn) + k->s[stage - 1].send;
}

/* Runs the passes of a stage from *next on that can run; returns whether any did. */
static bool advance(const struct clock_of *k, int stage, int *next, double *now)
{
    const int first = first_of(k, stage), was = *next;
    for (; *next < 2 * k->micro; ++*next) {
        /* first forward passes, then a forward and a backward pass in turns, then the rest */
        const int turn = *next - first, turns = 2 * (k->micro - first);
        const bool back = turn >= 0 && (turn >= turns || turn % 2);
        const int micro = turn < 0        ? *next
                          : turn >= turns ? *next - k->micro
                          : back          ? turn / 2
                                          : first + turn / 2;
        const double comes =
            back ? gradient_comes(k, stage, micro) : activation_comes(k, stage, micro);
        if (comes < 0)
            break;
        *now = (comes > *now ? comes : *now) + (back ? k->s[stage].backward : k->s[stage].forward);
        *at(k, back ? k->backward : k->forward, stage, micro) = *now;
    }
    return *next > was;
}

double pipeline_seconds(const struct stage_plan *s, int n, int micro)
{
    const size_t size = (size_t)n * (size_t)micro;
    struct clock_of k = {s, n, micro, malloc(size * sizeof(double)), malloc(size * sizeof(double))};
    int *next = calloc((size_t)n, sizeof *next);
    double *now = calloc((size_t)n, sizeof *now), end = 0, update = 0;
    bool moves = k.forward && k.backward && next && now;
    for (size_t i = 0; i < size && moves; i++)
        k.forward[i] = k.backward[i] = -1;
    while (moves) {
        moves = false;
        for (int stage = 0; stage < n; stage++)
            moves |= advance(&k, stage, &next[stage], &now[stage]);
    }
    for (int stage = 0; stage < n && next && now; stage++) {
        end = next[stage] < 2 * micro ? NAN : now[stage] > end ? now[stage] : end;
        update = s[stage].update > update ? s[stage].update : update;
    }
    free(k.forward);
    free(k.backward);
    free(next);
    free(now);
    return end + update; /* the norm is of all gradients */
}

/* ---- all stages ------------------------------------------------------------------------------ */

static int64_t bytes_held(const ckpt_tape *t)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < t->n_params; i++)
        if (t->param_stage[i] == t->env.sharing.stage)
            bytes += desc_bytes(&t->env.params->data[i].desc);
    return bytes;
}

/* Plans this stage.  That no plan fits is part of the result. */
static int plan_stage(struct ckpt_program *p, struct stage_plan *s)
{
    int rc = program_plan(p);
    *s = rc ? (struct stage_plan){0} : describe(p);
    snprintf(s->device, sizeof s->device, "%s",
             p->programs->backend == CKPT_ON_CUDA ? "cuda" : "cpu");
    s->held = bytes_held(p->tape);
    s->budget = p->programs->budget;
    if (rc != CKPT_EBUDGET)
        return rc;
    snprintf(s->refused, sizeof s->refused, "%s", error_get());
    return program_least_budget(p, &s->least);
}

/* Ranks that do not exist: plans one stage after another, up to one that does not fit, and keeps
 * the plan of the one that needs the most memory. */
static int plan_each(struct ckpt_program *p, const struct ckpt_variant *variant, int64_t micro)
{
    struct sharing *sharing = &p->programs->ranks->sharing;
    int most = 0, rc = plan_stage(p, &p->stages[0]);
    for (int s = 1; s <= sharing->stages && !rc && !*p->stages[s - 1].refused; s++) {
        sharing->stage = s < sharing->stages ? s : most;
        if (sharing->stage == s - 1 && s == sharing->stages)
            break;
        program_drop_plan(p);
        rc = program_draft(p, variant, micro);
        if (!rc)
            rc = program_run_first(p);
        if (!rc)
            rc = plan_stage(p, &p->stages[sharing->stage]);
        most = !rc && p->stages[sharing->stage].peak > p->stages[most].peak ? sharing->stage : most;
    }
    return rc;
}

/* All stages plan at once, and learn of each other. */
static int plan_together(struct ckpt_program *p)
{
    struct ranks *job = p->programs->ranks;
    struct stage_plan own;
    int rc = plan_stage(p, &own);
    if (rc && rc != CKPT_ECOMM)
        error_set(rc, "stage %d of %d: %s", job->sharing.stage + 1, job->sharing.stages,
                  error_get());
    if (rc)
        return ranks_give_up(job, rc);
    struct comm *hosts = ranks_hosts(job);
    const double deadline = hosts->deadline;
    struct stage_plan *all = calloc((size_t)job->sharing.ranks, sizeof *all);
    if (!all)
        return ranks_give_up(
            job, error_set(CKPT_ENOMEM, "no memory for the plans of %d ranks", job->sharing.ranks));
    hosts->deadline = PLAN_PATIENCE * deadline;
    rc = ranks_gather(job, &own, sizeof own, all);
    hosts->deadline = deadline;
    if (!rc) /* the pipelines have the same */
        memcpy(p->stages, all, (size_t)job->sharing.stages * sizeof *all);
    free(all);
    return rc;
}

/* A stage that does not fit gets fewer bytes of parameters: half of what it lacks, since
 * activations go with them.  Returns the last such stage, or -1. */
static int lower_limits(const struct ckpt_program *p)
{
    const struct ranks *job = p->programs->ranks;
    int last = -1;
    for (int s = 0; s < job->sharing.stages; s++) {
        const struct stage_plan *k = &p->stages[s];
        if (!*k->refused)
            continue;
        const double fits =
            k->least > k->budget ? (double)k->budget / (double)k->least : 0; /* of what it has */
        const int64_t most = (int64_t)((double)k->held * (1 + fits) / 2);
        job->limits[s].most = min_i64(most, k->held - 1);
        last = s;
    }
    return last;
}

/* Drafts the program with the next cut; what it was refused for last is the sentence if there is
 * none.  Parameters of earlier programs stay where they are. */
static int cut_again(struct ckpt_program *p, int stage, const struct ckpt_variant *variant,
                     int64_t micro)
{
    struct ranks *job = p->programs->ranks;
    const int n = job->sharing.stages;
    const struct stage_plan *k = &p->stages[stage];
    int rc = CKPT_EBUDGET;
    if (!programs_may_cut(p->programs))
        return error_set(rc, "stage %d of %d, on rank %d: %s", stage + 1, n, stage, k->refused);
    if (!job->comm)
        job->sharing.stage = 0;
    program_drop_plan(p);
    rc = program_draft(p, variant, micro);
    if (!rc)
        rc = program_run_first(p);
    return rc != CKPT_EBUDGET
               ? rc
               : error_set(
                     rc,
                     "--stages %d: no cut fits the memory of all ranks; of the last one stage "
                     "%d, on rank %d: %s",
                     n, stage + 1, stage, k->refused);
}

int program_plan_stages(struct ckpt_program *p, const struct ckpt_variant *variant, int64_t micro)
{
    const struct ranks *job = p->programs->ranks;
    const int n = job->sharing.stages;
    int rc = 0, refused = 0;
    free(p->stages);
    p->stages = calloc((size_t)n, sizeof *p->stages);
    if (!p->stages)
        return error_set(CKPT_ENOMEM, "no memory for the stages of a pipeline");
    while (!rc && refused >= 0) {
        memset(p->stages, 0, (size_t)n * sizeof *p->stages);
        rc = job->comm ? plan_together(p) : plan_each(p, variant, micro);
        refused = rc ? -1 : lower_limits(p);
        if (refused >= 0)
            rc = cut_again(p, refused, variant, micro);
    }
    if (!rc)
        p->pipeline_seconds = pipeline_seconds(p->stages, n, p->tape->n_micro);
    return rc;
}
