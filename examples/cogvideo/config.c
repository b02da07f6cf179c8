/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of diffusers' CogVideoXTransformer3DModel: see config.h. */
#include <jansson.h>
#include <string.h>
#include "../common/say.h"
#include "ckpt_tools.h"
#include "config.h"

#define CLASS "CogVideoXTransformer3DModel"

/* A file that is read: the first key that is wrong is said. */
struct source {
    const char *path;
    const json_t *root;
    bool failed;
};

static const json_t *find(const struct source *s, const char *key)
{
    const json_t *v = json_object_get(s->root, key);

    return json_is_null(v) ? NULL : v;
}

static void refuse(struct source *s, const char *key, const char *why)
{
    if (!s->failed)
        say_fail("%s: \"%s\" %s", s->path, key, why);
    s->failed = true;
}

static int64_t get_int(struct source *s, const char *key, int64_t fallback)
{
    const json_t *v = find(s, key);

    if (!v)
        return fallback;
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > 1 << 24) {
        refuse(s, key, "is no number of things");
        return fallback;
    }
    return json_integer_value(v);
}

static double get_real(struct source *s, const char *key, double fallback)
{
    const json_t *v = find(s, key);

    if (!v)
        return fallback;
    if (!json_is_number(v) || !(json_number_value(v) > 0)) {
        refuse(s, key, "is no positive number");
        return fallback;
    }
    return json_number_value(v);
}

static bool get_flag(struct source *s, const char *key, bool fallback)
{
    const json_t *v = find(s, key);

    if (v && !json_is_boolean(v))
        refuse(s, key, "is neither true nor false");
    return v ? json_is_true(v) : fallback;
}

/* The model must be as it is computed here. */
static void expect_text(struct source *s, const char *key, const char *wanted)
{
    const json_t *v = find(s, key);
    char why[160];

    if (!v || (json_is_string(v) && !strcmp(json_string_value(v), wanted)))
        return;
    snprintf(why, sizeof why, "is %s%.60s%s, and only \"%s\" is known",
             json_is_string(v) ? "\"" : "", json_is_string(v) ? json_string_value(v) : "no text",
             json_is_string(v) ? "\"" : "", wanted);
    refuse(s, key, why);
}

static void expect_flag(struct source *s, const char *key)
{
    if (!get_flag(s, key, true))
        refuse(s, key, "is false, and only true is known");
}

static void expect_zero(struct source *s, const char *key)
{
    const json_t *v = find(s, key);

    if (v && !(json_is_number(v) && json_number_value(v) == 0))
        refuse(s, key, "is not 0, and only that is known");
}

/* Defaults are those of the class. */
static void read_sizes(struct source *s, struct cogvideo_config *c)
{
    c->heads = get_int(s, "num_attention_heads", 30);
    c->head = get_int(s, "attention_head_dim", 64);
    c->width = c->heads * c->head;
    c->layers = get_int(s, "num_layers", 30);
    c->in_channels = get_int(s, "in_channels", 16);
    c->out_channels = get_int(s, "out_channels", 16);
    c->time_width = get_int(s, "time_embed_dim", 512);
    c->ofs_width = get_int(s, "ofs_embed_dim", 0);
    c->text_width = get_int(s, "text_embed_dim", 4096);
    c->text_tokens = get_int(s, "max_text_seq_length", 226);
    c->patch = get_int(s, "patch_size", 2);
    c->flat_patch = find(s, "patch_size_t") != NULL;
    c->patch_frames = get_int(s, "patch_size_t", 1);
    c->sample_frames = get_int(s, "sample_frames", 49);
    c->sample_height = get_int(s, "sample_height", 60);
    c->sample_width = get_int(s, "sample_width", 90);
    c->compression = get_int(s, "temporal_compression_ratio", 4);
    c->space_scale = get_real(s, "spatial_interpolation_scale", 1.875);
    c->time_scale = get_real(s, "temporal_interpolation_scale", 1);
    c->eps = get_real(s, "norm_eps", 1e-5);
    c->rotary = get_flag(s, "use_rotary_positional_embeddings", false);
    c->learned = get_flag(s, "use_learned_positional_embeddings", false);
}

static void check_known(struct source *s, const struct cogvideo_config *c)
{
    expect_text(s, "activation_fn", "gelu-approximate");
    expect_text(s, "timestep_activation_fn", "silu");
    expect_flag(s, "attention_bias");
    expect_flag(s, "norm_elementwise_affine");
    expect_flag(s, "flip_sin_to_cos");
    expect_zero(s, "freq_shift");
    expect_zero(s, "dropout");
    if (!c->flat_patch)
        expect_flag(s, "patch_bias"); /* of the 1.5 models it says nothing: there is a bias */
    if (c->head % 16)
        refuse(s, "attention_head_dim", "is no multiple of 16");
    if (c->width % 16)
        refuse(s, "num_attention_heads", "makes a width that is no multiple of 16");
    if (c->ofs_width && c->ofs_width != c->time_width)
        refuse(s, "ofs_embed_dim", "differs from \"time_embed_dim\"");
    if (c->in_channels != c->out_channels && c->in_channels != 2 * c->out_channels)
        refuse(s, "in_channels", "is neither \"out_channels\" nor twice as many");
    if (c->patch < 2 || c->sample_height < c->patch || c->sample_width < c->patch)
        refuse(s, "patch_size", "does not fit the sample size");
    if (c->learned && !c->rotary)
        refuse(s, "use_learned_positional_embeddings", "without rotary ones is not known");
}

static int read_root(struct source *s, struct cogvideo_config *c)
{
    const json_t *name = find(s, "_class_name");

    *c = (struct cogvideo_config){0};
    if (!json_is_string(name) || strcmp(json_string_value(name), CLASS))
        return say_fail("%s: \"_class_name\" is %.80s; this program knows " CLASS, s->path,
                        json_is_string(name) ? json_string_value(name) : "missing");
    read_sizes(s, c);
    check_known(s, c);
    return s->failed ? -1 : 0;
}

static int open_config(const char *path, FILE **f, char *inside, size_t size)
{
    static const char *const parts[] = {"/transformer/config.json", "/config.json", ""};

    for (int i = 0; i < 3; i++)
        if (snprintf(inside, size, "%s%s", path, parts[i]) < (int)size &&
            !ckpt_input_open(f, inside))
            return 0;
    return say_fail("%s", ckpt_error(NULL));
}

int cogvideo_config_read(struct cogvideo_config *c, const char *path)
{
    char inside[4096];
    json_error_t e;
    FILE *f;

    if (open_config(path, &f, inside, sizeof inside))
        return -1;
    json_t *root = json_loadf(f, 0, &e);
    fclose(f);
    struct source s = {inside, root, false};
    int rc = root ? read_root(&s, c) : say_fail("%s: line %d: %s", inside, e.line, e.text);
    json_decref(root);
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

int cogvideo_check_video(const struct cogvideo_config *c, int64_t frames, int64_t height,
                         int64_t width)
{
    if (height % 8 || width % 8)
        return say_fail("--height and --width must be multiples of 8, the pixels of a latent");
    if (frames && (frames - 1) % c->compression)
        return say_fail("--frames %lld: give one more than a multiple of %lld", (long long)frames,
                        (long long)c->compression);
    return 0;
}
