/* SPDX-License-Identifier: Apache-2.0 */
/* The segment tree of address ranges in use; see place_room.h. */
#include <string.h>
#include "plan/place/place_room.h"

#define BLOCK (1 << 15) /* extents per allocation */
#define FEW   8         /* binary search ends at this many extents; then a linear scan */
/* At each of at most 32 levels: two nodes of the lifetime and two ancestors. */
#define MOST_CURSORS (4 * 32)

int room_init(struct room *r, int32_t sections, struct pool *m)
{
    *r = (struct room){.leaves = 1, .memory = m};
    while (r->leaves < sections)
        r->leaves *= 2;
    POOL_ARRAY(m, r->nodes, 2 * (int64_t)r->leaves);
    return pool_status(m);
}

void room_clear(struct room *r)
{
    for (int32_t v = 0; v < 2 * r->leaves; v++)
        r->nodes[v].somewhere.n = r->nodes[v].through.n = 0;
}

static struct extent *new_extents(struct room *r, int32_t n)
{
    if (n > r->left) {
        int32_t size = n > BLOCK ? n : BLOCK;
        if (!POOL_ARRAY(r->memory, r->free, size))
            return NULL;
        r->left = size;
    }
    struct extent *data = r->free;
    r->free += n;
    r->left -= n;
    return data;
}

/* Doubles the capacity.  The old array stays in its block. */
static int grow(struct room *r, struct extents *s)
{
    int32_t capacity = s->capacity ? 2 * s->capacity : 2;
    struct extent *data = new_extents(r, capacity);
    if (!data)
        return CKPT_ENOMEM;
    if (s->n > 0)
        memcpy(data, s->data, (size_t)s->n * sizeof(*data));
    s->data = data;
    s->capacity = capacity;
    return 0;
}

/* The first extent of [from, to) that ends above at. */
static struct extent *first_above(struct extent *from, struct extent *to, int64_t at)
{
    while (to - from > FEW) {
        struct extent *mid = from + (to - from) / 2;
        if (mid->end > at)
            to = mid + 1;
        else
            from = mid + 1;
    }
    while (from < to && from->end <= at)
        from++;
    return from;
}

/* Moves n extents; n is mostly 0. */
static void move(struct extent *to, const struct extent *from, int64_t n)
{
    if (n > 0)
        memmove(to, from, (size_t)n * sizeof(*to));
}

/* Adds [begin, end) and merges the extents it touches; *known: all of it was in use before. */
static int insert(struct room *r, struct extents *s, int64_t begin, int64_t end, bool *known)
{
    if (!s->data && grow(r, s)) /* an offset from NULL is undefined, 0 too */
        return CKPT_ENOMEM;
    struct extent *stop = s->data + s->n, *first = first_above(s->data, stop, begin - 1);
    struct extent *last = first;
    int64_t at = first - s->data;
    *known = first < stop && first->begin <= begin && first->end >= end;
    if (*known)
        return 0;
    while (last < stop && last->begin <= end)
        last++;
    if (last > first) {
        begin = min_i64(begin, first->begin);
        end = max_i64(end, last[-1].end);
        move(first + 1, last, stop - last);
        s->n -= (int32_t)(last - first) - 1;
    } else {
        if (s->n == s->capacity && grow(r, s))
            return CKPT_ENOMEM;
        move(s->data + at + 1, s->data + at, s->n - at);
        s->n++;
    }
    s->data[at] = (struct extent){begin, end};
    return 0;
}

/* The same; first tries the highest extent, because packing mostly goes upward. */
static inline int add(struct room *r, struct extents *s, int64_t begin, int64_t end, bool *known)
{
    struct extent *top = s->n > 0 ? &s->data[s->n - 1] : NULL;
    r->work++;
    if (!top || top->begin > begin || top->end < begin)
        return insert(r, s, begin, end, known);
    *known = top->end >= end;
    top->end = max_i64(top->end, end);
    return 0;
}

/* One past the last extent of [from, to) that begins below at. */
static struct extent *end_below(struct extent *from, struct extent *to, int64_t at)
{
    while (to - from > FEW) {
        struct extent *mid = from + (to - from) / 2;
        if (mid->begin < at)
            from = mid;
        else
            to = mid;
    }
    while (to > from && to[-1].begin >= at)
        to--;
    return to;
}

