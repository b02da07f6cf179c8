/* SPDX-License-Identifier: Apache-2.0 */
/* CLIP's vision tower: see sight.h. */
#include "sight.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../common/memory.h"
#include "../../common/names.h"
#include "../../common/say.h"
#include "../../common/settings.h"
#include "ckpt_dist.h"
#include "ckpt_files.h"

#define TOWER "vision_model."

enum { PATH = 4096 };

/* ---- settings ------------------------------------------------------------------------------ */

/* What CLIPVisionConfig has, without the text tower's part of a whole CLIP. */
static const struct json_keys keys[] = {
    JSON_READ("hidden_size num_attention_heads intermediate_size num_hidden_layers image_size "
              "patch_size layer_norm_eps"),
    JSON_UNUSED(SETTINGS_NOTES),
    JSON_UNUSED("attention_dropout dropout initializer_factor initializer_range projection_dim"),
    JSON_ONLY("model_type", "clip_vision_model"),
    JSON_ONLY("hidden_act", "gelu"),
    JSON_ONLY("num_channels", "3"),
    JSON_END};

static int read_config(struct sight_config *c, const char *path)
{
    struct settings s;
    int rc = settings_open(&s, path);

    if (!rc) {
        settings_allow(&s, keys);
        if (!settings_find(&s, "hidden_act")) /* without the key: quick_gelu */
            settings_refuse(&s, "hidden_act", "is missing; only gelu is supported");
        *c = (struct sight_config){.width = settings_int(&s, "hidden_size", 768),
                                   .heads = settings_int(&s, "num_attention_heads", 12),
                                   .inner = settings_int(&s, "intermediate_size", 3072),
                                   .layers = settings_layers(&s, "num_hidden_layers", 12) - 1,
                                   .side = settings_int(&s, "image_size", 224),
                                   .patch = settings_int(&s, "patch_size", 32),
                                   .eps = settings_real(&s, s.root, "layer_norm_eps", 1e-5)};
        if (!s.failed && !c->layers)
            settings_refuse(&s, "num_hidden_layers", "is 1: there is no last layer but one");
        if (!s.failed && c->width % c->heads)
            settings_refuse(&s, "num_attention_heads", "does not divide \"hidden_size\"");
        if (!s.failed && c->side % c->patch)
            settings_refuse(&s, "patch_size", "does not divide \"image_size\"");
        rc = s.failed;
    }
    settings_close(&s);
    return rc ? -1 : 0;
}

/* How pictures are prepared; what a key changes is refused. */
static const struct json_keys processor[] = {
    JSON_READ("image_mean image_std size crop_size rescale_factor"),
    JSON_UNUSED("image_processor_type feature_extractor_type processor_class _valid_processor_keys "
                "do_convert_rgb input_data_format data_format return_tensors device "
                "disable_grouping default_to_square image_seq_length"),
    JSON_ONLY("do_resize do_center_crop do_rescale do_normalize", "true"),
    JSON_ONLY("do_pad", "false"),
    JSON_ONLY("resample", "3"), /* bicubic */
    JSON_ONLY("pad_size", ""),
    JSON_END};

static void read_triple(struct settings *s, const char *key, double to[3])
{
    const json_t *all = settings_find(s, key);

    if (all && json_array_size(all) != 3)
        settings_refuse(s, key, "is not three numbers");
    for (size_t i = 0; i < 3 && all; i++)
        to[i] = json_number_value(json_array_get(all, i));
}

/* A side, alone or in an object under any of these names. */
static void check_side(struct settings *s, const char *key, int64_t side)
{
    static const char *const names[] = {"shortest_edge", "height", "width"};
    const json_t *size = settings_find(s, key);

    if (json_is_integer(size) && json_integer_value(size) != side)
        settings_refuse(s, key, "is not %lld, the side of the encoder's pictures", (long long)side);
    for (size_t i = 0; i < 3; i++) {
        const json_t *one = json_object_get(size, names[i]);
        if (one && json_integer_value(one) != side)
            settings_refuse(s, key, "is not %lld, the side of the encoder's pictures",
                            (long long)side);
    }
    if (!strcmp(key, "size") && json_object_get(size, "height"))
        settings_refuse(s, key, "has a height: only \"shortest_edge\" is supported");
}

static void take_processor(struct settings *s, struct sight_config *c)
{
    settings_allow(s, processor);
    read_triple(s, "image_mean", c->mean);
    read_triple(s, "image_std", c->deviation);
    for (int i = 0; i < 3; i++)
        if (!(c->deviation[i] > 0))
            settings_refuse(s, "image_std", "has a number that is not above 0");
    if (fabs(settings_real(s, s->root, "rescale_factor", 1 / 255.) * 255 - 1) > 1e-6)
        settings_refuse(s, "rescale_factor", "is not 1 / 255");
    check_side(s, "size", c->side);
    check_side(s, "crop_size", c->side);
}

