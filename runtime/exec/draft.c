/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The draft of a program, made before memory is mapped: its tape, the graph with times, a plan.  It
 * decides
 *
 * - what all ranks compare before any of it runs (make_graph);
 * - whether a plan is read, found without a search, or searched for (program_plan), by rank 0.
 *
 * The tape follows from the model and the options, never from a budget.  A failure sets the
 * context's sentence, and the caller drops the draft.
 */
#include <stdlib.h>
#include <string.h>
#include "ckpt.h"
#include "core/checksum.h"
#include "exec/program.h"
#include "memory/device/team.h"
#include "kernels/kernel.h"
#include "measure/warm.h"
#include "optim/optim.h"
#include "passes/passes.h"
#include "plan/graph/graph_file.h"
#include "recorders.h"

/* Sets the context's sentence to one of the tape or the planner. */
static int fail_with(struct programs *ps, int code, const char *sentence)
{
    if (code == CKPT_EBUDGET && ps->memory->asked)
        return error_set(code, "%s requested, but the device has less: %s",
                         human_bytes(ps->memory->asked), sentence);
    return error_set(code, "%s", sentence);
}

struct tape_env programs_tape_env(const struct programs *ps)
{
    const int64_t tiles = kernel_epilogue_tiles(ps->backend, ps->machine.capability);
    return (struct tape_env){
        .calls = &ops_calls,
        .backend = ps->backend,
        .unordered = ps->options->unordered,
        .matmul = ps->matmul,
        .int8 = ps->int8,
        .epilogue_tiles = ps->epilogue_tiles ? ps->epilogue_tiles : tiles,
        .on_host = kernel_on_host,
        .without = ps->without,
        .threads = ps->backend == CKPT_ON_CPU ? team_count((int)ps->options->threads) : 1,
        .params = ps->params,
        .sharing = ps->ranks->sharing};
}

/* Refuses a parameter that two programs train by different kinds of optimizer: their states
 * differ. */
static int check_kinds(const struct ckpt_program *p)
{
    const struct params *ps = p->programs->params;
    for (const struct ckpt_program *o = p->programs->first; o; o = o->next)
        for (int32_t i = 0; o->trains && i < ps->n - ps->n_hidden && i < o->tape->n_params; i++) {
            if (o == p || !p->tape->param_gradient[i] || !o->tape->param_gradient[i])
                continue;
            enum optim_kind kind = optim_rule_at(p->optimizer, p->groups[i])->kind,
                            other = optim_rule_at(o->optimizer, o->groups[i])->kind;
            if (kind != other)
                return error_set(CKPT_EINVAL,
                                 "'%s' is trained by %s here and by %s in another program: their "
                                 "states are not the same",
                                 ps->data[i].name, optim_kind_name(kind), optim_kind_name(other));
        }
    return 0;
}

static bool has_bf16_param(const struct params *ps, bool trained)
{
    for (int32_t i = 0; i < ps->n; i++)
        if (ps->data[i].desc.dtype == CKPT_BF16 && (ps->data[i].trainable || !trained))
            return true;
    return false;
}

static bool has_bf16_tensor(const ckpt_tape *t)
{
    for (int32_t i = 0; i < t->n_tensors; i++)
        if (t->tensors.data[i].desc.dtype == CKPT_BF16)
            return true;
    return false;
}

/* Refuses options for bf16 in a context where they would change nothing. */
static int check_modes(const struct ckpt_program *p)
{
    const struct programs *ps = p->programs;
    const struct {
        bool unused;
        const char *option, *value, *what;
    } all[] = {
        {ps->params->half_state && !has_bf16_param(ps->params, true), "state", ps->options->state,
         "parameter that is trained"},
        {ps->matmul && !has_bf16_param(ps->params, false), "matmul", ps->options->matmul,
         "parameter"},
        {ps->int8 && !has_bf16_param(ps->params, false) && !has_bf16_tensor(p->tape), "activations",
         ps->options->activations, "activation"},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].unused)
            return error_set(CKPT_EINVAL,
                             "--%s %s would change nothing: no %s is bf16; leave it out, or make "
                             "the model bf16, in programs with --dtype bf16",
                             all[i].option, all[i].value, all[i].what);
    return 0;
}

