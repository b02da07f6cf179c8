/* SPDX-License-Identifier: Apache-2.0 */
/* The checksums of blocks, by offset: open addressing in a table whose size is a power of two. */
#include <stdlib.h>
#include "memory/tier/sum_table.h"

enum { FIRST_PLACES = 64 };

void sum_table_init(struct sum_table *t)
{
    *t = (struct sum_table){0};
    pthread_mutex_init(&t->lock, NULL);
}

void sum_table_clear(struct sum_table *t)
{
    pthread_mutex_lock(&t->lock);
    free(t->data);
    t->data = NULL;
    t->places = t->n = 0;
    pthread_mutex_unlock(&t->lock);
}

void sum_table_free(struct sum_table *t)
{
    sum_table_clear(t);
    pthread_mutex_destroy(&t->lock);
}

/* The entry of an offset, or the empty entry where it would go. */
static struct sum_entry *find(struct sum_entry *data, int64_t places, int64_t offset)
{
    uint64_t mask = (uint64_t)places - 1;
    uint64_t i = hash_mix(HASH_START, offset) & mask;
    while (data[i].bytes && data[i].offset != offset)
        i = (i + 1) & mask;
    return &data[i];
}

static int grow(struct sum_table *t)
{
    int64_t places = t->places ? 2 * t->places : FIRST_PLACES;
    struct sum_entry *data = calloc((size_t)places, sizeof *data);
    if (!data)
        return CKPT_ENOMEM;
    for (int64_t i = 0; i < t->places; i++) {
        if (t->data[i].bytes)
            *find(data, places, t->data[i].offset) = t->data[i];
    }
    free(t->data);
    t->data = data;
    t->places = places;
    return 0;
}

int sum_table_put(struct sum_table *t, int64_t offset, int64_t bytes, uint64_t sum)
{
    pthread_mutex_lock(&t->lock);
    int rc = 4 * (t->n + 1) > 3 * t->places ? grow(t) : 0;
    if (!rc) {
        struct sum_entry *e = find(t->data, t->places, offset);
        t->n += !e->bytes;
        *e = (struct sum_entry){offset, bytes, sum};
    }
    pthread_mutex_unlock(&t->lock);
    return rc;
}

bool sum_table_get(struct sum_table *t, int64_t offset, int64_t bytes, uint64_t *sum)
{
    bool found = false;
    pthread_mutex_lock(&t->lock);
    if (t->places) {
        const struct sum_entry *e = find(t->data, t->places, offset);
        found = e->bytes == bytes && bytes;
        *sum = e->sum;
    }
    pthread_mutex_unlock(&t->lock);
    return found;
}
