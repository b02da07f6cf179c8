/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A compiled program: the tape, its plan, the instructions they lower to, and the host buffers of
 * inputs and outputs.  ckpt_compile makes all of it; a step only submits the instructions.
 *
 * The exec room takes a recorded step and a plan to a device.  It decides
 *
 * - what is compiled: among the variants and sizes of micro-steps the one whose plan is the
 *   fastest (compile.c), with one plan for all ranks, made by rank 0 (one_plan.c);
 * - when times are measured before a plan is made (measure/warm.h);
 * - how the programs of a context share memory: all use the same parameters at the bottom of the
 *   arena, and a program that no longer fits beside a new one is planned again (others.c);
 * - the instructions of a step (lower.c): queue, waits and addresses of each.  They are made once,
 *   and the device may record them;
 * - what a failure means: which op or copy failed, and whether the weights are still whole
 *   (failure.c).
 *
 * After compile nothing is decided and nothing is allocated: a step is a loop over an array, with
 * at most two steps in flight.  struct programs (programs.h) is the fourth part of the context and
 * points to the other three; a program knows its struct programs, and no context.
 *
 * The room may use every room below: core, tape, plan, memory, dist, optim.  Public calls, state
 * and report call it.  One thread at a time uses the programs of one context; the device's threads
 * see instructions and the bytes they name, nothing else.
 */
#ifndef CKPT_PROGRAM_H
#define CKPT_PROGRAM_H

#include <string.h>
#include "collective.h"
#include "exec/programs.h"
#include "plan/plan.h"
#include "plan/scale/pipeline.h"
#include "tape/tape.h"

enum instr_kind {
    INSTR_COMPUTE,
    INSTR_COPY_IN,     /* an input: I/O buffer to device */
    INSTR_COPY_OUT,    /* an output: device to I/O buffer */
    INSTR_OFFLOAD_IN,  /* host bytes to device */
    INSTR_OFFLOAD_OUT, /* device to host bytes */
    INSTR_READ,        /* NVMe tier to host bytes */
    INSTR_WRITE,       /* host bytes to NVMe tier */
    INSTR_RECORD,
    INSTR_WAIT,
    INSTR_POISON /* fills a range with NaN, under --verify */
};

struct instr {
    enum instr_kind kind;
    enum queue queue;
    int32_t op;       /* COMPUTE: position on the tape */
    int32_t step;     /* COMPUTE, COPY: of the plan */
    int32_t first;    /* COMPUTE: its operands in lowered.views */
    int32_t event;    /* RECORD, WAIT */
    bool for_threads; /* RECORD: a queue that is a host thread waits for it */
    bool for_ranks;   /* WAIT: the compute queue waits for a collective */
    bool deferred;    /* COMPUTE: of the step before, whose numbers it gets */
    int32_t micro;    /* COMPUTE, COPY_IN, COPY_OUT: see struct op */
    int32_t buffer;   /* COPY_IN: index of the feed; COPY_OUT: of the fetch */
    int32_t copy;     /* OFFLOAD, READ, WRITE: index of the plan's copy */
    void *device;     /* COPY, OFFLOAD, POISON: device bytes; COMPUTE: workspace */
    void *host;       /* OFFLOAD, READ, WRITE */
    int64_t offset;   /* READ, WRITE: in the tier */
    int64_t bytes;
};

struct lowered {
    struct {
        struct instr *data;
        int64_t capacity;
    } instrs;
    struct {
        struct ckpt_view *data;
        int64_t capacity;
    } views;
    struct handover *handover; /* of a step with offloads; see handover.h */
    int32_t n_instrs, n_body;  /* the body's instructions come first */
    int32_t n_views;
    int32_t first_event, end_event; /* device events [first, end): no other program uses these */
    int32_t last_fetch;             /* the last instruction that copies an output, or -1 */
    int64_t base;                   /* arena offset of the transient region these were made for */
    bool whole;                     /* instructions are complete and current */
    bool defers;                    /* some are deferred updates */
};

/* Host staging buffer of an input or output: one slice per micro-step, one set of slices per
 * in-flight slot.  The device allocates it. */
struct io_buffer {
    char *data[DEVICE_IN_FLIGHT]; /* a constant has one buffer for all slots */
    int64_t slice;                /* bytes of one micro-step */
    int64_t bytes;                /* bytes of all slices */
    bool fed;
    bool stale[DEVICE_IN_FLIGHT]; /* an input that was fed into the other slot since */
    int32_t stage;                /* an output of a program that does not train: what computes it */
};

/* Consecutive kernels of a step with offloads, recorded: see segments.h.  Instructions
 * [first, end). */
struct segment {
    int32_t first, end;
    struct device_step *step;
};

