/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers as handles of a context. */
#include <stdlib.h>
#include "context/context.h"
#include "core/sized.h"

/* Sticks to the context: the next ckpt_compile returns it. */
static ckpt_optimizer *fail(ckpt *c, int code)
{
    if (!c->params.failed)
        c->params.failed = code;
    return NULL;
}

ckpt_optimizer *ckpt_adamw(ckpt *c, const struct ckpt_adamw *settings)
{
    if (!c || c->params.failed)
        return NULL;
    if (!settings)
        return fail(c, error_null(&c->error, __func__, "settings"));
    ckpt_optimizer *o = malloc(sizeof *o);
    if (!o)
        return fail(c, error_fail(&c->error, CKPT_ENOMEM, "no memory for an optimizer"));
    o->adamw = (struct ckpt_adamw)CKPT_ADAMW_INIT;
    int rc = sized_read(&c->error, "struct ckpt_adamw", &o->adamw, sizeof o->adamw, settings);
    if (rc) {
        free(o);
        return fail(c, rc);
    }
    o->next = c->programs.optimizers;
    c->programs.optimizers = o;
    return o;
}
