/*
 * Addresses where two stretches may have to share one: a storage that is still on its way out when
 * the next step begins.  First fit in several orders, as place_many.c has them: what is alive where
 * the load is high comes first, by size or by life; what wraps counts as one item with two lives.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/place_room.h"
#include "plan/place_sections.h"
#include "plan/transfer.h"

enum by { BY_SIZE, BY_LIFE, BY_AREA, BY_START };

/* An item is hot if it is alive where so many thousandths of the load are. */
static const struct recipe {
    int32_t permille;
    bool wrapped_first; /* what has two lives is hard to place */
    enum by hot, cold;
} recipes[] = {
    {990, true, BY_SIZE, BY_SIZE},  {970, false, BY_SIZE, BY_SIZE},  {900, true, BY_SIZE, BY_AREA},
    {0, true, BY_SIZE, BY_SIZE},    {980, false, BY_START, BY_SIZE}, {950, false, BY_LIFE, BY_SIZE},
    {600, false, BY_SIZE, BY_SIZE}, {840, false, BY_SIZE, BY_SIZE},  {920, false, BY_SIZE, BY_SIZE},
    {880, false, BY_SIZE, BY_SIZE}, {0, false, BY_AREA, BY_AREA},
};
enum { N_RECIPES = sizeof(recipes) / sizeof(recipes[0]) };

struct wrapping {
    const struct place_item *items;
    const int32_t *wrapped;
    int32_t n;
    struct sections sections;
    struct room room;
    struct place_key *keys;
    int64_t *offsets, *best;
    int64_t *loads; /* per section: bytes alive */
    int32_t *hot;   /* per section: hot ones before it */
};

static struct stretch life_of(const struct wrapping *k, int32_t i)
{
    return (struct stretch){k->sections.lower[i], k->sections.upper[i]};
}

/* Packs in the order of the keys; *peak is its peak, or INT64_MAX if that is not below limit. */
static int pack(struct wrapping *k, int64_t limit, int64_t *peak)
{
    int rc = 0;
    room_clear(&k->room);
    *peak = 0;
    for (int32_t j = 0; j < k->n && !rc; j++) {
        int32_t i = k->keys[j].item, other = k->wrapped[i];
        if (other >= 0 && other < i)
            continue; /* placed with the other one */
        struct stretch life = life_of(k, i), second = life_of(k, other >= 0 ? other : i);
        int64_t bytes = k->items[i].bytes;
        int64_t at = room_lowest(&k->room, life, other >= 0 ? &second : NULL, bytes);
        if (at >= limit - bytes) {
            *peak = INT64_MAX;
            return 0;
        }
        rc = room_take(&k->room, life, at, bytes);
        k->offsets[i] = at;
        if (other >= 0 && !rc) {
            rc = room_take(&k->room, second, at, bytes);
            k->offsets[other] = at;
        }
        *peak = max_i64(*peak, at + bytes);
    }
    return rc;
}

/* Sizes count in steps of a third or so, so that what is alive together stays side by side. */
static double size_class(int64_t bytes)
{
    int32_t k = 0;
    while (bytes >> k > 1)
        k++;
    return 2 * k + (k > 0 && (bytes >> (k - 1) & 1));
}

static struct place_key key_of(const struct wrapping *k, int32_t i, enum by by)
{
    const struct place_item *a = &k->items[i];
    double life = (double)a->last - a->first + 1;
    if (k->wrapped[i] >= 0)
        life += (double)k->items[k->wrapped[i]].last - k->items[k->wrapped[i]].first + 1;
    switch (by) {
    case BY_SIZE:
        return (struct place_key){-size_class(a->bytes), a->first, i};
    case BY_LIFE:
        return (struct place_key){-life, -(double)a->bytes, i};
    case BY_AREA:
        return (struct place_key){-(double)a->bytes * life, a->first, i};
    default:
        return (struct place_key){a->first, -(double)a->bytes, i};
    }
}

static bool is_hot(const struct wrapping *k, int32_t i)
{
    return i >= 0 && k->hot[k->sections.upper[i]] > k->hot[k->sections.lower[i]];
}

static void sort_keys(struct wrapping *k, const struct recipe *r)
{
    double least = 0.001 * r->permille * (double)k->sections.load;
    int32_t n = 0, first = 0;
    for (int32_t s = 0; s < k->sections.n; s++)
        k->hot[s + 1] = k->hot[s] + (r->permille > 0 && (double)k->loads[s] >= least);
    for (int pass = 0; pass < 3; pass++) {
        for (int32_t i = 0; i < k->n; i++) {
            bool early = r->wrapped_first && k->wrapped[i] >= 0;
            bool warm = is_hot(k, i) || is_hot(k, k->wrapped[i]);
            int group = early ? 0 : warm ? 1 : 2;
            if (group == pass)
                k->keys[n++] = key_of(k, i, pass < 2 ? r->hot : r->cold);
        }
        qsort(k->keys + first, (size_t)(n - first), sizeof(*k->keys), place_compare_keys);
        first = n;
    }
}

static int wrapping_init(struct wrapping *k)
{
    size_t m = (size_t)k->n + 2;
    if (sections_build(k->items, k->n, &k->sections))
        return CKPT_ENOMEM;
    k->keys = calloc(m, sizeof(*k->keys));
    k->offsets = calloc(m, sizeof(*k->offsets));
    k->best = calloc(m, sizeof(*k->best));
    k->loads = calloc(m, sizeof(*k->loads));
    k->hot = calloc(m, sizeof(*k->hot));
    if (!k->keys || !k->offsets || !k->best || !k->loads || !k->hot)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < k->n; i++) {
        k->loads[k->sections.lower[i]] += k->items[i].bytes;
        k->loads[k->sections.upper[i]] -= k->items[i].bytes;
    }
    for (int32_t s = 0; s < k->sections.n; s++)
        k->loads[s + 1] += k->loads[s];
    return room_init(&k->room, k->sections.n);
}

/* Packs the order as it is, and keeps what is better than the best so far. */
static int attempt(struct wrapping *k, int64_t *peak)
{
    int64_t high;
    int rc = pack(k, *peak, &high);
    if (rc || high >= *peak)
        return rc;
    *peak = high;
    memcpy(k->best, k->offsets, (size_t)k->n * sizeof(*k->best));
    return 0;
}

static void wrapping_free(struct wrapping *k)
{
    sections_free(&k->sections);
    room_free(&k->room);
    free(k->keys);
    free(k->offsets);
    free(k->best);
    free(k->loads);
    free(k->hot);
}

int place_wrapped(struct place_item *items, const int32_t *wrapped, int32_t n, int64_t goal,
                  int64_t *peak)
{
    struct wrapping k = {.items = items, .wrapped = wrapped, .n = n};
    int rc = wrapping_init(&k);
    *peak = INT64_MAX;
    for (int r = 0; r < N_RECIPES && !rc && (r == 0 || goal < *peak); r++) {
        sort_keys(&k, &recipes[r]);
        rc = attempt(&k, peak);
    }
    for (int32_t i = 0; i < n && !rc; i++)
        items[i].offset = k.best[i];
    wrapping_free(&k);
    return rc;
}
