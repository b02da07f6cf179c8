/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the planner: types that the search, the simulation and the placement share.
 *
 * One number per storage, its retention interval, determines a schedule.  The backward pass
 * visits the forward positions from the last to the first.  A storage that is computed when the
 * position is at or below its retention stays until its last use; one that is computed earlier is
 * freed as soon as the op that needed it has run.  RETAIN_ALWAYS keeps a storage from the forward
 * pass on. A segment of recompute is a set of storages retained to the end of the segment; nested
 * segments need nothing else.  Retention intervals below RETAIN_NEVER stand for lists of spans,
 * which can free and recompute a storage several times: it is resident from the first to the last
 * op of each span and nowhere else, and recomputed at the start of a span even if no op needs it
 * there.
 *
 * An array of retention intervals has one for each storage, then the number of numbers that follow,
 * then these: lists of spans, each with its length before it.
 */
#ifndef CKPT_PLAN_SEARCH_H
#define CKPT_PLAN_SEARCH_H

#include <string.h>
#include "plan/place/place.h"
#include "plan/plan_record.h"
#include "plan/pool.h"

#define MANY_OPS 10000 /* the searches of a larger program take half a second each */

#define RETAIN_ALWAYS INT32_MAX
#define RETAIN_NEVER  (-1)
/* This number and all smaller ones stand for lists of spans: the first list, ... */
#define RETAIN_SPANS (-2)

static inline bool retention_has_spans(int32_t retention)
{
    return retention <= RETAIN_SPANS;
}

/* The ops of the first and the last use. */
struct span {
    int32_t from, to;
};

/* The spans of the retention interval of a storage, of an array of retention intervals of n
 * storages. */
static inline const struct span *retention_spans(const int32_t *retention, int32_t n, int32_t s,
                                                 int32_t *count)
{
    const int32_t *list = retention + n + 1 + (RETAIN_SPANS - retention[s]);
    *count = list[0];
    return (const struct span *)(list + 1);
}

/* The size of an array of retention intervals of n storages, in bytes. */
static inline size_t retention_size(const int32_t *retention, int32_t n)
{
    return ((size_t)n + 1 + (size_t)retention[n]) * sizeof(*retention);
}

/*
 * The search counts time in ticks of 2^-40 s, about a picosecond.  Integer sums are exact, so an
 * undone change leaves no rounding error.  The unit is small enough that a plan's seconds equal the
 * sum of its ops to a part in 10^9, as the checker requires; 64 bits hold three months.
 */
#define TICKS_PER_SECOND 0x1p40

static inline double ticks_seconds(int64_t ticks)
{
    return (double)ticks / TICKS_PER_SECOND;
}

/* As hash_mix, of a time. */
static inline uint64_t hash_seconds(uint64_t h, double seconds)
{
    int64_t bits;
    memcpy(&bits, &seconds, sizeof(bits));
    return hash_mix(h, bits);
}

/* Facts of a graph that no decision changes. */
struct program {
    const struct graph *g;
    /* per storage */
    int32_t *writer_start, *writers; /* writers[writer_start[s] .. writer_start[s + 1]) in order */
    int32_t *position;               /* its first writer, or -1 */
    int32_t *forward_last;           /* its last use by a forward op, or -1 */
    int32_t *first_use, *last_use;   /* or -1 */
    int32_t *wanted_at;              /* the context of its first read after the forward, or -1 */
    bool *droppable;                 /* can be freed and recomputed */
    bool *needed;                    /* an op after the forward pass reads it */
    bool *drop_after_forward; /* needed, but must be freed after its last use in the forward pass */
    /* per op */
    bool *rerun;        /* can run again in the body with the same result */
    int64_t *ticks;     /* its duration */
    int32_t *context;   /* the forward position that the backward pass still needs at this op, or
                           -1; n_body for forward ops, above all intervals but RETAIN_ALWAYS */
    uint64_t signature; /* of the graph */
    int64_t persistent; /* bytes of all persistent storages */
    double seconds;     /* of a whole step without recompute */
    double queued;      /* the part of seconds that the search assumes for collectives */
    struct pool memory;
};

/* The last op that writes storage s, or -1. */
static inline int32_t program_last_writer(const struct program *p, int32_t s)
{
    int32_t end = p->writer_start[s + 1];
    return end > p->writer_start[s] ? p->writers[end - 1] : -1;
}

int program_build(const struct graph *g, struct program **p);
void program_free(struct program *p);
/* Sets the totals of the program: persistent, seconds, queued. */
void program_sum(struct program *p);
/* Sorts ops by their index. */
void sort_ops(int32_t *ops, int32_t n);

/* Seconds of a whole step with this many ticks of recompute in each body. */
static inline double schedule_seconds(const struct program *p, int64_t ticks)
{
    return p->seconds + ticks_seconds(ticks) * p->g->n_micro;
}

static inline bool storage_placed(const struct graph *g, int32_t s)
{
    return !g->storages[s].persistent;
}

