/* SPDX-License-Identifier: Apache-2.0 */
/* Names in sentences of errors: what the user called, rather than what this records. */
#ifndef CKPT_OPS_CALL_H
#define CKPT_OPS_CALL_H

#include "ckpt.h"

/*
 * In a function that records calls of others: until it returns, sentences of errors begin with its
 * name, or with that of the outermost such function.
 */
#define OPS_CALL(t)                                                                                \
    __attribute__((cleanup(ops_end_call))) ckpt_tape *ops_call = ops_begin_call((t), __func__)
ckpt_tape *ops_begin_call(ckpt_tape *t, const char *function);
void ops_end_call(ckpt_tape **t);

/* Leads the sentence of a tape that failed in that function with a place. */
void ops_place(ckpt_tape *t, const char *place);

/* Fails the tape: the sentence, and the n tensors of x as in sentences of ops. */
void ops_refuse(ckpt_tape *t, int n, const ckpt_tensor *x, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
