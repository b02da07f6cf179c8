/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the shapes of a run from a table of buckets and the sizes of the data. */
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "shapes.h"

/* ---- possible buckets ----------------------------------------------------------------------- */

/* The number of rows that can be in each bucket of a table: [entries][maximum ratios of a size]. */
struct count {
    const struct buckets *table;
    int64_t *n;
    int ratios;
};

static int64_t *count_of(const struct count *c, const struct bucket *b)
{
    return &c->n[c->table->row[b->row].entry[b->entry].number * c->ratios + b->ratio];
}

static void add(void *user, const struct bucket *bucket)
{
    ++*count_of(user, bucket);
}

static int count_rows(struct count *c, const struct video_shapes *d, int64_t interval)
{
    const struct buckets *b = &d->buckets;
    int entries = 0;

    *c = (struct count){.table = b};
    for (int i = 0; i < b->n; i++) {
        int ratios = aspect_count(b->row[i].size);
        c->ratios = c->ratios > ratios ? c->ratios : ratios;
        entries += b->row[i].n;
    }
    c->n = calloc((size_t)entries * (size_t)c->ratios, sizeof *c->n);
    if (!c->n)
        return say_fail("no memory for %d entries of buckets", entries);
    for (int64_t i = 0; i < d->rows; i++)
        buckets_visit(b, &d->size[i], interval, add, c);
    return 0;
}

/* ---- shapes --------------------------------------------------------------------------------- */

void video_bucket_name(const struct buckets *table, const struct bucket *b,
                       char name[VIDEO_BUCKET_NAME])
{
    const struct bucket_row *row = &table->row[b->row];
    int label = aspect_label(row->size, b->ratio);

    snprintf(name, VIDEO_BUCKET_NAME, "%s %lld %d.%02d", row->size->name,
             (long long)row->entry[b->entry].frames, label / 100, label % 100);
}

/* Clips are cropped to whole cells of the autoencoder, as Open-Sora's latents are; the model gets
 * the sizes of the table as input. */
static void make_shape(const struct video_shapes *d, const struct video_sizing *sizing,
                       struct video_shape *s, const struct bucket *b)
{
    const struct bucket_row *row = &d->buckets.row[b->row];
    int64_t height, width, cell = sizing->cell;

    aspect_frame(row->size, b->ratio, &height, &width);
    sizing->fill(sizing->coder, s, row->entry[b->entry].frames, height / cell * cell,
                 width / cell * cell);
    s->geometry.pixel_height = (double)height;
    s->geometry.pixel_width = (double)width;
    s->batch = row->entry[b->entry].batch;
    s->bucket = *b;
    video_bucket_name(&d->buckets, b, s->name);
}

/* Lists the buckets with enough possible rows for a whole batch; shapes NULL: counts only. */
static int list_shapes(const struct video_shapes *d, const struct video_sizing *sizing,
                       const struct count *c, struct video_shape *shapes)
{
    const struct buckets *table = &d->buckets;
    int n = 0;

    for (int i = 0; i < table->n; i++)
        for (int k = 0; k < table->row[i].n; k++)
            for (int ratio = 0; ratio < aspect_count(table->row[i].size); ratio++) {
                struct bucket b = {i, k, ratio};
                int64_t possible = *count_of(c, &b);
                if (!possible || possible < table->row[i].entry[k].batch)
                    continue;
                if (shapes) {
                    make_shape(d, sizing, &shapes[n], &b);
                    shapes[n].possible = possible;
                }
                n++;
            }
    return n;
}

static int64_t cells(const struct video_shape *s)
{
    return s->batch * s->geometry.frames * s->geometry.height * s->geometry.width;
}

static int larger_first(const void *a, const void *b)
{
    const struct video_shape *x = a, *y = b;
    int64_t m = cells(x), n = cells(y);

    return m != n ? (m < n) - (m > n) : memcmp(&x->bucket, &y->bucket, sizeof x->bucket);
}

static int make_shapes(struct video_shapes *d, const struct video_sizing *sizing,
                       const struct count *c, const char *path)
{
    int n = list_shapes(d, sizing, c, NULL);

    if (!n)
        return say_fail("%s: %lld samples are too few for a batch in any bucket", path,
                        (long long)d->rows);
    if (video_shapes_make(d, n))
        return -1;
    list_shapes(d, sizing, c, d->shape);
    qsort(d->shape, (size_t)n, sizeof *d->shape, larger_first);
    return 0;
}

const struct video_shape *video_shape_of(const struct video_shapes *d, const struct bucket *b)
{
    for (int i = 0; i < d->n; i++)
        if (!memcmp(&d->shape[i].bucket, b, sizeof *b))
            return &d->shape[i];
    return NULL;
}

struct fit {
    const struct count *count;
    bool fits;
};

static void see(void *user, const struct bucket *bucket)
{
    struct fit *f = user;
    const struct bucket_row *row = &f->count->table->row[bucket->row];

    f->fits |= *count_of(f->count, bucket) >= row->entry[bucket->entry].batch;
}

/* The rows that a bucket with a shape can take. */
static int64_t count_fitting(const struct count *c, const struct video_shapes *d, int64_t interval)
{
    int64_t n = 0;

    for (int64_t i = 0; i < d->rows; i++) {
        struct fit f = {.count = c};
        buckets_visit(c->table, &d->size[i], interval, see, &f);
        n += f.fits;
    }
    return n;
}

int video_shapes_read(struct video_shapes *d, const char *path, bool open, int64_t interval,
                      const struct video_sizing *sizing)
{
    struct count c = {.n = NULL};
    int rc = buckets_read(&d->buckets, path);

    if (!rc && open)
        buckets_open(&d->buckets);
    rc = rc || count_rows(&c, d, interval) || make_shapes(d, sizing, &c, path);
    d->fitting = rc ? 0 : count_fitting(&c, d, interval);
    free(c.n);
    return rc ? -1 : 0;
}
