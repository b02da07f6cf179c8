/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The raw clip format, for machines without FFmpeg: one line "RGBCLIP width height frames fps",
 * then the frames as 8-bit RGB.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "ckpt_tools.h"
#include "say.h"
#include "shortage.h"
#include "video.h"

enum { LARGEST = 8192 /* pixels along a side */ };

struct raw {
    FILE *file;
    int64_t first, frames; /* byte offset of the first frame; number of complete frames */
    int64_t at;            /* index of the frame in rgb; -1: none */
    uint8_t *rgb;
};

static int open_input(FILE **f, const char *path)
{
    errno = 0;
    if (!ckpt_input_open(f, path))
        return 0;
    shortage_note(errno);
    return say_fail("%s", ckpt_error(NULL));
}

int video_is_raw(const char *path)
{
    char magic[8] = {0};
    FILE *f;

    if (open_input(&f, path))
        return -1;
    size_t n = fread(magic, 1, sizeof magic, f);
    fclose(f);
    return n == sizeof magic && !memcmp(magic, "RGBCLIP ", sizeof magic);
}

/* Reads a blank and an integer from 1 to most; returns 0 if there is none. */
static int take_number(char **at, int most)
{
    long value = **at == ' ' && (*at)[1] >= '0' && (*at)[1] <= '9' ? strtol(*at + 1, at, 10) : 0;

    return value >= 1 && value <= most ? (int)value : 0;
}

/* Parses "RGBCLIP width height frames fps" and the end of the line. */
static bool parse_header(char *line, struct video *v)
{
    char *at = line + strlen("RGBCLIP");

    if (strncmp(line, "RGBCLIP ", 8))
        return false;
    v->width = take_number(&at, LARGEST);
    v->height = take_number(&at, LARGEST);
    v->announced = take_number(&at, INT32_MAX);
    if (!v->width || !v->height || !v->announced || at[0] != ' ' || at[1] < '0' || at[1] > '9')
        return false;
    v->fps = strtod(at + 1, &at);
    return v->fps > 0 && v->fps < 1000 && !strcmp(at, "\n");
}

static int64_t frame_size(const struct video *v)
{
    return v->width * v->height * 3;
}

static int64_t raw_count(struct video *v)
{
    return ((struct raw *)v->data)->frames;
}

static int raw_frame(struct video *v, int64_t n, struct pixels *p)
{
    struct raw *r = v->data;
    size_t size = (size_t)frame_size(v);

    if (n >= r->frames)
        return 0;
    if (v->stop && atomic_load(v->stop))
        return -1;
    if (v->most_pixels && v->width * v->height > v->most_pixels)
        return say_fail("%s: frames of %lld x %lld, larger than announced", v->path,
                        (long long)v->width, (long long)v->height);
    if (!r->rgb && !(r->rgb = malloc(size)))
        return video_short(v->path, "a frame");
    if (n != r->at && (fseeko(r->file, (off_t)(r->first + n * frame_size(v)), SEEK_SET) ||
                       fread(r->rgb, 1, size, r->file) != size))
        return say_fail("%s: %s", v->path, ferror(r->file) ? strerror(errno) : "cannot be read");
    r->at = n;
    *p = (struct pixels){r->rgb, 3, (ptrdiff_t)v->width * 3, v->width, v->height};
    return 1;
}

static void raw_close(struct video *v)
{
    struct raw *r = v->data;

    if (r->file)
        fclose(r->file);
    free(r->rgb);
    free(r);
}

static const struct video_ops raw_ops = {raw_count, raw_frame, raw_close};

static int read_header(struct video *v, struct raw *r)
{
    char line[128];
    struct stat st;

    if (!fgets(line, sizeof line, r->file) || !parse_header(line, v))
        return say_fail("%s: the first line is not \"RGBCLIP width height frames fps\"", v->path);
    r->first = ftello(r->file);
    if (r->first < 0 || fstat(fileno(r->file), &st))
        return say_fail("%s: %s", v->path, strerror(errno));
    r->frames = ((int64_t)st.st_size - r->first) / frame_size(v);
    r->frames = r->frames < v->announced ? r->frames : v->announced;
    return 0;
}

int video_open_raw(struct video *v)
{
    struct raw *r = calloc(1, sizeof *r);

    if (!r)
        return video_short(v->path, "a video");
    v->data = r;
    v->ops = &raw_ops;
    r->at = -1;
    if (open_input(&r->file, v->path))
        return -1;
    return read_header(v, r);
}
