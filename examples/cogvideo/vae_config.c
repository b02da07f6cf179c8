/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of an AutoencoderKLCogVideoX. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/say.h"
#include "ckpt_tools.h"
#include "vae.h"

#define CLASS "AutoencoderKLCogVideoX"
#define MOST  (INT64_C(1) << 20)

/* A file that is read: the first key that is wrong is said. */
struct source {
    const char *path;
    const json_t *root;
    int failed;
};

/* NULL: not there, the published value holds. */
static const json_t *find(const struct source *s, const char *key)
{
    const json_t *v = json_object_get(s->root, key);

    return json_is_null(v) ? NULL : v;
}

static int64_t get_int(struct source *s, const char *key, int64_t fallback)
{
    const json_t *v = find(s, key);
    int64_t n = v && json_is_integer(v) ? json_integer_value(v) : -1;

    if (!v || s->failed)
        return fallback;
    if (n < 1 || n > MOST)
        s->failed = say_fail("%s: \"%s\" is not a whole number from 1 to %lld", s->path, key,
                             (long long)MOST);
    return n;
}

static double get_real(struct source *s, const char *key, double fallback)
{
    const json_t *v = find(s, key);
    double x = v && json_is_number(v) ? json_number_value(v) : 0;

    if (!v || s->failed)
        return fallback;
    if (!(x > 0 && x < 1e6))
        s->failed = say_fail("%s: \"%s\" is not a positive number", s->path, key);
    return x;
}

/* What this program computes in no other way. */
static void check_text(struct source *s, const char *key, const char *expected)
{
    const json_t *v = find(s, key);

    if (v && !s->failed && (!json_is_string(v) || strcmp(json_string_value(v), expected)))
        s->failed = say_fail("%s: \"%s\" is not \"%s\"", s->path, key, expected);
}

static void check_false(struct source *s, const char *key)
{
    if (!s->failed && json_is_true(find(s, key)))
        s->failed =
            say_fail("%s: \"%s\" is true: such a model has layers that are not here", s->path, key);
}

static void check_null(struct source *s, const char *key)
{
    if (!s->failed && find(s, key))
        s->failed = say_fail("%s: \"%s\" is not null: latents with a shift are not known here",
                             s->path, key);
}

/* As many block types as levels, all of this model. */
static void check_blocks(struct source *s, const char *key, int levels, const char *expected)
{
    const json_t *v = find(s, key);

    if (!v || s->failed)
        return;
    bool good = json_is_array(v) && (int)json_array_size(v) == levels;
    for (int i = 0; good && i < levels; i++) {
        const json_t *block = json_array_get(v, (size_t)i);
        good = json_is_string(block) && !strcmp(json_string_value(block), expected);
    }
    if (!good)
        s->failed = say_fail("%s: \"%s\" is not \"%s\" for each of %d levels", s->path, key,
                             expected, levels);
}

static void read_widths(struct source *s, struct cogvae_config *c)
{
    static const int64_t published[] = {128, 256, 256, 512};
    const json_t *v = find(s, "block_out_channels");

    c->levels = v ? (int)json_array_size(v) : 4;
    if (!s->failed && (c->levels < 1 || c->levels > COGVAE_LEVELS))
        s->failed = say_fail("%s: \"block_out_channels\" has %d levels; 1 to %d are possible",
                             s->path, c->levels, COGVAE_LEVELS);
    for (int i = 0; i < c->levels && !s->failed; i++) {
        const json_t *width = v ? json_array_get(v, (size_t)i) : NULL;
        c->width[i] = v ? json_integer_value(width) : published[i];
        if (c->width[i] < 1 || c->width[i] > MOST || c->width[i] % c->groups)
            s->failed = say_fail("%s: \"block_out_channels\": %lld does not divide into %lld "
                                 "groups",
                                 s->path, (long long)c->width[i], (long long)c->groups);
    }
}

/* Frames are halved so often; the levels must be enough for it. */
static void read_time(struct source *s, struct cogvae_config *c)
{
    int64_t ratio = get_int(s, "temporal_compression_ratio", 4);

    for (c->time_levels = 0; ratio > 1 && ratio % 2 == 0; ratio /= 2)
        c->time_levels++;
    if (!s->failed && (ratio != 1 || c->time_levels >= c->levels))
        s->failed = say_fail("%s: \"temporal_compression_ratio\" is not a power of 2 that %d "
                             "levels reach",
                             s->path, c->levels);
}

static void read_all(struct source *s, struct cogvae_config *c)
{
    check_text(s, "_class_name", CLASS);
    c->groups = get_int(s, "norm_num_groups", 32);
    read_widths(s, c);
    read_time(s, c);
    c->layers = get_int(s, "layers_per_block", 3);
    c->latent = get_int(s, "latent_channels", 16);
    c->channels = get_int(s, "in_channels", 3);
    c->eps = get_real(s, "norm_eps", 1e-6);
    c->height = get_int(s, "sample_height", 480);
    c->width_pixels = get_int(s, "sample_width", 720);
    check_text(s, "act_fn", "silu");
    check_blocks(s, "down_block_types", c->levels, "CogVideoXDownBlock3D");
    check_blocks(s, "up_block_types", c->levels, "CogVideoXUpBlock3D");
    check_false(s, "use_quant_conv");
    check_false(s, "use_post_quant_conv");
    check_null(s, "shift_factor");
    check_null(s, "latents_mean");
    check_null(s, "latents_std");
    c->invert = json_is_true(find(s, "invert_scale_latents"));
    if (!s->failed && !find(s, "scaling_factor"))
        s->failed =
            say_fail("%s: there is no \"scaling_factor\", which the weights do not tell", s->path);
    c->scaling = get_real(s, "scaling_factor", 1);
    if (!s->failed && (c->layers > COGVAE_LAYERS || c->latent > COGVAE_LATENT))
        s->failed = say_fail("%s: %lld blocks a level and %lld latent channels; up to %d and %d "
                             "are possible",
                             s->path, (long long)c->layers, (long long)c->latent, COGVAE_LAYERS,
                             COGVAE_LATENT);
    if (!s->failed && (c->channels != 3 || get_int(s, "out_channels", 3) != 3))
        s->failed = say_fail("%s: frames of %lld channels; 3 are known here", s->path,
                             (long long)c->channels);
}

static bool is_readable(const char *dir, const char *name)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return !access(path, R_OK);
}

const char *cogvae_directory(char *dst, size_t size, const char *dir)
{
    snprintf(dst, size, is_readable(dir, "vae/config.json") ? "%s/vae" : "%s", dir);
    return dst;
}

int cogvae_config_read(struct cogvae_config *config, const char *dir)
{
    char path[4096];
    FILE *f;
    json_error_t error;
    json_t *root;

    snprintf(path, sizeof path, "%s/config.json", dir);
    if (ckpt_input_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    root = json_loadf(f, JSON_REJECT_DUPLICATES, &error);
    fclose(f);
    struct source s = {.path = path, .root = root};
    if (!root)
        return say_fail("%s: line %d: %s", path, error.line, error.text);
    if (!json_is_object(root) || !find(&s, "_class_name"))
        s.failed = say_fail("%s: there is no \"_class_name\": not the config of a " CLASS, path);
    read_all(&s, config);
    json_decref(root);
    return s.failed;
}