/* Whether a storage is used, has an address and is never dropped; sets its first and last op. */
bool storage_stays(const struct program *p, int32_t s, int32_t *first, int32_t *last);
/* An array of retention intervals that keep everything, or NULL. */
int32_t *retain_all(const struct program *p, struct pool *m);

/* The result of a simulation: steps, residences and the exact peak.  Workspaces, addresses and
 * residences that no retention interval changes are left out. */
struct schedule {
    LIST(struct plan_step) steps;
    LIST(struct residence) residences;
    int64_t *alive; /* per step: live bytes */
    int32_t n_steps, n_body, n_residences;
    int64_t load;
    int32_t peak_step;
    int64_t ticks; /* of recompute in one body */
};

struct simulator;
int simulator_new(const struct program *p, struct simulator **m);
void simulator_free(struct simulator *m);

/*
 * Simulates the program under retention[] (one entry per storage; RETAIN_ALWAYS for those that are
 * not droppable).  Returns 0, CKPT_ENOMEM, or SIMULATE_TOO_LONG if the steps exceed
 * longest_schedule(). The result belongs to the simulator and is valid until its next run.
 */
enum { SIMULATE_TOO_LONG = 1 };
/* No base op starts after this many steps. */
static inline int64_t longest_schedule(const struct program *p)
{
    return 12 * (int64_t)p->g->n_ops + 1024;
}
int simulate(struct simulator *m, const int32_t *retention, const struct schedule **result);
/* Adds the residences that no retention interval changes to the last result. */
int schedule_complete(struct simulator *m);
/* Steps simulated since simulator_new: the unit of planning work. */
int64_t simulator_work(const struct simulator *m);

/* Cuts of the forward pass where few bytes are alive, and the retention intervals of a nesting of
 * segments. */
struct cuts {
    const struct program *p;
    int64_t *crossing; /* per op: droppable bytes alive after it */
    int64_t *produced; /* per op: droppable bytes for the backward pass computed up to it */
    int32_t *narrow;   /* the ops after which few bytes are alive, in order */
    int16_t *level;    /* per op: 0, or the depth of the boundary after it, 1 the coarsest */
    int32_t n_narrow;
    int32_t *bounds; /* of the current nesting: the ops with a boundary after them, in order */
    int32_t *before; /* per op: the number of bounds before it */
};

int cuts_build(const struct program *p, struct pool *m, struct cuts *c);
/* Sets the boundaries of a nesting: outer segments, each cut into inner ones. */
void cuts_nest(struct cuts *c, int32_t outer, int32_t inner);
/* The binomial nesting for slots checkpoints, down to parts of at most leaf narrow cuts. */
void cuts_revolve(struct cuts *c, int32_t slots, int32_t leaf);
void cuts_retention(const struct cuts *c, int32_t *retention);

/* The order in which storages are dropped, fewest seconds of recompute per byte first. */
struct order {
    int32_t *storages;
    int32_t n;
    int64_t bytes;
};
int order_build(const struct program *p, struct pool *m, struct order *o);

/* A schedule of the Pareto frontier: no other needs both less memory and less time. */
struct option {
    int64_t load; /* peak of live bytes, as simulated */
    double seconds;
    int32_t *retention;
    double lead;       /* of its collectives (comm_overlap) */
    struct plan *plan; /* with addresses, once it is placed; owned */
};

struct frontier {
    struct program *p;
    struct simulator *sim;
    LIST(struct option) options; /* load ascending, seconds descending */
    int32_t n;
    bool chained;            /* most blocks of the forward pass are copies of others, and the chain
                              * predicts the peaks of its schedules */
    double floor;            /* seconds: faster options are rejected (frontier_set_floor) */
    struct option *smallest; /* with the smallest placed peak, once it is known */
    struct lattice *lattice; /* of the last request with tiers, or NULL; owned */
};

/* Simulates retention and adds it unless a known option is better.  *result (may be NULL) is set as
 * by simulate. */
int frontier_try(struct frontier *f, const int32_t *retention, const struct schedule **result);
/* The fastest option whose load is at most bytes, or NULL. */
const struct option *frontier_within(const struct frontier *f, int64_t bytes);
/* Adds a schedule unless a known option is better. */
int frontier_keep(struct frontier *f, const int32_t *retention, int64_t load, double seconds,
                  double lead);
/* The three searches, each in the file of its name.  They stop after work steps.  The local search
 * has no target above most bytes.  Return 0 or CKPT_ENOMEM. */
int frontier_families(struct frontier *f, int64_t work);
int frontier_chain(struct frontier *f, int64_t work);
int frontier_anneal(struct frontier *f, int64_t work, int64_t most);

