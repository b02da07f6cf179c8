/* SPDX-License-Identifier: Apache-2.0 */
/* Values of parameters wherever they are stored: on the host before they have an address, in
 * memory, or in the shares of ranks. */
#ifndef CKPT_VALUES_H
#define CKPT_VALUES_H

#include "dist/ranks.h"

/* Writes the values of slots that got an address since the last call, once their memory exists.
 * Returns 0 or a code, with the sentence in the error, like the calls below. */
int values_fill(struct ranks *job);

/* Does p have this slot? */
bool values_kept(const struct ranks *job, const struct param *p, enum ckpt_slot slot);

/* Shape of a slot in files. values_is_factor: is the slot a factor of a second moment?  Files store
 * factors in the order used here. */
struct ckpt_desc values_file_desc(const struct param *p, enum ckpt_slot slot);
bool values_is_factor(enum ckpt_slot slot);

/* The dtype and shape of a slot in a saved state, as it is stored in memory.  Coded slots hold the
 * words of mean8.h or frozen.h for all values, in the order of the parameter's memory. */
struct ckpt_desc values_state_desc(const struct param *p, enum ckpt_slot slot);
/* Encodes n values of a coded slot into such words. */
void values_encode(const struct param *p, enum ckpt_slot slot, const float *src, int64_t n,
                   void *words);

/* Read or write all elements of an existing slot, as fp32. */
int values_get(struct ranks *job, const struct param *p, enum ckpt_slot slot, float *dst);
int values_set(struct ranks *job, struct param *p, enum ckpt_slot slot, const float *src);

#endif
