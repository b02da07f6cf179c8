/*
 * The chain: which choice each block takes.  What the blocks before one keep is alive while it runs
 * back, and what the blocks behind it kept is not; so the least seconds of all blocks from one on,
 * given the bytes that the blocks before it leave, follow from those of the next.  One table
 * answers every budget.  What it says goes through the full simulation like any other schedule.
 *
 * Every way to cut the forward pass has tables of its own.  What they say costs nothing to ask, but
 * to play it costs more the larger the program is: so for each budget the fastest of them is
 * played, and the next ones while the work lasts.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/chain.h"

#define CELLS      (1 << 19) /* of a table, about */
#define BUDGETS    960       /* that tables are asked for, if there is time */
#define PART       256       /* each takes off that part of the one before */
#define COARSE     8         /* every so many of them in any case */
#define MOST_EVERY 3         /* narrow cuts a block may have */
#define CHAINS     (MOST_EVERY * (MOST_EVERY + 1) / 2)
/* Tables of a chain, each for half the bytes of the next: the fewer bytes, the more it counts that
 * every block is rounded up. */
#define SCALES 3
/* Slots that are looked at together. */
#define STRIDE 32

struct table {
    int64_t unit; /* bytes of a slot */
    float *least; /* [blocks + 1][slots]: seconds of the blocks from one on; those of none are 0 */
};

/* One way to cut the forward pass. */
struct cutting {
    struct chain *chain;
    struct front *fronts; /* per class */
    int32_t slots;        /* a multiple of STRIDE */
    struct table tables[SCALES];
};

struct cuttings {
    struct portfolio *pf;
    struct levels levels;
    struct cutting list[CHAINS];
    int32_t n;
    int32_t *hold;
    const struct choice **chosen; /* per block */
};

/* What a table says about a budget. */
struct proposal {
    const struct cutting *from;
    const struct table *table;
    int64_t slots;
    double seconds; /* of recompute */
};

