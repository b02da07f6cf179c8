/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the planner: what the search, the simulation and the placement share.
 *
 * A schedule follows from one number per storage, its hold.  The backward pass walks the forward
 * positions from the end to the start; a storage that is made while the walk stands at or below
 * its hold stays until its last use, one that is made earlier is freed as soon as the op that asked
 * for it has run.  HOLD_ALWAYS keeps a storage from the forward pass on, a segment of recompute is
 * a set of storages that hold to the end of the segment, and nested segments are nothing new.  What
 * that cannot say, sets of spans can (spans.h); numbers below HOLD_NEVER stand for them.
 */
#ifndef CKPT_PLAN_SEARCH_H
#define CKPT_PLAN_SEARCH_H

#include "plan/place/place.h"
#include "plan/plan_record.h"

#define HOLD_ALWAYS INT32_MAX
#define HOLD_NEVER  (-1)
/* This and all numbers below stand for sets of spans (spans.h). */
#define HOLD_SPANS (-2)

static inline bool hold_has_spans(int32_t hold)
{
    return hold <= HOLD_SPANS;
}

/*
 * Seconds as the search adds them: in units of 2^-40 s, about a picosecond, so that sums are exact
 * and a change taken back leaves nothing.  So fine that a plan takes the sum of its ops to a
 * part in 10^9, which the checker asks for; 64 bits last for three months.
 */
#define TICKS_PER_SECOND 0x1p40

static inline double ticks_seconds(int64_t ticks)
{
    return (double)ticks / TICKS_PER_SECOND;
}

/* Facts of a graph that no decision changes. */
struct program {
    const struct graph *g;
    /* per storage */
    int32_t *writer_start, *writers; /* writers[writer_start[s] .. writer_start[s + 1]) in order */
    int32_t *position;               /* its first writer, or -1 */
    int32_t *forward_last;           /* its last use by a forward op, or -1 */
    int32_t *first_use, *last_use;   /* or -1 */
    int32_t *backward_last;          /* its last use by another op, or -1 */
    int32_t *wanted_at;              /* the context of its first read by such an op, or -1 */
    bool *droppable;                 /* can be freed and made again */
    bool *needed;                    /* a later op than the forward pass reads it */
    bool *drop_after_forward; /* needed, but it must go when the forward pass is done with it */
    /* per op */
    bool *rerun;        /* can run again in the body and give the same bytes */
    int64_t *ticks;     /* what it takes */
    int32_t *context;   /* the forward position the backward pass still needs at this op, or -1; of
                           forward ops n_body, above all holds but HOLD_ALWAYS */
    uint64_t signature; /* of the graph */
    int64_t persistent;
    double seconds; /* of a whole step without recompute */
    double queued;  /* of it what the search takes for collectives */
};

int program_build(const struct graph *g, struct program **p);
void program_free(struct program *p);
/* Ops in their order. */
void sort_ops(int32_t *ops, int32_t n);

/* Of a whole step with so many ticks of recompute in each body. */
static inline double schedule_seconds(const struct program *p, int64_t ticks)
{
    return p->seconds + ticks_seconds(ticks) * p->g->n_micro;
}

static inline bool storage_placed(const struct graph *g, int32_t s)
{
    return !g->storages[s].persistent;
}

/* Whether a storage is used, has an address and is never dropped; then its first op and last. */
bool storage_stays(const struct program *p, int32_t s, int32_t *first, int32_t *last);
/* Holds that keep everything, or NULL; for free(). */
int32_t *hold_all(const struct program *p);

/* What a simulation gives: the steps, the residences (without workspaces, addresses and what no
 * hold changes) and the exact peak. */
struct schedule {
    struct {
        struct plan_step *data;
        int64_t capacity;
    } steps;
    struct {
        struct residence *data;
        int64_t capacity;
    } residences;
    struct {
        int64_t *data;
        int64_t capacity;
    } alive; /* per step: bytes */
    int32_t n_steps, n_body, n_residences;
    int64_t load;
    int32_t peak_step;
    int64_t ticks; /* of recompute, of one body */
};

