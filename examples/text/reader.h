/* SPDX-License-Identifier: Apache-2.0 */
/* Prepares prompts for a video model: cleans and tokenizes them, and records what was cut. */
#ifndef TEXT_READER_H
#define TEXT_READER_H

#include "../common/names.h"
#include "encoder.h"

struct cleaner;

struct text_reader {
    struct t5_tokenizer tokenizer;
    struct cleaner *cleaner; /* NULL: captions stay as they are */
    struct names cut, left;  /* prompts that were cut; prompts cleaned only in part */
};

/* Opens the tokenizer at that path.  Returns 0, or -1 after an error message. */
int text_reader_open(struct text_reader *r, const char *tokenizer, struct text_reading reading);
void text_reader_close(struct text_reader *r);

/* Converts a text from that line of a file to tokens in ids [length]; *count: the number to read.
 * Returns 0, or -1 after an error message. */
int text_reader_read(struct text_reader *r, const char *text, int64_t line, int32_t *ids,
                     int64_t length, int32_t *count);

/* Prints which prompts were cut and which were cleaned only in part. */
void text_reader_report(const struct text_reader *r, const char *path, int64_t length);

#endif