/* Bytes alive in the backward ops of every block that are neither its own nor kept by others. */
static int find_bases(struct cuttings *t, struct chain *c)
{
    const struct program *p = t->pf->p;
    const struct schedule *s;
    int32_t *first_step = calloc((size_t)p->g->n_ops + 1, sizeof(*first_step));
    int32_t *owner = calloc((size_t)p->g->n_storages + 1, sizeof(*owner));
    for (int32_t i = 0; i < p->g->n_storages; i++)
        t->hold[i] = HOLD_ALWAYS;
    int rc = first_step && owner ? simulate(t->pf->sim, t->hold, &s) : CKPT_ENOMEM;
    if (!rc)
        rc = schedule_complete(t->pf->sim);
    for (int32_t k = 0; !rc && k < s->n_steps; k++)
        first_step[s->steps.data[k].op] = k;
    for (int32_t n = 0; n < c->n && !rc; n++) {
        struct block *b = &c->blocks[n];
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

static int build_fronts(struct cuttings *t, struct cutting *c, int64_t work)
{
    bool *done = calloc((size_t)c->chain->n_classes + 1, sizeof(*done));
    int rc = done ? 0 : CKPT_ENOMEM;
    for (int32_t i = 0; i < c->chain->n && !rc; i++) {
        const struct block *b = &c->chain->blocks[i];
        if (done[b->class])
            continue;
        done[b->class] = true;
        rc = front_build(c->chain, b, &t->levels, t->pf->sim, work / c->chain->n_classes,
                         &c->fronts[b->class]);
    }
    free(done);
    return rc;
}

static int64_t slots_of(const struct table *t, int64_t bytes)
{
    return (max_i64(bytes, 0) + t->unit - 1) / t->unit;
}

static float *row_of(const struct cutting *c, const struct table *t, int32_t n)
{
    return t->least + (size_t)n * (size_t)c->slots;
}

/* What a choice of block n keeps, and the least that there must be for it, in slots. */
static int64_t kept_by(const struct table *t, const struct block_cost *o)
{
    return slots_of(t, o->kept);
}

static int64_t needed_by(const struct table *t, const struct block *b, const struct block_cost *o)
{
    int64_t most = max_i64(slots_of(t, o->forward), slots_of(t, o->backward + b->base));
    return max_i64(most, kept_by(t, o));
}

static float less(float a, float b)
{
    return b < a ? b : a;
}

/* A number of slots that compilers know, so that they look at several at a time. */
static void take_less(float *restrict row, const float *restrict behind, float seconds)
{
    for (int i = 0; i < STRIDE; i++)
        row[i] = less(row[i], behind[i] + seconds);
}

/* One row of the table: block n, from the row of the block behind it. */
static void fill_row(const struct cutting *c, struct table *t, int32_t n)
{
    const struct block *b = &c->chain->blocks[n];
    const struct front *f = &c->fronts[b->class];
    const float *behind = row_of(c, t, n + 1);
    float *row = row_of(c, t, n);
    for (int32_t m = 0; m < c->slots; m++)
        row[m] = INFINITY;
    for (int32_t i = 0; i < f->n; i++) {
        const struct block_cost *o = &f->choices[i].cost;
        int64_t kept = kept_by(t, o), m = needed_by(t, b, o);
        float seconds = (float)o->seconds;
        for (; m < c->slots && m % STRIDE; m++)
            row[m] = less(row[m], behind[m - kept] + seconds);
        for (; m < c->slots; m += STRIDE)
            take_less(row + m, behind + m - kept, seconds);
    }
}

static int fill_table(const struct cutting *c, struct table *t)
{
    t->least = calloc(((size_t)c->chain->n + 1) * (size_t)c->slots, sizeof(*t->least));
    for (int32_t n = c->chain->n - 1; n >= 0 && t->least; n--)
        fill_row(c, t, n);
    return t->least ? 0 : CKPT_ENOMEM;
}

/* The choice that the table took for block n where there are m slots. */
static const struct choice *chosen_by(const struct cutting *c, const struct table *t, int32_t n,
                                      int64_t m)
{
    const struct block *b = &c->chain->blocks[n];
    const struct front *f = &c->fronts[b->class];
    const float *behind = row_of(c, t, n + 1);
    float least = INFINITY;
    int32_t best = 0;
    for (int32_t i = 0; i < f->n; i++) {
        const struct block_cost *o = &f->choices[i].cost;
        if (needed_by(t, b, o) > m)
            continue;
        float sum = behind[m - kept_by(t, o)] + (float)o->seconds;
        best = sum < least ? i : best;
        least = less(least, sum);
    }
    return &f->choices[best];
}

/* What a proposal chooses, per block, and its seconds once more: the table rounds them. */
static double choose(const struct proposal *p, const struct choice **chosen)
{
    const struct cutting *c = p->from;
    int64_t m = p->slots;
    double seconds = 0;
    for (int32_t n = 0; n < c->chain->n; n++) {
        chosen[n] = chosen_by(c, p->table, n, m);
        m -= kept_by(p->table, &chosen[n]->cost);
        seconds += chosen[n]->cost.seconds;
    }
    return seconds;
}

static void set_holds(struct cuttings *t, const struct chain *c)
{
    for (int32_t n = 0; n < c->n; n++) {
        const struct block *b = &c->blocks[n];
        for (int32_t i = 0; i < b->n_storage; i++) {
            int32_t s = c->storages[b->storage + i];
            int32_t last = t->levels.start[s + 1] - t->levels.start[s] - 1;
            int32_t level = (int32_t)min_i64(t->chosen[n]->level[i], last);
            t->hold[s] = t->levels.holds[t->levels.start[s] + level];
        }
    }
}

/* Whether the portfolio has something as fast for less than the table asks, all rounding off; or
 * what took the same seconds, which then is what another table or budget said. */
static bool is_known(const struct portfolio *pf, const struct proposal *p)
{
    double seconds = pf->p->seconds + p->seconds;
    double bytes = (double)(p->slots * p->table->unit);
    for (int32_t i = 0; i < pf->n && (double)pf->options.data[i].load <= bytes; i++) {
        const struct option *o = &pf->options.data[i];
        if (o->seconds <= seconds * (1 + 1e-9) &&
            ((double)o->load < 0.97 * bytes || o->seconds >= seconds * (1 - 1e-9)))
            return true;
    }
    return false;
}

/* The finer of a cutting's tables that goes so far. */
static struct proposal ask(const struct cutting *c, int64_t bytes)
{
    int k = 0;
    while (k < SCALES - 1 && bytes / c->tables[k].unit >= c->slots)
        k++;
    const struct table *t = &c->tables[k];
    int64_t m = min_i64(bytes / t->unit, c->slots - 1);
    return (struct proposal){c, t, m, t->least[m]};
}

/* Tries the proposal for a budget that comes so many after the fastest. */
static int try_budget(struct cuttings *t, int64_t bytes, int32_t rank)
{
    struct proposal all[CHAINS];
    for (int32_t i = 0; i < t->n; i++) {
        struct proposal p = ask(&t->list[i], bytes);
        int32_t k = i;
        for (; k > 0 && all[k - 1].seconds > p.seconds; k--)
            all[k] = all[k - 1];
        all[k] = p;
    }
    if (isinf(all[rank].seconds))
        return 0;
    all[rank].seconds = choose(&all[rank], t->chosen);
    if (is_known(t->pf, &all[rank]))
        return 0;
    set_holds(t, all[rank].from->chain);
    int rc = portfolio_try(t->pf, t->hold, NULL);
    return rc < 0 ? rc : 0;
}

/* Every so many budgets but those that twice as many were between, each smaller by the same part.
 */
static int try_budgets(struct cuttings *t, int64_t most, int32_t rank, int32_t step, int64_t work)
{
    int32_t first = step < COARSE ? step : 0, stride = step < COARSE ? 2 * step : step;
    int rc = 0;
    for (int32_t i = 0; i < BUDGETS && !rc; i++, most -= most / PART) {
        if (i % stride != first)
            continue;
        if ((rank > 0 || step < COARSE) && simulator_work(t->pf->sim) >= work)
            return 0;
        rc = try_budget(t, most, rank);
    }
    return rc;
}

/* A chain of which a third or more is new: playing one of them takes all the time there is. */
static bool is_varied(const struct chain *c)
{
    return 3 * c->n_classes > c->n;
}

static int add_cutting(struct cuttings *t, int32_t every, int32_t first)
{
    struct cutting *c = &t->list[t->n];
    int rc = chain_build(t->pf->p, every, first, &c->chain);
    if (rc)
        return rc;
    if (c->chain->n < 3 || (every > 1 && is_varied(c->chain))) {
        chain_free(c->chain);
        c->chain = NULL;
        return 0;
    }
    t->n++;
    c->slots = (int32_t)max_i64(CELLS / c->chain->n, 2048) + c->chain->n;
    c->slots = (int32_t)round_up(c->slots, STRIDE);
    c->fronts = calloc((size_t)c->chain->n_classes + 1, sizeof(*c->fronts));
    return c->fronts ? find_bases(t, c->chain) : CKPT_ENOMEM;
}

static int fill_cutting(struct cuttings *t, struct cutting *c, int64_t work)
{
    const struct portfolio *pf = t->pf;
    int64_t most = pf->options.data[pf->n - 1].load;
    int rc = build_fronts(t, c, work);
    for (int k = 0; k < SCALES && !rc; k++) {
        c->tables[k].unit = (most >> (SCALES - 1 - k)) / (c->slots - c->chain->n - 3) + 1;
        rc = fill_table(c, &c->tables[k]);
    }
    return rc;
}

static int run(struct cuttings *t, int64_t work)
{
    struct portfolio *pf = t->pf;
    int64_t most = pf->options.data[pf->n - 1].load, now = simulator_work(pf->sim);
    int64_t end = now + (work - now) / 4 * 3;
    int rc = levels_build(pf->p, &t->levels);
    for (int32_t every = MOST_EVERY; every > 0; every--)
        for (int32_t first = 0; first < every && !rc; first++)
            rc = add_cutting(t, every, first);
    for (int32_t i = 0; i < t->n && !rc; i++)
        rc = fill_cutting(t, &t->list[i], (end - simulator_work(pf->sim)) / (t->n - i));
    for (int32_t rank = 0; rank < t->n && !rc; rank++)
        for (int32_t step = COARSE; step > 0 && !rc; step /= 2)
            rc = try_budgets(t, most, rank, step, work);
    return rc;
}

static void cutting_free(struct cutting *c)
{
    for (int32_t i = 0; c->fronts && i < c->chain->n_classes; i++)
        front_free(&c->fronts[i]);
    for (int k = 0; k < SCALES; k++)
        free(c->tables[k].least);
    free(c->fronts);
    chain_free(c->chain);
}

int portfolio_chain(struct portfolio *pf, int64_t work)
{
    struct cuttings t = {.pf = pf};
    t.hold = calloc((size_t)pf->p->g->n_storages + 1, sizeof(*t.hold));
    t.chosen = calloc((size_t)pf->p->g->n_ops + 1, sizeof(*t.chosen));
    int rc = t.hold && t.chosen ? run(&t, work) : CKPT_ENOMEM;
    for (int32_t i = 0; i < CHAINS; i++)
        cutting_free(&t.list[i]);
    levels_free(&t.levels);
    free(t.hold);
    free(t.chosen);
    return rc;
}
