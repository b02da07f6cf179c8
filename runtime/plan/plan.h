/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner: pure functions from a graph, a machine and a budget to a plan.  It sees no device
 * and does no I/O but reading and writing plan files.
 *
 * A step is a sequence of ops over storages.  Between two uses a storage idles: a gap.  The planner
 * decides the fate of every gap.  The plan follows from the fates, in the terms of record.h: a
 * sequence of op executions (some of them recomputations), residences of storages with their
 * addresses, and copies between residences.
 *
 * The folders, and what each decides:
 *
 * - graph: the model of a program (storages, ops, costs) and of a machine.  graph.c is the only
 * file that sees a tape.
 * - search: which storages are kept and which ops run again, for every budget at once.
 * - offload: which storages go to a lower tier, when copies begin and end, and what waits for them.
 * - place: addresses of residences; residences that overlap in time share no byte.
 * - check: the proof of a plan, which shares only the types here with the other folders.  It runs
 * on every plan from a file or another rank, and on all plans under CKPT_VERIFY=1.
 * - scale: plans of jobs with other numbers of ranks than the graph was recorded with.
 *
 * This folder has the plan itself, its files, and the answer to a budget: the fastest plan that
 * fits, or the sentence that says why none does.
 *
 * The same inputs give the same plan, byte for byte: no decision depends on a clock, an address or
 * the number of cores.  The planner may use the core and, in graph.c, the tape; never a device, a
 * tier, a communicator or the executor.
 */
#ifndef CKPT_PLAN_H
#define CKPT_PLAN_H

#include "core/base.h"
#include "core/backing.h"
#include "algorithms.h"
#include "plan/graph/machine.h"
#include "plan/record.h"

struct ckpt_tape;
struct plan_watch;

enum graph_phase { GRAPH_FORWARD, GRAPH_BACKWARD, GRAPH_UPDATE };

enum graph_kind {
    KIND_INPUT, /* written by a feed, which can run again */
    KIND_ACTIVATION,
    KIND_TEMPORARY,
    KIND_GRADIENT,  /* of a parameter */
    KIND_PARAMETER, /* persistent */
    KIND_OPTIMIZER  /* persistent: master, moments, EMA */
};

struct graph_storage {
    int64_t bytes; /* a multiple of CKPT_ALIGN, not 0 */
    enum graph_kind kind;
    bool persistent;      /* lives before and after the step; never dropped */
    bool carried;         /* must be resident from step 0 of the body to its last use */
    enum backing backing; /* persistent storage: its tier in other programs of the context */
    int64_t backing_offset;
    bool crosses;     /* persistent storage: its copy out in another program goes on in the next */
    int64_t crossing; /* step, from this address above the persistent bytes */
    int32_t tape_storage;
    char *name; /* for tables and messages; owned */
};

/* Collectives, which all ranks run together. */
enum graph_collective {
    GRAPH_LOCAL,
    GRAPH_ALL_GATHER,
    GRAPH_REDUCE_SCATTER,
    GRAPH_ALL_REDUCE,
    GRAPH_ALL_TO_ALL,
    GRAPH_SEND, /* to the next stage of a pipeline, or the one before */
    GRAPH_RECEIVE
};

struct graph_op {
    int32_t reads, n_reads;    /* graph.refs[reads ..]: storages read; each listed once */
    int32_t writes, n_writes;  /* storages written; one that is also read is changed in place */
    int64_t workspace;         /* scratch bytes while it runs, a multiple of CKPT_ALIGN */
    double seconds;            /* estimated or measured; collective: as the search counts it */
    double comm_seconds;       /* collective: on the queue of collectives, estimated or measured */
    double contention_seconds; /* collective: how much longer the ops beside it take */
    double flops, bytes;       /* work: arithmetic, and device memory read and written */
    uint64_t cost_key;         /* hash of op name, dtypes and shapes: key of the measured cost */
    enum graph_phase phase;
    enum graph_collective collective;
    int32_t ranks;           /* collective: number of ranks in it; stages of a pipeline */
    int32_t replicas;        /* reduce-scatter: number of groups with equal shares; 0: one */
    int32_t stride;          /* collective of each stride-th rank, those with the same parts of
                                layers; 0: of neighbours */
    bool within_layer;       /* all-reduce: of the ranks with the parts of a layer */
    bool drop_after_forward; /* all-gather: its result is freed after the forward pass */
    bool attention;          /* its arithmetic runs at the machine's rate of attention */
    bool rerunnable;         /* pure: the same inputs give the same outputs, any number of times */
    int32_t tape_op;
    char *name; /* "linear in spatial_blocks.3 (model.c:120)"; owned */
};

