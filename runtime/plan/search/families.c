/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Families of schedules: nestings of recompute segments, each with several shares of storages that
 * are kept inside the segments.  Every family is sampled coarsely first, then more finely while the
 * work lasts.
 *
 * Nested segments serve small budgets: without them the smallest budget is up to 27 % larger (skips
 * of any length, 2,132 ops), and 5 to 10 % larger for XL/2 with host memory.
 */
#include <string.h>
#include "plan/search/search.h"

/* A way to cut the forward pass. */
struct shape {
    enum { SHAPE_NEST, SHAPE_REVOLVE, SHAPE_NEVER } kind;
    int32_t a, b; /* segments and segments inside; or slots and leaf */
};

#define MAX_SHAPES 192
#define SMALL      512 /* ops; in larger programs a schedule that retains nothing is too long */

struct family {
    struct frontier *frontier;
    struct cuts cuts;
    struct order order;
    struct shape shapes[MAX_SHAPES];
    int32_t n_shapes;
    int32_t *base, *retention; /* of the current shape; the same with some storages kept */
    int64_t work;              /* simulator_work at which to stop */
};

static void add_shape(struct family *f, struct shape s)
{
    if (f->n_shapes < MAX_SHAPES)
        f->shapes[f->n_shapes++] = s;
}

static const int32_t counts[] = {2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64, 96, 128};
static const int32_t slots[] = {2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32};
static const int32_t leaves[] = {0, 1, 2, 3, 5, 8};
static const int32_t outer[] = {2, 3, 4, 6, 8, 12, 16};
static const int32_t inner[] = {2, 3, 4, 6};

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

/* Lists the shapes with two parameters for a program with at most this many segments. */
static void list_nested(struct family *f, int32_t most)
{
    for (size_t i = 0; i < COUNT(slots); i++)
        for (size_t j = 0; j < COUNT(leaves); j++)
            if (slots[i] * (leaves[j] + 1) < most)
                add_shape(f, (struct shape){SHAPE_REVOLVE, slots[i], leaves[j]});
    for (size_t i = 0; i < COUNT(outer); i++)
        for (size_t j = 0; j < COUNT(inner); j++)
            if (outer[i] * inner[j] < 2 * most)
                add_shape(f, (struct shape){SHAPE_NEST, outer[i], inner[j]});
}

static void list_shapes(struct family *f)
{
    int32_t most = f->cuts.n_narrow + 1;
    add_shape(f, (struct shape){SHAPE_NEST, most, 1});
    for (size_t i = 0; i < COUNT(counts); i++)
        if (counts[i] < most)
            add_shape(f, (struct shape){SHAPE_NEST, counts[i], 1});
    if (f->frontier->p->g->n_ops <= SMALL)
        add_shape(f, (struct shape){SHAPE_NEVER, 0, 0});
    list_nested(f, most);
}

static void apply_shape(struct family *f, const struct shape *s)
{
    const struct program *p = f->frontier->p;
    if (s->kind == SHAPE_NEVER) {
        for (int32_t i = 0; i < p->g->n_storages; i++)
            f->base[i] = p->droppable[i] ? RETAIN_NEVER : RETAIN_ALWAYS;
        return;
    }
    if (s->kind == SHAPE_NEST)
        cuts_nest(&f->cuts, s->a, s->b);
    else
        cuts_revolve(&f->cuts, s->a, s->b);
    cuts_retention(&f->cuts, f->base);
}

/* Drops the storages that are cheapest to recompute, up to a share of all bytes; keeps the others.
 */
static int try_share(struct family *f, double share)
{
    const struct order *o = &f->order;
    const struct graph *g = f->frontier->p->g;
    int64_t dropped = 0;
    memcpy(f->retention, f->base, (size_t)g->n_storages * sizeof(*f->retention));
    for (int32_t i = 0; i < o->n; i++) {
        if ((double)dropped >= share * (double)o->bytes)
            f->retention[o->storages[i]] = RETAIN_ALWAYS;
        dropped += g->storages[o->storages[i]].bytes;
    }
    int rc = frontier_try(f->frontier, f->retention, NULL);
    return rc < 0 ? rc : 0;
}

static bool work_done(const struct family *f)
{
    return simulator_work(f->frontier->sim) >= f->work;
}

/* Tries every shape with 1 of the bytes dropped in round 0, 1/2 in round 1, 1/4 and 3/4 in round 2,
 * ... */
static int try_round(struct family *f, int32_t shapes, int32_t round)
{
    int32_t parts = 1 << round;
    int rc = 0;
    for (int32_t i = 0; i < shapes && !rc && !work_done(f); i++) {
        apply_shape(f, &f->shapes[i]);
        for (int32_t k = 1; k <= parts && !rc && !work_done(f); k += 2)
            rc = try_share(f, (double)k / parts);
    }
    return rc;
}

static int try_all(struct family *f)
{
    int rc = 0;
    list_shapes(f);
    for (int32_t round = 0; round < 8 && !rc; round++) {
        int32_t shapes = round < 3 ? f->n_shapes : f->n_shapes / (round < 5 ? 2 : 4) + 1;
        rc = try_round(f, (int32_t)min_i64(shapes, f->n_shapes), round);
    }
    return rc;
}

int frontier_families(struct frontier *frontier, int64_t work)
{
    struct family f = {.frontier = frontier, .work = simulator_work(frontier->sim) + work};
    struct pool m = {NULL, false};
    POOL_ARRAY(&m, f.base, frontier->p->g->n_storages);
    POOL_ARRAY(&m, f.retention, frontier->p->g->n_storages);
    int rc = cuts_build(frontier->p, &m, &f.cuts);
    if (!rc)
        rc = order_build(frontier->p, &m, &f.order);
    if (!rc)
        rc = try_all(&f);
    pool_free(&m);
    return rc;
}
