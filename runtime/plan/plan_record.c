/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From what the search writes down to the record: see record.h.
 *
 * An instance is a device residence; the two pieces of one that runs into the next step become one.
 * A park is a residence below and a copy each way, without the copy out where it is clean.  A
 * lodging is a residence in host memory: of optimizer state its home, of anything else a stretch
 * between its copy out, or the step on the host that makes it, and its last reader or copy back.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/plan.h"

int record_violation(char message[CKPT_MESSAGE], const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, CKPT_MESSAGE, fmt, ap);
    va_end(ap);
    return CKPT_EPLAN;
}

struct recorder {
    const struct graph *g;
    struct plan *p;
    char *message;
    int32_t *home;         /* per storage, the residence that is its home, or -1 */
    int32_t *first, *next; /* per storage its first device residence, per residence the next */
    struct {
        struct residence *data;
        int64_t capacity;
    } residences;
    struct {
        struct copy *data;
        int64_t capacity;
    } copies;
    int32_t n_residences, n_copies;
};

static const char *name_of(const struct recorder *r, int32_t s)
{
    const char *name = r->g->storages[s].name;
    return name ? name : "an unnamed storage";
}

/* Returns its index, or -1 without memory. */
static int32_t add(struct recorder *r, int32_t storage, int tier, int32_t first, int32_t last,
                   int64_t offset)
{
    if (ARRAY_RESERVE(&r->residences, r->n_residences))
        return -1;
    r->residences.data[r->n_residences] =
        (struct residence){storage, (int8_t)tier, first, last, offset};
    return r->n_residences++;
}

static int add_copy(struct recorder *r, struct copy c)
{
    if (ARRAY_RESERVE(&r->copies, r->n_copies))
        return CKPT_ENOMEM;
    r->copies.data[r->n_copies++] = c;
    return 0;
}

static int tier_of(enum fate fate)
{
    return fate == FATE_PARK_NVME ? TIER_NVME : TIER_HOST;
}

static bool touches(const struct recorder *r, int32_t k, int32_t s)
{
    const struct graph_op *o = &r->g->ops[r->p->steps[k].op];
    return graph_op_reads(r->g, o, s) || graph_op_writes(r->g, o, s);
}

/* ---- what the arrays must have for any of this ----------------------------------------------- */

static bool in_steps(const struct recorder *r, int32_t k)
{
    return k >= 0 && k < r->p->n_steps;
}

static int check_sizes(struct recorder *r)
{
    const struct plan *p = r->p;
    if (p->n_steps < 0 || p->n_body < 0 || p->n_body > p->n_steps || p->n_instances < 0 ||
        p->n_parks < 0 || p->n_lodgings < 0)
        return violation(r, "the plan has a negative size");
    for (int32_t k = 0; k < p->n_steps; k++)
        if (p->steps[k].op < 0 || p->steps[k].op >= r->g->n_ops)
            return violation(r, "step %d runs op %d of %d", (int)k, (int)p->steps[k].op,
                             (int)r->g->n_ops);
    for (int32_t n = 0; n < p->n_instances; n++)
        if (p->instances[n].storage >= r->g->n_storages)
            return violation(r, "instance %d is of storage %d of %d", (int)n,
                             (int)p->instances[n].storage, (int)r->g->n_storages);
    return 0;
}

static int check_park(struct recorder *r, int32_t n)
{
    const struct plan_park *k = &r->p->parks[n];
    if (k->storage < 0 || k->storage >= r->g->n_storages)
        return violation(r, "park %d is of storage %d of %d", (int)n, (int)k->storage,
                         (int)r->g->n_storages);
    if (k->tier != FATE_PARK_HOST && k->tier != FATE_PARK_NVME)
        return violation(r, "park %d goes to no tier", (int)n);
    if (!in_steps(r, k->out_step) || !in_steps(r, k->free_step) || !in_steps(r, k->in_step) ||
        !in_steps(r, k->use_step))
        return violation(r, "park %d has a step outside of the plan", (int)n);
    return 0;
}

static int check_lodging(struct recorder *r, int32_t n)
{
    const struct plan_lodging *l = &r->p->lodgings[n];
    if (l->storage < 0 || l->storage >= r->g->n_storages)
        return violation(r, "lodging %d is of storage %d of %d", (int)n, (int)l->storage,
                         (int)r->g->n_storages);
    if (n > 0 && r->p->lodgings[n - 1].storage >= l->storage)
        return violation(r, "lodging %d is out of order", (int)n);
    if (l->out_step < -1 || l->in_step < -1 || l->out_step >= r->p->n_steps ||
        l->in_step > r->p->n_steps)
        return violation(r, "lodging %d has a step outside of the plan", (int)n);
    return 0;
}

