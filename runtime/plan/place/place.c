/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quick placement.  Peaks arise where the load is high, so the items alive there (the hot ones) are
 * packed first and the others fill the holes.  Recipes give orders to pack in; they are tried in
 * turn until one is close to the lower bound, and the best placement is repaired.  Work is counted,
 * not timed, so a placement is the same on every machine.
 *
 * On a line of steps items of a class, mostly of size, are packed by start, which keeps items that
 * are alive together side by side.  If the first recipe is not close, a small tree search places
 * the hot items; it costs about as much as one more recipe.
 *
 * On a cycle of steps a storage whose copy out is under way when a step ends keeps its address into
 * the next step: its lifetime wraps.  Lifetimes are nested around two points of the cycle:
 * activations around the end of the forward pass, and the storages of the update around the end of
 * the step.  So items that wrap go to the high end of the arena and all others to the low end,
 * which leaves one hole between them.
 */
#include <string.h>
#include "plan/place/place.h"
#include "plan/place/place_pack.h"
#include "plan/place/place_tree.h"

/* On a line. */
#define ENOUGH     2048     /* a peak within load / ENOUGH of the load is good enough */
#define MANY_WORK  70000000 /* about 70 ms; no further recipe is tried after this much work */
#define REPAIR     8000000  /* about 8 ms; no repair if a single recipe takes longer */
#define TREE_ITEMS 600
#define TREE_WORK  1000000
/* On a cycle. */
#define WORK      120000000 /* limit of a placement, about 0.1 s */
#define WORK_EACH 20000     /* limit per item, which binds below 6,000 items */
#define GAIN      512       /* a repair must lower the peak by load / GAIN */
#define SLACK     100       /* the high end starts load / SLACK above the load */
#define LONG      20        /* an item alive for more than period / LONG steps is long */
#define FAR       8         /* other recipes and repairs save less than this part of a peak */

/* In descending classes of bytes, of sections or of both, then by start; or by other values. */
enum by { BY_SIZE, BY_OCTAVE, BY_LIFE, BY_WEIGHT, BY_AREA, BY_START, BY_END, BY_SPAN, BY_LATE };

/* An item is hot if it is alive where at least permille thousandths of the load are alive. */
struct recipe {
    int32_t permille; /* 0: no item is hot */
    enum by hot, cold;
    bool wrapped_first; /* items that wrap are packed first: they are the hardest to place */
    bool high;          /* items that wrap go to the high end */
};

static const struct recipe line[] = {
    {998, BY_SIZE, BY_SIZE, false, false},   {970, BY_OCTAVE, BY_SIZE, false, false},
    {0, BY_SIZE, BY_SIZE, false, false},     {998, BY_LIFE, BY_OCTAVE, false, false},
    {950, BY_LIFE, BY_OCTAVE, false, false}, {970, BY_WEIGHT, BY_OCTAVE, false, false},
};
static const struct recipe cycle[] = {
    {990, BY_SIZE, BY_SIZE, true, false},  {990, BY_SPAN, BY_SPAN, false, true},
    {990, BY_END, BY_END, false, true},    {0, BY_START, BY_START, true, true},
    {970, BY_SIZE, BY_SIZE, false, false}, {900, BY_SIZE, BY_AREA, true, false},
    {0, BY_LATE, BY_LATE, true, false},    {0, BY_SPAN, BY_SPAN, true, true},
};
#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

struct placer {
    const struct place_item *items;
    const bool *fixed; /* per item, or NULL */
    int32_t n, period; /* period 0: a line */
    struct sections sections;
    struct packing pack;
    struct placement best;
    int64_t fixed_end; /* the highest end of a fixed item */
    int64_t cap;       /* the initial high end */
    int64_t most;      /* on a cycle: a higher peak is of no use */
    int64_t *bytes;
    int64_t *loads; /* per section: bytes alive */
    int32_t *hot;   /* per section: number of hot sections before it */
    struct place_key *keys;
    struct pool memory;
};

static struct place_key key_of(const struct placer *m, int32_t i, enum by by)
{
    const struct place_item *a = &m->items[i];
    int32_t start = m->sections.lower[i], size = half_octaves(a->bytes);
    int32_t span = half_octaves(m->sections.upper[i] - start);
    double life = (double)a->last - a->first + 1;
    bool is_long = life * LONG > m->period;
    switch (by) {
    case BY_SIZE:
        return (struct place_key){-size, start, i};
    case BY_OCTAVE:
        return (struct place_key){-(size / 2), start, i};
    case BY_LIFE:
        return (struct place_key){-span, start, i};
    case BY_WEIGHT:
        return (struct place_key){-(size + span / 4), start, i};
    case BY_AREA:
        return (struct place_key){-(double)a->bytes * life, a->first, i};
    case BY_END:
        return (struct place_key){-(double)a->last, a->first, i};
    case BY_SPAN:
        return (struct place_key){a->first + (is_long ? 0 : 2. * m->period), -life, i};
    case BY_LATE:
        return (struct place_key){is_long ? -(double)a->first : 1, -life, i};
    default:
        return (struct place_key){a->first, -life, i};
    }
}

static bool is_fixed(const struct placer *m, int32_t i)
{
    return m->fixed && m->fixed[i];
}

