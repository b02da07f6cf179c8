/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of videos, and the frames of one: see vae_videos.h.  Relative names in a list belong to the
 * directory of the list. */
#include "paths.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/clip.h"
#include "../common/memory.h"
#include "../common/say.h"
#include "../common/text_file.h"

/* ---- names --------------------------------------------------------------------------------- */

static int add(struct video_paths *v, const char *dir, int length, const char *name)
{
    char **more = realloc(v->path, (size_t)(v->n + 1) * sizeof *more);
    size_t size = (size_t)length + strlen(name) + 2;

    if (more)
        v->path = more;
    if (!more || !(v->path[v->n] = malloc(size)))
        return say_fail("no memory for the names of videos");
    snprintf(v->path[v->n++], size, "%.*s%s", *name == '/' ? 0 : length, dir, name);
    return 0;
}

static int read_lines(struct video_paths *v, struct text_file *f)
{
    const char *slash = strrchr(f->name, '/');
    int length = slash ? (int)(slash + 1 - f->name) : 0, rc;
    char *line;

    while ((rc = text_file_line(f, &line)) > 0)
        if (*text_strip(line) && add(v, f->name, length, line))
            return -1;
    return rc || v->n ? rc : say_fail("%s: names no video", f->name);
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* The length up to the last dot, except a dot at the beginning. */
static int stem_of(const char *base)
{
    const char *dot = strrchr(base, '.');

    return (int)(dot && dot > base ? (size_t)(dot - base) : strlen(base));
}

static int compare_stems(const void *a, const void *b)
{
    const char *x = base_of(*(char *const *)a), *y = base_of(*(char *const *)b);
    int n = stem_of(x), m = stem_of(y), order = strncmp(x, y, (size_t)(n < m ? n : m));

    return order ? order : n - m;
}

static int check_names(const struct video_paths *v)
{
    char **sorted = malloc((size_t)v->n * sizeof *sorted);
    int rc = 0;

    if (!sorted)
        return say_fail("no memory for the names of videos");
    memcpy(sorted, v->path, (size_t)v->n * sizeof *sorted);
    qsort(sorted, (size_t)v->n, sizeof *sorted, compare_stems);
    for (int64_t i = 1; i < v->n && !rc; i++)
        if (!compare_stems(&sorted[i - 1], &sorted[i]))
            rc = say_fail("%s and %s: their latents would have the same file", sorted[i - 1],
                          sorted[i]);
    free(sorted);
    return rc;
}

int video_paths_list(struct video_paths *v, const char *list)
{
    struct text_file f;

    *v = (struct video_paths){.n = 0};
    int rc = text_file_open(&f, list) || read_lines(v, &f) ? -1 : 0;
    text_file_close(&f);
    return rc;
}

int video_paths_open(struct video_paths *v, const char *video, const char *list)
{
    *v = (struct video_paths){.n = 0};
    if (video)
        return add(v, "", 0, video);
    return video_paths_list(v, list) ? -1 : check_names(v);
}

void video_paths_close(struct video_paths *v)
{
    for (int64_t i = 0; i < v->n; i++)
        free(v->path[i]);
    free(v->path);
    *v = (struct video_paths){.n = 0};
}

void video_paths_target(const struct video_paths *v, int64_t i, const char *dir, char *path,
                        size_t size)
{
    const char *base = base_of(v->path[i]);

    snprintf(path, size, "%s/%.*s.safetensors", dir, stem_of(base), base);
}

bool video_paths_is_there(const char *path)
{
    return !access(path, F_OK);
}

/* ---- frames -------------------------------------------------------------------------------- */

/* Reads every stride-th frame of n; repeats the last one if there are fewer. */
static int read_frames(struct video *v, int64_t n, int64_t frames, const struct picture_size *size,
                       uint8_t *rgb)
{
    int64_t stride = n / (n < frames ? n : frames), frame = size->width * size->height * 3;

    for (int64_t i = 0; i < frames; i++) {
        int64_t at = i < n ? i * stride : n - 1;
        int rc = video_read(v, at, size, rgb + i * frame);
        if (!rc)
            say_fail("%s: ends before frame %lld", v->path, (long long)at);
        if (rc <= 0)
            return -1;
    }
    return 0;
}

int spread_take(struct video *v, int64_t frames, int64_t height, int64_t width, uint8_t *rgb)
{
    const struct picture_size size = {width, height, false};
    int64_t n = video_frames(v);

    if (n <= 0)
        return n < 0 ? -1 : say_fail("%s: holds no frame", v->path);
    return read_frames(v, n, frames, &size, rgb);
}

uint8_t *spread_read(const char *path, int64_t frames, int64_t height, int64_t width)
{
    uint8_t *rgb = MEMORY_FOR(3, frames, height, width);
    struct video v;
    int rc = video_open(&v, path);

    if (!rc && !rgb)
        rc = say_fail("%s: no memory for %lld frames", path, (long long)frames);
    if (!rc)
        rc = spread_take(&v, frames, height, width, rgb);
    video_close(&v);
    if (!rc)
        return rgb;
    free(rgb);
    return NULL;
}
