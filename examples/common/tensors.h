/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of safetensors files that a program reads whole. */
#ifndef EXAMPLES_TENSORS_H
#define EXAMPLES_TENSORS_H

#include "ckpt_files.h"

/* Finds a tensor and checks its shape: a size of -1 matches any above 0.  Returns its index, or -1
 * after an error message. */
int tensor_find(ckpt_file *f, const char *path, const char *name, int ndim, const int64_t *shape,
                struct ckpt_file_entry *e);

/* The values of such a tensor, freed by the caller; sizes of -1 become those of the file.  Floats
 * may be stored as integers, and as flags any numbers: those that are not 0 are set.  NULL after an
 * error message. */
float *tensor_read(ckpt_file *f, const char *path, const char *name, int ndim, int64_t *shape);
int32_t *tensor_read_flags(ckpt_file *f, const char *path, const char *name, int ndim,
                           int64_t *shape);

/* The same for a tensor that the file may lack.  Returns 0, also without it, or -1 after an error
 * message. */
int tensor_read_if(ckpt_file *f, const char *path, const char *name, int ndim, int64_t *shape,
                   float **to);

/* A tensor to write. */
struct tensor {
    const char *name;
    enum ckpt_dtype dtype;
    int ndim;
    const int64_t *shape;
    const void *data; /* NULL: the file does not have it */
};

/* Writes a file of n tensors.  Returns 0, or -1 after an error message. */
int tensors_write(const char *path, int n, const struct tensor *t);

#endif
