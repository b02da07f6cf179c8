/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libckpt: train under a memory budget.
 *
 * A program records its model on a tape.  The library differentiates the tape, plans what stays in
 * device memory, what is recomputed and what is offloaded, and then runs steps in exactly the
 * planned memory.  The life of a program:
 *
 *     ckpt_options_parse -> ckpt_open -> ckpt_param ... -> ckpt_compile -> ckpt_feed, ckpt_step ...
 *
 * Headers.  A training program includes ckpt.h, which includes ckpt_ops.h and ckpt_conv.h (the ops
 * that models record), ckpt_optim.h (optimizers) and ckpt_nn.h (modules).  The other headers are
 * included as needed:
 *
 *     ckpt_files.h   safetensors files, loading and saving parameters and training states
 *     ckpt_dist.h    several ranks that train one model
 *     ckpt_tools.h   option tables, checked output files, bf16, progress
 *     ckpt_op.h      custom ops
 *
 * All compile alone as C11 and as C++17. C++ needs the keyword struct where a function has the same
 * name as a struct: struct ckpt_sgd settings = CKPT_SGD_INIT.
 *
 * Conventions of every call
 *
 *   - A call that can fail returns 0 or a negative CKPT_E... code; ckpt_error() returns the
 *     sentence.  Every negative code has one.
 *   - Recording calls (calls that take a ckpt_tape) return a tensor and report no errors
 *     themselves: the tape keeps the first error with the op, the shapes and the caller's file and
 *     line, later calls do nothing, and ckpt_compile() returns the error.
 *   - The library never aborts, and prints only to a FILE passed by the caller.
 *   - Shapes are row-major; sizes are in elements unless the name says bytes.  Every axis has at
 *     least one element: empty tensors are CKPT_ESHAPE.
 *   - Structs that a program passes in or has filled begin with their size and have an _INIT macro
 *     that sets the size and the defaults.  New members are added at the end.  Reading: members
 *     beyond the caller's size have their defaults; a longer struct of a newer header is accepted
 *     if its unknown members are 0, else CKPT_EINVAL.  Writing: no byte beyond the caller's size is
 *     written, and members unknown to the library become 0. Structs passed by value or in arrays
 *     never change (ckpt_tensor, ckpt_desc, ckpt_init, ckpt_view, ckpt_variant, ckpt_option,
 *     ckpt_path, ckpt_fact).  Structs that the library passes to rules and kernels (ckpt_op.h) grow
 *     at their end.
 *   - NULL is CKPT_EINVAL unless a call allows it.
 *
 * Threads
 *
 *   - A context, with its tapes, programs and optimizers, may be used by any thread, but by only
 *     one at a time.  Programs of one context share its memory, parameters and queues, so their
 *     calls must not overlap.
 *   - Contexts share nothing: threads may use, open and close different contexts at the same time.
 *     Their steps then compete for processors, and each context has its own kernel threads.
 *   - ckpt_request_stop() and ckpt_request_save() may be called by any thread, and by a signal
 *     handler, while another thread uses the context.
 *   - Calls without a context (ckpt_tools.h, ckpt_file_..., ckpt_fill_...) may be made by any
 *     thread; ckpt_error(NULL) is per thread.
 *
 * Process-wide effects.  The library neither handles, blocks nor sends signals, does not change the
 * umask, the locale, the working directory or limits, and does not fork.  What it does change for
 * the whole process:
 *
 *   - The first CPU context loads OpenBLAS permanently, sets it to one thread, and sets
 *     OPENBLAS_NUM_THREADS=1 in the environment while it loads.  Other threads must not change the
 *     environment meanwhile, as with any setenv().
 *   - Ranks on GPUs set NCCL_NVLS_ENABLE, NCCL_GRAPH_REGISTER and NCCL_MIN_CTAS once, unless they
 *     are set.  Ranks over MPI call MPI_Init_thread(), unless the program did.
 *   - A CUDA context makes its GPU the current device of the calling thread.
 *   - The library reads the environment (CKPT_..., and variables of launchers), writes files that
 *     options name, and registers the memory of --host with the GPU driver.
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
#define CKPT_API           __attribute__((visibility("default")))
#define CKPT_PRINTF(f, a)  __attribute__((format(printf, f, a)))
#define CKPT_DEPRECATED(s) __attribute__((deprecated(s)))
#else
#define CKPT_API
#define CKPT_PRINTF(f, a)
#define CKPT_DEPRECATED(s)
#endif

#define CKPT_VERSION_MAJOR 0
#define CKPT_VERSION_MINOR 3
#define CKPT_VERSION_PATCH 0

