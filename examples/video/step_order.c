/* SPDX-License-Identifier: Apache-2.0 */
/* The clips of each step: see step_order.h. */
#include <stdlib.h>
#include "../common/say.h"
#include "step_order.h"

enum { EPOCHS = 100 /* consecutive epochs without a batch for all ranks before an error */ };

/* ---- epochs --------------------------------------------------------------------------------- */

static void end_epoch(struct video_order *t)
{
    bucket_epoch_free(&t->bucket);
    free(t->shape);
    t->shape = NULL;
}

static int begin_epoch(struct video_order *t, int64_t epoch)
{
    const struct video_shapes *d = t->data;

    end_epoch(t);
    t->epoch = epoch;
    if (bucket_epoch_make(&t->bucket, &d->buckets, d->size, d->own, d->rows, t->interval, t->seed,
                          epoch))
        return -1;
    t->shape = calloc((size_t)t->bucket.n + 1, sizeof *t->shape);
    if (!t->shape)
        return say_fail("no memory for the buckets of an epoch");
    for (int i = 0; i < t->bucket.n; i++)
        t->shape[i] = video_shape_of(d, &t->bucket.list[i].bucket);
    return 0;
}

int video_order_open(struct video_order *t, const struct video_shapes *data, int64_t interval,
                     uint64_t seed, int ranks)
{
    *t = (struct video_order){
        .data = data, .ranks = ranks, .seed = seed, .interval = interval ? interval : 1};
    return data->buckets.n ? begin_epoch(t, 0) : 0;
}

void video_order_close(struct video_order *t)
{
    end_epoch(t);
    free(t->place);
    *t = (struct video_order){0};
}

/* ---- steps ---------------------------------------------------------------------------------- */

static int next_list(struct video_order *t, int64_t *first)
{
    int list = bucket_epoch_next(&t->bucket, t->ranks, first);

    for (int tried = 0; list < 0 && tried < EPOCHS; tried++) {
        if (begin_epoch(t, t->epoch + 1))
            return -1;
        list = bucket_epoch_next(&t->bucket, t->ranks, first);
    }
    return list >= 0 ? list
                     : say_fail("no bucket had a complete batch for each of %d ranks in %d epochs",
                                t->ranks, EPOCHS);
}

int video_order_next(struct video_order *t, int64_t step, struct video_selection *selection)
{
    const struct video_shapes *d = t->data;
    int64_t first;

    if (!d->buckets.n) {
        int64_t samples = d->shape->batch * t->ranks;
        *selection =
            (struct video_selection){.shape = d->shape, .step = step, .before = step * samples};
        return 0;
    }
    int list = next_list(t, &first);
    if (list < 0)
        return -1;
    *selection = (struct video_selection){t->shape[list], step, t->epoch, t->before,
                                          t->bucket.list[list].sample + first};
    t->before += selection->shape->batch * t->ranks;
    return 0;
}

int64_t video_selection_row(const struct video_selection *selection, const struct video_shapes *d,
                            int64_t i)
{
    return selection->row ? selection->row[i] : (selection->before + i) % d->rows;
}

int64_t video_selection_sample(const struct video_selection *selection,
                               const struct video_shapes *d, int64_t i)
{
    return selection->row ? selection->epoch * d->rows + selection->row[i] : selection->before + i;
}

int64_t video_sample_of(const struct video_shapes *d, int64_t sample, int64_t row)
{
    return sample - sample % d->rows + row;
}

/* ---- place of a run ------------------------------------------------------------------------- */

enum { NUMBER = 22 /* characters of one, with a blank */ };

const char *video_order_place(struct video_order *t)
{
    size_t size = ((size_t)t->bucket.n + 2) * NUMBER, at;
    char *text = realloc(t->place, size);

    if (!text)
        return NULL;
    t->place = text;
    at = (size_t)snprintf(text, size, "%lld %lld", (long long)t->epoch, (long long)t->before);
    for (int i = 0; i < t->bucket.n; i++)
        at += (size_t)snprintf(text + at, size - at, " %lld", (long long)t->bucket.list[i].taken);
    return text;
}

/* Parses the next number of a line, from 0 to most; -1: none. */
static int64_t take_number(const char **text, int64_t most)
{
    char *end;
    long long n = strtoll(*text, &end, 10);
    bool found = end != *text && n >= 0 && n <= most;

    *text = end;
    return found ? n : -1;
}

int video_order_go(struct video_order *t, const char *place)
{
    const int64_t most = INT64_C(1) << 50;
    const char *text = place;
    int64_t epoch = take_number(&text, most), before = take_number(&text, most);

    if (epoch < 0 || before < 0)
        return say_fail("the position in the buckets of this state cannot be read");
    if (begin_epoch(t, epoch))
        return -1;
    t->before = before;
    for (int i = 0; i < t->bucket.n; i++) {
        struct bucket_list *l = &t->bucket.list[i];
        l->taken = take_number(&text, l->n / l->batch);
        if (l->taken < 0)
            return say_fail("the state was made with other buckets, or other data");
    }
    return *text ? say_fail("the state was made with other buckets, or other data") : 0;
}
