/* SPDX-License-Identifier: Apache-2.0 */
/* Options that select the autoencoder, for all programs of this directory. */
#include <stdlib.h>
#include <string.h>
#include "../../common/options.h"
#include "../../common/say.h"
#include "ckpt_tools.h"
#include "model_options.h"

#define ROW(...)   CKPT_OPTION(struct vae_model_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct vae_model_options, __VA_ARGS__)

const struct ckpt_option vae_model_table[] = {
    ROW("model", STRING, model, "NAME", "preset: tiny or v1.2 (default tiny)"),
    RANGE("latent", INT, latent, "N", "channels of the latents (default: the preset's)", 1,
          VAE_LATENT),
    RANGE("groups", INT, groups, "N", "groups of the group norms (default: the preset's)", 1,
          65536),
    ROW("spatial-widths", STRING, spatial_widths, "N,N,...",
        "channels of the levels of the 2-D part; each level but the last halves the picture "
        "(default: the preset's)"),
    RANGE("spatial-layers", INT, spatial_layers, "N",
          "residual blocks per level of the 2-D part (default: the preset's)", 1, VAE_LAYERS),
    ROW("temporal-widths", STRING, temporal_widths, "N,N,...",
        "channels of the levels of the temporal part, at least three (default: the preset's)"),
    RANGE("temporal-layers", INT, temporal_layers, "N",
          "residual blocks per level of the temporal part (default: the preset's)", 1, VAE_LAYERS),
    DTYPE_ROW,
    {0},
};

static int parse_widths(const char *option, const char *text, struct vae_widths *w)
{
    const char *at = text;

    for (w->levels = 0; w->levels < VAE_LEVELS; at++) {
        char *end;
        long width = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : 0;
        if (width < 1 || width > 65536 || (*end && *end != ','))
            break;
        w->width[w->levels++] = width;
        at = end;
        if (!*end)
            return 0;
    }
    return say_fail("--%s %s: give up to %d widths, as 128,256,512,512", option, text, VAE_LEVELS);
}

static int check_widths(const char *option, const struct vae_config *c, const struct vae_widths *w)
{
    for (int i = 0; i < w->levels; i++)
        if (w->width[i] % c->groups)
            return say_fail("--%s: %lld channels do not divide into %lld groups", option,
                            (long long)w->width[i], (long long)c->groups);
    return 0;
}

static int check(const struct vae_config *c)
{
    if (c->temporal.levels < 3)
        return say_fail(
            "--temporal-widths: give at least three levels, because time is halved twice");
    if (check_widths("spatial-widths", c, &c->spatial))
        return -1;
    return check_widths("temporal-widths", c, &c->temporal);
}

/* 0: not given, so the preset's value stays. */
static void take(int64_t *value, int64_t given)
{
    if (given)
        *value = given;
}

int vae_model_configure(const struct vae_model_options *o, struct vae_config *config)
{
    if (!vae_preset(config, o->model))
        return say_fail("--model %s: no such preset; there are tiny and v1.2", o->model);
    config->dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16;
    take(&config->latent, o->latent);
    take(&config->groups, o->groups);
    take(&config->spatial.layers, o->spatial_layers);
    take(&config->temporal.layers, o->temporal_layers);
    if (o->spatial_widths && parse_widths("spatial-widths", o->spatial_widths, &config->spatial))
        return -1;
    if (o->temporal_widths &&
        parse_widths("temporal-widths", o->temporal_widths, &config->temporal))
        return -1;
    return check(config);
}
