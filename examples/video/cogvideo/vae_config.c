/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads config.json of an AutoencoderKLCogVideoX.  Settings that are missing have the published
 * values, but for scaling_factor, which weights do not contain.  Settings that this code does not
 * support are refused by name.
 */
#include <string.h>
#include "../../common/say.h"
#include "../../common/settings.h"
#include "vae.h"

#define MOST (INT64_C(1) << 20) /* upper bound of a size */

/* The parameters of the diffusers class. */
static const struct json_keys keys[] = {
    JSON_READ("_class_name in_channels out_channels block_out_channels latent_channels "
              "layers_per_block norm_eps norm_num_groups temporal_compression_ratio "
              "sample_height sample_width scaling_factor invert_scale_latents"),
    JSON_UNUSED("force_upcast"), /* of numbers in half precision, which this program has not */
    JSON_ONLY("act_fn", "silu"),
    JSON_ONLY("down_block_types", "CogVideoXDownBlock3D"),
    JSON_ONLY("up_block_types", "CogVideoXUpBlock3D"),
    JSON_ONLY("use_quant_conv use_post_quant_conv", "false"),
    JSON_ONLY("shift_factor latents_mean latents_std quantization_config", ""),
    JSON_END};

/* Reads a size, with the upper bound of this file. */
static int64_t get_int(struct settings *s, const char *key, int64_t fallback)
{
    int64_t n = settings_int(s, key, fallback);

    if (n > MOST)
        settings_refuse(s, key, "is above %lld", (long long)MOST);
    return n;
}

static double get_real(struct settings *s, const char *key, double fallback)
{
    double x = settings_real(s, s->root, key, fallback);

    if (x >= 1e6)
        settings_refuse(s, key, "is not below 1e6");
    return x;
}

/* Checks that there are as many block types as levels; the table knows their type. */
static void check_blocks(struct settings *s, const char *key, int levels)
{
    const json_t *v = settings_find(s, key);

    if (v && (!json_is_array(v) || (int)json_array_size(v) != levels))
        settings_refuse(s, key, "is not a list of %d, one for each level", levels);
}

/* Channels of each level; each width is a multiple of the groups of the norms. */
static void read_widths(struct settings *s, struct cogvae_config *c)
{
    static const int64_t published[] = {128, 256, 256, 512};
    const json_t *v = settings_find(s, "block_out_channels");

    c->levels = v ? (int)json_array_size(v) : 4;
    if (c->levels < 1 || c->levels > COGVAE_LEVELS)
        settings_refuse(s, "block_out_channels", "has %d levels; 1 to %d are possible", c->levels,
                        COGVAE_LEVELS);
    for (int i = 0; i < c->levels && !s->failed; i++) {
        const json_t *width = v ? json_array_get(v, (size_t)i) : NULL;
        c->width[i] = v ? json_integer_value(width) : published[i];
        if (c->width[i] < 1 || c->width[i] > MOST || c->width[i] % c->groups)
            settings_refuse(s, "block_out_channels",
                            "has %lld, which does not divide into %lld "
                            "groups",
                            (long long)c->width[i], (long long)c->groups);
    }
}

/* Computes how often frames are halved; the model must have enough levels. */
static void read_time(struct settings *s, struct cogvae_config *c)
{
    int64_t ratio = get_int(s, "temporal_compression_ratio", 4);

    for (c->time_levels = 0; ratio > 1 && ratio % 2 == 0; ratio /= 2)
        c->time_levels++;
    if (ratio != 1 || c->time_levels >= c->levels)
        settings_refuse(s, "temporal_compression_ratio", "is not a power of 2 that %d levels reach",
                        c->levels);
}

/* The defaults are the published values. */
static void read_all(struct settings *s, struct cogvae_config *c)
{
    c->groups = get_int(s, "norm_num_groups", 32);
    read_widths(s, c);
    read_time(s, c);
    c->layers = get_int(s, "layers_per_block", 3);
    c->latent = get_int(s, "latent_channels", 16);
    c->channels = get_int(s, "in_channels", 3);
    c->eps = get_real(s, "norm_eps", 1e-6);
    c->height = get_int(s, "sample_height", 480);
    c->width_pixels = get_int(s, "sample_width", 720);
    c->invert = json_is_true(settings_find(s, "invert_scale_latents"));
    if (!settings_find(s, "scaling_factor"))
        settings_refuse(s, "scaling_factor", "is missing");
    c->scaling = get_real(s, "scaling_factor", 1);
}

/* Checks that the program supports the model. */
static void check_known(struct settings *s, const struct cogvae_config *c)
{
    settings_allow(s, keys);
    check_blocks(s, "down_block_types", c->levels);
    check_blocks(s, "up_block_types", c->levels);
    if (c->layers > COGVAE_LAYERS)
        settings_refuse(s, "layers_per_block", "is %lld; up to %d are possible",
                        (long long)c->layers, COGVAE_LAYERS);
    if (c->latent > COGVAE_LATENT)
        settings_refuse(s, "latent_channels", "is %lld; up to %d are possible",
                        (long long)c->latent, COGVAE_LATENT);
    if (c->channels != 3 || get_int(s, "out_channels", 3) != 3)
        settings_refuse(s, "in_channels",
                        "and \"out_channels\": only frames of 3 channels are supported");
}

static int read_root(struct settings *s, struct cogvae_config *c)
{
    const char *name = json_string_value(settings_find(s, "_class_name"));

    if (!name || strcmp(name, cogvideo_autoencoder.class_name))
        settings_refuse(s, "_class_name", "is not \"%s\"", cogvideo_autoencoder.class_name);
    read_all(s, c);
    check_known(s, c);
    return s->failed;
}

int cogvae_config_read(struct cogvae_config *config, const char *dir)
{
    char path[4096];
    struct settings s;

    snprintf(path, sizeof path, "%s/config.json", dir);
    int rc = settings_open(&s, path) ? -1 : read_root(&s, config);
    settings_close(&s);
    return rc;
}
