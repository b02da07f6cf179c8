/* SPDX-License-Identifier: Apache-2.0 */
/*
 * video-encode: from videos and captions to a cache of latents and text features.  Shards are
 * assigned to ranks in turn, and a rank needs no other rank to make them; the last rank to finish
 * writes the manifest.
 */
#include <stdlib.h>
#include <string.h>
#include "../../common/json_make.h"
#include "../../common/lock.h"
#include "../../common/memory.h"
#include "caption_pass.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "../wan/sight.h"
#include "encode.h"

const char say_program[] = "video-encode";

/* ---- caches of another run ----------------------------------------------------------------- */

/* What differs between the settings of a cache and those of this run. */
static const char *differences(const json_t *was, const json_t *is, char dst[NAMES_TEXT])
{
    const json_t *of[] = {was, is};
    struct names found = {.n = 0};
    const char *key;
    json_t *value;

    for (int i = 0; i < 2; i++)
        json_object_foreach((json_t *)(uintptr_t)of[i], key, value)
        {
            const json_t *other = json_object_get(of[!i], key);
            if (!json_equal(value, other) && (!i || !other))
                names_add(&found, strcmp(key, "data") ? key : "data (videos and captions)");
        }
    return names_text(&found, dst);
}

/* A cache that is unfinished has no manifest. */
static void note_differences(const struct encode *e)
{
    char path[CACHE_PATH], text[NAMES_TEXT];

    snprintf(path, sizeof path, "%s/manifest.json", e->options.output);
    json_t *manifest = json_load_file(path, 0, NULL);
    differences(json_object_get(manifest, "setup"), e->setup, text);
    if (manifest && *text)
        say_note("%s: other than in this run: %s", path, text);
    json_decref(manifest);
}

/* ---- shards -------------------------------------------------------------------------------- */

int64_t encode_shards(const struct encode *e)
{
    return (e->data.shapes.rows + e->options.shard - 1) / e->options.shard;
}

int64_t encode_shard_rows(const struct encode *e, int64_t shard, int64_t *first)
{
    *first = shard * e->options.shard;
    int64_t left = e->data.shapes.rows - *first;

    return left < e->options.shard ? (left > 0 ? left : 0) : e->options.shard;
}

static int begin_list(struct encode *e, int64_t shards)
{
    free(e->todo);
    e->n_todo = 0;
    e->todo = MEMORY_FOR(sizeof *e->todo, shards);
    return e->todo ? 0 : say_fail("no memory for a list of %lld shards", (long long)shards);
}

static int list_all_shards(struct encode *e)
{
    const int64_t shards = encode_shards(e);

    if (begin_list(e, shards))
        return -1;
    for (int64_t i = 0; i < shards; i++)
        e->todo[e->n_todo++] = i;
    return 0;
}

int encode_list_shards(struct encode *e, enum cache_part part)
{
    char path[CACHE_PATH];
    int64_t first, shards = encode_shards(e);

    if (begin_list(e, shards / e->ranks + 1))
        return -1;
    for (int64_t shard = e->rank; shard < shards; shard += e->ranks) {
        int64_t n = encode_shard_rows(e, shard, &first);
        cache_shard_path(path, e->options.output, part, shard);
        int rc = e->library.plan_only ? 0 : cache_shard_is_there(path, e->sum, first, n);
        if (rc < 0) {
            note_differences(e);
            return -1;
        }
        if (!rc)
            e->todo[e->n_todo++] = shard;
    }
    return 0;
}

const char *encode_name(const struct encode *e, int64_t row, char dst[CACHE_PATH])
{
    struct clip c = {.frames = 1};
    const struct video_file *f = videos_find(&e->data.videos, row, 0, &c);
    const char *slash = strrchr(f->path, '/');

    snprintf(dst, CACHE_PATH, "%s%s%s", slash ? slash + 1 : f->path, f->member ? "/" : "",
             f->member ? f->member : "");
    return dst;
}

/* ---- setup of the cache -------------------------------------------------------------------- */

/* Checksum of names, sizes and captions. */
static uint64_t sum_data(const struct encode *e)
{
    const struct videos *v = &e->data.videos;
    uint64_t sum[3] = {0};
    char name[CACHE_PATH];

    for (int64_t i = 0; i < e->data.shapes.rows; i++) {
        const char *caption = videos_caption(v, i);
        encode_name(e, i, name);
        sum[1] = cache_sum(name, strlen(name));
        sum[2] = caption ? cache_sum(caption, strlen(caption)) : 0;
        sum[0] = cache_sum(sum, sizeof sum);
        if (e->data.shapes.size)
            sum[0] ^= cache_sum(&e->data.shapes.size[i], sizeof e->data.shapes.size[i]);
    }
    return sum[0];
}

