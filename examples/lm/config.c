/* SPDX-License-Identifier: Apache-2.0 */
/* config.json: see config.h. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "../common/json_make.h"
#include "../common/say.h"
#include "ckpt_tools.h"
#include "config_json.h"

/* ---- keys ---------------------------------------------------------------------------------- */

/* Rates of dropout are not used: these programs train without. */
const struct json_keys lm_common_keys[] = {
    JSON_READ("model_type vocab_size initializer_range bos_token_id eos_token_id pad_token_id"),
    JSON_UNUSED(SETTINGS_NOTES),
    JSON_UNUSED(SETTINGS_GENERATION),
    JSON_UNUSED("is_decoder"),
    JSON_ONLY("is_encoder_decoder add_cross_attention tie_encoder_decoder", "false"),
    JSON_READ_INSIDE("quantization_config", settings_scaled),
    JSON_ONLY("pruned_heads cross_attention_hidden_size", ""),
    JSON_END};

static const struct json_keys gpt2_keys[] = {
    JSON_MORE(lm_common_keys),
    JSON_READ("n_positions n_ctx n_embd n_layer n_head n_inner layer_norm_epsilon"),
    JSON_UNUSED("resid_pdrop embd_pdrop attn_pdrop reorder_and_upcast_attn summary_type "
                "summary_use_proj summary_activation summary_proj_to_labels "
                "summary_first_dropout"),
    JSON_ONLY("activation_function", "gelu_new|gelu_pytorch_tanh"),
    JSON_ONLY("tie_word_embeddings scale_attn_weights", "true"),
    JSON_ONLY("scale_attn_by_inverse_layer_idx", "false"),
    JSON_END};

/* Rates of dropout and the pooler of another model are not used. */
static const struct json_keys bert_keys[] = {
    JSON_ONLY("is_decoder", "false"),
    JSON_MORE(lm_common_keys),
    JSON_READ("max_position_embeddings hidden_size num_hidden_layers num_attention_heads "
              "intermediate_size layer_norm_eps"),
    JSON_UNUSED(
        "hidden_dropout_prob attention_probs_dropout_prob classifier_dropout directionality "
        "pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers "
        "pooler_size_per_head pooler_type"),
    JSON_ONLY("type_vocab_size", "2"),
    JSON_ONLY("hidden_act", "gelu"),
    JSON_ONLY("position_embedding_type", "absolute"),
    JSON_ONLY("tie_word_embeddings", "true"),
    JSON_END};

/* ---- reading ------------------------------------------------------------------------------- */

static int64_t get_token(const struct settings *s, const char *key)
{
    const json_t *v = settings_find(s, key);

    return json_is_integer(v) ? json_integer_value(v) : -1;
}

void lm_ids_read(struct settings *s, const char *key, struct lm_ids *ids)
{
    enum { MOST = sizeof ids->id / sizeof *ids->id };
    const json_t *v = settings_find(s, key);
    int n = json_is_array(v) ? (int)json_array_size(v) : v != NULL;

    *ids = (struct lm_ids){.n = 0};
    if (n > MOST)
        settings_refuse(s, key, "has %d tokens; %d are possible", n, MOST);
    for (int i = 0; i < n && !s->failed; i++) {
        const json_t *id = json_is_array(v) ? json_array_get(v, (size_t)i) : v;
        if (!json_is_integer(id))
            settings_refuse(s, key, "is neither a token's number nor a list of them");
        else if (json_integer_value(id) >= 0) /* -1 is written for none */
            ids->id[ids->n++] = json_integer_value(id);
    }
}

static void read_gpt2(struct settings *s, struct lm_config *c)
{
    c->positions = settings_int(s, settings_find(s, "n_positions") ? "n_positions" : "n_ctx", -1);
    c->width = settings_int(s, "n_embd", -1);
    c->layers = settings_layers(s, "n_layer", -1);
    c->heads = c->kv_heads = settings_int(s, "n_head", -1);
    c->mlp = settings_int(s, "n_inner", 4 * c->width);
    c->head = c->heads > 0 ? c->width / c->heads : 0;
    c->eps = settings_real(s, s->root, "layer_norm_epsilon", 1e-5);
    c->tied = true;
    settings_allow(s, gpt2_keys);
}

/* Whether the class has the head for pairs of texts. */
static bool has_pairs(const struct settings *s)
{
    const json_t *name;
    bool has = false;
    size_t i;

    json_array_foreach(settings_find(s, "architectures"), i, name)
    {
        const char *text = json_string_value(name);
        has |= text && !strcmp(text, "BertForPreTraining");
    }
    return has;
}

static void read_bert(struct settings *s, struct lm_config *c)
{
    c->positions = settings_int(s, "max_position_embeddings", 512);
    c->width = settings_int(s, "hidden_size", -1);
    c->layers = settings_layers(s, "num_hidden_layers", -1);
    c->heads = c->kv_heads = settings_int(s, "num_attention_heads", -1);
    c->head = c->heads > 0 ? c->width / c->heads : 0;
    c->mlp = settings_int(s, "intermediate_size", -1);
    c->eps = settings_real(s, s->root, "layer_norm_eps", 1e-12);
    c->pad = c->pad < 0 ? 0 : c->pad; /* as the class has it */
    c->tied = true;
    c->pairs = has_pairs(s);
    settings_allow(s, bert_keys);
}

