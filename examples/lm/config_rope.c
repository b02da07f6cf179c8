/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rotary embedding in config.json.  transformers up to 4 has "rope_theta" beside the other
 * settings, and "rope_scaling" with the kind; from 5 on "rope_parameters" has both, in Gemma 3 an
 * object for each type of layers.  Both are read, and what is written both versions read.
 */
#include <math.h>
#include <string.h>
#include "../common/json_make.h"
#include "config_json.h"

static const char *const kinds[LM_ROPE_KINDS] = {"default", "linear", "dynamic",
                                                 "llama3",  "yarn",   "longrope"};

#define KINDS "default|linear|dynamic|llama3|yarn|longrope|su"

/* dynamic: a longer text than "max_position_embeddings" is refused, so nothing else is read. */
#define ROPE_KEYS                                                                                  \
    JSON_READ("rope_theta factor low_freq_factor high_freq_factor partial_rotary_factor "          \
              "original_max_position_embeddings attention_factor beta_fast beta_slow mscale "      \
              "mscale_all_dim truncate short_factor long_factor"),                                 \
        JSON_UNUSED("finetuned"), JSON_ONLY("rope_type type", KINDS)

static const struct json_keys one_kind[] = {ROPE_KEYS, JSON_END};

const struct json_keys lm_rope_keys[] = {
    JSON_READ_INSIDE("full_attention sliding_attention", one_kind), ROPE_KEYS, JSON_END};

/* ---- reading ------------------------------------------------------------------------------- */

static enum lm_rope_kind kind_of(const struct settings *s, const json_t *r)
{
    const char *type = json_string_value(json_object_get(r, "rope_type"));
    const char *model = json_string_value(settings_find(s, "model_type"));

    if (!type)
        type = json_string_value(json_object_get(r, "type"));
    if (!type)
        return LM_ROPE_DEFAULT;
    /* Phi-3 was published with older names of the same scaling */
    if (!strcmp(type, "su") || (!strcmp(type, "yarn") && model && !strcmp(model, "phi3")))
        return LM_ROPE_LONG;
    for (int i = 0; i < LM_ROPE_KINDS; i++)
        if (!strcmp(type, kinds[i]))
            return (enum lm_rope_kind)i;
    return LM_ROPE_DEFAULT; /* lm_rope_keys refuses others */
}

/* One factor for each pair of a head. */
static void read_factors(struct settings *s, const json_t *r, const char *key, int64_t pairs,
                         double factor[LM_ROPE_PAIRS])
{
    const json_t *list = json_object_get(r, key), *x;
    size_t i;

    if (pairs > LM_ROPE_PAIRS || json_array_size(list) != (size_t)pairs) {
        settings_refuse(s, key, "has %zu factors, and a head has %lld pairs", json_array_size(list),
                        (long long)pairs);
        return;
    }
    json_array_foreach(list, i, x)
    {
        factor[i] = json_number_value(x);
        if (!(factor[i] > 0))
            settings_refuse(s, key, "is not a list of positive numbers");
    }
}

static int64_t read_length(struct settings *s, const json_t *r, int64_t fallback)
{
    static const char key[] = "original_max_position_embeddings";
    double length = settings_real(s, r, key, settings_real(s, s->root, key, (double)fallback));

    if (length > 1 << 24)
        settings_refuse(s, key, "is above %d", 1 << 24);
    return length > 1 << 24 ? 1 : (int64_t)length;
}

static double yarn_mscale(double factor, double mscale)
{
    return factor > 1 ? 0.1 * mscale * log(factor) + 1 : 1;
}

static void read_yarn(struct settings *s, const json_t *r, struct lm_rope *to)
{
    double one = settings_real(s, r, "mscale", 0), all = settings_real(s, r, "mscale_all_dim", 0);
    const json_t *truncate = json_object_get(r, "truncate");

    to->low = settings_real(s, r, "beta_slow", 1);
    to->high = settings_real(s, r, "beta_fast", 32);
    to->truncate = !json_is_false(truncate);
    to->attention = one > 0 && all > 0 ? yarn_mscale(to->factor, one) / yarn_mscale(to->factor, all)
                                       : yarn_mscale(to->factor, 1);
    to->attention = settings_real(s, r, "attention_factor", to->attention);
}

static void read_long(struct settings *s, const json_t *r, int64_t pairs, struct lm_rope *to)
{
    double attention = to->factor > 1 ? sqrt(1 + log(to->factor) / log((double)to->length)) : 1;

    to->pairs = pairs;
    read_factors(s, r, "short_factor", pairs, to->each[0]);
    read_factors(s, r, "long_factor", pairs, to->each[1]);
    to->attention = settings_real(s, r, "attention_factor", attention);
}

