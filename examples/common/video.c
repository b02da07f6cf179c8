/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a video by their numbers: what both formats share; see video.h. */
#include "video.h"
#include <stdlib.h>
#include <string.h>
#include "say.h"

int video_open(struct video *v, const char *path)
{
    *v = (struct video){.path = strdup(path)};
    if (!v->path)
        return say_fail("%s: no memory for a video", path);
    int raw = video_is_raw(path);
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
    return resize_run(&v->resize, &p, size, v->image, rgb)
               ? say_fail("%s: no memory for a frame", v->path)
               : 1;
}
