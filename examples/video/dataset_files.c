/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache that CogVideoX's trainer keeps beside videos and prompts:
 *
 *   DIR/videos.txt, DIR/prompts.txt
 *   DIR/cache/video_latent/MODEL/FxHxW/STEM.safetensors   encoded_video [16, F', h, w]
 *   DIR/cache/prompt_embeddings/SHA256.safetensors        prompt_embedding [S, 4096]
 *
 * Alternatively one file holds all prompts, prompt_embedding [n, S, 4096], in the order of the
 * list.  STEM is the name of a video without directory and extension; SHA256 is the hash of the
 * prompt.  Latents are sampled and scaled.  A file of I2V may also have encoded_image [16, 1, h,
 * w].
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef HAVE_SODIUM
#include <sodium.h>
#endif
#include "../common/names.h"
#include "../common/say.h"
#include "../common/tensors.h"
#include "ckpt_tools.h"
#include "dataset.h"
#include "latents.h"

enum { PATH = 4096 };

#define VIDEO  "encoded_video"
#define IMAGE  "encoded_image"
#define PROMPT "prompt_embedding"

/* ---- paths --------------------------------------------------------------------------------- */

static int join(char dst[PATH], const char *directory, const char *name)
{
    return snprintf(dst, PATH, "%s/%s", directory, name) < PATH
               ? 0
               : say_fail("%s/%s: the name is too long", directory, name);
}

#ifdef HAVE_SODIUM
static int text_path(char dst[PATH], const char *directory, const char *prompt)
{
    unsigned char sum[crypto_hash_sha256_BYTES];
    char text[2 * sizeof sum + 1], name[sizeof text + 16];

    crypto_hash_sha256(sum, (const unsigned char *)prompt, strlen(prompt));
    sodium_bin2hex(text, sizeof text, sum, sizeof sum);
    snprintf(name, sizeof name, "%s.safetensors", text);
    return join(dst, directory, name);
}
#else
static int text_path(char dst[PATH], const char *directory, const char *prompt)
{
    (void)dst;
    (void)prompt;
    return say_fail("%s: files of prompts are named by checksums of libsodium, and this program "
                    "was built without it; give one file with all prompts by --text FILE",
                    directory);
}
#endif

/* Looks for `inside` in the subdirectories of `directory`. Copies the path of one match to dst;
 * returns the number of matches. */
static int only_directory(char dst[PATH], const char *directory, const char *inside)
{
    char path[PATH];
    struct dirent *e;
    int found = 0;
    DIR *d = opendir(directory);

    while (d && (e = readdir(d)) != NULL) {
        if (*e->d_name == '.' ||
            snprintf(path, sizeof path, "%s/%s/%s", directory, e->d_name, inside) >= PATH ||
            access(path, F_OK))
            continue;
        memcpy(dst, path, sizeof path);
        found++;
    }
    if (d)
        closedir(d);
    return found;
}

static int find_latents(char dst[PATH], const struct video_options *o)
{
    char all[PATH], size[64];
    const struct video_model *m = o->net.model;
    int64_t frames = o->frames ? o->frames : m->frames, width = o->width ? o->width : m->width,
            height = o->height ? o->height : m->height;

    if (o->latents)
        return snprintf(dst, PATH, "%s", o->latents) < PATH
                   ? 0
                   : say_fail("--latents %s: the name is too long", o->latents);
    if (join(all, o->data, "cache/video_latent"))
        return -1;
    snprintf(size, sizeof size, "%lldx%lldx%lld", (long long)frames, (long long)height,
             (long long)width);
    int n = only_directory(dst, all, size);
    if (n == 1)
        return 0;
    return n ? say_fail("%s: %d directories have %s; choose one with --latents", all, n, size)
             : say_fail("%s: there is no %s of any model; encode videos with video-encode and "
                        "train with --cache; of videos that are encoded give the size by "
                        "--frames, --height and --width, or the directory by --latents",
                        all, size);
}

static const int64_t any[] = {-1, -1, -1, -1};

/* ---- shapes -------------------------------------------------------------------------------- */

static int check_latents(const struct video_data *d, const char *path,
                         const struct ckpt_file_entry *e)
{
    const struct video_geometry *g = &d->shapes.shape->geometry;
    int64_t frames = g->frames - d->repeats;

    if (e->shape[0] == 2 * d->channels)
        return say_fail(
            "%s: '" VIDEO
            "' has %lld channels: these are moments; a sample with %lld channels is needed",
            path, (long long)e->shape[0], (long long)d->channels);
    if (e->shape[0] != d->channels || e->shape[1] != frames || e->shape[2] != g->height ||
        e->shape[3] != g->width)
        return say_fail("%s: '" VIDEO "' is [%lld, %lld, %lld, %lld], and [%lld, %lld, %lld, %lld] "
                        "is needed; one run has one size",
                        path, (long long)e->shape[0], (long long)e->shape[1],
                        (long long)e->shape[2], (long long)e->shape[3], (long long)d->channels,
                        (long long)frames, (long long)g->height, (long long)g->width);
    return 0;
}

/* Finds one prompt, or several in one tensor. */
static int find_text(ckpt_file *f, const char *path, struct ckpt_file_entry *e)
{
    int i = ckpt_file_find(f, PROMPT);

    *e = (struct ckpt_file_entry)CKPT_FILE_ENTRY_INIT;
    if (i < 0 || ckpt_file_entry(f, i, e))
        return say_fail("%s: has no tensor \"" PROMPT "\"", path);
    return e->ndim == 2 || e->ndim == 3
               ? i
               : say_fail("%s: '" PROMPT "' has %d axes, not 2 or 3", path, e->ndim);
}

static int check_text(const struct video_data *d, const char *path, const struct ckpt_file_entry *e)
{
    const int64_t *shape = e->shape + e->ndim - 2;

    if (shape[0] == d->shapes.shape->geometry.tokens && shape[1] == d->text_width)
        return 0;
    return say_fail("%s: '" PROMPT "' has prompts of [%lld, %lld], and [%lld, %lld] is needed",
                    path, (long long)shape[0], (long long)shape[1],
                    (long long)d->shapes.shape->geometry.tokens, (long long)d->text_width);
}

/* Reads the shape of the first sample, which all samples must have. */
static int take_shape(struct video_data *d)
{
    struct ckpt_file_entry video = CKPT_FILE_ENTRY_INIT, text = CKPT_FILE_ENTRY_INIT;
    const char *latents = d->file[0].latents, *prompt = d->file[0].text;
    ckpt_file *f;

    if (ckpt_file_open(&f, latents))
        return say_fail("%s", ckpt_error(NULL));
    int rc = tensor_find(f, latents, VIDEO, 4, any, &video);
    ckpt_file_close(f);
    if (rc < 0)
        return -1;
    if (ckpt_file_open(&f, prompt))
        return say_fail("%s", ckpt_error(NULL));
    rc = find_text(f, prompt, &text);
    ckpt_file_close(f);
    if (rc < 0)
        return -1;
    d->repeats = video.shape[1] % d->sizes->patch_frames != 0;
    d->shapes.shape->geometry = (struct video_geometry){.frames = video.shape[1] + d->repeats,
                                                        .height = video.shape[2],
                                                        .width = video.shape[3],
                                                        .tokens = text.shape[text.ndim - 2]};
    return check_latents(d, latents, &video) || check_text(d, prompt, &text) ? -1 : 0;
}

/* ---- opening ------------------------------------------------------------------------------- */

static int list(struct video_list *l, const struct video_options *o)
{
    char videos[PATH], prompts[PATH];

    if (o->csv)
        return video_list_csv(l, o->csv, o->video_column, o->caption_column);
    if (join(videos, o->data, "videos.txt") || join(prompts, o->data, "prompts.txt"))
        return -1;
    if (access(prompts, F_OK) && join(prompts, o->data, "prompt.txt"))
        return -1;
    return video_list_lines(l, o->videos ? o->videos : videos, o->prompts ? o->prompts : prompts);
}

/* One file with all prompts: it must have as many as the list. */
static int check_prompts(const struct video_list *l, const char *path)
{
    struct ckpt_file_entry e;
    ckpt_file *f;

    if (ckpt_file_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    int rc = find_text(f, path, &e);
    ckpt_file_close(f);
    if (rc < 0)
        return -1;
    int64_t n = e.ndim == 3 ? e.shape[0] : 1;
    return n == l->n ? 0
                     : say_fail("%s: there are %lld prompts for %lld videos", path, (long long)n,
                                (long long)l->n);
}

static bool is_directory(const char *path)
{
    struct stat st;

    return stat(path, &st) || S_ISDIR(st.st_mode);
}

/* Finds the files of the samples.  Samples without files are skipped; they are reported once. */
static int find_files(struct video_data *d, const struct video_list *l, const char *latents,
                      const char *texts)
{
    struct names videos = {0}, prompts = {0};
    bool each = is_directory(texts);
    char at[PATH], said[PATH];

    if (!each && check_prompts(l, texts))
        return -1;
    snprintf(said, sizeof said, "%s", texts);

    d->file = calloc((size_t)l->n + 1, sizeof *d->file);
    if (!d->file)
        return say_fail("no memory for a list of %lld videos", (long long)l->n);
    for (int64_t i = 0; i < l->n; i++) {
        struct video_row *row = &d->file[d->shapes.rows];
        if (video_latents_path(at, latents, l->video[i]) ||
            (each && text_path(said, texts, l->prompt[i])))
            return -1;
        bool no_video = access(at, F_OK) != 0, no_text = access(said, F_OK) != 0;
        if (no_video)
            names_add(&videos, l->video[i]);
        if (no_text)
            names_add(&prompts, l->prompt[i]);
        if (no_video || no_text)
            continue;
        d->shapes.rows++; /* counts the rows to be freed */
        row->latents = strdup(at);
        row->text = strdup(said);
        row->at = each ? 0 : i;
        row->line = i;
        if (!row->latents || !row->text)
            return say_fail("no memory for a list of %lld videos", (long long)l->n);
    }
    d->missing = l->n - d->shapes.rows;
    names_report(&videos, latents, "skipped, because they are not encoded there");
    names_report(&prompts, texts, "skipped, because they are not encoded there");
    return d->shapes.rows ? 0 : say_fail("none of %lld videos is encoded", (long long)l->n);
}

int video_cache_open(struct video_data *d, const struct video_options *o)
{
    struct video_list l = {0};
    char latents[PATH], texts[PATH];

    if (find_latents(latents, o))
        return -1;
    if (o->text ? snprintf(texts, sizeof texts, "%s", o->text) >= PATH
                : join(texts, o->data, "cache/prompt_embeddings"))
        return -1;
    int rc = list(&l, o);
    if (!rc)
        rc = find_files(d, &l, latents, texts);
    video_list_free(&l);
    if (rc || take_shape(d))
        return -1;
    snprintf(
        d->title, sizeof d->title, "%.300s: %lld videos, latents [%lld, %lld, %lld, %lld]%s",
        latents, (long long)d->shapes.rows, (long long)d->channels,
        (long long)d->shapes.shape->geometry.frames, (long long)d->shapes.shape->geometry.height,
        (long long)d->shapes.shape->geometry.width, d->repeats ? ", the first frame repeated" : "");
    return 0;
}

/* ---- reading ------------------------------------------------------------------------------- */

static int read_image(const struct video_data *d, ckpt_file *f, const char *path, const float *z,
                      float *image)
{
    struct ckpt_file_entry e;

    if (ckpt_file_find(f, IMAGE) < 0 && d->sizes->whole_image)
        return say_fail("%s: there is no '" IMAGE "', the latents of a clip of the first frame and "
                        "grey ones, which this model reads",
                        path);
    if (ckpt_file_find(f, IMAGE) < 0) {
        video_first_frame(d, d->shapes.shape, z, image);
        return 0;
    }
    int i = tensor_find(f, path, IMAGE, 4, any, &e);
    if (i < 0)
        return -1;
    if (e.numel != video_data_image(d, d->shapes.shape))
        return say_fail("%s: '" IMAGE "' does not have the size of %s latent frame%s", path,
                        d->sizes->whole_image ? "all" : "a", d->sizes->whole_image ? "s" : "");
    return ckpt_file_read_f32(f, i, image, e.numel) ? say_fail("%s", ckpt_error(NULL)) : 0;
}

static int read_latents(const struct video_data *d, ckpt_file *f, const char *path, float *z,
                        float *image)
{
    struct ckpt_file_entry e;
    int i = tensor_find(f, path, VIDEO, 4, any, &e);

    if (i < 0 || check_latents(d, path, &e))
        return -1;
    if (ckpt_file_read_f32(f, i, z, e.numel))
        return say_fail("%s", ckpt_error(NULL));
    if (d->repeats)
        video_repeat_first(d, d->shapes.shape, z);
    return image ? read_image(d, f, path, z, image) : 0;
}

static int read_text(const struct video_data *d, ckpt_file *f, const char *path, int64_t at,
                     float *y)
{
    struct ckpt_file_entry e;
    int i = find_text(f, path, &e);
    int64_t n = video_data_y(d);

    if (i < 0 || check_text(d, path, &e))
        return -1;
    if ((at + 1) * n > e.numel)
        return say_fail("%s: '" PROMPT "' has become shorter", path);
    return ckpt_file_read_part_f32(f, i, at * n, y, n) ? say_fail("%s", ckpt_error(NULL)) : 0;
}

int video_cache_read(const struct video_data *d, int64_t row, float *z, float *y, float *image)
{
    const struct video_row *r = &d->file[row];
    ckpt_file *f;

    if (ckpt_file_open(&f, r->latents))
        return say_fail("%s", ckpt_error(NULL));
    int rc = read_latents(d, f, r->latents, z, image);
    ckpt_file_close(f);
    if (rc)
        return -1;
    if (ckpt_file_open(&f, r->text))
        return say_fail("%s", ckpt_error(NULL));
    rc = read_text(d, f, r->text, r->at, y);
    ckpt_file_close(f);
    return rc;
}

int video_cache_read_sight(const struct video_data *d, int64_t row, float *sight)
{
    const int64_t shape[] = {d->sizes->sight_tokens, d->sizes->sight_width};
    const char *path = d->file[row].latents;
    struct ckpt_file_entry e;
    ckpt_file *f;

    if (ckpt_file_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    int i = tensor_find(f, path, VIDEO_SIGHT, 2, shape, &e), rc = i < 0 ? -1 : 0;
    if (!rc && ckpt_file_read_f32(f, i, sight, e.numel))
        rc = say_fail("%s", ckpt_error(NULL));
    ckpt_file_close(f);
    return rc;
}
