/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of a .pt2 archive: parameters and buffers of data/weights, constants and buffers that
 * no file of weights has of data/constants, by their names in Python.
 *
 * A tensor is a view of a storage: its sizes, its strides and where it begins.  Tied tensors have
 * one storage.  Values are read where they lie, in the order of the sizes.
 */
#ifndef CKPT_IMPORT_WEIGHTS_H
#define CKPT_IMPORT_WEIGHTS_H

#include "import/archive.h"
#include "state/safetensors.h"

struct weight {
    const char *name;
    int code;                       /* of its dtype: enum pt2_dtype */
    const struct file_dtype *dtype; /* NULL: none that a file of weights may have */
    int ndim;
    int64_t size[CKPT_MAX_DIMS], stride[CKPT_MAX_DIMS]; /* in elements */
    int64_t offset;                                     /* of the first one in the storage */
    int64_t numel;
    bool is_param;
    const struct archive_member *storage; /* the same for tied tensors */
    bool has_values; /* not if the model was exported without: its storage is empty */
};

struct weights;

/* Reads and checks both lists of a model ("model", if the archive has one).  The archive must stay
 * open.  Returns 0 or a code with the sentence of the thread. */
int weights_open(struct weights **w, const struct archive *a, const char *model);
void weights_close(struct weights *w);

/* The tensor with this name, or NULL; the i-th in the order of names, or NULL behind the last. */
const struct weight *weights_find(const struct weights *w, const char *name);
const struct weight *weights_at(const struct weights *w, int i);

/* The position in the storage, in elements, of an element counted in row-major order. */
int64_t weight_position(const struct weight *x, int64_t element);

/* Whether both are the same elements in the same order: one parameter with two names.  Of tensors
 * without values it is not known, and false. */
bool weights_same(const struct weight *a, const struct weight *b);

/* Whether any element may be one of both. */
bool weights_overlap(const struct weight *a, const struct weight *b);

/*
 * Reads elements [first, first + n), counted in row-major order of the sizes.  raw: as they are in
 * the file, n times dtype->size bytes; f32 and i32: converted, an integer that does not fit in 32
 * bits is an error.  Returns 0 or a code with the sentence of the thread; a tensor without values
 * is CKPT_EFORMAT, and so is one whose storage was read whole and has another checksum.
 */
int weights_read(const struct weights *w, const struct weight *x, int64_t first, void *to,
                 int64_t n);
int weights_read_f32(const struct weights *w, const struct weight *x, int64_t first, float *to,
                     int64_t n);
int weights_read_i32(const struct weights *w, const struct weight *x, int64_t first, int32_t *to,
                     int64_t n);

#endif
