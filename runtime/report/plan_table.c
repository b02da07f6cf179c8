/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan table: memory by purpose, the budget, and the time that recompute and copies cost.
 *
 * A row is a name, one number or word, and a note.  Rows of bytes are left out where they are 0.
 * Indented rows are parts of the row above them, so they are not added to the peak again.  All
 * numbers are those of the plan: nothing here is measured, and nothing is decided.
 */
#include <string.h>
#include "dist/comm/comm.h"
#include "dist/peers.h"
#include "exec/program.h"
#include "ops.h"
#include "report/saved.h"
#include "report/endurance.h"

static void row(FILE *f, const char *what, int64_t bytes, const char *note)
{
    if (bytes)
        fprintf(f, "  %-24s %12s  %s\n", what, human_bytes(bytes), note);
}

static void tier_row(FILE *f, const struct programs *ps, int tier, int64_t bytes)
{
    const char *how = ps->memory->tiers[tier] ? ps->memory->tiers[tier]->how : "";
    row(f, tier == TIER_HOST ? "offloaded to the host" : "offloaded to NVMe", bytes, how);
}

/* The source of op times: the machine file's rates, and the number of ops that were timed
 * individually, in the file or before this plan was made. */
static void print_costs(const struct graph *g, const struct machine *m, FILE *f)
{
    int32_t timed = 0;
    double seconds;
    for (int32_t i = 0; i < g->n_ops; i++)
        timed += machine_cost(m, g->ops[i].cost_key, &seconds);
    fprintf(f, "  %-24s %12s  %s; %d of %d ops timed\n", "costs", *m->file ? m->file : "built in",
            m->estimate ? "an estimate" : "measured", (int)timed, (int)g->n_ops);
}

/* The algorithms of matrix products, and how many entries of a plan or machine file do not apply
 * here. */
static void print_algorithms(struct device *d, FILE *f)
{
    const struct algorithms *p = d->ops->algorithms ? d->ops->algorithms(d) : NULL;
    int64_t taken = p ? algorithms_count(p, ALGORITHM_TAKEN) : 0;
    int64_t faster = p ? algorithms_count(p, ALGORITHM_FASTER) : 0;
    int64_t used = p ? p->n - algorithms_count(p, ALGORITHM_GIVEN) : 0;
    if (!used)
        return;
    fprintf(f, "  %-24s %12lld  of matrix products", "algorithms", (long long)used);
    if (taken)
        fprintf(f, ", %lld named in a file", (long long)taken);
    if (faster)
        fprintf(f, ", %lld measured to be faster than those proposed", (long long)faster);
    if (p->ignored)
        fprintf(f, "; %lld named in a file are not for this card and library",
                (long long)p->ignored);
    fputc('\n', f);
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100. * part / whole : 0.;
}

static void time_row(FILE *f, const char *what, double seconds, const char *fmt, ...)
    CKPT_PRINTF(4, 5);

static void time_row(FILE *f, const char *what, double seconds, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(f, "  %-24s %12s  ", what, human_seconds(seconds));
    vfprintf(f, fmt, ap);
    va_end(ap);
    fputc('\n', f);
}

/* Decimals, so that a small share does not print as 0.0. */
static int digits(double percents)
{
    return percents >= 1 ? 1 : percents >= .1 ? 2 : 3;
}

/* The share is of the time without recompute and waits, so it may exceed 100 %. */
static void share_row(FILE *f, const char *what, double seconds, double compute, const char *note)
{
    double p = percent(seconds, compute);
    time_row(f, what, seconds, "%.*f%% of the compute%s", digits(p), p, note);
}

