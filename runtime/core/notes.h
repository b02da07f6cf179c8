/* SPDX-License-Identifier: Apache-2.0 */
/* Named texts: what a state of training says of the run that made it. */
#ifndef CKPT_NOTES_H
#define CKPT_NOTES_H

#include "core/base.h"

/* The note of the dtype of state of bf16 parameters; without it that is fp32. */
#define NOTE_STATE "ckpt.state"
/* The note of the operands of products; without it they are bf16. */
#define NOTE_MATMUL "ckpt.matmul"
/* The note of what frozen weights are kept in; without it they are not in codes. */
#define NOTE_FROZEN "ckpt.frozen"

/* The note of what the backward pass reads of the forward pass; without it that is bf16. */
#define NOTE_ACTIVATIONS "ckpt.activations"

struct note {
    char *name, *text;
};

struct note_list {
    struct note *data;
    int64_t capacity;
    int32_t n;
};

/* Adds a copy, in the place of one of that name.  Bytes that are not UTF-8 become '?': the notes
 * stand in JSON.  Returns 0 or CKPT_ENOMEM. */
int note_set(struct note_list *l, const char *name, const char *text);
/* NULL where there is none. */
const char *note_find(const struct note_list *l, const char *name);
void note_list_free(struct note_list *l);

#endif
