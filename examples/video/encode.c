/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program that encodes videos to files of latents (programs.h).  One clip is encoded at a time,
 * so memory does not grow with the number of videos.  A video that cannot be read is skipped
 * after an error message; an output that cannot be written ends the program.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/clip.h"
#include "../common/directory.h"
#include "../common/memory.h"
#include "../common/names.h"
#include "../common/options.h"
#include "../common/outputs.h"
#include "../common/say.h"
#include "ckpt_tools.h"
#include "coder.h"
#include "latents.h"
#include "list.h"
#include "programs.h"

struct options {
    const char *video, *list, *output;
    int64_t frames, height, width;
    bool moments, missing;
};

#define ROW(...)   CKPT_OPTION(struct options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct options, __VA_ARGS__)

static const struct ckpt_option table[] = {
    ROW("video", STRING, video, "FILE", "video to encode"),
    ROW("list", STRING, list, "FILE",
        "text file with one video to encode per line, relative to the directory of the file"),
    ROW("output", STRING, output, "DIR", "directory for the files of latents"),
    RANGE("frames", INT, frames, "N",
          "frames of a clip, evenly spaced over the video; the last frame is repeated in shorter "
          "videos (default 49)",
          1, 4096),
    RANGE("height", INT, height, "N", "height of a frame in pixels (default 480)", 1, 8192),
    RANGE("width", INT, width, "N", "width of a frame in pixels (default 720)", 1, 8192),
    ROW("moments", FLAG, moments, NULL,
        "write \"moments\" [32, F, h, w], means and logarithms of variances, instead of a sample"),
    ROW("only-missing", FLAG, missing, NULL, "skip videos whose output file exists"),
    {0},
};

/* ---- videos -------------------------------------------------------------------------------- */

static int compare_stems(const void *a, const void *b)
{
    const char *x, *y;
    int n = video_latents_stem(*(char *const *)a, &x),
        m = video_latents_stem(*(char *const *)b, &y);
    int order = strncmp(x, y, (size_t)(n < m ? n : m));

    return order ? order : n - m;
}

/* Refuses two videos with one name. */
static int check_names(const struct video_list *v)
{
    char **sorted = malloc((size_t)v->n * sizeof *sorted);
    int rc = 0;

    if (!sorted)
        return say_fail("no memory for the names of videos");
    memcpy(sorted, v->video, (size_t)v->n * sizeof *sorted);
    qsort(sorted, (size_t)v->n, sizeof *sorted, compare_stems);
    for (int64_t i = 1; i < v->n && !rc; i++)
        if (!compare_stems(&sorted[i - 1], &sorted[i]))
            rc = say_fail("%s and %s: their latents would have the same file", sorted[i - 1],
                          sorted[i]);
    free(sorted);
    return rc;
}

static int open_videos(struct video_list *v, const struct options *o)
{
    if (o->video)
        return video_list_one(v, o->video);
    return video_list_paths(v, o->list) || check_names(v) ? -1 : 0;
}

/* NULL after an error message.  shorter: videos that repeat their last frame. */
static uint8_t *read_video(const char *path, int64_t frames, int64_t height, int64_t width,
                           struct names *shorter)
{
    uint8_t *rgb = MEMORY_FOR(3, frames, height, width);
    struct video v;
    int rc = video_open(&v, path);

    if (!rc && !rgb)
        rc = say_fail("%s: no memory for %lld frames", path, (long long)frames);
    if (!rc)
        rc = clip_take_whole(&(struct clip_whole){{width, height, false}, frames, 0}, &v, rgb);
    if (!rc && video_frames(&v) < frames)
        names_add(shorter, path);
    video_close(&v);
    if (!rc)
        return rgb;
    free(rgb);
    return NULL;
}

/* ---- a clip -------------------------------------------------------------------------------- */

static int write_clip(struct video_coder *k, const struct options *o, struct video_latents *l,
                      const char *path)
{
    if (!o->moments &&
        video_latents_draw(l, (uint64_t)k->options.library.seed, &k->sizes, strrchr(path, '/') + 1))
        return -1;
    if (directory_make(o->output))
        return -1;
    return video_latents_write(l, path, o->moments ? "moments" : "encoded_video", k->dtype);
}

/* Returns 0, 1 if the video was skipped after an error message, and -1 if no video can succeed. */
static int encode_video(struct video_coder *k, const struct options *o, const char *video, float *x,
                        const char *path, struct names *shorter)
{
    int64_t factor = k->sizes.factor;
    struct video_latents l = {.frames = video_coder_clip_out(k),
                              .height = o->height / factor,
                              .width = o->width / factor,
                              .channels = 2 * k->sizes.latent};
    uint8_t *rgb = read_video(video, o->frames, o->height, o->width, shorter);

    if (!rgb)
        return 1;
    l.z = MEMORY_FOR(sizeof *l.z, l.frames * l.height * l.width, l.channels);
    int rc = l.z ? video_coder_encode(k, rgb, x, l.z) : say_fail("no memory for latents");
    if (!rc)
        rc = write_clip(k, o, &l, path);
    free(l.z);
    free(rgb);
    return rc;
}