static int check_arrays(struct recorder *r)
{
    int rc = check_sizes(r);
    for (int32_t n = 0; n < r->p->n_parks && !rc; n++)
        rc = check_park(r, n);
    for (int32_t n = 0; n < r->p->n_lodgings && !rc; n++)
        rc = check_lodging(r, n);
    return rc;
}

/* ---- homes ----------------------------------------------------------------------------------- */

static bool is_state(const struct plan_lodging *l)
{
    return l->out_step < 0 && l->in_step < 0;
}

static int set_home(struct recorder *r, int32_t s, int tier, int64_t offset)
{
    if (r->home[s] >= 0) {
        const struct residence *h = &r->residences.data[r->home[s]];
        return h->tier == tier && h->offset == offset
                   ? 0
                   : violation(r, "%.200s has two homes", name_of(r, s));
    }
    r->home[s] = add(r, s, tier, 0, r->p->n_steps - 1, offset);
    return r->home[s] < 0 ? CKPT_ENOMEM : 0;
}

static int add_homes(struct recorder *r)
{
    const struct plan *p = r->p;
    int rc = 0;
    for (int32_t n = 0; n < p->n_parks && !rc; n++)
        if (r->g->storages[p->parks[n].storage].persistent)
            rc = set_home(r, p->parks[n].storage, tier_of(p->parks[n].tier),
                          p->parks[n].tier_offset);
    for (int32_t n = 0; n < p->n_lodgings && !rc; n++)
        if (is_state(&p->lodgings[n]))
            rc = set_home(r, p->lodgings[n].storage, TIER_HOST, p->lodgings[n].tier_offset);
    for (int32_t s = 0; s < r->g->n_storages && !rc; s++) {
        const struct graph_storage *t = &r->g->storages[s];
        if (!t->persistent || r->home[s] >= 0)
            continue;
        if (t->home == HOME_HOST || t->home == HOME_NVME)
            rc = set_home(r, s, t->home == HOME_HOST ? TIER_HOST : TIER_NVME, t->home_offset);
        else
            rc = set_home(r, s, TIER_DEVICE, -1);
    }
    return rc;
}

/* ---- the device ------------------------------------------------------------------------------ */

/* The step, of the next one, that ends a residence that begins as an instance of the last step. */
static const struct plan_park *runs_over(const struct recorder *r, const struct plan_instance *i)
{
    for (int32_t n = 0; n < r->p->n_parks && i->last == r->p->n_steps - 1; n++) {
        const struct plan_park *k = &r->p->parks[n];
        if (k->storage == i->storage && k->free_step < k->out_step)
            return k;
    }
    return NULL;
}

static bool is_second_piece(const struct recorder *r, const struct plan_instance *i)
{
    for (int32_t n = 0; n < r->p->n_parks && i->first == 0; n++) {
        const struct plan_park *k = &r->p->parks[n];
        if (k->storage == i->storage && k->free_step < k->out_step && i->last == k->free_step)
            return true;
    }
    return false;
}

static const struct plan_instance *second_piece(const struct recorder *r, const struct plan_park *k)
{
    for (int32_t n = 0; n < r->p->n_instances && r->p->instances[n].first == 0; n++)
        if (r->p->instances[n].storage == k->storage && r->p->instances[n].last == k->free_step)
            return &r->p->instances[n];
    return NULL;
}

static int add_instance(struct recorder *r, const struct plan_instance *i)
{
    const struct plan_park *over = i->storage >= 0 ? runs_over(r, i) : NULL;
    int32_t last = i->last;
    if (i->storage >= 0 && is_second_piece(r, i))
        return 0;
    if (over) {
        const struct plan_instance *second = second_piece(r, over);
        if (!second || second->offset != i->offset)
            return violation(r, "%.200s does not stay at one address round the end of the step",
                             name_of(r, i->storage));
        last = r->p->n_steps + over->free_step;
    }
    int32_t n = add(r, i->storage, TIER_DEVICE, i->first, last, i->offset);
    if (n < 0)
        return CKPT_ENOMEM;
    if (i->storage < 0)
        return 0;
    r->next[n] = r->first[i->storage];
    r->first[i->storage] = n;
    return 0;
}

/* The device residence of a storage in which a step lies; first, last: that begins or ends there.
 * Or -1. */
static int32_t find(const struct recorder *r, int32_t s, int32_t step, int32_t first, int32_t last)
{
    for (int32_t n = r->first[s]; n >= 0; n = r->next[n]) {
        const struct residence *t = &r->residences.data[n];
        if ((step < 0 || (t->first <= step && step <= t->last)) &&
            (first < 0 || t->first == first) && (last < 0 || t->last == last))
            return n;
    }
    return -1;
}

