/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt plan --explain NAME: the gaps of a storage, the fate of each, and the cost of other
 * fates. */
#include <stdlib.h>
#include <string.h>
#include "cli/cli.h"

#define MAX_MATCHES 12 /* further storages are counted, not shown */
#define MAX_NAMES   4  /* ops shown per recomputed gap */

struct explainer {
    const struct plan_job *job;
    const struct graph *g;
    const struct plan *p;
    double *start; /* per step: seconds before it, with each body step once; and the end */
    int64_t *load; /* per step: live device bytes */
    bool *needed;  /* per storage: scratch of recomputed_ops() */
    struct gap *gaps;
    int32_t n_gaps;
    struct offload *offloads;
    int32_t n_offloads;
};

static const char *const kind_names[] = {
    [KIND_INPUT] = "input",         [KIND_ACTIVATION] = "activation",
    [KIND_TEMPORARY] = "temporary", [KIND_GRADIENT] = "gradient",
    [KIND_PARAMETER] = "parameter", [KIND_OPTIMIZER] = "optimizer state"};
static const char *const fate_names[] = {[FATE_KEEP] = "stays",
                                         [FATE_DROP] = "is dropped",
                                         [FATE_OFFLOAD_HOST] = "is offloaded to host memory",
                                         [FATE_OFFLOAD_NVME] = "is offloaded to NVMe"};

static const struct graph_op *op_at(const struct explainer *e, int32_t step)
{
    return &e->g->ops[e->p->steps[step].op];
}

static bool op_lists(const struct graph *g, int32_t first, int32_t n, int32_t s)
{
    for (int32_t j = 0; j < n; j++)
        if (g->refs[first + j] == s)
            return true;
    return false;
}

static bool writes(const struct explainer *e, const struct graph_op *o, int32_t s)
{
    return op_lists(e->g, o->writes, o->n_writes, s);
}

/* ---- what holds of the whole plan ------------------------------------------------------------ */

static void add_load(struct explainer *e, const struct residence *r)
{
    int64_t bytes = residence_bytes(e->g, e->p, r);
    if (r->tier != TIER_DEVICE || plan_is_backing(e->g, e->p, r))
        return;
    e->load[r->first] += bytes;
    if (r->last < e->p->n_steps) {
        e->load[r->last + 1] -= bytes;
        return;
    }
    e->load[0] += bytes;
    e->load[r->last - e->p->n_steps + 1] -= bytes;
}

static int explainer_fill(struct explainer *e)
{
    size_t steps = (size_t)e->p->n_steps + 1;
    e->start = calloc(steps, sizeof(*e->start));
    e->load = calloc(steps + 1, sizeof(*e->load));
    e->needed = calloc((size_t)e->g->n_storages + 1, sizeof(*e->needed));
    if (!e->start || !e->load || !e->needed)
        return CKPT_ENOMEM;
    for (int32_t k = 0; k < e->p->n_steps; k++)
        e->start[k + 1] = e->start[k] + op_at(e, k)->seconds;
    for (int32_t i = 0; i < e->p->n_residences; i++)
        add_load(e, &e->p->residences[i]);
    for (int32_t k = 0; k < e->p->n_steps; k++)
        e->load[k + 1] += e->load[k];
    if (plan_offloads(e->g, e->p, &e->offloads, &e->n_offloads))
        return CKPT_ENOMEM;
    return plan_gaps(e->g, e->p, &e->gaps, &e->n_gaps);
}

static void explainer_free(struct explainer *e)
{
    free(e->start);
    free(e->load);
    free(e->needed);
    free(e->gaps);
    free(e->offloads);
}

/* ---- one gap --------------------------------------------------------------------------------- */

/* Finds the ops that are recomputed for the use at the end of a gap, by following reads
 * backwards. */