/* Videos that could not be read fail the run only where it wrote nothing. */
static int report(const struct options *o, const struct video_list *v, const struct names *skipped,
                  const struct names *shorter, int64_t there)
{
    const int64_t written = v->n - there - skipped->n;
    char text[NAMES_TEXT];

    if (shorter->n)
        say_print("videos with fewer frames than were asked for, whose last frame is repeated: "
                  "%lld: %s\n",
                  (long long)shorter->n, names_text(shorter, text));
    say_print("videos in %s: %lld of %lld frames, %lld x %lld; %lld existed, %lld skipped\n",
              o->output, (long long)written, (long long)o->frames, (long long)o->width,
              (long long)o->height, (long long)there, (long long)skipped->n);
    names_report(skipped, o->list ? o->list : o->output, "could not be read and are skipped");
    return skipped->n && !written ? say_fail("no video could be encoded") : 0;
}

static int encode_all(struct video_coder *k, const struct options *o, const struct video_list *v,
                      float *x)
{
    ckpt_progress *progress = ckpt_progress_open(stderr, "encode", v->n);
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct names skipped = {.n = 0}, shorter = {.n = 0};
    int64_t there = 0;
    int rc = 0;

    ckpt_program_info(k->program, &info);
    for (int64_t i = 0; i < v->n && rc >= 0; i++) {
        char path[VIDEO_LATENTS_PATH];
        rc = video_latents_path(path, o->output, v->video[i]);
        if (rc)
            break;
        if (o->missing && !access(path, F_OK)) {
            there++;
            continue;
        }
        rc = encode_video(k, o, v->video[i], x, path, &shorter);
        if (rc > 0)
            names_add(&skipped, v->video[i]);
        ckpt_progress_step(progress, i + 1, NAN, info.arena_bytes);
    }
    ckpt_progress_close(progress);
    if (rc < 0)
        return -1;
    video_coder_report(k);
    return report(o, v, &skipped, &shorter, there);
}

/* ---- before the first clip ----------------------------------------------------------------- */

static int check(const struct video_coder *k, const struct options *o)
{
    int64_t factor = k->sizes.factor;

    if (o->height % factor || o->width % factor)
        return say_fail("--height %lld --width %lld: both must be multiples of %lld",
                        (long long)o->height, (long long)o->width, (long long)factor);
    return 0;
}

static int check_paths(const struct video_coder *k, const struct options *o)
{
    const struct ckpt_options *library = &k->options.library;

    if (!library->plan_only && !o->video == !o->list)
        return say_fail("--video FILE or --list FILE, one of the two; see --help");
    if (!library->plan_only && !o->output)
        return say_fail("--output DIR is missing: the directory for latents; see --help");
    const struct ckpt_path all[] = {
        {"--video", o->video, CKPT_PATH_INPUT, 0},
        {"--list", o->list, CKPT_PATH_INPUT, 0},
        {"--output", library->plan_only ? NULL : o->output, CKPT_PATH_DIRECTORY, 0},
    };
    return outputs_take(library, all, sizeof all / sizeof *all);
}

static int go(struct video_coder *k, const struct autoencoder *a, const struct options *o,
              struct video_list *v)
{
    if (check_paths(k, o) || video_coder_config(k, a, false) || check(k, o))
        return -1;
    if (!k->options.library.plan_only && open_videos(v, o))
        return -1;
    k->options.library.runs = v->n;
    if (video_coder_open(k) || video_coder_compile(k, o->frames, o->height, o->width))
        return -1;
    if (k->options.library.plan_only)
        return 0;
    float *x = MEMORY_FOR(sizeof *x, o->frames * o->height, o->width * 3);
    int rc = x ? encode_all(k, o, v, x) : say_fail("no memory for the frames of a clip");
    free(x);
    return rc;
}

int video_encode(const struct autoencoder *a, const char *usage, int argc, char **argv)
{
    static struct video_coder k = {.options = VIDEO_CODER_INIT};
    struct options o = {.frames = 49, .height = 480, .width = 720};
    struct video_list v = {.n = 0};

    say_begin();
    int rc = video_coder_parse(&k, a, table, &o, argc, argv, usage);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&k, a, &o, &v);
    video_list_free(&v);
    video_coder_close(&k);
    return say_finish(rc ? 1 : 0);
}
