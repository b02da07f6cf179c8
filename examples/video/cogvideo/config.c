/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of diffusers' CogVideoXTransformer3DModel: see config.h. */
#include <string.h>
#include <unistd.h>
#include "../../common/say.h"
#include "../../common/settings.h"
#include "config.h"

/* The parameters of the diffusers class. */
static const struct json_keys keys[] = {
    JSON_READ("num_attention_heads attention_head_dim num_layers in_channels out_channels "
              "time_embed_dim ofs_embed_dim text_embed_dim max_text_seq_length patch_size "
              "patch_size_t sample_frames sample_height sample_width temporal_compression_ratio "
              "spatial_interpolation_scale temporal_interpolation_scale norm_eps patch_bias "
              "use_rotary_positional_embeddings use_learned_positional_embeddings"),
    JSON_ONLY("activation_fn", "gelu-approximate"),
    JSON_ONLY("timestep_activation_fn", "silu"),
    JSON_ONLY("attention_bias norm_elementwise_affine flip_sin_to_cos", "true"),
    JSON_ONLY("freq_shift dropout", "0"),
    JSON_ONLY("quantization_config", ""),
    JSON_END};

/* The defaults are the defaults of the diffusers class. */
static void read_sizes(struct settings *s, struct cogvideo_config *c)
{
    c->heads = settings_int(s, "num_attention_heads", 30);
    c->head = settings_int(s, "attention_head_dim", 64);
    c->width = c->heads * c->head;
    c->layers = settings_layers(s, "num_layers", 30);
    c->in_channels = settings_int(s, "in_channels", 16);
    c->out_channels = settings_int(s, "out_channels", 16);
    c->time_width = settings_int(s, "time_embed_dim", 512);
    c->ofs_width = settings_int(s, "ofs_embed_dim", 0);
    c->text_width = settings_int(s, "text_embed_dim", 4096);
    c->text_tokens = settings_int(s, "max_text_seq_length", 226);
    c->patch = settings_int(s, "patch_size", 2);
    c->flat_patch = settings_find(s, "patch_size_t") != NULL;
    c->patch_frames = settings_int(s, "patch_size_t", 1);
    c->sample_frames = settings_int(s, "sample_frames", 49);
    c->sample_height = settings_int(s, "sample_height", 60);
    c->sample_width = settings_int(s, "sample_width", 90);
    c->compression = settings_int(s, "temporal_compression_ratio", 4);
    c->space_scale = settings_real(s, s->root, "spatial_interpolation_scale", 1.875);
    c->time_scale = settings_real(s, s->root, "temporal_interpolation_scale", 1);
    c->eps = settings_real(s, s->root, "norm_eps", 1e-5);
    c->rotary = settings_flag(s, "use_rotary_positional_embeddings", false);
    c->learned = settings_flag(s, "use_learned_positional_embeddings", false);
}

static void check_known(struct settings *s, const struct cogvideo_config *c)
{
    settings_allow(s, keys);
    /* The files of the 1.5 models say that there is none: they have a bias. */
    if (!c->flat_patch && !settings_flag(s, "patch_bias", true))
        settings_refuse(s, "patch_bias", "is false, which is not supported");
    if (c->head % 16)
        settings_refuse(s, "attention_head_dim", "is not a multiple of 16");
    if (c->width % 16)
        settings_refuse(s, "num_attention_heads", "gives a width that is not a multiple of 16");
    if (c->ofs_width && c->ofs_width != c->time_width)
        settings_refuse(s, "ofs_embed_dim", "differs from \"time_embed_dim\"");
    if (c->in_channels != c->out_channels && c->in_channels != 2 * c->out_channels)
        settings_refuse(s, "in_channels", "is neither \"out_channels\" nor twice as many");
    if (c->patch < 2 || c->sample_height < c->patch || c->sample_width < c->patch)
        settings_refuse(s, "patch_size", "does not fit the sample size");
    if (c->learned && !c->rotary)
        settings_refuse(s, "use_learned_positional_embeddings",
                        "without rotary embeddings is not supported");
}

static int read_root(struct settings *s, struct cogvideo_config *c)
{
    *c = (struct cogvideo_config){0};
    if (!settings_is_class(s, "CogVideoXTransformer3DModel"))
        return -1;
    read_sizes(s, c);
    check_known(s, c);
    return s->failed;
}

int cogvideo_config_read(struct cogvideo_config *c, const char *path)
{
    char inside[4096];
    struct settings s;

    snprintf(inside, sizeof inside, "%s/transformer/config.json", path);
    int rc = settings_open(&s, access(inside, R_OK) ? path : inside) ? -1 : read_root(&s, c);
    settings_close(&s);
    return rc;
}

const char *cogvideo_config_name(const struct cogvideo_config *c)
{
    if (c->flat_patch)
        return cogvideo_has_image(c) ? "CogVideoX 1.5 I2V" : "CogVideoX 1.5";
    if (cogvideo_has_image(c))
        return "CogVideoX I2V";
    return c->rotary ? "CogVideoX 5B" : "CogVideoX 2B";
}