struct simulator;
int simulator_new(const struct program *p, struct simulator **m);
void simulator_free(struct simulator *m);

/*
 * Plays the program under hold[] (one entry a storage; HOLD_ALWAYS for all that is not droppable).
 * Returns 0, CKPT_ENOMEM, or SIMULATE_TOO_LONG when recompute runs away.  The result belongs to the
 * simulator and lasts until its next run.
 */
enum { SIMULATE_TOO_LONG = 1 };
/* Behind so many steps no base op begins. */
static inline int64_t longest_schedule(const struct program *p)
{
    return 12 * (int64_t)p->g->n_ops + 1024;
}
int simulate(struct simulator *m, const int32_t *hold, const struct schedule **result);
/* Adds the other residences to the last result. */
int schedule_complete(struct simulator *m);
/* Steps simulated since the simulator was made: the measure of planning work. */
int64_t simulator_work(const struct simulator *m);
/* The sets of spans that holds may stand for. */
struct spans *simulator_spans(struct simulator *m);

/* Forward cuts where little is alive, and what to hold for a nesting of them. */
struct cuts {
    const struct program *p;
    int64_t *crossing; /* per op: droppable bytes alive behind it */
    int64_t *produced; /* per op: droppable bytes the backward pass needs, made up to it */
    int32_t *narrow;   /* the ops behind which little is alive, in order */
    int16_t *level;    /* per op: 0, or the depth of the boundary behind it, 1 the coarsest */
    int32_t n_narrow;
    int32_t *bounds; /* of the running nesting: the ops with a boundary behind them, in order */
    int32_t *before; /* per op: how many of those stand before it */
};

int cuts_build(const struct program *p, struct cuts **c);
void cuts_free(struct cuts *c);
/* Boundaries for a nesting: segments[0] segments, each cut again in segments[1], ... */
void cuts_nest(struct cuts *c, const int32_t *segments, int32_t depth);
/* One layer of segments, the earlier the larger. */
void cuts_slope(struct cuts *c, int32_t segments);
/* The binomial nesting for so many checkpoints, down to parts of at most leaf narrow cuts. */
void cuts_revolve(struct cuts *c, int32_t slots, int32_t leaf);
void cuts_hold(const struct cuts *c, int32_t *hold);

/* Orders in which storages are given up, cheapest seconds per byte first. */
enum { ORDER_CHAIN, ORDER_OWN, ORDER_POSITION, ORDER_COUNT };
struct order {
    int32_t *storages;
    int32_t n;
    int64_t bytes;
};
int order_build(const struct program *p, int kind, struct order *o);

/* A schedule worth knowing: no other needs both less memory and less time. */
struct option {
    int64_t load;   /* of one that was not played: as the chain's table has it */
    int64_t placed; /* -1 until it is asked for */
    double seconds;
    int32_t *hold;
    double lead;       /* of its collectives (comm.h) */
    struct plan *plan; /* with addresses, once it was asked for */
};

struct frontier {
    struct program *p;
    struct simulator *sim;
    struct {
        struct option *data;
        int64_t capacity;
    } options; /* load ascending, seconds descending */
    int32_t n;
    bool repeats;            /* most blocks of the forward pass are like others */
    double floor;            /* seconds: nothing that is faster counts (frontier_set_floor) */
    struct lattice *lattice; /* of the last question with tiers, or NULL */
};

/* Whether the local search goes on from all that the chain found, or at most from a part of it. */
bool frontier_anneals(const struct frontier *pf);
/* Simulates hold and keeps it if nothing known is better.  *result (may be NULL) as in simulate. */
int frontier_try(struct frontier *pf, const int32_t *hold, const struct schedule **result);
/* The fastest option with no more load, or NULL. */
const struct option *frontier_within(const struct frontier *pf, int64_t bytes);
/* Keeps what is known of a schedule, unless another is better. */
int frontier_keep(struct frontier *pf, const int32_t *hold, int64_t load, double seconds,
                  double lead);
