/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buckets of Open-Sora 1.2: samples of about one size and length, which form batches.
 *
 * The table is a JSON object: size -> {"frames": [keep, batch]}, or [[keep, look], batch].  A batch
 * that is "auto" or absent is open: the training program chooses it (bucket_batch.c).  keep is the
 * probability that a matching sample stays here (else a smaller size is tried), look the
 * probability that this number of frames is tried at all.
 */
#ifndef VIDEO_BUCKETS_H
#define VIDEO_BUCKETS_H

#include <stdbool.h>
#include <stdint.h>
#include "aspect.h"

/* One number of frames of a size. */
struct bucket_entry {
    int64_t frames, batch; /* batch 0: none, and keep is 0 */
    bool open;             /* the batch is to be chosen; 1 until then */
    double keep, look;     /* look < 0: always */
    int number;            /* index among all (size, frames) of the table */
};

struct bucket_row {
    const struct aspect_size *size;
    struct bucket_entry *entry; /* descending frames */
    int n;
};

struct buckets {
    struct bucket_row *row; /* descending size */
    int n;
    int64_t labels; /* number of all (size, frames, ratio) */
};

/* Returns 0, or -1 after a sentence. */
int buckets_read(struct buckets *b, const char *path);
/* Marks the batches of all entries as open. */
void buckets_open(struct buckets *b);
void buckets_free(struct buckets *b);

/* ---- samples -------------------------------------------------------------------------------- */

/* One size, number of frames and ratio; indices. */
struct bucket {
    int row, entry, ratio;
};

struct bucket_sample {
    int64_t frames, height, width; /* of the data */
};

/* The bucket of sample `id` in this epoch, with every interval-th frame used; seed is the run's.
 * Returns whether there is one. */
bool buckets_assign(const struct buckets *b, const struct bucket_sample *s, int64_t id,
                    int64_t interval, uint64_t seed, int64_t epoch, struct bucket *found);

/* Calls visit for every bucket that the sample can be in, in any epoch. */
void buckets_visit(const struct buckets *b, const struct bucket_sample *s, int64_t interval,
                   void (*visit)(void *user, const struct bucket *bucket), void *user);

/* ---- the order of an epoch ------------------------------------------------------------------- */

/* The ordered samples of a bucket, whole batches only. */
struct bucket_list {
    struct bucket bucket;
    int64_t *sample, n;
    int64_t assigned; /* samples, including those that fill no batch */
    int64_t batch;    /* samples */
    int64_t taken;    /* batches already used */
};

struct bucket_epoch {
    struct bucket_list *list; /* in order of first appearance */
    int64_t *order, n_order;  /* the list of each batch */
    int64_t next;             /* index in order */
    int n;
    /* private: number of a list's batches before each one in the order; of each list, batches that
     * are left */
    int64_t *before, *left;
};

/* Assigns n samples to buckets, or uses `own` (row < 0: no bucket; NULL: assign), and shuffles
 * them.  Returns 0, or -1 after a sentence. */
int bucket_epoch_make(struct bucket_epoch *e, const struct buckets *b,
                      const struct bucket_sample *samples, const struct bucket *own, int64_t n,
                      int64_t interval, uint64_t seed, int64_t epoch);
void bucket_epoch_free(struct bucket_epoch *e);

/* The batch of one rank in a step: a list, and the index of its first sample there. */
struct bucket_deal {
    int list;
    int64_t first;
};

/*
 * The next step for this number of ranks, which all use batches of one list: the first remaining
 * batch of Open-Sora's order and the following batches of its list.  Fills in the deal of each
 * rank.  Returns whether there is one; if a list has fewer remaining batches than ranks, they are
 * skipped.
 *
 * The lists alone record the used batches, so a resumed run may have another number of ranks.
 */
bool bucket_epoch_next(struct bucket_epoch *e, int ranks, struct bucket_deal *deal);

/*
 * The same for ranks that use batches of about one weight, of any lists; by_weight: the lists by
 * ascending weight.  All remaining batches in that order are cut into steps, from which the seed
 * draws one.  So over an epoch the heaviest batches of all steps exceed the lightest by no more
 * than the heaviest batch exceeds the lightest, and only as many batches as fill no step are
 * skipped: the last of Open-Sora's order.
 */
bool bucket_epoch_balance(struct bucket_epoch *e, int ranks, const int *by_weight, uint64_t seed,
                          struct bucket_deal *deal);
/* The number of its remaining steps; sets `left` to the batches of each list in them. */
int64_t bucket_epoch_balanced(struct bucket_epoch *e, int ranks);

#endif
