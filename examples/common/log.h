/* SPDX-License-Identifier: Apache-2.0 */
/* A run's log for other programs: JSON lines, the first with the configuration.  The numbers are
 * also written as TensorBoard events. */
#ifndef EXAMPLES_LOG_H
#define EXAMPLES_LOG_H

#include "events.h"
#include "training_options.h"

/* A write error of the log, as on a full disk, does not end a run of days: it is reported once,
 * immediately, and the program continues and exits with 1. */
struct run_log {
    FILE *f; /* NULL: no log, or writing failed */
    char path[4096];
    bool failed;
    struct events events; /* rank 0 only */
    int64_t step;         /* step of the last line */
    /* Of the step to be logged: the seconds that each rank computed, or NULL. */
    const double *rank_seconds;
    int ranks;
};

/* Opens the file of --log (ranks other than 0 append .RANK to its name) and events in the directory
 * of --tensorboard; both are optional.  first: number of steps done before.  Returns 0, or -1 after
 * an error message. */
int log_open(struct run_log *log, const struct training_options *t, int rank, int64_t first);
/* Returns 0, or -1 if a line was lost. */
int log_close(struct run_log *log);

/* Begins and ends the first line; a trainer's own fields come between.  p is the training program
 * of context c. */
void log_config_begin(struct run_log *log);
void log_config_end(struct run_log *log, const ckpt *c, const ckpt_program *p,
                    const struct training_options *t, const struct ckpt_options *library);

/* A line about a step, stored under `key`, and its fields.  Text goes to the line only, not to
 * events. */
void log_line_begin(struct run_log *log, const char *key, int64_t step);
void log_text(struct run_log *log, const char *key, const char *text);
void log_int(struct run_log *log, const char *key, int64_t value);
void log_float(struct run_log *log, const char *key, double value);
/* Flushes the line to the system. */
void log_line_end(struct run_log *log);

/* Adds an event with the PNG file just written, at the step of the last line. */
void log_picture(struct run_log *log, const char *name, const char *path);

/* Begins and ends the line of a step; a trainer's own fields come between. */
void log_step_begin(struct run_log *log, int64_t step, double loss,
                    const struct ckpt_program_info *info);
void log_step_end(struct run_log *log, const struct ckpt_program_info *info);

#endif
