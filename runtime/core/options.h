/* SPDX-License-Identifier: Apache-2.0 */
/* Option tables: declarations that the files of this room share. */
#ifndef CKPT_REPORT_OPTIONS_H
#define CKPT_REPORT_OPTIONS_H

#include "core/base.h"
#include "ckpt_tools.h"

/*
 * Stores the text of a value in the row's field of dest.  where names the origin ("option --vram",
 * "environment variable CKPT_VRAM") in the error sentence.
 */
int option_store(const struct ckpt_option *row, void *dest, const char *where, const char *text);

/* The option of n tables whose name is nearest to a word of this length; NULL: none is near. */
const char *option_nearest(const char *word, int length, int n, const struct ckpt_option **tables);

/* Copies every text of o, which then holds the copies.  *block (NULL without a text) owns them all
 * and is freed by the caller.  Returns 0 or CKPT_ENOMEM. */
int options_own_texts(struct ckpt_options *o, char **block);

/* Stores the values of environment variables: CKPT_VRAM for a row "vram". */
int option_environment(const struct ckpt_option *table, void *dest);

#endif
