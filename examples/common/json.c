/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON for other programs. */
#include <math.h>
#include "say.h"

void json_put_string(FILE *f, const char *key, const char *text)
{
    fprintf(f, "\"%s\": ", key);
    if (!text) {
        fputs("null, ", f);
        return;
    }
    fputc('"', f);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(f, "\\%c", *p);
        else if (*p < 0x20)
            fprintf(f, "\\u%04x", *p);
        else
            fputc(*p, f);
    }
    fputs("\", ", f);
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
