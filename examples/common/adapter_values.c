/* SPDX-License-Identifier: Apache-2.0 */
/* Values of adapters and of the layers that are trained as a whole: loaded, selected for saves. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include "adapters.h"
#include "names.h"
#include "patterns.h"
#include "say.h"

/* ---- layers that are trained as a whole ------------------------------------------------------ */

/* "h.0.ln_1" of "h.0.ln_1.bias". */
static bool layer_of(const char *parameter, char layer[LORA_LAYER])
{
    const char *dot = strrchr(parameter, '.');
    const size_t n = dot ? (size_t)(dot - parameter) : LORA_LAYER;

    if (n >= LORA_LAYER)
        return false;
    memcpy(layer, parameter, n);
    layer[n] = 0;
    return true;
}

static int keep(const struct adapter_run *r, const char *option, const char *parameter)
{
    char pattern[PATTERN_NAME];

    if (strstr(parameter, ".experts."))
        return say_fail("%s: '%s' has experts, which are not trained as a whole", option,
                        parameter);
    if (r->tied && !strcmp(parameter, r->tied))
        return say_fail(
            "%s: '%s' is the head of %s, too, and PEFT would train it as one of the two "
            "alone: leave it out",
            option, parameter, r->model);
    return ckpt_lora_whole(r->context, param_pattern(parameter, pattern)) < 0
               ? say_fail("%s: '%s': %s", option, parameter, ckpt_error(r->context))
               : 0;
}

/* A layer anywhere in the model: "norm" is every one whose name ends so. */
static int keep_layers(void *run, char *name)
{
    const struct adapter_run *r = run;
    char layer[LORA_LAYER], last[LORA_LAYER];
    int n = 0;

    snprintf(last, sizeof last, "*.%s", name);

    for (int i = 0; i < ckpt_param_count(r->context); i++) {
        const struct ckpt_param_info p = param_info_at(r->context, i);
        if (!p.trainable || !layer_of(p.name, layer) ||
            (fnmatch(last, layer, 0) && fnmatch(name, layer, 0)))
            continue;
        if (keep(r, "--lora-also", p.name))
            return -1;
        n++;
    }
    return n ? 0 : say_fail("--lora-also %s: no layer of %s is called so", name, r->model);
}

/* A tensor of the file that is a parameter of the model: its name there, or NULL. */
static const char *find_parameter(const struct adapter_run *r, const char *tensor)
{
    const char *own = adapter_layer_strip(tensor);
    ckpt_tensor x;

    return ckpt_param_find(r->context, own, &x) ? NULL : own;
}

static int keep_of_file(const struct adapter_run *r)
{
    const struct adapter_file *l = &r->options->file;

    if (l->n_whole && !r->whole)
        return say_fail("%s: '%s' is trained as a whole (modules_to_save), which is not supported "
                        "for %s",
                        l->path, l->whole[0], r->model);
    for (int i = 0; i < l->n_whole; i++) {
        const char *own = find_parameter(r, l->whole[i]);
        if (!own)
            return say_fail("%s: '%s' (modules_to_save) is no parameter of %s%s", l->path,
                            l->whole[i], r->model, r->tied ? ", whose head is its embedding" : "");
        if (keep(r, l->path, own))
            return -1;
    }
    return 0;
}

/* Appends a layer to a list with commas, unless it is there. */
static int add_name(char list[LORA_ALSO], const char *name)
{
    const size_t n = strlen(list), m = strlen(name);

    for (const char *p = list; (p = strstr(p, name)); p++)
        if ((p == list || p[-1] == ',') && (!p[m] || p[m] == ','))
            return 0;
    return snprintf(list + n, LORA_ALSO - n, "%s%s", n ? "," : "", name) < (int)(LORA_ALSO - n)
               ? 0
               : say_fail("--lora-also: the list of layers is too long");
}

/* The layers of the file become those of --lora-also, which a state notes. */
static int note_of_file(const struct adapter_run *r)
{
    struct adapter_options *o = r->options;
    struct adapter_file *l = &o->file;
    char layer[LORA_LAYER];

    if (!l->n_whole)
        return 0;
    if (o->also != l->also)
        snprintf(l->also, sizeof l->also, "%s", o->also ? o->also : "");
    o->also = l->also;
    for (int i = 0; i < l->n_whole; i++)
        if (layer_of(find_parameter(r, l->whole[i]), layer) && add_name(l->also, layer))
            return -1;
    return 0;
}

