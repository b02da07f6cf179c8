/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts as a video model reads them: cleaned, cut in tokens, and what was lost on the way. */
#ifndef TEXT_READER_H
#define TEXT_READER_H

#include "../common/names.h"
#include "encoder.h"

struct cleaner;

struct text_reader {
    struct t5_tokenizer tokenizer;
    struct cleaner *cleaner; /* NULL: captions stay as they are */
    struct names cut, left;  /* prompts that were too long, that were not cleaned whole */
};

/* Opens the tokenizer at that path.  Returns 0, or -1 after a sentence. */
int text_reader_open(struct text_reader *r, const char *tokenizer, struct text_reading reading);
void text_reader_close(struct text_reader *r);

/* The tokens of a text, from that line of a file, into ids [length]; *count: how many are read.
 * Returns 0, or -1 after a sentence. */
int text_reader_read(struct text_reader *r, const char *text, int64_t line, int32_t *ids,
                     int64_t length, int32_t *count);

/* Says which prompts were cut and which have what was not cleaned. */
void text_reader_report(const struct text_reader *r, const char *path, int64_t length);

#endif
