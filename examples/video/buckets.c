/* SPDX-License-Identifier: Apache-2.0 */
/* The table of buckets, and the assignment of samples to buckets: see buckets.h. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "../common/numpy_random.h"
#include "../common/say.h"
#include "../common/settings.h"
#include "buckets.h"

enum { FRAMES_MAX = 65536, BATCH_MAX = 65536 };

/* ---- the table ------------------------------------------------------------------------------ */

static bool is_probability(const json_t *j)
{
    return json_is_number(j) && json_number_value(j) >= 0 && json_number_value(j) <= 1;
}

/* keep, or [keep, look]; Open-Sora ignores the second for images. */
static bool read_chances(struct bucket_entry *e, const json_t *j)
{
    bool pair = json_is_array(j) && json_array_size(j) == 2 && e->frames > 1;
    const json_t *keep = pair ? json_array_get(j, 0) : j;
    const json_t *look = pair ? json_array_get(j, 1) : NULL;

    if (!is_probability(keep) || (look && !is_probability(look)))
        return false;
    e->keep = json_number_value(keep);
    e->look = look ? json_number_value(look) : -1;
    return true;
}

static void leave_open(struct bucket_entry *e)
{
    e->open = e->keep > 0;
    e->batch = e->open ? 1 : 0;
}

/* j NULL: absent. */
static bool read_batch(struct bucket_entry *e, const json_t *j)
{
    if (json_is_null(j) && e->keep <= 0)
        return true;
    if (!j || (json_is_string(j) && !strcmp(json_string_value(j), "auto"))) {
        leave_open(e);
        return true;
    }
    e->batch = json_is_integer(j) ? json_integer_value(j) : 0;
    return e->batch >= 1 && e->batch <= BATCH_MAX;
}

static int read_entry(struct bucket_entry *e, const char *path, const char *size,
                      const char *frames, const json_t *j)
{
    char *end;
    long long n = strtoll(frames, &end, 10);

    if (*frames < '1' || *frames > '9' || *end || n > FRAMES_MAX)
        return say_fail("%s: \"%s\": \"%s\" is not a number of frames (1 to %d)", path, size,
                        frames, FRAMES_MAX);
    e->frames = n;
    if (!json_is_array(j) || json_array_size(j) < 1 || json_array_size(j) > 2 ||
        !read_chances(e, json_array_get(j, 0)) || !read_batch(e, json_array_get(j, 1)))
        return say_fail("%s: \"%s\", \"%s\": [keep, batch] or, of videos, [[keep, look], batch] is "
                        "expected, with probabilities from 0 to 1 and a batch from 1 to %d, or "
                        "\"auto\"",
                        path, size, frames, BATCH_MAX);
    return 0;
}

static int more_frames_first(const void *a, const void *b)
{
    int64_t x = ((const struct bucket_entry *)a)->frames,
            y = ((const struct bucket_entry *)b)->frames;

    return (x < y) - (x > y);
}

static int read_row(struct bucket_row *r, const char *path, const char *size, json_t *j)
{
    const char *frames;
    json_t *value;

    r->size = aspect_find(size);
    if (!r->size)
        return say_fail("%s: size \"%s\" is unknown; the sizes are %s", path, size, aspect_names());
    if (!json_is_object(j) || !json_object_size(j))
        return say_fail("%s: \"%s\": an object with numbers of frames is expected", path, size);
    r->entry = calloc(json_object_size(j), sizeof *r->entry);
    if (!r->entry)
        return say_fail("no memory for a table of buckets");
    json_object_foreach(
        j, frames, value) if (read_entry(&r->entry[r->n++], path, size, frames, value)) return -1;
    qsort(r->entry, (size_t)r->n, sizeof *r->entry, more_frames_first);
    return 0;
}

/* A stable sort: sizes with equal pixels keep the order of the file. */
static void sort_rows(struct buckets *b)
{
    for (int i = 1; i < b->n; i++)
        for (int at = i; at && b->row[at].size->pixels > b->row[at - 1].size->pixels; at--) {
            struct bucket_row moved = b->row[at];
            b->row[at] = b->row[at - 1];
            b->row[at - 1] = moved;
        }
}

static void number_entries(struct buckets *b)
{
    int number = 0;

    for (int i = 0; i < b->n; i++)
        for (int k = 0; k < b->row[i].n; k++) {
            b->row[i].entry[k].number = number++;
            b->labels += aspect_count(b->row[i].size);
        }
}