const char *sight_processor(const char *encoder, char path[4096])
{
    static const char *const places[] = {"/../image_processor/preprocessor_config.json",
                                         "/preprocessor_config.json"};

    for (int i = 0; i < 2; i++)
        if (snprintf(path, PATH, "%s%s", encoder, places[i]) < PATH && !access(path, R_OK))
            return path;
    return NULL;
}

static int read_processor(struct sight_config *c, const char *encoder)
{
    static const double mean[] = {0.48145466, 0.4578275, 0.40821073};
    static const double deviation[] = {0.26862954, 0.26130258, 0.27577711};
    char path[PATH];
    struct settings s;

    memcpy(c->mean, mean, sizeof mean);
    memcpy(c->deviation, deviation, sizeof deviation);
    if (!sight_processor(encoder, path))
        return 0;
    int rc = settings_open(&s, path);
    if (!rc)
        take_processor(&s, c);
    rc = rc || s.failed;
    settings_close(&s);
    return rc ? -1 : 0;
}

const char *sight_path(const char *directory, char path[4096])
{
    if (snprintf(path, PATH, "%s/image_encoder/config.json", directory) >= PATH ||
        access(path, R_OK))
        return directory;
    snprintf(path, PATH, "%s/image_encoder", directory);
    return path;
}

int64_t sight_rows(const struct sight_config *c)
{
    return c->side / c->patch * (c->side / c->patch) + 1;
}

/* ---- parameters ---------------------------------------------------------------------------- */

static void create_layer(struct sight *s, const struct ckpt_nn *nn, int i)
{
    const struct sight_config *c = &s->config;
    struct ckpt_nn_attention_spec attention = CKPT_NN_ATTENTION_INIT;
    struct ckpt_nn_transformer_layer_spec layer = CKPT_NN_TRANSFORMER_LAYER_INIT;
    struct ckpt_nn_mlp_spec mlp = CKPT_NN_MLP_INIT;

    attention.width = mlp.width = c->width;
    attention.heads = c->heads;
    mlp.inner = c->inner;
    mlp.activation = CKPT_NN_GELU_ERF;
    mlp.up_name = "fc1";
    mlp.down_name = "fc2";
    layer.attention = &attention;
    layer.mlp = &mlp;
    layer.eps = (float)c->eps;
    layer.norm1_name = "layer_norm1";
    layer.attention_name = "self_attn";
    layer.norm2_name = "layer_norm2";
    s->layer[i] = ckpt_nn_transformer_layer(nn, &layer, TOWER "encoder.layers.%d", i);
}

static int create(struct sight *s)
{
    const struct sight_config *c = &s->config;
    const struct ckpt_init zeros = CKPT_ZEROS; /* values are loaded from files */
    const int64_t d = c->width, p = c->patch;
    struct ckpt_nn nn = CKPT_NN_INIT;

    s->layer = calloc((size_t)c->layers, sizeof *s->layer);
    if (!s->layer)
        return say_fail("no memory for %lld layers", (long long)c->layers);
    nn.context = s->context;
    nn.dtype = s->dtype;
    nn.frozen = true;
    nn.weight = nn.bias = &zeros;
    s->cls =
        ckpt_param(s->context, TOWER "embeddings.class_embedding", s->dtype, 1, &d, zeros, false);
    s->patches = ckpt_param(s->context, TOWER "embeddings.patch_embedding.weight", s->dtype, 4,
                            (int64_t[]){d, 3, p, p}, zeros, false);
    s->positions = ckpt_param(s->context, TOWER "embeddings.position_embedding.weight", s->dtype, 2,
                              (int64_t[]){sight_rows(c), d}, zeros, false);
    s->norm = ckpt_nn_layer_norm(&nn, d, (float)c->eps, TOWER "pre_layrnorm");
    for (int i = 0; i < c->layers; i++)
        create_layer(s, &nn, i);
    return 0;
}

/* ---- forward pass -------------------------------------------------------------------------- */

static ckpt_tensor embed(const struct sight *s, ckpt_tape *t, ckpt_tensor x)
{
    const int64_t d = s->config.width, p = s->config.patch, one[] = {1, 1, d}, flat[] = {1, -1, d};
    ckpt_tensor weight = ckpt_reshape(t, s->patches, 2, (int64_t[]){d, 3 * p * p});
    ckpt_tensor patches = ckpt_patchify(t, ckpt_cast(t, x, s->dtype), 1, p, p);

    patches = ckpt_reshape(t, patches, 3, (int64_t[]){1, -1, 3 * p * p});
    x = ckpt_linear(t, patches, weight, CKPT_NONE);
    x = ckpt_concat(t, 1, 2, (ckpt_tensor[]){ckpt_reshape(t, s->cls, 3, one), x});
    return ckpt_add(t, x, ckpt_reshape(t, s->positions, 3, flat));
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct sight *s = user;
    const int64_t side = s->config.side;

    ckpt_label(t, "embeddings");
    ckpt_tensor x =
        embed(s, t, ckpt_input(t, "x", CKPT_F32, 5, (int64_t[]){batch, 3, 1, side, side}));
    x = ckpt_nn_apply_norm(t, &s->norm, x);
    for (int i = 0; i < s->config.layers; i++) {
        ckpt_label(t, "layers.%d", i);
        x = ckpt_nn_apply_transformer_layer(t, &s->layer[i], x, CKPT_NONE, CKPT_NONE, NULL);
    }
    x = ckpt_cast(t, x, CKPT_F32);
    ckpt_output(t, "features", x);
    return x;
}

