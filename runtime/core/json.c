/* SPDX-License-Identifier: Apache-2.0 */
/* JSON strings: see json.h. */
#include "core/json.h"

void json_write_string(FILE *f, const char *text)
{
    fputc('"', f);
    for (const unsigned char *c = (const unsigned char *)(text ? text : ""); *c; c++)
        if (*c == '"' || *c == '\\')
            fprintf(f, "\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f || *c == '<')
            fprintf(f, "\\u%04x", *c);
        else
            fputc(*c, f);
    fputc('"', f);
}
