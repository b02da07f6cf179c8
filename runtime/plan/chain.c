/*
 * The chain: which choice each block takes.  What the blocks before one keep is alive while it runs
 * back, and what the blocks behind it kept is not; so the least seconds of all blocks from one on,
 * given the bytes that the blocks before it leave, follow from those of the next.  One table
 * answers every budget.  What it says goes through the full simulation like any other schedule.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/chain.h"

#define CELLS      (1 << 19) /* of the table, about */
#define BUDGETS    48
#define MOST_EVERY 3 /* narrow cuts a block may have */

struct table {
    struct portfolio *pf;
    struct chain *chain;
    struct levels levels;
    struct front *fronts; /* per class */
    int64_t unit;         /* bytes of a slot */
    int32_t slots;
    double *least;   /* [2][slots + 1]: of the blocks from the next on */
    uint8_t *chosen; /* [blocks][slots + 1] */
    int32_t *hold;
};

/* Bytes alive in the backward ops of every block that are neither its own nor kept by others. */
static int find_bases(struct table *t)
{
    const struct program *p = t->pf->p;
    const struct schedule *s;
    int32_t *first_step = calloc((size_t)p->g->n_ops + 1, sizeof(*first_step));
    int32_t *owner = calloc((size_t)p->g->n_storages + 1, sizeof(*owner));
    for (int32_t i = 0; i < p->g->n_storages; i++)
        t->hold[i] = HOLD_ALWAYS;
    int rc = first_step && owner ? simulate(t->pf->sim, t->hold, &s) : CKPT_ENOMEM;
    for (int32_t k = 0; !rc && k < s->n_steps; k++)
        first_step[s->steps.data[k].op] = k;
    for (int32_t n = 0; n < t->chain->n && !rc; n++) {
        struct block *b = &t->chain->blocks[n];
        for (int32_t i = b->backward; i < b->backward_end; i++) {
            const struct graph_op *o = &p->g->ops[i];
            for (int32_t j = 0; j < o->n_reads; j++)
                owner[p->g->refs[o->reads + j]] = n + 1;
            for (int32_t j = 0; j < o->n_writes; j++)
                owner[p->g->refs[o->writes + j]] = n + 1;
        }
        int32_t at = b->backward < b->backward_end ? first_step[b->backward] : 0;
        for (int32_t i = 0; i < s->n_instances; i++) {
            const struct plan_instance *x = &s->instances.data[i];
            if (x->first <= at && x->last >= at && !p->droppable[x->storage] &&
                owner[x->storage] != n + 1)
                b->base += p->g->storages[x->storage].bytes;
        }
    }
    free(first_step);
    free(owner);
    return rc;
}

static int build_fronts(struct table *t, int64_t work)
{
    bool *done = calloc((size_t)t->chain->n_classes + 1, sizeof(*done));
    int rc = done ? 0 : CKPT_ENOMEM;
    for (int32_t i = 0; i < t->chain->n && !rc; i++) {
        const struct block *b = &t->chain->blocks[i];
        if (done[b->class])
            continue;
        done[b->class] = true;
        rc = front_build(t->chain, b, &t->levels, t->pf->sim, work / t->chain->n_classes,
                         &t->fronts[b->class]);
    }
    free(done);
    return rc;
}

static int64_t slots_of(const struct table *t, int64_t bytes)
{
    return (max_i64(bytes, 0) + t->unit - 1) / t->unit;
}

static uint8_t *chosen_by(const struct table *t, int32_t n)
{
    return t->chosen + (size_t)n * ((size_t)t->slots + 1);
}

/* One row of the table: block n, from the row of the block behind it. */
static void fill_row(struct table *t, int32_t n, const double *behind, double *row)
{
    const struct block *b = &t->chain->blocks[n];
    const struct front *f = &t->fronts[b->class];
    uint8_t *chosen = chosen_by(t, n);
    for (int32_t m = 0; m <= t->slots; m++)
        row[m] = INFINITY;
    for (int32_t i = 0; i < f->n; i++) {
        const struct block_cost *c = &f->choices[i].cost;
        int64_t kept = slots_of(t, c->kept);
        int64_t from = max_i64(slots_of(t, c->forward), slots_of(t, c->backward + b->base));
        for (int64_t m = max_i64(from, kept); m <= t->slots; m++) {
            double seconds = c->seconds + behind[m - kept];
            if (seconds < row[m]) {
                row[m] = seconds;
                chosen[m] = (uint8_t)i;
            }
        }
    }
}

