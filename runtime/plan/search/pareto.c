/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Pareto set of a class of blocks: choices of retention intervals from keeping everything to
 * keeping only the output.  A price per byte combines time and memory.  For every price, storages
 * are changed one at a time until no change helps: through rising prices from keep-all and falling
 * ones from keep-none.
 *
 * Storages that the backward pass does not read are never kept.  Kept from keep-all on, such a one
 * would take the place of a storage that is computed from it: dropping that would free nothing, and
 * a change of one storage at a time would not drop both.
 */
#include <string.h>
#include "plan/search/chain.h"

#define PRICES 14

/* The cost of levels that were simulated before; key 0 if the entry is empty. */
struct trial {
    uint64_t key;
    int rc;
    struct block_cost cost;
};

struct search {
    const struct chain *c;
    const struct block *b;
    struct simulator *sim;
    struct pareto_set *f;
    int32_t *retention;
    uint8_t *level;
    uint64_t key;         /* hash of the levels */
    struct trial *trials; /* hash table by key; costs do not depend on the price */
    int64_t room;         /* a power of two */
    int64_t n_trials;
    struct pool *levels; /* of choices */
    struct pool memory;  /* of the rest */
    double price;        /* ticks per kept byte */
    double share;        /* of the price, for bytes alive only while the block runs */
    int64_t work;
};

static int32_t storage_at(const struct search *q, int32_t i)
{
    return q->c->storages[q->b->storage + i];
}

/* The hash of a level of a storage.  The sum over storages identifies the levels, whatever the
 * order of changes. */
static uint64_t key_of(int32_t i, int32_t level)
{
    uint64_t h = ((uint64_t)(uint32_t)i << 8 | (uint32_t)level) * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ h >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
    return h ^ h >> 29;
}

static void set_level(struct search *q, int32_t i, int32_t level)
{
    int32_t s = storage_at(q, i);
    q->key += key_of(i, level) - key_of(i, q->level[i]);
    q->level[i] = (uint8_t)level;
    q->retention[s] = level_retention(q->c->p, s, level);
}

/* Whether storage i may be dropped: the next block does not read it. */
static bool is_free(const struct search *q, int32_t i)
{
    return q->c->p->forward_last[storage_at(q, i)] < q->b->forward_end;
}

/* Whether there is a choice for storage i: the backward pass reads it. */
static bool is_open(const struct search *q, int32_t i)
{
    return is_free(q, i) && q->c->p->needed[storage_at(q, i)];
}

static double price_of(const struct search *q, const struct block_cost *c)
{
    double kept = (double)c->kept + q->share * (double)(c->backward - c->kept);
    return (double)c->ticks + q->price * kept;
}

static bool work_done(const struct search *q)
{
    return simulator_work(q->sim) >= q->work;
}

static struct trial *find_trial(const struct search *q, uint64_t key)
{
    int64_t i = (int64_t)(key & (uint64_t)(q->room - 1));
    while (q->trials[i].key && q->trials[i].key != key)
        i = (i + 1) & (q->room - 1);
    return &q->trials[i];
}

static int grow(struct search *q)
{
    const struct trial *old = q->trials;
    int64_t room = q->room;
    q->room = room ? 2 * room : 1024;
    if (!POOL_ARRAY(&q->memory, q->trials, q->room))
        return CKPT_ENOMEM;
    for (int64_t i = 0; i < room; i++)
        if (old[i].key)
            *find_trial(q, old[i].key) = old[i];
    return 0;
}

/* Simulates the levels unless their cost is known. */
static int play(struct search *q, struct block_cost *cost)
{
    if (2 * q->n_trials >= q->room && grow(q))
        return CKPT_ENOMEM;
    struct trial *t = find_trial(q, q->key | 1);
    if (!t->key) {
        t->rc = simulate_block(q->sim, q->b, q->retention, &t->cost);
        if (t->rc < 0)
            return t->rc;
        t->key = q->key | 1;
        q->n_trials++;
    }
    *cost = t->cost;
    return t->rc;
}

