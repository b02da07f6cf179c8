/* SPDX-License-Identifier: Apache-2.0 */
/* Names of adapters in files: see lora.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lora.h"

#define DIFFUSERS "transformer."
#define PEFT      "base_model.model."
#define ORIGINAL  "model.diffusion_model.transformer.layers."
#define BLOCKS    "transformer_blocks."

/* ---- tensors -------------------------------------------------------------------------------- */

static const struct {
    const char *end;
    enum lora_part part;
} ends[] = {
    {".lora_A.weight", LORA_A},  {".lora_B.weight", LORA_B},    {".lora_down.weight", LORA_A},
    {".lora_up.weight", LORA_B}, {".lora.down.weight", LORA_A}, {".lora.up.weight", LORA_B},
    {".alpha", LORA_ALPHA},
};

static bool copy(char *to, size_t size, const char *from, size_t n)
{
    if (n >= size)
        return false;
    memcpy(to, from, n);
    to[n] = 0;
    return true;
}

static bool has_end(const char *name, struct lora_part_name *to)
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
static bool has_adapter(const char *name, struct lora_part_name *to)
{
    const char *a = strstr(name, ".lora_A."), *b = strstr(name, ".lora_B.");
    const char *at = a ? a : b, *adapter = at ? at + strlen(".lora_A.") : "";
    size_t n = strcspn(adapter, ".");

    to->part = a ? LORA_A : LORA_B;
    return at && !strcmp(adapter + n, ".weight") &&
           copy(to->adapter, sizeof to->adapter, adapter, n) &&
           copy(to->layer, sizeof to->layer, name, (size_t)(at - name));
}

/* Layers of a block whose adapters the original code trains; its product of queries, keys and
 * values has three adapters. */
static const struct {
    const char *original;
    int number;
    const char *model;
} twins[] = {
    {"attention.query_key_value", 0, "attn1.to_q"},
    {"attention.query_key_value", 1, "attn1.to_k"},
    {"attention.query_key_value", 2, "attn1.to_v"},
    {"attention.dense", 0, "attn1.to_out.0"},
};

/* [...]layers.0.attention.dense.matrix_A.0 */
static bool is_original(const char *name, struct lora_part_name *to)
{
    const char *at = strstr(name, "layers."), *a = strstr(name, ".matrix_A.");
    const char *end = a ? a : strstr(name, ".matrix_B.");
    char *inside, *after;

    if (!at || !end || end < at)
        return false;
    long block = strtol(at + strlen("layers."), &inside, 10);
    long number = strtol(end + strlen(".matrix_A."), &after, 10);
    for (size_t i = 0; i < sizeof twins / sizeof *twins && *inside == '.' && !*after; i++)
        if (twins[i].number == number && strlen(twins[i].original) == (size_t)(end - inside - 1) &&
            !strncmp(inside + 1, twins[i].original, strlen(twins[i].original))) {
            snprintf(to->layer, sizeof to->layer, BLOCKS "%ld.%s", block, twins[i].model);
            to->part = a ? LORA_A : LORA_B;
            to->original = true;
            return true;
        }
    return false;
}

void lora_part_name(const char *name, struct lora_part_name *to)
{
    *to = (struct lora_part_name){.part = LORA_OTHER};
    if (!has_end(name, to) && !is_original(name, to) && !has_adapter(name, to))
        *to = (struct lora_part_name){.part = LORA_OTHER};
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

/* kohya's names have _ for the dots of the model's; those of VideoX-Fun have two behind the
 * prefix. */
static bool find_flat(ckpt *c, const char *flat, char model[LORA_LAYER])
{
    for (int i = 0; i < ckpt_param_count(c); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        size_t n = strlen(flat), k = 0;
        ckpt_param_info(c, ckpt_param_at(c, i), &info);
        while (k < n && (info.name[k] == flat[k] || (info.name[k] == '.' && flat[k] == '_')))
            k++;
        if (k == n && !strcmp(info.name + n, ".weight"))
            return copy(model, LORA_LAYER, info.name, n);
    }
    return false;
}

const char *lora_layer_strip(const char *layer)
{
    static const char *const prefixes[] = {PEFT, "model.diffusion_model.", "diffusion_model.",
                                           "module.", DIFFUSERS};
    const char *rest;

    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if ((rest = after(layer, prefixes[i])))
            layer = rest;
    return layer;
}

bool lora_layer_find(ckpt *c, const char *layer, char model[LORA_LAYER])
{
    static const char *const flat[] = {"lora_unet__", "lora_transformer_", "lora_unet_"};
    const char *own = lora_layer_strip(layer), *rest;

    for (size_t i = 0; i < sizeof flat / sizeof *flat; i++)
        if ((rest = after(layer, flat[i])))
            return find_flat(c, rest, model);
    return is_layer(c, own) && copy(model, LORA_LAYER, own, strlen(own));
}

/* ---- writing -------------------------------------------------------------------------------- */

/* "0.attn1.to_q" of a block and 'A'. */
static bool original_name(const char *layer, char which, char *to, size_t size)
{
    char *inside;
    long block = strtol(layer, &inside, 10);

    for (size_t i = 0; i < sizeof twins / sizeof *twins && *inside == '.'; i++)
        if (!strcmp(inside + 1, twins[i].model))
            return snprintf(to, size, ORIGINAL "%ld.%s.matrix_%c.%d", block, twins[i].original,
                            which, twins[i].number) < (int)size;
    return false;
}

bool video_lora_name(enum video_lora_format format, const char *name, char *to, size_t size)
{
    const char *rest = after(name, DIFFUSERS);
    struct lora_part_name part;

    if (!rest || format == LORA_DIFFUSERS)
        return rest && snprintf(to, size, "%s", name) < (int)size;
    if (format == LORA_PEFT)
        return snprintf(to, size, PEFT "%s", rest) < (int)size;
    lora_part_name(rest, &part);
    rest = after(part.layer, BLOCKS);
    return rest && original_name(rest, part.part == LORA_A ? 'A' : 'B', to, size);
}
