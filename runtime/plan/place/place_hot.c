/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement of many items under a capacity.  First fit suffices where the load is far below the
 * capacity.  So the tree search places only the hot items, which are alive where the load is high,
 * and all others are packed into the holes between them.
 */
#include "plan/place/place_pack.h"
#include "plan/place/place_tree.h"

struct hot {
    const struct sections *s;
    const int64_t *bytes;
    int32_t *count; /* per section: number of hot sections before it */
    int64_t *loads;
    int32_t *items, n; /* the n hot items, then the others by falling size */
    int64_t *offsets;  /* of items[0 .. n) */
    struct pool memory;
};

/* Marks sections with at least `least` bytes alive as hot; returns the number of hot items. */
static int32_t heat(struct hot *h, int64_t least)
{
    int32_t n = 0;
    sections_heat(h->s, h->loads, (double)max_i64(least, 1), h->count);
    for (int32_t i = 0; i < h->s->n_items; i++)
        n += sections_hot(h->s, h->count, i);
    return n;
}

/*
 * Selects the lowest threshold with at most `most` hot items, or the load itself if no threshold
 * has so few.  A tree search looks at each item once per section several times: returns false if
 * that alone exceeds the work.
 */
static bool choose_heat(struct hot *h, int32_t most, int64_t work)
{
    static const int32_t percent[] = {0, 50, 70, 80, 90, 95, 98, 100};
    int64_t cost = 0;
    for (int k = 0; k < 8; k++)
        if (heat(h, (int64_t)((double)h->s->load * 0.01 * percent[k])) <= most)
            break;
    for (int32_t i = 0; i < h->s->n_items; i++)
        cost += sections_hot(h->s, h->count, i)
                    ? h->count[h->s->upper[i]] - h->count[h->s->lower[i]]
                    : 0;
    return cost < work / 8;
}

static int list_items(struct hot *h)
{
    int32_t n = h->s->n_items, n_cold = 0;
    struct place_key *cold = pool_array(&h->memory, n, sizeof(*cold));
    if (!cold)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < n; i++) {
        if (sections_hot(h->s, h->count, i))
            h->items[h->n++] = i;
        else
            cold[n_cold++] = (struct place_key){-(double)h->bytes[i], 0, i};
    }
    place_sort_keys(cold, n_cold);
    for (int32_t j = 0; j < n_cold; j++)
        h->items[h->n + j] = cold[j].item;
    return 0;
}

static enum tree_answer search_hot(struct hot *h, int64_t capacity, struct place_limit *limit)
{
    struct place_item *items = pool_array(&h->memory, h->n, sizeof(*items));
    int64_t *bytes = pool_array(&h->memory, h->n, sizeof(*bytes));
    struct sections s;
    for (int32_t j = 0; items && bytes && j < h->n; j++) {
        int32_t i = h->items[j];
        bytes[j] = h->bytes[i];
        items[j] = (struct place_item){h->s->lower[i], h->s->upper[i] - 1, bytes[j], 0};
    }
    if (h->memory.failed || sections_build(items, h->n, 0, &h->memory, &s))
        return TREE_NO_MEMORY;
    return tree_search(&s, bytes, capacity, limit, h->offsets);
}

/* Packs the other items into the holes. */
static enum tree_answer fill_holes(struct hot *h, int64_t capacity, int64_t *offsets)
{
    struct packing k;
    int32_t n = h->s->n_items, reached = 0;
    int64_t peak;
    if (packing_init(&k, h->s, h->bytes, &h->memory))
        return TREE_NO_MEMORY;
    packing_keep(&k, 0);
    for (int32_t j = 0; j < n; j++)
        k.order[j] = h->items[j];
    for (int32_t j = 0; j < h->n; j++)
        packing_put(&k, j, h->offsets[j]);
    reached = packing_run(&k, h->n, capacity, &peak);
    if (reached < n)
        return h->memory.failed ? TREE_NO_MEMORY : TREE_LIMIT;
    for (int32_t i = 0; i < n; i++)
        offsets[i] = k.offsets[i];
    return TREE_FOUND;
}

static int hot_init(struct hot *h)
{
    const struct sections *s = h->s;
    POOL_ARRAY(&h->memory, h->count, s->n);
    POOL_ARRAY(&h->memory, h->loads, s->n);
    POOL_ARRAY(&h->memory, h->items, s->n_items);
    POOL_ARRAY(&h->memory, h->offsets, s->n_items);
    if (h->memory.failed)
        return CKPT_ENOMEM;
    sections_loads(s, h->bytes, h->loads);
    return 0;
}

enum tree_answer hot_search(const struct sections *s, const int64_t *bytes, int64_t capacity,
                            int32_t most, struct place_limit *limit, int64_t *offsets)
{
    struct hot h = {.s = s, .bytes = bytes};
    enum tree_answer answer = TREE_NO_MEMORY;
    if (!hot_init(&h)) {
        if (!choose_heat(&h, most, limit->work))
            answer = TREE_LIMIT;
        else if (!list_items(&h))
            answer = search_hot(&h, capacity, limit);
    }
    if (answer == TREE_FOUND)
        answer = fill_holes(&h, capacity, offsets);
    pool_free(&h.memory);
    return answer;
}
