/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters of a run: made from options or from a file, loaded, noted in its states. */
#include "adapters.h"
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_dist.h"
#include "names.h"
#include "patterns.h"
#include "say.h"

/* ---- making new ones ------------------------------------------------------------------------ */

/* The layer of a parameter that can have an adapter: a matrix "LAYER.weight". */
static bool layer_of(const struct ckpt_param_info *p, char layer[LORA_LAYER])
{
    const size_t n = strlen(p->name), end = strlen(".weight");

    if (p->desc.ndim != 2 || n <= end || n - end >= LORA_LAYER ||
        strcmp(p->name + n - end, ".weight") || ckpt_lora_only(NULL, p->name))
        return false;
    memcpy(layer, p->name, n - end);
    layer[n - end] = 0;
    return true;
}

/* "to_q" is every layer whose name ends so; a pattern is one of whole names. */
static bool is_target(const struct adapter_names *names, const char *layer, const char *target,
                      size_t n)
{
    char whole[LORA_LAYER], inside[2 * LORA_LAYER];

    if (n >= sizeof whole)
        return false;
    layer = adapter_layer_own(names, layer);
    snprintf(whole, sizeof whole, "%.*s", (int)n, target);
    snprintf(inside, sizeof inside, "%s*.%s", names->blocks ? names->blocks : "", whole);
    return !fnmatch(inside, layer, 0) || !fnmatch(whole, layer, 0);
}

static int add(const struct adapter_run *r, const char *layer, int64_t rank, double alpha,
               const char *where)
{
    struct ckpt_lora lora = CKPT_LORA_INIT;
    char weight[LORA_LAYER + 8], pattern[PATTERN_NAME];

    snprintf(weight, sizeof weight, "%s.weight", layer);
    lora.pattern = param_pattern(weight, pattern);
    lora.rank = rank;
    lora.alpha = (float)alpha;
    lora.prefix = r->names->prefix;
    lora.dropout = (float)fmax(0, r->options->dropout); /* -1: not given */
    lora.dora = r->options->dora;
    lora.frozen = r->frozen;
    return ckpt_lora(r->context, &lora) < 0
               ? say_fail("%s: '%s': %s", where, layer, ckpt_error(r->context))
               : 0;
}

static int add_target(void *run, char *target)
{
    const struct adapter_run *r = run;
    const struct adapter_options *o = r->options;
    const int all = ckpt_param_count(r->context);
    char layer[LORA_LAYER];
    int n = 0;

    for (int i = 0; i < all; i++) {
        const struct ckpt_param_info p = param_info_at(r->context, i);
        if (!layer_of(&p, layer) || !is_target(r->names, layer, target, strlen(target)))
            continue;
        if (add(r, layer, o->rank, o->alpha, "--lora-targets"))
            return -1;
        n++;
    }
    return n ? 0
             : say_fail("--lora-targets %s: no layer of %s with a matrix is called so%s%s%s",
                        target, r->model, r->names->archive ? "; ckpt import " : "",
                        r->names->archive ? r->model : "",
                        r->names->archive ? " --report lists them" : "");
}

static int each_target(const struct adapter_run *r, int (*visit)(void *run, char *name))
{
    struct adapter_run run = *r;

    return option_parts("--lora-targets", r->options->targets, &run, visit);
}

/* ---- those of a file ------------------------------------------------------------------------ */

/* A layer's name inside its block, as --lora-targets has it. */
static const char *target_of(const struct adapter_names *names, const char *name)
{
    const char *layer = adapter_layer_own(names, name);
    const size_t n = names->blocks ? strlen(names->blocks) : 0;
    const char *at = n && !strncmp(layer, names->blocks, n) ? strchr(layer + n, '.') : NULL;
    const size_t part = names->part ? strlen(names->part) : 0;

    if (!at)
        return layer;
    return part && !strncmp(at + 1, names->part, part) ? at + 1 + part : at + 1;
}

/* The place of a layer's name in a list with commas, from 0; -1: it has none. */
static int find_target(const struct adapter_names *names, const char *list, const char *layer)
{
    int i = 0;

    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',', i++)
        if (is_target(names, layer, p, strcspn(p, ",")))
            return i;
    return -1;
}

static int expect_target(void *run, char *name)
{
    const struct adapter_run *r = run;
    const struct adapter_file *l = &r->options->file;

    for (int i = 0; i < l->n; i++)
        if (is_target(r->names, l->layer[i].model, name, strlen(name)))
            return 0;
    return say_fail("%s: these adapters do not match this run: none is of --lora-targets %s; leave "
                    "--lora-targets out",
                    l->path, name);
}

/* Compares --lora-targets with the file. */
static int check_targets(const struct adapter_run *r)
{
    const struct adapter_options *o = r->options;
    const struct adapter_file *l = &o->file;

    for (int i = 0; i < l->n; i++)
        if (find_target(r->names, o->targets, l->layer[i].model) < 0)
            return say_fail("%s: these adapters do not match this run: %s is not in "
                            "--lora-targets %s; leave --lora-targets out",
                            l->path, l->layer[i].model, o->targets);
    return each_target(r, expect_target);
}

