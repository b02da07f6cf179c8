/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structure: cuts the forward pass into a chain of blocks where the fewest bytes cross, and sorts
 * the blocks into classes by a hash of everything that the planner uses.
 */
#include "plan/search/chain.h"

/*
 * Storages below 1/TINY of the largest one are always kept.  The search changes one storage at a
 * time, so an op with a tensor and a scalar output would rerun for the scalar alone: modulated
 * norms before 8-bit layers did in 91 of 112 places of XL/2 under 28G.
 */
#define TINY 65536

/* The most bytes that may cross a cut: 1/64 more than the tenth percentile. */
static int64_t crossing_limit(const struct cuts *k, struct pool *m)
{
    struct place_key *sorted = pool_array(m, k->n_narrow, sizeof(*sorted));
    if (!sorted || !k->n_narrow)
        return 0;
    for (int32_t i = 0; i < k->n_narrow; i++)
        sorted[i] = (struct place_key){(double)k->crossing[k->narrow[i]], 0, k->narrow[i]};
    place_sort_keys(sorted, k->n_narrow);
    int64_t bytes = k->crossing[sorted[k->n_narrow / 10].item];
    return bytes + bytes / 64;
}

static int32_t forward_ops(const struct graph *g)
{
    int32_t n = 0;
    while (n < g->n_body && g->ops[n].phase == GRAPH_FORWARD)
        n++;
    return n;
}

/*
 * Cuts blocks of at least 4 ops at sufficiently narrow cuts.  If a layer has several such cuts, the
 * tensor kept at one may be worth more than that at another.  So only every every-th cut is used,
 * starting with number first.
 */
static void cut_blocks(struct chain *c, const struct cuts *k, int64_t limit, int32_t every,
                       int32_t first)
{
    int32_t end = forward_ops(c->p->g), from = 0, before = 0, n = 0;
    const int32_t least = 4;
    for (int32_t i = 0; i < k->n_narrow; i++) {
        int32_t at = k->narrow[i] + 1;
        if (at >= end || at - before < least || k->crossing[at - 1] > limit)
            continue;
        before = at;
        if (n++ % every != first)
            continue;
        c->blocks[c->n++] = (struct block){.forward = from, .forward_end = at};
        from = at;
    }
    c->blocks[c->n++] = (struct block){.forward = from, .forward_end = end};
}

/* Assigns each backward op to the block that contains its context. */
static void share_backward(struct chain *c)
{
    const struct program *p = c->p;
    int32_t i = forward_ops(p->g);
    for (int32_t n = c->n - 1; n >= 0; n--) {
        struct block *b = &c->blocks[n];
        b->backward = i;
        while (i < p->g->n_body && (n == 0 || p->context[i] >= b->forward))
            i++;
        b->backward_end = i;
    }
}

static int64_t largest_storage(const struct graph *g)
{
    int64_t most = 0;
    for (int32_t s = 0; s < g->n_storages; s++)
        most = max_i64(most, g->storages[s].bytes);
    return most;
}

/* Lists the storages that a block may drop: not tiny, or freed after forward anyway. */
static void list_storages(struct chain *c)
{
    const struct program *p = c->p;
    const struct graph *g = p->g;
    const int64_t tiny = largest_storage(g) / TINY;
    int32_t n = 0;
    for (int32_t k = 0; k < c->n; k++) {
        struct block *b = &c->blocks[k];
        b->storage = n;
        for (int32_t i = b->forward; i < b->forward_end; i++)
            for (int32_t j = 0; j < g->ops[i].n_writes; j++) {
                int32_t s = g->refs[g->ops[i].writes + j];
                bool may =
                    p->droppable[s] && (g->storages[s].bytes >= tiny || p->drop_after_forward[s]);
                if (may && p->position[s] == i)
                    c->storages[n++] = s;
            }
        b->n_storage = n - b->storage;
    }
}

/* Numbers storages in the order of their first use in the block. */
struct numbering {
    int32_t *number, *block, next;
};

static uint64_t mix_ref(uint64_t h, const struct program *p, struct numbering *k, int32_t b,
                        int32_t s)
{
    if (k->block[s] != b) {
        k->block[s] = b;
        k->number[s] = k->next++;
        h = hash_mix(h, p->g->storages[s].bytes);
        h = hash_mix(h, p->droppable[s] << 1 | p->g->storages[s].persistent);
    }
    return hash_mix(h, k->number[s]);
}

static uint64_t hash_ops(uint64_t h, const struct program *p, struct numbering *k, int32_t b,
                         int32_t from, int32_t to)
{
    for (int32_t i = from; i < to; i++) {
        const struct graph_op *o = &p->g->ops[i];
        h = hash_mix(hash_mix(hash_mix(h, o->n_reads), o->n_writes), p->rerun[i]);
        h = hash_seconds(hash_mix(h, o->workspace), o->seconds);
        for (int32_t j = 0; j < o->n_reads + o->n_writes; j++)
            h = mix_ref(h, p, k, b, graph_ref(p->g, o, j));
    }
    return h;
}

/* The index of a hash in the list; a new hash is appended. */
static int32_t index_of(uint64_t *hashes, int32_t *n, uint64_t h)
{
    int32_t same = 0;
    while (same < *n && hashes[same] != h)
        same++;
    hashes[same] = h;
    *n += same == *n;
    return same;
}

static int classify(struct chain *c, struct pool *m)
{
    int32_t n = c->p->g->n_storages;
    struct numbering k = {pool_filled(m, n, 0), pool_filled(m, n, -1), 0};
    uint64_t *hashes = pool_array(m, c->n, sizeof(*hashes));
    for (int32_t i = 0; i < c->n && !m->failed; i++) {
        struct block *b = &c->blocks[i];
        k.next = 0;
        uint64_t h = hash_ops(HASH_START, c->p, &k, i, b->forward, b->forward_end);
        h = hash_ops(h, c->p, &k, i, b->backward, b->backward_end);
        b->class = index_of(hashes, &c->n_classes, h);
    }
    return pool_status(m);
}

int chain_build(const struct program *p, int32_t every, int32_t first, struct pool *m,
                struct chain *c)
{
    struct pool own = {NULL, false};
    struct cuts k;
    int rc = cuts_build(p, &own, &k);
    int64_t limit = rc ? 0 : crossing_limit(&k, &own);
    *c = (struct chain){.p = p};
    POOL_ARRAY(m, c->blocks, k.n_narrow + 1);
    POOL_ARRAY(m, c->storages, p->g->n_storages);
    rc = m->failed || own.failed ? CKPT_ENOMEM : 0;
    if (!rc) {
        cut_blocks(c, &k, limit, every, first);
        share_backward(c);
        list_storages(c);
        rc = classify(c, &own);
    }
    pool_free(&own);
    return rc;
}
