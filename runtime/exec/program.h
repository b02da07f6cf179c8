/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A compiled program: the tape, its plan, the instructions they lower to, and the host bytes that
 * inputs come from and outputs go to.  Everything is made by ckpt_compile; a step only walks.
 *
 * The exec room takes a recorded step and a plan to a device.  It decides
 *
 * - what is compiled: among the variants and sizes of micro-steps the one whose plan is the
 *   fastest (compile.c), with one plan for all ranks, made by rank 0 (one_plan.c);
 * - which times are measured before a plan is made (warm.c), on scratch bytes of the arena;
 * - what the programs of a context mean to each other: all stand above the same parameters, and
 *   one that no longer fits beside another is planned anew (others.c);
 * - the instructions of a step (lower.c): which queue runs what, what waits for what, at which
 *   address.  They are made once, and may be recorded by the device;
 * - what a failure means: which op or copy it was, and whether the weights are still whole
 *   (failure.c).
 *
 * After compile nothing is decided and nothing is allocated: a step is a walk over an array, with
 * two steps under way at most.  struct programs (programs.h) is the fourth part of the context and
 * holds pointers to the three that it stands on; a program knows its struct programs, and no
 * context.
 *
 * The room may know every room below: core, tape, plan, memory, dist, optim.  It is called by
 * public calls, by state and by report.  Programs of one context are used by one thread at a time;
 * the device's threads see instructions and the bytes they name, nothing else.
 */
#ifndef CKPT_PROGRAM_H
#define CKPT_PROGRAM_H

#include "collective.h"
#include "exec/programs.h"
#include "plan/plan.h"
#include "tape/tape.h"

enum instr_kind {
    INSTR_COMPUTE,
    INSTR_COPY_IN,
    INSTR_COPY_OUT,
    INSTR_PARK_IN,  /* host bytes to the device */
    INSTR_PARK_OUT, /* and the other way */
    INSTR_READ,     /* tier to host bytes */
    INSTR_WRITE,
    INSTR_RECORD,
    INSTR_WAIT,
    INSTR_POISON
};

struct instr {
    enum instr_kind kind;
    enum queue queue;
    int32_t op;       /* COMPUTE: position on the tape */
    int32_t first;    /* COMPUTE: its operands in lowered.views */
    int32_t event;    /* RECORD, WAIT */
    bool for_threads; /* RECORD: a queue of files or of the host waits for it */
    int32_t port;     /* COPY_IN: feed; COPY_OUT: fetch */
    int32_t copy;     /* PARK, READ, WRITE: of the plan */
    void *device;     /* COPY, PARK, POISON: device bytes; COMPUTE: workspace */
    void *host;       /* PARK, READ, WRITE */
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
    struct turns *turns;      /* of a step with parks; see turns.h */
    int32_t n_instrs, n_body; /* the body's instructions come first */
    int32_t n_views;
    int32_t first_event, end_event; /* of the device's events: no other program has these */
    int32_t last_fetch;             /* the last instruction that copies to a port, or -1 */
    int64_t base;                   /* of the transient region when this was made */
    bool whole;                     /* nothing is missing */
};

/* Host bytes of an input or output: one slice per micro-step, and a set for each step under way. */
struct port {
    char *data[DEVICE_FLIGHTS]; /* a constant has one for all */
    int64_t slice;              /* bytes of one micro-step */
    int64_t bytes;              /* of all */
    bool fed;
    bool stale[DEVICE_FLIGHTS]; /* an input that was fed again for the other step */
};

/* Kernels in a row of a step with parks, recorded: see record.h.  Instructions [first, end). */
struct segment {
    int32_t first, end;
    struct device_step *step;
};

/* How the kernels of collectives reach the other ranks. */
struct program_ranks {
    struct ops_ranks ops;
    struct ckpt_program *p;
};

/* Room that red_zones.c keeps from call to call: one for the queue of the host, one for the rest.
 */
struct zone_room {
    struct ckpt_program *p;
    char *block;
    int64_t bytes;
    void *list, *views;
    int64_t operands; /* that both lists have room for */
};