/* Sets --lora-targets by the file. */
static void set_targets(const struct adapter_run *r)
{
    struct adapter_file *l = &r->options->file;
    size_t n = 0;

    for (int i = 0; i < l->n && n < sizeof l->targets; i++)
        if (find_target(r->names, l->targets, l->layer[i].model) < 0)
            n += (size_t)snprintf(l->targets + n, sizeof l->targets - n, "%s%s", n ? "," : "",
                                  target_of(r->names, l->layer[i].model));
    r->options->targets = l->targets;
}

/* A state is named by --resume auto, too. */
static const char *cure(const struct adapter_file *l)
{
    return l->is_state ? "; for a new run give another --save-state" : "";
}

/* Names of the model, and shapes that fit it. */
static int match_layer(const struct adapter_run *r, struct adapter_layer *x)
{
    const char *path = r->options->file.path, *without = r->names->without;
    struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
    char weight[LORA_LAYER + 8];
    ckpt_tensor w;

    if (!adapter_layer_find(r->context, r->names, x->name, x->model))
        return say_fail("%s: '%s' is no layer of %s: these are adapters of another model%s", path,
                        x->name, r->model, cure(&r->options->file));
    snprintf(weight, sizeof weight, "%s.weight", x->model);
    if (ckpt_param_find(r->context, weight, &w) || ckpt_param_info(r->context, w, &info))
        return say_fail("%s", ckpt_error(r->context));
    if ((without && !strncmp(adapter_layer_own(r->names, x->model), without, strlen(without))) ||
        info.desc.ndim != 2)
        return say_fail("%s: '%s': an adapter of this layer is not supported", path, x->name);
    if (info.desc.shape[0] != x->out || info.desc.shape[1] != x->in)
        return say_fail("%s: '%s' is for a layer from %lld to %lld values; the layer of this model "
                        "has the shape %lld x %lld: these are adapters of another model%s",
                        path, x->name, (long long)x->in, (long long)x->out,
                        (long long)info.desc.shape[1], (long long)info.desc.shape[0],
                        cure(&r->options->file));
    while (ckpt_param_at(r->context, x->order).id != w.id)
        x->order++;
    return 0;
}

static int in_order(const void *a, const void *b)
{
    const struct adapter_layer *x = a, *y = b;

    return x->target != y->target ? x->target - y->target : x->order - y->order;
}

/* The order in which add_target makes adapters: a run that resumes must have that of its first
 * part, since sums over all parameters depend on it. */
static void sort_layers(const struct adapter_run *r)
{
    const struct adapter_file *l = &r->options->file;

    for (int i = 0; i < l->n; i++)
        l->layer[i].target = find_target(r->names, r->options->targets, l->layer[i].model);
    qsort(l->layer, (size_t)l->n, sizeof *l->layer, in_order);
}

static int check_state_rank(const struct adapter_run *r)
{
    const struct adapter_file *l = &r->options->file;

    return !l->is_state || l->rank == r->options->rank
               ? 0
               : say_fail("%s: its adapters have rank %lld, and --lora-rank is %lld: leave it "
                          "out to resume that run%s",
                          l->path, (long long)l->rank, (long long)r->options->rank, cure(l));
}

/* Compares the file with the model and the options, which then have what they left open. */
static int match(const struct adapter_run *r)
{
    struct adapter_options *o = r->options;
    struct adapter_file *l = &o->file;

    for (int i = 0; i < l->n; i++)
        if (match_layer(r, &l->layer[i]))
            return -1;
    if (adapter_diffs_check(r) || check_state_rank(r) || (o->targets && check_targets(r)))
        return -1;
    if (!o->targets)
        set_targets(r);
    for (int i = 0; i < l->n; i++)
        if (l->layer[i].alpha == 0 && r->trains)
            return say_fail("%s: %s has alpha 0: such adapters add nothing and learn nothing",
                            l->path, l->layer[i].name);
    sort_layers(r);
    l->unscaled = o->alpha < 0;
    for (int i = 0; i < l->n; i++)
        l->unscaled = l->unscaled && isnan(l->layer[i].given);
    if (o->alpha < 0)
        o->alpha = isnan(l->alpha) ? l->layer[0].alpha : l->alpha;
    l->matched = true;
    return 0;
}