/* How the kernels of collectives reach the other ranks. */
struct program_ranks {
    struct ops_ranks ops;
    struct ckpt_program *p;
};

/* Buffers that red_zones.c reuses from call to call: one set for the host queue, one for the
 * others. */
struct zone_buffers {
    struct ckpt_program *p;
    char *block;
    int64_t bytes;
    void *list, *views;
    uint64_t *sums;
    int64_t operands; /* capacity of the lists */
};

/* What a stage of a pipeline tells the others of its plan. */
struct stage_plan {
    struct stage_seconds time;
    int64_t sent, peak, least; /* bytes to the next stage; of the device; the smallest budget */
    int64_t held, budget;      /* bytes of its parameters; of its rank's device */
    int32_t from, to;          /* its ops of the model; to is 0: it was not planned */
    bool lacks;                /* no plan fits; least may then be a bound */
    char layers[64];           /* "layers.0 to layers.5", or "" */
    char device[16];           /* "cuda", as --device has it */
    char refused[CKPT_MESSAGE - 256]; /* why no plan fits, if that was searched for */
};

struct ckpt_program {
    struct programs *programs; /* the list it is in */
    struct ckpt_program *next;
    ckpt_tape *tape;
    struct graph *graph;
    struct plan *plan;
    struct graph *old_graph; /* set while another compile replans this program: what it had */
    struct plan *old_plan;   /* NULL otherwise */
    int64_t old_reserved;
    struct lowered lowered;
    const struct ckpt_program *follows; /* the program whose step precedes this one; NULL: itself */
    struct timing *timing;              /* NULL unless the ops are timed */
    struct io_buffer *feeds, *fetches;  /* per tape feed and fetch */
    struct host_counts *counts;         /* see host_counts.h; NULL: none */
    struct ckpt_run *runs;              /* per in-flight slot and micro-step */
    struct ckpt_run *runs_before;   /* per slot: that of the step before, for deferred updates */
    int run_slot;                   /* the slot of the last step */
    int32_t *halt;                  /* for runs: set by a step that failed */
    struct index_report *bad_index; /* for runs: one per in-flight slot */
    struct device_step *recorded[DEVICE_IN_FLIGHT]; /* NULL: submitted instruction by instruction */
    struct {
        struct segment *data; /* of a step with offloads, in submission order */
        int64_t capacity;
    } segments;
    int32_t n_segments;
    int64_t batch;
    int64_t reserved;         /* budget bytes that others used when the plan was made */
    int64_t steps, submitted; /* completed; submitted.  Step n uses in-flight slot n % 2 */
    int64_t
        sequence[DEVICE_IN_FLIGHT]; /* per slot: the step's number among its optimizer's steps */
    int mark[DEVICE_IN_FLIGHT];     /* per slot: the device's mark for the step */
    int64_t before;                 /* steps of the runs that a loaded state resumes */
    int64_t random_offset;          /* added to the step that random numbers are drawn for */
    bool explicit_step; /* set by ckpt_set_random_step: ranks number micro-steps from 0 */
    float lr;
    bool trains;
    bool brief; /* its plan need not report the smallest budget: see ckpt_plan_in_full */
    bool choice_changes_bits;         /* see struct ckpt_program_info */
    struct ckpt_optimizer *optimizer; /* owned by the context; NULL unless it trains */
    int32_t *groups;                  /* per parameter, its optimizer group: optim_resolve */
    bool *frozen;                     /* per parameter */
    struct program_ranks ranks;
    double grad_norm;
    double ended;                   /* as ckpt_program_info.ended */
    double begun[DEVICE_IN_FLIGHT]; /* when the steps under way were submitted */
    int32_t loss, norm;             /* fetches, or -1 */
    int32_t request[CKPT_REQUESTS];
    bool compared; /* the ranks have compared what they start from */
    struct zone_buffers zones[2];
    struct stage_plan *stages; /* of all stages; NULL: there are none */
    struct stage_try cut;      /* ops of this stage in the recording that found where to cut */
    double pipeline_seconds;   /* of a step of all of them */
};

struct ckpt_variant;

/* Inputs and outputs of the library begin with this; a program does not feed or fetch them. */
#define PROGRAM_OWN  "ckpt."
#define PROGRAM_LOSS PROGRAM_OWN "loss" /* the output that program_draft adds */

static inline bool program_name_is_own(const char *name)
{
    return !strncmp(name, PROGRAM_OWN, sizeof PROGRAM_OWN - 1);
}

