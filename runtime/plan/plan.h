/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner: pure functions from a graph, a machine and a budget to a plan.  It sees no device
 * and does no I/O but reading and writing plan files.
 *
 * A step is a straight line of ops over storages.  Between two uses a storage idles: a gap.  The
 * fate of every gap is the decision; the plan is what follows from it, in the words of record.h: a
 * sequence of op executions (some of them "again"), residences of storages with their addresses,
 * and copies between these.
 *
 * The rooms inside, and what each decides:
 *
 * - graph: what the planner knows of a program (storages, ops, costs) and of a machine.  graph.c
 *   is the one file that sees a tape.
 * - search: which storages are kept and which ops run again, for every budget at once.
 * - offload: what leaves for a lower tier, when copies begin and end, and what waits for them.
 * - place: addresses, for stretches of time that must not share a byte.
 * - check: the proof of a plan, sharing nothing with the others but the types here.  It runs on
 *   every plan from a file or another rank, and on all of them under CKPT_VERIFY=1.
 * - scale: plans of jobs with other numbers of ranks than the graph was recorded with.
 *
 * Beside them stand the plan itself, its files, and the answer to a budget: the fastest plan that
 * fits, or the sentence that says why none does.
 *
 * The same inputs give the same plan, byte for byte: nothing here reads a clock, an address or the
 * number of cores to decide.  It may know the core and, in graph.c, the tape; never a device, a
 * tier, a communicator or the executor.
 */
#ifndef CKPT_PLAN_H
#define CKPT_PLAN_H

#include "core/base.h"
#include "core/backing.h"
#include "pins.h"
#include "plan/graph/machine.h"
#include "plan/record.h"

struct ckpt_tape;

enum graph_phase { GRAPH_FORWARD, GRAPH_BACKWARD, GRAPH_UPDATE };

enum graph_kind {
    KIND_INPUT, /* made by a feed, which can run again */
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
    enum backing backing; /* of a persistent storage: where another program of the context has it */
    int64_t backing_offset;
    bool crosses;     /* of a persistent storage: another program's copy out of it goes on in the */
    int64_t crossing; /* next step, from this address above the persistent bytes */
    int32_t tape_storage;
    char *name; /* for tables and messages; owned */
};

/* What all ranks run together. */
enum graph_collective { GRAPH_LOCAL, GRAPH_ALL_GATHER, GRAPH_REDUCE_SCATTER, GRAPH_ALL_REDUCE };

struct graph_op {
    int32_t reads, n_reads;    /* graph.refs[reads ..]: storages read; each listed once */
    int32_t writes, n_writes;  /* storages written; one that is both is changed in place */
    int64_t workspace;         /* scratch bytes while it runs, a multiple of CKPT_ALIGN */
    double seconds;            /* estimated or measured; of a collective: what the search takes */
    double comm_seconds;       /* of a collective, on a queue of its own: estimated or measured */
    double contention_seconds; /* of a collective: what the ops beside it take longer */
    double flops, bytes;       /* work: arithmetic, and device memory read and written */
    uint64_t cost_key;         /* of its measured cost: op name, dtypes, shapes */
    enum graph_phase phase;
    enum graph_collective collective;
    int32_t ranks;    /* of a collective */
    int32_t replicas; /* of a sum of shares: so many groups of ranks have the same; 0 for one */
    bool drop_after_forward; /* of a gather: what it makes is dropped after the forward pass */
    bool rerunnable;         /* pure: the same inputs give the same outputs, any number of times */
    int32_t tape_op;
    char *name; /* "linear in spatial_blocks.3 (model.c:120)"; owned */
};

/*
 * The graph of one program: the body (forward and backward of one micro-step, run n_micro times)
 * is ops [0, n_body), the tail (update) is ops [n_body, n_ops).
 * A storage written by several ops outside in-place changes is written in parts (a concat without
 * copies): to make it again all its writers run again.
 */
