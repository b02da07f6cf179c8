/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: which storages are offloaded, when they are copied, and their tier addresses.
 */
#ifndef CKPT_PLAN_TRANSFER_H
#define CKPT_PLAN_TRANSFER_H

#include "plan/offload/range_max.h"
#include "plan/search/search.h"

/*
 * The steps and times of one offload.  The copy out begins after step out_step, the device address
 * is free after step free_step, an address is in use again from step in_step on, and the copy in
 * ends before the next use starts.  Without a copy out free_step is out_step.  For an idle gap that
 * wraps around the end of the step, free_step may be a step of the next one; it is then below
 * out_step.
 */
struct offload_times {
    int8_t tier;
    int32_t out_step, free_step, in_step;
    int64_t tier_offset;
    double out_start, out_end, in_start, in_end; /* seconds, as in struct copy */
    int32_t next_residence; /* the following residence on the device; set by transfer_rewrite */
};

/* An interval between two uses of a storage in which it may be offloaded. */
struct idle_gap {
    int32_t storage, residence; /* residence: its index in the plan; -1: a persistent storage */
    int32_t out_step, use_step;
    int64_t bytes;
    bool wraps;    /* around the end of the step */
    bool clean;    /* it needs no copy out: the tier has the bytes */
    bool state;    /* the storage is persistent and only the update uses it */
    bool needed;   /* if the storage is offloaded in any gap, it must be in this one */
    bool forced;   /* always offloaded: the backing tier of the storage is a lower one */
    bool gradient; /* of a value updated on the host: the gradient is copied out when made */
    bool stays;    /* the gradient of a repeated update: its bytes stay on the device, too */
    bool taken;
    int32_t group; /* the update group by the host or both that it belongs to, or -1 */
    struct offload_times offload; /* valid if taken */
};

/*
 * An update that may run on the host.  Or the host repeats it: then the device computes the value
 * from the state that comes in, and the host the state, from the gradient, which it gets a copy of.
 * So the state is not copied out.  A repeated update may be deferred to the next body.
 */
struct update_group {
    int32_t step;     /* of the plan */
    int32_t value;    /* the idle gap of its value around the end of the step; -1: it stays, so the
                         host can only repeat the update */
    int32_t gradient; /* the idle gap of its gradient up to the norm, or -1 */
    int32_t sent;     /* the gradient may be copied out after this step */
    int32_t made;     /* the last step that writes the gradient */
    int32_t storage;  /* of the value */
    int32_t use;      /* the first step that uses the value */
    int64_t state;    /* bytes of state that are then resident in the host tier */
    int64_t takes;    /* bytes of state and value that are not in the host tier yet */
    double seconds;   /* of the update on the host */
    bool repeatable;  /* it may be repeated, ... */
    bool deferrable;  /* and deferred */
    enum plan_by by;  /* who runs it, and, as in struct plan_step, ... */
    int32_t before;   /* when */
    int64_t host_offset; /* of the copy of the gradient, if repeated */
    double end;          /* of the update on the host */
};

/* Lists the idle gaps of a plan without offloads, sorted by storage, then by out_step.  The list is
 * in a pool.  Returns 0 or CKPT_ENOMEM. */
int idle_gaps_find(const struct graph *g, const struct machine *m, const struct plan *p,
                   struct pool *memory, struct idle_gap **list, int32_t *n);

/* A sorted list of idle gaps. */
struct ranking {
    int32_t *items;
    int32_t n, start; /* start: all items before it are taken */
};

struct comm_queue;

