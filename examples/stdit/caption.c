/* SPDX-License-Identifier: Apache-2.0 */
/* Text of clips from prompts: see caption.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../common/memory.h"
#include "../text/features.h"
#include "../text/prompts.h"
#include "../text/reader.h"
#include "caption.h"
#include "ckpt_tools.h"

/* ---- prompts ------------------------------------------------------------------------------- */

/* Appends a part, unless the prompt has one of that name. */
static void append(char *text, size_t size, const char *name, const char *value)
{
    size_t n = strlen(text);

    if (!strstr(text, name))
        snprintf(text + n, size - n, " %s: %s.", name, value);
}

char *stdit_prompt_text(const struct stdit_options *o, const char *prompt)
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

static int read_prompts(struct prompts *p, const struct stdit_options *o)
{
    if (o->prompt ? prompts_add(p, o->prompt, 1) : prompts_read(p, o->prompts))
        return -1;
    for (int64_t i = 0; i < p->n; i++) {
        char *text = stdit_prompt_text(o, p->text[i]);
        if (!text)
            return say_fail("no memory for a prompt");
        free(p->text[i]);
        p->text[i] = text;
    }
    return 0;
}

static int read_tokens(struct text_features *f, const struct prompts *p,
                       const struct stdit_options *o)
{
    const char *from = o->prompt ? "--prompt" : o->prompts;
    struct text_reader r;
    char path[4096];

    int rc = text_reader_open(
        &r, o->tokenizer ? o->tokenizer : text_tokenizer_path(o->text_encoder, path),
        text_reading(TEXT_OPENSORA));
    for (int64_t i = 0; i < p->n && !rc; i++)
        rc = text_reader_read(&r, p->text[i], p->line[i], f->ids + i * f->length, f->length,
                              &f->lengths[i]);
    if (!rc)
        text_reader_report(&r, from, f->length);
    text_reader_close(&r);
    return rc;
}

/* ---- features ------------------------------------------------------------------------------ */

/* y and mask out of the rows; without rows y is 0. */
static int fill(struct stdit_data *d, const struct text_features *f)
{
    int64_t numel = f->n * f->length * f->width;

    d->text_rows = f->n;
    d->tokens = f->length;
    d->caption_channels = f->width;
    d->y = MEMORY_FOR(sizeof *d->y, numel);
    d->mask = MEMORY_FOR(sizeof *d->mask, f->n, f->length);
    if (!d->y || !d->mask)
        return say_fail("no memory for the features of %lld prompts", (long long)f->n);
    if (!f->rows)
        memset(d->y, 0, (size_t)numel * sizeof *d->y);
    else if (f->dtype == CKPT_BF16)
        ckpt_from_bf16((const uint16_t *)(const void *)f->rows, d->y, numel);
    else
        memcpy(d->y, f->rows, (size_t)numel * sizeof *d->y);
    for (int64_t i = 0; i < f->n * f->length; i++)
        d->mask[i] = i % f->length < f->lengths[i / f->length];
    return 0;
}

static int encode(struct text_features *f, const struct stdit_options *o)
{
    struct text_reading reading = text_reading(TEXT_OPENSORA);
    struct text_encoder e;

    reading.length = f->length;
    int rc = text_encoder_open(&e, &o->library, o->text_encoder, f->dtype, reading,
                               f->n < 16 ? f->n : 16);
    f->width = e.width;
    if (!rc && !o->library.plan_only)
        rc = text_features_encode(f, &e, NULL, NULL);
    text_encoder_close(&e);
    return rc;
}

int stdit_data_prompts(struct stdit_data *d, const struct stdit_options *o)
{
    struct text_features f = {.family = TEXT_OPENSORA,
                              .dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16,
                              .length = o->text_tokens ? o->text_tokens
                                                       : text_reading(TEXT_OPENSORA).length};
    struct prompts p = {.n = 0};
    int rc = read_prompts(&p, o) || text_features_open(&f, p.n) || read_tokens(&f, &p, o) ||
             encode(&f, o) || fill(d, &f);

    text_features_close(&f);
    prompts_free(&p);
    return rc ? -1 : 0;
}
