/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of a tokenizer's files share. */
#ifndef TOKENIZER_READ_H
#define TOKENIZER_READ_H

#include "parts.h"

/* The contents of a tokenizer.json.  Returns 0, or -1 after an error message. */
int parts_read_root(struct tokenizer_parts *p, const char *path, const json_t *root);

/* Adds an added token, or gives one other flags.  Returns 0, or -1 after an error message. */
int parts_put_added(struct tokenizer_parts *p, const char *path, int64_t id, const json_t *token);

/* The tokens that a post-processor puts before and behind a text. */
int template_read(struct tokenizer_parts *p, const char *path, const json_t *part);

/* tokenizer_config.json beside the file `path`, if there is one: opens it and checks its keys;
 * takes the normalizer and the splitter of a class that makes its own; and takes its tokens.  They
 * return 0, or -1 after an error message. */
int tokenizer_config_open(struct tokenizer_parts *p, const char *path);
int tokenizer_config_class(struct tokenizer_parts *p, const char *path);
/* Refuses vocab.json and merges.txt of another model than GPT-2, for they say nothing of how text
 * is split. */
int tokenizer_config_is_gpt2(const struct tokenizer_parts *p, const char *path);
int tokenizer_config_tokens(struct tokenizer_parts *p);

#endif
