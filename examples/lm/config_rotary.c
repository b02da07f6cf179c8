/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of the families with rotary positions: sizes, biases, caps and the activation. */
#include <math.h>
#include <string.h>
#include "ckpt.h"
#include "config_json.h"

/* ---- keys ---------------------------------------------------------------------------------- */

#define ACTIVATIONS "silu|swish|gelu|gelu_new|gelu_pytorch_tanh|relu"

static const struct json_keys rotary_keys[] = {
    JSON_MORE(lm_common_keys),
    JSON_READ("max_position_embeddings hidden_size num_hidden_layers num_attention_heads "
              "num_key_value_heads head_dim intermediate_size rms_norm_eps tie_word_embeddings "
              "rope_theta partial_rotary_factor"),
    JSON_READ_INSIDE("rope_scaling rope_parameters", lm_rope_keys),
    JSON_UNUSED("attention_dropout pretraining_tp cache_implementation"),
    JSON_ONLY("rope_interleaved use_mrope", "false"),
    JSON_END};

#define SILU_FAMILY JSON_ONLY("hidden_act", ACTIVATIONS)
#define NO_WINDOWS                                                                                 \
    JSON_ONLY("layer_types", "full_attention"), JSON_ONLY("use_sliding_window", "false"),          \
        JSON_ONLY("sliding_window", "")
#define WINDOWS                                                                                    \
    JSON_READ("sliding_window use_sliding_window"),                                                \
        JSON_ONLY("layer_types", "full_attention|sliding_attention")

static const struct json_keys llama_keys[] = {JSON_MORE(rotary_keys),
                                              JSON_UNUSED("is_llama_config"),
                                              SILU_FAMILY,
                                              NO_WINDOWS,
                                              JSON_READ("attention_bias mlp_bias"),
                                              JSON_END};

static const struct json_keys mistral_keys[] = {JSON_MORE(rotary_keys),
                                                SILU_FAMILY,
                                                JSON_READ("sliding_window"),
                                                JSON_ONLY("layer_types", "full_attention|"
                                                                         "sliding_attention"),
                                                JSON_ONLY("attention_bias mlp_bias", "false"),
                                                JSON_END};

static const struct json_keys qwen2_keys[] = {JSON_MORE(rotary_keys),
                                              SILU_FAMILY,
                                              WINDOWS,
                                              JSON_READ("max_window_layers"),
                                              JSON_ONLY("attention_bias", "true"),
                                              JSON_ONLY("mlp_bias", "false"),
                                              JSON_END};

static const struct json_keys qwen3_keys[] = {JSON_MORE(rotary_keys),
                                              SILU_FAMILY,
                                              WINDOWS,
                                              JSON_READ("max_window_layers attention_bias"),
                                              JSON_ONLY("mlp_bias", "false"),
                                              JSON_END};

/* "hidden_act" is a relic of Gemma 1, and the classes read "hidden_activation". */
static const struct json_keys gemma_keys[] = {
    JSON_MORE(rotary_keys),
    JSON_ONLY("hidden_activation", ACTIVATIONS),
    JSON_UNUSED("hidden_act"),
    WINDOWS,
    JSON_READ("attention_bias query_pre_attn_scalar attn_logit_softcapping "
              "final_logit_softcapping rope_local_base_freq sliding_window_pattern"),
    JSON_ONLY("use_bidirectional_attention mlp_bias", "false"),
    JSON_END};

static const struct json_keys phi3_keys[] = {
    JSON_MORE(rotary_keys),
    SILU_FAMILY,
    JSON_READ("sliding_window "
              "original_max_position_embeddings"),
    JSON_UNUSED("resid_pdrop embd_pdrop"),
    JSON_ONLY("layer_types", "full_attention|"
                             "sliding_attention"),
    JSON_ONLY("attention_bias mlp_bias lm_head_bias", "false"),
    JSON_END};