static json_t *make_setup(const struct encode *e, const char *data)
{
    const struct video_options *o = &e->options.video;

    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:I}", "family", e->family->name(e),
                     "vae_model", o->vae_model, "dtype", o->dtype, "stored", e->options.stored,
                     "data", data, "seed", (json_int_t)o->library.seed, "stride",
                     (json_int_t)(o->stride ? o->stride : 1), "rows",
                     (json_int_t)e->data.shapes.rows, "shard", (json_int_t)e->options.shard);
}

static int describe_sight(struct encode *e)
{
    const char *directory = e->options.image_encoder;
    char at[CACHE_PATH], processor[CACHE_PATH];
    json_t *sight = json_object();

    if (json_object_set_new(e->setup, "sight", sight))
        return say_fail("no memory for the settings of a cache");
    const char *encoder = sight_path(directory, at);
    return cache_put_sum(sight, "encoder", encoder) ||
                   cache_put_sum(sight, "processor", sight_processor(encoder, processor))
               ? -1
               : 0;
}

static int describe(struct encode *e)
{
    const struct video_options *o = &e->options.video;
    const struct video_data *d = &e->data;
    char data[CACHE_SUM];
    bool failed = false;

    e->setup = make_setup(e, cache_sum_text(data, sum_data(e)));
    if (!d->shapes.buckets.n)
        json_make_set(e->setup, "clip",
                      json_pack("[I,I,I]", (json_int_t)d->shapes.shape->clips.frames,
                                (json_int_t)d->shapes.shape->clips.height,
                                (json_int_t)d->shapes.shape->clips.width),
                      &failed);
    if (e->options.first)
        json_make_set(e->setup, "first_frame", json_true(), &failed);
    if (strcmp(e->options.fit, "stretch"))
        json_make_set(e->setup, "fit", json_string(e->options.fit), &failed);
    if (e->options.fps > 0)
        json_make_set(e->setup, "fps", json_real(e->options.fps), &failed);
    if (!e->setup || failed)
        return say_fail("no memory for the settings of a cache");
    if (cache_put_sum(e->setup, "vae", e->family->weights(e)) ||
        cache_put_sum(e->setup, "buckets", o->buckets) ||
        (o->text_encoder &&
         caption_pass_describe(e->setup, o->text_encoder, o->tokenizer, o->dtype, o->text_tokens)))
        return -1;
    if (e->options.image_encoder && describe_sight(e))
        return -1;
    e->sum = cache_setup_sum(e->setup);
    return e->sum ? 0 : say_fail("no memory for the settings of a cache");
}

/* ---- main ---------------------------------------------------------------------------------- */

/* A rendezvous of the ranks gives them their numbers and checks that all have the same options;
 * after it they are independent.  It needs no GPU: CUDA_VISIBLE_DEVICES selects the GPU of each
 * rank. */
static int meet(struct encode *e, ckpt **c)
{
    struct ckpt_options rendezvous = e->options.video.library;

    e->ranks = 1;
    if (!rendezvous.ranks)
        return options_alone(&rendezvous);
    rendezvous.device = "cpu";
    rendezvous.vram = CKPT_VRAM_NONE;
    rendezvous.host = 0;
    rendezvous.nvme = NULL;
    if (ckpt_open(c, &rendezvous))
        return say_fail("%s", ckpt_error(NULL));
    e->rank = ckpt_rank(*c);
    e->ranks = ckpt_ranks(*c);
    say_as_rank(e->rank, e->ranks);
    return encode_options_agree(&e->options, *c);
}

static int agree(const struct encode *e, ckpt *c, const char *what)
{
    const struct ckpt_fact fact = {what, &e->sum, sizeof e->sum};

    return c && ckpt_agree(c, &fact, 1) ? say_fail("%s", ckpt_error(c)) : 0;
}

/* One run writes a cache at a time.  Its ranks share the lock, because each writes until its own
 * end; no rank goes on before all have it. */
static int lock(const struct encode *e, ckpt *c)
{
    const char *output = e->options.output;

    if (e->options.video.library.plan_only)
        return 0;
    if (!c)
        return lock_take("--output", output, true);
    if (!e->rank && lock_share("--output", output, true))
        return -1;
    if (agree(e, c, "lock of --output") || (e->rank && lock_join("--output", output, true)))
        return -1;
    return agree(e, c, "lock of --output");
}

