/* SPDX-License-Identifier: Apache-2.0 */
/* The counts in the metadata of a state of training: see ckpt_files.h. */
#ifndef CKPT_STATE_COUNTS_H
#define CKPT_STATE_COUNTS_H

#include "ckpt_files.h"
#include "state/safetensors.h"

/* What the notes of a file are called.  Steps and batches have a number for each program. */
#define NOTE_VERSION  "ckpt.state"
#define NOTE_UPDATES  "ckpt.updates"
#define NOTE_SEED     "ckpt.seed"
#define NOTE_STEPS    "ckpt.steps"
#define NOTE_BATCHES  "ckpt.batches"
#define NOTE_RUN      CKPT_STATE_NOTE /* and the name of a note of the run that made it */
#define STATE_VERSION "1"

#define COUNT_MAX (INT64_C(1) << 52) /* of updates, steps and samples of a step */

struct state_counts {
    int64_t updates, seed;
    int n_programs;
    int64_t *steps, *batches; /* of each program */
};

/* Reads and checks them: whole numbers in range that agree with each other.  Free them in any case.
 * Returns 0, CKPT_EFORMAT or CKPT_ENOMEM. */
int state_counts_read(const ckpt_file *f, struct state_counts *n);
void state_counts_free(struct state_counts *n);

#endif
