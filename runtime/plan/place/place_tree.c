/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the tree search: placing an item, propagating the decision, and undoing it. */
#include "plan/place/place_tree.h"

void tree_free(struct tree *t)
{
    pool_free(&t->memory);
}

static int allocate(struct tree *t)
{
    struct pool *m = &t->memory;
    int32_t sections = t->s->n, items = t->s->n_items;
    POOL_ARRAY(m, t->floor, sections);
    POOL_ARRAY(m, t->left, sections);
    POOL_ARRAY(m, t->open, sections);
    POOL_ARRAY(m, t->crossing, sections);
    POOL_ARRAY(m, t->failures, sections);
    POOL_ARRAY(m, t->base, items);
    POOL_ARRAY(m, t->offset, items);
    POOL_ARRAY(m, t->placed, items);
    POOL_ARRAY(m, t->prefix, sections);
    POOL_ARRAY(m, t->keys, items);
    POOL_ARRAY(m, t->gone, items);
    return pool_status(m);
}

int tree_init(struct tree *t, const struct sections *s, const int64_t *bytes, int64_t capacity)
{
    *t = (struct tree){.s = s, .bytes = bytes, .capacity = capacity};
    int rc = allocate(t);
    if (!rc)
        rc = sections_alive(s, &t->memory, &t->alive);
    if (!rc)
        rc = sections_starting(s, &t->memory, &t->starting);
    if (!rc)
        rc = sections_ending(s, &t->memory, &t->ending);
    if (rc) {
        tree_free(t);
        return rc;
    }
    for (int32_t i = 0; i < s->n_items; i++) {
        for (int32_t k = s->lower[i]; k < s->upper[i]; k++) {
            t->left[k] += bytes[i];
            t->prefix[k] = ++t->open[k];
            t->crossing[k] += k + 1 < s->upper[i];
        }
    }
    return 0;
}

static void remember(struct tree *t, enum tree_field field, int32_t index, int64_t old)
{
    if (!POOL_RESERVE(&t->memory, &t->trail, t->n_trail))
        t->trail.data[t->n_trail++] = (struct tree_change){field, index, old};
}

static void set_floor(struct tree *t, int32_t section, int64_t floor)
{
    remember(t, TREE_FLOOR, section, t->floor[section]);
    t->floor[section] = floor;
}

static void take_back(struct tree *t, int32_t i)
{
    t->placed[i] = false;
    for (int32_t k = t->s->lower[i]; k < t->s->upper[i]; k++) {
        t->left[k] += t->bytes[i];
        t->open[k]++;
        t->crossing[k] += k + 1 < t->s->upper[i];
        t->prefix[k] = t->alive.start[k + 1] - t->alive.start[k];
    }
}

void tree_undo(struct tree *t, int64_t n_trail)
{
    while (t->n_trail > n_trail) {
        const struct tree_change *c = &t->trail.data[--t->n_trail];
        switch (c->field) {
        case TREE_FLOOR:
            t->floor[c->index] = c->old;
            break;
        case TREE_BASE:
            t->base[c->index] = c->old;
            break;
        case TREE_PLACED:
            take_back(t, c->index);
        }
    }
}

/* Sorts a row by base, placed items last, and sets keys to the bases.  An insertion sort, because
 * only few bases grew since the row was last sorted. */
static void sort_row(struct tree *t, int32_t k)
{
    int32_t *row = t->alive.data + t->alive.start[k], n = t->prefix[k], open = 0, gone = 0;
    const int64_t *base = t->base;
    const bool *placed = t->placed;
    int64_t *keys = t->keys, most = INT64_MIN;
    for (int32_t i = 0; i < n; i++) {
        int32_t item = row[i], j = open;
        if (placed[item]) {
            t->gone[gone++] = item;
            continue;
        }
        int64_t key = base[item];
        open++;
        for (; key < most && j > 0 && keys[j - 1] > key; j--) {
            keys[j] = keys[j - 1];
            row[j] = row[j - 1];
        }
        keys[j] = key;
        row[j] = item;
        most = keys[open - 1];
    }
    for (int32_t i = 0; i < gone; i++)
        row[open + i] = t->gone[i];
    t->prefix[k] = t->open[k];
    t->work += n;
}

/*
 * Raises the floor of a section to its lowest base.  Stacking the remaining items in order of base
 * gives the lowest possible height: returns false if that is above the capacity.
 */
static bool raise_floor(struct tree *t, int32_t k)
{
    const int32_t *row = t->alive.data + t->alive.start[k], n = t->open[k];
    const int64_t *bytes = t->bytes, *keys = t->keys;
    int64_t height = 0;
    sort_row(t, k);
    for (int32_t i = 0; i < n; i++)
        height = max_i64(height, keys[i]) + bytes[row[i]];
    if (keys[0] > t->floor[k])
        set_floor(t, k, keys[0]);
    return height <= t->capacity;
}

/* The floors of sections [from, to) grew: raises bases of their items, then floors they imply. */
static bool propagate(struct tree *t, int32_t from, int32_t to)
{
    int32_t low = from, high = to;
    for (int32_t k = from; k < to; k++) {
        const int32_t *row = t->alive.data + t->alive.start[k];
        for (int32_t j = 0; j < t->prefix[k]; j++) {
            int32_t i = row[j];
            if (t->placed[i] || t->base[i] >= t->floor[k])
                continue;
            remember(t, TREE_BASE, i, t->base[i]);
            t->base[i] = t->floor[k];
            low = t->s->lower[i] < low ? t->s->lower[i] : low;
            high = t->s->upper[i] > high ? t->s->upper[i] : high;
        }
        t->work += t->prefix[k];
    }
    for (int32_t k = low; k < high; k++) {
        if (t->open[k] > 0 && !raise_floor(t, k)) {
            t->failures[k]++;
            return false;
        }
    }
    return !t->memory.failed;
}

bool tree_place(struct tree *t, int32_t i)
{
    int32_t lower = t->s->lower[i], upper = t->s->upper[i];
    int64_t end = t->base[i] + t->bytes[i];
    t->offset[i] = t->base[i];
    t->placed[i] = true;
    remember(t, TREE_PLACED, i, 0);
    for (int32_t k = lower; k < upper; k++) {
        t->left[k] -= t->bytes[i];
        t->open[k]--;
        t->crossing[k] -= k + 1 < upper;
        set_floor(t, k, end);
    }
    return propagate(t, lower, upper);
}

bool tree_raise(struct tree *t, int32_t section, int64_t floor)
{
    set_floor(t, section, floor);
    return propagate(t, section, section + 1);
}

bool tree_root(struct tree *t)
{
    for (int32_t k = 0; k < t->s->n; k++)
        if (t->open[k] > 0 && !raise_floor(t, k))
            return false;
    return true;
}
