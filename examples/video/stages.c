/* SPDX-License-Identifier: Apache-2.0 */
/* The stages before and after the transformer: see stages.h. */
#include <stdlib.h>
#include <string.h>
#include "../common/memory.h"
#include "../common/say.h"
#include "../common/video.h"
#include "latents.h"
#include "stages.h"
#include "wan/sight.h"

bool video_is_guided(const struct video_options *o)
{
    return o->guidance > 1 || o->guidance_low > 1;
}

struct video_drawing video_drawing(const struct video_options *o)
{
    return (struct video_drawing){o->solver, o->guidance_kind, o->guidance, o->guidance_low,
                                  o->sample_steps};
}

static void take_published(struct video_options *o)
{
    const struct video_sizes *c = &o->net.sizes;
    bool given = o->guidance >= 0;

    if (!given)
        o->guidance = c->guidance;
    if (o->guidance_low < 0)
        o->guidance_low = given || c->boundary <= 0 ? o->guidance : c->guidance_low;
}

int video_check_drawing(struct video_options *o)
{
    take_published(o);
    const struct video_drawing d = video_drawing(o);

    if (o->negative_prompt && (o->negative || !video_has_prompts(o)))
        return say_fail("--negative-prompt is encoded beside prompts: give --negative FILE beside "
                        "features, and one of the two");
    if ((o->negative_prompt || o->negative) && !video_is_guided(o))
        return say_fail("--negative%s is for guidance, and --guidance %g is none",
                        o->negative ? "" : "-prompt", o->guidance);
    if (o->sample_text && o->net.model->negative && video_is_guided(o) && !o->negative)
        return say_fail("--negative FILE is missing: features of the negative prompt, from "
                        "text-encode, or give --guidance 1");
    return o->net.model->check_drawing(&d);
}

/* Before the prompts are encoded, which takes longer than to find that there is no picture. */
static int open_picture(const char *path)
{
    struct video v;
    int rc = video_open(&v, path);

    video_close(&v);
    return rc;
}

/* Where a picture's features are to be computed, by whom; config.json says it. */
static int check_encoder(const struct video_options *o)
{
    char path[4096];

    if (o->image_encoder && !o->net.sizes.sight_tokens)
        return say_fail(
            "--image-encoder is for models that read features of a picture, and %s does "
            "not",
            o->net.sizes.name);
    if (o->image_encoder && !video_has_picture(o))
        return say_fail("--image-encoder is for a picture in --image");
    return video_has_picture(o) && o->net.sizes.sight_tokens && !o->image_encoder &&
                   sight_path(o->model, path) == o->model
               ? say_fail("there is no image_encoder/ in %s for the features of --image; give one "
                          "by --image-encoder DIR",
                          o->model)
               : 0;
}

int video_check_image(const struct video_options *o, const char *option)
{
    const struct video_sizes *c = &o->net.sizes;

    if (o->image && !c->has_image && !c->first_frame)
        return say_fail("%s is for I2V models", option);
    if (c->has_image && !o->image)
        return say_fail("%s FILE is missing: this model continues a picture", option);
    if (check_encoder(o))
        return -1;
    return video_has_picture(o) && !o->library.plan_only ? open_picture(o->image) : 0;
}

/* ---- text ---------------------------------------------------------------------------------- */

bool video_has_prompts(const struct video_options *o)
{
    return o->prompt || o->sample_prompts;
}

static struct text_captions captions(const struct video_options *o)
{
    return (struct text_captions){o->prompt ? "the prompt" : o->sample_prompts,
                                  o->text_encoder ? o->text_encoder : o->model, o->tokenizer,
                                  &o->library};
}

/* The negative prompt that is to be encoded, or NULL. */
static const char *negative_of(const struct video_options *o)
{
    if (o->negative || !video_is_guided(o))
        return NULL;
    return o->negative_prompt ? o->negative_prompt : o->net.model->negative;
}

int video_prompts_read(struct video_prompts *p, const struct video_options *o)
{
    struct text_captions c = captions(o);
    const char *negative = negative_of(o);

    p->features = (struct text_features){.family = o->net.model->text,
                                         .dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16,
                                         .length = o->net.sizes.text_tokens};
    if (o->prompt ? prompts_add(&p->list, o->prompt, 1) : prompts_read(&p->list, o->sample_prompts))
        return -1;
    p->clips = p->list.n;
    if (negative && prompts_add(&p->list, negative, p->list.n + 1))
        return -1;
    return text_captions_read(&c, &p->list, &p->features);
}

int video_prompts_encode(struct video_prompts *p, const struct video_options *o, bool show)
{
    struct text_captions c = captions(o);

    if (text_captions_encode(&c, &p->features, show))
        return -1;
    if (p->features.width != o->net.sizes.text_width)
        return say_fail("%s: features of %lld; this model reads %lld", c.encoder,
                        (long long)p->features.width, (long long)o->net.sizes.text_width);
    return 0;
}

int video_prompts_take(struct video_prompts *p, float **y, float **negative)
{
    struct text_features *f = &p->features;
    bool more = f->n > p->clips;

    *y = MEMORY_FOR(sizeof **y, f->n, f->length, f->width);
    if (more)
        *negative = MEMORY_FOR(sizeof **y, f->length, f->width);
    if (!*y || (more && !*negative))
        return say_fail("no memory for the features of %lld prompts", (long long)f->n);
    text_captions_rows(f, *y);
    if (more)
        memcpy(*negative, *y + p->clips * f->length * f->width,
               (size_t)(f->length * f->width) * sizeof **y);
    text_features_close(f);
    return 0;
}