/* The part of a stage: its number from 0, and pipelines that run beside each other.  Its body has
 * the ops of so many micro-steps one after another. */
struct graph_pipeline {
    int32_t stages, stage, pipelines, unrolled;
};

/*
 * The graph of one program: the body (forward and backward of one micro-step, run n_micro times)
 * is ops [0, n_body), the tail (update) is ops [n_body, n_ops).
 * A storage that several ops write, apart from in-place changes, is written in parts (a concat
 * without copies): to recompute it all of its writers run again.
 */
struct graph {
    struct graph_storage *storages;
    struct graph_op *ops;
    int32_t *refs;
    int32_t n_storages, n_ops, n_body, n_refs, n_micro;
    struct graph_pipeline pipeline; /* zero: its ranks are no stages */
    bool in_turn;             /* another program trains, too: no update may be deferred */
    struct plan_watch *watch; /* of searches for its plan (watch.h), or NULL */
};

/* The lower tier in which another program backs a storage; TIER_DEVICE: in none. */
static inline int8_t graph_backing(const struct graph_storage *s)
{
    return s->backing == BACKING_HOST   ? TIER_HOST
           : s->backing == BACKING_NVME ? TIER_NVME
                                        : TIER_DEVICE;
}

/* Builds the graph of a finished tape.  Returns 0 or CKPT_ENOMEM. */
int graph_from_tape(const struct ckpt_tape *t, const struct machine *m, struct graph **g);
void graph_free(struct graph *g);
/* The most bytes that one op needs beside the persistent ones: a lower bound of any plan. */
int64_t graph_largest_op(const struct graph *g);
/* Whether a cache of this many bytes still holds all of a storage of the tape, written before op i
 * of the same micro-step: it has room for all that its writer wrote, and all that later ops moved.
 */
bool graph_is_cached(const struct graph *g, int32_t i, int32_t tape_storage, int64_t cache);
/* The end of the addresses that other programs have fixed for copies that run into the next step;
 * 0: none. */
int64_t graph_crossings_end(const struct graph *g);
/* Sets the seconds of every op for machine m. */
void graph_price(struct graph *g, const struct machine *m);
/* Seconds of a step without recompute: a lower bound of any plan without updates on the host. */
double graph_seconds(const struct graph *g);
/* Whether the search can add up the seconds of all ops: 0, or CKPT_EINVAL with the sentence. */
int graph_check_seconds(const struct graph *g);
/* 64-bit hash of everything in the graph but names, seconds and backings: the signature of a plan.
 */
uint64_t graph_signature(const struct graph *g);

enum fate { FATE_KEEP, FATE_DROP, FATE_OFFLOAD_HOST, FATE_OFFLOAD_NVME };

/* An interval between two uses of a storage, in steps of the plan. */
struct gap {
    int32_t storage;
    int32_t from, to; /* the steps of two consecutive uses; if the gap wraps into the next step,
                         n_steps is added to the second one */
    enum fate fate;
};

/* Where a step runs: all but updates on the device.  The host uses bytes in the host tier.  Where
 * both run an update, the host repeats it: of the device's results only the value is used, of the
 * host's only the state. */
enum plan_by { BY_DEVICE, BY_HOST, BY_BOTH };

struct plan_step {
    int32_t op;
    bool again;     /* a recomputation */
    int8_t by;      /* enum plan_by */
    int32_t before; /* an update by both is deferred: it runs before this step of the next body; 0:
                       in its place in the tail */
};

