/* The proof of the parks of a plan; see check.h.  Shares nothing with the search but the types. */
#include <stdlib.h>
#include <string.h>
#include "plan/check.h"
#include "plan/check_queues.h"

struct proof {
    const struct graph *g;
    const struct plan *p;
    char *message;
    int32_t *order;       /* parks in the order of addresses */
    int32_t *of, *next;   /* per storage its first park, per park the next of its storage, or -1 */
    int32_t *at, *behind; /* the same of instances */
};

static const char *name_of(const struct proof *c, const struct plan_park *k)
{
    const char *name = c->g->storages[k->storage].name;
    return name ? name : "an unnamed storage";
}

static bool wraps(const struct plan_park *k)
{
    return k->use_step <= k->out_step;
}

/* Steps from the end of the use before the absence to the end of its copy out, and to a step at or
 * before the use behind it. */
static int32_t gone_after(const struct plan *p, const struct plan_park *k)
{
    return k->free_step - k->out_step + (k->free_step < k->out_step ? p->n_steps : 0);
}

static int32_t back_after(const struct plan *p, const struct plan_park *k, int32_t step)
{
    return step - k->out_step + (wraps(k) ? p->n_steps : 0);
}

/* ---- one park ------------------------------------------------------------------------------- */

static int check_kind(struct proof *c, int32_t n)
{
    const struct plan_park *k = &c->p->parks[n];
    if (k->storage < 0 || k->storage >= c->g->n_storages)
        return violation(c, "park %d is of storage %d of %d", (int)n, (int)k->storage,
                         (int)c->g->n_storages);
    const struct graph_storage *s = &c->g->storages[k->storage];
    if (k->tier != FATE_PARK_HOST && k->tier != FATE_PARK_NVME)
        return violation(c, "park %d goes to no tier", (int)n);
    if (s->carried || (wraps(k) && !s->persistent))
        return violation(c, "park %d: %.200s cannot leave there", (int)n, name_of(c, k));
    if (k->clean && (!s->persistent || k->free_step != k->out_step))
        return violation(c, "park %d: %.200s cannot leave without a copy", (int)n, name_of(c, k));
    return 0;
}

/* With several micro-steps what is in the body is the same in all of them. */
static int check_sides(struct proof *c, int32_t n)
{
    const struct plan *p = c->p;
    const struct plan_park *k = &p->parks[n];
    bool persistent = c->g->storages[k->storage].persistent;
    if (c->g->n_micro == 1)
        return 0;
    if (!persistent && k->use_step >= p->n_body)
        return violation(c, "park %d: %.200s goes out in every micro-step and comes back in none",
                         (int)n, name_of(c, k));
    if ((k->in_step < p->n_body) != (k->use_step < p->n_body))
        return violation(c, "park %d: %.200s comes back in another part of the step than its use",
                         (int)n, name_of(c, k));
    if (k->free_step < k->out_step || (k->free_step < p->n_body) != (k->out_step < p->n_body))
        return violation(c, "park %d: the copy of %.200s ends in another part of the step", (int)n,
                         name_of(c, k));
    if (persistent && !k->clean && k->out_step < p->n_body)
        return violation(c, "park %d: %.200s goes out in every micro-step", (int)n, name_of(c, k));
    return 0;
}

static int check_park(struct proof *c, int32_t n)
{
    const struct plan *p = c->p;
    const struct plan_park *k = &p->parks[n];
    int32_t last = p->n_steps - 1;
    if (k->out_step < 0 || k->free_step < 0 || k->in_step < 0 || k->use_step < 0 ||
        k->out_step > last || k->free_step > last || k->in_step > last || k->use_step > last)
        return violation(c, "park %d has a step outside of the plan", (int)n);
    int rc = check_kind(c, n);
    if (rc)
        return rc;
    bool next = k->free_step < k->out_step;
    if ((next && !wraps(k)) || k->in_step > k->use_step ||
        gone_after(p, k) >= back_after(p, k, k->in_step))
        return violation(c,
                         "park %d: %.200s goes out after step %d, is freed after %d, gets room at "
                         "%d and is used at %d: not in this order",
                         (int)n, name_of(c, k), (int)k->out_step, (int)k->free_step,
                         (int)k->in_step, (int)k->use_step);
    if (n > 0 &&
        (p->parks[n - 1].out_step > k->out_step ||
         (p->parks[n - 1].out_step == k->out_step && p->parks[n - 1].storage >= k->storage)))
        return violation(c, "park %d is out of order", (int)n);
    return check_sides(c, n);
}

