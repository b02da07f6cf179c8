/* SPDX-License-Identifier: Apache-2.0 */
/* Sections of time: one sweep over the starts and the ends of the items. */
#include "plan/place/place_sections.h"

/* A section ends before the first start that follows an end. */
static void sweep(const struct place_item *items, const struct place_key *starts,
                  const struct place_key *ends, struct sections *s)
{
    int32_t n = s->n_items, i = 0, j = 0;
    int64_t alive = 0;
    while (i < n) {
        for (; i < n && starts[i].major <= ends[j].major; i++) {
            s->lower[starts[i].item] = s->n;
            alive += items[starts[i].item].bytes;
        }
        s->load = max_i64(s->load, alive);
        s->n++;
        for (; j < n && (i == n || ends[j].major < starts[i].major); j++) {
            s->upper[ends[j].item] = s->n;
            alive -= items[ends[j].item].bytes;
        }
    }
}

/* Sections of items that do not wrap. */
static int cut(const struct place_item *items, int32_t n, struct pool *m, struct sections *s)
{
    struct pool scratch = {NULL, false};
    struct place_key *starts = pool_array(&scratch, n, sizeof(*starts));
    struct place_key *ends = pool_array(&scratch, n, sizeof(*ends));
    *s = (struct sections){.n_items = n};
    POOL_ARRAY(m, s->lower, n);
    POOL_ARRAY(m, s->upper, n);
    POOL_ARRAY(m, s->again, n);
    int rc = scratch.failed ? CKPT_ENOMEM : pool_status(m);
    for (int32_t i = 0; i < n && !rc; i++) {
        starts[i] = (struct place_key){items[i].first, 0, i};
        ends[i] = (struct place_key){items[i].last, 0, i};
    }
    if (!rc) {
        place_sort_keys(starts, n);
        place_sort_keys(ends, n);
        sweep(items, starts, ends, s);
    }
    pool_free(&scratch);
    return rc;
}

/* An item that wraps is cut into two pieces; the second pieces follow all items. */
static int cut_cycle(const struct place_item *items, int32_t n, int32_t period, struct pool *m,
                     struct sections *s)
{
    struct place_item *pieces = pool_array(m, 2 * (int64_t)n, sizeof(*pieces));
    int32_t pieces_n = n;
    *s = (struct sections){0};
    if (!pieces)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < n; i++) {
        pieces[i] = items[i];
        if (items[i].last < period)
            continue;
        pieces[i].last = period - 1;
        pieces[pieces_n] = items[i];
        pieces[pieces_n].first = 0;
        pieces[pieces_n++].last = items[i].last - period;
    }
    int rc = cut(pieces, pieces_n, m, s);
    for (int32_t i = 0, j = n; i < n && !rc; i++)
        if (items[i].last >= period)
            s->again[i] = s->upper[j++];
    s->n_items = rc ? 0 : n;
    return rc;
}

int sections_build(const struct place_item *items, int32_t n, int32_t period, struct pool *m,
                   struct sections *s)
{
    return period > 0 ? cut_cycle(items, n, period, m, s) : cut(items, n, m, s);
}

/* Item i stands in rows [from(i), to(i)). */
static int fill_rows(struct pool *m, struct rows *r, int32_t n_rows, int32_t n, const int32_t *from,
                     const int32_t *to, int32_t add)
{
    int64_t total = 0;
    for (int32_t i = 0; i < n; i++)
        total += to ? to[i] - from[i] : 1;
    if (total >= INT32_MAX)
        return CKPT_ENOMEM;
    *r = (struct rows){pool_filled(m, n_rows + 1, 0), pool_filled(m, total, 0)};
    if (m->failed)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < n; i++)
        for (int32_t t = from[i] + add, e = to ? to[i] : t + 1; t < e; t++)
            r->start[t + 1]++;
    for (int32_t t = 0; t < n_rows; t++)
        r->start[t + 1] += r->start[t];
    /* Filling from the last item on, every start moves down to the beginning of its row. */
    for (int32_t i = n - 1; i >= 0; i--)
        for (int32_t t = from[i] + add, e = to ? to[i] : t + 1; t < e; t++)
            r->data[--r->start[t + 1]] = i;
    for (int32_t t = 0; t < n_rows; t++)
        r->start[t] = r->start[t + 1];
    r->start[n_rows] = (int32_t)total;
    return 0;
}

void sections_loads(const struct sections *s, const int64_t *bytes, int64_t *loads)
{
    for (int32_t i = 0; i < s->n_items; i++) {
        loads[s->lower[i]] += bytes[i];
        loads[s->upper[i]] -= bytes[i];
        loads[0] += s->again[i] > 0 ? bytes[i] : 0;
        loads[s->again[i]] -= s->again[i] > 0 ? bytes[i] : 0;
    }
    for (int32_t k = 0; k < s->n; k++)
        loads[k + 1] += loads[k];
}

void sections_heat(const struct sections *s, const int64_t *loads, double least, int32_t *count)
{
    for (int32_t k = 0; k < s->n; k++)
        count[k + 1] = count[k] + (least > 0 && (double)loads[k] >= least);
}

int sections_alive(const struct sections *s, struct pool *m, struct rows *r)
{
    return fill_rows(m, r, s->n, s->n_items, s->lower, s->upper, 0);
}

int sections_starting(const struct sections *s, struct pool *m, struct rows *r)
{
    return fill_rows(m, r, s->n, s->n_items, s->lower, NULL, 0);
}

int sections_ending(const struct sections *s, struct pool *m, struct rows *r)
{
    return fill_rows(m, r, s->n, s->n_items, s->upper, NULL, -1);
}
