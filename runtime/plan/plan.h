/*
 * The planner: pure functions from a graph, a machine and a budget to a plan.  It sees no device
 * and does no I/O but reading and writing plan files.
 *
 * A step is a straight line of ops over storages.  Between two uses a storage idles: a gap.  The
 * fate of every gap is the decision; the plan is what follows from it: a sequence of op
 * executions (some of them "again"), and for every stretch of residence of a storage (an
 * instance) its first and last step and its address.
 */
#ifndef CKPT_PLAN_H
#define CKPT_PLAN_H

#include "base.h"

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
    bool persistent; /* lives before and after the step; never dropped */
    bool carried;    /* must be resident from step 0 of the body to its last use */
    int32_t tape_storage;
    char *name; /* for tables and messages; owned */
};

struct graph_op {
    int32_t reads, n_reads;   /* graph.refs[reads ..]: storages read; each listed once */
    int32_t writes, n_writes; /* storages written; one that is both is changed in place */
    int64_t workspace;        /* scratch bytes while it runs, a multiple of CKPT_ALIGN */
    double seconds;           /* estimated or measured */
    enum graph_phase phase;
    bool rerunnable; /* pure: the same inputs give the same outputs, any number of times */
    bool view_only;  /* reserved: ops without kernel never get here */
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

/* What the planner knows of the machine: rates for ops that were not measured. */
struct machine {
    const char *name;
    double flops;     /* matrix rate, FLOP/s */
    double bandwidth; /* device memory, B/s, read and write together */
    double link;      /* host to device copies, B/s */
    double overhead;  /* seconds per op */
};
extern const struct machine machine_cpu; /* a plain CPU, an estimate */

/* Builds the graph of a finished tape.  Returns 0 or CKPT_ENOMEM. */
int graph_from_tape(const struct ckpt_tape *t, const struct machine *m, struct graph **g);
void graph_free(struct graph *g);
/* 64-bit hash of everything in the graph but names and seconds: the signature of a plan. */
uint64_t graph_signature(const struct graph *g);

enum fate { FATE_STAY, FATE_DROP, FATE_PARK_HOST, FATE_PARK_NVME };

/* A stretch between two uses of a storage, in positions of the plan's steps. */
struct gap {
    int32_t storage;
    int32_t from, to; /* the steps of the two uses; nothing between them touches the storage */
    enum fate fate;
};

struct plan_step {
    int32_t op;
    bool again; /* a recomputation */
};

/* One stretch of residence: from the step that makes it to the step after which it is freed. */
struct plan_instance {
    int32_t storage; /* >= 0; or -1 - s: the workspace of step s */
    int32_t first, last;
    int64_t offset; /* from the start of the transient region; persistent storages have none here */
};

struct plan {
    uint64_t signature;
    int64_t budget;      /* it was made for; INT64_MAX for none */
    int64_t persistent;  /* bytes of persistent storages, at the bottom of the arena */
    int64_t transient;   /* bytes above them */
    int64_t load;        /* most transient bytes alive at one step: the lower bound of transient */
    int32_t peak_step;   /* where load is reached */
    int64_t min_budget;  /* of the smallest plan the search knows */
    int32_t min_peak_op; /* the op at the peak of that smallest plan */
    double seconds, recompute_seconds; /* one whole step: n_micro bodies and the tail */
    int64_t next_budget;               /* the next larger budget that would be faster; 0 if none */
    double next_seconds;               /* and its time */
    struct plan_step *steps;
    int32_t n_steps, n_body;         /* steps of the body come first */
    struct plan_instance *instances; /* ordered by first, then storage */
    int32_t n_instances;
};

/*
 * Plans g under budget bytes (persistent and transient together); reserved bytes of the budget are
 * taken by others.  Returns 0, CKPT_ENOMEM, or CKPT_EBUDGET with the sentence in message; the
 * sentence is complete: smallest feasible budget, the op at the peak, what more memory buys.
 * A larger budget never gives a slower plan.
 */
int plan_make(const struct graph *g, int64_t budget, int64_t reserved, struct plan **p,
              char message[CKPT_MESSAGE]);
void plan_free(struct plan *p);

/*
 * Proves a plan, sharing no code with the search: every base op once and in order, every read
 * sees bytes its last writer made and in the version it saw the first time, no two live instances
 * overlap, everything inside the peaks, the peak under the budget, carried storages never leave.
 * Returns 0, or CKPT_EPLAN with the first violation in message.
 */
int plan_check(const struct graph *g, const struct plan *p, char message[CKPT_MESSAGE]);

/* Plan files: text, one fact a line, diffable; the same plan gives the same bytes.
 * Return 0, CKPT_EIO, CKPT_EFORMAT, CKPT_EPLAN (another signature), CKPT_ENOMEM. */
int plan_write(const struct graph *g, const struct plan *p, const char *path,
               char message[CKPT_MESSAGE]);
int plan_read(const struct graph *g, const char *path, struct plan **p, char message[CKPT_MESSAGE]);

/* Every gap of a plan with its fate, in order of storage and step.  *gaps is malloc'ed. */
int plan_gaps(const struct graph *g, const struct plan *p, struct gap **gaps, int32_t *n);

/* Bytes by purpose for the table a person sees. */
struct plan_summary {
    int64_t parameters, gradients, optimizer, kept, recomputed, workspace;
    int32_t recomputed_ops;
};
void plan_summarize(const struct graph *g, const struct plan *p, struct plan_summary *s);

#endif
