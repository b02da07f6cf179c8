/* Option tables: the parts that the files of this room share. */
#ifndef CKPT_REPORT_OPTIONS_H
#define CKPT_REPORT_OPTIONS_H

#include "base.h"

/*
 * Stores the text of a value in the field of dest that belongs to the row.  where names the origin
 * ("option --vram", "environment variable CKPT_VRAM") in the error sentence.
 */
int option_store(const struct ckpt_option *row, void *dest, const char *where, const char *text);

/* The bytes of --nvme: a SIZE, or DIR:SIZE.  Returns 0, or CKPT_EINVAL with the sentence. */
int option_nvme(const char *text, int64_t *bytes);

#endif
