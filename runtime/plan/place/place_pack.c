/* SPDX-License-Identifier: Apache-2.0 */
/* Packing in a given order; most of the time of a placement is spent here. */
#include <string.h>
#include "plan/place/place_pack.h"

#define ROOM_LOOK 10 /* work units per inspected tree node or extent */
#define STUBBORN  60 /* a repair ends after this many consecutive attempts without a gain */

int packing_init(struct packing *k, const struct sections *s, const int64_t *bytes, struct pool *m)
{
    *k = (struct packing){.s = s, .bytes = bytes, .random = 1, .memory = m};
    POOL_ARRAY(m, k->high, s->n_items);
    POOL_ARRAY(m, k->order, s->n_items);
    POOL_ARRAY(m, k->offsets, s->n_items);
    return room_init(&k->room, s->n, m);
}

static struct stretch life_of(const struct packing *k, int32_t item)
{
    return (struct stretch){k->s->lower[item], k->s->upper[item]};
}

static void take_room(struct packing *k, int32_t item)
{
    struct stretch again = {0, k->s->again[item]};
    int rc = room_take(&k->room, life_of(k, item), k->offsets[item], k->bytes[item]);
    if (!rc && again.upper > 0)
        room_take(&k->room, again, k->offsets[item], k->bytes[item]);
}

void packing_keep(struct packing *k, int32_t kept)
{
    if (kept < k->n) {
        room_clear(&k->room);
        for (int32_t j = 0; j < kept; j++)
            take_room(k, k->order[j]);
    }
    k->n = kept;
}

static int64_t find_hole(struct packing *k, int32_t item)
{
    struct stretch life = life_of(k, item), again = {0, k->s->again[item]};
    const struct stretch *other = again.upper > 0 ? &again : NULL;
    int64_t at = -1;
    if (k->high[item])
        at = room_highest(&k->room, life, other, k->bytes[item], k->cap);
    return at >= 0 ? at : room_lowest(&k->room, life, other, k->bytes[item]);
}

void packing_put(struct packing *k, int32_t rank, int64_t offset)
{
    k->offsets[k->order[rank]] = offset;
    k->n++;
    take_room(k, k->order[rank]);
}

static int64_t end_of(const struct packing *k, int32_t rank)
{
    return k->offsets[k->order[rank]] + k->bytes[k->order[rank]];
}

int32_t packing_highest(const struct packing *k)
{
    int32_t top = 0;
    for (int32_t j = 1; j < k->n; j++)
        if (end_of(k, j) > end_of(k, top))
            top = j;
    return top;
}

int32_t packing_run(struct packing *k, int32_t kept, int64_t limit, int64_t *peak)
{
    int64_t looked = k->room.work;
    int32_t j = kept;
    packing_keep(k, kept);
    for (; j < k->s->n_items && !k->memory->failed; j++) {
        int32_t item = k->order[j];
        int64_t offset = j < k->fixed ? k->offsets[item] : find_hole(k, item);
        if (offset > limit - k->bytes[item])
            break;
        packing_put(k, j, offset);
    }
    k->work += ROOM_LOOK * (k->room.work - looked);
    *peak = j == k->s->n_items && j > 0 ? end_of(k, packing_highest(k)) : 0;
    return k->memory->failed ? 0 : j;
}

int placement_init(struct placement *best, int32_t n, struct pool *m)
{
    *best = (struct placement){.peak = INT64_MAX};
    POOL_ARRAY(m, best->offsets, n);
    POOL_ARRAY(m, best->order, n);
    POOL_ARRAY(m, best->high, n);
    return pool_status(m);
}

bool packing_attempt(struct packing *k, int32_t kept, int64_t limit, struct placement *best,
                     int32_t *stop)
{
    size_t n = (size_t)k->s->n_items;
    int64_t peak;
    *stop = packing_run(k, kept, limit, &peak);
    if (*stop < k->s->n_items)
        return false;
    best->peak = peak;
    memcpy(best->offsets, k->offsets, n * sizeof(*k->offsets));
    memcpy(best->order, k->order, n * sizeof(*k->order));
    memcpy(best->high, k->high, n * sizeof(*k->high));
    return true;
}

static uint32_t draw(struct packing *k, uint32_t n)
{
    k->random = k->random * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(k->random >> 8) * n >> 24);
}

/* A new rank before `from`: the first, the middle one, any, or one slightly earlier. */
static int32_t earlier(struct packing *k, int32_t from)
{
    switch (draw(k, 4)) {
    case 0:
        return 0;
    case 1:
        return from / 2;
    case 2:
        return (int32_t)draw(k, (uint32_t)from);
    default:
        return from - 1 - (int32_t)draw(k, (uint32_t)from / 8 + 1);
    }
}

static int32_t move_earlier(struct packing *k, int32_t from)
{
    int32_t to = k->fixed + earlier(k, from - k->fixed), item = k->order[from];
    memmove(k->order + to + 1, k->order + to, (size_t)(from - to) * sizeof(*k->order));
    k->order[to] = item;
    if (k->cap > 0 && draw(k, 3) == 0)
        k->high[item] = !k->high[item];
    return to;
}

void packing_set_cap(struct packing *k, int64_t cap)
{
    k->cap = cap - cap % CKPT_ALIGN;
}

/* One local search; ends after STUBBORN attempts without a gain. */
static void repair(struct packing *k, struct placement *best, int64_t goal, int64_t gain,
                   int64_t until)
{
    int32_t kept = 0, stop;
    for (int failed = 0; failed < STUBBORN && best->peak > goal; failed++) {
        int64_t limit = max_i64(goal, best->peak - gain), cap = k->cap;
        if (cap > 0)
            packing_set_cap(k, limit);
        if (cap != k->cap)
            kept = 0; /* high items move with the cap */
        if (packing_attempt(k, kept, limit, best, &stop)) {
            failed = 0;
            stop = packing_highest(k);
        }
        if (stop <= k->fixed || k->work > until || k->memory->failed)
            return;
        kept = move_earlier(k, stop);
    }
}

int packing_repair(struct packing *k, struct placement *best, int64_t goal, int64_t gain,
                   int64_t until)
{
    size_t n = (size_t)k->s->n_items;
    while (best->peak > goal && k->work < until && !k->memory->failed) {
        memcpy(k->order, best->order, n * sizeof(*k->order));
        memcpy(k->high, best->high, n * sizeof(*k->high));
        packing_set_cap(k, k->cap > 0 ? best->peak : 0);
        repair(k, best, goal, gain, until);
    }
    return pool_status(k->memory);
}
