/*
 * Annealing: a schedule is changed at random places, one touch at a time, for one target of bytes
 * after the other.  What is above the target has a price, so that the way may lead through
 * schedules that do not fit; it rises while the heat falls.  Random is a fixed sequence, and work
 * is counted, not timed.
 */
#include <math.h>
#include <stdlib.h>
#include "plan/stages.h"

#define TARGETS 100 /* in a pass: neighbours differ by as large a part */
#define PASSES  3   /* each between the targets of the one before, and colder */
#define BELOW   0.9 /* of the smallest load known: the last target */
#define ROUND   64  /* moves between two changes of heat and price */
#define LEAST   64  /* moves an op that are worth to begin with a target */
#define LISTED  8   /* times that the largest storage is listed */
#define DEAREST 30  /* in the end what is above the target costs so many times as much */

struct annealer {
    struct portfolio *pf;
    struct stages *x;
    int32_t *hold;
    int32_t *storages; /* those that a move can change, large ones several times */
    int32_t n_storages;
    uint64_t random;
    double price, cheapest; /* seconds for a byte above the target in a stage */
    double heat, hottest;   /* seconds */
};

static uint32_t draw(struct annealer *a, uint32_t n)
{
    a->random = a->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(((a->random >> 32) * n) >> 32);
}

/* About minus the logarithm of a random number in (0, 1]; made of sums only, so that every machine
 * agrees. */
static double draw_patience(struct annealer *a)
{
    double halves = 0;
    uint32_t bits;
    while ((bits = draw(a, 1u << 16)) < 1u << 15 && halves < 30)
        halves += 1;
    return 0.6931 * (halves + 2 - (double)bits / (1u << 15));
}

static double cost(const struct annealer *a)
{
    return a->x->seconds + a->price * (double)a->x->excess;
}

/* Plays the schedule once more as a whole and keeps it, if nothing known is as good. */
static int keep(struct annealer *a)
{
    const struct program *p = a->pf->p;
    double seconds = p->seconds + a->x->seconds * p->g->n_micro;
    const struct option *o = portfolio_within(a->pf, stages_peak(a->x));
    if (o && o->seconds <= seconds * (1 + 1e-9))
        return 0;
    int rc = stages_hold(a->x, simulator_spans(a->pf->sim), a->hold);
    if (!rc)
        rc = portfolio_try(a->pf, a->hold, NULL);
    return rc < 0 ? rc : 0;
}

/* A stage between two others, half of the time one that touches what s is made of: to make s there
 * may spare what else was kept for it. */
static int32_t choose_stage(struct annealer *a, int32_t s, int32_t from, int32_t to)
{
    const struct program *p = a->pf->p;
    const struct graph_op *o = &p->g->ops[p->writers[p->writer_start[s]]];
    int32_t any = from + 1 + (int32_t)draw(a, (uint32_t)(to - from - 1));
    if (o->n_reads == 0 || draw(a, 2) == 0)
        return any;
    int32_t read = p->g->refs[o->reads + (int32_t)draw(a, (uint32_t)o->n_reads)];
    const struct life *l = &a->x->lives[read];
    int32_t first = life_find(l, from + 1), n = life_find(l, to) - first;
    return n > 0 ? touch_stage(l, first + (int32_t)draw(a, (uint32_t)n)) : any;
}

static void move(struct annealer *a)
{
    int32_t s = a->storages[draw(a, (uint32_t)a->n_storages)];
    const struct life *l = &a->x->lives[s];
    int32_t i = (int32_t)draw(a, (uint32_t)l->n - 1);
    if (stages_fixed(a->x, s, i))
        return;
    int32_t from = touch_stage(l, i), to = touch_stage(l, i + 1);
    if (to - from == 1 && touch_kept(l, i) && draw(a, 8) > 0)
        return; /* dropped it would be gone for no stage at all */
    if (to - from > 1 && draw(a, 6) == 0)
        stages_shift(a->x, s, i, choose_stage(a, s, from, to));
    else
        stages_toggle(a->x, s, i);
}

/* Hot and cheap at first, so that large storages may go and come back above the target. */
static void cool(struct annealer *a, double left)
{
    a->heat = a->hottest * left * left * left;
    a->price = a->cheapest / (left * left + 1. / DEAREST);
}

