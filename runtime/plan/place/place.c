/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quick placement.  Peaks arise where the load is high, so the items alive there (the hot ones) are
 * packed first and the others fill the holes.  Both groups are sorted by a class, mostly of size,
 * and within a class by start, which keeps items that are alive together side by side.  Recipes are
 * tried in turn until one is close to the lower bound; their orders come from a counting sort.  If
 * the first recipe is not close, a small tree search places the hot items; it costs about as much
 * as one more recipe.  The best placement is repaired.  Work is counted, not timed, so a placement
 * is the same on every machine.
 */
#include <string.h>
#include "plan/place/place.h"
#include "plan/place/place_pack.h"
#include "plan/place/place_tree.h"

#define ENOUGH     2048     /* a peak within load / ENOUGH of the load is good enough */
#define MANY_WORK  70000000 /* about 70 ms; no further recipe is tried after this much work */
#define CLASSES    128
#define TREE_ITEMS 600
#define TREE_WORK  1000000
#define REPAIR     8000000 /* about 8 ms; no repair if a single recipe takes longer */

enum by { BY_SIZE, BY_OCTAVE, BY_LIFE, BY_WEIGHT };

/* An item is hot if it is alive where at least permille thousandths of the load are alive. */
struct recipe {
    int32_t permille; /* 0: no item is hot */
    enum by hot, cold;
};

static const struct recipe recipes[] = {
    {998, BY_SIZE, BY_SIZE},   {970, BY_OCTAVE, BY_SIZE}, {0, BY_SIZE, BY_SIZE},
    {998, BY_LIFE, BY_OCTAVE}, {950, BY_LIFE, BY_OCTAVE}, {970, BY_WEIGHT, BY_OCTAVE},
};
enum { N_RECIPES = sizeof(recipes) / sizeof(recipes[0]) };

struct placer {
    struct sections sections;
    struct packing pack;
    int64_t *bytes;
    uint8_t *size, *life; /* of items, in half octaves */
    int64_t *loads;       /* per section: bytes alive */
    int32_t *hot;         /* per section: number of hot sections before it */
    int32_t *by_start;    /* items sorted by first section */
    struct placement best;
    struct pool memory;
};

static int32_t class_of(const struct placer *m, int32_t i, enum by by)
{
    int32_t size = m->size[i], life = m->life[i];
    switch (by) {
    case BY_SIZE:
        return CLASSES - 1 - size;
    case BY_OCTAVE:
        return CLASSES - 1 - size / 2;
    case BY_LIFE:
        return CLASSES - 1 - life;
    default:
        return CLASSES - 1 - (int32_t)min_i64(size + life / 4, CLASSES - 1);
    }
}

static int32_t rank_class(const struct placer *m, int32_t i, const struct recipe *r)
{
    bool hot = sections_hot(&m->sections, m->hot, i);
    return hot ? class_of(m, i, r->hot) : CLASSES + class_of(m, i, r->cold);
}

static void sort_order(struct placer *m, const struct recipe *r)
{
    int32_t n = m->sections.n_items, start[2 * CLASSES + 1] = {0};
    packing_keep(&m->pack, 0);
    sections_heat(&m->sections, m->loads, 0.001 * r->permille * (double)m->sections.load, m->hot);
    for (int32_t j = 0; j < n; j++)
        start[rank_class(m, j, r) + 1]++;
    for (int32_t c = 0; c < 2 * CLASSES; c++)
        start[c + 1] += start[c];
    for (int32_t j = 0; j < n; j++)
        m->pack.order[start[rank_class(m, m->by_start[j], r)]++] = m->by_start[j];
}

static int try_recipe(struct placer *m, const struct recipe *r)
{
    int32_t stop;
    sort_order(m, r);
    packing_attempt(&m->pack, 0, m->best.peak - 1, &m->best, &stop);
    return pool_status(&m->memory);
}

