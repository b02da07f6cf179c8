/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing JSON.  It is written by hand: Jansson, which reads it, loses keys without telling where
 * memory runs out while it writes, and its numbers are not the shortest that read back the same.
 */
#ifndef CKPT_JSON_H
#define CKPT_JSON_H

#include <stdio.h>

/* text, UTF-8, in quotes; NULL is "".  May stand in a script of HTML: no end tag can form. */
void json_write_string(FILE *f, const char *text);

#endif