struct graph {
    struct graph_storage *storages;
    struct graph_op *ops;
    int32_t *refs;
    int32_t n_storages, n_ops, n_body, n_refs, n_micro;
};

/* Builds the graph of a finished tape.  Returns 0 or CKPT_ENOMEM. */
int graph_from_tape(const struct ckpt_tape *t, const struct machine *m, struct graph **g);
void graph_free(struct graph *g);
/* The most bytes that one op needs beside what is persistent: no plan takes less. */
int64_t graph_largest_op(const struct graph *g);
/* Sets the seconds of every op for machine m. */
void graph_price(struct graph *g, const struct machine *m);
/* Of a step in which nothing runs again: no plan is faster. */
double graph_seconds(const struct graph *g);
/* Whether the search can add up the seconds of all ops: 0, or CKPT_EINVAL with the sentence. */
int graph_check_seconds(const struct graph *g, struct error *error);
/* 64-bit hash of everything in the graph but names, seconds and backings: the signature of a plan.
 */
uint64_t graph_signature(const struct graph *g);

enum fate { FATE_KEEP, FATE_DROP, FATE_OFFLOAD_HOST, FATE_OFFLOAD_NVME };

/* A stretch between two uses of a storage, in positions of the plan's steps. */
struct gap {
    int32_t storage;
    int32_t from, to; /* the steps of the two uses, nothing between them touches the storage; a gap
                         that wraps round to the next step has n_steps added to the second one */
    enum fate fate;
};

struct plan_step {
    int32_t op;
    bool again;   /* a recomputation */
    bool on_host; /* an update that runs on the host, on bytes in the host tier */
};

/* An NVMe tier is reached through slots in host memory, the same number for each direction. */
#define PLAN_STAGING_SLOTS 4
#define PLAN_STAGING_SLOT  (INT64_C(8) << 20)
#define PLAN_NVME_ALIGN    4096 /* of addresses and sizes in the NVMe tier */

/* Bytes of the three tiers.  device: INT64_MAX without a limit; host, nvme: 0 for no such tier. */
struct budgets {
    int64_t device, host, nvme;
    int64_t tier_base[TIER_COUNT]; /* of them taken already, before the first byte of this plan */
};

struct plan {
    uint64_t signature;
    struct budgets budgets; /* it was made for */
    int64_t persistent;  /* bytes of persistent storages never offloaded, at the arena's bottom */
    int64_t transient;   /* bytes above them */
    int64_t load;        /* most transient bytes alive at one step: the lower bound of transient */
    int32_t peak_step;   /* where load is reached */
    int64_t min_budget;  /* the smallest device budget with these lower tiers, reserved included; 0:
                          * nothing was searched (frontier_first) */
    int32_t min_peak_op; /* the op at the peak of that smallest plan */
    int64_t host_bytes, nvme_bytes; /* of the tiers, addresses included, behind budgets.tier_base */
    int64_t staging_bytes;          /* of host memory beside that, if anything goes to NVMe */
    double seconds;           /* one whole step: n_micro bodies and the tail, with all waiting */
    double recompute_seconds; /* of it: ops that run again */
    double exposed_seconds;   /* of it: waiting for copies */
    double exposed_comm;      /* of it: waiting for collectives, and what they slow down */
    double comm_seconds;      /* that collectives take on their queue, hidden or not */
    double bound_seconds;     /* no plan under these budgets can be faster than this */
    int64_t next_budget;      /* the smallest without offloads that would be faster; 0 if none */
    double next_seconds;      /* and its time */
    struct plan_step *steps;
    int32_t n_steps, n_body;      /* steps of the body come first */
    struct residence *residences; /* the record: ordered by tier, first, storage */
    int32_t n_residences;
    struct copy *copies; /* ordered by tier, direction (out first), after, start */
    int32_t n_copies;
    struct pins pins; /* algorithms that libraries used where the plan was made, to use again */
};

