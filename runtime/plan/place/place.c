/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quick placement.  No order of items is best everywhere, so a portfolio is tried and the best
 * kept; then the items that stood in the way go earlier, again and again; last, a small set is
 * given to the tree search.  An attempt ends once it cannot win, and everything ends when the lower
 * bound is met.  Work is counted, so a placement is the same on every machine.  Many items go
 * another way, in place_many.c.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/place/place.h"
#include "plan/place/place_many.h"
#include "plan/place/place_pack.h"
#include "plan/place/place_tree.h"

#define ORDERS_WORK                                                                                \
    60000000 /* placed items looked at: some 60 ms; orders left over are not tried */
#define REPAIR_WORK 20000000
#define TREE_ITEMS  600
#define TREE_WORK   10000000

enum { BY_CLASS, BY_LIFE, BY_AREA, BY_SIZE_START, BY_SIZE, BY_WEIGHT, BY_PEAK, BY_START, BY_COUNT };

struct placer {
    struct sections sections;
    struct packing pack;
    int64_t *bytes;
    struct place_key *keys;
    double *loads; /* per section: bytes alive */
    int64_t goal;  /* a peak that needs no improvement */
    struct placement best;
    struct {
        int32_t *order;
        int32_t reached; /* items placed before the first attempt with it ended */
    } orders[BY_COUNT];
};

static double log_class(int64_t bytes)
{
    double c = 0;
    for (; bytes > 1; bytes >>= 1)
        c++;
    return c;
}

/* The highest load in the item's life, looked at in a few of its sections. */
static double crowd(const struct placer *p, int32_t i)
{
    int32_t lower = p->sections.lower[i], upper = p->sections.upper[i];
    int32_t stride = (upper - lower) / 32 + 1;
    double most = 0;
    for (int32_t k = lower; k < upper; k += stride)
        most = fmax(most, p->loads[k]);
    return most;
}

static struct place_key make_key(const struct placer *p, int32_t i, int by)
{
    double start = p->sections.lower[i], life = p->sections.upper[i] - start;
    double size = (double)p->bytes[i];
    switch (by) {
    case BY_SIZE:
        return (struct place_key){-size, -life, i};
    case BY_LIFE:
        return (struct place_key){-life, -size, i};
    case BY_WEIGHT:
        return (struct place_key){-size * sqrt(sqrt(life)), start, i};
    case BY_AREA:
        return (struct place_key){-size * life, start, i};
    case BY_CLASS:
        return (struct place_key){-log_class(p->bytes[i]), start, i};
    case BY_PEAK:
        return (struct place_key){-crowd(p, i), -life, i};
    case BY_START:
        return (struct place_key){start, -size * life, i};
    default:
        return (struct place_key){-size, start, i};
    }
}

static void sort_order(struct placer *p, int by, int32_t *order)
{
    int32_t n = p->sections.n_items;
    for (int32_t i = 0; i < n; i++)
        p->keys[i] = make_key(p, i, by);
    qsort(p->keys, (size_t)n, sizeof(*p->keys), place_compare_keys);
    for (int32_t i = 0; i < n; i++)
        order[i] = p->keys[i].item;
}

static bool done(const struct placer *p)
{
    return p->best.peak <= p->goal;
}

static void try_orders(struct placer *p)
{
    size_t size = (size_t)p->sections.n_items * sizeof(int32_t);
    for (int by = 0; by < BY_COUNT && !done(p) && p->pack.work < ORDERS_WORK; by++) {
        sort_order(p, by, p->orders[by].order);
        memcpy(p->pack.order, p->orders[by].order, size);
        for (int fit = 0; fit < FIT_COUNT && !done(p); fit++) {
            p->pack.fit = (enum fit)fit;
            int32_t stop;
            packing_attempt(&p->pack, 0, p->best.peak - 1, &p->best, &stop);
            if (stop > p->orders[by].reached)
                p->orders[by].reached = stop;
        }
    }
}

static void repair_order(struct placer *p, const int32_t *order, enum fit fit, int64_t until)
{
    memcpy(p->pack.order, order, (size_t)p->sections.n_items * sizeof(*order));
    p->pack.fit = fit;
    packing_repair(&p->pack, &p->best, p->goal, 1, until);
}

