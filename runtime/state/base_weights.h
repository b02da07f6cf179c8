/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frozen weights that states leave out (ckpt_state_base).  A load of weights takes a digest of each
 * parameter, which every other change of its value drops.  A state names those that have one, with
 * shape and digest, and the run that loads it must have the same.
 */
#ifndef CKPT_STATE_BASE_WEIGHTS_H
#define CKPT_STATE_BASE_WEIGHTS_H

#include "core/params.h"
#include "state/safetensors.h"

/* Metadata keys: a JSON object with the shape and digest of each name, and the words that
 * ckpt_state_base got. */
#define NOTE_BASE      "ckpt.base"
#define NOTE_BASE_FROM "ckpt.base.from"

/* The digest of n values in the order of their file, never 0, by several threads; 0 if states have
 * all values.  finite, if not NULL: whether all are.  Returns 0 or CKPT_ENOMEM. */
int base_digest(const struct params *ps, const float *x, int64_t n, uint64_t *digest, bool *finite);

/* The text of NOTE_BASE, malloc'ed; *any: a parameter is left out.  NULL: no memory. */
char *base_describe(const struct params *ps, bool *any);

/* What a state leaves out. */
struct base {
    const ckpt_file *f;
    json_t *all; /* NULL: nothing */
};

/* Returns 0 or CKPT_EFORMAT; close it in any case. */
int base_open(struct base *b, const ckpt_file *f);
void base_close(struct base *b);

/* 1: the state leaves the parameter out, and it has the same value here; 0: the state does not name
 * it; else a code, with the sentence. */
int base_match(const struct base *b, const struct param *p);
/* Fails if the state leaves out a parameter that is not among these. */
int base_check_names(const struct base *b, const struct params *ps);

#endif
