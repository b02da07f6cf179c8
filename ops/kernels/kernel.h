/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels: which function runs an op on a device, and what it needs there.
 *
 * An op (ops/) says what a step computes; a kernel is how one device computes it.  Each device has
 * a table of rows, table.c in its folder.  A tape is recorded and rewritten without them:
 * kernel_bind() chooses the kernel of each op once, after all passes and before the graph, so
 * scratch sizes are those of the ops that run.  Rows are complete in a build without the device but
 * for `run`, because a plan for a GPU is made on machines without one.
 *
 * Ops of programs (ckpt_op.h) have no row: their struct has their kernels, and their shape rule set
 * their scratch.
 */
#ifndef CKPT_KERNELS_KERNEL_H
#define CKPT_KERNELS_KERNEL_H

#include "extra.h"
#include "tape/tape.h"

/* What a kernel can do, as bits: extra outputs; those of a result that is a part of a larger
 * tensor, with gaps between its rows. */
enum {
    KERNEL_SUMS = 1 << EXTRA_SUMS,
    KERNEL_LARGEST = 1 << EXTRA_LARGEST,
    KERNEL_LARGEST_OF_ALL = 7 << EXTRA_LARGEST, /* of three results */
    KERNEL_APART = 1 << 15
};

struct kernel {
    const struct ckpt_op_def *op;
    ckpt_kernel run; /* NULL in a build without the device */
    unsigned can;
    /* Bytes of scratch, a function of the call alone, never of a machine; NULL: none. */
    int64_t (*workspace)(const struct ckpt_call *call);
};

/* The rows of a device are the ops of ops.def with a kernel, in its order; the last one has no op.
 * The table of a device sets the op and the function of each, and adds what its kernels.def has. */
enum {
#define OP_BY(name, kernel) ROW_##name,
#define OP(name)            ROW_##name,
#define OP_ALONE(name)
#include "ops.def"
    KERNEL_ROWS
};
extern const struct kernel cpu_kernels[], cuda_kernels[];

/* The function that runs an op on a device, or NULL. */
ckpt_kernel kernel_run(const struct ckpt_op_def *op, enum ckpt_backend backend);

/* The kernel that the executor runs around waits for collectives.  attr is an int64_t[2] that the
 * device can write and others read: the first run stores a clock in [1]; the second, with
 * args->accumulate, adds the nanoseconds since then to [0]. */
ckpt_kernel kernel_stopwatch(enum ckpt_backend backend);

/* What the kernel of an op can do. */
unsigned kernel_can(const struct ckpt_op_def *op, enum ckpt_backend backend);

/* Bytes of scratch of a call whose outputs are described, on call->backend. */
int64_t kernel_workspace(const struct ckpt_op_def *op, const struct ckpt_call *call);

/* The fewest tiles of a result for which products of layers with GELU or a gate in their epilogue
 * pay on a device of this compute capability (90: 9.0); 0: it has none. */
int64_t kernel_epilogue_tiles(enum ckpt_backend backend, int64_t capability);

/* Asked by passes: whether the device of t has such products, and a result of this size has tiles
 * enough for them (tape_env.epilogue_tiles). */
bool kernel_has_epilogue(const ckpt_tape *t, int64_t rows, int64_t cols);

/* Whether the host can run an op: tape_env.on_host. */
bool kernel_on_host(const struct ckpt_op_def *op);

/* Sets the kernel and the scratch of every op of a complete tape.  Returns 0 or its error. */
int kernel_bind(ckpt_tape *t);

#endif