#define PLAN_NVME_ALIGN 4096 /* of addresses and sizes in the NVMe tier */

/* An NVMe tier is reached through slots in host memory, the same number for each direction.  They
 * take a quarter of the host budget, at most 64 MiB.  Without a host budget they take these 64 MiB,
 * which no budget limits. */
#define PLAN_STAGING_SLOTS 4
#define PLAN_STAGING_MOST  (2 * PLAN_STAGING_SLOTS * (INT64_C(8) << 20))

static inline int64_t plan_staging(int64_t host)
{
    const int64_t least = 2 * PLAN_STAGING_SLOTS * PLAN_NVME_ALIGN;
    return host > 0 ? max_i64(least, min_i64(PLAN_STAGING_MOST, host / 4 / least * least))
                    : PLAN_STAGING_MOST;
}

/* The smallest host budget with this many bytes beside the slots. */
int64_t plan_host_for(int64_t bytes);

/* Bytes of the three tiers.  device: INT64_MAX without a limit; host, nvme: 0 for no such tier. */
struct budgets {
    int64_t device, host, nvme;
    int64_t tier_base[TIER_COUNT]; /* bytes of the tiers in use below the first byte of this plan */
};

struct plan {
    uint64_t signature;
    struct budgets budgets; /* that it was made for */
    int64_t persistent;  /* bytes of persistent storages never offloaded, at the arena's bottom */
    int64_t transient;   /* bytes above them */
    int64_t load;        /* most transient bytes alive at one step: the lower bound of transient */
    int32_t peak_step;   /* where load is reached */
    int64_t min_budget;  /* the smallest device budget with these lower tiers, reserved included; 0:
                          * nothing was searched (frontier_first) */
    int32_t min_peak_op; /* the op at the peak of that smallest plan */
    int64_t host_bytes, nvme_bytes; /* of the tiers, with addresses, above budgets.tier_base */
    int64_t staging_bytes;          /* further bytes of the host budget, if a program uses NVMe */
    double seconds;           /* one whole step: n_micro bodies and the tail, with all waiting */
    double recompute_seconds; /* part of seconds: ops that run again */
    double exposed_seconds;   /* part of seconds: waiting for copies */
    double exposed_comm;      /* part of seconds: waiting for collectives, and contention */
    double comm_seconds;      /* of collectives on their queue, hidden or not */
    double bound_seconds;     /* no plan under these budgets can be faster than this */
    int64_t next_budget;      /* the smallest budget with a faster plan without offloads; 0: none */
    double next_seconds;      /* seconds of that plan */
    struct plan_step *steps;
    int32_t n_steps, n_body;      /* steps of the body come first */
    struct residence *residences; /* the record: ordered by tier, first, storage */
    int32_t n_residences;
    struct copy *copies; /* ordered by tier, direction (out first), after, start */
    int32_t n_copies;
    struct algorithms algorithms; /* algorithms that libraries chose where the plan was made */
};

/* Seconds that a step waits: seconds beyond `work`, or 0 if within the rounding of sums. */
static inline double plan_waiting(double seconds, double work)
{
    return seconds - work > 1e-9 * seconds ? seconds - work : 0;
}

/* Seconds of the ops of a whole step without recompute. */
static inline double plan_compute_seconds(const struct plan *p)
{
    return p->seconds - p->recompute_seconds - p->exposed_seconds - p->exposed_comm;
}

/* The search: the Pareto frontier of schedules of a graph, for all budgets.  Returns 0 or
 * CKPT_ENOMEM. */
struct frontier;
int frontier_build(const struct graph *g, struct frontier **f);
/* A frontier of the one schedule that keeps everything: nothing was searched. */
int frontier_build_first(const struct graph *g, struct frontier **f);
void frontier_free(struct frontier *f);
/* A cache of frontiers.  get returns the frontier of a graph with the same numbers, or builds one;
 * the cache owns it, and it is valid until the next call.  get_first does the same for frontiers
 * that are not searched, of which one is cached.  g must outlive all uses of the frontier.  All
 * return 0 or CKPT_ENOMEM. */
