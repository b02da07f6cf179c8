/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libckpt: train under a memory budget.
 *
 * A program records its model on a tape; the library differentiates the tape, plans what stays
 * in device memory, what is computed again and what is offloaded, and then runs steps in
 * exactly the memory it planned.  The life of a program:
 *
 *     ckpt_options_parse -> ckpt_open -> ckpt_param ... -> ckpt_compile -> ckpt_feed, ckpt_step ...
 *
 * Headers, by reader.  A program that trains needs one include: ckpt.h brings ckpt_ops.h and
 * ckpt_conv.h (the ops a recorder calls) and ckpt_optim.h (optimizers).  The others are included by
 * who needs them:
 *
 *     ckpt_nn.h      modules: a linear layer, an MLP, attention as structs of parameters
 *     ckpt_files.h   safetensors files, loading and saving parameters and states of training
 *     ckpt_dist.h    several ranks that train one model
 *     ckpt_tools.h   option tables, checked output files, random values, progress
 *     ckpt_op.h      ops of your own
 *
 * All compile alone as C11 and as C++17.  C++ wants the word struct where a function has the name
 * of a struct: struct ckpt_sgd settings = CKPT_SGD_INIT.
 *
 * Conventions of every call
 *   - A call that can fail returns 0 or a negative CKPT_E... code; ckpt_error() holds the sentence.
 *   - Recording calls (those that take a ckpt_tape) return a tensor and never fail visibly: the
 *     first error sticks to the tape with the op, the shapes and the caller's file and line, later
 *     calls do nothing, and ckpt_compile() returns it.
 *   - The library never aborts, and prints only where a FILE is given.
 *   - Shapes are row-major, sizes in elements unless the name says bytes.
 *   - Structs that a program fills or has filled begin with their size, and have an _INIT macro
 *     that sets it and the defaults.  They grow at their end.  Read: what the caller's struct is
 *     too short for has its default; a longer one of a newer header is taken if all that is unknown
 *     here is 0, else it is CKPT_EINVAL.  Written: no byte behind the caller's size is touched, and
 *     what is unknown here is 0.  Structs by value or in arrays never change (ckpt_tensor,
 *     ckpt_desc, ckpt_init, ckpt_view, ckpt_variant, ckpt_option, ckpt_path, ckpt_fact).  Those
 *     that the library hands to rules and kernels (ckpt_op.h) grow at their end.
 *   - NULL where nothing allows it is CKPT_EINVAL.
 *
 * Threads
 *   - A context, with its tapes, programs and optimizers, is used by one thread at a time, of any.
 *     Two programs of one context share its memory, parameters and queues: calls on them take
 *     turns.
 *   - Two contexts share nothing: two threads may use one each at the same time, also to open and
 *     to close it.  Their steps then share processors, and each has kernel threads of its own.
 *   - ckpt_request_stop() and ckpt_request_save() may be called by any thread, and by a signal
 *     handler, while another uses the context.
 *   - Calls without a context (ckpt_tools.h, ckpt_file_...) may be made by any thread; two threads
 *     have two ckpt_error(NULL).
 *
 * The process.  The library handles, blocks and sends no signals, changes no umask, locale, working
 * directory or limit, and forks nothing.  What all of the process sees:
 *   - The first CPU context loads OpenBLAS for good, sets it to one thread, and has
 *     OPENBLAS_NUM_THREADS=1 in the environment while it loads.  Other threads must not change the
 *     environment meanwhile, as with any setenv().
 *   - Ranks on GPUs set NCCL_NVLS_ENABLE, NCCL_GRAPH_REGISTER and NCCL_MIN_CTAS once, where these
 *     are not set.  Ranks by MPI call MPI_Init_thread(), unless the program did.
 *   - A CUDA context makes its GPU the current one of the calling thread.
 *   - The environment is read (CKPT_..., and what launchers set), files are written where options
 *     say so, and memory of --host is registered with the GPU's driver.
 */
#ifndef CKPT_H
#define CKPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CKPT_API          __attribute__((visibility("default")))
#define CKPT_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define CKPT_API
#define CKPT_PRINTF(f, a)
#endif

