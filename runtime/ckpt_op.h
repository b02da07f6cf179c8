/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libckpt: custom ops.  An op is a struct of rules (shape, gradient, cost) and a kernel per device;
 * ckpt_record records a call of it on a tape.  See examples/custom_op.c.
 */
#ifndef CKPT_OP_H
#define CKPT_OP_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The device whose kernels a program runs. */
enum ckpt_backend { CKPT_ON_CPU, CKPT_ON_CUDA };

/* The arguments of rules: one recorded call. */
struct ckpt_call {
    int n_in, n_out;
    const struct ckpt_desc *in; /* ndim is -1 if an optional input is absent */
    struct ckpt_desc *out;      /* the shape rule sets dtype, ndim, shape; strides if not dense */
    const void *attr;           /* the op's attributes, as given to ckpt_record */
    enum ckpt_backend backend;  /* where the kernel will run; the workspace may depend on it */
    bool deterministic;         /* kernels must give the same bits every time */
    int64_t workspace;          /* scratch bytes, set by the shape rule */
    char *message;              /* written by ckpt_call_fail */
    size_t message_size;
    int threads;    /* CPU: the value of args.threads for its kernel; CUDA: 1 */
    uint32_t extra; /* 0; of the library's own ops: outputs after those of the rule */
};

/* For shape rules: stores the reason and returns CKPT_ESHAPE. */
CKPT_API int ckpt_call_fail(struct ckpt_call *call, const char *fmt, ...) CKPT_PRINTF(2, 3);

/* The arguments of a gradient rule, which records ops and sets din[i] if need[i]. */
struct ckpt_grad {
    ckpt_tape *tape;
    int n_in, n_out;
    const ckpt_tensor *in, *out;
    const ckpt_tensor *dout; /* CKPT_NONE if an output has no gradient */
    const bool *need;
    ckpt_tensor *din; /* may be fp32 or of the input's dtype; CKPT_NONE: no gradient */
    const void *attr;
    const bool *want_bf16; /* din[i] is all of a bf16 parameter's gradient, wanted in bf16 */
};

/* Must be finite and not negative; otherwise recording the call fails. */
struct ckpt_cost {
    double flops;
    double bytes; /* read and written in device memory; 0: the sum of the operands */
};

/* One operand of a kernel. */
struct ckpt_view {
    void *data; /* first element; NULL if an optional operand is absent */
    struct ckpt_desc desc;
};

/* Requests of one rank to all (ckpt_dist.h). */
enum ckpt_request { CKPT_REQUEST_STOP, CKPT_REQUEST_SAVE, CKPT_REQUEST_ABANDON, CKPT_REQUESTS };

struct index_report;

/*
 * Values that are constant during a step, and values that change between steps.  A CUDA kernel is
 * launched once and replayed with every step: it must read the changing values (step, lr, opt_step)
 * on the device, from run_device.
 */
struct ckpt_run {
    uint64_t seed;
    int64_t step;  /* 0, 1, 2, ... */
    int32_t micro; /* micro-step, 0 .. n_micro - 1 */
    int32_t n_micro;
    float lr;
    int64_t opt_step;             /* updates of the program's optimizer before this one */
    int32_t *halt;                /* not 0: a step or update before this one failed; may be NULL */
    float request[CKPT_REQUESTS]; /* what this rank tells all: set by the executor */
    struct index_report *bad_index; /* of the library's own kernels; may be NULL */
};