/* Ways to find schedules, each in the file of its name; they end after so much work.  most: bytes
 * above which the local search tries nothing.  Return 0 or CKPT_ENOMEM. */
int frontier_families(struct frontier *pf, int64_t work);
int frontier_chain(struct frontier *pf, int64_t work);
int frontier_anneal(struct frontier *pf, int64_t work, int64_t most);

/* What was asked for, and what else takes of it. */
struct request {
    const struct machine *m;
    struct budgets budgets;
    int64_t reserved;
    bool backings; /* other programs keep storages of this one in a tier: no plan is without one */
    struct option *smallest;
    struct lattice *lattice;
};

/* The fastest plan for some budgets: an option, a plan with offloads, or neither. */
struct answer {
    struct option *option;
    const struct plan *offloaded;
};

/* The smallest device budget, reserved bytes included, and its plan. */
struct smallest {
    int64_t bytes;
    const struct plan *plan;
};

/* The option that takes least among those faster than seconds, or NULL. */
int smallest_faster(struct frontier *pf, double seconds, struct option **best);

/* What is fastest under these budgets. */
int answer_within(struct frontier *pf, const struct request *q, const struct budgets *b,
                  struct answer *a);
/* The smallest device budget beside these lower tiers: where it is refused, all below it are.  plan
 * is NULL if there is none. */
int smallest_device(struct frontier *pf, const struct request *q, const struct budgets *b,
                    struct smallest *s);

/* Writes the sentence: what is short and by how much.  Returns CKPT_EBUDGET or CKPT_ENOMEM. */
int plan_refuse(struct frontier *pf, const struct request *q, struct error *error);

/* The schedule of an option without addresses. */
int option_steps(struct frontier *pf, const struct option *o, struct plan **plan);
/* What the host could take of a step's time and of the device's bytes at most, and of the bytes
 * what takes it as long as the update and the forward pass. */
struct hosted_bounds {
    double seconds, bytes, meanwhile;
};
struct hosted_bounds hosted_most(const struct graph *g, const struct machine *m);
/*
 * How much leaves in any case, in bytes.  State that the update uses first soon goes out again and
 * makes room for what it uses last, which comes in meanwhile.
 */
enum amount {
    AMOUNT_FIRST,  /* state that the update uses first */
    AMOUNT_LAST,   /* state that it uses last */
    AMOUNT_VALUES, /* parameters, between the forward and the backward pass and round the end */
    AMOUNT_HOSTED, /* state that the host updates: it stays there */
    AMOUNTS
};

/* A schedule of the frontier and how much leaves it in any case. */
struct point {
    int32_t option;
    double amounts[AMOUNTS];
    double seconds; /* of a step, without addresses; INFINITY: none was found */
};

/* The fastest point within device bytes that is found. */
int offload_sketch(struct frontier *pf, const struct machine *m, const struct budgets *b,
                   int64_t device, struct point *sketch);
/* No plan that is made from a sketch is faster than this. */
double offload_floor(const struct point *sketch);
/* Makes a plan from a sketch within as many bytes with addresses; *plan NULL if none is found.
 * Where other programs have addresses for what goes on in the next step, a plan that has others is
 * *apart; it is taken where it is more than OFFLOAD_APART times as fast. */
int offload_plan(struct frontier *pf, const struct machine *m, const struct budgets *b,
                 int64_t device, const struct point *sketch, struct plan **plan, bool *apart);
#define OFFLOAD_APART 1.02
/* Whether there are such addresses. */
bool graph_has_crossings(const struct graph *g);
/* The plan with offloads that takes the fewest device bytes; *plan NULL if none is found. */
int offload_smallest(struct frontier *pf, const struct machine *m, const struct budgets *b,
                     struct plan **plan);
/* No plan that offload_smallest finds, whatever the budgets, is faster than this. */
double offload_smallest_seconds(const struct frontier *pf, const struct machine *m);

#endif