/* A request for a plan. */
struct request {
    struct machine m; /* of one rank */
    struct budgets budgets;
    int64_t reserved; /* bytes of the device budget that are not the plan's */
    bool backings;    /* another program backs storages of this one in a tier: each plan uses it */
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

/* The option with the smallest placed peak among those faster than seconds, or NULL. */
int smallest_faster(struct frontier *f, double seconds, struct option **best);

/* The fastest plan under these budgets. */
int answer_within(struct frontier *f, const struct request *q, const struct budgets *b,
                  struct answer *a);
/* The smallest device budget that has a plan with these lower tiers.  plan is NULL if there is
 * none. */
int smallest_device(struct frontier *f, const struct request *q, const struct budgets *b,
                    struct smallest *s);

/* The smallest budget as a refusal names it. */
int64_t plan_refuse_names(int64_t bytes);
/* Writes the message of a refusal.  Returns CKPT_EBUDGET or CKPT_ENOMEM. */
int plan_refuse(struct frontier *f, const struct request *q);

/* The plan of an option, without addresses. */
int option_steps(struct frontier *f, const struct option *o, struct plan **plan);
/* A copy of a plan without choices of algorithms. */
int plan_copy(const struct plan *from, struct plan **plan);
/* Per op: whether it is an update that may run on the host: its gradient has the address of its
 * value.  The list is in a pool; NULL without memory. */
bool *hosted_ops(const struct graph *g, const struct machine *m, struct pool *memory);
/* Whether updates of the graph may be repeated by the host: one rank runs it, in one micro-step;
 * and no other program trains, or one has put state in the host tier already. */
bool graph_may_repeat(const struct graph *g);
/* The most that these updates can save. */
struct hosted_bounds {
    double seconds;   /* of a step */
    double bytes;     /* of the device */
    double meanwhile; /* bytes that the host updates during the update and the forward pass */
};
struct hosted_bounds hosted_most(const struct graph *g, const struct machine *m, const bool *may);
/*
 * Bytes that are offloaded in any case.  State that the update uses first is copied out soon after
 * and makes room for the state that it uses last, which is copied in meanwhile.
 */
enum amount {
    AMOUNT_FIRST,    /* state that the update uses first */
    AMOUNT_LAST,     /* state that the update uses last */
    AMOUNT_VALUES,   /* parameters, from forward to backward and from one step to the next */
    AMOUNT_HOSTED,   /* state that is updated on the host and stays there */
    AMOUNT_DEFERRED, /* state of deferred updates, which the host repeats */
    AMOUNT_REPEATED, /* state of other updates that the host repeats */
    AMOUNTS
};

/* An option of the frontier and the bytes that are offloaded in any case. */
struct point {
    int32_t option;
    double amounts[AMOUNTS];
    double seconds;     /* of a step, without addresses; INFINITY if no plan was found */
    int64_t host, nvme; /* bytes of the tiers, of unplaced plans */
};

/* A search for plans with offloads; it keeps the schedules that it has loaded. */
struct offloader;
int offloader_new(struct frontier *f, const struct machine *m, struct offloader **x);
void offloader_free(struct offloader *x);

/* Searches for the fastest point within device bytes. */
int offload_unplaced(struct offloader *x, const struct budgets *b, int64_t device,
                     struct point *unplaced);
/* A lower bound of the seconds of plans made from an unplaced plan. */
double offload_floor(const struct offloader *x, const struct point *unplaced);
/* Makes a plan with addresses from an unplaced plan within device bytes, of at least floor seconds;
 * *plan is NULL if none is found, or none of fewer than limit seconds.  Other programs may have
 * fixed the addresses of copies that run into the next step; then there is no limit.  *apart is set
 * if the plan uses other addresses; it is chosen only if it is OFFLOAD_APART times as fast. */
int offload_plan(struct offloader *x, const struct budgets *b, int64_t device,
                 const struct point *unplaced, double floor, double limit, struct plan **plan,
                 bool *apart);
#define OFFLOAD_APART 1.02

/* A selection that needs few device bytes. */
struct fewest {
    struct point at;
    int64_t limit; /* of the selection, */
    int64_t needs; /* and the device bytes that it needs; INT64_MAX: no selection */
    int64_t tiers; /* bytes that it takes of the lower tiers together, ... */
    int64_t most;  /* and might take */
    double least;  /* no plan of it takes fewer seconds */
};
/* A lower bound of the seconds of such plans. */
double offload_fewest_seconds(const struct offloader *x);
/* Searches for the selection of fewest device bytes; only the sum of the tiers matters. */
int offload_fewest(struct offloader *x, const struct budgets *b, struct fewest *f);
/* Simulates a selection: sets the seconds, INFINITY if the tiers are too small, and the bytes of
 * the tiers of *p. */
int offload_fixed_unplaced(struct offloader *x, const struct budgets *b, const struct fewest *f,
                           bool serial, struct point *p);
/* The plan of a selection, or NULL if the tiers are too small.  In serial steps its residences on
 * the device depend on the selection alone: it may have the addresses of another such plan, like.
 */
int offload_fixed(struct offloader *x, const struct budgets *b, const struct fewest *f, bool serial,
                  const struct plan *like, struct plan **plan);
/* As plan_share_offsets. */
int offload_share(struct offloader *x, struct plan *p, const struct plan *like);

#endif
