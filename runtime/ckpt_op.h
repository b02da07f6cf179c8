/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libckpt: ops of your own.  An op is a struct of rules (shape, gradient, cost) and a kernel per
 * device; ckpt_record puts a call of it on a tape.  See examples/custom_op.c.
 */
#ifndef CKPT_OP_H
#define CKPT_OP_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whose kernels a program runs. */
enum ckpt_backend { CKPT_ON_CPU, CKPT_ON_CUDA };

/* What a rule sees of one recorded call. */
struct ckpt_call {
    int n_in, n_out;
    const struct ckpt_desc *in; /* ndim -1 where an optional input is absent */
    struct ckpt_desc *out;      /* the shape rule fills dtype, ndim, shape; strides if not dense */
    const void *attr;           /* the op's attributes, as given to ckpt_record */
    enum ckpt_backend backend;  /* whose kernel will run; the workspace may depend on it */
    bool deterministic;         /* kernels must give the same bits every time */
    int64_t workspace;          /* the shape rule may ask for this many scratch bytes */
    char *message;              /* written by ckpt_call_fail */
    size_t message_size;
    int threads; /* CPU: what its kernel gets as args.threads; CUDA: 1 */
};

/* For shape rules: stores the reason and returns CKPT_ESHAPE. */
CKPT_API int ckpt_call_fail(struct ckpt_call *call, const char *fmt, ...) CKPT_PRINTF(2, 3);

/* What a gradient rule sees: it records ops and sets din[i] where need[i]. */
struct ckpt_grad {
    ckpt_tape *tape;
    int n_in, n_out;
    const ckpt_tensor *in, *out;
    const ckpt_tensor *dout; /* CKPT_NONE where an output got no gradient */
    const bool *need;
    ckpt_tensor *din; /* may be fp32 or of the input's dtype; CKPT_NONE: no gradient */
    const void *attr;
    const bool *want_bf16; /* din[i] alone is the gradient of a bf16 parameter, wanted in bf16 */
};

/* Finite and not negative; else the call is refused when it is recorded. */
struct ckpt_cost {
    double flops;
    double bytes; /* read and written in device memory; 0: the sum of the operands */
};

/* One operand of a kernel. */
struct ckpt_view {
    void *data; /* first element; NULL where an optional operand is absent */
    struct ckpt_desc desc;
};

/* What a rank can ask of all (ckpt_dist.h). */
enum ckpt_request { CKPT_REQUEST_STOP, CKPT_REQUEST_SAVE, CKPT_REQUESTS };

struct index_report;

/*
 * What is fixed for one step, and what moves from step to step.  A CUDA kernel is launched once and
 * replayed with every step: what moves (step, lr, opt_step) it reads on the device, from
 * run_device.
 */
struct ckpt_run {
    uint64_t seed;
    int64_t step;  /* 0, 1, 2, ... */
    int32_t micro; /* micro-step, 0 .. n_micro - 1 */
    int32_t n_micro;
    float lr;
    int64_t opt_step; /* updates of the program's optimizer before this one */
    int32_t *halt;    /* not 0: a step or update before this one failed; may be NULL */
    float request[CKPT_REQUESTS]; /* 1: this rank asks for it; else 0 */
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
    const struct ckpt_run *run_device; /* CUDA: its copy in device memory, but for micro */
    void *stream;                      /* CUDA: the cudaStream_t to launch on */
    void *device;                      /* the library's own kernels: handles and what they keep */
    int threads;                       /* CPU: how many threads it may use, at least 1 */
    int32_t number; /* among the ops of the model, the stream of a random op: the position without
                     * ops that bring parameters from other ranks or out of codes, so that it is
                     * one for all */
};

/*
 * Threads: rules (shape, grad, cost) run on the thread that records and compiles.  A kernel runs on
 * a thread of the library's own, one call after the other in the order of the plan: never two at
 * once in one context, but in those of two contexts at the same time, so what it keeps outside of
 * its arguments it must guard itself.  It may divide its work among args->threads threads, itself
 * included (ckpt_parallel_for), which must be done when it returns.
 * How many there are must not change its bits.  It must call nothing of ckpt.h that takes the
 * context, a tape or a program.
 *
 * Memory: the operands and the scratch are its own until it returns.  It writes every element of
 * its outputs and nothing else: no byte outside of them and of workspace_bytes, and no input.
 * Scratch is not kept from one call to the next.  A kernel in threads that wants scratch for each
 * asks for call->threads times as much in its shape rule; a plan then depends on --threads.
 * Under --verify (CKPT_VERIFY=1) kernels run with red zones around the storages that they write and
 * around their scratch: on the CPU in every step, on CUDA when an op runs for the first time.  One
 * that wrote them ends the step, or the compilation, with CKPT_EINVAL and the name of its op.
 *
 * Returns 0 or a negative code.  Must give the same bits whenever inputs and run are the same.  A
 * CUDA kernel launches on args->stream and returns; it allocates nothing and waits for nothing.
 */
