/* SPDX-License-Identifier: Apache-2.0 */
/* Files of adapters: see adapters.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "say.h"
#include "ckpt_files.h"
#include "adapters.h"

#define STATE "value/"

/* ---- tensors -------------------------------------------------------------------------------- */

static struct adapter_layer *find_layer(struct adapter_file *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->layer[i].name, name))
            return &l->layer[i];
    l->layer[l->n] = (struct adapter_layer){.given = NAN};
    snprintf(l->layer[l->n].name, LORA_LAYER, "%s", name);
    snprintf(l->layer[l->n].model, LORA_LAYER, "%s", adapter_layer_strip(name));
    return &l->layer[l->n++];
}

/* Names of tensors by which other kinds of adapters are known. */
static const char *kind_of(const char *name)
{
    static const char *const kinds[][2] = {
        {"dora_scale", "DoRA as LyCORIS writes it"},
        {"hada_", "LoHa"},
        {"lokr_", "LoKr"},
        {"oft_", "OFT"},
        {"vera_", "VeRA"},
        {"lora_mid", "LoCon"},
        {"lora_embedding", "an adapter of an embedding"},
        {"lora_B.bias", "an adapter with a bias (lora_bias)"},
        {".bias", "a trained bias (bias)"},
        {".diff", "a difference of weights"},
    };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strstr(name, kinds[i][0]))
            return kinds[i][1];
    return "no part of a LoRA adapter";
}

static int refuse_tensor(const struct adapter_file *l, const char *name)
{
    return say_fail("%s: '%s' is %s; this program applies LoRA adapters alone", l->path, name,
                    kind_of(name));
}

/* Appends a copy of a name to a list that has place for it. */
static int keep_name(char **list, int *n, const char *name)
{
    list[*n] = strdup(name);
    return list[*n] ? (*n)++, 0 : say_fail("no memory for adapters");
}

static int take_magnitude(struct adapter_file *l, const struct ckpt_file_entry *e,
                          const struct adapter_part_name *name)
{
    struct adapter_layer *layer = find_layer(l, name->layer);

    if (layer->m)
        return say_fail("%s: '%s' and '%s' are two adapters of one layer; give a file of one",
                        l->path, layer->m, e->name);
    layer->m = strdup(e->name);
    layer->rows = e->numel;
    l->dora = true;
    return layer->m ? 0 : say_fail("no memory for adapters");
}

static int take_alpha(struct adapter_file *l, ckpt_file *f, int i, const char *layer)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    float alpha;

    ckpt_file_entry(f, i, &e);
    if (e.numel != 1 || ckpt_file_read_f32(f, i, &alpha, 1) || !isfinite(alpha))
        return say_fail("%s: '%s' is not a number", l->path, e.name);
    find_layer(l, layer)->given = (double)alpha;
    return 0;
}

static int take_factor(struct adapter_file *l, const struct ckpt_file_entry *e,
                       const struct adapter_part_name *name)
{
    struct adapter_layer *layer = find_layer(l, name->layer);
    const bool is_a = name->part == LORA_A;
    char **to = is_a ? &layer->a : &layer->b;
    const int64_t rank = e->shape[is_a ? 0 : 1];

    if (e->ndim != 2 || !e->numel)
        return say_fail("%s: '%s' is not a matrix; adapters of convolutions are not supported",
                        l->path, e->name);
    if (*to)
        return say_fail("%s: '%s' and '%s' are two adapters of one layer; give a file of one",
                        l->path, *to, e->name);
    *to = strdup(e->name);
    if (!*to)
        return say_fail("no memory for adapters");
    if (layer->rank && layer->rank != rank)
        return say_fail("%s: '%s' has rank %lld, and its other factor %lld", l->path, e->name,
                        (long long)rank, (long long)layer->rank);
    layer->rank = rank;
    *(is_a ? &layer->in : &layer->out) = e->shape[is_a ? 1 : 0];
    return 0;
}

