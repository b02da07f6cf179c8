/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of memory: a list of blocks; see pool.h. */
#include <stddef.h>
#include <stdlib.h>
#include "plan/pool.h"

struct pool_block {
    struct pool_block *next, *before;
    max_align_t data[];
};

/* Resizes a block, which may move, or makes a zeroed one.  Returns its data, or NULL. */
static void *resize(struct pool *m, struct pool_block *old, int64_t n, size_t element)
{
    size_t size = sizeof(*old) + (size_t)n * element;
    struct pool_block *b = old ? realloc(old, size) : calloc(1, size);
    if (!b) {
        m->failed = true;
        return NULL;
    }
    if (!old)
        b->next = m->first;
    *(b->before ? &b->before->next : &m->first) = b;
    if (b->next)
        b->next->before = b;
    return b->data;
}

void *pool_array(struct pool *m, int64_t n, size_t element)
{
    return resize(m, NULL, n + 1, element);
}

int32_t *pool_filled(struct pool *m, int64_t n, int32_t value)
{
    int32_t *a = pool_array(m, n, sizeof(*a));
    for (int64_t i = 0; a && i <= n; i++)
        a[i] = value;
    return a;
}

int pool_reserve(struct pool *m, void **data, int64_t *capacity, int64_t n, size_t element)
{
    if (n < *capacity)
        return 0;
    int64_t want = max_i64(16, n * 2);
    struct pool_block *old = *data ? (struct pool_block *)*data - 1 : NULL;
    void *grown = resize(m, old, want, element);
    if (!grown)
        return CKPT_ENOMEM;
    *data = grown;
    *capacity = want;
    return 0;
}

void pool_free(struct pool *m)
{
    for (struct pool_block *b = m->first, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *m = (struct pool){NULL, false};
}
