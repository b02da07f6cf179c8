/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers as handles of a context: turns public settings into rules (optim/optimizer.h). */
#include <stdlib.h>
#include <string.h>
#include "context/context.h"
#include "core/sized.h"
#include "optim/optimizer.h"

/* Keeps the error of the context for the next ckpt_compile. */
static ckpt_optimizer *fail(ckpt *c)
{
    params_fail(&c->params, c->error.code);
    return NULL;
}

/* Reads the settings of a kind over its defaults, which *to holds. */
static bool read_settings(ckpt *c, const char *function, const char *name, void *to, size_t size,
                          const void *settings)
{
    ERRORS_TO(&c->error);
    int rc = settings ? sized_read(name, to, size, settings) : error_null(function, "settings");
    if (rc)
        fail(c);
    return !rc;
}

/* Settings of all kinds, by the member names that their public structs share. */
#define COMMON(s)                                                                                  \
    .params = &c->params, .error = &c->error, .lr = (s).lr, .clip_norm = (s).clip_norm,            \
    .grad_dtype = (s).grad_dtype
#define COMMON_UPDATE(s)                                                                           \
    .lr_factor = 1.f, .weight_decay = (s).weight_decay, .clip_value = (s).clip_value,              \
    .ema_decay = (s).ema_decay, .ema_warmup = (s).ema_warmup, .unbias = CLIP_UNBIAS1

static ckpt_optimizer *add(ckpt *c, const struct ckpt_optimizer *settings)
{
    ckpt_optimizer *o = malloc(sizeof *o);
    if (!o) {
        ERRORS_TO(&c->error);
        error_set(CKPT_ENOMEM, "no memory for an optimizer");
        return fail(c);
    }
    *o = *settings;
    o->updates = c->params.updates;
    o->next = c->programs.optimizers;
    c->programs.optimizers = o;
    return o;
}

ckpt_optimizer *ckpt_adamw(ckpt *c, const struct ckpt_adamw *settings)
{
    struct ckpt_adamw s = CKPT_ADAMW_INIT;
    if (!c || c->params.failed.code ||
        !read_settings(c, __func__, "struct ckpt_adamw", &s, sizeof s, settings))
        return NULL;
    struct ckpt_optimizer o = {COMMON(s),
                               .rule = {.kind = OPTIM_ADAMW, .update = optim_adamw_attr(&s)}};
    return add(c, &o);
}

ckpt_optimizer *ckpt_sgd(ckpt *c, const struct ckpt_sgd *settings)
{
    struct ckpt_sgd s = CKPT_SGD_INIT;
    if (!c || c->params.failed.code ||
        !read_settings(c, __func__, "struct ckpt_sgd", &s, sizeof s, settings))
        return NULL;
    struct ckpt_optimizer o = {
        COMMON(s), .rule = {.kind = OPTIM_SGD,
                            .update = {COMMON_UPDATE(s), .kind = UPDATE_SGD, .beta1 = s.momentum,
                                       .beta2 = s.dampening, .nesterov = s.nesterov}}};
    return add(c, &o);
}

ckpt_optimizer *ckpt_lion(ckpt *c, const struct ckpt_lion *settings)
{
    struct ckpt_lion s = CKPT_LION_INIT;
    if (!c || c->params.failed.code ||
        !read_settings(c, __func__, "struct ckpt_lion", &s, sizeof s, settings))
        return NULL;
    struct ckpt_optimizer o = {COMMON(s), .rule = {.kind = OPTIM_LION,
                                                   .update = {COMMON_UPDATE(s), .kind = UPDATE_LION,
                                                              .beta1 = s.beta1, .beta2 = s.beta2}}};
    return add(c, &o);
}

ckpt_optimizer *ckpt_adafactor(ckpt *c, const struct ckpt_adafactor *settings)
{
    struct ckpt_adafactor s = CKPT_ADAFACTOR_INIT;
    if (!c || c->params.failed.code ||
        !read_settings(c, __func__, "struct ckpt_adafactor", &s, sizeof s, settings))
        return NULL;
    struct ckpt_optimizer o = {
        COMMON(s), .rule = {.kind = OPTIM_ADAFACTOR,
                            .d = s.d,
                            .eps2 = s.eps2,
                            .update = {COMMON_UPDATE(s), .kind = UPDATE_STEP, .scale = 1.f,
                                       .plain = 1, .eps = s.eps1, .beta2 = s.beta2_decay}}};
    return add(c, &o);
}

