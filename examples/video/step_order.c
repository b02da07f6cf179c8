/* SPDX-License-Identifier: Apache-2.0 */
/* The clips of each step: see step_order.h. */
#include <stdlib.h>
#include "../common/say.h"
#include "step_order.h"

enum {
    EPOCHS = 100 /* consecutive epochs without a batch for all ranks before an error */,
    STREAM_PAIR = 0x57414e02
};

/* ---- epochs --------------------------------------------------------------------------------- */

static void end_epoch(struct video_order *t)
{
    bucket_epoch_free(&t->bucket);
    free(t->shape);
    free(t->by_weight);
    t->shape = NULL;
    t->by_weight = NULL;
}

static double weight_of(const struct video_order *t, int list)
{
    return t->shape[list] ? t->shape[list]->weight : 0;
}

/* A stable sort. */
static int sort_lists(struct video_order *t)
{
    t->by_weight = calloc((size_t)t->bucket.n + 1, sizeof *t->by_weight);
    if (!t->by_weight)
        return say_fail("no memory for the buckets of an epoch");
    for (int i = 0, at; i < t->bucket.n; i++) {
        for (at = i; at && weight_of(t, t->by_weight[at - 1]) > weight_of(t, i); at--)
            t->by_weight[at] = t->by_weight[at - 1];
        t->by_weight[at] = i;
    }
    return 0;
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
    return d->balanced ? sort_lists(t) : 0;
}

int video_order_open(struct video_order *t, const struct video_shapes *data, int64_t interval,
                     uint64_t seed, int rank, int ranks)
{
    *t = (struct video_order){.data = data,
                              .rank = rank,
                              .ranks = ranks,
                              .seed = seed,
                              .interval = interval ? interval : 1,
                              .deal = calloc((size_t)ranks, sizeof *t->deal)};
    if (!t->deal)
        return say_fail("no memory for the clips of %d ranks", ranks);
    return data->buckets.n ? begin_epoch(t, 0) : 0;
}

void video_order_close(struct video_order *t)
{
    end_epoch(t);
    free(t->deal);
    free(t->place);
    *t = (struct video_order){0};
}

/* ---- steps ---------------------------------------------------------------------------------- */

static bool deal(struct video_order *t)
{
    return t->by_weight ? bucket_epoch_balance(&t->bucket, t->ranks, t->by_weight,
                                               t->seed + (uint64_t)t->epoch, t->deal)
                        : bucket_epoch_next(&t->bucket, t->ranks, t->deal);
}

static int deal_next(struct video_order *t)
{
    for (int tried = 0; tried <= EPOCHS; tried++)
        if (deal(t))
            return 0;
        else if (tried < EPOCHS && begin_epoch(t, t->epoch + 1))
            return -1;
    if (t->by_weight)
        return say_fail("in %d epochs there were never enough complete batches for %d ranks",
                        EPOCHS, t->ranks);
    return say_fail("no bucket had a complete batch for each of %d ranks in %d epochs", t->ranks,
                    EPOCHS);
}

/* It depends only on (seed, step), so it is the same for all ranks and after a resume. */
static bool is_second(const struct video_order *t, int64_t step)
{
    float u;

    if (t->share <= 0)
        return false;
    ckpt_fill_uniform(t->seed, (uint64_t)step, STREAM_PAIR, &u, 1);
    return (double)u >= t->share;
}

ckpt_program *video_selection_program(const struct video_selection *selection)
{
    return selection->second ? selection->shape->low : selection->shape->training;
}

int video_order_next(struct video_order *t, int64_t step, struct video_selection *selection)
{
    const struct video_shapes *d = t->data;
    const bool second = is_second(t, step);

    if (!d->buckets.n) {
        const int64_t batch = d->shape->batch, all = batch * t->ranks;
        *selection = (struct video_selection){.shape = d->shape,
                                              .step = step,
                                              .before = step * all,
                                              .all = all,
                                              .first = batch * t->rank,
                                              .second = second};
        return 0;
    }
    if (deal_next(t))
        return -1;
    const struct bucket_deal *own = &t->deal[t->rank];
    *selection = (struct video_selection){.shape = t->shape[own->list],
                                          .step = step,
                                          .epoch = t->epoch,
                                          .before = t->before,
                                          .row = t->bucket.list[own->list].sample + own->first,
                                          .second = second};
    for (int r = 0; r < t->ranks; r++) {
        const int64_t batch = t->bucket.list[t->deal[r].list].batch;
        selection->all += batch;
        selection->first += r < t->rank ? batch : 0;
    }
    t->before += selection->all;
    return 0;
}

int64_t video_selection_row(const struct video_selection *selection, const struct video_shapes *d,
                            int64_t i)
{
    return selection->row ? selection->row[i]
                          : (selection->before + selection->first + i) % d->rows;
}

int64_t video_selection_sample(const struct video_selection *selection,
                               const struct video_shapes *d, int64_t i)
{
    return selection->row ? selection->epoch * d->rows + selection->row[i]
                          : selection->before + selection->first + i;
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
