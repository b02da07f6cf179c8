/*
 * Addresses where two stretches may have to share one: a storage that is still on its way out when
 * the next step begins.  First fit in a few orders; what wraps counts as one item with two lives.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/place_room.h"
#include "plan/place_sections.h"
#include "plan/transfer.h"

struct wrapping {
    const struct place_item *items;
    const int32_t *wrapped;
    int32_t n;
    struct sections sections;
    struct room room;
    struct place_key *keys;
    int64_t *offsets, *best;
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

enum { BY_SIZE, BY_LIFE, BY_AREA, BY_COUNT };

static void sort_keys(struct wrapping *k, int by)
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

static int wrapping_init(struct wrapping *k)
{
    size_t m = (size_t)k->n + 1;
    if (sections_build(k->items, k->n, &k->sections))
        return CKPT_ENOMEM;
    k->keys = calloc(m, sizeof(*k->keys));
    k->offsets = calloc(m, sizeof(*k->offsets));
    k->best = calloc(m, sizeof(*k->best));
    if (!k->keys || !k->offsets || !k->best)
        return CKPT_ENOMEM;
    return room_init(&k->room, k->sections.n);
}

int place_wrapped(struct place_item *items, const int32_t *wrapped, int32_t n, int64_t *peak)
{
    struct wrapping k = {.items = items, .wrapped = wrapped, .n = n};
    int rc = wrapping_init(&k);
    *peak = INT64_MAX;
    for (int by = 0; by < BY_COUNT && !rc; by++) {
        int64_t high;
        sort_keys(&k, by);
        rc = pack(&k, *peak, &high);
        if (!rc && high < *peak) {
            *peak = high;
            memcpy(k.best, k.offsets, (size_t)n * sizeof(*k.best));
        }
    }
    for (int32_t i = 0; i < n && !rc; i++)
        items[i].offset = k.best[i];
    sections_free(&k.sections);
    room_free(&k.room);
    free(k.keys);
    free(k.offsets);
    free(k.best);
    return rc;
}
