/* SPDX-License-Identifier: Apache-2.0 */
/* The features of prompts, and their files: one file, or several with a fixed number of prompts
 * each. */
#ifndef TEXT_FEATURES_H
#define TEXT_FEATURES_H

#include "encoder.h"

/* The prompts of one file. */
struct text_features {
    enum text_family family;
    enum ckpt_dtype dtype;
    int64_t n, length, width;
    int64_t pieces;   /* of the tokenizer that made the tokens */
    int32_t *ids;     /* [n, length] */
    int32_t *lengths; /* [n]: tokens without padding */
    char *rows;       /* [n, length, width] of dtype; NULL until text_features_encode */
};

/* Allocates for n prompts, except the rows.  Returns 0, or -1 after an error message. */
int text_features_open(struct text_features *f, int64_t n);
void text_features_close(struct text_features *f);

/* Allocates the rows and encodes the tokens into them.  done (may be NULL) is called after each
 * batch of n prompts.  Returns 0, or -1 after an error message. */
int text_features_encode(struct text_features *f, struct text_encoder *e,
                         void (*done)(void *user, int64_t n), void *user);

/*
 * Writes a file atomically.  Open-Sora: y [n, length, width], mask i32 [n, length]; the others:
 * prompt_embedding [n, length, width].  Both also have the tokens, i32 [n, length].  Returns 0, or
 * -1 after an error message.
 */
int text_features_write(const struct text_features *f, const char *path);

/* Whether the file exists and has these tokens, this shape and this type. */
bool text_features_are_in(const struct text_features *f, const char *path);

/* The name of file i of n: inserts -00001-of-00003 before .safetensors if n > 1.  Returns dst, or
 * NULL if the name is too long. */
const char *text_features_name(char dst[4096], const char *path, int64_t i, int64_t n);

#endif
