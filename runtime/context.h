/* The context: options, device, parameters and where their bytes are. */
#ifndef CKPT_CONTEXT_H
#define CKPT_CONTEXT_H

#include <signal.h>
#include "base.h"
#include "ckpt_op.h"
#include "device/device.h"
#include "notes.h"
#include "params.h"
#include "plan/plan.h"
#include "tape/tape.h"
#include "tier/tier.h"

/* A load ended midway: values, or whole states, are some of the file and some of before. */
enum torn { TORN_NOT, TORN_VALUES, TORN_STATE };

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
    struct params params;
    struct comm *comm; /* of two ranks or more; NULL: one alone, or others only planned for */
    int32_t *noted;    /* see struct ops_ranks; NULL but on a GPU */
    int32_t seen;      /* of noted: how often */
    double seen_at;    /* and when that changed, in clock_seconds() */
    struct sharing sharing;
    int rank;
    uint64_t host;                /* where this rank runs */
    int hosts;                    /* that the ranks run on; 0: not known yet */
    int per_host;                 /* ranks on each of the hosts; 0: not all have as many */
    int *seats;                   /* ranks, host by host; NULL: not known yet */
    struct comm *within, *across; /* of several copies: the ranks of this one; those of its place */
    int over;                     /* enum ranks_over */
    bool settled;                 /* on the above */
    char routes[64];              /* from this rank's GPU to those of others on its host; or "" */
    struct rank_place *places;    /* per rank: where it runs; NULL: not known yet */
    int asked_zero;               /* what zero is unless no rank shares anything */
    int64_t persistent;           /* bytes at the bottom of the arena that hold parameters */
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

/* What its tapes know of it. */
struct tape_env context_tape_env(const ckpt *c);

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

#endif
