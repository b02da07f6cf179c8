/* What a program takes: places for its parameters, the arena, the instructions of a step. */
#include "exec/program.h"
#include "homes.h"

int program_get_ready(struct ckpt_program *p)
{
    struct device *d = p->c->device;
    int rc = program_lower(p);
    if (rc) {
        program_forget(p); /* what was recorded goes to where it was */
        return context_fail(p->c, rc, "%s",
                            rc == CKPT_EPLAN ? "the plan parks what is not resident"
                                             : "no memory for the instructions");
    }
    rc = program_record(p);
    return rc ? context_fail(p->c, rc, "the device cannot record the step: %s", d->reason) : 0;
}

/* Optimizer state that lives where steps on the host use it has no parks, but a home. */
static void place_parameter(struct ckpt_program *p, int32_t storage, const struct storage *s)
{
    const struct plan_lodging *l = plan_lodging_of(p->plan, storage);
    const struct plan_park home = {.tier = FATE_PARK_HOST, .tier_offset = l ? l->tier_offset : 0};
    bool lives_there = l && l->in_step < 0;
    context_place_slot(p->c, s->param, s->kind - STORAGE_VALUE,
                       lives_there ? &home : plan_park_of(p->plan, storage));
}

void program_place(struct ckpt_program *p)
{
    for (int32_t i = 0; i < p->graph->n_storages; i++) {
        const struct storage *s = &p->tape->storages.data[p->graph->storages[i].tape_storage];
        if (p->graph->storages[i].persistent)
            place_parameter(p, i, s);
    }
}

int program_take_memory(struct ckpt_program *p)
{
    ckpt *c = p->c;
    int rc = homes_reserve(c);
    if (!rc && p->plan->n_lodgings)
        rc = homes_open_steps(c);
    if (rc)
        return rc;
    if (c->device->ops->map(c->device, context_arena_bytes(c)))
        return context_fail(c, CKPT_ENOMEM, "there is no %s for the arena of --device %s now",
                            human_bytes(context_arena_bytes(c)), c->device->ops->name);
    rc = program_move_others(p);
    if (!rc)
        rc = context_fill_slots(c);
    return rc ? rc : program_get_ready(p);
}