/* ---- the parks of one storage --------------------------------------------------------------- */

static const struct plan_instance *instance_with(const struct proof *c, int32_t s, int32_t first,
                                                 int32_t last)
{
    for (int32_t i = c->at[s]; i >= 0; i = c->behind[i]) {
        const struct plan_instance *t = &c->p->instances[i];
        if ((first < 0 || t->first == first) && (last < 0 || t->last == last))
            return t;
    }
    return NULL;
}

/* An activation is there up to the end of its copy out and from its room on. */
static int check_activation(struct proof *c, int32_t n)
{
    const struct plan_park *k = &c->p->parks[n];
    const struct plan_instance *before = instance_with(c, k->storage, -1, k->free_step);
    const struct plan_instance *behind = instance_with(c, k->storage, k->in_step, -1);
    if (before && behind && before != behind)
        return 0;
    return violation(c, "park %d: no instance of %.200s %s step %d", (int)n, name_of(c, k),
                     before ? "begins at" : "ends after",
                     before ? (int)k->in_step : (int)k->free_step);
}

/* The residence behind park a, up to the next one, b. */
static int check_residence(struct proof *c, int32_t a, int32_t b)
{
    const struct plan *p = c->p;
    const struct plan_park *from = &p->parks[a], *to = &p->parks[b];
    bool round = to->free_step < to->out_step;
    const struct plan_instance *first =
        instance_with(c, from->storage, from->in_step, round ? p->n_steps - 1 : to->free_step);
    const struct plan_instance *second =
        round ? instance_with(c, from->storage, 0, to->free_step) : first;
    if (!first || !second)
        return violation(c, "park %d: no instance of %.200s from step %d to %d", (int)a,
                         name_of(c, from), (int)from->in_step, (int)to->free_step);
    if (first->offset != second->offset)
        return violation(c,
                         "park %d: %.200s does not stay at one address round the end of the step",
                         (int)b, name_of(c, from));
    if (c->g->n_micro > 1 && (from->in_step < p->n_body) != (to->out_step < p->n_body))
        return violation(c, "park %d: %.200s stays from the body to the update", (int)b,
                         name_of(c, to));
    return 0;
}

static int check_home(struct proof *c, const struct plan_park *first, const struct plan_park *k)
{
    const struct graph_storage *s = &c->g->storages[k->storage];
    if (k->tier != first->tier || k->tier_offset != first->tier_offset)
        return violation(c, "%.200s has two homes", name_of(c, k));
    if (s->home == HOME_DEVICE)
        return violation(c, "%.200s is parked, but its home is the device", name_of(c, k));
    if (s->home != HOME_ANY &&
        (k->tier != (s->home == HOME_NVME ? FATE_PARK_NVME : FATE_PARK_HOST) ||
         k->tier_offset != s->home_offset))
        return violation(c, "%.200s is parked, but its home is elsewhere", name_of(c, k));
    return 0;
}

/* All of a persistent storage: one home, a residence between any two parks and nothing else; so one
 * park is round the end of the step. */
static int check_persistent(struct proof *c, int32_t s)
{
    const struct plan *p = c->p;
    int32_t instances = 0, residences = 0;
    for (int32_t i = c->at[s]; i >= 0; i = c->behind[i])
        instances++;
    for (int32_t n = c->of[s]; n >= 0; n = c->next[n]) {
        const struct plan_park *k = &p->parks[n];
        int32_t next = c->next[n] >= 0 ? c->next[n] : c->of[s];
        int rc = check_home(c, &p->parks[c->of[s]], k);
        if (!rc)
            rc = check_residence(c, n, next);
        if (rc)
            return rc;
        residences += 1 + (k->free_step < k->out_step);
    }
    const struct plan_park *k = &p->parks[c->of[s]];
    if (instances != residences)
        return violation(c, "%.200s is there between its parks: %d instances, not %d",
                         name_of(c, k), (int)instances, (int)residences);
    return 0;
}

/* ---- touches -------------------------------------------------------------------------------- */

/* The park that a residence ends with in which the storage is used at this step. */
static const struct plan_park *park_behind(const struct proof *c, int32_t s, int32_t step)
{
    const struct plan_park *first = NULL, *found = NULL;
    for (int32_t n = c->of[s]; n >= 0; n = c->next[n]) {
        const struct plan_park *k = &c->p->parks[n];
        if (!first || k->out_step < first->out_step)
            first = k;
        if (k->out_step >= step && (!found || k->out_step < found->out_step))
            found = k;
    }
    return found ? found : first;
}

