/* SPDX-License-Identifier: Apache-2.0 */
/* A table of the checksums of blocks. */
#ifndef CKPT_TIER_SUM_TABLE_H
#define CKPT_TIER_SUM_TABLE_H

#include <pthread.h>
#include "core/base.h"

struct sum_entry {
    int64_t offset, bytes; /* bytes 0: an empty entry */
    uint64_t sum;
};

/* A hash table by offset.  Thread-safe. */
struct sum_table {
    pthread_mutex_t lock;
    struct sum_entry *data; /* `places` entries, a power of two */
    int64_t places, n;
};

void sum_table_init(struct sum_table *t);
void sum_table_clear(struct sum_table *t); /* removes all blocks */
void sum_table_free(struct sum_table *t);

/* Sets length and checksum of the block at this offset.  Returns 0 or CKPT_ENOMEM. */
int sum_table_put(struct sum_table *t, int64_t offset, int64_t bytes, uint64_t sum);

/* Whether the table has a block of this offset and length; sets its checksum. */
bool sum_table_get(struct sum_table *t, int64_t offset, int64_t bytes, uint64_t *sum);

#endif
