/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of diffusers' WanTransformer3DModel, and shapes of weights: see config.h. */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../common/say.h"
#include "../../common/settings.h"
#include "ckpt_files.h"

enum { PATH = 4096, TEXT_TOKENS = 512, TI2V_CHANNELS = 48, HEAD = 128 };
enum { MOST = 1 << 24, MOST_LAYERS = 4096 }; /* as settings_int and settings_layers allow */

/* ---- config.json ---------------------------------------------------------------------------- */

/* The parameters of the diffusers class. */
static const struct json_keys keys[] = {
    JSON_READ("num_attention_heads attention_head_dim num_layers in_channels out_channels "
              "text_dim freq_dim ffn_dim eps rope_max_seq_len image_dim added_kv_proj_dim "
              "pos_embed_seq_len"),
    JSON_ONLY("patch_size", "1|2"),
    JSON_ONLY("cross_attn_norm", "true"),
    JSON_ONLY("qk_norm", "rms_norm_across_heads"),
    JSON_ONLY("quantization_config", ""),
    JSON_END};

/* The defaults are the defaults of the diffusers class. */
static void read_sizes(struct settings *s, struct wan_config *c)
{
    const int64_t in = settings_int(s, "in_channels", 16);

    c->heads = settings_int(s, "num_attention_heads", 40);
    c->head = settings_int(s, "attention_head_dim", 128);
    c->width = c->heads * c->head;
    c->layers = settings_layers(s, "num_layers", 40);
    c->channels = settings_int(s, "out_channels", 16);
    c->inner = settings_int(s, "ffn_dim", 13824);
    c->frequencies = settings_int(s, "freq_dim", 256);
    c->text_width = settings_int(s, "text_dim", 4096);
    c->text_tokens = TEXT_TOKENS;
    c->eps = settings_real(s, s->root, "eps", 1e-6);
    c->has_image = in != c->channels;
    c->sight = settings_int(s, "image_dim", 0);
    c->first = in == TI2V_CHANNELS;
    if (in != wan_in_channels(c))
        settings_refuse(s, "in_channels", "is neither \"out_channels\" nor twice as many and 4");
}

#define FIRST_AND_LAST "models of a first and a last frame (FLF2V) are not supported"

/* The features of a picture enter at the width of the model. */
static void check_sight(struct settings *s, const struct wan_config *c)
{
    if (settings_find(s, "pos_embed_seq_len"))
        settings_refuse(s, "pos_embed_seq_len", "is set: " FIRST_AND_LAST);
    if (c->sight && !c->has_image)
        settings_refuse(s, "image_dim", "is of I2V, and \"in_channels\" is not");
    if (settings_int(s, "added_kv_proj_dim", 0) != (c->sight ? c->width : 0))
        settings_refuse(s, "added_kv_proj_dim", "is not %lld",
                        (long long)(c->sight ? c->width : 0));
}

static void check_known(struct settings *s, const struct wan_config *c)
{
    const json_t *patch = settings_find(s, "patch_size");

    settings_allow(s, keys);
    for (size_t i = 0; i < 3 && patch; i++)
        if (json_array_size(patch) != 3 ||
            json_integer_value(json_array_get(patch, i)) != (i ? 2 : 1))
            settings_refuse(s, "patch_size", "is not [1, 2, 2]");
    if (settings_int(s, "rope_max_seq_len", WAN_POSITIONS) != WAN_POSITIONS)
        settings_refuse(s, "rope_max_seq_len", "is not %d", WAN_POSITIONS);
    check_sight(s, c);
    if (c->head % 16)
        settings_refuse(s, "attention_head_dim", "is not a multiple of 16");
    if (c->frequencies % 2)
        settings_refuse(s, "freq_dim", "is odd");
}

static int read_root(struct settings *s, struct wan_config *c)
{
    if (!settings_is_class(s, "WanTransformer3DModel"))
        return -1;
    read_sizes(s, c);
    check_known(s, c);
    return s->failed;
}

static int read_config(struct wan_config *c, const char *path)
{
    struct settings s;
    int rc = settings_open(&s, path) ? -1 : read_root(&s, c);

    settings_close(&s);
    return rc;
}

/* What the pipeline says: where the experts meet, and whether a first frame can be given. */
static int read_pipeline(struct wan_config *c, const char *path)
{
    struct settings s;
    int rc = settings_open(&s, path);

    if (!rc) {
        c->first = settings_flag(&s, "expand_timesteps", c->first);
        if (settings_find(&s, "boundary_ratio"))
            c->boundary = settings_real(&s, s.root, "boundary_ratio", 0);
        if (c->boundary >= 1)
            settings_refuse(&s, "boundary_ratio", "is not below 1");
        rc = s.failed;
    }
    settings_close(&s);
    return rc;
}

/* ---- weights -------------------------------------------------------------------------------- */

/* Sizes that the shapes of a file say. */
struct shapes {
    int64_t in, out, width, inner, layers, frequencies, text, sight;
    bool last; /* it reads a last frame, too */
};