static double recomputed_ops(struct explainer *e, int32_t s, const struct gap *gap, int32_t *n,
                             int32_t names[MAX_NAMES])
{
    double seconds = 0;
    *n = 0;
    memset(e->needed, 0, (size_t)e->g->n_storages * sizeof(*e->needed));
    e->needed[s] = true;
    for (int32_t k = gap->to; k > gap->from; k--) {
        const struct graph_op *o = op_at(e, k);
        bool is_needed = false;
        for (int32_t j = 0; j < o->n_writes && e->p->steps[k].again; j++)
            is_needed |= e->needed[e->g->refs[o->writes + j]];
        if (!is_needed)
            continue;
        for (int32_t j = 0; j < o->n_writes; j++)
            e->needed[e->g->refs[o->writes + j]] = false;
        for (int32_t j = 0; j < o->n_reads; j++)
            e->needed[e->g->refs[o->reads + j]] = true;
        if (*n < MAX_NAMES)
            names[*n] = k;
        ++*n;
        seconds += o->seconds;
    }
    return seconds;
}

static void print_recompute(struct explainer *e, const struct gap *gap)
{
    int32_t n, names[MAX_NAMES];
    double seconds = recomputed_ops(e, gap->storage, gap, &n, names);
    printf("      %d op%s recomputed for it, %.4g ms:", (int)n, n == 1 ? "" : "s", 1e3 * seconds);
    for (int32_t i = min_i64(n, MAX_NAMES) - 1; i >= 0; i--)
        printf(" %s%s", op_at(e, names[i])->name, i ? "," : "");
    puts(n > MAX_NAMES ? " and what they read" : "");
}

/* Prints the time of copies out and back, and the time of the gap. */
static void print_link(const struct explainer *e, const struct gap *gap)
{
    const struct machine *m = &e->job->machine;
    double bytes = (double)e->g->storages[gap->storage].bytes;
    double out = bytes / m->d2h_both, in = bytes / m->h2d_both;
    double available = e->start[gap->to] - e->start[gap->from + 1];
    printf("      offloading it takes %.4g ms out and %.4g ms back; the gap lasts %.4g ms%s\n",
           1e3 * out, 1e3 * in, 1e3 * available,
           out + in > available ? ", which is too short" : "");
}

/* Finds the step inside the gap with the most live bytes; keeping the storage would add to them. */
static void print_keeping(const struct explainer *e, const struct gap *gap)
{
    int64_t bytes = e->g->storages[gap->storage].bytes, budget = e->job->budgets.device;
    int32_t high = gap->from + 1;
    for (int32_t k = high; k < gap->to; k++)
        if (e->load[k] > e->load[high])
            high = k;
    int64_t alive = e->p->persistent + e->load[high];
    printf("      keeping it would need %s beside the %s alive at step %d (%s)", human_bytes(bytes),
           human_bytes(alive), (int)high, op_at(e, high)->name);
    if (budget == INT64_MAX)
        puts("");
    else if (alive > budget - bytes)
        printf(": %s over the budget\n", human_bytes(alive + bytes - budget));
    else
        printf(": %s would stay free; other storages were worth more there\n",
               human_bytes(budget - alive - bytes));
}

/* Prints what keeping saves: its producers would be recomputed otherwise. */
static void print_kept(const struct explainer *e, const struct gap *gap)
{
    double seconds = 0;
    int32_t n = 0;
    bool recomputable = !e->g->storages[gap->storage].persistent;
    for (int32_t i = 0; i < e->g->n_ops; i++)
        if (writes(e, &e->g->ops[i], gap->storage)) {
            recomputable &= e->g->ops[i].rerunnable && e->g->ops[i].phase == GRAPH_FORWARD;
            seconds += e->g->ops[i].seconds;
            n++;
        }
    if (!recomputable)
        puts("      it cannot be recomputed");
    else
        printf("      dropping it would recompute %d op%s, %.4g ms, and keep their operands\n",
               (int)n, n == 1 ? "" : "s", 1e3 * seconds);
}

