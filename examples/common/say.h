/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the programs: failures, sizes, large numbers. */
#ifndef EXAMPLES_SAY_H
#define EXAMPLES_SAY_H

#include "ckpt.h"

/* The name that starts each message; each program defines it. */
extern const char say_program[];

/* With several ranks, ranks other than 0 print only failures, and all ranks prefix messages with
 * their number. */
void say_as_rank(int own, int ranks);

/* Prints "PROGRAM: ..." to standard error, control characters as \\x1b, and returns -1. */
int say_fail(const char *fmt, ...) CKPT_PRINTF(1, 2);
#ifdef CKPT_ANALYZE /* an analyzer, which reads one file, learns what it returns */
#define say_fail(...) (say_fail(__VA_ARGS__), -1)
#endif
/* What say_fail printed first; "": it was not called. */
const char *say_failure(void);
/* As say_fail, for a message that is not a failure. */
void say_note(const char *fmt, ...) CKPT_PRINTF(1, 2);
/* As printf, with control characters escaped as \\x1b: for text that contains names. */
void say_print(const char *fmt, ...) CKPT_PRINTF(1, 2);

/* From here on this thread's failure messages are appended to dst, a line each, as far as they fit;
 * NULL: they are printed again. */
void say_keep(char *dst, size_t size);

/* Opens a context.  Returns 0, or -1 after an error message.  Says where it computes on the CPU
 * although nobody asked for that. */
int say_open(ckpt **c, const struct ckpt_options *o);

/* Must be the first call of a program; handles its signals (signals.h). */
void say_begin(void);

/* Format a size as "12.5 MiB" and a count as "1,207,643,936" in dst, and return dst. */
const char *say_bytes(char dst[32], int64_t bytes);
const char *say_count(char dst[32], int64_t n);
/* A shape as "2, 16". */
const char *say_shape(char dst[160], int ndim, const int64_t *shape);

/* Resident memory of this process in bytes. */
int64_t say_rss(void);

/* The exit status of a program: rc, or 1 after an error message if standard output could not be
 * written. */
int say_finish(int rc);

/* ---- JSON, one object per line ------------------------------------------------------------- */

/* Writes "key": value, followed by a comma and a blank, or by `after`. */
void json_put_string(FILE *f, const char *key, const char *text);
void json_put_int(FILE *f, const char *key, int64_t value);
/* JSON has no NaN: a value that is not finite becomes null. */
void json_put_float(FILE *f, const char *key, double value, const char *after);

#endif