/* A counting sort of the items by first section; uses hot as its counters and clears it. */
static void list_by_start(struct placer *m)
{
    const struct sections *s = &m->sections;
    int32_t *start = m->hot;
    for (int32_t i = 0; i < s->n_items; i++)
        start[s->lower[i] + 1]++;
    for (int32_t k = 0; k < s->n; k++)
        start[k + 1] += start[k];
    for (int32_t i = 0; i < s->n_items; i++)
        m->by_start[start[s->lower[i]]++] = i;
    memset(start, 0, ((size_t)s->n + 1) * sizeof(*start));
}

static int placer_init(struct placer *m, const struct place_item *items, int32_t n)
{
    struct pool *p = &m->memory;
    POOL_ARRAY(p, m->bytes, n);
    POOL_ARRAY(p, m->size, n);
    POOL_ARRAY(p, m->life, n);
    POOL_ARRAY(p, m->loads, n + 1);
    POOL_ARRAY(p, m->hot, n + 1);
    POOL_ARRAY(p, m->by_start, n);
    if (p->failed || sections_build(items, n, 0, p, &m->sections) || placement_init(&m->best, n, p))
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < n; i++) {
        m->bytes[i] = items[i].bytes;
        m->size[i] = half_octaves(items[i].bytes);
        m->life[i] = half_octaves(m->sections.upper[i] - m->sections.lower[i]);
    }
    sections_loads(&m->sections, m->bytes, m->loads);
    list_by_start(m);
    return packing_init(&m->pack, &m->sections, m->bytes, p);
}

/* The peak at which the search stops: a goal above the load is a capacity, to be met exactly. */
static int64_t enough(const struct placer *m, int64_t goal)
{
    int64_t load = m->sections.load;
    return goal > load ? goal : load + load / ENOUGH;
}

/* Asks the tree search for a placement, first near the load and then with more capacity. */
static int try_tree(struct placer *m, int64_t goal)
{
    static const int32_t parts[] = {ENOUGH, 128};
    const struct sections *s = &m->sections;
    enum tree_answer answer = TREE_NONE;
    bool quick = true; /* false: the last search used half of its work; another would, too */
    for (size_t k = 0; k < sizeof(parts) / sizeof(*parts) && quick && answer != TREE_FOUND; k++) {
        struct place_limit limit = {TREE_WORK, 0};
        int64_t peak = 0, capacity = max_i64(k == 0 ? goal : 0, s->load + s->load / parts[k]);
        if (capacity >= m->best.peak)
            return 0;
        answer = hot_search(s, m->bytes, capacity, TREE_ITEMS, &limit, m->pack.offsets);
        quick = limit.work >= TREE_WORK / 2;
        if (answer == TREE_NO_MEMORY)
            return CKPT_ENOMEM;
        for (int32_t i = 0; i < s->n_items && answer == TREE_FOUND; i++) {
            m->best.offsets[i] = m->pack.offsets[i];
            peak = max_i64(peak, m->best.offsets[i] + m->bytes[i]);
        }
        m->best.peak = answer == TREE_FOUND ? peak : m->best.peak;
    }
    return 0;
}

int place_counted(struct place_item *items, int32_t n, int64_t goal, int64_t *peak, int64_t *looks)
{
    struct placer m = {0};
    int64_t each;
    int rc = placer_init(&m, items, n);
    if (!rc)
        rc = try_recipe(&m, &recipes[0]);
    each = m.pack.work;
    if (!rc && m.best.peak > enough(&m, goal))
        rc = try_tree(&m, goal);
    for (int k = 1; k < N_RECIPES && !rc; k++)
        if (m.best.peak > enough(&m, goal) && m.pack.work < MANY_WORK)
            rc = try_recipe(&m, &recipes[k]);
    if (!rc && n > 0 && each < REPAIR)
        rc = packing_repair(&m.pack, &m.best, enough(&m, goal), 1, m.pack.work + REPAIR);
    for (int32_t i = 0; i < n && !rc; i++)
        items[i].offset = m.best.offsets[i];
    *peak = rc || n == 0 ? 0 : m.best.peak;
    *looks = m.pack.room.work;
    pool_free(&m.memory);
    return rc;
}

int place_items(struct place_item *items, int32_t n, int64_t load, int64_t *peak)
{
    int64_t looks;
    return place_counted(items, n, load, peak, &looks);
}