struct ckpt_kernel_args {
    int n_in, n_out;
    const struct ckpt_view *in;
    const struct ckpt_view *out;
    const void *attr;
    void *workspace; /* aligned to 64 bytes; undefined contents */
    int64_t workspace_bytes;
    bool accumulate; /* add to out[0] instead of setting it (only with CKPT_OP_ACCUMULATE) */
    int32_t op;      /* position on the tape */
    const struct ckpt_run *run;
    const struct ckpt_run *run_device; /* CUDA: the copy in device memory; its micro is not valid */
    void *stream;                      /* CUDA: the cudaStream_t to launch on */
    void *device;                      /* for the library's own kernels: handles and cached data */
    int threads;                       /* CPU: number of threads it may use, at least 1 */
    int32_t number; /* position among the ops of the model, the stream of a random op; ops that
                     * gather or decode parameters, or count for a mean, are left out, so it is the
                     * same for all ranks, formats and micro-steps */
    uint32_t extra; /* 0; of the library's own ops: outputs after those of the rule */
};

/*
 * Threads: rules (shape, grad, cost) run on the thread that records and compiles.  Kernels run on a
 * thread of the library, one call after the other in the order of the plan: never two at once in
 * one context, but possibly at the same time in two contexts, so a kernel must protect global data
 * itself.  It may divide its work among args->threads threads, itself included (ckpt_parallel_for),
 * which must be finished when it returns.  The number of threads must not change its bits.  It must
 * not call functions of ckpt.h that take the context, a tape or a program.
 *
 * Memory: the operands and the scratch are valid until it returns.  It writes every element of its
 * outputs and nothing else: no byte outside of them and of workspace_bytes, and no input.  Scratch
 * is not kept between calls.  A kernel that needs scratch per thread requests call->threads times
 * as much in its shape rule; a plan then depends on --threads.  Under --verify (CKPT_VERIFY=1)
 * kernels run with red zones around the storages that they write and around their scratch: on the
 * CPU in every step, on CUDA when an op runs for the first time.  On the CPU inputs are compared,
 * too.  A kernel that wrote where it must not ends the step, or the compilation, with CKPT_EINVAL
 * and the name of its op.
 *
 * Returns 0 or a code of ckpt.h, which ends the step; other numbers end it with CKPT_EDEVICE.  Must
 * give the same bits whenever inputs and run are the same.  A CUDA kernel launches on args->stream
 * and returns; it must not allocate or wait.
 */
typedef int (*ckpt_kernel)(const struct ckpt_kernel_args *a);

/* Properties of an op: ckpt_op_def.flags is a sum of these. */
enum ckpt_op_flag {
    CKPT_OP_STRIDED = 1,     /* inputs may have any strides; without it they are made dense */
    CKPT_OP_STRIDED_OUT = 2, /* the kernel can write outputs of any strides */
    CKPT_OP_ACCUMULATE = 4,  /* the kernel honours args.accumulate for out[0], which is fp32 */
    CKPT_OP_INPLACE = 8,     /* out[i] is in[i], changed */
    CKPT_OP_VIEW = 16,       /* out[i] is a view of in[0]; there is no kernel */
    CKPT_OP_ONCE = 32,       /* never recomputed (reads a clock, has a side effect, ...) */
    /* The kernel can write outputs with any strides if the last axis is dense. */
    CKPT_OP_STRIDED_ROWS = 64,
    /*
     * The last input is optional.  If present, it is a dense tensor with the shape and dtype of
     * out[0], and is added to out[0] before rounding.  A gradient rule leaves it out; the library
     * passes the gradient that was summed so far.
     */
    CKPT_OP_ADDEND = 128,
    /*
     * Outputs may have no address (data is NULL): if the plan runs the op twice and nothing reads
     * the output of this run, the kernel skips the work.
     */
    CKPT_OP_OPTIONAL_OUT = 256
};

/* A chunk of a loop: elements begin .. end - 1, on thread 0 .. args->threads - 1. */
typedef void (*ckpt_loop)(int64_t begin, int64_t end, int thread, void *user);

/*
 * For kernels on the CPU: calls body for every chunk of 0 .. n - 1, divided among the threads of
 * the kernel, and returns when all are finished.  Each chunk has `piece` elements (at least 1), the
 * last one the rest.  Chunk boundaries depend only on n and piece: sums of chunks, added in order,
 * have the same bits for any number of threads.  Chunks may run concurrently, but never two with
 * the same thread number.
 */
