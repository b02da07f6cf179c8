/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt bench --ops: what its files share.  A case records one family of ops; every op of a case is
 * run alone, on operands the bench made or the ops before it left. */
#ifndef CKPT_CLI_BENCH_H
#define CKPT_CLI_BENCH_H

#include "cli/cli.h"
#include "memory/device/device.h"
#include "tape/tape.h"

/* ---- cases ---------------------------------------------------------------------------------- */

/* How many rows the operands of a case have; widths are those of the model in every case. */
struct bench_sizes {
    int32_t rows;                           /* of matrix products */
    int32_t places;                         /* of a frame, where all frames take part */
    int32_t spatial_frames, spatial_places; /* of spatial attention */
    int32_t text;
    int32_t height, width; /* of a latent */
    int32_t picture;       /* places a side, of autoencoders */
    int32_t latent_frames;
    int32_t sequences, tokens; /* of language models */
    int32_t vocabulary;
};

/* As STDiT3 XL/2 has them; and so few that a table takes seconds. */
extern const struct bench_sizes bench_full, bench_small;

struct bench_case {
    const char *family;
    /* Records the forward ops and returns what is differentiated; CKPT_NONE: nothing is. */
    ckpt_tensor (*record)(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z);
};

/* Ended by a family that is NULL. */
extern const struct bench_case bench_cases[];

/* The dtype of models that have tensors of this one: 8-bit copies are those of bf16. */
static inline enum ckpt_dtype bench_dtype_of(enum ckpt_dtype dtype)
{
    return dtype == CKPT_F8E4M3 || dtype == CKPT_F8E5M2 ? CKPT_BF16 : dtype;
}

/* ---- runs ----------------------------------------------------------------------------------- */

enum {
    BENCH_OPERANDS = CKPT_MAX_PARTS + 16,
    BENCH_PATTERN = 1 << 16, /* values before they come again */
    BENCH_ROW = 80           /* columns of a table that say which op it is */
};

struct bench_options {
    const char *mode, *only, *device, *dtype, *machine, *size;
    int64_t ms, threads;
    bool ops, help;
};

struct bench {
    const struct bench_options *options;
    const struct bench_sizes *sizes;
    ckpt *c;                  /* on the device asked for */
    struct device *device;    /* of it */
    struct device *reference; /* the CPU that results are compared with, or NULL */
    float *host;              /* values on their way to a device, and the same as bf16 */
    struct ckpt_run *run;     /* on the host; a GPU reads its own copy */
};

/* One op of a case, with the storages of its tape at the same offsets in the arena of every device
 * that takes part. */
struct bench_op {
    const char *family;
    const ckpt_tape *tape;
    const struct op *op;
    int32_t index; /* on the tape */
    enum ckpt_dtype dtype;
    bool gradient;         /* recorded by reverse mode */
    const int64_t *offset; /* per storage */
    int64_t end;           /* of the last one: the workspace begins here */
};

/* A call of its kernel on one device. */
struct bench_job {
    struct device *device;
    ckpt_kernel kernel; /* NULL: there is none */
    struct ckpt_kernel_args args;
    struct ckpt_view views[BENCH_OPERANDS];
};

/* Bytes mapped behind the workspace on a device: caches hold less. */
int64_t bench_flush_bytes(const struct device *d);

/* Calls visit for every op that runs, in order; each must leave its results in the arena of the
 * reference, or of the device where there is none.  Returns an exit status; a visit that returns
 * one ends it. */
int bench_each(struct bench *b, int (*visit)(void *user, const struct bench_op *op), void *user);

/* Records the ops of a case and their gradients; ops [own, seeded) lead to a loss and from it and
 * belong to no case. */
struct bench_scaffold {
    int32_t own, seeded;
};
struct bench_scaffold bench_record(const struct bench *b, ckpt_tape *t, const struct bench_case *k,
                                   enum ckpt_dtype dtype);
/* Whether --only and --dtype ask for it. */
bool bench_wants(const struct bench *b, const struct bench_case *k, enum ckpt_dtype dtype);

/* j points into itself and must stay where it is. */
void bench_make_job(struct bench_job *j, struct bench *b, struct device *d,
                    const struct bench_op *op);
/* Hands the kernel over and waits; 0 or a code, the reason in bench_reason.  seconds may be NULL.
 */
int bench_run(struct bench_job *j, double *seconds);
const char *bench_reason(const struct bench_job *j, int rc);

/* "linear              bf16  2048x1152 1152x1152" */
void bench_row_text(const struct bench_op *op, const struct bench_job *j, char text[BENCH_ROW]);

/* ---- modes: each returns an exit status ------------------------------------------------------ */

int bench_support(struct bench *b);
int bench_perf(struct bench *b);
int bench_compare(struct bench *b, bool gradient);

#endif