/* One kind of layers; r: its object or NULL. */
static void read_one(struct settings *s, const struct lm_config *c, const json_t *r, double theta,
                     struct lm_rope *to)
{
    const double positions = (double)c->positions;

    *to = (struct lm_rope){.kind = kind_of(s, r), .attention = 1};
    to->theta = settings_real(s, r, "rope_theta", theta);
    if (to->kind == LM_ROPE_DEFAULT)
        return;
    to->length = read_length(s, r, c->positions);
    to->factor = settings_real(s, r, "factor",
                               to->kind == LM_ROPE_LLAMA3 ? 8 : positions / (double)to->length);
    to->low = settings_real(s, r, "low_freq_factor", 1);
    to->high = settings_real(s, r, "high_freq_factor", 4);
    if (to->kind == LM_ROPE_YARN)
        read_yarn(s, r, to);
    if (to->kind == LM_ROPE_LONG)
        read_long(s, r, lm_turned(c) / 2, to);
}

void lm_rope_read(struct settings *s, struct lm_config *c)
{
    const struct lm_traits *f = lm_traits(c);
    const json_t *scaling = settings_find(s, "rope_scaling"),
                 *r = settings_find(s, "rope_parameters");
    const bool full = json_object_get(r, "full_attention") != NULL,
               local = json_object_get(r, "sliding_attention") != NULL;
    const json_t *all = full ? json_object_get(r, "full_attention") : scaling ? scaling : r;

    c->share = settings_real(s, all, "partial_rotary_factor",
                             settings_real(s, s->root, "partial_rotary_factor", 1));
    if (c->share > 1)
        settings_refuse(s, "partial_rotary_factor", "is above 1");
    if ((full || local) && f->local_theta <= 0)
        settings_refuse(s, "rope_parameters",
                        "has a rotary embedding for each type of layers; "
                        "%s has one for all",
                        f->title);
    read_one(s, c, all, settings_real(s, s->root, "rope_theta", f->theta), &c->rope[0]);
    if (f->local_theta > 0)
        read_one(s, c, json_object_get(r, "sliding_attention"),
                 settings_real(s, s->root, "rope_local_base_freq", f->local_theta), &c->rope[1]);
    if (c->rope[1].kind != LM_ROPE_DEFAULT)
        settings_refuse(s, "rope_parameters",
                        "scales the rotary embedding of layers with a "
                        "window, which is not supported");
}

/* ---- writing ------------------------------------------------------------------------------- */

static void write_factors(struct lm_writing *o, const char *key, const double *factor,
                          int64_t pairs)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < pairs; i++)
        json_make_append(list, json_real(factor[i]), &o->failed);
    lm_set_value(o, key, list);
}

static void write_scaling(const struct lm_config *c, struct lm_writing *o)
{
    const struct lm_rope *r = &c->rope[0];

    lm_set_text(o, "rope_type", kinds[r->kind]);
    lm_set_real(o, "factor", r->factor);
    if (r->kind == LM_ROPE_LLAMA3) {
        lm_set_real(o, "low_freq_factor", r->low);
        lm_set_real(o, "high_freq_factor", r->high);
    } else if (r->kind == LM_ROPE_YARN) {
        lm_set_real(o, "beta_slow", r->low);
        lm_set_real(o, "beta_fast", r->high);
        lm_set_value(o, "truncate", json_boolean(r->truncate));
    } else if (r->kind == LM_ROPE_LONG) {
        write_factors(o, "short_factor", r->each[0], r->pairs);
        write_factors(o, "long_factor", r->each[1], r->pairs);
    }
    if (r->kind == LM_ROPE_YARN || r->kind == LM_ROPE_LONG)
        lm_set_real(o, "attention_factor", r->attention);
    if (r->kind != LM_ROPE_LINEAR && r->kind != LM_ROPE_DYNAMIC)
        lm_set_int(o, "original_max_position_embeddings", r->length);
}

void lm_rope_write(const struct lm_config *c, struct lm_writing *o)
{
    const struct lm_rope *r = &c->rope[0];
    struct lm_writing scaling = {.root = json_object()};

    lm_set_real(o, "rope_theta", r->theta);
    if (c->rope[1].theta > 0)
        lm_set_real(o, "rope_local_base_freq", c->rope[1].theta);
    if (c->share < 1)
        lm_set_real(o, "partial_rotary_factor", c->share);
    if (r->kind == LM_ROPE_LONG) /* the class of Phi-3 has it beside the others */
        lm_set_int(o, "original_max_position_embeddings", r->length);
    if (r->kind == LM_ROPE_DEFAULT) {
        json_decref(scaling.root);
        return;
    }
    write_scaling(c, &scaling);
    o->failed |= scaling.failed;
    lm_set_value(o, "rope_scaling", scaling.root);
}
