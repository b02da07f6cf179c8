/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target of the files of video models: config.json of each, schedulers, tables of buckets,
 * lists, prompts, tar files, raw clips, latents, tokenizers of T5.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../examples/video/cogvideo/config.h"
#include "../examples/video/list.h"
#include "../examples/video/cogvideo/schedule.h"
#include "../examples/video/cogvideo/vae.h"
#include "../examples/video/latents.h"
#include "../examples/common/shard.h"
#include "../examples/common/video.h"
#include "../examples/video/buckets.h"
#include "../examples/video/videos.h"
#include "../examples/text/prompts.h"
#include "../examples/text/t5.h"
#include "../examples/text/tokens.h"
#include "../examples/video/vae/latents.h"
#include "fuzz/fuzz_readers.h"

/* ---- models ------------------------------------------------------------------------------------
 */

static int read_transformer(const char *path, const char *directory)
{
    struct cogvideo_config c;

    (void)path;
    return cogvideo_config_read(&c, directory);
}

static int read_autoencoder(const char *path, const char *directory)
{
    struct cogvae_config c = {.dtype = CKPT_F32};

    (void)path;
    return cogvae_config_read(&c, directory);
}

static int read_t5(const char *path, const char *directory)
{
    struct t5_config c;

    (void)directory;
    return t5_config_read(&c, path);
}

static int read_scheduler(const char *path, const char *directory)
{
    struct cogvideo_schedule s;
    char in[4096], to[4200];

    snprintf(in, sizeof in, "%s/scheduler", directory);
    snprintf(to, sizeof to, "%s/scheduler_config.json", in);
    if (mkdir(in, 0700) || rename(path, to))
        abort();
    int rc = cogvideo_schedule_read(&s, directory, 0);
    remove(to);
    rmdir(in);
    return rc;
}

static int read_pieces(const char *path, const char *directory)
{
    struct t5_tokenizer t;
    int32_t ids[16];
    int64_t n;

    (void)directory;
    if (t5_tokenizer_open(&t, path))
        return -1;
    int rc = t5_tokenizer_encode(&t, "A dog runs. \xc3\xa9</s> <extra_id_3>", ids, 16, &n);
    t5_tokenizer_close(&t);
    return rc;
}

/* ---- data --------------------------------------------------------------------------------------
 */

static int read_buckets(const char *path, const char *directory)
{
    struct bucket_sample samples[64];
    struct bucket_epoch e;
    struct buckets b;

    (void)directory;
    if (buckets_read(&b, path))
        return -1;
    for (int i = 0; i < 64; i++)
        samples[i] = (struct bucket_sample){1 + 7 * (i % 20), 100 + 20 * i, 2000 - 20 * i};
    int rc = bucket_epoch_make(&e, &b, samples, NULL, 64, 1, 1, 0);
    struct bucket_deal deal[2];
    while (!rc && bucket_epoch_next(&e, 2, deal))
        ;
    if (!rc)
        bucket_epoch_free(&e);
    buckets_free(&b);
    return rc;
}

static int read_table(const char *path, const char *directory)
{
    struct videos v = {.whole = true, .frames = 1, .stride = 1};
    struct video_list l;
    struct prompts p = {.n = 0};

    (void)directory;
    int rc = prompts_read_csv(&p, path, "text");
    prompts_free(&p);
    rc |= videos_list(&v, path, true);
    videos_close(&v);
    if (video_list_csv(&l, path, "path", "text"))
        return -1;
    video_list_free(&l);
    return rc;
}

static int read_lines(const char *path, const char *directory)
{
    struct video_list l;
    struct prompts p = {.n = 0};

    (void)directory;
    int rc = prompts_read(&p, path);
    prompts_free(&p);
    rc |= video_list_paths(&l, path);
    video_list_free(&l);
    if (video_list_lines(&l, path, path))
        return -1;
    video_list_free(&l);
    return rc;
}

static int read_tar(const char *path, const char *directory)
{
    struct shard s;
    struct stat st;

    (void)directory;
    if (stat(path, &st))
        abort();
    int rc = shard_open(&s, path);
    for (int64_t i = 0; i < s.n; i++) {
        const struct shard_member *m = &s.member[i];
        const struct shard_run whole = {0, m->size, m->start}, *run = m->runs ? m->run : &whole;
        for (int64_t k = 0, end = 0; k < (m->runs ? m->runs : 1); k++, run++) {
            if (run->at < end || run->bytes < 0 || run->bytes > m->size - run->at ||
                run->start < 0 || run->bytes > st.st_size - run->start || !*m->name)
                abort();
            end = run->at + run->bytes;
        }
    }
    shard_close(&s);
    return rc;
}

static int read_raw(const char *path, const char *directory)
{
    const struct picture_size size = {8, 8, false};
    uint8_t rgb[8 * 8 * 3];
    struct video v;

    (void)directory;
    int rc = video_is_raw(path) > 0 ? video_open(&v, path) : 1;
    if (rc > 0)
        return 0; /* left to FFmpeg */
    int64_t n = rc ? 0 : video_frames(&v);
    for (int64_t i = 0; i < n && i < 4 && rc >= 0; i++)
        rc = video_read(&v, i, &size, rgb) < 0 ? -1 : 0;
    video_close(&v);
    return rc;
}

static int read_caption(const char *path, const char *directory)
{
    (void)directory;
    free(caption_beside(path));
    return 0;
}

/* Those of both families. */
static int read_latents(const char *path, const char *directory)
{
    struct vae_latent_reader r;
    struct video_latents l = {.z = NULL};

    (void)directory;
    int rc = video_latents_read(&l, path, true);
    free(l.z);
    if (vae_latents_open(&r, path))
        return -1;
    int64_t n = r.info.latent * r.info.rows * r.info.columns;
    float *z = n > 0 && n < 1 << 20 ? malloc((size_t)n * sizeof *z) : NULL;
    if (z)
        rc |= vae_latents_read(&r, r.info.latent_frames - 1, 1, z);
    free(z);
    vae_latents_close(&r);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct fuzz_reader readers[] = {
        {"transformer", "config.json", read_transformer},
        {"autoencoder", "config.json", read_autoencoder},
        {"t5", "config.json", read_t5},
        {"scheduler", "scheduler_config.json", read_scheduler},
        {"pieces", "spiece.model", read_pieces},
        {"buckets", "buckets.json", read_buckets},
        {"table", "list.csv", read_table},
        {"lines", "list.txt", read_lines},
        {"tar", "videos.tar", read_tar},
        {"raw", "clip.rgb", read_raw},
        {"caption", "caption.json", read_caption},
        {"latents", "z.safetensors", read_latents}};

    fuzz_readers_run(readers, sizeof readers / sizeof *readers, data, size);
    return 0;
}
