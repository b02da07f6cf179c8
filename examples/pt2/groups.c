/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer with its groups: --freeze, --lr-factors, --decay-factors. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include "../common/patterns.h"
#include "run.h"

struct grouping {
    const struct pt2_run *r;
    const char *option;
    struct ckpt_optimizer_group *group; /* per parameter */
    bool *changed;
    void (*set)(struct ckpt_optimizer_group *g, double factor);
};

static void set_frozen(struct ckpt_optimizer_group *g, double factor)
{
    (void)factor;
    g->frozen = true;
}

static void set_rate(struct ckpt_optimizer_group *g, double factor)
{
    g->lr_factor = (float)factor;
}

/* Replaced by the decay itself when all factors are known. */
static void set_decay(struct ckpt_optimizer_group *g, double factor)
{
    g->weight_decay = (float)factor;
}

/* PATTERN, or PATTERN=FACTOR. */
static int group_pattern(void *user, char *part)
{
    const struct grouping *a = user;
    const bool has_factor = a->set != set_frozen;
    char *equals = has_factor ? strrchr(part, '=') : NULL, *end = NULL;
    const double factor = equals ? strtod(equals + 1, &end) : 0;
    int n = 0;

    if (has_factor && (!equals || end == equals + 1 || *end || !(factor >= 0 && factor < 1e30)))
        return say_fail("%s %s: is not PATTERN=FACTOR, as in 'head.*=10'", a->option, part);
    if (equals)
        *equals = 0;
    for (int i = 0; i < ckpt_param_count(a->r->context); i++) {
        const struct ckpt_param_info p = param_info_at(a->r->context, i);
        if (!p.trainable || fnmatch(part, p.name, 0))
            continue;
        a->set(&a->group[i], factor);
        a->changed[i] = true;
        n++;
    }
    return n ? 0
             : say_fail("%s %s: no trained parameter has such a name; ckpt import %s --report "
                        "lists them",
                        a->option, part, a->r->options.model);
}

static int group_parameters(struct grouping *a)
{
    const struct pt2_options *o = &a->r->options;
    const struct {
        const char *option, *list;
        void (*set)(struct ckpt_optimizer_group *g, double factor);
    } all[] = {{"--freeze", o->freeze, set_frozen},
               {"--lr-factors", o->lr_factors, set_rate},
               {"--decay-factors", o->decay_factors, set_decay}};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        a->option = all[i].option;
        a->set = all[i].set;
        if (all[i].list && option_parts(all[i].option, all[i].list, a, group_pattern))
            return -1;
    }
    return 0;
}

static int add_groups(const struct grouping *a, ckpt_optimizer *optimizer)
{
    char pattern[PATTERN_NAME];
    int64_t trained = 0;

    for (int i = 0; i < ckpt_param_count(a->r->context); i++) {
        const struct ckpt_param_info p = param_info_at(a->r->context, i);
        trained += p.trainable && !a->group[i].frozen;
        if (!a->changed[i])
            continue;
        a->group[i].weight_decay *= (float)a->r->options.train.weight_decay;
        if (ckpt_optimizer_group(optimizer, param_pattern(p.name, pattern), &a->group[i]))
            return say_fail("%s", ckpt_error(a->r->context));
    }
    return trained ? 0
                   : say_fail("--freeze %s: no parameter is left to train", a->r->options.freeze);
}

/* Matrices and kernels decay, biases and weights of norms do not. */
static ckpt_optimizer *make_optimizer(const struct grouping *a)
{
    const struct training_options *t = &a->r->options.train;
    struct ckpt_optimizer_group rest = CKPT_OPTIMIZER_GROUP_INIT;
    struct ckpt_adamw s = training_adamw(t);
    ckpt_optimizer *all = optimizer_make(a->r->context, t->optimizer, &s);
    bool has_rest = false;

    for (int i = 0; i < ckpt_param_count(a->r->context); i++) {
        const struct ckpt_param_info p = param_info_at(a->r->context, i);
        a->group[i] = (struct ckpt_optimizer_group)CKPT_OPTIMIZER_GROUP_INIT;
        a->group[i].weight_decay = p.desc.ndim > 1 ? 1 : 0;
        has_rest = has_rest || (p.trainable && p.desc.ndim <= 1);
    }
    rest.max_ndim = 1;
    rest.weight_decay = 0;
    if (has_rest && ckpt_optimizer_group(all, "*", &rest)) {
        say_fail("%s", ckpt_error(a->r->context));
        return NULL;
    }
    return all;
}

ckpt_optimizer *pt2_optimizer(const struct pt2_run *r)
{
    const size_t n = (size_t)ckpt_param_count(r->context) + 1;
    struct grouping a = {.r = r};
    ckpt_optimizer *all = NULL;

    a.group = calloc(n, sizeof *a.group);
    a.changed = calloc(n, sizeof *a.changed);
    if (!a.group || !a.changed)
        say_fail("no memory for the groups of parameters");
    else
        all = make_optimizer(&a);
    if (all && (group_parameters(&a) || add_groups(&a, all)))
        all = NULL;
    free(a.group);
    free(a.changed);
    return all;
}
