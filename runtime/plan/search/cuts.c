/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts of the forward pass: after ops where few droppable bytes are alive.  A nesting of boundaries
 * gives the retention intervals: a storage that crosses a boundary of depth d is held through the
 * surrounding segment of depth d - 1; one that crosses none is held through its innermost segment.
 */
#include <string.h>
#include "plan/search/search.h"

#define DEEPEST INT16_MAX

static void sum_bytes(struct cuts *c)
{
    const struct program *p = c->p;
    for (int32_t s = 0; s < p->g->n_storages; s++) {
        if (!p->droppable[s])
            continue;
        c->crossing[p->position[s]] += p->g->storages[s].bytes;
        c->crossing[p->forward_last[s]] -= p->g->storages[s].bytes;
        if (p->needed[s])
            c->produced[p->position[s]] += p->g->storages[s].bytes;
    }
    for (int32_t i = 1; i < p->g->n_body; i++) {
        c->crossing[i] += c->crossing[i - 1];
        c->produced[i] += c->produced[i - 1];
    }
}

/* Whether crossing bytes have a local minimum after op i, between the first and the last output. */
static bool is_narrow(const struct cuts *c, int32_t i)
{
    int32_t last = c->p->g->n_body - 1;
    if (i <= 0 || i >= last || c->p->g->ops[i].phase != GRAPH_FORWARD)
        return false;
    if (c->produced[i] == 0 || c->produced[i] == c->produced[last])
        return false;
    return c->crossing[i] <= c->crossing[i - 1] && c->crossing[i] <= c->crossing[i + 1];
}

int cuts_build(const struct program *p, struct pool *m, struct cuts *c)
{
    int32_t n_ops = p->g->n_ops;
    *c = (struct cuts){.p = p};
    POOL_ARRAY(m, c->crossing, n_ops);
    POOL_ARRAY(m, c->produced, n_ops);
    POOL_ARRAY(m, c->narrow, n_ops);
    POOL_ARRAY(m, c->level, n_ops);
    POOL_ARRAY(m, c->bounds, n_ops);
    POOL_ARRAY(m, c->before, n_ops);
    if (m->failed)
        return CKPT_ENOMEM;
    sum_bytes(c);
    for (int32_t i = 0; i < p->g->n_body; i++)
        if (is_narrow(c, i))
            c->narrow[c->n_narrow++] = i;
    return 0;
}

/* Bytes computed before the n-th narrow cut; n may be -1 or n_narrow for the ends. */
static double made_before(const struct cuts *c, int32_t n)
{
    if (n < 0)
        return 0;
    if (n >= c->n_narrow)
        return (double)c->produced[c->p->g->n_body - 1];
    return (double)c->produced[c->narrow[n]];
}

/* The unused narrow cut in (lo, hi) nearest to target bytes; narrower cuts are preferred. */
static int32_t nearest(const struct cuts *c, int32_t lo, int32_t hi, double target, double part)
{
    int32_t best = -1;
    double best_score = 0;
    for (int32_t n = lo + 1; n < hi; n++) {
        double away = made_before(c, n) - target;
        double score =
            (double)c->crossing[c->narrow[n]] / part + 2 * (away < 0 ? -away : away) / part;
        if (c->level[c->narrow[n]] == 0 && (best < 0 || score < best_score)) {
            best = n;
            best_score = score;
        }
    }
    return best;
}

/* Cuts the range between the narrow cuts lo and hi into parts of equal bytes. */
static void split(struct cuts *c, int32_t lo, int32_t hi, int32_t parts, int16_t level)
{
    double from = made_before(c, lo), part = (made_before(c, hi) - from) / parts;
    if (part <= 0)
        return;
    int32_t after = lo;
    for (int32_t j = 1; j < parts && after + 1 < hi; j++) {
        int32_t n = nearest(c, after, hi, from + part * j, part);
        if (n < 0)
            return;
        c->level[c->narrow[n]] = level;
        after = n;
    }
}

/* The next boundary after narrow cut lo, or n_narrow. */
static int32_t next_boundary(const struct cuts *c, int32_t lo)
{
    int32_t n = lo + 1;
    while (n < c->n_narrow && c->level[c->narrow[n]] == 0)
        n++;
    return n;
}

void cuts_nest(struct cuts *c, int32_t outer, int32_t inner)
{
    const int32_t segments[] = {outer, inner};
    memset(c->level, 0, (size_t)c->p->g->n_ops * sizeof(*c->level));
    for (int d = 0; d < 2; d++)
        for (int32_t lo = -1, hi; lo < c->n_narrow; lo = hi) {
            hi = next_boundary(c, lo);
            split(c, lo, hi, segments[d], (int16_t)(d + 1));
        }
}

/* The number of reruns of a chain of length cells with slots checkpoints (Griewank 1992): the
 * smallest t with binomial(slots + t, slots) >= length. */
static int32_t repetitions(int32_t slots, int32_t length)
{
    double reach = 1;
    int32_t t = 0;
    while (reach < length) {
        t++;
        reach *= (double)(slots + t) / t;
    }
    return t;
}

/* Sets checkpoints between the narrow cuts lo and hi; the part after each has one fewer. */
static void revolve(struct cuts *c, int32_t lo, int32_t hi, int32_t slots, int32_t leaf,
                    int16_t level)
{
    while (slots > 0 && hi - lo - 1 > leaf && level < DEEPEST) {
        int32_t t = repetitions(slots, (hi - lo) / (leaf + 1) + 1);
        double from = made_before(c, lo), all = made_before(c, hi) - from;
        double share = (double)t / (slots + t);
        if (all <= 0 || t == 0)
            return;
        int32_t n = nearest(c, lo, hi, from + all * share, all / (slots + t));
        if (n < 0)
            return;
        c->level[c->narrow[n]] = level++;
        revolve(c, n, hi, slots - 1, leaf, level);
        hi = n;
    }
}

void cuts_revolve(struct cuts *c, int32_t slots, int32_t leaf)
{
    memset(c->level, 0, (size_t)c->p->g->n_ops * sizeof(*c->level));
    revolve(c, -1, c->n_narrow, slots, leaf, 1);
}

static void list_bounds(const struct cuts *c)
{
    int32_t n = 0, n_body = c->p->g->n_body;
    for (int32_t i = 0; i < n_body; i++) {
        c->before[i] = n;
        if (c->level[i] > 0)
            c->bounds[n++] = i;
    }
    c->before[n_body] = n;
}

/* The level of the coarsest boundary that s crosses, or DEEPEST. */
static int32_t coarsest_crossed(const struct cuts *c, int32_t s)
{
    int32_t level = DEEPEST, end = c->before[c->p->forward_last[s]];
    for (int32_t k = c->before[c->p->position[s]]; k < end; k++)
        level = (int32_t)min_i64(level, c->level[c->bounds[k]]);
    return level;
}

/* The end of the segment around op i whose boundaries are coarser than level. */
static int32_t segment_end(const struct cuts *c, int32_t i, int32_t level)
{
    for (int32_t k = c->before[i]; level > 1 && k < c->before[c->p->g->n_body]; k++)
        if (c->level[c->bounds[k]] < level)
            return c->bounds[k];
    return RETAIN_ALWAYS;
}

void cuts_retention(const struct cuts *c, int32_t *retention)
{
    const struct program *p = c->p;
    list_bounds(c);
    for (int32_t s = 0; s < p->g->n_storages; s++)
        retention[s] = p->droppable[s] ? segment_end(c, p->position[s], coarsest_crossed(c, s))
                                       : RETAIN_ALWAYS;
}
