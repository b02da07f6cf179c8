/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates what a program needs: addresses of its parameters, the arena, the instructions. */
#include "exec/program.h"
#include "dist/values.h"
#include "memory/tier/host_limits.h"

static int record(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    int rc = program_record(p);
    return rc ? error_set(rc, "the device cannot record the step: %s", ps->memory->device->reason)
              : 0;
}

int program_prepare(struct ckpt_program *p)
{
    int rc = program_lower(p);
    if (rc) {
        program_forget(p); /* recordings use the old addresses */
        return error_set(rc, "no memory for the instructions");
    }
    return record(p);
}

/* A residence that runs into the next step while its bytes are copied out: programs that are
 * planned later use the address that the first such program gave it. */
static void place_crossing(struct ckpt_program *p, const struct residence *r)
{
    const struct graph_storage *g = r->storage >= 0 ? &p->graph->storages[r->storage] : NULL;
    if (!g || !g->persistent || r->tier != TIER_DEVICE || r->last < p->plan->n_steps)
        return;
    const struct storage *s = &p->tape->storages.data[g->tape_storage];
    struct param *w = &p->programs->params->data[s->param];
    int slot = s->kind - STORAGE_VALUE;
    w->place.crossing[slot] = w->place.crosses[slot] ? w->place.crossing[slot] : r->offset;
    w->place.crosses[slot] = true;
}

/* Places storages in the order of residences, which is the order of addresses. */
void program_place(struct ckpt_program *p)
{
    static const enum backing backings[] = {BACKING_DEVICE, BACKING_HOST, BACKING_NVME};
    const struct plan *plan = p->plan;
    for (int32_t i = 0; i < plan->n_residences; i++) {
        const struct residence *r = &plan->residences[i];
        place_crossing(p, r);
        if (!plan_is_backing(p->graph, plan, r))
            continue;
        const struct storage *s =
            &p->tape->storages.data[p->graph->storages[r->storage].tape_storage];
        memory_place_slot(p->programs->memory, &p->programs->params->data[s->param],
                          s->kind - STORAGE_VALUE, backings[r->tier - TIER_DEVICE], r->offset);
    }
}

/* Sets the times of all plans to what they are where part of the host tier is not pinned. */
static int price_pageable(struct programs *ps)
{
    const struct tier *t = ps->memory->tiers[TIER_HOST];
    int rc = 0;
    if (!t || !t->pageable)
        return 0;
    struct machine m = machine_pageable(&ps->machine, (double)t->pageable / (double)t->bytes);
    for (struct ckpt_program *p = ps->first; p && !rc; p = p->next)
        rc = plan_reprice(p->graph, &m, p->plan);
    return rc ? error_set(rc, "no memory for the times of a plan") : 0;
}

/* Makes the tiers long enough for all plans. */
static int reserve(struct programs *ps)
{
    int64_t bytes[TIER_COUNT];
    for (int i = 0; i < TIER_COUNT; i++)
        bytes[i] = programs_tier_bytes(ps, i);
    int rc = memory_reserve(ps->memory, bytes);
    return rc ? rc : price_pageable(ps);
}

int programs_open_steps(struct programs *ps)
{
    return ps->memory->host_steps ? 0 : memory_open_steps(ps->memory, ranks_beside(ps->ranks));
}

/* Maps the arena.  On the CPU it is host memory, of which all tiers took theirs before: the process
 * would be killed when it touches a page too many. */
static int map_arena(struct programs *ps)
{
    struct memory *m = ps->memory;
    const int64_t bytes = programs_arena_bytes(ps);
    const bool host = m->device->ops->backend != CKPT_ON_CUDA;
    struct host_limit l = host_limits_check("", host ? max_i64(0, bytes - m->arena) : 0);

    if (host && l.short_by > 0)
        return error_set(CKPT_ENOMEM,
                         "%s for the arena of --device %s: %s leaves %s: %s short; lower --vram or "
                         "free memory",
                         human_bytes(bytes), m->device->ops->name, l.name, human_bytes(l.left),
                         human_bytes(l.short_by));
    if (m->device->ops->map(m->device, bytes))
        return error_set(CKPT_ENOMEM, "%s for the arena of --device %s cannot be allocated now",
                         human_bytes(bytes), m->device->ops->name);
    m->arena = bytes;
    return 0;
}

int program_map_memory(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    double begin = clock_seconds();
    int rc = reserve(ps);
    if (!rc && plan_uses_host(p->plan))
        rc = programs_open_steps(ps);
    if (rc)
        return rc;
    rc = map_arena(ps);
    if (rc)
        return rc;
    rc = program_move_others(p);
    begin = startup_add(ps, STARTUP_MEMORY, begin);
    if (!rc)
        rc = values_fill(ps->ranks);
    if (!rc && ps->ranks->sharing.stages > 1)
        rc = values_tell_stages(ps->ranks);
    begin = startup_add(ps, STARTUP_VALUES, begin);
    rc = rc ? rc : program_prepare(p);
    startup_add(ps, STARTUP_INSTRUCTIONS, begin);
    return rc;
}
