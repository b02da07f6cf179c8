/* Checksums: eight independent chains of 64-bit words, so that a core keeps up with memory. */
#include <stdlib.h>
#include <string.h>
#include "cpu.h"
#include "tier/checksum.h"

enum { CHAINS = 8, FIRST_PLACES = 64 };

#define MULTIPLIER UINT64_C(0x9fb21c651e98df25) /* odd, half of its bits set */

/* One to one in h for every x and in x for every h: what changes a single word of a chain cannot
 * cancel out later.  The shift brings high bits down, which a product only moves up. */
static inline uint64_t chain(uint64_t h, uint64_t x)
{
    h = (h ^ x) * MULTIPLIER;
    return h ^ (h >> 32);
}

CKPT_CLONES static uint64_t sum_of(const void *data, int64_t bytes)
{
    const char *at = data;
    uint64_t h[CHAINS], x[CHAINS];
    int64_t left = bytes;
    for (int i = 0; i < CHAINS; i++)
        h[i] = (uint64_t)i + 1;
    for (; left >= (int64_t)sizeof x; left -= (int64_t)sizeof x, at += sizeof x) {
        memcpy(x, at, sizeof x);
        for (int i = 0; i < CHAINS; i++)
            h[i] = chain(h[i], x[i]);
    }
    if (left > 0) {
        memset(x, 0, sizeof x);
        memcpy(x, at, (size_t)left);
        for (int i = 0; i < CHAINS; i++)
            h[i] = chain(h[i], x[i]);
    }
    uint64_t sum = chain(HASH_START, (uint64_t)bytes);
    for (int i = 0; i < CHAINS; i++)
        sum = chain(sum, h[i]);
    return sum;
}

uint64_t checksum(const void *data, int64_t bytes)
{
    return sum_of(data, bytes);
}

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

/* The place of an offset, or the empty one where it would go. */
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