static int take_diff(struct adapter_file *l, const struct ckpt_file_entry *e,
                     const struct adapter_part_name *name)
{
    struct adapter_diff *d = &l->diff[l->n_diff];

    *d = (struct adapter_diff){.tensor = strdup(e->name), .bias = name->part == LORA_DIFF_BIAS};
    if (!d->tensor)
        return say_fail("no memory for adapters");
    l->n_diff++;
    snprintf(d->layer, sizeof d->layer, "%s", name->layer);
    d->desc.ndim = e->ndim;
    memcpy(d->desc.shape, e->shape, sizeof d->desc.shape);
    return 0;
}

/* A state has the values of adapters among those of all parameters, and moments. */
static int take_tensor(struct adapter_file *l, ckpt_file *f, int i)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    struct adapter_part_name name;

    if (ckpt_file_entry(f, i, &e))
        return say_fail("%s", ckpt_error(NULL));
    const char *own = strncmp(e.name, STATE, strlen(STATE)) ? e.name : e.name + strlen(STATE);
    const size_t prefix = strlen(l->names->prefix);
    if (l->is_state && (own == e.name || strncmp(own, l->names->prefix, prefix)))
        return 0; /* moments, and adapters that are not trained */
    own += l->is_state ? prefix : 0;
    adapter_part_name(l->names, own, &name);
    const bool diff = name.part == LORA_DIFF || name.part == LORA_DIFF_BIAS;
    if (diff && l->names->diffs && !l->is_state)
        return take_diff(l, &e, &name);
    if (name.part == LORA_OTHER || diff)
        return l->is_state ? 0 : keep_name(l->whole, &l->n_whole, e.name);
    l->original = l->original || name.original;
    if (name.part == LORA_MAGNITUDE)
        return take_magnitude(l, &e, &name);
    return name.part == LORA_ALPHA ? take_alpha(l, f, i, name.layer) : take_factor(l, &e, &name);
}

/* Files of whole differences may have an alpha beside them, which scales nothing. */
static void drop_alphas(struct adapter_file *l)
{
    for (int i = 0; i < l->n; i++)
        for (int k = 0; k < l->n_diff; k++)
            if (!l->layer[i].a && !l->layer[i].b && !l->layer[i].m &&
                !strcmp(l->layer[i].name, l->diff[k].layer)) {
                l->layer[i--] = l->layer[--l->n];
                break;
            }
}

static int check_layers(const struct adapter_file *l)
{
    for (int i = 0; i < l->n; i++) {
        const struct adapter_layer *x = &l->layer[i];
        const char *lacks = !x->a              ? "A (lora_A, down)"
                            : !x->b            ? "B (lora_B, up)"
                            : l->dora && !x->m ? "lora_magnitude_vector, which others have"
                                               : NULL;
        if (lacks)
            return say_fail("%s: layer '%s' has no %s", l->path, x->name, lacks);
        if (x->m && x->rows != x->out)
            return say_fail("%s: '%s' has %lld values, and its layer %lld rows", l->path, x->m,
                            (long long)x->rows, (long long)x->out);
    }
    return 0;
}

static int take_tensors(struct adapter_file *l, ckpt_file *f)
{
    int n = ckpt_file_count(f), rc = 0;

    l->layer = calloc((size_t)n, sizeof *l->layer);
    l->whole = calloc((size_t)n, sizeof *l->whole);
    l->diff = calloc((size_t)n, sizeof *l->diff);
    if (!l->layer || !l->whole || !l->diff)
        return say_fail("no memory for adapters");
    for (int i = 0; i < n && !rc; i++)
        rc = take_tensor(l, f, i);
    drop_alphas(l);
    rc = rc ? rc : check_layers(l);
    if (!rc && !l->n)
        rc = say_fail("%s: has no adapter", l->path);
    l->rank = rc ? 0 : l->layer[0].rank;
    return rc;
}

