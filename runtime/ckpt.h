/*
 * libckpt: train under a memory budget.
 *
 * A program records its model on a tape; the library differentiates the tape, plans what stays
 * in device memory, what is computed again and what is parked elsewhere, and then runs steps in
 * exactly the memory it planned.  The life of a program:
 *
 *     ckpt_options_parse -> ckpt_open -> ckpt_param ... -> ckpt_compile -> ckpt_feed, ckpt_step ...
 *
 * Conventions of every call below
 *   - A call that can fail returns 0 or a negative CKPT_E... code; ckpt_error() holds the sentence.
 *   - Recording calls (those that take a ckpt_tape) return a tensor and never fail visibly: the
 *     first error sticks to the tape with the op, the shapes and the caller's file and line, later
 *     calls do nothing, and ckpt_compile() returns it.
 *   - The library never aborts, and prints only where a FILE is given.
 *   - Shapes are row-major, sizes in elements unless the name says bytes.
 *   - A handle may be used by one thread at a time.  NULL where nothing allows it is CKPT_EINVAL.
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
#define CKPT_VERSION_MINOR 1
#define CKPT_VERSION_PATCH 0

/* The version of the library that is running, as "0.1.0". */
CKPT_API const char *ckpt_version(void);

/* ---- errors -------------------------------------------------------------------------------- */

enum {
    CKPT_OK = 0,
    CKPT_EINVAL = -1,  /* an argument or option is wrong */
    CKPT_ENOMEM = -2,  /* the host has no memory for bookkeeping or for the arena */
    CKPT_ESHAPE = -3,  /* shapes or dtypes do not fit; found while recording */
    CKPT_EBUDGET = -4, /* no plan fits the budget; nothing was run */
    CKPT_EIO = -5,     /* a file cannot be read or written */
    CKPT_EFORMAT = -6, /* a file was read and is not what it should be */
    CKPT_ENAN = -7,    /* a loss, gradient, output or value to save is not finite */
    CKPT_EDEVICE = -8, /* the device is missing or failed */
    CKPT_EPLAN = -9,   /* a plan does not belong to this program, or fails its check */
    CKPT_ENAME = -10,  /* no such parameter, input or output */
    CKPT_ECOMM = -11   /* another rank failed, is gone or runs another program */
};
typedef struct ckpt ckpt;                 /* a context: device, budget, parameters */
typedef struct ckpt_tape ckpt_tape;       /* a recording of one micro-batch */
typedef struct ckpt_program ckpt_program; /* a compiled tape: plan and instructions */

/*
 * The sentence of the last failed call on c: what failed, where, and what to do.  c may be NULL for
 * calls that have no context (ckpt_options_parse, ckpt_open, ckpt_file_...); that sentence is kept
 * per thread.  Never NULL; valid until the next call.
 */
CKPT_API const char *ckpt_error(const ckpt *c);
/* The name of an error code, as "CKPT_EBUDGET". */
CKPT_API const char *ckpt_error_name(int code);
/* ---- options ------------------------------------------------------------------------------- */

#include "ckpt_option.h" /* tables of options, for the library and for programs */

/* The options of the library itself.  Fields are added at the end; size says how many are there. */
struct ckpt_options {
    size_t size;
    int64_t vram;        /* device budget in bytes; 0: no limit; negative: per cent of the device */
    int64_t host;        /* bytes of host memory as a second tier; 0: none */
    const char *nvme;    /* DIR:SIZE[,DIR:SIZE ...] of a third tier on NVMe; NULL: none */
    const char *device;  /* "auto" (a GPU if there is one), "cpu", "cuda" */
    int64_t micro_batch; /* samples per micro-step; 0: the batch; CKPT_AUTO: what is fastest */
    int64_t seed;        /* of initial values and of random ops */
    int64_t threads;     /* kernel threads of the CPU device; 0: one per core */
    const char *plan_in; /* run this plan instead of searching one */
    const char *plan_out;  /* write the plan here */
    bool plan_only;        /* ckpt_compile stops after the plan; see ckpt_program_info.plan_only */
    bool verify;           /* check every plan, poison freed bytes with NaN (CKPT_VERIFY=1) */
    const char *machine;   /* file, or name of a shipped one, with the rates to plan with */
    const char *graph_out; /* write the graph of the program that trains here, for "ckpt plan" */
    const char *machine_out; /* write the machine with the measured times of ops after some steps */
    bool profile;            /* time every op, for ckpt_profile_print; steps get a little slower */
    bool deterministic;      /* GPU kernels that give the same bits every time; the CPU's do */
    double io_deadline;      /* seconds without an answer from a disk that are too many; 0: 30 */
    bool tune;               /* algorithms of GPU libraries by measurement; plan_out keeps them */
    const char *ranks; /* "mpi", "tcp:HOST:PORT", "file:PATH": see ckpt_ranks.h; NULL: one alone */
    int64_t zero;      /* what ranks share: 0 nothing, 1 state, 2, 3 parameters too; CKPT_AUTO: 3 */
    double comm_deadline;   /* seconds without another rank that are too many; 0: 30 */
    const char *shard_over; /* which ranks share one copy: "host", "all"; NULL: what is faster */
    int64_t check_ranks;    /* updates between two comparisons of what ranks have; 0: none */
};

