/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of spans, each stored once: schedules share most of their sets, and a hold is one number.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/search/spans.h"

void spans_free(struct spans *p)
{
    free(p->spans.data);
    free(p->sets.data);
    free(p->table);
}

const struct span *spans_of(const struct spans *p, int32_t hold, int32_t *n)
{
    const struct span_set *set = &p->sets.data[HOLD_SPANS - hold];
    *n = set->n;
    return p->spans.data + set->first;
}

static uint64_t hash_spans(const struct span *list, int32_t n)
{
    uint64_t h = HASH_START;
    for (int32_t i = 0; i < n; i++)
        h = hash_mix(hash_mix(h, list[i].from), list[i].to);
    return h;
}

static bool is_set(const struct spans *p, int32_t k, const struct span *list, int32_t n)
{
    const struct span_set *set = &p->sets.data[k];
    const struct span *own = p->spans.data + set->first;
    if (set->n != n)
        return false;
    for (int32_t i = 0; i < n; i++)
        if (own[i].from != list[i].from || own[i].to != list[i].to)
            return false;
    return true;
}

/* The slot of the set in the table, or the empty slot for it. */
static int64_t find_slot(const struct spans *p, const struct span *list, int32_t n)
{
    int64_t mask = p->room - 1, i = (int64_t)(hash_spans(list, n) & (uint64_t)mask);
    while (p->table[i] >= 0 && !is_set(p, p->table[i], list, n))
        i = (i + 1) & mask;
    return i;
}

/* Doubles the table. */
static int grow(struct spans *p)
{
    int64_t room = p->room ? 2 * p->room : 256;
    int32_t *table = malloc((size_t)room * sizeof(*table));
    if (!table)
        return CKPT_ENOMEM;
    for (int64_t i = 0; i < room; i++)
        table[i] = -1;
    free(p->table);
    p->table = table;
    p->room = room;
    for (int32_t k = 0; k < p->n_sets; k++) {
        const struct span_set *set = &p->sets.data[k];
        table[find_slot(p, p->spans.data + set->first, set->n)] = k;
    }
    return 0;
}

static int append(struct spans *p, const struct span *list, int32_t n)
{
    if (ARRAY_RESERVE(&p->sets, p->n_sets) || ARRAY_RESERVE(&p->spans, p->n_spans))
        return CKPT_ENOMEM;
    p->sets.data[p->n_sets] = (struct span_set){p->n_spans, n};
    for (int32_t i = 0; i < n; i++) {
        if (ARRAY_RESERVE(&p->spans, p->n_spans)) {
            p->n_spans -= i;
            return CKPT_ENOMEM;
        }
        p->spans.data[p->n_spans++] = list[i];
    }
    p->n_sets++;
    return 0;
}

int spans_hold(struct spans *p, const struct span *list, int32_t n, int32_t *hold)
{
    int rc = 2 * ((int64_t)p->n_sets + 1) > p->room ? grow(p) : 0;
    if (rc)
        return rc;
    int64_t slot = find_slot(p, list, n);
    if (p->table[slot] < 0) {
        rc = append(p, list, n);
        if (rc)
            return rc;
        p->table[slot] = p->n_sets - 1;
    }
    *hold = HOLD_SPANS - p->table[slot];
    return 0;
}
