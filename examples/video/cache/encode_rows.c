/* SPDX-License-Identifier: Apache-2.0 */
/* The clips of a pass over the rows of its shards: a loader reads them ahead, in order. */
#include "encode.h"

/* The next row in the order of e->todo, or -1. */
static int64_t next_row(struct encode_rows *r)
{
    int64_t first;

    while (r->at < r->e->n_todo) {
        int64_t n = encode_shard_rows(r->e, r->e->todo[r->at], &first);
        r->row = r->row < first ? first : r->row;
        if (r->row < first + n)
            return r->row++;
        r->at++;
    }
    return -1;
}

static int next(void *user, struct loader_clip *c)
{
    struct encode_rows *r = user;
    struct video_clips size;
    int64_t row;

    do
        row = next_row(r);
    while (row >= 0 && !r->size(r->user, row, &size));
    if (row < 0)
        return 0;
    *c = (struct loader_clip){.sample = row,
                              .row = row,
                              .frames = size.frames,
                              .height = size.height,
                              .width = size.width};
    return 1;
}

static int read_row(void *user, struct loader_file *f, const struct loader_clip *c, int64_t row,
                    double *fps)
{
    const struct encode_rows *r = user;

    return r->read(r->user, f, c, row, fps);
}

int encode_rows_open(struct encode_rows *r, int64_t clip, int64_t step)
{
    const struct video_data *d = &r->e->data;
    const struct loader_need need = {
        .clip = clip, .step = step, .pixels = videos_pixels(&d->videos)};

    r->source = (struct loader_source){
        .next = next, .read = read_row, .rows = d->shapes.rows, .user = r, .alone = true};
    return loader_open(&r->loader, &r->e->options.video.loader, &need, &r->source);
}

void encode_rows_close(struct encode_rows *r)
{
    loader_close(r->loader);
    r->loader = NULL;
}

int encode_rows_take(struct encode_rows *r, int64_t row, struct loader_clip *c)
{
    if (loader_take(r->loader, c))
        return -1;
    return c->row == row ? 0
                         : say_fail("clip %lld was read in place of clip %lld", (long long)c->row,
                                    (long long)row);
}

uint64_t encode_rows_sum(const struct loader_clip *c)
{
    return cache_sum(c->rgb, (size_t)(c->frames * c->height * c->width * 3));
}

/* ---- check --------------------------------------------------------------------------------- */

int encode_refuse(const struct encode *e, const struct cache_row *r, const char *what)
{
    return say_fail("%s: clip %lld (%s) was made from %s, not from those of %s", e->options.output,
                    (long long)r->note.row, r->note.name, what, e->options.video.video_dir);
}

/* Returns 1 if the values of the row were made from this clip, 0 if that is not known, or -1. */
static int compare(const struct encode *e, const struct cache_row *row, enum cache_part part,
                   const struct loader_clip *c, const char *what)
{
    const uint64_t from = row->part[part].from;

    if (c->bad)
        return say_fail("%s: clip %lld (%s) cannot be compared: %s", e->options.output,
                        (long long)row->note.row, row->note.name, c->bad);
    if (from && from != encode_rows_sum(c))
        return encode_refuse(e, row, what);
    return from != 0;
}

int encode_rows_check(struct encode_rows *r, const struct cache_row *row, enum cache_part part,
                      const char *what)
{
    struct video_clips size;
    struct loader_clip c;
    int rc = 0;

    if (!r->size(r->user, row->note.row, &size))
        return 0;
    if (encode_rows_take(r, row->note.row, &c))
        return -1;
    if (cache_has(row, part))
        rc = compare(r->e, row, part, &c, what);
    loader_release(r->loader);
    return rc;
}
