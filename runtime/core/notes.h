/* SPDX-License-Identifier: Apache-2.0 */
/* Named texts that a state of training keeps about the run that made it. */
#ifndef CKPT_NOTES_H
#define CKPT_NOTES_H

#include "core/base.h"

/* Name of the note of the dtype of bf16 parameters' state; without it the dtype is fp32. */
#define NOTE_STATE "ckpt.state"
/* Name of the note of the operands' dtype in products; without it they are bf16. */
#define NOTE_MATMUL "ckpt.matmul"
/* Name of the note of the format of frozen weights; without it they are not in codes. */
#define NOTE_FROZEN "ckpt.frozen"

/* Name of the note of the dtype of saved activations; without it they are bf16. */
#define NOTE_ACTIVATIONS "ckpt.activations"

/* Name of the note of --qat, its ranges and what it leaves out; without it nothing is rounded. */
#define NOTE_QAT "ckpt.qat"

/* Prefix of the names of notes about the optimizer of a training program; without one it is AdamW
 * without groups, clip_value and ema_warmup, whose other settings have notes of their own. */
#define NOTE_OPTIMIZER "ckpt.optimizer of program"

struct note {
    char *name, *text;
};

struct note_list {
    struct note *data;
    int64_t capacity;
    int32_t n;
};

/* Adds a copy of a note, or replaces one of that name.  Bytes that are not UTF-8 become '?',
 * because notes are written as JSON.  Returns 0 or CKPT_ENOMEM. */
int note_set(struct note_list *l, const char *name, const char *text);
/* NULL if there is no such note. */
const char *note_find(const struct note_list *l, const char *name);
void note_list_free(struct note_list *l);

#endif