typedef int (*ckpt_kernel)(const struct ckpt_kernel_args *a);

/* What an op can do: ckpt_op_def.flags is a sum of these. */
enum ckpt_op_flag {
    CKPT_OP_STRIDED = 1,     /* inputs may have any strides; without it they arrive dense */
    CKPT_OP_STRIDED_OUT = 2, /* the kernel can write outputs of any strides */
    CKPT_OP_ACCUMULATE = 4,  /* the kernel honours args.accumulate for out[0], which is fp32 */
    CKPT_OP_INPLACE = 8,     /* out[i] is in[i], changed */
    CKPT_OP_VIEW = 16,       /* out[i] is a view of in[0]; there is no kernel */
    CKPT_OP_ONCE = 32,       /* never computed again (reads a clock, has a side effect, ...) */
    /* The kernel can write outputs of any strides as long as the last axis stays dense. */
    CKPT_OP_STRIDED_ROWS = 64,
    /*
     * The last input is optional: where it is present, a dense tensor of the shape and dtype of
     * out[0], it is added to out[0] before that is rounded.  A gradient rule leaves it out; the
     * library puts in the gradient that was summed so far.
     */
    CKPT_OP_ADDEND = 128,
    /*
     * Outputs may have no address (data is NULL): what a run that a plan has twice writes there is
     * for nobody before it is written again, so the kernel spares the work.
     */
    CKPT_OP_OPTIONAL_OUT = 256
};

/* A piece of a loop: elements begin .. end - 1, by thread 0 .. args->threads - 1. */
typedef void (*ckpt_loop)(int64_t begin, int64_t end, int thread, void *user);

/*
 * For kernels on the CPU: calls body for every piece of 0 .. n - 1, divided among the threads of
 * the kernel, and returns when all are done.  Each piece has `piece` elements (at least 1), the
 * last one what is left.  Where it is cut depends on n and piece alone: sums of pieces, added up in
 * their order, have the same bits on any number of threads.  Two pieces may run at once, those of
 * one thread number never do.
 */
CKPT_API void ckpt_parallel_for(const struct ckpt_kernel_args *args, int64_t n, int64_t piece,
                                ckpt_loop body, void *user);

/* An op: all the library knows of it. */
struct ckpt_op_def {
    size_t size; /* sizeof(struct ckpt_op_def) */
    const char *name;
    unsigned flags;
    int (*shape)(struct ckpt_call *call); /* 0, or ckpt_call_fail(...) */
    void (*grad)(struct ckpt_grad *grad); /* NULL: not differentiable, treated as a constant */
    void (*cost)(const struct ckpt_call *call, struct ckpt_cost *cost); /* NULL: bytes only */
    ckpt_kernel cpu;
    ckpt_kernel cuda;
};

/*
 * Records a call.  attr_size bytes of attr are copied.  The outputs go to out (n_out of them).
 * def must outlive the context.  What the rules say is checked: outputs lie inside of their
 * storage, sizes fit an int64, scratch and cost are numbers that can be.  Returns 0 or the tape's
 * error.
 */
CKPT_API int ckpt_record(ckpt_tape *t, const struct ckpt_op_def *def, int n_in,
                         const ckpt_tensor *in, int n_out, ckpt_tensor *out, const void *attr,
                         size_t attr_size);

/* How ckpt_gradcheck() looks, and what it found. */
struct ckpt_gradcheck {
    size_t size;
    int64_t batch;                            /* of a step */
    int (*feed)(ckpt_program *p, void *user); /* feeds the inputs; NULL: there are none */
    int64_t samples;                          /* elements of each parameter, spread over it */
    double length;    /* of the longest of four steps, each a quarter of the one before; times the
                       * element where that is above 1 */
    double tolerance; /* of the error */
    double smallest;  /* where all gradients of a parameter are below this, it counts for them */
    /* Found: the element with the largest error, its gradient and the nearest central difference.
     * error is how far these are apart, over the largest gradient of the parameter. */
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
 * 2h, for some elements of every trainable parameter of the context, with the values they have.
 * record and user as for ckpt_compile().  check (NULL: defaults) says how and tells what was found;
 * param lives as long as the context.  Parameters should be fp32 and not many: two steps of the
 * model are run for each of four lengths of each element.  Random numbers are those of the first
 * step each time.  The parameters are as before when it returns, unless a step failed.
 * Returns 0; CKPT_EGRADIENT, the sentence names parameter, element and both numbers; what
 * ckpt_compile(), feed and ckpt_step() return.
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
