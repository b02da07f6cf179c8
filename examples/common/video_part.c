/* SPDX-License-Identifier: Apache-2.0 */
/* Members of tar files as input of FFmpeg: see video_part.h. */
#include "video.h"

#ifdef HAVE_FFMPEG

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <libavutil/error.h>
#include <libavutil/mem.h>
#include "video_part.h"

enum { BUFFER = 1 << 15 /* bytes that FFmpeg reads at a time, as from a file */ };

struct part {
    const struct video_file *file;
    int fd;
    int64_t at; /* in the content */
};

/* The run that holds byte `at` of the content, or the next one; NULL: only a hole follows. */
static const struct shard_run *run_of(const struct video_file *f, int64_t at)
{
    int64_t low = 0, high = f->runs;

    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (f->run[middle].at + f->run[middle].bytes <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < f->runs ? &f->run[low] : NULL;
}

/* Reads up to n bytes from one run or one hole. */
static ssize_t read_some(const struct part *p, uint8_t *dst, int64_t n)
{
    const struct video_file *f = p->file;
    const struct shard_run whole = {0, f->size, f->start}, *r = f->runs ? run_of(f, p->at) : &whole;
    int64_t hole = (r ? r->at : f->size) - p->at;

    if (hole > 0) {
        n = n < hole ? n : hole;
        memset(dst, 0, (size_t)n);
        return (ssize_t)n;
    }
    int64_t inside = p->at - r->at, left = r->bytes - inside;
    return pread(p->fd, dst, (size_t)(n < left ? n : left), (off_t)(r->start + inside));
}

static int read_part(void *user, uint8_t *dst, int size)
{
    struct part *p = user;
    int64_t left = p->file->size - p->at;
    ssize_t n;

    if (left <= 0)
        return AVERROR_EOF;
    do
        n = read_some(p, dst, size < left ? size : left);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n ? AVERROR(errno) : AVERROR_EOF; /* the file became shorter */
    p->at += n;
    return (int)n;
}

static int64_t seek_part(void *user, int64_t offset, int whence)
{
    struct part *p = user;
    int64_t from = whence == SEEK_CUR ? p->at : whence == SEEK_END ? p->file->size : 0;

    if (whence == AVSEEK_SIZE)
        return p->file->size;
    if (offset < -from || offset > p->file->size - from)
        return AVERROR(EINVAL);
    return p->at = from + offset;
}

int video_part_open(AVIOContext **io, const struct video_file *f)
{
    struct part *p = av_mallocz(sizeof *p);
    uint8_t *buffer = av_malloc(BUFFER);

    *io = p && buffer ? avio_alloc_context(buffer, BUFFER, 0, p, read_part, NULL, seek_part) : NULL;
    if (!*io) {
        av_free(p);
        av_free(buffer);
        return AVERROR(ENOMEM);
    }
    *p = (struct part){f, open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), 0};
    if (p->fd >= 0)
        return 0;
    int rc = AVERROR(errno);
    video_part_close(io);
    return rc;
}

void video_part_close(AVIOContext **io)
{
    if (!*io)
        return;
    struct part *p = (*io)->opaque;
    if (p->fd >= 0)
        close(p->fd);
    av_free(p);
    av_freep(&(*io)->buffer); /* FFmpeg may have replaced it */
    avio_context_free(io);
}

#endif