static const struct json_keys olmo2_keys[] = {
    JSON_MORE(rotary_keys),         SILU_FAMILY, NO_WINDOWS, JSON_READ("attention_bias"),
    JSON_ONLY("mlp_bias", "false"), JSON_END};

static const struct json_keys smollm3_keys[] = {
    JSON_MORE(rotary_keys),
    SILU_FAMILY,
    WINDOWS,
    JSON_UNUSED("max_window_layers"),
    JSON_READ("attention_bias mlp_bias no_rope_layers no_rope_layer_interval"),
    JSON_END};

#define EXPERTS                                                                                    \
    JSON_READ("num_experts num_local_experts num_experts_per_tok output_router_logits "            \
              "router_aux_loss_coef")

static const struct json_keys qwen3_moe_keys[] = {
    JSON_MORE(rotary_keys),
    SILU_FAMILY,
    NO_WINDOWS,
    EXPERTS,
    JSON_UNUSED("max_window_layers"),
    JSON_READ("attention_bias moe_intermediate_size norm_topk_prob decoder_sparse_step "
              "mlp_only_layers"),
    JSON_ONLY("mlp_bias", "false"),
    JSON_END};

/* Experts in codes, which loading unpacks. */
static const struct json_keys mxfp4[] = {
    JSON_ONLY("quant_method", "mxfp4"), JSON_UNUSED("modules_to_not_convert dequantize"), JSON_END};

/* "hidden_act" is not read: the class has its own activation. */
static const struct json_keys gpt_oss_keys[] = {
    JSON_READ_INSIDE("quantization_config", mxfp4),
    JSON_MORE(rotary_keys),
    WINDOWS,
    EXPERTS,
    JSON_UNUSED("hidden_act"),
    JSON_UNUSED("experts_per_token initial_context_length"),
    JSON_READ("attention_bias swiglu_alpha swiglu_limit sliding_window_pattern"),
    JSON_END};

static const struct json_keys *const keys[LM_FAMILIES] = {
    [LM_QWEN3_MOE] = qwen3_moe_keys, [LM_GPT_OSS] = gpt_oss_keys, [LM_LLAMA] = llama_keys,
    [LM_QWEN2] = qwen2_keys,         [LM_MISTRAL] = mistral_keys, [LM_QWEN3] = qwen3_keys,
    [LM_GEMMA2] = gemma_keys,        [LM_GEMMA3] = gemma_keys,    [LM_PHI3] = phi3_keys,
    [LM_OLMO2] = olmo2_keys,         [LM_SMOLLM3] = smollm3_keys,
};

/* ---- activations --------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum ckpt_nn_activation kind;
} activations[] = {{"silu", CKPT_NN_SILU},
                   {"swish", CKPT_NN_SILU},
                   {"gelu_pytorch_tanh", CKPT_NN_GELU_TANH},
                   {"gelu_new", CKPT_NN_GELU_TANH},
                   {"gelu", CKPT_NN_GELU_ERF},
                   {"relu", CKPT_NN_RELU}};

enum { ACTIVATION_COUNT = sizeof activations / sizeof *activations };

static const char *activation_key(const struct lm_config *c)
{
    return c->family == LM_GEMMA2 || c->family == LM_GEMMA3 ? "hidden_activation" : "hidden_act";
}

static int read_activation(const struct settings *s, const struct lm_config *c)
{
    const char *name = json_string_value(settings_find(s, activation_key(c)));

    for (int i = 0; i < ACTIVATION_COUNT && name; i++)
        if (!strcmp(name, activations[i].name))
            return (int)activations[i].kind;
    return lm_traits(c)->activation; /* the table of keys refuses others */
}

