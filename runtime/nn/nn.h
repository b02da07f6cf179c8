/* SPDX-License-Identifier: Apache-2.0 */
/* Common code of module constructors. */
#ifndef CKPT_NN_INSIDE_H
#define CKPT_NN_INSIDE_H

#include <stdarg.h>
#include "ckpt_nn.h"

enum { NN_NAME = 256 }; /* bytes of a name, including the NUL */

/*
 * State of a constructor.  After an error in its arguments the context keeps the error and `failed`
 * is set; no further parameters are made.
 */
struct nn_maker {
    struct ckpt_nn nn;
    char name[NN_NAME];
    bool failed;
};

/* Reads the arguments of a constructor.  If nn is NULL there is no context to store an error in. */
struct nn_maker nn_open(const struct ckpt_nn *nn, const char *name, va_list ap) CKPT_PRINTF(2, 0);
/* Begins a constructor whose last parameters are (nn, ..., name, ...): declares its state m. */
#define NN_OPEN(m)                                                                                 \
    va_list m##_names;                                                                             \
    va_start(m##_names, name);                                                                     \
    struct nn_maker m = nn_open(nn, name, m##_names);                                              \
    va_end(m##_names)

/* Copies the spec of a module over its defaults. */
void nn_read_spec(struct nn_maker *m, const char *name, void *to, size_t known, const void *from);

/* Records that the module cannot be made: why completes the sentence. */
void nn_refuse(struct nn_maker *m, const char *why);

/* A constructor with the same settings for NAME.part. */
struct nn_maker nn_part(const struct nn_maker *m, const char *part);

/* Creates the parameter NAME.part. */
ckpt_tensor nn_parameter(const struct nn_maker *m, const char *part, int ndim, const int64_t *shape,
                         struct ckpt_init init);

/* Reports a NULL module: the tape keeps the error.  Returns CKPT_NONE. */
ckpt_tensor nn_no_module(ckpt_tape *t, const char *call);

/* The ranks among which a module that trains is split (options.tensor), or 1. */
int nn_ranks(const struct nn_maker *m);
/* Splits n things, such as heads, among the ranks, or refuses the module. */
void nn_check_parts(struct nn_maker *m, int64_t n, const char *things);
/* Each rank gets a part of the rows, in equal blocks, or of the columns of a layer. */
void nn_split_rows(struct nn_maker *m, const struct ckpt_nn_linear *l, int64_t blocks);
void nn_split_columns(struct nn_maker *m, const struct ckpt_nn_linear *l);

struct ckpt_nn_linear nn_linear(const struct nn_maker *m, int64_t in, int64_t out, bool bias);
struct ckpt_nn_norm nn_norm(const struct nn_maker *m, int64_t width, float eps, bool rms);
struct ckpt_nn_attention nn_attention(struct nn_maker *m,
                                      const struct ckpt_nn_attention_spec *spec);
struct ckpt_nn_mlp nn_mlp(struct nn_maker *m, const struct ckpt_nn_mlp_spec *spec);

#endif
