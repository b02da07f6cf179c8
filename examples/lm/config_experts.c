/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of experts: what the families differ in, and their part of config.json. */
#include <math.h>
#include <string.h>
#include "../common/json_make.h"
#include "../common/say.h"
#include "config_json.h"

/* ---- families ------------------------------------------------------------------------------ */

static const struct lm_mixture mixtures[LM_FAMILIES] = {
    [LM_QWEN3_MOE] = {.names = {"mlp", "gate", "gate_proj", "up_proj", "down_proj"},
                      .count = "num_experts",
                      .inner = "moe_intermediate_size",
                      .some = true,
                      .experts = {.count = 128, .chosen = 8, .inner = 768},
                      .balance = 0.001},
    [LM_GPT_OSS] = {.names = {"mlp", "router", NULL, NULL, NULL},
                    .count = "num_local_experts",
                    .inner = "intermediate_size",
                    .experts = {.count = 128,
                                .chosen = 4,
                                .late_softmax = true,
                                .bias = true,
                                .clamped = true,
                                .alpha = 1.702f,
                                .limit = 7},
                    .balance = 0.9}};

const struct lm_mixture *lm_mixture(const struct lm_config *c)
{
    return mixtures[c->family].count ? &mixtures[c->family] : NULL;
}

/* ---- presets ------------------------------------------------------------------------------- */

/* Published values, from each model's config.json. */
static const struct {
    const char *name;
    int64_t count, chosen, inner;
    bool normalized;
} presets[] = {{"tiny-qwen3-moe", 8, 2, 96, true},   {"tiny-gpt-oss", 8, 2, 96, false},
               {"qwen3-30B-A3B", 128, 8, 768, true}, {"qwen3-235B-A22B", 128, 8, 1536, true},
               {"gpt-oss-20b", 32, 4, 2880, false},  {"gpt-oss-120b", 128, 4, 2880, false}};

void lm_experts_preset(struct lm_config *c, const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(presets[i].name, name) != 0)
            continue;
        c->experts = lm_mixture(c)->experts;
        c->experts.count = presets[i].count;
        c->experts.chosen = presets[i].chosen;
        c->experts.inner = presets[i].inner;
        c->experts.normalized = presets[i].normalized;
        c->qkv_bias = c->out_bias = c->family == LM_GPT_OSS;
        for (int k = 0; k < LM_MOST_LAYERS; k++)
            c->layer[k] |= LM_LAYER_EXPERTS;
    }
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Layers of "mlp_only_layers" have no experts, nor have those but each "decoder_sparse_step"-th. */
static void read_layers(struct settings *s, struct lm_config *c)
{
    const json_t *list = settings_find(s, "mlp_only_layers"), *x;
    const int64_t step = settings_int(s, "decoder_sparse_step", 1);
    size_t i;

    for (int64_t k = 0; k < LM_MOST_LAYERS; k++)
        if ((k + 1) % step == 0)
            c->layer[k] |= LM_LAYER_EXPERTS;
    json_array_foreach(list, i, x)
    {
        const json_int_t k = json_is_integer(x) ? json_integer_value(x) : -1;
        if (k < 0)
            settings_refuse(s, "mlp_only_layers", "is not a list of numbers of layers");
        else if (k < LM_MOST_LAYERS)
            c->layer[k] &= (unsigned char)~LM_LAYER_EXPERTS;
    }
}

/* The class of gpt-oss has biases and YaRN where its file has no such keys. */
static void read_gpt_oss(struct settings *s, struct lm_config *c)
{
    if (!settings_find(s, "attention_bias"))
        c->qkv_bias = c->out_bias = true;
    if (!settings_find(s, "rope_scaling") && !settings_find(s, "rope_parameters"))
        settings_refuse(s, "rope_scaling", "is missing");
    c->experts.alpha = (float)settings_real(s, s->root, "swiglu_alpha", 1.702);
    c->experts.limit = (float)settings_real(s, s->root, "swiglu_limit", 7);
}

void lm_experts_read(struct settings *s, struct lm_config *c)
{
    const struct lm_mixture *f = lm_mixture(c);

    if (!f)
        return;
    c->experts = f->experts;
    c->experts.count = settings_int(s, "num_local_experts", f->experts.count);
    c->experts.count = settings_int(s, f->count, c->experts.count);
    c->experts.chosen = settings_int(s, "num_experts_per_tok", f->experts.chosen);
    c->experts.inner = settings_int(s, f->inner, f->experts.inner ? f->experts.inner : -1);
    c->experts.normalized = settings_flag(s, "norm_topk_prob", f->experts.normalized);
    if (settings_flag(s, "output_router_logits", false))
        c->balance = settings_real(s, s->root, "router_aux_loss_coef", f->balance);
    read_layers(s, c);
    if (c->family == LM_GPT_OSS)
        read_gpt_oss(s, c);
}

/* ---- writing ------------------------------------------------------------------------------- */

static void write_layers(const struct lm_config *c, struct lm_writing *o)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < c->layers; i++)
        if (!(c->layer[i] & LM_LAYER_EXPERTS))
            json_make_append(list, json_integer(i), &o->failed);
    lm_set_int(o, "decoder_sparse_step", 1);
    lm_set_value(o, "mlp_only_layers", list);
}

/* As they were read: 1.702 has no exact float. */
static void write_gpt_oss(const struct lm_config *c, struct lm_writing *o)
{
    lm_set_real(o, "swiglu_alpha", round((double)c->experts.alpha * 1e6) / 1e6);
    lm_set_real(o, "swiglu_limit", round((double)c->experts.limit * 1e6) / 1e6);
}

void lm_experts_write(const struct lm_config *c, struct lm_writing *o)
{
    const struct lm_mixture *f = lm_mixture(c);

    if (!f)
        return;
    lm_set_int(o, f->count, c->experts.count);
    lm_set_int(o, "num_experts_per_tok", c->experts.chosen);
    lm_set_int(o, f->inner, c->experts.inner);
    lm_set_value(o, "output_router_logits", json_boolean(c->balance > 0));
    lm_set_real(o, "router_aux_loss_coef", c->balance > 0 ? c->balance : f->balance);
    if (f->some)
        write_layers(c, o);
    if (c->family == LM_QWEN3_MOE)
        lm_set_value(o, "norm_topk_prob", json_boolean(c->experts.normalized));
    if (c->family == LM_GPT_OSS)
        write_gpt_oss(c, o);
}

/* ---- checks -------------------------------------------------------------------------------- */

int lm_experts_check(const struct lm_config *c, const char *where)
{
    if (!lm_mixture(c) || (c->experts.chosen >= 1 && c->experts.chosen <= c->experts.count))
        return 0;
    return say_fail("%s: a token cannot have %lld of %lld experts", where,
                    (long long)c->experts.chosen, (long long)c->experts.count);
}
