/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a config.json.  The first missing or unsupported setting is reported. */
#ifndef EXAMPLES_SETTINGS_H
#define EXAMPLES_SETTINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct settings {
    char path[4096];
    json_t *root;
    int failed; /* -1 after the first error message */
};

/* Opens the file, or the config.json in a directory.  Returns 0, or -1 after an error message. */
int settings_open(struct settings *s, const char *path);
void settings_close(struct settings *s);

/* Reports an error of a key, unless one was reported before; format gives the end of the message.
 */
__attribute__((format(printf, 3, 4))) void settings_refuse(struct settings *s, const char *key,
                                                           const char *format, ...);

/* The value of a key; NULL: missing or null. */
const json_t *settings_find(const struct settings *s, const char *key);

/* A count, 1 to 2^24; a missing key gives fallback, or an error if fallback is below 0. */
int64_t settings_int(struct settings *s, const char *key, int64_t fallback);
/* Number of layers, 1 to 4096, as settings_int: each layer uses memory before weights are read. */
int64_t settings_layers(struct settings *s, const char *key, int64_t fallback);
/* A positive number, from the root or from the object `in`. */
double settings_real(struct settings *s, const json_t *in, const char *key, double fallback);
bool settings_flag(struct settings *s, const char *key, bool fallback);

/* Reports an error if the key is present with an unsupported value: only a or b, or the flag
 * `wanted`, are supported. */
void settings_expect_text(struct settings *s, const char *key, const char *a, const char *b);
void settings_expect_flag(struct settings *s, const char *key, bool wanted);

#endif
