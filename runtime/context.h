/* The context: options, device, parameters and where their bytes are. */
#ifndef CKPT_CONTEXT_H
#define CKPT_CONTEXT_H

#include <signal.h>
#include "base.h"
#include "ckpt_op.h"
#include "device/device.h"
#include "notes.h"
#include "plan/plan.h"
#include "tier/tier.h"

enum { SLOT_VALUE, SLOT_MASTER, SLOT_EXP_AVG, SLOT_EXP_AVG_SQ, SLOT_EMA, SLOT_COUNT };

/* A load ended midway: values, or whole states, are some of the file and some of before. */
enum torn { TORN_NOT, TORN_VALUES, TORN_STATE };

struct param {
    char *name;
    struct ckpt_desc desc;
    struct ckpt_init init;
    bool trainable;
    float *initial; /* the value set on the host, kept until an fp32 copy is on the device */
    enum home home[SLOT_COUNT]; /* where a slot lives between steps */
    int64_t offset[SLOT_COUNT]; /* in the arena or the tier; -1: it has no place yet */
    bool filled[SLOT_COUNT];    /* its bytes hold a value */
    uint64_t set[CKPT_EMA + 1]; /* of several ranks: a digest of what was set; 0: nothing was */
    int64_t part, part_first;   /* part > 0: slots but VALUE are of so many elements from here on */
    bool reordered;             /* files have its axes in the order of file_axes */
    int file_axes[CKPT_MAX_DIMS];
};

/* The files that options ask for, as bits. */
enum written { WRITTEN_PLAN = 1, WRITTEN_GRAPH = 2, WRITTEN_MACHINE = 4 };

struct ckpt {
    struct ckpt_options options;
    enum ckpt_backend backend; /* whose kernels programs run, or would run */
    int64_t budget;            /* bytes; INT64_MAX: none */
    int64_t overhead; /* device bytes of the process outside the arena, inside the budget */
    int64_t asked;    /* what was asked for, if the device has less; else 0 */
    char least[96];   /* "--vram of rank 2": where ranks have other budgets, the smallest; or "" */
    struct tier_directories directories; /* of options.nvme */
    struct machine machine;              /* to plan with */
    struct device *device;
    struct tier *tiers[TIER_COUNT]; /* NULL: not asked for, or only planned */
    struct tier_pin pin;
    bool host_steps; /* the queue of steps on the host is open */
    char *staging;   /* the slots between device and files: those out, then those in */
    void *rounding;  /* PLAN_STAGING_SLOT for bf16 values to and from the device, once needed */
    char no_gpu[CKPT_MESSAGE]; /* why --device auto took the CPU; "" if it did not look further */
    struct {
        uint64_t *data; /* cost keys of the ops whose kernels have run once on the device */
        int64_t capacity;
    } warm;
    int32_t n_warm;
    struct {
        struct param *data;
        int64_t capacity;
    } params;
    int32_t n_params;      /* the hidden ones, if any, are the last */
    int32_t n_hidden;      /* buckets of the layout, each a parameter of its own */
    struct comm *comm;     /* of two ranks or more; NULL: one alone, or others only planned for */
    struct layout *layout; /* of the parameters across ranks, from the first compile on */
    int32_t *noted;        /* see struct ops_ranks; NULL but on a GPU */
    int32_t seen;          /* of noted: how often */
    double seen_at;        /* and when that changed, in clock_seconds() */
    int rank, ranks;
    uint64_t host;      /* where this rank runs */
    int hosts;          /* that the ranks run on; 0: not known yet */
    int per_host;       /* ranks on each of the hosts; 0: not all have as many */
    int *seats;         /* ranks, host by host; NULL: not known yet */
    int sharers;        /* ranks that share one copy of everything: all, or those of each host */
    int replicas;       /* so many copies there are */
    int replica, place; /* which of them this rank has which share of */
    struct comm *within, *across; /* of several copies: the ranks of this one; those of its place */
    int over;                     /* enum ranks_over */
    bool settled;                 /* on the above */
    char routes[64];              /* from this rank's GPU to those of others on its host; or "" */
    struct rank_place *places;    /* per rank: where it runs; NULL: not known yet */
    int asked_zero;               /* what zero is unless no rank shares anything */
    bool passing; /* what is gathered at 3 is dropped between forward and backward, room or not */
    int zero; /* 0: every rank has everything; 1: all values and its share of the state; 2: shares,
                 gathered once a step; 3: when needed */
    int64_t persistent;            /* bytes at the bottom of the arena that hold parameters */
    struct ckpt_program *programs; /* list */
    struct ckpt_program *walked;   /* the last that handed over a step, or NULL */
    int64_t lost;                  /* the step that failed and left the weights in pieces, or 0 */
    enum torn torn;
    struct note_list notes;                       /* of ckpt_state_note */
    bool differ;                                  /* it was the ranks that have come to differ */
    int64_t updates;                              /* optimizer steps so far */
    volatile sig_atomic_t request[CKPT_REQUESTS]; /* 1: of this rank */
    bool requested[CKPT_REQUESTS];                /* by any of several, in a step that has ended */
    bool values_agreed; /* all ranks have set their parameters to the same */
    uint64_t rates;     /* of several ranks: a digest of all learning rates so far */
    unsigned written;   /* bits of enum written */
    int error;          /* sticky: a failed ckpt_param */
    char message[CKPT_MESSAGE];
};

