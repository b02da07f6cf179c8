/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer settings: validation, the rule of each parameter, and their description as text. */
#include <float.h>
#include <fnmatch.h>
#include <stdlib.h>
#include "core/number.h"
#include "optim/optimizer.h"

const char *optim_kind_name(enum optim_kind kind)
{
    static const char *const names[] = {[OPTIM_ADAMW] = "adamw",
                                        [OPTIM_SGD] = "sgd",
                                        [OPTIM_LION] = "lion",
                                        [OPTIM_ADAFACTOR] = "adafactor",
                                        [OPTIM_MUON] = "muon"};
    return names[kind];
}

struct update_attr optim_adamw_attr(const struct ckpt_adamw *s)
{
    return (struct update_attr){.kind = UPDATE_ADAMW,
                                .lr_factor = 1.f,
                                .beta1 = s->beta1,
                                .beta2 = s->beta2,
                                .eps = s->eps,
                                .weight_decay = s->weight_decay,
                                .clip_value = s->clip_value,
                                .ema_decay = s->ema_decay,
                                .ema_warmup = s->ema_warmup,
                                .unbias = CLIP_UNBIAS1};
}

void optim_free(struct ckpt_optimizer *o)
{
    for (int i = 0; i < o->n_groups; i++)
        free(o->groups[i].pattern);
    free(o->groups);
    free(o);
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Comparisons with NaN are false. */
static bool is_size(float x)
{
    return x >= 0.f && x <= FLT_MAX;
}

static bool is_decay(float x)
{
    return x >= 0.f && x < 1.f;
}

static int check_betas(const struct optim_rule *r)
{
    const struct update_attr *u = &r->update;
    if ((r->kind == OPTIM_ADAMW || r->kind == OPTIM_LION) &&
        !(is_decay(u->beta1) && is_decay(u->beta2)))
        return error_set(CKPT_EINVAL, "%s: beta1 is %g and beta2 %g; both must be in [0, 1)",
                         optim_kind_name(r->kind), (double)u->beta1, (double)u->beta2);
    if ((r->kind == OPTIM_SGD || r->kind == OPTIM_MUON) && !is_decay(u->beta1))
        return error_set(CKPT_EINVAL, "%s: momentum is %g and must be in [0, 1)",
                         optim_kind_name(r->kind), (double)u->beta1);
    if (r->kind == OPTIM_SGD && !(u->beta2 >= 0.f && u->beta2 <= 1.f))
        return error_set(CKPT_EINVAL, "sgd: dampening is %g and must be in [0, 1]",
                         (double)u->beta2);
    if (r->kind == OPTIM_SGD && u->nesterov && (!(u->beta1 > 0.f) || u->beta2 > 0.f))
        return error_set(CKPT_EINVAL,
                         "sgd: nesterov needs a momentum above 0 and no dampening; they are %g "
                         "and %g",
                         (double)u->beta1, (double)u->beta2);
    return 0;
}

static int check_matrix_kinds(const struct optim_rule *r)
{
    const struct update_attr *u = &r->update;
    if (r->kind == OPTIM_MUON && (r->ns_steps < 1 || r->ns_steps > 100 || !(u->eps > 0.f)))
        return error_set(CKPT_EINVAL,
                         "muon: ns_steps is %d and must be in [1, 100], eps is %g and must be "
                         "above 0",
                         r->ns_steps, (double)u->eps);
    if (r->kind == OPTIM_ADAFACTOR && !(u->beta2 >= -100.f && u->beta2 <= 0.f && u->eps > 0.f &&
                                        is_size(r->eps2) && r->d > 0.f && is_size(r->d)))
        return error_set(CKPT_EINVAL,
                         "adafactor: beta2_decay is %g and must be in [-100, 0]; eps1 %g and d %g "
                         "must be above 0, eps2 %g must be 0 or more",
                         (double)u->beta2, (double)u->eps, (double)r->d, (double)r->eps2);
    return 0;
}

int optim_check(const struct ckpt_optimizer *o)
{
    const struct update_attr *u = &o->rule.update;
    const char *name = optim_kind_name(o->rule.kind);
    if (!is_size(o->lr))
        return error_set(CKPT_EINVAL, "%s: lr is %g and must be finite, 0 or more", name,
                         (double)o->lr);
    int rc = check_betas(&o->rule);
    if (!rc)
        rc = check_matrix_kinds(&o->rule);
    if (rc)
        return rc;
    if (!is_size(u->eps) || !is_size(u->weight_decay) || !is_size(o->clip_norm) ||
        !is_size(u->clip_value))
        return error_set(CKPT_EINVAL,
                         "%s: eps is %g, weight_decay %g, clip_norm %g and clip_value %g; none may "
                         "be negative, infinite or NaN",
                         name, (double)u->eps, (double)u->weight_decay, (double)o->clip_norm,
                         (double)u->clip_value);
    if (!is_decay(u->ema_decay))
        return error_set(CKPT_EINVAL, "%s: ema_decay is %g and must be in [0, 1)", name,
                         (double)u->ema_decay);
    if (o->grad_dtype != CKPT_F32 && o->grad_dtype != CKPT_BF16)
        return error_set(CKPT_EINVAL, "%s: grad_dtype is neither CKPT_F32 nor CKPT_BF16", name);
    return 0;
}

/* ---- which parameter has which --------------------------------------------------------------- */

static bool group_matches(const struct optim_group *g, const struct param *p)
{
    return p->desc.ndim >= g->min_ndim && p->desc.ndim <= g->max_ndim &&
           !fnmatch(g->pattern, p->name, 0);
}

int optim_resolve(const struct ckpt_optimizer *o, const struct params *ps, int32_t *of)
{
    const int32_t n = ps->n - ps->n_hidden;
    for (int32_t i = 0; i < n; i++)
        of[i] = -1;
    for (int g = 0; g < o->n_groups; g++) {
        bool found = false;
        for (int32_t i = 0; i < n; i++)
            if (ps->data[i].trainable && group_matches(&o->groups[g], &ps->data[i])) {
                of[i] = g;
                found = true;
            }
        if (!found)
            return error_set(CKPT_EINVAL,
                             "%s: no trained parameter of %d to %d axes has a name like '%s', "
                             "which is group %d",
                             optim_kind_name(o->rule.kind), o->groups[g].min_ndim,
                             o->groups[g].max_ndim, o->groups[g].pattern, g + 1);
    }
    return 0;
}

/* Numbers pairs of *class and rule anew, in the order in which they first appear. */
static int renumber(int32_t n, const int32_t *rule, int32_t *class)
{
    int32_t(*pair)[2] = malloc((size_t)(n + 1) * sizeof *pair), count = 0;
    if (!pair)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < n; i++) {
        int32_t k = 0;
        while (k < count && (pair[k][0] != class[i] || pair[k][1] != rule[i]))
            k++;
        pair[k][0] = class[i];
        pair[k][1] = rule[i];
        count += k == count;
        class[i] = k;
    }
    free(pair);
    return 0;
}

