/*
 * Plan files, the writing half: text, one fact a line, so that two plans can be compared with diff.
 * What follows "  # " on a line is for people.
 *
 *     libckpt-plan 3
 *     signature 00f1...        of the graph it was made for, 16 hex digits
 *     budget N | none          of the device; then host N, nvme N and the other totals, one a line
 *     steps N, body N, instances N, parks N
 *     run OP | again OP | host OP    one line a step
 *     storage S FIRST LAST OFFSET | workspace STEP OFFSET    one line an instance
 *     park host|nvme S OUT FREE IN USE OFFSET    one line a park, then its times; "clean" in the
 *                                                place of "park": there is no copy out
 *     times OUT_START OUT_END IN_START IN_END
 *     lodging S OUT IN OFFSET  one line a lodging, then its times; there may be none
 *     pin KEY CHOICE           one line an algorithm of a library (ops/pins.h); there may be none
 *     end
 */
#include <inttypes.h>
#include "plan/comm.h"
#include "plan/lines.h"

static void put_totals(FILE *f, const struct graph *g, const struct plan *p)
{
    fprintf(f, "libckpt-plan 3\nsignature %016" PRIx64 "\n", p->signature);
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
    fprintf(f, "seconds %.17g\n", p->seconds);
    fprintf(f, "recompute_seconds %.17g\n", p->recompute_seconds);
    fprintf(f, "exposed_seconds %.17g\n", p->exposed_seconds);
    if (graph_has_collectives(g)) {
        fprintf(f, "exposed_comm %.17g\n", p->exposed_comm);
        fprintf(f, "comm_seconds %.17g\n", p->comm_seconds);
    }
    fprintf(f, "bound_seconds %.17g\n", p->bound_seconds);
    fprintf(f, "next_budget %" PRId64 "\n", p->next_budget);
    fprintf(f, "next_seconds %.17g\n", p->next_seconds);
    fprintf(f, "steps %" PRId32 "\nbody %" PRId32 "\n", p->n_steps, p->n_body);
    fprintf(f, "instances %" PRId32 "\nparks %" PRId32 "\n", p->n_instances, p->n_parks);
}

static void put_times(FILE *f, double out_start, double out_end, double in_start, double in_end)
{
    fprintf(f, "times %.17g %.17g %.17g %.17g\n", out_start, out_end, in_start, in_end);
}

static void put_lodging(FILE *f, const struct graph *g, const struct plan_lodging *l)
{
    fprintf(f, "lodging %" PRId32 " %" PRId32 " %" PRId32 " %" PRId64, l->storage, l->out_step,
            l->in_step, l->tier_offset);
    lines_put_name(f, g->storages[l->storage].name);
    put_times(f, l->out_start, l->out_end, l->in_start, l->in_end);
}

static void put_park(FILE *f, const struct graph *g, const struct plan_park *k)
{
    fprintf(f, "%s %s %" PRId32 " %" PRId32 " %" PRId32 " %" PRId32 " %" PRId32 " %" PRId64,
            k->clean ? "clean" : "park", k->tier == FATE_PARK_NVME ? "nvme" : "host", k->storage,
            k->out_step, k->free_step, k->in_step, k->use_step, k->tier_offset);
    lines_put_name(f, g->storages[k->storage].name);
    put_times(f, k->out_start, k->out_end, k->in_start, k->in_end);
}

static void put_plan(FILE *f, const struct graph *g, const struct plan *p)
{
    put_totals(f, g, p);
    for (int32_t k = 0; k < p->n_steps; k++) {
        const struct plan_step *s = &p->steps[k];
        fprintf(f, "%s %" PRId32, s->on_host ? "host" : s->again ? "again" : "run", s->op);
        lines_put_name(f, g->ops[p->steps[k].op].name);
    }
    for (int32_t n = 0; n < p->n_instances; n++) {
        const struct plan_instance *i = &p->instances[n];
        if (i->storage < 0) {
            fprintf(f, "workspace %" PRId32 " %" PRId64 "\n", i->first, i->offset);
            continue;
        }
        fprintf(f, "storage %" PRId32 " %" PRId32 " %" PRId32 " %" PRId64, i->storage, i->first,
                i->last, i->offset);
        lines_put_name(f, g->storages[i->storage].name);
    }
    for (int32_t k = 0; k < p->n_parks; k++)
        put_park(f, g, &p->parks[k]);
    for (int32_t k = 0; k < p->n_lodgings; k++)
        put_lodging(f, g, &p->lodgings[k]);
    pins_write(&p->pins, f);
    fputs("end\n", f);
}

struct plan_text {
    const struct graph *graph;
    const struct plan *plan;
};

static void put(FILE *f, const void *user)
{
    const struct plan_text *t = user;
    put_plan(f, t->graph, t->plan);
}

int plan_write(const struct graph *g, const struct plan *p, const char *path,
               char message[CKPT_MESSAGE])
{
    struct plan_text t = {g, p};
    return lines_write("plan file", path, put, &t, message);
}
