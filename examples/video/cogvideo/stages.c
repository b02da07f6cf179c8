/* SPDX-License-Identifier: Apache-2.0 */
/* The stages before and after the transformer: see stages.h. */
#include <string.h>
#include "../../common/memory.h"
#include "../../common/say.h"
#include "stages.h"

int cogvideo_check_drawing(const struct cogvideo_options *o)
{
    if (o->solver && strcmp(o->solver, "ddim") && strcmp(o->solver, "dpm"))
        return say_fail("--solver %s: give ddim or dpm", o->solver);
    if (strcmp(o->guidance_kind, "constant") && strcmp(o->guidance_kind, "cosine") &&
        strcmp(o->guidance_kind, "reference"))
        return say_fail("--guidance-schedule %s: give constant, cosine or reference",
                        o->guidance_kind);
    return 0;
}

/* ---- text ---------------------------------------------------------------------------------- */

bool cogvideo_has_prompts(const struct cogvideo_options *o)
{
    return o->prompt || o->sample_prompts;
}

static struct text_captions captions(const struct cogvideo_options *o)
{
    return (struct text_captions){o->prompt ? "the prompt" : o->sample_prompts,
                                  o->text_encoder ? o->text_encoder : o->model, o->tokenizer,
                                  &o->library};
}

int cogvideo_prompts_read(struct cogvideo_prompts *p, const struct cogvideo_options *o)
{
    struct text_captions c = captions(o);

    p->features = (struct text_features){.family = TEXT_COGVIDEOX,
                                         .dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16,
                                         .length = o->config.text_tokens};
    if (o->prompt ? prompts_add(&p->list, o->prompt, 1) : prompts_read(&p->list, o->sample_prompts))
        return -1;
    return text_captions_read(&c, &p->list, &p->features);
}

int cogvideo_prompts_encode(struct cogvideo_prompts *p, const struct cogvideo_options *o, bool show)
{
    struct text_captions c = captions(o);

    if (text_captions_encode(&c, &p->features, show))
        return -1;
    if (p->features.width != o->config.text_width)
        return say_fail("%s: features of %lld; this model reads %lld", c.encoder,
                        (long long)p->features.width, (long long)o->config.text_width);
    return 0;
}

int cogvideo_prompts_take(struct cogvideo_prompts *p, float **y)
{
    struct text_features *f = &p->features;

    *y = MEMORY_FOR(sizeof **y, f->n, f->length, f->width);
    if (!*y)
        return say_fail("no memory for the features of %lld prompts", (long long)f->n);
    text_captions_rows(f, *y);
    text_features_close(f);
    return 0;
}

void cogvideo_prompts_close(struct cogvideo_prompts *p)
{
    text_features_close(&p->features);
    prompts_free(&p->list);
}

/* ---- the autoencoder ------------------------------------------------------------------------ */

int cogvideo_coder_configure(struct cogvae_coder *k, const struct cogvideo_options *o, bool decode)
{
    const struct cogvae_config *c = &k->m.config;

    k->options = (struct cogvae_coder_options)COGVAE_CODER_INIT;
    k->options.model = o->vae ? o->vae : o->model;
    k->options.dtype = o->dtype;
    if (cogvae_coder_config(k, decode))
        return -1;
    if (c->latent != o->config.out_channels || cogvae_factor(c) != 8)
        return say_fail("%s: this autoencoder has %lld channels for %lld x %lld pixels; the "
                        "transformer has %lld for 8 x 8",
                        k->directory, (long long)c->latent, (long long)cogvae_factor(c),
                        (long long)cogvae_factor(c), (long long)o->config.out_channels);
    return 0;
}
