/* SPDX-License-Identifier: Apache-2.0 */
/* Checks --val and related options: see validation.h. */
#include <sys/stat.h>
#include "say.h"
#include "validation.h"

int validation_check(const struct validation_options *o, double ema_decay)
{
    if ((o->every || o->average) && !o->file)
        return say_fail("--val-%s needs --val FILE", o->every ? "every" : "ema");
    if (o->average && ema_decay <= 0)
        return say_fail("--val-ema: with --ema-decay 0 there is no average");
    return 0;
}

bool validation_is_cached(const struct validation_options *o)
{
    struct stat st;

    return o->file && !stat(o->file, &st) && S_ISDIR(st.st_mode);
}
