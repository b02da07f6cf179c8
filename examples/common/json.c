/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON for other programs. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "say.h"

/* JSON is UTF-8, and a path is not always: then '?' stands for each byte that is not ASCII. */
static json_t *make_string(const char *text)
{
    json_t *string = json_string(text);
    char *copy = string ? NULL : strdup(text);

    for (char *c = copy; c && *c; c++)
        *c = *c & 0x80 ? '?' : *c;
    if (copy)
        string = json_string(copy);
    free(copy);
    return string;
}

void json_put_string(FILE *f, const char *key, const char *text)
{
    json_t *string = text ? make_string(text) : NULL;

    fprintf(f, "\"%s\": ", key);
    if (!string || json_dumpf(string, f, JSON_ENCODE_ANY))
        fputs("null", f);
    fputs(", ", f);
    json_decref(string);
}

void json_put_int(FILE *f, const char *key, int64_t value)
{
    fprintf(f, "\"%s\": %lld, ", key, (long long)value);
}

void json_put_float(FILE *f, const char *key, double value, const char *after)
{
    if (isfinite(value))
        fprintf(f, "\"%s\": %.9g%s", key, value, after);
    else
        fprintf(f, "\"%s\": null%s", key, after);
}
