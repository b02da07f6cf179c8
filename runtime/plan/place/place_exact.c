/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thorough placement: the quick heuristics, then the tree search.  Without a given capacity the
 * tree search is run for a series of capacities.
 */
#include "plan/place/place.h"
#include "plan/place/place_tree.h"

#define HOT_ITEMS 3000 /* at most this many take part in a tree search; the others fill holes */
#define NEARLY    600  /* the first capacity is load / NEARLY above the load */
/* Default work: some seconds to meet a capacity, one or two to lower the peak without one. */
#define CAPACITY_WORK 2000000000
#define LOW_WORK      250000000

struct hunt {
    struct place_item *items;
    int32_t n;
    struct sections sections;
    int64_t *bytes, *offsets;
    struct place_limit limit;
    struct place_result *result;
    struct pool memory;
};

/* Runs the tree search for a capacity; a placement that it finds becomes the result. */
static enum tree_answer try_capacity(struct hunt *h, int64_t capacity, int64_t work)
{
    struct place_limit limit = {min_i64(work, h->limit.work), h->limit.until};
    int64_t given = limit.work;
    enum tree_answer answer =
        hot_search(&h->sections, h->bytes, capacity, HOT_ITEMS, &limit, h->offsets);
    h->limit.work -= given - limit.work;
    if (answer != TREE_FOUND)
        return answer;
    h->result->peak = 0;
    for (int32_t i = 0; i < h->n; i++) {
        h->items[i].offset = h->offsets[i];
        h->result->peak = max_i64(h->result->peak, h->offsets[i] + h->bytes[i]);
    }
    return answer;
}

static bool out_of_work(const struct hunt *h)
{
    return h->limit.work <= 0 || (h->limit.until > 0 && place_clock() > h->limit.until);
}

/*
 * Without a capacity: first tries a capacity slightly above the load, which seldom takes a search;
 * then the load; then bisects between the highest infeasible capacity and the best peak so far.  A
 * search that reaches its limit counts as infeasible for the bisection, and then nothing is proved.
 */
static enum tree_answer lower_peak(struct hunt *h)
{
    struct place_result *r = h->result;
    int64_t low = r->load, near = low + low / NEARLY;
    bool certain = true;
    if (near < r->peak && try_capacity(h, near, h->limit.work / 4) == TREE_NO_MEMORY)
        return TREE_NO_MEMORY;
    for (int64_t at = low; low < r->peak && !out_of_work(h); at = low + (r->peak - low) / 2) {
        enum tree_answer answer = try_capacity(h, at, max_i64(1, h->limit.work / 3));
        if (answer == TREE_NO_MEMORY)
            return answer;
        if (answer != TREE_FOUND)
            low = at + 1;
        certain = certain && answer != TREE_LIMIT;
    }
    r->proved = low >= r->peak && certain;
    return TREE_FOUND;
}

static int search_tree(struct hunt *h, int64_t capacity)
{
    enum tree_answer answer;
    if (capacity > 0) {
        answer = try_capacity(h, capacity, h->limit.work);
        h->result->proved = answer == TREE_NONE || h->result->peak == h->result->load;
    } else {
        answer = lower_peak(h);
    }
    return answer == TREE_NO_MEMORY ? CKPT_ENOMEM : 0;
}

static int hunt_init(struct hunt *h)
{
    POOL_ARRAY(&h->memory, h->bytes, h->n);
    POOL_ARRAY(&h->memory, h->offsets, h->n);
    for (int32_t i = 0; h->bytes && i < h->n; i++)
        h->bytes[i] = h->items[i].bytes;
    return h->memory.failed ? CKPT_ENOMEM
                            : sections_build(h->items, h->n, 0, &h->memory, &h->sections);
}

int place_load(const struct place_item *items, int32_t n, int64_t *load)
{
    struct pool m = {NULL, false};
    struct sections s;
    int rc = sections_build(items, n, 0, &m, &s);
    *load = rc ? 0 : s.load;
    pool_free(&m);
    return rc;
}

int plan_place(struct place_item *items, int32_t n, const struct place_request *q,
               struct place_result *r)
{
    struct hunt h = {.items = items, .n = n, .result = r};
    int64_t usual = q->capacity > 0 ? CAPACITY_WORK : LOW_WORK;
    int64_t work = q->work > 0 ? q->work : q->seconds > 0 ? INT64_MAX : usual;
    h.limit = (struct place_limit){work, q->seconds > 0 ? place_clock() + q->seconds : 0};
    *r = (struct place_result){0};
    int rc = hunt_init(&h);
    if (!rc) {
        r->load = h.sections.load;
        rc = place_items(items, n, max_i64(r->load, q->capacity), &r->peak);
    }
    if (!rc) {
        int64_t wanted = q->capacity > 0 ? q->capacity : r->load;
        r->proved = r->peak == r->load || (q->capacity > 0 && q->capacity < r->load);
        /* The last 1/600 above the load of a large set is searched for only on request. */
        if (n > HOT_ITEMS && q->capacity == 0 && q->work == 0 && q->seconds == 0)
            wanted += wanted / NEARLY;
        if (r->peak > wanted && !r->proved)
            rc = search_tree(&h, q->capacity);
    }
    r->work = work - h.limit.work;
    pool_free(&h.memory);
    return rc;
}