/* Which weights the layers of a tape round: files of codes have these.  And which buffers it
 * writes: states have these. */
static void note_rounded(struct params *ps, const ckpt_tape *t)
{
    for (int32_t i = 0; i < t->n_params; i++)
        ps->data[i].updated |= t->param_next[i] != 0;
    for (int32_t i = 0; i < t->n_params; i++)
        if (t->rounded[i].weight) {
            ps->data[i].training.qat.used = true;
            ps->data[i].training.qat.whole = t->rounded[i].whole;
        }
}

/* Whether an op reads a parameter. */
static bool reads_param(const ckpt_tape *t, int32_t param)
{
    const int32_t x = t->slots[param][SLOT_VALUE];
    return x && t->storages.data[t->tensors.data[x].storage].kind == STORAGE_VALUE &&
           uses_last_reader(t, t->tensors.data[x].storage) >= 0;
}

/* Which stages of a pipeline have which parameters: those of the first program that reads them.
 * Programs after it are cut accordingly. */
static int note_stages(const struct programs *ps, const ckpt_tape *t)
{
    const struct sharing *s = &ps->ranks->sharing;
    for (int32_t i = 0; i < t->n_params; i++) {
        struct param *p = &ps->params->data[i];
        const bool known = p->place.stage || i >= ps->params->n - ps->params->n_hidden;
        const int32_t own = t->param_stage[i] + 1, stage = known ? p->place.stage : own;
        if (known && own && own != stage)
            return error_set(CKPT_EINVAL,
                             "--stages: a program before this one has parameter '%s' in another "
                             "stage",
                             p->name);
        if (stage != p->place.stage && tape_is_sharded(t, i))
            return error_set(CKPT_EINVAL,
                             "--stages: no program before this one reads parameter '%s', so no "
                             "stage has it: compile a program that reads all parameters first",
                             p->name);
        const bool others = stage && stage != s->stage + 1 && !reads_param(t, i);
        p->place.elsewhere = others && (!ps->first || !p->place.stage || p->place.elsewhere);
        p->place.stage = stage;
    }
    return 0;
}

/* A tape for micro-steps of this size, with nothing recorded. */
static int open_tape(struct ckpt_program *p, int64_t micro, ckpt_tape **t)
{
    const struct ckpt_optimizer *opt = p->optimizer;
    struct tape_env env = programs_tape_env(p->programs);
    env.frozen = p->frozen;
    if (tape_new(t, &env, micro, (int32_t)(p->batch / micro)))
        return error_set(CKPT_ENOMEM, "no memory for a tape");
    (*t)->trains = opt != NULL;
    (*t)->updates_buffers = opt && !opt->keeps_buffers;
    (*t)->grad_dtype = opt ? opt->grad_dtype : CKPT_F32;
    return 0;
}

/* The size of micro-steps of a second recording that shows whether samples are coupled; 0 where
 * that makes no difference.  Rather not 1: a sample alone has no neighbours, and axes of size 1 are
 * left out of some ops. */
static int64_t other_size(const struct ckpt_program *p, int64_t micro)
{
    const int64_t n = micro > 1 ? micro : p->batch;
    const bool tries = p->programs->options->micro_batch == CKPT_AUTO;
    int64_t divisor = 2;
    if (!p->trains || n == 1 || (micro == p->batch && !tries && !program_is_shared(p)))
        return 0;
    while (n % divisor)
        divisor++;
    if (micro == 1)
        return divisor;
    return micro > divisor || micro == p->batch ? micro / divisor : p->batch;
}

