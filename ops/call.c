/* SPDX-License-Identifier: Apache-2.0 */
/* The name of the outermost call that records others: see call.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "call.h"
#include "core/base.h"
#include "tape/tape.h"

ckpt_tape *ops_begin_call(ckpt_tape *t, const char *function)
{
    if (!t || t->call)
        return NULL;
    t->call = function + strlen("ckpt_");
    return t;
}

void ops_end_call(ckpt_tape **t)
{
    if (*t)
        (*t)->call = NULL;
}

void ops_place(ckpt_tape *t, const char *place)
{
    char *at = strstr(t->error.text, t->call ? t->call : ""), *rest = at ? strdup(at) : NULL;

    if (rest)
        snprintf(at, sizeof t->error.text - (size_t)(at - t->error.text), "%s: %s", place, rest);
    free(rest);
}

void ops_refuse(ckpt_tape *t, int n, const ckpt_tensor *x, const char *format, ...)
{
    char sentence[CKPT_MESSAGE / 2], operands[CKPT_MESSAGE / 2] = "";
    va_list ap;
    va_start(ap, format);
    vsnprintf(sentence, sizeof sentence, format, ap);
    va_end(ap);
    for (int i = 0; i < n; i++) {
        char one[128];
        const struct ckpt_desc d = ckpt_desc_of(t, x[i]);
        const size_t used = strlen(operands);
        desc_format(one, sizeof one, &d);
        snprintf(operands + used, sizeof operands - used, "%s%s", i ? ", " : "", one);
    }
    ckpt_tape_fail(t, CKPT_ESHAPE, "%s; got %s", sentence, operands);
}
