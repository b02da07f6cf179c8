/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chain DP: assigns a choice of its Pareto set to each block.  In the backward ops of a block
 * the tensors kept by earlier blocks are alive, and those of later blocks are already freed.  So
 * the fewest ticks of the blocks from n on, as a function of the bytes that earlier blocks leave,
 * follow from the same function of block n + 1.
 *
 * The function is a staircase in bytes.  A table row stores its steps with exact bytes; of the
 * steps within one unit of bytes only the lowest is kept.  The error of that grows with the number
 * of rows, so neighbouring blocks are merged in pairs, and pairs of pairs, until MOST_ROWS are left
 * (struct group).  One table answers all budgets.  Its answers are simulated like other schedules.
 *
 * Each way to cut the forward pass has its own table.  A lookup is cheap, but a simulation costs
 * more the larger the program is.  So the fastest answer for each budget is simulated first, and
 * the next ones while the work lasts.
 */
#include "plan/search/chain.h"

#define UNITS      2048 /* of bytes in a table; at least half of them are used */
#define MOST_ROWS  192
#define PARTS      32  /* ranges of kept bytes; a pair of groups has up to two picks in each */
#define BUDGETS    960 /* the most budgets that are looked up */
#define PART       256 /* each budget is smaller by this part than the one before */
#define COARSE     8   /* every COARSE-th budget is tried whatever the work */
#define MOST_EVERY 3   /* the most narrow cuts per block */
#define CLOSE      64  /* a table predicts a peak if it is above its bytes by this part at most */
#define MISSES     8   /* tables are right if they predict all peaks but this part */
#define CHAINS     (MOST_EVERY * (MOST_EVERY + 1) / 2)

/* A choice for all blocks of a group: its peak (need), and the bytes kept while later groups run.
 */
struct pick {
    int64_t ticks, kept, need;
    uint8_t left, right; /* picks of the two merged groups; of a single block, left is the choice */
};

/* A block, or two neighbouring groups: group i of a level merges groups 2i and 2i + 1 of the level
 * below. */
struct group {
    struct pick picks[MOST_CHOICES];
    int32_t n;
};

/* A step of the staircase: with these bytes the groups from n on take these ticks.  Group n uses
 * pick; the groups after it use step next of their row. */
struct step {
    int64_t bytes, ticks;
    int32_t next;
    uint8_t pick;
};

/* The part of a step that is stored once the row is done. */
struct link {
    uint16_t next;
    uint8_t pick;
};

#define MOST_LEVELS_OF_GROUPS 16

struct level {
    struct group *groups;
    int32_t n;
};

/* One way to cut the forward pass. */
struct cutting {
    struct chain chain;
    struct pareto_set *pareto_sets;             /* per class */
    struct level levels[MOST_LEVELS_OF_GROUPS]; /* level 0 has one group per block */
    int top;                                    /* the level of the table's groups */
    int shift;                                  /* a unit has 1 << shift bytes */
    LIST(struct link) links;
    int64_t n_links;
    int64_t *row; /* per group of the top level: its first link */
    struct step *steps;
    int32_t n_steps; /* of the first group */
};

struct cuttings {
    struct frontier *frontier;
    struct cutting list[CHAINS];
    int32_t n;
    int32_t *retention;
    const struct choice **chosen; /* per block */
    int32_t tried, missed;        /* answers simulated; those with a higher peak than predicted */
    struct step *units;           /* of the current row */
    struct pool memory;
};

/* The answer of a table to a budget. */
struct proposal {
    const struct cutting *from;
    const struct step *step;
};

/* Bytes of the storages of block n that no choice changes and that are alive at an op.  owner: per
 * storage, 1 + the last block that counted it. */