#define CKPT_VERSION_MAJOR 0
#define CKPT_VERSION_MINOR 2
#define CKPT_VERSION_PATCH 0

/* Of the header, and of the library that is running: 10000 major + 100 minor + patch. */
#define CKPT_VERSION_NUMBER                                                                        \
    (CKPT_VERSION_MAJOR * 10000 + CKPT_VERSION_MINOR * 100 + CKPT_VERSION_PATCH)
CKPT_API int ckpt_version_number(void);
/* The version of the library in words, as "0.2.0". */
CKPT_API const char *ckpt_version(void);

/* ---- errors -------------------------------------------------------------------------------- */

/* What a call that can fail returns: 0, or one of these. */
enum ckpt_code {
    CKPT_OK = 0,
    CKPT_EINVAL = -1,    /* an argument or option is wrong */
    CKPT_ENOMEM = -2,    /* the host has no memory for bookkeeping or for the arena */
    CKPT_ESHAPE = -3,    /* shapes or dtypes do not fit; found while recording */
    CKPT_EBUDGET = -4,   /* no plan fits the budget; nothing was run */
    CKPT_EIO = -5,       /* a file cannot be read or written */
    CKPT_EFORMAT = -6,   /* a file was read and is not what it should be */
    CKPT_ENAN = -7,      /* a loss, gradient, output or value to save is not finite */
    CKPT_EDEVICE = -8,   /* the device is missing or failed */
    CKPT_EPLAN = -9,     /* a plan does not belong to this program, or fails its check */
    CKPT_ENAME = -10,    /* no such parameter, input or output */
    CKPT_ECOMM = -11,    /* another rank failed, is gone or runs another program */
    CKPT_EINDEX = -12,   /* a step met an index or a label out of range */
    CKPT_EGRADIENT = -13 /* a gradient is not that of central differences (ckpt_gradcheck) */
};

/* The handles of the library.  Their contents are its own. */
typedef struct ckpt ckpt;                 /* a context: device, budget, parameters */
typedef struct ckpt_tape ckpt_tape;       /* a recording of one micro-batch */
typedef struct ckpt_program ckpt_program; /* a compiled tape: plan and instructions */
struct ckpt_optimizer;                    /* see ckpt_optim.h */

/*
 * The sentence of the last failed call on c: what failed, where, and what to do.  c may be NULL for
 * calls that have no context (ckpt_options_parse, ckpt_open, ckpt_file_...); that sentence is kept
 * per thread.  Never NULL; valid until the next call.
 */
CKPT_API const char *ckpt_error(const ckpt *c);
/* The name of an error code, as "CKPT_EBUDGET". */
CKPT_API const char *ckpt_error_name(int code);
/* ---- options ------------------------------------------------------------------------------- */

#define CKPT_AUTO (-1) /* the library chooses */

/*
 * options.vram beside a number of bytes and 0.  AUTO on a GPU: what is free when the context opens,
 * less what a process takes beside its arena (the machine file's "process"), so that another
 * process can still open the card.  AUTO on the CPU: what the system and its control groups have
 * left beside options.host, less a 64th that stays free (at most 1 GiB); not for several ranks.
 * NONE: plans as if the device had no end, and refuses what it does not hold.  Under both a step
 * that fits without a budget gets the plan that it gets without one.
 */
#define CKPT_VRAM_AUTO INT64_MIN
#define CKPT_VRAM_NONE INT64_MAX

