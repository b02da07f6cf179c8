/* SPDX-License-Identifier: Apache-2.0 */
/* The name of the outermost call that records others: see call.h. */
#include <string.h>
#include "call.h"
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
