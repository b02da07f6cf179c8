/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The open files of a cache, and its values.  A cache may have more shards than a process may open
 * files, so the shards that were read last stay open.  A shard that is opened again may be another
 * file by then: the checksum of each row is compared whenever it is read.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../common/say.h"
#include "cache.h"
#include "ckpt_tools.h"

enum { OPEN = 16 /* files of a cache */ };

struct cache_files {
    struct {
        int64_t shard; /* -1: none */
        int fd;
    } open[OPEN];
    int next;        /* the one to be closed next */
    uint8_t *buffer; /* values that are not fp32 */
    int64_t room;
};

int cache_files_open(struct cache *c)
{
    c->files = calloc(1, sizeof *c->files);
    if (!c->files)
        return say_fail("no memory to read a cache");
    for (int i = 0; i < OPEN; i++)
        c->files->open[i].shard = -1;
    return 0;
}

void cache_files_close(struct cache *c)
{
    struct cache_files *f = c->files;

    for (int i = 0; f && i < OPEN; i++)
        if (f->open[i].shard >= 0)
            close(f->open[i].fd);
    if (f)
        free(f->buffer);
    free(f);
    c->files = NULL;
}

/* The descriptor of a shard, or -1 after an error message. */
static int file_of(const struct cache *c, int64_t shard)
{
    struct cache_files *f = c->files;
    const struct cache_shard *s = &c->shard[shard];
    int64_t size;
    int fd;

    for (int i = 0; i < OPEN; i++)
        if (f->open[i].shard == shard)
            return f->open[i].fd;
    if (cache_file_open(s->path, &fd, &size))
        return -1;
    int i = f->next;
    f->next = (i + 1) % OPEN;
    if (f->open[i].shard >= 0)
        close(f->open[i].fd);
    f->open[i].shard = shard;
    f->open[i].fd = fd;
    return fd;
}

int cache_files_read(const struct cache *c, const struct cache_values *v, void *dst)
{
    const struct cache_shard *s = &c->shard[v->shard];
    int fd = file_of(c, v->shard);

    if (fd < 0 || cache_file_read(s->path, fd, dst, v->bytes, v->at))
        return -1;
    return cache_sum(dst, (size_t)v->bytes) == v->sum ? 0 : 1;
}

/* Reads values as fp32. */
static int read_values(const struct cache *c, int64_t row, enum cache_part part, float *to)
{
    const struct cache_row *r = &c->row[row];
    const struct cache_values *v = &r->part[part];
    struct cache_files *f = c->files;

    if (v->half && f->room < v->bytes) {
        uint8_t *more = realloc(f->buffer, (size_t)v->bytes);
        if (!more)
            return say_fail("no memory for a clip of a cache");
        f->buffer = more;
        f->room = v->bytes;
    }
    int rc = cache_files_read(c, v, v->half ? (void *)f->buffer : to);
    if (rc > 0)
        return say_fail("%s: clip %lld (%s) is damaged: its checksum does not match",
                        c->shard[v->shard].path, (long long)row, r->note.name);
    if (!rc && v->half)
        ckpt_from_bf16((const uint16_t *)(const void *)f->buffer, to, v->bytes / 2);
    return rc;
}

int cache_read_latents(const struct cache *c, int64_t row, float *z)
{
    return read_values(c, row, CACHE_LATENTS, z);
}

int cache_read_sight(const struct cache *c, int64_t row, float *sight)
{
    return read_values(c, row, CACHE_SIGHT, sight);
}

int cache_read_text(const struct cache *c, int64_t row, int64_t tokens, float *y)
{
    const struct cache_row *r = &c->row[row];
    int64_t n = cache_has(r, CACHE_TEXT) ? r->tokens * c->width : 0;

    memset(y + n, 0, (size_t)(tokens * c->width - n) * sizeof *y);
    return n ? read_values(c, row, CACHE_TEXT, y) : 0;
}
