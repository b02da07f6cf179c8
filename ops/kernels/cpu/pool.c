/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling kernels: position by position, vectorised along the channels. */
#include "kernels.h"
#include "shapes/pool.h"
#include "rows.h"

enum { LANES = 256 }; /* channels processed together */

/* For LANES channels: the maximum so far, and its index in the window. */
struct best {
    float value[LANES];
    int32_t tap[LANES];
};

struct pool {
    struct pool_shape s;
    const void *x, *dy;
    void *out;
    bool half, average;
};

/* Splits a position index into the index along each axis, and returns the sample. */
static int64_t split_place(const int32_t *size, int64_t place, int32_t *at)
{
    for (int i = 2; i >= 0; i--) {
        at[i] = (int32_t)(place % size[i]);
        place /= size[i];
    }
    return place;
}

static inline int64_t place_of(const int32_t *size, int64_t sample, const int32_t *at)
{
    return sample * pool_volume(size) + pool_place(size, at[0], at[1], at[2]);
}

static void window_of(const struct pool_shape *s, const int32_t *o, struct pool_range *r)
{
    for (int i = 0; i < 3; i++)
        r[i] = pool_window(s, i, o[i]);
}

/* Iterator over a box of positions, row by row; i counts them. */
struct box {
    int32_t at[3];
    int32_t i;
    bool more;
};

static inline struct box box_begin(const struct pool_range *r)
{
    bool some = r[0].begin < r[0].end && r[1].begin < r[1].end && r[2].begin < r[2].end;
    return (struct box){{r[0].begin, r[1].begin, r[2].begin}, 0, some};
}

static inline void box_next(struct box *w, const struct pool_range *r)
{
    w->i++;
    for (int k = 2; k >= 0; k--) {
        if (++w->at[k] < r[k].end)
            return;
        w->at[k] = r[k].begin;
    }
    w->more = false;
}

/* Finds the first maximum of a window; NaN is larger than any number. */
ROWS_INLINE void find_maximum(const struct pool *p, int64_t sample, const struct pool_range *r,
                              int64_t first, int64_t n, struct best *b, bool half)
{
    const int64_t c = p->s.c;
    for (struct box at = box_begin(r); at.more; box_next(&at, r)) {
        const int64_t from = place_of(p->s.from, sample, at.at) * c + first;
        const int32_t tap = at.i;
        for (int64_t j = 0; j < n; j++) {
            float v = row_get(p->x, from + j, half), value = b->value[j];
            bool wins = tap == 0 || (!(v <= value) && value == value);
            b->value[j] = wins ? v : value;
            b->tap[j] = wins ? tap : b->tap[j];
        }
    }
}

/* Processes channels first .. first + n - 1 of one position of the result, or of x. */
typedef void (*pool_leaf)(const struct pool *p, int64_t place, int64_t first, int64_t n);

static void for_all(const struct pool *p, int64_t places, pool_leaf leaf)
{
    const int64_t c = p->s.c;
#pragma omp parallel for schedule(static) if (places * c > ROWS_CHUNK)
    for (int64_t i = 0; i < places; i++)
        for (int64_t first = 0; first < c; first += LANES)
            leaf(p, i, first, min_i64(LANES, c - first));
}

/* ---- maximum --------------------------------------------------------------------------------- */

ROWS_INLINE void largest(const struct pool *p, int64_t place, int64_t first, int64_t n, bool half)
{
    struct best b;
    struct pool_range r[3];
    int32_t o[3];
    const int64_t sample = split_place(p->s.size, place, o);
    window_of(&p->s, o, r);
    find_maximum(p, sample, r, first, n, &b, half);
    for (int64_t j = 0; j < n; j++)
        row_put(p->out, place * p->s.c + first + j, b.value[j], half);
}

CKPT_CLONES static void largest_leaf(const struct pool *p, int64_t place, int64_t first, int64_t n)
{
    WITH_FLAG(p->half, largest, p, place, first, n);
}

/* Writes dy of a window to its maximum and 0 to its other positions, for windows that do not
 * overlap. */
ROWS_INLINE void scatter_gradient(const struct pool *p, int64_t place_y, int64_t first, int64_t n,
                                  bool half)
{
    const int64_t c = p->s.c, from = place_y * c + first;
    struct best b;
    struct pool_range r[3];
    int32_t o[3];
    const int64_t sample = split_place(p->s.size, place_y, o);
    window_of(&p->s, o, r);
    find_maximum(p, sample, r, first, n, &b, half);
    for (struct box at = box_begin(r); at.more; box_next(&at, r)) {
        const int64_t to = place_of(p->s.from, sample, at.at) * c + first;
        const int32_t tap = at.i;
        for (int64_t j = 0; j < n; j++)
            row_put(p->out, to + j, b.tap[j] == tap ? row_get(p->dy, from + j, half) : 0.f, half);
    }
}

CKPT_CLONES static void scatter_gradient_leaf(const struct pool *p, int64_t place, int64_t first,
                                              int64_t n)
{
    WITH_FLAG(p->half, scatter_gradient, p, place, first, n);
}

