/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ckpt plan: tiers, time, the peak, and the effect of slightly more or less memory. */
#include <math.h>
#include "cli/cli.h"
#include "report/endurance.h"

#define GIB        (INT64_C(1) << 30)
#define MIN_CHANGE 5e-4 /* fraction of a step; less would be shown as 0.0 % */
enum { N_KINDS = KIND_OPTIMIZER + 1 };

/* Device bytes, including the process's memory outside the arena. */
static int64_t peak_of(const struct plan_job *job, const struct plan *p)
{
    return p->persistent + p->transient + job->machine.process;
}

static void tier(FILE *f, const char *name, int64_t bytes, int64_t budget)
{
    if (!bytes && !budget)
        return;
    fprintf(f, "  %-26s %12s", name, human_bytes(bytes));
    if (budget == INT64_MAX)
        fputs("   no limit\n", f);
    else
        fprintf(f, "   of %s\n", human_bytes(budget));
}

static void part(FILE *f, const char *name, int64_t bytes)
{
    if (bytes)
        fprintf(f, "    %-24s %12s\n", name, human_bytes(bytes));
}

/* Bytes of each kind that are offloaded to a tier at some time. */
static void offloaded_bytes(const struct plan_job *job, int tier, int64_t bytes[N_KINDS])
{
    const struct plan *p = job->plan;
    for (int k = 0; k < N_KINDS; k++)
        bytes[k] = 0;
    for (int32_t i = 0; i < p->n_residences; i++) {
        const struct residence *r = &p->residences[i];
        if (r->tier == tier)
            bytes[job->graph->storages[r->storage].kind] += job->graph->storages[r->storage].bytes;
    }
}

static void print_lower_tier(FILE *f, const char *name, const int64_t offloaded[N_KINDS],
                             int64_t bytes, int64_t budget)
{
    static const char *const names[N_KINDS] = {
        [KIND_INPUT] = "inputs",          [KIND_ACTIVATION] = "activations",
        [KIND_TEMPORARY] = "temporaries", [KIND_GRADIENT] = "gradients",
        [KIND_PARAMETER] = "parameters",  [KIND_OPTIMIZER] = "optimizer state"};
    tier(f, name, bytes, budget);
    for (int k = 0; k < N_KINDS; k++)
        part(f, names[k], offloaded[k]);
}

static void print_drive(FILE *f, const struct plan_job *job, int64_t written)
{
    const struct plan *p = job->plan;
    char text[ENDURANCE_TEXT];
    if (!job->budgets.host)
        part(f, "staging in host memory", p->staging_bytes);
    if (written)
        fprintf(f, "    %-24s %12s   %s\n", "written", human_bytes(written),
                endurance_text(text, &job->machine, written, p->seconds));
}

/* Offloaded storages are listed under the tier that stores them, not under the device. */
static void print_tiers(FILE *f, const struct plan_job *job)
{
    const struct plan *p = job->plan;
    struct plan_summary s;
    int64_t host[N_KINDS], nvme[N_KINDS];
    plan_summarize(job->graph, p, &s);
    offloaded_bytes(job, TIER_HOST, host);
    offloaded_bytes(job, TIER_NVME, nvme);
    tier(f, "device", peak_of(job, p), job->budgets.device);
    part(f, "context, libraries", job->machine.process);
    part(f, "parameters", s.parameters - host[KIND_PARAMETER] - nvme[KIND_PARAMETER]);
    part(f, "optimizer state", s.optimizer - host[KIND_OPTIMIZER] - nvme[KIND_OPTIMIZER]);
    part(f, "gradients", s.gradients);
    part(f, "activations kept", s.kept);
    part(f, "activations recomputed", s.recomputed);
    part(f, "workspace", s.workspace);
    int64_t slots = job->budgets.host ? p->staging_bytes : 0;
    print_lower_tier(f, "host", host, p->host_bytes + slots, job->budgets.host);
    part(f, "staging for NVMe", slots);
    print_lower_tier(f, "nvme", nvme, p->nvme_bytes, job->budgets.nvme);
    print_drive(f, job, s.nvme_written);
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100. * part / whole : 0.;
}

static void time_row(FILE *f, const char *name, double seconds)
{
    fprintf(f, "  %-26s %12s", name, human_seconds(seconds));
}

/* Prints a component of the time and its share relative to the compute. */
static void part_row(FILE *f, const char *name, double seconds, double compute, int count,
                     const char *of)
{
    if (seconds <= 0 && !count)
        return;
    time_row(f, name, seconds);
    fprintf(f, "   +%.1f%%, %d %s\n", percent(seconds, compute), count, of);
}