struct frontiers;
int frontiers_new(struct frontiers **all);
void frontiers_free(struct frontiers *all);
int frontiers_get(struct frontiers *all, const struct graph *g, struct frontier **f);
int frontiers_get_first(struct frontiers *all, const struct graph *g, struct frontier **f);

/*
 * Plans its graph for machine m under budgets b (persistent and transient bytes together); reserved
 * bytes of the device budget are taken by others.  Returns 0, CKPT_ENOMEM, or CKPT_EBUDGET, whose
 * sentence is complete: smallest feasible budget, the op at the peak, what
 * more memory buys.  A larger budget of any tier never gives a slower plan, and is never refused
 * where a smaller one is not.
 */
int frontier_plan(struct frontier *f, const struct machine *m, const struct budgets *b,
                  int64_t reserved, struct plan **p);
/* As frontier_plan, but first without a device budget: that plan is the answer where b holds it,
 * byte for byte the one that no budget gives. */
int frontier_plan_free(struct frontier *f, const struct machine *m, const struct budgets *b,
                       int64_t reserved, struct plan **p);
/*
 * Of a frontier that was not searched: the plan in which nothing runs again or leaves the device,
 * where it fits budgets b and no plan under them is faster; else *p is NULL and the search has to
 * answer.  It takes a hundredth of the time and as many seconds as the answer of the search, but
 * maybe not as few bytes.  min_budget and next_budget are 0: not asked for.  Returns 0 or
 * CKPT_ENOMEM.
 */
int frontier_first(struct frontier *f, const struct machine *m, const struct budgets *b,
                   int64_t reserved, struct plan **p);
/* The smallest device budget with these lower tiers, as a refusal names it; INT64_MAX: none.
 * Returns 0, CKPT_ENOMEM or CKPT_ESTOP. */
int frontier_least(struct frontier *f, const struct machine *m, const struct budgets *b,
                   int64_t reserved, int64_t *bytes);
/* Device bytes that every plan takes, which needs no search. */
int64_t plan_fewest_bytes(const struct graph *g, const struct budgets *b, int64_t reserved);
/* What can be said before a search: no plan under budgets b takes fewer seconds.  INFINITY: none
 * fits.  Returns 0 or CKPT_ENOMEM. */
int frontier_bound(struct frontier *f, const struct machine *m, const struct budgets *b,
                   int64_t reserved, double *seconds);
void plan_free(struct plan *p);

/* Whether a residence is the backing residence of a persistent storage: where it lives between
 * steps. */
bool plan_is_backing(const struct graph *g, const struct plan *p, const struct residence *r);
/* The bytes of a storage, or of the workspace of a step. */
int64_t residence_bytes(const struct graph *g, const struct plan *p, const struct residence *r);
/* Whether a step runs on the host. */
bool plan_uses_host(const struct plan *p);
/* The first deferred update from step k on, or n_steps.  `before` does not fall along the tail. */
static inline int32_t plan_find_deferred(const struct plan *p, int32_t k)
{
    while (k < p->n_steps && !p->steps[k].before)
        k++;
    return k;
}
/* Whether a residence is there at a step; it may run into the next step. */
static inline bool residence_covers(const struct residence *r, int32_t n_steps, int32_t k)
{
    return (r->first <= k && k <= r->last) || k + n_steps <= r->last;
}
/* Whether this program or one before it keeps bytes in the NVMe tier. */
static inline bool plan_stages(const struct plan *p)
{
    return p->budgets.tier_base[TIER_NVME] + p->nvme_bytes > 0;
}

/* An offload in readable form: the copy out is submitted after out_step, the device address is free
 * after free_step and in use again from in_step on, and the next use is use_step. */
struct offload {
    int32_t storage;
    int tier;
    int32_t out_step, free_step, in_step, use_step; /* free_step, of the next step: < out_step */
    int64_t tier_offset;
    const struct copy *out, *in; /* out is NULL if the tier still has the bytes */
};

/* The number of offloads in a step; and a list of them in the order of their copies in.  *list is
 * malloc'ed; returns 0 or CKPT_ENOMEM. */