/* Gives a slot its place, if it has none: at the end of the persistent region, or where a plan
 * parks it.  context_fill_slots writes the values of the slots placed since the last call, once
 * there is memory behind them. */
void context_place_slot(ckpt *c, int32_t param, int slot, const struct plan_park *park);
int context_fill_slots(ckpt *c);

/* The arena must hold this many bytes: the persistent region and the largest program. */
int64_t context_arena_bytes(const ckpt *c);

/* A plan alone, with the rates of a machine file: it needs no device but one to hold the context
 * together. */
bool context_plans_for_another(const ckpt *c);

/* Stores the sentence and returns code. */
int context_fail(ckpt *c, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

/* The sentence of a failure that the device returned, in program p where that is known; from now on
 * the weights count as lost.  Returns rc. */
int context_fail_device(ckpt *c, const struct ckpt_program *p, int rc);
/* Returns 0, or CKPT_EDEVICE and the sentence where the weights are lost. */
int context_check_lost(ckpt *c);
/* The same, and CKPT_EIO where a load that ended midway left values of both. */
int context_check_whole(ckpt *c);

/* The parameter behind a handle, or NULL. */
struct param *context_param(const ckpt *c, ckpt_tensor x);

/* Of a program that trains: the steps it has run, those before a state that was loaded included,
 * and the samples of one, of all ranks together. */
struct training_count {
    int64_t steps, samples;
};

/* The programs that train, in the order they were compiled. */
int context_count_training(const ckpt *c);
void context_get_counts(const ckpt *c, struct training_count *counts);
void context_set_counts(ckpt *c, const int64_t *steps);
/* What the library has to say in a state of the programs that train, added to l.  The names begin
 * with "ckpt.".  Returns 0 or CKPT_ENOMEM. */
int context_list_notes(const ckpt *c, struct note_list *l);
/* Is no step of any program under way? */
bool context_is_idle(const ckpt *c);

/* Does the context have such a slot of p? */
bool param_keeps(const ckpt *c, const struct param *p, enum ckpt_slot slot);

/* Elements of a slot, and its bytes: VALUE in its dtype, the others fp32. */
int64_t param_slot_numel(const struct param *p, int slot);
int64_t param_slot_bytes(const struct param *p, int slot);

/* Shape of a parameter as files have it; strides are those of its own memory. */
struct ckpt_desc param_file_desc(const struct param *p);

/* All values of a parameter whose axes are reordered, from its own order to that of files, and
 * back. */
void param_to_file(const struct param *p, const float *src, float *dst);
void param_from_file(const struct param *p, const float *src, float *dst);

/* Fills dst with n values from element `first` on, which follow from (seed, name, init). */
void param_initialize(const struct param *p, uint64_t seed, int64_t first, int64_t n, float *dst);

#endif
