/* SPDX-License-Identifier: Apache-2.0 */
/* A table that remembers the checksums of blocks. */
#ifndef CKPT_TIER_SUM_TABLE_H
#define CKPT_TIER_SUM_TABLE_H

#include <pthread.h>
#include "core/base.h"

struct sum_entry {
    int64_t offset, bytes; /* bytes 0: an empty place */
    uint64_t sum;
};

/* By offset.  Threads may use it together. */
struct sum_table {
    pthread_mutex_t lock;
    struct sum_entry *data; /* a power of two of places */
    int64_t places, n;
};

void sum_table_init(struct sum_table *t);
void sum_table_clear(struct sum_table *t); /* of all blocks */
void sum_table_free(struct sum_table *t);

/* The block at this offset is now so long with this sum.  Returns 0 or CKPT_ENOMEM. */
int sum_table_put(struct sum_table *t, int64_t offset, int64_t bytes, uint64_t sum);

/* Whether a block of that offset and length was put, and its sum. */
bool sum_table_get(struct sum_table *t, int64_t offset, int64_t bytes, uint64_t *sum);

#endif
