/* SPDX-License-Identifier: Apache-2.0 */
/* bench_ops: common declarations.  A case records one family of ops.  Every op of a case runs
 * alone, on operands that the bench fills or that earlier ops of the case computed. */
#ifndef CKPT_BENCH_H
#define CKPT_BENCH_H

#include "ckpt_tools.h"
#include "core/fp8.h"
#include "memory/device/device.h"
#include "plan/graph/machine.h"
#include "tape/tape.h"

/* ---- cases ---------------------------------------------------------------------------------- */

/* Lengths of the operands of a case; widths are the model's widths in every case. */
struct bench_sizes {
    int32_t rows;                           /* of matrix products */
    int32_t places;                         /* of a frame, where all frames take part */
    int32_t spatial_frames, spatial_places; /* of spatial attention */
    int32_t text;
    int32_t height, width; /* of a latent */
    int32_t picture;       /* side of an autoencoder's pictures */
    int32_t latent_frames;
    int32_t sequences, tokens; /* of language models */
    int32_t vocabulary;
};

/* Sizes of STDiT3 XL/2, and small sizes for a table within seconds. */
extern const struct bench_sizes bench_full, bench_small;

/* Records the forward ops of a case and returns the tensor to differentiate, or CKPT_NONE. */
typedef ckpt_tensor bench_recorder(ckpt_tape *t, enum ckpt_dtype dtype,
                                   const struct bench_sizes *z);

struct bench_case {
    const char *family;
    bench_recorder *record;
};

/* Terminated by a NULL family. */
extern const struct bench_case bench_cases[];

/* The model dtype that uses tensors of this dtype: 8-bit copies belong to bf16 models. */
static inline enum ckpt_dtype bench_dtype_of(enum ckpt_dtype dtype)
{
    return dtype_is_fp8(dtype) ? CKPT_BF16 : dtype;
}

/* ---- runs ----------------------------------------------------------------------------------- */

enum {
    BENCH_OPERANDS = CKPT_MAX_PARTS + 16,
    BENCH_PATTERN = 1 << 16, /* period of operand values */
    BENCH_ROW = 80           /* width of the columns that identify an op */
};

struct bench_options {
    const char *mode, *only, *device, *dtype, *machine, *size;
    int64_t ms, threads;
    bool help;
};

struct bench {
    const struct bench_options *options;
    const struct bench_sizes *sizes;
    ckpt *c;                  /* on the selected device */
    struct device *device;    /* of c */
    struct device *reference; /* the CPU to compare with, or NULL */
    float *host;              /* host buffer for values, followed by the same values as bf16 */
    struct ckpt_run *run;     /* on the host; a GPU has its own copy */
};

/* One op of a case.  The storages of its tape have the same offsets in the arena of every
 * device. */
struct bench_op {
    const char *family;
    const ckpt_tape *tape;
    const struct op *op;
    int32_t index; /* index on the tape */
    enum ckpt_dtype dtype;
    bool gradient;         /* recorded by reverse mode */
    const int64_t *offset; /* per storage */
    int64_t end;           /* end of the last storage, where the workspace begins */
};

/* A kernel call on one device. */
struct bench_job {
    struct device *device;
    ckpt_kernel kernel; /* NULL: no kernel */
    struct ckpt_kernel_args args;
    struct ckpt_view views[BENCH_OPERANDS];
};

/* Bytes mapped after the workspace to flush the caches with; larger than the caches. */
int64_t bench_flush_bytes(const struct device *d);

/* Calls visit for every op that runs, in order.  Each visit must leave its results in the arena of
 * the reference, or of the device if there is no reference.  Stops at the first visit that returns
 * an exit status, and returns it. */
int bench_each(struct bench *b, int (*visit)(void *user, const struct bench_op *op), void *user);

/* Records the ops of a case and their gradients.  Ops [own, seeded) compute a loss and its gradient
 * and belong to no case. */
struct bench_scaffold {
    int32_t own, seeded;
};
struct bench_scaffold bench_record(const struct bench *b, ckpt_tape *t, const struct bench_case *k,
                                   enum ckpt_dtype dtype);
/* Do --only and --dtype select this case? */
bool bench_wants(const struct bench *b, const struct bench_case *k, enum ckpt_dtype dtype);

/* j contains pointers into itself, so it must not be moved. */
void bench_make_job(struct bench_job *j, struct bench *b, struct device *d,
                    const struct bench_op *op);
/* Runs the kernel and waits; 0 or a code, with the reason from bench_reason. */
int bench_run(struct bench_job *j);
const char *bench_reason(const struct bench_job *j, int rc);

/* "linear              bf16  2048x1152 1152x1152" */
void bench_row_text(const struct bench_op *op, const struct bench_job *j, char text[BENCH_ROW]);

/* Prints "bench_ops: ..." on standard error.  Returns 1, or 2 for a mistake on the command line. */
int bench_fail(const char *fmt, ...) CKPT_PRINTF(1, 2);
int bench_usage(const char *fmt, ...) CKPT_PRINTF(1, 2);

/* ---- modes: each returns an exit status ------------------------------------------------------ */

int bench_support(struct bench *b);
int bench_perf(struct bench *b);
int bench_compare(struct bench *b, bool gradient);

#endif