ckpt_optimizer *ckpt_muon(ckpt *c, const struct ckpt_muon *settings)
{
    struct ckpt_muon s = CKPT_MUON_INIT;
    if (!c || c->params.failed.code ||
        !read_settings(c, __func__, "struct ckpt_muon", &s, sizeof s, settings))
        return NULL;
    struct ckpt_optimizer o = {
        COMMON(s), .rule = {.kind = OPTIM_MUON,
                            .ns_steps = s.ns_steps,
                            .match_rms = s.match_rms,
                            .update = {COMMON_UPDATE(s), .kind = UPDATE_STEP, .beta1 = s.momentum,
                                       .eps = s.eps, .nesterov = s.nesterov}}};
    return add(c, &o);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int fail_group(ckpt_optimizer *o, const char *pattern, const char *why)
{
    const int rc = error_set(CKPT_EINVAL, "group '%s' of %s: %s", pattern ? pattern : "",
                             optim_kind_name(o->rule.kind), why);
    return params_fail(o->params, rc);
}

static bool is_factor(float x)
{
    return x >= 0.f && x <= 1e30f;
}

/* Whether an optimizer has settings that only a program's first optimizer may have. */
static bool has_own_step(const struct ckpt_optimizer *o)
{
    const struct update_attr *u = &o->rule.update;
    return o->clip_norm > 0.f || u->clip_value > 0.f || u->ema_decay > 0.f ||
           o->grad_dtype != CKPT_F32;
}

static const char *find_fault(const ckpt_optimizer *o, const struct ckpt_optimizer_group *s)
{
    const struct ckpt_optimizer *other = s->optimizer;
    if (o->compiled)
        return "add groups before a program is compiled with the optimizer";
    if (o->n_groups == OPTIM_GROUPS)
        return "it has 64 groups, the maximum";
    if (!is_factor(s->lr_factor))
        return "lr_factor must be finite, 0 or more";
    if (!(s->weight_decay <= 1e30f))
        return "weight_decay must be finite";
    if (s->min_ndim < 0 || s->max_ndim > CKPT_MAX_DIMS || s->min_ndim > s->max_ndim)
        return "min_ndim must be 0 or more and not above max_ndim, which is at most 8";
    if (!other)
        return NULL;
    if (other->params != o->params)
        return "its optimizer is of another context";
    if (other == o || other->n_groups)
        return "its optimizer must be another one, without groups";
    if (has_own_step(other))
        return "clipping, EMA and grad_dtype are set by the first optimizer: leave them out of the "
               "other";
    if (!(o->lr > 0.f))
        return "with another optimizer the first needs a learning rate above 0, because the "
               "other's is relative to it";
    return NULL;
}

static struct optim_rule rule_of(const ckpt_optimizer *o, const struct ckpt_optimizer_group *s)
{
    const struct ckpt_optimizer *other = s->optimizer;
    const struct update_attr *own = &o->rule.update;
    struct optim_rule r = other ? other->rule : o->rule;
    r.frozen = s->frozen;
    r.update.lr_factor = other ? (float)((double)s->lr_factor * other->lr / o->lr) : s->lr_factor;
    if (s->weight_decay >= 0.f)
        r.update.weight_decay = s->weight_decay;
    r.update.unclipped = s->unclipped;
    r.update.clip_value = own->clip_value;
    r.update.ema_decay = own->ema_decay;
    r.update.ema_warmup = own->ema_warmup;
    return r;
}

static int add_group(ckpt_optimizer *o, const char *pattern,
                     const struct ckpt_optimizer_group *settings)
{
    struct ckpt_optimizer_group s = CKPT_OPTIMIZER_GROUP_INIT;
    if (!pattern || !*pattern || !settings)
        return fail_group(o, pattern, "it needs a pattern and settings");
    if (sized_read("struct ckpt_optimizer_group", &s, sizeof s, settings))
        return fail_group(o, pattern, error_get());
    const char *fault = find_fault(o, &s);
    if (fault)
        return fail_group(o, pattern, fault);
    struct optim_group *groups = realloc(o->groups, ((size_t)o->n_groups + 1) * sizeof *o->groups);
    char *copy = strdup(pattern);
    if (groups)
        o->groups = groups;
    if (!groups || !copy) {
        free(copy);
        return fail_group(o, pattern, "there is no memory for it");
    }
    if (s.optimizer)
        ((struct ckpt_optimizer *)(uintptr_t)s.optimizer)->part = true;
    groups[o->n_groups++] = (struct optim_group){
        .pattern = copy, .min_ndim = s.min_ndim, .max_ndim = s.max_ndim, .rule = rule_of(o, &s)};
    return 0;
}

int ckpt_optimizer_group(ckpt_optimizer *o, const char *pattern,
                         const struct ckpt_optimizer_group *settings)
{
    ERRORS_TO(o ? o->error : NULL);
    NOT_NULL(o);
    return add_group(o, pattern, settings);
}