static int compare_reached(const struct placer *p, int a, int b)
{
    return p->orders[a].reached > p->orders[b].reached;
}

static void repair(struct placer *p)
{
    int64_t start = p->pack.work;
    int by[BY_COUNT];
    for (int j = 0; j < BY_COUNT; j++) {
        int q = j;
        for (; q > 0 && compare_reached(p, j, by[q - 1]); q--)
            by[q] = by[q - 1];
        by[q] = j;
    }
    for (int r = 0; !done(p) && p->pack.work - start < REPAIR_WORK; r++) {
        p->pack.random++;
        repair_order(p, p->orders[by[r / 2 % BY_COUNT]].order, (enum fit)(r % FIT_COUNT),
                     start + REPAIR_WORK);
    }
}

/* Asks the tree search for a peak. */
static int ask(struct placer *p, int64_t capacity)
{
    struct place_limit limit = {TREE_WORK, 0};
    if (p->best.peak <= capacity)
        return 0;
    enum tree_answer answer =
        hot_search(&p->sections, p->bytes, capacity, TREE_ITEMS, &limit, p->pack.offsets);
    if (answer == TREE_NO_MEMORY)
        return CKPT_ENOMEM;
    if (answer != TREE_FOUND)
        return 0;
    memcpy(p->best.offsets, p->pack.offsets,
           (size_t)p->sections.n_items * sizeof(*p->best.offsets));
    p->best.peak = 0;
    for (int32_t i = 0; i < p->sections.n_items; i++)
        p->best.peak = max_i64(p->best.peak, p->best.offsets[i] + p->bytes[i]);
    return 0;
}

static void sum_loads(struct placer *p)
{
    const struct sections *s = &p->sections;
    for (int32_t i = 0; i < s->n_items; i++) {
        p->loads[s->lower[i]] += (double)p->bytes[i];
        p->loads[s->upper[i]] -= (double)p->bytes[i];
    }
    for (int32_t k = 1; k < s->n; k++)
        p->loads[k] += p->loads[k - 1];
}

static int placer_init(struct placer *p, const struct place_item *items, int32_t n)
{
    size_t m = (size_t)n + 1;
    int rc = sections_build(items, n, 0, &p->sections);
    p->bytes = calloc(m, sizeof(*p->bytes));
    p->keys = calloc(m, sizeof(*p->keys));
    p->loads = calloc(m, sizeof(*p->loads));
    for (int by = 0; by < BY_COUNT; by++) {
        p->orders[by].order = calloc(m, sizeof(int32_t));
        rc = p->orders[by].order ? rc : CKPT_ENOMEM;
    }
    if (rc || !p->bytes || !p->keys || !p->loads || placement_init(&p->best, n))
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < n; i++)
        p->bytes[i] = items[i].bytes;
    sum_loads(p);
    return packing_init(&p->pack, &p->sections, p->bytes);
}

static void placer_free(struct placer *p)
{
    for (int by = 0; by < BY_COUNT; by++)
        free(p->orders[by].order);
    free(p->bytes);
    free(p->keys);
    free(p->loads);
    placement_free(&p->best);
    packing_free(&p->pack);
    sections_free(&p->sections);
}

int place_items(struct place_item *items, int32_t n, int64_t load, int64_t *peak)
{
    struct placer p = {0};
    int64_t looks;
    *peak = 0;
    if (n == 0)
        return 0;
    if (n > PACK_MANY)
        return place_many(items, n, load, peak, &looks);
    int rc = placer_init(&p, items, n);
    if (!rc) {
        p.goal = max_i64(load, p.sections.load);
        try_orders(&p);
        repair(&p);
        rc = ask(&p, p.goal + p.goal / 600);
        if (!rc)
            rc = ask(&p, p.goal);
    }
    for (int32_t i = 0; !rc && i < n; i++)
        items[i].offset = p.best.offsets[i];
    if (!rc)
        *peak = p.best.peak;
    placer_free(&p);
    return rc;
}
