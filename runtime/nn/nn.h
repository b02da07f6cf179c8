/* SPDX-License-Identifier: Apache-2.0 */
/* What the makers of modules share. */
#ifndef CKPT_NN_INSIDE_H
#define CKPT_NN_INSIDE_H

#include <stdarg.h>
#include "ckpt_nn.h"

enum { NN_NAME = 256 }; /* bytes of a name with its end */

/*
 * A maker at work.  Where something is wrong with its arguments the error sticks to the context
 * and `failed` is set: it makes no parameters then.
 */
struct nn_maker {
    struct ckpt_nn nn;
    char name[NN_NAME];
    bool failed;
};

/* Reads what a maker was given.  Where nn is NULL there is no context for a sentence. */
struct nn_maker nn_open(const struct ckpt_nn *nn, const char *name, va_list ap) CKPT_PRINTF(2, 0);

/* Reads the spec of a module over its defaults. */
void nn_read_spec(struct nn_maker *m, const char *name, void *to, size_t known, const void *from);

/* The module cannot be made: why is the rest of the sentence. */
void nn_refuse(struct nn_maker *m, const char *why);

/* A maker of the same for NAME.part. */
struct nn_maker nn_part(const struct nn_maker *m, const char *part);

/* NAME.part, which begins so. */
ckpt_tensor nn_parameter(const struct nn_maker *m, const char *part, int ndim, const int64_t *shape,
                         struct ckpt_init init);

/* What an applier returns for a module that is NULL: the error sticks to the tape. */
ckpt_tensor nn_no_module(ckpt_tape *t, const char *call);

struct ckpt_nn_linear nn_linear(const struct nn_maker *m, int64_t in, int64_t out, bool bias);

#endif
