/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs and outputs of an archive, and where the samples of a batch are in them. */
#ifndef PT2_SIGNATURE_H
#define PT2_SIGNATURE_H

#include "ckpt_import.h"
#include "options.h"

enum signature_role {
    ROLE_BATCH, /* samples lie along an axis */
    ROLE_WHOLE, /* it has no such axis: a sample is a call of the model */
    ROLE_SHARED /* all samples have the same values */
};

enum { SIGNATURE_NAME = 200, SIGNATURE_DIMENSION = 24 };

struct signature_value {
    char name[SIGNATURE_NAME];
    struct ckpt_desc
        desc; /* sizes of dynamic dimensions are those of the data, once they are known */
    /* as in struct ckpt_import_value; "-": fixed */
    char dimension[CKPT_MAX_DIMS][SIGNATURE_DIMENSION];
    int64_t smallest[CKPT_MAX_DIMS]; /* size of a dynamic dimension; 64: this or more */
    int bound[CKPT_MAX_DIMS];        /* 1 + the number of the --dim that sets it; 0: none does */
    bool loss;
    enum signature_role role; /* of an input */
    int axis;                 /* of the samples; of an output -1: none is known */
};

enum { SIGNATURE_BATCHES = 8, SIGNATURE_SIZES = 32 };

/* NAME=N of --dim. */
struct signature_size {
    char name[SIGNATURE_NAME];
    int64_t n;
};

struct signature {
    struct signature_value *in, *out;
    int n_in, n_out;
    struct signature_size size[SIGNATURE_SIZES];
    int n_sizes;
    /* The dynamic dimensions that are the batch; none: a call of the model has `fixed` samples. */
    char batch[SIGNATURE_BATCHES][SIGNATURE_DIMENSION];
    int n_batch;
    int64_t fixed;
    int64_t smallest; /* batch that the archive takes */
};

/* Reads the archive of --model, without its weights, and applies --dim.  Returns 0, or -1 after an
 * error message. */
int signature_read(struct signature *s, const struct pt2_options *o);
void signature_close(struct signature *s);

/* The output with this name or number, or NULL. */
const struct signature_value *signature_output(const struct signature *s, const char *name);

/* Finds the axis of the samples in inputs that are not shared.  rank: of each input the axes that
 * its tensor in the data has; NULL without data: inputs without an axis of samples are then taken
 * for shared ones.  Returns 0, or -1 after an error message. */
int signature_place(struct signature *s, const int *rank);

/* Whether a size of the value follows from the data. */
bool signature_is_dynamic(const struct signature_value *v, int axis);

/* Sets the dynamic sizes of an opened archive that are no batch.  Returns 0, or -1 after an error
 * message. */
int signature_apply(const struct signature *s, ckpt *c, ckpt_import *m);

#endif
