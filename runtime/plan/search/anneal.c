/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The local search: simulated annealing of a schedule, one use of a storage at a time, for a series
 * of target loads.  Bytes above the target have a price, so the search may pass through schedules
 * that do not fit; the price rises while the temperature (heat) falls.  A move costs about a
 * microsecond whatever the length of the program (stages.h); large programs get fewer moves per op.
 * The random sequence is fixed, and work is counted, not timed.
 *
 * Targets go down and up again.  The search continues from its last schedule, and restarts from a
 * known option only if that is faster.
 */
#include "plan/search/stages.h"
#include "plan/watch.h"

#define PASSES     3    /* over the targets; each pass uses other targets and less heat */
#define TARGETS    50   /* the most targets of a pass */
#define BATCH      64   /* moves between two changes of heat and price */
#define MIN_WORK   16   /* work per op below which a target is not worth starting */
#define ROUND_WORK 4000 /* work per op of a round */
#define IDLE       3    /* stop after this many rounds in a row with little gain */
#define GAIN       2048 /* little gain: less than this part of a step's time, on average */
#define SAMPLES    128  /* loads at which the gain is measured */
#define SAMPLE     32   /* each sample is smaller by this part than the one before */
#define LISTED     8    /* list entries of the largest storage */
#define DEAREST    30   /* the final price of bytes above the target over the first one */
#define MARGIN     512  /* an intermediate schedule is kept if it saves this part of recompute */
#define SMALL      256  /* ops: in smaller programs every better schedule is kept */
#define BELOW      16   /* the last target is this part below the smallest known load */
#define SMALLER    8    /* the most attempts to reduce the smallest load */
#define LEAST      8    /* attempts at the smallest load, with this part of the work */

struct annealer {
    struct frontier *frontier;
    struct stages *x;
    int64_t most;      /* bytes: no target is larger */
    int32_t *storages; /* that a move can change; large ones are listed several times */
    int32_t n_storages;
    uint64_t random;
    bool anew;              /* every target starts from an option of the frontier */
    double ticks;           /* average duration of an op */
    double price, cheapest; /* ticks per byte above the target and stage; now, and at the start */
    double heat, hottest;   /* temperature in ticks; now, and at the start */
};

static uint32_t draw(struct annealer *a, uint32_t n)
{
    a->random = a->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(((a->random >> 32) * n) >> 32);
}

/* Roughly minus the logarithm of a random number in (0, 1].  Only sums, so that all machines get
 * the same bits. */
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
    return (double)a->x->ticks + a->price * (double)a->x->top.excess;
}

/* Adds the schedule to the frontier if it saves 1/part of its recompute against the best known one;
 * part 0: if it is faster at all. */
static int keep(struct annealer *a, int64_t part)
{
    const struct program *p = a->frontier->p;
    int64_t peak = stages_peak(a->x);
    const struct option *o = frontier_within(a->frontier, peak);
    if (!stages_playable(a->x) ||
        (o && o->seconds <= schedule_seconds(p, a->x->ticks + (part ? a->x->ticks / part : 0))))
        return 0;
    const int32_t *retention = stages_retention(a->x);
    return retention
               ? frontier_keep(a->frontier, retention, peak, schedule_seconds(p, a->x->ticks), 0)
               : CKPT_ENOMEM;
}

/* ---- moves ---------------------------------------------------------------------------------- */

/* Draws a stage between two others, half of the time one that uses an input of s: if s is computed
 * there, the input need not be kept for s any longer. */
static int32_t choose_stage(struct annealer *a, int32_t s, int32_t from, int32_t to)
{
    const struct program *p = a->frontier->p;
    const struct graph_op *o = &p->g->ops[p->writers[p->writer_start[s]]];
    int32_t any = from + 1 + (int32_t)draw(a, (uint32_t)(to - from - 1));
    if (o->n_reads == 0 || draw(a, 2) == 0)
        return any;
    int32_t read = p->g->refs[o->reads + (int32_t)draw(a, (uint32_t)o->n_reads)];
    const struct uses *l = &a->x->uses[read];
    int32_t first = uses_find(l, from + 1), n = uses_find(l, to) - first;
    return n > 0 ? use_stage(l, first + (int32_t)draw(a, (uint32_t)n)) : any;
}

/* Whether toggling s after use i is known to cost more than most without making the move. */
static bool is_hopeless(const struct annealer *a, int32_t s, int32_t i, double most)
{
    bool drops = use_kept(&a->x->uses[s], i);
    double ticks = (double)stages_toggle_ticks(a->x, s, i), enough = (most - ticks) / a->price + 1;
    if (drops && ticks <= most)
        return false; /* dropping can only reduce the excess */
    int64_t excess =
        stages_toggle_excess(a->x, s, i, drops || enough > 0x1p62 ? INT64_MAX : (int64_t)enough);
    return ticks + a->price * (double)excess > most;
}

