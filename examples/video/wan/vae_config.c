/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads config.json of an AutoencoderKLWan.  Settings that are missing have the values of
 * diffusers' class, which are those of Wan 2.1, but for the statistics of latents, which weights do
 * not contain.  Settings that this code does not support are refused by name.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../common/say.h"
#include "../../common/settings.h"
#include "vae.h"

enum { MOST = 1 << 14 /* upper bound of a width */ };

/* The parameters of the diffusers class. */
static const struct json_keys keys[] = {
    JSON_READ("_class_name base_dim decoder_base_dim z_dim dim_mult num_res_blocks "
              "temperal_downsample is_residual in_channels out_channels patch_size "
              "latents_mean latents_std scale_factor_spatial scale_factor_temporal"),
    JSON_UNUSED("dropout clip_output"), /* of training; results are always clamped */
    JSON_ONLY("attn_scales quantization_config", ""), JSON_END};

/* Reads a size, with an upper bound. */
static int64_t get_int(struct settings *s, const char *key, int64_t fallback, int64_t most)
{
    int64_t n = settings_int(s, key, fallback);

    if (n > most)
        settings_refuse(s, key, "is %lld; up to %lld are possible", (long long)n, (long long)most);
    return n;
}

/* Refuses another size than the one that follows from other settings. */
static void check_int(struct settings *s, const char *key, int64_t n)
{
    int64_t is = settings_int(s, key, n);

    if (is != n)
        settings_refuse(s, key, "is %lld; with the other settings it is %lld", (long long)is,
                        (long long)n);
}

/* Refuses another list than that of the published models. */
static void check_list(struct settings *s, const char *key, json_t *published)
{
    const json_t *v = settings_find(s, key);
    char *text = json_dumps(published, 0);

    if (v && !json_equal(v, published))
        settings_refuse(s, key, "is not %s, as in the published models", text ? text : "it");
    free(text);
    json_decref(published);
}

/* Reads a number for each channel of latents; no standard deviation is 0. */
static void read_channels(struct settings *s, const char *key, int64_t n, bool positive,
                          double *dst)
{
    const json_t *v = settings_find(s, key);

    if (!v || (int64_t)json_array_size(v) != n)
        settings_refuse(s, key, "is not a list of %lld numbers, one for each channel",
                        (long long)n);
    for (int64_t i = 0; i < n && !s->failed; i++) {
        const json_t *x = json_array_get(v, (size_t)i);
        dst[i] = json_number_value(x);
        if (!json_is_number(x) || (positive && dst[i] < 1e-6))
            settings_refuse(s, key, "has at place %lld what is not a%s number", (long long)i,
                            positive ? " positive" : "");
    }
}

static void read_all(struct settings *s, struct wanvae_config *c)
{
    c->shortcuts = settings_flag(s, "is_residual", false);
    c->patch = get_int(s, "patch_size", 1, 2);
    c->base = get_int(s, "base_dim", 96, MOST);
    c->decoder_base = get_int(s, "decoder_base_dim", c->base, MOST);
    c->layers = get_int(s, "num_res_blocks", 2, WANVAE_LAYERS);
    c->latent = get_int(s, "z_dim", 16, WANVAE_LATENT);
    if (!c->shortcuts && c->decoder_base % 2)
        settings_refuse(s, "decoder_base_dim", "is odd, but its levels halve channels");
}

static int read_root(struct settings *s, struct wanvae_config *c)
{
    const char *name = json_string_value(settings_find(s, "_class_name"));

    if (name && !strcmp(name, "WanModel"))
        settings_refuse(s, "_class_name", WANVAE_ORIGINAL);
    else if (!name || strcmp(name, wan_autoencoder.class_name))
        settings_refuse(s, "_class_name", "is not \"%s\"", wan_autoencoder.class_name);
    if (s->failed)
        return -1;
    read_all(s, c);
    settings_allow(s, keys);
    check_list(s, "dim_mult", json_pack("[i,i,i,i]", 1, 2, 4, 4));
    check_list(s, "temperal_downsample", json_pack("[b,b,b]", 0, 1, 1));
    check_int(s, "in_channels", 3 * c->patch * c->patch);
    check_int(s, "out_channels", 3 * c->patch * c->patch);
    check_int(s, "scale_factor_spatial", 8 * c->patch);
    check_int(s, "scale_factor_temporal", 4);
    if (!s->failed)
        read_channels(s, "latents_mean", c->latent, false, c->mean);
    if (!s->failed)
        read_channels(s, "latents_std", c->latent, true, c->std);
    return s->failed;
}

/* Refuses the original files, which are pickles, where there are no others. */
static int check_files(const char *dir)
{
    static const char *const pickles[] = {"Wan2.1_VAE.pth", "Wan2.2_VAE.pth"};
    char path[4096];

    snprintf(path, sizeof path, "%s/config.json", dir);
    for (int i = 0; i < 2 && access(path, F_OK); i++) {
        char pickle[4096];
        snprintf(pickle, sizeof pickle, "%s/%s", dir, pickles[i]);
        if (!access(pickle, F_OK))
            return say_fail("%s: a pickle of PyTorch, which is not read; take the directory vae of "
                            "the model for diffusers",
                            pickle);
    }
    return 0;
}

int wanvae_config_read(struct wanvae_config *config, const char *dir)
{
    struct settings s;

    if (check_files(dir))
        return -1;
    int rc = settings_open(&s, dir) ? -1 : read_root(&s, config);
    settings_close(&s);
    return rc;
}
