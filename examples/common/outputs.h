/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of a run's outputs, before the run begins. */
#ifndef EXAMPLES_OUTPUTS_H
#define EXAMPLES_OUTPUTS_H

#include "ckpt_tools.h"
#include "training_options.h"

/* Files of the same family may be both input and output. */
enum { FAMILY_WEIGHTS = CKPT_FAMILY_OWN, FAMILY_STATE };

/* The files of a trainer, from its options. */
struct training_files {
    const struct ckpt_options *library;
    const struct training_options *train;
    const char *out;        /* output directory; NULL: none */
    const char *out_option; /* the option that names it; NULL: --output */
};

/* Refuses outputs that this run would never write: with --plan-only or --steps 0, or an average
 * with --ema-decay 0.  Returns 0, or -1 after an error message. */
int outputs_asked(const struct training_files *t);

/*
 * Checks that outputs can be written and do not conflict with each other or with inputs
 * (ckpt_paths_check), and locks them until the process exits (lock.h): a second run that would
 * write one of them is refused.  Only the process that writes calls it: with ranks rank 0, after
 * the rendezvous.  Returns 0, or -1 after an error message.
 */
int outputs_take(const struct ckpt_options *library, const struct ckpt_path *paths, int n);

/* outputs_take for a trainer.  more: the program's own files in addition to t's. */
int outputs_check(const struct training_files *t, const struct ckpt_path *more, int n);

/* A file that is written at the end, and its bytes. */
struct output_size {
    const char *option, *path; /* path NULL: not requested */
    int64_t bytes;
};

/* Refuses files that do not fit on their file systems, as far as the free space tells: each is
 * written beside the file that it replaces.  Returns 0, or -1 after an error message. */
int outputs_fit(const struct output_size *files, int n);

/* Refuses outputs that a pattern of input files (--data) matches, whether they exist or not.
 * more: outputs of this program alone.  inside: names of files that are written in directories, up
 * to NULL.  Returns 0, or -1 after an error message. */
int outputs_check_pattern(const struct training_files *t, const struct ckpt_path *more, int n_more,
                          const char *option, const char *pattern, const char *const *inside);

/* Refuses options that only apply to training, in programs that do not train. */
int outputs_untrained(const struct ckpt_options *library);

#endif
