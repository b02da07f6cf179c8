/* SPDX-License-Identifier: Apache-2.0 */
/* Text of clips from prompts: see caption.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../common/memory.h"
#include "caption.h"
#include "ckpt_tools.h"

/* ---- scores -------------------------------------------------------------------------------- */

/* Appends a part, unless the prompt already has one of this name. */
static void append(char *text, size_t size, const char *name, const char *value)
{
    size_t n = strlen(text);

    if (!strstr(text, name))
        snprintf(text + n, size - n, " %s: %s.", name, value);
}

char *stdit_prompt_text(const struct video_options *o, const char *prompt)
{
    const char *camera = o->camera ? o->camera : "";
    size_t size = strlen(prompt) + strlen(camera) + 128;
    char *text = malloc(size), number[32];

    if (!text)
        return NULL;
    memcpy(text, prompt, strlen(prompt) + 1);
    snprintf(number, sizeof number, "%.1f", o->aes);
    if (!isnan(o->aes))
        append(text, size, "aesthetic score", number);
    snprintf(number, sizeof number, "%.1f", o->flow);
    if (!isnan(o->flow))
        append(text, size, "motion score", number);
    if (o->camera)
        append(text, size, "camera motion", camera);
    return text;
}

/* ---- features ------------------------------------------------------------------------------ */

/* Fills y and mask from the rows. */
static int fill(struct video_data *d, const struct text_features *f)
{
    d->text_rows = f->n;
    d->tokens = f->length;
    d->text_width = f->width;
    free(d->y);
    free(d->mask);
    d->y = MEMORY_FOR(sizeof *d->y, f->n, f->length, f->width);
    d->mask = MEMORY_FOR(sizeof *d->mask, f->n, f->length);
    if (!d->y || !d->mask)
        return say_fail("no memory for the features of %lld prompts", (long long)f->n);
    text_captions_rows(f, d->y);
    for (int64_t i = 0; i < f->n * f->length; i++)
        d->mask[i] = i % f->length < f->lengths[i / f->length];
    return 0;
}

int stdit_captions_read(struct stdit_captions *c, const struct prompts *texts,
                        const struct video_options *o)
{
    *c = (struct stdit_captions){
        .how = {o->prompt ? "--prompt" : o->prompts, o->text_encoder, o->tokenizer, NULL},
        .features = {.family = TEXT_OPENSORA,
                     .dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16,
                     .length =
                         o->text_tokens ? o->text_tokens : text_reading(TEXT_OPENSORA).length}};
    return text_captions_read(&c->how, texts, &c->features);
}

int stdit_captions_encode(struct stdit_captions *c, struct video_data *d,
                          const struct ckpt_options *library)
{
    struct ckpt_options own = *library;

    own.micro_batch = 0; /* the option counts clips, not prompts */
    c->how.library = &own;
    return text_captions_encode(&c->how, &c->features, false) || fill(d, &c->features) ? -1 : 0;
}

void stdit_captions_close(struct stdit_captions *c)
{
    text_features_close(&c->features);
}