/* Of the header, and of the library at run time: 10000 major + 100 minor + patch. */
#define CKPT_VERSION_NUMBER                                                                        \
    (CKPT_VERSION_MAJOR * 10000 + CKPT_VERSION_MINOR * 100 + CKPT_VERSION_PATCH)
CKPT_API int ckpt_version_number(void);
/* The version of the library as text, such as "0.3.0". */
CKPT_API const char *ckpt_version(void);

/* ---- errors -------------------------------------------------------------------------------- */

/* Return values of calls that can fail: 0, or one of these. */
enum ckpt_code {
    CKPT_OK = 0,
    CKPT_EINVAL = -1,     /* an argument or option is wrong */
    CKPT_ENOMEM = -2,     /* the host has no memory for bookkeeping or for the arena */
    CKPT_ESHAPE = -3,     /* shapes or dtypes do not fit; found while recording */
    CKPT_EBUDGET = -4,    /* no plan fits the budget; nothing was run */
    CKPT_EIO = -5,        /* a file cannot be read or written */
    CKPT_EFORMAT = -6,    /* a file was read and its content is invalid */
    CKPT_ENAN = -7,       /* a loss, gradient, output or value to save is not finite */
    CKPT_EDEVICE = -8,    /* the device is missing or failed */
    CKPT_EPLAN = -9,      /* a plan does not match this program, or fails its check */
    CKPT_ENAME = -10,     /* no such parameter, input or output */
    CKPT_ECOMM = -11,     /* another rank failed, is gone or runs another program */
    CKPT_EINDEX = -12,    /* a step met an index or a label out of range */
    CKPT_EGRADIENT = -13, /* a gradient differs from central differences (ckpt_gradcheck) */
    CKPT_ESTOP = -14      /* the search for a plan was stopped (ckpt_request_stop), or a rank had no
                             data for a step (ckpt_request_abandon) */
};

/* Opaque handles. */
typedef struct ckpt ckpt;                 /* a context: device, budget, parameters */
typedef struct ckpt_tape ckpt_tape;       /* a recording of one micro-batch */
typedef struct ckpt_program ckpt_program; /* a compiled tape: plan and instructions */
struct ckpt_optimizer;                    /* see ckpt_optim.h */

/*
 * The sentence of the last failed call on c: what failed, where, and what to do. c may be NULL for
 * calls without a context (ckpt_options_parse, ckpt_open, ckpt_file_...); that sentence is kept per
 * thread, in a callback of a call on c until that call returns.  A call that succeeds may leave it
 * as it was, so it means something only after a call that failed.  Never NULL; valid until the next
 * call.
 */
CKPT_API const char *ckpt_error(const ckpt *c);
/* The name of an error code, such as "CKPT_EBUDGET". */
CKPT_API const char *ckpt_error_name(int code);
/* ---- options ------------------------------------------------------------------------------- */

#define CKPT_AUTO (-1) /* the library chooses */

/*
 * Values of options.vram other than a number of bytes and 0. AUTO on a GPU: the free memory when
 * the context opens, minus what a process uses outside its arena (the machine file's "process"), so
 * that another process can still use the GPU.  AUTO on the CPU: what the system and its control
 * groups have left besides options.host, minus a 64th that stays free (at most 1 GiB); not for
 * several ranks.  NONE: plans as for unlimited memory, and refuses a plan that the device cannot
 * hold.  With both, a step that fits without a budget gets the same plan as without one.
 */
#define CKPT_VRAM_AUTO INT64_MIN
#define CKPT_VRAM_NONE INT64_MAX