/* Prints the cost of the budget separately: recompute, and copies that the step waits for. */
static void print_time(const struct ckpt_program_info *i, const struct graph *g,
                       const struct plan *p, FILE *f)
{
    int32_t offloads = plan_count_offloads(g, p);
    double compute = plan_compute_seconds(p), cost = i->recompute_seconds + i->exposed_seconds;
    time_row(f, "predicted step", i->step_seconds, "%s of it compute", human_seconds(compute));
    char note[64];
    if (cost > 0)
        share_row(f, "cost of the budget", cost, compute, "");
    else
        fprintf(f, "  %-24s %12s  nothing is recomputed, nothing waits for copies\n",
                "cost of the budget", "none");
    if (i->recomputed_ops) {
        snprintf(note, sizeof note, ", %d ops recomputed", i->recomputed_ops);
        share_row(f, "  recompute", i->recompute_seconds, compute, note);
    }
    if (offloads) {
        snprintf(note, sizeof note, ", %d offloads", (int)offloads);
        share_row(f, "  waiting for copies", i->exposed_seconds, compute, note);
    }
    if (p->comm_seconds > 0) {
        snprintf(note, sizeof note, "; collectives take %s", human_seconds(p->comm_seconds));
        share_row(f, "waiting for ranks", i->exposed_comm, compute, note);
    }
}

/* The hosts of the ranks, and which ranks share a copy if that differs from all ranks. */
static void print_ranks(const struct programs *ps, FILE *f)
{
    if (ps->ranks->hosts)
        fprintf(f, "  %-24s %12d  on %d host%s; %s\n", "ranks", ps->ranks->sharing.ranks,
                ps->ranks->hosts, ps->ranks->hosts == 1 ? "" : "s", ps->ranks->comm->how);
    else if (ps->ranks->sharing.ranks == 1 && ps->options->ranks && *ps->options->ranks)
        fprintf(f, "  %-24s %12d  no other process was started with --ranks %s\n", "ranks", 1,
                ps->options->ranks);
    ranks_print_places(ps->ranks, f);
    if (ps->ranks->sharing.sequence > 1)
        fprintf(f, "  %-24s %12d  ranks split the tokens of their samples\n", "sequence",
                ps->ranks->sharing.sequence);
    if (ps->ranks->sharing.tensor > 1)
        fprintf(f, "  %-24s %12d  ranks split the layers, and have the same samples\n", "tensor",
                ps->ranks->sharing.tensor);
    if (sharing_has_pipelines(&ps->ranks->sharing))
        fprintf(f, "  %-24s %12d  with samples of their own; --zero %d in each stage\n",
                "pipelines", ps->ranks->sharing.group_ranks, ps->ranks->sharing.zero);
    else if (ps->ranks->sharing.replicas > 1)
        fprintf(f, "  %-24s %12d  of each host share one copy\n", "",
                ps->ranks->sharing.group_ranks);
    else if (ps->ranks->requested_zero && !ps->ranks->sharing.zero)
        fprintf(f, "  %-24s %12s  share, because each is alone on its host\n", "", "none");
    else if (ps->ranks->requested_zero && ps->ranks->hosts > 1 && !ps->ranks->per_host)
        fprintf(f, "  %-24s %12s  share, because hosts have different numbers of ranks\n", "",
                "all");
}

enum { NOTE = 200 };

/* Does any parameter have this slot? */
static bool any_has(const struct params *ps, int slot)
{
    for (int32_t i = 0; i < ps->n; i++)
        if (ps->data[i].place.offset[slot] >= 0)
            return true;
    return false;
}

/* The optimizer state of the context, by name: "master, first moment, EMA; fp32". */
static const char *optimizer_note(const struct params *ps, char text[NOTE])
{
    static const char *const names[SLOT_COUNT] = {[SLOT_MASTER] = "master",
                                                  [SLOT_EXP_AVG] = "first moment",
                                                  [SLOT_EXP_AVG_SQ] = "second moment",
                                                  [SLOT_EXP_AVG_SQ_ROW] = "factors of rows",
                                                  [SLOT_EXP_AVG_SQ_COL] = "and columns",
                                                  [SLOT_EMA] = "EMA"};
    static const int order[] = {SLOT_MASTER,         SLOT_EXP_AVG,        SLOT_EXP_AVG_SQ,
                                SLOT_EXP_AVG_SQ_ROW, SLOT_EXP_AVG_SQ_COL, SLOT_EMA};
    int n = 0;
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        if (any_has(ps, order[k]))
            n += snprintf(text + n, NOTE - (size_t)n, "%s%s", n ? ", " : "", names[order[k]]);
    const char *small = params_small_state(ps);
    snprintf(text + n, NOTE - (size_t)n, "; %s",
             !small                   ? "fp32"
             : !strcmp(small, "bf16") ? "of bf16 weights in bf16 (--state bf16), else fp32"
                                      : "of bf16 weights in 8 bits (--state 8bit), else fp32");
    return text;
}

