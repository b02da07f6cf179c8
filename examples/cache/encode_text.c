/* SPDX-License-Identifier: Apache-2.0 */
/* The first pass of video-encode: captions to features, of the tokens that count. */
#include <stdlib.h>
#include <string.h>
#include "../text/captions.h"
#include "../text/reader.h"
#include "ckpt_tools.h"
#include "encode.h"

enum { PASS = 16 /* captions of a pass over the weights, as text-encode takes */ };

struct pass {
    struct encode *e;
    struct text_reader reader;
    struct text_encoder encoder;
    struct text_features features; /* of a shard */
    bool masked;                   /* padding is not read, so not stored */
    struct names without;          /* clips that have no caption */
};

static int read_captions(struct pass *p, int64_t first)
{
    struct text_features *f = &p->features;
    char name[CACHE_PATH];

    for (int64_t i = 0; i < f->n; i++) {
        const char *caption = stdit_videos_caption(&p->e->data.videos, first + i);
        if (!caption || !*caption)
            names_add(&p->without, encode_name(p->e, first + i, name));
        if (text_reader_read(&p->reader, caption ? caption : "", first + i + 1,
                             f->ids + i * f->length, f->length, &f->lengths[i]))
            return -1;
    }
    return 0;
}

static int write_shard(struct pass *p, const char *path, int64_t first)
{
    const struct text_features *f = &p->features;
    int64_t row = f->length * f->width * ckpt_dtype_size(f->dtype);
    struct cache_writer w;
    char name[CACHE_PATH];
    int rc = cache_writer_open(&w, path, p->e->sum, f->n);

    for (int64_t i = 0; i < f->n && !rc; i++) {
        struct cache_note note = {.row = first + i, .name = encode_name(p->e, first + i, name)};
        rc = cache_writer_add(&w, &note, f->dtype, 2,
                              (int64_t[]){p->masked ? f->lengths[i] : f->length, f->width},
                              f->rows + i * row);
    }
    rc = rc ? rc : cache_writer_finish(&w);
    cache_writer_abandon(&w);
    return rc;
}

static int make_shard(struct pass *p, int64_t shard)
{
    struct text_features *f = &p->features;
    char path[CACHE_PATH];
    int64_t first, n = encode_shard_rows(p->e, shard, &first);

    cache_shard_path(path, p->e->options.output, CACHE_TEXT, shard);
    int rc = text_features_open(f, n) || read_captions(p, first) ||
             text_features_encode(f, &p->encoder, NULL, NULL) || write_shard(p, path, first);
    text_features_close(f);
    p->e->made[CACHE_TEXT] += !rc;
    return rc ? -1 : 0;
}

static int make_shards(struct pass *p, int64_t shard)
{
    for (; shard >= 0 && shard < encode_shards(p->e);
         shard = encode_next_shard(p->e, CACHE_TEXT, shard + 1))
        if (make_shard(p, shard))
            return -1;
    return shard < 0 ? -1 : 0;
}

static int open_pass(struct pass *p)
{
    const struct stdit_options *o = &p->e->options.stdit;
    enum text_family family = p->e->options.model ? TEXT_COGVIDEOX : TEXT_OPENSORA;
    struct text_reading reading = text_reading(family);
    enum ckpt_dtype dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16;
    char path[4096];

    reading.length = o->text_tokens;
    p->masked = reading.masked;
    if (text_reader_open(&p->reader,
                         o->tokenizer ? o->tokenizer : text_tokenizer_path(o->text_encoder, path),
                         reading) ||
        text_encoder_open(&p->encoder, &p->e->library, o->text_encoder, dtype, reading, PASS) ||
        text_encoder_check(&p->encoder, p->reader.tokenizer.count))
        return -1;
    p->features = (struct text_features){
        .family = family, .dtype = dtype, .length = reading.length, .width = p->encoder.width};
    return 0;
}

int encode_text(struct encode *e)
{
    struct pass p = {.e = e};
    int64_t shard =
        e->options.stdit.text_encoder ? encode_next_shard(e, CACHE_TEXT, 0) : encode_shards(e);

    if (shard < 0 || shard == encode_shards(e))
        return shard < 0 ? -1 : 0;
    int rc = open_pass(&p);
    if (!rc && e->library.plan_only)
        ckpt_plan_print(p.encoder.program, stdout);
    else if (!rc)
        rc = make_shards(&p, shard);
    if (!rc)
        text_reader_report(&p.reader, e->options.stdit.video_dir, e->options.stdit.text_tokens);
    names_report(&p.without, e->options.stdit.video_dir, "no caption, so an empty one, of");
    text_reader_close(&p.reader);
    text_encoder_close(&p.encoder);
    return rc;
}