static void print_time(FILE *f, const struct graph *g, const struct plan *p, int32_t recomputed)
{
    double compute = plan_compute_seconds(p), cost = p->recompute_seconds + p->exposed_seconds;
    time_row(f, "predicted step", p->seconds);
    fputc('\n', f);
    time_row(f, "  compute", compute);
    fputc('\n', f);
    if (cost <= 0)
        fprintf(f, "  %-26s %12s   nothing is recomputed, nothing waits for copies\n",
                "cost of the budget", "none");
    part_row(f, "  recompute", p->recompute_seconds, compute, (int)recomputed, "ops run again");
    part_row(f, "  exposed copies", p->exposed_seconds, compute, (int)plan_count_offloads(g, p),
             "offloads");
    if (p->comm_seconds <= 0)
        return;
    time_row(f, "  exposed communication", p->exposed_comm);
    fprintf(f, "   +%.1f%%, collectives take %s\n", percent(p->exposed_comm, compute),
            human_seconds(p->comm_seconds));
}

static void print_bound(FILE *f, const struct plan *p)
{
    if (p->bound_seconds <= 0)
        return;
    double above = percent(p->seconds - p->bound_seconds, p->bound_seconds);
    fprintf(f, "  %-26s %12s   ", "lower bound", human_seconds(p->bound_seconds));
    if (above < .005)
        fputs("no plan is faster\n", f);
    else
        fprintf(f, "this plan is at most %.2f%% above the best\n", above);
}

static void print_neighbour(FILE *f, const struct plan *p, const struct plan *other,
                            const char *what, int64_t budget)
{
    if (!other) {
        fprintf(f, "  %-26s %12s   does not fit\n", what, human_bytes(budget));
        return;
    }
    fprintf(f, "  %-26s %12s", what, human_seconds(other->seconds));
    if (fabs(other->seconds - p->seconds) < MIN_CHANGE * p->seconds)
        fputs("   no change\n", f);
    else
        fprintf(f, "   %+.1f%%\n", percent(other->seconds - p->seconds, p->seconds));
}

/* Compares budgets around the given one, or around the peak if there is no budget. */
static void print_neighbours(FILE *f, const struct plan_job *job)
{
    const struct plan *p = job->plan;
    int64_t at = job->budgets.device == INT64_MAX ? peak_of(job, p) : job->budgets.device;
    int64_t more = at > INT64_MAX - GIB ? INT64_MAX : at + GIB;
    struct plan *other = NULL;
    if (at > GIB && !cli_plan_at(job, at - GIB, &other))
        print_neighbour(f, p, other, "with one GiB less", at - GIB);
    plan_free(other);
    if (!cli_plan_at(job, more, &other))
        print_neighbour(f, p, other, "with one GiB more", more);
    plan_free(other);
}

static void print_smallest(FILE *f, const struct plan_job *job)
{
    const struct plan *p = job->plan;
    const struct graph *g = job->graph;
    fprintf(f, "  %-26s %12s", "smallest feasible budget", human_bytes(p->min_budget));
    if (p->min_peak_op >= 0 && p->min_peak_op < g->n_ops)
        fprintf(f, "   its peak is in %s", g->ops[p->min_peak_op].name);
    fputc('\n', f);
}

void cli_print_plan(const struct plan_job *job, FILE *f)
{
    const struct graph *g = job->graph;
    const struct plan *p = job->plan;
    struct plan_summary s;
    plan_summarize(g, p, &s);
    fprintf(f, "plan of %s: %d ops, %d storages", plan_source(job->o), (int)g->n_ops,
            (int)g->n_storages);
    if (g->n_micro > 1)
        fprintf(f, ", %d micro-steps", (int)g->n_micro);
    fputc('\n', f);
    if (job->o->machine)
        fprintf(f, "  %-26s %s%s\n", "machine", job->machine.name,
                job->machine.estimate ? " (an estimate, not measured)" : "");
    else
        fprintf(f, "  %-26s op times from the graph file; --machine replaces them\n", "machine");
    if (job->asked)
        fprintf(f, "  %-26s %12s   is more than the machine has: the budget is all of that\n",
                "--vram", human_bytes(job->asked));
    if (job->margin)
        fprintf(f, "  %-26s %12s   left for another process; --vram SIZE sets a budget\n", "",
                human_bytes(job->margin));
    print_tiers(f, job);
    if (p->n_steps)
        fprintf(f, "  %-26s %12s   in %s\n", "peak of live bytes",
                human_bytes(p->persistent + p->load), g->ops[p->steps[p->peak_step].op].name);
    print_time(f, g, p, s.recomputed_ops);
    print_bound(f, p);
    print_smallest(f, job);
    if (!job->o->plan_in)
        print_neighbours(f, job);
}