CKPT_API void ckpt_parallel_for(const struct ckpt_kernel_args *args, int64_t n, int64_t piece,
                                ckpt_loop body, void *user);

/* The complete definition of an op. */
struct ckpt_op_def {
    size_t size; /* sizeof(struct ckpt_op_def) */
    const char *name;
    unsigned flags;
    int (*shape)(struct ckpt_call *call); /* 0, or ckpt_call_fail(...) */
    /* NULL: not differentiable, treated as a constant.  ckpt_compile then refuses a loss that
     * depends on a trained parameter only through such ops, and the plan table (ckpt_plan_print)
     * counts those beside another path. */
    void (*grad)(struct ckpt_grad *grad);
    void (*cost)(const struct ckpt_call *call, struct ckpt_cost *cost); /* NULL: only bytes count */
    ckpt_kernel cpu;
    ckpt_kernel cuda;
};

/*
 * Records a call. attr_size bytes of attr are copied.  The n_out outputs are written to out. def
 * must outlive the context.  The results of the rules are validated: outputs are inside their
 * storage, sizes fit an int64, scratch and cost are valid numbers.  Returns 0 or the tape's error.
 */
CKPT_API int ckpt_record(ckpt_tape *t, const struct ckpt_op_def *def, int n_in,
                         const ckpt_tensor *in, int n_out, ckpt_tensor *out, const void *attr,
                         size_t attr_size);

/* Settings and result of ckpt_gradcheck(). */
struct ckpt_gradcheck {
    size_t size;
    int64_t batch;                            /* batch size of a step */
    int (*feed)(ckpt_program *p, void *user); /* feeds the inputs and returns 0 or the code of the
                                               * call that failed; NULL: no inputs */
    int64_t samples;                          /* elements tested per parameter, spread over it */
    double length;    /* longest of four steps h, each a quarter of the one before; relative to
                         elements above 1 */
    double tolerance; /* largest allowed error */
    double smallest;  /* lower bound of the gradient that errors are divided by */
    /* Result: the element with the largest error, its gradient and the nearest central difference.
     * error is their distance, beyond what the rounding of the loss can make, divided by the
     * largest gradient of the parameter. */
    const char *param; /* NULL: every error is 0 */
    int64_t element;
    double gradient, difference, error;
};

#define CKPT_GRADCHECK_INIT                                                                        \
    {                                                                                              \
        sizeof(struct ckpt_gradcheck), 1, NULL, 16, 0.25, 1e-2, 1e-6, NULL, 0, 0., 0., 0.          \
    }

/*
 * Compares the gradients of a model with central differences of its loss, (f(x + h) - f(x - h)) /
 * 2h, for some elements of every trainable parameter of the context, at their current values.
 * The two losses are fp32: a difference may be off by 2^-23 (|f(x + h)| + |f(x - h)|) / 2h, which
 * is no error of the gradient, and shorter h are left out once that exceeds the tolerance (or 1e-2,
 * if that is more) of the largest gradient.  record and user as for ckpt_compile(). check (NULL:
 * defaults) has the settings and receives the result; param is valid as long as the context.
 * Parameters should be fp32 and few: two steps of the model are run for each of four lengths for
 * each element.  Random numbers are those of the first step each time.  The parameters are restored
 * unless a step failed.  Returns 0; CKPT_EGRADIENT, and the sentence names parameter, element and
 * both numbers; CKPT_EINVAL for settings that are not positive and finite (a tolerance may be 0),
 * or if feed failed without a call of the library; errors of ckpt_compile(), feed and ckpt_step().
 */
CKPT_API int ckpt_gradcheck(ckpt *c, ckpt_recorder record, void *user,
                            struct ckpt_gradcheck *check);

#ifndef CKPT_NO_AT
#define ckpt_record(t, ...) ckpt_record(CKPT_AT(t), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif
#endif