int adapters_keep_whole(const struct adapter_run *r)
{
    if (keep_of_file(r) || note_of_file(r))
        return -1;
    const char *also = r->options->also;
    struct adapter_run run = *r;

    return also ? option_parts("--lora-also", also, &run, keep_layers) : 0;
}

/* ---- saving ---------------------------------------------------------------------------------- */

bool adapters_saved(const struct adapter_run *r, const char *name)
{
    struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
    ckpt_tensor x;

    return !ckpt_param_find(r->context, name, &x) && !ckpt_param_info(r->context, x, &info) &&
           info.trainable;
}

bool adapters_saved_name(const struct adapter_run *r, const char *name, int i, char *to,
                         size_t size)
{
    const size_t own = ckpt_lora_only(NULL, name) ? strlen(r->names->prefix) : 0;

    return !i && snprintf(to, size, "%s%s", r->saved, name + own) < (int)size;
}

/* ---- loading --------------------------------------------------------------------------------- */

struct load {
    const struct adapter_run *run;
    struct names missing;
};

static const char *find_whole(const struct adapter_run *r, const char *name)
{
    const struct adapter_file *l = &r->options->file;

    for (int i = 0; i < l->n_whole; i++) {
        const char *own = find_parameter(r, l->whole[i]);
        if (own && !strcmp(own, name))
            return l->whole[i];
    }
    return NULL;
}

static const char *find_part(const struct adapter_run *r, const struct adapter_part_name *part)
{
    const struct adapter_file *l = &r->options->file;
    const size_t prefix = strlen(r->names->prefix);

    for (int i = 0; i < l->n && !strncmp(part->layer, r->names->prefix, prefix); i++)
        if (!strcmp(l->layer[i].model, part->layer + prefix))
            return part->part == LORA_A   ? l->layer[i].a
                   : part->part == LORA_B ? l->layer[i].b
                                          : l->layer[i].m;
    return NULL;
}

/* The name in the file of "PREFIX.LAYER.lora_A.weight". */
static bool name_in_file(void *user, const char *name, int i, char *alias, size_t size)
{
    const struct adapter_run *r = ((const struct load *)user)->run;
    struct adapter_part_name part;

    adapter_part_name(r->names, name, &part);
    const char *found = i                         ? NULL
                        : part.part == LORA_OTHER ? find_whole(r, name)
                                                  : find_part(r, &part);
    return found && snprintf(alias, size, "%s", found) < (int)size;
}

static bool is_own(const struct adapter_run *r, const char *name)
{
    return ckpt_lora_only(NULL, name) && !strncmp(name, r->names->prefix, strlen(r->names->prefix));
}

/* Tensors of alphas are read before, and nothing else is in the file. */
static void report(void *user, const char *what, const char *name)
{
    struct load *l = user;

    if (*what == 'm' && (is_own(l->run, name) || find_whole(l->run, name)))
        names_add(&l->missing, name);
}

static int load(const struct adapter_run *r)
{
    struct load l = {r, {{{0}}, 0}};
    const char *path = r->options->file.path;

    if (ckpt_load_params_aliased(r->context, path, name_in_file, report, &l, NULL))
        return say_fail("%s", ckpt_error(r->context));
    names_report(&l.missing, path, "missing");
    return l.missing.n ? say_fail("%s: adapters are missing", path) : 0;
}

static int check_base(const struct adapter_run *r)
{
    const struct adapter_options *o = r->options;
    const struct adapter_file *l = &o->file;

    return *l->base && *o->base && strcmp(l->base, o->base) && !o->other_base
               ? say_fail("%s: these adapters were trained on other weights (digest %s) than those "
                          "of --load (%s): load those, or give --lora-other-base",
                          l->path, l->base, o->base)
               : 0;
}

int adapters_begin(const struct adapter_run *r)
{
    const struct adapter_file *l = &r->options->file;

    if (l->n && l->is_state)
        return 0;
    if (l->n)
        return check_base(r) || load(r) || adapter_diffs_add(r) ? -1 : 0;
    return r->options->dora && ckpt_lora_magnitudes(r->context)
               ? say_fail("%s", ckpt_error(r->context))
               : 0;
}
