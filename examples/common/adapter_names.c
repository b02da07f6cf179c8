/* SPDX-License-Identifier: Apache-2.0 */
/* Names of adapters in files: see adapters.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "adapters.h"
#include "patterns.h"

#define DIFFUSERS "transformer."
#define PEFT      "base_model.model."
#define COMFYUI   "model.diffusion_model."

/* ---- tensors -------------------------------------------------------------------------------- */

static const struct {
    const char *end;
    enum adapter_part part;
} ends[] = {
    {".lora_A.weight", LORA_A},    {".lora_B.weight", LORA_B},
    {".lora_down.weight", LORA_A}, {".lora_up.weight", LORA_B},
    {".lora.down.weight", LORA_A}, {".lora.up.weight", LORA_B},
    {".alpha", LORA_ALPHA},        {".lora_magnitude_vector", LORA_MAGNITUDE},
    {".diff", LORA_DIFF},          {".diff_b", LORA_DIFF_BIAS},
};

static bool copy(char *to, size_t size, const char *from, size_t n)
{
    if (n >= size)
        return false;
    memcpy(to, from, n);
    to[n] = 0;
    return true;
}

static bool has_end(const char *name, struct adapter_part_name *to)
{
    const size_t n = strlen(name);

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t m = strlen(ends[i].end);
        if (n > m && !strcmp(name + n - m, ends[i].end)) {
            to->part = ends[i].part;
            return copy(to->layer, sizeof to->layer, name, n - m);
        }
    }
    return false;
}

/* LAYER.lora_A.ADAPTER.weight: PEFT's names inside a model. */
static bool has_adapter(const char *name, struct adapter_part_name *to)
{
    static const struct {
        const char *inside;
        enum adapter_part part;
    } parts[] = {
        {".lora_A.", LORA_A}, {".lora_B.", LORA_B}, {".lora_magnitude_vector.", LORA_MAGNITUDE}};

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *at = strstr(name, parts[i].inside);
        const char *adapter = at ? at + strlen(parts[i].inside) : "";
        size_t n = strcspn(adapter, ".");
        to->part = parts[i].part;
        if (at && !strcmp(adapter + n, ".weight") &&
            copy(to->adapter, sizeof to->adapter, adapter, n) &&
            copy(to->layer, sizeof to->layer, name, (size_t)(at - name)))
            return true;
    }
    return false;
}

/* [...]layers.0.attention.dense.matrix_A.0 */
static bool is_original(const struct adapter_names *n, const char *name,
                        struct adapter_part_name *to)
{
    const char *at = strstr(name, "layers."), *a = strstr(name, ".matrix_A.");
    const char *end = a ? a : strstr(name, ".matrix_B.");
    char *inside, *after;

    if (!at || !end || end < at)
        return false;
    long block = strtol(at + strlen("layers."), &inside, 10);
    long number = strtol(end + strlen(".matrix_A."), &after, 10);
    for (int i = 0; i < n->twins && *inside == '.' && !*after; i++) {
        const struct adapter_twin *w = &n->twin[i];
        if (w->number == number && strlen(w->original) == (size_t)(end - inside - 1) &&
            !strncmp(inside + 1, w->original, strlen(w->original))) {
            snprintf(to->layer, sizeof to->layer, "%s%ld.%s", n->blocks, block, w->model);
            to->part = a ? LORA_A : LORA_B;
            to->original = true;
            return true;
        }
    }
    return false;
}

void adapter_part_name(const struct adapter_names *n, const char *name,
                       struct adapter_part_name *to)
{
    *to = (struct adapter_part_name){.part = LORA_OTHER};
    if (!has_end(name, to) && !is_original(n, name, to) && !has_adapter(name, to))
        *to = (struct adapter_part_name){.part = LORA_OTHER};
}

/* ---- layers --------------------------------------------------------------------------------- */

/* A layer of the model: a matrix "LAYER.weight". */
static bool is_layer(ckpt *c, const char *layer)
{
    char weight[LORA_LAYER + 8];
    ckpt_tensor x;

    snprintf(weight, sizeof weight, "%s.weight", layer);
    return !ckpt_param_find(c, weight, &x);
}

/* Returns what follows the prefix, or NULL. */
static const char *after(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) ? NULL : name + strlen(prefix);
}

const char *adapter_layer_own(const struct adapter_names *n, const char *name)
{
    const char *rest;

    for (int i = 0; i < 2; i++)
        if (n->pair[i] && (rest = after(name, n->pair[i])))
            return rest;
    return name;
}

/* The length of "blocks.12." at the begin of a name; 0: it is outside of the blocks. */
static size_t block_length(const struct adapter_names *n, const char *name)
{
    const char *number = n->blocks ? after(name, n->blocks) : NULL;
    const size_t digits = number ? strspn(number, "0123456789") : 0;

    return digits && number[digits] == '.' ? (size_t)(number - name) + digits + 1 : 0;
}

/* A name of the model's own code as the model's, or the other way round.  Returns false if it has
 * no other one. */
static bool rename_module(const struct adapter_names *n, const char *name, bool to_model, char *to,
                          size_t size)
{
    const size_t block = block_length(n, name);

    for (const struct adapter_rename *r = block ? n->inside : n->outside; r && r->model; r++) {
        const char *rest = after(name + block, to_model ? r->other : r->model);
        if (rest && (!*rest || *rest == '.'))
            return snprintf(to, size, "%.*s%s%s", (int)block, name, to_model ? r->model : r->other,
                            rest) < (int)size;
    }
    return false;
}

