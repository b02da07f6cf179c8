/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The programs of a context: whose kernels they run, with which times they are planned, and the
 * list of them.  Knows what programs stand on: parameters, memory, ranks.
 */
#ifndef CKPT_PROGRAMS_H
#define CKPT_PROGRAMS_H

#include "core/fp8.h"
#include "core/notes.h"
#include "plan/graph/machine.h"
#include "dist/ranks.h"

struct ckpt_program;

struct ckpt_optimizer; /* optim/optimizer.h */
struct frontiers;     /* plan/plan.h */

/* The files that options ask for, as bits. */
enum written { WRITTEN_PLAN = 1, WRITTEN_GRAPH = 2, WRITTEN_MACHINE = 4, WRITTEN_TRACE = 8 };

struct programs {
    struct ckpt_options *options; /* of the context, as are those up to the error */
    struct params *params;
    struct memory *memory;
    struct ranks *ranks;
    struct error *error;
    enum ckpt_backend backend;           /* whose kernels programs run, or would run */
    enum matmul_dtype matmul;            /* --matmul */
    bool int8;                           /* --activations 8bit */
    int64_t joined_tiles;                  /* see struct tape_env */
    struct machine machine;              /* to plan with */
    struct ckpt_program *first;          /* the youngest; a list */
    struct ckpt_optimizer *optimizers;   /* all that were made, a list */
    struct ckpt_program *last_submitted; /* the last that handed over a step, or NULL */
    int64_t walked;                      /* steps that were handed over */
    int joint; /* of the two sets of events at which programs join, that of the last time */
    struct {
        uint64_t *data; /* cost keys of the ops whose kernels have run once on the device */
        int64_t capacity;
    } warm;
    int32_t n_warm;
    unsigned written;            /* bits of enum written */
    bool timed_links;            /* the rates between device and host were looked at */
    struct frontiers *searched; /* kept from plan to plan until the first step, or NULL */
    bool brief;                  /* programs are compiled so from now on: see ckpt_plan_in_full */
};

/* Frees what is kept for the plans of further programs. */
void programs_forget_searches(struct programs *ps);

/* The arena must hold this many bytes: the persistent region and the largest program. */
int64_t programs_arena_bytes(const struct programs *ps);

/* Before the first plan: times what lies between the device and a host tier, unless --machine says
 * it.  Returns 0 or the device's code. */
int programs_time_links(struct programs *ps);

/* The sentence of a failure that the device returned, in program p where that is known; from now on
 * the weights count as lost.  Returns rc. */
int programs_fail_device(struct programs *ps, const struct ckpt_program *p, int rc);

/* Of a program that trains: the steps it has run, those before a state that was loaded included,
 * and the samples of one, of all ranks together. */
struct training_count {
    int64_t steps, samples;
};

/* The programs that train, in the order they were compiled. */
int programs_count_training(const struct programs *ps);
void programs_get_counts(const struct programs *ps, struct training_count *counts);
void programs_set_counts(struct programs *ps, const int64_t *steps, int64_t updates);
/* A digest of how many steps each of them has handed over; and all updates, those under way
 * included. */
uint64_t programs_digest_steps(const struct programs *ps);
int64_t programs_count_updates(const struct programs *ps);
/* What the library has to say in a state of the programs that train, added to l.  The names begin
 * with "ckpt.".  Returns 0 or CKPT_ENOMEM. */
int programs_list_notes(const struct programs *ps, struct note_list *l);
/* By which the next step of p draws its random numbers; of programs that train no two share one. */
int64_t program_random_step(const struct ckpt_program *p);
/* The next step of p draws the random numbers of this one, and so on. */
void program_draw_as(struct ckpt_program *p, int64_t step);
/* Is no step of any program under way? */
bool programs_are_idle(const struct programs *ps);

/* What the device calls while the caller waits (struct device): looks whether another rank failed,
 * or a collective has no end.  user is a struct programs. */
int programs_look(void *user, int32_t *op);

#endif
