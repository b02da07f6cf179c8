/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs say: failures, sizes, large numbers. */
#ifndef EXAMPLES_SAY_H
#define EXAMPLES_SAY_H

#include "ckpt.h"

/* The name in front of a sentence; each program has one. */
extern const char say_program[];

/* Of several ranks all but 0 say no more than what failed, and all say who they are then. */
void say_as_rank(int own, int ranks);

/* Prints "PROGRAM: ..." to standard error, control characters as \\x1b, and returns -1. */
int say_fail(const char *fmt, ...) CKPT_PRINTF(1, 2);
/* The same of what is no failure. */
void say_note(const char *fmt, ...) CKPT_PRINTF(1, 2);
/* As printf, for text with names in it: control characters as \\x1b. */
void say_print(const char *fmt, ...) CKPT_PRINTF(1, 2);

/* What this thread says of failures goes to dst from here on, a line each, as far as there is room;
 * NULL: it is printed again. */
void say_keep(char *dst, size_t size);

/* The first call of a program. */
void say_begin(void);

/* "12.5 MiB" and "1,207,643,936" into dst, which they return. */
const char *say_bytes(char dst[32], int64_t bytes);
const char *say_count(char dst[32], int64_t n);

/* Resident memory of this process in bytes. */
int64_t say_rss(void);

/* The status of a program that ends: rc, or 1 after a sentence where what it printed was lost. */
int say_finish(int rc);

/* ---- JSON, a line an object ---------------------------------------------------------------- */

/* "key": value, with a comma and a blank after it, or what is asked for. */
void json_put_string(FILE *f, const char *key, const char *text);
void json_put_int(FILE *f, const char *key, int64_t value);
/* JSON knows no NaN: such a value becomes null. */
void json_put_float(FILE *f, const char *key, double value, const char *after);

#endif