/* The options of the library.  Fields are added at the end; size says which exist. */
struct ckpt_options {
    size_t size;
    int64_t vram;        /* device budget: bytes; negative: per cent of the device; CKPT_VRAM_...;
                          * 0: AUTO on a GPU, NONE on the CPU */
    int64_t host;        /* bytes of host memory as a second tier, fewer if less is free; 0: none */
    const char *nvme;    /* DIR:SIZE[,DIR:SIZE ...] of a third tier on NVMe; NULL: none */
    const char *device;  /* "auto" (a GPU if there is one), "cpu", "cuda" */
    int64_t micro_batch; /* samples per micro-step; 0: the batch; CKPT_AUTO: the fastest size */
    int64_t seed;        /* for initial values and random ops */
    int64_t threads;     /* kernel threads of the CPU device; 0: one per core */
    const char *plan_in; /* use this plan file instead of searching */
    const char *plan_out; /* write the plan to this file */
    bool plan_only;       /* ckpt_compile stops after planning; see ckpt_program_info.plan_only */
    bool verify;          /* check tapes and plans, poison freed bytes, red zones (CKPT_VERIFY=1) */
    const char *machine; /* machine file, or name of a shipped one, with the rates to plan with; its
                            algorithms are used, but plan_in has precedence */
    const char *graph_out;   /* write the graph of the training program here, for "ckpt plan" */
    const char *machine_out; /* write a machine file with measured times of ops after some steps */
    bool profile;       /* time every op, for ckpt_profile_print; steps become slightly slower */
    bool deterministic; /* no effect, and will be removed: see unordered */
    double io_deadline; /* timeout for a disk request, seconds; 0: 30 */
    bool tune; /* measure algorithms of GPU libraries and use those more than 3 % faster than the
                  library's proposal; machine_out and plan_out store them */
    const char *ranks; /* "mpi", "tcp:HOST:PORT", "file:PATH": see ckpt_dist.h; NULL: one rank */
    int64_t zero;      /* ZeRO stage, what ranks share: 0 nothing, 1 state, 2 and 3 parameters too;
                          CKPT_AUTO: 3 */
    double comm_deadline;   /* timeout for another rank, seconds; 0: 30 */
    const char *shard_over; /* which ranks share one copy: "host", "all"; NULL: the faster choice */
    int64_t check_ranks;    /* updates between two comparisons of the ranks' data; 0: never */
    const char *state;      /* "fp32", "bf16", "8bit": for bf16 parameters, see ckpt_optim.h */
    const char *trace_out;  /* write the planned and measured queues of a step as a trace */
    const char *matmul;     /* "bf16", "fp8": see ckpt_linear; NULL: bf16 */
    /*
     * "8bit": the backward pass reads bf16 activations as 8-bit codes with a scale per 128 values:
     * 1.016 bytes a value, with an error of at most a 254th of the largest of the 128. Results of
     * norms, GELU and similar ops are recomputed from codes.  This applies to activations whose
     * readers all tolerate the error: weight gradients, gates, norms, smooth functions.  Operands
     * of attention, losses, masks, fp32, and tensors with less than 4096 values a sample are kept.
     * The choice depends only on the model, and the forward pass reads bf16, also when it is
     * recomputed, so budgets and tiers change no bit. ckpt_plan_print lists the choice.  "bf16" or
     * NULL: no codes.  A program that trains with nothing in bf16 is CKPT_EINVAL.
     */
    const char *activations;
    /*
     * Allows GPU kernels that add in no fixed order where they are faster (gradients of attention
     * over more than 128 places): two runs, or budgets, then differ in last bits.  False: never.
     */
    bool unordered;
    const char *dump_tape;  /* print tapes after this pass; "list" is refused with all names */
    const char *qat;        /* "int8": quantization-aware training, see ckpt_nn.h; NULL: none */
    const char *qat_ranges; /* "average", "learned", "dynamic"; NULL: "average" */
    const char *qat_skip;   /* weights that it leaves out, patterns between commas; NULL: none */
    bool save_async;  /* ckpt_save_state copies to host memory, and a thread writes; see there */
    int64_t sequence; /* ranks that split tokens (ckpt_sequence); 1: none, CKPT_AUTO: as rank 0 */
    int64_t runs;     /* all expected steps (0: many); no kernels are timed for under a minute */
    int64_t tensor;   /* those that split wide layers (ckpt_param_split); 1: none, CKPT_AUTO */
    int64_t stages;   /* ranks of a pipeline: see ckpt_dist.h; 1: none, CKPT_AUTO */
};

#define CKPT_OPTIONS_INIT                                                                          \
    {                                                                                              \
        sizeof(struct ckpt_options), 0, 0, NULL, "auto", 0, 42, 0, NULL, NULL, false, false, NULL, \
            NULL, NULL, false, false, 0., false, NULL, CKPT_AUTO, 0., NULL, 1000, NULL, NULL,      \
            NULL, NULL, false, NULL, NULL, NULL, NULL, false, 1, 0, 1, 1                           \
    }

/*
 * Removes the options of the library from argv (argc and argv shrink).  Options of the environment
 * are read first: --micro-batch is also CKPT_MICRO_BATCH, and the command line has precedence.  An
 * empty variable counts as unset.  The rest of argv belongs to the program; see
 * ckpt_options_reject() in ckpt_tools.h.  Returns 0, or CKPT_EINVAL with the option and the value
 * in ckpt_error(NULL).
 */
CKPT_API int ckpt_options_parse(struct ckpt_options *opt, int *argc, char **argv);

/* ---- context ------------------------------------------------------------------------------- */