static bool is_flat(const char *name, const char *flat, size_t n)
{
    size_t k = 0;

    while (k < n && (name[k] == flat[k] || (name[k] == '.' && flat[k] == '_')))
        k++;
    return k == n && !strcmp(name + n, ".weight");
}

/* kohya's names have _ for the dots of the own code's or of the model's; those of VideoX-Fun have
 * two behind the prefix. */
static bool find_flat(ckpt *c, const struct adapter_names *names, const char *flat,
                      char model[LORA_LAYER])
{
    const size_t n = strlen(flat);
    char other[LORA_LAYER];

    for (int i = 0; i < ckpt_param_count(c); i++) {
        const struct ckpt_param_info info = param_info_at(c, i);
        if (is_flat(info.name, flat, n) ||
            (rename_module(names, info.name, false, other, sizeof other) &&
             is_flat(other, flat, n)))
            return copy(model, LORA_LAYER, info.name, strlen(info.name) - strlen(".weight"));
    }
    return false;
}

const char *adapter_layer_strip(const char *layer)
{
    static const char *const prefixes[] = {PEFT,        COMFYUI,   "diffusion_model.",
                                           "pipe.dit.", "module.", DIFFUSERS};
    const char *rest;

    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if ((rest = after(layer, prefixes[i])))
            layer = rest;
    return layer;
}

bool adapter_layer_find(ckpt *c, const struct adapter_names *n, const char *layer,
                        char model[LORA_LAYER])
{
    static const char *const flat[] = {"lora_unet__", "lora_transformer_", "lora_unet_"};
    const char *own = adapter_layer_strip(layer), *rest;

    for (size_t i = 0; i < sizeof flat / sizeof *flat; i++)
        if ((rest = after(layer, flat[i])))
            return find_flat(c, n, rest, model);
    if (is_layer(c, own))
        return copy(model, LORA_LAYER, own, strlen(own));
    return rename_module(n, own, true, model, LORA_LAYER) && is_layer(c, model);
}

bool adapter_diff_find(ckpt *c, const struct adapter_names *n, const char *layer, bool bias,
                       char parameter[LORA_LAYER])
{
    const char *own = adapter_layer_strip(layer);
    char model[LORA_LAYER];
    ckpt_tensor x;

    if (adapter_layer_find(c, n, layer, model))
        return snprintf(parameter, LORA_LAYER, "%s.%s", model, bias ? "bias" : "weight") <
                   LORA_LAYER &&
               !ckpt_param_find(c, parameter, &x);
    if (!rename_module(n, own, true, parameter, LORA_LAYER))
        snprintf(parameter, LORA_LAYER, "%s", own);
    return !bias && !ckpt_param_find(c, parameter, &x);
}

bool adapter_weight_name(const struct adapter_names *n, const char *name, int i, char *to,
                         size_t size)
{
    const char *own = adapter_layer_own(n, name);
    char other[LORA_LAYER];

    if (own != name && i-- == 0)
        return snprintf(to, size, "%s", own) < (int)size;
    if (!n->inside || i > 1)
        return false;
    if (!rename_module(n, own, false, other, sizeof other))
        snprintf(other, sizeof other, "%s", own);
    return snprintf(to, size, "%s%s", i ? COMFYUI : "", other) < (int)size;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* "0.attn1.to_q" of a block and 'A'. */
static bool original_name(const struct adapter_names *n, const char *layer, char which, char *to,
                          size_t size)
{
    char *inside;
    long block = strtol(layer, &inside, 10);

    for (int i = 0; i < n->twins && *inside == '.'; i++)
        if (!strcmp(inside + 1, n->twin[i].model))
            return snprintf(to, size, "%s%ld.%s.matrix_%c.%d", n->original, block,
                            n->twin[i].original, which, n->twin[i].number) < (int)size;
    return false;
}

/* LAYER.lora_down.weight of the own code's layer, flat or as it is, behind a prefix. */
static bool other_name(const struct adapter_names *n, const struct adapter_part_name *part,
                       const char *prefix, bool flat, char *to, size_t size)
{
    char layer[LORA_LAYER];

    if (!rename_module(n, part->layer, false, layer, sizeof layer))
        snprintf(layer, sizeof layer, "%s", part->layer);
    for (char *dot = layer; flat && (dot = strchr(dot, '.'));)
        *dot = '_';
    return part->part != LORA_MAGNITUDE &&
           snprintf(to, size, "%s%s.lora_%s.weight", prefix, layer,
                    part->part == LORA_A ? "down" : "up") < (int)size;
}

bool adapter_name(const struct adapter_names *n, enum adapter_format format, const char *name,
                  char *to, size_t size)
{
    const char *rest = after(name, n->prefix);
    struct adapter_part_name part;

    if (!rest)
        return false;
    rest = adapter_layer_own(n, rest);
    if (format == LORA_DIFFUSERS)
        return snprintf(to, size, DIFFUSERS "%s", rest) < (int)size;
    if (format == LORA_PEFT)
        return snprintf(to, size, PEFT "%s", rest) < (int)size;
    adapter_part_name(n, rest, &part);
    if (format == LORA_KOHYA)
        return other_name(n, &part, "lora_unet_", true, to, size);
    if (n->inside)
        return other_name(n, &part, "diffusion_model.", false, to, size);
    rest = n->blocks && part.part != LORA_MAGNITUDE ? after(part.layer, n->blocks) : NULL;
    return rest && original_name(n, rest, part.part == LORA_A ? 'A' : 'B', to, size);
}
