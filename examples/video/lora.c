/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters of a run: made from options or from a file, loaded, saved under names of other programs,
 * merged. */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/names.h"
#include "../common/say.h"
#include "ckpt_files.h"
#include "run.h"

#define PREFIX "transformer."
#define BLOCKS "transformer_blocks."

/* ---- options -------------------------------------------------------------------------------- */

static const char *const formats[] = {"diffusers", "peft", "original"};

enum video_lora_format video_lora_format(const struct video_options *o)
{
    int i = 0;

    while (i < LORA_FORMATS && strcmp(o->lora_format, formats[i]))
        i++;
    return (enum video_lora_format)i;
}

const char *video_lora_config(const struct video_options *o, char path[4096])
{
    const char *save = o->train.save, *slash = save ? strrchr(save, '/') : NULL;
    int stem = slash ? (int)(slash + 1 - save) : 0;

    return save && video_lora_format(o) == LORA_PEFT &&
                   snprintf(path, 4096, "%.*s" LORA_PEFT_CONFIG, stem, save) < 4096
               ? path
               : NULL;
}

/* PEFT reads one adapter in a directory: its settings must not become those of another file. */
static int check_directory(const struct video_options *o)
{
    char path[4096 + 32];

    if (!video_lora_config(o, path))
        return 0;
    strcpy(path + strlen(path) - strlen(LORA_PEFT_CONFIG), LORA_PEFT_FILE);
    return strcmp(path, o->train.save) && !access(path, F_OK)
               ? say_fail(
                     "--lora-format peft: %s is another adapter, and adapter_config.json beside "
                     "it would become that of --save %s: save to another directory",
                     path, o->train.save)
               : 0;
}

/* The file that the adapters of this run come from, or NULL.  --resume auto takes the newest intact
 * save, which is the file of --save-state unless it was damaged, and --load before there is one. */
static const char *find_source(const struct video_options *o)
{
    const struct resume_options *s = &o->train.state;

    if (!s->from)
        return o->train.load;
    if (strcmp(s->from, RESUME_AUTO))
        return s->from;
    return s->save && !access(s->save, F_OK) ? s->save : o->train.load;
}

static int check_rank(const struct video_options *o)
{
    const struct video_lora *l = &o->lora;

    for (int i = 0; i < l->n && o->rank; i++) {
        /* a state has the option that its run had */
        const int64_t rank = l->is_state ? l->rank : l->layer[i].rank;
        if (rank != o->rank)
            return say_fail("%s: its adapters have rank %lld (%s), and --lora-rank is %lld: leave "
                            "--lora-rank out",
                            l->path, (long long)rank, l->layer[i].name, (long long)o->rank);
    }
    return 0;
}

/* --lora-alpha says what the file leaves open, or changes the options of a resumed run. */
static int set_alpha(const struct video_options *o, struct video_lora_layer *x)
{
    const struct video_lora *l = &o->lora;
    const bool open = isnan(x->given) || (l->is_state && o->alpha != l->alpha);

    if (o->alpha < 0 && open && l->original)
        return say_fail("%s: the original code has the alpha of its adapters in the configuration "
                        "of a training, not in the file: give --lora-alpha X, 1 where lora_alpha "
                        "is not set there",
                        l->path);
    if (o->alpha >= 0 && open)
        x->alpha = o->alpha;
    else if (o->alpha >= 0 && !l->is_state && fabs(x->given - o->alpha) > 1e-6 * o->alpha)
        return say_fail("%s: %s has alpha %g, a scale of %g, and --lora-alpha is %g: leave "
                        "--lora-alpha out",
                        l->path, x->name, x->given, x->alpha / (double)x->rank, o->alpha);
    return 0;
}

static int set_alphas(struct video_options *o)
{
    for (int i = 0; i < o->lora.n; i++)
        if (set_alpha(o, &o->lora.layer[i]))
            return -1;
    return 0;
}