/* Tensors that are no part of an adapter belong to a layer of modules_to_save. */
static int check_whole(const struct adapter_file *l)
{
    for (int i = 0; i < l->n_whole; i++)
        if (!adapter_is_whole(l, l->whole[i]))
            return refuse_tensor(l, l->whole[i]);
    return l->n_whole || !json_array_size(json_object_get(l->settings, "modules_to_save"))
               ? 0
               : say_fail("%s: %s: \"modules_to_save\" names layers, and none of their tensors is "
                          "there",
                          l->path, l->note);
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Whether a file has adapters, of any kind; *is_state: among all that a training saved; *diffs: it
 * has differences of weights. */
static bool has_adapters(const struct adapter_names *names, ckpt_file *f, bool *is_state,
                         bool *diffs)
{
    struct adapter_part_name name;
    bool found = false;

    *is_state = *diffs = false;
    for (int i = 0; i < ckpt_file_count(f); i++) {
        struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
        ckpt_file_entry(f, i, &e);
        adapter_part_name(names, e.name, &name);
        found = found || name.part == LORA_A || strstr(e.name, "lora_") ||
                strstr(e.name, "lokr_") || strstr(e.name, "hada_");
        *diffs = *diffs || name.part == LORA_DIFF || name.part == LORA_DIFF_BIAS;
        *is_state = *is_state || !strncmp(e.name, STATE, strlen(STATE));
    }
    return found;
}

/* Replaces a directory of PEFT or diffusers by the file in it. */
static bool find_file(struct adapter_file *l, const char *path)
{
    static const char *const inside[] = {LORA_PEFT_FILE, "pytorch_lora_weights.safetensors",
                                         "adapter_model.bin"};
    struct stat st;

    for (size_t i = 0;
         i < sizeof inside / sizeof *inside && !stat(path, &st) && S_ISDIR(st.st_mode); i++)
        if (snprintf(l->path, sizeof l->path, "%s/%s", path, inside[i]) < (int)sizeof l->path &&
            !access(l->path, F_OK))
            return true;
    return snprintf(l->path, sizeof l->path, "%s", path) < (int)sizeof l->path;
}

int adapter_file_open(struct adapter_file *l, const struct adapter_names *names, const char *path)
{
    ckpt_file *f;

    *l = (struct adapter_file){.names = names, .network = NAN, .alpha = NAN};
    if (!find_file(l, path))
        return 1; /* the load reports the error */
    if (ckpt_file_open(&f, l->path))
        return strcmp(l->path, path) ? say_fail("%s", ckpt_error(NULL)) : 1;
    bool diffs;
    int rc = has_adapters(names, f, &l->is_state, &diffs) ? 0 : 1;
    if (rc && diffs && names->diffs)
        rc = say_fail("%s: has differences of weights (.diff) and no adapter beside them, which "
                      "is not supported",
                      l->path);
    if (!rc)
        rc = take_tensors(l, f);
    if (!rc)
        rc = adapter_settings(l, f) || check_whole(l) || adapter_scale(l) ? -1 : 0;
    ckpt_file_close(f);
    return rc;
}

bool adapter_file_is(const struct adapter_names *names, const char *path)
{
    static struct adapter_file l; /* too large for a small stack */
    bool is_state, diffs;
    ckpt_file *f;

    if (!find_file(&l, path) || ckpt_file_open(&f, l.path))
        return false;
    const bool is = has_adapters(names, f, &is_state, &diffs) && !is_state;
    ckpt_file_close(f);
    return is;
}

void adapter_file_close(struct adapter_file *l)
{
    for (int i = 0; i < l->n; i++) {
        free(l->layer[i].a);
        free(l->layer[i].b);
        free(l->layer[i].m);
    }
    for (int i = 0; i < l->n_whole; i++)
        free(l->whole[i]);
    for (int i = 0; i < l->n_diff; i++)
        free(l->diff[i].tensor);
    free(l->diff);
    free(l->whole);
    free(l->layer);
    json_decref(l->settings);
    *l = (struct adapter_file){.n = 0};
}
