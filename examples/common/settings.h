/* SPDX-License-Identifier: Apache-2.0 */
/* A config.json: what is missing or not as the program computes it is said, once. */
#ifndef EXAMPLES_SETTINGS_H
#define EXAMPLES_SETTINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct settings {
    char path[4096];
    json_t *root;
    int failed; /* -1 once a sentence was printed */
};

/* Opens the file, or the config.json of that directory.  Returns 0, or -1 after a sentence. */
int settings_open(struct settings *s, const char *path);
void settings_close(struct settings *s);

/* Says what is wrong with a key, if nothing was said before: format makes the rest of the sentence.
 */
__attribute__((format(printf, 3, 4))) void settings_refuse(struct settings *s, const char *key,
                                                           const char *format, ...);

/* The value of a key; NULL: there is none, or it is null. */
const json_t *settings_find(const struct settings *s, const char *key);

/* A number of things, 1 to 2^24; fallback where there is none, below 0: it must be there. */
int64_t settings_int(struct settings *s, const char *key, int64_t fallback);
/* Layers of a model, 1 to 4096, as settings_int: each takes memory before any weight is there. */
int64_t settings_layers(struct settings *s, const char *key, int64_t fallback);
/* A positive number, of the root or of an object inside. */
double settings_real(struct settings *s, const json_t *in, const char *key, double fallback);
bool settings_flag(struct settings *s, const char *key, bool fallback);

/* The model must be as the program computes it: a or b, or that flag, where the key is there. */
void settings_expect_text(struct settings *s, const char *key, const char *a, const char *b);
void settings_expect_flag(struct settings *s, const char *key, bool wanted);

#endif