/* What a step takes beside so many seconds of work: nothing within the rounding of sums. */
static inline double plan_waiting(double seconds, double work)
{
    return seconds - work > 1e-9 * seconds ? seconds - work : 0;
}

/* Of a whole step: the ops, each as often as it must run. */
static inline double plan_compute_seconds(const struct plan *p)
{
    return p->seconds - p->recompute_seconds - p->exposed_seconds - p->exposed_comm;
}

/* The search: every schedule of a graph worth knowing, whatever the budget.  Returns 0 or
 * CKPT_ENOMEM. */
struct frontier;
int frontier_build(const struct graph *g, struct frontier **pf);
/* A frontier of the one schedule that keeps everything: nothing was searched. */
int frontier_build_first(const struct graph *g, struct frontier **pf);
void frontier_free(struct frontier *pf);
/* Some frontiers of late, of graphs that a caller asks about more than once.  get builds one, or
 * hands out the one of a graph with the same numbers; it is theirs, and stands until the next call.
 * get_first does so with those that are not searched, of which the last is kept.  g must outlive
 * what it is asked then.  All return 0 or CKPT_ENOMEM. */
struct frontiers;
int frontiers_new(struct frontiers **all);
void frontiers_free(struct frontiers *all);
int frontiers_get(struct frontiers *all, const struct graph *g, struct frontier **pf);
int frontiers_get_first(struct frontiers *all, const struct graph *g, struct frontier **pf);

/*
 * Plans its graph for machine m under budgets b (persistent and transient bytes together); reserved
 * bytes of the device budget are taken by others.  Returns 0, CKPT_ENOMEM, or CKPT_EBUDGET with the
 * sentence in error; the sentence is complete: smallest feasible budget, the op at the peak, what
 * more memory buys.  A larger budget of any tier never gives a slower plan, and is never refused
 * where a smaller one is not.
 */
int frontier_plan(struct frontier *pf, const struct machine *m, const struct budgets *b,
                  int64_t reserved, struct plan **p, struct error *error);
/* As frontier_plan, but first without a device budget: that plan is the answer where b holds it,
 * byte for byte the one that no budget gives. */
int frontier_plan_free(struct frontier *pf, const struct machine *m, const struct budgets *b,
                       int64_t reserved, struct plan **p, struct error *error);
/* The plans for n device budgets, reserved bytes included; plans[i] is NULL where none fits.
 * Returns 0 or CKPT_ENOMEM. */
int frontier_sweep(struct frontier *pf, const struct machine *m, const struct budgets *b,
                   int64_t reserved, const int64_t *device, int32_t n, struct plan **plans);
/*
 * Of a frontier that was not searched: the plan in which nothing runs again or leaves the device,
 * where it fits budgets b and no plan under them is faster; else *p is NULL and the search has to
 * answer.  It takes a hundredth of the time and as many seconds as the answer of the search, but
 * maybe not as few bytes.  min_budget and next_budget are 0: not asked for.  Returns 0 or
 * CKPT_ENOMEM.
 */
int frontier_first(struct frontier *pf, const struct machine *m, const struct budgets *b,
                   int64_t reserved, struct plan **p, struct error *error);
/* What can be said before a search: no plan under budgets b takes fewer seconds.  INFINITY: none
 * fits.  Returns 0 or CKPT_ENOMEM. */
int frontier_bound(struct frontier *pf, const struct machine *m, const struct budgets *b,
                   int64_t reserved, double *seconds, struct error *error);
/* Searches and plans. */
int plan_make(const struct graph *g, const struct machine *m, const struct budgets *b,
              int64_t reserved, struct plan **p, struct error *error);
void plan_free(struct plan *p);

/* Whether a residence is the backing residence of a persistent storage: where it lives between
 * steps. */
bool plan_is_backing(const struct graph *g, const struct plan *p, const struct residence *r);
/* Whether a step runs on the host. */
bool plan_uses_host(const struct plan *p);