/* ---- weights ------------------------------------------------------------------------------- */

struct load {
    const struct sight_config *config;
    struct names missing, unexpected;
};

/* What comes behind the features, and the other tower of a whole CLIP. */
static bool is_passed_over(const struct load *l, const char *name)
{
    static const char *const rest[] = {"post_layernorm.", "visual_projection.",
                                       "text_model.",     "text_projection.",
                                       "logit_scale",     "embeddings.position_ids"};
    char last[40];

    name += strncmp(name, TOWER, strlen(TOWER)) ? 0 : strlen(TOWER);
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        if (!strncmp(name, rest[i], strlen(rest[i])))
            return true;
    snprintf(last, sizeof last, "encoder.layers.%lld.", (long long)l->config->layers);
    return !strncmp(name, last, strlen(last));
}

static void report(void *user, const char *what, const char *name)
{
    struct load *l = user;

    if (*what == 'm')
        names_add(&l->missing, name);
    else if (!is_passed_over(l, name))
        names_add(&l->unexpected, name);
}

/* Newer versions of transformers leave the name of the tower out. */
static bool other_name(void *user, const char *name, int i, char *other, size_t size)
{
    (void)user;
    return !i && snprintf(other, size, "%s", name + strlen(TOWER)) < (int)size;
}

static int load(const struct sight *s, const char *path)
{
    struct load l = {.config = &s->config};
    int rc = ckpt_load_params_aliased(s->context, path, other_name, report, &l, NULL);

    names_report(&l.missing, path, "missing");
    names_report(&l.unexpected, path, "unexpected");
    if (rc)
        return say_fail("%s", ckpt_error(s->context));
    return l.missing.n || l.unexpected.n
               ? say_fail("%s: these are not the weights of this CLIPVisionModel", path)
               : 0;
}

/* ---- all of it ----------------------------------------------------------------------------- */

int sight_config(struct sight_config *c, const char *directory)
{
    char at[PATH];
    const char *path = sight_path(directory, at);

    return read_config(c, path) || read_processor(c, path) ? -1 : 0;
}

int sight_open(struct sight *s, const struct ckpt_options *library, const char *directory,
               enum ckpt_dtype dtype)
{
    char at[PATH];
    const char *path = sight_path(directory, at);

    *s = (struct sight){.dtype = dtype};
    if (sight_config(&s->config, directory) || say_open(&s->context, library))
        return -1;
    if (ckpt_ranks(s->context) > 1)
        return say_fail("--ranks: a picture is not divided among ranks");
    s->x = MEMORY_FOR(sizeof *s->x, 3, s->config.side, s->config.side);
    if (!s->x)
        return say_fail("no memory for a picture");
    if (create(s))
        return -1;
    if (ckpt_compile(s->context, record, s, NULL, 1, &s->program))
        return say_fail("%s", ckpt_error(s->context));
    return library->plan_only ? 0 : load(s, path);
}

void sight_close(struct sight *s)
{
    ckpt_close(s->context);
    free(s->layer);
    free(s->x);
    *s = (struct sight){.context = NULL};
}

int sight_check(const struct sight *s, const char *directory, int64_t rows, int64_t width)
{
    const int64_t has = sight_rows(&s->config);

    return has == rows && s->config.width == width
               ? 0
               : say_fail("%s: features of %lld x %lld; this model reads %lld x %lld", directory,
                          (long long)has, (long long)s->config.width, (long long)rows,
                          (long long)width);
}

int sight_read(const struct sight_config *c, struct video *v, uint8_t *rgb)
{
    const struct picture_size size = {c->side, c->side, true};
    int got;

    v->image = true; /* bicubic, also from a frame of a video */
    got = video_read(v, 0, &size, rgb);
    if (!got)
        say_fail("%s: there is no picture in it", v->path);
    return got > 0 ? 0 : -1;
}

int sight_encode(struct sight *s, const uint8_t *rgb, float *features)
{
    const struct sight_config *c = &s->config;
    const int64_t n = c->side * c->side, bytes = (int64_t)sizeof(float);

    for (int64_t i = 0; i < 3 * n; i++)
        s->x[i % 3 * n + i / 3] = (float)((rgb[i] / 255. - c->mean[i % 3]) / c->deviation[i % 3]);
    if (ckpt_feed(s->program, "x", s->x, 3 * n * bytes) || ckpt_submit(s->program) ||
        ckpt_wait(s->program, NULL) ||
        ckpt_fetch(s->program, "features", features, sight_rows(c) * c->width * bytes))
        return say_fail("%s", ckpt_error(s->context));
    return 0;
}