/* The options of the library itself.  Fields are added at the end; size says how many are there. */
struct ckpt_options {
    size_t size;
    int64_t vram;          /* device budget: bytes; negative: per cent of the device; CKPT_VRAM_...;
                            * 0: AUTO on a GPU, NONE on the CPU */
    int64_t host;          /* bytes of host memory as a second tier; 0: none */
    const char *nvme;      /* DIR:SIZE[,DIR:SIZE ...] of a third tier on NVMe; NULL: none */
    const char *device;    /* "auto" (a GPU if there is one), "cpu", "cuda" */
    int64_t micro_batch;   /* samples per micro-step; 0: the batch; CKPT_AUTO: what is fastest */
    int64_t seed;          /* of initial values and of random ops */
    int64_t threads;       /* kernel threads of the CPU device; 0: one per core */
    const char *plan_in;   /* run this plan instead of searching one */
    const char *plan_out;  /* write the plan here */
    bool plan_only;        /* ckpt_compile stops after the plan; see ckpt_program_info.plan_only */
    bool verify;           /* check plans, poison freed bytes, red zones (CKPT_VERIFY=1) */
    const char *machine;   /* file, or name of a shipped one, with the rates to plan with; the
                            * algorithms that it names are used, but plan_in goes before */
    const char *graph_out; /* write the graph of the program that trains here, for "ckpt plan" */
    const char *machine_out; /* write the machine with the measured times of ops after some steps */
    bool profile;            /* time every op, for ckpt_profile_print; steps get a little slower */
    bool deterministic;      /* GPU kernels that give the same bits every time; the CPU's do */
    double io_deadline;      /* seconds without an answer from a disk that are too many; 0: 30 */
    bool tune;         /* measure algorithms of GPU libraries: those more than 3 % faster than what
                        * they propose are used; machine_out and plan_out keep them */
    const char *ranks; /* "mpi", "tcp:HOST:PORT", "file:PATH": see ckpt_dist.h; NULL: one alone */
    int64_t zero;      /* what ranks share: 0 nothing, 1 state, 2, 3 parameters too; CKPT_AUTO: 3 */
    double comm_deadline;   /* seconds without another rank that are too many; 0: 30 */
    const char *shard_over; /* which ranks share one copy: "host", "all"; NULL: what is faster */
    int64_t check_ranks;    /* updates between two comparisons of what ranks have; 0: none */
    const char *state;      /* "fp32", "bf16", "8bit": of bf16 parameters, see ckpt_optim.h */
    const char *trace_out;  /* write the queues of a step, planned and measured, as a trace */
    const char *matmul;     /* "bf16", "fp8", "fp8-block": see ckpt_linear; NULL: bf16 */
    /*
     * "8bit": the backward pass reads bf16 activations as 8-bit codes, with a scale for 128 values:
     * 1.016 bytes a value, off by a 254th of the largest one of these at most; results of norms,
     * GELU and the like it makes again of such.  Those of which all readers bear that: gradients of
     * weights, gates, norms, smooth functions.  Operands of attention, losses, masks, fp32, and
     * what has less than 4096 values a sample, stay.  That follows from the model alone, and the
     * forward pass, also where it is recomputed, reads bf16: so budgets and tiers change no bit.
     * ckpt_plan_print has the list.  "bf16" or NULL: none.
     */
    const char *activations;
};

#define CKPT_OPTIONS_INIT                                                                          \
    {                                                                                              \
        sizeof(struct ckpt_options), 0, 0, NULL, "auto", 0, 42, 0, NULL, NULL, false, false, NULL, \
            NULL, NULL, false, false, 0., false, NULL, CKPT_AUTO, 0., NULL, 1000, NULL, NULL,      \
            NULL, NULL                                                                             \
    }

/*
 * Takes the options of the library out of argv (argc and argv shrink), after those of the
 * environment: --micro-batch is also CKPT_MICRO_BATCH, and the command line wins.  An empty
 * variable counts as one that is not set.  What is left in argv is the program's own; see
 * ckpt_options_reject() in ckpt_tools.h.  Returns 0, or CKPT_EINVAL with the option and the value
 * in ckpt_error(NULL).
 */
CKPT_API int ckpt_options_parse(struct ckpt_options *opt, int *argc, char **argv);

/* ---- context ------------------------------------------------------------------------------- */

/*
 * Opens the device and reserves (does not take) the budget; opt NULL: defaults.  A CPU device also
 * loads OpenBLAS, with OPENBLAS_NUM_THREADS=1 in the environment meanwhile, and takes 128 MiB of
 * address space per thread for its products, one thread each.  Returns 0, CKPT_EINVAL, CKPT_ENOMEM
 * or CKPT_EDEVICE, the sentence in ckpt_error(NULL).
 */
CKPT_API int ckpt_open(ckpt **c, const struct ckpt_options *opt);
/* Frees the context, its parameters and every program compiled in it.  NULL is allowed. */
CKPT_API void ckpt_close(ckpt *c);