/* A storage away from the device, as a person reads it: its copy out is handed over behind
 * out_step, it is gone behind free_step, has an address again from in_step on, and is used next in
 * use_step. */
struct offload {
    int32_t storage;
    int tier;
    int32_t out_step, free_step, in_step, use_step; /* free_step, of the next step: < out_step */
    int64_t tier_offset;
    const struct copy *out, *in; /* out: NULL, the tier still has the bytes */
};

/* How often storages leave the device and come back in a step; and all of these, in the order of
 * their copies back.  *list is malloc'ed; returns 0 or CKPT_ENOMEM. */
int32_t plan_count_offloads(const struct graph *g, const struct plan *p);
int plan_offloads(const struct graph *g, const struct plan *p, struct offload **list, int32_t *n);

/* Whether an op may be a step on the host: an update of optimizer state, without scratch. */
bool graph_op_updates(const struct graph *g, const struct graph_op *o);
bool graph_op_reads(const struct graph *g, const struct graph_op *o, int32_t storage);
bool graph_op_writes(const struct graph *g, const struct graph_op *o, int32_t storage);

/*
 * Proves a plan, sharing no code with the search: every base op once, in order or, in the update,
 * in one that comes to the same; every read sees bytes its last writer made and in the version it
 * saw the first time, no two residences overlap, everything inside the peaks, the peak under the
 * budget, carried storages never leave.
 * Returns 0, or CKPT_EPLAN with the first violation in error.
 */
int plan_check(const struct graph *g, const struct plan *p, struct error *error);

/* Plan files: text, one fact a line, diffable; the same plan gives the same bytes.
 * Return 0, CKPT_EIO, CKPT_EFORMAT, CKPT_EPLAN (another signature), CKPT_ENOMEM. */
int plan_write(const struct graph *g, const struct plan *p, const char *path, struct error *error);
int plan_read(const struct graph *g, const char *path, struct plan **p, struct error *error);
/* The text of a plan file in memory, for free(); and a plan from it. */
int plan_print(const struct graph *g, const struct plan *p, char **text, size_t *size);
int plan_parse(const struct graph *g, char *text, size_t size, struct plan **p,
               struct error *error);
/* Sets all times of a plan by playing it with the costs of the graph on machine m: of a plan from
 * elsewhere, whose order stands but whose seconds do not.  What it cannot know (bound_seconds,
 * next_budget) is then 0.  Returns 0 or CKPT_ENOMEM. */
int plan_reprice(const struct graph *g, const struct machine *m, struct plan *p);

/* Seconds from the start of a step, the body counted once. */
struct plan_span {
    double start, end;
};

/* When everything of a step is to happen on machine m, played as by plan_reprice. */
struct plan_clock {
    struct plan plan;        /* the given one, with the times of its copies and of the whole */
    struct plan_span *steps; /* each on its own queue; of a collective the queue of these */
    double body;             /* when the body has ended */
};
/* Returns 0 or CKPT_ENOMEM.  p must outlive the clock. */
int plan_clock(const struct graph *g, const struct machine *m, const struct plan *p,
               struct plan_clock *c);
void plan_clock_free(struct plan_clock *c);
/* Adds the pins of a plan file alone, whatever graph it is for. */
int plan_read_pins(const char *path, struct pins *pins, struct error *error);

/* Every gap of a plan with its fate, in order of storage and step.  *gaps is malloc'ed. */
int plan_gaps(const struct graph *g, const struct plan *p, struct gap **gaps, int32_t *n);

/* Bytes by purpose for the table a person sees. */
struct plan_summary {
    int64_t parameters, gradients, optimizer, kept, recomputed, workspace;
    int64_t nvme_written;     /* in a whole step */
    int64_t streamed, hosted; /* of the optimizer's bytes: offloaded, and updated on the host */
    int32_t recomputed_ops;
};
void plan_summarize(const struct graph *g, const struct plan *p, struct plan_summary *s);

#endif
