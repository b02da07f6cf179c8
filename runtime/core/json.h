/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON.  Jansson, which reads it, is not used for that: it silently loses keys when memory
 * runs out while it writes, and its numbers are not the shortest that read back the same.
 */
#ifndef CKPT_JSON_H
#define CKPT_JSON_H

#include <stdio.h>

/* Writes text, UTF-8, in quotes; NULL is "".  The result may stand in an HTML script: "<" is
 * escaped, so no end tag can form. */
void json_write_string(FILE *f, const char *text);

#endif
