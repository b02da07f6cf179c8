/* SPDX-License-Identifier: Apache-2.0 */
/* Writes frames to the raw format and to PNG files; see sink.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "ckpt_tools.h"
#include "directory.h"
#include "picture.h"
#include "say.h"
#include "sink.h"

static int raw_put(struct sink *s, const uint8_t *rgb)
{
    size_t size = (size_t)(s->width * s->height * 3);

    if (fwrite(rgb, 1, size, s->data) != size)
        return say_fail("%s: %s", s->path, strerror(errno));
    return 0;
}

static int raw_finish(struct sink *s)
{
    return sink_commit(s);
}

static void raw_sink_close(struct sink *s)
{
    (void)s;
}

static const struct sink_ops raw_sink_ops = {raw_put, raw_finish, raw_sink_close};

/* A line with the sizes, then the bytes of all frames.  Without compression, so that tests compare
 * bytes; the file gets its name when it is complete. */
static int open_raw_sink(struct sink *s)
{
    if (ckpt_replace_open(&s->file, s->path))
        return say_fail("%s", ckpt_error(NULL));
    s->ops = &raw_sink_ops;
    s->data = ckpt_replace_stream(s->file);
    if (!s->data)
        return say_fail("%s: no memory to write it", s->path);
    fprintf(s->data, "RGBCLIP %d %d %d %g\n", (int)s->width, (int)s->height, (int)s->frames,
            s->fps);
    return 0;
}

static int png_put(struct sink *s, const uint8_t *rgb)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/frame-%05lld.png", s->path, (long long)s->taken);
    return picture_write(path, 1, s->height, s->width, rgb, 1);
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
    s->ops = &png_ops;
    return directory_make(s->path);
}

/* The extension of a name, or NULL. */
static const char *ending_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash + 1 : path, '.');

    return dot && dot[1] ? dot : NULL;
}

bool sink_is_directory(const char *path)
{
    struct stat st;

    return stat(path, &st) ? !ending_of(path) : S_ISDIR(st.st_mode);
}

int sink_open(struct sink *s, const char *path)
{
    const char *ending = ending_of(path);

    s->path = path;
    s->ops = NULL;
    s->file = NULL;
    s->taken = 0;
    if (sink_is_directory(path))
        return open_directory(s);
    return ending && !strcmp(ending, ".rgb") ? open_raw_sink(s) : sink_open_video(s);
}

/* Opens a small clip and drops it: a format that cannot be written is refused before the slow part
 * of a run, not after it. */
int sink_check(const char *path)
{
    struct sink s = {.width = 16, .height = 16, .frames = 1, .fps = 8};

    if (sink_is_directory(path))
        return 0;
    int rc = sink_open(&s, path);
    sink_close(&s);
    return rc;
}

int sink_commit(struct sink *s)
{
    struct ckpt_replacement *file = s->file;

    s->file = NULL;
    return ckpt_replace_commit(file, true) ? say_fail("%s", ckpt_error(NULL)) : 0;
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
    ckpt_replace_abandon(s->file);
    s->file = NULL;
}