/* program_draft records one variant with `micro` samples per micro-step and makes its graph with
 * times.  program_run_first runs its kernels for the first time, which may give ops other times and
 * leave less memory.  program_plan makes a plan that fits: the plan of
 * --plan-in if there is one and the program trains (programs beside it are planned anew), else a
 * searched one.  program_drop_plan undoes both.  Return 0 or a code, the sentence in the context.
 */
int program_draft(struct ckpt_program *p, const struct ckpt_variant *variant, int64_t micro);
int program_run_first(struct ckpt_program *p);
int program_plan(struct ckpt_program *p);
/* The smallest budget of the draft, or INT64_MAX; all ranks get that of rank 0, stages their own.
 */
int program_least_budget(struct ckpt_program *p, int64_t *bytes);
/* As program_plan, but a refusal is about the budget that was asked for, after this has risen. */
int program_plan_asked(struct ckpt_program *p);
/* rc is what planning for good returned.  While refusals are gathered and it is one, the budget
 * rises, n_refused is counted up, and the draft gets a plan all the same; the sentence stays.
 * Returns 0 or a code. */
int program_plan_anyway(struct ckpt_program *p, int rc);
/* Lower bound on the seconds of any plan of the draft; INFINITY: none fits.  All ranks call it,
 * rank 0 gets the value. */
int program_bound(struct ckpt_program *p, double *seconds);
/* Writes the plan to the file of --plan-out if the program trains and none was refused. */
int program_write_plan(struct ckpt_program *p);
bool program_plan_is_given(const struct ckpt_program *p);
void program_drop_plan(struct ckpt_program *p);

/* Allocates host buffers for inputs and outputs.  Returns 0 or a code, the sentence in the
 * context; free them in either case. */
int program_make_io_buffers(struct ckpt_program *p);
/* The stages of a pipeline give each other the outputs of a step that does not train. *bad becomes
 * the rank that has to say why there are none, if that is another one. */
int program_share_outputs(struct ckpt_program *p, int slot, int *bad);
/* Before an in-flight slot is used: allocates its buffers if the program was to run once. */
int program_open_slot(struct ckpt_program *p, int slot);
void program_free_io_buffers(struct ckpt_program *p);

/* Bytes of the program's persistent storages that have an address in the arena. */
int64_t program_placed_bytes(const struct ckpt_program *p);

/* For programs compiled before p, which has its plan and is the first of the list: fit_others plans
 * those again that no longer fit beside it, restore_others undoes that, keep_others commits it, and
 * move_others makes their instructions anew where addresses changed.  Returns 0 or a code, the
 * sentence in the context. */
int program_fit_others(struct ckpt_program *p);
void program_restore_others(struct programs *ps);
void program_keep_others(struct programs *ps);
int program_move_others(struct ckpt_program *p);

/* Whether p and another program of the context train, or will. */
bool program_trains_in_turn(const struct ckpt_program *p);

/* Stages of a pipeline (pipeline.c).  program_plan_stages: plans a draft on all ranks, or all
 * stages of ranks that do not exist, and sets stages and pipeline_seconds.  While a stage does not
 * fit it cuts again, from a variant and a size. */
int program_plan_stages(struct ckpt_program *p, const struct ckpt_variant *variant, int64_t micro);

/* Whether the next program may cut the model anew: it is the first, and no rank has values yet. */
bool programs_may_cut(const struct programs *ps);

/* The environment that a program's tape gets from the context. */
struct tape_env programs_tape_env(const struct programs *ps);

/* Offset in a tier at which the plan of p may begin.  One program runs at a time, so all programs
 * share the bytes above the backing residences. */
int64_t program_tier_base(const struct ckpt_program *p, int tier);

/* Before the first step on the host: opens the host queue.  Returns 0 or a code, the sentence in
 * the error. */
int programs_open_steps(struct programs *ps);

/* Assigns the addresses of the parameters. */
void program_place(struct ckpt_program *p);

/* Maps the arena, writes the values of parameters, makes the instructions.  By then the other
 * programs no longer use the new parameters' addresses, even if this fails.  Returns 0 or a code,
 * the sentence in the context. */
int program_map_memory(struct ckpt_program *p);

/* Makes the instructions for the current base of the arena, and has the device record them.  Not
 * while a step is in flight.  Returns 0 or a code, the sentence in the context: if memory runs out
 * there are no instructions, and it has to be called again. */
int program_prepare(struct ckpt_program *p);

/* Lowers the plan to instructions with addresses; none if it fails.  Returns 0, CKPT_ENOMEM or the
 * device's code. */
int program_lower(struct ckpt_program *p);
void lowered_free(struct lowered *l);

/* Before the first kernel of the context runs: selects in the libraries the algorithms that the
 * machine and --plan-in name, for every program.  All ranks get those of rank 0, as with the plan.
 * program_broadcast_measured broadcasts those that rank 0 has measured since.  Once the program has
 * its plan, program_store_algorithms stores the algorithms in it.  On the CPU all three do nothing.
 * Return 0 or a code, the sentence in the context. */