/* The index of position q inside a box of ranges. */
static int32_t index_in(const struct pool_range *r, const int32_t *q)
{
    int32_t index = 0;
    for (int i = 0; i < 3; i++)
        index = index * (r[i].end - r[i].begin) + q[i] - r[i].begin;
    return index;
}

/* Sums what the windows that contain a position of x give it, in their order: dy if its maximum is
 * there, or of an average a share of dy. */
ROWS_INLINE void gather_gradient(const struct pool *p, int64_t place_x, int64_t first, int64_t n,
                                 bool half)
{
    const struct pool_shape *s = &p->s;
    float sum[LANES] = {0};
    struct pool_range windows[3];
    int32_t q[3];
    const int64_t sample = split_place(s->from, place_x, q);
    for (int k = 0; k < 3; k++)
        windows[k] = pool_windows_of(s, k, q[k]);
    for (struct box at = box_begin(windows); at.more; box_next(&at, windows)) {
        struct best b;
        struct pool_range r[3];
        const int64_t from = place_of(s->size, sample, at.at) * s->c + first;
        window_of(s, at.at, r);
        if (p->average) {
            const float count = pool_count(s, r);
            for (int64_t j = 0; j < n; j++)
                sum[j] += row_get(p->dy, from + j, half) / count;
            continue;
        }
        find_maximum(p, sample, r, first, n, &b, half);
        const int32_t own = index_in(r, q);
        for (int64_t j = 0; j < n; j++)
            sum[j] += b.tap[j] == own ? row_get(p->dy, from + j, half) : 0.f;
    }
    for (int64_t j = 0; j < n; j++)
        row_put(p->out, place_x * s->c + first + j, sum[j], half);
}

CKPT_CLONES static void gather_gradient_leaf(const struct pool *p, int64_t place, int64_t first,
                                             int64_t n)
{
    WITH_FLAG(p->half, gather_gradient, p, place, first, n);
}

int cpu_max_pool(const struct ckpt_kernel_args *a)
{
    const struct pool p = {.s = pool_shape(&a->in[0].desc, a->attr),
                           .x = a->in[0].data,
                           .out = a->out[0].data,
                           .half = view_half(&a->in[0])};
    for_all(&p, p.s.n * pool_volume(p.s.size), largest_leaf);
    return CKPT_OK;
}

int cpu_max_pool_dx(const struct ckpt_kernel_args *a)
{
    const struct pool p = {.s = pool_shape(&a->in[1].desc, a->attr),
                           .x = a->in[1].data,
                           .dy = a->in[0].data,
                           .out = a->out[0].data,
                           .half = view_half(&a->in[1])};
    if (!pool_is_disjoint(&p.s)) {
        for_all(&p, p.s.n * pool_volume(p.s.from), gather_gradient_leaf);
        return CKPT_OK;
    }
    if (!pool_is_tiling(&p.s))
        memset(p.out, 0, (size_t)desc_bytes(&a->out[0].desc));
    for_all(&p, p.s.n * pool_volume(p.s.size), scatter_gradient_leaf);
    return CKPT_OK;
}

/* ---- average --------------------------------------------------------------------------------- */

ROWS_INLINE void mean(const struct pool *p, int64_t place_y, int64_t first, int64_t n, bool half)
{
    const int64_t c = p->s.c;
    float sum[LANES] = {0};
    struct pool_range r[3];
    int32_t o[3];
    const int64_t sample = split_place(p->s.size, place_y, o);
    window_of(&p->s, o, r);
    const float count = pool_count(&p->s, r);
    for (struct box at = box_begin(r); at.more; box_next(&at, r)) {
        const int64_t from = place_of(p->s.from, sample, at.at) * c + first;
        for (int64_t j = 0; j < n; j++)
            sum[j] += row_get(p->x, from + j, half);
    }
    for (int64_t j = 0; j < n; j++)
        row_put(p->out, place_y * c + first + j, sum[j] / count, half);
}

CKPT_CLONES static void mean_leaf(const struct pool *p, int64_t place, int64_t first, int64_t n)
{
    WITH_FLAG(p->half, mean, p, place, first, n);
}

int cpu_avg_pool(const struct ckpt_kernel_args *a)
{
    const struct pool p = {.s = pool_shape(&a->in[0].desc, a->attr),
                           .x = a->in[0].data,
                           .out = a->out[0].data,
                           .half = view_half(&a->in[0])};
    for_all(&p, p.s.n * pool_volume(p.s.size), mean_leaf);
    return CKPT_OK;
}

int cpu_avg_pool_dx(const struct ckpt_kernel_args *a)
{
    const struct pool p = {.s = pool_shape(&a->out[0].desc, a->attr),
                           .dy = a->in[0].data,
                           .out = a->out[0].data,
                           .half = view_half(&a->in[0]),
                           .average = true};
    for_all(&p, p.s.n * pool_volume(p.s.from), gather_gradient_leaf);
    return CKPT_OK;
}
