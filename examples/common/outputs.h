/* SPDX-License-Identifier: Apache-2.0 */
/* What a run is asked to write: refused before it begins, where it would not be written. */
#ifndef EXAMPLES_OUTPUTS_H
#define EXAMPLES_OUTPUTS_H

#include "ckpt_tools.h"
#include "resume.h"

/* Inputs and outputs of one family may be one file. */
enum { FAMILY_WEIGHTS = CKPT_FAMILY_OWN, FAMILY_STATE };

/* The files of a trainer, as its options name them; NULL: not asked for. */
struct training_files {
    const struct ckpt_options *library;
    const struct resume_options *state;
    const char *load, *save, *save_ema, *log, *dump;
    const char *out; /* directory */
    int64_t steps;
    double ema_decay;
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