/* Makes a random move, unless it changes nothing or is sure to cost more than most. */
static bool move(struct annealer *a, double most)
{
    int32_t s = a->storages[draw(a, (uint32_t)a->n_storages)];
    const struct uses *l = &a->x->uses[s];
    int32_t i = (int32_t)draw(a, (uint32_t)l->n - 1);
    if (stages_fixed(a->x, s, i))
        return false;
    int32_t from = use_stage(l, i), to = use_stage(l, i + 1);
    if (to - from == 1 && use_kept(l, i) && draw(a, 8) > 0)
        return false; /* between neighbouring stages dropping frees nothing */
    bool shift = to - from > 1 && draw(a, 6) == 0;
    if (!shift && is_hopeless(a, s, i, most))
        return false;
    if (shift)
        stages_shift(a->x, s, i, choose_stage(a, s, from, to));
    else
        stages_toggle(a->x, s, i);
    return true;
}

/* Hot and cheap at first, so that large storages can be dropped and recomputed above the target. */
static void cool(struct annealer *a, double left)
{
    a->heat = a->hottest * left * left * left;
    a->price = a->cheapest / (left * left + 1. / DEAREST);
}

/* Makes moves until the work is done.  A move that raises the cost by more than a random limit is
 * undone. */
static int anneal(struct annealer *a, int64_t work)
{
    struct stages *x = a->x;
    int64_t end = x->work + work, part = x->p->g->n_ops > SMALL ? MARGIN : 0;
    int rc = 0;
    cool(a, 1);
    for (int32_t n = 1; x->work < end && !rc; n++) {
        if (n % BATCH == 0) {
            cool(a, (double)(end - x->work) / (double)work);
            rc = plan_watch_check(x->p->g->watch);
        }
        double before = cost(a), most = a->heat * draw_patience(a);
        x->work++;
        if (!move(a, most))
            continue;
        if (x->memory.failed)
            return CKPT_ENOMEM;
        double more = cost(a) - before;
        if (more > 0 && more > most) {
            stages_undo(x);
            continue;
        }
        stages_accept(x);
        if (more < 0 || more > 0)
            rc = keep(a, part);
    }
    return rc ? rc : keep(a, 0);
}

/* ---- targets -------------------------------------------------------------------------------- */

static int load(struct annealer *a, const struct option *o)
{
    const struct schedule *s;
    int rc = simulate(a->frontier->sim, o->retention, &s);
    return rc ? rc : stages_load(a->x, s);
}

/* Anneals for a target from the current schedule, unless a known option is faster; or anew from
 * option o, or a known one if that is NULL. */
static int aim(struct annealer *a, const struct option *o, int64_t target, double heat,
               int64_t work)
{
    struct frontier *f = a->frontier;
    const struct option *all = &f->options.data[f->n - 1];
    o = o ? o : frontier_within(f, target);
    o = o ? o : &f->options.data[0];
    double ticks = (o->seconds - all->seconds) / f->p->g->n_micro * TICKS_PER_SECOND;
    int rc = 0;
    if (a->anew || o->seconds < schedule_seconds(f->p, a->x->ticks))
        rc = load(a, o);
    range_max_aim(&a->x->top, target);
    a->cheapest = ticks / (a->anew ? 1 : 2) / (double)max_i64(all->load - o->load, 1);
    a->hottest = heat * a->ticks * (a->anew ? 2 : 1);
    return rc ? rc : anneal(a, work);
}

/* Lists targets from most bytes to below the smallest load, each 1/d smaller than the one before.
 */
static int32_t list_targets(const struct frontier *f, int64_t d, int64_t most, int64_t *targets)
{
    int64_t least = f->options.data[0].load;
    int32_t n = 0;
    for (least -= least / BELOW; most > least && n < TARGETS; n++) {
        most -= most / d + 1;
        targets[n] = most;
    }
    return n;
}

/* Lists as many targets as the work allows.  The targets of a pass lie between those of others. */
static int32_t choose_targets(const struct annealer *a, int pass, int64_t work, int64_t *targets)
{
    const struct frontier *f = a->frontier;
    int64_t most = f->options.data[f->n - 1].load, d = 4;
    int64_t n = min_i64(TARGETS, work / MIN_WORK / f->p->g->n_ops);
    n = min_i64(n, most - f->options.data[0].load); /* targets differ by a byte or more */
    while (list_targets(f, d + 1, most, targets) < n)
        d++;
    return list_targets(f, d, most - most / d / PASSES * pass, targets);
}

/* Anneals for all targets of a pass.  Smaller targets are harder and get more work. */
static int run_pass(struct annealer *a, int pass, int64_t work)
{
    static const double heats[PASSES] = {0.15, 0.1, 0.05};
    int64_t targets[TARGETS];
    int32_t n = choose_targets(a, pass, work, targets);
    int rc = 0;
    for (int32_t k = 0; k < n && !rc; k++) {
        int32_t i = pass % 2 ? n - 1 - k : k;
        if (targets[i] > a->most)
            continue;
        rc = aim(a, NULL, targets[i], heats[pass], work * (i + 1) / (n * (n + 1) / 2));
    }
    return rc;
}

