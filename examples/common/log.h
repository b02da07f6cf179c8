/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a run for other programs: JSON lines, the first with the configuration. */
#ifndef EXAMPLES_LOG_H
#define EXAMPLES_LOG_H

#include "training_options.h"

/* A log that cannot be written, as on a full disk, does not end a run of days: it is said once, at
 * once, and the program goes on and returns 1 at its end. */
struct run_log {
    FILE *f; /* NULL: there is none, or none any more */
    char path[4096];
    bool failed;
};

/* Opens what --log names, ranks but 0 with .RANK behind; path may be NULL.  Returns 0, or -1 after
 * a sentence. */
int log_open(struct run_log *log, const char *path, int rank);
/* Hands a line over to the system. */
void log_flush(struct run_log *log);
/* Returns 0, or -1 where a line was lost. */
int log_close(struct run_log *log);

/* The first line: what all trainers begin and end it with, theirs comes between.  p is the program
 * that trains, of all context c. */
void log_config_begin(struct run_log *log);
void log_config_end(struct run_log *log, const ckpt *c, const ckpt_program *p,
                    const struct training_options *t, const struct ckpt_options *library);

/* The line of a step: what all trainers begin and end it with, theirs comes between. */
void log_step_begin(struct run_log *log, int64_t step, double loss,
                    const struct ckpt_program_info *info);
void log_step_end(struct run_log *log, const struct ckpt_program_info *info);

#endif
