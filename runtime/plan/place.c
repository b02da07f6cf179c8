/*
 * Static addresses: intervals of time that need bytes are packed one by one into the lowest or the
 * tightest hole.  No single order wins everywhere, so a few are tried and the best is kept; an
 * attempt ends early once it cannot win, and the search ends when the lower bound is met.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/search.h"

struct key {
    double major, minor;
    int32_t item;
};

/* A placed item; the array is sorted by offset. */
struct slot {
    int32_t first, last;
    int64_t offset, end;
};

struct packing {
    const struct place_item *items;
    int32_t n;
    struct key *keys; /* the order of the running attempt */
    struct slot *slots;
    int32_t n_slots;
    int64_t *offsets;            /* of the running attempt */
    int64_t *best, best_peak;    /* of the best one */
    int32_t *order, *best_order; /* items in the order of placement */
};

enum { BY_CLASS, BY_LIFE, BY_AREA, BY_SIZE_START, BY_SIZE, BY_START, BY_COUNT };

static double log_class(int64_t bytes)
{
    double c = 0;
    for (; bytes > 1; bytes >>= 1)
        c++;
    return c;
}

static struct key make_key(const struct place_item *it, int32_t i, int by)
{
    double size = (double)it->bytes, life = (double)it->last - it->first + 1;
    switch (by) {
    case BY_LIFE:
        return (struct key){-life, -size, i};
    case BY_SIZE:
        return (struct key){-size, -life, i};
    case BY_AREA:
        return (struct key){-size * life, it->first, i};
    case BY_START:
        return (struct key){it->first, -size * life, i};
    case BY_CLASS:
        return (struct key){-log_class(it->bytes), it->first, i};
    default:
        return (struct key){-size, it->first, i};
    }
}

static int compare_keys(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->major != y->major)
        return x->major < y->major ? -1 : 1;
    if (x->minor != y->minor)
        return x->minor < y->minor ? -1 : 1;
    return (x->item > y->item) - (x->item < y->item);
}

/* The lowest hole that fits, or the tightest one. */
static int64_t find_hole(const struct packing *k, const struct place_item *it, bool tightest)
{
    int64_t cursor = 0, best = -1, best_gap = INT64_MAX;
    for (int32_t j = 0; j < k->n_slots; j++) {
        const struct slot *s = &k->slots[j];
        if (s->last < it->first || s->first > it->last)
            continue;
        int64_t gap = s->offset - cursor;
        if (gap >= it->bytes && gap < best_gap) {
            best = cursor;
            best_gap = gap;
            if (!tightest)
                break;
        }
        cursor = max_i64(cursor, s->end);
    }
    return best >= 0 ? best : cursor;
}

static void insert_slot(struct packing *k, const struct place_item *it, int64_t offset)
{
    int32_t lo = 0, hi = k->n_slots;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (k->slots[mid].offset < offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    memmove(k->slots + lo + 1, k->slots + lo, (size_t)(k->n_slots - lo) * sizeof(*k->slots));
    k->slots[lo] = (struct slot){it->first, it->last, offset, offset + it->bytes};
    k->n_slots++;
}

/* Packs in k->order.  Returns -1 if that was better than the best so far, else where in the order
 * it turned out that it is not. */
static int32_t attempt(struct packing *k, bool tightest)
{
    int64_t peak = 0;
    k->n_slots = 0;
    for (int32_t j = 0; j < k->n; j++) {
        int32_t i = k->order[j];
        int64_t at = find_hole(k, &k->items[i], tightest);
        peak = max_i64(peak, at + k->items[i].bytes);
        if (peak >= k->best_peak)
            return j;
        k->offsets[i] = at;
        insert_slot(k, &k->items[i], at);
    }
    k->best_peak = peak;
    memcpy(k->best, k->offsets, (size_t)k->n * sizeof(*k->best));
    memcpy(k->best_order, k->order, (size_t)k->n * sizeof(*k->best_order));
    return -1;
}

static void sort_order(struct packing *k, int by)
{
    for (int32_t i = 0; i < k->n; i++)
        k->keys[i] = make_key(&k->items[i], i, by);
    qsort(k->keys, (size_t)k->n, sizeof(*k->keys), compare_keys);
    for (int32_t i = 0; i < k->n; i++)
        k->order[i] = k->keys[i].item;
}

static void move_forward(int32_t *order, int32_t from, int32_t to)
{
    int32_t item = order[from];
    memmove(order + to + 1, order + to, (size_t)(from - to) * sizeof(*order));
    order[to] = item;
}

/* Where in the best order the item stands that ended highest. */
static int32_t highest(const struct packing *k)
{
    int32_t j = 0;
    while (k->best[k->best_order[j]] + k->items[k->best_order[j]].bytes < k->best_peak)
        j++;
    return j;
}

/* The item that stood in the way goes earlier, again and again. */
static void repair(struct packing *k, int64_t load)
{
    int64_t rounds = max_i64(4, min_i64(60, 30000 / k->n));
    memcpy(k->order, k->best_order, (size_t)k->n * sizeof(*k->order));
    int32_t j = highest(k);
    for (int64_t r = 0; r < rounds && k->best_peak > load; r++) {
        move_forward(k->order, j, r % 2 ? 0 : j / 2);
        j = attempt(k, false);
        if (j < 0)
            j = highest(k);
    }
}

static void pack(struct packing *k, int64_t load)
{
    for (int by = 0; by < BY_COUNT && k->best_peak > load; by++) {
        sort_order(k, by);
        attempt(k, false);
        if (k->best_peak > load)
            attempt(k, true);
    }
    repair(k, load);
}

static void packing_free(struct packing *k)
{
    free(k->keys);
    free(k->slots);
    free(k->offsets);
    free(k->best);
    free(k->order);
    free(k->best_order);
}

int place_items(struct place_item *items, int32_t n, int64_t load, int64_t *peak)
{
    struct packing k = {.items = items, .n = n, .best_peak = INT64_MAX};
    size_t m = (size_t)n + 1;
    int rc = CKPT_ENOMEM;
    *peak = 0;
    k.keys = calloc(m, sizeof(*k.keys));
    k.slots = calloc(m, sizeof(*k.slots));
    k.offsets = calloc(m, sizeof(*k.offsets));
    k.best = calloc(m, sizeof(*k.best));
    k.order = calloc(m, sizeof(*k.order));
    k.best_order = calloc(m, sizeof(*k.best_order));
    if (k.keys && k.slots && k.offsets && k.best && k.order && k.best_order) {
        if (n > 0)
            pack(&k, load);
        for (int32_t i = 0; i < n; i++)
            items[i].offset = k.best[i];
        *peak = n > 0 ? k.best_peak : 0;
        rc = 0;
    }
    packing_free(&k);
    return rc;
}