int video_lora_options(struct video_options *o)
{
    const char *source = find_source(o);
    struct video_lora *l = &o->lora;
    int rc = source ? video_lora_open(l, source) : 1;

    if (rc < 0)
        return -1;
    if (!rc && l->is_state && !o->train.state.from)
        return say_fail("%s: is a state of training: --resume it, or --load what --save wrote",
                        l->path);
    if (rc > 0)
        l->n = 0;
    if (check_rank(o) || set_alphas(o) || check_directory(o))
        return -1;
    if (l->n && !o->rank)
        o->rank = l->rank;
    if (l->n && l->is_state && !o->targets && *l->targets)
        o->targets = l->targets;
    return 0;
}

/* ---- making new ones ------------------------------------------------------------------------ */

static int add_targets(struct video_run *r, const char *name)
{
    struct ckpt_lora lora = CKPT_LORA_INIT;
    char pattern[256];

    snprintf(pattern, sizeof pattern, BLOCKS "*.%s.weight", name);
    lora.pattern = pattern;
    lora.rank = r->options.rank;
    lora.alpha = (float)r->options.alpha;
    lora.prefix = PREFIX;
    return ckpt_lora(r->context, &lora) < 0
               ? say_fail("--lora-targets %s: %s", name, ckpt_error(r->context))
               : 0;
}

/* Calls visit for each name of a list with commas, until it does not return 0. */
static int each_target(struct video_run *r, const char *targets,
                       int (*visit)(struct video_run *r, const char *name))
{
    char *list = strdup(targets), *at = NULL;
    int rc = list ? 0 : say_fail("no memory for adapters"), n = 0;

    for (char *name = rc ? NULL : strtok_r(list, ",", &at); name && !rc;
         name = strtok_r(NULL, ",", &at), n++)
        rc = visit(r, name);
    free(list);
    return !rc && !n ? say_fail("--lora-targets: give layers, as to_q,to_k,to_v,to_out.0") : rc;
}

/* ---- those of a file ------------------------------------------------------------------------ */

/* A layer's name inside its block, without the name of the attention: as --lora-targets has it. */
static const char *target_of(const char *layer)
{
    const char *at = strncmp(layer, BLOCKS, strlen(BLOCKS)) ? NULL : layer + strlen(BLOCKS);

    at = at ? strchr(at, '.') : NULL;
    if (!at)
        return layer;
    return strncmp(at + 1, "attn1.", strlen("attn1.")) ? at + 1 : at + 1 + strlen("attn1.");
}

static bool is_target(const char *layer, const char *name, size_t n)
{
    char pattern[256];

    snprintf(pattern, sizeof pattern, BLOCKS "*.%.*s", (int)n, name);
    return !fnmatch(pattern, layer, 0) || (strlen(layer) == n && !strncmp(layer, name, n));
}

/* The place of a layer's name in a list with commas, from 0; -1: it has none. */
static int find_target(const char *list, const char *layer)
{
    int i = 0;

    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',', i++)
        if (is_target(layer, p, strcspn(p, ",")))
            return i;
    return -1;
}

static int expect_target(struct video_run *r, const char *name)
{
    const struct video_lora *l = &r->options.lora;

    for (int i = 0; i < l->n; i++)
        if (is_target(l->layer[i].model, name, strlen(name)))
            return 0;
    return say_fail("%s: these adapters do not match this run: none is of --lora-targets %s; leave "
                    "--lora-targets out",
                    l->path, name);
}

/* Compares --lora-targets with the file. */
static int check_targets(struct video_run *r)
{
    const struct video_options *o = &r->options;
    const struct video_lora *l = &o->lora;

    for (int i = 0; i < l->n; i++)
        if (find_target(o->targets, l->layer[i].model) < 0)
            return say_fail("%s: these adapters do not match this run: %s is not in "
                            "--lora-targets %s; leave --lora-targets out",
                            l->path, l->layer[i].model, o->targets);
    return each_target(r, o->targets, expect_target);
}

/* Sets --lora-targets by the file. */
static void set_targets(struct video_options *o)
{
    struct video_lora *l = &o->lora;
    size_t n = 0;

    for (int i = 0; i < l->n && n < sizeof l->targets; i++)
        if (find_target(l->targets, l->layer[i].model) < 0)
            n += (size_t)snprintf(l->targets + n, sizeof l->targets - n, "%s%s", n ? "," : "",
                                  target_of(l->layer[i].model));
    o->targets = l->targets;
}

