/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buckets of Open-Sora 1.2: samples of about one size and length, which make batches together.
 *
 * The table is a JSON object: size -> {"frames": [keep, batch]}, or [[keep, look], batch].  A batch
 * that is "auto", or left out, is open: whoever trains chooses it (bucket_batch.c).  keep is
 * the probability that a sample which fits is kept here (else a smaller size is tried), look the
 * probability that this number of frames is looked at.
 */
#ifndef STDIT_BUCKETS_H
#define STDIT_BUCKETS_H

#include <stdbool.h>
#include <stdint.h>
#include "aspect.h"

/* One number of frames of a size. */
struct bucket_entry {
    int64_t frames, batch; /* batch 0: none is given, and keep is 0 */
    bool open;             /* the batch is to be chosen; 1 until then */
    double keep, look;     /* look < 0: always */
    int number;            /* of all (size, frames) of the table */
};

struct bucket_row {
    const struct aspect_size *size;
    struct bucket_entry *entry; /* the most frames first */
    int n;
};

struct buckets {
    struct bucket_row *row; /* the largest size first */
    int n;
    int64_t labels; /* (size, frames, ratio) in all */
};

/* Returns 0, or -1 after a sentence. */
int buckets_read(struct buckets *b, const char *path);
/* Leaves the batches of all entries open. */
void buckets_open(struct buckets *b);
void buckets_free(struct buckets *b);

/* ---- samples -------------------------------------------------------------------------------- */

/* One size, number of frames and ratio; indices. */
struct bucket {
    int row, entry, ratio;
};

struct bucket_sample {
    int64_t frames, height, width; /* as in the data */
};

/* The bucket of sample `id` in this epoch, with every interval-th frame taken; seed is that of the
 * run.  Returns whether there is one. */
bool buckets_assign(const struct buckets *b, const struct bucket_sample *s, int64_t id,
                    int64_t interval, uint64_t seed, int64_t epoch, struct bucket *found);

/* Calls visit with every bucket that the sample can be in, in one epoch or another. */
void buckets_visit(const struct buckets *b, const struct bucket_sample *s, int64_t interval,
                   void (*visit)(void *user, const struct bucket *bucket), void *user);

/* ---- the order of an epoch ------------------------------------------------------------------- */

/* The samples of a bucket in their order, whole batches of them. */
struct bucket_list {
    struct bucket bucket;
    int64_t *sample, n;
    int64_t assigned; /* with those that fill no batch */
    int64_t batch;    /* samples */
    int64_t taken;    /* batches */
};

struct bucket_epoch {
    struct bucket_list *list; /* in order of first appearance */
    int64_t *order, n_order;  /* of batches: the list of each */
    int64_t next;             /* of order */
    int n;
    /* its own: how many batches of a list stand before one of the order */
    int64_t *before;
};

/* Assigns n samples, or takes their own buckets (row < 0: none; NULL: they have none), and shuffles
 * them.  Returns 0, or -1 after a sentence. */
int bucket_epoch_make(struct bucket_epoch *e, const struct buckets *b,
                      const struct bucket_sample *samples, const struct bucket *own, int64_t n,
                      int64_t interval, uint64_t seed, int64_t epoch);
void bucket_epoch_free(struct bucket_epoch *e);

/*
 * The next step of so many ranks, which all take a batch of the same list: of Open-Sora's order the
 * first batch that is left and those of its list that follow it.  *first: where the ranks' samples
 * begin in the list; there are ranks x batch of them.  Returns the list, or -1 at the end of the
 * epoch.  Of a list with fewer batches left than ranks the rest is not taken.
 *
 * What was taken is in the lists alone, so that another number of ranks can go on.
 */
int bucket_epoch_next(struct bucket_epoch *e, int ranks, int64_t *first);

#endif
