/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON files, of other programs and of other versions of these.  A format has a table of the keys
 * that this program knows: a key of the file that is in no row, or has another value than its row
 * allows, is refused by name, for it may be a setting that changes the result.
 *
 *     static const struct json_keys rope[] = {
 *         JSON_READ("rope_theta"), JSON_ONLY("rope_type type", "default"), JSON_END};
 *     static const struct json_keys config[] = {
 *         JSON_READ("hidden_size num_hidden_layers"),
 *         JSON_READ_INSIDE("rope_scaling", rope),
 *         JSON_UNUSED("architectures transformers_version"),
 *         JSON_ONLY("hidden_act", "silu|swish"),
 *         JSON_ONLY("attention_bias", "false"),
 *         JSON_END};
 */
#ifndef EXAMPLES_JSON_KEYS_H
#define EXAMPLES_JSON_KEYS_H

#include <jansson.h>

/* A row of a table: the first one that has a key counts. */
struct json_keys {
    const char *names;              /* separated by blanks; NULL: no key */
    const char *values;             /* the only ones; NULL: any */
    const struct json_keys *inside; /* the table of an object, or of each object in a list */
};

/* clang-format off */
/* The program uses the values, and checks them where it reads them. */
#define JSON_READ(names) {names, NULL, NULL}
/* As JSON_READ, for objects and lists of objects that have a table of their own. */
#define JSON_READ_INSIDE(names, table) {names, NULL, table}
/* No value can change a result of the program. */
#define JSON_UNUSED(names) {names, NULL, NULL}
/* Values are separated by |: texts, whole numbers, true, false; "": only null.  In a list, each
 * element must be one of them. */
#define JSON_ONLY(names, values) {names, values, NULL}
/* The rows of another table follow here. */
#define JSON_MORE(table) {NULL, NULL, table}
#define JSON_END {NULL, NULL, NULL}
/* clang-format on */

/* Reads a file.  NULL after an error message, also where a key is there twice. */
json_t *json_keys_read(const char *path);
/* As json_keys_read, with whole numbers as reals: those of tokenizer_config.json may have 31
 * digits. */
json_t *json_keys_read_wide(const char *path);
/* As json_keys_read, from memory; name: of the text, for messages. */
json_t *json_keys_parse(const char *name, const char *text, size_t bytes);

/*
 * Checks an object of `file` against a table.  `at` names the object for messages, as
 * "rope_scaling" or "model"; "": the root.  null is a key that is not set, and is always allowed,
 * as are keys that begin with _, notes of the program that wrote the file.  Returns 0, or -1 after
 * an error message.
 */
int json_keys_check(const char *file, const char *at, const json_t *object,
                    const struct json_keys *keys);

#endif