/* percent of a step; a smaller gain of a larger budget is not printed */
#define MIN_GAIN 0.5

/* The gain of the next larger budget that is faster, as an option to type.  The bytes are counted
 * like --vram, which includes what is outside the arena, and rounded up to a unit: less would not
 * hold the plan. */
static void print_gain(const ckpt_program *p, const struct ckpt_program_info *i, FILE *f)
{
    const struct plan *plan = p->plan;
    double gain =
        plan->next_budget ? percent(plan->seconds - plan->next_seconds, plan->seconds) : 0;
    int64_t bytes = plan->next_budget - p->reserved + p->programs->memory->overhead +
                    i->planned_peak - plan->persistent - plan->transient;
    bool large = bytes >= INT64_C(1) << 30;
    int64_t unit = large ? 1 << 20 : 1 << 10;

    if (gain >= MIN_GAIN)
        fprintf(f, "  with --vram %lld%c the step would be %.1f%% faster\n",
                (long long)(round_up(bytes, unit) / unit), large ? 'M' : 'K', gain);
}

static const char *gradient_note(const ckpt_program *p, int64_t n_micro)
{
    const bool half = p->programs->params->half_state;
    if (p->tape->grad_dtype != CKPT_BF16 || (n_micro > 1 && !half))
        return "fp32";
    return n_micro > 1 ? "sums in bf16, rounded stochastically; of fp32 weights fp32"
           : half      ? "bf16 where one product makes them, else fp32"
                       : "not counting gradients in the memory of weights";
}

static void print_budget(const struct memory *m, const struct ckpt_program_info *i, FILE *f)
{
    int64_t asked = m->options->vram;
    bool gpu = m->device->ops->backend == CKPT_ON_CUDA;
    fprintf(f, "  %-24s %12s  %s", "budget",
            i->budget == INT64_MAX ? "none" : human_bytes(i->budget),
            m->margin || asked == CKPT_VRAM_AUTO ? "auto; "
            : asked == CKPT_VRAM_NONE && gpu     ? "memory of the device (--vram none); "
                                                 : "");
    if (i->min_budget)
        fprintf(f, "smallest possible %s\n", human_bytes(i->min_budget));
    else
        fputs("nothing is recomputed\n", f);
    if (m->margin)
        row(f, "", m->margin, "also free, left for another process");
    if (m->asked)
        row(f, "", m->asked, "requested; the device has less");
    if (*m->host_limit) {
        char note[NOTE];
        if (m->host_left)
            snprintf(note, sizeof note, "of --host are planned; here %s leaves %s", m->host_limit,
                     human_bytes(m->host_left));
        else
            snprintf(note, sizeof note, "of --host are used: %s leaves no more", m->host_limit);
        row(f, "host tier", m->host, note);
    }
}

/* Linear layers whose operands are rounded to 8 bits. */
static void print_products(const ckpt_program *p, FILE *f)
{
    int fp8 = 0, all = 0;
    for (int32_t i = 0; i < p->tape->n_ops; i++) {
        const struct ckpt_op_def *def = p->tape->ops.data[i].def;
        fp8 += def == &op_linear_fp8;
        all += def == &op_linear_fp8 || def == &op_linear;
    }
    if (p->programs->matmul)
        fprintf(f, "  %-24s %12s  %d of %d linear layers (--matmul %s)\n", "products", "8 bits",
                fp8, all, matmul_dtype_name(p->programs->matmul));
}