static int find_family(const struct settings *s, enum lm_family *family)
{
    const char *type = json_string_value(settings_find(s, "model_type"));
    char all[256] = "";

    for (int i = 0; i < LM_FAMILIES; i++) {
        if (type && !strcmp(type, lm_traits_of((enum lm_family)i)->type)) {
            *family = (enum lm_family)i;
            return 0;
        }
        size_t at = strlen(all);
        snprintf(all + at, sizeof all - at, "%s%s",
                 i == LM_FAMILIES - 1 ? " and "
                 : i                  ? ", "
                                      : "",
                 lm_traits_of((enum lm_family)i)->type);
    }
    return say_fail("%s: \"model_type\" is %s%s%s; known are %s", s->path, type ? "\"" : "",
                    type ? type : "missing", type ? "\"" : "", all);
}

static int read_root(struct settings *s, struct lm_config *c)
{
    *c = (struct lm_config){.spread = 0.02};
    if (find_family(s, &c->family))
        return -1;
    c->vocabulary = settings_int(s, "vocab_size", -1);
    c->spread = settings_real(s, s->root, "initializer_range", 0.02);
    c->begin = get_token(s, "bos_token_id");
    c->pad = get_token(s, "pad_token_id");
    lm_ids_read(s, "eos_token_id", &c->end);
    (c->family == LM_GPT2 ? read_gpt2 : c->family == LM_BERT ? read_bert : lm_rotary_read)(s, c);
    return s->failed ? -1 : lm_config_check(c, s->path);
}

int lm_config_read(struct lm_config *c, const char *path)
{
    struct settings s;
    int rc = settings_open(&s, path) ? -1 : read_root(&s, c);

    settings_close(&s);
    return rc;
}

/* ---- writing ------------------------------------------------------------------------------- */

void lm_set_value(struct lm_writing *o, const char *key, json_t *value)
{
    json_make_set(o->root, key, value, &o->failed);
}

void lm_set_int(struct lm_writing *o, const char *key, int64_t value)
{
    lm_set_value(o, key, json_integer(value));
}

void lm_set_real(struct lm_writing *o, const char *key, double value)
{
    lm_set_value(o, key, json_real(value));
}

void lm_set_text(struct lm_writing *o, const char *key, const char *value)
{
    lm_set_value(o, key, json_string(value));
}

/* null where there is none: a missing key would have a class's own default. */
static void set_token(struct lm_writing *o, const char *key, int64_t id)
{
    lm_set_value(o, key, id < 0 ? json_null() : json_integer(id));
}

/* One token as itself, several as a list. */
static void write_ends(struct lm_writing *o, const struct lm_ids *ends)
{
    json_t *list = ends->n > 1 ? json_array() : NULL;

    for (int i = 0; i < ends->n && list; i++)
        o->failed |= json_array_append_new(list, json_integer(ends->id[i])) != 0;
    if (ends->n > 1)
        lm_set_value(o, "eos_token_id", list);
    else
        set_token(o, "eos_token_id", ends->n ? ends->id[0] : -1);
}

static void write_gpt2(const struct lm_config *c, struct lm_writing *o)
{
    lm_set_int(o, "n_positions", c->positions);
    lm_set_int(o, "n_embd", c->width);
    lm_set_int(o, "n_layer", c->layers);
    lm_set_int(o, "n_head", c->heads);
    lm_set_int(o, "n_inner", c->mlp);
    lm_set_text(o, "activation_function", "gelu_new");
    lm_set_real(o, "layer_norm_epsilon", c->eps);
    for (int i = 0; i < 3; i++) /* this program uses no dropout */
        lm_set_value(o, (const char *[]){"attn_pdrop", "embd_pdrop", "resid_pdrop"}[i],
                     json_real(0));
}

static void write_bert(const struct lm_config *c, struct lm_writing *o)
{
    lm_set_int(o, "max_position_embeddings", c->positions);
    lm_set_int(o, "hidden_size", c->width);
    lm_set_int(o, "num_hidden_layers", c->layers);
    lm_set_int(o, "num_attention_heads", c->heads);
    lm_set_int(o, "intermediate_size", c->mlp);
    lm_set_int(o, "type_vocab_size", 2);
    lm_set_text(o, "hidden_act", "gelu");
    lm_set_text(o, "position_embedding_type", "absolute");
    lm_set_real(o, "layer_norm_eps", c->eps);
    lm_set_real(o, "hidden_dropout_prob", 0); /* this program uses no dropout */
    lm_set_real(o, "attention_probs_dropout_prob", 0);
}

int lm_config_write(const struct lm_config *c, const char *path)
{
    struct ckpt_replacement *file;
    struct lm_writing w = {.root = json_object()}, *o = &w;

    lm_set_text(o, "model_type", lm_traits(c)->type);
    lm_set_value(o, "architectures",
                 json_pack("[s]", c->pairs ? "BertForPreTraining" : lm_traits(c)->architecture));
    lm_set_int(o, "vocab_size", c->vocabulary);
    lm_set_value(o, "tie_word_embeddings", json_boolean(c->tied));
    lm_set_real(o, "initializer_range", c->spread);
    lm_set_text(o, "torch_dtype", "float32");
    set_token(o, "bos_token_id", c->begin);
    set_token(o, "pad_token_id", c->pad);
    write_ends(o, &c->end);
    (c->family == LM_GPT2 ? write_gpt2 : c->family == LM_BERT ? write_bert : lm_rotary_write)(c, o);
    int rc = w.failed ? say_fail("%s: no memory to write it", path) : 0;
    if (!rc && ckpt_replace_open(&file, path))
        rc = say_fail("%s", ckpt_error(NULL));
    else if (!rc && json_dumpf(w.root, ckpt_replace_stream(file), JSON_INDENT(2))) {
        ckpt_replace_abandon(file);
        rc = say_fail("%s: cannot be written", path);
    } else if (!rc && ckpt_replace_commit(file, true)) {
        rc = say_fail("%s", ckpt_error(NULL));
    }
    json_decref(w.root);
    return rc;
}
