/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The programs of a context: the backend they run on, the machine they are planned for, and the
 * list of them.  Knows the parts of the context below programs: parameters, memory, ranks.
 */
#ifndef CKPT_PROGRAMS_H
#define CKPT_PROGRAMS_H

#include "core/fp8.h"
#include "core/notes.h"
#include "plan/graph/machine.h"
#include "plan/watch.h"
#include "dist/ranks.h"

struct ckpt_program;

struct ckpt_optimizer; /* optim/optimizer.h */
struct frontiers;      /* plan/plan.h */

/* Files that options ask for and that were written, as bits. */
enum written { WRITTEN_PLAN = 1, WRITTEN_GRAPH = 2, WRITTEN_MACHINE = 4, WRITTEN_TRACE = 8 };

/* What takes time before the first step: see ckpt_profile_print. */
enum startup {
    STARTUP_OPEN,
    STARTUP_LOAD,
    STARTUP_RECORD,
    STARTUP_LINKS,
    STARTUP_SCRATCH,
    STARTUP_COMPILE,
    STARTUP_FIRST_RUNS,
    STARTUP_TIMES,
    STARTUP_PLAN,
    STARTUP_BUFFERS,
    STARTUP_MEMORY,
    STARTUP_VALUES,
    STARTUP_INSTRUCTIONS,
    STARTUP_COUNT
};

struct programs {
    struct ckpt_options *options; /* borrowed from the context, as all up to the error */
    struct params *params;
    struct memory *memory;
    struct ranks *ranks;
    struct error *error;                 /* of public calls on a program */
    enum ckpt_backend backend;           /* the device programs run on, or are planned for */
    enum matmul_dtype matmul;            /* --matmul */
    bool int8;                           /* --activations 8bit */
    struct machine machine;              /* the planner's rates and op times */
    struct ckpt_program *first;          /* the last compiled one; a list */
    struct ckpt_optimizer *optimizers;   /* every optimizer of the context, a list */
    struct ckpt_program *last_submitted; /* the program of the last submitted step, or NULL */
    struct ckpt_program *pending;        /* its last step deferred updates (deferred.h), or NULL */
    int64_t submitted;                   /* steps submitted */
    int event_set;                       /* 0 or 1: the set of handover events recorded last */
    struct {
        uint64_t *data; /* cost keys of the ops whose kernels have run once on the device */
        int64_t capacity;
    } warm;
    int32_t n_warm;
    unsigned written;           /* bits of enum written */
    bool timed_links;           /* programs_time_links has run */
    struct frontiers *searched; /* Pareto frontiers, kept until the first step, or NULL */
    bool mixed;                 /* ranks may differ in the program of a step: ckpt_mix_programs */
    bool gathers;               /* refused programs are planned anyway: see ckpt_gather_refusals */
    int n_refused;              /* of these; nothing is mapped after the first */
    int64_t budget;             /* device bytes to plan for: the smallest of all ranks', and the
                                   smallest that holds them once programs were refused */
    int64_t asked;              /* the budget before it rose for them */
    struct plan_watch watch;    /* of these searches */
    unsigned without;           /* see struct tape_env; only tests set it */
    int64_t epilogue_tiles;     /* the same; 0: what the kernels of the device need */
    bool brief;                 /* default for programs compiled next: see ckpt_plan_in_full */
    bool in_turn;               /* several will train: see ckpt_train_in_turn */
    double opened, first_step;  /* clock_seconds() then; 0: not yet */
    double startup[STARTUP_COUNT]; /* seconds */
};

/* Counts the seconds since `begin` under s, unless a step has begun.  Returns the time now. */
static inline double startup_add(struct programs *ps, enum startup s, double begin)
{
    const double now = clock_seconds();
    if (ps->first_step <= 0)
        ps->startup[s] += now - begin;
    return now;
}

/* ckpt_compile_variants and ckpt_forecast of a context: see ckpt.h.  The pointers are not NULL but
 * for an optimizer and for variant. */
int programs_compile(struct programs *ps, int n, const struct ckpt_variant *variants,
                     const struct ckpt_optimizer *optimizer, int64_t batch,
                     struct ckpt_program **out, int *variant);
int programs_forecast(struct programs *ps, const struct ckpt_variant *variant,
                      const struct ckpt_optimizer *optimizer, int64_t batch, double limit,
                      struct ckpt_forecast *forecast);

/* ckpt_mix_programs of a context: see ckpt_dist.h. */
int programs_mix(struct programs *ps, const struct ckpt_program **differs);

/* Frees the frontiers that are kept for the plans of further programs. */
void programs_forget_searches(struct programs *ps);

/* Whether nothing is mapped and nothing runs: --plan-only, or a program was refused. */
bool programs_only_plan(const struct programs *ps);

/* Bytes the arena must hold: the persistent region and the transient region of the largest program.
 */
int64_t programs_arena_bytes(const struct programs *ps);

/* Bytes of a tier that parameters and plans use. */
int64_t programs_tier_bytes(const struct programs *ps, int tier);

/* Sets the sentence of a failure that the device returned, in program p if that is known; from now
 * on the weights count as lost.  Returns rc. */
int programs_fail_device(struct programs *ps, const struct ckpt_program *p, int rc);

/* A program that trains: the steps it has run, including those before a state that was loaded, and
 * the samples of one step over all ranks. */
struct training_count {
    int64_t steps, samples;
};

/* The number of programs that train, and their counts in the order they were compiled. */
int programs_count_training(const struct programs *ps);
void programs_get_counts(const struct programs *ps, struct training_count *counts);
void programs_set_counts(struct programs *ps, const int64_t *steps, int64_t updates);
/* A digest of how many steps each of them has submitted; and the number of all updates, including
 * those in flight. */
uint64_t programs_digest_steps(const struct programs *ps);
int64_t programs_count_updates(const struct programs *ps);
/* Adds the library's notes about the programs that train to l, for a state file.  The names begin
 * with "ckpt.".  Returns 0 or CKPT_ENOMEM. */
int programs_list_notes(const struct programs *ps, struct note_list *l);
/* The step number that seeds the random numbers of p's next step; no two programs that train share
 * one. */
int64_t program_random_step(const struct ckpt_program *p);
/* The next step of p draws the random numbers of `step`, the one after it those of step + 1. */
void program_draw_as(struct ckpt_program *p, int64_t step);
/* Whether no step of any program is in flight. */
bool programs_are_idle(const struct programs *ps);

/* The device is idle.  Does the updates that the last step deferred (deferred.h); user is a struct
 * programs.  Returns 0 or a code, with the sentence. */
int programs_run_pending(void *user);

/* The device calls this while the caller waits (struct device): checks whether another rank failed
 * or a collective makes no progress.  user is a struct programs. */
int programs_poll(void *user, int32_t *op);

#endif
