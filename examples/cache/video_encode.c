/* SPDX-License-Identifier: Apache-2.0 */
/*
 * video-encode: from videos and captions to a cache of latents and text features.  Shards are
 * assigned to ranks in turn, and a rank needs no other rank to make them; the last rank to finish
 * writes the manifest.
 */
#include <stdlib.h>
#include <string.h>
#include "../common/signals.h"
#include "caption_pass.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "encode.h"

const char say_program[] = "video-encode";

/* ---- shards -------------------------------------------------------------------------------- */

int64_t encode_shards(const struct encode *e)
{
    return (e->data.rows + e->options.shard - 1) / e->options.shard;
}

int64_t encode_shard_rows(const struct encode *e, int64_t shard, int64_t *first)
{
    *first = shard * e->options.shard;
    int64_t left = e->data.rows - *first;

    return left < e->options.shard ? (left > 0 ? left : 0) : e->options.shard;
}

int64_t encode_next_shard(struct encode *e, enum cache_part part, int64_t shard)
{
    char path[CACHE_PATH];

    for (; shard < encode_shards(e); shard++) {
        if (shard % e->ranks != e->rank)
            continue;
        if (e->library.plan_only)
            return shard;
        cache_shard_path(path, e->options.output, part, shard);
        int rc = cache_shard_is_there(path, e->sum);
        if (rc <= 0)
            return rc ? -1 : shard;
    }
    return encode_shards(e);
}

const char *encode_name(const struct encode *e, int64_t row, char dst[CACHE_PATH])
{
    struct clip c = {.frames = 1};
    const struct video_file *f = stdit_videos_find(&e->data.videos, row, 0, &c);
    const char *slash = strrchr(f->path, '/');

    snprintf(dst, CACHE_PATH, "%s%s%s", slash ? slash + 1 : f->path, f->member ? "/" : "",
             f->member ? f->member : "");
    return dst;
}

/* ---- setup of the cache -------------------------------------------------------------------- */

/* Checksum of names, sizes and captions. */
static uint64_t sum_data(const struct encode *e)
{
    const struct stdit_videos *v = &e->data.videos;
    uint64_t sum[3] = {0};
    char name[CACHE_PATH];

    for (int64_t i = 0; i < e->data.rows; i++) {
        const char *caption = stdit_videos_caption(v, i);
        encode_name(e, i, name);
        sum[1] = cache_sum(name, strlen(name));
        sum[2] = caption ? cache_sum(caption, strlen(caption)) : 0;
        sum[0] = cache_sum(sum, sizeof sum);
        if (e->data.size)
            sum[0] ^= cache_sum(&e->data.size[i], sizeof e->data.size[i]);
    }
    return sum[0];
}

static int describe(struct encode *e)
{
    const struct stdit_options *o = &e->options.stdit;
    const struct stdit_data *d = &e->data;
    char data[17];

    snprintf(data, sizeof data, "%016llx", (unsigned long long)sum_data(e));
    e->setup =
        json_pack("{s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:I}", "family",
                  e->options.model ? "cogvideox" : "opensora", "vae_model", o->vae_model, "dtype",
                  o->dtype, "stored", e->options.stored, "data", data, "seed",
                  (json_int_t)o->library.seed, "stride", (json_int_t)(o->stride ? o->stride : 1),
                  "rows", (json_int_t)d->rows, "shard", (json_int_t)e->options.shard);
    if (!d->buckets.n)
        json_object_set_new(e->setup, "clip",
                            json_pack("[I,I,I]", (json_int_t)d->shape->clips.frames,
                                      (json_int_t)d->shape->clips.height,
                                      (json_int_t)d->shape->clips.width));
    if (cache_put_sum(e->setup, "vae", e->options.model ? e->cogvideo.directory : o->vae) ||
        cache_put_sum(e->setup, "buckets", o->buckets) ||
        (o->text_encoder &&
         caption_pass_describe(e->setup, o->text_encoder, o->tokenizer, o->dtype, o->text_tokens)))
        return -1;
    e->sum = cache_setup_sum(e->setup);
    return 0;
}

/* ---- main ---------------------------------------------------------------------------------- */

/* A rendezvous of the ranks gives them their numbers and checks that all have the same options;
 * after it they are independent.  It needs no GPU: CUDA_VISIBLE_DEVICES selects the GPU of each
 * rank. */
static int meet(struct encode *e, ckpt **c)
{
    struct ckpt_options meeting = e->options.stdit.library;

    e->ranks = 1;
    if (!meeting.ranks)
        return options_alone(&meeting);
    meeting.device = "cpu";
    meeting.vram = CKPT_VRAM_NONE;
    meeting.host = 0;
    meeting.nvme = NULL;
    if (ckpt_open(c, &meeting))
        return say_fail("%s", ckpt_error(NULL));
    e->rank = ckpt_rank(*c);
    e->ranks = ckpt_ranks(*c);
    say_as_rank(e->rank, e->ranks);
    return encode_options_agree(&e->options, *c);
}

static int agree(const struct encode *e, ckpt *c)
{
    const struct ckpt_fact fact = {"encoders and data", &e->sum, sizeof e->sum};

    return c && ckpt_agree(c, &fact, 1) ? say_fail("%s", ckpt_error(c)) : 0;
}

static int open_data(struct encode *e)
{
    return e->options.model ? encode_cogvideo_data(e)
                            : stdit_data_open(&e->data, &e->options.stdit, false);
}

static int prepare(struct encode *e)
{
    ckpt *c = NULL;
    int rc = meet(e, &c) || open_data(e) || describe(e) || agree(e, c);

    ckpt_close(c);
    e->library = e->options.stdit.library;
    e->library.ranks = NULL;
    return rc ? -1 : 0;
}

static int check(const char *output)
{
    struct cache c;
    int rc = cache_open(&c, output, true);

    if (!rc)
        say_print("%s: %lld shards, %lld clips: all checksums match\n", output,
                  (long long)c.n_shards, (long long)c.present);
    cache_close(&c);
    return rc;
}

static int finish(const struct encode *e)
{
    const char *output = e->options.output;
    int64_t missing = cache_manifest_write(output, e->setup, e->data.rows, e->options.shard);

    if (missing < 0)
        return -1;
    say_print("%s: %lld shards of latents and %lld of text were made, %lld clips could not be "
              "read; %s\n",
              output, (long long)e->made[CACHE_LATENTS], (long long)e->made[CACHE_TEXT],
              (long long)e->bad,
              missing ? "other ranks have not finished their shards" : "the manifest is written");
    return 0;
}

static int go(struct encode *e)
{
    if (e->options.check)
        return check(e->options.output);
    if (prepare(e))
        return -1;
    say_print("%s\n", e->data.title);
    if (encode_text(e) || encode_latents(e))
        return -1;
    return e->library.plan_only ? 0 : finish(e);
}

int main(int argc, char **argv)
{
    struct encode e = {.rank = 0};

    say_begin();
    signals_open();
    int rc = encode_options_parse(&e.options, argc, argv);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&e);
    stdit_data_close(&e.data);
    json_decref(e.setup);
    return say_finish(rc ? 1 : 0);
}