/*
 * Opens the device and reserves the budget without allocating it; opt NULL: defaults.  opt and its
 * texts are copied.  A CPU device also loads OpenBLAS, with OPENBLAS_NUM_THREADS=1 in the
 * environment meanwhile, and uses 128 MiB of address space per thread for its products, one thread
 * each.  Returns 0, CKPT_EINVAL, CKPT_ENOMEM or CKPT_EDEVICE, with the sentence in
 * ckpt_error(NULL).
 */
CKPT_API int ckpt_open(ckpt **c, const struct ckpt_options *opt);
/*
 * Why the context computes on the CPU although options.device, "auto", would prefer a GPU: a
 * sentence, valid until the context is closed; "" if it does not, or where no NVIDIA card is there
 * or CUDA_VISIBLE_DEVICES is empty.  NULL: "".
 */
CKPT_API const char *ckpt_no_gpu(const ckpt *c);
/* Frees the context, its parameters and every program compiled in it.  NULL is allowed. */
CKPT_API void ckpt_close(ckpt *c);

/* ---- tensors and parameters ---------------------------------------------------------------- */

/* The 8-bit dtypes (OCP FP8, e4m3 without infinity) are used only by tensors that the library makes
 * for products (options.matmul); parameters and model tensors are fp32 or bf16. */
enum ckpt_dtype { CKPT_F32, CKPT_BF16, CKPT_I32, CKPT_F8E4M3, CKPT_F8E5M2 };
CKPT_API int64_t ckpt_dtype_size(enum ckpt_dtype dtype); /* bytes of one element */

#define CKPT_MAX_DIMS 8

/* A tensor of a tape, or a parameter of a context. id 0 is "no tensor"; owner identifies the tape
 * or context, so that a foreign tensor is refused.  Programs set neither. */
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
 * Makes a parameter. name is unique in the context and is the key in saved files: UTF-8, not
 * "__metadata__".  The initial value depends only on (seed, name). trainable = false makes a
 * buffer: it is saved and loaded, and only ckpt_update_buffer() changes it; its value is rounded to
 * its dtype.  A bf16 parameter gets an fp32 master copy when it is trained, unless options.state is
 * "bf16" or "8bit".  For CKPT_XAVIER fan_out is shape[0] and fan_in the product of the rest.  The
 * tensor may be used in every tape of this context.  On errors (a duplicate name, a bad shape) the
 * result is CKPT_NONE, and the context keeps the first error: until the next ckpt_compile or
 * ckpt_forecast has returned it, once, further parameters, modules and optimizers are not made.
 */
CKPT_API ckpt_tensor ckpt_param(ckpt *c, const char *name, enum ckpt_dtype dtype, int ndim,
                                const int64_t *shape, struct ckpt_init init, bool trainable);

/* ckpt_param() with given initial values, row-major; they are copied. */
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

/* The number of parameters, the i-th in order of creation, and one by name: 0 or CKPT_ENAME. */
CKPT_API int ckpt_param_count(const ckpt *c);
CKPT_API ckpt_tensor ckpt_param_at(const ckpt *c, int i);
CKPT_API int ckpt_param_find(const ckpt *c, const char *name, ckpt_tensor *param);
CKPT_API int ckpt_param_info(const ckpt *c, ckpt_tensor param, struct ckpt_param_info *info);

/* The values stored for a trained parameter. */
enum ckpt_slot {
    CKPT_VALUE,          /* the value: the fp32 master where there is one */
    CKPT_EXP_AVG,        /* first moment or momentum of the optimizer */
    CKPT_EXP_AVG_SQ,     /* second moment */
    CKPT_EMA,            /* exponential moving average of the value */
    CKPT_EXP_AVG_SQ_ROW, /* second moment of a matrix, factored: [rows] */
    CKPT_EXP_AVG_SQ_COL  /* and [columns] */
};

/*
 * Copies a slot out as fp32, or in, after the steps in progress have ended; ckpt_wait still reports
 * these steps. n must be its number of elements.  Setting CKPT_VALUE sets the master and its
 * rounded copy, and restarts the EMA from it if no step was run yet; bf16 or 8-bit state takes the
 * nearest values.  Returns 0, CKPT_EINVAL (n), CKPT_ENAME (no such parameter or slot).
 */
CKPT_API int ckpt_param_get(ckpt *c, ckpt_tensor param, enum ckpt_slot slot, float *dst, int64_t n);
CKPT_API int ckpt_param_set(ckpt *c, ckpt_tensor param, enum ckpt_slot slot, const float *src,
                            int64_t n);

/* ---- recording: inputs and outputs --------------------------------------------------------- */

