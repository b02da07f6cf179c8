/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The raw clip format, for machines without FFmpeg: one line "RGBCLIP width height frames fps",
 * then the frames as 8-bit RGB.  Frames are brought to the asked size by averaging over areas.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "clip.h"
#include "memory.h"
#include "say.h"

enum { LARGEST = 8192 /* pixels along a side */ };

int clip_is_raw(const char *path)
{
    char magic[8] = {0};
    FILE *f;

    if (ckpt_input_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    size_t n = fread(magic, 1, sizeof magic, f);
    fclose(f);
    return n == sizeof magic && !memcmp(magic, "RGBCLIP ", sizeof magic);
}

int clip_too_short(const struct clip *c, const char *path, int64_t found)
{
    return say_fail("%s: has %lld frames; --frames, --stride and --clips ask for %lld", path,
                    (long long)found, (long long)(c->skip + (c->frames - 1) * c->stride + 1));
}

/* As Open-Sora does: the smallest size that covers the clip's, of which the middle is taken. */
struct clip_part clip_part_of(const struct clip *c, int64_t width, int64_t height)
{
    double down = (double)c->height / (double)height, across = (double)c->width / (double)width;
    struct clip_part p = {.width = c->width, .height = c->height};

    if (!c->covers)
        return p;
    if (down > across)
        p.width = (int64_t)lrint((double)width * down);
    else
        p.height = (int64_t)lrint((double)height * across);
    p.left = (p.width - c->width) / 2;
    p.top = (p.height - c->height) / 2;
    return p;
}

/* A blank and a whole number from 1 to most; 0 where there is none. */
static int take_number(char **at, int most)
{
    long value = **at == ' ' && (*at)[1] >= '0' && (*at)[1] <= '9' ? strtol(*at + 1, at, 10) : 0;

    return value >= 1 && value <= most ? (int)value : 0;
}

/* "RGBCLIP width height frames fps" and the end of the line. */
static bool parse_header(char *line, struct raw_header *h)
{
    char *at = line + strlen("RGBCLIP");

    if (strncmp(line, "RGBCLIP ", 8))
        return false;
    h->width = take_number(&at, LARGEST);
    h->height = take_number(&at, LARGEST);
    h->frames = take_number(&at, INT32_MAX);
    if (!h->width || !h->height || !h->frames || at[0] != ' ' || at[1] < '0' || at[1] > '9')
        return false;
    h->fps = strtod(at + 1, &at);
    return h->fps > 0 && h->fps < 1000 && !strcmp(at, "\n");
}

int raw_open(FILE **f, const char *path, struct raw_header *h)
{
    char line[128];

    if (ckpt_input_open(f, path))
        return say_fail("%s", ckpt_error(NULL));
    if (fgets(line, sizeof line, *f) && parse_header(line, h))
        return 0;
    fclose(*f);
    return say_fail("%s: the first line is not \"RGBCLIP width height frames fps\"", path);
}

/* The mean of one channel over the area that pixel (row, column) of the scaled frame covers. */
static double area_mean(const uint8_t *from, const struct raw_header *r, const struct clip_part *p,
                        int64_t row, int64_t column, int channel)
{
    double top = (double)row * r->height / (double)p->height, sum = 0;
    double bottom = (double)(row + 1) * r->height / (double)p->height;
    double left = (double)column * r->width / (double)p->width;
    double right = (double)(column + 1) * r->width / (double)p->width;

    for (int y = (int)top; y < r->height && y < bottom; y++) {
        double tall = fmin(bottom, y + 1) - fmax(top, y);
        for (int x = (int)left; x < r->width && x < right; x++)
            sum += tall * (fmin(right, x + 1) - fmax(left, x)) *
                   from[((int64_t)y * r->width + x) * 3 + channel];
    }
    return sum / ((bottom - top) * (right - left));
}

static void resize(uint8_t *to, const uint8_t *from, const struct raw_header *r,
                   const struct clip *c)
{
    struct clip_part p = clip_part_of(c, r->width, r->height);

    for (int64_t row = 0; row < c->height; row++)
        for (int64_t column = 0; column < c->width; column++)
            for (int channel = 0; channel < 3; channel++)
                *to++ =
                    (uint8_t)lrint(area_mean(from, r, &p, p.top + row, p.left + column, channel));
}

static int read_frames(FILE *f, const struct raw_header *r, struct clip *c, const char *path)
{
    size_t source = (size_t)r->width * (size_t)r->height * 3;
    size_t target = (size_t)(c->width * c->height * 3);
    uint8_t *frame = malloc(source);
    int64_t taken = 0;

    for (int64_t i = 0; frame && taken < c->frames && i < r->frames; i++) {
        if (fread(frame, 1, source, f) != source)
            break;
        if (i >= c->skip && (i - c->skip) % c->stride == 0)
            resize(c->rgb + target * (size_t)taken++, frame, r, c);
    }
    free(frame);
    if (!frame)
        return say_fail("%s: no memory for a frame", path);
    if (taken < c->frames)
        return say_fail("%s: ends before the %d frames that it announces", path, r->frames);
    return 0;
}

int clip_read_raw(struct clip *c, const char *path)
{
    struct raw_header r;
    FILE *f;
    int rc = -1;

    if (raw_open(&f, path, &r))
        return -1;
    c->rgb = MEMORY_FOR(3, c->frames, c->width, c->height);
    if (!c->rgb)
        say_fail("%s: no memory for %lld frames", path, (long long)c->frames);
    else if (c->skip + (c->frames - 1) * c->stride + 1 > r.frames)
        clip_too_short(c, path, r.frames);
    else
        rc = read_frames(f, &r, c, path);
    c->fps = rc ? 0 : r.fps;
    fclose(f);
    return rc;
}
