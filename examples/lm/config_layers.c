/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which layers have a window of attention, and which have no rotary embedding.  config.json lists
 * them ("layer_types", "no_rope_layers"), or its class has a rule (enum lm_windows).  A window of
 * 4096 tokens is the token itself and the 4095 before it.
 */
#include <string.h>
#include "../common/json_make.h"
#include "config_json.h"

/* ---- reading ------------------------------------------------------------------------------- */

/* The window of the layers that have one; 0: there is none. */
static int64_t read_window(struct settings *s, const struct lm_traits *f)
{
    const bool switched = f->windows == LM_WINDOWS_FROM || f->windows == LM_WINDOWS_UNTURNED;

    if (f->windows == LM_WINDOWS_NONE ||
        (switched && !settings_flag(s, "use_sliding_window", false)) ||
        json_is_null(json_object_get(s->root, "sliding_window")))
        return 0;
    return settings_int(s, "sliding_window", f->window);
}

/* Layers without a rotary embedding: each `interval`-th, or as the list says, where 0 is none. */
static void read_unturned(struct settings *s, struct lm_config *c)
{
    const json_t *list = settings_find(s, "no_rope_layers"), *x;
    int64_t interval = settings_int(s, "no_rope_layer_interval", 4);
    size_t i;

    for (int64_t k = 0; k < LM_MOST_LAYERS; k++)
        if ((k + 1) % interval == 0)
            c->layer[k] |= LM_LAYER_UNTURNED;
    if (list && json_array_size(list) < (size_t)c->layers)
        settings_refuse(s, "no_rope_layers", "has %zu values for %lld layers",
                        json_array_size(list), (long long)c->layers);
    json_array_foreach(list, i, x)
    {
        if (i >= LM_MOST_LAYERS)
            break;
        c->layer[i] = json_integer_value(x) ? 0 : LM_LAYER_UNTURNED;
    }
}

static void read_types(struct settings *s, struct lm_config *c)
{
    const json_t *list = settings_find(s, "layer_types"), *x;
    size_t i;

    if (list && json_array_size(list) < (size_t)c->layers)
        settings_refuse(s, "layer_types", "has %zu values for %lld layers", json_array_size(list),
                        (long long)c->layers);
    json_array_foreach(list, i, x)
    {
        const char *type = json_string_value(x);
        bool window = type && !strcmp(type, "sliding_attention");
        if (i >= LM_MOST_LAYERS)
            break;
        if (!window && c->window && lm_traits(c)->windows == LM_WINDOWS_ALL)
            settings_refuse(s, "layer_types", "has a layer without a window, and all layers of %s "
                                              "have \"sliding_window\"",
                            lm_traits(c)->title);
        c->layer[i] &= (unsigned char)~LM_LAYER_WINDOW;
        c->layer[i] |= window ? LM_LAYER_WINDOW : 0;
        if (window && !c->window)
            settings_refuse(s, "layer_types",
                            "has layers with a window, and \"sliding_window\" "
                            "is none");
    }
}

void lm_layers_read(struct settings *s, struct lm_config *c)
{
    const struct lm_traits *f = lm_traits(c);
    const json_t *from = settings_find(s, "max_window_layers");
    int64_t period = f->period;

    if (settings_find(s, "_sliding_window_pattern")) /* as transformers 5 writes it */
        period = settings_int(s, "_sliding_window_pattern", -1);
    if (settings_find(s, "sliding_window_pattern"))
        period = settings_int(s, "sliding_window_pattern", -1);
    c->window = read_window(s, f);
    if (f->windows == LM_WINDOWS_UNTURNED)
        read_unturned(s, c);
    lm_layers_fill(c, json_is_integer(from) ? json_integer_value(from) : 28, period);
    read_types(s, c);
}

/* ---- writing ------------------------------------------------------------------------------- */

static void write_types(const struct lm_config *c, struct lm_writing *o)
{
    json_t *types = json_array();

    for (int64_t i = 0; i < c->layers; i++)
        json_make_append(
            types,
            json_string(c->layer[i] & LM_LAYER_WINDOW ? "sliding_attention" : "full_attention"),
            &o->failed);
    lm_set_value(o, "layer_types", types);
}

static void write_unturned(const struct lm_config *c, struct lm_writing *o)
{
    json_t *turned = json_array();

    for (int64_t i = 0; i < c->layers; i++)
        json_make_append(turned, json_integer(!(c->layer[i] & LM_LAYER_UNTURNED)), &o->failed);
    lm_set_value(o, "no_rope_layers", turned);
}

/* The first layer that has the flag (or has it not); the number of layers if there is none. */
static int64_t first_layer(const struct lm_config *c, bool window)
{
    int64_t i = 0;

    while (i < c->layers && !(c->layer[i] & LM_LAYER_WINDOW) == window)
        i++;
    return i;
}

/* Older versions of transformers read the rule, newer ones the list. */
void lm_layers_write(const struct lm_config *c, struct lm_writing *o)
{
    const enum lm_windows windows = lm_traits(c)->windows;

    if (windows == LM_WINDOWS_NONE)
        return;
    lm_set_value(o, "sliding_window", c->window ? json_integer(c->window) : json_null());
    if (windows == LM_WINDOWS_ALL)
        return;
    write_types(c, o);
    if (windows == LM_WINDOWS_PERIOD) {
        lm_set_int(o, "sliding_window_pattern", first_layer(c, false) + 1);
        return;
    }
    lm_set_value(o, "use_sliding_window", json_boolean(c->window > 0));
    if (windows == LM_WINDOWS_FROM)
        lm_set_int(o, "max_window_layers", first_layer(c, true));
    else
        write_unturned(c, o);
}