struct ckpt_program {
    struct programs *programs; /* of which it is one */
    struct ckpt_program *next;
    ckpt_tape *tape;
    struct graph *graph;
    struct plan *plan;
    struct graph *old_graph; /* while another program is compiled, which moves this one: */
    struct plan *old_plan;   /* what it had; else NULL */
    int64_t old_reserved;
    struct lowered lowered;
    const struct ckpt_program *follows; /* whose step the one at hand waits for; NULL: its own */
    struct timing *timing;              /* NULL unless the ops are timed */
    struct port *feeds, *fetches;       /* per tape feed and fetch */
    struct ckpt_run *runs;              /* per step under way and micro-step */
    int32_t *halt;                      /* of runs: set by a step that failed */
    struct index_report *bad_index;     /* of runs: one per step under way */
    struct device_step *recorded[DEVICE_FLIGHTS]; /* NULL: handed over command by command */
    struct {
        struct segment *data; /* of a step with parks, as they come */
        int64_t capacity;
    } segments;
    int32_t n_segments;
    int64_t batch;
    int64_t reserved;             /* bytes of the budget that others took when the plan was made */
    int64_t steps, submitted;     /* done and waited for; handed over.  Step n has flight n % 2 */
    int64_t turn[DEVICE_FLIGHTS]; /* of steps under way: the how manieth of the optimizer */
    int mark[DEVICE_FLIGHTS];     /* and by which mark the device knows them */
    int64_t before;               /* steps of the runs that this one goes on with */
    int64_t shift;                /* of the steps that random numbers are drawn by */
    bool told;                    /* of a rank that is not the first: by which, whatever the rank */
    float lr;
    bool trains;
    bool brief; /* its plan need not tell the smallest budget: see ckpt_plan_in_full */
    bool choice_changes_bits;         /* see struct ckpt_program_info */
    struct ckpt_optimizer *optimizer; /* where it trains: the context's */
    int32_t *groups;                  /* of it, per parameter: optim_resolve */
    bool *frozen;                     /* per parameter */
    struct program_ranks ranks;
    double grad_norm;
    double ended; /* as ckpt_program_info.ended */
    int32_t loss, norm; /* fetches, or -1 */
    int32_t request[CKPT_REQUESTS];
    bool compared; /* of several ranks: what it begins with */
    struct zone_room zones[2];
};

struct ckpt_variant;

#define PROGRAM_LOSS "ckpt.loss" /* the output that program_draft adds */

/* Records one variant of the tape, with micro-steps of so many samples, and makes the graph of it,
 * with times: kernels run for the first time here.  plan gives it a plan that fits: that of
 * --plan-in where there is one and the program trains (what samples beside it is planned anew),
 * else one that is searched for.  drop_plan undoes both.  Return 0 or a code, the sentence in the
 * context.
 */
int program_draft(struct ckpt_program *p, const struct ckpt_variant *variant, int64_t micro);
int program_plan(struct ckpt_program *p);
/* No plan of the draft takes fewer seconds; INFINITY: none fits.  For rank 0, a call of all. */
int program_bound(struct ckpt_program *p, double *seconds);
/* Writes the plan where --plan-out says, if the program trains. */
int program_write_plan(struct ckpt_program *p);
bool program_plan_is_given(const struct ckpt_program *p);
void program_drop_plan(struct ckpt_program *p);

/* Takes memory of the host for inputs and outputs.  Returns 0 or a code, the sentence in the
 * context; free them in either case. */
int program_make_ports(struct ckpt_program *p);
void program_free_ports(struct ckpt_program *p);

/* Of the bytes of the program's persistent storages those that have a place in the arena. */
int64_t program_placed_bytes(const struct ckpt_program *p);

/* Of programs compiled before p, which has its plan and is the first of the list: fit_others plans
 * those again that no longer fit beside it, restore_others undoes that, keep_others ends it, and
 * move_others makes their instructions anew where something moved.  Returns 0 or a code, the
 * sentence in the context. */
int program_fit_others(struct ckpt_program *p);
void program_restore_others(struct programs *ps);
void program_keep_others(struct programs *ps);
int program_move_others(struct ckpt_program *p);

/* What the tape of a program knows of its context. */
struct tape_env programs_tape_env(const struct programs *ps);

/* Where in a tier the plan of p may begin.  One program runs at a time, so all share what lies
 * above the homes. */
int64_t program_tier_base(const struct ckpt_program *p, int tier);

/* Before the first step on the host: opens its queue, and has programs recorded again that were
 * when no thread could wait for an event.  Returns 0 or a code, the sentence in the error. */
int programs_open_steps(struct programs *ps);

/* Gives the parameters their places. */
void program_place(struct ckpt_program *p);

/* Maps the arena, writes the values of parameters, makes the instructions.  The others have left
 * the places of these by then, whatever fails.  Returns 0 or a code, the sentence in the
 * context. */
int program_take_memory(struct ckpt_program *p);