/* ---- tensors and parameters ---------------------------------------------------------------- */

/* The 8-bit ones (OCP FP8, e4m3 without infinity) are of tensors that the library makes for
 * products (options.matmul); parameters and what models compute with are fp32 or bf16. */
enum ckpt_dtype { CKPT_F32, CKPT_BF16, CKPT_I32, CKPT_F8E4M3, CKPT_F8E5M2 };
CKPT_API int64_t ckpt_dtype_size(enum ckpt_dtype dtype); /* bytes of one element */

#define CKPT_MAX_DIMS 8

/* A tensor of a tape, or a parameter of a context.  id 0 is "no tensor"; owner says whose it is, so
 * that a tensor of another tape is refused.  Neither is for programs to set. */
typedef struct ckpt_tensor {
    int32_t id;
    uint32_t owner;
} ckpt_tensor;

static inline ckpt_tensor ckpt_no_tensor(void)
{
    ckpt_tensor none;
    none.id = 0;
    none.owner = 0;
    return none;
}
#define CKPT_NONE ckpt_no_tensor()

/* dtype, shape and strides (in elements) of a tensor; offset is from the start of its storage. */
struct ckpt_desc {
    enum ckpt_dtype dtype;
    int ndim; /* -1: no tensor */
    int64_t shape[CKPT_MAX_DIMS];
    int64_t stride[CKPT_MAX_DIMS];
    int64_t offset;
};

enum ckpt_init_kind {
    CKPT_INIT_ZEROS,
    CKPT_INIT_ONES,
    CKPT_INIT_NORMAL,        /* N(0, a) */
    CKPT_INIT_UNIFORM,       /* U(-a, a) */
    CKPT_INIT_XAVIER_UNIFORM /* U(-b, b), b = sqrt(6 / (fan_in + fan_out)); Glorot & Bengio 2010 */
};

struct ckpt_init {
    enum ckpt_init_kind kind;
    float a;
};

static inline struct ckpt_init ckpt_init_of(enum ckpt_init_kind kind, float a)
{
    struct ckpt_init init;
    init.kind = kind;
    init.a = a;
    return init;
}

#define CKPT_ZEROS      ckpt_init_of(CKPT_INIT_ZEROS, 0.f)
#define CKPT_ONES       ckpt_init_of(CKPT_INIT_ONES, 0.f)
#define CKPT_NORMAL(s)  ckpt_init_of(CKPT_INIT_NORMAL, (s))
#define CKPT_UNIFORM(b) ckpt_init_of(CKPT_INIT_UNIFORM, (b))
#define CKPT_XAVIER     ckpt_init_of(CKPT_INIT_XAVIER_UNIFORM, 0.f)

/*
 * Makes a parameter.  name is unique in the context and is the key in saved files.  The initial
 * value follows from (seed, name) alone.  trainable = false makes a buffer: saved and loaded, and
 * changed by ckpt_update_buffer() alone; its value is what its dtype has of what was set.  A
 * parameter of dtype bf16 gets an fp32 master copy when it is trained, unless options.state is
 * "bf16" or "8bit".
 * For CKPT_XAVIER fan_out is shape[0] and fan_in the product of the rest.
 * The tensor may be used in every tape of this context.  Errors (a name used twice, a bad shape)
 * stick to the context and are returned by ckpt_compile; the result is then CKPT_NONE.
 */
CKPT_API ckpt_tensor ckpt_param(ckpt *c, const char *name, enum ckpt_dtype dtype, int ndim,
                                const int64_t *shape, struct ckpt_init init, bool trainable);

/* ckpt_param() with these first values, row-major, which are copied. */
CKPT_API ckpt_tensor ckpt_param_from(ckpt *c, const char *name, enum ckpt_dtype dtype, int ndim,
                                     const int64_t *shape, const float *values, bool trainable);

struct ckpt_param_info {
    size_t size;
    const char *name;
    struct ckpt_desc desc;
    int64_t numel;
    bool trainable;
};

#define CKPT_PARAM_INFO_INIT                                                                       \
    {                                                                                              \
        sizeof(struct ckpt_param_info), NULL, {CKPT_F32, 0, {0}, {0}, 0}, 0, false                 \
    }

