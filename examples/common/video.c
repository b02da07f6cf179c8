/* SPDX-License-Identifier: Apache-2.0 */
/* Reads frames of a video by number: the parts that both formats share; see video.h. */
#include "video.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "say.h"
#include "shortage.h"

int video_short(const char *path, const char *what)
{
    shortage_note(ENOMEM);
    return say_fail("%s: no memory for %s", path, what);
}

int video_file_copy(struct video_file *to, const struct video_file *f)
{
    *to = *f;
    to->path = strdup(f->path);
    to->member = f->member ? strdup(f->member) : NULL;
    struct shard_run *run = f->runs ? malloc((size_t)f->runs * sizeof *run) : NULL;
    if (run)
        memcpy(run, f->run, (size_t)f->runs * sizeof *run);
    to->run = run;
    return to->path && !to->member == !f->member && !run == !f->runs ? 0 : -1;
}

void video_file_free(struct video_file *f)
{
    free((void *)(uintptr_t)f->path);
    free((void *)(uintptr_t)f->member);
    free((void *)(uintptr_t)f->run);
    *f = (struct video_file){.path = NULL};
}

int video_open(struct video *v, const char *path)
{
    const struct video_file f = {.path = path};

    return video_open_file(v, &f);
}

int video_open_file(struct video *v, const struct video_file *f)
{
    *v = (struct video){.path = NULL};
    int rc = video_file_copy(&v->file, f);
    int n = asprintf(&v->path, "%s%s%s", f->path, f->member ? "/" : "", f->member ? f->member : "");
    v->path = n < 0 ? NULL : v->path;
    if (rc || !v->path)
        return video_short(f->path, "a video");
    int raw = f->member ? 0 : video_is_raw(f->path);
    if (raw < 0)
        return -1;
    return raw ? video_open_raw(v) : video_open_decoder(v);
}

void video_close(struct video *v)
{
    if (v->ops)
        v->ops->close(v);
    resize_free(&v->resize);
    free(v->path);
    video_file_free(&v->file);
    *v = (struct video){.path = NULL};
}

int64_t video_frames(struct video *v)
{
    return v->ops->count(v);
}

int video_read(struct video *v, int64_t n, const struct picture_size *size, uint8_t *rgb)
{
    struct pixels p;
    int rc = v->ops->frame(v, n, &p);

    if (rc <= 0)
        return rc;
    return resize_run(&v->resize, &p, size, v->image, rgb) ? video_short(v->path, "a frame") : 1;
}