#define CKPT_OPTIONS_INIT                                                                          \
    {                                                                                              \
        .size = sizeof(struct ckpt_options), .device = "auto", .seed = 42, .zero = CKPT_AUTO,      \
        .check_ranks = 1000                                                                        \
    }

/* The table behind struct ckpt_options, for help texts; and ckpt_option_table_parse on it, behind
 * the environment: --micro-batch is also CKPT_MICRO_BATCH, over which the command line wins.  An
 * empty variable counts as one that is not set. */
CKPT_API const struct ckpt_option *ckpt_options_table(void);
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

enum ckpt_dtype { CKPT_F32, CKPT_BF16, CKPT_I32 };
CKPT_API int64_t ckpt_dtype_size(enum ckpt_dtype dtype); /* bytes of one element */

#define CKPT_MAX_DIMS  8
#define CKPT_MAX_PARTS 64 /* of one split or concat */

/* A tensor of a tape, or a parameter of a context.  id 0 is "no tensor". */
typedef struct ckpt_tensor {
    int32_t id;
} ckpt_tensor;

#define CKPT_NONE ((ckpt_tensor){0})

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

#define CKPT_ZEROS      ((struct ckpt_init){CKPT_INIT_ZEROS, 0.f})
#define CKPT_ONES       ((struct ckpt_init){CKPT_INIT_ONES, 0.f})
#define CKPT_NORMAL(s)  ((struct ckpt_init){CKPT_INIT_NORMAL, (s)})
#define CKPT_UNIFORM(b) ((struct ckpt_init){CKPT_INIT_UNIFORM, (b)})
#define CKPT_XAVIER     ((struct ckpt_init){CKPT_INIT_XAVIER_UNIFORM, 0.f})

/*
 * Makes a parameter.  name is unique in the context and is the key in saved files.  The initial
 * value follows from (seed, name) alone.  trainable = false makes a buffer: saved and loaded, never
 * updated.  A parameter of dtype bf16 gets an fp32 master copy when it is trained.
 * For CKPT_XAVIER fan_out is shape[0] and fan_in the product of the rest.
 * The tensor may be used in every tape of this context.  Errors (a name used twice, a bad shape)
 * stick to the context and are returned by ckpt_compile; the result is then CKPT_NONE.
 */
CKPT_API ckpt_tensor ckpt_param(ckpt *c, const char *name, enum ckpt_dtype dtype, int ndim,
                                const int64_t *shape, struct ckpt_init init, bool trainable);

struct ckpt_param_info {
    const char *name;
    struct ckpt_desc desc;
    int64_t numel;
    bool trainable;
};

/* Number of parameters, the i-th in order of creation, one by name: 0 or CKPT_ENAME. */
CKPT_API int ckpt_param_count(const ckpt *c);
CKPT_API ckpt_tensor ckpt_param_at(const ckpt *c, int i);
CKPT_API int ckpt_param_find(const ckpt *c, const char *name, ckpt_tensor *param);
CKPT_API int ckpt_param_info(const ckpt *c, ckpt_tensor param, struct ckpt_param_info *info);

/* What is kept for a trained parameter. */
enum ckpt_slot {
    CKPT_VALUE,      /* the value: the fp32 master where there is one */
    CKPT_EXP_AVG,    /* first moment of AdamW */
    CKPT_EXP_AVG_SQ, /* second moment of AdamW */
    CKPT_EMA         /* exponential moving average of the master */
};

/*
 * Copies a slot out as fp32, or in.  n must be the number of elements.  Setting CKPT_VALUE sets the
 * master and its rounded copy, and restarts the EMA from it if no step was run yet.
 * Returns 0, CKPT_EINVAL (n), CKPT_ENAME (no such parameter or slot).
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

/* dtype and shape of a tensor of this tape; ndim is -1 if the tape has an error. */
CKPT_API struct ckpt_desc ckpt_desc_of(ckpt_tape *t, ckpt_tensor x);

