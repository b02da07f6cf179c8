/* SPDX-License-Identifier: Apache-2.0 */
/* Values of parameters, wherever they are: on the host before they have a place, in memory, in the
 * shares of ranks. */
#ifndef CKPT_VALUES_H
#define CKPT_VALUES_H

#include "dist/ranks.h"

/* Writes the values of the slots that got a place since the last call, once there is memory behind
 * them.  Returns 0 or a code, the sentence in the error, as those below. */
int values_fill(struct ranks *job);

/* Is there such a slot of p? */
bool values_kept(const struct ranks *job, const struct param *p, enum ckpt_slot slot);

/* Shape of a slot in files, and whether it is a factor of a second moment, in no other order there
 * than here. */
struct ckpt_desc values_file_desc(const struct param *p, enum ckpt_slot slot);
bool values_is_factor(enum ckpt_slot slot);

/* The dtype and shape in which states have a slot: as it is kept.  Codes are the words of mean8.h
 * and frozen.h, of all values in the order of the parameter's memory. */
struct ckpt_desc values_state_desc(const struct param *p, enum ckpt_slot slot);
/* n values of such a slot as these words. */
void values_encode(const struct param *p, enum ckpt_slot slot, const float *src, int64_t n,
                   void *words);

/* All elements of a slot that is kept, as fp32. */
int values_get(struct ranks *job, const struct param *p, enum ckpt_slot slot, float *dst);
int values_set(struct ranks *job, struct param *p, enum ckpt_slot slot, const float *src);

#endif