/* Nobody touches a storage while it is away, nor writes what then leaves without a copy. */
static int check_touch(struct proof *c, int32_t s, int32_t step, bool writes)
{
    const struct plan *p = c->p;
    for (int32_t n = c->of[s]; n >= 0; n = c->next[n]) {
        const struct plan_park *k = &p->parks[n];
        bool away = wraps(k) ? step > k->out_step || step < k->use_step
                             : step > k->out_step && step < k->use_step;
        if (away)
            return violation(c, "step %d uses %.200s before its copy is complete (park %d)",
                             (int)step, name_of(c, k), (int)n);
    }
    if (!writes || !c->g->storages[s].persistent)
        return 0;
    if (step < p->n_body && c->g->n_micro > 1)
        return violation(c, "step %d of the body writes %.200s, which is parked", (int)step,
                         name_of(c, &p->parks[c->of[s]]));
    const struct plan_park *k = park_behind(c, s, step);
    if (k->clean)
        return violation(c, "step %d writes %.200s, which then leaves without a copy", (int)step,
                         name_of(c, k));
    return 0;
}

static int check_touches(struct proof *c)
{
    int rc = 0;
    for (int32_t k = 0; k < c->p->n_steps && !rc; k++) {
        const struct graph_op *o = &c->g->ops[c->p->steps[k].op];
        if (c->p->steps[k].on_host) /* it touches what is in the tier */
            continue;
        for (int32_t j = 0; j < o->n_reads + o->n_writes && !rc; j++) {
            int32_t s = c->g->refs[j < o->n_reads ? o->reads + j : o->writes + j - o->n_reads];
            if (c->of[s] >= 0)
                rc = check_touch(c, s, k, j >= o->n_reads);
        }
    }
    return rc;
}

/* ---- tiers ---------------------------------------------------------------------------------- */

static bool is_before(const struct plan *p, int32_t a, int32_t b)
{
    int64_t x = p->parks[a].tier_offset, y = p->parks[b].tier_offset;
    return x != y ? x < y : a < b;
}

/* Heap sort: the comparison needs the plan. */
static void sift(const struct proof *c, int32_t at, int32_t n)
{
    int32_t *a = c->order;
    for (int32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_before(c->p, a[child], a[child + 1]))
            child++;
        if (!is_before(c->p, a[at], a[child]))
            return;
        int32_t swap = a[at];
        a[at] = a[child];
        a[child] = swap;
    }
}

static void sort_parks(const struct proof *c)
{
    int32_t n = c->p->n_parks;
    for (int32_t i = 0; i < n; i++)
        c->order[i] = i;
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift(c, i, n);
    for (int32_t end = n - 1; end > 0; end--) {
        int32_t swap = c->order[0];
        c->order[0] = c->order[end];
        c->order[end] = swap;
        sift(c, 0, end);
    }
}

/* Whether two storages are ever both in the tier: a home is for good. */
static bool both_there(const struct proof *c, const struct plan_park *a, const struct plan_park *b)
{
    if (c->g->storages[a->storage].persistent || c->g->storages[b->storage].persistent)
        return a->storage != b->storage;
    return a->out_step <= b->use_step && b->out_step <= a->use_step;
}

struct tier_view {
    enum fate fate;
    const char *name;
    int64_t base, bytes, budget, unit;
};

static int64_t end_of(const struct proof *c, const struct tier_view *t, const struct plan_park *k)
{
    return k->tier_offset + round_up(c->g->storages[k->storage].bytes, t->unit);
}

static int check_place(struct proof *c, const struct tier_view *t, int32_t n)
{
    const struct plan_park *k = &c->p->parks[n];
    bool elsewhere = c->g->storages[k->storage].home != HOME_ANY;
    int64_t from = elsewhere ? 0 : t->base, to = elsewhere ? t->base : t->base + t->bytes;
    if (k->tier_offset < from || end_of(c, t, k) > to)
        return violation(c, "park %d: %.200s leaves the %lld bytes of its tier", (int)n,
                         name_of(c, k), (long long)(to - from));
    if (k->tier_offset % t->unit)
        return violation(c, "park %d: %.200s lies at %lld in its tier, no multiple of %lld", (int)n,
                         name_of(c, k), (long long)k->tier_offset, (long long)t->unit);
    return 0;
}