/* Records one variant and makes its loss an output.  The update of several ranks outputs the loss
 * summed over them instead. */
static ckpt_tensor record_loss(const struct ckpt_program *p, const struct ckpt_variant *variant,
                               int64_t micro)
{
    ckpt_tape *t = p->tape;
    ckpt_tensor loss = variant->record(t, micro, variant->user);
    struct ckpt_desc d = loss.id ? ckpt_desc_of(t, loss) : (struct ckpt_desc){.ndim = -1};
    if (d.ndim >= 0 && d.dtype == CKPT_F32 && desc_numel(&d) == 1 && !program_is_shared(p))
        ckpt_output(t, PROGRAM_LOSS, loss);
    return loss;
}

/* last: the pass after which it ends, or NULL. */
static int record_tape(struct ckpt_program *p, const struct ckpt_variant *variant, int64_t micro,
                       const char *last)
{
    struct programs *ps = p->programs;
    const struct ckpt_optimizer *opt = p->optimizer;
    const int64_t other = other_size(p, micro);
    ckpt_tape *second = NULL;
    ckpt_tensor again = CKPT_NONE;
    const int32_t n_params = ps->params->n;
    int failed = other ? open_tape(p, other, &second) : 0;
    if (!failed && other) {
        /* Means over parts are recorded in other ops, so both have parts if the step has. */
        second->n_micro = (int32_t)max_i64(second->n_micro, micro < p->batch ? 2 : 1);
        /* first: what the recorder stores stays that of the step */
        again = variant->record(second, other, variant->user);
    }
    if (!failed)
        failed = open_tape(p, micro, &p->tape);
    if (failed) {
        tape_free(second);
        return failed;
    }
    ckpt_tape *t = p->tape;
    struct compilation c = {.tape = t,
                            .loss = record_loss(p, variant, micro),
                            .other = second,
                            .again = again,
                            .optimizer = opt,
                            .groups = p->groups,
                            .last = last,
                            .verify = ps->options->verify,
                            .dump = last ? NULL : ps->options->dump_tape};
    if (ps->params->n == n_params && !passes_run(&c) && !last)
        kernel_bind(t);
    tape_free(second);
    if (ps->params->n != n_params)
        return error_set(CKPT_EINVAL,
                         "the recorder made a parameter: make parameters before compiling");
    if (t->error.code)
        return fail_with(ps, t->error.code, t->error.text);
    note_rounded(ps->params, t);
    int rc = opt ? check_modes(p) : 0;
    if (!rc && ps->ranks->sharing.stages > 1)
        rc = note_stages(ps, t);
    if (last || !sharing_has_pipelines(&ps->ranks->sharing)) /* what an earlier one cut is fixed */
        p->cut = (struct stage_try){.from = t->cut_from, .to = t->cut_to};
    return opt && !rc ? check_kinds(p) : rc;
}

/* Before anything runs: every op must have a kernel for this device. */
static int check_kernels(struct ckpt_program *p)
{
    for (int32_t i = 0; i < p->tape->n_ops; i++) {
        const struct op *o = &p->tape->ops.data[i];
        char name[256];
        if (o->feed >= 0 || o->fetch >= 0 || (o->def->flags & CKPT_OP_VIEW) || o->run)
            continue;
        tape_op_name(p->tape, i, name, sizeof name);
        return error_set(CKPT_EDEVICE, "%s has no kernel for --device %s", name,
                         p->programs->memory->device->ops->name);
    }
    return 0;
}

/* Digest of the optimizer: equal on all ranks that update alike; 0 without an optimizer. */
static int sign_optimizer(const struct ckpt_program *p, uint64_t *signature)
{
    char *text = p->optimizer ? optim_describe(p->optimizer) : NULL;
    if (p->optimizer && !text)
        return error_set(CKPT_ENOMEM, "no memory to describe an optimizer");
    *signature = text ? checksum(text, (int64_t)strlen(text)) : 0;
    if (text)
        *signature = hash_mix(hash_mix(*signature, p->optimizer->grad_dtype),
                              (int64_t)checksum(&p->optimizer->lr, sizeof p->optimizer->lr));
    free(text);
    return 0;
}