/* Number of parameters, the i-th in order of creation, one by name: 0 or CKPT_ENAME. */
CKPT_API int ckpt_param_count(const ckpt *c);
CKPT_API ckpt_tensor ckpt_param_at(const ckpt *c, int i);
CKPT_API int ckpt_param_find(const ckpt *c, const char *name, ckpt_tensor *param);
CKPT_API int ckpt_param_info(const ckpt *c, ckpt_tensor param, struct ckpt_param_info *info);

/* What is kept for a trained parameter. */
enum ckpt_slot {
    CKPT_VALUE,          /* the value: the fp32 master where there is one */
    CKPT_EXP_AVG,        /* first moment or momentum of the optimizer */
    CKPT_EXP_AVG_SQ,     /* second moment */
    CKPT_EMA,            /* exponential moving average of that value */
    CKPT_EXP_AVG_SQ_ROW, /* second moment of a matrix, factored: [rows] */
    CKPT_EXP_AVG_SQ_COL  /* and [columns] */
};

/*
 * Copies a slot out as fp32, or in, when the steps that are under way have ended; ckpt_wait still
 * tells of these.  n must be the number of its elements.  Setting CKPT_VALUE sets
 * the master and its rounded copy, and restarts the EMA from it if no step was run yet; state in
 * bf16 or 8 bits takes the nearest values.  Returns 0, CKPT_EINVAL (n), CKPT_ENAME (no such
 * parameter or slot).
 */
CKPT_API int ckpt_param_get(ckpt *c, ckpt_tensor param, enum ckpt_slot slot, float *dst, int64_t n);
CKPT_API int ckpt_param_set(ckpt *c, ckpt_tensor param, enum ckpt_slot slot, const float *src,
                            int64_t n);

/* ---- recording: inputs and outputs --------------------------------------------------------- */

/* Remembers where the next recording call stands; the macros below use it. */
CKPT_API ckpt_tape *ckpt_tape_at(ckpt_tape *t, const char *file, int line);
#define CKPT_AT(t) ckpt_tape_at((t), __FILE__, __LINE__)

/* A label for what is recorded next ("spatial_blocks.3"), shown in plans and messages. */
CKPT_API void ckpt_label(ckpt_tape *t, const char *fmt, ...) CKPT_PRINTF(2, 3);

/* dtype and shape of a tensor of this tape.  If the tape has an error ndim is -1 and every size 1:
 * a model may go on and divide by it. */
CKPT_API struct ckpt_desc ckpt_desc_of(ckpt_tape *t, ckpt_tensor x);