static const char *activation_name(const struct lm_config *c)
{
    int i = 0;

    while (i < ACTIVATION_COUNT - 1 && (int)activations[i].kind != c->activation)
        i++;
    return activations[i].name;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* A missing key means what the class has; null: no cap. */
static double read_cap(struct settings *s, const char *key, double missing)
{
    return settings_real(s, s->root, key, json_object_get(s->root, key) ? 0 : missing);
}

/* Where the file says nothing, some classes have as many heads of keys as of queries. */
static int64_t read_kv_heads(struct settings *s, const struct lm_config *c)
{
    static const char key[] = "num_key_value_heads";
    bool none = json_is_null(json_object_get(s->root, key));

    return settings_int(s, key, none || !lm_traits(c)->grouped ? c->heads : -1);
}

static void read_sizes(struct settings *s, struct lm_config *c)
{
    const struct lm_traits *f = lm_traits(c);

    c->positions = settings_int(s, "max_position_embeddings", -1);
    c->width = settings_int(s, "hidden_size", -1);
    c->layers = settings_layers(s, "num_hidden_layers", -1);
    c->heads = settings_int(s, "num_attention_heads", -1);
    c->kv_heads = read_kv_heads(s, c);
    c->head = settings_int(s, "head_dim",
                           f->head_width  ? f->head_width
                           : c->heads > 0 ? c->width / c->heads
                                          : 0);
    c->mlp = settings_int(s, "intermediate_size", -1);
    c->eps = settings_real(s, s->root, "rms_norm_eps", f->eps);
    c->tied = settings_flag(s, "tie_word_embeddings", f->tied);
}

void lm_rotary_read(struct settings *s, struct lm_config *c)
{
    const struct lm_traits *f = lm_traits(c);

    read_sizes(s, c);
    settings_allow(s, keys[c->family]);
    if (s->failed)
        return;
    c->activation = read_activation(s, c);
    c->qkv_bias = f->qkv_bias || settings_flag(s, "attention_bias", false);
    c->out_bias = !f->qkv_bias && c->qkv_bias;
    c->mlp_bias = settings_flag(s, "mlp_bias", false);
    if (f->scalar > 0) {
        c->scale = 1 / sqrt(settings_real(s, s->root, "query_pre_attn_scalar", f->scalar));
        c->cap = read_cap(s, "attn_logit_softcapping", f->cap);
        c->last_cap = read_cap(s, "final_logit_softcapping", f->last_cap);
    }
    lm_layers_read(s, c);
    lm_rope_read(s, c);
    lm_experts_read(s, c);
}

/* ---- writing ------------------------------------------------------------------------------- */

static void write_gemma(const struct lm_config *c, struct lm_writing *o)
{
    double scalar = 1 / (c->scale * c->scale);

    /* a whole number, as the class has it, where it is one but for rounding */
    if (fabs(scalar - round(scalar)) < 1e-9 * scalar)
        lm_set_int(o, "query_pre_attn_scalar", (int64_t)round(scalar));
    else
        lm_set_real(o, "query_pre_attn_scalar", scalar);
    lm_set_value(o, "attn_logit_softcapping", c->cap > 0 ? json_real(c->cap) : json_null());
    lm_set_value(o, "final_logit_softcapping",
                 c->last_cap > 0 ? json_real(c->last_cap) : json_null());
}

void lm_rotary_write(const struct lm_config *c, struct lm_writing *o)
{
    const struct lm_traits *f = lm_traits(c);

    lm_set_int(o, "max_position_embeddings", c->positions);
    lm_set_int(o, "hidden_size", c->width);
    lm_set_int(o, "num_hidden_layers", c->layers);
    lm_set_int(o, "num_attention_heads", c->heads);
    lm_set_int(o, "num_key_value_heads", c->kv_heads);
    lm_set_int(o, "head_dim", c->head);
    lm_set_int(o, "intermediate_size", c->mlp);
    lm_set_text(o, activation_key(c), activation_name(c));
    lm_set_real(o, "rms_norm_eps", c->eps);
    if (!f->qkv_bias)
        lm_set_value(o, "attention_bias", json_boolean(c->qkv_bias));
    if (c->mlp_bias)
        lm_set_value(o, "mlp_bias", json_true());
    if (f->scalar > 0)
        write_gemma(c, o);
    lm_layers_write(c, o);
    lm_rope_write(c, o);
    lm_experts_write(c, o);
}