/* Reduces the smallest load until that fails: bytes are priced above all else. */
static int run_smallest(struct annealer *a, int64_t work)
{
    const struct frontier *f = a->frontier;
    double all = a->ticks * f->p->g->n_ops;
    int64_t before = INT64_MAX;
    int rc = 0;
    for (int k = 0; k < SMALLER && !rc && f->options.data[0].load < before; k++) {
        before = f->options.data[0].load;
        rc = load(a, &f->options.data[0]);
        range_max_aim(&a->x->top, before - before / BELOW);
        a->cheapest = all * 64 / (double)(before + 1);
        a->hottest = all / 4;
        if (!rc)
            rc = anneal(a, work / SMALLER);
    }
    return rc;
}

/* Passes from the largest load down and up again, then the smallest load. */
static int run_round(struct annealer *a, int64_t work)
{
    int64_t n_ops = a->frontier->p->g->n_ops, smallest = work / 8;
    int32_t passes = (int32_t)min_i64(PASSES, 1 + work / (TARGETS * MIN_WORK * n_ops));
    int rc = load(a, frontier_within(a->frontier, a->most));
    for (int pass = 0; pass < passes && !rc; pass++)
        rc = run_pass(a, pass, (work - smallest) / passes);
    return rc ? rc : run_smallest(a, smallest);
}

/* Samples the seconds of the frontier at SAMPLES loads; 0 where no option is that small. */
static void sample(const struct frontier *f, double *seconds)
{
    int64_t load = f->options.data[f->n - 1].load;
    for (int k = 0; k < SAMPLES; k++, load -= load / SAMPLE) {
        const struct option *o = frontier_within(f, load);
        seconds[k] = o ? o->seconds : 0;
    }
}

/* Whether the frontier got faster by 1/GAIN on average.  A load that had no option before counts as
 * one that takes a tenth less time. */
static bool has_gained(const double *before, const double *after)
{
    double gain = 0;
    int n = 0;
    for (int k = 0; k < SAMPLES && after[k] > 0; k++, n++)
        gain += before[k] > 0 ? before[k] / after[k] - 1 : .1;
    return gain * GAIN > n;
}

/* Small programs get several rounds; every second one starts each target from a known option.
 * After IDLE rounds with little gain later ones seldom gain more: all 56 optima are found. */
static int run(struct annealer *a, int64_t work)
{
    int64_t rounds = 1 + work / (ROUND_WORK * (int64_t)a->frontier->p->g->n_ops);
    double seconds[2][SAMPLES];
    int rc = 0, idle = 0;
    sample(a->frontier, seconds[1]);
    for (int64_t k = 0; k < rounds && !rc && idle < IDLE; k++) {
        a->anew = k % 2;
        rc = run_round(a, work / rounds);
        sample(a->frontier, seconds[k % 2]);
        idle = has_gained(seconds[(k + 1) % 2], seconds[k % 2]) ? 0 : idle + 1;
    }
    return rc;
}

/* The targets of the passes leave out the smallest load, which the smallest budget is made of.
 * Schedules of a little more load lead to faster ones: doc/decisions/parts-of-the-search.md. */
static int run_least(struct annealer *a, int64_t work)
{
    const struct frontier *f = a->frontier;
    int rc = 0;
    a->anew = true;
    for (int32_t k = 0; k < LEAST && k < f->n && !rc; k++)
        rc = aim(a, &f->options.data[k], f->options.data[0].load, 0.15, work / LEAST);
    return rc;
}

/* ---- storages ------------------------------------------------------------------------------- */

/* The number of list entries of a storage: proportional to the square root of bytes / most. */
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
    const struct program *p = a->frontier->p;
    const struct graph_storage *all = p->g->storages;
    int64_t most = 0;
    for (int32_t s = 0; s < p->g->n_storages; s++)
        most = p->droppable[s] ? max_i64(most, all[s].bytes) : most;
    for (int32_t s = 0; s < p->g->n_storages; s++)
        if (p->droppable[s] && p->last_use[s] > p->position[s])
            for (int32_t k = listings(all[s].bytes, most); k > 0; k--)
                a->storages[a->n_storages++] = s;
}

static double average_ticks(const struct program *p)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < p->g->n_ops; i++)
        sum += p->ticks[i];
    return (double)sum / p->g->n_ops;
}

int frontier_anneal(struct frontier *f, int64_t work, int64_t most)
{
    struct annealer a = {.frontier = f, .most = most, .random = 3, .ticks = average_ticks(f->p)};
    int32_t n = f->p->g->n_storages;
    if (work < 4 * MIN_WORK * (int64_t)f->p->g->n_ops || most < f->options.data[0].load)
        return 0;
    int rc = stages_new(f->p, &a.x);
    if (rc)
        return rc;
    POOL_ARRAY(&a.x->memory, a.storages, LISTED * (int64_t)n);
    rc = pool_status(&a.x->memory);
    if (!rc) {
        list_storages(&a);
        rc = a.n_storages > 0 ? run(&a, work) : 0;
    }
    if (!rc && a.n_storages > 0 && f->p->g->n_ops <= SMALL)
        rc = run_least(&a, work / LEAST);
    stages_free(a.x);
    return rc;
}
