/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of text-encode: its own table beside the library's. */
#ifndef TEXT_OPTIONS_H
#define TEXT_OPTIONS_H

#include "ckpt.h"
#include "encoder.h"

struct text_options {
    const char *model, *tokenizer, *prompts, *csv, *column, *output, *family_name, *dtype;
    int64_t length, batch, shard;
    bool resume, help, version;
    struct ckpt_options library;
    enum text_family family; /* parsed from family_name */
};

/* Returns 0 to go on, 1 to exit (--help) and -1 after an error message. */
int text_options_parse(struct text_options *o, int argc, char **argv);

/* The path of the tokenizer. */
const char *text_options_tokenizer(const struct text_options *o, char path[4096]);

#endif