/* ---- parks and lodgings ---------------------------------------------------------------------- */

static int add_park(struct recorder *r, int32_t n)
{
    const struct plan_park *k = &r->p->parks[n];
    int32_t freed = k->free_step + (k->free_step < k->out_step ? r->p->n_steps : 0);
    int32_t from = find(r, k->storage, -1, -1, freed), to = find(r, k->storage, -1, k->in_step, -1);
    int32_t below = r->home[k->storage];
    if (from < 0 || to < 0)
        return violation(r, "park %d: no instance of %.200s %s step %d", (int)n,
                         name_of(r, k->storage), from < 0 ? "ends after" : "begins at",
                         (int)(from < 0 ? k->free_step : k->in_step));
    if (k->clean && k->free_step != k->out_step)
        return violation(r, "park %d: %.200s cannot leave without a copy", (int)n,
                         name_of(r, k->storage));
    if (below < 0)
        below = add(r, k->storage, tier_of(k->tier), k->out_step, k->use_step, k->tier_offset);
    if (below < 0)
        return CKPT_ENOMEM;
    int rc = k->clean ? 0
                      : add_copy(r, (struct copy){from, below, k->out_step, freed + 1, k->out_start,
                                                  k->out_end});
    return rc ? rc
              : add_copy(r, (struct copy){below, to, k->in_step - 1, k->use_step, k->in_start,
                                          k->in_end});
}

/* The last step on the host from `from` on that touches a storage; with first set the first. Or -1.
 */
static int32_t host_step(const struct recorder *r, int32_t s, int32_t from, bool first)
{
    int32_t found = -1;
    for (int32_t k = from > 0 ? from : 0; k < r->p->n_steps && !(first && found >= 0); k++)
        if (r->p->steps[k].on_host && touches(r, k, s))
            found = k;
    return found;
}

/* The first step on the device that touches a storage: of a value that comes back in the next one.
 */
static int32_t first_use(const struct recorder *r, int32_t s)
{
    for (int32_t k = 0; k < r->p->n_steps; k++)
        if (!r->p->steps[k].on_host && touches(r, k, s))
            return k;
    return 0;
}

static int add_lodging(struct recorder *r, const struct plan_lodging *l)
{
    int32_t s = l->storage, here = r->home[s];
    int32_t made = host_step(r, s, l->out_step, true), last = host_step(r, s, l->out_step, false);
    if (is_state(l))
        return 0;
    if (here < 0)
        here = find(r, s, l->out_step, -1, -1);
    if (here < 0 || made < 0 || r->residences.data[here].tier != TIER_DEVICE)
        return violation(r, "%.200s lodges in host memory, and is not on the device or not used",
                         name_of(r, s));
    int32_t first = l->out_step >= 0 ? l->out_step : made;
    int32_t end = l->in_step >= 0 ? l->in_step - 1 : last;
    if (end < first)
        return violation(r, "%.200s makes %.200s, which is copied before", "a step on the host",
                         name_of(r, s));
    int32_t below = add(r, s, TIER_HOST, first, end, l->tier_offset);
    if (below < 0)
        return CKPT_ENOMEM;
    int rc = 0, until = made;
    if (here != r->home[s] && until > r->residences.data[here].last + 1)
        until = r->residences.data[here].last + 1;
    if (l->out_step >= 0)
        rc = add_copy(r, (struct copy){here, below, l->out_step, until, l->out_start, l->out_end});
    if (l->in_step >= 0 && !rc)
        rc = add_copy(r, (struct copy){below, here, l->in_step - 1, r->p->n_steps + first_use(r, s),
                                       l->in_start, l->in_end});
    return rc;
}

/* ---- order ----------------------------------------------------------------------------------- */

struct sorted {
    struct residence r;
    int32_t from; /* its index before */
};

static int by_place(const void *a, const void *b)
{
    const struct sorted *x = a, *y = b;
    if (x->r.tier != y->r.tier)
        return x->r.tier < y->r.tier ? -1 : 1;
    if (x->r.first != y->r.first)
        return x->r.first < y->r.first ? -1 : 1;
    if (x->r.storage != y->r.storage)
        return x->r.storage < y->r.storage ? -1 : 1;
    return (x->from > y->from) - (x->from < y->from);
}

/* A copy with the queue that it runs on, which its residences tell. */
struct queued {
    struct copy c;
    int queue;
};

