/* SPDX-License-Identifier: Apache-2.0 */
/* What a program tells of itself: memory by purpose, times, counts. */
#include "core/sized.h"
#include "exec/program.h"

static int64_t process_bytes(const struct programs *ps)
{
    struct device *d = ps->memory->device;
    return d->ops->backend == CKPT_ON_CUDA ? d->ops->overhead(d) + programs_arena_bytes(ps) : 0;
}

static struct ckpt_program_info make_info(const ckpt_program *p)
{
    const struct plan *plan = p->plan;
    struct plan_summary s;
    plan_summarize(p->graph, plan, &s);
    /* Includes memory that other programs of the context keep on the device. */
    int64_t persistent = max_i64(p->programs->memory->persistent, plan->persistent);
    return (struct ckpt_program_info){
        .plan_only = programs_only_plan(p->programs),
        .batch = p->batch,
        .micro_batch = p->tape->micro_batch,
        .n_micro = p->tape->n_micro,
        .steps = p->before + p->steps,
        .grad_norm = p->grad_norm,
        .budget = p->programs->budget,
        .planned_peak = persistent + plan->transient,
        .arena_bytes = programs_only_plan(p->programs) ? 0 : programs_arena_bytes(p->programs),
        .overhead_bytes = p->programs->memory->overhead,
        .process_bytes = process_bytes(p->programs),
        .min_budget = plan->min_budget
                          ? plan->min_budget - p->reserved + p->programs->memory->overhead +
                                persistent - plan->persistent
                          : 0,
        .parameter_bytes = s.parameters,
        .gradient_bytes = s.gradients,
        .optimizer_bytes = s.optimizer,
        .kept_bytes = s.kept,
        .recomputed_bytes = s.recomputed,
        .workspace_bytes = s.workspace,
        .step_seconds = p->stages ? p->pipeline_seconds : plan->seconds,
        .recompute_seconds = plan->recompute_seconds,
        .exposed_seconds = plan->exposed_seconds,
        .exposed_comm = plan->exposed_comm + (p->stages ? p->pipeline_seconds - plan->seconds : 0),
        .host_bytes = plan->host_bytes,
        .nvme_bytes = plan->nvme_bytes,
        .ops = p->graph->n_ops,
        .recomputed_ops = s.recomputed_ops,
        .choice_changes_bits = p->choice_changes_bits,
        .ended = p->ended,
    };
}

int ckpt_program_info(const ckpt_program *p, struct ckpt_program_info *info)
{
    NOT_NULL(p);
    ERRORS_TO(p->programs->error);
    NOT_NULL(info);
    struct ckpt_program_info all = make_info(p);
    return sized_write("struct ckpt_program_info", info, &all, sizeof all);
}
