/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the stages of a pipeline plan together: each has its own plan, and the step takes as long as
 * the order of 1F1B lets them work at once (plan/scale/pipeline.c).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "exec/program.h"
#include "ops.h"

/* Whether an op computes with a parameter of its rank, or one that pipelines share and gather.  A
 * copy is one to send. */
static bool reads_parameter(const ckpt_tape *t, const struct op *o)
{
    for (int i = 0; i < o->n_in && o->def != &op_copy; i++) {
        const int32_t x = op_in(t, o, i);
        if (x <= 0)
            continue;
        const struct storage *s = &t->storages.data[t->tensors.data[x].storage];
        const int32_t made = t->tensors.data[s->tensor].op;
        if (s->kind == STORAGE_VALUE || (made >= 0 && collective_gathers(t->ops.data[made].def)))
            return true;
    }
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
        if (g->phase != GRAPH_FORWARD || g->collective || !reads_parameter(t, o) ||
            !*t->labels.data[o->label])
            continue;
        first = first ? first : t->labels.data[o->label];
        last = t->labels.data[o->label];
    }
    if (first)
        snprintf(s->layers, sizeof s->layers, strcmp(first, last) ? "%.24s to %.24s" : "%.24s",
                 first, last);
}

static struct stage_plan describe(const struct ckpt_program *p)
{
    const struct graph *g = p->graph;
    struct stage_plan s = {.time = stage_seconds(g, p->plan),
                           .peak = p->plan->persistent + p->plan->transient,
                           .least = p->plan->min_budget};
    for (int32_t i = 0; i < g->n_ops; i++)
        if (g->ops[i].collective == GRAPH_SEND && g->ops[i].phase == GRAPH_FORWARD)
            s.sent += g->storages[g->refs[g->ops[i].reads]].bytes / g->pipeline.unrolled;
    name_layers(p, &s);
    return s;
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

/* A cut is sought with plans that need no search where all fits, and refusals that need none where
 * the largest op alone does not.  The last refusal is searched for its sentence, and the plan that
 * stays for all that it reports. */
enum purpose { SEEK, EXPLAIN, STAY };

/* Device bytes of this stage, if those that every plan takes are too many; else 0. */
static int bytes_beyond(struct ckpt_program *p, int64_t *bytes)
{
    struct budgets b;
    const int rc = program_find_budgets(p, &b);
    const int64_t fewest = rc ? 0 : plan_fewest_bytes(p->graph, &b, p->reserved);
    *bytes = fewest > b.device ? fewest : 0;
    return rc;
}

static int make_plan(struct ckpt_program *p, enum purpose purpose)
{
    const bool brief = p->brief;
    plan_free(p->plan);
    p->plan = NULL;
    p->brief |= purpose != STAY;
    const int rc = program_plan(p);
    p->brief = brief;
    return rc;
}

/* Plans this stage.  That no plan fits is part of the result. */
static int plan_stage(struct ckpt_program *p, enum purpose purpose, struct stage_plan *s)
{
    int64_t beyond = 0;
    int rc = purpose == SEEK ? bytes_beyond(p, &beyond) : 0;
    if (!rc && !beyond)
        rc = make_plan(p, purpose);
    *s = rc || beyond ? (struct stage_plan){.least = beyond} : describe(p);
    snprintf(s->device, sizeof s->device, "%s",
             p->programs->backend == CKPT_ON_CUDA ? "cuda" : "cpu");
    s->held = bytes_held(p->tape);
    s->budget = p->programs->budget;
    s->from = p->cut.from;
    s->to = p->cut.to;
    s->lacks = beyond || rc == CKPT_EBUDGET;
    if (rc != CKPT_EBUDGET)
        return rc;
    snprintf(s->refused, sizeof s->refused, "%s", error_get());
    return program_least_budget(p, &s->least);
}

/* Drafts the program by the cut that is next, as a stage if the ranks do not exist. */
static int draft_cut(struct ckpt_program *p, const struct ckpt_variant *variant, int64_t micro,
                     int stage)
{
    struct ranks *job = p->programs->ranks;
    if (!job->comm)
        job->sharing.stage = stage;
    program_drop_plan(p);
    const int rc = program_draft(p, variant, micro);
    return rc ? rc : program_run_first(p);
}

/* The last stage that no plan fits, or -1. */
static int lacking(const struct ckpt_program *p)
{
    int s = p->programs->ranks->sharing.stages - 1;
    while (s >= 0 && !p->stages[s].lacks)
        s--;
    return s;
}

/* Ranks that do not exist: plans one stage after another, while a cut is sought up to one that does
 * not fit, and keeps the plan of the one that needs the most memory. */
static int plan_each(struct ckpt_program *p, const struct ckpt_variant *variant, int64_t micro,
                     enum purpose purpose)
{
    const struct sharing *sharing = &p->programs->ranks->sharing;
    int most = 0, s = 0, rc = 0;
    for (; s < sharing->stages && !rc; s++) {
        if (purpose == SEEK && lacking(p) >= 0)
            break;
        rc = s ? draft_cut(p, variant, micro, s) : 0;
        if (!rc)
            rc = plan_stage(p, purpose, &p->stages[s]);
        most = !rc && p->stages[s].peak > p->stages[most].peak ? s : most;
    }
    if (rc || lacking(p) >= 0)
        return rc;
    if (most < s - 1)
        rc = draft_cut(p, variant, micro, most);
    return rc ? rc : plan_stage(p, STAY, &p->stages[most]);
}

static int tell_stages(struct ckpt_program *p, const struct stage_plan *own)
{
    struct ranks *job = p->programs->ranks;
    struct stage_plan *all = calloc((size_t)job->sharing.ranks, sizeof *all);
    if (!all)
        return ranks_give_up(
            job, error_set(CKPT_ENOMEM, "no memory for the plans of %d ranks", job->sharing.ranks));
    ranks_await_plan(job, true);
    const int rc = ranks_gather(job, own, sizeof *own, all);
    ranks_await_plan(job, false);
    for (int r = 0; r < job->sharing.ranks && !rc; r++) /* of all pipelines one that does not fit */
        if (r < job->sharing.stages || all[r].lacks)
            p->stages[r % job->sharing.stages] = all[r];
    free(all);
    return rc;
}

/* All stages plan at once, and learn of each other. */
static int plan_together(struct ckpt_program *p, enum purpose purpose)
{
    struct ranks *job = p->programs->ranks;
    struct stage_plan own;
    int rc = plan_stage(p, purpose, &own);
    if (rc && rc != CKPT_ECOMM)
        error_set(rc, "stage %d of %d: %s", job->sharing.stage + 1, job->sharing.stages,
                  error_get());
    return rc ? ranks_give_up(job, rc) : tell_stages(p, &own);
}

static int plan_all(struct ckpt_program *p, const struct ckpt_variant *variant, int64_t micro,
                    enum purpose purpose)
{
    const struct ranks *job = p->programs->ranks;
    memset(p->stages, 0, (size_t)job->sharing.stages * sizeof *p->stages);
    if (!job->comm)
        return plan_each(p, variant, micro, purpose);
    const int rc = plan_together(p, purpose);
    return rc || lacking(p) >= 0 ? rc : plan_together(p, STAY);
}

/* What fits and what does not, for the next cut. */
static int note_tries(const struct ckpt_program *p)
{
    struct ranks *job = p->programs->ranks;
    struct sharing *of = &job->sharing;
    struct stage_try *more =
        realloc(job->tries, (size_t)(of->n_tries + of->stages) * sizeof *job->tries);
    if (!more)
        return error_set(CKPT_ENOMEM, "no memory for the stages of a pipeline");
    of->tries = job->tries = more;
    for (int s = 0; s < of->stages; s++)
        if (p->stages[s].to)
            job->tries[of->n_tries++] =
                (struct stage_try){s, p->stages[s].from, p->stages[s].to, !p->stages[s].lacks};
    return 0;
}

/* A stage that does not fit gets fewer bytes of parameters: half of what it lacks, since
 * activations go with them. */
static void lower_limits(const struct ckpt_program *p)
{
    const struct ranks *job = p->programs->ranks;
    for (int s = 0; s < job->sharing.stages; s++) {
        const struct stage_plan *k = &p->stages[s];
        if (!k->lacks)
            continue;
        const double fits =
            k->least > k->budget ? (double)k->budget / (double)k->least : 0; /* of what it has */
        const int64_t most = (int64_t)((double)k->held * (1 + fits) / 2);
        job->limits[s].most = min_i64(most, k->held - 1);
    }
}

/* The stage that needs the largest share of its budget. */
static int neediest(const struct ckpt_program *p)
{
    int most = 0;
    double needs = 0;
    for (int s = 0; s < p->programs->ranks->sharing.stages; s++) {
        const struct stage_plan *k = &p->stages[s];
        const double share = k->lacks ? (double)k->least / (double)k->budget : 0;
        most = share > needs ? s : most;
        needs = fmax(needs, share);
    }
    return most;
}

/* No cut is left: plans all stages of the balanced one again, for what it is refused for. */
static int refuse_cuts(struct ckpt_program *p, const struct ckpt_variant *variant, int64_t micro)
{
    struct ranks *job = p->programs->ranks;
    const int n = job->sharing.stages;
    if (!p->programs->first)
        ranks_free_cut(job);
    int rc = draft_cut(p, variant, micro, 0);
    if (!rc)
        rc = plan_all(p, variant, micro, EXPLAIN);
    if (rc || lacking(p) < 0)
        return rc;
    const int s = neediest(p);
    if (!programs_may_cut(p->programs))
        return error_set(CKPT_EBUDGET, "stage %d of %d, on rank %d: %s", s + 1, n, s,
                         p->stages[s].refused);
    return error_set(CKPT_EBUDGET,
                     "--stages %d: no cut fits the memory of all ranks; of the balanced one stage "
                     "%d, on rank %d: %s",
                     n, s + 1, s, p->stages[s].refused);
}

/* Plans cut after cut until one fits, or none is left.  Parameters of earlier programs stay where
 * they are, and with them the cut. */
static int seek_cut(struct ckpt_program *p, const struct ckpt_variant *variant, int64_t micro)
{
    int rc = plan_all(p, variant, micro, SEEK);
    while (!rc && lacking(p) >= 0) {
        if (!programs_may_cut(p->programs))
            return refuse_cuts(p, variant, micro);
        rc = note_tries(p);
        if (rc)
            return rc;
        lower_limits(p);
        rc = draft_cut(p, variant, micro, 0);
        if (rc == CKPT_EBUDGET)
            return refuse_cuts(p, variant, micro);
        rc = rc ? rc : plan_all(p, variant, micro, SEEK);
    }
    return rc;
}

static int time_pipeline(struct ckpt_program *p)
{
    const int n = p->programs->ranks->sharing.stages;
    struct stage_seconds *s = calloc((size_t)n, sizeof *s);
    if (!s)
        return error_set(CKPT_ENOMEM, "no memory for the stages of a pipeline");
    for (int i = 0; i < n; i++)
        s[i] = p->stages[i].time;
    p->pipeline_seconds = pipeline_seconds(s, n, p->tape->n_micro);
    free(s);
    return 0;
}

int program_plan_stages(struct ckpt_program *p, const struct ckpt_variant *variant, int64_t micro)
{
    const int n = p->programs->ranks->sharing.stages;
    free(p->stages);
    p->stages = calloc((size_t)n, sizeof *p->stages);
    const int rc = p->stages ? seek_cut(p, variant, micro)
                             : error_set(CKPT_ENOMEM, "no memory for the stages of a pipeline");
    return rc ? rc : time_pipeline(p);
}