/* Names of the model, and shapes that fit it. */
static int match_layer(struct video_run *r, struct video_lora_layer *x)
{
    const char *path = r->options.lora.path;
    struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
    char weight[LORA_LAYER + 8];
    ckpt_tensor w;

    if (!lora_layer_find(r->context, x->name, x->model))
        return say_fail("%s: '%s' is no layer of %s: these are adapters of another model", path,
                        x->name, r->options.net.sizes.name);
    snprintf(weight, sizeof weight, "%s.weight", x->model);
    if (ckpt_param_find(r->context, weight, &w) || ckpt_param_info(r->context, w, &info))
        return say_fail("%s", ckpt_error(r->context));
    if (!strncmp(x->model, "patch_embed.proj", strlen("patch_embed.proj")) || info.desc.ndim != 2)
        return say_fail("%s: '%s': an adapter of this layer is not supported", path, x->name);
    if (info.desc.shape[0] != x->out || info.desc.shape[1] != x->in)
        return say_fail("%s: '%s' is for a layer from %lld to %lld values; the layer of this model "
                        "has the shape %lld x %lld: these are adapters of another model",
                        path, x->name, (long long)x->in, (long long)x->out,
                        (long long)info.desc.shape[1], (long long)info.desc.shape[0]);
    while (ckpt_param_at(r->context, x->order).id != w.id)
        x->order++;
    return 0;
}

/* Adds the adapter of one layer. */
static int add_layer(struct video_run *r, const struct video_lora_layer *x)
{
    struct ckpt_lora lora = CKPT_LORA_INIT;
    char pattern[LORA_LAYER + 8];

    snprintf(pattern, sizeof pattern, "%s.weight", x->model);
    lora.pattern = pattern;
    lora.rank = x->rank;
    lora.alpha = (float)x->alpha;
    lora.prefix = PREFIX;
    return ckpt_lora(r->context, &lora) < 0
               ? say_fail("%s: '%s': %s", r->options.lora.path, x->name, ckpt_error(r->context))
               : 0;
}

static void introduce(const struct video_lora *l, bool explicit_scale)
{
    const struct video_lora_layer *x = l->layer;
    bool alike = true;

    for (int i = 0; i < l->n; i++) {
        alike = alike && l->layer[i].rank == x->rank && l->layer[i].alpha == x->alpha;
        explicit_scale = explicit_scale || !isnan(l->layer[i].given);
    }
    say_print("adapters: %s, %d layers, rank %lld, alpha %.6g%s%s\n", l->path, l->n,
              (long long)x->rank, x->alpha, alike ? "" : ", others for some",
              explicit_scale ? "" : " (not in the file: a scale of 1)");
}

static int in_order(const void *a, const void *b)
{
    const struct video_lora_layer *x = a, *y = b;

    return x->target != y->target ? x->target - y->target : x->order - y->order;
}

/* The order in which add_targets makes adapters: a run that resumes must have that of its first
 * part, since sums over all parameters depend on it. */
static void sort_layers(const struct video_options *o)
{
    const struct video_lora *l = &o->lora;

    for (int i = 0; i < l->n; i++)
        l->layer[i].target = find_target(o->targets, l->layer[i].model);
    qsort(l->layer, (size_t)l->n, sizeof *l->layer, in_order);
}

/* Compares the file with the model and the options, which then have what they left open. */
static int match(struct video_run *r)
{
    struct video_options *o = &r->options;
    struct video_lora *l = &o->lora;

    for (int i = 0; i < l->n; i++)
        if (match_layer(r, &l->layer[i]))
            return -1;
    if (o->targets && check_targets(r))
        return -1;
    if (!o->targets)
        set_targets(o);
    for (int i = 0; i < l->n; i++)
        if (l->layer[i].alpha == 0 && o->train.steps > 0)
            return say_fail("%s: %s has alpha 0: such adapters add nothing and learn nothing",
                            l->path, l->layer[i].name);
    sort_layers(o);
    introduce(l, o->alpha >= 0);
    if (o->alpha < 0)
        o->alpha = isnan(l->alpha) ? l->layer[0].alpha : l->alpha;
    l->matched = true;
    return 0;
}

