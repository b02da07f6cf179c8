/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: what leaves the device, when, and where it lies meanwhile. */
#ifndef CKPT_PLAN_TRANSFER_H
#define CKPT_PLAN_TRANSFER_H

#include "plan/offload/range_max.h"
#include "plan/search/search.h"

/*
 * How a storage is away: copied out after step out_step has ended, gone from the device after step
 * free_step, its room taken again from step in_step on, its bytes back before its next use starts.
 * Without a copy out free_step is out_step.  Round the end of the step free_step may be a step of
 * the next one, and is then below out_step.
 */
struct away {
    enum fate tier; /* FATE_OFFLOAD_HOST or FATE_OFFLOAD_NVME */
    int32_t out_step, free_step, in_step;
    int64_t tier_offset;
    double out_start, out_end, in_start, in_end; /* as in a copy */
    int32_t behind; /* the residence on the device that follows, once the plan has it */
};

/* A stretch between two uses of a storage that may be spent elsewhere. */
struct idle_gap {
    int32_t storage, residence; /* residence: of the plan; -1 for a persistent storage */
    int32_t out_step, use_step;
    int64_t bytes;
    bool wraps, clean;
    bool state;    /* of a persistent storage that only the update uses */
    bool needed;   /* a storage that is offloaded anywhere must be offloaded here too */
    bool forced;   /* it is offloaded in any case: its backing is a lower tier */
    bool gradient; /* of a value whose update runs on the host: it leaves as it is made */
    bool taken;
    int32_t group;       /* its value leaves with the gradient, for this one; or -1 */
    struct away offload; /* if taken */
};

/* An update that may run on the host. */
struct update_group {
    int32_t step, value; /* of the plan; the idle gap of its value round the end of the step */
    int32_t gradient;    /* that of its gradient up to the norm, or -1 */
    int32_t sent;        /* the step behind which the gradient may go */
    int64_t state;       /* bytes that then live in the host tier */
    int64_t takes;       /* of them and the value: what is not there yet */
    double seconds;      /* on the host */
    bool taken;
    double start, end; /* if taken */
};

/* The idle gaps of a plan without offloads, those of one storage together, in the order of
 * out_step.
 */
int idle_gaps_find(const struct graph *g, const struct machine *m, const struct plan *p,
                   struct idle_gap **list, int32_t *n);

/* Idle gaps in an order. */
struct ranking {
    int32_t *items;
    int32_t n;
};

struct comm_queue;

/* A schedule whose idle gaps are being chosen. */
struct transfer {
    const struct graph *g;
    const struct machine *m;
    const struct budgets *b;
    struct plan *p;
    struct idle_gap *list;
    int32_t n;
    struct ranking states, weights, activations;
    struct ranking by_out, by_use; /* all of them */
    int64_t *whole;                /* per step: bytes on the device if nothing leaves */
    int64_t *needed;               /* and with what is taken away at once, and back just in time */
    struct range_max committed;    /* and with what is brought in earlier */
    struct ranking outs[TIER_COUNT], cleans; /* cleans: what is taken and leaves without a copy */
    struct ranking held;                     /* of these: what a collective held at its leaving */
    struct ranking ins[TIER_COUNT]; /* what is taken, per tier, in the order of the queues */
    bool *gone;                     /* per idle gap: its copy out is complete */
    int64_t tier[TIER_COUNT];       /* bytes that what is taken adds to the tiers */
    double *length, *rest;          /* per step: its seconds on the device; with all behind it */
    double *free, *start;           /* per step: when all before it is done, and when it starts */
    double seconds;                 /* a whole step */
    bool drained;                   /* it ends with its copies, for no two steps are alike */
    bool tight;                     /* nothing stays longer for a collective */
    struct place_key *keys;         /* for sorting */
    struct comm_queue *comm;        /* of the plan, or NULL */
    double exposed_comm;            /* by the clock, as seconds */
    struct update_group *groups;
    int32_t n_groups, *group_at;   /* per step, or -1 */
    struct place_key *group_order; /* in which they are taken */
    int32_t clip, clip_step;     /* the clip values that they need, and the step that makes them */
    int64_t clip_offset;         /* of these in the host tier */
    double clip_start, clip_end; /* of their copy */
    int32_t hosted;              /* groups taken */
    int64_t hosted_bytes;        /* of their state */
    double hosted_seconds;       /* what their updates would take on the device */
    bool *host_resident;         /* per storage: state or value of a group taken */
};

/* Puts the updates of a plan in the order in which the forward pass uses what they make. */
int updates_sort(const struct graph *g, struct plan *p);

/* Lists the groups.  Takes of them with so many bytes of state, as far as there is room in the
 * tiers: returns what is left of that.  Writes those taken into the plan, and the copy of the clip
 * values; the record has room for it. */
int hosted_find(struct transfer *x);
/* What an update takes on the host: it reads and writes its state and the value. */
double hosted_seconds(const struct graph *g, const struct machine *m, const struct graph_op *o);
int64_t hosted_choose(struct transfer *x, double bytes, int64_t room);
void hosted_rewrite(struct transfer *x);

int transfer_new(const struct graph *g, const struct machine *m, const struct budgets *b,
                 struct plan *p, struct transfer **x);
void transfer_free(struct transfer *x);

/* Takes these amounts, and more until no step needs more than device bytes or nothing more can
 * leave.  Returns the most bytes that a step still needs. */
int64_t transfer_choose(struct transfer *x, const double amounts[AMOUNTS], int64_t device);
/* Gives what is taken its tier, and its address there unless a sketch will do; *fits is false if
 * the tiers are too small. */
int transfer_assign(struct transfer *x, bool sketch, bool *fits);
/* Plays the step with what is taken: sets the times and steps of its copies, and seconds; or those
 * to INFINITY once it is clear that they are above limit. */
void transfer_play(struct transfer *x, int64_t device, double limit);
/* Plays the step once more with the copies out in an order that leaves few holes (outs.c). */
int transfer_order_outs(struct transfer *x, int64_t device);
/* Assigns what is taken, as a sketch, and plays it if *fits.  Returns 0 or CKPT_ENOMEM. */
int transfer_try(struct transfer *x, int64_t device, double limit, bool *fits);
/* A hash of what is taken, of which option and for how many device bytes. */
uint64_t transfer_key(const struct transfer *x, int64_t device, int32_t option);
/* Writes what is taken into the plan: residences and copies. */
int transfer_rewrite(struct transfer *x);

#endif
