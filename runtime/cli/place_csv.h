/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of buffers as CSV files, for ckpt plan --place. */
#ifndef CKPT_CLI_PLACE_CSV_H
#define CKPT_CLI_PLACE_CSV_H

#include "plan/place/place.h"

/* A list of buffers from a file: half-open lifetimes in any unit of time. */
struct place_file {
    struct place_item *items; /* first and last are ranks of the times in the file */
    char **ids;
    int64_t *lower, *upper;
    int32_t n;
};

/*
 * Reads "id,lower,upper,size" lines, with or without that header.  Returns 0, CKPT_EIO,
 * CKPT_EFORMAT or CKPT_ENOMEM with one sentence.
 */
int place_file_read(const char *path, struct place_file *file);
/* Writes "id,lower,upper,size,offset".  Returns 0 or CKPT_EIO with one sentence. */
int place_file_write(const struct place_file *file, const char *path);
void place_file_free(struct place_file *file);

#endif