/* Stores the source location of the next recording call; the macros below use it. file is not
 * copied: it must outlive the context, as __FILE__ does. */
CKPT_API ckpt_tape *ckpt_tape_at(ckpt_tape *t, const char *file, int line);
#define CKPT_AT(t) ckpt_tape_at((t), __FILE__, __LINE__)

/* A label for the ops recorded next ("spatial_blocks.3"), shown in plans and messages. */
CKPT_API void ckpt_label(ckpt_tape *t, const char *fmt, ...) CKPT_PRINTF(2, 3);

/* dtype and shape of a tensor of this tape.  If the tape has an error, ndim is -1 and every size 1,
 * so that a model may continue and divide by sizes. */
CKPT_API struct ckpt_desc ckpt_desc_of(ckpt_tape *t, ckpt_tensor x);

/* Reports an error of the recorder; the tape keeps it like any other error. */
CKPT_API void ckpt_tape_fail(ckpt_tape *t, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

/*
 * An input fed by name before a step. shape[0] is the micro-batch: ckpt_feed takes the whole batch,
 * and each micro-step reads its rows.
 */
CKPT_API ckpt_tensor ckpt_input(ckpt_tape *t, const char *name, enum ckpt_dtype dtype, int ndim,
                                const int64_t *shape);

/* A constant tensor; data (row-major, of dtype) is copied immediately. name may be NULL. */
CKPT_API ckpt_tensor ckpt_constant(ckpt_tape *t, const char *name, enum ckpt_dtype dtype, int ndim,
                                   const int64_t *shape, const void *data);

/* Makes x readable by ckpt_fetch after a step.  The rows of all micro-steps are concatenated.  A
 * scalar (ndim 0) stays one: the mean over the micro-steps, or of i32 their sum. */
CKPT_API void ckpt_output(ckpt_tape *t, const char *name, ckpt_tensor x);

/* Makes the gradient of the loss with respect to parameter w readable by ckpt_fetch, as fp32,
 * summed over the micro-steps, before clipping. */
CKPT_API void ckpt_output_gradient(ckpt_tape *t, const char *name, ckpt_tensor w);

/*
 * dx[i] becomes the gradient of the sum of y with respect to x[i], an input, a parameter or any
 * other tensor that y was computed from.  It has the shape and dtype of x[i], and is 0 if y does
 * not depend on x[i].  It is computed by ops of the model that can be differentiated again
 * (doc/ops.md): a loss may depend on it, as in a gradient penalty (Gulrajani et al. 2017).  If the
 * gradient rule of a custom op recorded an op without a gradient, ckpt_compile returns CKPT_EINVAL
 * and names it.
 */
CKPT_API void ckpt_gradients(ckpt_tape *t, ckpt_tensor y, int n, const ckpt_tensor *x,
                             ckpt_tensor *dx);
/* x as a constant for differentiation: no gradient flows through it, and nothing is reported.  A
 * view. */
CKPT_API ckpt_tensor ckpt_stop_gradient(ckpt_tape *t, ckpt_tensor x);

/*
 * Gives a buffer (an fp32 parameter with trainable = false) a new value with the update of the
 * step: (1 - momentum) buffer + momentum value. value is a float tensor of its shape; momentum is 0
 * to 1, and 1 assigns the value.  Everything in the step still reads the old value.  Several calls
 * for one buffer average in turn, and so do micro-steps; with micro_batch CKPT_AUTO the batch stays
 * whole.  Several ranks take the mean of their new values.  A step that fails changes nothing, nor
 * does a program without an optimizer.  A value that is not finite, or above 1e19, ends the step
 * with CKPT_ENAN.  No gradient.
 */
CKPT_API void ckpt_update_buffer(ckpt_tape *t, ckpt_tensor buffer, ckpt_tensor value,
                                 float momentum);

struct ckpt_buffer_update {
    size_t size;
    float momentum; /* as in ckpt_update_buffer */
    bool once;      /* the buffer is updated once per step, with the mean of the values of its
                       micro-steps; else once per micro-step */
};

#define CKPT_BUFFER_UPDATE_INIT                                                                    \
    {                                                                                              \
        sizeof(struct ckpt_buffer_update), 0.1f, false                                             \
    }

/*
 * ckpt_update_buffer() with more settings (NULL: the defaults).  With once, four micro-steps and a
 * momentum of 0.1 replace 0.1 of the buffer, and not 0.34 of it, so that the momentum is per step
 * whatever the micro-batch is.  Such updates follow those of ckpt_update_buffer for the same
 * buffer.
 */
CKPT_API void ckpt_update_buffer_by(ckpt_tape *t, ckpt_tensor buffer, ckpt_tensor value,
                                    const struct ckpt_buffer_update *settings);

/*
 * The recorder of a program without an optimizer calls it first: the model then reads, of each
 * parameter that has one, the exponential moving average (ema_decay) in place of the value, in the
 * value's dtype.  So one context trains and samples with averaged weights.  The program that trains
 * is compiled first; the averages are those of its last step.  The tape keeps CKPT_EINVAL for a
 * program that trains, if something was recorded before, or if there is no average.
 */
CKPT_API void ckpt_read_ema(ckpt_tape *t);

/*
 * Notes that the result of a step depends on how its batch is divided into micro-steps, with the
 * reason in a few words ("experts have a capacity"): statistics over the batch, experts that share
 * a capacity, contrastive losses.  micro_batch CKPT_AUTO then keeps the batch whole, and the plan
 * table shows the reason.  The library notes it itself for ckpt_batch_norm(), ckpt_update_buffer(),
 * and for a loss that it does not see to be a sum of means over samples: a product, a quotient or a
 * root of means, or a count that depends on a parameter.  Of several reasons the first is shown.
 * CKPT_EINVAL without a reason.
 */
CKPT_API void ckpt_couple_samples(ckpt_tape *t, const char *reason);

/* ---- compile and run ----------------------------------------------------------------------- */

/* Records one micro-batch and returns its loss: a scalar for training, any tensor for forward
 * only.  It is called again, also with other sizes that divide the batch, to compare plans and to
 * see whether samples are coupled (ckpt_couple_samples); the last call is that of the program. */
typedef ckpt_tensor (*ckpt_recorder)(ckpt_tape *t, int64_t micro_batch, void *user);

/*
 * Records, differentiates, plans and lowers a program. optimizer comes from ckpt_adamw() and
 * similar calls; NULL: forward only. batch is the number of samples per step; options.micro_batch
 * must divide it (or exceed it, without an optimizer).  With CKPT_AUTO the model is recorded and
 * planned at every size that divides the batch, and the fastest step that fits is used.  All memory
 * of a step is allocated here.  Programs compiled before are planned again, with the same numbers,
 * if they no longer fit beside the parameters of this one.  Waits for their steps.  Returns 0; the
 * tape's error; CKPT_EBUDGET if no plan fits, for this program or an earlier one (the earlier ones
 * then stay unchanged): the sentence names the smallest feasible budget, the op at the peak, and
 * the gain of more memory; CKPT_EPLAN for a plan file of another program; CKPT_ENOMEM, CKPT_EIO,
 * CKPT_EINVAL.
 */
CKPT_API int ckpt_compile(ckpt *c, ckpt_recorder record, void *user,
                          const struct ckpt_optimizer *optimizer, int64_t batch, ckpt_program **p);
/*
 * One step recorded in several variants.  A model may be computed in pieces, such as frames of a
 * clip or bands of a picture: small pieces need less memory and take longer.  The planner plans
 * each variant as a whole and uses the best.
 */
struct ckpt_variant {
    ckpt_recorder record;
    void *user;
    /* The results have the same bits as those of all other variants with this flag, so the budget's
     * choice among them does not change numbers.  It must be false for training: the sums of
     * gradients over pieces have another order. */
    bool same_bits;
};

/*
 * Like ckpt_compile, but records and plans n variants of the same step and uses the one with the
 * fastest plan that fits the budget; with options.micro_batch CKPT_AUTO, each at every size of
 * micro-steps.  Of equally fast variants the first is used.  All must have the same inputs and
 * outputs.  *variant (may be NULL) receives the index of the variant.  If none fits, the sentence
 * is about the last, so put the variant that needs the least memory there.
 *
 * Random values depend on the position of their call on the tape: record them before the parts that
 * differ.  If the chosen variant was one of several and not all have the same bits, the budget may
 * change the last bits of the numbers: ckpt_program_info.choice_changes_bits and the plan table say
 * so.
 */
CKPT_API int ckpt_compile_variants(ckpt *c, int n, const struct ckpt_variant *variants,
                                   const struct ckpt_optimizer *optimizer, int64_t batch,
                                   ckpt_program **p, int *variant);

/* Whether programs compiled from now on are planned in full; the default is true.  If false, a
 * program that fits its budgets without recomputation is not searched any further: a hundredth of
 * the time, for runs with many programs.  Its step is as fast, its peak may be slightly higher, and
 * ckpt_program_info.min_budget is 0. A program that does not fit this way, or whose plan is written
 * to a file, is still searched.  Returns 0 or CKPT_EINVAL (no context). */
CKPT_API int ckpt_plan_in_full(ckpt *c, bool full);

/* Several of the programs compiled from now on will train, in turn: no plan defers updates to its
 * next step (doc/design.md).  Without this the first one is planned as if it trained alone, and
 * parameters keep the tiers that suited it: with host memory all steps may take 40 % longer.
 * Returns 0 or CKPT_EINVAL (no context). */
CKPT_API int ckpt_train_in_turn(ckpt *c);

/* Calls watch once a second while ckpt_compile or ckpt_forecast searches for a plan, with the
 * seconds so far; NULL: no longer.  A search ends when ckpt_request_stop is called meanwhile, and
 * the call that searched returns CKPT_ESTOP.  With several ranks only rank 0 searches.  Returns 0
 * or CKPT_EINVAL (no context). */
typedef void (*ckpt_plan_watch)(void *user, int seconds);
CKPT_API int ckpt_watch_plan(ckpt *c, ckpt_plan_watch watch, void *user);

/*
 * One refusal for all programs of a run; the default is false.  If true, ckpt_compile still returns
 * CKPT_EBUDGET for a program that no plan fits, but *p is then that program, planned within its
 * smallest budget, which becomes the budget of the context.  The caller goes on with the next
 * program: it is planned beside this one and refused only if it needs more.  So the sentence of the
 * last refusal names a budget for all programs: without lower tiers it is enough and the smallest;
 * with them a plan of this budget may keep parameters elsewhere.  After a refusal programs are only
 * planned, and no step runs in this context.  Refusals under --vram none or --plan-in are as
 * before.  Returns 0 or CKPT_EINVAL (no context).
 */
CKPT_API int ckpt_gather_refusals(ckpt *c, bool gather);

/* The predicted memory and time of a program. */
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
 * Records and plans like ckpt_compile and keeps nothing: to find a batch size or shape before the
 * first step.  Runs no step; on a GPU, ops without a time in the machine file are timed, as before
 * every plan.  With a limit in seconds (not 0) a lower bound is checked first: if it exceeds the
 * limit, or shows that no plan fits, there is no search, which takes a tenth of the time;
 * step_seconds is then INFINITY and planned_peak 0. All ranks call it together and get the same
 * result.  Returns what ckpt_compile would; CKPT_EBUDGET with its sentence is a valid answer and
 * leaves the context usable.
 */
CKPT_API int ckpt_forecast(ckpt *c, ckpt_recorder record, void *user,
                           const struct ckpt_optimizer *optimizer, int64_t batch, double limit,
                           struct ckpt_forecast *forecast);

/* Waits for the steps of a program and frees it.  NULL is allowed. */
CKPT_API void ckpt_program_free(ckpt_program *p);

/* Copies one batch of an input in, all its bytes.  Returns 0, CKPT_ENAME, CKPT_EINVAL; with two
 * steps in progress it waits for the first, and returns its error if it failed. */
CKPT_API int ckpt_feed(ckpt_program *p, const char *name, const void *data, int64_t bytes);

/*
 * Runs a step: every micro-step, then the update.  *loss (may be NULL) is the mean over the
 * micro-steps, and in a program that trains also over the ranks.  A loss that is a sum of means
 * over samples is thus that of the whole batch, up to rounding (ckpt_masked_mean).  Every input
 * must have been fed once; it keeps its value until it is fed again.  Submitted steps of p are
 * waited for first, and their losses are dropped.  Returns 0; CKPT_EINVAL (an input was never fed);
 * CKPT_ENOMEM (after a failed compile); CKPT_ENAN: loss, norm or (without
 * optimizer) output not finite, the sentence names step and op, and the weights are those of the
 * last good step, or are lost if an update made them non-finite; CKPT_EINDEX: an index was out of
 * range, the sentence names op, position and index, and the weights are those of the last good
 * step; CKPT_EIO, CKPT_EDEVICE, CKPT_ECOMM: the weights are lost, load the last saved ones.
 */
CKPT_API int ckpt_step(ckpt_program *p, float *loss);

/* The two halves of ckpt_step, to keep the device busy: ckpt_submit submits a step; ckpt_wait waits
 * for the oldest submitted step, sets *loss (may be NULL) and returns what ckpt_step would.  Two
 * steps may be in progress: feed and submit the next, then wait for the previous one.  After a
 * failure all steps in progress are discarded.  Programs of one optimizer share these two steps, in
 * the order of submission.  Both return CKPT_EINVAL when called out of order. */
CKPT_API int ckpt_submit(ckpt_program *p);
CKPT_API int ckpt_wait(ckpt_program *p, float *loss);

/* Copies an output of the last step that was waited for, in its dtype: 0, CKPT_ENAME, CKPT_EINVAL
 * (bytes). */
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
    int64_t overhead_bytes; /* context and libraries: budget outside the arena (GPU only) */
    int64_t process_bytes;  /* device memory used by this process, in total (GPU only) */
    int64_t min_budget;     /* the smallest feasible budget; 0: not searched (ckpt_plan_in_full) */
    int64_t parameter_bytes, gradient_bytes, optimizer_bytes;
    int64_t kept_bytes;       /* activations kept from forward to backward */
    int64_t recomputed_bytes; /* activations that are recomputed */
    int64_t workspace_bytes;  /* largest scratch of one op */
    double step_seconds;      /* predicted */
    double recompute_seconds; /* predicted, part of step_seconds */
    double exposed_seconds;   /* predicted, part of step_seconds: waiting for copies to tiers */
    double exposed_comm;      /* predicted, part of step_seconds: waiting for other ranks */
    /* Bytes of the tiers used by this program.  Where a program uses NVMe, options.host holds the
     * staging slots, too: a quarter of it, at most 64 MiB. */
    int64_t host_bytes, nvme_bytes;
    int ops, recomputed_ops;
    /* The plan selected the size of micro-steps or the variant among some that differ in the order
     * of sums: another budget may change the last bits. */
    bool choice_changes_bits;
    /* Seconds of CLOCK_MONOTONIC at which the last step that was waited for ended on the device; 0:
     * none was.  The time of a step is the time between two ends, whatever is in progress. */
    double ended;
};

