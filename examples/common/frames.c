/* Frames from and to our raw format and PNG pictures; see frames.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "../png.h"
#include "clip.h"
#include "frames.h"
#include "say.h"

/* ---- reading ------------------------------------------------------------------------------- */

int frames_open(struct frames *f, const char *path)
{
    *f = (struct frames){.path = path};
    return clip_is_raw(path) ? frames_open_raw(f) : frames_open_video(f);
}

int frames_next(struct frames *f, uint8_t *rgb)
{
    int rc = f->ops->next(f, rgb);

    f->taken += rc > 0;
    return rc;
}

void frames_close(struct frames *f)
{
    if (f->ops)
        f->ops->close(f);
    f->ops = NULL;
}

/* A frame that is cut off is no frame: the file ends before it. */
static int raw_next(struct frames *f, uint8_t *rgb)
{
    size_t size = (size_t)(f->width * f->height * 3);

    if (f->taken == f->announced)
        return 0;
    if (fread(rgb, 1, size, f->data) == size)
        return 1;
    return ferror(f->data) ? say_fail("%s: %s", f->path, strerror(errno)) : 0;
}

static void raw_close(struct frames *f)
{
    fclose(f->data);
}

static const struct frames_ops raw_ops = {raw_next, raw_close};

int frames_open_raw(struct frames *f)
{
    FILE *file = fopen(f->path, "rb");
    int width, height, frames;
    char line[128];

    if (!file)
        return say_fail("%s: %s", f->path, strerror(errno));
    if (!fgets(line, sizeof line, file) ||
        sscanf(line, "RGBCLIP %d %d %d %lf", &width, &height, &frames, &f->fps) != 4 || width < 1 ||
        height < 1 || frames < 1 || width > 8192 || height > 8192 || !(f->fps > 0)) {
        fclose(file);
        return say_fail("%s: the first line is not \"RGBCLIP width height frames fps\"", f->path);
    }
    f->ops = &raw_ops;
    f->data = file;
    f->width = width;
    f->height = height;
    f->announced = frames;
    return 0;
}

/* ---- writing ------------------------------------------------------------------------------- */

static int raw_put(struct sink *s, const uint8_t *rgb)
{
    size_t size = (size_t)(s->width * s->height * 3);

    if (fwrite(rgb, 1, size, s->data) != size)
        return say_fail("%s: %s", s->path, strerror(errno));
    return 0;
}

static int raw_finish(struct sink *s)
{
    FILE *f = s->data;

    s->data = NULL;
    return fclose(f) ? say_fail("%s: %s", s->path, strerror(errno)) : 0;
}

static void raw_sink_close(struct sink *s)
{
    if (s->data)
        fclose(s->data);
}

static const struct sink_ops raw_sink_ops = {raw_put, raw_finish, raw_sink_close};

static int open_raw_sink(struct sink *s)
{
    s->data = fopen(s->path, "wb");
    if (!s->data)
        return say_fail("%s: %s", s->path, strerror(errno));
    s->ops = &raw_sink_ops;
    fprintf(s->data, "RGBCLIP %d %d %d %g\n", (int)s->width, (int)s->height, (int)s->frames,
            s->fps);
    return 0;
}

static int png_put(struct sink *s, const uint8_t *rgb)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/frame-%05lld.png", s->path, (long long)s->taken);
    int rc = png_write(path, (int)s->width, (int)s->height, rgb);
    return rc ? say_fail("%s: %s", path, strerror(-rc)) : 0;
}

static int png_finish(struct sink *s)
{
    (void)s;
    return 0;
}

static void png_close(struct sink *s)
{
    (void)s;
}

static const struct sink_ops png_ops = {png_put, png_finish, png_close};

static int open_directory(struct sink *s)
{
    if (mkdir(s->path, 0777) && errno != EEXIST)
        return say_fail("%s: %s", s->path, strerror(errno));
    s->ops = &png_ops;
    return 0;
}

int sink_open(struct sink *s, const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash + 1 : path, '.');
    struct stat st;

    s->path = path;
    s->ops = NULL;
    s->taken = 0;
    if ((!stat(path, &st) && S_ISDIR(st.st_mode)) || !dot || !dot[1])
        return open_directory(s);
    return strcmp(dot, ".rgb") ? sink_open_video(s) : open_raw_sink(s);
}

int sink_put(struct sink *s, const uint8_t *rgb)
{
    int rc = s->ops->put(s, rgb);

    s->taken += !rc;
    return rc;
}

int sink_finish(struct sink *s)
{
    return s->ops->finish(s);
}

void sink_close(struct sink *s)
{
    if (s->ops)
        s->ops->close(s);
    s->ops = NULL;
}
