/* The log of a run for other programs: JSON lines, the first with the configuration. */
#ifndef EXAMPLES_LOG_H
#define EXAMPLES_LOG_H

#include "ckpt.h"

/* Opens what --log names, ranks but 0 with .RANK behind; path may be NULL, then *log is.  Returns
 * 0, or -1 after a sentence. */
int log_open(FILE **log, const char *path, int rank);
/* Prints a sentence when not all could be written. */
void log_close(FILE **log, const char *path);

/* The line of a step: what all trainers begin and end it with, theirs comes between. */
void log_step_begin(FILE *log, int64_t step, double loss, const struct ckpt_program_info *info);
void log_step_end(FILE *log, const struct ckpt_program_info *info);

#endif