/* An error of the recorder's own; it sticks as any other. */
CKPT_API void ckpt_tape_fail(ckpt_tape *t, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

/*
 * An input fed by name before a step.  shape[0] is the micro-batch: ckpt_feed takes the whole batch
 * and the library hands each micro-step its rows.
 */
CKPT_API ckpt_tensor ckpt_input(ckpt_tape *t, const char *name, enum ckpt_dtype dtype, int ndim,
                                const int64_t *shape);

/* A constant table; data (row-major, of dtype) is copied at once. */
CKPT_API ckpt_tensor ckpt_constant(ckpt_tape *t, const char *name, enum ckpt_dtype dtype, int ndim,
                                   const int64_t *shape, const void *data);

/* Makes x readable by ckpt_fetch after a step.  The rows of all micro-steps follow each other. */
CKPT_API void ckpt_output(ckpt_tape *t, const char *name, ckpt_tensor x);

/* Makes the gradient of the loss with respect to parameter w readable by ckpt_fetch, as fp32,
 * summed over the micro-steps, before clipping. */
CKPT_API void ckpt_output_gradient(ckpt_tape *t, const char *name, ckpt_tensor w);

/* ---- recording: ops ------------------------------------------------------------------------ */
/* Floating dtypes of one call must agree unless said otherwise.  All arithmetic is fp32 inside;
 * results are rounded once, to nearest even. */

/* y[..., n] = sum_k x[..., k] w[n, k] + b[n], or that + a[..., n].  x [..., K], w [N, K], b [N] or
 * CKPT_NONE. */
CKPT_API ckpt_tensor ckpt_linear(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b);
CKPT_API ckpt_tensor ckpt_linear_add(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                                     ckpt_tensor a);

/* Element-wise with NumPy broadcasting; fp32 with bf16 gives fp32. */
CKPT_API ckpt_tensor ckpt_add(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);
CKPT_API ckpt_tensor ckpt_sub(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);
CKPT_API ckpt_tensor ckpt_mul(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);

/* y = a x + b with constants. */
CKPT_API ckpt_tensor ckpt_affine(ckpt_tape *t, ckpt_tensor x, float a, float b);

/* cond != 0 ? a : b, with broadcasting; cond is i32 and gets no gradient. */
CKPT_API ckpt_tensor ckpt_where(ckpt_tape *t, ckpt_tensor cond, ckpt_tensor a, ckpt_tensor b);

/* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); Hendrycks & Gimpel 2016. */
CKPT_API ckpt_tensor ckpt_gelu(ckpt_tape *t, ckpt_tensor x);
/* x / (1 + exp(-x)). */
CKPT_API ckpt_tensor ckpt_silu(ckpt_tape *t, ckpt_tensor x);

/* (x - mean) / sqrt(var + eps) over the last axis, biased variance, no affine; Ba et al. 2016. */
CKPT_API ckpt_tensor ckpt_layer_norm(ckpt_tape *t, ckpt_tensor x, float eps);

/* round(x / sqrt(mean(x^2) + eps)) w over the last axis, w [D]; Zhang & Sennrich 2019.  The
 * normalised value is rounded to the dtype of x before the product with w. */
CKPT_API ckpt_tensor ckpt_rms_norm(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, float eps);

/* x (1 + scale) + shift.  shift and scale have the rank of x, its last axis, and on every other
 * axis its size or 1 (adaptive layer norm; Peebles & Xie 2023). */
CKPT_API ckpt_tensor ckpt_modulate(ckpt_tape *t, ckpt_tensor x, ckpt_tensor shift,
                                   ckpt_tensor scale);

/*
 * layer_norm(x) (1 + scale) + shift in one pass; shift and scale as for ckpt_modulate.  The
 * normalised value is neither rounded nor stored: mean and 1 / sqrt(var + eps) of a row are kept.
 */
CKPT_API ckpt_tensor ckpt_layer_norm_modulate(ckpt_tape *t, ckpt_tensor x, ckpt_tensor shift,
                                              ckpt_tensor scale, float eps);

/* x + gate a.  gate has the rank of x, its last axis, and on every other axis its size or 1. */
CKPT_API ckpt_tensor ckpt_gated_residual(ckpt_tape *t, ckpt_tensor x, ckpt_tensor gate,
                                         ckpt_tensor a);

/*
 * Rotary embedding of interleaved pairs (Su et al. 2021): with p the index on axis `axis`,
 * (a, b) = x[..., 2k], x[..., 2k+1] becomes (a cos - b sin, b cos + a sin).
 * table fp32 [shape[axis], D/2, 2] holds (cos, sin).
 */
CKPT_API ckpt_tensor ckpt_rope(ckpt_tape *t, ckpt_tensor x, ckpt_tensor table, int axis);

/* rope(rms_norm(x, w, eps), table, axis) in one pass.  The normalised value is rounded to the dtype
 * of x, as in ckpt_rms_norm; its product with w is not rounded before it is turned. */
CKPT_API ckpt_tensor ckpt_rms_norm_rope(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, float eps,
                                        ckpt_tensor table, int axis);

/*
 * softmax(scale q k^T) v per head.  q [..., L, H, D], k and v [..., M, H, D], the leading axes
 * equal; any strides as long as the last axis is dense, so a permuted view needs no copy.  The
 * result has the shape and memory order of q.  With M = 1 it is v; dq and dk are exactly 0.
 */
CKPT_API ckpt_tensor ckpt_attention(ckpt_tape *t, ckpt_tensor q, ckpt_tensor k, ckpt_tensor v,
                                    float scale);

/*
 * Attention of B sequences of queries on a packed text: q [B, L, H, D], k and v [R, H, D], lens i32
 * [B].  Sample b sees the lens[b] rows that follow those of the samples before it; rows past the
 * sum are ignored and get zero gradient.  Without rows it gets zeros, with one as above.
 */
CKPT_API ckpt_tensor ckpt_cross_attention(ckpt_tape *t, ckpt_tensor q, ckpt_tensor k, ckpt_tensor v,
                                          ckpt_tensor lens, float scale);

/* Moves the rows of x [B, L, C] whose mask (i32 [B, L]) is not 0 to the front of the result
 * [B L, C], in order, and fills the rest with zeros; *lens becomes i32 [B]. */
CKPT_API ckpt_tensor ckpt_pack(ckpt_tape *t, ckpt_tensor x, ckpt_tensor mask, ckpt_tensor *lens);

/* [cos(x f_0..), sin(x f_0..)], f_i = max_period^(-i / (dim/2)); x fp32 [B] -> [B, dim] of dtype.
 * dim is even.  No gradient. */
CKPT_API ckpt_tensor ckpt_timestep_embedding(ckpt_tape *t, ckpt_tensor x, int64_t dim,
                                             float max_period, enum ckpt_dtype dtype);

/* x [B, C, T, H, W] -> [B, ceil(T/pt), ceil(H/ph) ceil(W/pw), C pt ph pw], zero-padded at the end;
 * inside a patch the order is (c, t, h, w), that of a convolution's weight. */
CKPT_API ckpt_tensor ckpt_patchify(ckpt_tape *t, ckpt_tensor x, int64_t pt, int64_t ph, int64_t pw);

/* The way back, cropped to [B, C, T, H, W]; inside a patch the order is (t, h, w, c). */
CKPT_API ckpt_tensor ckpt_unpatchify(ckpt_tape *t, ckpt_tensor x, int64_t channels, int64_t frames,
                                     int64_t height, int64_t width, int64_t pt, int64_t ph,
                                     int64_t pw);

/* Views: no bytes move, except where reshape meets strides that cannot be merged (then it copies).
 * One size of a reshape may be -1: what is left. */
CKPT_API ckpt_tensor ckpt_reshape(ckpt_tape *t, ckpt_tensor x, int ndim, const int64_t *shape);
CKPT_API ckpt_tensor ckpt_permute(ckpt_tape *t, ckpt_tensor x, const int *axes);
CKPT_API ckpt_tensor ckpt_slice(ckpt_tape *t, ckpt_tensor x, int axis, int64_t begin, int64_t end);
/* n equal parts of an axis, which keeps its place; out has room for n. */
CKPT_API void ckpt_split(ckpt_tape *t, ckpt_tensor x, int axis, int n, ckpt_tensor *out);

/* Joins n tensors along an axis.  Where their producers can write in place no bytes are copied. */
CKPT_API ckpt_tensor ckpt_concat(ckpt_tape *t, int axis, int n, const ckpt_tensor *x);

/* A dense row-major copy; x itself if it is one already. */
CKPT_API ckpt_tensor ckpt_contiguous(ckpt_tape *t, ckpt_tensor x);

/* Converts between fp32 and bf16; x itself if nothing changes. */
CKPT_API ckpt_tensor ckpt_cast(ckpt_tape *t, ckpt_tensor x, enum ckpt_dtype dtype);

/* Sum or mean over the axes whose bit is set in mask; they keep size 1.  The result is fp32. */
CKPT_API ckpt_tensor ckpt_sum(ckpt_tape *t, ckpt_tensor x, unsigned mask);
CKPT_API ckpt_tensor ckpt_mean(ckpt_tape *t, ckpt_tensor x, unsigned mask);

/* N(0,1) values that follow from (seed, step, this call, sample, element) alone: computing them
 * again gives the same bits, whatever the micro-batch.  shape[0] is the micro-batch. */
CKPT_API ckpt_tensor ckpt_randn(ckpt_tape *t, enum ckpt_dtype dtype, int ndim,
                                const int64_t *shape);

/*
 * Mean over the batch of each sample's mean squared error, fp32 scalar (ndim 0).  pred and target
 * [B, C, T, ...], any float dtypes.  With mask (i32 [B, T]) only frames whose mask is not 0 count:
 * sum / (frames C ...).  A sample with no frame counts 0.
 */
CKPT_API ckpt_tensor ckpt_mse(ckpt_tape *t, ckpt_tensor pred, ckpt_tensor target, ckpt_tensor mask);

/* Mean over rows of -log softmax(x)[label]; x [B, V], label i32 [B]; fp32 scalar. */
CKPT_API ckpt_tensor ckpt_cross_entropy(ckpt_tape *t, ckpt_tensor x, ckpt_tensor label);

/* How a convolution walks: an entry per spatial axis, outermost first; no other is looked at. */
struct ckpt_conv_spec {
    size_t size;
    int64_t stride[3];
    int64_t before[3], after[3]; /* zeros added at the two ends */
    /* Batch-invariant: the bits of a row of the result (the innermost spatial axis) depend on what
     * its taps see, not on how many rows and samples one call has.  So a picture that is computed
     * in bands, or several together, has the bits of one computed alone.  This fixes the kernel:
     * for other sizes it may be slower than the one taken without. */
    bool invariant;
};

#define CKPT_CONV_INIT                                                                             \
    {                                                                                              \
        .size = sizeof(struct ckpt_conv_spec), .stride = { 1, 1, 1 }                               \
    }

/*
 * Convolution over two or three axes, as networks have it (the kernel is not turned), channels
 * last.  x [N, H, W, C] or [N, D, H, W, C], w [K, kh, kw, C] or [K, kd, kh, kw, C], b [K] or none:
 *   y[n, o..., k] = b[k] + sum over t..., c of w[k, t..., c] x[n, (o stride - before + t)..., c]
 * with x zero outside.  A size s becomes (s + before + after - kernel) / stride + 1, rounded down.
 * spec NULL: strides of 1, no padding.
 */
CKPT_API ckpt_tensor ckpt_conv(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                               const struct ckpt_conv_spec *spec);

/*
 * Group norm (Wu & He 2018) of x [N, ..., C]: per sample and group of C / groups neighbouring
 * channels, (x - mean) / sqrt(var + eps) w + b with biased variance over the group and all axes
 * between; w and b [C].  With silu, SiLU of that, not rounded in between.
 */
CKPT_API ckpt_tensor ckpt_group_norm_silu(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                                          int groups, float eps, bool silu);

/* x [N, ..., C] with one to three spatial axes, each made longer by its factor: every place is
 * repeated.  factors: one per spatial axis, outermost first. */
CKPT_API ckpt_tensor ckpt_upsample_nearest(ckpt_tape *t, ckpt_tensor x, const int64_t *factors);

/* Mean of |pred - target| over all elements, fp32 scalar.  One shape, any float dtypes.  Where the
 * two are equal the gradient is 0. */
CKPT_API ckpt_tensor ckpt_l1(ckpt_tape *t, ckpt_tensor pred, ckpt_tensor target);

/*
 * Divergence of N(mean, exp(logvar)) from N(0, 1), summed over a sample, mean over the batch:
 *   1/(2B) sum(mean^2 + exp(v) - 1 - v), v = logvar clamped to [-30, 20]; Kingma & Welling 2014.
 * mean and logvar [B, ...]; fp32 scalar.  What is clamped away gets no gradient.
 */
CKPT_API ckpt_tensor ckpt_kl_normal(ckpt_tape *t, ckpt_tensor mean, ckpt_tensor logvar);

/* mean + exp(v / 2) noise, v as above: a sample, where noise is ckpt_randn's.  One shape and dtype.
 * noise gets no gradient. */
CKPT_API ckpt_tensor ckpt_sample_normal(ckpt_tape *t, ckpt_tensor mean, ckpt_tensor logvar,
                                        ckpt_tensor noise);

/* ---- the caller's place --------------------------------------------------------------------- */
/*
 * Each recording call notes where it stands, so that an error can name the line of the model.
 * C leaves the order of arguments open: where an operand is recorded inside the argument list, by a
 * function of your own, the line may be that of the operand.
 * The library, and gradient rules that should keep the caller's place, compile with CKPT_NO_AT.
 */
#ifndef CKPT_NO_AT
#define ckpt_input(t, ...)               ckpt_input(CKPT_AT(t), __VA_ARGS__)
#define ckpt_constant(t, ...)            ckpt_constant(CKPT_AT(t), __VA_ARGS__)
#define ckpt_output(t, ...)              ckpt_output(CKPT_AT(t), __VA_ARGS__)
#define ckpt_output_gradient(t, ...)     ckpt_output_gradient(CKPT_AT(t), __VA_ARGS__)
#define ckpt_linear(t, ...)              ckpt_linear(CKPT_AT(t), __VA_ARGS__)
#define ckpt_linear_add(t, ...)          ckpt_linear_add(CKPT_AT(t), __VA_ARGS__)
#define ckpt_add(t, ...)                 ckpt_add(CKPT_AT(t), __VA_ARGS__)
#define ckpt_sub(t, ...)                 ckpt_sub(CKPT_AT(t), __VA_ARGS__)
#define ckpt_mul(t, ...)                 ckpt_mul(CKPT_AT(t), __VA_ARGS__)
#define ckpt_affine(t, ...)              ckpt_affine(CKPT_AT(t), __VA_ARGS__)
#define ckpt_where(t, ...)               ckpt_where(CKPT_AT(t), __VA_ARGS__)
#define ckpt_gelu(t, ...)                ckpt_gelu(CKPT_AT(t), __VA_ARGS__)
#define ckpt_silu(t, ...)                ckpt_silu(CKPT_AT(t), __VA_ARGS__)
#define ckpt_layer_norm(t, ...)          ckpt_layer_norm(CKPT_AT(t), __VA_ARGS__)
#define ckpt_rms_norm(t, ...)            ckpt_rms_norm(CKPT_AT(t), __VA_ARGS__)
#define ckpt_modulate(t, ...)            ckpt_modulate(CKPT_AT(t), __VA_ARGS__)
#define ckpt_layer_norm_modulate(t, ...) ckpt_layer_norm_modulate(CKPT_AT(t), __VA_ARGS__)
#define ckpt_gated_residual(t, ...)      ckpt_gated_residual(CKPT_AT(t), __VA_ARGS__)
#define ckpt_rope(t, ...)                ckpt_rope(CKPT_AT(t), __VA_ARGS__)
#define ckpt_rms_norm_rope(t, ...)       ckpt_rms_norm_rope(CKPT_AT(t), __VA_ARGS__)
#define ckpt_attention(t, ...)           ckpt_attention(CKPT_AT(t), __VA_ARGS__)
#define ckpt_cross_attention(t, ...)     ckpt_cross_attention(CKPT_AT(t), __VA_ARGS__)
#define ckpt_pack(t, ...)                ckpt_pack(CKPT_AT(t), __VA_ARGS__)
#define ckpt_timestep_embedding(t, ...)  ckpt_timestep_embedding(CKPT_AT(t), __VA_ARGS__)
#define ckpt_patchify(t, ...)            ckpt_patchify(CKPT_AT(t), __VA_ARGS__)
#define ckpt_unpatchify(t, ...)          ckpt_unpatchify(CKPT_AT(t), __VA_ARGS__)
#define ckpt_reshape(t, ...)             ckpt_reshape(CKPT_AT(t), __VA_ARGS__)
#define ckpt_permute(t, ...)             ckpt_permute(CKPT_AT(t), __VA_ARGS__)
#define ckpt_slice(t, ...)               ckpt_slice(CKPT_AT(t), __VA_ARGS__)
#define ckpt_split(t, ...)               ckpt_split(CKPT_AT(t), __VA_ARGS__)
#define ckpt_concat(t, ...)              ckpt_concat(CKPT_AT(t), __VA_ARGS__)
#define ckpt_contiguous(t, ...)          ckpt_contiguous(CKPT_AT(t), __VA_ARGS__)
#define ckpt_cast(t, ...)                ckpt_cast(CKPT_AT(t), __VA_ARGS__)
#define ckpt_sum(t, ...)                 ckpt_sum(CKPT_AT(t), __VA_ARGS__)
#define ckpt_mean(t, ...)                ckpt_mean(CKPT_AT(t), __VA_ARGS__)
#define ckpt_randn(t, ...)               ckpt_randn(CKPT_AT(t), __VA_ARGS__)
#define ckpt_mse(t, ...)                 ckpt_mse(CKPT_AT(t), __VA_ARGS__)
#define ckpt_cross_entropy(t, ...)       ckpt_cross_entropy(CKPT_AT(t), __VA_ARGS__)
#define ckpt_conv(t, ...)                ckpt_conv(CKPT_AT(t), __VA_ARGS__)
#define ckpt_group_norm_silu(t, ...)     ckpt_group_norm_silu(CKPT_AT(t), __VA_ARGS__)
#define ckpt_upsample_nearest(t, ...)    ckpt_upsample_nearest(CKPT_AT(t), __VA_ARGS__)
#define ckpt_l1(t, ...)                  ckpt_l1(CKPT_AT(t), __VA_ARGS__)
#define ckpt_kl_normal(t, ...)           ckpt_kl_normal(CKPT_AT(t), __VA_ARGS__)
#define ckpt_sample_normal(t, ...)       ckpt_sample_normal(CKPT_AT(t), __VA_ARGS__)
#endif

/* ---- compile and run ----------------------------------------------------------------------- */

/* Records one micro-batch and returns its loss: a scalar to train, anything to run forward only. */
typedef ckpt_tensor (*ckpt_recorder)(ckpt_tape *t, int64_t micro_batch, void *user);

/*
 * AdamW (Loshchilov & Hutter 2019) on fp32 master weights, moments fp32, after clipping by the
 * global L2 norm of all gradients:
 *   g *= min(1, clip_norm / (norm + 1e-6));  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
 *   w -= lr (m / (1-b1^k) / (sqrt(v / (1-b2^k)) + eps) + weight_decay w)
 *   ema = ema_decay ema + (1 - ema_decay) w
 * Gradients are fp32.  With grad_dtype CKPT_BF16 those of bf16 matrices that one ckpt_linear uses,
 * in one micro-step, are rounded once; and ranks exchange those of all bf16 parameters in bf16.
 */
struct ckpt_adamw {
    size_t size;
    float lr, beta1, beta2, eps, weight_decay;
    float clip_norm;            /* 0: no clipping */
    float ema_decay;            /* 0: no EMA is kept */
    enum ckpt_dtype grad_dtype; /* CKPT_F32 or CKPT_BF16 */
};

#define CKPT_ADAMW_INIT                                                                            \
    {                                                                                              \
        .size = sizeof(struct ckpt_adamw), .lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.999f,            \
        .eps = 1e-8f                                                                               \
    }

/*
 * Records, differentiates, plans and lowers.  optimizer NULL: forward only.  batch is the number of
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
                          const struct ckpt_adamw *optimizer, int64_t batch, ckpt_program **p);
CKPT_API void ckpt_program_free(ckpt_program *p);

/* Copies one batch of an input in, all its bytes.  Returns 0, CKPT_ENAME, CKPT_EINVAL; where two
 * steps are under way it waits for the first, and returns how that failed, if it did. */
CKPT_API int ckpt_feed(ckpt_program *p, const char *name, const void *data, int64_t bytes);

/*
 * Runs a step: every micro-step, then the update.  *loss (may be NULL) is the mean over
 * micro-steps.  Every input must have been fed once; it keeps its value until it is fed again.
 * Returns 0; CKPT_EINVAL (an input was never fed); CKPT_ENOMEM (after a failed compile); CKPT_ENAN:
 * loss, norm or (without optimizer) output not finite, the sentence names step and op, the weights
 * are those of the last good step, or are lost where an update broke them; CKPT_EIO, CKPT_EDEVICE,
 * CKPT_ECOMM: they are lost, load those saved last.
 */
CKPT_API int ckpt_step(ckpt_program *p, float *loss);

/* The two halves of ckpt_step, to keep the device busy: ckpt_submit hands a step over; ckpt_wait
 * waits for the oldest not waited for, sets *loss (may be NULL) and returns what ckpt_step would.
 * Two may be under way: feed and submit the next, then wait for the one before.  After a failure
 * nothing that was under way counts.  Both return CKPT_EINVAL out of turn. */
CKPT_API int ckpt_submit(ckpt_program *p);
CKPT_API int ckpt_wait(ckpt_program *p, float *loss);

/* Copies an output of the last step waited for in its dtype: 0, CKPT_ENAME, CKPT_EINVAL (bytes). */
CKPT_API int ckpt_fetch(ckpt_program *p, const char *name, void *dst, int64_t bytes);
/* dtype and shape (of the whole batch) of an input or output.  Returns 0 or CKPT_ENAME. */
CKPT_API int ckpt_program_desc(const ckpt_program *p, const char *name, struct ckpt_desc *desc);

/* The learning rate of the following steps: 0, or CKPT_EINVAL if not finite or negative. */
CKPT_API int ckpt_set_lr(ckpt_program *p, float lr);

struct ckpt_program_info {
    bool plan_only; /* compiled with --plan-only: there is nothing to run */
    int64_t batch, micro_batch, n_micro;
    int64_t steps;          /* run so far */
    double grad_norm;       /* of the last step, before clipping; NaN without optimizer */
    int64_t budget;         /* bytes; INT64_MAX without one */
    int64_t planned_peak;   /* bytes of the arena, exact */
    int64_t arena_bytes;    /* mapped now */
    int64_t overhead_bytes; /* of the budget, outside the arena: context, libraries (GPU only) */
    int64_t process_bytes;  /* of the device that this process takes now, all in all (GPU only) */
    int64_t min_budget;     /* the smallest budget that would have been accepted */
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
    /* The size of micro-steps or the way to record (ckpt_ways.h) was chosen by the plan, among some
     * that differ in the order of sums: another budget may give other last bits. */
    bool choice_changes_bits;
};

CKPT_API void ckpt_program_info(const ckpt_program *p, struct ckpt_program_info *info);
/* Writes the plan as a table: what the memory is for, the budget, the cost of recompute. */
CKPT_API void ckpt_plan_print(const ckpt_program *p, FILE *f);
/* Writes where the time of the steps so far went, by kind of op (options.profile): runs a step,
 * milliseconds, arithmetic and memory rates, and their share of those of the machine file. */
CKPT_API void ckpt_profile_print(const ckpt_program *p, FILE *f);

/* ---- files: safetensors -------------------------------------------------------------------- */

/* A tensor file that was opened and whose header was checked against the format and file size. */
typedef struct ckpt_file ckpt_file;

struct ckpt_file_entry {
    const char *name;
    const char *dtype; /* as the file names it: "F32", "BF16", "I64", ... */
    int ndim;
    int64_t shape[CKPT_MAX_DIMS];
    int64_t numel;
};

/* One file, or several as one: see ckpt_file.h.  Returns 0, CKPT_EIO, CKPT_EFORMAT, CKPT_ENOMEM. */
CKPT_API int ckpt_file_open(ckpt_file **f, const char *path);
CKPT_API void ckpt_file_close(ckpt_file *f);
CKPT_API int ckpt_file_count(const ckpt_file *f);
CKPT_API int ckpt_file_entry(const ckpt_file *f, int i, struct ckpt_file_entry *e);
/* Returns the index of a name, or CKPT_ENAME. */
CKPT_API int ckpt_file_find(const ckpt_file *f, const char *name);
/* Reads entry i as fp32 (from F32, BF16, F16, F64) or as i32 (from I32, I64, U8, BOOL); n must be
 * its number of elements.  Returns 0, CKPT_EINVAL, CKPT_EIO, CKPT_EFORMAT (dtype, checksum). */
CKPT_API int ckpt_file_read_f32(ckpt_file *f, int i, float *dst, int64_t n);
CKPT_API int ckpt_file_read_i32(ckpt_file *f, int i, int32_t *dst, int64_t n);

/* A file being written: add tensors, then commit, which writes a temporary file with checksums,
 * syncs it and renames it over path.  Data is borrowed until then. */
typedef struct ckpt_file_writer ckpt_file_writer;
CKPT_API int ckpt_file_create(ckpt_file_writer **w, const char *path);
CKPT_API int ckpt_file_add(ckpt_file_writer *w, const char *name, enum ckpt_dtype dtype, int ndim,
                           const int64_t *shape, const void *data);
CKPT_API int ckpt_file_commit(ckpt_file_writer *w);   /* writes and frees w */
CKPT_API void ckpt_file_abandon(ckpt_file_writer *w); /* frees w, writes nothing */

/* Called for each name that does not fit: what is "missing" (in the file) or "unexpected". */
typedef void (*ckpt_name_report)(void *user, const char *what, const char *name);

/*
 * Loads parameters by name from what ckpt_file_open opens.  Shapes must agree: a difference is an
 * error.  Names that are missing from the file or unexpected in it are reported, and counted in
 * *unmatched (may be NULL).  Returns 0, CKPT_EIO, CKPT_EFORMAT (also for values that are not
 * finite), CKPT_ESHAPE, CKPT_ENOMEM; of several ranks CKPT_ECOMM (ckpt_ranks.h).
 */
CKPT_API int ckpt_load(ckpt *c, const char *path, ckpt_name_report report, void *user,
                       int *unmatched);

/* Saves a slot of every parameter as fp32 (of a buffer always the value), atomically; values that
 * are not finite are CKPT_ENAN, and the file at path stays. */
CKPT_API int ckpt_save(ckpt *c, const char *path, enum ckpt_slot slot);

/* ---- helpers for trainers ------------------------------------------------------------------ */

/* Values drawn by Philox 4x32-10 (Salmon et al. 2011) from (seed, step, stream, index), the same
 * bits on every machine.  step is below 2^52.  Streams below 2^31 are the caller's own; ckpt_randn
 * draws from those above. */
CKPT_API void ckpt_fill_normal(uint64_t seed, uint64_t step, uint32_t stream, float *dst,
                               int64_t n);
CKPT_API void ckpt_fill_uniform(uint64_t seed, uint64_t step, uint32_t stream, float *dst,
                                int64_t n); /* in [0, 1) */

/* fp32 <-> bf16, round to nearest even. */
CKPT_API void ckpt_to_bf16(const float *src, uint16_t *dst, int64_t n);
CKPT_API void ckpt_from_bf16(const uint16_t *src, float *dst, int64_t n);

/*
 * One progress line on a terminal (at most 10 a second), plain lines elsewhere: what, steps done of
 * total, time left, rate, loss (NaN: none is shown) and bytes of memory (0: none shown).  open
 * returns NULL without memory; step and close allow NULL.
 */
typedef struct ckpt_progress ckpt_progress;
CKPT_API ckpt_progress *ckpt_progress_open(FILE *f, const char *what, int64_t total);
CKPT_API void ckpt_progress_step(ckpt_progress *pr, int64_t done, double loss, int64_t bytes);
CKPT_API void ckpt_progress_close(ckpt_progress *pr);

#ifdef __cplusplus
}
#endif
#endif