/* Axis of a tensor with a size of the model, in both namings. */
static void note_shape(struct shapes *s, const struct ckpt_file_entry *e)
{
    static const char *const prefix = "model.diffusion_model.";
    const char *name = e->name + (strncmp(e->name, prefix, strlen(prefix)) ? 0 : strlen(prefix));
    const int64_t layer = strncmp(name, "blocks.", 7) ? -1 : strtoll(name + 7, NULL, 10);
    const struct {
        const char *name[2];
        int axis;
        int64_t *to;
    } rows[] = {
        {{"patch_embedding.weight", "patch_embedding.weight"}, 0, &s->width},
        {{"patch_embedding.weight", "patch_embedding.weight"}, 1, &s->in},
        {{"proj_out.weight", "head.head.weight"}, 0, &s->out},
        {{"blocks.0.ffn.net.0.proj.weight", "blocks.0.ffn.0.weight"}, 0, &s->inner},
        {{"condition_embedder.time_embedder.linear_1.weight", "time_embedding.0.weight"},
         1,
         &s->frequencies},
        {{"condition_embedder.text_embedder.linear_1.weight", "text_embedding.0.weight"},
         1,
         &s->text},
        {{"condition_embedder.image_embedder.ff.net.0.proj.weight", "img_emb.proj.1.weight"},
         1,
         &s->sight},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if ((!strcmp(name, rows[i].name[0]) || !strcmp(name, rows[i].name[1])) && e->ndim > 1)
            *rows[i].to = e->shape[rows[i].axis];
    if (layer >= s->layers)
        s->layers = layer < MOST_LAYERS ? layer + 1 : MOST_LAYERS + 1;
    s->last = s->last || !strcmp(name, "img_emb.emb_pos") ||
              !strcmp(name, "condition_embedder.image_embedder.pos_embed");
}

static bool is_wan(const struct shapes *s)
{
    const int64_t sizes[] = {s->width, s->inner, s->frequencies, s->text, s->out / 4, s->layers};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] < 1 || sizes[i] > MOST)
            return false;
    return s->width % HEAD == 0 && s->frequencies % 2 == 0 && s->layers <= MOST_LAYERS;
}

static int read_shapes(struct wan_config *c, const char *path)
{
    struct shapes s = {0};
    ckpt_file *f;

    if (ckpt_file_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    for (int i = 0; i < ckpt_file_count(f); i++) {
        struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
        if (!ckpt_file_entry(f, i, &e))
            note_shape(&s, &e);
    }
    ckpt_file_close(f);
    if (s.last)
        return say_fail("%s: " FIRST_AND_LAST, path);
    *c = (struct wan_config){.heads = s.width / HEAD,
                             .head = HEAD,
                             .layers = s.layers,
                             .width = s.width,
                             .inner = s.inner,
                             .channels = s.out / 4,
                             .has_image = s.in != s.out / 4,
                             .sight = s.sight,
                             .first = s.in == TI2V_CHANNELS,
                             .frequencies = s.frequencies,
                             .text_width = s.text,
                             .text_tokens = TEXT_TOKENS,
                             .eps = 1e-6};
    return is_wan(&s) && s.in == wan_in_channels(c)
               ? 0
               : say_fail("%s: the shapes in this file are not those of a Wan transformer", path);
}

/* ---- both ----------------------------------------------------------------------------------- */

static bool is_there(char to[PATH], const char *path, const char *inside)
{
    return snprintf(to, PATH, "%s/%s", path, inside) < PATH && !access(to, R_OK);
}

/* A config.json of diffusers; that of the original code has the class WanModel and other keys. */
static bool is_config(const char *path)
{
    struct settings s = {.root = json_keys_read(path)};
    const char *name = json_string_value(json_object_get(s.root, "_class_name"));
    bool is = name && strcmp(name, "WanModel");

    json_decref(s.root);
    return is;
}

static int find_files(const char *path, enum wan_expert expert, char files[PATH])
{
    static const char *const names[][2] = {{"transformer", "high_noise_model"},
                                           {"transformer_2", "low_noise_model"}};
    char other[PATH];

    for (int i = 0; i < 2; i++)
        if (is_there(files, path, names[expert][i]))
            return 0;
    if (is_there(other, path, names[WAN_HIGH][0]) || is_there(other, path, names[WAN_HIGH][1]))
        return say_fail("%s: there is neither %s nor %s: this is no pair of models", path,
                        names[expert][0], names[expert][1]);
    snprintf(files, PATH, "%s", path);
    return settings_exists(path);
}

int wan_config_read(struct wan_config *c, const char *path, enum wan_expert expert,
                    char files[PATH])
{
    const char *ending = strrchr(path, '.');
    char inside[PATH];

    *c = (struct wan_config){0};
    if (find_files(path, expert, files))
        return -1;
    bool given = ending && !strcmp(ending, ".json") && !strstr(path, ".index.");
    if (given)
        snprintf(inside, sizeof inside, "%s", path);
    given = (given || is_there(inside, files, "config.json")) && is_config(inside);
    if (given ? read_config(c, inside) : read_shapes(c, files))
        return -1;
    if (is_there(inside, path, "model_index.json"))
        return read_pipeline(c, inside);
    if (is_there(inside, path, "low_noise_model")) /* the original code has it in its programs */
        c->boundary = c->has_image ? 0.9 : 0.875;
    return 0;
}

const char *wan_config_name(const struct wan_config *c)
{
    if (c->sight)
        return c->layers == 40 ? "Wan 2.1 I2V-14B" : "Wan 2.1 I2V";
    if (c->has_image)
        return c->layers == 40 ? "Wan I2V-A14B" : "Wan I2V";
    if (c->first)
        return c->layers == 30 ? "Wan TI2V-5B" : "Wan TI2V";
    return c->layers == 40 ? "Wan T2V-14B" : c->width == 1536 ? "Wan T2V-1.3B" : "Wan T2V";
}