/* Weights whose layers round operands (--qat), of those that have two axes and are trained. */
static void print_rounded(const ckpt_program *p, FILE *f)
{
    const struct params *ps = p->programs->params;
    const struct ckpt_options *o = p->programs->options;
    int rounded = 0, all = 0;
    for (int32_t i = 0; i < p->tape->n_params; i++) {
        rounded += p->tape->rounded[i].weight != 0;
        all += ps->data[i].trainable && ps->data[i].desc.ndim > 1;
    }
    if (o->qat)
        fprintf(f, "  %-24s %12s  %d of %d weights and what they multiply (--qat, ranges %s)\n",
                "rounded", o->qat, rounded, all, o->qat_ranges ? o->qat_ranges : "average");
}

/* Ops without a gradient rule through which a parameter reaches the loss: its gradient lacks that
 * part. */
static void print_constants(const ckpt_tape *t, FILE *f)
{
    if (t->constant_ops)
        fprintf(f, "  %-24s %12d  as constants: %s%s has no gradient rule\n", "ops",
                (int)t->constant_ops, t->constant_op, t->constant_ops > 1 ? " as others" : "");
}

/* Frozen weights of the program that are stored in codes. */
static void print_frozen(const ckpt_program *p, FILE *f)
{
    const struct params *ps = p->programs->params;
    int64_t bytes = 0;
    char note[NOTE];
    int n = 0;
    for (int32_t i = 0; i < p->tape->n_storages; i++) {
        const struct storage *s = &p->tape->storages.data[i];
        if (s->kind != STORAGE_VALUE || !ps->data[s->param].training.codes)
            continue;
        bytes += s->bytes;
        n++;
    }
    if (!n)
        return;
    snprintf(note, sizeof note, "part of the parameters, %d frozen weight%s in %s", n,
             n == 1 ? "" : "s", params_frozen(ps));
    row(f, "  in codes", bytes, note);
}

/* Of the work of all stages, the part of a step in which one stands still. */
static double still(const ckpt_program *p)
{
    const int n = p->programs->ranks->sharing.stages;
    double busy = 0;
    for (int s = 0; s < n; s++)
        busy += stage_work(&p->stages[s].time, p->tape->n_micro);
    return p->pipeline_seconds > 0 ? 1 - busy / n / p->pipeline_seconds : 0;
}

static void print_stages(const ckpt_program *p, const struct ckpt_program_info *i, FILE *f)
{
    const struct sharing *sharing = &p->programs->ranks->sharing;
    if (!p->stages)
        return;
    fprintf(f,
            "  %-24s %12d  this is the plan of stage %d; on average one stands still for %.0f %% "
            "of a step%s\n",
            "stages", sharing->stages, sharing->stage + 1, 100 * still(p),
            i->micro_batch == 1 ? ""
            : i->n_micro == 1
                ? ": one micro-step passes from stage to stage; give a smaller --micro-batch"
                : "; less with a smaller --micro-batch");
    if (sharing->unlike)
        fprintf(f, "  %-24s %12s  GPUs round other than CPUs: the cut decides the last bits\n",
                "  devices", "unlike");
    for (int s = 0; s < sharing->stages; s++) {
        const struct stage_plan *k = &p->stages[s];
        char name[40], sent[64] = "";
        snprintf(name, sizeof name, sharing->unlike ? "  stage %d on %s" : "  stage %d", s + 1,
                 k->device);
        if (k->sent)
            snprintf(sent, sizeof sent, "; sends %s a micro-step", human_bytes(k->sent));
        fprintf(f, "  %-24s %12s  %s of work%s%s%s\n", name, human_bytes(k->peak),
                human_seconds(stage_work(&k->time, p->tape->n_micro)), sent,
                *k->layers ? "; " : "", k->layers);
    }
}