int32_t plan_count_offloads(const struct graph *g, const struct plan *p);
int plan_offloads(const struct graph *g, const struct plan *p, struct offload **list, int32_t *n);

/* Storage i of an op, which reads n_reads and writes n_writes: the former come first. */
static inline int32_t graph_ref(const struct graph *g, const struct graph_op *o, int32_t i)
{
    return g->refs[i < o->n_reads ? o->reads + i : o->writes + i - o->n_reads];
}

/* Whether an op may be a step on the host: an update of optimizer state, without scratch. */
bool graph_op_updates(const struct graph *g, const struct graph_op *o);
bool graph_op_reads(const struct graph *g, const struct graph_op *o, int32_t storage);
bool graph_op_writes(const struct graph *g, const struct graph_op *o, int32_t storage);

/*
 * Proves a plan, sharing no code with the search: every base op runs once, in order or, in the
 * update, in an equivalent order; every read sees the bytes of its last writer, in the version of
 * the first execution; no two residences overlap; all are within the peaks; the peak is within the
 * budget; carried storages stay.
 * Returns 0, or CKPT_EPLAN with the first violation in error.
 */
int plan_check(const struct graph *g, const struct plan *p);

/* Plan files: text, one fact a line, diffable; the same plan gives the same bytes.
 * Return 0, CKPT_EIO, CKPT_EFORMAT, CKPT_EPLAN (another signature), CKPT_ENOMEM. */
int plan_write(const struct graph *g, const struct plan *p, const char *path);
int plan_read(const struct graph *g, const char *path, struct plan **p);
/* The text of a plan file in memory, for free(); and a plan from it. */
int plan_print(const struct graph *g, const struct plan *p, char **text, size_t *size);
int plan_parse(const struct graph *g, char *text, size_t size, struct plan **p);
/* Sets all times of a plan by simulating it with the costs of the graph on machine m.  For plans
 * from elsewhere, whose order is kept but whose seconds are not valid here.  Sets values that it
 * cannot compute (bound_seconds, next_budget) to 0.  Returns 0 or CKPT_ENOMEM. */
int plan_reprice(const struct graph *g, const struct machine *m, struct plan *p);

/* Seconds from the start of a step, the body counted once. */
struct plan_span {
    double start, end;
};

/* The times of all steps and copies on machine m, simulated as by plan_reprice. */
struct plan_clock {
    struct plan plan;          /* the given plan, with new times of copies and totals */
    struct plan_span *steps;   /* per step, on the queue that runs it */
    struct plan_span *repeats; /* per step that the host repeats, there */
    double body;               /* when the body ends */
};
/* Returns 0 or CKPT_ENOMEM.  p must outlive the clock. */
int plan_clock(const struct graph *g, const struct machine *m, const struct plan *p,
               struct plan_clock *c);
void plan_clock_free(struct plan_clock *c);
/* Whether a step takes as long on machine m as the plan says: 0, or CKPT_EPLAN or CKPT_ENOMEM with
 * with the sentence. */
int plan_check_times(const struct graph *g, const struct machine *m, const struct plan *p);
/* Adds the algorithms of a plan file alone, whatever graph it is for. */
int plan_read_algorithms(const char *path, struct algorithms *algorithms);

/* Every gap of a plan with its fate, in order of storage and step.  *gaps is malloc'ed. */
int plan_gaps(const struct graph *g, const struct plan *p, struct gap **gaps, int32_t *n);

/* Bytes by purpose, for the plan table. */
struct plan_summary {
    int64_t parameters, gradients, optimizer, kept, recomputed, workspace;
    int64_t nvme_written;     /* in a whole step */
    int64_t streamed, hosted; /* optimizer bytes that are offloaded; that the host updates */
    int64_t repeated; /* optimizer bytes that come to the device and that the host updates, */
    int64_t deferred; /* and the part of them that comes in the next forward pass */
    int32_t recomputed_ops;
};
void plan_summarize(const struct graph *g, const struct plan *p, struct plan_summary *s);

#endif
