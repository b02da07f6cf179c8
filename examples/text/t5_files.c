/* SPDX-License-Identifier: Apache-2.0 */
/* Reads T5 and UMT5 from Hugging Face's files: config.json and weights. */
#include <string.h>
#include "../common/names.h"
#include "../common/say.h"
#include "../common/settings.h"
#include "ckpt_files.h"
#include "t5.h"

/* ---- config.json --------------------------------------------------------------------------- */

/* The encoder's part is read; training, the decoder and generation are of no use here. */
static const struct json_keys keys[] = {
    JSON_READ("model_type vocab_size d_model d_kv num_heads d_ff num_layers layer_norm_epsilon "
              "relative_attention_num_buckets relative_attention_max_distance"),
    JSON_UNUSED(SETTINGS_NOTES),
    JSON_UNUSED(SETTINGS_GENERATION),
    JSON_UNUSED("num_decoder_layers initializer_factor dropout_rate classifier_dropout is_decoder "
                "is_encoder_decoder scale_decoder_outputs tie_word_embeddings n_positions "
                "output_past bos_token_id eos_token_id tie_encoder_decoder scalable_attention"),
    JSON_ONLY("feed_forward_proj", "gated-gelu"),
    JSON_ONLY("dense_act_fn", "gelu_new"),
    JSON_ONLY("is_gated_act", "true"),
    JSON_READ_INSIDE("quantization_config", settings_scaled),
    JSON_END};

static int check(const struct t5_config *c, const char *path)
{
    if (c->buckets < 4 || c->buckets % 2 || c->farthest <= c->buckets / 4)
        return say_fail("%s: %lld buckets up to a distance of %lld cannot be made", path,
                        (long long)c->buckets, (long long)c->farthest);
    return 0;
}

static int read_root(struct settings *s, struct t5_config *c)
{
    const char *type = json_string_value(settings_find(s, "model_type"));

    if (!type || (strcmp(type, "t5") && strcmp(type, "mt5") && strcmp(type, "umt5")))
        return say_fail("%s: \"model_type\" is %s%s%s; the text encoder is t5 or umt5", s->path,
                        type ? "\"" : "", type ? type : "missing", type ? "\"" : "");
    settings_allow(s, keys);
    if (!strcmp(type, "t5") && !settings_find(s, "feed_forward_proj")) /* without the key: relu */
        settings_refuse(s, "feed_forward_proj",
                        "is missing; only gated-gelu (T5 v1.1) is supported");
    *c = (struct t5_config){
        .vocabulary = settings_int(s, "vocab_size", -1),
        .width = settings_int(s, "d_model", -1),
        .head = settings_int(s, "d_kv", -1),
        .heads = settings_int(s, "num_heads", -1),
        .mlp = settings_int(s, "d_ff", -1),
        .layers = settings_layers(s, "num_layers", -1),
        .buckets = settings_int(s, "relative_attention_num_buckets", 32),
        .farthest = settings_int(s, "relative_attention_max_distance", 128),
        .eps = settings_real(s, s->root, "layer_norm_epsilon", 1e-6),
        .own_tables = !strcmp(type, "umt5"),
    };
    return s->failed ? -1 : check(c, s->path);
}

int t5_config_read(struct t5_config *c, const char *path)
{
    struct settings s;
    int rc = settings_open(&s, path) ? -1 : read_root(&s, c);

    settings_close(&s);
    return rc;
}

/* ---- weights ------------------------------------------------------------------------------- */

#define TIED "encoder.embed_tokens.weight" /* another name of shared.weight */

struct load {
    struct names missing, unexpected, foreign;
};

static bool begins_with(const char *name, const char *prefix)
{
    return !strncmp(name, prefix, strlen(prefix));
}

static bool is_passed_over(const char *name)
{
    return begins_with(name, "decoder.") || begins_with(name, "lm_head.") || !strcmp(name, TIED);
}

static void report(void *user, const char *what, const char *name)
{
    struct load *l = user;

    if (*what == 'm')
        names_add(&l->missing, name);
    else if (!is_passed_over(name))
        names_add(names_is_of_layer(name) ? &l->foreign : &l->unexpected, name);
}

static bool other_name(void *user, const char *name, int i, char *other, size_t size)
{
    (void)user;
    if (i || strcmp(name, "shared.weight"))
        return false;
    snprintf(other, size, TIED);
    return true;
}

int t5_load(ckpt *c, const char *path)
{
    struct load l = {.missing = {.n = 0}};
    int rc = ckpt_load_params_aliased(c, path, other_name, report, &l, NULL);

    names_report(&l.missing, path, "missing");
    names_report(&l.unexpected, path, "unexpected");
    if (rc)
        return say_fail("%s", ckpt_error(c));
    if (l.missing.n)
        return say_fail("%s: %lld parameter%s missing: not the weights of this T5", path,
                        (long long)l.missing.n, l.missing.n > 1 ? "s are" : " is");
    return names_refuse_layers(&l.foreign, path);
}