static int check_tier(struct proof *c, const struct tier_view *t)
{
    const struct plan *p = c->p;
    if (t->base < 0 || t->bytes < 0 || (t->bytes > 0 && t->bytes > t->budget - t->base))
        return violation(c, "%lld bytes parked in the %s tier are over its budget of %lld",
                         (long long)(t->base + t->bytes), t->name, (long long)t->budget);
    for (int32_t i = 0; i < p->n_parks; i++) {
        const struct plan_park *a = &p->parks[c->order[i]];
        if (a->tier != t->fate)
            continue;
        int rc = check_place(c, t, c->order[i]);
        if (rc)
            return rc;
        for (int32_t j = i + 1; j < p->n_parks; j++) {
            const struct plan_park *b = &p->parks[c->order[j]];
            if (b->tier_offset >= end_of(c, t, a))
                break;
            if (b->tier == t->fate && both_there(c, a, b))
                return violation(c, "parks %d and %d (%.100s) overlap in their tier",
                                 (int)c->order[i], (int)c->order[j], name_of(c, b));
        }
    }
    return 0;
}

static int check_tiers(struct proof *c)
{
    const struct plan *p = c->p;
    const struct budgets *b = &p->budgets;
    const struct tier_view host = {FATE_PARK_HOST, "host",  b->tier_base[TIER_HOST],
                                   p->host_bytes,  b->host, CKPT_ALIGN};
    const struct tier_view nvme = {FATE_PARK_NVME, "NVMe",  b->tier_base[TIER_NVME],
                                   p->nvme_bytes,  b->nvme, PLAN_NVME_ALIGN};
    int64_t staging = 0;
    for (int32_t n = 0; n < p->n_parks; n++)
        if (p->parks[n].tier == FATE_PARK_NVME)
            staging = 2 * PLAN_STAGING_SLOTS * PLAN_STAGING_SLOT;
    if (p->staging_bytes != staging)
        return violation(c, "the plan counts %lld bytes for staging, not %lld",
                         (long long)p->staging_bytes, (long long)staging);
    sort_parks(c);
    int rc = check_tier(c, &host);
    return rc ? rc : check_tier(c, &nvme);
}

/* ---- all of it ------------------------------------------------------------------------------ */

bool parks_return(const struct plan *p, int32_t s, int32_t in_step)
{
    for (int32_t n = 0; n < p->n_parks; n++)
        if (p->parks[n].storage == s && p->parks[n].in_step == in_step)
            return true;
    return false;
}

/* Lists the parks and the instances of every storage, in their order. */
static void list_all(struct proof *c)
{
    const struct plan *p = c->p;
    for (int32_t s = 0; s < c->g->n_storages; s++)
        c->of[s] = c->at[s] = -1;
    for (int32_t n = p->n_parks - 1; n >= 0; n--) {
        c->next[n] = c->of[p->parks[n].storage];
        c->of[p->parks[n].storage] = n;
    }
    for (int32_t i = p->n_instances - 1; i >= 0; i--)
        if (p->instances[i].storage >= 0) {
            c->behind[i] = c->at[p->instances[i].storage];
            c->at[p->instances[i].storage] = i;
        }
}

static int check_all(struct proof *c)
{
    int rc = 0;
    for (int32_t n = 0; n < c->p->n_parks && !rc; n++)
        rc = check_park(c, n);
    if (rc)
        return rc;
    list_all(c);
    for (int32_t s = 0; s < c->g->n_storages && !rc; s++) {
        if (c->of[s] >= 0 && c->g->storages[s].persistent)
            rc = check_persistent(c, s);
        for (int32_t n = c->of[s]; n >= 0 && !c->g->storages[s].persistent && !rc; n = c->next[n])
            rc = check_activation(c, n);
    }
    if (!rc)
        rc = check_touches(c);
    if (!rc)
        rc = check_queues(c->g, c->p, c->message);
    return rc ? rc : check_tiers(c);
}

int check_parks(const struct graph *g, const struct plan *p, char message[CKPT_MESSAGE])
{
    struct proof c = {.g = g, .p = p, .message = message};
    if (p->n_parks < 0)
        return violation(&c, "the plan has a negative number of parks");
    size_t parks = (size_t)p->n_parks + 1, storages = (size_t)g->n_storages + 1;
    c.order = malloc(parks * sizeof(*c.order));
    c.next = malloc(parks * sizeof(*c.next));
    c.of = malloc(storages * sizeof(*c.of));
    c.at = malloc(storages * sizeof(*c.at));
    c.behind = malloc(((size_t)p->n_instances + 1) * sizeof(*c.behind));
    int rc = c.order && c.next && c.of && c.at && c.behind ? check_all(&c) : CKPT_ENOMEM;
    free(c.order);
    free(c.next);
    free(c.of);
    free(c.at);
    free(c.behind);
    return rc;
}