void ckpt_plan_print(const ckpt_program *p, FILE *f)
{
    if (!p || !f)
        return;
    struct ckpt_program_info i = CKPT_PROGRAM_INFO_INIT;
    ckpt_program_info(p, &i);
    const struct plan *plan = p->plan;
    fprintf(f, "plan: %d ops, batch %lld in %lld micro-step%s of %lld\n", i.ops, (long long)i.batch,
            (long long)i.n_micro, i.n_micro == 1 ? "" : "s", (long long)i.micro_batch);
    if (i.choice_changes_bits)
        fputs(
            "  chosen by this plan, so the last bits of the numbers depend on the budget: how the "
            "step is cut\n",
            f);
    if (p->tape->env.unordered && p->tape->env.backend == CKPT_ON_CUDA)
        fputs("  unordered kernels allowed, so the last bits may differ from run to run and "
              "between budgets\n",
              f);
    if (*p->tape->coupled && p->trains && i.batch > 1)
        fprintf(f, "  %-24s %12s  micro-steps of another size would give other results: %s\n",
                "samples", "coupled", p->tape->coupled);
    struct device *d = p->programs->memory->device;
    if (!i.plan_only)
        fprintf(f, "  %-24s %12s  %s\n", "device", d->ops->name,
                *p->programs->memory->no_gpu ? p->programs->memory->no_gpu : d->name);
    print_ranks(p->programs, f);
    print_costs(p->graph, &p->programs->machine, f);
    print_algorithms(d, f);
    print_products(p, f);
    print_rounded(p, f);
    print_constants(p->tape, f);
    if (p->programs->int8 && p->trains)
        saved_print(p->tape, f);
    row(f, "parameters", i.parameter_bytes, "");
    print_frozen(p, f);
    char note[NOTE];
    row(f, "optimizer", i.optimizer_bytes, optimizer_note(p->programs->params, note));
    struct plan_summary s;
    plan_summarize(p->graph, plan, &s);
    row(f, "  streamed", s.streamed,
        "part of the optimizer, copied from a tier and back in each update");
    row(f, "  updated on the host", s.hosted, "part of the optimizer, not copied to the device");
    row(f, "  repeated on the host", s.repeated,
        "part of the optimizer, copied from a tier and not back");
    row(f, "  deferred", s.deferred, "part of these, for updates in the next forward pass");
    row(f, "gradients", i.gradient_bytes, gradient_note(p, i.n_micro));
    row(f, "activations kept", i.kept_bytes, "from forward to backward");
    row(f, "activations recomputed", i.recomputed_bytes, "");
    row(f, "workspace", i.workspace_bytes, "largest of one op");
    fprintf(f, "  %-24s %12s  exact; reached in %s\n", "peak", human_bytes(i.planned_peak),
            p->graph->ops[plan->steps[plan->peak_step].op].name);
    tier_row(f, p->programs, TIER_HOST, i.host_bytes);
    tier_row(f, p->programs, TIER_NVME, i.nvme_bytes);
    row(f, "copy of the state", p->programs->memory->saves, "of --host, while a thread writes it");
    row(f, "states in memory", peers_planned(p->programs->ranks->peers),
        "of --host, for ranks that are lost");
    char endurance[ENDURANCE_TEXT];
    row(f, "written to NVMe", s.nvme_written,
        endurance_text(endurance, &p->programs->machine, s.nvme_written, plan->seconds));
    row(f, "staging", plan->staging_bytes,
        plan->budgets.host ? "of --host, between device and NVMe"
                           : "of host memory, between device and NVMe");
    row(f, "context, libraries", i.overhead_bytes, "of the budget, outside the arena");
    if (i.overhead_bytes)
        row(f, "device, total", i.planned_peak + i.overhead_bytes, "the peak and the line above");
    print_budget(p->programs->memory, &i, f);
    if (*p->programs->memory->least)
        fprintf(f, "  %-24s %12s  %s, the smallest of %d ranks\n", "", "planned with",
                p->programs->memory->least, p->programs->ranks->sharing.ranks);
    print_time(&i, p->graph, plan, f);
    print_stages(p, &i, f);
    print_gain(p, &i, f);
}