static int by_queue(const void *a, const void *b)
{
    const struct queued *x = a, *y = b;
    if (x->queue != y->queue)
        return x->queue < y->queue ? -1 : 1;
    if (x->c.after != y->c.after)
        return x->c.after < y->c.after ? -1 : 1;
    if (x->c.start != y->c.start)
        return x->c.start < y->c.start ? -1 : 1;
    if (x->c.before != y->c.before)
        return x->c.before < y->c.before ? -1 : 1;
    return (x->c.from > y->c.from) - (x->c.from < y->c.from);
}

static int sort_residences(struct recorder *r)
{
    size_t n = (size_t)r->n_residences;
    struct sorted *sorted = malloc((n + 1) * sizeof(*sorted));
    int32_t *now = malloc((n + 1) * sizeof(*now));
    if (sorted && now) {
        for (size_t i = 0; i < n; i++)
            sorted[i] = (struct sorted){r->residences.data[i], (int32_t)i};
        qsort(sorted, n, sizeof(*sorted), by_place);
        for (size_t i = 0; i < n; i++) {
            r->residences.data[i] = sorted[i].r;
            now[sorted[i].from] = (int32_t)i;
        }
        for (int32_t i = 0; i < r->n_copies; i++) {
            r->copies.data[i].from = now[r->copies.data[i].from];
            r->copies.data[i].to = now[r->copies.data[i].to];
        }
    }
    int rc = sorted && now ? 0 : CKPT_ENOMEM;
    free(sorted);
    free(now);
    return rc;
}

static int sort_copies(struct recorder *r)
{
    size_t n = (size_t)r->n_copies;
    struct queued *sorted = malloc((n + 1) * sizeof(*sorted));
    if (!sorted)
        return CKPT_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct copy *c = &r->copies.data[i];
        bool out = copy_is_out(r->residences.data, c);
        sorted[i] = (struct queued){*c, 2 * copy_tier(r->residences.data, c) + !out};
    }
    qsort(sorted, n, sizeof(*sorted), by_queue);
    for (size_t i = 0; i < n; i++)
        r->copies.data[i] = sorted[i].c;
    free(sorted);
    return 0;
}

/* ---- questions ------------------------------------------------------------------------------- */

bool plan_is_home(const struct graph *g, const struct plan *p, const struct residence *r)
{
    return r->storage >= 0 && g->storages[r->storage].persistent && r->first == 0 &&
           r->last == p->n_steps - 1 && (r->tier != TIER_DEVICE || r->offset == -1);
}

bool plan_uses_host(const struct plan *p)
{
    for (int32_t k = p->n_body; k < p->n_steps; k++)
        if (p->steps[k].on_host)
            return true;
    return false;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int record_all(struct recorder *r)
{
    int rc = add_homes(r);
    for (int32_t n = 0; n < r->p->n_instances && !rc; n++)
        rc = add_instance(r, &r->p->instances[n]);
    for (int32_t n = 0; n < r->p->n_parks && !rc; n++)
        rc = add_park(r, n);
    for (int32_t n = 0; n < r->p->n_lodgings && !rc; n++)
        rc = add_lodging(r, &r->p->lodgings[n]);
    if (!rc &&
        (ARRAY_RESERVE(&r->residences, r->n_residences) || ARRAY_RESERVE(&r->copies, r->n_copies)))
        rc = CKPT_ENOMEM;
    if (!rc)
        rc = sort_residences(r);
    return rc ? rc : sort_copies(r);
}

static int start(struct recorder *r)
{
    size_t storages = (size_t)r->g->n_storages + 1;
    size_t residences = storages + (size_t)r->p->n_instances + 1;
    r->home = malloc(storages * sizeof(*r->home));
    r->first = malloc(storages * sizeof(*r->first));
    r->next = malloc(residences * sizeof(*r->next));
    if (!r->home || !r->first || !r->next)
        return CKPT_ENOMEM;
    memset(r->home, -1, storages * sizeof(*r->home));
    memset(r->first, -1, storages * sizeof(*r->first));
    return 0;
}

int plan_record(const struct graph *g, struct plan *p, char message[CKPT_MESSAGE])
{
    struct recorder r = {.g = g, .p = p, .message = message};
    message[0] = '\0';
    free(p->residences);
    free(p->copies);
    p->residences = NULL;
    p->copies = NULL;
    p->n_residences = p->n_copies = 0;
    int rc = check_arrays(&r);
    if (!rc)
        rc = start(&r);
    if (!rc)
        rc = record_all(&r);
    free(r.home);
    free(r.first);
    free(r.next);
    if (rc) {
        free(r.residences.data);
        free(r.copies.data);
        if (rc == CKPT_ENOMEM)
            snprintf(message, CKPT_MESSAGE, "out of host memory");
        return rc;
    }
    p->residences = r.residences.data;
    p->n_residences = r.n_residences;
    p->copies = r.copies.data;
    p->n_copies = r.n_copies;
    return 0;
}