#define CKPT_PROGRAM_INFO_INIT                                                                     \
    {                                                                                              \
        sizeof(struct ckpt_program_info), false, 0, 0, 0, 0, 0., 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  \
            0, 0., 0., 0., 0., 0, 0, 0, 0, false, 0.                                               \
    }

/* The memory of a program and the predictions of its plan.  Returns 0, or CKPT_EINVAL if the size
 * of info was not set. */
CKPT_API int ckpt_program_info(const ckpt_program *p, struct ckpt_program_info *info);
/* Writes the plan as a table: memory by purpose, the budget, the cost of recompute. */
CKPT_API void ckpt_plan_print(const ckpt_program *p, FILE *f);
/* Writes the time of the steps so far by kind of op (options.profile): runs per step, milliseconds,
 * rates of arithmetic and memory, their share of the machine file's; then seconds of the start. */
CKPT_API void ckpt_profile_print(const ckpt_program *p, FILE *f);

/* ---- random values -------------------------------------------------------------------------- */

/* Values drawn by Philox 4x32-10 (Salmon et al. 2011) from (seed, step, stream, index), with the
 * same bits on every machine. step is below 2^52. Streams below 2^31 are for programs; ckpt_randn
 * uses the others. */
CKPT_API void ckpt_fill_normal(uint64_t seed, uint64_t step, uint32_t stream, float *dst,
                               int64_t n);
