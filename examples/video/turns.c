/* SPDX-License-Identifier: Apache-2.0 */
/* The clips of each step: see turns.h. */
#include <stdlib.h>
#include "../common/say.h"
#include "turns.h"

enum { EPOCHS = 100 /* consecutive epochs without a batch for all ranks before an error */ };

/* ---- epochs --------------------------------------------------------------------------------- */

static void end_epoch(struct video_turns *t)
{
    bucket_epoch_free(&t->order);
    free(t->shape);
    t->shape = NULL;
}

static int begin_epoch(struct video_turns *t, int64_t epoch)
{
    const struct video_shapes *d = t->data;

    end_epoch(t);
    t->epoch = epoch;
    if (bucket_epoch_make(&t->order, &d->buckets, d->size, d->own, d->rows, t->interval, t->seed,
                          epoch))
        return -1;
    t->shape = calloc((size_t)t->order.n + 1, sizeof *t->shape);
    if (!t->shape)
        return say_fail("no memory for the buckets of an epoch");
    for (int i = 0; i < t->order.n; i++)
        t->shape[i] = video_shape_of(d, &t->order.list[i].bucket);
    return 0;
}

int video_turns_open(struct video_turns *t, const struct video_shapes *data, int64_t interval,
                     uint64_t seed, int ranks)
{
    *t = (struct video_turns){
        .data = data, .ranks = ranks, .seed = seed, .interval = interval ? interval : 1};
    return data->buckets.n ? begin_epoch(t, 0) : 0;
}

void video_turns_close(struct video_turns *t)
{
    end_epoch(t);
    free(t->place);
    *t = (struct video_turns){0};
}

/* ---- steps ---------------------------------------------------------------------------------- */

static int next_list(struct video_turns *t, int64_t *first)
{
    int list = bucket_epoch_next(&t->order, t->ranks, first);

    for (int tried = 0; list < 0 && tried < EPOCHS; tried++) {
        if (begin_epoch(t, t->epoch + 1))
            return -1;
        list = bucket_epoch_next(&t->order, t->ranks, first);
    }
    return list >= 0 ? list
                     : say_fail("no bucket had a complete batch for each of %d ranks in %d epochs",
                                t->ranks, EPOCHS);
}

int video_turns_next(struct video_turns *t, int64_t step, struct video_turn *turn)
{
    const struct video_shapes *d = t->data;
    int64_t first;

    if (!d->buckets.n) {
        int64_t samples = d->shape->batch * t->ranks;
        *turn = (struct video_turn){.shape = d->shape, .step = step, .before = step * samples};
        return 0;
    }
    int list = next_list(t, &first);
    if (list < 0)
        return -1;
    *turn = (struct video_turn){t->shape[list], step, t->epoch, t->before,
                                t->order.list[list].sample + first};
    t->before += turn->shape->batch * t->ranks;
    return 0;
}

int64_t video_turn_row(const struct video_turn *turn, const struct video_shapes *d, int64_t i)
{
    return turn->row ? turn->row[i] : (turn->before + i) % d->rows;
}

int64_t video_turn_sample(const struct video_turn *turn, const struct video_shapes *d, int64_t i)
{
    return turn->row ? turn->epoch * d->rows + turn->row[i] : turn->before + i;
}

int64_t video_sample_of(const struct video_shapes *d, int64_t sample, int64_t row)
{
    return sample - sample % d->rows + row;
}

/* ---- place of a run ------------------------------------------------------------------------- */

enum { NUMBER = 22 /* characters of one, with a blank */ };

const char *video_turns_place(struct video_turns *t)
{
    size_t size = ((size_t)t->order.n + 2) * NUMBER, at;
    char *text = realloc(t->place, size);

    if (!text)
        return NULL;
    t->place = text;
    at = (size_t)snprintf(text, size, "%lld %lld", (long long)t->epoch, (long long)t->before);
    for (int i = 0; i < t->order.n; i++)
        at += (size_t)snprintf(text + at, size - at, " %lld", (long long)t->order.list[i].taken);
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

int video_turns_go(struct video_turns *t, const char *place)
{
    const int64_t most = INT64_C(1) << 50;
    const char *text = place;
    int64_t epoch = take_number(&text, most), before = take_number(&text, most);

    if (epoch < 0 || before < 0)
        return say_fail("the position in the buckets of this state cannot be read");
    if (begin_epoch(t, epoch))
        return -1;
    t->before = before;
    for (int i = 0; i < t->order.n; i++) {
        struct bucket_list *l = &t->order.list[i];
        l->taken = take_number(&text, l->n / l->batch);
        if (l->taken < 0)
            return say_fail("the state was made with other buckets, or other data");
    }
    return *text ? say_fail("the state was made with other buckets, or other data") : 0;
}
