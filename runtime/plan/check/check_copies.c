/* SPDX-License-Identifier: Apache-2.0 */
/* Copies one by one, and their order on each queue.  Their times are a forecast, which
 * plan_check_times compares. */
#include "plan/check/check.h"

/* ---- one copy -------------------------------------------------------------------------------- */

static bool is_backing(const struct checker *c, int32_t n)
{
    return c->backing[c->p->residences[n].storage] == n;
}

/* With several micro-steps all bodies have the same copies. */
static int check_part(struct checker *c, int32_t i)
{
    const struct copy *k = &c->p->copies[i];
    const struct residence *r = c->p->residences, *from = &r[k->from];
    int32_t body = c->p->n_body;
    bool out = from->tier == TIER_DEVICE, persistent = c->g->storages[from->storage].persistent;
    if (c->g->n_micro == 1)
        return 0;
    if (out && persistent && k->after < body)
        return violation(c, "copy %d: %.200s goes out in every micro-step", (int)i,
                         check_storage(c, from->storage));
    if (!out && k->before < c->p->n_steps && (k->after + 1 < body) != (k->before < body))
        return violation(c, "copy %d: %.200s comes back in another part of the step than its use",
                         (int)i, check_storage(c, from->storage));
    return 0;
}

static int check_out(struct checker *c, int32_t i)
{
    const struct copy *k = &c->p->copies[i];
    const struct residence *from = &c->p->residences[k->from], *to = &c->p->residences[k->to];
    if (k->after < from->first || k->after > from->last ||
        (!is_backing(c, k->from) && k->before > from->last + 1) || k->before <= k->after)
        return violation(c,
                         "copy %d: %.200s goes out after step %d, and is on the device from %d "
                         "to %d",
                         (int)i, check_storage(c, from->storage), (int)k->after, (int)from->first,
                         (int)from->last);
    if (!is_backing(c, k->to) && to->first != k->after)
        return violation(c, "copy %d: %.200s has a place below from step %d on", (int)i,
                         check_storage(c, to->storage), (int)to->first);
    return 0;
}

static int check_in(struct checker *c, int32_t i)
{
    const struct copy *k = &c->p->copies[i];
    const struct residence *from = &c->p->residences[k->from], *to = &c->p->residences[k->to];
    int32_t steps = c->p->n_steps;
    bool next = is_backing(c, k->to); /* the next step waits for it */
    if (next ? k->before < steps || k->before >= 2 * steps || k->after < from->first
             : to->first != k->after + 1 || k->before < to->first || k->before > to->last ||
                   k->before >= steps)
        return violation(c,
                         "copy %d: %.200s comes back after step %d for step %d, and is on the "
                         "device from %d to %d",
                         (int)i, check_storage(c, to->storage), (int)k->after, (int)k->before,
                         (int)to->first, (int)to->last);
    if (!is_backing(c, k->from) &&
        (from->first > k->after || from->last < (next ? k->after : k->before)))
        return violation(c, "copy %d: %.200s has no place below any more", (int)i,
                         check_storage(c, to->storage));
    return 0;
}

static int check_copy(struct checker *c, int32_t i, int32_t *filled)
{
    const struct copy *k = &c->p->copies[i];
    const struct residence *r = c->p->residences;
    if (k->from < 0 || k->to < 0 || k->from >= c->p->n_residences || k->to >= c->p->n_residences)
        return violation(c, "copy %d is between residences that are not there", (int)i);
    if (r[k->from].storage < 0 || r[k->from].storage != r[k->to].storage ||
        (r[k->from].tier == TIER_DEVICE) == (r[k->to].tier == TIER_DEVICE))
        return violation(c, "copy %d is not between the device and a tier below of one storage",
                         (int)i);
    if (k->after < -1 || k->after >= c->p->n_steps)
        return violation(c, "copy %d has a step outside of the plan", (int)i);
    if (!(is_backing(c, k->to) && r[k->to].tier != TIER_DEVICE) && filled[k->to]++)
        return violation(c, "copy %d: %.200s comes twice", (int)i,
                         check_storage(c, r[k->to].storage));
    int rc = copy_is_out(r, k) ? check_out(c, i) : check_in(c, i);
    return rc ? rc : check_part(c, i);
}

/* Every copy is valid, and every residence that needs a copy has one. */
static int check_each(struct checker *c)
{
    int32_t *filled = pool_filled(&c->memory, c->p->n_residences, 0);
    int rc = filled ? 0 : CKPT_ENOMEM;
    for (int32_t i = 0; i < c->p->n_copies && !rc; i++)
        rc = check_copy(c, i, filled);
    for (int32_t n = 0; n < c->p->n_residences && !rc; n++) {
        const struct residence *r = &c->p->residences[n];
        if (r->storage >= 0 && c->g->storages[r->storage].persistent && r->tier == TIER_DEVICE &&
            !is_backing(c, n) && !filled[n])
            rc = violation(c, "residence %d: nothing brings %.200s there", (int)n,
                           check_storage(c, r->storage));
    }
    return rc;
}

static int queue_of(const struct checker *c, const struct copy *k)
{
    return 2 * copy_tier(c->p->residences, k) + !copy_is_out(c->p->residences, k);
}

/* `after` must not fall within a queue: otherwise steps would wait for a copy that waits for them.
 */
int check_copies(struct checker *c)
{
    int rc = check_each(c);
    for (int32_t i = 1; i < c->p->n_copies && !rc; i++) {
        const struct copy *k = &c->p->copies[i], *before = k - 1;
        int queue = queue_of(c, k), other = queue_of(c, before);
        if (other > queue || (other == queue && before->after > k->after))
            rc = violation(c, "copy %d: %.200s and a copy before it wait for each other", (int)i,
                           check_storage(c, c->p->residences[k->from].storage));
    }
    return rc;
}
