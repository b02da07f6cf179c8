/* SPDX-License-Identifier: Apache-2.0 */
/* Values of parameters wherever they are stored: on the host before they have an address, in
 * memory, or in the shares of ranks. */
#ifndef CKPT_VALUES_H
#define CKPT_VALUES_H

#include "dist/ranks.h"

/* Writes the values of slots that got an address since the last call, once their memory exists.
 * Returns 0 or a code, with the sentence in the error, like the calls below. */
int values_fill(struct ranks *job);

/* Of a pipeline: every stage learns which slots the others keep. */
int values_tell_stages(struct ranks *job);

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
/* The same of a parameter that is whole on this rank, without the others. */
int values_read(struct ranks *job, const struct param *p, enum ckpt_slot slot, float *dst);
int values_set(struct ranks *job, struct param *p, enum ckpt_slot slot, const float *src);

/* The elements of a slot that this rank can read without the others: n from `first` on, 0 if it has
 * none that it should write.  Of several replicas of a share one is chosen. */
struct values_run {
    const struct param *in; /* the parameter or bucket with them; NULL: only the host has them */
    int slot;               /* of it */
    int64_t at;             /* of the first in it */
    int64_t first, n;
    bool shared; /* every rank has them all */
};

/* planned: SLOT_COUNT for each parameter, slots that will be filled; NULL: none. */
struct values_run values_find_run(const struct ranks *job, const struct param *p,
                                  enum ckpt_slot slot, const bool *planned);

/* Slots that are only read whole; the last ones stay, because several parameters lie in each. */
enum { VALUES_KEPT = 2 };
struct values_cache {
    const struct param *in[VALUES_KEPT];
    int slot[VALUES_KEPT], next;
    float *values[VALUES_KEPT];
};
/* Whether p has this slot then. */
bool values_planned(const struct ranks *job, const struct param *p, enum ckpt_slot slot,
                    const bool *planned);
void values_cache_free(struct values_cache *k);
/* Reads a run; dst has its n elements. */
int values_read_run(struct ranks *job, const struct param *p, const struct values_run *run,
                    struct values_cache *cache, float *dst);

#endif