void video_prompts_close(struct video_prompts *p)
{
    text_features_close(&p->features);
    prompts_free(&p->list);
}

/* ---- the autoencoder ------------------------------------------------------------------------ */

int video_coder_configure(struct video_coder *k, const struct video_options *o, bool decode)
{
    const struct autoencoder_sizes *c = &k->sizes;
    const struct video_sizes *s = &o->net.sizes;

    k->options = (struct video_coder_options)VIDEO_CODER_INIT;
    k->options.model = o->vae ? o->vae : o->model;
    k->options.dtype = o->dtype;
    if (video_coder_config(k, o->net.model->autoencoder, decode))
        return -1;
    if (c->latent != s->channels || c->factor != s->factor)
        return say_fail("%s: this autoencoder has %lld channels for %lld x %lld pixels; the "
                        "transformer has %lld for %lld x %lld",
                        k->directory, (long long)c->latent, (long long)c->factor,
                        (long long)c->factor, (long long)s->channels, (long long)s->factor,
                        (long long)s->factor);
    return 0;
}

/* ---- a picture ------------------------------------------------------------------------------ */

bool video_has_picture(const struct video_options *o)
{
    const char *end = o->image ? strrchr(o->image, '.') : NULL;

    return end && !strchr(end, '/') && strcmp(end, ".safetensors");
}

/* Scaled until it covers the size, and cropped. */
static int read_picture(const struct video_options *o, uint8_t *rgb)
{
    const struct picture_size size = {o->width, o->height, true};
    struct video v;
    int rc = video_open(&v, o->image), got = rc ? -1 : video_read(&v, 0, &size, rgb);

    video_close(&v);
    if (!rc && !got)
        say_fail("%s: there is no picture in it", o->image);
    return got > 0 ? 0 : -1;
}

static int run_picture(struct video_coder *k, const struct video_options *o, float **image)
{
    const struct autoencoder_clip *c = &k->clip;
    const int64_t factor = k->sizes.factor;
    struct video_latents l = {video_coder_clip_out(k), c->height / factor, c->width / factor,
                              2 * k->sizes.latent, NULL};
    uint8_t *rgb = MEMORY_FOR(3, c->height, c->width);
    float *x = MEMORY_FOR(sizeof *x, c->frames, c->height, c->width, 3);

    k->seen = 1;
    l.z = MEMORY_FOR(sizeof *l.z, l.frames, l.height, l.width, l.channels);
    *image = MEMORY_FOR(sizeof **image, l.frames, l.height, l.width, l.channels / 2);
    int rc = rgb && x && l.z && *image ? read_picture(o, rgb) : say_fail("no memory for a clip");
    if (!rc)
        rc = video_coder_encode(k, rgb, x, l.z) ||
             video_latents_draw(&l, (uint64_t)o->sample_seed, &k->sizes, "image.safetensors");
    if (!rc)
        video_latents_to(&l, *image);
    free(l.z);
    free(x);
    free(rgb);
    return rc ? -1 : 0;
}

static int run_sight(struct sight *s, const struct video_options *o, float **sight)
{
    const int64_t side = s->config.side;
    uint8_t *rgb = MEMORY_FOR(3, side, side);
    struct video v;
    int rc = video_open(&v, o->image);

    *sight = MEMORY_FOR(sizeof **sight, sight_rows(&s->config), s->config.width);
    if (!rc && (!rgb || !*sight))
        rc = say_fail("no memory for a picture");
    if (!rc)
        rc = sight_read(&s->config, &v, rgb) || sight_encode(s, rgb, *sight);
    video_close(&v);
    free(rgb);
    return rc ? -1 : 0;
}

static int encode_sight(const struct video_options *o, bool show, float **sight)
{
    const struct video_sizes *c = &o->net.sizes;
    const char *directory = o->image_encoder ? o->image_encoder : o->model;
    struct sight s;
    int rc =
        sight_open(&s, &o->library, directory, strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16);

    if (!rc)
        rc = sight_check(&s, directory, c->sight_tokens, c->sight_width);
    if (!rc && show) {
        ckpt_plan_print(s.program, stdout);
        fflush(stdout);
    }
    if (!rc && !o->library.plan_only)
        rc = run_sight(&s, o, sight);
    sight_close(&s);
    return rc ? -1 : 0;
}

int video_picture_encode(const struct video_options *o, bool show, float **image, float **sight)
{
    struct video_coder k = {.own = NULL};
    int rc = video_coder_configure(&k, o, false);

    k.options.library = o->library;
    k.options.library.runs = 1;
    k.shown = !show;
    if (!rc)
        rc = video_coder_open(&k) ||
             video_coder_compile(&k, o->net.sizes.whole_image ? o->frames : 1, o->height, o->width);
    if (!rc && !o->library.plan_only)
        rc = run_picture(&k, o, image);
    video_coder_close(&k);
    if (!rc && o->net.sizes.sight_tokens)
        rc = encode_sight(o, show, sight);
    return rc ? -1 : 0;
}