/* The extents of a node not yet passed: scanned up from `at` or down from `stop`. */
struct cursor {
    struct extent *at, *stop;
};

static void add_cursor(struct cursor *list, int32_t *n, const struct extents *s)
{
    if (s->n > 0)
        list[(*n)++] = (struct cursor){s->data, s->data + s->n};
}

/* Lists the extents that conflict with a lifetime: `somewhere` of the nodes that it consists of,
 * and `through` of their ancestors.  Some ancestors may be redundant, which is harmless. */
static void list_cursors(const struct room *r, struct stretch life, struct cursor *list, int32_t *n)
{
    uint32_t a = (uint32_t)(life.lower + r->leaves), b = (uint32_t)(life.upper + r->leaves);
    uint32_t first = a / 2, last = (b - 1) / 2;
    for (; a < b; a = (a + 1) / 2, b /= 2) {
        if (a % 2)
            add_cursor(list, n, &r->nodes[a].somewhere);
        if (b % 2)
            add_cursor(list, n, &r->nodes[b - 1].somewhere);
    }
    for (; first > 0; first /= 2, last /= 2) {
        add_cursor(list, n, &r->nodes[first].through);
        if (last != first)
            add_cursor(list, n, &r->nodes[last].through);
    }
}

int64_t room_lowest(struct room *r, struct stretch life, const struct stretch *other, int64_t bytes)
{
    struct cursor list[2 * MOST_CURSORS];
    int32_t n = 0, clear = 0;
    int64_t at = 0;
    list_cursors(r, life, list, &n);
    if (other)
        list_cursors(r, *other, list, &n);
    r->work += n;
    /* Cycle through the lists until none conflicts with [at, at + bytes). */
    for (int32_t k = 0; clear < n; k = k + 1 < n ? k + 1 : 0, clear++) {
        struct cursor *c = &list[k];
        r->work++;
        c->at = first_above(c->at, c->stop, at);
        while (c->at < c->stop && c->at->begin - at < bytes) {
            at = c->at++->end;
            clear = 0;
            r->work++;
        }
    }
    return at;
}

int64_t room_highest(struct room *r, struct stretch life, const struct stretch *other,
                     int64_t bytes, int64_t cap)
{
    struct cursor list[2 * MOST_CURSORS];
    int32_t n = 0, clear = 0;
    int64_t end = cap;
    list_cursors(r, life, list, &n);
    if (other)
        list_cursors(r, *other, list, &n);
    r->work += n;
    /* Cycle through the lists until none conflicts with [end - bytes, end). */
    for (int32_t k = 0; clear < n && end >= bytes; k = k + 1 < n ? k + 1 : 0, clear++) {
        struct cursor *c = &list[k];
        r->work++;
        c->stop = end_below(c->at, c->stop, end);
        while (c->stop > c->at && end - c->stop[-1].end < bytes) {
            end = (--c->stop)->begin;
            clear = 0;
            r->work++;
        }
    }
    return end >= bytes ? end - bytes : -1;
}

/* Adds a range to node v, and to `somewhere` of its ancestors until one has it already. */
static int take(struct room *r, uint32_t v, int64_t begin, int64_t end)
{
    bool known = false;
    int rc = 0;
    if (v < (uint32_t)r->leaves) /* `through` of a leaf is never read */
        rc = add(r, &r->nodes[v].through, begin, end, &known);
    for (known = false; v > 0 && !known && !rc; v /= 2)
        rc = add(r, &r->nodes[v].somewhere, begin, end, &known);
    return rc;
}

int room_take(struct room *r, struct stretch life, int64_t at, int64_t bytes)
{
    uint32_t a = (uint32_t)(life.lower + r->leaves), b = (uint32_t)(life.upper + r->leaves);
    int rc = 0;
    for (; a < b && !rc; a = (a + 1) / 2, b /= 2) {
        if (a % 2)
            rc = take(r, a, at, at + bytes);
        if (b % 2 && !rc)
            rc = take(r, b - 1, at, at + bytes);
    }
    return rc;
}