static int anneal(struct annealer *a, int64_t work)
{
    struct stages *x = a->x;
    int64_t end = x->work + work;
    int rc = 0;
    for (int32_t n = 1; x->work < end && !rc; n++) {
        double left = (double)(end - x->work) / (double)work;
        if (n % ROUND == 0)
            cool(a, left);
        double before = cost(a);
        move(a);
        x->work++;
        if (x->failed)
            return CKPT_ENOMEM;
        double more = cost(a) - before;
        if (more > 0 && more > a->heat * draw_patience(a)) {
            stages_undo(x);
            continue;
        }
        stages_accept(x);
        if (more < 0 || more > 0)
            rc = keep(a);
    }
    return rc;
}

static int aim(struct annealer *a, int64_t target, double heat, int64_t work)
{
    struct portfolio *pf = a->pf;
    const struct program *p = pf->p;
    const struct option *all = &pf->options.data[pf->n - 1], *o = portfolio_within(pf, target);
    const struct schedule *s;
    o = o ? o : &pf->options.data[0];
    double slope = (o->seconds - all->seconds) / (double)max_i64(all->load - o->load, 1);
    int rc = simulate(pf->sim, o->hold, &s);
    if (!rc)
        rc = stages_load(a->x, s);
    if (rc)
        return rc;
    stages_aim(a->x, target);
    a->cheapest = slope / p->g->n_micro;
    a->hottest = heat * p->seconds / p->g->n_micro / p->g->n_ops;
    cool(a, 1);
    return anneal(a, work);
}

/* Small targets are harder and get more of the work. */
static int run(struct annealer *a, int64_t work)
{
    const struct portfolio *pf = a->pf;
    const double heats[PASSES] = {0.3, 0.2, 0.1};
    double most = (double)pf->options.data[pf->n - 1].load;
    double step = pow(BELOW * (double)pf->options.data[0].load / most, 1. / TARGETS);
    int64_t shares = PASSES * TARGETS * (TARGETS + 1) / 2;
    int rc = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        double target = most * (pow(step, 1 - (double)pass / PASSES));
        for (int32_t i = 1; i <= TARGETS && !rc; i++, target *= step) {
            int64_t from = a->x->work;
            rc = aim(a, (int64_t)target, heats[pass], work * i / shares);
            simulator_count(pf->sim, a->x->work - from);
        }
    }
    return rc;
}

/* How often to list what has so many bytes: by the square root of its share of the most. */
static int32_t listings(int64_t bytes, int64_t most)
{
    const double all = LISTED - 1;
    int32_t n = 1;
    while (n < LISTED && (double)n * n * (double)most <= all * all * (double)bytes)
        n++;
    return n;
}

static void list_storages(struct annealer *a)
{
    const struct program *p = a->pf->p;
    const struct graph_storage *all = p->g->storages;
    int64_t most = 0;
    for (int32_t s = 0; s < p->g->n_storages; s++)
        most = p->droppable[s] ? max_i64(most, all[s].bytes) : most;
    for (int32_t s = 0; s < p->g->n_storages; s++)
        if (p->droppable[s] && p->last_use[s] > p->position[s])
            for (int32_t k = listings(all[s].bytes, most); k > 0; k--)
                a->storages[a->n_storages++] = s;
}

int portfolio_anneal(struct portfolio *pf, int64_t work)
{
    struct annealer a = {.pf = pf, .random = 3};
    size_t n = (size_t)pf->p->g->n_storages + 1;
    work -= simulator_work(pf->sim);
    if (work < LEAST * (int64_t)pf->p->g->n_ops)
        return 0;
    int rc = stages_new(pf->p, &a.x);
    a.hold = malloc(n * sizeof(*a.hold));
    a.storages = malloc(LISTED * n * sizeof(*a.storages));
    if (!a.hold || !a.storages)
        rc = CKPT_ENOMEM;
    if (!rc) {
        list_storages(&a);
        rc = a.n_storages > 0 ? run(&a, work) : 0;
    }
    stages_free(a.x);
    free(a.hold);
    free(a.storages);
    return rc;
}