static int64_t own_bytes(const struct chain *c, int32_t *owner, int32_t n, int32_t at)
{
    const struct graph *g = c->p->g;
    int64_t bytes = 0;
    int32_t first, last;
    for (int32_t i = c->blocks[n].backward; i < c->blocks[n].backward_end; i++) {
        const struct graph_op *o = &g->ops[i];
        for (int32_t j = 0; j < o->n_reads + o->n_writes; j++) {
            int32_t s = graph_ref(g, o, j);
            if (owner[s] != n + 1 && storage_stays(c->p, s, &first, &last) && first <= at &&
                at <= last)
                bytes += g->storages[s].bytes;
            owner[s] = n + 1;
        }
    }
    return bytes;
}

/* Sets the base of every block. */
static int find_bases(struct chain *c)
{
    const struct graph *g = c->p->g;
    struct pool m = {NULL, false};
    int32_t *owner = pool_filled(&m, g->n_storages, 0), first, last;
    int64_t *alive = pool_array(&m, g->n_ops + 1, sizeof(*alive));
    int rc = pool_status(&m);
    for (int32_t s = 0; s < g->n_storages && !rc; s++)
        if (storage_stays(c->p, s, &first, &last)) {
            alive[first] += g->storages[s].bytes;
            alive[last + 1] -= g->storages[s].bytes;
        }
    for (int32_t i = 0; i < g->n_ops && !rc; i++)
        alive[i + 1] += alive[i];
    for (int32_t n = 0; n < c->n && !rc; n++) {
        struct block *b = &c->blocks[n];
        int32_t at = b->backward < b->backward_end ? b->backward : 0;
        b->base = alive[at] - own_bytes(c, owner, n, at);
    }
    pool_free(&m);
    return rc;
}

/* A measure of the work that the Pareto set of a block takes. */
static int64_t block_work(const struct block *b)
{
    int64_t ops = b->forward_end - b->forward + b->backward_end - b->backward;
    return 1 + ops * b->n_storage;
}

/* Builds the Pareto set of each class from its first block.  Large blocks get most of the work,
 * later ones also what earlier ones leave. */
