/* SPDX-License-Identifier: Apache-2.0 */
/* The order of an epoch's buckets: see buckets.h. */
#include <stdlib.h>
#include <string.h>
#include "../common/numpy_random.h"
#include "../common/say.h"
#include "../common/torch_random.h"
#include "buckets.h"

static struct bucket_list *list_of(struct bucket_epoch *e, const struct bucket *b)
{
    for (int i = 0; i < e->n; i++)
        if (!memcmp(&e->list[i].bucket, b, sizeof *b))
            return &e->list[i];
    struct bucket_list *list = realloc(e->list, (size_t)(e->n + 1) * sizeof *list);
    if (!list)
        return NULL;
    e->list = list;
    list[e->n] = (struct bucket_list){.bucket = *b};
    return &list[e->n++];
}

/* The capacity doubles whenever it is full, at powers of two. */
static int append(struct bucket_list *l, int64_t id)
{
    if (!(l->assigned & (l->assigned - 1))) {
        int64_t room = l->assigned ? 2 * l->assigned : 1;
        int64_t *sample = realloc(l->sample, (size_t)room * sizeof *sample);
        if (!sample)
            return -1;
        l->sample = sample;
    }
    l->sample[l->assigned++] = id;
    return 0;
}

/* Samples that do not fill a batch are dropped before the shuffle, so the end of the data is
 * lost. */
static int shuffle_list(struct bucket_list *l, struct torch_random *r)
{
    l->n = l->assigned - l->assigned % l->batch;
    int64_t *order = malloc(((size_t)l->n + 1) * sizeof *order);
    int64_t *moved = malloc(((size_t)l->n + 1) * sizeof *moved);
    bool made = order && moved;

    if (made) {
        torch_random_permutation(r, l->n, order);
        for (int64_t i = 0; i < l->n; i++)
            moved[i] = l->sample[order[i]];
        free(l->sample);
        l->sample = moved;
    } else {
        free(moved);
    }
    free(order);
    return made ? 0 : -1;
}

static int make_order(struct bucket_epoch *e, struct torch_random *r)
{
    int64_t at = 0;

    for (int i = 0; i < e->n; i++)
        e->n_order += e->list[i].n / e->list[i].batch;
    int64_t *list = malloc(((size_t)e->n_order + 1) * sizeof *list);
    int64_t *seen = calloc((size_t)e->n + 1, sizeof *seen);
    e->order = malloc(((size_t)e->n_order + 1) * sizeof *e->order);
    e->before = malloc(((size_t)e->n_order + 1) * sizeof *e->before);
    e->left = calloc((size_t)e->n + 1, sizeof *e->left);
    bool made = list && seen && e->order && e->before && e->left;
    for (int i = 0; i < e->n && made; i++)
        for (int64_t k = 0; k < e->list[i].n / e->list[i].batch; k++)
            list[at++] = i;
    if (made)
        torch_random_permutation(r, e->n_order, e->order);
    for (int64_t i = 0; i < e->n_order && made; i++) {
        e->order[i] = list[e->order[i]];
        e->before[i] = seen[e->order[i]]++;
    }
    free(list);
    free(seen);
    return made ? 0 : -1;
}

static int assign(struct bucket_epoch *e, const struct buckets *b,
                  const struct bucket_sample *samples, const struct bucket *own, int64_t n,
                  int64_t interval, uint64_t seed, int64_t epoch)
{
    struct bucket found;

    for (int64_t id = 0; id < n; id++) {
        if (own ? own[id].row < 0
                : !buckets_assign(b, &samples[id], id, interval, seed, epoch, &found))
            continue;
        found = own ? own[id] : found;
        struct bucket_list *l = list_of(e, &found);
        if (!l || append(l, id))
            return -1;
        l->batch = b->row[found.row].entry[found.entry].batch;
    }
    return 0;
}

int bucket_epoch_make(struct bucket_epoch *e, const struct buckets *b,
                      const struct bucket_sample *samples, const struct bucket *own, int64_t n,
                      int64_t interval, uint64_t seed, int64_t epoch)
{
    struct torch_random r;

    *e = (struct bucket_epoch){0};
    if (n >= TORCH_PERMUTATION_MAX)
        return say_fail("%lld samples: buckets support fewer than %lld", (long long)n,
                        (long long)TORCH_PERMUTATION_MAX);
    torch_random_seed(&r, seed + (uint64_t)epoch);
    int rc = assign(e, b, samples, own, n, interval, seed, epoch);
    for (int i = 0; i < e->n && !rc; i++)
        rc = shuffle_list(&e->list[i], &r);
    if (!rc)
        rc = make_order(e, &r);
    if (!rc)
        return 0;
    bucket_epoch_free(e);
    return say_fail("no memory for the buckets of %lld samples", (long long)n);
}

void bucket_epoch_free(struct bucket_epoch *e)
{
    for (int i = 0; i < e->n; i++)
        free(e->list[i].sample);
    free(e->list);
    free(e->order);
    free(e->before);
    free(e->left);
    *e = (struct bucket_epoch){0};
}

/* Takes the next batch of a list. */
static struct bucket_deal take_batch(struct bucket_epoch *e, int list)
{
    struct bucket_list *l = &e->list[list];

    return (struct bucket_deal){list, l->taken++ * l->batch};
}

bool bucket_epoch_next(struct bucket_epoch *e, int ranks, struct bucket_deal *deal)
{
    for (; e->next < e->n_order; e->next++) {
        struct bucket_list *l = &e->list[e->order[e->next]];
        if (e->before[e->next] < l->taken || l->n / l->batch - l->taken < ranks)
            continue;
        for (int r = 0; r < ranks; r++)
            deal[r] = take_batch(e, (int)e->order[e->next]);
        e->next++;
        return true;
    }
    return false;
}

/* The batches that fill no step are the last ones of their lists, so the same ones are held back
 * while the number of ranks stays. */
int64_t bucket_epoch_balanced(struct bucket_epoch *e, int ranks)
{
    int64_t all = 0;

    for (int i = 0; i < e->n; i++)
        all += e->left[i] = e->list[i].n / e->list[i].batch - e->list[i].taken;
    for (int64_t i = e->n_order - 1, rest = all % ranks; rest; i--)
        if (e->before[i] >= e->list[e->order[i]].taken) {
            e->left[e->order[i]]--;
            rest--;
        }
    return all / ranks;
}

bool bucket_epoch_balance(struct bucket_epoch *e, int ranks, const int *by_weight, uint64_t seed,
                          struct bucket_deal *deal)
{
    const int64_t steps = bucket_epoch_balanced(e, ranks);
    struct numpy_random r = numpy_random_seed(seed + ((uint64_t)steps << 32));
    int64_t skip = (int64_t)(numpy_random_next(&r) * (double)steps) * ranks;

    if (!steps)
        return false;
    for (int k = 0, rank = 0; rank < ranks; k++) {
        int64_t left = e->left[by_weight[k]];
        for (; left > skip && rank < ranks; left--)
            deal[rank++] = take_batch(e, by_weight[k]);
        skip -= skip < left ? skip : left;
    }
    return true;
}