/* A schedule, its idle gaps and the current selection of them. */
struct transfer {
    const struct graph *g;
    const struct machine *m;
    const struct budgets *b;
    struct plan *p;
    struct idle_gap *list;
    int32_t n;
    struct ranking states, weights, activations;
    struct ranking by_out, by_use;   /* all gaps, by out_step and by use_step */
    int64_t *whole;                  /* per step: device bytes if nothing is offloaded */
    int64_t *needed;                 /* per step: device bytes if all taken gaps are offloaded, each
                                        freed at once and brought back just in time */
    struct range_max committed;      /* needed, and copies in that begin earlier */
    struct ranking outs[TIER_COUNT]; /* taken gaps with a copy out, in the order of the queue */
    struct ranking cleans;           /* taken gaps without a copy out */
    struct ranking held;             /* of these: those that a collective still read at out_step */
    struct ranking ins[TIER_COUNT];  /* taken gaps in the order of the queue in */
    bool counted;                    /* committed has the bytes that the taken gaps leave */
    bool *gone;                      /* per idle gap: its copy out is complete */
    int64_t tier[TIER_COUNT];        /* bytes that taken gaps add to the tiers */
    double *length, *rest; /* per step: seconds on the device; the same from this step to the end */
    double *free, *start;  /* per step: when all steps before it are done, and when it starts */
    double seconds;        /* a whole step */
    bool drained;          /* steps do not become periodic, so each one ends with its copies */
    bool tight;            /* no storage stays longer because a collective reads it */
    bool serial;           /* nothing is copied beside a step: few holes between addresses */
    bool drains;           /* a step ends with its last copy: fewer holes, too */
    int64_t most, used;    /* the selection may take `most` bytes of the tiers, and takes `used` */
    struct place_key *keys;  /* for sorting */
    struct comm_queue *comm; /* of the plan, or NULL */
    double exposed_comm;     /* seconds that the step waits for collectives */
    /* Groups in the order of their steps.  list[n + i] is no gap of the plan but the copy of the
     * gradient of group i, for the queues. */
    struct update_group *groups;
    int32_t n_groups, *group_at;   /* group_at: per step its group, or -1 */
    struct place_key *group_order; /* the order in which groups are taken */
    struct place_key *by_made;     /* groups by the step that makes the gradient */
    int32_t *wrap_of;              /* per storage: the idle gap around the end of the step, or -1 */
    int8_t *by;                    /* per storage that a group writes: who runs its update */
    int64_t copied_bytes;          /* of the copies of their gradients */
    int32_t repeated, deferred;    /* number of groups; deferred ones are repeated, too */
    int32_t last_deferred;         /* the last step with a deferred update before it */
    int32_t clip_last;             /* the last step of the residence of the clip values */
    int32_t clip, clip_step;       /* storage of the clip values, and the step that makes them */
    int64_t clip_offset;           /* address of the clip values in the host tier */
    double clip_start, clip_end;   /* seconds of their copy out */
    int32_t hosted;                /* number of groups by the host */
    int64_t hosted_bytes;          /* of their state */
    double hosted_seconds;         /* of their updates if they ran on the device */
    struct pool memory;
};

/* The first of the gaps of gap i's storage, and the gap after them. */
int32_t gaps_first(const struct transfer *x, int32_t i);
int32_t gaps_end(const struct transfer *x, int32_t i);

/* Sorts the updates of a plan by the first use of their values in the forward pass. */
int updates_sort(const struct graph *g, struct plan *p);

/* Lists the update groups.  Returns 0 or CKPT_ENOMEM. */
int hosted_find(struct transfer *x);
/* Seconds of an update on the host: it reads and writes its state and the value. */
double hosted_seconds(const struct graph *g, const struct machine *m, const struct graph_op *o);
/* Takes groups with the amounts of state that the host runs and repeats, limited by the free bytes
 * `room` of the tiers.  Returns the free bytes that remain. */
int64_t hosted_choose(struct transfer *x, const double amounts[AMOUNTS], int64_t room);
/* Whether the host runs or repeats any update. */
static inline bool hosted_any(const struct transfer *x)
{
    return x->hosted + x->repeated > 0;
}
/* Marks the updates of taken groups in the plan and adds the copies of the clip values and of
 * gradients; the caller has reserved space in the record. */
void hosted_rewrite(const struct transfer *x, struct plan *p);

/* The budgets are set before each selection. */
int transfer_new(const struct graph *g, const struct machine *m, struct plan *p,
                 struct transfer **x);
void transfer_free(struct transfer *x);

/* Takes idle gaps of these amounts, and further ones until no step needs more than `device` bytes
 * or no gap is left.  Returns the most bytes that a step needs. */
int64_t transfer_choose(struct transfer *x, const double amounts[AMOUNTS], int64_t device);
/* A lower bound of the seconds of a step with the copies of the taken gaps. */
double transfer_least(const struct transfer *x);
/* Assigns tiers to the taken gaps, and tier addresses unless it is an unplaced plan; *fits is false
 * if the tiers are too small. */
int transfer_assign(struct transfer *x, bool unplaced, bool *fits);
/* Simulates the step with the taken gaps: sets the times and steps of their copies, and seconds.
 * Stops with seconds INFINITY as soon as they must exceed limit. */
void transfer_simulate(struct transfer *x, int64_t device, double limit);
/* Simulates the step again with the copies out in an order that leaves few holes (outs.c). */
int transfer_order_outs(struct transfer *x, int64_t device);
/* Assigns tiers to the taken gaps as an unplaced plan, and if *fits simulates the step.  Returns 0
 * or CKPT_ENOMEM. */
int transfer_try(struct transfer *x, int64_t device, double limit, bool *fits);
/* A hash of the taken gaps and groups, the device budget and the option. */
uint64_t transfer_key(const struct transfer *x, int64_t device, int32_t option);
/* Writes the taken gaps into p, a copy of the plan.  Returns 0 or CKPT_ENOMEM. */
int transfer_rewrite(struct transfer *x, struct plan *p);

#endif
