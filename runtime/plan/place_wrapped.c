/*
 * Addresses where two stretches may have to share one: a storage that is still on its way out when
 * the next step begins.  First fit in a few orders; what wraps counts as one item with two lives.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/transfer.h"

struct packing {
    struct place_item *items;
    const int32_t *wrapped;
    int32_t n, n_done;
    struct place_key *keys;
    int32_t *done; /* placed items by offset */
    int64_t *best;
};

static bool meet(const struct place_item *a, const struct place_item *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* The lowest place where item i fits, in both of its lives. */
static int64_t lowest(const struct packing *k, int32_t i)
{
    const struct place_item *a = &k->items[i];
    const struct place_item *other = k->wrapped[i] >= 0 ? &k->items[k->wrapped[i]] : a;
    int64_t at = 0;
    for (int32_t j = 0; j < k->n_done; j++) {
        const struct place_item *d = &k->items[k->done[j]];
        if (!meet(a, d) && !meet(other, d))
            continue;
        if (d->offset >= at + a->bytes)
            break;
        at = max_i64(at, d->offset + d->bytes);
    }
    return at;
}

static void put(struct packing *k, int32_t i, int64_t offset)
{
    int32_t at = k->n_done++;
    k->items[i].offset = offset;
    for (; at > 0 && k->items[k->done[at - 1]].offset > offset; at--)
        k->done[at] = k->done[at - 1];
    k->done[at] = i;
}

static int64_t pack(struct packing *k)
{
    int64_t peak = 0;
    k->n_done = 0;
    for (int32_t j = 0; j < k->n; j++) {
        int32_t i = k->keys[j].item, other = k->wrapped[i];
        if (other >= 0 && other < i)
            continue; /* placed with the other one */
        int64_t at = lowest(k, i);
        put(k, i, at);
        if (other >= 0)
            put(k, other, at);
        peak = max_i64(peak, at + k->items[i].bytes);
    }
    return peak;
}

enum { BY_SIZE, BY_LIFE, BY_AREA, BY_COUNT };

static void sort_keys(struct packing *k, int by)
{
    for (int32_t i = 0; i < k->n; i++) {
        const struct place_item *a = &k->items[i];
        double life = (double)a->last - a->first + 1, bytes = (double)a->bytes;
        if (k->wrapped[i] >= 0)
            life = (double)INT32_MAX; /* what has two lives is hardest to place */
        double major = by == BY_SIZE ? -bytes : by == BY_LIFE ? -life : -bytes * life;
        k->keys[i] = (struct place_key){major, a->first, i};
    }
    qsort(k->keys, (size_t)k->n, sizeof(*k->keys), place_compare_keys);
}

int place_wrapped(struct place_item *items, const int32_t *wrapped, int32_t n, int64_t *peak)
{
    struct packing k = {.items = items, .wrapped = wrapped, .n = n};
    size_t m = (size_t)n + 1;
    k.keys = calloc(m, sizeof(*k.keys));
    k.done = calloc(m, sizeof(*k.done));
    k.best = calloc(m, sizeof(*k.best));
    int rc = k.keys && k.done && k.best ? 0 : CKPT_ENOMEM;
    *peak = INT64_MAX;
    for (int by = 0; by < BY_COUNT && !rc; by++) {
        sort_keys(&k, by);
        int64_t high = pack(&k);
        for (int32_t i = 0; i < n && high < *peak; i++)
            k.best[i] = items[i].offset;
        *peak = min_i64(*peak, high);
    }
    for (int32_t i = 0; i < n && !rc; i++)
        items[i].offset = k.best[i];
    free(k.keys);
    free(k.done);
    free(k.best);
    return rc;
}