static int build_pareto_sets(struct cuttings *t, struct cutting *c, int64_t work)
{
    const struct chain *chain = &c->chain;
    struct simulator *sim = t->frontier->sim;
    const int64_t end = simulator_work(sim) + work;
    int64_t left = 0;
    int rc = 0;
    for (int32_t i = 0, n = 0; i < chain->n; i++)
        if (chain->blocks[i].class == n) {
            left += block_work(&chain->blocks[i]);
            n++;
        }
    for (int32_t i = 0, n = 0; i < chain->n && !rc; i++) {
        const struct block *b = &chain->blocks[i];
        if (b->class != n)
            continue;
        double part = (double)block_work(b) / (double)left;
        rc = pareto_build(chain, b, sim, (int64_t)(part * (double)(end - simulator_work(sim))),
                          &t->memory, &c->pareto_sets[n++]);
        left -= block_work(b);
    }
    return rc;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static struct level *new_level(struct cuttings *t, struct cutting *c, int32_t n)
{
    struct level *l = &c->levels[c->top];
    *l = (struct level){pool_array(&t->memory, n, sizeof(*l->groups)), n};
    return l->groups ? l : NULL;
}

static int list_blocks(struct cuttings *t, struct cutting *c)
{
    struct level *l = new_level(t, c, c->chain.n);
    for (int32_t n = 0; l && n < c->chain.n; n++) {
        const struct block *b = &c->chain.blocks[n];
        const struct pareto_set *f = &c->pareto_sets[b->class];
        l->groups[n].n = f->n;
        for (int32_t i = 0; i < f->n; i++) {
            const struct block_cost *o = &f->choices[i].cost;
            int64_t need = max_i64(max_i64(o->forward, o->backward + b->base), o->kept);
            l->groups[n].picks[i] = (struct pick){o->ticks, o->kept, need, (uint8_t)i, 0};
        }
    }
    return l ? 0 : CKPT_ENOMEM;
}

/* The second group runs while the bytes kept by the first are alive. */
static struct pick merge(const struct group *a, int32_t i, const struct group *b, int32_t j)
{
    const struct pick *x = &a->picks[i], *y = &b->picks[j];
    return (struct pick){x->ticks + y->ticks, x->kept + y->kept,
                         max_i64(x->need, x->kept + y->need), (uint8_t)i, (uint8_t)j};
}

static bool is_faster(const struct pick *a, const struct pick *b)
{
    return a->ticks != b->ticks ? a->ticks < b->ticks : a->need < b->need;
}

static bool is_smaller(const struct pick *a, const struct pick *b)
{
    return a->need != b->need ? a->need < b->need : a->ticks < b->ticks;
}

/* Merges two groups: in each of PARTS ranges of kept bytes, the fastest pick and the smallest one.
 */
static void merge_groups(const struct group *a, const struct group *b, struct group *to)
{
    struct pick fast[PARTS] = {0}, small[PARTS];
    bool there[PARTS] = {0};
    int64_t low = INT64_MAX, high = 0;
    for (int32_t i = 0; i < a->n * b->n; i++) {
        int64_t kept = a->picks[i / b->n].kept + b->picks[i % b->n].kept;
        low = min_i64(low, kept);
        high = max_i64(high, kept);
    }
    for (int32_t i = 0; i < a->n * b->n; i++) {
        struct pick p = merge(a, i / b->n, b, i % b->n);
        int64_t k = (p.kept - low) * PARTS / (high - low + 1);
        if (!there[k] || is_faster(&p, &fast[k]))
            fast[k] = p;
        if (!there[k] || is_smaller(&p, &small[k]))
            small[k] = p;
        there[k] = true;
    }
    to->n = 0;
    for (int k = 0; k < PARTS; k++) {
        if (!there[k])
            continue;
        to->picks[to->n++] = fast[k];
        if (small[k].need < fast[k].need)
            to->picks[to->n++] = small[k];
    }
}

static int build_groups(struct cuttings *t, struct cutting *c)
{
    int rc = list_blocks(t, c);
    while (!rc && c->levels[c->top].n > MOST_ROWS && c->top + 1 < MOST_LEVELS_OF_GROUPS) {
        const struct level *from = &c->levels[c->top++];
        struct level *to = new_level(t, c, (from->n + 1) / 2);
        for (int32_t i = 0; to && i < to->n; i++) {
            if (2 * i + 1 < from->n)
                merge_groups(&from->groups[2 * i], &from->groups[2 * i + 1], &to->groups[i]);
            else
                to->groups[i] = from->groups[2 * i];
        }
        rc = to ? 0 : CKPT_ENOMEM;
    }
    return rc;
}

/* Expands a pick of a group into the choices of its blocks. */
static void choose_blocks(const struct cutting *c, int level, int32_t i, int32_t pick,
                          const struct choice **chosen)
{
    const struct pick *p = &c->levels[level].groups[i].picks[pick];
    if (level == 0) {
        chosen[i] = &c->pareto_sets[c->chain.blocks[i].class].choices[p->left];
    } else if (2 * i + 1 < c->levels[level - 1].n) {
        choose_blocks(c, level - 1, 2 * i, p->left, chosen);
        choose_blocks(c, level - 1, 2 * i + 1, p->right, chosen);
    } else {
        choose_blocks(c, level - 1, 2 * i, pick, chosen);
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Stores a step if it is the lowest of its unit. */
static void offer(struct step *units, int shift, struct step s)
{
    struct step *u = &units[s.bytes >> shift];
    if (s.ticks < u->ticks || (s.ticks == u->ticks && s.bytes < u->bytes))
        *u = s;
}

/* Offers the steps of a group with one pick: the steps of the next group, plus the kept bytes and
 * ticks of the pick, with at least the bytes that the pick needs. */
static void offer_pick(struct step *units, const struct cutting *c, const struct group *g,
                       uint8_t pick)
{
    const struct pick *p = &g->picks[pick];
    int64_t end = (int64_t)UNITS << c->shift;
    int32_t j = 0;
    while (j + 1 < c->n_steps && c->steps[j + 1].bytes + p->kept <= p->need)
        j++;
    for (; j < c->n_steps; j++) {
        const struct step *behind = &c->steps[j];
        int64_t bytes = max_i64(behind->bytes + p->kept, p->need);
        if (bytes >= end)
            return;
        offer(units, c->shift, (struct step){bytes, behind->ticks + p->ticks, j, pick});
    }
}

/* Computes the steps of group n from those of group n + 1. */
static int fill_row(struct cuttings *t, struct cutting *c, int32_t n)
{
    struct step *units = t->units;
    const struct group *g = &c->levels[c->top].groups[n];
    int64_t fewest = INT64_MAX;
    for (int32_t i = 0; i < UNITS; i++)
        units[i].ticks = INT64_MAX;
    for (int32_t i = 0; i < g->n; i++)
        offer_pick(units, c, g, (uint8_t)i);
    c->row[n] = c->n_links;
    c->n_steps = 0;
    for (int32_t i = 0; i < UNITS; i++) {
        if (units[i].ticks >= fewest)
            continue;
        if (POOL_RESERVE(&t->memory, &c->links, c->n_links))
            return CKPT_ENOMEM;
        fewest = units[i].ticks;
        c->links.data[c->n_links++] = (struct link){(uint16_t)units[i].next, units[i].pick};
        c->steps[c->n_steps++] = units[i];
    }
    return 0;
}

static int fill_table(struct cuttings *t, struct cutting *c)
{
    int32_t n = c->levels[c->top].n;
    int rc = 0;
    POOL_ARRAY(&t->memory, c->row, n);
    POOL_ARRAY(&t->memory, c->steps, UNITS);
    if (t->memory.failed)
        return CKPT_ENOMEM;
    c->n_steps = 1;
    while (--n >= 0 && !rc)
        rc = fill_row(t, c, n);
    return rc;
}

/* Expands a proposal into one choice per block. */
static void choose(const struct proposal *p, const struct choice **chosen)
{
    const struct cutting *c = p->from;
    int64_t step = p->step - c->steps;
    for (int32_t n = 0; n < c->levels[c->top].n; n++) {
        const struct link *l = &c->links.data[c->row[n] + step];
        choose_blocks(c, c->top, n, l->pick, chosen);
        step = l->next;
    }
}

static void set_retention(struct cuttings *t, const struct chain *c)
{
    for (int32_t n = 0; n < c->n; n++) {
        const struct block *b = &c->blocks[n];
        for (int32_t i = 0; i < b->n_storage; i++) {
            int32_t s = c->storages[b->storage + i];
            t->retention[s] = level_retention(c->p, s, t->chosen[n]->level[i]);
        }
    }
}

/* Whether the frontier has an option that is as fast with clearly fewer bytes, or one with the same
 * ticks, which is likely the same schedule from another table or budget. */
static bool is_known(const struct frontier *f, const struct step *p)
{
    double seconds = schedule_seconds(f->p, p->ticks);
    for (int32_t i = 0; i < f->n && f->options.data[i].load <= p->bytes; i++) {
        const struct option *o = &f->options.data[i];
        if (o->seconds <= seconds && (o->load < p->bytes - p->bytes / 32 || o->seconds == seconds))
            return true;
    }
    return false;
}

/* The last step of a table within these bytes; step is NULL if there is none. */
static struct proposal look_up(const struct cutting *c, int64_t bytes)
{
    int32_t lo = 0, hi = c->n_steps;
    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;
        if (c->steps[mid].bytes <= bytes)
            lo = mid + 1;
        else
            hi = mid;
    }
    return (struct proposal){c, lo > 0 ? &c->steps[lo - 1] : NULL};
}

/* Tries the answer for a budget that is rank places behind the fastest. */
static int try_budget(struct cuttings *t, int64_t bytes, int32_t rank)
{
    struct proposal all[CHAINS];
    int32_t n = 0;
    for (int32_t i = 0; i < t->n; i++) {
        struct proposal p = look_up(&t->list[i], bytes);
        int32_t k = n;
        if (!p.step)
            continue;
        for (n++; k > 0 && all[k - 1].step->ticks > p.step->ticks; k--)
            all[k] = all[k - 1];
        all[k] = p;
    }
    if (rank >= n || is_known(t->frontier, all[rank].step))
        return 0;
    choose(&all[rank], t->chosen);
    set_retention(t, &all[rank].from->chain);
    const struct step *s = all[rank].step;
    const struct schedule *simulated = NULL;
    int rc = frontier_try(t->frontier, t->retention, &simulated);
    t->tried += !rc;
    t->missed += !rc && simulated->load > s->bytes + s->bytes / CLOSE;
    return rc < 0 ? rc : 0;
}

/* Tries every step-th budget except those of a coarser step that were tried before. */
static int try_budgets(struct cuttings *t, int64_t most, int32_t rank, int32_t step, int64_t work)
{
    int32_t first = step < COARSE ? step : 0, stride = step < COARSE ? 2 * step : step;
    int rc = 0;
    for (int32_t i = 0; i < BUDGETS && !rc; i++, most -= most / PART) {
        if (i % stride != first)
            continue;
        if ((rank > 0 || step < COARSE) && simulator_work(t->frontier->sim) >= work)
            return 0;
        rc = try_budget(t, most, rank);
    }
    return rc;
}

/* Whether more than a third of the blocks are classes of their own: there is no time for several.
 */
static bool is_varied(const struct chain *c)
{
    return 3 * c->n_classes > c->n;
}

static int add_cutting(struct cuttings *t, int32_t every, int32_t first)
{
    struct cutting *c = &t->list[t->n];
    int rc = chain_build(t->frontier->p, every, first, &t->memory, &c->chain);
    if (rc || c->chain.n < 3 || (every > 1 && is_varied(&c->chain)))
        return rc;
    t->n++;
    POOL_ARRAY(&t->memory, c->pareto_sets, c->chain.n_classes);
    return c->pareto_sets ? find_bases(&c->chain) : CKPT_ENOMEM;
}

static int fill_cutting(struct cuttings *t, struct cutting *c, int64_t work)
{
    const struct frontier *f = t->frontier;
    int rc = build_pareto_sets(t, c, work);
    while (f->options.data[f->n - 1].load >> c->shift >= UNITS)
        c->shift++;
    if (!rc)
        rc = build_groups(t, c);
    return rc ? rc : fill_table(t, c);
}

static int search_cuttings(struct cuttings *t, int64_t work)
{
    struct frontier *f = t->frontier;
    int64_t most = f->options.data[f->n - 1].load, now = simulator_work(f->sim);
    int rc = 0;
    for (int32_t every = MOST_EVERY; every > 0; every--)
        for (int32_t first = 0; first < every && !rc; first++)
            rc = add_cutting(t, every, first);
    now -= (int64_t)t->n * f->p->g->n_ops; /* a cutting visits all ops */
    int64_t end = now + work / 4 * 3;
    for (int32_t i = t->n - 1; i >= 0 && !rc; i--) /* the smallest blocks first */
        rc = fill_cutting(t, &t->list[i], (end - simulator_work(f->sim)) / (i + 1));
    for (int32_t rank = 0; rank < t->n && !rc; rank++)
        for (int32_t step = COARSE; step > 0 && !rc; step /= 2)
            rc = try_budgets(t, most, rank, step, now + work);
    f->chained = t->n > 0 && !is_varied(&t->list[t->n - 1].chain) && t->missed <= t->tried / MISSES;
    return rc;
}

int frontier_chain(struct frontier *f, int64_t work)
{
    struct cuttings t = {.frontier = f};
    t.retention = retain_all(f->p, &t.memory);
    POOL_ARRAY(&t.memory, t.chosen, f->p->g->n_ops);
    POOL_ARRAY(&t.memory, t.units, UNITS);
    int rc = t.memory.failed ? CKPT_ENOMEM : search_cuttings(&t, work);
    pool_free(&t.memory);
    return rc;
}
