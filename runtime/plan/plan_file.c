/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing of plan files: text, one fact a line, so that diff compares two plans.  Text after "  # "
 * is a comment.  Other ranks get the same text.
 *
 *     libckpt-plan 4
 *     signature 00f1...        of the graph it was made for, 16 hex digits
 *     budget N | none          of the device; then host N, nvme N and the other totals, one a line
 *     steps N, body N, residences N, copies N
 *     run OP | again OP | host OP    one line a step; or, of updates that the host repeats,
 *     both OP | next OP STEP         in their place, or before STEP of the next body
 *     device|host|nvme S FIRST LAST OFFSET    one line a residence; OFFSET -: the context's own
 *     workspace STEP OFFSET                   a residence, too
 *     copy FROM TO AFTER BEFORE START END     one line a copy, between residences by their number
 *     pin KEY CHOICE           one line an algorithm of a library (ops/algorithms.h), or none
 *     end
 */
#include <inttypes.h>
#include "core/number.h"
#include "plan/search/comm_cost.h"
#include "plan/graph/lines.h"

enum { DIGITS = 17 }; /* of seconds: they read back as the same numbers */

static void put_seconds(FILE *f, const char *name, double value)
{
    fprintf(f, "%s ", name);
    number_put(f, DIGITS, value);
    fputc('\n', f);
}

static void put_totals(FILE *f, const struct graph *g, const struct plan *p)
{
    fprintf(f, "libckpt-plan 4\nsignature %016" PRIx64 "\n", p->signature);
    if (p->budgets.device == INT64_MAX)
        fputs("budget none\n", f);
    else
        fprintf(f, "budget %" PRId64 "\n", p->budgets.device);
    fprintf(f, "host %" PRId64 "\nnvme %" PRId64 "\n", p->budgets.host, p->budgets.nvme);
    fprintf(f, "host_base %" PRId64 "\n", p->budgets.tier_base[TIER_HOST]);
    fprintf(f, "nvme_base %" PRId64 "\n", p->budgets.tier_base[TIER_NVME]);
    fprintf(f, "persistent %" PRId64 "\n", p->persistent);
    fprintf(f, "transient %" PRId64 "\n", p->transient);
    fprintf(f, "load %" PRId64 "\n", p->load);
    fprintf(f, "peak_step %" PRId32 "\n", p->peak_step);
    fprintf(f, "min_budget %" PRId64 "\n", p->min_budget);
    fprintf(f, "min_peak_op %" PRId32 "\n", p->min_peak_op);
    fprintf(f, "host_bytes %" PRId64 "\nnvme_bytes %" PRId64 "\n", p->host_bytes, p->nvme_bytes);
    fprintf(f, "staging_bytes %" PRId64 "\n", p->staging_bytes);
    put_seconds(f, "seconds", p->seconds);
    put_seconds(f, "recompute_seconds", p->recompute_seconds);
    put_seconds(f, "exposed_seconds", p->exposed_seconds);
    if (graph_has_collectives(g)) {
        put_seconds(f, "exposed_comm", p->exposed_comm);
        put_seconds(f, "comm_seconds", p->comm_seconds);
    }
    put_seconds(f, "bound_seconds", p->bound_seconds);
    fprintf(f, "next_budget %" PRId64 "\n", p->next_budget);
    put_seconds(f, "next_seconds", p->next_seconds);
    fprintf(f, "steps %" PRId32 "\nbody %" PRId32 "\n", p->n_steps, p->n_body);
    fprintf(f, "residences %" PRId32 "\ncopies %" PRId32 "\n", p->n_residences, p->n_copies);
}

static void put_residence(FILE *f, const struct graph *g, const struct residence *r)
{
    static const char *const tiers[] = {"device", "host", "nvme"};
    if (r->storage < 0) {
        fprintf(f, "workspace %" PRId32 " %" PRId64 "\n", r->first, r->offset);
        return;
    }
    fprintf(f, "%s %" PRId32 " %" PRId32 " %" PRId32, tiers[r->tier - TIER_DEVICE], r->storage,
            r->first, r->last);
    if (r->offset == -1)
        fputs(" -", f);
    else
        fprintf(f, " %" PRId64, r->offset);
    lines_put_name(f, g->storages[r->storage].name);
}

struct plan_text {
    const struct graph *graph;
    const struct plan *plan;
};

static const char *kind_of(const struct plan_step *s)
{
    static const char *const kinds[] = {
        [BY_DEVICE] = "run", [BY_HOST] = "host", [BY_BOTH] = "both"};
    return s->again ? "again" : s->before ? "next" : kinds[s->by];
}

static void put_plan(FILE *f, const void *user)
{
    const struct plan_text *t = user;
    const struct graph *g = t->graph;
    const struct plan *p = t->plan;
    put_totals(f, g, p);
    for (int32_t k = 0; k < p->n_steps; k++) {
        const struct plan_step *s = &p->steps[k];
        fprintf(f, "%s %" PRId32, kind_of(s), s->op);
        if (s->before)
            fprintf(f, " %" PRId32, s->before);
        lines_put_name(f, g->ops[s->op].name);
    }
    for (int32_t n = 0; n < p->n_residences; n++)
        put_residence(f, g, &p->residences[n]);
    for (int32_t n = 0; n < p->n_copies; n++) {
        const struct copy *c = &p->copies[n];
        fprintf(f, "copy %" PRId32 " %" PRId32 " %" PRId32 " %" PRId32 " ", c->from, c->to,
                c->after, c->before);
        number_put(f, DIGITS, c->start);
        put_seconds(f, "", c->end);
    }
    algorithms_write(&p->algorithms, f);
    fputs("end\n", f);
}

int plan_write(const struct graph *g, const struct plan *p, const char *path)
{
    struct plan_text t = {g, p};
    return lines_write("plan file", path, put_plan, &t);
}

int plan_print(const struct graph *g, const struct plan *p, char **text, size_t *size)
{
    struct plan_text t = {g, p};
    return lines_print(put_plan, &t, text, size);
}
