/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers in files and options: always with a decimal point, whatever locale the program has set.
 * Only these functions write and read such numbers (build-aux/lint); sentences and tables for
 * people may follow the locale.
 */
#ifndef CKPT_NUMBER_H
#define CKPT_NUMBER_H

#include <stdio.h>

enum { NUMBER_TEXT = 32 };

/* The shortest decimal text that reads back as the same number. */
void number_format(char dst[NUMBER_TEXT], double value);
/* The same for a float, with 6 digits at least. */
void number_format_float(char dst[NUMBER_TEXT], float value);
/* Writes a number with this many significant digits, as %.*g. */
void number_put(FILE *f, int digits, double value);
/* strtod() in the C locale. */
double number_parse(const char *text, char **end);

#endif
