/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of Wan's autoencoders. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "vae.h"

bool wanvae_halves(int level)
{
    return level == 1 || level == 2;
}

bool wanvae_doubles(int level)
{
    return level == 0 || level == 1;
}

/* Makes parameters under a prefix; all are frozen. */
struct maker {
    const struct wanvae_config *config;
    struct wanvae_tower *tower;
    struct ckpt_nn nn;
    const char *side; /* "encoder" or "decoder" */
};

/* The name of a parameter or module, begun by `at`. */
struct name {
    char text[128];
};

__attribute__((format(printf, 1, 2))) static struct name name_of(const char *format, ...)
{
    struct name n;
    va_list list;

    va_start(list, format);
    vsnprintf(n.text, sizeof n.text, format, list);
    va_end(list);
    return n;
}

/* A convolution of single frames: 1 x 1, or 3 x 3. */
static struct wanvae_conv make_flat(struct maker *k, struct name n, int64_t in, int64_t out,
                                    int64_t size, int axes)
{
    int64_t kernel[] = {size, size, size};

    return (struct wanvae_conv){
        ckpt_nn_conv(&k->nn, in, out, axes, kernel, NULL, true, WANVAE_PREFIX "%s", n.text), -1};
}

/* One that reads two earlier frames, in 3 x size x size positions. */
static struct wanvae_conv make_causal(struct maker *k, struct name n, int64_t in, int64_t out,
                                      int64_t size)
{
    int64_t kernel[] = {3, size, size};

    return (struct wanvae_conv){
        ckpt_nn_conv(&k->nn, in, out, 3, kernel, NULL, true, WANVAE_PREFIX "%s", n.text),
        k->tower->caches++};
}

static ckpt_tensor make_gamma(struct maker *k, struct name n, int64_t width)
{
    struct name full = name_of(WANVAE_PREFIX "%s.gamma", n.text);

    return ckpt_param(k->nn.context, full.text, k->nn.dtype, 1, &width, CKPT_ONES, false);
}

static struct wanvae_res make_res(struct maker *k, struct name n, int64_t in, int64_t out)
{
    struct wanvae_res r = {.shortcut.cache = -1};

    for (int i = 0; i < 2; i++) {
        r.gamma[i] = make_gamma(k, name_of("%s.norm%d", n.text, i + 1), i ? out : in);
        r.conv[i] = make_causal(k, name_of("%s.conv%d", n.text, i + 1), i ? out : in, out, 3);
    }
    if (in != out)
        r.shortcut = make_flat(k, name_of("%s.conv_shortcut", n.text), in, out, 1, 3);
    return r;
}

static void make_middle(struct maker *k, int64_t width)
{
    struct wanvae_tower *s = k->tower;
    struct name at = name_of("%s.mid_block.attentions.0", k->side);

    for (int i = 0; i < 2; i++)
        s->middle[i] = make_res(k, name_of("%s.mid_block.resnets.%d", k->side, i), width, width);
    s->attention_gamma = make_gamma(k, name_of("%s.norm", at.text), width);
    s->qkv = make_flat(k, name_of("%s.to_qkv", at.text), width, 3 * width, 1, 2);
    s->proj = make_flat(k, name_of("%s.proj", at.text), width, width, 1, 2);
}

/* The files of 2.1 number blocks and resampling of the encoder in one list. */
static struct name down_name(const struct maker *k, int level, int64_t i)
{
    const struct wanvae_config *c = k->config;

    if (!c->shortcuts)
        return name_of("encoder.down_blocks.%lld", (long long)(level * (c->layers + 1) + i));
    return i < c->layers ? name_of("encoder.down_blocks.%d.resnets.%lld", level, (long long)i)
                         : name_of("encoder.down_blocks.%d.downsampler", level);
}

static void make_encoder(struct maker *k)
{
    const struct wanvae_config *c = k->config;
    struct wanvae_tower *s = k->tower;
    int64_t width[] = {c->base, 2 * c->base, 4 * c->base, 4 * c->base}, in = c->base;

    s->in = make_causal(k, name_of("encoder.conv_in"), 3 * c->patch * c->patch, in, 3);
    for (int i = 0; i < WANVAE_LEVELS; i++) {
        struct wanvae_level *l = &s->level[i];
        for (int64_t j = 0; j < c->layers; j++, in = width[i])
            l->res[j] = make_res(k, down_name(k, i, j), in, width[i]);
        struct name at = down_name(k, i, c->layers);
        if (i + 1 < WANVAE_LEVELS)
            l->space = make_flat(k, name_of("%s.resample.1", at.text), in, in, 3, 2);
        if (wanvae_halves(i))
            l->time = make_causal(k, name_of("%s.time_conv", at.text), in, in, 1);
    }
    make_middle(k, in);
    s->gamma = make_gamma(k, name_of("encoder.norm_out"), in);
    s->out = make_causal(k, name_of("encoder.conv_out"), in, 2 * c->latent, 3);
    s->quant = make_flat(k, name_of("quant_conv"), 2 * c->latent, 2 * c->latent, 1, 3);
}

static void make_decoder(struct maker *k)
{
    const struct wanvae_config *c = k->config;
    struct wanvae_tower *s = k->tower;
    int64_t base = c->decoder_base, width[] = {4 * base, 4 * base, 2 * base, base}, in = width[0];

    s->quant = make_flat(k, name_of("post_quant_conv"), c->latent, c->latent, 1, 3);
    s->in = make_causal(k, name_of("decoder.conv_in"), c->latent, in, 3);
    make_middle(k, in);
    for (int i = 0; i < WANVAE_LEVELS; i++) {
        struct wanvae_level *l = &s->level[i];
        for (int64_t j = 0; j <= c->layers; j++, in = width[i])
            l->res[j] = make_res(k, name_of("decoder.up_blocks.%d.resnets.%lld", i, (long long)j),
                                 in, width[i]);
        struct name at = name_of("decoder.up_blocks.%d.upsampler%s", i, c->shortcuts ? "" : "s.0");
        if (wanvae_doubles(i))
            l->time = make_causal(k, name_of("%s.time_conv", at.text), in, 2 * in, 1);
        int64_t out = c->shortcuts ? in : in / 2;
        if (i + 1 == WANVAE_LEVELS)
            break;
        l->space = make_flat(k, name_of("%s.resample.1", at.text), in, out, 3, 2);
        in = out;
    }
    s->gamma = make_gamma(k, name_of("decoder.norm_out"), in);
    s->out = make_causal(k, name_of("decoder.conv_out"), in, 3 * c->patch * c->patch, 3);
}

void wanvae_create(struct wanvae *m, ckpt *c, bool decode)
{
    struct maker k = {&m->config, &m->tower, CKPT_NN_INIT, decode ? "decoder" : "encoder"};

    k.nn.context = c;
    k.nn.dtype = m->config.dtype;
    k.nn.frozen = true;
    m->tower = (struct wanvae_tower){.caches = 0};
    if (decode)
        make_decoder(&k);
    else
        make_encoder(&k);
}
