/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that JSON files of other programs may have: see json_keys.h. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "json_keys.h"
#include "say.h"

enum { PLACE = 256 }; /* bytes of a key with its objects, in messages */

/* A key that is there twice has no one value. */
enum { FLAGS = JSON_REJECT_DUPLICATES };

static json_t *found(const char *name, json_t *root, const json_error_t *e)
{
    if (!root)
        say_fail("%s: line %d: %s", name, e->line, e->text);
    return root;
}

static json_t *read_file(const char *path, size_t flags)
{
    json_error_t e;
    FILE *f;

    if (ckpt_input_open(&f, path)) {
        say_fail("%s", ckpt_error(NULL));
        return NULL;
    }
    json_t *root = json_loadf(f, FLAGS | flags, &e);
    fclose(f);
    return found(path, root, &e);
}

json_t *json_keys_parse(const char *name, const char *text, size_t bytes)
{
    json_error_t e;
    json_t *root = json_loadb(text, bytes, FLAGS, &e);

    return found(name, root, &e);
}

json_t *json_keys_read(const char *path)
{
    return read_file(path, 0);
}

json_t *json_keys_read_wide(const char *path)
{
    return read_file(path, JSON_DECODE_INT_AS_REAL);
}

/* Whether the n bytes of word are one of the words of a list. */
static bool is_in(const char *list, char between, const char *word, size_t n)
{
    for (const char *p = list; *p;) {
        const char *end = strchr(p, between);
        size_t m = end ? (size_t)(end - p) : strlen(p);
        if (m == n && !memcmp(p, word, n))
            return true;
        p += m + (end != NULL);
    }
    return false;
}

static const struct json_keys *find(const struct json_keys *keys, const char *name)
{
    const struct json_keys *found = NULL;

    for (; (keys->names || keys->inside) && !found; keys++) {
        if (!keys->names)
            found = find(keys->inside, name);
        else if (*name && !strchr(name, ' ') && is_in(keys->names, ' ', name, strlen(name)))
            found = keys;
    }
    return found;
}

/* Only whole numbers are in tables: 0 of a table is 0.0 of a file, too. */
static bool is_number_in(const char *values, double number)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%.0f", number);

    return n < (int)sizeof text && number > -1e15 && number < 1e15 &&
           number == (double)(long long)number && is_in(values, '|', text, (size_t)n);
}

static bool is_allowed(const char *values, const json_t *value)
{
    const json_t *element;
    size_t i;

    if (json_is_null(value))
        return true;
    if (json_is_string(value))
        return is_in(values, '|', json_string_value(value), json_string_length(value));
    if (json_is_number(value))
        return is_number_in(values, json_number_value(value) + 0.0);
    if (json_is_boolean(value))
        return is_in(values, '|', json_is_true(value) ? "true" : "false",
                     json_is_true(value) ? 4 : 5);
    json_array_foreach(value, i, element) if (!is_allowed(values, element)) return false;
    return json_is_array(value) || !json_object_size(value);
}

/* Says why a value is refused: values are the supported ones, NULL: the key is unknown. */
static int refuse(const char *file, const char *place, const json_t *value, const char *values)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *is = text ? text : "a value", *more = strlen(is) > 80 ? "..." : "";
    int rc;

    if (!values)
        rc = say_fail("%s: \"%s\" is %.80s%s: this setting is not known here and may change the "
                      "result; remove it from the file if the result is right without it",
                      file, place, is, more);
    else if (!*values)
        rc = say_fail("%s: \"%s\" is %.80s%s, which is not supported; only null is", file, place,
                      is, more);
    else
        rc = say_fail("%s: \"%s\" is %.80s%s, which is not supported; supported: %s", file, place,
                      is, more, values);
    free(text);
    return rc;
}

static int check_inside(const char *file, const char *place, const json_t *value,
                        const struct json_keys *keys)
{
    char at[PLACE + 32];
    const json_t *element;
    size_t i;
    int rc = 0;

    if (!json_is_array(value))
        return json_keys_check(file, place, value, keys);
    json_array_foreach(value, i, element)
    {
        snprintf(at, sizeof at, "%s[%zu]", place, i);
        if (!rc)
            rc = json_keys_check(file, at, element, keys);
    }
    return rc;
}

static int check_key(const char *file, const char *place, const char *name, const json_t *value,
                     const struct json_keys *keys)
{
    const struct json_keys *row = find(keys, name);

    if (json_is_null(value) || (!row && *name == '_'))
        return 0;
    if (!row)
        return refuse(file, place, value, NULL);
    if (row->values && !is_allowed(row->values, value))
        return refuse(file, place, value, row->values);
    return row->inside ? check_inside(file, place, value, row->inside) : 0;
}

int json_keys_check(const char *file, const char *at, const json_t *object,
                    const struct json_keys *keys)
{
    char place[PLACE];
    const char *name;
    json_t *value;
    int rc = 0;

    if (!json_is_object(object))
        return say_fail("%s: %s%s%s is not an object of keys and values", file, *at ? "\"" : "",
                        *at ? at : "it", *at ? "\"" : "");
    json_object_foreach((json_t *)object, name, value)
    {
        snprintf(place, sizeof place, "%s%s%s", at, *at ? "." : "", name);
        if (!rc)
            rc = check_key(file, place, name, value, keys);
    }
    return rc;
}