/* Changes one storage at a time as long as that helps. */
static int descend(struct search *q, struct block_cost *cost)
{
    bool better = true;
    int rc = play(q, cost);
    while (better && rc >= 0 && !work_done(q)) {
        better = false;
        for (int32_t i = 0; i < q->b->n_storage && rc >= 0; i++) {
            int32_t was = q->level[i];
            for (int32_t k = 0; k < LEVELS && is_open(q, i) && rc >= 0; k++) {
                struct block_cost trial;
                if (k == was)
                    continue;
                set_level(q, i, k);
                rc = play(q, &trial);
                if (!rc && price_of(q, &trial) < price_of(q, cost)) {
                    *cost = trial;
                    was = k;
                    better = true;
                }
            }
            set_level(q, i, was);
        }
    }
    return rc < 0 ? rc : 0;
}

static bool is_known(const struct pareto_set *f, const struct block_cost *c)
{
    for (int32_t i = 0; i < f->n; i++) {
        const struct block_cost *o = &f->choices[i].cost;
        if (o->ticks <= c->ticks && o->kept <= c->kept && o->backward <= c->backward &&
            o->forward <= c->forward)
            return true;
    }
    return false;
}

static int add_choice(struct search *q, const struct block_cost *cost)
{
    struct pareto_set *f = q->f;
    if (f->n == MOST_CHOICES || is_known(f, cost))
        return 0;
    struct choice *o = &f->choices[f->n];
    o->cost = *cost;
    if (!POOL_ARRAY(q->levels, o->level, q->b->n_storage))
        return CKPT_ENOMEM;
    memcpy(o->level, q->level, (size_t)q->b->n_storage);
    f->n++;
    return 0;
}

static int start_at(struct search *q, int32_t level)
{
    struct block_cost cost;
    for (int32_t i = 0; i < q->b->n_storage; i++)
        set_level(q, i, is_open(q, i) ? level : is_free(q, i) ? LEVEL_DROPPED : LEVEL_KEPT);
    int rc = play(q, &cost);
    return rc ? (rc < 0 ? rc : 0) : add_choice(q, &cost);
}

/* Price i: the first keeps nearly everything, the last nearly nothing. */
static double price_at(const struct pareto_set *f, int32_t i)
{
    const struct block_cost *all = &f->choices[0].cost, *none = &f->choices[f->n - 1].cost;
    double price = (double)(none->ticks - all->ticks) / (double)max_i64(all->kept - none->kept, 1);
    for (price /= 24; i > 0; i--)
        price *= 1.55;
    return price;
}

static int sweep(struct search *q, const double *prices, bool up)
{
    int rc = start_at(q, up ? LEVEL_KEPT : LEVEL_DROPPED);
    for (int32_t i = 0; i < PRICES && !rc && !work_done(q); i++) {
        struct block_cost cost;
        q->price = prices[up ? i : PRICES - 1 - i];
        rc = descend(q, &cost);
        if (!rc)
            rc = add_choice(q, &cost);
    }
    return rc;
}

static int run(struct search *q)
{
    double prices[PRICES];
    static const double shares[] = {0.02, 0.3};
    int rc = start_at(q, LEVEL_KEPT);
    if (!rc)
        rc = start_at(q, LEVEL_DROPPED);
    for (int32_t i = 0; i < PRICES && q->f->n > 0; i++)
        prices[i] = price_at(q->f, i);
    for (int32_t i = 0; i < 4 && q->f->n > 1 && !rc; i++) {
        q->share = shares[i / 2];
        rc = sweep(q, prices, i % 2 == 0);
    }
    return rc;
}

int pareto_build(const struct chain *c, const struct block *b, struct simulator *sim, int64_t work,
                 struct pool *m, struct pareto_set *f)
{
    struct search q = {.c = c, .b = b, .sim = sim, .levels = m, .f = f};
    q.retention = retain_all(c->p, &q.memory);
    POOL_ARRAY(&q.memory, q.level, b->n_storage);
    q.work = simulator_work(sim) + work;
    int rc = q.memory.failed ? CKPT_ENOMEM : run(&q);
    pool_free(&q.memory);
    return rc;
}