static void fill_table(struct table *t)
{
    double *behind = t->least, *row = t->least + t->slots + 1;
    for (int32_t m = 0; m <= t->slots; m++)
        behind[m] = 0;
    for (int32_t n = t->chain->n - 1; n >= 0; n--) {
        fill_row(t, n, behind, row);
        double *swap = behind;
        behind = row;
        row = swap;
    }
    if (behind != t->least)
        memcpy(t->least, behind, ((size_t)t->slots + 1) * sizeof(*behind));
}

/* The holds that the table says for a budget. */
static void backtrack(struct table *t, int64_t m)
{
    for (int32_t n = 0; n < t->chain->n; n++) {
        const struct block *b = &t->chain->blocks[n];
        const struct front *f = &t->fronts[b->class];
        const struct choice *o = &f->choices[chosen_by(t, n)[m]];
        for (int32_t i = 0; i < b->n_storage; i++) {
            int32_t s = t->chain->storages[b->storage + i];
            int32_t last = t->levels.start[s + 1] - t->levels.start[s] - 1;
            t->hold[s] = t->levels.holds[t->levels.start[s] + min_i64(o->level[i], last)];
        }
        m -= slots_of(t, o->cost.kept);
    }
}

/* Whether the portfolio has something as fast for less than the table asks, all rounding off. */
static bool is_known(const struct table *t, int64_t m)
{
    const struct portfolio *pf = t->pf;
    double seconds = pf->p->seconds + t->least[m];
    for (int32_t i = 0;
         i < pf->n && (double)pf->options.data[i].load < 0.97 * (double)(m * t->unit); i++)
        if (pf->options.data[i].seconds <= seconds)
            return true;
    return false;
}

static int try_budgets(struct table *t)
{
    int64_t least = 0;
    int rc = 0;
    while (least <= t->slots && isinf(t->least[least]))
        least++;
    for (int32_t i = 0; i < BUDGETS && least <= t->slots && rc >= 0; i++) {
        int64_t m = least + (t->slots - least) * i / (BUDGETS - 1);
        if (is_known(t, m))
            continue;
        backtrack(t, m);
        rc = portfolio_try(t->pf, t->hold, NULL);
    }
    return rc < 0 ? rc : 0;
}

static int run(struct table *t, int64_t work)
{
    struct portfolio *pf = t->pf;
    size_t n = (size_t)t->chain->n;
    int64_t most = pf->options.data[pf->n - 1].load;
    t->slots = (int32_t)max_i64(CELLS / t->chain->n, 2048) + t->chain->n;
    size_t columns = (size_t)t->slots + 1;
    t->fronts = calloc((size_t)t->chain->n_classes + 1, sizeof(*t->fronts));
    t->least = calloc(2 * columns, sizeof(*t->least));
    t->chosen = calloc(n * columns + 1, 1);
    t->hold = calloc((size_t)pf->p->g->n_storages + 1, sizeof(*t->hold));
    int rc = t->fronts && t->least && t->chosen && t->hold ? 0 : CKPT_ENOMEM;
    if (!rc)
        rc = levels_build(pf->p, &t->levels);
    if (!rc)
        rc = find_bases(t);
    if (!rc)
        rc = build_fronts(t, work - simulator_work(pf->sim));
    /* Finer slots for the small budgets first: there rounding up in every block counts. */
    for (int32_t part = 4; part >= 1 && !rc; part -= 3) {
        t->unit = most / part / (t->slots - t->chain->n - 2) + 1;
        fill_table(t);
        rc = try_budgets(t);
    }
    return rc;
}

/* A chain of which a third or more is new: playing one of them takes all the time there is. */
static bool is_varied(const struct chain *c)
{
    return 3 * c->n_classes > c->n;
}

/* Plays one of the chains that are left to play. */
static int try_chain(struct portfolio *pf, int32_t every, int32_t first, int32_t left, int64_t work)
{
    struct table t = {.pf = pf};
    int64_t now = simulator_work(pf->sim);
    int rc = chain_build(pf->p, every, first, &t.chain);
    if (!rc && t.chain->n >= 3 && (every == 1 || !is_varied(t.chain)))
        rc = run(&t, now + (work - now) / left);
    for (int32_t i = 0; t.fronts && i < t.chain->n_classes; i++)
        front_free(&t.fronts[i]);
    free(t.fronts);
    free(t.least);
    free(t.chosen);
    free(t.hold);
    levels_free(&t.levels);
    chain_free(t.chain);
    return rc;
}

int portfolio_chain(struct portfolio *pf, int64_t work)
{
    int rc = 0;
    for (int32_t every = MOST_EVERY, left = MOST_EVERY * (MOST_EVERY + 1) / 2; every > 0; every--)
        for (int32_t first = 0; first < every && !rc; first++, left--)
            rc = try_chain(pf, every, first, left, work);
    return rc;
}