static int add_file(struct video_run *r)
{
    const struct video_lora *l = &r->options.lora;

    if (!l->matched && match(r))
        return -1;
    for (int i = 0; i < l->n; i++)
        if (add_layer(r, &l->layer[i]))
            return -1;
    return 0;
}

/* ---- all --------------------------------------------------------------------------------- */

static int check_format(const struct video_run *r)
{
    enum video_lora_format format = video_lora_format(&r->options);
    char to[512];

    for (int i = 0; i < ckpt_param_count(r->context); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        ckpt_param_info(r->context, ckpt_param_at(r->context, i), &info);
        if (ckpt_lora_only(NULL, info.name) && !video_lora_name(format, info.name, to, sizeof to))
            return say_fail("--lora-format %s: '%s' has no name there: give diffusers or peft",
                            formats[format], info.name);
    }
    return 0;
}

int video_add_adapters(struct video_run *r)
{
    const struct video_options *o = &r->options;
    int rc = o->lora.n ? add_file(r) : each_target(r, o->targets, add_targets);

    if (!rc && strcmp(o->frozen, "bf16") &&
        ckpt_quantize_frozen(r->context, BLOCKS "*.weight", o->frozen) < 0)
        rc = say_fail("--frozen %s: %s", o->frozen, ckpt_error(r->context));
    return rc ? rc : check_format(r);
}

/* ---- states --------------------------------------------------------------------------------- */

/* Alphas that differ from --lora-alpha, as of a file with alpha_pattern. */
int video_note_adapters(const struct video_run *r)
{
    const struct video_lora *l = &r->options.lora;
    json_t *others = json_object();
    int rc = others ? 0 : -1;

    for (int i = 0; i < l->n && !rc; i++)
        if (l->layer[i].alpha != r->options.alpha)
            rc = json_object_set_new(others, l->layer[i].model, json_real(l->layer[i].alpha));
    char *text = rc ? NULL : json_dumps(others, JSON_SORT_KEYS | JSON_COMPACT);
    if (!text)
        rc = say_fail("no memory for the alphas of adapters");
    else if (json_object_size(others) && ckpt_state_note(r->context, LORA_ALPHAS, text))
        rc = say_fail("%s", ckpt_error(r->context));
    free(text);
    json_decref(others);
    return rc;
}

/* ---- loading ------------------------------------------------------------------------------- */

struct load {
    const struct video_lora *lora;
    struct names missing;
};

/* The name in the file of "transformer.LAYER.lora_A.weight". */
static bool name_in_file(void *user, const char *name, int i, char *alias, size_t size)
{
    const struct video_lora *l = ((const struct load *)user)->lora;
    struct lora_part_name part;

    lora_part_name(name, &part);
    if (i || part.part == LORA_OTHER || strncmp(part.layer, PREFIX, strlen(PREFIX)))
        return false;
    for (int k = 0; k < l->n; k++)
        if (!strcmp(l->layer[k].model, part.layer + strlen(PREFIX)))
            return snprintf(alias, size, "%s",
                            part.part == LORA_A ? l->layer[k].a : l->layer[k].b) < (int)size;
    return false;
}

/* Tensors of alphas are read before, and nothing else is in the file. */
static void report(void *user, const char *what, const char *name)
{
    struct load *l = user;

    if (*what == 'm' && ckpt_lora_only(NULL, name))
        names_add(&l->missing, name);
}

int video_load_adapters(struct video_run *r)
{
    struct load l = {&r->options.lora, {{{0}}, 0}};

    if (ckpt_load_params_aliased(r->context, l.lora->path, name_in_file, report, &l, NULL))
        return say_fail("%s", ckpt_error(r->context));
    names_report(&l.missing, l.lora->path, "missing");
    return l.missing.n ? say_fail("%s: adapters are missing", l.lora->path) : 0;
}

/* ---- merging ------------------------------------------------------------------------------- */

int video_merge_adapters(struct video_run *r, const char *path)
{
    if (ckpt_save_params_merged(r->context, path, video_owns, r))
        return say_fail("%s", ckpt_error(r->context));
    say_print("weights with adapters: %s\n", path);
    return 0;
}
