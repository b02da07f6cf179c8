/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers by name: see optimizer.h. */
#include <string.h>
#include "optimizer.h"
#include "say.h"

/* Settings that all kinds share, taken from AdamW's. */
#define TAKE(o, s)                                                                                 \
    (o).lr = (s)->lr, (o).weight_decay = (s)->weight_decay, (o).clip_norm = (s)->clip_norm,        \
    (o).clip_value = (s)->clip_value, (o).ema_decay = (s)->ema_decay,                              \
    (o).ema_warmup = (s)->ema_warmup, (o).grad_dtype = (s)->grad_dtype

static ckpt_optimizer *make_sgd(ckpt *c, const struct ckpt_adamw *s)
{
    struct ckpt_sgd o = CKPT_SGD_INIT;

    TAKE(o, s);
    o.momentum = 0.9f;
    return ckpt_sgd(c, &o);
}

static ckpt_optimizer *make_lion(ckpt *c, const struct ckpt_adamw *s)
{
    struct ckpt_lion o = CKPT_LION_INIT;

    TAKE(o, s);
    return ckpt_lion(c, &o);
}

static ckpt_optimizer *make_adafactor(ckpt *c, const struct ckpt_adamw *s)
{
    struct ckpt_adafactor o = CKPT_ADAFACTOR_INIT;

    TAKE(o, s);
    return ckpt_adafactor(c, &o);
}

/* Updates have AdamW's magnitude, so both share learning rate and weight decay. */
static ckpt_optimizer *make_muon(ckpt *c, const struct ckpt_adamw *s)
{
    struct ckpt_optimizer_group matrices = CKPT_OPTIMIZER_GROUP_INIT;
    struct ckpt_muon o = CKPT_MUON_INIT;
    ckpt_optimizer *all = ckpt_adamw(c, s);

    o.lr = s->lr;
    o.weight_decay = s->weight_decay;
    o.match_rms = true;
    matrices.min_ndim = 2;
    matrices.optimizer = ckpt_muon(c, &o);
    ckpt_optimizer_group(all, "*", &matrices);
    return all;
}

static const struct {
    const char *name;
    ckpt_optimizer *(*make)(ckpt *c, const struct ckpt_adamw *s);
} kinds[] = {{"adamw", ckpt_adamw},
             {"sgd", make_sgd},
             {"lion", make_lion},
             {"adafactor", make_adafactor},
             {"muon", make_muon}};

enum { KINDS = sizeof kinds / sizeof *kinds };

static int find(const char *kind)
{
    int i = 0;

    while (i < KINDS && strcmp(kind, kinds[i].name))
        i++;
    return i;
}

int optimizer_check(const char *kind)
{
    if (find(kind) < KINDS)
        return 0;
    return say_fail("--optimizer %s: give adamw, sgd, lion, adafactor or muon", kind);
}

ckpt_optimizer *optimizer_make(ckpt *c, const char *kind, const struct ckpt_adamw *s)
{
    return kinds[find(kind)].make(c, s);
}

void optimizer_keep_adamw(ckpt *c, ckpt_optimizer *o, const char *kind, ckpt_tensor table)
{
    const struct ckpt_optimizer_group own = CKPT_OPTIMIZER_GROUP_INIT;
    struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;

    if (kinds[find(kind)].make == make_muon && table.id && !ckpt_param_info(c, table, &info))
        ckpt_optimizer_group(o, info.name, &own);
}