/* Fixed items come first, then those that wrap if the recipe says so, hot ones, all others. */
static void sort_order(struct placer *m, const struct recipe *r)
{
    int32_t n = 0, first = 0;
    sections_heat(&m->sections, m->loads, 0.001 * r->permille * (double)m->sections.load, m->hot);
    for (int pass = 0; pass < 4; pass++) {
        for (int32_t i = 0; i < m->n; i++) {
            bool early = r->wrapped_first && m->sections.again[i] > 0;
            int group = is_fixed(m, i)                          ? 0
                        : early                                 ? 1
                        : sections_hot(&m->sections, m->hot, i) ? 2
                                                                : 3;
            if (group == pass)
                m->keys[n++] = key_of(m, i, pass < 3 ? r->hot : r->cold);
        }
        place_sort_keys(m->keys + first, n - first);
        first = n;
    }
    for (int32_t j = 0; j < m->n; j++) {
        m->pack.order[j] = m->keys[j].item;
        m->pack.high[j] = r->high && m->sections.again[j] > 0;
    }
}

static void try_recipe(struct placer *m, const struct recipe *r)
{
    int32_t stop;
    sort_order(m, r);
    packing_set_cap(&m->pack, r->high ? m->cap : 0);
    packing_attempt(&m->pack, 0, m->best.peak - 1, &m->best, &stop);
}

static int placer_init(struct placer *m)
{
    struct pool *p = &m->memory;
    struct sections *s = &m->sections;
    int rc = sections_build(m->items, m->n, m->period, p, s);
    POOL_ARRAY(p, m->bytes, m->n);
    POOL_ARRAY(p, m->keys, m->n);
    POOL_ARRAY(p, m->loads, s->n);
    POOL_ARRAY(p, m->hot, s->n);
    if (rc || p->failed || placement_init(&m->best, m->n, p))
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < m->n; i++)
        m->bytes[i] = m->items[i].bytes;
    sections_loads(s, m->bytes, m->loads);
    rc = packing_init(&m->pack, s, m->bytes, p);
    for (int32_t i = 0; i < m->n && !rc; i++)
        if (is_fixed(m, i)) {
            m->pack.offsets[i] = m->items[i].offset;
            m->fixed_end = max_i64(m->fixed_end, m->items[i].offset + m->bytes[i]);
            m->pack.fixed++;
        }
    m->cap = max_i64(s->load + s->load / SLACK, m->fixed_end);
    return rc;
}

/* ---- on a line ------------------------------------------------------------------------------- */

/* Asks the tree search for a placement, first near the load and then with more capacity. */
static int try_tree(struct placer *m, int64_t goal)
{
    static const int32_t parts[] = {ENOUGH, 128};
    const struct sections *s = &m->sections;
    enum tree_answer answer = TREE_NONE;
    bool quick = true; /* false: the last search used half of its work; another would, too */
    for (int k = 0; k < COUNT(parts) && quick && answer != TREE_FOUND; k++) {
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

/* A goal above the load is a capacity, to be met exactly. */
static int place_line(struct placer *m, int64_t goal)
{
    int64_t load = m->sections.load, enough = goal > load ? goal : load + load / ENOUGH;
    try_recipe(m, &line[0]);
    int64_t each = m->pack.work;
    int rc = m->best.peak > enough ? try_tree(m, goal) : 0;
    for (int k = 1; k < COUNT(line) && !rc; k++)
        if (m->best.peak > enough && m->pack.work < MANY_WORK)
            try_recipe(m, &line[k]);
    return rc || each >= REPAIR
               ? rc
               : packing_repair(&m->pack, &m->best, enough, 1, m->pack.work + REPAIR);
}

/* ---- on a cycle ------------------------------------------------------------------------------ */

static int place_turn(struct placer *m, int64_t goal)
{
    goal = max_i64(goal, max_i64(m->sections.load, m->fixed_end));
    try_recipe(m, &cycle[0]);
    if (m->best.peak - m->best.peak / (FAR + 1) > m->most)
        return 0;
    for (int k = 1; k < COUNT(cycle) && m->best.peak > goal; k++)
        try_recipe(m, &cycle[k]);
    return packing_repair(&m->pack, &m->best, goal, m->sections.load / GAIN,
                          min_i64(WORK, WORK_EACH * (100 + (int64_t)m->n)));
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int place(struct placer *m, struct place_item *items, int64_t goal, int64_t *peak)
{
    goal = min_i64(goal, INT64_MAX / 2); /* above any peak */
    int rc = placer_init(m);
    if (!rc && m->n > 0)
        rc = m->period > 0 ? place_turn(m, goal) : place_line(m, goal);
    if (!rc)
        rc = pool_status(&m->memory);
    for (int32_t i = 0; i < m->n && !rc; i++)
        items[i].offset = m->best.offsets[i];
    *peak = rc || m->n == 0 ? 0 : m->best.peak;
    pool_free(&m->memory);
    return rc;
}

int place_counted(struct place_item *items, int32_t n, int64_t goal, int64_t *peak, int64_t *looks)
{
    struct placer m = {.items = items, .n = n};
    int rc = place(&m, items, goal, peak);
    *looks = m.pack.room.work;
    return rc;
}

int place_items(struct place_item *items, int32_t n, int64_t goal, int64_t *peak)
{
    int64_t looks;
    return place_counted(items, n, goal, peak, &looks);
}

int place_cycle(struct place_item *items, int32_t n, const bool *fixed, int32_t period,
                int64_t goal, int64_t most, int64_t *peak)
{
    struct placer m = {.items = items, .fixed = fixed, .n = n, .most = most};
    for (int32_t i = 0; i < n; i++)
        if (items[i].last >= period || is_fixed(&m, i))
            m.period = period;
    return place(&m, items, goal, peak);
}