static int read_rows(struct buckets *b, const char *path, json_t *j)
{
    const char *size;
    json_t *value;

    if (!json_is_object(j) || !json_object_size(j))
        return say_fail("%s: an object with at least one size is expected", path);
    b->row = calloc(json_object_size(j), sizeof *b->row);
    if (!b->row)
        return say_fail("no memory for a table of buckets");
    json_object_foreach(j, size, value) if (read_row(&b->row[b->n++], path, size, value)) return -1;
    sort_rows(b);
    number_entries(b);
    return 0;
}

int buckets_read(struct buckets *b, const char *path)
{
    struct settings s;

    *b = (struct buckets){0};
    int rc = settings_open(&s, path) ? -1 : read_rows(b, path, s.root);
    settings_close(&s);
    if (rc)
        buckets_free(b);
    return rc;
}

void buckets_open(struct buckets *b)
{
    for (int i = 0; i < b->n; i++)
        for (int k = 0; k < b->row[i].n; k++)
            leave_open(&b->row[i].entry[k]);
}

void buckets_free(struct buckets *b)
{
    for (int i = 0; i < b->n; i++)
        free(b->row[i].entry);
    free(b->row);
    *b = (struct buckets){0};
}

/* ---- samples -------------------------------------------------------------------------------- */

static bool keeps_image(const struct bucket_entry *e, uint64_t seed)
{
    struct numpy_random r = numpy_random_seed(seed + (uint64_t)e->number);

    return numpy_random_next(&r) < e->keep;
}

/* Each entry has a newly seeded generator; look uses its first draw. */
static bool looks_at(const struct bucket_entry *e, struct numpy_random *r, uint64_t seed)
{
    *r = numpy_random_seed(seed + (uint64_t)e->number);
    return e->look < 0 || numpy_random_next(r) <= e->look;
}

/* A clip needs one frame more than the entry: a video of 51 frames does not fit an entry of 51. */
static int video_entry(const struct bucket_row *row, int64_t frames, int64_t interval,
                       uint64_t seed)
{
    struct numpy_random r;

    for (int i = 0; i < row->n; i++) {
        const struct bucket_entry *e = &row->entry[i];
        if (e->frames > 1 && frames > e->frames * interval && looks_at(e, &r, seed))
            return e->keep >= 1 || numpy_random_next(&r) < e->keep ? i : -1;
    }
    return -1;
}

static int image_entry(const struct bucket_row *row, uint64_t seed)
{
    int last = row->n - 1;

    return row->entry[last].frames == 1 && keeps_image(&row->entry[last], seed) ? last : -1;
}

static bool fits(const struct bucket_row *row, const struct bucket_sample *s)
{
    return (double)(s->height * s->width) >= (double)row->size->pixels * 0.8;
}

bool buckets_assign(const struct buckets *b, const struct bucket_sample *s, int64_t id,
                    int64_t interval, uint64_t seed, int64_t epoch, struct bucket *found)
{
    uint64_t own = seed + (uint64_t)epoch + (uint64_t)id * (uint64_t)b->labels;

    for (int i = 0; i < b->n; i++) {
        const struct bucket_row *row = &b->row[i];
        if (!fits(row, s))
            continue;
        int entry =
            s->frames == 1 ? image_entry(row, own) : video_entry(row, s->frames, interval, own);
        if (entry < 0)
            continue;
        *found = (struct bucket){i, entry, aspect_nearest(row->size, s->height, s->width)};
        return true;
    }
    return false;
}

/* ---- possible buckets ----------------------------------------------------------------------- */

/* takes: whether an entry may accept the sample; is_last: no later entry can be reached. */
static bool takes(const struct bucket_entry *e, const struct bucket_sample *s, int64_t interval)
{
    return s->frames == 1 ? e->frames == 1 : e->frames > 1 && s->frames > e->frames * interval;
}

static bool is_last(const struct bucket_entry *e)
{
    return e->look < 0 || e->look >= 1;
}

/* Returns whether the sample can pass the row. */
static bool visit_row(const struct buckets *b, int row, const struct bucket_sample *s,
                      int64_t interval, void (*visit)(void *user, const struct bucket *bucket),
                      void *user)
{
    const struct bucket_row *r = &b->row[row];
    bool passes = false;

    for (int i = 0; i < r->n; i++) {
        const struct bucket_entry *e = &r->entry[i];
        if (!takes(e, s, interval))
            continue;
        if (e->keep > 0)
            visit(user, &(struct bucket){row, i, aspect_nearest(r->size, s->height, s->width)});
        passes |= e->keep < 1;
        if (is_last(e))
            return passes;
    }
    return true;
}

void buckets_visit(const struct buckets *b, const struct bucket_sample *s, int64_t interval,
                   void (*visit)(void *user, const struct bucket *bucket), void *user)
{
    for (int i = 0; i < b->n; i++)
        if (fits(&b->row[i], s) && !visit_row(b, i, s, interval, visit, user))
            return;
}