/* Each stage of ranks that are only planned has a file of its own. */
static int write_graph(const struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    const struct graph_pipeline *of = &p->graph->pipeline;
    const char *to = ps->options->graph_out;
    char path[4096];
    if (!to || !p->trains)
        return 0;
    int rc = of->stages ? graph_name_stage(path, sizeof path, to, of->stages, of->stage) : 0;
    if (!rc)
        rc = graph_write(p->graph, of->stages ? path : to);
    if (!rc)
        ps->written |= WRITTEN_GRAPH;
    return rc;
}

/* Makes the graph with the times that the planner uses.  Ranks compare graph and optimizer before
 * any kernel runs, and the warm-up already runs kernels. */
static int make_graph(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    const double begin = clock_seconds();
    int rc = programs_time_links(ps);
    startup_add(ps, STARTUP_LINKS, begin);
    if (rc)
        return rc;
    if (graph_from_tape(p->tape, &ps->machine, &p->graph))
        return error_set(CKPT_ENOMEM, "no memory for the graph");
    p->graph->watch = &ps->watch;
    p->graph->in_turn = program_trains_in_turn(p);
    rc = write_graph(p);
    if (rc)
        return rc;
    bool runs_here = ps->memory->device && ps->memory->device->ops->backend == ps->backend;
    rc = runs_here ? check_kernels(p) : 0;
    uint64_t optimizer = 0;
    if (!rc)
        rc = sign_optimizer(p, &optimizer);
    if (!rc && ps->ranks->comm)
        rc = ranks_agree(ps->ranks, p->batch,
                         p->tape->cuts ? p->tape->cuts : graph_signature(p->graph), optimizer);
    if (!rc)
        rc = program_load_algorithms(p);
    p->reserved = ps->memory->overhead + ps->memory->persistent - program_placed_bytes(p);
    return rc;
}

bool programs_may_cut(const struct programs *ps)
{
    for (int32_t i = 0; i < ps->params->n; i++)
        for (int s = 0; s < SLOT_COUNT; s++)
            if (ps->params->data[i].place.filled[s])
                return false;
    return !ps->first;
}

/* Of several pipelines, the ranks of a stage share its parameters in buckets, which a model reads
 * while it is recorded.  So a first recording finds which stage has which parameters; the next one
 * is cut likewise. */
static int find_stages(struct ckpt_program *p, const struct ckpt_variant *variant, int64_t micro)
{
    struct ranks *job = p->programs->ranks;
    if (job->sharing.stages < 2 || !programs_may_cut(p->programs))
        return 0;
    ranks_forget_stages(job);
    if (!sharing_has_pipelines(&job->sharing))
        return 0;
    int rc = record_tape(p, variant, micro, "stages");
    tape_free(p->tape);
    p->tape = NULL;
    return rc ? rc : ranks_share_stages(job);
}

int program_draft(struct ckpt_program *p, const struct ckpt_variant *variant, int64_t micro)
{
    const double begin = clock_seconds();
    int rc = find_stages(p, variant, micro);
    if (!rc)
        rc = record_tape(p, variant, micro, NULL);

    startup_add(p->programs, STARTUP_RECORD, begin);
    return rc ? rc : make_graph(p);
}