static int add_file(const struct adapter_run *r)
{
    const struct adapter_file *l = &r->options->file;

    if (!l->matched && match(r))
        return -1;
    for (int i = 0; i < l->n; i++)
        if (add(r, l->layer[i].model, l->layer[i].rank, l->layer[i].alpha, l->path))
            return -1;
    return 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int check_format(const struct adapter_run *r)
{
    const enum adapter_format format = adapter_format(r->options);
    const size_t n = strlen(r->names->prefix);
    char to[512];

    for (int i = 0; i < ckpt_param_count(r->context); i++) {
        const struct ckpt_param_info p = param_info_at(r->context, i);
        if (ckpt_lora_only(NULL, p.name) && !strncmp(p.name, r->names->prefix, n) &&
            !adapter_name(r->names, format, p.name, to, sizeof to))
            return say_fail("--lora-format %s: '%s' has no name there: give diffusers or peft",
                            r->options->format, p.name);
    }
    return 0;
}

int adapters_add(const struct adapter_run *r)
{
    int rc = adapters_keep_whole(r);

    if (!rc)
        rc = r->options->file.n ? add_file(r) : each_target(r, add_target);

    return rc ? rc : check_format(r);
}

int adapters_leave_base(const struct adapter_run *r, const char *option, const char *path)
{
    char from[8400];

    snprintf(from, sizeof from, "%s%s%s", option, path ? " " : "", path ? path : "");
    return ckpt_state_base(r->context, from) ? say_fail("%s", ckpt_error(r->context)) : 0;
}

int adapters_code(const struct adapter_run *r, const char *plain, const char *weights)
{
    const char *format = r->options->frozen;

    return strcmp(format, plain) && ckpt_quantize_frozen(r->context, weights, format) < 0
               ? say_fail("--frozen %s: %s", format, ckpt_error(r->context))
               : 0;
}

const char *adapters_text(const struct adapter_options *o, char dst[ADAPTERS_TEXT])
{
    const struct adapter_file *l = &o->file;
    const struct adapter_layer *x = l->layer;
    bool alike = true;

    for (int i = 0; i < l->n; i++)
        alike = alike && l->layer[i].rank == x->rank && l->layer[i].alpha == x->alpha;
    if (!l->n)
        return NULL;
    char diffs[48] = "";
    if (l->n_diff)
        snprintf(diffs, sizeof diffs, "; %d differences of weights", l->n_diff);
    snprintf(dst, ADAPTERS_TEXT, "adapters: %s, %d layers, %srank %lld, alpha %.6g%s%s%s", l->path,
             l->n, l->dora ? "DoRA, " : "", (long long)x->rank, x->alpha,
             alike ? "" : ", others for some",
             l->unscaled ? " (not in the file: a scale of 1)" : "", diffs);
    return dst;
}

void adapters_introduce(const struct adapter_options *o)
{
    char text[ADAPTERS_TEXT];

    if (adapters_text(o, text))
        say_print("%s\n", text);
}

/* ---- the first step -------------------------------------------------------------------------- */

/* B of an adapter starts as zeros. */
static int is_zero(ckpt *c, int i, int64_t n, bool *zero)
{
    float *b = malloc((size_t)n * sizeof *b);
    int rc = b ? 0 : say_fail("no memory for adapters");

    if (!rc && ckpt_param_get(c, ckpt_param_at(c, i), CKPT_VALUE, b, n))
        rc = say_fail("%s", ckpt_error(c));
    *zero = true;
    for (int64_t k = 0; k < n && !rc && *zero; k++)
        *zero = b[k] == 0;
    free(b);
    return rc;
}

int adapters_check(const struct training *t, ckpt_param_filter of)
{
    struct names idle = {.n = 0};

    for (int i = 0; i < ckpt_param_count(t->context); i++) {
        const struct ckpt_param_info p = param_info_at(t->context, i);
        bool zero = false;
        if (!strstr(p.name, ".lora_B.weight") || !of(t->saves_user, p.name))
            continue;
        if (is_zero(t->context, i, p.numel, &zero))
            return -1;
        if (zero)
            names_add(&idle, p.name);
    }
    if (!ckpt_rank(t->context) && t->options->lr > 0)
        names_report(&idle, "--lora-targets",
                     "adapters that learn nothing: no layer multiplies by their weight as it is");
    return 0;
}

int adapters_check_step(const struct training *t, int64_t step)
{
    return step == t->first ? adapters_check(t, ckpt_lora_only) : 0;
}

/* ---- states --------------------------------------------------------------------------------- */

/* Alphas that differ from --lora-alpha, as of a file with alpha_pattern; and the base. */
int adapters_note(const struct adapter_run *r)
{
    const struct adapter_file *l = &r->options->file;
    const char *base = *r->options->base ? r->options->base : l->base;
    json_t *others = json_object();
    int rc = others ? 0 : -1;

    for (int i = 0; i < l->n && !rc; i++)
        if (l->layer[i].alpha != r->options->alpha)
            rc = json_object_set_new(others, l->layer[i].model, json_real(l->layer[i].alpha));
    char *text = rc ? NULL : json_dumps(others, JSON_SORT_KEYS | JSON_COMPACT);
    if (!text)
        rc = say_fail("no memory for the alphas of adapters");
    else if ((json_object_size(others) && ckpt_state_note(r->context, LORA_ALPHAS, text)) ||
             (*base && ckpt_state_note(r->context, LORA_BASE, base)))
        rc = say_fail("%s", ckpt_error(r->context));
    free(text);
    json_decref(others);
    return rc;
}

int adapters_merge(ckpt *c, const struct adapter_options *o, ckpt_param_filter keep, void *user)
{
    if (o->merge && ckpt_save_params_merged(c, o->merge, keep, user))
        return say_fail("%s", ckpt_error(c));
    if (o->merge)
        say_print("weights with adapters: %s\n", o->merge);
    return 0;
}
