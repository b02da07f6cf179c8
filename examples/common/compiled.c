/* SPDX-License-Identifier: Apache-2.0 */
/* Refusals of programs: see compiled.h. */
#include "compiled.h"
#include <stdio.h>
#include "say.h"

static char kept[1280]; /* a sentence of the library, and what it is about */

int compiled(ckpt *c, int rc, const ckpt_program *p, const char *what)
{
    if (rc == CKPT_EBUDGET && p)
        snprintf(kept, sizeof kept, "%s%s", what, ckpt_error(c));
    else if (rc)
        return say_fail("%s%s", what, ckpt_error(c));
    return 0;
}

int compiled_all(ckpt *c)
{
    ckpt_gather_refusals(c, false);
    return *kept ? say_fail("%s", kept) : 0;
}

const char *compiled_refusal(void)
{
    return kept;
}