/* Makes the instructions for where the arena is now, and has the device record them.  Not while a
 * step is under way.  Returns 0 or a code, the sentence in the context: without memory for them
 * there are none, and it is to be called again. */
int program_get_ready(struct ckpt_program *p);

/* Resolves the plan to instructions with addresses; to none where it fails.  Returns 0, CKPT_ENOMEM
 * or the device's code. */
int program_lower(struct ckpt_program *p);
void lowered_free(struct lowered *l);

/* Before the first kernel of the context runs: tells libraries to use the algorithms that the
 * machine and --plan-in name, for whichever program; of ranks all get those of rank 0, as one plan.
 * spread: those that rank 0 has measured since, too.  Once the program has its plan: keeps those
 * used with it.  All do nothing on the CPU and return 0 or a code, the sentence in the context. */
int program_take_algorithms(struct ckpt_program *p);
int program_spread_algorithms(struct ckpt_program *p);
int program_keep_algorithms(struct ckpt_program *p);
/* Adds to list the algorithms for a machine file: those of the machine, but where the library no
 * longer takes them, and those that were measured to be faster than what the library proposes. */
int program_list_algorithms(const struct ckpt_program *p, struct pins *list);

/* Runs every kind of op of the program on scratch bytes of the arena: libraries load their code and
 * choose their algorithms before the budget is divided, and the context's machine gets the times of
 * ops it has none for.  Does nothing on the CPU.  Returns 0, CKPT_ENOMEM or the device's code. */
int program_warm(struct ckpt_program *p);

/* Fills what the kernels of the next step see of it.  Seed and micro-steps are the same in all
 * steps: a recorded step keeps those it was recorded with. */
void program_set_runs(struct ckpt_program *p, int flight);

/* Has the device record the step of each flight, where it can; of one with parks the kernels
 * between its copies.  What was recorded before is forgotten.  Returns 0, CKPT_ENOMEM or the
 * device's code. */
int program_record(struct ckpt_program *p);
void program_forget(struct ckpt_program *p);

/* The budgets to plan with: those of this rank, or the smallest of all ranks; p->reserved is what
 * is taken of that of the device.  Then rank 0 plans, and this hands on to all its plan or, where
 * rc says that there is none, code and sentence. */
int program_find_budgets(struct ckpt_program *p, struct budgets *b);
int program_share_plan(struct ckpt_program *p, int rc);
/* Hands on to all ranks, in the same way, which pins of rank 0 came from files or were measured. */
int program_share_algorithms(struct ckpt_program *p, struct pins *pins, int rc);
/* What all ranks must decide alike is decided by rank 0. */
int program_decide(struct ckpt_program *p, bool *decision);

/* Sets p->ranks. */
void program_join_ranks(struct ckpt_program *p);
/* Steps of p that are under way will not be waited for: those of its optimizer close up. */
void program_leave_row(struct ckpt_program *p);
/* Hands all instructions of one step to the device and marks their end. */
void program_walk(struct ckpt_program *p, int flight);

/* The output of this name, or -1. */
int32_t program_find_fetch(const struct ckpt_program *p, const char *name);

/* What WRITE calls: user is the tier. */
int program_write_tier(void *user, int64_t offset, void *host, int64_t bytes);

/* Runs the step of this flight again, op by op; it changes nothing.  *op is the tape op of the
 * first result that is not finite, or -1; *feed an input that was not finite to begin with, or -1.
 * Returns 0 or the device's code. */
int program_find_nan(struct ckpt_program *p, int flight, int32_t *op, int32_t *feed);

/* The first output of the step of this flight with a value that is not finite, or -1. */
int32_t program_find_bad_output(const struct ckpt_program *p, int flight);

/* Whether copies of its step may be under way when the next one begins. */
static inline bool program_is_parked(const struct ckpt_program *p)
{
    return p->plan->n_copies > 0;
}

/* Whether threads of the host may wait for its events: for files, or with kernels of their own. */
static inline bool program_has_threads(const struct ckpt_program *p)
{
    return p->programs->memory->tiers[TIER_NVME] || p->programs->memory->host_steps;
}

/* Whether its step is one of all ranks together. */
static inline bool program_is_shared(const struct ckpt_program *p)
{
    return p->trains && p->programs->ranks->sharing.ranks > 1;
}

/* The kernel that runs an op on the device of this program, or NULL. */
static inline ckpt_kernel program_kernel(const struct ckpt_program *p, int32_t op)
{
    const struct ckpt_op_def *def = p->tape->ops.data[op].def;
    return p->programs->backend == CKPT_ON_CUDA ? def->cuda : def->cpu;
}

#endif