CKPT_API void ckpt_fill_uniform(uint64_t seed, uint64_t step, uint32_t stream, float *dst,
                                int64_t n); /* in [0, 1) */

/* ---- the caller's place --------------------------------------------------------------------- */
/*
 * Each recording call stores its source location, so that an error can name the line of the model.
 * C does not define the order of evaluating arguments: if an operand is recorded inside the
 * argument list by your own function, the line may be the operand's.  The library, and gradient
 * rules that should keep the caller's location, compile with CKPT_NO_AT.
 */
#ifndef CKPT_NO_AT
#define ckpt_input(t, ...)            ckpt_input(CKPT_AT(t), __VA_ARGS__)
#define ckpt_constant(t, ...)         ckpt_constant(CKPT_AT(t), __VA_ARGS__)
#define ckpt_output(t, ...)           ckpt_output(CKPT_AT(t), __VA_ARGS__)
#define ckpt_update_buffer(t, ...)    ckpt_update_buffer(CKPT_AT(t), __VA_ARGS__)
#define ckpt_update_buffer_by(t, ...) ckpt_update_buffer_by(CKPT_AT(t), __VA_ARGS__)
#define ckpt_output_gradient(t, ...)  ckpt_output_gradient(CKPT_AT(t), __VA_ARGS__)
#define ckpt_gradients(t, ...)        ckpt_gradients(CKPT_AT(t), __VA_ARGS__)
#define ckpt_stop_gradient(t, ...)    ckpt_stop_gradient(CKPT_AT(t), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif

/* Included for every training program, so that one include is enough. */
#include "ckpt_ops.h"
#include "ckpt_conv.h"
#include "ckpt_optim.h"
#include "ckpt_nn.h"
#endif
