/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a run for other programs: JSON lines, the first with the configuration, and their
 * numbers once more as events for TensorBoard. */
#ifndef EXAMPLES_LOG_H
#define EXAMPLES_LOG_H

#include "events.h"
#include "training_options.h"

/* A log that cannot be written, as on a full disk, does not end a run of days: it is said once, at
 * once, and the program goes on and returns 1 at its end. */
struct run_log {
    FILE *f; /* NULL: there is none, or none any more */
    char path[4096];
    bool failed;
    struct events events; /* of rank 0 */
    int64_t step;         /* of the last line */
};

/* Opens what --log names, ranks but 0 with .RANK behind, and events in the directory of
 * --tensorboard; either may be missing.  first: the steps that were run before.  Returns 0, or -1
 * after a sentence. */
int log_open(struct run_log *log, const struct training_options *t, int rank, int64_t first);
/* Returns 0, or -1 where a line was lost. */
int log_close(struct run_log *log);

/* The first line: what all trainers begin and end it with, theirs comes between.  p is the program
 * that trains, of all context c. */
void log_config_begin(struct run_log *log);
void log_config_end(struct run_log *log, const ckpt *c, const ckpt_program *p,
                    const struct training_options *t, const struct ckpt_options *library);

/* A line about a step, which stands under that key, and its parts.  Text is in the line alone. */
void log_line_begin(struct run_log *log, const char *key, int64_t step);
void log_text(struct run_log *log, const char *key, const char *text);
void log_int(struct run_log *log, const char *key, int64_t value);
void log_float(struct run_log *log, const char *key, double value);
/* Hands the line over to the system. */
void log_line_end(struct run_log *log);

/* An event with the PNG file that was just written, at the step of the last line. */
void log_picture(struct run_log *log, const char *name, const char *path);

/* The line of a step: what all trainers begin and end it with, theirs comes between. */
void log_step_begin(struct run_log *log, int64_t step, double loss,
                    const struct ckpt_program_info *info);
void log_step_end(struct run_log *log, const struct ckpt_program_info *info);

#endif
