/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of a context have together: bytes of the arena and of the tiers. */
#include "exec/program.h"

bool programs_only_plan(const struct programs *ps)
{
    return ps->options->plan_only || ps->n_refused;
}

void programs_forget_searches(struct programs *ps)
{
    frontiers_free(ps->searched);
    ps->searched = NULL;
}

int64_t program_placed_bytes(const struct ckpt_program *p)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < p->graph->n_storages; i++)
        if (p->graph->storages[i].backing == BACKING_DEVICE)
            bytes += p->graph->storages[i].bytes;
    return bytes;
}

int64_t programs_arena_bytes(const struct programs *ps)
{
    int64_t transient = 0;
    for (const struct ckpt_program *p = ps->first; p; p = p->next)
        transient = max_i64(transient, p->plan->transient);
    return ps->memory->persistent + transient;
}

static int64_t plan_end(const struct plan *p, int tier)
{
    int64_t bytes = tier == TIER_HOST ? p->host_bytes : p->nvme_bytes;
    return bytes ? p->budgets.tier_base[tier] + bytes : 0;
}

/* Bytes of a tier that keep what they hold between steps: parameters, and states being written. */
static int64_t kept_bytes(const struct programs *ps, int tier)
{
    const struct memory *m = ps->memory;
    return max_i64(memory_tier_bytes(ps->params, tier),
                   tier == TIER_HOST ? m->saves_at + m->saves : 0);
}

int64_t programs_tier_bytes(const struct programs *ps, int tier)
{
    int64_t end = kept_bytes(ps, tier);
    for (const struct ckpt_program *p = ps->first; p; p = p->next)
        end = p->plan ? max_i64(end, plan_end(p->plan, tier)) : end;
    return end;
}

/* Bytes that a program keeps in a tier within a step may be overwritten by the next program.
 * Backing residences that are still to be placed must lie where no program has anything. */
int64_t program_tier_base(const struct ckpt_program *p, int tier)
{
    for (int32_t s = 0; s < p->graph->n_storages; s++)
        if (p->graph->storages[s].persistent && p->graph->storages[s].backing == BACKING_ANY)
            return programs_tier_bytes(p->programs, tier);
    return kept_bytes(p->programs, tier);
}