/* An error of the recorder's own; it sticks as any other. */
CKPT_API void ckpt_tape_fail(ckpt_tape *t, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

/*
 * An input fed by name before a step.  shape[0] is the micro-batch: ckpt_feed takes the whole batch
 * and the library hands each micro-step its rows.
 */
CKPT_API ckpt_tensor ckpt_input(ckpt_tape *t, const char *name, enum ckpt_dtype dtype, int ndim,
                                const int64_t *shape);

/* A constant table; data (row-major, of dtype) is copied at once.  name may be NULL. */
CKPT_API ckpt_tensor ckpt_constant(ckpt_tape *t, const char *name, enum ckpt_dtype dtype, int ndim,
                                   const int64_t *shape, const void *data);

/* Makes x readable by ckpt_fetch after a step.  The rows of all micro-steps follow each other. */
CKPT_API void ckpt_output(ckpt_tape *t, const char *name, ckpt_tensor x);

/* Makes the gradient of the loss with respect to parameter w readable by ckpt_fetch, as fp32,
 * summed over the micro-steps, before clipping. */
CKPT_API void ckpt_output_gradient(ckpt_tape *t, const char *name, ckpt_tensor w);

/*
 * dx[i] becomes the gradient of the sum of y with respect to x[i], an input, a parameter or any
 * other tensor that y was computed from; of its shape and dtype, and 0 where y does not depend on
 * it.  It is computed by ops of the model, of which there is a gradient in turn (doc/ops.md): a
 * loss may depend on it, as a gradient penalty does (Gulrajani et al. 2017).  Where an op of one's
 * own recorded one that has none, ckpt_compile returns CKPT_EINVAL and names it.
 */
CKPT_API void ckpt_gradients(ckpt_tape *t, ckpt_tensor y, int n, const ckpt_tensor *x,
                             ckpt_tensor *dx);
/* x, of which no gradient goes on to what it was computed from.  A view. */
CKPT_API ckpt_tensor ckpt_stop_gradient(ckpt_tape *t, ckpt_tensor x);

/*
 * Gives a buffer (a parameter with trainable = false, fp32) a new value with the update of the
 * step: (1 - momentum) buffer + momentum value, value being a float tensor of its shape, momentum 0
 * to 1; with 1 it is assigned.  Everything in the step still reads the buffer as it was before.
 * Several calls for one buffer average in turn, and so do micro-steps, one behind the other: with
 * micro_batch CKPT_AUTO the batch stays whole.
 * Several ranks take the mean of what each would have.  A step that fails changes nothing, nor does
 * a program without an optimizer.  A value that is not finite, or above 1e19, ends the step with
 * CKPT_ENAN.  No gradient.
 */
CKPT_API void ckpt_update_buffer(ckpt_tape *t, ckpt_tensor buffer, ckpt_tensor value,
                                 float momentum);

/* ---- compile and run ----------------------------------------------------------------------- */

/* Records one micro-batch and returns its loss: a scalar to train, anything to run forward only. */
typedef ckpt_tensor (*ckpt_recorder)(ckpt_tape *t, int64_t micro_batch, void *user);

/*
 * Records, differentiates, plans and lowers.  optimizer, as ckpt_adamw() and others make it; NULL:
 * forward only.  batch is the number of
 * samples a step takes; options.micro_batch must divide it (or exceed it, where there is no
 * optimizer), or is CKPT_AUTO: then the model is recorded and planned at every size that divides
 * the batch, and the fastest step that fits is taken.  All a step needs is taken here.
 * Programs compiled before get another plan, with the same numbers, where they no longer fit beside
 * the parameters of this one.  Waits for their steps.  Returns 0; the tape's error; CKPT_EBUDGET
 * when no plan fits, of this program or of one before (those are then as they were): the sentence
 * names the smallest budget that does, the op at the peak, and what more memory would buy;
 * CKPT_EPLAN for a foreign plan file; CKPT_ENOMEM, CKPT_EIO, CKPT_EINVAL.
 */
CKPT_API int ckpt_compile(ckpt *c, ckpt_recorder record, void *user,
                          const struct ckpt_optimizer *optimizer, int64_t batch, ckpt_program **p);
/*
 * One step recorded in several variants.  A model may be cut in pieces that are computed one after
 * the other, as frames of a clip or bands of a picture: small pieces need less memory and take
 * longer.  The planner sees each variant as a whole and takes the best.
 */
struct ckpt_variant {
    ckpt_recorder record;
    void *user;
    /* Its results have the same bits as those of every other variant that says so; then which one a
     * budget takes cannot be seen in the numbers.  A variant that trains never has: the sums of
     * gradients over pieces have another order. */
    bool same_bits;
};

/*
 * ckpt_compile, but records and plans each of n variants to write down the same step and takes the
 * one whose plan is the fastest of those that fit the budget; with options.micro_batch CKPT_AUTO,
 * each at every size of micro-steps.  Of two that are as fast the first is taken.  All must have
 * the same inputs and outputs.  *variant (may be NULL) tells which it was.  When none fits the
 * sentence is about the last, so put that which needs least there.
 *
 * Random values follow from where their call stands on the tape: record them before what differs.
 * Where several were chosen among, and not all have the same bits, the budget may change the last
 * bits of the numbers: ckpt_program_info.choice_changes_bits and the plan table say so.
 */
CKPT_API int ckpt_compile_variants(ckpt *c, int n, const struct ckpt_variant *variants,
                                   const struct ckpt_optimizer *optimizer, int64_t batch,
                                   ckpt_program **p, int *variant);

/*
 * Whether the plans of programs that are compiled from now on tell everything; at first they do.
 * Without, a program that fits its budgets with nothing recomputed is not searched any further:
 * that takes a hundredth of the time, and of a run with many programs most of it.  Its step is as
 * fast, its peak may be a little higher, and ckpt_program_info.min_budget is 0.  A program that
 * does not fit so, or whose plan is written to a file, is searched all the same.  Returns 0 or
 * CKPT_EINVAL (no context).
 */
CKPT_API int ckpt_plan_in_full(ckpt *c, bool full);

/* What a program would take. */
struct ckpt_forecast {
    size_t size;
    int64_t batch, micro_batch;
    int64_t planned_peak; /* bytes of the arena, as in ckpt_program_info */
    double step_seconds;  /* predicted; INFINITY: more than the limit */
};

#define CKPT_FORECAST_INIT                                                                         \
    {                                                                                              \
        sizeof(struct ckpt_forecast), 0, 0, 0, 0.                                                  \
    }

/*
 * Records and plans as ckpt_compile does, and keeps nothing: for a batch or a shape that is looked
 * for before the first step.  No step runs; on a GPU ops of which the machine has no time yet are
 * timed, as before every plan.  With a limit in seconds (not 0) a lower bound is looked at first:
 * where that is above the limit, or says that no plan fits, nothing is searched, which takes a
 * tenth of the time; then step_seconds is INFINITY and planned_peak 0.  Several ranks ask together
 * and are told the same.  Returns what ckpt_compile would, CKPT_EBUDGET with its sentence among it;
 * that is an answer, and the context goes on.
 */
CKPT_API int ckpt_forecast(ckpt *c, ckpt_recorder record, void *user,
                           const struct ckpt_optimizer *optimizer, int64_t batch, double limit,
                           struct ckpt_forecast *forecast);

/* Waits for the steps of a program and frees it.  NULL is allowed. */
CKPT_API void ckpt_program_free(ckpt_program *p);

/* Copies one batch of an input in, all its bytes.  Returns 0, CKPT_ENAME, CKPT_EINVAL; where two
 * steps are under way it waits for the first, and returns how that failed, if it did. */
CKPT_API int ckpt_feed(ckpt_program *p, const char *name, const void *data, int64_t bytes);

/*
 * Runs a step: every micro-step, then the update.  *loss (may be NULL) is the mean over
 * micro-steps.  Every input must have been fed once; it keeps its value until it is fed again.
 * Steps of p that were submitted are waited for first, and nobody is told their losses.
 * Returns 0; CKPT_EINVAL (an input was never fed); CKPT_ENOMEM (after a failed compile); CKPT_ENAN:
 * loss, norm or (without optimizer) output not finite, the sentence names step and op, the weights
 * are those of the last good step, or are lost where an update broke them; CKPT_EINDEX: an index
 * was out of range, the sentence names op, place and index, the weights are those of the last good
 * step; CKPT_EIO, CKPT_EDEVICE, CKPT_ECOMM: they are lost, load those saved last.
 */
CKPT_API int ckpt_step(ckpt_program *p, float *loss);

/* The two halves of ckpt_step, to keep the device busy: ckpt_submit hands a step over; ckpt_wait
 * waits for the oldest not waited for, sets *loss (may be NULL) and returns what ckpt_step would.
 * Two may be under way: feed and submit the next, then wait for the one before.  After a failure
 * nothing that was under way counts.  Programs of one optimizer share these two, in the order in
 * which they were handed over.  Both return CKPT_EINVAL out of turn. */
CKPT_API int ckpt_submit(ckpt_program *p);
CKPT_API int ckpt_wait(ckpt_program *p, float *loss);

/* Copies an output of the last step waited for in its dtype: 0, CKPT_ENAME, CKPT_EINVAL (bytes). */
CKPT_API int ckpt_fetch(ckpt_program *p, const char *name, void *dst, int64_t bytes);
/* dtype and shape (of the whole batch) of an input or output.  Returns 0 or CKPT_ENAME. */
CKPT_API int ckpt_program_desc(const ckpt_program *p, const char *name, struct ckpt_desc *desc);

/* The learning rate of the following steps: 0, or CKPT_EINVAL if not finite or negative. */
CKPT_API int ckpt_set_lr(ckpt_program *p, float lr);

struct ckpt_program_info {
    size_t size;
    bool plan_only; /* compiled with --plan-only: there is nothing to run */
    int64_t batch, micro_batch, n_micro;
    int64_t steps;          /* run so far */
    double grad_norm;       /* of the last step, before clipping; NaN without optimizer */
    int64_t budget;         /* bytes; INT64_MAX without one */
    int64_t planned_peak;   /* bytes of the arena, exact */
    int64_t arena_bytes;    /* mapped now */
    int64_t overhead_bytes; /* of the budget, outside the arena: context, libraries (GPU only) */
    int64_t process_bytes;  /* of the device that this process takes now, all in all (GPU only) */
    int64_t min_budget;     /* the smallest budget that would have been accepted; 0: nobody asked
                             * (ckpt_plan_in_full) */
    int64_t parameter_bytes, gradient_bytes, optimizer_bytes;
    int64_t kept_bytes;       /* activations that stay from forward to backward */
    int64_t recomputed_bytes; /* activations that are computed again */
    int64_t workspace_bytes;  /* largest scratch of one op */
    double step_seconds;      /* predicted */
    double recompute_seconds; /* predicted, part of step_seconds */
    double exposed_seconds;   /* predicted, part of step_seconds: waiting for copies to tiers */
    double exposed_comm;      /* predicted, part of step_seconds: waiting for other ranks */
    int64_t host_bytes, nvme_bytes; /* of the tiers, taken by this program; staging not counted */
    int ops, recomputed_ops;
    /* The size of micro-steps or the variant to record was chosen by the plan, among some
     * that differ in the order of sums: another budget may give other last bits. */
    bool choice_changes_bits;
    /* Seconds of CLOCK_MONOTONIC at which the last step that was waited for ended (on a GPU: at
     * which the wait for it ended); 0: none was.  A step takes the time between two of them,
     * however many are under way. */
    double ended;
};

#define CKPT_PROGRAM_INFO_INIT                                                                     \
    {                                                                                              \
        sizeof(struct ckpt_program_info), false, 0, 0, 0, 0, 0., 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  \
            0, 0., 0., 0., 0., 0, 0, 0, 0, false, 0.                                               \
    }

/* What a program takes and what its plan predicts.  Returns 0, or CKPT_EINVAL if the size of info
 * was not set. */
CKPT_API int ckpt_program_info(const ckpt_program *p, struct ckpt_program_info *info);
/* Writes the plan as a table: what the memory is for, the budget, the cost of recompute. */
CKPT_API void ckpt_plan_print(const ckpt_program *p, FILE *f);
/* Writes where the time of the steps so far went, by kind of op (options.profile): runs a step,
 * milliseconds, arithmetic and memory rates, and their share of those of the machine file. */
CKPT_API void ckpt_profile_print(const ckpt_program *p, FILE *f);

/* ---- the caller's place --------------------------------------------------------------------- */
/*
 * Each recording call notes where it stands, so that an error can name the line of the model.
 * C leaves the order of arguments open: where an operand is recorded inside the argument list, by a
 * function of your own, the line may be that of the operand.
 * The library, and gradient rules that should keep the caller's place, compile with CKPT_NO_AT.
 */
#ifndef CKPT_NO_AT
#define ckpt_input(t, ...)           ckpt_input(CKPT_AT(t), __VA_ARGS__)
#define ckpt_constant(t, ...)        ckpt_constant(CKPT_AT(t), __VA_ARGS__)
#define ckpt_output(t, ...)          ckpt_output(CKPT_AT(t), __VA_ARGS__)
#define ckpt_update_buffer(t, ...)   ckpt_update_buffer(CKPT_AT(t), __VA_ARGS__)
#define ckpt_output_gradient(t, ...) ckpt_output_gradient(CKPT_AT(t), __VA_ARGS__)
#define ckpt_gradients(t, ...)       ckpt_gradients(CKPT_AT(t), __VA_ARGS__)
#define ckpt_stop_gradient(t, ...)   ckpt_stop_gradient(CKPT_AT(t), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif

/* What every program that trains needs besides: one include is enough for it. */
#include "ckpt_ops.h"
#include "ckpt_conv.h"
#include "ckpt_optim.h"
#endif
