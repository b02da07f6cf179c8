/* SPDX-License-Identifier: Apache-2.0 */
/* What a run is asked to write: refused before it begins, where it would not be written. */
#ifndef EXAMPLES_OUTPUTS_H
#define EXAMPLES_OUTPUTS_H

#include "ckpt_tools.h"
#include "training_options.h"

/* Inputs and outputs of one family may be one file. */
enum { FAMILY_WEIGHTS = CKPT_FAMILY_OWN, FAMILY_STATE };

/* Where a trainer writes, as its options say. */
struct training_files {
    const struct ckpt_options *library;
    const struct training_options *train;
    const char *out; /* directory; NULL: nothing is written in one */
};

/* Refuses files that this run would not come to write: before the first step of --plan-only, with
 * --steps 0, an average of --ema-decay 0.  Returns 0, or -1 after a sentence. */
int outputs_asked(const struct training_files *t);

/* Refuses outputs of which the disk, a name or another option is in the way (ckpt_paths_check), and
 * makes directories.  more are rows of the program beside those of t.  Returns 0, or -1 after a
 * sentence. */
int outputs_check(const struct training_files *t, const struct ckpt_path *more, int n);

/* The same for programs that train nothing: plans and graphs are of steps that train. */
int outputs_untrained(const struct ckpt_options *library);

#endif
