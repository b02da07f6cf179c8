/* An option with parks: transfers first, then addresses, and again with less if those take more. */
#include <stdlib.h>
#include "plan/transfer.h"

#define ROUNDS 6

/* The other piece of a storage that wraps round the end of the step, or -1. */
static void find_wrapped(const struct graph *g, const struct plan *p, int32_t *piece,
                         int32_t *wrapped)
{
    for (int32_t s = 0; s < g->n_storages; s++)
        piece[s] = -1;
    for (int32_t i = 0; i < p->n_instances; i++) {
        int32_t s = p->instances[i].storage;
        wrapped[i] = -1;
        if (s < 0 || !g->storages[s].persistent)
            continue;
        if (piece[s] >= 0) {
            wrapped[i] = piece[s];
            wrapped[piece[s]] = i;
        }
        piece[s] = i;
    }
}

static int place_parked(const struct graph *g, struct plan *p)
{
    struct place_item *items = malloc(((size_t)p->n_instances + 1) * sizeof(*items));
    int32_t *piece = malloc(((size_t)g->n_storages + 1) * sizeof(*piece));
    int32_t *wrapped = malloc(((size_t)p->n_instances + 1) * sizeof(*wrapped));
    int rc = items && piece && wrapped ? 0 : CKPT_ENOMEM;
    if (!rc) {
        find_wrapped(g, p, piece, wrapped);
        for (int32_t i = 0; i < p->n_instances; i++) {
            const struct plan_instance *t = &p->instances[i];
            items[i] = (struct place_item){t->first, t->last, instance_bytes(g, p, t), 0};
        }
        rc = place_wrapped(items, wrapped, p->n_instances, &p->transient);
    }
    for (int32_t i = 0; i < p->n_instances && !rc; i++)
        p->instances[i].offset = items[i].offset;
    free(items);
    free(piece);
    free(wrapped);
    return rc;
}

/* The most bytes alive at a step, with the instances as they are now. */
static int measure_load(const struct graph *g, struct plan *p)
{
    int64_t now = 0, *change = calloc((size_t)p->n_steps + 2, sizeof(*change));
    if (!change)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < p->n_instances; i++) {
        const struct plan_instance *t = &p->instances[i];
        change[t->first] += instance_bytes(g, p, t);
        change[t->last + 1] -= instance_bytes(g, p, t);
    }
    p->load = p->peak_step = 0;
    for (int32_t k = 0; k < p->n_steps; k++) {
        now += change[k];
        if (now > p->load) {
            p->load = now;
            p->peak_step = k;
        }
    }
    free(change);
    return 0;
}

static int attempt(struct portfolio *pf, const struct option *o, const struct machine *m,
                   const struct budgets *b, int64_t device, struct plan **out)
{
    const struct graph *g = pf->p->g;
    struct plan *p = NULL;
    bool fits = false;
    *out = NULL;
    int rc = option_steps(pf, o, &p);
    if (!rc)
        rc = plan_transfer(g, m, b, device, p, &fits);
    if (!rc && fits) {
        qsort(p->instances, (size_t)p->n_instances, sizeof(*p->instances), compare_instances);
        rc = measure_load(g, p);
    }
    if (!rc && fits)
        rc = place_parked(g, p);
    if (rc || !fits)
        plan_free(p);
    else
        *out = p;
    return rc;
}

int option_parked(struct portfolio *pf, const struct option *o, const struct machine *m,
                  const struct budgets *b, int64_t device, struct plan **out)
{
    int64_t target = device;
    int rc = 0;
    *out = NULL;
    for (int i = 0; i < ROUNDS && !rc; i++) {
        rc = attempt(pf, o, m, b, target, out);
        if (rc || !*out)
            return rc;
        int64_t over = (*out)->persistent + (*out)->transient - device;
        if (over <= 0)
            return 0;
        plan_free(*out);
        *out = NULL;
        target -= over;
    }
    return rc;
}