/* Whether the rules of an optimizer can be resolved; if not, a program that uses it is refused. */
static bool resolves(const struct ckpt_optimizer *o, const struct params *ps, int32_t *rule)
{
    struct error unused;
    ERRORS_TO(&unused);
    return !optim_resolve(o, ps, rule);
}

int optim_classes(const struct ckpt_optimizer *all, const struct ckpt_optimizer *used,
                  const struct params *ps, int32_t *class)
{
    const int32_t n = ps->n - ps->n_hidden;
    int32_t *rule = calloc((size_t)n + 1, sizeof *rule);
    bool *trained = calloc((size_t)n + 1, sizeof *trained);
    int rc = rule && trained ? 0 : CKPT_ENOMEM;
    for (const struct ckpt_optimizer *o = all; o && !rc; o = o->next) {
        if (o != used && (o->part || !resolves(o, ps, rule)))
            continue;
        if (o == used)
            rc = optim_resolve(o, ps, rule);
        for (int32_t i = 0; i < n && !rc; i++)
            trained[i] |= !optim_rule_at(o, rule[i])->frozen;
        rc = rc ? rc : renumber(n, rule, class);
    }
    for (int32_t i = 0; i < n && !rc; i++)
        class[i] = trained[i] ? class[i] : -1;
    free(rule);
    free(trained);
    return rc == CKPT_ENOMEM ? error_set(rc, "no memory for the groups of an optimizer") : rc;
}

/* ---- in words -------------------------------------------------------------------------------- */

bool optim_is_plain_adamw(const struct ckpt_optimizer *o)
{
    const struct update_attr *u = &o->rule.update;
    return o->rule.kind == OPTIM_ADAMW && !o->n_groups && !(u->clip_value > 0.f) && !u->ema_warmup;
}

static void put(FILE *f, const char *name, float value)
{
    fprintf(f, " %s ", name);
    number_put(f, 9, (double)value);
}

static void put_rule(FILE *f, const struct optim_rule *r)
{
    const struct update_attr *u = &r->update;
    if (r->frozen) {
        fputs("frozen", f);
        return;
    }
    fputs(optim_kind_name(r->kind), f);
    put(f, "lr", u->lr_factor);
    put(f, "betas", u->beta1);
    put(f, "", u->beta2);
    put(f, "eps", u->eps);
    put(f, "decay", u->weight_decay);
    if (r->kind == OPTIM_ADAFACTOR) {
        put(f, "eps2", r->eps2);
        put(f, "d", r->d);
    }
    if (r->kind == OPTIM_MUON)
        fprintf(f, " steps %d%s", r->ns_steps, r->match_rms ? " rms" : "");
    if (u->nesterov)
        fputs(" nesterov", f);
    if (u->unclipped)
        fputs(" unclipped", f);
}

char *optim_describe(const struct ckpt_optimizer *o)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    put_rule(f, &o->rule);
    put(f, "clip", o->clip_norm);
    put(f, "value", o->rule.update.clip_value);
    put(f, "ema", o->rule.update.ema_decay);
    fputs(o->rule.update.ema_warmup ? " warm" : "", f);
    for (int i = 0; i < o->n_groups; i++) {
        const struct optim_group *g = &o->groups[i];
        fprintf(f, "; '%s' of %d to %d axes: ", g->pattern, g->min_ndim, g->max_ndim);
        put_rule(f, &g->rule);
    }
    return text_close(f, &text) ? NULL : text;
}