static void print_offload(const struct explainer *e, const struct gap *gap)
{
    for (int32_t i = 0; i < e->n_offloads; i++) {
        const struct offload *k = &e->offloads[i];
        if (k->storage != gap->storage || k->use_step != gap->to)
            continue;
        if (!k->out)
            printf("      freed after step %d, its tier still has the bytes; allocated again from "
                   "step %d, copied back before step %d\n",
                   (int)k->out_step, (int)k->in_step, (int)k->use_step);
        else
            printf("      copied out after step %d, freed after step %d; allocated again from step "
                   "%d, copied back before step %d\n",
                   (int)k->out_step, (int)k->free_step, (int)k->in_step, (int)k->use_step);
        printf("      the copies run");
        if (k->out)
            printf(" from %.4g to %.4g ms and", 1e3 * k->out->start, 1e3 * k->out->end);
        printf(" from %.4g to %.4g ms of the step\n", 1e3 * k->in->start, 1e3 * k->in->end);
    }
}

static void print_gap(struct explainer *e, const struct gap *gap)
{
    bool wraps = gap->to <= gap->from;
    if (!wraps && gap->to - gap->from < 2)
        return;
    printf("    step %d to %d%s: %s\n", (int)gap->from, (int)gap->to,
           wraps ? " of the next step" : "", fate_names[gap->fate]);
    if (gap->fate == FATE_DROP)
        print_recompute(e, gap);
    if (gap->fate == FATE_OFFLOAD_HOST || gap->fate == FATE_OFFLOAD_NVME)
        print_offload(e, gap);
    if (wraps)
        return;
    if (gap->fate == FATE_KEEP)
        print_kept(e, gap);
    else
        print_keeping(e, gap);
    if (gap->fate == FATE_DROP || gap->fate == FATE_KEEP)
        print_link(e, gap);
}

/* ---- one storage ----------------------------------------------------------------------------- */

static void print_uses(const struct explainer *e, int32_t s)
{
    int32_t n = 0;
    for (int32_t k = 0; k < e->p->n_steps; k++) {
        const struct graph_op *o = op_at(e, k);
        bool made = writes(e, o, s);
        if (!made && !op_lists(e->g, o->reads, o->n_reads, s))
            continue;
        if (n++ < 24)
            printf("    step %-6d %-10s %s%s\n", (int)k, made ? "written by" : "read by", o->name,
                   e->p->steps[k].again ? " (again)" : "");
    }
    if (n > 24)
        printf("    and %d more\n", (int)n - 24);
}

static void print_storage(struct explainer *e, int32_t s)
{
    const struct graph_storage *t = &e->g->storages[s];
    printf("storage #%d: %s\n  %s of %s%s\n  uses\n", (int)s, t->name, kind_names[t->kind],
           human_bytes(t->bytes),
           t->persistent ? ", persistent: it may be offloaded, never dropped"
           : t->carried  ? ", carried from one micro-step to the next: it stays"
                         : "");
    print_uses(e, s);
    puts("  gaps");
    for (int32_t i = 0; i < e->n_gaps; i++)
        if (e->gaps[i].storage == s)
            print_gap(e, &e->gaps[i]);
}

/* "#12" is a number; else an exact name matches, and if none does, a part of a name. */
static int match(const struct graph *g, const char *name, bool part, int32_t s)
{
    char *end;
    if (name[0] == '#')
        return strtol(name + 1, &end, 10) == s && end > name + 1 && !*end;
    return part ? strstr(g->storages[s].name, name) != NULL : !strcmp(g->storages[s].name, name);
}

static int32_t explain_matches(struct explainer *e, const char *name, bool part)
{
    int32_t n = 0;
    for (int32_t s = 0; s < e->g->n_storages; s++)
        if (match(e->g, name, part, s) && n++ < MAX_MATCHES)
            print_storage(e, s);
    if (n > MAX_MATCHES)
        printf("and %d more storages of this name; give more of it, or a number\n",
               (int)n - MAX_MATCHES);
    return n;
}

int cli_explain(const struct plan_job *job, const char *name)
{
    struct explainer e = {.job = job, .g = job->graph, .p = job->plan};
    int rc = explainer_fill(&e);
    if (rc)
        rc = cli_fail("out of host memory");
    else if (!*name || (!explain_matches(&e, name, false) && !explain_matches(&e, name, true)))
        rc = cli_fail("--explain %s: no storage has this name; names are of parameters, inputs and "
                      "of the ops that make a storage",
                      name);
    explainer_free(&e);
    return rc;
}
