/* SPDX-License-Identifier: Apache-2.0 */
/* From captions to features: see caption_pass.h. */
#include <stdlib.h>
#include <string.h>
#include "../../common/say.h"
#include "caption_pass.h"

enum { PASS = 16 /* captions per pass over the weights, as in text-encode */ };

int caption_pass_open(struct caption_pass *p)
{
    struct text_reading reading = text_reading(p->family);
    char path[4096];

    reading.length = p->length;
    p->masked = reading.masked;
    if (text_reader_open(&p->reader,
                         p->tokenizer ? p->tokenizer : text_tokenizer_path(p->encoder, path),
                         reading) ||
        text_encoder_open(&p->model, p->library, p->encoder, p->dtype, reading, PASS) ||
        text_encoder_check(&p->model, p->reader.tokenizer.count))
        return -1;
    p->features = (struct text_features){
        .family = p->family, .dtype = p->dtype, .length = p->length, .width = p->model.width};
    return 0;
}

void caption_pass_report(const struct caption_pass *p)
{
    text_reader_report(&p->reader, p->from, p->length);
}

void caption_pass_close(struct caption_pass *p)
{
    text_features_close(&p->features);
    text_reader_close(&p->reader);
    text_encoder_close(&p->model);
}

/* ---- rows ---------------------------------------------------------------------------------- */

static int read_captions(struct caption_pass *p, int64_t first)
{
    struct text_features *f = &p->features;

    for (int64_t i = 0; i < f->n; i++) {
        const char *caption = p->caption(p->user, first + i);
        if (text_reader_read(&p->reader, caption ? caption : "", first + i + 1,
                             f->ids + i * f->length, f->length, &f->lengths[i]))
            return -1;
    }
    return 0;
}

int caption_pass_make(struct caption_pass *p, int64_t first, int64_t n)
{
    text_features_close(&p->features);
    return text_features_open(&p->features, n) || read_captions(p, first) ||
                   text_features_encode(&p->features, &p->model, NULL, NULL)
               ? -1
               : 0;
}

int64_t caption_pass_tokens(const struct caption_pass *p, int64_t i)
{
    return p->masked ? p->features.lengths[i] : p->features.length;
}

int caption_pass_shard(struct caption_pass *p, const char *path, uint64_t setup, int64_t first,
                       int64_t n)
{
    const struct text_features *f = &p->features;
    int64_t row = f->length * f->width * ckpt_dtype_size(f->dtype);
    struct cache_writer w;
    char name[CACHE_PATH];

    if (caption_pass_make(p, first, n))
        return -1;
    int rc = cache_writer_open(&w, path, setup, n);
    for (int64_t i = 0; i < n && !rc; i++) {
        const char *caption = p->caption(p->user, first + i);
        struct cache_note note = {.row = first + i,
                                  .name = p->name(p->user, first + i, name),
                                  .from = cache_sum(caption, caption ? strlen(caption) : 0)};
        rc = cache_writer_add(&w, &note, f->dtype, 2,
                              (int64_t[]){caption_pass_tokens(p, i), f->width}, f->rows + i * row);
    }
    rc = rc ? rc : cache_writer_finish(&w);
    cache_writer_abandon(&w);
    return rc;
}

/* ---- setup of the cache -------------------------------------------------------------------- */

int cache_put_sum(json_t *j, const char *key, const char *path)
{
    uint64_t sum = 0;
    char text[CACHE_SUM];

    if (!path)
        return 0;
    if (cache_sum_path(path, &sum))
        return -1;
    return json_object_set_new(j, key, json_string(cache_sum_text(text, sum)))
               ? say_fail("no memory for the settings of a cache")
               : 0;
}

int caption_pass_describe(json_t *setup, const char *encoder, const char *tokenizer,
                          const char *dtype, int64_t tokens)
{
    json_t *text = json_pack("{s:s,s:I}", "dtype", dtype, "tokens", (json_int_t)tokens);
    char path[4096];

    if (json_object_set_new(setup, "text", text))
        return say_fail("no memory for the settings of a cache");
    return cache_put_sum(text, "encoder", text_model_path(encoder, path)) ||
                   cache_put_sum(text, "tokenizer",
                                 tokenizer ? tokenizer : text_tokenizer_path(encoder, path))
               ? -1
               : 0;
}
