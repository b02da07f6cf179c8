/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes JSON by jansson, whose calls return NULL or -1 without memory, or for text that is not
 * UTF-8.  A value that could not be made arrives here as NULL.  *failed becomes true if anything
 * was lost, so that one question before writing answers for all calls.
 */
#ifndef EXAMPLES_JSON_MAKE_H
#define EXAMPLES_JSON_MAKE_H

#include <jansson.h>
#include <stdbool.h>

/* Each takes over the value. */
static inline void json_make_set(json_t *object, const char *key, json_t *value, bool *failed)
{
    if (json_object_set_new(object, key, value))
        *failed = true;
}

static inline void json_make_append(json_t *array, json_t *value, bool *failed)
{
    if (json_array_append_new(array, value))
        *failed = true;
}

#endif