static int prepare(struct encode *e)
{
    ckpt *c = NULL;
    int rc = meet(e, &c) || (!e->options.check && lock(e, c)) || e->family->data(e) ||
             describe(e) || agree(e, c, "encoders and data");

    if (rc && c)
        ckpt_give_up(c, NULL, say_failure());
    ckpt_close(c);
    e->library = e->options.video.library;
    e->library.ranks = NULL;
    return rc ? -1 : 0;
}

/* Compares a cache with the data and the settings of this command line. */
static int check_data(struct encode *e, const struct cache *c)
{
    const char *output = e->options.output;
    char text[NAMES_TEXT];

    if (prepare(e))
        return -1;
    if (cache_setup_sum(c->setup) != e->sum)
        return say_fail("%s: was made with other settings, another encoder, or other videos or "
                        "captions: %s",
                        output, differences(c->setup, e->setup, text));
    if (list_all_shards(e))
        return -1;
    const int64_t n = encode_check_latents(e, c), sights = n < 0 ? -1 : encode_check_sight(e, c);
    if (sights < 0)
        return -1;
    say_print("%s: %lld clips are made from the frames and captions of %s\n", output, (long long)n,
              e->options.video.video_dir);
    if (e->options.image_encoder)
        say_print("%s: %lld features of first frames are made from the same videos\n", output,
                  (long long)sights);
    return 0;
}

static int check(struct encode *e)
{
    const char *output = e->options.output;
    struct cache c;
    int rc = cache_open(&c, output, true) || cache_check_sources(&c, output);

    if (!rc)
        say_print("%s: %lld shards, %lld clips: all checksums match\n", output,
                  (long long)c.n_shards, (long long)c.present);
    if (!rc && e->options.video.video_dir)
        rc = check_data(e, &c);
    cache_close(&c);
    return rc ? -1 : 0;
}

static void report_lengths(const struct encode *e, enum clip_length kind, const char *what)
{
    struct names clips = {.n = 0};
    char name[CACHE_PATH], text[NAMES_TEXT];

    for (int64_t i = 0; e->lengths && i < e->data.shapes.rows; i++)
        if (e->lengths[i] == kind)
            names_add(&clips, encode_name(e, i, name));
    if (clips.n)
        say_print("%s: %lld: %s\n", what, (long long)clips.n, names_text(&clips, text));
}

static int finish(struct encode *e)
{
    const long long longer = atomic_load(&e->longer);
    const char *output = e->options.output;
    const struct videos *v = &e->data.videos;
    int64_t missing = cache_manifest_write(output, e->setup, e->data.shapes.rows, e->options.shard,
                                           v->left, v->n_left);

    if (missing < 0)
        return -1;
    for (int64_t i = 0; i < v->n_left && !e->rank; i++)
        names_add(&e->bad, v->left[i]);
    report_lengths(e, CLIP_PHOTO, "clips of one frame, as photos are, which do not move");
    report_lengths(e, CLIP_SHORT,
                   "clips with fewer frames than were asked for, whose last frame is repeated");
    if (longer)
        say_print("videos of which only the beginning is used (--fps): %lld\n", longer);
    if (e->options.image_encoder)
        say_print("%s: %lld shards of features of first frames were made\n", output,
                  (long long)e->made[CACHE_SIGHT]);
    say_print("%s: %lld shards of latents and %lld of text were made, %lld clips could not be "
              "read; %s\n",
              output, (long long)e->made[CACHE_LATENTS], (long long)e->made[CACHE_TEXT],
              (long long)e->bad.n,
              missing ? "other ranks have not finished their shards" : "the manifest is written");
    names_report(&e->bad, output, "could not be read and are skipped");
    return 0;
}

static int go(struct encode *e)
{
    if (e->options.check)
        return check(e);
    if (prepare(e))
        return -1;
    say_print("%s\n", e->data.title);
    if (encode_text(e) || encode_sight(e) || encode_latents(e))
        return -1;
    return e->library.plan_only ? 0 : finish(e);
}

int main(int argc, char **argv)
{
    static struct encode e;

    say_begin();
    int rc = encode_options_parse(&e.options, argc, argv);

    if (rc)
        return rc > 0 ? 0 : 2;
    e.family = e.options.family;
    rc = go(&e);
    e.family->close(&e);
    video_data_close(&e.data);
    json_decref(e.setup);
    free(e.todo);
    free(e.lengths);
    return say_finish(rc ? 1 : 0);
}
