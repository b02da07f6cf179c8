/* SPDX-License-Identifier: Apache-2.0 */
/* The counts in the metadata of a training state: see ckpt_files.h. */
#ifndef CKPT_STATE_COUNTS_H
#define CKPT_STATE_COUNTS_H

#include "ckpt_files.h"
#include "state/safetensors.h"

/* Metadata keys.  Steps and batches have one number per program. */
#define NOTE_VERSION  "ckpt.state"
#define NOTE_UPDATES  "ckpt.updates"
#define NOTE_SEED     "ckpt.seed"
#define NOTE_STEPS    "ckpt.steps"
#define NOTE_BATCHES  "ckpt.batches"
#define NOTE_RUN      CKPT_STATE_NOTE /* followed by the name of a note of the run */
#define STATE_VERSION "1"

#define COUNT_MAX (INT64_C(1) << 52) /* limit of updates, steps and samples per step */

struct state_counts {
    int64_t updates, seed;
    int n_programs;
    int64_t *steps, *batches; /* per program */
};

/* Reads and validates the counts: whole numbers in range and consistent.  Free them in any case.
 * Returns 0, CKPT_EFORMAT or CKPT_ENOMEM. */
int state_counts_read(const ckpt_file *f, struct state_counts *n);
void state_counts_free(struct state_counts *n);

#endif
