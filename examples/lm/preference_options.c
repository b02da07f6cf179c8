/* SPDX-License-Identifier: Apache-2.0 */
/* Options of preference losses: see preference_options.h. */
#include <stddef.h>
#include <string.h>
#include "../common/say.h"
#include "preference_options.h"

static const char *const names[LM_LOSSES] = {"ce", "dpo", "orpo", "kto"};

/* An option, the losses that have it, and its default. */
struct row {
    const char *option;
    size_t at;
    unsigned losses;
    double preset;
};

#define ROW_OF(option, member, losses, preset)                                                     \
    {                                                                                              \
        option, offsetof(struct preference_options, member), losses, preset                        \
    }

static const struct row rows[] = {
    ROW_OF("beta", beta, 1 << LM_DPO | 1 << LM_KTO, 0.1),
    ROW_OF("label-smoothing", smoothing, 1 << LM_DPO, 0),
    ROW_OF("orpo-lambda", lambda, 1 << LM_ORPO, 0.1),
    ROW_OF("desirable-weight", desirable, 1 << LM_KTO, 1),
    ROW_OF("undesirable-weight", undesirable, 1 << LM_KTO, 1),
};

static int fill_in(struct preference_options *o, const struct row *row)
{
    double *value = (double *)((char *)o + row->at);

    if (*value >= 0 && !(row->losses & 1u << o->loss))
        return say_fail("--%s: --loss %s has no such setting", row->option, o->name);
    if (*value < 0)
        *value = row->preset;
    return 0;
}

bool preference_has_reference(const struct preference_options *o)
{
    return o->loss == LM_DPO || o->loss == LM_KTO;
}

static int check_reference(const struct preference_options *o, bool adapters)
{
    if (o->cache && !preference_has_reference(o))
        return say_fail("--reference-cache: --loss %s has no reference", o->name);
    if (!preference_has_reference(o))
        return 0;
    if (!o->cache && !adapters)
        return say_fail("--loss %s compares the model with its weights at the start: give "
                        "--reference-cache FILE, or train the adapters of one name alone, with "
                        "--lora-rank N and without --lora-also",
                        o->name);
    return 0;
}

int preference_options_check(struct preference_options *o, bool adapters, bool masked)
{
    o->loss = LM_CROSS_ENTROPY;
    while (o->loss < LM_LOSSES && strcmp(o->name, names[o->loss]))
        o->loss++;
    if (o->loss == LM_LOSSES)
        return say_fail("--loss %s: give ce, dpo, orpo or kto", o->name);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (fill_in(o, &rows[i]))
            return -1;
    if (o->loss && masked)
        return say_fail("--loss %s: BERT gives no probabilities of whole texts", o->name);
    return check_reference(o, adapters);
}