int program_run_first(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    int rc = program_warm(p);

    p->reserved = ps->memory->overhead + ps->memory->persistent - program_placed_bytes(p);
    return rc;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* A plan from a file needs tier addresses that are free in this context. */
static int check_tiers(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    const struct plan *plan = p->plan;
    int64_t has[] = {[TIER_HOST] = ps->memory->host, [TIER_NVME] = ps->memory->directories.bytes};
    int64_t host = has[TIER_HOST], slots = plan_stages(plan) && host ? plan_staging(host) : 0;
    int64_t own[] = {[TIER_HOST] = plan->host_bytes + slots, [TIER_NVME] = plan->nvme_bytes};
    for (int i = 0; i < TIER_COUNT; i++) {
        const char *name = i == TIER_HOST ? "--host" : "--nvme";
        int64_t base = plan->budgets.tier_base[i], taken = program_tier_base(p, i);
        if (own[i] && base < taken)
            return error_set(CKPT_EPLAN,
                             "%s: the plan offloads from byte %lld of %s on, but programs "
                             "compiled before use %lld bytes of it",
                             ps->options->plan_in, (long long)base, name, (long long)taken);
        if (own[i] > has[i] - base)
            return error_set(CKPT_EBUDGET,
                             "%s: the plan needs %s %lld, %lld bytes more than there are",
                             ps->options->plan_in, name, (long long)(base + own[i]),
                             (long long)(base + own[i] - has[i]));
    }
    return 0;
}

static int read_plan(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    int rc = plan_read(p->graph, ps->options->plan_in, &p->plan);
    if (!rc)
        rc = plan_check(p->graph, p->plan);
    if (rc)
        return rc;
    if (plan_reprice(p->graph, &ps->machine, p->plan))
        return error_set(CKPT_ENOMEM, "no memory for the plan");
    int64_t needs = p->reserved + p->plan->persistent + p->plan->transient;
    if (needs > ps->budget)
        return error_set(CKPT_EBUDGET, "%s: the plan needs %s, over the budget of %s",
                         ps->options->plan_in, human_bytes(needs), human_bytes(ps->budget));
    return ps->options->plan_only ? 0 : check_tiers(p);
}

bool program_plan_is_given(const struct ckpt_program *p)
{
    return p->programs->options->plan_in && p->trains;
}

/* --vram none: the plan of an unlimited budget, or a refusal if the device is too small for it. */
static int plan_unlimited(struct ckpt_program *p, struct frontier *pf, const struct budgets *b)
{
    struct programs *ps = p->programs;
    struct budgets none = *b;
    none.device = INT64_MAX;
    int rc = frontier_plan(pf, &ps->machine, &none, p->reserved, &p->plan);
    if (rc)
        return rc;
    int64_t needs = p->reserved + p->plan->persistent + p->plan->transient;
    if (needs <= b->device)
        return 0;
    plan_free(p->plan);
    p->plan = NULL;
    return error_set(CKPT_EBUDGET,
                     "--vram none: without a budget the step takes %s, and the device has %s; "
                     "--vram auto plans for the memory of the device",
                     human_bytes(needs), human_bytes(b->device));
}

static int plan_by_option(struct ckpt_program *p, struct frontier *pf, const struct budgets *b)
{
    struct programs *ps = p->programs;
    if (ps->options->vram == CKPT_VRAM_NONE)
        return plan_unlimited(p, pf, b);
    if (ps->memory->free_first)
        return frontier_plan_free(pf, &ps->machine, b, p->reserved, &p->plan);
    return frontier_plan(pf, &ps->machine, b, p->reserved, &p->plan);
}

/* The frontier of p's graph, by one of frontiers_get and frontiers_get_first. */
static int find_frontier(struct ckpt_program *p, struct frontier **pf,
                         int (*get)(struct frontiers *, const struct graph *, struct frontier **))
{
    struct programs *ps = p->programs;
    int rc = graph_check_seconds(p->graph);
    if (rc)
        return rc;
    rc = ps->searched ? 0 : frontiers_new(&ps->searched);
    if (!rc)
        rc = get(ps->searched, p->graph, pf);
    return rc ? plan_fail(rc) : 0;
}

/* Plans without a search if that suffices; else leaves p->plan NULL. */
static int try_first(struct ckpt_program *p, const struct budgets *b)
{
    struct programs *ps = p->programs;
    struct budgets here = *b;
    if (ps->options->vram == CKPT_VRAM_NONE || ps->memory->free_first)
        here.device = INT64_MAX;
    struct frontier *pf;
    int rc = find_frontier(p, &pf, frontiers_get_first);
    if (!rc)
        rc = frontier_first(pf, &ps->machine, &here, p->reserved, &p->plan);
    if (rc || !p->plan || p->reserved + p->plan->persistent + p->plan->transient <= b->device)
        return rc;
    plan_free(p->plan);
    p->plan = NULL;
    return 0;
}

static int search(struct ckpt_program *p, const struct budgets *b)
{
    struct frontier *pf;
    int rc = find_frontier(p, &pf, frontiers_get);
    return rc ? rc : plan_by_option(p, pf, b);
}

/* Whether the plan has to report everything; a plan written to a file does. */
static bool needs_full_report(const struct ckpt_program *p)
{
    return !p->brief || (p->programs->options->plan_out && p->trains);
}

static int search_plan(struct ckpt_program *p, const struct budgets *budgets)
{
    struct programs *ps = p->programs;
    int rc = needs_full_report(p) ? 0 : try_first(p, budgets);
    if (!rc && !p->plan)
        rc = search(p, budgets);
    if (!rc && ps->options->verify)
        rc = plan_check(p->graph, p->plan);
    if (!rc && ps->options->verify)
        rc = plan_check_times(p->graph, &ps->machine, p->plan);
    if (rc == CKPT_ESTOP)
        programs_forget_searches(ps); /* they are not complete */
    return rc ? fail_with(ps, rc, error_get()) : 0;
}

int program_plan(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    struct budgets budgets;
    const double begin = clock_seconds();
    int rc = program_find_budgets(p, &budgets);
    if (rc)
        return rc;
    if (ranks_lead(ps->ranks))
        rc = program_plan_is_given(p) ? read_plan(p) : search_plan(p, &budgets);
    rc = program_broadcast_plan(p, rc);
    if (!rc)
        rc = program_store_algorithms(p);
    startup_add(ps, STARTUP_PLAN, begin);
    return rc;
}

int program_least_budget(struct ckpt_program *p, int64_t *bytes)
{
    struct programs *ps = p->programs;
    const bool own = ranks_lead(ps->ranks);
    struct budgets b;
    struct frontier *pf;
    int rc = program_find_budgets(p, &b);
    *bytes = INT64_MAX;
    if (!rc && own)
        rc = find_frontier(p, &pf, frontiers_get);
    if (!rc && own)
        rc = frontier_least(pf, &ps->machine, &b, p->reserved, bytes);
    return program_broadcast_bytes(p, rc, bytes);
}

int program_bound(struct ckpt_program *p, double *seconds)
{
    struct programs *ps = p->programs;
    struct budgets budgets;
    const double begin = clock_seconds();
    int rc = program_find_budgets(p, &budgets);
    struct frontier *pf;
    *seconds = 0;
    if (!rc && !ps->ranks->rank)
        rc = find_frontier(p, &pf, frontiers_get_first);
    if (!rc && !ps->ranks->rank)
        rc = frontier_bound(pf, &ps->machine, &budgets, p->reserved, seconds);
    startup_add(ps, STARTUP_PLAN, begin);
    return rc;
}

int program_write_plan(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    if (!ps->options->plan_out || !p->trains || ps->n_refused)
        return 0;
    int rc = plan_write(p->graph, p->plan, ps->options->plan_out);
    if (!rc)
        ps->written |= WRITTEN_PLAN;
    return rc;
}

void program_drop_plan(struct ckpt_program *p)
{
    plan_free(p->plan);
    graph_free(p->graph);
    tape_free(p->tape);
    p->plan = NULL;
    p->graph = NULL;
    p->tape = NULL;
}