int program_load_algorithms(struct ckpt_program *p);
int program_broadcast_measured(struct ckpt_program *p);
int program_store_algorithms(struct ckpt_program *p);
/* Adds to list the algorithms for a machine file: those of the machine except where the library no
 * longer uses them, and those measured to be faster than the library's first proposal. */
int program_list_algorithms(const struct ckpt_program *p, struct algorithms *list);

/* Steps in flight of the optimizer, which p has. */
int64_t program_under_way(const struct ckpt_program *p);

/* Fills the struct ckpt_run of each micro-step of the next step.  Seed and micro-steps are the same
 * in all steps: a recorded step keeps the values it was recorded with. */
void program_set_runs(struct ckpt_program *p, int slot);

/* Has the device record the step of each in-flight slot if it can; of a step with offloads only the
 * kernels between its copies.  Earlier recordings are freed.  Returns 0, CKPT_ENOMEM or the
 * device's code. */
int program_record(struct ckpt_program *p);
void program_forget(struct ckpt_program *p);

/* program_find_budgets: the budgets to plan with, this rank's or the smallest of all ranks; sets
 * p->reserved to the bytes already used of the device's.  Then rank 0 plans, and
 * program_broadcast_plan broadcasts its plan or, where rc is not 0, code and sentence. */
int program_find_budgets(struct ckpt_program *p, struct budgets *b);
int program_broadcast_plan(struct ckpt_program *p, int rc);
/* Broadcasts, in the same way, the algorithms of rank 0 that came from files or were measured. */
int program_broadcast_algorithms(struct ckpt_program *p, struct algorithms *algorithms, int rc);
/* Broadcasts bytes of rank 0, or the code that it ended with. */
int program_broadcast_bytes(struct ckpt_program *p, int rc, int64_t *bytes);
/* Broadcasts rank 0's decision: all ranks go on with the same. */
int program_broadcast_decision(struct ckpt_program *p, bool *decision);

/* Sets p->ranks. */
void program_join_ranks(struct ckpt_program *p);
/* Unlike stages: memory of the host for what they send.  Ranks on CPUs run no op before the first
 * step, so collectives with them are not warmed up.  Returns 0 or a code, with the sentence. */
int program_reserve_transfers(const struct ckpt_program *p);
/* Nobody will wait for the steps of p in flight: removes them from its optimizer's sequence. */
void program_drop_in_flight(struct ckpt_program *p);
/* Submits all instructions of one step to the device and marks their end. */
void program_submit(struct ckpt_program *p, int slot);

/* After a failure no step in flight counts, of p or another program of its optimizer.  Returns rc.
 */
int program_abandon(struct ckpt_program *p, int rc);
/* The update of this step made a weight infinite or NaN: the weights are lost. norm: of its
 * gradients; NaN: no longer known.  Returns the code, with the sentence. */
int program_report_update(struct ckpt_program *p, int64_t step, double norm);

/* The output of this name, or -1. */
int32_t program_find_fetch(const struct ckpt_program *p, const char *name);

/* The callback of WRITE: user is the tier. */
int program_write_tier(void *user, int64_t offset, void *host, int64_t bytes);

/* Finds the first value that is not finite in the step of this slot: `where` becomes its input, or
 * its op, for which the step runs again and changes nothing; and its rank, if several run the step:
 * then the call is collective. index: this rank had an index out of range.  Returns 0 or a code,
 * with the sentence in the error. */
int program_find_nan(struct ckpt_program *p, int slot, bool index, char *where, size_t size);

/* The first output of the step of this slot with a value that is not finite, or -1. */
int32_t program_find_bad_output(const struct ckpt_program *p, int slot);

/* Whether copies of its step may still run when the next one begins. */
static inline bool program_is_offloaded(const struct ckpt_program *p)
{
    return p->plan->n_copies > 0;
}

/* Whether host threads may wait for its events: for file I/O, or for kernels on the host. */
static inline bool program_has_threads(const struct ckpt_program *p)
{
    return p->programs->memory->tiers[TIER_NVME] || p->programs->memory->host_steps;
}

/* Whether one step is expected (runs): only the first in-flight slot is prepared, and no step is
 * recorded.  More steps run all the same. */
static inline bool program_runs_once(const struct ckpt_program *p)
{
    return p->programs->options->runs == 1;
}

/* Whether all ranks run its step together. */
static inline bool program_is_shared(const struct ckpt_program *p)
{
    return p->trains && p->programs->ranks->sharing.ranks > 1;
}

#endif
